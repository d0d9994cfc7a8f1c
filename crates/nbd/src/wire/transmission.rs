//! Transmission: requests and their replies.
//!
//! | structure | bytes | layout |
//! |---|---|---|
//! | request | 28 (+ n for WRITE) | magic u32, flags u16, type u16, cookie u64, offset u64, length u32, payload |
//! | simple reply | 16 (+ n for READ) | magic u32, error u32, cookie u64, data |
//! | chunk of a structured reply | 20 + n | magic u32, flags u16, type u16, cookie u64, length u32, payload |
//! | payload OFFSET_DATA | 8 + n | offset u64, data |
//! | payload OFFSET_HOLE | 12 | offset u64, hole size u32 |
//! | payload BLOCK_STATUS | 4 + 8 n | context id u32, n times: length u32, flags u32 |
//! | payload ERROR | 6 + n | error u32, message length u16, message |

use super::{BadMagic, check_magic, u16_at, u32_at, u64_at};

/// First word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Request types.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the payload follows.
    pub const WRITE: u16 = 1;
    /// No more requests; no reply.
    pub const DISCONNECT: u16 = 2;
    /// Make completed writes durable.
    pub const FLUSH: u16 = 3;
    /// The range holds nothing of value.
    pub const TRIM: u16 = 4;
    /// The range will be read soon.
    pub const CACHE: u16 = 5;
    /// The range reads as zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Tell what the range is like.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a request.
pub mod command_flag {
    /// Durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes that keep their space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The reply to this read is one chunk.
    pub const DF: u16 = 1 << 2;
    /// The reply has one extent per context.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than be slow.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// The chunk that ends a structured reply.
pub const CHUNK_DONE: u16 = 1 << 0;

/// Chunk types.
pub mod chunk {
    /// Nothing.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeroes at an offset.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of one metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error of the whole request.
    pub const ERROR: u16 = 1 << 15 | 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = 1 << 15 | 2;

    /// Whether a chunk of this type, known or not, means that the request failed.
    pub fn is_error(kind: u16) -> bool {
        kind & 1 << 15 != 0
    }
}

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of [`command_flag`], or unknown.
    pub flags: u16,
    /// One of [`command`], or unknown.
    pub command: u16,
    /// Comes back in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset_bytes: u64,
    /// How many bytes.
    pub len_bytes: u32,
}

impl Request {
    /// Size on the wire.
    pub const BYTES: usize = 28;

    /// The bytes.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset_bytes.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len_bytes.to_be_bytes());
        bytes
    }

    /// From at least [`BYTES`](Self::BYTES) bytes; `None` if there are fewer.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, BadMagic> {
        let Some(bytes) = bytes.first_chunk::<{ Self::BYTES }>() else { return Ok(None) };
        let (Some(magic), Some(flags), Some(command), Some(cookie), Some(offset_bytes), Some(len_bytes)) = (
            u32_at(bytes, 0),
            u16_at(bytes, 4),
            u16_at(bytes, 6),
            u64_at(bytes, 8),
            u64_at(bytes, 16),
            u32_at(bytes, 24),
        ) else {
            return Ok(None);
        };
        check_magic(REQUEST_MAGIC.into(), magic.into())?;
        Ok(Some(Self { flags, command, cookie, offset_bytes, len_bytes }))
    }
}

/// A simple reply's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// 0, or an error number: then no data follows.
    pub error: u32,
    /// The request's.
    pub cookie: u64,
}

impl SimpleReply {
    /// Size on the wire.
    pub const BYTES: usize = 16;

    /// The bytes.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_be_bytes());
        bytes[8..].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }

    /// From at least [`BYTES`](Self::BYTES) bytes; `None` if there are fewer.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, BadMagic> {
        let (Some(magic), Some(error), Some(cookie)) = (u32_at(bytes, 0), u32_at(bytes, 4), u64_at(bytes, 8)) else {
            return Ok(None);
        };
        check_magic(SIMPLE_REPLY_MAGIC.into(), magic.into())?;
        Ok(Some(Self { error, cookie }))
    }
}

/// The header of one chunk of a structured reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// [`CHUNK_DONE`] on the last chunk.
    pub flags: u16,
    /// One of [`chunk`], or unknown.
    pub kind: u16,
    /// The request's.
    pub cookie: u64,
    /// Length of the payload.
    pub len_bytes: u32,
}

impl ChunkHeader {
    /// Size on the wire.
    pub const BYTES: usize = 20;

    /// The bytes.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..].copy_from_slice(&self.len_bytes.to_be_bytes());
        bytes
    }

    /// From at least [`BYTES`](Self::BYTES) bytes; `None` if there are fewer.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, BadMagic> {
        let (Some(magic), Some(flags), Some(kind), Some(cookie), Some(len_bytes)) =
            (u32_at(bytes, 0), u16_at(bytes, 4), u16_at(bytes, 6), u64_at(bytes, 8), u32_at(bytes, 16))
        else {
            return Ok(None);
        };
        check_magic(CHUNK_MAGIC.into(), magic.into())?;
        Ok(Some(Self { flags, kind, cookie, len_bytes }))
    }

    /// Header of a chunk of data and the offset that begins its payload.
    pub fn encode_data(
        done: bool,
        cookie: u64,
        offset_bytes: u64,
        data_len_bytes: u32,
    ) -> [u8; Self::BYTES + DATA_OFFSET_BYTES] {
        let flags = if done { CHUNK_DONE } else { 0 };
        let len_bytes = data_len_bytes + DATA_OFFSET_BYTES as u32;
        let mut bytes = [0; Self::BYTES + DATA_OFFSET_BYTES];
        bytes[..Self::BYTES].copy_from_slice(&Self { flags, kind: chunk::OFFSET_DATA, cookie, len_bytes }.encode());
        bytes[Self::BYTES..].copy_from_slice(&offset_bytes.to_be_bytes());
        bytes
    }
}

/// The offset that begins the payload of a data chunk.
pub const DATA_OFFSET_BYTES: usize = 8;

/// Flags of extents in the context `base:allocation` (section "Metadata contexts").
pub mod allocation {
    /// No space is taken.
    pub const HOLE: u32 = 1 << 0;
    /// Reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// Flags of extents in the contexts `cairn:dirty:SNAPSHOT`, those that QEMU's `qemu:dirty-bitmap:` has.
pub mod dirty {
    /// Written, zeroed or discarded since the snapshot.
    pub const DIRTY: u32 = 1 << 0;
}

/// A stretch in one metadata context: a descriptor of a BLOCK_STATUS chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How long it is; not zero.
    pub len_bytes: u32,
    /// What the context says of it.
    pub flags: u32,
}

/// Payload of a BLOCK_STATUS chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPayload {
    /// Which context.
    pub context: u32,
    /// From the request's offset on, without a gap; at least one.
    pub extents: Vec<Extent>,
}

impl StatusPayload {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 + 8 * self.extents.len());
        bytes.extend_from_slice(&self.context.to_be_bytes());
        for Extent { len_bytes, flags } in &self.extents {
            bytes.extend_from_slice(&len_bytes.to_be_bytes());
            bytes.extend_from_slice(&flags.to_be_bytes());
        }
        bytes
    }

    /// From the whole payload; `None` if it does not add up, or has no extent or an empty one.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (pairs, rest) = payload.get(4..)?.as_chunks::<8>();
        let extent = |pair: &[u8; 8]| Some(Extent { len_bytes: u32_at(pair, 0)?, flags: u32_at(pair, 4)? });
        let extents = pairs.iter().map(extent).collect::<Option<Vec<_>>>()?;
        let is_sound = rest.is_empty() && !extents.is_empty() && extents.iter().all(|extent| extent.len_bytes > 0);
        is_sound.then_some(Self { context: u32_at(payload, 0)?, extents })
    }
}

/// Payload of an ERROR chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPayload {
    /// Error number.
    pub error: u32,
    /// What a human is told.
    pub message: String,
}

impl ErrorPayload {
    /// Longest message sent; the protocol allows 4,096.
    pub const MESSAGE_BYTES_MAX: usize = 512;

    /// The bytes; the message is cut to [`MESSAGE_BYTES_MAX`](Self::MESSAGE_BYTES_MAX).
    pub fn encode(&self) -> Vec<u8> {
        let mut end = self.message.len().min(Self::MESSAGE_BYTES_MAX);
        while !self.message.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = Vec::with_capacity(6 + end);
        bytes.extend_from_slice(&self.error.to_be_bytes());
        bytes.extend_from_slice(&(end as u16).to_be_bytes());
        bytes.extend_from_slice(&self.message.as_bytes()[..end]);
        bytes
    }

    /// From the whole payload; what follows the message (the offset of an ERROR_OFFSET chunk) is ignored.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let len = usize::from(u16_at(payload, 4)?);
        let message = payload.get(6..)?.get(..len)?;
        Some(Self { error: u32_at(payload, 0)?, message: String::from_utf8_lossy(message).into_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_request() {
        let request = Request {
            flags: command_flag::FUA,
            command: command::WRITE,
            cookie: 0x0102_0304_0506_0708,
            offset_bytes: 0x1_0000_0000,
            len_bytes: 4096,
        };
        let bytes = request.encode();
        assert_eq!(
            bytes,
            [0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x10, 0]
        );
        assert_eq!(Request::decode(&bytes), Ok(Some(request)));
        assert_eq!(Request::decode(&bytes[..27]), Ok(None));
        assert!(Request::decode(&[0; 28]).is_err());
    }

    #[test]
    fn golden_simple_reply() {
        let reply = SimpleReply { error: Errno::NoSpace as u32, cookie: 9 };
        assert_eq!(reply.encode(), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(SimpleReply::decode(&reply.encode()), Ok(Some(reply)));
    }

    #[test]
    fn golden_data_chunk() {
        let bytes = ChunkHeader::encode_data(true, 7, 512, 4096);
        assert_eq!(
            bytes,
            [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0x10, 8, 0, 0, 0, 0, 0, 0, 2, 0]
        );
        let header = ChunkHeader { flags: CHUNK_DONE, kind: chunk::OFFSET_DATA, cookie: 7, len_bytes: 4104 };
        assert_eq!(ChunkHeader::decode(&bytes), Ok(Some(header)));
    }

    #[test]
    fn golden_block_status() {
        let extents = vec![Extent { len_bytes: 4096, flags: 3 }, Extent { len_bytes: 1 << 20, flags: 0 }];
        let status = StatusPayload { context: 2, extents };
        let bytes = status.encode();
        assert_eq!(bytes, [0, 0, 0, 2, 0, 0, 0x10, 0, 0, 0, 0, 3, 0, 0x10, 0, 0, 0, 0, 0, 0]);
        assert_eq!(StatusPayload::decode(&bytes), Some(status));
        assert_eq!(StatusPayload::decode(&bytes[..12]).map(|status| status.extents.len()), Some(1));
        for end in (0..bytes.len()).filter(|end| *end != 12) {
            assert_eq!(StatusPayload::decode(&bytes[..end]), None, "{end} bytes");
        }
        assert_eq!(StatusPayload::decode(&[0; 12]), None, "an empty extent");
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let error = ErrorPayload { error: 5, message: "ä".repeat(300) };
        let bytes = error.encode();
        let back = ErrorPayload::decode(&bytes).expect("whole");
        assert_eq!(back.message, "ä".repeat(256));
        assert_eq!(ErrorPayload::decode(&bytes[..bytes.len() - 1]), None);
    }

    use super::super::Errno;
}

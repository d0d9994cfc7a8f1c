//! The handshake: fixed newstyle.
//!
//! | structure | bytes | layout |
//! |---|---|---|
//! | greeting (server) | 18 | `NBDMAGIC`, `IHAVEOPT`, handshake flags u16 |
//! | client flags | 4 | u32 |
//! | option (client) | 16 + n | `IHAVEOPT`, option u32, length u32, data |
//! | option reply (server) | 20 + n | magic u64, option u32, reply u32, length u32, data |
//! | data of a context option | 8 + n | name length u32, name, count u32, that many queries: length u32, query |
//! | data of a context reply | 4 + n | context id u32, name |
//! | export name reply | 10 (+ 124) | size u64, transmission flags u16, zeroes unless both said NO_ZEROES |

use super::{BadMagic, check_magic, u16_at, u32_at, u64_at};

/// "NBDMAGIC".
pub const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// "IHAVEOPT": second word of the greeting, first word of each option.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// First word of each option reply.
pub const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Handshake flag of both sides: unknown options are answered, not punished.
pub const FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag of both sides: no 124 zeroes after the answer to EXPORT_NAME.
pub const NO_ZEROES: u16 = 1 << 1;
/// Zeroes that end the answer to EXPORT_NAME unless both sides said NO_ZEROES.
pub const EXPORT_NAME_PADDING_BYTES: usize = 124;
/// Longest name that the protocol allows.
pub const NAME_BYTES_MAX: usize = 4096;

/// Options of a client.
pub mod option {
    /// Choose an export and go on to transmission, without a way to say no.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// Name all exports.
    pub const LIST: u32 = 3;
    /// Tell of an export.
    pub const INFO: u32 = 6;
    /// Tell of an export and go on to transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Name the metadata contexts of an export.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose those that block status tells of.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One piece of what INFO and GO tell.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    /// The option is not known here.
    pub const ERR_UNSUP: u32 = ERROR | 1;
    /// The server may not do it: here, a volume is locked.
    pub const ERR_POLICY: u32 = ERROR | 2;
    /// The option's data makes no sense.
    pub const ERR_INVALID: u32 = ERROR | 3;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = ERROR | 6;
    /// The option's data is too long.
    pub const ERR_TOO_BIG: u32 = ERROR | 9;

    /// Whether this reply refuses the option.
    pub fn is_error(reply: u32) -> bool {
        reply & ERROR != 0
    }
}

/// Pieces of information in replies to INFO and GO.
pub mod info {
    /// Size and transmission flags; always sent.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// What a human is told of it.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and largest size of a request.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
pub mod export_flag {
    /// Flags are valid; always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Nothing can be written.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH works.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA flag works.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM works.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES works.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The DF flag works (only with structured replies).
    pub const SEND_DF: u16 = 1 << 7;
    /// Several connections see one coherent export: a flush on one covers all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE works.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// WRITE_ZEROES can be told to be fast or fail.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// The server's first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// FIXED_NEWSTYLE, NO_ZEROES.
    pub flags: u16,
}

impl Greeting {
    /// Size on the wire.
    pub const BYTES: usize = 18;

    /// The bytes.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        bytes[16..].copy_from_slice(&self.flags.to_be_bytes());
        bytes
    }

    /// From at least [`BYTES`](Self::BYTES) bytes; `None` if there are fewer.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, BadMagic> {
        let (Some(magic), Some(option), Some(flags)) = (u64_at(bytes, 0), u64_at(bytes, 8), u16_at(bytes, 16)) else {
            return Ok(None);
        };
        check_magic(MAGIC, magic)?;
        check_magic(OPTION_MAGIC, option)?;
        Ok(Some(Self { flags }))
    }
}

/// What stands before an option's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// One of [`option`], or unknown.
    pub option: u32,
    /// Length of the data.
    pub len_bytes: u32,
}

impl OptionHeader {
    /// Size on the wire.
    pub const BYTES: usize = 16;

    /// The bytes.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.option.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len_bytes.to_be_bytes());
        bytes
    }

    /// From at least [`BYTES`](Self::BYTES) bytes; `None` if there are fewer.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, BadMagic> {
        let (Some(magic), Some(option), Some(len_bytes)) = (u64_at(bytes, 0), u32_at(bytes, 8), u32_at(bytes, 12))
        else {
            return Ok(None);
        };
        check_magic(OPTION_MAGIC, magic)?;
        Ok(Some(Self { option, len_bytes }))
    }
}

/// What stands before the data of an option's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The option answered.
    pub option: u32,
    /// One of [`reply`].
    pub reply: u32,
    /// Length of the data.
    pub len_bytes: u32,
}

impl ReplyHeader {
    /// Size on the wire.
    pub const BYTES: usize = 20;

    /// The bytes.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.option.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.reply.to_be_bytes());
        bytes[16..].copy_from_slice(&self.len_bytes.to_be_bytes());
        bytes
    }

    /// From at least [`BYTES`](Self::BYTES) bytes; `None` if there are fewer.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, BadMagic> {
        let (Some(magic), Some(option), Some(reply), Some(len_bytes)) =
            (u64_at(bytes, 0), u32_at(bytes, 8), u32_at(bytes, 12), u32_at(bytes, 16))
        else {
            return Ok(None);
        };
        check_magic(REPLY_MAGIC, magic)?;
        Ok(Some(Self { option, reply, len_bytes }))
    }
}

/// Size and flags of an export: the data of [`info::EXPORT`] behind its type, and the answer to EXPORT_NAME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportSize {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Of [`export_flag`].
    pub flags: u16,
}

impl ExportSize {
    /// Size on the wire.
    pub const BYTES: usize = 10;

    /// The bytes.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.size_bytes.to_be_bytes());
        bytes[8..].copy_from_slice(&self.flags.to_be_bytes());
        bytes
    }

    /// From at least [`BYTES`](Self::BYTES) bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self { size_bytes: u64_at(bytes, 0)?, flags: u16_at(bytes, 8)? })
    }
}

/// Sizes of requests that an export takes: the data of [`info::BLOCK_SIZE`] behind its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Every offset and length is a multiple of it.
    pub minimum_bytes: u32,
    /// What is served best.
    pub preferred_bytes: u32,
    /// Longest payload of a request.
    pub maximum_bytes: u32,
}

impl BlockSizes {
    /// Size on the wire.
    pub const BYTES: usize = 12;

    /// The bytes.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.minimum_bytes.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.preferred_bytes.to_be_bytes());
        bytes[8..].copy_from_slice(&self.maximum_bytes.to_be_bytes());
        bytes
    }

    /// From at least [`BYTES`](Self::BYTES) bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            minimum_bytes: u32_at(bytes, 0)?,
            preferred_bytes: u32_at(bytes, 4)?,
            maximum_bytes: u32_at(bytes, 8)?,
        })
    }
}

/// Data of INFO and GO: name length u32, name, count u16, that many types u16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// The export's name; empty asks for the default one.
    pub name: &'a str,
    wanted: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    /// Appends the data of a request for `name` that asks for `wanted`.
    pub fn encode(name: &str, wanted: &[u16], to: &mut Vec<u8>) {
        to.extend_from_slice(&(name.len() as u32).to_be_bytes());
        to.extend_from_slice(name.as_bytes());
        to.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
        wanted.iter().for_each(|kind| to.extend_from_slice(&kind.to_be_bytes()));
    }

    /// `None` unless the lengths add up to exactly the data and the name is UTF-8.
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let name_len = u32_at(data, 0)? as usize;
        let name = data.get(4..)?.get(..name_len)?;
        let rest = data.get(4 + name_len..)?;
        let wanted = rest.get(2..)?;
        if wanted.len() != usize::from(u16_at(rest, 0)?) * 2 || name_len > NAME_BYTES_MAX {
            return None;
        }
        Some(Self { name: std::str::from_utf8(name).ok()?, wanted })
    }

    /// Whether the client asks for this piece.
    pub fn wants(&self, kind: u16) -> bool {
        self.wanted.chunks_exact(2).any(|pair| pair == kind.to_be_bytes())
    }
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT (section "Option types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaRequest<'a> {
    /// The export's name; empty asks for the default one.
    pub export: &'a str,
    /// The queries behind their count; each was looked at.
    queries: &'a [u8],
}

impl<'a> MetaRequest<'a> {
    /// Appends the data of a request for `export`.
    pub fn encode(export: &str, queries: &[&str], to: &mut Vec<u8>) {
        put_string(export, to);
        to.extend_from_slice(&(queries.len() as u32).to_be_bytes());
        queries.iter().for_each(|query| put_string(query, to));
    }

    /// `None` unless the lengths add up to exactly the data and all strings are UTF-8.
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let (export, rest) = string_at(data)?;
        let (count, queries) = (u32_at(rest, 0)?, rest.get(4..)?);
        let mut left = queries;
        for _ in 0..count {
            left = string_at(left)?.1;
        }
        (left.is_empty() && export.len() <= NAME_BYTES_MAX).then_some(Self { export, queries })
    }

    /// The queries, in order.
    pub fn queries(&self) -> impl Iterator<Item = &'a str> {
        let mut left = self.queries;
        std::iter::from_fn(move || {
            let (query, rest) = string_at(left)?;
            left = rest;
            Some(query)
        })
    }
}

fn put_string(string: &str, to: &mut Vec<u8>) {
    to.extend_from_slice(&(string.len() as u32).to_be_bytes());
    to.extend_from_slice(string.as_bytes());
}

/// A length and as many bytes of UTF-8; and what follows.
fn string_at(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let len = u32_at(bytes, 0)? as usize;
    let (string, rest) = bytes.get(4..)?.split_at_checked(len)?;
    Some((std::str::from_utf8(string).ok()?, rest))
}

/// Data of a [`reply::META_CONTEXT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaReply {
    /// What block status calls it on this connection; without a meaning in a list.
    pub id: u32,
    /// Its name.
    pub name: String,
}

impl MetaReply {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        [&self.id.to_be_bytes(), self.name.as_bytes()].concat()
    }

    /// From the whole data; `None` if it is too short or the name is not UTF-8.
    pub fn decode(data: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(data.get(4..)?).ok()?;
        Some(Self { id: u32_at(data, 0)?, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_greeting() {
        let bytes = Greeting { flags: FIXED_NEWSTYLE | NO_ZEROES }.encode();
        assert_eq!(&bytes, b"NBDMAGICIHAVEOPT\x00\x03");
        assert_eq!(Greeting::decode(&bytes), Ok(Some(Greeting { flags: 3 })));
        assert_eq!(Greeting::decode(&bytes[..17]), Ok(None));
        assert!(Greeting::decode(b"NBDMAGICIHAVEOPX\x00\x03").is_err());
    }

    #[test]
    fn golden_option() {
        let header = OptionHeader { option: option::GO, len_bytes: 0x0102 };
        let bytes = header.encode();
        assert_eq!(&bytes, b"IHAVEOPT\x00\x00\x00\x07\x00\x00\x01\x02");
        assert_eq!(OptionHeader::decode(&bytes), Ok(Some(header)));
    }

    #[test]
    fn golden_option_reply() {
        let header = ReplyHeader { option: option::LIST, reply: reply::ERR_UNKNOWN, len_bytes: 5 };
        let bytes = header.encode();
        assert_eq!(
            bytes,
            [0, 3, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9, 0, 0, 0, 3, 0x80, 0, 0, 6, 0, 0, 0, 5],
            "magic, option, reply, length"
        );
        assert_eq!(ReplyHeader::decode(&bytes), Ok(Some(header)));
    }

    #[test]
    fn golden_info() {
        let size = ExportSize { size_bytes: 1 << 30, flags: 0x096d };
        assert_eq!(size.encode(), [0, 0, 0, 0, 0x40, 0, 0, 0, 0x09, 0x6d]);
        assert_eq!(ExportSize::decode(&size.encode()), Some(size));
        let sizes = BlockSizes { minimum_bytes: 1, preferred_bytes: 4096, maximum_bytes: 32 << 20 };
        assert_eq!(sizes.encode(), [0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0]);
        assert_eq!(BlockSizes::decode(&sizes.encode()), Some(sizes));
    }

    #[test]
    fn a_context_request_must_add_up() {
        let mut data = Vec::new();
        MetaRequest::encode("demo", &["base:allocation", ""], &mut data);
        assert_eq!(data, b"\0\0\0\x04demo\0\0\0\x02\0\0\0\x0fbase:allocation\0\0\0\0");
        let request = MetaRequest::decode(&data).expect("whole");
        assert_eq!(request.export, "demo");
        assert_eq!(request.queries().collect::<Vec<_>>(), ["base:allocation", ""]);
        (0..data.len()).for_each(|end| assert_eq!(MetaRequest::decode(&data[..end]), None));
        data.push(0);
        assert_eq!(MetaRequest::decode(&data), None);
        // A count that no data could hold costs nothing.
        assert_eq!(MetaRequest::decode(b"\0\0\0\0\xff\xff\xff\xff"), None);
    }

    #[test]
    fn golden_context() {
        let reply = MetaReply { id: 7, name: "base:allocation".into() };
        assert_eq!(reply.encode(), b"\0\0\0\x07base:allocation");
        assert_eq!(MetaReply::decode(&reply.encode()), Some(reply));
        assert_eq!(MetaReply::decode(&[0, 0, 0]), None);
    }

    #[test]
    fn an_info_request_must_add_up() {
        let mut data = Vec::new();
        InfoRequest::encode("demo", &[info::NAME, info::BLOCK_SIZE], &mut data);
        assert_eq!(data, b"\x00\x00\x00\x04demo\x00\x02\x00\x01\x00\x03");
        let request = InfoRequest::decode(&data).expect("whole");
        assert_eq!(request.name, "demo");
        assert!(request.wants(info::BLOCK_SIZE) && !request.wants(info::DESCRIPTION));
        for end in 0..data.len() {
            assert_eq!(InfoRequest::decode(&data[..end]), None);
        }
        data.push(0);
        assert_eq!(InfoRequest::decode(&data), None);
    }
}

//! The header of every frame.

use super::bytes::{put_u16, put_u32, put_u64, put_u128, u16_at, u32_at, u64_at, u128_at};
use super::{Features, MAX_BLOCKS_BYTES, WireError};
use runtime::buf::ALIGNMENT;
use store::format::Crc32c;
use types::{GroupId, Incarnation, StoreId};

/// Length of the header.
pub const FRAME_HEADER_BYTES: usize = 112;
/// Version of the header, by the version of the protocol that it came with: of bodies and kinds the hello tells.
pub const WIRE_VERSION: u16 = 3;
/// Longest body: blocks, and room for the heads of as many entries as one frame may carry.
pub const MAX_BODY_BYTES: usize = MAX_META_BYTES as usize + MAX_BLOCKS_BYTES as usize;
/// Longest meta part of a frame that carries entries: 4,096 writes of one block take 352 KiB.
pub(super) const MAX_META_BYTES: u32 = 512 << 10;
/// Of a frame that carries a list: a whole history, or every group that a beat's answer can name.
const MAX_LIST_META_BYTES: u32 = 80 << 10;
/// Of all others. It is what a stranger may make this node keep.
const MAX_SMALL_META_BYTES: u32 = 4 << 10;

const WHAT: &str = "frame header";
/// The last byte is the version of the few fields that come before any other can be judged.
const MAGIC: [u8; 4] = *b"CRN\x01";
const HEADER_SUM_AT: usize = 108;
const _: () = assert!(HEADER_SUM_AT + 4 == FRAME_HEADER_BYTES && FRAME_HEADER_BYTES.is_multiple_of(8));

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A node opens a connection.
    Hello = 1,
    /// The other agrees.
    HelloAnswer = 2,
    /// The other does not, and says why.
    HelloRefused = 3,
    /// Who opened the connection knows the cluster's key.
    HelloProof = 4,
    /// A node lives, and asks for leases for all its primaries.
    Beat = 16,
    /// The other lives, and grants them.
    BeatAnswer = 17,
    /// Whether the connection lives.
    Ping = 18,
    /// It does.
    Pong = 19,
    /// [`CallMessage::Call`](super::CallMessage::Call).
    Call = 20,
    /// [`CallMessage::Reply`](super::CallMessage::Reply).
    Reply = 21,
    /// The supervisor of a node says that lives of its stores are over.
    Dead = 22,
    /// Says nothing: a release after this one has it, for tests.
    Rehearsed = 23,
    /// [`Message::Prepare`](crate::protocol::Message::Prepare).
    Prepare = 32,
    /// [`Message::Prepared`](crate::protocol::Message::Prepared).
    Prepared = 33,
    /// [`Message::Ask`](crate::protocol::Message::Ask).
    Ask = 34,
    /// [`Message::Told`](crate::protocol::Message::Told).
    Told = 35,
    /// [`Message::Fetch`](crate::protocol::Message::Fetch).
    Fetch = 36,
    /// [`Message::Fetched`](crate::protocol::Message::Fetched).
    Fetched = 37,
    /// [`Message::Refused`](crate::protocol::Message::Refused).
    Refused = 38,
    /// [`Message::GaveUp`](crate::protocol::Message::GaveUp).
    GaveUp = 39,
    /// [`Request`](super::Request): the head of a volume to a group.
    Request = 40,
    /// [`Answer`](super::Answer): the group to the head.
    Answer = 41,
    /// [`Fill::Compare`](super::Fill::Compare), and so on: see `fill`.
    Compare = 48,
    /// [`Fill::Leaves`](super::Fill::Leaves).
    Leaves = 49,
    /// [`Fill::Pending`](super::Fill::Pending).
    Pending = 50,
    /// [`Fill::Skip`](super::Fill::Skip).
    Skip = 51,
    /// [`Fill::Skipped`](super::Fill::Skipped).
    Skipped = 52,
    /// [`Fill::UnitBegin`](super::Fill::UnitBegin).
    UnitBegin = 53,
    /// [`Fill::UnitPart`](super::Fill::UnitPart).
    UnitPart = 54,
    /// [`Fill::UnitEnd`](super::Fill::UnitEnd).
    UnitEnd = 55,
    /// [`Fill::UnitTaken`](super::Fill::UnitTaken).
    UnitTaken = 56,
    /// [`Fill::Filled`](super::Fill::Filled).
    Filled = 57,
    /// [`Fill::Digest`](super::Fill::Digest).
    Digest = 58,
    /// [`Fill::Layers`](super::Fill::Layers).
    Layers = 59,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 34] = [
        Self::Hello,
        Self::HelloAnswer,
        Self::HelloRefused,
        Self::HelloProof,
        Self::Beat,
        Self::BeatAnswer,
        Self::Ping,
        Self::Pong,
        Self::Call,
        Self::Reply,
        Self::Dead,
        Self::Rehearsed,
        Self::Prepare,
        Self::Prepared,
        Self::Ask,
        Self::Told,
        Self::Fetch,
        Self::Fetched,
        Self::Refused,
        Self::GaveUp,
        Self::Request,
        Self::Answer,
        Self::Compare,
        Self::Leaves,
        Self::Pending,
        Self::Skip,
        Self::Skipped,
        Self::UnitBegin,
        Self::UnitPart,
        Self::UnitEnd,
        Self::UnitTaken,
        Self::Filled,
        Self::Digest,
        Self::Layers,
    ];

    fn from_byte(byte: u8) -> Result<Self, WireError> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte).ok_or(WireError::Kind { found: byte })
    }

    /// What the other side must have to be sent it: whoever sends looks at what was agreed on, and whoever receives, too.
    pub fn needs(self) -> Features {
        match self {
            Self::Rehearsed => Features::REHEARSAL,
            _ => Features::NONE,
        }
    }

    /// Whether it is about a group, to or from one of its stores; else it is between two nodes.
    pub fn is_of_group(self) -> bool {
        self as u8 >= Self::Prepare as u8
    }

    /// Whether entries travel with it.
    pub fn has_entries(self) -> bool {
        matches!(self, Self::Prepare | Self::Fetched)
    }

    /// Whether the head of a volume is on one side.
    pub fn is_of_head(self) -> bool {
        matches!(self, Self::Request | Self::Answer)
    }

    /// Whether it is a plain call, or its reply.
    pub fn is_of_call(self) -> bool {
        matches!(self, Self::Call | Self::Reply)
    }

    /// Whether it is a part of catch-up.
    pub fn is_of_fill(self) -> bool {
        self as u8 >= Self::Compare as u8
    }

    /// Most bytes of its meta part.
    pub fn meta_bytes_max(self) -> u32 {
        match self {
            Self::Prepare | Self::Fetched | Self::Skip => MAX_META_BYTES,
            Self::BeatAnswer | Self::Told | Self::Request | Self::Answer => MAX_LIST_META_BYTES,
            Self::Call | Self::Reply => MAX_LIST_META_BYTES,
            Self::Leaves | Self::Pending | Self::Layers | Self::UnitBegin | Self::UnitPart => MAX_LIST_META_BYTES,
            _ => MAX_SMALL_META_BYTES,
        }
    }

    /// Most bytes of blocks.
    pub fn blocks_bytes_max(self) -> u32 {
        let has_blocks = self.has_entries() || self.is_of_head() || self.is_of_call() || self == Self::UnitPart;
        if has_blocks { MAX_BLOCKS_BYTES } else { 0 }
    }
}

/// Whose work it is, when there is more than can be done at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// A client waits, or the group itself.
    #[default]
    Client = 0,
    /// A copy is made whole.
    Recovery = 1,
    /// Copies are compared.
    Scrub = 2,
}

impl Class {
    fn from_byte(byte: u8) -> Result<Self, WireError> {
        match byte {
            0 => Ok(Self::Client),
            1 => Ok(Self::Recovery),
            2 => Ok(Self::Scrub),
            other => Err(WireError::field(WHAT, "class", other)),
        }
    }
}

/// Names a request in its answer, on one connection; 0: there is no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// Names what a host asked for through all that was done for it; 0: nothing is traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TraceId(pub u64);

/// Who speaks to whom, of what. Between nodes (a hello, a beat) stores, incarnation and group are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Whose work it is.
    pub class: Class,
    /// The store that speaks.
    pub sender: StoreId,
    /// Which of its lives.
    pub incarnation: Incarnation,
    /// The store that is meant.
    pub receiver: StoreId,
    /// The group.
    pub group: GroupId,
    /// What is answered with the same.
    pub request: RequestId,
    /// What it is done for.
    pub trace: TraceId,
    /// After so many milliseconds nobody waits for it any more; 0: no limit.
    pub remaining_ms: u32,
    /// Of entries: the attempt to make the receiver whole in which they are sent; 0: it is whole. Of a head's request: its
    /// attempt at the group.
    pub attempt: u64,
}

/// The first bytes of a frame. What it is about is in its [`Envelope`]; epochs are in the bodies.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 4 | magic: `CRN`, 1 |
/// | 4 | 2 | version, 3 |
/// | 6 | 1 | kind |
/// | 7 | 1 | class: 0 client, 1 recovery, 2 scrub |
/// | 8 | 4 | length of the meta part |
/// | 12 | 4 | length of the blocks behind it |
/// | 16 | 8 | features that the reader must have: bits, [`Kind::needs`] |
/// | 24 | 16 | sender's store |
/// | 40 | 16 | receiver's store |
/// | 56 | 8 | sender's incarnation |
/// | 64 | 8 | request, 0 none |
/// | 72 | 8 | trace, 0 none |
/// | 80 | 4 | group |
/// | 84 | 4 | remaining time, ms, 0 no limit |
/// | 88 | 8 | of entries: the attempt to make the receiver whole, 0 none; of a head's request: its attempt at the group |
/// | 96 | 8 | zero; for what a reader need not know (tenant) and does not look at |
/// | 104 | 4 | crc32c of the meta part |
/// | 108 | 4 | crc32c of bytes 0 to 107 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What it is.
    pub kind: Kind,
    /// Who speaks to whom.
    pub envelope: Envelope,
    /// Length of the meta part.
    pub meta_bytes: u32,
    /// Length of the blocks.
    pub blocks_bytes: u32,
    /// The sum that the meta part must have.
    pub meta_sum: Crc32c,
}

impl FrameHeader {
    /// Bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.meta_bytes as usize + self.blocks_bytes as usize
    }

    /// Bytes of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.body_bytes()
    }

    /// Where in an aligned buffer the body is best received: so that its blocks are aligned, and can be written to a
    /// device from where they lie.
    pub fn body_at_bytes(&self) -> usize {
        match self.blocks_bytes {
            0 => 0,
            _ => (self.meta_bytes as usize).next_multiple_of(ALIGNMENT) - self.meta_bytes as usize,
        }
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        let Envelope { class, sender, incarnation, receiver, group, request, trace, remaining_ms, attempt } =
            self.envelope;
        out[..4].copy_from_slice(&MAGIC);
        put_u16(out, 4, WIRE_VERSION);
        out[6] = self.kind as u8;
        out[7] = class as u8;
        put_u32(out, 8, self.meta_bytes);
        put_u32(out, 12, self.blocks_bytes);
        put_u64(out, 16, self.kind.needs().0);
        put_u128(out, 24, sender.0);
        put_u128(out, 40, receiver.0);
        put_u64(out, 56, incarnation.0);
        put_u64(out, 64, request.0);
        put_u64(out, 72, trace.0);
        put_u32(out, 80, group.0);
        put_u32(out, 84, remaining_ms);
        put_u64(out, 88, attempt);
        out[96..104].fill(0);
        put_u32(out, 104, self.meta_sum.0);
        let sum = Crc32c::of(&out[..HEADER_SUM_AT]);
        put_u32(out, HEADER_SUM_AT, sum.0);
    }

    /// Reads the front of `bytes`; `None` if more are needed. What is not the beginning of a frame is refused as soon as
    /// that shows.
    ///
    /// # Errors
    /// Another protocol or version, bytes that changed, a kind or feature that this build does not know, lengths that no
    /// sender of this kind has.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let there = bytes.len().min(MAGIC.len());
        if bytes[..there] != MAGIC[..there] {
            return Err(WireError::Magic);
        }
        if bytes.len() >= 6 && u16_at(bytes, 4) != WIRE_VERSION {
            return Err(WireError::Version { found: u16_at(bytes, 4), supported: WIRE_VERSION });
        }
        let Some(from) = bytes.get(..FRAME_HEADER_BYTES) else { return Ok(None) };
        let (expected, found) = (u32_at(from, HEADER_SUM_AT), Crc32c::of(&from[..HEADER_SUM_AT]).0);
        if expected != found {
            return Err(WireError::Sum { what: WHAT, expected, found });
        }
        let needs = u64_at(from, 16);
        let unknown = needs & !Features::KNOWN.0;
        if unknown != 0 {
            return Err(WireError::Features { bits: unknown });
        }
        let kind = Kind::from_byte(from[6])?;
        if needs != kind.needs().0 {
            return Err(WireError::field(WHAT, "features that the reader must have", needs));
        }
        let header = Self {
            kind,
            envelope: Envelope {
                class: Class::from_byte(from[7])?,
                sender: StoreId(u128_at(from, 24)),
                incarnation: Incarnation(u64_at(from, 56)),
                receiver: StoreId(u128_at(from, 40)),
                group: GroupId(u32_at(from, 80)),
                request: RequestId(u64_at(from, 64)),
                trace: TraceId(u64_at(from, 72)),
                remaining_ms: u32_at(from, 84),
                attempt: u64_at(from, 88),
            },
            meta_bytes: u32_at(from, 8),
            blocks_bytes: u32_at(from, 12),
            meta_sum: Crc32c(u32_at(from, 104)),
        };
        header.check()?;
        Ok(Some(header))
    }

    pub(super) fn check(&self) -> Result<(), WireError> {
        let kind = self.kind;
        let parts = [
            ("meta part", self.meta_bytes, kind.meta_bytes_max()),
            ("blocks", self.blocks_bytes, kind.blocks_bytes_max()),
        ];
        for (what, found, most) in parts {
            if found > most {
                return Err(WireError::TooLong { kind, what, found, most });
            }
        }
        let Envelope { sender, receiver, incarnation, group, .. } = self.envelope;
        let has_group = (sender, receiver, incarnation, group) != Default::default();
        if !kind.is_of_group() && has_group {
            return Err(WireError::field(WHAT, "group, or a store, of what is between nodes", group.0));
        }
        Ok(())
    }

    /// The meta part of a body that came with this header, and has its sum.
    pub(super) fn meta_of<'a>(&self, body: &'a [u8]) -> Result<&'a [u8], WireError> {
        if body.len() != self.body_bytes() {
            return Err(WireError::Short { what: "body", expected: self.body_bytes(), found: body.len() });
        }
        let meta = &body[..self.meta_bytes as usize];
        let found = Crc32c::of(meta);
        if found != self.meta_sum {
            return Err(WireError::Sum { what: "meta part", expected: self.meta_sum.0, found: found.0 });
        }
        Ok(meta)
    }
}

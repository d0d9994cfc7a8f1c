//! A plain call from node to node, and its reply: what they carry is the matter of whoever stands above. The number of a call is
//! the request of its envelope; its reply has the same, on the same connection.
//!
//! | body | list | behind the meta part |
//! |---|---|---|
//! | `call` | the head | the payload |
//! | `reply` | the head, or the reason, UTF-8 | the payload |

use super::body::{Body, begin_fixed, end_list};
use super::bytes::{put_u16, put_u32, u16_at, u32_at};
use super::hello::{plain, plain_of};
use super::{Kind, MAX_BLOCKS_BYTES, MAX_REASON_BYTES, WireError};
use runtime::{IoBuf, SharedBuf};
use store::format::Crc32c;

/// Longest head of a call, or of a reply.
pub const MAX_CALL_HEAD_BYTES: usize = 32 << 10;
/// Longest payload of a call, or of a reply.
pub const MAX_CALL_BYTES: usize = MAX_BLOCKS_BYTES as usize;

/// What a call is about: one number for each that answers calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service(pub u16);

/// What travels: a few words, and bytes that go as they lie, aligned where they arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// At most [`MAX_CALL_HEAD_BYTES`].
    pub head: Vec<u8>,
    /// At most [`MAX_CALL_BYTES`].
    pub bytes: SharedBuf,
}

impl Parcel {
    /// Words alone.
    pub fn of(head: Vec<u8>) -> Self {
        Self { head, bytes: IoBuf::new(0).freeze() }
    }
}

/// Either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallMessage {
    /// Somebody is asked.
    Call(Service, Parcel),
    /// The answer; or why there is none, and nothing was done.
    Reply(Result<Parcel, String>),
}

/// Fixed part of `call` and `reply`.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 16 |
/// | 2 | 2 | of a call the service; of a reply 0, or 1: a reason |
/// | 4 | 4 | crc32c of the payload |
/// | 8 | 4 | length of the list |
/// | 12 | 4 | zero |
impl CallMessage {
    const BYTES: usize = 16;
    const WHAT: &'static str = "call";

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Call(..) => Kind::Call,
            Self::Reply(_) => Kind::Reply,
        }
    }

    /// Appends the meta part; the payload goes to `blocks`. Returns its length.
    pub(super) fn encode(&self, out: &mut Vec<u8>, blocks: &mut Vec<SharedBuf>) -> Result<u32, WireError> {
        let (number, parcel, reason) = match self {
            Self::Call(service, parcel) => (service.0, Some(parcel), None),
            Self::Reply(Ok(parcel)) => (0, Some(parcel), None),
            Self::Reply(Err(reason)) => (1, None, Some(plain(reason).collect::<String>())),
        };
        let head = parcel.map_or_else(|| reason.as_deref().unwrap_or_default().as_bytes(), |parcel| &parcel.head);
        let payload = parcel.map(|parcel| &parcel.bytes).filter(|bytes| !bytes.is_empty());
        let bytes = payload.map_or(0, |bytes| bytes.len());
        for (field, found, most) in
            [("length of the head", head.len(), MAX_CALL_HEAD_BYTES), ("length of the payload", bytes, MAX_CALL_BYTES)]
        {
            if found > most {
                return Err(WireError::field(Self::WHAT, field, found as u64));
            }
        }
        let fixed = begin_fixed::<{ Self::BYTES }>(out);
        put_u16(fixed, 2, number);
        put_u32(fixed, 4, payload.map_or(Crc32c::of(&[]), |bytes| Crc32c::of(bytes)).0);
        put_u32(fixed, 8, head.len() as u32);
        let start = out.len();
        out.extend_from_slice(head);
        end_list(out, start);
        blocks.extend(payload.cloned());
        Ok(bytes as u32)
    }

    /// Reads a body whose meta part has its sum, and compares its payload with its own.
    pub(super) fn decode(kind: Kind, meta_bytes: usize, body: &SharedBuf) -> Result<Self, WireError> {
        let (fixed, mut lists) = Body::begin(Self::WHAT, &body[..meta_bytes], Self::BYTES)?;
        let (number, length) = (u16_at(fixed, 2), u32_at(fixed, 8));
        let is_reason = kind == Kind::Reply && number == 1;
        let most = if is_reason { MAX_REASON_BYTES } else { MAX_CALL_HEAD_BYTES };
        if length as usize > most {
            return Err(WireError::field(Self::WHAT, "length of the head", length));
        }
        let head = lists.list(length as usize)?;
        let bytes = body.slice(meta_bytes..body.len());
        let (expected, found) = (u32_at(fixed, 4), Crc32c::of(&bytes).0);
        if expected != found {
            return Err(WireError::Sum { what: "payload of a call", expected, found });
        }
        Ok(match (kind, number) {
            (Kind::Call, service) => Self::Call(Service(service), Parcel { head: head.to_vec(), bytes }),
            (_, 0) => Self::Reply(Ok(Parcel { head: head.to_vec(), bytes })),
            (_, 1) if bytes.is_empty() => Self::Reply(Err(plain_of(Self::WHAT, head)?)),
            (_, other) => return Err(WireError::field(Self::WHAT, "what a reply says", other)),
        })
    }
}

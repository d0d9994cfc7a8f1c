//! Every structure of the protocol that this server and client use, in network byte order.
//!
//! - [`handshake`]: greeting, options and their replies.
//! - [`transmission`]: requests, simple replies, chunks of structured replies.
//!
//! Decoders take a slice and return `None` where it is too short, [`BadMagic`] where it is not what it claims to be;
//! they never panic. Unknown numbers are kept as they are: what to answer is the machine's business.

pub mod handshake;
pub mod transmission;

/// The bytes are not the structure that must stand here: the two sides have lost each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad magic {found:#x}, expected {expected:#x}: the peer does not speak NBD, or the stream is out of step")]
pub struct BadMagic {
    /// What must stand here.
    pub expected: u64,
    /// What stands here.
    pub found: u64,
}

/// Errors that a reply can carry (proto.md, "Error values").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// The export is read only.
    NotPermitted = 1,
    /// Input or output failed.
    Io = 5,
    /// The request makes no sense: unknown command or flag, range beyond the end.
    Invalid = 22,
    /// No room for new blocks, or a write beyond the end.
    NoSpace = 28,
    /// A read that must not be cut into chunks is too long for one.
    Overflow = 75,
    /// It cannot be done the way that was asked for: zeroes that are to be fast are not.
    NotSupported = 95,
    /// The server is going away, or the export has.
    Shutdown = 108,
}

impl Errno {
    /// The nearest error that this server knows.
    pub fn from_wire(number: u32) -> Self {
        match number {
            1 => Self::NotPermitted,
            22 => Self::Invalid,
            28 => Self::NoSpace,
            75 => Self::Overflow,
            95 => Self::NotSupported,
            108 => Self::Shutdown,
            _ => Self::Io,
        }
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn check_magic(expected: u64, found: u64) -> Result<(), BadMagic> {
    if found == expected { Ok(()) } else { Err(BadMagic { expected, found }) }
}

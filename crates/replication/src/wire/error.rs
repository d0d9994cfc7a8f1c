//! Why bytes from a peer are not taken, or a message cannot be sent.

use super::Kind;
use store::OrderedError;
use types::{Epoch, GroupId, Seq, Term};

/// What is wrong, and where something can be done, what. The connection it came on is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The first bytes are not those of a frame.
    #[error("not cairn's node protocol (no magic number): something else is connected to this port")]
    Magic,
    /// The header is of another version.
    #[error(
        "frames of version {found}, this node reads those of {supported}: upgrade the older of the two nodes to the release of the newer"
    )]
    Version {
        /// Of the frame.
        found: u16,
        /// Of this build.
        supported: u16,
    },
    /// The sender uses what this build does not have.
    #[error("needs features this node does not have (bits {bits:#x}): upgrade it to the release of the sender")]
    Features {
        /// The unknown bits.
        bits: u64,
    },
    /// A kind of frame that this build does not know.
    #[error("frame of kind {found}, which this node does not know: upgrade it to the release of the sender")]
    Kind {
        /// Its number.
        found: u8,
    },
    /// A kind of frame that the two sides of the connection have not agreed on.
    #[error(
        "frame of kind {kind:?}, which needs features that were not agreed on here (bits {:#x}): a bug of the sender, report it",
        kind.needs().0
    )]
    NotAgreed {
        /// Which.
        kind: Kind,
    },
    /// Bytes changed on their way.
    #[error("{what}: its sum is {found:08x} and should be {expected:08x}: bytes changed on their way")]
    Sum {
        /// Which part of the frame.
        what: &'static str,
        /// The sum that was sent.
        expected: u32,
        /// That of the bytes.
        found: u32,
    },
    /// Longer than any sender makes it.
    #[error("{kind:?}: {found} bytes of {what}, at most {most} are taken")]
    TooLong {
        /// The kind of frame.
        kind: Kind,
        /// Which part.
        what: &'static str,
        /// Bytes announced.
        found: u32,
        /// Bytes allowed.
        most: u32,
    },
    /// Shorter than what it says it holds.
    #[error("{what}: {found} bytes where {expected} are needed")]
    Short {
        /// The structure.
        what: &'static str,
        /// Bytes needed.
        expected: usize,
        /// Bytes there.
        found: usize,
    },
    /// A field holds what no sender sends.
    #[error("{what}: {field} is {found}, which cannot be")]
    Field {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// It names a record by its epoch that never came on this connection.
    #[error("group {group}: the record of epoch {epoch} is referred to and was not sent on this connection")]
    RecordNotSent {
        /// The group.
        group: GroupId,
        /// The epoch of the record.
        epoch: Epoch,
    },
    /// An entry that is none, or that no store would take, or whose blocks are not those that were written.
    #[error(transparent)]
    Entry(#[from] OrderedError),
    /// An entry of another group than the frame's.
    #[error("an entry of group {found} in a frame of group {group}")]
    ForeignEntry {
        /// The frame's.
        group: GroupId,
        /// The entry's.
        found: GroupId,
    },
    /// An entry that does not follow the one before it.
    #[error("group {group}: entry {found} where {expected} is due")]
    EntryOrder {
        /// The group.
        group: GroupId,
        /// The sequence due.
        expected: Seq,
        /// The entry's.
        found: Seq,
    },
    /// An entry of an older epoch than the one before it, or of a newer one than the message.
    #[error("group {group}, entry {seq}: of epoch {found}, where {least} to {most} can be")]
    EntryEpoch {
        /// The group.
        group: GroupId,
        /// The entry's sequence.
        seq: Seq,
        /// Its epoch.
        found: Term,
        /// That of the entry before it.
        least: Term,
        /// That of the message.
        most: Epoch,
    },
}

impl WireError {
    pub(crate) fn field(what: &'static str, field: &'static str, found: impl Into<u64>) -> Self {
        Self::Field { what, field, found: found.into() }
    }
}

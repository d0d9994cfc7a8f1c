//! What members of a group say to each other.

use super::{History, Membership};
use std::sync::Arc;
use types::Seq;

/// One message; sender and its incarnation travel with it. Entries themselves are carried beside [`Message::Prepare`] and
/// [`Message::Fetched`] by whoever moves them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// Entries in order, behind the one at `before`. Without entries: what is committed.
    Prepare {
        /// The sender's record.
        record: Arc<Membership>,
        /// The place of the entry before the first.
        before: Place,
        /// Everything up to here is committed.
        commit: Seq,
    },
    /// Everything through here is durable and equal to the primary's, in the epoch of that record.
    Prepared {
        /// The epoch in which it was compared.
        epoch: types::Epoch,
        /// Through here.
        through: Seq,
    },
    /// Tell me your history, and follow this record.
    Ask {
        /// The sender's record.
        record: Arc<Membership>,
    },
    /// What the member's log holds durably.
    Told {
        /// Everything up to here is committed, as this member knows.
        committed: Seq,
        /// The epoch in which it was asked.
        epoch: types::Epoch,
        /// Epochs, and how far.
        history: History,
        /// Whether nothing before that is missing (R15).
        whole: bool,
        /// How often that has changed in this life: messages overtake each other.
        turns: u32,
    },
    /// Send me entries from here on: you have the longest log.
    Fetch {
        /// The sender's record.
        record: Arc<Membership>,
        /// The last place that both have.
        behind: Seq,
    },
    /// Entries that were asked for, in order, behind the one at `before`.
    Fetched {
        /// The epoch in which they were asked for.
        epoch: types::Epoch,
        /// The place of the entry before the first.
        before: Place,
    },
    /// The sender led in this epoch, and reads and writes no more: whoever is next takes over without waiting.
    GaveUp {
        /// The epoch.
        epoch: types::Epoch,
        /// The entry that it cannot apply: nobody takes over by itself (R16).
        poison: Option<Seq>,
    },
    /// There is a later record.
    Refused {
        /// It.
        record: Arc<Membership>,
    },
}

/// An entry's place, named with whose it is.
pub type Place = (types::Term, Seq);

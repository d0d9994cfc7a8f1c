//! The protocol of a group, as one member sees it: pure decisions, no I/O, no clock of its own (docs/replication.md).
//!
//! ```text
//!   messages, durable entries, the map's answers, time ──► Member ──► effects: append, cut, commit, send, ask the map
//! ```
//!
//! Whoever holds a [`Member`] carries out what [`Member::take_effects`] gives, in order: the shipped node with a store, a
//! network and the map; the model checker with lists.

mod heads;
mod history;
mod leader;
mod member;
mod membership;
mod message;
#[cfg(test)]
mod tests;

pub use heads::{
    Asker, Claim, Entered, Heads, NotTaken, Outcome, VolumeReign, goes_on_in, may_answer, must_raise, next_attempt,
    raise_in_log,
};
pub use history::History;
pub use leader::{PeerStanding, Settings};
pub use member::{Effect, Member, Refusal, Session};
pub use membership::Membership;
pub use message::{Message, Place};

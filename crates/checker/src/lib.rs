//! # checker: what clients saw of a block device, and whether it can be
//!
//! ```text
//!   clients ── start, end, answer ──▶ history ── checkers ── verdict: the first operation that nothing explains
//! ```
//!
//! - [`history`]: every operation with its start, its end and its answer, in one order; and blocks whose bytes say which write
//!   they are of.
//! - [`linearizable`]: is there, for each block, one order of its operations that agrees with what every read saw,
//!   in which nothing comes before it was sent or after it was answered? Durability falls out of it: an acknowledged
//!   write that a later read does not see has no place in any order.
//! - [`atomic`]: did a read see half of a write that has to be all or nothing?
//!
//! **Promises.** A history that some order of its operations explains passes, any other does not; the time that takes is linear in
//! its length.
//!
//! **Never.** Nothing is known here of what was tested: the simulator (`sim`), clusters of processes (`faults`) and
//! `cairn torture` are judged by the same code.

pub mod atomic;
pub mod history;
pub mod linearizable;
#[cfg(test)]
mod tests;

use history::History;

/// What is wrong with a history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// No order of a block's operations explains what was read.
    #[error("{0}")]
    NotLinearizable(linearizable::NotLinearizable),
    /// A read saw a part of an atomic write.
    #[error("{0}")]
    Torn(atomic::Torn),
    /// A block's operations overlap too much to be judged: a fault of the workload, not of what it tests.
    #[error("block {block}: {open} operations at a time are more than the checker follows; make the workload narrower")]
    TooManyOpen {
        /// Which block.
        block: u64,
        /// How many.
        open: usize,
    },
}

impl Violation {
    /// The block it is about.
    pub fn block(&self) -> u64 {
        match self {
            Self::NotLinearizable(found) => found.block,
            Self::Torn(found) => found.first_block,
            Self::TooManyOpen { block, .. } => *block,
        }
    }

    /// Name of the checker that found it.
    pub fn checker(&self) -> &'static str {
        match self {
            Self::NotLinearizable(_) => "linearizability",
            Self::Torn(_) => "atomicity",
            Self::TooManyOpen { .. } => "workload",
        }
    }
}

/// Asks everything of a history.
///
/// # Errors
/// The first violation, by block.
pub fn check(history: &History) -> Result<(), Violation> {
    linearizable::check(history)?;
    atomic::check(history)
}

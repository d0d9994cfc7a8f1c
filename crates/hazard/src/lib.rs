//! # hazard: the ghost write, played against any NVMe/TCP target
//!
//! ```text
//!   host ── path A ──► target       write 7 of block b; A freezes: no answer, and the host gives it up
//!     └──── path B ──► target       write 7 again, as a new command: done; write 8, write 9: done
//!           path A thaws            what A still holds of write 7 must do nothing any more
//!   read b on all paths, for a while: 9, or a ghost has written
//! ```
//!
//! - `round`: the play, its workers, and what is read at its end.
//! - `paths`: the host: a controller for each address, which are given up, and a command that is sent again elsewhere.
//! - `hook`: what freezes and thaws a path: a command of the user's.
//! - `relay`: the same without: a relay between host and target holds bytes back, in the midst of a command.
//! - `stamp`: what is written, and what it says of itself when it is read.
//!
//! **Promises.** What a read shows that is older than what was acknowledged before it fails the run; so do contents that nobody
//! wrote. A round in which no command was left without an answer, or after which nothing was read, proves nothing and is no pass.
//! A path that was frozen is thawed, whatever happens in between.
//!
//! **Never.** Nothing of the target is believed but its answers. Blocks that are not the run's are not written.

mod hook;
mod paths;
mod relay;
mod round;
mod stamp;

pub use hook::{Hooks, Running};

use nvme::host::HostIdentity;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Duration;

/// Ghosts that are told one by one; more are counted.
pub const GHOSTS_TOLD_MAX: usize = 16;

/// How a path freezes.
#[derive(Clone, Debug)]
pub enum Freeze {
    /// By commands.
    Hooks(Hooks),
    /// Bytes of the host are held back on their way, from the midst of a command on.
    Held,
}

/// What is to be played.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The subsystem's addresses, two at least.
    pub paths: Vec<SocketAddr>,
    /// Its NQN.
    pub subsystem: String,
    /// The namespace, which is written over.
    pub nsid: u32,
    /// Who the host says it is.
    pub host: HostIdentity,
    /// How a path freezes.
    pub freeze: Freeze,
    /// How often.
    pub rounds: u32,
    /// Blocks that are used, evenly over the namespace.
    pub blocks: u64,
    /// Commands under way when the path freezes.
    pub depth: u64,
    /// The host gives a command up that has no answer for so long, and its path with it.
    pub give_up: Duration,
    /// Keep alive timeout that the host asks for.
    pub keep_alive: Duration,
    /// So long blocks are read when the path has thawed.
    pub watch: Duration,
    /// So long another path may take until it serves.
    pub patience: Duration,
}

/// What one round did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Round {
    /// The path that was frozen.
    pub frozen: String,
    /// Writes that had no answer there when it was given up.
    pub hanging: u64,
    /// Of these, sent again on another path and acknowledged.
    pub resubmitted: u64,
    /// Newer writes of the same blocks, acknowledged before it thawed.
    pub overwritten: u64,
    /// From the freeze to the first acknowledgement on another path.
    pub other_path_ms: u64,
    /// From the freeze to the thaw.
    pub frozen_ms: u64,
    /// Bytes that were held back, where no command freezes the path.
    pub held_bytes: u64,
    /// Of these, bytes that the target did not take any more: it had ended the connection.
    pub refused_bytes: u64,
    /// Blocks read after the thaw, by path.
    pub read: Vec<(String, u64)>,
}

/// A block that does not hold what was acknowledged last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ghost {
    /// In which round, from 1.
    pub round: u32,
    /// Through which path it was read.
    pub path: String,
    /// Where it lies in the namespace.
    pub offset_bytes: u64,
    /// Number of the write that was acknowledged last.
    pub acknowledged: u64,
    /// What was read.
    pub found: String,
    /// So long after the thaw; none: before.
    pub after_thaw_ms: Option<u64>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was done.
    pub rounds: Vec<Round>,
    /// Writes that were acknowledged, in all rounds.
    pub written: u64,
    /// The first ghosts.
    pub ghosts: Vec<Ghost>,
    /// All reads that showed one.
    pub ghost_reads: u64,
}

impl Report {
    /// Whether no ghost was seen.
    pub fn is_pass(&self) -> bool {
        self.ghost_reads == 0
    }
}

/// Why nothing is proven.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HazardError {
    /// io_uring is off or too old, or no relay can listen.
    #[error("the host cannot run here: {0}")]
    Here(String),
    /// Fewer than two paths answered.
    #[error(
        "{connected} of {paths} paths to namespace {nsid} answer ({why}): two are needed, so see that the target runs, and lets this host in"
    )]
    Paths { connected: usize, paths: usize, nsid: u32, why: String },
    /// It has no room for the blocks.
    #[error("the namespace has {blocks} blocks of 4 KiB, and {wanted} were to be used: take fewer with --blocks")]
    Small { blocks: u64, wanted: u64 },
    /// 4 KiB are not whole blocks of it.
    #[error("the namespace has blocks of {0} bytes: 4 KiB must be whole blocks of it")]
    Format(u32),
    /// A write or read failed otherwise than with its path.
    #[error("the target refused what it should do: {0}")]
    Refused(String),
    /// A hook failed.
    #[error("{what} {how}: without it nothing is shown")]
    Hook { what: String, how: String },
    /// The path served on.
    #[error("{0} was to freeze and answers all the same: the freeze must stop whoever serves that address")]
    NotFrozen(String),
    /// Nobody else went on.
    #[error("{frozen} froze and no other path took its writes for {seconds} s: nothing is shown")]
    NobodyElse { frozen: String, seconds: u64 },
    /// Nothing was read.
    #[error("no path let anything be read when {0} had thawed: nothing is shown")]
    NothingRead(String),
}

/// Plays it; `say` is told what is being done.
///
/// # Errors
/// If nothing is proven, and why.
pub fn run(plan: Plan, say: impl Fn(&str) + 'static) -> Result<Report, HazardError> {
    let played = runtime::uring::block_on(round::play(plan, Box::new(say)));
    played.map_err(|error| HazardError::Here(error.to_string()))?
}

//! Which segment is cleaned: the one whose cleaning gains most for what it costs.
//!
//! The best of (1 − u) · √age / (1 + u), u the share that lives: cost-benefit as in Rosenblum and Ousterhout, "The
//! Design and Implementation of a Log-Structured File System" (1992), with the root of the age: with the age itself all
//! that was written once and never again is copied at one time, full as it is, and clients wait meanwhile.
//!
//! Only segments that end before the replay start of the last complete pass: younger ones are dying anyway, and replay
//! would read records of theirs.

use super::segments::SegmentState;
use super::{Role, ShardCore, State};
use crate::format::{SegmentIndex, UNIT_BYTES};

/// A segment with more than this share alive is not worth copying, in per cent, as long as there are others.
const WORTH_CLEANING_PERCENT: u32 = 95;

impl ShardCore {
    fn units_per_segment(&self) -> u32 {
        self.store.geometry.segment_size_bytes / UNIT_BYTES as u32
    }
}

impl State {
    /// The segment whose cleaning gains most for what it costs.
    pub(super) fn pick_victim(&self, core: &ShardCore) -> Option<SegmentIndex> {
        let units = core.units_per_segment();
        let now = self.log.gathering().0;
        let gain = |one: &SegmentState| {
            let age = u128::from(now.saturating_sub(one.first_record.0) + 1);
            // Squared, so that the root of the age needs not be taken.
            let share = u128::from(units - one.live_units) * 4096 / u128::from(units + one.live_units);
            share * share * age
        };
        let start = self.pass.root.replay_start.seq;
        let old = self.worth_cleaning(core).filter(|(_, one)| one.last_record < start);
        old.max_by_key(|(_, one)| gain(one)).map(|(segment, _)| segment)
    }

    /// Whether a segment would be worth cleaning if a pass were written now: replay would begin behind it. An entry
    /// that waits for its commit keeps the replay start where it is, and passes behind it would only fill the device.
    pub(super) fn a_pass_would_help(&self, core: &ShardCore) -> bool {
        let start = self.pass.root.replay_start.seq;
        let next = self.records.oldest_waiting().unwrap_or(self.log.gathering());
        self.worth_cleaning(core).any(|(_, one)| (start..next).contains(&one.last_record))
    }

    /// Whether there is something worth cleaning, and all of it lies behind an entry that waits: neither now nor after a
    /// pass may any of it be cleaned.
    pub(super) fn cleaning_is_held_up(&self, core: &ShardCore) -> bool {
        let Some(oldest) = self.records.oldest_waiting() else { return false };
        let mut worth = self.worth_cleaning(core).peekable();
        worth.peek().is_some() && worth.all(|(_, one)| one.last_record >= oldest)
    }

    fn worth_cleaning(&self, core: &ShardCore) -> impl Iterator<Item = (SegmentIndex, &SegmentState)> {
        let most = core.units_per_segment() / 100 * WORTH_CLEANING_PERCENT;
        self.segments
            .ours()
            .filter(move |(_, one)| one.role == Role::Sealed && (1..=most).contains(&one.live_units) && !one.left_alone)
    }
}

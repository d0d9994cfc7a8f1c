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
use crate::format::{RecordSeq, SegmentIndex, UNIT_BYTES};

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

    /// Dead bytes in segments that what waits in the log from `oldest` on keeps from being used again, or cleaned, and the
    /// last record of these segments.
    pub(super) fn held_back(&self, core: &ShardCore, oldest: RecordSeq) -> Option<(u64, RecordSeq)> {
        let units = core.units_per_segment();
        let is_held = |one: &SegmentState| {
            one.role == Role::Sealed
                && one.last_record >= oldest
                && !self.records.any_waits_in(one.first_record, one.last_record)
        };
        let gains = self.worth_cleaning(core).all(|(_, one)| one.last_record >= oldest);
        let gain = |one: &SegmentState| match one.live_units {
            0 => units,
            live if gains && !one.left_alone && live <= units / 100 * WORTH_CLEANING_PERCENT => units - live,
            _ => 0,
        };
        let held = self.segments.ours().map(|(_, one)| one).filter(|one| is_held(one) && gain(one) > 0);
        held.map(|one| (u64::from(gain(one)) * UNIT_BYTES as u64, one.last_record))
            .reduce(|(bytes, last), (more, other)| (bytes + more, last.max(other)))
    }

    fn worth_cleaning(&self, core: &ShardCore) -> impl Iterator<Item = (SegmentIndex, &SegmentState)> {
        let most = core.units_per_segment() / 100 * WORTH_CLEANING_PERCENT;
        self.segments
            .ours()
            .filter(move |(_, one)| one.role == Role::Sealed && (1..=most).contains(&one.live_units) && !one.left_alone)
    }
}

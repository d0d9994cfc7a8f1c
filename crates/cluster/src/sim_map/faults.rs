//! What can go wrong with the simulated map, and how often it did.

use std::time::Duration;

/// What goes wrong, and how often. All of it follows from the simulation's seed. Rates are of 1,024.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapFaults {
    /// A request takes up to this long to arrive, and its answer as long to come back; zero: they are there at once.
    pub latency_max: Duration,
    /// So many requests never arrive.
    pub requests_lost: u32,
    /// So many answers get lost after the request was done.
    pub answers_lost: u32,
    /// So many requests arrive, and are done, only after their callers were told [`Unknown`](crate::MapError::Unknown).
    pub requests_late: u32,
    /// How long after that.
    pub late_max: Duration,
    /// So many times a watch is told late.
    pub watches_late: u32,
    /// How late.
    pub watch_lag_max: Duration,
    /// After so many changes all history before them is compacted: from under every watch that was not told of it yet.
    pub compactions: u32,
    /// So many requests find that the leader changes as they arrive: see [`SimMap::change_leader`](crate::SimMap).
    pub leader_changes: u32,
}

/// What has gone wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCounts {
    /// Requests that never arrived, or that a change of the leader undid.
    pub requests_lost: u64,
    /// Requests that were done, and whose callers were told `Unknown` by then.
    pub answers_lost: u64,
    /// Requests that were done after their callers had been told `Unknown`.
    pub requests_late: u64,
    /// Requests of callers who were cut off.
    pub requests_cut_off: u64,
    /// Times that a watch was told late.
    pub watches_late: u64,
    /// Times that a watch said that it hears nothing.
    pub watches_silent: u64,
    /// Compactions that nobody asked for.
    pub compactions: u64,
    /// Changes of the leader.
    pub leader_changes: u64,
    /// Times that the map was restored.
    pub restores: u64,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is done and answered.
    Answered,
    /// It never arrives.
    Lost,
    /// It is done, and nobody is told.
    AnswerLost,
    /// It is done after its caller was told that this is unknown.
    Late,
}

impl MapFaults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        latency_max: Duration::ZERO,
        requests_lost: 0,
        answers_lost: 0,
        requests_late: 0,
        late_max: Duration::ZERO,
        watches_late: 0,
        watch_lag_max: Duration::ZERO,
        compactions: 0,
        leader_changes: 0,
    };

    pub(super) fn fate(&self) -> Fate {
        if chance(self.requests_lost) {
            Fate::Lost
        } else if chance(self.answers_lost) {
            Fate::AnswerLost
        } else if chance(self.requests_late) {
            Fate::Late
        } else {
            Fate::Answered
        }
    }

    /// The way there or back.
    pub(super) fn travel(&self) -> Duration {
        up_to(self.latency_max)
    }
}

impl Fate {
    /// What becomes of a request whose caller is cut off, and will hear nothing.
    pub(super) fn cut_off() -> Self {
        [Self::Lost, Self::AnswerLost, Self::Late][(runtime::random_u64() % 3) as usize]
    }
}

/// A time below `most`. What cannot happen draws no number: with a fault off, a seed's run is as without it.
pub(super) fn up_to(most: Duration) -> Duration {
    match most.as_nanos() as u64 {
        0 => Duration::ZERO,
        most => Duration::from_nanos(runtime::random_u64() % most),
    }
}

pub(super) fn chance(of_1024: u32) -> bool {
    of_1024 > 0 && runtime::random_u64() % 1024 < u64::from(of_1024)
}

//! The rules of docs/replication.md, each broken on purpose: the model must notice.

use crate::group::Bounds;
use crate::search::{Broken, Found, Limits, all, long_ways};
use types::Mutant;

/// Where a broken rule shows: in which bounds, and whether among all near states or on long ways.
#[derive(Clone, Copy, Debug)]
pub enum Shows {
    /// Among all states, the nearest first.
    Near(usize),
    /// On ways drawn from seeds.
    Far(usize),
}

/// Every broken rule of the protocol that a search finds within a minute, and where it shows (an index of [`Bounds::ALL`]).
pub const MUTANTS: &[(Mutant, Shows)] = &[
    (Mutant::LifeNotNamed, Shows::Far(5)),
    (Mutant::OldAnswerCounts, Shows::Far(5)),
    (Mutant::NumberWithoutEpoch, Shows::Far(6)),
    (Mutant::OwnHistoryWins, Shows::Far(5)),
    (Mutant::BeginsAlone, Shows::Far(5)),
    (Mutant::FenceIgnored, Shows::Far(5)),
    (Mutant::CommitNumberAhead, Shows::Far(0)),
    (Mutant::PreparedBeforeDurable, Shows::Far(2)),
    (Mutant::IncarnationIgnored, Shows::Far(5)),
    (Mutant::AddedCountsLate, Shows::Far(8)),
    (Mutant::RemovedCountsNoMore, Shows::Far(1)),
    (Mutant::JoiningCounts, Shows::Far(1)),
    (Mutant::LastOneStanding, Shows::Far(1)),
    (Mutant::UnknownTakenForNo, Shows::Far(1)),
    (Mutant::OldEpochAfterRestart, Shows::Far(2)),
    (Mutant::LeaseNotAwaited, Shows::Near(6)),
    (Mutant::ReadPastLease, Shows::Far(6)),
    (Mutant::SessionIgnored, Shows::Far(4)),
    (Mutant::EligibleForEver, Shows::Far(4)),
    (Mutant::CutTooFarBehind, Shows::Far(7)),
    (Mutant::DurableWithoutEpoch, Shows::Near(7)),
    (Mutant::OlderHeadTaken, Shows::Near(10)),
    (Mutant::RaisedInMemory, Shows::Far(11)),
    (Mutant::RaiseNotAwaited, Shows::Far(13)),
    (Mutant::OvertakenDone, Shows::Near(10)),
    (Mutant::RefusedHeadGoesOn, Shows::Near(10)),
    (Mutant::DoneBeforeRaise, Shows::Near(10)),
];

/// Searches with the rule broken: how many states it took, and what broke.
pub fn caught(mutant: Mutant, shows: Shows, limits: Limits) -> (usize, Option<Broken>) {
    Mutant::activate(Some(mutant));
    let found = search(shows, limits);
    Mutant::activate(None);
    (found.states, found.broken)
}

/// The same search through the protocol as it ships.
pub fn search(shows: Shows, limits: Limits) -> Found {
    match shows {
        Shows::Near(bounds) => all(Bounds::ALL[bounds].1, limits),
        Shows::Far(bounds) => long_ways(Bounds::ALL[bounds].1, limits, 1),
    }
}

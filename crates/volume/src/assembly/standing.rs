//! How the cluster's nodes, devices and groups stand, which volumes that is about, and how fast it gets better.

use super::{Assembly, VolumeError};
use cluster::control::{ClusterStanding, Followed, Risk};
use cluster::{CatalogError, VolumeRecord, VolumeState, decode, keys};
use runtime::{Instant, now};
use std::collections::VecDeque;
use std::time::Duration;

/// What was seen longer ago says nothing of how fast it goes now.
const SEEN_FOR: Duration = Duration::from_secs(300);
/// Looks that are remembered.
const SEEN_MAX: usize = 64;

/// How the cluster stands, as the map says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standings {
    /// Nodes, devices, groups.
    pub cluster: ClusterStanding,
    /// What one more loss would do, and to which volumes.
    pub risks: Vec<(Risk, Vec<String>)>,
    /// Copies made in a second, and bytes of them, if somebody looked before and they have become fewer since.
    pub rate: Option<(f64, u64)>,
}

/// How much was left when somebody looked.
#[derive(Default)]
pub(super) struct Seen(VecDeque<(Instant, usize, u64)>);

impl Seen {
    /// Notes what is left. Returns how much less that is in each second since the earliest look at the same work.
    fn note(&mut self, at: Instant, copies: usize, bytes: u64) -> Option<(f64, u64)> {
        // More to do than before is other work.
        if copies == 0 || self.0.back().is_some_and(|(_, before, _)| *before < copies) {
            self.0.clear();
        }
        self.0.retain(|(seen, ..)| at.since(*seen) <= SEEN_FOR);
        if self.0.len() >= SEEN_MAX {
            self.0.pop_front();
        }
        self.0.push_back((at, copies, bytes));
        let (since, before, bytes_before) = *self.0.front()?;
        let seconds = at.since(since).as_secs_f64();
        let copied = before.checked_sub(copies).filter(|copied| *copied > 0 && seconds > 0.0)?;
        Some((copied as f64 / seconds, (bytes_before.saturating_sub(bytes) as f64 / seconds) as u64))
    }
}

impl Assembly {
    /// How the cluster stands.
    ///
    /// # Errors
    /// The map's.
    pub async fn standing(&self) -> Result<Standings, VolumeError> {
        let listing = self.0.map.list("").await.map_err(CatalogError::from)?;
        let cluster = Followed::of(&listing).standing();
        let rate = self.0.seen.borrow_mut().note(now(), cluster.copies, cluster.copy_bytes);
        let tables = self.0.tables.borrow();
        let volumes = listing.items.iter().filter(|item| item.key.starts_with(keys::VOLUMES));
        let volumes: Vec<VolumeRecord> = volumes
            .filter_map(|item| decode::<VolumeRecord>(&item.key, &item.value).ok())
            .filter(|volume| volume.state == VolumeState::Online)
            .collect();
        let of_risk = |risk: &Risk| {
            let is_hit = |volume: &&VolumeRecord| {
                let layout = tables.iter().find(|layout| layout.id == volume.table);
                // One that is not known here may be about any.
                layout.is_none_or(|layout| layout.table.groups().iter().any(|group| risk.groups.contains(group)))
            };
            volumes.iter().filter(is_hit).map(|volume| volume.name.clone()).collect()
        };
        let risks = cluster.risks.iter().map(|risk| (risk.clone(), of_risk(risk))).collect();
        Ok(Standings { cluster, risks, rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_fast_it_goes_is_told_of_one_piece_of_work() {
        let mut seen = Seen::default();
        let second = |at: u64| Instant(at * 1_000_000_000);
        assert_eq!(seen.note(second(0), 100, 1000), None, "one look says nothing");
        assert_eq!(seen.note(second(2), 100, 1000), None);
        assert_eq!(seen.note(second(10), 80, 800), Some((2.0, 20)));
        assert_eq!(seen.note(second(11), 90, 900), None, "other work");
        assert_eq!(seen.note(second(12), 0, 0), None);
    }
}

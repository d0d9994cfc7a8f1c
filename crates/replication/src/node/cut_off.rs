//! R21: who is alone in not hearing others gives its session in the map up.
//!
//! A node that reaches the map and no other node keeps what it leads and can commit nothing: those who hold the same wait for its
//! session to end (R10). Of two parts that do not hear each other the larger goes on, of two that are alike the one with the
//! smallest number.

use super::CoreGroups;
use super::map_side::MapSide;
use cluster::{CatalogError, SessionRecord, keys};
use runtime::{Instant, now};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use types::{Mutant, NodeId, mutant};

/// By then a member that others hear has taken the lead: the turns of those before it, and looks at the map.
const TURNS: u32 = 4;

/// Whether the part of those who live that a node hears, itself included, is to leave the other to go on. `live`: all others that
/// the map says live.
fn is_lesser_part(me: NodeId, live: &BTreeSet<NodeId>, heard: &BTreeSet<NodeId>) -> bool {
    let ours: BTreeSet<NodeId> = live.intersection(heard).copied().chain([me]).collect();
    let all = live.len() + 1;
    match (2 * ours.len()).cmp(&all) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Equal => ours.first() > live.iter().next().min(Some(&me)),
        std::cmp::Ordering::Greater => false,
    }
}

/// How long each of the other nodes has not been heard; clients are none.
struct Silences(Vec<(NodeId, Duration)>);

impl Silences {
    fn heard(&self, silent: Duration) -> BTreeSet<NodeId> {
        self.0.iter().filter(|(_, silence)| *silence < silent).map(|(node, _)| *node).collect()
    }

    /// Whether less than half of them are heard.
    fn are_of_most(&self, silent: Duration) -> bool {
        2 * self.0.iter().filter(|(_, silence)| *silence < silent).count() < self.0.len()
    }
}

impl CoreGroups {
    fn silences(&self, at: Instant) -> Silences {
        let view = self.view.borrow();
        let others = self.nodes().into_iter().filter(|node| *node != self.shared.node && !node.is_client());
        Silences(others.map(|node| (node, view.silence_of(node, at))).collect())
    }

    /// Whether this node would be to leave the others to go on if all of them live.
    fn may_be_of_lesser_part(&self, silences: &Silences) -> bool {
        let all = silences.0.iter().map(|(node, _)| *node).collect();
        is_lesser_part(self.shared.node, &all, &silences.heard(self.shared.timing.silent))
    }

    /// Whoever has been silent for less than this stays in sync: it may go on without this node, and as long as it is in sync it need
    /// not wait for the end of this one's session (R10). `commits`: whether enough would be left without those who are silent.
    pub(super) fn stays_in_sync_for(&self, at: Instant, commits: bool) -> Duration {
        let timing = self.shared.timing;
        let takes_over = timing.grant + timing.turn * TURNS;
        let is_lesser = self.may_be_of_lesser_part(&self.silences(at));
        match (commits, is_lesser) {
            (true, false) => timing.silent,
            // Who hears each other, and this node another, is in no part: the first who takes the lead has it.
            (true, true) | (false, false) if mutant(Mutant::SoonRemoved) => timing.silent,
            (true, true) | (false, false) => takes_over,
            (false, true) if mutant(Mutant::CutOffRemoves) => timing.silent,
            (false, true) => timing.session + timing.silent,
        }
    }
}

impl MapSide {
    /// Whether this node is cut off from most of those who have sessions, and has been for as long as the session of one lasts
    /// that is dead.
    pub(super) async fn is_cut_off(&self, core: &Rc<CoreGroups>, is_long: bool) -> Result<bool, CatalogError> {
        let (me, timing) = (core.shared.node, core.shared.timing);
        let silences = core.silences(now());
        // Whoever hears half of all that there are need not ask who lives.
        if !silences.are_of_most(timing.silent) || mutant(Mutant::CutOffStays) {
            self.hears_few_since.set(None);
            return Ok(false);
        }
        let since = self.hears_few_since.get().unwrap_or_else(now);
        self.hears_few_since.set(Some(since));
        if is_long && now().since(since) < timing.session + timing.silent {
            return Ok(false);
        }
        let sessions = cluster::list::<SessionRecord>(self.map(), keys::SESSIONS).await?;
        let live = sessions.into_iter().map(|found| found.record.node).filter(|node| *node != me).collect();
        Ok(is_lesser_part(me, &live, &silences.heard(timing.silent)))
    }

    /// Nothing more is read under the session, which lasts until then; when that is sure it ends.
    pub(super) async fn gives_session_up(&self, core: &Rc<CoreGroups>, until: Instant) {
        log::warn!("this node hears too few others and gives its session in the map up: they go on without it");
        let cores = core.shared.lines.len() as u16;
        let (done, mut all_done) = runtime::channel::cross(usize::from(cores));
        for index in 0..cores {
            let done = done.clone();
            core.tell(index, move |core| {
                core.set_session_until(Instant(0));
                let _ = done.try_send(());
            });
        }
        drop(done);
        let patience = || Duration::from_nanos(until.0.saturating_sub(now().0));
        let mut left = cores;
        while left > 0 && matches!(runtime::timeout(patience(), all_done.recv()).await, Ok(Ok(()))) {
            left -= 1;
        }
        if left > 0 {
            // A core that does not move may read as soon as it does, until then.
            runtime::sleep(patience()).await;
        }
        self.end_session().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_part_goes_on_and_of_two_alike_the_one_with_the_smallest() {
        let nodes = |numbers: &[u32]| numbers.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
        let lesser = |me, live: &[u32], heard: &[u32]| is_lesser_part(NodeId(me), &nodes(live), &nodes(heard));
        assert!(lesser(1, &[2, 3], &[]), "two others live");
        assert!(!lesser(2, &[1, 3], &[3]), "two of three");
        assert!(!lesser(1, &[2], &[]) && lesser(2, &[1], &[]), "of two the smaller");
        assert!(!lesser(1, &[], &[2, 3]), "nobody else lives");
        assert!(lesser(4, &[1, 2, 3], &[3]) && !lesser(1, &[2, 3, 4], &[2]), "two and two");
        assert!(lesser(2, &[1, 3, 4], &[3]) && !lesser(4, &[1, 2, 3], &[1]), "whoever has the smallest");
        assert!(lesser(1, &[2, 3], &[4]), "who is heard and does not live counts for nothing");
    }
}

//! The map in memory, for simulated clusters, with etcd's vices: it outlives every simulated machine, answers late or
//! not at all, does what it was asked long after its caller gave up, tells its watchers late, changes its leader,
//! cannot be reached, and goes back in time.
//!
//! ```text
//!   SimMap of node 1 ── requests ──▶ ┌ on their way, by time of arrival ┐ ──▶ service: MapState, leases, its own clock
//!                    ◀── answers ──  └ lost, late, undone, cut off      ┘ ──▶ watches: late, silent, compacted away
//!   SimMap of node 2 ...
//! ```
//!
//! A request that was sent arrives whatever becomes of its sender, a crash included. All faults are off at first; then
//! nothing is drawn from the seed and every answer is there at once.

mod faults;
mod service;
mod watch;

pub use faults::{MapCounts, MapFaults};

use crate::map::{
    KeyValue, LeaseId, Listing, MapError, MapFuture, MapStore, Outcome, REQUEST_DEADLINE, Revision, Transaction, Watch,
};
use crate::state::MapState;
use faults::Fate;
use runtime::channel::cross;
use service::Service;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use types::NodeId;
use watch::SimWatch;

/// See the module. Clones share the map. The handle that [`new`](Self::new) gives serves a world of one node; where
/// there are several, each has [its own](Self::handle_for).
#[derive(Clone, Default)]
pub struct SimMap {
    service: Arc<Mutex<Service>>,
    node: Option<NodeId>,
}

/// What a map held at one moment.
#[derive(Clone)]
pub struct MapBackup(MapState);

impl SimMap {
    /// An empty map without faults.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The map as `node` reaches it: its requests are timed by that node's clock, and can be cut off.
    pub fn handle_for(&self, node: NodeId) -> Arc<Self> {
        Arc::new(Self { service: self.service.clone(), node: Some(node) })
    }

    /// From now on these go wrong. What is on its way already is not affected.
    pub fn set_faults(&self, faults: MapFaults) {
        self.service().faults = faults;
    }

    /// What has gone wrong since the beginning.
    pub fn counts(&self) -> MapCounts {
        self.service().counts
    }

    /// Cuts a node off, or ends that. A request of a node that is cut off ends `Unknown` at its deadline: never done,
    /// done, or done after that. Its watches hear nothing, say so after a while, and miss nothing.
    pub fn set_cut_off(&self, node: NodeId, cut_off: bool) {
        self.service().set_cut_off(node, cut_off);
    }

    /// The same for all nodes at once.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.service().set_unreachable(unreachable);
    }

    /// Another leader: the requests under way are done or not and end `Unknown`, and all leases begin their time anew.
    pub fn change_leader(&self) {
        self.service().change_leader();
    }

    /// What the map holds now.
    pub fn backup(&self) -> MapBackup {
        MapBackup(self.service().state.clone())
    }

    /// Puts back what was backed up: keys, history and the revision, which counts up from there again, so that one
    /// revision may name two histories. Leases are gone and their keys with them, watches end with
    /// [`WentBack`](MapError::WentBack), requests under way end as when the leader changes.
    pub fn restore(&self, backup: &MapBackup) {
        self.service().restore(&backup.0);
    }

    fn service(&self) -> MutexGuard<'_, Service> {
        self.service.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Has the service do all that is due by now, and by `at_least`; the time it is there.
    fn advance(&self, at_least: Duration) -> Duration {
        let shows = Duration::from_nanos(runtime::now().0);
        let mut service = self.service();
        let now = service.now(self.node, shows).max(at_least);
        service.advance(now);
        now
    }

    /// Runs `request` on the state, with the way there and back.
    fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut MapState, Duration) -> Result<T, MapError> + Send + 'static,
    ) -> MapFuture<'_, T> {
        Box::pin(async move {
            let answer = runtime::timeout(REQUEST_DEADLINE, self.travel(request)).await;
            answer.unwrap_or(Err(MapError::Unknown))
        })
    }

    async fn travel<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut MapState, Duration) -> Result<T, MapError> + Send + 'static,
    ) -> Result<T, MapError> {
        let (reply, mut answer) = cross(1);
        let work = Box::new(move |state: &mut MapState, now| drop(reply.try_send(request(state, now))));
        let now = self.advance(Duration::ZERO);
        let journey = self.service().send(self.node, now, work);
        runtime::sleep(journey.there).await;
        if journey.fate != Fate::Late {
            self.advance(journey.arrives);
        }
        runtime::sleep(journey.back).await;
        let (is_cut_off, is_known) = {
            let mut service = self.service();
            let is_cut_off = journey.is_cut_off || service.is_cut_off(self.node);
            service.counts.requests_cut_off += u64::from(is_cut_off);
            (is_cut_off, service.knows(journey.leader))
        };
        if is_cut_off {
            // Its deadline ends this.
            return std::future::pending().await;
        }
        match journey.fate {
            Fate::Answered if is_known => answer.recv().await.unwrap_or(Err(MapError::Unknown)),
            _ => Err(MapError::Unknown),
        }
    }
}

impl MapStore for SimMap {
    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        let key = key.to_owned();
        self.ask(move |state, _| Ok(state.get(&key)))
    }

    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        let prefix = prefix.to_owned();
        self.ask(move |state, _| Ok(state.list(&prefix)))
    }

    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        self.ask(move |state, _| state.transact(transaction).map(|(outcome, _)| outcome))
    }

    fn watch(&self, prefix: &str, from: Revision) -> Box<dyn Watch> {
        Box::new(SimWatch::new(self.clone(), prefix, from))
    }

    fn compact(&self, through: Revision) -> MapFuture<'_, ()> {
        self.ask(move |state, _| {
            state.compact(through);
            Ok(())
        })
    }

    fn grant(&self, time_to_live: Duration) -> MapFuture<'_, LeaseId> {
        self.ask(move |state, now| Ok(state.grant(time_to_live, now)))
    }

    fn keep_alive(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.ask(move |state, now| state.keep_alive(lease, now))
    }

    fn revoke(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.ask(move |state, _| state.revoke(lease).map(drop))
    }
}

//! The map in memory, for simulated clusters: it outlives every simulated machine, answers late, or not at all.

use crate::map::{
    Event, KeyValue, LeaseId, Listing, MapError, MapFuture, MapStore, Outcome, Revision, Transaction, Watch,
};
use crate::state::MapState;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

/// What goes wrong, and how often. All of it follows from the simulation's seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapFaults {
    /// An answer takes up to this long; zero: it is there at once.
    pub latency_max: Duration,
    /// Of 1,024 requests so many never arrive.
    pub requests_lost: u32,
    /// Of 1,024 answers so many get lost after the request was done.
    pub answers_lost: u32,
}

#[derive(Default)]
struct Shared {
    state: MapState,
    faults: MapFaults,
    watchers: Vec<Waker>,
}

/// See the module. Clones share it; every node of a simulated cluster holds one.
#[derive(Clone, Default)]
pub struct SimMap(Arc<Mutex<Shared>>);

impl SimMap {
    /// An empty map without faults.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// From now on these go wrong.
    pub fn set_faults(&self, faults: MapFaults) {
        self.lock().faults = faults;
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn end_leases(&self) {
        let watchers = {
            let mut shared = self.lock();
            shared.state.end_leases();
            std::mem::take(&mut shared.watchers)
        };
        watchers.into_iter().for_each(Waker::wake);
    }

    /// Runs `request` on the state, with the way there and back.
    fn ask<T: 'static>(
        &self,
        request: impl FnOnce(&mut MapState, Clock) -> Result<(T, bool), MapError> + 'static,
    ) -> MapFuture<'_, T> {
        Box::pin(async move {
            let faults = self.lock().faults;
            travel(faults).await;
            if lost(faults.requests_lost) {
                return Err(MapError::Unknown);
            }
            let (answer, watchers) = {
                let mut shared = self.lock();
                let expired = shared.state.end_leases();
                let answer = request(&mut shared.state, Clock);
                let changed = expired || matches!(answer, Ok((_, true)));
                (answer, if changed { std::mem::take(&mut shared.watchers) } else { Vec::new() })
            };
            watchers.into_iter().for_each(Waker::wake);
            travel(faults).await;
            if lost(faults.answers_lost) {
                return Err(MapError::Unknown);
            }
            answer.map(|(value, _)| value)
        })
    }
}

/// The clock of the simulation, looked at only where a lease needs it.
struct Clock;

impl Clock {
    fn now(&self) -> Duration {
        Duration::from_nanos(runtime::now().0)
    }
}

impl MapState {
    /// Ends the leases whose time is over; whether a key went with one.
    fn end_leases(&mut self) -> bool {
        let mut changed = false;
        while !self.leases.is_empty()
            && let Some(lease) = self.expired(Clock.now())
        {
            changed |= self.revoke(lease).is_ok_and(|events| !events.is_empty());
        }
        changed
    }
}

async fn travel(faults: MapFaults) {
    let most = faults.latency_max.as_nanos() as u64;
    if most > 0 {
        runtime::sleep(Duration::from_nanos(runtime::random_u64() % most)).await;
    }
}

fn lost(of_1024: u32) -> bool {
    of_1024 > 0 && runtime::random_u64() % 1024 < u64::from(of_1024)
}

impl MapStore for SimMap {
    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        let key = key.to_owned();
        self.ask(move |state, _| Ok((state.get(&key), false)))
    }

    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        let prefix = prefix.to_owned();
        self.ask(move |state, _| Ok((state.list(&prefix), false)))
    }

    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        self.ask(move |state, _| {
            let (outcome, events) = state.transact(transaction)?;
            Ok((outcome, !events.is_empty()))
        })
    }

    fn watch(&self, prefix: &str, from: Revision) -> Box<dyn Watch> {
        Box::new(SimWatch { map: self.clone(), prefix: prefix.to_owned(), from })
    }

    fn compact(&self, through: Revision) -> MapFuture<'_, ()> {
        self.ask(move |state, _| {
            state.compact(through);
            Ok(((), true))
        })
    }

    fn grant(&self, time_to_live: Duration) -> MapFuture<'_, LeaseId> {
        self.ask(move |state, clock| Ok((state.grant(time_to_live, clock.now()), true)))
    }

    fn keep_alive(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.ask(move |state, clock| state.keep_alive(lease, clock.now()).map(|()| ((), true)))
    }

    fn revoke(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.ask(move |state, _| state.revoke(lease).map(|events| ((), !events.is_empty())))
    }
}

struct SimWatch {
    map: SimMap,
    prefix: String,
    from: Revision,
}

impl SimWatch {
    /// What there is to tell; nothing, if something else happened that may have moved the end of a lease.
    async fn told(&self) -> Result<Vec<Event>, MapError> {
        let mut waited = false;
        poll_fn(|cx| {
            let mut shared = self.map.lock();
            match shared.state.events(&self.prefix, self.from) {
                Ok(events) if events.is_empty() && !std::mem::replace(&mut waited, true) => {
                    shared.watchers.push(cx.waker().clone());
                    Poll::Pending
                }
                told => Poll::Ready(told),
            }
        })
        .await
    }
}

impl Watch for SimWatch {
    fn next(&mut self) -> MapFuture<'_, Vec<Event>> {
        Box::pin(async move {
            let faults = self.map.lock().faults;
            let mut events = Vec::new();
            while events.is_empty() {
                let next_end = self.map.lock().state.next_end();
                let Some(end) = next_end else {
                    events = self.told().await?;
                    continue;
                };
                // Nobody else may come to end a lease: a watcher does, when its time is over.
                match runtime::timeout(end.saturating_sub(Clock.now()), self.told()).await {
                    Ok(told) => events = told?,
                    Err(runtime::Elapsed) => self.map.end_leases(),
                }
            }
            travel(faults).await;
            if let Some(last) = events.last() {
                self.from = Revision(last.revision.0 + 1);
            }
            Ok(events)
        })
    }
}

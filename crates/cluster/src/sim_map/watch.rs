//! A watch of the simulated map.

use super::SimMap;
use super::faults::{chance, up_to};
use crate::map::{Event, MapError, MapFuture, Revision, WATCH_SILENCE_MAX, Watch};
use crate::state::Told;
use std::future::poll_fn;
use std::time::Duration;

pub(super) struct SimWatch {
    map: SimMap,
    prefix: String,
    from: Revision,
    /// How often the map had been restored when this watch began.
    restores: u64,
    /// Since when the node is cut off, as far as this watch has seen.
    silent_since: Option<Duration>,
}

/// What a watch sees when it looks.
enum Look {
    Told(Told),
    /// Nothing, until the service changes or, at the latest, after some time.
    Nothing(u64, Option<Duration>),
}

impl SimWatch {
    pub(super) fn new(map: SimMap, prefix: &str, from: Revision) -> Self {
        let restores = map.service().counts.restores;
        Self { map, prefix: prefix.to_owned(), from, restores, silent_since: None }
    }

    fn look(&mut self) -> Result<Look, MapError> {
        let now = self.map.advance(Duration::ZERO);
        let mut service = self.map.service();
        if service.is_cut_off(self.map.node) {
            let silent_for = now.saturating_sub(*self.silent_since.get_or_insert(now));
            if silent_for >= WATCH_SILENCE_MAX {
                self.silent_since = None;
                service.counts.watches_silent += 1;
                return Err(MapError::Silent);
            }
            return Ok(Look::Nothing(service.changes(), Some(WATCH_SILENCE_MAX - silent_for)));
        }
        self.silent_since = None;
        if service.counts.restores != self.restores {
            return Err(MapError::WentBack { revision: service.state.revision });
        }
        let told = service.state.events(&self.prefix, self.from)?;
        if told.events.is_empty() {
            self.from = told.next;
            return Ok(Look::Nothing(service.changes(), service.next_due().map(|due| due.saturating_sub(now))));
        }
        Ok(Look::Told(told))
    }

    async fn wait(&self, seen: u64, at_most: Option<Duration>) {
        let changed = poll_fn(|cx| self.map.service().poll_changes(seen, cx));
        match at_most {
            Some(time) => drop(runtime::timeout(time, changed).await),
            None => changed.await,
        }
    }
}

impl Watch for SimWatch {
    fn next(&mut self) -> MapFuture<'_, Vec<Event>> {
        Box::pin(async move {
            let mut is_late = false;
            loop {
                let told = match self.look()? {
                    Look::Nothing(seen, at_most) => {
                        self.wait(seen, at_most).await;
                        continue;
                    }
                    Look::Told(told) => told,
                };
                let faults = self.map.service().faults;
                if !is_late && chance(faults.watches_late) {
                    // What it is told then, and whether it still can be, is decided then.
                    is_late = true;
                    self.map.service().counts.watches_late += 1;
                    runtime::sleep(up_to(faults.watch_lag_max)).await;
                    continue;
                }
                runtime::sleep(faults.travel()).await;
                if !self.map.service().is_cut_off(self.map.node) {
                    self.from = told.next;
                    return Ok(told.events);
                }
            }
        })
    }
}

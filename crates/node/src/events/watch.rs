//! Looks at the cluster once a second, compares, and notes what has happened: a task of the admin thread.

use super::changes::{Change, HealthChanges, MapChanges, MapLook, OwnChanges};
use super::follower::{Follower, MapState};
use super::{Events, kind};
use crate::admin::types::Health;
use crate::admin::{Found, is_of_failed, now_ns, status_of};
use crate::control::{ClusterStatus, ControlError, ControlHandle};
use cluster::health::{self, Finding, Known, Looks};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use types::{NodeId, StoreId};

/// Between two looks at least; and so many times as long as one took: of a large map fewer are taken.
const LOOK_WAIT: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;

/// Looks until it is stopped.
pub(crate) struct Watch {
    follower: Follower,
    task: JoinHandle<()>,
}

impl Watch {
    /// Begins with the first look.
    pub(crate) fn start(follower: Follower, control: ControlHandle, events: Arc<Events>) -> Self {
        let watcher = Watcher {
            control,
            events,
            follower: follower.clone(),
            map: MapState::default(),
            version: 0,
            around: Around::default(),
            seen: None,
            own: OwnChanges::default(),
        };
        Self { follower, task: tokio::spawn(watcher.look_on()) }
    }

    /// No look is taken any more, and the map is let go.
    pub(crate) fn stop(self) {
        self.task.abort();
        self.follower.stop();
    }
}

/// What a look at the map depends on besides the map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Around {
    own: BTreeSet<StoreId>,
    ended: BTreeSet<NodeId>,
}

/// What was seen of the map last.
struct Seen {
    changes: MapChanges,
    findings: Vec<Finding>,
    orders: usize,
    health: Option<HealthChanges>,
}

struct Watcher {
    control: ControlHandle,
    events: Arc<Events>,
    follower: Follower,
    map: MapState,
    version: u64,
    around: Around,
    seen: Option<Seen>,
    own: OwnChanges,
}

impl Watcher {
    async fn look_on(mut self) {
        loop {
            let began = Instant::now();
            if let Err(error) = self.look().await {
                log::debug!("events: {error}");
            }
            tokio::time::sleep(LOOK_WAIT.max(began.elapsed() * SHARE)).await;
        }
    }

    async fn look(&mut self) -> Result<(), ControlError> {
        self.look_for_map();
        let cluster = self.control.status().await?;
        let node = &cluster.node;
        let reasons: Vec<String> = node.reasons.iter().filter(|reason| !is_of_failed(reason, node)).cloned().collect();
        let own = self.own.see(node, &reasons);
        self.note(own);
        let ended =
            self.control.peers().await?.into_iter().filter(|peer| peer.has_ended).map(|peer| peer.node).collect();
        let around = Around { own: node.devices.iter().map(|device| device.store).collect(), ended };
        self.look_at_map(around).await;
        self.look_at_health(&cluster).await;
        Ok(())
    }

    fn look_for_map(&mut self) {
        let now = self.follower.state();
        let before = std::mem::replace(&mut self.map, now);
        if now.went_back > before.went_back {
            let text =
                "the cluster map went back in time: it was restored from a backup; `cairn status` says what to do";
            self.events.note(kind::MAP_WENT_BACK, &["map"], text);
        }
        match (before.is_away, now.is_away) {
            (false, true) => {
                let text = "the cluster map does not answer: I/O goes on, nothing is moved";
                self.events.note(kind::MAP_AWAY, &["map"], text);
            }
            (true, false) => self.events.note(kind::MAP_BACK, &["map"], "the cluster map answers again"),
            _ => {}
        }
    }

    async fn look_at_map(&mut self, around: Around) {
        let is_known = if around == self.around { self.version } else { 0 };
        let Some((version, listing)) = self.follower.listing_after(is_known) else {
            if let Some(seen) = &mut self.seen
                && !self.map.is_away
            {
                let found = seen.changes.see_again();
                self.note(found);
            }
            return;
        };
        (self.version, self.around) = (version, around.clone());
        let at_ns = now_ns();
        // Of a large map that takes long, and signals must be heard meanwhile.
        let looked = tokio::task::spawn_blocking(move || {
            let known = Known::of(&listing, around.own.iter().copied());
            let look = MapLook::of(&listing, &known, &around.own, &around.ended);
            let findings = health::findings(&known, &Looks { now_ns: at_ns, ..Looks::default() });
            (look, findings, known.standing.orders)
        });
        let Ok((look, findings, orders)) = looked.await else { return };
        match &mut self.seen {
            Some(seen) => {
                (seen.findings, seen.orders) = (findings, orders);
                let found = seen.changes.see(look, at_ns);
                self.note(found);
            }
            None => self.seen = Some(Seen { changes: MapChanges::new(look), findings, orders, health: None }),
        }
    }

    async fn look_at_health(&mut self, cluster: &ClusterStatus) {
        let Some(seen) = self.seen.as_mut().filter(|_| !self.map.is_away) else { return };
        let pools = match cluster.node.devices.iter().any(|device| device.damage > 0) {
            // They say whether there is another copy.
            true => self.control.pool_infos().await.unwrap_or_default(),
            false => Vec::new(),
        };
        // Only causes are told of.
        let found = Found { findings: seen.findings.clone(), orders: seen.orders, ..Found::default() };
        let status = status_of(cluster, &[], &pools, Some(found));
        let first = status.findings.first().filter(|_| status.health != Health::Healthy);
        let cause = first.map_or("", |finding| finding.cause.as_str());
        let found = match &mut seen.health {
            Some(health) => health.see(status.health, cause),
            None => {
                seen.health = Some(HealthChanges::new(status.health));
                None
            }
        };
        self.note(found);
    }

    fn note(&self, found: impl IntoIterator<Item = Change>) {
        for Change { kind, subjects, text } in found {
            let subjects: Vec<&str> = subjects.iter().map(String::as_str).collect();
            self.events.note(kind, &subjects, text);
        }
    }
}

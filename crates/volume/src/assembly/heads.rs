//! Who is the head of what: this node's volumes, those of others, and who takes over from a node that is gone (H1, H3).
//!
//! ```text
//!   map's watch ─► a volume's record ── head is this node, in an epoch that it took ──► served here
//!                        │        └──── another's ──► listed, and refused: hosts go there
//!                        └─ its node has no session any more ── my turn ──► epoch + 1, read back, served here
//! ```
//!
//! The volumes of a family have one head: their layers end under one hand. No command waits for any of this.

use super::{Assembly, VolumeError};
use crate::api::Standing;
use cluster::{
    KeyValue, MapError, Revision, SessionRecord, VolumeRecord, VolumeState as Life, decode, get, keys, list, take_heads,
};
use runtime::{Instant, now};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{FamilyId, NodeId, StoreId, VolumeEpoch, VolumeId};

/// After an error of the map.
const RETRY_WAIT: Duration = Duration::from_millis(200);
/// Between two looks at whose nodes are gone.
const LOOK_WAIT: Duration = Duration::from_millis(500);
/// Nodes that may take over try so long after each other: one of them does, and the others hear of it.
const TURN: Duration = Duration::from_millis(500);

/// What a node knows of heads.
#[derive(Default)]
pub(super) struct Heads {
    /// The epochs in which this node serves.
    mine: RefCell<BTreeMap<VolumeId, VolumeEpoch>>,
    /// All volumes, and their heads.
    known: RefCell<BTreeMap<VolumeId, (FamilyId, NodeId)>>,
    /// Stores whose node has a session in the map.
    sessions: RefCell<BTreeMap<StoreId, NodeId>>,
    /// Volumes that could not be looked at, or served: they are looked at again.
    again: RefCell<BTreeSet<VolumeId>>,
    /// Nodes that lead something and have no session, and since when.
    gone_since: RefCell<BTreeMap<NodeId, Instant>>,
}

impl Heads {
    /// The map has said that this node is the head, in an epoch that no other node and no earlier life of this one had.
    pub(super) fn have_taken(&self, volume: &VolumeRecord) {
        self.mine.borrow_mut().insert(volume.id, volume.volume_epoch);
        self.note(volume);
    }

    /// Whether this node is its head.
    pub(super) fn serves(&self, id: VolumeId) -> bool {
        self.mine.borrow().contains_key(&id)
    }

    fn note(&self, volume: &VolumeRecord) {
        self.known.borrow_mut().insert(volume.id, (volume.family, volume.head));
    }

    fn forget(&self, id: VolumeId) {
        self.mine.borrow_mut().remove(&id);
        self.known.borrow_mut().remove(&id);
    }

    fn is_mine(&self, volume: &VolumeRecord) -> bool {
        self.mine.borrow().get(&volume.id) == Some(&volume.volume_epoch)
    }

    /// Nodes that have a session.
    fn alive(&self) -> BTreeSet<NodeId> {
        self.sessions.borrow().values().copied().collect()
    }
}

impl Assembly {
    /// Takes what is this node's, or nobody's, lists the rest, and follows the map from then on.
    pub(super) async fn begin_heads(&self) -> Result<(), VolumeError> {
        let sessions = list::<SessionRecord>(&*self.0.map, keys::SESSIONS).await?;
        let sessions = sessions.into_iter().map(|found| (found.record.store, found.record.node)).collect();
        self.0.heads.sessions.replace(sessions);
        // Those of a node that is gone are nobody's haste: it may be starting, too.
        let me = self.0.id;
        let is_its = |volume: &VolumeRecord| volume.head == me || volume.head == NodeId(0);
        self.take(|family| family.iter().all(is_its)).await?;
        for volume in list::<VolumeRecord>(&*self.0.map, keys::VOLUMES).await? {
            self.see(volume.record.id).await?;
        }
        let (follower, looker) = (self.clone(), self.clone());
        let follows = runtime::spawn(async move { follower.follow().await });
        let looks = runtime::spawn(async move { looker.look_for_gone_nodes().await });
        self.0.tasks.borrow_mut().extend([follows, looks]);
        Ok(())
    }

    /// Makes this node the head of the families that are due, and serves them.
    async fn take(&self, is_due: impl Fn(&[VolumeRecord]) -> bool) -> Result<(), VolumeError> {
        let _alone = self.0.changing.lock().await;
        let taken = take_heads(&*self.0.map, self.0.id, is_due).await?;
        for volume in &taken {
            if let Err(error) = self.serve(volume).await {
                log::warn!("volume {} is not served yet: {error}", volume.name);
                self.0.heads.mine.borrow_mut().remove(&volume.id);
                self.0.heads.again.borrow_mut().insert(volume.id);
            }
        }
        // Only now: what ends a layer takes it out of the volumes as they are in the map, and those above came from there.
        for volume in &taken {
            if volume.state == Life::Deleting {
                self.erase_in_background(volume);
            }
            // A snapshot or an ending layer that was cut short.
            self.tend_in_background(volume.family);
        }
        self.tell_trash().await;
        self.tell_locked().await;
        Ok(())
    }

    /// This node has just become the head of the volume.
    async fn serve(&self, volume: &VolumeRecord) -> Result<(), VolumeError> {
        self.0.heads.have_taken(volume);
        match volume.state {
            Life::Online if self.is_listed(volume.id) => {
                self.refresh(volume).await?;
                self.stand(volume.id, Standing::Here).await;
                self.tell_snapshots(volume.id, None).await
            }
            Life::Online => self.add(volume).await,
            Life::Trashed(term) => {
                self.keep(volume, term);
                Ok(())
            }
            Life::Deleting => Ok(()),
        }
    }

    fn is_listed(&self, id: VolumeId) -> bool {
        self.0.volumes.borrow().values().any(|info| info.id == id)
    }

    /// Where it is served, for all cores.
    async fn stand(&self, id: VolumeId, standing: Standing) {
        self.on_all_cores(move |head| {
            Box::pin(async move {
                if let Some(volume) = head.directory.by_id(id) {
                    volume.state.stand(standing);
                    head.directory.bump();
                }
            })
        })
        .await;
    }

    // ---- the map says ----------------------------------------------------------------------------------------------

    /// Something was said of a volume's record: what it is by now decides.
    async fn see(&self, id: VolumeId) -> Result<(), VolumeError> {
        {
            let _alone = self.0.changing.lock().await;
            let Some(found) = get::<VolumeRecord>(&*self.0.map, &keys::volume(id)).await? else {
                self.0.heads.forget(id);
                if self.is_listed(id) {
                    self.take_away(id).await;
                }
                return Ok(());
            };
            let volume = found.record;
            self.0.heads.note(&volume);
            if volume.head == self.0.id && self.0.heads.is_mine(&volume) {
                return Ok(());
            }
            self.0.heads.mine.borrow_mut().remove(&id);
            let is_listed = self.is_listed(id);
            match volume.state {
                Life::Online if is_listed => {
                    // First of all nothing more is let in: another serves it.
                    self.stand(id, Standing::Elsewhere).await;
                    self.refresh(&volume).await?;
                    self.tell_snapshots(id, None).await?;
                }
                Life::Online => self.list(&volume, Standing::Elsewhere).await?,
                Life::Trashed(_) | Life::Deleting if is_listed => self.take_away(volume.id).await,
                Life::Trashed(_) | Life::Deleting => {}
            }
            self.tell_locked().await;
            if volume.head != self.0.id {
                return Ok(());
            }
        }
        // Another node has given it to this one, or an earlier life had it.
        let me = self.0.id;
        self.take(|family| family.iter().any(|volume| volume.id == id) && family.iter().all(|v| v.head == me)).await
    }

    /// Follows the map, for ever.
    async fn follow(&self) {
        loop {
            if let Err(error) = self.follow_once().await {
                log::debug!("the map's volumes are followed anew: {error}");
            }
            runtime::sleep(RETRY_WAIT).await;
        }
    }

    async fn follow_once(&self) -> Result<(), VolumeError> {
        let listing = self.0.map.list("").await.map_err(cluster::CatalogError::from)?;
        self.0.heads.sessions.borrow_mut().clear();
        let mut due = BTreeSet::new();
        for KeyValue { key, value, .. } in &listing.items {
            due.extend(self.hear(key, Some(value)));
        }
        let unheard: Vec<_> = self.0.heads.known.borrow().keys().copied().filter(|id| !due.contains(id)).collect();
        for id in due.into_iter().chain(unheard) {
            self.see_or_later(id).await;
        }
        let mut watch = self.0.map.watch("", Revision(listing.revision.0 + 1));
        loop {
            let events = match watch.next().await {
                Ok(events) => events,
                Err(MapError::Silent) => continue,
                Err(error) => return Err(cluster::CatalogError::from(error).into()),
            };
            let due: BTreeSet<_> =
                events.iter().filter_map(|event| self.hear(&event.key, event.value.as_deref())).collect();
            for id in due {
                self.see_or_later(id).await;
            }
        }
    }

    /// What cannot be done for one volume keeps no other from being looked at.
    async fn see_or_later(&self, id: VolumeId) {
        if let Err(error) = self.see(id).await {
            log::debug!("volume {id} is looked at again: {error}");
            self.0.heads.again.borrow_mut().insert(id);
        }
    }

    /// A record is this, or is gone. Returns the volume that has to be looked at.
    fn hear(&self, key: &str, value: Option<&[u8]>) -> Option<VolumeId> {
        let heads = &self.0.heads;
        if let Some(store) = key.strip_prefix(keys::SESSIONS) {
            let store = StoreId(u128::from_str_radix(store, 16).ok()?);
            match value.and_then(|value| decode::<SessionRecord>(key, value).ok()) {
                Some(session) => heads.sessions.borrow_mut().insert(store, session.node),
                None => heads.sessions.borrow_mut().remove(&store),
            };
            return None;
        }
        let id = key.strip_prefix(keys::VOLUMES)?;
        let id = VolumeId(u64::from_str_radix(id, 16).ok()?);
        let record = value.and_then(|value| decode::<VolumeRecord>(key, value).ok());
        // What this node has changed itself it knows.
        let is_news = record.is_none_or(|volume| volume.head != self.0.id || !heads.is_mine(&volume));
        is_news.then_some(id)
    }

    // ---- nodes that are gone ---------------------------------------------------------------------------------------

    async fn look_for_gone_nodes(&self) {
        loop {
            runtime::sleep(LOOK_WAIT).await;
            let again = self.0.heads.again.take();
            for id in again {
                self.see_or_later(id).await;
            }
            if let Some(gone) = self.whose_turn_it_is() {
                let (me, alive) = (self.0.id, self.0.heads.alive());
                let is_free = |volume: &VolumeRecord| volume.head == me || !alive.contains(&volume.head);
                let is_due = |family: &[VolumeRecord]| {
                    family.iter().all(is_free) && family.iter().any(|volume| gone.contains(&volume.head))
                };
                match self.take(is_due).await {
                    Ok(()) => log::info!("this node takes over the volumes of nodes that are gone: {gone:?}"),
                    Err(error) => log::warn!("volumes of nodes that are gone were not taken over: {error}"),
                }
            }
        }
    }

    /// Nodes that are heads, and have had no session for so long that it is this node's turn to take over.
    fn whose_turn_it_is(&self) -> Option<BTreeSet<NodeId>> {
        let heads = &self.0.heads;
        let (alive, at) = (heads.alive(), now());
        if !alive.contains(&self.0.id) {
            return None;
        }
        let leading: BTreeSet<NodeId> = heads.known.borrow().values().map(|(_, head)| *head).collect();
        let mut gone_since = heads.gone_since.borrow_mut();
        gone_since.retain(|node, _| leading.contains(node) && !alive.contains(node));
        let place = alive.iter().position(|node| *node == self.0.id)? as u32;
        let mut due = BTreeSet::new();
        for node in leading.into_iter().filter(|node| !alive.contains(node)) {
            let since = *gone_since.entry(node).or_insert(at);
            if at.since(since) >= TURN * place {
                due.insert(node);
            }
        }
        (!due.is_empty()).then_some(due)
    }
}

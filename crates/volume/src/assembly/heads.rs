//! Who is the head of what: this node's volumes, those of others, and who takes over from a node that is gone (H1, H3); and,
//! in the same way, who is the keeper of which family.
//!
//! ```text
//!   map's watch ─► a volume's record ── head is this node, in an epoch that it took ──► served here
//!                        │        └──── another's ──► listed, and refused: hosts go there
//!                        └─ its node has no session any more ── my turn ──► epoch + 1, read back, served here
//! ```
//!
//! Each volume has a head of its own. The layers of a family end under one hand, its keeper's. No command waits for any of this.

use super::at_once::each;
use super::changing::Alone;
use super::clients::Wishes;
use super::raise::Raised;
use super::{Assembly, VolumeError};
use crate::api::{Standing, VolumeInfo};
use crate::spec::volume_info;
use cluster::{
    ClientsRecord, Compression, DEFAULT_SUBSYSTEM, DoorsRecord, FamilyRecord, MapError, NodeSetRecord, PoolRecord,
    Revision, SessionRecord, VolumeRecord, VolumeState as Life, decode, get, go_on, keys, list, take_families,
    take_head, take_heads,
};
use runtime::{Instant, now};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{FamilyId, Mutant, NodeId, StoreId, VolumeEpoch, VolumeId, mutant};

/// After an error of the map.
const RETRY_WAIT: Duration = Duration::from_millis(200);
/// Between two looks at whose nodes are gone.
const LOOK_WAIT: Duration = Duration::from_millis(500);
/// Volumes that are looked at at once.
const SEERS: usize = 16;
/// Nodes that may take over try so long after each other: one of them does, and the others hear of it.
const TURN: Duration = Duration::from_millis(500);

/// What a node knows of heads.
#[derive(Default)]
pub(super) struct Heads {
    /// The epochs in which this node serves.
    mine: RefCell<BTreeMap<VolumeId, VolumeEpoch>>,
    /// Which groups know them.
    raised: RefCell<BTreeMap<VolumeId, (VolumeEpoch, Raised)>>,
    /// The epochs in which this node is the keeper of families.
    kept: RefCell<BTreeMap<FamilyId, VolumeEpoch>>,
    /// All families, and their keepers.
    keepers: RefCell<BTreeMap<FamilyId, NodeId>>,
    /// Volumes that clients of this node can ask for, as the map said last: of the subsystem that its doors serve, or led here.
    known: RefCell<BTreeMap<VolumeId, Rc<VolumeRecord>>>,
    /// All others. Of these a node knows only that there are some, and whose turn it is when their heads are gone.
    far: RefCell<BTreeMap<VolumeId, Rc<VolumeRecord>>>,
    /// Node sets, by table.
    sets: RefCell<BTreeMap<u32, NodeSetRecord>>,
    /// How pools compress what is written.
    compressions: RefCell<BTreeMap<String, Compression>>,
    /// Where volumes are better served.
    wishes: Wishes,
    /// Where clients reach nodes that have one.
    doors: RefCell<BTreeMap<NodeId, DoorsRecord>>,
    /// Stores whose node has a session in the map.
    sessions: RefCell<BTreeMap<StoreId, NodeId>>,
    /// Stores of the map that have none, and since when that has been seen (wall time: it is only told).
    away_since: RefCell<BTreeMap<StoreId, u64>>,
    /// Volumes that have to be looked at.
    due: RefCell<BTreeSet<VolumeId>>,
    /// Volumes that have, or had when they were heard of last, layers that may end.
    restless: RefCell<BTreeSet<VolumeId>>,
    /// Volumes that could not be looked at, or served, and why: they are looked at again.
    again: RefCell<BTreeMap<VolumeId, String>>,
    /// Volumes of which cores may not know all snapshots: the map was asked to change them, or for a list of them, and did not
    /// answer. They are told with each look, for as long as this node is the head: nobody knows when such a change is made.
    unsure: RefCell<BTreeSet<VolumeId>>,
    /// Volumes that are on their way to another node.
    moving: RefCell<BTreeSet<VolumeId>>,
    /// Nodes that lead something and have no session, and since when.
    gone_since: RefCell<BTreeMap<NodeId, Instant>>,
}

impl Heads {
    /// The map has said that this node is the head, in an epoch that no other node and no earlier life of this one had.
    pub(super) fn have_taken(&self, volume: &VolumeRecord) {
        self.mine.borrow_mut().insert(volume.id, volume.volume_epoch);
        self.unsure.borrow_mut().remove(&volume.id);
        self.note(volume);
    }

    /// Whether cores may not know all snapshots of the volume, or some that are gone.
    pub(super) fn is_unsure(&self, id: VolumeId) -> bool {
        self.unsure.borrow().contains(&id)
    }

    /// Cores may not know all snapshots of the volume.
    pub(super) fn is_unsure_of_snapshots(&self, id: VolumeId) {
        if !mutant(Mutant::UntoldForgotten) {
            self.unsure.borrow_mut().insert(id);
        }
    }

    /// The volume is looked at again soon.
    pub(super) fn is_looked_at_again(&self, id: VolumeId, why: &VolumeError) {
        self.again.borrow_mut().insert(id, why.to_string());
    }

    /// Whether this node is its head.
    pub(super) fn serves(&self, id: VolumeId) -> bool {
        self.mine.borrow().contains_key(&id)
    }

    /// The epoch in which it is.
    pub(super) fn reign(&self, id: VolumeId) -> Option<VolumeEpoch> {
        self.mine.borrow().get(&id).copied()
    }

    /// Groups of the volume know the epoch.
    pub(super) fn have_raised(&self, id: VolumeId, epoch: VolumeEpoch, raised: Raised) {
        self.raised.borrow_mut().insert(id, (epoch, raised));
    }

    /// Which groups of the volume are known to know the epoch.
    pub(super) fn raised(&self, id: VolumeId, epoch: VolumeEpoch) -> Raised {
        let raised = self.raised.borrow().get(&id).filter(|(of, _)| *of == epoch).map(|(_, raised)| raised.clone());
        raised.unwrap_or(Raised::At(BTreeSet::new()))
    }

    /// The epoch in which this node is the family's keeper, if it is.
    pub(super) fn keeps(&self, family: FamilyId) -> Option<VolumeEpoch> {
        self.kept.borrow().get(&family).copied()
    }

    /// The map says that another node is the keeper.
    pub(super) fn keep_no_more(&self, family: FamilyId, epoch: VolumeEpoch) {
        if self.keeps(family).is_some_and(|kept| kept <= epoch) {
            self.kept.borrow_mut().remove(&family);
        }
    }

    fn have_kept(&self, family: &FamilyRecord) {
        self.kept.borrow_mut().insert(family.id, family.epoch);
        self.keepers.borrow_mut().insert(family.id, family.keeper);
    }

    fn note(&self, volume: &VolumeRecord) {
        self.far.borrow_mut().remove(&volume.id);
        self.known.borrow_mut().insert(volume.id, Rc::new(volume.clone()));
    }

    fn note_far(&self, volume: &VolumeRecord) {
        self.known.borrow_mut().remove(&volume.id);
        self.far.borrow_mut().insert(volume.id, Rc::new(volume.clone()));
    }

    fn forget(&self, id: VolumeId) {
        self.mine.borrow_mut().remove(&id);
        self.raised.borrow_mut().remove(&id);
        self.known.borrow_mut().remove(&id);
        self.far.borrow_mut().remove(&id);
        self.unsure.borrow_mut().remove(&id);
        self.restless.borrow_mut().remove(&id);
    }

    pub(super) fn is_mine(&self, volume: &VolumeRecord) -> bool {
        self.mine.borrow().get(&volume.id) == Some(&volume.volume_epoch)
    }

    /// What keeps volumes from being served, or from being served as they are by now.
    pub(super) fn troubles(&self) -> Vec<String> {
        let again = self.again.borrow();
        again.iter().map(|(id, why)| format!("volume {id} is not as the map says: {why}")).collect()
    }

    /// The volume begins to move; `false`: it does already.
    pub(super) fn begins_to_move(&self, id: VolumeId) -> bool {
        self.moving.borrow_mut().insert(id)
    }

    /// It has moved, or stays.
    pub(super) fn moves_no_more(&self, id: VolumeId) {
        self.moving.borrow_mut().remove(&id);
    }

    /// This node has given it away.
    pub(super) fn serves_no_more(&self, id: VolumeId) {
        self.mine.borrow_mut().remove(&id);
    }

    /// Whether the node has a session, or the client.
    pub(super) fn is_alive(&self, node: NodeId) -> bool {
        match node.is_client() {
            true => self.wishes.hears_of(node),
            false => self.sessions.borrow().values().any(|alive| *alive == node),
        }
    }

    /// Where volumes are better served.
    pub(super) fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    /// The volumes that clients of this node can ask for, as the map said last.
    pub(super) fn volumes(&self) -> Vec<Rc<VolumeRecord>> {
        self.known.borrow().values().cloned().collect()
    }

    /// Any volume, as the map said last.
    pub(super) fn volume(&self, id: VolumeId) -> Option<Rc<VolumeRecord>> {
        self.known.borrow().get(&id).or(self.far.borrow().get(&id)).cloned()
    }

    /// The map says so of a node set.
    pub(super) fn hear_of_set(&self, set: &NodeSetRecord) {
        self.sets.borrow_mut().insert(set.table, set.clone());
    }

    /// The table's node set, if it has one.
    pub(super) fn set(&self, table: u32) -> Option<NodeSetRecord> {
        self.sets.borrow().get(&table).filter(|set| !set.nodes.is_empty()).cloned()
    }

    /// The table that a volume lies in.
    pub(super) fn table_of(&self, id: VolumeId) -> Option<u32> {
        self.volume(id).map(|volume| volume.table)
    }

    /// How many nodes may take over the volumes of a table before this one: those of its node set come first, in its order, as
    /// they take over its groups.
    fn turn_of(&self, me: NodeId, table: u32, alive: &BTreeSet<NodeId>) -> u32 {
        let sets = self.sets.borrow();
        let set = sets.get(&table).map_or(&[][..], |set| &set.nodes);
        let rank = |node: NodeId| (set.iter().position(|of_set| *of_set == node).unwrap_or(set.len()), node);
        alive.iter().filter(|node| rank(**node) < rank(me)).count() as u32
    }

    /// How many nodes that have a session come before this one.
    pub(super) fn place_of(&self, node: NodeId) -> u32 {
        self.alive().range(..node).count() as u32
    }

    /// Stores that have no session, and since when this node has seen that, ns since 1970.
    pub(super) fn away_since(&self) -> BTreeMap<StoreId, u64> {
        self.away_since.borrow().clone()
    }

    /// A store has a session, or none any more.
    fn note_session(&self, store: StoreId, session: Option<SessionRecord>) {
        let mut away = self.away_since.borrow_mut();
        match session {
            Some(session) => {
                self.sessions.borrow_mut().insert(store, session.node);
                away.remove(&store);
            }
            None => {
                self.sessions.borrow_mut().remove(&store);
                away.entry(store).or_insert_with(runtime::wall_clock_ns);
            }
        }
    }

    /// All stores that the map names, at a new look at it: none is remembered that has left.
    fn note_devices(&self, named: &BTreeSet<StoreId>) {
        let (sessions, mut away) = (self.sessions.borrow(), self.away_since.borrow_mut());
        away.retain(|store, _| named.contains(store));
        for store in named.iter().filter(|store| !sessions.contains_key(store)) {
            away.entry(*store).or_insert_with(runtime::wall_clock_ns);
        }
    }

    /// Where clients reach a node, as the map said last.
    pub(super) fn doors(&self, node: NodeId) -> Option<DoorsRecord> {
        self.doors.borrow().get(&node).cloned()
    }

    /// Stores of such nodes, as the map said last.
    pub(super) fn stores_of(&self, is_one: impl Fn(NodeId) -> bool) -> BTreeSet<StoreId> {
        let sessions = self.sessions.borrow();
        sessions.iter().filter(|(_, node)| is_one(**node)).map(|(store, _)| *store).collect()
    }

    /// Nodes that have a session; clients are none.
    pub(super) fn alive(&self) -> BTreeSet<NodeId> {
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
        if !me.is_client() {
            let is_its = |volume: &VolumeRecord| volume.head == me || volume.head == NodeId(0);
            self.take(is_its, |family| family.keeper == me || family.keeper == NodeId(0)).await?;
            let volumes = list::<VolumeRecord>(&*self.0.map, keys::VOLUMES).await?;
            let volumes = volumes.into_iter().map(|found| found.record);
            let (near, far): (Vec<_>, Vec<_>) = volumes.partition(|volume| self.is_near(volume));
            far.iter().for_each(|volume| self.0.heads.note_far(volume));
            let this = self.clone();
            each(near, SEERS, move |volume| {
                let this = this.clone();
                async move { this.see_or_later(volume.id).await }
            })
            .await;
        }
        let (follower, looker) = (self.clone(), self.clone());
        let sees = (0..SEERS).map(|_| {
            let seer = self.clone();
            runtime::spawn(async move { seer.see_all().await })
        });
        self.0.tasks.borrow_mut().extend(sees);
        let follows = runtime::spawn(async move { follower.follow().await });
        let looks = runtime::spawn(async move { looker.look_for_gone_nodes().await });
        self.0.tasks.borrow_mut().extend([follows, looks]);
        self.begin_clients();
        Ok(())
    }

    /// Makes this node the head of the volumes that are due, and serves them; and the keeper of families. Returns which volumes.
    pub(super) async fn take(
        &self,
        is_due: impl Fn(&VolumeRecord) -> bool,
        is_to_keep: impl Fn(&FamilyRecord) -> bool,
    ) -> Result<Vec<VolumeId>, VolumeError> {
        let families = take_families(&*self.0.map, self.0.id, is_to_keep).await?;
        families.iter().for_each(|family| self.0.heads.have_kept(family));
        let taken = self.take_volumes(is_due).await;
        // A snapshot or an ending layer that was cut short.
        families.iter().for_each(|family| self.tend_in_background(family.id));
        taken
    }

    /// One that is being changed waits for the next look.
    async fn take_volumes(&self, is_due: impl Fn(&VolumeRecord) -> bool) -> Result<Vec<VolumeId>, VolumeError> {
        let all = list::<VolumeRecord>(&*self.0.map, keys::VOLUMES).await?;
        let due = all.into_iter().map(|found| found.record).filter(&is_due).map(|volume| volume.id);
        let alone = self.0.changing.those_free(due);
        let taken = take_heads(&*self.0.map, self.0.id, |volume| alone.is_with(volume.id) && is_due(volume)).await?;
        self.serve_taken(&taken).await;
        Ok(taken.into_iter().map(|volume| volume.id).collect())
    }

    /// This node is the head of these since now.
    pub(super) async fn serve_taken(&self, taken: &[VolumeRecord]) {
        let this = self.clone();
        each(taken.to_vec(), SEERS, move |volume| {
            let this = this.clone();
            async move { this.serve_or_later(&volume).await }
        })
        .await;
        for volume in taken {
            if volume.state == Life::Deleting {
                self.erase_in_background(volume);
            }
            if !volume.leaving.is_empty() {
                self.leave_in_background(volume.id);
            }
            self.delete_left_draft(volume);
            self.delete_left_snapshots(volume);
        }
        self.tell_trash().await;
        self.tell_locked().await;
    }

    async fn serve_or_later(&self, volume: &VolumeRecord) {
        if let Err(error) = self.serve(volume).await {
            log::warn!("volume {} is not served yet: {error}", volume.name);
            self.stand(volume.id, Standing::Elsewhere).await;
            self.0.heads.mine.borrow_mut().remove(&volume.id);
            self.0.heads.again.borrow_mut().insert(volume.id, error.to_string());
        }
    }

    /// This node has just become the head of the volume.
    async fn serve(&self, volume: &VolumeRecord) -> Result<(), VolumeError> {
        self.0.heads.have_taken(volume);
        match volume.state {
            Life::Online if self.is_listed(volume.id) && !self.is_left_out(volume) => {
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

    /// Whether clients of this node can ask for it.
    pub(super) fn is_near(&self, volume: &VolumeRecord) -> bool {
        volume.subsystem == DEFAULT_SUBSYSTEM || volume.head == self.0.id
    }

    /// The map says so of a volume; whether it is near.
    fn note(&self, volume: &VolumeRecord) -> bool {
        let is_near = self.is_near(volume);
        match is_near {
            true => self.0.heads.note(volume),
            false => self.0.heads.note_far(volume),
        }
        is_near
    }

    /// Whether no core knows a volume that they could: it was unlocked, and the map did not answer just then.
    fn is_left_out(&self, volume: &VolumeRecord) -> bool {
        let has_key = volume.key.is_none_or(|key| self.0.keys.borrow().contains_key(&key));
        has_key && self.0.head.directory.by_id(volume.id).is_none()
    }

    pub(super) fn is_listed(&self, id: VolumeId) -> bool {
        self.0.volumes.borrow().values().any(|info| info.id == id)
    }

    /// Where it is served, for all cores.
    pub(super) async fn stand(&self, id: VolumeId, standing: Standing) {
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
    pub(super) async fn see(&self, id: VolumeId) -> Result<(), VolumeError> {
        let Some(found) = get::<VolumeRecord>(&*self.0.map, &keys::volume(id)).await? else {
            self.0.heads.forget(id);
            self.0.deleting.borrow_mut().retain(|deleting| *deleting != id);
            self.0.rollbacks.borrow_mut().remove(&id);
            self.let_go(id).await;
            if self.is_listed(id) {
                self.take_away(id).await;
            }
            // Its data key may have gone with it.
            return self.forget_keys().await;
        };
        let volume = found.record;
        self.note(&volume);
        self.learn(&volume).await?;
        if !self.is_near(&volume) {
            self.0.heads.serves_no_more(id);
            self.let_go(id).await;
            if self.is_listed(id) {
                self.take_away(id).await;
            }
            return Ok(());
        }
        if volume.head == self.0.id && self.0.heads.is_mine(&volume) {
            return self.see_mine(&volume).await;
        }
        self.0.heads.mine.borrow_mut().remove(&id);
        self.let_go(id).await;
        let is_listed = self.is_listed(id);
        match volume.state {
            Life::Online if is_listed && !self.is_left_out(&volume) => {
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
        let me = self.0.id;
        if volume.head == me
            // Another node has given it to this one, or an earlier life had it.
            && let Some(taken) = take_head(&*self.0.map, id, me, |volume| volume.head == me).await?
        {
            self.serve_taken(&[taken]).await;
        }
        Ok(())
    }

    /// Its record is other than it was: another node had a hand in it, or a change of this one was done and not answered.
    async fn see_mine(&self, volume: &VolumeRecord) -> Result<(), VolumeError> {
        let id = volume.id;
        if !matches!(volume.state, Life::Trashed(_)) {
            self.let_go(id).await;
        }
        match volume.state {
            Life::Online if !self.is_listed(id) || self.is_left_out(volume) => {
                self.list(volume, Standing::Here).await?;
            }
            Life::Online if self.is_other(volume) || self.0.heads.unsure.borrow().contains(&id) => {
                self.refresh(volume).await?;
                self.tell_snapshots(id, None).await?;
                self.tell_locked().await;
            }
            Life::Online => {}
            Life::Trashed(_) | Life::Deleting if self.is_listed(id) => self.take_away(id).await,
            Life::Trashed(_) | Life::Deleting => {}
        }
        match volume.state {
            Life::Trashed(term) if !self.is_kept(id, term) => {
                self.keep(volume, term);
                self.tell_trash().await;
            }
            Life::Deleting => self.erase_in_background(volume),
            Life::Trashed(_) | Life::Online => {}
        }
        if !volume.leaving.is_empty() {
            self.leave_in_background(id);
        }
        Ok(())
    }

    /// Whether it is served as something else.
    fn is_other(&self, volume: &VolumeRecord) -> bool {
        let (is, volumes) = (volume_info(volume), self.0.volumes.borrow());
        let told = |info: &VolumeInfo| {
            (info.name.clone(), info.size_bytes, info.hosts.clone(), info.limits, info.layers.clone())
        };
        let is_coded_else = |info: &VolumeInfo| {
            self.0.heads.compressions.borrow().get(&volume.pool).is_some_and(|by_now| *by_now != info.compression)
        };
        let is_other = |info: &VolumeInfo| told(info) != told(&is) || is_coded_else(info);
        volumes.values().find(|info| info.id == volume.id).is_some_and(is_other)
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
        self.0.heads.wishes.forget_all();
        self.0.heads.sets.borrow_mut().clear();
        self.0.heads.doors.borrow_mut().clear();
        self.0.heads.keepers.borrow_mut().clear();
        // One that is gone meanwhile is in no listing.
        let is_gone = {
            let prefix = listing.items.iter().filter_map(|item| item.key.strip_prefix(keys::VOLUMES));
            let there: BTreeSet<_> = prefix.filter_map(|id| u64::from_str_radix(id, 16).ok().map(VolumeId)).collect();
            move |id: &VolumeId| !there.contains(id)
        };
        let mut due: BTreeSet<VolumeId> = self.0.heads.known.borrow().keys().copied().collect();
        due.extend(self.0.heads.far.borrow().keys().copied().filter(is_gone));
        for (at, item) in listing.items.iter().enumerate() {
            go_on(at).await;
            due.extend(self.hear(&item.key, Some(&item.value)));
        }
        let stores = listing.items.iter().filter_map(|item| item.key.strip_prefix(keys::DEVICES));
        let stores = stores.filter_map(|store| u128::from_str_radix(store, 16).ok().map(StoreId));
        self.0.heads.note_devices(&stores.collect());
        self.look_at(due);
        let mut watch = self.0.map.watch("", Revision(listing.revision.0 + 1));
        // It is as large as the map.
        drop(listing);
        loop {
            let events = match watch.next().await {
                Ok(events) => events,
                Err(MapError::Silent) => continue,
                Err(error) => return Err(cluster::CatalogError::from(error).into()),
            };
            self.look_at(events.iter().filter_map(|event| self.hear(&event.key, event.value.as_deref())));
        }
    }

    pub(super) fn look_at(&self, due: impl IntoIterator<Item = VolumeId>) {
        // Who is told of one volume may find that others are due, too.
        let is_ours = |id: &VolumeId| !self.0.id.is_client() || self.0.asked_for.borrow().contains(id);
        let due: Vec<VolumeId> = due.into_iter().filter(is_ours).collect();
        self.0.heads.due.borrow_mut().extend(due);
        self.0.changing.wake();
    }

    /// Looks at what was heard of, for ever, as one of several. Who hears does not wait for that: it may take long.
    async fn see_all(&self) {
        loop {
            let (id, _alone) = self.0.changing.until(|| self.next_to_see()).await;
            self.see_or_later(id).await;
        }
    }

    /// A volume that was heard of, and is not being changed.
    fn next_to_see(&self) -> Option<(VolumeId, Alone)> {
        let mut due = self.0.heads.due.borrow_mut();
        let (id, alone) = due.iter().find_map(|id| Some((*id, self.free_to_see(*id)?)))?;
        due.remove(&id);
        Some((id, alone))
    }

    fn free_to_see(&self, id: VolumeId) -> Option<Alone> {
        let changing = &self.0.changing;
        // One that is being made here is not to be taken for an earlier life's.
        let is_known = || !changing.is_making() || self.0.heads.serves(id) || self.is_listed(id);
        (changing.is_free(id) && is_known()).then(|| changing.those_free([id]))
    }

    /// Waits until nobody changes the volume, nor makes it.
    pub(super) async fn alone_to_see(&self, id: VolumeId) -> Alone {
        self.0.changing.until(|| self.free_to_see(id)).await
    }

    /// What cannot be done for one volume keeps no other from being looked at. Nobody else changes it.
    pub(super) async fn see_or_later(&self, id: VolumeId) {
        // What it could not serve it says itself.
        let before = self.0.heads.again.borrow_mut().remove(&id);
        match self.see(id).await {
            Ok(()) => {}
            Err(error) => {
                self.0.heads.again.borrow_mut().insert(id, error.to_string());
                if before.is_none_or(|before| before != error.to_string()) {
                    log::warn!("volume {id} is looked at again: {error}");
                }
            }
        }
    }

    /// A record is this, or is gone. Returns the volume that has to be looked at.
    fn hear(&self, key: &str, value: Option<&[u8]>) -> Option<VolumeId> {
        let heads = &self.0.heads;
        if let Some(store) = key.strip_prefix(keys::SESSIONS) {
            let store = StoreId(u128::from_str_radix(store, 16).ok()?);
            heads.note_session(store, value.and_then(|value| decode::<SessionRecord>(key, value).ok()));
            return None;
        }
        if let Some(node) = key.strip_prefix(keys::CLIENTS) {
            let node = NodeId(u32::from_str_radix(node, 16).ok()?);
            heads.wishes.hear(node, value.and_then(|value| decode::<ClientsRecord>(key, value).ok()));
            return None;
        }
        if let Some(table) = key.strip_prefix(keys::NODE_SETS) {
            let table = u32::from_str_radix(table, 16).ok()?;
            match value.and_then(|value| decode::<NodeSetRecord>(key, value).ok()) {
                Some(set) => heads.hear_of_set(&set),
                None => drop(heads.sets.borrow_mut().remove(&table)),
            }
            return None;
        }
        if key.starts_with(keys::POOLS) {
            let pool = decode::<PoolRecord>(key, value?).ok()?;
            let before = heads.compressions.borrow_mut().insert(pool.name.clone(), pool.compression);
            if before.is_some_and(|before| before != pool.compression) {
                let volumes = heads.volumes();
                self.look_at(volumes.iter().filter(|volume| volume.pool == pool.name).map(|volume| volume.id));
            }
            return None;
        }
        if let Some(node) = key.strip_prefix(keys::DOORS) {
            let node = NodeId(u32::from_str_radix(node, 16).ok()?);
            match value.and_then(|value| decode::<DoorsRecord>(key, value).ok()) {
                Some(doors) => drop(heads.doors.borrow_mut().insert(node, doors)),
                None => drop(heads.doors.borrow_mut().remove(&node)),
            }
            return None;
        }
        if let Some(family) = key.strip_prefix(keys::FAMILIES) {
            let id = FamilyId(u64::from_str_radix(family, 16).ok()?);
            match value.and_then(|value| decode::<FamilyRecord>(key, value).ok()) {
                Some(family) => {
                    heads.keepers.borrow_mut().insert(id, family.keeper);
                    // It was made with a volume here.
                    if family.keeper == self.0.id && heads.keeps(id).is_none_or(|epoch| epoch < family.epoch) {
                        heads.have_kept(&family);
                        self.tend_in_background(id);
                    }
                }
                None => {
                    heads.keepers.borrow_mut().remove(&id);
                    heads.keep_no_more(id, VolumeEpoch(u32::MAX));
                }
            }
            return None;
        }
        let id = key.strip_prefix(keys::VOLUMES)?;
        let id = VolumeId(u64::from_str_radix(id, 16).ok()?);
        if let Some(volume) = value.and_then(|value| decode::<VolumeRecord>(key, value).ok()) {
            let is_near = self.note(&volume);
            let is_restless = volume.layers.len() > 1 || !volume.leaving.is_empty() || volume.state == Life::Deleting;
            let was_restless = heads.restless.borrow_mut().remove(&id);
            if is_restless {
                heads.restless.borrow_mut().insert(id);
            }
            if is_restless || was_restless {
                // Something of it may be nobody's by now.
                self.tend_in_background(volume.family);
            }
            if volume.head != self.0.id && heads.reign(id).is_some_and(|epoch| epoch < volume.volume_epoch) {
                // Whatever goes on here meanwhile: nothing more is let in.
                heads.mine.borrow_mut().remove(&id);
                let this = self.clone();
                runtime::spawn(async move { this.stand(id, Standing::Elsewhere).await });
            }
            if !is_near && !heads.serves(id) && !self.is_listed(id) && self.learn_known(&volume) {
                return None;
            }
        }
        Some(id)
    }

    // ---- nodes that are gone ---------------------------------------------------------------------------------------

    async fn look_for_gone_nodes(&self) {
        loop {
            runtime::sleep(LOOK_WAIT).await;
            let again: Vec<_> = self.0.heads.again.borrow().keys().copied().collect();
            self.look_at(again);
            if let Some((gone, due)) = self.whose_turn_it_is() {
                let is_due = |volume: &VolumeRecord| due.get(&volume.id) == Some(&volume.head);
                match self.take(is_due, |family: &FamilyRecord| gone.contains(&family.keeper)).await {
                    Ok(taken) => log::info!("this node takes over from nodes that are gone: {} volumes", taken.len()),
                    Err(error) => log::warn!("volumes of nodes that are gone were not taken over: {error}"),
                }
            }
        }
    }

    /// Whether this node can serve the volume, or at least no other could: one without its key leaves it to one that has it.
    fn may_serve(&self, volume: &VolumeRecord, alive: &BTreeSet<NodeId>) -> bool {
        let has_key = volume.key.is_none_or(|key| self.0.keys.borrow().contains_key(&key));
        let is_others = || alive.iter().any(|node| *node != self.0.id && self.0.heads.wishes.has_key(*node, volume));
        has_key || !is_others() || mutant(Mutant::LockedTakesOver)
    }

    /// Nodes that lead something, and have had no session for so long that it is this node's turn to take over the families
    /// that they keep; and the volumes whose turn it is, each with the head that it had.
    fn whose_turn_it_is(&self) -> Option<(BTreeSet<NodeId>, BTreeMap<VolumeId, NodeId>)> {
        let (heads, me) = (&self.0.heads, self.0.id);
        let (alive, at) = (heads.alive(), now());
        if !alive.contains(&me) {
            return None;
        }
        let (known, far, keepers) = (heads.known.borrow(), heads.far.borrow(), heads.keepers.borrow());
        let all = || known.values().chain(far.values());
        let leading: BTreeSet<NodeId> = all().map(|volume| volume.head).chain(keepers.values().copied()).collect();
        let is_gone = |node: &NodeId| match mutant(Mutant::ClientTakenForGone) {
            true => !alive.contains(node),
            false => !heads.is_alive(*node),
        };
        let mut gone_since = heads.gone_since.borrow_mut();
        gone_since.retain(|node, _| leading.contains(node) && is_gone(node));
        let gone: BTreeSet<NodeId> = leading.iter().copied().filter(is_gone).collect();
        for node in &gone {
            gone_since.entry(*node).or_insert(at);
        }
        let is_over =
            |node: &NodeId, turn: u32| gone_since.get(node).is_some_and(|since| at.since(*since) >= TURN * turn);
        let place = heads.place_of(me);
        let due_volumes = all().filter(|volume| {
            gone.contains(&volume.head)
                && is_over(&volume.head, heads.turn_of(me, volume.table, &alive))
                && self.may_serve(volume, &alive)
        });
        let due_volumes: BTreeMap<_, _> = due_volumes.map(|volume| (volume.id, volume.head)).collect();
        let due_keepers: BTreeSet<NodeId> = gone
            .iter()
            .filter(|node| is_over(node, place) && keepers.values().any(|keeper| keeper == *node))
            .copied()
            .collect();
        (!due_volumes.is_empty() || !due_keepers.is_empty()).then_some((due_keepers, due_volumes))
    }
}

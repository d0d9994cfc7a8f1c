//! What a node asks of the cluster's map: its session, changes of groups' records, looks, and what the watch tells. Lives
//! on the first core.

use super::core::CoreGroups;
use super::orders::{ordered, tell_orders};
use crate::left::AllGroups;
use crate::protocol::{Membership, Session};
use crate::record::{membership_of, with_membership};
use crate::wire::StoreLine;
use cluster::{
    CatalogError, Change, GroupRecord, LeaseId, MapError, MapStore, NodeRecord, Outcome, Record, Revision,
    SessionRecord, Transaction, Versioned, VolumeRecord, decode, encode, get, get_each, keys, list, settle,
};
use runtime::channel::cross;
use runtime::{Instant, now};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Store;
use types::{Epoch, GroupId, Mutant, NodeId, StoreId, mutant};

/// After an error of the map.
const RETRY_WAIT: Duration = Duration::from_millis(200);
/// Of a session's time so much is relied on: clocks differ by up to 2 %, this one's and the map's.
const SESSION_PERCENT: u32 = 95;

/// Of more groups not all are listed for the sake of some.
const LISTED_MAX: usize = 16 * BATCH_MAX;

/// Looks at all groups take at most this part of the time: the map of a large cluster is long.
const LOOK_SHARE: u32 = 50;

/// Changes of one transaction: each compares and puts a record, and may compare a session.
const BATCH_MAX: usize = cluster::TRANSACTION_OPERATIONS_MAX / 2;

/// How it is known what the map says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// By a look, after it was [noted](CoreGroups::mark_known) what is known: less would mean that the map went back.
    Looked,
    /// By a look whose beginning nobody noted.
    Listed,
    /// By a watch, some time ago.
    Told,
}

/// A member that asked: its core, its store, the group.
pub(super) type Asker = (u16, StoreId, GroupId);

/// A change that a member asked for.
struct Asked {
    base: GroupRecord,
    wanted: Arc<Membership>,
    session: Session,
    asker: Asker,
}

impl Asked {
    /// Says what became of it: nothing if it is done, else what the record is instead.
    fn tell(&self, core: &Rc<CoreGroups>, end: Result<Option<GroupRecord>, CatalogError>) {
        let (on, store, group) = self.asker;
        let wanted = self.wanted.clone();
        core.tell(on, move |core| {
            let Some(group) = core.group(store, group) else { return };
            match end {
                Ok(Some(current)) => group.conflicted(&wanted, &current),
                Ok(None) => group.with(|member| member.changed(&wanted)),
                Err(error) => {
                    log::debug!("group {}: the map did not say what became of a change: {error}", group.id());
                    group.with(|member| {
                        if member.asked_for(&wanted) {
                            member.unanswered()
                        }
                    });
                }
            }
        });
    }
}

/// See the module.
pub(super) struct MapSide {
    map: Arc<dyn MapStore>,
    cores: u16,
    /// With the core of its first shard.
    stores: RefCell<Vec<(Arc<Store>, u16)>>,
    /// Changes that were asked for in this turn.
    asked: RefCell<Vec<Asked>>,
    /// Looks that are under way.
    looking: RefCell<BTreeSet<(StoreId, GroupId)>>,
    /// When the map answered last, whatever it said.
    answered_at: Cell<Option<Instant>>,
    /// Of the node's session.
    lease: Cell<Option<LeaseId>>,
    /// Groups that the map had when it was looked at last.
    groups_there: Cell<usize>,
    /// The map may not say of this node's stores what it was told.
    is_to_say_stores: Cell<bool>,
    /// Since when less than half of the others is heard.
    pub(super) hears_few_since: Cell<Option<Instant>>,
    /// The session was given up for that.
    is_out: Cell<bool>,
}

impl MapSide {
    pub(super) fn new(map: Arc<dyn MapStore>, cores: u16) -> Self {
        Self {
            map,
            cores,
            stores: RefCell::default(),
            asked: RefCell::default(),
            looking: RefCell::default(),
            answered_at: Cell::default(),
            lease: Cell::default(),
            groups_there: Cell::default(),
            is_to_say_stores: Cell::default(),
            hears_few_since: Cell::default(),
            is_out: Cell::default(),
        }
    }

    pub(super) fn add_stores(&self, stores: Vec<(Arc<Store>, u16)>) {
        self.stores.borrow_mut().extend(stores);
    }

    pub(super) fn remove_store(&self, store: StoreId) {
        self.stores.borrow_mut().retain(|(there, _)| there.store_id() != store);
    }

    fn serves(&self, store: StoreId) -> bool {
        self.stores.borrow().iter().any(|(there, _)| there.store_id() == store && there.failed().is_none())
    }

    /// The map has answered.
    fn answered(&self) {
        self.answered_at.set(Some(now()));
    }

    pub(super) fn map(&self) -> &dyn MapStore {
        &*self.map
    }

    /// Whether nobody looks at this already.
    pub(super) fn begins_to_look(&self, store: StoreId, group: GroupId) -> bool {
        self.looking.borrow_mut().insert((store, group))
    }

    pub(super) fn has_looked(&self, store: StoreId, group: GroupId, is_answered: bool) {
        self.looking.borrow_mut().remove(&(store, group));
        if is_answered {
            self.answered();
        }
    }

    /// The node's stores that serve. `lately`: what the map answered since then counts.
    pub(super) fn store_lines(&self, lately: Duration) -> Vec<StoreLine> {
        let reaches_map = self.answered_at.get().is_some_and(|at| now().since(at) < lately);
        let stores = self.stores.borrow();
        let serves = stores.iter().filter(|(store, _)| store.failed().is_none());
        let line = |(store, first_core): &(Arc<Store>, u16)| StoreLine {
            store: store.store_id(),
            life: store.incarnation(),
            shards: store.shard_count().into(),
            first_core: *first_core,
            cores: self.cores,
            is_full: !store.takes_new_blocks(0),
            reaches_map,
        };
        serves.map(line).collect()
    }

    /// Whether a store of the node may be full soon, or is.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.stores.borrow().iter().any(|(store, _)| store.is_nearly_full())
    }

    /// Looks at all groups, and tells the members here. One at a time.
    pub(super) async fn look_at_all(&self, core: &Rc<CoreGroups>) -> Result<(), CatalogError> {
        let cores = core.shared.lines.len();
        let (told, mut all_told) = cross(cores);
        for index in 0..cores as u16 {
            let told = told.clone();
            core.tell(index, move |core| {
                core.mark_known();
                let _ = told.try_send(());
            });
        }
        drop(told);
        while all_told.recv().await.is_ok() {}
        let found = list::<GroupRecord>(&*self.map, keys::GROUPS).await?;
        let records: Arc<Vec<_>> = Arc::new(found.into_iter().map(|found| found.record).collect());
        let families = match core.shared.wants_families.swap(false, Ordering::Relaxed) {
            true => list::<VolumeRecord>(&*self.map, keys::VOLUMES).await.ok(),
            false => None,
        };
        let families = families.map(|volumes| volumes.into_iter().map(|found| found.record.family).collect());
        self.answered();
        self.groups_there.set(records.len());
        self.tell_all(core, records.clone(), Says::Looked);
        let all = Arc::new(AllGroups { records, families, stores: self.serving_stores() });
        for index in 0..cores as u16 {
            let all = all.clone();
            core.tell_if_it_keeps_up(index, move |core| core.has_looked_at_all(&all));
        }
        Ok(())
    }

    fn store_ids(&self) -> Vec<StoreId> {
        self.stores.borrow().iter().map(|(store, _)| store.store_id()).collect()
    }

    fn serving_stores(&self) -> Vec<StoreId> {
        let stores = self.stores.borrow();
        stores.iter().filter(|(store, _)| store.failed().is_none()).map(|(store, _)| store.store_id()).collect()
    }

    fn tell_all(&self, core: &Rc<CoreGroups>, records: Arc<Vec<GroupRecord>>, how: Says) {
        let stores = self.store_ids();
        let is_here = |record: &&GroupRecord| record.members.iter().any(|member| stores.contains(member));
        if records.is_empty() {
            return;
        }
        let here: Vec<_> = records.iter().filter(|record| is_here(record)).cloned().collect();
        let told = Arc::new((records, here));
        for index in 0..core.shared.lines.len() as u16 {
            let told = told.clone();
            core.tell_if_it_keeps_up(index, move |core| {
                let (all, here) = &*told;
                here.iter().for_each(|record| core.map_says(record, how));
                core.map_says_who_leads(all, how);
            });
        }
    }

    // ---- changes and looks ---------------------------------------------------------------------------------------

    /// Makes a change of a group's record, and says what became of it. What is asked for in one turn, as when a node is
    /// lost, is asked of the map together.
    pub(super) fn change(
        self: Rc<Self>,
        core: Rc<CoreGroups>,
        base: GroupRecord,
        wanted: Arc<Membership>,
        session: Session,
        asker: Asker,
    ) {
        let is_first = self.asked.borrow().is_empty();
        self.asked.borrow_mut().push(Asked { base, wanted, session, asker });
        if is_first {
            runtime::spawn(async move {
                runtime::turn_end().await;
                let asked = self.asked.take();
                let mut asked = asked.into_iter().peekable();
                while asked.peek().is_some() {
                    let batch: Vec<_> = asked.by_ref().take(BATCH_MAX).collect();
                    runtime::spawn(self.clone().settle_batch(core.clone(), batch));
                }
            });
        }
    }

    /// All of them at once, or each by itself.
    async fn settle_batch(self: Rc<Self>, core: Rc<CoreGroups>, batch: Vec<Asked>) {
        if batch.len() > 1 && self.settle_together(&batch).await {
            batch.iter().for_each(|asked| asked.tell(&core, Ok(None)));
            return;
        }
        for asked in batch {
            let (this, core) = (self.clone(), core.clone());
            runtime::spawn(async move {
                let end = this.settle_change(&asked.base, &asked.wanted, asked.session).await;
                if end.is_ok() {
                    this.answered();
                } else {
                    // It is asked for again at once.
                    runtime::sleep(RETRY_WAIT).await;
                }
                asked.tell(&core, end);
            });
        }
    }

    /// Whether all of them are done, in one transaction. If not, none of them is known to be.
    async fn settle_together(&self, batch: &[Asked]) -> bool {
        let Ok(found) = self.records_of(batch).await else { return false };
        self.answered();
        let mut transaction = Transaction::new();
        for Asked { base, wanted, session, .. } in batch {
            let found = found.iter().find(|found| found.record.id == base.id);
            let Some(found) = found.filter(|found| membership_of(&found.record) == membership_of(base)) else {
                return false;
            };
            let next = with_membership(&found.record, wanted);
            transaction = transaction.expect(base.key(), found.modified).put(base.key(), encode(&next));
            if let Session::Over(store) = session {
                let key = keys::session(*store);
                if !transaction.compares.iter().any(|(compared, _)| *compared == key) {
                    transaction = transaction.expect_absent(key);
                }
            }
        }
        matches!(settle(&*self.map, transaction).await, Ok(Outcome::Committed(_)))
    }

    /// The records of these groups, and maybe others: all in one answer, where that is not long.
    async fn records_of(&self, batch: &[Asked]) -> Result<Vec<Versioned<GroupRecord>>, CatalogError> {
        if self.groups_there.get() <= LISTED_MAX {
            return list(&*self.map, keys::GROUPS).await;
        }
        let keys: Vec<String> = batch.iter().map(|asked| asked.base.key()).collect();
        Ok(get_each(&*self.map, &keys).await?.into_iter().flatten().collect())
    }

    /// `None`: it is done. Else what the record is instead.
    async fn settle_change(
        &self,
        base: &GroupRecord,
        wanted: &Membership,
        session: Session,
    ) -> Result<Option<GroupRecord>, CatalogError> {
        let key = base.key();
        let missing = || CatalogError::BadRecord { key: key.clone(), why: "it is gone".to_owned() };
        let found = get::<GroupRecord>(&*self.map, &key).await?.ok_or_else(missing)?;
        if membership_of(&found.record) == *wanted {
            return Ok(None);
        }
        if membership_of(&found.record) != membership_of(base) {
            return Ok(Some(found.record));
        }
        let next = with_membership(&found.record, wanted);
        let mut transaction = Transaction::new().expect(&key, found.modified).put(&key, encode(&next));
        if let Session::Over(store) = session {
            transaction = transaction.expect_absent(keys::session(store));
        }
        match settle(&*self.map, transaction).await? {
            Outcome::Committed(_) => Ok(None),
            Outcome::Conflict => {
                let found = get::<GroupRecord>(&*self.map, &key).await?.ok_or_else(missing)?;
                Ok((membership_of(&found.record) != *wanted).then_some(found.record))
            }
        }
    }

    /// Looks at a group's record for a member that wants to know.
    /// `known`: the epoch that it knew when it asked.
    pub(super) fn look(self: Rc<Self>, core: Rc<CoreGroups>, asker: Asker, known: Epoch) {
        let (on, store, group) = asker;
        if !self.looking.borrow_mut().insert((store, group)) {
            return;
        }
        runtime::spawn(async move {
            let found = get::<GroupRecord>(&*self.map, &keys::group(group)).await;
            self.looking.borrow_mut().remove(&(store, group));
            if let Ok(Some(found)) = found {
                self.answered();
                core.tell(on, move |core| {
                    if let Some(group) = core.group(store, group) {
                        group.map_says(&found.record, known);
                        group.timers.borrow_mut().looked();
                    }
                });
            }
        });
    }

    // ---- nodes and groups ----------------------------------------------------------------------------------------

    /// Follows the map's groups and nodes, for ever.
    pub(super) async fn follow(self: Rc<Self>, core: Rc<CoreGroups>) {
        loop {
            if let Err(error) = self.follow_once(&core).await {
                log::debug!("the map's watch is begun anew: {error}");
                runtime::sleep(RETRY_WAIT).await;
            }
        }
    }

    async fn follow_once(&self, core: &Rc<CoreGroups>) -> Result<(), MapError> {
        let listing = self.map.list("").await?;
        let records = |prefix: &'static str| listing.items.iter().filter(move |item| item.key.starts_with(prefix));
        let nodes = records(keys::NODES).filter_map(|item| address_of(&item.key, &item.value));
        tell_addresses(core, nodes.collect());
        let mut groups = Vec::new();
        for (at, item) in records(keys::GROUPS).enumerate() {
            cluster::go_on(at).await;
            groups.extend(decode::<GroupRecord>(&item.key, &item.value));
        }
        self.tell_all(core, Arc::new(groups), Says::Listed);
        let orders = records(keys::WANTED).filter_map(|item| ordered(&item.key, Some(&item.value)));
        tell_orders(core, orders.collect(), true);
        // What was said while nobody heard.
        self.is_to_say_stores.set(true);
        let mut watch = self.map.watch("", Revision(listing.revision.0 + 1));
        // It is as large as the map.
        drop(listing);
        loop {
            let events = match watch.next().await {
                Ok(events) => {
                    self.answered();
                    events
                }
                Err(MapError::Silent) => continue,
                Err(error) => return Err(error),
            };
            let (mut groups, mut nodes, mut gone) = (Vec::new(), Vec::new(), Vec::new());
            let orders = events.iter().filter_map(|event| ordered(&event.key, event.value.as_deref()));
            tell_orders(core, orders.collect(), false);
            for event in &events {
                if session_of(&event.key).is_some_and(|store| self.serves(store)) {
                    self.is_to_say_stores.set(true);
                }
                let Some(value) = &event.value else {
                    gone.extend(node_of(&event.key));
                    continue;
                };
                if event.key.starts_with(keys::GROUPS) {
                    groups.extend(decode::<GroupRecord>(&event.key, value).ok());
                } else if event.key.starts_with(keys::NODES) {
                    nodes.extend(address_of(&event.key, value));
                }
            }
            self.tell_all(core, Arc::new(groups), Says::Told);
            tell_addresses(core, nodes);
            gone.into_iter().for_each(|node| forget_address(core, node));
        }
    }

    // ---- the session ---------------------------------------------------------------------------------------------

    /// Keeps the node's session in the map, for ever: a new one when the last may be over.
    pub(super) async fn keep_session(self: Rc<Self>, core: Rc<CoreGroups>) {
        loop {
            if let Err(error) = self.session(&core).await {
                log::debug!("the node's session in the map is over: {error}");
            }
            tell_session(&core, Instant(0));
            runtime::sleep(RETRY_WAIT).await;
            while self.is_out.get() {
                match self.is_cut_off(&core, false).await {
                    Ok(is_out) => self.is_out.set(is_out),
                    Err(error) => log::debug!("who lives is not known: {error}"),
                }
                runtime::sleep(RETRY_WAIT).await;
            }
        }
    }

    /// One session, to its end.
    async fn session(&self, core: &Rc<CoreGroups>) -> Result<(), CatalogError> {
        let timing = core.shared.timing;
        let lasts = timing.session * SESSION_PERCENT / 100;
        let mut until = now() + lasts;
        let lease = self.map.grant(timing.session).await?;
        self.lease.set(Some(lease));
        self.say_stores(core.shared.node, lease).await?;
        // Whatever happened while there was none.
        self.look_at_all(core).await?;
        let (mut looked_at, mut looking, mut wait) = (now(), Duration::ZERO, timing.renewal);
        loop {
            if now() >= until {
                return Ok(());
            }
            tell_session(core, until);
            runtime::sleep(wait).await;
            let asked_at = now();
            match self.map.keep_alive(lease).await {
                Ok(()) if now() < until => {
                    self.answered();
                    (until, wait) = (asked_at + lasts, timing.renewal);
                }
                Ok(()) => return Ok(()),
                // One that is not answered does not end the session: there is time for some more.
                Err(MapError::Unknown) => {
                    wait = RETRY_WAIT;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if self.is_cut_off(core, true).await.unwrap_or(false) {
                self.is_out.set(true);
                self.gives_session_up(core, until).await;
                return Ok(());
            }
            self.end_failed(lease).await?;
            if self.is_to_say_stores.take() && !mutant(Mutant::SessionSaidOnce) {
                let said = runtime::timeout(timing.ask, self.say_stores(core.shared.node, lease)).await;
                match said.unwrap_or(Err(MapError::Unknown.into())) {
                    Ok(()) => {}
                    // As with a renewal: there is time for some more, and nothing else waits for it.
                    Err(CatalogError::Map(MapError::Unknown)) => {
                        self.is_to_say_stores.set(true);
                        wait = RETRY_WAIT;
                    }
                    Err(error) => return Err(error),
                }
            }
            if now().since(looked_at) >= timing.look.max(looking * LOOK_SHARE) {
                let began = now();
                self.look_at_all(core).await?;
                looked_at = now();
                looking = looked_at.since(began);
            }
        }
    }

    /// The lease of the session, or of the last one.
    pub(super) fn lease(&self) -> Option<LeaseId> {
        self.lease.get()
    }

    /// There is another store.
    pub(super) async fn say_stores_again(&self, node: NodeId) -> Result<(), CatalogError> {
        match self.lease.get() {
            Some(lease) => self.say_stores(node, lease).await,
            None => Ok(()),
        }
    }

    /// The session ends now, if the map hears of it.
    pub(super) async fn end_session(&self) {
        if let Some(lease) = self.lease.take() {
            let _ = runtime::timeout(RETRY_WAIT, self.map.revoke(lease)).await;
        }
    }

    /// The stores' sessions, under the node's lease: those that the map does not have as they are.
    async fn say_stores(&self, node: NodeId, lease: LeaseId) -> Result<(), CatalogError> {
        let records: Vec<SessionRecord> = {
            let stores = self.stores.borrow();
            let serve = stores.iter().filter(|(store, _)| store.failed().is_none());
            serve.map(|(store, _)| SessionRecord { store: store.store_id(), life: store.incarnation(), node }).collect()
        };
        for record in &records {
            self.say_store(record, lease).await?;
        }
        Ok(())
    }

    /// Nothing is said over what a later life of the store says, wherever that is.
    async fn say_store(&self, record: &SessionRecord, lease: LeaseId) -> Result<(), CatalogError> {
        let (key, value) = (record.key(), encode(record));
        loop {
            let found = self.map.get(&key).await?;
            let modified = found.as_ref().map_or(Revision(0), |found| found.modified);
            if let Some(found) = found {
                if found.lease == Some(lease) && found.value == value {
                    return Ok(());
                }
                match decode::<SessionRecord>(&key, &found.value) {
                    Ok(other) if other.life > record.life => {
                        log::warn!("store {} is served by node {} by now", record.store, other.node);
                        return Ok(());
                    }
                    _ => {}
                }
            }
            let mut transaction = Transaction::new().expect(&key, modified);
            transaction.changes.push(Change::Put { key: key.clone(), value: value.clone(), lease: Some(lease) });
            match self.map.transact(transaction).await {
                Ok(Outcome::Committed(_)) => return Ok(()),
                // Somebody has said something else meanwhile, or it may be said.
                Ok(Outcome::Conflict) => {}
                Err(MapError::Unknown) => runtime::sleep(RETRY_WAIT).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The session of a store that has failed ends, although its node lives (R10).
    async fn end_failed(&self, lease: LeaseId) -> Result<(), CatalogError> {
        let failed: Vec<_> = {
            let stores = self.stores.borrow();
            stores.iter().filter(|(store, _)| store.failed().is_some()).map(|(store, _)| store.store_id()).collect()
        };
        for store in failed {
            self.end_session_of(store, lease).await?;
        }
        Ok(())
    }

    /// The store is this node's no more.
    pub(super) async fn let_go(&self, store: StoreId) {
        let Some(lease) = self.lease.get() else { return };
        if let Err(error) = self.end_session_of(store, lease).await {
            log::debug!("the session of store {store} ends with its node's: {error}");
        }
    }

    async fn end_session_of(&self, store: StoreId, lease: LeaseId) -> Result<(), CatalogError> {
        let key = keys::session(store);
        if let Some(found) = self.map.get(&key).await?.filter(|found| found.lease == Some(lease)) {
            settle(&*self.map, Transaction::new().expect(&key, found.modified).delete(&key)).await?;
        }
        Ok(())
    }
}

fn session_of(key: &str) -> Option<StoreId> {
    u128::from_str_radix(key.strip_prefix(keys::SESSIONS)?, 16).ok().map(StoreId)
}

fn tell_session(core: &Rc<CoreGroups>, until: Instant) {
    for index in 0..core.shared.lines.len() as u16 {
        core.tell(index, move |core| core.set_session_until(until));
    }
}

fn address_of(key: &str, value: &[u8]) -> Option<(NodeId, SocketAddr)> {
    let record = decode::<NodeRecord>(key, value).ok()?;
    record.address.parse().ok().map(|address| (record.id, address))
}

fn node_of(key: &str) -> Option<NodeId> {
    u32::from_str_radix(key.strip_prefix(keys::NODES)?, 16).ok().map(NodeId)
}

/// The node is of the cluster no more: nobody waits to hear it.
fn forget_address(core: &Rc<CoreGroups>, node: NodeId) {
    for index in 0..core.shared.lines.len() as u16 {
        core.tell(index, move |core| core.forget_address(node));
    }
}

fn tell_addresses(core: &Rc<CoreGroups>, addresses: Vec<(NodeId, SocketAddr)>) {
    if addresses.is_empty() {
        return;
    }
    let addresses = Arc::new(addresses);
    for index in 0..core.shared.lines.len() as u16 {
        let addresses = addresses.clone();
        core.tell(index, move |core| core.set_addresses(&addresses));
    }
}

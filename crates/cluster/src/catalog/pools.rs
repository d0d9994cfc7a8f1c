//! Pools: made over the devices that there are, all or nothing.
//!
//! ```text
//!   pool-drafts/P   numbers of its groups and its table are taken      one transaction
//!   groups/…        dealt by `placement::place`                         as many as it takes
//!   tables/T/…
//!   pools/P         the draft goes: from here on the pool can be used   one transaction
//! ```
//!
//! Each transaction compares the draft. Whoever finds one after a crash goes on where it stopped: nothing has been stored in
//! these groups, and nobody else has their numbers.

use super::numbers::{Numbered, Numbers};
use super::setup::ensure;
use super::{ATTEMPTS_MAX, Attempt, CatalogError, attempt};
use crate::control::Followed;
use crate::map::{Listing, MapStore, Revision, TRANSACTION_OPERATIONS_MAX, Transaction};
use crate::names::check_name;
use crate::placement::duty::View;
use crate::placement::{Device, Duty, Group, PlacementError, Rules, groups_for, place};
use crate::records::{
    Allocator, Compression, FailureDomain, GroupRecord, Policy, PoolDraftRecord, PoolRecord, PoolRulesRecord, Record,
    SlotTablePiece, VolumePlacement, keys,
};
use crate::slots::SlotTable;
use crate::typed::{encode, get};
use std::collections::{BTreeMap, BTreeSet};
use types::{GroupId, Mutant, StoreId, mutant};

/// The pool of a cluster that was not told otherwise.
pub const DEFAULT_POOL: &str = "default";
/// Most copies of a block.
pub const REPLICAS_MAX: u32 = 5;

/// What a pool is to be.
#[derive(Clone, Debug)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Members of each group.
    pub replicas: u32,
    /// Members that must have a write before it is committed.
    pub min_in_sync: u32,
    /// Where copies may lie, and volumes; `None`: nobody says, and what holds follows from the devices that there are.
    pub rules: Option<PoolRulesRecord>,
    /// Its devices; none: all that hold something.
    pub stores: Vec<StoreId>,
}

/// Why a pool cannot be as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Its name is taken.
    #[error("a pool named {0} exists already")]
    Exists(String),
    /// Too many copies, or none.
    #[error("{0} copies cannot be: choose 1 to {REPLICAS_MAX}")]
    Replicas(u32),
    /// More than there are, or none.
    #[error("a write cannot wait for {min_in_sync} of {replicas} copies: choose 1 to {replicas}")]
    MinInSync {
        /// Copies.
        replicas: u32,
        /// Copies that are to be waited for.
        min_in_sync: u32,
    },
    /// A pool of this name was begun as another.
    #[error(
        "the pool {name} was begun with {replicas} copies (min-in-sync {min_in_sync}, failure domain {failure_domain}) and is \
         not finished: say the same again, or choose another name"
    )]
    Begun {
        /// Its name.
        name: String,
        /// Its copies.
        replicas: u32,
        /// Copies that are waited for.
        min_in_sync: u32,
        /// What no two copies share.
        failure_domain: FailureDomain,
    },
    /// There are not the devices for it.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

/// Copies that a write waits for in a pool that was not told otherwise: most of them, and one of two.
pub fn default_min_in_sync(replicas: u32) -> u32 {
    if replicas <= 2 { 1 } else { replicas / 2 + 1 }
}

/// Makes a pool. One that was begun and not finished is finished, if it was to be the same.
///
/// # Errors
/// If it is there, or there are not the devices for it.
pub async fn create_pool(map: &dyn MapStore, new: &NewPool) -> Result<PoolRecord, CatalogError> {
    check(new)?;
    if get::<PoolRecord>(map, &keys::pool(&new.name)).await?.is_some() {
        return Err(PoolError::Exists(new.name.clone()).into());
    }
    let draft = begin(map, new).await?;
    let rules = draft.rules.clone().unwrap_or_else(|| PoolRulesRecord::unset(&new.name));
    let PoolRecord { replicas, min_in_sync, .. } = draft.pool;
    if (replicas, min_in_sync, &draft.rules) != (new.replicas, new.min_in_sync, &new.rules) {
        let (name, failure_domain) = (new.name.clone(), rules.failure_domain);
        return Err(PoolError::Begun { name, replicas, min_in_sync, failure_domain }.into());
    }
    finish(map, &draft).await
}

/// The pool, made if it was not there; one that was begun is finished as it was begun.
///
/// # Errors
/// If there are not the devices for it.
pub async fn ensure_pool(map: &dyn MapStore, new: &NewPool) -> Result<PoolRecord, CatalogError> {
    if let Some(found) = get::<PoolRecord>(map, &keys::pool(&new.name)).await? {
        return Ok(found.record);
    }
    check(new)?;
    let draft = match begin(map, new).await {
        // Another began it and has finished it since it was looked for.
        Err(CatalogError::Pool(PoolError::Exists(name))) => {
            let made = get::<PoolRecord>(map, &keys::pool(&name)).await?;
            return made.map(|made| made.record).ok_or(CatalogError::NoPool(name));
        }
        begun => begun?,
    };
    finish(map, &draft).await
}

/// What is to change of a pool's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolChange {
    /// What no two copies share.
    pub failure_domain: Option<FailureDomain>,
    /// Only devices of this class; empty: any.
    pub class: Option<String>,
    /// Of volumes that are made from now on and were not told otherwise.
    pub placement: Option<VolumePlacement>,
}

/// Changes a pool's rules. What lies otherwise is moved by who controls.
///
/// # Errors
/// If there is no such pool, or not the devices for it.
pub async fn change_pool(map: &dyn MapStore, name: &str, change: &PoolChange) -> Result<PoolRulesRecord, CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let listing = map.list("").await?;
        let mut known = Followed::of(&listing);
        let view = known.view().map_err(unreadable)?;
        let pool = view.pools.get(name).ok_or_else(|| CatalogError::NoPool(name.to_owned()))?;
        let is = view.rules_of(pool);
        let next = PoolRulesRecord {
            failure_domain: change.failure_domain.unwrap_or(is.failure_domain),
            class: change.class.clone().unwrap_or_else(|| is.class.clone()),
            placement: change.placement.unwrap_or(is.placement),
            ..is.clone()
        };
        let mut input = view.input(pool);
        input.rules = Rules::of(pool, &next);
        place(&input.devices, &input.rules, &input.sets, &input.groups).map_err(PoolError::from)?;
        let (key, pool_key) = (next.key(), pool.key());
        let transaction = Transaction::new()
            .expect(&pool_key, known.revision(&pool_key))
            .expect(&key, known.revision(&key))
            .put(&key, encode(&next));
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(next);
        }
    }
    Err(CatalogError::Contended)
}

fn check(new: &NewPool) -> Result<(), CatalogError> {
    let &NewPool { replicas, min_in_sync, .. } = new;
    check_name(&new.name)?;
    if !(1..=REPLICAS_MAX).contains(&replicas) {
        return Err(PoolError::Replicas(replicas).into());
    }
    if !(1..=replicas).contains(&min_in_sync) {
        return Err(PoolError::MinInSync { replicas, min_in_sync }.into());
    }
    Ok(())
}

/// The draft of the pool: the one that is there, or a new one.
async fn begin(map: &dyn MapStore, new: &NewPool) -> Result<PoolDraftRecord, CatalogError> {
    for kind in ["volume", "layer", "family"] {
        ensure(map, Allocator { kind: kind.to_owned(), next: 1 }).await?;
    }
    let key = keys::pool_draft(&new.name);
    for _ in 0..ATTEMPTS_MAX {
        if let Some(found) = get::<PoolDraftRecord>(map, &key).await? {
            return Ok(found.record);
        }
        let listing = map.list("").await?;
        let view = view_of(&listing)?;
        let stores = if new.stores.is_empty() { holding(&view) } else { new.stores.clone() };
        let (mut groups, mut tables) =
            (Numbers::free(&listing, Numbered::Group)?, Numbers::free(&listing, Numbered::Table)?);
        let pool = PoolRecord {
            name: new.name.clone(),
            policy: Policy::Replicated,
            replicas: new.replicas,
            min_in_sync: new.min_in_sync,
            table: tables.take(1),
            write_cache: false,
            compression: Compression::default(),
        };
        let mut draft = PoolDraftRecord { pool, rules: new.rules.clone(), stores, first_group: GroupId(0), groups: 0 };
        let (devices, rules) = (devices_of(&view, &draft), rules_of(&view, &draft));
        // Refused before anything is written.
        place(&devices, &rules, &[], &[]).map_err(PoolError::from)?;
        let is_its =
            |device: &&Device| device.duty == Duty::In && (rules.class.is_empty() || device.class == rules.class);
        draft.groups = groups_for(devices.iter().filter(is_its).count() as u32, new.replicas);
        draft.first_group = GroupId(groups.take(draft.groups));
        let pool_key = keys::pool(&new.name);
        let transaction = Transaction::new().expect_absent(&key).put(&key, encode(&draft)).expect_absent(pool_key);
        if let Attempt::Done = attempt(map, tables.put(groups.put(transaction))).await? {
            return Ok(draft);
        }
        if let Some(made) = get::<PoolRecord>(map, &keys::pool(&new.name)).await? {
            return Err(PoolError::Exists(made.record.name).into());
        }
    }
    Err(CatalogError::Contended)
}

/// Writes what is missing of a pool that was begun, and the pool's record when nothing is.
async fn finish(map: &dyn MapStore, draft: &PoolDraftRecord) -> Result<PoolRecord, CatalogError> {
    let (key, pool) = (draft.key(), &draft.pool);
    for _ in 0..ATTEMPTS_MAX {
        let listing = map.list("").await?;
        let revision = |key: &str| listing.items.iter().find(|item| item.key == key).map(|item| item.modified);
        let Some(modified) = revision(&key) else {
            // Another has finished it, or this one has and did not hear of it.
            let made = get::<PoolRecord>(map, &pool.key()).await?.map(|found| found.record);
            return made.filter(|made| made.table == pool.table).ok_or(CatalogError::Contended);
        };
        let mut known = Followed::of(&listing);
        known.view().map_err(unreadable)?;
        if !write_groups(map, &known, (draft, modified)).await? {
            continue;
        }
        let missing: Vec<SlotTablePiece> =
            pieces(draft).into_iter().filter(|piece| revision(&piece.key()).is_none()).collect();
        if !put_new(map, &missing, |_| vec![(key.clone(), modified)]).await? {
            continue;
        }
        let transaction = Transaction::new().expect(&key, modified).delete(&key).expect_absent(pool.key());
        let transaction = transaction.put(pool.key(), encode(pool));
        let transaction = match &draft.rules {
            Some(rules) => transaction.put(rules.key(), encode(rules)),
            None => transaction,
        };
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(pool.clone());
        }
    }
    Err(CatalogError::Contended)
}

/// Writes the groups that are not there yet; `false`: somebody else did meanwhile, or has done more, or has said something else
/// of a device that gets some.
async fn write_groups(
    map: &dyn MapStore,
    known: &Followed,
    (draft, modified): (&PoolDraftRecord, Revision),
) -> Result<bool, CatalogError> {
    let (view, PoolRecord { name, table, min_in_sync, .. }) = (known.records(), &draft.pool);
    let begun = |group: Group| GroupRecord::begun_with(group.id, (*table, name.clone()), group.members, *min_in_sync);
    let is_others = |id: &GroupId| view.groups.get(id).is_some_and(|group| group.pool != *name);
    if let Some(id) = draft.group_ids().find(is_others) {
        return Err(CatalogError::BadRecord {
            key: keys::group(id),
            why: format!("its number was taken for pool {name}"),
        });
    }
    let missing: Vec<GroupRecord> =
        dealt(view, draft)?.into_iter().filter(|group| !view.groups.contains_key(&group.id)).map(begun).collect();
    let missing = if mutant(Mutant::PoolBeforeGroups) { &missing[..missing.len() / 2] } else { &missing[..] };
    let dealt_by = |group: &GroupRecord| {
        let places = group.members.iter().flat_map(|store| known.said_of(*store));
        std::iter::once((draft.key(), modified)).chain(places.filter(|_| !mutant(Mutant::DealtUnseen))).collect()
    };
    put_new(map, missing, dealt_by).await
}

/// Puts records that are not there, in as few transactions as can be, each as long as what its records were decided by stands.
async fn put_new<T: Record>(
    map: &dyn MapStore,
    records: &[T],
    decided_by: impl Fn(&T) -> Vec<(String, Revision)>,
) -> Result<bool, CatalogError> {
    let mut left = records;
    while !left.is_empty() {
        let mut compares = BTreeMap::new();
        let fits = |(at, record): &(usize, &T)| {
            compares.extend(decided_by(record));
            at + 1 + compares.len() <= TRANSACTION_OPERATIONS_MAX
        };
        let (batch, later) = left.split_at(left.iter().enumerate().take_while(fits).count());
        let compares: BTreeMap<String, Revision> = batch.iter().flat_map(&decided_by).collect();
        let transaction =
            compares.into_iter().fold(Transaction::new(), |all, (key, modified)| all.expect(key, modified));
        let transaction = batch.iter().fold(transaction, |transaction, record| {
            transaction.expect_absent(record.key()).put(record.key(), encode(record))
        });
        if let Attempt::ReadAgain = attempt(map, transaction).await? {
            return Ok(false);
        }
        left = later;
    }
    Ok(true)
}

/// Who is to hold each group. Those that are there stay as they are: by now they may be led.
fn dealt(view: &View, draft: &PoolDraftRecord) -> Result<Vec<Group>, CatalogError> {
    let there = |id| view.groups.get(&id).map(|group| group.members.clone()).unwrap_or_default();
    let groups: Vec<Group> = draft.group_ids().map(|id| Group { id, members: there(id), table: None }).collect();
    let placed = place(&devices_of(view, draft), &rules_of(view, draft), &[], &groups).map_err(PoolError::from)?;
    Ok(placed.groups)
}

fn pieces(draft: &PoolDraftRecord) -> Vec<SlotTablePiece> {
    let ids: Vec<GroupId> = draft.group_ids().collect();
    super::setup::pieces(draft.pool.table, &SlotTable::deal(&ids))
}

fn view_of(listing: &Listing) -> Result<View, CatalogError> {
    let mut known = Followed::of(listing);
    known.view().cloned().map_err(unreadable)
}

/// Without it something may look free that is not.
pub(super) fn unreadable(why: String) -> CatalogError {
    CatalogError::BadRecord { key: "of a node, device, pool or group".to_owned(), why }
}

/// Devices that hold something, or are to; before there is any group, all.
fn holding(view: &View) -> Vec<StoreId> {
    if view.groups.is_empty() {
        return view.devices.keys().copied().collect();
    }
    let members: BTreeSet<StoreId> = view.groups.values().flat_map(|group| group.members.iter().copied()).collect();
    let is_added = |store: &&StoreId| members.contains(store) || view.device_places.contains_key(store);
    view.devices.keys().filter(is_added).copied().collect()
}

fn rules_of(view: &View, draft: &PoolDraftRecord) -> Rules {
    let rules = draft.rules.clone().unwrap_or_else(|| view.rules_unset(&draft.pool));
    Rules::of(&draft.pool, &rules)
}

/// The pool's devices. In a pool of one copy all get as many groups: what each gets of a volume its tables say.
fn devices_of(view: &View, draft: &PoolDraftRecord) -> Vec<Device> {
    let mut known: BTreeMap<StoreId, Device> =
        view.devices_with(|_| true).into_iter().map(|device| (device.store, device)).collect();
    let device = |store: &StoreId| {
        let device = known.remove(store).filter(|device| device.duty == Duty::In)?;
        Some(if draft.pool.replicas == 1 { Device { weight: 1, ..device } } else { device })
    };
    draft.stores.iter().filter_map(device).collect()
}

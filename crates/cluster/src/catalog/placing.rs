//! Where a new volume lies: its pool, its table, its home.
//!
//! ```text
//!   gathered   a table of the home: groups of a node set that are led from there, made where that gives more room
//!   spread     the pool's table: every device of the pool
//! ```
//!
//! A node set comes with its table in one transaction, which uses up the number that the table has: so two that make sets at
//! once never give a group to both. A volume is made in a transaction that compares its node set.

use super::numbers::{Numbered, Numbers};
use super::{ATTEMPTS_MAX, Attempt, CatalogError, DEFAULT_POOL, attempt};
use crate::control::Followed;
use crate::map::{Listing, MapStore, TRANSACTION_OPERATIONS_MAX, Transaction};
use crate::placement::choose::{self, Choice, NoHome};
use crate::placement::duty::{PoolInput, View};
use crate::placement::{Device, Duty};
use crate::records::{NodeSetRecord, PoolRecord, Record, VolumePlacement, VolumeRecord, VolumeState, keys};
use crate::slots::SlotTable;
use crate::typed::{decode, encode};
use std::collections::{BTreeMap, BTreeSet};
use types::{GroupId, Mutant, NodeId, StoreId, mutant};

/// What is said of where a volume is to lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedPlace {
    /// The pool; `None`: the one that is meant by the copies, or the one of that name which each cluster has.
    pub pool: Option<String>,
    /// Copies that the pool must keep.
    pub replicas: Option<u32>,
    /// Whether it is led from one node; `None`: as the pool says.
    pub placement: Option<VolumePlacement>,
    /// The node that serves it, and leads what is gathered; `None`: the one with the most room.
    pub home: Option<NodeId>,
}

/// Where a new volume lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlace {
    /// Its pool.
    pub pool: String,
    /// The table of a node set; `None`: the pool's.
    pub table: Option<u32>,
    /// The node that is to serve it.
    pub home: NodeId,
}

/// Why a volume cannot lie there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The pool keeps another number.
    #[error("the pool {pool} keeps {is} copies of a block, and not {asked}: leave --replicas away{}", .others.hint())]
    OtherReplicas {
        /// The pool.
        pool: String,
        /// Copies that it keeps.
        is: u32,
        /// Copies that were asked for.
        asked: u32,
        /// Pools that keep so many.
        others: Others,
    },
    /// No pool keeps so many.
    #[error(
        "no pool keeps {asked} copies of a block ({}): `cairn pool create NAME --replicas {asked}` makes one",
        .pools.iter().map(|(name, replicas)| format!("{name} keeps {replicas}")).collect::<Vec<_>>().join(", ")
    )]
    NoneKeeps {
        /// Copies that were asked for.
        asked: u32,
        /// The pools, with their copies.
        pools: Vec<(String, u32)>,
    },
    /// Several pools could be meant.
    #[error("the pools {} could be meant: name one with --pool", .0.join(", "))]
    Several(Vec<String>),
    /// It has nothing of the pool.
    #[error("node-{node} has no device of the pool {pool}: its devices are on {}", names(.nodes))]
    NotOfPool {
        /// The node.
        node: NodeId,
        /// The pool.
        pool: String,
        /// Nodes that have.
        nodes: Vec<NodeId>,
    },
    /// It could not serve it.
    #[error("node-{0} is not up, or is to be left by what it has: choose another node (`cairn node ls`)")]
    NotThere(NodeId),
    /// No group is left for a table.
    #[error("{0}: say --placement spread")]
    NoHome(#[from] NoHome),
}

/// Pools that keep as many copies as were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others(pub Vec<String>);

impl Others {
    fn hint(&self) -> String {
        match &self.0[..] {
            [] => ", or make a pool that does (`cairn pool create`)".to_owned(),
            pools => format!(", or name a pool that does (--pool {})", pools.join(", ")),
        }
    }
}

fn names(nodes: &[NodeId]) -> String {
    if nodes.is_empty() {
        return "no node".to_owned();
    }
    nodes.iter().map(|node| format!("node-{node}")).collect::<Vec<_>>().join(", ")
}

/// The node that a new volume is best served by: the one that was asked for, or of those with about the most room the one that
/// is home to the fewest. `alive`: nodes that could serve it; where none of the pool's is known to, any.
///
/// # Errors
/// If it cannot lie as wanted.
pub async fn home_for(
    map: &dyn MapStore,
    wanted: &WantedPlace,
    alive: &BTreeSet<NodeId>,
) -> Result<NodeId, CatalogError> {
    let known = Known::of(map.list("").await?)?;
    let pool = known.pool_for(wanted)?;
    let homes = known.homes(&pool, wanted, alive)?;
    let is_gathered = known.placement(&pool, wanted) != VolumePlacement::Spread;
    let mut refused = None;
    for home in &homes {
        match known.table(&pool, *home).filter(|_| is_gathered).transpose() {
            Ok(_) => return Ok(*home),
            Err(why) => refused = Some(why),
        }
    }
    Err(PlaceError::from(refused.expect("there is a home, or none was found")).into())
}

/// Where a new volume lies that is to be served by `home`. A node set is made where it takes one.
///
/// # Errors
/// If it cannot lie as wanted.
pub async fn place_volume(map: &dyn MapStore, wanted: &WantedPlace, home: NodeId) -> Result<VolumePlace, CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let known = Known::of(map.list("").await?)?;
        let pool = known.pool_for(wanted)?;
        let place = |table| VolumePlace { pool: pool.name.clone(), table, home };
        if known.placement(&pool, wanted) == VolumePlacement::Spread {
            return Ok(place(None));
        }
        match known.table(&pool, home).transpose().map_err(PlaceError::from)? {
            None => return Ok(place(None)),
            Some(Choice::Table(table)) => return Ok(place(Some(table))),
            Some(Choice::NewSet { nodes, groups }) => {
                if let Some(table) = make_set(map, &known, &pool, (nodes, groups)).await? {
                    return Ok(place(Some(table)));
                }
            }
        }
    }
    Err(CatalogError::Contended)
}

/// Whether what is in this table lies as wanted, led from `home` where it is gathered: in whichever of the tables of that home,
/// not only in that with the most room.
///
/// # Errors
/// The map's; or there is no such pool.
pub async fn lies_there(
    map: &dyn MapStore,
    table: u32,
    wanted: &WantedPlace,
    home: NodeId,
) -> Result<bool, CatalogError> {
    let known = Known::of(map.list("").await?)?;
    let pool = known.pool_for(wanted)?;
    if known.placement(&pool, wanted) == VolumePlacement::Spread || known.table(&pool, home).is_none() {
        return Ok(table == pool.table);
    }
    let sets = known.view.input(&pool).sets;
    Ok(sets.iter().any(|set| set.table == table && set.nodes.first() == Some(&home)))
}

/// Bytes that a volume may come to hold there, as far as devices have said what is free: what those of its groups have room for,
/// by the copies of a block.
///
/// # Errors
/// The map's, or the pool is gone.
pub async fn room_at(map: &dyn MapStore, place: &VolumePlace) -> Result<u64, CatalogError> {
    let known = Known::of(map.list("").await?)?;
    let pool = known.view.pools.get(&place.pool).ok_or_else(|| CatalogError::NoPool(place.pool.clone()))?;
    let input = known.view.input(pool);
    let set = place.table.and_then(|table| input.sets.iter().find(|set| set.table == table));
    let is_its = |device: &&Device| set.is_none_or(|set| set.nodes.contains(&device.node));
    let free = known.free();
    let devices = known.devices(&input);
    let room: u64 = devices.iter().filter(is_its).map(|device| free[&device.store]).sum();
    Ok(room / u64::from(pool.replicas.max(1)))
}

/// Makes a node set with its table; `None`: something that it was decided by is another by now.
async fn make_set(
    map: &dyn MapStore,
    known: &Known,
    pool: &PoolRecord,
    (nodes, groups): (Vec<NodeId>, Vec<GroupId>),
) -> Result<Option<u32>, CatalogError> {
    let mut numbers = match mutant(Mutant::SetsShareGroups) {
        true => Numbers::free(&map.list("").await?, Numbered::Table)?,
        false => Numbers::free(&known.listing, Numbered::Table)?,
    };
    let table = numbers.take(1);
    let pieces = super::setup::pieces(table, &SlotTable::deal(&groups));
    let set = NodeSetRecord { table, pool: pool.name.clone(), lead: nodes[0], nodes, groups };
    let mut transaction = numbers.put(Transaction::new()).expect_absent(set.key()).put(set.key(), encode(&set));
    for piece in &pieces {
        transaction = transaction.expect_absent(piece.key()).put(piece.key(), encode(piece));
    }
    // Whoever is to leave gets no set.
    let nodes: BTreeSet<NodeId> = set.nodes.iter().copied().collect();
    for key in nodes.iter().flat_map(|node| [keys::node(*node), keys::node_place(*node)]) {
        transaction = transaction.expect(&key, known.followed.revision(&key));
    }
    assert!(
        transaction.compares.len().max(transaction.changes.len()) <= TRANSACTION_OPERATIONS_MAX,
        "a set of few nodes, and a table of few groups"
    );
    match attempt(map, transaction).await? {
        Attempt::Done => Ok(Some(table)),
        Attempt::ReadAgain => Ok(None),
    }
}

/// The map as it was looked at.
struct Known {
    listing: Listing,
    followed: Followed,
    view: View,
}

impl Known {
    fn of(listing: Listing) -> Result<Self, CatalogError> {
        let mut followed = Followed::of(&listing);
        let view = followed.view().cloned().map_err(super::pools::unreadable)?;
        Ok(Self { listing, followed, view })
    }

    fn pool_for(&self, wanted: &WantedPlace) -> Result<PoolRecord, CatalogError> {
        let pools = &self.view.pools;
        let keeping = |asked| pools.values().filter(move |pool| pool.replicas == asked).map(|pool| pool.name.clone());
        if let Some(name) = &wanted.pool {
            let pool = pools.get(name).ok_or_else(|| CatalogError::NoPool(name.clone()))?;
            let other = wanted.replicas.filter(|asked| *asked != pool.replicas);
            let Some(asked) = other else { return Ok(pool.clone()) };
            let (pool, is, others) = (name.clone(), pool.replicas, Others(keeping(asked).collect()));
            return Err(PlaceError::OtherReplicas { pool, is, asked, others }.into());
        }
        let is_meant = |pool: &&PoolRecord| wanted.replicas.is_none_or(|asked| asked == pool.replicas);
        if let Some(pool) = pools.get(DEFAULT_POOL).filter(is_meant) {
            return Ok(pool.clone());
        }
        let meant: Vec<&PoolRecord> = pools.values().filter(is_meant).collect();
        match (&meant[..], wanted.replicas) {
            ([pool], _) => Ok((*pool).clone()),
            ([], None) => Err(CatalogError::NoPool(DEFAULT_POOL.to_owned())),
            ([], Some(asked)) => {
                let pools = pools.values().map(|pool| (pool.name.clone(), pool.replicas)).collect();
                Err(PlaceError::NoneKeeps { asked, pools }.into())
            }
            (several, _) => Err(PlaceError::Several(several.iter().map(|pool| pool.name.clone()).collect()).into()),
        }
    }

    fn placement(&self, pool: &PoolRecord, wanted: &WantedPlace) -> VolumePlacement {
        wanted.placement.unwrap_or_else(|| self.view.rules_of(pool).placement)
    }

    /// The pool's devices that are to hold something.
    fn devices(&self, input: &PoolInput) -> Vec<Device> {
        let class = &input.rules.class;
        let is_its = |device: &&Device| device.duty == Duty::In && (class.is_empty() || device.class == *class);
        input.devices.iter().filter(is_its).cloned().collect()
    }

    /// Nodes that the volume may be at home at, the best first.
    fn homes(
        &self,
        pool: &PoolRecord,
        wanted: &WantedPlace,
        alive: &BTreeSet<NodeId>,
    ) -> Result<Vec<NodeId>, CatalogError> {
        let devices = self.devices(&self.view.input(pool));
        let nodes: BTreeSet<NodeId> = devices.iter().map(|device| device.node).collect();
        let leading: BTreeSet<NodeId> =
            devices.iter().filter(|device| device.may_lead).map(|device| device.node).collect();
        if let Some(node) = wanted.home {
            if !nodes.contains(&node) {
                let (pool, nodes) = (pool.name.clone(), nodes.into_iter().collect());
                return Err(PlaceError::NotOfPool { node, pool, nodes }.into());
            }
            let is_there = alive.contains(&node) && leading.contains(&node);
            return if is_there { Ok(vec![node]) } else { Err(PlaceError::NotThere(node).into()) };
        }
        let of = |nodes: &BTreeSet<NodeId>| -> Vec<NodeId> { nodes.intersection(alive).copied().collect() };
        let best = [of(&leading), of(&nodes), nodes.iter().copied().collect()];
        let candidates = best.into_iter().find(|list| !list.is_empty()).unwrap_or_default();
        if candidates.is_empty() {
            let class = self.view.rules_of(pool).class;
            return Err(PlaceError::from(NoHome::from(crate::placement::PlacementError::NoDevice { class })).into());
        }
        let free = self.free();
        let room = |node: &NodeId| devices.iter().filter(|device| device.node == *node).map(|d| free[&d.store]).sum();
        let rooms: Vec<(NodeId, u64)> = candidates.iter().map(|node| (*node, room(node))).collect();
        Ok(choose::homes(&rooms, &self.homes_taken()?))
    }

    /// How many volumes are at home at each node.
    fn homes_taken(&self) -> Result<BTreeMap<NodeId, usize>, CatalogError> {
        let mut taken = BTreeMap::new();
        for item in self.listing.items.iter().filter(|item| item.key.starts_with(keys::VOLUMES)) {
            let volume: VolumeRecord = decode(&item.key, &item.value)?;
            if volume.state == VolumeState::Online {
                let home = if volume.home == NodeId(0) { volume.head } else { volume.home };
                *taken.entry(home).or_default() += 1;
            }
        }
        Ok(taken)
    }

    /// What is free on each device; one that has not said so yet is taken to be empty.
    fn free(&self) -> BTreeMap<StoreId, u64> {
        let free = |store: &StoreId, size_bytes| self.view.free.get(store).copied().unwrap_or(size_bytes);
        self.view.devices.iter().map(|(store, device)| (*store, free(store, device.size_bytes))).collect()
    }

    /// The table for a volume that is led from `home`; `None`: the pool's, as all of it is on one node.
    fn table(&self, pool: &PoolRecord, home: NodeId) -> Option<Result<Choice, NoHome>> {
        let input = self.view.input(pool);
        let nodes: BTreeSet<NodeId> = self.devices(&input).iter().map(|device| device.node).collect();
        if nodes.len() == 1 && nodes.contains(&home) {
            return None;
        }
        let choosing = choose::Pool {
            devices: &input.devices,
            rules: &input.rules,
            sets: &input.sets,
            groups: &input.groups,
            free: &self.free(),
            held: &self.view.held,
        };
        Some(choose::table_for(&choosing, home))
    }
}

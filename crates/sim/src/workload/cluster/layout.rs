//! What there is: nodes, their stores, the groups and who holds them, which chunk is whose; and how it gets into the map.

use super::profile::Profile;
use super::task::chunk_of;
use crate::workload::Failure;
use cluster::{ClusterRecord, DeviceRecord, DeviceState, GroupRecord, MapStore, NodeRecord, Policy};
use cluster::{Compression, Outcome, PoolRecord, Record, Transaction, encode};
use replication::Owner;
use replication::node::Timing;
use runtime::sim::Random;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use types::{BLOCKS_PER_CHUNK, ChunkId, ClusterId, GroupId, NodeId, StoreId};

pub const CLUSTER: ClusterId = ClusterId(7);
/// The smallest device there is.
pub const DISK_BYTES: u64 = 256 << 20;
/// Where nodes listen for each other.
const PORT: u16 = 4500;
/// Steps in which a member looks for all leaves it has, at most.
const SCRUB_STEPS_MAX: u32 = 8;
/// Records of one transaction: fewer than the map takes.
const RECORDS_AT_ONCE: usize = 64;

/// A formatted device.
#[derive(Clone, Debug)]
pub struct StorePlan {
    pub id: StoreId,
    /// Index of its node.
    pub node: usize,
    pub path: String,
    /// Its shard i is on core (first_core + i) % cores of its node.
    pub first_core: usize,
    /// The one in whose place it comes, if that is lost.
    pub replaces: Option<usize>,
}

/// A placement group.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    pub id: GroupId,
    /// Index of its pool.
    pub pool: usize,
    /// Indexes of its stores, as the map was seen to say last; of those at first the first one leads.
    members: RefCell<Vec<usize>>,
    pub min_in_sync: usize,
}

impl GroupPlan {
    /// Indexes of its stores.
    pub fn members(&self) -> Vec<usize> {
        self.members.borrow().clone()
    }

    /// They are these from now on.
    pub fn set_members(&self, members: Vec<usize>) {
        *self.members.borrow_mut() = members;
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Layout {
    pub addresses: Vec<SocketAddr>,
    pub stores: Vec<StorePlan>,
    pub groups: Vec<GroupPlan>,
    pub chunks_per_group: u32,
    pub blocks_per_chunk: u32,
    /// Chunks of each group behind those, of which all blocks are used.
    pub hoard_chunks: u32,
    /// The same on all nodes.
    pub timing: Timing,
}

/// The id of the node with this index.
pub fn node_id(index: usize) -> NodeId {
    NodeId(index as u32 + 1)
}

impl Layout {
    /// Members of a group are on different nodes; primaries are dealt round.
    pub fn draw(profile: &Profile, nodes: impl Iterator<Item = IpAddr>, random: &Random) -> Self {
        let mut stores = Vec::new();
        for (node, devices) in profile.devices.iter().enumerate() {
            for device in 0..*devices {
                let id = StoreId(0xc0de_0000 + stores.len() as u128 + 1);
                stores.push(StorePlan {
                    id,
                    node,
                    path: format!("disk-{device}"),
                    first_core: device % profile.cores,
                    replaces: None,
                });
            }
        }
        // A node that comes later has nothing yet.
        let group = |number: u32| {
            let pool = number as usize % profile.pools.len();
            let first = number as usize % profile.nodes;
            let mut others: Vec<usize> = (0..profile.nodes).filter(|node| *node != first).collect();
            let mut members = vec![store_on(&stores, first, random)];
            while members.len() < profile.pools[pool].replicas {
                let node = others.swap_remove(random.below(others.len() as u64) as usize);
                members.push(store_on(&stores, node, random));
            }
            let members = RefCell::new(members);
            GroupPlan { id: GroupId(number + 1), pool, members, min_in_sync: profile.pools[pool].min_in_sync }
        };
        let defaults = Timing::default();
        // Who was away for a moment comes back by entries, or chunk by chunk.
        let kept_bytes = [0, 32 << 10, defaults.kept_bytes][random.below(3) as usize];
        let scrub = if random.one_in(4) { Duration::from_millis(100) } else { defaults.scrub };
        Self {
            timing: Timing { kept_bytes, scrub, ..defaults },
            addresses: nodes.map(|ip| SocketAddr::new(ip, PORT)).collect(),
            groups: (0..profile.groups).map(group).collect(),
            stores,
            chunks_per_group: profile.chunks_per_group,
            blocks_per_chunk: profile.blocks_per_chunk,
            hoard_chunks: profile.hoard_chunks,
        }
    }

    /// The chunks of a group, by the group's index, in which clients meet.
    pub fn chunks_of(&self, group: usize) -> impl Iterator<Item = ChunkId> + use<> {
        self.numbered(group, 0..self.chunks_per_group)
    }

    /// Those that fill the devices.
    pub fn hoard_of(&self, group: usize) -> impl Iterator<Item = ChunkId> + use<> {
        self.numbered(group, self.chunks_per_group..self.chunks_per_group + self.hoard_chunks)
    }

    /// All of them, each with the number of its blocks that are used.
    pub fn all_chunks_of(&self, group: usize) -> impl Iterator<Item = (ChunkId, u32)> + use<> {
        let blocks = self.blocks_per_chunk;
        let busy = self.chunks_of(group).map(move |chunk| (chunk, blocks));
        busy.chain(self.hoard_of(group).map(|chunk| (chunk, BLOCKS_PER_CHUNK)))
    }

    fn numbered(&self, group: usize, numbers: std::ops::Range<u32>) -> impl Iterator<Item = ChunkId> + use<> {
        let groups = self.groups.len() as u32;
        numbers.map(move |number| ChunkId(group as u32 + number * groups))
    }

    /// Whether a chunk is one of those that fill the devices.
    pub fn is_hoard(&self, chunk: ChunkId) -> bool {
        chunk.0 / self.groups.len() as u32 >= self.chunks_per_group
    }

    /// Which group holds a chunk.
    pub fn owner(&self) -> Owner {
        let groups = self.groups.len() as u32;
        Arc::new(move |family, chunk| Some(GroupId(chunk_of(family, chunk).0 % groups + 1)))
    }

    /// Longest that it takes until each member has read all that it holds, begun at any moment.
    pub fn scrub_time(&self) -> Duration {
        let leaves = self.groups.len() as u32 * (self.chunks_per_group + self.hoard_chunks);
        // Of each walk: a pause before every leaf, and some before steps that find none.
        self.timing.scrub * (leaves + SCRUB_STEPS_MAX) * 2
    }

    /// A store for the place of another one, whose device will be lost.
    pub fn add_spare(&mut self, store: usize) {
        let before = &self.stores[store];
        let id = StoreId(0xc0de_0000 + self.stores.len() as u128 + 1);
        let path = format!("{}-anew", before.path);
        self.stores.push(StorePlan { id, path, replaces: Some(store), ..before.clone() });
    }

    /// The store that comes in the place of this one.
    pub fn spare_of(&self, store: usize) -> Option<usize> {
        self.stores.iter().position(|spare| spare.replaces == Some(store))
    }

    /// Index of the store with this id.
    pub fn store_index(&self, id: StoreId) -> Option<usize> {
        self.stores.iter().position(|store| store.id == id)
    }

    /// Indexes of the stores that a node has at first.
    pub fn stores_of(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let is_there = move |(_, store): &(usize, &StorePlan)| store.node == node && store.replaces.is_none();
        self.stores.iter().enumerate().filter(is_there).map(|(index, _)| index)
    }

    /// Writes all records into an empty map: what whoever makes a cluster does.
    pub async fn make_map(&self, profile: &Profile, map: &dyn MapStore) -> Result<(), Failure> {
        let mut records: Vec<(String, Vec<u8>)> = Vec::new();
        add(
            &mut records,
            &ClusterRecord { id: CLUSTER, cluster_version: 1, finished: None, created_at_ns: 1, replicas: None },
        );
        for node in 0..profile.nodes {
            add(&mut records, &self.node_record(node));
            self.stores_of(node).for_each(|store| add(&mut records, &self.device_record(store)));
        }
        for (index, pool) in profile.pools.iter().enumerate() {
            add(&mut records, &pool_record(index, pool.replicas, pool.min_in_sync));
        }
        for group in &self.groups {
            add(&mut records, &self.group_record(group));
        }
        for some in records.chunks(RECORDS_AT_ONCE) {
            let put = |transaction: Transaction, (key, value): &(String, Vec<u8>)| transaction.put(key, value.clone());
            let outcome = map.transact(some.iter().fold(Transaction::new(), put)).await;
            if !matches!(outcome, Ok(Outcome::Committed(_))) {
                return Err(Failure::new("setup", format!("the map of a new cluster: {outcome:?}")));
            }
        }
        Ok(())
    }

    /// What the map is told of a node.
    pub fn node_record(&self, node: usize) -> NodeRecord {
        NodeRecord { id: node_id(node), address: self.addresses[node].to_string() }
    }

    /// What the map is told of a device.
    pub fn device_record(&self, store: usize) -> DeviceRecord {
        let store = &self.stores[store];
        DeviceRecord {
            store: store.id,
            node: node_id(store.node),
            path: store.path.clone(),
            size_bytes: DISK_BYTES,
            state: DeviceState::Active,
        }
    }

    fn group_record(&self, group: &GroupPlan) -> GroupRecord {
        let members: Vec<StoreId> = group.members.borrow().iter().map(|store| self.stores[*store].id).collect();
        GroupRecord::begun_with(group.id, (1, pool_name(group.pool)), members, group.min_in_sync as u32)
    }
}

fn add(records: &mut Vec<(String, Vec<u8>)>, record: &impl Record) {
    records.push((record.key(), encode(record)));
}

fn pool_name(index: usize) -> String {
    format!("pool-{index}")
}

fn pool_record(index: usize, replicas: usize, min_in_sync: usize) -> PoolRecord {
    PoolRecord {
        name: pool_name(index),
        policy: Policy::Replicated,
        replicas: replicas as u32,
        min_in_sync: min_in_sync as u32,
        table: 1,
        write_cache: false,
        compression: Compression::Off,
    }
}

/// Some store of a node.
fn store_on(stores: &[StorePlan], node: usize, random: &Random) -> usize {
    let here: Vec<usize> = (0..stores.len()).filter(|store| stores[*store].node == node).collect();
    here[random.below(here.len() as u64) as usize]
}

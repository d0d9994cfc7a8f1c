//! A simulated cluster: nodes of one store each, and groups that have a member on every one of them.
#![allow(dead_code)] // Each test file uses its part.

use cluster::{GroupRecord, MapStore, NodeRecord, Record, SimMap, Transaction, encode, keys};
use replication::node::{Node, NodeConfig, Timing};
use replication::wire::{ClusterKey, Protocol};
use replication::{Access, GroupError, GroupRef, Place, Sought, Stamp, Standing};
use runtime::sim::{DiskOptions, NodeOptions, SimDisk, SimNode, World};
use runtime::{Device, IoBuf, SharedBuf};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::format::LayerRecord;
use store::{BlockCoding, FormatOptions, Shard, Store, Want};
use types::*;

const DISK: &str = "disk";
const SPARE_DISK: &str = "spare";
pub const MIB: u64 = 1 << 20;
pub const CLUSTER: ClusterId = ClusterId(7);
pub const KEY: ClusterKey = ClusterKey([7; 32]);
const PORT: u16 = 4421;
pub const LAYER: LayerId = LayerId(7);
/// Of another family, whose chunks are the other group's.
pub const OTHER_LAYER: LayerId = LayerId(8);
pub const OTHER_FAMILY: FamilyId = FamilyId(4);
pub const VOLUME: VolumeId = VolumeId(1);
pub const GROUP: GroupId = GroupId(1);
/// On the same shard.
pub const OTHER: GroupId = GroupId(3);

/// The rule is kept; and it is not where one of these bugs is in the code.
#[cfg(not(feature = "mutants"))]
pub fn holds(rule: impl Fn(), _broken_by: &[Mutant]) {
    rule();
}

/// See above. One at a time: a bug is on for the whole process.
#[cfg(feature = "mutants")]
pub fn holds<Rule: Fn()>(rule: Rule, broken_by: &[Mutant]) {
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let name = std::any::type_name::<Rule>().rsplit("::").next().unwrap_or_default();
    for mutant in broken_by {
        assert!(mutant.is_caught(name, 0..1, |_| rule()), "{mutant:?} is not noticed");
    }
}

/// A process on a node.
pub type Process = Rc<RefCell<Option<Rc<Node>>>>;

pub struct Cluster {
    /// Whose a chunk is of a layer that nobody was told of, nobody knows; else it is the first group's.
    pub by_family: Cell<bool>,
    /// Of this family no node that starts from now on has heard.
    pub unheard: Cell<Option<FamilyId>>,
    pub world: World,
    pub map: Arc<SimMap>,
    pub nodes: Vec<SimNode>,
    pub disks: Vec<SimDisk>,
    processes: RefCell<Vec<Process>>,
    /// What nodes speak that start from now on, where it is not what this build does.
    pub speaks: RefCell<BTreeMap<usize, Protocol>>,
    /// Nodes that have a second store.
    with_spare: RefCell<Vec<usize>>,
}

pub fn store_of(index: usize) -> StoreId {
    StoreId(index as u128 + 1)
}

impl Cluster {
    /// `members` nodes, all of them members of one group that node 0 is to lead; nobody is started.
    pub fn new(seed: u64, members: usize, min_in_sync: u32) -> Self {
        Self::with_disks(seed, &vec![256 * MIB; members], min_in_sync)
    }

    /// The same, each with a disk of this size.
    pub fn with_disks(seed: u64, sizes: &[u64], min_in_sync: u32) -> Self {
        let members = sizes.len();
        let world = World::new(seed);
        let map = SimMap::new();
        let nodes: Vec<_> = (0..members).map(|_| world.add_node(2, NodeOptions::default())).collect();
        let disk = |(node, size): (&SimNode, &u64)| node.add_disk(DISK, *size, DiskOptions::default());
        let disks: Vec<_> = nodes.iter().zip(sizes).map(disk).collect();
        let (by_family, unheard) = (Cell::new(false), Cell::new(None));
        let (processes, with_spare) = (RefCell::default(), RefCell::default());
        let speaks = RefCell::default();
        let this = Self { by_family, unheard, world, map, nodes, disks, processes, speaks, with_spare };
        for index in 0..members {
            this.run(index, format(DISK, store_of(index)));
            let record = NodeRecord { id: NodeId(index as u32 + 1), address: this.address(index).to_string() };
            this.put(&record);
            this.processes.borrow_mut().push(Process::default());
        }
        this.put(&group_of(GROUP, members, min_in_sync));
        this
    }

    pub fn address(&self, index: usize) -> SocketAddr {
        SocketAddr::new(self.nodes[index].ip(), PORT)
    }

    /// Gives a node a second store, that is a member of nothing: before it is started.
    pub fn add_spare(&self, index: usize) {
        self.nodes[index].add_disk(SPARE_DISK, 256 * MIB, DiskOptions::default());
        self.run(index, format(SPARE_DISK, spare_of(index)));
        self.with_spare.borrow_mut().push(index);
    }

    /// A second group of the same members, on the same shard: before anybody is started.
    pub fn add_other_group(&self, min_in_sync: u32) {
        self.put(&group_of(OTHER, self.nodes.len(), min_in_sync));
    }

    pub fn put<R: Record>(&self, record: &R) {
        let (map, key, value) = (self.map.clone(), record.key(), encode(record));
        self.run(0, async move { map.transact(Transaction::new().put(key, value)).await.map(drop) })
            .expect("it takes that");
    }

    /// The group's record in the map.
    pub fn record(&self) -> GroupRecord {
        self.record_of(GROUP)
    }

    /// A group's record in the map.
    pub fn record_of(&self, group: GroupId) -> GroupRecord {
        let map = self.map.clone();
        let found = self.run(0, async move { cluster::get::<GroupRecord>(&*map, &keys::group(group)).await });
        found.expect("the map answers").expect("it is there").record
    }

    pub fn run<T: 'static>(&self, index: usize, future: impl Future<Output = T> + 'static) -> T {
        self.world.run_on(&self.nodes[index], 0, future).expect("the world goes on")
    }

    /// Starts the process of a node, and does not wait for it.
    pub fn start(&self, index: usize) {
        let (process, by_family, unheard) = (Process::default(), self.by_family.get(), self.unheard.get());
        self.processes.borrow_mut()[index] = process.clone();
        let config = NodeConfig {
            cluster: CLUSTER,
            key: KEY,
            node: NodeId(index as u32 + 1),
            protocol: self.speaks.borrow().get(&index).copied().unwrap_or_else(Protocol::of_this_build),
            address: Some(self.address(index)),
            cores: self.nodes[index].cores(),
            map: self.map.handle_for(NodeId(index as u32 + 1)),
            timing: Timing::default(),
            owner: Arc::new(move |family, _| match family {
                OTHER_FAMILY => Some(OTHER),
                FamilyId(0) if by_family => None,
                family if Some(family) == unheard => None,
                _ => Some(GROUP),
            }),
        };
        let spare = self.with_spare.borrow().contains(&index).then_some(SPARE_DISK);
        self.nodes[index].spawn(0, async move {
            let node = Node::start(config).await.expect("it listens");
            let mut stores = Vec::new();
            for disk in std::iter::once(DISK).chain(spare) {
                stores.push((open(&node, disk).await, 0));
            }
            node.begin(stores).await.expect("the map answers");
            *process.borrow_mut() = Some(Rc::new(node));
        });
    }

    /// What runs on a node says of itself.
    pub fn of_node<T: 'static>(&self, index: usize, of: impl FnOnce(&Node) -> T + 'static) -> T {
        let process = self.processes.borrow()[index].clone();
        self.run(index, async move { of(process.borrow().as_ref().expect("it is up")) })
    }

    pub fn crash(&self, index: usize) {
        self.nodes[index].crash();
        self.processes.borrow_mut()[index] = Process::default();
        self.nodes[index].start();
    }

    /// What runs on a node; nothing while that starts.
    pub fn process(&self, index: usize) -> Process {
        self.processes.borrow()[index].clone()
    }

    /// Asks the group's member on a node; nothing while that starts.
    pub fn ask<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        index: usize,
        ask: impl FnOnce(GroupRef) -> F + Send + 'static,
    ) -> Option<T> {
        self.ask_of(index, GROUP, ask)
    }

    /// The same of any group.
    pub fn ask_of<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        index: usize,
        group: GroupId,
        ask: impl FnOnce(GroupRef) -> F + Send + 'static,
    ) -> Option<T> {
        self.ask_all(index, [group], move |[group]| ask(group))
    }

    /// The same of several, in one turn.
    pub fn ask_all<const N: usize, T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        index: usize,
        groups: [GroupId; N],
        ask: impl FnOnce([GroupRef; N]) -> F + Send + 'static,
    ) -> Option<T> {
        let process = self.processes.borrow()[index].clone();
        let asked = async move {
            let node = process.borrow().clone()?;
            let on_core = move |core: Rc<replication::node::CoreGroups>| {
                let found: Vec<_> = groups.iter().filter_map(|group| core.group(store_of(index), *group)).collect();
                Box::pin(async move {
                    match <[GroupRef; N]>::try_from(found) {
                        Ok(groups) => Some(ask(groups).await),
                        Err(_) => None,
                    }
                }) as std::pin::Pin<Box<dyn Future<Output = Option<T>>>>
            };
            // Group 1 is on shard 1 where there are several, and that on the second core.
            node.on_core(1, on_core).await
        };
        self.run(index, asked)
    }

    /// Asks what a head on the second core of a node has of the group; nothing while the node starts.
    pub fn at_head<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        index: usize,
        ask: impl FnOnce(Rc<Access>) -> F + Send + 'static,
    ) -> Option<T> {
        let process = self.processes.borrow()[index].clone();
        let asked = async move {
            let node = process.borrow().clone()?;
            let on_core = move |core: Rc<replication::node::CoreGroups>| {
                let access = core.access(GROUP);
                Box::pin(async move { ask(access).await }) as std::pin::Pin<Box<dyn Future<Output = T>>>
            };
            Some(node.on_core(1, on_core).await)
        };
        self.run(index, asked)
    }

    pub fn standing(&self, index: usize) -> Option<Standing> {
        self.ask(index, |group| async move { group.standing() })
    }

    pub fn write(&self, index: usize, chunk: u32, byte: u8) -> Option<Result<(), GroupError>> {
        self.write_blocks(index, chunk, 3, 1, byte)
    }

    /// Lets the group know the layer that is written to.
    pub fn tell_layer(&self, index: usize) -> Option<Result<(), GroupError>> {
        let record = layer_record(LAYER, FamilyId(3));
        self.ask(index, move |group| async move { group.tell_layers(&[record]).await })
    }

    /// The same of the other group.
    pub fn tell_other_layer(&self, index: usize) -> Option<Result<(), GroupError>> {
        let record = layer_record(OTHER_LAYER, OTHER_FAMILY);
        self.ask_of(index, OTHER, move |group| async move { group.tell_layers(&[record]).await })
    }

    /// Writes a block of the other group's.
    pub fn write_other(&self, index: usize, chunk: u32, block: u32, byte: u8) -> Option<Result<(), GroupError>> {
        self.ask_of(index, OTHER, move |group| async move {
            let place = Place { layer: OTHER_LAYER, chunk: ChunkId(chunk), range: BlockRange::new(block, 1) };
            let placed = group.write(stamp(), place, block_of(byte), BlockCoding::PLAIN).await?;
            group.wait_committed(placed).await.map(drop)
        })
    }

    /// Writes all of a chunk of the other group's.
    pub fn fill_other(&self, index: usize, chunk: u32) -> Option<Result<(), GroupError>> {
        self.ask_of(index, OTHER, move |group| async move {
            for first in (0..BLOCKS_PER_CHUNK).step_by(32) {
                let place = Place { layer: OTHER_LAYER, chunk: ChunkId(chunk), range: BlockRange::new(first, 32) };
                let mut bytes = IoBuf::new(place.range.bytes());
                bytes.fill(9);
                let placed = group.write(stamp(), place, bytes.freeze(), BlockCoding::PLAIN).await?;
                group.wait_committed(placed).await?;
            }
            Ok(())
        })
    }

    /// Deletes chunks of the other group's layer.
    pub fn delete_other(&self, index: usize, chunks: Range<u32>) -> Option<Result<(), GroupError>> {
        self.ask_of(index, OTHER, move |group| async move {
            let keeper = Stamp::of_keeper(OTHER_FAMILY, VolumeEpoch(1));
            let placed = group.delete_chunks(keeper, OTHER_LAYER, chunks.map(ChunkId).collect()).await?;
            group.wait_committed(placed).await.map(drop)
        })
    }

    pub fn write_blocks(
        &self,
        index: usize,
        chunk: u32,
        first: u32,
        count: u32,
        byte: u8,
    ) -> Option<Result<(), GroupError>> {
        self.ask(index, move |group| async move {
            let place = Place { layer: LAYER, chunk: ChunkId(chunk), range: BlockRange::new(first, count) };
            let mut bytes = IoBuf::new(place.range.bytes());
            bytes.fill(byte);
            let placed = group.write(stamp(), place, bytes.freeze(), BlockCoding::PLAIN).await?;
            group.wait_committed(placed).await.map(drop)
        })
    }

    /// A write that has its place and is waited for by nobody.
    pub fn submit(&self, index: usize, chunk: u32, block: u32, byte: u8) -> Option<Result<(), GroupError>> {
        self.ask(index, move |group| async move {
            let place = Place { layer: LAYER, chunk: ChunkId(chunk), range: BlockRange::new(block, 1) };
            let mut bytes = IoBuf::new(place.range.bytes());
            bytes.fill(byte);
            group.write(stamp(), place, bytes.freeze(), BlockCoding::PLAIN).await.map(drop)
        })
    }

    /// Deletes chunks of the layer that is written to.
    pub fn delete(&self, index: usize, chunks: Range<u32>) -> Option<Result<(), GroupError>> {
        self.ask(index, move |group| async move {
            let placed = group
                .delete_chunks(Stamp::of_keeper(FamilyId(3), VolumeEpoch(1)), LAYER, chunks.map(ChunkId).collect())
                .await?;
            group.wait_committed(placed).await.map(drop)
        })
    }

    /// Whether a node's store has stopped.
    pub fn has_failed(&self, index: usize) -> bool {
        let process = self.processes.borrow()[index].clone();
        let asked = async move {
            let node = process.borrow().clone().expect("it is up");
            let of_core = |core: Rc<replication::node::CoreGroups>| {
                let found = core.shards().iter().any(|shard| shard.store().store().failed().is_some());
                Box::pin(std::future::ready(found)) as std::pin::Pin<Box<dyn Future<Output = bool>>>
            };
            node.on_core(1, of_core).await
        };
        self.run(index, asked)
    }

    /// What one node says does not reach another, from now on.
    pub fn cut(&self, from: usize, to: usize) {
        self.world.cut(&self.nodes[from], &self.nodes[to]);
    }

    pub fn heal(&self, from: usize, to: usize) {
        self.world.heal(&self.nodes[from], &self.nodes[to]);
    }

    /// Until this is so.
    pub fn wait_until(&self, what: &str, patience: Duration, is_so: impl Fn(&Self) -> bool) {
        let until = self.world.now() + patience;
        while !is_so(self) {
            assert!(self.world.now() < until, "{what}: {:#?} {:#?}", self.record(), self.told());
            self.world.run_for(Duration::from_millis(20));
        }
    }

    pub fn read(&self, index: usize, chunk: u32) -> Option<Result<u8, GroupError>> {
        self.read_of(index, &[LAYER], chunk)
    }

    /// The same through layers, newest first.
    pub fn read_of(&self, index: usize, layers: &'static [LayerId], chunk: u32) -> Option<Result<u8, GroupError>> {
        self.ask(index, move |group| async move {
            let (reader, _) = group.reader(stamp()).await?;
            let sought = Sought { layers, chunk: ChunkId(chunk), range: BlockRange::new(3, 1), want: Want::Plain };
            let (read, buf) = reader.read(sought, IoBuf::new(BLOCK_BYTES), &mut Vec::new()).await;
            read.map(|_| buf[17])
        })
    }

    /// Two reads that are let in at once.
    pub fn read_both(&self, index: usize, chunks: [u32; 2]) -> Option<[Result<u8, GroupError>; 2]> {
        self.ask(index, move |group| async move {
            let read = async |chunk| {
                let (reader, _) = group.reader(stamp()).await?;
                let range = BlockRange::new(3, 1);
                let sought = Sought { layers: &[LAYER], chunk: ChunkId(chunk), range, want: Want::Plain };
                let (read, buf) = reader.read(sought, IoBuf::new(BLOCK_BYTES), &mut Vec::new()).await;
                read.map(|_| buf[17])
            };
            let mut reads = chunks.map(|chunk| Box::pin(read(chunk)));
            let mut found = [None, None];
            std::future::poll_fn(|cx| {
                for (read, found) in reads.iter_mut().zip(&mut found) {
                    if found.is_none()
                        && let std::task::Poll::Ready(is) = read.as_mut().poll(cx)
                    {
                        *found = Some(is);
                    }
                }
                if found.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            found.map(|found| found.expect("both are read"))
        })
    }

    /// The contents of all of a node's shards.
    pub fn digests(&self, index: usize) -> Vec<u128> {
        self.of_shards(index, store::Shard::contents_digest)
    }

    /// What there is to say of each of a node's shards.
    pub fn of_shards<T: Send + 'static>(
        &self,
        index: usize,
        of: impl Fn(&store::Shard) -> T + Clone + Send + 'static,
    ) -> Vec<T> {
        let process = self.processes.borrow()[index].clone();
        let asked = async move {
            let node = process.borrow().clone().expect("it is up");
            let mut told = Vec::new();
            for core in 0..2 {
                let of = of.clone();
                let of_core = move |core: Rc<replication::node::CoreGroups>| {
                    let found: Vec<T> = core.shards().iter().map(|shard| of(shard.store())).collect();
                    Box::pin(std::future::ready(found)) as std::pin::Pin<Box<dyn Future<Output = Vec<T>>>>
                };
                told.extend(node.on_core(core, of_core).await);
            }
            told
        };
        self.run(index, asked)
    }

    /// The node that leads and serves within some time.
    pub fn wait_for_primary(&self, of: &[usize], patience: Duration) -> usize {
        let until = self.world.now() + patience;
        loop {
            let serves = |index: &usize| self.standing(*index).is_some_and(|standing| standing.serves);
            if let Some(index) = of.iter().copied().find(serves) {
                return index;
            }
            assert!(self.world.now() < until, "nobody serves: {:#?}", self.told());
            self.world.run_for(Duration::from_millis(20));
        }
    }

    /// What all say.
    pub fn told(&self) -> Vec<Option<Standing>> {
        (0..self.nodes.len()).map(|index| self.nodes[index].is_up().then(|| self.standing(index)).flatten()).collect()
    }

    /// Until all are in sync.
    pub fn wait_for_all(&self, patience: Duration) {
        let until = self.world.now() + patience;
        while self.record().in_sync.len() < self.nodes.len() {
            assert!(self.world.now() < until, "not all are in sync: {:#?}", self.told());
            self.world.run_for(Duration::from_millis(100));
        }
    }
}

fn group_of(id: GroupId, members: usize, min_in_sync: u32) -> GroupRecord {
    let stores: Vec<_> = (0..members).map(store_of).collect();
    GroupRecord::begun_with(id, (1, "default".to_owned()), stores, min_in_sync)
}

pub fn layer_record(layer: LayerId, family: FamilyId) -> LayerRecord {
    LayerRecord { layer, parent: LayerId(0), family, created_at_ns: 1, retain_until_ns: 0, key: KeyId(0) }
}

/// A block of one byte.
pub fn block_of(byte: u8) -> SharedBuf {
    let mut bytes = IoBuf::new(BLOCK_BYTES);
    bytes.fill(byte);
    bytes.freeze()
}

pub fn stamp() -> Stamp<'static> {
    Stamp::new(VOLUME, VolumeEpoch(1), &[])
}

/// The second store of a node.
pub fn spare_of(index: usize) -> StoreId {
    StoreId(index as u128 + 101)
}

thread_local! {
    /// What was found written down of the group's member in a store that was opened last.
    static WRITTEN_DOWN: RefCell<BTreeMap<StoreId, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Whether it was written down of the group's member in this store, when that was opened last, that it lacks nothing (MemberState: a
/// format, then whether it is whole).
pub fn was_written_down_as_whole(store: StoreId) -> bool {
    WRITTEN_DOWN.with_borrow(|all| all.get(&store).is_none_or(|state| state[1] == 1))
}

/// Opens a disk's shards, in turn on the node's two cores.
async fn open(node: &Node, disk: &'static str) -> Arc<Store> {
    let device = Device::open(Path::new(disk)).await.expect("it is there");
    let store = Store::open(&device).await.expect("it opens");
    for shard in 0..store.shard_count() {
        let store = store.clone();
        node.on_core(usize::from(shard) % 2, move |core| {
            Box::pin(async move {
                let device = Device::open(Path::new(disk)).await.expect("it is there");
                let (shard, recovery) = Shard::open(&store, device, ShardIndex(shard)).await.expect("the shard opens");
                let of_group = recovery.groups.iter().find(|found| found.group == GROUP);
                if let Some(state) = of_group.and_then(|found| found.member_state.clone()) {
                    WRITTEN_DOWN.with_borrow_mut(|all| all.insert(store.store_id(), state));
                }
                core.add_shard(shard, store.store_id(), recovery);
            })
        })
        .await;
    }
    store
}

async fn format(disk: &str, store: StoreId) {
    let device = Device::open(Path::new(disk)).await.expect("it is there");
    let options =
        FormatOptions { cluster: CLUSTER, store, hash_key: [42; 32], segment_size_bytes: None, shard_count: Some(2) };
    store::format(&device, &options).await.expect("it can be formatted");
}

pub const SOON: Duration = Duration::from_secs(10);

pub fn three() -> Cluster {
    let cluster = Cluster::new(1, 3, 2);
    (0..3).for_each(|index| cluster.start(index));
    cluster
}

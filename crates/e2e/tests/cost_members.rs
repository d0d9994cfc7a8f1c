//! Counted cost of a group with three members: three nodes on one core of this process, each with a device in memory and
//! connections of its own to the others over loopback, so that what is counted is what all three spend together.

use cluster::{GroupRecord, MapStore, NodeRecord, Record, SimMap, Transaction, encode};
use e2e::directory::TemporaryDirectory;
use replication::node::{Node, NodeConfig, Timing};
use replication::{GroupRef, Place, Sought, Stamp};
use runtime::uring::{Cores, Options, counters};
use runtime::{CoreHandle, Device, IoBuf, SharedBuf};
use std::cell::Cell;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use store::format::LayerRecord;
use store::{BlockCoding, FormatOptions, Shard, Store, Want};
use types::*;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Counts of other tests would take turns with ours on few processors.
static ALONE: Mutex<()> = Mutex::new(());

const MEMBERS: usize = 3;
const CLUSTER: ClusterId = ClusterId(7);
const GROUP: GroupId = GroupId(1);
const LAYER: LayerId = LayerId(7);
/// So large that few passes fall into what is counted.
const DEVICE_BYTES: u64 = 4 << 30;
const CHUNKS: u64 = 4;
const BLOCKS_PER_CHUNK: u64 = 256;
/// Requests of one count.
const COUNT: u64 = 1000;
/// Counts of the same: beats, looks and passes fall into some of them, so the middle one is taken, and of allocations the
/// least: what a request takes, each of them shows.
const COUNTS: usize = 9;
/// Until everything has its final size.
const WARM_UP: u64 = 20_000;
/// Nobody leads for so long: then something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Read,
}

/// What all nodes have spent so far, or for 1,000 requests.
#[derive(Clone, Copy, Debug)]
struct Spent {
    /// Messages of a group to another member.
    messages: u64,
    allocations: u64,
    /// `io_uring_enter`, and operations that are done at once by a call of their own.
    system_calls: u64,
    /// Written to all three devices.
    device_bytes: u64,
    /// Done by all three devices.
    syncs: u64,
}

/// Three nodes that have a member each of one group.
struct Members {
    nodes: Vec<Node>,
    primary: GroupRef,
}

fn store_of(index: usize) -> StoreId {
    StoreId(index as u128 + 1)
}

fn stamp() -> Stamp<'static> {
    Stamp::new(VolumeId(1), VolumeEpoch(1), &[])
}

async fn put(map: &SimMap, record: &impl Record) {
    map.transact(Transaction::new().put(record.key(), encode(record))).await.expect("the map takes that");
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it has an address")
}

impl Members {
    async fn start(directory: PathBuf, core: CoreHandle) -> Self {
        let map = SimMap::new();
        let stores: Vec<_> = (0..MEMBERS).map(store_of).collect();
        let addresses: Vec<_> = stores.iter().map(|_| free_address()).collect();
        for (index, address) in addresses.iter().enumerate() {
            put(&map, &NodeRecord { id: NodeId(index as u32 + 1), address: address.to_string() }).await;
        }
        put(&map, &GroupRecord::begun_with(GROUP, (1, "default".to_owned()), stores, 2)).await;
        let mut nodes = Vec::new();
        for (index, address) in addresses.into_iter().enumerate() {
            let config = NodeConfig {
                cluster: CLUSTER,
                key: replication::wire::ClusterKey([1; 32]),
                node: NodeId(index as u32 + 1),
                protocol: replication::wire::Protocol::of_this_build(),
                address: Some(address),
                cores: vec![core.clone()],
                map: map.handle_for(NodeId(index as u32 + 1)),
                timing: Timing::default(),
                owner: Arc::new(|_, _| Some(GROUP)),
            };
            let path = directory.join(format!("device-{index}"));
            nodes.push(start_node(&path, store_of(index), config).await);
        }
        let primary = serving(&nodes[0]).await;
        let layer = LayerRecord {
            layer: LAYER,
            parent: LayerId(0),
            family: FamilyId(3),
            created_at_ns: 1,
            retain_until_ns: 0,
            key: KeyId(0),
        };
        primary.tell_layers(&[layer]).await.expect("the group takes a layer");
        Self { nodes, primary }
    }

    fn spent(&self) -> Spent {
        let cores = || self.nodes.iter().map(Node::first_core);
        let shards = cores().flat_map(|core| core.shards());
        let counted = counters();
        Spent {
            messages: cores().map(|core| core.messages_sent()).sum(),
            allocations: counting::on_this_thread(),
            system_calls: counted.enters + counted.inline_operations,
            device_bytes: shards.map(|shard| shard.store().statistics().appended_bytes).sum(),
            syncs: counted.syncs,
        }
    }

    /// Sends so many requests, `depth` of them at a time.
    async fn run(&self, kind: Kind, depth: u64, count: u64) {
        let left = Rc::new(Cell::new(count));
        let (done, mut all_done) = runtime::channel::cross(depth as usize);
        for _ in 0..depth {
            let (left, done, group) = (left.clone(), done.clone(), self.primary.clone());
            runtime::spawn(async move {
                let mut payload = IoBuf::new(BLOCK_BYTES);
                payload.fill(7);
                let payload = payload.freeze();
                let (mut buf, mut sums) = (IoBuf::new(BLOCK_BYTES), Vec::with_capacity(1));
                while left.get() > 0 {
                    left.set(left.get() - 1);
                    // A step that has no divisor in common with the number of blocks.
                    let at = left.get() * 419 % (CHUNKS * BLOCKS_PER_CHUNK);
                    match kind {
                        Kind::Write => write(&group, at, &payload).await,
                        Kind::Read => buf = read(&group, at, buf, &mut sums).await,
                    }
                }
                done.try_send(()).expect("there is room for each lane");
            });
        }
        for _ in 0..depth {
            all_done.recv().await.expect("lanes end by themselves");
        }
    }
}

fn place_of(at: u64) -> (ChunkId, BlockRange) {
    (ChunkId((at / BLOCKS_PER_CHUNK) as u32), BlockRange::new((at % BLOCKS_PER_CHUNK) as u32, 1))
}

async fn write(group: &GroupRef, at: u64, payload: &SharedBuf) {
    let (chunk, range) = place_of(at);
    let place = Place { layer: LAYER, chunk, range };
    let placed = group.write(stamp(), place, payload.clone(), BlockCoding::PLAIN).await.expect("a place");
    group.wait_committed(placed).await.expect("committed");
}

async fn read(group: &GroupRef, at: u64, buf: IoBuf, sums: &mut Vec<u32>) -> IoBuf {
    let (chunk, range) = place_of(at);
    sums.clear();
    let (reader, _) = group.reader(stamp()).await.expect("the primary reads");
    let (read, buf) = reader.read(Sought { layers: &[LAYER], chunk, range, want: Want::Plain }, buf, sums).await;
    read.expect("it was written");
    assert_eq!(buf[BLOCK_BYTES - 1], 7);
    buf
}

async fn start_node(device: &Path, store: StoreId, config: NodeConfig) -> Node {
    let file = std::fs::File::create_new(device).expect("a new device file");
    file.set_len(DEVICE_BYTES).expect("room for a sparse file");
    let device = Device::open(device).await.expect("it opens");
    let options =
        FormatOptions { cluster: CLUSTER, store, hash_key: [42; 32], segment_size_bytes: None, shard_count: Some(1) };
    store::format(&device, &options).await.expect("it can be formatted");
    let store = Store::open(&device).await.expect("it opens");
    let node = Node::start(config).await.expect("it listens");
    let (shard, recovery) = Shard::open(&store, device, ShardIndex(0)).await.expect("the shard opens");
    node.first_core().add_shard(shard, store.store_id(), recovery);
    node.begin(vec![(store, 0)]).await.expect("the map answers");
    node
}

/// The group's member on this node, once it serves.
async fn serving(node: &Node) -> GroupRef {
    let began = runtime::now();
    loop {
        let group = node.first_core().group(store_of(0), GROUP);
        if let Some(group) =
            group.filter(|group| group.standing().serves && group.standing().record.in_sync.len() == MEMBERS)
        {
            return group;
        }
        assert!(runtime::now().since(began) < PATIENCE, "nobody serves");
        runtime::sleep(Duration::from_millis(20)).await;
    }
}

/// Several counts of 1,000 requests each, once everything is warm.
fn count(kind: Kind, depth: u64) -> Vec<Spent> {
    count_in(&TemporaryDirectory::in_memory(), kind, depth, WARM_UP, COUNTS)
}

/// So many counts, with the devices there.
fn count_in(directory: &TemporaryDirectory, kind: Kind, depth: u64, warm_up: u64, counts: usize) -> Vec<Spent> {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let cores = Cores::start(1, &Options::default()).expect("io_uring works here");
    let (told, answer) = mpsc::channel();
    let (core, path) = (cores.handles()[0].clone(), directory.path().to_owned());
    cores.handles()[0].spawn_on(move || async move {
        let members = Members::start(path, core).await;
        members.run(Kind::Write, 32, warm_up).await;
        members.run(kind, depth, 2 * COUNT).await;
        let mut all = Vec::new();
        for _ in 0..counts {
            let before = members.spent();
            members.run(kind, depth, COUNT).await;
            let after = members.spent();
            all.push(Spent {
                messages: after.messages - before.messages,
                allocations: after.allocations - before.allocations,
                system_calls: after.system_calls - before.system_calls,
                device_bytes: after.device_bytes - before.device_bytes,
                syncs: after.syncs - before.syncs,
            });
        }
        told.send(all).expect("the test waits");
    });
    let all = answer.recv().expect("the core tells");
    cores.stop();
    all
}

fn sorted(all: &[Spent], key: impl Fn(&Spent) -> u64) -> Vec<u64> {
    let mut all: Vec<u64> = all.iter().map(key).collect();
    all.sort_unstable();
    all
}

/// Stated cost is allowed to be exceeded by this: a beat, a look, a timer in between.
const TOLERANCE: f64 = 1.10;

/// What 1,000 requests of a kind cost all three nodes together.
struct Stated {
    messages: u64,
    system_calls: u64,
    /// On all three devices together, per byte of the client.
    device_bytes_per_byte: f64,
}

fn assert_cost(kind: Kind, depth: u64, stated: &Stated) {
    let all = count(kind, depth);
    let middle = |key: fn(&Spent) -> u64| sorted(&all, key)[COUNTS / 2];
    let (messages, system_calls) = (middle(|spent| spent.messages), middle(|spent| spent.system_calls));
    let allocations = sorted(&all, |spent| spent.allocations)[0];
    let amplification = middle(|spent| spent.device_bytes) as f64 / (COUNT * BLOCK_BYTES as u64) as f64;
    eprintln!(
        "{kind:?}, depth {depth}, per 1,000: {messages} messages, {system_calls} system calls, {allocations} allocations, \
         {amplification:.3} device bytes per byte"
    );
    assert!(all.iter().all(|spent| spent.syncs == 0), "memory needs no syncs");
    let most = |stated: u64| (stated as f64 * TOLERANCE) as u64;
    assert!(messages <= most(stated.messages), "{messages} messages, stated are {}", stated.messages);
    assert!(system_calls <= most(stated.system_calls), "{system_calls} calls, stated are {}", stated.system_calls);
    assert!(amplification <= stated.device_bytes_per_byte * 1.03, "{amplification:.3} device bytes per byte");
    // Each lane of the client is a task, and takes what a task takes; beats take some.
    let of_client = 2 * depth + 32;
    assert!(allocations <= of_client, "{allocations} allocations, of which the client has {of_client} at most");
}

/// Two prepares and two answers; a record on each device; a send for each message, and what is received together.
#[test]
fn a_write_to_three_members_at_depth_1() {
    let stated = Stated { messages: 4000, system_calls: 9003, device_bytes_per_byte: 3.375 };
    assert_cost(Kind::Write, 1, &stated);
}

/// What comes together travels together, and is one record.
#[test]
fn writes_to_three_members_at_depth_32() {
    let stated = Stated { messages: 130, system_calls: 389, device_bytes_per_byte: 3.07 };
    assert_cost(Kind::Write, 32, &stated);
}

/// The primary reads alone: nobody is asked.
#[test]
fn reads_ask_no_other_member() {
    let stated = Stated { messages: 0, system_calls: 1000, device_bytes_per_byte: 0.0 };
    assert_cost(Kind::Read, 1, &stated);
    assert_cost(Kind::Read, 32, &stated);
}

/// Until leaves have their final size; on a disk each of these waits for it.
const WARM_UP_ON_DISK: u64 = 2_000;

/// Syncs per 1,000 writes of all three devices, where a completed write may be lost with the power. The median of three counts.
fn syncs_on_disk(depth: u64) -> u64 {
    let all = count_in(&TemporaryDirectory::on_disk(), Kind::Write, depth, WARM_UP_ON_DISK, 3);
    let syncs = sorted(&all, |spent| spent.syncs)[1];
    eprintln!("Write, depth {depth}, per 1,000: {syncs} syncs of three devices");
    syncs
}

/// Each of the three syncs before it answers, and what comes together shares a record and its sync.
#[test]
fn each_member_syncs_what_it_answers_for() {
    let one = syncs_on_disk(1);
    assert!(one >= 3 * COUNT, "{one} syncs of 1,000 writes one by one to three members: each is behind three");
    assert!(one <= 3 * COUNT * 11 / 10, "{one} syncs of 1,000 writes to three members, stated are 3,000");
    let many = syncs_on_disk(32);
    assert!(
        many >= 3 * COUNT / 32,
        "{many} syncs of 1,000 writes, 32 at a time: those that come together are behind three"
    );
    assert!(many <= 3 * COUNT / 4, "{many} syncs of 1,000 writes, 32 at a time: nothing shares them");
}

//! Counted cost of a volume on three nodes with three copies, gathered and spread: three nodes on one core of this process, each
//! with a device in memory and connections of its own to the others over loopback. Commands go to the volume, as a door's do,
//! at the node that serves it; what is counted is what all three nodes spend together.

use cluster::{
    DeviceRecord, FailureDomain, GroupRecord, MapStore, NewPool, PoolRulesRecord, SimMap, VolumePlacement,
    VolumeRecord, WantedPlace, ensure_pool, get, keys, list, load_table, slot_of,
};
use e2e::directory::TemporaryDirectory;
use runtime::uring::{Cores, Options, counters};
use runtime::{CoreHandle, IoBuf, SharedBuf};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use types::{BLOCK_BYTES, CHUNK_BYTES, ChunkId, NodeId};
use volume::{Assembly, Blank, Limits, NewVolume, NodeOptions, Payload, Volume};

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Counts of other tests would take turns with ours on few processors.
static ALONE: Mutex<()> = Mutex::new(());

const NODES: u32 = 3;
/// So large that few passes fall into what is counted.
const DEVICE_BYTES: u64 = 4 << 30;
/// Of the volume; of these so many are used that are led as is to be counted.
const CHUNKS: u32 = 64;
const CHUNKS_USED: usize = 4;
const BLOCKS_PER_CHUNK: u64 = CHUNK_BYTES / BLOCK_BYTES as u64;
/// Commands of one count.
const COUNT: u64 = 1000;
/// Counts of the same, of which the least is taken: beats, looks and passes fall into some of them, and what else the machine
/// does makes batches smaller; what a command takes, each of them shows.
const COUNTS: usize = 9;
/// Until everything has its final size.
const WARM_UP: u64 = 20_000;
/// Nobody leads as is wanted for so long: then something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Read,
}

/// What all nodes have spent so far, or for 1,000 commands.
#[derive(Clone, Copy, Debug)]
struct Spent {
    /// Between nodes.
    messages: u64,
    allocations: u64,
    /// `io_uring_enter`, and operations that are done at once by a call of their own.
    system_calls: u64,
    /// Records and bytes written to all three devices.
    device_writes: u64,
    device_bytes: u64,
}

/// Three nodes, the first of which serves a volume.
struct Served {
    assemblies: Vec<Assembly>,
    volume: Volume,
    /// Where in the volume is written and read.
    chunks: Vec<ChunkId>,
}

impl Served {
    async fn start(directory: PathBuf, core: CoreHandle, placement: VolumePlacement) -> Self {
        let map = SimMap::new();
        let mut stores = Vec::new();
        let device = |node: u32| directory.join(format!("device-{node}"));
        for node in 1..=NODES {
            let file = std::fs::File::create_new(device(node)).expect("a new device file");
            file.set_len(DEVICE_BYTES).expect("room for a sparse file");
            let handle: Arc<dyn MapStore> = map.handle_for(NodeId(node));
            stores.extend(Assembly::register(&handle, NodeId(node), &[device(node)]).await.expect("formatted"));
        }
        let name = cluster::DEFAULT_POOL;
        let rules = PoolRulesRecord { failure_domain: FailureDomain::Node, placement, ..PoolRulesRecord::unset(name) };
        let pool = NewPool { name: name.to_owned(), replicas: NODES, min_in_sync: 2, rules: Some(rules), stores };
        ensure_pool(&*map, &pool).await.expect("made");
        let mut assemblies = Vec::new();
        for node in 1..=NODES {
            let options = NodeOptions {
                node: NodeId(node),
                address: ([127, 0, 0, 1], 0).into(),
                cores: vec![core.clone()],
                devices: vec![device(node)],
                blank: Blank::Refuse,
                map: map.handle_for(NodeId(node)),
            };
            assemblies.push(Assembly::start(options).await.expect("it starts"));
        }
        let new = NewVolume {
            name: "v".to_owned(),
            size_bytes: u64::from(CHUNKS) * CHUNK_BYTES,
            block_size_bytes: 4096,
            limits: Limits::default(),
            hosts: Default::default(),
        };
        let wanted = WantedPlace { home: Some(NodeId(1)), ..WantedPlace::default() };
        assemblies[0].create_volume_at(new, &wanted).await.expect("made");
        let volume = assemblies[0].directory().by_name("v").expect("served");
        let chunks = settled(&*map, placement).await;
        Self { assemblies, volume, chunks }
    }

    async fn spent(&self) -> Spent {
        let (mut messages, mut device_writes, mut device_bytes) = (0, 0, 0);
        for assembly in &self.assemblies {
            messages += assembly.messages().await;
            for device in assembly.status().await.devices {
                device_writes += device.appends;
                device_bytes += device.device_bytes_written;
            }
        }
        let counted = counters();
        Spent {
            messages,
            allocations: counting::on_this_thread(),
            system_calls: counted.enters + counted.inline_operations,
            device_writes,
            device_bytes,
        }
    }

    /// Sends so many commands, `depth` of them at a time; returns what they took from the first to the last.
    async fn run(&self, kind: Kind, depth: u64, count: u64) -> (u64, u64) {
        let left = Rc::new(Cell::new(count));
        let (done, mut all_done) = runtime::channel::cross(depth as usize);
        let before = (counting::on_this_thread(), counters());
        for _ in 0..depth {
            let (left, done, volume, chunks) = (left.clone(), done.clone(), self.volume.clone(), self.chunks.clone());
            runtime::spawn(async move {
                let mut payload = IoBuf::new(BLOCK_BYTES);
                payload.fill(7);
                let payload = payload.freeze();
                while left.get() > 0 {
                    left.set(left.get() - 1);
                    // A step that has no divisor in common with the number of blocks.
                    let at = left.get() * 419 % (chunks.len() as u64 * BLOCKS_PER_CHUNK);
                    let chunk = chunks[(at / BLOCKS_PER_CHUNK) as usize];
                    let offset = u64::from(chunk.0) * CHUNK_BYTES + at % BLOCKS_PER_CHUNK * BLOCK_BYTES as u64;
                    command(&volume, kind, offset, &payload).await;
                }
                done.try_send(()).expect("there is room for each lane");
            });
        }
        for _ in 0..depth {
            all_done.recv().await.expect("lanes end by themselves");
        }
        let after = counters();
        let calls = |counted: runtime::uring::Counters| counted.enters + counted.inline_operations;
        (counting::on_this_thread() - before.0, calls(after) - calls(before.1))
    }
}

async fn command(volume: &Volume, kind: Kind, offset: u64, payload: &SharedBuf) {
    match kind {
        Kind::Write => volume.write(offset, Payload { bytes: payload.clone() }).await.expect("written"),
        Kind::Read => {
            let read = volume.read(offset, BLOCK_BYTES as u32).await.expect("readable");
            assert_eq!(read.bytes[BLOCK_BYTES - 1], 7);
        }
    }
}

/// Waits until the groups are led as they are to be. Returns chunks that are led from the first node, where they are to be
/// gathered there, and else such as are led from others: of a spread volume a third is led by the node that serves it.
async fn settled(map: &dyn MapStore, placement: VolumePlacement) -> Vec<ChunkId> {
    let began = runtime::now();
    loop {
        let volume = list::<VolumeRecord>(map, keys::VOLUMES).await.expect("readable").remove(0).record;
        let table = load_table(map, volume.table).await.expect("whole");
        let (mut here, mut elsewhere, mut is_whole) = (Vec::new(), Vec::new(), true);
        for chunk in (0..CHUNKS).map(ChunkId) {
            let id = table.group_of(slot_of(volume.family_seed, chunk));
            let group = get::<GroupRecord>(map, &keys::group(id)).await.expect("readable").expect("there").record;
            let device = keys::device(group.primary);
            let leads = get::<DeviceRecord>(map, &device).await.expect("readable").expect("there").record.node;
            is_whole &= group.in_sync.len() == NODES as usize && group.epoch.0 > 0;
            if leads == NodeId(1) { here.push(chunk) } else { elsewhere.push(chunk) }
        }
        let is_gathered = placement == VolumePlacement::Gathered;
        let mut led = if is_gathered { here } else { elsewhere };
        if is_whole && led.len() >= if is_gathered { CHUNKS as usize } else { CHUNKS_USED } {
            led.truncate(CHUNKS_USED);
            return led;
        }
        assert!(runtime::now().since(began) < PATIENCE, "the groups are not led as they are to be");
        runtime::sleep(Duration::from_millis(100)).await;
    }
}

/// Several counts of 1,000 commands each, once everything is warm.
fn count(directory: &Path, placement: VolumePlacement, kind: Kind, depth: u64) -> Vec<Spent> {
    let cores = Cores::start(1, &Options::default()).expect("io_uring works here");
    let (told, answer) = mpsc::channel();
    let (core, path) = (cores.handles()[0].clone(), directory.to_owned());
    cores.handles()[0].spawn_on(move || async move {
        let served = Served::start(path, core, placement).await;
        served.run(Kind::Write, 32, WARM_UP).await;
        served.run(kind, depth, 2 * COUNT).await;
        let mut all = Vec::new();
        for _ in 0..COUNTS {
            let before = served.spent().await;
            let (allocations, system_calls) = served.run(kind, depth, COUNT).await;
            let after = served.spent().await;
            all.push(Spent {
                messages: after.messages - before.messages,
                allocations,
                system_calls,
                device_writes: after.device_writes - before.device_writes,
                device_bytes: after.device_bytes - before.device_bytes,
            });
        }
        for assembly in &served.assemblies {
            assembly.stop().await;
        }
        told.send(all).expect("the test waits");
    });
    let all = answer.recv().expect("the core tells");
    cores.stop();
    all
}

/// Stated cost is allowed to be exceeded by this: a beat, a look, a timer in between.
const TOLERANCE: f64 = 1.10;
/// Of many at a time: a batch is what has come meanwhile, so how large it is depends on what else the machine does. Without
/// batches it would be four to eight times as much.
const TOLERANCE_OF_BATCHES: f64 = 2.0;

/// What 1,000 commands of a kind cost all three nodes together.
struct Stated {
    messages: u64,
    system_calls: u64,
    /// On all three devices together.
    device_writes: u64,
    /// Besides those of the client: of what a group is asked from another node most, as requests and answers come in values
    /// of their own.
    /// At depth 1 a command that waits for others' turns takes some memory now and then: nothing is stated there.
    allocations: Option<u64>,
}

fn assert_cost(placement: VolumePlacement, kind: Kind, depth: u64, stated: &Stated) {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let directory = TemporaryDirectory::in_memory();
    let all = count(directory.path(), placement, kind, depth);
    let least = |key: fn(&Spent) -> u64| all.iter().map(key).min().expect("some counts");
    let (messages, system_calls) = (least(|spent| spent.messages), least(|spent| spent.system_calls));
    let (device_writes, allocations) = (least(|spent| spent.device_writes), least(|spent| spent.allocations));
    let amplification = least(|spent| spent.device_bytes) as f64 / (COUNT * BLOCK_BYTES as u64) as f64;
    eprintln!(
        "{placement:?} {kind:?}, depth {depth}, per 1,000: {messages} messages, {system_calls} system calls, {allocations} \
         allocations, {device_writes} device writes, {amplification:.3} device bytes per byte"
    );
    let most = |stated: u64| (stated as f64 * TOLERANCE) as u64;
    let most_of_all =
        |stated: u64| if depth == 1 { most(stated) } else { (stated as f64 * TOLERANCE_OF_BATCHES) as u64 };
    assert!(messages <= most_of_all(stated.messages), "{messages} messages, stated are {}", stated.messages);
    assert!(
        system_calls <= most_of_all(stated.system_calls),
        "{system_calls} calls, stated are {}",
        stated.system_calls
    );
    assert!(
        device_writes <= most_of_all(stated.device_writes),
        "{device_writes} writes, stated: {}",
        stated.device_writes
    );
    // Each lane of the client is a task, and takes what a task takes; beats of three nodes take some.
    let of_client = 4 * depth + 64;
    let most_allocations = stated.allocations.map_or(u64::MAX, |stated| most(stated) + of_client);
    assert!(allocations <= most_allocations, "{allocations} allocations, stated are {:?}", stated.allocations);
}

use Kind::{Read, Write};
use VolumePlacement::{Gathered, Spread};

/// Two prepares and two answers; a record on each device.
#[test]
fn a_write_to_a_gathered_volume() {
    let one = Stated { messages: 4000, system_calls: 10_000, device_writes: 3000, allocations: None };
    assert_cost(Gathered, Write, 1, &one);
    let many = Stated { messages: 500, system_calls: 760, device_writes: 380, allocations: Some(0) };
    assert_cost(Gathered, Write, 32, &many);
}

/// The same, and a request to the group's primary, and its answer: two values for each command, and less than one for each batch,
/// of which there are the more the busier the machine is.
#[test]
fn a_write_to_a_spread_volume_led_elsewhere() {
    let one = Stated { messages: 6000, system_calls: 14_500, device_writes: 3000, allocations: None };
    assert_cost(Spread, Write, 1, &one);
    let many = Stated { messages: 2520, system_calls: 1200, device_writes: 380, allocations: Some(2400) };
    assert_cost(Spread, Write, 32, &many);
}

/// Who serves it leads it, and reads alone.
#[test]
fn a_read_of_a_gathered_volume_asks_nobody() {
    let stated = Stated { messages: 0, system_calls: 1000, device_writes: 0, allocations: Some(0) };
    assert_cost(Gathered, Read, 1, &stated);
    assert_cost(Gathered, Read, 32, &stated);
}

/// A request to the group's primary, and its answer.
#[test]
fn a_read_of_a_spread_volume_led_elsewhere() {
    let one = Stated { messages: 2000, system_calls: 5000, device_writes: 0, allocations: Some(6000) };
    assert_cost(Spread, Read, 1, &one);
    let many = Stated { messages: 2000, system_calls: 1300, device_writes: 0, allocations: Some(6000) };
    assert_cost(Spread, Read, 32, &many);
}

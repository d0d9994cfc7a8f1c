//! Volumes with a limit, over NBD: what waits is in nobody's way, and a stop and the end of a connection know it.

use cluster::{Limits, SimMap};
use nbd::client::Client;
use runtime::sim::{DiskOptions, NodeOptions, SimNode, World};
use runtime::{IoBuf, SharedBuf, TcpListener};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use volume::{Assembly, LimitChange, NewVolume, VolumeChange};

const SECOND: Duration = Duration::from_secs(1);
const VOLUME_BYTES: u64 = 64 << 20;
/// Four parts of a request.
const LONG: usize = 4 << 20;
/// Behind all that is flooded.
const LAST: u64 = VOLUME_BYTES - 4096;

/// A storage node of one core with the volumes `a` and `b`, and a client node.
struct Cluster {
    world: World,
    storage: SimNode,
    client: SimNode,
    assembly: Assembly,
    address: SocketAddr,
    /// Dropped, the door stops.
    door: RefCell<Option<runtime::TaskHandle>>,
}

fn cluster(seed: u64) -> Cluster {
    let world = World::new(seed);
    let (storage, client) = (world.add_node(1, NodeOptions::default()), world.add_node(1, NodeOptions::default()));
    storage.add_disk("/disk", 512 << 20, DiskOptions::default());
    let (cores, ip) = (storage.cores(), storage.ip());
    let served = world.run_on(&storage, 0, async move {
        let options = volume::NodeOptions {
            node: types::NodeId(1),
            address: SocketAddr::new(ip, 0),
            cores,
            devices: vec!["/disk".into()],
            blank: volume::Blank::Format,
            map: SimMap::new(),
        };
        let assembly = Assembly::start(options).await.expect("the node starts");
        for name in ["a", "b"] {
            let (size_bytes, limits) = (VOLUME_BYTES, Limits::default());
            let new =
                NewVolume { name: name.into(), size_bytes, block_size_bytes: 512, limits, hosts: Default::default() };
            assembly.create_volume(new).await.expect("made");
        }
        let (handle, worker) = nbd::worker();
        assembly.spawn_on(0, move |directory| worker.run(directory));
        let listener = TcpListener::bind((ip, 0).into()).expect("a free port");
        let address = listener.local_address();
        (assembly, address, runtime::spawn(nbd::serve(listener, vec![handle])))
    });
    let (assembly, address, door) = served.expect("the node starts");
    Cluster { world, storage, client, assembly, address, door: RefCell::new(Some(door)) }
}

impl Cluster {
    fn limit(&self, volume: &'static str, limits: LimitChange) {
        let assembly = self.assembly.clone();
        let order = async move { assembly.change_volume(volume, &VolumeChange::limits(limits)).await };
        self.world.run_on(&self.storage, 0, order).expect("the node goes on").expect("limited");
    }

    fn connect(&self, name: &'static str) -> Client {
        let address = self.address;
        let connect = async move { Client::connect(address, name, true).await.expect("connected") };
        self.world.run_on(&self.client, 0, connect).expect("the client goes on")
    }

    fn start<T: 'static>(&self, client: impl Future<Output = T> + 'static) -> Rc<RefCell<Option<T>>> {
        let outcome = Rc::new(RefCell::new(None));
        let slot = outcome.clone();
        self.client.spawn(0, async move {
            let value = client.await;
            *slot.borrow_mut() = Some(value);
        });
        outcome
    }

    /// Writes from so many tasks until one fails; how many have ended.
    fn flood(&self, client: &Client, depth: usize, len: usize) -> Rc<Cell<u64>> {
        let done = Rc::new(Cell::new(0));
        for task in 0..depth {
            let (client, done) = (client.clone(), done.clone());
            self.client.spawn(0, async move {
                let place = (task * len) as u64 % (32 << 20);
                while client.write(place, bytes(len, 1), false).await.is_ok() {
                    done.set(done.get() + 1);
                }
            });
        }
        done
    }

    fn in_time(&self, done: &Cell<u64>, time: Duration) -> u64 {
        let before = done.get();
        self.world.run_for(time);
        done.get() - before
    }

    /// Whether the block at [`LAST`] was never written.
    fn is_untouched(&self) -> bool {
        let directory = self.assembly.directory();
        let read = async move {
            let volume = directory.by_name("a").expect("served");
            volume.read(LAST, 4096).await.expect("readable").bytes.iter().all(|byte| *byte == 0)
        };
        self.world.run_on(&self.storage, 0, read).expect("the node goes on")
    }
}

fn iops(iops: u64) -> LimitChange {
    LimitChange { iops: Some(Some(iops)), ..LimitChange::default() }
}

fn bytes(len: usize, byte: u8) -> SharedBuf {
    let mut buf = IoBuf::new(len);
    buf.fill(byte);
    buf.freeze()
}

#[test]
fn a_neighbour_goes_on_at_full_rate_and_the_limit_is_kept() {
    let cluster = cluster(1);
    let beside = cluster.flood(&cluster.connect("b"), 4, 4096);
    cluster.world.run_for(SECOND / 10);
    let alone = cluster.in_time(&beside, SECOND);
    cluster.limit("a", iops(20));
    // Far more than the core's budget.
    let floods: Vec<_> = (0..24)
        .map(|number| {
            let client = cluster.connect("a");
            (cluster.flood(&client, 256, if number % 4 == 0 { 128 << 10 } else { 4096 }), client)
        })
        .collect();
    cluster.world.run_for(SECOND);
    let sum = || floods.iter().map(|(flood, _)| flood.get()).sum::<u64>();
    let before = sum();
    let together = cluster.in_time(&beside, SECOND);
    assert!(together * 10 > alone * 8, "{together} in a second, {alone} alone");
    cluster.world.run_for(9 * SECOND);
    let limited = sum() - before;
    assert!((198..=202).contains(&limited), "{limited} in ten seconds");
    // Longer than a client may leave its answers untaken.
    cluster.world.run_for(40 * SECOND);
    assert!(cluster.in_time(&beside, SECOND) * 10 > alone * 8);
}

/// A long request counts with all of its bytes, a flush not at all.
#[test]
fn bytes_are_counted_and_a_flush_is_never_held() {
    let cluster = cluster(2);
    let bandwidth = LimitChange { bytes_per_second: Some(Some(1 << 20)), ..LimitChange::default() };
    cluster.limit("a", bandwidth);
    let client = cluster.connect("a");
    let (first, second, flusher) = (client.clone(), client.clone(), client);
    let long = cluster.start(async move { first.write(0, bytes(4 << 20, 1), false).await });
    cluster.world.run_for(SECOND / 2);
    let behind = cluster.start(async move { second.read(0, 4096).await.map(drop) });
    let flushed = cluster.start(async move { flusher.flush().await });
    cluster.world.run_for(SECOND / 2);
    assert_eq!(*flushed.borrow(), Some(Ok(())));
    assert_eq!((long.borrow().is_some(), behind.borrow().is_some()), (false, false));
    cluster.world.run_for(4 * SECOND);
    assert_eq!(*long.borrow(), Some(Ok(())), "4 MiB at 1 MiB in a second");
    assert_eq!(*behind.borrow(), Some(Ok(())));
}

/// What waits when the node stops is refused, and not done.
#[test]
fn a_stop_answers_what_waits() {
    let cluster = cluster(3);
    cluster.limit("a", iops(1));
    let client = cluster.connect("a");
    cluster.flood(&client, 100, 4096);
    cluster.world.run_for(3 * SECOND);
    let last = cluster.start(async move { client.write(LAST, bytes(4096, 9), false).await });
    cluster.world.run_for(SECOND / 10);
    assert!(last.borrow().is_none());
    cluster.door.take().expect("open").cancel();
    cluster.world.run_for(SECOND / 2);
    let refused = last.borrow_mut().take().expect("answered");
    assert!(format!("{refused:?}").contains("stopping"), "{refused:?}");
    assert!(cluster.is_untouched());
}

/// What waited when its connection ended is never done.
#[test]
fn what_waits_ends_with_its_connection() {
    let cluster = cluster(4);
    cluster.limit("a", iops(1));
    let client = cluster.connect("a");
    cluster.flood(&client, 100, 4096);
    cluster.world.run_for(3 * SECOND);
    let last = client.clone();
    drop(cluster.start(async move { last.write(LAST, bytes(4096, 9), false).await }));
    cluster.world.run_for(SECOND / 10);
    client.abort();
    cluster.world.run_for(SECOND);
    cluster.limit("a", iops(1_000_000));
    cluster.world.run_for(2 * SECOND);
    assert!(cluster.is_untouched());
}

/// A long write of which a part is done and the rest unread while the core has no room: no answer can come before it is
/// read on, and it is.
#[test]
fn a_write_that_was_not_read_on_for_want_of_room_ends() {
    let cluster = cluster(5);
    let disk = cluster.storage.disk(std::path::Path::new("/disk")).expect("there");
    let last = cluster.connect("b");
    let others: Vec<_> = (0..6).map(|_| cluster.connect("a")).collect();
    disk.set_hanging(true);
    let written: Vec<_> = (0..36_u64)
        .map(|number| {
            let client = others[number as usize % others.len()].clone();
            cluster.start(async move { client.write(number % 15 * LONG as u64, bytes(LONG, 1), false).await })
        })
        .collect();
    cluster.world.run_for(SECOND / 2);
    let long = cluster.start(async move { last.write(0, bytes(LONG, 2), false).await });
    cluster.world.run_for(SECOND);
    assert!(long.borrow().is_none(), "the disk stands still");
    disk.set_hanging(false);
    cluster.world.run_for(20 * SECOND);
    assert_eq!(*long.borrow(), Some(Ok(())));
    assert!(written.iter().all(|written| *written.borrow() == Some(Ok(()))), "the others', too");
}

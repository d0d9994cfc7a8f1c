//! Three nodes with three copies of everything, and one volume; and what a node may not do that slept while another took over.

use super::{DISK, DISK_BYTES, new_volume, payload};
use cluster::{
    DEFAULT_POOL, FailureDomain, HostChange, MapFaults, MapStore, NewPool, PoolRulesRecord, SimMap, Transaction,
    VolumeChange, VolumePlacement, ensure_pool, keys,
};
use runtime::channel::cross;
use runtime::sim::{DiskOptions, NodeOptions as SimNodeOptions, SimNode, World};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{CHUNK_BYTES, NodeId};
use volume::{Assembly, Blank, IoError, NodeOptions, Session, Standing, Volume, VolumeError};

pub const NODES: usize = 3;
pub const CHUNKS: u64 = 24;
/// A node's session in the map is over, and another has taken its turn.
pub const TAKEN_OVER: Duration = Duration::from_secs(14);

pub struct Cluster {
    pub world: World,
    pub nodes: Vec<SimNode>,
    pub map: Arc<SimMap>,
    pub assemblies: RefCell<Vec<Option<Assembly>>>,
}

impl Cluster {
    pub fn new(seed: u64, cores: usize) -> Self {
        Self::with_copies(seed, cores, 3)
    }

    /// With so many copies of everything.
    pub fn with_copies(seed: u64, cores: usize, replicas: u32) -> Self {
        Self::with(seed, cores, NODES, replicas)
    }

    /// So many nodes, and so many copies, of which one may be away; each volume lies on all of them.
    pub fn with(seed: u64, cores: usize, count: usize, replicas: u32) -> Self {
        Self::placed(seed, cores, (count, replicas), VolumePlacement::Spread)
    }

    /// The same, where volumes are placed like this.
    pub fn placed(seed: u64, cores: usize, (count, replicas): (usize, u32), placement: VolumePlacement) -> Self {
        let world = World::new(seed);
        let nodes: Vec<SimNode> = (0..count).map(|_| world.add_node(cores, SimNodeOptions::default())).collect();
        nodes.iter().for_each(|node| drop(node.add_disk(DISK, DISK_BYTES, DiskOptions::default())));
        let map = SimMap::new();
        let this = Self { world, nodes, map, assemblies: RefCell::new(vec![None; count]) };
        let mut stores = Vec::new();
        for index in 0..count {
            let map = this.map();
            let devices = [PathBuf::from(DISK)];
            stores.extend(this.run(index, async move {
                Assembly::register(&map, node_id(index), &devices).await.expect("the device is made")
            }));
        }
        let map = this.map();
        let min_in_sync = replicas - 1;
        let failure_domain = if count >= replicas as usize { FailureDomain::Node } else { FailureDomain::Device };
        let rules = PoolRulesRecord { failure_domain, placement, ..PoolRulesRecord::unset(DEFAULT_POOL) };
        let pool = NewPool { name: DEFAULT_POOL.to_owned(), replicas, min_in_sync, rules: Some(rules), stores };
        this.run(0, async move { ensure_pool(&*map, &pool).await.map(drop).expect("the pool is made") });
        (0..count).for_each(|index| this.start(index));
        this
    }

    pub fn map(&self) -> Arc<dyn MapStore> {
        self.map.clone()
    }

    pub fn run<T: 'static>(&self, index: usize, future: impl Future<Output = T> + 'static) -> T {
        self.world.run_on(&self.nodes[index], 0, future).expect("the world goes on")
    }

    pub fn start(&self, index: usize) {
        let node = &self.nodes[index];
        let options = NodeOptions {
            node: node_id(index),
            address: (node.ip(), 0).into(),
            cores: node.cores(),
            devices: vec![PathBuf::from(DISK)],
            blank: Blank::Refuse,
            map: self.map(),
        };
        let assembly = self.run(index, async move { Assembly::start(options).await.expect("the node starts") });
        self.assemblies.borrow_mut()[index] = Some(assembly);
    }

    pub fn crash(&self, index: usize) {
        self.assemblies.borrow_mut()[index] = None;
        self.nodes[index].crash();
        self.nodes[index].start();
    }

    /// Has a node do something.
    pub fn at<T: 'static, F: Future<Output = T> + 'static>(&self, index: usize, ask: impl FnOnce(Assembly) -> F) -> T {
        let assembly = self.assemblies.borrow()[index].clone().expect("it is up");
        self.run(index, ask(assembly))
    }

    pub fn pass(&self, time: Duration) {
        self.world.run_for(time);
    }

    /// Where the volume stands, as each node that is up says.
    pub fn standings(&self, name: &'static str) -> Vec<Option<Standing>> {
        (0..NODES).map(|index| self.standing(index, name)).collect()
    }

    /// The same, as one of them says.
    pub fn standing(&self, index: usize, name: &'static str) -> Option<Standing> {
        self.assemblies.borrow()[index].as_ref()?;
        self.at(index, move |assembly| async move { served(&assembly, name).map(|volume| volume.standing()) })
    }
}

pub fn node_id(index: usize) -> NodeId {
    NodeId(index as u32 + 1)
}

pub fn served(assembly: &Assembly, name: &str) -> Option<Volume> {
    assembly.directory().by_name(name)
}

pub fn of(assembly: &Assembly) -> Volume {
    served(assembly, "v").expect("it is listed")
}

/// Writes the first block of every chunk.
pub async fn fill(volume: &Volume, value: u8) -> Result<(), IoError> {
    for chunk in 0..CHUNKS {
        volume.write(chunk * CHUNK_BYTES, payload(&[value; 4096])).await?;
    }
    Ok(())
}

pub async fn check(volume: &Volume, value: u8) {
    for chunk in 0..CHUNKS {
        let read = volume.read(chunk * CHUNK_BYTES, 4096).await.expect("readable");
        assert!(read.bytes.iter().all(|byte| *byte == value), "chunk {chunk} holds {}", read.bytes[0]);
    }
}

pub async fn made(assembly: Assembly) {
    assembly.create_volume(new_volume("v", CHUNKS * CHUNK_BYTES)).await.expect("made");
    fill(&of(&assembly), 1).await.expect("written");
}

/// A cluster whose node 0 made the volume, did more, and sleeps since. Returns the node that has taken over.
pub fn asleep<F: Future<Output = ()> + 'static>(seed: u64, more: impl FnOnce(Assembly) -> F) -> (Cluster, usize) {
    let cluster = Cluster::new(seed, 1);
    cluster.at(0, made);
    cluster.at(0, more);
    cluster.nodes[0].pause();
    cluster.pass(TAKEN_OVER);
    let is_head =
        |index: &usize| cluster.at(*index, |assembly| async move { of(&assembly).standing() }) == Standing::Here;
    let head = (1..NODES).find(is_head).expect("another node is the head");
    (cluster, head)
}

/// H1: what a head decides in the map is decided in its reign, or not at all.
pub fn a_head_that_slept_decides_nothing(seed: u64) {
    let (cluster, _) = asleep(seed, |assembly| async move {
        assembly.create_snapshot("v", "s").await.expect("taken");
    });
    // It hears late that it is the head no more.
    cluster.map.set_faults(MapFaults { watches_late: 1024, watch_lag_max: Duration::from_secs(2), ..MapFaults::NONE });
    cluster.nodes[0].resume();
    let grown = cluster.at(0, |assembly| async move {
        assembly.change_volume("v", &VolumeChange::size(2 * CHUNKS * CHUNK_BYTES)).await
    });
    assert!(matches!(grown, Err(VolumeError::Elsewhere { .. } | VolumeError::Map(_))), "{grown:?}");
    let taken = cluster.at(0, |assembly| async move { assembly.create_snapshot("v", "late").await });
    assert!(taken.is_err(), "{taken:?}");
    let deleted = cluster.at(0, |assembly| async move { assembly.delete_snapshot("v", "s").await });
    assert!(deleted.is_err(), "{deleted:?}");
}

/// H4: what is acknowledged after a snapshot was taken is not in it, whoever acknowledges.
pub fn a_snapshot_is_an_instant_for_a_head_that_slept(seed: u64) {
    let (cluster, head) = asleep(seed, |_| async {});
    cluster.at(head, |assembly| async move { drop(assembly.create_snapshot("v", "s").await.expect("taken")) });
    cluster.nodes[0].resume();
    let written = cluster.at(0, |assembly| async move {
        let (volume, mut done) = (of(&assembly), 0);
        for chunk in 0..CHUNKS {
            done += usize::from(volume.write(chunk * CHUNK_BYTES, payload(&[9; 4096])).await.is_ok());
        }
        done
    });
    cluster.at(head, |assembly| async move { check(&of(&assembly).snapshot("s").expect("it is there"), 1).await });
    assert_eq!(written, 0, "groups take what an older head writes");
}

/// H4: once a host is denied, an older head that has not heard of it does nothing more for it. Who allows one host of a volume
/// that was open to all denies all others.
pub fn nothing_is_done_for_a_host_that_was_denied(seed: u64) {
    const HOST: &str = "nqn.2026-01.io.example:a";
    let is_open = seed.is_multiple_of(2);
    let (cluster, head) = asleep(seed, move |assembly| async move {
        if !is_open {
            let allowed = HostChange::Allow(HOST.to_owned());
            drop(assembly.change_hosts("v", &allowed, false).await.expect("allowed"));
        }
    });
    let denies = if is_open { HostChange::Allow } else { HostChange::Deny }(HOST.to_owned());
    cluster.at(head, move |assembly| async move {
        drop(assembly.change_hosts("v", &denies, is_open).await.expect("denied"));
    });
    cluster.nodes[0].resume();
    let done = cluster.at(0, |assembly| async move {
        let (volume, mut done) = (of(&assembly), 0);
        for chunk in 0..CHUNKS {
            done += usize::from(volume.write(chunk * CHUNK_BYTES, payload(&[9; 4096])).await.is_ok());
        }
        done
    });
    assert_eq!(done, 0, "groups take what an older head writes");
    cluster.at(head, |assembly| async move { check(&of(&assembly), 1).await });
}

/// H13: what a snapshot held that two volumes are built on stays theirs when it is deleted.
pub fn what_two_volumes_are_built_on_stays(seed: u64) {
    let cluster = Cluster::new(seed, 2);
    cluster.at(0, made);
    cluster.at(0, |assembly| async move {
        assembly.create_snapshot("v", "s").await.expect("taken");
        assembly.clone_volume("v", "s", "c").await.expect("cloned");
        // Of every other chunk both have something of their own.
        let clone = served(&assembly, "c").expect("it is listed");
        for chunk in (0..CHUNKS).step_by(2) {
            for volume in [&of(&assembly), &clone] {
                volume.write(chunk * CHUNK_BYTES + 4096, payload(&[7; 4096])).await.expect("written");
            }
        }
        assembly.delete_snapshot("v", "s").await.expect("deleted");
    });
    cluster.pass(Duration::from_secs(5));
    cluster.at(0, |assembly| async move {
        check(&of(&assembly), 1).await;
        check(&served(&assembly, "c").expect("it is listed"), 1).await;
        assembly.delete_volume("v").await.expect("deleted");
    });
    cluster.pass(Duration::from_secs(5));
    let is_there = |assembly: Assembly| async move { check(&served(&assembly, "c").expect("it is listed"), 1).await };
    cluster.at(0, is_there);
}

/// H4: a layer does not end while an older head reads through it.
pub fn who_slept_reads_no_snapshot_that_is_gone(seed: u64) {
    let (cluster, head) = asleep(seed, |assembly| async move {
        assembly.create_snapshot("v", "s").await.expect("taken");
        fill(&of(&assembly), 2).await.expect("written");
    });
    cluster.at(head, |assembly| async move { assembly.delete_snapshot("v", "s").await.expect("deleted") });
    cluster.pass(Duration::from_secs(3));
    let (map, layers) = (cluster.map(), cluster::keys::LAYERS);
    let left = cluster.run(head, async move { map.list(layers).await.expect("readable").items.len() });
    assert_eq!(left, 1, "its layer has ended, whoever is asleep");
    cluster.nodes[0].resume();
    cluster.at(0, |assembly| async move {
        let Some(snapshot) = of(&assembly).snapshot("s") else { return };
        for chunk in 0..CHUNKS {
            match snapshot.read(chunk * CHUNK_BYTES, 4096).await {
                Ok(read) => assert_eq!(read.bytes[0], 1, "chunk {chunk} of a snapshot that is gone"),
                Err(error) => assert!(matches!(error, IoError::Elsewhere(_) | IoError::Unavailable(_)), "{error:?}"),
            }
        }
    });
    cluster.at(head, |assembly| async move { check(&of(&assembly), 2).await });
}

/// H21: a host that heard nothing of a new head, and went back to the older one and on from there, loses nothing of that when the
/// new one goes on. Returns how many chunks the older head still served.
pub fn a_host_that_goes_back_keeps_what_it_wrote_there(seed: u64) -> usize {
    let cluster = Cluster::new(seed, 1);
    cluster.at(0, made);
    let lag = MapFaults { watches_late: 1024, watch_lag_max: Duration::from_secs(20), ..MapFaults::NONE };
    cluster.map.set_faults(lag);
    let map = cluster.map();
    let taken = async move { cluster::take_heads(&*map, node_id(1), |volume| volume.name == "v").await };
    assert_eq!(cluster.run(1, taken).expect("the map is there").len(), 1);
    let is_head = |index| cluster.at(index, |assembly| async move { of(&assembly).standing() }) == Standing::Here;
    let heard = (0..2000).find(|_| {
        cluster.pass(Duration::from_millis(10));
        is_head(1)
    });
    assert!(heard.is_some(), "the new head never hears of it");
    if !is_head(0) {
        return 0;
    }
    let is_connected = Rc::new(Cell::new(true));
    let client = is_connected.clone();
    cluster.at(1, |assembly| async move {
        let session = Session::default();
        session.lives_while(move || client.get());
        for chunk in 0..CHUNKS {
            // Called, and not begun.
            let write = of(&assembly).of_session(&session).write(chunk * CHUNK_BYTES, payload(&[2; 4096]));
            runtime::spawn(async move { drop(write.await) });
        }
    });
    cluster.nodes[1].pause();
    cluster.pass(Duration::from_millis(300));
    is_connected.set(false);
    let kept = cluster.at(0, |assembly| async move {
        let (volume, (told, mut kept)) = (of(&assembly), cross(CHUNKS as usize));
        for chunk in 0..CHUNKS {
            let (volume, told) = (volume.clone(), told.clone());
            runtime::spawn(async move {
                for value in [2, 3] {
                    let write = volume.write(chunk * CHUNK_BYTES, payload(&[value; 4096]));
                    // The group goes on without the copy of who stands still.
                    if !matches!(runtime::timeout(Duration::from_secs(5), write).await, Ok(Ok(()))) {
                        return;
                    }
                }
                let _ = told.send(chunk).await;
            });
        }
        drop(told);
        let mut chunks = Vec::new();
        while let Ok(chunk) = kept.recv().await {
            chunks.push(chunk);
        }
        chunks
    });
    cluster.nodes[1].resume();
    cluster.map.set_faults(MapFaults::NONE);
    cluster.pass(Duration::from_secs(5));
    for &chunk in &kept {
        let read = cluster.at(1, move |assembly| async move { of(&assembly).read(chunk * CHUNK_BYTES, 4096).await });
        assert_eq!(read.expect("served").bytes[0], 3, "chunk {chunk} lost what the older head acknowledged last");
    }
    kept.len()
}

/// A node that lives has its sessions, whatever somebody did to the map.
pub fn a_session_that_is_gone_is_said_again(seed: u64) {
    let cluster = Cluster::new(seed, 1);
    cluster.pass(Duration::from_secs(3));
    let sessions = || {
        let map = cluster.map();
        cluster.run(0, async move { map.list(keys::SESSIONS).await.expect("readable").items })
    };
    let before = sessions();
    assert_eq!(before.len(), NODES);
    let (map, gone) = (cluster.map(), before.iter().map(|item| item.key.clone()).collect::<Vec<_>>());
    cluster.run(0, async move {
        let transaction = gone.iter().fold(Transaction::new(), |transaction, key| transaction.delete(key));
        map.transact(transaction).await.expect("the map answers");
    });
    cluster.pass(Duration::from_secs(8));
    let said =
        |items: &[Arc<cluster::KeyValue>]| items.iter().map(|item| (item.key.clone(), item.lease)).collect::<Vec<_>>();
    assert_eq!(said(&sessions()), said(&before));
}

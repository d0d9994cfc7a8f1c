//! Three nodes, three copies: a volume has one head, and another node takes it over when that one is gone.

use crate::common::{DISK, DISK_BYTES, new_volume, payload};
use cluster::{DEFAULT_POOL, MapStore, NewPool, SimMap, VolumeRecord, ensure_pool, keys, list};
use runtime::channel::cross;
use runtime::sim::{DiskOptions, NodeOptions as SimNodeOptions, SimNode, World};
use std::cell::RefCell;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use types::{CHUNK_BYTES, NodeId};
use volume::{Assembly, Blank, IoError, NodeOptions, Standing, Volume, VolumeError};

const NODES: usize = 3;
const CHUNKS: u64 = 24;
/// A node's session in the map is over, and another has taken its turn.
const TAKEN_OVER: Duration = Duration::from_secs(14);

struct Cluster {
    world: World,
    nodes: Vec<SimNode>,
    map: Arc<SimMap>,
    assemblies: RefCell<Vec<Option<Assembly>>>,
}

impl Cluster {
    fn new(seed: u64, cores: usize) -> Self {
        let world = World::new(seed);
        let nodes: Vec<SimNode> = (0..NODES).map(|_| world.add_node(cores, SimNodeOptions::default())).collect();
        nodes.iter().for_each(|node| drop(node.add_disk(DISK, DISK_BYTES, DiskOptions::default())));
        let map = SimMap::new();
        let this = Self { world, nodes, map, assemblies: RefCell::new(vec![None; NODES]) };
        let mut stores = Vec::new();
        for index in 0..NODES {
            let map = this.map();
            let devices = [PathBuf::from(DISK)];
            stores.extend(this.run(index, async move {
                Assembly::register(&map, node_id(index), &devices).await.expect("the device is made")
            }));
        }
        let map = this.map();
        let pool = NewPool { name: DEFAULT_POOL.to_owned(), replicas: 3, min_in_sync: 2, stores };
        this.run(0, async move { ensure_pool(&*map, &pool).await.map(drop).expect("the pool is made") });
        (0..NODES).for_each(|index| this.start(index));
        this
    }

    fn map(&self) -> Arc<dyn MapStore> {
        self.map.clone()
    }

    fn run<T: 'static>(&self, index: usize, future: impl Future<Output = T> + 'static) -> T {
        self.world.run_on(&self.nodes[index], 0, future).expect("the world goes on")
    }

    fn start(&self, index: usize) {
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

    fn crash(&self, index: usize) {
        self.assemblies.borrow_mut()[index] = None;
        self.nodes[index].crash();
        self.nodes[index].start();
    }

    /// Has a node do something.
    fn at<T: 'static, F: Future<Output = T> + 'static>(&self, index: usize, ask: impl FnOnce(Assembly) -> F) -> T {
        let assembly = self.assemblies.borrow()[index].clone().expect("it is up");
        self.run(index, ask(assembly))
    }

    fn pass(&self, time: Duration) {
        self.world.run_for(time);
    }

    /// Where the volume stands, as each node that is up says.
    fn standings(&self, name: &'static str) -> Vec<Option<Standing>> {
        let standing = |index: usize| {
            self.assemblies.borrow()[index].as_ref()?;
            self.at(index, move |assembly| async move { served(&assembly, name).map(|volume| volume.standing()) })
        };
        (0..NODES).map(standing).collect()
    }
}

fn node_id(index: usize) -> NodeId {
    NodeId(index as u32 + 1)
}

fn served(assembly: &Assembly, name: &str) -> Option<Volume> {
    assembly.directory().by_name(name)
}

fn of(assembly: &Assembly) -> Volume {
    served(assembly, "v").expect("it is listed")
}

/// Writes the first block of every chunk.
async fn fill(volume: &Volume, value: u8) -> Result<(), IoError> {
    for chunk in 0..CHUNKS {
        volume.write(chunk * CHUNK_BYTES, payload(&[value; 4096])).await?;
    }
    Ok(())
}

async fn check(volume: &Volume, value: u8) {
    for chunk in 0..CHUNKS {
        let read = volume.read(chunk * CHUNK_BYTES, 4096).await.expect("readable");
        assert!(read.bytes.iter().all(|byte| *byte == value), "chunk {chunk} holds {}", read.bytes[0]);
    }
}

async fn made(assembly: Assembly) {
    assembly.create_volume(new_volume("v", CHUNKS * CHUNK_BYTES)).await.expect("made");
    fill(&of(&assembly), 1).await.expect("written");
}

#[test]
fn a_volume_is_served_by_its_head_and_listed_by_all() {
    for cores in [1, 2] {
        let cluster = Cluster::new(1, cores);
        cluster.at(1, made);
        cluster.pass(Duration::from_secs(1));
        let elsewhere = Some(Standing::Elsewhere);
        assert_eq!(cluster.standings("v"), [elsewhere, Some(Standing::Here), elsewhere]);
        cluster.at(0, |assembly| async move {
            let refused = of(&assembly).read(0, 4096).await.map(drop);
            assert!(matches!(refused, Err(IoError::Elsewhere(_))), "{refused:?}");
            let refused = assembly.create_snapshot("v", "s").await.map(drop);
            assert!(matches!(refused, Err(VolumeError::Elsewhere { head: NodeId(2), .. })), "{refused:?}");
            assert!(matches!(assembly.create_volume(new_volume("v", 1 << 20)).await, Err(VolumeError::Exists(_))));
        });
        cluster.at(1, |assembly| async move {
            check(&of(&assembly), 1).await;
            assembly.create_snapshot("v", "s").await.expect("taken");
            fill(&of(&assembly), 2).await.expect("written");
            assembly.clone_volume("v", "s", "c").await.expect("cloned");
            check(&served(&assembly, "c").expect("served"), 1).await;
            check(&of(&assembly), 2).await;
            assembly.delete_volume("c").await.expect("deleted");
        });
        cluster.pass(Duration::from_secs(1));
        assert_eq!(cluster.standings("c"), [None; NODES], "what was deleted is listed nowhere");
    }
}

#[test]
fn another_node_takes_over_what_a_dead_one_served() {
    for (seed, dies) in [(1, 0), (2, 1), (3, 2)] {
        let cluster = Cluster::new(seed, 1);
        cluster.at(dies, made);
        cluster.at(dies, |assembly| async move {
            assembly.create_snapshot("v", "s").await.expect("taken");
            fill(&of(&assembly), 2).await.expect("written");
        });
        cluster.crash(dies);
        cluster.pass(TAKEN_OVER);
        let standings = cluster.standings("v");
        let heads: Vec<_> = (0..NODES).filter(|index| standings[*index] == Some(Standing::Here)).collect();
        let [head] = heads[..] else { panic!("one node is the head: {standings:?}") };
        assert_ne!(head, dies);
        cluster.at(head, |assembly| async move {
            check(&of(&assembly), 2).await;
            check(&of(&assembly).snapshot("s").expect("it is there"), 1).await;
            fill(&of(&assembly), 3).await.expect("written");
            assembly.roll_back("v", "s").await.expect("rolled back");
            check(&of(&assembly), 1).await;
        });
        cluster.start(dies);
        cluster.pass(Duration::from_secs(3));
        assert_eq!(cluster.standings("v")[dies], Some(Standing::Elsewhere), "the head stays where it is");
        cluster.at(head, |assembly| async move { check(&of(&assembly), 1).await });
        let map = cluster.map();
        cluster.run(head, async move {
            let volumes = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("readable");
            assert_eq!(volumes[0].record.head, node_id(head));
        });
    }
}

/// What a node goes on sending after others took it for dead changes nothing that the new head serves.
#[test]
fn a_head_that_slept_is_refused_and_serves_nothing_more() {
    for seed in 0..4 {
        let cluster = Cluster::new(seed, 1);
        cluster.at(0, made);
        cluster.nodes[0].pause();
        cluster.pass(TAKEN_OVER);
        let head = (1..NODES).find(|index| {
            let standing = cluster.at(*index, |assembly| async move { of(&assembly).standing() });
            standing == Standing::Here
        });
        let head = head.expect("another node is the head");
        cluster.at(head, |assembly| async move { fill(&of(&assembly), 2).await.expect("written") });
        cluster.nodes[0].resume();
        cluster.at(0, |assembly| async move {
            // As a host does whose commands lay in the sleeper's buffers: all at once, before it can have heard.
            let volume = of(&assembly);
            let (told, mut answers) = cross(8 * CHUNKS as usize);
            for (chunk, moment) in (0..CHUNKS).flat_map(|chunk| (0..4).map(move |moment| (chunk, moment))) {
                let (volume, told) = (volume.clone(), told.clone());
                runtime::spawn(async move {
                    // Behind others of the same block, before and while the map is heard.
                    runtime::sleep(Duration::from_micros(moment * chunk * 20)).await;
                    let read = volume.read(chunk * CHUNK_BYTES, 4096).await.map(|read| read.bytes[0]);
                    let written = volume.write(chunk * CHUNK_BYTES, payload(&[9; 4096])).await.map(|()| 9);
                    let _ = told.send([read, written]).await;
                });
            }
            drop(told);
            while let Ok(answer) = answers.recv().await {
                let is_refused = answer.iter().all(|answer| matches!(answer, Err(IoError::Elsewhere(_))));
                assert!(is_refused, "a head that is none serves: {answer:?}");
            }
            assert_eq!(volume.standing(), Standing::Elsewhere);
        });
        cluster.at(head, |assembly| async move { check(&of(&assembly), 2).await });
    }
}

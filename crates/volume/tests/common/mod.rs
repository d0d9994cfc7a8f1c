//! A node with one volume in the simulator, and a plain byte array that says what the volume must hold.
#![allow(dead_code)] // each test file uses its part

pub mod copies;
pub mod duties;
pub mod failing;
pub mod forwards;
pub mod growth;
pub mod hanging;
pub mod hosts;
pub mod instant;
pub mod keys;
pub mod limits;
pub mod locks;
pub mod moving;
pub mod nodes;
pub mod programs;
pub mod relocating;
pub mod silent;
pub mod status;
pub mod stopped;
pub mod together;
pub mod unknown;
pub mod untold;

use cluster::{Limits, MapStore, SimMap};
use runtime::SharedBuf;
use runtime::buf::IoBuf;
use runtime::sim::{self, DiskOptions, NodeOptions as SimNodeOptions, SimNode, World};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use types::NodeId;
use volume::{Assembly, NewVolume, NodeOptions, Payload, Volume};

pub const DISK: &str = "/disk";
/// The smallest device.
pub const DISK_BYTES: u64 = 256 << 20;

/// One simulated machine, its disk and its map.
pub struct Machine {
    pub world: World,
    pub node: SimNode,
    pub map: Arc<SimMap>,
    pub cores: usize,
}

impl Machine {
    pub fn new(seed: u64, cores: usize) -> Self {
        Self::with_disk(seed, cores, DISK_BYTES)
    }

    pub fn with_disk(seed: u64, cores: usize, disk_bytes: u64) -> Self {
        let world = World::new(seed);
        let node = world.add_node(cores, SimNodeOptions::default());
        node.add_disk(DISK, disk_bytes, DiskOptions::default());
        Self { world, node, map: SimMap::new(), cores }
    }

    pub fn options(&self) -> NodeOptions {
        NodeOptions {
            node: NodeId(1),
            address: (self.node.ip(), 0).into(),
            cores: self.node.cores(),
            devices: vec![PathBuf::from(DISK)],
            blank: volume::Blank::Format,
            map: self.map.clone() as Arc<dyn MapStore>,
        }
    }

    /// Runs a future on the first core.
    pub fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.run_on(0, future)
    }

    pub fn run_on<T: 'static>(&self, core: usize, future: impl Future<Output = T> + 'static) -> T {
        self.world.run_on(&self.node, core, future).expect("the world goes on")
    }

    pub fn start(&self) -> Assembly {
        let options = self.options();
        self.run(async move { Assembly::start(options).await.expect("the node starts") })
    }

    pub fn crash(&self) {
        self.node.crash();
        self.node.start();
    }
}

pub fn new_volume(name: &str, size_bytes: u64) -> NewVolume {
    NewVolume {
        name: name.to_owned(),
        size_bytes,
        block_size_bytes: 512,
        limits: Limits::default(),
        hosts: Default::default(),
    }
}

/// What a test does follows from its seed and nothing else.
pub struct Random(sim::Random);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(sim::Random::new(seed))
    }
    pub fn next(&self) -> u64 {
        self.0.next_u64()
    }
    pub fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }
    pub fn bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]);
        }
        bytes
    }
    /// A range of a volume: short or long, aligned or not.
    pub fn range(&self, size: u64) -> (u64, u64) {
        let longest = [512, 4096, 20_000, 70_000, 300_000, 1 << 20][self.below(6) as usize];
        let mut len = 1 + self.below(longest);
        let mut offset = self.below(size - len);
        if self.below(3) > 0 {
            offset = offset / 4096 * 4096;
            len = len.next_multiple_of(4096).min(size - offset).min(1 << 20);
        }
        (offset, len)
    }
}

pub fn shared(bytes: &[u8]) -> SharedBuf {
    IoBuf::copy_of(bytes).freeze()
}

pub fn payload(bytes: &[u8]) -> Payload {
    Payload { bytes: shared(bytes) }
}

/// Reads all of the volume.
pub async fn read_all(volume: &Volume) -> Vec<u8> {
    let mut all = Vec::with_capacity(volume.size_bytes() as usize);
    while (all.len() as u64) < volume.size_bytes() {
        let len = (volume.size_bytes() - all.len() as u64).min(1 << 20);
        let read = volume.read(all.len() as u64, len as u32).await.expect("readable");
        all.extend_from_slice(&read.bytes);
    }
    all
}

/// Where two volumes differ first.
pub fn first_difference(found: &[u8], expected: &[u8]) -> Option<usize> {
    found.iter().zip(expected).position(|(a, b)| a != b)
}

//! Snapshots while commands hang: no layer ends that a command may still write to.

use super::{DISK, DISK_BYTES, Machine, new_volume, payload};
use cluster::{LayerRecord, keys, list};
use runtime::sim::{DiskFaults, DiskOptions, SimDisk};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{Assembly, NodeOptions, VolumeError};

const OTHER_DISK: &str = "/other";
const CHUNKS: u64 = 32;
const ALWAYS: u32 = 1_000_000;
/// Long enough for everything that can end to end, and much less than a device may be silent.
pub const A_WHILE: Duration = Duration::from_secs(4);

/// A node with two devices and a volume "v", and a chunk on each device whose first block holds ones.
pub struct Scene {
    pub machine: Machine,
    pub assembly: Assembly,
    pub places: [(SimDisk, u64); 2],
}

impl Scene {
    pub fn new(seed: u64) -> Self {
        let machine = Machine::new(seed, 1);
        machine.node.add_disk(OTHER_DISK, DISK_BYTES, DiskOptions::default());
        let options = NodeOptions { devices: [DISK, OTHER_DISK].map(PathBuf::from).to_vec(), ..machine.options() };
        let assembly = machine.run(async move { Assembly::start(options).await.expect("the node starts") });
        let writing = assembly.clone();
        let chunks = machine.run(async move {
            writing.create_volume(new_volume("v", CHUNKS * CHUNK_BYTES)).await.expect("made");
            let volume = writing.directory().by_name("v").expect("served");
            let mut on_device = [None; 2];
            for chunk in 0..CHUNKS {
                // With the first one the group gets to know the volume.
                volume.write(chunk * CHUNK_BYTES, payload(&[9; 4096])).await.expect("written");
                let before = entries(&writing).await;
                volume.write(chunk * CHUNK_BYTES, payload(&[1; 4096])).await.expect("written");
                let after = entries(&writing).await;
                let device = usize::from(before[0] == after[0]);
                assert_eq!(after[device], before[device] + 1, "one entry, on one device");
                on_device[device] = Some(chunk);
            }
            on_device.map(|chunk| chunk.expect("a chunk on each device"))
        });
        let disk = |path: &str| machine.node.disk(Path::new(path)).expect("there");
        let places = [(disk(DISK), chunks[0]), (disk(OTHER_DISK), chunks[1])];
        Self { machine, assembly, places }
    }

    /// Writes elsewhere in the chunks: nothing else is on its way to the devices then.
    pub fn touch(&self, name: &str) {
        let (volume, chunks) =
            (self.assembly.directory().by_name(name).expect("served"), [0, 1].map(|d| self.places[d].1));
        self.machine.run(async move {
            for chunk in chunks {
                volume.write(chunk * CHUNK_BYTES + 8192, payload(&[3; 4096])).await.expect("written");
            }
        });
    }

    /// Begins to write a part of a block, on this device, and hangs where it reads the rest.
    pub fn write_and_hang(&self, name: &str, device: usize) -> Rc<Cell<bool>> {
        let (disk, chunk) = &self.places[device];
        let volume = self.assembly.directory().by_name(name).expect("served");
        let (offset, done) = (chunk * CHUNK_BYTES + 512, Rc::new(Cell::new(false)));
        let told = done.clone();
        disk.set_faults(DiskFaults { hang: ALWAYS, ..DiskFaults::default() });
        self.machine.node.spawn(0, async move {
            volume.write(offset, payload(&[2; 512])).await.expect("written");
            told.set(true);
        });
        self.machine.world.run_for(Duration::from_micros(50));
        disk.set_faults(DiskFaults::default());
        done
    }

    pub fn snapshot_fails(&self, name: &str, snapshot: &'static str) {
        let (assembly, name) = (self.assembly.clone(), name.to_owned());
        let taken = self.machine.run(async move { assembly.create_snapshot(&name, snapshot).await });
        assert!(matches!(taken, Err(VolumeError::NotQuiet { .. })), "{taken:?}");
    }

    /// What hangs on the device goes on.
    pub fn release(&self, device: usize) {
        self.places[device].0.set_hanging(false);
        self.machine.world.run_for(A_WHILE);
    }

    /// The block on this device is as it was made with what was written over it.
    pub fn is_written(&self, name: &str, device: usize) {
        let (volume, chunk) = (self.assembly.directory().by_name(name).expect("served"), self.places[device].1);
        let read = self.machine.run(async move { volume.read(chunk * CHUNK_BYTES, 4096).await.expect("readable") });
        let mut expected = [1; 4096];
        expected[512..1024].fill(2);
        assert!(*read.bytes == expected, "what was acknowledged is gone: {:?}", &read.bytes[510..514]);
    }

    pub fn layers(&self) -> usize {
        let map = self.machine.map.clone();
        self.machine.run(async move { list::<LayerRecord>(&*map, keys::LAYERS).await.expect("layers").len() })
    }
}

async fn entries(assembly: &Assembly) -> [u64; 2] {
    let status = assembly.status().await;
    [status.devices[0].entries, status.devices[1].entries]
}

/// A layer that one volume has left is not ended while commands of another's earlier attempt write to it.
pub fn one_volume_whose_commands_have_ended_does_not_end_a_layer_of_its_clones(seed: u64) {
    let scene = Scene::new(seed);
    let assembly = scene.assembly.clone();
    scene.machine.run(async move {
        assembly.create_snapshot("v", "s").await.expect("taken");
        assembly.clone_volume("v", "s", "c").await.expect("cloned");
        // The groups of all devices know its head.
        assembly.create_snapshot("c", "first").await.expect("taken");
        assembly.delete_snapshot("c", "first").await.expect("deleted");
        runtime::sleep(A_WHILE).await;
    });
    scene.touch("c");
    let (of_volume, of_clone) = (scene.write_and_hang("v", 0), scene.write_and_hang("c", 1));
    scene.snapshot_fails("v", "x");
    scene.snapshot_fails("c", "x");
    scene.release(1);
    assert!(of_clone.get() && !of_volume.get());
    scene.release(0);
    assert!(of_volume.get());
    scene.is_written("v", 0);
    scene.is_written("c", 1);
    assert_eq!(scene.layers(), 3, "what nobody named has ended: the snapshot and two tops are left");
}

//! A storage node: everything that ships below the daemon, on simulated cores.

use super::lock;
use super::profile::{Profile, VOLUME_BYTES};
use cluster::{Limits, MapFaults, SimMap};
use nvme::machine::Subsystem;
use nvme::serve::{Port, Target};
use runtime::TcpListener;
use runtime::sim::SimNode;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use types::NodeId;
use volume::{Assembly, Blank, NewVolume, NodeOptions, StartError};

pub const DISK: &str = "disk";
/// Large enough for four shards, so that every core has some: a smaller device is one shard's, and no core would ever
/// ask another one.
const DISK_BYTES: u64 = (1 << 30) + (64 << 20);
/// The smallest there is, of one shard: 63 segments of 4 MiB, of which 8 are kept back.
const TIGHT_DISK_BYTES: u64 = 256 << 20;
/// What it stores before it refuses new blocks: nine tenths of what is usable.
pub const TIGHT_NEW_BLOCKS_BYTES: u64 = ((63 - 8) * (4 << 20)) / 10 * 9;
/// The volume whose history is judged.
pub const VOLUME: &str = "judged";
/// The volume that comes and goes.
pub const OTHER_VOLUME: &str = "other";
pub const NQN: &str = "nqn.2026-01.io.example:sim";
pub const NVME_PORT: u16 = 4420;
pub const NBD_PORT: u16 = 10809;

/// One start of the node, filled in as it comes up.
#[derive(Default)]
pub struct Machine {
    /// What serves.
    pub serving: RefCell<Option<Serving>>,
    /// Why nothing does, and will not.
    pub refused: RefCell<Option<String>>,
}

/// A node that serves.
#[derive(Clone)]
pub struct Serving {
    pub assembly: Assembly,
    pub address: IpAddr,
    /// Namespace of the volume.
    pub nsid: u32,
    /// What the node says is wrong with it.
    pub reasons: Rc<[String]>,
}

impl Machine {
    /// Begins to start the node. What becomes of it is seen in the answer.
    pub fn start(node: &SimNode, profile: Profile, map: &Arc<SimMap>) -> Rc<Self> {
        let this = Rc::new(Self::default());
        let (machine, map, on) = (this.clone(), map.clone(), node.clone());
        node.spawn(0, async move {
            match serve(&on, profile, map).await {
                Ok(serving) => *machine.serving.borrow_mut() = Some(serving),
                Err(error) => *machine.refused.borrow_mut() = Some(error.to_string()),
            }
        });
        this
    }

    /// Whether it has come up, or never will.
    pub fn is_decided(&self) -> bool {
        self.serving.borrow().is_some() || self.refused.borrow().is_some()
    }
}

/// Bytes of the disk.
pub fn disk_bytes(profile: &Profile) -> u64 {
    if profile.tight { TIGHT_DISK_BYTES } else { DISK_BYTES }
}

/// A map that is as slow as this run wants it.
pub fn map(profile: &Profile) -> Arc<SimMap> {
    let map = SimMap::new();
    map.set_faults(MapFaults { latency_max: profile.map_latency, ..MapFaults::default() });
    map
}

async fn serve(node: &SimNode, profile: Profile, map: Arc<SimMap>) -> Result<Serving, StartError> {
    let (cores, address) = (node.cores(), node.ip());
    let core_count = cores.len();
    let devices = vec![PathBuf::from(DISK)];
    let options = NodeOptions {
        node: NodeId(1),
        address: SocketAddr::new(address, 0),
        cores,
        devices,
        blank: Blank::Format,
        map,
    };
    let assembly = Assembly::start(options).await?;
    lock::make_ready(&assembly, &profile).await?;
    let volumes = assembly.volumes();
    let nsid = volumes.iter().find(|volume| volume.name == VOLUME).expect("it was just made").nsid;
    open_doors(&assembly, address, core_count, 1..1000);
    let reasons = assembly.status().await.reasons.into();
    Ok(Serving { assembly, address, nsid, reasons })
}

/// A volume of the size that all have.
pub fn new_volume(name: &str, block_size_bytes: u32) -> NewVolume {
    NewVolume {
        name: name.to_owned(),
        size_bytes: VOLUME_BYTES,
        block_size_bytes,
        limits: Limits::default(),
        hosts: Default::default(),
    }
}

/// Both front doors, on all cores of a node; its controllers have these ids.
pub fn open_doors(assembly: &Assembly, address: IpAddr, core_count: usize, controller_ids: Range<u16>) {
    let listen = |port| TcpListener::bind((address, port).into()).expect("nobody else listens");
    let (target, workers) = Target::new(subsystem(controller_ids), core_count);
    for (core, worker) in workers.into_iter().enumerate() {
        assembly.spawn_on(core, move |directory| worker.run(directory));
    }
    runtime::spawn(target.serve(listen(NVME_PORT), Port::Io));
    let (handles, workers): (Vec<_>, Vec<_>) = (0..core_count).map(|_| nbd::worker()).unzip();
    for (core, worker) in workers.into_iter().enumerate() {
        assembly.spawn_on(core, move |directory| worker.run(directory));
    }
    runtime::spawn(nbd::serve(listen(NBD_PORT), handles));
}

fn subsystem(controller_ids: Range<u16>) -> Subsystem {
    Subsystem {
        nqn: NQN.to_owned(),
        serial: "1".to_owned(),
        model: "Cairn".to_owned(),
        firmware: "0".to_owned(),
        controller_ids,
        open_by_default: true,
    }
}

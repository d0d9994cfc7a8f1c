//! A simulated storage node with volumes and an NVMe/TCP target, and a client node.

use cluster::Limits;
use nvme::host::{Controller, HostError, HostIdentity, Namespace, Options};
use nvme::machine::Subsystem;
use nvme::serve::{Port, Target};
use runtime::sim::{DiskOptions, NodeOptions, SimNode, World};
use runtime::{IoBuf, SharedBuf, TcpListener, spawn};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use volume::{Assembly, NewVolume};

pub const NQN: &str = "nqn.2026-01.io.example:one";
pub const VOLUME_BYTES: u64 = 64 << 20;

pub fn subsystem() -> Subsystem {
    Subsystem {
        nqn: NQN.into(),
        serial: "S1".into(),
        model: "Example".into(),
        firmware: "0.1".into(),
        controller_ids: 1..1000,
        open_by_default: true,
    }
}

pub fn new_volume(name: &str, size_bytes: u64, block_size_bytes: u32) -> NewVolume {
    NewVolume { name: name.into(), size_bytes, block_size_bytes, limits: Limits::default(), hosts: Default::default() }
}

/// Two volumes: NSID of the first with 512-byte blocks, of the second with 4 KiB blocks.
pub struct Served {
    pub target: Arc<Target>,
    pub assembly: Assembly,
    pub address: SocketAddr,
    pub discovery: SocketAddr,
    pub nsids: [u32; 2],
}

/// Starts volumes and target on these cores; to be run on the first.
pub async fn start(cores: Vec<runtime::CoreHandle>, ip: std::net::IpAddr, device: &Path) -> Served {
    let count = cores.len();
    let options = volume::NodeOptions {
        node: types::NodeId(1),
        address: SocketAddr::new(ip, 0),
        cores,
        devices: vec![device.to_owned()],
        blank: volume::Blank::Format,
        map: cluster::SimMap::new(),
    };
    let assembly = Assembly::start(options).await.expect("the node starts");
    let mut nsids = [0; 2];
    for (nsid, (name, block_size_bytes)) in nsids.iter_mut().zip([("a", 512), ("b", 4096)]) {
        let new = new_volume(name, VOLUME_BYTES, block_size_bytes);
        *nsid = assembly.create_volume(new).await.expect("a volume").nsid;
    }
    let (target, workers) = Target::new(subsystem(), count);
    for (core, worker) in workers.into_iter().enumerate() {
        assembly.spawn_on(core, move |directory| worker.run(directory));
    }
    let listen = |port: Port| {
        let listener = TcpListener::bind((ip, 0).into()).expect("a free port");
        let address = listener.local_address();
        spawn(target.clone().serve(listener, port));
        address
    };
    let (address, discovery) = (listen(Port::Io), listen(Port::Discovery));
    runtime::yield_now().await;
    Served { target, assembly, address, discovery, nsids }
}

/// A world with a storage node of two cores and a client node.
pub struct Cluster {
    pub world: World,
    pub storage: SimNode,
    pub client: SimNode,
    pub served: Rc<Served>,
}

pub fn cluster(seed: u64) -> Cluster {
    let world = World::new(seed);
    let storage = world.add_node(2, NodeOptions::default());
    let client = world.add_node(1, NodeOptions::default());
    storage.add_disk("/disk", 512 << 20, DiskOptions::default());
    let (cores, ip) = (storage.cores(), storage.ip());
    let served =
        world.run_on(&storage, 0, async move { start(cores, ip, Path::new("/disk")).await }).expect("the node starts");
    Cluster { world, storage, client, served: Rc::new(served) }
}

impl Cluster {
    /// Runs a client to its end.
    pub fn run<T: 'static>(&self, client: impl Future<Output = T> + 'static) -> T {
        self.world.run_on(&self.client, 0, client).expect("the client ends")
    }

    /// Runs something on the first core of the storage node to its end.
    pub fn on_storage<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        self.world.run_on(&self.storage, 0, work).expect("it ends")
    }

    /// Options of host number `host`.
    pub fn options(&self, host: u8) -> Options {
        options(host)
    }

    /// What a client connects to.
    pub fn address(&self) -> SocketAddr {
        self.served.address
    }

    /// A connected host with its first namespace, kept for later steps of the test.
    pub fn connect(&self, options: Options) -> (Controller, Namespace) {
        let (address, nsid) = (self.address(), self.served.nsids[0]);
        self.run(async move { connect(address, &options, nsid).await.expect("connected") })
    }

    /// Starts something on the client; its outcome appears in the cell.
    pub fn start<T: 'static>(&self, client: impl Future<Output = T> + 'static) -> Rc<RefCell<Option<T>>> {
        let outcome = Rc::new(RefCell::new(None));
        let slot = outcome.clone();
        self.client.spawn(0, async move {
            let value = client.await;
            *slot.borrow_mut() = Some(value);
        });
        outcome
    }

    pub fn pass(&self, duration: Duration) {
        self.world.run_for(duration);
    }
}

pub fn options(host: u8) -> Options {
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{host:04}");
    Options::new(HostIdentity { nqn, id: [host; 16] }, NQN)
}

pub async fn connect(address: SocketAddr, options: &Options, nsid: u32) -> Result<(Controller, Namespace), HostError> {
    let controller = Controller::connect(address, options).await?;
    let namespace = controller.namespace(nsid).await?;
    Ok((controller, namespace))
}

/// Bytes that tell their position and `salt`.
pub fn pattern(len: usize, salt: u8) -> SharedBuf {
    let mut buf = IoBuf::new(len);
    for (index, byte) in buf.iter_mut().enumerate() {
        *byte = (index as u8).wrapping_mul(31) ^ (index >> 9) as u8 ^ salt;
    }
    buf.freeze()
}

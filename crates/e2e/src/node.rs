//! The shipped data path inside the test's process: what `cairn demo` runs, without the process around it.

use crate::demo::Served;
use runtime::channel::{CrossSender, cross};
use runtime::uring::{Cores, Options};
use runtime::{CoreHandle, SharedBuf, TcpListener};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use types::NodeId;
use volume::{Assembly, NewVolume, NodeOptions};

/// Opening, and answering a few reads, takes milliseconds; this is for a machine under load.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

fn options(cores: &[CoreHandle], device: PathBuf, map: Arc<dyn cluster::MapStore>) -> NodeOptions {
    NodeOptions {
        node: NodeId(1),
        address: ([127, 0, 0, 1], 0).into(),
        cores: cores.to_vec(),
        devices: vec![device],
        blank: volume::Blank::Format,
        map,
    }
}

/// Opens the device file `image` as a node does at its start and reads `ranges` (bytes) of the volume `name`. Device
/// writes on the way go into `record`.
///
/// # Errors
/// Where the node does not start, does not call itself healthy, or a read fails: in words.
pub fn open_and_read(
    image: &Path,
    map: Arc<dyn cluster::MapStore>,
    record: &Path,
    name: &str,
    ranges: Vec<(u64, u32)>,
) -> Result<Vec<SharedBuf>, String> {
    let cores = Cores::start(1, &Options { record: Some(record.to_owned()), ..Options::default() })
        .map_err(|error| error.to_string())?;
    let options = options(cores.handles(), image.to_owned(), map);
    let (sender, receiver) = mpsc::channel();
    let name = name.to_owned();
    cores.handles()[0].spawn_on(move || async move {
        let _ = sender.send(open_and_read_here(options, &name, &ranges).await);
    });
    let result = receiver.recv_timeout(ANSWER_TIME_MAX).map_err(|_| "no answer within 60 s".to_owned());
    cores.stop();
    result?
}

async fn open_and_read_here(options: NodeOptions, name: &str, ranges: &[(u64, u32)]) -> Result<Vec<SharedBuf>, String> {
    let assembly = Assembly::start(options).await.map_err(|error| format!("the node does not start: {error}"))?;
    let status = assembly.status().await;
    if !status.reasons.is_empty() {
        return Err(format!("the node is not healthy: {}", status.reasons.join("; ")));
    }
    let volume = assembly.directory().by_name(name).ok_or("the volume is gone")?;
    let mut all = Vec::with_capacity(ranges.len());
    for &(offset, len) in ranges {
        let data = volume.read(offset, len).await.map_err(|error| format!("read of {offset}+{len}: {error}"))?;
        all.push(data.bytes);
    }
    assembly.stop().await;
    Ok(all)
}

/// What a node has spent so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Calls of `io_uring_enter`.
    pub enters: u64,
    /// Operations done at once, each a system call of its own.
    pub inline_operations: u64,
    /// Records written.
    pub appends: u64,
    /// Bytes written to the device.
    pub device_bytes_written: u64,
    /// Syncs that the device has done: none where it has no volatile cache.
    pub syncs: u64,
}

impl std::ops::Sub for Spent {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        Self {
            enters: self.enters - before.enters,
            inline_operations: self.inline_operations - before.inline_operations,
            appends: self.appends - before.appends,
            device_bytes_written: self.device_bytes_written - before.device_bytes_written,
            syncs: self.syncs - before.syncs,
        }
    }
}

/// A node that serves one volume by NBD and NVMe/TCP, on a core of its own.
pub struct Node {
    cores: Cores,
    asks: CrossSender<mpsc::Sender<Spent>>,
    served: Served,
}

impl Node {
    /// Makes `device` of `device_bytes` and the volume `name` on it, and serves it.
    ///
    /// # Panics
    /// If any of it fails.
    pub fn start(
        device: &Path,
        device_bytes: u64,
        map: Arc<dyn cluster::MapStore>,
        record: Option<PathBuf>,
        (name, size_bytes): (&str, u64),
    ) -> Self {
        let file = std::fs::File::create_new(device).expect("a new device file");
        file.set_len(device_bytes).expect("room for a sparse file");
        let cores = Cores::start(1, &Options { record, ..Options::default() }).expect("io_uring works here");
        let options = options(cores.handles(), device.to_owned(), map);
        let new = NewVolume {
            name: name.into(),
            size_bytes,
            block_size_bytes: 512,
            limits: Default::default(),
            hosts: Default::default(),
        };
        let (sender, receiver) = mpsc::channel();
        let (asks, mut asked) = cross::<mpsc::Sender<Spent>>(1);
        cores.handles()[0].spawn_on(move || async move {
            let assembly = Assembly::start(options).await.expect("a node on a fresh device");
            let volume = assembly.create_volume(new).await.expect("a volume on an empty node");
            let nbd = serve_nbd(&assembly);
            let nvme = serve_nvme(&assembly);
            let (nqn, nsid, size_bytes) = (NQN.to_owned(), volume.nsid, volume.size_bytes);
            let _ = sender.send(Served { nbd, nvme, nqn, nsid, size_bytes });
            while let Ok(answer) = asked.recv().await {
                let _ = answer.send(spent(&assembly).await);
            }
        });
        let served = receiver.recv_timeout(ANSWER_TIME_MAX).expect("the node starts within 60 s");
        Self { cores, asks, served }
    }

    /// How to reach its volume.
    pub fn served(&self) -> &Served {
        &self.served
    }

    /// What it has spent so far.
    pub fn spent(&self) -> Spent {
        let (sender, receiver) = mpsc::channel();
        assert!(self.asks.try_send(sender).is_ok(), "one question at a time");
        receiver.recv_timeout(ANSWER_TIME_MAX).expect("the node answers")
    }

    /// Ends it where it stands, as a kill would.
    pub fn end(self) {
        self.cores.stop();
    }
}

const NQN: &str = "nqn.2026-01.test:cairn-e2e";

fn any_port() -> TcpListener {
    TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port")
}

fn serve_nbd(assembly: &Assembly) -> SocketAddr {
    let listener = any_port();
    let address = listener.local_address();
    let (handle, worker) = nbd::worker();
    runtime::spawn(worker.run(assembly.directory()));
    runtime::spawn(nbd::serve(listener, vec![handle]));
    address
}

fn serve_nvme(assembly: &Assembly) -> SocketAddr {
    let listener = any_port();
    let address = listener.local_address();
    let subsystem = nvme::machine::Subsystem {
        nqn: NQN.into(),
        serial: "e2e".into(),
        model: "Cairn".into(),
        firmware: "0".into(),
        controller_ids: 1..0xfff0,
        open_by_default: true,
    };
    let (target, workers) = nvme::serve::Target::new(subsystem, 1);
    for worker in workers {
        runtime::spawn(worker.run(assembly.directory()));
    }
    runtime::spawn(target.serve(listener, nvme::serve::Port::Io));
    address
}

async fn spent(assembly: &Assembly) -> Spent {
    let status = assembly.status().await;
    let counters = runtime::uring::counters();
    Spent {
        enters: counters.enters,
        inline_operations: counters.inline_operations,
        appends: status.devices.iter().map(|device| device.appends).sum(),
        device_bytes_written: status.devices.iter().map(|device| device.device_bytes_written).sum(),
        syncs: counters.syncs,
    }
}

//! Many hosts on many namespaces: the load of one process, spread over controllers, connections and volumes.

use nvme::host::{Controller, HostIdentity, Namespace, Options};
use runtime::SharedBuf;
use runtime::sim::Random;
use std::io;
use std::net::SocketAddr;

/// Writes of [`Hosts::fill`]; sizes of volumes are multiples of it.
const FILL_BYTES: u32 = 1 << 20;

/// What to connect to, and how.
#[derive(Clone, Debug)]
pub struct HostsOptions {
    /// Where NVMe/TCP is spoken.
    pub address: SocketAddr,
    /// The subsystem.
    pub nqn: String,
    /// The first namespace.
    pub nsid: u32,
    /// So many namespaces, each of the size of the first.
    pub namespaces: u32,
    /// So many controllers, each of a host of its own.
    pub controllers: u32,
    /// I/O queues of each controller, each a connection.
    pub queues: u16,
    /// Header and data digests.
    pub digests: bool,
    /// Requests under way at once, over all.
    pub depth: u32,
}

/// Open namespaces, dealt to the controllers in turn.
pub struct Hosts {
    /// They live as long as they are held.
    controllers: Vec<Controller>,
    /// Each number's controller is the one of that number, counted round.
    namespaces: Vec<Namespace>,
    /// The first so many are each another volume.
    volumes: usize,
}

impl Hosts {
    /// Connects all.
    ///
    /// # Errors
    /// If a connection or a namespace is refused.
    pub async fn connect(options: &HostsOptions) -> io::Result<Self> {
        let mut controllers = Vec::new();
        for number in 0..options.controllers {
            controllers.push(connect(options, number).await?);
        }
        // Each controller has a namespace, and each namespace a controller.
        let mut namespaces = Vec::new();
        for number in 0..options.controllers.max(options.namespaces) {
            let controller = &controllers[(number % options.controllers) as usize];
            let nsid = options.nsid + number % options.namespaces;
            namespaces.push(controller.namespace(nsid).await.map_err(io::Error::other)?);
        }
        Ok(Self { controllers, namespaces, volumes: options.namespaces as usize })
    }

    /// Bytes of each namespace.
    pub fn namespace_bytes(&self) -> u64 {
        self.namespaces[0].size_bytes()
    }

    /// Where one of the load's workers sends its next request: always by the same controller, as a program of that host
    /// does, to one of its namespaces at random. A worker that went from host to host would leave each connection with
    /// single requests, which no real hosts do.
    pub fn namespace(&self, worker: u32, random: &Random) -> &Namespace {
        let controllers = self.controllers.len();
        let first = worker as usize % controllers;
        let mine = (self.namespaces.len() - first).div_ceil(controllers);
        &self.namespaces[first + controllers * random.below(mine as u64) as usize]
    }

    /// Writes all volumes from end to end, so that reads find something.
    ///
    /// # Errors
    /// The first of a write.
    pub async fn fill(&self, payload: impl Fn(u32) -> SharedBuf) -> io::Result<()> {
        let payload = payload(FILL_BYTES);
        for volume in &self.namespaces[..self.volumes] {
            for at in (0..volume.size_bytes()).step_by(FILL_BYTES as usize) {
                volume.write(at, payload.clone()).await.map_err(io::Error::other)?;
            }
        }
        Ok(())
    }
}

async fn connect(options: &HostsOptions, number: u32) -> io::Result<Controller> {
    let mut id = [0x42; 16];
    id[12..].copy_from_slice(&number.to_le_bytes());
    let host =
        HostIdentity { nqn: format!("nqn.2014-08.org.nvmexpress:uuid:6b1f6f0e-0c0e-4b83-8a5c-5e0f{number:08x}"), id };
    let mut wanted = Options::new(host, &options.nqn);
    wanted.io_queues = options.queues;
    // A request finds room in whatever queue it comes to.
    wanted.queue_depth = options.depth.clamp(1, 1000) as u16 + 1;
    wanted.header_digest = options.digests;
    wanted.data_digest = options.digests;
    Controller::connect(options.address, &wanted).await.map_err(io::Error::other)
}

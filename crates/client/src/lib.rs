//! # client: a program that is the head of the volumes it opens
//!
//! ```text
//!   Client ── open ──► Volume ── queue ──► Queue: submit, poll, wait        any thread, one at a time per queue
//!     │                                      │ a ring each way
//!     └──────────── one core ◄───────────────┘ volume::Assembly, as of a node without devices; it runs on the
//!                                              thread that waits, else on its own
//! ```
//!
//! **Promises.** A write that is completed is durable on every in-sync copy. Requests of a queue that overlap are done in the order
//! in which they were submitted. What is asked of a volume that was lost to another head ends in `ESTALE`, and is not done later.
//! No lock, no allocation and no system call per request here, while both sides are busy.
//!
//! **Never.** No policy: a request that no group answers waits. No second head: a volume that others use is not opened.
//!
//! Main types: [`Client`], [`Volume`], [`Queue`], [`Config`]. For C: `crates/libcairn`. See docs/libcairn.md.

mod config;
mod lane;
mod queue;
mod reactor;
mod ring;

pub use config::{Config, ConfigError, DEFAULT_FILES, FILE_VARIABLE};
pub use lane::{Completion, Operation, Request};
pub use queue::{DEPTH_MAX, Queue};

use reactor::{Order, Reactor};
use std::io;
use std::sync::Arc;
use volume::{StartError, VolumeError};

/// Why there is no client, or no volume.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Its file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The map cannot be reached.
    #[error("the cluster's map cannot be used: {0}")]
    Map(Box<node::StartError>),
    /// The system gives no thread or no descriptor.
    #[error("the client cannot run here: {0}")]
    System(#[from] io::Error),
    /// The cluster.
    #[error("the client cannot join: {0}")]
    Start(Box<StartError>),
    /// The volume.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Nobody answers.
    #[error("the client has ended")]
    Ended,
}

/// A connection to a cluster. Clones share it; it ends with the last of them and of its volumes.
#[derive(Clone)]
pub struct Client(Arc<Reactor>);

impl Client {
    /// Connects to the cluster that the configuration names, with a core of its own.
    ///
    /// # Errors
    /// A map that does not answer, or holds no cluster.
    pub fn connect(config: &Config) -> Result<Self, ClientError> {
        let map = node::open_shared_map(&config.map).map_err(|error| ClientError::Map(Box::new(error)))?;
        // It keeps no copy of the map: what it acts on waits for those of nodes.
        let map = cluster::CopiedMap::new(map, cluster::Copies::of_others());
        Ok(Self(Arc::new(Reactor::start(map, config.busy_poll)?)))
    }

    /// What the cluster calls this client: `client-7`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Becomes the head of a volume.
    ///
    /// # Errors
    /// No such volume; it is locked, or others use it.
    pub fn open(&self, name: &str) -> Result<Volume, ClientError> {
        let opened = self.0.ask(|reply| Order::Open(name.to_owned(), reply))??;
        let reactor::Opened { number, size_bytes, block_size_bytes } = opened;
        Ok(Volume { reactor: self.0.clone(), number: Some(number), size_bytes, block_size_bytes })
    }
}

/// A volume that this program is the head of. Given back when dropped.
pub struct Volume {
    reactor: Arc<Reactor>,
    number: Option<u64>,
    size_bytes: u64,
    block_size_bytes: u32,
}

impl Volume {
    /// Its size in bytes, when it was opened.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The block that NVMe hosts see, 512 or 4,096 bytes. Here any range will do; whole blocks of 4 KiB are fastest.
    pub fn block_size_bytes(&self) -> u32 {
        self.block_size_bytes
    }

    /// A queue for one thread at a time, with room for `depth` requests, 1 to [`DEPTH_MAX`].
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn queue(&self, depth: u32) -> Result<Queue, ClientError> {
        let number = self.number.ok_or(ClientError::Ended)?;
        Queue::begin(self.reactor.clone(), number, depth)
    }

    /// Gives it back. Its queues have ended before, or get `ESTALE` from now on.
    ///
    /// # Errors
    /// Nobody has heard that it is given back: a node takes it when this client's session is over, 10 s after its end.
    pub fn close(mut self) -> Result<(), ClientError> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), ClientError> {
        match self.number.take() {
            Some(number) => Ok(self.reactor.ask(|reply| Order::Close(number, reply))??),
            None => Ok(()),
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Whoever wants to know closes it.
        let _ = self.give_back();
    }
}

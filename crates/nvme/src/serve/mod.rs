//! The target on the runtime: connections accepted on one core, each served on the core its queue belongs to, by the
//! volumes of that core.
//!
//! ```text
//!   Target::serve(listener)             core 0                     core 1
//!     accept, ICReq, Connect ──────►  Worker ── connections      Worker ── connections
//!       (queue id mod cores)            │  receive │ command │ send
//!                                       ▼
//!                                    Directory of the core ── Volume
//! ```
//!
//! Per connection one task receives and admits, one sends, and each command is a task of its own until its volume
//! answers; answers of one turn of the loop leave in one send. A command is executed only if its connection was alive
//! when it was admitted: `flow` says why.

mod accept;
mod budget;
mod command;
mod complaints;
mod connection;
mod core;
mod flow;
mod hold;

use crate::limits;
use crate::machine::{ConnectRequest, Connection, ControllerHandle, Endpoints, Registry, Subsystem};
use runtime::channel::{CrossReceiver, CrossSender, cross};
use runtime::{DetachedStream, TcpListener};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use types::NodeId;
use volume::Directory;

/// Orders under way to one core.
const MAX_ORDERS: usize = 1024;

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// I/O and discovery controllers (4420).
    Io,
    /// Discovery controllers only (8009).
    Discovery,
}

/// What one core is told by another.
enum Order {
    /// A connection that has sent its Connect.
    Serve(Box<Handover>),
    /// End a controller's queues here: its I/O queues, or all.
    End {
        controller: Arc<ControllerHandle>,
        io_queues_only: bool,
        done: CrossSender<()>,
    },
    /// Take back this command of this queue; whether it ended as aborted.
    Abort {
        controller: Arc<ControllerHandle>,
        queue: u16,
        command: u16,
        done: CrossSender<bool>,
    },
    /// Return when nothing runs on this namespace for hosts that may not use it.
    FenceHosts {
        nsid: u32,
        done: CrossSender<()>,
    },
    /// Admit nothing more; return when what was admitted is answered, or after a while.
    Drain {
        done: CrossSender<()>,
    },
    /// Somebody began or ended to listen, here or elsewhere: the discovery log changed.
    PortalsChanged,
    Stop,
}

/// Somebody who listens.
struct Portal {
    /// Never given twice.
    id: u16,
    address: SocketAddr,
    port: Port,
}

/// Where another node serves the same subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherNode {
    /// Which.
    pub node: NodeId,
    /// The number of its first port: no two nodes have ports of one number.
    pub port_id: u16,
    /// Its I/O controllers.
    pub address: SocketAddr,
}

/// A portal in the list, until it is dropped.
struct OpenPortal {
    target: Arc<Target>,
    id: u16,
}

impl OpenPortal {
    fn new(target: Arc<Target>, address: SocketAddr, port: Port) -> Self {
        let id = target.portal_ids.fetch_add(1, Ordering::Relaxed);
        target.portals().push(Portal { id, address, port });
        target.portals_changed();
        Self { target, id }
    }
}

impl Drop for OpenPortal {
    fn drop(&mut self) {
        self.target.portals().retain(|portal| portal.id != self.id);
        self.target.portals_changed();
    }
}

/// Where admin queues live, and with them what reads the discovery log.
const ADMIN_CORE: usize = 0;

/// A connection between accept and its core.
struct Handover {
    stream: DetachedStream,
    machine: Connection,
    request: ConnectRequest,
    endpoints: Endpoints,
    port: Port,
}

/// What the volumes of one core have done; written by that core alone.
#[derive(Default)]
#[repr(align(64))]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl Counters {
    /// Adds without a locked instruction: there is one writer.
    fn add(counter: &AtomicU64, value: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }
}

/// The NVMe/TCP target of a process: shared by its cores.
pub struct Target {
    registry: Registry,
    cores: Vec<CrossSender<Order>>,
    counters: Vec<Counters>,
    portals: Mutex<Vec<Portal>>,
    others: Mutex<Vec<OtherNode>>,
    portal_ids: AtomicU16,
    discovery_generation: AtomicU64,
    stopped: AtomicBool,
}

/// One core's part, to be run there.
pub struct Worker {
    target: Arc<Target>,
    index: usize,
    orders: CrossReceiver<Order>,
}

impl Target {
    /// A target and its workers, one for each core; run each on its core before connections are accepted.
    ///
    /// # Panics
    /// If `cores` is zero.
    pub fn new(subsystem: Subsystem, cores: usize) -> (Arc<Self>, Vec<Worker>) {
        assert!(cores > 0);
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..cores).map(|_| cross(MAX_ORDERS)).unzip();
        let first_port_id = subsystem.controller_ids.start;
        let target = Arc::new(Self {
            registry: Registry::new(subsystem),
            cores: senders,
            counters: (0..cores).map(|_| Counters::default()).collect(),
            portals: Mutex::default(),
            others: Mutex::default(),
            portal_ids: AtomicU16::new(first_port_id),
            discovery_generation: AtomicU64::new(1),
            stopped: AtomicBool::new(false),
        });
        let worker = |(index, orders)| Worker { target: target.clone(), index, orders };
        let workers = receivers.into_iter().enumerate().map(worker).collect();
        (target, workers)
    }

    /// The connected controllers.
    pub fn controllers(&self) -> Vec<Arc<ControllerHandle>> {
        self.registry.controllers()
    }

    /// Accepts connections; never ends by itself. Cancel it to stop listening.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, port: Port) {
        let _open = OpenPortal::new(self.clone(), listener.local_address(), port);
        accept::accept(self, listener, port).await;
    }

    /// Returns when nothing runs any more on a namespace for hosts that may not use it: to be called when the volume's
    /// directory entry says on every core who may. What such a host still sends is refused.
    pub async fn fence_hosts(&self, nsid: u32) {
        let (done, mut fenced) = cross(self.cores.len());
        for core in &self.cores {
            let _ = core.send(Order::FenceHosts { nsid, done: done.clone() }).await;
        }
        drop(done);
        while fenced.recv().await.is_ok() {}
    }

    /// Admits nothing more on any core; returns when what was admitted has been answered, after
    /// [`DRAIN_TIMEOUT`](limits::DRAIN_TIMEOUT) in any case. To be called before [`stop`](Self::stop), while the volumes
    /// are still there.
    pub async fn drain(&self) {
        let (done, mut drained) = cross(self.cores.len());
        for core in &self.cores {
            let _ = core.send(Order::Drain { done: done.clone() }).await;
        }
        drop(done);
        while drained.recv().await.is_ok() {}
    }

    /// Closes all connections and ends the workers. Commands that were admitted are executed; their answers go nowhere.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        for core in &self.cores {
            // A queue that is full is being worked on: the worker looks at `stopped` after each order.
            let _ = core.try_send(Order::Stop);
        }
    }

    /// The other nodes of the cluster that serve clients now: the discovery log names them, too. Its readers are told if it is
    /// different.
    pub fn set_others(&self, others: Vec<OtherNode>) {
        let mut named = self.others();
        if *named != others {
            *named = others;
            drop(named);
            self.portals_changed();
        }
    }

    fn others(&self) -> MutexGuard<'_, Vec<OtherNode>> {
        self.others.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn portals_changed(&self) {
        // A core with so many orders waiting has other troubles; the log itself is right all the same.
        let _ = self.cores[ADMIN_CORE].try_send(Order::PortalsChanged);
    }

    fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn portals(&self) -> MutexGuard<'_, Vec<Portal>> {
        self.portals.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// The core that a queue belongs to.
    fn core_of(&self, queue: u16) -> &CrossSender<Order> {
        &self.cores[usize::from(queue) % self.cores.len()]
    }

    /// Takes a command of a controller back, if it waits; whether it ended as aborted.
    async fn abort(&self, controller: &Arc<ControllerHandle>, queue: u16, command: u16) -> bool {
        let (done, mut aborted) = cross(1);
        let order = Order::Abort { controller: controller.clone(), queue, command, done };
        // A core that has stopped, or does not know the queue, drops the sender.
        self.core_of(queue).send(order).await.is_ok() && aborted.recv().await.unwrap_or(false)
    }

    /// Ends a controller's queues on all cores; returns when none of them admits a command any more.
    async fn end_queues(&self, controller: &Arc<ControllerHandle>, io_queues_only: bool) {
        if !io_queues_only {
            controller.end();
        }
        let (done, mut ended) = cross(self.cores.len());
        for core in &self.cores {
            let order = Order::End { controller: controller.clone(), io_queues_only, done: done.clone() };
            // A core that has stopped has no queues left.
            let _ = core.send(order).await;
        }
        drop(done);
        while ended.recv().await.is_ok() {}
    }
}

impl Worker {
    /// Serves connections with the volumes of `directory` until [`Target::stop`].
    pub async fn run(self, directory: Directory) {
        let Self { target, index, mut orders } = self;
        let core = core::Core::new(target.clone(), index, directory);
        let tasks = core.start();
        while let Ok(order) = orders.recv().await {
            match order {
                Order::Serve(handover) if !target.has_stopped() => {
                    runtime::spawn(connection::serve(core.clone(), *handover));
                }
                Order::End { controller, io_queues_only, done } => {
                    core.end_queues(&controller, io_queues_only);
                    let directory = core.directory.clone();
                    runtime::spawn(async move {
                        // What was called before must not be on its way to another core when the answer is given.
                        directory.fence().await;
                        let _ = done.try_send(());
                    });
                }
                Order::Abort { controller, queue, command, done } => {
                    if let Some(connection) = core.queue_of(&controller, queue) {
                        runtime::spawn(async move {
                            let _ = done.try_send(connection.take_back(command).await);
                        });
                    }
                }
                Order::FenceHosts { nsid, done } => {
                    let core = core.clone();
                    runtime::spawn(async move {
                        core.fence_hosts(nsid).await;
                        let _ = done.try_send(());
                    });
                }
                Order::Drain { done } => {
                    let core = core.clone();
                    runtime::spawn(async move {
                        core.drain().await;
                        let _ = done.try_send(());
                    });
                }
                Order::PortalsChanged => core.discovery_changed(),
                Order::Serve(_) | Order::Stop => {}
            }
            if target.has_stopped() {
                break;
            }
        }
        tasks.into_iter().for_each(runtime::TaskHandle::cancel);
        core.end_all();
    }
}

const _: () = assert!(MAX_ORDERS >= limits::MAX_UNCONNECTED, "a burst of Connects fits");

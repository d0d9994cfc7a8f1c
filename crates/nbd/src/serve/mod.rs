//! Connections on the runtime: accepted on one core, dealt to all, served by the volumes of the core they are on.
//!
//! ```text
//!   serve(listener) ──detached stream──▶ WorkerHandle ──▶ Worker on core 0 ──▶ its connections
//!                   └─────────────────▶ WorkerHandle ──▶ Worker on core 1 ──▶ its connections
//! ```
//!
//! Per connection one task reads and admits, one sends, and each part of a request is a task of its own until the
//! volume answers. Replies of one turn of the loop leave in one send.

mod budget;
mod connection;
mod doubt;
mod exports;
mod hold;
mod pulse;

use budget::Budget;
use connection::Connection;
use pulse::Pulse;
use runtime::channel::{CrossReceiver, CrossSender, cross};
use runtime::{DetachedStream, TcpListener};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use volume::Directory;

/// A wait longer than this may have outlived the host: it can have given the connection up, be back on another one and
/// have written there. What was received is then executed only after a sign of life (see `doubt`).
pub use volume::ALIVE_FOR;
/// Longest time from accept to the end of negotiation: longer holds a place for nothing.
pub const NEGOTIATION_TIME_MAX: Duration = Duration::from_secs(10);
/// Connections of one core; one more is closed as soon as it comes.
pub const CONNECTIONS_PER_CORE_MAX: usize = 1024;
/// What a stop waits for requests in flight.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a client may leave its answers untaken while the core has no room for the requests of others.
const STALL_TIME_MAX: Duration = Duration::from_secs(30);
/// How often that is looked at.
const STALL_CHECK_PERIOD: Duration = Duration::from_secs(5);
/// Accepted connections on their way to a core.
const HANDED_OVER_MAX: usize = 64;
/// Pause after an accept that failed (no descriptors left): the next try would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The two ends of one core's door: the handle for [`serve`], the worker to be run on its core.
pub fn worker() -> (WorkerHandle, Worker) {
    let (sender, receiver) = cross(HANDED_OVER_MAX);
    let connections = Arc::new(AtomicUsize::new(0));
    (WorkerHandle { sender, connections: connections.clone() }, Worker { receiver, connections })
}

/// Hands connections to one core. When all its handles are gone, the worker ends.
#[derive(Clone)]
pub struct WorkerHandle {
    sender: CrossSender<DetachedStream>,
    connections: Arc<AtomicUsize>,
}

/// How many connections one core has.
#[derive(Clone)]
pub struct ConnectionCount(Arc<AtomicUsize>);

impl ConnectionCount {
    /// As of now.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl WorkerHandle {
    /// What tells how many connections the core has; it does not keep the worker.
    pub fn count(&self) -> ConnectionCount {
        ConnectionCount(self.connections.clone())
    }
}

/// Serves connections on one core.
pub struct Worker {
    receiver: CrossReceiver<DetachedStream>,
    connections: Arc<AtomicUsize>,
}

/// Accepts connections and gives each to the core that has fewest; never ends by itself. Cancel it to stop: the
/// workers answer what is in flight, close their connections and end.
///
/// # Panics
/// If `workers` is empty.
pub async fn serve(listener: TcpListener, workers: Vec<WorkerHandle>) {
    assert!(!workers.is_empty());
    loop {
        let Ok(stream) = listener.accept().await else {
            runtime::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(worker) = workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed)) else {
            return;
        };
        if worker.connections.load(Ordering::Relaxed) >= CONNECTIONS_PER_CORE_MAX {
            continue; // dropping the stream closes it
        }
        worker.connections.fetch_add(1, Ordering::Relaxed);
        if worker.sender.send(stream.detach()).await.is_err() {
            return;
        }
    }
}

/// The connections of one core.
type Connections = Rc<RefCell<Vec<Rc<Connection>>>>;

impl Worker {
    /// Serves the volumes of `directory` until all handles are gone; then answers what is in flight and closes.
    pub async fn run(mut self, directory: Directory) {
        let budget = Rc::new(Budget::default());
        let connections = Connections::default();
        let pulse = Rc::new(Pulse::default());
        let beating = pulse.clone();
        let beat = runtime::spawn(async move { beating.beat().await });
        let watch = runtime::spawn(look_after(connections.clone(), budget.clone()));
        while let Ok(stream) = self.receiver.recv().await {
            let connection = Connection::new(stream.attach(), directory.clone(), budget.clone(), pulse.clone());
            connections.borrow_mut().push(connection.clone());
            let (connections, count) = (connections.clone(), self.connections.clone());
            runtime::spawn(async move {
                connection.clone().run().await;
                connections.borrow_mut().retain(|other| !Rc::ptr_eq(other, &connection));
                count.fetch_sub(1, Ordering::Relaxed);
            });
        }
        watch.cancel();
        beat.cancel();
        let open = connections.borrow().clone();
        open.iter().for_each(|connection| connection.stop());
        let deadline = runtime::now() + STOP_TIME_MAX;
        for connection in &open {
            let left = deadline.since(runtime::now());
            let _ = runtime::timeout(left, connection.finished()).await;
            connection.abort();
        }
    }
}

/// Ends clients that hold the core's budget with answers they do not take, and gives memory back.
async fn look_after(connections: Connections, budget: Rc<Budget>) {
    loop {
        runtime::sleep(STALL_CHECK_PERIOD).await;
        connections.borrow().iter().for_each(|connection| connection.shrink());
        if budget.is_exhausted() {
            connections.borrow().iter().for_each(|connection| connection.abort_if_stalled(STALL_TIME_MAX));
        }
    }
}

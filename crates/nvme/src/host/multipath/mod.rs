//! A host with several paths to one subsystem, which behaves as Linux does with native multipath.
//!
//! ```text
//!   Multipath::new(addresses, options)      one task per path: connect, read the ANA log, follow its events, connect again
//!     .namespace(nsid) ──► Namespace        read, write, compare and write, write zeroes, deallocate
//!     .command(nsid, send)                  any command, made anew for each attempt
//! ```
//!
//! A command goes to a path that is *optimized* for its namespace. If it ends with a status that speaks of the path (ANA
//! inaccessible, transition, persistent loss), or with its connection, it waits for a path and is sent again, as a **new
//! command**. If it has no answer within the I/O timeout, all that is under way on that controller is cancelled, its
//! connections are closed, and each of those commands is sent again, on another path or on the next connection to the
//! same node. Nobody waits for what was sent before: a target that executes it late executes a ghost, and that it must
//! not do is what this host is there to show.

mod namespace;
mod path;

pub use namespace::{Namespace, compare_and_write};

use super::{Controller, HostError};
use crate::wire::Status;
use path::Path;
use runtime::channel::WaitList;
use runtime::{sleep, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// How a host with several paths connects, and what it waits for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Each of its controllers, with its keep alive timeout.
    pub controller: super::Options,
    /// A command without an answer for so long resets its controller (Linux: `nvme_core.io_timeout`).
    pub io_timeout: Duration,
    /// A controller that is not connected after so long is given up.
    pub connect_timeout: Duration,
    /// Between two attempts to connect, and between a reset and the first (Linux: `reconnect_delay`).
    pub reconnect_delay: Duration,
    /// A namespace that stays in *change* for longer than this resets the controller: ANATT and some more.
    pub transition_timeout: Duration,
    /// A command that finds no path for so long fails; none: it waits (Linux: `ctrl_loss_tmo`, −1).
    pub no_path_timeout: Option<Duration>,
    /// How often a command is sent again that failed for no reason of its path, and may be (Linux: `nvme_core.max_retries`).
    pub retries: u32,
    /// Before such a command is sent again.
    pub retry_delay: Duration,
}

impl Options {
    /// What Linux does unless told otherwise; commands wait for a path without end.
    pub fn new(controller: super::Options) -> Self {
        let transition = Duration::from_secs(u64::from(crate::limits::ANA_TRANSITION_SECONDS));
        Self {
            controller,
            io_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(60),
            reconnect_delay: Duration::from_secs(10),
            transition_timeout: transition + transition / 10,
            no_path_timeout: None,
            retries: 5,
            retry_delay: Duration::from_secs(2),
        }
    }
}

/// What a host has been through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Controllers that were connected.
    pub connected: u64,
    /// Controllers that were reset because a command had no answer in time.
    pub timed_out: u64,
    /// Commands that were sent again because of their path.
    pub requeued: u64,
    /// Times that the ANA log was read.
    pub ana_reads: u64,
}

/// See the module. Clones share it; [`close`](Self::close) ends it.
#[derive(Clone)]
pub struct Multipath(Rc<Inner>);

struct Inner {
    options: Options,
    paths: Vec<Rc<Path>>,
    /// A path came up, or its states are others.
    changed: WaitList,
    /// The path that a namespace is used through, until that fails.
    current: RefCell<BTreeMap<u32, usize>>,
    counts: Cell<Counts>,
    is_closed: Cell<bool>,
}

impl Inner {
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }
}

/// Why an attempt came to nothing.
enum Failed {
    /// The controller does not know the namespace.
    Missing,
    Command(HostError),
}

/// A path that a command is sent on: of this life of it.
struct Route {
    path: Rc<Path>,
    controller: Controller,
}

impl Multipath {
    /// Begins to connect to all of these; commands wait for the first that is there.
    pub fn new(addresses: &[SocketAddr], options: Options) -> Self {
        let inner = Inner {
            options,
            paths: addresses.iter().map(|address| Rc::new(Path::new(*address))).collect(),
            changed: WaitList::default(),
            current: RefCell::default(),
            counts: Cell::default(),
            is_closed: Cell::default(),
        };
        let this = Self(Rc::new(inner));
        for path in &this.0.paths {
            spawn(path.clone().run(this.0.clone()));
        }
        this
    }

    /// Disconnects for good. What is under way, or waits for a path, fails.
    pub fn close(&self) {
        self.0.is_closed.set(true);
        self.0.paths.iter().for_each(|path| path.close());
        self.0.changed.wake_all();
    }

    /// A namespace, whether or not there is a path to it yet.
    pub fn namespace(&self, nsid: u32) -> Namespace {
        Namespace::new(self.clone(), nsid)
    }

    /// What it has been through.
    pub fn counts(&self) -> Counts {
        self.0.counts.get()
    }

    /// What each path says of a namespace, as the ANA log has it (0: nothing that counts now); none: not connected.
    pub fn path_states(&self, nsid: u32) -> Vec<Option<u8>> {
        self.0.paths.iter().map(|path| path.state(nsid)).collect()
    }

    /// Does what `send` says, on a path that is there, until it has an answer that is not of the path. `send` is called
    /// for each attempt, and makes a command of its own each time: what was sent before may or may not have been done.
    ///
    /// # Errors
    /// What a target answered of the command itself, or [`HostError::NoPath`].
    pub async fn command<T, F: Future<Output = Result<T, HostError>>>(
        &self,
        nsid: u32,
        mut send: impl FnMut(super::Namespace) -> F,
    ) -> Result<T, HostError> {
        let mut retries = 0;
        loop {
            let route = self.route(nsid).await?;
            let attempt = async {
                match route.path.namespace(&route.controller, nsid).await {
                    Ok(namespace) => send(namespace).await.map_err(Failed::Command),
                    // Not known there yet, or no more: what is there is followed by its log.
                    Err(HostError::Unsupported(_)) => Err(Failed::Missing),
                    Err(error) => Err(Failed::Command(error)),
                }
            };
            match timeout(self.0.options.io_timeout, attempt).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(Failed::Missing)) => route.path.is_inaccessible(&route.controller, nsid, &self.0),
                Ok(Err(Failed::Command(HostError::Status(status)))) if is_of_the_path(status) => {
                    route.path.is_inaccessible(&route.controller, nsid, &self.0);
                }
                Ok(Err(Failed::Command(HostError::Status(status))))
                    if !status.is_final() && retries < self.0.options.retries =>
                {
                    retries += 1;
                    sleep(self.0.options.retry_delay).await;
                    continue;
                }
                Ok(Err(Failed::Command(error @ (HostError::Status(_) | HostError::Unsupported(_))))) => {
                    return Err(error);
                }
                Ok(Err(Failed::Command(_))) => route.path.reset(&route.controller),
                Err(_) => {
                    self.0.count(|counts| counts.timed_out += 1);
                    route.path.reset(&route.controller);
                }
            }
            self.0.count(|counts| counts.requeued += 1);
        }
    }

    /// Waits for a path to the namespace.
    async fn route(&self, nsid: u32) -> Result<Route, HostError> {
        let found = self.0.changed.until(|| {
            if self.0.is_closed.get() {
                return Some(Err(HostError::Connection("closed".into())));
            }
            self.find(nsid).map(Ok)
        });
        match self.0.options.no_path_timeout {
            None => found.await,
            Some(most) => timeout(most, found).await.unwrap_or(Err(HostError::NoPath(most))),
        }
    }

    /// The path that it was on, if that is good still; otherwise the next one that is.
    fn find(&self, nsid: u32) -> Option<Route> {
        let inner = &*self.0;
        let mut current = inner.current.borrow_mut();
        let first = current.get(&nsid).copied().unwrap_or(0);
        let count = inner.paths.len();
        let (index, controller) = (0..count).find_map(|step| {
            let index = (first + step) % count;
            Some((index, inner.paths[index].optimized(nsid)?))
        })?;
        current.insert(nsid, index);
        Some(Route { path: inner.paths[index].clone(), controller })
    }
}

/// Whether the same command may do on another path, or here a little later.
fn is_of_the_path(status: Status) -> bool {
    const PATH_RELATED: u16 = 3;
    status.0 >> 8 & 7 == PATH_RELATED
        || [Status::ABORTED_SQ_DELETION, Status::TRANSIENT_TRANSPORT].contains(&status.code())
}

//! The host: a controller for each address of the subsystem. A command that has no answer in time, or loses its connection, gives
//! its path up and is sent again on another, as a new command; so does a host with native multipath.

use crate::stamp::BLOCK_BYTES;
use crate::{HazardError, Plan};
use nvme::host::{Controller, HostError, Namespace, Options};
use nvme::wire::Status;
use runtime::{SharedBuf, sleep, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Between two attempts at a connection, and between two paths that do not serve just now.
const PAUSE: Duration = Duration::from_millis(50);
/// A target that asks for the same again is asked so often.
const RETRIES_MAX: u32 = 100;

struct Path {
    /// Of the target.
    address: SocketAddr,
    /// Where the host connects: there, or at a relay.
    reached: SocketAddr,
    live: RefCell<Option<Live>>,
    /// Why it is not connected.
    why: RefCell<String>,
    /// It is given up, and not connected again until it has thawed.
    is_left: Cell<bool>,
}

#[derive(Clone)]
struct Live {
    controller: Controller,
    namespace: Namespace,
}

/// A write that was done.
pub(crate) struct Done {
    /// On this path.
    pub path: usize,
    /// Paths that were given up with it under way.
    pub hung_on: Vec<usize>,
}

/// See the module.
pub(crate) struct Paths {
    paths: Vec<Path>,
    options: Options,
    nsid: u32,
    give_up: Duration,
    /// The path that commands go to.
    current: Cell<usize>,
    is_closed: Cell<bool>,
}

impl Paths {
    /// Begins to connect: `reached` has a place for each of the plan's paths.
    pub fn new(plan: &Plan, reached: &[SocketAddr]) -> Rc<Self> {
        let path = |(address, reached): (&SocketAddr, &SocketAddr)| Path {
            address: *address,
            reached: *reached,
            live: RefCell::default(),
            why: RefCell::new("no answer".to_owned()),
            is_left: Cell::default(),
        };
        let options = Options { keep_alive: plan.keep_alive, ..Options::new(plan.host.clone(), &plan.subsystem) };
        let this = Rc::new(Self {
            paths: plan.paths.iter().zip(reached).map(path).collect(),
            options,
            nsid: plan.nsid,
            give_up: plan.give_up,
            current: Cell::default(),
            is_closed: Cell::default(),
        });
        for index in 0..this.paths.len() {
            spawn(this.clone().keep_connected(index));
        }
        this
    }

    async fn keep_connected(self: Rc<Self>, index: usize) {
        let path = &self.paths[index];
        while !self.is_closed.get() {
            let has_failed = path.live.borrow().as_ref().is_none_or(|live| live.controller.has_failed());
            if has_failed && !path.is_left.get() {
                let connected = timeout(CONNECT_MAX, self.connect(path.reached)).await;
                match connected.unwrap_or_else(|_| Err(HostError::Connection("no answer".to_owned()))) {
                    // It was frozen meanwhile: it is connected when that is over.
                    Ok(live) if path.is_left.get() => live.controller.close(),
                    Ok(live) => *path.live.borrow_mut() = Some(live),
                    Err(error) => *path.why.borrow_mut() = error.to_string(),
                }
            }
            sleep(PAUSE).await;
        }
    }

    async fn connect(&self, address: SocketAddr) -> Result<Live, HostError> {
        let controller = Controller::connect(address, &self.options).await?;
        match controller.namespace(self.nsid).await {
            Ok(namespace) => Ok(Live { controller, namespace }),
            Err(error) => {
                controller.close();
                Err(error)
            }
        }
    }

    /// Waits until all paths are there, or for so long; then two have to be.
    pub async fn wait(&self, most: Duration) -> Result<(), HazardError> {
        let connected = || self.paths.iter().filter(|path| path.lives().is_some()).count();
        let all = async {
            while connected() < self.paths.len() {
                sleep(PAUSE).await;
            }
        };
        if timeout(most, all).await.is_err() && connected() < 2 {
            let why = |path: &Path| format!("{}: {}", path.address, path.why.borrow());
            let missing = self.paths.iter().filter(|path| path.lives().is_none());
            return Err(HazardError::Paths {
                connected: connected(),
                paths: self.paths.len(),
                nsid: self.nsid,
                why: missing.map(why).collect::<Vec<_>>().join("; "),
            });
        }
        Ok(())
    }

    pub fn count(&self) -> usize {
        self.paths.len()
    }

    pub fn address(&self, index: usize) -> SocketAddr {
        self.paths[index].address
    }

    pub fn current(&self) -> usize {
        self.current.get()
    }

    /// Size of the namespace, and of its blocks, in bytes.
    pub fn size(&self) -> Option<(u64, u32)> {
        let live = self.paths.iter().find_map(Path::lives)?;
        Some((live.namespace.size_bytes(), live.namespace.block_bytes()))
    }

    pub fn is_left(&self, index: usize) -> bool {
        self.paths[index].is_left.get()
    }

    /// Ends all commands there and the connections, as a host does whose command has had no answer; nobody waits for what was sent.
    fn leave(&self, index: usize) {
        let path = &self.paths[index];
        path.is_left.set(true);
        if let Some(live) = path.live.take() {
            live.controller.close();
        }
        self.turn_from(index);
    }

    /// It may be connected again.
    pub fn come_back(&self, index: usize) {
        self.paths[index].is_left.set(false);
    }

    fn turn_from(&self, index: usize) {
        if self.current.get() == index {
            self.current.set((index + 1) % self.paths.len());
        }
    }

    /// Writes a block, on whichever path takes it, however long that takes.
    pub async fn write(&self, offset_bytes: u64, data: &SharedBuf) -> Result<Done, HazardError> {
        let (mut hung_on, mut retries) = (Vec::new(), 0);
        loop {
            let index = self.current.get();
            let Some(live) = self.paths[index].lives() else {
                self.turn_from(index);
                sleep(PAUSE).await;
                continue;
            };
            match timeout(self.give_up, live.namespace.write(offset_bytes, data.clone())).await {
                Ok(Ok(())) => return Ok(Done { path: index, hung_on }),
                Ok(Err(HostError::Status(status))) if is_of_the_path(status) => {
                    self.turn_from(index);
                    sleep(PAUSE).await;
                }
                Ok(Err(HostError::Status(status))) if !status.is_final() && retries < RETRIES_MAX => {
                    retries += 1;
                    sleep(PAUSE).await;
                }
                Ok(Err(error @ (HostError::Status(_) | HostError::Unsupported(_)))) => {
                    return Err(HazardError::Refused(format!("a write through {}: {error}", self.address(index))));
                }
                Ok(Err(_)) | Err(_) => {
                    hung_on.push(index);
                    // Of one that has been connected again since, nothing is known.
                    if self.paths[index].lives().is_none_or(|now| now.controller.is_same(&live.controller)) {
                        self.leave(index);
                    }
                }
            }
        }
    }

    /// Reads a block through one path; none: it does not serve it just now.
    pub async fn read(&self, index: usize, offset_bytes: u64) -> Result<Option<SharedBuf>, HazardError> {
        let Some(live) = self.paths[index].lives() else { return Ok(None) };
        match timeout(self.give_up, live.namespace.read(offset_bytes, BLOCK_BYTES as u32)).await {
            Ok(Ok(bytes)) => Ok(Some(bytes)),
            Ok(Err(HostError::Status(status))) if is_of_the_path(status) || !status.is_final() => Ok(None),
            Ok(Err(error @ (HostError::Status(_) | HostError::Unsupported(_)))) => {
                Err(HazardError::Refused(format!("a read through {}: {error}", self.address(index))))
            }
            Ok(Err(_)) | Err(_) => {
                live.controller.close();
                Ok(None)
            }
        }
    }

    pub fn close(&self) {
        self.is_closed.set(true);
        self.paths.iter().filter_map(|path| path.live.take()).for_each(|live| live.controller.close());
    }
}

impl Path {
    fn lives(&self) -> Option<Live> {
        self.live.borrow().clone().filter(|live| !live.controller.has_failed())
    }
}

/// Whether another path may do what this one did not.
fn is_of_the_path(status: Status) -> bool {
    const PATH_RELATED: u16 = 3;
    status.0 >> 8 & 7 == PATH_RELATED
        || [Status::ABORTED_SQ_DELETION, Status::TRANSIENT_TRANSPORT].contains(&status.code())
}

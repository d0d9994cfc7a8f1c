//! A way to one volume: reads, writes and flushes, in commands no larger than the target takes.

use super::load::NO_ANSWER;
use super::payload::Payload;
use crate::fio;
use nvme::host::multipath::{Multipath, Options};
use nvme::host::{Controller, HostError, HostIdentity, Namespace};
use runtime::channel::WaitList;
use runtime::{SharedBuf, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What a fill writes at once, and how many such writes are under way: as fio's fill.
const FILL_BYTES: u64 = 1 << 20;
pub(super) const FILL_DEPTH: u32 = 8;
/// Entries of a queue beside those that are kept under way.
const QUEUE_SPARE: u32 = 8;
/// What an NBD server takes that says nothing (NBD `doc/proto.md`, "Block size constraints").
const NBD_BYTES_MAX: u64 = 32 << 20;
/// What a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// A volume, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// By NVMe/TCP, with a path to each node.
    Nvme {
        /// Of all nodes.
        paths: Vec<SocketAddr>,
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
    },
    /// By NBD.
    Nbd {
        /// Of the server.
        address: SocketAddr,
        /// What it calls the volume.
        export: String,
    },
}

/// See the module. Clones share it.
#[derive(Clone)]
pub(super) struct Link(Rc<Inner>);

struct Inner {
    protocol: Protocol,
    size_bytes: u64,
    /// Of one command.
    most_bytes: u64,
    whom: String,
}

enum Protocol {
    /// By whatever path is there: what fails because of its path is sent again.
    Paths {
        host: Multipath,
        nsid: u32,
    },
    /// By one controller: what fails has failed.
    Controller(Namespace),
    Nbd(nbd::client::Client),
}

impl Link {
    /// Connects, for `depth` I/Os at once on each of so many queues, which only NVMe/TCP has.
    pub(super) async fn open(reached: &Reached, depth: u32, queues: u32) -> Result<Self, String> {
        match reached {
            Reached::Nvme { paths, nqn, nsid } => {
                let addresses: Vec<String> = paths.iter().map(SocketAddr::to_string).collect();
                let whom = format!("namespace {nsid} of {nqn} at {}", addresses.join(", "));
                let options = options(nqn, 0, depth, queues);
                in_time(&whom, by_paths(paths, options, *nsid, whom.clone())).await.map(Self::new)
            }
            Reached::Nbd { address, export } => {
                let whom = format!("nbd://{address}/{export}");
                in_time(&whom, by_nbd(*address, export, whom.clone())).await.map(Self::new)
            }
        }
    }

    /// A namespace at a controller that is connected.
    pub(super) async fn at(controller: &Controller, whom: String, nsid: u32) -> Result<Self, String> {
        let opening = async {
            let namespace = controller.namespace(nsid).await.map_err(|error| error.to_string())?;
            let (size_bytes, most_bytes) = (namespace.size_bytes(), namespace.max_transfer_bytes());
            Ok(Inner { protocol: Protocol::Controller(namespace), size_bytes, most_bytes, whom: whom.clone() })
        };
        in_time(&whom, opening).await.map(Self::new)
    }

    fn new(inner: Inner) -> Self {
        Self(Rc::new(inner))
    }

    /// Size of the volume.
    pub(super) fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    /// Reads, and forgets what was read.
    pub(super) async fn read(&self, offset: u64, bytes: u64) -> Result<(), String> {
        self.in_commands(offset, bytes, None).await
    }

    /// Writes.
    pub(super) async fn write(&self, offset: u64, data: SharedBuf) -> Result<(), String> {
        self.in_commands(offset, data.len() as u64, Some(data)).await
    }

    /// Writes so many bytes once, in order, 1 MiB each, and flushes.
    pub(super) async fn fill(&self, span_bytes: u64, payload: &Payload) -> Result<(), String> {
        let next = Rc::new(Cell::new(0));
        let work = |_| {
            let (link, next, payload) = (self.clone(), next.clone(), payload.clone());
            async move {
                while next.get() < span_bytes {
                    let offset = next.replace(next.get() + FILL_BYTES);
                    let bytes = FILL_BYTES.min(span_bytes - offset);
                    let written = link.write(offset, payload.at(offset, bytes)).await;
                    // Of one that has failed nobody writes the rest.
                    written.inspect_err(|_| next.set(span_bytes))?;
                }
                Ok(())
            }
        };
        let most = fio::fill_deadline(1, span_bytes).saturating_duration_since(Instant::now());
        let filled = timeout(most, async {
            all(FILL_DEPTH, work).await?;
            self.flush().await
        });
        filled.await.unwrap_or_else(|_| Err(NO_ANSWER.to_owned()))
    }

    /// What is larger than a command goes as several at once, as the kernel does it, and has ended with the last.
    async fn in_commands(&self, offset: u64, bytes: u64, data: Option<SharedBuf>) -> Result<(), String> {
        let most = self.0.most_bytes;
        if bytes <= most {
            return self.command(offset, bytes, data).await;
        }
        let part = |number: u32| {
            let link = self.clone();
            let begin = u64::from(number) * most;
            let length = most.min(bytes - begin);
            let data = data.as_ref().map(|data| data.slice(begin as usize..(begin + length) as usize));
            async move { link.command(offset + begin, length, data).await }
        };
        all(bytes.div_ceil(most) as u32, part).await
    }

    /// One command: a write of this data, or a read.
    async fn command(&self, offset: u64, bytes: u64, data: Option<SharedBuf>) -> Result<(), String> {
        let send = |namespace: Namespace| {
            let data = data.clone();
            async move { one(&namespace, offset, bytes, data).await }
        };
        let done = match &self.0.protocol {
            Protocol::Paths { host, nsid } => host.command(*nsid, send).await.map_err(|error| error.to_string()),
            Protocol::Controller(namespace) => {
                one(namespace, offset, bytes, data).await.map_err(|error| error.to_string())
            }
            Protocol::Nbd(client) => match data {
                Some(data) => client.write(offset, data, false).await,
                None => client.read(offset, bytes as u32).await.map(drop),
            }
            .map_err(|error| error.to_string()),
        };
        done.map_err(|why| format!("{}, byte {offset}: {why}", self.0.whom))
    }

    /// Flushes.
    pub(super) async fn flush(&self) -> Result<(), String> {
        let done = match &self.0.protocol {
            Protocol::Paths { host, nsid } => {
                let flush = |namespace: Namespace| async move { namespace.flush().await };
                host.command(*nsid, flush).await.map_err(|error| error.to_string())
            }
            Protocol::Controller(namespace) => namespace.flush().await.map_err(|error| error.to_string()),
            Protocol::Nbd(client) => client.flush().await.map_err(|error| error.to_string()),
        };
        done.map_err(|why| format!("{}, flush: {why}", self.0.whom))
    }

    /// Nothing is sent any more. A controller is disconnected when the last link to it goes.
    pub(super) fn close(&self) {
        match &self.0.protocol {
            Protocol::Paths { host, .. } => host.close(),
            Protocol::Controller(_) => {}
            Protocol::Nbd(client) => client.abort(),
        }
    }
}

async fn one(namespace: &Namespace, offset: u64, bytes: u64, data: Option<SharedBuf>) -> Result<(), HostError> {
    match data {
        Some(data) => namespace.write(offset, data).await,
        None => namespace.read(offset, bytes as u32).await.map(drop),
    }
}

/// A controller of one of this process's hosts.
pub(super) async fn connect(address: SocketAddr, options: &nvme::host::Options) -> Result<Controller, String> {
    let connecting = async { Controller::connect(address, options).await.map_err(|error| error.to_string()) };
    in_time(&format!("{} at {address}", options.subsystem), connecting).await
}

async fn in_time<T>(whom: &str, opening: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match timeout(CONNECT_MAX, opening).await {
        Ok(opened) => opened.map_err(|why| format!("{whom}: {why}")),
        Err(_) => Err(format!(
            "{whom}: no path within {} s: see that the target runs, and lets this host in",
            CONNECT_MAX.as_secs()
        )),
    }
}

async fn by_paths(
    paths: &[SocketAddr],
    options: nvme::host::Options,
    nsid: u32,
    whom: String,
) -> Result<Inner, String> {
    let host = Multipath::new(paths, Options::new(options));
    let sizes = |namespace: Namespace| async move { Ok((namespace.size_bytes(), namespace.max_transfer_bytes())) };
    match host.command(nsid, sizes).await {
        Ok((size_bytes, most_bytes)) => {
            Ok(Inner { protocol: Protocol::Paths { host, nsid }, size_bytes, most_bytes, whom })
        }
        Err(error) => {
            host.close();
            Err(error.to_string())
        }
    }
}

async fn by_nbd(address: SocketAddr, export: &str, whom: String) -> Result<Inner, String> {
    let client = nbd::client::Client::connect(address, export, true).await.map_err(|error| error.to_string())?;
    let told = client.info().block_sizes.as_ref().map(|sizes| u64::from(sizes.maximum_bytes));
    let (size_bytes, most_bytes) = (client.info().size.size_bytes, told.unwrap_or(NBD_BYTES_MAX));
    Ok(Inner { protocol: Protocol::Nbd(client), size_bytes, most_bytes, whom })
}

/// How one of this process's hosts, by its number, connects a controller for `depth` I/Os at once on each of so many queues.
pub(super) fn options(nqn: &str, host: u32, depth: u32, queues: u32) -> nvme::host::Options {
    let number = |wanted: u32| u16::try_from(wanted).unwrap_or(u16::MAX);
    nvme::host::Options {
        queue_depth: number(depth.max(FILL_DEPTH).saturating_add(QUEUE_SPARE)),
        io_queues: number(queues),
        ..nvme::host::Options::new(identity(host), nqn)
    }
}

/// Who one of this process's hosts is: nobody is for long, and no other host is it.
pub(crate) fn identity(host: u32) -> HostIdentity {
    let process = std::process::id();
    let mut id = *b"cairn-bench-----";
    id[8..12].copy_from_slice(&host.to_le_bytes());
    id[12..].copy_from_slice(&process.to_le_bytes());
    HostIdentity { nqn: format!("nqn.2026-01.io.cairn:bench-{process}-{host}"), id }
}

/// Waits for so many tasks; the first error of one.
async fn all<F: Future<Output = Result<(), String>> + 'static>(
    count: u32,
    work: impl Fn(u32) -> F,
) -> Result<(), String> {
    let (left, ended) = (Rc::new(Cell::new(count)), Rc::new(WaitList::default()));
    let failed = Rc::new(RefCell::new(None));
    for number in 0..count {
        let (left, ended, failed, task) = (left.clone(), ended.clone(), failed.clone(), work(number));
        spawn(async move {
            if let Err(why) = task.await {
                failed.borrow_mut().get_or_insert(why);
            }
            left.set(left.get() - 1);
            if left.get() == 0 {
                ended.wake_all();
            }
        });
    }
    ended.until(|| (left.get() == 0).then_some(())).await;
    failed.take().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_waited_for_and_the_first_error_is_told() {
        let ended = Rc::new(Cell::new(0));
        let found = runtime::uring::block_on({
            let ended = ended.clone();
            async move {
                let part = |number: u32| {
                    let ended = ended.clone();
                    async move {
                        runtime::sleep(Duration::from_millis(u64::from(4 - number))).await;
                        ended.set(ended.get() + 1);
                        if number.is_multiple_of(2) { Ok(()) } else { Err(number.to_string()) }
                    }
                };
                all(4, part).await
            }
        });
        assert_eq!((found.expect("io_uring works here"), ended.get()), (Err("3".to_owned()), 4));
    }

    #[test]
    fn hosts_of_one_process_are_not_the_same() {
        let hosts: Vec<HostIdentity> = [0, 1, 256].map(identity).into();
        assert!(hosts[0].nqn != hosts[1].nqn && hosts[0].id != hosts[1].id && hosts[0].id != hosts[2].id);
    }
}

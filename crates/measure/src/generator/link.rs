//! A connection of a job: reads, writes and flushes, in pieces no larger than the target takes.

use super::{CONNECT_MAX, Reached, all};
use nvme::host::HostIdentity;
use nvme::host::multipath::{Multipath, Options};
use runtime::{SharedBuf, timeout};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

/// Entries of a queue beside those that a job keeps under way.
const QUEUE_SPARE: u32 = 8;
/// What an NBD server takes that says nothing (NBD `doc/proto.md`, "Block size constraints").
const NBD_BYTES_MAX: u64 = 32 << 20;

/// See the module. Clones share it.
#[derive(Clone)]
pub(super) struct Link(Rc<Inner>);

struct Inner {
    protocol: Protocol,
    /// Of one command.
    most_bytes: u64,
    whom: String,
}

enum Protocol {
    Nvme { host: Multipath, nsid: u32 },
    Nbd(nbd::client::Client),
}

impl Link {
    /// Connects each of so many jobs, for `depth` I/Os at once. Jobs by NVMe/TCP are of one host, with a queue for each of them, as the
    /// kernel has one for each core: a target takes two controllers of one name for a host that has connected anew.
    pub(super) async fn of_jobs(reached: &Reached, depth: u32, jobs: u32) -> Result<Vec<Self>, String> {
        if let Reached::Nvme { .. } = reached {
            let link = Self::open(reached, depth, jobs).await?;
            return Ok(vec![link; jobs as usize]);
        }
        let mut links = Vec::new();
        for _ in 0..jobs {
            links.push(Self::open(reached, depth, 1).await?);
        }
        Ok(links)
    }

    async fn open(reached: &Reached, depth: u32, queues: u32) -> Result<Self, String> {
        let whom = match reached {
            Reached::Nvme { paths, nqn, nsid } => {
                let paths: Vec<String> = paths.iter().map(SocketAddr::to_string).collect();
                format!("namespace {nsid} of {nqn} at {}", paths.join(", "))
            }
            Reached::Nbd { address, export } => format!("nbd://{address}/{export}"),
        };
        let opened = async {
            match reached {
                Reached::Nvme { paths, nqn, nsid } => open_nvme(paths, nqn, *nsid, depth, queues).await,
                Reached::Nbd { address, export } => {
                    let client = nbd::client::Client::connect(*address, export, true).await;
                    let client = client.map_err(|error| error.to_string())?;
                    let told = client.info().block_sizes.as_ref().map(|sizes| u64::from(sizes.maximum_bytes));
                    Ok((Protocol::Nbd(client), told.unwrap_or(NBD_BYTES_MAX)))
                }
            }
        };
        match timeout(CONNECT_MAX, opened).await {
            Ok(Ok((protocol, most_bytes))) => Ok(Self(Rc::new(Inner { protocol, most_bytes, whom }))),
            Ok(Err(why)) => Err(format!("{whom}: {why}")),
            Err(_) => Err(format!(
                "{whom}: no path within {} s: see that the target runs, and lets this host in",
                CONNECT_MAX.as_secs()
            )),
        }
    }

    pub(super) async fn read(&self, offset: u64, bytes: u64) -> Result<(), String> {
        self.in_pieces(offset, bytes, None).await
    }

    pub(super) async fn write(&self, offset: u64, data: SharedBuf) -> Result<(), String> {
        self.in_pieces(offset, data.len() as u64, Some(data)).await
    }

    /// What is larger than a command goes as several at once, as the kernel does it, and has ended with the last.
    async fn in_pieces(&self, offset: u64, bytes: u64, data: Option<SharedBuf>) -> Result<(), String> {
        let most = self.0.most_bytes;
        if bytes <= most {
            return self.one(offset, bytes, data).await;
        }
        let failed = Rc::new(RefCell::new(Ok(())));
        let piece = |number: u32| {
            let (this, failed) = (self.clone(), failed.clone());
            let begin = u64::from(number) * most;
            let length = most.min(bytes - begin);
            let data = data.as_ref().map(|data| data.slice(begin as usize..(begin + length) as usize));
            async move {
                if let Err(why) = this.one(offset + begin, length, data).await {
                    *failed.borrow_mut() = Err(why);
                }
            }
        };
        all(bytes.div_ceil(most) as u32, piece).await;
        failed.replace(Ok(()))
    }

    /// One command: a write of this data, or a read.
    async fn one(&self, offset: u64, bytes: u64, data: Option<SharedBuf>) -> Result<(), String> {
        let done = match (&self.0.protocol, data) {
            (Protocol::Nvme { host, nsid }, Some(data)) => {
                let write = |namespace: nvme::host::Namespace| {
                    let data = data.clone();
                    async move { namespace.write(offset, data).await }
                };
                host.command(*nsid, write).await.map_err(|error| error.to_string())
            }
            (Protocol::Nvme { host, nsid }, None) => {
                let read = |namespace: nvme::host::Namespace| async move {
                    namespace.read(offset, bytes as u32).await.map(drop)
                };
                host.command(*nsid, read).await.map_err(|error| error.to_string())
            }
            (Protocol::Nbd(client), Some(data)) => {
                client.write(offset, data, false).await.map_err(|error| error.to_string())
            }
            (Protocol::Nbd(client), None) => {
                client.read(offset, bytes as u32).await.map(drop).map_err(|error| error.to_string())
            }
        };
        done.map_err(|why| format!("{}, byte {offset}: {why}", self.0.whom))
    }

    pub(super) async fn flush(&self) -> Result<(), String> {
        let done = match &self.0.protocol {
            Protocol::Nvme { host, nsid } => {
                let flush = |namespace: nvme::host::Namespace| async move { namespace.flush().await };
                host.command(*nsid, flush).await.map_err(|error| error.to_string())
            }
            Protocol::Nbd(client) => client.flush().await.map_err(|error| error.to_string()),
        };
        done.map_err(|why| format!("{}, flush: {why}", self.0.whom))
    }

    /// Nothing is sent any more.
    pub(super) fn close(&self) {
        match &self.0.protocol {
            Protocol::Nvme { host, .. } => host.close(),
            Protocol::Nbd(client) => client.abort(),
        }
    }
}

async fn open_nvme(
    paths: &[SocketAddr],
    nqn: &str,
    nsid: u32,
    depth: u32,
    queues: u32,
) -> Result<(Protocol, u64), String> {
    let process = std::process::id();
    let mut id = *b"cairn-bench-----";
    id[12..].copy_from_slice(&process.to_le_bytes());
    let identity = HostIdentity { nqn: format!("nqn.2026-01.io.cairn:bench-{process}"), id };
    let number = |wanted: u32| u16::try_from(wanted).unwrap_or(u16::MAX);
    let controller = nvme::host::Options {
        queue_depth: number(depth + QUEUE_SPARE),
        io_queues: number(queues),
        ..nvme::host::Options::new(identity, nqn)
    };
    let host = Multipath::new(paths, Options::new(controller));
    let most = host.command(nsid, |namespace| async move { Ok(namespace.max_transfer_bytes()) }).await;
    match most {
        Ok(most) => Ok((Protocol::Nvme { host, nsid }, most)),
        Err(error) => {
            host.close();
            Err(error.to_string())
        }
    }
}

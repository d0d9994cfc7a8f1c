//! `cairn node run`, where nodes are processes of their own: starts the worker, which is the node, and starts it again when it has
//! ended; and tells every peer that it has, so that they do not wait for what they had granted to it (R8 of
//! docs/replication.md).
//!
//! ```text
//!   supervisor ── starts ─► worker ── through a pipe: its stores' lives, peers, the cluster's key ─► supervisor
//!      │                      ✗ the kernel says that it has ended
//!      ├── "these lives are over" ─► each peer, on a connection of its own
//!      └── after 2 s ── starts ─► worker, whose stores begin lives of their own
//! ```
//!
//! **Promises.** What is told is what the kernel said of the very process that had those lives: one that is stopped, or does not
//! answer, is not dead. The worker ends with its supervisor, also when that is killed; then nobody is told anything, and peers wait
//! for the end of what they had granted. A worker that never served ends its supervisor with its own exit status.

use crate::child::{self, Ends};
use crate::testament::{self, PIPE_VARIABLE};
use replication::obituary::{Next, Obituary};
use replication::wire::{Dead, NONCE_BYTES};
use std::fs::File;
use std::future::pending;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};
use types::NodeId;
use volume::Testament;

/// Before a worker is started again; doubled with each that did not live for [`LIVED`].
const RESTART_WAIT: Duration = Duration::from_secs(2);
const RESTART_WAIT_MAX: Duration = Duration::from_secs(60);
/// A worker that lived so long was well.
const LIVED: Duration = Duration::from_secs(60);
/// One attempt to tell a peer.
const TELL_PATIENCE: Duration = Duration::from_secs(1);
/// Between two attempts.
const TELL_AGAIN: Duration = Duration::from_millis(200);
/// A peer that cannot be told within this has long stopped waiting.
const TELL_MAX: Duration = Duration::from_secs(10);
/// A stop that was ordered waits for peers so long.
const TELL_AT_STOP: Duration = Duration::from_millis(300);
/// Exit status after a signal ended the worker, as shells count it.
const EXIT_BY_SIGNAL: i32 = 128;

/// How a worker ended.
struct End {
    status: ExitStatus,
    testament: Option<Testament>,
    was_ordered: bool,
    lived: Duration,
}

/// Runs the worker that `command` starts until it ends by itself or by order; returns the exit status for this process. Called on
/// the thread that lives longest.
///
/// # Errors
/// What the system says of processes and pipes.
pub fn run(command: impl Fn() -> Command) -> io::Result<i32> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(supervise(command))
}

async fn supervise(command: impl Fn() -> Command) -> io::Result<i32> {
    let mut orders = Orders::new()?;
    let (mut has_served, mut waits) = (false, Waits::default());
    loop {
        let end = one_life(&command, &mut orders).await?;
        has_served |= end.testament.is_some();
        let code = end.status.code().unwrap_or_else(|| EXIT_BY_SIGNAL + end.status.signal().unwrap_or(0));
        let is_over = end.was_ordered || code == 0 || !has_served;
        let peers = end.testament.as_ref().map_or(0, |testament| testament.peers.len());
        let telling = end.testament.map(|testament| tokio::spawn(tell_all(testament)));
        if is_over {
            if let Some(telling) = telling {
                let _ = timeout(TELL_AT_STOP, telling).await;
            }
            return Ok(code);
        }
        let wait = waits.next(end.lived);
        log::warn!("the node has ended ({}): {peers} peers are told, and it is started again in {wait:?}", end.status);
        tokio::select! {
            () = sleep(wait) => {}
            _ = orders.next() => return Ok(0),
        }
    }
}

/// How long it is waited before a worker is started again.
#[derive(Default)]
struct Waits {
    /// Before the last one; nothing before the first.
    last: Option<Duration>,
}

impl Waits {
    /// The one before this lived so long.
    fn next(&mut self, lived: Duration) -> Duration {
        let doubled = self.last.filter(|_| lived < LIVED).map(|last| (2 * last).min(RESTART_WAIT_MAX));
        *self.last.insert(doubled.unwrap_or(RESTART_WAIT))
    }
}

/// One worker, from its start until the kernel says that it has ended.
async fn one_life(command: &impl Fn() -> Command, orders: &mut Orders) -> io::Result<End> {
    let mut ends = Ends::new()?;
    let (reader, writer) = io::pipe()?;
    let mut command = command();
    command.env(PIPE_VARIABLE, writer.as_fd().as_raw_fd().to_string());
    let mut worker = child::spawn(&mut command, Some(writer.as_fd()))?;
    // The worker's side is open in the worker alone: what it had told is all there when it has ended.
    drop(writer);
    let began = Instant::now();
    let mut lines = BufReader::new(pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?).lines();
    let (mut told, mut was_ordered, mut listens) = (None, false, true);
    let status = loop {
        let line = async {
            match listens {
                true => lines.next_line().await,
                false => pending().await,
            }
        };
        tokio::select! {
            status = ends.of(&mut worker) => break status?,
            order = orders.next() => {
                was_ordered = true;
                child::send_signal(&worker, order);
            }
            line = line => match line {
                Ok(Some(line)) => told = testament::of_line(&line).or(told),
                Ok(None) | Err(_) => listens = false,
            },
        }
    };
    // What it had written before it ended.
    while listens && let Ok(Some(line)) = lines.next_line().await {
        told = testament::of_line(&line).or(told);
    }
    Ok(End { status, testament: told, was_ordered, lived: began.elapsed() })
}

// ---- telling -----------------------------------------------------------------------------------------------------------------

/// Tells all peers that the lives of this testament are over.
async fn tell_all(testament: Testament) {
    let tell = |(to, address): &(NodeId, SocketAddr)| tokio::spawn(tell_until(testament.clone(), *to, *address));
    let all: Vec<_> = testament.peers.iter().map(tell).collect();
    for one in all {
        let _ = one.await;
    }
}

async fn tell_until(testament: Testament, to: NodeId, address: SocketAddr) {
    let began = Instant::now();
    while began.elapsed() < TELL_MAX {
        let told = timeout(TELL_PATIENCE, tell_one(&testament, to, address)).await;
        match told.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
            Ok(()) => return log::debug!("node {to} knows that this node has ended"),
            Err(why) => log::debug!("node {to} at {address} is not told that this node has ended: {why}"),
        }
        sleep(TELL_AGAIN).await;
    }
}

async fn tell_one(testament: &Testament, to: NodeId, address: SocketAddr) -> Result<(), String> {
    let in_words = |error: io::Error| error.to_string();
    let cluster = (testament.cluster, testament.key);
    let dead = Dead { lives: testament.lives.clone() };
    let nonce = drawn().map_err(in_words)?;
    let (mut obituary, begin) = Obituary::new(cluster, testament.node, to, dead, nonce);
    let mut stream = TcpStream::connect(address).await.map_err(in_words)?;
    stream.write_all(&begin).await.map_err(in_words)?;
    let mut come = [0; 4096];
    loop {
        let length = stream.read(&mut come).await.map_err(in_words)?;
        if length == 0 {
            return Err("it ended the connection".to_owned());
        }
        match obituary.hear(&come[..length])? {
            Next::Wait => {}
            Next::Send(bytes) => stream.write_all(&bytes).await.map_err(in_words)?,
            Next::Told => return Ok(()),
        }
    }
}

/// A number for one conversation.
fn drawn() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    Ok(nonce)
}

/// Orders to stop: they are the worker's.
struct Orders {
    interrupt: Signal,
    terminate: Signal,
}

impl Orders {
    fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> libc::c_int {
        tokio::select! {
            _ = self.interrupt.recv() => libc::SIGINT,
            _ = self.terminate.recv() => libc::SIGTERM,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[test]
    fn a_worker_is_started_again_after_two_seconds_and_later_each_time_that_it_does_not_live() {
        let mut waits = Waits::default();
        let seconds: Vec<u64> = (0..7).map(|_| waits.next(SOON).as_secs()).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(waits.next(LIVED).as_secs(), 2, "it was well");
        assert_eq!(waits.next(SOON).as_secs(), 4);
        assert_eq!(Waits::default().next(LIVED).as_secs(), 2);
    }
}

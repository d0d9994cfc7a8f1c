//! `cairn demo --processes`: an etcd and a process for each node, all started by this one, started again when they end, and
//! ended with it, however it ends.
//!
//! ```text
//!   cairn demo ── etcd
//!              ├─ cairn node run (supervisor) ── worker: node 1
//!              ├─ cairn node run (supervisor) ── worker: node 2
//!              └─ …
//! ```
//!
//! What a node is stands in its file, as for any other; here nothing is known of it but the line `ready` that it says. Nothing here
//! is needed by nodes that run.

use crate::child::{self, Ends};
use crate::service::{self, NodePlace, ServiceError};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Before what has ended is started again.
const RESTART_WAIT: Duration = Duration::from_secs(2);
/// What is ordered to stop has so long: a node stops within two seconds.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// All nodes serve within this after their start, or the start has failed.
const READY_PATIENCE: Duration = Duration::from_secs(120);
/// Messages of children that wait to be looked at.
const EVENTS_MAX: usize = 256;
/// Bytes of its database that etcd may have before it refuses to grow: the most that its makers advise.
const ETCD_BYTES_MAX: u64 = 8 << 30;

/// The etcd of a demo.
#[derive(Clone, Debug)]
pub struct EtcdPlace {
    /// Where its data is.
    pub data: PathBuf,
    /// Where its log goes.
    pub log: PathBuf,
    /// Its port for nodes, on 127.0.0.1.
    pub client_port: u16,
    /// Its port for other etcds, of which there are none.
    pub peer_port: u16,
}

/// Where a node of the fleet serves, as it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyNode {
    /// Its number.
    pub node: u32,
    /// `http://HOST:PORT`.
    pub admin: String,
    /// Where NVMe/TCP is served.
    pub nvme: String,
    /// Where NBD is served.
    pub nbd: String,
}

/// What is done when all nodes serve, before that is said.
pub type WhenReady = Box<dyn FnOnce(&[ReadyNode]) -> Result<(), String> + Send>;

/// What is to be run.
pub struct FleetPlan {
    /// This program.
    pub program: PathBuf,
    /// The map.
    pub etcd: EtcdPlace,
    /// The nodes, by number.
    pub nodes: Vec<NodePlace>,
    /// Of a new cluster: copies that its pool keeps.
    pub founds: Option<u16>,
    /// See above.
    pub when_ready: WhenReady,
}

/// Why it does not run.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// There is no etcd on this machine.
    #[error(
        "etcd is not installed, and nodes that are processes keep the cluster's map there: apt install etcd-server"
    )]
    NoEtcd,
    /// A process cannot be started.
    #[error("cannot start {what}: {source}")]
    Start {
        /// Which.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// It ended before all served.
    #[error("{what} ended before all nodes served ({status}): {hint}")]
    Ended {
        /// Which.
        what: String,
        /// How.
        status: ExitStatus,
        /// Where it says why.
        hint: String,
    },
    /// They do not get ready.
    #[error("not all nodes serve within {} s: the lines above say why", READY_PATIENCE.as_secs())]
    NotReady,
    /// The cluster cannot be begun.
    #[error(transparent)]
    Found(#[from] ServiceError),
    /// What was to be done when all served.
    #[error("{0}")]
    WhenReady(String),
    /// This process itself.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

/// What a child does.
enum Event {
    /// A node serves.
    Ready(ReadyNode),
    /// It has ended.
    Ended(ExitStatus),
    /// It could not be started.
    NotStarted(io::Error),
}

/// A process that is kept running.
struct Kept {
    /// Number of the node; 0: etcd.
    number: u32,
    what: String,
    command: Box<dyn Fn() -> io::Result<Command> + Send>,
}

/// Those that are kept running.
struct Fleet {
    stop: watch::Sender<bool>,
    tell: mpsc::Sender<(u32, Event)>,
    tasks: Vec<JoinHandle<()>>,
}

/// Runs all of them until SIGINT or SIGTERM; `announce` is told where the nodes serve when all do. Called on the thread that
/// lives longest.
///
/// # Errors
/// What keeps them from serving. All have ended then.
pub fn run(plan: FleetPlan, announce: impl FnOnce(&[ReadyNode])) -> Result<(), FleetError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| FleetError::System("start the runtime", error))?;
    let result = runtime.block_on(serve(plan, announce));
    runtime.shutdown_background();
    result
}

async fn serve(plan: FleetPlan, announce: impl FnOnce(&[ReadyNode])) -> Result<(), FleetError> {
    let of_signals = |error| FleetError::System("wait for signals", error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(of_signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(of_signals)?;
    let (tell, mut events) = mpsc::channel(EVENTS_MAX);
    let mut etcd = Fleet { stop: watch::channel(false).0, tell: tell.clone(), tasks: Vec::new() };
    let mut nodes = Fleet { stop: watch::channel(false).0, tell, tasks: Vec::new() };
    let ordered = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let served = async {
        let ready = start(plan, (&mut etcd, &mut nodes), &mut events).await?;
        announce(&ready);
        // Whatever they say from now on is in their logs.
        while events.recv().await.is_some() {}
        Ok(())
    };
    let outcome = tokio::select! {
        outcome = served => outcome,
        () = ordered => Ok(()),
    };
    log::info!("stopping");
    // The map goes last: nodes end their sessions in it.
    nodes.stop().await;
    etcd.stop().await;
    outcome
}

/// Starts all, and returns when all serve.
async fn start(
    plan: FleetPlan,
    (etcd, nodes): (&mut Fleet, &mut Fleet),
    events: &mut mpsc::Receiver<(u32, Event)>,
) -> Result<Vec<ReadyNode>, FleetError> {
    let FleetPlan { program, etcd: place, nodes: places, founds, when_ready } = plan;
    let (count, log) = (places.len(), place.log.clone());
    etcd.keep(kept_etcd(place));
    if let Some(replicas) = founds {
        tokio::select! {
            founded = service::found(&places, replicas) => founded?,
            error = failed(events, &log) => return Err(error),
        }
    }
    places.into_iter().for_each(|place| nodes.keep(kept_node(&program, place)));
    let mut ready: Vec<ReadyNode> = Vec::with_capacity(count);
    let all = async {
        while ready.len() < count {
            match events.recv().await {
                Some((_, Event::Ready(node))) => {
                    ready.retain(|known| known.node != node.node);
                    ready.push(node);
                }
                Some((number, event)) => return Err(failure(number, event, &log)),
                None => return Err(FleetError::NotReady),
            }
        }
        Ok(())
    };
    timeout(READY_PATIENCE, all).await.unwrap_or(Err(FleetError::NotReady))?;
    ready.sort_by_key(|node| node.node);
    let (told, hook) = (ready.clone(), when_ready);
    let done = tokio::task::spawn_blocking(move || hook(&told)).await;
    done.unwrap_or_else(|error| Err(error.to_string())).map_err(FleetError::WhenReady)?;
    Ok(ready)
}

/// Resolves when something ends that should not.
async fn failed(events: &mut mpsc::Receiver<(u32, Event)>, log: &std::path::Path) -> FleetError {
    loop {
        match events.recv().await {
            Some((_, Event::Ready(_))) => {}
            Some((number, event)) => return failure(number, event, log),
            None => return FleetError::NotReady,
        }
    }
}

fn failure(number: u32, event: Event, log: &std::path::Path) -> FleetError {
    let what = name_of(number);
    match event {
        Event::NotStarted(error) if number == 0 && error.kind() == io::ErrorKind::NotFound => FleetError::NoEtcd,
        Event::NotStarted(source) => FleetError::Start { what, source },
        Event::Ended(status) => {
            let hint = match number {
                0 => format!("{} says why", log.display()),
                _ => "the lines above say why".to_owned(),
            };
            FleetError::Ended { what, status, hint }
        }
        Event::Ready(_) => FleetError::NotReady,
    }
}

fn name_of(number: u32) -> String {
    if number == 0 { "etcd".to_owned() } else { format!("node-{number}") }
}

fn kept_etcd(place: EtcdPlace) -> Kept {
    let command = move || {
        let EtcdPlace { data, log, client_port, peer_port } = &place;
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let (client, peer) = (format!("http://127.0.0.1:{client_port}"), format!("http://127.0.0.1:{peer_port}"));
        let mut command = Command::new("etcd");
        // Variables named ETCD_… are options to it: whoever started this meant another one.
        let of_others = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD"));
        for (name, _) in of_others {
            command.env_remove(name);
        }
        command.arg("--name=cairn").arg("--data-dir").arg(data);
        command.arg(format!("--listen-client-urls={client}")).arg(format!("--advertise-client-urls={client}"));
        command.arg(format!("--listen-peer-urls={peer}")).arg(format!("--initial-advertise-peer-urls={peer}"));
        command.arg(format!("--initial-cluster=cairn={peer}"));
        command.arg("--auto-compaction-retention=1").arg(format!("--quota-backend-bytes={ETCD_BYTES_MAX}"));
        command.stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log)).stdin(Stdio::null());
        Ok(command)
    };
    Kept { number: 0, what: name_of(0), command: Box::new(command) }
}

fn kept_node(program: &std::path::Path, place: NodePlace) -> Kept {
    let (number, program) = (place.config.node, program.to_owned());
    let command = move || {
        let mut command = Command::new(&program);
        command.args(["node", "run", "--config"]).arg(&place.config_path);
        command.stdout(Stdio::piped()).stdin(Stdio::null());
        Ok(command)
    };
    Kept { number, what: name_of(number), command: Box::new(command) }
}

impl Fleet {
    fn keep(&mut self, kept: Kept) {
        self.tasks.push(tokio::spawn(keep(kept, self.tell.clone(), self.stop.subscribe())));
    }

    /// All of them end now.
    async fn stop(self) {
        let _ = self.stop.send(true);
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

/// Starts it again and again, until it is to stop.
async fn keep(kept: Kept, tell: mpsc::Sender<(u32, Event)>, mut stop: watch::Receiver<bool>) {
    let Kept { number, what, command } = kept;
    while !*stop.borrow() {
        let ended = match Ends::new().and_then(|ends| Ok((child::spawn(&mut command()?, None)?, ends))) {
            Ok((child, ends)) => one_life(child, ends, number, &tell, &mut stop).await,
            Err(error) => Err(error),
        };
        if *stop.borrow() {
            return;
        }
        let event = match ended {
            Ok(status) => {
                log::warn!("{what} has ended ({status}): it is started again in {RESTART_WAIT:?}");
                Event::Ended(status)
            }
            Err(error) => {
                log::error!("{what} cannot be started: {error}");
                Event::NotStarted(error)
            }
        };
        // Who listens is told of what matters at the start; later the log says it.
        let _ = tell.try_send((number, event));
        tokio::select! {
            () = sleep(RESTART_WAIT) => {}
            _ = stop.changed() => {}
        }
    }
}

/// From its start until it has ended, by itself or by order.
async fn one_life(
    mut child: Child,
    mut ends: Ends,
    number: u32,
    tell: &mpsc::Sender<(u32, Event)>,
    stop: &mut watch::Receiver<bool>,
) -> io::Result<ExitStatus> {
    if let Some(out) = child.stdout.take() {
        let lines = BufReader::new(pipe::Receiver::from_owned_fd(OwnedFd::from(out))?).lines();
        tokio::spawn(follow(lines, number, tell.clone()));
    }
    tokio::select! {
        status = ends.of(&mut child) => return status,
        _ = stop.changed() => child::send_signal(&child, libc::SIGTERM),
    }
    match timeout(STOP_PATIENCE, ends.of(&mut child)).await {
        Ok(status) => status,
        Err(_) => {
            log::warn!("{} does not stop and is killed: nothing acknowledged is lost", name_of(number));
            child.kill()?;
            ends.of(&mut child).await
        }
    }
}

/// Hears what a node says, to its end.
async fn follow(mut lines: tokio::io::Lines<BufReader<pipe::Receiver>>, number: u32, tell: mpsc::Sender<(u32, Event)>) {
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(node) = ready_of(number, &line) {
            let _ = tell.try_send((number, Event::Ready(node)));
        }
    }
}

fn ready_of(node: u32, line: &str) -> Option<ReadyNode> {
    let said = line.strip_prefix("ready ")?;
    let field =
        |name: &str| said.split(' ').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
    Some(ReadyNode { node, admin: field("admin")?, nvme: field("nvme")?, nbd: field("nbd")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_node_that_serves_is_understood_and_no_other() {
        let said = "ready admin=http://127.0.0.1:8420 nvme=127.0.0.1:4420 nbd=127.0.0.1:10809";
        let node = ready_of(2, said).unwrap();
        assert_eq!((node.node, &*node.admin, &*node.nbd), (2, "http://127.0.0.1:8420", "127.0.0.1:10809"));
        assert_eq!(ready_of(2, "ready admin=http://127.0.0.1:8420"), None);
        assert_eq!(ready_of(2, "not ready"), None);
    }
}

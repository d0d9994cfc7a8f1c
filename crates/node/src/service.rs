//! One process that serves one node: start, serve, stop.
//!
//! ```text
//!   start:  signals ─► admin socket ─► cores ─► node on core 0 (map, stores, groups, volumes, doors) ─► ready
//!   stop:   signal ─► doors closed, what is in flight answered ─► stores closed ─► cores ended ─► exit 0
//! ```
//!
//! Nothing is lost by a stop that is cut short: what was acknowledged is durable already. So the stop has a deadline,
//! and a second signal ends it at once.

use crate::admin::{ASKED_MAX, AddressBook, Addresses, Admin, Asked, Looked, NodeAddresses};
use crate::config::NodeConfig;
use crate::control::{self, ControlHandle, Request};
use crate::doors::ListenError;
use crate::events::{Events, follower::Follower, kind, watch::Watch};
use crate::files::FileError;
use crate::local_node::{self, NodePlan, StartError, Started};
use crate::node_name::NodeName;
use crate::testament;
use crate::volume_spec::VolumeSpec;
use cluster::{Compression, MapStore};
use runtime::channel::CrossReceiver;
use runtime::uring::{Cores, Options};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use types::NodeId;
pub use volume::Blank;
use volume::Speaks;

/// A stop ends within two seconds of the signal; this leaves room for the end of the process itself.
const STOP_TIME_MAX: Duration = Duration::from_millis(1700);
/// What admin requests under way are given to end.
const ADMIN_STOP_TIME_MAX: Duration = Duration::from_millis(300);
/// Signals this soon after the first are the same order told twice: `timeout` and service managers tell a process and
/// then its group.
const SAME_ORDER: Duration = Duration::from_millis(250);
/// Exit status after a second signal: ended by order, not at the end of the work.
const EXIT_SECOND_SIGNAL: i32 = 130;

/// What is to be served, and how.
pub struct ServicePlan {
    /// The nodes, in the order of their numbers: one, or all of a cluster in one process, which have one map.
    pub nodes: Vec<NodePlace>,
    /// Copies that a new pool keeps; more than one only with as many nodes.
    pub replicas: u16,
    /// What becomes of a blank device.
    pub blank: Blank,
    /// Volumes that must be there before anything is served.
    pub wanted_volumes: Vec<VolumeSpec>,
    /// How what is written from now on is to be compressed; `None`: as before.
    pub compression: Option<Compression>,
    /// Where the supervisor listens, if there is one.
    pub supervisor: Option<File>,
    /// Record every device write and flush here.
    pub record: Option<PathBuf>,
    /// Called once the wanted volumes are there, before the first client is let in.
    pub before_serving: Box<dyn FnOnce() -> Result<(), FileError> + Send>,
}

/// A node of the process.
#[derive(Clone, Debug)]
pub struct NodePlace {
    /// What it is to do.
    pub config: NodeConfig,
    /// The file that says so, also of devices that are added.
    pub config_path: PathBuf,
}

/// Why a node does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A socket cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The reactors cannot be started.
    #[error("cannot start the cores: {0}")]
    Cores(io::Error),
    /// The node cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The process itself.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

/// Serves until SIGINT or SIGTERM. `ready` is told the addresses when I/O is served.
///
/// # Errors
/// What keeps the node from serving.
pub fn run(plan: ServicePlan, ready: impl FnOnce(&Addresses)) -> Result<(), ServiceError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ServiceError::System("start the admin thread", error))?;
    let result = runtime.block_on(serve(plan, ready));
    // Threads that still wait for something must not keep the process.
    runtime.shutdown_background();
    result
}

async fn serve(mut plan: ServicePlan, ready: impl FnOnce(&Addresses)) -> Result<(), ServiceError> {
    let mut signals = Signals::new().map_err(|error| ServiceError::System("wait for signals", error))?;
    let supervisor = plan.supervisor.take();
    let first = &plan.nodes[0];
    let admin_listener = listen_for_admin(&first.config).await?;
    let admin_address =
        admin_listener.local_addr().map_err(|error| ServiceError::System("ask for the admin address", error))?;
    let (any_host, config_path) = (first.config.any_host, first.config_path.clone());
    let told = first.config.clone();
    let is_shared = first.config.map.is_shared();
    let config_paths = plan.nodes.iter().map(|node| (node.config.node_id(), node.config_path.clone())).collect();
    let (ask, asked) = mpsc::channel(ASKED_MAX);
    let speaks = crate::release::of_this_process().map_err(StartError::from)?;
    let above = Above { admin: admin_address, asked: is_shared.then_some(ask), speaks };
    let ids: Vec<NodeId> = plan.nodes.iter().map(|node| node.config.node_id()).collect();
    let (control, requests) = control::channels(&ids);
    let mut cores = Vec::with_capacity(ids.len());
    let outcome = tokio::select! {
        outcome = start_all(plan, requests, above, &mut cores) => Some(outcome),
        () = signals.next() => None,
    };
    let (started, map) = match outcome {
        Some(Ok(started)) => started,
        Some(Err(error)) => {
            end_cores(cores).await;
            return Err(error);
        }
        None => {
            log::info!("stopping before the start was over");
            stop(signals, control, cores, None).await;
            return Ok(());
        }
    };
    let ids_first = ids[0];
    let nodes = ids.into_iter().zip(&started);
    let addresses = Addresses {
        nqn: started[0].nqn.clone(),
        nodes: nodes
            .map(|(node, started)| NodeAddresses {
                node,
                nvme: told.told(started.nvme),
                nbd: told.told(started.nbd),
                pid: std::process::id(),
            })
            .collect(),
        admin: told.told(admin_address),
        any_host,
    };
    let name = NodeName(ids_first).to_string();
    let events = Arc::new(Events::open(&name, config_path.parent().unwrap_or(Path::new("."))));
    let follower = Follower::start(map);
    let (stop_admin, admin_stopped) = oneshot::channel::<()>();
    let admin = Admin {
        control: control.clone(),
        addresses: AddressBook::new(addresses.clone()),
        is_shared,
        config_path,
        config_paths,
        looked: Looked::default(),
        follower: follower.clone(),
        events: events.clone(),
    };
    let admin = tokio::spawn(admin.serve(admin_listener, asked, async { drop(admin_stopped.await) }));
    if let Some(pipe) = supervisor {
        tokio::spawn(testament::tell(control.clone(), pipe));
    }
    tell_start(&events, &name);
    let watch = Watch::start(follower, control.clone(), events.clone());
    ready(&addresses);
    signals.next().await;
    log::info!("stopping");
    watch.stop();
    events.note(kind::NODE_STOPPED, &[&name], format!("{name} is stopped by order"));
    events.close();
    drop(stop_admin);
    stop(signals, control, cores, Some(admin)).await;
    log::info!("stopped");
    Ok(())
}

/// That the node serves, and whether its last life ended otherwise than by order.
fn tell_start(events: &Events, name: &str) {
    let before = if events.ended_unasked() { "; its last life ended without a stop" } else { "" };
    events.note(
        kind::NODE_STARTED,
        &[name],
        format!("{name} serves, with cairn {}{before}", env!("CARGO_PKG_VERSION")),
    );
}

/// Begins a cluster whose nodes are processes of their own, all of them on this machine: their devices become the cluster's, and
/// its pool is made of all of them. What is there already stays.
///
/// # Errors
/// As of a start.
///
/// # Panics
/// Without a node.
pub async fn found(nodes: &[NodePlace], replicas: u16) -> Result<(), ServiceError> {
    let map = local_node::open_map(&nodes[0].config)?;
    let cores = Cores::start(1, &Options::default()).map_err(ServiceError::Cores)?;
    let devices = |node: &NodePlace| node.config.devices.iter().map(|device| device.path.clone()).collect();
    let all = nodes.iter().map(|node| (node.config.node_id(), devices(node))).collect();
    let prepared = local_node::prepare(&cores.handles()[0], map, all, replicas).await;
    end_cores(vec![cores]).await;
    Ok(prepared.unwrap_or(Err(StartError::Lost))?)
}

/// What all nodes of the process have in common.
#[derive(Clone)]
struct Above {
    /// Where the admin API is.
    admin: SocketAddr,
    /// Who answers what other processes ask of it.
    asked: Option<mpsc::Sender<Asked>>,
    speaks: Speaks,
}

/// Starts all nodes, each on cores of its own, which are in `cores` as soon as they run. The first one comes last: it makes
/// the volumes that are wanted, and then everybody is there to take them in. Returns the map, too.
async fn start_all(
    plan: ServicePlan,
    requests: Vec<CrossReceiver<Request>>,
    above: Above,
    cores: &mut Vec<Cores>,
) -> Result<(Vec<Started>, Arc<dyn MapStore>), ServiceError> {
    let ServicePlan { nodes, replicas, blank, wanted_volumes, compression, record, before_serving, supervisor: _ } =
        plan;
    let map = local_node::open_map(&nodes[0].config)?;
    for (index, node) in nodes.iter().enumerate() {
        let record = record.clone().filter(|_| index == 0);
        let options = Options { record, busy_poll: Duration::from_micros(node.config.busy_poll_us.into()) };
        cores.push(Cores::start(usize::from(node.config.cores), &options).map_err(ServiceError::Cores)?);
    }
    if nodes.len() > 1 {
        let devices = |node: &NodePlace| node.config.devices.iter().map(|device| device.path.clone()).collect();
        let all = nodes.iter().map(|node| (node.config.node_id(), devices(node))).collect();
        local_node::prepare(&cores[0].handles()[0], map.clone(), all, replicas)
            .await
            .unwrap_or(Err(StartError::Lost))?;
    }
    let mut first = Some((wanted_volumes, before_serving));
    let mut started = Vec::with_capacity(nodes.len());
    for (index, (node, requests)) in nodes.into_iter().zip(requests).enumerate().rev() {
        let (wanted_volumes, before_serving) = match first.take_if(|_| index == 0) {
            Some(first) => first,
            None => (Vec::new(), Box::new(|| Ok(())) as Box<dyn FnOnce() -> Result<(), FileError> + Send>),
        };
        let compression = compression.filter(|_| index == 0);
        let (config, map) = (node.config, map.clone());
        let Above { admin, asked: above, speaks } = above.clone();
        let plan = NodePlan { config, map, blank, wanted_volumes, compression, before_serving, admin, above, speaks };
        let starting = local_node::start(cores[index].handles(), plan, requests);
        started.push(starting.await.unwrap_or(Err(StartError::Lost))?);
    }
    started.reverse();
    Ok((started, map))
}

type AdminTask = tokio::task::JoinHandle<io::Result<()>>;

/// Ends what can be ended in time. Returns in time in any case, or not at all after a second signal.
async fn stop(mut signals: Signals, control: ControlHandle, cores: Vec<Cores>, admin: Option<AdminTask>) {
    let orderly = async {
        if let Some(admin) = admin {
            let _ = tokio::time::timeout(ADMIN_STOP_TIME_MAX, admin).await;
        }
        let _ = control.stop().await;
        end_cores(cores).await;
    };
    tokio::select! {
        result = tokio::time::timeout(STOP_TIME_MAX, orderly) => {
            if result.is_err() {
                log::warn!("a device or client did not end in time and was left behind: nothing acknowledged is lost");
                // The threads that hang must not be waited for by anybody.
                std::process::exit(0);
            }
        }
        () = signals.second_order() => {
            log::warn!("second signal: ending at once");
            std::process::exit(EXIT_SECOND_SIGNAL);
        }
    }
}

async fn end_cores(cores: Vec<Cores>) {
    // Joining blocks; signals must be heard meanwhile.
    let _ = tokio::task::spawn_blocking(move || cores.into_iter().for_each(Cores::stop)).await;
}

async fn listen_for_admin(config: &NodeConfig) -> Result<TcpListener, ServiceError> {
    let address = SocketAddr::new(config.listen, config.admin_port);
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| ListenError { what: "the admin API", flag: "--admin-port", address, source }.into())
}

/// The address to tell others for one listened on: for "all addresses" the one that this machine uses outwards.
pub(crate) fn reachable(listening: SocketAddr) -> SocketAddr {
    if !listening.ip().is_unspecified() {
        return listening;
    }
    // Connecting a datagram socket sends nothing; it only asks the routing table. The addresses are for documentation.
    let (any, outside, local): (IpAddr, IpAddr, IpAddr) = match listening.ip() {
        IpAddr::V4(any) => (any.into(), Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(any) => {
            (any.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(), Ipv6Addr::LOCALHOST.into())
        }
    };
    let routed = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((outside, 9))?;
        socket.local_addr()
    });
    SocketAddr::new(routed.map_or(local, |address| address.ip()), listening.port())
}

/// SIGINT and SIGTERM, one after the other.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next order that is not the echo of the one just heard.
    async fn second_order(&mut self) {
        let heard = tokio::time::Instant::now();
        loop {
            self.next().await;
            if heard.elapsed() > SAME_ORDER {
                return;
            }
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_nobody_can_connect_to_is_never_told() {
        for listening in ["0.0.0.0:4420", "[::]:4420"] {
            let told = reachable(listening.parse().unwrap());
            assert!(!told.ip().is_unspecified() && told.port() == 4420, "{told}");
        }
        let plain: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert_eq!(reachable(plain), plain);
    }
}

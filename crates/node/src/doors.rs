//! The front doors: one listener each on core 0, one worker each on every core, all before the volumes of their core.

use crate::config::NodeConfig;
use nvme::machine::Subsystem;
use nvme::serve::{OtherNode, Port, Target};
use runtime::{TaskHandle, TcpListener};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use types::{ClusterId, NodeId};
use volume::Assembly;

/// Model that NVMe hosts show.
const MODEL: &str = "Cairn";
/// Serial numbers have at most 20 characters.
const SERIAL_DIGITS: usize = 20;
/// Controller ids of one node: as many hosts as connect to a node, with room; 60 nodes fit below the reserved ids.
const CONTROLLER_IDS_PER_NODE: u32 = 1088;

/// How often discovery hears which other nodes serve clients.
const OTHERS_WAIT: Duration = Duration::from_secs(1);

/// A socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {what} ({source}): {}", self.remedy())]
pub struct ListenError {
    /// Whose socket.
    pub what: &'static str,
    /// The flag that chooses its port.
    pub flag: &'static str,
    /// Where.
    pub address: SocketAddr,
    /// What the system says.
    pub source: io::Error,
}

impl ListenError {
    fn remedy(&self) -> String {
        let flag = self.flag;
        match self.source.kind() {
            io::ErrorKind::AddrInUse => {
                format!("end what listens there, or choose another port with {flag} (0 takes any free one)")
            }
            io::ErrorKind::AddrNotAvailable => "choose an address of this machine with --listen".to_owned(),
            io::ErrorKind::PermissionDenied => format!("choose a port from 1024 on with {flag}, or start as root"),
            _ => format!("choose another port with {flag}, or another address with --listen"),
        }
    }
}

/// Sockets that are bound and let nobody in yet.
pub(crate) struct Bound {
    nvme: TcpListener,
    discovery: Option<TcpListener>,
    nbd: TcpListener,
}

impl Bound {
    /// Binds all sockets: a node that gets two of three ports lets nobody in.
    ///
    /// # Errors
    /// A port that cannot be had.
    pub(crate) fn new(config: &NodeConfig) -> Result<Self, ListenError> {
        let discovery = |port| listen("NVMe discovery", "--discovery-port", config.listen, port);
        Ok(Self {
            nvme: listen("NVMe/TCP", "--nvme-port", config.listen, config.nvme_port)?,
            discovery: config.discovery_port.map(discovery).transpose()?,
            nbd: listen("NBD", "--nbd-port", config.listen, config.nbd_port)?,
        })
    }
}

/// Open doors. They stay open until [`close`](Self::close).
pub(crate) struct Doors {
    /// NQN of the subsystem that all volumes are namespaces of.
    pub(crate) nqn: String,
    /// Where NVMe/TCP is served.
    pub(crate) nvme: SocketAddr,
    /// Where NBD is served.
    pub(crate) nbd: SocketAddr,
    /// The NVMe/TCP target.
    pub(crate) target: Arc<Target>,
    listening: Vec<TaskHandle>,
    nbd_connections: Vec<nbd::ConnectionCount>,
}

/// How many clients there are.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clients {
    /// Controllers that NVMe hosts have connected.
    pub(crate) nvme_controllers: usize,
    /// Connections of NBD clients.
    pub(crate) nbd_connections: usize,
}

impl Doors {
    /// How many clients there are now.
    pub(crate) fn clients(&self) -> Clients {
        Clients {
            nvme_controllers: self.target.controllers().len(),
            nbd_connections: self.nbd_connections.iter().map(nbd::ConnectionCount::get).sum(),
        }
    }

    /// Lets clients in. Called on core 0.
    pub(crate) fn open(assembly: &Assembly, bound: Bound, node: NodeId, core_count: usize, any_host: bool) -> Self {
        let (nvme, nbd) = (bound.nvme.local_address(), bound.nbd.local_address());
        let subsystem = subsystem(assembly.cluster_id(), node, any_host);
        let nqn = subsystem.nqn.clone();
        let (target, workers) = Target::new(subsystem, core_count);
        for (core, worker) in workers.into_iter().enumerate() {
            assembly.spawn_on(core, move |directory| worker.run(directory));
        }
        let mut listening = vec![runtime::spawn(target.clone().serve(bound.nvme, Port::Io))];
        if let Some(listener) = bound.discovery {
            listening.push(runtime::spawn(target.clone().serve(listener, Port::Discovery)));
        }
        listening.push(runtime::spawn(tell_of_others(assembly.clone(), target.clone())));

        let (handles, workers): (Vec<_>, Vec<_>) = (0..core_count).map(|_| nbd::worker()).unzip();
        for (core, worker) in workers.into_iter().enumerate() {
            assembly.spawn_on(core, move |directory| worker.run(directory));
        }
        let nbd_connections = handles.iter().map(nbd::WorkerHandle::count).collect();
        listening.push(runtime::spawn(nbd::serve(bound.nbd, handles)));
        Self { nqn, nvme, nbd, target, listening, nbd_connections }
    }

    /// Takes no new client and nothing new of those there are, answers what was admitted, and ends their connections. NBD
    /// connections do so by themselves once nobody listens.
    pub(crate) async fn close(self) {
        for task in self.listening {
            task.cancel();
        }
        self.target.drain().await;
        self.target.stop();
    }
}

/// Discovery names the other nodes that let clients in.
async fn tell_of_others(assembly: Assembly, target: Arc<Target>) {
    loop {
        let peers = assembly.peers().into_iter().filter(|peer| !peer.has_ended);
        let others = peers.filter_map(|peer| {
            let address = peer.doors?.nvme.parse().ok()?;
            Some(OtherNode { node: peer.node, port_id: controller_ids(peer.node).start, address })
        });
        target.set_others(others.collect());
        runtime::sleep(OTHERS_WAIT).await;
    }
}

fn listen(what: &'static str, flag: &'static str, on: IpAddr, port: u16) -> Result<TcpListener, ListenError> {
    let address = SocketAddr::new(on, port);
    TcpListener::bind(address).map_err(|source| ListenError { what, flag, address, source })
}

/// What hosts are told of the cluster's subsystem: the same on every node but for the controller ids.
fn subsystem(cluster: ClusterId, node: NodeId, any_host: bool) -> Subsystem {
    Subsystem {
        nqn: nqn_of(cluster),
        serial: cluster.to_string()[..SERIAL_DIGITS].to_owned(),
        model: MODEL.to_owned(),
        firmware: env!("CARGO_PKG_VERSION").to_owned(),
        controller_ids: controller_ids(node),
        open_by_default: any_host,
    }
}

/// A UUID-based NQN (NVMe Base 2.0 §4.5): unique without owning a domain name.
fn nqn_of(cluster: ClusterId) -> String {
    let hex = cluster.to_string();
    let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}")
}

fn controller_ids(node: NodeId) -> Range<u16> {
    let first = 1 + (node.0 - 1) * CONTROLLER_IDS_PER_NODE;
    let end = first + CONTROLLER_IDS_PER_NODE;
    let id = |number: u32| u16::try_from(number).expect("node numbers are checked where the configuration is read");
    id(first)..id(end)
}

/// Nodes that have controller ids of their own.
pub(crate) const NODES_MAX: u32 = cluster::NODES_MAX;
const _: () = assert!(NODES_MAX == (0xffef - 1) / CONTROLLER_IDS_PER_NODE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nqn_holds_the_cluster_as_a_uuid() {
        let cluster = ClusterId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        assert_eq!(nqn_of(cluster), "nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn no_two_nodes_share_a_controller_id_and_none_is_reserved() {
        assert_eq!(controller_ids(NodeId(1)).start, 1);
        for node in 1..NODES_MAX {
            assert_eq!(controller_ids(NodeId(node)).end, controller_ids(NodeId(node + 1)).start);
        }
        assert!(controller_ids(NodeId(NODES_MAX)).end <= 0xfff0);
    }
}

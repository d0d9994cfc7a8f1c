//! A cluster of nodes in network namespaces of their own, with three etcds, and how they are cut off from each other.
//!
//! ```text
//!   namespace of the scenario          10.77.0.1 clients · 10.77.0.2 to .4 etcd
//!        bridge ── one pair of veth per node ── namespace of node N: 10.77.0.(10 + N)
//! ```
//!
//! What a node sends to an address goes nowhere as long as its namespace has a blackhole route to it: so one direction can be cut
//! alone. Nothing of the machine's own network is touched; all of it goes with the processes. Needs root, as namespaces do.

use crate::cluster::{children, signal};
use e2e::demo::binary;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nodes of such a cluster.
pub const NODES: usize = 3;
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const ETCDS: [Ipv4Addr; 3] = [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 3), Ipv4Addr::new(10, 77, 0, 4)];
const ADMIN_PORT: u16 = 8420;
/// What is started is there in this time.
const START_MAX: Duration = Duration::from_secs(60);
/// Who does not say within this what it measures is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Whom a node does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// What it says to other nodes, and what they say to it.
    Nodes,
    /// What it says to other nodes; it hears them.
    ToNodes,
    /// What other nodes say to it; they hear it.
    FromNodes,
    /// etcd.
    Etcd,
    /// Clients.
    Clients,
    /// All of these.
    All,
}

/// See the module.
pub struct Network {
    /// Processes that hold the nodes' namespaces, and the nodes in them.
    namespaces: Vec<Process>,
    nodes: Vec<Process>,
    etcds: Vec<Process>,
    directory: PathBuf,
}

/// A process that ends with this.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn address_of(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 10 + node as u8)
}

/// Where a node's admin API is.
pub fn admin_of(node: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(address_of(node)), ADMIN_PORT)
}

impl Network {
    /// Namespaces, etcd, and a cluster of three nodes of which each has a device of this size, in a directory. The calling thread,
    /// and whatever it starts, is in a network of its own from now on.
    pub fn new(directory: &Path, device_size: &str) -> Self {
        // SAFETY: unshare takes a number; only this thread has another network from then on.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "a network of its own: {} (this needs root)", std::io::Error::last_os_error());
        runs("ip", ["link", "set", "lo", "up"]);
        runs("ip", ["link", "add", "hub", "type", "bridge"]);
        for address in [CLIENTS].into_iter().chain(ETCDS) {
            runs("ip", ["addr", "add", &format!("{address}/24"), "dev", "hub"]);
        }
        runs("ip", ["link", "set", "hub", "up"]);
        let etcds = (0..ETCDS.len()).map(|index| etcd(index, directory)).collect();
        let namespaces = (1..=NODES).map(namespace).collect();
        let mut this = Self { namespaces, nodes: Vec::new(), etcds, directory: directory.to_owned() };
        let endpoints = ETCDS.map(|address| format!("http://{address}:2379")).join(",");
        for node in 1..=NODES {
            let device = directory.join(format!("device-{node}.img"));
            runs("truncate", [OsStr::new("-s"), device_size.as_ref(), device.as_os_str()]);
            let (listen, dir) = (address_of(node).to_string(), this.directory_of(node));
            let verb = if node == 1 { "init" } else { "join" };
            let mut command = this.within(node, binary());
            command.args([verb, "--etcd", &endpoints, "--listen", &listen, "--cores", "1"]);
            command.arg("--device").arg(&device).arg("--dir").arg(&dir);
            // etcd may not have a leader yet.
            succeeds(command, |said| !said.contains("etcd"));
        }
        this.nodes = (1..=NODES).map(|node| this.run_node(node)).collect();
        this
    }

    fn run_node(&self, node: usize) -> Process {
        let mut command = self.within(node, binary());
        command.args(["node", "run", "--config"]).arg(self.directory_of(node).join("node.toml"));
        Process(command.stdout(Stdio::null()).spawn().expect("cairn can be run"))
    }

    /// Ends a node (from 1), worker and supervisor at once, with SIGKILL: none tells of the other's end.
    pub fn kill_node(&mut self, node: usize) {
        let Process(supervisor) = &mut self.nodes[node - 1];
        let pid = supervisor.id() as i32;
        signal(pid, libc::SIGSTOP);
        let workers: Vec<_> = children(pid).collect();
        supervisor.kill().expect("it runs");
        workers.into_iter().for_each(|worker| signal(worker, libc::SIGKILL));
        supervisor.wait().expect("it runs");
    }

    /// Starts it again.
    pub fn start_node(&mut self, node: usize) {
        self.nodes[node - 1] = self.run_node(node);
    }

    /// Where a node's file is.
    fn directory_of(&self, node: usize) -> PathBuf {
        self.directory.join(format!("node-{node}"))
    }

    /// A node's device.
    pub fn device(&self, node: usize) -> PathBuf {
        self.directory.join(format!("device-{node}.img"))
    }

    /// A command in the network of a node (from 1).
    fn within(&self, node: usize, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.namespaces[node - 1].0.id())).arg("--").arg(program);
        command
    }

    /// A node is cut off, until it is [healed](Self::heal).
    pub fn cut(&self, node: usize, cut: Cut) {
        self.blackhole(node, cut, "add");
    }

    /// The same cut is over.
    pub fn heal(&self, node: usize, cut: Cut) {
        self.blackhole(node, cut, "del");
    }

    fn blackhole(&self, node: usize, cut: Cut, verb: &str) {
        let others = (1..=NODES).filter(|other| *other != node);
        let to_nodes = others.clone().map(|other| (node, address_of(other)));
        let from_nodes = others.map(|other| (other, address_of(node)));
        let to = |addresses: &'static [Ipv4Addr]| addresses.iter().map(move |address| (node, *address));
        let routes: Vec<_> = match cut {
            Cut::Nodes => to_nodes.chain(from_nodes).collect(),
            Cut::ToNodes => to_nodes.collect(),
            Cut::FromNodes => from_nodes.collect(),
            Cut::Etcd => to(&ETCDS).collect(),
            Cut::Clients => to(&[CLIENTS]).collect(),
            Cut::All => to_nodes.chain(from_nodes).chain(to(&ETCDS)).chain(to(&[CLIENTS])).collect(),
        };
        for (from, to) in routes {
            let mut command = self.within(from, Path::new("ip"));
            command.args(["route", verb, "blackhole", &format!("{to}/32")]);
            succeeds(command, |_| true);
        }
    }

    /// Ends an etcd (from 0) with SIGKILL; what it had stays.
    pub fn kill_etcd(&mut self, index: usize) {
        let Process(etcd) = &mut self.etcds[index];
        etcd.kill().and_then(|()| etcd.wait()).expect("it runs");
    }

    /// Starts it again.
    pub fn start_etcd(&mut self, index: usize) {
        self.etcds[index] = etcd(index, &self.directory);
    }

    /// Which etcd leads the others.
    pub fn etcd_leader(&self) -> Option<usize> {
        (0..ETCDS.len()).find(|index| {
            metrics_of((ETCDS[*index], 2379).into()).is_some_and(|said| said.contains("\netcd_server_is_leader 1\n"))
        })
    }

    /// Ends all nodes in order.
    pub fn stop(mut self) {
        for Process(node) in &self.nodes {
            signal(node.id() as i32, libc::SIGTERM);
        }
        for Process(node) in &mut self.nodes {
            let status = node.wait().expect("it was started here");
            assert!(status.success(), "a node that is stopped: {status}");
        }
    }
}

fn etcd(index: usize, directory: &Path) -> Process {
    let url = |address: Ipv4Addr, port: u16| format!("http://{address}:{port}");
    let all: Vec<_> = (0..ETCDS.len()).map(|other| format!("etcd-{other}={}", url(ETCDS[other], 2380))).collect();
    let (client, peer) = (url(ETCDS[index], 2379), url(ETCDS[index], 2380));
    let log = std::fs::File::options().create(true).append(true).open(directory.join(format!("etcd-{index}.log")));
    let log = log.expect("a file can be made");
    let mut command = Command::new("etcd");
    command.args(["--name", &format!("etcd-{index}"), "--initial-cluster", &all.join(",")]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.arg("--data-dir").arg(directory.join(format!("etcd-{index}")));
    Process(command.stdout(Stdio::null()).stderr(log).spawn().expect("etcd can be run"))
}

/// What an etcd, or a node, measures, as text.
pub(crate) fn metrics_of(server: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_MAX).ok()?;
    stream.set_read_timeout(Some(ANSWER_MAX)).ok()?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {server}\r\n\r\n").ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    Some(said)
}

/// The namespace of a node (from 1), on the bridge.
fn namespace(node: usize) -> Process {
    let holder = Command::new("unshare").args(["--net", "sleep", "infinity"]).spawn().expect("unshare can be run");
    let (holder, ours) = (Process(holder), std::fs::read_link("/proc/thread-self/ns/net").expect("Linux"));
    let pid = holder.0.id();
    let its = || std::fs::read_link(format!("/proc/{pid}/ns/net")).expect("it runs");
    let began = Instant::now();
    while its() == ours {
        assert!(began.elapsed() < START_MAX, "it has no network of its own");
        std::thread::sleep(Duration::from_millis(2));
    }
    let (link, pid) = (format!("node-{node}"), pid.to_string());
    runs("ip", ["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &pid]);
    runs("ip", ["link", "set", &link, "master", "hub", "up"]);
    let net = format!("--net=/proc/{pid}/ns/net");
    let address = format!("{}/24", address_of(node));
    for command in
        [&["addr", "add", &address, "dev", "eth0"][..], &["link", "set", "eth0", "up"], &["link", "set", "lo", "up"]]
    {
        runs("nsenter", [net.as_str(), "--", "ip"].iter().chain(command));
    }
    holder
}

fn runs<T: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = T>) {
    let mut command = Command::new(program);
    command.args(arguments);
    succeeds(command, |_| true);
}

/// Runs it until it succeeds, or for long; once, if `is_final` says of what went wrong that it stays so.
pub(crate) fn succeeds(mut command: Command, is_final: impl Fn(&str) -> bool) {
    let began = Instant::now();
    loop {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?} can be run: {error}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return;
        }
        assert!(!is_final(&said) && began.elapsed() < START_MAX, "{command:?}: {said}(networks and mounts need root)");
        std::thread::sleep(Duration::from_millis(200));
    }
}

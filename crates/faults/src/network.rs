//! A cluster of nodes in network namespaces of their own, with three etcds, and how they are cut off from each other.
//!
//! ```text
//!   namespace of the scenario          10.77.0.1 clients · 10.77.0.2 to .4 etcd
//!        bridge ── one pair of veth per node ── namespace of node N: 10.77.0.(10 + N)
//! ```
//!
//! What a node sends to an address goes nowhere as long as its namespace has a blackhole route to it: so one direction can be cut
//! alone. Nothing of the machine's own network is touched; all of it goes with the processes. Needs root, as namespaces do.

use crate::cluster::{Shape, children, signal};
use crate::faulty::Faulty;
use e2e::demo::binary;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const ETCDS: [Ipv4Addr; 3] = [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 3), Ipv4Addr::new(10, 77, 0, 4)];
const ADMIN_PORT: u16 = 8420;
const PEERS_PORT: u16 = 8430;
/// What is started is there in this time.
const START_MAX: Duration = Duration::from_secs(60);
/// Who does not say within this what it measures is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// A supervisor has told all that its node has ended; it starts it after this.
const TELLS: Duration = Duration::from_millis(500);

/// Whom a node does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// What it says to other nodes, and what they say to it.
    Nodes,
    /// What it says to other nodes; it hears them.
    ToNodes,
    /// What other nodes say to it; they hear it.
    FromNodes,
    /// What it and the second node say to each other; all others hear both.
    Second,
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
    /// Of a node (from 1) that is killed: none.
    nodes: Vec<Option<Process>>,
    etcds: Vec<Option<Process>>,
    election: Duration,
    /// How many cuts there are from a node to an address: two nodes that are cut off do not reach each other for two reasons.
    cuts: RefCell<BTreeMap<(usize, Ipv4Addr), usize>>,
    directory: PathBuf,
}

/// A process that ends with this.
struct Process(Child);

impl Process {
    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

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
    /// Namespaces, etcd, and a cluster of nodes of which each has a device of this size, in a directory. The calling thread, and
    /// whatever it starts, is in a network of its own from now on. Devices of `faulty` (nodes from 1) can be made to fail.
    pub fn new(directory: &Path, shape: Shape, faulty: &[usize]) -> (Self, Vec<(usize, Faulty)>) {
        // SAFETY: unshare takes a number; only this thread has another network from then on.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "a network of its own: {} (this needs root)", std::io::Error::last_os_error());
        runs("ip", ["link", "set", "lo", "up"]);
        runs("ip", ["link", "add", "hub", "type", "bridge"]);
        for address in [CLIENTS].into_iter().chain(ETCDS) {
            runs("ip", ["addr", "add", &format!("{address}/24"), "dev", "hub"]);
        }
        runs("ip", ["link", "set", "hub", "up"]);
        let etcds = (0..ETCDS.len()).map(|index| Some(etcd(index, directory, shape.election))).collect();
        let namespaces = (1..=shape.nodes).map(namespace).collect();
        let mut this = Self {
            namespaces,
            nodes: Vec::new(),
            etcds,
            election: shape.election,
            cuts: RefCell::default(),
            directory: directory.to_owned(),
        };
        let mut devices = Vec::new();
        for node in 1..=shape.nodes {
            std::fs::create_dir_all(this.disk_of(node)).expect("a directory can be made");
            if faulty.contains(&node) {
                let device = this.device(node);
                make_file(&device, shape.device_size);
                devices.push((node, Faulty::over(&device)));
            }
            let copies = shape.copies().to_string();
            let how: &[&str] = if node == 1 { &["init", "--replicas", &copies] } else { &["join"] };
            this.enter(how, node, shape.device_size, PEERS_PORT);
        }
        for node in 1..=shape.nodes {
            this.nodes.push(None);
            this.start_node(node);
        }
        (this, devices)
    }

    /// A node with a device of this size, neither of which was there before, begins a cluster or joins it.
    fn enter(&self, how: &[&str], node: usize, device_size: &str, peers_port: u16) {
        let device = self.device(node);
        make_file(&device, device_size);
        let endpoints = [0, 1, 2].map(|index| self.etcd_name(index)).join(",");
        let mut command = self.within(node, binary());
        command.args(how).args(["--etcd", &endpoints, "--listen", &address_of(node).to_string(), "--cores", "1"]);
        command.args(["--peers-port", &peers_port.to_string()]);
        command.arg("--device").arg(&device).arg("--dir").arg(self.directory_of(node));
        // etcd may not have a leader yet.
        succeeds(command, |said| !said.contains("etcd"));
    }

    /// Starts a node (from 1) that does not run.
    pub fn start_node(&mut self, node: usize) {
        let mut command = self.within(node, binary());
        command.args(["node", "run", "--config"]).arg(self.directory_of(node).join("node.toml"));
        let log =
            std::fs::File::options().create(true).append(true).open(self.directory.join(format!("node-{node}.log")));
        command.stdout(Stdio::null()).stderr(log.expect("a file can be made"));
        self.nodes[node - 1] = Some(Process(command.spawn().expect("cairn can be run")));
    }

    /// Ends a node with SIGKILL, and who would start it again: neither can tell of the other's end.
    pub fn kill_node(&mut self, node: usize) {
        let supervisor = self.nodes[node - 1].take().expect("it runs");
        signal(supervisor.pid(), libc::SIGSTOP);
        // One may be about to start.
        self.worker(supervisor.pid()).into_iter().for_each(|worker| signal(worker, libc::SIGKILL));
    }

    /// A node (from 1) is killed, which its supervisor tells the others; then somebody starts it anew, who does not wait for longer
    /// after each end, as a supervisor does.
    pub fn restart_node(&mut self, node: usize) {
        let worker = self.worker_of(node);
        worker.into_iter().for_each(|worker| signal(worker, libc::SIGKILL));
        std::thread::sleep(TELLS);
        self.nodes[node - 1] = None;
        self.start_node(node);
    }

    /// Ends a node in order.
    pub fn stop_node(&mut self, node: usize) {
        let Process(child) = &mut *self.nodes[node - 1].as_mut().expect("it runs");
        signal(child.id() as i32, libc::SIGTERM);
        let status = child.wait().expect("it was started here");
        assert!(status.success(), "a node that is stopped: {status}");
        self.nodes[node - 1] = None;
    }

    /// The node itself, if its supervisor (from 1) runs and has it started.
    pub fn worker_of(&self, node: usize) -> Option<i32> {
        self.worker(self.nodes[node - 1].as_ref()?.pid())
    }

    fn worker(&self, supervisor: i32) -> Option<i32> {
        children(supervisor).next()
    }

    /// All that a node had goes, with it.
    pub fn wipe(&mut self, node: usize) {
        self.kill_node(node);
        std::fs::remove_dir_all(self.machine_of(node)).expect("it can be removed");
    }

    /// A machine that has nothing joins the cluster, where a node (from 1) was [wiped](Self::wipe).
    pub fn join(&mut self, node: usize, device_size: &str) {
        std::fs::create_dir_all(self.disk_of(node)).expect("a directory can be made");
        // Where the lost one listened is its own until it is taken out.
        self.enter(&["join"], node, device_size, PEERS_PORT + 1);
        self.start_node(node);
    }

    fn machine_of(&self, node: usize) -> PathBuf {
        self.directory.join(format!("machine-{node}"))
    }

    /// Where a node's file is.
    fn directory_of(&self, node: usize) -> PathBuf {
        self.machine_of(node).join("node")
    }

    fn disk_of(&self, node: usize) -> PathBuf {
        self.machine_of(node).join("disk")
    }

    /// A node's device.
    pub fn device(&self, node: usize) -> PathBuf {
        self.disk_of(node).join("device-1.img")
    }

    /// A command in the network of a node (from 1).
    fn within(&self, node: usize, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.namespaces[node - 1].0.id())).arg("--").arg(program);
        command
    }

    /// Bytes that have come to a node's network (from 1) since it was made, packets' heads included.
    pub fn received_bytes(&self, node: usize) -> u64 {
        let path = format!("/proc/{}/net/dev", self.namespaces[node - 1].pid());
        let said = std::fs::read_to_string(path).expect("who holds it runs");
        let received = said.lines().find_map(|line| line.trim().strip_prefix("eth0:")?.split_whitespace().next());
        received.and_then(|bytes| bytes.parse().ok()).expect("it has one interface")
    }

    /// A node is cut off, until it is [healed](Self::heal).
    pub fn cut(&self, node: usize, cut: Cut) {
        for way in self.ways(node, cut) {
            let mut cuts = self.cuts.borrow_mut();
            let count = cuts.entry(way).or_default();
            *count += 1;
            if *count == 1 {
                self.blackhole(way, "add");
            }
        }
    }

    /// The same cut is over.
    pub fn heal(&self, node: usize, cut: Cut) {
        for way in self.ways(node, cut) {
            let mut cuts = self.cuts.borrow_mut();
            let count = cuts.get_mut(&way).expect("what is healed was cut");
            *count -= 1;
            if *count == 0 {
                self.blackhole(way, "del");
            }
        }
    }

    /// From which node to which addresses.
    fn ways(&self, node: usize, cut: Cut) -> Vec<(usize, Ipv4Addr)> {
        let others = (1..=self.nodes.len()).filter(|other| *other != node);
        let to_nodes = others.clone().map(|other| (node, address_of(other)));
        let from_nodes = others.map(|other| (other, address_of(node)));
        let to = |addresses: &'static [Ipv4Addr]| addresses.iter().map(move |address| (node, *address));
        match cut {
            Cut::Nodes => to_nodes.chain(from_nodes).collect(),
            Cut::ToNodes => to_nodes.collect(),
            Cut::FromNodes => from_nodes.collect(),
            Cut::Second => vec![(node, address_of(2)), (2, address_of(node))],
            Cut::Etcd => to(&ETCDS).collect(),
            Cut::Clients => to(&[CLIENTS]).collect(),
            Cut::All => to_nodes.chain(from_nodes).chain(to(&ETCDS)).chain(to(&[CLIENTS])).collect(),
        }
    }

    fn blackhole(&self, (from, to): (usize, Ipv4Addr), verb: &str) {
        let mut command = self.within(from, Path::new("ip"));
        command.args(["route", verb, "blackhole", &format!("{to}/32")]);
        succeeds(command, |_| true);
    }

    /// Ends an etcd (from 0) with SIGKILL, if it runs; what it had stays.
    pub fn kill_etcd(&mut self, index: usize) {
        self.etcds[index] = None;
    }

    /// Starts it again, if it does not run.
    pub fn start_etcd(&mut self, index: usize) {
        self.etcds[index].get_or_insert_with(|| etcd(index, &self.directory, self.election));
    }

    /// Where an etcd (from 0) is, as nodes know it.
    pub fn etcd_name(&self, index: usize) -> String {
        format!("http://{}:2379", ETCDS[index])
    }

    /// Which etcd leads the others.
    pub fn etcd_leader(&self) -> Option<usize> {
        (0..ETCDS.len()).find(|index| {
            metrics_of((ETCDS[*index], 2379).into()).is_some_and(|said| said.contains("\netcd_server_is_leader 1\n"))
        })
    }

    /// Ends all nodes in order.
    pub fn stop(mut self) {
        for Process(node) in self.nodes.iter().flatten() {
            signal(node.id() as i32, libc::SIGTERM);
        }
        for Process(node) in self.nodes.iter_mut().flatten() {
            let status = node.wait().expect("it was started here");
            assert!(status.success(), "a node that is stopped: {status}");
        }
    }
}

/// The link of a node that goes down and comes back, over and over, until this is dropped.
pub struct Flaps {
    /// Nothing is ever said: it ends with this.
    until: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Flaps {
    /// Long enough for others to notice that the node is gone, and to go on without it.
    const DOWN: Duration = Duration::from_secs(4);
    /// Long enough to be heard, and too short to be whole again.
    const UP: Duration = Duration::from_secs(1);

    /// From now on. Without its link a node (from 1) reaches nobody, and nobody it.
    pub fn new(node: usize) -> Self {
        let (until, ends) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let link = format!("node-{node}");
            for (state, time) in [("down", Self::DOWN), ("up", Self::UP)].into_iter().cycle() {
                runs("ip", ["link", "set", &link, state]);
                if ends.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Disconnected) {
                    return runs("ip", ["link", "set", &link, "up"]);
                }
            }
        });
        Self { until: Some(until), thread: Some(thread) }
    }
}

impl Drop for Flaps {
    fn drop(&mut self) {
        drop(self.until.take());
        let ended = self.thread.take().expect("it is taken here alone").join();
        assert!(ended.is_ok() || std::thread::panicking(), "a link is up again");
    }
}

/// One of three, which hears of its leader ten times in the time that it does without.
fn etcd(index: usize, directory: &Path, election: Duration) -> Process {
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
    command.arg(format!("--election-timeout={}", election.as_millis()));
    command.arg(format!("--heartbeat-interval={}", election.as_millis() / 10));
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

/// A file of this size, in the words of `truncate`.
fn make_file(path: &Path, size: &str) {
    runs("truncate", [OsStr::new("-s"), size.as_ref(), path.as_os_str()]);
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

//! A cluster of its own for a measurement: processes of this program and an etcd, in a directory that goes with it.
//!
//! ```text
//!   Lab::new          etcd, N nodes by init, join and node run, on 127.0.0.1 or each in a network of its own
//!     .client(node)   the admin API of a node
//!     .processes()    what counts as the target's, and nothing that others run
//! ```
//!
//! All of it ends with this process, however that ends.

use super::network::Network;
use crate::Failure;
use crate::client::Client;
use measure::machine::Processes;
use node::admin::types::{CreateVolume, Health, Limits, NodeState, Volume};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What is started is there in this time, also on a busy machine.
pub(super) const START_MAX: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);
/// Tries to remove what processes that have just been killed may still write to.
const REMOVALS: u32 = 50;
const ZEROS_BYTES: usize = 4 << 20;
/// Cores of the data path that each node has.
pub(super) const NODE_CORES: u16 = 1;
/// Where nodes of 127.0.0.1 listen.
const PORTS: Range<u16> = 20_000..32_000;
/// Where etcd and each node listen in networks of their own: clients and members; NVMe/TCP, NBD, admin, other nodes.
const OF_ETCD: [u16; 2] = [2379, 2380];
const OF_NODES: [u16; 4] = [4420, 10809, 8420, 8430];

/// What a cluster is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Nodes, each with a device.
    pub(super) nodes: usize,
    /// Copies of the pool `default`.
    pub(super) replicas: u16,
    /// Size of each device.
    pub(super) device_bytes: u64,
    /// Whether devices hold something everywhere, so that no measurement pays for their allocation.
    pub(super) is_allocated: bool,
}

/// A process that ends with this, and with the thread that started it.
pub(super) struct Process(pub(super) Child);

impl Process {
    /// Starts it; what it says goes to a file.
    pub(super) fn start(mut command: Command, log: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", log.display()));
        let file = File::options().create(true).append(true).open(log).map_err(failed)?;
        let output = file.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(output).stderr(file);
        let program = command.get_program().to_string_lossy().into_owned();
        // SAFETY: prctl is a system call with numbers, which a child may make between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        command.spawn().map(Self).map_err(|error| cannot_run(&program, &error))
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cannot_run(program: &str, error: &std::io::Error) -> Failure {
    let package = match program {
        "etcd" => "etcd-server",
        "ip" | "tc" => "iproute2",
        _ => "util-linux",
    };
    Failure::new(format!("cannot run {program} ({error}): a cluster of its own needs it; apt install {package}"))
}

/// Runs a command to its end.
pub(super) fn runs(mut command: Command) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| cannot_run(&program, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or("it says nothing");
    Err(Failure::new(format!("{program} failed ({}): {last}", output.status)))
}

/// Waits for something that comes about by itself.
pub(super) fn wait_until(what: &str, most: Duration, mut is_so: impl FnMut() -> bool) -> Result<(), Failure> {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > most {
            return Err(Failure::new(format!(
                "{what}: not within {} s; is the machine too busy? try again",
                most.as_secs()
            )));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// A directory that goes with this, or with the process.
pub(super) struct Directory(PathBuf);

/// Those there are: whoever is told to end removes them.
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

impl Directory {
    /// A new one in this place.
    pub(super) fn new(place: &Path) -> Result<Self, Failure> {
        super::interrupt::remove_when_told(&DIRECTORIES);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = place.join(format!("cairn-bench.{}.{}", std::process::id(), now.as_nanos()));
        let path = std::path::absolute(&path).unwrap_or(path);
        fs::create_dir_all(&path).map_err(|error| {
            Failure::new(format!("{}: {error}: name a directory that can be written to with --dir", path.display()))
        })?;
        DIRECTORIES.lock().expect("nobody panics with it").push(path.clone());
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        remove(&self.0);
        DIRECTORIES.lock().expect("nobody panics with it").retain(|path| *path != self.0);
    }
}

/// Removes a directory, which processes that end just now may still write to.
pub(super) fn remove(path: &Path) {
    for _ in 0..REMOVALS {
        let _ = fs::remove_dir_all(path);
        if !path.exists() {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// A file of this size; if wanted one that holds something everywhere.
pub(super) fn device_file(path: &Path, bytes: u64, is_allocated: bool) -> Result<(), Failure> {
    let make = || {
        let mut file = File::create_new(path)?;
        if !is_allocated {
            return file.set_len(bytes);
        }
        let zeros = vec![0; ZEROS_BYTES];
        let mut left = bytes as usize;
        while left > 0 {
            let length = left.min(ZEROS_BYTES);
            file.write_all(&zeros[..length])?;
            left -= length;
        }
        file.sync_all()
    };
    make().map_err(|error| {
        Failure::new(format!("{}: {error}: {bytes} bytes are needed there; --dir names another place", path.display()))
    })
}

/// So many ports that nobody listens on, and that the kernel gives to no connection before they are used: it takes those from 32768
/// on. All of a cluster's are chosen at once: those that are chosen and not used yet would be chosen again.
fn free_ports(count: usize) -> Result<Vec<u16>, Failure> {
    let start = u64::from(PORTS.start) + RandomState::new().build_hasher().finish() % PORTS.len() as u64;
    let mut held: Vec<TcpListener> = Vec::new();
    for port in (start as u16..PORTS.end).chain(PORTS).take(PORTS.len()) {
        if held.len() == count {
            break;
        }
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
    }
    if held.len() < count {
        return Err(Failure::new(format!("no {count} ports from {} on are free", PORTS.start)));
    }
    held.iter().map(|held| Ok(held.local_addr().map_err(Failure::of)?.port())).collect()
}

/// This program.
pub(super) fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find this program ({error}): is /proc mounted?")))
}

struct Node {
    home: PathBuf,
    device: PathBuf,
    address: IpAddr,
    /// NVMe/TCP, NBD, admin, other nodes.
    ports: [u16; 4],
    /// Its supervisor; none while it does not run.
    process: Option<Process>,
}

/// See the module.
pub(super) struct Lab {
    nodes: Vec<Node>,
    etcd: Process,
    etcd_url: String,
    network: Option<Network>,
    program: PathBuf,
    // Goes last: processes write to it.
    directory: Directory,
}

impl Lab {
    /// A cluster that is whole. With `is_apart` each node is in a network of its own, and so is the calling thread from then on.
    pub(super) fn new(place: &Path, shape: Shape, is_apart: bool) -> Result<Self, Failure> {
        let directory = Directory::new(place)?;
        let network = if is_apart { Some(Network::new(shape.nodes, directory.path())?) } else { None };
        let (host, ports) = match &network {
            Some(_) => {
                (IpAddr::V4(super::network::CLIENT), OF_ETCD.into_iter().chain(OF_NODES.repeat(shape.nodes)).collect())
            }
            None => (IpAddr::V4(Ipv4Addr::LOCALHOST), free_ports(OF_ETCD.len() + OF_NODES.len() * shape.nodes)?),
        };
        let (of_etcd, of_nodes) = ports.split_at(OF_ETCD.len());
        let [client_port, peer_port] = [of_etcd[0], of_etcd[1]];
        let (etcd_url, peers) = (format!("http://{host}:{client_port}"), format!("http://{host}:{peer_port}"));
        let mut command = Command::new("etcd");
        command.args(["--name", "bench", "--listen-client-urls", &etcd_url, "--advertise-client-urls", &etcd_url]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("bench={peers}")]);
        command.arg("--data-dir").arg(directory.path().join("etcd"));
        let etcd = Process::start(command, &directory.path().join("etcd.log"))?;
        let mut this = Self { nodes: Vec::new(), etcd, etcd_url, network, program: program()?, directory };
        for (number, ports) in (1..).zip(of_nodes.chunks_exact(OF_NODES.len())) {
            this.make_node(number, shape, [ports[0], ports[1], ports[2], ports[3]])?;
        }
        for number in 1..=shape.nodes {
            this.start(number)?;
        }
        this.wait_until_whole()?;
        Ok(this)
    }

    fn make_node(&mut self, number: usize, shape: Shape, ports: [u16; 4]) -> Result<(), Failure> {
        let home = self.directory.path().join(format!("node-{number}"));
        fs::create_dir_all(&home).map_err(|error| Failure::new(format!("{}: {error}", home.display())))?;
        let device = home.join("device-1.img");
        device_file(&device, shape.device_bytes, shape.is_allocated)?;
        let address = match &self.network {
            Some(_) => IpAddr::V4(super::network::address_of(number)),
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let [nvme, nbd, admin, peers] = ports.map(|port| port.to_string());
        let enter = || {
            let mut command = self.within(number, &self.program);
            command.args([if number == 1 { "init" } else { "join" }, "--etcd", &self.etcd_url]);
            command.args(["--listen", &address.to_string(), "--cores", &NODE_CORES.to_string()]);
            command.args(["--nvme-port", &nvme, "--nbd-port", &nbd, "--admin-port", &admin, "--peers-port", &peers]);
            command.arg("--device").arg(&device).arg("--dir").arg(&home);
            if number == 1 {
                command.args(["--replicas", &shape.replicas.to_string()]);
            }
            runs(command)
        };
        // etcd may not answer yet.
        let began = Instant::now();
        while let Err(failure) = enter() {
            if !failure.line().contains("etcd") || began.elapsed() > START_MAX {
                return Err(failure);
            }
            std::thread::sleep(LOOK);
        }
        self.nodes.push(Node { home, device, address, ports, process: None });
        Ok(())
    }

    /// A command in the network of a node (from 1), if that has one.
    pub(super) fn within(&self, number: usize, program: &Path) -> Command {
        match &self.network {
            Some(network) => network.within(number, program),
            None => Command::new(program),
        }
    }

    /// The network that nodes are in.
    pub(super) fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Starts a node (from 1) that does not run.
    pub(super) fn start(&mut self, number: usize) -> Result<(), Failure> {
        let mut command = self.within(number, &self.program);
        let node = &self.nodes[number - 1];
        command.args(["node", "run", "--config"]).arg(node.home.join("node.toml"));
        let log = self.directory.path().join(format!("node-{number}.log"));
        self.nodes[number - 1].process = Some(Process::start(command, &log)?);
        Ok(())
    }

    /// Ends a node and its supervisor with SIGKILL, so that neither can tell of the other's end.
    pub(super) fn kill(&mut self, number: usize) -> Result<(), Failure> {
        let worker = self.worker(number);
        let supervisor = self.nodes[number - 1].process.take().expect("it runs");
        signal(supervisor.id(), libc::SIGSTOP);
        match worker {
            Some(worker) => signal(worker, libc::SIGKILL),
            None => return Err(Failure::new(format!("node-{number} has ended before it was to be killed"))),
        }
        // By its end the supervisor goes, too.
        Ok(())
    }

    /// Ends a node with SIGKILL; its supervisor starts it anew.
    pub(super) fn kill_worker(&self, number: usize) {
        if let Some(worker) = self.worker(number) {
            signal(worker, libc::SIGKILL);
        }
    }

    fn worker(&self, number: usize) -> Option<u32> {
        let supervisor = self.nodes[number - 1].process.as_ref()?.id();
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// The admin API of a node (from 1).
    pub(super) fn client(&self, number: usize) -> Client {
        let node = &self.nodes[number - 1];
        Client::new(&format!("http://{}", SocketAddr::new(node.address, node.ports[2])))
    }

    /// Where a node (from 1) has its device.
    pub(super) fn device(&self, number: usize) -> &Path {
        &self.nodes[number - 1].device
    }

    /// NVMe/TCP of all nodes.
    pub(super) fn nvme(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| SocketAddr::new(node.address, node.ports[0])).collect()
    }

    /// A volume's NBD URI at a node (from 1), whether or not it is the head.
    pub(super) fn nbd_uri(&self, number: usize, volume: &str) -> String {
        let node = &self.nodes[number - 1];
        format!("nbd://{}/{volume}", SocketAddr::new(node.address, node.ports[1]))
    }

    /// Nodes, supervisors and etcd, and whatever they have started.
    pub(super) fn processes(&self) -> Processes {
        let nodes = self.nodes.iter().filter_map(|node| Some(node.process.as_ref()?.id()));
        Processes::under(nodes.chain([self.etcd.id()]).collect())
    }

    /// Waits until it is.
    pub(super) fn wait_until_whole(&self) -> Result<(), Failure> {
        let client = self.client(1);
        // A node that joins gets its share: that is not what is to be measured.
        let is_at_rest = || client.status().is_ok_and(|status| status.doing.is_empty());
        let is_so = || is_whole(&client, self.nodes.len()) == Some(true) && is_at_rest();
        let whole = wait_until("the cluster is whole", START_MAX, is_so);
        whole.map_err(|failure| {
            let said = |number: usize| {
                let mut log = String::new();
                let path = self.directory.path().join(format!("node-{number}.log"));
                let _ = File::open(path).and_then(|mut file| file.read_to_string(&mut log));
                format!("node-{number}: {}", log.lines().last().unwrap_or("no word"))
            };
            let all: Vec<String> = (1..=self.nodes.len()).map(said).collect();
            Failure::new(format!("{} ({})", failure.line(), all.join("; ")))
        })
    }

    /// Makes a volume that every host may use, and waits until it is served.
    pub(super) fn volume(&self, wanted: &CreateVolume) -> Result<Volume, Failure> {
        make_volume(&self.client(1), wanted)
    }
}

/// Whether all is as it is meant to be and so many nodes are there, as this one says; none: it does not answer.
pub(super) fn is_whole(client: &Client, nodes: usize) -> Option<bool> {
    let (status, all) = (client.status().ok()?, client.nodes().ok()?);
    let are_up = all.len() == nodes && all.iter().all(|node| node.state == NodeState::Up);
    Some(status.health == Health::Healthy && status.groups > 0 && status.groups_serving == status.groups && are_up)
}

/// A volume in this pool that lies at a node, or wherever its pool puts it.
pub(super) fn volume_of(name: &str, size_bytes: u64, pool: Option<&str>, node: Option<&str>) -> CreateVolume {
    CreateVolume {
        name: name.to_owned(),
        size_bytes,
        block_size_bytes: 4096,
        secret: None,
        any_host: true,
        limits: Limits::default(),
        pool: pool.map(str::to_owned),
        replicas: None,
        placement: node.map(|_| node::admin::pool_types::Placement::Gathered),
        node: node.map(str::to_owned),
    }
}

/// Makes a volume, and waits until it is served.
pub(super) fn make_volume(client: &Client, wanted: &CreateVolume) -> Result<Volume, Failure> {
    client.create_volume(wanted)?;
    let is_home =
        |volume: &Volume| !volume.head.is_empty() && wanted.node.as_ref().is_none_or(|node| *node == volume.head);
    wait_until("the volume is served", START_MAX, || client.volume(&wanted.name).is_ok_and(|volume| is_home(&volume)))?;
    client.volume(&wanted.name)
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: kill takes two numbers; the process was started here.
    unsafe { libc::kill(pid as i32, signal) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_are_chosen_are_free_and_different() {
        let mut ports = free_ports(OF_ETCD.len() + 5 * OF_NODES.len()).unwrap();
        ports.sort_unstable();
        assert_eq!(ports.len(), 22);
        assert!(ports.windows(2).all(|pair| pair[0] != pair[1]) && ports.iter().all(|port| PORTS.contains(port)));
    }

    #[test]
    fn a_directory_goes_with_its_owner() {
        let directory = Directory::new(&std::env::temp_dir()).unwrap();
        let path = directory.path().to_owned();
        device_file(&path.join("device"), 8192, true).unwrap();
        assert_eq!(fs::metadata(path.join("device")).unwrap().len(), 8192);
        assert!(device_file(&path.join("device"), 8192, false).is_err(), "nobody's file is written over");
        drop(directory);
        assert!(!path.exists());
    }
}

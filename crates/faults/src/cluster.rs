//! `cairn demo --processes` in a directory of its own: what it says of itself, and how it is hurt.

use crate::faulty::{Fault, Faulty};
use crate::load;
use crate::medium::Medium;
use crate::network::{self, Network};
use crate::told;
use e2e::admin;
use e2e::demo::{Demo, binary};
use e2e::directory::TemporaryDirectory;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use torture::load::Load;
use torture::target::Target;

/// No command may be without an answer for so long, whatever fails.
pub const HANG_MAX: Duration = Duration::from_secs(30);
/// What has to come about does so in this time.
const WAIT_MAX: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const VOLUME_SIZE: &str = "128M";

/// A cluster of processes on this machine.
pub struct Cluster {
    // Processes end before what they write to goes.
    demo: Option<Demo>,
    network: Option<Network>,
    media: Vec<(usize, Medium)>,
    /// Devices that fail when told so.
    faulty: Vec<(usize, Faulty)>,
    directory: TemporaryDirectory,
    nodes: usize,
    device_bytes: u64,
    /// Nodes whose device holds noise where nothing is needed any more.
    written_over: Vec<usize>,
    /// Devices that took the place of a node's first.
    replaced: Vec<(usize, PathBuf)>,
    admins: Vec<SocketAddr>,
    /// The volume that is used, and how many there were before it.
    volume: String,
    volumes: usize,
    /// Who answered last, from 0.
    answers: Cell<usize>,
    /// Why what was not green was so, as it said.
    pub causes: RefCell<Vec<String>>,
    /// Findings that did not say all that they must.
    pub unexplained: RefCell<Vec<String>>,
}

/// What a cluster is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Nodes, each with a device.
    pub nodes: usize,
    /// Size of each device.
    pub device_size: &'static str,
    /// Which nodes lead the volume's groups: see `cairn volume create --placement`.
    pub placement: &'static str,
    /// How long each of three etcds does without the one that leads before it wants to lead, up to twice as long.
    pub election: Duration,
}

/// What etcd does if it is not told otherwise.
const ELECTION: Duration = Duration::from_secs(1);

impl Shape {
    /// Copies of each block.
    pub fn copies(self) -> usize {
        self.nodes.min(3)
    }
}

/// All of the volume's groups are led by the first node, which is its head, too.
pub const GATHERED: Shape = Shape { nodes: 3, device_size: "512M", placement: "local:node-1", election: ELECTION };
/// Each node leads some of the volume's groups.
pub const SPREAD: Shape = Shape { placement: "spread", ..GATHERED };
/// The same of two: both have all of it, and one copy is enough.
pub const TWO: Shape = Shape { nodes: 2, ..SPREAD };
/// The same of five: each group has three of them.
pub const FIVE: Shape = Shape { nodes: 5, ..SPREAD };

/// Processes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeProcess {
    /// The node itself.
    pub worker: i32,
    /// Who starts it again.
    pub supervisor: i32,
}

impl Cluster {
    /// A new one, with three copies of a volume that nothing was written to.
    pub fn new(shape: Shape) -> Self {
        let mut this = Self::nothing(shape);
        let (nodes, size) = (shape.nodes.to_string(), shape.device_size);
        // It must have a volume from the start: one that nobody uses.
        let new = ["--nodes", &nodes, "--replicas", "3", "--processes", "--device-size", size, "--volume", "idle:1M"];
        this.runs(Demo::start(&this.path("d"), &new));
        this.device_bytes = std::fs::metadata(this.device(1)).expect("it is a file").len();
        this.begin(shape);
        this
    }

    /// The same, each node of which is in a network of its own, with three etcds; devices of `faulty` can be made to fail.
    pub fn in_networks(shape: Shape, faulty: &[usize]) -> Self {
        let mut this = Self::nothing(shape);
        let (network, faulty) = Network::new(this.directory.path(), shape, faulty);
        (this.network, this.faulty) = (Some(network), faulty);
        this.admins = (1..=shape.nodes).map(network::admin_of).collect();
        this.device_bytes = std::fs::metadata(this.device(1)).expect("it is a file").len();
        this.begin(shape);
        this
    }

    fn begin(&self, shape: Shape) {
        self.until("the cluster is whole", None, Self::is_whole);
        self.make_volume(shape.placement, 1);
    }

    /// Another volume is used from now on, to which nothing was written.
    pub fn use_volume(&mut self, name: &str, placement: &str) {
        name.clone_into(&mut self.volume);
        self.make_volume(placement, 1);
    }

    /// Another volume takes the place of the one that was used, which is deleted; all its groups are led by this node, which is its head.
    pub fn another_volume(&mut self, node: usize) {
        // Its head may be on its way to another node.
        let words = ["volume", "delete", &self.volume, "--now"];
        self.until("the volume before is deleted", None, |cluster| {
            cluster.cairn_try(cluster.admins[node - 1], &words).is_ok()
        });
        self.volumes += 1;
        self.volume = format!("load-{}", self.volumes);
        self.make_volume(&format!("local:node-{node}"), node);
    }

    fn make_volume(&self, placement: &str, home: usize) {
        self.cairn(&["volume", "create", &self.volume, "--size", VOLUME_SIZE, "--placement", placement]);
        if self.network.is_some() {
            // Nodes of a demo let every host in; these do not.
            self.until("the volume is at home", None, |cluster| cluster.head() == Some(home));
            self.cairn_at(self.admins[home - 1], &["host", "allow", &self.volume, "any"]);
        }
    }

    fn nothing(shape: Shape) -> Self {
        Self {
            demo: None,
            network: None,
            media: Vec::new(),
            faulty: Vec::new(),
            directory: TemporaryDirectory::on_disk(),
            nodes: shape.nodes,
            device_bytes: 0,
            written_over: Vec::new(),
            replaced: Vec::new(),
            admins: Vec::new(),
            volume: String::from("load"),
            volumes: 0,
            answers: Cell::new(0),
            causes: RefCell::default(),
            unexplained: RefCell::default(),
        }
    }

    /// Networks of its nodes.
    pub fn network(&mut self) -> &mut Network {
        self.network.as_mut().expect("its nodes are in networks of their own")
    }

    fn runs(&mut self, demo: Demo) {
        self.demo = Some(demo);
        let admin = |node: usize| {
            let file =
                std::fs::read_to_string(self.path(&format!("d/node-{node}/node.toml"))).expect("a node has its file");
            let port =
                file.lines().find_map(|line| line.strip_prefix("admin_port = ")).and_then(|port| port.parse().ok());
            SocketAddr::from((Ipv4Addr::LOCALHOST, port.expect("a node of a demo has a port of its own")))
        };
        self.admins = (1..=self.nodes).map(admin).collect();
    }

    /// Starts it again, when it was [cut](Self::cut): where it was before.
    pub fn start_again(&mut self) {
        let before = self.admins.clone();
        self.runs(Demo::start_again(&self.path("d")));
        assert_eq!(self.admins, before, "nodes keep their ports, or clients look for them in vain");
    }

    /// Leaves what nodes and etcd have said so far in a directory, which is made.
    pub fn leave_logs(&self, into: &Path) {
        std::fs::create_dir_all(into).expect("a directory can be made");
        for entry in std::fs::read_dir(self.directory.path()).expect("it is there").flatten() {
            if entry.path().extension().is_some_and(|is| is == "log") {
                std::fs::copy(entry.path(), into.join(entry.file_name())).expect("it can be copied");
            }
        }
    }

    /// What is said of its files, without where they are.
    pub fn shortened(&self, said: &str) -> String {
        said.replace(&self.directory.path().display().to_string(), "…")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Device of a node (from 1).
    pub fn device(&self, node: usize) -> PathBuf {
        let other = self.replaced.iter().rev().find(|(replaced, _)| *replaced == node);
        if let Some((_, path)) = other {
            return path.clone();
        }
        match &self.network {
            Some(network) => network.device(node),
            None => self.path(&format!("d/node-{node}/device-1.img")),
        }
    }

    /// Writes noise over a part of a node's device, in bytes. What was not in use there stays changed.
    pub fn write_over(&mut self, node: usize, offset: u64, length: usize) {
        let mut random = e2e::random::Random::new(offset);
        let noise: Vec<u8> = std::iter::repeat_with(|| random.number().to_le_bytes()).flatten().take(length).collect();
        let device = std::fs::File::options().write(true).open(self.device(node)).expect("it is a file");
        device.write_all_at(&noise, offset).and_then(|()| device.sync_all()).expect("it can be written");
        self.written_over.push(node);
    }

    /// The same over all of it, from its first byte to its last.
    pub fn write_over_all(&mut self, node: usize) {
        self.write_over_but_ends(node, 0);
    }

    /// The same but for so many bytes at either end.
    pub fn write_over_but_ends(&mut self, node: usize, end_bytes: u64) {
        const PIECE: u64 = 8 << 20;
        let size_bytes = std::fs::metadata(self.device(node)).expect("it is a file").len() - end_bytes;
        for offset in (end_bytes..size_bytes).step_by(PIECE as usize) {
            self.write_over(node, offset, PIECE.min(size_bytes - offset) as usize);
        }
    }

    /// A node's device has so many bytes from now on.
    pub fn truncate(&self, node: usize, size_bytes: u64) {
        let device = std::fs::File::options().write(true).open(self.device(node)).expect("it is a file");
        device.set_len(size_bytes).expect("it can be cut");
    }

    /// A node's files are in memory from now on; nothing runs meanwhile.
    pub fn put_in_memory(&mut self, node: usize) {
        assert!(self.demo.is_none(), "files of a process that runs are not moved");
        let medium = Medium::under(&self.path(&format!("d/node-{node}")));
        self.media.push((node, medium));
    }

    /// A node's device can be made to [fail](Self::fault) from now on; nothing runs meanwhile.
    pub fn make_faulty(&mut self, node: usize) {
        assert!(self.demo.is_none(), "who has the device open would go on with the file itself");
        let faulty = Faulty::over(&self.device(node));
        self.faulty.push((node, faulty));
    }

    /// This is wrong with a node's device from now on, and nothing else.
    pub fn fault(&self, node: usize, fault: Fault) {
        self.faulty.iter().find(|(of, _)| *of == node).expect("it was made faulty").1.is(fault);
    }

    /// The medium that a node's files were put on.
    pub fn medium(&self, node: usize) -> &Medium {
        &self.media.iter().find(|(of, _)| *of == node).expect("they were put on one").1
    }

    /// Damaged places that a node's devices are said to have.
    pub fn damage_of(&self, node: usize) -> Option<u64> {
        let status = self.ask_node(node, "/v1/devices")?;
        let name = format!("node-{node}");
        let its = status.as_array()?.iter().filter(|device| device["node"] == name.as_str());
        its.map(|device| device["damage"].as_u64()).sum()
    }

    /// Another device takes the place of a node's first.
    pub fn replace_device(&mut self, node: usize) {
        let (old, new) = self.add_device(node, self.device_bytes);
        self.cairn(&["device", "replace", &old, &new]);
    }

    /// A node is given a second device of this size, which is its device from now on: what the first is called, and the second.
    pub fn add_device(&mut self, node: usize, size_bytes: u64) -> (String, String) {
        let old = self.device(node);
        let new = old.with_file_name("device-2.img");
        let [old_name, new_name] = [&old, &new].map(|path| path.to_str().expect("it has a name").to_owned());
        let file = std::fs::File::create_new(&new).expect("it is not there yet");
        file.set_len(size_bytes).expect("it has room");
        drop(file);
        self.cairn(&["device", "format", &new_name]);
        self.cairn_at(self.admins[node - 1], &["device", "add", &new_name]);
        self.replaced.push((node, new));
        (old_name, new_name)
    }

    fn demo(&self) -> &Demo {
        self.demo.as_ref().expect("it runs")
    }

    /// What some node says that answers. Who answered before is asked first: of one that stands still it takes seconds to see it.
    pub fn ask(&self, path: &str) -> Option<Value> {
        let asked_first = self.answers.get();
        (0..self.nodes).map(|turn| (asked_first + turn) % self.nodes).find_map(|node| {
            let answer = admin::try_get(self.admins[node], path)?;
            self.answers.set(node);
            Some(answer)
        })
    }

    /// What one node says.
    pub fn ask_node(&self, node: usize, path: &str) -> Option<Value> {
        admin::try_get(self.admins[node - 1], path)
    }

    /// The volume, as clients need it; NBD at this node.
    pub fn target(&self, nbd_node: Option<usize>) -> Target {
        let info = self.ask(&format!("/v1/volumes/{}", self.volume)).expect("the volume is served");
        let address = |value: &Value| value.as_str().and_then(|at| at.parse().ok()).expect("an address");
        let nodes = self.ask("/v1/nodes").expect("nodes are told");
        Target {
            paths: info["nvme_addresses"].as_array().expect("a list").iter().map(address).collect(),
            nqn: info["nqn"].as_str().expect("a name").to_owned(),
            nsid: info["nsid"].as_u64().expect("a number") as u32,
            nbd: nbd_node.map(|node| (address(&nodes[node - 1]["nbd_address"]), self.volume.clone())),
            size_bytes: info["size_bytes"].as_u64().expect("a number"),
        }
    }

    /// The node (from 1) that has the volume's head.
    pub fn head(&self) -> Option<usize> {
        let info = self.ask(&format!("/v1/volumes/{}", self.volume))?;
        info["head"].as_str()?.strip_prefix("node-")?.parse().ok()
    }

    /// Groups that a node (from 1) leads, as it says itself.
    pub fn groups_led(&self, node: usize) -> Option<u64> {
        let said = network::metrics_of(self.admins[node - 1])?;
        said.lines().find_map(|line| line.strip_prefix("cairn_groups_serving ")?.parse().ok())
    }

    /// Processes of a node (from 1) that is up.
    pub fn node(&self, node: usize) -> NodeProcess {
        let nodes = self.ask("/v1/nodes").expect("nodes are told");
        let worker = nodes[node - 1]["pid"].as_i64().expect("a number") as i32;
        assert!(worker > 0, "node-{node} is up: {nodes}");
        NodeProcess { worker, supervisor: parent(worker).expect("a node has a parent") }
    }

    /// etcd.
    pub fn etcd(&self) -> i32 {
        let is_etcd =
            |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "etcd");
        children(self.demo().pid() as i32).find(is_etcd).expect("the demo has an etcd")
    }

    /// kill -9 of the demo, with which all of its processes end: the power is cut.
    pub fn cut(&mut self) {
        let nodes: Vec<_> = (1..=self.nodes).map(|node| self.node(node).worker).collect();
        self.demo.take().expect("it runs").kill();
        let began = Instant::now();
        while nodes.iter().any(|pid| is_there(*pid)) {
            assert!(began.elapsed() < WAIT_MAX, "nodes end with the demo");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Runs `cairn` against it.
    pub fn cairn(&self, arguments: &[&str]) -> String {
        self.cairn_at(self.ready_admin(), arguments)
    }

    fn ready_admin(&self) -> SocketAddr {
        let ready = Cell::new(None);
        self.until("some node is ready", None, |cluster| {
            ready.set(cluster.admins.iter().find(|at| admin::is_ready(**at)).copied());
            ready.get().is_some()
        });
        ready.get().expect("it was seen")
    }

    /// All copies agree, as `cairn check` says; a copy that is made just now, or a chunk that the load writes to all the time, is
    /// compared the next time. Returns what it says last.
    pub fn agrees(&self) -> String {
        let said = RefCell::new(String::new());
        self.until("all copies could be compared", None, |cluster| {
            match cluster.cairn_try(cluster.ready_admin(), &["check"]) {
                Ok(all) => {
                    said.replace(all.lines().last().unwrap_or_default().to_owned());
                    true
                }
                // The worst that was found is told last. Noise over what nobody has read since is found now.
                Err(why) if why.lines().last().is_some_and(|advice| advice.contains("compared")) => false,
                Err(why) if why.contains("it is being mended") && cluster.may_be_damaged() => false,
                Err(why) => panic!("copies do not agree: {why}"),
            }
        });
        said.into_inner()
    }

    /// Whether a device holds noise, or may have failed to read.
    fn may_be_damaged(&self) -> bool {
        !self.written_over.is_empty() || !self.faulty.is_empty()
    }

    /// Runs `cairn` against it, which refuses that; what it says.
    pub fn is_refused(&self, arguments: &[&str]) -> String {
        // Whoever answered last.
        self.cairn_try(self.admins[self.answers.get()], arguments).expect_err("it is refused")
    }

    /// The same, where it may be refused for a while.
    pub fn cairn_when_it_can(&self, arguments: &[&str]) {
        let ready = || self.admins.iter().find(|at| admin::is_ready(**at));
        let done = |admin: &SocketAddr| {
            let output = Command::new(binary()).args(arguments).env("CAIRN_ADMIN", format!("http://{admin}")).output();
            output.is_ok_and(|output| output.status.success())
        };
        self.until(&format!("cairn {arguments:?}"), None, |_| ready().is_some_and(done));
    }

    /// Writes another volume until that is refused as there is no space left.
    pub fn fills(&self, volume: &str) {
        assert!(!self.takes(volume, 4 << 30), "a volume larger than all devices is written to its end");
    }

    /// Writes another volume of this size; whether there was space for all of it.
    pub fn takes(&self, volume: &str, size_bytes: u64) -> bool {
        self.cairn(&["volume", "create", volume, "--size", &size_bytes.to_string()]);
        let info = self.ask(&format!("/v1/volumes/{volume}")).expect("it was made");
        // Who is asked may not have heard of it yet.
        self.cairn_when_it_can(&["host", "allow", volume, "any"]);
        let nodes = self.ask("/v1/nodes").expect("nodes are told");
        let head = info["head"].as_str().unwrap_or_default();
        let its = nodes.as_array().and_then(|all| all.iter().find(|node| node["name"] == head));
        let address = its.and_then(|node| node["nbd_address"].as_str()?.parse().ok()).expect("an address");
        load::fill(address, volume, size_bytes)
    }

    fn cairn_at(&self, admin: SocketAddr, arguments: &[&str]) -> String {
        self.cairn_try(admin, arguments).unwrap_or_else(|said| panic!("cairn {arguments:?}: {said}"))
    }

    fn cairn_try(&self, admin: SocketAddr, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(binary()).args(arguments).env("CAIRN_ADMIN", format!("http://{admin}")).output();
        let output = output.expect("cairn can be run");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(said) } else { Err(said + &String::from_utf8_lossy(&output.stderr)) }
    }

    /// Everything is as it is meant to be, and all nodes are there.
    pub fn is_whole(&self) -> bool {
        let Some(status) = self.ask("/v1/status") else { return false };
        self.explains(&status);
        let Some(nodes) = self.ask("/v1/nodes") else { return false };
        status["health"] == "healthy"
            && status["groups_serving"] == status["groups"]
            && nodes.as_array().is_some_and(|all| all.iter().all(|node| node["state"] == "up"))
    }

    /// Notes what the status of this node says.
    pub fn notes_what_is_said_at(&self, node: usize) {
        if let Some(status) = self.ask_node(node, "/v1/status") {
            self.explains(&status);
        }
    }

    /// What status finds, the most urgent first; each of it explains itself.
    pub fn findings(&self) -> Vec<Value> {
        let Some(status) = self.ask("/v1/status") else { return Vec::new() };
        self.explains(&status);
        status["findings"].as_array().cloned().unwrap_or_default()
    }

    /// Notes causes, and what findings leave open of what they must say.
    fn explains(&self, status: &Value) {
        let findings = status["findings"].as_array().map_or(&[][..], Vec::as_slice);
        let not_green: Vec<_> = findings.iter().filter(|one| one["severity"] != "ok").collect();
        let mut unexplained = self.unexplained.borrow_mut();
        if status["health"] != "healthy" && not_green.is_empty() {
            unexplained.push(format!("what is not green has no finding: {status}"));
        }
        for finding in not_green {
            let cause = finding["cause"].as_str().unwrap_or_default();
            let mut causes = self.causes.borrow_mut();
            if !causes.iter().any(|known| known == cause) {
                causes.push(cause.to_owned());
            }
            unexplained.extend(told::lacks(finding).map(|what| format!("a finding lacks {what}: {finding}")));
        }
    }

    /// Whether some status so far had a cause with these words.
    pub fn has_said(&self, words: &str) -> bool {
        self.causes.borrow().iter().any(|cause| cause.contains(words))
    }

    /// Waits for something, with an eye on the load.
    pub fn until(&self, what: &str, load: Option<&Load>, mut is_so: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            if let Some(waits) = load.map(Load::longest_wait) {
                assert!(waits < HANG_MAX, "a command has no answer for {waits:?}, while waiting: {what}");
            }
            let found = || self.ask("/v1/status").map(|status| format!("{:#}", status["findings"]));
            assert!(began.elapsed() < WAIT_MAX, "{what}: not within {WAIT_MAX:?}: {}", found().unwrap_or_default());
            std::thread::sleep(LOOK_EVERY);
        }
        println!("      {what}: after {:.1} s", began.elapsed().as_secs_f64());
    }

    /// Waits so long, with an eye on the load and on what is said.
    pub fn pause(&self, time: Duration, load: &Load) {
        let began = Instant::now();
        while began.elapsed() < time {
            let waits = load.longest_wait();
            assert!(waits < HANG_MAX, "a command has no answer for {waits:?}");
            self.is_whole();
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The load has answers again: so many more than there were.
    pub fn until_answered(&self, what: &str, load: &Load) {
        const ANSWERS: u64 = 600;
        let before = load.completed();
        self.until(what, Some(load), |_| load.completed() >= before + ANSWERS);
    }

    /// Stops it: whatever was said on the way explained itself, and devices are as they should be.
    pub fn explained_and_stopped(self) {
        let unexplained = self.unexplained.take();
        self.stop();
        assert!(unexplained.is_empty(), "{} findings do not explain themselves: {}", unexplained.len(), unexplained[0]);
    }

    /// Stops it and checks all devices.
    pub fn stop(mut self) {
        if let Some(demo) = self.demo.take() {
            demo.stop();
        }
        let devices: Vec<_> = (1..=self.nodes).map(|node| self.device(node)).collect();
        if let Some(network) = self.network.take() {
            network.stop();
        }
        for (node, device) in (1..).zip(devices) {
            let checked = Command::new(binary()).args(["device", "check"]).arg(device).output().expect("runs");
            let [said, refused] = [&checked.stdout, &checked.stderr].map(|text| String::from_utf8_lossy(text));
            let is_noise = self.written_over.contains(&node) && refused.contains(" 0 of them a loss");
            assert!(checked.status.success() || is_noise, "device of node-{node}: {said}{refused}");
        }
    }
}

/// Sends a signal to a process that a scenario started.
pub fn signal(pid: i32, signal: i32) {
    assert!(pid > 1, "a process of ours");
    // SAFETY: kill takes two numbers.
    let result = unsafe { libc::kill(pid, signal) };
    assert_eq!(result, 0, "kill {pid}: {}", std::io::Error::last_os_error());
}

/// A process that stands still until this goes.
pub struct StandsStill(i32);

impl StandsStill {
    /// From now on.
    pub fn new(pid: i32) -> Self {
        signal(pid, libc::SIGSTOP);
        Self(pid)
    }
}

impl Drop for StandsStill {
    /// Whatever fails meanwhile: it goes on, if it was not killed.
    fn drop(&mut self) {
        if is_there(self.0) {
            // SAFETY: kill takes two numbers.
            unsafe { libc::kill(self.0, libc::SIGCONT) };
        }
    }
}

impl NodeProcess {
    /// The node that its supervisor starts when this one was killed, as soon as it is a process.
    pub fn successor(self) -> i32 {
        let began = Instant::now();
        loop {
            if let Some(next) = children(self.supervisor).find(|pid| *pid != self.worker) {
                return next;
            }
            assert!(began.elapsed() < WAIT_MAX, "a node that was killed is started again");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Processes that it has started.
pub fn children(of: i32) -> impl Iterator<Item = i32> {
    let processes = std::fs::read_dir("/proc").expect("Linux");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(move |pid| parent(*pid) == Some(of))
}

fn is_there(pid: i32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; state and parent are the words behind it.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

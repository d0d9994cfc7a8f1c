//! Networks of their own for nodes, on a bridge of the calling thread's network: to cut one off, or to make its link slow.
//!
//! ```text
//!   network of this thread, made anew: 10.77.0.1, clients and etcd
//!        bridge `hub` ── a pair of veth for each node ── 10.77.0.(10 + N)
//! ```
//!
//! Nothing of the machine's own network is touched, and all of it goes with the processes. Needs root.

use super::lab::{Process, START_MAX, runs, wait_until};
use crate::Failure;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(super) const BRIDGE: &str = "hub";
/// What names of its ports begin with.
pub(super) const PORTS: &str = "node-";
/// What a shaped link lets pass at once: some segments as the kernel hands them on (64 KiB), not more.
const BURST_BYTES: u64 = 256 << 10;
/// How long something may wait in front of a shaped link before it is lost.
const QUEUE_MS: u64 = 20;

pub(super) fn address_of(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 10 + node as u8)
}

/// Whether networks can be made here; else why not.
pub(super) fn is_possible() -> Result<(), Failure> {
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(());
    }
    Err(Failure::new("nodes in networks of their own need root: run it with sudo".to_owned()))
}

/// See the module.
pub(super) struct Network {
    /// Processes that hold the nodes' networks.
    holders: Vec<Process>,
}

impl Network {
    /// The calling thread, and whatever it starts, is in another network from then on.
    pub(super) fn new(nodes: usize, logs: &Path) -> Result<Self, Failure> {
        is_possible()?;
        // SAFETY: unshare takes a number; only this thread has another network from then on.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let error = std::io::Error::last_os_error();
            return Err(Failure::new(format!(
                "cannot make a network of its own ({error}): in a container that needs CAP_SYS_ADMIN"
            )));
        }
        ip(&["link", "set", "lo", "up"])?;
        ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{CLIENT}/24"), "dev", BRIDGE])?;
        ip(&["link", "set", BRIDGE, "up"])?;
        let holders = (1..=nodes).map(|node| namespace(node, logs)).collect::<Result<_, _>>()?;
        Ok(Self { holders })
    }

    /// A command in the network of a node (from 1).
    pub(super) fn within(&self, node: usize, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holders[node - 1].id())).arg("--").arg(program);
        command
    }

    /// What a node sends, and what is sent to it, is lost; or is not any more.
    pub(super) fn cut(&self, node: usize, is_cut: bool) -> Result<(), Failure> {
        ip(&["link", "set", &port(node), if is_cut { "down" } else { "up" }])
    }

    /// Limits a node's link, each way.
    pub(super) fn shape(&self, node: usize, bits_per_second: u64) -> Result<(), Failure> {
        let (rate, burst, queue) = (format!("{bits_per_second}bit"), BURST_BYTES.to_string(), format!("{QUEUE_MS}ms"));
        let limit = |mut command: Command, device: &str| {
            command.args(["qdisc", "replace", "dev", device, "root", "tbf", "rate", &rate]);
            command.args(["burst", &burst, "latency", &queue]);
            runs(command)
        };
        limit(Command::new("tc"), &port(node))?;
        limit(self.within(node, Path::new("tc")), "eth0")
    }
}

fn port(node: usize) -> String {
    format!("{PORTS}{node}")
}

fn ip(words: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("ip");
    command.args(words);
    runs(command)
}

/// The network of a node (from 1), on the bridge.
fn namespace(node: usize, logs: &Path) -> Result<Process, Failure> {
    let mut command = Command::new("unshare");
    command.args(["--net", "sleep", "infinity"]);
    let holder = Process::start(command, &logs.join("network.log"))?;
    let of = |whose: &str| std::fs::read_link(PathBuf::from(format!("/proc/{whose}/ns/net"))).ok();
    let (ours, its) = (of("thread-self"), holder.id().to_string());
    wait_until("a node's network", START_MAX, || of(&its).is_some_and(|its| Some(its) != ours))?;
    let link = port(node);
    ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &its])?;
    ip(&["link", "set", &link, "master", BRIDGE, "up"])?;
    let (network, address) = (format!("--net=/proc/{its}/ns/net"), format!("{}/24", address_of(node)));
    for words in
        [&["addr", "add", &address, "dev", "eth0"][..], &["link", "set", "eth0", "up"], &["link", "set", "lo", "up"]]
    {
        let mut command = Command::new("nsenter");
        command.args([network.as_str(), "--", "ip"]).args(words);
        runs(command)?;
    }
    Ok(holder)
}

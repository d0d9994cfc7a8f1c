//! What an operator has moved under load: a device that is drained as another is added, a machine that is lost and replaced.

use crate::cluster::{Cluster, GATHERED, SPREAD, signal};
use crate::scenario::{Run, is_told_away, returns};
use crate::told;
use libc::SIGKILL;
use serde_json::Value;
use std::ops::Range;

/// Of a drain of 100 groups that is in its middle so many are left.
const MIDDLE: Range<u64> = 10..96;
/// As large as the devices of such a cluster.
const DEVICE: (u64, &str) = (512 << 20, "512M");

/// A node is given another device, and its first one is drained and leaves; another node is killed in the middle of that.
pub fn device_swapped() {
    let mut run = Run::new(SPREAD, Some(2));
    let (old, new) = run.cluster.add_device(3, DEVICE.0);
    run.cluster.cairn_when_it_can(&["device", "drain", &old]);
    // Looked at often: all of it is over in seconds.
    run.cluster.until("status says what moves, when it ends, and how to stop it", Some(&run.load), |cluster| {
        let is_in_its_middle =
            |one: &&Value| one["doing"]["groups_left"].as_u64().is_some_and(|left| MIDDLE.contains(&left));
        cluster.findings().iter().filter(is_in_its_middle).any(|one| told::of_order(one, "drain"))
    });
    let killed = run.cluster.node(1).worker;
    signal(killed, SIGKILL);
    let left = work(&run.cluster, "drain").map_or(0, |work| work["groups_left"].as_u64().unwrap_or(0));
    println!("      a node is killed while {left} groups are left");
    is_told_away(&run, 1);
    returns(&run, 1, killed);
    run.cluster.until("nothing is left on the device", Some(&run.load), |cluster| groups_of(cluster, &old) == Some(0));
    run.cluster.until("status says to remove it", Some(&run.load), |cluster| {
        let is_to_leave =
            |one: &&Value| one["command"].as_str().is_some_and(|command| command.starts_with("cairn device rm "));
        cluster.findings().iter().filter(is_to_leave).any(|one| told::of_order(one, "drain"))
    });
    run.cluster.cairn(&["device", "rm", &old]);
    run.cluster.until("the cluster is whole without it", Some(&run.load), |cluster| {
        cluster.is_whole() && groups_of(cluster, &old).unwrap_or(0) == 0
    });
    println!("      the other has {:?} groups", groups_of(&run.cluster, &new));
    println!("      {}", run.cluster.agrees());
    run.judge();
}

/// A machine is gone with all that it had. Another, with a blank device, joins where it was; the lost one is given up, and all
/// copies that it had are made anew.
pub fn node_replaced() {
    let mut run = Run::in_networks(GATHERED);
    run.cluster.network().wipe(3);
    run.cluster.until_answered("the load has answers without it", &run.load);
    run.cluster.until("status says that it is away, and that another is needed", Some(&run.load), |cluster| {
        says_away(cluster, |finding| {
            finding["doing"]["text"].as_str().is_some_and(|text| text.contains("in 2: add more"))
        })
    });
    run.cluster.network().join(3, DEVICE.1);
    run.cluster.until("another node is there", Some(&run.load), |cluster| {
        cluster.is_whole();
        state_of(cluster, "node-4").as_deref() == Some("up")
    });
    run.cluster.until("status says what to do if the lost one is lost for good", Some(&run.load), |cluster| {
        says_away(cluster, |finding| finding["command"] == "cairn node rm node-3 --lost")
    });
    let lost = ["node", "rm", "node-3", "--lost", "-o", "json"];
    let foretold = run.cluster.cairn(&lost);
    let foretold: Value = serde_json::from_str(&foretold).unwrap_or_else(|error| panic!("{error}: {foretold}"));
    // The newcomer may have begun to take its share.
    assert!(foretold["begun"] == true && foretold["groups"].as_u64() > Some(0), "its copies are made anew: {foretold}");
    run.cluster.until("all copies are made anew", Some(&run.load), |cluster| {
        cluster.is_whole();
        let nodes = cluster.ask("/v1/nodes").unwrap_or_default();
        let groups = |name: &str| nodes.as_array()?.iter().find(|node| node["name"] == name)?["groups"].as_u64();
        groups("node-3") == Some(0) && groups("node-4") == Some(100)
    });
    run.cluster.cairn(&["node", "rm", "node-3"]);
    run.cluster.until("the lost one is listed no more, and all is whole", Some(&run.load), |cluster| {
        cluster.is_whole() && state_of(cluster, "node-3").is_none()
    });
    println!("      {}", run.cluster.agrees());
    run.judge();
}

/// Whether status says this of the third node's being away.
fn says_away(cluster: &Cluster, what: impl Fn(&Value) -> bool) -> bool {
    cluster.is_whole();
    let status = cluster.ask("/v1/status").unwrap_or_default();
    let findings = status["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let of_it = |finding: &&Value| {
        finding["cause"].as_str().is_some_and(|cause| cause.contains("node-3 has not been heard of"))
    };
    findings.iter().filter(of_it).any(what)
}

/// What status says is being done of a kind.
fn work(cluster: &Cluster, kind: &str) -> Option<Value> {
    let status = cluster.ask("/v1/status")?;
    status["doing"].as_array()?.iter().find(|work| work["kind"] == kind).cloned()
}

/// Groups of a device that the cluster has.
pub(crate) fn groups_of(cluster: &Cluster, path: &str) -> Option<u64> {
    let devices = cluster.ask("/v1/devices")?;
    devices.as_array()?.iter().find(|device| device["path"] == path)?["groups"].as_u64()
}

fn state_of(cluster: &Cluster, node: &str) -> Option<String> {
    let nodes = cluster.ask("/v1/nodes")?;
    Some(nodes.as_array()?.iter().find(|one| one["name"] == node)?["state"].as_str()?.to_owned())
}

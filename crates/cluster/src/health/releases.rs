//! Releases that nodes run: of two at once, or of one that the cluster does not use all of.

use super::{Finding, Known, Severity, node_name};
use std::collections::BTreeMap;

const FINISH: &str = "cairn upgrade finish";

pub(super) fn find(known: &Known, found: &mut Vec<Finding>) {
    let Some(upgrade) = &known.upgrade else { return };
    let mut by_release: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for runs in &upgrade.nodes {
        if let Some(release) = &runs.release {
            let name = if release.name.is_empty() { "an older release" } else { &release.name };
            by_release.entry(name).or_default().push(node_name(runs.node));
        }
    }
    if by_release.len() > 1 {
        let each = by_release.iter().map(|(release, nodes)| format!("{} {release}", nodes.join(" and ")));
        let cause = format!("nodes are of several releases: {}", each.collect::<Vec<_>>().join(", "));
        found.push(Finding::new(Severity::Ok, cause).advise("what is in the way of one for all:", "cairn upgrade"));
    } else if upgrade.hindrances.is_empty() && upgrade.next > upgrade.cluster_version {
        let cause = format!(
            "an upgrade is not finished: the cluster writes what cluster version {} reads, and all nodes speak {}",
            upgrade.cluster_version, upgrade.next
        );
        found.push(Finding::new(Severity::Ok, cause).advise("when nothing is to be taken back any more:", FINISH));
    }
}

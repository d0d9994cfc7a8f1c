//! `cairn upgrade [status|finish]`: what the nodes run, and that the cluster goes on to what all of them speak.

use crate::Failure;
use crate::args::UpgradeCommand;
use crate::client::Client;
use crate::output::{Format, show, table};
use node::admin::upgrade_types::{FinishUpgrade, NodeRuns, Upgrade};
use std::fmt::Write;

pub(crate) fn run(client: &Client, command: Option<UpgradeCommand>, format: Format) -> Result<(), Failure> {
    let upgrade = client.upgrade()?;
    match command {
        None | Some(UpgradeCommand::Status) => show(format, &upgrade, status),
        Some(UpgradeCommand::Finish { .. }) if !upgrade.hindrances.is_empty() => {
            let why = upgrade.hindrances.join("; ");
            Err(Failure::new(format!("the upgrade cannot be finished: {why}")))
        }
        Some(UpgradeCommand::Finish { yes: false }) => show(format, &upgrade, foretold),
        Some(UpgradeCommand::Finish { yes: true }) => {
            let before = upgrade.cluster_version;
            let done = client.finish_upgrade(&FinishUpgrade { to: upgrade.next_version })?;
            show(format, &done, |done| finished(done, before))
        }
    }
}

fn nodes(upgrade: &Upgrade) -> String {
    let range = |lowest: u32, highest: u32| match lowest == highest {
        true => highest.to_string(),
        false => format!("{lowest} to {highest}"),
    };
    let row = |node: &NodeRuns| {
        let unknown = || "unknown".to_owned();
        let release = if node.release.is_empty() { unknown() } else { node.release.clone() };
        let (protocol, versions) = match node.runs {
            true => (
                range(node.protocol_oldest.into(), node.protocol_newest.into()),
                range(node.cluster_version_lowest, node.cluster_version_highest),
            ),
            false => (unknown(), unknown()),
        };
        let features = if node.features.is_empty() { "none".to_owned() } else { node.features.join(", ") };
        let state = if node.runs { "up" } else { "away" };
        [node.name.clone(), state.to_owned(), release, protocol, features, versions]
    };
    let rows: Vec<_> = upgrade.nodes.iter().map(row).collect();
    table(["NAME", "STATE", "RELEASE", "PROTOCOL", "FEATURES", "CLUSTER VERSIONS"], &rows)
}

fn status(upgrade: &Upgrade) -> String {
    let mut text = nodes(upgrade);
    let with = upgrade.finished_with.as_ref().map(|with| format!(", since an upgrade to {with}")).unwrap_or_default();
    let _ = writeln!(text, "the cluster is at cluster version {}{with}", upgrade.cluster_version);
    for hindrance in &upgrade.hindrances {
        let _ = writeln!(text, "in the way of `cairn upgrade finish`: {hindrance}");
    }
    if upgrade.hindrances.is_empty() {
        text += &match upgrade.next_version == upgrade.cluster_version {
            true => "that is what its nodes speak: there is nothing to finish\n".to_owned(),
            false => format!(
                "all nodes speak cluster version {}: `cairn upgrade finish`, when nothing is to be taken back\n",
                upgrade.next_version
            ),
        };
    }
    text
}

fn foretold(upgrade: &Upgrade) -> String {
    let Upgrade { cluster_version, next_version, .. } = upgrade;
    let mut text = nodes(upgrade);
    if cluster_version == next_version {
        let _ =
            writeln!(text, "the cluster is at cluster version {cluster_version}, as its nodes are: nothing to finish");
        return text;
    }
    let _ = writeln!(
        text,
        "the cluster would go from cluster version {cluster_version} to {next_version}, on all of these nodes at once; nothing is moved or \
         stopped\n\
         CANNOT BE TAKEN BACK: releases that speak cluster versions up to {cluster_version} alone can neither start nor join any more\n\
         nothing was changed: say --yes"
    );
    text
}

fn finished(done: &Upgrade, before: u32) -> String {
    match done.changed {
        true => format!(
            "the upgrade is finished: the cluster went from cluster version {before} to {}\n",
            done.cluster_version
        ),
        false => format!("the cluster is at cluster version {}: nothing was to be finished\n", done.cluster_version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgrade() -> Upgrade {
        let node = |name: &str, highest| NodeRuns {
            name: name.to_owned(),
            runs: highest > 0,
            release: if highest > 0 { format!("0.{highest}.0") } else { String::new() },
            protocol_oldest: 3,
            protocol_newest: 4,
            features: vec!["rehearsal".to_owned()],
            cluster_version_lowest: 1,
            cluster_version_highest: highest,
        };
        Upgrade {
            cluster_version: 1,
            next_version: 2,
            nodes: vec![node("node-1", 2), node("node-2", 0)],
            ..Upgrade::default()
        }
    }

    #[test]
    fn what_cannot_be_taken_back_is_said_before() {
        let told = foretold(&upgrade());
        for part in
            ["from cluster version 1 to 2", "CANNOT BE TAKEN BACK", "say --yes", "node-1  up     0.2.0", "3 to 4"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(foretold(&Upgrade { next_version: 1, ..upgrade() }).contains("nothing to finish"));
        let done = Upgrade { cluster_version: 2, changed: true, ..upgrade() };
        assert!(finished(&done, 1).contains("from cluster version 1 to 2"));
    }

    #[test]
    fn who_is_in_the_way_is_named() {
        let told = status(&Upgrade { hindrances: vec!["node-2 does not run".to_owned()], ..upgrade() });
        for part in ["node-2  away   unknown", "in the way of `cairn upgrade finish`: node-2 does not run"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(status(&upgrade()).contains("all nodes speak cluster version 2"));
    }
}

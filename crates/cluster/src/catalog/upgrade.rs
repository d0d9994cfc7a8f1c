//! Upgrades: which cluster version nodes go by, and the order to go on to the next.
//!
//! ```text
//!   each node:  start ── does it speak the cluster's version? ── no: it ends, and says which release does
//!                 └─ yes ─► says what it speaks, in its doors/N, in a transaction that compares the cluster's version
//!   finish:     all of nodes/N have a doors/N, all of one highest version
//!                 └─► cluster := that version, in a transaction that compares all of these
//! ```
//!
//! What is under a node's lease goes with its life, so nobody is counted for what an earlier life of it spoke; and of a node that starts
//! while an upgrade is finished, one of the two transactions finds what the other has done.

use super::{ATTEMPTS_MAX, CatalogError, settle};
use crate::map::{Change, KeyValue, LeaseId, Listing, MapStore, Outcome, Revision, Transaction};
use crate::records::{ClusterRecord, DoorsRecord, FinishedUpgrade, NodeRecord, NodeRelease, Record, Versions, keys};
use crate::typed::{Versioned, decode, encode, get};
use std::sync::Arc;
use types::{Mutant, NodeId, mutant};

/// The cluster has gone on to a version that a program does not speak, or is not there yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this cluster is at cluster version {cluster}, and this program speaks {speaks}: {remedy}")]
pub struct VersionError {
    /// The cluster's.
    pub cluster: u32,
    /// The program's.
    pub speaks: Versions,
    /// What to do.
    pub remedy: String,
}

impl ClusterRecord {
    /// Whether a program that speaks these may take part.
    ///
    /// # Errors
    /// It may not, and which release does.
    pub fn admits(&self, speaks: Versions) -> Result<(), VersionError> {
        let cluster = self.cluster_version;
        if speaks.has(cluster) {
            return Ok(());
        }
        let remedy = match &self.finished {
            Some(with) if cluster > speaks.highest => {
                format!(
                    "run release {} of cairn, with which the upgrade to it was finished, or a later one",
                    with.release
                )
            }
            _ if cluster > speaks.highest => "run a later release of cairn".to_owned(),
            _ => "finish the upgrade with a release between the two first (`cairn upgrade finish`)".to_owned(),
        };
        Err(VersionError { cluster, speaks, remedy })
    }
}

/// A node of the map, and what it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Which.
    pub node: NodeId,
    /// What it says of its program; nothing while it does not run.
    pub release: Option<NodeRelease>,
}

impl Runs {
    fn versions(&self) -> Option<Versions> {
        self.release.as_ref().map(|release| release.cluster_versions)
    }

    /// "node-3 (release 0.2.0)"
    fn named(&self) -> String {
        let name = super::super::health::node_name(self.node);
        match self.release.as_ref().map(|release| &release.name[..]) {
            None | Some("") => format!("{name} (an older release)"),
            Some(release) => format!("{name} (release {release})"),
        }
    }
}

/// How far an upgrade is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// The cluster's version.
    pub cluster_version: u32,
    /// With what it came to that.
    pub finished: Option<FinishedUpgrade>,
    /// All nodes of the map, by number.
    pub nodes: Vec<Runs>,
    /// What finishing would raise it to: the highest version that all nodes speak which run.
    pub next: u32,
    /// Why that cannot be now.
    pub hindrances: Vec<String>,
    compares: Vec<(String, Revision)>,
}

impl Upgrade {
    /// As a listing of the whole map says it.
    ///
    /// # Errors
    /// A record that cannot be read, or no cluster.
    pub fn of(listing: &Listing) -> Result<Self, CatalogError> {
        let of = |prefix: &'static str| listing.items.iter().filter(move |item| item.key.starts_with(prefix));
        let compare = |item: &Arc<KeyValue>| (item.key.clone(), item.modified);
        let cluster = listing.items.iter().find(|item| item.key == keys::CLUSTER);
        let cluster = cluster.ok_or_else(|| CatalogError::BadRecord {
            key: keys::CLUSTER.to_owned(),
            why: "there is no cluster".to_owned(),
        })?;
        let mut compares = vec![compare(cluster)];
        let ClusterRecord { cluster_version, finished, .. } = decode(&cluster.key, &cluster.value)?;
        let mut nodes = Vec::new();
        for item in of(keys::NODES) {
            let node = decode::<NodeRecord>(&item.key, &item.value)?.id;
            let doors = of(keys::DOORS).find(|item| item.key == keys::doors(node));
            let said = doors.map(|doors| decode::<DoorsRecord>(&doors.key, &doors.value)).transpose()?;
            compares.push(compare(item));
            compares.extend(doors.map(compare));
            nodes.push(Runs { node, release: said.map(|said| said.release) });
        }
        let highest = |run: &Runs| run.versions().map(|versions| versions.highest);
        let next = nodes.iter().filter_map(highest).min().unwrap_or(cluster_version).max(cluster_version);
        let hindrances = hindrances(&nodes, next);
        Ok(Self { cluster_version, finished, nodes, next, hindrances, compares })
    }

    /// Whether all is at the highest version that its nodes speak.
    pub fn is_finished(&self) -> bool {
        self.next == self.cluster_version && self.hindrances.is_empty()
    }

    /// Releases that run, each once, in order of the nodes.
    pub fn releases(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for release in self.nodes.iter().filter_map(|run| run.release.as_ref()) {
            if !names.contains(&&release.name[..]) {
                names.push(&release.name);
            }
        }
        names
    }
}

fn hindrances(nodes: &[Runs], next: u32) -> Vec<String> {
    let newest = nodes.iter().filter_map(Runs::versions).map(|versions| versions.highest).max().unwrap_or(next);
    let of_node = |run: &Runs| match run.versions() {
        None if mutant(Mutant::AwayCountsAsUpgraded) => None,
        None => {
            let name = super::super::health::node_name(run.node);
            Some(format!(
                "{name} does not run, so nobody knows its release: start it, or take it out if it is lost (`cairn node rm {name} --lost`)"
            ))
        }
        Some(speaks) if speaks.highest < newest => {
            Some(format!("{} speaks cluster version {speaks}, others up to {newest}: upgrade it first", run.named()))
        }
        Some(speaks) if !speaks.has(next) => {
            Some(format!("{} speaks cluster version {speaks}, and not {next}: run a release that does", run.named()))
        }
        Some(_) => None,
    };
    nodes.iter().filter_map(of_node).collect()
}

/// Why an upgrade is not finished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// The map.
    #[error(transparent)]
    Map(#[from] CatalogError),
    /// Nodes are in the way.
    #[error("the upgrade cannot be finished: {}", .0.join("; "))]
    Hindered(Vec<String>),
    /// It is not what was foretold any more.
    #[error("the upgrade would go to cluster version {now} by now, not to {wanted}: look at `cairn upgrade` again")]
    Other {
        /// What was foretold.
        wanted: u32,
        /// What would be.
        now: u32,
    },
}

/// The cluster is at version `to` from now on: what all of its nodes speak. Older releases take part no more, and that cannot be taken
/// back. Where it is there already, nothing is changed.
///
/// # Errors
/// See [`UpgradeError`].
pub async fn finish_upgrade(map: &dyn MapStore, to: u32, at_ns: u64) -> Result<Upgrade, UpgradeError> {
    for _ in 0..ATTEMPTS_MAX {
        let listing = map.list("").await.map_err(CatalogError::from)?;
        let upgrade = Upgrade::of(&listing)?;
        if !upgrade.hindrances.is_empty() {
            return Err(UpgradeError::Hindered(upgrade.hindrances));
        }
        if upgrade.next != to {
            return Err(UpgradeError::Other { wanted: to, now: upgrade.next });
        }
        if upgrade.is_finished() {
            return Ok(upgrade);
        }
        let found = get::<ClusterRecord>(map, keys::CLUSTER).await?;
        let gone = || CatalogError::BadRecord { key: keys::CLUSTER.to_owned(), why: "it is gone".to_owned() };
        let release = upgrade.releases().first().map(|name| (*name).to_owned()).unwrap_or_default();
        let finished = Some(FinishedUpgrade { release, at_ns });
        let next = ClusterRecord { cluster_version: to, finished, ..found.ok_or_else(gone)?.record };
        let mut transaction = Transaction::new().put(next.key(), encode(&next));
        transaction.compares.clone_from(&upgrade.compares);
        if mutant(Mutant::FinishedWithoutLooking) {
            transaction.compares.truncate(1);
        }
        if let Outcome::Committed(_) = settle(map, transaction).await.map_err(CatalogError::from)? {
            return Ok(Upgrade { cluster_version: to, finished: next.finished, ..upgrade });
        }
    }
    Err(CatalogError::Contended.into())
}

/// How a node said that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The map has it.
    Done,
    /// Something has changed meanwhile: it is to be said again.
    Again,
    /// The cluster has gone on without it.
    Outdated(VersionError),
}

/// Says where a node serves and what it speaks, under its lease, unless the cluster has gone on to a version that it does not speak.
///
/// # Errors
/// The map's.
pub async fn say_doors(map: &dyn MapStore, doors: &DoorsRecord, lease: LeaseId) -> Result<Said, CatalogError> {
    let cluster: Option<Versioned<ClusterRecord>> = get(map, keys::CLUSTER).await?;
    let mut transaction = Transaction::new();
    if let Some(cluster) = cluster {
        if let Err(error) = cluster.record.admits(doors.release.cluster_versions) {
            return Ok(Said::Outdated(error));
        }
        transaction = transaction.expect(keys::CLUSTER, cluster.modified);
    }
    let modified = map.get(&doors.key()).await?.map(|found| found.modified).unwrap_or_default();
    let mut transaction = transaction.expect(doors.key(), modified);
    transaction.changes.push(Change::Put { key: doors.key(), value: encode(doors), lease: Some(lease) });
    match map.transact(transaction).await? {
        Outcome::Committed(_) => Ok(Said::Done),
        Outcome::Conflict => Ok(Said::Again),
    }
}

//! The map made anew, after its store was lost: from what nodes kept of it, and from what their devices know.
//!
//! ```text
//!   each node, as it runs   map ──watch──▶ copy_of ──▶ a file beside its own
//!   each node, stopped      that file, and of each device the newest record of each group ──▶ Gathered
//!   once                    all of these ──rebuild──▶ Archive ──import──▶ a map that has nothing
//! ```
//!
//! **Who knows what.** Pools, volumes, devices, places: the newest copy, which is some moments behind the map. Who counts in a
//! group: its members, whose records are entries of the group; the newest of all is the map's, or the map's last change was of
//! no consequence yet. So nothing is rebuilt unless every store that counted in a group's newest record was looked at, or is
//! said to be lost.
//!
//! **What nobody names.** A change of names and layers is answered when copies hold it ([`crate::Copies`]). Should a device hold data of a
//! layer that came after the newest copy all the same (ids rise, and the copy says which is the next), nothing is rebuilt either,
//! unless it is said that this data is given up. Nor does it where a device knows a group that came after that copy: layers would tell of
//! what is written there, but only on members that are looked at, and who they are no copy says. A group that no copy names and that is
//! older was given up before, with the map that was made without it.

use crate::archive::{Archive, SKIPPED};
use crate::records::{Allocator, ControlRecord, GroupRecord, Record, keys, number};
use crate::typed::{decode, encode};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use types::{ClusterId, Epoch, GroupId, LayerId, Mutant, StoreId, mutant};

/// What is written today. 2: devices say which layers they hold.
const FORMAT: u32 = 2;
/// Allocators of layers and groups.
const LAYER: &str = "layer";
const GROUP: &str = "group";

/// What one node has: a file that goes to where the map is made anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gathered {
    /// Of this file: 2.
    pub format: u32,
    /// Its copies of the map.
    pub copies: Vec<Archive>,
    /// Its devices.
    pub stores: Vec<StoreKnows>,
}

/// What a device knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreKnows {
    /// Its store.
    #[serde(with = "crate::records::hex")]
    pub store: StoreId,
    /// Where it was found.
    pub path: String,
    /// Whether it may have known more: what it says counts, what it does not say proves nothing.
    pub is_damaged: bool,
    /// The newest record of each group that the store has been a member of.
    pub groups: Vec<GroupRecord>,
    /// The layers that it holds anything of.
    pub layers: Vec<LayerKnown>,
}

/// A layer of which a device holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerKnown {
    /// Which.
    #[serde(with = "number")]
    pub layer: LayerId,
    /// Of so many chunks of 1 MiB.
    pub chunks: u64,
}

/// What is given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Stores that are gone for good.
    pub stores: Vec<StoreId>,
    /// Whether what no copy names is given up, too: what lies in such layers and groups.
    pub unnamed: bool,
}

impl Gathered {
    /// Of these copies and devices.
    pub fn new(copies: Vec<Archive>, stores: Vec<StoreKnows>) -> Self {
        Self { format: FORMAT, copies, stores }
    }
}

/// A map that was made anew, and what it was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// To be imported.
    pub archive: Archive,
    /// Groups of which a device knew a newer record than the copy.
    pub newer: usize,
    /// Groups that a device knows and the copy does not: nothing is made of them.
    pub unknown: Vec<GroupId>,
    /// Layers that devices hold something of, and that came after the copy: given up.
    pub unnamed: Vec<LayerId>,
}

/// Why no map is made of what was gathered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// A file of another build, or none.
    #[error("it is nothing that `cairn map gather` wrote in format {FORMAT}")]
    Format,
    /// Nobody kept one.
    #[error("no node's copy of the map is in these files: names and places are nowhere else")]
    NoCopy,
    /// A copy that cannot be read.
    #[error("the copy of the map cannot be used: {0}")]
    BadCopy(String),
    /// Nodes of two clusters.
    #[error("copies of two clusters are in these files: {0} and {1}")]
    TwoClusters(ClusterId, ClusterId),
    /// Others went on by a map that was restored.
    #[error(
        "group {group}: there are two records of epoch {epoch}: it was led by two maps, and what is in one copy is not in the other"
    )]
    TwoRecords {
        /// Of which group.
        group: GroupId,
        /// Of both.
        epoch: Epoch,
    },
    /// What was written to these would be gone.
    #[error(
        "devices hold data of {} that no copy of the map names ({}; up to {chunks} MiB on {}): it was made after the newest copy that is in these files, which is as of revision {revision}",
        several(.layers, "layer"), .layers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), .stores.join(", ")
    )]
    Unnamed {
        /// Which.
        layers: Vec<LayerId>,
        /// At most so much on one device, MiB.
        chunks: u64,
        /// Stores, and where they were.
        stores: Vec<String>,
        /// Of the newest copy.
        revision: u64,
    },
    /// What was written to these might be gone: who counts in them is in no copy.
    #[error(
        "devices know {} of {} that no copy of the map names (on {}): made after the newest copy that is in these files, which is as of revision {revision}",
        several(.groups, "group"), .pools.iter().map(|pool| format!("pool {pool}")).collect::<Vec<_>>().join(", "), .stores.join(", ")
    )]
    UnnamedGroups {
        /// Which.
        groups: Vec<GroupId>,
        /// Of these pools.
        pools: Vec<String>,
        /// Stores, and where they were.
        stores: Vec<String>,
        /// Of the newest copy.
        revision: u64,
    },
    /// Somebody may know better.
    #[error("nothing, or not all, was gathered of {}, and {groups} groups counted on {}: {}", several(.stores, "store"), if .stores.len() == 1 { "it" } else { "them" }, .stores.join(", "))]
    Missing {
        /// Stores, and where they were.
        stores: Vec<String>,
        /// Groups of which one of these counted.
        groups: usize,
    },
}

fn several<T>(items: &[T], what: &str) -> String {
    format!("{} {what}{}", items.len(), if items.len() == 1 { "" } else { "s" })
}

/// Makes a map of what nodes have.
///
/// # Errors
/// See [`RebuildError`]; nothing is decided by halves.
pub fn rebuild(gathered: &[Gathered], losses: &Losses) -> Result<Rebuilt, RebuildError> {
    if gathered.iter().any(|one| one.format != FORMAT) {
        return Err(RebuildError::Format);
    }
    let mut archive = newest_copy(gathered)?.clone();
    let bad = |why: &dyn ToString| RebuildError::BadCopy(why.to_string());
    let mut groups = BTreeMap::new();
    for (key, value) in archive.entries.iter().filter(|(key, _)| key.starts_with(keys::GROUPS)) {
        let record: GroupRecord = decode(key, value.to_string().as_bytes()).map_err(|error| bad(&error))?;
        groups.insert(record.id, (record, false));
    }
    let mut unknown = Vec::new();
    let stores = gathered.iter().flat_map(|one| &one.stores);
    for (store, known) in stores.flat_map(|store| store.groups.iter().map(|known| (store.store, known))) {
        let Some((newest, is_newer)) = groups.get_mut(&known.id) else {
            unknown.push((store, known));
            continue;
        };
        if known.epoch > newest.epoch {
            (*newest, *is_newer) = (known.clone(), true);
        } else if known.epoch == newest.epoch && !is_same(known, newest) {
            return Err(RebuildError::TwoRecords { group: known.id, epoch: known.epoch });
        }
    }
    let sound = gathered.iter().flat_map(|one| &one.stores).filter(|store| !store.is_damaged).map(|store| store.store);
    let there: BTreeSet<StoreId> = sound.chain(losses.stores.iter().copied()).collect();
    let counted = |record: &GroupRecord| -> Vec<StoreId> {
        record.in_sync.iter().chain(&record.eligible).copied().filter(|store| !there.contains(store)).collect()
    };
    let missing: Vec<_> =
        groups.values().map(|(record, _)| counted(record)).filter(|stores| !stores.is_empty()).collect();
    if !missing.is_empty() {
        let stores: BTreeSet<_> = missing.iter().flatten().collect();
        let stores = stores.into_iter().map(|store| place_of(&archive, *store)).collect();
        return Err(RebuildError::Missing { stores, groups: missing.len() });
    }
    let unnamed = unnamed_layers(gathered, &archive).map_err(|error| bad(&error))?;
    if !(unnamed.is_empty() || losses.unnamed || mutant(Mutant::UnnamedLayersLeft)) {
        return Err(told_unnamed(&archive, &unnamed));
    }
    let next = next_of(&archive, GROUP).map_err(|error| bad(&error))?;
    // A map that was made before groups were counted.
    let next = next.unwrap_or_else(|| groups.keys().next_back().map_or(0, |last| u64::from(last.0) + 1));
    let later: Vec<_> = unknown.iter().copied().filter(|(_, known)| u64::from(known.id.0) >= next).collect();
    if !(later.is_empty() || losses.unnamed || mutant(Mutant::UnnamedGroupsLeft)) {
        return Err(told_unnamed_groups(&archive, &later));
    }
    let newer = groups.values().filter(|(_, is_newer)| *is_newer).count();
    for (record, _) in groups.into_values().filter(|(_, is_newer)| *is_newer) {
        let value = serde_json::from_slice(&encode(&record)).map_err(|error| bad(&error))?;
        archive.entries.insert(record.key(), value);
    }
    let layers: BTreeSet<LayerId> = unnamed.into_iter().map(|(_, known)| known.layer).collect();
    let unknown: BTreeSet<GroupId> = unknown.into_iter().map(|(_, known)| known.id).collect();
    Ok(Rebuilt { archive, newer, unknown: unknown.into_iter().collect(), unnamed: layers.into_iter().collect() })
}

/// The number that an allocator gives next.
fn next_of(copy: &Archive, kind: &str) -> Result<Option<u64>, crate::catalog::CatalogError> {
    let key = keys::allocator(kind);
    let found = copy.entries.get(&key).map(|value| decode::<Allocator>(&key, value.to_string().as_bytes()));
    Ok(found.transpose()?.map(|allocator| allocator.next))
}

/// What stores hold of layers that were made after the copy. One that the copy does not name and that is older ended before it: what a
/// store has of that, which was away meanwhile, is nobody's.
fn unnamed_layers(
    gathered: &[Gathered],
    copy: &Archive,
) -> Result<Vec<(StoreId, LayerKnown)>, crate::catalog::CatalogError> {
    let next = LayerId(next_of(copy, LAYER)?.unwrap_or(0));
    let is_unnamed = |layer: LayerId| layer >= next && !copy.entries.contains_key(&keys::layer(layer));
    let stores = gathered.iter().flat_map(|one| &one.stores);
    let held = stores.flat_map(|store| store.layers.iter().map(|known| (store.store, *known)));
    Ok(held.filter(|(_, known)| is_unnamed(known.layer)).collect())
}

fn told_unnamed(copy: &Archive, unnamed: &[(StoreId, LayerKnown)]) -> RebuildError {
    let layers: BTreeSet<LayerId> = unnamed.iter().map(|(_, known)| known.layer).collect();
    let mut of_stores: BTreeMap<StoreId, u64> = BTreeMap::new();
    for (store, known) in unnamed {
        *of_stores.entry(*store).or_default() += known.chunks;
    }
    RebuildError::Unnamed {
        layers: layers.into_iter().collect(),
        chunks: of_stores.values().copied().max().unwrap_or_default(),
        stores: of_stores.keys().map(|store| place_of(copy, *store)).collect(),
        revision: copy.revision,
    }
}

fn told_unnamed_groups(copy: &Archive, unnamed: &[(StoreId, &GroupRecord)]) -> RebuildError {
    let groups: BTreeSet<GroupId> = unnamed.iter().map(|(_, known)| known.id).collect();
    let pools: BTreeSet<&String> = unnamed.iter().map(|(_, known)| &known.pool).collect();
    let stores: BTreeSet<StoreId> = unnamed.iter().map(|(store, _)| *store).collect();
    RebuildError::UnnamedGroups {
        groups: groups.into_iter().collect(),
        pools: pools.into_iter().cloned().collect(),
        stores: stores.into_iter().map(|store| place_of(copy, store)).collect(),
        revision: copy.revision,
    }
}

/// As far as members know: they write down who is who.
fn is_same(one: &GroupRecord, other: &GroupRecord) -> bool {
    let who = |record: &GroupRecord| {
        let GroupRecord { primary, life, in_sync, eligible, joining, .. } = record.clone();
        (primary, life, in_sync, eligible, joining)
    };
    who(one) == who(other)
}

/// The one of the highest revision, of the store that was filled last: with each import numbers go far ahead.
fn newest_copy(gathered: &[Gathered]) -> Result<&Archive, RebuildError> {
    let mut newest: Option<((u64, u64), ClusterId, &Archive)> = None;
    for copy in gathered.iter().flat_map(|one| &one.copies) {
        let bad = |why: &dyn ToString| RebuildError::BadCopy(why.to_string());
        let cluster = copy.cluster().map_err(|error| bad(&error))?.id;
        let control = copy
            .entries
            .get(keys::CONTROL)
            .map(|value| decode::<ControlRecord>(keys::CONTROL, value.to_string().as_bytes()));
        let control = control.transpose().map_err(|error| bad(&error))?.map_or(0, |control| control.epoch);
        let age = (control / u64::from(SKIPPED), copy.revision);
        if let Some((_, other, _)) = newest.filter(|(_, other, _)| *other != cluster) {
            return Err(RebuildError::TwoClusters(other, cluster));
        }
        if newest.is_none_or(|(newest, ..)| age > newest) {
            newest = Some((age, cluster, copy));
        }
    }
    newest.map(|(_, _, copy)| copy).ok_or(RebuildError::NoCopy)
}

/// A store, and where the map had it.
fn place_of(archive: &Archive, store: StoreId) -> String {
    let device = archive.entries.get(&keys::device(store));
    let text = |name: &str| Some(device?.get(name)?.to_string().trim_matches('"').to_owned());
    match (text("node"), text("path")) {
        (Some(node), Some(path)) => format!("{store} (node {node}, {path})"),
        _ => store.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{ClusterRecord, GroupState};
    use types::Incarnation;

    const A: StoreId = StoreId(1);
    const B: StoreId = StoreId(2);
    const C: StoreId = StoreId(3);

    fn group(epoch: u32, in_sync: &[StoreId], joining: &[StoreId]) -> GroupRecord {
        GroupRecord {
            id: GroupId(5),
            table: 1,
            pool: "default".to_owned(),
            epoch: Epoch(epoch),
            primary: in_sync[0],
            life: Incarnation(1),
            in_sync: in_sync.to_vec(),
            eligible: Vec::new(),
            joining: joining.to_vec(),
            members: vec![A, B, C],
            min_in_sync: 2,
            state: GroupState::Active,
            forced: None,
        }
    }

    fn copy(cluster: u128, revision: u64, control: u64, group: &GroupRecord) -> Archive {
        let json = |bytes: Vec<u8>| serde_json::from_slice(&bytes).expect("it is JSON");
        let cluster = ClusterRecord {
            id: ClusterId(cluster),
            cluster_version: 1,
            finished: None,
            created_at_ns: 1,
            replicas: None,
        };
        let control = ControlRecord { epoch: control, node: types::NodeId(1) };
        let entries = [
            (keys::CLUSTER.to_owned(), json(encode(&cluster))),
            (group.key(), json(encode(group))),
            (keys::CONTROL.to_owned(), json(encode(&control))),
        ];
        Archive { format: crate::archive::FORMAT, revision, taken_at_ns: 0, entries: entries.into() }
    }

    fn knows(store: StoreId, group: GroupRecord) -> StoreKnows {
        StoreKnows { store, path: format!("/dev/{store}"), is_damaged: false, groups: vec![group], layers: Vec::new() }
    }

    fn none() -> Losses {
        Losses::default()
    }

    fn found(rebuilt: &Rebuilt) -> GroupRecord {
        decode("", rebuilt.archive.entries[&group(1, &[A], &[]).key()].to_string().as_bytes()).expect("it is one")
    }

    /// The copy says that three are in sync; one of them knows that it was alone with another since.
    #[test]
    fn the_newest_record_of_all_members_counts() {
        let copied =
            Gathered::new(vec![copy(9, 70, 1, &group(4, &[A, B, C], &[]))], vec![knows(B, group(4, &[A, B, C], &[]))]);
        let one = Gathered::new(Vec::new(), vec![knows(A, group(6, &[A, C], &[B]))]);
        let other = Gathered::new(Vec::new(), vec![knows(C, group(5, &[A, C], &[B]))]);
        let rebuilt = rebuild(&[copied.clone(), one.clone(), other], &none()).expect("all were looked at");
        assert_eq!((found(&rebuilt).epoch, found(&rebuilt).in_sync, rebuilt.newer), (Epoch(6), vec![A, C], 1));
        let missing = rebuild(&[copied.clone(), one.clone()], &none()).expect_err("C counts");
        assert!(matches!(&missing, RebuildError::Missing { stores, groups: 1 } if stores.len() == 1), "{missing}");
        let damaged = StoreKnows { is_damaged: true, ..knows(C, group(5, &[A, C], &[B])) };
        let damaged = rebuild(&[copied.clone(), one.clone(), Gathered::new(Vec::new(), vec![damaged])], &none());
        assert_eq!(damaged, Err(missing), "it may have known more");
        assert!(rebuild(&[copied, one], &Losses { stores: vec![C], ..none() }).is_ok(), "it is lost for good");
    }

    #[test]
    fn a_member_that_is_being_filled_need_not_be_there() {
        let one =
            Gathered::new(vec![copy(9, 70, 1, &group(4, &[A, B], &[C]))], vec![knows(A, group(4, &[A, B], &[C]))]);
        let other = Gathered::new(Vec::new(), vec![knows(B, group(3, &[A, B, C], &[]))]);
        assert_eq!(rebuild(&[one, other], &none()).expect("both are there").newer, 0);
    }

    #[test]
    fn two_records_of_one_epoch_are_refused() {
        let one =
            Gathered::new(vec![copy(9, 70, 1, &group(4, &[A, B, C], &[]))], vec![knows(A, group(5, &[A, B], &[C]))]);
        let other =
            Gathered::new(Vec::new(), vec![knows(B, group(5, &[B, C], &[A])), knows(C, group(5, &[B, C], &[A]))]);
        let refused = rebuild(&[one, other], &none());
        assert_eq!(refused, Err(RebuildError::TwoRecords { group: GroupId(5), epoch: Epoch(5) }));
    }

    /// Revisions begin anew in another etcd; the copy of one that was left long ago may have a higher one.
    #[test]
    fn a_copy_of_the_etcd_before_is_older() {
        let all = |epoch| group(epoch, &[A, B, C], &[]);
        let before = Gathered::new(vec![copy(9, 90_000, 12, &all(4))], vec![knows(A, all(8)), knows(B, all(8))]);
        let after = Gathered::new(vec![copy(9, 300, 12 + u64::from(SKIPPED), &all(8))], vec![knows(C, all(8))]);
        let rebuilt = rebuild(&[before.clone(), after], &none()).expect("all are there");
        assert_eq!((rebuilt.archive.revision, rebuilt.newer), (300, 0));
        let foreign = Gathered::new(vec![copy(10, 1, 0, &all(8))], Vec::new());
        let refused = rebuild(&[before, foreign], &none());
        assert_eq!(refused, Err(RebuildError::TwoClusters(ClusterId(9), ClusterId(10))));
        assert_eq!(rebuild(&[Gathered::new(Vec::new(), vec![knows(A, all(8))])], &none()), Err(RebuildError::NoCopy));
    }
}

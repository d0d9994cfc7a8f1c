//! Orders about snapshots, clones, changes of volumes and usage: what the admin API asks of the control core, and how that answers.
//!
//! Each is a task of its own: a snapshot waits for commands to end, a list of changes walks the index, and neither may
//! keep the other orders waiting. What must not happen at once is kept apart by the assembly.

use crate::control::Answer;
use crate::local_node::tell;
use crate::volume_spec::{SnapshotName, SnapshotPath, VolumeName};
use cluster::{SnapshotRecord, Wanted};
use std::collections::BTreeMap;
use types::VolumeId;
use volume::{Assembly, ByteRange, VolumeChange, VolumeInfo, VolumeUsage};

/// What the control core is asked.
#[derive(Debug)]
pub enum SnapshotRequest {
    /// The snapshots of a volume, by name.
    List(VolumeName, Answer<Vec<SnapshotRecord>>),
    /// Take one.
    Create(VolumeName, SnapshotName, Answer<SnapshotRecord>),
    /// Take one of each of these volumes, all at one instant.
    CreateAll(Vec<SnapshotPath>, Answer<Vec<SnapshotRecord>>),
    /// Delete one.
    Delete(VolumeName, SnapshotName, Answer<()>),
    /// Make the volume hold what it holds.
    RollBack(VolumeName, SnapshotName, Answer<()>),
    /// Make a volume of it.
    Clone(VolumeName, SnapshotName, VolumeName, Answer<VolumeInfo>),
    /// What changed from one to another, or until now.
    Changes(VolumeName, SnapshotName, Option<SnapshotName>, Answer<Vec<ByteRange>>),
    /// Change a volume's name, size or limits.
    Change(VolumeName, VolumeChange, Answer<VolumeInfo>),
    /// What each volume takes.
    Usage(Answer<BTreeMap<VolumeId, VolumeUsage>>),
}

/// Carries an order out. Nobody may be waiting for the answer any more: it was carried out all the same.
pub(crate) async fn answer(assembly: Assembly, request: SnapshotRequest) {
    use SnapshotRequest::{Change, Changes, Clone, Create, CreateAll, Delete, List, RollBack, Usage};
    match request {
        List(volume, reply) => tell(reply, assembly.snapshots(volume.as_str()).await),
        Create(volume, name, reply) => tell(reply, assembly.create_snapshot(volume.as_str(), name.as_str()).await),
        CreateAll(paths, reply) => {
            let wanted =
                |path: &SnapshotPath| Wanted { volume: path.volume.to_string(), name: path.snapshot.to_string() };
            let wanted: Vec<Wanted> = paths.iter().map(wanted).collect();
            tell(reply, assembly.create_snapshots(&wanted).await);
        }
        Delete(volume, name, reply) => tell(reply, assembly.delete_snapshot(volume.as_str(), name.as_str()).await),
        RollBack(volume, name, reply) => tell(reply, assembly.roll_back(volume.as_str(), name.as_str()).await),
        Clone(volume, name, new, reply) => {
            tell(reply, assembly.clone_volume(volume.as_str(), name.as_str(), new.as_str()).await);
        }
        Changes(volume, from, to, reply) => {
            let to = to.as_ref().map(SnapshotName::as_str);
            tell(reply, assembly.changed_blocks(volume.as_str(), from.as_str(), to).await);
        }
        Change(volume, change, reply) => tell(reply, assembly.change_volume(volume.as_str(), &change).await),
        Usage(reply) => tell(reply, assembly.usage().await),
    }
}

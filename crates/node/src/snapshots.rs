//! Orders about snapshots, clones, sizes and usage: what the admin API asks of the control core, and how that answers.
//!
//! Each is a task of its own: a snapshot waits for commands to end, a list of changes walks the index, and neither may
//! keep the other orders waiting. What must not happen at once is kept apart by the assembly.

use crate::control::{ControlError, Reply};
use crate::local_node::control_error;
use crate::size::ByteSize;
use crate::volume_spec::{SnapshotName, VolumeName};
use std::collections::BTreeMap;
use types::VolumeId;
use volume::{Assembly, ByteRange, VolumeError, VolumeInfo, VolumeUsage};

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// Size of the volume when it was taken.
    pub size_bytes: u64,
    /// When, ns since 1970.
    pub created_at_ns: u64,
}

type Answer<T> = Reply<Result<T, ControlError>>;

/// What the control core is asked.
#[derive(Debug)]
pub enum SnapshotRequest {
    /// The snapshots of a volume, by name.
    List(VolumeName, Answer<Vec<SnapshotInfo>>),
    /// Take one.
    Create(VolumeName, SnapshotName, Answer<SnapshotInfo>),
    /// Delete one.
    Delete(VolumeName, SnapshotName, Answer<()>),
    /// Make the volume hold what it holds.
    RollBack(VolumeName, SnapshotName, Answer<()>),
    /// Make a volume of it.
    Clone(VolumeName, SnapshotName, VolumeName, Answer<VolumeInfo>),
    /// What changed from one to another, or until now.
    Changes(VolumeName, SnapshotName, Option<SnapshotName>, Answer<Vec<ByteRange>>),
    /// Make a volume larger.
    Resize(VolumeName, ByteSize, Answer<VolumeInfo>),
    /// What each volume takes.
    Usage(Answer<BTreeMap<VolumeId, VolumeUsage>>),
}

/// Carries an order out. Nobody may be waiting for the answer any more: it was carried out all the same.
pub(crate) async fn answer(assembly: Assembly, request: SnapshotRequest) {
    use SnapshotRequest::{Changes, Clone, Create, Delete, List, Resize, RollBack, Usage};
    match request {
        List(volume, reply) => {
            let listed = assembly.snapshots(volume.as_str()).await;
            tell(reply, listed.map(|all| all.iter().map(info).collect()));
        }
        Create(volume, name, reply) => {
            let created = assembly.create_snapshot(volume.as_str(), name.as_str()).await;
            tell(reply, created.map(|snapshot| info(&snapshot)));
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
        Resize(volume, size, reply) => tell(reply, assembly.resize_volume(volume.as_str(), size.0).await),
        Usage(reply) => tell(reply, assembly.usage().await),
    }
}

fn tell<T>(reply: Answer<T>, outcome: Result<T, VolumeError>) {
    let _ = reply.send(outcome.map_err(control_error));
}

fn info(snapshot: &cluster::SnapshotRecord) -> SnapshotInfo {
    let cluster::SnapshotRecord { name, size_bytes, created_at_ns, .. } = snapshot;
    SnapshotInfo { name: name.clone(), size_bytes: *size_bytes, created_at_ns: *created_at_ns }
}

//! `cairn snapshot create|ls|delete|rollback|changes`, `cairn clone`.

use crate::Failure;
use crate::args::SnapshotCommand;
use crate::client::Client;
use crate::output::{Format, show, table};
use crate::volume::details;
use node::admin::types::{ChangedRange, Snapshot};
use node::size::ByteSize;
use node::volume_spec::{SnapshotName, SnapshotPath, VolumeName};
use serde_json::json;

pub(crate) fn run(client: &Client, command: SnapshotCommand, format: Format) -> Result<(), Failure> {
    match command {
        SnapshotCommand::Create { paths } if paths.len() > 1 => {
            let made = client.create_snapshots(&paths)?;
            show(format, &made, |made| {
                let row = |one: &Snapshot| {
                    format!("{}@{} holds what {} held at {}\n", one.volume, one.name, one.volume, one.created_at)
                };
                made.iter().map(row).collect()
            })
        }
        SnapshotCommand::Create { paths } => {
            let path = paths.first().expect("one is required");
            let made = client.create_snapshot(path.volume.as_str(), path.snapshot.as_str())?;
            show(format, &made, |made| format!("{path} holds what {} held at {}\n", path.volume, made.created_at))
        }
        SnapshotCommand::Ls { volume } => {
            show(format, &client.snapshots(volume.as_str())?, |snapshots| list(snapshots))
        }
        SnapshotCommand::Delete { path } => {
            client.delete_snapshot(path.volume.as_str(), path.snapshot.as_str())?;
            show(format, &told(&path, "deleted"), |_| format!("{path} is deleted\n"))
        }
        SnapshotCommand::Rollback { path } => {
            client.roll_back(path.volume.as_str(), path.snapshot.as_str())?;
            show(format, &told(&path, "rolled_back"), |_| format!("{} holds what {path} holds\n", path.volume))
        }
        SnapshotCommand::Changes { path, to } => {
            let to = to.as_ref().map(SnapshotName::as_str);
            let ranges = client.changes(path.volume.as_str(), path.snapshot.as_str(), to)?;
            show(format, &ranges, |ranges| changes(ranges))
        }
    }
}

/// Makes a volume of a snapshot.
pub(crate) fn clone(client: &Client, path: &SnapshotPath, new: &VolumeName, format: Format) -> Result<(), Failure> {
    let made = client.clone_snapshot(path.volume.as_str(), path.snapshot.as_str(), new.as_str())?;
    show(format, &made, details)
}

fn told(path: &SnapshotPath, what: &str) -> serde_json::Value {
    json!({"volume": path.volume.as_str(), "name": path.snapshot.as_str(), what: true})
}

fn list(snapshots: &[Snapshot]) -> String {
    let row = |snapshot: &Snapshot| {
        [snapshot.name.clone(), ByteSize(snapshot.size_bytes).to_string(), snapshot.created_at.clone()]
    };
    let rows: Vec<_> = snapshots.iter().map(row).collect();
    table(["NAME", "SIZE", "TAKEN"], &rows)
}

fn changes(ranges: &[ChangedRange]) -> String {
    let row = |range: &ChangedRange| [range.offset_bytes.to_string(), range.length_bytes.to_string()];
    let rows: Vec<_> = ranges.iter().map(row).collect();
    table(["OFFSET", "LENGTH"], &rows)
}

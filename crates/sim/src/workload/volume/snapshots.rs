//! An administrator who takes snapshots of the volume that all clients use, makes volumes of them, and deletes both in any
//! order: layers are merged under the clients' feet.
//!
//! What a snapshot holds is read through a clone and judged like any read: it began before the snapshot was asked for, so
//! it may see what there was at any moment since, and must agree with one of them.

use super::client::Clients;
use super::door::Door;
use super::machine::{Serving, VOLUME};
use super::profile::Trouble;
use crate::history::{Action, read_block};
use runtime::random_u64;
use std::sync::Arc;
use std::time::Duration;
use volume::{Assembly, VolumeError};

/// Snapshots there may be at once.
const NAMES: u64 = 5;
/// The volume that snapshots are looked at through.
const CLONE: &str = "looked-at";

/// Goes on until the node ends.
pub async fn administer(serving: Serving, clients: Arc<Clients>) {
    let assembly = &serving.assembly;
    // It may be there since before the crash.
    let _ = assembly.delete_volume(CLONE).await;
    loop {
        let name = format!("s{}", random_u64() % NAMES);
        let outcome = match random_u64() % 3 {
            0 => assembly.delete_snapshot(VOLUME, &name).await,
            _ => take(assembly, &clients, &name).await,
        };
        judge(&clients, outcome);
        runtime::sleep(Duration::from_micros(random_u64() % 2000)).await;
    }
}

/// Takes a snapshot and looks at a part of it.
async fn take(assembly: &Assembly, clients: &Clients, name: &str) -> Result<(), VolumeError> {
    let (first, count) = clients.draw_range();
    let id = clients.ledger().history.start(Action::Read(Vec::new()), first, count as u32);
    let seen = look(assembly, clients, name, first, count).await;
    match seen {
        Ok(Some(values)) => clients.ledger().history.answered(id, values),
        Ok(None) => clients.ledger().history.refused(id),
        Err(error) => {
            clients.ledger().history.refused(id);
            return Err(error);
        }
    }
    Ok(())
}

/// What the blocks were when the snapshot was taken; `None` if they could not be read.
async fn look(
    assembly: &Assembly,
    clients: &Clients,
    name: &str,
    first: u64,
    count: u64,
) -> Result<Option<Vec<crate::history::Value>>, VolumeError> {
    assembly.create_snapshot(VOLUME, name).await?;
    assembly.clone_volume(VOLUME, name, CLONE).await?;
    let mut values = None;
    if let Some(clone) = assembly.directory().by_name(CLONE) {
        let block_bytes = clients.profile.block_bytes;
        if let Ok(read) = Door::Core(clone).read(first * block_bytes, (count * block_bytes) as u32).await {
            let blocks = (first..).zip(read.chunks_exact(block_bytes as usize));
            match blocks.map(|(block, bytes)| read_block(block, bytes)).collect::<Result<Vec<_>, _>>() {
                Ok(found) => values = Some(found),
                Err(bad) => clients.fail("contents", bad),
            }
        }
    }
    assembly.delete_volume(CLONE).await?;
    Ok(values)
}

/// Only what random orders must come to may be refused, unless the disk or the end of the node is to blame.
fn judge(clients: &Clients, outcome: Result<(), VolumeError>) {
    let is_expected = match &outcome {
        Ok(()) | Err(VolumeError::NoSnapshot(_) | VolumeError::SnapshotExists(_)) => true,
        // It was there since before the crash, and its deletion was refused or is under way.
        Err(VolumeError::Exists(_) | VolumeError::NotFound(_)) => true,
        Err(_) => clients.profile.trouble == Trouble::Disk || clients.is_closing(),
    };
    if let (false, Err(error)) = (is_expected, outcome) {
        clients.fail("error", error);
    }
}

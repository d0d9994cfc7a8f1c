//! Judging a whole device without a store on it: `cairn device check`.
//!
//! ```text
//!   superblocks ─▶ segment headers ─▶ per shard: opening, as far as it reads ──▶ index
//!                                                     │                           │
//!                                     what it would say is damaged         which blocks are needed
//!                                                     ▼                           ▼
//!                                                  findings ◀── every record of every segment, every block in it
//! ```
//!
//! **Promises.** Everything that opening would read is read by the very same code, and everything else besides: records
//! that replay does not need, blocks that nothing needs any more. Each finding says where it is and what it means.
//! Nothing is written, unless a repair is asked for: that makes superblock slots good again from the one that counts,
//! as opening does, lets a store that assertions stopped be opened once more, and nothing else. Data that is damaged
//! stays as it is, and is found again.
//!
//! **Never.** No judgement by what a crash leaves behind: a record counts as damaged only if a later one of the same
//! life of the store says that it was durable.

mod blocks;
mod finding;
mod records;

pub use finding::{Finding, Severity, What};

use crate::error::OpenError;
use crate::format::{Geometry, SegmentIndex, SlotPosition, StopMark};
use crate::open::examine;
use crate::shard::{Assertion, catch_in};
use crate::store::Store;
use crate::superblock::{read_slots, write_update};
use records::Walk;
use runtime::{Device, wall_clock_ns};
use types::{ClusterId, Incarnation, ShardIndex, StoreId};

/// What a check is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Make good what can be made good without hiding anything.
    pub repair: bool,
}

/// What a check read, and what it found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// The store.
    pub store: StoreId,
    /// How the device is divided.
    pub geometry: Geometry,
    /// The last start of the store.
    pub incarnation: Incarnation,
    /// How much was read.
    pub counts: Counts,
    /// What is not as it should be, in the order in which it was found.
    pub findings: Vec<Finding>,
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments that hold records.
    pub segments: u64,
    /// Good records.
    pub records: u64,
    /// Entries in them.
    pub entries: u64,
    /// Blocks of clients whose sums were compared.
    pub blocks: u64,
    /// Of these, blocks that somebody may read.
    pub blocks_needed: u64,
    /// Bytes read.
    pub bytes: u64,
}

impl Checked {
    /// Findings of this severity that are still there.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity() == severity && !finding.repaired).count()
    }

    /// Whether anything is damaged that was not repaired.
    pub fn is_damaged(&self) -> bool {
        self.count(Severity::Loss) + self.count(Severity::Rot) > 0
    }
}

/// Reads all of `device`, which nobody else has open.
///
/// # Errors
/// If it is not a store's device, is a newer build's, or its superblocks or segment headers cannot be read.
pub async fn check(device: &Device, options: CheckOptions) -> Result<Checked, OpenError> {
    let store = Store::look(device).await?;
    let mut checked = Checked {
        cluster: store.cluster_id(),
        store: store.store_id(),
        geometry: store.geometry(),
        incarnation: store.incarnation(),
        counts: Counts::default(),
        findings: Vec::new(),
    };
    checked.findings.extend(store.repaired().iter().cloned().map(Finding::of_damage));
    let mut repairable = !checked.findings.is_empty();
    checked.findings.extend(store.damage().iter().cloned().map(Finding::of_damage));
    for shard in (0..store.shard_count()).map(ShardIndex) {
        let mark = store.root(shard).stopped;
        if mark.times > 0 {
            repairable = true;
            checked.findings.push(Finding::new(What::Stopped { shard, record: mark.record, times: mark.times }));
        }
        let examined = match catch_in(examine(device, &store, shard)).await {
            Ok(examined) => examined,
            Err(Assertion { record, message }) => {
                checked.findings.push(Finding::new(What::Assertion { shard, record, message: message.into() }));
                continue;
            }
        };
        let mut walk = Walk::new(device, &store, shard, &examined);
        for found in store.found_segments(shard) {
            walk.segment(&found).await;
        }
        walk.judge();
        blocks::check_unproved(&mut walk).await;
        walk.end(&mut checked);
    }
    if options.repair && repairable {
        repair_superblocks(device).await?;
        for finding in &mut checked.findings {
            let is_of_superblock = matches!(finding.what, What::Damage(crate::Damage::Superblock { .. }));
            finding.repaired |= is_of_superblock || matches!(finding.what, What::Stopped { .. });
        }
    }
    Ok(checked)
}

/// Writes the superblock that counts twice: as an opening does, that makes all four slots good. A store that an
/// assertion stopped is opened again.
async fn repair_superblocks(device: &Device) -> Result<(), OpenError> {
    let mut superblock = crate::format::Superblock::newest(read_slots(device).await?)?;
    superblock.shards.iter_mut().for_each(|root| root.stopped = StopMark::default());
    for _ in 0..SlotPosition::ALL.len() / 2 {
        superblock.write_counter += 1;
        superblock.written_at_ns = wall_clock_ns();
        write_update(device, &superblock).await.map_err(|error| crate::store::io_at(0, &error))?;
    }
    Ok(())
}

/// A place in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The segment.
    pub segment: SegmentIndex,
    /// Where in it, in bytes.
    pub offset_bytes: u32,
}

//! What a check found: what, where, what it means.

use super::Place;
use crate::error::Damage;
use crate::format::{Geometry, RecordSeq};
use crate::open::STOPS_MAX;
use std::fmt;
use std::sync::Arc;
use types::{ChunkId, LayerId, ShardIndex};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// What a crash leaves behind. Nothing was lost: it was never acknowledged.
    Trace,
    /// Bytes are not as they were written, and nobody needs them.
    Rot,
    /// Something that was acknowledged cannot be read, or nobody knows any more whether it is what was written last.
    Loss,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub what: What,
    /// It has been made good.
    pub repaired: bool,
}

/// What a check finds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum What {
    /// What opening says.
    #[error("{0}")]
    Damage(Damage),
    /// A block that somebody may read.
    #[error("block {block} of chunk {chunk}, layer {layer}: {why}")]
    Block {
        /// Where it lies.
        place: Place,
        /// The layer.
        layer: LayerId,
        /// The chunk.
        chunk: ChunkId,
        /// The block of the chunk.
        block: u16,
        /// What is wrong with it.
        why: Arc<str>,
    },
    /// Blocks, leaves or padding of a record that nobody needs any more.
    #[error("record {}: {why}", record.0)]
    Data {
        /// Where it lies.
        place: Place,
        /// The record.
        record: RecordSeq,
        /// What is wrong.
        why: Arc<str>,
        /// The record was durable: these bytes were right once.
        was_durable: bool,
    },
    /// No good record between two that are good, or where there was one.
    #[error("no good record in {len_bytes} bytes: {why}")]
    NoRecord {
        /// From where on.
        place: Place,
        /// How far.
        len_bytes: u32,
        /// What is wrong with the first bytes.
        why: Arc<str>,
        /// A record that was durable lay there.
        was_durable: bool,
    },
    /// An assertion of the store failed there when it was used.
    #[error("shard {shard}: an assertion stopped the store at record {}, {times} times in a row", record.0)]
    Stopped {
        /// The shard.
        shard: ShardIndex,
        /// The record it was at.
        record: RecordSeq,
        /// How often in a row.
        times: u32,
    },
    /// An assertion of the store fails when it is opened.
    #[error("shard {shard}: at record {} an assertion fails: {message}", record.0)]
    Assertion {
        /// The shard.
        shard: ShardIndex,
        /// The record it is at; 0: at none in particular.
        record: RecordSeq,
        /// What it says.
        message: Arc<str>,
    },
    /// The device did not return these bytes.
    #[error("{len_bytes} bytes cannot be read: {message}")]
    Unreadable {
        /// From where on.
        place: Place,
        /// How many.
        len_bytes: u32,
        /// What the system says.
        message: Arc<str>,
    },
}

impl Finding {
    pub(super) fn new(what: What) -> Self {
        Self { what, repaired: false }
    }

    pub(super) fn of_damage(damage: Damage) -> Self {
        Self::new(What::Damage(damage))
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        match &self.what {
            What::Damage(Damage::Superblock { .. } | Damage::Padding { .. }) => Severity::Rot,
            What::Damage(_) | What::Block { .. } | What::Assertion { .. } => Severity::Loss,
            // From the second time on nothing of the store is served.
            What::Stopped { times, .. } if *times < STOPS_MAX => Severity::Trace,
            What::Stopped { .. } => Severity::Loss,
            What::Unreadable { .. } => Severity::Rot,
            What::Data { was_durable, .. } | What::NoRecord { was_durable, .. } if *was_durable => Severity::Rot,
            What::Data { .. } | What::NoRecord { .. } => Severity::Trace,
        }
    }

    /// Where in a segment it is, if it is in one.
    pub fn place(&self) -> Option<Place> {
        match &self.what {
            What::Block { place, .. }
            | What::Data { place, .. }
            | What::NoRecord { place, .. }
            | What::Unreadable { place, .. } => Some(*place),
            What::Damage(damage) => place_of(damage),
            What::Stopped { .. } | What::Assertion { .. } => None,
        }
    }

    /// Where on the device it is, if that is known.
    pub fn device_offset_bytes(&self, geometry: &Geometry) -> Option<u64> {
        match (&self.what, self.place()) {
            (What::Damage(Damage::Superblock { offset_bytes, .. }), _) => Some(*offset_bytes),
            (_, place) => {
                place.map(|place| geometry.segment_start_bytes(place.segment) + u64::from(place.offset_bytes))
            }
        }
    }

    /// What it means for who owns the data, and what to do.
    pub fn meaning(&self) -> &'static str {
        match &self.what {
            What::Damage(damage) => meaning_of(damage),
            What::Block { .. } => "reads of this block fail; write it again, or restore it from a copy or a backup",
            What::Stopped { times, .. } if *times < STOPS_MAX => {
                "the store is opened once more; should it stop there again, it stays stopped"
            }
            What::Stopped { .. } => {
                "nothing of the store is served; this is a bug of Cairn: report it; --repair lets the store be opened once more"
            }
            What::Assertion { .. } => "the store cannot be opened; this is a bug of Cairn: report it",
            What::Unreadable { .. } => {
                "the device does not return these bytes; what was needed of them is named by the other lines; replace the device"
            }
            What::Data { was_durable: true, .. } => {
                "it changed after it was written, and nobody needs it any more: nothing is lost, but the device is not to be trusted"
            }
            What::NoRecord { was_durable: true, .. } => {
                "a record changed after it was written; opening does not need it, and blocks in it that are needed were judged \
                 one by one: nothing else is lost, but the device is not to be trusted"
            }
            What::Data { .. } | What::NoRecord { .. } => {
                "an append that a crash ended, or what an earlier use of the segment left: it was never acknowledged"
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

fn place_of(damage: &Damage) -> Option<Place> {
    match *damage {
        Damage::Records { segment, offset_bytes, .. }
        | Damage::Unreadable { segment, offset_bytes, .. }
        | Damage::Leaf { segment, offset_bytes, .. }
        | Damage::Padding { segment, offset_bytes, .. } => Some(Place { segment, offset_bytes }),
        Damage::SegmentHeader { segment, .. } | Damage::ReplayStart { segment, .. } => {
            Some(Place { segment, offset_bytes: 0 })
        }
        _ => None,
    }
}

fn meaning_of(damage: &Damage) -> &'static str {
    match damage {
        Damage::Superblock { .. } => {
            "a power loss while it was being written leaves this, or it rotted: the others serve and nothing is lost; opening \
             the store makes it good, and so does --repair"
        }
        Damage::SegmentHeader { .. } => {
            "what lies in this segment is made out from its first record if that can be done; else records and blocks in it \
             are lost, and said to be"
        }
        Damage::Records { .. } => {
            "writes that were acknowledged may be lost: groups that may have had entries there do not serve"
        }
        Damage::Unreadable { .. } => {
            "nobody knows whether records are there: groups that may have had some do not serve"
        }
        Damage::ReplayStart { .. } | Damage::Pass { .. } => {
            "part of the index is lost: chunks that nobody knows all of are not read"
        }
        Damage::Leaf { .. } => "where the blocks of this chunk are is lost: reads of the chunk fail",
        Damage::Padding { .. } => "only zeroes lay there: nothing is lost, but the device is not to be trusted",
        Damage::GroupEntries { .. } => "writes that were acknowledged are lost: the group does not serve",
    }
}

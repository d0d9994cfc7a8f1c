//! What can go wrong, each with what an operator needs to find the place.

use crate::format::{FormatError, Generation, GeometryError, RecordSeq, SegmentIndex, SeqRange};
use std::sync::Arc;
use types::{ChunkId, GroupId, LayerId, Seq, ShardIndex};

/// Why a device was not formatted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The device cannot be divided into segments.
    #[error("this device cannot become a store: {0}")]
    Geometry(#[from] GeometryError),
    /// It carries a store already.
    #[error(
        "the device carries store {store} of cluster {cluster} already: remove that store first, or give another device"
    )]
    Occupied {
        /// The store found there.
        store: types::StoreId,
        /// Its cluster.
        cluster: types::ClusterId,
    },
    /// The device failed.
    #[error("formatting failed at byte {offset_bytes}: {message}")]
    Io {
        /// Where, in bytes.
        offset_bytes: u64,
        /// What the system says.
        message: Arc<str>,
    },
}

/// Why a store or a shard of it was not opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// No superblock is good.
    #[error("no store can be opened here: {0}")]
    Superblock(#[from] FormatError),
    /// It is another cluster's.
    #[error("the store {store} belongs to cluster {cluster} already")]
    Claimed {
        /// The store found there.
        store: types::StoreId,
        /// Its cluster.
        cluster: types::ClusterId,
    },
    /// The device shrank or its block grew since it was formatted.
    #[error(
        "the device has {found_bytes} bytes in blocks of {found_block}, the store on it needs {needed_bytes} in blocks of \
         at most {needed_block}: move it to a device or file system that has them"
    )]
    Device {
        /// Bytes the device has.
        found_bytes: u64,
        /// Its block.
        found_block: u32,
        /// Bytes the store was formatted for.
        needed_bytes: u64,
        /// Block it was formatted for.
        needed_block: u32,
    },
    /// The store has no such shard.
    #[error("the store has {count} shards, there is no shard {index}")]
    NoSuchShard {
        /// The shard asked for.
        index: ShardIndex,
        /// Shards there are.
        count: u8,
    },
    /// The device failed.
    #[error("opening failed at byte {offset_bytes}: {message}")]
    Io {
        /// Where, in bytes.
        offset_bytes: u64,
        /// What the system says.
        message: Arc<str>,
    },
    /// An assertion failed while it was opened, or failed twice before: it is left alone.
    #[error("the store has stopped: {reason}")]
    Stopped {
        /// Where it failed, and what it says.
        reason: Arc<str>,
    },
    /// No segment is free for the record that begins the incarnation, or, where each shard lacks something, for what would mend
    /// that: what is damaged is kept until it is mended.
    #[error(
        "the store was read but cannot be written: none of its {segments} segments is free, and {headers_lost} of them are \
         kept because their headers are damaged"
    )]
    NoSegment {
        /// Segments of the device.
        segments: u32,
        /// Those whose header is not good.
        headers_lost: u32,
    },
    /// The record that begins the incarnation could not be written.
    #[error("the store was read but cannot be written: {0}")]
    Append(#[from] AppendError),
}

impl OpenError {
    /// Whether an assertion stopped the store: nothing is wrong with the rest of the node.
    pub fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped { .. } | Self::Append(AppendError::Stopped { .. }))
    }

    /// Whether a shard was not opened because the device does not do what is asked of it. The store has
    /// [failed](crate::Store::failed) then, with all of its shards: nothing of it is read or acknowledged in this life.
    pub fn is_of_device(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::NoSegment { .. } | Self::Append(AppendError::Failed { .. }))
    }
}

/// Why an entry was not queued, or will never be durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// New blocks are refused when nine tenths of what is usable lives; anything, when nothing can be cleaned any more.
    #[error(
        "no space: {live_bytes} of {usable_bytes} usable bytes are in use: delete or discard data, or add a device"
    )]
    NoSpace {
        /// Bytes of blocks that are the last written of their place.
        live_bytes: u64,
        /// Bytes that can be used.
        usable_bytes: u64,
    },
    /// No segment is free for it now; the cleaner makes some. Not queued: to be tried again after
    /// [`Shard::room`](crate::Shard::room).
    #[error("no segment is free before more is cleaned")]
    Busy,
    /// No log may hold it: what another member said is too long, or cannot be. Not queued.
    #[error("group {group}: an entry that no log may hold: {error}")]
    Invalid {
        /// The group.
        group: GroupId,
        /// What is wrong with it.
        error: FormatError,
    },
    /// The device failed; it takes nothing more until the store is opened again.
    #[error("the device has failed: {reason}")]
    Failed {
        /// The first failure.
        reason: Arc<str>,
    },
    /// An assertion failed: what is in memory cannot be trusted, and nothing of the store is used until it is opened
    /// again.
    #[error("the store has stopped: {reason}")]
    Stopped {
        /// Where it failed, and what it says.
        reason: Arc<str>,
    },
    /// The shard was closed.
    #[error("the shard is closed")]
    Closed,
}

/// Why blocks could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// What the device returned, twice, is not what was written.
    #[error("layer {layer} chunk {chunk} block {block}: checksum {found:08x} where {expected:08x} was written, segment {} byte {offset_bytes} of the device", segment.0)]
    Checksum {
        /// The layer.
        layer: LayerId,
        /// The chunk.
        chunk: ChunkId,
        /// The block of the chunk.
        block: u32,
        /// The segment it lies in.
        segment: SegmentIndex,
        /// Where on the device, in bytes.
        offset_bytes: u64,
        /// The sum in the index.
        expected: u32,
        /// The sum of what was read.
        found: u32,
    },
    /// The device could not read, twice.
    #[error("layer {layer} chunk {chunk} block {block}: reading {len_bytes} bytes at byte {offset_bytes} of the device (segment {}) failed: {message}", segment.0)]
    Io {
        /// The layer.
        layer: LayerId,
        /// The chunk.
        chunk: ChunkId,
        /// The first block of the chunk that was asked for.
        block: u32,
        /// The segment.
        segment: SegmentIndex,
        /// Where on the device, in bytes.
        offset_bytes: u64,
        /// How many.
        len_bytes: usize,
        /// What the system says.
        message: Arc<str>,
    },
    /// The index of this chunk was on a damaged part of the device: what is stored of it is not known.
    #[error("layer {layer} chunk {chunk}: the part of the index that says where it is stored is damaged")]
    IndexLost {
        /// The layer.
        layer: LayerId,
        /// The chunk.
        chunk: ChunkId,
    },
    /// A prepared entry is not in the log as it was written, or could not be read, twice.
    #[error("group {group} entry {seq}: reading it at byte {offset_bytes} of the device (segment {}) failed: {message}", segment.0)]
    Prepared {
        /// The group.
        group: GroupId,
        /// Its place in the group's order.
        seq: Seq,
        /// The segment of its record.
        segment: SegmentIndex,
        /// Where the record begins on the device, in bytes.
        offset_bytes: u64,
        /// What is wrong with it.
        message: Arc<str>,
    },
    /// What the group holds of this chunk is being received from another member, or was when that was broken off.
    #[error("layer {layer} chunk {chunk}: it was not received whole from another member of its group")]
    Untrusted {
        /// The layer.
        layer: LayerId,
        /// The chunk.
        chunk: ChunkId,
    },
    /// The store serves nothing any more: what is stored may be well.
    #[error("{reason}")]
    Stopped {
        /// Why.
        reason: Arc<str>,
    },
    /// Stored in a form that only the floors above can read.
    #[error("layer {layer} chunk {chunk} block {block} is stored compressed: this build cannot read it")]
    Codec {
        /// The layer.
        layer: LayerId,
        /// The chunk.
        chunk: ChunkId,
        /// The block of the chunk.
        block: u32,
    },
}

impl ReadError {
    /// The leaf of which something is not what was written, or not all there.
    pub fn leaf(&self) -> Option<(LayerId, ChunkId)> {
        match *self {
            Self::Checksum { layer, chunk, .. }
            | Self::Io { layer, chunk, .. }
            | Self::IndexLost { layer, chunk }
            | Self::Untrusted { layer, chunk } => Some((layer, chunk)),
            Self::Prepared { .. } | Self::Stopped { .. } | Self::Codec { .. } => None,
        }
    }
}

/// What of a device, or of a volume, a failed read was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPlace {
    Device { offset_bytes: u64 },
    Chunk(LayerId, ChunkId),
    Nowhere,
}

impl ReadError {
    pub(crate) fn place(&self) -> ReadPlace {
        match *self {
            Self::Checksum { offset_bytes, .. }
            | Self::Io { offset_bytes, .. }
            | Self::Prepared { offset_bytes, .. } => ReadPlace::Device { offset_bytes },
            Self::IndexLost { layer, chunk } | Self::Untrusted { layer, chunk } | Self::Codec { layer, chunk, .. } => {
                ReadPlace::Chunk(layer, chunk)
            }
            Self::Stopped { .. } => ReadPlace::Nowhere,
        }
    }

    /// The layer that was read; `None` where it is not about one.
    pub fn layer(&self) -> Option<LayerId> {
        match *self {
            Self::Checksum { layer, .. }
            | Self::Io { layer, .. }
            | Self::IndexLost { layer, .. }
            | Self::Untrusted { layer, .. }
            | Self::Codec { layer, .. } => Some(layer),
            Self::Prepared { .. } | Self::Stopped { .. } => None,
        }
    }
}

/// Something that was durable and is not there, or not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A superblock slot is not good. The others serve; it is written anew at opening.
    #[error("superblock slot at byte {offset_bytes}: {error}")]
    Superblock {
        /// Where.
        offset_bytes: u64,
        /// What is wrong with it.
        error: FormatError,
    },
    /// A segment's header is not good: the segment is left alone, neither replayed nor used again.
    #[error("segment {} at byte {offset_bytes}: {error}", segment.0)]
    SegmentHeader {
        /// The segment.
        segment: SegmentIndex,
        /// Where it begins.
        offset_bytes: u64,
        /// What is wrong with it.
        error: FormatError,
    },
    /// Records that had been durable are missing or not as they were written.
    #[error("shard {shard}: records {}–{} are damaged; they belong into segment {} behind offset {offset_bytes}", records.first.0, records.last.0, segment.0)]
    Records {
        /// The shard.
        shard: ShardIndex,
        /// Their sequences.
        records: SeqRange,
        /// The segment where the first of them was looked for.
        segment: SegmentIndex,
        /// From where in it, in bytes.
        offset_bytes: u32,
    },
    /// A part of the log could not be read, so nobody knows whether records are there.
    #[error("shard {shard}: segment {} offset {offset_bytes} cannot be read: {message}", segment.0)]
    Unreadable {
        /// The shard.
        shard: ShardIndex,
        /// The segment.
        segment: SegmentIndex,
        /// From where in it, in bytes.
        offset_bytes: u32,
        /// What the system says.
        message: Arc<str>,
    },
    /// The place where replay should begin is not there.
    #[error("shard {shard}: replay should begin at record {} in segment {} of generation {}, which is not there", record.0, segment.0, generation.0)]
    ReplayStart {
        /// The shard.
        shard: ShardIndex,
        /// The record.
        record: RecordSeq,
        /// Its segment.
        segment: SegmentIndex,
        /// Its generation.
        generation: Generation,
    },
    /// Parts of the last checkpoint pass are missing.
    #[error("shard {shard}: the last checkpoint pass lacks {leaves} leaves and {others} other parts")]
    Pass {
        /// The shard.
        shard: ShardIndex,
        /// Leaves not found.
        leaves: u64,
        /// Group states, layers, merges and segment tables not found.
        others: u64,
    },
    /// A leaf of the last pass is not as it was written: reads of its chunk are refused.
    #[error("shard {shard}: the leaf of layer {layer} chunk {chunk} in record {} (segment {}, offset {offset_bytes}) is damaged", record.0, segment.0)]
    Leaf {
        /// The shard.
        shard: ShardIndex,
        /// The record it is in.
        record: RecordSeq,
        /// The record's segment.
        segment: SegmentIndex,
        /// Where the record begins in it, in bytes.
        offset_bytes: u32,
        /// The layer.
        layer: LayerId,
        /// The chunk.
        chunk: ChunkId,
    },
    /// Bytes that fill a record up are not zero. Nothing lay there: what was lost is only the proof that nobody else
    /// wrote over it.
    #[error("shard {shard}: the zeroes behind record {} (segment {}, offset {offset_bytes}) are not zero (harmless)", record.0, segment.0)]
    Padding {
        /// The shard.
        shard: ShardIndex,
        /// The record.
        record: RecordSeq,
        /// Its segment.
        segment: SegmentIndex,
        /// Where it begins in it, in bytes.
        offset_bytes: u32,
    },
    /// Entries of a group that were committed are missing.
    #[error("shard {shard}: group {group} lacks committed entries")]
    GroupEntries {
        /// The shard.
        shard: ShardIndex,
        /// The group.
        group: GroupId,
    },
}

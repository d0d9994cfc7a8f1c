//! What a shard counts: on one core, so without lock or atomic.

use super::ShardCore;

/// What a shard has done since it was opened, and how large it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Entries queued.
    pub entries: u64,
    /// Records written, those of the store's own too.
    pub appends: u64,
    /// Bytes written to the log: records and segment headers.
    pub appended_bytes: u64,
    /// Of these, bytes of checkpoint records.
    pub checkpoint_bytes: u64,
    /// Appends that the device refused.
    pub append_failures: u64,
    /// How often an entry had to wait for the cleaner, or again.
    pub throttled: u64,
    /// Syncs asked of the device.
    pub syncs: u64,
    /// Calls of read.
    pub reads: u64,
    /// Reads asked of the device.
    pub device_reads: u64,
    /// Bytes of these.
    pub device_read_bytes: u64,
    /// Reads asked a second time.
    pub read_retries: u64,
    /// Blocks whose checksum differed, also the second time.
    pub checksum_errors: u64,
    /// Checkpoint passes completed.
    pub passes: u64,
    /// Segments given back.
    pub segments_freed: u64,
    /// Segments whose live blocks were copied elsewhere.
    pub segments_cleaned: u64,
    /// Bytes of blocks copied.
    pub moved_bytes: u64,
    /// Prepared entries that were written again, so that the segments before them could be given back.
    pub carried: u64,
    /// Segments that could not be emptied, for something in them is damaged.
    pub cleaning_errors: u64,
    /// Leaves of the index.
    pub index_leaves: u64,
    /// Memory of the index.
    pub index_bytes: u64,
    /// Bytes of the blocks that the index names, as they are stored.
    pub live_bytes: u64,
}

impl ShardCore {
    pub(crate) fn statistics(&self) -> Statistics {
        let state = self.state.borrow();
        Statistics {
            index_leaves: state.index.leaf_count() as u64,
            index_bytes: state.index.memory_bytes() as u64,
            live_bytes: state.segments.live_bytes(),
            ..*self.counters.borrow()
        }
    }
}

//! What a shard counts. Cells: one core, no lock, no atomic.

use super::ShardCore;
use std::cell::Cell;

/// One number that only rises.
#[derive(Default)]
pub(crate) struct Counter(Cell<u64>);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.set(self.0.get() + count);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// See [`Statistics`].
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) entries: Counter,
    pub(crate) appends: Counter,
    pub(crate) appended_bytes: Counter,
    pub(crate) checkpoint_bytes: Counter,
    pub(crate) append_failures: Counter,
    pub(crate) throttled: Counter,
    pub(crate) syncs: Counter,
    pub(crate) reads: Counter,
    pub(crate) device_reads: Counter,
    pub(crate) device_read_bytes: Counter,
    pub(crate) read_retries: Counter,
    pub(crate) checksum_errors: Counter,
    pub(crate) passes: Counter,
    pub(crate) segments_freed: Counter,
    pub(crate) segments_cleaned: Counter,
    pub(crate) moved_bytes: Counter,
    pub(crate) cleaning_errors: Counter,
}

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
        let counters = &self.counters;
        let state = self.state.borrow();
        Statistics {
            entries: counters.entries.get(),
            appends: counters.appends.get(),
            appended_bytes: counters.appended_bytes.get(),
            checkpoint_bytes: counters.checkpoint_bytes.get(),
            append_failures: counters.append_failures.get(),
            throttled: counters.throttled.get(),
            syncs: counters.syncs.get(),
            reads: counters.reads.get(),
            device_reads: counters.device_reads.get(),
            device_read_bytes: counters.device_read_bytes.get(),
            read_retries: counters.read_retries.get(),
            checksum_errors: counters.checksum_errors.get(),
            passes: counters.passes.get(),
            segments_freed: counters.segments_freed.get(),
            segments_cleaned: counters.segments_cleaned.get(),
            moved_bytes: counters.moved_bytes.get(),
            cleaning_errors: counters.cleaning_errors.get(),
            index_leaves: state.index.leaf_count() as u64,
            index_bytes: state.index.memory_bytes() as u64,
            live_bytes: state.segments.live_bytes(),
        }
    }
}

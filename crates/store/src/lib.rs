//! One device: log, index, checkpoint, recovery

mod create;
mod entry;
mod error;
pub mod format;
pub mod index;
mod open;
mod parallel;
mod pool;
mod shard;
mod space;
mod store;
mod superblock;

pub use create::{FormatOptions, format, identify};
pub use entry::{Entry, EntryKind, LogPosition, MAX_ENTRY_BLOCKS, MAX_GROUP_RECORD_BYTES};
pub use error::{AppendError, Damage, OpenError, ReadError, StoreError};
pub use open::{GroupRecovery, Recovery, RecoveryCounters};
pub use shard::{Shard, Statistics, ZERO_BLOCK_CHECKSUM};
pub use store::{Store, Usage};

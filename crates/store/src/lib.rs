//! # store: one device
//!
//! Log-structured: everything is appended, an index in memory says where each block is, and no metadata is read or
//! written on the way of a block. A device has a few **shards**, each on one core with a log, an index and groups of
//! its own; they share the free segments and the superblock.
//!
//! One append:
//!
//! ```text
//!  prepare(entry) ──▶ entry encoded, ──┐   what comes in one turn of the loop, or while two
//!  prepare(entry) ──▶ block copied     ├─▶ appends are under way, is one record: one write
//!  prepare(entry) ──▶ and summed    ───┘         │
//!        │                                       ▼ then one sync, if the device needs it
//!        ▼                              ┌──────────────────────────┐
//!  LogPosition ◀── durable_changed ─────│ header │ entries │ blocks │ ──▶ segment of the log
//!        │                              └──────────────────────────┘
//!        └─▶ commit(group, seq) ──▶ index: (layer, chunk) → place, length, checksum of each block ──▶ read
//! ```
//!
//! One opening:
//!
//! ```text
//!  superblock: last complete pass, replay start R
//!        ▼
//!  log ─┬── R ──────────┬──────────────────────────┬──────────┬─ ─ ─ ─┬───────────────┐
//!       │ entries       │ pass: leaves, groups …   │ entries  │ ✗   n │ opening, n + 1│ …
//!       └───────────────┴──────────────────────────┴──────────┴─ ─ ─ ─┴───────────────┘
//!         a leaf replaces the index's; an entry waits until      missing above every
//!         a later one says that it is committed, and is          durable_through: a hole,
//!         applied unless the leaf has it                         accepted for ever; else damage
//! ```
//!
//! **Promises.** Durable is what [`Shard::durable_through`] says, in the order of the calls, and it is true on the
//! device before it is said. An entry is all there or not at all, through any crash. A block read is the one last
//! committed, proved by a checksum that lies elsewhere, or an error. What was durable and is not there is told as
//! [`Damage`], never taken for something that never happened; and what never was durable is never called damage.
//! Nothing panics on what is on the device; an assertion that fails all the same stops this store alone. After warm-up
//! a write and a read allocate nothing.
//!
//! **Never.** No order between groups, no replication, no decision on what is committed: that is the caller's.
//!
//! Rooms: [`format`](mod@format) (every byte), [`index`], `create` and `store` (the device-wide part), `shard` (append,
//! commit, read, passes, cleaning, layers, what a member sends to another and receives), `ordered` (entries outside a
//! record, on their way to another member), `open` (scan, replay, judgement), [`check`] (the same and all the rest, for
//! who only looks), `pool` and `space` (who may take which segment).
//!
//! Main types: [`Store`], [`Shard`], [`Entry`], [`Recovery`].

pub mod check;
mod create;
mod entry;
mod error;
pub mod format;
pub mod index;
mod known;
mod open;
mod ordered;
mod parallel;
mod pool;
mod shard;
mod space;
mod store;
mod superblock;
mod synthetic;

pub use create::{FormatOptions, UNCLAIMED, claim, erase, format, identify};
pub use entry::{
    AppendTimes, BlockCoding, Entry, EntryKind, LogPosition, MAX_ENTRY_BLOCKS, MAX_ENTRY_CHUNKS,
    MAX_GROUP_RECORD_BYTES, MAX_MEMBER_STATE_BYTES, MAX_SKIP_BYTES, MAX_SKIP_EPOCHS,
};
pub use error::{AppendError, Damage, OpenError, ReadError, StoreError};
pub use index::LayerUsage;
pub use known::{Known, known};
pub use open::{GroupRecovery, Recovered, Recovery, RecoveryCounters};
pub use ordered::{OrderedBytes, OrderedEntries, OrderedError, encode_ordered, ordered_bytes};
pub use shard::{
    APPEND_SLOW, Asked, Committed, Content, DAMAGE_LISTED_MAX, DEVICE_SILENT, ImageBlock, KnownBlock, LeafCursor,
    LeafImage, Shard, Slow, Statistics, StoredBlocks, Trouble, Want, ZERO_BLOCK_CHECKSUM,
};
pub use store::{Store, Usage};
pub use synthetic::{SyntheticLayout, write_synthetic_pass};

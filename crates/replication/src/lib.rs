//! # replication: a placement group
//!
//! Order, prepare, commit. A group gives every entry its (epoch, seq), hands it to every in-sync member, commits it
//! when all of them have it durable, and only then answers.
//!
//! ```text
//!   volume ──► Group ── (epoch, seq) ──► member: Shard::prepare … durable
//!                │                          │
//!                └── commit number ◄────────┘   the least of what all in-sync members have prepared: a prefix
//!                └── Shard::commit: the index, and so every read, sees it from here on
//! ```
//!
//! **Promises.** No (epoch, seq) is ever used twice: a start is a new epoch, taken by compare-and-swap before the first
//! entry. Commits are a prefix of the order, whatever becomes durable first. With fewer members in sync than
//! `min_in_sync` nothing is committed. A head that was followed by another is refused.
//!
//! **Never.** A group knows nothing of hosts and commands: what overlaps is ordered above, what is stored is the
//! store's matter.
//!
//! Main types: [`Group`] (write, read, commit), [`GroupShard`] (all groups of one shard, and the task that commits). For
//! groups of several members: [`protocol`] decides, [`wire`] is what members send to each other; neither does I/O.

mod access;
mod changes;
mod error;
mod fill;
mod force;
mod group;
mod layers;
mod left;
mod lengths;
pub mod node;
pub mod obituary;
mod outside;
mod pace;
pub mod protocol;
mod recent;
mod record;
mod scrub;
mod shard;
mod window;
pub mod wire;

pub use access::{Access, Blocks, Found, OnItsWay};
pub use error::{GroupError, StartError};
pub use fill::Owner;
pub use group::{Group, GroupRef, Place, Placed, Reader, Sought, Stamp, Standing};
pub use layers::LayerEnd;
pub use lengths::{CoreLengths, GroupLengths, PREPARED_BYTES_MAX, PREPARED_ENTRIES_MAX, ShardLengths};
pub use record::newest_record;
pub use scrub::HeldLeaf;
pub use shard::GroupShard;
pub use wire::Piece;

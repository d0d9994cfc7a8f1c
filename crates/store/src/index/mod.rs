//! # The index: where each block is
//!
//! In memory, whole, one per shard. A [`Leaf`] per (layer, chunk) says for each of its 256 blocks where it is stored
//! and what its sum must be. The keys know nothing of groups; a leaf's `last_seq` is the only trace of one.
//!
//! ```text
//!  (layer, chunk) ──hash──▶ slot number ──▶ slots, in pages that never move ──▶ Leaf ──▶ packed body
//!                                            ▲
//!                        a checkpoint pass walks slot numbers: 0, 1, 2 …
//! ```
//!
//! **Promises.** Leaves are looked up, never pointed into: nothing outside holds a reference between two calls, so that
//! a leaf may be absent from memory one day. No call takes time in the number of leaves, but those that say so. What an
//! update displaces is told to the caller, block by block, so that live bytes per segment can be counted. Equal
//! contents have equal digests, whatever order they came in.
//!
//! **Never.** No I/O. No judgement of what is committed: that is the engine's, which calls in order.
//!
//! **Memory.** Random 4 KiB blocks: 9 bytes a block in a dense leaf, 40 bytes a slot and ~10 in the tables: below
//! 2.4 GiB per TiB. Sequential data: 4 bytes a block.

mod extent;
mod leaf;
mod table;
#[cfg(test)]
mod tests;

pub use extent::{Extent, ExtentKind, extents};
pub use leaf::Leaf;
pub use table::{Index, LayerUsage};

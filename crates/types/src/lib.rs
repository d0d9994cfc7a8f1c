//! # types: the words
//!
//! The field's words as types, shared by every floor: ids are newtypes so that a group's number is
//! never taken for a chunk's, and a length in blocks is never taken for one in bytes.
//!
//! ```text
//!   volume (VolumeId, VolumeEpoch) ── layers (LayerId, one FamilyId) ── chunks (ChunkId, 1 MiB) ── blocks (4 KiB)
//!                                                                          │ slot (of 65,536)
//!                                                                     group (GroupId): Epoch, Seq
//!                                                                          │
//!                                                                     store (StoreId), ShardIndex, Incarnation
//! ```
//!
//! **Promises.** A number of one kind is never taken for one of another without being unwrapped in plain sight. A
//! [`BlockRange`] lies within its chunk.
//!
//! **Never.** This crate does nothing: no I/O, no allocation, no dependency. It stands below all others. The one thing
//! with an effect is [`mutant`], and only in builds for the checkers.

mod ids;
mod mutant;
mod range;
mod term;

pub use ids::*;
pub use mutant::{Mutant, mutant};
pub use range::{BLOCK_BYTES, BLOCKS_PER_CHUNK, BlockRange, CHUNK_BYTES};
pub use term::Term;

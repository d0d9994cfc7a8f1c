//! # The words
//!
//! The field's words as types, shared by every floor: ids are newtypes so that a group's number is
//! never taken for a chunk's, and a length in blocks is never taken for one in bytes.
//!
//! This crate does nothing: no I/O, no allocation, no dependency. It stands below all others.

mod ids;
mod mutant;
mod range;

pub use ids::*;
pub use mutant::{Mutant, mutant};
pub use range::{BLOCK_BYTES, BLOCKS_PER_CHUNK, BlockRange, CHUNK_BYTES};

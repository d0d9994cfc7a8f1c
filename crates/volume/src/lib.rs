//! # volume: the head of a volume
//!
//! Byte range → chunks → slots → groups; admission; partial blocks; layers. The front doors (`nvme`, `nbd`) know this
//! floor only: a [`Directory`] of [`Volume`]s.

mod api;

pub use api::*;

//! # cluster: the map
//!
//! Small, slow-changing state in a store with compare-and-swap, watches and leases, and the decisions made on it.
//!
//! ```text
//!   records   what the map says: cluster, nodes, devices, pools, slot tables, groups, volumes, layers
//!   catalog   decisions as transactions: make a cluster, create and delete a volume, take a head, begin an epoch
//!   slots     chunk → slot → group
//!   placement who holds what, as pure functions: members, moves, node sets, nodes and devices that come and go
//!   control   one node at a time that sees to it that this is done
//!   health    what is wrong, what is at risk, what is being done and when it ends: a pure function of the records
//!   copied    what nodes hold of the map in copies of their own, and the map that waits for them
//!   map       the MapStore trait ── redb_map (one process), etcd_map (etcd), sim_map (simulated clusters)
//! ```
//!
//! **Promises.** Every decision is one compare-and-swap or is safe to do again. One whose answer was lost is sent again
//! until it is known to be done or never to be: what was told as failed does not happen later. Ids are never reused.
//! What comes from outside (names, sizes) is validated here, before it is in the map.
//!
//! **Never.** Nothing here is on the path of a read or a write: I/O goes on while the map is unreachable.
//!
//! Main types: [`MapStore`], the records ([`VolumeRecord`], [`GroupRecord`], …), [`SlotTable`].

mod archive;
mod catalog;
pub mod control;
mod copied;
mod etcd_map;
pub mod health;
mod map;
mod map_copy;
mod names;
pub mod placement;
mod rebuild;
mod records;
mod redb_map;
mod sim_map;
mod slots;
mod state;
mod typed;

pub use archive::{Archive, ImportError};
pub use catalog::*;
pub use copied::{CopiedMap, Copies, CopyTrouble, Held, Question, Tally};
pub use etcd_map::{EtcdMap, EtcdOptions};
pub use map::*;
pub use map_copy::{CopyFormat, copy_of, is_in_copies};
pub use names::*;
pub use rebuild::{Gathered, LayerKnown, Losses, RebuildError, Rebuilt, StoreKnows, rebuild};
pub use records::*;
pub use redb_map::RedbMap;
pub use sim_map::{MapBackup, MapCounts, MapFaults, SimMap};
pub use slots::{SLOTS, SlotRun, SlotTable, TableError, slot_of};
pub use typed::{Versioned, decode, encode, get, get_each, go_on, list};

//! # faults: a cluster of processes under load, hurt, and judged
//!
//! ```text
//!   scenario ── kill, pause, fill, cut ──▶ cluster (`cairn demo --processes`: etcd, nodes)
//!      │                                      ▲
//!      └─ hang guard ◀── load: a multipath NVMe/TCP host to all nodes, an NBD client to one that is not hurt
//!                          │
//!                       history ── judge (`torture`) ── verdict
//! ```
//!
//! - [`load`]: that of `torture`: writes, parts of blocks, several blocks, zeroes, discards and reads; every attempt is an operation of the history.
//! - [`cluster`]: the processes, what they say of themselves, and how they are hurt.
//! - [`faulty`]: a device that fails: errors, no answers, slow ones, not there.
//! - [`medium`]: what a node's files lie on, where that is to have no room.
//! - [`network`]: nodes in networks of their own, that can be cut off.
//! - [`scenario`]: one fault each, with what has to be seen of it.
//! - `devices`: scenarios of a device that fails while its node serves.
//! - `moves`: scenarios in which copies move because somebody said so.
//! - [`pairs`]: two failures at once.
//! - `told`: what a status that is not green must say.
//! - [`outside`]: the load alone, on a cluster that a script runs and hurts.
//! - [`failover`]: how long a host waits when a node fails, round after round: figures for docs/performance.md.
//!
//! **Promises.** What was acknowledged and is not read fails the scenario, as does a read that no order of operations explains, a
//! request that has no answer for 30 s, and a status that is not green and does not say why.
//!
//! **Never.** Nothing of the cluster's insides is believed: histories are judged by what clients were told. Only processes that
//! a scenario started are hurt.

pub mod cluster;
mod devices;
pub mod failover;
pub mod faulty;
pub mod load;
pub mod medium;
mod moves;
pub mod network;
mod outage;
pub mod outside;
pub mod pairs;
mod probe;
pub mod scenario;
mod told;

//! Tests that share a process: one binary of them is built and linked, in place of one each.

#[path = "../common/mod.rs"]
mod common;

mod append_and_read;
mod check;
mod check_agrees;
mod cleaning;
mod coded;
mod crash;
mod digests;
mod faults;
mod installs;
mod layers;
mod lost;
mod prepared;
mod reader;
mod rot;
mod skips;
mod space;
mod tombstones;
mod unwritable;

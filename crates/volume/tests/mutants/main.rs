//! Deliberate bugs of volumes: the test that is made for each notices. A process of its own: a bug is on for all of it.
#![cfg(feature = "mutants")]

#[path = "../common/mod.rs"]
mod common;
mod heads;
mod instant;
mod limits;
mod locks;
mod programs;
mod status;
mod stopped;

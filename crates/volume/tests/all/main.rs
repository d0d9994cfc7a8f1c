//! Tests that share a process: one binary of them is built and linked, in place of one each.

#[path = "../common/mod.rs"]
mod common;

mod damage;
mod encryption;
mod failing_map;
mod full;
mod growth;
mod hanging_commands;
mod heads;
mod lifecycle;
mod limits;
mod locks;
mod missing_store;
mod model;
mod rename;
mod session;
mod snapshots;
mod status;
mod together;
mod trash;
mod troubles;
mod zeroes;

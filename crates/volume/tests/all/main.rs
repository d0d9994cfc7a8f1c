//! Tests that share a process: one binary of them is built and linked, in place of one each.

#[path = "../common/mod.rs"]
mod common;

mod check;
mod damage;
mod duties;
mod encryption;
mod failing_map;
mod first_connect;
mod forwards;
mod full;
mod growth;
mod hanging_commands;
mod heads;
mod instants;
mod lifecycle;
mod limits;
mod locks;
mod missing_store;
mod model;
mod moves;
mod placement;
mod programs;
mod relocating;
mod rename;
mod session;
mod snapshots;
mod status;
mod stopped;
mod together;
mod trash;
mod troubles;
mod unwritable;
mod zeroes;

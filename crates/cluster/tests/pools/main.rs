//! Pools come whole or not at all, wherever who makes them is cut off; volumes get the table that they are to have.

mod creation;
mod map;
mod volumes;

/// A bug is on for the whole process.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

//! Tests that share a process: one binary of them is built and linked, in place of one each.

#[path = "../support/mod.rs"]
mod support;

mod changes;
mod contract;
mod device;
mod encryption;
mod hosts;

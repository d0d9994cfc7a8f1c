//! The target's machine through its public surface: bytes in memory, no socket, no clock.
//!
//! Each test names the behaviour it protects. `harness` is a target with volumes of plain memory; every exchange is
//! also run with the stream cut into single bytes.

mod admin;
mod connect;
mod ending;
mod errors;
mod fused;
mod harness;
mod io;

//! # nbd: a front door that speaks the NBD protocol
//!
//! Volumes as NBD exports: fixed newstyle negotiation, structured replies, flush, FUA, trim, write-zeroes, several
//! connections per client. Source of every rule here: `doc/proto.md` of the NetworkBlockDevice project.
//!
//! ```text
//!   TcpStream ──bytes──▶ machine ──requests──▶ volume::Volume
//!       ▲                (pure)                     │
//!       └────replies──── outbox ◀─────results───────┘
//! ```
//!
//! - [`wire`]: every structure of the protocol, encode and decode side by side.
//! - [`machine`]: the server's side of one connection as a pure machine: bytes in, requests out; results in, bytes out.
//! - [`serve`]: connections on the runtime, dealt to cores; limits, ghosts, one send per turn.
//! - [`client`]: a pipelining client, for tests and benchmarks.
//!
//! **Promises.** Nothing that a client sends can make the machine panic, read out of bounds or take more memory than
//! its limits say. A command is executed only if its connection was known to be alive within the last
//! [`serve::ALIVE_FOR`]. A write that was answered is durable, with or without FUA.
//!
//! **Never.** It knows nothing of chunks, groups or the cluster; it keeps no data; it does not retry.

pub mod client;
pub mod fuzz;
pub mod machine;
mod outbox;
pub mod serve;
pub mod wire;

pub use serve::{ConnectionCount, Worker, WorkerHandle, serve, worker};

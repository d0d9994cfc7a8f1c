//! The target on the runtime, with real volumes behind it: our own host over the simulated network, with faults, and
//! over real sockets.

mod aborts;
mod access;
mod endings;
mod ghost_write;
mod ghosts;
mod good;
mod greedy;
mod host;
mod hostile;
mod latency;
mod limits;
mod logs;
mod multipath;
mod node;
mod raw;
mod sockets;

//! NVMe/TCP: wire, target, host
pub mod host;
pub mod limits;
pub mod target;
pub mod wire;

//! NVMe/TCP: wire, target, host
pub mod limits;
pub mod target;
pub mod wire;

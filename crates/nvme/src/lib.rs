//! NVMe/TCP: wire, target, host
pub mod wire;

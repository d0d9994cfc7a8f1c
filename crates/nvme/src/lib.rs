//! NVMe/TCP: wire, target, host

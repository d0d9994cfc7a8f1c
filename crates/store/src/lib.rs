//! One device: log, index, checkpoint, recovery

pub mod format;
pub mod index;

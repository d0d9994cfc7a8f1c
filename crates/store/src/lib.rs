//! One device: log, index, checkpoint, recovery

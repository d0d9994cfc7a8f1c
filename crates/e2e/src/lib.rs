//! Real clients against the real binary

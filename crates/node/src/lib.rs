//! The daemon: wires all floors; admin API

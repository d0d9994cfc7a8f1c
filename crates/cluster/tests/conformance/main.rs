//! One suite for every store of the map: what the floors above rely on, whoever keeps it. And what is a backend's own:
//! redb's file, and the vices of the simulated map.
//!
//! A backend that comes later gets a file beside these and runs [`suite::run`].

mod certificates;
mod etcd;
mod redb;
mod simulated;
mod suite;
mod vices;

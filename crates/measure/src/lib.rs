//! # measure: block storage, measured the way the field does
//!
//! Generates jobs for fio, which is the load generator of record, runs them against any block storage, and keeps what came of
//! it together with the setting it came of. Runs whose settings differ are not compared.
//!
//! ```text
//!   profile   what is measured: cases of pattern, block size, depth, jobs
//!   target    what it is measured against, and which engine of fio reaches it
//!   device    what a path's bytes lie on, as sysfs tells
//!   fio       the job, the run, the result as it says it
//!   machine   what the machine spent meanwhile: CPU, memory, device and network bytes
//!   run       fill, warm up, measure, repeat; contestants in turn
//!   setting   what must be alike for two runs to be compared
//!   ladder    what each of several layers adds to the one below
//!   generator a load of our own, by NVMe/TCP or NBD, as fio makes one
//!   host      a host with several paths, for what fio cannot reach; series: what it saw of a failure
//!   record    what is kept (docs/bench.md has the schema); table, csv and report draw it
//!   published the field's published figures: context, never opponents
//! ```
//!
//! It knows nothing of Cairn but its NVMe/TCP host and its NBD client: who serves the blocks is asked by its callers.

pub mod charts;
pub mod compare;
pub mod device;
pub mod fio;
pub mod generator;
pub mod host;
pub mod ladder;
pub mod machine;
pub mod ping_pong;
pub mod profile;
pub mod published;
pub mod record;
pub mod report;
pub mod run;
pub mod series;
pub mod setting;
pub mod table;
pub mod target;

/// What went wrong, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// fio is not there, or not as it must be.
    #[error("{0}")]
    Fio(String),
    /// A target cannot be measured.
    #[error("{0}")]
    Target(String),
    /// Runs that are not alike.
    #[error("{0}")]
    Unlike(String),
    /// A file of results.
    #[error("{path}: {why}")]
    Record {
        /// The file.
        path: String,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// The machine does not tell what it must.
    #[error("cannot read {0}: is /proc mounted?")]
    Machine(String),
}

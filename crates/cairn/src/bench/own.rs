//! What is common to profiles that set up by themselves what they measure.

use clap::Args;
use node::size::ByteSize;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub(crate) struct OwnArguments {
    /// Where files of the devices lie: /dev/shm is memory, a path on a disk that disk [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Directory for the results
    #[arg(long, default_value = super::DIRECTORY, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Shorten times and sizes: shows that it works, not how fast it is
    #[arg(long)]
    pub(crate) quick: bool,
    /// Times each case is measured [default: 3; quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) repeats: Option<u8>,
    /// Seconds that each is measured; of `failure`: before the fault, and after all is whole [default: 10; quick: 0.4, `failure` 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: Option<u32>,
    /// Bytes of each volume, written once before [default: layers 256M, failure 128M, others 512M; quick: 16M]
    #[arg(long)]
    pub(crate) size: Option<ByteSize>,
    /// I/Os per second that each case offers, all jobs together; not of `failure` [default: as many as there can be]
    #[arg(long, value_name = "IOPS", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) rate: Option<u64>,
    /// Engine for the device's file
    #[arg(long, default_value = crate::bench_target::DEFAULT_ENGINE, value_parser = ["libaio", "io_uring"])]
    pub(crate) engine: String,
    /// The load generator
    #[arg(long, default_value = "fio", value_name = "PROGRAM")]
    pub(crate) fio: PathBuf,
}

impl OwnArguments {
    /// Where files lie.
    pub(super) fn place(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }
}

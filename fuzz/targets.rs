//! What is fuzzed: one row per target. `fuzz/main.rs` runs one of them for as long as one likes, and a test of the
//! simulator's crate runs all of them over `fuzz/corpus/NAME`, with the compiler of the house.

/// Name of a target, as of its corpus, and what takes its bytes. It must return, whatever they are.
type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("store-superblock", store::format::fuzz::fuzz_superblock),
    ("store-segment-header", store::format::fuzz::fuzz_segment_header),
    ("store-record", store::format::fuzz::fuzz_record),
    ("store-leaf", store::format::fuzz::fuzz_leaf),
    ("store-geometry", store::format::fuzz::fuzz_geometry),
    ("replication-frames", replication::wire::fuzz::frames),
    ("volume-forwards", volume::fuzz_forwards),
    ("nvme-structures", nvme::wire::fuzz::structures),
    ("nvme-stream", nvme::wire::fuzz::stream),
    ("nvme-connection", nvme::machine::fuzz::connection),
    ("nvme-stranger", nvme::machine::fuzz::stranger),
    ("nvme-waiting", nvme::machine::fuzz::waiting),
    ("nbd-wire", nbd::fuzz::wire),
    ("nbd-machine", nbd::fuzz::machine),
];

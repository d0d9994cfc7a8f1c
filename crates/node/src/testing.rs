//! What the unit tests of this crate share.

use cluster::{Compression, Policy, PoolRecord, PoolRulesRecord};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use types::NodeId;
use volume::PoolInfo;

/// A directory of its own, removed when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cairn-node-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A pool of one device.
pub(crate) fn pool(name: &str) -> PoolInfo {
    PoolInfo {
        record: PoolRecord {
            name: name.to_owned(),
            policy: Policy::Replicated,
            replicas: 1,
            min_in_sync: 1,
            table: 1,
            write_cache: false,
            compression: Compression::Off,
        },
        rules: PoolRulesRecord::unset(name),
        groups: 100,
        devices: 1,
        nodes: vec![NodeId(1)],
        node_sets: 0,
    }
}

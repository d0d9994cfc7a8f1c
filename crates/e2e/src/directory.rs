//! Temporary directories.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A directory that goes away with its holder.
#[derive(Debug)]
pub struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    /// A new one on a real file system: durability is asked of it.
    pub fn on_disk() -> Self {
        Self::within(&std::env::temp_dir())
    }

    /// A new one in memory, for images that are written thousands of times.
    pub fn in_memory() -> Self {
        Self::within(Path::new("/dev/shm"))
    }

    fn within(parent: &Path) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("cairn-e2e-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap_or_else(|error| panic!("can not make {}: {error}", path.display()));
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

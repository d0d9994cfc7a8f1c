//! A file system under a node's files that can be made to fail: needs root, as mounting does.

use crate::network::succeeds;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a medium is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumKind {
    /// Memory: it can be made so small that each write to a new place is an error.
    Memory,
    /// ext4 on a loop device: it can be frozen, so that writes hang, and filled.
    Disk,
}

/// One that is mounted; gone when dropped.
pub struct Medium {
    place: PathBuf,
}

/// More than all files of a node.
const SIZE: &str = "2G";
/// Of a file system that is full: less than a record of a store.
const LEFT_BYTES: u64 = 16 << 10;
/// What fills a disk.
const FILLER: &str = "filler";
/// Tries to make one smaller that is written to meanwhile.
const SHRINKS_MAX: u32 = 100;

impl Medium {
    /// Mounts one in this place, and brings there what was in it. `image`: a file that is not there, for one that needs it.
    pub fn under(kind: MediumKind, place: &Path, image: &Path) -> Self {
        let aside = place.with_extension("before");
        std::fs::rename(place, &aside).and_then(|()| std::fs::create_dir(place)).expect("a directory can be renamed");
        match kind {
            MediumKind::Memory => runs("mount", ["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs"], place),
            MediumKind::Disk => {
                runs("truncate", ["-s", SIZE], image);
                runs("mkfs.ext4", ["-q", "-F", "-m", "0"], image);
                runs("mount", [OsStr::new("-o"), OsStr::new("loop"), image.as_os_str()], place);
            }
        }
        let medium = Self { place: place.to_owned() };
        let from = aside.join(".");
        runs("cp", [OsStr::new("-a"), OsStr::new("--sparse=always"), from.as_os_str()], place);
        std::fs::remove_dir_all(&aside).expect("it was copied");
        medium
    }

    /// Of memory: from now on a write to a place where nothing is yet is an error.
    pub fn is_full(&self) {
        // It may have grown since it was looked at, and is never made smaller than it is.
        let shrunk = || {
            let size = format!("remount,size={}", self.used_bytes() + LEFT_BYTES);
            let output = Command::new("mount").args(["-o", &size]).arg(&self.place).output();
            output.expect("mount can be run").status.success()
        };
        assert!((0..SHRINKS_MAX).any(|_| shrunk()), "{} takes no smaller size", self.place.display());
    }

    /// Of memory: there is room again.
    pub fn has_room(&self) {
        runs("mount", ["-o", &format!("remount,size={SIZE}")], &self.place);
    }

    /// Of a disk: writes hang until [`thaw`](Self::thaw).
    pub fn freeze(&self) {
        runs("fsfreeze", ["--freeze"], &self.place);
    }

    /// See above.
    pub fn thaw(&self) {
        runs("fsfreeze", ["--unfreeze"], &self.place);
    }

    /// Of a disk: from now on a write to a place where nothing is yet is an error, until [`empties`](Self::empties).
    pub fn fills(&self) {
        let file = std::fs::File::create(self.place.join(FILLER)).expect("a file can be made");
        let mut length = 0;
        for step in (14..=30).rev().map(|bits| 1 << bits) {
            // SAFETY: fallocate takes numbers; the file is open.
            while unsafe { libc::fallocate(file.as_raw_fd(), 0, length, step) } == 0 {
                length += step;
            }
        }
        assert!(length > 0, "{} has no room at all", self.place.display());
    }

    /// See above.
    pub fn empties(&self) {
        std::fs::remove_file(self.place.join(FILLER)).expect("it was made");
    }

    fn used_bytes(&self) -> u64 {
        let said = Command::new("df").args(["--output=used", "-B1"]).arg(&self.place).output().expect("df can be run");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        said.lines().nth(1).and_then(|used| used.trim().parse().ok()).unwrap_or_else(|| panic!("df says {said}"))
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        // Whatever failed meanwhile; who still has it open keeps it until then.
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(&self.place).output();
        let _ = Command::new("umount").arg("--lazy").arg(&self.place).output();
    }
}

/// Runs it about this place, once.
fn runs<T: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = T>, place: &Path) {
    let mut command = Command::new(program);
    command.args(arguments).arg(place);
    succeeds(command, |_| true);
}

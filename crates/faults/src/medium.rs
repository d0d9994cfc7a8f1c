//! Memory under a node's files, which can be made so small that each write to a new place is an error: needs root, as mounting does.

use crate::network::succeeds;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One that is mounted; gone when dropped.
pub struct Medium {
    place: PathBuf,
}

/// More than all files of a node.
const SIZE: &str = "2G";
/// Of a file system that is full: less than a record of a store.
const LEFT_BYTES: u64 = 16 << 10;
/// Tries to make one smaller that is written to meanwhile.
const SHRINKS_MAX: u32 = 100;

impl Medium {
    /// Mounts one in this place, and brings there what was in it.
    pub fn under(place: &Path) -> Self {
        let aside = place.with_extension("before");
        std::fs::rename(place, &aside).and_then(|()| std::fs::create_dir(place)).expect("a directory can be renamed");
        runs("mount", ["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs"], place);
        let medium = Self { place: place.to_owned() };
        let from = aside.join(".");
        runs("cp", [OsStr::new("-a"), OsStr::new("--sparse=always"), from.as_os_str()], place);
        std::fs::remove_dir_all(&aside).expect("it was copied");
        medium
    }

    /// From now on a write to a place where nothing is yet is an error.
    pub fn is_full(&self) {
        // It may have grown since it was looked at, and is never made smaller than it is.
        let shrunk = || {
            let size = format!("remount,size={}", self.used_bytes() + LEFT_BYTES);
            let output = Command::new("mount").args(["-o", &size]).arg(&self.place).output();
            output.expect("mount can be run").status.success()
        };
        assert!((0..SHRINKS_MAX).any(|_| shrunk()), "{} takes no smaller size", self.place.display());
    }

    /// There is room again.
    pub fn has_room(&self) {
        runs("mount", ["-o", &format!("remount,size={SIZE}")], &self.place);
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
        let _ = Command::new("umount").arg("--lazy").arg(&self.place).output();
    }
}

/// Runs it about this place, once.
fn runs<T: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = T>, place: &Path) {
    let mut command = Command::new(program);
    command.args(arguments).arg(place);
    succeeds(command, |_| true);
}

/// What this process mounts from now on goes with it and what it started, however it ends. Before there is another thread. Where
/// that cannot be done, nothing can be mounted either, which is told then.
pub fn keep_mounts() {
    let (none, root) = (std::ptr::null(), c"/".as_ptr());
    // SAFETY: both take numbers and strings that outlive the call.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) == 0 {
            libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, none.cast());
        }
    }
}

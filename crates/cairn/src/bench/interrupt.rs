//! Whoever is told to end while a cluster of its own runs takes that along: by SIGINT and SIGTERM.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, Once};

/// Where the handler writes that a signal has come.
static TOLD: AtomicI32 = AtomicI32::new(-1);
static ONCE: Once = Once::new();
/// As a shell says it of what SIGINT has ended.
const EXIT_STATUS: i32 = 130;

extern "C" fn told(_signal: i32) {
    let byte = 0_u8;
    // SAFETY: write may be called in a handler; the byte is there for as long as it takes.
    unsafe { libc::write(TOLD.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
}

/// From now on these directories are removed when a signal ends this process. Processes that it has started end with it.
pub(super) fn remove_when_told(directories: &'static Mutex<Vec<PathBuf>>) {
    ONCE.call_once(|| {
        let mut ends: [RawFd; 2] = [-1; 2];
        // SAFETY: pipe2 fills two numbers, for which there is room.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return;
        }
        TOLD.store(ends[1], Ordering::Relaxed);
        std::thread::spawn(move || {
            let mut byte = 0_u8;
            // SAFETY: there is room for a byte, and the pipe stays open.
            while unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) } != 1 {}
            let paths = directories.lock().map(|paths| paths.clone()).unwrap_or_default();
            // What runs may write to them until this process ends: the rest is removed by whoever is asked next, by hand.
            for path in paths {
                let _ = std::fs::remove_dir_all(path);
            }
            std::process::exit(EXIT_STATUS);
        });
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: the handler does nothing but what a handler may do.
            unsafe { libc::signal(signal, told as *const () as libc::sighandler_t) };
        }
    });
}

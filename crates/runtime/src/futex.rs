//! Sleeping on a word of this process's memory, and waking who does (futex(2)).

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while the word has this value, for `time` at most. It may return earlier, for no reason.
pub fn sleep_on(word: &AtomicU32, value: u32, time: Option<Duration>) {
    let time = time.map(|time| libc::timespec {
        tv_sec: time.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time live through the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, time) };
}

/// Wakes so many of those who sleep on the word.
pub fn wake(word: &AtomicU32, sleepers: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives through the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, sleepers) };
}

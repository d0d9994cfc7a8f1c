//! # counting: an allocator for tests that counts
//!
//! Cost is held by counting, and memory taken on the data path is a cost. A test that counts begins with
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;
//! ```
//!
//! and compares [`on_this_thread`], [`on_threads_watched`] or [`bytes_held`] before and after. Taking and growing memory
//! count as one each, giving it back does not count. Used by tests only: nothing that ships depends on it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

thread_local! {
    static ON_THIS_THREAD: Cell<u64> = const { Cell::new(0) };
    static IS_UNWATCHED: Cell<bool> = const { Cell::new(false) };
}

static ON_THREADS_WATCHED: AtomicU64 = AtomicU64::new(0);
static BYTES_HELD: AtomicI64 = AtomicI64::new(0);

/// The system's allocator, and a count of what is asked of it.
pub struct CountingAllocator;

/// How often the calling thread has taken memory so far.
pub fn on_this_thread() -> u64 {
    ON_THIS_THREAD.get()
}

/// How often all threads have taken memory so far, except while they were not [watched](watch_this_thread).
pub fn on_threads_watched() -> u64 {
    ON_THREADS_WATCHED.load(Ordering::Relaxed)
}

/// Bytes that watched threads have taken and not given back. What one thread takes and another gives back counts on both.
pub fn bytes_held() -> i64 {
    BYTES_HELD.load(Ordering::Relaxed)
}

/// Whether what the calling thread takes counts: not while it plays the client, say.
pub fn watch_this_thread(watched: bool) {
    IS_UNWATCHED.set(!watched);
}

fn count() {
    // A thread that ends has no locals any more.
    let _ = ON_THIS_THREAD.try_with(|count| count.set(count.get() + 1));
    if !IS_UNWATCHED.try_with(Cell::get).unwrap_or(false) {
        ON_THREADS_WATCHED.fetch_add(1, Ordering::Relaxed);
    }
}

fn hold(bytes: i64) {
    if !IS_UNWATCHED.try_with(Cell::get).unwrap_or(false) {
        BYTES_HELD.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: all calls go to the system's allocator as they came; counting takes no memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size() as i64);
        // SAFETY: as this function's caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size() as i64);
        // SAFETY: as this function's caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        hold(new_size as i64 - layout.size() as i64);
        // SAFETY: as this function's caller promises.
        unsafe { System.realloc(memory, layout, new_size) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        // SAFETY: as this function's caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

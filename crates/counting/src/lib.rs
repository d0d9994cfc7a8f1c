//! # counting: an allocator for tests that counts
//!
//! Cost is held by counting, and memory taken on the data path is a cost. A test that counts begins with
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;
//! ```
//!
//! and compares [`on_this_thread`] or [`on_threads_watched`] before and after. Taking and growing memory count as one
//! each, giving it back does not count. Used by tests only: nothing that ships depends on it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static ON_THIS_THREAD: Cell<u64> = const { Cell::new(0) };
    static IS_UNWATCHED: Cell<bool> = const { Cell::new(false) };
}

static ON_THREADS_WATCHED: AtomicU64 = AtomicU64::new(0);

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

// SAFETY: all calls go to the system's allocator as they came; counting takes no memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as this function's caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as this function's caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as this function's caller promises.
        unsafe { System.realloc(memory, layout, new_size) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as this function's caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

//! A ring between two threads: one puts in, one takes out, and neither ever waits.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

/// A counter with a cache line of its own: each side writes its own one.
#[repr(align(64))]
struct Counter(AtomicU32);

/// See the module. `T` is plain data: what is in the ring when it goes is not dropped.
pub(crate) struct Ring<T: Copy> {
    places: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// So many were taken out.
    taken: Counter,
    /// So many were put in.
    put: Counter,
}

// SAFETY: a place belongs to whoever puts in until `put` has gone past it, and then to whoever takes out until `taken` has;
// both counters are released and acquired. That there is one of each is what `put` and `take` ask of their callers.
unsafe impl<T: Copy + Send> Sync for Ring<T> {}
// SAFETY: it owns plain data.
unsafe impl<T: Copy + Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Room for `capacity`, a power of two.
    pub(crate) fn new(capacity: u32) -> Self {
        assert!(capacity.is_power_of_two(), "a ring of {capacity}");
        let places = (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
        Self { places, taken: Counter(AtomicU32::new(0)), put: Counter(AtomicU32::new(0)) }
    }

    fn place(&self, number: u32) -> *mut MaybeUninit<T> {
        self.places[number as usize & (self.places.len() - 1)].get()
    }

    /// Puts one in; `false`: there is no room.
    ///
    /// # Safety
    /// One thread at a time puts in.
    pub(crate) unsafe fn put(&self, value: T) -> bool {
        let put = self.put.0.load(Ordering::Relaxed);
        if put.wrapping_sub(self.taken.0.load(Ordering::Acquire)) as usize == self.places.len() {
            return false;
        }
        // SAFETY: the place was taken out of, or never put into, and nobody looks there before `put` says so.
        unsafe { (*self.place(put)).write(value) };
        self.put.0.store(put.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest out.
    ///
    /// # Safety
    /// One thread at a time takes out.
    pub(crate) unsafe fn take(&self) -> Option<T> {
        let taken = self.taken.0.load(Ordering::Relaxed);
        if taken == self.put.0.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: it was written before `put` went past it, and is written again only when `taken` has.
        let value = unsafe { (*self.place(taken)).assume_init() };
        self.taken.0.store(taken.wrapping_add(1), Ordering::Release);
        Some(value)
    }

    /// Whether there is nothing in it, for whoever takes out.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.0.load(Ordering::SeqCst) == self.put.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn all_come_out_in_order_on_another_thread() {
        let ring = Arc::new(Ring::new(8));
        let other = ring.clone();
        let puts = std::thread::spawn(move || {
            for number in 0..100_000u64 {
                // SAFETY: this thread alone puts in.
                while !unsafe { other.put(number) } {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..100_000u64 {
            let taken = loop {
                // SAFETY: this thread alone takes out.
                match unsafe { ring.take() } {
                    Some(taken) => break taken,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(taken, number);
        }
        puts.join().expect("it ends");
        assert!(ring.is_empty());
    }

    #[test]
    fn a_full_ring_takes_no_more() {
        let ring = Ring::new(2);
        // SAFETY: there is one thread.
        unsafe {
            assert!(ring.put(1) && ring.put(2) && !ring.put(3));
            assert_eq!((ring.take(), ring.take(), ring.take()), (Some(1), Some(2), None));
        }
    }
}

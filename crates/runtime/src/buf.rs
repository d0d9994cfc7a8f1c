//! Buffers for disk and network: aligned, reference counted, recycled.
//!
//! An [`IoBuf`] is a range of bytes that its holder alone may write. It can be split into disjoint parts that are
//! filled by different operations, and frozen into a [`SharedBuf`], which is read-only and cheap to clone and slice:
//! the same bytes go to the device, to a peer and to a host without a copy.
//!
//! Memory comes in powers of two from 4 KiB to 4 MiB, aligned to 4 KiB (what O_DIRECT asks for), zeroed once when
//! it is first taken from the system and recycled per thread. **Recycled bytes are stale**: who sends or stores a
//! buffer fills it, padding included.

use crate::core::CoreKey;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};

/// Alignment of every buffer's memory: the largest that O_DIRECT asks for.
pub const ALIGNMENT: usize = 4096;
const SMALLEST: usize = 4096;
/// Largest buffer: a record of 1 MiB plus room, or four of them for a bulk read.
pub const LARGEST: usize = 4 << 20;
/// Memory that nobody counts is kept by a part of it that is this fraction of it at least.
const KEPT_MEMORY_TIMES_MAX: usize = 4;
const CLASSES: usize = (LARGEST / SMALLEST).ilog2() as usize + 1;
/// Idle bytes of one class a thread keeps before it gives half of them to the others.
const CACHE_BYTES_PER_CLASS: usize = 16 << 20;

/// One piece of memory and the number of handles on it.
struct Region {
    handles: AtomicU32,
    class: u8,
    memory: NonNull<u8>,
    /// Whom this region is counted against while it is held; null if nobody. Touched only by an only owner.
    budget: AtomicPtr<Budget>,
}

impl Region {
    fn capacity(&self) -> usize {
        SMALLEST << self.class
    }
}

/// Regions nobody holds, by class.
struct Idle([Vec<NonNull<Region>>; CLASSES]);

// SAFETY: an idle region has no handle; whoever takes it out is its only owner.
unsafe impl Send for Idle {}

impl Idle {
    const fn new() -> Self {
        Self([const { Vec::new() }; CLASSES])
    }
}

static DEPOT: Mutex<Idle> = Mutex::new(Idle::new());

/// A thread's idle regions; what is left when the thread ends goes to the depot.
struct Cache(Idle);

impl Drop for Cache {
    fn drop(&mut self) {
        let mut depot = DEPOT.lock().unwrap_or_else(|poison| poison.into_inner());
        for (to, from) in depot.0.iter_mut().zip(self.0.0.iter_mut()) {
            to.append(from);
        }
    }
}

thread_local! {
    static CACHE: RefCell<Cache> = const { RefCell::new(Cache(Idle::new())) };
}

fn class_of(len: usize) -> usize {
    assert!(len <= LARGEST, "buffer of {len} bytes: the largest is {LARGEST}");
    (len.max(1).next_power_of_two().max(SMALLEST) / SMALLEST).ilog2() as usize
}

fn take_region(class: usize) -> NonNull<Region> {
    let cached = CACHE.try_with(|cache| cache.borrow_mut().0.0[class].pop()).ok().flatten();
    let idle = cached.or_else(|| DEPOT.lock().unwrap_or_else(|poison| poison.into_inner()).0[class].pop());
    if let Some(region) = idle {
        // SAFETY: idle regions are valid and have no handle; this is now the only one.
        unsafe { region.as_ref() }.handles.store(1, Ordering::Relaxed);
        return region;
    }
    let layout = layout_of(class);
    // SAFETY: the layout's size is not zero.
    let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
    let region = Region { handles: AtomicU32::new(1), class: class as u8, memory, budget: AtomicPtr::default() };
    NonNull::from(Box::leak(Box::new(region)))
}

fn layout_of(class: usize) -> Layout {
    Layout::from_size_align(SMALLEST << class, ALIGNMENT).expect("a power of two")
}

fn give_back(region: NonNull<Region>) {
    // SAFETY: the last handle is gone; the region itself lives until it is freed below.
    let held = unsafe { region.as_ref() };
    let class = usize::from(held.class);
    let budget = NonNull::new(held.budget.swap(std::ptr::null_mut(), Ordering::Relaxed));
    let kept = CACHE.try_with(|cache| {
        let cache = &mut cache.borrow_mut().0.0[class];
        cache.push(region);
        let limit = (CACHE_BYTES_PER_CLASS >> class) / SMALLEST;
        if cache.len() > limit.max(2) {
            let mut depot = DEPOT.lock().unwrap_or_else(|poison| poison.into_inner());
            let keep = cache.len() / 2;
            depot.0[class].extend(cache.drain(keep..));
        }
    });
    if kept.is_err() {
        // The thread is ending and its cache is gone.
        // SAFETY: nobody holds the region; memory and box came from `take_region`.
        unsafe {
            dealloc(region.as_ref().memory.as_ptr(), layout_of(class));
            drop(Box::from_raw(region.as_ptr()));
        }
    }
    if let Some(budget) = budget {
        // SAFETY: a charged budget is `'static`.
        unsafe { budget.as_ref() }.release();
    }
}

/// How many regions of some purpose are held, anywhere: counted when [charged](IoBuf::charge), until the last handle
/// is dropped, on whatever thread.
pub(crate) struct Budget {
    held: AtomicU32,
    /// When so many are held, who keeps bytes for long keeps a copy.
    kept_max: u32,
    /// Whether somebody was refused and is to be told of the next release.
    refused: AtomicBool,
    tell: fn(CoreKey),
    core: CoreKey,
}

impl Budget {
    pub(crate) const fn new(core: CoreKey, tell: fn(CoreKey), kept_max: u32) -> Self {
        Self { held: AtomicU32::new(0), kept_max, refused: AtomicBool::new(false), tell, core }
    }

    /// Whether fewer than `limit` regions are held. If not, the next release is told.
    pub(crate) fn has_room(&self, limit: u32) -> bool {
        if self.held.load(Ordering::SeqCst) < limit {
            return true;
        }
        self.refused.store(true, Ordering::SeqCst);
        self.held.load(Ordering::SeqCst) < limit // a release between the two looks was told nobody
    }

    fn release(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
        if self.refused.load(Ordering::SeqCst) && self.refused.swap(false, Ordering::SeqCst) {
            (self.tell)(self.core);
        }
    }
}

/// The one handle type below both faces: a range of a region, counted.
struct Handle {
    region: NonNull<Region>,
    start: u32,
    len: u32,
}

impl Handle {
    fn pointer(&self) -> *mut u8 {
        // SAFETY: start is within the region (checked where ranges are made).
        unsafe { self.region.as_ref().memory.as_ptr().add(self.start as usize) }
    }
    fn another(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len as usize, "range {range:?} of {} bytes", self.len);
        // SAFETY: this handle keeps the region alive.
        unsafe { self.region.as_ref() }.handles.fetch_add(1, Ordering::Relaxed);
        Self { region: self.region, start: self.start + range.start as u32, len: (range.end - range.start) as u32 }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: this handle keeps the region alive until the count is taken down.
        if unsafe { self.region.as_ref() }.handles.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            give_back(self.region);
        }
    }
}

// SAFETY: the count is atomic; bytes are written only through the one IoBuf that covers them and read
// through SharedBufs only after it is gone.
unsafe impl Send for Handle {}
// SAFETY: as above; `&Handle` only reads.
unsafe impl Sync for Handle {}

/// Bytes that the holder alone reads and writes. See the module.
pub struct IoBuf(Handle);

impl IoBuf {
    /// A buffer of `len` bytes, aligned to [`ALIGNMENT`], **with stale contents**.
    ///
    /// # Panics
    /// If `len` is above [`LARGEST`].
    pub fn new(len: usize) -> Self {
        Self(Handle { region: take_region(class_of(len)), start: 0, len: len as u32 })
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::new(len);
        buf.fill(0);
        buf
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::new(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Bytes of memory behind this buffer (the whole region's size; `len` is at most this).
    pub fn capacity(&self) -> usize {
        // SAFETY: the handle keeps the region alive.
        unsafe { self.0.region.as_ref() }.capacity()
    }

    /// Cuts the buffer in two: `self` keeps the first `at` bytes, the rest is returned.
    pub fn split_off(&mut self, at: usize) -> Self {
        let rest = self.0.another(at..self.len());
        self.0.len = at as u32;
        Self(rest)
    }

    /// Whether `rest` begins where `self` ends, in the same memory: the two may be [joined](Self::unsplit).
    pub fn is_followed_by(&self, rest: &Self) -> bool {
        self.0.region == rest.0.region && self.0.start + self.0.len == rest.0.start
    }

    /// Joins what [`split_off`](Self::split_off) cut.
    ///
    /// # Panics
    /// If `rest` does not begin where `self` ends, in the same memory.
    pub fn unsplit(&mut self, rest: Self) {
        assert!(self.is_followed_by(&rest), "the two parts are not neighbours");
        self.0.len += rest.0.len;
    }

    /// Shortens the buffer to its first `len` bytes; the rest is not returned.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len());
        self.0.len = len as u32;
    }

    /// Counts the buffer's region against `budget` until its last handle is gone.
    pub(crate) fn charge(&mut self, budget: &'static Budget) {
        budget.held.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the handle keeps the region alive.
        let region = unsafe { self.0.region.as_ref() };
        let before = region.budget.swap(std::ptr::from_ref(budget).cast_mut(), Ordering::Relaxed);
        assert!(before.is_null(), "a region is counted once");
    }

    /// Makes the bytes read-only and shareable.
    pub fn freeze(self) -> SharedBuf {
        SharedBuf(self.0)
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is inside the region, initialised since allocation, and nobody else writes it.
        unsafe { std::slice::from_raw_parts(self.0.pointer(), self.0.len as usize) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: ranges of IoBufs on one region are disjoint by construction, and frozen ones are not written.
        unsafe { std::slice::from_raw_parts_mut(self.0.pointer(), self.0.len as usize) }
    }
}

impl std::fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len())
    }
}

/// Read-only bytes, cheap to clone and slice, and `Send`. See the module.
pub struct SharedBuf(Handle);

impl SharedBuf {
    /// The bytes of `range`, sharing the same memory.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    pub fn slice(&self, range: Range<usize>) -> Self {
        Self(self.0.another(range))
    }

    /// They are kept longer than their sender waits for: becomes a copy, where this is memory that a core receives into and much of that is
    /// held, or memory that nobody counts and of which this is a small part. Four kilobytes may hold a receive buffer of many times
    /// their size, and a core that has too few of those reads nothing more from its clients.
    pub fn keep(&mut self) {
        // SAFETY: the handle keeps the region alive.
        let region = unsafe { self.0.region.as_ref() };
        // SAFETY: a charged budget is `'static`.
        let holds_too_much = match unsafe { region.budget.load(Ordering::Relaxed).as_ref() } {
            Some(budget) => budget.held.load(Ordering::Relaxed) >= budget.kept_max,
            None => region.capacity() > KEPT_MEMORY_TIMES_MAX * self.len(),
        };
        if holds_too_much {
            *self = IoBuf::copy_of(self).freeze();
        }
    }

    /// The buffer back for writing, if no other handle on its memory is left.
    pub fn try_into_unique(self) -> Result<IoBuf, Self> {
        // SAFETY: the handle keeps the region alive.
        if unsafe { self.0.region.as_ref() }.handles.load(Ordering::Acquire) == 1 {
            Ok(IoBuf(self.0))
        } else {
            Err(self)
        }
    }
}

/// By what they hold.
impl PartialEq for SharedBuf {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for SharedBuf {}

impl Clone for SharedBuf {
    fn clone(&self) -> Self {
        Self(self.0.another(0..self.0.len as usize))
    }
}

impl Deref for SharedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is inside the region, initialised, and nobody writes frozen bytes.
        unsafe { std::slice::from_raw_parts(self.0.pointer(), self.0.len as usize) }
    }
}

impl std::fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedBuf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_join_again() {
        let mut buf = IoBuf::zeroed(8192);
        let mut rest = buf.split_off(4096);
        buf.fill(1);
        rest.fill(2);
        buf.unsplit(rest);
        assert!(buf[..4096].iter().all(|b| *b == 1) && buf[4096..].iter().all(|b| *b == 2));
    }

    #[test]
    fn memory_is_aligned_and_recycled() {
        let first = IoBuf::new(5000);
        let address = first.as_ptr();
        assert_eq!(address as usize % ALIGNMENT, 0);
        drop(first);
        assert_eq!(IoBuf::new(8000).as_ptr(), address);
    }

    #[test]
    fn a_shared_buffer_is_unique_again_only_when_alone() {
        let shared = IoBuf::copy_of(b"cairn").freeze();
        let other = shared.slice(1..3);
        let shared = shared.try_into_unique().expect_err("another handle lives");
        assert_eq!(&*other, b"ai");
        drop(other);
        assert_eq!(&*shared.try_into_unique().expect("alone"), b"cairn");
    }

    #[test]
    fn buffers_freed_by_another_thread_come_back() {
        let shared = IoBuf::copy_of(&[7; 4096]).freeze();
        std::thread::spawn(move || assert_eq!(shared[4095], 7)).join().expect("no panic");
    }

    #[test]
    fn a_part_that_is_kept_holds_no_more_than_some_times_its_size() {
        let all = IoBuf::copy_of(&[7; 64 << 10]).freeze();
        let (mut small, mut large) = (all.slice(8192..12288), all.slice(0..32 << 10));
        small.keep();
        large.keep();
        assert!(small.0.region != all.0.region && small[..] == [7; 4096]);
        assert!(large.0.region == all.0.region, "it is most of it");
    }

    #[test]
    #[should_panic(expected = "not neighbours")]
    fn strangers_do_not_join() {
        let mut a = IoBuf::new(4096);
        a.unsplit(IoBuf::new(4096));
    }
}

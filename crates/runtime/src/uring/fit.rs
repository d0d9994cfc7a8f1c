//! What a thread is fit for that a core is lent to ([`Lent`](super::Lent)): it is the program's, and may have a small stack, be a coroutine's or be cancelled.

use crate::core;
use std::cell::Cell;

/// A thread with less left of its stack does not lend: a core's tasks are at home on large ones.
const STACK_MIN_BYTES: usize = 256 << 10;

/// A thread that is to be cancelled goes on meanwhile: it would end with the core in its hands.
pub(super) struct Uncancelled(libc::c_int);

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

impl Uncancelled {
    pub(super) fn begin() -> Self {
        const DISABLE: libc::c_int = 1; // PTHREAD_CANCEL_DISABLE
        let mut before = 0;
        // SAFETY: the pointer is to a local.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: no pointer.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}

/// Whether the core's tasks may run here: enough is left of the stack, which is the thread's (and not a coroutine's), and the thread does not
/// end just now.
pub(super) fn is_place() -> bool {
    thread_local! { static STACK: Cell<Option<(usize, usize)>> = const { Cell::new(None) } }
    let (low, high) = STACK.get().unwrap_or_else(|| {
        let found = stack().unwrap_or_default();
        STACK.set(Some(found));
        found
    });
    let here = std::ptr::from_ref(&low).addr();
    (low.saturating_add(STACK_MIN_BYTES)..high).contains(&here) && core::is_there()
}

/// From where to where this thread's stack is.
fn stack() -> Option<(usize, usize)> {
    // SAFETY: the attributes are made by the first call and ended by the last; the pointers are to locals.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return None;
        }
        let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
        let found = libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut bytes);
        libc::pthread_attr_destroy(&raw mut attributes);
        (found == 0).then_some((start.addr(), start.addr() + bytes))
    }
}

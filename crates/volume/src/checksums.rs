//! The checksums that come with a read: a list that is used again, so that a read takes no memory from the system.

use std::cell::RefCell;
use std::ops::Deref;

/// Lists kept for use: as many as reads that are in the hands of one core's doors.
const IDLE_MAX: usize = 4096;

thread_local! {
    static IDLE: RefCell<Vec<Vec<u32>>> = const { RefCell::new(Vec::new()) };
}

/// An empty list.
pub(crate) fn take() -> Vec<u32> {
    IDLE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Back for use.
pub(crate) fn give(mut list: Vec<u32>) {
    list.clear();
    let _ = IDLE.try_with(|idle| {
        let mut idle = idle.borrow_mut();
        if idle.len() < IDLE_MAX && list.capacity() > 0 {
            idle.push(list);
        }
    });
}

/// One crc32c per whole 4 KiB block, in order.
#[derive(Debug, Default)]
pub struct BlockChecksums(Vec<u32>);

impl From<Vec<u32>> for BlockChecksums {
    fn from(list: Vec<u32>) -> Self {
        Self(list)
    }
}

impl Deref for BlockChecksums {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        &self.0
    }
}

impl Clone for BlockChecksums {
    fn clone(&self) -> Self {
        let mut list = take();
        list.extend_from_slice(&self.0);
        Self(list)
    }
}

impl Drop for BlockChecksums {
    fn drop(&mut self) {
        give(std::mem::take(&mut self.0));
    }
}

//! The commands of a connection whose answers the kernel does not have yet.

use super::flight::Flight;
use runtime::now;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// See the module. Answers leave in the order in which they were queued, so a count of bytes says which have left.
#[derive(Default)]
pub struct Unsent {
    sent_bytes: Cell<u64>,
    /// Each with the count of bytes at which its answer has left.
    flights: RefCell<VecDeque<(u64, Flight)>>,
}

impl Unsent {
    /// The answer was queued; behind it, so many bytes are queued or being sent.
    pub fn push(&self, unsent_bytes: usize, flight: Flight) {
        let end = self.sent_bytes.get() + unsent_bytes as u64;
        self.flights.borrow_mut().push_back((end, flight));
    }

    /// The kernel has so many bytes more.
    pub fn sent(&self, bytes: usize) {
        let sent_bytes = self.sent_bytes.get() + bytes as u64;
        self.sent_bytes.set(sent_bytes);
        let mut flights = self.flights.borrow_mut();
        let count = flights.iter().take_while(|(end, _)| *end <= sent_bytes).count();
        if count > 0 {
            let now = now();
            flights.drain(..count).for_each(|(_, flight)| flight.sent(now));
        }
    }

    /// Gives the memory of a busy time back, when there is nothing to remember.
    pub fn shrink(&self) {
        let mut flights = self.flights.borrow_mut();
        if flights.is_empty() {
            flights.shrink_to_fit();
        }
    }
}

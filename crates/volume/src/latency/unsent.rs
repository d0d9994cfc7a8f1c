//! The commands of a connection whose answers the kernel does not have yet.

use super::flight::Answered;
use runtime::now;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// See the module. Answers leave in the order in which they were queued, so a count of bytes says which have left.
#[derive(Default)]
pub struct Unsent {
    sent_bytes: Cell<u64>,
    /// Each with the count of bytes at which its answer has left.
    answered: RefCell<VecDeque<(u64, Answered)>>,
}

impl Unsent {
    /// The answer was queued; behind it, so many bytes are queued or being sent.
    pub fn push(&self, unsent_bytes: usize, command: Answered) {
        let end = self.sent_bytes.get() + unsent_bytes as u64;
        self.answered.borrow_mut().push_back((end, command));
    }

    /// The kernel has so many bytes more.
    pub fn sent(&self, bytes: usize) {
        let sent_bytes = self.sent_bytes.get() + bytes as u64;
        self.sent_bytes.set(sent_bytes);
        let mut answered = self.answered.borrow_mut();
        let mut at = None;
        while answered.front().is_some_and(|(end, _)| *end <= sent_bytes) {
            let (_, command) = answered.pop_front().expect("looked at just above");
            command.sent(*at.get_or_insert_with(now));
        }
    }

    /// Gives the memory of a busy time back, when there is nothing to remember.
    pub fn shrink(&self) {
        let mut answered = self.answered.borrow_mut();
        if answered.is_empty() {
            answered.shrink_to_fit();
        }
    }
}

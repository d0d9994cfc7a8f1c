//! What one core has taken on: commands and payload. Over the limit nothing more is read, and no write is asked for
//! its data.

use crate::limits::{MAX_CORE_COMMANDS, MAX_CORE_HELD_BYTES, MAX_CORE_HELD_COMMANDS, MAX_CORE_PAYLOAD_BYTES};
use runtime::channel::WaitList;
use std::cell::Cell;

/// See the module. Payload is what commands hold while they are executed, what has been asked for (R2T), and what
/// waits to be sent.
#[derive(Default)]
pub(super) struct Budget {
    commands: Cell<usize>,
    executing_bytes: Cell<usize>,
    granted_bytes: Cell<usize>,
    unsent_bytes: Cell<usize>,
    /// Commands that wait for their volumes' limits, and memory that they hold.
    held: Cell<(usize, usize)>,
    waiters: Cell<usize>,
    changed: WaitList,
}

impl Budget {
    /// Room for another command. Granted data is not counted: it arrives only if connections are read.
    pub fn has_room(&self) -> bool {
        self.commands.get() < MAX_CORE_COMMANDS
            && self.executing_bytes.get() + self.unsent_bytes.get() < MAX_CORE_PAYLOAD_BYTES
    }

    /// Room to ask for the data of another write.
    pub fn may_grant(&self) -> bool {
        self.executing_bytes.get() + self.unsent_bytes.get() + self.granted_bytes.get() < MAX_CORE_PAYLOAD_BYTES
    }

    /// Room for another command that waits for its volume's limit.
    pub fn may_hold(&self) -> bool {
        let (commands, bytes) = self.held.get();
        commands < MAX_CORE_HELD_COMMANDS && bytes < MAX_CORE_HELD_BYTES
    }

    /// A command begins to wait for its volume's limit.
    pub fn hold(&self, bytes: usize) {
        let held = self.held.get();
        self.held.set((held.0 + 1, held.1 + bytes));
    }

    /// It waits no more.
    pub fn unhold(&self, bytes: usize) {
        let held = self.held.get();
        self.held.set((held.0 - 1, held.1 - bytes));
        self.wake();
    }

    /// Waits until `ready`, asked again whenever something was given back.
    pub async fn until(&self, ready: impl Fn(&Self) -> bool) {
        self.waiters.set(self.waiters.get() + 1);
        let waiting = Waiting(self);
        self.changed.until(|| ready(waiting.0).then_some(())).await;
    }

    pub fn begin(&self, bytes: usize) {
        self.commands.set(self.commands.get() + 1);
        self.executing_bytes.set(self.executing_bytes.get() + bytes);
    }

    pub fn end(&self, bytes: usize) {
        self.commands.set(self.commands.get() - 1);
        self.executing_bytes.set(self.executing_bytes.get() - bytes);
        self.wake();
    }

    /// The data asked for changed from `before` to `after` bytes.
    pub fn granted(&self, before: usize, after: usize) {
        self.granted_bytes.set(self.granted_bytes.get() - before + after);
        self.wake();
    }

    /// What waits to be sent changed from `before` to `after` bytes.
    pub fn unsent(&self, before: usize, after: usize) {
        self.unsent_bytes.set(self.unsent_bytes.get() - before + after);
        if after < before {
            self.wake();
        }
    }

    /// Something changed that a waiter may look at.
    pub fn wake(&self) {
        if self.waiters.get() > 0 {
            self.changed.wake_all();
        }
    }
}

struct Waiting<'a>(&'a Budget);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiters.set(self.0.waiters.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_data_stops_grants_but_not_reading() {
        let budget = Budget::default();
        budget.granted(0, MAX_CORE_PAYLOAD_BYTES);
        assert!(budget.has_room() && !budget.may_grant());
        budget.begin(MAX_CORE_PAYLOAD_BYTES);
        assert!(!budget.has_room());
        budget.end(MAX_CORE_PAYLOAD_BYTES);
        budget.granted(MAX_CORE_PAYLOAD_BYTES, 0);
        assert!(budget.has_room() && budget.may_grant());
    }

    #[test]
    fn commands_without_payload_are_bounded_too() {
        let budget = Budget::default();
        for _ in 0..MAX_CORE_COMMANDS {
            assert!(budget.has_room());
            budget.begin(0);
        }
        assert!(!budget.has_room());
    }
}

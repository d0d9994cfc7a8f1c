//! What one core has in flight, and when it stops reading.

use crate::machine::Load;
use runtime::channel::WaitList;
use std::cell::Cell;

/// Requests in flight on one core: above what keeps any device busy, and the tables for them stay small.
const CORE_COMMANDS_MAX: u32 = 4096;
/// Payload in flight on one core: two requests of the largest size, or 16,384 of 4 KiB.
const CORE_BYTES_MAX: u64 = 64 << 20;
/// Requests in flight on one connection: a quarter of the core's, so that no client has it alone.
const CONNECTION_COMMANDS_MAX: u32 = CORE_COMMANDS_MAX / 4;
/// Payload in flight on one connection: the longest request, or a quarter of the core's in shorter ones.
const CONNECTION_BYTES_MAX: u64 = CORE_BYTES_MAX / 4;

/// Requests of one core that wait for their volumes' limits: they hold little but themselves.
const CORE_HELD_COMMANDS_MAX: u32 = CORE_COMMANDS_MAX;
/// Payload of those, beside that of what is in flight.
const CORE_HELD_BYTES_MAX: u64 = CORE_BYTES_MAX / 4;
/// Requests of one connection that wait; over it nothing more is read of it.
const CONNECTION_HELD_COMMANDS_MAX: u32 = CONNECTION_COMMANDS_MAX;
/// Payload of those.
const CONNECTION_HELD_BYTES_MAX: u64 = 4 << 20;

/// What all connections of a core have in flight together. A request is counted from its admission until its answer
/// has been sent, so that a client that does not take its answers stops being read.
///
/// A new request waits while a limit is reached and is then counted in full: one request per connection may go over.
#[derive(Default)]
pub(super) struct Budget {
    load: Cell<Load>,
    /// What waits for limits of volumes.
    held: Cell<Load>,
    room: WaitList,
}

impl Budget {
    /// Whether a connection that has `own` in flight may begin another request.
    pub(super) fn has_room(&self, own: Load) -> bool {
        !self.is_exhausted() && own.commands < CONNECTION_COMMANDS_MAX && own.bytes < CONNECTION_BYTES_MAX
    }

    /// Whether of a connection of which `own` waits for its volume's limit another request may: of one of which nothing
    /// does, however much waits elsewhere.
    pub(super) fn may_hold(&self, own: Load) -> bool {
        let all = self.held.get();
        let has_core_room = all.commands < CORE_HELD_COMMANDS_MAX && all.bytes < CORE_HELD_BYTES_MAX;
        let has_room = own.commands < CONNECTION_HELD_COMMANDS_MAX && own.bytes < CONNECTION_HELD_BYTES_MAX;
        own.commands == 0 || has_core_room && has_room
    }

    /// A request begins to wait for its volume's limit.
    pub(super) fn hold(&self, load: Load) {
        let mut held = self.held.get();
        held += load;
        self.held.set(held);
    }

    /// It waits no more.
    pub(super) fn unhold(&self, load: Load) {
        let mut held = self.held.get();
        held -= load;
        self.held.set(held);
        self.room.wake_all();
    }

    /// Whether all connections wait for some of them.
    pub(super) fn is_exhausted(&self) -> bool {
        let all = self.load.get();
        all.commands >= CORE_COMMANDS_MAX || all.bytes >= CORE_BYTES_MAX
    }

    /// Resolves when `ready`, asked again after each [`sub`](Self::sub) and [`wake`](Self::wake).
    pub(super) async fn wait(&self, mut ready: impl FnMut() -> bool) {
        self.room.until(|| ready().then_some(())).await;
    }

    /// Lets all that wait look again.
    pub(super) fn wake(&self) {
        self.room.wake_all();
    }

    pub(super) fn add(&self, load: Load) {
        let mut all = self.load.get();
        all += load;
        self.load.set(all);
    }

    pub(super) fn sub(&self, load: Load) {
        let mut all = self.load.get();
        all -= load;
        self.load.set(all);
        self.room.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_never_has_the_core_alone() {
        let budget = Budget::default();
        let own = Load { commands: CONNECTION_COMMANDS_MAX, bytes: 0 };
        budget.add(own);
        assert!(!budget.has_room(own));
        assert!(budget.has_room(Load::default()));
        budget.add(Load { commands: 0, bytes: CORE_BYTES_MAX });
        assert!(!budget.has_room(Load::default()));
        budget.sub(Load { commands: 0, bytes: CORE_BYTES_MAX });
        budget.sub(own);
        assert!(budget.has_room(Load::default()));
    }
}

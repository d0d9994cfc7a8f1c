//! Abort (NVMe Base 2.0 §5.1): what waits for an event, for room or for its data can be taken back. A command that was
//! handed to whoever executes it is executed, and bit 0 of the result says "not aborted", as the specification allows.

use super::connection::{Aborting, Change, Connection, Phase};
use super::slots::{Stage, Tag};
use crate::limits::MAX_ABORTS;
use crate::wire::Status;

impl Connection {
    /// An Abort of the command `command` of queue `queue`. A parked event request ends here; for all else somebody must
    /// ask the queue.
    pub(super) fn begin_abort(&mut self, tag: Tag, queue: u16, command: u16) -> Option<Change> {
        if queue == 0 && self.abort_parked(command) {
            self.end(tag.slot, Status::SUCCESS, 0);
            return None;
        }
        if self.aborts >= MAX_ABORTS {
            self.end(tag.slot, Status::ABORT_LIMIT.do_not_retry(), 0);
            return None;
        }
        self.aborts += 1;
        Some(Change::Abort { tag, queue, command })
    }

    /// Ends an Abort command: whether it found what it was to abort, and did.
    pub fn complete_abort(&mut self, tag: Tag, aborted: bool) {
        self.aborts -= 1;
        self.complete(tag, Status::SUCCESS, u64::from(!aborted));
    }

    /// Takes back a command of this queue that waits.
    pub fn abort(&mut self, command: u16) -> Aborting {
        let waiting = [Stage::InCapsule, Stage::AwaitsGrant, Stage::Receiving, Stage::Ready];
        let Some(slot) = self.slots.of_command(command, &waiting) else { return Aborting::NotAborted };
        if self.is_terminated() {
            return Aborting::NotAborted;
        }
        let tag = self.slots.tag(slot);
        self.let_partner_fail(slot, Status::ABORT_REQUESTED);
        self.doom(slot, Status::ABORT_REQUESTED);
        if self.is_under_way(tag) { Aborting::Waits(tag) } else { Aborting::Aborted }
    }

    /// Whether the command has not ended yet.
    pub fn is_under_way(&self, tag: Tag) -> bool {
        self.slots.find(tag).is_some()
    }

    fn abort_parked(&mut self, command: u16) -> bool {
        let found = self.slots.of_command(command, &[Stage::Parked]);
        let (Some(slot), Phase::Admin(controller)) = (found, &mut self.phase) else { return false };
        if !controller.withdraw_event_request(slot) {
            return false;
        }
        self.end(slot, Status::ABORT_REQUESTED, 0);
        true
    }
}

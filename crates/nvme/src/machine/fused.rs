//! Fused pairs: a compare and the write that follows it in the queue, executed as one (NVMe Base 2.0 §3.4.2, NVM Command
//! Set 1.0 §2.1.6.1).
//!
//! ```text
//!   compare, FUSE 01b ──► its data ──┐
//!   write,   FUSE 10b ──► its data ──┴─► Operation::CompareAndWrite ──► completion of the compare, then of the write
//! ```
//!
//! What is a pair is decided by the order of the commands, whenever their data comes. A half without the other ends as
//! "missing fused", a half whose other half was refused or failed as "failed fused"; halves that name different ranges
//! are both an invalid field.

use super::connection::{Connection, Event, FirstHalf, IoRequest, Phase};
use super::io::{IoPlan, Operation, Verb};
use super::slots::{Fused, Plan, Stage, Tag};
use crate::wire::{Sqe, Status};

const MISSING: Status = Status::ABORTED_MISSING_FUSED.do_not_retry();

impl Connection {
    /// Which half of a pair the command is; what is no command for a volume is never one.
    pub(super) fn half_of(&self, sqe: &Sqe) -> u8 {
        if matches!(self.phase, Phase::Io(_)) { sqe.fuse() } else { 0 }
    }

    /// What the command before was. If it was a first half and this one is not its second, it ends.
    pub(super) fn first_half_before(&mut self, half: u8) -> FirstHalf {
        let before = std::mem::replace(&mut self.first_half, FirstHalf::No);
        match before {
            FirstHalf::Waits(first) if half != Sqe::FUSE_SECOND => {
                self.slots.get_mut(first).fused = Fused::No;
                self.doom(first, MISSING);
                FirstHalf::No
            }
            before => before,
        }
    }

    /// Whether a second half belongs to the first one before it.
    pub(super) fn check_pair(&self, half: u8, before: &FirstHalf, planned: (Plan, u32)) -> Result<(Plan, u32), Status> {
        let Plan::Io(second) = &planned.0 else { return Ok(planned) };
        match before {
            _ if half != Sqe::FUSE_SECOND => Ok(planned),
            FirstHalf::No => Err(MISSING),
            FirstHalf::Failed(status) => Err(status.of_other_half()),
            FirstHalf::Waits(slot) => match self.slots.get(*slot).and_then(|slot| slot.plan.as_ref()) {
                Some(Plan::Io(first)) if is_same_range(first, second) => Ok(planned),
                _ => Err(Status::INVALID_FIELD.do_not_retry()),
            },
        }
    }

    /// A half is refused with `status`: what that means for the other one.
    pub(super) fn half_refused(&mut self, half: u8, before: &FirstHalf, status: Status) {
        match (half, before) {
            (Sqe::FUSE_FIRST, _) => self.first_half = FirstHalf::Failed(status),
            (Sqe::FUSE_SECOND, FirstHalf::Waits(first)) => {
                self.slots.get_mut(*first).fused = Fused::No;
                let is_field = status.code() == Status::INVALID_FIELD;
                self.doom(*first, if is_field { status } else { status.of_other_half() });
            }
            _ => {}
        }
    }

    /// The command is in `slot`: the first half of a pair, its second, or neither.
    pub(super) fn pair(&mut self, half: u8, before: &FirstHalf, slot: u16) {
        match (half, before) {
            (Sqe::FUSE_FIRST, _) => {
                self.slots.get_mut(slot).fused = Fused::AwaitsSecond;
                self.first_half = FirstHalf::Waits(slot);
            }
            (Sqe::FUSE_SECOND, FirstHalf::Waits(first)) => {
                self.slots.get_mut(slot).fused = Fused::With(*first);
                self.slots.get_mut(*first).fused = Fused::With(slot);
            }
            _ => {}
        }
    }

    /// The half in `index` is ready: if the other one is, both go to whoever executes them, under the second's name.
    pub(super) fn dispatch_pair(&mut self, index: u16) -> Option<Event> {
        let Fused::With(other) = self.slots.get_mut(index).fused else { return None };
        if self.slots.get_mut(other).stage != Stage::Ready {
            return None;
        }
        let (mut compare, mut write) = (None, None);
        for half in [index, other] {
            let slot = self.slots.get_mut(half);
            slot.stage = Stage::Executing;
            let data = slot.data.take().expect("a half that is ready has its data");
            let Some(Plan::Io(plan)) = slot.plan.take() else { unreachable!("only commands for volumes are fused") };
            match plan.verb {
                Verb::Compare => compare = Some(data),
                _ => write = Some((half, plan, data)),
            }
        }
        let expected = compare.expect("the first half compares");
        let (second, IoPlan { nsid, offset_bytes, .. }, data) = write.expect("the second half writes");
        let operation = Operation::CompareAndWrite { offset_bytes, expected, data };
        Some(Event::Io(IoRequest { tag: self.slots.tag(second), nsid, operation, is_paid: false }))
    }

    /// Ends a compare-and-write: how its compare ended, and how its write.
    pub fn complete_fused(&mut self, tag: Tag, compare: Status, write: Status) {
        let Fused::With(first) = self.slots.get_mut(tag.slot).fused else { unreachable!("a pair was asked for") };
        self.end(first, compare, 0);
        self.end(tag.slot, write, 0);
    }

    /// The half in `index` fails with `status`: the other one will not be executed.
    pub(super) fn let_partner_fail(&mut self, index: u16, status: Status) {
        match std::mem::replace(&mut self.slots.get_mut(index).fused, Fused::No) {
            Fused::No => {}
            Fused::AwaitsSecond => self.first_half = FirstHalf::Failed(status),
            Fused::With(other) => {
                self.slots.get_mut(other).fused = Fused::No;
                self.doom(other, status.of_other_half());
            }
        }
    }

    /// A command that nobody executes yet will not be executed: it ends with `status` at once, or when all has come
    /// that the host was asked for.
    pub(super) fn doom(&mut self, index: u16, status: Status) {
        let slot = self.slots.get_mut(index);
        match slot.stage {
            Stage::InCapsule | Stage::Receiving => slot.doom = slot.doom.or(Some(status)),
            Stage::AwaitsGrant | Stage::Ready => self.end(index, status, 0),
            Stage::Free | Stage::Executing | Stage::Parked => unreachable!("it is not waiting"),
        }
    }
}

fn is_same_range(first: &IoPlan, second: &IoPlan) -> bool {
    (first.nsid, first.offset_bytes, first.len_bytes) == (second.nsid, second.offset_bytes, second.len_bytes)
}

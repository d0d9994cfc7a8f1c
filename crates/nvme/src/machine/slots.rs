//! The commands of one queue that are under way: as many slots as the queue has entries.

use super::io::IoPlan;
use crate::wire::{Sqe, Status};
use runtime::{IoBuf, SharedBuf};

/// What a command is, once its header has been understood.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Connect(Sqe),
    Admin(Sqe),
    Io(IoPlan),
}

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Free,
    /// Its capsule's data is arriving.
    InCapsule,
    /// It waits until there is room for its data.
    AwaitsGrant,
    /// Its data was asked for (R2T) and arrives.
    Receiving,
    /// Half of a fused pair: its data is here, and the other half's is not.
    Ready,
    /// It is with whoever executes it.
    Executing,
    /// An async event request, waiting for its event.
    Parked,
}

/// What a command has to do with the next or the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fused {
    No,
    /// The first half of a pair, whose second must be the next command of the queue.
    AwaitsSecond,
    /// Half of a pair with the command in this slot.
    With(u16),
}

/// A command under way: its slot, and which of the commands that had the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    pub(super) slot: u16,
    generation: u16,
}

impl Tag {
    /// Its place among the commands of its queue: below the queue's size, and no other command's that is under way.
    pub fn place(self) -> usize {
        usize::from(self.slot)
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    pub stage: Stage,
    generation: u16,
    /// The host's number of the command.
    pub command: u16,
    pub plan: Option<Plan>,
    /// Bytes to be received by R2T.
    pub len_bytes: u32,
    /// What has been received, and the memory for the rest.
    pub received: Option<IoBuf>,
    pub rest: Option<IoBuf>,
    /// No data digest has failed.
    pub intact: bool,
    /// It was taken from its volume's limits.
    pub is_paid: bool,
    pub fused: Fused,
    /// The data of a half that is ready.
    pub data: Option<SharedBuf>,
    /// It is not to be executed: it ends with this when all data that was asked for has come, for it comes in any case.
    pub doom: Option<Status>,
}

impl Slot {
    fn new() -> Self {
        Self {
            stage: Stage::Free,
            generation: 0,
            command: 0,
            plan: None,
            len_bytes: 0,
            received: None,
            rest: None,
            intact: true,
            is_paid: false,
            fused: Fused::No,
            data: None,
            doom: None,
        }
    }

    pub fn received_bytes(&self) -> u32 {
        self.received.as_ref().map_or(0, |buf| buf.len() as u32)
    }
}

/// Slots are made when they are first needed: a queue takes the memory of the depth that it was used with.
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    entries: u16,
}

impl Slots {
    pub fn new(entries: u16) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), entries }
    }

    /// Allows `entries` commands; never fewer than before.
    pub fn resize(&mut self, entries: u16) {
        self.entries = self.entries.max(entries);
    }

    /// A slot for a new command; `None` if the queue is full.
    pub fn take(&mut self, command: u16, stage: Stage, plan: Plan) -> Option<u16> {
        if self.is_full() {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new());
            (self.slots.len() - 1) as u16
        });
        let slot = &mut self.slots[usize::from(index)];
        slot.stage = stage;
        slot.command = command;
        slot.plan = Some(plan);
        slot.intact = true;
        slot.is_paid = false;
        slot.fused = Fused::No;
        slot.doom = None;
        Some(index)
    }

    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == usize::from(self.entries)
    }

    /// The name of the command that is in the slot now.
    pub fn tag(&self, index: u16) -> Tag {
        Tag { slot: index, generation: self.slots[usize::from(index)].generation }
    }

    /// The slot of a command that is under way still.
    pub fn find(&self, tag: Tag) -> Option<&Slot> {
        self.get(tag.slot).filter(|slot| slot.stage != Stage::Free && slot.generation == tag.generation)
    }

    pub fn get(&self, index: u16) -> Option<&Slot> {
        self.slots.get(usize::from(index))
    }

    pub fn get_mut(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    /// Ends the command; returns the host's number of it.
    pub fn release(&mut self, index: u16) -> u16 {
        let slot = &mut self.slots[usize::from(index)];
        assert_ne!(slot.stage, Stage::Free, "slot {index} ends twice");
        slot.stage = Stage::Free;
        slot.generation = slot.generation.wrapping_add(1);
        slot.plan = None;
        slot.data = None;
        slot.received = None;
        slot.rest = None;
        self.free.push(index);
        slot.command
    }

    /// The slot of the command with this number, if it is in one of these stages.
    pub fn of_command(&self, command: u16, stages: &[Stage]) -> Option<u16> {
        let found = self.slots.iter().position(|slot| slot.command == command && stages.contains(&slot.stage));
        found.map(|index| index as u16)
    }
}

//! The commands of one queue that are under way: as many slots as the queue has entries.

use super::io::IoPlan;
use crate::wire::Sqe;
use runtime::IoBuf;

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
    /// It is with whoever executes it.
    Executing,
    /// An async event request, waiting for its event.
    Parked,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub stage: Stage,
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
}

impl Slot {
    pub fn received_bytes(&self) -> u32 {
        self.received.as_ref().map_or(0, |buf| buf.len() as u32)
    }
}

pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
}

impl Slots {
    pub fn new(entries: u16) -> Self {
        let mut slots = Self { slots: Vec::new(), free: Vec::new() };
        slots.resize(entries);
        slots
    }

    /// Makes room for `entries` commands; never shrinks.
    pub fn resize(&mut self, entries: u16) {
        for index in self.slots.len() as u16..entries {
            self.slots.push(Slot {
                stage: Stage::Free,
                command: 0,
                plan: None,
                len_bytes: 0,
                received: None,
                rest: None,
                intact: true,
            });
            self.free.push(index);
        }
        // Low numbers first: a queue that is never deep stays in few cache lines.
        self.free.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// A slot for a new command; `None` if the queue is full.
    pub fn take(&mut self, command: u16, stage: Stage, plan: Plan) -> Option<u16> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[usize::from(index)];
        slot.stage = stage;
        slot.command = command;
        slot.plan = Some(plan);
        slot.intact = true;
        Some(index)
    }

    pub fn is_full(&self) -> bool {
        self.free.is_empty()
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
        slot.plan = None;
        slot.received = None;
        slot.rest = None;
        self.free.push(index);
        slot.command
    }

    /// Slots in this stage.
    pub fn in_stage(&self, stage: Stage) -> impl Iterator<Item = u16> + '_ {
        self.slots.iter().enumerate().filter(move |(_, slot)| slot.stage == stage).map(|(index, _)| index as u16)
    }
}

//! How the head of a volume reaches a group, wherever that is led (docs/heads.md).
//!
//! ```text
//!   Access ── led here, on this core ──► Group                                     no message at all
//!      └───── led elsewhere ── request ──► the primary's core ── Group ── answer
//! ```
//!
//! **Promises.** What was asked and not answered may be done, once or several times, until the next request that
//! [`ask_again`](Access::ask_again) or [`settle`](Access::settle) lets out is answered, and never after: each such step
//! begins a new *attempt*, and a primary takes nothing of an older one; and whatever was sent to a primary of an earlier
//! epoch is void in a later one.
//!
//! **Never.** No waiting for the cluster's map: who leads is a hint, corrected by whoever is asked (H10).

pub(crate) mod calls;
pub(crate) mod serve;

use crate::error::GroupError;
use crate::group::{Group, GroupRef, Place, Placed, Sought, Stamp};
use crate::node::CoreGroups;
use crate::wire::{Answer, AnsweredBlock, Envelope, HeadMessage, Refusal, Request, RequestId, Wants};
use calls::Call;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use runtime::{Instant, IoBuf, SharedBuf, now};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;
use store::format::StoredLength;
use store::{AppendTimes, BlockCoding, Content, KnownBlock, StoredBlocks, Want, ZERO_BLOCK_CHECKSUM};
use types::{
    BLOCK_BYTES, BlockRange, ChunkId, Epoch, GroupId, Incarnation, LayerId, Mutant, NodeId, StoreId, VolumeEpoch,
    VolumeId, mutant,
};

/// Who is not led to by an answer asks again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Who leads a group, as far as a core knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Led {
    pub(crate) epoch: Epoch,
    pub(crate) primary: StoreId,
    /// There is no other member.
    pub(crate) is_alone: bool,
}

/// Of a request from another core: who sent it, and what it relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The core of a node, in one of its lives.
    pub(crate) node: NodeId,
    pub(crate) core: u16,
    pub(crate) life: Incarnation,
    /// Which attempt of that core at this group.
    pub(crate) attempt: u64,
    /// The group's epoch, as that core believed.
    pub(crate) epoch: Epoch,
}

/// See the module. One per group and core; lives on its core.
pub struct Access {
    core: Weak<CoreGroups>,
    group: GroupId,
    /// The member here that led last.
    here: RefCell<Option<GroupRef>>,
    /// Who was asked last.
    relied_on: Cell<Option<Led>>,
    /// Goes up when something that was asked is asked again.
    attempt: Cell<u64>,
    /// Reigns of heads that the group has taken something of: it was told their layers.
    told: RefCell<HashMap<VolumeId, VolumeEpoch, FixedState>>,
}

/// A change that was asked for. Dropped, it may be done all the same: see [`Access::settle`].
pub struct OnItsWay(Way);

enum Way {
    Here(GroupRef, Placed),
    There(Call, VolumeId, VolumeEpoch),
}

/// What a read brought.
pub enum Found {
    /// All blocks are in the buffer.
    Plain,
    /// The buffer is as it was; this is stored of the blocks.
    Stored(Blocks),
}

/// What is stored of the blocks of a read, verified.
pub struct Blocks(Stored);

enum Stored {
    Here(StoredBlocks),
    There(Vec<AnsweredBlock>, IoBuf),
}

impl Blocks {
    /// Tells of each block, in order: its length and codec and its bytes; nothing of one that is zeroes.
    pub fn for_each(&mut self, mut told: impl FnMut(Option<(StoredLength, &mut [u8])>)) {
        match &mut self.0 {
            Stored::Here(blocks) => blocks.for_each(|block| told(block.map(|(length, _, bytes)| (length, bytes)))),
            Stored::There(blocks, bytes) => {
                let mut rest = &mut bytes[..];
                for block in blocks {
                    told(block.map(|(_, length)| {
                        let (bytes, behind) = std::mem::take(&mut rest).split_at_mut(length.bytes());
                        rest = behind;
                        (length, bytes)
                    }));
                }
            }
        }
    }
}

impl Access {
    pub(crate) fn new(core: &Rc<CoreGroups>, group: GroupId) -> Rc<Self> {
        Rc::new(Self {
            core: Rc::downgrade(core),
            group,
            here: RefCell::default(),
            relied_on: Cell::new(None),
            attempt: Cell::new(1),
            told: RefCell::new(HashMap::with_hasher(FixedState::default())),
        })
    }

    /// The group.
    pub fn id(&self) -> GroupId {
        self.group
    }

    /// The member that leads, if it does so on this core.
    pub fn here(&self) -> Option<GroupRef> {
        let here = self.here.borrow();
        if let Some(group) = here.as_ref().filter(|group| group.leads_here()) {
            return Some(group.clone());
        }
        drop(here);
        let leads = self.core.upgrade()?.leading(self.group)?;
        *self.here.borrow_mut() = Some(leads.clone());
        Some(leads)
    }

    // ---- what is asked -------------------------------------------------------------------------------------------

    /// Has the blocks, as they are to be stored, written.
    ///
    /// # Errors
    /// If it was not asked for, or refused at once: see [`ask_again`](Self::ask_again).
    pub async fn write(
        &self,
        stamp: Stamp<'_>,
        place: Place,
        bytes: SharedBuf,
        coding: BlockCoding,
    ) -> Result<OnItsWay, GroupError> {
        if let Some(group) = self.here() {
            let placed = group.write(stamp, place, bytes, coding).await?;
            return Ok(OnItsWay(Way::Here(group, placed)));
        }
        let Place { layer, chunk, range } = place;
        self.change(stamp, Wants::Write { layer, chunk, range, bytes, coding })
    }

    /// Has the blocks read as zeroes. Nothing is to be done where none of the layers, newest first, holds anything.
    ///
    /// # Errors
    /// As of [`write`](Self::write).
    pub async fn zero(
        &self,
        stamp: Stamp<'_>,
        layers: &[LayerId],
        chunk: ChunkId,
        range: BlockRange,
    ) -> Result<Option<OnItsWay>, GroupError> {
        if let Some(group) = self.here() {
            let placed = zero(&group, stamp, layers, chunk, range).await?;
            return Ok(placed.map(|placed| OnItsWay(Way::Here(group, placed))));
        }
        self.change(stamp, Wants::Zero { layers: layers.to_vec(), chunk, range }).map(Some)
    }

    /// Lets the group know the head and its layers.
    ///
    /// # Errors
    /// As of [`write`](Self::write), and what came of it.
    pub async fn tell(&self, stamp: Stamp<'_>) -> Result<(), GroupError> {
        if let Some(group) = self.here() {
            return meet(&group, stamp).await;
        }
        self.told.borrow_mut().remove(&stamp.volume);
        self.wait(self.change(stamp, Wants::Nothing)?).await.map(drop)
    }

    fn change(&self, stamp: Stamp<'_>, wants: Wants) -> Result<OnItsWay, GroupError> {
        let call = self.send(stamp, wants)?;
        Ok(OnItsWay(Way::There(call, stamp.volume, stamp.epoch)))
    }

    /// Resolves when the change is committed; of one that was made here with the times of its way to the device.
    ///
    /// # Errors
    /// It is not, or nobody knows: see [`ask_again`](Self::ask_again).
    pub async fn wait(&self, change: OnItsWay) -> Result<AppendTimes, GroupError> {
        match change.0 {
            Way::Here(group, placed) => group.wait_committed(placed).await,
            Way::There(call, volume, epoch) => match self.heard(call, (volume, epoch)).await? {
                Answer::Done => Ok(AppendTimes::default()),
                other => Err(self.senseless(&other)),
            },
        }
    }

    /// Reads committed blocks: into `buf`, where plain ones are wanted and none is compressed, with one crc32c per block
    /// to `checksums`; says since when it could, if it had to wait. The buffer comes back in any case.
    pub async fn read(
        &self,
        stamp: Stamp<'_>,
        sought: Sought<'_>,
        mut buf: IoBuf,
        checksums: &mut Vec<u32>,
    ) -> (Result<(Found, Option<Instant>), GroupError>, IoBuf) {
        if let Some(group) = self.here() {
            let (reader, waited) = match group.reader(stamp).await {
                Ok(let_in) => let_in,
                Err(error) => return (Err(error), buf),
            };
            let (result, buf) = reader.read(sought, buf, checksums).await;
            let found = result.map(|content| match content {
                Content::Plain => Found::Plain,
                Content::Stored(blocks) => Found::Stored(Blocks(Stored::Here(blocks))),
            });
            return (found.map(|found| (found, waited)), buf);
        }
        let asked = now();
        let result = self.read_there(stamp, sought, &mut buf, checksums).await;
        (result.map(|found| (found, Some(asked))), buf)
    }

    async fn read_there(
        &self,
        stamp: Stamp<'_>,
        sought: Sought<'_>,
        buf: &mut IoBuf,
        checksums: &mut Vec<u32>,
    ) -> Result<Found, GroupError> {
        let Sought { layers, chunk, range, want } = sought;
        let call = self.send(stamp, Wants::Read { layers: layers.to_vec(), chunk, range })?;
        let (blocks, bytes) = match self.heard(call, (stamp.volume, stamp.epoch)).await? {
            Answer::Read(blocks, bytes) if blocks.len() == usize::from(range.count) => (blocks, bytes),
            other => return Err(self.senseless(&other)),
        };
        let is_raw = |block: &AnsweredBlock| block.is_none_or(|(_, length)| length == StoredLength::RAW);
        if want == Want::Stored || !blocks.iter().all(is_raw) {
            return Ok(Found::Stored(Blocks(Stored::There(blocks, IoBuf::copy_of(&bytes)))));
        }
        let mut rest = &bytes[..];
        for (block, out) in blocks.iter().zip(buf.chunks_exact_mut(BLOCK_BYTES)) {
            match block {
                Some((sum, _)) => {
                    let (block, behind) = rest.split_at(BLOCK_BYTES);
                    out.copy_from_slice(block);
                    checksums.push(sum.0);
                    rest = behind;
                }
                None => {
                    out.fill(0);
                    checksums.push(ZERO_BLOCK_CHECKSUM);
                }
            }
        }
        Ok(Found::Plain)
    }

    /// What is known of each block, committed ones only; replaces what `known` held. `sought.want` means nothing here.
    ///
    /// # Errors
    /// See [`ask_again`](Self::ask_again).
    pub async fn known_blocks(
        &self,
        stamp: Stamp<'_>,
        sought: Sought<'_>,
        known: &mut Vec<KnownBlock>,
    ) -> Result<(), GroupError> {
        if let Some(group) = self.here() {
            let (reader, _) = group.reader(stamp).await?;
            return reader.known_blocks(sought, known);
        }
        let Sought { layers, chunk, range, .. } = sought;
        let call = self.send(stamp, Wants::Status { layers: layers.to_vec(), chunk, range })?;
        match self.heard(call, (stamp.volume, stamp.epoch)).await? {
            Answer::Known(blocks) if blocks.len() == usize::from(range.count) => {
                *known = blocks;
                Ok(())
            }
            other => Err(self.senseless(&other)),
        }
    }

    // ---- again ---------------------------------------------------------------------------------------------------

    /// After this error the same may be asked again, and is when this resolves.
    ///
    /// # Errors
    /// The same, if it is no use.
    pub async fn ask_again(&self, error: GroupError) -> Result<(), GroupError> {
        let core = self.core()?;
        let is_alone = core.led(self.group).is_none_or(|led| led.is_alone);
        match &error {
            // What was asked before must not be done when this is answered.
            GroupError::Unknown { .. } => self.begin_attempt(),
            GroupError::NotPrimary { .. } => {}
            GroupError::Stopped { .. } if !is_alone => {}
            _ => return Err(error),
        }
        let before = if self.here().is_some() { core.led(self.group) } else { self.relied_on.get() };
        let _ = runtime::timeout(AGAIN_AFTER, core.led_changed(self.group, before)).await;
        Ok(())
    }

    /// Resolves when all that was asked before is done, or never will be: for who asked for a change and does not wait
    /// for it any more.
    ///
    /// # Errors
    /// The volume has another head, or the group is of no use any more.
    pub async fn settle(&self, stamp: Stamp<'_>) -> Result<(), GroupError> {
        self.begin_attempt();
        loop {
            match self.tell(stamp).await {
                Ok(()) => return Ok(()),
                Err(error) => self.ask_again(error).await?,
            }
        }
    }

    fn core(&self) -> Result<Rc<CoreGroups>, GroupError> {
        let ended = || GroupError::Stopped { group: self.group, reason: "its node has ended".to_owned() };
        self.core.upgrade().ok_or_else(ended)
    }

    fn begin_attempt(&self) {
        self.attempt.set(self.attempt.get() + 1);
    }

    // ---- messages ------------------------------------------------------------------------------------------------

    fn send(&self, stamp: Stamp<'_>, wants: Wants) -> Result<Call, GroupError> {
        let nobody = || GroupError::NotPrimary { group: self.group, primary: None };
        let core = self.core()?;
        self.relied_on.set(core.led(self.group));
        let led = self.relied_on.get().ok_or_else(nobody)?;
        let link = core.link_to(led.primary, self.group).ok_or_else(nobody)?;
        let is_told = self.told.borrow().get(&stamp.volume) == Some(&stamp.epoch);
        let told = if is_told { Vec::new() } else { stamp.layers.to_vec() };
        let request = Request { volume: stamp.volume, epoch: stamp.epoch, group_epoch: led.epoch, told, wants };
        let number = core.calls().next();
        let envelope = Envelope {
            incarnation: core.life(),
            receiver: led.primary,
            group: self.group,
            request: RequestId(number),
            attempt: self.attempt.get(),
            ..Envelope::default()
        };
        if !link.push_head(&envelope, &HeadMessage::Request(request)) {
            return Err(nobody());
        }
        Ok(core.calls().begin(number, &link))
    }

    /// The answer, if it is none that says no.
    async fn heard(&self, call: Call, (volume, epoch): (VolumeId, VolumeEpoch)) -> Result<Answer, GroupError> {
        let group = self.group;
        let refusal = match call.answer().await {
            Answer::Refused(refusal) => refusal,
            answer => {
                self.told.borrow_mut().insert(volume, epoch);
                return Ok(answer);
            }
        };
        Err(match refusal {
            Refusal::NotPrimary { primary, epoch } => {
                if let Some(primary) = primary {
                    self.core()?.heard_who_leads(group, epoch, primary);
                }
                GroupError::NotPrimary { group, primary }
            }
            Refusal::Untold => {
                self.told.borrow_mut().remove(&volume);
                GroupError::NotPrimary { group, primary: None }
            }
            Refusal::Busy => GroupError::NotPrimary { group, primary: None },
            Refusal::OldHead { seen } => GroupError::OldHead { volume, asked: epoch, seen },
            Refusal::NoSpace { reason } => GroupError::NoSpaceThere { reason },
            Refusal::Damaged { reason } => GroupError::DamagedThere { group, reason },
            Refusal::Stopped { reason } => GroupError::Stopped { group, reason: reason.to_string() },
            Refusal::Unknown => GroupError::Unknown { group },
        })
    }

    #[cold]
    fn senseless(&self, answer: &Answer) -> GroupError {
        log::error!("group {}: a request was answered with what was not asked for: {answer:?}", self.group);
        GroupError::Unknown { group: self.group }
    }
}

/// Makes the blocks read as zeroes, if there is anything that they would hide.
async fn zero(
    group: &Group,
    stamp: Stamp<'_>,
    layers: &[LayerId],
    chunk: ChunkId,
    range: BlockRange,
) -> Result<Option<Placed>, GroupError> {
    // What an older head got prepared is decided first, and nothing more of it comes.
    group.reader(stamp).await?;
    if !layers.iter().any(|&layer| group.holds(layer, chunk)) {
        return Ok(None);
    }
    let place = Place { layer: layers[0], chunk, range };
    let hides_below = layers.len() > 1 && !mutant(Mutant::DiscardRevealsBelow);
    group.zero(stamp, place, hides_below).await.map(Some)
}

/// The group knows the head and its layers, and that is committed.
async fn meet(group: &Group, stamp: Stamp<'_>) -> Result<(), GroupError> {
    group.reader(stamp).await?;
    group.tell_layers(stamp.layers).await?;
    group.wait_begun().await
}

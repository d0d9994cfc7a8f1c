//! How the head of a volume reaches a group, wherever that is led (docs/heads.md).
//!
//! ```text
//!   Access ── led here, on this core ──► Group                                     no message at all
//!      └───── led elsewhere ── request ──► the primary's core ── Group ── answer
//! ```
//!
//! **Promises.** What was asked and not answered may be done, once or several times, until [`settle`](Access::settle)
//! resolves, or a change that was asked for behind [`ask_again`](Access::ask_again) is committed; and never after: each such
//! step begins a new *attempt*, of which a primary takes nothing older; and whatever was sent to a primary of an earlier epoch
//! is void in a later one. An answered read decides nothing of it.
//!
//! **Never.** No waiting for the cluster's map: who leads is a hint, corrected by whoever is asked (H10).

pub(crate) mod calls;
pub(crate) mod serve;

use crate::error::GroupError;
use crate::group::{Group, GroupRef, Place, Placed, Sought, Stamp};
use crate::layers::LayerEnd;
use crate::node::CoreGroups;
use crate::protocol::{Asker, Outcome, next_attempt};
use crate::wire::{Answer, AnsweredBlock, Envelope, HeadMessage, Piece, Refusal, Request, RequestId, Wants};
use calls::Call;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use runtime::{Instant, IoBuf, SharedBuf, now};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;
use store::format::{LayerRecord, StoredLength};
use store::{AppendTimes, BlockCoding, Content, KnownBlock, StoredBlocks, Want, ZERO_BLOCK_CHECKSUM};
use types::{
    BLOCK_BYTES, BlockRange, ChunkId, Epoch, GroupId, LayerId, Mutant, StoreId, VolumeEpoch, VolumeId, mutant,
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
    pub(crate) asker: Asker,
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
    /// Reigns of heads that the group has taken something of, and the layer on top that it was told then.
    told: RefCell<HashMap<VolumeId, (VolumeEpoch, LayerId), FixedState>>,
}

/// A change that was asked for. Dropped, it may be done all the same: see [`Access::settle`].
pub struct OnItsWay(Way);

enum Way {
    Here(GroupRef, Placed),
    There(Call, Told),
    /// What was asked one after the other.
    Several(Box<Several>),
    /// Nobody knows, or waits for, what becomes of it.
    Lost,
}

/// Changes that were not waited for, and what is known of those before.
struct Several {
    rest: VecDeque<Way>,
    so_far: Result<AppendTimes, GroupError>,
}

/// What a group knows of a volume when it has taken something of its head.
#[derive(Clone, Copy)]
struct Told {
    volume: VolumeId,
    epoch: VolumeEpoch,
    top: LayerId,
}

impl From<Stamp<'_>> for Told {
    fn from(stamp: Stamp<'_>) -> Self {
        Self { volume: stamp.volume, epoch: stamp.epoch, top: stamp.top().unwrap_or_default() }
    }
}

impl OnItsWay {
    /// What nobody can wait for any more: whether it is done, or will be, only [`Access::settle`] decides.
    pub fn lost() -> Self {
        Self(Way::Lost)
    }

    /// This and what was asked behind it, of the same group.
    pub fn and(self, more: Self) -> Self {
        Self(match (self.0, more.0) {
            (Way::Here(group, first), Way::Here(other, last)) => {
                // Who led in between is not known: what becomes of the first, becomes of all.
                let is_behind = Rc::ptr_eq(&group, &other) && last.is_of_reign_of(first);
                Way::Here(group, if is_behind { last } else { first })
            }
            (Way::Several(mut several), more) => {
                several.rest.push_back(more);
                Way::Several(several)
            }
            (first, more) => {
                Way::Several(Box::new(Several { rest: [first, more].into(), so_far: Ok(AppendTimes::default()) }))
            }
        })
    }
}

/// What a read brought.
pub enum Found {
    /// All blocks are in the buffer.
    Plain,
    /// The buffer is as it was; all blocks are plain and in order where the answer came to.
    There(SharedBuf),
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
        self.change(stamp, Wants::Write { layer, chunk, range, bytes, coding }).await
    }

    /// The same of several pieces of a chunk, in one request to who leads elsewhere.
    ///
    /// # Errors
    /// As of [`write`](Self::write); also if the group is led here by now.
    pub async fn write_there(
        &self,
        stamp: Stamp<'_>,
        layer: LayerId,
        chunk: ChunkId,
        pieces: Vec<Piece>,
    ) -> Result<OnItsWay, GroupError> {
        self.change(stamp, Wants::WriteAll { layer, chunk, pieces }).await
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
        self.change(stamp, Wants::Zero { layers: layers.to_vec(), chunk, range }).await.map(Some)
    }

    /// Whether the group has answered this head over a connection, which it does when the raise of the epoch is committed.
    pub fn has_answered(&self, volume: VolumeId, epoch: VolumeEpoch) -> bool {
        self.told.borrow().get(&volume).is_some_and(|(told, _)| *told == epoch)
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
        self.wait(&mut self.change(stamp, Wants::Nothing).await?).await.map(drop)
    }

    /// Has all that the group holds of a layer merged into its only child, or deleted if that has none. `told`: the child
    /// and what lies below it.
    ///
    /// # Errors
    /// If it is not known that nothing is left: it may be asked for again, whatever the error.
    pub async fn end_layer(&self, keeper: Stamp<'_>, told: &[LayerRecord], end: LayerEnd) -> Result<(), GroupError> {
        match self.here() {
            Some(group) => group.end_layer(keeper, told, end).await,
            None => self.have_done(keeper, told, Wants::End(end)).await,
        }
    }

    /// The group holds nothing of the layer any more: it is gone.
    ///
    /// # Errors
    /// As of [`end_layer`](Self::end_layer).
    pub async fn forget_layer(&self, keeper: Stamp<'_>, layer: LayerId) -> Result<(), GroupError> {
        match self.here() {
            Some(group) => group.forget_layer(keeper, layer).await,
            None => self.have_done(keeper, &[], Wants::Forget { layer }).await,
        }
    }

    async fn have_done(&self, keeper: Stamp<'_>, told: &[LayerRecord], wants: Wants) -> Result<(), GroupError> {
        self.room().await?;
        let mut call = self.send_told(keeper.into(), told.to_vec(), wants)?;
        match self.heard(&mut call, keeper.into()).await? {
            Answer::Done => Ok(()),
            other => Err(self.senseless(&other)),
        }
    }

    async fn change(&self, stamp: Stamp<'_>, wants: Wants) -> Result<OnItsWay, GroupError> {
        self.room().await?;
        let call = self.send(stamp, wants)?;
        Ok(OnItsWay(Way::There(call, stamp.into())))
    }

    /// Resolves when the change is committed; of one that was made here with the times of its way to the device. Once:
    /// dropped before, it may be called again.
    ///
    /// # Errors
    /// It is not, or nobody knows: see [`ask_again`](Self::ask_again).
    pub async fn wait(&self, change: &mut OnItsWay) -> Result<AppendTimes, GroupError> {
        match &mut change.0 {
            Way::Several(several) => Box::pin(self.wait_for_all(several)).await,
            way => self.wait_for(way).await,
        }
    }

    /// All of them have an outcome when this resolves; nobody knows it of all if nobody does of one.
    async fn wait_for_all(&self, several: &mut Several) -> Result<AppendTimes, GroupError> {
        while let Some(first) = several.rest.front_mut() {
            let one = self.wait_for(first).await;
            several.rest.pop_front();
            let is_unknown = matches!(one, Err(GroupError::Unknown { .. }));
            if is_unknown || several.so_far.is_ok() {
                several.so_far = one;
            }
        }
        several.so_far.clone()
    }

    async fn wait_for(&self, way: &mut Way) -> Result<AppendTimes, GroupError> {
        match way {
            Way::Here(group, placed) => group.wait_committed(*placed).await,
            Way::There(call, told) => match self.heard(call, *told).await? {
                Answer::Done => Ok(AppendTimes::default()),
                other => Err(self.senseless(&other)),
            },
            Way::Lost => Err(GroupError::Unknown { group: self.group }),
            Way::Several(_) => unreachable!("several are not among several"),
        }
    }

    /// Reads committed blocks: into `buf`, where plain ones are wanted, none is compressed, and they have not come in one piece from
    /// another core or node; with one crc32c per block to `checksums`. Says since when it could, if it had to wait. The buffer
    /// comes back in any case.
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
        self.room().await?;
        let mut call = self.send(stamp, Wants::Read { layers: layers.to_vec(), chunk, range })?;
        let (blocks, bytes) = match self.heard(&mut call, stamp.into()).await? {
            Answer::Read(blocks, bytes) if blocks.len() == usize::from(range.count) => (blocks, bytes),
            other => return Err(self.senseless(&other)),
        };
        let is_raw = |block: &AnsweredBlock| block.is_none_or(|(_, length)| length == StoredLength::RAW);
        if want == Want::Stored || !blocks.iter().all(is_raw) {
            return Ok(Found::Stored(Blocks(Stored::There(blocks, IoBuf::copy_of(&bytes)))));
        }
        if bytes.len() == range.bytes() {
            checksums.extend(blocks.iter().flatten().map(|(sum, _)| sum.0));
            return Ok(Found::There(bytes));
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
        self.room().await?;
        let mut call = self.send(stamp, Wants::Status { layers: layers.to_vec(), chunk, range })?;
        match self.heard(&mut call, stamp.into()).await? {
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
        let Some(attempt) = next_attempt(self.attempt.get(), self.came_to(&core, &error)) else { return Err(error) };
        self.attempt.set(attempt);
        let before = if self.here().is_some() { core.led(self.group) } else { self.relied_on.get() };
        let _ = runtime::timeout(AGAIN_AFTER, core.led_changed(self.group, before)).await;
        Ok(())
    }

    /// Whether what failed with this error may be served later, without anybody's doing.
    pub fn may_serve_later(&self, error: &GroupError) -> bool {
        self.core().is_ok_and(|core| !matches!(self.came_to(&core, error), Outcome::Refused))
    }

    fn came_to(&self, core: &CoreGroups, error: &GroupError) -> Outcome {
        let is_alone = core.led(self.group).is_none_or(|led| led.is_alone);
        match error {
            GroupError::Unknown { .. } => Outcome::Unknown,
            GroupError::NotPrimary { .. } => Outcome::NotDone,
            GroupError::Stopped { .. } if !is_alone => Outcome::NotDone,
            _ => Outcome::Refused,
        }
    }

    /// Resolves when all that was asked before is done, or never will be: for who asked for a change and does not wait
    /// for it any more.
    ///
    /// # Errors
    /// The volume has another head, or the group is of no use any more.
    pub async fn settle(&self, stamp: Stamp<'_>) -> Result<(), GroupError> {
        let attempt = next_attempt(self.attempt.get(), Outcome::Unknown);
        self.attempt.set(attempt.expect("what became of it is still to be known"));
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

    // ---- messages ------------------------------------------------------------------------------------------------

    /// Waits as long as what was asked before fills the connection to who leads the group.
    async fn room(&self) -> Result<(), GroupError> {
        loop {
            let core = self.core()?;
            let link = core.led(self.group).and_then(|led| core.link_to(led.primary, self.group));
            let Some(link) = link.filter(|link| !link.is_closed() && !link.has_room_for_heads()) else { return Ok(()) };
            drop(core);
            // Somebody else may lead by then.
            let _ = runtime::timeout(AGAIN_AFTER, link.room_for_heads()).await;
        }
    }

    fn send(&self, stamp: Stamp<'_>, wants: Wants) -> Result<Call, GroupError> {
        let told = Told::from(stamp);
        let is_told = self.told.borrow().get(&stamp.volume) == Some(&(told.epoch, told.top));
        self.send_told(told, if is_told { Vec::new() } else { stamp.layers.to_vec() }, wants)
    }

    fn send_told(&self, head: Told, told: Vec<LayerRecord>, wants: Wants) -> Result<Call, GroupError> {
        let nobody = || GroupError::NotPrimary { group: self.group, primary: None };
        let core = self.core()?;
        self.relied_on.set(core.led(self.group));
        let led = self.relied_on.get().ok_or_else(nobody)?;
        if led.is_alone
            && let Some(reason) = core.stopped_alone(self.group, led.primary)
        {
            return Err(GroupError::Stopped { group: self.group, reason });
        }
        let link = core.link_to(led.primary, self.group).ok_or_else(nobody)?;
        let request = Request { volume: head.volume, epoch: head.epoch, group_epoch: led.epoch, told, wants };
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
        Ok(core.calls().begin(number, &link, (self.group, led.primary)))
    }

    /// The answer, if it is none that says no.
    async fn heard(&self, call: &mut Call, head: Told) -> Result<Answer, GroupError> {
        let (group, Told { volume, epoch, top }) = (self.group, head);
        let refusal = match call.answer().await {
            Answer::Refused(refusal) => refusal,
            answer => {
                if !volume.is_keeper() {
                    self.told.borrow_mut().insert(volume, (epoch, top));
                }
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
            Refusal::NotHeld => GroupError::NotHeld { group },
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

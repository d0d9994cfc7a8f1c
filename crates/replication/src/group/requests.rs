//! What heads ask of a group, at its primary: places in its order, and what is committed.

use super::catching_up::{Mender, is_anybody_away};
use super::{Group, Placed};
use crate::access::Sent;
use crate::error::GroupError;
use crate::protocol::{Claim, Entered, NotTaken, VolumeReign, may_answer, raise_in_log};
use crate::shard::GroupShard;
use runtime::{Instant, IoBuf, SharedBuf, now};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use store::format::LayerRecord;
use store::{AppendError, AppendTimes, BlockCoding, Content, Entry, EntryKind, KnownBlock, ReadError, Want};
use types::{BlockRange, ChunkId, FamilyId, LayerId, Mutant, Seq, VolumeEpoch, VolumeId, mutant};

/// What a head says of itself with every request.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    pub(crate) volume: VolumeId,
    pub(crate) epoch: VolumeEpoch,
    pub(crate) layers: &'a [LayerRecord],
    /// Where it comes from, if not from this core.
    sent: Option<Sent>,
}

impl<'a> Stamp<'a> {
    /// The volume, the reign of its head, and the volume's layers, for a group that has not seen them.
    pub fn new(volume: VolumeId, epoch: VolumeEpoch, layers: &'a [LayerRecord]) -> Self {
        Self { volume, epoch, layers, sent: None }
    }

    /// The same of the keeper of a family, who ends layers.
    pub fn of_keeper(family: FamilyId, epoch: VolumeEpoch) -> Self {
        Self { volume: VolumeId::of_keeper(family), epoch, layers: &[], sent: None }
    }

    /// Whether the group has to know layers of who sent this before it does anything.
    fn is_to_tell(&self) -> bool {
        self.sent.is_some() && self.layers.is_empty() && !self.volume.is_keeper()
    }

    fn claim(&self) -> Claim {
        let Self { volume, epoch, .. } = *self;
        Claim { volume, epoch, top: self.top(), is_to_tell: self.is_to_tell() }
    }

    /// The layer that is written to.
    pub(crate) fn top(&self) -> Option<LayerId> {
        self.layers.last().map(|record| record.layer)
    }

    /// The same of a request from another core. No layers: the group was told them.
    pub(crate) fn of_another(volume: VolumeId, epoch: VolumeEpoch, layers: &'a [LayerRecord], sent: Sent) -> Self {
        Self { volume, epoch, layers, sent: Some(sent) }
    }
}

/// Where a request's blocks are.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The layer that is written to.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkId,
    /// The blocks.
    pub range: BlockRange,
}

/// What is to be read.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'a> {
    /// Newest first; a block is that of the first that knows it.
    pub layers: &'a [LayerId],
    /// The chunk.
    pub chunk: ChunkId,
    /// The blocks.
    pub range: BlockRange,
    /// As what.
    pub want: Want,
}

impl Group {
    /// Gives the blocks, as they are to be stored, a place in the order, once there is room. They are committed when
    /// [`wait_committed`](Self::wait_committed) of the answer says so.
    ///
    /// # Errors
    /// If nothing was queued.
    pub async fn write(
        &self,
        stamp: Stamp<'_>,
        place: Place,
        bytes: SharedBuf,
        coding: BlockCoding,
    ) -> Result<Placed, GroupError> {
        let len = bytes.len();
        // Once for its own device and for all members.
        let coding = coding.summed(place.range.count, &bytes);
        if mutant(Mutant::WriteWaitsForMap) && now() >= self.session_until() {
            return Err(self.not_primary(&self.member.borrow()));
        }
        loop {
            self.wait_for_room(len).await?;
            self.wait_until_free(place.chunk).await?;
            if self.enter(stamp)?.is_none() {
                Box::pin(self.wait_for_segments()).await?;
                continue;
            }
            self.check_members_room(place, len)?;
            let kind = EntryKind::Write { range: place.range, bytes: bytes.clone(), coding: coding.clone() };
            match self.submit(stamp.epoch, place.layer, place.chunk, kind, len)? {
                Some(placed) => return Ok(placed),
                None => Box::pin(self.wait_for_segments()).await?,
            }
        }
    }

    /// Makes the blocks read as zeroes, in the order; `hides_below`: whether a lower layer may hold something there.
    ///
    /// # Errors
    /// If nothing was queued.
    pub async fn zero(&self, stamp: Stamp<'_>, place: Place, hides_below: bool) -> Result<Placed, GroupError> {
        loop {
            self.wait_for_room(0).await?;
            self.wait_until_free(place.chunk).await?;
            if self.enter(stamp)?.is_none() {
                Box::pin(self.wait_for_segments()).await?;
                continue;
            }
            let kind = EntryKind::Zero { range: place.range, hides_below };
            match self.submit(stamp.epoch, place.layer, place.chunk, kind, 0)? {
                Some(placed) => return Ok(placed),
                None => Box::pin(self.wait_for_segments()).await?,
            }
        }
    }

    /// Lets a reader in, which is to read in this turn; and says since when it could, if it had to wait.
    pub async fn reader(&self, stamp: Stamp<'_>) -> Result<(Reader<'_>, Option<Instant>), GroupError> {
        let mut waited = None;
        while !self.lets_read(stamp)? {
            Box::pin(self.wait_to_read(stamp)).await?;
            waited = Some(now());
        }
        let shard = self.its_shard()?;
        Ok((Reader { group: self, shard }, waited))
    }

    /// Whether a reader need not wait.
    fn lets_read(&self, stamp: Stamp<'_>) -> Result<bool, GroupError> {
        if mutant(Mutant::HintTrusted) {
            return Ok(true);
        }
        let has_room = self.room_now(0).transpose()?.is_some();
        let is_committed = |raised_at| may_answer(raised_at, self.committed());
        Ok(has_room && self.enter(stamp)?.is_some_and(is_committed) && self.has_lease())
    }

    async fn wait_to_read(&self, stamp: Stamp<'_>) -> Result<(), GroupError> {
        self.wait_for_room(0).await?;
        match self.enter(stamp)? {
            Some(raised_at) => self.wait_for_commit_of_another(raised_at).await?,
            None => self.wait_for_segments().await?,
        }
        let leased = || match self.room_now(0) {
            Some(Err(error)) => Some(Err(error)),
            _ => self.has_lease().then_some(Ok(())),
        };
        self.room.until(leased).await
    }

    /// The group was given up because the device is slow, and may never answer: who waits for a read of it asks elsewhere.
    pub(crate) fn reads_elsewhere(&self) {
        self.is_slow_here.set(true);
        runtime::wake_all_tasks();
    }

    /// What a read brings; nothing once others are to be asked for it.
    async fn unless_elsewhere<T>(&self, mut read: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        poll_fn(|cx| match read.as_mut().poll(cx) {
            Poll::Pending if self.is_slow_here.get() => Poll::Ready(None),
            answer => answer.map(Some),
        })
        .await
    }

    /// Whether what the index says in this turn is what the group holds (R7).
    fn has_lease(&self) -> bool {
        self.member.borrow().may_read(now(), self.session_until())
    }

    pub(crate) fn its_shard(&self) -> Result<Rc<GroupShard>, GroupError> {
        self.shard.upgrade().ok_or_else(|| self.stopped_error())
    }

    pub(super) fn session_until(&self) -> Instant {
        let outside = self.shard.upgrade().and_then(|shard| shard.outside());
        outside.map_or(Instant(u64::MAX), |outside| outside.session_until())
    }

    #[cold]
    fn read_error(&self, error: ReadError) -> GroupError {
        if let ReadError::Stopped { reason } = error {
            return GroupError::Stopped { group: self.id, reason: reason.to_string() };
        }
        match self.note_damage(&error) {
            // Another read met damage first, and the group was given up: whoever leads now says whether it has this.
            Mender::Nobody if !self.member.borrow().leads() && !mutant(Mutant::DamageSaidFinal) => {}
            Mender::Nobody => return GroupError::Damaged { group: self.id, error },
            // It leads when it is whole.
            Mender::AnotherSoon => {}
            Mender::Another => {
                log::warn!(
                    "group {}: {error}; another member takes over, and this one gets the chunk from it",
                    self.id
                );
                self.with(|member| member.give_up(None));
            }
        }
        GroupError::NotPrimary { group: self.id, primary: None }
    }

    /// Whether any block of the chunk may be stored in `layer`; only what is committed counts.
    pub fn holds(&self, layer: LayerId, chunk: ChunkId) -> bool {
        !self.has_lease() || self.shard.upgrade().is_none_or(|shard| shard.store().holds(layer, chunk))
    }

    /// Resolves when the entry is committed, with the times of its way to the device. Only who was given `placed` may wait
    /// for it.
    ///
    /// # Errors
    /// The group stopped, or has another primary: the outcome is unknown.
    pub async fn wait_committed(&self, placed: Placed) -> Result<AppendTimes, GroupError> {
        poll_fn(|cx| {
            let mut window = self.window.borrow_mut();
            if window.reign() != placed.reign {
                return Poll::Ready(Err(self.unknown()));
            }
            if window.committed() >= placed.seq {
                // Who waits is woken by the settling of its record and runs before the next is settled.
                return Poll::Ready(Ok(self.shard.upgrade().map(|shard| shard.settled()).unwrap_or_default()));
            }
            if self.stopped.get().is_some() {
                return Poll::Ready(Err(self.stopped_error()));
            }
            window.wait_for(placed.seq, cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Resolves when everything queued so far is committed.
    pub(crate) async fn wait_begun(&self) -> Result<(), GroupError> {
        let last = self.window.borrow().last();
        self.wait_for_commit_of_another(last).await
    }

    /// Resolves when it leads, and all that it had before is committed, or never will.
    pub(crate) async fn has_begun_alone(&self) {
        self.room.until(|| (self.is_leading.get() || self.stopped.get().is_some()).then_some(())).await;
        // Who stops here says so itself.
        let _ = self.wait_begun().await;
    }

    async fn wait_for_commit_of_another(&self, seq: Seq) -> Result<(), GroupError> {
        let reign = self.window.borrow().reign();
        let committed = || {
            if self.window.borrow().reign() != reign {
                return Some(Err(self.unknown()));
            }
            if self.committed() >= seq {
                return Some(Ok(()));
            }
            self.stopped.get().map(|_| Err(self.stopped_error()))
        };
        match committed() {
            Some(known) => known,
            None => self.commits.until(committed).await,
        }
    }

    /// Waits until the group serves and an entry of `bytes` may be queued.
    pub(crate) async fn wait_for_room(&self, bytes: usize) -> Result<(), GroupError> {
        match self.room_now(bytes) {
            Some(ready) => ready,
            None => self.room.until(|| self.room_now(bytes)).await,
        }
    }

    /// Whether it serves and an entry of `bytes` may be queued; nothing, if not yet.
    fn room_now(&self, bytes: usize) -> Option<Result<(), GroupError>> {
        if self.stopped.get().is_some() {
            return Some(Err(self.stopped_error()));
        }
        if self.is_leading.get() {
            return self.window.borrow().has_room(bytes).then_some(Ok(()));
        }
        let member = self.member.borrow();
        (!member.leads()).then(|| Err(self.not_primary(&member)))
    }

    /// Refuses new blocks if a member that counts has no room for them (R17).
    fn check_members_room(&self, place: Place, len: usize) -> Result<(), GroupError> {
        let member = self.member.borrow();
        if member.is_alone() || mutant(Mutant::FullMemberIgnored) {
            return Ok(());
        }
        let Some(shard) = self.shard.upgrade() else { return Ok(()) };
        let full = shard.outside().and_then(|outside| outside.full_among(&member.record().in_sync));
        match full.filter(|_| !shard.store().is_overwrite(place.layer, place.chunk, place.range, len)) {
            Some(store) => Err(GroupError::MemberFull { group: self.id, store }),
            None => Ok(()),
        }
    }

    /// Waits while the chunk's writers are held.
    async fn wait_until_free(&self, chunk: ChunkId) -> Result<(), GroupError> {
        let is_held = || self.held_for.get().is_some() || self.held.borrow().contains(&chunk);
        if !is_held() {
            return Ok(());
        }
        let free = || match self.room_now(0) {
            Some(Err(error)) => Some(Err(error)),
            _ => (!is_held()).then_some(Ok(())),
        };
        self.room.until(free).await
    }

    /// Waits until the store has cleaned more.
    #[cold]
    pub(crate) async fn wait_for_segments(&self) -> Result<(), GroupError> {
        let shard = self.its_shard()?;
        shard.room().await.map_err(|error| {
            self.stop(&error.to_string());
            self.stopped_error()
        })
    }

    /// Lets a request of this head in: refuses it if a later head was seen, and puts the entry that raises the
    /// volume's epoch before it if it is the head's first. What the head reads is read after that entry is committed.
    /// `None`: not before the store has cleaned more.
    fn enter(&self, stamp: Stamp<'_>) -> Result<Option<Seq>, GroupError> {
        if let Some(sent) = &stamp.sent {
            self.admit(sent)?;
        }
        let entered = self.heads.borrow().enter(stamp.claim());
        match entered {
            Ok(Entered::At(raised_at)) => Ok(Some(raised_at)),
            Ok(Entered::Tell) => self.hear_of_layers(stamp),
            Ok(Entered::Raise) => self.raise(stamp),
            Err(why) => Err(self.not_taken(why, stamp.volume, stamp.epoch)),
        }
    }

    #[cold]
    fn not_taken(&self, why: NotTaken, volume: VolumeId, asked: VolumeEpoch) -> GroupError {
        match why {
            NotTaken::Older(seen) => GroupError::OldHead { volume, asked, seen },
            NotTaken::Untold => GroupError::Untold { group: self.id, volume },
            NotTaken::NotLed => self.not_primary(&self.member.borrow()),
            NotTaken::Overtaken => GroupError::Overtaken { group: self.id },
        }
    }

    /// Lets a request of another core in, and nothing that it sent before it began this attempt: what of that has no place
    /// in the order yet gets none.
    ///
    /// # Errors
    /// It relies on another epoch of the group, or was overtaken.
    pub(crate) fn admit(&self, sent: &Sent) -> Result<(), GroupError> {
        let member = self.member.borrow();
        let leads_in = member.leads().then(|| member.record().epoch);
        drop(member);
        let admitted = self.heads.borrow_mut().admit(sent.asker, sent.attempt, sent.epoch, leads_in);
        admitted.map_err(|why| self.not_taken(why, VolumeId(0), VolumeEpoch(0)))
    }

    /// The head goes on with another layer than it told the group of last.
    #[cold]
    fn hear_of_layers(&self, stamp: Stamp<'_>) -> Result<Option<Seq>, GroupError> {
        if !self.try_tell_all(stamp)? {
            return Ok(None);
        }
        // Whoever is answered may rely on the layers, too.
        let told_at = self.window.borrow().last();
        self.heads.borrow_mut().told(stamp.volume, stamp.top(), told_at);
        Ok(Some(told_at))
    }

    fn try_tell_all(&self, stamp: Stamp<'_>) -> Result<bool, GroupError> {
        let below = if mutant(Mutant::ParentUntold) { stamp.layers.len().saturating_sub(1) } else { 0 };
        for record in &stamp.layers[below..] {
            if !self.try_tell_layer(stamp.epoch, record)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[cold]
    fn raise(&self, stamp: Stamp<'_>) -> Result<Option<Seq>, GroupError> {
        if !self.try_tell_all(stamp)? {
            return Ok(None);
        }
        let raised_at = raise_in_log(self.committed(), || {
            let kind = EntryKind::VolumeEpoch { volume: stamp.volume };
            self.submit(stamp.epoch, LayerId(0), ChunkId(0), kind, 0).map(|placed| Some(placed?.seq))
        })?;
        let Some(raised_at) = raised_at else { return Ok(None) };
        let reign = VolumeReign { epoch: stamp.epoch, raised_at, top: stamp.top().unwrap_or_default() };
        self.heads.borrow_mut().raised(stamp.volume, reign);
        Ok(Some(raised_at))
    }

    /// Lets the members know a layer, if the group has not been told of it in this reign. Returns false if that has to
    /// wait until the store has cleaned more.
    pub(crate) fn try_tell_layer(&self, epoch: VolumeEpoch, record: &LayerRecord) -> Result<bool, GroupError> {
        if self.layers.borrow().contains(&record.layer) {
            return Ok(true);
        }
        let told = self.submit(epoch, record.layer, ChunkId(0), EntryKind::Layer { record: *record }, 0)?;
        if told.is_some() {
            self.layers.borrow_mut().insert(record.layer);
        }
        Ok(told.is_some())
    }

    /// Queues an entry of no length and of no chunk alone, once the store takes it.
    pub(crate) async fn submit_for(
        &self,
        stamp: Stamp<'_>,
        layer: LayerId,
        kind: EntryKind,
    ) -> Result<Placed, GroupError> {
        loop {
            self.wait_for_room(0).await?;
            let queued = match self.enter(stamp)? {
                Some(_) => self.submit(stamp.epoch, layer, ChunkId(0), kind.clone(), 0)?,
                None => None,
            };
            match queued {
                Some(placed) => return Ok(placed),
                None => self.wait_for_segments().await?,
            }
        }
    }

    /// Gives an entry its (epoch, seq), in the log of this store first; the other members are sent it at the end of the
    /// turn. `None`: not before the store has cleaned more.
    pub(crate) fn submit(
        &self,
        volume_epoch: VolumeEpoch,
        layer: LayerId,
        chunk: ChunkId,
        kind: EntryKind,
        bytes: usize,
    ) -> Result<Option<Placed>, GroupError> {
        let shard = self.its_shard()?;
        let mut member = self.member.borrow_mut();
        let Some((term, seq)) = member.next_place() else { return Err(self.not_primary(&member)) };
        let entry = Entry { group: self.id, term, seq, commit: member.committed(), volume_epoch, layer, chunk, kind };
        let is_alone = member.is_alone();
        // For whoever comes back, and perhaps for nothing: it may find no room.
        match is_alone {
            true if mutant(Mutant::AloneNotNoted) => {}
            true => self.changes.borrow_mut().forget_through(seq),
            false => self.changes.borrow_mut().note(&entry, is_anybody_away(&member)),
        }
        let to_send = (!is_alone).then(|| entry.clone());
        match shard.prepare(self.index, entry) {
            Ok(()) => {}
            Err(AppendError::Busy) => return Ok(None),
            Err(error @ AppendError::NoSpace { .. }) => return Err(GroupError::NoSpace(error)),
            Err(error) => {
                self.stop(&error.to_string());
                return Err(self.stopped_error());
            }
        }
        member.appended();
        let mut window = self.window.borrow_mut();
        window.push(bytes);
        drop(member);
        if bytes > 0 && !is_alone && self.timed.get().is_none() {
            self.timed.set(Some((seq, now())));
        }
        if let Some(entry) = to_send {
            self.recent.borrow_mut().push(entry);
            shard.mark_dirty(self);
        }
        Ok(Some(Placed { seq, reign: window.reign() }))
    }
}

/// A reader that was let in.
pub struct Reader<'a> {
    group: &'a Group,
    shard: Rc<GroupShard>,
}

impl Reader<'_> {
    /// Reads committed blocks: into `buf`, where plain ones are wanted and none is compressed, with one crc32c per
    /// block to `checksums`. The buffer comes back in any case.
    pub async fn read(
        self,
        sought: Sought<'_>,
        buf: IoBuf,
        checksums: &mut Vec<u32>,
    ) -> (Result<Content, GroupError>, IoBuf) {
        let Sought { layers, chunk, range, want } = sought;
        let reading = self.shard.pace().begin_read();
        let mut read = pin!(self.shard.store().read_stored(layers, chunk, range, want, buf, checksums));
        let (result, buf) = match poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await {
            // No device was asked.
            Poll::Ready(done) => done,
            Poll::Pending => match self.group.unless_elsewhere(read).await {
                Some(done) => {
                    reading.came(range);
                    done
                }
                None => return (Err(self.group.not_primary(&self.group.member.borrow())), IoBuf::new(range.bytes())),
            },
        };
        (result.map_err(|error| self.group.read_error(error)), buf)
    }

    /// What is known of each block, committed ones only; replaces what `known` held. `sought.want` means nothing here.
    pub fn known_blocks(self, sought: Sought<'_>, known: &mut Vec<KnownBlock>) -> Result<(), GroupError> {
        let Sought { layers, chunk, range, .. } = sought;
        let result = self.shard.store().known_blocks(layers, chunk, range, known);
        result.map_err(|error| self.group.read_error(error))
    }
}

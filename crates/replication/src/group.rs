//! A placement group, seen from its primary.

use crate::error::GroupError;
use crate::shard::GroupShard;
use crate::window::Window;
use cluster::GroupRecord;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use runtime::channel::WaitList;
use runtime::{Instant, IoBuf, SharedBuf, now};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;
use store::format::LayerRecord;
use store::{
    AppendError, AppendTimes, BlockCoding, Content, Entry, EntryKind, GroupRecovery, KnownBlock, ReadError, Want,
};
use types::{BlockRange, ChunkId, GroupId, LayerId, Seq, StoreId, VolumeEpoch, VolumeId};

/// What a head says of itself with every request.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// The volume.
    pub volume: VolumeId,
    /// The reign of its head.
    pub epoch: VolumeEpoch,
    /// The volume's layers, for a group that has not seen them.
    pub layers: &'a [LayerRecord],
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

/// The highest epoch seen of a volume, and the entry that raised it.
#[derive(Clone, Copy)]
struct VolumeReign {
    epoch: VolumeEpoch,
    raised_at: Seq,
}

/// A group whose primary is here. Lives on its shard's core.
pub struct Group {
    id: GroupId,
    record: GroupRecord,
    store: StoreId,
    shard: Weak<GroupShard>,
    /// Where the shard keeps it.
    index: u32,
    window: RefCell<Window>,
    room: WaitList,
    /// Readers that wait for a commit; rare, so that all are woken.
    commits: WaitList,
    reigns: RefCell<HashMap<VolumeId, VolumeReign, FixedState>>,
    /// Nothing is served before the epoch's first entries are committed.
    serving: Cell<bool>,
    stopped: OnceCell<String>,
}

impl Group {
    pub(crate) fn new(
        record: GroupRecord,
        recovery: Option<&GroupRecovery>,
        store: StoreId,
        shard: Weak<GroupShard>,
        index: u32,
    ) -> Self {
        let (committed, prepared) = recovery.map_or((Seq(0), Seq(0)), |r| (r.committed, r.prepared_through));
        let mut reigns = HashMap::with_hasher(FixedState::default());
        for &(volume, epoch) in recovery.iter().flat_map(|recovery| &recovery.volume_epochs) {
            reigns.insert(volume, VolumeReign { epoch, raised_at: prepared });
        }
        Self {
            id: record.id,
            window: RefCell::new(Window::new(committed, prepared, &record.in_sync, record.min_in_sync)),
            record,
            store,
            shard,
            index,
            room: WaitList::default(),
            commits: WaitList::default(),
            reigns: RefCell::new(reigns),
            serving: Cell::new(false),
            stopped: OnceCell::new(),
        }
    }

    /// Its id.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// Its record, as this reign began.
    pub fn record(&self) -> &GroupRecord {
        &self.record
    }

    /// Why it serves nothing, if it does not.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// Everything through here is committed.
    pub fn committed(&self) -> Seq {
        self.window.borrow().committed()
    }

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
    ) -> Result<Seq, GroupError> {
        let len = bytes.len();
        loop {
            self.wait_for_room(len).await?;
            if self.enter(stamp)?.is_none() {
                Box::pin(self.wait_for_segments()).await?;
                continue;
            }
            let kind = EntryKind::Write { range: place.range, bytes: bytes.clone(), coding: coding.clone() };
            match self.submit(stamp.epoch, place.layer, place.chunk, kind, len)? {
                Some(seq) => return Ok(seq),
                None => Box::pin(self.wait_for_segments()).await?,
            }
        }
    }

    /// Makes the blocks read as zeroes, in the order; `hides_below`: whether a lower layer may hold something there.
    ///
    /// # Errors
    /// If nothing was queued.
    pub async fn zero(&self, stamp: Stamp<'_>, place: Place, hides_below: bool) -> Result<Seq, GroupError> {
        loop {
            self.wait_for_room(0).await?;
            if self.enter(stamp)?.is_none() {
                Box::pin(self.wait_for_segments()).await?;
                continue;
            }
            let kind = EntryKind::Zero { range: place.range, hides_below };
            match self.submit(stamp.epoch, place.layer, place.chunk, kind, 0)? {
                Some(seq) => return Ok(seq),
                None => Box::pin(self.wait_for_segments()).await?,
            }
        }
    }

    /// Lets a reader in, which is to read in this turn; and says since when it could, if it had to wait.
    pub async fn reader(&self, stamp: Stamp<'_>) -> Result<(Reader<'_>, Option<Instant>), GroupError> {
        let mut waited = None;
        if !self.lets_read(stamp)? {
            Box::pin(self.wait_to_read(stamp)).await?;
            waited = Some(now());
        }
        let shard = self.shard.upgrade().ok_or_else(|| self.stopped_error())?;
        Ok((Reader { group: self, shard }, waited))
    }

    /// Whether a reader need not wait.
    fn lets_read(&self, stamp: Stamp<'_>) -> Result<bool, GroupError> {
        let has_room = self.room_now(0).transpose()?.is_some();
        Ok(has_room && self.enter(stamp)?.is_some_and(|raised_at| self.committed() >= raised_at))
    }

    async fn wait_to_read(&self, stamp: Stamp<'_>) -> Result<(), GroupError> {
        loop {
            self.wait_for_room(0).await?;
            match self.enter(stamp)? {
                Some(raised_at) => return self.wait_for_commit_of_another(raised_at).await,
                None => self.wait_for_segments().await?,
            }
        }
    }

    #[cold]
    fn read_error(&self, error: ReadError) -> GroupError {
        match error {
            ReadError::Stopped { reason } => GroupError::Stopped { group: self.id, reason: reason.to_string() },
            error => GroupError::Damaged { group: self.id, error },
        }
    }

    /// Whether any block of the chunk is stored in `layer`; only what is committed counts.
    pub fn holds(&self, layer: LayerId, chunk: ChunkId) -> bool {
        self.shard.upgrade().is_none_or(|shard| shard.store().holds(layer, chunk))
    }

    /// Resolves when the entry is committed, with the times of its way to the device. Only who was given `seq` may wait
    /// for it.
    ///
    /// # Errors
    /// The group stopped: the outcome is unknown.
    pub async fn wait_committed(&self, seq: Seq) -> Result<AppendTimes, GroupError> {
        poll_fn(|cx| {
            let mut window = self.window.borrow_mut();
            if window.committed() >= seq {
                // Who waits is woken by the settling of its record and runs before the next is settled.
                return Poll::Ready(Ok(self.shard.upgrade().map(|shard| shard.settled()).unwrap_or_default()));
            }
            if self.stopped.get().is_some() {
                return Poll::Ready(Err(self.stopped_error()));
            }
            window.wait_for(seq, cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Resolves when everything queued so far is committed.
    pub(crate) async fn wait_begun(&self) -> Result<(), GroupError> {
        let last = Seq(self.window.borrow().next_seq().0 - 1);
        self.wait_for_commit_of_another(last).await
    }

    async fn wait_for_commit_of_another(&self, seq: Seq) -> Result<(), GroupError> {
        if self.committed() >= seq {
            return Ok(());
        }
        self.commits
            .until(|| {
                if self.committed() >= seq {
                    return Some(Ok(()));
                }
                self.stopped.get().map(|_| Err(self.stopped_error()))
            })
            .await
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
        (self.serving.get() && self.window.borrow().has_room(bytes)).then_some(Ok(()))
    }

    /// Waits until the store has cleaned more.
    #[cold]
    pub(crate) async fn wait_for_segments(&self) -> Result<(), GroupError> {
        let shard = self.shard.upgrade().ok_or_else(|| self.stopped_error())?;
        shard.store().room().await.map_err(|error| {
            self.stop(&error.to_string());
            self.stopped_error()
        })
    }

    /// Lets a request of this head in: refuses it if a later head was seen, and puts the entry that raises the
    /// volume's epoch before it if it is the head's first. What the head reads is read after that entry is committed.
    /// `None`: not before the store has cleaned more.
    fn enter(&self, stamp: Stamp<'_>) -> Result<Option<Seq>, GroupError> {
        let known = self.reigns.borrow().get(&stamp.volume).copied();
        if let Some(VolumeReign { epoch: seen, raised_at }) = known {
            if stamp.epoch < seen {
                return Err(GroupError::OldHead { volume: stamp.volume, asked: stamp.epoch, seen });
            }
            if stamp.epoch == seen {
                return Ok(Some(raised_at));
            }
        }
        self.raise(stamp)
    }

    #[cold]
    fn raise(&self, stamp: Stamp<'_>) -> Result<Option<Seq>, GroupError> {
        for record in stamp.layers {
            if !self.try_tell_layer(stamp.epoch, record)? {
                return Ok(None);
            }
        }
        let kind = EntryKind::VolumeEpoch { volume: stamp.volume };
        let Some(raised_at) = self.submit(stamp.epoch, LayerId(0), ChunkId(0), kind, 0)? else { return Ok(None) };
        self.reigns.borrow_mut().insert(stamp.volume, VolumeReign { epoch: stamp.epoch, raised_at });
        Ok(Some(raised_at))
    }

    /// Lets the shard know a layer, if it has not been told of it. Returns false if that has to wait until the store
    /// has cleaned more.
    pub(crate) fn try_tell_layer(&self, epoch: VolumeEpoch, record: &LayerRecord) -> Result<bool, GroupError> {
        let shard = self.shard.upgrade().ok_or_else(|| self.stopped_error())?;
        if !shard.learns_layer(record.layer) {
            return Ok(true);
        }
        let told = self.submit(epoch, record.layer, ChunkId(0), EntryKind::Layer { record: *record }, 0);
        if !matches!(told, Ok(Some(_))) {
            shard.forget_layer(record.layer);
        }
        Ok(told?.is_some())
    }

    /// Begins the reign: its first entry, and the group's record, kept on this member from now on. Waits for the store
    /// to clean, if it has to.
    pub(crate) async fn begin_epoch(&self) -> Result<(), AppendError> {
        let record = IoBuf::copy_of(&cluster::encode(&self.record)).freeze();
        for kind in [EntryKind::EpochStart, EntryKind::GroupRecord { record }] {
            while let Err(error) = self.append(VolumeEpoch(0), LayerId(0), ChunkId(0), kind.clone(), 0) {
                match (error, self.shard.upgrade()) {
                    (AppendError::Busy, Some(shard)) => shard.store().room().await?,
                    (error, _) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Queues an entry; `None`: not before the store has cleaned more.
    fn submit(
        &self,
        volume_epoch: VolumeEpoch,
        layer: LayerId,
        chunk: ChunkId,
        kind: EntryKind,
        bytes: usize,
    ) -> Result<Option<Seq>, GroupError> {
        match self.append(volume_epoch, layer, chunk, kind, bytes) {
            Ok(seq) => Ok(Some(seq)),
            Err(AppendError::Busy) => Ok(None),
            Err(error @ AppendError::NoSpace { .. }) => Err(GroupError::NoSpace(error)),
            Err(
                error @ (AppendError::Failed { .. }
                | AppendError::Stopped { .. }
                | AppendError::Invalid { .. }
                | AppendError::Closed),
            ) => {
                self.stop(&error.to_string());
                Err(self.stopped_error())
            }
        }
    }

    /// Queues an entry without a head, of no length, once the store takes it.
    pub(crate) async fn submit_own(&self, layer: LayerId, kind: EntryKind) -> Result<Seq, GroupError> {
        loop {
            self.wait_for_room(0).await?;
            match self.submit(VolumeEpoch(0), layer, ChunkId(0), kind.clone(), 0)? {
                Some(seq) => return Ok(seq),
                None => self.wait_for_segments().await?,
            }
        }
    }

    /// Gives an entry its (epoch, seq) and hands it to every in-sync member.
    fn append(
        &self,
        volume_epoch: VolumeEpoch,
        layer: LayerId,
        chunk: ChunkId,
        kind: EntryKind,
        bytes: usize,
    ) -> Result<Seq, AppendError> {
        let shard = self.shard.upgrade().ok_or(AppendError::Closed)?;
        let mut window = self.window.borrow_mut();
        let (seq, commit) = (window.next_seq(), window.committed());
        let epoch = self.record.epoch;
        shard.prepare(self.index, Entry { group: self.id, epoch, seq, commit, volume_epoch, layer, chunk, kind })?;
        window.push(bytes);
        Ok(seq)
    }

    /// `store` has everything through `through`; what that commits is applied, and who waits for it is told.
    pub(crate) fn prepared(&self, store: StoreId, through: Seq) {
        let Some(commit) = self.window.borrow_mut().prepared(store, through) else { return };
        let Some(shard) = self.shard.upgrade() else { return };
        if !shard.store().commit(self.id, commit) {
            // Who waits is told when the shard's groups stop; nobody is told that it was committed.
            return;
        }
        loop {
            let popped = self.window.borrow_mut().pop_committed(commit);
            match popped {
                Some(Some(waiter)) => waiter.wake(),
                Some(None) => {}
                None => break,
            }
        }
        self.room.wake_all();
        self.commits.wake_all();
    }

    /// This member has everything through `through`.
    pub(crate) fn prepared_here(&self, through: Seq) {
        self.prepared(self.store, through);
    }

    /// From now on requests are let in.
    pub(crate) fn serve(&self) {
        self.serving.set(true);
        self.room.wake_all();
    }

    /// Stops for good; who waits is told that its outcome is unknown.
    pub(crate) fn stop(&self, reason: &str) {
        if self.stopped.set(reason.to_owned()).is_ok() {
            let waiters = self.window.borrow_mut().take_waiters();
            waiters.into_iter().for_each(std::task::Waker::wake);
            self.room.wake_all();
            self.commits.wake_all();
        }
    }

    fn stopped_error(&self) -> GroupError {
        let reason = self.stopped.get().cloned().unwrap_or_else(|| "its shard was closed".to_owned());
        GroupError::Stopped { group: self.id, reason }
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
        let (result, buf) = self.shard.store().read_stored(layers, chunk, range, want, buf, checksums).await;
        (result.map_err(|error| self.group.read_error(error)), buf)
    }

    /// What is known of each block, committed ones only; replaces what `known` held. `sought.want` means nothing here.
    pub fn known_blocks(self, sought: Sought<'_>, known: &mut Vec<KnownBlock>) -> Result<(), GroupError> {
        let Sought { layers, chunk, range, .. } = sought;
        let result = self.shard.store().known_blocks(layers, chunk, range, known);
        result.map_err(|error| self.group.read_error(error))
    }
}

/// Groups are shared within their core.
pub type GroupRef = Rc<Group>;

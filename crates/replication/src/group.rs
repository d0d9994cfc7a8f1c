//! A placement group, as one of its members has it: what the protocol decides is done here, and at its primary the head's
//! requests get their place in the order.

use crate::error::GroupError;
use crate::fill::member::{Filler, may_come};
use crate::fill::primary::Filling;
use crate::node::Timers;
use crate::protocol::{Effect, Member, Membership, Message, Refusal};
use crate::recent::Recent;
use crate::record::{membership_of, with_membership};
use crate::shard::GroupShard;
use crate::window::Window;
use crate::wire::RequestId;
use cluster::GroupRecord;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use runtime::channel::WaitList;
use runtime::{Instant, IoBuf, SharedBuf, now};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;
use store::format::LayerRecord;
use store::{AppendError, AppendTimes, BlockCoding, Content, Entry, EntryKind, KnownBlock, ReadError, Want};
use types::{
    BlockRange, ChunkId, Epoch, GroupId, Incarnation, LayerId, Mutant, Seq, StoreId, VolumeEpoch, VolumeId, mutant,
};

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

/// A place in the order of a group, in one reign of its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    seq: Seq,
    reign: u32,
}

impl Placed {
    /// The sequence.
    pub fn seq(self) -> Seq {
        self.seq
    }

    /// Whether the other was given in the same reign: then it is committed when a later one is.
    pub fn is_of_reign_of(self, other: Self) -> bool {
        self.reign == other.reign
    }
}

/// A message from another member.
pub(crate) struct Received<'a> {
    pub(crate) message: &'a Message,
    /// What it names.
    pub(crate) request: RequestId,
    pub(crate) entries: &'a mut Vec<Entry>,
}

/// How a group stands at one of its members: for status, and for who judges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The newest record that the member knows.
    pub record: Membership,
    /// Whether the map says that this life of the member leads.
    pub leads: bool,
    /// Whether it would serve a read now.
    pub serves: bool,
    /// Whether it lacks nothing before its log's end.
    pub whole: bool,
    /// Committed here.
    pub committed: Seq,
    /// Durable here.
    pub durable: Seq,
    /// Why it takes no part, if it does not.
    pub stopped: Option<String>,
}

/// The highest epoch seen of a volume, and the entry that raised it.
#[derive(Clone, Copy)]
struct VolumeReign {
    epoch: VolumeEpoch,
    raised_at: Seq,
}

/// A group that has a member here. Lives on its shard's core.
pub struct Group {
    id: GroupId,
    /// What the map says of it besides who is who.
    base: RefCell<GroupRecord>,
    shard: Weak<GroupShard>,
    /// Where the shard keeps it.
    index: u32,
    /// What is decided.
    member: RefCell<Member>,
    /// A list for its effects.
    spare: RefCell<Vec<Effect>>,
    /// The map says that this life of the member leads.
    leads: Cell<bool>,
    /// Of a primary that gives out places.
    is_leading: Cell<bool>,
    window: RefCell<Window>,
    recent: RefCell<Recent>,
    /// What is named by the message that is being answered.
    answers: Cell<RequestId>,
    /// Members that lack what nobody can send them entry by entry.
    lacking: RefCell<Vec<StoreId>>,
    room: WaitList,
    /// Readers that wait for a commit; rare, so that all are woken.
    commits: WaitList,
    reigns: RefCell<HashMap<VolumeId, VolumeReign, FixedState>>,
    /// Layers that the group was told of in this reign.
    layers: RefCell<HashSet<LayerId, FixedState>>,
    /// Chunks that are damaged here: another member has them.
    damaged: RefCell<Vec<(LayerId, ChunkId)>>,
    /// Chunks whose writers wait, as their unit is being taken.
    held: RefCell<Vec<ChunkId>>,
    /// Members that are being made whole, at their primary.
    fillings: RefCell<Vec<Rc<Filling>>>,
    /// Who is made whole here.
    filler: RefCell<Option<Rc<Filler>>>,
    /// To be sent at the end of this turn.
    pub(crate) is_dirty: Cell<bool>,
    pub(crate) timers: RefCell<Timers>,
    stopped: OnceCell<String>,
}

impl Group {
    pub(crate) fn new(
        base: GroupRecord,
        member: Member,
        shard: Weak<GroupShard>,
        index: u32,
        kept_bytes: usize,
    ) -> Self {
        Self {
            id: base.id,
            base: RefCell::new(base),
            shard,
            index,
            member: RefCell::new(member),
            spare: RefCell::default(),
            leads: Cell::new(false),
            is_leading: Cell::new(false),
            window: RefCell::default(),
            recent: RefCell::new(Recent::new(kept_bytes)),
            answers: Cell::default(),
            lacking: RefCell::default(),
            room: WaitList::default(),
            commits: WaitList::default(),
            reigns: RefCell::new(HashMap::with_hasher(FixedState::default())),
            layers: RefCell::new(HashSet::with_hasher(FixedState::default())),
            damaged: RefCell::default(),
            held: RefCell::default(),
            fillings: RefCell::default(),
            filler: RefCell::default(),
            is_dirty: Cell::new(false),
            timers: RefCell::default(),
            stopped: OnceCell::new(),
        }
    }

    /// Its id.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// Its record, as it is known here.
    pub fn record(&self) -> GroupRecord {
        with_membership(&self.base.borrow(), self.member.borrow().record())
    }

    /// Why it serves nothing, if it does not.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// Everything through here is committed.
    pub fn committed(&self) -> Seq {
        self.member.borrow().committed()
    }

    /// How it stands here.
    pub fn standing(&self) -> Standing {
        let member = self.member.borrow();
        Standing {
            record: member.record().clone(),
            leads: member.leads(),
            serves: member.may_read(now(), self.session_until()) && self.stopped.get().is_none(),
            whole: member.is_whole(),
            committed: member.committed(),
            durable: member.durable(),
            stopped: self.stopped.get().cloned(),
        }
    }

    // ---- requests of heads ---------------------------------------------------------------------------------------

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
        let shard = self.shard.upgrade().ok_or_else(|| self.stopped_error())?;
        Ok((Reader { group: self, shard }, waited))
    }

    /// Whether a reader need not wait.
    fn lets_read(&self, stamp: Stamp<'_>) -> Result<bool, GroupError> {
        let has_room = self.room_now(0).transpose()?.is_some();
        let is_committed = |raised_at| self.committed() >= raised_at;
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

    /// Whether what the index says in this turn is what the group holds (R7).
    fn has_lease(&self) -> bool {
        self.member.borrow().may_read(now(), self.session_until())
    }

    fn session_until(&self) -> Instant {
        let outside = self.shard.upgrade().and_then(|shard| shard.outside());
        outside.map_or(Instant(u64::MAX), |outside| outside.session_until())
    }

    #[cold]
    fn read_error(&self, error: ReadError) -> GroupError {
        if let ReadError::Stopped { reason } = error {
            return GroupError::Stopped { group: self.id, reason: reason.to_string() };
        }
        if !self.note_damage(&error) || mutant(Mutant::DamagedGoesOn) {
            return GroupError::Damaged { group: self.id, error };
        }
        log::warn!("group {}: {error}; another member takes over, and this one gets the chunk from it", self.id);
        self.with(|member| member.give_up(None));
        GroupError::NotPrimary { group: self.id, primary: None }
    }

    /// A chunk is damaged here. Whether another member can make it whole.
    pub(crate) fn note_damage(&self, error: &ReadError) -> bool {
        let Some(place) = error.leaf() else { return false };
        let (others, me) = {
            let member = self.member.borrow();
            (member.record().in_sync.clone(), member.store())
        };
        let mut damaged = self.damaged.borrow_mut();
        if !damaged.contains(&place) {
            damaged.push(place);
        }
        others.iter().any(|store| *store != me)
    }

    /// Chunks that are damaged here.
    pub(crate) fn damaged(&self) -> Vec<(LayerId, ChunkId)> {
        self.damaged.borrow().clone()
    }

    /// Whether what is here is to be read and compared: there are others, and nothing is known to be wrong.
    pub(crate) fn is_to_scrub(&self) -> bool {
        let member = self.member.borrow();
        !member.is_alone() && member.is_whole() && self.stopped.get().is_none()
    }

    /// The other members in sync, at a primary that has begun.
    pub(crate) fn others_if_leads(&self) -> Vec<StoreId> {
        let member = self.member.borrow();
        match member.has_begun() {
            true => member.record().in_sync.iter().copied().filter(|store| *store != member.store()).collect(),
            false => Vec::new(),
        }
    }

    /// All of them have come from another member.
    pub(crate) fn is_whole_again(&self) {
        self.damaged.borrow_mut().clear();
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
        if member.is_alone() {
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
        if !self.held.borrow().contains(&chunk) {
            return Ok(());
        }
        let free = || match self.room_now(0) {
            Some(Err(error)) => Some(Err(error)),
            _ => (!self.held.borrow().contains(&chunk)).then_some(Ok(())),
        };
        self.room.until(free).await
    }

    /// Waits until the store has cleaned more.
    #[cold]
    pub(crate) async fn wait_for_segments(&self) -> Result<(), GroupError> {
        let shard = self.shard.upgrade().ok_or_else(|| self.stopped_error())?;
        shard.room().await.map_err(|error| {
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
        let Some(placed) = self.submit(stamp.epoch, LayerId(0), ChunkId(0), kind, 0)? else { return Ok(None) };
        let reign = VolumeReign { epoch: stamp.epoch, raised_at: placed.seq };
        self.reigns.borrow_mut().insert(stamp.volume, reign);
        Ok(Some(placed.seq))
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

    /// Queues an entry without a head, of no length, once the store takes it.
    pub(crate) async fn submit_own(&self, layer: LayerId, kind: EntryKind) -> Result<Placed, GroupError> {
        loop {
            self.wait_for_room(0).await?;
            match self.submit(VolumeEpoch(0), layer, ChunkId(0), kind.clone(), 0)? {
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
        let shard = self.shard.upgrade().ok_or_else(|| self.stopped_error())?;
        let mut member = self.member.borrow_mut();
        let Some((epoch, seq)) = member.next_place() else { return Err(self.not_primary(&member)) };
        let entry = Entry { group: self.id, epoch, seq, commit: member.committed(), volume_epoch, layer, chunk, kind };
        let to_send = (!member.is_alone()).then(|| entry.clone());
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
        if let Some(entry) = to_send {
            self.recent.borrow_mut().push(entry);
            shard.mark_dirty(self, self.index);
        }
        Ok(Some(Placed { seq, reign: window.reign() }))
    }

    // ---- what the protocol decides -------------------------------------------------------------------------------

    /// Has the member decide, and does what it says.
    pub(crate) fn with<T>(&self, decide: impl FnOnce(&mut Member) -> T) -> T {
        let decided = decide(&mut self.member.borrow_mut());
        self.carry_out(&mut Vec::new());
        decided
    }

    /// Looks at the member.
    pub(crate) fn member(&self) -> std::cell::Ref<'_, Member> {
        self.member.borrow()
    }

    /// A message has come, with these entries.
    pub(crate) fn receive(&self, from: StoreId, life: Incarnation, received: Received<'_>) {
        let Received { message, request, entries } = received;
        if self.stopped.get().is_some() || !may_come(self, entries) {
            return;
        }
        if let Message::Prepared { .. } = message {
            self.timers.borrow_mut().heard_commit(from, Seq(request.0));
        }
        let epochs: Vec<Epoch> = entries.iter().map(|entry| entry.epoch).collect();
        self.answers.set(request);
        self.member.borrow_mut().receive(from, life, message, &epochs);
        self.carry_out(entries);
        self.answers.set(RequestId(0));
    }

    /// What a message to another member names: of a prepare, the commit number that it tells; of an answer to one, the same.
    pub(crate) fn request_of(&self, message: &Message) -> RequestId {
        match message {
            Message::Prepare { commit, .. } => RequestId(commit.0),
            Message::Prepared { .. } => self.answers.get(),
            _ => RequestId(0),
        }
    }

    /// Everything up to this entry is durable here.
    pub(crate) fn is_durable(&self, place: (Epoch, Seq)) {
        self.with(|member| member.is_durable(place));
    }

    /// What was given a place in this turn is sent.
    pub(crate) fn flush(&self) {
        self.is_dirty.set(false);
        self.with(Member::flush);
    }

    fn carry_out(&self, entries: &mut Vec<Entry>) {
        let Some(shard) = self.shard.upgrade() else { return };
        while !self.member.borrow().is_idle() {
            let mut effects = self.spare.take();
            self.member.borrow_mut().swap_effects(&mut effects);
            for effect in effects.drain(..) {
                self.carry_out_one(&shard, effect, entries);
            }
            *self.spare.borrow_mut() = effects;
        }
        let (leads, gives_places) = {
            let member = self.member.borrow();
            (member.leads(), member.next_place().is_some())
        };
        if self.is_leading.get() && !gives_places {
            self.step_down();
        }
        if self.leads.replace(leads) != leads {
            self.wake();
        }
    }

    fn carry_out_one(&self, shard: &Rc<GroupShard>, effect: Effect, entries: &mut Vec<Entry>) {
        match effect {
            Effect::Cut(through) => {
                self.recent.borrow_mut().cut(through);
                shard.forget_queued(self.index, through);
                if !shard.store().cut(self.id, through) {
                    self.stop("its store cannot forget entries that were never committed");
                }
            }
            Effect::Append(known) => entries.drain(..).skip(known).for_each(|entry| shard.take_in(self.index, entry)),
            Effect::Commit(through) => self.commit(shard, through),
            Effect::Begin(first, record) => self.begin_epoch(shard, first, &record),
            Effect::Send(to, message, range) => self.send(shard, to, message, range),
            Effect::Propose(record, session) => {
                if let Some(outside) = shard.outside() {
                    outside.propose(shard, self, record, session);
                }
            }
            Effect::Stop(refusal) => self.stop(&told(&refusal)),
        }
    }

    /// What is committed is applied, and who waits for it is told.
    fn commit(&self, shard: &GroupShard, through: Seq) {
        let Some(through) = self.may_apply(through) else { return };
        if !shard.store().commit(self.id, through) {
            // Who waits is told when the shard's groups stop; nobody is told that it was committed.
            return self.cannot_apply(shard);
        }
        if self.is_leading.get() {
            loop {
                let popped = self.window.borrow_mut().pop_committed(through);
                match popped {
                    Some(Some(waiter)) => waiter.wake(),
                    Some(None) => {}
                    None => break,
                }
            }
            let acknowledged = self.member.borrow().prepared_by_all();
            self.recent.borrow_mut().release(through, acknowledged);
        }
        self.room.wake_all();
        self.commits.wake_all();
    }

    /// An entry could not be applied. If an assertion stopped the store, it would stop whoever takes over, one after the
    /// other: nobody is to, by himself (R16).
    #[cold]
    fn cannot_apply(&self, shard: &GroupShard) {
        let is_assertion = matches!(shard.store().store().failed(), Some(AppendError::Stopped { .. }));
        if is_assertion && !mutant(Mutant::PoisonNotTold) {
            let poison = Seq(shard.store().committed_through(self.id).0 + 1);
            log::error!("group {}: entry {poison} cannot be applied: the group stops on all its members", self.id);
            self.member.borrow_mut().give_up(Some(poison));
        }
    }

    /// How far of what is committed may be applied: not behind a unit that is on its way; nothing, in a member that is not
    /// whole and that nobody makes whole.
    fn may_apply(&self, through: Seq) -> Option<Seq> {
        if self.member.borrow().is_whole() {
            return Some(through);
        }
        let filler = self.filler().filter(|filler| filler.is_going_on())?;
        Some(filler.bound().map_or(through, |bound| bound.min(through)))
    }

    /// What had to wait for a unit is applied.
    pub(crate) fn apply_deferred(&self) {
        let through = self.member.borrow().committed();
        if let Some(shard) = self.shard.upgrade() {
            self.commit(&shard, through);
        }
    }

    /// The first entries of an epoch: its start, and the group's record, kept on each member from now on.
    fn begin_epoch(&self, shard: &Rc<GroupShard>, first: Seq, record: &Membership) {
        if !self.is_leading.replace(true) {
            self.begin_reign(shard, Seq(first.0 - 1));
        }
        let bytes = IoBuf::copy_of(&cluster::encode(&with_membership(&self.base.borrow(), record))).freeze();
        let commit = self.window.borrow().committed();
        for (seq, kind) in (first.0..).zip([EntryKind::EpochStart, EntryKind::GroupRecord { record: bytes }]) {
            let entry = Entry {
                group: self.id,
                epoch: record.epoch,
                seq: Seq(seq),
                commit,
                volume_epoch: VolumeEpoch(0),
                layer: LayerId(0),
                chunk: ChunkId(0),
                kind,
            };
            if !self.member.borrow().is_alone() {
                self.recent.borrow_mut().push(entry.clone());
            }
            shard.take_in(self.index, entry);
            self.window.borrow_mut().push(0);
        }
        self.room.wake_all();
    }

    /// From now on this member gives out places.
    fn begin_reign(&self, shard: &GroupShard, last: Seq) {
        let committed = shard.store().committed_through(self.id);
        self.window.borrow_mut().begin(committed, last);
        self.recent.borrow_mut().clear();
        let mut layers = self.layers.borrow_mut();
        layers.clear();
        if self.member.borrow().is_alone() {
            // What any group told this store, it knows.
            layers.extend(shard.store().layers().iter().map(|record| record.layer));
        }
        drop(layers);
        let mut reigns = self.reigns.borrow_mut();
        reigns.clear();
        for (volume, epoch) in shard.store().volume_epochs(self.id) {
            // Whatever raised it is committed when all is that was found.
            reigns.insert(volume, VolumeReign { epoch, raised_at: last });
        }
    }

    fn step_down(&self) {
        self.is_leading.set(false);
        self.fillings.take().iter().for_each(|filling| filling.end());
        self.held.borrow_mut().clear();
        let waiters = self.window.borrow_mut().end();
        waiters.into_iter().for_each(std::task::Waker::wake);
        self.recent.borrow_mut().clear();
        self.lacking.borrow_mut().clear();
        self.wake();
    }

    /// Who waits looks again.
    pub(crate) fn wake(&self) {
        self.room.wake_all();
        self.commits.wake_all();
    }

    fn send(&self, shard: &Rc<GroupShard>, to: StoreId, message: Message, range: Option<(Seq, Seq)>) {
        let Some(outside) = shard.outside() else { return };
        if let Message::Prepare { .. } = &message {
            self.timers.borrow_mut().told_commit(to);
        }
        let Some((first, through)) = range else {
            return outside.send(shard, self.id, to, &message, &[]);
        };
        if let Some(entries) = self.recent.borrow_mut().range(first, through) {
            return match self.filling(to) {
                Some(filling) => outside.send(shard, self.id, to, &message, &filling.filtered(entries)),
                None => outside.send(shard, self.id, to, &message, entries),
            };
        }
        if first > shard.store().committed_through(self.id) {
            return outside.send_from_store(shard.clone(), self.id, to, message, (first, through));
        }
        if let Some(filling) = self.filling(to) {
            // What it is to be sent is gone: it begins anew.
            return filling.end();
        }
        let mut lacking = self.lacking.borrow_mut();
        if !lacking.contains(&to) {
            lacking.push(to);
        }
    }

    /// Members that lack what nobody can send them entry by entry.
    pub(crate) fn take_lacking(&self) -> Vec<StoreId> {
        self.lacking.take()
    }

    /// What the map says of it, who is who included. `known`: the epoch that was known here before the map was looked at;
    /// 0, if a watch told it some time ago.
    pub(crate) fn map_says(&self, record: &GroupRecord, known: Epoch) {
        if record.epoch >= self.member.borrow().record().epoch {
            self.base.borrow_mut().clone_from(record);
        }
        let who = membership_of(record);
        self.with(|member| if record.epoch < known { member.looked(&who) } else { member.learn(&who) });
    }

    /// The map did not make a change: the record is another by now.
    pub(crate) fn conflicted(&self, wanted: &Membership, current: &GroupRecord) {
        let who = membership_of(current);
        self.with(|member| member.conflicted(wanted, &who));
    }

    /// Entries from `first` on did not go out to a member.
    pub(crate) fn not_sent(&self, to: StoreId, first: Seq) {
        // Whoever sends holds no part of the member.
        self.member.borrow_mut().not_sent(to, first);
    }

    // ---- catching up -----------------------------------------------------------------------------------------------

    /// Which reign of this member it is.
    pub(crate) fn reign(&self) -> u32 {
        self.window.borrow().reign()
    }

    /// Whether an entry about the chunk has its place and is not committed; of a primary that has begun.
    pub(crate) fn is_on_its_way(&self, chunk: ChunkId) -> bool {
        self.recent.borrow().touches_behind(self.committed(), chunk)
    }

    /// Whether others can be made whole: what is committed is here, and either all behind it will be, or nothing is
    /// before somebody is whole.
    pub(crate) fn may_fill(&self) -> bool {
        let member = self.member.borrow();
        member.has_begun() || member.next_place().is_some() && !member.record().may_commit()
    }

    /// Writers of the chunk wait as long as this lives.
    pub(crate) fn hold(self: &Rc<Self>, chunk: ChunkId) -> Held {
        self.held.borrow_mut().push(chunk);
        Held(self.clone(), chunk)
    }

    /// The attempt to make a member whole that is under way.
    pub(crate) fn filling(&self, store: StoreId) -> Option<Rc<Filling>> {
        self.fillings.borrow().iter().find(|filling| filling.to == store).cloned()
    }

    pub(crate) fn add_filling(&self, filling: Rc<Filling>) {
        self.fillings.borrow_mut().push(filling);
    }

    pub(crate) fn remove_filling(&self, over: &Rc<Filling>) {
        self.fillings.borrow_mut().retain(|filling| !Rc::ptr_eq(filling, over));
    }

    /// Who makes this member whole.
    pub(crate) fn filler(&self) -> Option<Rc<Filler>> {
        let filler = self.filler.borrow().clone()?;
        if filler.from != self.member.borrow().record().primary {
            filler.end();
        }
        Some(filler)
    }

    pub(crate) fn set_filler(&self, filler: Option<Rc<Filler>>) {
        if let Some(before) = std::mem::replace(&mut *self.filler.borrow_mut(), filler) {
            before.end();
        }
    }

    /// What was prepared and is not applied is given up: it comes in another way.
    pub(crate) fn forget_uncommitted(&self, shard: &GroupShard) {
        let applied = shard.store().committed_through(self.id);
        shard.forget_queued(self.index, applied);
        if !shard.store().cut(self.id, applied) {
            self.stop("its store cannot forget entries that were never committed");
        }
    }

    /// Stops for good; who waits is told that its outcome is unknown.
    pub(crate) fn stop(&self, reason: &str) {
        if self.stopped.set(reason.to_owned()).is_ok() {
            let waiters = self.window.borrow_mut().take_waiters();
            waiters.into_iter().for_each(std::task::Waker::wake);
            self.wake();
        }
    }

    fn stopped_error(&self) -> GroupError {
        let reason = self.stopped.get().cloned().unwrap_or_else(|| "its shard was closed".to_owned());
        GroupError::Stopped { group: self.id, reason }
    }

    #[cold]
    fn not_primary(&self, member: &Member) -> GroupError {
        let primary = Some(member.record().primary).filter(|store| *store != member.store());
        GroupError::NotPrimary { group: self.id, primary }
    }

    #[cold]
    fn unknown(&self) -> GroupError {
        match self.stopped.get() {
            Some(_) => self.stopped_error(),
            None => GroupError::Unknown { group: self.id },
        }
    }
}

/// Writers of a chunk wait as long as this lives.
pub(crate) struct Held(Rc<Group>, ChunkId);

impl Drop for Held {
    fn drop(&mut self) {
        let Self(group, chunk) = self;
        let mut held = group.held.borrow_mut();
        if let Some(at) = held.iter().position(|held| held == chunk) {
            held.swap_remove(at);
        }
        drop(held);
        group.room.wake_all();
    }
}

/// For an operator.
fn told(refusal: &Refusal) -> String {
    match refusal {
        Refusal::CommittedLost((epoch, seq)) => format!(
            "its primary does not have entry {seq} of epoch {epoch}, which was committed here: one of the two stores lost what it had acknowledged; `cairn group force` decides"
        ),
        Refusal::MapWentBack { map, known } => format!(
            "the map says epoch {map}, this member has been in epoch {known}: the map went back in time; restore a newer one or rebuild it from the devices"
        ),
        Refusal::TwoRecords { epoch } => format!(
            "there are two records of epoch {epoch}: the map went back in time, and others went on from there; restore a newer one or rebuild it from the devices"
        ),
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

//! The side of the member that lacks something.

use super::{Owner, leaves_of};
use crate::group::{Group, GroupRef};
use crate::node::{CoreGroups, Line};
use crate::outside::Outside;
use crate::protocol::{History, Place};
use crate::shard::GroupShard;
use crate::wire::{Fill, FillMessage, LeafLine, MAX_LEAVES, Run};
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use runtime::channel::WaitList;
use runtime::{IoBuf, SharedBuf};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use store::format::{Crc32c, LayerRecord, StoredLength};
use store::{BlockCoding, Entry, EntryKind, LeafImage, ReadError};
use types::{BlockRange, ChunkId, KeyId, LayerId, Mutant, Seq, StoreId, Term, VolumeEpoch, VolumeId, mutant};

/// A connection may have room again.
const ROOM_WAIT: Duration = Duration::from_millis(10);
/// Of what was brought so many pieces are read back at once.
const READ_BACK_AT_ONCE: usize = 8;

/// An attempt, as the member sees it.
pub(crate) struct Filler {
    attempt: u64,
    line: Line,
    /// Who makes it whole.
    pub(crate) from: StoreId,
    /// Chunks of which nothing comes as an entry yet.
    pending: RefCell<HashSet<ChunkId, FixedState>>,
    /// Units that are on their way: nothing behind their moment is applied before they are installed.
    under_way: RefCell<VecDeque<(u64, Seq)>>,
    said: RefCell<VecDeque<Fill>>,
    changed: WaitList,
    /// The newest moment of a unit: up to there entries came as no-ops.
    through: Cell<Seq>,
    /// Its log goes on behind what was skipped.
    goes_on: Cell<bool>,
    is_over: Cell<bool>,
}

impl Filler {
    pub(crate) fn new(attempt: u64, from: StoreId) -> Self {
        Self {
            attempt,
            line: Line::default(),
            from,
            pending: RefCell::default(),
            under_way: RefCell::default(),
            said: RefCell::default(),
            changed: WaitList::default(),
            through: Cell::default(),
            goes_on: Cell::new(false),
            is_over: Cell::new(false),
        }
    }

    /// Messages that have come and were not looked at.
    pub(crate) fn said_count(&self) -> usize {
        self.said.borrow().len()
    }

    /// The attempt is over, however far it came.
    pub(crate) fn end(&self) {
        self.is_over.set(true);
        self.changed.wake_all();
    }

    /// Its primary says something.
    pub(crate) fn hear(&self, message: FillMessage) {
        if message.attempt != self.attempt || self.is_over.get() {
            return;
        }
        if let Fill::UnitBegin { unit, chunk, at, .. } = &message.says {
            // Now: entries that come behind it in this very turn may be about its chunk.
            self.pending.borrow_mut().remove(chunk);
            self.under_way.borrow_mut().push_back((*unit, *at));
            self.through.set(self.through.get().max(*at));
        }
        self.said.borrow_mut().push_back(message.says);
        self.changed.wake_all();
    }

    /// Whether entries come by now.
    pub(crate) fn is_going_on(&self) -> bool {
        self.goes_on.get() && !self.is_over.get()
    }

    /// Nothing behind this is to be applied now.
    pub(crate) fn bound(&self) -> Option<Seq> {
        self.under_way.borrow().iter().map(|(_, at)| *at).min().filter(|_| !mutant(Mutant::AppliedBeforeUnit))
    }

    /// Whether an entry may come: nothing of what its unit will bring.
    pub(crate) fn may_come(&self, entry: &Entry) -> bool {
        let pending = self.pending.borrow();
        !super::touches(&entry.kind, entry.chunk, |chunk| pending.contains(&chunk))
    }
}

/// One attempt, to its end.
pub(crate) async fn run(
    core: Rc<CoreGroups>,
    shard: Rc<GroupShard>,
    group: GroupRef,
    filler: Rc<Filler>,
    owner: Owner,
) {
    let outside = Outside::new(&shard, group.id());
    let attempt = Attempt { core, shard, group: group.clone(), filler: filler.clone(), outside };
    let ended = attempt.run(&owner).await;
    if let Err(why) = ended {
        log::debug!("group {}: catching up: {why}", group.id());
    }
    filler.end();
}

/// A unit under way.
struct Unit {
    number: u64,
    leaves: Vec<LeafLine>,
    /// What it has brought so far that is stored.
    brought: Vec<Brought>,
}

/// Blocks of a leaf that are stored: their checksums and lengths, as the primary has them.
struct Brought {
    leaf: (LayerId, ChunkId),
    range: BlockRange,
    blocks: Vec<(Crc32c, StoredLength)>,
}

struct Attempt {
    core: Rc<CoreGroups>,
    shard: Rc<GroupShard>,
    group: GroupRef,
    filler: Rc<Filler>,
    outside: Outside,
}

impl Attempt {
    async fn run(&self, owner: &Owner) -> Result<(), String> {
        while self.shard.is_dropping(self.group.id()) {
            // What is there now will not be.
            runtime::sleep(ROOM_WAIT).await;
            self.go_on()?;
        }
        // Before anything is given up: whoever starts anew from here on is not taken for whole.
        if !mutant(Mutant::FillNotNoted) {
            self.note(false).await?;
        }
        let base = self.group.begins_to_lack();
        let damaged = if mutant(Mutant::DamageNotTold) { Vec::new() } else { self.group.damaged() };
        let (base, leaves) = self.leaves(base, &damaged, owner).await?;
        let mut rest = leaves.chunks(MAX_LEAVES).peekable();
        loop {
            let leaves = rest.next().unwrap_or_default().to_vec();
            let is_last = rest.peek().is_none();
            while !self.core.has_room(self.filler.from, self.group.id()) {
                runtime::sleep(ROOM_WAIT).await;
                self.go_on()?;
            }
            self.say(Fill::Leaves { base, leaves, is_last })?;
            if is_last {
                break;
            }
            runtime::background_step().await;
        }
        let mut unit = None;
        loop {
            let said = || match self.filler.is_over.get() {
                true => Some(None),
                false => self.filler.said.borrow_mut().pop_front().map(Some),
            };
            let Some(said) = self.filler.changed.until(said).await else { return Err("it was given up".to_owned()) };
            match said {
                Fill::Pending { chunks, .. } => self.filler.pending.borrow_mut().extend(chunks),
                Fill::Skip { at, epochs, volumes, record } => {
                    self.skip(at, epochs, volumes, record).await?;
                    self.say(Fill::Skipped { through: at.1 })?;
                }
                Fill::Layers { records } => self.know(records).await?,
                Fill::UnitBegin { unit: number, chunk, leaves, is_change, .. } => {
                    self.begin_unit(chunk, &leaves, is_change, owner).await?;
                    unit = Some(Unit { number, leaves, brought: Vec::new() });
                }
                Fill::UnitPart { unit: number, layer, key, runs, blocks } => {
                    let Unit { leaves, brought, .. } =
                        unit.as_mut().filter(|unit| unit.number == number).ok_or("a part of no unit")?;
                    let chunk = leaves.iter().find(|leaf| leaf.layer == layer).ok_or("a part of no leaf")?.chunk;
                    self.install((layer, chunk), key, runs, &blocks, brought).await?;
                }
                Fill::UnitEnd { unit: number } => {
                    let unit = unit.take().filter(|unit| unit.number == number).ok_or("the end of no unit")?;
                    self.end_unit(&unit.leaves).await?;
                    self.read_back(&unit.brought).await?;
                    self.go_on()?;
                    self.filler.under_way.borrow_mut().retain(|(under_way, _)| *under_way != number);
                    self.group.apply_deferred();
                    self.say(Fill::UnitTaken { unit: number })?;
                }
                Fill::Filled => {
                    if !self.filler.pending.borrow().is_empty() || unit.is_some() {
                        return Err("it is told to be whole, and is not".to_owned());
                    }
                    self.forget_no_ops().await?;
                    self.go_on()?;
                    self.note(true).await?;
                    self.go_on()?;
                    self.filler.end();
                    self.group.is_whole_again(&damaged);
                    self.shard.store().damage_is_mended(&damaged);
                    self.group.with(crate::protocol::Member::is_filled);
                    return Ok(());
                }
                Fill::Compare
                | Fill::Leaves { .. }
                | Fill::Skipped { .. }
                | Fill::UnitTaken { .. }
                | Fill::Digest { .. } => {
                    return Err("its primary says what only a member says".to_owned());
                }
            }
        }
    }

    /// All leaves that this member has, and since when they are what they are. What is damaged, or lacks an entry before its
    /// last, is not what the primary has, whatever its last entry was; nor is it after a restart, before which it may not have
    /// come.
    async fn leaves(
        &self,
        base: Seq,
        damaged: &[(LayerId, ChunkId)],
        owner: &Owner,
    ) -> Result<(Seq, Vec<LeafLine>), String> {
        let mut leaves = leaves_of(&self.shard, self.group.id(), owner).await?;
        let store = self.shard.store();
        let (lost, are_more_lost) = store.lost_leaves();
        let lost: Vec<_> = lost.into_iter().filter(|(layer, chunk)| self.is_ours(*layer, *chunk, owner)).collect();
        // A read that finds damage names the layer that it asked first, and not the one that holds the block.
        let is_it = |leaf: &LeafLine, (layer, chunk): &(LayerId, ChunkId)| {
            leaf.chunk == *chunk && (leaf.layer == *layer || !mutant(Mutant::DamageOfTopLayer))
        };
        let doubtful_from = self.group.doubtful_from();
        for leaf in &mut leaves {
            if leaf.last_seq >= doubtful_from || damaged.iter().any(|place| is_it(leaf, place)) {
                leaf.last_seq = Seq(0);
                if store.image(leaf.layer, leaf.chunk).is_ok_and(|image| image.is_trusted()) {
                    self.put(leaf.layer, leaf.chunk, EntryKind::InstallBegin { keeps: true }).await?;
                }
            }
        }
        if doubtful_from < Seq(u64::MAX) {
            self.outside.durable().await?;
            self.group.set_doubtful_from(Seq(u64::MAX));
        }
        let there: HashSet<_, FixedState> = leaves.iter().map(|leaf| (leaf.layer, leaf.chunk)).collect();
        let damaged = damaged.iter().filter(|_| !mutant(Mutant::DamageOfTopLayer));
        let missing = damaged.chain(&lost).filter(|place| !there.contains(*place));
        leaves.extend(missing.map(|(layer, chunk)| LeafLine { chunk: *chunk, layer: *layer, last_seq: Seq(0) }));
        leaves.sort_unstable();
        leaves.dedup();
        Ok((if are_more_lost { Seq(0) } else { base }, leaves))
    }

    /// Whether a leaf is this group's, as far as its layer is known here.
    fn is_ours(&self, layer: LayerId, chunk: ChunkId, owner: &Owner) -> bool {
        let known = self.shard.store().layer(layer);
        known.and_then(|record| owner(record.family, chunk)).is_none_or(|owner| owner == self.group.id())
    }

    /// What its units brought came as no-ops in the order: before this member makes others whole, or sends them its order,
    /// all of that is committed, and taken for unknown.
    async fn forget_no_ops(&self) -> Result<(), String> {
        if mutant(Mutant::NoopsTakenForKnown) {
            return Ok(());
        }
        let through = self.filler.through.get();
        while self.shard.store().committed_through(self.group.id()) < through {
            runtime::sleep(ROOM_WAIT).await;
            self.go_on()?;
        }
        let last = self.group.member().log().last();
        self.group.has_skipped(last.max(through));
        Ok(())
    }

    /// Layers that were named in what it skipped.
    async fn know(&self, records: Vec<LayerRecord>) -> Result<(), String> {
        for record in records {
            if self.shard.store().layer(record.layer).is_none() {
                self.put(record.layer, ChunkId(0), EntryKind::InstallLayer { record }).await?;
            }
        }
        Ok(())
    }

    /// The leaves of a unit are not to be trusted until all of it is there.
    async fn begin_unit(&self, chunk: ChunkId, leaves: &[LeafLine], keeps: bool, owner: &Owner) -> Result<(), String> {
        let is_damaged = self.group.damaged().iter().any(|(_, damaged)| *damaged == chunk);
        for leaf in leaves {
            if !self.is_ours(leaf.layer, chunk, owner) && !mutant(Mutant::UnitOfOtherGroups) {
                return Err(format!("chunk {chunk} of layer {} is another group's", leaf.layer));
            }
            let is_good = || self.shard.store().image(leaf.layer, chunk).is_ok_and(|image| image.is_trusted());
            if keeps && (is_damaged || !is_good()) {
                // The next attempt is told, and brings all of it.
                self.group.note_damage(&ReadError::Untrusted { layer: leaf.layer, chunk });
                return Err(format!("chunk {chunk} was found to be damaged"));
            }
            self.put(leaf.layer, chunk, EntryKind::InstallBegin { keeps }).await?;
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), String> {
        if self.filler.is_over.get() { Err("it was given up".to_owned()) } else { Ok(()) }
    }

    fn say(&self, says: Fill) -> Result<(), String> {
        let Filler { attempt, from, line, .. } = &*self.filler;
        let message = FillMessage { attempt: *attempt, says };
        match self.core.send_fill(&self.shard, self.group.id(), *from, &message, line) {
            true => Ok(()),
            false => Err("nothing reaches its primary".to_owned()),
        }
    }

    /// Writes down what this member is.
    async fn note(&self, whole: bool) -> Result<(), String> {
        let state = self.group.state_to_note(whole).encode();
        self.put(LayerId(0), ChunkId(0), EntryKind::MemberState { state }).await?;
        self.outside.durable().await
    }

    async fn skip(
        &self,
        (_, through): Place,
        epochs: Vec<(Term, Seq)>,
        volumes: Vec<(VolumeId, VolumeEpoch)>,
        record: Vec<u8>,
    ) -> Result<(), String> {
        let id = self.group.id();
        let history = History::new(epochs.clone(), through);
        if !self.group.is_log_in_doubt() && !self.group.with(|member| member.may_skip_to(&history)) {
            return Err("what is committed here is not in its primary's log".to_owned());
        }
        self.group.forget_uncommitted(&self.shard);
        let record = IoBuf::copy_of(&record).freeze();
        self.put(LayerId(0), ChunkId(0), EntryKind::Skip { through, epochs, volumes, record }).await?;
        self.outside.durable().await?;
        if self.shard.store().committed_through(id) != through {
            return Err(format!("its log does not go on behind {through}"));
        }
        self.group.has_skipped(through);
        self.group.with(|member| member.skipped(history));
        // From here on its epochs are its primary's.
        self.group.set_log_in_doubt(false);
        self.filler.goes_on.set(true);
        Ok(())
    }

    async fn install(
        &self,
        (layer, chunk): (LayerId, ChunkId),
        key: KeyId,
        runs: Vec<Run>,
        blocks: &SharedBuf,
        brought: &mut Vec<Brought>,
    ) -> Result<(), String> {
        let mut at = 0;
        for run in runs {
            let kind = match run {
                Run::Zero(range) => EntryKind::InstallZero { range, hides_below: true },
                Run::Absent(range) => EntryKind::InstallZero { range, hides_below: false },
                Run::Stored(range, sums) => {
                    let end = at + sums.iter().map(|(_, length)| length.bytes()).sum::<usize>();
                    let (bytes, coding) = (blocks.slice(at..end), coding_of(key, &sums));
                    at = end;
                    brought.push(Brought { leaf: (layer, chunk), range, blocks: sums });
                    EntryKind::Install { range, bytes, coding }
                }
            };
            self.put(layer, chunk, kind).await?;
        }
        Ok(())
    }

    /// All of a unit is there: its leaves are what the primary's are.
    async fn end_unit(&self, leaves: &[LeafLine]) -> Result<(), String> {
        self.outside.durable().await?;
        self.go_on()?;
        for leaf in leaves {
            self.put(leaf.layer, leaf.chunk, EntryKind::InstallEnd { last_seq: leaf.last_seq }).await?;
        }
        self.outside.durable().await
    }

    /// What a unit has brought stands on the device as the primary has it. If not, the next attempt brings all of that chunk, to
    /// another place.
    async fn read_back(&self, brought: &[Brought]) -> Result<(), String> {
        if mutant(Mutant::UnitNotReadBack) {
            return Ok(());
        }
        let are_behind =
            |one: &Brought, next: &Brought| one.leaf == next.leaf && one.range.end() <= next.range.first.into();
        for brought in brought.chunk_by(are_behind).flat_map(|of_leaf| of_leaf.chunks(READ_BACK_AT_ONCE)) {
            let (layer, chunk) = brought[0].leaf;
            let is_it = match self.shard.store().image(layer, chunk) {
                Ok(image) => is_there(&image, brought).await,
                Err(error) => Err(error),
            };
            let error = match is_it {
                Ok(true) => {
                    runtime::background_step().await;
                    continue;
                }
                Ok(false) => ReadError::Untrusted { layer, chunk },
                Err(error) => error,
            };
            self.group.note_damage(&error);
            return Err(format!("chunk {chunk} is not on the device as it was brought: {error}"));
        }
        Ok(())
    }

    async fn put(&self, layer: LayerId, chunk: ChunkId, kind: EntryKind) -> Result<(), String> {
        self.outside.put(layer, chunk, kind, || self.filler.is_over.get()).await
    }
}

/// Whether a leaf holds what was brought of it, which is in its order.
async fn is_there(image: &LeafImage, brought: &[Brought]) -> Result<bool, ReadError> {
    let (Some(first), Some(last)) = (brought.first(), brought.last()) else { return Ok(true) };
    let first = u32::from(first.range.first);
    let was_brought = |block| brought.iter().any(|one| (u32::from(one.range.first)..one.range.end()).contains(&block));
    let mut stored = image.read_some(BlockRange::new(first, last.range.end() - first), was_brought).await?;
    let mut expected = brought.iter().flat_map(|one| &one.blocks);
    let mut are_same = true;
    stored.for_each(|block| {
        if let Some((length, sum, _)) = block {
            are_same &= expected.next() == Some(&(sum, length));
        }
    });
    Ok(are_same && expected.next().is_none())
}

/// Of blocks that were compared with their sums as they came.
fn coding_of(key: KeyId, blocks: &[(Crc32c, StoredLength)]) -> BlockCoding {
    let lengths: Vec<_> = blocks.iter().map(|(_, length)| *length).collect();
    let is_plain = lengths.iter().all(|length| *length == StoredLength::RAW);
    BlockCoding::new(key, (!is_plain).then_some(&lengths)).with_sums(blocks.iter().map(|(sum, _)| *sum))
}

/// Everything that a group's member is told of catching up.
pub(crate) fn hear(
    core: &Rc<CoreGroups>,
    shard: &Rc<GroupShard>,
    group: &GroupRef,
    from: StoreId,
    message: FillMessage,
) {
    if let Fill::Digest { layer, chunk, last_seq, digest } = message.says {
        return crate::scrub::compare(shard, group, from, (layer, chunk), (last_seq, digest));
    }
    if let Fill::Compare = message.says {
        let may_begin = {
            let member = group.member();
            !member.leads() && member.record().primary == from
        };
        let known = group.filler().is_some_and(|filler| filler.attempt == message.attempt && filler.from == from);
        if may_begin && !known {
            let filler = Rc::new(Filler::new(message.attempt, from));
            group.set_filler(Some(filler.clone()));
            runtime::spawn(run(core.clone(), shard.clone(), group.clone(), filler, core.owner()));
        }
    } else if let Some(filler) = group.filler().filter(|filler| filler.from == from) {
        filler.hear(message);
    }
}

/// Whether entries that have come may be taken: a member that is not whole takes none of what a unit will bring, and none
/// at all while nobody makes it whole. What was sent in another attempt may be a no-op there and not here: it is not taken.
pub(crate) fn may_come(group: &Group, entries: &[Entry], attempt: u64) -> bool {
    if entries.is_empty() {
        return true;
    }
    let filler = group.filler().filter(|filler| filler.attempt == attempt);
    if group.member().is_whole() {
        return attempt == 0 || filler.is_some();
    }
    let Some(filler) = filler.filter(|filler| filler.is_going_on()) else { return false };
    let may = entries.iter().all(|entry| filler.may_come(entry));
    if !may {
        log::error!("group {}: an entry came for a chunk that is still to come as a whole", group.id());
        filler.end();
    }
    may
}

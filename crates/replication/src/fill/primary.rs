//! The side of the primary, which has everything.

use super::{Owner, PATIENCE, leaves_of};
use crate::changes::Blocks;
use crate::group::{Group, GroupRef};
use crate::node::{CoreGroups, Line};
use crate::protocol::Place;
use crate::shard::GroupShard;
use crate::wire::{
    Fill, FillMessage, LeafLine, MAX_CHUNKS, MAX_HISTORY_EPOCHS, MAX_LAYERS, MAX_RECORD_BYTES, MAX_VOLUMES, Run,
};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use runtime::channel::WaitList;
use runtime::{Instant, IoBuf, SharedBuf, now};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use store::format::{Crc32c, StoredLength};
use store::{Entry, ImageBlock, LeafImage, MAX_ENTRY_BLOCKS, ReadError};
use types::{BlockRange, ChunkId, Incarnation, KeyId, LayerId, Mutant, Seq, StoreId, mutant};

/// Units that are on their way at once.
const UNITS_UNDER_WAY: usize = 4;
/// What is waited for is looked at again after so long: whether there is anything to wait for.
const LOOK: Duration = Duration::from_millis(100);
/// Runs of a leaf that go in one part, at most.
const RUNS_PER_PART: usize = 64;
/// Chunks looked at in one step.
const CHUNKS_PER_STEP: usize = 256;

/// A leaf of a unit, and the key of what is new in its layer.
type Taken = (LayerId, KeyId, LeafImage);

/// An attempt, as the primary sees it.
pub(crate) struct Filling {
    attempt: u64,
    line: Line,
    /// Who is made whole, and in which of its lives.
    pub(crate) to: StoreId,
    life: Incarnation,
    theirs: RefCell<Vec<LeafLine>>,
    /// Their leaves are as they were when this was committed; 0: that is not known.
    base: Cell<Seq>,
    /// It is to be sent every entry behind this one.
    from: Cell<Option<Seq>>,
    has_told: Cell<bool>,
    /// Parts of what it is to skip to that it has not said to have; all of them before it was told.
    skips_left: Cell<usize>,
    /// Chunks that differed: how far the order went into the unit that was sent; nothing, as long as none was.
    units: RefCell<HashMap<ChunkId, Option<Seq>, FixedState>>,
    /// Units that were sent and not taken.
    under_way: RefCell<HashSet<u64, FixedState>>,
    changed: WaitList,
    moved_at: Cell<Instant>,
    is_over: Cell<bool>,
}

impl Filling {
    /// Which attempt it is.
    pub(crate) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// It is to be sent every entry behind this one, if that is known yet.
    pub(crate) fn from(&self) -> Option<Seq> {
        self.from.get().filter(|_| !self.is_over.get())
    }

    /// Whether a unit of the chunk was, or is to be, sent: the member may not have it.
    pub(crate) fn brings(&self, chunk: ChunkId) -> bool {
        self.skips_left.get() > 0 || self.units.borrow().contains_key(&chunk)
    }

    pub(crate) fn end(&self) {
        self.is_over.set(true);
        self.changed.wake_all();
    }

    /// The member says something.
    pub(crate) fn hear(&self, message: FillMessage) {
        if message.attempt != self.attempt || self.is_over.get() {
            return;
        }
        match message.says {
            Fill::Leaves { base, leaves, is_last } => {
                self.base.set(base);
                self.theirs.borrow_mut().extend(leaves);
                self.has_told.set(is_last);
            }
            Fill::Skipped { .. } => self.skips_left.set(self.skips_left.get().saturating_sub(1)),
            Fill::UnitTaken { unit } => drop(self.under_way.borrow_mut().remove(&unit)),
            _ => return self.end(),
        }
        self.moved_at.set(now());
        self.changed.wake_all();
    }

    /// The entries as this member is to have them: those that a unit brings, or will bring, are no-ops there.
    pub(crate) fn filtered(&self, entries: &[Entry]) -> Vec<Entry> {
        let units = self.units.borrow();
        let filter = |entry: &Entry| {
            let brought = |chunk: ChunkId| match units.get(&chunk) {
                Some(None) => true,
                Some(Some(at)) => entry.seq <= *at,
                None => false,
            };
            let mut entry = entry.clone();
            if super::touches(&entry.kind, entry.chunk, brought) {
                entry.kind = super::without(&entry.kind, entry.chunk, brought);
            }
            entry
        };
        entries.iter().map(filter).collect()
    }
}

/// Makes a member whole, or gives up; whoever called looks after that again.
pub(crate) async fn run(core: Rc<CoreGroups>, shard: Rc<GroupShard>, group: GroupRef, to: StoreId, owner: Owner) {
    let Some(life) = core.life_of(to) else { return };
    let filling = Rc::new(Filling {
        attempt: runtime::random_u64(),
        line: Line::default(),
        to,
        life,
        theirs: RefCell::default(),
        base: Cell::new(Seq(0)),
        from: Cell::default(),
        has_told: Cell::new(false),
        skips_left: Cell::new(usize::MAX),
        units: RefCell::default(),
        under_way: RefCell::default(),
        changed: WaitList::default(),
        moved_at: Cell::new(now()),
        is_over: Cell::new(false),
    });
    group.add_filling(filling.clone());
    let run = Attempt { core, shard, group: group.clone(), filling: filling.clone(), reign: group.reign() };
    let ended = run.to_the_end(&owner).await;
    if let Err(why) = &ended {
        log::debug!("group {}: store {to} is not whole yet: {why}", group.id());
    }
    group.timers.borrow_mut().attempted(to, ended.is_ok());
    filling.end();
    group.remove_filling(&filling);
    group.with(|member| member.fills_no_more(to));
}

struct Attempt {
    core: Rc<CoreGroups>,
    shard: Rc<GroupShard>,
    group: GroupRef,
    filling: Rc<Filling>,
    reign: u32,
}

impl Attempt {
    async fn to_the_end(&self, owner: &Owner) -> Result<(), String> {
        self.say(Fill::Compare)?;
        self.until(|filling| filling.has_told.get()).await?;
        let before = self.place()?;
        self.compare(owner).await?;
        // From here on the member is sent every entry, or what it is about in a unit.
        let at = self.place_behind(before)?;
        self.filling.from.set(Some(at.1));
        self.skip(at).await?;
        self.tell_layers().await?;
        // Nothing is committed while too few are in sync, so that no unit could wait for what is on its way: all units are
        // taken before the member is sent the first entry, and none has come as a no-op that a unit lacks.
        let stands = !self.group.member().record().may_commit();
        if !stands {
            self.goes_on(at).await?;
        } else if self.group.member().peer(self.filling.to).is_none_or(|peer| peer.whole) {
            // It would be sent entries, of what is pending as no-ops.
            return Err("that it is not whole was not heard".to_owned());
        }
        for (number, chunk) in (1..).zip(self.in_order().await) {
            self.until(|filling| filling.under_way.borrow().len() < UNITS_UNDER_WAY).await?;
            self.send_unit((number, chunk), stands, owner).await?;
        }
        self.until(|filling| filling.under_way.borrow().is_empty()).await?;
        if stands {
            self.goes_on(at).await?;
        }
        self.say(Fill::Filled)?;
        self.until(|_| self.group.member().peer(self.filling.to).is_some_and(|peer| peer.whole)).await
    }

    /// What is committed now, of which a primary that has begun has everything.
    fn place(&self) -> Result<Place, String> {
        if !self.group.may_fill() {
            return Err("the group has not begun".to_owned());
        }
        let member = self.group.member();
        Ok((member.log().term_at(member.committed()), member.committed()))
    }

    /// What is committed by now, if it is known which chunks were touched since `before`: these are pending as well.
    fn place_behind(&self, before: Place) -> Result<Place, String> {
        let Some(touched) = self.group.chunks_changed_behind(before.1) else { return Ok(before) };
        let mut units = self.filling.units.borrow_mut();
        units.extend(touched.into_iter().map(|chunk| (chunk, None)));
        self.place()
    }

    /// The chunks of which either side has what the other has not.
    async fn compare(&self, owner: &Owner) -> Result<(), String> {
        let ours = leaves_of(&self.shard, self.group.id(), owner).await?;
        self.check()?;
        let mut theirs = self.filling.theirs.take();
        theirs.sort_unstable();
        let by_chunk = |leaves: &[LeafLine]| {
            let mut chunks: HashMap<ChunkId, Vec<LeafLine>, FixedState> = HashMap::default();
            leaves.iter().for_each(|leaf| chunks.entry(leaf.chunk).or_default().push(*leaf));
            chunks
        };
        let (mine, other) = (by_chunk(&ours), by_chunk(&theirs));
        let differs = |chunk: &ChunkId| match (mine.get(chunk), other.get(chunk)) {
            (Some(mine), Some(other)) => {
                let names = |leaves: &[LeafLine]| leaves.iter().map(|leaf| leaf.layer).collect::<Vec<_>>();
                let is_same = mine == other || mutant(Mutant::LastSeqIgnored) && names(mine) == names(other);
                let is_same = is_same && mine.iter().all(|leaf| leaf.last_seq > Seq(0));
                !is_same
            }
            (None, Some(_)) => !mutant(Mutant::DeletedChunkNotSent),
            _ => true,
        };
        let mut units = self.filling.units.borrow_mut();
        units.extend(mine.keys().chain(other.keys()).filter(|chunk| differs(chunk)).map(|chunk| (*chunk, None)));
        if mutant(Mutant::CatchUpMissesChunk)
            && let Some(missed) = units.keys().min().copied()
        {
            units.remove(&missed);
        }
        *self.filling.theirs.borrow_mut() = theirs;
        Ok(())
    }

    async fn skip(&self, at: Place) -> Result<(), String> {
        let mut chunks: Vec<_> = self.filling.units.borrow().keys().copied().collect();
        chunks.sort_unstable();
        let mut rest = chunks.chunks(MAX_CHUNKS).peekable();
        while let Some(chunks) = rest.next() {
            self.part(Fill::Pending { chunks: chunks.to_vec(), is_last: rest.peek().is_none() }).await?;
        }
        let mut history = self.group.member().log().clone();
        history.cut(at.1);
        let left_out = history.starts().len().saturating_sub(MAX_HISTORY_EPOCHS);
        let mut epochs = history.starts()[left_out..].to_vec();
        if let Some(oldest) = epochs.first_mut().filter(|_| left_out > 0) {
            // Two logs that both do not know their beginning must not agree on it (R13).
            oldest.1 = Seq(1);
        }
        let volumes = self.shard.store().volume_epochs(self.group.id());
        let record = cluster::encode(&self.group.record());
        if record.len() > MAX_RECORD_BYTES {
            return Err(format!("a record of {} bytes", record.len()));
        }
        // Of many volumes in several parts: each skips to the same place, and raises its volumes.
        let at_once = if mutant(Mutant::SkipsOnce) { volumes.len().max(1) } else { MAX_VOLUMES };
        let parts: Vec<Vec<_>> = volumes.chunks(at_once).map(<[_]>::to_vec).collect();
        let parts = if parts.is_empty() { vec![Vec::new()] } else { parts };
        if parts.iter().any(|volumes| volumes.len() > MAX_VOLUMES) {
            return Err("too many volumes for one part".to_owned());
        }
        self.filling.skips_left.set(parts.len());
        for volumes in parts {
            self.say(Fill::Skip { at, epochs: epochs.clone(), volumes, record: record.clone() })?;
        }
        self.until(|filling| filling.skips_left.get() == 0).await
    }

    /// From now on the member is sent every entry behind `at`.
    async fn goes_on(&self, at: Place) -> Result<(), String> {
        self.group.with(|member| member.fills(self.filling.to, self.filling.life, at));
        let fills = self.group.member().peer(self.filling.to).is_some_and(|peer| peer.fills);
        match fills {
            true => Ok(()),
            false => Err("it has started anew".to_owned()),
        }
    }

    /// What the skipped entries said of layers.
    async fn tell_layers(&self) -> Result<(), String> {
        let layers = self.shard.store().layers();
        for records in layers.chunks(MAX_LAYERS) {
            self.part(Fill::Layers { records: records.to_vec() }).await?;
        }
        Ok(())
    }

    /// The chunks that differ, in the order in which their units are sent: those of which less is stored come first. Each gives
    /// back all that the member has of its chunk, and where that is full what comes behind may need that room.
    async fn in_order(&self) -> Vec<ChunkId> {
        let chunks: Vec<_> = self.filling.units.borrow().keys().copied().collect();
        let mut by_blocks = Vec::with_capacity(chunks.len());
        for chunks in chunks.chunks(CHUNKS_PER_STEP) {
            let store = self.shard.store();
            let blocks = |chunk| store.live_blocks(store.layers_of(chunk).into_iter().map(|layer| (layer, chunk)));
            let are_alike = mutant(Mutant::UnitsByNumber);
            by_blocks.extend(chunks.iter().map(|chunk| (if are_alike { 0 } else { blocks(*chunk) }, *chunk)));
            runtime::background_step().await;
        }
        by_blocks.sort_unstable();
        by_blocks.into_iter().map(|(_, chunk)| chunk).collect()
    }

    /// All of a chunk, as it is at one moment: nothing that was asked of it before is on its way then.
    async fn send_unit(&self, (number, chunk): (u64, ChunkId), stands: bool, owner: &Owner) -> Result<(), String> {
        let held = self.group.hold(chunk);
        let (changed, images) = loop {
            // Looked at in the turn in which the unit is taken: layers that end do not wait.
            self.until(|_| stands || !self.group.is_on_its_way(chunk)).await?;
            if !self.core.has_room(self.filling.to, self.group.id()) {
                self.core.awaits_room(self.filling.to, self.group.id()).await;
                self.check()?;
                continue;
            }
            break self.begin_unit(number, chunk, owner)?;
        };
        drop(held);
        for image in images {
            self.send_leaf(number, image, changed.as_ref()).await?;
        }
        self.say(Fill::UnitEnd { unit: number })
    }

    /// Its leaves are taken, and from now on what comes is an entry again: in one turn. Returns which blocks of them are to
    /// be sent; all, if that is not known.
    fn begin_unit(&self, number: u64, chunk: ChunkId, owner: &Owner) -> Result<(Option<Blocks>, Vec<Taken>), String> {
        let theirs = self.filling.theirs.borrow();
        let of_chunk = || theirs.iter().filter(|leaf| leaf.chunk == chunk);
        let mut layers: Vec<_> = of_chunk().map(|leaf| leaf.layer).collect();
        let known = self.shard.store().layers_held();
        // Another family's chunk of this number may be another group's, on the same shard.
        let family = |layer| known.iter().find(|record| record.layer == layer).map(|record| record.family);
        for layer in self.shard.store().layers_of(chunk) {
            let family = family(layer);
            match owner(family.unwrap_or_default(), chunk) {
                Some(owner) if owner != self.group.id() && !mutant(Mutant::UnitOfOtherGroups) => {}
                Some(_) => layers.push(layer),
                None if family.is_none_or(|family| self.shard.is_nobodys(family)) => {}
                None => return Err(format!("the family of layer {layer} is not known yet")),
            }
        }
        layers.sort_unstable();
        layers.dedup();
        let (mut leaves, mut images) = (Vec::new(), Vec::new());
        for layer in layers {
            let image = self.shard.store().image(layer, chunk).map_err(|error| error.to_string())?;
            if !image.is_trusted() {
                return Err(format!("chunk {chunk} of layer {layer} is not whole here"));
            }
            leaves.push(LeafLine { chunk, layer, last_seq: image.last_seq() });
            let key = known.iter().find(|record| record.layer == layer).map_or(KeyId(0), |record| record.key);
            images.push((layer, key, image));
        }
        let at = self.group.committed();
        let changed = self.changed(chunk, of_chunk(), &leaves);
        self.say(Fill::UnitBegin { unit: number, chunk, at, leaves, is_change: changed.is_some() })?;
        self.filling.under_way.borrow_mut().insert(number);
        self.filling.units.borrow_mut().insert(chunk, Some(at));
        Ok((changed, images))
    }

    /// The blocks of a chunk that may differ: the member's leaves are what they were at its base, each of them is here, and
    /// it is known what entries were about since.
    fn changed<'a>(
        &self,
        chunk: ChunkId,
        mut theirs: impl Iterator<Item = &'a LeafLine>,
        ours: &[LeafLine],
    ) -> Option<Blocks> {
        let base = self.filling.base.get();
        let is_here = |leaf: &LeafLine| ours.iter().any(|our| our.layer == leaf.layer && our.last_seq > Seq(0));
        // Of a chunk that it does not name it holds nothing.
        let mut names_any = false;
        let mut is_kept = |leaf: &LeafLine| {
            names_any = true;
            leaf.last_seq > Seq(0) && is_here(leaf)
        };
        let is_known = base > Seq(0) && theirs.all(&mut is_kept) && (names_any || mutant(Mutant::DroppedTakenForKept));
        let changed =
            self.group.changed_behind(base, chunk).filter(|_| is_known && !mutant(Mutant::WholeChunksSent))?;
        (changed != Blocks::default()).then_some(changed)
    }

    async fn send_leaf(&self, unit: u64, (layer, key, image): Taken, changed: Option<&Blocks>) -> Result<(), String> {
        let mut runs: Vec<_> = image.runs().collect();
        if let Some(changed) = changed {
            let parts = |(range, block)| changed.within(range).map(move |part| (part, block));
            runs = runs.into_iter().flat_map(parts).collect();
        }
        let (mut gathered, mut stored) = (Vec::new(), 0);
        for (range, block) in runs {
            if block == ImageBlock::Absent && changed.is_none() {
                continue;
            }
            let mut first = u32::from(range.first);
            while first < range.end() {
                let most = self.core.pace().piece_blocks();
                let is_stored = block == ImageBlock::Stored;
                if stored >= most || gathered.len() == RUNS_PER_PART {
                    self.send_runs(unit, (layer, key, &image), std::mem::take(&mut gathered)).await?;
                    stored = 0;
                }
                let left = range.end() - first;
                let count = if is_stored { left.min(most.saturating_sub(stored).max(1)) } else { left };
                gathered.push((BlockRange::new(first, count), block));
                stored += if is_stored { count } else { 0 };
                first += count;
            }
        }
        match gathered.is_empty() {
            true => Ok(()),
            false => self.send_runs(unit, (layer, key, &image), gathered).await,
        }
    }

    /// Sends runs of a leaf in one part.
    async fn send_runs(
        &self,
        unit: u64,
        (layer, key, image): (LayerId, KeyId, &LeafImage),
        runs: Vec<(BlockRange, ImageBlock)>,
    ) -> Result<(), String> {
        let bytes = stored_of(&runs).map(BlockRange::bytes).sum();
        if bytes > 0 {
            self.core.pace().wait_for(bytes, stored_of(&runs).count()).await;
        }
        match read_runs(image, &runs).await {
            Ok((runs, blocks)) => self.part(Fill::UnitPart { unit, layer, key, runs, blocks }).await,
            Err(_) if mutant(Mutant::UnreadableLeftOut) => Ok(()),
            Err(error) => {
                // Another that is in sync has it, and is to lead.
                self.group.note_damage(&error);
                Err(error.to_string())
            }
        }
    }

    /// Sends a part, when there is room for it.
    async fn part(&self, part: Fill) -> Result<(), String> {
        while !self.core.has_room(self.filling.to, self.group.id()) {
            self.core.awaits_room(self.filling.to, self.group.id()).await;
            self.check()?;
        }
        self.filling.moved_at.set(now());
        self.say(part)
    }

    fn say(&self, says: Fill) -> Result<(), String> {
        self.check()?;
        let message = FillMessage { attempt: self.filling.attempt, says };
        match self.core.send_fill(&self.shard, self.group.id(), self.filling.to, &message, &self.filling.line) {
            true => Ok(()),
            false => Err("nothing reaches it".to_owned()),
        }
    }

    /// Whether it makes sense to go on.
    fn check(&self) -> Result<(), String> {
        let peer = self.group.member().peer(self.filling.to);
        let is_there =
            self.core.life_of(self.filling.to) == Some(self.filling.life) && peer.is_some_and(|peer| peer.has_told);
        if self.filling.is_over.get() || self.group.reign() != self.reign || !is_there {
            return Err("it is another by now".to_owned());
        }
        match now().since(self.filling.moved_at.get()) < PATIENCE {
            true => Ok(()),
            false => Err("nothing happens".to_owned()),
        }
    }

    async fn until(&self, ready: impl Fn(&Filling) -> bool) -> Result<(), String> {
        loop {
            self.check()?;
            let changed = self.filling.changed.until(|| ready(&self.filling).then_some(()));
            if ready(&self.filling) || runtime::timeout(LOOK, changed).await.is_ok() {
                return Ok(());
            }
        }
    }
}

fn stored_of(runs: &[(BlockRange, ImageBlock)]) -> impl Iterator<Item = BlockRange> {
    runs.iter().filter(|(_, block)| *block == ImageBlock::Stored).map(|(range, _)| *range)
}

/// Runs of a leaf, and the blocks of those that are stored, as they are stored.
async fn read_runs(image: &LeafImage, runs: &[(BlockRange, ImageBlock)]) -> Result<(Vec<Run>, SharedBuf), ReadError> {
    let (mut bytes, mut end) = (IoBuf::new(stored_of(runs).map(BlockRange::bytes).sum()), 0);
    let mut sums = Vec::new();
    if let (Some(first), Some(last)) = (stored_of(runs).next(), stored_of(runs).last()) {
        let around = BlockRange::new(first.first.into(), last.end() - u32::from(first.first));
        let index = |block: u32| (block - u32::from(around.first)) as usize;
        let mut wanted = vec![false; around.count.into()];
        stored_of(runs).for_each(|range| wanted[index(range.first.into())..index(range.end())].fill(true));
        image.read_some(around, |block| wanted[index(block)]).await?.for_each(|block| {
            if let Some((length, sum, block)) = block {
                sums.push((sum, length));
                bytes[end..end + block.len()].copy_from_slice(block);
                end += block.len();
            }
        });
    }
    // Compressed ones take less: what waits to be sent is counted by its length, and is to hold no more.
    match end * 2 <= bytes.len() {
        true => bytes = IoBuf::copy_of(&bytes[..end]),
        false => bytes.truncate(end),
    }
    let mut said = Vec::with_capacity(runs.len());
    let mut rest = &sums[..];
    for &(range, block) in runs {
        match block {
            ImageBlock::Absent => said.push(Run::Absent(range)),
            ImageBlock::Zero => said.push(Run::Zero(range)),
            ImageBlock::Stored => {
                for first in (u32::from(range.first)..range.end()).step_by(MAX_ENTRY_BLOCKS.into()) {
                    let count = (range.end() - first).min(MAX_ENTRY_BLOCKS.into());
                    let (of_run, behind): (&[(Crc32c, StoredLength)], _) = rest.split_at(count as usize);
                    said.push(Run::Stored(BlockRange::new(first, count), of_run.to_vec()));
                    rest = behind;
                }
            }
        }
    }
    Ok((said, bytes.freeze()))
}

/// A member says something of being made whole.
pub(crate) fn hear(group: &Group, from: StoreId, message: FillMessage) {
    if let Some(filling) = group.filling(from) {
        filling.hear(message);
    }
}

//! Clients: random writes, zeroes and reads, each recorded.

use super::forge;
use super::member::{LAYER, group_of, layer_record};
use super::profile::Profile;
use crate::workload::Failure;
use checker::history::{Action, History, OperationId, Value, fill_block};
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use replication::{Group, GroupError, GroupShard, Place, Placed, Sought, Stamp};
use runtime::{IoBuf, random_u64};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use store::format::LayerRecord;
use store::{BlockCoding, Content, Want};
use types::{BLOCK_BYTES, BlockRange, ChunkId, Epoch, GroupId, Seq, VolumeEpoch, VolumeId};

/// Of so many writes one is of a guest that forges records.
const FORGED_ONE_IN: u64 = 32;

/// What all clients of a run share, outside of the node that crashes.
pub struct Clients {
    pub profile: Profile,
    pub history: RefCell<History>,
    pub failure: RefCell<Option<Failure>>,
    /// Every (group, epoch, sequence) that an entry was given: none is given twice, in all starts together.
    given: RefCell<HashSet<(GroupId, Epoch, Seq), FixedState>>,
    /// Clients end after the operation they are at.
    pub stop: Cell<bool>,
    /// Clients that have not ended.
    pub running: Cell<usize>,
    /// Reads may fail: the disk does.
    pub reads_may_fail: Cell<bool>,
    layers: [LayerRecord; 1],
}

/// One chunk and its group, as its clients reach them.
struct Target {
    group: Rc<Group>,
    chunk: ChunkId,
}

impl Clients {
    pub fn new(profile: Profile) -> Rc<Self> {
        Rc::new(Self {
            profile,
            history: RefCell::default(),
            failure: RefCell::default(),
            given: RefCell::default(),
            stop: Cell::new(false),
            running: Cell::new(0),
            reads_may_fail: Cell::new(false),
            layers: [layer_record()],
        })
    }

    pub fn fail(&self, checker: &'static str, message: impl std::fmt::Display) {
        self.failure.borrow_mut().get_or_insert_with(|| Failure::new(checker, message));
    }

    fn targets(&self, shard: &GroupShard) -> Vec<Target> {
        let chunks = (0..self.profile.chunks).map(ChunkId);
        chunks.filter_map(|chunk| Some(Target { group: shard.group(group_of(&self.profile, chunk))?, chunk })).collect()
    }

    /// One client of a shard, until it is told to stop or the group does.
    pub async fn run(self: Rc<Self>, shard: Rc<GroupShard>, head: VolumeEpoch) {
        let targets = self.targets(&shard);
        while !targets.is_empty() && !self.stop.get() {
            let target = &targets[random_u64() as usize % targets.len()];
            let range = self.draw_range();
            let goes_on = match random_u64() % 16 {
                0..9 => self.write(target, range, head).await,
                9 => self.zero(target, range, head).await,
                _ => self.read(target, range, head).await,
            };
            if !goes_on {
                break;
            }
        }
        self.running.set(self.running.get() - 1);
    }

    /// Reads everything that the shard holds, 64 KiB at a time.
    pub async fn read_all(self: Rc<Self>, shard: Rc<GroupShard>, head: VolumeEpoch) {
        for target in self.targets(&shard) {
            for first in (0..self.profile.blocks_per_chunk).step_by(16) {
                if !self.read(&target, BlockRange::new(first, 16), head).await {
                    break;
                }
            }
        }
        self.running.set(self.running.get() - 1);
    }

    /// A block, a few within 64 KiB, or as many as an entry may have.
    fn draw_range(&self) -> BlockRange {
        let blocks = u64::from(self.profile.blocks_per_chunk);
        let kind = random_u64() % 16;
        let (first, most) = if kind < self.profile.large {
            (random_u64() % blocks, u64::from(store::MAX_ENTRY_BLOCKS))
        } else {
            let first = random_u64() % blocks;
            (first, if kind.is_multiple_of(2) { 1 } else { 16 - first % 16 })
        };
        let count = if kind < self.profile.large { most } else { 1 + random_u64() % most };
        BlockRange::new(first as u32, count.min(blocks - first) as u32)
    }

    fn stamp(&self, head: VolumeEpoch) -> Stamp<'_> {
        Stamp::new(VolumeId(1), head, &self.layers)
    }

    fn begin(&self, action: Action, target: &Target, range: BlockRange) -> (OperationId, u64) {
        let first = u64::from(target.chunk.0) * 256 + u64::from(range.first);
        (self.history.borrow_mut().start(action, first, u32::from(range.count)), first)
    }

    async fn write(&self, target: &Target, range: BlockRange, head: VolumeEpoch) -> bool {
        let (id, first) = self.begin(Action::Write, target, range);
        let mut buf = IoBuf::new(range.bytes());
        let fill = if random_u64().is_multiple_of(FORGED_ONE_IN) { forge::fill } else { fill_block };
        for (index, block) in buf.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            fill(History::stamp(id), first + index as u64, block);
        }
        let place = Place { layer: LAYER, chunk: target.chunk, range };
        let queued = target.group.write(self.stamp(head), place, buf.freeze(), BlockCoding::PLAIN).await;
        self.finish(id, target, queued).await
    }

    async fn zero(&self, target: &Target, range: BlockRange, head: VolumeEpoch) -> bool {
        let (id, _) = self.begin(Action::Zero, target, range);
        let place = Place { layer: LAYER, chunk: target.chunk, range };
        let queued = target.group.zero(self.stamp(head), place, false).await;
        self.finish(id, target, queued).await
    }

    /// Waits for the commit. Whether the client goes on.
    async fn finish(&self, id: OperationId, target: &Target, queued: Result<Placed, GroupError>) -> bool {
        let done = match queued {
            Ok(placed)
                if !self.given.borrow_mut().insert((target.group.id(), target.group.record().epoch, placed.seq())) =>
            {
                let (group, epoch) = (target.group.id(), target.group.record().epoch);
                self.fail("sequence", format!("group {group}: epoch {epoch} seq {} was given twice", placed.seq()));
                return false;
            }
            Ok(placed) => target.group.wait_committed(placed).await,
            Err(GroupError::NoSpace(_) | GroupError::MemberFull { .. }) => {
                self.history.borrow_mut().refused(id);
                return true;
            }
            Err(error) => Err(error),
        };
        match done {
            Ok(_) => self.history.borrow_mut().done(id),
            // Nobody knows what became of it.
            Err(GroupError::Stopped { .. } | GroupError::Unknown { .. }) => {}
            Err(error) => self.fail("error", error),
        }
        target.group.stopped().is_none()
    }

    async fn read(&self, target: &Target, range: BlockRange, head: VolumeEpoch) -> bool {
        let (id, first) = self.begin(Action::Read(Vec::new()), target, range);
        let mut checksums = Vec::new();
        let buf = IoBuf::new(range.bytes());
        let sought = Sought { layers: &[LAYER], chunk: target.chunk, range, want: Want::Plain };
        let (result, buf) = match target.group.reader(self.stamp(head)).await {
            Ok((reader, _)) => reader.read(sought, buf, &mut checksums).await,
            Err(error) => (Err(error), buf),
        };
        match result {
            Ok(Content::Stored(_)) => self.fail("contents", "blocks are said to be compressed"),
            Ok(Content::Plain) => self.answer(id, first, &buf, &checksums),
            Err(GroupError::Stopped { .. } | GroupError::Unknown { .. } | GroupError::NotPrimary { .. }) => {}
            Err(GroupError::Damaged { .. }) if self.reads_may_fail.get() => self.history.borrow_mut().refused(id),
            Err(error) => self.fail("error", error),
        }
        target.group.stopped().is_none()
    }

    fn answer(&self, id: OperationId, first: u64, buf: &IoBuf, checksums: &[u32]) {
        let mut values: Vec<Value> = Vec::with_capacity(checksums.len());
        for (index, block) in buf.chunks_exact(BLOCK_BYTES).enumerate() {
            match forge::read(first + index as u64, block) {
                Ok(value) => values.push(value),
                Err(bad) => return self.fail("contents", bad),
            }
            if checksums.get(index).copied() != Some(crc32c::crc32c(block)) {
                return self.fail(
                    "contents",
                    format!("block {}: its checksum is not that of its bytes", first + index as u64),
                );
            }
        }
        self.history.borrow_mut().answered(id, values);
    }
}

//! Every moment of a run, as a loss of power would have left it: the run goes on, and each image is opened elsewhere.

use super::*;
use store::AppendError;

impl Rig {
    /// Another machine, with what a loss of power would leave of this one's disk now.
    pub fn after_power_loss(&self, seed: u64) -> Self {
        let other = Self::new(seed, self.size_bytes, self.options);
        other.disk.insert(&self.disk.after_power_loss(seed));
        other
    }

    /// Runs a task on the node to its end. At every moment at which something happened on the disk, or every `every`th
    /// of them, `judge` is given what a loss of power would have left. Returns how many there were.
    pub fn at_every_moment(
        &self,
        every: u64,
        task: impl Future<Output = ()> + 'static,
        judge: impl FnMut(&Self),
    ) -> u64 {
        self.at_moments(|moment| moment % every == 0, task, judge)
    }

    /// The same at those moments, counted from 1, of which `is_of_interest` says so.
    pub fn at_moments(
        &self,
        mut is_of_interest: impl FnMut(u64) -> bool,
        task: impl Future<Output = ()> + 'static,
        mut judge: impl FnMut(&Self),
    ) -> u64 {
        let over = Rc::new(std::cell::Cell::new(false));
        let told = over.clone();
        self.node.spawn(0, async move {
            task.await;
            told.set(true);
        });
        let (mut seen, mut moments, mut judged) = (self.world.trace_events(), 0, 0);
        while !over.get() {
            assert!(self.world.step(), "the task waits for something that never happens");
            let now = self.world.trace_events();
            if now == seen {
                continue;
            }
            seen = now;
            moments += 1;
            if is_of_interest(moments) {
                judge(&self.after_power_loss(moments));
                judged += 1;
            }
        }
        judged
    }

    /// What the headers of segments say: generation and stream; 0 where there is none.
    pub fn segments(&self) -> Vec<SegmentSeen> {
        let geometry = self.geometry();
        let header = |segment: u32| {
            let mut bytes = [0; 96];
            self.disk.peek(geometry.segment_start_bytes(store::format::SegmentIndex(segment)), &mut bytes);
            let generation = u64::from_le_bytes(*bytes[16..].first_chunk().expect("eight bytes"));
            SegmentSeen { generation, is_hot: generation > 0 && bytes[65] == 0, is_cold: bytes[65] == 1 }
        };
        (0..geometry.segment_count).map(header).collect()
    }

    fn geometry(&self) -> store::format::Geometry {
        let mut superblock = vec![0; 4096];
        self.disk.peek(0, &mut superblock);
        store::format::Superblock::decode(store::format::SlotPosition::ALL[0], &superblock)
            .expect("a superblock")
            .geometry
    }

    /// Segments in which some block is exactly `wanted`, for a disk with blocks of 4 KiB.
    pub fn segments_with(&self, wanted: &[u8]) -> Vec<usize> {
        assert_eq!((wanted.len(), self.options.block_size_bytes), (BLOCK_BYTES, 4096));
        let geometry = self.geometry();
        let mut bytes = vec![0; geometry.segment_size_bytes as usize];
        let has = |segment: &u32| {
            self.disk.peek(geometry.segment_start_bytes(store::format::SegmentIndex(*segment)), &mut bytes);
            bytes.chunks_exact(BLOCK_BYTES).any(|block| block == wanted)
        };
        (0..geometry.segment_count).filter(has).map(|segment| segment as usize).collect()
    }
}

/// A segment as its header shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSeen {
    pub generation: u64,
    pub is_hot: bool,
    pub is_cold: bool,
}

/// One group of a shard, all of whose entries are committed as they become durable.
pub struct Writer {
    pub shard: Rc<Shard>,
    group: GroupId,
    epoch: Epoch,
    asked: std::cell::Cell<u64>,
    waiting: RefCell<std::collections::VecDeque<(LogPosition, Seq)>>,
}

impl Writer {
    /// Begins the group's next epoch.
    pub async fn begin(shard: &Rc<Shard>, recovery: &Recovery, group: GroupId) -> Self {
        let found = recovery.groups.iter().find(|found| found.group == group);
        let last = found.and_then(|found| found.epoch_history.last()).map_or(Epoch(0), |last| last.0.epoch);
        let writer = Self {
            shard: shard.clone(),
            group,
            epoch: Epoch(last.0 + 1),
            asked: std::cell::Cell::new(found.map_or(0, |found| found.prepared_through.0)),
            waiting: RefCell::default(),
        };
        writer.ask(LayerId(0), ChunkId(0), EntryKind::EpochStart).await;
        writer.settle().await;
        writer
    }

    /// Queues an entry, once there is room for it.
    pub async fn ask(&self, layer: LayerId, chunk: ChunkId, kind: EntryKind) -> Seq {
        loop {
            match self.try_ask(layer, chunk, kind.clone()) {
                Ok(seq) => return seq,
                Err(AppendError::Busy) => {
                    self.settle().await;
                    self.shard.room().await.expect("an open shard");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// Queues an entry.
    pub fn try_ask(&self, layer: LayerId, chunk: ChunkId, kind: EntryKind) -> Result<Seq, AppendError> {
        let seq = Seq(self.asked.get() + 1);
        let (group, epoch) = (self.group, self.epoch);
        let commit = self.shard.committed_through(group);
        let position = self.shard.prepare(Entry {
            group,
            term: epoch.into(),
            seq,
            commit,
            volume_epoch: VolumeEpoch(1),
            layer,
            chunk,
            kind,
        })?;
        self.asked.set(seq.0);
        self.waiting.borrow_mut().push_back((position, seq));
        Ok(seq)
    }

    /// Writes blocks in this version.
    pub async fn write(&self, layer: LayerId, chunk: ChunkId, range: BlockRange, version: u64) -> Seq {
        let bytes = bytes_of(chunk, range, version);
        self.ask(layer, chunk, EntryKind::write(range, bytes)).await
    }

    /// Writes a whole chunk, 128 KiB at a time.
    pub async fn write_chunk(&self, layer: LayerId, chunk: ChunkId, version: u64) {
        for first in (0..BLOCKS_PER_CHUNK).step_by(32) {
            self.write(layer, chunk, BlockRange::new(first, 32), version).await;
        }
        self.settle().await;
    }

    /// Waits until all that was asked for is committed.
    pub async fn settle(&self) {
        loop {
            let first = self.waiting.borrow().front().copied();
            let Some((position, seq)) = first else { return };
            let durable = self.shard.durable_through();
            if position <= durable {
                self.shard.commit(self.group, seq);
                self.waiting.borrow_mut().pop_front();
            } else {
                self.shard.durable_changed(durable).await.expect("an open shard");
            }
        }
    }
}

/// Blocks of a chunk as a reader of these layers sees them, by version; a block that is none is an error.
pub async fn versions_in(shard: &Shard, layers: &[LayerId], chunk: ChunkId, range: BlockRange) -> Vec<u64> {
    let (read, bytes) = shard.read(layers, chunk, range, IoBuf::new(range.bytes()), &mut Vec::new()).await;
    read.unwrap_or_else(|error| panic!("{error}"));
    let mut expected = vec![0; BLOCK_BYTES];
    let version = |(number, block): (u16, &[u8])| {
        let version = version_of(block, chunk, number);
        fill_block(&mut expected, chunk, number, version);
        assert!(block == expected, "chunk {chunk} block {number} is no version of it");
        version
    };
    (range.first..).zip(bytes.chunks_exact(BLOCK_BYTES)).map(version).collect()
}

//! What is handed to the store to be appended.

use crate::format::{Crc32c, LayerRecord, StoredLength};
use runtime::{Instant, SharedBuf};
use types::{BLOCK_BYTES, BlockRange, ChunkId, GroupId, KeyId, LayerId, Seq, Term, VolumeEpoch, VolumeId};

pub use crate::format::entry::{MAX_SKIP_BYTES, MAX_SKIP_EPOCHS};

/// Most blocks of one [`EntryKind::Write`]: 128 KiB. Seven of the largest fill a record to 7/8, while one entry stays
/// short enough that two appends in flight are never one caller's alone. Larger writes are split by the caller, at
/// multiples of 64 KiB: an entry is all there or not at all.
pub const MAX_ENTRY_BLOCKS: u16 = 32;
/// Largest opaque record of a group: it travels with the entries of one record.
pub const MAX_GROUP_RECORD_BYTES: usize = 64 << 10;
/// Largest opaque state of a member of a group.
pub const MAX_MEMBER_STATE_BYTES: usize = crate::format::entry::MAX_MEMBER_STATE_BYTES;
/// Most chunks of one [`EntryKind::Merge`] or [`EntryKind::LayerDelete`].
pub const MAX_ENTRY_CHUNKS: usize = crate::format::entry::MAX_ENTRY_CHUNKS;

/// When a record was handed to the device, and when it was known to be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppendTimes {
    /// The write began.
    pub issued: Instant,
    /// The write, those before it and the flush behind them had ended.
    pub durable: Instant,
}

/// One entry of a group's order, or outside it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The group.
    pub group: GroupId,
    /// The epoch in which it was given `seq`, and whose that was.
    pub term: Term,
    /// Its place in the group's order.
    pub seq: Seq,
    /// All of the group up to here is committed; below `seq`. Written as far as it is applied here.
    pub commit: Seq,
    /// The epoch of the volume's head that asked for it; of [`EntryKind::VolumeEpoch`], the new one.
    pub volume_epoch: VolumeEpoch,
    /// The layer (of writes, zeroes and layers); of [`EntryKind::Merge`] and [`EntryKind::LayerDelete`] the one that
    /// ends.
    pub layer: LayerId,
    /// The chunk (of writes and zeroes, and of installs).
    pub chunk: ChunkId,
    /// What it says.
    pub kind: EntryKind,
}

/// What an entry says.
#[derive(Clone, Debug)]
pub enum EntryKind {
    /// Blocks are written: at most [`MAX_ENTRY_BLOCKS`].
    Write {
        /// Which.
        range: BlockRange,
        /// What is stored of them, one block behind the other. Up to 16 KiB, or unaligned bytes, are copied; larger
        /// aligned ones are written from where they lie.
        bytes: SharedBuf,
        /// What was done to them.
        coding: BlockCoding,
    },
    /// Blocks read as zeroes from here on.
    Zero {
        /// Which.
        range: BlockRange,
        /// Whether layers below may hold something that this must hide.
        hides_below: bool,
    },
    /// The epoch begins with this entry.
    EpochStart,
    /// The volume's epoch is raised to the entry's.
    VolumeEpoch {
        /// The volume.
        volume: VolumeId,
    },
    /// A layer became known.
    Layer {
        /// What is to know of it; its id is the entry's layer.
        record: LayerRecord,
    },
    /// The group's record in the cluster map changed.
    GroupRecord {
        /// Bytes that the store does not read, at most [`MAX_GROUP_RECORD_BYTES`].
        record: SharedBuf,
    },
    /// Chunks of the entry's layer go to its only child; where that holds something itself, theirs is dead. Both are
    /// looked up until the layer is gone: a read finds the same before and after. Nothing writes to the layer any more.
    Merge {
        /// The child.
        into: LayerId,
        /// Which, rising; at most [`MAX_ENTRY_CHUNKS`].
        chunks: Vec<ChunkId>,
        /// Whether layers below may hold something that zeroes must go on hiding.
        hides_below: bool,
    },
    /// Chunks of the entry's layer, which nobody reads or writes any more, are gone.
    LayerDelete {
        /// Which, rising; at most [`MAX_ENTRY_CHUNKS`]. None: the layer itself, of which no chunk is left.
        chunks: Vec<ChunkId>,
    },
    /// Nothing: it takes a place in the order.
    Noop,
    /// What this member of the group keeps for itself: bytes that the store does not read, at most
    /// [`MAX_MEMBER_STATE_BYTES`]. Outside the order, as all that follow: such an entry takes effect when it is
    /// durable, nobody commits it, and only its group, layer and chunk are looked at; how far the order is applied here
    /// is written with it. The last one is in [`GroupRecovery`](crate::GroupRecovery).
    ///
    /// What of these is on its way together a crash may take in any part: who needs one before another waits for it.
    MemberState {
        /// The bytes. None: it keeps nothing.
        state: SharedBuf,
    },
    /// The leaf (the entry's layer and chunk) is not to be trusted until the image of another member is installed. Entries
    /// of the order that come to it from now on are left out of it: the image holds them.
    InstallBegin {
        /// What the leaf holds stays, where the image does not replace it: of a leaf that is trusted, and that no entry of
        /// the order comes to before this is durable (else the store stops). If not, the leaf is emptied.
        keeps: bool,
    },
    /// Blocks of a leaf that is being installed: at most [`MAX_ENTRY_BLOCKS`]. Where no begin is in effect when this
    /// one takes effect, the leaf ended or the begin was lost in a crash, it is nothing.
    Install {
        /// Which.
        range: BlockRange,
        /// What is stored of them, as of a write.
        bytes: SharedBuf,
        /// What was done to them.
        coding: BlockCoding,
    },
    /// Blocks of a leaf that is being installed are zeroes, or absent.
    InstallZero {
        /// Which.
        range: BlockRange,
        /// Whether they hide what layers below hold: else they are absent, as all that is not installed.
        hides_below: bool,
    },
    /// The leaf holds all that the image does: to be asked for when all of the install is durable. It is trusted from
    /// then on, unless an entry behind `last_seq` was left out of it: then it stays as it is and another install is due.
    /// With 0 a leaf with nothing in it is as if it had never been, and one with something is not trusted.
    InstallEnd {
        /// The image's.
        last_seq: Seq,
    },
    /// A layer, as another member of the group knows it. One that is known here stays what it is, also if it is gone.
    InstallLayer {
        /// Its layer is the entry's.
        record: LayerRecord,
    },
    /// This member goes on behind entries that it lacks and that nobody can send any more: what of the order is
    /// prepared here and not applied is dropped for ever, and the next entry is the one behind `through`. Where that
    /// much is committed here already nothing is dropped.
    ///
    /// The group itself is from then on as it is said to be, unless what is known here is of a newer epoch. No leaf is
    /// touched: each says by its own last entry what it lacks.
    ///
    /// Who asks for it waits until it is durable before more of the order is prepared. A commit meanwhile takes effect
    /// behind it. As in a pass, at most [`MAX_SKIP_BYTES`]: 24 bytes, 16 for each epoch and volume, and the record.
    Skip {
        /// The last entry that is skipped.
        through: Seq,
        /// Each epoch that began up to there, and its first sequence, rising: at most [`MAX_SKIP_EPOCHS`], the newest.
        epochs: Vec<(Term, Seq)>,
        /// Epochs of volumes, which those known here are raised to: more than fit are told by several skips.
        volumes: Vec<(VolumeId, VolumeEpoch)>,
        /// The group's record, as of [`GroupRecord`](Self::GroupRecord). Empty: it stays what it is.
        record: SharedBuf,
    },
}

impl EntryKind {
    /// A write of blocks as they are.
    pub fn write(range: BlockRange, bytes: SharedBuf) -> Self {
        Self::Write { range, bytes, coding: BlockCoding::PLAIN }
    }
}

/// Most blocks of which the sums are kept with them: writes are split at multiples of 64 KiB.
const SUMS_MAX: usize = 16;

/// What was done to the blocks of a write before they came here, and the sums that they have as they are now. The store never
/// looks inside.
///
/// Sums are taken where the blocks come into the cluster, or compared where they arrive, and go with them from there: to the
/// device and to each other member. So what turns a bit on the way is noticed, and no node sums a block of a write twice; what
/// comes of catch-up it does.
#[derive(Clone, Default)]
pub struct BlockCoding {
    key: KeyId,
    /// `None`: all blocks are as long as they were.
    lengths: Option<[StoredLength; MAX_ENTRY_BLOCKS as usize]>,
    /// Of the first so many blocks, which are all or none.
    summed: u8,
    sums: [Crc32c; SUMS_MAX],
}

impl BlockCoding {
    /// Nothing was done.
    pub const PLAIN: Self = Self { key: KeyId(0), lengths: None, summed: 0, sums: [Crc32c(0); SUMS_MAX] };

    /// Encrypted with this key (0: not), and of these lengths and codecs; without lengths none is compressed.
    ///
    /// # Panics
    /// If there are more lengths than an entry has blocks.
    pub fn new(key: KeyId, lengths: Option<&[StoredLength]>) -> Self {
        let lengths = lengths.map(|given| {
            let mut lengths = [StoredLength::RAW; MAX_ENTRY_BLOCKS as usize];
            lengths[..given.len()].copy_from_slice(given);
            lengths
        });
        Self { key, lengths, ..Self::PLAIN }
    }

    /// The same, with the sums of all blocks of a write as they are stored, which were compared with the blocks or come of them.
    /// Those of a write of more than 64 KiB are not kept.
    pub fn with_sums(mut self, sums: impl ExactSizeIterator<Item = Crc32c>) -> Self {
        let count = sums.len();
        self.summed = 0;
        if count <= SUMS_MAX {
            self.sums.iter_mut().zip(sums).for_each(|(to, sum)| *to = sum);
            self.summed = count as u8;
        }
        self
    }

    /// The same, with the sums of these blocks.
    pub fn summed(self, count: u16, bytes: &[u8]) -> Self {
        if self.summed > 0 || usize::from(count) > SUMS_MAX {
            return self;
        }
        let mut sums = [Crc32c(0); SUMS_MAX];
        let of_blocks = self.blocks(count, bytes).map(|(_, sum, _)| sum);
        sums.iter_mut().zip(of_blocks).for_each(|(to, sum)| *to = sum);
        self.with_sums(sums[..usize::from(count)].iter().copied())
    }

    /// The blocks that lie in `bytes` one behind the other, with their sums, lengths and codecs. Sums that are not known are taken.
    ///
    /// # Panics
    /// If it has the sums of another number of blocks: they are those of a whole write.
    pub fn blocks<'a>(
        &'a self,
        count: u16,
        mut bytes: &'a [u8],
    ) -> impl ExactSizeIterator<Item = (&'a [u8], Crc32c, StoredLength)> {
        assert!([0, count].contains(&self.summed.into()), "{} sums of {count} blocks", self.summed);
        (0..usize::from(count)).map(move |number| {
            let length = self.length(number);
            let (block, rest) = bytes.split_at(length.bytes());
            bytes = rest;
            (block, self.sum(number, block), length)
        })
    }

    fn sum(&self, number: usize, block: &[u8]) -> Crc32c {
        match number < usize::from(self.summed) {
            true => self.sums[number],
            false => Crc32c::of(block),
        }
    }

    /// Which key they are encrypted with; 0: none.
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// Length and codec of the block with this number in the entry.
    pub fn length(&self, block: usize) -> StoredLength {
        self.lengths.as_ref().map_or(StoredLength::RAW, |lengths| lengths[block])
    }

    /// Bytes of the first `count` blocks.
    pub fn bytes(&self, count: u16) -> usize {
        match &self.lengths {
            Some(lengths) => lengths[..usize::from(count)].iter().map(|length| length.bytes()).sum(),
            None => usize::from(count) * BLOCK_BYTES,
        }
    }
}

/// By what was done: sums are those of the blocks, known or not.
impl PartialEq for BlockCoding {
    fn eq(&self, other: &Self) -> bool {
        (self.key, &self.lengths) == (other.key, &other.lengths)
    }
}

impl Eq for BlockCoding {}

impl std::fmt::Debug for BlockCoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCoding").field("key", &self.key).field("lengths", &self.lengths).finish()
    }
}

/// A place in the order of calls of [`Shard::prepare`](crate::Shard::prepare): 1 is the first, 0 is before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition(pub u64);

//! One instance of each kind of structure, as a writer writes it: the corpus a fuzzer starts from, what the golden
//! bytes are taken from, and what has every bit flipped.

use crate::format::blocks::BlockState;
use crate::format::bytes::u32_at;
use crate::format::entry::{EntryFlags, EntryHead, EntryKind};
use crate::format::leaf::{BLOCKS, Census, LeafShape, pack_columns, pack_runs};
use crate::format::record::{MAX_RECORD_BYTES, RECORD_HEADER_BYTES, blocks_offset_bytes, record_length_bytes};
use crate::format::*;
use types::*;

/// Device block of the samples.
pub const BLOCK_SIZE_BYTES: u32 = 512;
/// Where the sample records are.
pub const PLACE: RecordPlace = RecordPlace { segment: SegmentIndex(5), generation: Generation(77), offset_bytes: 8192 };
/// The samples' store.
pub const STORE: StoreId = StoreId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);

/// The samples' key.
pub fn hash_key() -> HashKey {
    HashKey(core::array::from_fn(|i| 0xa0 + i as u8))
}

/// The samples' key, ready.
pub fn key() -> RecordKey {
    RecordKey::new(&hash_key(), STORE)
}

/// A name, and a whole structure as it lies on the device.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The kind of structure.
    pub name: &'static str,
    /// Which decoder reads it.
    pub reader: Reader,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Which decoder reads a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// [`Superblock::decode`] in the odd slot at the front.
    Superblock,
    /// [`SegmentHeader::decode`].
    SegmentHeader,
    /// [`Record::decode`], then [`Record::check_blocks`].
    Record,
}

impl Sample {
    /// Reads it whole, as recovery and scrub together do.
    ///
    /// # Errors
    /// What the decoders say.
    pub fn read(&self, bytes: &[u8]) -> Result<(), FormatError> {
        match self.reader {
            Reader::Superblock => Superblock::decode(SlotPosition { back: false, odd: true }, bytes).map(drop),
            Reader::SegmentHeader => SegmentHeader::decode(&key(), PLACE.segment, bytes).map(drop),
            Reader::Record => {
                let record = Record::decode(&key(), &PLACE, BLOCK_SIZE_BYTES, 4 << 20, bytes)?;
                record.check_blocks(bytes)
            }
        }
    }

    /// Its bytes with its hash put right again.
    pub fn seal(&self, bytes: &mut [u8]) {
        match self.reader {
            Reader::Superblock => {
                let at = SUPERBLOCK_BYTES - 32;
                let sum = crate::format::hash::plain_hash(&bytes[..at]);
                bytes[at..].copy_from_slice(&sum);
            }
            Reader::SegmentHeader => seal_segment_header(bytes),
            Reader::Record => seal_record(bytes),
        }
    }
}

/// Puts the hash of a segment header right.
pub(super) fn seal_segment_header(block: &mut [u8]) {
    let generation = Generation(crate::format::bytes::u64_at(block, 16));
    let hash = key().hash(PLACE.segment, 0, generation, [&block[..96], &[]]);
    block[96..112].copy_from_slice(&hash);
}

/// Puts the hash of a record right, if its lengths make sense.
pub(super) fn seal_record(record: &mut [u8]) {
    if record.len() < RECORD_HEADER_BYTES {
        return;
    }
    let entries_bytes = u32_at(record, 12) as usize;
    if entries_bytes <= MAX_RECORD_BYTES && RECORD_HEADER_BYTES + entries_bytes <= record.len() {
        let entries_end = RECORD_HEADER_BYTES + entries_bytes;
        let parts = [&record[..64], &record[RECORD_HEADER_BYTES..entries_end]];
        let hash = key().hash(PLACE.segment, PLACE.offset_bytes, PLACE.generation, parts);
        record[64..RECORD_HEADER_BYTES].copy_from_slice(&hash);
    }
}

/// A record of these entries (encoded) and blocks.
pub fn record(kind: RecordKind, entries: &[Vec<u8>], blocks: &[u8]) -> Vec<u8> {
    let entries_bytes = entries.iter().map(Vec::len).sum();
    let header = RecordHeader {
        kind,
        shard: ShardIndex(3),
        length_bytes: record_length_bytes(entries_bytes, blocks.len(), BLOCK_SIZE_BYTES) as u32,
        entries_bytes: entries_bytes as u32,
        entry_count: entries.len() as u16,
        seq: RecordSeq(1_000_002),
        durable_through: RecordSeq(1_000_000),
        incarnation: Incarnation(9),
        wall_time_ns: 1_800_000_000_000_000_000,
    };
    let mut out = vec![0xff; RECORD_HEADER_BYTES];
    entries.iter().for_each(|entry| out.extend_from_slice(entry));
    out.resize(blocks_offset_bytes(entries_bytes, BLOCK_SIZE_BYTES), 0xff);
    header.encode(&key(), &PLACE, BLOCK_SIZE_BYTES, &mut out);
    out.extend_from_slice(blocks);
    out.resize(header.length_bytes as usize, 0);
    out
}

/// An entry that is part of a group's order.
pub fn ordered_head(kind: EntryKind) -> EntryHead {
    EntryHead {
        group: GroupId(0x0102_0304),
        term: Term::new(Epoch(6), 0x5EED_0001),
        seq: Seq(0x10_0001),
        commit: Seq(0x10_0000),
        volume_epoch: VolumeEpoch(4),
        ..EntryHead::new(kind)
    }
}

fn entry(head: &EntryHead, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0xff; EntryHead::encoded_bytes(payload.len())];
    assert_eq!(head.encode_with(payload, &mut out), out.len());
    out
}

fn write_sample(count: u32, coded: bool) -> Vec<u8> {
    blocks_sample(EntryHead { atomic_group: 1, ..ordered_head(EntryKind::Write) }, count, coded)
}

/// Outside the order of its group.
fn member_head(kind: EntryKind) -> EntryHead {
    EntryHead { term: Term::NONE, seq: Seq(0), volume_epoch: VolumeEpoch(0), ..ordered_head(kind) }
}

fn blocks_sample(head: EntryHead, count: u32, coded: bool) -> Vec<u8> {
    let mut blocks = Vec::new();
    let mut sums = Vec::new();
    for i in 0..count {
        let stored = if coded { StoredLength::new(1 + (i % 7) as u8, Codec::Lz4) } else { StoredLength::RAW };
        let start = blocks.len();
        blocks.extend((0..stored.bytes()).map(|j| (i * 7 + j as u32 * 13) as u8));
        sums.push((Crc32c::of(&blocks[start..]), stored));
    }
    let head = EntryHead { layer: LayerId(11), chunk: ChunkId(12), key: KeyId(2), ..head };
    let head = head.with_range(BlockRange::new(100, count));
    let mut out = vec![0xff; EntryHead::write_bytes(sums.len())];
    assert_eq!(head.encode_write(sums.into_iter(), &mut out), out.len());
    record(RecordKind::Log, &[out], &blocks)
}

fn move_sample() -> Vec<u8> {
    let blocks: Vec<u8> = (0..2 * BLOCK_BYTES).map(|i| (i * 31 / 8) as u8).collect();
    let from: Vec<_> = blocks
        .chunks_exact(BLOCK_BYTES)
        .enumerate()
        .map(|(i, bytes)| StoredBlock {
            location: DeviceUnit(0x12_3456_7000 + 8 * i as u64),
            stored: StoredLength::RAW,
            checksum: Crc32c::of(bytes),
        })
        .collect();
    let head = EntryHead { layer: LayerId(11), chunk: ChunkId(12), ..EntryHead::new(EntryKind::Move) };
    let mut out = vec![0xff; EntryHead::move_bytes(2)];
    head.with_range(BlockRange::new(254, 2)).encode_move(&from, &mut out);
    record(RecordKind::Move, &[out], &blocks)
}

/// Blocks in one long run, a few scattered ones and zeroes.
fn states(coded: bool) -> [BlockState; BLOCKS] {
    let mut states = [BlockState::Absent; BLOCKS];
    for (i, state) in states.iter_mut().enumerate() {
        let location = DeviceUnit(1 << 20 | (i as u64 * if i < 20 { 8 } else { 123 }));
        let stored = if coded && i % 3 == 0 { StoredLength::new(2, Codec::Zstd) } else { StoredLength::RAW };
        *state = match i {
            0..20 | 30..33 => BlockState::Stored(StoredBlock { location, stored, checksum: Crc32c(i as u32 * 77) }),
            200..203 => BlockState::Zero,
            _ => BlockState::Absent,
        };
    }
    states
}

/// An encoded leaf of each shape.
pub fn leaves() -> Vec<(&'static str, Vec<u8>)> {
    let plain = states(false);
    let mixed = states(true);
    let census = Census::of(&plain);
    let mut runs = vec![0; census.runs_bytes()];
    pack_runs(&plain, &census, &mut runs);
    let (mut plain_body, mut mixed_body) = (vec![0; leaf::PLAIN_BYTES], vec![0; leaf::MIXED_BYTES]);
    pack_columns(&plain, &mut plain_body);
    pack_columns(&mixed, &mut mixed_body);
    let view = |shape, stored_count, run_count, body| {
        let (last_seq, is_untrusted) = (Seq(0x55), false);
        LeafView { last_seq, is_untrusted, stored_count, shape, run_count, body }
    };
    let untrusted =
        LeafView { is_untrusted: true, ..view(LeafShape::Runs, census.stored_count, census.run_count, &runs) };
    [
        ("leaf, empty", view(LeafShape::Empty, 0, 0, &[])),
        ("leaf, runs", view(LeafShape::Runs, census.stored_count, census.run_count, &runs)),
        ("leaf, plain columns", view(LeafShape::Plain, census.stored_count, 0, &plain_body)),
        ("leaf, mixed columns", view(LeafShape::Mixed, census.stored_count, 0, &mixed_body)),
        ("leaf, untrusted", untrusted),
    ]
    .into_iter()
    .map(|(name, view)| {
        let mut out = vec![0xff; view.encoded_bytes()];
        view.encode(&mut out);
        (name, out)
    })
    .collect()
}

fn checkpoint_head(kind: EntryKind) -> EntryHead {
    EntryHead::of_pass(kind, PassId(41))
}

fn leaf_sample(leaf: &[u8]) -> Vec<u8> {
    let view = LeafView::decode(leaf).expect("a sample decodes");
    let mut data = Vec::new();
    let found = LeafData::append(&view, &mut data);
    let head = EntryHead { layer: LayerId(11), chunk: ChunkId(12), ..checkpoint_head(EntryKind::Leaf) };
    record(RecordKind::Checkpoint, &[entry(&head, &found.encode())], &data)
}

fn pointer(seq: u64) -> RecordPointer {
    RecordPointer {
        seq: RecordSeq(seq),
        generation: Generation(70),
        segment: SegmentIndex(4),
        offset_bytes: 0x0012_3000,
    }
}

fn superblock() -> Vec<u8> {
    let mut shards = [ShardRoot::default(); 8];
    shards[0] = ShardRoot {
        pass: PassId(41),
        pass_first: pointer(900_000),
        pass_last: pointer(950_000),
        replay_start: pointer(899_999),
        stopped: StopMark { record: RecordSeq(960_000), times: 1 },
    };
    let superblock = Superblock {
        compat: 0,
        read_only_compat: 0,
        cluster: ClusterId(0xc0ff_ee00),
        store: STORE,
        geometry: Geometry::with(300 << 20, BLOCK_SIZE_BYTES, 4 << 20, Some(2)).expect("a good geometry"),
        formatted_at_ns: 1_700_000_000_000_000_000,
        written_at_ns: 1_800_000_000_000_000_000,
        incarnation: Incarnation(9),
        write_counter: 1235,
        hash_key: hash_key(),
        shards,
    };
    let mut out = vec![0xff; SUPERBLOCK_BYTES];
    superblock.encode(SlotPosition { back: false, odd: true }, &mut out);
    out
}

fn segment_header() -> Vec<u8> {
    let header = SegmentHeader {
        segment: PLACE.segment,
        generation: PLACE.generation,
        store: STORE,
        first_record: RecordSeq(990_000),
        incarnation: Incarnation(9),
        created_at_ns: 1_800_000_000_000_000_000,
        shard: ShardIndex(3),
        stream: Stream::Cold,
    };
    let mut out = vec![0xff; BLOCK_SIZE_BYTES as usize];
    header.encode(&key(), &mut out);
    out
}

fn ordered_samples() -> Vec<Sample> {
    use EntryKind::*;
    let log = |head: EntryHead, payload: &[u8]| record(RecordKind::Log, &[entry(&head, payload)], &[]);
    let blocks = BlockRange::new(7, 249);
    let zero = EntryHead {
        layer: LayerId(11),
        chunk: ChunkId(12),
        flags: EntryFlags::HIDES_BELOW,
        ..ordered_head(Zero).with_range(blocks)
    };
    let of_layer = |kind| EntryHead { layer: LayerId(11), ..ordered_head(kind) };
    let chunks = [12, 0x0102_0304].map(u32::to_le_bytes).concat();
    let merge = EntryHead { flags: EntryFlags::HIDES_BELOW, ..of_layer(Merge) };
    let all = [
        ("record, write of 1 block", write_sample(1, false)),
        ("record, write of 3 blocks", write_sample(3, false)),
        ("record, write of 5 coded blocks", write_sample(5, true)),
        ("record, zero", log(zero, &[])),
        ("record, zero (carried)", log(EntryHead { flags: zero.flags.with(EntryFlags::CARRIED), ..zero }, &[])),
        ("record, epoch start", log(ordered_head(EpochStart), &[])),
        ("record, volume epoch", log(ordered_head(VolumeEpoch), &8u64.to_le_bytes())),
        ("record, group record", log(ordered_head(GroupRecord), b"{\"epoch\": 6}")),
        ("record, layer", log(of_layer(Layer), &layer().encode())),
        ("record, noop", log(ordered_head(Noop), &[])),
        ("record, merge", log(merge, &[&13u64.to_le_bytes(), &chunks[..]].concat())),
        ("record, layer delete", log(of_layer(LayerDelete), &chunks)),
        ("record, layer delete (the layer)", log(of_layer(LayerDelete), &[])),
        ("record, no entries", record(RecordKind::Log, &[], &[])),
        ("record, two entries", {
            let second = EntryHead { seq: Seq(0x10_0002), ..ordered_head(Noop) };
            record(RecordKind::Log, &[entry(&ordered_head(EpochStart), &[]), entry(&second, &[])], &[])
        }),
        ("record, move", move_sample()),
    ];
    all.into_iter().map(|(name, bytes)| Sample { name, reader: Reader::Record, bytes }).collect()
}

fn member_samples() -> Vec<Sample> {
    use EntryKind::*;
    let log = |head: EntryHead, payload: &[u8]| record(RecordKind::Log, &[entry(&head, payload)], &[]);
    let of_chunk = |kind| EntryHead { layer: LayerId(11), chunk: ChunkId(12), ..member_head(kind) };
    let state = EntryHead { seq: Seq(7), ..member_head(MemberState) };
    let zero =
        EntryHead { flags: EntryFlags::HIDES_BELOW, ..of_chunk(InstallZero).with_range(BlockRange::new(7, 249)) };
    let mut skip = Vec::new();
    let epochs = [(Term::new(Epoch(1), 7), Seq(1)), (Term::new(Epoch(6), 0x5EED_0001), Seq(0x10_0000))];
    let none = crate::format::MemberState::default();
    let (through, volumes) = (Seq(0x10_0400), [(VolumeId(8), types::VolumeEpoch(4))]);
    crate::format::GroupState::encode(through, &epochs, &volumes, b"{\"epoch\": 6}", none, &mut skip);
    let all = [
        ("record, member state", log(state, b"behind since 9")),
        ("record, install begin", log(of_chunk(InstallBegin), &[])),
        ("record, install begin (kept)", log(EntryHead { flags: EntryFlags::KEEPS, ..of_chunk(InstallBegin) }, &[])),
        ("record, install of 3 coded blocks", blocks_sample(of_chunk(Install), 3, true)),
        ("record, install zero", log(zero, &[])),
        ("record, install end", log(of_chunk(InstallEnd), &0x10_0007u64.to_le_bytes())),
        (
            "record, install layer",
            log(EntryHead { layer: LayerId(11), ..member_head(InstallLayer) }, &layer().encode()),
        ),
        ("record, skip", log(member_head(Skip), &skip)),
    ];
    all.into_iter().map(|(name, bytes)| Sample { name, reader: Reader::Record, bytes }).collect()
}

fn layer() -> LayerRecord {
    LayerRecord {
        layer: LayerId(11),
        parent: LayerId(10),
        family: FamilyId(3),
        created_at_ns: 5,
        retain_until_ns: 6,
        key: KeyId(2),
    }
}

fn checkpoint_samples() -> Vec<Sample> {
    use EntryKind::*;
    let pass = |head: EntryHead, payload: &[u8]| record(RecordKind::Checkpoint, &[entry(&head, payload)], &[]);
    let mut state = Vec::new();
    let epochs = [(Term::new(Epoch(1), 7), Seq(1)), (Term::new(Epoch(6), 0x5EED_0001), Seq(0x10_0000))];
    let volumes = [(VolumeId(8), types::VolumeEpoch(4))];
    let none = crate::format::MemberState::default();
    let (committed, group_record) = (Seq(0x10_0000), b"{\"epoch\": 6}");
    crate::format::GroupState::encode(committed, &epochs, &volumes, group_record, none, &mut state);
    let (mut of_member, member) = (Vec::new(), crate::format::MemberState { number: 7, bytes: b"behind since 9" });
    crate::format::GroupState::encode(committed, &epochs, &volumes, group_record, member, &mut of_member);
    let mut segments = Vec::new();
    let segment = SegmentUse {
        segment: SegmentIndex(4),
        stream: Stream::Hot,
        sealed: true,
        generation: Generation(70),
        first_record: RecordSeq(880_000),
        last_record: RecordSeq(910_000),
    };
    segment.encode(&mut segments);
    SegmentUse { segment: SegmentIndex(5), stream: Stream::Cold, sealed: false, ..segment }.encode(&mut segments);
    let merge = MergeRecord { from: LayerId(10), into: LayerId(11), gone: RecordSeq(890_000), parent: LayerId(9) };
    let end =
        crate::format::PassEnd { begin: pointer(900_000), leaves: 4, groups: 3, layers: 2, merges: 1, segments: 2 };
    let begin = crate::format::PassBegin { replay_start: pointer(899_999) };
    let group = EntryHead { group: GroupId(0x0102_0304), ..checkpoint_head(GroupState) };
    let mut all = vec![
        ("record, pass begin", pass(checkpoint_head(PassBegin), &begin.encode())),
        ("record, group state", pass(group, &state)),
        ("record, group state (of a member)", pass(group, &of_member)),
        ("record, layer state", pass(checkpoint_head(LayerState), &layer().encode())),
        ("record, merge state", pass(checkpoint_head(MergeState), &merge.encode())),
        ("record, segments", pass(checkpoint_head(Segments), &segments)),
        ("record, pass end", pass(checkpoint_head(PassEnd), &end.encode())),
    ];
    let names = [
        "record, leaf (empty)",
        "record, leaf (runs)",
        "record, leaf (plain)",
        "record, leaf (mixed)",
        "record, leaf (untrusted)",
    ];
    all.extend(names.into_iter().zip(leaves()).map(|(name, (_, leaf))| (name, leaf_sample(&leaf))));
    all.into_iter().map(|(name, bytes)| Sample { name, reader: Reader::Record, bytes }).collect()
}

fn opening_sample() -> Vec<u8> {
    let mut payload = Vec::new();
    let gaps = [
        SeqRange { first: RecordSeq(999_990), last: RecordSeq(999_990) },
        SeqRange { first: RecordSeq(999_992), last: RecordSeq(999_993) },
    ];
    crate::format::Opening::encode(Incarnation(9), Incarnation(8), RecordSeq(1_000_002), &gaps, &mut payload);
    record(RecordKind::Opening, &[entry(&EntryHead::new(EntryKind::Opening), &payload)], &[])
}

/// One of each kind.
pub fn all() -> Vec<Sample> {
    let mut all = vec![
        Sample { name: "superblock", reader: Reader::Superblock, bytes: superblock() },
        Sample { name: "segment header", reader: Reader::SegmentHeader, bytes: segment_header() },
        Sample { name: "record, opening", reader: Reader::Record, bytes: opening_sample() },
    ];
    all.extend(ordered_samples());
    all.extend(member_samples());
    all.extend(checkpoint_samples());
    all
}

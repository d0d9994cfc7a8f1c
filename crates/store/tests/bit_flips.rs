//! Proof 3 with the engine: one bit of a written device is turned over, the store is opened and everything is read.
//!
//! `tests/formats.rs` flips every bit of every kind of structure by itself; here it is shown, for a share of the bits
//! of each kind, that the engine acts on it: the damage is reported, or the read fails, or nothing of value was there.
//! Wrong bytes are never returned, and nothing that was acknowledged is silently absent. A check of the whole device
//! notices each of them, needed or not, and says in which record, slot or header it is.

use runtime::sim::{DiskOptions, NodeOptions, SimDisk, SimNode, World};
use runtime::{Device, IoBuf, SharedBuf};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use store::check::{CheckOptions, Severity};
use store::format::record::{MAX_RECORD_BYTES, RECORD_HEADER_BYTES, RECORD_MAGIC};
use store::format::{
    Geometry, LayerRecord, Record, RecordKey, RecordKind, RecordPlace, RecordSeq, SegmentHeader, SegmentIndex,
    SlotPosition, Superblock,
};
use store::{Entry, EntryKind, FormatOptions, Shard, Store};
use types::*;

const DISK: &str = "/dev/flipped";
const DISK_BYTES: u64 = 256 << 20;
/// Many shards make passes short; all groups of the test live in the first.
const SHARDS: u8 = 8;
const GROUPS: [GroupId; 2] = [GroupId(8), GroupId(16)];
const LAYER: LayerId = LayerId(7);
const CHUNKS: u32 = 7;
/// Written and zeroed again: its leaf is empty.
const EMPTY_CHUNK: ChunkId = ChunkId(CHUNKS - 1);
/// Bits flipped of each kind of structure, spread over all of it; its first bytes are flipped bit by bit.
const SPREAD_BITS: usize = 64;
const FIRST_BITS: usize = 16;

/// Each kind of structure of `docs/formats.md` that this build writes, in the part of the log that opening reads.
/// (Merges, layer deletions, moves and compressed blocks are only in `tests/formats.rs`: nothing writes them yet.)
const KINDS: [&str; 29] = [
    "superblock",
    "segment header",
    "first block of a new segment",
    "log record, header",
    "log record without entries, header",
    "checkpoint record, header",
    "opening record, header",
    "write entry",
    "data of write entry",
    "zero entry",
    "epochstart entry",
    "volumeepoch entry",
    "grouprecord entry",
    "layer entry",
    "noop entry",
    "opening entry",
    "passbegin entry",
    "leaf entry",
    "data of leaf entry (empty)",
    "data of leaf entry (runs)",
    "data of leaf entry (plain)",
    "groupstate entry",
    "layerstate entry",
    "segments entry",
    "passend entry",
    "zeroes behind the entries",
    "zeroes behind the data",
    "log record, header (before replay)",
    "data of write entry (before replay)",
];
/// Where a leaf says its shape.
const LEAF_SHAPE_AT: usize = 12;

/// What a reader must find: each chunk's bytes.
type Model = BTreeMap<ChunkId, Vec<u8>>;

fn block_of(number: u64) -> Vec<u8> {
    let word = |i: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i.wrapping_mul(0x2545_f491_4f6c_dd1d);
    (0..BLOCK_BYTES as u64 / 8).flat_map(|i| word(i).to_le_bytes()).collect()
}

/// The group that a chunk belongs to.
fn group_of(chunk: ChunkId) -> GroupId {
    GROUPS[chunk.0 as usize % GROUPS.len()]
}

struct Writer {
    shard: Rc<Shard>,
    epoch: Epoch,
    next: BTreeMap<GroupId, u64>,
    model: Model,
    number: u64,
}

impl Writer {
    /// A new epoch in each group, and what is said at its beginning.
    async fn take_over(&mut self) {
        self.epoch.0 += 1;
        for group in GROUPS {
            let record = IoBuf::copy_of(b"what the map says of the group").freeze();
            let layer = LayerRecord { layer: LAYER, family: FamilyId(1), ..LayerRecord::default() };
            self.append(group, ChunkId(0), EntryKind::EpochStart).await;
            self.append(group, ChunkId(0), EntryKind::GroupRecord { record }).await;
            self.append(group, ChunkId(0), EntryKind::VolumeEpoch { volume: VolumeId(5) }).await;
            self.append(group, ChunkId(0), EntryKind::Layer { record: layer }).await;
        }
    }

    async fn write(&mut self, chunk: ChunkId, range: BlockRange) {
        let mut bytes = IoBuf::new(range.bytes());
        for block in bytes.chunks_exact_mut(BLOCK_BYTES) {
            self.number += 1;
            block.copy_from_slice(&block_of(self.number));
        }
        self.expected(chunk, range).copy_from_slice(&bytes);
        let bytes: SharedBuf = bytes.freeze();
        self.append(group_of(chunk), chunk, EntryKind::write(range, bytes)).await;
    }

    async fn zero(&mut self, chunk: ChunkId, range: BlockRange) {
        self.expected(chunk, range).fill(0);
        self.append(group_of(chunk), chunk, EntryKind::Zero { range, hides_below: false }).await;
    }

    fn expected(&mut self, chunk: ChunkId, range: BlockRange) -> &mut [u8] {
        let bytes = self.model.entry(chunk).or_insert_with(|| vec![0; CHUNK_BYTES as usize]);
        &mut bytes[usize::from(range.first) * BLOCK_BYTES..][..range.bytes()]
    }

    /// Prepares, waits until it is durable, commits.
    async fn append(&mut self, group: GroupId, chunk: ChunkId, kind: EntryKind) {
        let seq = self.next.entry(group).or_insert(1);
        let layer = match kind {
            EntryKind::Write { .. } | EntryKind::Zero { .. } | EntryKind::Layer { .. } => LAYER,
            _ => LayerId(0),
        };
        let entry = Entry {
            group,
            term: self.epoch.into(),
            seq: Seq(*seq),
            commit: Seq(*seq - 1),
            volume_epoch: VolumeEpoch(self.epoch.0),
            layer,
            chunk,
            kind,
        };
        let position = self.shard.prepare(entry).expect("room");
        while self.shard.durable_through() < position {
            self.shard.durable_changed(self.shard.durable_through()).await.expect("no fault");
        }
        self.shard.commit(group, Seq(*seq));
        *seq += 1;
    }
}

async fn open_device() -> Device {
    Device::open(Path::new(DISK)).await.expect("the disk is there")
}

async fn open_shard() -> Rc<Shard> {
    let device = open_device().await;
    let store = Store::open(&device).await.expect("opened");
    let (shard, recovery) = Shard::open(&store, device, ShardIndex(0)).await.expect("opened");
    assert!(recovery.damage.is_empty(), "{:?}", recovery.damage);
    for found in recovery.groups {
        shard.commit(found.group, found.prepared_through);
    }
    shard
}

/// Formats the disk and writes a history with each kind of entry, a checkpoint pass, and something behind it.
async fn write_history() -> Model {
    let device = open_device().await;
    let options = FormatOptions {
        cluster: ClusterId(1),
        store: StoreId(2),
        hash_key: [3; 32],
        segment_size_bytes: None,
        shard_count: Some(SHARDS),
    };
    store::format(&device, &options).await.expect("formatted");
    let mut writer =
        Writer { shard: open_shard().await, epoch: Epoch(0), next: BTreeMap::new(), model: Model::new(), number: 0 };
    writer.take_over().await;
    // 125 scattered blocks are kept as runs, 128 as columns; then enough for a pass, and a little behind it.
    for i in 0..300u32 {
        writer.write(ChunkId(i % 2), BlockRange::new((i * 7) % [250, 256][i as usize % 2], 1)).await;
    }
    writer.write(EMPTY_CHUNK, BlockRange::new(0, 1)).await;
    writer.zero(EMPTY_CHUNK, BlockRange::new(0, BLOCKS_PER_CHUNK)).await;
    let mut i = 0;
    while writer.shard.statistics().passes == 0 || i % 16 != 0 {
        writer.write(ChunkId(2 + i % (CHUNKS - 3)), BlockRange::new((i * 16) % 240, 16)).await;
        i += 1;
        assert!(i < 400, "a pass comes in time");
    }
    writer.shard.close().await;
    writer.shard = open_shard().await;
    writer.take_over().await;
    // Long enough for the record of an idle store.
    runtime::sleep(Duration::from_secs(3)).await;
    for i in 0..12u32 {
        writer.write(ChunkId(i % CHUNKS), BlockRange::new(i * 11, 1 + i % 3)).await;
        writer.zero(ChunkId((i + 1) % CHUNKS), BlockRange::new(i * 9, 2)).await;
        writer.append(GROUPS[0], ChunkId(0), EntryKind::Noop).await;
    }
    // Long enough for the idle record that says that all of this is durable.
    runtime::sleep(Duration::from_secs(3)).await;
    writer.shard.close().await;
    writer.model
}

/// How a flip was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Noticed {
    AtOpening,
    AtRead,
    /// Everything is there and right: what was flipped is not needed any more.
    NotNeeded,
}

/// Opens the store, reads everything, compares.
async fn judge(model: Rc<Model>) -> Result<Noticed, String> {
    let device = open_device().await;
    let Ok(store) = Store::open(&device).await else { return Ok(Noticed::AtOpening) };
    let Ok((shard, recovery)) = Shard::open(&store, device, ShardIndex(0)).await else { return Ok(Noticed::AtOpening) };
    let mut noticed = Noticed::NotNeeded;
    if !recovery.damage.is_empty()
        || !recovery.harmless.is_empty()
        || !store.damage().is_empty()
        || !store.repaired().is_empty()
    {
        noticed = Noticed::AtOpening;
    }
    for group in GROUPS {
        let found = recovery.groups.iter().find(|found| found.group == group);
        let serves = found.filter(|found| !found.damaged);
        match serves {
            Some(found) => assert!(shard.commit(group, found.prepared_through).is_done()),
            None if noticed == Noticed::NotNeeded => return Err(format!("group {group} is silently absent")),
            None => {}
        }
        let damaged = serves.is_none();
        for chunk in (0..CHUNKS).map(ChunkId).filter(|chunk| group_of(*chunk) == group && !damaged) {
            noticed = read_chunk(&shard, chunk, &model, noticed).await?;
        }
    }
    shard.close().await;
    Ok(noticed)
}

async fn read_chunk(shard: &Shard, chunk: ChunkId, model: &Model, mut noticed: Noticed) -> Result<Noticed, String> {
    // Block by block if the whole fails: one bad block does not hide what the others hold.
    let mut ranges = vec![BlockRange::new(0, BLOCKS_PER_CHUNK)];
    while let Some(range) = ranges.pop() {
        let buf = IoBuf::new(range.bytes());
        let (read, bytes) = shard.read(&[LAYER], chunk, range, buf, &mut Vec::new()).await;
        match read {
            Ok(()) => {
                let expected = &model[&chunk][usize::from(range.first) * BLOCK_BYTES..][..range.bytes()];
                if *bytes != *expected {
                    return Err(format!("chunk {chunk} blocks {range:?} are not what was written, and nobody says so"));
                }
            }
            Err(_) if range.count > 1 => {
                let half = range.count / 2;
                ranges.push(BlockRange { first: range.first, count: half });
                ranges.push(BlockRange { first: range.first + half, count: range.count - half });
            }
            Err(_) if noticed == Noticed::AtOpening => {}
            Err(_) => noticed = Noticed::AtRead,
        }
    }
    Ok(noticed)
}

/// What `cairn device check` says of the device and of a place on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Good,
    /// Damaged, and here.
    Here,
    /// Damaged, elsewhere or nobody knows where.
    Elsewhere,
}

async fn check(within: (u64, u64)) -> Check {
    let checked = store::check::check(&open_device().await, CheckOptions::default()).await.expect("a store");
    let damage = checked.findings.iter().filter(|finding| finding.severity() > Severity::Trace);
    let mut places = damage.filter_map(|finding| finding.device_offset_bytes(&checked.geometry));
    match checked.is_damaged() {
        false => Check::Good,
        true if places.any(|place| (within.0..within.1).contains(&place)) => Check::Here,
        true => Check::Elsewhere,
    }
}

/// The disk as it was, and what an opening may write, to be put back.
struct Image {
    pages: Vec<(u64, Vec<u8>)>,
}

const PAGE_BYTES: usize = 64 << 10;

impl Image {
    fn of(disk: &SimDisk, written: &[(u64, u64)]) -> Self {
        let mut pages = Vec::new();
        let mut page = vec![0; PAGE_BYTES];
        for at in (0..DISK_BYTES).step_by(PAGE_BYTES) {
            disk.peek(at, &mut page);
            let touched = written.iter().any(|(from, to)| at < *to && *from < at + PAGE_BYTES as u64);
            if touched || page.iter().any(|byte| *byte != 0) {
                pages.push((at, page.clone()));
            }
        }
        Self { pages }
    }

    fn put_back(&self, disk: &SimDisk) {
        let mut now = vec![0; PAGE_BYTES];
        for (at, page) in &self.pages {
            disk.peek(*at, &mut now);
            if now != *page {
                disk.poke(*at, page);
            }
        }
    }
}

/// A structure on the disk: its kind, where it is, and whether opening must notice it.
struct Structure {
    kind: String,
    offset_bytes: u64,
    length_bytes: usize,
    must_be_noticed: bool,
    /// What it is part of, from and to: the record, the slot, the header.
    within: (u64, u64),
}

/// Everything of the first shard that is on the disk, found with nothing but the formats.
fn structures(disk: &SimDisk) -> (Vec<Structure>, Geometry) {
    let mut found = Vec::new();
    let mut slot = vec![0; 4096];
    let mut newest: Option<Superblock> = None;
    for position in SlotPosition::ALL {
        let offset_bytes = position.offset_bytes(DISK_BYTES);
        disk.peek(offset_bytes, &mut slot);
        let superblock = Superblock::decode(position, &slot).expect("a good slot");
        let within = (offset_bytes, offset_bytes + 4096);
        found.push(Structure {
            kind: "superblock".into(),
            offset_bytes,
            length_bytes: 4096,
            must_be_noticed: true,
            within,
        });
        if newest.as_ref().is_none_or(|other| other.write_counter < superblock.write_counter) {
            newest = Some(superblock);
        }
    }
    let superblock = newest.expect("four slots");
    let geometry = superblock.geometry;
    let root = superblock.shards[0];
    assert!(!root.replay_start.is_none(), "there is a pass");
    let key = RecordKey::new(&superblock.hash_key, superblock.store);
    for segment in (0..geometry.segment_count).map(SegmentIndex) {
        let start = geometry.segment_start_bytes(segment);
        let mut block = vec![0; geometry.block_size_bytes as usize];
        disk.peek(start, &mut block);
        let within = (start, start + block.len() as u64);
        let Ok(header) = SegmentHeader::decode(&key, segment, &block) else {
            assert!(block.iter().all(|byte| *byte == 0), "segment {} is neither used nor new", segment.0);
            // The first of them: the image that is put back has its page.
            let kind = "first block of a new segment";
            if !found.iter().any(|known| known.kind == kind) {
                let length_bytes = block.len();
                let kind = kind.into();
                found.push(Structure { kind, offset_bytes: start, length_bytes, must_be_noticed: true, within });
            }
            continue;
        };
        found.push(Structure {
            kind: "segment header".into(),
            offset_bytes: start,
            length_bytes: block.len(),
            must_be_noticed: true,
            within,
        });
        records_of(disk, &geometry, &key, &header, root.replay_start.seq, &mut found);
    }
    (found, geometry)
}

fn records_of(
    disk: &SimDisk,
    geometry: &Geometry,
    key: &RecordKey,
    header: &SegmentHeader,
    replay_start: RecordSeq,
    found: &mut Vec<Structure>,
) {
    let start = geometry.segment_start_bytes(header.segment);
    let mut offset_bytes = geometry.block_size_bytes;
    loop {
        let room = (geometry.segment_size_bytes - offset_bytes) as usize;
        let mut area = vec![0; MAX_RECORD_BYTES.min(room)];
        disk.peek(start + u64::from(offset_bytes), &mut area);
        let place = RecordPlace { segment: header.segment, generation: header.generation, offset_bytes };
        let Ok(record) = Record::decode(key, &place, geometry.block_size_bytes, room, &area) else { return };
        let replayed = record.header.seq >= replay_start;
        let mut next = [0; 4];
        disk.peek(start + u64::from(offset_bytes + record.header.length_bytes), &mut next);
        let is_last = record.header.entry_count == 0 && next != RECORD_MAGIC;
        let at = start + u64::from(offset_bytes);
        parts_of(&record, geometry, &area, |kind: &str, from: usize, length_bytes: usize, is_data: bool| {
            // The last record of all has no entries: its loss is a hole, and nothing was in it. Data is judged by
            // reads, leaves and what lies behind them apart, which opening looks at.
            let needed = replayed && !is_last && !(is_data && record.header.kind == RecordKind::Log);
            let of_old = if replayed { "" } else { " (before replay)" };
            found.push(Structure {
                kind: format!("{kind}{of_old}"),
                offset_bytes: at + from as u64,
                length_bytes,
                must_be_noticed: needed,
                within: (at, at + u64::from(record.header.length_bytes)),
            });
        });
        offset_bytes += record.header.length_bytes;
    }
}

/// Names each part of a record: header, entries, their data, the zeroes between.
fn parts_of(record: &Record<'_>, geometry: &Geometry, area: &[u8], mut part: impl FnMut(&str, usize, usize, bool)) {
    let idle = if record.header.entry_count == 0 { " without entries" } else { "" };
    let header = format!("{:?} record{idle}, header", record.header.kind).to_lowercase();
    part(&header, 0, RECORD_HEADER_BYTES, false);
    let mut data_end = record.header.blocks_offset_bytes(geometry.block_size_bytes);
    let mut at = RECORD_HEADER_BYTES;
    for entry in record.entries() {
        let length = u32::from_le_bytes(area[at..at + 4].try_into().expect("4 bytes")) as usize;
        let kind = format!("{:?}", entry.head.kind).to_lowercase();
        part(&format!("{kind} entry"), at, length, false);
        if entry.data_bytes() > 0 {
            let shape = match (entry.head.kind, area[entry.data_offset_bytes as usize + LEAF_SHAPE_AT]) {
                (store::format::EntryKind::Leaf, shape) => {
                    [" (empty)", " (runs)", " (plain)", " (mixed)"][usize::from(shape)]
                }
                _ => "",
            };
            let data = format!("data of {kind} entry{shape}");
            part(&data, entry.data_offset_bytes as usize, entry.data_bytes() as usize, true);
            data_end = (entry.data_offset_bytes + entry.data_bytes()) as usize;
        }
        at += length;
    }
    let front = record.header.blocks_offset_bytes(geometry.block_size_bytes);
    if at < front {
        part("zeroes behind the entries", at, front - at, false);
    }
    let length = record.header.length_bytes as usize;
    if data_end < length {
        part("zeroes behind the data", data_end, length - data_end, true);
    }
}

/// Which bits of a structure are flipped.
fn bits_of(structure: &Structure) -> Vec<usize> {
    let bits = structure.length_bytes * 8;
    // Of what opening does not read again, a few.
    let spread = if structure.must_be_noticed { SPREAD_BITS } else { SPREAD_BITS / 4 };
    let step = (bits / spread).max(1);
    let mut chosen: Vec<usize> =
        (0..FIRST_BITS.min(bits)).chain((0..bits).step_by(step).map(|bit| bit + bit / step % 8)).collect();
    chosen.retain(|bit| *bit < bits);
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

fn new_world() -> (World, SimNode, SimDisk) {
    let world = World::new(11);
    let node = world.add_node(1, NodeOptions::default());
    let disk = node.add_disk(DISK, DISK_BYTES, DiskOptions::default());
    (world, node, disk)
}

#[test]
fn no_flipped_bit_goes_unnoticed_by_the_engine() {
    let (world, node, disk) = new_world();
    let model = Rc::new(world.run_on(&node, 0, write_history()).expect("the history is written"));
    node.crash();
    node.start();
    let (all, geometry) = structures(&disk);
    let image = Image::of(&disk, &written_by_openings(&disk, &geometry));
    let judged = |what: &str| {
        let verdict = world.run_on(&node, 0, judge(model.clone())).expect("the opening ends");
        node.kill();
        node.start();
        image.put_back(&disk);
        verdict.unwrap_or_else(|wrong| panic!("{what}: {wrong}"))
    };
    let checked = || world.run_on(&node, 0, check((0, 0))).expect("the check ends");
    assert_eq!(checked(), Check::Good, "the disk as it was");
    assert_eq!(judged("the disk as it was"), Noticed::NotNeeded);
    // One instance of each kind; the last of them, which is the most likely to be needed.
    let mut kinds: BTreeMap<String, Structure> = BTreeMap::new();
    for structure in all {
        if structure.must_be_noticed || !kinds.get(&structure.kind).is_some_and(|known| known.must_be_noticed) {
            kinds.insert(structure.kind.clone(), structure);
        }
    }
    println!("{:44} {:>6} {:>10} {:>8} {:>10}", "structure", "bits", "at opening", "at read", "not needed");
    for (kind, structure) in &kinds {
        let mut counts = [0; 3];
        for bit in bits_of(structure) {
            disk.flip_bit(structure.offset_bytes + bit as u64 / 8, (bit % 8) as u8);
            let checked = world.run_on(&node, 0, check(structure.within)).expect("the check ends");
            assert_eq!(checked, Check::Here, "{kind}: byte {} bit {}, by the check", bit / 8, bit % 8);
            let noticed = judged(&format!("{kind}, byte {}, bit {}", bit / 8, bit % 8));
            let must = structure.must_be_noticed;
            assert!(!must || noticed != Noticed::NotNeeded, "{kind}: byte {} bit {} went unnoticed", bit / 8, bit % 8);
            counts[noticed as usize] += 1;
        }
        let bits: u32 = counts.iter().sum();
        println!("{kind:44} {bits:>6} {:>10} {:>8} {:>10}", counts[0], counts[1], counts[2]);
    }
    let missing: Vec<_> = KINDS.into_iter().filter(|kind| !kinds.contains_key(*kind)).collect();
    assert_eq!(missing, [""; 0], "the history holds each kind: {:?}", kinds.keys());
    assert_eq!(checked(), Check::Good, "the disk as it was, in the end: no check wrote anything");
    assert_eq!(judged("the disk as it was, in the end"), Noticed::NotNeeded);
}

/// Where an opening writes: behind the last record, or into the next free segments.
fn written_by_openings(disk: &SimDisk, geometry: &Geometry) -> Vec<(u64, u64)> {
    let mut block = vec![0; geometry.block_size_bytes as usize];
    let mut free = 0;
    let mut ranges = Vec::new();
    for segment in (0..geometry.segment_count).map(SegmentIndex) {
        let start = geometry.segment_start_bytes(segment);
        disk.peek(start, &mut block);
        if block.iter().all(|byte| *byte == 0) {
            free += 1;
            if free <= 4 {
                ranges.push((start, start + (1 << 20)));
            }
        } else {
            ranges.push((start, start + u64::from(geometry.segment_size_bytes)));
        }
    }
    ranges
}

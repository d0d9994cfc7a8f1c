//! Every record of every segment, whether opening needs it or not.

use super::{Checked, Counts, Finding, Place, What};
use crate::error::Damage;
use crate::format::record::RECORD_MAGIC;
use crate::format::{
    Crc32c, DeviceUnit, EntryBody, FormatError, LeafKey, MAX_RECORD_BYTES, Record, RecordHeader, RecordPlace,
    RecordSeq, SegmentIndex, UNIT_BYTES,
};
use crate::open::Examined;
use crate::store::{FoundSegment, Store};
use runtime::{Device, IoBuf};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Incarnation, ShardIndex};

/// Read at once. Records are at most 1 MiB: most windows hold several.
const WINDOW_BYTES: usize = 4 << 20;
/// What of a window that the device refuses is tried again by itself.
const PIECE_BYTES: usize = 4096;
const _: () = assert!(WINDOW_BYTES >= 2 * MAX_RECORD_BYTES);

/// One shard's segments, and what was seen in them.
pub(super) struct Walk<'a> {
    pub(super) device: &'a Device,
    pub(super) store: &'a Store,
    pub(super) examined: &'a Examined,
    segments: Vec<FoundSegment>,
    pub(super) counts: Counts,
    pub(super) findings: Vec<Finding>,
    /// Each life of the store and the highest record that it said was durable.
    durable: BTreeMap<Incarnation, RecordSeq>,
    suspects: Vec<Suspect>,
    /// Blocks that the index names and that were found right where it says, per segment.
    pub(super) proved: BTreeMap<SegmentIndex, u64>,
    window: Window,
}

/// What is damage only if it was durable once.
struct Suspect {
    incarnation: Incarnation,
    /// It was durable if this was.
    record: RecordSeq,
    place: Place,
    kind: SuspectKind,
}

enum SuspectKind {
    /// No record, for so many bytes.
    Gap { len_bytes: u32, why: Arc<str> },
    /// The record's own data.
    Data { why: Arc<str> },
}

/// The part of a segment that was read last.
#[derive(Default)]
struct Window {
    segment: Option<SegmentIndex>,
    start_bytes: u32,
    bytes: Vec<u8>,
}

/// What lies between two good records of a segment.
struct Gap {
    start_bytes: u32,
    why: Arc<str>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(device: &'a Device, store: &'a Store, shard: ShardIndex, examined: &'a Examined) -> Self {
        Self {
            device,
            store,
            examined,
            segments: store.found_segments(shard),
            counts: Counts::default(),
            findings: examined.damage.iter().cloned().map(Finding::of_damage).collect(),
            durable: BTreeMap::new(),
            suspects: Vec::new(),
            proved: BTreeMap::new(),
            window: Window::default(),
        }
    }

    /// Reads one segment to its end.
    pub(super) async fn segment(&mut self, found: &FoundSegment) {
        let geometry = self.store.geometry;
        let mut offset_bytes = geometry.block_size_bytes;
        let mut gap: Option<Gap> = None;
        let mut last: Option<RecordSeq> = None;
        self.counts.segments += 1;
        while offset_bytes < geometry.segment_size_bytes {
            match self.record(found, offset_bytes).await {
                Ok(header) => {
                    if let Some(gap) = gap.take() {
                        self.suspect_gap(found, gap, offset_bytes, &header);
                    }
                    let durable = self.durable.entry(header.incarnation).or_default();
                    *durable = header.durable_through.max(*durable);
                    last = Some(header.seq);
                    offset_bytes += header.length_bytes;
                }
                Err(error) => {
                    let why = Arc::from(error.to_string());
                    gap.get_or_insert(Gap { start_bytes: offset_bytes, why });
                    offset_bytes = self.next_candidate(found, offset_bytes + geometry.block_size_bytes).await;
                }
            }
        }
        let ends_early = self
            .examined
            .last_known(found)
            .is_some_and(|known| last.is_none_or(|seq| seq < known) && !self.is_given_up(found, known));
        if let Some(gap) = gap.filter(|_| ends_early) {
            let len_bytes = geometry.segment_size_bytes - gap.start_bytes;
            let place = Place { segment: found.segment, offset_bytes: gap.start_bytes };
            self.tell(What::NoRecord { place, len_bytes, why: gap.why, was_durable: true });
        }
    }

    /// Judges the record at a place, all of it. `Err`: none that is good begins here.
    async fn record(&mut self, found: &FoundSegment, offset_bytes: u32) -> Result<RecordHeader, FormatError> {
        let geometry = self.store.geometry;
        let block = geometry.block_size_bytes;
        let room = (geometry.segment_size_bytes - offset_bytes) as usize;
        self.load(found.segment, offset_bytes, block as usize).await;
        let length = RecordHeader::peek(self.bytes(offset_bytes), block, room)?.length_bytes as usize;
        self.load(found.segment, offset_bytes, length).await;
        let window = std::mem::take(&mut self.window);
        let area = &window.bytes[(offset_bytes - window.start_bytes) as usize..];
        let place = RecordPlace { segment: found.segment, generation: found.generation, offset_bytes };
        let decoded = Record::decode(&self.store.key, &place, block, room, area);
        if let Ok(record) = &decoded {
            self.data(found, offset_bytes, record, &area[..length]);
        }
        let header = decoded.map(|record| record.header);
        self.window = window;
        header
    }

    /// Compares all sums of a good record.
    fn data(&mut self, found: &FoundSegment, offset_bytes: u32, record: &Record<'_>, whole: &[u8]) {
        let geometry = self.store.geometry;
        let header = &record.header;
        let is_given_up = self.is_given_up(found, header.seq);
        self.counts.records += 1;
        let mut suspect = |at: usize, why: String| {
            if is_given_up {
                return;
            }
            self.suspects.push(Suspect {
                incarnation: header.incarnation,
                record: header.seq,
                place: Place { segment: found.segment, offset_bytes: offset_bytes + at as u32 },
                kind: SuspectKind::Data { why: Arc::from(why) },
            });
        };
        if let Err(error) = record.check_padding(whole) {
            suspect(0, error.to_string());
        }
        for entry in record.entries() {
            self.counts.entries += 1;
            let data = entry.data_offset_bytes as usize;
            if let EntryBody::Leaf(leaf) = entry.body
                && let Err(error) = leaf.decode(&whole[data..])
            {
                let (layer, chunk) = (entry.head.layer, entry.head.chunk);
                suspect(data, format!("leaf of chunk {chunk}, layer {layer}: {error}"));
            }
            let Some(sums) = entry.stored_sums() else { continue };
            let first = geometry.unit_at(found.segment, offset_bytes + data as u32);
            for (number, stored) in (u16::from(entry.head.first_block)..).zip(sums.stored_from(first)) {
                self.counts.blocks += 1;
                let at = ((stored.location.0 - first.0) as usize) * UNIT_BYTES + data;
                let is_right = Crc32c::of(&whole[at..at + stored.stored.bytes()]) == stored.checksum;
                if self.examined.is_needed(entry.head.leaf_key(), number, stored) {
                    self.counts.blocks_needed += u64::from(is_right);
                    *self.proved.entry(found.segment).or_default() += u64::from(is_right);
                } else if !is_right {
                    let LeafKey { layer, chunk } = entry.head.leaf_key();
                    suspect(at, format!("the sum of block {number} of chunk {chunk}, layer {layer}, differs"));
                }
            }
        }
    }

    /// Between two records a third must have been: durable, if the one behind it is known to have been. Between two
    /// lives too: the later one goes on right behind what it found.
    fn suspect_gap(&mut self, found: &FoundSegment, gap: Gap, end_bytes: u32, behind: &RecordHeader) {
        if self.is_given_up(found, behind.seq) {
            return;
        }
        self.suspects.push(Suspect {
            incarnation: behind.incarnation,
            record: behind.seq,
            place: Place { segment: found.segment, offset_bytes: gap.start_bytes },
            kind: SuspectKind::Gap { len_bytes: end_bytes - gap.start_bytes, why: gap.why },
        });
    }

    /// Whether a record was written again in a later segment: the append that should have put it here had failed.
    fn is_given_up(&self, found: &FoundSegment, record: RecordSeq) -> bool {
        // Each stream goes on apart from the others.
        let goes_on = |later: &FoundSegment| later.stream == found.stream;
        let later = self.segments.iter().filter(|later| later.generation > found.generation && goes_on(later));
        later.map(|later| later.first_record).any(|first| first <= record)
    }

    /// All has been read: what was durable and is not right is damage.
    pub(super) fn judge(&mut self) {
        for suspect in std::mem::take(&mut self.suspects) {
            let said = self.durable.get(&suspect.incarnation).copied().unwrap_or_default();
            let (place, was_durable) = (suspect.place, said >= suspect.record);
            self.tell(match suspect.kind {
                SuspectKind::Gap { len_bytes, why } => What::NoRecord { place, len_bytes, why, was_durable },
                SuspectKind::Data { why } => What::Data { place, record: suspect.record, why, was_durable },
            });
        }
    }

    /// Notes it, unless opening has said the same of this place.
    pub(super) fn tell(&mut self, what: What) {
        let finding = Finding::new(what);
        let is_known = |known: &Finding| {
            matches!(known.what, What::Damage(Damage::Records { .. } | Damage::Leaf { .. } | Damage::Padding { .. }))
                && known.place() == finding.place()
        };
        if matches!(finding.what, What::Block { .. }) {
            // The same bytes, as their record saw them.
            self.findings.retain(|known| !matches!(known.what, What::Data { .. }) || known.place() != finding.place());
        }
        if !self.findings.iter().any(is_known) {
            self.findings.push(finding);
        }
    }

    /// Gives what was found to `checked`.
    pub(super) fn end(self, checked: &mut Checked) {
        let (all, own) = (&mut checked.counts, &self.counts);
        all.segments += own.segments;
        all.records += own.records;
        all.entries += own.entries;
        all.blocks += own.blocks;
        all.blocks_needed += own.blocks_needed;
        all.bytes += own.bytes;
        for finding in self.findings {
            if !checked.findings.contains(&finding) {
                checked.findings.push(finding);
            }
        }
    }

    /// The next place from an offset on where a record may begin, or the end of the segment.
    async fn next_candidate(&mut self, found: &FoundSegment, mut offset_bytes: u32) -> u32 {
        let geometry = self.store.geometry;
        let block = geometry.block_size_bytes;
        while offset_bytes < geometry.segment_size_bytes {
            self.load(found.segment, offset_bytes, block as usize).await;
            let bytes = self.bytes(offset_bytes);
            let blocks = bytes.len() / block as usize;
            match bytes.chunks_exact(block as usize).position(|bytes| bytes.starts_with(&RECORD_MAGIC)) {
                Some(at) => return offset_bytes + at as u32 * block,
                None => offset_bytes += blocks as u32 * block,
            }
        }
        geometry.segment_size_bytes
    }

    /// What is loaded from an offset on.
    fn bytes(&self, offset_bytes: u32) -> &[u8] {
        &self.window.bytes[(offset_bytes - self.window.start_bytes) as usize..]
    }

    /// Makes the window hold so many bytes from an offset of the segment on, as far as the segment goes.
    async fn load(&mut self, segment: SegmentIndex, offset_bytes: u32, len: usize) {
        let room = (self.store.geometry.segment_size_bytes - offset_bytes) as usize;
        let window = &self.window;
        let is_here = window.segment == Some(segment)
            && window.start_bytes <= offset_bytes
            && (offset_bytes - window.start_bytes) as usize + len.min(room) <= window.bytes.len();
        if is_here {
            return;
        }
        let len = WINDOW_BYTES.min(room);
        let from = self.store.geometry.segment_start_bytes(segment) + u64::from(offset_bytes);
        let mut bytes = std::mem::take(&mut self.window.bytes);
        bytes.clear();
        let (read, buf) = self.device.read(from, IoBuf::new(len)).await;
        match read {
            Ok(()) => bytes.extend_from_slice(&buf),
            Err(_) => self.load_pieces(segment, offset_bytes, len, &mut bytes).await,
        }
        self.counts.bytes += len as u64;
        self.window = Window { segment: Some(segment), start_bytes: offset_bytes, bytes };
    }

    /// What can be read of a part that cannot be read as a whole; zeroes for the rest.
    async fn load_pieces(&mut self, segment: SegmentIndex, offset_bytes: u32, len: usize, bytes: &mut Vec<u8>) {
        let start = self.store.geometry.segment_start_bytes(segment);
        for at in (offset_bytes..offset_bytes + len as u32).step_by(PIECE_BYTES) {
            let piece = PIECE_BYTES.min((offset_bytes as usize + len) - at as usize);
            let (read, buf) = self.device.read(start + u64::from(at), IoBuf::new(piece)).await;
            match read {
                Ok(()) => bytes.extend_from_slice(&buf),
                Err(error) => {
                    bytes.resize(bytes.len() + piece, 0);
                    self.unreadable(Place { segment, offset_bytes: at }, piece as u32, &error.to_string());
                }
            }
        }
    }

    fn unreadable(&mut self, place: Place, len_bytes: u32, message: &str) {
        // One stretch, one line.
        if let Some(Finding { what: What::Unreadable { place: before, len_bytes: known, .. }, .. }) =
            self.findings.last_mut()
            && before.segment == place.segment
            && before.offset_bytes + *known == place.offset_bytes
        {
            *known += len_bytes;
            return;
        }
        let message = Arc::from(message);
        self.findings.push(Finding::new(What::Unreadable { place, len_bytes, message }));
    }
}

/// Where a unit is, as a place in a segment.
pub(super) fn place_of(store: &Store, unit: DeviceUnit) -> Option<Place> {
    let segment = store.geometry.segment_of(unit)?;
    let offset_bytes = (unit.byte_offset() - store.geometry.segment_start_bytes(segment)) as u32;
    Some(Place { segment, offset_bytes })
}

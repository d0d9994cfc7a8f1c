//! The superblock: what the device is, and where recovery begins.
//!
//! It is kept in four slots, two at each end of the device. Update number n (the write counter) goes to slot n mod 2 at
//! both ends, and number n + 1 is not begun before n is durable at both: so a torn or lost update destroys at most the
//! slots of one parity, and the other parity still holds the update before, at both ends. The newest good slot counts.

use super::bytes::{array_at, check_length, check_zero, put_u32, put_u64, put_u128, u32_at, u64_at, u128_at};
use super::geometry::{END_AREA_BYTES, Geometry, MAX_SHARDS};
use super::hash::plain_hash;
use super::{FormatError, HashKey, PassId, RecordPointer, RecordSeq};
use types::{ClusterId, Incarnation, StoreId};

const WHAT: &str = "superblock";
/// First bytes of a slot.
pub const SUPERBLOCK_MAGIC: [u8; 8] = *b"CairnSup";
/// Version of all structures on the device.
pub const VERSION: u32 = 1;
/// Length of a slot.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// Distance of the two slots of one end: further apart than any flash page, so that one bad write cannot take both.
pub const SLOT_DISTANCE_BYTES: u64 = 64 << 10;
const KEY_SLOT_AT: usize = 160;
const KEY_SLOT_BYTES: usize = 256;
const SHARDS_AT: usize = 512;
const SUM_AT: usize = SUPERBLOCK_BYTES - 32;
const _: () = assert!(KEY_SLOT_AT + KEY_SLOT_BYTES <= SHARDS_AT);
const _: () = assert!(SHARDS_AT + MAX_SHARDS as usize * ShardRoot::ENCODED_BYTES <= SUM_AT);
const _: () = assert!(END_AREA_BYTES >= 2 * SLOT_DISTANCE_BYTES);

pub(crate) fn check_version(what: &'static str, found: u32) -> Result<(), FormatError> {
    if found == VERSION {
        return Ok(());
    }
    Err(FormatError::Version { what, found, supported: VERSION })
}

/// One of the four slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotPosition {
    /// At the end of the device, not at its front.
    pub back: bool,
    /// Holds updates with an odd number.
    pub odd: bool,
}

impl SlotPosition {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self { back: false, odd: false },
        Self { back: false, odd: true },
        Self { back: true, odd: false },
        Self { back: true, odd: true },
    ];

    /// The two slots that update number `write_counter` goes to.
    pub fn of_update(write_counter: u64) -> [Self; 2] {
        let odd = write_counter % 2 == 1;
        [Self { back: false, odd }, Self { back: true, odd }]
    }

    /// Where it is on a device of this size (rounded down to 4 KiB).
    pub fn offset_bytes(self, device_size_bytes: u64) -> u64 {
        let parity = if self.odd { SLOT_DISTANCE_BYTES } else { 0 };
        let start = if self.back { (device_size_bytes & !4095) - 2 * SLOT_DISTANCE_BYTES } else { 0 };
        start + parity
    }

    fn number(self) -> u8 {
        u8::from(self.back) << 1 | u8::from(self.odd)
    }
}

/// Where a shard's recovery begins.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 8 | last complete pass, 0 none |
/// | 8 | 24 | its first record ([`RecordPointer`]) |
/// | 32 | 24 | its last record |
/// | 56 | 24 | where replay begins; none before the first pass: replay is of all there is |
/// | 80 | 8 | record at which the shard was stopped by an assertion, 0 none |
/// | 88 | 4 | how often in a row it stopped there |
/// | 92 | 4 | zero |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardRoot {
    /// The last complete pass.
    pub pass: PassId,
    /// Its first record.
    pub pass_first: RecordPointer,
    /// Its last record.
    pub pass_last: RecordPointer,
    /// The first record that is replayed.
    pub replay_start: RecordPointer,
    /// What is remembered of an assertion, so that a store that stops twice at the same record is not started again.
    pub stopped: StopMark,
}

/// The record that recovery or service stopped at, and how often in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopMark {
    /// The record; 0 for none.
    pub record: RecordSeq,
    /// Stops in a row at this record.
    pub times: u32,
}

impl ShardRoot {
    /// Length as stored.
    pub const ENCODED_BYTES: usize = 96;

    fn encode(&self, out: &mut [u8]) {
        put_u64(out, 0, self.pass.0);
        self.pass_first.encode(&mut out[8..]);
        self.pass_last.encode(&mut out[32..]);
        self.replay_start.encode(&mut out[56..]);
        put_u64(out, 80, self.stopped.record.0);
        put_u32(out, 88, self.stopped.times);
    }

    fn decode(from: &[u8]) -> Result<Self, FormatError> {
        check_zero(WHAT, 92, &from[92..96])?;
        let root = Self {
            pass: PassId(u64_at(from, 0)),
            pass_first: RecordPointer::decode(WHAT, &from[8..32])?,
            pass_last: RecordPointer::decode(WHAT, &from[32..56])?,
            replay_start: RecordPointer::decode(WHAT, &from[56..80])?,
            stopped: StopMark { record: RecordSeq(u64_at(from, 80)), times: u32_at(from, 88) },
        };
        let none = root.pass.0 == 0;
        let pointers = [root.pass_first, root.pass_last, root.replay_start];
        if pointers.iter().any(|pointer| pointer.is_none() != none) {
            return Err(FormatError::Field { what: WHAT, field: "last complete pass", found: root.pass.0 });
        }
        if root.replay_start.seq > root.pass_first.seq || root.pass_first.seq > root.pass_last.seq {
            return Err(FormatError::Field { what: WHAT, field: "replay start", found: root.replay_start.seq.0 });
        }
        Ok(root)
    }
}

/// The superblock, 4 KiB.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 8 | magic `CairnSup` |
/// | 8 | 4 | version, 1 |
/// | 12 | 4 | slot: 0 front even, 1 front odd, 2 back even, 3 back odd |
/// | 16 | 8 | compatible feature bits: a build that does not know them may use the device |
/// | 24 | 8 | read-only-compatible bits: it may only read |
/// | 32 | 8 | incompatible bits: it may not |
/// | 40 | 16 | cluster id |
/// | 56 | 16 | store id |
/// | 72 | 8 | device size, bytes, at format |
/// | 80 | 4 | segment size, bytes |
/// | 84 | 4 | number of segments |
/// | 88 | 4 | device block, bytes |
/// | 92 | 1 | number of shards |
/// | 93 | 3 | zero |
/// | 96 | 8 | formatted at, wall clock, ns since 1970 |
/// | 104 | 8 | written at, wall clock, ns since 1970 |
/// | 112 | 8 | incarnation: the last that was begun |
/// | 120 | 8 | write counter |
/// | 128 | 32 | key of the keyed hash |
/// | 160 | 256 | key slot of whole-device encryption: zero, no encryption |
/// | 416 | 96 | zero |
/// | 512 | 96 × 8 | shards ([`ShardRoot`]); those that are not there are zero |
/// | 1,280 | 2,784 | zero |
/// | 4,064 | 32 | BLAKE2s (32 bytes, no key) of bytes 0..4,064 |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Features a build may ignore.
    pub compat: u64,
    /// Features without which a build may only read.
    pub read_only_compat: u64,
    /// The cluster the store belongs to.
    pub cluster: ClusterId,
    /// This store, for ever.
    pub store: StoreId,
    /// How the device is divided.
    pub geometry: Geometry,
    /// Wall clock, ns since 1970.
    pub formatted_at_ns: u64,
    /// Wall clock, ns since 1970.
    pub written_at_ns: u64,
    /// The last incarnation that was begun. An opening writes it + 1 before it does anything else.
    pub incarnation: Incarnation,
    /// Number of this update.
    pub write_counter: u64,
    /// Key of the keyed hash, made at format.
    pub hash_key: HashKey,
    /// One per shard; those past `geometry.shard_count` are default.
    pub shards: [ShardRoot; MAX_SHARDS as usize],
}

impl Superblock {
    /// Fills a slot.
    ///
    /// # Panics
    /// If this update does not go to that slot, or `out` is not 4 KiB.
    pub fn encode(&self, position: SlotPosition, out: &mut [u8]) {
        assert_eq!(out.len(), SUPERBLOCK_BYTES);
        assert_eq!(position.odd, self.write_counter % 2 == 1, "an update goes to the slots of its parity");
        debug_assert_eq!(self.geometry.check(), Ok(()));
        out.fill(0);
        out[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        put_u32(out, 8, VERSION);
        put_u32(out, 12, u32::from(position.number()));
        put_u64(out, 16, self.compat);
        put_u64(out, 24, self.read_only_compat);
        put_u128(out, 40, self.cluster.0);
        put_u128(out, 56, self.store.0);
        put_u64(out, 72, self.geometry.device_size_bytes);
        put_u32(out, 80, self.geometry.segment_size_bytes);
        put_u32(out, 84, self.geometry.segment_count);
        put_u32(out, 88, self.geometry.block_size_bytes);
        out[92] = self.geometry.shard_count;
        put_u64(out, 96, self.formatted_at_ns);
        put_u64(out, 104, self.written_at_ns);
        put_u64(out, 112, self.incarnation.0);
        put_u64(out, 120, self.write_counter);
        out[128..160].copy_from_slice(&self.hash_key.0);
        for (shard, root) in out[SHARDS_AT..].chunks_exact_mut(ShardRoot::ENCODED_BYTES).zip(&self.shards) {
            root.encode(shard);
        }
        let sum = plain_hash(&out[..SUM_AT]);
        out[SUM_AT..].copy_from_slice(&sum);
    }

    /// Reads a slot.
    ///
    /// # Errors
    /// [`FormatError::Magic`] if no superblock was ever written there; [`FormatError::Hash`] if it is torn or damaged;
    /// `Version` or `Features` if it is good and a newer build's.
    pub fn decode(position: SlotPosition, from: &[u8]) -> Result<Self, FormatError> {
        check_length(WHAT, from, SUPERBLOCK_BYTES)?;
        let from = &from[..SUPERBLOCK_BYTES];
        if from[..8] != SUPERBLOCK_MAGIC {
            return Err(FormatError::Magic { what: WHAT });
        }
        if plain_hash(&from[..SUM_AT]) != from[SUM_AT..] {
            return Err(FormatError::Hash { what: WHAT });
        }
        check_version(WHAT, u32_at(from, 8))?;
        let (read_only_compat, incompat) = (u64_at(from, 24), u64_at(from, 32));
        if incompat != 0 || read_only_compat != 0 {
            // This build has no read-only mode, so it treats both alike.
            return Err(FormatError::Features { what: WHAT, bits: incompat | read_only_compat });
        }
        let slot = u32_at(from, 12);
        if slot != u32::from(position.number()) {
            return Err(FormatError::Field { what: WHAT, field: "slot", found: u64::from(slot) });
        }
        let superblock = Self::decode_fields(from, read_only_compat)?;
        if superblock.compat == 0 {
            // A compatible feature may have put something there.
            check_zero(WHAT, 93, &from[93..96])?;
            check_zero(WHAT, KEY_SLOT_AT, &from[KEY_SLOT_AT..SHARDS_AT])?;
            let shards_end = SHARDS_AT + usize::from(superblock.geometry.shard_count) * ShardRoot::ENCODED_BYTES;
            check_zero(WHAT, shards_end, &from[shards_end..SUM_AT])?;
        }
        if position.odd != (superblock.write_counter % 2 == 1) {
            return Err(FormatError::Field { what: WHAT, field: "write counter", found: superblock.write_counter });
        }
        Ok(superblock)
    }

    fn decode_fields(from: &[u8], read_only_compat: u64) -> Result<Self, FormatError> {
        let geometry = Geometry {
            device_size_bytes: u64_at(from, 72),
            segment_size_bytes: u32_at(from, 80),
            segment_count: u32_at(from, 84),
            block_size_bytes: u32_at(from, 88),
            shard_count: from[92],
        };
        if geometry.check().is_err() {
            let found = geometry.device_size_bytes;
            return Err(FormatError::Field { what: WHAT, field: "geometry (device size)", found });
        }
        let mut shards = [ShardRoot::default(); MAX_SHARDS as usize];
        let stored = from[SHARDS_AT..].chunks_exact(ShardRoot::ENCODED_BYTES);
        for (root, from) in shards.iter_mut().zip(stored).take(usize::from(geometry.shard_count)) {
            *root = ShardRoot::decode(from)?;
        }
        Ok(Self {
            compat: u64_at(from, 16),
            read_only_compat,
            cluster: ClusterId(u128_at(from, 40)),
            store: StoreId(u128_at(from, 56)),
            geometry,
            formatted_at_ns: u64_at(from, 96),
            written_at_ns: u64_at(from, 104),
            incarnation: Incarnation(u64_at(from, 112)),
            write_counter: u64_at(from, 120),
            hash_key: HashKey(array_at(from, 128)),
            shards,
        })
    }

    /// The newest of the good ones. `slots` are what [`decode`](Self::decode) said of each, in the order of
    /// [`SlotPosition::ALL`].
    ///
    /// # Errors
    /// If none is good: the error that says most (a newer build's before damage, damage before nothing there). If good
    /// ones are of different stores: somebody wrote over one end of the device.
    pub fn newest(slots: [Result<Self, FormatError>; 4]) -> Result<Self, FormatError> {
        let mut newest: Option<Self> = None;
        let mut worst = FormatError::Magic { what: WHAT };
        for slot in slots {
            match slot {
                Ok(found) => {
                    let Some(other) = &newest else {
                        newest = Some(found);
                        continue;
                    };
                    if other.store != found.store {
                        let found = found.store.0 as u64;
                        return Err(FormatError::Field { what: WHAT, field: "store id at the other end", found });
                    }
                    if found.write_counter > other.write_counter {
                        newest = Some(found);
                    }
                }
                // A newer build wrote one of them: even an older good one is not ours to use.
                Err(error @ (FormatError::Version { .. } | FormatError::Features { .. })) => return Err(error),
                Err(FormatError::Magic { .. }) => {}
                Err(error) => worst = error,
            }
        }
        newest.ok_or(worst)
    }
}

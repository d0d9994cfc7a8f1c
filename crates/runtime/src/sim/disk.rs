//! A simulated disk: its contents, what of them a power loss may take, and its faults.

use super::contents::Contents;
use super::random::{PerMillion, Random};
use crate::buf::SharedBuf;
use crate::device::DeviceInfo;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;

/// What a power loss tears writes into, whatever the device's block.
pub(super) const SECTOR_BYTES: usize = 512;

/// Completed and unsynced bytes that a volatile cache holds; the oldest become durable beyond it.
const CACHE_BYTES: usize = 64 << 20;

/// How long an operation takes: a base, an even spread, now and then several times that, and the transfer.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Shortest time.
    pub base_ns: u64,
    /// Up to this much more: what reorders completions.
    pub spread_ns: u64,
    /// For each KiB.
    pub per_kib_ns: u64,
    /// How often an operation takes [`slow_ns`](Self::slow_ns) more.
    pub slow: PerMillion,
    /// See [`slow`](Self::slow).
    pub slow_ns: u64,
}

impl Latency {
    pub(super) fn draw(&self, random: &Random, len: u64) -> u64 {
        let mut time = self.base_ns + random.below(self.spread_ns + 1) + (len >> 10) * self.per_kib_ns;
        if random.one_in(32) {
            time += random.below(8 * self.spread_ns + 1);
        }
        if random.chance(self.slow) {
            time += random.below(self.slow_ns + 1);
        }
        time
    }
}

/// How often each fault happens.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFaults {
    /// A read fails.
    pub read_error: PerMillion,
    /// A write fails; nothing, some or all of its sectors were written.
    pub write_error: PerMillion,
    /// A flush fails; what it covered may be lost with the power for ever after, however often a flush succeeds.
    pub flush_error: PerMillion,
    /// Some bit of what was ever written turns over (per operation on the disk).
    pub bit_rot: PerMillion,
    /// A write is acknowledged and never done.
    pub lost_write: PerMillion,
    /// A write is acknowledged and was done elsewhere.
    pub misplaced_write: PerMillion,
    /// An operation never ends.
    pub hang: PerMillion,
}

/// What a disk is like.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// 512 or 4,096.
    pub block_size_bytes: u32,
    /// Whether completed writes are lost with the power until a flush.
    pub volatile_cache: bool,
    /// Whether it is a file.
    pub is_file: bool,
    /// Time of a read.
    pub read: Latency,
    /// Time of a write.
    pub write: Latency,
    /// Time of a flush.
    pub flush: Latency,
    /// Its faults; none at first.
    pub faults: DiskFaults,
}

impl Default for DiskOptions {
    /// A fast NVMe drive without power-loss protection.
    fn default() -> Self {
        let latency =
            |base_ns, spread_ns, per_kib_ns| Latency { base_ns, spread_ns, per_kib_ns, slow: 200, slow_ns: 20_000_000 };
        Self {
            block_size_bytes: 512,
            volatile_cache: true,
            is_file: false,
            read: latency(40_000, 40_000, 250),
            write: latency(10_000, 30_000, 400),
            flush: latency(50_000, 400_000, 0),
            faults: DiskFaults::default(),
        }
    }
}

/// A completed write that a power loss may still take: what was there before.
struct Unsynced {
    number: u64,
    offset: u64,
    before: Vec<u8>,
    /// A flush that covered it has failed: no later one makes it durable.
    doomed: bool,
}

/// What a power loss left of a write.
#[derive(Clone, Copy)]
pub(super) struct Settled {
    pub(super) offset: u64,
    pub(super) kept_sectors: u64,
    pub(super) lost_sectors: u64,
}

pub(super) struct Disk {
    pub(super) node: u32,
    pub(super) path: PathBuf,
    pub(super) info: DeviceInfo,
    pub(super) options: DiskOptions,
    pub(super) contents: Contents,
    pub(super) random: Random,
    /// Operations hang from now on, until released.
    pub(super) hanging: bool,
    /// The same of reads.
    pub(super) reads_hang: bool,
    /// Bytes that cannot be read.
    pub(super) unreadable: Option<Range<u64>>,
    /// Each operation takes so much longer.
    pub(super) delay_ns: u64,
    /// In the order of completion.
    unsynced: VecDeque<Unsynced>,
    unsynced_bytes: usize,
    writes_completed: u64,
    /// How often it lied: bits turned, writes lost or misplaced.
    pub(super) lies: u64,
    spare: Vec<Vec<u8>>,
}

impl Disk {
    pub(super) fn new(node: u32, path: PathBuf, size_bytes: u64, options: DiskOptions, random: Random) -> Self {
        assert!(matches!(options.block_size_bytes, 512 | 4096), "block of {} bytes", options.block_size_bytes);
        assert_eq!(size_bytes % u64::from(options.block_size_bytes), 0, "size in whole blocks");
        let info = DeviceInfo {
            size_bytes,
            block_size_bytes: options.block_size_bytes,
            volatile_cache: options.volatile_cache,
            is_file: options.is_file,
        };
        Self {
            node,
            path,
            info,
            options,
            contents: Contents::new(size_bytes),
            random,
            hanging: false,
            reads_hang: false,
            unreadable: None,
            delay_ns: 0,
            unsynced: VecDeque::new(),
            unsynced_bytes: 0,
            writes_completed: 0,
            lies: 0,
            spare: Vec::new(),
        }
    }

    /// Number of the newest completed write: what a flush that is asked for now covers.
    pub(super) fn completed_writes(&self) -> u64 {
        self.writes_completed
    }

    /// Does a write. Durable at once without a volatile cache.
    pub(super) fn apply(&mut self, offset: u64, parts: &[SharedBuf]) {
        self.writes_completed += 1;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if self.options.volatile_cache {
            let mut before = self.spare.pop().unwrap_or_default();
            before.resize(len, 0);
            self.contents.read(offset, &mut before);
            self.unsynced_bytes += len;
            self.unsynced.push_back(Unsynced { number: self.writes_completed, offset, before, doomed: false });
            while self.unsynced_bytes > CACHE_BYTES {
                self.forget_oldest();
            }
        }
        let mut at = offset;
        for part in parts {
            self.contents.write(at, part);
            at += part.len() as u64;
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.unsynced.pop_front() {
            self.recycle(oldest.before);
        }
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        self.unsynced_bytes -= bytes.len();
        if self.spare.len() < 64 {
            self.spare.push(bytes);
        }
    }

    /// A flush that was asked for when `through` was the newest completed write has succeeded.
    pub(super) fn made_durable(&mut self, through: u64) {
        if self.unsynced.iter().any(|write| write.doomed) {
            self.cover_doomed(through);
            let mut kept = VecDeque::new();
            for write in std::mem::take(&mut self.unsynced) {
                match write.doomed || write.number > through {
                    true => kept.push_back(write),
                    false => self.recycle(write.before),
                }
            }
            self.unsynced = kept;
            return;
        }
        while self.unsynced.front().is_some_and(|write| write.number <= through) {
            self.forget_oldest();
        }
    }

    /// What was written over a doomed write and is durable now survives it: the doomed one may take back no more than
    /// what lies under that.
    fn cover_doomed(&mut self, through: u64) {
        for at in 0..self.unsynced.len() {
            if !self.unsynced[at].doomed {
                continue;
            }
            let (offset, len) = (self.unsynced[at].offset, self.unsynced[at].before.len());
            let newer = || self.unsynced.iter().skip(at + 1);
            // The bytes as they are without the writes that are not durable.
            let mut durable = vec![0; len];
            self.contents.read(offset, &mut durable);
            for write in newer().rev().filter(|write| write.doomed || write.number > through) {
                overlay(&mut durable, offset, &write.before, write.offset);
            }
            let mut before = self.unsynced[at].before.clone();
            for write in newer().filter(|write| !write.doomed && write.number <= through) {
                let start = write.offset.max(offset);
                let end = (write.offset + write.before.len() as u64).min(offset + len as u64);
                if start < end {
                    overlay(&mut before, offset, &durable[(start - offset) as usize..(end - offset) as usize], start);
                }
            }
            self.unsynced[at].before = before;
        }
    }

    /// A flush has failed: some of what it covered will not survive a power loss whatever is done about it.
    pub(super) fn flush_failed(&mut self, through: u64) {
        for write in self.unsynced.iter_mut().filter(|write| write.number <= through) {
            write.doomed |= self.random.one_in(2);
        }
    }

    /// Writes some sectors of a write that was under way when the power went, or that failed.
    pub(super) fn apply_part(&mut self, offset: u64, parts: &[SharedBuf], random: &Random) -> Settled {
        write_part(&mut self.contents, offset, parts, random)
    }

    /// The power goes: of each unsynced write any subset of sectors is taken back, newest write first. A sector that
    /// a newer write keeps is not touched by what happens to an older one.
    pub(super) fn lose_power(&mut self, random: &Random, settled: impl FnMut(Settled)) {
        take_back(&mut self.contents, &self.unsynced, random, settled);
        while let Some(write) = self.unsynced.pop_back() {
            self.recycle(write.before);
        }
    }

    /// What the disk would hold if the power went now, with `under_way` the writes that it has not done yet.
    pub(super) fn without_power<'a>(
        &self,
        under_way: impl Iterator<Item = (u64, &'a [SharedBuf])>,
        random: &Random,
    ) -> Contents {
        let mut contents = self.contents.clone();
        take_back(&mut contents, &self.unsynced, random, |_| ());
        for (offset, parts) in under_way {
            write_part(&mut contents, offset, parts, random);
        }
        contents
    }

    /// One bit of what was ever written turns over. Returns where.
    pub(super) fn rot(&mut self) -> Option<u64> {
        let page = self.contents.written_offset(self.random.next_u64())?;
        let at = page + self.random.below(4096);
        let bit = self.random.below(8) as u8;
        self.contents.flip_bit(at, bit);
        self.lies += 1;
        Some(at)
    }
}

/// Writes some sectors of a write: none, all, the first few, or any.
fn write_part(contents: &mut Contents, offset: u64, parts: &[SharedBuf], random: &Random) -> Settled {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let sectors = (len / SECTOR_BYTES) as u64;
    let fate = Fate::draw(random, sectors);
    let (mut kept_sectors, mut at) = (0, offset);
    for part in parts {
        for sector in part.chunks(SECTOR_BYTES) {
            if fate.keeps((at - offset) / SECTOR_BYTES as u64, random) {
                contents.write(at, sector);
                kept_sectors += 1;
            }
            at += sector.len() as u64;
        }
    }
    Settled { offset, kept_sectors, lost_sectors: sectors - kept_sectors }
}

/// Takes back any subset of sectors of each unsynced write.
fn take_back(
    contents: &mut Contents,
    unsynced: &VecDeque<Unsynced>,
    random: &Random,
    mut settled: impl FnMut(Settled),
) {
    let mut decided = hashbrown::HashSet::with_hasher(foldhash::fast::FixedState::with_seed(0));
    for write in unsynced.iter().rev() {
        let sectors = (write.before.len() / SECTOR_BYTES) as u64;
        let fate = if write.doomed { Fate::Nothing } else { Fate::draw(random, sectors) };
        let mut kept_sectors = 0;
        for (index, before) in write.before.chunks(SECTOR_BYTES).enumerate() {
            let at = write.offset + (index * SECTOR_BYTES) as u64;
            if fate.keeps(index as u64, random) {
                decided.insert(at);
                kept_sectors += 1;
            } else if !decided.contains(&at) {
                contents.write(at, before);
            }
        }
        settled(Settled { offset: write.offset, kept_sectors, lost_sectors: sectors - kept_sectors });
    }
}

impl Disk {
    /// One bit of this range turns over.
    pub(super) fn rot_within(&mut self, range: Range<u64>) -> u64 {
        let at = range.start + self.random.below(range.end - range.start);
        self.contents.flip_bit(at, self.random.below(8) as u8);
        self.lies += 1;
        at
    }

    /// One bit of a sector that begins with these bytes turns over. Returns where; `None` if there is no such sector.
    pub(super) fn rot_sector(&mut self, beginning: &[u8]) -> Option<u64> {
        let found = self.contents.find(SECTOR_BYTES, beginning);
        let sector = *found.get(self.random.below((found.len() as u64).max(1)) as usize)?;
        let at = sector + self.random.below(SECTOR_BYTES as u64);
        self.contents.flip_bit(at, self.random.below(8) as u8);
        self.lies += 1;
        Some(at)
    }
}

/// Puts the part of `from`, which lies at `from_offset`, that `into`, which lies at `into_offset`, has room for over
/// it.
fn overlay(into: &mut [u8], into_offset: u64, from: &[u8], from_offset: u64) {
    let start = into_offset.max(from_offset);
    let end = (into_offset + into.len() as u64).min(from_offset + from.len() as u64);
    if start < end {
        let from = &from[(start - from_offset) as usize..(end - from_offset) as usize];
        into[(start - into_offset) as usize..(end - into_offset) as usize].copy_from_slice(from);
    }
}

/// What a power loss leaves of one write.
#[derive(Clone, Copy)]
enum Fate {
    Nothing,
    Everything,
    /// The sectors before this one.
    First(u64),
    /// Each sector by a coin.
    Any,
}

impl Fate {
    fn draw(random: &Random, sectors: u64) -> Self {
        match random.below(8) {
            0..3 => Self::Nothing,
            3..5 => Self::Everything,
            5 => Self::First(random.below(sectors + 1)),
            _ => Self::Any,
        }
    }

    fn keeps(self, sector: u64, random: &Random) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::First(count) => sector < count,
            Self::Any => random.one_in(2),
        }
    }
}

//! From a record of device I/O to the images that a power loss could have left.
//!
//! ```text
//!   record ──event──▶ durable (what no power loss takes)   pending (issued, not yet covered by a completed sync)
//!                        └────────── power loss here ──────────┘
//!                          durable + any subset of pending, torn at 512 bytes = image
//! ```
//!
//! A sync that has completed makes durable every write that had completed when the sync was *issued*; nothing else
//! does (on a device without a volatile cache: the write's own completion). One image in memory is rolled forward
//! event by event; one image file takes a power loss, is opened by the store under test, and is put back from the
//! image in memory wherever either has changed it.

use crate::pattern::SECTOR_BYTES;
use crate::random::Random;
use hashbrown::HashMap;
use runtime::uring::record::{Event, Reader, RecordedOperation, What};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Discards are zeroes here: one choice among what the device may return.
const ZEROES: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];

/// A write that a power loss may still take.
struct Pending {
    operation: RecordedOperation,
    offset: u64,
    data: Data,
    completed: bool,
}

enum Data {
    Bytes(Vec<u8>),
    Discarded(u64),
}

impl Pending {
    fn range(&self) -> Range<u64> {
        let len = match &self.data {
            Data::Bytes(bytes) => bytes.len() as u64,
            Data::Discarded(len) => *len,
        };
        self.offset..self.offset + len
    }
}

/// How the unflushed writes of a power loss are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Each is there, torn or gone, by chance.
    Random,
    /// All are gone.
    All,
    /// All are there.
    None,
}

/// A device as its record goes on.
pub struct Roller {
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// What each sync that is under way will make durable.
    syncs: HashMap<RecordedOperation, Vec<RecordedOperation>, foldhash::fast::FixedState>,
    volatile_cache: bool,
    time_ns: u64,
    image: File,
    /// Where the image file may differ from `durable`.
    dirty: Vec<Range<u64>>,
    writes: u64,
    syncs_completed: u64,
}

impl Roller {
    /// A device of `size_bytes` zeroes, and an image file for it at `image`.
    pub fn new(image: &Path, size_bytes: u64, volatile_cache: bool) -> io::Result<Self> {
        let image = File::options().read(true).write(true).create_new(true).open(image)?;
        image.set_len(size_bytes)?;
        Ok(Self {
            durable: vec![0; size_bytes as usize],
            pending: Vec::new(),
            syncs: HashMap::default(),
            volatile_cache,
            time_ns: 0,
            image,
            dirty: Vec::new(),
            writes: 0,
            syncs_completed: 0,
        })
    }

    /// When the last event happened.
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// Writes seen so far.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Syncs seen so far.
    pub fn syncs(&self) -> u64 {
        self.syncs_completed
    }

    /// Writes that a power loss could take now.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// One event further.
    pub fn step(&mut self, event: Event) {
        self.time_ns = event.time_ns;
        match event.what {
            What::WriteIssued { operation, offset_bytes, bytes } => {
                self.writes += 1;
                let data = Data::Bytes(bytes);
                self.pending.push(Pending { operation, offset: offset_bytes, data, completed: false });
            }
            What::DiscardIssued { operation, offset_bytes, len_bytes } => {
                let data = Data::Discarded(len_bytes);
                self.pending.push(Pending { operation, offset: offset_bytes, data, completed: false });
            }
            What::WriteCompleted { operation, error } | What::DiscardCompleted { operation, error } => {
                if error == 0
                    && let Some(pending) = self.pending.iter_mut().find(|pending| pending.operation == operation)
                {
                    pending.completed = true;
                    if !self.volatile_cache {
                        self.make_durable(&[operation]);
                    }
                }
            }
            What::SyncIssued { operation } => {
                let covered = self.pending.iter().filter(|pending| pending.completed).map(|pending| pending.operation);
                let covered = covered.collect();
                self.syncs.insert(operation, covered);
            }
            What::SyncCompleted { operation, error } => {
                let covered = self.syncs.remove(&operation).unwrap_or_default();
                if error == 0 {
                    self.syncs_completed += 1;
                    self.make_durable(&covered);
                }
            }
            What::Device { .. } | What::Mark { .. } => {}
        }
    }

    fn make_durable(&mut self, covered: &[RecordedOperation]) {
        for operation in covered {
            let Some(index) = self.pending.iter().position(|pending| pending.operation == *operation) else { continue };
            let pending = self.pending.remove(index);
            let range = pending.range();
            let place = &mut self.durable[range.start as usize..range.end as usize];
            match pending.data {
                Data::Bytes(bytes) => place.copy_from_slice(&bytes),
                Data::Discarded(_) => place.fill(0),
            }
            // An older write of the same place can not come out of the cache after a newer one.
            let older = self.pending[..index].iter().any(|older| overlaps(&older.range(), &range));
            if older {
                let mut index_of = 0;
                self.pending.retain(|older| {
                    index_of += 1;
                    index_of > index || !(overlaps(&older.range(), &range) && older.completed)
                });
            }
            self.dirty.push(range);
        }
    }

    /// Makes the image file what a power loss at this moment could have left. Returns in words what was chosen.
    pub fn lose_power(&mut self, loss: Loss, random: &mut Random) -> io::Result<String> {
        self.restore()?;
        let (mut whole, mut torn, mut gone) = (0, 0, 0);
        for pending in &self.pending {
            let range = pending.range();
            let fate = match loss {
                Loss::All => 2,
                Loss::None => 0,
                Loss::Random => random.below(3),
            };
            if fate == 2 {
                gone += 1;
                continue;
            }
            self.dirty.push(range.clone());
            if fate == 0 {
                whole += 1;
            } else {
                torn += 1;
            }
            for at in (range.start..range.end).step_by(SECTOR_BYTES) {
                if fate == 1 && random.percent(50) {
                    continue;
                }
                match &pending.data {
                    Data::Bytes(bytes) => {
                        let from = (at - range.start) as usize;
                        let sector = &bytes[from..bytes.len().min(from + SECTOR_BYTES)];
                        self.image.write_all_at(sector, at)?;
                    }
                    Data::Discarded(_) => self.image.write_all_at(&ZEROES, at)?,
                }
            }
        }
        let (writes, syncs) = (self.writes, self.syncs_completed);
        Ok(format!("after {writes} writes and {syncs} syncs: {whole} pending whole, {torn} torn, {gone} gone"))
    }

    /// Tells that whoever opened the image has changed it there.
    pub fn changed(&mut self, range: Range<u64>) {
        self.dirty.push(range);
    }

    /// Puts the image file back to what is durable.
    fn restore(&mut self) -> io::Result<()> {
        for range in self.dirty.drain(..) {
            let end = range.end.min(self.durable.len() as u64);
            self.image.write_all_at(&self.durable[range.start as usize..end as usize], range.start)?;
        }
        Ok(())
    }

    /// Whether image file and durable image are the same everywhere: what `restore` promises.
    ///
    /// # Errors
    /// What reading says.
    pub fn is_restored(&mut self) -> io::Result<bool> {
        self.restore()?;
        let mut bytes = vec![0; 1 << 20];
        for (number, expected) in self.durable.chunks(bytes.len()).enumerate() {
            let found = &mut bytes[..expected.len()];
            self.image.read_exact_at(found, (number << 20) as u64)?;
            if found != expected {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Ranges that the process behind a record has written or discarded.
pub fn written_ranges(record: &Path) -> io::Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    for event in Reader::open(record)? {
        match event?.what {
            What::WriteIssued { offset_bytes, bytes, .. } => {
                ranges.push(offset_bytes..offset_bytes + bytes.len() as u64);
            }
            What::DiscardIssued { offset_bytes, len_bytes, .. } => ranges.push(offset_bytes..offset_bytes + len_bytes),
            _ => {}
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::TemporaryDirectory;
    use runtime::uring::record::RecordedDevice;

    const SIZE: u64 = 1 << 20;

    fn event(what: What) -> Event {
        Event { device: RecordedDevice(0), time_ns: 0, what }
    }

    fn write(roller: &mut Roller, number: u64, offset_bytes: u64, byte: u8) {
        let operation = RecordedOperation(number);
        roller.step(event(What::WriteIssued { operation, offset_bytes, bytes: vec![byte; 4096] }));
    }

    fn complete(roller: &mut Roller, number: u64) {
        roller.step(event(What::WriteCompleted { operation: RecordedOperation(number), error: 0 }));
    }

    fn roller(directory: &TemporaryDirectory) -> Roller {
        Roller::new(&directory.path().join("image"), SIZE, true).expect("a new image")
    }

    fn image(directory: &TemporaryDirectory) -> Vec<u8> {
        std::fs::read(directory.path().join("image")).expect("the image")
    }

    #[test]
    fn a_sync_covers_what_had_completed_when_it_was_issued() {
        let directory = TemporaryDirectory::in_memory();
        let mut roller = roller(&directory);
        let mut random = Random::new(1);
        write(&mut roller, 1, 0, 1);
        complete(&mut roller, 1);
        write(&mut roller, 2, 4096, 2);
        let sync = RecordedOperation(3);
        roller.step(event(What::SyncIssued { operation: sync }));
        complete(&mut roller, 2);
        roller.step(event(What::SyncCompleted { operation: sync, error: 0 }));
        assert_eq!(roller.pending(), 1);
        roller.lose_power(Loss::All, &mut random).expect("written");
        let bytes = image(&directory);
        assert!(bytes[..4096].iter().all(|byte| *byte == 1), "covered");
        assert!(bytes[4096..8192].iter().all(|byte| *byte == 0), "completed too late for the sync");
        roller.lose_power(Loss::None, &mut random).expect("written");
        assert!(image(&directory)[4096..8192].iter().all(|byte| *byte == 2));
    }

    #[test]
    fn every_patch_is_undone() {
        let directory = TemporaryDirectory::in_memory();
        let mut roller = roller(&directory);
        let mut random = Random::new(7);
        let mut torn = false;
        for number in 0..50 {
            write(&mut roller, number, random.below(200) * 4096, number as u8 + 1);
            complete(&mut roller, number);
            if number % 7 == 0 {
                let sync = RecordedOperation(1000 + number);
                roller.step(event(What::SyncIssued { operation: sync }));
                roller.step(event(What::SyncCompleted { operation: sync, error: 0 }));
            }
            roller.lose_power(Loss::Random, &mut random).expect("written");
            torn |= image(&directory).chunks(4096).any(|block| block.iter().any(|byte| *byte != block[0]));
        }
        assert!(torn, "writes are torn, too");
        assert!(roller.is_restored().expect("read"));
        roller.changed(5000..6000);
        std::fs::File::options()
            .write(true)
            .open(directory.path().join("image"))
            .and_then(|file| file.write_all_at(&[99; 1000], 5000))
            .expect("somebody else's write");
        assert!(roller.is_restored().expect("read"));
    }
}

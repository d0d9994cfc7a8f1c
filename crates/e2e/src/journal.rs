//! Per sector: which contents may a read return?
//!
//! A write that was answered with success took effect between its call and its answer. One whose connection or server
//! was lost before the answer may have taken effect or not, but **not after the loss was known**: that is the rule
//! against ghosts, and a restart. So a write X can no longer be seen in a sector once a write Y of that sector, called
//! after X had ended, is known to be done. What is left are the candidates, and a read must return one of them; what
//! it returned is then the only one.
//!
//! A lost write of up to 64 KiB that crosses no 64 KiB boundary must besides be there as a whole or not at all.

use crate::pattern::{Content, Describe, SECTOR_BYTES};
use hashbrown::HashMap;
use std::fmt;

/// A write up to this long that crosses no multiple of it is never torn.
const UNTORN_SECTORS: u64 = (64 << 10) / SECTOR_BYTES as u64;

/// A write that the journal knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WriteId(pub u64);

/// Moments are counted, not measured.
type Moment = u64;
const NOT_YET: Moment = u64::MAX;

/// One content that a sector may have.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    content: Content,
    write: WriteId,
    ended: Moment,
}

/// A write that has not been answered, or never will be.
#[derive(Clone, Copy, Debug)]
struct Extent {
    first: u64,
    count: u64,
    called: Moment,
    /// Whether it may only be there as a whole.
    untorn: bool,
}

/// What was read is not what may be there.
#[derive(Debug)]
pub struct Violation {
    /// Where, in 512-byte sectors.
    pub sector: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {} (byte {:#x}): {}", self.sector, self.sector * SECTOR_BYTES as u64, self.what)
    }
}

/// See the [module](self).
#[derive(Default)]
pub struct Journal {
    sectors: Vec<Vec<Candidate>>,
    moment: Moment,
    next_write: u64,
    in_flight: HashMap<WriteId, Extent, foldhash::fast::FixedState>,
    /// Lost writes whose wholeness nobody has looked at.
    lost: Vec<(WriteId, Extent)>,
}

impl Journal {
    /// Of a volume of `size_bytes` that reads as zeroes.
    pub fn new(size_bytes: u64) -> Self {
        let zeroes = Candidate { content: Content::ZERO, write: WriteId(0), ended: 0 };
        let count = size_bytes as usize / SECTOR_BYTES;
        Self { sectors: vec![vec![zeroes]; count], next_write: 1, ..Self::default() }
    }

    /// Sectors of the volume.
    pub fn sector_count(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// The number that the next write will have: stamp it on its contents.
    pub fn next_write(&self) -> WriteId {
        WriteId(self.next_write)
    }

    /// A write of `contents` from sector `first` is about to be called.
    pub fn begin(&mut self, first: u64, contents: impl ExactSizeIterator<Item = Content>) -> WriteId {
        let count = contents.len() as u64;
        self.add(first, count, contents, first / UNTORN_SECTORS == (first + count - 1) / UNTORN_SECTORS)
    }

    /// A write of zeroes (trim, write-zeroes) is about to be called.
    pub fn begin_zeroes(&mut self, first: u64, count: u64) -> WriteId {
        self.add(first, count, (0..count).map(|_| Content::ZERO), false)
    }

    fn add(&mut self, first: u64, count: u64, contents: impl Iterator<Item = Content>, untorn: bool) -> WriteId {
        let write = WriteId(self.next_write);
        self.next_write += 1;
        self.moment += 1;
        let extent = Extent { first, count, called: self.moment, untorn };
        for (sector, content) in self.sectors[first as usize..].iter_mut().zip(contents) {
            sector.push(Candidate { content, write, ended: NOT_YET });
        }
        self.in_flight.insert(write, extent);
        write
    }

    fn end(&mut self, write: WriteId) -> Extent {
        self.moment += 1;
        let extent = self.in_flight.remove(&write).expect("ended once");
        let moment = self.moment;
        for candidate in self.candidates(extent).filter(|candidate| candidate.write == write) {
            candidate.ended = moment;
        }
        extent
    }

    fn candidates(&mut self, extent: Extent) -> impl Iterator<Item = &mut Candidate> {
        self.sectors[extent.first as usize..][..extent.count as usize].iter_mut().flatten()
    }

    /// The write was answered with success.
    pub fn completed(&mut self, write: WriteId) {
        let extent = self.end(write);
        for sector in &mut self.sectors[extent.first as usize..][..extent.count as usize] {
            sector.retain(|other| other.write == write || other.ended >= extent.called);
        }
    }

    /// The write was refused: it was not done.
    pub fn refused(&mut self, write: WriteId) {
        let extent = self.end(write);
        for sector in &mut self.sectors[extent.first as usize..][..extent.count as usize] {
            sector.retain(|other| other.write != write);
        }
    }

    /// The write will not be answered any more. From now on it takes no effect that it has not taken.
    pub fn lost(&mut self, write: WriteId) {
        let extent = self.end(write);
        self.lost.push((write, extent));
    }

    /// How many writes are in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether a write in flight touches the range.
    pub fn is_written(&self, first: u64, count: u64) -> bool {
        self.in_flight.values().any(|extent| extent.first < first + count && first < extent.first + extent.count)
    }

    /// Whether `bytes` may stand at `first` now; changes nothing.
    pub fn permits(&self, first: u64, bytes: &[u8]) -> Result<(), Violation> {
        let sectors = &self.sectors[first as usize..];
        for (number, (sector, bytes)) in (first..).zip(sectors.iter().zip(bytes.chunks_exact(SECTOR_BYTES))) {
            let content = Content::of(bytes);
            if !sector.iter().any(|candidate| candidate.content == content) {
                let expected: Vec<_> = sector.iter().map(describe).collect();
                let what = format!("found {}, expected {}", Describe(bytes), expected.join(" or "));
                return Err(Violation { sector: number, what });
            }
        }
        Ok(())
    }

    /// As [`permits`](Self::permits), for bytes that were read while no write of the range was in flight: what was read
    /// is from now on the only candidate.
    pub fn check(&mut self, first: u64, bytes: &[u8]) -> Result<(), Violation> {
        self.permits(first, bytes)?;
        self.check_untorn(first, bytes)?;
        let sectors = &mut self.sectors[first as usize..];
        for (sector, bytes) in sectors.iter_mut().zip(bytes.chunks_exact(SECTOR_BYTES)) {
            assert!(sector.iter().all(|candidate| candidate.ended != NOT_YET), "read while a write was in flight");
            let content = Content::of(bytes);
            sector.retain(|candidate| candidate.content == content);
        }
        Ok(())
    }

    /// As [`permits`](Self::permits), and each write in flight that lies within the range is there as a whole or not at
    /// all: what must hold if everything stopped now.
    pub fn permits_crash(&self, first: u64, bytes: &[u8]) -> Result<(), Violation> {
        self.permits(first, bytes)?;
        let end = first + (bytes.len() / SECTOR_BYTES) as u64;
        for (write, extent) in &self.in_flight {
            if first <= extent.first && extent.first + extent.count <= end {
                self.untorn(*write, *extent, &bytes[(extent.first - first) as usize * SECTOR_BYTES..])?;
            }
        }
        Ok(())
    }

    /// The ranges of all writes in flight.
    pub fn ranges_in_flight(&self) -> impl Iterator<Item = (u64, u64)> {
        self.in_flight.values().map(|extent| (extent.first, extent.count))
    }

    /// Lost writes that lie within the range: each as a whole or not at all.
    fn check_untorn(&mut self, first: u64, bytes: &[u8]) -> Result<(), Violation> {
        let end = first + (bytes.len() / SECTOR_BYTES) as u64;
        let is_within = |extent: &Extent| first <= extent.first && extent.first + extent.count <= end;
        for (write, extent) in self.lost.iter().filter(|(_, extent)| is_within(extent)) {
            self.untorn(*write, *extent, &bytes[(extent.first - first) as usize * SECTOR_BYTES..])?;
        }
        self.lost.retain(|(_, extent)| !is_within(extent));
        Ok(())
    }

    fn untorn(&self, write: WriteId, extent: Extent, bytes: &[u8]) -> Result<(), Violation> {
        if !extent.untorn {
            return Ok(());
        }
        let (mut new, mut old) = (None, None);
        let sectors = &self.sectors[extent.first as usize..][..extent.count as usize];
        for (number, (sector, bytes)) in (extent.first..).zip(sectors.iter().zip(bytes.chunks_exact(SECTOR_BYTES))) {
            let content = Content::of(bytes);
            let mut seen = sector.iter().filter(|candidate| candidate.content == content).peekable();
            let Some(only) = seen.next().filter(|_| seen.peek().is_none()) else { continue };
            if only.write == write {
                new = Some(number);
            } else if only.ended < extent.called {
                old = Some(number); // a write that was over before: this one is not here
            }
        }
        match (new, old) {
            (Some(new), Some(old)) => {
                let what = format!("write {} is torn: it is there, and in sector {old} it is not", write.0);
                Err(Violation { sector: new, what })
            }
            _ => Ok(()),
        }
    }
}

fn describe(candidate: &Candidate) -> String {
    let state = if candidate.ended == NOT_YET { " (in flight)" } else { "" };
    match (candidate.content, candidate.write) {
        (Content::ZERO, WriteId(0)) => "zeroes (never written)".into(),
        (Content::ZERO, WriteId(write)) => format!("zeroes of write {write}{state}"),
        (_, WriteId(write)) => format!("write {write}{state}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Content = Content(11);
    const B: Content = Content(13);

    fn journal() -> Journal {
        Journal::new(1 << 20)
    }

    fn sector(byte: u8) -> [u8; SECTOR_BYTES] {
        [byte; SECTOR_BYTES]
    }

    fn of(byte: u8) -> Content {
        Content::of(&sector(byte))
    }

    fn write(journal: &mut Journal, first: u64, byte: u8, count: usize) -> WriteId {
        journal.begin(first, std::iter::repeat_n(of(byte), count))
    }

    #[test]
    fn an_acknowledged_write_must_be_there() {
        let mut journal = journal();
        let a = write(&mut journal, 3, 1, 1);
        journal.completed(a);
        assert!(journal.permits(3, &sector(1)).is_ok());
        assert!(journal.permits(3, &sector(0)).is_err(), "lost");
        assert!(journal.permits(3, &sector(2)).is_err(), "never written");
    }

    #[test]
    fn an_unknown_outcome_may_be_either_until_it_is_seen() {
        let mut journal = journal();
        let a = write(&mut journal, 3, 1, 1);
        journal.completed(a);
        let b = write(&mut journal, 3, 2, 1);
        journal.lost(b);
        assert!(journal.permits(3, &sector(2)).is_ok());
        journal.check(3, &sector(1)).expect("the older one is there");
        assert!(journal.permits(3, &sector(2)).is_err(), "it must not come later: a ghost");
    }

    #[test]
    fn a_lost_write_must_not_come_back_over_a_later_one() {
        let mut journal = journal();
        let a = write(&mut journal, 3, 1, 1);
        journal.lost(a);
        let b = write(&mut journal, 3, 2, 1);
        journal.completed(b);
        assert!(journal.permits(3, &sector(2)).is_ok());
        assert!(journal.permits(3, &sector(1)).is_err());
    }

    #[test]
    fn writes_in_flight_together_may_end_in_any_order() {
        let mut journal = journal();
        let a = write(&mut journal, 3, 1, 1);
        let b = write(&mut journal, 3, 2, 1);
        journal.completed(b);
        journal.completed(a);
        assert!(journal.permits(3, &sector(1)).is_ok());
        assert!(journal.permits(3, &sector(2)).is_ok());
        assert!(journal.permits(3, &sector(0)).is_err());
        let c = write(&mut journal, 3, 3, 1);
        journal.completed(c);
        assert!(journal.permits(3, &sector(1)).is_err());
    }

    #[test]
    fn a_short_lost_write_is_whole_or_absent() {
        let mut journal = journal();
        let a = write(&mut journal, 0, 1, 8);
        journal.completed(a);
        let b = write(&mut journal, 2, 2, 4);
        journal.lost(b);
        let mut bytes = [1; 8 * SECTOR_BYTES];
        bytes[3 * SECTOR_BYTES..4 * SECTOR_BYTES].fill(2);
        assert!(journal.permits(0, &bytes).is_ok(), "each sector alone is fine");
        assert!(journal.check(0, &bytes).is_err(), "but the write is torn");
        bytes[2 * SECTOR_BYTES..6 * SECTOR_BYTES].fill(2);
        journal.check(0, &bytes).expect("whole");
    }

    #[test]
    fn a_refused_write_is_not_there() {
        let mut journal = journal();
        let a = journal.begin(0, [A, B].into_iter());
        assert!(journal.is_written(1, 1) && !journal.is_written(2, 1));
        journal.refused(a);
        assert_eq!(journal.in_flight(), 0);
        journal.check(0, &[0; 2 * SECTOR_BYTES]).expect("as before");
    }
}

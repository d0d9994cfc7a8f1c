//! What is told of blocks, and what snapshots read, against a plain model of one volume: which blocks are stored, which
//! were touched since each snapshot.

use super::{Machine, Random, first_difference, new_volume, payload, read_all};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use volume::{Assembly, IoError, Volume};

const SIZE: u64 = 3 << 20;
const BLOCK: usize = 4096;
const ROUNDS: usize = 40;
const MOST_SNAPSHOTS: usize = 5;

/// A volume's content at some time.
#[derive(Clone)]
struct Content {
    bytes: Vec<u8>,
    stored: Vec<bool>,
    /// Per older snapshot of its history: what was touched since.
    touched: BTreeMap<String, Vec<bool>>,
}

impl Content {
    fn blank() -> Self {
        let blocks = SIZE as usize / BLOCK;
        Self { bytes: vec![0; SIZE as usize], stored: vec![false; blocks], touched: BTreeMap::new() }
    }

    fn touch(&mut self, block: usize) {
        self.touched.values_mut().for_each(|touched| touched[block] = true);
    }

    fn blocks(from: usize, to: usize) -> std::ops::Range<usize> {
        from / BLOCK..to.div_ceil(BLOCK)
    }

    /// What was written and is not all zero, or is to be stored whatever it is.
    fn write(&mut self, from: usize, bytes: &[u8]) {
        self.bytes[from..from + bytes.len()].copy_from_slice(bytes);
        for block in Self::blocks(from, from + bytes.len()) {
            self.stored[block] = true;
            self.touch(block);
        }
    }

    /// Whole blocks are stored no more; parts of blocks are left alone, or zeroed where they are.
    fn zero(&mut self, from: usize, to: usize, partial: bool) {
        for block in Self::blocks(from, to) {
            let (start, end) = (block * BLOCK, (block + 1) * BLOCK);
            if from <= start && end <= to {
                self.bytes[start..end].fill(0);
                self.stored[block] = false;
            } else if partial {
                self.bytes[start.max(from)..end.min(to)].fill(0);
                self.stored[block] = self.bytes[start..end].iter().any(|byte| *byte != 0);
            } else {
                continue;
            }
            self.touch(block);
        }
    }
}

struct Model {
    volume: Content,
    snapshots: BTreeMap<String, Content>,
    next_name: u64,
}

async fn write_something(volume: &Volume, model: &mut Model, random: &Random) {
    let (offset, len) = random.range(SIZE);
    let (from, to) = (offset as usize, (offset + len) as usize);
    match random.below(8) {
        0..=3 => {
            let mut bytes = random.bytes(len as usize);
            bytes[0] = 1;
            volume.write(offset, payload(&bytes)).await.expect("written");
            model.volume.write(from, &bytes);
        }
        4 | 5 => {
            volume.write_zeroes(offset, len).await.expect("zeroed");
            model.volume.zero(from, to, true);
        }
        6 => {
            volume.store_zeroes(offset, len).await.expect("zeroed");
            model.volume.write(from, &vec![0; to - from]);
        }
        _ => {
            volume.discard(offset, len).await.expect("discarded");
            model.volume.zero(from, to, false);
        }
    }
}

async fn administer(assembly: &Assembly, model: &mut Model, random: &Random) {
    let all: Vec<String> = model.snapshots.keys().cloned().collect();
    let picked = all.get(random.below(all.len().max(1) as u64) as usize);
    match (random.below(6), picked) {
        (0..=2, _) if all.len() < MOST_SNAPSHOTS => {
            model.next_name += 1;
            let name = format!("s{}", model.next_name);
            assembly.create_snapshot("v", &name).await.expect("taken");
            model.snapshots.insert(name.clone(), model.volume.clone());
            model.volume.touched.insert(name, vec![false; SIZE as usize / BLOCK]);
        }
        (3, Some(name)) => {
            assembly.roll_back("v", name).await.expect("rolled back");
            model.volume = model.snapshots[name].clone();
            model.volume.touched.insert(name.clone(), vec![false; SIZE as usize / BLOCK]);
        }
        (4 | 5, Some(name)) => {
            assembly.delete_snapshot("v", name).await.expect("deleted");
            model.snapshots.remove(name);
            model.volume.touched.remove(name);
            model.snapshots.values_mut().for_each(|content| drop(content.touched.remove(name)));
        }
        _ => {}
    }
}

/// Everything that is told is right, asked in one go, in pieces and extent by extent.
async fn verify(volume: &Volume, content: &Content, random: &Random, what: &str) {
    let found = read_all(volume).await;
    let differs = first_difference(&found, &content.bytes);
    assert_eq!(differs, None, "{what}: reads as it should");
    let marks = volume.marks();
    let names: Vec<_> = marks.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, content.touched.keys().cloned().collect::<Vec<_>>(), "{what}: its older snapshots");
    let marks: Vec<_> = marks.into_iter().map(|(_, mark)| mark).collect();
    let (mut at, most) = (0, [1, 3, 1000][random.below(3) as usize]);
    while at < SIZE {
        let len = [SIZE - at, 1 + random.below(SIZE - at), 1 + random.below(20_000).min(SIZE - at - 1)]
            [random.below(3) as usize];
        let extents = volume.block_status(at, len, &marks, most).await.expect("known");
        assert!((1..=most).contains(&extents.len()), "{what}: {} extents", extents.len());
        let told: u64 = extents.iter().map(|extent| extent.len_bytes).sum();
        assert!(told == len || told < len && extents.len() == most, "{what}: {told} of {len} bytes");
        for extent in extents {
            assert!(extent.len_bytes > 0);
            for block in Content::blocks(at as usize, (at + extent.len_bytes) as usize) {
                assert_eq!(extent.is_stored, content.stored[block], "{what}: block {block} is stored");
                for (bit, (name, touched)) in content.touched.iter().enumerate() {
                    let is_told = extent.changed_since >> bit & 1 == 1;
                    assert_eq!(is_told, touched[block], "{what}: block {block} has changed since {name}");
                }
            }
            at += extent.len_bytes;
        }
    }
}

/// Random writes, zeroes, discards, snapshots, rollbacks and deletions, with restarts: what is told is exact.
pub fn told_blocks_are_the_stored_ones(seed: u64) {
    let machine = Machine::new(seed, 1 + seed as usize % 3);
    let random = Rc::new(Random::new(seed));
    let mut model = Model { volume: Content::blank(), snapshots: BTreeMap::new(), next_name: 0 };
    let mut assembly = machine.start();
    let made = assembly.clone();
    machine.run(async move {
        // A byte in each chunk: where a chunk holds nothing at all, zeroes leave no trace and nothing has changed.
        made.create_volume(new_volume("v", SIZE)).await.expect("made");
        let volume = made.directory().by_name("v").expect("served");
        for chunk in 0..SIZE >> 20 {
            volume.write(chunk << 20, payload(&[1])).await.expect("written");
        }
    });
    (0..SIZE as usize >> 20).for_each(|chunk| model.volume.write(chunk << 20, &[1]));
    for _ in 0..ROUNDS {
        let (running, random) = (assembly.clone(), random.clone());
        let (back, is_restart) = machine.run(async move {
            for _ in 0..random.below(6) {
                let volume = running.directory().by_name("v").expect("served");
                write_something(&volume, &mut model, &random).await;
            }
            administer(&running, &mut model, &random).await;
            if random.below(3) == 0 {
                runtime::sleep(Duration::from_millis(random.below(50))).await; // layers end meanwhile, or do not
            }
            let volume = running.directory().by_name("v").expect("served");
            verify(&volume, &model.volume, &random, "the volume").await;
            for (name, content) in &model.snapshots {
                let snapshot = volume.snapshot(name).expect("served");
                verify(&snapshot, content, &random, &format!("snapshot {name}")).await;
            }
            (model, random.below(8) == 0)
        });
        model = back;
        if is_restart {
            machine.crash();
            assembly = machine.start();
        }
    }
}

/// Who reads a snapshot while it is deleted reads what is in it, or is told that it is gone.
pub fn a_deleted_snapshot_is_right_or_gone(seed: u64) {
    let machine = Machine::new(seed, 2);
    let assembly = machine.start();
    let random = Random::new(seed);
    machine.run(async move {
        assembly.create_volume(new_volume("v", SIZE)).await.expect("made");
        let volume = assembly.directory().by_name("v").expect("served");
        let old = random.bytes(SIZE as usize);
        for at in (0..SIZE as usize).step_by(1 << 20) {
            volume.write(at as u64, payload(&old[at..at + (1 << 20)])).await.expect("written");
        }
        assembly.create_snapshot("v", "s").await.expect("taken");
        volume.write(0, payload(&random.bytes(1 << 20))).await.expect("written");
        let snapshot = volume.snapshot("s").expect("served");
        let old = Rc::new(old);
        let (reads, stop) = (Rc::new(Cell::new(0_u32)), Rc::new(Cell::new(false)));
        let mut readers = Vec::new();
        for reader in 0..4_u64 {
            let (snapshot, old, reads, stop) = (snapshot.clone(), old.clone(), reads.clone(), stop.clone());
            let random = Random::new(seed * 10 + reader);
            let done = Rc::new(Cell::new(None));
            readers.push(done.clone());
            runtime::spawn(async move {
                while !stop.get() {
                    let (offset, len) = random.range(SIZE);
                    match snapshot.read(offset, len as u32).await {
                        Ok(read) => {
                            let expected = &old[offset as usize..][..len as usize];
                            assert!(read.bytes[..] == *expected, "bytes {offset}+{len} of the snapshot");
                            reads.set(reads.get() + 1);
                        }
                        Err(IoError::Gone(_)) => return done.set(Some(true)),
                        Err(error) => panic!("{error}"),
                    }
                }
                done.set(Some(false));
            });
        }
        runtime::sleep(Duration::from_millis(20 + random.below(20))).await;
        assert!(reads.get() > 0);
        assembly.delete_snapshot("v", "s").await.expect("deleted");
        assert!(volume.snapshot("s").is_none());
        runtime::sleep(Duration::from_secs(1)).await; // its layer is merged away
        stop.set(true);
        runtime::sleep(Duration::from_secs(1)).await;
        assert!(readers.iter().all(|done| done.get() == Some(true)), "each was told that it is gone");
        assert_eq!(volume.info().layers.len(), 1, "its layer has ended");
        assembly.stop().await;
    });
}

/// A snapshot can be read and nothing else, however it is asked.
pub async fn is_read_only(snapshot: &Volume) {
    assert!(snapshot.is_read_only());
    assert_eq!(snapshot.write(0, payload(&[1])).await, Err(IoError::ReadOnly));
    assert_eq!(snapshot.write(1_000_000, payload(&[1; 100_000])).await, Err(IoError::ReadOnly));
    assert_eq!(snapshot.discard(0, 4096).await, Err(IoError::ReadOnly));
    assert_eq!(snapshot.write_zeroes(0, SIZE).await, Err(IoError::ReadOnly));
    assert_eq!(snapshot.store_zeroes(0, SIZE).await, Err(IoError::ReadOnly));
    snapshot.flush().await.expect("nothing to do");
}

//! A check of a whole device: each kind of damage is found, told with its place and what it means, and left as it is,
//! but for superblock slots. (Every bit of every structure: `bit_flips.rs`. What crashes leave is no damage:
//! `crash.rs`.)

use crate::common::*;
use runtime::sim::{DiskFaults, SimDisk};
use store::Damage;
use store::check::{CheckOptions, Checked, Finding, Severity, What};
use store::format::{SlotPosition, record::RECORD_HEADER_BYTES};
use types::*;

const GROUP: GroupId = GroupId(1);
const SIZE_BYTES: u64 = 256 * MIB;
const BLOCKS: u32 = 200;
/// Segment 0, behind its header.
const FIRST_RECORD_AT: u64 = MIB + 512;

/// A store whose blocks were written one by one, each in a record of its own, and then closed; all of it replayed.
fn written(seed: u64) -> Rig {
    written_times(seed, 1)
}

/// The same, all blocks so many times.
fn written_times(seed: u64, times: u32) -> Rig {
    let (rig, client) = fresh(seed, SIZE_BYTES, 1);
    rig.run(async move {
        for block in (0..times).flat_map(|_| 0..BLOCKS) {
            client.write(GROUP, ChunkId(0), BlockRange::new(block, 1)).expect("room");
            client.settle().await;
        }
        client.shard.close().await;
    });
    rig.node.restart();
    rig
}

fn look(rig: &Rig) -> Checked {
    check(rig, CheckOptions::default())
}

/// Each record of the first segment: where it is on the device, and its length.
fn records(disk: &SimDisk) -> Vec<(u64, u64)> {
    let (mut found, mut at) = (Vec::new(), FIRST_RECORD_AT);
    loop {
        let mut header = [0; RECORD_HEADER_BYTES];
        disk.peek(at, &mut header);
        if !header.starts_with(b"CRec") {
            return found;
        }
        let length = u64::from(u32::from_le_bytes(header[8..12].try_into().expect("four bytes")));
        found.push((at, length));
        at += length;
    }
}

/// The record that holds one block of a client, in the middle of the log.
fn some_record(disk: &SimDisk) -> (u64, u64) {
    let records = records(disk);
    assert!(records.len() > BLOCKS as usize);
    records[records.len() / 2]
}

fn severe(checked: &Checked) -> Vec<&Finding> {
    checked.findings.iter().filter(|finding| finding.severity() > Severity::Trace).collect()
}

fn assert_at(checked: &Checked, finding: &Finding, offset_bytes: u64) {
    assert_eq!(finding.device_offset_bytes(&checked.geometry), Some(offset_bytes), "{finding}");
    assert!(finding.meaning().len() > 20 && !finding.to_string().is_empty());
}

#[test]
fn a_good_device_is_good_and_all_of_it_was_read() {
    let rig = written(61);
    let checked = look(&rig);
    assert_eq!(checked.findings, []);
    assert_eq!((checked.counts.blocks_needed, checked.counts.segments), (u64::from(BLOCKS), 1));
    assert!(
        checked.counts.records > u64::from(BLOCKS) && checked.counts.bytes > 4 * MIB - 4096,
        "{:?}",
        checked.counts
    );
    assert!(!checked.is_damaged());
}

#[test]
fn superblock_slots_are_repaired_and_nothing_else_is() {
    let rig = written(62);
    let slots = [SlotPosition::ALL[1], SlotPosition::ALL[2]].map(|slot| slot.offset_bytes(SIZE_BYTES));
    slots.iter().for_each(|at| rig.disk.flip_bit(at + 1000, 3));
    let (record, length) = some_record(&rig.disk);
    rig.disk.flip_bit(record + length - 7, 0);

    let checked = look(&rig);
    let places: Vec<_> = severe(&checked).iter().map(|found| found.device_offset_bytes(&checked.geometry)).collect();
    assert_eq!(places[..2], slots.map(Some));
    assert_eq!((checked.count(Severity::Rot), checked.count(Severity::Loss)), (2, 1), "{:?}", checked.findings);

    let repaired = check(&rig, CheckOptions { repair: true });
    assert_eq!((repaired.count(Severity::Rot), repaired.count(Severity::Loss)), (0, 1));
    assert_eq!(repaired.findings.iter().filter(|finding| finding.repaired).count(), 2);

    let again = look(&rig);
    assert_eq!((again.count(Severity::Rot), again.count(Severity::Loss)), (0, 1), "{:?}", again.findings);
    assert_eq!(again.incarnation, checked.incarnation, "a repair is no start of the store");
}

#[test]
fn a_block_that_rotted_is_a_loss_where_it_lies() {
    let rig = written(63);
    let (record, length) = some_record(&rig.disk);
    rig.disk.flip_bit(record + length - 4096 + 9, 5);
    let checked = look(&rig);
    let [finding] = severe(&checked)[..] else { panic!("{:?}", checked.findings) };
    assert!(matches!(finding.what, What::Block { layer: LAYER, chunk: ChunkId(0), .. }), "{finding}");
    assert_at(&checked, finding, record + length - 4096);
    assert_eq!(finding.severity(), Severity::Loss);
    assert_eq!(checked.counts.blocks_needed, u64::from(BLOCKS) - 1);
}

#[test]
fn a_block_that_nobody_needs_any_more_rots_without_a_loss() {
    let rig = written_times(64, 2);
    let (record, length) = records(&rig.disk)[BLOCKS as usize / 2];
    rig.disk.flip_bit(record + length - 4096 + 9, 5);
    let checked = look(&rig);
    let [finding] = severe(&checked)[..] else { panic!("{:?}", checked.findings) };
    assert_eq!(finding.severity(), Severity::Rot, "{finding}");
    assert_at(&checked, finding, record + length - 4096);
    assert_eq!(checked.counts.blocks_needed, u64::from(BLOCKS));
}

#[test]
fn a_record_that_is_lost_is_told_with_its_place() {
    let rig = written(65);
    let (record, _) = some_record(&rig.disk);
    rig.disk.flip_bit(record + 24, 1);
    let checked = look(&rig);
    let found = severe(&checked);
    let lost = found.iter().find(|finding| matches!(finding.what, What::Damage(Damage::Records { .. })));
    assert_at(&checked, lost.expect("the record"), record);
}

#[test]
fn a_segment_whose_header_is_gone_is_told() {
    let rig = written(66);
    rig.disk.poke(MIB, &[0xff; 512]);
    let checked = look(&rig);
    let found = severe(&checked);
    let header = found.iter().find(|finding| matches!(finding.what, What::Damage(Damage::SegmentHeader { .. })));
    assert_at(&checked, header.expect("the header"), MIB);
}

/// What cannot be read is told with its place, and what was needed of it is a loss: nothing is called good unread.
#[test]
fn what_cannot_be_read_is_told() {
    let (mut unreadable, mut refused) = (0, 0);
    for seed in 70..100 {
        let rig = written(seed);
        rig.disk.set_faults(DiskFaults { read_error: 300_000, ..DiskFaults::default() });
        let checked = rig.run(async { store::check::check(&device().await, CheckOptions::default()).await });
        let Ok(checked) = checked else {
            refused += 1;
            continue;
        };
        let is_unreadable = |finding: &&Finding| matches!(finding.what, What::Unreadable { .. });
        unreadable += checked.findings.iter().filter(is_unreadable).count();
        let is_all_read = checked.counts.blocks_needed == u64::from(BLOCKS);
        assert!(is_all_read || checked.count(Severity::Loss) > 0, "seed {seed}: {:?}", checked.findings);
    }
    assert!(unreadable > 20 && refused < 15, "{unreadable} stretches, {refused} devices refused");
}

#[test]
fn a_device_whose_superblocks_are_all_gone_is_refused() {
    let rig = written(68);
    SlotPosition::ALL.iter().for_each(|slot| rig.disk.flip_bit(slot.offset_bytes(SIZE_BYTES) + 90, 0));
    for repair in [false, true] {
        let refused = rig.run(async move { store::check::check(&device().await, CheckOptions { repair }).await });
        assert!(matches!(refused, Err(store::OpenError::Superblock(_))), "{refused:?}");
    }
}

#[test]
fn a_device_that_is_none_is_refused() {
    let rig = Rig::new(67, SIZE_BYTES, Default::default());
    let refused = rig.run(async { store::check::check(&device().await, CheckOptions::default()).await });
    assert!(refused.is_err(), "{refused:?}");
}

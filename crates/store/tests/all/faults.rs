//! Devices that refuse, lose and damage.

use crate::common::moments::Writer;
use crate::common::*;
use runtime::IoBuf;
use runtime::sim::{DiskFaults, SimDisk};
use std::time::Duration;
use store::format::RecordSeq;
use store::{AppendError, BlockCoding, Damage, EntryKind};
use types::*;

const GROUP: GroupId = GroupId(1);
const ALWAYS: u32 = 1_000_000;

/// Where the record with this sequence lies on the disk, found as anybody with the disk would.
fn record_at(disk: &SimDisk, seq: u64) -> u64 {
    let mut header = [0; 512];
    for offset in (MIB..40 * MIB).step_by(512) {
        disk.peek(offset, &mut header);
        if header.starts_with(b"CRec") && header[24..32] == seq.to_le_bytes() {
            return offset;
        }
    }
    panic!("no record {seq} on the disk");
}

async fn write_some(client: &Client, group: GroupId, blocks: u32) {
    for block in 0..blocks {
        client.write(group, ChunkId(group.0 - 1), BlockRange::new(block, 1)).expect("room");
        client.settle().await;
    }
}

#[test]
fn a_refused_append_is_written_elsewhere() {
    let (rig, client) = fresh(31, 256 * MIB, 1);
    let model = client.model.clone();
    for _ in 0..3 {
        rig.disk.set_faults(DiskFaults { write_error: ALWAYS, ..DiskFaults::default() });
        let before = client.shard.statistics().append_failures;
        for block in 0..64 {
            client.write(GROUP, ChunkId(0), BlockRange::new(block, 1)).expect("room");
        }
        let shard = client.shard.clone();
        rig.world.run_until(|| shard.statistics().append_failures > before).expect("an append fails");
        rig.disk.set_faults(DiskFaults::default());
        let going_on = client.clone();
        rig.run(async move {
            going_on.settle().await;
            write_some(&going_on, GROUP, 10).await;
            going_on.verify().await;
        });
        assert_eq!(client.shard.store().failed(), None);
    }
    drop(client);
    rig.node.restart();
    let client = reopen(&rig, &model);
    rig.run(async move { client.verify().await });
}

#[test]
fn an_append_refused_twice_fails_the_device() {
    let (rig, client) = fresh(32, 256 * MIB, 1);
    let model = client.model.clone();
    rig.disk.set_faults(DiskFaults { write_error: ALWAYS, ..DiskFaults::default() });
    let failing = client.clone();
    rig.run(async move {
        let position = failing.write(GROUP, ChunkId(0), BlockRange::new(0, 1)).expect("room");
        let changed = failing.shard.durable_changed(failing.shard.durable_through()).await;
        assert!(matches!(changed, Err(AppendError::Failed { .. })), "{changed:?}");
        assert!(failing.shard.durable_through() < position);
        let refused = failing.write(GROUP, ChunkId(0), BlockRange::new(0, 1));
        assert!(matches!(refused, Err(AppendError::Failed { .. })), "{refused:?}");
    });
    drop(client);
    rig.disk.set_faults(DiskFaults::default());
    rig.node.restart();
    let client = reopen(&rig, &model);
    rig.run(async move { client.verify().await });
}

#[test]
fn a_failed_flush_fails_the_device_and_is_not_tried_again() {
    let (rig, client) = fresh(33, 256 * MIB, 1);
    rig.disk.set_faults(DiskFaults { flush_error: ALWAYS, ..DiskFaults::default() });
    let failing = client.clone();
    rig.run(async move {
        let before = failing.shard.durable_through();
        failing.write(GROUP, ChunkId(0), BlockRange::new(0, 1)).expect("room");
        let changed = failing.shard.durable_changed(before).await;
        assert!(matches!(changed, Err(AppendError::Failed { .. })), "{changed:?}");
        let syncs = failing.shard.statistics().syncs;
        runtime::sleep(Duration::from_secs(3)).await;
        assert_eq!(failing.shard.statistics().syncs, syncs);
        assert_eq!(failing.shard.durable_through(), before);
    });
}

/// The header of a segment is read back: without it nobody would find what is in the segment.
#[test]
fn a_disk_that_writes_nothing_is_found_out_at_the_next_segment() {
    let (rig, client) = fresh(35, 256 * MIB, 1);
    rig.disk.set_faults(DiskFaults { lost_write: ALWAYS, ..DiskFaults::default() });
    rig.run(async move {
        // 4 MiB segments.
        for chunk in 0..6 {
            for part in 0..8 {
                if client.write(GROUP, ChunkId(chunk), BlockRange::new(32 * part, 32)).is_err()
                    || !client.below(4).await
                {
                    let failed = client.shard.store().failed();
                    assert!(matches!(failed, Some(AppendError::Failed { .. })), "{failed:?}");
                    return;
                }
            }
        }
        panic!("6 MiB were acknowledged and none of them written");
    });
}

#[test]
fn a_damaged_record_is_damage_and_never_a_hole() {
    let (rig, client) = fresh(34, 256 * MIB, 2);
    let model = client.model.clone();
    let writing = client.clone();
    rig.run(async move {
        write_some(&writing, GroupId(2), 10).await;
        write_some(&writing, GROUP, 10).await;
    });
    // An idle store says within a second that its last record was durable.
    rig.world.run_for(Duration::from_secs(2));
    drop((client, model));
    rig.node.restart();
    // 1 opening, 2 epochs, then a record per write.
    let lost = record_at(&rig.disk, 8);
    rig.disk.flip_bit(lost + 100, 3);
    for _ in 0..2 {
        let (shard, recovery) = rig.open();
        let [Damage::Records { records, segment, .. }] = recovery.damage[..] else { panic!("{:?}", recovery.damage) };
        assert_eq!((records.first, records.last), (RecordSeq(8), RecordSeq(8)));
        assert_eq!(segment.0, 0);
        assert_eq!(recovery.gaps, []);
        // The record was group 2's; group 1 has entries behind it that follow each other.
        let damaged: Vec<_> = recovery.groups.iter().map(|group| (group.group.0, group.damaged)).collect();
        assert_eq!(damaged, [(1, true), (2, true)].map(|(id, _)| (id, id == 2)));
        drop(shard);
        rig.node.restart();
    }
}

#[test]
fn the_damaged_last_record_of_an_idle_store_is_seen() {
    let (rig, client) = fresh(35, 256 * MIB, 1);
    let writing = client.clone();
    let before = rig.run(async move {
        write_some(&writing, GROUP, 3).await;
        writing.shard.statistics().appends
    });
    rig.world.run_for(Duration::from_secs(2));
    assert_eq!(client.shard.statistics().appends, before + 1, "one more record, for what it says of the others");
    rig.world.run_for(Duration::from_secs(5));
    assert_eq!(client.shard.statistics().appends, before + 1, "and no other");
    drop(client);
    rig.node.restart();
    let lost = record_at(&rig.disk, before);
    rig.disk.poke(lost, &[0; 512]);
    let (_, recovery) = rig.open();
    assert!(matches!(recovery.damage[..], [Damage::Records { .. }]), "{:?}", recovery.damage);
    assert!(recovery.groups[0].damaged);
}

#[test]
fn an_accepted_hole_is_never_damage_later() {
    let (rig, client) = fresh(36, 256 * MIB, 1);
    let model = client.model.clone();
    let writing = client.clone();
    let last = rig.run(async move {
        write_some(&writing, GROUP, 5).await;
        // Queued together, so that one record holds them; their loss is what a power cut does before the sync.
        for block in 5..8 {
            writing.write(GROUP, ChunkId(0), BlockRange::new(block, 1)).expect("room");
        }
        while writing.shard.durable_through().0 < 9 {
            let _ = writing.shard.durable_changed(writing.shard.durable_through()).await;
        }
        writing.shard.statistics().appends
    });
    drop(client);
    rig.node.crash();
    rig.node.start();
    rig.disk.poke(record_at(&rig.disk, last), &[0; 512]);
    let recovered = model.clone();
    let client = rig.run(async move {
        let (shard, recovery) = open().await;
        assert_eq!(recovery.damage, []);
        assert_eq!(recovery.groups[0].prepared_through, Seq(6));
        Client::take_over(&shard, &recovery, &recovered).await
    });
    for round in 0..4 {
        let writing = client.clone();
        if round == 0 {
            rig.run(async move { write_some(&writing, GROUP, 20).await });
            rig.world.run_for(Duration::from_secs(2));
        }
    }
    drop(client);
    for _ in 0..3 {
        rig.node.restart();
        let client = reopen(&rig, &model);
        let check = client.clone();
        rig.run(async move {
            check.verify().await;
            write_some(&check, GROUP, 3).await;
        });
        rig.world.run_for(Duration::from_secs(2));
    }
}

#[test]
fn a_damaged_block_is_an_error_that_says_where_and_others_are_read() {
    let (rig, client) = fresh(37, 256 * MIB, 1);
    let writing = client.clone();
    rig.run(async move { write_some(&writing, GROUP, 4).await });
    // The second write's record: its block follows header and entries.
    let record = record_at(&rig.disk, 4);
    rig.disk.flip_bit(record + 512 + 1000, 0);
    rig.run(async move {
        let mut buf = runtime::IoBuf::new(BLOCK_BYTES);
        for block in 0..4 {
            let (read, back) =
                client.shard.read(&[LAYER], ChunkId(0), BlockRange::new(block, 1), buf, &mut Vec::new()).await;
            buf = back;
            match read {
                Err(store::ReadError::Checksum { block: 1, offset_bytes, expected, found, .. }) => {
                    assert_eq!(offset_bytes, record + 512);
                    assert_ne!(expected, found);
                    assert_eq!(block, 1);
                }
                other => assert!(other.is_ok() && block != 1, "block {block}: {other:?}"),
            }
        }
        assert_eq!(client.shard.statistics().checksum_errors, 1);
        assert_eq!(client.shard.statistics().read_retries, 1);
    });
}

/// A bit turns in memory, between where the block was summed and the device.
#[test]
fn blocks_that_changed_behind_their_sum_are_told_as_damage() {
    let rig = Rig::formatted(39, 256 * MIB, runtime::sim::DiskOptions::default());
    rig.run(async {
        let (shard, recovery) = open().await;
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        let range = BlockRange::new(0, 2);
        let bytes = bytes_of(ChunkId(0), range, 1);
        let coding = BlockCoding::PLAIN.summed(range.count, &bytes);
        let mut changed = IoBuf::copy_of(&bytes);
        changed[BLOCK_BYTES + 7] ^= 1;
        let write = EntryKind::Write { range, bytes: changed.freeze(), coding };
        writer.try_ask(LAYER, ChunkId(0), write).expect("there is room");
        writer.settle().await;
        for block in 0..2 {
            let (range, buf) = (BlockRange::new(block, 1), IoBuf::new(BLOCK_BYTES));
            let (read, found) = shard.read(&[LAYER], ChunkId(0), range, buf, &mut Vec::new()).await;
            match block {
                0 => assert!(read.is_ok() && found[..] == bytes[..BLOCK_BYTES], "{read:?}"),
                _ => assert!(matches!(read, Err(store::ReadError::Checksum { block: 1, .. })), "{read:?}"),
            }
        }
    });
}

#[test]
fn a_segment_header_with_a_flipped_bit_is_told_from_its_records() {
    let (rig, client) = fresh(38, 256 * MIB, 1);
    let model = client.model.clone();
    let writing = client.clone();
    rig.run(async move { write_some(&writing, GROUP, 4).await });
    drop(client);
    for bit in [0u64, 8 * 12, 8 * 16, 8 * 40 + 3, 8 * 64, 8 * 100, 8 * 300] {
        rig.node.restart();
        rig.disk.flip_bit(MIB + bit / 8, (bit % 8) as u8);
        let model = model.clone();
        rig.run(async move {
            let (shard, recovery) = open().await;
            assert!(matches!(recovery.damage[..], [Damage::SegmentHeader { .. }]), "{bit}: {:?}", recovery.damage);
            assert!(!recovery.groups[0].damaged, "bit {bit}");
            assert_eq!(recovery.groups[0].prepared_through, Seq(5));
            drop((shard, model));
        });
        rig.disk.flip_bit(MIB + bit / 8, (bit % 8) as u8);
    }
}

#[test]
fn any_one_superblock_slot_may_be_lost() {
    let rig = Rig::formatted(39, 256 * MIB, Default::default());
    for offset in [0, 64 << 10, 256 * MIB - (128 << 10), 256 * MIB - (64 << 10)] {
        rig.disk.flip_bit(offset + 700, 1);
        let repaired = rig.run(async {
            let (shard, recovery) = open().await;
            assert_eq!(recovery.damage, []);
            shard.store().repaired().len()
        });
        assert_eq!(repaired, 1, "slot at {offset}");
        rig.node.restart();
    }
    let repaired = rig.run(async { open().await.0.store().repaired().len() });
    assert_eq!(repaired, 0);
}

//! A device that lost what was acknowledged: an error, never something older.

use crate::common::{DISK, Machine, new_volume, payload};
use std::path::Path;
use std::time::Duration;
use store::format::record::RECORD_MAGIC;
use volume::IoError;

/// The part of the device that these tests write to: a superblock area and a few segments.
const LOOKED_AT_BYTES: usize = 32 << 20;
const SECTOR_BYTES: usize = 512;

/// Turns a bit in the header of the record that holds `block`.
fn damage_the_record_of(machine: &Machine, block: &[u8]) {
    let disk = machine.node.disk(Path::new(DISK)).expect("there");
    let mut bytes = vec![0; LOOKED_AT_BYTES];
    disk.peek(0, &mut bytes);
    let sectors: Vec<&[u8]> = bytes.chunks_exact(SECTOR_BYTES).collect();
    let at = sectors.iter().position(|sector| *sector == &block[..SECTOR_BYTES]).expect("the block is on the device");
    let header = sectors[..at].iter().rposition(|sector| sector.starts_with(&RECORD_MAGIC)).expect("its record");
    disk.flip_bit((header * SECTOR_BYTES + 20) as u64, 3);
}

/// Writes a block twice and damages what holds the second: `later` more blocks are written behind it.
fn lost_write(seed: u64, later: u64) {
    let machine = Machine::new(seed, 1);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("a", 64 << 20)).await.expect("made");
        let volume = assembly.directory().by_name("a").expect("served");
        for round in 1..=2 {
            volume.write(0, payload(&[round; 4096])).await.expect("written");
        }
        for chunk in 1..=later {
            volume.write(chunk << 20, payload(&[3; 4096])).await.expect("written");
        }
        // A record that says that all of this was durable.
        runtime::sleep(Duration::from_secs(2)).await;
    });
    machine.crash();
    damage_the_record_of(&machine, &[2; 4096]);
    // The second start must not take the first one's word for a group that is whole.
    for _ in 0..2 {
        let assembly = machine.start();
        machine.run(async move {
            let volume = assembly.directory().by_name("a").expect("served");
            let read = volume.read(0, 4096).await.map(|data| data.bytes[0]);
            assert!(matches!(read, Err(IoError::Unavailable(_))), "{read:?} where 2 was acknowledged");
            let written = volume.write(0, payload(&[4; 512])).await;
            assert!(written.is_err(), "a write on top of what is not known");
            let status = assembly.status().await;
            assert!(status.groups_serving < status.groups_total && status.devices[0].damage > 0, "{status:?}");
            assert!(status.reasons.iter().any(|reason| reason.contains("lost entries")), "{status:?}");
        });
        machine.crash();
    }
}

#[test]
fn a_group_that_lost_an_acknowledged_write_serves_nothing_older() {
    lost_write(1, 0);
    lost_write(2, 40);
}

//! Zeroes that a client writes take no space, hide what was there, and come back as zeroes.

use crate::common::{Machine, Random, new_volume, payload, read_all};
use volume::{Assembly, VolumeUsage};

const SIZE: u64 = 4 << 20;

async fn usage_of(assembly: &Assembly, name: &str) -> VolumeUsage {
    let id = assembly.directory().by_name(name).expect("served").id();
    assembly.usage().await.expect("counted")[&id]
}

#[test]
fn zeroes_that_are_written_are_stored_as_nothing() {
    let machine = Machine::new(1, 2);
    let assembly = machine.start();
    let data = Random::new(1).bytes(1 << 20);
    let expected = data.clone();
    machine.run(async move {
        assembly.create_volume(new_volume("v", SIZE)).await.expect("made");
        let volume = assembly.directory().by_name("v").expect("served");
        volume.write(1 << 20, payload(&vec![0; 1 << 20])).await.expect("written");
        assert_eq!(usage_of(&assembly, "v").await.stored_bytes, 0, "nothing was there");
        volume.write(0, payload(&data)).await.expect("written");
        assert_eq!(usage_of(&assembly, "v").await.stored_bytes, 1 << 20);
        volume.write(64 << 10, payload(&vec![0; 128 << 10])).await.expect("written");
        // A block that is zero but for its last byte is data.
        let mut nearly = vec![0; 4096];
        nearly[4095] = 1;
        volume.write(512 << 10, payload(&nearly)).await.expect("written");
        assert_eq!(usage_of(&assembly, "v").await.stored_bytes, (1 << 20) - (128 << 10));
        assembly.create_snapshot("v", "s").await.expect("taken");
        // Now the zeroes are needed: they hide what the snapshot holds.
        volume.write(256 << 10, payload(&vec![0; 8192])).await.expect("written");
        assembly.clone_volume("v", "s", "c").await.expect("made");
        assembly.stop().await;
    });
    machine.crash();
    let assembly = machine.start();
    machine.run(async move {
        let mut clone = vec![0; SIZE as usize];
        clone[..1 << 20].copy_from_slice(&expected);
        clone[64 << 10..192 << 10].fill(0);
        clone[512 << 10..(512 << 10) + 4095].fill(0);
        clone[(512 << 10) + 4095] = 1;
        let mut volume = clone.clone();
        volume[256 << 10..(256 << 10) + 8192].fill(0);
        let served = |name| assembly.directory().by_name(name).expect("served");
        assert!(read_all(&served("c")).await == clone, "the clone");
        assert!(read_all(&served("v")).await == volume, "the volume");
        assembly.stop().await;
    });
}

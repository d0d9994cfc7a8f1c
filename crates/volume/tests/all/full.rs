//! A device that is full: what is stored can be read and given back, now and after any number of restarts.

use crate::common::{Machine, Random, new_volume, payload};
use std::time::Duration;
use volume::{Assembly, IoError};

/// Writes until new blocks are refused; returns how many MiB are stored.
async fn fill(assembly: &Assembly) -> u64 {
    let volume = assembly.directory().by_name("a").expect("served");
    let bytes = Random::new(1).bytes(1 << 20);
    for chunk in 0.. {
        match volume.write(chunk << 20, payload(&bytes)).await {
            Ok(()) => {}
            Err(IoError::NoSpace(_)) => return chunk,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a device ends")
}

/// Changes every third block and gives back its neighbour, one after the other, until that is refused too: each takes a
/// record of its own, and none empties a segment.
async fn wear_out(assembly: &Assembly, stored_mib: u64) {
    let volume = assembly.directory().by_name("a").expect("served");
    for block in (1..stored_mib * 256).step_by(3) {
        match volume.write(block * 4096, payload(&[7; 4096])).await {
            Ok(()) => {}
            Err(IoError::NoSpace(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    for block in (2..stored_mib * 256).step_by(3) {
        match volume.discard(block * 4096, 4096).await {
            Ok(()) => {}
            Err(IoError::NoSpace(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_device_filled_to_the_brim_opens_again_and_can_be_emptied() {
    let machine = Machine::new(1, 1);
    let assembly = machine.start();
    let stored = machine.run(async move {
        assembly.create_volume(new_volume("a", 1 << 30)).await.expect("made");
        let stored = fill(&assembly).await;
        wear_out(&assembly, stored).await;
        stored
    });
    for start in 0..80 {
        machine.crash();
        let assembly = machine.start();
        machine.run(async move {
            let status = assembly.status().await;
            assert_eq!((status.groups_serving, &status.reasons[..]), (status.groups_total, &[][..]), "start {start}");
            let volume = assembly.directory().by_name("a").expect("served");
            // One of the blocks that were left alone.
            let block = ((stored - 1) * 256).next_multiple_of(3);
            let read = volume.read(block * 4096, 4096).await.expect("readable");
            let expected = &Random::new(1).bytes(1 << 20)[(block % 256) as usize * 4096..][..4096];
            assert!(*read.bytes == *expected, "start {start}: block {block} is another");
            runtime::sleep(Duration::from_millis(200)).await;
        });
    }
    machine.crash();
    let assembly = machine.start();
    machine.run(async move {
        let volume = assembly.directory().by_name("a").expect("served");
        volume.discard(0, 1 << 30).await.expect("giving back always works");
    });
}

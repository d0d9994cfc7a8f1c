//! Compare-and-write: compare and write are one, also over two chunks, and a compare that fails writes nothing.

use crate::common::locks::{a_snapshot_takes_nothing_back, is_before_or_after_a_rollback, no_raise_is_lost};
use crate::common::{Machine, new_volume, payload};
use volume::{CompareAndWriteError, IoError};

const CHUNK: u64 = 1 << 20;

#[test]
fn nothing_comes_between_compare_and_write() {
    (1..=4).for_each(no_raise_is_lost);
}

#[test]
fn a_rollback_does_not_come_between_compare_and_write_either() {
    (1..=4).for_each(is_before_or_after_a_rollback);
}

#[test]
fn a_snapshot_may_come_between_compare_and_write() {
    (1..=4).for_each(a_snapshot_takes_nothing_back);
}

#[test]
fn what_differs_in_either_chunk_writes_in_neither_and_is_named_by_its_byte() {
    let machine = Machine::with_disk(1, 2, 4 << 30);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("v", 8 << 20)).await.expect("made");
        let volume = assembly.directory().by_name("v").expect("served");
        for border in 1..8 {
            let (offset, len) = (border * CHUNK - 8192, 16384);
            let before = vec![border as u8; len];
            volume.write(offset, payload(&before)).await.expect("written");
            for at in [0, 5000, 8191, 8192, 16383] {
                let mut expected = before.clone();
                expected[at] ^= 1;
                let refused = volume.compare_and_write(offset, payload(&expected), payload(&vec![9; len])).await;
                let differs = CompareAndWriteError::Compare(IoError::CompareFailed(offset + at as u64));
                assert_eq!(refused, Err(differs), "byte {at}");
                let read = volume.read(offset, len as u32).await.expect("readable");
                assert!(read.bytes[..] == before[..], "byte {at}: something was written");
            }
            let done =
                volume.compare_and_write(offset, payload(&before), payload(&vec![100 + border as u8; len])).await;
            assert_eq!(done, Ok(()));
            let read = volume.read(offset, len as u32).await.expect("readable");
            assert!(read.bytes.iter().all(|byte| *byte == 100 + border as u8));
        }
        let behind = volume.compare_and_write(8 << 20, payload(&[0; 512]), payload(&[1; 512])).await;
        assert!(matches!(behind, Err(CompareAndWriteError::Compare(IoError::OutOfRange { .. }))), "{behind:?}");
        assembly.stop().await;
    });
}

//! The record of device I/O: what was written, when, and what is safe at each point.

use runtime::uring::record::{AtRisk, Event, Reader, RecordedDevice, What, mark};
use runtime::uring::{Options, block_on_with};
use runtime::{Device, IoBuf};
use std::path::PathBuf;

/// A directory that goes with its owner.
struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cairn-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn record_a_run(directory: &TemporaryDirectory) -> PathBuf {
    let (path, record) = (directory.0.join("device.img"), directory.0.join("record"));
    std::fs::File::create(&path).and_then(|file| file.set_len(1 << 20)).expect("a sparse file");
    let options = Options { record: Some(record.clone()), ..Options::default() };
    block_on_with(&options, async move {
        let device = Device::open(&path).await.expect("opens");
        device.write(4096, &mut vec![IoBuf::copy_of(&[1; 4096]).freeze(), IoBuf::copy_of(&[2; 4096]).freeze()]).await?;
        mark(b"written");
        device.sync().await?;
        mark(b"synced");
        device.write(0, &mut vec![IoBuf::copy_of(&[3; 4096]).freeze()]).await?;
        device.discard(4096, 4096).await
    })
    .expect("a ring")
    .expect("the device works");
    record
}

#[test]
fn a_record_holds_what_was_done_in_order() {
    let directory = TemporaryDirectory::new("record");
    let events: Vec<Event> =
        Reader::open(&record_a_run(&directory)).expect("opens").map(|e| e.expect("reads")).collect();
    assert!(events.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
    let device = directory.0.join("device.img");
    let kinds: Vec<&What> = events.iter().map(|event| &event.what).collect();
    let [
        What::Device { path, size_bytes: 1_048_576, volatile_cache: true },
        What::WriteIssued { operation: first, offset_bytes: 4096, bytes },
        What::WriteCompleted { operation: first_done, error: 0 },
        What::Mark { bytes: written },
        What::SyncIssued { operation: sync },
        What::SyncCompleted { operation: sync_done, error: 0 },
        What::Mark { bytes: synced },
        What::WriteIssued { offset_bytes: 0, .. },
        What::WriteCompleted { error: 0, .. },
        What::DiscardIssued { offset_bytes: 4096, len_bytes: 4096, .. },
        What::DiscardCompleted { error: 0, .. },
    ] = kinds[..]
    else {
        panic!("{kinds:?}")
    };
    assert_eq!((path, first, sync), (&device, first_done, sync_done));
    assert_eq!((&bytes[..4096], &bytes[4096..]), (&[1u8; 4096][..], &[2u8; 4096][..]));
    assert_eq!((&written[..], &synced[..]), (&b"written"[..], &b"synced"[..]));
}

#[test]
fn only_the_write_after_the_sync_is_at_risk_at_the_end() {
    let directory = TemporaryDirectory::new("record-risk");
    let mut at_risk = AtRisk::new(RecordedDevice(0));
    let mut image = vec![0u8; 1 << 20];
    for event in Reader::open(&record_a_run(&directory)).expect("opens") {
        for write in at_risk.follow(&event.expect("reads")) {
            image[write.range().start as usize..write.range().end as usize].copy_from_slice(&write.bytes);
        }
    }
    assert_eq!(
        at_risk.writes().iter().map(|write| (write.range().start, write.range().end)).collect::<Vec<_>>(),
        [(0, 4096)]
    );
    assert_eq!((image[0], image[4096], image[8192], image[12288]), (0, 1, 2, 0));
}

#[test]
fn a_record_cut_off_anywhere_ends_before_the_cut() {
    let directory = TemporaryDirectory::new("record-cut");
    let record = record_a_run(&directory);
    let whole = std::fs::read(&record).expect("reads");
    let all = Reader::open(&record).expect("opens").count();
    for cut in [17, 55, 56, 200, 4200, whole.len() - 1] {
        std::fs::write(&record, &whole[..cut]).expect("cuts");
        let events: Vec<_> = Reader::open(&record).expect("opens").collect();
        assert!(events.iter().all(Result::is_ok) && events.len() < all, "cut at {cut}");
    }
    std::fs::write(&record, b"something else, long enough").expect("writes");
    assert!(Reader::open(&record).is_err());
}

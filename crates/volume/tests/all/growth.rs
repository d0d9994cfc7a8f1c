//! A device that fails while it is added: the node serves on, and the next try takes the device.

use crate::common::growth::a_volume_lies_where_the_table_of_its_record_says;
use crate::common::{DISK, DISK_BYTES, Machine, new_volume, payload};
use runtime::sim::{DiskFaults, DiskOptions};
use std::path::Path;
use store::{FormatOptions, UNCLAIMED};
use types::{CHUNK_BYTES, StoreId};
use volume::{Assembly, NodeOptions, StartError};

const OTHER_DISK: &str = "/other";
const CHUNKS: u64 = 32;

/// Adds a device whose writes fail now and then, and after a failed try once more when they fail no more; then writes
/// to a volume that lies on both devices, and finds all of it again after a crash. Returns whether the first try failed.
fn add_with_faults(seed: u64) -> bool {
    let machine = Machine::new(seed, 2);
    machine.node.add_disk(OTHER_DISK, DISK_BYTES, DiskOptions::default());
    let disk = machine.node.disk(Path::new(OTHER_DISK)).expect("there");
    let assembly = machine.start();
    let failed = machine.run(async move {
        let options = FormatOptions::with_random_key(UNCLAIMED, StoreId(u128::from(seed) + 77));
        let device = runtime::Device::open(Path::new(OTHER_DISK)).await.expect("opened");
        store::format(&device, &options).await.expect("formatted");
        drop(device);
        disk.set_faults(DiskFaults { write_error: 60_000, ..DiskFaults::default() });
        let first = assembly.add_device(Path::new(OTHER_DISK)).await;
        disk.set_faults(DiskFaults::default());
        if let Err(error) = &first {
            println!("seed {seed}: {error}");
            assembly.add_device(Path::new(OTHER_DISK)).await.expect("the next try takes it");
        }
        assembly.create_volume(new_volume("v", CHUNKS * CHUNK_BYTES)).await.expect("made");
        let volume = assembly.directory().by_name("v").expect("served");
        for chunk in 0..CHUNKS {
            volume.write(chunk * CHUNK_BYTES, payload(&[seed as u8 + 1; 4096])).await.expect("written");
        }
        let devices = assembly.status().await.devices;
        assert!(devices.len() == 2 && devices.iter().all(|device| device.entries > 0), "both hold some of it");
        first.is_err()
    });
    machine.crash();
    let options = NodeOptions { devices: [DISK, OTHER_DISK].map(Into::into).to_vec(), ..machine.options() };
    machine.run(async move {
        let assembly = Assembly::start(options).await.expect("the node starts");
        let volume = assembly.directory().by_name("v").expect("served");
        for chunk in 0..CHUNKS {
            let read = volume.read(chunk * CHUNK_BYTES, 4096).await.expect("readable");
            assert!(read.bytes.iter().all(|byte| *byte == seed as u8 + 1), "chunk {chunk}");
        }
    });
    failed
}

#[test]
fn a_device_that_fails_while_it_is_added_is_taken_by_the_next_try() {
    let failed = (0..12).filter(|seed| add_with_faults(*seed)).count();
    println!("{failed} of 12 first tries failed");
    assert!((1..12).contains(&failed), "some fail and some do not");
}

#[test]
fn a_device_that_is_named_twice_is_opened_once() {
    let machine = Machine::new(1, 2);
    for _ in 0..2 {
        let options = NodeOptions { devices: vec![DISK.into(), DISK.into()], ..machine.options() };
        let started = machine.run(async move { Assembly::start(options).await.map(drop) });
        assert!(matches!(started, Err(StartError::AlreadyServed { .. })), "{started:?}");
    }
    machine.start();
}

#[test]
fn a_volume_that_is_made_after_a_device_came_lies_where_the_table_of_its_record_says() {
    (0..3).for_each(a_volume_lies_where_the_table_of_its_record_says);
}

//! A pool of one copy that gets another device, and another slot table with it.

use super::{DISK, DISK_BYTES, Machine, new_volume, payload};
use runtime::sim::DiskOptions;
use std::path::Path;
use store::{FormatOptions, UNCLAIMED};
use types::{CHUNK_BYTES, StoreId};
use volume::{Assembly, NodeOptions};

const OTHER_DISK: &str = "/other";
const CHUNKS: u64 = 32;

/// H10: a volume is served by the table that its record names, whichever the pool had before: what was
/// written through one head is found by the next.
pub fn a_volume_lies_where_the_table_of_its_record_says(seed: u64) {
    let machine = Machine::new(seed, 2);
    machine.node.add_disk(OTHER_DISK, DISK_BYTES, DiskOptions::default());
    let assembly = machine.start();
    machine.run(async move {
        let options = FormatOptions::with_random_key(UNCLAIMED, StoreId(u128::from(seed) + 77));
        let device = runtime::Device::open(Path::new(OTHER_DISK)).await.expect("opened");
        store::format(&device, &options).await.expect("formatted");
        drop(device);
        assembly.add_device(Path::new(OTHER_DISK)).await.expect("it is taken");
        assembly.create_volume(new_volume("v", CHUNKS * CHUNK_BYTES)).await.expect("made");
        let volume = assembly.directory().by_name("v").expect("served");
        for chunk in 0..CHUNKS {
            volume.write(chunk * CHUNK_BYTES, payload(&[chunk as u8 + 1; 4096])).await.expect("written");
        }
        let devices = assembly.status().await.devices;
        assert!(
            devices.len() == 2 && devices.iter().all(|device| device.entries > 0),
            "both hold some of it, as the newer table says"
        );
    });
    machine.crash();
    let options = NodeOptions { devices: [DISK, OTHER_DISK].map(Into::into).to_vec(), ..machine.options() };
    machine.run(async move {
        let assembly = Assembly::start(options).await.expect("the node starts");
        let volume = assembly.directory().by_name("v").expect("served");
        for chunk in 0..CHUNKS {
            let read = volume.read(chunk * CHUNK_BYTES, 4096).await.expect("readable");
            assert!(read.bytes.iter().all(|byte| *byte == chunk as u8 + 1), "chunk {chunk}");
        }
    });
}

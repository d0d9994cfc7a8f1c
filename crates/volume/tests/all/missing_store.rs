//! A node that runs without one of its devices ends no layer of which that device may hold something.

use crate::common::{DISK, DISK_BYTES, Machine, new_volume, payload, read_all};
use cluster::{LayerRecord, VolumeRecord, keys, list};
use runtime::sim::DiskOptions;
use std::path::PathBuf;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{Assembly, IoError, NodeOptions};

const OTHER_DISK: &str = "/other";
/// They are on both devices.
const CHUNKS: u64 = 32;
/// Long enough for everything that can end to end.
const A_WHILE: Duration = Duration::from_secs(5);

fn start(machine: &Machine, devices: &[&str]) -> Assembly {
    let options = NodeOptions { devices: devices.iter().map(PathBuf::from).collect(), ..machine.options() };
    machine.run(async move { Assembly::start(options).await.expect("the node starts") })
}

/// Writes `value` to the first block of every `step`th chunk.
async fn write(assembly: &Assembly, name: &str, step: usize, value: u8) {
    let volume = assembly.directory().by_name(name).expect("served");
    for chunk in (0..CHUNKS).step_by(step) {
        volume.write(chunk * CHUNK_BYTES, payload(&[value; 4096])).await.expect("written");
    }
}

/// A snapshot and a volume are deleted while a device is away, which holds half of what they hold.
#[test]
fn what_is_deleted_while_a_device_is_away_ends_when_it_is_back() {
    for cores in 1..=2 {
        let machine = Machine::new(cores as u64, cores);
        machine.node.add_disk(OTHER_DISK, DISK_BYTES, DiskOptions::default());
        let assembly = start(&machine, &[DISK, OTHER_DISK]);
        machine.run(async move {
            for name in ["kept", "deleted"] {
                assembly.create_volume(new_volume(name, CHUNKS * CHUNK_BYTES)).await.expect("made");
                write(&assembly, name, 1, 1).await;
                assembly.create_snapshot(name, "s").await.expect("taken");
                write(&assembly, name, 3, 2).await;
            }
        });

        machine.crash();
        let (assembly, map) = (start(&machine, &[DISK]), machine.map.clone());
        machine.run(async move {
            assembly.delete_snapshot("kept", "s").await.expect("deleted");
            assembly.delete_snapshot("deleted", "s").await.expect("deleted");
            assembly.delete_volume("deleted").await.expect("deleted");
            runtime::sleep(A_WHILE).await;
            let volume = assembly.directory().by_name("kept").expect("served");
            let mut readable = 0;
            for chunk in 0..CHUNKS {
                match volume.read(chunk * CHUNK_BYTES, 1).await {
                    Ok(read) => {
                        assert_eq!(read.bytes[0], if chunk % 3 == 0 { 2 } else { 1 }, "chunk {chunk}");
                        readable += 1;
                    }
                    Err(error) => assert!(matches!(error, IoError::Unavailable(_)), "{error}"),
                }
            }
            assert!((1..CHUNKS).contains(&readable), "some chunks are on the device that is away: {readable}");
            assert_eq!(list::<LayerRecord>(&*map, keys::LAYERS).await.expect("layers").len(), 4, "none has ended");
            assert_eq!(assembly.status().await.deleting_volumes, 1);
        });

        machine.crash();
        let (assembly, map) = (start(&machine, &[DISK, OTHER_DISK]), machine.map.clone());
        machine.run(async move {
            runtime::sleep(A_WHILE).await;
            let volume = assembly.directory().by_name("kept").expect("served");
            let all = read_all(&volume).await;
            for (chunk, bytes) in all.chunks(CHUNK_BYTES as usize).enumerate() {
                let value = if chunk % 3 == 0 { 2 } else { 1 };
                assert!(bytes[..4096].iter().all(|byte| *byte == value), "chunk {chunk}: {}", bytes[0]);
            }
            assert_eq!(list::<LayerRecord>(&*map, keys::LAYERS).await.expect("layers").len(), 1);
            assert_eq!(list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("volumes").len(), 1);
            let status = assembly.status().await;
            let live: u64 = status.devices.iter().map(|device| device.live_bytes).sum();
            assert_eq!(live, CHUNKS * 4096, "what was deleted gave its space back on both devices");
        });
    }
}

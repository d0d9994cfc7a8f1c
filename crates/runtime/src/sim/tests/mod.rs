//! The simulated backend through the surface that everything above uses.

mod disks;
mod network;
mod world;

use super::{DiskOptions, NodeOptions, SimNode, World};
use crate::{Device, IoBuf, SharedBuf};
use std::path::Path;

const DISK: &str = "disk";
const DISK_BYTES: u64 = 64 << 20;

fn world_with_disk(seed: u64, options: DiskOptions) -> (World, SimNode) {
    let world = World::new(seed);
    let node = world.add_node(1, NodeOptions::default());
    node.add_disk(DISK, DISK_BYTES, options);
    (world, node)
}

async fn open() -> Device {
    Device::open(Path::new(DISK)).await.expect("the disk is there")
}

fn filled(len: usize, byte: u8) -> SharedBuf {
    let mut buf = IoBuf::new(len);
    buf.fill(byte);
    buf.freeze()
}

async fn write(device: &Device, offset: u64, len: usize, byte: u8) -> std::io::Result<()> {
    device.write(offset, &mut vec![filled(len, byte)]).await
}

async fn read(device: &Device, offset: u64, len: usize) -> Vec<u8> {
    let (result, buf) = device.read(offset, IoBuf::new(len)).await;
    result.expect("no fault was asked for");
    buf.to_vec()
}

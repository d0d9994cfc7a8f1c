//! Reading and writing the superblock's slots.

use crate::error::OpenError;
use crate::format::{END_AREA_BYTES, FormatError, SUPERBLOCK_BYTES, SlotPosition, Superblock};
use runtime::{Device, IoBuf};
use std::io;
use std::sync::Arc;

/// What each slot holds, in the order of [`SlotPosition::ALL`].
pub(crate) type Slots = [Result<Superblock, FormatError>; 4];

/// Reads all slots. One that cannot be read counts as damaged: the others may serve.
pub(crate) async fn read_slots(device: &Device) -> Result<Slots, OpenError> {
    // The device may have grown since it was formatted: the front says where the back is.
    let found_bytes = device.info().size_bytes;
    let mut size = found_bytes;
    let mut slots = [const { Err(FormatError::Magic { what: "superblock" }) }; 4];
    if found_bytes < 2 * END_AREA_BYTES {
        return Ok(slots); // Too small for any store.
    }
    let mut unreadable = None;
    for (slot, position) in slots.iter_mut().zip(SlotPosition::ALL) {
        let offset_bytes = position.offset_bytes(size);
        let (read, bytes) = device.read(offset_bytes, IoBuf::new(SUPERBLOCK_BYTES)).await;
        *slot = match read {
            Ok(()) => Superblock::decode(position, &bytes),
            Err(error) => {
                unreadable = Some(OpenError::Io { offset_bytes, message: Arc::from(error.to_string()) });
                Err(FormatError::Hash { what: "superblock" })
            }
        };
        if let Ok(superblock) = slot {
            // On a device that shrank the back is gone; opening says so.
            size = superblock.geometry.device_size_bytes.min(found_bytes);
        }
    }
    match unreadable {
        Some(error) if slots.iter().all(Result::is_err) => Err(error),
        _ => Ok(slots),
    }
}

/// Writes one update to its two slots and makes it durable. The next may begin only when this has returned.
pub(crate) async fn write_update(device: &Device, superblock: &Superblock) -> io::Result<()> {
    let mut parts = Vec::with_capacity(1);
    for position in SlotPosition::of_update(superblock.write_counter) {
        let mut slot = IoBuf::new(SUPERBLOCK_BYTES);
        superblock.encode(position, &mut slot);
        parts.push(slot.freeze());
        device.write(position.offset_bytes(superblock.geometry.device_size_bytes), &mut parts).await?;
    }
    device.sync().await
}

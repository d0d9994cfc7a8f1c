//! Making a device a store, and asking whether it is one.

use crate::error::{OpenError, StoreError};
use crate::format::{FormatError, Geometry, HashKey, SUPERBLOCK_BYTES, ShardRoot, SlotPosition, Superblock};
use crate::parallel;
use crate::superblock::{read_slots, write_update};
use runtime::{Device, IoBuf, wall_clock_ns};
use std::sync::Arc;
use types::{ClusterId, Incarnation, StoreId};

/// Segment headers read or written at once: enough to keep any drive busy.
pub(crate) const HEADERS_AT_ONCE: usize = 32;

/// The cluster of a store that belongs to none yet: it was formatted for whichever takes it first.
pub const UNCLAIMED: ClusterId = ClusterId(0);

/// What a new store is told.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The cluster it belongs to, or [`UNCLAIMED`].
    pub cluster: ClusterId,
    /// Its id, never used before.
    pub store: StoreId,
    /// 32 random bytes that never leave the device: who knows them can forge a record.
    pub hash_key: [u8; 32],
    /// Segment size if not the default for the device's size.
    pub segment_size_bytes: Option<u32>,
    /// Number of shards if not the default for the number of segments.
    pub shard_count: Option<u8>,
}

impl FormatOptions {
    /// A new key, and the defaults for the device's size.
    pub fn with_random_key(cluster: ClusterId, store: StoreId) -> Self {
        let mut hash_key = [0; 32];
        hash_key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&runtime::random_u64().to_le_bytes()));
        Self { cluster, store, hash_key, segment_size_bytes: None, shard_count: None }
    }
}

/// Whose store is on the device, if one is.
///
/// # Errors
/// If the device cannot be read, or carries a superblock that this build cannot judge.
pub async fn identify(device: &Device) -> Result<Option<(ClusterId, StoreId)>, OpenError> {
    let slots = read_slots(device).await?;
    match Superblock::newest(slots) {
        Ok(superblock) => Ok(Some((superblock.cluster, superblock.store))),
        Err(FormatError::Magic { .. }) => Ok(None),
        Err(error) => Err(OpenError::Superblock(error)),
    }
}

/// Makes `device` an empty store. What was on it is lost, unless it was a store: that is refused.
///
/// # Errors
/// A device too small, in use as a store, or failing.
pub async fn format(device: &Device, options: &FormatOptions) -> Result<(), StoreError> {
    if let Ok(Some((cluster, store))) = identify(device).await {
        return Err(StoreError::Occupied { store, cluster });
    }
    let info = device.info();
    let mut geometry = Geometry::for_device(info.size_bytes, info.block_size_bytes)?;
    if options.segment_size_bytes.is_some() || options.shard_count.is_some() {
        let segment_size_bytes = options.segment_size_bytes.unwrap_or(geometry.segment_size_bytes);
        geometry = Geometry::with(info.size_bytes, info.block_size_bytes, segment_size_bytes, options.shard_count)?;
    }
    clear_headers(device, geometry).await?;
    let now = wall_clock_ns();
    let mut superblock = Superblock {
        compat: 0,
        read_only_compat: 0,
        cluster: options.cluster,
        store: options.store,
        geometry,
        formatted_at_ns: now,
        written_at_ns: now,
        incarnation: Incarnation(0),
        write_counter: 0,
        hash_key: HashKey(options.hash_key),
        shards: [ShardRoot::default(); 8],
    };
    // Twice, so that all four slots are good from the first day.
    for write_counter in 1..=2 {
        superblock.write_counter = write_counter;
        write_update(device, &superblock).await.map_err(|error| io_at(0, &error))?;
    }
    Ok(())
}

/// Makes an unclaimed store the cluster's, durably. One that is the cluster's already is left as it is.
///
/// # Errors
/// A store of another cluster, no store, or a device that fails.
pub async fn claim(device: &Device, cluster: ClusterId) -> Result<StoreId, OpenError> {
    let mut superblock = Superblock::newest(read_slots(device).await?)?;
    let store = superblock.store;
    if superblock.cluster == cluster {
        return Ok(store);
    }
    if superblock.cluster != UNCLAIMED {
        return Err(OpenError::Claimed { store, cluster: superblock.cluster });
    }
    superblock.cluster = cluster;
    // Twice, so that no slot is left that says otherwise.
    for _ in 0..2 {
        superblock.write_counter += 1;
        superblock.written_at_ns = wall_clock_ns();
        write_update(device, &superblock).await.map_err(|error| crate::store::io_at(0, &error))?;
    }
    Ok(store)
}

/// Takes the store off the device: nothing finds it any more. Does nothing to a device without one.
///
/// # Errors
/// A device that fails.
pub async fn erase(device: &Device) -> Result<(), StoreError> {
    let found_bytes = device.info().size_bytes;
    let of_store = match read_slots(device).await.map(Superblock::newest) {
        Ok(Ok(superblock)) => superblock.geometry.device_size_bytes.min(found_bytes),
        _ => found_bytes,
    };
    for size_bytes in [of_store, found_bytes] {
        for offset in SlotPosition::ALL.map(|position| position.offset_bytes(size_bytes)) {
            let zeroes = IoBuf::zeroed(SUPERBLOCK_BYTES).freeze();
            device.write(offset, &mut vec![zeroes]).await.map_err(|error| io_at(offset, &error))?;
        }
    }
    device.sync().await.map_err(|error| io_at(0, &error))
}

fn io_at(offset_bytes: u64, error: &std::io::Error) -> StoreError {
    StoreError::Io { offset_bytes, message: Arc::from(error.to_string()) }
}

/// The first block of each segment and the superblock slots are zero afterwards: so a header that is neither zero nor
/// good is damage, never something older.
async fn clear_headers(device: &Device, geometry: Geometry) -> Result<(), StoreError> {
    let on = device.clone();
    parallel::for_each(geometry.segment_count, HEADERS_AT_ONCE, move |segment| {
        let device = on.clone();
        async move {
            let offset = geometry.segment_start_bytes(crate::format::SegmentIndex(segment));
            let (read, block) = device.read(offset, IoBuf::new(geometry.block_size_bytes as usize)).await;
            read.map_err(|error| io_at(offset, &error))?;
            if block.iter().any(|byte| *byte != 0) {
                let zeroes = IoBuf::zeroed(block.len()).freeze();
                device.write(offset, &mut vec![zeroes]).await.map_err(|error| io_at(offset, &error))?;
            }
            Ok::<(), StoreError>(())
        }
    })
    .await?;
    for position in SlotPosition::ALL {
        let offset = position.offset_bytes(geometry.device_size_bytes);
        let zeroes = IoBuf::zeroed(SUPERBLOCK_BYTES).freeze();
        device.write(offset, &mut vec![zeroes]).await.map_err(|error| io_at(offset, &error))?;
    }
    device.sync().await.map_err(|error| io_at(0, &error))
}

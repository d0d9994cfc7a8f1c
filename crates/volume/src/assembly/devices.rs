//! Devices: found by what is on them, not by where they are; formatted only if the map says that nothing is on them.

use super::StartError;
use cluster::{DeviceRecord, DeviceState, MapStore, activate_device, ensure, keys, list};
use runtime::Device;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{FormatOptions, Store};
use types::{ClusterId, NodeId, StoreId};

/// A device and its store.
pub(super) struct OpenDevice {
    pub(super) path: PathBuf,
    pub(super) size_bytes: u64,
    pub(super) store: Arc<Store>,
}

impl OpenDevice {
    /// What was found wrong outside of any one shard.
    pub(super) fn damage(&self) -> impl Iterator<Item = String> {
        self.store.damage().iter().map(|damage| format!("{}: {damage}", self.path.display()))
    }
}

/// Opens the node's devices, and formats the new ones.
pub(super) async fn open_all(
    map: &Arc<dyn MapStore>,
    cluster: ClusterId,
    node: NodeId,
    paths: &[PathBuf],
) -> Result<Vec<OpenDevice>, StartError> {
    if paths.is_empty() {
        return Err(StartError::NoDevice);
    }
    let known: Vec<DeviceRecord> = list(&**map, keys::DEVICES).await?.into_iter().map(|found| found.record).collect();
    let opener = Opener { map, cluster, node, known };
    let mut devices = Vec::with_capacity(paths.len());
    for path in paths {
        devices.push(opener.open(path).await?);
    }
    Ok(devices)
}

struct Opener<'a> {
    map: &'a Arc<dyn MapStore>,
    cluster: ClusterId,
    node: NodeId,
    known: Vec<DeviceRecord>,
}

impl Opener<'_> {
    async fn open(&self, path: &Path) -> Result<OpenDevice, StartError> {
        let failed = |error: std::io::Error| StartError::Device { path: path.to_owned(), message: error.to_string() };
        let device = Device::open(path).await.map_err(failed)?;
        let size_bytes = device.info().size_bytes;
        let broken = |error| StartError::Store { path: path.to_owned(), error };
        let store = match store::identify(&device).await.map_err(broken)? {
            Some((cluster, store)) => {
                self.check(path, cluster, store)?;
                Store::open(&device).await.map_err(broken)?
            }
            None => self.format(path, &device).await?,
        };
        activate_device(&**self.map, store.store_id()).await?;
        Ok(OpenDevice { path: path.to_owned(), size_bytes, store })
    }

    /// The store must be this cluster's, and known to it.
    fn check(&self, path: &Path, found: ClusterId, store: StoreId) -> Result<(), StartError> {
        let path = path.to_owned();
        if found != self.cluster {
            return Err(StartError::OtherCluster { path, store, found, expected: self.cluster });
        }
        if !self.known.iter().any(|record| record.store == store) {
            return Err(StartError::UnknownStore { path, store });
        }
        Ok(())
    }

    /// The device is blank. It is formatted unless the map knows of data on it; the map is told before, and that it is
    /// done afterwards, so that after a crash in between it is formatted again and after nothing else is.
    async fn format(&self, path: &Path, device: &Device) -> Result<Arc<Store>, StartError> {
        let shown = path.display().to_string();
        let there = self.known.iter().find(|record| record.node == self.node && record.path == shown);
        let record = match there {
            Some(record) if record.state == DeviceState::Active => {
                return Err(StartError::Blank { path: path.to_owned(), store: record.store });
            }
            Some(record) => record.clone(),
            None => {
                let record = DeviceRecord {
                    store: StoreId(random_u128()),
                    node: self.node,
                    path: shown,
                    size_bytes: device.info().size_bytes,
                    state: DeviceState::New,
                };
                ensure(&**self.map, record).await?.record
            }
        };
        let mut hash_key = [0; 32];
        hash_key[..16].copy_from_slice(&random_u128().to_le_bytes());
        hash_key[16..].copy_from_slice(&random_u128().to_le_bytes());
        let options = FormatOptions {
            cluster: self.cluster,
            store: record.store,
            hash_key,
            segment_size_bytes: None,
            shard_count: None,
        };
        store::format(device, &options).await.map_err(|error| StartError::Format { path: path.to_owned(), error })?;
        Store::open(device).await.map_err(|error| StartError::Store { path: path.to_owned(), error })
    }
}

pub(super) fn random_u128() -> u128 {
    u128::from(runtime::random_u64()) << 64 | u128::from(runtime::random_u64())
}

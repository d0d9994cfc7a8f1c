//! Devices: found by what is on them, not by where they are. One that was formatted and belongs to no cluster is
//! claimed; a blank one is formatted only where the node may do that, and only if the map says that nothing is on it.

use super::{Blank, StartError};
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

/// A device that was in use and is not to be used now: missing, blank, cut short, not readable. The node serves without it.
pub(super) struct Unusable {
    /// What the map says of it.
    pub(super) record: DeviceRecord,
    /// What is wrong.
    pub(super) why: String,
}

fn not_opened(path: &Path, error: &std::io::Error) -> StartError {
    let (path, message) = (path.to_owned(), error.to_string());
    match error.kind() {
        std::io::ErrorKind::ResourceBusy => StartError::InUse { path, message },
        _ => StartError::Device { path, message },
    }
}

/// Opens devices of a node.
pub(super) struct Opener<'a> {
    map: &'a Arc<dyn MapStore>,
    cluster: ClusterId,
    node: NodeId,
    blank: Blank,
    /// Somebody has just asked for the device to be taken, wherever another one was.
    pub(super) by_order: bool,
    known: Vec<DeviceRecord>,
}

impl<'a> Opener<'a> {
    pub(super) async fn new(
        map: &'a Arc<dyn MapStore>,
        cluster: ClusterId,
        node: NodeId,
        blank: Blank,
    ) -> Result<Self, StartError> {
        let known = list(&**map, keys::DEVICES).await?.into_iter().map(|found| found.record).collect();
        Ok(Self { map, cluster, node, blank, by_order: false, known })
    }

    /// The device that the map says is there, if it is one that others can do without: it was in use, something is wrong with
    /// what is there now, and no other process has it.
    pub(super) fn unusable(&self, path: &Path, error: &StartError) -> Option<Unusable> {
        let is_of_device = matches!(
            error,
            StartError::Device { .. }
                | StartError::Store { .. }
                | StartError::Blank { .. }
                | StartError::NotFormatted { .. }
                | StartError::Replaced { .. }
        );
        let is_it = |record: &&DeviceRecord| self.is_at(record, path) && record.state == DeviceState::Active;
        let record = self.known.iter().filter(|_| is_of_device).find(is_it)?.clone();
        Some(Unusable { record, why: error.to_string() })
    }

    /// Whether the map knows another of this node's devices: then it is this node's map, and a device that it does not know
    /// has left the cluster.
    pub(super) fn knows_others(&self, named: &[PathBuf], path: &Path) -> bool {
        named.iter().filter(|other| *other != path).any(|other| {
            self.known.iter().any(|record| record.state == DeviceState::Active && self.is_at(record, other))
        })
    }

    /// Whether other nodes have devices, too.
    pub(super) fn has_other_nodes(&self) -> bool {
        self.known.iter().any(|record| record.node != self.node && record.state == DeviceState::Active)
    }

    fn is_at(&self, record: &DeviceRecord, path: &Path) -> bool {
        record.node == self.node && Path::new(&record.path) == path
    }

    /// Opens one that is the cluster's, makes one the cluster's that nobody's is.
    pub(super) async fn open(&self, path: &Path) -> Result<OpenDevice, StartError> {
        let failed = |error| not_opened(path, &error);
        let device = Device::open(path).await.map_err(failed)?;
        let size_bytes = device.info().size_bytes;
        let broken = |error| StartError::Store { path: path.to_owned(), error };
        let store = match store::identify(&device).await.map_err(broken)? {
            Some((store::UNCLAIMED, store)) => self.claim(path, &device, store).await?,
            Some((cluster, store)) => {
                self.check(path, cluster, store)?;
                Store::open(&device).await.map_err(broken)?
            }
            None if self.blank == Blank::Refuse => return Err(StartError::NotFormatted { path: path.to_owned() }),
            None => self.format(path, &device).await?,
        };
        activate_device(&**self.map, store.store_id()).await?;
        Ok(OpenDevice { path: path.to_owned(), size_bytes, store })
    }

    /// Which store is there, whoever's it is; `None`: none, or it cannot be told.
    pub(super) async fn store_on(path: &Path) -> Option<StoreId> {
        let device = Device::open(path).await.ok()?;
        store::identify(&device).await.ok()?.map(|(_, store)| store)
    }

    /// Which store is there, without opening it: the cluster's or nobody's. As the map would have it if it came now.
    pub(super) async fn look(&self, path: &Path) -> Result<DeviceRecord, StartError> {
        let failed = |error| not_opened(path, &error);
        let device = Device::open(path).await.map_err(failed)?;
        let record = |store| self.new_record(store, path.display().to_string(), &device);
        match store::identify(&device).await {
            Ok(Some((store::UNCLAIMED, store))) => Ok(record(store)),
            Ok(Some((cluster, store))) => self.check(path, cluster, store).map(|()| record(store)),
            Ok(None) => Err(StartError::NotFormatted { path: path.to_owned() }),
            Err(error) => Err(StartError::Store { path: path.to_owned(), error }),
        }
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

    /// The device is formatted and nobody's. The map is told first: after a crash in between it is claimed again, and
    /// a device that is the cluster's is always known to it.
    async fn claim(&self, path: &Path, device: &Device, store: StoreId) -> Result<Arc<Store>, StartError> {
        let shown = path.display().to_string();
        let is_other = |record: &&DeviceRecord| self.is_at(record, path) && record.store != store;
        if let Some(other) = self.known.iter().filter(|_| !self.by_order).find(is_other) {
            return Err(StartError::Replaced { path: path.to_owned(), store: other.store });
        }
        if !self.known.iter().any(|record| record.store == store) {
            ensure(&**self.map, self.new_record(store, shown, device)).await?;
        }
        let broken = |error| StartError::Store { path: path.to_owned(), error };
        store::claim(device, self.cluster).await.map_err(broken)?;
        Store::open(device).await.map_err(broken)
    }

    fn new_record(&self, store: StoreId, path: String, device: &Device) -> DeviceRecord {
        let size_bytes = device.info().size_bytes;
        DeviceRecord { store, node: self.node, path, size_bytes, state: DeviceState::New }
    }

    /// The device is blank. It is formatted unless the map knows of data on it; the map is told before, and that it is
    /// done afterwards, so that after a crash in between it is formatted again and after nothing else is.
    async fn format(&self, path: &Path, device: &Device) -> Result<Arc<Store>, StartError> {
        let shown = path.display().to_string();
        let there = self.known.iter().find(|record| self.is_at(record, path));
        let record = match there {
            Some(record) if record.state == DeviceState::Active => {
                return Err(StartError::Blank { path: path.to_owned(), store: record.store });
            }
            Some(record) => record.clone(),
            None => {
                let record = self.new_record(StoreId(random_u128()), shown, device);
                ensure(&**self.map, record).await?.record
            }
        };
        let options = FormatOptions::with_random_key(self.cluster, record.store);
        store::format(device, &options).await.map_err(|error| StartError::Format { path: path.to_owned(), error })?;
        Store::open(device).await.map_err(|error| StartError::Store { path: path.to_owned(), error })
    }
}

pub(super) fn random_u128() -> u128 {
    u128::from(runtime::random_u64()) << 64 | u128::from(runtime::random_u64())
}

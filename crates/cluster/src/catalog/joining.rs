//! Machines that become nodes: the first makes the cluster, each later one takes the next number. All that is said of a machine is
//! said in one transaction, so that of two that come at once each has a number of its own, and a crash leaves no half of one.

use super::numbers::{Numbered, Numbers};
use super::{ATTEMPTS_MAX, Attempt, CatalogError, attempt};
use crate::control::Followed;
use crate::map::{Listing, MapStore, Transaction};
use crate::placement::duty::{Forecast, Refusal, Request, View, foretell};
use crate::records::{
    ClusterKeyRecord, ClusterRecord, DevicePlaceRecord, DeviceRecord, DeviceState, NodeRecord, Record, keys,
};
use crate::typed::{decode, encode};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use types::{ClusterId, Mutant, NodeId, StoreId, mutant};

/// Most nodes of a cluster, and the greatest number of one.
pub const NODES_MAX: u32 = 60;

/// A machine that is to be a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// Where other nodes are to reach it.
    pub address: SocketAddr,
    /// Its devices: formatted, and no cluster's.
    pub devices: Vec<NewDevice>,
    /// Whether they hold nothing until one of them is said to take another's place.
    pub is_spare: bool,
}

/// A device of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDevice {
    /// What is on it.
    pub store: StoreId,
    /// Where it is on its machine.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The cluster.
    pub cluster: ClusterRecord,
    /// The machine's number in it.
    pub node: NodeId,
    /// What it will be filled with, and by whom; nothing where the cluster has no pool yet.
    pub forecast: Forecast,
}

/// Why a machine does not become a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The map.
    #[error(transparent)]
    Map(#[from] CatalogError),
    /// There is a cluster already.
    #[error(
        "this etcd holds the cluster {0} already: `cairn join` makes this machine a node of it; another cluster needs an etcd of its own"
    )]
    Begun(ClusterId),
    /// There is none.
    #[error(
        "this etcd holds no cluster: begin one with `cairn init`, put one that was exported into it with `cairn map import`, or check the URLs"
    )]
    NoCluster,
    /// Something else is in it.
    #[error("this etcd holds other things than a cluster (the key '{0}'): give Cairn an etcd of its own")]
    Foreign(String),
    /// Not the one that was meant.
    #[error("this etcd holds the cluster {found}, not {wanted}: check the URLs of etcd")]
    OtherCluster {
        /// Which is there.
        found: ClusterId,
        /// Which should be.
        wanted: ClusterId,
    },
    /// A node is reached there already.
    #[error(
        "node-{node} is at {address} already: give this machine another address for other nodes, or take that one out with `cairn node rm node-{node}`"
    )]
    AddressTaken {
        /// Which.
        node: NodeId,
        /// Where.
        address: SocketAddr,
    },
    /// A device is another node's.
    #[error("the device {path} (store {store}) is node-{node}'s already: format it anew to use it here")]
    DeviceTaken {
        /// Where it is here.
        path: String,
        /// What is on it.
        store: StoreId,
        /// Whose it is.
        node: NodeId,
    },
    /// No number is free.
    #[error("the cluster has {NODES_MAX} nodes, and no more are possible: take one out first (`cairn node rm`)")]
    Full,
    /// Its devices cannot be used.
    #[error("the cluster cannot use these devices: {0}")]
    Refused(#[from] Refusal),
}

/// Makes the cluster, with the machine as its first node, which keeps so many copies.
///
/// # Errors
/// An etcd in which anything is, or that does not answer.
pub async fn begin_cluster(
    map: &dyn MapStore,
    (cluster, key): (ClusterRecord, ClusterKeyRecord),
    newcomer: &Newcomer,
) -> Result<Joined, JoinError> {
    for _ in 0..ATTEMPTS_MAX {
        let listing = map.list("").await.map_err(CatalogError::from)?;
        if let Some(there) = cluster_in(&listing)? {
            // Begun with these devices, which nobody has opened yet: what was cut off goes on.
            let node = already(&listing, newcomer)?.ok_or(JoinError::Begun(there.id))?;
            return Ok(Joined { cluster: there, node, forecast: Forecast::default() });
        }
        if let Some(other) = listing.items.first() {
            return Err(JoinError::Foreign(other.key.clone()));
        }
        let transaction = Transaction::new()
            .expect_absent(cluster.key())
            .put(cluster.key(), encode(&cluster))
            .expect_absent(key.key())
            .put(key.key(), encode(&key));
        let (_, transaction) = with_newcomer(transaction, &listing, newcomer)?;
        attempt(map, transaction).await?;
    }
    Err(CatalogError::Contended.into())
}

/// Makes the machine a node of the cluster that is there; of `wanted`, if that is said. Done again with the same devices and
/// address it finds what was done before.
///
/// # Errors
/// No cluster, another one, or something of the machine that is another node's.
pub async fn join_cluster(
    map: &dyn MapStore,
    wanted: Option<ClusterId>,
    newcomer: &Newcomer,
) -> Result<Joined, JoinError> {
    for _ in 0..ATTEMPTS_MAX {
        let listing = map.list("").await.map_err(CatalogError::from)?;
        let cluster = cluster_in(&listing)?.ok_or(JoinError::NoCluster)?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != cluster.id) {
            return Err(JoinError::OtherCluster { found: cluster.id, wanted });
        }
        if let Some(node) = already(&listing, newcomer)? {
            return Ok(Joined { cluster, node, forecast: Forecast::default() });
        }
        let (node, transaction) = with_newcomer(Transaction::new(), &listing, newcomer)?;
        let forecast = match newcomer.is_spare {
            true => Forecast::default(),
            false => foretell_newcomer(&listing, node, newcomer)?,
        };
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(Joined { cluster, node, forecast });
        }
    }
    Err(CatalogError::Contended.into())
}

/// What would follow from it, and which number it would have; nothing is changed.
///
/// # Errors
/// As of [`join_cluster`].
pub async fn foretell_join(
    map: &dyn MapStore,
    wanted: Option<ClusterId>,
    newcomer: &Newcomer,
) -> Result<Joined, JoinError> {
    let listing = map.list("").await.map_err(CatalogError::from)?;
    let cluster = cluster_in(&listing)?.ok_or(JoinError::NoCluster)?;
    if let Some(wanted) = wanted.filter(|wanted| *wanted != cluster.id) {
        return Err(JoinError::OtherCluster { found: cluster.id, wanted });
    }
    let (node, _) = with_newcomer(Transaction::new(), &listing, newcomer)?;
    let forecast = foretell_newcomer(&listing, node, newcomer)?;
    Ok(Joined { cluster, node, forecast })
}

fn cluster_in(listing: &Listing) -> Result<Option<ClusterRecord>, CatalogError> {
    let found = listing.items.iter().find(|item| item.key == keys::CLUSTER);
    found.map(|item| decode(&item.key, &item.value)).transpose()
}

fn records<T: Record>(listing: &Listing, prefix: &str) -> Result<Vec<T>, CatalogError> {
    let found = listing.items.iter().filter(|item| item.key.starts_with(prefix));
    found.map(|item| decode(&item.key, &item.value)).collect()
}

/// The node that the machine is already: the one that all of its devices are of, which nobody has opened yet.
fn already(listing: &Listing, newcomer: &Newcomer) -> Result<Option<NodeId>, JoinError> {
    let known: Vec<DeviceRecord> = records(listing, keys::DEVICES)?;
    let there = |device: &NewDevice| known.iter().find(|record| record.store == device.store);
    let mut found = BTreeSet::new();
    for device in &newcomer.devices {
        let Some(record) = there(device) else { continue };
        let taken = || JoinError::DeviceTaken { path: device.path.clone(), store: device.store, node: record.node };
        let is_ours = record.state == DeviceState::New && record.path == device.path;
        let nodes: Vec<NodeRecord> = records(listing, keys::NODES)?;
        let address = newcomer.address.to_string();
        if !is_ours || !nodes.iter().any(|node| node.id == record.node && node.address == address) {
            return Err(taken());
        }
        found.insert(record.node);
    }
    let is_all = newcomer.devices.iter().all(|device| there(device).is_some());
    match (found.first(), found.len()) {
        (Some(node), 1) if is_all => Ok(Some(*node)),
        (None, _) => Ok(None),
        (Some(node), _) => {
            let device = newcomer.devices.iter().find(|device| there(device).is_some()).expect("one is known");
            Err(JoinError::DeviceTaken { path: device.path.clone(), store: device.store, node: *node })
        }
    }
}

/// The transaction, with all that is said of the machine, and its number.
fn with_newcomer(
    transaction: Transaction,
    listing: &Listing,
    newcomer: &Newcomer,
) -> Result<(NodeId, Transaction), JoinError> {
    let Newcomer { address, devices, is_spare } = newcomer;
    let nodes: Vec<NodeRecord> = records(listing, keys::NODES)?;
    if let Some(there) = nodes.iter().find(|node| node.address == address.to_string()) {
        return Err(JoinError::AddressTaken { node: there.id, address: *address });
    }
    let mut numbers = Numbers::free(listing, Numbered::Node)?;
    let is_taken = |number: u32| nodes.iter().any(|node| node.id.0 == number);
    let mut number = numbers.take(1);
    while is_taken(number) {
        number = numbers.take(1);
    }
    if number > NODES_MAX {
        // All have been used: one whose node is out of the cluster is used again.
        number = (1..=NODES_MAX).find(|number| !is_named(listing, NodeId(*number))).ok_or(JoinError::Full)?;
    }
    let node = NodeRecord { id: NodeId(number), address: address.to_string() };
    let mut transaction = match mutant(Mutant::JoinsWithoutLooking) {
        true => transaction,
        false => numbers.put(transaction.expect_absent(node.key())),
    };
    transaction = transaction.put(node.key(), encode(&node));
    for device in devices {
        let NewDevice { store, path, size_bytes } = device.clone();
        let record = DeviceRecord { store, node: node.id, path, size_bytes, state: DeviceState::New };
        transaction = transaction.expect_absent(record.key()).put(record.key(), encode(&record));
        if !is_spare {
            let place = DevicePlaceRecord::unset(store);
            transaction = transaction.expect_absent(place.key()).put(place.key(), encode(&place));
        }
    }
    Ok((node.id, transaction))
}

/// Whether anything in the map is about a node of this number.
fn is_named(listing: &Listing, node: NodeId) -> bool {
    let keys = [keys::node(node), keys::node_place(node), keys::doors(node)];
    let of_device = || records::<DeviceRecord>(listing, keys::DEVICES).unwrap_or_default();
    let of_set = || records::<crate::records::NodeSetRecord>(listing, keys::NODE_SETS).unwrap_or_default();
    let of_volume = || records::<crate::records::VolumeRecord>(listing, keys::VOLUMES).unwrap_or_default();
    listing.items.iter().any(|item| keys.contains(&item.key))
        || of_device().iter().any(|device| device.node == node)
        || of_set().iter().any(|set| set.nodes.contains(&node))
        || of_volume().iter().any(|volume| volume.head == node)
}

/// What each of its devices would be filled with, once they are there.
fn foretell_newcomer(listing: &Listing, node: NodeId, newcomer: &Newcomer) -> Result<Forecast, JoinError> {
    let mut known = Followed::of(listing);
    let unreadable = |why| CatalogError::BadRecord { key: "groups".to_owned(), why };
    let mut view: View = known.view().map_err(unreadable)?.clone();
    view.nodes.insert(node, NodeRecord { id: node, address: newcomer.address.to_string() });
    let mut all = Forecast::default();
    for device in &newcomer.devices {
        let NewDevice { store, path, size_bytes } = device.clone();
        view.devices.insert(store, DeviceRecord { store, node, path, size_bytes, state: DeviceState::Active });
        let forecast = foretell(&view, &Request::Add { store, class: String::new(), weight: None })?;
        forecast.changes.iter().for_each(|change| change.apply(&mut view));
        forecast.comes.iter().for_each(|(store, bytes)| *all.comes.entry(*store).or_default() += bytes);
        forecast.goes.iter().for_each(|(store, bytes)| *all.goes.entry(*store).or_default() += bytes);
        all.moves.extend(forecast.moves);
        all.led_elsewhere.extend(forecast.led_elsewhere);
        all.homes.extend(forecast.homes);
    }
    Ok(all)
}

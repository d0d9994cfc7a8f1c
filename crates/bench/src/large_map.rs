//! A map of a large cluster in etcd, whose nodes are simulated: devices, groups and volumes as records. No block is stored anywhere.
//! Simulated nodes answer beats, and their devices have sessions; what is real lies in a pool of its own, on devices of its own class.

use crate::simulated_nodes::SimulatedNodes;
use cluster::{
    Allocator, CatalogError, Change, DevicePlaceRecord, DeviceRecord, DeviceState, EtcdMap, EtcdOptions, FailureDomain,
    FamilyRecord, GroupRecord, HostAccess, LayerRecord, LeaseId, Limits, MapError, MapStore, NSID_MAX, NewPool,
    NodeRecord, PoolRecord, PoolRulesRecord, Record, Reference, SessionRecord, TRANSACTION_OPERATIONS_MAX, Transaction,
    VolumeRecord, VolumeState, encode, ensure_pool, get, keys, list,
};
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{Epoch, FamilyId, Incarnation, LayerId, NodeId, StoreId, VolumeEpoch, VolumeId};

/// The pool of the simulated devices, and their class.
const POOL: &str = "large";
/// The class of real ones.
const REAL: &str = "real";
/// Of the stores of simulated devices.
const LIFE: Incarnation = Incarnation(1);
/// Their sessions last so long behind the last renewal.
const SESSION: Duration = Duration::from_secs(60);
/// Numbers of simulated nodes begin here: real ones are below.
const FIRST_NODE: u32 = 4;
const DEVICE_BYTES: u64 = 4 << 40;
const VOLUME_BYTES: u64 = 100 << 30;
/// A volume is that many records: itself, its name, its namespace id, its layer, its family.
const RECORDS_PER_VOLUME: usize = 5;

/// What is to be in the map.
#[derive(Clone, Debug)]
pub struct LargeMap {
    /// An etcd that has a cluster, of at most three nodes.
    pub etcd: Vec<String>,
    /// Simulated nodes.
    pub nodes: u32,
    /// Their devices, together.
    pub devices: u32,
    /// Volumes.
    pub volumes: u64,
}

/// Writes it, says on standard output how long each part took, in seconds, and keeps the simulated nodes there until it is killed.
///
/// # Errors
/// What the map refuses, and an etcd that does not answer.
pub async fn run(wanted: &LargeMap) -> io::Result<Value> {
    let map = EtcdMap::open(&EtcdOptions { endpoints: wanted.etcd.clone(), ..EtcdOptions::default() });
    let map = map.map_err(io::Error::other)?;
    let nodes = SimulatedNodes::start(&map, (NodeId(FIRST_NODE), wanted.nodes)).await?;
    keep_apart(&*map).await?;
    let began = Instant::now();
    write_nodes(&*map, wanted, &nodes).await?;
    let groups_began = Instant::now();
    let session = begin_sessions(&*map, wanted).await?;
    runtime::spawn(keep_sessions(map.clone(), session));
    let pool = write_groups(&*map, wanted).await.map_err(io::Error::other)?;
    let groups_seconds = groups_began.elapsed().as_secs_f64();
    let groups = lead_all(&*map).await.map_err(io::Error::other)?;
    let volumes_began = Instant::now();
    write_volumes(&*map, wanted, &pool).await?;
    let written = json!({
        "nodes_seconds": (groups_began - began).as_secs_f64(),
        "groups": groups,
        "groups_seconds": groups_seconds,
        "volumes_seconds": volumes_began.elapsed().as_secs_f64(),
    });
    println!("{written}");
    std::future::pending().await
}

/// The sessions last for as long as this runs.
async fn keep_sessions(map: Arc<EtcdMap>, session: LeaseId) {
    loop {
        runtime::sleep(SESSION / 3).await;
        // One that is not answered does not end it.
        let _ = map.keep_alive(session).await;
    }
}

/// The pool that is there stays on the devices that are there.
async fn keep_apart(map: &dyn MapStore) -> io::Result<()> {
    let devices = list::<DeviceRecord>(map, keys::DEVICES).await.map_err(io::Error::other)?;
    let classed = |store| DevicePlaceRecord { class: REAL.to_owned(), ..DevicePlaceRecord::unset(store) };
    let mut changes: Vec<Change> = devices.iter().map(|found| put(&classed(found.record.store))).collect();
    for pool in list::<PoolRecord>(map, keys::POOLS).await.map_err(io::Error::other)? {
        let name = &pool.record.name;
        let rules = get::<PoolRulesRecord>(map, &keys::pool_rules(name)).await.map_err(io::Error::other)?;
        let rules = rules.map_or_else(|| PoolRulesRecord::unset(name), |found| found.record);
        changes.push(put(&PoolRulesRecord { class: REAL.to_owned(), ..rules }));
    }
    put_all(map, changes).await
}

/// Puts them, so many in a transaction as fit.
async fn put_all(map: &dyn MapStore, changes: Vec<Change>) -> io::Result<()> {
    let mut changes = changes.into_iter().peekable();
    while changes.peek().is_some() {
        let changes = changes.by_ref().take(TRANSACTION_OPERATIONS_MAX).collect();
        let transaction = Transaction { changes, ..Transaction::new() };
        loop {
            match map.transact(transaction.clone()).await {
                Ok(_) => break,
                // Doing it twice does no harm.
                Err(MapError::Unknown) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
    Ok(())
}

fn put<T: Record>(record: &T) -> Change {
    Change::Put { key: record.key(), value: encode(record), lease: None }
}

fn store_of(device: u32) -> StoreId {
    StoreId((0xca17 << 64) | (u128::from(device) + 1))
}

fn node_of(device: u32, nodes: u32) -> NodeId {
    NodeId(FIRST_NODE + device % nodes)
}

async fn write_nodes(map: &dyn MapStore, wanted: &LargeMap, nodes: &SimulatedNodes) -> io::Result<()> {
    let record = |&(id, address): &(NodeId, SocketAddr)| NodeRecord { id, address: address.to_string() };
    let mut changes: Vec<Change> = nodes.addresses.iter().map(|node| put(&record(node))).collect();
    for device in 0..wanted.devices {
        let (store, node, path) = (store_of(device), node_of(device, wanted.nodes), format!("/dev/simulated-{device}"));
        let (size_bytes, state) = (DEVICE_BYTES, DeviceState::Active);
        changes.push(put(&DeviceRecord { store, node, path, size_bytes, state }));
        changes.push(put(&DevicePlaceRecord { class: POOL.to_owned(), ..DevicePlaceRecord::unset(store) }));
    }
    put_all(map, changes).await
}

/// The devices of simulated nodes serve, as the map knows it.
async fn begin_sessions(map: &dyn MapStore, wanted: &LargeMap) -> io::Result<LeaseId> {
    let lease = map.grant(SESSION).await.map_err(io::Error::other)?;
    let record = |device| SessionRecord { store: store_of(device), life: LIFE, node: node_of(device, wanted.nodes) };
    let records = (0..wanted.devices).map(record);
    let changes = records.map(|record| Change::Put { key: record.key(), value: encode(&record), lease: Some(lease) });
    put_all(map, changes.collect()).await?;
    Ok(lease)
}

/// By the cluster's own way to make a pool.
async fn write_groups(map: &dyn MapStore, wanted: &LargeMap) -> Result<PoolRecord, CatalogError> {
    let stores = (0..wanted.devices).map(store_of).collect();
    let failure_domain = FailureDomain::Node;
    let rules = PoolRulesRecord { class: POOL.to_owned(), failure_domain, ..PoolRulesRecord::unset(POOL) };
    ensure_pool(map, &NewPool { name: POOL.to_owned(), replicas: 3, min_in_sync: 2, rules: Some(rules), stores }).await
}

/// Each group's first member leads it, as if it had begun; how many groups there are.
async fn lead_all(map: &dyn MapStore) -> Result<usize, CatalogError> {
    let groups = list::<GroupRecord>(map, keys::GROUPS).await?;
    let its = groups.iter().map(|found| &found.record).filter(|group| group.pool == POOL);
    let led = |group: &GroupRecord| GroupRecord { epoch: Epoch(1), life: LIFE, ..group.clone() };
    let changes: Vec<Change> = its.map(|group| put(&led(group))).collect();
    put_all(map, changes)
        .await
        .map_err(|error| CatalogError::BadRecord { key: keys::GROUPS.to_owned(), why: error.to_string() })?;
    Ok(groups.len())
}

/// Volumes of subsystems of as many namespaces as one may have, their heads on all simulated nodes in turn.
async fn write_volumes(map: &dyn MapStore, wanted: &LargeMap, pool: &PoolRecord) -> io::Result<()> {
    let per_transaction = (TRANSACTION_OPERATIONS_MAX / RECORDS_PER_VOLUME) as u64;
    for first in (0..wanted.volumes).step_by(per_transaction as usize) {
        let batch = first..(first + per_transaction).min(wanted.volumes);
        let changes = batch.flat_map(|number| volume(number, wanted, pool)).collect();
        put_all(map, changes).await?;
    }
    // Numbers that are used here are nobody else's.
    let used = |kind: &str| put(&Allocator { kind: kind.to_owned(), next: FIRST_ID + wanted.volumes });
    put_all(map, ["volume", "layer", "family"].map(used).into()).await
}

/// Far behind what real nodes have made.
const FIRST_ID: u64 = 1 << 20;

fn volume(number: u64, wanted: &LargeMap, pool: &PoolRecord) -> [Change; RECORDS_PER_VOLUME] {
    let id = FIRST_ID + number;
    let head = NodeId(FIRST_NODE + (number % u64::from(wanted.nodes)) as u32);
    let (volume, layer, family) = (VolumeId(id), LayerId(id), FamilyId(id));
    let (subsystem, nsid) =
        (format!("large-{}", number / u64::from(NSID_MAX)), (number % u64::from(NSID_MAX)) as u32 + 1);
    let created_at_ns = runtime::wall_clock_ns();
    let record = VolumeRecord {
        id: volume,
        name: format!("volume-{number}"),
        pool: pool.name.clone(),
        table: pool.table,
        size_bytes: VOLUME_BYTES,
        block_size_bytes: 4096,
        subsystem: subsystem.clone(),
        nsid,
        nguid: format!("{:016x}{id:016x}", runtime::random_u64()),
        family,
        family_seed: runtime::random_u64(),
        key: None,
        hosts: HostAccess::default(),
        limits: Limits::default(),
        layers: vec![layer],
        leaving: Vec::new(),
        head,
        volume_epoch: VolumeEpoch(1),
        created_at_ns,
        project: subsystem.clone(),
        state: VolumeState::Online,
        home: head,
        draft_of: None,
    };
    let reference = |taken: String| Reference { taken, volume };
    let layer =
        LayerRecord { id: layer, parent: LayerId::default(), family, key_id: Default::default(), created_at_ns };
    [
        put(&reference(keys::volume_name(&record.name))),
        put(&reference(keys::nsid(&subsystem, nsid))),
        put(&layer),
        put(&FamilyRecord { id: family, keeper: head, epoch: VolumeEpoch(1) }),
        put(&record),
    ]
}

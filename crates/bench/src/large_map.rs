//! A map of a large cluster in etcd, whose nodes are simulated: devices, groups and volumes as records, and sessions that are kept. No
//! block is stored anywhere, and no simulated node answers.

use cluster::{Allocator, DeviceRecord, DeviceState, LeaseId, NSID_MAX};
use cluster::{
    CatalogError, Change, EtcdMap, EtcdOptions, FamilyRecord, GroupRecord, HostAccess, LayerRecord, Limits, MapStore,
    NewPool, NodeRecord, Outcome, PoolRecord, Record, Reference, SessionRecord, TRANSACTION_OPERATIONS_MAX,
    Transaction, VolumeRecord, VolumeState, encode, ensure_pool, keys, list,
};
use serde_json::{Value, json};
use std::io::{self, BufRead, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use types::{Epoch, FamilyId, Incarnation, LayerId, NodeId, StoreId, VolumeEpoch, VolumeId};

/// The pool of the simulated devices.
const POOL: &str = "large";
/// Numbers of simulated nodes begin here: real ones are below.
const FIRST_NODE: u32 = 4;
const DEVICE_BYTES: u64 = 4 << 40;
const VOLUME_BYTES: u64 = 100 << 30;
/// Longer than the pool takes to be made.
const SESSION: Duration = Duration::from_secs(120);
const RENEWAL: Duration = Duration::from_secs(3);
/// Between two looks at what standard input says.
const LISTEN: Duration = Duration::from_millis(20);
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

/// Writes what is missing, says on one line of JSON how long each part took, and keeps the sessions until standard input ends. `end N`
/// there ends the session of node N, as if it were dead.
///
/// # Errors
/// What the map refuses, and an etcd that does not answer.
pub async fn run(wanted: &LargeMap) -> io::Result<Value> {
    let map = EtcdMap::open(&EtcdOptions { endpoints: wanted.etcd.clone(), ..EtcdOptions::default() });
    let map = map.map_err(io::Error::other)?;
    let began = Instant::now();
    let mut leases = write_nodes(&*map, wanted).await?;
    let nodes_s = began.elapsed().as_secs_f64();
    let pool = write_groups(&*map, wanted).await.map_err(io::Error::other)?;
    let groups_s = began.elapsed().as_secs_f64() - nodes_s;
    renew(&*map, &leases).await?;
    let groups = lead_all(&*map).await.map_err(io::Error::other)?;
    let volumes_began = Instant::now();
    write_volumes(&*map, wanted, &pool, &mut leases).await?;
    let mut stdout = io::stdout().lock();
    let done = json!({
        "nodes_seconds": nodes_s,
        "groups": groups,
        "groups_seconds": groups_s,
        "volumes_seconds": volumes_began.elapsed().as_secs_f64(),
    });
    writeln!(stdout, "{done}")?;
    stdout.flush()?;
    drop(stdout);
    keep(&*map, leases).await
}

/// Sessions of simulated nodes.
type Leases = Vec<(NodeId, LeaseId)>;

async fn renew(map: &dyn MapStore, leases: &Leases) -> io::Result<()> {
    for (_, lease) in leases {
        map.keep_alive(*lease).await.map_err(io::Error::other)?;
    }
    Ok(())
}

async fn keep(map: &dyn MapStore, mut leases: Leases) -> io::Result<Value> {
    let (ends, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let (heard, over) = (ends.clone(), is_over.clone());
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let node = line.strip_prefix("end ").and_then(|number| number.parse().ok()).map(NodeId);
            heard.lock().unwrap_or_else(PoisonError::into_inner).extend(node);
        }
        over.store(true, Ordering::Relaxed);
    });
    let mut renewed = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        let ended: Vec<NodeId> = std::mem::take(&mut *ends.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, lease) in leases.iter().filter(|(node, _)| ended.contains(node)) {
            map.revoke(*lease).await.map_err(io::Error::other)?;
        }
        leases.retain(|(node, _)| !ended.contains(node));
        if renewed.elapsed() >= RENEWAL {
            renew(map, &leases).await?;
            renewed = Instant::now();
        }
        runtime::sleep(LISTEN).await;
    }
    Ok(json!({ "sessions": leases.len() }))
}

/// Puts them, so many in a transaction as fit.
async fn put_all(map: &dyn MapStore, changes: Vec<Change>) -> io::Result<()> {
    let mut changes = changes.into_iter().peekable();
    while changes.peek().is_some() {
        let changes = changes.by_ref().take(TRANSACTION_OPERATIONS_MAX).collect();
        let transaction = Transaction { changes, ..Transaction::new() };
        match map.transact(transaction).await.map_err(io::Error::other)? {
            Outcome::Committed(_) => {}
            Outcome::Conflict => unreachable!("nothing was compared"),
        }
    }
    Ok(())
}

fn put<T: Record>(record: &T, lease: Option<LeaseId>) -> Change {
    Change::Put { key: record.key(), value: encode(record), lease }
}

fn store_of(device: u32) -> StoreId {
    StoreId(0xca17 << 64 | u128::from(device) + 1)
}

fn node_of(device: u32, nodes: u32) -> NodeId {
    NodeId(FIRST_NODE + device % nodes)
}

async fn write_nodes(map: &dyn MapStore, wanted: &LargeMap) -> io::Result<Leases> {
    let (mut leases, mut changes) = (Vec::new(), Vec::new());
    for number in 0..wanted.nodes {
        let node = NodeId(FIRST_NODE + number);
        let lease = map.grant(SESSION).await.map_err(io::Error::other)?;
        leases.push((node, lease));
        // The address of nobody: a port that is reserved.
        changes.push(put(&NodeRecord { id: node, address: "127.0.0.1:1".to_owned() }, None));
        for device in (0..wanted.devices).filter(|device| node_of(*device, wanted.nodes) == node) {
            let (store, path) = (store_of(device), format!("/dev/simulated-{device}"));
            let (size_bytes, state) = (DEVICE_BYTES, DeviceState::Active);
            changes.push(put(&DeviceRecord { store, node, path, size_bytes, state }, None));
            changes.push(put(&SessionRecord { store, life: Incarnation(1), node }, Some(lease)));
        }
    }
    put_all(map, changes).await?;
    Ok(leases)
}

/// By the cluster's own way to make a pool.
async fn write_groups(map: &dyn MapStore, wanted: &LargeMap) -> Result<PoolRecord, CatalogError> {
    let stores = (0..wanted.devices).map(store_of).collect();
    ensure_pool(map, &NewPool { name: POOL.to_owned(), replicas: 3, min_in_sync: 2, rules: None, stores }).await
}

/// Each group's first member leads it, as if it had begun; how many groups there are.
async fn lead_all(map: &dyn MapStore) -> Result<usize, CatalogError> {
    let groups = list::<GroupRecord>(map, keys::GROUPS).await?;
    let its = groups.iter().map(|found| &found.record).filter(|group| group.pool == POOL);
    let led = |group: &GroupRecord| GroupRecord { epoch: Epoch(1), life: Incarnation(1), ..group.clone() };
    let changes: Vec<Change> = its.map(|group| put(&led(group), None)).collect();
    put_all(map, changes)
        .await
        .map_err(|error| CatalogError::BadRecord { key: keys::GROUPS.to_owned(), why: error.to_string() })?;
    Ok(groups.len())
}

/// Volumes of subsystems of as many namespaces as one may have, their heads on all simulated nodes in turn.
async fn write_volumes(
    map: &dyn MapStore,
    wanted: &LargeMap,
    pool: &PoolRecord,
    leases: &mut Leases,
) -> io::Result<()> {
    let mut renewed = Instant::now();
    let per_transaction = (TRANSACTION_OPERATIONS_MAX / RECORDS_PER_VOLUME) as u64;
    for first in (0..wanted.volumes).step_by(per_transaction as usize) {
        let batch = first..(first + per_transaction).min(wanted.volumes);
        let changes = batch.flat_map(|number| volume(number, wanted, pool)).collect();
        put_all(map, changes).await?;
        if renewed.elapsed() >= RENEWAL {
            renew(map, leases).await?;
            renewed = Instant::now();
        }
    }
    // Numbers that are used here are nobody else's.
    let used = |kind: &str| put(&Allocator { kind: kind.to_owned(), next: FIRST_ID + wanted.volumes }, None);
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
    };
    let reference = |taken: String| Reference { taken, volume };
    let layer =
        LayerRecord { id: layer, parent: LayerId::default(), family, key_id: Default::default(), created_at_ns };
    [
        put(&reference(keys::volume_name(&record.name)), None),
        put(&reference(keys::nsid(&subsystem, nsid)), None),
        put(&layer, None),
        put(&FamilyRecord { id: family, keeper: head, epoch: VolumeEpoch(1) }, None),
        put(&record, None),
    ]
}

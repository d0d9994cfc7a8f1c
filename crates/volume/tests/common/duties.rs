//! Four nodes that keep two copies, one volume that is written all the time, and somebody who says what devices are to do.

use super::nodes::{Cluster, check, node_id, of};
use super::{new_volume, payload};
use cluster::control::DutyError;
use cluster::placement::duty::{Refusal, Request, Subject};
use cluster::{GroupBytes, GroupRecord, StoreUsageRecord, VolumePlacement, WantedRecord, keys, list};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{CHUNK_BYTES, GroupId, NodeId, StoreId};
use volume::Assembly;

const NODES: usize = 4;
const CHUNKS: u64 = 24;
/// By then everything is as it was said to be.
const SETTLED: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_secs(1);

fn four(seed: u64) -> Cluster {
    let cluster = Cluster::with(seed, 1, NODES, 2);
    cluster.pass(Duration::from_secs(3));
    cluster
}

pub fn groups(cluster: &Cluster) -> Vec<GroupRecord> {
    let map = cluster.map();
    let found = cluster.run(3, async move { list::<GroupRecord>(&*map, keys::GROUPS).await.expect("readable") });
    found.into_iter().map(|found| found.record).collect()
}

fn orders(cluster: &Cluster) -> usize {
    let map = cluster.map();
    cluster.run(3, async move { list::<WantedRecord>(&*map, keys::WANTED).await.expect("readable").len() })
}

fn store_of(cluster: &Cluster, index: usize) -> StoreId {
    let map = cluster.map();
    let devices =
        cluster.run(3, async move { list::<cluster::DeviceRecord>(&*map, keys::DEVICES).await.expect("readable") });
    devices.into_iter().find(|found| found.record.node == node_id(index)).expect("it has one").record.store
}

fn count(groups: &[GroupRecord], store: StoreId) -> usize {
    groups.iter().filter(|group| group.members.contains(&store)).count()
}

fn controls(cluster: &Cluster, index: usize) -> bool {
    cluster.at(index, |assembly| async move { assembly.controls().is_some() })
}

fn say(cluster: &Cluster, index: usize, request: Request) -> Result<u64, DutyError> {
    cluster.at(index, move |assembly| async move {
        assembly.decide(&request).await.map(|done| done.forecast.groups() as u64)
    })
}

/// Writes all of the volume, again and again, until it is told to end; each block says in which round it was written.
fn keeps_writing(cluster: &Cluster, index: usize) -> (Rc<Cell<bool>>, Rc<Cell<u8>>) {
    let (ends, round) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(1u8)));
    let (told, written) = (ends.clone(), round.clone());
    cluster.at(index, move |assembly: Assembly| async move {
        runtime::spawn(async move {
            let volume = of(&assembly);
            while !told.get() {
                let next = written.get() % 200 + 1;
                for chunk in 0..CHUNKS {
                    volume.write(chunk * CHUNK_BYTES, payload(&[next; 4096])).await.expect("written");
                    runtime::sleep(Duration::from_millis(5)).await;
                }
                written.set(next);
            }
        });
    });
    (ends, round)
}

fn made(cluster: &Cluster, index: usize) {
    cluster.at(index, |assembly| async move {
        assembly.create_volume(new_volume("v", CHUNKS * CHUNK_BYTES)).await.expect("made");
        let volume = of(&assembly);
        for chunk in 0..CHUNKS {
            volume.write(chunk * CHUNK_BYTES, payload(&[1; 4096])).await.expect("written");
        }
    });
}

fn wait_until(cluster: &Cluster, what: &str, is_so: impl Fn(&Cluster) -> bool) {
    let mut waited = Duration::ZERO;
    while !is_so(cluster) {
        assert!(waited < SETTLED, "{what}: {:#?}", groups(cluster).iter().take(3).collect::<Vec<_>>());
        cluster.pass(STEP);
        waited += STEP;
    }
}

fn is_empty(store: StoreId) -> impl Fn(&Cluster) -> bool {
    move |cluster| count(&groups(cluster), store) == 0 && orders(cluster) == 0
}

fn are_whole(cluster: &Cluster) {
    for group in groups(cluster) {
        assert_eq!((group.in_sync.len(), group.members.len()), (2, 2), "{group:?}");
        assert!(group.members.contains(&group.primary), "{group:?}");
    }
}

/// What was written last is there, wherever it is asked for.
fn verified(cluster: &Cluster, index: usize, (ends, round): (Rc<Cell<bool>>, Rc<Cell<u8>>)) {
    ends.set(true);
    cluster.pass(Duration::from_secs(2));
    cluster.at(index, move |assembly| async move { check(&of(&assembly), round.get()).await });
}

pub fn a_device_is_emptied_under_writes(seed: u64) {
    let cluster = four(seed);
    made(&cluster, 3);
    let writes = keeps_writing(&cluster, 3);
    let store = store_of(&cluster, 0);
    let held = count(&groups(&cluster), store);
    assert!(held >= 90, "it holds {held} groups");
    say(&cluster, 1, Request::Drain(Subject::Device(store))).expect("there is room");
    let removed = say(&cluster, 1, Request::Remove(Subject::Device(store)));
    assert!(matches!(removed, Err(DutyError::Refused(Refusal::Holds { .. }))), "{removed:?}");
    wait_until(&cluster, "it is not empty", is_empty(store));
    are_whole(&cluster);
    // Nobody needs it any more.
    cluster.crash(0);
    verified(&cluster, 3, writes);
    say(&cluster, 1, Request::Remove(Subject::Device(store))).expect("nothing is on it");
    let map = cluster.map();
    let left = cluster.run(3, async move { map.list("").await.expect("readable").items });
    let named = left.iter().find(|item| item.key.contains(&store.to_string()) && !item.key.starts_with(keys::SESSIONS));
    assert!(named.is_none(), "{named:?}");
}

pub fn a_node_is_emptied_under_writes_and_leaves(seed: u64) {
    let cluster = four(seed);
    made(&cluster, 3);
    let writes = keeps_writing(&cluster, 3);
    let (store, node) = (store_of(&cluster, 1), node_id(1));
    let removed = say(&cluster, 0, Request::Remove(Subject::Node(node)));
    assert!(matches!(removed, Err(DutyError::Refused(Refusal::Holds { .. }))), "{removed:?}");
    assert!(count(&groups(&cluster), store) >= 90, "what was refused is not begun");
    let moved = say(&cluster, 0, Request::Drain(Subject::Node(node))).expect("there is room");
    assert!(moved >= 90, "{moved} groups are foretold");
    wait_until(&cluster, "it is not empty", is_empty(store));
    are_whole(&cluster);
    verified(&cluster, 3, writes);
    say(&cluster, 0, Request::Remove(Subject::Node(node))).expect("nothing is on it");
    let removed = say(&cluster, 0, Request::Drain(Subject::Node(node)));
    assert!(matches!(removed, Err(DutyError::Refused(Refusal::NoNode(NodeId(2))))), "{removed:?}");
}

pub fn another_node_goes_on_where_one_died(seed: u64) {
    let cluster = four(seed);
    made(&cluster, 3);
    let writes = keeps_writing(&cluster, 3);
    assert!(controls(&cluster, 0), "the first of them does");
    let store = store_of(&cluster, 1);
    say(&cluster, 2, Request::Drain(Subject::Device(store))).expect("there is room");
    wait_until(&cluster, "nothing begins", |cluster| orders(cluster) > 0);
    cluster.crash(0);
    cluster.pass(Duration::from_secs(15));
    let others: Vec<usize> = (1..NODES).filter(|index| controls(&cluster, *index)).collect();
    assert_eq!(others.len(), 1, "one goes on: {others:?}");
    cluster.start(0);
    wait_until(&cluster, "it is not empty", is_empty(store));
    are_whole(&cluster);
    verified(&cluster, 3, writes);
    assert!(controls(&cluster, others[0]) && !controls(&cluster, 0), "who is back takes nothing over");
}

pub fn a_node_that_rests_leads_nothing_and_nothing_is_copied(seed: u64) {
    let cluster = four(seed);
    made(&cluster, 3);
    let writes = keeps_writing(&cluster, 3);
    let (store, node) = (store_of(&cluster, 0), node_id(0));
    let held = count(&groups(&cluster), store);
    let led = |cluster: &Cluster| groups(cluster).iter().filter(|group| group.primary == store).count();
    let led_before = led(&cluster);
    let until_ns = cluster.run(3, async { runtime::wall_clock_ns() }) + 100_000_000_000;
    let moved = say(&cluster, 1, Request::Maintain { node, until_ns }).expect("others are in sync");
    assert_eq!(moved, 0);
    wait_until(&cluster, "it leads", |cluster| led(cluster) == 0 && orders(cluster) == 0);
    assert_eq!(count(&groups(&cluster), store), held, "nothing is copied");
    // It is over by itself.
    wait_until(&cluster, "it leads no more", |cluster| led(cluster) >= led_before - 1 && orders(cluster) == 0);
    are_whole(&cluster);
    verified(&cluster, 3, writes);
}

pub fn a_last_copy_stays(seed: u64) {
    let cluster = four(seed);
    made(&cluster, 3);
    let (gone, last) = (store_of(&cluster, 0), store_of(&cluster, 1));
    cluster.crash(0);
    cluster.pass(Duration::from_secs(5));
    let refused = say(&cluster, 2, Request::GiveUp(Subject::Device(last)));
    let Err(DutyError::Refused(refusal @ Refusal::LastCopy { .. })) = refused else { panic!("{refused:?}") };
    assert!(refusal.to_string().contains("no other member in sync"), "{refusal}");
    assert!(say(&cluster, 2, Request::Remove(Subject::Device(last))).is_err());
    // What is lost can be given up: others have it, and copy it.
    say(&cluster, 2, Request::GiveUp(Subject::Device(gone))).expect("others have all of it");
    wait_until(&cluster, "it is not copied", is_empty(gone));
    are_whole(&cluster);
    say(&cluster, 2, Request::Remove(Subject::Device(gone))).expect("nothing is on it");
    cluster.at(3, |assembly| async move { check(&of(&assembly), 1).await });
}

/// What is on a device is said by group: all of it, of groups that it is a member of, and what one member of a group says the
/// other says, too.
pub fn what_groups_hold_is_said(seed: u64) {
    const WRITTEN_BYTES: u64 = 1 << 20;
    const PIECE_BYTES: u64 = 128 << 10;
    const CHUNKS_WRITTEN: u64 = 12;
    let cluster = Cluster::placed(seed, 2, (NODES, 2), VolumePlacement::Gathered);
    cluster.pass(Duration::from_secs(3));
    made(&cluster, 0);
    cluster.at(0, |assembly| async move {
        let volume = of(&assembly);
        for chunk in 0..CHUNKS_WRITTEN {
            for piece in 0..WRITTEN_BYTES / PIECE_BYTES {
                let at = chunk * CHUNK_BYTES + piece * PIECE_BYTES;
                volume.write(at, payload(&[7; PIECE_BYTES as usize])).await.expect("written");
            }
        }
    });
    cluster.pass(Duration::from_secs(30));
    let map = cluster.map();
    let said =
        cluster.run(3, async move { list::<StoreUsageRecord>(&*map, keys::STORE_USAGE).await.expect("readable") });
    assert_eq!(said.len(), NODES);
    let mut of_groups: BTreeMap<GroupId, Vec<u64>> = BTreeMap::new();
    for usage in said.into_iter().map(|found| found.record) {
        let counted = usage.of_groups.clone().expect("it was counted");
        let all: u64 = counted.iter().map(|GroupBytes(_, bytes)| bytes).sum();
        assert!(all <= usage.live_bytes && all >= usage.live_bytes / 8 * 7, "{usage:?}");
        for GroupBytes(group, bytes) in counted.into_iter().filter(|GroupBytes(_, bytes)| *bytes > 0) {
            of_groups.entry(group).or_default().push(bytes);
            let groups = groups(&cluster);
            let record = groups.iter().find(|record| record.id == group).expect("there is one");
            assert!(record.members.contains(&usage.store), "{usage:?} is no member of group {group}");
        }
    }
    for (group, copies) in &of_groups {
        assert_eq!(copies.len(), 2, "group {group}: {copies:?}");
        assert_eq!(copies[0], copies[1], "group {group}");
    }
    let (all, most) = of_groups.values().fold((0, 0), |(all, most), copies| (all + copies[0], most.max(copies[0])));
    let written = CHUNKS_WRITTEN * WRITTEN_BYTES;
    // And the first block of each other chunk.
    assert_eq!(all, written + (CHUNKS - CHUNKS_WRITTEN) * 4096);
    assert!(most >= WRITTEN_BYTES, "a chunk is of one group: {of_groups:?}");
}

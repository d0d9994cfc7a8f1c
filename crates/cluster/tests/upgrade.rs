//! Upgrades: an upgrade is finished only with what all nodes speak that there are, and whoever speaks less takes no part afterwards.

use cluster::{
    ClusterRecord, DoorsRecord, FinishedUpgrade, KeyValue, LeaseId, Listing, MapFuture, MapStore, NodeRecord,
    NodeRelease, Outcome, Record, Revision, Said, SimMap, Transaction, Upgrade, UpgradeError, Versions, Watch, decode,
    encode, finish_upgrade, get, keys, say_doors,
};
use runtime::sim::{NodeOptions, World};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::{ClusterId, NodeId};

/// A bug is on for the whole process.
static ALONE: Mutex<()> = Mutex::new(());
const OLD: Versions = Versions { lowest: 1, highest: 1 };
const NEW: Versions = Versions { lowest: 1, highest: 2 };

fn in_a_world<F: Future<Output = ()> + 'static>(work: impl FnOnce(Arc<SimMap>) -> F + 'static) {
    let world = World::new(1);
    let node = world.add_node(1, NodeOptions::default());
    world.run_on(&node, 0, async move { work(SimMap::new()).await }).expect("the world goes on");
}

fn cluster(cluster_version: u32) -> ClusterRecord {
    ClusterRecord { id: ClusterId(7), cluster_version, finished: None, created_at_ns: 5, replicas: None }
}

fn doors(node: u32, cluster_versions: Versions) -> DoorsRecord {
    let name = format!("0.{}.0", cluster_versions.highest);
    let release = NodeRelease { name, cluster_versions, ..NodeRelease::default() };
    let at = |port| format!("10.0.0.{node}:{port}");
    DoorsRecord { node: NodeId(node), nvme: at(1), nbd: at(2), admin: at(3), pid: 4, release }
}

async fn put(map: &dyn MapStore, record: &impl Record) {
    map.transact(Transaction::new().put(record.key(), encode(record))).await.expect("it answers");
}

/// Nodes that run, with what they speak.
async fn begin(map: &dyn MapStore, nodes: &[Versions]) -> Vec<LeaseId> {
    put(map, &cluster(1)).await;
    let mut leases = Vec::new();
    for (node, speaks) in (1..).zip(nodes) {
        put(map, &NodeRecord { id: NodeId(node), address: format!("10.0.0.{node}:1") }).await;
        let lease = map.grant(Duration::from_secs(10)).await.expect("it answers");
        assert_eq!(say_doors(map, &doors(node, *speaks), lease).await, Ok(Said::Done));
        leases.push(lease);
    }
    leases
}

async fn version(map: &dyn MapStore) -> u32 {
    get::<ClusterRecord>(map, keys::CLUSTER).await.expect("it answers").expect("it is there").record.cluster_version
}

fn hindered(error: UpgradeError) -> String {
    match error {
        UpgradeError::Hindered(why) => why.join("; "),
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_goes_to_what_all_nodes_speak_and_not_back() {
    let _alone = ALONE.lock();
    in_a_world(async |map| {
        let leases = begin(&*map, &[NEW, NEW, OLD]).await;
        let upgrade = Upgrade::of(&map.list("").await.expect("it answers")).expect("it can be read");
        assert_eq!((upgrade.cluster_version, upgrade.next, upgrade.nodes.len()), (1, 1, 3));
        assert_eq!((upgrade.releases(), upgrade.is_finished()), (vec!["0.2.0", "0.1.0"], false));
        let older = hindered(finish_upgrade(&*map, 1, 9).await.unwrap_err());
        assert_eq!(older, "node-3 (release 0.1.0) speaks cluster version 1, others up to 2: upgrade it first");
        // Node 3 is upgraded: it ends, and comes back.
        map.revoke(leases[2]).await.expect("it answers");
        let lease = map.grant(Duration::from_secs(10)).await.expect("it answers");
        assert_eq!(say_doors(&*map, &doors(3, NEW), lease).await, Ok(Said::Done));
        assert_eq!(finish_upgrade(&*map, 3, 9).await, Err(UpgradeError::Other { wanted: 3, now: 2 }));
        let done = finish_upgrade(&*map, 2, 9).await.expect("all speak it");
        assert_eq!((done.cluster_version, version(&*map).await), (2, 2));
        assert_eq!(done.finished, Some(FinishedUpgrade { release: "0.2.0".to_owned(), at_ns: 9 }));
        let again = finish_upgrade(&*map, 2, 10).await.expect("it is so already");
        assert!(again.is_finished() && again.finished == done.finished, "{again:?}");
        let Ok(Said::Outdated(error)) = say_doors(&*map, &doors(3, OLD), lease).await else { panic!("it is too old") };
        let text = "this cluster is at cluster version 2, and this program speaks 1: run release 0.2.0 of cairn, with which the \
                    upgrade to it was finished, or a later one";
        assert_eq!(error.to_string(), text);
    });
}

/// A node of which nobody knows what it will be when it comes back.
fn nobody_is_counted_who_is_away() {
    in_a_world(async |map| {
        let leases = begin(&*map, &[NEW, NEW, NEW]).await;
        map.revoke(leases[1]).await.expect("it answers");
        let away = finish_upgrade(&*map, 2, 9).await;
        let text = hindered(away.expect_err("node 2 is away"));
        assert!(text.starts_with("node-2 does not run") && !text.contains(';'), "{text}");
        assert_eq!(version(&*map).await, 1);
    });
}

#[test]
fn who_is_away_is_waited_for() {
    let _alone = ALONE.lock();
    nobody_is_counted_who_is_away();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::AwayCountsAsUpgraded.is_caught("nobody_is_counted_who_is_away", 0..1, |_| {
        nobody_is_counted_who_is_away();
    }));
}

/// The map, in which a node starts with an older release between what is read and what is written.
struct Rival {
    map: Arc<SimMap>,
    starts: Mutex<Option<DoorsRecord>>,
}

impl MapStore for Rival {
    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        self.map.get(key)
    }
    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        self.map.list(prefix)
    }
    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        Box::pin(async move {
            let starts = self.starts.lock().expect("no panic").take();
            if let Some(doors) = starts {
                let lease = self.map.grant(Duration::from_secs(10)).await?;
                assert_eq!(say_doors(&*self.map, &doors, lease).await, Ok(Said::Done), "the cluster is at 1 still");
            }
            self.map.transact(transaction).await
        })
    }
    fn watch(&self, prefix: &str, from: Revision) -> Box<dyn Watch> {
        self.map.watch(prefix, from)
    }
    fn compact(&self, through: Revision) -> MapFuture<'_, ()> {
        self.map.compact(through)
    }
    fn grant(&self, time_to_live: Duration) -> MapFuture<'_, LeaseId> {
        self.map.grant(time_to_live)
    }
    fn keep_alive(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.map.keep_alive(lease)
    }
    fn revoke(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.map.revoke(lease)
    }
}

fn who_starts_meanwhile_is_seen() {
    in_a_world(async |map| {
        begin(&*map, &[NEW, NEW, NEW]).await;
        let rival = Rival { map: map.clone(), starts: Mutex::new(Some(doors(2, OLD))) };
        let outcome = finish_upgrade(&rival, 2, 9).await;
        let text = hindered(outcome.expect_err("node 2 went back"));
        assert!(text.starts_with("node-2 (release 0.1.0) speaks cluster version 1"), "{text}");
        assert_eq!(version(&*map).await, 1);
    });
}

/// The same the other way round: the upgrade is finished while an older release starts.
fn who_finishes_meanwhile_is_seen() {
    in_a_world(async |map| {
        let leases = begin(&*map, &[NEW, NEW]).await;
        let before = map.get(keys::CLUSTER).await.expect("it answers").expect("it is there").modified;
        finish_upgrade(&*map, 2, 9).await.expect("all speak it");
        let late = Transaction::new().expect(keys::CLUSTER, before).put(keys::doors(NodeId(2)), encode(&doors(2, OLD)));
        assert_eq!(map.transact(late).await, Ok(Outcome::Conflict));
        assert!(matches!(say_doors(&*map, &doors(2, OLD), leases[1]).await, Ok(Said::Outdated(_))));
    });
}

#[test]
fn of_a_start_and_a_finish_one_sees_the_other() {
    let _alone = ALONE.lock();
    who_starts_meanwhile_is_seen();
    who_finishes_meanwhile_is_seen();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::FinishedWithoutLooking.is_caught("who_starts_meanwhile_is_seen", 0..1, |_| {
        who_starts_meanwhile_is_seen();
    }));
}

#[test]
fn what_the_records_are_in_the_map() {
    let golden = r#"{"schema":1,"id":"00000000000000000000000000000007","cluster_version":2,"finished":{"release":"0.2.0","at_ns":9},"created_at_ns":5}"#;
    let finished = Some(FinishedUpgrade { release: "0.2.0".to_owned(), at_ns: 9 });
    let record = ClusterRecord { finished, ..cluster(2) };
    assert_eq!(String::from_utf8(encode(&record)).expect("text"), golden);
    assert_eq!(decode::<ClusterRecord>("cluster", golden.as_bytes()), Ok(record));
    // Of before it was said.
    let older = r#"{"schema":1,"id":"00000000000000000000000000000007","created_at_ns":5}"#;
    assert_eq!(decode::<ClusterRecord>("cluster", older.as_bytes()), Ok(cluster(1)));
    let older = r#"{"schema":1,"node":2,"nvme":"10.0.0.2:1","nbd":"10.0.0.2:2","admin":"10.0.0.2:3","pid":4}"#;
    let nameless = DoorsRecord { release: NodeRelease::default(), ..doors(2, OLD) };
    assert_eq!(decode::<DoorsRecord>("doors/00000002", older.as_bytes()), Ok(nameless));
    let golden = r#"{"schema":1,"node":2,"nvme":"10.0.0.2:1","nbd":"10.0.0.2:2","admin":"10.0.0.2:3","pid":4,"release":{"name":"0.2.0","cluster_versions":{"lowest":1,"highest":2},"protocol_oldest":3,"protocol_newest":4,"features":["rehearsal"]}}"#;
    let mut record = doors(2, NEW);
    record.release = NodeRelease {
        protocol_oldest: 3,
        protocol_newest: 4,
        features: vec!["rehearsal".to_owned()],
        ..record.release
    };
    assert_eq!(String::from_utf8(encode(&record)).expect("text"), golden);
    assert_eq!(decode::<DoorsRecord>("doors/00000002", golden.as_bytes()), Ok(record));
}

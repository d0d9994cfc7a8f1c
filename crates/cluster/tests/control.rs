//! Who controls writes orders and their steps; who did before writes nothing any more, and no device leaves the map to which
//! anything is on its way.

use cluster::control::{Control, DutyError, Followed, GIVE_UP_AFTER, HISTORY_KEPT, Reigning, decide};
use cluster::placement::duty::{RecordChange, Request, Subject};
use cluster::{
    ControlRecord, DeviceDuty, DevicePlaceRecord, DeviceRecord, DeviceState, ForceError, GroupBytes, GroupRecord,
    KeyValue, LeaseId, Listing, MapError, MapFuture, MapStore, NodeRecord, Outcome, PoolRecord, Record, Revision,
    SessionRecord, SimMap, StoreUsageRecord, Transaction, WantedRecord, Watch, encode, force_group, get, keys, list,
};
use runtime::Instant;
use runtime::sim::{NodeOptions, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use types::{Epoch, GroupId, Incarnation, NodeId, StoreId};

const NOW: Instant = Instant(0);
const SPARE: StoreId = StoreId(4);

fn in_a_world<F: Future<Output = ()> + 'static>(work: impl FnOnce(Arc<SimMap>) -> F + 'static) {
    let world = World::new(1);
    let node = world.add_node(1, NodeOptions::default());
    world.run_on(&node, 0, async move { work(SimMap::new()).await }).expect("the world goes on");
}

async fn put(map: &SimMap, record: &impl Record) {
    map.transact(Transaction::new().put(record.key(), encode(record))).await.expect("it answers");
}

/// Four nodes of a device each, the last of which holds nothing; two copies of everything.
async fn made(map: &SimMap) {
    for id in 1..=4 {
        put(map, &NodeRecord { id: NodeId(id), address: format!("10.0.0.{id}:1") }).await;
        let (store, node, path) = (StoreId(id.into()), NodeId(id), format!("/dev/{id}"));
        put(map, &DeviceRecord { store, node, path, size_bytes: 1 << 40, state: DeviceState::Active }).await;
    }
    let pool = PoolRecord {
        name: "fast".to_owned(),
        policy: cluster::Policy::Replicated,
        replicas: 2,
        min_in_sync: 1,
        table: 1,
        write_cache: false,
        compression: cluster::Compression::Off,
    };
    put(map, &pool).await;
    for id in 1..=12u32 {
        let members = [StoreId(u128::from(id % 3) + 1), StoreId(u128::from((id + 1) % 3) + 1)];
        put(map, &GroupRecord::begun_with(GroupId(id), (1, "fast".to_owned()), members.to_vec(), 1)).await;
    }
}

async fn known(map: &dyn MapStore) -> Followed {
    Followed::of(&map.list("").await.expect("it answers"))
}

async fn takes(map: &dyn MapStore, node: u32) -> Reigning {
    let control = Control::take(map, NodeId(node), |_| true).await.expect("it answers").expect("nobody else wants it");
    Reigning::new(control, known(map).await)
}

async fn orders(map: &dyn MapStore) -> Vec<WantedRecord> {
    let found = list::<WantedRecord>(map, keys::WANTED).await.expect("it answers");
    found.into_iter().map(|found| found.record).collect()
}

fn who_was_followed_writes_nothing() {
    in_a_world(|map| async move {
        made(&map).await;
        decide(&*map, &Request::Add { store: SPARE, class: String::new(), weight: None }).await.expect("formatted");
        let mut first = takes(&*map, 1).await;
        let mut second = takes(&*map, 2).await;
        let written = first.plan(&*map, NOW, 0).await.expect("it answers").written;
        assert_eq!((written, orders(&*map).await.len()), (0, 0), "an older one writes");
        assert!(second.plan(&*map, NOW, 0).await.expect("it answers").written > 0);
        assert!(!orders(&*map).await.is_empty());
        let mut late = Reigning::new(
            Control::take(&*map, NodeId(3), |_| true).await.expect("it answers").expect("its turn"),
            known(&*map).await,
        );
        assert_eq!(second.step(&*map).await.expect("it answers").written, 0, "an older one takes steps");
        assert!(late.step(&*map).await.expect("it answers").written > 0, "members join");
    });
}

fn nobody_is_taken_out_early() {
    in_a_world(|map| async move {
        made(&map).await;
        let mut reigning = takes(&*map, 1).await;
        let before =
            get::<GroupRecord>(&*map, &keys::group(GroupId(1))).await.expect("it answers").expect("there").record;
        put(&map, &WantedRecord { group: GroupId(1), members: vec![before.primary, SPARE] }).await;
        reigning =
            Reigning::new(Control::take(&*map, NodeId(1), |_| true).await.expect("it answers").expect("again"), {
                drop(reigning);
                known(&*map).await
            });
        for _ in 0..4 {
            reigning.step(&*map).await.expect("it answers");
            let now =
                get::<GroupRecord>(&*map, &keys::group(GroupId(1))).await.expect("it answers").expect("there").record;
            assert_eq!((&now.in_sync, &now.joining), (&before.in_sync, &vec![SPARE]), "nobody has caught up");
        }
        // It has caught up: its primary says so.
        let mut caught_up =
            get::<GroupRecord>(&*map, &keys::group(GroupId(1))).await.expect("it answers").expect("there").record;
        caught_up.joining.clear();
        caught_up.in_sync.push(SPARE);
        caught_up.epoch.0 += 1;
        put(&map, &caught_up).await;
        reigning = takes(&*map, 1).await;
        reigning.step(&*map).await.expect("it answers");
        let now = get::<GroupRecord>(&*map, &keys::group(GroupId(1))).await.expect("it answers").expect("there").record;
        assert_eq!((&now.in_sync, &now.members), (&vec![before.primary, SPARE], &vec![before.primary, SPARE]));
    });
}

/// A device that holds nothing is taken out of the map while something is ordered to be brought there.
fn nothing_is_on_its_way_to_what_leaves() {
    for at in 1..6 {
        in_a_world(move |map| async move {
            made(&map).await;
            put(&map, &DevicePlaceRecord::unset(SPARE)).await;
            let between = Between { map: map.clone(), left: AtomicUsize::new(at), order: None };
            let removed = decide(&between, &Request::Remove(Subject::Device(SPARE))).await;
            let is_there = get::<DeviceRecord>(&*map, &keys::device(SPARE)).await.expect("it answers").is_some();
            let named = orders(&*map).await.iter().any(|order| order.members.contains(&SPARE));
            assert!(is_there || !named, "an order names what has left, as seen at {at}");
            assert_eq!(removed.is_ok(), !is_there, "{removed:?}");
            assert!(removed.is_ok() || matches!(removed, Err(DutyError::Refused(_))), "{removed:?}");
        });
    }
}

/// The record of a reign is written again, as by a map that is made anew from what its devices know.
fn a_reign_ends_with_its_record() {
    in_a_world(|map| async move {
        made(&map).await;
        let mut reigning = takes(&*map, 1).await;
        let from = map.list("").await.expect("it answers").revision;
        let record = get::<ControlRecord>(&*map, keys::CONTROL).await.expect("it answers").expect("there").record;
        put(&map, &record).await;
        let events = map.watch("", Revision(from.0 + 1)).next().await.expect("something was done");
        assert!(!reigning.hear(&events), "each of its transactions is refused, and nobody controls");
        assert!(!Reigning::new(reigning.control(), known(&*map).await).lasts());
        let mut again = takes(&*map, 1).await;
        assert!(again.hear(&[]) && again.lasts());
    });
}

/// Both copies of some groups are away for long, and of others one.
fn nobody_is_given_up_with_the_last_copy() {
    in_a_world(|map| async move {
        made(&map).await;
        put(&map, &DevicePlaceRecord::unset(SPARE)).await;
        let session = |id: u32| SessionRecord { store: StoreId(id.into()), life: Incarnation(1), node: NodeId(id) };
        put(&map, &session(3)).await;
        put(&map, &session(4)).await;
        let given_up = || async {
            let places = list::<DevicePlaceRecord>(&*map, keys::DEVICE_PLACES).await.expect("it answers");
            let out = places.iter().filter(|place| place.record.duty == DeviceDuty::Out);
            out.map(|place| place.record.store).collect::<Vec<_>>()
        };
        let mut reigning = takes(&*map, 3).await;
        reigning.plan(&*map, NOW, 0).await.expect("it answers");
        let later = NOW + GIVE_UP_AFTER;
        reigning.plan(&*map, later, 0).await.expect("it answers");
        assert_eq!(given_up().await, [], "1 and 2 hold groups that nobody else holds");
        put(&map, &session(2)).await;
        let mut reigning = takes(&*map, 3).await;
        reigning.plan(&*map, later, 0).await.expect("it answers");
        // Back, as nobody who controls has heard yet.
        put(&map, &session(1)).await;
        reigning.plan(&*map, later + GIVE_UP_AFTER, 0).await.expect("it answers");
        assert_eq!(given_up().await, [], "who came back is not given up");
        map.transact(Transaction::new().delete(keys::session(StoreId(1)))).await.expect("it answers");
        let mut reigning = takes(&*map, 3).await;
        reigning.plan(&*map, later, 0).await.expect("it answers");
        reigning.plan(&*map, later + GIVE_UP_AFTER, 0).await.expect("it answers");
        assert_eq!(given_up().await, [StoreId(1)], "others hold what it held");
    });
}

/// A map on which whoever controls orders something before one of the requests of who has this.
struct Between {
    map: Arc<SimMap>,
    left: AtomicUsize,
    /// Or what an operator orders.
    order: Option<Request>,
}

impl Between {
    async fn pass(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            if let Some(order) = &self.order {
                decide(&*self.map, order).await.expect("it may be alone");
                return;
            }
            let mut reigning = takes(&*self.map, 1).await;
            reigning.plan(&*self.map, NOW, 0).await.expect("it answers");
        }
    }
}

impl MapStore for Between {
    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        self.map.get(key)
    }
    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            self.pass().await;
            self.map.list(&prefix).await
        })
    }
    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        Box::pin(async move {
            self.pass().await;
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

/// Whose copy of a group counts is said of the reign that was looked at, and of no later one.
fn a_group_that_goes_on_is_not_forced() {
    in_a_world(|map| async move {
        made(&map).await;
        let group = || async {
            get::<GroupRecord>(&*map, &keys::group(GroupId(1))).await.expect("it answers").expect("there").record
        };
        let judged = group().await;
        let leads = GroupRecord { epoch: Epoch(judged.epoch.0 + 1), life: Incarnation(7), ..judged.clone() };
        put(&map, &leads).await;
        let forced = force_group(&*map, judged.id, judged.members[1], (judged.epoch, judged.epoch)).await;
        assert!(matches!(forced, Err(ForceError::Moved(GroupId(1)))), "{forced:?}");
        assert_eq!(group().await, leads);
        force_group(&*map, leads.id, leads.members[1], (leads.epoch, leads.epoch))
            .await
            .expect("it is as it was looked at");
        assert_eq!(group().await.in_sync, [leads.members[1]]);
    });
}

/// A bug is on for the whole process.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn an_older_control_is_refused() {
    let _alone = ALONE.lock();
    who_was_followed_writes_nothing();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::OlderControlWrites.is_caught("who_was_followed_writes_nothing", 0..1, |_| {
        who_was_followed_writes_nothing();
    }));
}

#[test]
fn who_controls_ends_with_the_map_that_said_so() {
    let _alone = ALONE.lock();
    a_reign_ends_with_its_record();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::ReignOutlivesRecord.is_caught("a_reign_ends_with_its_record", 0..1, |_| {
        a_reign_ends_with_its_record();
    }));
}

#[test]
fn who_is_away_for_long_is_given_up_unless_nobody_else_has_it() {
    let _alone = ALONE.lock();
    nobody_is_given_up_with_the_last_copy();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::GivenUpAlone.is_caught("nobody_is_given_up_with_the_last_copy", 0..1, |_| {
        nobody_is_given_up_with_the_last_copy();
    }));
}

#[test]
fn members_stay_until_all_that_are_wanted_are_in_sync() {
    let _alone = ALONE.lock();
    nobody_is_taken_out_early();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::TakenOutTooEarly.is_caught("nobody_is_taken_out_early", 0..1, |_| {
        nobody_is_taken_out_early();
    }));
}

#[test]
fn a_device_leaves_the_map_only_if_nothing_comes() {
    let _alone = ALONE.lock();
    nothing_is_on_its_way_to_what_leaves();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::RemovedUnseen.is_caught("nothing_is_on_its_way_to_what_leaves", 0..1, |_| {
        nothing_is_on_its_way_to_what_leaves();
    }));
}

#[test]
fn a_group_that_leads_again_is_not_forced() {
    let _alone = ALONE.lock();
    a_group_that_goes_on_is_not_forced();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::ForcedUnseen.is_caught("a_group_that_goes_on_is_not_forced", 0..1, |_| {
        a_group_that_goes_on_is_not_forced();
    }));
}

#[test]
fn what_is_said_is_read_as_it_was_written() {
    let mut followed = Followed::default();
    let place = DevicePlaceRecord::unset(SPARE);
    for (key, value) in RecordChange::DevicePlace(place).puts() {
        followed.hear(&key, value.as_deref(), Revision(3));
        followed.hear(&key, None, Revision(2));
        assert_eq!(followed.revision(&key), Revision(3), "what is older changes nothing");
    }
    followed.hear(&keys::group(GroupId(1)), Some(b"{\"schema\":99}"), Revision(4));
    assert!(followed.view().is_err(), "without a record nothing is decided");
}

/// Of two drains each may be, and not both: whenever the second is decided, it counts with the first.
fn what_each_may_do_both_may_not() {
    in_a_world(|map| async move {
        made(&map).await;
        put(&map, &DevicePlaceRecord::unset(SPARE)).await;
        let drain = |node| Request::Drain(Subject::Node(NodeId(node)));
        decide(&*map, &drain(1)).await.expect("three are left");
        // After the list, before the transaction.
        let between = Between { map: map.clone(), left: AtomicUsize::new(2), order: Some(drain(2)) };
        let refused = decide(&between, &drain(3)).await;
        assert!(matches!(refused, Err(DutyError::Refused(_))), "{refused:?}");
    });
}

#[test]
fn two_orders_of_which_each_may_be_alone_are_not_both_begun() {
    let _alone = ALONE.lock();
    what_each_may_do_both_may_not();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::DutiesApart.is_caught("what_each_may_do_both_may_not", 0..1, |_| {
        what_each_may_do_both_may_not();
    }));
}

/// A later release has written a group's record while this one controls.
fn what_is_not_understood_stays() {
    in_a_world(|map| async move {
        made(&map).await;
        let (group, key) = (GroupId(1), keys::group(GroupId(1)));
        put(&map, &WantedRecord { group, members: vec![StoreId(2), StoreId(3), SPARE] }).await;
        let mut reigning = takes(&*map, 1).await;
        let mut watch = map.watch("", Revision(map.list("").await.expect("it answers").revision.0 + 1));
        let later = br#"{"schema":99,"id":1,"and":"more"}"#.to_vec();
        map.transact(Transaction::new().put(&key, later.clone())).await.expect("it answers");
        reigning.hear(&watch.next().await.expect("it tells"));
        reigning.step(&*map).await.expect("it answers");
        reigning.plan(&*map, NOW, 0).await.expect("it answers");
        assert_eq!(map.get(&key).await.expect("it answers").map(|found| found.value), Some(later));
    });
}

#[test]
fn who_controls_leaves_alone_what_it_does_not_understand() {
    let _alone = ALONE.lock();
    what_is_not_understood_stays();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::UnreadableOverwritten.is_caught("what_is_not_understood_stays", 0..1, |_| {
        what_is_not_understood_stays();
    }));
}

#[test]
fn the_maps_history_is_forgotten_in_long_runs() {
    let _alone = ALONE.lock();
    in_a_world(|map| async move {
        made(&map).await;
        let mut reigning = takes(&*map, 1).await;
        let mut known = Vec::new();
        for turn in 0..3 {
            put(&map, &DevicePlaceRecord::unset(SPARE)).await;
            known.push(map.list("").await.expect("it answers").revision);
            let now = NOW + HISTORY_KEPT * turn;
            reigning.forget_history(&*map, now).await.expect("it answers");
            reigning.forget_history(&*map, now + HISTORY_KEPT / 2).await.expect("it answers");
        }
        let old = map.watch("", known[0]).next().await;
        assert!(matches!(old, Err(MapError::Compacted { .. })), "{old:?}");
        let kept =
            map.watch("", Revision(known[1].0 + 1)).next().await.expect("of the last ten minutes nothing is forgotten");
        assert_eq!(kept.last().expect("one").revision, known[2]);
    });
}

#[test]
fn what_is_foretold_is_what_was_counted() {
    let _alone = ALONE.lock();
    what_a_group_holds_is_what_was_counted_or_an_even_share();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::GroupsTakenForEven.is_caught(
        "what_a_group_holds_is_what_was_counted_or_an_even_share",
        0..1,
        |_| what_a_group_holds_is_what_was_counted_or_an_even_share()
    ));
}

fn what_a_group_holds_is_what_was_counted_or_an_even_share() {
    in_a_world(|map| async move {
        made(&map).await;
        let usage = |id: u128, of_groups| StoreUsageRecord {
            store: StoreId(id),
            live_bytes: 800,
            usable_bytes: 1 << 30,
            trouble: None,
            of_groups,
        };
        // Groups 3, 6, 9 and 12 are on the first two; groups 1, 4, 7 and 10 on the second and the third.
        let counted =
            |of: &[(u32, u64)]| Some(of.iter().map(|(group, bytes)| GroupBytes(GroupId(*group), *bytes)).collect());
        put(&map, &usage(1, counted(&[(3, 700), (6, 0), (9, 90)]))).await;
        put(&map, &usage(2, counted(&[(3, 690), (6, 0)]))).await;
        put(&map, &usage(3, None)).await;
        let mut known = known(&*map).await;
        let held = known.view().expect("readable").held.clone();
        let of = |group: u32| held[&GroupId(group)];
        assert_eq!((of(3), of(6), of(9)), (700, 0, 90));
        assert_eq!((of(1), of(12)), (100, 100), "what nobody has counted is an eighth");
        let drain = decide(&*map, &Request::Drain(Subject::Device(StoreId(1)))).await.expect("it may be");
        assert_eq!(drain.forecast.goes[&StoreId(1)], 790 + 5 * 100, "what was counted, and five that were not");
    });
}

//! What is told of two looks, and what is not.

use super::*;
use crate::admin::types::Health;
use cluster::TrashTerm;

const STORE: fn(u32) -> StoreId = |node| StoreId(u128::from(node) << 96);

fn node(number: u32) -> NodeLook {
    NodeLook {
        is_there: true,
        has_ended: false,
        is_new: false,
        lives: [(STORE(number), Incarnation(1))].into(),
        duty: NodeDuty::In,
        groups: 100,
    }
}

fn device(number: u32) -> DeviceLook {
    DeviceLook {
        node: NodeId(number),
        path: format!("/dev/{number}"),
        is_there: true,
        duty: DeviceDuty::In,
        groups: 100,
    }
}

fn volume(name: &str, head: u32, home: u32) -> VolumeLook {
    VolumeLook { name: name.to_owned(), head: NodeId(head), home: NodeId(home), state: VolumeState::Online }
}

/// Three nodes with a device each, and a volume `a` at node 1.
fn healthy() -> MapLook {
    MapLook {
        nodes: [1, 2, 3].map(|number| (NodeId(number), node(number))).into(),
        devices: [1, 2, 3].map(|number| (STORE(number), device(number))).into(),
        volumes: [(VolumeId(1), volume("a", 1, 1))].into(),
        groups: (100, 0, 0),
        late: BTreeSet::new(),
    }
}

fn told(changes: &[Change]) -> Vec<(&'static str, &str)> {
    changes.iter().map(|change| (change.kind.name, change.text.as_str())).collect()
}

fn kinds(changes: &[Change]) -> Vec<&'static str> {
    changes.iter().map(|change| change.kind.name).collect()
}

#[test]
fn of_the_first_look_and_of_the_same_again_nothing_is_told() {
    let mut away = healthy();
    away.nodes.get_mut(&NodeId(2)).unwrap().is_there = false;
    away.groups = (100, 100, 0);
    let mut changes = MapChanges::new(away.clone());
    assert_eq!(changes.see(away.clone(), 0), []);
    assert_eq!(changes.see_again(), []);
}

#[test]
fn a_node_that_is_away_is_told_once_with_its_groups_and_again_when_it_is_back() {
    let mut changes = MapChanges::new(healthy());
    let mut away = healthy();
    away.nodes.get_mut(&NodeId(2)).unwrap().is_there = false;
    away.devices.get_mut(&STORE(2)).unwrap().is_there = false;
    away.groups = (100, 100, 0);
    away.late = [NodeId(2)].into();
    assert_eq!(told(&changes.see(away.clone(), 0)), [("node-away", "node-2 is away: nothing is heard of it")]);
    let lacking = "100 placement groups have fewer copies than they should because of who is away: node-2";
    let found = changes.see_again();
    assert_eq!(told(&found), [("groups-lack-copies", lacking)]);
    assert_eq!(found[0].subjects, ["node-2"]);
    assert_eq!(changes.see_again(), []);
    away.groups = (100, 40, 0);
    assert_eq!(changes.see(away, 0), [], "fewer that lack copies are no event");
    assert_eq!(told(&changes.see(healthy(), 0)), [("node-back", "node-2 is back")]);
    assert_eq!(
        told(&changes.see_again()),
        [("groups-whole", "all 100 placement groups have all of their copies again")]
    );
}

#[test]
fn groups_are_told_again_when_it_turns_out_that_a_node_is_away_and_not_when_it_comes_back() {
    let mut changes = MapChanges::new(healthy());
    let mut late = MapLook { groups: (100, 52, 0), late: [NodeId(2)].into(), ..healthy() };
    changes.see(late.clone(), 0);
    assert_eq!(
        changes.see_again()[0].text,
        "52 placement groups have fewer copies than they should until all have caught up: node-2"
    );
    late.groups = (100, 100, 0);
    late.nodes.get_mut(&NodeId(2)).unwrap().is_there = false;
    assert_eq!(kinds(&changes.see(late.clone(), 0)), ["node-away"]);
    assert_eq!(
        changes.see_again()[0].text,
        "100 placement groups have fewer copies than they should because of who is away: node-2"
    );
    late.nodes.insert(NodeId(2), node(2));
    assert_eq!(kinds(&changes.see(late, 0)), ["node-back"]);
    assert_eq!(changes.see_again(), []);
    assert_eq!(changes.see(healthy(), 0), []);
    assert_eq!(kinds(&changes.see_again()), ["groups-whole"]);
}

#[test]
fn what_lasts_for_one_look_alone_is_not_told_of_groups() {
    let mut changes = MapChanges::new(healthy());
    for _ in 0..3 {
        assert_eq!(changes.see(MapLook { groups: (100, 3, 1), ..healthy() }, 0), []);
        assert_eq!(changes.see(healthy(), 0), []);
        assert_eq!(changes.see_again(), []);
    }
}

#[test]
fn groups_that_stop_serve_again_before_they_are_whole() {
    let mut changes = MapChanges::new(healthy());
    let mut seen = Vec::new();
    for groups in [(100, 100, 100), (100, 100, 0), (100, 0, 0)] {
        let late = if groups.1 > 0 { [NodeId(1), NodeId(2)].into() } else { BTreeSet::new() };
        seen.extend(changes.see(MapLook { groups, late, ..healthy() }, 0));
        seen.extend(changes.see_again());
    }
    assert_eq!(kinds(&seen), ["groups-stopped", "groups-serve", "groups-whole"]);
    assert_eq!(
        seen[0].text,
        "100 placement groups have too few copies to serve until all have caught up: node-1, node-2"
    );
}

#[test]
fn a_process_that_ended_and_was_started_again_is_told_although_its_session_never_ended() {
    let mut changes = MapChanges::new(healthy());
    let mut ended = healthy();
    ended.nodes.get_mut(&NodeId(1)).unwrap().has_ended = true;
    ended.volumes.insert(VolumeId(1), volume("a", 3, 1));
    let found = changes.see(ended, 0);
    assert_eq!(kinds(&found), ["node-ended", "head-moved"]);
    assert_eq!(found[1].text, "volume a is served by node-3 and not by node-1 any more: node-1 was away");
    assert_eq!(found[1].subjects, ["a", "node-1", "node-3"]);
    let mut back = healthy();
    back.nodes.get_mut(&NodeId(1)).unwrap().lives = [(STORE(1), Incarnation(2))].into();
    let found = changes.see(back, 0);
    assert_eq!(found[0].text, "node-1 is back: it was started again");
    assert_eq!(found[1].text, "volume a is served by node-1 and not by node-3 any more: it is at home there");
    assert_eq!(found.len(), 2);
}

#[test]
fn many_heads_that_move_for_one_reason_are_one_event() {
    let mut before = healthy();
    let many = |head| (1..=40).map(move |id| (VolumeId(id), volume(&format!("v{id}"), head, 3)));
    before.volumes = many(1).collect();
    let mut changes = MapChanges::new(before.clone());
    before.volumes = many(2).collect();
    let found = changes.see(before, 0);
    assert_eq!(kinds(&found), ["head-moved"]);
    assert!(
        found[0].text.starts_with("40 volumes (v1, ") && found[0].text.ends_with("its hosts are there"),
        "{}",
        found[0].text
    );
    assert!(found[0].subjects.len() <= crate::events::SUBJECTS_MAX && found[0].subjects.contains(&"node-2".to_owned()));
}

#[test]
fn nodes_and_devices_that_come_go_and_are_emptied_are_told() {
    let mut changes = MapChanges::new(healthy());
    let mut look = healthy();
    look.nodes.insert(NodeId(4), NodeLook { is_there: false, is_new: true, ..node(4) });
    look.devices.insert(STORE(4), DeviceLook { is_there: false, ..device(4) });
    assert_eq!(kinds(&changes.see(look.clone(), 0)), ["node-joined", "device-added"]);
    look.nodes.insert(NodeId(4), node(4));
    look.devices.insert(STORE(4), device(4));
    assert_eq!(told(&changes.see(look.clone(), 0)), [("node-back", "node-4 is there for the first time")]);
    look.nodes.get_mut(&NodeId(4)).unwrap().duty = NodeDuty::Draining;
    look.devices.get_mut(&STORE(4)).unwrap().duty = DeviceDuty::Draining { into: None };
    assert_eq!(changes.see(look.clone(), 0), [], "the order was told");
    look.nodes.get_mut(&NodeId(4)).unwrap().groups = 0;
    look.devices.get_mut(&STORE(4)).unwrap().groups = 0;
    assert_eq!(kinds(&changes.see(look.clone(), 0)), ["node-drained", "device-drained"]);
    assert_eq!(kinds(&changes.see(healthy(), 0)), ["node-removed", "device-removed"]);
    look = healthy();
    look.devices.get_mut(&STORE(2)).unwrap().is_there = false;
    look.nodes.get_mut(&NodeId(3)).unwrap().duty = NodeDuty::Maintenance { until_ns: 5 };
    assert_eq!(kinds(&changes.see(look.clone(), 0)), ["device-away"]);
    look.devices.get_mut(&STORE(2)).unwrap().duty = DeviceDuty::Out;
    assert_eq!(kinds(&changes.see(look, 0)), ["device-given-up"]);
    assert_eq!(kinds(&changes.see(healthy(), 0)), ["maintenance-ended", "device-back", "device-taken-back"]);
}

#[test]
fn a_term_in_the_trash_that_is_over_is_told_and_an_order_to_empty_it_is_not() {
    let term = TrashTerm { deleted_at_ns: 1, keep_until_ns: 100 };
    let mut trashed = healthy();
    trashed.volumes.get_mut(&VolumeId(1)).unwrap().state = VolumeState::Trashed(term);
    let gone = MapLook { volumes: BTreeMap::new(), ..healthy() };
    assert_eq!(kinds(&MapChanges::new(trashed.clone()).see(gone.clone(), 100)), ["volume-term-over"]);
    assert_eq!(MapChanges::new(trashed).see(gone, 99), []);
}

#[test]
fn damage_is_told_when_it_doubles_and_when_it_is_over() {
    let mut own = OwnChanges::default();
    let mut of = |damage| {
        let device = DeviceStatus { store: STORE(1), path: "/d".into(), damage, ..DeviceStatus::default() };
        own.see(&NodeStatus { devices: vec![device], ..NodeStatus::default() }, &[])
    };
    let found: Vec<usize> = [0, 1, 1, 2, 3, 3, 4, 4, 0, 0].map(|damage| of(damage).len()).to_vec();
    assert_eq!(found, [0, 1, 0, 1, 0, 0, 1, 0, 1, 0]);
}

#[test]
fn a_device_that_fails_and_is_slow_is_told_by_its_node_with_the_reason() {
    let mut own = OwnChanges::default();
    let mut of = |failed: Option<&str>, slow: Option<&str>| {
        let (failed, slow) = (failed.map(str::to_owned), slow.map(str::to_owned));
        let device = DeviceStatus { store: STORE(1), path: "/d".into(), failed, slow, ..DeviceStatus::default() };
        own.see(&NodeStatus { devices: vec![device], ..NodeStatus::default() }, &[])
    };
    assert_eq!(of(None, None), []);
    assert_eq!(told(&of(Some("no space"), None)), [("device-failed", "device /d has failed: no space")]);
    assert_eq!(of(Some("no space"), None), []);
    assert_eq!(kinds(&of(None, Some("3 s"))), ["device-recovered", "device-slow"]);
    assert_eq!(kinds(&of(None, None)), ["device-not-slow"]);
}

#[test]
fn troubles_count_when_they_last_and_many_are_one_event() {
    let mut own = OwnChanges::default();
    let mut of = |reasons: &[&str]| {
        let reasons: Vec<String> = reasons.iter().map(|reason| (*reason).to_owned()).collect();
        own.see(&NodeStatus::default(), &reasons)
    };
    assert_eq!(of(&["a"]), []);
    assert_eq!(of(&[]), [], "it was there for one look");
    let many = ["a", "b", "c", "d", "e"];
    assert_eq!(of(&many), []);
    assert_eq!(told(&of(&many)), [("trouble", "a; and 4 more of the kind")]);
    assert_eq!(of(&many), []);
    assert_eq!(told(&of(&["a", "b", "c", "d"])), [("trouble-over", "over: e")]);
}

#[test]
fn the_health_is_told_with_its_first_cause_when_it_lasts() {
    let mut health = HealthChanges::new(Health::Healthy);
    assert_eq!(health.see(Health::Degraded, "x"), None);
    assert_eq!(health.see(Health::Healthy, ""), None);
    assert_eq!(health.see(Health::Degraded, "x"), None);
    let change = health.see(Health::Degraded, "node-2 is not heard of").expect("it lasts");
    assert_eq!(change.text, "the cluster is degraded (it was healthy): node-2 is not heard of");
    assert_eq!((change.kind.name, change.subjects), ("health", vec!["degraded".to_owned()]));
    assert_eq!(health.see(Health::Healthy, ""), None);
    assert_eq!(health.see(Health::Healthy, "").expect("it lasts").text, "the cluster is healthy (it was degraded)");
}

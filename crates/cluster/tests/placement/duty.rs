//! Nodes and devices come and go: requests, forecasts, refusals, and what follows, carried out by primaries that do
//! only what the rules for them say.

use crate::working::{GIB, Working, add_node, begin, cluster, device};
use cluster::placement::duty::{RecordChange, Refusal, Request, Subject, View, foretell, next_changes};
use cluster::{DeviceDuty, DeviceRecord, DeviceState, GroupRecord, NodeSetRecord};
use std::collections::{BTreeMap, BTreeSet};
use types::{GroupId, NodeId, StoreId};

#[test]
fn a_drained_node_is_empty_in_the_end_and_may_be_removed() {
    for seed in 0..3 {
        let mut view = cluster(6, 2);
        let node = NodeId(2);
        let held = view.groups.values().filter(|g| g.members.iter().any(|s| s.0 / 10 == 2)).count();
        let forecast = begin(&mut view, &Request::Drain(Subject::Node(node)));
        assert_eq!((forecast.groups(), forecast.bytes()), (held, held as u64 * GIB), "each of them is copied once");
        assert_eq!(forecast.goes.values().sum::<u64>(), held as u64 * GIB);
        assert!(forecast.goes.keys().all(|store| view.devices[store].node == node));
        let early = foretell(&view, &Request::Remove(Subject::Node(node)));
        assert!(matches!(early, Err(Refusal::Holds { .. })), "{early:?}");
        let mut working = Working::new(view, seed).settle();
        working.check_forecast(&forecast);
        assert_eq!(working.groups_on(StoreId(20)) + working.groups_on(StoreId(21)), 0);
        begin(&mut working.view, &Request::Remove(Subject::Node(node)));
        assert!(!working.view.nodes.contains_key(&node) && !working.view.devices.contains_key(&StoreId(20)));
        assert!(next_changes(&working.view).is_empty());
    }
}

#[test]
fn a_node_that_is_added_gets_its_share_and_not_before() {
    let mut view = cluster(5, 2);
    add_node(&mut view, 9, &[90, 91]);
    assert!(next_changes(&view).is_empty(), "nothing goes to devices that nobody has added");
    for store in [90, 91] {
        let add = Request::Add { store: StoreId(store), class: String::new(), weight: None };
        let forecast = begin(&mut view, &add);
        assert_eq!(forecast.comes.keys().collect::<Vec<_>>(), vec![&StoreId(store)]);
        let working = Working::new(view, 7).settle();
        working.check_forecast(&forecast);
        view = working.view;
    }
    let on = |store| view.groups.values().filter(|group| group.members.contains(&StoreId(store))).count();
    assert!((80..=87).contains(&on(90)) && (80..=87).contains(&on(91)), "{} and {} of 1,002 / 12", on(90), on(91));
}

#[test]
fn a_device_is_replaced_by_another_with_all_it_holds_and_nothing_else_moves() {
    let mut view = cluster(4, 2);
    add_node(&mut view, 3, &[39]);
    let held = view.groups.values().filter(|group| group.members.contains(&StoreId(30))).count();
    let forecast = begin(&mut view, &Request::Replace { old: StoreId(30), new: StoreId(39) });
    assert_eq!(forecast.comes, BTreeMap::from([(StoreId(39), held as u64 * GIB)]));
    assert_eq!(forecast.goes, BTreeMap::from([(StoreId(30), held as u64 * GIB)]));
    let mut working = Working::new(view, 1).settle();
    assert_eq!(working.copied, forecast.comes);
    assert_eq!((working.groups_on(StoreId(30)), working.groups_on(StoreId(39))), (0, held));
    begin(&mut working.view, &Request::Remove(Subject::Device(StoreId(30))));
}

#[test]
fn what_a_lost_device_held_is_copied_from_others() {
    let mut working = Working::new(cluster(5, 2), 3);
    working.kill(StoreId(20));
    assert!(next_changes(&working.view).is_empty(), "as long as nobody gives it up it may come back");
    let held = working.groups_on(StoreId(20)) as u64;
    let forecast = begin(&mut working.view, &Request::GiveUp(Subject::Device(StoreId(20))));
    assert_eq!(forecast.bytes(), held * GIB);
    let working = working.settle();
    working.check_forecast(&forecast);
    assert_eq!(working.groups_on(StoreId(20)), 0);
    assert!(working.view.groups.values().all(|group| group.in_sync.len() == 3));
}

#[test]
fn a_node_in_maintenance_leads_nothing_and_nothing_is_copied() {
    let mut view = cluster(5, 2);
    let maintain = Request::Maintain { node: NodeId(1), until_ns: 1 };
    let forecast = begin(&mut view, &maintain);
    assert_eq!((forecast.bytes(), forecast.moves.len()), (0, 0));
    let working = Working::new(view, 2).settle();
    assert!(working.copied.is_empty());
    let led = |view: &View| view.groups.values().filter(|group| group.primary.0 / 10 == 1).count();
    assert_eq!(led(&working.view), 0);
    let mut view = working.view;
    begin(&mut view, &Request::TakeBack(Subject::Node(NodeId(1))));
    let working = Working::new(view, 2).settle();
    assert!(working.copied.is_empty());
    assert!((64..=70).contains(&led(&working.view)), "{} of 334 / 5", led(&working.view));
}

#[test]
fn a_last_copy_is_never_removed() {
    let mut view = cluster(4, 1);
    for (at, group) in view.groups.values_mut().enumerate() {
        if [2, 6].contains(&at) {
            (group.in_sync, group.joining) = (vec![StoreId(10)], vec![StoreId(20), StoreId(30)]);
            group.members = vec![StoreId(10), StoreId(20), StoreId(30)];
            group.primary = StoreId(10);
        }
    }
    let asked = [
        Request::GiveUp(Subject::Device(StoreId(10))),
        Request::GiveUp(Subject::Node(NodeId(1))),
        Request::Remove(Subject::Device(StoreId(10))),
    ];
    for request in asked {
        let refusal = foretell(&view, &request).expect_err("a last copy");
        assert_eq!(refusal, Refusal::LastCopy { groups: vec![GroupId(3), GroupId(7)] });
        let told = refusal.to_string();
        assert!(told.starts_with("the groups 3, 7 have no other member in sync"), "{told}");
    }
    // Draining it copies first, so that is allowed; nothing is taken out before others are in sync.
    begin(&mut view, &Request::Drain(Subject::Device(StoreId(10))));
    let working = Working::new(view, 5).settle();
    assert!(
        working.view.groups.values().all(|group| !group.members.contains(&StoreId(10)) && group.in_sync.len() == 3)
    );
}

#[test]
fn what_is_given_up_counts_for_nobody() {
    let mut view = cluster(5, 1);
    let group = view.groups.values_mut().next().expect("a group");
    (group.in_sync, group.members) = (vec![StoreId(10), StoreId(20)], vec![StoreId(10), StoreId(20)]);
    let id = group.id;
    begin(&mut view, &Request::GiveUp(Subject::Device(StoreId(10))));
    let last = foretell(&view, &Request::GiveUp(Subject::Device(StoreId(20))));
    assert_eq!(last, Err(Refusal::LastCopy { groups: vec![id] }), "the other one is gone");
    let working = Working::new(view, 1).settle();
    assert!(foretell(&working.view, &Request::GiveUp(Subject::Device(StoreId(20)))).is_ok());
}

#[test]
fn nodes_in_maintenance_may_be_away_together() {
    let mut view = cluster(5, 2);
    let maintain = |node| Request::Maintain { node: NodeId(node), until_ns: 5 };
    begin(&mut view, &maintain(1));
    let on_both = |group: &&GroupRecord| [1, 2].iter().all(|node| group.members.iter().any(|s| s.0 / 10 == *node));
    let groups: Vec<GroupId> = view.groups.values().filter(on_both).map(|group| group.id).collect();
    assert!(!groups.is_empty());
    assert_eq!(foretell(&view, &maintain(2)), Err(Refusal::BelowPolicy { groups }), "two of three, of two needed");
    begin(&mut view, &Request::TakeBack(Subject::Node(NodeId(1))));
    begin(&mut view, &maintain(2));
    begin(&mut view, &Request::Drain(Subject::Node(NodeId(3))));
    assert_eq!(foretell(&view, &maintain(3)), Err(Refusal::Drains(NodeId(3))));
}

#[test]
fn what_was_to_leave_may_stay_however_full_others_are() {
    let mut view = cluster(4, 2);
    begin(&mut view, &Request::Drain(Subject::Device(StoreId(10))));
    let mut working = Working::new(view, 4);
    for _ in 0..20 {
        working.turn();
    }
    let mut view = working.view;
    view.free.values_mut().for_each(|free| *free = 0);
    let forecast = begin(&mut view, &Request::TakeBack(Subject::Device(StoreId(10))));
    assert!(forecast.bytes() > 0, "it gets its share again");
    let another = foretell(&view, &Request::Drain(Subject::Device(StoreId(20))));
    assert!(matches!(another, Err(Refusal::NoRoom { .. })), "{another:?}");
}

#[test]
fn what_would_break_the_policy_is_refused_with_the_reason() {
    let mut view = cluster(3, 2);
    let refused = |view: &View, request: &Request| foretell(view, request).expect_err("refused").to_string();
    let drain = refused(&view, &Request::Drain(Subject::Node(NodeId(1))));
    assert!(drain.starts_with("3 copies need 3 nodes, and devices are in 2"), "{drain}");
    let group = view.groups.values_mut().find(|group| group.members.iter().any(|store| store.0 / 10 == 1));
    let group = group.expect("a group on node 1");
    let away = *group.in_sync.iter().find(|store| store.0 / 10 == 2).expect("on each node");
    group.in_sync.retain(|store| *store != away);
    group.joining.push(away);
    let (id, maintain) = (group.id, Request::Maintain { node: NodeId(1), until_ns: 5 });
    assert_eq!(foretell(&view, &maintain), Err(Refusal::BelowPolicy { groups: vec![id] }));
    assert!(foretell(&view, &Request::Maintain { node: NodeId(2), until_ns: 5 }).is_ok());
    for free in view.free.values_mut() {
        *free = 3 * GIB;
    }
    let full = refused(&view, &Request::Drain(Subject::Device(StoreId(10))));
    assert!(full.contains("would get") && full.contains("3221225472 free"), "{full}");
    assert_eq!(foretell(&view, &Request::Drain(Subject::Node(NodeId(8)))), Err(Refusal::NoNode(NodeId(8))));
    let replace = Request::Replace { old: StoreId(10), new: StoreId(10) };
    assert_eq!(foretell(&view, &replace), Err(Refusal::ItsOwn(StoreId(10))));
    view.devices.insert(StoreId(99), DeviceRecord { state: DeviceState::New, ..device(99, 1) });
    let replace = Request::Replace { old: StoreId(10), new: StoreId(99) };
    assert_eq!(foretell(&view, &replace), Err(Refusal::NotFormatted(StoreId(99))));
}

#[test]
fn a_home_that_is_drained_hands_its_table_to_the_next_node() {
    let mut view = cluster(6, 2);
    let nodes = vec![NodeId(3), NodeId(1), NodeId(5)];
    let groups: Vec<GroupId> = (1..=8).map(GroupId).collect();
    let set = NodeSetRecord { table: 7, pool: "fast".to_owned(), nodes, lead: NodeId(3), groups: groups.clone() };
    RecordChange::NodeSet(set).apply(&mut view);
    let mut view = Working::new(view, 1).settle().view;
    let nodes_of = |view: &View, group: GroupId| -> Vec<u32> {
        view.groups[&group].members.iter().map(|store| view.devices[store].node.0).collect()
    };
    assert!(groups.iter().all(|group| nodes_of(&view, *group) == [3, 1, 5]));
    let forecast = begin(&mut view, &Request::Drain(Subject::Node(NodeId(3))));
    assert_eq!(forecast.homes, vec![(7, NodeId(1))]);
    let working = Working::new(view, 1).settle();
    let set = &working.view.sets[&7];
    assert_eq!((set.nodes[0], set.nodes[1], set.lead), (NodeId(1), NodeId(5), NodeId(1)));
    let expected: Vec<u32> = set.nodes.iter().map(|node| node.0).collect();
    assert!(groups.iter().all(|group| nodes_of(&working.view, *group) == expected));
    assert!(groups.iter().all(|group| working.view.groups[group].primary.0 / 10 == 1));
}

#[test]
fn the_groups_of_a_table_are_led_from_wherever_its_record_says() {
    let mut view = cluster(6, 2);
    let nodes = vec![NodeId(3), NodeId(1), NodeId(5)];
    let groups: Vec<GroupId> = (1..=8).map(GroupId).collect();
    for lead in [3, 1, 3] {
        let (nodes, groups) = (nodes.clone(), groups.clone());
        let set = NodeSetRecord { table: 7, pool: "fast".to_owned(), nodes, lead: NodeId(lead), groups };
        RecordChange::NodeSet(set).apply(&mut view);
        view = Working::new(view, 1).settle().view;
        for group in &view.sets[&7].groups {
            let record = &view.groups[group];
            assert_eq!(view.devices[&record.primary].node, NodeId(lead));
            let members: Vec<u32> = record.members.iter().map(|store| view.devices[store].node.0).collect();
            assert_eq!(members, if lead == 3 { [3, 1, 5] } else { [1, 3, 5] });
        }
    }
}

/// Requests come while earlier ones are still being carried out; devices die meanwhile.
#[test]
fn everything_settles_whatever_is_asked_meanwhile() {
    for seed in 0..6 {
        let mut working = Working::new(cluster(7, 2), seed);
        add_node(&mut working.view, 8, &[80, 81]);
        for _ in 0..12 {
            let store = StoreId(u128::from(working.random.between(1, 8) * 10 + working.random.below(2)));
            let node = working.view.devices[&store].node;
            let request = match working.random.below(6) {
                0 => Request::Drain(Subject::Device(store)),
                1 => Request::Drain(Subject::Node(node)),
                2 => Request::TakeBack(Subject::Device(store)),
                3 => Request::TakeBack(Subject::Node(node)),
                4 => Request::Add {
                    store,
                    class: String::new(),
                    weight: Some(100 * GIB * working.random.between(5, 15)),
                },
                _ => {
                    let is_alone = |group: &GroupRecord| group.in_sync.contains(&store) && group.in_sync.len() < 3;
                    if working.dead.is_empty() && !working.view.groups.values().any(is_alone) {
                        working.kill(store);
                    }
                    Request::GiveUp(Subject::Device(store))
                }
            };
            let is_wrong = matches!(request, Request::GiveUp(_)) && !working.dead.contains(&store);
            if is_wrong || takes_back_dead(&working.view, &working.dead, &request) {
                continue;
            }
            if let Ok(forecast) = foretell(&working.view, &request) {
                forecast.changes.iter().for_each(|change| change.apply(&mut working.view));
            }
            for _ in 0..working.random.below(20) {
                working.turn();
            }
        }
        for store in working.dead.clone() {
            begin(&mut working.view, &Request::GiveUp(Subject::Device(store)));
        }
        let working = working.settle();
        assert!(
            working.view.groups.values().all(|group| group.in_sync.len() == 3 && group.joining.is_empty()),
            "seed {seed}"
        );
        let is_out = |store: &StoreId| {
            let place = working.view.device_places.get(store);
            place.is_some_and(|place| place.duty != DeviceDuty::In)
        };
        assert!(working.view.groups.values().all(|group| !group.members.iter().any(is_out)), "seed {seed}");
    }
}

/// Whether the request would take a device back that does not answer.
fn takes_back_dead(view: &View, dead: &BTreeSet<StoreId>, request: &Request) -> bool {
    match request {
        Request::Add { store, .. } | Request::TakeBack(Subject::Device(store)) => dead.contains(store),
        Request::TakeBack(Subject::Node(node)) => dead.iter().any(|store| view.devices[store].node == *node),
        _ => false,
    }
}

//! A cluster at work: primaries that do only what the rules for them say, members that catch up, devices that die.

use crate::clusters::Random;
use cluster::placement::duty::{Forecast, RECEIVING_MAX, Request, View, foretell, next_changes};
use cluster::placement::{Step, carry_out, place};
use cluster::{
    Compression, DevicePlaceRecord, DeviceRecord, DeviceState, FailureDomain, GroupRecord, GroupState, NodeRecord,
    Policy, PoolRecord, PoolRulesRecord,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Epoch, GroupId, Incarnation, NodeId, StoreId};

pub const GIB: u64 = 1 << 30;

pub fn device(store: u128, node: u32) -> DeviceRecord {
    DeviceRecord {
        store: StoreId(store),
        node: NodeId(node),
        path: format!("/dev/{store}"),
        size_bytes: 1000 * GIB,
        state: DeviceState::Active,
    }
}

pub fn add_node(view: &mut View, node: u32, stores: &[u128]) {
    view.nodes.insert(NodeId(node), NodeRecord { id: NodeId(node), address: format!("10.0.0.{node}:4000") });
    for store in stores {
        view.devices.insert(StoreId(*store), device(*store, node));
        view.free.insert(StoreId(*store), 500 * GIB);
    }
}

/// A pool of three copies on so many nodes, placed, all in sync, a GiB in each group.
pub fn cluster(nodes: u32, per_node: u32) -> View {
    let mut view = View::default();
    for node in 1..=nodes {
        let stores: Vec<u128> = (0..per_node).map(|at| u128::from(node * 10 + at)).collect();
        add_node(&mut view, node, &stores);
        for store in stores {
            view.device_places.insert(StoreId(store), DevicePlaceRecord::unset(StoreId(store)));
        }
    }
    let pool = PoolRecord {
        name: "fast".to_owned(),
        policy: Policy::Replicated,
        replicas: 3,
        min_in_sync: 2,
        table: 1,
        write_cache: false,
        compression: Compression::Off,
    };
    view.pools.insert(pool.name.clone(), pool);
    let rules = PoolRulesRecord { failure_domain: FailureDomain::Node, ..PoolRulesRecord::unset("fast") };
    view.rules.insert("fast".to_owned(), rules);
    let count = cluster::placement::groups_for(nodes * per_node, 3);
    let blank = |id| cluster::placement::Group { id: GroupId(id), members: Vec::new(), table: None };
    let rules = crate::clusters::rules(3, FailureDomain::Node);
    let devices: Vec<_> = view
        .devices
        .values()
        .map(|device| crate::clusters::device(device.store.0, device.node.0, device.size_bytes))
        .collect();
    let groups: Vec<_> = (1..=count).map(blank).collect();
    for group in place(&devices, &rules, &[], &groups).expect("enough nodes").groups {
        let record = GroupRecord {
            id: group.id,
            table: 1,
            pool: "fast".to_owned(),
            epoch: Epoch(1),
            primary: group.members[0],
            life: Incarnation(1),
            in_sync: group.members.clone(),
            eligible: Vec::new(),
            joining: Vec::new(),
            members: group.members,
            min_in_sync: 2,
            state: GroupState::Active,
            forced: None,
        };
        view.held.insert(record.id, GIB);
        view.groups.insert(record.id, record);
    }
    view
}

pub fn begin(view: &mut View, request: &Request) -> Forecast {
    let forecast = foretell(view, request).expect("it can be done");
    forecast.changes.iter().for_each(|change| change.apply(view));
    forecast
}

/// The cluster's groups at work: primaries carry out orders, members catch up, in any order.
pub struct Working {
    pub view: View,
    pub random: Random,
    /// Devices that no longer answer.
    pub dead: BTreeSet<StoreId>,
    pub copied: BTreeMap<StoreId, u64>,
    /// Groups that lacked a member from the beginning: they are not begun one after the other.
    pub behind: usize,
}

impl Working {
    pub fn new(view: View, seed: u64) -> Self {
        let behind = view.groups.values().filter(|group| group.in_sync.len() < 3).count();
        Self { view, random: Random(seed), dead: BTreeSet::new(), copied: BTreeMap::new(), behind }
    }

    /// A device dies: primaries remove it, others take over.
    pub fn kill(&mut self, store: StoreId) {
        self.dead.insert(store);
        for group in self.view.groups.values_mut().filter(|group| group.in_sync.contains(&store)) {
            group.in_sync.retain(|member| *member != store);
            if group.in_sync.len() < group.min_in_sync as usize { &mut group.eligible } else { &mut group.joining }
                .push(store);
            group.primary = group.in_sync[0];
            group.epoch.0 += 1;
        }
    }

    /// One turn: what is asked of the map is put there, and some of the groups take a step.
    pub fn turn(&mut self) -> bool {
        let changes = next_changes(&self.view);
        changes.iter().for_each(|change| change.apply(&mut self.view));
        self.check_bounds();
        let mut is_done = changes.is_empty();
        let ids: Vec<GroupId> = self.view.groups.keys().copied().collect();
        for id in ids {
            if self.random.below(3) == 0 {
                is_done = false;
                continue;
            }
            is_done &= !self.step(id);
        }
        is_done
    }

    /// Whether the group did something.
    pub fn step(&mut self, id: GroupId) -> bool {
        let wanted = self.view.wanted.get(&id).cloned();
        let group = self.view.groups.get_mut(&id).expect("a group");
        match carry_out(group, wanted.as_ref(), Duration::ZERO) {
            Step::Change(next) => {
                assert_eq!(next.epoch.0, group.epoch.0 + 1);
                assert!(next.in_sync.contains(&next.primary), "{next:?}");
                assert!(next.in_sync.len() >= group.in_sync.len().min(3), "{group:?} became {next:?}");
                let lists = [&next.in_sync[..], &next.eligible, &next.joining].concat();
                assert_eq!(BTreeSet::from_iter(&lists), BTreeSet::from_iter(&next.members));
                assert_eq!(lists.len(), next.members.len(), "in exactly one list each: {next:?}");
                *group = *next;
            }
            Step::HandOver(store) => {
                assert!(group.in_sync.contains(&store));
                group.primary = store;
                group.epoch.0 += 1;
            }
            Step::CatchUp(_) | Step::TooFew => {
                let due = group.joining.iter().copied().find(|store| {
                    !self.dead.contains(store) && wanted.as_ref().is_some_and(|wanted| wanted.members.contains(store))
                });
                let Some(store) = due else { return false };
                group.joining.retain(|member| *member != store);
                group.in_sync.push(store);
                group.joining.append(&mut group.eligible);
                group.epoch.0 += 1;
                *self.copied.entry(store).or_default() += GIB;
            }
            Step::Done => return false,
            Step::Refused => panic!("an order below the policy for {group:?}"),
        }
        true
    }

    pub fn check_bounds(&self) {
        let mut receiving: BTreeMap<StoreId, usize> = BTreeMap::new();
        for wanted in self.view.wanted.values() {
            let nodes: BTreeSet<NodeId> = wanted.members.iter().map(|store| self.view.devices[store].node).collect();
            assert_eq!(nodes.len(), wanted.members.len(), "{wanted:?} shares a node");
            let group = &self.view.groups[&wanted.group];
            let comes = |store: &&StoreId| !group.in_sync.contains(store) && !self.dead.contains(store);
            for store in wanted.members.iter().filter(comes) {
                *receiving.entry(*store).or_default() += 1;
            }
        }
        assert!(receiving.values().all(|&count| count <= RECEIVING_MAX + self.behind), "{receiving:?}");
    }

    pub fn settle(mut self) -> Self {
        let mut quiet = 0;
        for _ in 0..2000 {
            quiet = if self.turn() { quiet + 1 } else { 0 };
            if next_changes(&self.view).is_empty() && self.view.wanted.is_empty() {
                return self;
            }
        }
        panic!("{} orders stand after 2000 turns, {quiet}", self.view.wanted.len());
    }

    pub fn check_forecast(&self, forecast: &Forecast) {
        let copied: u64 = self.copied.values().sum();
        let (least, most) = (forecast.bytes() * 9 / 10, forecast.bytes() * 11 / 10);
        assert!((least..=most).contains(&copied), "{copied} bytes were copied, {} foretold", forecast.bytes());
    }

    pub fn groups_on(&self, store: StoreId) -> usize {
        self.view.groups.values().filter(|group| group.members.contains(&store)).count()
    }
}

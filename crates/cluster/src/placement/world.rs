//! What does not change while groups are placed: the devices by number, and which of them fail together.

use super::{Device, Duty, PlacementError, Rules};
use crate::records::FailureDomain;
use std::collections::{BTreeMap, BTreeSet};
use types::{NodeId, StoreId};

/// A weight beyond it (1 PiB, if it counts bytes) counts as this: sums of products stay in their integers.
const WEIGHT_MAX: u64 = 1 << 50;

/// What a device shares its failure domain by: compared, never shown.
pub(super) fn domain_key(device: &Device, domain: FailureDomain) -> (String, String, u32, u128) {
    let Device { zone, rack, .. } = device;
    match domain {
        FailureDomain::Device => (String::new(), String::new(), 0, device.store.0),
        FailureDomain::Node => (String::new(), String::new(), device.node.0, 0),
        FailureDomain::Rack => (zone.clone(), rack.clone(), 0, 0),
        FailureDomain::Zone => (zone.clone(), String::new(), 0, 0),
    }
}

/// The devices that may hold something, numbered in the order of their stores' ids.
pub(super) struct World {
    pub(super) stores: Vec<StoreId>,
    pub(super) weight: Vec<u64>,
    pub(super) may_lead: Vec<bool>,
    /// Number of each device's failure domain.
    pub(super) domain: Vec<u32>,
    /// Devices of each domain.
    pub(super) of_domain: Vec<Vec<u16>>,
    /// Number of each device's node.
    pub(super) node: Vec<u32>,
    pub(super) nodes: Vec<NodeId>,
    /// Devices of each node.
    pub(super) of_node: Vec<Vec<u16>>,
    /// Members of each group.
    pub(super) copies: usize,
    /// Devices that take the place of others.
    pub(super) instead: BTreeMap<StoreId, u16>,
    /// Nodes of such devices, by the node whose device goes.
    pub(super) node_instead: BTreeMap<NodeId, usize>,
}

impl World {
    pub(super) fn new(devices: &[Device], rules: &Rules) -> Result<Self, PlacementError> {
        let of_class = |device: &&Device| rules.class.is_empty() || device.class == rules.class;
        let is_usable = |device: &&Device| device.duty == Duty::In && device.weight > 0 && of_class(device);
        let mut usable: Vec<&Device> = devices.iter().filter(is_usable).collect();
        usable.sort_unstable_by_key(|device| device.store);
        usable.dedup_by_key(|device| device.store);
        let domains = numbered(usable.iter().map(|device| domain_key(device, rules.failure_domain)));
        let nodes = numbered(usable.iter().map(|device| device.node));
        let copies = copies(rules, domains.len(), &usable)?;
        let domain: Vec<u32> = usable.iter().map(|device| domains[&domain_key(device, rules.failure_domain)]).collect();
        let node: Vec<u32> = usable.iter().map(|device| nodes[&device.node]).collect();
        let stores: Vec<StoreId> = usable.iter().map(|device| device.store).collect();
        let stepping_in = |device: &Device| {
            let Duty::Draining { into: Some(into) } = device.duty else { return None };
            Some(stores.binary_search(&into).ok()? as u16)
        };
        let instead = devices.iter().filter_map(|device| Some((device.store, stepping_in(device)?)));
        let node_instead =
            devices.iter().filter_map(|device| Some((device.node, node[stepping_in(device)? as usize] as usize)));
        Ok(Self {
            weight: usable.iter().map(|device| device.weight.min(WEIGHT_MAX)).collect(),
            may_lead: usable.iter().map(|device| device.may_lead).collect(),
            of_domain: gathered(&domain, domains.len()),
            domain,
            of_node: gathered(&node, nodes.len()),
            nodes: nodes.into_keys().collect(),
            copies,
            instead: instead.collect(),
            node_instead: node_instead.collect(),
            node,
            stores,
        })
    }

    /// The number of a store that may hold something.
    pub(super) fn device(&self, store: StoreId) -> Option<u16> {
        self.stores.binary_search(&store).ok().map(|index| index as u16)
    }

    /// The number of a node that has such a store.
    pub(super) fn node_index(&self, node: NodeId) -> Option<usize> {
        self.nodes.binary_search(&node).ok()
    }

    /// Whether one group may have a member on each of these nodes.
    pub(super) fn may_share_group(&self, nodes: &[usize]) -> bool {
        // Nodes lie in one domain each, or are made of several.
        let mut free: BTreeMap<u32, usize> = BTreeMap::new();
        nodes.iter().all(|&node| {
            let domains: BTreeSet<u32> = self.of_node[node].iter().map(|&d| self.domain[d as usize]).collect();
            let next = domains.into_iter().find(|domain| !free.contains_key(domain));
            next.is_some_and(|domain| free.insert(domain, node).is_none())
        })
    }
}

fn numbered<T: Ord>(keys: impl Iterator<Item = T>) -> BTreeMap<T, u32> {
    let keys: BTreeSet<T> = keys.collect();
    keys.into_iter().zip(0..).collect()
}

fn gathered(place: &[u32], places: usize) -> Vec<Vec<u16>> {
    let mut lists = vec![Vec::new(); places];
    for (device, &place) in place.iter().enumerate() {
        lists[place as usize].push(device as u16);
    }
    lists
}

/// Members of each group, if there are domains for them.
fn copies(rules: &Rules, domains: usize, usable: &[&Device]) -> Result<usize, PlacementError> {
    if domains == 0 {
        return Err(PlacementError::NoDevice { class: rules.class.clone() });
    }
    if domains >= rules.replicas || (rules.may_degrade && domains >= rules.min_in_sync.max(1)) {
        return Ok(domains.min(rules.replicas));
    }
    let is_unnamed = |device: &&&Device| match rules.failure_domain {
        FailureDomain::Device | FailureDomain::Node => false,
        FailureDomain::Rack => device.rack.is_empty(),
        FailureDomain::Zone => device.zone.is_empty(),
    };
    let unnamed: BTreeSet<NodeId> = usable.iter().filter(is_unnamed).map(|device| device.node).collect();
    Err(PlacementError::TooFewDomains {
        replicas: rules.replicas,
        domain: rules.failure_domain,
        found: domains,
        unnamed: unnamed.len(),
        class: rules.class.clone(),
    })
}

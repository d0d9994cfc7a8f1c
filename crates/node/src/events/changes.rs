//! One look at the cluster compared with the next: what has happened in between, as events. Pure.
//!
//! Groups are told together, and not each: why some lack copies is more than how many at which moment. What comes and goes within a
//! moment (a lead that moves by order) is seen twice before it counts.

use super::kind::{self, Kind};
use cluster::health::{Known, named};
use cluster::{
    DeviceDuty, DeviceRecord, DeviceState, Listing, NodeDuty, SessionRecord, VolumeRecord, VolumeState, decode, keys,
};
use std::collections::{BTreeMap, BTreeSet};
use types::{Incarnation, NodeId, StoreId, VolumeId};
use volume::{DeviceStatus, NodeStatus};

/// More changes of a kind than this in one look are told in one sentence.
const TOLD_APART_MAX: usize = 3;
/// So many looks long a node that came back is the reason why a volume left it.
const BACK_LOOKS: u32 = 15;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    pub(crate) subjects: Vec<String>,
    pub(crate) text: String,
}

impl Change {
    fn new(kind: Kind, subjects: &[&str], text: impl Into<String>) -> Self {
        Self { kind, subjects: subjects.iter().map(|subject| (*subject).to_owned()).collect(), text: text.into() }
    }
}

fn node_name(node: NodeId) -> String {
    format!("node-{node}")
}

/// "1 placement group has", "7 placement groups have"
fn groups_have(count: usize) -> String {
    if count == 1 { "1 placement group has".to_owned() } else { format!("{count} placement groups have") }
}

// ---- what the map says -------------------------------------------------------------------------------------------------

/// What the map says, as far as it is compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapLook {
    pub(crate) nodes: BTreeMap<NodeId, NodeLook>,
    pub(crate) devices: BTreeMap<StoreId, DeviceLook>,
    pub(crate) volumes: BTreeMap<VolumeId, VolumeLook>,
    /// Placement groups; those that lack copies; those of them that have too few to serve.
    pub(crate) groups: (usize, usize, usize),
    /// Nodes because of which they do.
    pub(crate) late: BTreeSet<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeLook {
    pub(crate) is_there: bool,
    /// Its supervisor said that its process has ended.
    pub(crate) has_ended: bool,
    /// Whether anything of it was ever in use.
    pub(crate) is_new: bool,
    pub(crate) lives: BTreeMap<StoreId, Incarnation>,
    pub(crate) duty: NodeDuty,
    pub(crate) groups: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceLook {
    pub(crate) node: NodeId,
    pub(crate) path: String,
    pub(crate) is_there: bool,
    pub(crate) duty: DeviceDuty,
    pub(crate) groups: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeLook {
    pub(crate) name: String,
    pub(crate) head: NodeId,
    pub(crate) home: NodeId,
    pub(crate) state: VolumeState,
}

impl MapLook {
    /// `own`: stores of this process; `ended`: nodes whose supervisors said that they have ended.
    pub(crate) fn of(listing: &Listing, known: &Known, own: &BTreeSet<StoreId>, ended: &BTreeSet<NodeId>) -> Self {
        let mut this = Self { groups: known.groups(), late: known.late(), ..Self::default() };
        let mut lives: BTreeMap<NodeId, BTreeMap<StoreId, Incarnation>> = BTreeMap::new();
        let mut used = BTreeSet::new();
        for item in &listing.items {
            if item.key.starts_with(keys::SESSIONS) {
                if let Ok(session) = decode::<SessionRecord>(&item.key, &item.value) {
                    lives.entry(session.node).or_default().insert(session.store, session.life);
                }
            } else if item.key.starts_with(keys::VOLUMES) {
                if let Ok(volume) = decode::<VolumeRecord>(&item.key, &item.value)
                    && volume.draft_of.is_none()
                {
                    let VolumeRecord { id, name, head, home, state, .. } = volume;
                    this.volumes.insert(id, VolumeLook { name, head, home, state });
                }
            } else if item.key.starts_with(keys::DEVICES)
                && let Ok(device) = decode::<DeviceRecord>(&item.key, &item.value)
                && device.state != DeviceState::New
            {
                used.insert(device.store);
            }
        }
        for device in &known.standing.devices {
            let look = DeviceLook {
                node: device.node,
                path: device.path.clone(),
                is_there: device.is_there || own.contains(&device.store),
                duty: device.duty,
                groups: device.groups,
            };
            this.devices.insert(device.store, look);
        }
        for node in &known.standing.nodes {
            let on = |store: &StoreId| known.standing.devices.iter().find(|device| device.store == *store);
            let look = NodeLook {
                // Of a node without devices nobody can tell.
                is_there: node.is_there
                    || node.devices.is_empty()
                    || node.devices.iter().any(|store| own.contains(store)),
                has_ended: ended.contains(&node.node),
                is_new: !node.devices.iter().any(|store| used.contains(store)),
                lives: lives.remove(&node.node).unwrap_or_default(),
                duty: node.duty,
                groups: node.devices.iter().filter_map(on).map(|device| device.groups).sum(),
            };
            this.nodes.insert(node.node, look);
        }
        this
    }

    fn is_away(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| !node.is_there || node.has_ended)
    }
}

/// How groups are, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Groups {
    #[default]
    Whole,
    Lack,
    Stopped,
}

/// What counts only when it was seen in two looks.
#[derive(Clone, Debug, Default)]
struct Settled<T> {
    now: T,
    next: Option<T>,
}

impl<T: PartialEq> Settled<T> {
    fn new(now: T) -> Self {
        Self { now, next: None }
    }

    /// What was before, if this is new now.
    fn see(&mut self, seen: T) -> Option<T> {
        if seen == self.now {
            self.next = None;
            return None;
        }
        if self.next.as_ref() == Some(&seen) {
            self.next = None;
            return Some(std::mem::replace(&mut self.now, seen));
        }
        self.next = Some(seen);
        None
    }
}

/// What was seen last of the map.
pub(crate) struct MapChanges {
    last: MapLook,
    /// And who is away of those because of whom copies lack: each of them is a reason to tell it again.
    groups: Settled<(Groups, BTreeSet<NodeId>)>,
    /// Nodes that were away lately, and for how many looks more that explains something.
    was_away: BTreeMap<NodeId, u32>,
}

fn groups_of(look: &MapLook) -> (Groups, BTreeSet<NodeId>) {
    let groups = match look.groups {
        (_, _, 1..) => Groups::Stopped,
        (_, 1.., _) => Groups::Lack,
        _ => Groups::Whole,
    };
    (groups, look.late.iter().copied().filter(|node| look.is_away(*node)).collect())
}

impl MapChanges {
    /// From this look on.
    pub(crate) fn new(first: MapLook) -> Self {
        Self { groups: Settled::new(groups_of(&first)), last: first, was_away: BTreeMap::new() }
    }

    /// What has happened since the look before.
    pub(crate) fn see(&mut self, look: MapLook, now_ns: u64) -> Vec<Change> {
        let mut found = Vec::new();
        self.nodes(&look, &mut found);
        self.devices(&look, &mut found);
        self.heads(&look, &mut found);
        self.terms(&look, now_ns, &mut found);
        self.last = look;
        self.groups(&mut found);
        found
    }

    /// The same look once more: what was seen for the first time counts now.
    pub(crate) fn see_again(&mut self) -> Vec<Change> {
        let mut found = Vec::new();
        self.groups(&mut found);
        found
    }

    fn nodes(&mut self, look: &MapLook, found: &mut Vec<Change>) {
        self.was_away.retain(|_, looks| {
            *looks -= 1;
            *looks > 0
        });
        for (id, now) in &look.nodes {
            let name = node_name(*id);
            let mut tell = |kind, text: String| found.push(Change::new(kind, &[&name], text));
            let Some(before) = self.last.nodes.get(id) else {
                tell(kind::NODE_JOINED, format!("{name} has joined the cluster"));
                continue;
            };
            let begun_anew =
                now.lives.iter().any(|(store, life)| before.lives.get(store).is_some_and(|old| old < life));
            match (before.is_there, now.is_there) {
                (true, false) => tell(kind::NODE_AWAY, format!("{name} is away: nothing is heard of it")),
                (false, true) if before.is_new => tell(kind::NODE_BACK, format!("{name} is there for the first time")),
                (false, true) => tell(kind::NODE_BACK, format!("{name} is back")),
                (true, true) if begun_anew => tell(kind::NODE_BACK, format!("{name} is back: it was started again")),
                (true, true) if now.has_ended && !before.has_ended => {
                    tell(kind::NODE_ENDED, format!("the process of {name} has ended: its supervisor says so"));
                }
                _ => {}
            }
            if !now.is_there || now.has_ended || begun_anew || !before.is_there {
                self.was_away.insert(*id, BACK_LOOKS);
            }
            match (before.duty, now.duty) {
                (NodeDuty::Maintenance { .. }, NodeDuty::In) => {
                    tell(kind::MAINTENANCE_ENDED, format!("{name} is in maintenance no more"));
                }
                (NodeDuty::Draining, NodeDuty::Draining) if before.groups > 0 && now.groups == 0 => {
                    tell(kind::NODE_DRAINED, format!("{name} is drained: nothing is on it any more"));
                }
                _ => {}
            }
        }
        for id in self.last.nodes.keys().filter(|id| !look.nodes.contains_key(id)) {
            let name = node_name(*id);
            found.push(Change::new(kind::NODE_REMOVED, &[&name], format!("{name} is no node of the cluster any more")));
        }
    }

    fn devices(&self, look: &MapLook, found: &mut Vec<Change>) {
        let named = |store: &StoreId, device: &DeviceLook| {
            (format!("device {} of {}", device.path, node_name(device.node)), store.to_string(), node_name(device.node))
        };
        for (store, now) in &look.devices {
            let (name, id, node) = named(store, now);
            let mut tell = |kind, text: String| found.push(Change::new(kind, &[&id, &node], text));
            let Some(before) = self.last.devices.get(store) else {
                tell(kind::DEVICE_ADDED, format!("{name} is one of the cluster (store {id})"));
                continue;
            };
            // With its node it is told there.
            let node_is_there =
                |look: &MapLook| look.nodes.get(&now.node).is_some_and(|node| node.is_there && !node.has_ended);
            let stays = node_is_there(look) && node_is_there(&self.last);
            match (before.is_there, now.is_there) {
                (true, false) if stays => tell(kind::DEVICE_AWAY, format!("{name} is away, and its node is there")),
                (false, true) if stays => tell(kind::DEVICE_BACK, format!("{name} is there")),
                _ => {}
            }
            match (before.duty, now.duty) {
                (DeviceDuty::Out, DeviceDuty::Out) => {}
                (_, DeviceDuty::Out) => {
                    tell(kind::DEVICE_GIVEN_UP, format!("{name} is given up: what was on it is copied from others"));
                }
                (DeviceDuty::Out | DeviceDuty::Draining { .. }, DeviceDuty::In) => {
                    tell(kind::DEVICE_TAKEN_BACK, format!("{name} is taken back, and gets its share again"));
                }
                (_, DeviceDuty::Draining { .. }) if before.groups > 0 && now.groups == 0 => {
                    tell(kind::DEVICE_DRAINED, format!("{name} is drained: nothing is on it any more"));
                }
                _ => {}
            }
        }
        for (store, before) in self.last.devices.iter().filter(|(store, _)| !look.devices.contains_key(store)) {
            let (name, id, node) = named(store, before);
            found.push(Change::new(
                kind::DEVICE_REMOVED,
                &[&id, &node],
                format!("{name} is none of the cluster any more"),
            ));
        }
    }

    fn heads(&self, look: &MapLook, found: &mut Vec<Change>) {
        let mut moved: BTreeMap<(NodeId, NodeId, bool), Vec<String>> = BTreeMap::new();
        for (id, now) in &look.volumes {
            let Some(before) = self.last.volumes.get(id) else { continue };
            let none = NodeId(0);
            if now.state == VolumeState::Online && before.head != now.head && before.head != none && now.head != none {
                let names = moved.entry((before.head, now.head, now.head == now.home)).or_default();
                names.push(now.name.clone());
            }
        }
        for ((from, to, is_home), names) in moved {
            let (from_name, to_name) = (node_name(from), node_name(to));
            let why = match (self.was_away.contains_key(&from), is_home) {
                (true, _) => format!("{from_name} was away"),
                (false, true) => "it is at home there".to_owned(),
                (false, false) => "its hosts are there".to_owned(),
            };
            let told: Vec<(Vec<String>, String)> = match names.len() {
                ..=TOLD_APART_MAX => {
                    let one = |name: String| (vec![name.clone()], format!("volume {name} is"));
                    names.into_iter().map(one).collect()
                }
                count => vec![(names.clone(), format!("{count} volumes ({}) are", named(&names)))],
            };
            for (volumes, what) in told {
                let text = format!("{what} served by {to_name} and not by {from_name} any more: {why}");
                let mut subjects: Vec<&str> = volumes.iter().map(String::as_str).collect();
                subjects.truncate(super::SUBJECTS_MAX - 2);
                subjects.extend([from_name.as_str(), &to_name]);
                found.push(Change::new(kind::HEAD_MOVED, &subjects, text));
            }
        }
    }

    /// Volumes whose term in the trash is over: nobody has ordered that just now.
    fn terms(&self, look: &MapLook, now_ns: u64, found: &mut Vec<Change>) {
        for (id, before) in &self.last.volumes {
            let VolumeState::Trashed(term) = before.state else { continue };
            let is_gone = look.volumes.get(id).is_none_or(|now| now.state == VolumeState::Deleting);
            if is_gone && term.keep_until_ns <= now_ns {
                let text = format!("volume {} was in the trash for its whole term and is deleted", before.name);
                found.push(Change::new(kind::VOLUME_TERM_OVER, &[&before.name], text));
            }
        }
    }

    fn groups(&mut self, found: &mut Vec<Change>) {
        let Some((before, away_before)) = self.groups.see(groups_of(&self.last)) else { return };
        let (now, away) = &self.groups.now;
        if before == *now && away.is_subset(&away_before) {
            return;
        }
        let (all, lacking, stopped) = self.last.groups;
        let late: Vec<String> = self.last.late.iter().map(|node| node_name(*node)).collect();
        let who = late.join(", ");
        let why = match &self.last.late {
            late if late.is_empty() => String::new(),
            late if late.iter().all(|node| self.last.is_away(*node)) => format!(" because of who is away: {who}"),
            _ => format!(" until all have caught up: {who}"),
        };
        let subjects: Vec<&str> = late.iter().map(String::as_str).collect();
        let (kind, text) = match (before, *now) {
            (_, Groups::Whole) => {
                (kind::GROUPS_WHOLE, format!("all {all} placement groups have all of their copies again"))
            }
            (Groups::Stopped, Groups::Lack) => {
                let lack = groups_have(lacking);
                (
                    kind::GROUPS_SERVE,
                    format!(
                        "all {all} placement groups have enough copies to serve again; {lack} fewer than they should"
                    ),
                )
            }
            (_, Groups::Lack) => {
                (kind::GROUPS_LACK_COPIES, format!("{} fewer copies than they should{why}", groups_have(lacking)))
            }
            (_, Groups::Stopped) => {
                (kind::GROUPS_STOPPED, format!("{} too few copies to serve{why}", groups_have(stopped)))
            }
        };
        found.push(Change::new(kind, &subjects, text));
    }
}

// ---- what the node knows of itself -------------------------------------------------------------------------------------

/// What was seen last of the nodes of this process.
#[derive(Default)]
pub(crate) struct OwnChanges {
    devices: BTreeMap<StoreId, DeviceTold>,
    /// Reasons, and whether each was told: in the second look.
    reasons: BTreeMap<String, bool>,
}

#[derive(Default)]
struct DeviceTold {
    has_failed: bool,
    is_slow: bool,
    damage: u64,
}

impl OwnChanges {
    /// What has happened since the look before. What is so in the first look is told as well: it was found at the start.
    pub(crate) fn see(&mut self, status: &NodeStatus, reasons: &[String]) -> Vec<Change> {
        let mut found = Vec::new();
        for device in &status.devices {
            let told = self.devices.entry(device.store).or_default();
            device_changes(told, device, &mut found);
        }
        self.troubles(reasons, &mut found);
        found
    }

    /// Reasons that were there in two looks, and are gone.
    fn troubles(&mut self, reasons: &[String], found: &mut Vec<Change>) {
        let (mut begun, mut over) = (Vec::new(), Vec::new());
        self.reasons.retain(|reason, is_told| {
            let stays = reasons.contains(reason);
            if !stays && *is_told {
                over.push(reason.clone());
            }
            stays
        });
        for reason in reasons {
            match self.reasons.get_mut(reason) {
                None => drop(self.reasons.insert(reason.clone(), false)),
                Some(is_told) => {
                    if !std::mem::replace(is_told, true) {
                        begun.push(reason.clone());
                    }
                }
            }
        }
        for (kind, before, of) in [(kind::TROUBLE, "", begun), (kind::TROUBLE_OVER, "over: ", over)] {
            match &of[..] {
                [first, more @ ..] if of.len() > TOLD_APART_MAX => {
                    let text = format!("{before}{first}; and {} more of the kind", more.len());
                    found.push(Change::new(kind, &[], text));
                }
                all => found.extend(all.iter().map(|reason| Change::new(kind, &[], format!("{before}{reason}")))),
            }
        }
    }
}

fn device_changes(told: &mut DeviceTold, device: &DeviceStatus, found: &mut Vec<Change>) {
    let (path, store) = (device.path.display(), device.store.to_string());
    let mut tell = |kind, text: String| found.push(Change::new(kind, &[&store], text));
    match (&device.failed, std::mem::replace(&mut told.has_failed, device.failed.is_some())) {
        (Some(why), false) => tell(kind::DEVICE_FAILED, format!("device {path} has failed: {why}")),
        (None, true) => tell(kind::DEVICE_RECOVERED, format!("device {path} is used again")),
        _ => {}
    }
    match (&device.slow, std::mem::replace(&mut told.is_slow, device.slow.is_some())) {
        (Some(why), false) => tell(kind::DEVICE_SLOW, format!("device {path} is slow: {why}")),
        (None, true) => tell(kind::DEVICE_NOT_SLOW, format!("device {path} is slow no more")),
        _ => {}
    }
    // Each place that a comparison finds is no event of its own.
    if device.damage >= 2 * told.damage.max(1) || (told.damage == 0 && device.damage > 0) {
        told.damage = device.damage;
        let places = if device.damage == 1 { "1 place is".to_owned() } else { format!("{} places are", device.damage) };
        tell(kind::DEVICE_DAMAGED, format!("device {path}: {places} damaged"));
    } else if device.damage == 0 && told.damage > 0 {
        told.damage = 0;
        tell(kind::DEVICE_WHOLE, format!("device {path}: nothing of it is damaged any more"));
    }
}

// ---- health ------------------------------------------------------------------------------------------------------------

/// A word that counts only when it was seen in two looks.
pub(crate) struct HealthChanges(Settled<crate::admin::types::Health>);

impl HealthChanges {
    /// From this one on.
    pub(crate) fn new(first: crate::admin::types::Health) -> Self {
        Self(Settled::new(first))
    }

    /// What it was, if it is another one now. `cause`: the first of what is found.
    pub(crate) fn see(&mut self, health: crate::admin::types::Health, cause: &str) -> Option<Change> {
        use crate::admin::types::Health;
        let before = self.0.see(health)?;
        let name = |health| match health {
            Health::Healthy => "healthy",
            Health::Degraded => "degraded",
            Health::Unavailable => "unavailable",
            Health::Damaged => "damaged",
        };
        let kind = match health {
            Health::Healthy => kind::HEALTHY,
            Health::Degraded => kind::HEALTH_DEGRADED,
            Health::Unavailable | Health::Damaged => kind::HEALTH_BAD,
        };
        let why = if cause.is_empty() { String::new() } else { format!(": {cause}") };
        let text = format!("the cluster is {} (it was {}){why}", name(health), name(before));
        Some(Change::new(kind, &[name(health)], text))
    }
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;

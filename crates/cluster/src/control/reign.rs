//! What who controls does: orders, the steps of each, and who is given up.

use super::decisions::{compared, in_order};
use super::{Control, Followed, Heard, is_done};
use crate::catalog::CatalogError;
use crate::map::{Change, Event, MapStore, Revision, Transaction};
use crate::placement::duty::{RecordChange, Request, Subject, foretell, next_changes};
use crate::placement::homes::{LedGroup, Standing, orders};
use crate::placement::{Step, carry_out};
use crate::records::{
    DeviceDuty, DeviceRecord, DeviceState, GroupRecord, NodeDuty, NodePlaceRecord, NodeSetRecord, Record, WantedRecord,
    keys,
};
use crate::typed::encode;
use runtime::Instant;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{GroupId, Mutant, NodeId, StoreId, mutant};

/// A device whose node has had no session for so long is given up, if that takes no last copy away and somebody can have
/// what it held.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(15 * 60);
/// So much of the map's history is kept, and up to twice as much is there.
pub const HISTORY_KEPT: Duration = Duration::from_secs(10 * 60);
/// Transactions of one turn; what is left follows in the next, after what was heard meanwhile.
const WRITES_MAX: usize = 64;

/// What a turn came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turned {
    /// Changes that were asked for.
    pub tried: usize,
    /// Those of them that were made.
    pub written: usize,
    /// Something was refused, or is left: another turn may do more.
    pub is_more: bool,
}

/// A node that controls.
#[derive(Debug)]
pub struct Reigning {
    control: Control,
    known: Followed,
    /// Something has changed by which it is decided who is to hold what.
    is_due: bool,
    /// Devices whose node has no session, and since when that was seen.
    gone_since: BTreeMap<StoreId, Instant>,
    /// Nodes of node sets whose members are all in sync, and since when.
    in_sync_since: BTreeMap<(u32, NodeId), Instant>,
    took: Duration,
    /// When history was forgotten last, and where the map was then.
    compacted: Option<(Instant, Revision)>,
}

impl Reigning {
    /// Begins with what a listing says.
    pub fn new(control: Control, known: Followed) -> Self {
        Self {
            control,
            known,
            is_due: true,
            gone_since: BTreeMap::new(),
            in_sync_since: BTreeMap::new(),
            took: Duration::ZERO,
            compacted: None,
        }
    }

    /// What the map's watch says. Returns false if another controls by now, or the record of this reign is another: a map that
    /// went back in time, or was made anew, takes nothing of it any more.
    pub fn hear(&mut self, events: &[Event]) -> bool {
        for event in events {
            self.is_due |= self.known.hear_event(event) == Heard::Duties;
        }
        self.lasts()
    }

    /// Whether the map's record is that of this reign.
    pub fn lasts(&self) -> bool {
        match mutant(Mutant::ReignOutlivesRecord) {
            true => self.known.control.as_ref().is_some_and(|record| record.epoch <= self.control.epoch),
            false => self.known.revision(keys::CONTROL) == self.control.modified,
        }
    }

    /// Its reign.
    pub fn control(&self) -> Control {
        self.control
    }

    /// What is known.
    pub fn known(&self) -> &Followed {
        &self.known
    }

    /// Whether something is to be decided anew.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// What the last look at all groups took.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The steps that are due of orders that stand: little work, however many groups there are.
    ///
    /// # Errors
    /// The map's.
    pub async fn step(&mut self, map: &dyn MapStore) -> Result<Turned, CatalogError> {
        let mut turned = Turned::default();
        let wanted: Vec<GroupId> = self.known.records().wanted.keys().copied().collect();
        for group in wanted {
            let view = self.known.records();
            let (Some(record), Some(order)) = (view.groups.get(&group), view.wanted.get(&group)) else { continue };
            let Step::Change(next) = carry_out(record, Some(order), Duration::ZERO) else { continue };
            if turned.tried >= WRITES_MAX {
                turned.is_more = true;
                break;
            }
            if ![record.key(), order.key()].iter().all(|key| self.known.is_readable(key)) {
                // A later release has said something of it that this one does not understand.
                continue;
            }
            let transaction = self.change_of(&next, order);
            self.write(map, transaction, &mut turned).await?;
        }
        Ok(turned)
    }

    /// The group's record changes as an order says.
    fn change_of(&self, next: &GroupRecord, order: &WantedRecord) -> Transaction {
        let (key, order_key) = (next.key(), order.key());
        let (modified, order_modified) = (self.known.revision(&key), self.known.revision(&order_key));
        self.control.transaction().expect(order_key, order_modified).expect(&key, modified).put(key, encode(next))
    }

    /// What is to be said next: as much work as there are groups. Nothing, unless something has changed.
    ///
    /// # Errors
    /// The map's.
    pub async fn plan(&mut self, map: &dyn MapStore, now: Instant, wall_ns: u64) -> Result<Turned, CatalogError> {
        let mut turned = Turned::default();
        self.give_up(map, now, &mut turned).await?;
        let mut changes = self.over(wall_ns);
        changes.extend(self.leads(now));
        if std::mem::take(&mut self.is_due) {
            let began = runtime::now();
            // A record that cannot be read: nothing is decided, and status says why.
            changes.extend(self.known.view().map(next_changes).unwrap_or_default());
            self.took = runtime::now().since(began);
        }
        changes.retain(|change| change.puts().iter().all(|(key, _)| self.known.is_readable(key)));
        for change in changes {
            if turned.tried >= WRITES_MAX {
                (turned.is_more, self.is_due) = (true, true);
                break;
            }
            let transaction = compared(self.control.transaction(), &self.known, &change);
            self.write(map, transaction, &mut turned).await?;
        }
        Ok(turned)
    }

    /// Has the map forget its history, which grows with each change, but for the last [`HISTORY_KEPT`]: who follows it is not
    /// that far behind.
    ///
    /// # Errors
    /// The map's.
    pub async fn forget_history(&mut self, map: &dyn MapStore, now: Instant) -> Result<(), CatalogError> {
        if self.compacted.is_some_and(|(at, _)| now.since(at) < HISTORY_KEPT) {
            return Ok(());
        }
        let was = self.compacted.replace((now, map.list(keys::CONTROL).await?.revision));
        match was {
            Some((_, through)) if through > Revision(0) => Ok(map.compact(through).await?),
            _ => Ok(()),
        }
    }

    /// Maintenance that is over.
    fn over(&self, wall_ns: u64) -> Vec<RecordChange> {
        let is_over = |place: &&NodePlaceRecord| match place.duty {
            NodeDuty::Maintenance { until_ns } => until_ns <= wall_ns,
            NodeDuty::In | NodeDuty::Draining => false,
        };
        let over = self.known.records().node_places.values().filter(is_over);
        over.map(|place| RecordChange::NodePlace(NodePlaceRecord { duty: NodeDuty::In, ..place.clone() })).collect()
    }

    /// Devices that have been away for too long. Not while their node is in maintenance.
    fn away_for_long(&mut self, now: Instant) -> Vec<StoreId> {
        let (records, sessions) = (self.known.records(), &self.known.sessions);
        let rests = |node: NodeId| {
            records.node_places.get(&node).is_some_and(|place| matches!(place.duty, NodeDuty::Maintenance { .. }))
        };
        let is_held = |store: StoreId| records.device_places.get(&store).is_none_or(|p| p.duty != DeviceDuty::Out);
        // One that nobody has opened yet is not away: its node has joined, and is started later.
        let is_gone =
            |device: &&DeviceRecord| device.state == DeviceState::Active && !sessions.contains_key(&device.store);
        let devices = records.devices.values().filter(is_gone);
        let gone: Vec<StoreId> =
            devices.filter(|device| is_held(device.store) && !rests(device.node)).map(|device| device.store).collect();
        self.gone_since.retain(|store, _| gone.contains(store));
        let mut due = Vec::new();
        for store in gone {
            let since = *self.gone_since.entry(store).or_insert(now);
            if now.since(since) >= GIVE_UP_AFTER {
                due.push(store);
            }
        }
        due
    }

    /// Gives up what has been away for too long, and can be done without by who is there: two that are away, each with the
    /// other's last copies, are not given up.
    async fn give_up(&mut self, map: &dyn MapStore, now: Instant, turned: &mut Turned) -> Result<(), CatalogError> {
        for store in self.away_for_long(now) {
            if turned.tried >= WRITES_MAX {
                turned.is_more = true;
                break;
            }
            // Whatever comes of it: not again at once.
            self.gone_since.insert(store, now);
            if !self.is_held_elsewhere(store) && !mutant(Mutant::GivenUpAlone) {
                continue;
            }
            let Ok(view) = self.known.view() else { return Ok(()) };
            let Ok(forecast) = foretell(view, &Request::GiveUp(Subject::Device(store))) else { continue };
            // Whoever came back meanwhile is not given up.
            let transaction = self.control.transaction().expect_absent(keys::session(store));
            let with = |transaction, change| compared(transaction, &self.known, change);
            let transaction = in_order(forecast.changes.iter().fold(transaction, with), &self.known);
            self.write(map, transaction, turned).await?;
        }
        Ok(())
    }

    /// Whether of each group that has a copy in sync here another copy in sync is at a node that is there.
    fn is_held_elsewhere(&self, store: StoreId) -> bool {
        let is_there = |other: &StoreId| *other != store && self.known.sessions.contains_key(other);
        let mut held = self.known.records().groups.values().filter(|group| group.in_sync.contains(&store));
        held.all(|group| group.in_sync.iter().any(is_there))
    }

    /// Who leads the groups of node sets.
    fn leads(&mut self, now: Instant) -> Vec<RecordChange> {
        let (records, alive) = (self.known.records(), self.known.alive());
        let mut changes = Vec::new();
        for set in records.sets.values() {
            let led: Vec<LedGroup> =
                set.groups.iter().filter_map(|group| records.groups.get(group)).map(|group| self.led(group)).collect();
            let standing = |node: &NodeId| {
                let is_in_sync = led.iter().all(|group| group.in_sync.iter().any(|(at, _)| at == node));
                let since = self.in_sync_since.entry((set.table, *node)).or_insert(now);
                if !is_in_sync {
                    *since = now;
                }
                let duty = records.node_places.get(node).map(|place| place.duty).unwrap_or_default();
                Standing {
                    node: *node,
                    may_lead: alive.contains(node) && duty == NodeDuty::In,
                    in_sync_for: is_in_sync.then(|| now.since(*since)),
                }
            };
            let standings: Vec<Standing> = set.nodes.iter().map(standing).collect();
            let lead = orders(&standings, set.lead, &led).lead;
            if lead != set.lead {
                changes.push(RecordChange::NodeSet(NodeSetRecord { lead, ..set.clone() }));
            }
        }
        changes
    }

    fn led(&self, group: &GroupRecord) -> LedGroup {
        let at = |store: &StoreId| Some((self.known.records().devices.get(store)?.node, *store));
        LedGroup { group: group.id, primary: group.primary, in_sync: group.in_sync.iter().filter_map(at).collect() }
    }

    /// Whoever was faster, or has heard of something else, decides; what this node did it knows at once.
    async fn write(
        &mut self,
        map: &dyn MapStore,
        transaction: Transaction,
        turned: &mut Turned,
    ) -> Result<(), CatalogError> {
        let changes = transaction.changes.clone();
        turned.tried += 1;
        match is_done(map, transaction).await? {
            Some(revision) => {
                for change in &changes {
                    let value = match change {
                        Change::Put { value, .. } => Some(&value[..]),
                        Change::Delete { .. } => None,
                    };
                    self.is_due |= self.known.hear(change.key(), value, revision) == Heard::Duties;
                }
                turned.written += 1;
            }
            // What was decided by is another by now: the watch tells.
            None => turned.is_more = true,
        }
        Ok(())
    }
}

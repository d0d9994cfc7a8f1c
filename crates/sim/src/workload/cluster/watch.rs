//! What holds at every instant, asked of all members at once while they run.

use super::bounds::Longest;
use super::client::Clients;
use super::control::Control;
use super::layout::Layout;
use super::machine::Machine;
use crate::workload::Failure;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use replication::Standing;
use replication::protocol::Membership;
use std::rc::Rc;
use types::{GroupId, Seq, StoreId, Term};

/// Entries that a group has prepared and not committed, at most: 4,096 (the window), and the two that begin an epoch.
const PREPARED_MAX: u64 = 4_096 + 2;

/// Looks for one at what takes longer: space, and damage that was met.
const LOOKS_PER_LONG_ONE: u64 = 20;

/// One member of a group as it stands, and which of its store's lives it is.
pub struct Member {
    pub group: GroupId,
    /// Index of its store.
    pub store: usize,
    /// Number of its process.
    pub process: u32,
    pub standing: Standing,
}

/// All members that take part in their groups, as they stand at this instant.
pub fn members(layout: &Layout, machines: &[Rc<Machine>]) -> Vec<Member> {
    let mut members = Vec::new();
    for machine in machines.iter().filter(|machine| machine.node.is_up()) {
        let Some(process) = machine.process().filter(|process| process.begun.get()) else { continue };
        for (core, groups) in process.cores.borrow().iter() {
            machine.node.look(*core, || {
                for shard in groups.shards() {
                    let Some(store) = layout.store_index(shard.store_id()) else { continue };
                    for group in shard.groups() {
                        let (group, standing, process) = (group.id(), group.standing(), machine.starts.get());
                        members.push(Member { group, store, process, standing });
                    }
                }
            });
        }
    }
    members
}

/// What was seen so far.
#[derive(Default)]
pub struct Watch {
    /// Who leads, or led, in an epoch of a group: the store and its process. A map that was restored gives an epoch again;
    /// then two may have led in it, one after the other, and their terms differ.
    pub leaders: HashMap<(GroupId, Term), (usize, u32), FixedState>,
    /// What a member of a process had committed.
    pub committed: HashMap<(GroupId, usize, u32), Seq, FixedState>,
    /// Damaged places that a shard of a process has met, by its store, its process and its number.
    damage_met: HashMap<(usize, u32, usize), u64, FixedState>,
    /// Of all queues.
    pub longest: Longest,
    /// The map was restored from a backup, or will be.
    pub has_restored: bool,
    /// Times that was looked.
    pub looks: u64,
}

impl Watch {
    /// Nothing was seen yet. `has_restored`: the map will be restored from a backup.
    pub fn new(has_restored: bool) -> Self {
        Self { has_restored, ..Self::default() }
    }

    /// Reigns seen.
    pub fn reigns(&self) -> u64 {
        self.leaders.len() as u64
    }

    /// Damaged places that members have met.
    pub fn damage_met(&self) -> u64 {
        self.damage_met.values().sum()
    }

    /// Counts the damage that shards have met whose disks lied.
    fn look_at_damage(&mut self, layout: &Layout, machines: &[Rc<Machine>]) {
        for machine in machines.iter().filter(|machine| machine.node.is_up() && machine.lies() > 0) {
            let Some(process) = machine.process() else { continue };
            for (core, groups) in process.cores.borrow().iter() {
                machine.node.look(*core, || {
                    for shard in groups.shards() {
                        let Some(store) = layout.store_index(shard.store_id()) else { continue };
                        let shard = shard.store();
                        let met = shard.damage_met().len() as u64 + shard.damage_unlisted();
                        self.damage_met.insert((store, machine.starts.get(), usize::from(shard.index().0)), met);
                    }
                });
            }
        }
    }

    /// Looks at all members at this instant.
    pub fn look(
        &mut self,
        layout: &Layout,
        machines: &[Rc<Machine>],
        clients: &Clients,
        control: &Control,
    ) -> Result<(), Failure> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_PER_LONG_ONE) {
            self.look_at_damage(layout, machines);
            self.longest.look(machines)?;
            clients.full_stores.look(layout, machines)?;
        }
        let mut serving: HashMap<GroupId, usize, FixedState> = HashMap::default();
        for member in members(layout, machines) {
            let (group, store, standing) = (member.group, member.store, &member.standing);
            self.look_at(&member)?;
            if !standing.serves {
                continue;
            }
            if let Some(other) = serving.insert(group, store) {
                let message = format!("group {group}: stores {other} and {store} both serve reads");
                return Err(Failure::new("reigns", message));
            }
            let told = clients.acknowledged.borrow().get(&group).copied().unwrap_or_default();
            let index = layout.groups.iter().position(|plan| plan.id == group);
            if standing.committed < told && index.is_some_and(|index| control.is_judged(index)) {
                let (epoch, committed) = (standing.record.epoch, standing.committed);
                let message = format!(
                    "group {group}: store {store} serves in epoch {epoch} with entries up to {committed}, and a client was told of {told}"
                );
                return Err(Failure::new("reigns", message));
            }
        }
        Ok(())
    }

    fn look_at(&mut self, member: &Member) -> Result<(), Failure> {
        let Member { group, store, process, standing, .. } = member;
        let Standing { record, committed, durable, .. } = standing;
        let epoch = record.epoch;
        if standing.serves || standing.leads {
            let term = if self.has_restored { record.term() } else { epoch.into() };
            let leader = *self.leaders.entry((*group, term)).or_insert((*store, *process));
            if leader != (*store, *process) {
                let message = format!("group {group}: {leader:?} and {:?} lead in epoch {epoch}", (store, process));
                return Err(Failure::new("reigns", message));
            }
        }
        if durable.0.saturating_sub(committed.0) > PREPARED_MAX {
            let message =
                format!("group {group}, store {store}: prepared up to {durable}, committed up to {committed}");
            return Err(Failure::new("window", message));
        }
        let before = self.committed.entry((*group, *store, *process)).or_default();
        if committed < before {
            let message = format!("group {group}, store {store}: committed up to {before}, then up to {committed}");
            return Err(Failure::new("order", message));
        }
        *before = *committed;
        Ok(())
    }
}

/// One line for each member of a group, for whoever reads about a failure.
pub fn describe(layout: &Layout, machines: &[Rc<Machine>], group: GroupId) -> String {
    let mut out = String::new();
    let name = |id: &StoreId| layout.store_index(*id).map_or("?".to_owned(), |index| index.to_string());
    let names = |ids: &[StoreId]| ids.iter().map(name).collect::<Vec<_>>().join(" ");
    for member in members(layout, machines).iter().filter(|member| member.group == group) {
        let Standing { record, leads, serves, whole, damaged, committed, durable, stopped, poison } = &member.standing;
        let Membership { epoch, primary, in_sync, eligible, joining, .. } = &**record;
        out += &format!(
            "\n  store {} (node {}): epoch {epoch} of {}, leads {leads}, serves {serves}, whole {whole} ({damaged} damaged), in sync [{}], eligible [{}], joining [{}], committed {committed}, durable {durable}{}{}",
            member.store,
            layout.stores[member.store].node,
            name(primary),
            names(in_sync),
            names(eligible),
            names(joining),
            stopped.as_ref().map_or_else(String::new, |why| format!(", stopped: {why}")),
            poison.map_or_else(String::new, |poison| format!(", nobody applies {poison}")),
        );
    }
    for machine in machines {
        let state = match (machine.node.is_up(), machine.has_begun()) {
            (false, _) => "down",
            (true, false) => "starting",
            (true, true) => "up",
        };
        let failed = machine.failed_stores();
        if state != "up" || !failed.is_empty() {
            out += &format!("\n  node {}: {state} {failed:?}", machine.index);
        }
    }
    out
}

//! A group in two: a child takes over half of its slots, on the same devices, so that no data moves.
//!
//! The child's log is another one, and leaves remember the seq of what was last done to them: so its seqs begin above
//! all that its parent has given out, and its first epoch above its parent's.

use crate::records::{GroupRecord, NodeSetRecord, SplitRecord};
use crate::slots::{SlotRun, SlotTable};
use types::{Epoch, GroupId, Incarnation, Seq, Slot};

/// What a split changes in the map, all in one transaction or as many as there are tables, children last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The child.
    pub child: GroupRecord,
    /// Where its seqs begin.
    pub record: SplitRecord,
    /// The tables that had slots of the parent.
    pub tables: Vec<SplitTable>,
    /// The parent's node set, with the child.
    pub set: Option<NodeSetRecord>,
}

/// A table before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitTable {
    /// The table.
    pub table: u32,
    /// All of its runs, in order.
    pub runs: Vec<SlotRun>,
}

/// Why a group stays whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSplit {
    /// It has one slot in some table.
    #[error("group {0} has a single slot of table {1}: it cannot be halved")]
    OneSlot(GroupId, u32),
    /// It has none.
    #[error("group {0} has no slot in any table")]
    NoSlot(GroupId),
    /// Not all of it is where it should be.
    #[error("group {0} has members that are not in sync: split it when they are")]
    NotInSync(GroupId),
}

/// How often all groups of a pool should be halved now that it has so many devices: each time that doubles their number
/// without more than there are for a new pool of that size. The number of a pool's groups is rounded up: so may be what
/// it is doubled to.
pub fn splits_due(groups: u32, devices: u32, replicas: u32) -> u32 {
    let rule = super::groups_for(devices, replicas);
    let times = match groups {
        1 => rule,
        _ => rule.saturating_sub(1).checked_div(groups.saturating_sub(1)).unwrap_or(0),
    };
    times.checked_ilog2().unwrap_or(0)
}

/// Splits a group. `above`: the last seq that its primary has given out, told by it after it has stopped giving out any
/// for the slots that go.
///
/// # Errors
/// If it cannot be halved, or is not in sync.
pub fn split(
    parent: &GroupRecord,
    child: GroupId,
    above: Seq,
    tables: &[(u32, SlotTable)],
    set: Option<&NodeSetRecord>,
) -> Result<Split, NoSplit> {
    if parent.in_sync.len() != parent.members.len() {
        return Err(NoSplit::NotInSync(parent.id));
    }
    let theirs: Vec<_> = tables.iter().filter(|(_, table)| table.groups().contains(&parent.id)).collect();
    if theirs.is_empty() {
        return Err(NoSplit::NoSlot(parent.id));
    }
    let halved = |(id, table): &&(u32, SlotTable)| {
        let runs = halve(table, parent.id, child).ok_or(NoSplit::OneSlot(parent.id, *id))?;
        Ok(SplitTable { table: *id, runs })
    };
    let record = GroupRecord { id: child, epoch: Epoch(parent.epoch.0 + 1), life: Incarnation(0), ..parent.clone() };
    let with_child = |set: &NodeSetRecord| {
        let mut set = set.clone();
        set.groups.push(child);
        set
    };
    Ok(Split {
        child: record,
        record: SplitRecord { child, parent: parent.id, above },
        tables: theirs.iter().map(halved).collect::<Result<_, NoSplit>>()?,
        set: set.filter(|set| set.groups.contains(&parent.id)).map(with_child),
    })
}

/// The table's runs with the upper half of the parent's slots given to the child; `None`: there is only one.
fn halve(table: &SlotTable, parent: GroupId, child: GroupId) -> Option<Vec<SlotRun>> {
    let all = (0..=u16::MAX).map(Slot);
    let slots = all.clone().filter(|slot| table.group_of(*slot) == parent).count();
    let stay = slots.div_ceil(2);
    if stay == slots {
        return None;
    }
    let (mut seen, mut runs) = (0, Vec::<SlotRun>::new());
    for slot in all {
        let mut group = table.group_of(slot);
        if group == parent {
            seen += 1;
            group = if seen > stay { child } else { parent };
        }
        match runs.last_mut() {
            Some(run) if run.group == group => run.last = slot,
            _ => runs.push(SlotRun { first: slot, last: slot, group }),
        }
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::GroupState;
    use types::{NodeId, StoreId};

    fn parent(id: u32) -> GroupRecord {
        let members: Vec<StoreId> = (1..=3).map(StoreId).collect();
        GroupRecord {
            id: GroupId(id),
            table: 1,
            pool: "fast".to_owned(),
            epoch: Epoch(7),
            primary: members[1],
            life: Incarnation(4),
            in_sync: members.clone(),
            eligible: Vec::new(),
            joining: Vec::new(),
            members,
            min_in_sync: 2,
            state: GroupState::Active,
            forced: None,
        }
    }

    fn table(groups: &[u32]) -> SlotTable {
        let groups: Vec<GroupId> = groups.iter().copied().map(GroupId).collect();
        SlotTable::from_runs(&SlotTable::deal(&groups)).expect("whole")
    }

    /// Each slot is its group's or, of the parent's, the child's; halves differ by one slot at most.
    #[test]
    fn the_child_gets_half_of_the_slots_in_each_table() {
        let tables = [(1, table(&[1, 2, 3])), (2, table(&[2])), (3, table(&[1, 3]))];
        let set = NodeSetRecord {
            table: 2,
            pool: "fast".to_owned(),
            nodes: vec![NodeId(1)],
            lead: NodeId(1),
            groups: vec![GroupId(2)],
        };
        let split = split(&parent(2), GroupId(9), Seq(1000), &tables, Some(&set)).expect("can be halved");
        assert_eq!(split.tables.iter().map(|table| table.table).collect::<Vec<_>>(), vec![1, 2]);
        for after in &split.tables {
            let before = &tables.iter().find(|(id, _)| *id == after.table).expect("there").1;
            let after = SlotTable::from_runs(&after.runs).expect("whole");
            let (mut kept, mut given) = (0u32, 0u32);
            for slot in (0..=u16::MAX).map(Slot) {
                match (before.group_of(slot), after.group_of(slot)) {
                    (GroupId(2), GroupId(2)) => kept += 1,
                    (GroupId(2), GroupId(9)) => given += 1,
                    (was, is) => assert_eq!(was, is, "slot {slot}"),
                }
            }
            assert!(kept.abs_diff(given) <= 1 && given > 0, "{kept} kept, {given} given");
        }
        assert_eq!(split.set.expect("of the set").groups, vec![GroupId(2), GroupId(9)]);
    }

    #[test]
    fn the_child_lies_where_its_parent_does_and_follows_on_it() {
        let parent = parent(1);
        let split = split(&parent, GroupId(9), Seq(1000), &[(1, table(&[1, 2]))], None).expect("can be halved");
        let GroupRecord { epoch, members, in_sync, primary, .. } = &split.child;
        assert_eq!((members, in_sync, primary), (&parent.members, &parent.in_sync, &parent.primary));
        assert!(*epoch > parent.epoch, "its epochs are no epoch of its parent");
        assert_eq!(split.child.life, Incarnation(0), "nobody has led it yet");
        assert_eq!(split.record, SplitRecord { child: GroupId(9), parent: GroupId(1), above: Seq(1000) });
    }

    #[test]
    fn what_cannot_be_halved_is_refused() {
        let all: Vec<u32> = (1..=65_536).collect();
        let one_each = [(1, table(&all))];
        assert_eq!(split(&parent(5), GroupId(70_000), Seq(1), &one_each, None), Err(NoSplit::OneSlot(GroupId(5), 1)));
        let others = [(1, table(&[1]))];
        assert_eq!(split(&parent(5), GroupId(9), Seq(1), &others, None), Err(NoSplit::NoSlot(GroupId(5))));
        let mut sick = parent(1);
        sick.joining.push(sick.in_sync.pop().expect("three"));
        assert_eq!(split(&sick, GroupId(9), Seq(1), &others, None), Err(NoSplit::NotInSync(GroupId(1))));
    }

    #[test]
    fn groups_are_halved_when_there_are_twice_as_many_devices() {
        for (devices, due) in [(1, 0), (3, 0), (5, 0), (6, 1), (11, 1), (12, 2), (24, 3)] {
            assert_eq!(splits_due(100, devices, 3), due, "{devices} devices");
        }
    }
}

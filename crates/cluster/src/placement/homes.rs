//! Who leads the groups of a node set when nodes come and go. No clock: who calls says for how long something has been
//! so.

use std::time::Duration;
use types::{GroupId, NodeId, StoreId};

/// The home leads again when all of its groups have been in sync there for so long.
pub const HOME_AFTER: Duration = Duration::from_secs(60);

/// A node of a set, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The node.
    pub node: NodeId,
    /// Whether it may lead: it is heard of, and not in maintenance or draining.
    pub may_lead: bool,
    /// For how long its members of all groups of the table have been in sync; `None`: they are not.
    pub in_sync_for: Option<Duration>,
}

/// A group of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedGroup {
    /// The group.
    pub group: GroupId,
    /// Who leads it.
    pub primary: StoreId,
    /// Its members in sync, each with its node.
    pub in_sync: Vec<(NodeId, StoreId)>,
}

/// What is to be done about a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// The node that is to lead all groups of the table, and is to be the head of its volumes.
    pub lead: NodeId,
    /// Groups that another one leads, and who is to.
    pub hand_over: Vec<(GroupId, StoreId)>,
    /// Groups that wait: nobody on that node is in sync.
    pub waiting: Vec<GroupId>,
}

/// Who is to lead. `set`: its nodes in order, the home first. `lead`: who was to lead so far.
///
/// The lead stays where it is while it may. When it may not, it goes to the first node of the set on which all groups
/// are in sync; if there is none, to the one where most are. It goes home after [`HOME_AFTER`].
pub fn orders(set: &[Standing], lead: NodeId, groups: &[LedGroup]) -> Orders {
    let next = next_lead(set, lead, groups);
    let mut orders = Orders { lead: next, hand_over: Vec::new(), waiting: Vec::new() };
    for group in groups {
        let here = group.in_sync.iter().filter(|(node, _)| *node == next).map(|(_, store)| *store);
        let here: Vec<StoreId> = here.collect();
        match here.first() {
            None => orders.waiting.push(group.group),
            Some(_) if here.contains(&group.primary) => {}
            Some(store) => orders.hand_over.push((group.group, *store)),
        }
    }
    orders
}

fn next_lead(set: &[Standing], lead: NodeId, groups: &[LedGroup]) -> NodeId {
    let may_lead: Vec<&Standing> = set.iter().filter(|standing| standing.may_lead).collect();
    let Some(home) = set.first() else { return lead };
    let is_home_again = home.may_lead && home.in_sync_for.is_some_and(|since| since >= HOME_AFTER);
    if is_home_again {
        return home.node;
    }
    if may_lead.iter().any(|standing| standing.node == lead) {
        return lead;
    }
    let in_sync = |node: NodeId| groups.iter().filter(|group| group.in_sync.iter().any(|(at, _)| *at == node)).count();
    let most = may_lead.iter().map(|standing| in_sync(standing.node)).max().unwrap_or(0);
    let next = may_lead.iter().find(|standing| in_sync(standing.node) == most && most > 0);
    next.map_or(lead, |standing| standing.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: NodeId = NodeId(1);
    const NEXT: NodeId = NodeId(2);
    const LAST: NodeId = NodeId(3);

    fn standing(up: [bool; 3], in_sync_s: [Option<u64>; 3]) -> Vec<Standing> {
        let one = |at: usize| Standing {
            node: [HOME, NEXT, LAST][at],
            may_lead: up[at],
            in_sync_for: in_sync_s[at].map(Duration::from_secs),
        };
        (0..3).map(one).collect()
    }

    fn group(id: u32, primary: NodeId, in_sync: &[NodeId]) -> LedGroup {
        let store = |node: NodeId| StoreId(u128::from(node.0) * 100 + u128::from(id));
        LedGroup {
            group: GroupId(id),
            primary: store(primary),
            in_sync: in_sync.iter().map(|node| (*node, store(*node))).collect(),
        }
    }

    #[test]
    fn all_groups_of_a_dead_home_go_to_the_same_next_node() {
        let up = standing([false, true, true], [None, Some(500), Some(500)]);
        // Where the protocol's own take-over gave one to the last node, it is handed on.
        let groups = [group(1, NEXT, &[NEXT, LAST]), group(2, LAST, &[NEXT, LAST]), group(3, HOME, &[NEXT, LAST])];
        let orders = orders(&up, HOME, &groups);
        assert_eq!(orders.lead, NEXT);
        assert_eq!(orders.hand_over, vec![(GroupId(2), StoreId(202)), (GroupId(3), StoreId(203))]);
        assert!(orders.waiting.is_empty());
    }

    #[test]
    fn a_node_with_more_groups_in_sync_comes_before_the_next_in_order() {
        let up = standing([false, true, true], [None, None, Some(500)]);
        let groups = [group(1, LAST, &[LAST]), group(2, NEXT, &[NEXT, LAST])];
        let orders = orders(&up, HOME, &groups);
        assert_eq!((orders.lead, orders.hand_over), (LAST, vec![(GroupId(2), StoreId(302))]));
    }

    #[test]
    fn the_home_leads_again_after_a_minute_in_sync_and_not_before() {
        let groups = [group(1, NEXT, &[HOME, NEXT, LAST])];
        for (in_sync_for, lead) in [(None, NEXT), (Some(0), NEXT), (Some(59), NEXT), (Some(60), HOME)] {
            let up = standing([true; 3], [in_sync_for, Some(500), Some(500)]);
            assert_eq!(orders(&up, NEXT, &groups).lead, lead, "in sync for {in_sync_for:?} s");
        }
        let away = standing([false, true, true], [Some(100), Some(500), Some(500)]);
        assert_eq!(orders(&away, NEXT, &groups).lead, NEXT);
    }

    #[test]
    fn the_lead_stays_where_it_is_while_others_come_and_go() {
        let groups = [group(1, NEXT, &[NEXT])];
        let up = standing([false, true, false], [None, Some(500), None]);
        assert_eq!(orders(&up, NEXT, &groups), Orders { lead: NEXT, hand_over: vec![], waiting: vec![] });
    }

    #[test]
    fn groups_that_nobody_there_has_in_sync_wait() {
        let groups = [group(1, NEXT, &[NEXT, LAST]), group(2, LAST, &[LAST])];
        let up = standing([false, true, true], [None, None, None]);
        let first = orders(&up, NEXT, &groups);
        assert_eq!((first.lead, first.waiting), (NEXT, vec![GroupId(2)]));
        let none = standing([false; 3], [None; 3]);
        assert_eq!(orders(&none, NEXT, &groups).lead, NEXT, "if nobody may lead, nothing changes");
    }
}

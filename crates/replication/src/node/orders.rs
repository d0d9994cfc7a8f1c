//! What the map orders: who is to lead a group (`wanted/G`), and groups that have a member here from now on.

use super::core::CoreGroups;
use super::map_side::{Asker, MapSide, Says};
use super::timing::Timing;
use crate::group::Group;
use cluster::{GroupRecord, WantedRecord, decode, get, keys};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use runtime::Instant;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use types::{GroupId, StoreId};

/// Who is to lead, where an order says so. As good as the last that was heard: it says who asks first, and nothing more.
#[derive(Default)]
pub(super) struct Orders(RefCell<HashMap<GroupId, StoreId, FixedState>>);

/// An order as the map says it: none any more, or who is to lead.
pub(super) type Ordered = (GroupId, Option<StoreId>);

/// What is said at this key, if it is an order.
pub(super) fn ordered(key: &str, value: Option<&[u8]>) -> Option<Ordered> {
    let group = GroupId(u32::from_str_radix(key.strip_prefix(keys::WANTED)?, 16).ok()?);
    let order = value.and_then(|value| decode::<WantedRecord>(key, value).ok());
    Some((group, order.and_then(|order| order.members.first().copied())))
}

/// Tells all cores. `is_all`: there are no others.
pub(super) fn tell_orders(core: &Rc<CoreGroups>, orders: Vec<Ordered>, is_all: bool) {
    if orders.is_empty() && !is_all {
        return;
    }
    let orders = Arc::new(orders);
    for index in 0..core.shared.lines.len() as u16 {
        let orders = orders.clone();
        core.tell(index, move |core| {
            let mut known = core.orders.0.borrow_mut();
            if is_all {
                known.clear();
            }
            for (group, leads) in orders.iter() {
                match leads {
                    Some(store) => drop(known.insert(*group, *store)),
                    None => drop(known.remove(group)),
                }
            }
        });
    }
}

impl CoreGroups {
    /// Who is to lead the group, if an order says so.
    pub(super) fn is_to_lead(&self, group: GroupId) -> Option<StoreId> {
        self.orders.0.borrow().get(&group).copied()
    }

    /// The map was heard to say that a store here is a member: it takes part when the map says so by a look.
    pub(super) fn look_at_new(&self, store: StoreId, group: GroupId) {
        let core = self.core;
        self.tell(0, move |first| {
            if let Some(side) = first.map_side.get() {
                side.clone().look_at_new(first.clone(), (core, store, group));
            }
        });
    }
}

impl MapSide {
    fn look_at_new(self: Rc<Self>, core: Rc<CoreGroups>, asker: Asker) {
        let (on, store, group) = asker;
        if !self.begins_to_look(store, group) {
            return;
        }
        runtime::spawn(async move {
            let found = get::<GroupRecord>(self.map(), &keys::group(group)).await;
            self.has_looked(store, group, found.is_ok());
            if let Ok(Some(found)) = found {
                core.tell(on, move |core| core.map_says(&found.record, Says::Listed));
            }
        });
    }
}

/// Whether a primary gives its group up because another is to lead, who is in sync and well, and whom the map answers: it has
/// to say there that it leads. Not at once after it took over: whoever could not take it then will not now.
pub(super) fn hands_over_by_order(
    core: &CoreGroups,
    group: &Group,
    (gone, slow): (&[StoreId], &[StoreId]),
    (at, epoch_at): (Instant, Instant),
    timing: &Timing,
) -> bool {
    let Some(leads) = core.is_to_lead(group.id()) else { return false };
    let is_due = {
        let member = group.member();
        let is_well = !gone.contains(&leads) && !slow.contains(&leads);
        let knows_all = || member.peer(leads).is_some_and(|peer| peer.has_told && peer.whole);
        let reaches_map = || core.map_answers(&[leads], Instant(at.0.saturating_sub(timing.ask.as_nanos() as u64)));
        leads != member.store()
            && group.timers.borrow().may_be_given(leads, at)
            && at.since(epoch_at) >= timing.ask
            && member.record().in_sync.contains(&leads)
            && is_well
            && reaches_map()
            && knows_all()
            && member.has_begun()
            && !member.change_under_way()
    };
    if is_due {
        log::debug!("group {}: store {leads} is to lead it", group.id());
        group.timers.borrow_mut().was_given(leads, at, timing.ask);
        group.with(|member| member.give_up(None));
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::super::policy::Timers;
    use runtime::Instant;
    use std::time::Duration;
    use types::StoreId;

    #[test]
    fn a_group_that_comes_back_is_given_again_later_each_time() {
        let (mut timers, first) = (Timers::default(), Duration::from_secs(1));
        let (one, other) = (StoreId(1), StoreId(2));
        let mut at = Instant(0) + Duration::from_secs(100);
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(timers.may_be_given(other, at), "another is not waited for");
            timers.was_given(one, at, first);
            let given = at;
            while !timers.may_be_given(one, at) {
                at = at + Duration::from_secs(1);
            }
            waits.push(at.since(given).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        // One that has kept it for long.
        at = at + Duration::from_secs(3600);
        timers.was_given(one, at, first);
        assert!(timers.may_be_given(one, at + first));
    }
}

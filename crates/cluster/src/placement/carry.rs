//! What is done about an order, step by step, so that a group's record comes to say what is wanted.
//!
//! The control plane changes who is a member (R20 of docs/replication.md), one compare-and-swap with epoch + 1 after the
//! other; the primary takes in who has caught up, and hands over. Whoever takes over either part goes on where it stopped,
//! as the record says all there is to know. Nobody is taken out before all that are wanted are in sync.

use crate::records::{GroupRecord, WantedRecord};
use std::time::Duration;
use types::{Epoch, Mutant, StoreId, mutant};

use super::homes::HOME_AFTER;

/// Members of a group, with those that come and those that are to go: what members tell each other has room for so many.
pub const MEMBERS_MAX: usize = 16;

/// What is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: all is as it is wanted. The order may go.
    Done,
    /// The control plane changes the record to this one.
    Change(Box<GroupRecord>),
    /// The primary gives the group up; this one is first among those that may take over.
    HandOver(StoreId),
    /// These have to be in sync first; until then nobody is taken out.
    CatchUp(Vec<StoreId>),
    /// Too few are in sync to commit anything: they come first, wanted or not.
    TooFew,
    /// The order would leave the group with less than its policy: it is not carried out.
    Refused,
}

/// The next step. `wanted`: the order for it, if there is one; else what its record says is kept
/// up. `first_in_sync_for`: for how long the first of the members has been in sync.
pub fn carry_out(record: &GroupRecord, wanted: Option<&WantedRecord>, first_in_sync_for: Duration) -> Step {
    let order = wanted.map_or(&record.members, |wanted| &wanted.members);
    let is_wanted = |store: &StoreId| order.contains(store);
    let mut distinct = order.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() != order.len() || order.len() < (record.min_in_sync as usize).max(1) {
        return Step::Refused;
    }
    let joins: Vec<StoreId> = order.iter().filter(|store| !record.members.contains(store)).copied().collect();
    if !joins.is_empty() {
        let mut next = next(record);
        if record.members.len() + joins.len() > MEMBERS_MAX {
            // Earlier orders may have brought others that hold nothing that counts yet.
            next.joining.retain(is_wanted);
            next.members.retain(|store| is_wanted(store) || !record.joining.contains(store));
            let is_less = next.members.len() < record.members.len();
            return if is_less { Step::Change(Box::new(next)) } else { Step::Refused };
        }
        next.members.extend(&joins);
        next.joining.extend(&joins);
        return Step::Change(Box::new(next));
    }
    if record.in_sync.len() < record.min_in_sync as usize || !record.eligible.is_empty() {
        return Step::TooFew;
    }
    let missing: Vec<StoreId> = order.iter().filter(|store| !record.in_sync.contains(store)).copied().collect();
    if wanted.is_some() && !missing.is_empty() && !mutant(Mutant::TakenOutTooEarly) {
        return Step::CatchUp(missing);
    }
    let leads = order[0];
    let is_due = wanted.is_some() || first_in_sync_for >= HOME_AFTER;
    if record.primary != leads && record.in_sync.contains(&leads) && is_due {
        return Step::HandOver(leads);
    }
    // Those in sync hold all that is committed, and all that are wanted are among them: nobody else is needed any more.
    let in_sync: Vec<StoreId> = order.iter().filter(|store| record.in_sync.contains(store)).copied().collect();
    let joining: Vec<StoreId> = record.joining.iter().filter(|store| is_wanted(store)).copied().collect();
    if in_sync != record.in_sync || joining != record.joining || *order != record.members {
        return Step::Change(Box::new(GroupRecord { in_sync, joining, members: order.clone(), ..next(record) }));
    }
    Step::Done
}

fn next(record: &GroupRecord) -> GroupRecord {
    GroupRecord { epoch: Epoch(record.epoch.0 + 1), ..record.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::GroupState;
    use types::{GroupId, Incarnation};

    const NOW: Duration = Duration::ZERO;

    fn stores(ids: &[u128]) -> Vec<StoreId> {
        ids.iter().copied().map(StoreId).collect()
    }

    fn record(in_sync: &[u128], joining: &[u128], primary: u128) -> GroupRecord {
        GroupRecord {
            id: GroupId(1),
            table: 1,
            pool: "fast".to_owned(),
            epoch: Epoch(5),
            primary: StoreId(primary),
            life: Incarnation(1),
            in_sync: stores(in_sync),
            eligible: Vec::new(),
            joining: stores(joining),
            members: stores(&[in_sync, joining].concat()),
            min_in_sync: 2,
            state: GroupState::Active,
            forced: None,
        }
    }

    fn wanted(members: &[u128]) -> WantedRecord {
        WantedRecord { group: GroupId(1), members: stores(members) }
    }

    #[test]
    fn no_more_join_than_members_can_tell_each_other_of() {
        // Orders that were changed before anybody had caught up.
        let joining: Vec<u128> = (4..=16).collect();
        let full = record(&[1, 2, 3], &joining, 1);
        let next = change(carry_out(&full, Some(&wanted(&[1, 2, 20])), NOW));
        assert_eq!(
            (next.members.clone(), next.joining.len()),
            (stores(&[1, 2, 3]), 0),
            "those that hold nothing go first"
        );
        let next = change(carry_out(&next, Some(&wanted(&[1, 2, 20])), NOW));
        assert_eq!((next.members, next.joining), (stores(&[1, 2, 3, 20]), stores(&[20])));
        let many: Vec<u128> = (1..=17).collect();
        assert_eq!(carry_out(&record(&[1, 2, 3], &[], 1), Some(&wanted(&many)), NOW), Step::Refused);
    }

    fn change(step: Step) -> GroupRecord {
        let Step::Change(next) = step else { panic!("{step:?}") };
        *next
    }

    #[test]
    fn a_member_is_replaced_joining_first_and_taken_out_last() {
        let order = wanted(&[1, 2, 4]);
        let step = |record: &GroupRecord| carry_out(record, Some(&order), NOW);
        let joined = change(step(&record(&[1, 2, 3], &[], 1)));
        assert_eq!((joined.epoch, &joined.in_sync, &joined.joining), (Epoch(6), &stores(&[1, 2, 3]), &stores(&[4])));
        assert_eq!(step(&joined), Step::CatchUp(stores(&[4])), "3 stays until 4 is in sync");
        let in_sync = GroupRecord { in_sync: stores(&[1, 2, 3, 4]), joining: vec![], ..joined };
        let out = change(step(&in_sync));
        assert_eq!((&out.in_sync, &out.joining, &out.members), (&stores(&[1, 2, 4]), &vec![], &stores(&[1, 2, 4])));
        assert_eq!(step(&out), Step::Done);
    }

    #[test]
    fn a_primary_that_is_to_go_hands_over_before_anybody_is_taken_out() {
        let order = wanted(&[2, 3, 4]);
        let all = record(&[2, 3, 4, 1], &[], 1);
        assert_eq!(carry_out(&all, Some(&order), NOW), Step::HandOver(StoreId(2)));
        let led = GroupRecord { primary: StoreId(2), ..all };
        assert_eq!(change(carry_out(&led, Some(&order), NOW)).members, stores(&[2, 3, 4]));
    }

    #[test]
    fn nothing_is_taken_out_while_too_few_are_in_sync() {
        let mut alone = record(&[1], &[2], 1);
        alone.eligible = stores(&[3]);
        alone.members.push(StoreId(3));
        assert_eq!(carry_out(&alone, Some(&wanted(&[1, 2])), NOW), Step::TooFew);
        let healed = record(&[1, 2], &[3], 1);
        assert_eq!(change(carry_out(&healed, Some(&wanted(&[1, 2])), NOW)).members, stores(&[1, 2]));
    }

    #[test]
    fn an_order_below_the_policy_is_refused() {
        for members in [&[][..], &[1], &[1, 1]] {
            assert_eq!(carry_out(&record(&[1, 2, 3], &[], 1), Some(&wanted(members)), NOW), Step::Refused);
        }
    }

    #[test]
    fn without_an_order_the_record_is_kept_up() {
        // Who came back is last in the list of those in sync, and again in its place.
        let mut back = record(&[2, 3, 1], &[], 2);
        back.members = stores(&[1, 2, 3]);
        let ordered = change(carry_out(&back, None, NOW));
        assert_eq!(ordered.in_sync, stores(&[1, 2, 3]));
        assert_eq!(carry_out(&ordered, None, HOME_AFTER - Duration::from_secs(1)), Step::Done);
        assert_eq!(carry_out(&ordered, None, HOME_AFTER), Step::HandOver(StoreId(1)));
        // Who is away is waited for, and nobody is taken out.
        let away = GroupRecord { in_sync: stores(&[2, 3]), joining: stores(&[1]), ..ordered };
        assert_eq!(carry_out(&away, None, HOME_AFTER), Step::Done);
    }
}

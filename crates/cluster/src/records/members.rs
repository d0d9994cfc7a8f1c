//! Who is a member of a group: changed by whoever replaces devices (R20 of docs/replication.md).

use super::{Forced, GroupRecord, GroupState};
use types::{Epoch, GroupId, Incarnation, StoreId};

/// Why the members of a group stay as they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembersError {
    /// It is one already.
    #[error("store {store} is a member of group {group}")]
    IsMember {
        /// The group.
        group: GroupId,
        /// The store.
        store: StoreId,
    },
    /// It is none.
    #[error("store {store} is no member of group {group}")]
    IsNoMember {
        /// The group.
        group: GroupId,
        /// The store.
        store: StoreId,
    },
    /// It is the primary: another has to lead first.
    #[error("store {store} leads group {group}")]
    Leads {
        /// The group.
        group: GroupId,
        /// The store.
        store: StoreId,
    },
    /// Too few would be left in sync.
    #[error("group {group} has {in_sync} members in sync, and needs {needed} besides store {store}")]
    TooFew {
        /// The group.
        group: GroupId,
        /// The store.
        store: StoreId,
        /// Members in sync, with it.
        in_sync: usize,
        /// Members that must be left.
        needed: usize,
    },
}

impl GroupRecord {
    /// A group that nobody has led yet: all members are in sync, and the first one is to lead.
    ///
    /// # Panics
    /// Without a member.
    pub fn begun_with(id: GroupId, (table, pool): (u32, String), members: Vec<StoreId>, min_in_sync: u32) -> Self {
        Self {
            id,
            table,
            pool,
            epoch: Epoch(0),
            primary: members[0],
            life: Incarnation(0),
            in_sync: members.clone(),
            eligible: Vec::new(),
            joining: Vec::new(),
            members,
            min_in_sync,
            state: GroupState::Active,
            forced: None,
        }
    }

    /// The next record, in which `store` is a member too: it counts for nothing before it has caught up.
    ///
    /// # Errors
    /// If it is one already.
    pub fn with_joining(&self, store: StoreId) -> Result<Self, MembersError> {
        if self.members.contains(&store) {
            return Err(MembersError::IsMember { group: self.id, store });
        }
        let mut next = self.in_next_epoch();
        next.joining.push(store);
        next.members.push(store);
        Ok(next)
    }

    /// The next record, in which `store` is no member any more. Who is in sync holds all that is committed, so nobody else
    /// is needed for it; of those in sync, none is taken out that others do not make up for.
    ///
    /// # Errors
    /// If it is none, leads, or is needed.
    pub fn without_member(&self, store: StoreId) -> Result<Self, MembersError> {
        let group = self.id;
        if !self.members.contains(&store) {
            return Err(MembersError::IsNoMember { group, store });
        }
        if self.primary == store {
            return Err(MembersError::Leads { group, store });
        }
        let (in_sync, needed) = (self.in_sync.len(), (self.min_in_sync as usize).max(1));
        if self.in_sync.contains(&store) && in_sync <= needed {
            return Err(MembersError::TooFew { group, store, in_sync, needed });
        }
        let mut next = self.in_next_epoch();
        for list in [&mut next.in_sync, &mut next.eligible, &mut next.joining, &mut next.members] {
            list.retain(|member| *member != store);
        }
        Ok(next)
    }

    /// The record in which an operator says whose copy counts: `store` leads, alone in sync, whatever it lacks; all others
    /// come back by catch-up. `known`: the newest epoch that any member knows, which may be newer than the map's.
    ///
    /// # Errors
    /// If it is no member.
    pub fn forced_by(&self, store: StoreId, known: Epoch) -> Result<Self, MembersError> {
        if !self.members.contains(&store) {
            return Err(MembersError::IsNoMember { group: self.id, store });
        }
        let epoch = Epoch(self.epoch.max(known).0 + 1);
        Ok(Self {
            epoch,
            primary: store,
            // None of its lives leads yet: it asks for the lead in one.
            life: Incarnation(0),
            in_sync: vec![store],
            eligible: Vec::new(),
            joining: self.members.iter().copied().filter(|member| *member != store).collect(),
            forced: Some(Forced { epoch, store }),
            ..self.clone()
        })
    }

    fn in_next_epoch(&self) -> Self {
        Self { epoch: Epoch(self.epoch.0 + 1), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::GroupState;
    use types::Incarnation;

    const A: StoreId = StoreId(1);
    const B: StoreId = StoreId(2);
    const C: StoreId = StoreId(3);
    const D: StoreId = StoreId(4);

    fn record() -> GroupRecord {
        GroupRecord {
            id: GroupId(5),
            table: 1,
            pool: "fast".to_owned(),
            epoch: Epoch(7),
            primary: A,
            life: Incarnation(2),
            in_sync: vec![A, B],
            eligible: vec![],
            joining: vec![C],
            members: vec![A, B, C],
            min_in_sync: 2,
            state: GroupState::Active,
            forced: None,
        }
    }

    #[test]
    fn who_replaces_another_joins_before_that_one_goes() {
        let with = record().with_joining(D).expect("it is none");
        assert_eq!((with.epoch, &with.joining[..], &with.members[..]), (Epoch(8), &[C, D][..], &[A, B, C, D][..]));
        assert_eq!((with.primary, with.life, &with.in_sync[..]), (A, Incarnation(2), &[A, B][..]));
        let without = with.without_member(C).expect("it counts for nothing");
        assert_eq!((without.epoch, &without.joining[..], &without.members[..]), (Epoch(9), &[D][..], &[A, B, D][..]));
        assert!(matches!(without.with_joining(D), Err(MembersError::IsMember { .. })));
        assert!(matches!(without.without_member(C), Err(MembersError::IsNoMember { .. })));
    }

    #[test]
    fn nobody_is_taken_out_who_leads_or_without_whom_too_few_are_in_sync() {
        assert!(matches!(record().without_member(A), Err(MembersError::Leads { .. })));
        let needed = record().without_member(B);
        assert!(matches!(needed, Err(MembersError::TooFew { in_sync: 2, needed: 2, .. })), "{needed:?}");
        let three = GroupRecord { in_sync: vec![A, B, C], joining: vec![], ..record() };
        let two = three.without_member(B).expect("two are left");
        assert_eq!((&two.in_sync[..], &two.members[..]), (&[A, C][..], &[A, C][..]));
    }

    #[test]
    fn the_last_one_in_sync_stays_and_who_is_eligible_may_go() {
        let alone = GroupRecord { in_sync: vec![A], eligible: vec![B], min_in_sync: 1, ..record() };
        let next = alone.without_member(B).expect("A holds all of it");
        assert_eq!((&next.in_sync[..], &next.eligible[..], &next.members[..]), (&[A][..], &[][..], &[A, C][..]));
        let other_leads = GroupRecord { primary: B, ..alone };
        assert!(matches!(other_leads.without_member(A), Err(MembersError::TooFew { in_sync: 1, needed: 1, .. })));
    }
}

//! A group's record in the map, and the part of it that the protocol goes by.

use crate::protocol::Membership;
use cluster::GroupRecord;

/// Who is who, by the record.
pub(crate) fn membership_of(record: &GroupRecord) -> Membership {
    Membership {
        epoch: record.epoch,
        primary: record.primary,
        life: record.life,
        in_sync: record.in_sync.clone(),
        eligible: record.eligible.clone(),
        joining: record.joining.clone(),
        min_in_sync: record.min_in_sync as usize,
    }
}

/// The record, with another who is who.
pub(crate) fn with_membership(record: &GroupRecord, who: &Membership) -> GroupRecord {
    GroupRecord {
        epoch: who.epoch,
        primary: who.primary,
        life: who.life,
        in_sync: who.in_sync.clone(),
        eligible: who.eligible.clone(),
        joining: who.joining.clone(),
        ..record.clone()
    }
}

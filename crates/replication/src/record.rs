//! A group's record in the map, and the part of it that the protocol goes by.

use crate::group::MemberState;
use crate::protocol::Membership;
use cluster::{GroupRecord, decode};
use store::GroupRecovery;
use types::Epoch;

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

/// The newest record of a group that a member wrote down, of what was found of it on its device. `base`: another record of the
/// group, for what members do not tell each other.
pub fn newest_record(found: &GroupRecovery, base: Option<&GroupRecord>) -> Option<GroupRecord> {
    let in_log = found.record.as_deref().and_then(|bytes| decode::<GroupRecord>("", bytes).ok());
    let heard = MemberState::decode(found.member_state.as_deref()).heard;
    let epoch = in_log.as_ref().map_or(Epoch(0), |record| record.epoch);
    match (heard.filter(|heard| heard.epoch > epoch), in_log.as_ref().or(base)) {
        (Some(heard), Some(base)) => {
            let mut record = with_membership(base, &heard);
            // Members came and went with epochs that are not in the log.
            record.members.retain(|member| heard.members().any(|store| store == *member));
            let new: Vec<_> = heard.members().filter(|store| !record.members.contains(store)).collect();
            record.members.extend(new);
            Some(record)
        }
        _ => in_log,
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

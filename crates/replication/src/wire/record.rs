//! A group's record, as far as its members tell it to each other.

use super::body::begin_fixed;
use super::bytes::{put_u32, put_u64, put_u128, u16_at, u32_at, u64_at, u128_at};
use super::{EPOCH_MAX, WireError};
use crate::protocol::Membership;
use types::{Epoch, Incarnation, StoreId};

/// Most members of a group.
pub const MAX_MEMBERS: usize = cluster::placement::MEMBERS_MAX;

const WHAT: &str = "record";
const FIXED_BYTES: usize = 40;
const MEMBER_BYTES: usize = 16;

/// Appends a record; returns its length.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 40 |
/// | 2 | 1 | members in sync |
/// | 3 | 1 | eligible members |
/// | 4 | 1 | joining members |
/// | 5 | 1 | fewest in sync that may commit |
/// | 6 | 2 | zero |
/// | 8 | 4 | epoch |
/// | 12 | 4 | zero |
/// | 16 | 16 | primary |
/// | 32 | 8 | which of its lives leads |
/// | 40 | 16 × members | stores: those in sync, those eligible, those joining; each once |
pub(crate) fn encode_record(record: &Membership, out: &mut Vec<u8>) -> Result<u16, WireError> {
    check(record)?;
    let start = out.len();
    let fixed = begin_fixed::<FIXED_BYTES>(out);
    fixed[2] = record.in_sync.len() as u8;
    fixed[3] = record.eligible.len() as u8;
    fixed[4] = record.joining.len() as u8;
    fixed[5] = record.min_in_sync as u8;
    put_u32(fixed, 8, record.epoch.0);
    put_u128(fixed, 16, record.primary.0);
    put_u64(fixed, 32, record.life.0);
    record.members().for_each(|store| out.extend_from_slice(&store.0.to_le_bytes()));
    Ok((out.len() - start) as u16)
}

/// What a sender never sends: so many members that the lists are not a record's, a member twice.
fn check(record: &Membership) -> Result<(), WireError> {
    let count = record.members().count();
    if count > MAX_MEMBERS {
        return Err(WireError::field(WHAT, "number of members", count as u64));
    }
    if record.min_in_sync > MAX_MEMBERS {
        return Err(WireError::field(WHAT, "fewest in sync", record.min_in_sync as u64));
    }
    if record.epoch > EPOCH_MAX {
        return Err(WireError::field(WHAT, "epoch", record.epoch.0));
    }
    let is_twice = |(index, store)| record.members().take(index).any(|before| before == store);
    match record.members().enumerate().any(is_twice) {
        true => Err(WireError::field(WHAT, "member that is there twice, of", count as u64)),
        false => Ok(()),
    }
}

/// `from` is all that was sent of it.
pub(crate) fn decode_record(from: &[u8]) -> Result<Membership, WireError> {
    if from.len() < FIXED_BYTES {
        return Err(WireError::Short { what: WHAT, expected: FIXED_BYTES, found: from.len() });
    }
    let fixed = usize::from(u16_at(from, 0));
    if fixed < FIXED_BYTES || fixed > from.len() {
        return Err(WireError::field(WHAT, "length of the fixed part", fixed as u64));
    }
    let [in_sync, eligible, joining] = [from[2], from[3], from[4]].map(usize::from);
    let count = in_sync + eligible + joining;
    if count > MAX_MEMBERS {
        return Err(WireError::field(WHAT, "number of members", count as u64));
    }
    let Some(list) = from[fixed..].get(..count * MEMBER_BYTES) else {
        return Err(WireError::Short { what: WHAT, expected: fixed + count * MEMBER_BYTES, found: from.len() });
    };
    let mut stores = list.chunks_exact(MEMBER_BYTES).map(|item| StoreId(u128_at(item, 0)));
    let record = Membership {
        epoch: Epoch(u32_at(from, 8)),
        primary: StoreId(u128_at(from, 16)),
        life: Incarnation(u64_at(from, 32)),
        in_sync: stores.by_ref().take(in_sync).collect(),
        eligible: stores.by_ref().take(eligible).collect(),
        joining: stores.collect(),
        min_in_sync: usize::from(from[5]),
    };
    check(&record)?;
    Ok(record)
}

//! What a member writes down of itself, in its store (R11, R15, R16).

use crate::protocol::Membership;
use crate::wire::{decode_record, encode_record};
use runtime::{IoBuf, SharedBuf};
use std::sync::Arc;
use types::Seq;

/// See the module.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 1 | 2 |
/// | 1 | 1 | 1 if it lacks nothing before its log's end |
/// | 2 | 8 | the entry that nobody can apply; 0: there is none |
/// | 10 | … | the newest record that it has heard of, as members tell it to each other; nothing, if its log has that |
///
/// Earlier builds wrote 1 in the first byte, and after the second only the entry that nobody can apply, if there was one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberState {
    pub(crate) whole: bool,
    pub(crate) poison: Option<Seq>,
    pub(crate) heard: Option<Arc<Membership>>,
}

impl MemberState {
    const FIXED_BYTES: usize = 10;

    pub(crate) fn encode(&self) -> SharedBuf {
        let mut bytes = vec![2, u8::from(self.whole)];
        bytes.extend(self.poison.unwrap_or_default().0.to_le_bytes());
        if let Some(heard) = &self.heard {
            // It came as a record, and was looked at then.
            encode_record(heard, &mut bytes).expect("a record that is known is one");
        }
        IoBuf::copy_of(&bytes).freeze()
    }

    /// What was written down; of a member that never wrote anything, nothing is wrong. What cannot be read says nothing
    /// good.
    pub(crate) fn decode(bytes: Option<&[u8]>) -> Self {
        let nothing_good = Self { whole: false, poison: None, heard: None };
        let Some(bytes) = bytes else { return Self { whole: true, ..nothing_good } };
        let Some(([2, whole, poison @ ..], record)) = bytes.split_first_chunk::<{ Self::FIXED_BYTES }>() else {
            return Self::of_earlier_build(bytes).unwrap_or(nothing_good);
        };
        let poison = poison_of(*poison);
        match (record.is_empty(), decode_record(record)) {
            (true, _) => Self { whole: *whole == 1, poison, heard: None },
            (false, Ok(heard)) => Self { whole: *whole == 1, poison, heard: Some(Arc::new(heard)) },
            (false, Err(_)) => Self { poison, ..nothing_good },
        }
    }

    fn of_earlier_build(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [1, whole] => Some(Self { whole: *whole == 1, poison: None, heard: None }),
            [1, whole, poison @ ..] => {
                Some(Self { whole: *whole == 1, poison: poison_of(poison.try_into().ok()?), heard: None })
            }
            _ => None,
        }
    }
}

fn poison_of(bytes: [u8; 8]) -> Option<Seq> {
    Some(Seq(u64::from_le_bytes(bytes))).filter(|poison| *poison > Seq(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, Incarnation, StoreId};

    #[test]
    fn what_is_written_down_is_read() {
        let record = Membership {
            epoch: Epoch(7),
            primary: StoreId(1),
            life: Incarnation(3),
            in_sync: vec![StoreId(1)],
            eligible: vec![StoreId(2)],
            joining: vec![StoreId(3)],
            min_in_sync: 2,
        };
        for whole in [true, false] {
            for poison in [None, Some(Seq(0x10_0007))] {
                for heard in [None, Some(Arc::new(record.clone()))] {
                    let state = MemberState { whole, poison, heard };
                    assert_eq!(MemberState::decode(Some(&state.encode())), state);
                }
            }
        }
        let nothing_good = MemberState { whole: false, poison: None, heard: None };
        let whole = MemberState { whole: true, ..nothing_good.clone() }.encode();
        let changed = |at: usize, value| {
            let mut bytes = whole.to_vec();
            bytes[at] = value;
            MemberState::decode(Some(&bytes))
        };
        assert_eq!(changed(0, 3), nothing_good, "a later build's");
        let earlier = |bytes: &[u8]| MemberState::decode(Some(bytes));
        assert!(earlier(&[1, 1]).whole && !earlier(&[1, 0]).whole);
        assert_eq!(earlier(&[1, 1, 7, 0, 0, 0, 0, 0, 0, 0]).poison, Some(Seq(7)));
        assert_eq!(earlier(&[1, 1, 5]), nothing_good);
        assert_eq!(MemberState::decode(Some(&whole[..9])), nothing_good, "cut short");
        assert_eq!(MemberState::decode(Some(&[&whole[..], &[40, 0, 1]].concat())), nothing_good, "half a record");
        assert_eq!(MemberState::decode(Some(&[])), nothing_good);
        assert!(MemberState::decode(None).whole);
    }
}

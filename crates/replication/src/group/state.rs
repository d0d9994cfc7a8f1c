//! What a member writes down of itself, in its store (R15, R16).

use runtime::{IoBuf, SharedBuf};
use types::Seq;

/// See the module.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 1 | 1 |
/// | 1 | 1 | 1 if it lacks nothing before its log's end |
/// | 2 | 8 | only if there is one: the entry that nobody can apply |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberState {
    pub(crate) whole: bool,
    pub(crate) poison: Option<Seq>,
}

impl MemberState {
    pub(crate) fn encode(self) -> SharedBuf {
        let mut bytes = vec![1, u8::from(self.whole)];
        bytes.extend(self.poison.iter().flat_map(|poison| poison.0.to_le_bytes()));
        IoBuf::copy_of(&bytes).freeze()
    }

    /// What was written down; of a member that never wrote anything, nothing is wrong. What cannot be read says nothing
    /// good.
    pub(crate) fn decode(bytes: Option<&[u8]>) -> Self {
        match bytes {
            None => Self { whole: true, poison: None },
            Some([1, whole]) => Self { whole: *whole == 1, poison: None },
            Some([1, whole, poison @ ..]) => Self {
                whole: *whole == 1 && poison.len() == 8,
                poison: poison.try_into().ok().map(|bytes| Seq(u64::from_le_bytes(bytes))),
            },
            Some(_) => Self { whole: false, poison: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read() {
        for whole in [true, false] {
            for poison in [None, Some(Seq(0x10_0007))] {
                let state = MemberState { whole, poison };
                assert_eq!(MemberState::decode(Some(&state.encode())), state);
            }
        }
        let lacks = MemberState { whole: false, poison: None };
        assert_eq!(MemberState::decode(Some(&[2, 1])), lacks);
        assert_eq!(MemberState::decode(Some(&[1, 1, 5])), lacks);
        assert_eq!(MemberState::decode(Some(&[])), lacks);
        assert!(MemberState::decode(None).whole);
    }
}

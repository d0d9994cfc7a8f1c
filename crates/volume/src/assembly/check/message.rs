//! What is asked of a node that holds copies, and what it answers, byte by byte.
//!
//! All numbers little-endian. A leaf is 12 bytes: layer (8), chunk (4). A question:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | kind |
//! | 16 | the store |
//! | 4 | the group |
//! | | *leaves* (1): 12 bytes, the leaf behind which to begin. *held* (2): 4 bytes, how many leaves; the leaves |
//!
//! and what it is answered:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | kind |
//! | | *leaves* (1): 1 byte, whether there are more; the leaves are the payload. *held* (2): 4 bytes, how many; of each 1 byte, and if that is 0: last entry (8), digest (16), stored blocks (4); if 1: length (4) and bytes of a sentence. *no such member* (3): none |

use crate::words::Rest;
use replication::HeldLeaf;
use replication::node::Parcel;
use runtime::IoBuf;
use types::{ChunkId, GroupId, LayerId, Seq, StoreId};

const VERSION: u8 = 1;
/// Leaves that are told in one answer.
pub(super) const LEAVES_MAX: usize = 65_536;
/// Leaves that are asked for in one question.
pub(super) const HELD_MAX: usize = 32;
/// Longest sentence about a leaf that cannot be read.
const WHY_BYTES_MAX: usize = 512;

/// A chunk of a layer.
pub(super) type Leaf = (LayerId, ChunkId);

/// A member's copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) store: StoreId,
    pub(super) group: GroupId,
    pub(super) asked: Asked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Which leaves it has, behind this one; of all, behind (0, 0), where there is none.
    Leaves { after: Leaf },
    /// What it holds of these, read from the device.
    Held(Vec<Leaf>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Leaves {
        leaves: Vec<Leaf>,
        is_more: bool,
    },
    /// In the order of the question; or why it cannot be read.
    Held(Vec<Result<HeldLeaf, String>>),
    NoMember,
}

fn put_leaf(bytes: &mut Vec<u8>, (layer, chunk): Leaf) {
    bytes.extend(layer.0.to_le_bytes());
    bytes.extend(chunk.0.to_le_bytes());
}

fn leaf(rest: &mut Rest<'_>) -> Option<Leaf> {
    Some((LayerId(rest.u64()?), ChunkId(rest.u32()?)))
}

impl Question {
    pub(super) fn encode(&self) -> Vec<u8> {
        let kind = match self.asked {
            Asked::Leaves { .. } => 1,
            Asked::Held(_) => 2,
        };
        let mut bytes = vec![VERSION, kind];
        bytes.extend(self.store.0.to_le_bytes());
        bytes.extend(self.group.0.to_le_bytes());
        match &self.asked {
            Asked::Leaves { after } => put_leaf(&mut bytes, *after),
            Asked::Held(leaves) => {
                bytes.extend((leaves.len() as u32).to_le_bytes());
                leaves.iter().for_each(|leaf| put_leaf(&mut bytes, *leaf));
            }
        }
        bytes
    }

    /// `None`: it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        let (VERSION, kind) = (rest.u8()?, rest.u8()?) else { return None };
        let store = StoreId(u128::from_le_bytes(rest.take()?));
        let group = GroupId(rest.u32()?);
        let asked = match kind {
            1 => Asked::Leaves { after: leaf(&mut rest)? },
            2 => {
                let count = rest.u32().filter(|count| *count as usize <= HELD_MAX)?;
                Asked::Held(rest.list(count, leaf)?)
            }
            _ => return None,
        };
        rest.0.is_empty().then_some(Self { store, group, asked })
    }
}

impl Answer {
    pub(super) fn parcel(&self) -> Parcel {
        let mut bytes = vec![VERSION];
        match self {
            Self::Leaves { leaves, is_more } => {
                bytes.extend([1, u8::from(*is_more)]);
                let mut payload = Vec::with_capacity(12 * leaves.len());
                leaves.iter().for_each(|leaf| put_leaf(&mut payload, *leaf));
                return Parcel { head: bytes, bytes: IoBuf::copy_of(&payload).freeze() };
            }
            Self::Held(held) => {
                bytes.push(2);
                bytes.extend((held.len() as u32).to_le_bytes());
                for held in held {
                    put_held(&mut bytes, held);
                }
            }
            Self::NoMember => bytes.push(3),
        }
        Parcel::of(bytes)
    }

    /// `None`: it is none.
    pub(super) fn of(parcel: &Parcel) -> Option<Self> {
        let mut rest = Rest(&parcel.head);
        let (VERSION, kind) = (rest.u8()?, rest.u8()?) else { return None };
        let answer = match kind {
            1 => {
                let is_more = rest.u8()? != 0;
                let payload = parcel.bytes.to_vec();
                let mut listed = Rest(&payload);
                let leaves = listed.list((payload.len() / 12) as u32, leaf)?;
                listed.0.is_empty().then_some(Self::Leaves { leaves, is_more })?
            }
            2 => {
                let count = rest.u32()?;
                Self::Held(rest.list(count, held)?)
            }
            3 => Self::NoMember,
            _ => return None,
        };
        rest.0.is_empty().then_some(answer)
    }
}

fn put_held(bytes: &mut Vec<u8>, held: &Result<HeldLeaf, String>) {
    match held {
        Ok(HeldLeaf { last_seq, digest, stored_blocks }) => {
            bytes.push(0);
            bytes.extend(last_seq.0.to_le_bytes());
            bytes.extend(digest.to_le_bytes());
            bytes.extend(stored_blocks.to_le_bytes());
        }
        Err(why) => {
            let why = &why.as_bytes()[..why.len().min(WHY_BYTES_MAX)];
            bytes.push(1);
            bytes.extend((why.len() as u32).to_le_bytes());
            bytes.extend(why);
        }
    }
}

fn held(rest: &mut Rest<'_>) -> Option<Result<HeldLeaf, String>> {
    match rest.u8()? {
        0 => {
            let (last_seq, digest) = (Seq(rest.u64()?), u128::from_le_bytes(rest.take()?));
            Some(Ok(HeldLeaf { last_seq, digest, stored_blocks: rest.u32()? }))
        }
        1 => {
            let count = rest.u32()?;
            let why = rest.list(count, Rest::u8)?;
            Some(Err(String::from_utf8_lossy(&why).into_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAVES: [Leaf; 2] = [(LayerId(7), ChunkId(8)), (LayerId(9), ChunkId(u32::MAX))];

    fn questions() -> Vec<Question> {
        let asked = [Asked::Leaves { after: LEAVES[0] }, Asked::Held(LEAVES.to_vec()), Asked::Held(Vec::new())];
        asked.into_iter().map(|asked| Question { store: StoreId(1 << 100), group: GroupId(3), asked }).collect()
    }

    fn answers() -> Vec<Answer> {
        let held = HeldLeaf { last_seq: Seq(5), digest: 1 << 99, stored_blocks: 256 };
        vec![
            Answer::Leaves { leaves: LEAVES.to_vec(), is_more: true },
            Answer::Leaves { leaves: Vec::new(), is_more: false },
            Answer::Held(vec![Ok(held), Err("it is damaged".to_owned())]),
            Answer::NoMember,
        ]
    }

    #[test]
    fn what_is_said_is_heard() {
        questions().iter().for_each(|said| assert_eq!(Question::decode(&said.encode()).as_ref(), Some(said)));
        answers().iter().for_each(|said| assert_eq!(Answer::of(&said.parcel()).as_ref(), Some(said)));
    }

    #[test]
    fn what_was_cut_or_goes_on_is_none() {
        for said in questions().iter().map(Question::encode) {
            (0..said.len()).for_each(|length| assert_eq!(Question::decode(&said[..length]), None));
            assert_eq!(Question::decode(&[&said[..], &[0]].concat()), None);
        }
        for said in answers().iter().map(Answer::parcel) {
            let with_head = |head: Vec<u8>| Answer::of(&Parcel { head, bytes: said.bytes.clone() });
            (0..said.head.len()).for_each(|length| assert_eq!(with_head(said.head[..length].to_vec()), None));
            assert_eq!(with_head([&said.head[..], &[0]].concat()), None);
        }
        let too_many = Asked::Held(vec![LEAVES[0]; HELD_MAX + 1]);
        let asked = Question { store: StoreId(1), group: GroupId(1), asked: too_many };
        assert_eq!(Question::decode(&asked.encode()), None);
    }
}

//! What a forwarder and a head say to each other (H17), byte by byte: plain calls of one service, either way.
//!
//! All numbers little-endian. A question; bytes to be written are the payload of its call:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | kind |
//! | 8 | the session's number on this connection; of *settle* 0 |
//! | | *open* (1): 8 bytes volume, 8 bytes layer of the snapshot, 0: the volume itself |
//! | | *end* (2), *flush* (6), *lives* (9): none |
//! | | *read* (3): 8 bytes first byte, 4 bytes how many |
//! | | *write* (4): 8 bytes first byte |
//! | | *zero* (5): 1 byte how (1 discard, 2 zeroes, 3 zeroes that are stored), 8 bytes first byte, 8 bytes how many |
//! | | *status* (7): 8 bytes first byte, 8 bytes how many, 4 bytes extents at most, 4 bytes how many marks, 8 bytes each |
//! | | *settle* (8): 8 bytes volume |
//!
//! *Settle* and *lives* are asked by the head, all others by the forwarder. What is answered; bytes that were read are the payload:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | kind |
//! | | *welcome* (1), *elsewhere* (2), *done* (3), *lives* (6), *is gone* (7), *over* (9): none |
//! | | *extents* (4): 4 bytes how many, then each 8 bytes length, 1 byte whether stored, 4 bytes what has changed |
//! | | *settled* (5): 4 bytes how many sessions have ended by that, 8 bytes each |
//! | | *failed* (8): 1 byte which error, three numbers of 8 bytes, 4 bytes how long the sentence is, and it |

use super::SESSIONS_MAX;
use crate::api::{IoError, MAX_TRANSFER_BYTES};
use crate::status::{BlockExtent, MARKS_MAX};
use crate::words::Rest;
use types::{LayerId, VolumeId};

const VERSION: u8 = 1;
/// Longest sentence of an error.
const WHY_BYTES_MAX: usize = 1024;
/// Extents of one answer: they are 26 KiB, and a call's head has 32.
pub(super) const EXTENTS_MAX: u32 = 2048;

/// A question about a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) session: u64,
    pub(super) asked: Asked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A client wants to use the volume, or the snapshot that this layer is.
    Open {
        volume: VolumeId,
        snapshot: LayerId,
    },
    /// The client is gone.
    End,
    Read {
        offset: u64,
        len: u32,
    },
    Write {
        offset: u64,
    },
    Zero {
        how: How,
        offset: u64,
        len: u64,
    },
    Flush,
    Status {
        offset: u64,
        len: u64,
        extents_max: u32,
        marks: Vec<LayerId>,
    },
    /// Say when all is on its way that clients of the volume have sent before. Clients that are gone send nothing more.
    Settle {
        volume: VolumeId,
    },
    /// Is the client there still?
    Lives,
}

/// What becomes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Discard,
    Zero,
    Store,
}

/// What it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The session is open.
    Welcome,
    /// Not here, or not now: ask whom the map names.
    Elsewhere,
    Done,
    Extents(Vec<BlockExtent>),
    /// These have ended.
    Settled(Vec<u64>),
    Lives,
    IsGone,
    Failed(IoError),
    /// There is no such session any more: nothing was done.
    Over,
}

impl Question {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.kind()];
        let mut put = |number: u64, len: usize| bytes.extend_from_slice(&number.to_le_bytes()[..len]);
        put(self.session, 8);
        match &self.asked {
            Asked::Open { volume, snapshot } => [volume.0, snapshot.0].iter().for_each(|number| put(*number, 8)),
            Asked::End | Asked::Flush | Asked::Lives => {}
            Asked::Read { offset, len } => {
                put(*offset, 8);
                put((*len).into(), 4);
            }
            Asked::Write { offset } => put(*offset, 8),
            Asked::Zero { how, offset, len } => {
                put(1 + *how as u64, 1);
                put(*offset, 8);
                put(*len, 8);
            }
            Asked::Status { offset, len, extents_max, marks } => {
                put(*offset, 8);
                put(*len, 8);
                put((*extents_max).into(), 4);
                put(marks.len() as u64, 4);
                marks.iter().for_each(|mark| put(mark.0, 8));
            }
            Asked::Settle { volume } => put(volume.0, 8),
        }
        bytes
    }

    fn kind(&self) -> u8 {
        match self.asked {
            Asked::Open { .. } => 1,
            Asked::End => 2,
            Asked::Read { .. } => 3,
            Asked::Write { .. } => 4,
            Asked::Zero { .. } => 5,
            Asked::Flush => 6,
            Asked::Status { .. } => 7,
            Asked::Settle { .. } => 8,
            Asked::Lives => 9,
        }
    }

    /// `None`: it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        let (VERSION, kind) = (rest.u8()?, rest.u8()?) else { return None };
        let session = rest.u64()?;
        let asked = match kind {
            1 => Asked::Open { volume: VolumeId(rest.u64()?), snapshot: LayerId(rest.u64()?) },
            2 => Asked::End,
            3 => Asked::Read { offset: rest.u64()?, len: rest.u32().filter(|len| is_transfer(*len as usize))? },
            4 => Asked::Write { offset: rest.u64()? },
            5 => {
                let how = match rest.u8()? {
                    1 => How::Discard,
                    2 => How::Zero,
                    3 => How::Store,
                    _ => return None,
                };
                Asked::Zero { how, offset: rest.u64()?, len: rest.u64()? }
            }
            6 => Asked::Flush,
            7 => {
                let (offset, len) = (rest.u64()?, rest.u64().filter(|len| *len > 0)?);
                let extents_max = rest.u32().filter(|most| (1..=EXTENTS_MAX).contains(most))?;
                let count = rest.u32().filter(|count| *count as usize <= MARKS_MAX)?;
                let marks = rest.list(count, |rest| rest.u64().map(LayerId))?;
                Asked::Status { offset, len, extents_max, marks }
            }
            8 => Asked::Settle { volume: VolumeId(rest.u64()?) },
            9 => Asked::Lives,
            _ => return None,
        };
        rest.0.is_empty().then_some(Self { session, asked })
    }
}

/// Whether one command moves so many bytes.
pub(super) fn is_transfer(len: usize) -> bool {
    (1..=MAX_TRANSFER_BYTES as usize).contains(&len)
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        match self {
            Self::Welcome => bytes.push(1),
            Self::Elsewhere => bytes.push(2),
            Self::Done => bytes.push(3),
            Self::Extents(extents) => {
                bytes.push(4);
                bytes.extend((extents.len() as u32).to_le_bytes());
                for BlockExtent { len_bytes, is_stored, changed_since } in extents {
                    bytes.extend(len_bytes.to_le_bytes());
                    bytes.push((*is_stored).into());
                    bytes.extend(changed_since.to_le_bytes());
                }
            }
            Self::Settled(ended) => {
                bytes.push(5);
                bytes.extend((ended.len() as u32).to_le_bytes());
                ended.iter().for_each(|session| bytes.extend(session.to_le_bytes()));
            }
            Self::Lives => bytes.push(6),
            Self::IsGone => bytes.push(7),
            Self::Failed(error) => {
                bytes.push(8);
                encode_error(error, &mut bytes);
            }
            Self::Over => bytes.push(9),
        }
        bytes
    }

    /// `None`: it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        let (VERSION, kind) = (rest.u8()?, rest.u8()?) else { return None };
        let answer = match kind {
            1 => Self::Welcome,
            2 => Self::Elsewhere,
            3 => Self::Done,
            4 => {
                let count = rest.u32().filter(|count| *count <= EXTENTS_MAX)?;
                Self::Extents(rest.list(count, |rest| {
                    let len_bytes = rest.u64()?;
                    let is_stored = rest.u8().filter(|is| *is < 2)? == 1;
                    Some(BlockExtent { len_bytes, is_stored, changed_since: rest.u32()? })
                })?)
            }
            5 => {
                let count = rest.u32().filter(|count| *count as usize <= SESSIONS_MAX)?;
                Self::Settled(rest.list(count, Rest::u64)?)
            }
            6 => Self::Lives,
            7 => Self::IsGone,
            8 => Self::Failed(decode_error(&mut rest)?),
            9 => Self::Over,
            _ => return None,
        };
        rest.0.is_empty().then_some(answer)
    }
}

/// 1 out of range, 2 no space, 3 damaged, 4 compare failed, 5 read only, 6 gone, 7 changing, 8 stopped, 9 elsewhere, 10 abandoned,
/// 11 unavailable.
fn encode_error(error: &IoError, bytes: &mut Vec<u8>) {
    let (kind, numbers, why) = match error {
        IoError::OutOfRange { offset_bytes, len_bytes, size_bytes } => {
            (1, [*offset_bytes, *len_bytes, *size_bytes], "")
        }
        IoError::NoSpace(why) => (2, [0; 3], why.as_str()),
        IoError::Damaged(why) => (3, [0; 3], why.as_str()),
        IoError::CompareFailed(at) => (4, [*at, 0, 0], ""),
        IoError::ReadOnly => (5, [0; 3], ""),
        IoError::Gone(why) => (6, [0; 3], why.as_str()),
        IoError::Changing(why) => (7, [0; 3], why.as_str()),
        IoError::Stopped(why) => (8, [0; 3], why.as_str()),
        IoError::Elsewhere(why) => (9, [0; 3], why.as_str()),
        IoError::Abandoned => (10, [0; 3], ""),
        IoError::Unavailable(why) => (11, [0; 3], why.as_str()),
    };
    let why = &why[..why.floor_char_boundary(WHY_BYTES_MAX)];
    bytes.push(kind);
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes.extend((why.len() as u32).to_le_bytes());
    bytes.extend_from_slice(why.as_bytes());
}

fn decode_error(rest: &mut Rest<'_>) -> Option<IoError> {
    let kind = rest.u8()?;
    let [first, second, third] = [rest.u64()?, rest.u64()?, rest.u64()?];
    let count = rest.u32().filter(|count| *count as usize <= WHY_BYTES_MAX)?;
    let why = String::from_utf8(rest.list(count, Rest::u8)?).ok()?;
    let (has_numbers, has_words) = ((first, second, third) != (0, 0, 0), !why.is_empty());
    let error = match kind {
        1 => IoError::OutOfRange { offset_bytes: first, len_bytes: second, size_bytes: third },
        2 => IoError::NoSpace(why),
        3 => IoError::Damaged(why),
        4 => IoError::CompareFailed(first),
        5 => IoError::ReadOnly,
        6 => IoError::Gone(why),
        7 => IoError::Changing(why),
        8 => IoError::Stopped(why),
        9 => IoError::Elsewhere(why),
        10 => IoError::Abandoned,
        11 => IoError::Unavailable(why),
        _ => return None,
    };
    // Numbers and words are there where the error has them, and nowhere else.
    let may_have_numbers = kind == 1 || kind == 4 && (second, third) == (0, 0);
    let may_have_words = ![1, 4, 5, 10].contains(&kind);
    ((!has_numbers || may_have_numbers) && (!has_words || may_have_words)).then_some(error)
}

/// Any bytes as a question, and as an answer: what is taken is encoded again as it was.
pub(super) fn fuzz(bytes: &[u8]) {
    if let Some(question) = Question::decode(bytes) {
        assert_eq!(question.encode(), bytes, "{question:?}");
    }
    if let Some(answer) = Answer::decode(bytes) {
        assert_eq!(answer.encode(), bytes, "{answer:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions() -> Vec<Question> {
        let asked = [
            Asked::Open { volume: VolumeId(7), snapshot: LayerId(0x0102) },
            Asked::End,
            Asked::Read { offset: 4096, len: 1 << 20 },
            Asked::Write { offset: 1 },
            Asked::Zero { how: How::Discard, offset: 1, len: 1 << 40 },
            Asked::Zero { how: How::Zero, offset: 1, len: 2 },
            Asked::Zero { how: How::Store, offset: 1, len: 2 },
            Asked::Flush,
            Asked::Status { offset: 5, len: 6, extents_max: 2048, marks: vec![LayerId(8), LayerId(9)] },
            Asked::Settle { volume: VolumeId(7) },
            Asked::Lives,
        ];
        asked.into_iter().map(|asked| Question { session: 3, asked }).collect()
    }

    fn answers() -> Vec<Answer> {
        let extent = |len_bytes, is_stored| BlockExtent { len_bytes, is_stored, changed_since: 0x8000_0001 };
        let why = || "no".to_owned();
        let errors = [
            IoError::OutOfRange { offset_bytes: 1, len_bytes: 2, size_bytes: 3 },
            IoError::NoSpace(why()),
            IoError::Damaged(why()),
            IoError::CompareFailed(9),
            IoError::ReadOnly,
            IoError::Gone(why()),
            IoError::Changing(why()),
            IoError::Stopped(why()),
            IoError::Elsewhere(why()),
            IoError::Abandoned,
            IoError::Unavailable(why()),
        ];
        let rest = [
            Answer::Welcome,
            Answer::Elsewhere,
            Answer::Done,
            Answer::Extents(vec![extent(4096, true), extent(1, false)]),
            Answer::Settled(vec![1, 2]),
            Answer::Lives,
            Answer::IsGone,
            Answer::Over,
        ];
        errors.into_iter().map(Answer::Failed).chain(rest).collect()
    }

    #[test]
    fn what_is_said_is_what_is_heard_and_nothing_shorter_or_longer_is() {
        for question in questions() {
            let bytes = question.encode();
            assert_eq!(Question::decode(&bytes).as_ref(), Some(&question));
            (0..bytes.len()).for_each(|end| assert_eq!(Question::decode(&bytes[..end]), None, "{question:?}: {end}"));
            assert_eq!(Question::decode(&[&bytes[..], &[0]].concat()), None);
        }
        for answer in answers() {
            let bytes = answer.encode();
            assert_eq!(Answer::decode(&bytes).as_ref(), Some(&answer));
            (0..bytes.len()).for_each(|end| assert_eq!(Answer::decode(&bytes[..end]), None, "{answer:?}: {end}"));
            assert_eq!(Answer::decode(&[&bytes[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn the_bytes_stay_as_they_are() {
        let head = [3, 0, 0, 0, 0, 0, 0, 0];
        let golden = [&[1, 1][..], &head, &[7, 0, 0, 0, 0, 0, 0, 0], &[2, 1, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(questions()[0].encode(), golden);
        let golden = [&[1, 3][..], &head, &[0, 16, 0, 0, 0, 0, 0, 0], &[0, 0, 16, 0]].concat();
        assert_eq!(questions()[2].encode(), golden);
        let golden = [&[1, 5][..], &head, &[1], &[1, 0, 0, 0, 0, 0, 0, 0], &[0, 0, 0, 0, 0, 1, 0, 0]].concat();
        assert_eq!(questions()[4].encode(), golden);
        let marks = [8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        let range = [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0];
        let golden = [&[1, 7][..], &head, &range, &[0, 8, 0, 0, 2, 0, 0, 0], &marks].concat();
        assert_eq!(questions()[8].encode(), golden);
        let golden = [&[1, 8, 2][..], &[0; 24], &[2, 0, 0, 0], b"no"].concat();
        assert_eq!(answers()[1].encode(), golden);
        let extents = [&[0, 16, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 128][..], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 128]];
        assert_eq!(answers()[14].encode(), [&[1, 4, 2, 0, 0, 0][..], &extents.concat()].concat());
    }

    #[test]
    fn what_is_out_of_bounds_is_none() {
        let ask = |asked| Question::decode(&Question { session: 1, asked }.encode());
        assert_eq!(ask(Asked::Read { offset: 0, len: 0 }), None);
        assert_eq!(ask(Asked::Read { offset: 0, len: MAX_TRANSFER_BYTES + 1 }), None);
        let status = |extents_max, marks| Asked::Status { offset: 0, len: 1, extents_max, marks };
        assert_eq!(ask(status(0, vec![])), None);
        assert_eq!(ask(status(EXTENTS_MAX + 1, vec![])), None);
        assert_eq!(ask(status(1, vec![LayerId(1); MARKS_MAX + 1])), None);
        // A count of what never came takes no memory.
        assert_eq!(Answer::decode(&[1, 5, 255, 255, 255, 255]), None);
        // What is as long as it may be travels in one call.
        let extent = BlockExtent { len_bytes: 1, is_stored: true, changed_since: 0 };
        let longest = Answer::Extents(vec![extent; EXTENTS_MAX as usize]).encode();
        assert!(longest.len() <= replication::node::MAX_CALL_HEAD_BYTES);
        assert!(Answer::Settled(vec![0; SESSIONS_MAX]).encode().len() <= replication::node::MAX_CALL_HEAD_BYTES);
        let long = IoError::Damaged("ä".repeat(WHY_BYTES_MAX));
        let Some(Answer::Failed(IoError::Damaged(why))) = Answer::decode(&Answer::Failed(long).encode()) else {
            panic!("it is one")
        };
        assert_eq!(why.len(), WHY_BYTES_MAX);
    }

    #[test]
    fn any_bytes_are_taken_or_not_and_nothing_else() {
        for bytes in questions().iter().map(Question::encode).chain(answers().iter().map(Answer::encode)) {
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut other = bytes.clone();
                    other[at] ^= 1 << bit;
                    fuzz(&other);
                }
            }
        }
    }
}

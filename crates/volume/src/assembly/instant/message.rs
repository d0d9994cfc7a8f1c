//! What the nodes say to each other for a snapshot of several volumes (H12), byte by byte.
//!
//! All numbers little-endian. A question, and what it is answered:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | kind |
//! | 16 | question: which instant, a random number |
//! | 4 | how many volumes or layers follow |
//! | | *prepare* (1): 8 bytes each, the volume. *stop* (2): 24 bytes each, volume, old top, new top. *go* (3), *over* (4): none |
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | kind |
//! | 4 | how many follow |
//! | | *prepared* (1): 20 bytes each, volume, its epoch (4 bytes), its top. *stopped* (2), *was still stopped* (3), *had gone on* (4), *heard* (5): none. *refused* (6), *refused for good* (7): bytes of a sentence |

use crate::words::Rest;
use types::{LayerId, VolumeEpoch, VolumeId};

const VERSION: u8 = 1;
/// Longest sentence of a refusal.
const WHY_BYTES_MAX: usize = 4096;

/// What a head is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// Which instant it is about.
    pub(super) instant: u128,
    pub(super) asked: Asked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Say under which reign these are served; nothing else of them changes until *stop*.
    Prepare(Vec<VolumeId>),
    /// The map has these new tops: let nothing in any more, and say so when nothing runs.
    Stop(Vec<Tops>),
    /// All have stopped: go on.
    Go,
    /// It is over, whatever came of it.
    Over,
}

/// What a volume writes to, and what it is to write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tops {
    pub(super) volume: VolumeId,
    pub(super) old: LayerId,
    pub(super) new: LayerId,
}

/// A volume as its head serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Here {
    pub(super) volume: VolumeId,
    pub(super) epoch: VolumeEpoch,
    pub(super) top: LayerId,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Prepared(Vec<Here>),
    Stopped,
    /// To *go*: nothing was let in from *stopped* until now.
    WasStillStopped,
    /// To *go*: it has gone on by itself.
    HadGoneOn,
    Heard,
    Refused {
        why: String,
        /// Asking again would come to the same.
        for_good: bool,
    },
}

impl Answer {
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self::Refused { why: why.into(), for_good: false }
    }
}

impl Question {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, count) = match &self.asked {
            Asked::Prepare(volumes) => (1, volumes.len()),
            Asked::Stop(tops) => (2, tops.len()),
            Asked::Go => (3, 0),
            Asked::Over => (4, 0),
        };
        let mut bytes = vec![VERSION, kind];
        bytes.extend(self.instant.to_le_bytes());
        bytes.extend((count as u32).to_le_bytes());
        match &self.asked {
            Asked::Prepare(volumes) => volumes.iter().for_each(|volume| bytes.extend(volume.0.to_le_bytes())),
            Asked::Stop(tops) => {
                for Tops { volume, old, new } in tops {
                    [volume.0, old.0, new.0].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
                }
            }
            Asked::Go | Asked::Over => {}
        }
        bytes
    }

    /// `None`: it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        let (VERSION, kind) = (rest.u8()?, rest.u8()?) else { return None };
        let instant = u128::from_le_bytes(rest.take()?);
        let count = rest.u32()?;
        let asked = match kind {
            1 => Asked::Prepare(rest.list(count, |rest| rest.u64().map(VolumeId))?),
            2 => Asked::Stop(rest.list(count, |rest| {
                Some(Tops { volume: VolumeId(rest.u64()?), old: LayerId(rest.u64()?), new: LayerId(rest.u64()?) })
            })?),
            3 if count == 0 => Asked::Go,
            4 if count == 0 => Asked::Over,
            _ => return None,
        };
        rest.0.is_empty().then_some(Self { instant, asked })
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, count) = match self {
            Self::Prepared(here) => (1, here.len()),
            Self::Stopped => (2, 0),
            Self::WasStillStopped => (3, 0),
            Self::HadGoneOn => (4, 0),
            Self::Heard => (5, 0),
            Self::Refused { why, for_good } => (if *for_good { 7 } else { 6 }, why.len().min(WHY_BYTES_MAX)),
        };
        let mut bytes = vec![VERSION, kind];
        bytes.extend((count as u32).to_le_bytes());
        match self {
            Self::Prepared(all) => {
                for Here { volume, epoch, top } in all {
                    bytes.extend(volume.0.to_le_bytes());
                    bytes.extend(epoch.0.to_le_bytes());
                    bytes.extend(top.0.to_le_bytes());
                }
            }
            Self::Refused { why, .. } => bytes.extend(&why.as_bytes()[..count]),
            _ => {}
        }
        bytes
    }

    /// `None`: it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        let (VERSION, kind) = (rest.u8()?, rest.u8()?) else { return None };
        let count = rest.u32()?;
        let answer = match kind {
            1 => Self::Prepared(rest.list(count, |rest| {
                let (volume, epoch) = (VolumeId(rest.u64()?), VolumeEpoch(rest.u32()?));
                Some(Here { volume, epoch, top: LayerId(rest.u64()?) })
            })?),
            2 if count == 0 => Self::Stopped,
            3 if count == 0 => Self::WasStillStopped,
            4 if count == 0 => Self::HadGoneOn,
            5 if count == 0 => Self::Heard,
            6 | 7 => {
                let why = rest.list(count, Rest::u8)?;
                Self::Refused { why: String::from_utf8_lossy(&why).into_owned(), for_good: kind == 7 }
            }
            _ => return None,
        };
        rest.0.is_empty().then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions() -> Vec<Question> {
        let tops = Tops { volume: VolumeId(7), old: LayerId(8), new: LayerId(9) };
        let asked = [Asked::Prepare(vec![VolumeId(1), VolumeId(2)]), Asked::Stop(vec![tops]), Asked::Go, Asked::Over];
        asked.into_iter().map(|asked| Question { instant: 0x0102, asked }).collect()
    }

    fn answers() -> Vec<Answer> {
        let here = Here { volume: VolumeId(1), epoch: VolumeEpoch(3), top: LayerId(4) };
        vec![
            Answer::Prepared(vec![here]),
            Answer::Stopped,
            Answer::WasStillStopped,
            Answer::HadGoneOn,
            Answer::Heard,
            Answer::refused("no"),
            Answer::Refused { why: "never".to_owned(), for_good: true },
        ]
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
        // A count of what never came takes no memory.
        assert_eq!(Question::decode(&[&[1, 1][..], &[0; 16], &[0xff; 4]].concat()), None);
    }

    #[test]
    fn the_bytes_stay_as_they_are() {
        let bytes = questions()[1].encode();
        let mut golden = vec![1, 2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        golden.extend([7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes, golden);
        let bytes = answers()[0].encode();
        let mut golden = vec![1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0];
        golden.extend([4, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes, golden);
        assert_eq!(answers()[6].encode(), [1, 7, 5, 0, 0, 0, b'n', b'e', b'v', b'e', b'r']);
    }
}

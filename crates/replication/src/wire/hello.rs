//! How a connection between two nodes begins.

use super::body::{Body, begin_fixed, end_list};
use super::bytes::{put_u16, put_u32, put_u64, put_u128, u16_at, u32_at, u64_at, u128_at};
use super::key::{NONCE_BYTES, PROOF_BYTES};
use super::{Beat, BeatAnswer, Dead, Features, Kind, Protocol, Release, WireError};
use types::{ClusterId, Incarnation, NodeId};

/// Longest text of a [`HelloRefused`]; more is left out.
pub const MAX_REASON_BYTES: usize = 1024;
/// Fixed part of a ping.
const PING_BYTES: usize = 8;
/// Of the proof behind a hello: the length, zeroes, the proof from 8 on.
const HELLO_PROOF_BYTES: usize = 8 + PROOF_BYTES;

/// A text as it travels: as much as may, without control characters.
pub(super) fn plain(text: &str) -> impl Iterator<Item = char> {
    let mut bytes = 0;
    let printable = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    printable.take_while(move |char| {
        bytes += char.len_utf8();
        bytes <= MAX_REASON_BYTES
    })
}

/// A text that has come.
pub(super) fn plain_of(what: &'static str, bytes: &[u8]) -> Result<String, WireError> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => Ok(text.to_owned()),
        _ => Err(WireError::field(what, "reason that is no plain text, its length", bytes.len() as u64)),
    }
}

/// What one node says to another, for all groups together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeMessage {
    /// Opens a connection.
    Hello(Hello),
    /// Agrees; who answers, and that it knows the cluster's key.
    HelloAnswer(Hello),
    /// Who opened the connection knows it, too: see [`ClusterKey`](super::ClusterKey).
    HelloProof([u8; PROOF_BYTES]),
    /// Does not agree.
    HelloRefused(HelloRefused),
    /// Lives.
    Beat(Beat),
    /// Lives too.
    BeatAnswer(BeatAnswer),
    /// Whether the connection lives.
    Ping,
    /// It does.
    Pong,
    /// Lives of stores are over.
    Dead(Dead),
    /// Nothing: see [`Rehearsed`].
    Rehearsed(Rehearsed),
}

impl NodeMessage {
    /// The frame it travels in.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::HelloAnswer(_) => Kind::HelloAnswer,
            Self::HelloProof(_) => Kind::HelloProof,
            Self::HelloRefused(_) => Kind::HelloRefused,
            Self::Beat(_) => Kind::Beat,
            Self::BeatAnswer(_) => Kind::BeatAnswer,
            Self::Ping => Kind::Ping,
            Self::Pong => Kind::Pong,
            Self::Dead(_) => Kind::Dead,
            Self::Rehearsed(_) => Kind::Rehearsed,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Self::Hello(hello) | Self::HelloAnswer(hello) => hello.encode(out),
            Self::HelloProof(proof) => begin_fixed::<HELLO_PROOF_BYTES>(out)[8..].copy_from_slice(proof),
            Self::HelloRefused(refused) => refused.encode(out),
            Self::Beat(beat) => return beat.encode(out),
            Self::BeatAnswer(answer) => return answer.encode(out),
            Self::Dead(dead) => return dead.encode(out),
            Self::Rehearsed(rehearsed) => rehearsed.encode(out),
            Self::Ping | Self::Pong => drop(begin_fixed::<PING_BYTES>(out)),
        }
        Ok(())
    }

    /// `kind` is one between nodes, `agreed` what both sides have.
    pub(super) fn decode(kind: Kind, meta: &[u8], agreed: Features) -> Result<Self, WireError> {
        Ok(match kind {
            Kind::Hello => Self::Hello(Hello::decode(meta)?),
            Kind::HelloAnswer => Self::HelloAnswer(Hello::decode(meta)?),
            Kind::HelloProof => {
                let (fixed, _) = Body::begin("proof of a hello", meta, HELLO_PROOF_BYTES)?;
                Self::HelloProof(array_at(fixed, 8))
            }
            Kind::HelloRefused => Self::HelloRefused(HelloRefused::decode(meta)?),
            Kind::Beat => Self::Beat(Beat::decode(meta, agreed)?),
            Kind::BeatAnswer => Self::BeatAnswer(BeatAnswer::decode(meta)?),
            Kind::Ping => Body::begin("ping", meta, PING_BYTES).map(|_| Self::Ping)?,
            Kind::Dead => Self::Dead(Dead::decode(meta)?),
            Kind::Rehearsed => Self::Rehearsed(Rehearsed::decode(meta)?),
            Kind::Pong => Body::begin("pong", meta, PING_BYTES).map(|_| Self::Pong)?,
            of_group => unreachable!("{of_group:?} is between stores"),
        })
    }
}

/// Who opens a connection, or answers it.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 120 |
/// | 2 | 2 | newest version of the protocol that the node speaks |
/// | 4 | 4 | node |
/// | 8 | 16 | cluster |
/// | 24 | 8 | incarnation of the node |
/// | 32 | 2 | its core that the connection belongs to |
/// | 34 | 2 | the other node's core that is meant |
/// | 36 | 2 | oldest version of the protocol that the node speaks |
/// | 38 | 2 | zero |
/// | 40 | 8 | features that the node has: bits, [`Features`] |
/// | 48 | 32 | drawn for this hello |
/// | 80 | 32 | in an answer: the proof that the node knows the cluster's key; else zero |
/// | 112 | 6 | release of the node: major, minor, patch (2 each) |
/// | 118 | 2 | zero |
///
/// It never gets longer: the proofs are over these fields, and what a later release has to say goes behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The cluster it is of.
    pub cluster: ClusterId,
    /// Its number there.
    pub node: NodeId,
    /// Which of its lives.
    pub incarnation: Incarnation,
    /// Its core that the connection belongs to.
    pub core: u16,
    /// The other node's core that is meant.
    pub to_core: u16,
    /// What it speaks.
    pub speaks: Protocol,
    /// Drawn for this hello, so that no proof of another fits it.
    pub nonce: [u8; NONCE_BYTES],
    /// In an answer.
    pub proof: [u8; PROOF_BYTES],
}

impl Hello {
    const WHAT: &'static str = "hello";
    pub(super) const FIXED_BYTES: usize = 120;

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let fixed = begin_fixed::<{ Self::FIXED_BYTES }>(out);
        let Protocol { oldest, newest, features, release } = self.speaks;
        put_u16(fixed, 2, newest);
        put_u32(fixed, 4, self.node.0);
        put_u128(fixed, 8, self.cluster.0);
        put_u64(fixed, 24, self.incarnation.0);
        put_u16(fixed, 32, self.core);
        put_u16(fixed, 34, self.to_core);
        put_u16(fixed, 36, oldest);
        put_u64(fixed, 40, features.0);
        fixed[48..80].copy_from_slice(&self.nonce);
        fixed[80..112].copy_from_slice(&self.proof);
        release.0.into_iter().enumerate().for_each(|(place, number)| put_u16(fixed, 112 + 2 * place, number));
    }

    fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let (fixed, _) = Body::begin(Self::WHAT, meta, Self::FIXED_BYTES)?;
        Ok(Self {
            cluster: ClusterId(u128_at(fixed, 8)),
            node: NodeId(u32_at(fixed, 4)),
            incarnation: Incarnation(u64_at(fixed, 24)),
            core: u16_at(fixed, 32),
            to_core: u16_at(fixed, 34),
            speaks: Protocol {
                oldest: u16_at(fixed, 36),
                newest: u16_at(fixed, 2),
                features: Features(u64_at(fixed, 40)),
                release: Release(std::array::from_fn(|place| u16_at(fixed, 112 + 2 * place))),
            },
            nonce: array_at(fixed, 48),
            proof: array_at(fixed, 80),
        })
    }
}

/// What a node says to one that has [`Features::REHEARSAL`] and to no other.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 16 |
/// | 2 | 6 | zero |
/// | 8 | 8 | how many it has sent on all connections |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rehearsed {
    /// How many it has sent.
    pub count: u64,
}

impl Rehearsed {
    const FIXED_BYTES: usize = 16;

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(begin_fixed::<{ Self::FIXED_BYTES }>(out), 8, self.count);
    }

    fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let (fixed, _) = Body::begin("what is rehearsed", meta, Self::FIXED_BYTES)?;
        Ok(Self { count: u64_at(fixed, 8) })
    }
}

fn array_at<const LENGTH: usize>(from: &[u8], at: usize) -> [u8; LENGTH] {
    let mut array = [0; LENGTH];
    array.copy_from_slice(&from[at..at + LENGTH]);
    array
}

/// Why a node does not talk to the one that said hello.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 8 |
/// | 2 | 2 | length of the reason |
/// | 4 | 4 | zero |
/// | 8 | … | the reason, UTF-8 without control characters: it goes to a log |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HelloRefused {
    /// For an operator: what is wrong and what to do.
    pub reason: String,
}

impl HelloRefused {
    const WHAT: &'static str = "refused hello";
    const FIXED_BYTES: usize = 8;

    fn encode(&self, out: &mut Vec<u8>) {
        let length: usize = plain(&self.reason).map(char::len_utf8).sum();
        let fixed = begin_fixed::<{ Self::FIXED_BYTES }>(out);
        put_u16(fixed, 2, length as u16);
        let start = out.len();
        plain(&self.reason).for_each(|char| out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()));
        end_list(out, start);
    }

    fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let (fixed, mut body) = Body::begin(Self::WHAT, meta, Self::FIXED_BYTES)?;
        let length = u16_at(fixed, 2);
        if usize::from(length) > MAX_REASON_BYTES {
            return Err(WireError::field(Self::WHAT, "length of the reason", length));
        }
        Ok(Self { reason: plain_of(Self::WHAT, body.list(length.into())?)? })
    }
}

//! The bodies of [`Message`]: what members of a group say to each other.
//!
//! Where a body has a record (`prepare`, `ask`, `fetch`, `refused`), it is the first list, laid out as `record` says, or
//! it is empty: then it is the record of this epoch that was sent on the connection before.

use super::body::{Body, begin_fixed};
use super::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use super::entries::{Chain, Packed, decode_entries, encode_entries};
use super::history::{START_BYTES, decode_history, encode_history};
use super::record::{decode_record, encode_record};
use super::{EPOCH_MAX, FrameHeader, Kind, MAX_HISTORY_EPOCHS, SEQ_MAX, WireError};
use crate::protocol::{Membership, Message, Place};
use runtime::SharedBuf;
use std::sync::Arc;
use store::Entry;
use types::{Epoch, GroupId, Seq, Term};

/// The frame that a message travels in.
pub(crate) fn kind_of(message: &Message) -> Kind {
    match message {
        Message::Prepare { .. } => Kind::Prepare,
        Message::Prepared { .. } => Kind::Prepared,
        Message::Ask { .. } => Kind::Ask,
        Message::Told { .. } => Kind::Told,
        Message::Fetch { .. } => Kind::Fetch,
        Message::Fetched { .. } => Kind::Fetched,
        Message::Refused { .. } => Kind::Refused,
        Message::GaveUp { .. } => Kind::GaveUp,
    }
}

/// The record that a message carries.
pub(super) fn record_of(message: &Message) -> Option<&Arc<Membership>> {
    match message {
        Message::Prepare { record, .. }
        | Message::Ask { record }
        | Message::Fetch { record, .. }
        | Message::Refused { record } => Some(record),
        Message::Prepared { .. } | Message::Told { .. } | Message::Fetched { .. } | Message::GaveUp { .. } => None,
    }
}

/// Appends the meta part of a message, its record only if `with_record` says so; and the entries that fit.
pub(super) fn encode_message(
    message: &Message,
    with_record: bool,
    (group, entries): (GroupId, &[Entry]),
    out: &mut Vec<u8>,
    blocks: &mut Vec<SharedBuf>,
) -> Result<Packed, WireError> {
    assert!(entries.is_empty() || kind_of(message).has_entries(), "{message:?} carries no entries");
    let start = out.len();
    match message {
        Message::Prepare { record, before, commit } => {
            Prepare::encode(*before, *commit, out)?;
            put_record(record, with_record, start, out)?;
            let chain = Chain::new(group, *before, record.epoch);
            let packed = encode_entries(entries, chain, start, out, blocks)?;
            Prepare::SPAN.put(&packed, &mut out[start..]);
            return Ok(packed);
        }
        Message::Fetched { epoch, before } => {
            Fetched::encode(*epoch, *before, out)?;
            let packed = encode_entries(entries, Chain::new(group, *before, *epoch), start, out, blocks)?;
            Fetched::SPAN.put(&packed, &mut out[start..]);
            return Ok(packed);
        }
        Message::Prepared { epoch, through } => Prepared::encode(*epoch, *through, out)?,
        Message::GaveUp { epoch, poison } => GaveUp::encode(*epoch, *poison, out)?,
        Message::Told { epoch, history, committed, whole, turns } => {
            Told::encode(*epoch, history.last(), *committed, (*whole, *turns), out)?;
            let count = encode_history(history, out)?;
            put_u32(&mut out[start..], Told::COUNT_AT, count);
        }
        Message::Fetch { record, behind } => {
            Fetch::encode(*behind, out)?;
            put_record(record, with_record, start, out)?;
        }
        Message::Ask { record } | Message::Refused { record } => {
            begin_fixed::<ONLY_RECORD_BYTES>(out);
            put_record(record, with_record, start, out)?;
        }
    }
    Ok(Packed::default())
}

/// Reads the body of a message, whose meta part has its sum; `known` is the record of the group that was sent last, `spare`
/// a list that the entries may be returned in.
pub(super) fn decode_message(
    header: &FrameHeader,
    body: &SharedBuf,
    known: Option<&Arc<Membership>>,
    spare: &mut Vec<Entry>,
) -> Result<(Message, Vec<Entry>), WireError> {
    let meta = &body[..header.meta_bytes as usize];
    let group = header.envelope.group;
    let record = |fixed: &[u8], lists: &mut Body<'_>| read_record(group, fixed, lists, known);
    let mut entries = Vec::new();
    let message = match header.kind {
        Kind::Prepare => {
            let (fixed, mut lists) = Body::begin("prepare", meta, Prepare::BYTES)?;
            let record = record(fixed, &mut lists)?;
            let (before, commit) = Prepare::decode(fixed)?;
            let chain = Chain::new(group, before, record.epoch);
            entries = Prepare::SPAN.read(header, (body, fixed, &mut lists), chain, spare)?;
            Message::Prepare { record, before, commit }
        }
        Kind::Prepared => {
            let (fixed, _) = Body::begin("prepared", meta, Prepared::BYTES)?;
            Prepared::decode(fixed)?
        }
        Kind::GaveUp => {
            let (fixed, _) = Body::begin("gave up", meta, GaveUp::BYTES)?;
            GaveUp::decode(fixed)?
        }
        Kind::Ask => {
            let (fixed, mut lists) = Body::begin("ask", meta, ONLY_RECORD_BYTES)?;
            Message::Ask { record: record(fixed, &mut lists)? }
        }
        Kind::Told => {
            let (fixed, mut lists) = Body::begin("told", meta, Told::BYTES)?;
            Told::decode(fixed, &mut lists)?
        }
        Kind::Fetch => {
            let (fixed, mut lists) = Body::begin("fetch", meta, Fetch::BYTES)?;
            Message::Fetch { record: record(fixed, &mut lists)?, behind: seq_of("fetch", u64_at(fixed, 8))? }
        }
        Kind::Fetched => {
            let (fixed, mut lists) = Body::begin("fetched", meta, Fetched::BYTES)?;
            let (epoch, before) = Fetched::decode(fixed)?;
            let chain = Chain::new(group, before, epoch);
            entries = Fetched::SPAN.read(header, (body, fixed, &mut lists), chain, spare)?;
            Message::Fetched { epoch, before }
        }
        Kind::Refused => {
            let (fixed, mut lists) = Body::begin("refused", meta, ONLY_RECORD_BYTES)?;
            Message::Refused { record: record(fixed, &mut lists)? }
        }
        of_node => unreachable!("{of_node:?} is between nodes"),
    };
    Ok((message, entries))
}

// ---- fields that several bodies have -------------------------------------------------------------------------------

/// Appends the record, if it is to be sent, and says in the fixed part of the body at `start` how long it is and of
/// which epoch.
fn put_record(record: &Membership, in_full: bool, start: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
    let bytes = if in_full { encode_record(record, out)? } else { 0 };
    put_u16(&mut out[start..], 2, bytes);
    put_u32(&mut out[start..], 4, record.epoch.0);
    Ok(())
}

/// The record of a body: as it was sent with it, or before.
fn read_record(
    group: GroupId,
    fixed: &[u8],
    lists: &mut Body<'_>,
    known: Option<&Arc<Membership>>,
) -> Result<Arc<Membership>, WireError> {
    let (bytes, epoch) = (u16_at(fixed, 2), Epoch(u32_at(fixed, 4)));
    if bytes == 0 {
        let known = known.filter(|known| known.epoch == epoch);
        return known.cloned().ok_or(WireError::RecordNotSent { group, epoch });
    }
    let record = decode_record(lists.list(bytes.into())?)?;
    if record.epoch != epoch {
        return Err(WireError::field("record", "epoch, other than its message's", record.epoch.0));
    }
    Ok(Arc::new(record))
}

fn epoch_of(what: &'static str, number: u32) -> Result<Epoch, WireError> {
    let epoch = Epoch(number);
    if epoch <= EPOCH_MAX { Ok(epoch) } else { Err(WireError::field(what, "epoch", number)) }
}

fn seq_of(what: &'static str, number: u64) -> Result<Seq, WireError> {
    let seq = Seq(number);
    if seq <= SEQ_MAX { Ok(seq) } else { Err(WireError::field(what, "sequence", number)) }
}

/// Where a fixed part says how many entries there are, and in how many bytes of heads.
struct Span {
    count_at: usize,
    heads_at: usize,
}

impl Span {
    fn put(&self, packed: &Packed, fixed: &mut [u8]) {
        put_u32(fixed, self.count_at, packed.count);
        put_u32(fixed, self.heads_at, packed.heads_bytes);
    }

    fn read(
        &self,
        header: &FrameHeader,
        (body, fixed, lists): (&SharedBuf, &[u8], &mut Body<'_>),
        chain: Chain,
        spare: &mut Vec<Entry>,
    ) -> Result<Vec<Entry>, WireError> {
        let (count, heads_bytes) = (u32_at(fixed, self.count_at), u32_at(fixed, self.heads_at) as usize);
        let start = lists.at();
        lists.list(heads_bytes)?;
        let blocks = header.meta_bytes..header.meta_bytes + header.blocks_bytes;
        decode_entries(body, start..start + heads_bytes, blocks, (count, chain), spare)
    }
}

// ---- one structure per kind ----------------------------------------------------------------------------------------

/// Fixed part of `ask` and `refused`.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 8 |
/// | 2 | 2 | length of the record |
/// | 4 | 4 | its epoch |
/// | 8 | … | the record |
const ONLY_RECORD_BYTES: usize = 8;

/// Entries, or what is committed.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 40 |
/// | 2 | 2 | length of the record |
/// | 4 | 4 | its epoch |
/// | 8 | 4 | epoch of the entry before the first |
/// | 12 | 4 | number of entries |
/// | 16 | 8 | sequence of the entry before the first |
/// | 24 | 8 | everything up to here is committed |
/// | 32 | 4 | length of the heads |
/// | 36 | 4 | mark of the entry before the first |
/// | 40 | … | the record; then heads and payloads of the entries, as in a record of the store |
struct Prepare;

impl Prepare {
    const BYTES: usize = 40;
    const SPAN: Span = Span { count_at: 12, heads_at: 32 };

    fn encode(before: Place, commit: Seq, out: &mut Vec<u8>) -> Result<(), WireError> {
        let fixed = begin_fixed::<{ Self::BYTES }>(out);
        put_u32(fixed, 8, before.0.epoch.0);
        put_u64(fixed, 16, before.1.0);
        put_u64(fixed, 24, commit.0);
        put_u32(fixed, 36, before.0.mark);
        Self::decode(fixed).map(drop)
    }

    fn decode(fixed: &[u8]) -> Result<(Place, Seq), WireError> {
        const WHAT: &str = "prepare";
        let term = Term::new(epoch_of(WHAT, u32_at(fixed, 8))?, u32_at(fixed, 36));
        let before = (term, seq_of(WHAT, u64_at(fixed, 16))?);
        Ok((before, seq_of(WHAT, u64_at(fixed, 24))?))
    }
}

/// A primary reads and writes no more.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 16 |
/// | 2 | 2 | zero |
/// | 4 | 4 | epoch in which it led |
/// | 8 | 8 | the entry that it cannot apply; 0: it has another reason |
struct GaveUp;

impl GaveUp {
    const BYTES: usize = 16;

    fn encode(epoch: Epoch, poison: Option<Seq>, out: &mut Vec<u8>) -> Result<(), WireError> {
        let fixed = begin_fixed::<{ Self::BYTES }>(out);
        put_u32(fixed, 4, epoch.0);
        put_u64(fixed, 8, poison.unwrap_or_default().0);
        Self::decode(fixed).map(drop)
    }

    fn decode(fixed: &[u8]) -> Result<Message, WireError> {
        const WHAT: &str = "gave up";
        let poison = Some(seq_of(WHAT, u64_at(fixed, 8))?).filter(|seq| *seq > Seq(0));
        Ok(Message::GaveUp { epoch: epoch_of(WHAT, u32_at(fixed, 4))?, poison })
    }
}

/// How far a member has the entries.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 16 |
/// | 2 | 2 | zero |
/// | 4 | 4 | epoch in which it was compared |
/// | 8 | 8 | everything through here is durable and equal |
struct Prepared;

impl Prepared {
    const BYTES: usize = 16;

    fn encode(epoch: Epoch, through: Seq, out: &mut Vec<u8>) -> Result<(), WireError> {
        let fixed = begin_fixed::<{ Self::BYTES }>(out);
        put_u32(fixed, 4, epoch.0);
        put_u64(fixed, 8, through.0);
        Self::decode(fixed).map(drop)
    }

    fn decode(fixed: &[u8]) -> Result<Message, WireError> {
        const WHAT: &str = "prepared";
        let (epoch, through) = (epoch_of(WHAT, u32_at(fixed, 4))?, seq_of(WHAT, u64_at(fixed, 8))?);
        Ok(Message::Prepared { epoch, through })
    }
}

/// What a member's log holds.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 32 |
/// | 2 | 1 | 1: nothing before its end is missing |
/// | 3 | 1 | zero |
/// | 4 | 4 | epoch in which it was asked |
/// | 8 | 8 | sequence of its last entry |
/// | 16 | 4 | number of epochs |
/// | 20 | 4 | how often the store has changed whether anything is missing, in this life |
/// | 24 | 8 | sequence of the last entry that is committed there |
/// | 32 | 16 × epochs | epoch (4), mark of who led in it (4), its first sequence (8); they rise |
struct Told;

impl Told {
    const BYTES: usize = 32;
    const COUNT_AT: usize = 16;

    fn encode(
        epoch: Epoch,
        last: Seq,
        committed: Seq,
        (whole, turns): (bool, u32),
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        let fixed = begin_fixed::<{ Self::BYTES }>(out);
        fixed[2] = u8::from(whole);
        put_u32(fixed, 4, epoch.0);
        put_u64(fixed, 8, last.0);
        put_u32(fixed, 20, turns);
        put_u64(fixed, 24, committed.0);
        epoch_of("told", epoch.0).map(drop)
    }

    fn decode(fixed: &[u8], lists: &mut Body<'_>) -> Result<Message, WireError> {
        const WHAT: &str = "told";
        let count = u32_at(fixed, Self::COUNT_AT);
        if count as usize > MAX_HISTORY_EPOCHS {
            return Err(WireError::field(WHAT, "number of epochs", count));
        }
        let whole = match fixed[2] {
            0 => false,
            1 => true,
            other => return Err(WireError::field(WHAT, "whole", other)),
        };
        let last = seq_of(WHAT, u64_at(fixed, 8))?;
        let history = decode_history(lists.list(count as usize * START_BYTES)?, last)?;
        let committed = seq_of(WHAT, u64_at(fixed, 24))?;
        let (epoch, turns) = (epoch_of(WHAT, u32_at(fixed, 4))?, u32_at(fixed, 20));
        Ok(Message::Told { epoch, history, committed, whole, turns })
    }
}

/// From where on entries are asked for.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 16 |
/// | 2 | 2 | length of the record |
/// | 4 | 4 | its epoch |
/// | 8 | 8 | sequence of the last entry that both have |
/// | 16 | … | the record |
struct Fetch;

impl Fetch {
    const BYTES: usize = 16;

    fn encode(behind: Seq, out: &mut Vec<u8>) -> Result<(), WireError> {
        put_u64(begin_fixed::<{ Self::BYTES }>(out), 8, behind.0);
        seq_of("fetch", behind.0).map(drop)
    }
}

/// Entries that were asked for.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 32 |
/// | 2 | 2 | zero |
/// | 4 | 4 | epoch in which they were asked for |
/// | 8 | 4 | epoch of the entry before the first |
/// | 12 | 4 | number of entries |
/// | 16 | 8 | sequence of the entry before the first |
/// | 24 | 4 | length of the heads |
/// | 28 | 4 | mark of the entry before the first |
/// | 32 | … | heads and payloads of the entries, as in a record of the store |
struct Fetched;

impl Fetched {
    const BYTES: usize = 32;
    const SPAN: Span = Span { count_at: 12, heads_at: 24 };

    fn encode(epoch: Epoch, before: Place, out: &mut Vec<u8>) -> Result<(), WireError> {
        let fixed = begin_fixed::<{ Self::BYTES }>(out);
        put_u32(fixed, 4, epoch.0);
        put_u32(fixed, 8, before.0.epoch.0);
        put_u64(fixed, 16, before.1.0);
        put_u32(fixed, 28, before.0.mark);
        Self::decode(fixed).map(drop)
    }

    fn decode(fixed: &[u8]) -> Result<(Epoch, Place), WireError> {
        const WHAT: &str = "fetched";
        let term = Term::new(epoch_of(WHAT, u32_at(fixed, 8))?, u32_at(fixed, 28));
        let before = (term, seq_of(WHAT, u64_at(fixed, 16))?);
        Ok((epoch_of(WHAT, u32_at(fixed, 4))?, before))
    }
}

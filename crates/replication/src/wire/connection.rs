//! Frames in the order of one connection: what one side remembers of what it sent, and the other of what came.
//!
//! A group's record changes rarely and is in most of its messages. It travels with the first message of its epoch on a
//! connection, and is named by its epoch in those that follow: a prepare of one entry is then 112 + 40 + 88 bytes, and
//! its block. Both sides remember the same: per group the record that was sent last, for the first so many groups.

use super::entries::Packed;
use super::frame::{FRAME_HEADER_BYTES, FrameHeader};
use super::message::{decode_message, encode_message, kind_of, record_of};
use super::{CallMessage, Envelope, Features, FillMessage, HeadMessage, Kind, NodeMessage, WireError};
use crate::protocol::{Membership, Message};
use runtime::SharedBuf;
use std::sync::Arc;
use store::Entry;
use store::format::Crc32c;
use types::GroupId;

/// Groups whose records a connection remembers; of others they travel with each message. Far more than two nodes have in
/// common (100 per device), and a few MiB if a peer uses it all up.
pub const MAX_RECORDS_REMEMBERED: usize = 16_384;

/// The record sent last, per group: the same on both sides.
#[derive(Debug, Default)]
struct Records(hashbrown::HashMap<GroupId, Arc<Membership>, foldhash::fast::FixedState>);

impl Records {
    fn get(&self, group: GroupId) -> Option<&Arc<Membership>> {
        self.0.get(&group)
    }

    fn sent(&mut self, group: GroupId, record: &Arc<Membership>) {
        let has_room = self.0.len() < MAX_RECORDS_REMEMBERED;
        match self.0.get_mut(&group) {
            Some(known) if known == record => {}
            Some(known) => known.clone_from(record),
            None if has_room => drop(self.0.insert(group, record.clone())),
            None => {}
        }
    }
}

/// The sending side of one connection. Frames leave in the order in which they were encoded, or the connection ends.
#[derive(Debug, Default)]
pub struct Sender {
    records: Records,
}

impl Sender {
    /// Of a connection on which nothing was sent.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a frame: header, meta part and heads of the entries to `out`; behind that belong the blocks, which are
    /// appended to `blocks` as they lie. Returns how many of the entries it carries: all, or as many as fit, and one at
    /// least. The rest goes with another message of its own, whose `before` is the last entry of this one.
    ///
    /// Per entry nothing is allocated but what the two lists grow by.
    ///
    /// # Errors
    /// What the other side would refuse: entries that do not follow `before` and each other, or that are no group's;
    /// more members than a group has. Both lists, and what is remembered, are as before then.
    ///
    /// # Panics
    /// Entries with a message that carries none.
    pub fn encode(
        &mut self,
        envelope: &Envelope,
        message: &Message,
        entries: &[Entry],
        out: &mut Vec<u8>,
        blocks: &mut Vec<SharedBuf>,
    ) -> Result<usize, WireError> {
        let (group, record) = (envelope.group, record_of(message));
        let in_full = record != self.records.get(group);
        let (start, blocks_before) = (out.len(), blocks.len());
        let encoded = encode_frame(kind_of(message), envelope, out, |out| {
            encode_message(message, in_full, (group, entries), out, blocks)
        });
        match (&encoded, record) {
            (Ok(_), Some(record)) if in_full => self.records.sent(group, record),
            (Ok(_), _) => {}
            (Err(_), _) => {
                out.truncate(start);
                blocks.truncate(blocks_before);
            }
        }
        encoded.map(|packed| packed.count as usize)
    }
}

/// Appends the frame of a message of catch-up, which needs no memory of what was sent either; its blocks go to `blocks`.
///
/// # Errors
/// More of anything than the other side takes. Both lists are as before then.
pub fn encode_fill(
    envelope: &Envelope,
    message: &FillMessage,
    out: &mut Vec<u8>,
    blocks: &mut Vec<SharedBuf>,
) -> Result<(), WireError> {
    encode_with_blocks(message.kind(), envelope, out, blocks, |out, blocks| message.encode(out, blocks))
}

/// The same of what the head of a volume and a group say to each other.
///
/// # Errors
/// As [`encode_fill`].
pub fn encode_head(
    envelope: &Envelope,
    message: &HeadMessage,
    out: &mut Vec<u8>,
    blocks: &mut Vec<SharedBuf>,
) -> Result<(), WireError> {
    encode_with_blocks(message.kind(), envelope, out, blocks, |out, blocks| message.encode(out, blocks))
}

/// The same of a plain call, or its reply.
///
/// # Errors
/// As [`encode_fill`].
pub fn encode_call(
    envelope: &Envelope,
    message: &CallMessage,
    out: &mut Vec<u8>,
    blocks: &mut Vec<SharedBuf>,
) -> Result<(), WireError> {
    encode_with_blocks(message.kind(), envelope, out, blocks, |out, blocks| message.encode(out, blocks))
}

fn encode_with_blocks(
    kind: Kind,
    envelope: &Envelope,
    out: &mut Vec<u8>,
    blocks: &mut Vec<SharedBuf>,
    encode: impl FnOnce(&mut Vec<u8>, &mut Vec<SharedBuf>) -> Result<u32, WireError>,
) -> Result<(), WireError> {
    let (start, blocks_before) = (out.len(), blocks.len());
    let encoded = encode_frame(kind, envelope, out, |out| {
        let blocks_bytes = encode(out, blocks)?;
        Ok(Packed { blocks_bytes, ..Packed::default() })
    });
    encoded.map(drop).inspect_err(|_| {
        out.truncate(start);
        blocks.truncate(blocks_before);
    })
}

/// Appends the frame of a message between nodes, which needs no memory of what was sent.
///
/// # Errors
/// More stores than a node has; an envelope with a group or a store. `out` is as before then.
pub fn encode_node(envelope: &Envelope, message: &NodeMessage, out: &mut Vec<u8>) -> Result<(), WireError> {
    let start = out.len();
    let encoded = encode_frame(message.kind(), envelope, out, |out| message.encode(out).map(|()| Packed::default()));
    encoded.map(drop).inspect_err(|_| out.truncate(start))
}

fn encode_frame(
    kind: Kind,
    envelope: &Envelope,
    out: &mut Vec<u8>,
    encode_meta: impl FnOnce(&mut Vec<u8>) -> Result<Packed, WireError>,
) -> Result<Packed, WireError> {
    let start = out.len();
    let meta_at = start + FRAME_HEADER_BYTES;
    out.resize(meta_at, 0);
    let packed = encode_meta(out)?;
    let meta = &out[meta_at..];
    let header = FrameHeader {
        kind,
        envelope: *envelope,
        meta_bytes: meta.len() as u32,
        blocks_bytes: packed.blocks_bytes,
        meta_sum: Crc32c::of(meta),
    };
    header.check()?;
    header.encode(&mut out[start..meta_at]);
    Ok(packed)
}

/// What a frame said.
#[derive(Debug)]
pub enum Said {
    /// From node to node.
    Node(NodeMessage),
    /// From node to node, for whoever stands above.
    Call(CallMessage),
    /// From store to store, with the entries that came with it: their bytes are those that were received.
    Group(Message, Vec<Entry>),
    /// From store to store, of catch-up.
    Fill(FillMessage),
    /// From the head of a volume to a group, or back.
    Head(HeadMessage),
}

/// A frame that was there as a whole.
#[derive(Debug)]
pub struct Frame {
    /// Its header.
    pub header: FrameHeader,
    /// What it said.
    pub said: Said,
}

/// The receiving side of one connection. After an error it is of no use: the connection is to be closed.
#[derive(Debug, Default)]
pub struct Receiver {
    /// What both sides have.
    agreed: Features,
    records: Records,
    /// A list for the entries of the next frame.
    spare: Vec<Entry>,
}

impl Receiver {
    /// Of a connection on which nothing came, and nothing is agreed on.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same where both sides have these.
    pub fn of(agreed: Features) -> Self {
        Self { agreed, ..Self::default() }
    }

    /// Whether such a frame may come on this connection: looked at before a byte of its body is kept.
    ///
    /// # Errors
    /// A kind that was not agreed on.
    pub fn judge(&self, header: &FrameHeader) -> Result<(), WireError> {
        match self.agreed.has(header.kind.needs()) {
            true => Ok(()),
            false => Err(WireError::NotAgreed { kind: header.kind }),
        }
    }

    /// The frame at the front of `bytes`, of [`FrameHeader::frame_bytes`]; `None` if it is not all there. For what came
    /// together; a long body is received where it belongs ([`FrameHeader::body_at_bytes`]) and decoded from there.
    ///
    /// # Errors
    /// As of [`FrameHeader::decode`] and [`decode`](Self::decode).
    pub fn frame(&mut self, bytes: &SharedBuf) -> Result<Option<Frame>, WireError> {
        let Some(header) = FrameHeader::decode(bytes)? else { return Ok(None) };
        self.judge(&header)?;
        if bytes.len() < header.frame_bytes() {
            return Ok(None);
        }
        let said = self.decode(&header, &bytes.slice(FRAME_HEADER_BYTES..header.frame_bytes()))?;
        Ok(Some(Frame { header, said }))
    }

    /// Takes back the list of a frame's entries, for those of the next.
    pub fn recycle(&mut self, entries: Vec<Entry>) {
        if entries.capacity() > self.spare.capacity() {
            self.spare = entries;
        }
    }

    /// What the body says that came with this header; entries share its memory.
    ///
    /// # Errors
    /// A kind that was not agreed on, bytes that changed on their way, fields that no sender sends, a record that never came, entries that do not follow
    /// each other or are not the frame's group's, blocks that are not those that were written.
    pub fn decode(&mut self, header: &FrameHeader, body: &SharedBuf) -> Result<Said, WireError> {
        self.judge(header)?;
        let meta = header.meta_of(body)?;
        if header.kind.is_of_call() {
            return CallMessage::decode(header.kind, meta.len(), body).map(Said::Call);
        }
        if !header.kind.is_of_group() {
            return NodeMessage::decode(header.kind, meta, self.agreed).map(Said::Node);
        }
        if header.kind.is_of_fill() {
            return FillMessage::decode(header.kind, meta.len(), body).map(Said::Fill);
        }
        if header.kind.is_of_head() {
            return HeadMessage::decode(header.kind, meta.len(), body).map(Said::Head);
        }
        let group = header.envelope.group;
        let (message, entries) = decode_message(header, body, self.records.get(group), &mut self.spare)?;
        if let Some(record) = record_of(&message) {
            self.records.sent(group, record);
        }
        Ok(Said::Group(message, entries))
    }
}

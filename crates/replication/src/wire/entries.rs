//! Entries beside a message: heads in the meta part, blocks behind it, both as the store writes them (`store::ordered`).

use super::frame::MAX_META_BYTES;
use super::{SEQ_MAX, WireError};
use crate::protocol::Place;
use runtime::SharedBuf;
use std::ops::Range;
use store::{Entry, OrderedEntries, encode_ordered, ordered_bytes};
use types::{Epoch, GroupId, Seq, Term};

/// Most entries of one frame: as many as a group has prepared at most.
pub const MAX_ENTRIES: u32 = 4096;
/// Most bytes of blocks of one frame: as much as one record of a store has.
pub const MAX_BLOCKS_BYTES: u32 = 1 << 20;
/// No entry's head is shorter.
const LEAST_HEAD_BYTES: u32 = store::format::ENTRY_HEAD_BYTES as u32;

/// What each entry of a message must be, by the one before it.
pub(super) struct Chain {
    group: GroupId,
    before: Place,
    /// That of the message: nothing newer can be in a log.
    most: Epoch,
}

impl Chain {
    pub(super) fn new(group: GroupId, before: Place, most: Epoch) -> Self {
        Self { group, before, most }
    }

    /// The entry is of the group, comes right behind the one before, and its epoch does not fall.
    fn follow(&mut self, entry: &Entry) -> Result<(), WireError> {
        let (group, (least, before)) = (self.group, self.before);
        if entry.group != group {
            return Err(WireError::ForeignEntry { group, found: entry.group });
        }
        if Some(entry.seq.0) != before.0.checked_add(1) || entry.seq > SEQ_MAX {
            let expected = Seq(before.0.saturating_add(1));
            return Err(WireError::EntryOrder { group, expected, found: entry.seq });
        }
        let found = entry.term;
        if found < least.max(Term::from(Epoch(1))) || found.epoch > self.most {
            let (seq, most) = (entry.seq, self.most);
            return Err(WireError::EntryEpoch { group, seq, found, least, most });
        }
        self.before = (found, entry.seq);
        Ok(())
    }
}

/// How much of the entries went into a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) count: u32,
    pub(super) heads_bytes: u32,
    pub(super) blocks_bytes: u32,
}

/// Appends as many entries as fit into a frame whose meta part begins at `meta_at`: heads to `out`, blocks, as they lie,
/// to `blocks`. At least one fits. Allocates nothing but what the two grow by.
pub(super) fn encode_entries(
    entries: &[Entry],
    mut chain: Chain,
    meta_at: usize,
    out: &mut Vec<u8>,
    blocks: &mut Vec<SharedBuf>,
) -> Result<Packed, WireError> {
    let start = out.len();
    let mut packed = Packed::default();
    for entry in entries.iter().take(MAX_ENTRIES as usize) {
        chain.follow(entry)?;
        let bytes = ordered_bytes(entry)?;
        let fits = out.len() - meta_at + bytes.head <= MAX_META_BYTES as usize
            && packed.blocks_bytes as usize + bytes.blocks <= MAX_BLOCKS_BYTES as usize;
        if !fits {
            break;
        }
        if let Some(stored) = encode_ordered(entry, out)? {
            blocks.push(stored.clone());
        }
        packed.count += 1;
        packed.blocks_bytes += bytes.blocks as u32;
    }
    assert!(packed.count > 0 || entries.is_empty(), "one entry fits into any frame");
    packed.heads_bytes = (out.len() - start) as u32;
    Ok(packed)
}

/// The entries of a body, each block compared with its sum, in a list that was spare. They share the body's memory.
pub(super) fn decode_entries(
    body: &SharedBuf,
    heads: Range<usize>,
    blocks: Range<u32>,
    (count, mut chain): (u32, Chain),
    spare: &mut Vec<Entry>,
) -> Result<Vec<Entry>, WireError> {
    const WHAT: &str = "entries";
    if count > MAX_ENTRIES || heads.len() < (count * LEAST_HEAD_BYTES) as usize {
        return Err(WireError::field(WHAT, "number of entries", count));
    }
    let mut found = std::mem::take(spare);
    found.clear();
    // Not more than a few times what was received: each has its head.
    found.reserve(count as usize);
    let mut walk = OrderedEntries::new(body, heads, blocks.start);
    while let Some(entry) = walk.next_entry()? {
        chain.follow(&entry)?;
        if found.len() == count as usize {
            return Err(WireError::field(WHAT, "number of entries, of which there are more than", count));
        }
        found.push(entry);
    }
    if found.len() != count as usize {
        return Err(WireError::field(WHAT, "number of entries, of which there are fewer than", count));
    }
    if walk.blocks_end_bytes() != blocks.end {
        let expected = (walk.blocks_end_bytes() - blocks.start) as usize;
        return Err(WireError::Short { what: "blocks", expected, found: blocks.len() });
    }
    Ok(found)
}

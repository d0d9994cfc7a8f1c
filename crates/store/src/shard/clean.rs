//! Cleaning: what still lives in a segment is copied to the cold stream, so that the segment can be used again.
//!
//! ```text
//!   victim (older than the last pass)          window (2 MiB)                     cold segment
//!  ┌───┬─────┬─────┬─────┬─────┐  read   ┌─────────────────────────┐  append  ┌───┬──────────┬──── ─
//!  │hdr│ rec │ rec │ rec │ rec │ ──────▶ │ live? sum right? sorted │ ───────▶ │hdr│ move rec │ …
//!  └───┴─────┴─────┴─────┴─────┘         │ by layer, chunk, block  │          └───┴──────────┴──── ─
//!                                        └─────────────────────────┘
//! ```
//!
//! **What lives** is found by the index: a block lives where the index names it, and nothing else of what is read is
//! believed. A block whose bytes have not their sum is not copied: it stays where it is, damage that the next read
//! reports, and its segment is left alone.
//!
//! **How fast.** In step with what clients write, the faster the fewer segments are free or will be after the next
//! pass; without a limit where clients wait already. In steps of some 100 µs, between which clients have their turns.

use super::moves::{MAX_MOVED_BLOCKS, Moved};
use super::pass::durable_through;
use super::{ShardCore, State};
use crate::format::{
    Crc32c, EntryBody, LeafKey, MAX_RECORD_BYTES, Record, RecordHeader, RecordSeq, SegmentIndex, StoredBlock, Stream,
};
use runtime::{IoBuf, background_step, sleep};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use types::{BlockRange, Mutant, mutant};

/// Read of a victim at once: what is sorted together. A chunk is 1 MiB, so neighbours meet in here.
const WINDOW_BYTES: usize = 2 << 20;
const _: () = assert!(WINDOW_BYTES >= MAX_RECORD_BYTES);
/// Read in one step.
const READ_BYTES: usize = 256 << 10;
/// A read that fails is done again so often, after so long: a segment of which something cannot be read is left alone for as
/// long as the shard lives, and a full device goes on only as long as it can be cleaned.
pub(super) const READ_TRIES: u32 = 4;
/// See [`READ_TRIES`].
pub(super) const RETRY_WAIT: Duration = Duration::from_millis(50);
/// Blocks of one record of moves: short enough not to hold up what clients write beside it.
const BLOCKS_PER_RECORD: usize = 64;
/// A record of so many, with its header and entries.
const LONGEST_RECORD_BYTES: usize = (BLOCKS_PER_RECORD + 8) * types::BLOCK_BYTES;
/// Records of moves that may be on their way: the next one gathers while one is written.
const MAX_RECORDS_ON_THEIR_WAY: usize = 2;
/// Bytes copied per byte that clients write, when they are just short of having to wait. Uniform random writes on a
/// device whose clients fill nine tenths of what is usable need about 4.
const MAX_GAIN: u64 = 8;
/// So many bytes are read for what it takes to copy one.
const READS_PER_COPY: u64 = 4;
/// What clients wrote while there was nothing to clean is forgotten, but for this.
const MAX_CREDIT_BYTES: u64 = 2 << 20;

/// Where nothing is worth cleaning, it is looked for again after this many records.
const RECORDS_BETWEEN_LOOKS: u64 = 16;

/// Where a shard is with its cleaning.
#[derive(Default)]
pub(crate) struct Cleaning {
    /// Bytes that clients have written and the cleaner has not answered for yet.
    credit_bytes: u64,
}

impl Cleaning {
    /// Clients wrote this much.
    pub(super) fn note_written(&mut self, bytes: u64) {
        self.credit_bytes = (self.credit_bytes + bytes).min(MAX_CREDIT_BYTES);
    }
}

/// A block that lives in a victim.
struct Live {
    key: LeafKey,
    block: u16,
    stored: StoredBlock,
    /// Where its bytes are in the window.
    at: usize,
}

impl ShardCore {
    /// Whether segments are to be made free.
    fn cleaning_is_due(&self, state: &State) -> bool {
        let few_are_free = self.clients_wait() || self.store.free_or_dead() < self.store.cleaning_begins();
        few_are_free && !state.lost.any
    }

    /// No free segment is left for overwrites.
    pub(super) fn clients_wait(&self) -> bool {
        self.store.pool.free_count() <= self.space().for_overwrites
    }

    /// Bytes that may be copied now.
    fn allowance_bytes(&self, state: &State) -> u64 {
        let (free, space) = (self.store.free_or_dead(), &self.space());
        let a_pass_will_do = state.pass.is_under_way() || self.is_urgent(state);
        if free <= space.for_overwrites || self.clients_wait() && !a_pass_will_do {
            return u64::MAX;
        }
        let at_most = state.cleaning.credit_bytes * MAX_GAIN;
        if self.store.cleans_early() {
            return at_most;
        }
        let range = u64::from(space.cleaning_begins - space.for_overwrites);
        let missing = u64::from(space.cleaning_begins.saturating_sub(free));
        at_most * missing / range
    }
}

impl State {
    /// Notes what lives of the blocks that a record holds. `at`: where the record begins in the window.
    fn note_live(
        &self,
        record: &Record<'_>,
        core: &ShardCore,
        segment: SegmentIndex,
        place: (u32, usize),
        live: &mut Vec<Live>,
    ) {
        let (offset_bytes, at) = place;
        let mut within = record.header.blocks_offset_bytes(core.store.geometry.block_size_bytes);
        for entry in record.entries() {
            if let EntryBody::Leaf(data) = entry.body {
                within += data.stored_bytes();
            }
            let Some(sums) = entry.stored_sums() else { continue };
            let first = core.store.geometry.unit_at(segment, offset_bytes + within as u32);
            let range = entry.head.range().expect("what has sums has blocks");
            for (block, stored) in (range.first..).zip(sums.stored_from(first)) {
                if let Some(key) = self.holder_of_block(entry.head.leaf_key(), block, stored) {
                    live.push(Live { key, block, stored, at: at + within });
                }
                within += stored.stored.bytes();
            }
        }
    }
}

/// Cleans as long as the shard lives.
pub(crate) async fn run_cleaner(core: Rc<ShardCore>) {
    // Where something is lost no pass is written, so nothing becomes free.
    core.store.set_exhausted(core.index, core.state.borrow().lost.any);
    let due = || core.cleaning_is_due(&core.state.borrow()).then_some(());
    while core.until(&core.durable_changed, due).await.is_some() {
        let victim = core.state.borrow().pick_victim(&core);
        let Some(victim) = victim else {
            if wait_for_victims(&core).await.is_none() {
                return;
            }
            continue;
        };
        core.store.set_exhausted(core.index, false);
        if clean(&core, victim).await.is_none() {
            return;
        }
        core.counters.borrow_mut().segments_cleaned += 1;
    }
}

/// Nothing can be cleaned now: asks for a pass if that makes segments free or old enough, and waits for something to
/// change.
async fn wait_for_victims(core: &Rc<ShardCore>) -> Option<()> {
    let (asked, before, passes) = {
        let mut state = core.state.borrow_mut();
        let helps = state.a_pass_would_help(core) || core.clients_wait() && core.frees_something(&state);
        let is_over = |state: &State| !core.frees_something(state) && !core.carry_pays(state);
        core.store.set_exhausted(core.index, !helps && is_over(&state));
        (helps.then(|| state.pass.ask()), state.log.gathering(), core.counters.borrow().passes)
    };
    core.durable_changed.wake_all();
    let later = RecordSeq(before.0 + RECORDS_BETWEEN_LOOKS);
    let changed = || {
        let state = core.state.borrow();
        let has_gone_on = || state.log.gathering() >= later || core.counters.borrow().passes != passes;
        asked.map_or_else(has_gone_on, |asked| state.pass.is_answered(asked)).then_some(())
    };
    core.until(&core.durable_changed, changed).await
}

/// Copies what lives in the segment. `None` when the shard has ended.
async fn clean(core: &Rc<ShardCore>, segment: SegmentIndex) -> Option<()> {
    let geometry = core.store.geometry;
    let _pin = (!mutant(Mutant::SegmentReusedBeforeMovesDurable)).then(|| core.pin(segment));
    let (mut offset_bytes, mut live) = (geometry.block_size_bytes, Vec::new());
    let mut on_their_way = VecDeque::new();
    let mut whole = true;
    while offset_bytes < geometry.segment_size_bytes && core.state.borrow().segments.get(segment).live_units > 0 {
        let length = WINDOW_BYTES.min((geometry.segment_size_bytes - offset_bytes) as usize);
        if !core.store.cleans_early() {
            pay(core, length as u64 / READS_PER_COPY, None).await?;
        }
        let from = geometry.segment_start_bytes(segment) + u64::from(offset_bytes);
        let Ok(window) = read_window(core, from, length).await else {
            whole = false;
            break;
        };
        background_step().await;
        let next = core.find_live(segment, offset_bytes, &window, &mut live);
        live.sort_unstable_by_key(|one| (one.key.layer, one.key.chunk, one.block));
        let is_right =
            |one: &Live| Crc32c::of(&window[one.at..one.at + one.stored.stored.bytes()]) == one.stored.checksum;
        for part in live.chunks_mut(BLOCKS_PER_RECORD) {
            background_step().await;
            let right = part.iter().filter(|one| is_right(one)).count();
            // Those that are damaged to the end.
            if right < part.len() {
                whole = false;
                part.sort_by_key(|one| !is_right(one));
            }
            if right == 0 {
                continue;
            }
            on_their_way.push_back(copy(core, &part[..right], &window).await?);
            if on_their_way.len() >= MAX_RECORDS_ON_THEIR_WAY {
                durable_through(core, on_their_way.pop_front().expect("just counted")).await?;
            }
        }
        live.clear();
        offset_bytes = next;
    }
    for record in on_their_way {
        durable_through(core, record).await?;
    }
    let mut state = core.state.borrow_mut();
    let left = state.segments.get_mut(segment);
    if !whole || left.live_units > 0 {
        // Something in it is damaged, or is named by nothing that could be read.
        left.left_alone = true;
        core.counters.borrow_mut().cleaning_errors += 1;
    }
    Some(())
}

/// Reads a window, step by step.
async fn read_window(core: &ShardCore, from_bytes: u64, length: usize) -> std::io::Result<IoBuf> {
    let mut window = IoBuf::new(length);
    let mut rest = window.split_off(0);
    while !rest.is_empty() {
        background_step().await;
        let mut piece = rest;
        rest = piece.split_off(READ_BYTES.min(piece.len()));
        let mut tries_left = READ_TRIES;
        let piece = loop {
            let (read, back) = core.device.read(from_bytes + window.len() as u64, piece).await;
            tries_left -= 1;
            match read {
                Ok(()) => break back,
                Err(error) if tries_left == 0 => return Err(error),
                Err(_) => piece = back,
            }
            sleep(RETRY_WAIT).await;
        };
        window.unsplit(piece);
    }
    Ok(window)
}

impl ShardCore {
    /// Notes what lives in the records that lie wholly in the window; returns where the next one to look at begins.
    fn find_live(&self, segment: SegmentIndex, offset_bytes: u32, window: &[u8], live: &mut Vec<Live>) -> u32 {
        let state = self.state.borrow();
        let geometry = self.store.geometry;
        let block = geometry.block_size_bytes;
        let mut at = 0;
        while at < window.len() {
            let here = offset_bytes + at as u32;
            let room = (geometry.segment_size_bytes - here) as usize;
            let record = match RecordHeader::peek(&window[at..], block, room) {
                // A record that goes on behind the window begins the next one.
                Ok(peeked) if at > 0 && peeked.length_bytes as usize > window.len() - at => break,
                // Its keyed hash would cost more than all else here, and proves nothing that the index does not say.
                Ok(_) => Record::decode_unproven(block, room, &window[at..]),
                Err(error) => Err(error),
            };
            match record {
                Ok(record) => {
                    state.note_live(&record, self, segment, (here, at), live);
                    at += record.header.length_bytes as usize;
                }
                Err(_) => at += block as usize,
            }
        }
        offset_bytes + at as u32
    }
}

/// Waits until so much may be copied, and takes it from what clients have paid for. `record_bytes`: and until there is
/// room for such a record. `None` when the shard has ended.
async fn pay(core: &Rc<ShardCore>, bytes: u64, record_bytes: Option<usize>) -> Option<()> {
    let may = || {
        let mut state = core.state.borrow_mut();
        let kept_back = core.space().for_moves;
        let is_paid = core.allowance_bytes(&state) >= bytes;
        let is_it = is_paid && record_bytes.is_none_or(|length| state.secure(core, Stream::Cold, length, kept_back));
        is_it.then_some(())
    };
    core.until(&core.durable_changed, may).await?;
    let mut state = core.state.borrow_mut();
    let gain = core.allowance_bytes(&state) / state.cleaning.credit_bytes.max(1);
    let paid = bytes / gain.clamp(1, MAX_GAIN);
    state.cleaning.credit_bytes = state.cleaning.credit_bytes.saturating_sub(paid);
    Some(())
}

/// Queues a record of moves of these blocks, when it is their turn. Once it is durable the index names the copies.
async fn copy(core: &Rc<ShardCore>, part: &[Live], window: &IoBuf) -> Option<RecordSeq> {
    let bytes: u64 = part.iter().map(|one| one.stored.stored.bytes() as u64).sum();
    pay(core, bytes, Some(LONGEST_RECORD_BYTES)).await?;
    let record = {
        let mut state = core.state.borrow_mut();
        let mut record = RecordSeq(0);
        for run in runs(part) {
            let from: Vec<_> = run.iter().map(|one| one.stored).collect();
            let range = BlockRange::new(u32::from(run[0].block), run.len() as u32);
            let moved = Moved { key: run[0].key, range, from: &from };
            let stored = run.iter().map(|one| &window[one.at..one.at + one.stored.stored.bytes()]);
            record = state.queue_move(&moved, stored);
        }
        record
    };
    core.counters.borrow_mut().moved_bytes += bytes;
    core.work.wake_all();
    Some(record)
}

/// Cuts sorted blocks into neighbours of one chunk.
fn runs(part: &[Live]) -> impl Iterator<Item = &[Live]> {
    let mut rest = part;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let follows =
            |(i, one): &(usize, &Live)| one.key == first.key && usize::from(one.block) == usize::from(first.block) + i;
        let count = rest.iter().enumerate().take(MAX_MOVED_BLOCKS).take_while(follows).count();
        let (run, left) = rest.split_at(count);
        rest = left;
        Some(run)
    })
}

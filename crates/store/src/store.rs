//! The part of an open store that its shards share: superblock, free segments, what failed.

use crate::create::HEADERS_AT_ONCE;
use crate::error::{AppendError, Damage, OpenError};
use crate::format::{
    FormatError, Generation, Geometry, Record, RecordHeader, RecordKey, RecordPlace, RecordSeq, SegmentHeader,
    SegmentIndex, ShardRoot, SlotPosition, StopMark, Stream, Superblock,
};
use crate::parallel;
use crate::pool::Pool;
use crate::space::Space;
use crate::superblock::{read_slots, write_update};
use runtime::{Device, IoBuf, wall_clock_ns};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Poll, Waker};
use types::{ClusterId, GroupId, Incarnation, ShardIndex, StoreId};

/// This part of what lives is what the index takes in any case: what it takes beyond that is not for new blocks.
const INDEX_SHARE_DIVISOR: u64 = 32;
/// Most shards of one device.
const MAX_SHARDS: usize = crate::format::geometry::MAX_SHARDS as usize;

/// One device's store. Its shards live on the cores they are dealt to and share this.
pub struct Store {
    pub(crate) geometry: Geometry,
    pub(crate) key: RecordKey,
    pub(crate) pool: Pool,
    pub(crate) previous_incarnation: Incarnation,
    cluster: ClusterId,
    id: StoreId,
    incarnation: Incarnation,
    superblock: Mutex<Roots>,
    /// Segments in use when the store was opened, until their shards ask for them.
    found: Vec<FoundSegment>,
    /// Segments whose header is not good.
    pub(crate) lost_headers: Vec<SegmentIndex>,
    damage: Vec<Damage>,
    /// Shards that lack something of what was lost, a bit each.
    losses: Mutex<u8>,
    repaired: Vec<Damage>,
    failed: OnceLock<AppendError>,
    /// Tasks, one per shard, that tell their shard of a failure met by another.
    watchers: Mutex<Vec<Waker>>,
    live_bytes: [AtomicU64; MAX_SHARDS],
    /// Segments of each shard that hold nothing and are not free yet.
    dead: [AtomicU32; MAX_SHARDS],
    /// Bytes that a pass of each shard takes.
    pass_bytes: [AtomicU64; MAX_SHARDS],
    space: Space,
    /// Segments that all limits of `space` are raised by, for passes that are long.
    for_long_passes: AtomicU32,
    clean_below: AtomicU32,
    /// Shards that can make nothing free, a bit each.
    exhausted: AtomicU32,
    /// Somebody was told that new blocks are refused.
    refusing: AtomicBool,
}

/// The superblock as it will be written next, and who writes it.
struct Roots {
    superblock: Superblock,
    writing: bool,
    waiting: Vec<Waker>,
}

/// A segment that held records when the store was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundSegment {
    pub(crate) segment: SegmentIndex,
    pub(crate) generation: Generation,
    pub(crate) first_record: RecordSeq,
    pub(crate) shard: ShardIndex,
    pub(crate) stream: Stream,
}

/// How full a store is. Bytes of segments, for a segment is what is taken and freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of all segments.
    pub capacity_bytes: u64,
    /// Bytes of all segments, less what is kept back for cleaning.
    pub usable_bytes: u64,
    /// New blocks are refused when this much of it lives: nine tenths.
    pub new_blocks_until_bytes: u64,
    /// Bytes of segments in use.
    pub used_bytes: u64,
    /// Bytes of blocks that are the last written of their place.
    pub live_bytes: u64,
}

impl Usage {
    /// Whether so little lives that so many bytes of new blocks are not refused.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        self.live_bytes + bytes < self.new_blocks_until_bytes
    }
}

impl Store {
    /// Opens the device-wide part: begins a new incarnation, finds the segments in use. The shards are opened next.
    ///
    /// # Errors
    /// No good superblock, a device that is not what it was, or an I/O error.
    pub async fn open(device: &Device) -> Result<Arc<Self>, OpenError> {
        // A killed process may have left writes that completed and are not durable: nothing that is read below may be
        // acted on and then be lost with the power.
        device.sync().await.map_err(|error| io_at(0, &error))?;
        let (mut superblock, repaired) = newest_superblock(device).await?;
        let previous_incarnation = superblock.incarnation;
        superblock.incarnation.0 += 1;
        superblock.written_at_ns = wall_clock_ns();
        // Once is enough for the incarnation; twice makes all four slots good again.
        for _ in 0..if repaired.is_empty() { 1 } else { 2 } {
            superblock.write_counter += 1;
            write_update(device, &superblock).await.map_err(|error| io_at(0, &error))?;
        }
        Self::with(device, superblock, previous_incarnation, repaired, IfUnreadable::Refuse).await
    }

    /// As [`open`](Self::open) for who only looks: nothing is written, no incarnation begins, and a header that cannot
    /// be read is as lost as one that is not good.
    pub(crate) async fn look(device: &Device) -> Result<Arc<Self>, OpenError> {
        let (superblock, damaged) = newest_superblock(device).await?;
        let incarnation = superblock.incarnation;
        Self::with(device, superblock, incarnation, damaged, IfUnreadable::GoOn).await
    }

    async fn with(
        device: &Device,
        superblock: Superblock,
        previous_incarnation: Incarnation,
        repaired: Vec<Damage>,
        if_unreadable: IfUnreadable,
    ) -> Result<Arc<Self>, OpenError> {
        let geometry = superblock.geometry;
        let key = RecordKey::new(&superblock.hash_key, superblock.store);
        let headers = read_headers(device, geometry, &key, if_unreadable).await?;
        let highest = headers.found.iter().map(|found| found.generation).max().unwrap_or_default();
        Ok(Arc::new(Self {
            geometry,
            key,
            pool: Pool::new(headers.free.into(), highest),
            previous_incarnation,
            cluster: superblock.cluster,
            id: superblock.store,
            incarnation: superblock.incarnation,
            superblock: Mutex::new(Roots { superblock, writing: false, waiting: Vec::new() }),
            found: headers.found,
            lost_headers: headers.lost,
            damage: headers.damage,
            losses: Mutex::default(),
            repaired,
            failed: OnceLock::new(),
            watchers: Mutex::default(),
            live_bytes: [const { AtomicU64::new(0) }; MAX_SHARDS],
            dead: [const { AtomicU32::new(0) }; MAX_SHARDS],
            pass_bytes: [const { AtomicU64::new(0) }; MAX_SHARDS],
            space: Space::of(&geometry),
            for_long_passes: AtomicU32::new(0),
            exhausted: AtomicU32::new(0),
            refusing: AtomicBool::new(false),
            clean_below: AtomicU32::new(0),
        }))
    }

    /// The cluster it belongs to.
    pub fn cluster_id(&self) -> ClusterId {
        self.cluster
    }

    /// Its id, for ever.
    pub fn store_id(&self) -> StoreId {
        self.id
    }

    /// Shards, 1 to 8, for ever.
    pub fn shard_count(&self) -> u8 {
        self.geometry.shard_count
    }

    /// The shard that a group lives in.
    pub fn shard_of(&self, group: GroupId) -> ShardIndex {
        ShardIndex((group.0 % u32::from(self.geometry.shard_count)) as u8)
    }

    /// This start of the store.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// How the device is divided.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Damage found outside of any one shard: segment headers.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// What was found damaged and made good at once, without loss: superblock slots, headers told from their records.
    pub fn repaired(&self) -> &[Damage] {
        &self.repaired
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        let segment = u64::from(self.geometry.segment_size_bytes);
        let total = self.geometry.segment_count;
        let usable_bytes = u64::from(total - self.space.kept_back) * segment;
        let live_bytes = self.live_bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        // Two passes lie on the device, one is complete and one is written. A little is always part of what is kept
        // back.
        let index_bytes = (2 * self.pass_bytes()).saturating_sub(live_bytes / INDEX_SHARE_DIVISOR);
        Usage {
            capacity_bytes: u64::from(total) * segment,
            usable_bytes,
            new_blocks_until_bytes: (usable_bytes / 10 * 9).saturating_sub(index_bytes),
            used_bytes: u64::from(total - self.pool.free_count()) * segment,
            live_bytes,
        }
    }

    /// Whether [`Shard::prepare`](crate::Shard::prepare) would take new blocks, at once or when more is cleaned, and so
    /// many bytes of them: what a member tells its primary.
    pub fn takes_new_blocks(&self, bytes: u64) -> bool {
        self.is_far_from_full(self.pool.free_count()) || self.usage().has_room_for(bytes) && !self.waits_in_vain()
    }

    /// Whether nothing is free for blocks, and no shard can make anything so.
    fn waits_in_vain(&self) -> bool {
        self.pool.free_count() <= self.space().for_overwrites && self.is_exhausted()
    }

    /// Whether it takes new blocks has to be looked at: little is free.
    pub fn is_nearly_full(&self) -> bool {
        !self.is_far_from_full(self.pool.free_count())
    }

    /// Where so many segments are free, there cannot be too much that lives.
    pub(crate) fn is_far_from_full(&self, free: u32) -> bool {
        free > self.geometry.segment_count / 4
    }

    /// New blocks are refused from now on; whether nobody was told so yet.
    pub fn begin_refusing(&self) -> bool {
        !self.refusing.swap(true, Ordering::Relaxed)
    }

    /// Whether somebody was told that new blocks are refused.
    pub fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Relaxed)
    }

    /// New blocks are taken again: the next time that they are not is told as the first was.
    pub fn end_refusing(&self) {
        self.refusing.store(false, Ordering::Relaxed);
    }

    /// The cleaner works while fewer segments are free, or hold nothing, than this: at first half to three quarters of
    /// what is kept back, so that most has died by itself. With a larger number it copies more, and earlier, and as
    /// fast as it ever does in step with clients, who then pay for its copies alone, not for what it reads.
    pub fn clean_below(&self, segments: u32) {
        self.clean_below.store(segments, Ordering::Relaxed);
    }

    /// Whether the shard can make nothing free.
    pub(crate) fn set_exhausted(&self, shard: ShardIndex, is_exhausted: bool) {
        let bit = 1 << shard.0;
        match is_exhausted {
            true => self.exhausted.fetch_or(bit, Ordering::Relaxed),
            false => self.exhausted.fetch_and(!bit, Ordering::Relaxed),
        };
        if self.is_exhausted() {
            self.pool.tell();
        }
    }

    /// Whether no shard can make anything free: to wait for a segment is in vain.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed).count_ones() == u32::from(self.shard_count())
    }

    /// Whether it was asked to clean earlier than it would.
    pub(crate) fn cleans_early(&self) -> bool {
        self.clean_below.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn cleaning_begins(&self) -> u32 {
        self.clean_below.load(Ordering::Relaxed).max(self.space().cleaning_begins)
    }

    /// Why the device takes nothing more, if it does not.
    pub fn failed(&self) -> Option<AppendError> {
        self.failed.get().cloned()
    }

    /// An assertion failed at a record of that shard: nothing of the store is used from now on.
    pub(crate) fn stop(&self, shard: ShardIndex, record: RecordSeq, message: &str) -> AppendError {
        let reason = format!("an assertion failed at record {} of shard {shard}: {message}", record.0);
        self.give_up(AppendError::Stopped { reason: reason.into() })
    }

    /// Refuses to use a store in which an assertion failed twice at the same record of that shard.
    pub(crate) fn stay_stopped(&self, shard: ShardIndex, mark: StopMark) -> AppendError {
        let (record, times) = (mark.record.0, mark.times);
        let reason = format!("an assertion failed {times} times at record {record} of shard {shard}: it is left alone");
        self.give_up(AppendError::Stopped { reason: reason.into() })
    }

    fn give_up(&self, error: AppendError) -> AppendError {
        let first = self.failed.get_or_init(|| error).clone();
        self.wake_watchers();
        first
    }

    /// The device failed: no shard of it acknowledges anything from now on.
    pub(crate) fn fail(&self, reason: &str) -> AppendError {
        self.give_up(AppendError::Failed { reason: reason.into() })
    }

    /// Makes those who wait in [`watch`](Self::watch) look again.
    pub(crate) fn wake_watchers(&self) {
        let watchers = std::mem::take(&mut *self.watchers.lock().unwrap_or_else(|poison| poison.into_inner()));
        watchers.into_iter().for_each(Waker::wake);
    }

    /// Resolves when the device has failed, or `over` says that nobody wants to know any more.
    pub(crate) async fn watch(&self, over: impl Fn() -> bool) {
        poll_fn(|cx| {
            // Registered first: a failure between the two is not missed.
            self.watchers.lock().unwrap_or_else(|poison| poison.into_inner()).push(cx.waker().clone());
            if self.failed.get().is_some() || over() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What lives of a shard, and how many of its segments hold nothing.
    pub(crate) fn set_use(&self, shard: ShardIndex, live_bytes: u64, dead: u32) {
        self.live_bytes[usize::from(shard.0)].store(live_bytes, Ordering::Relaxed);
        self.dead[usize::from(shard.0)].store(dead, Ordering::Relaxed);
    }

    /// What a pass of the shard takes.
    pub(crate) fn set_pass_bytes(&self, shard: ShardIndex, bytes: u64) {
        self.pass_bytes[usize::from(shard.0)].store(bytes, Ordering::Relaxed);
        let segments = self.pass_bytes() / u64::from(self.geometry.segment_size_bytes);
        let kept_for_them = self.space.for_moves - u32::from(self.shard_count());
        let raised = (segments as u32).saturating_sub(kept_for_them).min(self.geometry.segment_count / 2);
        self.for_long_passes.store(raised, Ordering::Relaxed);
    }

    /// What a pass of each shard takes, all together.
    fn pass_bytes(&self) -> u64 {
        self.pass_bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Who may take the last segments now: all passes together find theirs, each one's last besides.
    pub(crate) fn space(&self) -> Space {
        self.space.raised_by(self.for_long_passes.load(Ordering::Relaxed))
    }

    /// Segments that are kept because passes need more than one each.
    pub(crate) fn kept_for_long_passes(&self) -> u32 {
        self.for_long_passes.load(Ordering::Relaxed)
    }

    /// Segments that are free, or will be after a pass of their shard.
    pub(crate) fn free_or_dead(&self) -> u32 {
        self.pool.free_count() + self.dead.iter().map(|dead| dead.load(Ordering::Relaxed)).sum::<u32>()
    }

    /// The shard's segments as found at opening, in the order they were opened.
    pub(crate) fn found_segments(&self, shard: ShardIndex) -> Vec<FoundSegment> {
        let mut of_shard: Vec<_> = self.found.iter().copied().filter(|found| found.shard == shard).collect();
        of_shard.sort_unstable_by_key(|found| (found.first_record, found.generation));
        of_shard
    }

    fn roots(&self) -> MutexGuard<'_, Roots> {
        self.superblock.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn losses(&self) -> MutexGuard<'_, u8> {
        self.losses.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Whether a shard found damage when it was opened that is not mended.
    pub fn has_losses(&self) -> bool {
        *self.losses() != 0
    }

    /// Whether there is no shard that lacks nothing.
    pub(crate) fn all_have_losses(&self) -> bool {
        self.losses().count_ones() == u32::from(self.shard_count())
    }

    /// Whether that will not be mended: what is damaged is kept until all that was lost is here again, which has no room.
    pub fn has_no_room_to_mend(&self) -> bool {
        self.has_losses() && self.waits_in_vain()
    }

    /// The shard lacks something.
    pub(crate) fn note_losses(&self, shard: ShardIndex) {
        *self.losses() |= 1 << shard.0;
    }

    /// Nobody gets a segment as long as a shard lacks something: an index names it, and its header is not that shard's.
    pub(crate) fn withhold(&self, segment: SegmentIndex) {
        // Those whose header is lost are in no list.
        if !self.lost_headers.contains(&segment) {
            self.pool.withhold(segment);
        }
    }

    /// The shard lacks nothing any more, and its last pass says so. Behind the last such shard no index names a segment whose
    /// header is lost, and no opening reads it: it is free. A header that cannot be written stays lost.
    pub(crate) async fn losses_are_over(&self, device: &Device, shard: ShardIndex) {
        {
            let mut shards = self.losses();
            *shards &= !(1 << shard.0);
            if *shards != 0 {
                return;
            }
        }
        let mut free = Vec::new();
        for segment in &self.lost_headers {
            let zeroes = IoBuf::zeroed(self.geometry.block_size_bytes as usize).freeze();
            let written = device.write(self.geometry.segment_start_bytes(*segment), &mut vec![zeroes]).await;
            free.extend(written.is_ok().then_some(*segment));
        }
        if device.sync().await.is_ok() {
            free.into_iter().for_each(|segment| self.pool.give(segment));
            self.pool.give_withheld();
        }
    }

    /// What the superblock says of a shard.
    pub(crate) fn root(&self, shard: ShardIndex) -> ShardRoot {
        self.roots().superblock.shards[usize::from(shard.0)]
    }

    /// Makes `root` the shard's, durably. Shards take turns.
    pub(crate) async fn set_root(
        &self,
        device: &Device,
        shard: ShardIndex,
        root: ShardRoot,
    ) -> Result<(), AppendError> {
        self.update_root(device, shard, false, |old| *old = root).await
    }

    /// Notes, durably, that an assertion failed at that record of the shard: once more in a row, or for the first time.
    pub(crate) async fn mark_stopped(
        &self,
        device: &Device,
        shard: ShardIndex,
        record: RecordSeq,
    ) -> Result<(), AppendError> {
        self.update_root(device, shard, true, |root| {
            let before = if root.stopped.record == record { root.stopped.times } else { 0 };
            root.stopped = StopMark { record, times: before.saturating_add(1) };
        })
        .await
    }

    /// `stopped`: also when the store is, for its device may be well.
    async fn update_root(
        &self,
        device: &Device,
        shard: ShardIndex,
        stopped: bool,
        change: impl FnOnce(&mut ShardRoot),
    ) -> Result<(), AppendError> {
        poll_fn(|cx| {
            let mut roots = self.roots();
            if roots.writing {
                roots.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
            roots.writing = true;
            Poll::Ready(())
        })
        .await;
        let turn = Turn(self);
        let update = {
            let mut roots = self.roots();
            match self.failed() {
                Some(AppendError::Stopped { .. }) if stopped => {}
                Some(error) => return Err(error),
                None => {}
            }
            change(&mut roots.superblock.shards[usize::from(shard.0)]);
            roots.superblock.write_counter += 1;
            roots.superblock.written_at_ns = wall_clock_ns();
            roots.superblock.clone()
        };
        let written = write_update(device, &update).await;
        drop(turn);
        // After a failed update nobody knows which slots are good: no other may begin.
        written.map_err(|error| self.fail(&format!("writing the superblock: {error}")))
    }
}

/// The right to write the superblock, given back also when the task that has it is ended.
struct Turn<'a>(&'a Store);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut roots = self.0.roots();
        roots.writing = false;
        roots.waiting.drain(..).for_each(Waker::wake);
    }
}

pub(crate) fn io_at(offset_bytes: u64, error: &std::io::Error) -> OpenError {
    OpenError::Io { offset_bytes, message: Arc::from(error.to_string()) }
}

/// The superblock that counts, and the slots that are not good.
async fn newest_superblock(device: &Device) -> Result<(Superblock, Vec<Damage>), OpenError> {
    let slots = read_slots(device).await?;
    let bad = slots.iter().zip(SlotPosition::ALL).filter_map(|(slot, at)| Some((at, slot.as_ref().err()?.clone())));
    let bad: Vec<_> = bad.collect();
    let superblock = Superblock::newest(slots)?;
    let geometry = superblock.geometry;
    check_device(device, &geometry)?;
    let damaged = |(at, error): (SlotPosition, _)| Damage::Superblock {
        offset_bytes: at.offset_bytes(geometry.device_size_bytes),
        error,
    };
    Ok((superblock, bad.into_iter().map(damaged).collect()))
}

fn check_device(device: &Device, geometry: &Geometry) -> Result<(), OpenError> {
    let info = device.info();
    if info.size_bytes < geometry.device_size_bytes || info.block_size_bytes > geometry.block_size_bytes {
        return Err(OpenError::Device {
            found_bytes: info.size_bytes,
            found_block: info.block_size_bytes,
            needed_bytes: geometry.device_size_bytes,
            needed_block: geometry.block_size_bytes,
        });
    }
    Ok(())
}

/// What the first blocks of all segments say.
#[derive(Default)]
struct Headers {
    free: Vec<SegmentIndex>,
    found: Vec<FoundSegment>,
    lost: Vec<SegmentIndex>,
    damage: Vec<Damage>,
}

/// What a segment header that the device does not return is to whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfUnreadable {
    Refuse,
    GoOn,
}

async fn read_headers(
    device: &Device,
    geometry: Geometry,
    key: &RecordKey,
    if_unreadable: IfUnreadable,
) -> Result<Headers, OpenError> {
    let headers = Rc::new(RefCell::new(Headers::default()));
    let (on, into, key) = (device.clone(), headers.clone(), key.clone());
    parallel::for_each(geometry.segment_count, HEADERS_AT_ONCE, move |segment| {
        let (device, headers, key) = (on.clone(), into.clone(), key.clone());
        async move {
            let segment = SegmentIndex(segment);
            let offset = geometry.segment_start_bytes(segment);
            let expected = geometry.block_size_bytes as usize;
            let (read, block) = device.read(offset, IoBuf::new(expected)).await;
            if read.is_err() && if_unreadable == IfUnreadable::GoOn {
                let error = FormatError::Short { what: "segment header", expected, found: 0 };
                let mut headers = headers.borrow_mut();
                headers.lost.push(segment);
                headers.damage.push(Damage::SegmentHeader { segment, offset_bytes: offset, error });
                return Ok(());
            }
            read.map_err(|error| io_at(offset, &error))?;
            if block.iter().all(|byte| *byte == 0) {
                headers.borrow_mut().free.push(segment);
                return Ok::<(), OpenError>(());
            }
            let error = match SegmentHeader::decode(&key, segment, &block) {
                Ok(header) => {
                    headers.borrow_mut().found.push(found_by(&header));
                    return Ok(());
                }
                Err(error) => error,
            };
            let told = tell_from_first_record(&device, &geometry, &key, segment, &block).await;
            let mut headers = headers.borrow_mut();
            match told {
                Some(found) => headers.found.push(found),
                None => headers.lost.push(segment),
            }
            headers.damage.push(Damage::SegmentHeader { segment, offset_bytes: offset, error });
            Ok(())
        }
    })
    .await?;
    let mut headers = headers.take();
    // They came in the order of the reads' completions.
    headers.free.sort_unstable();
    headers.lost.sort_unstable();
    Ok(headers)
}

fn found_by(header: &SegmentHeader) -> FoundSegment {
    FoundSegment {
        segment: header.segment,
        generation: header.generation,
        first_record: header.first_record,
        shard: header.shard,
        stream: header.stream,
    }
}

/// A header that is not good is made out from the record behind it: the keyed hash of a record proves the generation,
/// so it is enough to guess that right: as it stands in the damaged header, or with one bit turned.
async fn tell_from_first_record(
    device: &Device,
    geometry: &Geometry,
    key: &RecordKey,
    segment: SegmentIndex,
    header: &[u8],
) -> Option<FoundSegment> {
    let raw = u64::from_le_bytes(*header.get(16..24)?.first_chunk()?);
    let offset_bytes = geometry.block_size_bytes;
    let room = (geometry.segment_size_bytes - offset_bytes) as usize;
    let from = geometry.segment_start_bytes(segment) + u64::from(offset_bytes);
    let (read, area) = device.read(from, IoBuf::new(crate::format::MAX_RECORD_BYTES.min(room))).await;
    read.ok()?;
    let guesses = std::iter::once(raw).chain((0..64).map(|bit| raw ^ (1 << bit)));
    guesses.map(Generation).find_map(|generation| {
        let place = RecordPlace { segment, generation, offset_bytes };
        let record = Record::decode(key, &place, geometry.block_size_bytes, room, &area).ok()?;
        let RecordHeader { seq, shard, kind, .. } = record.header;
        Some(FoundSegment { segment, generation, first_record: seq, shard, stream: Stream::of(kind) })
    })
}

//! The part of a command that lies in one chunk, on the chunk's core, once it may run.
//!
//! Whole blocks go to the group as they are, sharing the caller's memory. A write that ends inside a block reads that
//! block first (its checksum is verified on the way) and writes it whole. Writes are cut at multiples of 64 KiB, and
//! what lies between two such cuts is one entry: all of it survives a crash, or nothing. An entry's blocks are
//! compressed and encrypted here, the last thing before the group gets them; of an entry of nothing but zeroes nothing
//! is stored.

use crate::api::{Encryption, IoError};
use crate::coding::Where;
use crate::command::Admitted;
use crate::head::Head;
use crate::patience::{self, GROUP_PATIENCE};
use crate::spec::VolumeSpec;
use crate::status::{BlockExtent, extents_of};
use replication::{Access, Blocks, Found, GroupError, Piece, Place, Sought};
use runtime::{Instant, IoBuf, SharedBuf, now};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use store::Want;
use types::{BLOCK_BYTES, BlockRange, ChunkId, LayerId, Mutant, VolumeEpoch, mutant};

/// A write that does not cross a multiple of this is all or nothing on every floor: one entry, in one record.
pub(crate) const UNTORN_BYTES: u32 = 64 << 10;

const BLOCK: u32 = BLOCK_BYTES as u32;

/// What to do, at which byte of the chunk.
pub(crate) struct Part {
    pub(crate) chunk: ChunkId,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    /// What is read, newest first, if it is a snapshot and not the volume as it is.
    pub(crate) snapshot: Option<Arc<[LayerId]>>,
    /// Of a write whose range was compared before: how often the volume had been rolled back then.
    pub(crate) compared: Option<u64>,
    /// See [`Session::that_waits`](crate::Session::that_waits).
    pub(crate) waits: bool,
    /// The reign of the head when the command was let in: in none that follows it is done.
    pub(crate) epoch: VolumeEpoch,
    pub(crate) work: Work,
}

/// What to do.
pub(crate) enum Work {
    /// Fills the buffer, which covers the whole blocks around the range; or, where the part is all of the command (`is_all`), brings
    /// them where they are.
    Read { buf: IoBuf, is_all: bool },
    /// Writes these bytes.
    Write(SharedBuf),
    /// Writes these bytes, and stores them even where they are zeroes.
    Fill(SharedBuf),
    /// Makes the range zero; `partial`: also where it ends inside a block.
    Zero { partial: bool },
    /// Compares with these bytes.
    Compare(SharedBuf),
    /// Writes the second bytes if it holds the first ones.
    CompareAndWrite(SharedBuf, SharedBuf),
    /// Says what is stored, and what has changed since these layers.
    Status(Arc<[LayerId]>),
}

impl Part {
    /// Of a compare-and-write the compare, to be done before what is left of this part: the write. Else nothing.
    pub(crate) fn take_compare(&mut self) -> Option<Self> {
        let Work::CompareAndWrite(expected, bytes) = &self.work else { return None };
        let compare = Self { work: Work::Compare(expected.clone()), snapshot: self.snapshot.clone(), ..*self };
        self.work = Work::Write(bytes.clone());
        Some(compare)
    }

    /// Whether the volume was rolled back since it was compared. Then it stands in the order before the rollback, which
    /// took back what it would have written: nothing is left to do.
    fn is_taken_back(&self, spec: &VolumeSpec) -> bool {
        self.compared.is_some_and(|before| before != spec.rollbacks) && !mutant(Mutant::ComparedBeforeRollback)
    }
}

/// What came of it.
pub(crate) enum Done {
    /// It is done.
    Plain,
    /// The bytes are the same, after so many rollbacks of the volume.
    Same(u64),
    /// What was read, and one checksum per block.
    Read(Brought, Vec<u32>),
    /// The bytes differ, first at this byte of the part.
    Differs(u32),
    /// What a compare-and-write was to be compared with cannot be read: nothing was written.
    NotCompared(IoError),
    /// What is stored.
    Status(Vec<BlockExtent>),
}

/// Where the blocks of a read are.
pub(crate) enum Brought {
    /// In the buffer that was given for them.
    Read(IoBuf),
    /// Where they came to from another node.
    Came(SharedBuf),
}

/// The blocks that bytes `offset..offset + len` of a chunk touch.
pub(crate) fn blocks_around(offset: u32, len: u32) -> BlockRange {
    let first = offset / BLOCK;
    BlockRange::new(first, (offset + len).div_ceil(BLOCK) - first)
}

/// The blocks that lie wholly in bytes `offset..offset + len` of a chunk.
fn blocks_within(offset: u32, len: u32) -> Option<BlockRange> {
    let (first, end) = (offset.div_ceil(BLOCK), (offset + len) / BLOCK);
    (end > first).then(|| BlockRange::new(first, end - first))
}

/// Does it. `hold` is the command's place in the chunk's order; it is told of entries on their way.
pub(crate) async fn run(
    spec: &VolumeSpec,
    group: &Rc<Access>,
    part: Part,
    hold: &mut Admitted,
) -> Result<Done, IoError> {
    if spec.info.encryption == Encryption::Locked {
        // It is in no directory; should one reach it all the same, nothing is stored in clear.
        return Err(IoError::Unavailable(format!("volume {} is locked", spec.info.name)));
    }
    if part.epoch != spec.epoch {
        return Err(IoError::Elsewhere(format!("volume {} had another head since", spec.info.name)));
    }
    if part.is_taken_back(spec) {
        return Ok(Done::Plain);
    }
    let head = hold.head().clone();
    let Part { chunk, offset, len, snapshot, waits, work, .. } = part;
    let layers = snapshot.as_deref().unwrap_or(&spec.info.layers);
    let stores_zeroes = matches!(work, Work::Fill(_));
    let runner = Runner { spec, group, chunk, layers, stores_zeroes, waits, head: &head, read_at: Cell::default() };
    let writes = matches!(work, Work::Write(_) | Work::Fill(_) | Work::Zero { .. });
    assert!(snapshot.is_none() || !writes, "a snapshot stays as it is");
    match work {
        Work::Read { buf, is_all } => {
            let mut checksums = crate::checksums::take();
            let (result, mut buf) = runner.read(blocks_around(offset, len), buf, &mut checksums).await;
            hold.read_at(runner.read_at.get());
            let brought = match result? {
                Some(came) if is_all => Brought::Came(came),
                came => {
                    copy(came, &mut buf);
                    Brought::Read(buf)
                }
            };
            Ok(Done::Read(brought, checksums))
        }
        Work::Write(bytes) => runner.write(offset, &bytes, hold).await.map(|()| Done::Plain),
        // Boxed, as whatever is rarer than whole-block reads and writes: a command's task is as large as its largest
        // case.
        Work::Fill(bytes) => Box::pin(runner.write(offset, &bytes, hold)).await.map(|()| Done::Plain),
        Work::Zero { partial } => Box::pin(runner.zero(offset, len, partial, hold)).await.map(|()| Done::Plain),
        Work::Compare(bytes) => {
            let compared = Box::pin(runner.compare(offset, &bytes)).await;
            hold.read_at(runner.read_at.get());
            compared
        }
        Work::CompareAndWrite(expected, bytes) => {
            Box::pin(runner.compare_and_write(offset, &expected, &bytes, hold)).await
        }
        Work::Status(since) => Box::pin(runner.status(offset, len, &since)).await.map(Done::Status),
    }
}

/// What has come to elsewhere is in the buffer, too.
fn copy(came: Option<SharedBuf>, buf: &mut IoBuf) {
    if let Some(came) = came {
        buf.copy_from_slice(&came);
    }
}

struct Runner<'a> {
    spec: &'a VolumeSpec,
    group: &'a Rc<Access>,
    chunk: ChunkId,
    /// What is read, newest first.
    layers: &'a [LayerId],
    /// Whether blocks of nothing but zeroes are stored.
    stores_zeroes: bool,
    /// However long the group serves nobody.
    waits: bool,
    head: &'a Rc<Head>,
    /// When the device was asked for what is read (zero: without a wait), and when it was there.
    read_at: Cell<(Instant, Instant)>,
}

/// Why a part, or an attempt at it, came to nothing.
enum Failed {
    /// The group has not done it, or nobody knows.
    Group(GroupError),
    /// For another reason.
    Io(IoError),
}

impl From<GroupError> for Failed {
    fn from(error: GroupError) -> Self {
        Self::Group(error)
    }
}

/// The group of a part knows of the head, and that is committed: nothing of an older one is done there any more.
///
/// # Errors
/// It does not serve, or of this head nothing.
pub(crate) async fn raise(head: &Rc<Head>, spec: &VolumeSpec, group: &Rc<Access>, waits: bool) -> Result<(), IoError> {
    let mut since = None;
    while !group.has_answered(spec.info.id, spec.epoch) {
        let Err(error) = group.tell(spec.stamp()).await else { break };
        again(head, spec, group, waits, error, &mut since).await?;
    }
    Ok(())
}

/// What was asked of the group has failed since then; resolves when there is to be another attempt.
///
/// # Errors
/// If there is to be none.
async fn again(
    head: &Rc<Head>,
    spec: &VolumeSpec,
    group: &Rc<Access>,
    waits: bool,
    error: GroupError,
    since: &mut Option<Instant>,
) -> Result<(), IoError> {
    if let GroupError::OldHead { volume, seen, .. } = error {
        head.deposed(volume, seen);
    }
    let is_over = now().since(*since.get_or_insert_with(now)) >= GROUP_PATIENCE;
    if is_over && !waits && group.may_serve_later(&error) {
        patience::note_stopped(head, spec, group);
        return Err(IoError::Stopped(error.to_string()));
    }
    group.ask_again(error).await.map_err(io_error)
}

impl Runner<'_> {
    /// An attempt has failed since which others have, too; resolves when there is to be another.
    ///
    /// # Errors
    /// If there is to be none. What then may be done all the same is the hold's.
    #[cold]
    async fn again(
        &self,
        failed: Failed,
        since: &mut Option<Instant>,
        hold: Option<&mut Admitted>,
    ) -> Result<(), IoError> {
        let error = match failed {
            Failed::Group(error) => error,
            Failed::Io(error) => return Err(error),
        };
        if let (GroupError::Unknown { .. } | GroupError::Stopped { .. }, Some(hold)) = (&error, hold) {
            hold.outcome_unknown(self.group);
        }
        again(self.head, self.spec, self.group, self.waits, error, since).await
    }

    /// Into the buffer, or to where it says.
    async fn read(
        &self,
        range: BlockRange,
        mut buf: IoBuf,
        checksums: &mut Vec<u32>,
    ) -> (Result<Option<SharedBuf>, IoError>, IoBuf) {
        let mut since = None;
        loop {
            let (result, back) = self.read_once(range, buf, checksums).await;
            let failed = match result {
                Ok(came) => return (Ok(came), back),
                Err(failed) => failed,
            };
            if let Err(error) = Box::pin(self.again(failed, &mut since, None)).await {
                return (Err(error), back);
            }
            buf = back;
            checksums.clear();
        }
    }

    async fn read_once(
        &self,
        range: BlockRange,
        buf: IoBuf,
        checksums: &mut Vec<u32>,
    ) -> (Result<Option<SharedBuf>, Failed>, IoBuf) {
        let Self { spec, group, chunk, layers, .. } = self;
        let want = if spec.coding.key.is_some() { Want::Stored } else { Want::Plain };
        let sought = Sought { layers, chunk: *chunk, range, want };
        let (result, mut buf) = group.read(spec.stamp(), sought, buf, checksums).await;
        let result = match result {
            Ok((found, waited)) => {
                self.read_at.set((waited.unwrap_or_default(), now()));
                match found {
                    Found::Plain => Ok(None),
                    Found::There(bytes) => Ok(Some(bytes)),
                    Found::Stored(stored) => {
                        let decoded = self.decode(range, stored, &mut buf, checksums);
                        decoded.map(|()| None).map_err(Failed::Io)
                    }
                }
            }
            Err(error) => Err(Failed::Group(error)),
        };
        (result, buf)
    }

    fn at(&self, range: BlockRange) -> Where {
        Where { layer: self.spec.top(), chunk: self.chunk, range }
    }

    fn decode(
        &self,
        range: BlockRange,
        stored: Blocks,
        buf: &mut IoBuf,
        checksums: &mut Vec<u32>,
    ) -> Result<(), IoError> {
        let decoded = self.head.coder.borrow_mut().decode(&self.spec.coding, self.at(range), stored, buf, checksums);
        decoded.map_err(|(block, why)| {
            let (chunk, group) = (self.chunk, self.group.id());
            IoError::Damaged(format!(
                "group {group}: chunk {chunk} block {block} has its checksum and is no block: {why}"
            ))
        })
    }

    /// One block, as it is.
    async fn read_block(&self, block: u32) -> Result<IoBuf, Failed> {
        let mut checksums = crate::checksums::take();
        let (result, mut buf) =
            self.read_once(BlockRange::new(block, 1), IoBuf::new(BLOCK_BYTES), &mut checksums).await;
        crate::checksums::give(checksums);
        copy(result?, &mut buf);
        Ok(buf)
    }

    async fn write(&self, offset: u32, bytes: &SharedBuf, hold: &mut Admitted) -> Result<(), IoError> {
        let mut since = None;
        loop {
            let Err(failed) = self.write_once(offset, bytes, hold).await else { return Ok(()) };
            Box::pin(self.again(failed, &mut since, Some(hold))).await?;
        }
    }

    async fn write_once(&self, offset: u32, bytes: &SharedBuf, hold: &mut Admitted) -> Result<(), Failed> {
        let end = offset + bytes.len() as u32;
        let unit = if mutant(Mutant::UntornSplit) { BLOCK } else { UNTORN_BYTES };
        let is_one = end <= (offset / unit + 1) * unit;
        if !is_one && self.group.here().is_none() && !mutant(Mutant::UntornSplit) {
            let queued = Box::pin(self.write_there(offset, bytes, hold)).await;
            return all_of(queued, hold).await;
        }
        let mut queued = Ok(());
        for (at, piece) in cut_at(unit, offset, bytes) {
            queued = self.write_piece(at, piece, hold).await;
            if mutant(Mutant::UntornSplit) && queued.is_ok() {
                // Entries that are queued at once mostly share a record, and are all or nothing by that.
                queued = hold.wait_committed().await.map_err(Failed::Group);
            }
            if queued.is_err() {
                break;
            }
        }
        all_of(queued, hold).await
    }

    /// Queues bytes of several pieces at who leads elsewhere: in one request.
    async fn write_there(&self, offset: u32, bytes: &SharedBuf, hold: &mut Admitted) -> Result<(), Failed> {
        let (mut pieces, mut are_whole) = (Vec::new(), true);
        for (at, piece) in cut_at(UNTORN_BYTES, offset, bytes) {
            if let Some((piece, is_whole)) = self.piece(at, piece, hold).await? {
                pieces.push(piece);
                are_whole &= is_whole;
            }
        }
        if pieces.is_empty() {
            return Ok(());
        }
        let change = self.group.write_there(self.spec.stamp(), self.spec.top(), self.chunk, pieces).await?;
        hold.on_its_way(self.group, change);
        if !are_whole {
            hold.filled_up();
        }
        Ok(())
    }

    /// Queues one entry: bytes that do not cross a multiple of 64 KiB.
    async fn write_piece(&self, offset: u32, bytes: SharedBuf, hold: &mut Admitted) -> Result<(), Failed> {
        let Some((Piece { range, bytes, coding }, is_whole)) = self.piece(offset, bytes, hold).await? else {
            return Ok(());
        };
        let place = Place { layer: self.spec.top(), chunk: self.chunk, range };
        let change = self.group.write(self.spec.stamp(), place, bytes, coding).await?;
        hold.on_its_way(self.group, change);
        if !is_whole {
            hold.filled_up();
        }
        Ok(())
    }

    /// Such bytes as they are to be stored, and whether they are whole blocks; nothing where they are zeroes, which are queued.
    async fn piece(&self, offset: u32, bytes: SharedBuf, hold: &mut Admitted) -> Result<Option<(Piece, bool)>, Failed> {
        let range = blocks_around(offset, bytes.len() as u32);
        let is_whole = bytes.len() == range.bytes();
        let bytes = if is_whole { bytes } else { Box::pin(self.fill_up(range, offset, &bytes)).await? };
        if !self.stores_zeroes && is_zero(&bytes) {
            return Box::pin(self.zero_blocks(range, hold)).await.map(|()| None);
        }
        let encoded = self.head.coder.borrow_mut().encode(&self.spec.coding, self.at(range), bytes);
        let (bytes, coding) =
            encoded.map_err(|why| Failed::Io(IoError::Unavailable(format!("a block was not encrypted: {why}"))))?;
        Ok(Some((Piece { range, bytes, coding }, is_whole)))
    }

    /// The whole blocks of `range`, with `bytes` at `offset` and around them what is stored.
    #[cold]
    async fn fill_up(&self, range: BlockRange, offset: u32, bytes: &[u8]) -> Result<SharedBuf, Failed> {
        let start = u32::from(range.first) * BLOCK;
        let (from, to) = ((offset - start) as usize, (offset - start) as usize + bytes.len());
        let mut whole = IoBuf::new(range.bytes());
        let last = range.bytes() - BLOCK_BYTES;
        if !from.is_multiple_of(BLOCK_BYTES) || (last == 0 && to < BLOCK_BYTES) {
            whole[..BLOCK_BYTES].copy_from_slice(&self.read_block(u32::from(range.first)).await?);
        }
        if last > 0 && !to.is_multiple_of(BLOCK_BYTES) {
            whole[last..].copy_from_slice(&self.read_block(range.end() - 1).await?);
        }
        whole[from..to].copy_from_slice(bytes);
        Ok(whole.freeze())
    }

    /// Queues an entry without data, if there is anything that it would hide.
    async fn zero_blocks(&self, range: BlockRange, hold: &mut Admitted) -> Result<(), Failed> {
        let Self { spec, group, chunk, .. } = self;
        if let Some(change) = group.zero(spec.stamp(), &spec.info.layers, *chunk, range).await? {
            hold.on_its_way(group, change);
        }
        Ok(())
    }

    async fn zero(&self, offset: u32, len: u32, partial: bool, hold: &mut Admitted) -> Result<(), IoError> {
        let mut since = None;
        loop {
            let Err(failed) = self.zero_once(offset, len, partial, hold).await else { return Ok(()) };
            self.again(failed, &mut since, Some(hold)).await?;
        }
    }

    async fn zero_once(&self, offset: u32, len: u32, partial: bool, hold: &mut Admitted) -> Result<(), Failed> {
        let end = offset + len;
        let inner = blocks_within(offset, len);
        let mut queued = match inner {
            Some(range) => self.zero_blocks(range, hold).await,
            None => Ok(()),
        };
        if partial && queued.is_ok() {
            // What lies before and behind the whole blocks; all of it, if there are none.
            let (head_end, tail_start) = match inner {
                Some(range) => (u32::from(range.first) * BLOCK, range.end() * BLOCK),
                None => (end.min((offset / BLOCK + 1) * BLOCK), end.min((offset / BLOCK + 1) * BLOCK)),
            };
            for (from, to) in [(offset, head_end), (tail_start, end)] {
                if from < to && queued.is_ok() {
                    let zeroes = IoBuf::zeroed((to - from) as usize).freeze();
                    queued = self.write_piece(from, zeroes, hold).await;
                }
            }
        }
        all_of(queued, hold).await
    }

    async fn status(&self, offset: u32, len: u32, marks: &[LayerId]) -> Result<Vec<BlockExtent>, IoError> {
        let Self { spec, group, chunk, layers, .. } = self;
        let range = blocks_around(offset, len);
        let (mut known, mut since) = (Vec::new(), None);
        loop {
            let sought = Sought { layers, chunk: *chunk, range, want: Want::Stored };
            match group.known_blocks(spec.stamp(), sought, &mut known).await {
                Ok(()) => return Ok(extents_of(&known, layers, marks, offset, len)),
                Err(error) => self.again(error.into(), &mut since, None).await?,
            }
        }
    }

    async fn compare(&self, offset: u32, bytes: &SharedBuf) -> Result<Done, IoError> {
        let range = blocks_around(offset, bytes.len() as u32);
        let mut checksums = crate::checksums::take();
        let (result, mut stored) = self.read(range, IoBuf::new(range.bytes()), &mut checksums).await;
        crate::checksums::give(checksums);
        copy(result?, &mut stored);
        let stored = &stored[(offset % BLOCK) as usize..][..bytes.len()];
        let differs = stored.iter().zip(bytes.iter()).position(|(stored, wanted)| stored != wanted);
        Ok(differs.map_or(Done::Same(self.spec.rollbacks), |at| Done::Differs(at as u32)))
    }

    /// Both under the one place in the chunk's order that the command holds: nothing comes between them.
    async fn compare_and_write(
        &self,
        offset: u32,
        expected: &SharedBuf,
        bytes: &SharedBuf,
        hold: &mut Admitted,
    ) -> Result<Done, IoError> {
        match self.compare(offset, expected).await {
            Ok(Done::Same(_)) if mutant(Mutant::ComparedAgain) => {
                let Err(failed) = self.write_once(offset, bytes, hold).await else { return Ok(Done::Plain) };
                self.again(failed, &mut None, Some(hold)).await?;
                Box::pin(self.compare_and_write(offset, expected, bytes, hold)).await
            }
            Ok(Done::Same(_)) => self.write(offset, bytes, hold).await.map(|()| Done::Plain),
            Ok(other) => Ok(other),
            Err(error) => Ok(Done::NotCompared(error)),
        }
    }
}

/// Bytes at an offset, cut at the multiples of `unit`, each piece with its own offset.
fn cut_at(unit: u32, offset: u32, bytes: &SharedBuf) -> impl Iterator<Item = (u32, SharedBuf)> {
    let end = offset + bytes.len() as u32;
    let next = move |at: u32| end.min((at / unit + 1) * unit);
    let starts = std::iter::successors(Some(offset), move |&at| Some(next(at))).take_while(move |&at| at < end);
    starts.map(move |at| (at, bytes.slice((at - offset) as usize..(next(at) - offset) as usize)))
}

/// What came of an attempt, when all that it queued has an outcome, also after an error: nothing overlapping may start before.
/// Of parts that nobody knows of nobody knows the whole.
async fn all_of(queued: Result<(), Failed>, hold: &mut Admitted) -> Result<(), Failed> {
    match hold.wait_committed().await {
        Err(unknown @ GroupError::Unknown { .. }) => Err(Failed::Group(unknown)),
        committed => queued.and(committed.map_err(Failed::Group)),
    }
}

/// Whether there is nothing but zeroes: one look, for most data.
fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().all(|word| *word == [0; 8]) && rest.iter().all(|byte| *byte == 0)
}

/// What the front doors are told.
pub(crate) fn io_error(error: GroupError) -> IoError {
    match error {
        GroupError::NoSpace(error) => {
            let why = error.to_string();
            IoError::NoSpace(why.strip_prefix("no space: ").map_or(why.clone(), str::to_owned))
        }
        GroupError::MemberFull { .. } | GroupError::NoSpaceThere { .. } => {
            let why = error.to_string();
            IoError::NoSpace(why.strip_prefix("no space: ").map_or(why.clone(), str::to_owned))
        }
        GroupError::Damaged { .. } | GroupError::DamagedThere { .. } => IoError::Damaged(error.to_string()),
        GroupError::OldHead { .. } => IoError::Elsewhere(error.to_string()),
        GroupError::Stopped { .. }
        | GroupError::NotPrimary { .. }
        | GroupError::Untold { .. }
        | GroupError::NotHeld { .. }
        | GroupError::Overtaken { .. }
        | GroupError::Unknown { .. } => IoError::Unavailable(error.to_string()),
    }
}

/// The group of a part, as this core reaches it: a chunk belongs to one core.
pub(crate) fn local_group(groups: &[Option<Rc<Access>>], place: usize) -> Result<&Rc<Access>, IoError> {
    let missing = || IoError::Unavailable("the group of this part of the volume was not started".to_owned());
    groups.get(place).and_then(Option::as_ref).ok_or_else(missing)
}

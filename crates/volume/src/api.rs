//! What the front doors see of a volume.

use crate::admission::Access;
pub use crate::checksums::BlockChecksums;
use crate::clients::Opening;
use crate::command::{Command, Finished};
pub use crate::directory::Directory;
use crate::head::{Head, Running, VolumeState};
use crate::hold::Held;
use crate::latency::{Door, Flight, Operation};
use crate::limit::Cost;
use crate::part::{Brought, Done, Work};
pub use crate::session::{ALIVE_FOR, Session};
use crate::snapshot::{SnapshotInfo, SnapshotState};
use crate::status::{BlockExtent, SnapshotMark};
use crate::zeroes::Zeroing;
use cluster::{Compression, HostAccess, Limits, OWN_SNAPSHOT};
use runtime::{Instant, IoBuf, SharedBuf, now};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{BLOCK_BYTES, CHUNK_BYTES, LayerId, NodeId, VolumeId};

/// Most bytes that one read, write or compare moves: NVMe's MDTS here, and a chunk, so that a command touches at most
/// two of them. A door whose protocol has longer requests splits them.
pub const MAX_TRANSFER_BYTES: u32 = CHUNK_BYTES as u32;

/// Who waits for a volume looks so often whether its client is there still.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a host is told of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its id, for ever.
    pub id: VolumeId,
    /// Its name, today.
    pub name: String,
    /// Size in bytes, a multiple of 4 KiB.
    pub size_bytes: u64,
    /// Logical block of the NVMe namespace: 512 or 4,096. NBD takes any byte range whatever it is.
    pub block_size_bytes: u32,
    /// NVMe namespace id, stable.
    pub nsid: u32,
    /// NVMe namespace globally unique id, the same on all paths.
    pub nguid: [u8; 16],
    /// Its layers in the store, newest first; the first one is written to.
    pub layers: Vec<LayerId>,
    /// Its pool.
    pub pool: Arc<str>,
    /// How what is written to it is compressed.
    pub compression: Compression,
    /// Whether it is encrypted, and whether it can be used.
    pub encryption: Encryption,
    /// The NVMe hosts that may use it.
    pub hosts: HostAccess,
    /// What it may do in a second.
    pub limits: Limits,
    /// The node that serves it.
    pub head: NodeId,
    /// The node that is to, whoever does meanwhile; 0: nobody has said.
    pub home: NodeId,
    /// Where its groups are led.
    pub placed: Placed,
    /// Another volume is being copied into it: no client sees it.
    pub is_draft: bool,
}

/// Where the groups of a volume are led.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placed {
    /// By all devices of its pool.
    #[default]
    Spread,
    /// By one node.
    Gathered {
        /// The one that is to.
        home: NodeId,
        /// The one that does, or is about to.
        lead: NodeId,
    },
}

/// Where a volume is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Here.
    Here,
    /// Here until now: it is going to another node, and nothing more is let in.
    Changing,
    /// Here, and a group of it serves nobody: nothing more is let in until it does.
    Stopped,
    /// By another node, or by nobody before one takes it.
    Elsewhere,
}

/// Whether a volume is encrypted, and whether its key is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// It is not.
    #[default]
    Off,
    /// It is, and can be used.
    Unlocked,
    /// It is, and nobody can use it until its key is given.
    Locked,
}

/// Bytes to write: contiguous, with block checksums if the caller already has them (crc32c of each whole 4 KiB).
#[derive(Clone, Debug)]
pub struct Payload {
    /// The bytes.
    pub bytes: SharedBuf,
}

/// What a read returns: `bytes` is the range asked for and nothing else; `block_checksums` are the crc32c of the whole
/// 4 KiB blocks in it, in order, when the range is whole blocks (else empty), so that a data digest needs no second
/// pass.
#[derive(Clone, Debug)]
pub struct ReadData {
    /// The bytes asked for.
    pub bytes: SharedBuf,
    /// One per block, or empty.
    pub block_checksums: BlockChecksums,
}

/// Why a command was not done. The front door turns it into its protocol's status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The range runs past the end of the volume.
    #[error("bytes {offset_bytes}+{len_bytes} run past the end of the volume ({size_bytes} bytes)")]
    OutOfRange {
        /// Where it starts.
        offset_bytes: u64,
        /// How long it is.
        len_bytes: u64,
        /// The volume's size.
        size_bytes: u64,
    },
    /// No room for new blocks.
    #[error("no space: {0}")]
    NoSpace(String),
    /// What is stored fails its checksum or is missing, and there is no other copy.
    #[error("damaged data: {0}")]
    Damaged(String),
    /// The volume's bytes differ from the ones to compare with, first at this byte offset.
    #[error("the compared bytes differ at offset {0}")]
    CompareFailed(u64),
    /// What is asked for would change a snapshot.
    #[error("a snapshot is read only")]
    ReadOnly,
    /// The volume was deleted.
    #[error("the volume is gone from here: {0}")]
    Gone(String),
    /// The volume is going from this node to another: the same may be asked for soon.
    #[error("the volume changes its head: {0}")]
    Changing(String),
    /// A group of the volume serves nobody; whether the command is done, or will be, is unknown, and it holds its place in the
    /// order: the same may be asked for when the volume is served again.
    #[error("the volume waits: {0}")]
    Stopped(String),
    /// Another node is the volume's head: the same may be asked for there.
    #[error("the volume is served elsewhere: {0}")]
    Elsewhere(String),
    /// Nothing was done, or of a long range only a part.
    #[error("its connection ended before all of it was admitted")]
    Abandoned,
    /// The device or group cannot serve now and nothing is known to be wrong with the command.
    #[error("unavailable: {0}")]
    Unavailable(String),
}

/// Which half of a compare-and-write failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareAndWriteError {
    /// The bytes differ, or cannot be read, or the command was not begun: nothing was written.
    #[error("not written: {0}")]
    Compare(IoError),
    /// The bytes were as expected and the write failed.
    #[error("as expected, and not written: {0}")]
    Write(IoError),
}

/// A volume, or one of its snapshots, as one core sees it. Clones share it. All calls may be made from any task of that
/// core.
///
/// Every command is admitted when it is called (not when first polled): commands that overlap in a 4 KiB block of one
/// chunk are executed in the order of the calls; those that overlap in several chunks, in one order that is the same in
/// all of them. A write that has returned is durable.
///
/// The futures are to be run to their end. One that is dropped leaves its command's outcome unknown, like a lost
/// answer; what it had begun still keeps its place in the order until it is done.
#[derive(Clone)]
pub struct Volume {
    pub(crate) state: Rc<VolumeState>,
    pub(crate) session: Session,
    /// `None`: the volume as it is now.
    pub(crate) snapshot: Option<Rc<SnapshotState>>,
}

impl Volume {
    /// The same volume; the commands called on it belong to `session`.
    pub fn of_session(&self, session: &Session) -> Self {
        Self { session: session.clone(), ..self.clone() }
    }

    /// The marks of [`marks`](Self::marks) that have these names, in their order. Since one that is not among them (any
    /// more) everything counts as changed.
    pub fn marks_of(&self, names: &[String]) -> Vec<SnapshotMark> {
        let marks = self.all_marks();
        let mark = |name: &String| marks.iter().find(|(known, _)| known == name).map(|(_, mark)| *mark);
        names.iter().map(|name| mark(name).unwrap_or(SnapshotMark(LayerId(0)))).collect()
    }

    /// Its snapshots, by name.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.state
            .snapshots
            .borrow()
            .iter()
            .map(|snapshot| &snapshot.info)
            .filter(|info| !info.is_own())
            .cloned()
            .collect()
    }

    /// Whether another volume is being copied into it, and no client sees it.
    pub(crate) fn is_draft(&self) -> bool {
        self.state.info.is_draft
    }

    /// One of its snapshots, to be read like the volume. When the snapshot is deleted its commands end as those of a
    /// volume that is.
    pub fn snapshot(&self, name: &str) -> Option<Self> {
        let snapshot = self.state.snapshots.borrow().iter().find(|snapshot| snapshot.info.name == name).cloned()?;
        Some(Self { snapshot: Some(snapshot), ..self.clone() })
    }

    /// Whether nothing can be written: it is a snapshot.
    pub fn is_read_only(&self) -> bool {
        self.snapshot.is_some()
    }

    /// The snapshots that what this is was made from, by name, for [`block_status`](Self::block_status): of a volume
    /// all but those that were taken of what a rollback took back since, of a snapshot those that are older.
    pub fn marks(&self) -> Vec<(String, SnapshotMark)> {
        self.all_marks().into_iter().filter(|(name, _)| !name.starts_with(OWN_SNAPSHOT)).collect()
    }

    /// The same, with those that a move took for itself.
    fn all_marks(&self) -> Vec<(String, SnapshotMark)> {
        let layers = self.info().layers;
        let is_below = |info: &SnapshotInfo| match &self.snapshot {
            None => layers.contains(&info.layer()),
            Some(this) => this.info.layer() != info.layer() && layers.contains(&info.layer()),
        };
        let snapshots = self.state.snapshots.borrow();
        let below = snapshots.iter().map(|snapshot| &snapshot.info).filter(|info| is_below(info));
        below.map(|info| (info.name.clone(), SnapshotMark(info.layer()))).collect()
    }

    /// Asks for what `ask` makes; where nothing was let in, as the volume changes its head or a group of it serves nobody, once
    /// more when that is over: for doors whose protocol knows of no wait but that for an answer. Of a
    /// [session that waits](Session::that_waits): of others something that was let in may be done twice.
    pub async fn patiently<T, F>(&self, ask: impl Fn() -> F) -> Result<T, IoError>
    where
        F: Future<Output = Result<T, IoError>>,
    {
        loop {
            match ask().await {
                Err(IoError::Changing(_) | IoError::Stopped(_)) => self.outlasts().await?,
                other => return other,
            }
        }
    }

    /// The same, of what was asked for already.
    pub(crate) async fn patiently_from<T, F>(&self, asked: F, ask: impl Fn() -> F) -> Result<T, IoError>
    where
        F: Future<Output = Result<T, IoError>>,
    {
        match asked.await {
            Err(IoError::Changing(_) | IoError::Stopped(_)) => {
                self.outlasts().await?;
                self.patiently(ask).await
            }
            other => other,
        }
    }

    /// Resolves when the same may be asked for once more, by a client that is there still.
    #[cold]
    async fn outlasts(&self) -> Result<(), IoError> {
        let began = now();
        let _ = runtime::timeout(PATIENCE, self.state.decided()).await;
        self.session.may_go_on(began).await
    }

    /// A client has it open from now on, until what is returned is dropped: it stays where it is meanwhile.
    pub fn open(&self) -> Option<Opening> {
        self.state.head().map(|head| Opening::new(&head, self.id()))
    }

    /// Where it is served.
    pub fn standing(&self) -> Standing {
        self.state.standing()
    }

    /// What a host is told of it, as of now.
    pub fn info(&self) -> VolumeInfo {
        let info = self.state.gate.term().spec.info.clone();
        match &self.snapshot {
            None => info,
            Some(snapshot) => {
                let SnapshotInfo { name, size_bytes, layers, .. } = &snapshot.info;
                let name = format!("{}@{name}", info.name);
                VolumeInfo { name, size_bytes: *size_bytes, layers: layers.to_vec(), ..info }
            }
        }
    }

    /// Checks the range and lets a command in.
    pub(crate) fn let_in(&self, offset_bytes: u64, len_bytes: u64) -> Result<(Rc<Head>, Running), IoError> {
        let let_in = self.state.let_in(self.snapshot.as_ref(), offset_bytes, len_bytes, self.session.moves())?;
        match self.session.is_of(self.state.gate.term().spec.epoch) {
            true => Ok(let_in),
            false => Err(self.state.elsewhere()),
        }
    }

    /// To be asked once for each command, before it is called: whether the volume's limit lets it begin. `None`: now.
    /// Else what is returned resolves when it may, in the order of the calls on this core; nothing of the command is
    /// admitted until then. It also resolves, soon after, when there is nothing to wait for: what `is_over` makes says so, or the
    /// volume has no limit any more, or is gone. A snapshot shares the limit of its volume.
    ///
    /// Without a limit this is one look at what the command looks at anyway.
    pub fn hold<F: Fn() -> bool + 'static>(&self, cost: Cost, is_over: impl FnOnce() -> F) -> Option<Held> {
        self.state.hold(cost, is_over)
    }

    /// Its id.
    pub fn id(&self) -> VolumeId {
        self.state.info.id
    }

    /// Its name, today; of a snapshot that of its volume.
    pub fn name(&self) -> String {
        self.state.name()
    }

    /// A command of a client, whose header came at `received` and which is called next.
    pub fn flight(&self, door: Door, operation: Operation, received: Instant) -> Flight {
        Flight::new(&self.state.recorder, door, operation, received)
    }

    /// Its NVMe namespace id.
    pub fn nsid(&self) -> u32 {
        self.state.info.nsid
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        match &self.snapshot {
            None => self.state.gate.term().spec.info.size_bytes,
            Some(snapshot) => snapshot.info.size_bytes,
        }
    }

    /// Reads `len_bytes` (1..=[`MAX_TRANSFER_BYTES`]) at `offset_bytes`, any alignment.
    ///
    /// # Panics
    /// If `len_bytes` is zero or more than that; so do the other calls.
    pub fn read(&self, offset_bytes: u64, len_bytes: u32) -> impl Future<Output = Result<ReadData, IoError>> + use<> {
        check_len(len_bytes as usize);
        let block = BLOCK_BYTES as u64;
        let start = offset_bytes / block * block;
        let skip = (offset_bytes - start) as usize;
        let mut rest = None;
        let command = Command::begin(self, offset_bytes, len_bytes, Access::Read, |at, len| {
            if at > 0 {
                return Work::Read { buf: rest.take().expect("cut off with the first part"), is_all: false };
            }
            // One buffer for the whole blocks around the range, cut where the second chunk begins.
            let end = (offset_bytes + u64::from(len_bytes)).next_multiple_of(block);
            let mut buf = IoBuf::new((end - start) as usize);
            if len < len_bytes {
                rest = Some(buf.split_off(skip + len as usize));
            }
            Work::Read { buf, is_all: len == len_bytes }
        });
        async move {
            let command = command?;
            let finished = command.finish().await?;
            Ok(assemble(finished, skip, len_bytes as usize))
        }
    }

    /// Writes `payload` at `offset_bytes`, any alignment. Durable when it returns.
    pub fn write(&self, offset_bytes: u64, payload: Payload) -> impl Future<Output = Result<(), IoError>> + use<> {
        let Payload { bytes } = payload;
        check_len(bytes.len());
        let work = |at: u32, len: u32| Work::Write(bytes.slice(at as usize..(at + len) as usize));
        let command = Command::begin(self, offset_bytes, bytes.len() as u32, Access::Write, work);
        async move {
            let command = command?;
            command.finish().await.map(drop)
        }
    }

    /// Makes the range read as zeroes, of any length; the space is given back.
    pub fn write_zeroes(&self, offset_bytes: u64, len_bytes: u64) -> impl Future<Output = Result<(), IoError>> + use<> {
        crate::zeroes::zero(self, offset_bytes, len_bytes, Zeroing::Zero)
    }

    /// Makes the range read as zeroes, of any length, and keeps its space: zeroes are stored as data is, and overwriting
    /// them takes no new blocks. As slow as a write.
    pub fn store_zeroes(&self, offset_bytes: u64, len_bytes: u64) -> impl Future<Output = Result<(), IoError>> + use<> {
        crate::zeroes::zero(self, offset_bytes, len_bytes, Zeroing::store(len_bytes))
    }

    /// Tells that the range, of any length, holds nothing of value: the whole 4 KiB blocks in it read as zeroes
    /// afterwards, partial blocks at its edges are left alone.
    pub fn discard(&self, offset_bytes: u64, len_bytes: u64) -> impl Future<Output = Result<(), IoError>> + use<> {
        crate::zeroes::zero(self, offset_bytes, len_bytes, Zeroing::Discard)
    }

    /// All writes that had returned when this was called are durable when it returns: they were when they returned.
    pub async fn flush(&self) -> Result<(), IoError> {
        self.let_in(0, 0).map(drop)
    }

    /// Which blocks of the range, of any length but zero, are stored, and which have changed since `marks` (at most
    /// [`MARKS_MAX`](crate::MARKS_MAX)): extents from `offset_bytes` on, without a gap, at most `extents_max` (1 or
    /// more) of them. They cover the range or, where that takes more extents, its beginning. In order with overlapping
    /// writes, as a read of the same range: a write that had returned is told.
    ///
    /// # Errors
    /// As a read, but that nothing is read of the device: damaged blocks are stored ones.
    ///
    /// # Panics
    /// If there is nothing to ask, or too much.
    pub fn block_status(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        marks: &[SnapshotMark],
        extents_max: usize,
    ) -> impl Future<Output = Result<Vec<BlockExtent>, IoError>> + use<> {
        let since: Arc<[LayerId]> = marks.iter().map(|mark| mark.0).collect();
        crate::status::block_status(self, offset_bytes, len_bytes, since, extents_max)
    }

    /// Compares the range with `payload`, in order with overlapping writes.
    pub fn compare(&self, offset_bytes: u64, payload: Payload) -> impl Future<Output = Result<(), IoError>> + use<> {
        let Payload { bytes } = payload;
        check_len(bytes.len());
        let mut first_len = 0;
        let command = Command::begin(self, offset_bytes, bytes.len() as u32, Access::Read, |at, len| {
            first_len = if at == 0 { len } else { first_len };
            Work::Compare(bytes.slice(at as usize..(at + len) as usize))
        });
        async move {
            let Finished(first, second) = command?.finish().await?;
            match (first, second) {
                (Done::Differs(at), _) => Err(IoError::CompareFailed(offset_bytes + u64::from(at))),
                (_, Some(Done::Differs(at))) => Err(IoError::CompareFailed(offset_bytes + u64::from(first_len + at))),
                _ => Ok(()),
            }
        }
    }

    /// Writes `payload` if the range holds `expected`, which is as long: one command with one place in the order, so
    /// that nothing that overlaps comes between compare and write. The write is durable when it returns, and through a
    /// crash as whole as any [`write`](Self::write).
    ///
    /// # Errors
    /// [`CompareAndWriteError::Compare`]: nothing was written. [`CompareAndWriteError::Write`]: as for a write.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn compare_and_write(
        &self,
        offset_bytes: u64,
        expected: Payload,
        payload: Payload,
    ) -> impl Future<Output = Result<(), CompareAndWriteError>> + use<> {
        crate::fused::compare_and_write(self, offset_bytes, expected, payload)
    }
}

pub(crate) fn check_len(len_bytes: usize) {
    assert!((1..=MAX_TRANSFER_BYTES as usize).contains(&len_bytes), "a transfer of {len_bytes} bytes");
}

/// What was read, from the blocks around it.
fn assemble(finished: Finished, skip: usize, len: usize) -> ReadData {
    let Finished(Done::Read(brought, mut checksums), second) = finished else { unreachable!("a read was asked for") };
    let bytes = match (brought, second) {
        (Brought::Read(buf), None) => buf.freeze(),
        (Brought::Read(buf), Some(Done::Read(Brought::Read(rest), more))) => {
            let buf = joined(buf, rest);
            checksums.extend_from_slice(&more);
            crate::checksums::give(more);
            buf.freeze()
        }
        (Brought::Came(mut bytes), None) => {
            // Whoever asked may take long to take it.
            bytes.keep();
            bytes
        }
        _ => unreachable!("both parts of a read fill their half of one buffer"),
    };
    let whole = bytes.len() == len;
    if !whole {
        checksums.clear();
    }
    let bytes = if whole { bytes } else { bytes.slice(skip..skip + len) };
    ReadData { bytes, block_checksums: checksums.into() }
}

/// The blocks of both parts of a read.
fn joined(mut first: IoBuf, rest: IoBuf) -> IoBuf {
    if first.is_followed_by(&rest) {
        first.unsplit(rest);
        return first;
    }
    // The memory that one part was given stays with a device that has not answered: it was read again elsewhere.
    let mut both = IoBuf::new(first.len() + rest.len());
    both[..first.len()].copy_from_slice(&first);
    both[first.len()..].copy_from_slice(&rest);
    both
}

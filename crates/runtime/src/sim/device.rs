//! Operations on simulated disks, and the handle that the surface's `Device` wraps.

use super::contents::Contents;
use super::core::SimCore;
use super::disk::Disk;
use super::random::Random;
use super::trace::{EventKind, content_hash};
use super::world::{Event, Shared};
use crate::buf::{IoBuf, SharedBuf};
use crate::device::DeviceInfo;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// All disks of a world and what is under way on them.
#[derive(Default)]
pub(super) struct Storage {
    pub(super) disks: Vec<Disk>,
    operations: Vec<Operation>,
    free: Vec<u32>,
    /// Operations that hang.
    hung: Vec<OperationId>,
}

/// An operation, in one use of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OperationId {
    slot: u32,
    generation: u32,
}

struct Operation {
    generation: u32,
    disk: u32,
    offset: u64,
    state: State,
    /// The future is gone: nobody takes the outcome.
    abandoned: bool,
    waker: Option<Waker>,
}

enum State {
    Free,
    InFlight(Work),
    Done(io::Result<()>, Option<IoBuf>),
}

enum Work {
    Read(IoBuf),
    Write(Vec<SharedBuf>),
    /// Covers the writes up to this number.
    Sync(u64),
    Discard(u64),
}

impl Work {
    fn len(&self) -> u64 {
        match self {
            Self::Read(buf) => buf.len() as u64,
            Self::Write(parts) => parts.iter().map(|part| part.len() as u64).sum(),
            Self::Sync(_) => 0,
            Self::Discard(len) => *len,
        }
    }

    /// What O_DIRECT demands: everything in whole blocks, addresses too.
    fn is_aligned(&self, block: usize) -> bool {
        let aligned =
            |bytes: &[u8]| (bytes.as_ptr() as usize).is_multiple_of(block) && bytes.len().is_multiple_of(block);
        match self {
            Self::Read(buf) => aligned(buf),
            Self::Write(parts) => parts.iter().all(|part| aligned(part)),
            Self::Sync(_) => true,
            Self::Discard(len) => len.is_multiple_of(block as u64),
        }
    }
}

fn input_output_error() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

impl Shared {
    /// Starts an operation; `Err` gives the buffer of a read back.
    fn submit(&self, disk_index: u32, offset: u64, work: Work) -> Result<OperationId, (io::Error, Option<IoBuf>)> {
        let storage = &mut *self.storage.borrow_mut();
        let disk = &mut storage.disks[disk_index as usize];
        let (len, block) = (work.len(), disk.info.block_size_bytes);
        let fits = offset.checked_add(len).is_some_and(|end| end <= disk.info.size_bytes);
        if !fits || !offset.is_multiple_of(u64::from(block)) || !work.is_aligned(block as usize) {
            let buf = if let Work::Read(buf) = work { Some(buf) } else { None };
            return Err((io::Error::from_raw_os_error(libc::EINVAL), buf));
        }
        let options = &disk.options;
        let (kind, latency, content) = match &work {
            Work::Read(_) => (EventKind::Read, &options.read, 0),
            Work::Write(parts) => (EventKind::Write, &options.write, content_hash(parts.iter().map(|p| &**p))),
            Work::Sync(_) => (EventKind::Sync, &options.flush, 0),
            Work::Discard(_) => (EventKind::Discard, &options.flush, 0),
        };
        let transfer = if matches!(work, Work::Discard(_)) { 0 } else { len };
        let time = disk.delay_ns + latency.draw(&disk.random, transfer);
        let hangs_as_read = disk.reads_hang && matches!(work, Work::Read(..));
        let hangs = disk.hanging || hangs_as_read || disk.random.chance(options.faults.hang);
        let place = (disk.node, disk_index);
        let operation = Operation {
            generation: 0,
            disk: disk_index,
            offset,
            state: State::InFlight(work),
            abandoned: false,
            waker: None,
        };
        let id = storage.insert(operation);
        match hangs {
            true => storage.hung.push(id),
            false => self.schedule(time, Event::DiskDone(id)),
        }
        self.trace(kind, place, offset, len, content);
        Ok(id)
    }

    /// The disk is done with an operation.
    pub(super) fn complete(&self, id: OperationId) {
        let waker = {
            let storage = &mut *self.storage.borrow_mut();
            let Some(operation) = storage.operations.get_mut(id.slot as usize) else { return };
            if operation.generation != id.generation {
                return; // settled by a crash
            }
            let State::InFlight(work) = std::mem::replace(&mut operation.state, State::Free) else { return };
            let disk = &mut storage.disks[operation.disk as usize];
            let (result, buf) = self.perform(operation.disk, disk, operation.offset, work);
            operation.state = State::Done(result, buf);
            let waker = operation.waker.take();
            if operation.abandoned {
                storage.remove(id);
            }
            waker
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn perform(&self, index: u32, disk: &mut Disk, offset: u64, work: Work) -> (io::Result<()>, Option<IoBuf>) {
        let faults = disk.options.faults;
        let place = (disk.node, index);
        if disk.random.chance(faults.bit_rot)
            && let Some(at) = disk.rot()
        {
            self.trace(EventKind::DiskFault, place, at, 0, 0);
        }
        let is_bad = |range: &Range<u64>, len: usize| offset < range.end && range.start < offset + len as u64;
        let is_unreadable = match &work {
            Work::Read(buf) => disk.unreadable.as_ref().is_some_and(|range| is_bad(range, buf.len())),
            _ => false,
        };
        let failed = is_unreadable
            | disk.random.chance(match work {
                Work::Read(_) => faults.read_error,
                Work::Write(_) => faults.write_error,
                Work::Sync(_) => faults.flush_error,
                Work::Discard(_) => 0,
            });
        let mut content = 0;
        let mut read = None;
        match work {
            Work::Read(mut buf) => {
                if !failed {
                    disk.contents.read(offset, &mut buf);
                    content = content_hash([&*buf]);
                }
                read = Some(buf);
            }
            Work::Write(parts) if failed => {
                let random = Random::new(disk.random.next_u64());
                disk.apply_part(offset, &parts, &random);
            }
            Work::Write(parts) => self.write(index, disk, offset, &parts),
            Work::Sync(through) if failed => disk.flush_failed(through),
            Work::Sync(through) => disk.made_durable(through),
            Work::Discard(len) => {
                let coin = Random::new(disk.random.next_u64());
                disk.contents.zero_where(offset, len, || coin.one_in(2));
            }
        }
        self.trace(EventKind::Done, place, offset, u64::from(failed), content);
        (if failed { Err(input_output_error()) } else { Ok(()) }, read)
    }

    /// A write that is acknowledged: done, unless the disk lies.
    fn write(&self, index: u32, disk: &mut Disk, offset: u64, parts: &[SharedBuf]) {
        let place = (disk.node, index);
        if disk.random.chance(disk.options.faults.lost_write) {
            self.trace(EventKind::DiskFault, place, offset, 1, 0);
            disk.lies += 1;
        } else if disk.random.chance(disk.options.faults.misplaced_write) {
            let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
            let block = u64::from(disk.info.block_size_bytes);
            let elsewhere = disk.random.below((disk.info.size_bytes - len) / block + 1) * block;
            self.trace(EventKind::DiskFault, place, offset, 2, elsewhere);
            disk.lies += 1;
            disk.apply(elsewhere, parts);
        } else {
            disk.apply(offset, parts);
        }
    }

    /// A disk's operations that hang go on.
    pub(super) fn release_hung(&self, disk: u32) {
        let storage = &mut *self.storage.borrow_mut();
        let (operations, disks) = (&storage.operations, &storage.disks);
        storage.hung.retain(|id| {
            let operation = &operations[id.slot as usize];
            let released = operation.generation == id.generation && operation.disk == disk;
            if released {
                let time = disks[disk as usize].options.write.draw(&disks[disk as usize].random, 0);
                self.schedule(time, Event::DiskDone(*id));
            }
            !released
        });
    }

    /// What a disk would hold if the power went now.
    pub(super) fn without_power(&self, disk_index: u32, random: &Random) -> Contents {
        let storage = &*self.storage.borrow();
        let under_way = storage.operations.iter().filter(|operation| operation.disk == disk_index);
        let writes = under_way.filter_map(|operation| match &operation.state {
            State::InFlight(Work::Write(parts)) => Some((operation.offset, &parts[..])),
            _ => None,
        });
        storage.disks[disk_index as usize].without_power(writes, random)
    }

    /// Decides what becomes of the writes that were under way when `node`'s processes ended, and with the power gone
    /// also of those that were not flushed.
    pub(super) fn settle_disks(&self, node: u32, power_lost: bool, random: &Random) {
        let storage = &mut *self.storage.borrow_mut();
        for (index, disk) in storage.disks.iter_mut().enumerate().filter(|(_, disk)| disk.node == node && power_lost) {
            let place = (node, index as u32);
            disk.lose_power(random, |settled| {
                self.trace(EventKind::Settle, place, settled.offset, settled.kept_sectors, settled.lost_sectors);
            });
        }
        for slot in 0..storage.operations.len() as u32 {
            let operation = &mut storage.operations[slot as usize];
            let (index, offset) = (operation.disk, operation.offset);
            if storage.disks[index as usize].node != node || matches!(operation.state, State::Free) {
                continue;
            }
            let state = std::mem::replace(&mut operation.state, State::Free);
            let id = OperationId { slot, generation: operation.generation };
            if let State::InFlight(Work::Write(parts)) = state {
                let disk = &mut storage.disks[index as usize];
                if power_lost {
                    let settled = disk.apply_part(offset, &parts, random);
                    self.trace(EventKind::Settle, (node, index), offset, settled.kept_sectors, settled.lost_sectors);
                } else if random.one_in(2) {
                    disk.apply(offset, &parts); // the kernel goes on with what it was given
                }
            }
            storage.remove(id);
        }
        let hung = std::mem::take(&mut storage.hung);
        storage.hung = hung.into_iter().filter(|id| storage.is_current(*id)).collect();
    }
}

impl Storage {
    fn insert(&mut self, operation: Operation) -> OperationId {
        match self.free.pop() {
            Some(slot) => {
                let place = &mut self.operations[slot as usize];
                let generation = place.generation;
                *place = Operation { generation, ..operation };
                OperationId { slot, generation }
            }
            None => {
                self.operations.push(operation);
                OperationId { slot: self.operations.len() as u32 - 1, generation: 0 }
            }
        }
    }

    fn is_current(&self, id: OperationId) -> bool {
        self.operations[id.slot as usize].generation == id.generation
    }

    fn remove(&mut self, id: OperationId) {
        let operation = &mut self.operations[id.slot as usize];
        operation.generation = operation.generation.wrapping_add(1);
        operation.state = State::Free;
        operation.waker = None;
        self.free.push(id.slot);
    }
}

/// Waits for an operation. Dropped early it leaves the operation running, with its buffers.
struct Waiting<'a> {
    shared: &'a Shared,
    id: Option<OperationId>,
}

impl Future for Waiting<'_> {
    type Output = (io::Result<()>, Option<IoBuf>);
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.id.expect("not polled again after its end");
        let storage = &mut *self.shared.storage.borrow_mut();
        let operation = &mut storage.operations[id.slot as usize];
        assert_eq!(operation.generation, id.generation, "an operation ended under its future");
        match std::mem::replace(&mut operation.state, State::Free) {
            State::Done(result, buf) => {
                storage.remove(id);
                self.id = None;
                Poll::Ready((result, buf))
            }
            state => {
                operation.state = state;
                operation.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let storage = &mut *self.shared.storage.borrow_mut();
        if !storage.is_current(id) {
            return;
        }
        let operation = &mut storage.operations[id.slot as usize];
        operation.abandoned = true;
        operation.waker = None;
        if matches!(operation.state, State::Done(..)) {
            storage.remove(id);
        }
    }
}

/// An open simulated disk.
#[derive(Clone)]
pub struct SimDevice {
    shared: Rc<Shared>,
    disk: u32,
    info: DeviceInfo,
}

impl std::fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimDevice({}, {:?})", self.disk, self.info)
    }
}

impl SimDevice {
    pub(crate) async fn open(core: &SimCore, path: &Path) -> io::Result<Self> {
        let shared = core.shared.clone();
        let found = shared.storage.borrow().disks.iter().position(|disk| disk.node == core.node && disk.path == path);
        let disk = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))? as u32;
        let info = shared.storage.borrow().disks[disk as usize].info.clone();
        Ok(Self { shared, disk, info })
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    async fn run(&self, offset_bytes: u64, work: Work) -> (io::Result<()>, Option<IoBuf>) {
        match self.shared.submit(self.disk, offset_bytes, work) {
            Ok(id) => Waiting { shared: &self.shared, id: Some(id) }.await,
            Err((error, buf)) => (Err(error), buf),
        }
    }

    pub(crate) async fn read(&self, offset_bytes: u64, buf: IoBuf) -> (io::Result<()>, IoBuf) {
        let (result, buf) = self.run(offset_bytes, Work::Read(buf)).await;
        (result, buf.expect("a read gives its buffer back"))
    }

    pub(crate) async fn write(&self, offset_bytes: u64, parts: &mut Vec<SharedBuf>) -> io::Result<()> {
        let mut taken = Vec::with_capacity(parts.len());
        taken.append(parts);
        self.run(offset_bytes, Work::Write(taken)).await.0
    }

    pub(crate) async fn sync(&self) -> io::Result<()> {
        let through = self.shared.storage.borrow().disks[self.disk as usize].completed_writes();
        self.run(0, Work::Sync(through)).await.0
    }

    pub(crate) async fn discard(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.run(offset_bytes, Work::Discard(len_bytes)).await.0
    }
}

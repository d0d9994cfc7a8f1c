//! Devices through the ring; files on tmpfs without it.
//!
//! **tmpfs.** The kernel has no non-blocking path for direct I/O on tmpfs, so the ring hands each operation to a
//! worker thread, which costs several microseconds and a context switch. Its bytes are in memory and the operation can
//! not block: a plain `pread`/`pwritev` is done at once, in the poll that issues it. A task that only reads would never
//! wait then, so every few reads the others have their turn.

use super::call::Call;
use super::gather::Gather;
use super::open::{self, OpenFile};
use super::operation::{Completion, Nature, Owner, Resources};
use super::reactor::Reactor;
use super::record::{RecordedDevice, Recorder};
use crate::buf::{IoBuf, SharedBuf};
use crate::device::DeviceInfo;
use crate::task::yield_now;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Command of the block layer through the ring: discard (Linux 6.12, <linux/blkdev.h>).
const BLOCK_URING_CMD_DISCARD: u32 = 0x12 << 8;

/// A process that was killed holds its devices until the kernel has ended what its rings had in flight, which is after
/// the process is gone. Whoever starts in its place waits for that this long; anybody else is not away by then.
const BUSY_TIME_MAX: Duration = Duration::from_secs(5);
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Reads done at once before the other tasks have their turn: some 50 µs of them, and one more poll for each 32.
const READS_AT_ONCE: u32 = 32;

/// A device that the current core has opened.
#[derive(Clone)]
pub struct UringDevice(Rc<Inner>);

pub(super) struct Inner {
    reactor: Reactor,
    open: Arc<OpenFile>,
    recording: Option<Recording>,
    /// Whether the device has said that it can not discard.
    discards: Cell<bool>,
    /// Reads done at once since a task was made to wait.
    reads_at_once: Cell<u32>,
}

struct Recording {
    recorder: Arc<Recorder>,
    device: RecordedDevice,
}

impl UringDevice {
    pub(crate) async fn open(path: &Path) -> io::Result<Self> {
        let reactor = Reactor::current();
        if !reactor.has_devices() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this core serves connections alone"));
        }
        let open = open_when_free(path).await?;
        let recording = reactor.recorder().map(|recorder| {
            let info = &open.info;
            let device = recorder.device(&open.path, info.size_bytes, info.volatile_cache);
            Recording { recorder: recorder.clone(), device }
        });
        Ok(Self(Rc::new(Inner { reactor, open, recording, discards: Cell::new(true), reads_at_once: Cell::new(0) })))
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.0.open.info
    }

    fn fd(&self) -> i32 {
        self.0.open.file.as_raw_fd()
    }

    fn check(&self, offset_bytes: u64, len_bytes: u64) {
        let info = self.info();
        let unit = u64::from(info.block_size_bytes);
        assert!(
            offset_bytes.is_multiple_of(unit) && len_bytes.is_multiple_of(unit),
            "{offset_bytes}+{len_bytes} is not in whole blocks of {unit} bytes"
        );
        assert!(offset_bytes + len_bytes <= info.size_bytes, "{offset_bytes}+{len_bytes} is beyond the device");
    }

    /// # Safety
    /// As [`Reactor::start`], for this device's descriptor.
    async unsafe fn run(&self, entry: squeue::Entry, resources: Resources) -> Completion {
        let owner = Owner::Device(self.0.clone());
        // SAFETY: vouched for by the caller.
        unsafe { self.0.reactor.start(Call::Device(entry), owner, Nature::Prompt, resources) }.await
    }

    pub(crate) async fn read(&self, offset_bytes: u64, mut buf: IoBuf) -> (io::Result<()>, IoBuf) {
        self.check(offset_bytes, buf.len() as u64);
        if self.0.open.in_memory {
            if self.0.reads_at_once.replace(self.0.reads_at_once.get() + 1) == READS_AT_ONCE {
                self.0.reads_at_once.set(0);
                yield_now().await;
            }
            self.0.reactor.count(|counters| counters.inline_operations += 1);
            return (read_now(self.fd(), offset_bytes, &mut buf), buf);
        }
        let mut done = 0;
        while done < buf.len() {
            let left = &mut buf[done..];
            let entry = opcode::Read::new(Fd(self.fd()), left.as_mut_ptr(), left.len() as u32)
                .offset(offset_bytes + done as u64)
                .build();
            // SAFETY: the entry points into the buffer that the operation owns.
            let completion = unsafe { self.run(entry, Resources::Buffer(buf)) }.await;
            let value = completion.value();
            let Resources::Buffer(back) = completion.resources else { unreachable!("as it was given") };
            buf = back;
            match value {
                Ok(0) => return (Err(ended(offset_bytes + done as u64)), buf),
                Ok(count) => done += count,
                Err(error) if is_passing(&error) => {}
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    pub(crate) async fn write(&self, offset_bytes: u64, parts: &mut Vec<SharedBuf>) -> io::Result<()> {
        let mut gather = self.0.reactor.take_gather();
        gather.load(parts);
        self.check(offset_bytes, gather.left_bytes() as u64);
        let recorded =
            self.0.recording.as_ref().map(|r| r.recorder.write_issued(r.device, offset_bytes, gather.parts()));
        let result = if self.0.open.in_memory {
            self.0.reactor.count(|counters| counters.inline_operations += 1);
            write_now(self.fd(), offset_bytes, &mut gather)
        } else {
            let (result, back) = self.write_gathered(offset_bytes, gather).await;
            gather = back;
            result
        };
        if let (Some(recording), Some(operation)) = (&self.0.recording, recorded) {
            recording.recorder.write_completed(recording.device, operation, &result);
        }
        gather.unload(parts);
        self.0.reactor.give_gather(gather);
        result
    }

    async fn write_gathered(&self, offset_bytes: u64, mut gather: Box<Gather>) -> (io::Result<()>, Box<Gather>) {
        let total = gather.left_bytes();
        while gather.left_bytes() > 0 {
            let offset = offset_bytes + (total - gather.left_bytes()) as u64;
            let entry = match gather.vectors() {
                [one] => {
                    opcode::Write::new(Fd(self.fd()), one.iov_base.cast(), one.iov_len as u32).offset(offset).build()
                }
                many => opcode::Writev::new(Fd(self.fd()), many.as_ptr(), many.len() as u32).offset(offset).build(),
            };
            // SAFETY: the entry points to parts and vectors that the operation owns, in a box that does not move.
            let completion = unsafe { self.run(entry, Resources::Gather(gather)) }.await;
            let value = completion.value();
            let Resources::Gather(back) = completion.resources else { unreachable!("as it was given") };
            gather = back;
            match value {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), gather),
                Ok(count) => gather.advance(count),
                Err(error) if is_passing(&error) => {}
                Err(error) => return (Err(error), gather),
            }
        }
        (Ok(()), gather)
    }

    pub(crate) async fn sync(&self) -> io::Result<()> {
        let recorded = self.0.recording.as_ref().map(|r| r.recorder.sync_issued(r.device));
        let entry = opcode::Fsync::new(Fd(self.fd())).flags(FsyncFlags::DATASYNC).build();
        // SAFETY: the entry points to nothing.
        let result = unsafe { self.run(entry, Resources::None) }.await.value().map(drop);
        self.0.reactor.count(|counters| counters.syncs += u64::from(result.is_ok()));
        if let (Some(recording), Some(operation)) = (&self.0.recording, recorded) {
            recording.recorder.sync_completed(recording.device, operation, &result);
        }
        result
    }

    pub(crate) async fn discard(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.check(offset_bytes, len_bytes);
        if len_bytes == 0 || !self.0.discards.get() {
            return Ok(());
        }
        let recorded = self.0.recording.as_ref().map(|r| r.recorder.discard_issued(r.device, offset_bytes, len_bytes));
        let mut result = self.discard_once(offset_bytes, len_bytes).await;
        if let (Some(recording), Some(operation)) = (&self.0.recording, recorded) {
            recording.recorder.discard_completed(recording.device, operation, &result);
        }
        if let Err(error) = &result
            && matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS | libc::ENOTTY))
        {
            self.0.discards.set(false); // not asked again
            result = Ok(());
        }
        result
    }

    async fn discard_once(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let fd = Fd(self.fd());
        if !self.0.open.info.is_file {
            let mut command = [0u8; 16];
            command[..8].copy_from_slice(&len_bytes.to_ne_bytes());
            let entry =
                opcode::UringCmd16::new(fd, BLOCK_URING_CMD_DISCARD).addr(Some(offset_bytes)).cmd(command).build();
            // SAFETY: the "address" is an offset on the device; the kernel dereferences nothing.
            let result = unsafe { self.run(entry, Resources::None) }.await.value().map(drop);
            // Kernels before 6.12 do not know the command: the hole below reaches the drives that zero what they drop.
            if !matches!(&result, Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))) {
                return result;
            }
        }
        let entry = opcode::Fallocate::new(fd, len_bytes)
            .offset(offset_bytes)
            .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
            .build();
        // SAFETY: the entry points to nothing.
        unsafe { self.run(entry, Resources::None) }.await.value().map(drop)
    }
}

impl std::fmt::Debug for UringDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UringDevice({})", self.0.open.path.display())
    }
}

/// Errors that say nothing of the device: ask again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}

/// Opens `path` as soon as no other process has it.
async fn open_when_free(path: &Path) -> io::Result<Arc<OpenFile>> {
    let give_up = crate::now() + BUSY_TIME_MAX;
    loop {
        match open::open(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && crate::now() < give_up => {
                crate::sleep(BUSY_PAUSE).await;
            }
            result => return result,
        }
    }
}

fn ended(offset_bytes: u64) -> io::Error {
    let what = format!("the device ends at byte {offset_bytes}: it has shrunk since it was opened");
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}

fn read_now(fd: i32, offset_bytes: u64, buf: &mut IoBuf) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        let left = &mut buf[done..];
        let offset = offset_bytes + done as u64;
        // SAFETY: pointer and length are of `left`.
        match result_of(unsafe { libc::pread(fd, left.as_mut_ptr().cast(), left.len(), offset as i64) }) {
            Ok(0) => return Err(ended(offset)),
            Ok(count) => done += count,
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_now(fd: i32, offset_bytes: u64, gather: &mut Gather) -> io::Result<()> {
    let total = gather.left_bytes();
    while gather.left_bytes() > 0 {
        let offset = (offset_bytes + (total - gather.left_bytes()) as u64) as i64;
        let vectors = gather.vectors();
        // SAFETY: the vectors name parts that the gather owns.
        match result_of(unsafe { libc::pwritev(fd, vectors.as_ptr(), vectors.len() as i32, offset) }) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => gather.advance(count),
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn result_of(count: isize) -> io::Result<usize> {
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

//! A node's device that fails as devices do: a file system of one file (FUSE), mounted over the file that is the device.
//!
//! ```text
//!   node ── io_uring, O_DIRECT ──▶ kernel ── /dev/fuse ──▶ here: fails, waits, or does it ──▶ the file that was there before
//! ```
//!
//! Nothing is cached between the two (`FOPEN_DIRECT_IO`), and many requests are under way at once. What was answered is in the
//! file below, which is as it was when the mount goes. Needs root, and no libfuse.

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is wrong with a device from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Each write and each sync is an error (EIO); reads are answered.
    WritesFail,
    /// Each read that touches these bytes is an error (EIO), until they are written anew: a drive takes another place for them then.
    ReadsFail(Range<u64>),
    /// Each read and each write takes so much longer.
    Slow(Duration),
    /// Writes have no answer.
    WritesHang,
    /// Reads have no answer; writes are done.
    ReadsHang,
    /// Neither reads nor writes have an answer.
    Hangs,
    /// It cannot be opened, as if it were not there (ENOENT). Who has it open uses it.
    Gone,
}

/// A device that is faulty when told so. Without a fault, and the file again that it was before, when dropped.
pub struct Faulty {
    shared: Arc<Shared>,
    place: PathBuf,
    // Ends when nobody has the device open any more.
    _session: BackgroundSession,
}

/// Requests that the kernel has under way at once: more than a node has.
const UNDER_WAY_MAX: u16 = 512;
/// Threads that take requests. What waits has one of its own.
const THREADS: usize = 2;
/// What is read and written is in blocks of so many bytes, as a drive has them.
const BLOCK_BYTES: u64 = 4096;

impl Faulty {
    /// Mounts over this file, which nobody has open.
    ///
    /// # Panics
    /// Where that cannot be done: it needs root and `/dev/fuse`.
    pub fn over(device: &Path) -> Self {
        let file = File::options().read(true).write(true).open(device).expect("the device is a file");
        let shared = Arc::new(Shared {
            file,
            fault: Mutex::new(Fault::None),
            changed: Condvar::new(),
            written: Mutex::default(),
        });
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        let session = fuser::spawn_mount(OneFile(shared.clone()), device, &config)
            .unwrap_or_else(|error| panic!("{}: a file system in this process: {error}", device.display()));
        Self { shared, place: device.to_owned(), _session: session }
    }

    /// From now on this is wrong with it, and nothing else; what hangs goes on if that is over.
    pub fn is(&self, fault: Fault) {
        *self.shared.fault() = fault;
        self.shared.written().clear();
        self.shared.changed.notify_all();
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        // Who has it open may be a process that waits for it.
        self.is(Fault::None);
        let _ = Command::new("umount").arg("--lazy").arg(&self.place).output();
    }
}

/// What is asked of the device.
#[derive(Clone, Debug)]
enum Asked {
    Read(Range<u64>),
    Write,
    /// A sync, or to give bytes back. The kernel locks the file for as long as one is under way, and who asks for the next write
    /// stands still, all of its core: no drive does that to a node, so these have their answer at once.
    Sync,
}

struct Shared {
    /// What is mounted over.
    file: File,
    fault: Mutex<Fault>,
    changed: Condvar,
    /// Blocks that were written since the fault came.
    written: Mutex<HashSet<u64>>,
}

impl Shared {
    fn fault(&self) -> MutexGuard<'_, Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as a request has to; what is wrong with the device then.
    fn waits(&self, fault: &Fault, asked: &Asked) -> Fault {
        if let Fault::Slow(time) = fault {
            std::thread::sleep(*time);
        }
        let mut fault = self.fault();
        while fault.hangs(asked) {
            fault = self.changed.wait(fault).unwrap_or_else(PoisonError::into_inner);
        }
        fault.clone()
    }

    /// Whether a request is to be done.
    fn admits(&self, fault: &Fault, asked: &Asked) -> io::Result<()> {
        let fails = match (fault, asked) {
            (Fault::WritesFail, Asked::Write | Asked::Sync) => true,
            (Fault::ReadsFail(bad), Asked::Read(range)) => self.is_unreadable(bad, range),
            _ => false,
        };
        if fails { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    fn written(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a read meets a block of the bad ones that was not written since.
    fn is_unreadable(&self, bad: &Range<u64>, range: &Range<u64>) -> bool {
        let (start, end) = (range.start.max(bad.start), range.end.min(bad.end));
        let written = self.written();
        (start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).any(|block| !written.contains(&block))
    }

    fn writes(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)?;
        let end = offset + data.len() as u64;
        if matches!(*self.fault(), Fault::ReadsFail(_)) {
            self.written().extend(offset.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES);
        }
        Ok(())
    }

    fn attributes(&self) -> io::Result<FileAttr> {
        let is = self.file.metadata()?;
        let time = UNIX_EPOCH + Duration::from_secs(is.mtime().try_into().unwrap_or(0));
        Ok(FileAttr {
            ino: INodeNo::ROOT,
            size: is.len(),
            blocks: is.blocks(),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: FileType::RegularFile,
            perm: (is.mode() & 0o7777) as u16,
            nlink: 1,
            uid: is.uid(),
            gid: is.gid(),
            rdev: 0,
            blksize: BLOCK_BYTES as u32,
            flags: 0,
        })
    }

    /// Of the file system that the file is in.
    fn room(&self) -> io::Result<libc::statvfs> {
        // SAFETY: a statvfs of zero bytes is valid; the file is open.
        unsafe {
            let mut room: libc::statvfs = std::mem::zeroed();
            match libc::fstatvfs(self.file.as_raw_fd(), &raw mut room) {
                0 => Ok(room),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    fn gives_back(&self, offset: u64, length: u64, mode: i32) -> io::Result<()> {
        // SAFETY: fallocate takes numbers; the file is open.
        let result = unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as i64, length as i64) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Fault {
    fn hangs(&self, asked: &Asked) -> bool {
        match self {
            Self::Hangs => !matches!(asked, Asked::Sync),
            Self::WritesHang => matches!(asked, Asked::Write),
            Self::ReadsHang => matches!(asked, Asked::Read(_)),
            _ => false,
        }
    }

    /// Whether an answer takes a while.
    fn delays(&self, asked: &Asked) -> bool {
        matches!((self, asked), (Self::Slow(_), Asked::Read(_) | Asked::Write)) || self.hangs(asked)
    }
}

struct OneFile(Arc<Shared>);

impl OneFile {
    /// Does what is asked, if it is admitted, and has the result told.
    fn answer<T>(
        &self,
        asked: Asked,
        work: impl FnOnce(&Shared) -> io::Result<T> + Send + 'static,
        tell: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let shared = self.0.clone();
        // Looked at once: whoever takes requests does not wait, whatever happens to the device meanwhile.
        let fault = shared.fault().clone();
        let is_delayed = fault.delays(&asked);
        let answer = move || {
            let fault = if is_delayed { shared.waits(&fault, &asked) } else { fault };
            tell(shared.admits(&fault, &asked).and_then(|()| work(&shared)).map_err(Errno::from));
        };
        if is_delayed { drop(std::thread::spawn(answer)) } else { answer() }
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without it each request would hold up the next one of its thread in the kernel.
        let added = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        added.map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
        config.set_max_background(UNDER_WAY_MAX).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
        Ok(())
    }

    fn getattr(&self, _: &Request, _: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        if handle.is_none() && *self.0.fault() == Fault::Gone {
            return reply.error(Errno::ENOENT);
        }
        match self.0.attributes() {
            Ok(attributes) => reply.attr(&Duration::ZERO, &attributes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = size.map_or(Ok(()), |size| self.0.file.set_len(size));
        match set.and_then(|()| self.0.attributes()) {
            Ok(attributes) => reply.attr(&Duration::ZERO, &attributes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if *self.0.fault() == Fault::Gone {
            return reply.error(Errno::ENOENT);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = move |shared: &Shared| {
            let mut data = vec![0; size as usize];
            let length = shared.file.read_at(&mut data, offset)?;
            data.truncate(length);
            Ok(data)
        };
        self.answer(Asked::Read(offset..offset + u64::from(size)), read, |result| match result {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (data, length) = (data.to_vec(), data.len() as u32);
        self.answer(
            Asked::Write,
            move |shared| shared.writes(offset, &data),
            move |result| match result {
                Ok(()) => reply.written(length),
                Err(error) => reply.error(error),
            },
        );
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.answer(Asked::Sync, |shared| shared.file.sync_data(), |result| told(result, reply));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.0.room() {
            Ok(room) => reply.statfs(
                room.f_blocks,
                room.f_bfree,
                room.f_bavail,
                room.f_files,
                room.f_ffree,
                room.f_bsize as u32,
                room.f_namemax as u32,
                room.f_frsize as u32,
            ),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let give_back = move |shared: &Shared| shared.gives_back(offset, length, mode);
        self.answer(Asked::Sync, give_back, |result| told(result, reply));
    }
}

fn told(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e2e::directory::TemporaryDirectory;
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::mpsc;

    const BLOCK: usize = 4096;

    /// A device with one block of sevens behind zeroes.
    fn device() -> (TemporaryDirectory, PathBuf, Faulty) {
        let directory = TemporaryDirectory::on_disk();
        let place = directory.path().join("device.img");
        std::fs::write(&place, [vec![0; BLOCK], vec![7; BLOCK]].concat()).expect("it can be written");
        let faulty = Faulty::over(&place);
        (directory, place, faulty)
    }

    fn opened(place: &Path) -> File {
        File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(place).expect("it is there")
    }

    fn read(file: &File, block: usize) -> io::Result<u8> {
        let mut data = [0; BLOCK];
        file.read_exact_at(&mut data, (block * BLOCK) as u64)?;
        Ok(data[0])
    }

    #[test]
    fn without_a_fault_it_is_the_file_that_it_was() {
        let (_directory, place, faulty) = device();
        let file = opened(&place);
        assert_eq!((read(&file, 0).ok(), read(&file, 1).ok()), (Some(0), Some(7)));
        file.write_all_at(&[9; BLOCK], 0).and_then(|()| file.sync_data()).expect("it can be written");
        drop(file);
        drop(faulty);
        assert_eq!(std::fs::read(&place).expect("it is there")[0], 9);
    }

    #[test]
    fn writes_fail_or_reads_of_a_part() {
        let (_directory, place, faulty) = device();
        let file = opened(&place);
        let is_eio = |result: io::Result<()>| result.is_err_and(|error| error.raw_os_error() == Some(libc::EIO));
        faulty.is(Fault::WritesFail);
        assert!(is_eio(file.write_all_at(&[9; BLOCK], 0)) && is_eio(file.sync_data()));
        assert_eq!(read(&file, 0).ok(), Some(0));
        faulty.is(Fault::ReadsFail(BLOCK as u64..1 << 20));
        assert_eq!(read(&file, 0).ok(), Some(0));
        assert!(is_eio(read(&file, 1).map(drop)));
        file.write_all_at(&[5; BLOCK], BLOCK as u64).expect("it can be written");
        assert_eq!(read(&file, 1).ok(), Some(5), "another place was taken for it");
        faulty.is(Fault::ReadsFail(BLOCK as u64..1 << 20));
        assert!(is_eio(read(&file, 1).map(drop)));
        faulty.is(Fault::None);
        assert_eq!(read(&file, 1).ok(), Some(5));
    }

    #[test]
    fn what_hangs_is_answered_when_that_is_over() {
        let (_directory, place, faulty) = device();
        let file = opened(&place);
        faulty.is(Fault::WritesHang);
        let (done, is_done) = mpsc::channel();
        let writes = std::thread::spawn(move || {
            file.write_all_at(&[9; BLOCK], 0).expect("it is answered");
            done.send(()).expect("somebody waits");
        });
        assert!(is_done.recv_timeout(Duration::from_millis(300)).is_err());
        assert_eq!(read(&opened(&place), 1).ok(), Some(7));
        faulty.is(Fault::None);
        is_done.recv_timeout(Duration::from_secs(10)).expect("it goes on");
        writes.join().expect("it was done");
    }

    #[test]
    fn reads_hang_alone() {
        let (_directory, place, faulty) = device();
        let file = opened(&place);
        faulty.is(Fault::ReadsHang);
        let (done, is_done) = mpsc::channel();
        let (its, reads) = (opened(&place), done.clone());
        let waits = std::thread::spawn(move || reads.send(read(&its, 1).ok()).expect("somebody waits"));
        assert!(is_done.recv_timeout(Duration::from_millis(300)).is_err());
        file.write_all_at(&[9; BLOCK], 0).and_then(|()| file.sync_data()).expect("writes are done");
        faulty.is(Fault::None);
        assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(Some(7)));
        waits.join().expect("it was done");
        assert_eq!(read(&file, 0).ok(), Some(9));
    }

    #[test]
    fn what_is_gone_is_not_found() {
        let (_directory, place, faulty) = device();
        faulty.is(Fault::Gone);
        let kind = |result: io::Result<()>| result.err().map(|error| error.kind());
        assert_eq!(kind(std::fs::metadata(&place).map(drop)), Some(io::ErrorKind::NotFound));
        assert_eq!(kind(File::open(&place).map(drop)), Some(io::ErrorKind::NotFound));
    }
}

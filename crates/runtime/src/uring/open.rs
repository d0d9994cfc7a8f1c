//! Opening a device: for this process alone, and what the kernel says of it.

use crate::device::DeviceInfo;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

/// Size that a device of unknown sectors is written in: no drive's are larger.
const LARGEST_SECTOR: u32 = 4096;
const SMALLEST_SECTOR: u32 = 512;
/// Of <linux/fs.h>; the `libc` crate does not have them.
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKPBSZGET: libc::c_ulong = 0x127b;

/// An open device file, shared by the cores of this process.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) info: DeviceInfo,
    /// Whether the file's bytes are in memory (tmpfs): then an operation can not block, and is done at once.
    pub(super) in_memory: bool,
}

/// Files open in this process, by device and inode. Exclusive use is per process: each core that serves shards of
/// a device opens it, and a second lock of our own would refuse us.
static OPEN: Mutex<Vec<(Identity, Weak<OpenFile>)>> = Mutex::new(Vec::new());

#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

/// Opens `path`, or shares what this process has open.
pub(super) fn open(path: &Path) -> io::Result<Arc<OpenFile>> {
    let mut open_files = OPEN.lock().unwrap_or_else(|poison| poison.into_inner());
    open_files.retain(|(_, file)| file.strong_count() > 0);
    let metadata = std::fs::metadata(path)?;
    let is_file = metadata.file_type().is_file();
    if !is_file && !metadata.file_type().is_block_device() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is neither a block device nor a regular file: name one of these",
        ));
    }
    let identity = if is_file {
        Identity { device: metadata.dev(), inode: metadata.ino() }
    } else {
        Identity { device: metadata.rdev(), inode: 0 } // one device may have several names
    };
    let known = open_files.iter().find(|(known, _)| *known == identity).and_then(|(_, file)| file.upgrade());
    if let Some(file) = known {
        return Ok(file);
    }
    let file = Arc::new(if is_file { open_file(path)? } else { open_block_device(path, metadata.rdev())? });
    open_files.push((identity, Arc::downgrade(&file)));
    Ok(file)
}

fn open_with(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

fn open_file(path: &Path) -> io::Result<OpenFile> {
    let in_memory = is_tmpfs(path)?;
    let file = match open_with(path, libc::O_DIRECT) {
        // Older kernels have no O_DIRECT on tmpfs, where it means nothing anyway.
        Err(error) if in_memory && error.raw_os_error() == Some(libc::EINVAL) => open_with(path, 0)?,
        other => other?,
    };
    // SAFETY: no pointers.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EWOULDBLOCK) {
            return Err(in_use());
        }
        return Err(error);
    }
    let metadata = file.metadata()?;
    let block_size_bytes = if in_memory { SMALLEST_SECTOR } else { file_block_size(&metadata) };
    let info = DeviceInfo {
        size_bytes: metadata.len() / u64::from(block_size_bytes) * u64::from(block_size_bytes),
        block_size_bytes,
        volatile_cache: !in_memory,
        is_file: true,
    };
    Ok(OpenFile { file, path: path.to_owned(), info, in_memory })
}

/// Unit of writes to a file: the file system's block, not the sector below it. A smaller write into a block that was
/// never written is serialised by ext4 and xfs with all others, and what sectors the drive tears is not known here.
fn file_block_size(metadata: &std::fs::Metadata) -> u32 {
    u32::try_from(metadata.blksize()).unwrap_or(LARGEST_SECTOR).clamp(SMALLEST_SECTOR, LARGEST_SECTOR)
}

fn open_block_device(path: &Path, device: u64) -> io::Result<OpenFile> {
    // O_EXCL on a block device: refused while it is mounted or open exclusively.
    let file = open_with(path, libc::O_DIRECT | libc::O_EXCL)
        .map_err(|error| if error.raw_os_error() == Some(libc::EBUSY) { in_use() } else { error })?;
    let mut size_bytes = 0u64;
    let mut logical = 0i32;
    let mut physical = 0u32;
    ask(&file, BLKGETSIZE64, &mut size_bytes)?;
    ask(&file, BLKSSZGET, &mut logical)?;
    ask(&file, BLKPBSZGET, &mut physical)?;
    // A drive that shows 512-byte sectors on 4 KiB ones rewrites their neighbours: a power loss would tear those.
    let sector = (logical as u32).max(physical.min(LARGEST_SECTOR));
    if !(SMALLEST_SECTOR..=LARGEST_SECTOR).contains(&sector) {
        let what = format!("it has sectors of {sector} bytes: 512 to 4,096 are supported");
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    }
    let info = DeviceInfo {
        size_bytes: size_bytes / u64::from(sector) * u64::from(sector),
        block_size_bytes: sector,
        volatile_cache: has_volatile_cache(device),
        is_file: false,
    };
    Ok(OpenFile { file, path: path.to_owned(), info, in_memory: false })
}

fn in_use() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "it is in use by another process: end that first")
}

fn ask<T>(file: &File, request: libc::c_ulong, answer: &mut T) -> io::Result<()> {
    // SAFETY: each request here writes one integer of the size that its caller passes.
    if unsafe { libc::ioctl(file.as_raw_fd(), request as _, std::ptr::from_mut(answer)) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// What the kernel found out about the drive's cache; yes if it does not say.
fn has_volatile_cache(device: u64) -> bool {
    let directory = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    // A partition has no queue of its own: its disk's is one up.
    ["queue/write_cache", "../queue/write_cache"]
        .iter()
        .find_map(|name| std::fs::read_to_string(format!("{directory}/{name}")).ok())
        .is_none_or(|says| says.trim() != "write through")
}

fn is_tmpfs(path: &Path) -> io::Result<bool> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a statfs of zero bytes is valid; the name ends with a zero byte.
    let facts = unsafe {
        let mut facts: libc::statfs = std::mem::zeroed();
        if libc::statfs(name.as_ptr(), &mut facts) != 0 {
            return Err(io::Error::last_os_error());
        }
        facts
    };
    Ok(facts.f_type == libc::TMPFS_MAGIC)
}

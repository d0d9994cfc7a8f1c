//! `cairn device format`: what is there is looked at first, and nothing that may be somebody's is written over unasked.

use crate::Failure;
use crate::output::{Format, show};
use node::size::ByteSize;
use runtime::{Device, IoBuf};
use serde::Serialize;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use store::FormatOptions;
use types::StoreId;

/// At both ends of a device, where partition tables, file systems, volume managers and arrays have their marks.
const LOOKED_AT_BYTES: u64 = 1 << 20;

/// What is printed of a format.
#[derive(Debug, Serialize)]
struct Report {
    path: String,
    store: String,
    device_size_bytes: u64,
}

/// What may be done with a device that is to be a node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usable {
    /// It is formatted already, and no cluster's.
    AsItIs {
        /// Its store.
        store: StoreId,
        /// Its size.
        size_bytes: u64,
    },
    /// It may be formatted: nothing is on it, or nobody needs that.
    Formatted {
        /// Its size.
        size_bytes: u64,
    },
}

/// Whether the device may become a node's; nothing is written.
pub(crate) fn look(path: &Path, force: bool) -> Result<Usable, Failure> {
    refuse_use(path)?;
    let owned = path.to_owned();
    runtime::uring::block_on(async move {
        let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", owned.display()));
        let device = Device::open(&owned).await.map_err(|error| failed(&error))?;
        let size_bytes = device.info().size_bytes;
        if let Ok(Some((store::UNCLAIMED, store))) = store::identify(&device).await
            && !force
        {
            return Ok(Usable::AsItIs { store, size_bytes });
        }
        refuse_content(&owned, &device, force).await.map(|()| Usable::Formatted { size_bytes })
    })
    .map_err(Failure::of)?
}

/// Formats a device that was looked at; returns its store and its size.
pub(crate) fn make_store(path: &Path, force: bool) -> Result<(StoreId, u64), Failure> {
    let owned = path.to_owned();
    runtime::uring::block_on(async move { make(&owned, force).await }).map_err(Failure::of)?
}

/// Makes the device an empty store that belongs to no cluster yet.
pub(crate) fn run(path: &Path, force: bool, format: Format) -> Result<(), Failure> {
    refuse_use(path)?;
    let (store, device_size_bytes) = make_store(path, force)?;
    let report = Report { path: path.display().to_string(), store: store.to_string(), device_size_bytes };
    show(format, &report, |report| {
        format!(
            "{}: formatted, {}, store {}\nname it in a node's file, or add it to a node that runs: cairn device add {}\n",
            report.path,
            ByteSize(report.device_size_bytes),
            report.store,
            report.path,
        )
    })
}

/// Whatever is no device, or is in use.
fn refuse_use(path: &Path) -> Result<(), Failure> {
    let metadata = fs::metadata(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    refuse_kind(path, &metadata)?;
    match user_of(path, &metadata) {
        Some(user) => Err(Failure::new(format!("{} is in use by {user}: end that first", path.display()))),
        None => Ok(()),
    }
}

fn refuse_kind(path: &Path, metadata: &Metadata) -> Result<(), Failure> {
    let (kind, shown) = (metadata.file_type(), path.display());
    if !kind.is_block_device() && !kind.is_file() {
        return Err(Failure::new(format!("{shown} is neither a block device nor a regular file: name one of these")));
    }
    if kind.is_file() && metadata.len() == 0 {
        return Err(Failure::new(format!(
            "{shown} is an empty file: give it its size first, as truncate -s 100G does"
        )));
    }
    Ok(())
}

/// The first and the last bytes: where they begin.
fn ends_of(size: u64) -> [u64; 2] {
    [0, size.saturating_sub(LOOKED_AT_BYTES.min(size))]
}

/// Whatever may be somebody's, unless nobody needs it.
async fn refuse_content(path: &Path, device: &Device, force: bool) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let size = device.info().size_bytes;
    for offset in ends_of(size) {
        let length = LOOKED_AT_BYTES.min(size) as usize;
        let (read, bytes) = device.read(offset, IoBuf::new(length)).await;
        read.map_err(|error| failed(&error))?;
        if let Some(what) = what_is_there(&bytes, offset).filter(|_| !force) {
            return Err(Failure::new(format!(
                "{} holds {what}: everything on it would be lost; --force says that nobody needs it",
                path.display()
            )));
        }
    }
    Ok(())
}

async fn make(path: &Path, force: bool) -> Result<(StoreId, u64), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    // Refused while it is mounted or open exclusively: by a node, a volume manager, an array.
    let device = Device::open(path).await.map_err(|error| failed(&error))?;
    let size = device.info().size_bytes;
    refuse_content(path, &device, force).await?;
    if force {
        store::erase(&device).await.map_err(|error| failed(&error))?;
        for offset in ends_of(size) {
            let zeroes = IoBuf::zeroed(LOOKED_AT_BYTES.min(size) as usize).freeze();
            device.write(offset, &mut vec![zeroes]).await.map_err(|error| failed(&error))?;
        }
    }
    let id = u128::from(runtime::random_u64()) << 64 | u128::from(runtime::random_u64());
    let options = FormatOptions::with_random_key(store::UNCLAIMED, StoreId(id));
    store::format(&device, &options).await.map_err(|error| failed(&error))?;
    Ok((options.store, size))
}

/// What the first or last bytes of a device say of it; `None`: they are all zero.
fn what_is_there(bytes: &[u8], offset_bytes: u64) -> Option<&'static str> {
    if bytes.iter().all(|byte| *byte == 0) {
        return None;
    }
    /// Name, offset and bytes of each mark, as the file formats themselves define it.
    const MARKS: [(&str, usize, &[u8]); 14] = [
        ("a Cairn store", 0, b"CairnSup"),
        ("a Cairn store", 65_536, b"CairnSup"),
        ("an encrypted (LUKS) volume", 0, b"LUKS\xba\xbe"),
        ("an xfs file system", 0, b"XFSB"),
        ("an ext file system", 1080, b"\x53\xef"),
        ("a btrfs file system", 65_600, b"_BHRfS_M"),
        ("a partition table (GPT)", 512, b"EFI PART"),
        ("a partition table (GPT)", 4096, b"EFI PART"),
        ("an LVM physical volume", 512, b"LABELONE"),
        ("a member of a Linux array", 4096, b"\xfc\x4e\x2b\xa9"),
        ("swap space", 4086, b"SWAPSPACE2"),
        ("a bcache device", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
        ("a Ceph OSD", 0, b"bluestore block device"),
        ("a partition table (MBR) or boot sector", 510, b"\x55\xaa"),
    ];
    let is_there = |at: usize, mark: &[u8]| bytes.get(at..at + mark.len()) == Some(mark);
    let known = MARKS.iter().find(|(_, at, mark)| offset_bytes == 0 && is_there(*at, mark));
    let unknown = if offset_bytes == 0 { "something in its first MiB" } else { "something in its last MiB" };
    Some(known.map_or(unknown, |(name, ..)| name))
}

/// Who has the device or file mounted, as swap, behind a loop device, or open.
fn user_of(path: &Path, metadata: &Metadata) -> Option<String> {
    let is_block = metadata.file_type().is_block_device();
    if is_block {
        let number = format!("{}:{}", libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        // 36 35 98:0 /root /mount/point ... : proc(5).
        let mounted = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number));
        if let Some(at) = mounted.and_then(|line| line.split(' ').nth(4)) {
            return Some(format!("the mount at {at}"));
        }
    }
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().any(|line| line.split_whitespace().next() == whole.to_str()) {
        return Some("the kernel, as swap".to_owned());
    }
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if !is_block && Path::new(backing.trim_end()) == whole {
            return Some(format!("the loop device {}", entry.file_name().to_string_lossy()));
        }
    }
    process_with(|open| match is_block {
        true => open.file_type().is_block_device() && open.rdev() == metadata.rdev(),
        false => (open.dev(), open.ino()) == (metadata.dev(), metadata.ino()),
    })
}

/// A process that has such a file open, of those that this user may look at.
fn process_with(is_it: impl Fn(&Metadata) -> bool) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let is_number = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok());
    for process in processes.map(|entry| entry.path()).filter(is_number) {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        if open.filter_map(|file| fs::metadata(file.path()).ok()).any(|open| is_it(&open)) {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            let number = process.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Some(format!("process {number} ({})", name.trim_end()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_a_device_is_named_as_far_as_it_is_known() {
        let with = |at: usize, mark: &[u8]| {
            let mut bytes = vec![0; LOOKED_AT_BYTES as usize];
            bytes[at..at + mark.len()].copy_from_slice(mark);
            bytes
        };
        assert_eq!(what_is_there(&with(0, &[]), 0), None);
        assert_eq!(what_is_there(&with(1080, b"\x53\xef"), 0), Some("an ext file system"));
        assert_eq!(what_is_there(&with(0, b"XFSB"), 0), Some("an xfs file system"));
        assert_eq!(what_is_there(&with(65_536, b"CairnSup"), 0), Some("a Cairn store"));
        assert_eq!(what_is_there(&with(900_000, b"x"), 0), Some("something in its first MiB"));
        assert_eq!(what_is_there(&with(0, b"XFSB"), 1 << 30), Some("something in its last MiB"));
    }

    #[test]
    fn who_has_a_file_open_is_found() {
        let file = tempfile_in(std::env::temp_dir());
        let metadata = file.1.metadata().expect("a file");
        let user = user_of(&file.0, &metadata).expect("this process has it open");
        assert!(user.contains(&std::process::id().to_string()), "{user}");
        drop(file.1);
        assert_eq!(user_of(&file.0, &metadata), None);
        fs::remove_file(&file.0).expect("it is there");
    }

    fn tempfile_in(directory: PathBuf) -> (PathBuf, fs::File) {
        let path = directory.join(format!("cairn-format-{}", std::process::id()));
        let file = fs::File::create(&path).expect("a file");
        (path, file)
    }
}

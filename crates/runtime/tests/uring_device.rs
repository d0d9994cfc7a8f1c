//! Devices on the uring backend: what is written is read back, on a disk file system and on tmpfs.

use runtime::uring::{block_on, counters};
use runtime::{Device, IoBuf, SharedBuf, spawn};
use std::path::{Path, PathBuf};

const DEVICE_BYTES: u64 = 8 << 20;

/// A directory that goes with its owner.
struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    fn new(under: &Path, name: &str) -> Self {
        let path = under.join(format!("cairn-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }
    fn device(&self) -> PathBuf {
        let path = self.0.join("device.img");
        std::fs::File::create(&path).and_then(|file| file.set_len(DEVICE_BYTES)).expect("a sparse file");
        path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn disk(name: &str) -> TemporaryDirectory {
    TemporaryDirectory::new(Path::new(env!("CARGO_TARGET_TMPDIR")), name)
}

fn memory(name: &str) -> TemporaryDirectory {
    TemporaryDirectory::new(Path::new("/dev/shm"), name)
}

fn pattern(len: usize, seed: u8) -> SharedBuf {
    let mut buf = IoBuf::new(len);
    for (index, byte) in buf.iter_mut().enumerate() {
        *byte = (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) ^ seed;
    }
    buf.freeze()
}

fn write_read_sync_persist(directory: &TemporaryDirectory) {
    let path = directory.device();
    let again = path.clone();
    block_on(async move {
        let device = Device::open(&path).await.expect("opens");
        assert_eq!(device.info().size_bytes, DEVICE_BYTES);
        assert!(device.info().is_file);
        let mut parts = vec![pattern(4096, 1), pattern(1 << 20, 2), pattern(8192, 3)];
        device.write(16384, &mut parts).await.expect("writes three parts as one");
        assert!(parts.is_empty() && parts.capacity() >= 3);
        device.sync().await.expect("syncs");
        let (result, read) = device.read(16384 + 4096, IoBuf::new((1 << 20) + 8192)).await;
        result.expect("reads");
        assert_eq!(&read[..1 << 20], &*pattern(1 << 20, 2));
        assert_eq!(&read[1 << 20..], &*pattern(8192, 3));
    })
    .expect("a ring");
    let bytes = std::fs::read(&again).expect("a plain reader sees it too");
    assert_eq!(&bytes[16384..16384 + 4096], &*pattern(4096, 1));
    bytes[..16384].iter().for_each(|byte| assert_eq!(*byte, 0));
    block_on(async move {
        let device = Device::open(&again).await.expect("opens again");
        device.discard(16384, 4096).await.expect("discards");
        let (result, read) = device.read(16384, IoBuf::new(8192)).await;
        result.expect("reads");
        assert_eq!(&read[4096..], &pattern(1 << 20, 2)[..4096], "only the range is discarded");
    })
    .expect("a ring");
}

#[test]
fn a_file_on_a_disk_keeps_what_is_written() {
    write_read_sync_persist(&disk("device-disk"));
}

#[test]
fn a_file_on_tmpfs_keeps_what_is_written() {
    write_read_sync_persist(&memory("device-memory"));
}

#[test]
fn who_only_reads_from_memory_lets_others_run() {
    let in_memory = memory("reads-for-ever");
    let path = in_memory.device();
    block_on(async move {
        let device = Device::open(&path).await.expect("opens");
        let over = std::rc::Rc::new(std::cell::Cell::new(false));
        let until = over.clone();
        runtime::spawn(async move {
            let mut buf = IoBuf::new(4096);
            while !until.get() {
                buf = device.read(0, buf).await.1;
            }
        });
        runtime::sleep(std::time::Duration::from_millis(1)).await;
        over.set(true);
    })
    .expect("a ring");
}

#[test]
fn a_disk_file_has_a_volatile_cache_and_tmpfs_has_none() {
    let (on_disk, in_memory) = (disk("cache-disk"), memory("cache-memory"));
    let (disk_path, memory_path) = (on_disk.device(), in_memory.device());
    block_on(async move {
        assert!(Device::open(&disk_path).await.expect("opens").info().volatile_cache);
        let memory = Device::open(&memory_path).await.expect("opens");
        assert!(!memory.info().volatile_cache);
        let before = counters();
        let (result, _) = memory.read(0, IoBuf::new(4096)).await;
        result.expect("reads");
        memory.write(0, &mut vec![pattern(4096, 9)]).await.expect("writes");
        assert_eq!(counters().submitted, before.submitted, "tmpfs does not go through the ring");
        assert_eq!(counters().inline_operations, before.inline_operations + 2);
    })
    .expect("a ring");
}

#[test]
fn many_operations_run_at_once_and_more_than_the_queue_holds() {
    const WRITES: u64 = 2000; // more than the submission queue has entries
    let directory = disk("device-many");
    let path = directory.device();
    block_on(async move {
        let device = Device::open(&path).await.expect("opens");
        let (sender, mut receiver) = runtime::channel::bounded(WRITES as usize);
        for index in 0..WRITES {
            let (device, sender) = (device.clone(), sender.clone());
            spawn(async move {
                let bytes = pattern(4096, index as u8);
                device.write(index * 4096, &mut vec![bytes]).await.expect("writes");
                sender.try_send(index).expect("room for all");
            });
        }
        for _ in 0..WRITES {
            receiver.recv().await.expect("every write ends");
        }
        for index in 0..WRITES {
            let (result, read) = device.read(index * 4096, IoBuf::new(4096)).await;
            result.expect("reads");
            assert_eq!(&*read, &*pattern(4096, index as u8));
        }
    })
    .expect("a ring");
}

#[test]
fn a_dropped_write_keeps_its_buffer_until_the_kernel_is_done() {
    let directory = disk("device-dropped");
    let path = directory.device();
    block_on(async move {
        let device = Device::open(&path).await.expect("opens");
        for round in 0..64u64 {
            let bytes = pattern(1 << 20, round as u8);
            let address = bytes.as_ptr();
            let task = {
                let device = device.clone();
                spawn(async move { device.write(0, &mut vec![bytes]).await.expect("writes") })
            };
            runtime::yield_now().await; // it has been issued
            task.cancel();
            let other = IoBuf::new(1 << 20);
            assert_ne!(other.as_ptr(), address, "the memory is not given out while the kernel reads it");
        }
    })
    .expect("a ring");
}

#[test]
fn a_second_process_is_refused_and_a_second_core_is_not() {
    let directory = disk("device-exclusive");
    let path = directory.device();
    block_on(async move {
        let first = Device::open(&path).await.expect("opens");
        let second = Device::open(&path).await.expect("the same process shares it");
        assert_eq!(first.info(), second.info());
        let status = std::process::Command::new("flock")
            .args(["--nonblock", path.to_str().expect("a plain path"), "true"])
            .status()
            .expect("flock of util-linux");
        assert!(!status.success(), "another process can not lock it");
    })
    .expect("a ring");
}

/// As after a kill -9: what the dead process had in flight keeps the device busy for a moment.
#[test]
fn a_device_that_is_busy_for_a_moment_is_waited_for() {
    let directory = disk("device-busy");
    let path = directory.device();
    block_on(async move {
        let mut holder = std::process::Command::new("flock")
            // It waits for the lock: the question below has it for an instant.
            .args([path.to_str().expect("a plain path"), "sleep", "0.3"])
            .spawn()
            .expect("flock of util-linux");
        let is_held = || {
            let other = std::fs::File::open(&path).expect("it is there");
            matches!(other.try_lock(), Err(std::fs::TryLockError::WouldBlock))
        };
        while !is_held() {
            assert_eq!(holder.try_wait().expect("a child of ours"), None, "it holds the file for a while");
        }
        Device::open(&path).await.expect("opens when the other has ended");
        holder.wait().expect("a child of ours");
    })
    .expect("a ring");
}

#[test]
fn what_is_no_device_is_refused_and_told_what_to_name() {
    let error = block_on(async { Device::open(Path::new("/dev/null")).await.expect_err("not a device") });
    let told = error.expect("a ring").to_string();
    assert!(told.contains("neither a block device nor a regular file: name one of these"), "{told}");
}

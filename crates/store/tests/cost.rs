//! Cost is held by counting: allocations, system calls and device bytes per write and read.

mod common;

use common::{LAYER, MIB, bytes_of, format_options};
use runtime::sim::DiskOptions;
use runtime::{Device, IoBuf, SharedBuf};
use std::path::PathBuf;
use std::rc::Rc;
use store::{Entry, EntryKind, Shard, Store};
use types::*;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

const GROUP: GroupId = GroupId(1);

/// A client that itself allocates nothing.
struct Writer {
    shard: Rc<Shard>,
    payload: SharedBuf,
    seq: Seq,
    committed: Seq,
    random: runtime::sim::Random,
}

impl Writer {
    async fn new(shard: Rc<Shard>) -> Self {
        let payload = bytes_of(ChunkId(0), BlockRange::new(0, 1), 1);
        let random = runtime::sim::Random::new(1);
        let mut writer = Self { shard, payload, seq: Seq(0), committed: Seq(0), random };
        writer.prepare(EntryKind::EpochStart, ChunkId(0));
        writer.below(1).await;
        writer
    }

    fn prepare(&mut self, kind: EntryKind, chunk: ChunkId) {
        self.seq.0 += 1;
        let entry = Entry {
            group: GROUP,
            term: Epoch(1).into(),
            seq: self.seq,
            commit: self.committed,
            volume_epoch: VolumeEpoch(1),
            layer: LAYER,
            chunk,
            kind,
        };
        self.shard.prepare(entry).expect("room");
    }

    fn place(&self) -> (ChunkId, BlockRange) {
        (ChunkId(self.random.below(4) as u32), BlockRange::new(self.random.below(256) as u32, 1))
    }

    /// Commits what is durable until fewer than `depth` are left.
    async fn below(&mut self, depth: u64) {
        loop {
            let durable = self.shard.durable_through();
            // One group from the first entry on: position and sequence are the same number.
            self.committed = Seq(durable.0);
            self.shard.commit(GROUP, self.committed);
            if self.seq.0 - self.committed.0 < depth {
                return;
            }
            self.shard.durable_changed(durable).await.expect("no failure");
        }
    }

    async fn write(&mut self, count: u32, depth: u64) {
        for _ in 0..count {
            let (chunk, range) = self.place();
            self.prepare(EntryKind::write(range, self.payload.clone()), chunk);
            self.below(depth).await;
        }
        self.below(1).await;
    }
}

/// A file that is gone when this is dropped.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// In memory if the system has such a place: what is counted is ours, not the disk's.
    fn new(name: &str, size_bytes: u64) -> Self {
        let shared = PathBuf::from("/dev/shm");
        let directory = if shared.is_dir() { shared } else { std::env::temp_dir() };
        let path = directory.join(format!("cairn-{name}-{}", std::process::id()));
        let file = std::fs::File::create(&path).expect("a temporary file");
        file.set_len(size_bytes).expect("a sparse file");
        Self(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn open_formatted(path: &std::path::Path) -> Rc<Shard> {
    let device = Device::open(path).await.expect("a device");
    store::format(&device, &format_options()).await.expect("formatted");
    let store = Store::open(&device).await.expect("a store");
    Shard::open(&store, device, ShardIndex(0)).await.expect("a shard").0
}

#[test]
fn a_thousand_writes_and_reads_allocate_nothing_and_make_few_system_calls() {
    // So large that no pass falls into what is counted: a pass allocates, once per 4 % of the device.
    let file = TemporaryFile::new("cost", 4096 * MIB);
    let path = file.0.clone();
    runtime::uring::block_on(async move {
        let mut writer = Writer::new(open_formatted(&path).await).await;
        writer.write(20_000, 32).await;

        let (allocations, enters) = (counting::on_this_thread(), runtime::uring::counters().enters);
        writer.write(1_000, 32).await;
        let write_enters = runtime::uring::counters().enters - enters;
        assert_eq!(counting::on_this_thread() - allocations, 0, "allocations per 1,000 writes at depth 32");
        // One append takes what came while two others were under way, and a turn takes all completions at once.
        assert!(write_enters <= 500, "{write_enters} system calls per 1,000 writes at depth 32");

        let mut buf = IoBuf::new(BLOCK_BYTES);
        let mut sums = Vec::with_capacity(4096);
        for round in 0..2 {
            let (allocations, enters) = (counting::on_this_thread(), runtime::uring::counters().enters);
            sums.clear();
            for _ in 0..1_000 {
                let (chunk, range) = writer.place();
                let (read, back) = writer.shard.read(&[LAYER], chunk, range, buf, &mut sums).await;
                read.expect("readable");
                buf = back;
            }
            let read_enters = runtime::uring::counters().enters - enters;
            assert!(round == 0 || counting::on_this_thread() == allocations, "allocations per 1,000 reads");
            // At depth 1 each read is waited for.
            assert!(read_enters <= 2_100, "{read_enters} system calls per 1,000 reads at depth 1");
        }
        writer.shard.close().await;
    })
    .expect("io_uring is there");
}

/// Device bytes per client byte of 4 KiB writes.
fn amplification(block_size_bytes: u32, depth: u64) -> f64 {
    let options = DiskOptions { block_size_bytes, ..DiskOptions::default() };
    let rig = common::Rig::formatted(depth, 256 * MIB, options);
    let count = 2_000;
    let bytes = rig.run(async move {
        let (shard, _) = common::open().await;
        let mut writer = Writer::new(shard).await;
        let before = writer.shard.statistics().appended_bytes;
        writer.write(count, depth).await;
        writer.shard.statistics().appended_bytes - before
    });
    bytes as f64 / (f64::from(count) * BLOCK_BYTES as f64)
}

#[test]
fn device_bytes_per_client_byte() {
    // A record of one write: header and entry (168 bytes) in one device block, and the block. Passes are in it.
    for (block_size_bytes, depth, most) in
        [(512, 1, 1.14), (512, 16, 1.06), (512, 128, 1.04), (4096, 1, 2.02), (4096, 16, 1.20), (4096, 128, 1.05)]
    {
        let found = amplification(block_size_bytes, depth);
        println!("device block {block_size_bytes:4}, depth {depth:3}: {found:.3} device bytes per client byte");
        assert!(found <= most, "device block {block_size_bytes}, depth {depth}: {found:.3}, at most {most}");
    }
}

//! A device that can be read and not be written when its store is opened: that is its own failure, for all of its shards, and no
//! assertion's.

use crate::common::moments::Writer;
use crate::common::*;
use runtime::sim::{DiskFaults, DiskOptions};
use std::sync::Arc;
use std::time::Duration;
use store::{AppendError, OpenError, Shard, Store};
use types::*;

const SEGMENT_BYTES: u64 = 4 * MIB;
const SHARDS: u8 = 2;
/// One in each shard.
const GROUPS: [GroupId; SHARDS as usize] = [GroupId(2), GroupId(1)];

fn rig(seed: u64) -> Rig {
    let rig = Rig::new(seed, 256 * MIB, DiskOptions { block_size_bytes: 4096, ..DiskOptions::default() });
    rig.run(async {
        let options = store::FormatOptions { shard_count: Some(SHARDS), ..format_options() };
        store::format(&device().await, &options).await.expect("the disk can be formatted");
    });
    rig
}

/// Writes to both shards before a pass, and so many chunks and a block behind it, until a record says that all of it was durable.
async fn write_before_and_behind_a_pass(chunks: u32) {
    let device = device().await;
    let store = Store::open(&device).await.expect("a store");
    let mut read = Vec::new();
    for index in 0..SHARDS {
        read.push(Shard::recover(&store, device.clone(), ShardIndex(index)).await.expect("a good device"));
    }
    let mut shards = Vec::new();
    for (recovered, group) in read.into_iter().zip(GROUPS) {
        let (shard, recovery) = recovered.begin().await.expect("a good device");
        let writer = Writer::begin(&shard, &recovery, group).await;
        writer.write_chunk(LAYER, ChunkId(group.0), 1).await;
        shard.pass_now().await.expect("it has room");
        for chunk in 0..chunks {
            writer.write_chunk(LAYER, ChunkId(100 * group.0 + chunk), 1).await;
        }
        writer.write(LAYER, ChunkId(group.0), BlockRange::new(0, 1), 2).await;
        writer.settle().await;
        shards.push(shard);
    }
    runtime::sleep(Duration::from_secs(3)).await;
}

async fn opened() -> Arc<Store> {
    Store::open(&device().await).await.expect("what the device says of itself is good")
}

/// Why no shard of the store opens, as each of them says.
async fn refused(store: Arc<Store>) -> Vec<OpenError> {
    let (mut read, mut refused) = (Vec::new(), Vec::new());
    for index in 0..SHARDS {
        match Shard::recover(&store, device().await, ShardIndex(index)).await {
            Ok(recovered) => read.push(recovered),
            Err(error) => refused.push(error),
        }
    }
    for recovered in read {
        refused.push(recovered.begin().await.err().expect("nothing can be written there"));
    }
    for error in &refused {
        assert!(error.is_of_device() && !error.is_stop(), "{error:?}");
    }
    assert!(matches!(store.failed(), Some(AppendError::Failed { .. })), "{:?}", store.failed());
    refused
}

/// Written over from end to end while its node wrote there: the last records are good, and so is what it says of itself.
#[test]
fn where_all_is_damaged_but_the_last_records_nothing_can_be_written() {
    // Of a segment that was begun before the pass nobody knows what else was in it. In one that was begun behind all that is
    // damaged the log could go on, to its end.
    [0, 6].into_iter().for_each(only_the_last_records_are_left);
}

fn only_the_last_records_are_left(chunks: u32) {
    let rig = rig(50 + u64::from(chunks));
    rig.run(write_before_and_behind_a_pass(chunks));
    rig.node.crash();
    let with_last = |group: GroupId| rig.segments_with(&bytes_of(ChunkId(group.0), BlockRange::new(0, 1), 2));
    let last: Vec<usize> = GROUPS.into_iter().flat_map(with_last).collect();
    let segments = rig.segments().len();
    let lost: Vec<usize> = (0..segments).filter(|segment| !last.contains(segment)).collect();
    assert_eq!(lost.len(), segments - GROUPS.len(), "each has a segment of its own");
    let noise = vec![0xa5; SEGMENT_BYTES as usize];
    lost.iter().for_each(|segment| rig.disk.poke(MIB + *segment as u64 * SEGMENT_BYTES, &noise));
    // It stays so, whatever an opening does.
    for _ in 0..3 {
        rig.node.restart();
        let refused = rig.run(async { refused(opened().await).await });
        let [OpenError::NoSegment { segments: all, headers_lost }, OpenError::Append(later)] = &refused[..] else {
            panic!("{refused:?}")
        };
        assert_eq!((*all as usize, *headers_lost as usize), (segments, lost.len()));
        assert!(later.to_string().contains(&refused[0].to_string()), "the first says why: {later}");
        rig.node.crash();
    }
}

#[test]
fn a_device_that_refuses_writes_fails_while_it_is_opened() {
    // The last record, of which none says that it was durable, is written again; where there is none, the opening is the first.
    for (seed, is_used) in [(60, true), (61, false)] {
        let rig = rig(seed);
        if is_used {
            rig.run(write_before_and_behind_a_pass(0));
        }
        rig.node.kill();
        rig.node.start();
        let store = rig.run(opened());
        rig.disk.set_faults(DiskFaults { write_error: 1_000_000, ..DiskFaults::default() });
        let refused = rig.run(refused(store));
        assert_eq!(refused.len(), usize::from(SHARDS));
        assert_eq!(is_used, matches!(refused[0], OpenError::Io { .. }), "{refused:?}");
        // When it takes them again nothing is missing.
        rig.disk.set_faults(DiskFaults::default());
        rig.node.restart();
        rig.run(async {
            let (store, device) = (opened().await, device().await);
            for index in 0..SHARDS {
                let recovered = Shard::recover(&store, device.clone(), ShardIndex(index)).await.expect("it is well");
                let (_, recovery) = recovered.begin().await.expect("it is well");
                assert_eq!(recovery.damage, []);
            }
        });
    }
}

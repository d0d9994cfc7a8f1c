//! What is written is read back, at once and after opening again.

use crate::common::*;
use runtime::sim::DiskOptions;
use runtime::{Device, IoBuf};
use store::{AppendError, FormatOptions, Shard, Store, StoreError};
use types::*;

#[test]
fn what_is_committed_is_read_and_what_is_only_prepared_is_not() {
    let (rig, client) = fresh(1, 256 * MIB, 1);
    let done = client.clone();
    rig.run(async move {
        let range = BlockRange::new(3, 2);
        let read = async |expected: u64| {
            let mut sums = Vec::new();
            let (read, bytes) =
                done.shard.read(&[LAYER], ChunkId(5), range, IoBuf::new(range.bytes()), &mut sums).await;
            read.expect("readable");
            assert_eq!(&*bytes, &*bytes_of(ChunkId(5), range, expected));
            assert_eq!(sums.len(), 2);
        };
        read(0).await;
        let position = done.write(GroupId(1), ChunkId(5), range).expect("room");
        while done.shard.durable_through() < position {
            done.shard.durable_changed(done.shard.durable_through()).await.expect("no failure");
        }
        read(0).await;
        done.acknowledge();
        read(1).await;
    });
}

#[test]
fn everything_is_there_after_a_clean_stop_and_after_a_power_loss() {
    let (rig, mut client) = fresh(2, 256 * MIB, 3);
    let random = runtime::sim::Random::new(2);
    for round in 0..4 {
        let done = client.clone();
        let random = runtime::sim::Random::new(random.next_u64());
        rig.run(async move {
            for _ in 0..300 {
                random_op(&done, &random, 3, 4).expect("room");
                done.below(16).await;
            }
            done.settle().await;
            done.verify().await;
            if round % 2 == 0 {
                done.shard.close().await;
            }
        });
        let model = client.model.clone();
        drop(client);
        rig.node.restart();
        client = reopen(&rig, &model);
        let done = client.clone();
        rig.run(async move { done.verify().await });
    }
}

#[test]
fn the_index_rebuilt_equals_the_index_before() {
    let (rig, client) = fresh(3, 256 * MIB, 2);
    let done = client.clone();
    let before = rig.run(async move {
        let random = runtime::sim::Random::new(3);
        for _ in 0..500 {
            random_op(&done, &random, 2, 8).expect("room");
            done.below(32).await;
        }
        done.settle().await;
        done.shard.index_digest()
    });
    let model = client.model.clone();
    drop(client);
    rig.node.restart();
    let client = reopen(&rig, &model);
    assert_eq!(client.shard.index_digest(), before);
}

#[test]
fn what_arrives_in_one_turn_leaves_in_one_write() {
    let (rig, client) = fresh(4, 256 * MIB, 1);
    let done = client.clone();
    rig.run(async move {
        let before = done.shard.statistics();
        for block in 0..64 {
            done.write(GroupId(1), ChunkId(0), BlockRange::new(block, 1)).expect("room");
        }
        done.settle().await;
        let after = done.shard.statistics();
        assert_eq!(after.entries - before.entries, 64);
        assert_eq!(after.appends - before.appends, 1);
    });
}

#[test]
fn a_device_that_is_a_store_is_not_formatted_again() {
    let rig = Rig::formatted(5, 256 * MIB, Default::default());
    rig.run(async {
        let device = device().await;
        let again = store::format(&device, &format_options()).await;
        assert!(matches!(again, Err(StoreError::Occupied { store: StoreId(2), cluster: ClusterId(1) })));
        assert_eq!(store::identify(&device).await.expect("readable"), Some((ClusterId(1), StoreId(2))));
    });
}

#[test]
fn an_unformatted_device_is_no_store() {
    let rig = Rig::new(6, 256 * MIB, Default::default());
    rig.run(async {
        let device = device().await;
        assert_eq!(store::identify(&device).await.expect("readable"), None);
        assert!(Store::open(&device).await.is_err());
    });
}

#[test]
fn a_device_that_shrank_is_refused_and_so_is_one_without_room_for_a_superblock() {
    let rig = Rig::formatted(9, 512 * MIB, DiskOptions::default());
    for (name, size_bytes) in [("half", 256 * MIB), ("tiny", 4096)] {
        rig.node.add_disk(name, size_bytes, DiskOptions::default());
        let error = rig.run(async move {
            let (read, front) = device().await.read(0, IoBuf::new(BLOCK_BYTES)).await;
            read.unwrap();
            let shrunk = Device::open(std::path::Path::new(name)).await.unwrap();
            shrunk.write(0, &mut vec![front.freeze()]).await.unwrap();
            Store::open(&shrunk).await.err().expect("no store can be opened").to_string()
        });
        let told = if name == "half" { "needs 536870912" } else { "no store can be opened here" };
        assert!(error.contains(told), "{name}: {error}");
    }
}

#[test]
fn a_closed_shard_takes_nothing() {
    let (rig, client) = fresh(7, 256 * MIB, 1);
    rig.run(async move {
        client.shard.close().await;
        assert_eq!(client.write(GroupId(1), ChunkId(0), BlockRange::new(0, 1)), Err(AppendError::Closed));
    });
}

/// Opens all shards, one after the other.
async fn open_all() -> (Vec<std::rc::Rc<Shard>>, Vec<store::Recovery>) {
    let device = device().await;
    let store = Store::open(&device).await.expect("a store");
    let mut all = (Vec::new(), Vec::new());
    for index in 0..store.shard_count() {
        let (shard, recovery) = Shard::open(&store, device.clone(), ShardIndex(index)).await.expect("a shard");
        all.0.push(shard);
        all.1.push(recovery);
    }
    all
}

#[test]
fn a_synthetic_index_is_opened_as_it_was_written() {
    for (layout, shard_count) in [(store::SyntheticLayout::Random, 4), (store::SyntheticLayout::Sequential, 1)] {
        let rig = Rig::new(8, 512 * MIB, Default::default());
        let before = rig.run(async move {
            let options = FormatOptions { shard_count: Some(shard_count), ..format_options() };
            store::format(&device().await, &options).await.expect("formatted");
            let (shards, _) = open_all().await;
            for shard in &shards {
                store::write_synthetic_pass(shard, LayerId(9), 300, layout).await.expect("a pass");
            }
            shards.iter().map(|shard| shard.index_digest()).collect::<Vec<_>>()
        });
        rig.node.restart();
        let (shards, recoveries) = rig.run(open_all());
        for ((shard, recovery), before) in shards.iter().zip(recoveries).zip(before) {
            assert_eq!(recovery.damage, []);
            assert!(recovery.counters.leaves >= 300);
            assert_eq!(shard.statistics().live_bytes, 300 << 20);
            assert_eq!(shard.index_digest(), before);
        }
    }
}

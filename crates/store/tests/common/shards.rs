//! Two shards that share the segments of one device.

use super::*;
use store::AppendError;

/// Opens a device with two shards.
pub async fn both_shards() -> Vec<(Rc<Shard>, Recovery)> {
    let device = device().await;
    let store = Store::open(&device).await.expect("a store");
    let mut read = Vec::new();
    for index in 0..2 {
        read.push(Shard::recover(&store, device.clone(), ShardIndex(index)).await.expect("a good device"));
    }
    let mut shards = Vec::new();
    for recovered in read {
        shards.push(recovered.begin().await.expect("a good device"));
    }
    shards
}

/// A device with two shards and a client of each, with the groups 2 and 1.
pub async fn two_shards() -> Vec<(GroupId, Client)> {
    let device = device().await;
    let options = store::FormatOptions { shard_count: Some(2), ..format_options() };
    store::format(&device, &options).await.expect("the disk can be formatted");
    let opened = store::Store::open(&device).await.expect("a store");
    let mut shards = Vec::new();
    for index in 0..2 {
        let read = store::Shard::recover(&opened, device.clone(), ShardIndex(index)).await;
        shards.push(read.expect("a good device"));
    }
    let mut clients = Vec::new();
    for (read, group) in shards.into_iter().zip([GroupId(2), GroupId(1)]) {
        let (shard, recovery) = read.begin().await.expect("a good device");
        assert_eq!(opened.shard_of(group), shard.index());
        let model = model_of(0);
        model.borrow_mut().groups.insert(group, GroupModel::default());
        clients.push((group, Client::take_over(&shard, &recovery, &model).await));
    }
    clients
}

/// Passes and cleaners that go on in step with what is written do not wait for writers who wait for them.
pub fn writers_with_a_pace_of_their_own_never_wait_for_ever() {
    let rig = Rig::new(26, 512 * MIB, runtime::sim::DiskOptions::default());
    rig.run(async move {
        let clients = two_shards().await;
        let random = Random::new(26);
        let write = async |which: usize, chunk: u32, range: BlockRange| {
            let (group, client) = &clients[which];
            client.write_with_room(*group, ChunkId(chunk), range).await.expect("there is always something to clean");
            assert!(client.below(32).await);
        };
        for chunk in 0..180 {
            for part in 0..8 {
                write(0, chunk, BlockRange::new(32 * part, 32)).await;
                write(1, chunk, BlockRange::new(32 * part, 32)).await;
            }
        }
        for i in 0..120_000 {
            let block = BlockRange::new(random.below(256) as u32, 1);
            write(i % 2, random.below(180) as u32, block).await;
            if i % 16 == 0 {
                runtime::sleep(std::time::Duration::from_micros(random.below(600))).await;
            }
        }
        let cleaned: u64 = clients.iter().map(|(_, client)| client.shard.statistics().segments_cleaned).sum();
        assert!(cleaned > 60, "{cleaned} segments cleaned");
        for (_, client) in &clients {
            client.settle().await;
            client.verify().await;
        }
    });
}

/// One shard overwrites here and there, so that a pass of its may be under way, which goes in step with what it writes;
/// then the other takes all there is with new blocks, and frees nothing. Nobody writes any more who is not waiting.
pub fn a_pass_ends_although_its_writers_wait(seed: u64) {
    let rig = Rig::new(seed, 512 * MIB, runtime::sim::DiskOptions::default());
    rig.run(async move {
        let clients = two_shards().await;
        let random = Random::new(seed);
        let write = async |which: usize, chunk: u64, range: BlockRange| {
            let (group, client) = &clients[which];
            let written = client.write_with_room(*group, ChunkId(chunk as u32), range).await;
            assert!(client.below(16).await);
            match written {
                Err(AppendError::NoSpace { .. }) => false,
                other => other.map(|_| true).expect("there is room or there is none"),
            }
        };
        // Leaves for a pass of several records.
        let chunks = 260;
        for number in 0..8 * chunks {
            write(0, number / 8, BlockRange::new(32 * (number % 8) as u32, 32)).await;
        }
        for _ in 0..8 {
            for _ in 0..2000 + random.below(14_000) {
                write(0, random.below(chunks), BlockRange::new(random.below(256) as u32, 1)).await;
            }
            let mut taken = 0;
            while write(1, taken / 8, BlockRange::new(32 * (taken % 8) as u32, 32)).await {
                taken += 1;
            }
            let (group, client) = &clients[1];
            for chunk in 0..taken.div_ceil(8) {
                client
                    .ask(*group, Op::Zero(ChunkId(chunk as u32), BlockRange::new(0, 256)))
                    .expect("deletes work always");
            }
            client.settle().await;
        }
        for (_, client) in &clients {
            client.settle().await;
            client.verify().await;
        }
    });
}

//! What [rules](super) of docs/heads.md promise, each looked at where it shows at once: heads on nodes of a small cluster.

use super::common::{
    Cluster, GROUP, LAYER, OTHER_FAMILY, OTHER_LAYER, SOON, VOLUME, block_of, layer_record, store_of, three,
};
use replication::{Access, Found, GroupError, LayerEnd, Piece, Place, Sought, Stamp};
use runtime::IoBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::format::LayerRecord;
use store::{BlockCoding, KnownBlock, Want};
use types::{BLOCK_BYTES, BlockRange, ChunkId, FamilyId, LayerId, NodeId, VolumeEpoch, VolumeId};

const MILLISECOND: Duration = Duration::from_millis(1);
const CHUNK: ChunkId = ChunkId(1);

fn layers() -> [LayerRecord; 1] {
    [layer_record(LAYER, FamilyId(3))]
}

fn stamp(epoch: u32, layers: &[LayerRecord]) -> Stamp<'_> {
    Stamp::new(VOLUME, VolumeEpoch(epoch), layers)
}

fn place(block: u32) -> Place {
    Place { layer: LAYER, chunk: CHUNK, range: BlockRange::new(block, 1) }
}

/// One attempt.
async fn write_once(access: &Access, epoch: u32, block: u32, byte: u8) -> Result<(), GroupError> {
    let layers = layers();
    let mut change = access.write(stamp(epoch, &layers), place(block), block_of(byte), BlockCoding::PLAIN).await?;
    access.wait(&mut change).await.map(drop)
}

/// Until it is done, or never will be.
async fn write(access: &Access, epoch: u32, block: u32, byte: u8) -> Result<(), GroupError> {
    loop {
        match write_once(access, epoch, block, byte).await {
            Ok(()) => return Ok(()),
            Err(error) => access.ask_again(error).await?,
        }
    }
}

/// The first byte of each of some blocks.
async fn read(access: &Access, epoch: u32, range: BlockRange) -> Result<Vec<u8>, GroupError> {
    let layers = layers();
    loop {
        let sought = Sought { layers: &[LAYER], chunk: CHUNK, range, want: Want::Plain };
        let (buf, mut sums) = (IoBuf::new(range.bytes()), Vec::new());
        let (result, buf) = access.read(stamp(epoch, &layers), sought, buf, &mut sums).await;
        let bytes = match result {
            Ok((Found::Plain, _)) => buf.freeze(),
            Ok((Found::There(bytes), _)) => bytes,
            Ok((Found::Stored(_), _)) => panic!("nothing is compressed"),
            Err(error) => {
                access.ask_again(error).await?;
                continue;
            }
        };
        let is_right = |(block, sum): (&[u8], &u32)| crc32c_of(block) == *sum;
        assert!(bytes.chunks_exact(BLOCK_BYTES).zip(&sums).all(is_right), "sums are those of the blocks");
        assert_eq!((bytes.len(), sums.len()), (range.bytes(), usize::from(range.count)));
        return Ok(bytes.chunks_exact(BLOCK_BYTES).map(|block| block[0]).collect());
    }
}

fn crc32c_of(block: &[u8]) -> u32 {
    store::format::Crc32c::of(block).0
}

/// Writes, zeroes, reads and looks of a head on another node than the group's primary.
pub fn a_group_led_elsewhere_does_what_it_is_asked() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let done = cluster.at_head(1, |access| async move {
        assert!(access.here().is_none(), "it is led elsewhere");
        write(&access, 1, 3, 7).await?;
        write(&access, 1, 4, 8).await?;
        write(&access, 1, 6, 9).await?;
        let layers = layers();
        let stamp = stamp(1, &layers);
        let mut zeroed = access.zero(stamp, &[LAYER], CHUNK, BlockRange::new(4, 1)).await?.expect("it is asked for");
        access.wait(&mut zeroed).await?;
        let range = BlockRange::new(2, 5);
        assert_eq!(read(&access, 1, range).await?, [0, 7, 0, 0, 9]);
        let mut known = vec![KnownBlock::default(); 3];
        let sought = Sought { layers: &[LAYER], chunk: CHUNK, range, want: Want::Stored };
        access.known_blocks(stamp, sought, &mut known).await?;
        let stored: Vec<_> = known.iter().map(|block| block.is_stored).collect();
        assert_eq!(stored, [false, true, false, false, true]);
        access.settle(stamp).await
    });
    done.expect("it is up").expect("it is done");
    assert_eq!(cluster.read(0, 1).expect("it is up"), Ok(7), "the primary has it");
    // It follows whoever leads.
    cluster.crash(0);
    cluster.wait_for_primary(&[1, 2], SOON);
    for index in [1, 2] {
        let found = cluster.at_head(index, |access| async move { read(&access, 1, BlockRange::new(3, 1)).await });
        assert_eq!(found.expect("it is up"), Ok(vec![7]), "at node {index}");
    }
}

/// Pieces of a chunk that are sent in one request are all committed when it is answered, or refused.
pub fn several_pieces_are_one_request() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let pieces = || -> Vec<Piece> {
        let piece = |(first, count, byte): (u32, u32, u8)| {
            let mut bytes = IoBuf::new(count as usize * BLOCK_BYTES);
            bytes.fill(byte);
            Piece { range: BlockRange::new(first, count), bytes: bytes.freeze(), coding: BlockCoding::PLAIN }
        };
        [(3, 13, 7), (16, 16, 8), (40, 1, 9)].map(piece).into()
    };
    cluster
        .at_head(1, |access| async move { access.tell(stamp(1, &layers())).await })
        .expect("it is up")
        .expect("told");
    cluster.disks.iter().for_each(|disk| disk.set_delay(Duration::from_millis(200)));
    let read_at_once = cluster.at_head(1, move |access| async move {
        let layers = layers();
        let stamp = stamp(1, &layers);
        let mut change = access.write_there(stamp, LAYER, CHUNK, pieces()).await?;
        access.wait(&mut change).await?;
        let mut found = read(&access, 1, BlockRange::new(2, 3)).await?;
        found.extend(read(&access, 1, BlockRange::new(31, 2)).await?);
        found.extend(read(&access, 1, BlockRange::new(40, 1)).await?);
        Ok::<_, GroupError>(found)
    });
    assert_eq!(read_at_once.expect("it is up"), Ok(vec![0, 7, 7, 8, 0, 9]));
    cluster.disks.iter().for_each(|disk| disk.set_delay(Duration::ZERO));
    let newer = cluster.at_head(2, |access| async move { write(&access, 2, 3, 1).await });
    newer.expect("it is up").expect("it is written");
    let older = cluster.at_head(1, move |access| async move {
        let mut change = access.write_there(stamp(1, &layers()), LAYER, CHUNK, pieces()).await?;
        access.wait(&mut change).await
    });
    assert!(matches!(older, Some(Err(GroupError::OldHead { .. }))), "{older:?}");
}

/// H3: who was followed by another head is refused.
pub fn an_older_head_is_refused() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let newer = cluster.at_head(1, |access| async move { write(&access, 2, 3, 7).await });
    newer.expect("it is up").expect("it is written");
    let older = cluster.at_head(2, |access| async move { write(&access, 1, 3, 8).await });
    let refusal = GroupError::OldHead { volume: VOLUME, asked: VolumeEpoch(1), seen: VolumeEpoch(2) };
    assert_eq!(older.expect("it is up"), Err(refusal));
    assert_eq!(cluster.read(0, 1).expect("it is up").ok(), None, "nor is one on the primary's own node let in");
}

/// H2: the next primary knows by its log which head is the newest.
pub fn a_raise_outlives_its_primary() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let newer = cluster.at_head(1, |access| async move { access.tell(stamp(2, &layers())).await });
    newer.expect("it is up").expect("it is raised");
    cluster.crash(0);
    cluster.wait_for_primary(&[1, 2], SOON);
    let older = cluster.at_head(2, |access| async move { write(&access, 1, 3, 8).await });
    assert!(matches!(older, Some(Err(GroupError::OldHead { .. }))), "{older:?}");
}

/// H2: what an older head got prepared is decided before a newer one reads.
pub fn a_new_head_reads_what_is_decided() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let first = cluster.at_head(0, |access| async move { write(&access, 1, 3, 7).await });
    first.expect("it is up").expect("it is written");
    [1, 2].into_iter().for_each(|other| cluster.cut(0, other));
    cluster.submit(0, 1, 3, 8).expect("it is up").expect("it has a place");
    let found = cluster.at_head(0, |access| async move {
        runtime::timeout(300 * MILLISECOND, read(&access, 2, BlockRange::new(3, 1))).await.ok()
    });
    assert_eq!(found.expect("it is up"), None, "the raise is not committed, and neither is what was before it");
    let zeroed = cluster.at_head(0, |access| async move {
        let (layers, blocks) = (layers(), BlockRange::new(0, 256));
        let zero = access.zero(stamp(2, &layers), &[LAYER], ChunkId(9), blocks);
        runtime::timeout(300 * MILLISECOND, zero).await.is_ok()
    });
    assert_eq!(zeroed, Some(false), "nor is it known that there is nothing to zero");
    [1, 2].into_iter().for_each(|other| cluster.heal(0, other));
    let found = cluster.at_head(0, |access| async move { read(&access, 2, BlockRange::new(3, 1)).await });
    assert_eq!(found.expect("it is up"), Ok(vec![8]));
}

/// H5: a request that waits at the primary when the same is asked again gets no place any more.
pub fn what_is_asked_again_is_not_done_twice() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let known = cluster.at_head(1, |access| async move { write(&access, 1, 3, 7).await });
    known.expect("it is up").expect("it is written");
    let committed = |cluster: &Cluster| cluster.standing(0).expect("it is up").committed;
    let before = committed(&cluster);
    [1, 2].into_iter().for_each(|other| cluster.disks[other].set_delay(300 * MILLISECOND));
    // As much as may be on its way: nothing else gets a place before that is committed.
    let on_their_way = cluster.ask(0, |group| async move {
        let range = BlockRange::new(16, 16);
        let count = replication::PREPARED_BYTES_MAX / range.bytes();
        for _ in 0..count {
            let place = Place { layer: LAYER, chunk: CHUNK, range };
            let bytes = IoBuf::zeroed(range.bytes()).freeze();
            group.write(stamp(1, &[]), place, bytes, BlockCoding::PLAIN).await.expect("there is room");
        }
        count as u64
    });
    let written: Arc<OnceLock<Result<(), GroupError>>> = Arc::default();
    let slot = written.clone();
    let begun = cluster.at_head(1, |access| async move {
        let first = access.clone();
        let asked = runtime::spawn(async move { drop(write_once(&first, 1, 3, 8).await) });
        // It has come, and whoever asked waits no more, as if its answer were lost.
        runtime::sleep(20 * MILLISECOND).await;
        asked.cancel();
        runtime::spawn(async move {
            access.ask_again(GroupError::Unknown { group: access.id() }).await.expect("it may be asked again");
            slot.set(write(&access, 1, 3, 8).await).expect("it ends once");
        });
    });
    begun.expect("it is up");
    cluster.world.run_for(100 * MILLISECOND);
    assert_eq!(written.get(), None, "it waits for its place");
    [1, 2].into_iter().for_each(|other| cluster.disks[other].set_delay(Duration::ZERO));
    cluster.wait_until("it is not written", SOON, |_| written.get().is_some());
    assert_eq!(written.get(), Some(&Ok(())));
    cluster.world.run_for(SOON / 5);
    let entries = committed(&cluster).0 - before.0;
    assert_eq!(entries, on_their_way.expect("it is up") + 1, "one entry for what was asked, however often");
}

/// H10: a group takes nothing of a chunk that another one holds, whichever table the head goes by.
pub fn what_is_of_another_group_is_refused() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let refused = cluster.at_head(1, |access| async move {
        let layers = [layer_record(OTHER_LAYER, OTHER_FAMILY)];
        let place = Place { layer: OTHER_LAYER, chunk: CHUNK, range: BlockRange::new(0, 1) };
        let mut change = access.write(stamp(1, &layers), place, block_of(1), BlockCoding::PLAIN).await?;
        access.wait(&mut change).await.map(drop)
    });
    let refused = refused.expect("it is up");
    assert!(matches!(refused, Err(GroupError::NotHeld { .. })), "{refused:?}");
}

/// H10: what relies on an epoch of the group that is over is not done, and it is said who leads in which.
pub fn what_was_meant_for_an_earlier_epoch_is_refused() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let known = cluster.at_head(1, |access| async move { write(&access, 1, 3, 7).await });
    known.expect("it is up").expect("it is written");
    // Node 1 hears of the map no more, and another member goes: the group's epoch is another then.
    cluster.map.set_cut_off(NodeId(2), true);
    cluster.crash(2);
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync.len() == 2);
    let first = cluster.at_head(1, |access| async move { write_once(&access, 1, 3, 8).await });
    let refusal = GroupError::NotPrimary { group: GROUP, primary: Some(store_of(0)) };
    assert_eq!(first.expect("it is up"), Err(refusal));
    let again = cluster.at_head(1, |access| async move { write(&access, 1, 3, 9).await });
    again.expect("it is up").expect("by now it knows better");
}

/// H10: whom a head takes for the primary is asked, and says whether it is.
pub fn who_leads_no_more_reads_nothing_for_a_head_that_asks() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let first = cluster.at_head(0, |access| async move { write(&access, 1, 3, 7).await });
    first.expect("it is up").expect("it is written");
    cluster.map.set_cut_off(NodeId(1), true);
    [1, 2].into_iter().for_each(|other| {
        cluster.cut(0, other);
        cluster.cut(other, 0);
    });
    cluster.wait_for_primary(&[1, 2], SOON);
    let second = cluster.at_head(1, |access| async move { write(&access, 1, 3, 8).await });
    second.expect("it is up").expect("it is written");
    let found = cluster.at_head(0, |access| async move {
        runtime::timeout(300 * MILLISECOND, read(&access, 1, BlockRange::new(3, 1))).await.ok()
    });
    assert!(!matches!(found, Some(Some(Ok(_)))), "it reads {found:?} of a member that leads no more");
}

/// H13: whoever holds something of a layer knows those below it, each with its parent: also the next primary, by its log.
pub fn what_lies_below_a_layer_is_known_where_it_is() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let of_chain =
        |layer: u64, parent: u64| LayerRecord { parent: LayerId(parent), ..layer_record(LayerId(layer), FamilyId(3)) };
    let chain = [of_chain(101, 0), of_chain(102, 101), of_chain(103, 102)];
    let told = chain;
    let written = cluster.at_head(1, move |access| async move {
        let place = Place { layer: LayerId(103), ..place(3) };
        let mut change =
            access.write(Stamp::new(VOLUME, VolumeEpoch(1), &told), place, block_of(7), BlockCoding::PLAIN).await?;
        access.wait(&mut change).await.map(drop)
    });
    written.expect("it is up").expect("it is written");
    cluster.world.run_for(500 * MILLISECOND);
    let is_known = |index: usize| {
        let known = cluster.of_shards(index, move |shard| chain.map(|record| shard.layer(record.layer)));
        assert!(known.contains(&chain.map(Some)), "node {index} knows {known:?}");
    };
    (0..3).for_each(is_known);
    cluster.crash(0);
    cluster.start(0);
    cluster.world.run_for(1000 * MILLISECOND);
    cluster.wait_for_all(SOON);
    (0..3).for_each(is_known);
}

/// Two keepers of one family, the earlier of which has not heard that it is none any more: it ends nothing.
pub fn an_older_keeper_is_refused() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let written = cluster.at_head(1, |access| async move { write(&access, 1, 3, 7).await });
    written.expect("it is up").expect("it is written");
    let keeper = |epoch| Stamp::of_keeper(FamilyId(3), VolumeEpoch(epoch));
    let newer = cluster.at_head(1, move |access| async move {
        let nothing = LayerEnd { layer: LayerId(77), into: None, hides_below: false };
        access.end_layer(keeper(2), &[], nothing).await
    });
    assert_eq!(newer, Some(Ok(())), "of a layer that it does not hold nothing is left");
    let end = LayerEnd { layer: LAYER, into: None, hides_below: false };
    let seen_by = |asked: Option<Result<(), GroupError>>| {
        let (asked, volume) = (asked.expect("it is up"), VolumeId::of_keeper(FamilyId(3)));
        assert_eq!(asked, Err(GroupError::OldHead { volume, asked: VolumeEpoch(1), seen: VolumeEpoch(2) }));
    };
    seen_by(cluster.at_head(2, move |access| async move { access.end_layer(keeper(1), &[], end).await }));
    seen_by(cluster.at_head(2, move |access| async move { access.forget_layer(keeper(1), LAYER).await }));
    seen_by(cluster.ask(0, move |group| async move { group.end_layer(keeper(1), &[], end).await }));
    // The next primary knows it by its log.
    cluster.crash(0);
    cluster.wait_for_primary(&[1, 2], SOON);
    seen_by(cluster.at_head(2, move |access| async move {
        loop {
            match access.end_layer(keeper(1), &[], end).await {
                Err(error @ GroupError::OldHead { .. }) => return Err(error),
                Err(error) => access.ask_again(error).await?,
                Ok(()) => return Ok(()),
            }
        }
    }));
    let found = cluster.at_head(1, |access| async move { read(&access, 1, BlockRange::new(3, 1)).await });
    assert_eq!(found, Some(Ok(vec![7])), "what it holds of the layer is there");
}

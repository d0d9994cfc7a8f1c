//! What is damaged comes from others, what was lost is missed until it is here again, and what is left behind goes.

use super::common::{Cluster, LAYER, OTHER, SOON, store_of, three};
use super::rules::{MANY_WRITES, MILLISECOND, SECOND, assert_alike, two_of_three};
use replication::GroupError;
use std::time::Duration;
use types::{BLOCK_BYTES, ChunkId, FamilyId, LayerId};

/// R15: a member is not made whole from a block that is damaged, neither with what lies there nor without it.
pub fn nobody_is_made_whole_from_a_damaged_copy() {
    // Whoever looks for damage finds one of them first, the others are found on the way to the member.
    for chunk in 0..4 {
        let cluster = two_of_three();
        for chunk in 0..4 {
            cluster.write(0, u32::from(chunk), 0xc0 + chunk).expect("it is up").expect("it is written");
        }
        cluster.disks[0].rot_sector(&[0xc0 + chunk; 32]).expect("it is on the disk");
        cluster.start(2);
        let is_back = |cluster: &Cluster| cluster.record().in_sync.contains(&store_of(2));
        cluster.wait_until("it does not come back", 6 * SOON, is_back);
        cluster.world.run_for(100 * MILLISECOND);
        assert_alike(&cluster, 1, 2);
        cluster.wait_for_all(6 * SOON);
    }
}

/// R15: what a member is brought is read back before it counts: it may rot on the way to the disk.
pub fn what_rots_as_it_comes_is_brought_again() {
    let cluster = two_of_three();
    for chunk in 0..4 {
        cluster.write(0, u32::from(chunk), 0xc0 + chunk).expect("it is up").expect("it is written");
    }
    cluster.start(2);
    let end = cluster.world.now() + 6 * SOON;
    while cluster.disks[2].rot_sector(&[0xc2; 32]).is_none() {
        assert!(cluster.world.now() < end, "nothing comes");
        cluster.world.run_for(Duration::from_micros(50));
    }
    let is_in_sync = |cluster: &Cluster| cluster.record().in_sync.contains(&store_of(2));
    assert!(!is_in_sync(&cluster), "it counts before its disk has all of it");
    cluster.wait_until("it does not come back", 6 * SOON, is_in_sync);
    // Everything is read several times in so long.
    for _ in 0..50 {
        cluster.world.run_for(200 * MILLISECOND);
        assert!(is_in_sync(&cluster), "it counted with what is damaged");
    }
    assert_alike(&cluster, 1, 2);
}

/// R15: a primary that finds damage gives the group up; whoever follows it mends that.
pub fn a_damaged_block_is_read_from_another_member_and_mended() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    for chunk in 0..4 {
        cluster.write(0, chunk, 0xb0 + chunk as u8).expect("it is up").expect("it is written");
    }
    cluster.world.run_for(100 * MILLISECOND);
    cluster.disks[0].rot_sector(&[0xb2; 32]).expect("it is on the disk");
    assert!(matches!(cluster.read(0, 2).expect("it is up"), Err(GroupError::NotPrimary { .. })));
    let primary = cluster.wait_for_primary(&[1, 2], SOON);
    assert_eq!(cluster.read(primary, 2).expect("it is up"), Ok(0xb2));
    cluster.world.run_for(1000 * MILLISECOND);
    cluster.wait_for_all(SOON);
    assert!(cluster.standing(0).is_some_and(|standing| standing.whole));
    // What it has of it now is good.
    cluster.crash(1);
    cluster.crash(2);
    cluster.start(if primary == 1 { 2 } else { 1 });
    let primary = cluster.wait_for_primary(&[0, 3 - primary], 3 * SOON);
    assert_eq!(cluster.read(primary, 2).expect("it is up"), Ok(0xb2));
}

/// R15: of two reads that meet damage at once the first has the group given up; the other is told to ask whoever follows, too.
pub fn two_reads_that_meet_damage_at_once_are_done_elsewhere() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    for chunk in 0..4 {
        cluster.write(0, chunk, 0xb0 + chunk as u8).expect("it is up").expect("it is written");
    }
    cluster.world.run_for(100 * MILLISECOND);
    for chunk in [1, 2] {
        cluster.disks[0].rot_sector(&[0xb0 + chunk; 32]).expect("it is on the disk");
    }
    for said in cluster.read_both(0, [1, 2]).expect("it is up") {
        assert!(matches!(said, Err(GroupError::NotPrimary { .. })), "{said:?}");
    }
    let primary = cluster.wait_for_primary(&[1, 2], SOON);
    for chunk in [1, 2] {
        assert_eq!(cluster.read(primary, chunk).expect("it is up"), Ok(0xb0 + chunk as u8));
    }
    cluster.wait_for_all(2 * SOON);
}

/// R15: what nobody reads is looked at as well; the member gets the chunk from its primary, and is well from then on.
pub fn a_damaged_block_that_nobody_reads_is_found_and_mended() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    for chunk in 0..4 {
        cluster.write(0, chunk, 0xc0 + chunk as u8).expect("it is up").expect("it is written");
    }
    cluster.world.run_for(100 * MILLISECOND);
    cluster.disks[2].rot_sector(&[0xc1; 32]).expect("it is on the disk");
    let is_in_sync = |cluster: &Cluster| cluster.record().in_sync.contains(&store_of(2));
    cluster.wait_until("nobody finds it", 3 * SOON, |cluster| !is_in_sync(cluster));
    cluster.wait_for_all(SOON);
    // Everything is read several times in so long.
    for _ in 0..100 {
        cluster.world.run_for(200 * MILLISECOND);
        assert!(is_in_sync(&cluster), "it is damaged still");
    }
}

/// A member holds something else in place of an entry, and its device says that it is good: it is compared with its primary.
pub fn a_copy_that_differs_is_found_and_mended() {
    let written = |byte| {
        let cluster = three();
        cluster.wait_for_primary(&[0], SOON);
        for chunk in 0..4 {
            let byte = if chunk == 2 { byte } else { chunk as u8 };
            cluster.write(0, chunk, byte).expect("it is up").expect("it is written");
        }
        cluster.world.run_for(500 * MILLISECOND);
        cluster
    };
    let (cluster, other) = (written(0xd0), written(0xd1));
    cluster.crash(2);
    cluster.disks[2].insert(&other.disks[2].after_power_loss(1));
    cluster.start(2);
    cluster.world.run_for(1000 * MILLISECOND);
    cluster.wait_for_all(SOON);
    let is_alike = |cluster: &Cluster| cluster.standing(2).is_some() && cluster.digests(0) == cluster.digests(2);
    assert!(!is_alike(&cluster), "it was given another past");
    cluster.wait_until("nobody compares", 3 * SOON, is_alike);
    cluster.wait_for_all(SOON);
}

/// R15: two members are damaged, each elsewhere: what one lacks the other has.
pub fn damage_of_two_members_in_different_places_is_mended() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    for chunk in 0..4 {
        cluster.write(0, chunk, 0xe0 + chunk as u8).expect("it is up").expect("it is written");
    }
    cluster.world.run_for(100 * MILLISECOND);
    cluster.crash(2);
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync.len() == 2);
    cluster.disks[0].rot_sector(&[0xe1; 32]).expect("it is on the disk");
    cluster.disks[1].rot_sector(&[0xe2; 32]).expect("it is on the disk");
    // Both find theirs, one after the other.
    cluster.world.run_for(SOON);
    let primary = cluster.wait_for_primary(&[0, 1], 3 * SOON);
    for chunk in 0..4 {
        let read = cluster.read(primary, chunk).expect("it is up");
        let may_wait = matches!(read, Err(GroupError::NotPrimary { .. }));
        assert!(may_wait || read == Ok(0xe0 + chunk as u8), "chunk {chunk}: {read:?}");
    }
    cluster.wait_until("it waits for ever", 6 * SOON, |cluster| cluster.record().in_sync.len() == 2);
    cluster.start(2);
    cluster.wait_for_all(6 * SOON);
    cluster.world.run_for(1000 * MILLISECOND);
    let primary = cluster.wait_for_primary(&[0, 1, 2], SOON);
    for chunk in 0..4 {
        assert_eq!(cluster.read(primary, chunk).expect("it is up"), Ok(0xe0 + chunk as u8), "chunk {chunk}");
    }
}

/// R15: damage is met through a layer above that has nothing there: the chunk is mended all the same.
pub fn damage_that_is_met_through_another_layer_is_mended() {
    const LAYERS: &[LayerId] = &[LayerId(90), LAYER];
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    for chunk in 0..4 {
        cluster.write(0, chunk, 0xb0 + chunk as u8).expect("it is up").expect("it is written");
    }
    cluster.world.run_for(100 * MILLISECOND);
    cluster.disks[0].rot_sector(&[0xb2; 32]).expect("it is on the disk");
    assert!(matches!(cluster.read_of(0, LAYERS, 2).expect("it is up"), Err(GroupError::NotPrimary { .. })));
    let primary = cluster.wait_for_primary(&[1, 2], SOON);
    assert_eq!(cluster.read_of(primary, LAYERS, 2).expect("it is up"), Ok(0xb2));
    cluster.wait_for_all(SOON);
    // Everything is read several times in so long.
    for _ in 0..100 {
        cluster.world.run_for(200 * MILLISECOND);
        assert_eq!(cluster.record().in_sync.len(), 3, "it is damaged still");
    }
}

/// Node 2 is down, and of what it holds a record is damaged that later ones about the same chunk are not.
fn with_a_lost_record() -> Cluster {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    // What lies before the record is written over later, and the last ones tell that those before them are committed.
    let writes = [(5, 0, 0xa0), (6, 0, 0xaf), (5, 0, 0xa1), (5, 2, 0xa2), (6, 0, 0xa3), (6, 1, 0xa4)];
    for (chunk, block, byte) in writes {
        cluster.write_blocks(0, chunk, block, 1, byte).expect("it is up").expect("it is written");
        cluster.world.run_for(100 * MILLISECOND);
    }
    cluster.crash(2);
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync.len() == 2);
    let block = cluster.disks[2].rot_sector(&[0xa1; 32]).expect("it is on the disk") / BLOCK_BYTES as u64;
    for _ in 0..100 {
        // What says what the block is lies before it.
        cluster.disks[2].rot_within((block - 1) * BLOCK_BYTES as u64..block * BLOCK_BYTES as u64);
    }
    cluster
}

/// R15: a record of a member's log is damaged, and later ones about the same chunks are not: what it held is missed, whatever
/// the last entry of those chunks is.
pub fn what_is_lost_between_others_is_brought_again() {
    let cluster = with_a_lost_record();
    cluster.start(2);
    cluster.wait_for_all(6 * SOON);
    cluster.world.run_for(100 * MILLISECOND);
    assert_alike(&cluster, 0, 2);
}

/// What the disks of a cluster write at once.
const SECTOR_BYTES: u64 = 512;

/// R11: of what a member has lost is the entry with which an epoch began, and it knows those behind it: by its log they are of
/// the epoch before, which is no proof that another led. It is made whole, also if it ends in between.
pub fn who_has_lost_the_beginning_of_an_epoch_is_made_whole() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    cluster.write(0, 5, 0xa0).expect("it is up").expect("it is written");
    cluster.crash(1);
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync.len() == 2);
    cluster.world.run_for(SECOND);
    for byte in [0xa1, 0xa2, 0xa3] {
        // The next one tells that it is committed.
        cluster.write(0, 5, byte).expect("it is up").expect("it is written");
        cluster.world.run_for(100 * MILLISECOND);
    }
    cluster.crash(2);
    // What was written first and second is written over; between the two lies the record with which the epoch began.
    let disk = &cluster.disks[2];
    let sectors_of = |byte| (0..100).filter_map(move |_| disk.rot_sector(&[byte; 32])).map(|at| at / SECTOR_BYTES);
    let last = sectors_of(0xa0).max().expect("it is on the disk");
    let next = sectors_of(0xa1).min().expect("it is on the disk");
    for _ in 0..100 {
        disk.rot_within((last + 1) * SECTOR_BYTES..next * SECTOR_BYTES);
    }
    cluster.start(1);
    cluster.wait_until("it is not made whole", 6 * SOON, |cluster| cluster.record().in_sync.contains(&store_of(1)));
    for _ in 0..3 {
        cluster.start(2);
        cluster.world.run_for(150 * MILLISECOND);
        cluster.crash(2);
    }
    cluster.start(2);
    let is_whole = |cluster: &Cluster| cluster.standing(2).is_some_and(|standing| standing.whole);
    cluster.wait_until("it does not become whole", 6 * SOON, is_whole);
    cluster.wait_for_all(6 * SOON);
    cluster.world.run_for(100 * MILLISECOND);
    assert_alike(&cluster, 0, 2);
}

/// Whether a node that starts, and hears nobody, knows that it lacks something; then it hears them.
fn knows_that_it_lacks(cluster: &Cluster, index: usize) -> bool {
    let others: Vec<_> = (0..3).filter(|other| *other != index).collect();
    others.iter().for_each(|other| {
        cluster.cut(*other, index);
        cluster.cut(index, *other);
    });
    cluster.start(index);
    cluster.world.run_for(SECOND);
    let standing = cluster.standing(index).expect("the map says that it is a member");
    others.iter().for_each(|other| {
        cluster.heal(*other, index);
        cluster.heal(index, *other);
    });
    !standing.whole
}

/// R23: damage is over when what was lost has come from another member, and not before: what is damaged is found again at the
/// next start until then.
pub fn damage_is_over_when_all_is_whole_again() {
    let lacks = |cluster: &Cluster| cluster.of_shards(2, store::Shard::has_losses).contains(&true);
    let cluster = with_a_lost_record();
    for other in [0, 1] {
        cluster.cut(other, 2);
        cluster.cut(2, other);
    }
    cluster.start(2);
    cluster.world.run_for(30 * SECOND);
    cluster.crash(2);
    assert!(knows_that_it_lacks(&cluster, 2), "what is damaged is taken for whole");
    cluster.wait_for_all(6 * SOON);
    cluster.wait_until("it is never over", 30 * SECOND, |cluster| !lacks(cluster));
    assert_alike(&cluster, 0, 2);
    cluster.world.run_for(SECOND);
    cluster.crash(2);
    assert!(!knows_that_it_lacks(&cluster, 2), "it was over");
    assert!(!lacks(&cluster), "it was over");
    cluster.wait_for_all(SOON);
    cluster.world.run_for(SECOND);
    assert_alike(&cluster, 0, 2);
}

/// R22: what a store holds of a group that it has left is dropped, when all members of the group have everything; should it come
/// back, it is made whole.
pub fn what_a_store_has_left_behind_is_dropped() {
    let holds = |cluster: &Cluster| cluster.of_shards(2, |shard| shard.store().usage().live_bytes > 0).contains(&true);
    let cluster = Cluster::new(1, 3, 1);
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    (0..4).for_each(|chunk| cluster.write_blocks(0, chunk, 0, 6, 7).expect("it is up").expect("it is written"));
    cluster.world.run_for(SECOND);
    cluster.crash(1);
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync.len() == 2);
    cluster.put(&cluster.record().without_member(store_of(2)).expect("it can be taken out"));
    cluster.world.run_for(30 * SECOND);
    assert!(holds(&cluster), "one of two members is not there");
    cluster.start(1);
    cluster.wait_until("it does not come back", 6 * SOON, |cluster| cluster.record().in_sync.len() == 2);
    cluster.wait_until("it is kept", 30 * SECOND, |cluster| !holds(cluster));
    cluster.world.run_for(SECOND);
    // It knows that it lacks all of it, also in its next life.
    cluster.crash(2);
    cluster.put(&cluster.record().with_joining(store_of(2)).expect("it can come back"));
    assert!(knows_that_it_lacks(&cluster, 2), "it dropped all of it");
    cluster.wait_for_all(6 * SOON);
    cluster.world.run_for(100 * MILLISECOND);
    assert_alike(&cluster, 0, 2);
    // And while it is there: though little has changed since it left.
    cluster.put(&cluster.record().without_member(store_of(2)).expect("it can be taken out"));
    cluster.wait_until("it is kept", 60 * SECOND, |cluster| !holds(cluster));
    cluster.write_blocks(0, 1, 7, 1, 8).expect("it is up").expect("it is written");
    cluster.put(&cluster.record().with_joining(store_of(2)).expect("it can come back"));
    cluster.wait_for_all(6 * SOON);
    cluster.world.run_for(100 * MILLISECOND);
    assert_alike(&cluster, 0, 2);
}

/// R22: what is left of a family that has ended keeps nobody from being made whole; nor is it dropped: the map may be an older one.
pub fn what_is_nobodys_stands_in_nobodys_way() {
    let holds = |cluster: &Cluster| cluster.of_shards(2, |shard| shard.holds(LAYER, ChunkId(1))).contains(&true);
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_other_group(2);
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.world.run_for(SECOND);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    cluster.tell_other_layer(0).expect("it is up").expect("it has a place");
    (0..4).for_each(|chunk| cluster.write(0, chunk, 7).expect("it is up").expect("it is written"));
    cluster.world.run_for(200 * MILLISECOND);
    cluster.crash(2);
    for round in 0..MANY_WRITES {
        cluster.write_other(0, round % 60, round % 40, round as u8).expect("it is up").expect("it is written");
    }
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record_of(OTHER).in_sync.len() == 2);
    cluster.unheard.set(Some(FamilyId(3)));
    cluster.start(2);
    cluster.wait_until("it waits for ever", 60 * SECOND, |cluster| cluster.record_of(OTHER).in_sync.len() == 3);
    assert!(holds(&cluster), "it is nobody's, as far as this map says");
    // Nor where it lies with who makes others whole, in the chunks that these lack.
    (0..3).for_each(|index| cluster.crash(index));
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_until("all are whole", 60 * SECOND, |cluster| cluster.record_of(OTHER).in_sync.len() == 3);
    cluster.crash(2);
    let leads = |cluster: &Cluster| {
        (0..2).find(|index| cluster.write_other(*index, 1, 1, 9).is_some_and(|written| written.is_ok()))
    };
    cluster.wait_until("somebody leads", 60 * SECOND, |cluster| leads(cluster).is_some());
    let leader = leads(&cluster).expect("it led a moment ago");
    for round in 0..MANY_WRITES {
        let written = cluster.write_other(leader, round % 60, round % 40, round as u8);
        written.expect("it is up").expect("it is written");
    }
    cluster.start(2);
    cluster.wait_until("it waits for ever", 60 * SECOND, |cluster| cluster.record_of(OTHER).in_sync.len() == 3);
}

//! R17: members that are full.

use super::common::{Cluster, GROUP, MIB, SOON, store_of};
use replication::GroupError;
use std::ops::Range;
use std::time::Duration;
use types::BLOCKS_PER_CHUNK;

/// Blocks of one write.
const PIECE_BLOCKS: u32 = 32;
/// Chunks of one deletion.
const DELETED: u32 = 16;

/// Three members, of which the second has a smaller device.
fn one_is_smaller() -> Cluster {
    Cluster::with_disks(1, &[512 * MIB, 256 * MIB, 512 * MIB], 2)
}

/// Writes these chunks from end to end, until that is refused. Returns the first that was not written in full, and why.
fn fill(cluster: &Cluster, chunks: impl IntoIterator<Item = u32>) -> Option<(u32, GroupError)> {
    chunks.into_iter().find_map(|chunk| {
        let write = |first| cluster.write_blocks(0, chunk, first, PIECE_BLOCKS, 9).expect("it is up");
        let refused = (0..BLOCKS_PER_CHUNK).step_by(PIECE_BLOCKS as usize).find_map(|first| write(first).err());
        cluster.world.run_for(Duration::from_millis(50));
        refused.map(|error| (chunk, error))
    })
}

/// New blocks are refused, and the member stays.
pub fn a_full_member_is_not_written_to() {
    let cluster = one_is_smaller();
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    let (_, refused) = fill(&cluster, 0..400).expect("it is full some day");
    assert_eq!(refused, GroupError::MemberFull { group: GROUP, store: store_of(1) });
    let first = cluster.write(0, 0, 10).expect("it is up");
    first.expect("what is there already may be written over");
    cluster.world.run_for(5 * SOON / 10);
    assert_eq!(cluster.record().in_sync.len(), 3, "it was not asked to take what it cannot");
}

/// What is kept for overwrites is not used up before primaries know that a member is full: it says so at once.
pub fn a_full_member_says_so_at_once() {
    let cluster = one_is_smaller();
    (0..3).for_each(|index| cluster.start(index));
    gets_full_again_and_again(&cluster, 1, |since| {
        let late = cluster.world.now() - since;
        assert!(late < Duration::from_millis(30), "others know only after {late:?}");
    });
}

/// A primary that says so at once does not lose what it was granted.
pub fn who_says_that_it_is_full_leads_on() {
    let cluster = Cluster::with_disks(1, &[256 * MIB, 512 * MIB, 512 * MIB], 2);
    (0..3).for_each(|index| cluster.start(index));
    gets_full_again_and_again(&cluster, 0, |_| {
        for _ in 0..100 {
            cluster.world.run_for(Duration::from_millis(3));
            assert!(cluster.standing(0).is_some_and(|standing| standing.serves), "it would not serve a read");
        }
    });
}

/// The store of this node is filled several times, by writes at the first; `refused` hears each time since when it was full.
fn gets_full_again_and_again(cluster: &Cluster, small: usize, refused: impl Fn(Duration)) {
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    let (mut last, _) = fill(cluster, 0..400).expect("it is full some day");
    let is_full = || cluster.of_shards(small, |shard| !shard.store().takes_new_blocks(0)).contains(&true);
    for _ in 0..6 {
        delete_all(last - DELETED..last, |chunks| cluster.delete(0, chunks));
        cluster.wait_until("there is room again", SOON, |_| !is_full());
        cluster.world.run_for(SOON / 10);
        let mut since = None;
        let pieces = |chunk| (0..BLOCKS_PER_CHUNK).step_by(PIECE_BLOCKS as usize).map(move |first| (chunk, first));
        for (chunk, first) in (last - DELETED..).flat_map(pieces) {
            last = chunk;
            if cluster.write_blocks(0, chunk, first, PIECE_BLOCKS, 9).expect("it is up").is_err() {
                break;
            }
            cluster.world.run_for(Duration::from_millis(1));
            since = since.or(is_full().then(|| cluster.world.now()));
        }
        refused(since.unwrap_or_else(|| cluster.world.now()));
    }
}

/// While a full member was away half of what it has was deleted, and as much was written elsewhere: there is room for all of it,
/// once what is gone has been given back.
pub fn a_full_member_that_was_away_first_gives_back() {
    let cluster = one_is_smaller();
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    let first = 1000;
    let (last, _) = fill(&cluster, first..first + 400).expect("it is full some day");
    cluster.crash(1);
    cluster.wait_until("it is taken out", SOON, |cluster| cluster.record().in_sync.len() == 2);
    let half = (last - first) / 2;
    delete_all(first + half..last, |chunks| cluster.delete(0, chunks));
    // Of lower numbers than all that is there.
    assert_eq!(fill(&cluster, 0..half - 5), None, "the others have room");
    cluster.start(1);
    comes_back(&cluster);
}

/// Fills the second member; then writes what it has no room for, while it counts for nothing and is sent every entry. Until it takes
/// no more; then it is as fast as the others again.
fn overfill(cluster: &Cluster) {
    fill(cluster, 0..400).expect("it is full some day");
    cluster.disks[1].set_delay(Duration::from_millis(2500));
    cluster.wait_until("it is taken out", SOON, |cluster| {
        cluster.submit(0, 0, 3, 11).expect("it is up").expect("what is there already may be written over");
        cluster.record().in_sync.len() == 2
    });
    let mut chunks = 1000..1200;
    let durable = || cluster.standing(1).expect("it is up").durable;
    let (mut before, mut stands) = (durable(), 0);
    // An append or two take as long as the wait; three waits are longer than any.
    while stands < 3 {
        let chunk = chunks.next().expect("it is full some day");
        assert_eq!(fill(cluster, [chunk]), None, "the others have room");
        cluster.world.run_for(Duration::from_secs(6));
        stands = if durable() == before { stands + 1 } else { 0 };
        before = durable();
    }
    assert_eq!(cluster.record().in_sync.len(), 2);
    cluster.disks[1].set_delay(Duration::ZERO);
}

/// Deletes chunks of a group.
fn delete_all(chunks: Range<u32>, delete: impl Fn(Range<u32>) -> Option<Result<(), GroupError>>) {
    for chunk in chunks.clone().step_by(DELETED as usize) {
        delete(chunk..chunks.end.min(chunk + DELETED)).expect("it is up").expect("they are deleted");
    }
}

/// The second member is whole some day, and has what the first has.
fn comes_back(cluster: &Cluster) {
    cluster.wait_for_all(3 * SOON);
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(cluster.digests(0), cluster.digests(1));
}

/// A full member lacks the room for an entry of one group; behind it come those of another, which give back what it holds.
pub fn what_gives_back_passes_what_finds_no_room() {
    let cluster = one_is_smaller();
    cluster.by_family.set(true);
    cluster.add_other_group(2);
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    cluster.tell_other_layer(0).expect("it is up").expect("it has a place");
    for chunk in 0..60 {
        cluster.fill_other(0, chunk).expect("it is up").expect("it is written");
    }
    overfill(&cluster);
    delete_all(0..60, |chunks| cluster.delete_other(0, chunks));
    comes_back(&cluster);
}

/// The same where they are of the same group, and have their places behind that entry.
pub fn what_gives_back_is_not_waited_for_behind_what_finds_no_room() {
    let cluster = one_is_smaller();
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    overfill(&cluster);
    delete_all(0..60, |chunks| cluster.delete(0, chunks));
    comes_back(&cluster);
}

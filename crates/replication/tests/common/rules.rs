//! What [rules](super) of docs/replication.md promise, each looked at where it shows at once: whole nodes, one fault.

use super::common::{
    CLUSTER, Cluster, GROUP, KEY, LAYER, OTHER, SOON, spare_of, store_of, three, was_written_down_as_whole,
};
#[cfg(feature = "mutants")]
use super::common::{block_of, stamp};
use cluster::WantedRecord;
#[cfg(feature = "mutants")]
use replication::Place;
use replication::obituary::{Next, Obituary};
use replication::wire::{ClusterKey, Dead, Envelope, Hello, NodeMessage, Protocol, Receiver, Said, encode_node};
use replication::{GroupError, Stamp, Standing};
use runtime::sim::NodeOptions;
use runtime::{IoBuf, TcpStream};
use std::time::Duration;
#[cfg(feature = "mutants")]
use store::BlockCoding;
use types::{BLOCK_BYTES, FamilyId, Incarnation, NodeId, VolumeEpoch, VolumeId};
#[cfg(feature = "mutants")]
use types::{BlockRange, ChunkId, Mutant};

pub const MILLISECOND: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);
/// More than is kept for who is away for a moment.
pub const MANY_WRITES: u32 = 1100;
/// More than one part of what a member skips to tells of.
const MANY_VOLUMES: u64 = 1100;

/// Member 2 is away while so much is written that no entry can bring it back; two are in sync.
pub fn two_of_three() -> Cluster {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    for chunk in 0..10 {
        cluster.write_blocks(0, chunk, 0, 32, chunk as u8 + 1).expect("it is up").expect("it is written");
    }
    cluster.crash(2);
    for round in 0..MANY_WRITES {
        cluster.write(0, 4 + round % 20, (round % 100) as u8).expect("it is up").expect("it is written");
    }
    let others = [store_of(0), store_of(1)];
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync == others);
    cluster
}

/// What a node says to who connects, says that it is node 9 of the cluster, shows such a proof, and asks whether it lives. `comes`: what
/// the node hears of what it speaks.
pub fn said_to(cluster: &Cluster, key: ClusterKey, (speaks, comes): (Protocol, Protocol)) -> Vec<NodeMessage> {
    let address = cluster.address(0);
    let node = cluster.world.add_node(1, NodeOptions::default());
    let talk = async move {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let hello = Hello { cluster: CLUSTER, node: NodeId(9), speaks, nonce: [1; 32], ..Hello::default() };
        let (mut said, mut come) = (Vec::new(), IoBuf::new(0));
        send(&stream, &[NodeMessage::Hello(Hello { speaks: comes, ..hello })]).await;
        while let Ok(Ok(more)) = runtime::timeout(5 * SECOND, stream.recv()).await
            && !more.is_empty()
        {
            let mut both = IoBuf::new(come.len() + more.len());
            both[..come.len()].copy_from_slice(&come);
            both[come.len()..].copy_from_slice(&more);
            come = both;
            let mut rest = IoBuf::copy_of(&come).freeze();
            said.clear();
            while let Some(frame) = Receiver::new().frame(&rest).expect("a node sends frames") {
                rest = rest.slice(frame.header.frame_bytes()..rest.len());
                let Said::Node(message) = frame.said else { panic!("{frame:?}") };
                said.push(message);
            }
            if let [NodeMessage::HelloAnswer(answer)] = said[..] {
                // Both at once, as a node may send them.
                let proof = key.opener(&hello, &answer);
                send(&stream, &[NodeMessage::HelloProof(proof), NodeMessage::Ping]).await;
            }
        }
        said
    };
    cluster.world.run_on(&node, 0, talk).expect("the world goes on")
}

async fn send(stream: &TcpStream, messages: &[NodeMessage]) {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| encode_node(&Envelope::default(), message, &mut bytes).expect("it is short"));
    stream.send(&mut vec![IoBuf::copy_of(&bytes).freeze()]).await.expect("it takes that");
}

/// Who does not know the cluster's key is told so, and nothing that it sends is looked at.
pub fn a_stranger_is_not_listened_to() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let speaks = (Protocol::of_this_build(), Protocol::of_this_build());
    let known = said_to(&cluster, KEY, speaks);
    assert!(matches!(known[..], [NodeMessage::HelloAnswer(_), NodeMessage::Pong, ..]), "{known:?}");
    let stranger = said_to(&cluster, ClusterKey([8; 32]), speaks);
    let [NodeMessage::HelloAnswer(_), NodeMessage::HelloRefused(refused)] = &stranger[..] else {
        panic!("{stranger:?}")
    };
    assert!(refused.reason.contains("does not know this cluster's key"), "{}", refused.reason);
}

/// The supervisor of node `of` tells node `to` that this life of its store is over, and hears that it has heard.
fn tell_of_death(cluster: &Cluster, to: usize, of: usize, life: Incarnation) {
    let (node_of, node_to) = (NodeId(of as u32 + 1), NodeId(to as u32 + 1));
    let address = cluster.address(to);
    let supervisor = cluster.world.add_node(1, NodeOptions::default());
    let dead = Dead { lives: vec![(store_of(of), life)] };
    let talk = async move {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (mut obituary, begin) = Obituary::new((CLUSTER, KEY), node_of, node_to, dead, [3; 32]);
        let mut next = Next::Send(begin);
        loop {
            next = match next {
                Next::Told => return,
                Next::Send(bytes) => {
                    stream.send(&mut vec![IoBuf::copy_of(&bytes).freeze()]).await.expect("it takes that");
                    Next::Wait
                }
                Next::Wait => {
                    let more = runtime::timeout(5 * SECOND, stream.recv()).await.expect("it answers");
                    obituary.hear(&more.expect("it answers")).expect("it understands")
                }
            };
        }
    };
    cluster.world.run_on(&supervisor, 0, talk).expect("the world goes on");
}

fn life_of_primary(cluster: &Cluster) -> Incarnation {
    cluster.record().life
}

/// R8: of a primary whose supervisor says that it is dead nobody waits for the end of its lease, and its earlier life is no
/// word about a later one.
pub fn a_death_that_is_told_is_not_waited_for() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 1, 7).expect("it is up").expect("it is written");
    cluster.world.run_for(300 * MILLISECOND);
    let life = life_of_primary(&cluster);
    cluster.crash(0);
    [1, 2].into_iter().for_each(|other| tell_of_death(&cluster, other, 0, life));
    // Those who wait for the end of a lease, and then for what a silent member may have, take twice as long.
    let primary = cluster.wait_for_primary(&[1, 2], 1200 * MILLISECOND);
    cluster.write(primary, 1, 8).expect("it is up").expect("it is written");
    assert_eq!(cluster.read(primary, 1).expect("it is up"), Ok(8));
    // Its next life is not dead, and is taken in again.
    cluster.start(0);
    cluster.wait_for_all(3 * SOON);
    assert!(life_of_primary(&cluster) != life || cluster.record().primary != store_of(0));
}

/// R8: a supervisor's word is about one life of a store: a later one, which leads and reads, is not dead by it. Here the word
/// comes late, and the primary cannot be heard.
pub fn a_word_about_an_earlier_life_is_not_believed_of_a_later_one() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let earlier = life_of_primary(&cluster);
    // Of all that begin anew it comes first.
    (0..3).for_each(|index| cluster.crash(index));
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], 2 * SOON);
    cluster.wait_for_all(3 * SOON);
    assert!(cluster.record().primary == store_of(0) && life_of_primary(&cluster) > earlier);
    cluster.write(0, 1, 7).expect("it is up").expect("it is written");
    cluster.world.run_for(300 * MILLISECOND);
    // Else it would hear from there that another leads.
    cluster.map.set_cut_off(NodeId(1), true);
    [1, 2].into_iter().for_each(|other| {
        cluster.cut(0, other);
        cluster.cut(other, 0);
    });
    [1, 2].into_iter().for_each(|other| tell_of_death(&cluster, other, 0, earlier));
    // Its lease lasts, and it reads by it: nobody else may serve meanwhile.
    for _ in 0..600 {
        cluster.world.run_for(5 * MILLISECOND);
        let serves = (0..3).filter(|index| cluster.standing(*index).is_some_and(|standing| standing.serves));
        assert!(serves.count() <= 1, "{:#?}", cluster.told());
    }
}

pub fn assert_alike(cluster: &Cluster, one: usize, other: usize) {
    assert_eq!(cluster.digests(one), cluster.digests(other), "members {one} and {other} hold the same");
}

/// R3: a write that no other member has is not read, although the primary has it and its lease lasts.
pub fn nothing_is_read_before_it_is_committed() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 1, 7).expect("it is up").expect("it is written");
    [1, 2].into_iter().for_each(|other| cluster.cut(0, other));
    cluster.submit(0, 1, 3, 8).expect("it is up").expect("it has a place");
    cluster.world.run_for(200 * MILLISECOND);
    assert_eq!(cluster.read(0, 1).expect("it is up"), Ok(7), "nobody else has the write");
    // It dies with the primary.
    cluster.crash(0);
    let primary = cluster.wait_for_primary(&[1, 2], SOON);
    assert_eq!(cluster.read(primary, 1).expect("it is up"), Ok(7));
}

/// R11: a map that was restored from an old backup stops the group, whose members know more.
pub fn a_map_that_went_back_stops_the_group() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let backup = cluster.map.backup();
    cluster.crash(2);
    cluster.write(0, 1, 7).expect("it is up").expect("it is written without it");
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync.len() == 2);
    cluster.map.restore(&backup);
    let why = |cluster: &Cluster, index| cluster.standing(index).and_then(|standing: Standing| standing.stopped);
    let stops = |cluster: &Cluster| (0..2).all(|index| why(cluster, index).is_some());
    cluster.wait_until("members go on by an older map", 3 * SOON, stops);
    for index in 0..2 {
        let why = why(&cluster, index).unwrap_or_default();
        assert!(why.contains("the map went back in time"), "{why}");
    }
    assert!(matches!(cluster.write(0, 1, 8), Some(Err(GroupError::Stopped { .. }))));
}

/// R18: a primary whose device takes seconds gives the group up.
pub fn a_slow_primary_hands_over() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.disks[0].set_delay(Duration::from_secs(5));
    cluster.submit(0, 1, 3, 7).expect("it is up").expect("it has a place");
    let primary = cluster.wait_for_primary(&[1, 2], SOON);
    cluster.write(primary, 1, 8).expect("it is up").expect("it is written");
    assert!(cluster.nodes[0].is_up(), "nothing else was wrong with it");
}

/// R18: where all are slow nobody is removed, for then nothing would be committed at all.
pub fn three_slow_members_stay() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.disks.iter().for_each(|disk| disk.set_delay(Duration::from_secs(4)));
    for round in 0..60 {
        if let Some(leader) = (0..3).find(|index| cluster.standing(*index).is_some_and(|standing| standing.leads)) {
            let _ = cluster.submit(leader, 1, 3, round);
        }
        cluster.world.run_for(500 * MILLISECOND);
        let record = cluster.record();
        assert!(record.in_sync.len() >= 2, "{record:?}");
    }
    cluster.disks.iter().for_each(|disk| disk.set_delay(Duration::ZERO));
    cluster.wait_for_all(3 * SOON);
}

/// R19: a primary on a core that hangs is followed by another, although its node answers.
pub fn a_hung_core_leads_no_longer() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 1, 7).expect("it is up").expect("it is written");
    cluster.nodes[0].pause_core(1);
    cluster.world.run_for(SOON / 2);
    // Who hangs is not asked.
    let serves = |index: &usize| cluster.standing(*index).is_some_and(|standing| standing.serves);
    let primary = [1, 2].into_iter().find(serves).expect("another leads");
    cluster.write(primary, 1, 8).expect("it is up").expect("it is written");
    cluster.nodes[0].resume_core(1);
    cluster.wait_for_all(SOON);
}

/// R8: a group has left a store for another one of the same node. What remains of it there knows nothing of who leads later, and
/// refuses that nothing.
pub fn what_remains_of_a_group_refuses_nothing() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_spare(2);
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 1, 7).expect("it is up").expect("it is written");
    let spare = spare_of(2);
    let (mut joins, stays) = (cluster.record(), [store_of(0), store_of(1), spare]);
    joins.epoch.0 += 1;
    joins.members.push(spare);
    joins.joining.push(spare);
    cluster.put(&joins);
    cluster.wait_until("it does not catch up", SOON, |cluster| cluster.record().in_sync.contains(&spare));
    let mut leaves = cluster.record();
    leaves.epoch.0 += 1;
    (leaves.in_sync, leaves.members) = (stays.to_vec(), stays.to_vec());
    cluster.put(&leaves);
    cluster.world.run_for(SECOND);
    // The second node leads, and later again, in another life.
    for index in [0, 1] {
        cluster.crash(index);
        cluster.wait_until("nobody else leads", SOON, |cluster| cluster.record().primary != store_of(index));
        cluster.start(index);
        cluster.wait_for_all(SOON);
    }
    cluster.put(&WantedRecord { group: GROUP, members: vec![store_of(1), store_of(0), spare] });
    let serves = |cluster: &Cluster| cluster.standing(1).is_some_and(|standing| standing.serves);
    cluster.wait_until("it does not lead", SOON, serves);
    let all = cluster.record();
    cluster.world.run_for(5 * SECOND);
    assert_eq!((all.in_sync.len(), cluster.record()), (3, all), "nobody is taken for stopped");
    assert_eq!(cluster.read(1, 1).expect("it is up"), Ok(7));
}

/// R15: who is made whole and crashes in between is not whole afterwards, at whatever moment that is.
pub fn who_crashes_while_it_is_made_whole_is_not_taken_for_whole() {
    let cluster = two_of_three();
    // So that it takes its time.
    cluster.disks[2].set_delay(5 * MILLISECOND);
    for attempt in 1.. {
        cluster.start(2);
        cluster.world.run_for((400 + attempt * 20) * MILLISECOND);
        if cluster.record().in_sync.len() == 3 {
            break;
        }
        assert!(attempt < 200, "it never comes back");
        cluster.crash(2);
    }
    cluster.world.run_for(1000 * MILLISECOND);
    assert_alike(&cluster, 0, 2);
}

/// R15: what is written down of a member besides, as what it has heard, does not say that it is whole when it is not: its device stands
/// still while it has both to write down, and it crashes at whatever moment after that.
pub fn who_has_heard_of_an_epoch_is_not_whole_by_that() {
    for crash_at in (2..6).map(|moment| moment * 50) {
        let cluster = two_of_three();
        let disk = &cluster.disks[2];
        cluster.start(2);
        // Both are written down half a second after it has begun.
        cluster.world.run_for(450 * MILLISECOND);
        disk.set_hanging(true);
        cluster.world.run_for(110 * MILLISECOND);
        disk.set_hanging(false);
        disk.set_delay(5 * MILLISECOND);
        cluster.world.run_for(crash_at * MILLISECOND);
        assert_eq!(cluster.record().in_sync.len(), 2, "it is not whole yet");
        cluster.crash(2);
        disk.set_delay(Duration::ZERO);
        cluster.start(2);
        cluster.world.run_for(100 * MILLISECOND);
        assert!(!was_written_down_as_whole(store_of(2)), "it crashed while it was made whole");
        cluster.wait_for_all(SOON);
        cluster.world.run_for(1000 * MILLISECOND);
        assert_alike(&cluster, 0, 2);
    }
}

/// R14: a group that has seen more heads than one part tells of makes its members whole.
pub fn who_comes_back_to_a_group_of_many_volumes_is_made_whole() {
    let cluster = two_of_three();
    let raised = cluster.at_head(0, |access| async move {
        for volume in 0..MANY_VOLUMES {
            let stamp = Stamp::new(VolumeId(1000 + volume), VolumeEpoch(1), &[]);
            access.tell(stamp).await.expect("it is raised");
        }
    });
    raised.expect("it is up");
    cluster.start(2);
    cluster.wait_for_all(10 * SOON);
    assert_alike(&cluster, 0, 2);
}

/// R14: a member comes back after more was written than anybody keeps for it; then it leads.
pub fn who_was_away_for_long_comes_back_chunk_by_chunk() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    for chunk in 0..10 {
        cluster.write(0, chunk, 7).expect("it is up").expect("it is written");
    }
    cluster.crash(2);
    // Far more than is kept for who is away for a moment; two chunks stay as they were, some are new.
    for round in 0..40 {
        for chunk in 2..30 {
            cluster.write(0, chunk, round + 10).expect("it is up").expect("it is written");
        }
    }
    assert_eq!(cluster.record().in_sync, [store_of(0), store_of(1)]);
    cluster.start(2);
    cluster.wait_for_all(SOON);
    cluster.world.run_for(Duration::from_secs(1));
    let digests: Vec<_> = (0..3).map(|index| cluster.digests(index)).collect();
    assert_eq!(digests[0], digests[2]);
    assert_eq!(digests[0], digests[1]);
    // It can lead.
    cluster.crash(0);
    cluster.crash(1);
    cluster.start(1);
    let primary = cluster.wait_for_primary(&[1, 2], 3 * SOON);
    let expected = |chunk| if chunk < 2 { 7 } else { 49 };
    for chunk in 0..30 {
        assert_eq!(cluster.read(primary, chunk).expect("it is up"), Ok(expected(chunk)), "chunk {chunk}");
    }
}

/// R14: what was deleted while a member was away is not there when it is back.
pub fn what_was_deleted_meanwhile_does_not_come_back() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    for chunk in 0..10 {
        cluster.write(0, chunk, 7).expect("it is up").expect("it is written");
    }
    cluster.world.run_for(200 * MILLISECOND);
    cluster.crash(2);
    cluster.delete(0, 2..5).expect("it is up").expect("they are deleted");
    for round in 0..MANY_WRITES {
        cluster.write(0, 7 + round % 3, round as u8).expect("it is up").expect("it is written");
    }
    cluster.start(2);
    cluster.wait_for_all(SOON);
    cluster.world.run_for(1000 * MILLISECOND);
    assert_alike(&cluster, 0, 1);
    assert_alike(&cluster, 0, 2);
}

/// R14: of a layer that is gone, as another group of the shard says, a member that was away may hold chunks still: they go, too.
pub fn what_is_left_of_a_layer_that_is_gone_goes_too() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.by_family.set(true);
    cluster.add_other_group(2);
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    for chunk in 0..10 {
        cluster.write(0, chunk, 7).expect("it is up").expect("it is written");
    }
    cluster.world.run_for(200 * MILLISECOND);
    let gone = cluster.ask_of(0, OTHER, |group| async move {
        group.forget_layer(Stamp::of_keeper(FamilyId(3), VolumeEpoch(1)), LAYER).await
    });
    gone.expect("it is up").expect("it is gone");
    cluster.world.run_for(200 * MILLISECOND);
    cluster.crash(2);
    for round in 0..MANY_WRITES {
        cluster.write(0, 7 + round % 3, round as u8).expect("it is up").expect("it is written");
    }
    cluster.delete(0, 0..10).expect("it is up").expect("they are deleted");
    cluster.start(2);
    cluster.wait_for_all(SOON);
    cluster.world.run_for(1000 * MILLISECOND);
    assert_alike(&cluster, 0, 1);
    assert_alike(&cluster, 0, 2);
}

/// R14: a member that comes back chunk by chunk is written to all the while, also in chunks whose unit is being taken.
pub fn writes_go_on_while_a_member_is_made_whole() {
    for seed in 0..3 {
        let cluster = two_of_three();
        // So that something is on its way in most chunks at any time, and more is committed before a unit is there.
        cluster.disks[1].set_delay(15 * MILLISECOND);
        cluster.disks[2].set_delay(10 * MILLISECOND);
        cluster.start(2);
        let until = cluster.world.now() + 2 * SOON;
        for round in 0_u32.. {
            if cluster.record().in_sync.len() == 3 {
                break;
            }
            assert!(cluster.world.now() < until, "it never comes back");
            let (chunk, block) = ((round * 7 + seed) % 24, round / 24 % 256);
            cluster.submit(0, chunk, block, round as u8).expect("it is up").expect("it has a place");
            cluster.world.run_for(700 * MILLISECOND / 1000);
        }
        cluster.disks.iter().for_each(|disk| disk.set_delay(Duration::ZERO));
        cluster.world.run_for(2000 * MILLISECOND);
        assert_alike(&cluster, 0, 1);
        assert_alike(&cluster, 0, 2);
    }
}

/// R14: connections break again and again while units are on their way: none is taken for whole that lacks a part.
pub fn a_part_that_is_lost_with_its_connection_is_not_missed() {
    (3..8).for_each(connections_break);
}

fn connections_break(variant: u32) {
    const BREAKS: usize = 80;
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.crash(2);
    for round in 0..8 {
        for chunk in 0..4 {
            let byte = 0x30 + round as u8;
            cluster.write_blocks(0, chunk, round * 32, 32, byte).expect("it is up").expect("it is written");
        }
    }
    cluster.world.run_for(3000 * MILLISECOND);
    for chunk in 4..MANY_WRITES {
        cluster.write(0, chunk % 40 + 4, 9).expect("it is up").expect("it is written");
    }
    cluster.start(2);
    // Each time in the middle of what is being sent, a little later within it.
    for round in 0..BREAKS {
        let bytes = (16 << 10) + (round % 7) * (24 << 10);
        let is_under_way =
            |cluster: &Cluster| cluster.world.bytes_under_way(&cluster.nodes[0], &cluster.nodes[2]) >= bytes;
        let until = cluster.world.now() + 200 * MILLISECOND;
        while !is_under_way(&cluster) && cluster.world.now() < until && cluster.record().in_sync.len() < 3 {
            cluster.world.run_for(Duration::from_micros(25));
        }
        cluster.world.run_for(Duration::from_micros((11 * variant + 3 * round as u32).into()));
        cluster.world.reset_connections(&cluster.nodes[0], &cluster.nodes[2]);
    }
    cluster.wait_for_all(4 * SOON);
    cluster.world.run_for(1000 * MILLISECOND);
    assert_alike(&cluster, 0, 2);
}

/// R8: a primary that was cut off, and does not know that another has followed it, reads nothing when others hear it again.
pub fn a_deposed_primary_reads_nothing() {
    for moment in 0..4 {
        let cluster = three();
        cluster.wait_for_primary(&[0], SOON);
        cluster.write(0, 1, 7).expect("it is up").expect("it is written");
        // Whoever has something to send is told that it leads no more.
        cluster.world.run_for(300 * MILLISECOND);
        cluster.map.set_cut_off(NodeId(1), true);
        [1, 2].into_iter().for_each(|other| {
            cluster.cut(0, other);
            cluster.cut(other, 0);
        });
        let primary = cluster.wait_for_primary(&[1, 2], SOON);
        cluster.write(primary, 1, 8).expect("it is up").expect("it is written");
        cluster.world.run_for(moment * 10 * MILLISECOND);
        [1, 2].into_iter().for_each(|other| {
            cluster.heal(0, other);
            cluster.heal(other, 0);
        });
        for _ in 0..600 {
            cluster.world.run_for(5 * MILLISECOND);
            let serves = (0..3).filter(|index| cluster.standing(*index).is_some_and(|standing| standing.serves));
            assert!(serves.count() <= 1, "{:#?}", cluster.told());
        }
        cluster.map.set_cut_off(NodeId(1), false);
        cluster.wait_for_all(2 * SOON);
    }
}

/// R14: who was away while much was written over and over gets what changed, and nothing else.
pub fn who_was_away_is_sent_what_changed_alone() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    for chunk in 0..8 {
        for part in 0..8 {
            let written = cluster.write_blocks(0, chunk, part * 32, 32, chunk as u8 + 1);
            written.expect("it is up").expect("it is written");
        }
    }
    // What is committed it knows from later entries once it has started anew.
    (0..3).for_each(|byte| cluster.write_blocks(0, 0, 0, 1, byte).expect("it is up").expect("it is written"));
    cluster.world.run_for(200 * MILLISECOND);
    cluster.crash(2);
    // More entries than anybody keeps, about few blocks of all chunks.
    for round in 0..MANY_WRITES {
        let (chunk, block) = (round % 8, round / 8 % 6 * 40);
        cluster.write_blocks(0, chunk, block, 1, round as u8).expect("it is up").expect("it is written");
    }
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync.len() == 2);
    let sent = |cluster: &Cluster| cluster.world.sent_bytes(&cluster.nodes[0], &cluster.nodes[2]);
    let before = sent(&cluster);
    cluster.start(2);
    cluster.wait_for_all(SOON);
    cluster.world.run_for(1000 * MILLISECOND);
    assert_alike(&cluster, 0, 1);
    assert_alike(&cluster, 0, 2);
    let (sent, changed) = (sent(&cluster) - before, 8 * 6 * BLOCK_BYTES as u64);
    assert!(sent > changed && sent < changed + changed / 2, "{sent} bytes of {changed} that changed");
}

/// R13, R14: what a member missed is sent once, whether it is less than is kept in memory or more: never a chunk for a block.
/// All that its primary sends it until it is in sync again is counted, headers and beats included.
pub fn an_outage_costs_what_was_written_meanwhile() {
    for writes in [200, 3 * MANY_WRITES] {
        let cluster = three();
        cluster.wait_for_primary(&[0], SOON);
        for part in 0..40 * 8 {
            let written = cluster.write_blocks(0, part / 8, part % 8 * 32, 32, 1);
            written.expect("it is up").expect("it is written");
        }
        (0..3).for_each(|byte| cluster.write_blocks(0, 0, 0, 1, byte).expect("it is up").expect("it is written"));
        cluster.world.run_for(200 * MILLISECOND);
        eprintln!("XX crash");
        cluster.crash(2);
        for round in 0..writes {
            // Each block once, far from the one before.
            let place = round * 7919 % (40 * 256);
            cluster.write_blocks(0, place / 256, place % 256, 1, 2).expect("it is up").expect("it is written");
        }
        cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync.len() == 2);
        let sent = |cluster: &Cluster| cluster.world.sent_bytes(&cluster.nodes[0], &cluster.nodes[2]);
        let before = sent(&cluster);
        cluster.start(2);
        cluster.wait_for_all(SOON);
        let (sent, missed) = (sent(&cluster) - before, u64::from(writes) * BLOCK_BYTES as u64);
        assert_alike(&cluster, 0, 2);
        assert!(sent > missed, "{sent} bytes sent of {missed} that were written: nothing is compressed here");
        assert!(sent * 10 <= missed * 12, "{writes} writes: {sent} bytes sent of {missed} that were written");
    }
}

/// R14: two groups share a shard, and chunks of two families a number: a unit of one brings nothing of the other.
pub fn a_unit_brings_nothing_of_other_groups() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_other_group(2);
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.world.run_for(1000 * MILLISECOND);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    cluster.tell_other_layer(0).expect("it is up").expect("it has a place");
    cluster.write(0, 5, 1).expect("it is up").expect("it is written");
    (0..40).for_each(|block| cluster.write_other(0, 5, block, 1).expect("it is up").expect("it is written"));
    cluster.world.run_for(200 * MILLISECOND);
    cluster.crash(2);
    for round in 0..MANY_WRITES {
        cluster.write(0, 5 + round % 3, round as u8).expect("it is up").expect("it is written");
        cluster.write_other(0, 5 + round % 60, round % 40, round as u8).expect("it is up").expect("it is written");
    }
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync.len() == 2);
    // Its units take their time.
    cluster.disks[2].set_delay(2 * MILLISECOND);
    cluster.start(2);
    // What a unit of the one brings of the other may be newer than what comes next in the other's order.
    let is_whole = |group| cluster.record_of(group).in_sync.len() == 3;
    let until = cluster.world.now() + 2 * SOON;
    for round in 0.. {
        if is_whole(GROUP) && is_whole(OTHER) {
            break;
        }
        assert!(cluster.world.now() < until, "not all are in sync: {:#?}", cluster.told());
        cluster.write(0, 5 + round % 3, round as u8).expect("it is up").expect("it is written");
        cluster.write_other(0, 5 + round % 3, round % 40, round as u8).expect("it is up").expect("it is written");
        cluster.world.run_for(MILLISECOND);
    }
    cluster.world.run_for(SOON);
    assert!(!cluster.has_failed(2), "its store took what is no group's");
    assert_alike(&cluster, 0, 1);
    assert_alike(&cluster, 0, 2);
}

/// R14: a member that was made whole while clients wrote makes another whole: also with what came to it as no-ops.
pub fn what_came_as_no_ops_is_not_taken_for_known() {
    (0..60).for_each(|moment| last_write_before_a_crash(100 + 25 * moment));
}

fn last_write_before_a_crash(moment_ms: u32) {
    const LAST: u32 = 60;
    let cluster = two_of_three();
    let write = |index, block, byte| {
        cluster.write_blocks(index, LAST, block, 1, byte).expect("it is up").expect("it is written")
    };
    write(0, 2, 1);
    cluster.disks[2].set_delay(20 * MILLISECOND);
    cluster.start(2);
    cluster.world.run_for(moment_ms * MILLISECOND);
    // Nobody tells that it is committed, before whoever else has it is gone.
    write(0, 1, 0x55);
    cluster.crash(1);
    let is_back = |cluster: &Cluster| cluster.record().in_sync == [store_of(0), store_of(2)];
    cluster.wait_until("it is not made whole", 6 * SOON, is_back);
    cluster.disks[2].set_delay(Duration::ZERO);
    let index = cluster.wait_for_primary(&[0, 2], SOON);
    write(index, 3, 2);
    for round in 0..MANY_WRITES {
        cluster.write(index, 4 + round % 20, round as u8).expect("it is up").expect("it is written");
    }
    cluster.world.run_for(200 * MILLISECOND);
    cluster.crash(0);
    cluster.start(1);
    let others_are_in_sync = |cluster: &Cluster| {
        let in_sync = cluster.record().in_sync;
        in_sync.contains(&store_of(1)) && in_sync.contains(&store_of(2)) && cluster.standing(1).is_some()
    };
    cluster.wait_until("nobody makes it whole", 6 * SOON, others_are_in_sync);
    cluster.world.run_for(1000 * MILLISECOND);
    assert_alike(&cluster, 1, 2);
}

/// R14: a member is taken out of a group of two, and comes back: what the other wrote alone is not left out.
pub fn what_a_group_of_one_writes_is_not_left_out() {
    let cluster = Cluster::new(1, 2, 1);
    (0..2).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.wait_for_all(SOON);
    (0..3).for_each(|byte| cluster.write_blocks(0, 1, 0, 1, byte).expect("it is up").expect("it is written"));
    cluster.world.run_for(200 * MILLISECOND);
    let is_led = |cluster: &Cluster| {
        let leads = |standing: Standing| standing.serves && standing.record.epoch == cluster.record().epoch;
        cluster.standing(0).is_some_and(leads)
    };
    cluster.put(&cluster.record().without_member(store_of(1)).expect("it can be taken out"));
    cluster.wait_until("it does not go on alone", 2 * SOON, is_led);
    cluster.write_blocks(0, 1, 1, 1, 9).expect("it is up").expect("it is written");
    cluster.crash(1);
    cluster.put(&cluster.record().with_joining(store_of(1)).expect("it can come back"));
    cluster.wait_until("it does not hear of it", 2 * SOON, is_led);
    cluster.write_blocks(0, 1, 2, 1, 10).expect("it is up").expect("it is written");
    cluster.start(1);
    cluster.wait_for_all(3 * SOON);
    // Before anybody compares what they hold, and mends it.
    cluster.world.run_for(100 * MILLISECOND);
    assert_alike(&cluster, 0, 1);
}

/// R16: an entry that stops a store poisons its own group, and none of the others that were committed in the same turn.
#[cfg(feature = "mutants")]
pub fn other_groups_of_a_poisoned_store_go_on() {
    Mutant::activate(Some(Mutant::AssertionFails));
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_other_group(2);
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.world.run_for(1000 * MILLISECOND);
    cluster.tell_other_layer(0).expect("it is up").expect("it has a place");
    // Both are committed by the primary's own device, in one turn.
    cluster.disks[0].set_delay(20 * MILLISECOND);
    let place = |chunk| Place { layer: LAYER, chunk: ChunkId(chunk), range: BlockRange::new(3, 1) };
    let submitted = cluster.ask_all(0, [GROUP, OTHER], move |[group, of_other]| async move {
        let unlucky = group.write(stamp(), place(13), block_of(1), BlockCoding::PLAIN).await;
        let good = of_other.write(stamp(), place(1), block_of(1), BlockCoding::PLAIN).await;
        unlucky.is_ok() && good.is_ok()
    });
    assert_eq!(submitted, Some(true));
    cluster.world.run_for(2 * SOON);
    assert!(cluster.has_failed(0), "{:?}", cluster.told());
    let serves = |index| {
        let asked = cluster.ask_of(index, OTHER, |group| async move { group.standing().serves });
        asked == Some(true)
    };
    assert!((1..3).any(serves), "nobody leads the other group");
}

/// R16: who starts anew knows of an entry that nobody can apply, although whoever said so is gone.
#[cfg(feature = "mutants")]
pub fn a_poisoned_group_is_not_taken_over_after_a_restart() {
    Mutant::activate(Some(Mutant::AssertionFails));
    let cluster = poisoned();
    // Whoever heard of it starts anew, and the one that said it is gone.
    (0..3).for_each(|index| cluster.crash(index));
    [1, 2].into_iter().for_each(|index| cluster.start(index));
    cluster.world.run_for(2 * SOON);
    assert_eq!([1, 2].map(|index| cluster.has_failed(index)), [false, false], "{:?}", cluster.told());
    assert_eq!(cluster.record().primary, store_of(0));
}

/// R16: an entry that stops whoever applies it stops one store. Chunk 13 is unlucky ([`Mutant::AssertionFails`]).
#[cfg(feature = "mutants")]
pub fn nobody_takes_a_poisoned_group_over() {
    Mutant::activate(Some(Mutant::AssertionFails));
    poisoned();
}

/// A group whose primary was stopped by an entry.
#[cfg(feature = "mutants")]
pub fn poisoned() -> Cluster {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 12, 1).expect("it is up").expect("it is written");
    let _ = cluster.submit(0, 13, 3, 1);
    cluster.world.run_for(2 * SOON);
    let failed: Vec<_> = (0..3).map(|index| cluster.has_failed(index)).collect();
    assert_eq!(failed, [true, false, false], "{:?}", cluster.told());
    assert_eq!(cluster.record().primary, store_of(0));
    cluster
}

/// R18: a primary whose device answers no read is slow as one whose device takes no append: others lead, and who waits for a read is
/// told to ask them.
pub fn reads_that_a_device_does_not_answer_are_done_elsewhere() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 1, 0xa1).expect("it is up").expect("it is written");
    cluster.world.run_for(100 * MILLISECOND);
    let began = cluster.world.now();
    cluster.disks[0].set_reads_hanging(true);
    let said = cluster.read(0, 1).expect("it is up");
    let after = cluster.world.now() - began;
    assert!(matches!(said, Err(GroupError::NotPrimary { .. })), "{said:?}");
    assert!(after < 5 * SECOND, "it is told after {after:?}");
    let primary = cluster.wait_for_primary(&[1, 2], 2 * SOON);
    assert_eq!(cluster.read(primary, 1).expect("it is up"), Ok(0xa1));
    cluster.disks[0].set_reads_hanging(false);
    cluster.wait_for_all(4 * SOON);
}

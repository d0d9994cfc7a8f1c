//! Clients that know one node: served there, or passed on to the head (H17).

use crate::common::forwards::{
    Client, used, what_comes_of_a_session_that_was_ended_is_refused,
    what_is_on_its_way_is_done_before_the_next_session, what_waits_for_a_client_that_is_gone_is_not_sent,
};
use crate::common::nodes::{CHUNKS, Cluster, TAKEN_OVER, made, node_id, of};
use crate::common::{Random, payload};
use runtime::channel::cross;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{Attached, IoError, Standing};

fn is_head(cluster: &Cluster, index: usize) -> bool {
    cluster.at(index, |assembly| async move { of(&assembly).standing() }) == Standing::Here
}

#[test]
fn what_is_passed_on_is_done_as_at_the_head() {
    for cores in [1, 2] {
        let (cluster, here, there) = used(cores as u64, cores);
        let other = Client::at(&cluster, 2);
        let (here, there, other): (&Attached, &Attached, &Attached) = (&here.volume, &there.volume, &other.volume);
        let random = Random::new(cores as u64);
        for round in 0..40 {
            let (offset, len) = random.range(CHUNKS * CHUNK_BYTES);
            let (len, bytes) = (len.min(1 << 20), random.bytes(len.min(1 << 20) as usize));
            let (volume, written) = (there.clone(), payload(&bytes));
            cluster.at(1, move |_| async move { volume.write(offset, written).await.expect("written") });
            // In part gone again, in one of three ways.
            let zeroed = len / 2;
            let volume = there.clone();
            cluster.at(1, move |_| async move {
                match round % 3 {
                    0 => volume.discard(offset, zeroed).await,
                    1 => volume.write_zeroes(offset, zeroed).await,
                    _ => volume.store_zeroes(offset, zeroed).await,
                }
                .expect("done");
                volume.flush().await.expect("flushed");
            });
            let read = |index: usize, volume: &Attached| {
                let volume = volume.clone();
                cluster
                    .at(index, move |_| async move { volume.read(offset, len as u32).await.expect("readable") })
                    .bytes
            };
            let seen = read(0, here);
            assert_eq!(seen[zeroed as usize..], bytes[zeroed as usize..]);
            if round % 3 != 0 {
                assert!(seen[..zeroed as usize].iter().all(|byte| *byte == 0));
            }
            assert!(read(1, there) == seen && read(2, other) == seen, "all see the same");
        }
        let status = |index: usize, volume: &Attached| {
            let volume = volume.clone();
            cluster.at(index, move |_| async move {
                volume.block_status(0, CHUNKS * CHUNK_BYTES, &[], 2048).await.expect("told")
            })
        };
        assert!(status(0, here).len() > 10);
        assert_eq!(status(0, here), status(1, there));
        let volume = there.clone();
        let refused =
            cluster.at(1, move |_| async move { volume.write(CHUNKS * CHUNK_BYTES - 1, payload(&[1; 2])).await });
        assert!(matches!(refused, Err(IoError::OutOfRange { .. })), "{refused:?}");
    }
}

#[test]
fn snapshots_are_read_through_every_node_until_they_are_deleted() {
    let (cluster, here, there) = used(1, 1);
    cluster.at(0, |assembly| async move { drop(assembly.create_snapshot("v", "s").await.expect("taken")) });
    here.writes(&cluster, 2);
    cluster.pass(Duration::from_secs(1));
    let snapshot = Client::opens(&cluster, 1, Some("s")).expect("served");
    assert!(snapshot.volume.is_forwarded());
    assert_eq!((snapshot.reads(&cluster, 3), there.reads(&cluster, 3)), (Ok(1), Ok(2)));
    let volume = Attached::clone(&snapshot.volume);
    let refused = cluster.at(1, move |_| async move { volume.write(0, payload(&[1; 4096])).await });
    assert_eq!(refused, Err(IoError::ReadOnly));
    let (volume, marks) = (Attached::clone(&there.volume), there.volume.marks_of(&["s".to_owned()]));
    let changed = cluster.at(1, move |_| async move { volume.block_status(0, 8192, &marks, 8).await.expect("told") });
    assert_eq!(
        changed.iter().map(|extent| (extent.len_bytes, extent.changed_since)).collect::<Vec<_>>(),
        [(4096, 1), (4096, 0)]
    );
    cluster.at(0, |assembly| async move { assembly.delete_snapshot("v", "s").await.expect("deleted") });
    assert!(matches!(snapshot.reads(&cluster, 3), Err(IoError::Gone(_))));
    assert_eq!(there.reads(&cluster, 3), Ok(2));
}

#[test]
fn who_opens_what_nobody_has_open_has_it_here() {
    for (seed, cores) in [(1, 1), (2, 2)] {
        let cluster = Cluster::new(seed, cores);
        cluster.at(0, made);
        cluster.pass(Duration::from_secs(1));
        let first = Client::at(&cluster, 1);
        assert!(!first.volume.is_forwarded() && is_head(&cluster, 1));
        first.writes(&cluster, 2);
        let second = Client::at(&cluster, 2);
        assert!(second.volume.is_forwarded() && is_head(&cluster, 1));
        assert_eq!(second.reads(&cluster, 5), Ok(2));
        // It stays as long as one has it open, through whichever node.
        first.leaves(&cluster);
        cluster.pass(Duration::from_secs(60));
        assert!(is_head(&cluster, 1));
        second.writes(&cluster, 3);
        second.leaves(&cluster);
        cluster.pass(Duration::from_secs(2));
        let third = Client::at(&cluster, 2);
        assert!(!third.volume.is_forwarded() && is_head(&cluster, 2));
        assert_eq!(third.reads(&cluster, 5), Ok(3));
    }
}

#[test]
fn who_opens_what_a_dead_node_served_has_it_here() {
    for seed in 1..4 {
        let (cluster, stays, old) = used(seed, 1);
        stays.writes(&cluster, 2);
        cluster.crash(0);
        assert!(matches!(old.reads(&cluster, 0), Err(IoError::Elsewhere(_))), "its session was with that node");
        let new = Client::at(&cluster, 1);
        assert!(!new.volume.is_forwarded() && is_head(&cluster, 1));
        assert_eq!(new.reads(&cluster, 7), Ok(2));
        new.writes(&cluster, 3);
        cluster.start(0);
        cluster.pass(TAKEN_OVER);
        let back = Client::at(&cluster, 0);
        assert!(back.volume.is_forwarded());
        assert_eq!(back.reads(&cluster, 7), Ok(3));
    }
}

/// A session is with one reign of one head: none outlives it, also where the same node is the head again.
#[test]
fn a_client_connects_again_when_the_head_moves() {
    let (cluster, here, there) = used(3, 1);
    let to = |index: usize| {
        let head = if is_head(&cluster, 0) { 0 } else { 2 };
        cluster
            .at(head, move |assembly| async move { assembly.move_volume("v", node_id(index)).await.map(drop) })
            .expect("moved");
        cluster.pass(Duration::from_secs(1));
    };
    to(2);
    to(0);
    assert!(matches!(there.reads(&cluster, 0), Err(IoError::Elsewhere(_))));
    assert!(matches!(here.reads(&cluster, 0), Err(IoError::Elsewhere(_))));
    let again = Client::at(&cluster, 0);
    let there = Client::at(&cluster, 1);
    assert!(!again.volume.is_forwarded() && there.volume.is_forwarded());
    there.writes(&cluster, 4);
    assert_eq!(again.reads(&cluster, 9), Ok(4));
}

#[test]
fn a_client_connects_again_when_its_node_loses_the_head() {
    for seed in 1..4 {
        let (cluster, stays, old) = used(seed, 1);
        old.begins_to_write(&cluster, 2, CHUNK_BYTES as usize);
        cluster.pass(Duration::from_micros(300 * seed));
        cluster.world.reset_connections(&cluster.nodes[0], &cluster.nodes[1]);
        cluster.pass(Duration::from_millis(5));
        assert!(matches!(old.reads(&cluster, 0), Err(IoError::Elsewhere(_))));
        let new = Client::at(&cluster, 1);
        assert!(new.volume.is_forwarded());
        new.writes(&cluster, 3);
        cluster.pass(Duration::from_secs(5));
        (0..CHUNKS).for_each(|chunk| assert_eq!(stays.reads(&cluster, chunk), Ok(3)));
    }
}

/// More than any bound at once: all of it waits in its place and is done.
#[test]
fn more_than_a_session_may_have_under_way_is_done_in_time() {
    const COMMANDS: u64 = 400;
    let (cluster, _stays, there) = used(5, 2);
    let volume = Attached::clone(&there.volume);
    let done = cluster.at(1, move |_| async move {
        let (told, mut answers) = cross(COMMANDS as usize);
        for number in 0..COMMANDS {
            let (volume, told) = (volume.clone(), told.clone());
            runtime::spawn(async move {
                let (offset, len) = (number % CHUNKS * CHUNK_BYTES, if number < 60 { CHUNK_BYTES } else { 4096 });
                let result = match number % 2 {
                    0 => volume.write(offset, payload(&vec![7; len as usize])).await,
                    _ => volume.read(offset, len as u32).await.map(|read| assert_eq!(read.bytes.len() as u64, len)),
                };
                let _ = told.send(result).await;
            });
        }
        drop(told);
        let mut done = 0;
        while let Ok(result) = answers.recv().await {
            result.expect("done");
            done += 1;
        }
        done
    });
    assert_eq!(done, COMMANDS);
    assert_eq!(there.reads(&cluster, 0), Ok(7));
}

/// Who works is not taken for one that is silent.
#[test]
fn others_may_open_a_volume_while_a_client_has_more_under_way_than_may_be() {
    for seed in 1..4 {
        let (cluster, stays, there) = used(seed, 1);
        there.begins_to_write(&cluster, 2, CHUNK_BYTES as usize);
        let other = Client::at(&cluster, 2);
        there.begins_to_write(&cluster, 3, 4096);
        let another = Client::at(&cluster, 1);
        cluster.pass(Duration::from_secs(5));
        (0..CHUNKS).for_each(|chunk| {
            [&stays, &there, &other, &another]
                .iter()
                .for_each(|client| assert_eq!(client.reads(&cluster, chunk), Ok(3)));
        });
    }
}

#[test]
fn what_a_client_sent_before_it_came_back_is_not_done_after_what_it_sends_then() {
    for seed in 1..4 {
        what_is_on_its_way_is_done_before_the_next_session(seed);
        what_comes_of_a_session_that_was_ended_is_refused(seed);
        what_waits_for_a_client_that_is_gone_is_not_sent(seed);
    }
}

//! H16: a stopped group stops one namespace, for as long as it does.

use crate::common::nodes::{CHUNKS, Cluster, made, of};
use crate::common::payload;
use crate::common::stopped::{
    Stopped, is_done, is_stopped, one_volumes_change_is_no_others_business, what_has_no_outcome_is_in_no_snapshot,
    what_is_gone_is_not_waited_for, what_was_given_up_holds_its_place,
};
use runtime::channel::cross;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{IoError, Standing};

#[test]
fn what_waits_for_a_stopped_group_is_answered_and_served_when_it_serves_again() {
    let stopped = Stopped::new(1);
    let (written, patient) = (stopped.write(0, 7, false), stopped.write(0, 8, true));
    stopped.pass(Duration::from_secs(8));
    assert!(written.borrow().is_none() && stopped.standing() == Standing::Here, "it may come in time");
    let elsewhere = stopped.write(1, 5, false);
    stopped.pass(Duration::from_millis(500));
    assert!(is_done(&elsewhere), "other groups serve: {elsewhere:?}");
    stopped.pass(Duration::from_millis(2500));
    assert!(is_stopped(&written) && patient.borrow().is_none(), "{written:?} {patient:?}");
    assert_eq!(stopped.standing(), Standing::Stopped);
    assert!(matches!(stopped.read(1), Err(IoError::Stopped(_))), "nothing more is let in");
    stopped.scene.places[0].0.set_hanging(false);
    stopped.pass(Duration::from_secs(5));
    assert_eq!(stopped.standing(), Standing::Here);
    assert!(is_done(&patient), "who waits is served: {patient:?}");
    assert_eq!((stopped.read(0), stopped.read(1)), (Ok(8), Ok(5)), "in the order of the calls");
}

/// A client that waits for nothing but its answer has it done once, in the place where it was called.
#[test]
fn who_knows_no_other_wait_waits_in_its_place() {
    let stopped = Stopped::new(3);
    let before = stopped.entries();
    let patient = stopped.write(0, 8, true);
    stopped.pass(Duration::from_secs(15));
    assert!(patient.borrow().is_none() && stopped.standing() == Standing::Here, "{patient:?}");
    stopped.scene.places[0].0.set_hanging(false);
    stopped.pass(Duration::from_secs(5));
    assert!(is_done(&patient), "{patient:?}");
    assert_eq!((stopped.read(0), stopped.entries() - before), (Ok(8), 1));
}

#[test]
fn one_sick_volume_leaves_others_alone() {
    let stopped = Stopped::new(2);
    let written = stopped.write(0, 7, false);
    stopped.pass(Duration::from_secs(11));
    assert!(is_stopped(&written));
    // What is decided of others does not wait for it, nor do their commands at groups that serve.
    let assembly = stopped.scene.assembly.clone();
    let served = stopped.scene.machine.run(async move {
        let change = cluster::VolumeChange { name: Some("u".to_owned()), ..cluster::VolumeChange::default() };
        let renamed = runtime::timeout(Duration::from_secs(2), assembly.change_volume("v", &change)).await;
        renamed.expect("in time").expect("renamed").name
    });
    assert_eq!(served, "u");
    stopped.scene.places[0].0.set_hanging(false);
    stopped.pass(Duration::from_secs(5));
    assert_eq!(stopped.standing(), Standing::Here);
}

#[test]
fn nothing_overtakes_what_was_given_up() {
    (1..3).for_each(what_was_given_up_holds_its_place);
}

/// Two of three nodes are gone: nothing is committed, and nobody waits for longer than 10 s to hear it.
#[test]
fn a_group_below_its_minimum_stops_its_namespace() {
    for cores in [1, 2] {
        let cluster = Cluster::new(3, cores);
        cluster.at(0, made);
        cluster.pass(Duration::from_secs(1));
        (1..3).for_each(|node| cluster.nodes[node].pause());
        let answers = cluster.at(0, |assembly| async move {
            let (told, mut answers) = cross(CHUNKS as usize);
            for chunk in 0..CHUNKS {
                let (volume, told) = (of(&assembly), told.clone());
                runtime::spawn(async move {
                    let _ = told.send(volume.write(chunk * CHUNK_BYTES, payload(&[2; 4096])).await).await;
                });
            }
            drop(told);
            let all = async {
                let mut all = Vec::new();
                while let Ok(answer) = answers.recv().await {
                    all.push(answer);
                }
                all
            };
            runtime::timeout(Duration::from_secs(12), all).await.expect("each is answered")
        });
        assert!(answers.iter().all(|answer| matches!(answer, Err(IoError::Stopped(_)))), "{answers:?}");
        let standing = cluster.at(0, |assembly| async move { of(&assembly).standing() });
        assert_eq!(standing, Standing::Stopped);
        (1..3).for_each(|node| cluster.nodes[node].resume());
        cluster.pass(Duration::from_secs(20));
        let head =
            (0..3).find(|node| cluster.standings("v")[*node] == Some(Standing::Here)).expect("it is served again");
        cluster.at(head, |assembly| async move {
            for chunk in 0..CHUNKS {
                let read = of(&assembly).read(chunk * CHUNK_BYTES, 4096).await.expect("readable");
                assert!(matches!(read.bytes[0], 1 | 2), "chunk {chunk} holds {}", read.bytes[0]);
            }
        });
    }
}

#[test]
fn whoever_takes_something_away_does_not_wait_for_a_group_that_does_not_serve() {
    (1..3).for_each(what_is_gone_is_not_waited_for);
}

#[test]
fn changes_of_one_volume_do_not_wait_for_those_of_another() {
    (1..3).for_each(one_volumes_change_is_no_others_business);
}

#[test]
fn there_is_no_snapshot_over_what_has_no_outcome() {
    (1..3).for_each(what_has_no_outcome_is_in_no_snapshot);
}

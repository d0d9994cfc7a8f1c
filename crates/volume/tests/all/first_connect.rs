//! A volume goes to where its hosts are, and home.

use crate::common::hosts::{a_host_that_has_left_keeps_nothing, check_at, cluster, comes, head, leaves};
use crate::common::moving::Host;
use crate::common::nodes::{fill, of};
use std::time::Duration;
use volume::{IoError, Standing};

#[test]
fn a_host_has_its_volume_at_whichever_node_it_connects_to_first() {
    for (seed, node) in [(1, 1), (2, 2), (3, 0)] {
        let cluster = cluster(seed);
        // Before it is told which namespaces there are.
        let _here = comes(&cluster, node, "host");
        assert_eq!(head(&cluster), node);
        check_at(&cluster, node, 1);
        // More paths are more paths.
        let _there = comes(&cluster, (node + 1) % 3, "host");
        assert_eq!(head(&cluster), node);
    }
}

#[test]
fn a_host_that_another_one_keeps_out_waits_and_is_named() {
    let cluster = cluster(1);
    let first = comes(&cluster, 0, "first");
    let writes = Host::begin(&cluster);
    let _second = comes(&cluster, 1, "second");
    cluster.pass(Duration::from_secs(8));
    assert_eq!(head(&cluster), 0, "it has a host of its own");
    let reasons = cluster.at(0, |assembly| async move { assembly.status().await.reasons });
    assert!(
        reasons.iter().any(|reason| reason.contains("host second reaches volume v only through node 2")),
        "{reasons:?}"
    );
    // When the first one goes, and does not come again at once, it is its turn.
    leaves(&cluster, 0, first);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(head(&cluster), 1);
    writes.end(&cluster, 1);
}

#[test]
fn a_host_that_may_not_use_a_volume_does_not_move_it() {
    let cluster = cluster(2);
    let _here = cluster.at(1, |assembly| async move {
        let here = assembly.directory().host_came("stranger", false);
        assert!(!assembly.directory().awaits("stranger"));
        here
    });
    cluster.pass(Duration::from_secs(8));
    assert_eq!(head(&cluster), 0);
}

#[test]
fn a_volume_that_is_open_where_it_is_stays_there() {
    let cluster = cluster(3);
    let opening = cluster.at(0, |assembly| async move { of(&assembly).open().expect("it is there") });
    cluster.pass(Duration::from_secs(1));
    let _here = cluster.at(1, |assembly| async move { assembly.directory().host_came("host", true) });
    cluster.pass(Duration::from_secs(8));
    assert_eq!(head(&cluster), 0, "its client knows no other node");
    cluster.at(0, |_| async move { drop(opening) });
    cluster.pass(Duration::from_secs(3));
    assert_eq!(head(&cluster), 1);
}

#[test]
fn who_has_left_keeps_nothing() {
    (1..3).for_each(a_host_that_has_left_keeps_nothing);
}

/// Beats tell earlier than the session in the map; epochs make it safe if they are wrong.
#[test]
fn a_silent_head_is_taken_over_while_its_session_lives() {
    let cluster = cluster(4);
    let _paths = [comes(&cluster, 0, "host"), comes(&cluster, 1, "host")];
    cluster.nodes[0].pause();
    cluster.pass(Duration::from_secs(5));
    assert_eq!(cluster.at(1, |assembly| async move { of(&assembly).standing() }), Standing::Here);
    cluster.at(1, |assembly| async move { fill(&of(&assembly), 2).await.expect("written") });
    cluster.nodes[0].resume();
    cluster.at(0, |assembly| async move {
        let refused = of(&assembly).read(0, 4096).await.map(drop);
        assert!(matches!(refused, Err(IoError::Elsewhere(_))), "{refused:?}");
    });
    cluster.pass(Duration::from_secs(1));
    assert_eq!(head(&cluster), 1);
    check_at(&cluster, 1, 2);
}

#[test]
fn what_waits_at_a_head_that_is_not_heard_is_answered() {
    (1..3).for_each(crate::common::hosts::what_waits_at_a_head_that_is_not_heard_is_answered);
}

#[test]
fn a_head_that_does_not_reach_a_group_leaves_the_volume_to_who_does() {
    (1..3).for_each(crate::common::hosts::a_head_that_does_not_reach_a_group_leaves_the_volume_to_who_does);
}

/// Two nodes that do not hear each other do not take a volume from each other for ever.
#[test]
fn a_silent_head_is_taken_once_and_not_again_at_once() {
    let cluster = cluster(5);
    let _paths = [comes(&cluster, 0, "host"), comes(&cluster, 1, "host")];
    let epoch = || cluster.at(2, |assembly| async move { assembly.volumes()[0].head });
    let (mut changes, mut last) = (0, epoch());
    for _ in 0..6 {
        // Whoever serves it falls silent for a while.
        let silent = head(&cluster);
        cluster.nodes[silent].pause();
        cluster.pass(Duration::from_secs(5));
        cluster.nodes[silent].resume();
        cluster.pass(Duration::from_millis(500));
        let now = epoch();
        changes += usize::from(now != last);
        last = now;
    }
    assert!((1..=2).contains(&changes), "{changes} changes within half a minute");
}

#[test]
fn a_volume_goes_home_when_a_host_of_it_is_there_and_not_twice_in_a_minute() {
    let cluster = cluster(6);
    let _away = comes(&cluster, 1, "host");
    assert_eq!(head(&cluster), 1);
    let writes = Host::begin(&cluster);
    let at_home = comes(&cluster, 0, "host");
    cluster.pass(Duration::from_secs(4));
    assert_eq!(head(&cluster), 1, "it may be gone again in a moment");
    cluster.pass(Duration::from_secs(3));
    assert_eq!(head(&cluster), 0, "it is at home");
    leaves(&cluster, 0, at_home);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(head(&cluster), 1, "its host is not there any more");
    let _at_home = comes(&cluster, 0, "host");
    cluster.pass(Duration::from_secs(20));
    assert_eq!(head(&cluster), 1, "it came from there less than a minute ago");
    cluster.pass(Duration::from_secs(50));
    assert_eq!(head(&cluster), 0);
    writes.end(&cluster, 0);
}

#[test]
fn a_volume_that_nobody_uses_goes_home_by_and_by() {
    let cluster = cluster(7);
    let away = comes(&cluster, 2, "host");
    assert_eq!(head(&cluster), 2);
    leaves(&cluster, 2, away);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(head(&cluster), 2);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(head(&cluster), 0);
    check_at(&cluster, 0, 1);
}

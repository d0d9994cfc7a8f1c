//! All copies are compared: those that agree are told to, and those that do not are not.

use crate::common::copies::{checked, what_differs_is_told};
use crate::common::nodes::{CHUNKS, Cluster, NODES, fill, made, of};
use std::time::Duration;
use volume::CheckFault;

#[test]
fn copies_that_agree_are_told_to() {
    let cluster = Cluster::new(3, 2);
    cluster.at(0, made);
    cluster.at(0, |assembly| async move {
        assembly.create_snapshot("v", "s").await.expect("taken");
        fill(&of(&assembly), 2).await.expect("written");
    });
    cluster.pass(Duration::from_secs(1));
    let check = checked(&cluster, 1);
    assert!(check.all_agree(), "{check:?}");
    assert_eq!(check.copies, NODES * check.groups);
    assert_eq!(check.chunks, 2 * CHUNKS, "each chunk, in each of two layers");
    assert_eq!(check.blocks_read, 2 * CHUNKS * NODES as u64, "one block of each, of every copy");
}

#[test]
fn copies_that_differ_are_told() {
    (1..3).for_each(what_differs_is_told);
}

#[test]
fn a_copy_that_is_away_is_not_taken_for_one_that_agrees() {
    let cluster = Cluster::new(5, 1);
    cluster.at(0, made);
    cluster.crash(2);
    let check = checked(&cluster, 0);
    let is_away = |fault: &CheckFault| matches!(fault, CheckFault::NotLookedAt(_));
    assert!(!check.all_agree() && check.findings.iter().any(|found| is_away(&found.fault)), "{check:?}");
}

#[test]
fn what_is_written_meanwhile_is_compared_when_it_has_come_everywhere() {
    let cluster = Cluster::new(7, 1);
    cluster.at(0, made);
    cluster.at(0, |assembly| async move {
        runtime::spawn(async move {
            for value in 0..40 {
                fill(&of(&assembly), value).await.expect("written");
                runtime::sleep(Duration::from_millis(2)).await;
            }
        });
    });
    let check = checked(&cluster, 1);
    assert!(check.all_agree(), "{check:?}");
}

//! Groups of several members on simulated nodes: they replicate, take over, and come back.

mod common;

use common::{SOON, store_of, three};
use replication::GroupError;
use std::time::Duration;

#[test]
fn a_write_is_on_all_members_before_it_is_acknowledged() {
    let cluster = three();
    let primary = cluster.wait_for_primary(&[0, 1, 2], SOON);
    assert_eq!(primary, 0, "who the record names comes first");
    cluster.write(0, 5, 0xa5).expect("it is up").expect("it is written");
    let standings = cluster.told();
    let durable = standings[0].as_ref().expect("it is up").durable;
    for standing in standings.iter().flatten() {
        assert_eq!(standing.durable, durable, "{standings:#?}");
    }
    assert_eq!(cluster.read(0, 5).expect("it is up"), Ok(0xa5));
    let refused = cluster.write(1, 5, 1).expect("it is up");
    assert_eq!(refused, Err(GroupError::NotPrimary { group: common::GROUP, primary: Some(store_of(0)) }));
    // What is committed is told within a moment.
    cluster.world.run_for(Duration::from_millis(200));
    let committed: Vec<_> = cluster.told().iter().flatten().map(|standing| standing.committed).collect();
    assert_eq!(committed, [durable; 3]);
}

#[test]
fn another_member_takes_over_and_has_all_that_was_acknowledged() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    for chunk in 0..20 {
        cluster.write(0, chunk, chunk as u8 + 1).expect("it is up").expect("it is written");
    }
    cluster.crash(0);
    let primary = cluster.wait_for_primary(&[1, 2], SOON);
    for chunk in 0..20 {
        assert_eq!(cluster.read(primary, chunk).expect("it is up"), Ok(chunk as u8 + 1));
    }
    cluster.write(primary, 3, 99).expect("it is up").expect("it is written");
    // The one that was away comes back, and has what was written meanwhile.
    cluster.start(0);
    cluster.wait_for_all(SOON);
    cluster.crash(primary);
    let other = 3 - primary;
    cluster.crash(other);
    cluster.start(other);
    let primary = cluster.wait_for_primary(&[0, other], 3 * SOON);
    assert_eq!(cluster.read(primary, 3).expect("it is up"), Ok(99));
}

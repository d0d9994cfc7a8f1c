//! Nodes of different releases in one cluster: what they agree on, and that nobody on the way has a say in it.

use super::common::{Cluster, KEY, SOON, three};
use super::rules::{SECOND, said_to};
use replication::node::SpokenCounts;
use replication::wire::{NodeMessage, Protocol, Release};

/// A hello that says something else than the one which was proven: its node does not know the key, for all that the other one can
/// see.
pub fn what_was_changed_on_its_way_is_no_hello() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    let (later, this) = (Protocol::rehearsal(), Protocol::of_this_build());
    let heard = said_to(&cluster, KEY, (later, later));
    assert!(matches!(heard[..], [NodeMessage::HelloAnswer(_), NodeMessage::Pong, ..]), "{heard:?}");
    for changed in [this, Protocol { newest: this.newest, ..later }, Protocol { features: this.features, ..later }] {
        let heard = said_to(&cluster, KEY, (later, changed));
        let [NodeMessage::HelloAnswer(_), NodeMessage::HelloRefused(refused)] = &heard[..] else { panic!("{heard:?}") };
        assert!(refused.reason.contains("does not know this cluster's key"), "{}", refused.reason);
    }
}

fn spoken(cluster: &Cluster) -> Vec<SpokenCounts> {
    (0..3).map(|index| cluster.of_node(index, replication::node::Node::spoken)).collect()
}

/// Nodes 1 and 2 are of a release after this one, then node 0 instead of node 1: who is of this one is not sent what it does not know,
/// and nobody loses a connection.
pub fn releases_run_side_by_side() {
    let cluster = Cluster::new(1, 3, 2);
    cluster.speaks.borrow_mut().extend([1, 2].map(|index| (index, Protocol::rehearsal())));
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.wait_for_all(SOON);
    cluster.world.run_for(5 * SECOND);
    cluster.write(0, 3, 7).expect("it is up").expect("it is written");
    let counts = spoken(&cluster);
    assert_eq!(counts[0], SpokenCounts::default(), "{counts:?}");
    for later in &counts[1..] {
        assert!(later.received >= 10 && later.fields_received >= 10 && later.sent >= 10, "{counts:?}");
        // To the other one alone: some four in a second.
        assert!(later.refused == 0 && later.sent <= 4 * 20, "{counts:?}");
    }
    cluster.speaks.borrow_mut().remove(&1);
    cluster.speaks.borrow_mut().insert(0, Protocol::rehearsal());
    for index in [1, 0] {
        cluster.crash(index);
        cluster.start(index);
        cluster.world.run_for(SECOND);
        cluster.wait_for_all(SOON);
    }
    cluster.world.run_for(5 * SECOND);
    let counts = spoken(&cluster);
    assert_eq!(counts[1], SpokenCounts::default(), "{counts:?}");
    assert!(counts[0].received >= 10 && counts[0].refused == 0 && counts[2].refused == 0, "{counts:?}");
    let primary = cluster.wait_for_primary(&[0, 1, 2], SOON);
    assert_eq!(cluster.read(primary, 3), Some(Ok(7)));
}

/// Node 2 speaks nothing that the others do: both sides say so, and what to do; the others go on, and so does it as soon as it is
/// brought to another release.
pub fn who_has_no_version_in_common_is_told() {
    let cluster = Cluster::new(1, 3, 2);
    let far = Protocol { oldest: 8, newest: 9, release: Release([7, 0, 0]), ..Protocol::of_this_build() };
    cluster.speaks.borrow_mut().insert(2, far);
    (0..3).for_each(|index| cluster.start(index));
    let primary = cluster.wait_for_primary(&[0, 1], SOON);
    cluster.write(primary, 3, 7).expect("it is up").expect("it is written");
    cluster.world.run_for(SECOND);
    let apart = |index| cluster.of_node(index, replication::node::Node::apart);
    for index in 0..2 {
        let told = apart(index);
        let [(node, why)] = &told[..] else { panic!("{told:?}") };
        let upgrade =
            format!("upgrade node-{} to a release that speaks version 8 (that of node-3 is 7.0.0)", index + 1);
        assert!(node.0 == 3 && why.contains(&upgrade), "{why}");
    }
    assert_eq!(apart(2).iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [1, 2]);
    cluster.speaks.borrow_mut().remove(&2);
    cluster.crash(2);
    cluster.start(2);
    cluster.wait_for_all(SOON);
    assert!((0..3).all(|index| apart(index).is_empty()));
}

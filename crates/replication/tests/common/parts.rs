//! R21 of docs/replication.md: nodes that do not hear each other, and who of them goes on.

use super::common::{Cluster, SOON, three};
use super::rules::{SECOND, assert_alike};

/// Links of the first node with two others.
const BOTH_WAYS: [(usize, usize); 4] = [(0, 1), (1, 0), (0, 2), (2, 0)];

/// The first node, which leads, and two others do not hear each other any more; one of these leads, and takes a write.
fn followed_by_others(cluster: &Cluster) -> usize {
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 1, 7).expect("it is up").expect("it is written");
    BOTH_WAYS.iter().for_each(|(from, to)| cluster.cut(*from, *to));
    let primary = cluster.wait_for_primary(&[1, 2], 6 * SECOND);
    cluster.write(primary, 1, 8).expect("it is up").expect("it is written");
    primary
}

/// Links work again, and the first node holds what this one does, which led meanwhile.
fn hear_again(cluster: &Cluster, links: &[(usize, usize)], primary: usize) {
    links.iter().for_each(|(from, to)| cluster.heal(*from, *to));
    cluster.wait_for_all(3 * SOON);
    assert_alike(cluster, 0, primary);
}

/// R10, R21: a primary hears no other node and reaches the map. It does not remove the others, who hear each other and go on without
/// it, and does not take the lead back.
pub fn who_hears_nobody_leaves_the_others_to_go_on() {
    let cluster = three();
    let primary = followed_by_others(&cluster);
    // Longer than it takes a node to be sure that it is alone.
    cluster.world.run_for(15 * SECOND);
    cluster.write(primary, 1, 9).expect("it is up").expect("it is written");
    assert!(cluster.nodes[0].is_up() && cluster.standing(0).is_some_and(|standing| !standing.serves));
    hear_again(&cluster, &BOTH_WAYS, primary);
}

/// R18, R21: a primary hears half of the nodes, and too few of its group's to commit anything. It does not remove those whom it does not
/// hear before they can have taken the lead: they hear enough.
pub fn who_hears_too_few_of_its_group_leaves_the_others_to_go_on() {
    let cluster = Cluster::new(1, 5, 4);
    (0..5).for_each(|index| cluster.start(index));
    let primary = followed_by_others(&cluster);
    hear_again(&cluster, &BOTH_WAYS, primary);
}

/// R18, R21: of two nodes that do not hear each other one gives its session up later, and what it leads alone nobody could serve then. It
/// does not remove the other before that has taken the lead, and removed it.
pub fn of_two_that_hear_nobody_the_smaller_takes_the_lead() {
    let cluster = Cluster::new(1, 2, 1);
    (0..2).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 1, 7).expect("it is up").expect("it is written");
    cluster.crash(0);
    cluster.wait_for_primary(&[1], 25 * SECOND);
    cluster.start(0);
    cluster.wait_for_all(3 * SOON);
    cluster.wait_for_primary(&[1], SOON);
    let links = [(0, 1), (1, 0)];
    links.iter().for_each(|(from, to)| cluster.cut(*from, *to));
    cluster.wait_for_primary(&[0], 6 * SECOND);
    cluster.write(0, 1, 8).expect("it is up").expect("it is written");
    // Longer than the other keeps its session.
    cluster.world.run_for(15 * SECOND);
    cluster.write(0, 1, 9).expect("it is up").expect("it is written");
    hear_again(&cluster, &links, 1);
}

/// R21: the only member that is left in sync hears no other node and keeps its session in the map: it can commit nothing, and those
/// who were removed, and hold the same, may not take over as long as it has that.
pub fn who_is_left_and_hears_nobody_gives_its_session_up() {
    let cluster = three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 1, 7).expect("it is up").expect("it is written");
    cluster.crash(1);
    cluster.crash(2);
    cluster.wait_until("they are not removed", 2 * SOON, |cluster| cluster.record().eligible.len() == 2);
    BOTH_WAYS.iter().for_each(|(from, to)| cluster.cut(*from, *to));
    cluster.start(1);
    cluster.start(2);
    let primary = cluster.wait_for_primary(&[1, 2], 25 * SECOND);
    cluster.write(primary, 1, 8).expect("it is up").expect("it is written");
    hear_again(&cluster, &BOTH_WAYS, primary);
}

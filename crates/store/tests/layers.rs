//! Layers: snapshots, clones and rollbacks as the store sees them; layers merged away and deleted while others write, a
//! pass is written, and the lights go out. Reads and counts are those of a plain model at every moment that is looked at.

mod common;

use common::layers::{an_ended_leaf_in_an_older_pass_stays_away, layers_survive};

#[test]
fn what_volumes_and_snapshots_see_survives_merges_deletions_and_crashes() {
    let (mut merged, mut ended, mut passes) = (0, 0, 0);
    for seed in 0..6 {
        let met = layers_survive(seed, 10, 400);
        (merged, ended, passes) = (merged + met.merged_chunks, ended + met.ended_layers, passes + met.passes);
    }
    println!("{merged} chunks merged, {ended} layers ended, {passes} passes");
    assert!(merged > 1000 && ended > 20 && passes > 20, "the crashes met nothing of interest");
}

#[test]
fn a_layer_that_has_ended_does_not_come_back_from_an_older_pass() {
    an_ended_leaf_in_an_older_pass_stays_away();
}

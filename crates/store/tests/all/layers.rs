//! Layers: snapshots, clones and rollbacks as the store sees them; layers merged away and deleted while others write, a
//! pass is written, and the lights go out. Reads and counts are those of a plain model at every moment that is looked
//! at.

use crate::common::MIB;
use crate::common::layers::{
    Extracted, Met, a_late_leaf_of_a_layer_that_is_gone_has_its_family, a_merge_behind_the_walk_of_a_pass_is_in_it,
    an_ended_leaf_in_an_older_pass_stays_away, layers_survive, layers_survive_watched,
};
use crate::common::reader::DiskCopy;

#[test]
fn what_volumes_and_snapshots_see_survives_merges_deletions_and_crashes() {
    let (mut merged, mut ended, mut passes, mut cleaned) = (0, 0, 0, 0);
    for seed in 0..6 {
        let met = layers_survive(seed, 10, 400);
        (merged, ended, passes) = (merged + met.merged_chunks, ended + met.ended_layers, passes + met.passes);
        cleaned += met.cleaned;
    }
    println!("{merged} chunks merged, {ended} layers ended, {passes} passes, {cleaned} segments cleaned");
    assert!(merged > 1000 && ended > 20 && passes > 20 && cleaned > 20, "the crashes met nothing of interest");
}

/// The same disks after each crash, as `tools/read-device.py` sees them.
#[test]
fn a_reader_that_knows_only_the_document_sees_the_same_layers() {
    const VOLUME_BYTES: u64 = crate::common::layers::CHUNKS as u64 * MIB;
    let (mut met, mut layers) = (Met::default(), 0);
    for seed in 20..22 {
        let of_seed = layers_survive_watched(seed, 7, 300, |rig, layer| {
            layers += 1;
            let copy = DiskCopy::of(&rig.disk, 512 * MIB);
            copy.verify();
            let bytes = copy.extract(layer, VOLUME_BYTES);
            Some(Extracted { layer, bytes })
        });
        met.merged_chunks += of_seed.merged_chunks;
        met.ended_layers += of_seed.ended_layers;
        met.passes += of_seed.passes;
    }
    println!("{layers} layers were extracted; {met:?}");
    assert!(met.merged_chunks > 200 && met.ended_layers > 4, "the crashes met nothing of interest: {met:?}");
}

#[test]
fn a_late_leaf_of_a_layer_that_is_gone_has_its_family_still() {
    a_late_leaf_of_a_layer_that_is_gone_has_its_family();
}

#[test]
fn a_layer_that_has_ended_does_not_come_back_from_an_older_pass() {
    an_ended_leaf_in_an_older_pass_stays_away();
}

#[test]
fn a_chunk_merged_during_a_pass_is_in_the_pass() {
    a_merge_behind_the_walk_of_a_pass_is_in_it();
}

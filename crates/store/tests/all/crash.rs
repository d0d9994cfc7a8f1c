//! Power losses and kills at random moments, also while the store is being opened, while appends and flushes fail,
//! after long idle times: what was acknowledged is there, nothing is half there, nothing else is; and a check of the
//! device calls none of it damage.

use crate::common::openings::an_opening_that_is_cut_off_leaves_no_damage;
use crate::common::*;
use runtime::sim::DiskFaults;
use std::time::Duration;
use store::Damage;
use store::check::{CheckOptions, Finding, Severity, What};

const GROUPS: u32 = 4;
const CHUNKS: u32 = 3;
/// With these seeds blocks are written as if they were compressed.
const CODED: std::ops::Range<u64> = 300..304;
/// A check reads the whole device: after every third end.
const CHECKED_EACH: u32 = 3;

/// Opens, and is ended on the way, now and then.
fn open_in_vain(rig: &Rig) {
    while rig.random.one_in(6) {
        rig.node.spawn(0, async {
            drop(open().await);
        });
        rig.world.run_for(Duration::from_micros(rig.random.between(1, 30_000)));
        end(rig, 2);
    }
}

/// Everything acknowledged is there after each of `count` ends. Returns how many passes there were, and refused
/// appends.
fn survives(seed: u64, count: u32, faults: DiskFaults) -> (u64, u64) {
    let (mut passes, mut refused, mut traces) = (0, 0, 0);
    let rig = rig_for(seed);
    let model = model_of(GROUPS);
    model.borrow_mut().coded = CODED.contains(&seed);
    for i in 0..count {
        open_in_vain(&rig);
        let client = reopen(&rig, &model);
        let reading = client.clone();
        rig.run(async move { reading.verify().await });
        if rig.random.one_in(3) {
            rig.disk.set_faults(faults);
        }
        write_on(&rig, &client, GROUPS, CHUNKS);
        let longest_us = if i % 8 == 0 { 400_000 } else { 20_000 };
        rig.world.run_for(Duration::from_micros(rig.random.between(1, longest_us)));
        end(&rig, 1);
        let statistics = client.shard.statistics();
        (passes, refused) = (passes + statistics.passes, refused + statistics.append_failures);
        rig.disk.set_faults(DiskFaults::default());
        if i % CHECKED_EACH != 0 {
            continue;
        }
        let checked = check(&rig, CheckOptions::default());
        // A slot of the superblock may be torn: nobody can tell that from rot.
        let is_slot = |finding: &Finding| matches!(finding.what, What::Damage(Damage::Superblock { .. }));
        let damage =
            checked.findings.iter().filter(|finding| finding.severity() > Severity::Trace && !is_slot(finding));
        assert_eq!(damage.collect::<Vec<_>>(), [] as [&Finding; 0], "seed {seed}, end {i}");
        traces += checked.count(Severity::Trace);
    }
    println!("seed {seed}: {traces} traces of crashes");
    (passes, refused)
}

#[test]
fn what_was_acknowledged_survives_crashes_kills_and_crashes_while_opening() {
    let passes: u64 = (0..4).map(|seed| survives(seed, 50, DiskFaults::default()).0).sum();
    assert!(passes > 20, "{passes} passes: the crashes met nothing of interest");
}

#[test]
fn compressed_blocks_survive_as_plain_ones_do() {
    let passes: u64 = CODED.map(|seed| survives(seed, 40, DiskFaults::default()).0).sum();
    assert!(passes > 10, "{passes} passes: the crashes met nothing of interest");
}

#[test]
fn what_was_acknowledged_survives_failed_appends() {
    let faults = DiskFaults { write_error: 40_000, ..DiskFaults::default() };
    let refused: u64 = (100..104).map(|seed| survives(seed, 50, faults).1).sum();
    assert!(refused > 10, "{refused} refused appends");
}

/// A flush that failed has made durable what nobody knows, and the next one does not say: what is taken over from
/// before it is written again.
#[test]
fn what_was_acknowledged_survives_failed_flushes() {
    for seed in 200..208 {
        survives(seed, 40, DiskFaults { flush_error: 50_000, ..DiskFaults::default() });
    }
}

/// The opening says which holes are accepted: nothing that takes them for granted becomes durable before it.
#[test]
fn an_opening_that_is_cut_off_is_as_if_it_had_not_begun() {
    let with_holes: u64 = (0..1).map(an_opening_that_is_cut_off_leaves_no_damage).sum();
    assert!(with_holes > 20, "{with_holes} openings were cut off behind a hole");
}

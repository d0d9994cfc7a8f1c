//! A device that fails while its node serves: writes or reads are errors, slow, or not answered, or there is no room.

use crate::cluster::{Cluster, SPREAD, Shape};
use crate::faulty::Fault;
use crate::load;
use crate::moves::groups_of;
use crate::scenario::{BEFORE, MIB, Run, end_and_return};
use crate::told;
use std::time::Duration;
use torture::load::Plan;

/// The node whose device it is: it leads a third of the groups, and has no head.
const NODE: usize = 3;
/// Where reads fail: half of the device, what was written first among it.
const UNREADABLE: std::ops::Range<u64> = 16 * MIB..272 * MIB;
/// A device that takes so long for a request is one that is busy.
const BUSY: Duration = Duration::from_millis(300);
/// An append that takes longer than 2 s makes a device slow.
pub const SLOW: Duration = Duration::from_millis(2500);
/// So long a busy one is looked at.
const BUSY_TIME: Duration = Duration::from_secs(10);

/// Each write and each sync is an error from now on.
pub fn erring() {
    let run = with_faulty();
    fails(run, |run| run.cluster.fault(NODE, Fault::WritesFail), |run| run.cluster.fault(NODE, Fault::None), "failed");
}

/// A device takes writes and answers none.
pub fn hanging() {
    let run = with_faulty();
    fails(run, |run| run.cluster.fault(NODE, Fault::WritesHang), |run| run.cluster.fault(NODE, Fault::None), "slow");
}

/// A device takes writes and answers no read.
pub fn reads_hanging() {
    let run = with_faulty();
    fails(run, |run| run.cluster.fault(NODE, Fault::ReadsHang), |run| run.cluster.fault(NODE, Fault::None), "a read");
}

/// Each write to a place where nothing is yet is an error: there is no room on what the device lies on.
pub fn no_places() {
    let mut run = Run::new(SPREAD, Some(2));
    run.cluster.cut();
    run.cluster.put_in_memory(NODE);
    goes_on(&mut run);
    fails(run, |run| run.cluster.medium(NODE).is_full(), |run| run.cluster.medium(NODE).has_room(), "failed");
}

/// Reads of a half of the device are errors: what lies there is read from others.
pub fn unreadable() {
    let run = with_faulty();
    run.cluster.fault(NODE, Fault::ReadsFail(UNREADABLE));
    is_told(&run, "places are damaged");
    run.cluster.until_answered("the load has answers", &run.load);
    run.cluster.pause(BEFORE, &run.load);
    run.cluster.fault(NODE, Fault::None);
    println!("      {}", run.cluster.agrees());
    run.cluster.until("nothing is said to be damaged", Some(&run.load), |cluster| {
        cluster.is_whole() && cluster.damage_of(NODE) == Some(0)
    });
    run.judge();
}

/// Each request takes 0.3 s, which all who wait for the device wait for; then 2.5 s: the others go on without it until it is
/// quick again.
pub fn slow() {
    let run = with_faulty();
    run.cluster.fault(NODE, Fault::Slow(BUSY));
    let before = run.load.completed();
    run.cluster.pause(BUSY_TIME, &run.load);
    println!("      with a busy device: {} answers in {BUSY_TIME:?}", run.load.completed() - before);
    assert!(run.load.completed() > before, "a busy device is waited for");
    assert!(!run.cluster.has_said("is slow"), "a busy device is not slow: {:?}", run.cluster.causes);
    run.cluster.fault(NODE, Fault::Slow(SLOW));
    is_told(&run, "is slow");
    run.cluster.until_answered("the load has answers without it", &run.load);
    run.cluster.fault(NODE, Fault::None);
    println!("      {}", run.cluster.agrees());
    run.judge();
}

/// One of three devices is much smaller than the others, and full: new blocks are refused, what is there is written over.
pub fn full() {
    const SMALL: u64 = 320 * MIB;
    let mut cluster = Cluster::new(Shape { device_size: "1G", ..SPREAD });
    let (old, new) = cluster.add_device(NODE, SMALL);
    cluster.cairn(&["device", "replace", &old, &new]);
    cluster.until("all is on the smaller device", None, |cluster| {
        cluster.is_whole() && groups_of(cluster, &old) == Some(0)
    });
    cluster.cairn(&["device", "rm", &old]);
    let plan = Plan { is_full: true, ..load::plan(cluster.target(Some(2)), 1) };
    let run = Run::with(cluster, plan);
    run.cluster.fills("ballast");
    is_told(&run, "% full, new blocks are refused");
    run.cluster.until_answered("what is there is written over", &run.load);
    run.cluster.pause(BEFORE, &run.load);
    run.cluster.cairn(&["volume", "delete", "ballast", "--now"]);
    run.cluster.until("the cluster is whole again", Some(&run.load), Cluster::is_whole);
    assert!(run.cluster.takes("next", 32 * MIB), "new blocks are taken again");
    println!("      {}", run.cluster.agrees());
    run.judge();
}

/// A cluster under load, a device of which can be made to fail.
fn with_faulty() -> Run {
    let mut run = Run::new(SPREAD, Some(2));
    run.cluster.cut();
    run.cluster.make_faulty(NODE);
    goes_on(&mut run);
    run
}

fn goes_on(run: &mut Run) {
    run.cluster.start_again();
    run.cluster.until("the cluster is whole", Some(&run.load), Cluster::is_whole);
    run.cluster.until_answered("the load goes on", &run.load);
}

/// The device fails: status says so in these words, and the others go on. When it is as it was its node starts anew, and it is used
/// as before.
fn fails(run: Run, fail: impl Fn(&Run), mend: impl Fn(&Run), words: &str) {
    let worker = run.cluster.node(NODE).worker;
    fail(&run);
    is_told(&run, words);
    run.cluster.until_answered("the load has answers without it", &run.load);
    mend(&run);
    end_and_return(&run, NODE, worker);
    run.judge();
}

/// Waits until status says of the device in these words what is wrong: how bad it is, what is at risk, and what to run.
pub fn is_told(run: &Run, words: &str) {
    let what = format!("status says: {words}");
    run.cluster.until(&what, Some(&run.load), |cluster| {
        cluster.findings().iter().any(|one| told::of_device(one, NODE, words))
    });
}

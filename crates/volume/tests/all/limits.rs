//! What a volume may do in a second: over all cores, changed while it is used, and in nobody's way.

use crate::common::limits::{check_live_change, in_time, iops, limited, load, set_iops, start, write_in_turn};
use crate::common::new_volume;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use volume::{Cost, LimitChange, Limits, VolumeChange, VolumeError};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_rate_is_kept_over_all_cores_together() {
    for cores in [1, 2] {
        let (machine, assembly) = start(cores as u64, cores);
        machine.run(async move {
            assembly.create_volume(limited("v", iops(300))).await.expect("made");
            let done = load(&assembly, cores, "v");
            runtime::sleep(SECOND).await;
            let in_ten_seconds = in_time(&done, 10 * SECOND).await;
            assert!((2990..=3010).contains(&in_ten_seconds), "{cores} cores: {in_ten_seconds}");
        });
    }
}

#[test]
fn bytes_are_counted_beside_commands() {
    let (machine, assembly) = start(3, 2);
    machine.run(async move {
        let limits = Limits { iops: Some(10_000), bytes_per_second: Some(4096 * 200), ..Limits::default() };
        assembly.create_volume(limited("v", limits)).await.expect("made");
        let done = load(&assembly, 2, "v");
        runtime::sleep(SECOND).await;
        let in_ten_seconds = in_time(&done, 10 * SECOND).await;
        assert!((1990..=2010).contains(&in_ten_seconds), "{in_ten_seconds}");
    });
}

#[test]
fn what_was_not_used_may_be_once_and_then_the_rate_holds() {
    let (machine, assembly) = start(4, 2);
    machine.run(async move {
        let limits = Limits { burst_ms: Some(5000), ..iops(100) };
        assembly.create_volume(limited("v", limits)).await.expect("made");
        runtime::sleep(20 * SECOND).await;
        let done = load(&assembly, 2, "v");
        // Half a second of the rate, and five seconds that were saved up; not the twenty.
        let at_first = in_time(&done, SECOND / 2).await;
        assert!((540..=560).contains(&at_first), "{at_first}");
        let later = in_time(&done, 10 * SECOND).await;
        assert!((995..=1005).contains(&later), "{later}");
    });
}

#[test]
fn a_change_is_obeyed_within_a_second_by_what_waits_too() {
    assert_eq!(check_live_change(5), Ok(()));
    let (machine, assembly) = start(6, 2);
    machine.run(async move {
        assembly.create_volume(new_volume("v", 8 << 20)).await.expect("made");
        let done = load(&assembly, 2, "v");
        let free = in_time(&done, SECOND).await;
        assert!(free > 10_000, "no limit, no effect: {free}");
        assembly.change_volume("v", &set_iops(Some(50))).await.expect("changed");
        runtime::sleep(SECOND).await;
        let limited = in_time(&done, 10 * SECOND).await;
        assert!((495..=505).contains(&limited), "{limited}");
        let again = assembly.change_volume("v", &set_iops(None)).await.expect("changed");
        assert_eq!(again.limits, Limits::default());
        runtime::sleep(SECOND).await;
        let free_again = in_time(&done, SECOND).await;
        assert!(free_again > 10_000, "{free_again}");
    });
}

/// What waits is not admitted: nobody who changes the volume, or takes it away, waits for it.
#[test]
fn snapshots_rollbacks_and_deletion_pass_what_waits() {
    let (machine, assembly) = start(7, 2);
    machine.run(async move {
        assembly.create_volume(limited("v", iops(1))).await.expect("made");
        let _done = load(&assembly, 2, "v");
        runtime::sleep(10 * SECOND).await;
        let began = runtime::now();
        assembly.create_snapshot("v", "s").await.expect("taken");
        assembly.roll_back("v", "s").await.expect("rolled back");
        assembly.delete_snapshot("v", "s").await.expect("deleted");
        assert!(runtime::now().since(began) < SECOND, "{:?}", runtime::now().since(began));
        // A snapshot changes no limit: nobody got a new burst by it.
        let volume = assembly.directory().by_name("v").expect("served");
        let let_go = Rc::new(Cell::new(false));
        let (waiting, gone) = (volume.clone(), let_go.clone());
        runtime::spawn(async move {
            waiting.hold(Cost::of(4096), || || false).expect("others wait").await;
            gone.set(true);
        });
        runtime::yield_now().await;
        let began = runtime::now();
        assembly.delete_volume("v").await.expect("deleted");
        assert!(runtime::now().since(began) < SECOND, "{:?}", runtime::now().since(began));
        runtime::sleep(SECOND).await;
        assert!(let_go.get(), "nothing waits for a volume that is gone");
    });
}

#[test]
fn who_is_not_wanted_any_more_waits_no_longer_and_takes_nothing() {
    let (machine, assembly) = start(8, 1);
    machine.run(async move {
        let limits = Limits { burst_ms: Some(10), ..iops(1) };
        assembly.create_volume(limited("v", limits)).await.expect("made");
        let volume = assembly.directory().by_name("v").expect("served");
        runtime::sleep(10 * SECOND).await;
        write_in_turn(&volume, 0).await.expect("written");
        let over = Rc::new(Cell::new(false));
        let turns: Vec<_> = (0..50)
            .map(|_| {
                let over = over.clone();
                volume.hold(Cost::of(0), || move || over.get()).expect("one in a second")
            })
            .collect();
        let dropped = volume.hold(Cost::of(0), || || false);
        drop(dropped);
        over.set(true);
        let began = runtime::now();
        for turn in turns {
            turn.await;
        }
        assert!(runtime::now().since(began) < SECOND / 2);
        let turn = volume.hold(Cost::of(0), || || false);
        if let Some(turn) = turn {
            turn.await;
        }
        assert!(runtime::now().since(began) <= 2 * SECOND, "the first of them had its place, and no other");
    });
}

#[test]
fn limits_are_kept_and_checked() {
    let (machine, assembly) = start(9, 1);
    let limits = Limits { bytes_per_second: Some(1 << 20), burst_ms: Some(2000), ..iops(50) };
    machine.run({
        let assembly = assembly.clone();
        async move {
            assembly.create_volume(limited("v", limits)).await.expect("made");
            assembly.create_snapshot("v", "s").await.expect("taken");
            assert_eq!(assembly.clone_volume("v", "s", "copy").await.expect("made").limits, limits);
            let zero = assembly.change_volume("v", &set_iops(Some(0))).await;
            assert!(matches!(zero, Err(VolumeError::BadLimit(_))), "{zero:?}");
            let burst = LimitChange { burst_ms: Some(Some(1)), ..LimitChange::default() };
            assert!(assembly.change_volume("v", &VolumeChange::limits(burst)).await.is_err());
            assembly.stop().await;
        }
    });
    drop(assembly);
    machine.crash();
    let assembly = machine.start();
    machine.run(async move {
        assert_eq!(assembly.volumes().iter().map(|info| info.limits).collect::<Vec<_>>(), [limits, limits]);
        let done = load(&assembly, 1, "v");
        runtime::sleep(SECOND).await;
        let in_ten_seconds = in_time(&done, 10 * SECOND).await;
        assert!((495..=505).contains(&in_ten_seconds), "{in_ten_seconds}");
    });
}

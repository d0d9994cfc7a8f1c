//! Time, cores, crashes of what runs, and the same run from the same seed.

use super::*;
use crate::sim::{DiskFaults, Stopped};
use crate::{channel, now, random_u64, sleep, spawn, timeout, wall_clock_ns};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    let world = World::new(1);
    let node = world.add_node(1, NodeOptions::default());
    let order = Rc::new(RefCell::new(Vec::new()));
    let log = order.clone();
    let run = async move {
        let (sender, mut receiver) = channel::bounded(8);
        for milliseconds in [30u64, 10, 20, 3_600_000] {
            let (log, sender) = (log.clone(), sender.clone());
            spawn(async move {
                let start = now();
                sleep(Duration::from_millis(milliseconds)).await;
                let slept = now().since(start);
                assert!(slept >= Duration::from_millis(milliseconds));
                assert!(slept < Duration::from_millis(milliseconds) + Duration::from_micros(10));
                log.borrow_mut().push(milliseconds);
                sender.try_send(()).expect("room");
            });
        }
        for _ in 0..4 {
            receiver.recv().await.expect("a sender lives");
        }
    };
    world.run_on(&node, 0, run).expect("it ends");
    assert_eq!(*order.borrow(), [10, 20, 30, 3_600_000]);
    assert!(world.now() >= Duration::from_secs(3600));
}

#[test]
fn clocks_differ_in_start_and_rate() {
    let world = World::new(2);
    let fast = NodeOptions { clock_rate_offset_ppm: 20_000, clock_start: Duration::from_secs(5), ..Default::default() };
    let fast = world.add_node(1, fast);
    let exact = world.add_node(1, NodeOptions { wall_clock_offset_ns: -7, ..NodeOptions::default() });
    world.run_for(Duration::from_secs(100));
    let (fast_now, fast_wall) = world.run_on(&fast, 0, async { (now(), wall_clock_ns()) }).expect("it ends");
    let (exact_now, exact_wall) = world.run_on(&exact, 0, async { (now(), wall_clock_ns()) }).expect("it ends");
    assert_eq!(fast_now.0 / 1_000_000, 107_000);
    assert_eq!(exact_now.0 / 1_000_000, 100_000);
    assert!(fast_wall.abs_diff(exact_wall) < 100_000);
    let before = world.now();
    world.run_on(&fast, 0, async { sleep(Duration::from_millis(1020)).await }).expect("it ends");
    let passed = world.now() - before;
    assert!(passed >= Duration::from_millis(1000) && passed < Duration::from_millis(1001), "{passed:?}");
}

#[test]
fn a_clock_whose_rate_changes_goes_on_from_where_it_was() {
    let world = World::new(2);
    let node = world.add_node(1, NodeOptions::default());
    world.run_for(Duration::from_secs(10));
    node.set_clock_rate_offset(20_000);
    assert_eq!(node.look(0, now).0, 10_000_000_000);
    world.run_for(Duration::from_secs(10));
    assert_eq!(node.look(0, now).0, 20_200_000_000);
}

#[test]
fn a_run_to_a_time_ends_there_or_earlier_and_a_core_that_stands_still_can_be_looked_at() {
    let world = World::new(2);
    let node = world.add_node(1, NodeOptions::default());
    node.pause();
    node.spawn(0, async { sleep(Duration::from_secs(1)).await });
    world.run_to(Duration::from_secs(7), || false).expect("few steps");
    assert_eq!((world.now(), node.look(0, now).0), (Duration::from_secs(7), 7_000_000_000));
    node.resume();
    let began = world.steps();
    world.run_to(Duration::from_secs(20), || world.steps() > began).expect("few steps");
    assert!(world.now() < Duration::from_secs(8));
}

#[test]
fn cores_of_a_node_talk_through_channels_and_handles() {
    let world = World::new(3);
    let node = world.add_node(2, NodeOptions::default());
    let other = node.core(1);
    let run = async move {
        let (to, mut from_first) = channel::cross::<u64>(2);
        let (back, mut answers) = channel::cross::<(u64, u16)>(2);
        other.spawn_on(move || async move {
            while let Ok(value) = from_first.recv().await {
                back.send((value * 2, crate::core_key().0)).await.expect("the other core waits");
            }
        });
        spawn(async move {
            for value in 0..100 {
                to.send(value).await.expect("the other core receives");
            }
        });
        let mut all = Vec::new();
        while let Ok((answer, core)) = answers.recv().await {
            assert_ne!(core, crate::core_key().0);
            all.push(answer);
        }
        all
    };
    let all = world.run_on(&node, 0, run).expect("it ends");
    assert_eq!(all, (0..100).map(|value| value * 2).collect::<Vec<_>>());
}

#[test]
fn a_crash_drops_every_task_and_starts_anew() {
    struct Guard(Rc<Cell<u32>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            spawn(async {}); // a dropped future may still start something
        }
    }
    let world = World::new(4);
    let node = world.add_node(2, NodeOptions::default());
    let dropped = Rc::new(Cell::new(0));
    for core in 0..2 {
        let guard = Guard(dropped.clone());
        node.spawn(core, async move {
            let _guard = guard;
            sleep(Duration::from_secs(1000)).await;
        });
    }
    world.run_for(Duration::from_secs(1));
    let old = node.core(0);
    node.crash();
    assert_eq!((dropped.get(), node.cores().len(), node.is_up()), (2, 0, false));
    old.spawn_on(|| async { panic!("a crashed core starts nothing") });
    node.start();
    world.run_for(Duration::from_secs(2000));
    assert_eq!(world.run_on(&node, 1, async { 5 }), Ok(5));
}

#[test]
fn a_paused_core_stands_still_and_the_others_go_on() {
    let world = World::new(5);
    let node = world.add_node(2, NodeOptions::default());
    let ticks = Rc::new([Cell::new(0), Cell::new(0)]);
    for core in 0..2 {
        let ticks = ticks.clone();
        node.spawn(core, async move {
            loop {
                sleep(Duration::from_millis(1)).await;
                ticks[core].set(ticks[core].get() + 1);
            }
        });
    }
    world.run_for(Duration::from_millis(100));
    let before = ticks[0].get();
    node.pause_core(0);
    world.run_for(Duration::from_millis(100));
    assert!(ticks[0].get() == before && ticks[1].get() > 150);
    node.resume_core(0);
    world.run_for(Duration::from_millis(100));
    assert!(ticks[0].get() > before + 50);
}

#[test]
fn waiting_for_what_never_comes_is_said() {
    let world = World::new(6);
    let node = world.add_node(1, NodeOptions::default());
    assert_eq!(world.run_on(&node, 0, std::future::pending::<()>()), Err(Stopped::Idle));
    world.set_step_bound(10_000);
    let spin = async {
        loop {
            crate::yield_now().await;
        }
    };
    assert_eq!(world.run_on(&node, 0, spin), Err::<(), _>(Stopped::StepBound));
}

#[test]
fn a_timeout_ends_in_virtual_time() {
    let world = World::new(7);
    let node = world.add_node(1, NodeOptions::default());
    let run = timeout(Duration::from_secs(86_400), std::future::pending::<()>());
    assert!(world.run_on(&node, 0, run).expect("it ends").is_err());
}

/// Random reads and writes on two nodes with faults and 40 crashes and kills: how many ended, and the trace's hash.
fn busy_run(seed: u64, round: Duration) -> (u64, u64) {
    let world = World::new(seed);
    let faults = DiskFaults { write_error: 1_000, lost_write: 1_000, bit_rot: 1_000, ..DiskFaults::default() };
    let nodes: Vec<SimNode> = (0..2).map(|_| world.add_node(2, NodeOptions::default())).collect();
    for node in &nodes {
        node.add_disk(DISK, DISK_BYTES, DiskOptions { faults, ..DiskOptions::default() });
    }
    let ended = Rc::new(Cell::new(0));
    for crash in 0..20 {
        for (node, task) in nodes.iter().flat_map(|node| (0..8).map(move |task| (node, task))) {
            let ended = ended.clone();
            node.spawn(task % 2, async move {
                let device = open().await;
                loop {
                    let offset = random_u64() % (DISK_BYTES / 4096) * 4096;
                    match random_u64() % 64 {
                        0 => drop(device.sync().await),
                        1..32 => drop(read(&device, offset, 4096).await),
                        _ => drop(write(&device, offset, 4096, random_u64() as u8).await),
                    }
                    ended.set(ended.get() + 1);
                }
            });
        }
        world.run_for(round);
        nodes[crash % 2].restart();
        nodes[1 - crash % 2].kill();
        nodes[1 - crash % 2].start();
    }
    (ended.get(), world.trace_hash())
}

#[test]
fn a_hundred_thousand_operations_and_forty_crashes_are_the_same_run_twice() {
    let run = || busy_run(11, Duration::from_millis(35));
    let (operations, hash) = run();
    assert!(operations >= 100_000, "{operations}");
    assert_eq!((operations, hash), run());
}

#[test]
fn another_seed_is_another_run() {
    let short = Duration::from_millis(1);
    assert_ne!(busy_run(11, short).1, busy_run(12, short).1);
}

//! A core that goes from thread to thread.

use runtime::uring::{BUSY_POLL, Lent};
use runtime::{IoBuf, TcpListener, TcpStream, sleep, spawn};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

/// Waits for what the core's own thread does.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// On which thread something runs there now.
fn thread_of(core: &Lent) -> Arc<Mutex<Option<ThreadId>>> {
    let found = Arc::new(Mutex::new(None));
    let place = found.clone();
    core.handle().spawn_on(move || async move { *place.lock().unwrap() = Some(std::thread::current().id()) });
    found
}

#[test]
fn who_waits_runs_it_and_else_its_own_thread_does() {
    let core = Lent::start(BUSY_POLL).expect("a core");
    let here = std::thread::current().id();
    for _ in 0..3 {
        let found = thread_of(&core);
        wait_until("its own thread runs it", || found.lock().unwrap().is_some());
        let own = found.lock().unwrap().expect("found");
        assert_ne!(own, here);
        assert!(!core.lend(Some(Duration::ZERO), || false), "who only looks takes it from nobody");
        // What finds it in its own thread's hands is still done there.
        let is_run_here = || {
            let found = thread_of(&core);
            assert!(core.lend(Some(LONG), || found.lock().unwrap().is_some()));
            let by = found.lock().unwrap().expect("done");
            assert!(by == here || by == own);
            by == here
        };
        assert!((0..1000).any(|_| is_run_here()));
        let found = thread_of(&core);
        core.give_a_turn();
        let by = found.lock().unwrap().take();
        assert!(by.is_none_or(|by| by == here || by == own), "a turn was given, or its own thread has it");
    }
}

#[test]
fn what_waits_for_time_goes_on_whoever_has_it() {
    let core = Lent::start(BUSY_POLL).expect("a core");
    let beats = Arc::new(AtomicU32::new(0));
    let counts = beats.clone();
    core.handle().spawn_on(move || async move {
        loop {
            sleep(Duration::from_millis(2)).await;
            counts.fetch_add(1, SeqCst);
        }
    });
    wait_until("alone", || beats.load(SeqCst) >= 20);
    let seen = beats.load(SeqCst);
    assert!(core.lend(Some(LONG), || beats.load(SeqCst) >= seen + 20));
    wait_until("left alone again", || beats.load(SeqCst) >= seen + 40);
}

#[test]
fn it_is_lent_for_a_time_at_most() {
    let core = Lent::start(BUSY_POLL).expect("a core");
    let began = Instant::now();
    assert!(core.lend(Some(Duration::from_millis(30)), || false));
    assert!(began.elapsed() >= Duration::from_millis(30));
}

/// A connection that is begun by one thread, used by others, and closed by another.
#[test]
fn connections_go_along() {
    let core = Lent::start(BUSY_POLL).expect("a core");
    let rounds = Arc::new(AtomicUsize::new(0));
    let counts = rounds.clone();
    core.handle().spawn_on(move || async move {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).expect("listens");
        let client = TcpStream::connect(listener.local_address()).await.expect("connects");
        let server = listener.accept().await.expect("accepts");
        spawn(async move {
            let mut parts = Vec::new();
            loop {
                let bytes = server.recv().await.expect("receives");
                if bytes.is_empty() {
                    return;
                }
                parts.push(bytes);
                server.send(&mut parts).await.expect("sends");
            }
        });
        let here = Rc::new(Cell::new(0u8)); // nothing that may be sent
        while here.get() < 200 {
            let mut bytes = IoBuf::new(3000);
            bytes.fill(here.get());
            client.send(&mut vec![bytes.freeze()]).await.expect("sends");
            let (result, back) = client.recv_exact(IoBuf::new(3000)).await;
            result.expect("receives");
            assert!(back.iter().all(|byte| *byte == here.get()));
            here.set(here.get() + 1);
            counts.store(here.get().into(), SeqCst);
        }
    });
    std::thread::scope(|scope| {
        // One after the other, and its own thread in between.
        for part in 1..=4usize {
            let (core, rounds) = (&core, &rounds);
            scope.spawn(move || assert!(core.lend(Some(LONG), || rounds.load(SeqCst) >= part * 40))).join().unwrap();
        }
    });
    wait_until("its own thread does the rest", || rounds.load(SeqCst) == 200);
}

/// Each thread waits for a word of its own, that a task sets some time after it was asked to.
#[test]
fn of_many_who_wait_all_are_served() {
    let core = Lent::start(BUSY_POLL).expect("a core");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let core = &core;
            scope.spawn(move || {
                for round in 0..100u64 {
                    let done = Arc::new(AtomicBool::new(false));
                    let tells = done.clone();
                    core.handle().spawn_on(move || async move {
                        sleep(Duration::from_micros(100 + 37 * ((thread + round) % 5))).await;
                        tells.store(true, SeqCst);
                    });
                    while !done.load(SeqCst) {
                        if !core.lend(Some(LONG), || done.load(SeqCst)) {
                            core.as_other(|| wait_until("somebody sees to it", || done.load(SeqCst)));
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn where_others_wait_it_is_not_lent() {
    let core = Lent::start(BUSY_POLL).expect("a core");
    core.as_other(|| {
        assert!(!core.lend(Some(LONG), || false));
        let found = thread_of(&core);
        wait_until("its own thread has it", || found.lock().unwrap().is_some());
    });
    wait_until("later it is lent again", || core.lend(Some(Duration::from_millis(1)), || false));
}

#[test]
fn a_small_stack_is_no_place_for_it() {
    let core = Lent::start(BUSY_POLL).expect("a core");
    let small = std::thread::Builder::new().stack_size(256 << 10);
    std::thread::scope(|scope| {
        let lends = small.spawn_scoped(scope, || core.lend(Some(LONG), || true)).expect("a thread");
        assert!(!lends.join().unwrap());
    });
    assert!(core.lend(Some(LONG), || true));
}

#[test]
fn it_ends_with_its_tasks_also_when_nobody_has_it() {
    for is_lent in [false, true] {
        let core = Lent::start(BUSY_POLL).expect("a core");
        let alive = Arc::new(());
        let held = alive.clone();
        core.handle().spawn_on(move || async move {
            let _held = held;
            sleep(Duration::from_secs(3600)).await;
        });
        if is_lent {
            assert!(core.lend(Some(Duration::from_millis(5)), || false));
        }
        drop(core);
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

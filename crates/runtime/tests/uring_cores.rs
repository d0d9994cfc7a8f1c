//! Cores: start, tasks on another core, wakes between them, stop, and an idle core that sleeps.

use runtime::channel::{cross, oneshot};
use runtime::uring::{Cores, Options, block_on, counters};
use runtime::{CoreKey, TcpListener, TcpStream, core_key, sleep, spawn};
use std::sync::mpsc;
use std::time::Duration;

const ROUNDS: u64 = 2000;

/// Two cores pass a ball. Returns how often it came back, and on which core that was seen, and how often that core slept meanwhile.
fn pass_a_ball(cores: &Cores) -> (u64, CoreKey, u64) {
    let (to_right, mut from_left) = cross::<u64>(1);
    let (to_left, mut from_right) = cross::<u64>(1);
    let (tell, told) = mpsc::channel();
    cores.handles()[0].spawn_on(move || async move {
        let mut ball = 0;
        let before = counters();
        for _ in 0..ROUNDS {
            to_right.send(ball).await.expect("the right core lives");
            ball = from_right.recv().await.expect("the right core answers");
        }
        tell.send((ball, core_key(), counters().sleeps - before.sleeps)).expect("the test waits");
    });
    cores.handles()[1].spawn_on(move || async move {
        while let Ok(ball) = from_left.recv().await {
            to_left.send(ball + 1).await.expect("the left core lives");
        }
    });
    told.recv_timeout(Duration::from_secs(60)).expect("the ball comes back")
}

#[test]
fn two_cores_pass_a_ball() {
    let cores = Cores::start(2, &Options::default()).expect("starts");
    let (ball, key, _) = pass_a_ball(&cores);
    assert_eq!(ball, ROUNDS);
    assert_eq!(key, cores.handles()[0].key());
    cores.stop();
}

#[test]
fn a_core_that_expects_something_looks_and_does_not_sleep() {
    // It sleeps where others take the processor for long: where tests run beside this one not each attempt counts.
    let options = Options { busy_poll: Duration::from_secs(10), ..Options::default() };
    let cores = Cores::start(2, &options).expect("starts");
    assert!((0..50).any(|_| pass_a_ball(&cores).2 < ROUNDS / 10));
}

#[test]
fn a_connection_moves_to_another_core() {
    let cores = Cores::start(2, &Options::default()).expect("starts");
    let second = cores.handles()[1].clone();
    let (tell, told) = mpsc::channel();
    let (tell_address, address) = mpsc::channel();
    cores.handles()[0].spawn_on(move || async move {
        let listener = TcpListener::bind("127.0.0.1:0".parse().expect("an address")).expect("listens");
        tell_address.send(listener.local_address()).expect("the test waits");
        let stream = listener.accept().await.expect("accepts");
        let hello = stream.recv().await.expect("receives");
        let detached = stream.detach();
        second.spawn_on(move || async move {
            let stream = detached.attach();
            stream.send(&mut vec![hello]).await.expect("sends");
            tell.send(core_key()).expect("the test waits");
        });
    });
    let address = address.recv_timeout(Duration::from_secs(60)).expect("listens");
    let back = block_on(async move {
        let stream = TcpStream::connect(address).await.expect("connects");
        stream.send(&mut vec![runtime::IoBuf::copy_of(b"hello").freeze()]).await.expect("sends");
        stream.recv().await.expect("receives").to_vec()
    });
    assert_eq!(back.expect("a ring"), b"hello");
    assert_eq!(told.recv_timeout(Duration::from_secs(60)).expect("served"), cores.handles()[1].key());
}

#[test]
fn an_idle_core_sleeps() {
    block_on(async {
        sleep(Duration::from_millis(5)).await;
        let before = counters();
        sleep(Duration::from_millis(300)).await;
        let after = counters();
        assert!(after.enters - before.enters <= 4, "{before:?} {after:?}");
    })
    .expect("a ring");
}

#[test]
fn stopping_ends_tasks_and_drops_what_they_hold() {
    struct Tell(mpsc::Sender<()>);
    impl Drop for Tell {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let cores = Cores::start(1, &Options::default()).expect("starts");
    let (tell, told) = mpsc::channel();
    let (started, has_started) = mpsc::channel();
    cores.handles()[0].spawn_on(move || async move {
        let _tell = Tell(tell);
        started.send(()).expect("the test waits");
        sleep(Duration::from_secs(3600)).await;
    });
    has_started.recv_timeout(Duration::from_secs(60)).expect("starts");
    let handle = cores.handles()[0].clone();
    cores.stop();
    told.recv_timeout(Duration::from_secs(60)).expect("its value was dropped");
    handle.spawn_on(|| async { panic!("nothing runs on a core that has ended") });
}

#[test]
fn a_wake_from_a_plain_thread_arrives() {
    block_on(async {
        let (sender, mut receiver) = cross::<u32>(4);
        std::thread::spawn(move || {
            for value in 0..100 {
                while sender.try_send(value).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while let Ok(value) = receiver.recv().await {
            assert_eq!(value, expected);
            expected += 1;
        }
        assert_eq!(expected, 100);
    })
    .expect("a ring");
}

#[test]
fn block_on_ends_the_other_tasks() {
    let (sender, receiver) = (std::rc::Rc::new(()), std::cell::Cell::new(0));
    let weak = std::rc::Rc::downgrade(&sender);
    block_on(async move {
        spawn(async move {
            let _held = sender;
            std::future::pending::<()>().await;
        });
        let (tell, told) = oneshot();
        spawn(async move { tell.send(7) });
        assert_eq!(told.recv().await, Ok(7));
    })
    .expect("a ring");
    receiver.set(weak.strong_count());
    assert_eq!(receiver.get(), 0, "the task's values are dropped");
}

/// Set in the child process that is to panic.
const PANIC_VARIABLE: &str = "CAIRN_TEST_PANIC_ON_A_CORE";

#[test]
fn a_panic_on_a_core_ends_the_process_loudly() {
    use std::os::unix::process::ExitStatusExt;
    if std::env::var_os(PANIC_VARIABLE).is_some() {
        let cores = Cores::start(2, &Options::default()).expect("starts");
        cores.handles()[1].spawn_on(|| async { panic!("the stones have fallen") });
        std::thread::sleep(Duration::from_secs(60)); // the process does not live that long
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "a_panic_on_a_core_ends_the_process_loudly", "--nocapture"])
        .env(PANIC_VARIABLE, "1")
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "aborted: {said}");
    assert!(said.contains("the stones have fallen") && said.contains("cairn-core-1 has panicked"), "{said}");
}

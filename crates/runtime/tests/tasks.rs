//! The executor, timers and channels, as every backend runs them (here: the kernel's).

use runtime::channel::{Closed, Full, bounded, cross, oneshot};
use runtime::uring::block_on;
use runtime::{TaskHandle, now, sleep_until, spawn, timeout, turn_end, yield_now};
use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

fn run<F: Future<Output = ()> + 'static>(future: F) {
    block_on(future).expect("a ring");
}

/// Says when it is dropped.
struct Dropped(Rc<Cell<bool>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[test]
fn a_cancelled_task_is_dropped_at_once() {
    run(async {
        let gone = Rc::new(Cell::new(false));
        let held = Dropped(gone.clone());
        let task = spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
        yield_now().await;
        assert!(!gone.get());
        task.cancel();
        assert!(gone.get());
        task.cancel(); // and again: nothing happens
    });
}

#[test]
fn a_task_that_was_never_polled_can_be_cancelled() {
    run(async {
        let ran = Rc::new(Cell::new(false));
        let mark = ran.clone();
        spawn(async move { mark.set(true) }).cancel();
        yield_now().await;
        assert!(!ran.get());
    });
}

#[test]
fn a_task_may_cancel_itself_and_ends_after_its_poll() {
    run(async {
        let steps = Rc::new(RefCell::new(Vec::new()));
        let handle: Rc<Cell<Option<TaskHandle>>> = Rc::default();
        let (own, log) = (handle.clone(), steps.clone());
        handle.set(Some(spawn(async move {
            log.borrow_mut().push("before");
            own.get().expect("set before the first poll").cancel();
            log.borrow_mut().push("after");
            yield_now().await;
            log.borrow_mut().push("never");
        })));
        yield_now().await;
        yield_now().await;
        assert_eq!(*steps.borrow(), ["before", "after"]);
    });
}

#[test]
fn a_task_may_cancel_another_that_is_ready_and_one_that_drops_a_third() {
    run(async {
        let third_gone = Rc::new(Cell::new(false));
        let held = Dropped(third_gone.clone());
        let third = spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
        struct CancelOnDrop(TaskHandle);
        impl Drop for CancelOnDrop {
            fn drop(&mut self) {
                self.0.cancel();
            }
        }
        let ran = Rc::new(Cell::new(false));
        let (mark, chain) = (ran.clone(), CancelOnDrop(third));
        let second = spawn(async move {
            let _chain = chain;
            mark.set(true);
        });
        second.cancel(); // ready, never polled; dropping it cancels the third
        yield_now().await;
        assert!(!ran.get() && third_gone.get());
    });
}

#[test]
fn a_waker_of_a_dead_task_wakes_nobody() {
    run(async {
        let stale: Rc<RefCell<Option<Waker>>> = Rc::default();
        let place = stale.clone();
        spawn(poll_fn(move |cx| {
            *place.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        }));
        yield_now().await;
        let polls = Rc::new(Cell::new(0));
        let count = polls.clone();
        spawn(poll_fn::<(), _>(move |_| {
            count.set(count.get() + 1);
            Poll::Pending
        })); // lives in the slot of the first
        yield_now().await;
        stale.borrow().as_ref().expect("the first task ran").wake_by_ref();
        yield_now().await;
        assert_eq!(polls.get(), 1, "polled once, when it was spawned");
    });
}

#[test]
fn the_end_of_the_turn_comes_after_all_that_was_ready() {
    run(async {
        let log: Rc<RefCell<Vec<String>>> = Rc::default();
        let entry = log.clone();
        spawn(async move {
            turn_end().await;
            entry.borrow_mut().push("end".to_owned());
        });
        for index in 0..3 {
            let entry = log.clone();
            spawn(async move {
                entry.borrow_mut().push(format!("task {index}"));
                yield_now().await;
                entry.borrow_mut().push(format!("task {index} again"));
            });
        }
        turn_end().await;
        turn_end().await;
        let log = log.borrow();
        assert_eq!(log.iter().position(|line| line == "end"), Some(6), "{log:?}");
    });
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    run(async {
        let log: Rc<RefCell<Vec<u64>>> = Rc::default();
        let start = now();
        for milliseconds in [5, 1, 3, 4, 2] {
            let log = log.clone();
            spawn(async move {
                let deadline = start + Duration::from_millis(milliseconds);
                sleep_until(deadline).await;
                assert!(now() >= deadline);
                log.borrow_mut().push(milliseconds);
            });
        }
        sleep_until(start + Duration::from_millis(6)).await;
        assert_eq!(*log.borrow(), [1, 2, 3, 4, 5]);
    });
}

#[test]
fn a_timeout_drops_what_took_too_long_and_gives_what_did_not() {
    run(async {
        let gone = Rc::new(Cell::new(false));
        let held = Dropped(gone.clone());
        let slow = timeout(Duration::from_millis(1), async move {
            let _held = held;
            pending::<()>().await;
        });
        assert!(slow.await.is_err() && gone.get());
        assert_eq!(timeout(Duration::from_secs(3600), async { 7 }).await, Ok(7));
    });
}

#[test]
fn a_bounded_queue_refuses_what_it_has_no_room_for_and_waits_for_it() {
    run(async {
        let (sender, mut receiver) = bounded(2);
        assert_eq!((sender.try_send(1), sender.try_send(2), sender.try_send(3)), (Ok(()), Ok(()), Err(Full(3))));
        let waiting = sender.clone();
        spawn(async move { waiting.send(3).await.expect("there will be room") });
        yield_now().await;
        for expected in 1..=3 {
            assert_eq!(receiver.recv().await, Ok(expected));
            yield_now().await;
        }
        drop(sender);
        yield_now().await;
        assert_eq!(receiver.recv().await, Err(Closed));
    });
}

#[test]
fn a_sender_learns_that_the_receiver_is_gone() {
    run(async {
        let (sender, receiver) = bounded(1);
        sender.try_send(1).expect("room");
        let waiting = spawn({
            let sender = sender.clone();
            async move { assert_eq!(sender.send(2).await, Err(Closed)) }
        });
        yield_now().await;
        drop(receiver);
        yield_now().await;
        waiting.cancel();
        assert_eq!(sender.send(3).await, Err(Closed));
        let (tell, told) = oneshot::<u8>();
        drop(tell);
        assert_eq!(told.recv().await, Err(Closed));
    });
}

#[test]
fn a_queue_between_threads_keeps_the_order_and_its_bound() {
    const COUNT: u32 = 10_000;
    run(async {
        let (sender, mut receiver) = cross(16);
        let (back, mut ends) = cross(1);
        std::thread::spawn(move || {
            let sent = block_on(async move {
                for value in 0..COUNT {
                    sender.send(value).await.expect("the receiver lives");
                }
            });
            back.try_send(sent.is_ok()).expect("room for one");
        });
        for expected in 0..COUNT {
            assert_eq!(receiver.recv().await, Ok(expected));
        }
        assert_eq!(ends.recv().await, Ok(true));
        assert_eq!(receiver.recv().await, Err(Closed));
    });
}

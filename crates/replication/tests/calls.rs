//! Plain calls between nodes: in order, bounded, and over with their connection.

mod common;

use common::{Cluster, SOON, three};
use replication::node::{CALLS_MAX, CallError, CoreGroups, Parcel, Service};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use types::NodeId;

const SERVICE: Service = Service(900);
const TO: usize = 2;
static ENDED: AtomicBool = AtomicBool::new(false);
static KEPT_ENDED: AtomicBool = AtomicBool::new(false);
const MILLISECOND: Duration = Duration::from_millis(1);

fn node(index: usize) -> NodeId {
    NodeId(index as u32 + 1)
}

fn payload(length: usize, byte: u8) -> runtime::SharedBuf {
    runtime::IoBuf::copy_of(&vec![byte; length]).freeze()
}

fn answered(parcel: Parcel) -> Pin<Box<dyn Future<Output = Parcel>>> {
    Box::pin(std::future::ready(parcel))
}

/// All know where the others are.
fn up() -> Cluster {
    let cluster = three();
    cluster.wait_until("all are up", SOON, |cluster| (0..3).all(|index| cluster.process(index).borrow().is_some()));
    cluster.wait_for_primary(&[0, 1, 2], SOON);
    cluster
}

/// Has a core of a node do something.
fn on<T: Send + 'static, F: Future<Output = T> + 'static>(
    cluster: &Cluster,
    index: usize,
    core: usize,
    ask: impl FnOnce(Rc<CoreGroups>) -> F + Send + 'static,
) -> T {
    let process = cluster.process(index);
    cluster.run(index, async move {
        let node = process.borrow().clone().expect("it is up");
        let work = move |core: Rc<CoreGroups>| Box::pin(ask(core)) as Pin<Box<dyn Future<Output = T>>>;
        node.on_core(core, work).await
    })
}

#[test]
fn a_call_is_answered_with_what_it_is_answered() {
    let cluster = up();
    on(&cluster, TO, 0, |core| async move {
        core.answer_calls(
            SERVICE,
            Rc::new(|peer, parcel| {
                let from = (peer.node().0, peer.core());
                Box::pin(async move {
                    runtime::sleep(Duration::from_millis(u64::from(parcel.head[0]))).await;
                    Parcel { head: vec![parcel.head[0], from.0 as u8, from.1 as u8], bytes: parcel.bytes }
                })
            }),
        );
    });
    for core in [0, 1] {
        on(&cluster, 0, core, move |groups| async move {
            let peer = groups.peer(node(TO), 0).expect("it is known");
            let slow = Parcel { head: vec![50], bytes: payload(1 << 20, 1) };
            let slow = peer.try_call(SERVICE, &slow).expect("there is room");
            let quick = groups.call(node(TO), SERVICE, Parcel::of(vec![0])).await.expect("answered");
            assert_eq!((&quick.head[..], quick.bytes.len()), (&[0, 1, core as u8][..], 0));
            let slow = slow.answer().await.expect("answered");
            assert!(slow.head[0] == 50 && slow.bytes.len() == 1 << 20 && slow.bytes.iter().all(|byte| *byte == 1));
            let refused = groups.call(node(TO), Service(901), Parcel::of(Vec::new())).await;
            assert!(matches!(refused, Err(CallError::Refused { node: NodeId(3), .. })), "{refused:?}");
            let unknown = groups.call(NodeId(77), SERVICE, Parcel::of(Vec::new())).await;
            assert_eq!(unknown, Err(CallError::Unknown(NodeId(77))));
        });
    }
}

/// Who is called may call back over the same connection, and hears the answer behind all that was called before.
#[test]
fn calls_are_handed_over_in_order_and_an_answer_comes_behind_them() {
    let cluster = up();
    on(&cluster, 0, 1, |core| async move {
        let calls = Rc::new(Cell::new(0_u8));
        let counted = calls.clone();
        let count = Rc::new(move |_: &_, _| answered(Parcel::of(vec![counted.get()])));
        core.answer_calls(Service(901), count);
        let peer = core.peer(node(TO), 0).expect("it is known");
        runtime::spawn(async move {
            for number in 1..=200 {
                calls.set(number);
                while peer.try_call(SERVICE, &Parcel::of(vec![number])).is_none() {
                    runtime::sleep(MILLISECOND).await;
                }
                runtime::sleep(Duration::from_micros(u64::from(number % 7) * 100)).await;
            }
        });
    });
    on(&cluster, TO, 0, |core| async move {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (heard, asked) = (seen.clone(), Rc::new(Cell::new(0)));
        let done = asked.clone();
        core.answer_calls(
            SERVICE,
            Rc::new(move |peer, parcel| {
                heard.borrow_mut().push(parcel.head[0]);
                let (peer, heard, done) = (peer.clone(), heard.clone(), done.clone());
                Box::pin(async move {
                    let said = peer.call(Service(901), Parcel::of(Vec::new())).await.expect("answered").head[0];
                    assert!(heard.borrow().contains(&said), "{said} was called before, and is heard after");
                    done.set(done.get() + 1);
                    Parcel::of(Vec::new())
                })
            }),
        );
        while asked.get() < 190 {
            runtime::sleep(MILLISECOND).await;
        }
        assert!(seen.borrow().is_sorted(), "{seen:?}");
    });
}

#[test]
fn calls_are_bounded_and_end_with_their_connection() {
    let cluster = up();
    on(&cluster, TO, 0, |core| async move {
        core.answer_calls(SERVICE, Rc::new(|_, _| Box::pin(std::future::pending())));
    });
    on(&cluster, 0, 0, |core| async move {
        let peer = core.peer(node(TO), 0).expect("it is known");
        let mut calls = Vec::new();
        while let Some(called) = peer.try_call(SERVICE, &Parcel::of(vec![1])) {
            calls.push(called);
            runtime::sleep(MILLISECOND).await;
        }
        assert_eq!(calls.len(), CALLS_MAX, "so many and no more");
        // It waits for longer than an idle connection is kept.
        let mut last = Box::pin(calls.pop().expect("many").answer());
        assert!(runtime::timeout(Duration::from_secs(90), &mut last).await.is_err(), "nobody answers");
        drop(calls);
        let more = runtime::timeout(Duration::from_secs(1), peer.call(SERVICE, Parcel::of(vec![1]))).await;
        assert!(more.is_err(), "what nobody waits for any more is being done all the same");
        runtime::spawn(async move {
            assert_eq!(last.await, Err(CallError::Ended(node(TO))));
            peer.over().await;
            let after = peer.call(SERVICE, Parcel::of(vec![1])).await;
            assert_eq!(after, Err(CallError::Unreached(node(TO))), "it has not left");
            ENDED.store(true, Relaxed);
        });
    });
    cluster.crash(TO);
    cluster.wait_until("its calls have ended", SOON, |_| ENDED.load(Relaxed));
}

/// Who asked may have another do it.
#[test]
fn a_call_that_never_left_is_told_from_one_that_may_be_done() {
    let cluster = up();
    cluster.crash(TO);
    on(&cluster, 0, 0, |groups| async move {
        let call = || groups.call(node(TO), SERVICE, Parcel::of(vec![1]));
        // The connection that was there takes one, until it is known to be over.
        while call().await == Err(CallError::Ended(node(TO))) {
            runtime::sleep(MILLISECOND).await;
        }
        assert_eq!(call().await, Err(CallError::Unreached(node(TO))));
    });
}

#[test]
fn a_connection_is_kept_for_who_asks_for_it_and_not_for_longer() {
    let cluster = up();
    // Longer than an idle connection lives.
    const LONG: Duration = Duration::from_secs(90);
    on(&cluster, 0, 1, |core| async move {
        let peer = core.peer(node(TO), 1).expect("it is known");
        let kept = peer.keep();
        runtime::sleep(LONG).await;
        assert!(!peer.is_over(), "it is kept");
        drop(kept);
        runtime::sleep(LONG).await;
        assert!(peer.is_over(), "nobody keeps it");
        let gone = core.peer(node(TO), 1).expect("it is known");
        let _kept = gone.keep();
        runtime::sleep(MILLISECOND * 100).await;
        assert!(!gone.is_over());
    });
    // Who keeps one to a node that is gone hears that it is over.
    on(&cluster, 0, 1, |core| async move {
        let peer = core.peer(node(TO), 1).expect("it is known");
        runtime::spawn(async move {
            let _kept = peer.keep();
            peer.over().await;
            KEPT_ENDED.store(true, Relaxed);
        });
    });
    cluster.crash(TO);
    cluster.wait_until("what was kept is over", SOON, |_| KEPT_ENDED.load(Relaxed));
}

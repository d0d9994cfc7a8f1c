//! Before a client's first request: what was sent for the volume so far has its place, or never will (H17).
//!
//! ```text
//!   head ── settle ─► each connection with sessions of the volume    ◄── settled: behind all that it has sent; who had left has ended
//!        │                                  └── 500 ms without that: its sessions of the volume have ended
//!        └── each of its own cores: clients that have left have ended; all that was called there has its place
//! ```

use super::guest::say_goodbye;
use super::message::{Answer, Asked, Question};
use super::visitors::{self, Answering, Visiting};
use super::{SERVICE, SESSIONS_MAX, SETTLE_WAIT};
use crate::head::Head;
use replication::node::{Parcel, Peer};
use runtime::SharedBuf;
use runtime::channel::cross;
use std::future::ready;
use std::rc::Rc;
use types::{Mutant, VolumeId, mutant};

/// This core answers other nodes from now on, forwarders, if it is the first one, and heads; and says who leaves.
pub(crate) fn answer(head: &Rc<Head>) {
    runtime::spawn(say_goodbye(head.clone()));
    let this = Rc::downgrade(head);
    head.groups.answer_calls(
        SERVICE,
        Rc::new(move |peer, Parcel { head, bytes }| match (this.upgrade(), Question::decode(&head)) {
            (Some(head), Some(question)) => respond(&head, peer, question, bytes),
            _ => Box::pin(ready(Parcel::of(Answer::Over.encode()))),
        }),
    );
}

fn respond(head: &Rc<Head>, peer: &Peer, question: Question, bytes: SharedBuf) -> Answering {
    let answer = match question.asked {
        Asked::Settle { volume } => {
            let head = head.clone();
            return Box::pin(async move { settled(head.attending.settle(volume).await) });
        }
        Asked::Lives if head.attending.lives(question.session) => Answer::Lives,
        Asked::Lives => Answer::IsGone,
        _ if head.index == 0 => return visitors::respond(head, peer, question, bytes),
        _ => Answer::Over,
    };
    Box::pin(ready(Parcel::of(answer.encode())))
}

fn settled(mut ended: Vec<u64>) -> Parcel {
    // A core has no more clients than that; what is left out ends with its client's connection.
    ended.truncate(SESSIONS_MAX);
    Parcel::of(Answer::Settled(ended).encode())
}

/// Returns when all that clients of the volume have sent before has its place in the order, or is never done: to be asked on
/// the first core of its head.
pub(crate) async fn settle(head: &Rc<Head>, volume: VolumeId) {
    if mutant(Mutant::SessionUnasked) {
        return;
    }
    let asked = head.visitors.of(volume);
    let (done, mut all_done) = cross::<()>(asked.len().max(1));
    for visiting in asked {
        let done = done.clone();
        runtime::spawn(async move {
            ask(&visiting, volume).await;
            drop(done);
        });
    }
    drop(done);
    while let Ok(()) = all_done.recv().await {}
    let (done, mut all_done) = cross::<()>(usize::from(head.cores()));
    for core in 0..head.cores() {
        let done = done.clone();
        head.spawn_on(core, move |head| {
            Box::pin(async move {
                head.attending.end_those_who_left(volume);
                head.fence().await;
                drop(done);
            })
        });
    }
    drop(done);
    while let Ok(()) = all_done.recv().await {}
}

/// The same from any core.
pub(super) async fn settle_from(head: &Rc<Head>, volume: VolumeId) {
    let (done, mut is_done) = cross::<()>(1);
    head.spawn_on(0, move |first| {
        Box::pin(async move {
            settle(&first, volume).await;
            drop(done);
        })
    });
    while let Ok(()) = is_done.recv().await {}
}

async fn ask(visiting: &Visiting, volume: VolumeId) {
    let question = Parcel::of(Question { session: 0, asked: Asked::Settle { volume } }.encode());
    let answer = match runtime::timeout(SETTLE_WAIT, visiting.peer.call(SERVICE, question)).await {
        Ok(Ok(answer)) => Answer::decode(&answer.head),
        Ok(Err(_)) | Err(_) => None,
    };
    match answer {
        Some(Answer::Settled(ended)) => ended.into_iter().for_each(|number| visiting.end(number)),
        _ => visiting.end_all_of(volume),
    }
}

//! Whether enough nodes hold copies of what the map says ([`cluster::Copies`]): this one asks the others, and answers them.

use super::{Assembly, Node};
use cluster::{Copies, Held, MapError, Question, Revision, Tally};
use replication::node::{CallError, Parcel, Service};
use runtime::channel::{Sender, bounded};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use types::NodeId;

/// Whether a node's copy holds the map through a revision.
const SERVICE: Service = Service(6);
/// A node that is asked waits so long for its copy before it says that it is behind.
const COPY_WAIT: Duration = Duration::from_secs(2);
/// One that has not answered by then is not there.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// A client that found nobody asks again behind this.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// One that has answered no beat for so long is not asked: whoever takes its volumes over need not wait for it.
pub(super) const SILENT: Duration = Duration::from_millis(1500);
/// So many are asked at once; more only if one of these does not hold it.
const ASKED_AT_ONCE: usize = 4;

/// A node that answers no such question: one of an earlier release, or one that is starting.
struct Older;

/// A question: the revision, 8 bytes, little-endian.
fn question(through: Revision) -> Parcel {
    Parcel::of(through.0.to_le_bytes().to_vec())
}

fn asked(parcel: &Parcel) -> Option<Revision> {
    Some(Revision(u64::from_le_bytes(parcel.head.as_slice().try_into().ok()?)))
}

/// An answer: one byte.
fn answer(held: Held) -> Parcel {
    Parcel::of(vec![match held {
        Held::Yes => 1,
        Held::Behind => 2,
        Held::Cannot => 3,
    }])
}

/// What does not understand the question keeps no copy that it could speak of.
fn answered(parcel: &Parcel) -> Held {
    match parcel.head.as_slice() {
        [1] => Held::Yes,
        [2] => Held::Behind,
        _ => Held::Cannot,
    }
}

impl Assembly {
    /// From now on the map's changes wait for other nodes' copies, too, and other nodes are told of this one's.
    pub(super) fn agree_on_copies(&self) {
        let Some(copies) = self.0.map.copies() else { return };
        self.answer_of_copies(&copies);
        let (mut questions, node) = (copies.questions(), Rc::downgrade(&self.0));
        let asks = runtime::spawn(async move {
            while let Ok(Question { through, reply }) = questions.recv().await {
                let Some(node) = node.upgrade() else { return };
                let copies = copies.clone();
                runtime::spawn(async move {
                    // Who asked may be gone.
                    let _ = reply.try_send(Assembly(node).agree(&copies, through).await);
                });
            }
        });
        self.0.tasks.borrow_mut().push(asks);
    }

    /// That this node's copy of the map does not count, and why.
    pub(super) fn who_keeps_no_copy(&self) -> Option<String> {
        let trouble = self.0.map.copies()?.trouble()?;
        Some(format!("node-{} {trouble}", self.0.id))
    }

    fn answer_of_copies(&self, copies: &Arc<Copies>) {
        let copies = copies.clone();
        self.0.groups.first_core().answer_calls(
            SERVICE,
            Rc::new(move |_, parcel| {
                let copies = copies.clone();
                Box::pin(async move {
                    match asked(&parcel) {
                        Some(through) => answer(copies.own(through, COPY_WAIT).await),
                        None => Parcel::of(Vec::new()),
                    }
                })
            }),
        );
    }

    /// Until enough nodes hold the map through a revision, or all have said that they do not. A client, which holds nothing itself, asks again
    /// for a while: when it begins it knows nobody yet, or has connections that are not made.
    async fn agree(&self, copies: &Arc<Copies>, through: Revision) -> Result<(), MapError> {
        let began = runtime::now();
        loop {
            let agreed = self.agree_once(copies, through).await;
            if agreed.is_ok() || !self.0.id.is_client() || runtime::now().since(began) >= ANSWER_WAIT {
                return agreed;
            }
            runtime::sleep(ASK_AGAIN).await;
        }
    }

    async fn agree_once(&self, copies: &Arc<Copies>, through: Revision) -> Result<(), MapError> {
        let others = self.who_may_hold();
        let mut tally = Tally::new(others.len() + 1);
        let (tell, mut heard) = bounded(others.len() + 1);
        let (own, told) = (copies.clone(), tell.clone());
        runtime::spawn(async move {
            // Nobody may be waiting any more: enough have said so.
            let _ = told.try_send(Ok(own.own(through, COPY_WAIT).await));
        });
        let (all, mut older) = (others.len(), 0);
        let mut others = others.into_iter();
        let mut waits = 1;
        for node in others.by_ref().take(ASKED_AT_ONCE) {
            self.ask_of_copy(node, through, &tell);
            waits += 1;
        }
        while !tally.is_enough() && waits > 0 {
            let Ok(said) = heard.recv().await else { break };
            waits -= 1;
            let said = said.unwrap_or_else(|Older| {
                older += 1;
                Held::Cannot
            });
            tally.note(said);
            if said != Held::Yes
                && let Some(node) = others.next()
            {
                self.ask_of_copy(node, through, &tell);
                waits += 1;
            }
        }
        // A client among nodes that have not been upgraded is served as it was.
        let is_before_all = self.0.id.is_client() && all > 0 && older == all;
        if tally.is_enough() || is_before_all { Ok(()) } else { Err(tally.error()) }
    }

    fn ask_of_copy(&self, node: NodeId, through: Revision, tell: &Sender<Result<Held, Older>>) {
        let (this, tell): (Weak<Node>, _) = (Rc::downgrade(&self.0), tell.clone());
        runtime::spawn(async move {
            let Some(this) = this.upgrade() else { return };
            let call = this.groups.first_core().call(node, SERVICE, question(through));
            let said = match runtime::timeout(ANSWER_WAIT, call).await {
                Ok(Ok(parcel)) => Ok(answered(&parcel)),
                Ok(Err(CallError::Refused { .. })) => Err(Older),
                Ok(Err(CallError::Unknown(_) | CallError::Unreached(_) | CallError::Ended(_))) | Err(_) => {
                    Ok(Held::Cannot)
                }
            };
            let _ = tell.try_send(said);
        });
    }

    /// The other nodes that are up, those behind this one in number first: so not all ask the same few. Before it is known who is up,
    /// all that the map knows.
    fn who_may_hold(&self) -> Vec<NodeId> {
        let (me, heads) = (self.0.id, &self.0.heads);
        let alive = heads.alive();
        let mut nodes: Vec<NodeId> = match alive.is_empty() {
            true => self.0.groups.addresses().into_iter().map(|(node, _)| node).collect(),
            // Nobody sends a client beats.
            false if self.0.id.is_client() => alive.into_iter().collect(),
            false => alive.into_iter().filter(|node| self.0.groups.silence_of(*node) < SILENT).collect(),
        };
        nodes.retain(|node| *node != me);
        nodes.sort_unstable();
        nodes.dedup();
        let first = nodes.partition_point(|node| *node < me);
        nodes.rotate_left(first);
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_come_through() {
        assert_eq!(asked(&question(Revision(77))), Some(Revision(77)));
        assert_eq!(asked(&Parcel::of(vec![1])), None);
        for held in [Held::Yes, Held::Behind, Held::Cannot] {
            assert_eq!(answered(&answer(held)), held);
        }
        assert_eq!(answered(&Parcel::of(Vec::new())), Held::Cannot);
    }
}

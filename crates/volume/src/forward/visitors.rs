//! Clients of other nodes, as the head of their volumes has them: on its first core.

use super::message::{Answer, Asked, How, Question, is_transfer};
use super::settle::settle;
use super::{READ_BYTES_MAX, SERVICE, SESSIONS_MAX, SETTLE_WAIT};
use crate::api::{IoError, Payload, Standing, Volume};
use crate::clients::Opening;
use crate::head::Head;
use crate::limit::Cost;
use crate::session::Session;
use crate::status::{BlockExtent, SnapshotMark};
use replication::node::{Kept, Parcel, Peer};
use runtime::{SharedBuf, now};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use types::{LayerId, Mutant, VolumeId, mutant};

/// What a call comes to.
pub(super) type Answering = Pin<Box<dyn Future<Output = Parcel>>>;

/// A client of another node.
struct Visitor {
    /// Its commands are the session's.
    volume: Volume,
    session: Session,
    /// Once it is sure that the volume stays here.
    opening: RefCell<Option<Opening>>,
    /// A client that says nothing for long is still there.
    _kept: Kept,
}

/// Those that come over one connection.
pub(super) struct Visiting {
    pub(super) peer: Peer,
    sessions: RefCell<BTreeMap<u64, Rc<Visitor>>>,
    /// Bytes that are being read for them.
    reading: Cell<usize>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Visitors(RefCell<Vec<Rc<Visiting>>>);

impl Visitors {
    /// Those of a connection; its sessions end with it.
    fn over(&self, head: &Rc<Head>, peer: &Peer) -> Rc<Visiting> {
        if let Some(known) = self.find(peer) {
            return known;
        }
        let visiting = Rc::new(Visiting { peer: peer.clone(), sessions: RefCell::default(), reading: Cell::new(0) });
        self.0.borrow_mut().push(visiting.clone());
        runtime::spawn(until_over(Rc::downgrade(head), visiting.clone()));
        visiting
    }

    fn find(&self, peer: &Peer) -> Option<Rc<Visiting>> {
        self.0.borrow().iter().find(|visiting| visiting.peer == *peer).cloned()
    }

    /// Connections that have sessions of the volume.
    pub(super) fn of(&self, volume: VolumeId) -> Vec<Rc<Visiting>> {
        let has_some =
            |visiting: &&Rc<Visiting>| visiting.sessions.borrow().values().any(|visitor| visitor.volume.id() == volume);
        self.0.borrow().iter().filter(has_some).cloned().collect()
    }
}

async fn until_over(head: Weak<Head>, visiting: Rc<Visiting>) {
    visiting.peer.over().await;
    visiting.end_those(|_| true);
    if let Some(head) = head.upgrade() {
        head.visitors.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, &visiting));
    }
}

impl Visiting {
    /// Nothing of this session is begun from now on, and nothing more of it is listened to.
    pub(super) fn end(&self, number: u64) {
        if let Some(visitor) = self.sessions.borrow_mut().remove(&number) {
            visitor.session.end();
        }
    }

    /// The same for all of a volume, of a node that did not say in time that all of them has come.
    pub(super) fn end_all_of(&self, volume: VolumeId) {
        if !mutant(Mutant::EndedSessionHeard) {
            self.end_those(|of| of == volume);
        }
    }

    fn end_those(&self, are_these: impl Fn(VolumeId) -> bool) {
        let gone = |_: &u64, visitor: &mut Rc<Visitor>| are_these(visitor.volume.id());
        self.sessions.borrow_mut().extract_if(.., gone).for_each(|(_, visitor)| visitor.session.end());
    }
}

/// Answers a forwarder. What it asks of a volume is called here and now, so that calls keep their order.
pub(super) fn respond(head: &Rc<Head>, peer: &Peer, question: Question, bytes: SharedBuf) -> Answering {
    let Question { session: number, asked } = question;
    match asked {
        Asked::Open { volume, snapshot } => {
            let (entered, head) = (enter(head, peer, number, (volume, snapshot)), head.clone());
            Box::pin(async move {
                words(match entered {
                    Ok((visiting, visitor)) => open(head, visiting, number, visitor).await,
                    Err(answer) => answer,
                })
            })
        }
        Asked::End => {
            head.visitors.find(peer).inspect(|visiting| visiting.end(number));
            Box::pin(ready(words(Answer::Done)))
        }
        asked => {
            let visiting = head.visitors.find(peer);
            let visitor = visiting.as_ref().and_then(|visiting| visiting.sessions.borrow().get(&number).cloned());
            let begun = visiting.zip(visitor).and_then(|(visiting, visitor)| begin(&visiting, &visitor, asked, bytes));
            begun.unwrap_or_else(|| Box::pin(ready(words(Answer::Over))))
        }
    }
}

fn words(answer: Answer) -> Parcel {
    Parcel::of(answer.encode())
}

/// A client wants to use a volume, or a snapshot of it. It is known at once: its end may come while it is being let in.
fn enter(
    head: &Rc<Head>,
    peer: &Peer,
    number: u64,
    (id, layer): (VolumeId, LayerId),
) -> Result<(Rc<Visiting>, Rc<Visitor>), Answer> {
    let volume = head.directory.by_id(id).filter(is_served).ok_or(Answer::Elsewhere)?;
    let Some(volume) = of_layer(&volume, layer) else {
        return Err(Answer::Failed(IoError::Gone(format!("a snapshot of volume {} was deleted", volume.name()))));
    };
    let visiting = head.visitors.over(head, peer);
    if visiting.sessions.borrow().len() >= SESSIONS_MAX || visiting.sessions.borrow().contains_key(&number) {
        return Err(Answer::Failed(IoError::Unavailable("its head has too many clients of this node".to_owned())));
    }
    let (session, _kept, opening) = (Session::that_waits(), peer.keep(), RefCell::default());
    let peer = peer.clone();
    session.lives_if(move || Box::pin(lives(peer.clone(), number)));
    let visitor = Rc::new(Visitor { volume: volume.of_session(&session), session, opening, _kept });
    visiting.sessions.borrow_mut().insert(number, visitor.clone());
    Ok((visiting, visitor))
}

/// It is let in, if the volume stays here.
async fn open(head: Rc<Head>, visiting: Rc<Visiting>, number: u64, visitor: Rc<Visitor>) -> Answer {
    let (volume, session) = (&visitor.volume, &visitor.session);
    let id = volume.id();
    let is_given = head.directory.clients().gives(id, visiting.peer.node()).await;
    let reign = volume.state.gate.term().spec.epoch;
    if !is_given && is_served(volume) && !session.has_ended() {
        session.belongs_to(reign);
        visitor.opening.replace(volume.open());
        settle(&head, id).await;
    }
    let is_same = volume.state.gate.term().spec.epoch == reign && is_served(volume);
    if is_given || !is_same || session.has_ended() || visiting.peer.is_over() {
        visiting.end(number);
        return Answer::Elsewhere;
    }
    Answer::Welcome
}

fn is_served(volume: &Volume) -> bool {
    matches!(volume.standing(), Standing::Here | Standing::Stopped)
}

/// The volume, or the snapshot of it that this layer is.
fn of_layer(volume: &Volume, layer: LayerId) -> Option<Volume> {
    if layer == LayerId(0) {
        return Some(volume.clone());
    }
    let snapshots = volume.state.snapshots.borrow();
    let snapshot = snapshots.iter().find(|snapshot| snapshot.info.layer() == layer).cloned()?;
    Some(Volume { snapshot: Some(snapshot), ..volume.clone() })
}

/// Whether the client is there, as its node says.
async fn lives(peer: Peer, number: u64) -> bool {
    let question = Parcel::of(Question { session: number, asked: Asked::Lives }.encode());
    match runtime::timeout(SETTLE_WAIT, peer.call(SERVICE, question)).await {
        Ok(Ok(answer)) => Answer::decode(&answer.head) == Some(Answer::Lives),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Begins what a client asks for. `None`: no head answers that.
fn begin(visiting: &Rc<Visiting>, visitor: &Rc<Visitor>, asked: Asked, bytes: SharedBuf) -> Option<Answering> {
    let volume = visitor.volume.clone();
    Some(match asked {
        Asked::Read { offset, len } => {
            let reading = Reading::begin(visiting, len as usize)?;
            let read = in_turn(visitor, Some(Cost::of(len.into())), move || volume.read(offset, len));
            Box::pin(async move {
                let _reading = reading;
                told(read.await, |data| Parcel { head: Answer::Done.encode(), bytes: data.bytes })
            })
        }
        Asked::Write { offset } if is_transfer(bytes.len()) => {
            let cost = Cost::of(bytes.len() as u64);
            done(in_turn(visitor, Some(cost), move || volume.write(offset, Payload { bytes: bytes.clone() })))
        }
        Asked::Zero { how: How::Discard, offset, len } => {
            done(in_turn(visitor, Some(Cost::of(0)), move || volume.discard(offset, len)))
        }
        Asked::Zero { how: How::Zero, offset, len } => {
            done(in_turn(visitor, Some(Cost::of(0)), move || volume.write_zeroes(offset, len)))
        }
        Asked::Zero { how: How::Store, offset, len } => {
            done(in_turn(visitor, Some(Cost::of(len)), move || volume.store_zeroes(offset, len)))
        }
        Asked::Flush => done(in_turn(visitor, None, move || {
            let volume = volume.clone();
            async move { volume.flush().await }
        })),
        Asked::Status { offset, len, extents_max, marks } => {
            let marks: Vec<SnapshotMark> = marks.into_iter().map(SnapshotMark).collect();
            let ask = move || volume.block_status(offset, len, &marks, extents_max as usize);
            let status = in_turn(visitor, Some(Cost::of(0)), ask);
            let extents = |extents: Vec<BlockExtent>| words(Answer::Extents(extents));
            Box::pin(async move { told(status.await, extents) })
        }
        Asked::Write { .. } | Asked::Open { .. } | Asked::End | Asked::Settle { .. } | Asked::Lives => return None,
    })
}

fn done(command: impl Future<Output = Result<(), IoError>> + 'static) -> Answering {
    Box::pin(async move { told(command.await, |()| words(Answer::Done)) })
}

/// What a forwarder is told of what came of it. Of a volume that is served by another there is no session any more.
fn told<T>(result: Result<T, IoError>, good: impl FnOnce(T) -> Parcel) -> Parcel {
    match result {
        Ok(value) => good(value),
        Err(IoError::Elsewhere(_) | IoError::Abandoned) => words(Answer::Over),
        Err(error) => words(Answer::Failed(error)),
    }
}

/// Calls a command of the client when the volume's limit lets it begin: now, or as long as its client is there.
fn in_turn<T, F, A>(
    visitor: &Rc<Visitor>,
    cost: Option<Cost>,
    ask: A,
) -> impl Future<Output = Result<T, IoError>> + use<T, F, A>
where
    F: Future<Output = Result<T, IoError>> + 'static,
    A: Fn() -> F + 'static,
{
    let session = visitor.session.clone();
    let turn = cost.and_then(|cost| visitor.volume.hold(cost, || move || session.has_ended()));
    let asked = turn.is_none().then(&ask);
    let visitor = visitor.clone();
    async move {
        let asked = match asked {
            Some(asked) => asked,
            None => {
                let began = now();
                if let Some(turn) = turn {
                    turn.await;
                }
                visitor.session.may_go_on(began).await?;
                ask()
            }
        };
        visitor.volume.patiently_from(asked, ask).await
    }
}

/// Bytes that are being read for a connection.
struct Reading(Rc<Visiting>, usize);

impl Reading {
    /// `None`: more than any forwarder asks for at once.
    fn begin(visiting: &Rc<Visiting>, bytes: usize) -> Option<Self> {
        let reading = visiting.reading.get() + bytes;
        (reading <= READ_BYTES_MAX).then(|| {
            visiting.reading.set(reading);
            Self(visiting.clone(), bytes)
        })
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.reading.set(self.0.reading.get() - self.1);
    }
}

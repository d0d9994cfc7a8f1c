//! One connection to a core of another node: what is to be sent gathers until the turn ends, and leaves together.
//!
//! A connection that ends takes with it what was on its way; the protocol sends again what matters. Whoever has nothing to
//! send makes none; one that the other side made is used for answers.

use super::calls::Outstanding;
use crate::protocol::Message;
use crate::wire::{
    Agreed, CallMessage, Envelope, FRAME_HEADER_BYTES, Features, FillMessage, Frame, FrameHeader, HeadMessage, Kind,
    NodeMessage, Receiver, Sender, WireError, encode_call, encode_fill, encode_head, encode_node, kind_of,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use runtime::channel::WaitList;
use runtime::{Instant, IoBuf, MAX_SEND_PARTS, SharedBuf, TaskHandle, TcpStream};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use store::Entry;
use types::{Mutant, NodeId, Seq, mutant};

/// Heads that gather for one send.
const HEADS_BYTES_MAX: usize = 512 << 10;
/// Heads and blocks that wait for their turn: then whoever has more waits.
const QUEUED_BYTES_MAX: usize = 8 << 20;
/// Requests of volumes' heads, and answers to them, wait while so much waits.
const HEADS_BYTES_QUEUED_MAX: usize = 4 << 20;
/// What begins a connection fits into this: a hello, or why it is refused.
const HELLO_FRAME_BYTES_MAX: usize = 4 << 10;
/// Catch-up waits while so much waits.
const RECOVERY_BYTES_MAX: usize = 1 << 20;
/// Frames of so many bytes, behind which more of what was sent with them is on its way, are handed on together: what they bring then
/// takes one record and one send, and not one for each segment that TCP delivers. Up to so many bytes.
const LONG_FRAME_BYTES: usize = 32 << 10;
const TOGETHER_BYTES_MAX: usize = 512 << 10;

/// What waits to be sent: frames, each with where its head and its blocks end.
#[derive(Default)]
struct Outgoing {
    sender: Sender,
    heads: Vec<u8>,
    blocks: Vec<SharedBuf>,
    frames: Vec<(usize, usize)>,
    bytes: usize,
}

/// See the module.
pub(crate) struct Link {
    pub(crate) node: NodeId,
    pub(crate) core: u16,
    /// This core made the connection.
    pub(super) is_dialled: bool,
    outgoing: RefCell<Outgoing>,
    filled: WaitList,
    is_closed: Cell<bool>,
    stream: RefCell<Option<TcpStream>>,
    is_made: Cell<bool>,
    /// What both sides have; nothing, before that is known.
    agreed: Cell<Agreed>,
    /// Something was sent since it was last asked whether it lives.
    is_used: Cell<bool>,
    /// When it was asked, and has not answered.
    pinged_at: Cell<Option<Instant>>,
    /// What is done for volumes' heads behind it, by the number of their request: nobody would hear of it without it.
    serving: RefCell<HashMap<u64, TaskHandle, FixedState>>,
    /// Plain calls over it that have no answer yet.
    pub(super) calls_out: Outstanding,
    pub(super) calls_in: Outstanding,
    /// What gathered has been taken to be sent.
    emptied: WaitList,
    ended: WaitList,
    /// What ends with it, and is to go on for long: see [`Kept`].
    kept: Cell<usize>,
}

/// As long as this is there, a connection is kept although nothing is said on it; unless it does not live any more.
pub struct Kept(Rc<Link>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.kept.set(self.0.kept.get() - 1);
    }
}

/// The connection that all of an attempt to catch up goes over: nothing may come behind what was lost.
#[derive(Default)]
pub(crate) struct Line(OnceCell<Rc<Link>>);

impl Line {
    /// Whether it is this one; the first that is asked for is.
    pub(super) fn is(&self, link: &Rc<Link>) -> bool {
        Rc::ptr_eq(self.0.get_or_init(|| link.clone()), link)
    }
}

impl Link {
    /// One that this core makes.
    pub(super) fn dialled(node: NodeId, core: u16) -> Self {
        Self { is_dialled: true, ..Self::new(node, core) }
    }

    /// One that the other side has made.
    pub(crate) fn new(node: NodeId, core: u16) -> Self {
        Self {
            node,
            core,
            is_dialled: false,
            outgoing: RefCell::default(),
            filled: WaitList::default(),
            is_closed: Cell::new(false),
            stream: RefCell::default(),
            is_made: Cell::new(false),
            agreed: Cell::default(),
            is_used: Cell::new(false),
            pinged_at: Cell::new(None),
            serving: RefCell::new(HashMap::with_hasher(FixedState::default())),
            calls_out: Outstanding::default(),
            calls_in: Outstanding::default(),
            emptied: WaitList::default(),
            ended: WaitList::default(),
            kept: Cell::new(0),
        }
    }

    pub(super) fn keep(self: &Rc<Self>) -> Kept {
        self.kept.set(self.kept.get() + 1);
        Kept(self.clone())
    }

    /// Has a request done; that ends with the connection.
    pub(crate) fn serve(self: &Rc<Self>, request: u64, work: impl Future<Output = ()> + 'static) {
        if self.is_closed() {
            return;
        }
        let link = self.clone();
        let task = runtime::spawn(async move {
            work.await;
            link.serving.borrow_mut().remove(&request);
        });
        self.serving.borrow_mut().insert(request, task);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Nothing more goes through it.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        if let Some(stream) = self.stream.borrow_mut().take() {
            stream.shutdown();
        }
        self.filled.wake_all();
        self.emptied.wake_all();
        self.ended.wake_all();
        let mut serving: Vec<_> = self.serving.take().into_iter().collect();
        // The map's order is nobody's.
        serving.sort_unstable_by_key(|(request, _)| *request);
        serving.into_iter().for_each(|(_, task)| task.cancel());
    }

    /// Resolves when nothing more goes through it.
    pub(super) async fn over(&self) {
        self.ended.until(|| self.is_closed().then_some(())).await;
    }

    pub(crate) fn set_stream(&self, stream: &TcpStream, agreed: Agreed) {
        self.agreed.set(agreed);
        // By what comes here this node hears that what its clients have sent is done.
        stream.receive_whatever_is_held();
        *self.stream.borrow_mut() = Some(stream.clone());
        self.is_made.set(true);
    }

    /// What is said on it leaves: both sides know each other.
    pub(super) fn is_made(&self) -> bool {
        self.is_made.get()
    }

    /// Bytes that wait to be sent.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.outgoing.borrow().bytes
    }

    fn has_room(&self) -> bool {
        let outgoing = self.outgoing.borrow();
        !self.is_closed() && outgoing.bytes < QUEUED_BYTES_MAX && outgoing.heads.len() < HEADS_BYTES_MAX
    }

    /// Whether the other side has what a kind of frame needs.
    pub(crate) fn may_send(&self, kind: Kind) -> bool {
        self.agreed.get().features.has(kind.needs()) || mutant(Mutant::KindSentUnasked)
    }

    /// Queues what `encode` appends, a frame of this kind; it is asked for no more than there is.
    fn queue<T>(&self, kind: Kind, encode: impl FnOnce(&mut Outgoing) -> Result<T, WireError>) -> Result<T, WireError> {
        if !self.may_send(kind) {
            return Err(WireError::NotAgreed { kind });
        }
        let mut outgoing = self.outgoing.borrow_mut();
        let (heads, blocks) = (outgoing.heads.len(), outgoing.blocks.len());
        let said = encode(&mut outgoing)?;
        let of_blocks: usize = outgoing.blocks[blocks..].iter().map(|block| block.len()).sum();
        outgoing.bytes += outgoing.heads.len() - heads + of_blocks;
        let end = (outgoing.heads.len(), outgoing.blocks.len());
        outgoing.frames.push(end);
        drop(outgoing);
        self.filled.wake_all();
        Ok(said)
    }

    /// Queues a message between stores, with its entries. Returns the first that found no room; a message without entries
    /// that finds none is dropped: timers send such again.
    ///
    /// # Errors
    /// What the other side would refuse.
    pub(crate) fn push(
        &self,
        envelope: &Envelope,
        message: &Message,
        entries: &[Entry],
    ) -> Result<Option<Seq>, WireError> {
        let mut rest = entries;
        let mut message = std::borrow::Cow::Borrowed(message);
        loop {
            if !self.has_room() {
                return Ok(rest.first().map(|next| next.seq));
            }
            let carried = self.queue(kind_of(&message), |Outgoing { sender, heads, blocks, .. }| {
                sender.encode(envelope, &message, rest, heads, blocks)
            })?;
            self.is_used.set(true);
            let Some(last) = rest[..carried].last().filter(|_| carried < rest.len()) else { return Ok(None) };
            let place = (last.term, last.seq);
            match message.to_mut() {
                Message::Prepare { before, .. } | Message::Fetched { before, .. } => *before = place,
                _ => unreachable!("only these carry entries"),
            }
            rest = &rest[carried..];
        }
    }

    /// Whether what volumes' heads and groups say to each other leaves room for beats, and for what members say.
    pub(crate) fn has_room_for_heads(&self) -> bool {
        self.has_room() && self.outgoing.borrow().bytes < HEADS_BYTES_QUEUED_MAX
    }

    /// Resolves when there is that room, or nothing goes through it any more.
    pub(crate) async fn room_for_heads(&self) {
        self.emptied.until(|| (self.is_closed() || self.has_room_for_heads()).then_some(())).await;
    }

    /// Whether it is idle enough for what no client waits for.
    pub(crate) fn has_room_for_recovery(&self) -> bool {
        self.has_room() && self.outgoing.borrow().bytes < RECOVERY_BYTES_MAX
    }

    /// Resolves when there is that room, or nothing goes through it any more.
    pub(crate) async fn room_for_recovery(&self) {
        self.emptied.until(|| (self.is_closed() || self.has_room_for_recovery()).then_some(())).await;
    }

    /// Queues a message of catch-up; false if it does not leave.
    pub(crate) fn push_fill(&self, envelope: &Envelope, message: &FillMessage) -> bool {
        self.push_whole(message.kind(), envelope, |heads, blocks| encode_fill(envelope, message, heads, blocks))
    }

    /// Queues what a volume's head and a group say to each other; false if it does not leave.
    pub(crate) fn push_head(&self, envelope: &Envelope, message: &HeadMessage) -> bool {
        self.has_room_for_heads()
            && self.push_whole(message.kind(), envelope, |heads, blocks| encode_head(envelope, message, heads, blocks))
    }

    /// Queues a plain call, or its reply; false if it does not leave.
    pub(super) fn push_call(&self, envelope: &Envelope, message: &CallMessage) -> bool {
        self.has_room_for_heads()
            && self.push_whole(message.kind(), envelope, |heads, blocks| encode_call(envelope, message, heads, blocks))
    }

    fn push_whole(
        &self,
        kind: Kind,
        envelope: &Envelope,
        encode: impl FnOnce(&mut Vec<u8>, &mut Vec<SharedBuf>) -> Result<(), WireError>,
    ) -> bool {
        if !self.has_room() {
            return false;
        }
        let queued = self.queue(kind, |Outgoing { heads, blocks, .. }| encode(heads, blocks));
        if let Err(error) = &queued {
            log::error!("group {}: a message was not sent: {error}", envelope.group);
        }
        self.is_used.set(self.is_used.get() || queued.is_ok());
        queued.is_ok()
    }

    /// Queues a message between nodes; it is dropped if there is no room. Returns whether it leaves.
    pub(crate) fn push_node(&self, message: &NodeMessage) -> bool {
        if !self.has_room() {
            return false;
        }
        let encode = |Outgoing { heads, .. }: &mut Outgoing| encode_node(&Envelope::default(), message, heads);
        let queued = self.queue(message.kind(), encode);
        if let Err(error) = &queued {
            log::error!("a message to node {} was not sent: {error}", self.node);
        }
        if !matches!(message, NodeMessage::Ping | NodeMessage::Pong) {
            self.is_used.set(true);
        }
        queued.is_ok()
    }

    /// Asks whether it lives, if it was used, and ends it if it does not answer: a connection whose other end is gone takes
    /// what is sent for a long time.
    pub(crate) fn look(&self, at: Instant, patience: Duration) {
        if self.stream.borrow().is_none() {
            return;
        }
        if let Some(pinged) = self.pinged_at.get() {
            if at.since(pinged) >= patience {
                log::debug!("node {} core {}: the connection does not answer", self.node, self.core);
                self.close();
            }
            return;
        }
        // Who waits for an answer keeps the connection, however long that takes. Where a ping finds no room, the end of what is
        // sent is seen.
        let is_asked = self.is_used.get() || self.calls_out.is_any() || self.kept.get() > 0;
        if is_asked && self.push_node(&NodeMessage::Ping) {
            self.pinged_at.set(Some(at));
            self.is_used.set(false);
        }
    }

    /// It has answered.
    pub(crate) fn lives(&self) {
        self.pinged_at.set(None);
    }

    /// Sends what gathers, until the connection ends. `drained` is told each time that all of it has left.
    pub(crate) async fn send_all(&self, stream: &TcpStream, patience: Duration, drained: impl Fn()) {
        let (mut all, mut parts) = (Vec::new(), Vec::new());
        while !self.is_closed() {
            self.filled.until(|| (self.is_closed() || !self.outgoing.borrow().frames.is_empty()).then_some(())).await;
            // What this turn brings leaves together.
            runtime::turn_end().await;
            self.take(&mut all);
            let mut rest = all.drain(..);
            loop {
                parts.extend(rest.by_ref().take(MAX_SEND_PARTS));
                if parts.is_empty() {
                    break;
                }
                let sent = runtime::timeout(patience, stream.send(&mut parts)).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return self.close();
                }
                parts.clear();
            }
            drained();
        }
    }

    /// Takes out what has gathered, in the order in which it is to leave.
    fn take(&self, all: &mut Vec<SharedBuf>) {
        let mut outgoing = self.outgoing.borrow_mut();
        let Outgoing { heads, blocks, frames, bytes, .. } = &mut *outgoing;
        if !heads.is_empty() {
            let copy = IoBuf::copy_of(heads).freeze();
            let (mut from, mut blocks) = (0, blocks.drain(..));
            let mut taken = 0;
            for &(heads_end, blocks_end) in frames.iter() {
                if blocks_end > taken {
                    all.push(copy.slice(from..heads_end));
                    all.extend(blocks.by_ref().take(blocks_end - taken));
                    (from, taken) = (heads_end, blocks_end);
                }
            }
            if from < heads.len() {
                all.push(copy.slice(from..heads.len()));
            }
        }
        heads.clear();
        blocks.clear();
        frames.clear();
        *bytes = 0;
        drop(outgoing);
        self.emptied.wake_all();
    }
}

/// The frames of a connection, as they come.
pub(crate) struct Frames<'a> {
    stream: &'a TcpStream,
    receiver: Receiver,
    /// What has come and was not looked at.
    rest: SharedBuf,
    /// No frame is longer.
    longest: usize,
    /// Frames that came together and are handed on one by one; behind them the connection has ended, or what came is nonsense.
    together: VecDeque<Frame>,
    end: Option<Result<Option<Frame>, WireError>>,
}

impl<'a> Frames<'a> {
    /// Those of one that has not shown yet who it is: a longer frame is refused before memory is taken for it.
    pub(crate) fn of_stranger(stream: &'a TcpStream) -> Self {
        Self { longest: HELLO_FRAME_BYTES_MAX, ..Self::behind(stream, IoBuf::new(0).freeze(), Features::NONE) }
    }

    /// Those behind what has come already, where both sides have these features.
    pub(crate) fn behind(stream: &'a TcpStream, rest: SharedBuf, agreed: Features) -> Self {
        let receiver = Receiver::of(agreed);
        Self { stream, receiver, rest, longest: usize::MAX, together: VecDeque::new(), end: None }
    }

    /// What has come and was not looked at.
    pub(crate) fn into_rest(self) -> SharedBuf {
        self.rest
    }

    /// Takes back the list of a frame's entries.
    pub(crate) fn recycle(&mut self, entries: Vec<Entry>) {
        self.receiver.recycle(entries);
    }

    /// The next frame; nothing when the connection has ended.
    ///
    /// # Errors
    /// What no node sends.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, WireError> {
        if let Some(frame) = self.together.pop_front() {
            return Ok(Some(frame));
        }
        if let Some(end) = self.end.take() {
            return end;
        }
        let Some(first) = self.one().await? else { return Ok(None) };
        let mut bytes = first.header.frame_bytes();
        let mut is_long = bytes >= LONG_FRAME_BYTES;
        while is_long && !self.rest.is_empty() && bytes < TOGETHER_BYTES_MAX {
            match self.one().await {
                Ok(Some(frame)) => {
                    is_long = frame.header.frame_bytes() >= LONG_FRAME_BYTES;
                    bytes += frame.header.frame_bytes();
                    self.together.push_back(frame);
                }
                end => {
                    self.end = Some(end);
                    break;
                }
            }
        }
        Ok(Some(first))
    }

    async fn one(&mut self) -> Result<Option<Frame>, WireError> {
        loop {
            if let Some(frame) = self.receiver.frame(&self.rest)? {
                self.rest = self.rest.slice(frame.header.frame_bytes()..self.rest.len());
                return Ok(Some(frame));
            }
            if let Some(header) = FrameHeader::decode(&self.rest)? {
                self.receiver.judge(&header)?;
                if header.frame_bytes() > self.longest {
                    return Err(WireError::field("hello", "length of the frame", header.frame_bytes() as u64));
                }
                return self.long(header).await;
            }
            let Ok(more) = self.stream.recv().await else { return Ok(None) };
            if more.is_empty() {
                return Ok(None);
            }
            self.rest = if self.rest.is_empty() {
                more
            } else {
                let mut both = IoBuf::new(self.rest.len() + more.len());
                both[..self.rest.len()].copy_from_slice(&self.rest);
                both[self.rest.len()..].copy_from_slice(&more);
                both.freeze()
            };
        }
    }

    /// A frame of which a part is there: its body is received where its blocks are aligned.
    async fn long(&mut self, header: FrameHeader) -> Result<Option<Frame>, WireError> {
        let at = header.body_at_bytes();
        let mut body = IoBuf::new(at + header.body_bytes());
        let there = self.rest.len() - FRAME_HEADER_BYTES;
        body[at..at + there].copy_from_slice(&self.rest[FRAME_HEADER_BYTES..]);
        let missing = body.split_off(at + there);
        let (received, missing) = self.stream.recv_exact(missing).await;
        if received.is_err() {
            return Ok(None);
        }
        body.unsplit(missing);
        self.rest = IoBuf::new(0).freeze();
        let body = body.freeze();
        let said = self.receiver.decode(&header, &body.slice(at..body.len()))?;
        Ok(Some(Frame { header, said }))
    }
}

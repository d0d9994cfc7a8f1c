//! One queue: a connection, its commands under way, and the two tasks that receive and send.

use super::HostError;
use crate::wire::pdu::{DataHeader, IcReq, PduType, R2t, flag};
use crate::wire::stream::{Data, Header, Item, PduReader, Side};
use crate::wire::writer::PduWriter;
use crate::wire::{Cqe, Sgl, Sqe, Status};
use runtime::channel::WaitList;

use runtime::{IoBuf, MAX_SEND_PARTS, SharedBuf, TcpStream, spawn, turn_end};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Bits of a command id that are the slot; the rest counts its uses, so that a late answer meets no stranger.
const SLOT_BITS: u32 = 12;
/// Most commands under way in one queue.
pub const MAX_DEPTH: u16 = 1 << SLOT_BITS;
/// Largest data of one C2HData that is accepted.
const MAX_DATA_BYTES: u32 = 4 << 20;

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Command specific.
    pub result: u64,
    /// What was read.
    pub data: Option<SharedBuf>,
}

#[derive(Default)]
struct Slot {
    uses: u16,
    busy: bool,
    /// The caller is gone: nobody waits for the answer.
    abandoned: bool,
    waker: Option<Waker>,
    answer: Option<Result<Completion, HostError>>,
    /// A write's data, until an R2T asks for it.
    to_send: Option<SharedBuf>,
    expected_bytes: u32,
    received: Option<SharedBuf>,
    /// Data that comes in several PDUs.
    gathered: Option<(IoBuf, usize)>,
    broken: bool,
    succeeded: bool,
}

struct State {
    writer: PduWriter,
    slots: Vec<Slot>,
    free: Vec<u16>,
    failure: Option<HostError>,
    max_h2c_bytes: usize,
    sender: Option<Waker>,
}

/// A queue of a controller. Clones share it.
#[derive(Clone)]
pub struct Queue(Rc<Inner>);

struct Inner {
    stream: TcpStream,
    state: RefCell<State>,
    room: WaitList,
    capsule_bytes: Cell<u32>,
    depth: u16,
}

/// How a connection is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub depth: u16,
    pub header_digest: bool,
    pub data_digest: bool,
}

impl Queue {
    /// Connects and exchanges ICReq and ICResp.
    pub(super) async fn open(address: SocketAddr, opening: Opening) -> Result<Self, HostError> {
        let stream = TcpStream::connect(address).await.map_err(lost)?;
        let mut writer = PduWriter::new();
        let icreq = IcReq {
            pfv: 0,
            data_alignment: 0,
            header_digest: opening.header_digest,
            data_digest: opening.data_digest,
            limit: 0,
        };
        writer.ic(PduType::IcReq, &icreq);
        let mut parts = Vec::new();
        writer.drain(&mut parts, MAX_SEND_PARTS);
        stream.send(&mut parts).await.map_err(lost)?;
        let mut reader = PduReader::new(Side::Host, MAX_DATA_BYTES);
        let icresp = loop {
            match reader.next().map_err(|error| HostError::Protocol(error.to_string()))? {
                Some(Item::Header(Header::Open(icresp))) => break icresp,
                Some(Item::Header(Header::Terminate(term))) => {
                    return Err(HostError::Terminated { status: term.status, information: term.information });
                }
                Some(_) => return Err(HostError::Protocol("something else than ICResp".into())),
                None => reader.feed(receive(&stream).await?),
            }
        };
        let agreed = (icresp.header_digest, icresp.data_digest) == (opening.header_digest, opening.data_digest);
        if icresp.pfv != 0 || !agreed || icresp.data_alignment > IcReq::MAX_DATA_ALIGNMENT || icresp.limit < 4096 {
            return Err(HostError::Protocol(format!("ICResp {icresp:?}")));
        }
        writer.open(opening.header_digest, opening.data_digest, (usize::from(icresp.data_alignment) + 1) * 4);
        reader.open(opening.header_digest, opening.data_digest, 4);
        let depth = opening.depth.clamp(1, MAX_DEPTH);
        let state = State {
            writer,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            failure: None,
            max_h2c_bytes: icresp.limit as usize & !3,
            sender: None,
        };
        let inner = Inner {
            stream,
            state: RefCell::new(state),
            room: WaitList::default(),
            capsule_bytes: Cell::new(crate::limits::ADMIN_CAPSULE_DATA_BYTES),
            depth,
        };
        let queue = Self(Rc::new(inner));
        spawn(queue.clone().receive_loop(reader));
        spawn(queue.clone().send_loop());
        Ok(queue)
    }

    /// Data up to this size is sent with the command.
    pub fn set_capsule_bytes(&self, bytes: u32) {
        self.0.capsule_bytes.set(bytes);
    }

    /// Commands that may be under way at once.
    pub fn depth(&self) -> u16 {
        self.0.depth
    }

    /// Why the queue is of no more use, if so.
    pub fn failure(&self) -> Option<HostError> {
        self.0.state.borrow().failure.clone()
    }

    /// Ends the connection; what is under way fails.
    pub fn close(&self) {
        self.fail(HostError::Connection("closed".into()));
    }

    /// Sends a command and waits for its end: with `data` for the controller, or `expected_bytes` from it.
    /// Waits for room first when the queue is full. A status other than success is an error.
    pub async fn submit(
        &self,
        sqe: Sqe,
        data: Option<SharedBuf>,
        expected_bytes: u32,
    ) -> Result<Completion, HostError> {
        let guard = self.reserve().await?;
        self.send(&guard, sqe, data, expected_bytes);
        self.answer(&guard).await
    }

    /// Sends a fused pair, one right after the other, and waits for both ends.
    pub async fn submit_fused(
        &self,
        pair: [(Sqe, SharedBuf); 2],
    ) -> Result<[Result<Completion, HostError>; 2], HostError> {
        let guards = [self.reserve().await?, self.reserve().await?];
        for (guard, ((mut sqe, data), fuse)) in
            guards.iter().zip(pair.into_iter().zip([Sqe::FUSE_FIRST, Sqe::FUSE_SECOND]))
        {
            sqe.flags |= fuse;
            self.send(guard, sqe, Some(data), 0);
        }
        Ok([self.answer(&guards[0]).await, self.answer(&guards[1]).await])
    }

    async fn reserve(&self) -> Result<Guard<'_>, HostError> {
        let index = self.0.room.until(|| self.take_slot()).await?;
        Ok(Guard { queue: self, index })
    }

    fn send(&self, guard: &Guard<'_>, mut sqe: Sqe, data: Option<SharedBuf>, expected_bytes: u32) {
        let state = &mut *self.0.state.borrow_mut();
        let slot = &mut state.slots[usize::from(guard.index)];
        if !slot.busy {
            return; // the queue failed since: the answer is there
        }
        sqe.command = guard.index | slot.uses << SLOT_BITS;
        slot.expected_bytes = expected_bytes;
        let mut in_capsule = None;
        match data {
            Some(data) if data.len() <= self.0.capsule_bytes.get() as usize => {
                sqe.sgl = Sgl::in_capsule(data.len() as u32);
                in_capsule = Some(data);
            }
            Some(data) => {
                sqe.sgl = Sgl::transport(data.len() as u32);
                slot.to_send = Some(data);
            }
            None => sqe.sgl = Sgl::transport(expected_bytes),
        }
        state.writer.command(&sqe, in_capsule);
        wake(&mut state.sender);
    }

    async fn answer(&self, guard: &Guard<'_>) -> Result<Completion, HostError> {
        poll_fn(|cx| {
            let slot = &mut self.0.state.borrow_mut().slots[usize::from(guard.index)];
            match slot.answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => {
                    slot.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn take_slot(&self) -> Option<Result<u16, HostError>> {
        let mut state = self.0.state.borrow_mut();
        if let Some(failure) = &state.failure {
            return Some(Err(failure.clone()));
        }
        let index = state.free.pop()?;
        let slot = &mut state.slots[usize::from(index)];
        slot.uses = slot.uses.wrapping_add(1);
        slot.busy = true;
        slot.abandoned = false;
        slot.broken = false;
        slot.succeeded = false;
        Some(Ok(index))
    }

    /// The caller has its answer, or does not want it any more.
    fn leave(&self, index: u16) {
        let mut state = self.0.state.borrow_mut();
        let slot = &mut state.slots[usize::from(index)];
        slot.waker = None;
        if slot.busy {
            slot.abandoned = true; // the controller may still answer: the slot stays taken until it does
            return;
        }
        slot.answer = None;
        state.free.push(index);
        drop(state);
        self.0.room.wake_all();
    }

    fn fail(&self, failure: HostError) {
        self.0.stream.shutdown();
        {
            let state = &mut *self.0.state.borrow_mut();
            if state.failure.is_some() {
                return;
            }
            state.writer.clear();
            for (index, slot) in state.slots.iter_mut().enumerate().filter(|(_, slot)| slot.busy) {
                finish(slot, Err(failure.clone()));
                if slot.abandoned {
                    slot.answer = None;
                    state.free.push(index as u16);
                }
            }
            state.failure = Some(failure);
            wake(&mut state.sender);
        }
        self.0.room.wake_all();
    }

    async fn send_loop(self) {
        let mut parts = Vec::with_capacity(MAX_SEND_PARTS);
        loop {
            let more = poll_fn(|cx| {
                let state = &mut *self.0.state.borrow_mut();
                if state.failure.is_some() {
                    return Poll::Ready(false);
                }
                if !state.writer.is_empty() {
                    return Poll::Ready(true);
                }
                state.sender = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            if !more {
                return;
            }
            turn_end().await;
            self.0.state.borrow_mut().writer.drain(&mut parts, MAX_SEND_PARTS);
            if parts.is_empty() {
                continue;
            }
            if let Err(error) = self.0.stream.send(&mut parts).await {
                self.fail(lost(error));
                return;
            }
        }
    }

    async fn receive_loop(self, mut reader: PduReader) {
        let mut current = None;
        loop {
            if let Err(failure) = self.take_items(&mut reader, &mut current) {
                self.fail(failure);
                return;
            }
            if let Some(buf) = reader.take_direct() {
                let (result, buf) = self.0.stream.recv_exact(buf).await;
                reader.give_direct(buf);
                if let Err(error) = result {
                    self.fail(lost(error));
                    return;
                }
                continue;
            }
            match receive(&self.0.stream).await {
                Ok(bytes) => reader.feed(bytes),
                Err(failure) => {
                    self.fail(failure);
                    return;
                }
            }
        }
    }

    fn take_items(&self, reader: &mut PduReader, current: &mut Option<DataHeader>) -> Result<(), HostError> {
        while let Some(item) = reader.next().map_err(|error| HostError::Protocol(error.to_string()))? {
            match item {
                Item::Header(Header::Response(cqe)) => self.on_response(&cqe)?,
                Item::Header(Header::Data(header)) => {
                    self.slot_of(header.command)?;
                    *current = Some(header);
                }
                Item::Header(Header::R2t(r2t)) => self.on_r2t(&r2t)?,
                Item::Header(Header::Terminate(term)) => {
                    return Err(HostError::Terminated { status: term.status, information: term.information });
                }
                Item::Header(_) => return Err(HostError::Protocol("a PDU that only a host sends".into())),
                Item::Data { data, intact } => {
                    let header = current.take().ok_or_else(|| HostError::Protocol("data without a header".into()))?;
                    let Data::Gathered(bytes) = data else { unreachable!("nothing was placed") };
                    self.on_data(&header, bytes, intact)?;
                }
            }
        }
        Ok(())
    }

    fn slot_of(&self, command: u16) -> Result<u16, HostError> {
        let index = command & (MAX_DEPTH - 1);
        let state = self.0.state.borrow();
        match state.slots.get(usize::from(index)) {
            Some(slot) if slot.busy && index | slot.uses << SLOT_BITS == command => Ok(index),
            _ => Err(HostError::Protocol(format!("an answer to command {command:#06x}, which is not under way"))),
        }
    }

    fn on_response(&self, cqe: &Cqe) -> Result<(), HostError> {
        let index = self.slot_of(cqe.command)?;
        self.end(index, cqe.status, cqe.result);
        Ok(())
    }

    fn end(&self, index: u16, status: Status, result: u64) {
        let mut state = self.0.state.borrow_mut();
        let slot = &mut state.slots[usize::from(index)];
        let data = slot.received.take();
        let short = data.as_ref().map_or(0, |data| data.len()) < slot.expected_bytes as usize;
        let answer = if !status.is_success() {
            Err(HostError::Status(status))
        } else if slot.broken {
            Err(HostError::Status(Status::TRANSIENT_TRANSPORT))
        } else if short {
            Err(HostError::Protocol("less data than was asked for".into()))
        } else {
            Ok(Completion { result, data })
        };
        finish(slot, answer);
        if slot.abandoned {
            slot.answer = None;
            state.free.push(index);
            drop(state);
            self.0.room.wake_all();
        }
    }

    fn on_data(&self, header: &DataHeader, bytes: SharedBuf, intact: bool) -> Result<(), HostError> {
        let index = self.slot_of(header.command)?;
        {
            let mut state = self.0.state.borrow_mut();
            let slot = &mut state.slots[usize::from(index)];
            slot.broken |= !intact;
            let expected = slot.expected_bytes as usize;
            let (offset, len) = (header.offset_bytes as usize, bytes.len());
            let before = slot.gathered.as_ref().map_or(0, |(_, filled)| *filled);
            if slot.received.is_some() || offset != before || len > expected - before {
                return Err(HostError::Protocol(format!("C2HData {header:?} of a read of {expected} bytes")));
            }
            if offset == 0 && header.flags & flag::LAST != 0 {
                slot.received = Some(bytes);
            } else {
                let (buf, filled) = slot.gathered.get_or_insert_with(|| (IoBuf::new(expected), 0));
                buf[*filled..*filled + len].copy_from_slice(&bytes);
                *filled += len;
                if *filled == expected {
                    slot.received = slot.gathered.take().map(|(buf, _)| buf.freeze());
                }
            }
        }
        if header.flags & flag::SUCCESS != 0 {
            self.end(index, Status::SUCCESS, 0);
        }
        Ok(())
    }

    fn on_r2t(&self, r2t: &R2t) -> Result<(), HostError> {
        let index = self.slot_of(r2t.command)?;
        let state = &mut *self.0.state.borrow_mut();
        let slot = &mut state.slots[usize::from(index)];
        let (from, to) = (r2t.offset_bytes as usize, r2t.offset_bytes as usize + r2t.len_bytes as usize);
        let data = slot.to_send.as_ref().filter(|data| from < to && to <= data.len());
        let data = data.ok_or_else(|| HostError::Protocol(format!("{r2t:?} asks for what is not there")))?;
        let mut at = from;
        while at < to {
            let end = to.min(at + state.max_h2c_bytes);
            state.writer.h2c_data(r2t.command, r2t.transfer_tag, at as u32, data.slice(at..end), end == to);
            at = end;
        }
        if to == data.len() {
            slot.to_send = None;
        }
        wake(&mut state.sender);
        Ok(())
    }
}

/// Gives the slot back when the caller's future ends, however it ends.
struct Guard<'a> {
    queue: &'a Queue,
    index: u16,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.queue.leave(self.index);
    }
}

fn finish(slot: &mut Slot, answer: Result<Completion, HostError>) {
    slot.busy = false;
    slot.answer = Some(answer);
    slot.to_send = None;
    slot.received = None;
    slot.gathered = None;
    wake(&mut slot.waker);
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

pub(super) fn lost(error: std::io::Error) -> HostError {
    HostError::Connection(error.to_string())
}

async fn receive(stream: &TcpStream) -> Result<SharedBuf, HostError> {
    let bytes = stream.recv().await.map_err(lost)?;
    if bytes.is_empty() { Err(HostError::Connection("the controller closed it".into())) } else { Ok(bytes) }
}

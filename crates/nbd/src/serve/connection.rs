//! One connection: a task that reads and admits, a task that sends, a task per part of a request.

use super::budget::Budget;
use super::exports::{failure, open};
use super::pulse::Pulse;
use super::{ALIVE_FOR, NEGOTIATION_TIME_MAX};
use crate::machine::{Event, Failure, Input, Load, Machine, Ticket, parts};
use runtime::channel::WaitList;
use runtime::{Instant, IoBuf, SharedBuf, TaskHandle, TcpStream};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use volume::latency::{Answered, Door, Flight, Operation, Unsent};
use volume::{Attached, Directory, IoError, Payload, Session, SnapshotMark};

/// Parts of one send: what the runtime gathers in one call.
const SEND_PARTS_MAX: usize = 256;

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// Reading and answering.
    Open,
    /// Nothing more is read; what is in flight is answered, then the connection is closed.
    Draining,
    /// The connection is closed; answers go nowhere.
    Closed,
}

/// What a connection has opened.
pub(super) struct Opened {
    pub(super) volume: Attached,
    /// Where in its history the snapshots are that block status tells of.
    marks: Box<[SnapshotMark]>,
}

pub(super) struct Connection {
    stream: TcpStream,
    directory: Directory,
    budget: Rc<Budget>,
    /// This connection's share of the budget.
    load: Cell<Load>,
    /// What of it waits for the volume's limit, beside that.
    held: Cell<Load>,
    machine: RefCell<Machine>,
    state: Cell<State>,
    /// The node is stopping: what waits for the volume's limit is refused.
    stopping: Cell<bool>,
    /// Ends when the connection is closed.
    session: Session,
    pulse: Rc<Pulse>,
    /// Pauses of the core that this connection has outlived.
    pauses: Cell<u64>,
    /// Sends that carried answers, so far.
    sends: Cell<u64>,
    /// When the header of the request came that is read now.
    received: Cell<Instant>,
    /// Parts of requests whose answer waits to be sent.
    unsent: Unsent,
    /// Bytes of the send that is under way.
    sending_bytes: Cell<usize>,
    reader: Cell<Option<TaskHandle>>,
    /// Since when the send that is under way waits for the client.
    sending_since: Cell<Option<Instant>>,
    /// Wakes the sender.
    output: WaitList,
    /// Wakes those who wait for the end.
    ended: WaitList,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, directory: Directory, budget: Rc<Budget>, pulse: Rc<Pulse>) -> Rc<Self> {
        let pauses = Cell::new(pulse.enter());
        let connection = Rc::new(Self {
            stream,
            directory,
            budget,
            load: Cell::default(),
            held: Cell::default(),
            machine: RefCell::new(Machine::new()),
            state: Cell::new(State::Open),
            stopping: Cell::new(false),
            session: Session::that_waits(),
            pulse,
            pauses,
            sends: Cell::new(0),
            received: Cell::new(runtime::now()),
            unsent: Unsent::default(),
            sending_bytes: Cell::new(0),
            reader: Cell::new(None),
            sending_since: Cell::new(None),
            output: WaitList::default(),
            ended: WaitList::default(),
        });
        let this = Rc::downgrade(&connection);
        connection.session.lives_while(move || this.upgrade().is_some_and(|this| !this.stream.has_ended()));
        connection
    }

    /// Serves the connection to its end: all that it admitted has ended, too.
    pub(super) async fn run(self: Rc<Self>) {
        let connection = self.clone();
        self.reader.set(Some(runtime::spawn(async move { connection.read().await })));
        self.send().await;
        self.enter(State::Closed);
        self.stream.shutdown();
        if let Some(reader) = self.reader.take() {
            reader.cancel();
        }
        // Requests that still run hold the connection; what they weigh goes with it (see Drop).
    }

    /// Reads nothing more; answers what is in flight, then closes.
    pub(super) fn stop(&self) {
        self.stopping.set(true);
        if let Some(reader) = self.reader.take() {
            reader.cancel();
        }
        self.enter(State::Draining);
    }

    /// Closes at once.
    pub(super) fn abort(&self) {
        self.enter(State::Closed);
        self.stream.shutdown();
    }

    /// Closes the connection if its client has not taken what was sent to it for `time`.
    pub(super) fn abort_if_stalled(&self, time: Duration) {
        if self.sending_since.get().is_some_and(|since| runtime::now().since(since) > time) {
            self.abort();
        }
    }

    /// Gives the memory of a busy time back.
    pub(super) fn shrink(&self) {
        self.unsent.shrink();
    }

    /// Resolves when the connection is closed.
    pub(super) async fn finished(&self) {
        self.ended.until(|| (self.state.get() == State::Closed).then_some(())).await;
    }

    fn enter(&self, state: State) {
        self.state.set(self.state.get().max(state));
        self.output.wake_all();
        if self.state.get() == State::Closed {
            self.session.end();
            self.ended.wake_all();
            self.budget.wake();
        }
    }

    async fn read(self: Rc<Self>) {
        let state = match runtime::timeout(NEGOTIATION_TIME_MAX, self.negotiate()).await {
            Ok(Some((opened, input))) => self.transfer(&Rc::new(opened), input).await,
            Ok(None) => State::Draining,
            Err(_) => State::Closed,
        };
        self.reader.set(None);
        self.enter(state);
    }

    /// Until an export is opened: it, and what was received behind it. `None` if the connection is to be closed.
    async fn negotiate(&self) -> Option<(Opened, Input)> {
        let mut input = self.receive().await?;
        loop {
            let event = self.machine.borrow_mut().next(&mut input, &self.directory);
            self.output.wake_all();
            match event {
                Ok(Some(Event::Opened { name, since })) => {
                    // What it asks for meanwhile waits in its socket.
                    let volume = open(&self.directory, &name)?.attach(&self.session).await.ok()?;
                    return Some((Opened { marks: volume.marks_of(&since).into(), volume }, input));
                }
                Ok(Some(Event::Full)) => {
                    self.budget.wait(|| !self.machine.borrow().is_full() || self.is_over()).await;
                    continue;
                }
                Ok(None) => input = self.receive().await?,
                Ok(Some(_)) | Err(_) => return None,
            }
        }
    }

    /// What has arrived; `None` at the end of the stream.
    async fn receive(&self) -> Option<Input> {
        match self.stream.recv().await {
            Ok(bytes) if !bytes.is_empty() => Some(Input::new(bytes)),
            _ => None,
        }
    }

    /// Admits requests until the connection ends; returns what is to become of it.
    async fn transfer(self: &Rc<Self>, opened: &Rc<Opened>, mut input: Input) -> State {
        let mut held = VecDeque::new();
        loop {
            if !self.wait_for_room(&mut held).await {
                return State::Closed;
            }
            let event = self.machine.borrow_mut().next(&mut input, &self.directory);
            match event {
                Ok(Some(Event::Disconnect)) | Err(_) => return State::Draining,
                Ok(Some(Event::Full)) => self.output.wake_all(), // and wait for room
                Ok(Some(event)) => self.admit_in_turn(opened, event),
                Ok(None) => {
                    if self.machine.borrow().has_output() {
                        self.output.wake_all(); // a refusal needs no task to answer it
                    }
                    match self.receive_more(&mut held).await {
                        Some(more) => input = more,
                        None => return State::Closed,
                    }
                }
            }
        }
    }

    /// The next bytes: what is held back, the rest of a long payload straight into its buffer, or whatever comes.
    /// `None` if the connection has ended, or its host is not known to be there.
    async fn receive_more(&self, held: &mut VecDeque<SharedBuf>) -> Option<Input> {
        if let Some(bytes) = held.pop_front() {
            return Some(Input::new(bytes));
        }
        let is_within_request = self.machine.borrow().awaits_payload();
        let direct = self.machine.borrow_mut().direct_receive();
        let input = match direct {
            None => self.receive().await?,
            Some(rest) => {
                let (result, rest) = self.stream.recv_exact(rest).await;
                result.ok()?;
                self.machine.borrow_mut().direct_received(rest);
                Input::new(IoBuf::new(0).freeze())
            }
        };
        if !is_within_request {
            self.received.set(runtime::now());
        }
        let pauses = self.pulse.look();
        if self.pauses.replace(pauses) == pauses || self.outlive_pause(held).await { Some(input) } else { None }
    }

    /// Waits until another request may begin. Returns whether the connection and its host are still there.
    async fn wait_for_room(&self, held: &mut VecDeque<SharedBuf>) -> bool {
        let has_room = || self.budget.has_room(self.load.get()) || self.load.get().commands == 0;
        let has_room = || has_room() && self.budget.may_hold(self.held.get());
        let may_go_on = || has_room() && !self.machine.borrow().is_full() || self.is_over();
        if may_go_on() {
            return true;
        }
        let (began, sends) = (runtime::now(), self.sends.get());
        self.budget.wait(may_go_on).await;
        if runtime::now().since(began) <= ALIVE_FOR {
            return !self.is_over();
        }
        // All there is may be a write whose payload is still being read: no answer to it comes before that is.
        let is_answerless = self.machine.borrow().awaits_payload() && self.load.get().commands <= 1;
        if is_answerless { self.outlive_pause(held).await } else { self.outlive_back_pressure(sends).await }
    }

    /// Resolves when an answer has been sent since `sends` were; at once if there is none to wait for.
    pub(super) async fn wait_for_answer(&self, sends: u64) {
        let sent = || self.sends.get() > sends || self.is_over() || self.load.get().commands == 0;
        self.budget.wait(sent).await;
    }

    /// Whether nothing more is to be read.
    pub(super) fn is_over(&self) -> bool {
        self.state.get() != State::Open
    }

    /// Whether answers go nowhere any more.
    pub(super) fn is_closed(&self) -> bool {
        self.state.get() == State::Closed
    }

    /// Whether the node is stopping.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    pub(super) fn machine(&self) -> RefMut<'_, Machine> {
        self.machine.borrow_mut()
    }

    pub(super) fn wake_sender(&self) {
        self.output.wake_all();
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// When the header of the request came that is read now.
    pub(super) fn received(&self) -> Instant {
        self.received.get()
    }

    /// Hands a request to the volume whose header came at `received`.
    pub(super) fn admit(self: &Rc<Self>, opened: &Opened, event: Event, received: Instant) {
        let Opened { volume, marks, .. } = opened;
        match event {
            Event::Read { ticket, offset_bytes, len_bytes } => {
                self.charge(Load { commands: 1, bytes: len_bytes.into() });
                for (at, len) in parts(offset_bytes, len_bytes) {
                    self.start_read(volume, ticket, received, (at, len));
                }
            }
            Event::Write { ticket, is_first, offset_bytes, bytes } => {
                self.charge(Load { commands: is_first.into(), bytes: bytes.len() as u64 });
                self.start_write(volume, ticket, received, (offset_bytes, bytes));
            }
            Event::Flush { ticket } => {
                let flight = volume.flight(Door::Nbd, Operation::Flush, received);
                let volume = volume.clone();
                self.start(ticket, flight, false, async move { volume.flush().await });
            }
            Event::Trim { ticket, offset_bytes, len_bytes } => {
                let flight =
                    volume.flight(Door::Nbd, Operation::Discard, received).of_range(offset_bytes, len_bytes.into());
                let volume = volume.clone();
                self.start(ticket, flight, false, async move { volume.discard(offset_bytes, len_bytes.into()).await });
            }
            Event::WriteZeroes { ticket, offset_bytes, len_bytes, is_stored } => {
                let flight =
                    volume.flight(Door::Nbd, Operation::WriteZeroes, received).of_range(offset_bytes, len_bytes.into());
                let volume = volume.clone();
                self.start(ticket, flight, true, async move {
                    match is_stored {
                        false => volume.write_zeroes(offset_bytes, len_bytes.into()).await,
                        true => volume.store_zeroes(offset_bytes, len_bytes.into()).await,
                    }
                });
            }
            Event::BlockStatus { ticket, offset_bytes, len_bytes, extents_max } => {
                self.charge(Load { commands: 1, bytes: self.machine.borrow().status_bytes() });
                let flight =
                    volume.flight(Door::Nbd, Operation::BlockStatus, received).of_range(offset_bytes, len_bytes.into());
                let (connection, volume, marks) = (self.clone(), volume.clone(), marks.clone());
                runtime::spawn(async move {
                    let status = volume.block_status(offset_bytes, len_bytes.into(), &marks, extents_max as usize);
                    let (result, command) = flight.time(status).await;
                    let result = result.map_err(|error| connection.failed(&error, false));
                    connection.machine.borrow_mut().status_done(ticket, result);
                    connection.answered(command);
                });
            }
            Event::Opened { .. } | Event::Full | Event::Disconnect => unreachable!("handled by the reader"),
        }
    }

    fn start_read(self: &Rc<Self>, volume: &Attached, ticket: Ticket, received: Instant, range: (u64, u32)) {
        let (offset_bytes, len_bytes) = range;
        let flight = volume.flight(Door::Nbd, Operation::Read, received).of_range(offset_bytes, len_bytes.into());
        let (connection, volume) = (self.clone(), volume.clone());
        runtime::spawn(async move {
            let (result, command) = flight.time(volume.read(offset_bytes, len_bytes)).await;
            let result = result.map(|data| data.bytes).map_err(|error| connection.failed(&error, false));
            connection.machine.borrow_mut().read_done(ticket, offset_bytes, result);
            connection.answered(command);
        });
    }

    fn start_write(self: &Rc<Self>, volume: &Attached, ticket: Ticket, received: Instant, data: (u64, SharedBuf)) {
        let (offset_bytes, bytes) = data;
        let len_bytes = bytes.len() as u64;
        let flight = volume.flight(Door::Nbd, Operation::Write, received).of_range(offset_bytes, len_bytes);
        let (connection, volume) = (self.clone(), volume.clone());
        runtime::spawn(async move {
            let (result, command) = flight.time(volume.write(offset_bytes, Payload { bytes })).await;
            connection.discharge(Load { commands: 0, bytes: len_bytes });
            connection.answer(ticket, command, result.map_err(|error| connection.failed(&error, true)));
        });
    }

    /// Starts a request without payload. `writes`: whether it makes content, so that the end of the volume is no space.
    fn start(
        self: &Rc<Self>,
        ticket: Ticket,
        flight: Flight,
        writes: bool,
        request: impl Future<Output = Result<(), IoError>> + 'static,
    ) {
        self.charge(Load { commands: 1, bytes: 0 });
        let connection = self.clone();
        runtime::spawn(async move {
            let (result, command) = flight.time(request).await;
            connection.answer(ticket, command, result.map_err(|error| connection.failed(&error, writes)));
        });
    }

    /// What a client is told of a command that was not done; one whose volume is served elsewhere by now has to connect again.
    fn failed(&self, error: &IoError, writes: bool) -> Failure {
        if let IoError::Elsewhere(_) = error {
            self.abort();
        }
        failure(error, writes)
    }

    fn answer(&self, ticket: Ticket, command: Answered, result: Result<(), Failure>) {
        self.machine.borrow_mut().done(ticket, result);
        self.answered(command);
    }

    /// What the part came to waits to be sent. Of a request of several parts the answer may come with the last one:
    /// then an earlier part counts as sent with what was queued before it.
    fn answered(&self, command: Answered) {
        self.output.wake_all();
        if self.state.get() != State::Closed {
            self.unsent.push(self.machine.borrow().output_bytes() + self.sending_bytes.get(), command);
        }
    }

    /// Sends what the machine has, all of a turn at once, until the connection is closed or has nothing more to say.
    async fn send(&self) {
        let mut parts = Vec::with_capacity(SEND_PARTS_MAX);
        loop {
            let go_on = self
                .output
                .until(|| {
                    let machine = self.machine.borrow();
                    match self.state.get() {
                        State::Closed => Some(false),
                        _ if machine.has_output() => Some(true),
                        State::Draining if machine.in_flight() == 0 => Some(false),
                        _ => None,
                    }
                })
                .await;
            if !go_on {
                return;
            }
            runtime::turn_end().await;
            while self.machine.borrow().has_output() {
                let was_full = self.machine.borrow().is_full();
                let sent = self.machine.borrow_mut().take_output(&mut parts, SEND_PARTS_MAX);
                let bytes = parts.iter().map(|part| part.len()).sum();
                self.sending_bytes.set(bytes);
                self.sending_since.set(Some(runtime::now()));
                if self.stream.send(&mut parts).await.is_err() {
                    return;
                }
                self.sending_since.set(None);
                self.sending_bytes.set(0);
                self.unsent.sent(bytes);
                self.sends.set(self.sends.get() + 1);
                self.discharge(sent);
                if was_full {
                    self.budget.wake();
                }
            }
        }
    }

    /// A request begins to wait for the volume's limit.
    pub(super) fn hold(&self, load: Load) {
        let mut held = self.held.get();
        held += load;
        self.held.set(held);
        self.budget.hold(load);
    }

    /// It waits no more.
    pub(super) fn unhold(&self, load: Load) {
        let mut held = self.held.get();
        held -= load;
        self.held.set(held);
        self.budget.unhold(load);
    }

    pub(super) fn charge(&self, load: Load) {
        let mut own = self.load.get();
        own += load;
        self.load.set(own);
        self.budget.add(load);
    }

    fn discharge(&self, load: Load) {
        if load == Load::default() {
            return;
        }
        let mut own = self.load.get();
        own -= load;
        self.load.set(own);
        self.budget.sub(load);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.discharge(self.load.get());
        self.pulse.leave();
    }
}

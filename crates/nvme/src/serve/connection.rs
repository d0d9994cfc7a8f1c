//! One connection on its core: from the judgement of its Connect to its end.

use super::core::Core;
use super::flow;
use super::{Handover, Port};
use crate::limits::{
    ABORT_TIMEOUT, MAX_CONNECTION_GRANTED_BYTES, MAX_CONNECTION_HELD_BYTES, MAX_CONNECTION_PAYLOAD_BYTES,
    RESET_TIMEOUT, SHUTDOWN_TIMEOUT, STALLED_BYTES, STALLED_SECONDS, TERMINATION_TIMEOUT, TRANSFER_MIN_BYTES,
    TRANSFER_TIMEOUT,
};
use crate::machine::{
    Aborting, AdminRequest, AdminView, Admission, Change, ConnectRequest, Connection, ControllerHandle, ControllerKind,
    Ending, Endpoints, NamespaceTable, Refusal, Tag,
};
use crate::wire::log::DiscoveryEntry;
use crate::wire::{AsyncEvent, Status};
use runtime::channel::WaitList;
use runtime::{Instant, TcpStream, now, sleep, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use types::{Mutant, mutant};
use volume::latency::{Answered, Unsent};
use volume::{Session, Volume};

/// A host that reconnects may come before its old connection for the same queue has been seen to end: its Connect is
/// looked at again this often, in these steps.
const DUPLICATE_QUEUE_TRIES: usize = 20;
const DUPLICATE_QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// See the module.
pub(super) struct Conn {
    pub core: Rc<Core>,
    pub stream: TcpStream,
    pub machine: RefCell<Connection>,
    /// Nothing is admitted or sent any more.
    pub session: Session,
    /// The send task, when it has nothing to send.
    pub sender: RefCell<Option<Waker>>,
    /// The send task has nothing left.
    pub sent: WaitList,
    /// Data that was asked for has come.
    transferred: WaitList,
    /// Commands whose answer waits to be sent.
    pub unsent: Unsent,
    /// When the headers came of the commands that wait for their data, by the place of the tag. Who ends without its
    /// data leaves its own behind.
    headers: RefCell<Vec<Option<(Tag, Instant)>>>,
    /// Nothing is read, since the core or this connection has taken on all it may.
    pub paused: Cell<bool>,
    /// Bytes being sent, and all that the core's budget knows as unsent.
    pub sending_bytes: Cell<usize>,
    pub unsent_bytes: Cell<usize>,
    /// Bytes asked for, as the core's budget knows them.
    pub granted_bytes: Cell<usize>,
    /// Bytes that came and went so far.
    moved_bytes: Cell<u64>,
    /// When the transfer under way was looked at first, or the last one ended, and how many bytes had moved then.
    window: Cell<(Instant, u64)>,
    /// Looks in a row, a second apart, at which next to nothing had moved since the last one, and what had moved then.
    stalled: Cell<(u8, u64)>,
    /// What the host sees of the subsystem, as of a generation of the directory.
    view: RefCell<(u64, Rc<NamespaceTable>)>,
    /// Payload of the commands that run.
    executing_bytes: Cell<usize>,
    /// Commands that wait for their volumes' limits, and memory that they hold.
    held: Cell<(usize, usize)>,
    /// Commands that run, by namespace id.
    running: RefCell<Vec<u32>>,
    idle: WaitList,
    /// The discovery log as the host was last told, or could see when it connected.
    discovery: RefCell<Vec<DiscoveryEntry>>,
    /// The host has been told of its namespaces: nothing is on its way to it that it has not waited for.
    is_told: Cell<bool>,
    controller: Arc<ControllerHandle>,
    queue: u16,
    endpoints: Endpoints,
}

/// Judges the Connect, then serves the queue until its connection ends.
pub(super) async fn serve(core: Rc<Core>, handover: Handover) {
    let Handover { stream, mut machine, request, endpoints, port } = handover;
    let stream = stream.attach();
    let admission = match judge(&core, &request, endpoints, port).await {
        Ok(admission) => admission,
        Err(refusal) => {
            let (at, queue, status) = (endpoints.host, request.connect.queue, refusal.status);
            // A name is what a stranger says it is: no control characters of it reach the log.
            let host = request.data.host.as_deref().unwrap_or("without a name").escape_debug();
            core.complaints.tell(format_args!("NVMe host {host} at {at}: Connect of queue {queue}: {status}"));
            machine.refuse(&request, refusal);
            flow::refuse(&stream, &mut machine).await;
            return;
        }
    };
    machine.accept(&request, &admission);
    let connection = Rc::new(Conn {
        core: core.clone(),
        stream,
        machine: RefCell::new(machine),
        session: Session::default(),
        sender: RefCell::default(),
        sent: WaitList::default(),
        transferred: WaitList::default(),
        unsent: Unsent::default(),
        headers: RefCell::default(),
        paused: Cell::new(false),
        sending_bytes: Cell::new(0),
        unsent_bytes: Cell::new(0),
        granted_bytes: Cell::new(0),
        moved_bytes: Cell::new(0),
        window: Cell::new((now(), 0)),
        stalled: Cell::default(),
        view: RefCell::new((core.generation(), core.view(&admission.controller.host_nqn))),
        executing_bytes: Cell::new(0),
        held: Cell::default(),
        running: RefCell::default(),
        idle: WaitList::default(),
        discovery: RefCell::default(),
        is_told: Cell::new(false),
        controller: admission.controller.clone(),
        queue: admission.queue,
        endpoints,
    });
    let this = Rc::downgrade(&connection);
    connection.session.lives_while(move || this.upgrade().is_some_and(|connection| flow::host_lives(&connection)));
    connection.discovery.replace(connection.discovery_now());
    core.add(&connection);
    if connection.controller.has_ended() || core.target.has_stopped() {
        connection.end(); // it ended between the judgement and here: nobody else would say so
    }
    connection.output_changed();
    spawn(flow::send_loop(connection.clone()));
    let is_host = connection.is_admin() && connection.controller.kind == ControllerKind::Io;
    let open_by_default = core.target.registry.subsystem().open_by_default;
    let here = is_host.then(|| core.directory.host_came(&connection.controller.host_nqn, open_by_default));
    flow::receive_loop(&connection).await;
    drop(here);
    connection.say_goodbye().await;
    connection.end();
    core.remove(&connection);
    core.target.registry.queue_gone(&connection.controller, connection.queue);
    if connection.is_admin() {
        core.target.end_queues(&connection.controller, false).await;
    }
}

/// Asks the registry, and ends the older controllers that the new one replaces on all cores before it is answered.
async fn judge(core: &Core, request: &ConnectRequest, endpoints: Endpoints, port: Port) -> Result<Admission, Refusal> {
    let target = &core.target;
    let is_stranger = |host: &str| !core.is_visible(host);
    let asks_for_volumes = request.data.subsystem.as_ref() == Some(&target.registry.subsystem().nqn);
    if request.connect.queue == 0 && asks_for_volumes && request.data.host.as_deref().is_some_and(is_stranger) {
        return Err(Refusal::stranger());
    }
    let discovery_only = port == Port::Discovery;
    let judge = || target.registry.admit(&request.connect, &request.data, endpoints, discovery_only, now().0);
    let mut verdict = judge();
    for _ in 0..DUPLICATE_QUEUE_TRIES {
        match &verdict {
            Err(refusal) if refusal.status == Status::CONNECT_BUSY => sleep(DUPLICATE_QUEUE_PAUSE).await,
            _ => break,
        }
        verdict = judge();
    }
    let admission = verdict?;
    for older in &admission.replaces {
        target.end_queues(older, false).await;
    }
    Ok(admission)
}

impl Conn {
    pub fn is_admin(&self) -> bool {
        self.queue == 0
    }

    pub fn queue(&self) -> u16 {
        self.queue
    }

    pub fn belongs_to(&self, controller: &Arc<ControllerHandle>) -> bool {
        Arc::ptr_eq(&self.controller, controller)
    }

    pub fn has_ended(&self) -> bool {
        self.session.has_ended()
    }

    /// Bytes of answers that have not left yet.
    pub fn waits_to_be_sent(&self) -> usize {
        self.machine.borrow().queued_bytes() + self.sending_bytes.get()
    }

    /// Whether so little data is on its way here that more may be asked for.
    pub fn may_be_granted(&self) -> bool {
        let receiving = self.machine.borrow().receiving_bytes();
        receiving < MAX_CONNECTION_GRANTED_BYTES || mutant(Mutant::GrantedAlone)
    }

    /// Ends the connection now: nothing that was received and not yet admitted is executed.
    pub fn end(&self) {
        if self.has_ended() {
            return;
        }
        self.session.end();
        self.stream.shutdown();
        self.core.budget.unsent(self.unsent_bytes.take(), 0);
        self.core.budget.granted(self.granted_bytes.take(), 0);
        self.core.budget.wake();
        self.transferred.wake_all();
        self.wake_sender();
    }

    fn wake_sender(&self) {
        if let Some(waker) = self.sender.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Tells budget and send task that the machine has more, or less, to send.
    pub fn output_changed(&self) {
        if self.has_ended() {
            return;
        }
        let (queued, unsent) = (self.machine.borrow().queued_bytes(), self.waits_to_be_sent());
        if unsent == 0 {
            self.transfer_ended();
        }
        self.core.budget.unsent(self.unsent_bytes.replace(unsent), unsent);
        if queued > 0 {
            self.wake_sender();
        }
    }

    /// Tells the budget how much data is on its way here.
    pub fn transfers_changed(&self) {
        let granted = self.machine.borrow().receiving_bytes();
        if granted < self.granted_bytes.get() {
            self.transfer_ended();
        }
        if granted != self.granted_bytes.get() && !self.has_ended() {
            self.core.budget.granted(self.granted_bytes.replace(granted), granted);
            self.transferred.wake_all();
        }
    }

    /// The header of a command came, whose data is still to come.
    pub fn header_received(&self, tag: Tag, at: Instant) {
        let mut headers = self.headers.borrow_mut();
        let place = tag.place();
        if headers.len() <= place {
            headers.resize(place + 1, None);
        }
        headers[place] = Some((tag, at));
    }

    /// When the header of a command came, if its data came later.
    pub fn take_header(&self, tag: Tag) -> Option<Instant> {
        let (of, at) = self.headers.borrow_mut().get_mut(tag.place())?.take()?;
        (of == tag).then_some(at)
    }

    /// A command was answered; the answer waits to be sent.
    pub fn answered(&self, command: Answered) {
        self.output_changed();
        if !self.has_ended() {
            self.unsent.push(self.unsent_bytes.get(), command);
        }
    }

    /// Asks the host for a write's data.
    pub fn grant(&self, tag: Tag) {
        if self.has_ended() {
            return;
        }
        self.machine.borrow_mut().grant(tag);
        self.transfers_changed();
        self.output_changed();
    }

    /// What the host sees of the subsystem, as of now.
    pub fn namespaces(&self) -> Rc<NamespaceTable> {
        let generation = self.core.generation();
        let mut view = self.view.borrow_mut();
        if view.0 != generation {
            *view = (generation, self.core.view(&self.controller.host_nqn));
        }
        view.1.clone()
    }

    /// Whether the host may use this namespace now.
    pub fn sees(&self, nsid: u32) -> bool {
        self.namespaces().get(nsid).is_some()
    }

    /// The volume behind a namespace that the host may use.
    pub fn volume(&self, nsid: u32) -> Option<Volume> {
        self.sees(nsid).then(|| self.core.volume(nsid, &self.session)).flatten()
    }

    /// Namespaces changed, or who may see them: the host is told of what is different for it.
    pub fn view_changed(&self) {
        let before = self.view.borrow().1.clone();
        let after = self.namespaces();
        if !self.is_admin() || self.controller.kind != ControllerKind::Io || self.has_ended() {
            return;
        }
        let changed: Vec<u32> = after.changed_since(&before).collect();
        if !changed.is_empty() {
            self.machine.borrow_mut().namespaces_changed(changed.into_iter());
            self.output_changed();
        }
        if after.ana_differs_from(&before) {
            self.machine.borrow_mut().raise(AsyncEvent::AnaChanged);
            self.output_changed();
        }
    }

    fn discovery_now(&self) -> Vec<DiscoveryEntry> {
        match self.controller.kind {
            ControllerKind::Discovery => self.core.discovery(&self.controller.host_nqn, self.endpoints),
            ControllerKind::Io => Vec::new(),
        }
    }

    /// The discovery log changed: the host is told if what it sees did (NVMe Base 2.0 §5.2, notice F0h).
    pub fn discovery_changed(&self) {
        if self.controller.kind != ControllerKind::Discovery || self.has_ended() {
            return;
        }
        let entries = self.discovery_now();
        if self.discovery.replace(entries) != *self.discovery.borrow() {
            self.machine.borrow_mut().raise(AsyncEvent::DiscoveryChanged);
            self.output_changed();
        }
    }

    /// A command on the namespace begins, which holds so many bytes.
    pub fn begun_on(&self, nsid: u32, bytes: usize) {
        self.executing_bytes.set(self.executing_bytes.get() + bytes);
        let mut running = self.running.borrow_mut();
        let index = nsid as usize;
        if running.len() <= index {
            running.resize(index + 1, 0);
        }
        running[index] += 1;
    }

    /// A command on the namespace has ended, or was given up.
    pub fn ended_on(&self, nsid: u32, bytes: usize) {
        self.executing_bytes.set(self.executing_bytes.get() - bytes);
        let left = {
            let count = &mut self.running.borrow_mut()[nsid as usize];
            *count -= 1;
            *count
        };
        if left == 0 {
            self.idle.wake_all();
        }
    }

    pub fn has_running(&self) -> bool {
        self.running.borrow().iter().any(|count| *count > 0)
    }

    /// Returns when no command of this connection runs on the namespace.
    pub async fn until_idle_on(&self, nsid: u32) {
        let is_idle = || self.running.borrow().get(nsid as usize).is_none_or(|count| *count == 0);
        self.idle.until(|| is_idle().then_some(())).await;
    }

    /// Returns when no command of this connection runs and all answers have been sent.
    pub async fn until_answered(&self) {
        self.idle.until(|| (!self.has_running()).then_some(())).await;
        self.sent.until(|| (self.unsent_bytes.get() == 0 || self.has_ended()).then_some(())).await;
    }

    /// So many bytes came or went.
    pub fn moved(&self, bytes: usize) {
        self.moved_bytes.set(self.moved_bytes.get() + bytes as u64);
    }

    fn transfer_ended(&self) {
        self.window.set((now(), self.moved_bytes.get()));
    }

    /// Whether so little is executed and waits to be sent that another command may be read.
    pub fn may_take_more(&self) -> bool {
        let holds = self.executing_bytes.get() + self.unsent_bytes.get();
        holds < MAX_CONNECTION_PAYLOAD_BYTES && self.may_hold_more() && !self.core.is_draining()
    }

    /// Whether so little waits for limits that another command may: one without any goes on however much others have.
    fn may_hold_more(&self) -> bool {
        let (commands, bytes) = self.held.get();
        commands == 0 || (bytes < MAX_CONNECTION_HELD_BYTES && self.core.budget.may_hold())
    }

    /// A command begins to wait for its volume's limit.
    pub fn hold_begins(&self, bytes: usize) {
        let held = self.held.get();
        self.held.set((held.0 + 1, held.1 + bytes));
        self.core.budget.hold(bytes);
    }

    /// It waits no more.
    pub fn hold_ends(&self, bytes: usize) {
        let held = self.held.get();
        self.held.set((held.0 - 1, held.1 - bytes));
        self.core.budget.unhold(bytes);
    }

    /// Executes an admin command; one that asks which namespaces there are, or where they are served, when those have come that
    /// are on their way here (docs/heads.md, H14): without one optimized path Linux makes no device.
    pub fn admin(self: &Rc<Self>, request: AdminRequest) {
        let is_first =
            !self.is_told.get() && self.controller.kind == ControllerKind::Io && request.asks_for_namespaces();
        if !is_first || !self.core.directory.awaits(&self.controller.host_nqn) {
            self.is_told.set(self.is_told.get() || is_first);
            return self.execute_admin(&request);
        }
        let connection = self.clone();
        spawn(async move {
            connection.core.directory.until_reached(&connection.controller.host_nqn).await;
            connection.is_told.set(true);
            if !connection.has_ended() {
                connection.execute_admin(&request);
                connection.output_changed();
            }
        });
    }

    fn execute_admin(self: &Rc<Self>, request: &AdminRequest) {
        let (namespaces, discovery) = (self.namespaces(), self.discovery_now());
        let view = AdminView {
            registry: &self.core.target.registry,
            namespaces: &namespaces,
            ana_change_count: self.core.ana_changes(),
            health: self.core.health(),
            discovery: &discovery,
            discovery_generation: self.core.discovery_generation(),
            now_ns: now().0,
        };
        let change = self.machine.borrow_mut().execute_admin(request, &view);
        match change {
            None => {}
            Some(Change::EndQueues) => drop(spawn(self.clone().end_io_queues())),
            Some(Change::Abort { tag, queue, command }) => drop(spawn(self.clone().abort(tag, queue, command))),
        }
    }

    /// A reset or a shutdown: the I/O queues end on all cores, in time or the controller says that it failed.
    async fn end_io_queues(self: Rc<Self>) {
        let ended = timeout(RESET_TIMEOUT, self.core.target.end_queues(&self.controller, true)).await;
        let mut machine = self.machine.borrow_mut();
        match ended {
            Ok(()) => machine.queues_ended(now().0),
            Err(_) => machine.fail(),
        }
    }

    /// Asks the queue of a command to take it back, on whichever core that is.
    async fn abort(self: Rc<Self>, tag: Tag, queue: u16, command: u16) {
        let aborted = timeout(ABORT_TIMEOUT, self.core.target.abort(&self.controller, queue, command)).await;
        if !self.has_ended() {
            self.machine.borrow_mut().complete_abort(tag, aborted.unwrap_or(false));
            self.output_changed();
        }
    }

    /// Takes a command of this queue back; whether it ended as aborted. It may wait for data that is on its way.
    pub async fn take_back(self: Rc<Self>, command: u16) -> bool {
        let aborting = self.machine.borrow_mut().abort(command);
        self.output_changed();
        match aborting {
            Aborting::Aborted => true,
            Aborting::NotAborted => false,
            Aborting::Waits(tag) => {
                let is_over = || self.has_ended() || !self.machine.borrow().is_under_way(tag);
                self.transferred.until(|| is_over().then_some(())).await;
                !self.has_ended()
            }
        }
    }

    /// Ends the controller, here and on all cores.
    pub fn end_controller(self: &Rc<Self>) {
        self.controller.end();
        let connection = self.clone();
        spawn(async move { connection.core.target.end_queues(&connection.controller, false).await });
    }

    /// Whether the host has been silent for longer than it promised.
    pub fn host_is_silent(&self) -> bool {
        self.controller.is_silent(now().0)
    }

    /// The host is silent for longer than its keep alive timeout: the controller fails and ends (NVMe Base 2.0 §3.9).
    pub fn end_silent(self: &Rc<Self>) {
        if self.is_admin() {
            self.machine.borrow_mut().fail();
        }
        self.complain(format_args!("nothing was heard for the keep alive timeout, the controller is ended"));
        self.end_controller();
    }

    /// Logs what is wrong with the host.
    fn complain(&self, what: fmt::Arguments<'_>) {
        let (host, at, queue) = (self.controller.host_nqn.escape_debug(), self.endpoints.host, self.queue);
        self.core.complaints.tell(format_args!("NVMe host {host} at {at}, queue {queue}: {what}"));
    }

    /// Ends what cannot go on: a controller whose host is silent or was shut down long ago, a transfer that stands
    /// still. `others_wait`: for the memory that it may hold.
    pub fn look_after(self: &Rc<Self>, others_wait: bool) {
        if self.has_ended() {
            return;
        }
        if self.is_admin() && self.host_is_silent() {
            self.end_silent();
            return;
        }
        let shut_down_at = self.machine.borrow().shut_down_at_ns();
        if shut_down_at.is_some_and(|at| u128::from(now().0.saturating_sub(at)) > SHUTDOWN_TIMEOUT.as_nanos()) {
            self.end_controller();
            return;
        }
        self.unsent.shrink();
        self.look_after_transfer(others_wait);
    }

    fn look_after_transfer(&self, others_wait: bool) {
        let moved = self.moved_bytes.get();
        let (looks, moved_before) = self.stalled.get();
        // What does not come because it is not read is no fault of the host.
        let awaits_host = self.machine.borrow().awaits_data() && !self.paused.get();
        if self.sending_bytes.get() == 0 && !awaits_host {
            self.stalled.set((0, moved));
            return self.transfer_ended();
        }
        let looks = if moved - moved_before < TRANSFER_MIN_BYTES { looks.saturating_add(1) } else { 0 };
        self.stalled.set((looks, moved));
        let holds = self.unsent_bytes.get() + self.granted_bytes.get();
        if others_wait && looks >= STALLED_SECONDS && holds >= STALLED_BYTES {
            self.complain(format_args!(
                "{holds} bytes are on their way, next to nothing moved for {STALLED_SECONDS} s, and others wait for the \
                 memory: the connection is closed"
            ));
            return self.end();
        }
        let (since, moved_then) = self.window.get();
        if now().since(since) <= TRANSFER_TIMEOUT {
            return;
        }
        if moved - moved_then < TRANSFER_MIN_BYTES {
            let seconds = TRANSFER_TIMEOUT.as_secs();
            self.complain(format_args!("a transfer did not get on for {seconds} s: the connection is closed"));
            return self.end();
        }
        self.transfer_ended();
    }

    /// After a TermReq of ours: it is sent, then what comes is thrown away until the host closes, so that no reset
    /// overtakes it. After one of the host there is nothing to wait for.
    async fn say_goodbye(&self) {
        let ending = self.machine.borrow().ending();
        let Some(ending) = ending.filter(|_| !self.has_ended()) else { return };
        self.complain(format_args!("{ending}: the connection is closed"));
        if matches!(ending, Ending::ByHost(_)) {
            return;
        }
        let _ = timeout(TERMINATION_TIMEOUT, async {
            self.sent.until(|| (self.unsent_bytes.get() == 0 || self.has_ended()).then_some(())).await;
            while !self.has_ended() && self.stream.recv().await.is_ok_and(|bytes| !bytes.is_empty()) {}
        })
        .await;
    }
}

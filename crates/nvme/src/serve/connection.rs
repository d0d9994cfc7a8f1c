//! One connection on its core: from the judgement of its Connect to its end.

use super::core::Core;
use super::flow;
use super::{Handover, Port, Target};
use crate::limits::{TERMINATION_TIMEOUT, TRANSFER_TIMEOUT};
use crate::machine::{
    AdminRequest, AdminView, Admission, Change, ConnectRequest, Connection, ControllerHandle, ControllerKind,
    Endpoints, Refusal, Tag,
};
use crate::wire::Status;
use runtime::channel::WaitList;
use runtime::{Instant, TcpStream, now, sleep, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use volume::Session;

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
    /// Bytes being sent, and all that the core's budget knows as unsent.
    pub sending_bytes: Cell<usize>,
    pub unsent_bytes: Cell<usize>,
    /// Bytes asked for, as the core's budget knows them.
    pub granted_bytes: Cell<usize>,
    /// Last time that a byte came or a send ended.
    pub progress: Cell<Instant>,
    controller: Arc<ControllerHandle>,
    queue: u16,
    endpoints: Endpoints,
}

/// Judges the Connect, then serves the queue until its connection ends.
pub(super) async fn serve(core: Rc<Core>, handover: Handover) {
    let Handover { stream, mut machine, request, endpoints, port } = handover;
    let stream = stream.attach();
    let admission = match judge(&core.target, &request, endpoints, port).await {
        Ok(admission) => admission,
        Err(refusal) => {
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
        sending_bytes: Cell::new(0),
        unsent_bytes: Cell::new(0),
        granted_bytes: Cell::new(0),
        progress: Cell::new(now()),
        controller: admission.controller.clone(),
        queue: admission.queue,
        endpoints,
    });
    core.add(&connection);
    if connection.controller.has_ended() || core.target.has_stopped() {
        connection.end(); // it ended between the judgement and here: nobody else would say so
    }
    connection.output_changed();
    spawn(flow::send_loop(connection.clone()));
    flow::receive_loop(&connection).await;
    connection.say_goodbye().await;
    connection.end();
    core.remove(&connection);
    core.target.registry.queue_gone(&connection.controller, connection.queue);
    if connection.is_admin() {
        core.target.end_queues(&connection.controller, false).await;
    }
}

/// Asks the registry, and ends the older controllers that the new one replaces on all cores before it is answered.
async fn judge(
    target: &Target,
    request: &ConnectRequest,
    endpoints: Endpoints,
    port: Port,
) -> Result<Admission, Refusal> {
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

    pub fn belongs_to(&self, controller: &Arc<ControllerHandle>) -> bool {
        Arc::ptr_eq(&self.controller, controller)
    }

    pub fn has_ended(&self) -> bool {
        self.session.has_ended()
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
        let queued = self.machine.borrow().queued_bytes();
        let unsent = queued + self.sending_bytes.get();
        self.core.budget.unsent(self.unsent_bytes.replace(unsent), unsent);
        if queued > 0 {
            self.wake_sender();
        }
    }

    /// Tells the budget how much data is on its way here.
    pub fn transfers_changed(&self) {
        let granted = self.machine.borrow().receiving_bytes();
        if granted != self.granted_bytes.get() && !self.has_ended() {
            self.core.budget.granted(self.granted_bytes.replace(granted), granted);
        }
    }

    /// Asks the host for a write's data.
    pub fn grant(&self, tag: Tag) {
        if self.has_ended() {
            return;
        }
        self.machine.borrow_mut().grant(tag);
        self.progress.set(now());
        self.transfers_changed();
        self.output_changed();
    }

    pub fn namespaces_changed(&self, nsids: &[u32]) {
        if self.is_admin() && self.controller.kind == ControllerKind::Io && !self.has_ended() {
            self.machine.borrow_mut().namespaces_changed(nsids.iter().copied());
            self.output_changed();
        }
    }

    /// Executes an admin command.
    pub fn admin(self: &Rc<Self>, request: &AdminRequest) {
        let namespaces = self.core.table();
        let (discovery_generation, discovery) = match self.controller.kind {
            ControllerKind::Discovery => self.core.discovery(self.endpoints),
            ControllerKind::Io => (0, Vec::new()),
        };
        let view = AdminView {
            registry: &self.core.target.registry,
            namespaces: &namespaces,
            ana_change_count: 0,
            health: self.core.health(),
            discovery: &discovery,
            discovery_generation,
            now_ns: now().0,
        };
        let change = self.machine.borrow_mut().execute_admin(request, &view);
        if change == Some(Change::EndQueues) {
            let connection = self.clone();
            spawn(async move {
                connection.core.target.end_queues(&connection.controller, true).await;
                connection.machine.borrow_mut().queues_ended();
            });
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

    /// Ends what cannot go on: a controller whose host is silent, a transfer that stands still.
    pub fn look_after(self: &Rc<Self>) {
        if self.has_ended() {
            return;
        }
        if self.is_admin() && self.host_is_silent() {
            self.end_controller();
            return;
        }
        let stands_still = now().since(self.progress.get()) > TRANSFER_TIMEOUT;
        if stands_still && (self.sending_bytes.get() > 0 || self.machine.borrow().awaits_data()) {
            self.end();
        }
    }

    /// After a TermReq: it is sent, then what comes is thrown away until the host closes, so that no reset overtakes
    /// it.
    async fn say_goodbye(&self) {
        if self.has_ended() || !self.machine.borrow().is_terminated() {
            return;
        }
        let _ = timeout(TERMINATION_TIMEOUT, async {
            self.sent.until(|| (self.unsent_bytes.get() == 0 || self.has_ended()).then_some(())).await;
            while !self.has_ended() && self.stream.recv().await.is_ok_and(|bytes| !bytes.is_empty()) {}
        })
        .await;
    }
}

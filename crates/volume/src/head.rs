//! The heads of all volumes, as one core runs them: its groups, the order in its chunks, and its lines to the other
//! cores.

use crate::admission::{Admission, TicketId};
use crate::api::{Directory, Encryption, IoError, Standing, Volume, VolumeInfo};
use crate::assembly::OpenShard;
use crate::coding::Coder;
use crate::command::serve;
use crate::forward::{self, Attending, Visitors};
use crate::gate::{Gate, Strays};
use crate::hold::Line;
use crate::latency::{Latencies, Recorder};
use crate::message::{CallId, LocalFuture, Message, Reply, Request};
use crate::part::local_group;
use crate::patience::{self, Patience, StoppedGroups};
use crate::raised::Raised;
use crate::session::Session;
use crate::snapshot::{Reading, SnapshotState};
use crate::spec::{LocalTable, VolumeSpec};
use replication::node::CoreGroups;
use replication::protocol::goes_on_in;
use replication::{Access, GroupError, OnItsWay, Stamp};
use runtime::channel::{CrossReceiver, CrossSender, WaitList, cross};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};
use store::ReadError;
use store::format::LayerRecord;
use types::{GroupId, LayerId, Mutant, StoreId, VolumeEpoch, VolumeId, mutant};

/// Messages between two cores before the sender's own queue takes over.
const LINE_MESSAGES: usize = 4096;

/// The ends of one core's lines, carried to it.
pub(crate) struct Lines {
    index: u16,
    out: Vec<CrossSender<Message>>,
    inbox: CrossReceiver<Message>,
}

impl Lines {
    /// Lines between `cores` cores.
    pub(crate) fn between(cores: usize) -> Vec<Self> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..cores).map(|_| cross(LINE_MESSAGES)).unzip();
        let lines = |(index, inbox)| Self { index: index as u16, out: senders.clone(), inbox };
        receivers.into_iter().enumerate().map(lines).collect()
    }
}

/// What waits to be sent to one core.
#[derive(Default)]
struct Outbox {
    messages: RefCell<VecDeque<Message>>,
    filled: WaitList,
}

/// What outlived its command: its ticket is given up when it is done, or never will be.
pub(crate) struct Orphan {
    pub(crate) ticket: TicketId,
    pub(crate) group: Rc<Access>,
    pub(crate) change: OnItsWay,
    pub(crate) volume: VolumeId,
}

/// See the module.
pub(crate) struct Head {
    pub(crate) index: u16,
    pub(crate) admission: Admission,
    pub(crate) directory: Directory,
    outboxes: Vec<Outbox>,
    calls: RefCell<Calls>,
    tables: RefCell<Vec<Rc<LocalTable>>>,
    shards: RefCell<Vec<Rc<OpenShard>>>,
    groups_stopped: Cell<usize>,
    /// Parts that act outside of all gates.
    pub(crate) strays: Strays,
    /// Volumes that orphans are of.
    orphans: RefCell<Vec<VolumeId>>,
    no_more_orphans: WaitList,
    /// What compresses and encrypts.
    pub(crate) coder: RefCell<Coder>,
    /// Where the time of this core's commands went.
    pub(crate) latencies: Rc<RefCell<Latencies>>,
    /// What lies in the trash, in words.
    pub(crate) in_trash: RefCell<String>,
    /// Volumes that are not served here any more, while commands of them may still come from other cores.
    leaving: RefCell<Vec<Rc<VolumeState>>>,
    /// This core's share of the groups.
    pub(crate) groups: Rc<CoreGroups>,
    /// Commands that wait.
    pub(crate) patience: Patience,
    /// NBD clients of this core.
    pub(crate) attending: Attending,
    /// Those of other nodes; on the first core.
    pub(crate) visitors: Visitors,
}

impl Head {
    /// Starts this core's side.
    pub(crate) fn start(lines: Lines, groups: Rc<CoreGroups>) -> Rc<Self> {
        let Lines { index, out, inbox } = lines;
        let head = Rc::new(Self {
            index,
            admission: Admission::default(),
            directory: Directory::new(),
            outboxes: out.iter().map(|_| Outbox::default()).collect(),
            calls: RefCell::default(),
            tables: RefCell::default(),
            shards: RefCell::default(),
            groups_stopped: Cell::default(),
            strays: Strays::default(),
            orphans: RefCell::default(),
            no_more_orphans: WaitList::default(),
            coder: RefCell::new(Coder::new()),
            latencies: Rc::default(),
            in_trash: RefCell::default(),
            leaving: RefCell::default(),
            groups,
            patience: Patience::default(),
            attending: Attending::default(),
            visitors: Visitors::default(),
        });
        head.directory.belongs_to(&head);
        for (core, sender) in out.iter().enumerate().filter(|(core, _)| *core != usize::from(index)) {
            runtime::spawn(send_all(head.clone(), core, sender.clone()));
        }
        runtime::spawn(patience::look_after(Rc::downgrade(&head)));
        forward::answer(&head);
        // The line to itself stays open: what is served is served as long as the core lives, whoever holds on to it.
        let own = out.into_iter().nth(index.into());
        runtime::spawn(receive(head.clone(), inbox, own));
        head
    }

    /// A table whose groups on this core have started.
    pub(crate) fn add_table(&self, table: Rc<LocalTable>) {
        assert!(self.table(table.layout.id).is_none(), "a table never changes");
        self.tables.borrow_mut().push(table);
    }

    /// Shards of this core that are open and whose groups have started.
    pub(crate) fn add_shards(&self, shards: Vec<OpenShard>) {
        self.shards.borrow_mut().extend(shards.into_iter().map(Rc::new));
    }

    /// Forgets the shards of a store.
    pub(crate) fn take_shards(&self, store: StoreId) -> Vec<Rc<OpenShard>> {
        self.shards.borrow_mut().extract_if(.., |shard| shard.store == store).collect()
    }

    /// Groups that are nowhere but in a shard that was not opened, because its store has stopped or failed.
    pub(crate) fn note_stopped(&self, groups: usize) {
        self.groups_stopped.set(self.groups_stopped.get() + groups);
    }

    pub(crate) fn groups_stopped(&self) -> usize {
        self.groups_stopped.get()
    }

    /// A failed read, with the device and the volume that it was for.
    pub(crate) fn describe_damage(&self, path: &Path, error: &ReadError) -> String {
        let path = path.display();
        let of = |layer| {
            self.directory.all().into_iter().find(|volume| volume.state.gate.term().spec.info.layers.contains(&layer))
        };
        match error.layer().and_then(of) {
            Some(volume) => format!("{path}: volume {}, {error}", volume.name()),
            None => format!("{path}: {error}"),
        }
    }

    pub(crate) fn shards(&self) -> Vec<Rc<OpenShard>> {
        self.shards.borrow().clone()
    }

    /// A volume that a command of another core is about: also one that is being taken away, for what was let in
    /// anywhere is done as if it were not.
    pub(crate) fn volume_of(&self, info: &VolumeInfo) -> Option<Rc<VolumeState>> {
        let served = self.directory.by_nsid(info.nsid).filter(|volume| volume.id() == info.id);
        let leaving = || self.leaving.borrow().iter().find(|state| state.info.id == info.id).cloned();
        served.map(|volume| volume.state).or_else(leaving)
    }

    /// Whether the volume was taken away from this core, and nobody wants to hear what becomes of its commands.
    pub(crate) fn is_given_up(&self, volume: VolumeId) -> bool {
        self.leaving.borrow().iter().any(|state| state.info.id == volume && state.gives_up.get())
    }

    /// What the volume is here and now, if this node serves it: in another's reign it asks for nothing.
    pub(crate) fn spec_of(&self, volume: VolumeId) -> Option<Arc<VolumeSpec>> {
        let leaving = || self.leaving.borrow().iter().find(|state| state.info.id == volume).cloned();
        let known = self.directory.by_id(volume).map(|volume| volume.state).or_else(leaving);
        known.filter(|state| state.standing() != Standing::Elsewhere).map(|state| state.gate.term().spec.clone())
    }

    /// What groups are told of this head of a volume that is served here.
    fn reign_of(&self, volume: VolumeId) -> Option<Reign> {
        self.spec_of(volume).map(|spec| (spec.epoch, spec.layer_records.clone()))
    }

    /// A group has seen a later head of the volume: this one serves nothing of it from now on, on any core (H3).
    #[cold]
    pub(crate) fn deposed(self: &Rc<Self>, volume: VolumeId, seen: VolumeEpoch) {
        let stop = move |head: &Head| {
            if let Some(volume) = head.directory.by_id(volume)
                && goes_on_in(volume.state.gate.term().spec.epoch, seen).is_none()
            {
                volume.state.stand(Standing::Elsewhere);
                head.directory.bump();
            }
        };
        stop(self);
        for core in (0..self.outboxes.len() as u16).filter(|core| *core != self.index) {
            self.spawn_on(core, move |head| Box::pin(async move { stop(&head) }));
        }
    }

    /// Adds the layers that commands write to here.
    pub(crate) fn written_to(&self, layers: &mut BTreeSet<LayerId>) {
        self.directory.all().iter().for_each(|volume| volume.state.gate.written_to(layers));
        self.leaving.borrow().iter().for_each(|state| state.gate.written_to(layers));
        self.strays.written_to(layers);
    }

    pub(crate) fn table(&self, id: u32) -> Option<Rc<LocalTable>> {
        self.tables.borrow().iter().find(|table| table.layout.id == id).cloned()
    }

    pub(crate) fn cores(&self) -> u16 {
        self.outboxes.len() as u16
    }

    /// Sends in order; what gathers in a turn leaves together.
    pub(crate) fn send(&self, core: u16, message: Message) {
        let outbox = &self.outboxes[usize::from(core)];
        outbox.messages.borrow_mut().push_back(message);
        outbox.filled.wake_all();
    }

    pub(crate) fn release(&self, core: u16, ticket: TicketId) {
        self.send(core, Message::Release(ticket));
    }

    /// Starts a task on that core, with its head.
    pub(crate) fn spawn_on(self: &Rc<Self>, core: u16, make: impl FnOnce(Rc<Self>) -> LocalFuture + Send + 'static) {
        if core == self.index {
            runtime::spawn(make(self.clone()));
        } else {
            self.send(core, Message::Task(Box::new(make)));
        }
    }

    /// Returns when everything called here so far has its place in the order, on whichever core.
    pub(crate) async fn fence(self: &Rc<Self>) {
        let (done, mut reached) = cross(self.outboxes.len());
        for core in (0..self.outboxes.len() as u16).filter(|core| *core != self.index) {
            let done = done.clone();
            // Messages are taken in order, and tasks run first in the order in which they were started.
            self.spawn_on(core, move |_| Box::pin(async move { drop(done) }));
        }
        drop(done);
        while let Ok(()) = reached.recv().await {}
    }

    /// Takes over the ticket of a command that ended while something that it asked for is on its way.
    pub(crate) fn adopt(self: &Rc<Self>, orphan: Orphan) {
        self.orphans.borrow_mut().push(orphan.volume);
        let reign = self.reign_of(orphan.volume);
        runtime::spawn(keep(self.clone(), orphan, reign));
    }

    /// Whether something that outlived its command may still change the volume from here.
    pub(crate) fn has_orphans(&self, volume: VolumeId) -> bool {
        self.orphans.borrow().contains(&volume)
    }

    /// Resolves when there is none.
    pub(crate) async fn orphans_end(&self, volume: VolumeId) {
        self.no_more_orphans.until(|| (!self.has_orphans(volume)).then_some(())).await;
    }
}

async fn receive(head: Rc<Head>, mut inbox: CrossReceiver<Message>, _own: Option<CrossSender<Message>>) {
    while let Ok(message) = inbox.recv().await {
        match message {
            Message::Request { from, call, request } => {
                let head = head.clone();
                runtime::spawn(async move {
                    let reply = serve(head.clone(), request).await;
                    head.send(from, Message::Reply { from: head.index, call, reply });
                });
            }
            Message::Reply { from, call, reply } => {
                if let Some(Reply::Granted(ticket)) = head.calls.borrow_mut().end(call, reply) {
                    head.release(from, ticket); // nobody waits for it any more
                }
            }
            Message::Release(ticket) => head.admission.leave(ticket),
            Message::Task(make) => {
                runtime::spawn(make(head.clone()));
            }
        }
    }
}

async fn send_all(head: Rc<Head>, core: usize, sender: CrossSender<Message>) {
    let outbox = &head.outboxes[core];
    loop {
        let message = outbox.filled.until(|| outbox.messages.borrow_mut().pop_front()).await;
        if sender.send(message).await.is_err() {
            return;
        }
    }
}

/// What a group is told of a head: its epoch, and its volume's layers.
type Reign = (VolumeEpoch, Vec<LayerRecord>);

/// Gives the ticket up when no newer command can be overtaken any more: what was asked is done, or is void (H5). `reign`: as it is
/// served; a volume that is locked meanwhile may be served again in the same one.
async fn keep(head: Rc<Head>, orphan: Orphan, mut reign: Option<Reign>) {
    let Orphan { ticket, group, mut change, volume } = orphan;
    let mut outcome = group.wait(&mut change).await.map(drop);
    while let Err(GroupError::Unknown { .. } | GroupError::Stopped { .. }) = outcome {
        reign = head.reign_of(volume).or(reign);
        // It was not served even when this began: there are no newer commands.
        let Some((epoch, layers)) = &reign else { break };
        outcome = group.settle(Stamp::new(volume, *epoch, layers)).await;
        if let Err(GroupError::Stopped { .. }) = outcome {
            // Nothing is served from it any more.
            break;
        }
    }
    head.admission.leave(ticket);
    let mut orphans = head.orphans.borrow_mut();
    let place = orphans.iter().position(|of| *of == volume).expect("it was adopted");
    orphans.swap_remove(place);
    drop(orphans);
    head.no_more_orphans.wake_all();
}

/// Calls of this core that wait for their answer.
#[derive(Default)]
struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    state: State,
}

enum State {
    Free,
    Waiting(Option<Waker>),
    Answered(Reply),
}

impl Calls {
    fn begin(&mut self) -> CallId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, state: State::Free });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.state = State::Waiting(None);
        CallId { slot, generation: place.generation }
    }

    /// The answer has come. It is returned if nobody waits for it.
    fn end(&mut self, call: CallId, reply: Reply) -> Option<Reply> {
        let place = &mut self.slots[call.slot as usize];
        if place.generation != call.generation {
            return Some(reply);
        }
        if let State::Waiting(Some(waker)) = std::mem::replace(&mut place.state, State::Answered(reply)) {
            waker.wake();
        }
        None
    }

    fn poll(&mut self, call: CallId, waker: &Waker) -> Poll<Reply> {
        let place = &mut self.slots[call.slot as usize];
        match std::mem::replace(&mut place.state, State::Waiting(None)) {
            State::Answered(reply) => Poll::Ready(reply),
            _ => {
                place.state = State::Waiting(Some(waker.clone()));
                Poll::Pending
            }
        }
    }

    /// Nobody waits any more. An answer that has come is returned.
    fn forget(&mut self, call: CallId) -> Option<Reply> {
        let place = &mut self.slots[call.slot as usize];
        place.generation = place.generation.wrapping_add(1);
        self.free.push(call.slot);
        match std::mem::replace(&mut place.state, State::Free) {
            State::Answered(reply) => Some(reply),
            _ => None,
        }
    }
}

/// A question to another core. Dropped, it is answered all the same, and nobody listens.
pub(crate) struct Call {
    head: Rc<Head>,
    core: u16,
    id: CallId,
}

impl Call {
    pub(crate) fn send(head: &Rc<Head>, core: u16, request: Request) -> Self {
        let id = head.calls.borrow_mut().begin();
        head.send(core, Message::Request { from: head.index, call: id, request });
        Self { head: head.clone(), core, id }
    }

    pub(crate) async fn answer(self) -> Reply {
        poll_fn(|cx| self.head.calls.borrow_mut().poll(self.id, cx.waker())).await
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let left = self.head.calls.borrow_mut().forget(self.id);
        if let Some(Reply::Granted(ticket)) = left {
            self.head.release(self.core, ticket);
        }
    }
}

/// A volume as one core sees it.
pub(crate) struct VolumeState {
    /// What of it never changes while it is served; its name, size and limits as they were first.
    pub(crate) info: VolumeInfo,
    pub(crate) gate: Gate,
    /// Commands that wait for its limit.
    pub(crate) line: Line,
    /// As the gate's term says; it is another one only when nothing runs.
    table: RefCell<Rc<LocalTable>>,
    pub(crate) recorder: Rc<Recorder>,
    /// Its snapshots.
    pub(crate) snapshots: RefCell<Vec<Rc<SnapshotState>>>,
    head: Weak<Head>,
    standing: Cell<Standing>,
    pub(crate) stopped: StoppedGroups,
    pub(crate) raised: Raised,
    stood: WaitList,
    gone: Cell<bool>,
    /// Of what waits nobody wants the outcome any more.
    gives_up: Cell<bool>,
    running: Cell<u64>,
    drained: WaitList,
}

impl VolumeState {
    /// Makes the volume known on this core; one that is goes on as `spec` says: a second gate would be closed by nobody.
    ///
    /// # Panics
    /// If it is locked: without its key its blocks would be written in clear.
    pub(crate) fn add(head: &Rc<Head>, spec: Arc<VolumeSpec>, standing: Standing) {
        assert!(spec.info.encryption != Encryption::Locked, "volume {} is locked", spec.info.name);
        if let Some(there) = head.directory.by_id(spec.info.id) {
            there.state.open(head, spec);
            there.state.stand(standing);
            head.directory.bump();
            return;
        }
        let table = head.table(spec.table.id).expect("tables are set before volumes are added");
        let state = Self {
            info: spec.info.clone(),
            gate: Gate::new(spec),
            line: Line::default(),
            table: RefCell::new(table),
            recorder: Recorder::new(head.index, &head.latencies),
            snapshots: RefCell::default(),
            head: Rc::downgrade(head),
            standing: Cell::new(standing),
            stopped: StoppedGroups::default(),
            raised: Raised::default(),
            stood: WaitList::default(),
            gone: Cell::new(false),
            gives_up: Cell::new(false),
            running: Cell::new(0),
            drained: WaitList::default(),
        };
        head.directory.add(Volume { state: Rc::new(state), session: Session::default(), snapshot: None });
    }

    /// Takes the volume away from this core: what is called from now on is refused; returns when nothing runs that was
    /// called here. What was called on other cores goes on until it has returned there. What waits for a group that does not
    /// serve is given up: nobody uses the volume any more.
    pub(crate) async fn remove(head: &Rc<Head>, id: VolumeId) {
        Self::take_away(head, id, true).await;
    }

    /// The same when the node stops. Its commands are not given up: the volume is there, and other nodes have it.
    pub(crate) async fn stop(head: &Rc<Head>, id: VolumeId) {
        Self::take_away(head, id, false).await;
    }

    async fn take_away(head: &Rc<Head>, id: VolumeId, gives_up: bool) {
        let Some(Volume { state, .. }) = head.directory.remove(id) else { return };
        head.leaving.borrow_mut().push(state.clone());
        state.gives_up.set(gives_up);
        state.gone.set(true);
        state.stood.wake_all();
        state.drained.until(|| (state.running.get() == 0).then_some(())).await;
        // Parts that another core asked for, whose command may have been given up there.
        state.gate.term().end().await;
        head.strays.end(id).await;
    }

    /// The last of the volume on this core, once [`remove`](Self::remove) has returned on all of them.
    pub(crate) fn forget(head: &Head, id: VolumeId) -> Option<Rc<Self>> {
        let mut leaving = head.leaving.borrow_mut();
        let place = leaving.iter().position(|state| state.info.id == id)?;
        Some(leaving.swap_remove(place))
    }

    /// The group of a place in its table, as this core reaches it.
    ///
    /// # Errors
    /// As of [`local_group`].
    pub(crate) fn group_at(&self, place: usize) -> Result<Rc<Access>, IoError> {
        local_group(&self.table.borrow().groups, place).cloned()
    }

    /// What the volume is from now on; a closed gate opens. It lies elsewhere only where nothing runs that was let in.
    ///
    /// # Panics
    /// If the table is not known here.
    pub(crate) fn open(&self, head: &Head, spec: Arc<VolumeSpec>) {
        if self.table.borrow().layout.id != spec.table.id {
            self.table.replace(head.table(spec.table.id).expect("tables are set before volumes lie in them"));
            self.stopped.forget();
            self.raised.forget();
        }
        self.gate.open(spec);
    }

    /// Its name, today.
    pub(crate) fn name(&self) -> String {
        self.gate.term().spec.info.name.clone()
    }

    pub(crate) fn head(&self) -> Option<Rc<Head>> {
        self.head.upgrade()
    }

    /// Where it is served.
    pub(crate) fn standing(&self) -> Standing {
        match self.standing.get() {
            Standing::Here if self.is_stopped() => Standing::Stopped,
            standing => standing,
        }
    }

    /// A core has found that a group of it serves nobody, or serves again. Returns whether that changes where it is served.
    pub(crate) fn note_stopped(&self, found: (u16, GroupId), has_stopped: bool) -> bool {
        let changes = self.stopped.note(found, has_stopped);
        if changes {
            self.stood.wake_all();
        }
        changes
    }

    /// From now on it is served there.
    pub(crate) fn stand(&self, standing: Standing) {
        self.standing.set(standing);
        self.stood.wake_all();
    }

    /// Resolves when nothing runs that was let in here; to be asked where nothing more is.
    pub(crate) async fn quiet(&self) {
        self.drained.until(|| (self.running.get() == 0).then_some(())).await;
    }

    /// Resolves when it is known where the volume is served, or that it is gone.
    pub(crate) async fn decided(&self) {
        let is_open = || matches!(self.standing(), Standing::Changing | Standing::Stopped) && !self.gone.get();
        self.stood.until(|| (!is_open()).then_some(())).await;
    }

    /// Whether it was taken away from this core.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// The error as a client is told it: one for lack of space names what lies in the trash.
    #[cold]
    pub(crate) fn explain(&self, error: IoError) -> IoError {
        let in_trash = self.head.upgrade().map(|head| head.in_trash.borrow().clone()).unwrap_or_default();
        match error {
            IoError::NoSpace(why) if !in_trash.is_empty() => {
                IoError::NoSpace(format!("{why} (in the trash: {in_trash})"))
            }
            error => error,
        }
    }

    #[cold]
    pub(crate) fn gone(&self) -> IoError {
        IoError::Gone(format!("volume {} was deleted or locked", self.name()))
    }

    #[cold]
    pub(crate) fn serves_nobody(&self) -> IoError {
        IoError::Stopped(format!("a group of volume {} serves nobody for now", self.name()))
    }

    #[cold]
    fn changing(&self) -> IoError {
        IoError::Changing(format!("volume {} goes to another node", self.name()))
    }

    #[cold]
    pub(crate) fn elsewhere(&self) -> IoError {
        let term = self.gate.term();
        IoError::Elsewhere(format!("node {} is the head of volume {}", term.spec.info.head, term.spec.info.name))
    }

    /// Checks the range and lets a command in, of the volume or of one of its snapshots. `moves`: of whoever moves the volume,
    /// who alone is let in while it is changing.
    pub(crate) fn let_in(
        self: &Rc<Self>,
        snapshot: Option<&Rc<SnapshotState>>,
        offset_bytes: u64,
        len_bytes: u64,
        moves: bool,
    ) -> Result<(Rc<Head>, Running), IoError> {
        // First of all: of a volume that is gone the size means nothing any more.
        let Some(head) = self.head.upgrade().filter(|_| !self.gone.get()) else {
            return Err(self.gone());
        };
        match self.standing() {
            Standing::Here => {}
            Standing::Stopped => return Err(self.serves_nobody()),
            Standing::Changing if moves => {}
            Standing::Changing => return Err(self.changing()),
            Standing::Elsewhere => return Err(self.elsewhere()),
        }
        let reading = snapshot.map(|snapshot| snapshot.let_in(|| self.name())).transpose()?;
        let term = self.gate.term();
        let spec = &term.spec;
        // It lies elsewhere since, and this core has not been told of its snapshots there.
        if snapshot.is_some_and(|snapshot| !spec.is_of(snapshot.info.family)) && !mutant(Mutant::OldPlaceRead) {
            return Err(self.changing());
        }
        let size_bytes = snapshot.map_or(spec.info.size_bytes, |snapshot| snapshot.info.size_bytes);
        if offset_bytes.checked_add(len_bytes).is_none_or(|end| end > size_bytes) {
            return Err(IoError::OutOfRange { offset_bytes, len_bytes, size_bytes });
        }
        self.running.set(self.running.get() + 1);
        Ok((head, Running(self.clone(), reading)))
    }
}

/// A command of a volume, or of one of its snapshots, that runs.
pub(crate) struct Running(Rc<VolumeState>, Option<Reading>); // which ends with it

impl Running {
    pub(crate) fn volume(&self) -> &Rc<VolumeState> {
        &self.0
    }

    /// The snapshot that it reads.
    pub(crate) fn snapshot(&self) -> Option<&Rc<SnapshotState>> {
        self.1.as_ref().map(Reading::snapshot)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let running = self.0.running.get() - 1;
        self.0.running.set(running);
        if running == 0 && (self.0.gone.get() || self.0.standing.get() == Standing::Changing) {
            self.0.drained.wake_all();
        }
    }
}

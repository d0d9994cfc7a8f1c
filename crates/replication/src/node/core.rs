//! One core's share of a node: the shards that are served here, and connections to the cores of other nodes.

use super::link::{Frames, Line, Link};
use super::map_side::{MapSide, Says};
use super::view::View;
use super::{Shared, Timing, Work};
use crate::access::calls::Calls;
use crate::access::{Access, Led, serve};
use crate::fill::{Owner, member, primary};
use crate::group::{Group, GroupRef, Received};
use crate::pace::Pace;
use crate::protocol::{Membership, Message, Session};
use crate::shard::GroupShard;
use crate::wire::{
    Beat, BeatAnswer, Class, Cores, Envelope, FRAME_HEADER_BYTES, FillMessage, Frame, Grants, HeadMessage, Hello,
    NodeMessage, Said, StoreLine, WIRE_VERSION,
};
use cluster::GroupRecord;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use runtime::channel::WaitList;
use runtime::{Instant, TaskHandle, TcpStream, now};
use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use store::{Entry, Recovery, Shard};
use types::{Epoch, GroupId, Incarnation, Mutant, NodeId, Seq, StoreId, mutant};

/// Members that a core makes whole at once.
const FILLINGS_MAX: usize = 4;
/// Requests of heads elsewhere that a core does at once, and the bytes that they carry or are answered with.
const SERVED_MAX: usize = 16_384;
const SERVED_BYTES_MAX: usize = 64 << 20;
/// Who dialled waits so long for an answer to its hello, and so long before the next attempt.
const HELLO_PATIENCE: Duration = Duration::from_secs(2);
/// A connection on which nothing comes for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// See [`HELLO_PATIENCE`].
const DIAL_WAIT: Duration = Duration::from_millis(100);

/// What waits in front of a line.
type Behind = Rc<RefCell<VecDeque<Option<Work>>>>;

/// See the module. Lives on its core.
pub struct CoreGroups {
    pub(super) shared: Arc<Shared>,
    pub(super) core: u16,
    shards: RefCell<Vec<Rc<GroupShard>>>,
    pub(super) view: RefCell<View>,
    /// Where other nodes are reached.
    addresses: RefCell<HashMap<NodeId, SocketAddr, FixedState>>,
    links: RefCell<HashMap<(NodeId, u16), Rc<Link>, FixedState>>,
    /// Groups that had no room on a connection: shard, and where it keeps them.
    waiting: RefCell<Vec<(Rc<GroupShard>, u32)>>,
    /// What was known of each group's record when a look at the map began.
    known: RefCell<HashMap<(StoreId, GroupId), Epoch, FixedState>>,
    looked_at_links: Cell<Instant>,
    /// Members that are being made whole by groups of this core.
    fillings: Cell<usize>,
    pace: Pace,
    /// What other cores are asked and their lines have no room for, in order; the first of each is being sent.
    behind: Vec<Behind>,
    /// See [`messages_sent`](Self::messages_sent).
    messages: Cell<u64>,
    /// The node's session in the map lasts at least until then.
    session_until: Cell<Instant>,
    /// Who leads each group, as far as is known.
    led: RefCell<HashMap<GroupId, Led, FixedState>>,
    led_changed: WaitList,
    accesses: RefCell<HashMap<GroupId, Rc<Access>, FixedState>>,
    /// Groups that nobody serves, as this node knows, and why.
    given_up: RefCell<HashMap<GroupId, String, FixedState>>,
    /// What heads here have asked of groups led elsewhere.
    calls: Rc<Calls>,
    /// Requests of heads elsewhere that are being done: how many, of how many bytes.
    serving: Rc<Cell<(usize, usize)>>,
    /// On the first core: what talks with the map.
    pub(super) map_side: OnceCell<Rc<MapSide>>,
    /// What goes on as long as the node does; nothing any more, once it has ended.
    tasks: RefCell<Option<Vec<TaskHandle>>>,
}

impl CoreGroups {
    pub(super) fn new(shared: Arc<Shared>, core: u16) -> Rc<Self> {
        let view = RefCell::new(View::new(now()));
        let behind = shared.lines.iter().map(|_| Behind::default()).collect();
        Rc::new(Self {
            shared,
            core,
            shards: RefCell::default(),
            view,
            addresses: RefCell::new(HashMap::with_hasher(FixedState::default())),
            links: RefCell::new(HashMap::with_hasher(FixedState::default())),
            waiting: RefCell::default(),
            known: RefCell::new(HashMap::with_hasher(FixedState::default())),
            looked_at_links: Cell::default(),
            fillings: Cell::new(0),
            pace: Pace::default(),
            behind,
            messages: Cell::new(0),
            session_until: Cell::default(),
            led: RefCell::new(HashMap::with_hasher(FixedState::default())),
            led_changed: WaitList::default(),
            accesses: RefCell::new(HashMap::with_hasher(FixedState::default())),
            given_up: RefCell::new(HashMap::with_hasher(FixedState::default())),
            calls: Rc::default(),
            serving: Rc::default(),
            map_side: OnceCell::new(),
            tasks: RefCell::new(Some(Vec::new())),
        })
    }

    /// Has something go on as long as the node does.
    pub(super) fn keep_on(&self, task: impl Future<Output = ()> + 'static) {
        if let Some(tasks) = self.tasks.borrow_mut().as_mut() {
            tasks.push(runtime::spawn(task));
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.tasks.borrow().is_none()
    }

    /// Nothing goes on any more, and nobody is heard.
    pub(super) fn end(&self) {
        let tasks = self.tasks.take().unwrap_or_default();
        tasks.into_iter().for_each(TaskHandle::cancel);
        let mut links: Vec<_> = self.links.borrow().values().cloned().collect();
        links.sort_unstable_by_key(|link| (link.node, link.core));
        links.iter().for_each(|link| link.close());
    }

    /// Takes a shard in; its groups follow when the node [begins](super::Node::begin).
    pub fn add_shard(self: &Rc<Self>, shard: Rc<Shard>, store: StoreId, recovery: Recovery) -> Rc<GroupShard> {
        let shard = GroupShard::new(shard, store, recovery);
        shard.set_outside(self);
        self.keep_on(crate::scrub::run(self.clone(), shard.clone()));
        self.shards.borrow_mut().push(shard.clone());
        shard
    }

    /// Forgets the shards of a store, whose groups have stopped.
    pub fn remove_shards(&self, store: StoreId) {
        self.shards.borrow_mut().retain(|shard| shard.store_id() != store);
    }

    /// Resolves when each group that has its only member here serves, or never will.
    pub async fn those_alone_have_begun(&self) {
        for shard in self.shards() {
            for group in shard.groups() {
                if group.member().is_alone() {
                    group.has_begun_alone().await;
                }
            }
        }
    }

    pub(super) fn shard_at(&self, index: usize) -> Option<Rc<GroupShard>> {
        self.shards.borrow().get(index).cloned()
    }

    /// The shards on this core.
    pub fn shards(&self) -> Vec<Rc<GroupShard>> {
        self.shards.borrow().clone()
    }

    /// The member of a group that is on this core.
    pub fn group(&self, store: StoreId, group: GroupId) -> Option<GroupRef> {
        self.shard_of(store, group)?.group(group)
    }

    fn shard_of(&self, store: StoreId, group: GroupId) -> Option<Rc<GroupShard>> {
        let is_it = |shard: &&Rc<GroupShard>| {
            shard.store_id() == store && shard.store().store().shard_of(group) == shard.store().index()
        };
        self.shards.borrow().iter().find(is_it).cloned()
    }

    pub(crate) fn session_until(&self) -> Instant {
        self.session_until.get()
    }

    pub(super) fn set_session_until(&self, until: Instant) {
        self.session_until.set(until);
    }

    /// Has another core do something; it is done after all that was asked before.
    pub(super) fn on(
        &self,
        core: u16,
        work: impl FnOnce(Rc<CoreGroups>) -> Pin<Box<dyn Future<Output = ()>>> + Send + 'static,
    ) {
        let (line, behind) = (&self.shared.lines[usize::from(core)], &self.behind[usize::from(core)]);
        let mut work: Work = Box::new(work);
        if behind.borrow().is_empty() {
            match line.try_send(work) {
                Ok(()) => return,
                Err(runtime::channel::Full(refused)) => work = refused,
            }
        }
        behind.borrow_mut().push_back(Some(work));
        if behind.borrow().len() == 1 {
            let (line, behind) = (line.clone(), behind.clone());
            runtime::spawn(async move {
                loop {
                    let first = behind.borrow_mut().front_mut().and_then(Option::take);
                    let Some(work) = first else { return };
                    let _ = line.send(work).await;
                    behind.borrow_mut().pop_front();
                }
            });
        }
    }

    /// The same, of what ends at once.
    pub(super) fn tell(&self, core: u16, work: impl FnOnce(&Rc<CoreGroups>) + Send + 'static) {
        self.on(core, move |core| {
            work(&core);
            Box::pin(std::future::ready(()))
        });
    }

    /// The same, of what comes again and again: it is left out if the core is so far behind that its line is full.
    pub(super) fn tell_if_it_keeps_up(&self, core: u16, work: impl FnOnce(&Rc<CoreGroups>) + Send + 'static) {
        if self.behind[usize::from(core)].borrow().is_empty() {
            self.tell(core, work);
        }
    }

    /// What each group knows of its record now: a look at the map that begins after this finds no less.
    pub(super) fn mark_known(&self) {
        let mut known = self.known.borrow_mut();
        known.clear();
        for shard in self.shards.borrow().iter() {
            let epoch = |group: &GroupRef| group.member().record().epoch;
            known.extend(shard.groups().iter().map(|group| ((shard.store_id(), group.id()), epoch(group))));
        }
    }

    // ---- heads of volumes -----------------------------------------------------------------------------------------

    /// How the heads of this core reach a group.
    pub fn access(self: &Rc<Self>, group: GroupId) -> Rc<Access> {
        self.accesses.borrow_mut().entry(group).or_insert_with(|| Access::new(self, group)).clone()
    }

    /// Nobody serves the group before the node is started anew: the devices that it is on are not here.
    pub fn give_up(&self, group: GroupId, why: &str) {
        self.given_up.borrow_mut().insert(group, why.to_owned());
    }

    /// Why nobody serves a group that has one member, if that is this node's matter.
    pub(crate) fn stopped_alone(&self, group: GroupId) -> Option<String> {
        let shards = self.shards.borrow();
        let stopped = |shard: &Rc<GroupShard>| shard.group(group)?.stopped().map(str::to_owned);
        shards.iter().find_map(stopped).or_else(|| self.given_up.borrow().get(&group).cloned())
    }

    /// The member of a group that leads it, if it does so on this core.
    pub(crate) fn leading(&self, group: GroupId) -> Option<GroupRef> {
        let shards = self.shards.borrow();
        shards.iter().filter_map(|shard| shard.group(group)).find(|member| member.leads_here())
    }

    /// Who leads a group, as far as is known.
    pub(crate) fn led(&self, group: GroupId) -> Option<Led> {
        self.led.borrow().get(&group).copied()
    }

    /// Resolves when something else is known of who leads a group, here or elsewhere.
    pub(crate) async fn led_changed(&self, group: GroupId, before: Option<Led>) {
        self.led_changed.until(|| (self.led(group) != before).then_some(())).await;
    }

    /// Somebody says who leads a group.
    pub(crate) fn heard_who_leads(&self, group: GroupId, epoch: Epoch, primary: StoreId) {
        let known = self.led(group);
        if known.is_none_or(|known| known.epoch < epoch) {
            let is_alone = known.is_some_and(|known| known.is_alone);
            self.led.borrow_mut().insert(group, Led { epoch, primary, is_alone });
            self.calls.led_by_another(group, primary);
            self.led_changed.wake_all();
        }
    }

    /// The map says who leads these groups. A list that a watch goes on from is the last word, also of a map that went back.
    pub(super) fn map_says_who_leads(&self, records: &[GroupRecord], how: Says) {
        let mut led = self.led.borrow_mut();
        for record in records {
            let now =
                Led { epoch: record.epoch, primary: record.primary, is_alone: record.members == [record.primary] };
            let known = led.entry(record.id).or_insert(now);
            if known.epoch < now.epoch || how == Says::Listed {
                let before = std::mem::replace(known, now);
                if before.primary != now.primary {
                    self.calls.led_by_another(record.id, now.primary);
                }
            }
        }
        drop(led);
        self.led_changed.wake_all();
    }

    pub(crate) fn calls(&self) -> &Rc<Calls> {
        &self.calls
    }

    /// Which of the node's lives this is.
    pub(crate) fn life(&self) -> Incarnation {
        self.shared.incarnation
    }

    /// A request of another core, of so many bytes, is being done as long as what this returns lives; none if there is too
    /// much already.
    pub(crate) fn begin_serving(&self, bytes: usize) -> Option<Serving> {
        let (requests, before) = self.serving.get();
        if requests >= SERVED_MAX || (requests > 0 && before + bytes > SERVED_BYTES_MAX) {
            return None;
        }
        self.serving.set((requests + 1, before + bytes));
        Some(Serving(self.serving.clone(), bytes))
    }

    /// Requests of heads elsewhere that are being done.
    pub(crate) fn serving_count(&self) -> usize {
        self.serving.get().0
    }

    // ---- what the map says of members ------------------------------------------------------------------------------

    /// The map says so of a group: its members here hear of it, and one that is new takes part from now on if the map was
    /// looked at.
    pub(super) fn map_says(self: &Rc<Self>, record: &GroupRecord, how: Says) {
        for shard in self.shards() {
            let store = shard.store_id();
            if !record.members.contains(&store) || shard.store().store().shard_of(record.id) != shard.store().index() {
                continue;
            }
            match shard.group(record.id) {
                Some(group) => {
                    let marked = self.known.borrow().get(&(store, record.id)).copied();
                    let known = marked.filter(|_| how == Says::Looked);
                    group.map_says(record, known.unwrap_or_default());
                }
                None if how != Says::Told => shard.open(record.clone(), self.shared.timing).with(|_| ()),
                None => {}
            }
        }
    }

    // ---- to other members ----------------------------------------------------------------------------------------

    /// Sends a message to a member, if its node is known and there is room; entries that found none are offered again.
    /// `attempt`: the one to make that member whole in which they are sent.
    pub(crate) fn send(
        self: &Rc<Self>,
        shard: &Rc<GroupShard>,
        group: &Group,
        to: StoreId,
        message: &Message,
        (entries, attempt): (&[Entry], u64),
    ) {
        let Some(link) = self.link_to(to, group.id()) else {
            if let Some(first) = entries.first() {
                group.not_sent(to, first.seq);
            }
            return;
        };
        let envelope = Envelope {
            sender: shard.store_id(),
            incarnation: shard.life(),
            receiver: to,
            group: group.id(),
            request: group.request_of(message),
            attempt,
            ..Envelope::default()
        };
        match link.push(&envelope, message, entries) {
            Ok(None) => self.messages.set(self.messages.get() + 1),
            Ok(Some(next)) => {
                group.not_sent(to, next);
                if !group.waits_for_room.replace(true) {
                    self.waiting.borrow_mut().push((shard.clone(), group.index()));
                }
            }
            Err(error) => log::error!("group {}: a message was not sent: {error}", group.id()),
        }
    }

    /// Messages of groups to other members since the start.
    pub fn messages_sent(&self) -> u64 {
        self.messages.get()
    }

    /// The same with entries that only the store has.
    pub(crate) fn send_from_store(
        self: &Rc<Self>,
        shard: Rc<GroupShard>,
        group: GroupId,
        to: StoreId,
        message: Message,
        (first, through): (Seq, Seq),
    ) {
        let this = self.clone();
        runtime::spawn(async move {
            let read = shard.store().prepared_entries(group, first, super::READ_BYTES_MAX).await;
            match read {
                Ok(mut entries) => {
                    entries.retain(|entry| entry.seq <= through);
                    let Some(group) = shard.group(group) else { return };
                    let filling = group.filling(to);
                    if let Some(filling) = &filling {
                        entries = filling.filtered(&entries);
                    }
                    if entries.first().is_some_and(|entry| entry.seq == first) {
                        let attempt = filling.map_or(0, |filling| filling.attempt());
                        this.send(&shard, &group, to, &message, (&entries, attempt));
                    }
                }
                Err(error) => log::error!("group {group}: prepared entries were not read: {error}"),
            }
        });
    }

    /// Sends a message of catch-up; false if it does not leave, or not over the connection that those before it took.
    pub(crate) fn send_fill(
        self: &Rc<Self>,
        shard: &Rc<GroupShard>,
        group: GroupId,
        to: StoreId,
        message: &FillMessage,
        line: &Line,
    ) -> bool {
        let envelope = Envelope {
            class: Class::Recovery,
            sender: shard.store_id(),
            incarnation: shard.life(),
            receiver: to,
            group,
            ..Envelope::default()
        };
        let is_on_it = |link: &Rc<Link>| line.is(link) || mutant(Mutant::LostPartMissed);
        self.link_to(to, group).is_some_and(|link| is_on_it(&link) && link.push_fill(&envelope, message))
    }

    /// Whether more of a catch-up may be sent to a member now.
    pub(crate) fn has_room(self: &Rc<Self>, to: StoreId, group: GroupId) -> bool {
        self.link_to(to, group).is_some_and(|link| link.has_room_for_recovery())
    }

    /// Which life of a store was heard of last.
    pub(crate) fn life_of(&self, store: StoreId) -> Option<Incarnation> {
        self.view.borrow().life_of(store)
    }

    /// A member that takes no new blocks, if one of these is.
    pub(crate) fn full_among(&self, stores: &[StoreId]) -> Option<StoreId> {
        let view = self.view.borrow();
        stores.iter().copied().find(|store| !view.takes_new_blocks(*store))
    }

    /// Whether a node of these stores was answered by the map after `since`.
    pub(super) fn map_answers(&self, stores: &[StoreId], since: Instant) -> bool {
        let view = self.view.borrow();
        stores.iter().any(|store| view.reached_map(*store).is_some_and(|at| at > since))
    }

    /// How fast goes what no client waits for.
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// How long things last.
    pub(crate) fn timing(&self) -> &Timing {
        &self.shared.timing
    }

    /// Which group holds what.
    pub(crate) fn owner(&self) -> Owner {
        self.shared.owner.clone()
    }

    pub(crate) fn link_to(self: &Rc<Self>, store: StoreId, group: GroupId) -> Option<Rc<Link>> {
        let (node, core) = self.view.borrow().place_of(store, group)?;
        self.link(node, core)
    }

    /// The connection to a core of a node; made if there is none.
    pub(super) fn link(self: &Rc<Self>, node: NodeId, core: u16) -> Option<Rc<Link>> {
        if let Some(link) = self.links.borrow().get(&(node, core)).filter(|link| !link.is_closed()) {
            return Some(link.clone());
        }
        let address = *self.addresses.borrow().get(&node)?;
        let link = Rc::new(Link::new(node, core));
        self.links.borrow_mut().insert((node, core), link.clone());
        runtime::spawn(dial(self.clone(), link.clone(), address));
        Some(link)
    }

    /// Where nodes are reached. Connections to other places end.
    pub(super) fn set_addresses(&self, addresses: &[(NodeId, SocketAddr)]) {
        let mut known = self.addresses.borrow_mut();
        for (node, address) in addresses {
            if known.insert(*node, *address).is_some_and(|before| before != *address) {
                self.close_links(*node);
            }
        }
    }

    /// Connections, and the bytes that wait on the one on which most do.
    pub(crate) fn link_lengths(&self) -> (usize, usize) {
        let links = self.links.borrow();
        (links.len(), links.values().map(|link| link.queued_bytes()).max().unwrap_or_default())
    }

    /// Groups that had no room on a connection.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// What other cores are to do, and their lines have no room for.
    pub(crate) fn behind_count(&self) -> usize {
        self.behind.iter().map(|behind| behind.borrow().len()).sum()
    }

    /// Looks whether connections live that were used.
    pub(super) fn look_at_links(&self) {
        let at = now();
        if at.since(self.looked_at_links.get()) < self.shared.timing.ask {
            return;
        }
        self.looked_at_links.set(at);
        let mut links = self.links.borrow().values().cloned().collect::<Vec<_>>();
        links.sort_unstable_by_key(|link| (link.node, link.core));
        links.iter().for_each(|link| link.look(at, self.shared.timing.silent));
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<_> = self.addresses.borrow().keys().copied().collect();
        nodes.sort_unstable();
        nodes
    }

    /// Ends the connections to a node.
    pub(super) fn close_links(&self, node: NodeId) {
        let mut links: Vec<_> = self.links.borrow().values().filter(|link| link.node == node).cloned().collect();
        links.sort_unstable_by_key(|link| link.core);
        links.iter().for_each(|link| link.close());
    }

    /// A connection drained: who had no room on one sends on.
    fn drained(&self) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        for (shard, index) in self.waiting.take() {
            let group = shard.group_at(index);
            group.waits_for_room.set(false);
            shard.mark_dirty(&group);
        }
    }

    // ---- from other members --------------------------------------------------------------------------------------

    /// A connection that another node made, and that is meant for this core.
    pub(super) fn adopt(self: &Rc<Self>, stream: TcpStream, node: NodeId, core: u16) {
        let link = Rc::new(Link::new(node, core));
        link.set_stream(&stream);
        // It serves for answers where there is no other.
        let mut links = self.links.borrow_mut();
        if links.get(&(node, core)).is_none_or(|known| known.is_closed()) {
            links.insert((node, core), link.clone());
        }
        drop(links);
        runtime::spawn(serve(self.clone(), link, stream));
    }

    fn forget(&self, link: &Rc<Link>) {
        self.calls.lost(link);
        let mut links = self.links.borrow_mut();
        if links.get(&(link.node, link.core)).is_some_and(|known| Rc::ptr_eq(known, link)) {
            links.remove(&(link.node, link.core));
        }
    }

    /// Does what a frame says; returns its list of entries, empty.
    fn dispatch(self: &Rc<Self>, link: &Rc<Link>, frame: Frame) -> Option<Vec<Entry>> {
        let Frame { header, said } = frame;
        match said {
            Said::Group(message, mut entries) => {
                let Envelope { sender, incarnation, receiver, group, request, attempt, .. } = header.envelope;
                if let Some(member) = self.group(receiver, group) {
                    let received = Received { message: &message, request, attempt, entries: &mut entries };
                    member.receive(sender, incarnation, received);
                }
                entries.clear();
                return Some(entries);
            }
            Said::Fill(message) => {
                let Envelope { sender, receiver, group, .. } = header.envelope;
                let shard = self.shard_of(receiver, group)?;
                let group = shard.group(group)?;
                if group.member().leads() {
                    primary::hear(&group, sender, message);
                } else {
                    member::hear(self, &shard, &group, sender, message);
                }
            }
            Said::Head(HeadMessage::Request(request)) => serve::request(self, link, header.envelope, request),
            Said::Head(HeadMessage::Answer(answer)) => self.calls.answered(header.envelope.request.0, link, answer),
            Said::Node(NodeMessage::Beat(beat)) => self.beaten(link, beat),
            Said::Node(NodeMessage::BeatAnswer(answer)) => self.answered(link.node, answer),
            Said::Node(NodeMessage::Ping) => link.push_node(&NodeMessage::Pong),
            Said::Node(NodeMessage::Pong) => link.lives(),
            Said::Node(_) => {}
        }
        None
    }

    // ---- catching up -----------------------------------------------------------------------------------------------

    /// Makes a member whole in the background: a few at a time.
    pub(super) fn make_whole(self: &Rc<Self>, shard: &Rc<GroupShard>, group: &GroupRef, store: StoreId) {
        let counts = group.member().counts(store) && !mutant(Mutant::FilledCounts);
        if counts || group.filling(store).is_some() || self.fillings.get() >= FILLINGS_MAX {
            return;
        }
        if !group.may_fill() {
            return;
        }
        self.fillings.set(self.fillings.get() + 1);
        let (this, shard, group, owner) = (self.clone(), shard.clone(), group.clone(), self.owner());
        runtime::spawn(async move {
            primary::run(this.clone(), shard, group, store, owner).await;
            this.fillings.set(this.fillings.get() - 1);
        });
    }

    // ---- beats ---------------------------------------------------------------------------------------------------

    /// Another node lives, and asks for leases: each core says what it grants, and that it moves.
    fn beaten(self: &Rc<Self>, link: &Rc<Link>, beat: Beat) {
        let cores = self.shared.lines.len() as u16;
        let (told, mut all_told) = runtime::channel::cross(usize::from(cores));
        let beat = Arc::new(beat);
        for core in 0..cores {
            let (told, beat) = (told.clone(), beat.clone());
            self.tell_if_it_keeps_up(core, move |core| drop(told.try_send((core.core, core.grant(&beat)))));
        }
        drop(told);
        let (this, link) = (self.clone(), link.clone());
        runtime::spawn(async move {
            let (mut moved, mut groups) = (Cores::default(), Vec::new());
            let patience = this.shared.timing.beat / 2;
            let _ = runtime::timeout(patience, async {
                while let Ok((core, refused)) = all_told.recv().await {
                    moved.insert(usize::from(core));
                    groups.extend(refused);
                }
            })
            .await;
            if mutant(Mutant::HungCoreSpokenFor) {
                (0..usize::from(cores)).for_each(|core| moved.insert(core));
            }
            groups.sort_unstable_by_key(|(group, epoch)| (*group, Reverse(*epoch)));
            groups.dedup_by_key(|(group, _)| *group);
            let answer = BeatAnswer {
                echo_ns: beat.sent_ns,
                incarnation: this.shared.incarnation,
                cores: moved,
                stores: this.store_lines(),
                grants: Grants::AllBut(groups),
            };
            link.push_node(&NodeMessage::BeatAnswer(answer));
        });
    }

    /// Groups of this core for which the beat's node is granted nothing, as a primary of an epoch below this one.
    fn grant(&self, beat: &Beat) -> Vec<(GroupId, Epoch)> {
        let mut refused = Vec::new();
        let at = now();
        for group in self.shards.borrow().iter().flat_map(|shard| shard.groups()) {
            let (primary, life, epoch) = {
                let member = group.member();
                (member.record().primary, member.record().life, member.record().epoch)
            };
            if beat.stores.iter().any(|line| line.store != primary && group.counted_for(line.store))
                && !mutant(Mutant::DeposedGranted)
            {
                // It was deposed, and may not have heard of it (R8).
                refused.push((group.id(), epoch));
            }
            let Some(line) = beat.stores.iter().find(|line| line.store == primary) else { continue };
            if primary == group.member().store() {
                continue;
            }
            let moves = beat.cores.has(line.core_of(group.id()).into()) && line.life == life;
            if group.stopped().is_some() || !moves || !group.with(|member| member.grant(primary, at)) {
                // Whatever epoch it is in by now: this member has noted no grant.
                refused.push((group.id(), Epoch(u32::MAX)));
            }
        }
        refused
    }

    /// Another node has answered a beat: all cores of this one hear of it.
    fn answered(self: &Rc<Self>, node: NodeId, answer: BeatAnswer) {
        let answer = Arc::new(answer);
        for core in 0..self.shared.lines.len() as u16 {
            let answer = answer.clone();
            self.tell_if_it_keeps_up(core, move |core| core.heard(node, &answer));
        }
    }

    fn heard(&self, node: NodeId, answer: &BeatAnswer) {
        let sent = Instant(answer.echo_ns);
        self.view.borrow_mut().answered(node, sent, &answer.cores, &answer.stores);
        for group in self.shards.borrow().iter().flat_map(|shard| shard.groups()) {
            if !group.member().leads() {
                continue;
            }
            for line in &answer.stores {
                if line.store == group.member().store() || !answer.cores.has(line.core_of(group.id()).into()) {
                    continue;
                }
                let is_granted = match &answer.grants {
                    Grants::AllBut(groups) => groups
                        .binary_search_by_key(&group.id(), |(group, _)| *group)
                        .map_or(true, |at| group.member().record().epoch >= groups[at].1),
                    Grants::Nothing => false,
                };
                if is_granted && !group.timers.borrow().was_asked_behind(line.store, sent) {
                    continue;
                }
                group.with(|member| {
                    member.restarted(line.store, line.life);
                    member.beat_answered(line.store, line.life, sent, is_granted);
                });
            }
            group.wake();
        }
    }

    /// Sends a beat to every node: this one lives, and asks for leases for all its primaries.
    pub(super) fn beat(self: &Rc<Self>, moved: Cores) {
        let beat =
            Beat { sent_ns: now().0, incarnation: self.shared.incarnation, cores: moved, stores: self.store_lines() };
        let message = NodeMessage::Beat(beat);
        for node in self.nodes() {
            if let Some(link) = self.link(node, 0) {
                link.push_node(&message);
            }
        }
    }

    /// The node's stores that serve; asked on the first core.
    fn store_lines(&self) -> Vec<StoreLine> {
        self.map_side.get().map_or_else(Vec::new, |side| side.store_lines(self.shared.timing.ask))
    }

    /// This core moves.
    pub(super) fn turned(&self) {
        self.shared.turned[usize::from(self.core)].fetch_add(1, Relaxed);
    }

    // ---- the map -------------------------------------------------------------------------------------------------

    /// A group asks the map for a change of its record.
    pub(crate) fn propose(&self, shard: &Rc<GroupShard>, group: &Group, record: Arc<Membership>, session: Session) {
        let (store, id, core) = (shard.store_id(), group.id(), self.core);
        let wanted = group.record();
        self.tell(0, move |first| {
            if let Some(side) = first.map_side.get() {
                side.clone().change(first.clone(), wanted, record, session, (core, store, id));
            }
        });
    }

    /// Has the map looked at for a member.
    pub(super) fn look(&self, group: &Group) {
        let (core, store, group, known) = {
            let member = group.member();
            (self.core, member.store(), group.id(), member.record().epoch)
        };
        self.tell(0, move |first| {
            if let Some(side) = first.map_side.get() {
                side.clone().look(first.clone(), (core, store, group), known);
            }
        });
    }
}

/// See [`CoreGroups::begin_serving`].
pub(crate) struct Serving(Rc<Cell<(usize, usize)>>, usize);

impl Drop for Serving {
    fn drop(&mut self) {
        let (requests, bytes) = self.0.get();
        self.0.set((requests - 1, bytes - self.1));
    }
}

/// Makes a connection, and serves it to its end.
async fn dial(core: Rc<CoreGroups>, link: Rc<Link>, address: SocketAddr) {
    let hello = Hello {
        cluster: core.shared.cluster,
        node: core.shared.node,
        incarnation: core.shared.incarnation,
        core: core.core,
        to_core: link.core,
        version: WIRE_VERSION,
        features: 0,
    };
    let connected = runtime::timeout(HELLO_PATIENCE, async {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let mut bytes = Vec::with_capacity(2 * FRAME_HEADER_BYTES);
        crate::wire::encode_node(&Envelope::default(), &NodeMessage::Hello(hello), &mut bytes)
            .map_err(|error| error.to_string())?;
        let mut parts = vec![runtime::IoBuf::copy_of(&bytes).freeze()];
        stream.send(&mut parts).await.map_err(|error| error.to_string())?;
        let answer = Frames::new(&stream).next().await.map_err(|error| error.to_string())?;
        match answer.map(|frame| frame.said) {
            Some(Said::Node(NodeMessage::HelloAnswer(answer))) if answer.node == link.node => Ok(stream),
            Some(Said::Node(NodeMessage::HelloAnswer(answer))) => Err(format!("it is node {}", answer.node)),
            Some(Said::Node(NodeMessage::HelloRefused(refused))) => Err(refused.reason),
            Some(_) => Err("it answers a hello with something else".to_owned()),
            None => Err("it ended the connection".to_owned()),
        }
    })
    .await
    .unwrap_or_else(|_| Err("it does not answer".to_owned()));
    match connected {
        Ok(stream) => {
            link.set_stream(&stream);
            serve(core, link, stream).await;
        }
        Err(why) => {
            log::debug!("node {} at {address}: {why}", link.node);
            // Until then what is sent there gathers, as far as there is room.
            runtime::sleep(DIAL_WAIT).await;
            link.close();
            core.forget(&link);
        }
    }
}

/// Sends and receives on a connection, to its end.
async fn serve(core: Rc<CoreGroups>, link: Rc<Link>, stream: TcpStream) {
    let (sender, of_sender, of_link) = (core.clone(), stream.clone(), link.clone());
    runtime::spawn(async move {
        let patience = sender.shared.timing.send;
        of_link.send_all(&of_sender, patience, || sender.drained()).await;
    });
    let mut frames = Frames::new(&stream);
    while !link.is_closed() {
        // Who has nothing to say for long connects again when it has.
        let Ok(next) = runtime::timeout(IDLE_MAX, frames.next()).await else { break };
        match next {
            Ok(Some(frame)) => {
                if let Some(entries) = core.dispatch(&link, frame) {
                    frames.recycle(entries);
                }
            }
            Ok(None) => break,
            Err(error) => {
                log::error!("node {} sends what no node sends: {error}; the connection is closed", link.node);
                break;
            }
        }
    }
    link.close();
    core.forget(&link);
}

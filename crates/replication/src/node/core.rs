//! One core's share of a node: the shards that are served here, and connections to the cores of other nodes.

use super::calls::PlainCalls;
use super::heads::Heads;
use super::link::{Line, Link};
use super::links::Links;
use super::map_side::{MapSide, Says};
use super::orders::Orders;
use super::view::View;
use super::{Shared, Timing, Work};
use crate::access::serve;
use crate::fill::{Owner, member, primary};
use crate::group::{Group, GroupRef, Received};
use crate::pace::Pace;
use crate::protocol::{Membership, Message, Session};
use crate::shard::GroupShard;
use crate::wire::{Class, Envelope, FillMessage, Frame, HeadMessage, NodeMessage, Said};
use cluster::GroupRecord;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use runtime::{Instant, TaskHandle, now};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, VecDeque};
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
/// Room on the way to a member is waited for so long, in one go.
const ROOM_WAIT: Duration = Duration::from_millis(10);

/// What waits in front of a line.
type Behind = Rc<RefCell<VecDeque<Option<Work>>>>;

/// See the module. Lives on its core.
pub struct CoreGroups {
    pub(crate) shared: Arc<Shared>,
    pub(super) core: u16,
    pub(super) shards: RefCell<Vec<Rc<GroupShard>>>,
    pub(super) view: RefCell<View>,
    /// Where other nodes are reached.
    pub(super) addresses: RefCell<HashMap<NodeId, SocketAddr, FixedState>>,
    pub(super) links: Links,
    /// Beats to each node that were sent, and answered; on the first core.
    pub(super) beats: RefCell<BTreeMap<NodeId, (u64, u64)>>,
    /// Nodes that speak no version of the protocol that this one does, and what to do; on the first core.
    pub(super) apart: RefCell<BTreeMap<NodeId, String>>,
    /// Groups that had no room on a connection: shard, and where it keeps them.
    waiting: RefCell<Vec<(Rc<GroupShard>, u32)>>,
    /// What was known of each group's record when a look at the map began.
    known: RefCell<HashMap<(StoreId, GroupId), Epoch, FixedState>>,
    pub(super) looked_at_links: Cell<Instant>,
    /// Members that are being made whole by groups of this core.
    fillings: Cell<usize>,
    pace: Rc<Pace>,
    /// What other cores are asked and their lines have no room for, in order; the first of each is being sent.
    behind: Vec<Behind>,
    /// See [`messages_sent`](Self::messages_sent).
    messages: Cell<u64>,
    /// See [`messages_of_heads`](Self::messages_of_heads).
    messages_of_heads: Cell<u64>,
    /// The node's session in the map lasts at least until then.
    session_until: Cell<Instant>,
    pub(super) heads: Heads,
    /// What whoever stands above has called on other nodes, and answers.
    pub(super) plain_calls: PlainCalls,
    /// Who is to lead.
    pub(super) orders: Orders,
    /// On the first core: what talks with the map.
    pub(super) map_side: OnceCell<Rc<MapSide>>,
    /// What goes on as long as the node does; nothing any more, once it has ended.
    tasks: RefCell<Option<Vec<TaskHandle>>>,
}

impl CoreGroups {
    pub(super) fn new(shared: Arc<Shared>, core: u16) -> Rc<Self> {
        let view = RefCell::new(View::new(now()));
        let behind = shared.lines.iter().map(|_| Behind::default()).collect();
        let links = Links::new((shared.node, core));
        Rc::new(Self {
            shared,
            core,
            shards: RefCell::default(),
            view,
            addresses: RefCell::new(HashMap::with_hasher(FixedState::default())),
            links,
            beats: RefCell::default(),
            apart: RefCell::default(),
            waiting: RefCell::default(),
            known: RefCell::new(HashMap::with_hasher(FixedState::default())),
            looked_at_links: Cell::default(),
            fillings: Cell::new(0),
            pace: Rc::default(),
            behind,
            messages: Cell::new(0),
            messages_of_heads: Cell::new(0),
            session_until: Cell::default(),
            heads: Heads::default(),
            plain_calls: PlainCalls::default(),
            orders: Orders::default(),
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
        self.links.all().iter().for_each(|link| link.close());
    }

    /// Takes a shard in; its groups follow when the node [begins](super::Node::begin).
    pub fn add_shard(self: &Rc<Self>, shard: Rc<Shard>, store: StoreId, recovery: Recovery) -> Rc<GroupShard> {
        let shard = GroupShard::with(shard, store, recovery, self.pace.clone());
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

    pub(crate) fn shard_of(&self, store: StoreId, group: GroupId) -> Option<Rc<GroupShard>> {
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
                None => self.look_at_new(store, record.id),
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

    /// Requests of heads elsewhere, and answers to heads here, that have come since the start.
    pub fn messages_of_heads(&self) -> u64 {
        self.messages_of_heads.get()
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

    /// Waits for that, for a moment: whoever wants it looks again.
    pub(crate) async fn awaits_room(self: &Rc<Self>, to: StoreId, group: GroupId) {
        match self.link_to(to, group).filter(|link| !link.is_closed()) {
            Some(link) => drop(runtime::timeout(ROOM_WAIT, link.room_for_recovery()).await),
            None => runtime::sleep(ROOM_WAIT).await,
        }
    }

    /// What is known of other nodes.
    pub(crate) fn view(&self) -> std::cell::Ref<'_, View> {
        self.view.borrow()
    }

    /// Which life of a store was heard of last.
    pub(crate) fn life_of(&self, store: StoreId) -> Option<Incarnation> {
        self.view.borrow().life_of(store)
    }

    /// How long another node has answered no beat.
    pub(crate) fn silence_of(&self, node: NodeId) -> std::time::Duration {
        self.view.borrow().silence_of(node, now())
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

    /// Waits until so many bytes may go for which no client waits: what is copied for other reasons shares the budget of
    /// catch-up and scrub on this core.
    pub async fn background_bytes(&self, bytes: usize) {
        self.pace.wait_for(bytes, 1).await;
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

    /// Groups that had no room on a connection.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// What other cores are to do, and their lines have no room for.
    pub(crate) fn behind_count(&self) -> usize {
        self.behind.iter().map(|behind| behind.borrow().len()).sum()
    }

    /// A connection drained: who had no room on one sends on.
    pub(super) fn drained(&self) {
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

    /// Does what a frame says; returns its list of entries, empty.
    pub(super) fn dispatch(self: &Rc<Self>, link: &Rc<Link>, frame: Frame) -> Option<Vec<Entry>> {
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
            Said::Head(message) => {
                self.messages_of_heads.set(self.messages_of_heads.get() + 1);
                match message {
                    HeadMessage::Request(request) => serve::request(self, link, header.envelope, request),
                    HeadMessage::Answer(answer) => self.calls().answered(header.envelope.request.0, link, answer),
                }
            }
            Said::Call(message) => PlainCalls::heard(self, link, header.envelope.request, message),
            Said::Node(NodeMessage::Beat(beat)) => self.beaten(link, beat),
            Said::Node(NodeMessage::BeatAnswer(answer)) => self.answered(link.node, answer),
            Said::Node(NodeMessage::Ping) => drop(link.push_node(&NodeMessage::Pong)),
            Said::Node(NodeMessage::Pong) => link.lives(),
            Said::Node(NodeMessage::Dead(dead)) => self.have_died(link.node, dead),
            Said::Node(NodeMessage::Rehearsed(_)) => drop(self.shared.spoken.received.fetch_add(1, Relaxed)),
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

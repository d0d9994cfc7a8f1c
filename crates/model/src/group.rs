//! A group of three, and everything that may happen to it.

use crate::actions::Action;
use crate::heads::{FIRST, Volume};
use crate::node::{Entry, Node, SETTINGS, Value};
use replication::protocol::{Effect, Membership, Message, Refusal, Session};
use runtime::Instant;
use stateright::{Model, Property};
use std::collections::BTreeSet;
use std::sync::Arc;
use types::{Epoch, Incarnation, Seq, StoreId};

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Members.
    pub members: usize,
    /// So many must be in sync.
    pub min_in_sync: usize,
    /// Whether the first member begins alone in sync, another being eligible; else all are in sync.
    pub begins_alone: bool,
    /// Writes of clients.
    pub writes: u8,
    /// Crashes.
    pub crashes: u8,
    /// Crashes that take durable entries along, among those.
    pub tail_losses: u8,
    /// Steps of the clock.
    pub ticks: u64,
    /// Requests to the map without an answer.
    pub unanswered: u8,
    /// Changes of the record.
    pub epochs: u32,
    /// Whether members are taken out and in.
    pub changes: bool,
    /// Whether what is appended takes its time to be durable, and is lost in a crash until then.
    pub slow_devices: bool,
    /// Whether the map's watch tells members of records.
    pub watches: bool,
    /// Whether what was sent is sent again, as if it were lost.
    pub resends: bool,
    /// Whether reads, and so beats and leases, are looked at.
    pub reads: bool,
    /// Whether what is between members arrives in order and all at once, beats are answered and the map answers at once: so
    /// that all that heads and hosts may do beside that can be looked at.
    pub is_coarse: bool,
    /// Nodes that may be the head of a volume: those of the first members. None: there is no volume.
    pub heads: usize,
    /// Hosts of the volume.
    pub hosts: usize,
    /// Writes of hosts.
    pub host_writes: u8,
    /// Reads of hosts.
    pub host_reads: u8,
    /// How often a host sends a command to another head, as it has no answer.
    pub elsewheres: u8,
    /// Connections that end under a head's request.
    pub losses: u8,
    /// Epochs of the volume.
    pub reigns: u32,
}

impl Bounds {
    const DEEP: Self = Self {
        members: 3,
        min_in_sync: 2,
        begins_alone: false,
        writes: 2,
        crashes: 2,
        tail_losses: 0,
        ticks: 0,
        unanswered: 1,
        epochs: 5,
        changes: true,
        slow_devices: false,
        watches: false,
        resends: false,
        reads: false,
        is_coarse: false,
        heads: 0,
        hosts: 0,
        host_writes: 0,
        host_reads: 0,
        elsewheres: 0,
        losses: 0,
        reigns: 0,
    };
    const TWO: Self = Self { members: 2, min_in_sync: 1, reads: true, ticks: 2, crashes: 1, ..Self::DEEP };
    const HEADS: Self = Self {
        writes: 0,
        unanswered: 0,
        epochs: 4,
        ticks: 1,
        is_coarse: true,
        heads: 2,
        hosts: 1,
        host_writes: 2,
        host_reads: 1,
        elsewheres: 1,
        losses: 1,
        reigns: 2,
        ..Self::TWO
    };
    /// What is searched, by name: each looks at one side of the protocol, so that the number of states stays within reason.
    pub const ALL: [(&str, Self); 14] = [
        ("take-overs", Self { changes: false, ..Self::DEEP }),
        ("members out and in", Self { crashes: 1, ..Self::DEEP }),
        ("slow devices", Self { slow_devices: true, ..Self::DEEP }),
        ("leases", Self { reads: true, ticks: 3, unanswered: 0, crashes: 1, epochs: 4, ..Self::DEEP }),
        ("alone", Self { begins_alone: true, reads: true, watches: true, ticks: 2, epochs: 7, ..Self::DEEP }),
        ("a member loses its tail", Self { tail_losses: 1, slow_devices: true, ..Self::DEEP }),
        ("two members", Self::TWO),
        (
            "two slow members",
            Self { slow_devices: true, writes: 1, crashes: 0, unanswered: 0, ticks: 1, epochs: 4, ..Self::TWO },
        ),
        ("four members", Self { members: 4, begins_alone: true, watches: true, epochs: 7, ..Self::DEEP }),
        ("sent again", Self { slow_devices: true, resends: true, epochs: 6, ..Self::DEEP }),
        ("heads that follow each other", Self { crashes: 0, elsewheres: 2, epochs: 2, ticks: 0, ..Self::HEADS }),
        ("heads above changes of the primary", Self::HEADS),
        (
            "a head above changes of the primary",
            Self { crashes: 0, elsewheres: 0, reigns: 1, changes: false, ..Self::HEADS },
        ),
        (
            "heads above three members",
            Self {
                members: 3,
                min_in_sync: 2,
                is_coarse: false,
                hosts: 2,
                heads: 3,
                host_writes: 3,
                reigns: 4,
                losses: 2,
                epochs: 6,
                watches: true,
                ticks: 3,
                ..Self::HEADS
            },
        ),
    ];
}

/// Something on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flight {
    /// Of the group.
    Message {
        /// From this member, in this life.
        from: usize,
        /// In which it was sent.
        life: Incarnation,
        /// To this one.
        to: usize,
        /// What it says.
        message: Message,
        /// Entries that come with it.
        entries: Vec<Entry>,
    },
    /// A beat's answer.
    Granted {
        /// From this member's node, in this life.
        from: usize,
        /// In which it was sent.
        life: Incarnation,
        /// To the node that sent the beat, in its life.
        to: (usize, Incarnation),
        /// When that was.
        sent: Instant,
        /// Whether it holds for this group.
        is_granted: bool,
    },
}

impl Flight {
    /// Where it goes.
    pub fn to(&self) -> usize {
        match self {
            Self::Message { to, .. } => *to,
            Self::Granted { to, .. } => to.0,
        }
    }
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) nodes: Vec<Node>,
    /// All that was ever sent: it may arrive at any time, again, or never.
    pub(crate) flights: BTreeSet<Arc<Flight>>,
    pub(crate) record: Membership,
    pub(crate) requests: BTreeSet<(usize, Arc<Membership>, SessionOf)>,
    pub(crate) sessions_until: Vec<Instant>,
    pub(crate) now: Instant,
    pub(crate) writes: u8,
    crashes: u8,
    tail_losses: u8,
    unanswered: u8,
    /// By receiver and sender: the last life that was heard.
    heard: Vec<Vec<Incarnation>>,
    /// Members whose device lied.
    lied: Vec<bool>,
    /// What clients were told is written, and what may have been read.
    pub(crate) acknowledged: Vec<Entry>,
    /// The first rule that was broken.
    broken: Option<&'static str>,
    /// Hosts and heads.
    pub(crate) volume: Volume,
    /// Writes there were when another member first took over.
    take_over_at: Option<u8>,
}

/// A session that has to be over, by its member.
type SessionOf = Option<StoreId>;

impl State {
    /// The first rule that was broken.
    pub fn broken(&self) -> Option<&'static str> {
        self.broken
    }

    /// A step from it failed an assertion.
    pub fn after_a_panic(mut self) -> Self {
        self.break_rule("an assertion failed");
        self
    }

    /// One line: where everybody stands.
    pub fn summary(&self) -> String {
        let log = |node: &Node| {
            let entry = |(epoch, value): &Entry| match value {
                Value::Start => format!("{epoch}("),
                Value::Record(_) => format!("{epoch})"),
                Value::Write(n) => format!("{epoch}w{n}"),
                Value::Raise(to) => format!("{epoch}raise{to}"),
                Value::Put(of, n) => format!("{epoch}w{n} of head {of}"),
            };
            let entries: Vec<_> = node.log.iter().map(entry).collect();
            let commit = node.member.as_ref().map_or(-1, |member| member.committed().0 as i64);
            format!("[{} | {} durable, {commit} committed]", entries.join(" "), node.durable)
        };
        let logs: Vec<_> = self.nodes.iter().map(log).collect();
        let volume = if self.volume.is_there() { format!("\n{:?}", self.volume) } else { String::new() };
        format!("t{} map {:?} {}{volume}", self.now.0, self.record, logs.join(" "))
    }

    pub(crate) fn break_rule(&mut self, rule: &'static str) {
        self.broken.get_or_insert(rule);
    }

    /// Carries out what a member wants.
    fn carry_out(&mut self, index: usize, came: &[Entry]) {
        let Some(member) = self.nodes[index].member.as_mut() else { return };
        for effect in member.take_effects() {
            match effect {
                Effect::Cut(through) => {
                    self.nodes[index].cut(through);
                }
                Effect::Append(known) => self.nodes[index].log.extend_from_slice(&came[known..]),
                Effect::Commit(through) => self.commit(index, through),
                Effect::Begin(first, record) => {
                    self.begin_reign(index, Seq(first.0 - 1));
                    let log = &mut self.nodes[index].log;
                    assert_eq!(log.len() as u64 + 1, first.0, "the store and the protocol agree on the log");
                    log.push((record.term(), Value::Start));
                    log.push((record.term(), Value::Record(record)));
                }
                Effect::Send(to, message, entries) => {
                    let node = &self.nodes[index];
                    let entries = entries.map_or_else(Vec::new, |range| node.entries(range));
                    let flight = Flight::Message { from: index, life: node.life, to: number(to), message, entries };
                    self.flights.insert(Arc::new(flight));
                }
                Effect::Propose(record, session) => {
                    let session = match session {
                        Session::Any => None,
                        Session::Over(store) => Some(store),
                    };
                    self.requests.insert((index, record, session));
                }
                Effect::Stop(Refusal::CommittedLost(_)) => self.break_rule("a committed entry is to be dropped"),
                Effect::Stop(Refusal::MapWentBack { .. }) => self.break_rule("the map went back"),
                Effect::Stop(Refusal::TwoRecords { .. }) => self.break_rule("two records have one epoch"),
            }
        }
        self.note_reign(index);
    }

    fn commit(&mut self, index: usize, through: Seq) {
        let node = &self.nodes[index];
        let prefix = node.log[..through.0 as usize].to_vec();
        let common = prefix.len().min(self.acknowledged.len());
        if prefix[..common] != self.acknowledged[..common] {
            return self.break_rule("what was acknowledged is lost");
        }
        let is_primary = node.member.as_ref().is_some_and(|member| member.next_place().is_some());
        if prefix.len() > common {
            if !is_primary {
                return self.break_rule("a member commits what its primary has not");
            }
            // Of a device that lied the primary can know nothing before it hears of the member's new life.
            let is_new = |node: &Node, heard: Incarnation| node.member.is_none() || heard < node.life;
            let is_excused = |other: usize| self.lied[other] && is_new(&self.nodes[other], self.heard[index][other]);
            let holds = |other: &usize| self.nodes[*other].holds(&prefix) || is_excused(*other);
            if (0..self.nodes.len()).filter(holds).count() < self.record.min_in_sync {
                self.break_rule("acknowledged with too few copies");
            }
            if self.is_of_older_head(&prefix[common..]) {
                self.break_rule("a write of an older head takes effect after a newer one was answered");
            }
            self.acknowledged = prefix;
        }
        self.answer_committed(index);
    }

    /// What must hold in every state.
    fn check(&mut self, bounds: &Bounds) {
        for (index, one) in self.nodes.iter().enumerate() {
            for other in &self.nodes[index + 1..] {
                let differ = |(a, b): (&Entry, &Entry)| a.0 == b.0 && a.1 != b.1;
                if one.log.iter().zip(&other.log).any(differ) {
                    return self.break_rule("two entries have one epoch and sequence");
                }
            }
        }
        let may_lead = self.record.in_sync.iter().chain(&self.record.eligible);
        let lacks =
            |store: &StoreId| !self.lied[number(*store)] && !self.nodes[number(*store)].holds(&self.acknowledged);
        if may_lead.copied().any(|store| lacks(&store)) {
            return self.break_rule("who may lead lacks what was acknowledged");
        }
        let until = |index: usize| self.sessions_until[index];
        let is_stale = |(index, node): (usize, &Node)| {
            node.member.as_ref().is_some_and(|member| {
                member.may_read(self.now, until(index)) && member.committed().0 < self.acknowledged.len() as u64
            })
        };
        if bounds.reads && self.nodes.iter().enumerate().any(is_stale) {
            self.break_rule("a read is stale");
        }
    }
}

/// Members' names are 1, 2, 3.
pub(crate) fn store(index: usize) -> StoreId {
    StoreId(index as u128 + 1)
}

pub(crate) fn number(store: StoreId) -> usize {
    store.0 as usize - 1
}

/// The model.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) bounds: Bounds,
    led: State,
}

impl Group {
    /// Holds in every state.
    pub const RULES: &str = "no rule is broken";
    /// Each is seen in some state: else a search has looked at nothing.
    pub const POSSIBLE: [&str; 3] = [
        "a write is acknowledged",
        "a write is acknowledged after a take-over",
        "a head is answered that followed another",
    ];

    /// A group whose first member leads.
    pub fn new(bounds: Bounds) -> Self {
        let mut group = Self { bounds: Bounds { is_coarse: false, ..bounds }, led: Self::first(&bounds) };
        group.led = group.led();
        group.bounds = bounds;
        group
    }

    fn first(bounds: &Bounds) -> State {
        let stores: Vec<_> = (0..bounds.members).map(store).collect();
        let record = Membership {
            epoch: Epoch(1),
            primary: stores[0],
            life: Incarnation(1),
            in_sync: stores.clone(),
            min_in_sync: bounds.min_in_sync,
            ..Membership::default()
        };
        // All begin with the record in their logs; the first has to take the lead as anybody has.
        let term = record.term();
        let mut log = vec![(term, Value::Start), (term, Value::Record(record.clone().into()))];
        if bounds.heads > 0 {
            log.push((term, Value::Raise(FIRST)));
        }
        let mut nodes: Vec<_> = stores.iter().map(|_| Node::new(log.clone())).collect();
        for (index, node) in nodes.iter_mut().enumerate() {
            node.start(store(index), &record, Instant(0));
        }
        State {
            nodes,
            flights: BTreeSet::new(),
            record,
            requests: BTreeSet::new(),
            sessions_until: vec![Instant(1); stores.len()],
            now: Instant(0),
            writes: 0,
            crashes: 0,
            tail_losses: 0,
            unanswered: 0,
            heard: vec![vec![Incarnation(0); stores.len()]; stores.len()],
            lied: vec![false; stores.len()],
            acknowledged: Vec::new(),
            broken: None,
            volume: Volume::new(bounds),
            take_over_at: None,
        }
    }

    /// How many members it has.
    pub fn members(&self) -> usize {
        self.bounds.members
    }

    /// The first member leads, and everything begun is committed everywhere.
    fn led(&self) -> State {
        let mut state = self.settled(self.next_state(&self.led, Action::Campaign(0)).expect("it may lead"));
        for gone in (1..self.bounds.members).filter(|_| self.bounds.begins_alone) {
            let asked = self.next_state(&state, Action::Remove(0, gone)).expect("it may be removed");
            state = self.settled(asked);
        }
        state.flights = BTreeSet::new();
        state.take_over_at = None;
        state.volume.led_by(state.record.epoch, 0);
        state
    }

    /// Whatever is on its way has arrived.
    fn settled(&self, mut state: State) -> State {
        loop {
            let mut actions = Vec::new();
            self.actions(&state, &mut actions);
            let is_due = |action: &Action| {
                matches!(action, Action::Deliver(_) | Action::MapTakes(_, _, _, true) | Action::Durable(_))
                    || matches!(action, Action::TellCommit(0, _))
            };
            // Here each message arrives once: what was told long ago would be told for ever.
            let once = |action: Action| {
                let mut state = state.clone();
                if let Action::Deliver(flight) = &action {
                    state.flights.remove(flight);
                }
                self.next_state(&state, action)
            };
            match actions.into_iter().filter(is_due).find_map(once) {
                Some(next) => state = next,
                None => return state,
            }
        }
    }
}

impl Model for Group {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.led.clone()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        let bounds = &self.bounds;
        if bounds.heads > 0 {
            let mut steps = Vec::new();
            self.head_steps(state, &mut steps);
            actions.extend(steps.into_iter().map(Action::Head));
        }
        match bounds.is_coarse {
            true => actions.extend(state.flows().into_iter().map(|(from, to)| Action::Flow(from, to))),
            false => actions.extend(state.flights.iter().cloned().map(Action::Deliver)),
        }
        for (index, record, over) in state.requests.iter() {
            actions.push(Action::MapTakes(*index, record.clone(), *over, true));
            if state.unanswered < bounds.unanswered {
                actions.push(Action::MapTakes(*index, record.clone(), *over, false));
            }
        }
        for (index, node) in state.nodes.iter().enumerate() {
            let Some(member) = &node.member else {
                actions.push(Action::Start(index));
                continue;
            };
            if bounds.slow_devices && node.durable < node.log.len() {
                actions.push(Action::Durable(index));
            }
            if node.late.is_some() {
                actions.push(Action::Late(index));
            }
            let leads = member.next_place().is_some();
            if leads && state.writes < bounds.writes {
                actions.push(Action::Write(index));
            }
            if member.change_under_way() && bounds.unanswered > 0 {
                actions.push(Action::Unanswered(index));
            }
            if bounds.watches && member.record().epoch < state.record.epoch {
                actions.push(Action::Learn(index));
            }
            if !member.leads() {
                actions.push(Action::Campaign(index));
            }
            if bounds.reads {
                actions.push(Action::Propose(index));
            }
            if member.leads() && !leads {
                actions.push(Action::AskOver(index));
            }
            let leads_in_map = member.leads();
            for other in (0..state.nodes.len()).filter(|other| *other != index) {
                if leads_in_map && bounds.resends {
                    actions.push(Action::Resend(index, other));
                }
                if leads_in_map && bounds.changes {
                    actions.push(Action::Remove(index, other));
                    if !bounds.is_coarse {
                        actions.push(Action::Add(index, other));
                    }
                }
                if leads && !bounds.is_coarse {
                    actions.push(Action::TellCommit(index, other));
                }
                if leads && bounds.reads {
                    actions.push(Action::Beat(index, other));
                }
            }
            if bounds.reads && !state.record.eligible.is_empty() {
                actions.push(Action::Renew(index));
            }
            if state.crashes < bounds.crashes {
                actions.push(Action::Crash(index, None));
                if state.tail_losses < bounds.tail_losses {
                    actions.extend((2..node.durable).map(|kept| Action::Crash(index, Some(kept))));
                }
            }
        }
        if state.now.0 < bounds.ticks {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = state.now;
        let acts = match action.clone() {
            Action::Write(index) => {
                let member = state.nodes[index].member.as_mut()?;
                let (term, _) = member.next_place()?;
                member.appended();
                member.flush();
                state.writes += 1;
                let value = Value::Write(state.writes);
                state.nodes[index].log.push((term, value));
                index
            }
            Action::Durable(index) => {
                state.make_durable(index);
                index
            }
            Action::Late(index) => {
                let node = &mut state.nodes[index];
                let late = node.late.take()?;
                node.member.as_mut()?.is_durable(late);
                index
            }
            Action::Deliver(flight) => state.deliver(&flight)?,
            Action::Beat(index, other) => {
                let to = (index, state.nodes[index].life);
                let (life, member) = (state.nodes[other].life, state.nodes[other].member.as_mut()?);
                let is_granted = member.grant(store(index), now);
                let flight = Flight::Granted { from: other, life, to, sent: now, is_granted };
                match self.bounds.is_coarse {
                    true => state.deliver(&flight)?,
                    false => state.flights.insert(Arc::new(flight)).then_some(index)?,
                }
            }
            Action::Tick => {
                state.now.0 += 1;
                let now = state.now;
                // What can have no effect any more is forgotten, so that fewer states differ.
                state.flights.retain(|flight| match **flight {
                    Flight::Granted { sent, is_granted, .. } => !is_granted || now.0 < sent.0 + SETTINGS.lease.0,
                    Flight::Message { .. } => true,
                });
                0
            }
            Action::Campaign(index) => {
                let member = state.nodes[index].member.as_mut()?;
                member.campaign();
                member.propose_to_lead(now);
                index
            }
            Action::Propose(index) => {
                state.nodes[index].member.as_mut()?.propose_to_lead(now);
                index
            }
            Action::AskOver(index) => {
                state.nodes[index].member.as_mut()?.go_on(true);
                index
            }
            Action::Remove(index, other) => {
                state.nodes[index].member.as_mut()?.remove(&[store(other)]);
                index
            }
            Action::Add(index, other) => {
                state.nodes[index].member.as_mut()?.add(store(other));
                index
            }
            Action::TellCommit(index, other) => {
                state.nodes[index].member.as_mut()?.tell_commit(store(other));
                index
            }
            Action::Resend(index, other) => {
                state.nodes[index].member.as_mut()?.resend(store(other));
                index
            }
            Action::MapTakes(index, record, over, is_heard) => {
                if over.is_some_and(|store| now < state.sessions_until[number(store)]) {
                    // It is refused; a copy of it, sent before, may still be under way.
                    let current = state.record.clone();
                    state.nodes[index].member.as_mut().filter(|_| is_heard)?.conflicted(&record, &current);
                    return (state != *last).then_some(state);
                }
                state.requests.remove(&(index, record.clone(), over));
                let is_done = record.epoch.0 == state.record.epoch.0 + 1;
                if is_done {
                    state.take_over_at =
                        state.take_over_at.or((record.primary != state.record.primary).then_some(state.writes));
                    state.record = Membership::clone(&record);
                }
                let current = state.record.clone();
                match state.nodes[index].member.as_mut().filter(|member| is_heard && member.asked_for(&record)) {
                    Some(member) if is_done => member.changed(&record),
                    Some(member) => member.conflicted(&record, &current),
                    None => state.unanswered += u8::from(!is_heard),
                }
                index
            }
            Action::Unanswered(index) => {
                state.nodes[index].member.as_mut()?.unanswered();
                index
            }
            Action::Learn(index) => {
                let record = state.record.clone();
                state.nodes[index].member.as_mut()?.learn(&record);
                index
            }
            Action::Renew(index) => {
                if now >= state.sessions_until[index] {
                    // It may be over. A new one begins with a look at the map.
                    let record = state.record.clone();
                    state.nodes[index].member.as_mut()?.looked(&record);
                }
                state.sessions_until[index] = Instant(now.0 + 1);
                index
            }
            Action::Crash(index, kept) => {
                let node = &mut state.nodes[index];
                node.crash();
                state.volume.crashed(index);
                if let Some(kept) = kept {
                    node.log.truncate(kept);
                    node.durable = kept;
                    state.tail_losses += 1;
                    state.lied[index] = true;
                }
                state.crashes += 1;
                index
            }
            Action::Start(index) => {
                let record = state.record.clone();
                state.nodes[index].start(store(index), &record, now);
                index
            }
            Action::Flow(from, to) => {
                let (flows, rest): (BTreeSet<_>, _) = std::mem::take(&mut state.flights).into_iter().partition(|flight| {
                    matches!(**flight, Flight::Message { from: sender, to: receiver, .. } if (sender, receiver) == (from, to))
                });
                state.flights = rest;
                for flight in &flows {
                    state.deliver(flight);
                }
                to
            }
            Action::Head(step) => state.head_step(step)?,
        };
        state.carry_out(acts, &[]);
        if !self.bounds.slow_devices {
            (0..state.nodes.len()).for_each(|index| state.make_durable(index));
        }
        if self.bounds.is_coarse
            && let Some((index, record, over)) = state.requests.first().cloned()
        {
            return self.next_state(&state, Action::MapTakes(index, record, over, true));
        }
        state.check(&self.bounds);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(Self::RULES, |_, state: &State| state.broken.is_none()),
            Property::sometimes(Self::POSSIBLE[0], |_, state: &State| state.acknowledges_write_after(0)),
            Property::sometimes(Self::POSSIBLE[1], |_, state: &State| {
                state.take_over_at.is_some_and(|writes| state.acknowledges_write_after(writes))
            }),
            Property::sometimes(Self::POSSIBLE[2], |group: &Self, state: &State| {
                group.bounds.heads == 0 || state.volume.has_moved()
            }),
        ]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.record.epoch.0 <= self.bounds.epochs
    }
}

impl State {
    /// All that is appended is durable.
    fn make_durable(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.durable < node.log.len()
            && let Some(member) = &mut node.member
        {
            node.durable = node.log.len();
            member.is_durable((node.log[node.durable - 1].0, Seq(node.durable as u64)));
            self.carry_out(index, &[]);
        }
    }

    /// Between whom anything is under way.
    fn flows(&self) -> BTreeSet<(usize, usize)> {
        let flow = |flight: &Arc<Flight>| match **flight {
            Flight::Message { from, to, .. } => Some((from, to)),
            Flight::Granted { .. } => None,
        };
        self.flights.iter().filter_map(flow).collect()
    }

    fn acknowledges_write_after(&self, writes: u8) -> bool {
        self.acknowledged.iter().any(|(_, value)| matches!(value, Value::Write(n) | Value::Put(_, n) if *n > writes))
    }

    fn deliver(&mut self, flight: &Flight) -> Option<usize> {
        match *flight {
            Flight::Message { from, life, to, ref message, ref entries } => {
                let terms: Vec<_> = entries.iter().map(|(term, _)| *term).collect();
                let heard = &mut self.heard[to][from];
                *heard = (*heard).max(life);
                let member = self.nodes[to].member.as_mut()?;
                member.receive(store(from), life, message, &terms);
                self.carry_out(to, entries);
                Some(to)
            }
            Flight::Granted { from, life, to: (to, to_life), sent, is_granted } => {
                if self.nodes[to].life == to_life {
                    let member = self.nodes[to].member.as_mut()?;
                    member.restarted(store(from), life);
                    member.beat_answered(store(from), life, sent, is_granted);
                }
                Some(to)
            }
        }
    }
}

//! Heads of one volume, and hosts that write and read one block of it: what they do beside the group (docs/heads.md, H1 to H5).
//!
//! A head runs on the node of a member: it reaches the primary by requests, or by none where that is on its own node. The map's
//! record says who is the head, and in which epoch; an older one goes on until it is refused or looks at the map. What the primary
//! takes, what a head does that was not answered or was refused, and what an answer waits for is decided by the code that ships.

mod head;
mod primary;

use crate::group::{Bounds, Group, State, number};
use primary::Entry;
use replication::protocol::{Asker, Heads, goes_on_in, must_raise};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use types::{Epoch, Incarnation, LayerId, Seq, VolumeEpoch, VolumeId};

/// There is one.
const VOLUME: VolumeId = VolumeId(1);
/// It has one layer, which is told with each request.
const FIRST_LAYER: LayerId = LayerId(1);
/// Whoever is the first head has been let in by the group before.
pub const FIRST: VolumeEpoch = VolumeEpoch(1);

/// One step of hosts and heads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HeadStep {
    /// A host that has nothing to wait for sends a head a command: a write, or a read.
    Issue(usize, usize, bool),
    /// It waits no longer, and sends the same to this head.
    SendElsewhere(usize, usize),
    /// A head does what it has been sent: asks the primary, or is the primary.
    Ask(usize),
    /// A request reaches whom it was sent to.
    Reach(Asked),
    /// One that waits there is looked at again.
    Serve(usize, Asked),
    /// An answer arrives.
    Answer(Answered),
    /// A connection ends, and with it what a head waited for.
    Lose(usize),
    /// A part has waited for too long: its head makes sure that nothing more becomes of it.
    GiveUp(usize),
    /// The map makes this node the head, and it reads that back.
    TakeOver(usize),
    /// A head looks at the volume's record.
    LookAtVolume(usize),
    /// A head hears who leads the group.
    LookAtGroup(usize),
}

impl HeadStep {
    /// Its kind, below [`HEAD_KINDS`], and the member on whose node it happens.
    pub fn kind(&self) -> (usize, usize) {
        match self {
            Self::Issue(_, at, _) | Self::SendElsewhere(_, at) => (0, *at),
            Self::Ask(at) => (1, *at),
            Self::Reach(asked) => (2, asked.to),
            Self::Serve(at, _) => (2, *at),
            Self::Answer(answered) => (2, answered.asked.from),
            Self::Lose(at) | Self::GiveUp(at) => (3, *at),
            Self::TakeOver(at) | Self::LookAtVolume(at) | Self::LookAtGroup(at) => (4, *at),
        }
    }
}

/// Kinds of such steps.
pub const HEAD_KINDS: usize = 5;

/// What is asked of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wants {
    /// That what was asked before is void.
    Nothing,
    Read,
    Write(u8),
}

/// A request; it arrives once, at any time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asked {
    pub(crate) from: usize,
    life: Incarnation,
    attempt: u64,
    relied_on: Epoch,
    pub(crate) to: usize,
    epoch: VolumeEpoch,
    /// The epoch in which the map made this node the head, whatever it says.
    reign: VolumeEpoch,
    wants: Wants,
}

/// What comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Says {
    Done,
    Read(u8),
    Older(VolumeEpoch),
    NotDone,
    Unknown,
}

/// An answer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Answered {
    /// To which request.
    asked: Asked,
    says: Says,
}

/// A command, or what is left of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Work {
    /// Of this host; of none, when what became of it is to be settled.
    host: Option<usize>,
    wants: Wants,
    /// The head's epoch when it was let in.
    epoch: VolumeEpoch,
    reign: VolumeEpoch,
    /// Something that was asked for it may be done at any time.
    is_unknown: bool,
    /// No more was asked for it than that the group knows of the head (H21).
    raises: bool,
    call: Call,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    None,
    /// Asked over a connection.
    There(Asked),
    /// Given a place by the primary on this node.
    Here(Seq),
}

/// A node that may be the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Head {
    /// It serves, in this epoch as it believes.
    epoch: Option<VolumeEpoch>,
    /// In which it was made head last.
    reign: VolumeEpoch,
    /// In which it was answered by the group last.
    raised: VolumeEpoch,
    attempt: u64,
    /// Who leads the group, as it believes.
    led: (Epoch, usize),
    /// One at a time: there is one block (H5).
    work: Option<Work>,
}

/// What a primary has of heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Primary {
    heads: Heads,
    /// Those that it knows attempts of.
    askers: BTreeSet<Asker>,
    gives_places: bool,
    waiting: BTreeSet<Asked>,
    /// What has its place, and is answered when that is committed.
    placed: Vec<(Seq, Asked)>,
}

impl Hash for Primary {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.heads.reign(VOLUME).hash(to);
        self.askers.iter().for_each(|asker| (asker, self.heads.newest_attempt(*asker)).hash(to));
        (self.gives_places, &self.waiting, &self.placed).hash(to);
    }
}

/// One block, as hosts know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Block(u8);

impl SequentialSpec for Block {
    type Op = Wants;
    type Ret = Says;

    fn invoke(&mut self, wants: &Wants) -> Says {
        match *wants {
            Wants::Write(value) => {
                self.0 = value;
                Says::Done
            }
            Wants::Read => Says::Read(self.0),
            Wants::Nothing => Says::Done,
        }
    }
}

/// Everything beside the group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Volume {
    /// The map's record: who is the head, and its epoch.
    head: usize,
    epoch: VolumeEpoch,
    heads: Vec<Head>,
    primaries: Vec<Primary>,
    asked: BTreeSet<Asked>,
    answers: BTreeSet<Answered>,
    /// By host: what it waits for, and of which head, made so in which epoch.
    hosts: Vec<Option<(Wants, usize, VolumeEpoch)>>,
    history: LinearizabilityTester<usize, Block>,
    /// The latest head that the group has answered.
    answered: VolumeEpoch,
    reads: u8,
    elsewheres: u8,
    losses: u8,
}

impl Volume {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let none = VolumeEpoch(0);
        let head = Head { epoch: None, reign: none, raised: none, attempt: 1, led: (Epoch(0), 0), work: None };
        let mut heads = vec![head; bounds.heads];
        // Its requests cross the network.
        if let Some(first) = heads.last_mut() {
            (first.epoch, first.reign, first.raised) = (Some(FIRST), FIRST, FIRST);
        }
        Self {
            head: bounds.heads.saturating_sub(1),
            epoch: FIRST,
            heads,
            primaries: vec![Primary::default(); if bounds.heads > 0 { bounds.members } else { 0 }],
            asked: BTreeSet::new(),
            answers: BTreeSet::new(),
            hosts: vec![None; bounds.hosts],
            history: LinearizabilityTester::new(Block::default()),
            answered: VolumeEpoch(0),
            reads: 0,
            elsewheres: 0,
            losses: 0,
        }
    }

    /// What all heads believe of the group.
    pub(crate) fn led_by(&mut self, epoch: Epoch, primary: usize) {
        self.heads.iter_mut().for_each(|head| head.led = (epoch, primary));
    }

    /// Whether there are heads.
    pub(crate) fn is_there(&self) -> bool {
        !self.heads.is_empty()
    }

    /// Whether a head that followed another was answered.
    pub(crate) fn has_moved(&self) -> bool {
        self.answered > FIRST
    }

    /// The process of a member's node has ended.
    pub(crate) fn crashed(&mut self, index: usize) {
        if !self.is_there() {
            return;
        }
        self.primaries[index] = Primary::default();
        // Its connections end.
        self.asked.retain(|asked| asked.to != index);
        if let Some(head) = self.heads.get_mut(index) {
            (head.epoch, head.raised, head.attempt, head.work) = (None, VolumeEpoch(0), 1, None);
        }
        self.forget_answers();
    }

    /// Answers that nobody waits for say nothing.
    fn forget_answers(&mut self) {
        let Self { answers, heads, .. } = self;
        answers.retain(|Answered { asked, .. }| {
            let work = heads[asked.from].work.as_ref();
            work.is_some_and(|work| work.call == Call::There(*asked))
        });
    }

    fn returned(&mut self, host: usize, says: Says) -> bool {
        self.hosts[host] = None;
        let is_told = self.history.on_return(host, says).is_ok();
        is_told && self.history.is_consistent()
    }
}

impl Group {
    pub(crate) fn head_steps(&self, state: &State, steps: &mut Vec<HeadStep>) {
        let (volume, bounds) = (&state.volume, &self.bounds);
        steps.extend(volume.asked.iter().copied().map(HeadStep::Reach));
        steps.extend(volume.answers.iter().copied().map(HeadStep::Answer));
        for (at, primary) in volume.primaries.iter().enumerate() {
            steps.extend(primary.waiting.iter().map(|asked| HeadStep::Serve(at, *asked)));
        }
        for (at, head) in volume.heads.iter().enumerate() {
            if state.nodes[at].member.is_none() {
                continue;
            }
            for (host, waits) in volume.hosts.iter().enumerate().filter(|_| head.epoch.is_some() && head.work.is_none())
            {
                match waits {
                    None if state.writes < bounds.host_writes => steps.push(HeadStep::Issue(host, at, true)),
                    Some(_) if volume.elsewheres < bounds.elsewheres => steps.push(HeadStep::SendElsewhere(host, at)),
                    _ => {}
                }
                if waits.is_none() && volume.reads < bounds.host_reads {
                    steps.push(HeadStep::Issue(host, at, false));
                }
            }
            match &head.work {
                Some(Work { call: Call::None, host, is_unknown, .. }) => {
                    steps.push(HeadStep::Ask(at));
                    if *is_unknown && host.is_some() {
                        steps.push(HeadStep::GiveUp(at));
                    }
                }
                Some(Work { call: Call::There(_), .. }) if volume.losses < bounds.losses => {
                    steps.push(HeadStep::Lose(at))
                }
                _ => {}
            }
            if volume.epoch.0 < bounds.reigns && head.epoch != Some(volume.epoch) {
                steps.push(HeadStep::TakeOver(at));
            }
            if head.epoch.is_some_and(|epoch| epoch != volume.epoch) {
                steps.push(HeadStep::LookAtVolume(at));
            }
            if head.led.0 < state.record.epoch {
                steps.push(HeadStep::LookAtGroup(at));
            }
        }
    }
}

impl State {
    /// Takes the step; returns the member that it was about, if it changes anything.
    pub(crate) fn head_step(&mut self, step: HeadStep) -> Option<usize> {
        let acts = match step {
            HeadStep::Issue(host, at, is_write) => {
                let wants = if is_write { Wants::Write(self.writes + 1) } else { Wants::Read };
                self.writes += u8::from(is_write);
                let volume = &mut self.volume;
                volume.reads += u8::from(!is_write);
                volume.history.on_invoke(host, wants).ok()?;
                self.let_in(host, wants, at)
            }
            HeadStep::SendElsewhere(host, at) => {
                let (wants, ..) = self.volume.hosts[host]?;
                self.volume.elsewheres += 1;
                self.let_in(host, wants, at)
            }
            HeadStep::Ask(at) => self.ask(at),
            HeadStep::Reach(asked) => {
                self.volume.asked.remove(&asked);
                self.reach(asked);
                Some(asked.to)
            }
            HeadStep::Serve(at, asked) => {
                self.volume.primaries[at].waiting.remove(&asked);
                self.serve(at, asked);
                Some(at)
            }
            HeadStep::Answer(answered) => {
                self.volume.answers.remove(&answered);
                self.hear(answered.asked.from, answered.says);
                Some(answered.asked.from)
            }
            HeadStep::Lose(at) => {
                self.volume.losses += 1;
                self.hear(at, Says::Unknown);
                Some(at)
            }
            HeadStep::GiveUp(at) => {
                self.settle(at);
                Some(at)
            }
            HeadStep::TakeOver(at) => {
                let volume = &mut self.volume;
                (volume.head, volume.epoch) = (at, VolumeEpoch(volume.epoch.0 + 1));
                let head = &mut volume.heads[at];
                (head.epoch, head.reign) = (Some(volume.epoch), volume.epoch);
                Some(at)
            }
            HeadStep::LookAtVolume(at) => {
                let volume = &mut self.volume;
                let head = &mut volume.heads[at];
                head.epoch = head.epoch.and_then(|epoch| goes_on_in(epoch, volume.epoch)).filter(|_| volume.head == at);
                Some(at)
            }
            HeadStep::LookAtGroup(at) => {
                self.volume.heads[at].led = (self.record.epoch, number(self.record.primary));
                Some(at)
            }
        };
        self.volume.forget_answers();
        acts
    }

    /// A head takes a host's command. What another head has of it, it keeps.
    fn let_in(&mut self, host: usize, wants: Wants, at: usize) -> Option<usize> {
        let volume = &mut self.volume;
        let head = &mut volume.heads[at];
        let (epoch, reign) = (head.epoch?, head.reign);
        volume.hosts[host] = Some((wants, at, reign));
        let work = Work { host: Some(host), wants, epoch, reign, is_unknown: false, raises: false, call: Call::None };
        head.work = Some(work);
        Some(at)
    }

    fn ask(&mut self, at: usize) -> Option<usize> {
        let life = self.nodes[at].life;
        let head = &mut self.volume.heads[at];
        let work = head.work.as_mut()?;
        let (relied_on, to) = head.led;
        let Work { wants, epoch, reign, .. } = *work;
        work.raises = matches!(wants, Wants::Write(_)) && must_raise(head.raised, epoch);
        let wants = if work.raises { Wants::Nothing } else { wants };
        let asked = Asked { from: at, life, attempt: head.attempt, relied_on, to, epoch, reign, wants };
        if self.nodes[at].member.as_ref()?.leads() {
            return self.do_here(at, asked);
        }
        if to == at {
            return None;
        }
        work.call = Call::There(asked);
        self.volume.asked.insert(asked);
        Some(at)
    }

    /// The primary is on the head's own node: no request, no attempt.
    fn do_here(&mut self, at: usize, asked: Asked) -> Option<usize> {
        match self.enter(at, asked) {
            Entry::Waits => {}
            Entry::Placed(seq) => self.volume.heads[at].work.as_mut()?.call = Call::Here(seq),
            Entry::Says(says) => {
                self.note_answered(asked.reign, says);
                self.hear(at, says);
            }
        }
        Some(at)
    }
}

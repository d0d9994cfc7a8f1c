//! A placement group, as one of its members has it.
//!
//! Rooms: `requests` (what heads ask of its primary), `decided` (what the protocol says is done), `catching_up` (members
//! that are made whole).

mod catching_up;
mod decided;
mod force;
mod requests;
mod state;

pub(crate) use decided::Received;
pub use requests::{Place, Reader, Sought, Stamp};
pub(crate) use state::MemberState;

use crate::changes::Changes;
use crate::error::GroupError;
use crate::fill::member::Filler;
use crate::fill::primary::Filling;
use crate::node::Timers;
use crate::protocol::{Effect, Heads, Member, Membership};
use crate::recent::Recent;
use crate::record::with_membership;
use crate::shard::GroupShard;
use crate::window::Window;
use cluster::GroupRecord;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use runtime::channel::WaitList;
use runtime::{Instant, now};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use types::{ChunkId, Epoch, GroupId, LayerId, Seq, StoreId, Term};

/// A place in the order of a group, in one reign of its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    seq: Seq,
    reign: u32,
}

impl Placed {
    /// The sequence.
    pub fn seq(self) -> Seq {
        self.seq
    }

    /// Whether the other was given in the same reign: then it is committed when a later one is.
    pub fn is_of_reign_of(self, other: Self) -> bool {
        self.reign == other.reign
    }
}

/// How a group stands at one of its members: for status, and for who judges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The newest record that the member knows.
    pub record: Arc<Membership>,
    /// Whether the map says that this life of the member leads.
    pub leads: bool,
    /// Whether it would serve a read now.
    pub serves: bool,
    /// Whether it lacks nothing before its log's end.
    pub whole: bool,
    /// Chunks that were found damaged here and have not come from another member yet.
    pub damaged: usize,
    /// Committed here.
    pub committed: Seq,
    /// Durable here.
    pub durable: Seq,
    /// Why it takes no part, if it does not.
    pub stopped: Option<String>,
    /// An entry that nobody can apply (R16).
    pub poison: Option<Seq>,
}

/// A group that has a member here. Lives on its shard's core.
pub struct Group {
    id: GroupId,
    /// What the map says of it besides who is who.
    base: RefCell<GroupRecord>,
    shard: Weak<GroupShard>,
    /// Where the shard keeps it.
    index: u32,
    /// What is decided.
    member: RefCell<Member>,
    /// A list for its effects.
    spare: RefCell<Vec<Effect>>,
    /// And one for the terms of what comes.
    terms: RefCell<Vec<Term>>,
    /// The map says that this life of the member leads.
    leads: Cell<bool>,
    /// Of a primary that gives out places.
    is_leading: Cell<bool>,
    /// It was led here last until the device was slow.
    is_slow_here: Cell<bool>,
    window: RefCell<Window>,
    /// A write of a client, one at a time, whose commit is timed: it and when it was given its place.
    timed: Cell<Option<(Seq, Instant)>>,
    recent: RefCell<Recent>,
    /// Members that lack what nobody can send them entry by entry.
    lacking: RefCell<Vec<StoreId>>,
    room: WaitList,
    /// Readers that wait for a commit; rare, so that all are woken.
    commits: WaitList,
    /// What is taken of heads in this reign.
    heads: RefCell<Heads>,
    /// Layers that the group was told of in this reign.
    layers: RefCell<HashSet<LayerId, FixedState>>,
    /// Which blocks entries were about of late.
    changes: RefCell<Changes>,
    /// It lacks something before its log's end, and that is written down.
    lacks_as_written: Cell<bool>,
    /// Whether it was written down last, or is about to be, that it lacks nothing: what else is written down of it says the same.
    noted_whole: Cell<bool>,
    /// Before that it held this much of the order; 0: not known.
    base_of_leaves: Cell<Seq>,
    /// It may have lost an entry with which an epoch began (R11).
    log_in_doubt: Cell<bool>,
    /// Leaves may be lost that nobody knows.
    in_doubt: Cell<bool>,
    /// See [`doubtful_from`](Self::doubtful_from).
    doubtful_from: Cell<Seq>,
    /// Chunks that are damaged here: another member has them.
    damaged: RefCell<Vec<(LayerId, ChunkId)>>,
    /// Chunks whose writers wait, as their unit is being taken.
    held: RefCell<Vec<ChunkId>>,
    /// All writers wait a moment, so that this member has all that is committed, and is added.
    held_for: Cell<Option<StoreId>>,
    /// Members that are being made whole, at their primary.
    fillings: RefCell<Vec<Rc<Filling>>>,
    /// Who is made whole here.
    filler: RefCell<Option<Rc<Filler>>>,
    /// Whom this life has told its history, and in which epoch: it may count for them until they know better (R9).
    told_to: RefCell<Vec<(StoreId, Epoch)>>,
    /// To be sent at the end of this turn.
    pub(crate) is_dirty: Cell<bool>,
    /// Something found no room on a connection.
    pub(crate) waits_for_room: Cell<bool>,
    /// The store has no room for its next entry, and had none since then.
    pub(crate) finds_no_room_since: Cell<Option<Instant>>,
    /// The entry that nobody can apply, as it is written down.
    poison_noted: Cell<Option<Seq>>,
    /// Of the newest record that is written down outside the log.
    heard_noted: Cell<Epoch>,
    /// In which epoch an operator said whose copy counts, as far as that was heeded here.
    forced_by: Cell<Epoch>,
    pub(crate) timers: RefCell<Timers>,
    stopped: OnceCell<String>,
}

impl Group {
    pub(crate) fn new(
        base: GroupRecord,
        member: Member,
        shard: Weak<GroupShard>,
        index: u32,
        kept_bytes: usize,
    ) -> Self {
        let (last, is_whole, poison) = (member.log().last(), member.is_whole(), member.poison());
        Self {
            id: base.id,
            base: RefCell::new(base),
            shard,
            index,
            member: RefCell::new(member),
            spare: RefCell::default(),
            terms: RefCell::default(),
            leads: Cell::new(false),
            is_leading: Cell::new(false),
            is_slow_here: Cell::new(false),
            window: RefCell::default(),
            timed: Cell::new(None),
            recent: RefCell::new(Recent::new(kept_bytes)),
            lacking: RefCell::default(),
            room: WaitList::default(),
            commits: WaitList::default(),
            heads: RefCell::default(),
            layers: RefCell::new(HashSet::with_hasher(FixedState::default())),
            changes: RefCell::new(Changes::from(last)),
            lacks_as_written: Cell::new(!is_whole),
            noted_whole: Cell::new(is_whole),
            base_of_leaves: Cell::default(),
            log_in_doubt: Cell::new(false),
            in_doubt: Cell::new(false),
            doubtful_from: Cell::new(Seq(u64::MAX)),
            damaged: RefCell::default(),
            held: RefCell::default(),
            held_for: Cell::new(None),
            fillings: RefCell::default(),
            filler: RefCell::default(),
            told_to: RefCell::default(),
            is_dirty: Cell::new(false),
            waits_for_room: Cell::new(false),
            finds_no_room_since: Cell::default(),
            poison_noted: Cell::new(poison),
            heard_noted: Cell::default(),
            forced_by: Cell::default(),
            timers: RefCell::default(),
            stopped: OnceCell::new(),
        }
    }

    /// Where its shard keeps it.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Its id.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// Its record, as it is known here.
    pub fn record(&self) -> GroupRecord {
        with_membership(&self.base.borrow(), self.member.borrow().record())
    }

    /// Why it serves nothing, if it does not.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// Whether the map says that this life of the member leads.
    pub(crate) fn leads_here(&self) -> bool {
        self.leads.get()
    }

    /// Who leads, in which epoch, as far as is known here.
    pub(crate) fn led_by(&self) -> (Option<StoreId>, Epoch) {
        let member = self.member.borrow();
        (Some(member.record().primary), member.record().epoch)
    }

    /// Everything through here is committed.
    pub fn committed(&self) -> Seq {
        self.member.borrow().committed()
    }

    /// How it stands here.
    pub fn standing(&self) -> Standing {
        let member = self.member.borrow();
        Standing {
            record: member.record().clone(),
            leads: member.leads(),
            serves: member.may_read(now(), self.session_until()) && self.stopped.get().is_none(),
            whole: member.is_whole(),
            damaged: self.damaged.borrow().len(),
            committed: member.committed(),
            durable: member.durable(),
            stopped: self.stopped.get().cloned(),
            poison: member.poison(),
        }
    }

    /// Stops for good; who waits is told that its outcome is unknown.
    pub(crate) fn stop(&self, reason: &str) {
        if self.stopped.set(reason.to_owned()).is_ok() {
            let waiters = self.window.borrow_mut().take_waiters();
            waiters.into_iter().for_each(std::task::Waker::wake);
            self.wake();
        }
    }

    fn stopped_error(&self) -> GroupError {
        let reason = self.stopped.get().cloned().unwrap_or_else(|| "its shard was closed".to_owned());
        GroupError::Stopped { group: self.id, reason }
    }

    #[cold]
    fn not_primary(&self, member: &Member) -> GroupError {
        let primary = Some(member.record().primary).filter(|store| *store != member.store());
        GroupError::NotPrimary { group: self.id, primary }
    }

    #[cold]
    fn unknown(&self) -> GroupError {
        match self.stopped.get() {
            Some(_) => self.stopped_error(),
            None => GroupError::Unknown { group: self.id },
        }
    }
}

/// Groups are shared within their core.
pub type GroupRef = Rc<Group>;

//! A store with a log, and the member that runs on it while it is up.

use replication::protocol::{History, Member, Membership, Place, Settings};
use runtime::Instant;
use std::sync::Arc;
use types::{Incarnation, Mutant, Seq, StoreId, Term, VolumeEpoch, mutant};

/// Leases and grants last one step of the clock, and few entries fit into a message.
pub const SETTINGS: Settings = Settings { lease: Instant(1), grant: Instant(1), batch_entries_max: 2 };

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// An epoch begins.
    Start,
    /// The record, as an entry.
    Record(Arc<Membership>),
    /// A client's write, each another.
    Write(u8),
    /// The volume's epoch is raised.
    Raise(VolumeEpoch),
    /// A head's write: of the node that was made head in this epoch.
    Put(VolumeEpoch, u8),
}

/// An entry with the term in which it was given its place.
pub type Entry = (Term, Value);

/// A store: what is on its device outlives its member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Its life: counted up at each start.
    pub life: Incarnation,
    /// All that is appended; lost behind `durable` in a crash.
    pub log: Vec<Entry>,
    /// How many of them are durable.
    pub durable: usize,
    /// The end of a write that was cut while it was under way, and is done late.
    pub late: Option<Place>,
    /// While it is up.
    pub member: Option<Member>,
}

impl Node {
    /// A store that is not up.
    pub fn new(log: Vec<Entry>) -> Self {
        Self { life: Incarnation(0), durable: log.len(), log, late: None, member: None }
    }

    /// The process ends; of what was not durable nothing is left.
    pub fn crash(&mut self) {
        self.member = None;
        self.late = None;
        self.log.truncate(self.durable);
    }

    /// Entries behind `through` are forgotten; those that are being written still are.
    pub fn cut(&mut self, through: Seq) {
        if self.durable < self.log.len() {
            self.late = self.log.last().map(|(term, _)| (*term, Seq(self.log.len() as u64)));
        }
        self.log.truncate(through.0 as usize);
        self.durable = self.durable.min(self.log.len());
    }

    /// A new life, with the map's record.
    pub fn start(&mut self, me: StoreId, map: &Membership, now: Instant) {
        self.life.0 += 1;
        let mut history = History::default();
        self.log.iter().for_each(|(term, _)| history.push(*term));
        let known = self.log.iter().rev().find_map(|(_, value)| match value {
            Value::Record(record) => Some(&**record),
            _ => None,
        });
        let record = known.filter(|_| mutant(Mutant::StartedWithoutLook)).unwrap_or(map).clone();
        self.member = Some(Member::start(me, self.life, SETTINGS, (record, None), history, Seq(0), true, now));
    }

    /// Whether it holds these entries durably, from the first on.
    pub fn holds(&self, entries: &[Entry]) -> bool {
        self.durable >= entries.len() && self.log[..entries.len()] == *entries
    }

    /// The entries of these sequences.
    pub fn entries(&self, (first, last): (Seq, Seq)) -> Vec<Entry> {
        self.log[first.0 as usize - 1..last.0 as usize].to_vec()
    }
}

//! Clients: outside of all processes, on a machine of their own that never fails.
//!
//! A client keeps a guess of each group's primary and has a task on that node do its operation, as the head of a volume
//! would; it follows who says who leads, and waits a little where nobody does. What a task has seen it writes into the
//! history itself, also after its client has given up. A task that ends without a word, with its process, leaves the
//! operation open: what it sent may be done long after by others.

use super::heads::{Asked, Heads};
use super::layout::Layout;
use super::machine::Machine;
use super::space::Full;
use super::task::{Answer, Ticket, What};
use crate::workload::Failure;
use checker::history::History;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use runtime::channel::WaitList;
use runtime::{now, random_u64, sleep, timeout};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::{BlockRange, ChunkId, Epoch, GroupId, Seq};

/// Operations of one group under way at a time, those that their clients have given up included: the checker follows
/// no more.
const UNDER_WAY_MAX: u32 = 6;
/// Of so many operations one is the first of a new head.
const HEAD_MOVES_ONE_IN: u64 = 300;
/// Between two attempts where there is no room.
const FULL_WAIT: Duration = Duration::from_millis(50);
/// Shortest and longest pause before the same is asked again, in microseconds.
const RETRY_US: (u64, u64) = (500, 40_000);

/// What all clients of a run share.
pub struct Clients {
    pub layout: Rc<Layout>,
    pub machines: Vec<Rc<Machine>>,
    pub history: RefCell<History>,
    pub failure: RefCell<Option<Failure>>,
    /// Every (group, epoch, sequence) that an entry was given: none is given twice.
    pub given: RefCell<HashSet<(GroupId, Epoch, Seq), FixedState>>,
    /// By group: the last entry that was told as committed.
    pub acknowledged: RefCell<HashMap<GroupId, Seq, FixedState>>,
    /// By group: the store that is believed to lead.
    guess: RefCell<Vec<usize>>,
    under_way: RefCell<Vec<u32>>,
    /// Operations that may still begin.
    pub left: Cell<u64>,
    pub stop: Cell<bool>,
    stopped: WaitList,
    pub running: Cell<usize>,
    /// Reads may find damage: a disk lies or fails.
    pub reads_may_fail: Cell<bool>,
    /// The head's epoch.
    pub head: Cell<u32>,
    /// Its node; none where clients go to whoever leads.
    pub head_node: Cell<Option<usize>>,
    pub heads: Heads,
    /// Attempts of heads at groups that are led elsewhere.
    pub far: Cell<u64>,
    /// Longest that a client waits for one operation.
    pub patience: Cell<Duration>,
    /// Times that somebody was told to ask another.
    pub referred: Cell<u64>,
    /// By group: overwrites that were refused for lack of space since something was written.
    pub overwrites_refused: RefCell<Vec<u32>>,
    pub full_stores: Full,
    /// Times that new blocks were refused for lack of space.
    pub full: Cell<u64>,
}

/// How a client's operation ended, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    /// It was refused, or nobody led for as long as the client waited.
    NotDone,
    /// It was refused for lack of space.
    Full,
    /// Nobody knows.
    Open,
}

impl Clients {
    pub fn new(layout: &Rc<Layout>, machines: &[Rc<Machine>], operations: u64) -> Rc<Self> {
        Rc::new(Self {
            layout: layout.clone(),
            machines: machines.to_vec(),
            history: RefCell::default(),
            failure: RefCell::default(),
            given: RefCell::default(),
            acknowledged: RefCell::default(),
            guess: RefCell::new(layout.groups.iter().map(|group| group.members()[0]).collect()),
            under_way: RefCell::new(vec![0; layout.groups.len()]),
            left: Cell::new(operations),
            stop: Cell::new(false),
            stopped: WaitList::default(),
            running: Cell::new(0),
            reads_may_fail: Cell::new(false),
            head: Cell::new(1),
            head_node: Cell::new(None),
            heads: Heads::default(),
            far: Cell::new(0),
            patience: Cell::new(Duration::from_secs(4)),
            referred: Cell::new(0),
            overwrites_refused: RefCell::new(vec![0; layout.groups.len()]),
            full_stores: Full::default(),
            full: Cell::new(0),
        })
    }

    pub fn fail(&self, checker: &'static str, message: impl std::fmt::Display) {
        self.failure.borrow_mut().get_or_insert_with(|| Failure::new(checker, message));
    }

    /// One client: bursts of operations and rests, which together last about `duration`.
    pub async fn run(self: Rc<Self>, clients: u64, burst: u64, duration: Duration) {
        // A burst is half of the longest on average, and so many of them are to fit.
        let rest_us = (duration.as_micros() as u64 * clients * burst / self.left.get().max(1) / 2).max(1);
        while !self.stop.get() && self.left.get() > 0 {
            self.rest(Duration::from_micros(random_u64() % (2 * rest_us))).await;
            for _ in 0..=random_u64() % burst {
                if self.stop.get() || !self.one().await {
                    break;
                }
            }
        }
        self.running.set(self.running.get() - 1);
    }

    /// Sleeps, until it is told to stop.
    pub async fn rest(&self, rest: Duration) {
        let stopped = self.stopped.until(|| self.stop.get().then_some(()));
        let _ = timeout(rest, stopped).await;
    }

    /// Clients end after the operation they are at.
    pub fn stop(&self) {
        self.stop.set(true);
        self.stopped.wake_all();
    }

    /// One operation somewhere. Returns false if there is to be none now.
    async fn one(self: &Rc<Self>) -> bool {
        let group = random_u64() as usize % self.layout.groups.len();
        if self.left.get() == 0 || self.under_way.borrow()[group] >= UNDER_WAY_MAX {
            return false;
        }
        self.left.set(self.left.get() - 1);
        if random_u64().is_multiple_of(HEAD_MOVES_ONE_IN) {
            match self.head_node.get() {
                Some(_) => self.move_head(self.current_head()),
                None => self.head.set(self.head.get() + 1),
            }
        }
        let chunks: Vec<ChunkId> = self.layout.chunks_of(group).collect();
        let chunk = chunks[random_u64() as usize % chunks.len()];
        let range = self.draw_range();
        let what = match random_u64() % 16 {
            0..9 => What::Write,
            9 => What::Zero,
            _ => What::Read,
        };
        self.operate(group, chunk, range, what).await;
        true
    }

    /// A block, or a few within 64 KiB, up to all of them.
    fn draw_range(&self) -> BlockRange {
        let first = random_u64() % u64::from(self.layout.blocks_per_chunk);
        let (first, count) = match random_u64() % 16 {
            0..11 => (first, 1),
            11..15 => (first, 1 + random_u64() % (16 - first % 16)),
            _ => (first / 16 * 16, 16),
        };
        BlockRange::new(first as u32, count as u32)
    }

    /// Does one operation, wherever it has to be done, and records it.
    pub async fn operate(self: &Rc<Self>, group: usize, chunk: ChunkId, range: BlockRange, what: What) -> End {
        let first = u64::from(chunk.0) * 256 + u64::from(range.first);
        self.begins(group, chunk);
        let head = self.current_head();
        if head.node.is_some() {
            return self.ask_heads(Asked { group, chunk, range, first, what }).await;
        }
        let id = self.history.borrow_mut().start(what.action(), first, u32::from(range.count));
        let until = now() + self.patience.get();
        let (mut pause_us, retry_max_us) = RETRY_US;
        loop {
            let store = self.guess.borrow()[group];
            let ticket =
                Ticket { clients: self.clone(), id, group, store, chunk, range, first, what, head, sent: None };
            let answer = ticket.spawn();
            let answer = match timeout(until.since(now()), answer.wait()).await {
                Ok(answer) => answer,
                Err(_) => {
                    // Its task goes on without us, if it can.
                    answer.abandon();
                    return End::Open;
                }
            };
            match answer {
                Answer::Done => return End::Done,
                Answer::Refused => return End::NotDone,
                Answer::Full => return End::Full,
                Answer::Lost => return End::Open,
                Answer::Elsewhere(primary) => self.follow(group, store, primary),
            }
            if until.since(now()).is_zero() {
                self.settle(group, chunk);
                self.history.borrow_mut().refused(id);
                return End::NotDone;
            }
            sleep(Duration::from_micros(pause_us / 2 + random_u64() % pause_us)).await;
            pause_us = (pause_us * 2).min(retry_max_us);
        }
    }

    fn begins(&self, group: usize, chunk: ChunkId) {
        self.under_way.borrow_mut()[group] += u32::from(!self.layout.is_hoard(chunk));
    }

    /// An operation of the group is under way no more.
    pub fn settle(&self, group: usize, chunk: ChunkId) {
        self.under_way.borrow_mut()[group] -= u32::from(!self.layout.is_hoard(chunk));
    }

    /// Nothing was done at `store`; the next guess is whom it named, or any other member.
    fn follow(&self, group: usize, store: usize, primary: Option<usize>) {
        self.referred.set(self.referred.get() + 1);
        let members = self.layout.groups[group].members();
        let next = match primary {
            Some(primary) if primary != store && members.contains(&primary) => primary,
            _ => members[random_u64() as usize % members.len()],
        };
        self.guess.borrow_mut()[group] = next;
    }

    /// Reads all of a group, 16 blocks at a time. Returns false at the first that was not answered.
    pub async fn read_all(self: &Rc<Self>, group: usize) -> bool {
        for (chunk, blocks) in self.layout.all_chunks_of(group) {
            for first in (0..blocks).step_by(16) {
                if self.operate(group, chunk, BlockRange::new(first, 16), What::Read).await != End::Done {
                    return false;
                }
            }
        }
        true
    }

    /// Writes one block of a group; where there is no room, as soon as there is some, within `limit`.
    pub async fn write_one(self: &Rc<Self>, group: usize, limit: Duration) -> bool {
        let chunk = self.layout.chunks_of(group).next().expect("a group has a chunk");
        let until = now() + limit;
        loop {
            match self.operate(group, chunk, BlockRange::new(0, 1), What::Write).await {
                End::Full if !until.since(now()).is_zero() => sleep(FULL_WAIT).await,
                // Its primary handed over just now: nobody knows, and another answers.
                End::Open if !until.since(now()).is_zero() => {}
                end => return end == End::Done,
            }
        }
    }
}

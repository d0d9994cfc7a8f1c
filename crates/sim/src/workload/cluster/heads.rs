//! The workload `heads`: as `cluster`, but an operation goes to a node that is the head of all volumes for a while, and
//! that reaches the groups wherever they are led (docs/heads.md).
//!
//! Heads move now and then; the one before goes on with what it was asked, as one does that was paused. Within one head
//! nothing that overlaps begins before the outcome of what came first is known (H5). Hosts give commands up and send them
//! again, as Linux does with several paths.

use super::client::{Clients, End};
use super::task::{Answer, Reply, Ticket, What, layers_of, leaf_of, volume_of};
use crate::workload::{RunOptions, Workload};
use replication::node::CoreGroups;
use replication::{Access, Found, GroupError, Place, Sought, Stamp};
use runtime::channel::WaitList;
use runtime::{IoBuf, now, random_u64, sleep, timeout};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use store::{BlockCoding, Want};
use types::{BlockRange, ChunkId, VolumeEpoch};

/// See the module.
pub const WORKLOAD: Workload = Workload {
    name: "heads",
    about: "whole clusters, in which heads on some nodes reach groups that are led on others",
    run: |options: &RunOptions| super::run(options, true),
    mutants: &[],
    ..super::WORKLOAD
};

/// A host waits so long on one path: at least, and so much more at most.
const PATH_PATIENCE_MS: (u64, u64) = (50, 1_500);
/// Longest that it waits before it tries another.
const PATH_PAUSE_US: u64 = 40_000;

/// An operation that a client asks for.
pub struct Asked {
    pub group: usize,
    pub chunk: ChunkId,
    pub range: BlockRange,
    pub first: u64,
    pub what: What,
}

/// What is done for one operation: by how many tasks, and whether its client still waits.
#[derive(Default)]
pub struct SentBy {
    tasks: Cell<u32>,
    is_given_up: Cell<bool>,
}

impl SentBy {
    pub fn task_begins(&self) {
        self.tasks.set(self.tasks.get() + 1);
    }

    /// Whether it was the last of one that its client gave up.
    pub fn task_ends(&self) -> bool {
        self.tasks.set(self.tasks.get() - 1);
        self.is_given_up.get() && self.tasks.get() == 0
    }

    /// The client has given up. Returns whether nothing is done for it any more.
    fn is_given_up(&self) -> bool {
        self.is_given_up.set(true);
        self.tasks.get() == 0
    }
}

/// Who serves all volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub epoch: u32,
    /// Index of the node; none where clients go to whoever leads.
    pub node: Option<usize>,
}

/// An operation that has its turn at a head.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Turn {
    number: u64,
    epoch: u32,
    chunk: ChunkId,
    range: BlockRange,
    is_read: bool,
}

impl Turn {
    fn stands_against(&self, other: &Self) -> bool {
        (self.epoch, self.chunk) == (other.epoch, other.chunk)
            && self.range.overlaps(other.range)
            && !(self.is_read && other.is_read)
    }
}

/// The order at all heads.
#[derive(Default)]
pub struct Heads {
    last: Cell<u64>,
    /// In the order in which they came; each has its turn when none before it stands against it.
    turns: RefCell<Vec<Turn>>,
    left: WaitList,
}

struct Taken<'a>(&'a Heads, Turn);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.turns.borrow_mut().retain(|turn| *turn != self.1);
        self.0.left.wake_all();
    }
}

impl Heads {
    async fn turn(&self, ticket: &Ticket) -> Taken<'_> {
        self.last.set(self.last.get() + 1);
        let (chunk, range, is_read) = (ticket.chunk, ticket.range, ticket.what == What::Read);
        let turn = Turn { number: self.last.get(), epoch: ticket.head.epoch, chunk, range, is_read };
        self.turns.borrow_mut().push(turn);
        let taken = Taken(self, turn);
        let is_free = || {
            let turns = self.turns.borrow();
            let before = turns.iter().take_while(|other| **other != turn);
            (!before.into_iter().any(|other| other.stands_against(&turn))).then_some(())
        };
        self.left.until(is_free).await;
        taken
    }
}

impl Clients {
    /// Who serves now.
    pub fn current_head(&self) -> Head {
        Head { epoch: self.head.get(), node: self.head_node.get() }
    }

    /// Another serves, if this one did until now.
    pub fn move_head(&self, from: Head) {
        if from.node.is_some() && from == self.current_head() {
            self.head.set(self.head.get() + 1);
            self.head_node.set(Some(random_u64() as usize % self.machines.len()));
        }
    }

    /// As a multipath host does: what is not answered for a while is given up on its path and sent again, as a new command,
    /// to another head or to the same one. Once that is answered, what was sent before takes effect no more.
    pub async fn ask_heads(self: &Rc<Self>, asked: Asked) -> End {
        let Asked { group, chunk, range, first, what } = asked;
        let until = now() + self.patience.get();
        let sent: Rc<SentBy> = Rc::default();
        let mut left_open = Vec::new();
        let end = loop {
            let head = self.current_head();
            let id = self.history.borrow_mut().start(what.action(), first, u32::from(range.count));
            let (clients, sent) = (self.clone(), Some(sent.clone()));
            let reply = Ticket { clients, id, group, store: 0, chunk, range, first, what, head, sent }.spawn();
            let patience = Duration::from_millis(PATH_PATIENCE_MS.0 + random_u64() % PATH_PATIENCE_MS.1);
            let answer = timeout(patience.min(until.since(now())), reply.wait()).await;
            let answer = answer.unwrap_or_else(|_| {
                reply.abandon();
                Answer::Lost
            });
            match answer {
                Answer::Done => break End::Done,
                Answer::Lost if what != What::Read => left_open.push(id),
                _ => self.history.borrow_mut().refused(id),
            }
            if answer == Answer::Full && left_open.is_empty() {
                break End::Full;
            }
            // On the same path, it may be.
            if matches!(answer, Answer::Elsewhere(_)) || random_u64().is_multiple_of(2) {
                self.move_head(head);
            }
            if until.since(now()).is_zero() {
                break if left_open.is_empty() { End::NotDone } else { End::Open };
            }
            sleep(Duration::from_micros(random_u64() % PATH_PAUSE_US)).await;
        };
        if end == End::Done {
            left_open.into_iter().for_each(|id| self.history.borrow_mut().over(id));
        }
        // What lies open is followed until the last that is done for it is over.
        if end != End::Open || sent.is_given_up() {
            self.settle(group, chunk);
        }
        end
    }
}

impl Ticket {
    /// On the head's core.
    pub async fn through_head(&self, groups: &Rc<CoreGroups>, reply: &Reply) -> Answer {
        let access = groups.access(self.group_id());
        let _turn = self.clients.heads.turn(self).await;
        // Whether it is heard of a host that has gone.
        let notices = random_u64().is_multiple_of(2);
        let mut may_be_done = false;
        loop {
            if access.here().is_none() {
                self.clients.far.set(self.clients.far.get() + 1);
            }
            let error = match self.try_through(&access, reply).await {
                Ok(answer) => return answer,
                Err(error) => error,
            };
            let is_unknown = matches!(error, GroupError::Unknown { .. } | GroupError::Stopped { .. });
            may_be_done |= is_unknown && self.what != What::Read;
            let error = match access.ask_again(error).await {
                Ok(()) if reply.is_abandoned() && notices => {
                    // Nobody asks for it any more, and nothing that overlaps begins before it is known to be over.
                    let layers = layers_of(self.chunk);
                    match access.settle(self.stamp(&layers)).await {
                        Ok(()) => return Answer::Lost,
                        Err(error) => error,
                    }
                }
                Ok(()) => continue,
                Err(error) => error,
            };
            return match error {
                _ if may_be_done || reply.is_abandoned() => Answer::Lost,
                GroupError::Stopped { .. } => Answer::Elsewhere(None),
                GroupError::Damaged { .. } | GroupError::DamagedThere { .. } if self.clients.reads_may_fail.get() => {
                    Answer::Elsewhere(None)
                }
                error => self.failed(error),
            };
        }
    }

    fn stamp<'a>(&self, layers: &'a [store::format::LayerRecord]) -> Stamp<'a> {
        Stamp::new(volume_of(self.chunk), VolumeEpoch(self.head.epoch), layers)
    }

    async fn try_through(&self, access: &Access, reply: &Reply) -> Result<Answer, GroupError> {
        let layers = layers_of(self.chunk);
        let stamp = self.stamp(&layers);
        let (layer, chunk) = leaf_of(self.chunk);
        let change = match self.what {
            What::Read => return self.read_through(access, stamp, reply).await,
            What::Write => {
                let place = Place { layer, chunk, range: self.range };
                Some(access.write(stamp, place, self.contents(), BlockCoding::PLAIN).await?)
            }
            What::Zero => access.zero(stamp, &[layer], chunk, self.range).await?,
        };
        if let Some(mut change) = change {
            access.wait(&mut change).await?;
        }
        if reply.is_abandoned() {
            return Ok(Answer::Lost);
        }
        self.clients.overwrites_refused.borrow_mut()[self.group] = 0;
        self.clients.history.borrow_mut().done(self.id);
        Ok(Answer::Done)
    }

    async fn read_through(&self, access: &Access, stamp: Stamp<'_>, reply: &Reply) -> Result<Answer, GroupError> {
        let layers = layers_of(self.chunk).map(|record| record.layer);
        let (_, chunk) = leaf_of(self.chunk);
        let sought = Sought { layers: &layers, chunk, range: self.range, want: Want::Plain };
        let mut checksums = Vec::new();
        let (result, buf) = access.read(stamp, sought, IoBuf::new(self.range.bytes()), &mut checksums).await;
        match result? {
            _ if reply.is_abandoned() => Ok(Answer::Lost),
            (Found::Plain, _) => Ok(self.answered(&buf, &checksums)),
            (Found::There(bytes), _) => Ok(self.answered(&bytes, &checksums)),
            (Found::Stored(_), _) => {
                self.clients.fail("contents", "blocks are said to be compressed");
                Ok(Answer::Lost)
            }
        }
    }
}

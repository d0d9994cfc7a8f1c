//! One operation on the node that is believed to lead its group.

use super::client::Clients;
use super::heads::{Head, SentBy};
use super::heal::holds;
use super::machine::Process;
use super::space;
use checker::history::{Action, History, OperationId, Value, fill_block, read_block};
use replication::{Group, GroupError, Place, Sought, Stamp};
use runtime::channel::WaitList;
use runtime::{IoBuf, SharedBuf};
use std::cell::Cell;
use std::rc::Rc;
use store::format::LayerRecord;
use store::{BlockCoding, Content, ImageBlock, Want};
use types::{BLOCK_BYTES, BlockRange, ChunkId, FamilyId, GroupId, KeyId, LayerId, Seq, VolumeEpoch, VolumeId};

/// Chunks are dealt to so many families in turn: two that lie in different groups have one number, each in its own.
pub const FAMILIES: u32 = 2;
/// A store that has nothing to clean at a moment refuses overwrites as well: not so many in a row, which take seconds.
const OVERWRITES_REFUSED_MAX: u32 = 500;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Write,
    Zero,
    Read,
}

impl What {
    pub fn action(self) -> Action {
        match self {
            Self::Write => Action::Write,
            Self::Zero => Action::Zero,
            Self::Read => Action::Read(Vec::new()),
        }
    }
}

/// What a task told its client. What it means for the history is recorded already, but for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// Refused for good; nothing was done.
    Refused,
    /// Refused for lack of space; nothing was done.
    Full,
    /// The outcome is unknown, for ever.
    Lost,
    /// Nothing was done here: ask that store, or any other.
    Elsewhere(Option<usize>),
}

/// Where a task leaves its answer.
#[derive(Default)]
pub struct Reply {
    answer: Cell<Option<Answer>>,
    abandoned: Cell<bool>,
    given: WaitList,
}

impl Reply {
    pub async fn wait(&self) -> Answer {
        self.given.until(|| self.answer.get()).await
    }

    /// Nobody waits any more.
    pub fn abandon(&self) {
        self.abandoned.set(true);
    }

    pub fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }
}

/// An operation and where it is to be tried.
pub struct Ticket {
    pub clients: Rc<Clients>,
    pub id: OperationId,
    /// Index of the group.
    pub group: usize,
    /// Index of the store that is asked.
    pub store: usize,
    pub chunk: ChunkId,
    pub range: BlockRange,
    /// First block, counted over all chunks.
    pub first: u64,
    pub what: What,
    pub head: Head,
    /// Of one that goes through heads: all that is done for the operation.
    pub sent: Option<Rc<SentBy>>,
}

/// Tells the client, also when the task goes down with its process.
struct Guard {
    clients: Rc<Clients>,
    reply: Rc<Reply>,
    id: OperationId,
    group: usize,
    chunk: ChunkId,
    sent: Option<Rc<SentBy>>,
}

impl Guard {
    fn answer(&self, answer: Answer) {
        if let Some(sent) = &self.sent {
            if sent.task_ends() {
                self.clients.settle(self.group, self.chunk);
            }
        } else if !matches!(answer, Answer::Elsewhere(_)) {
            self.clients.settle(self.group, self.chunk);
        } else if self.reply.abandoned.get() {
            self.clients.settle(self.group, self.chunk);
            self.clients.history.borrow_mut().refused(self.id);
        }
        self.reply.answer.set(Some(answer));
        self.reply.given.wake_all();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.reply.answer.get().is_none() {
            self.answer(Answer::Lost);
        }
    }
}

impl Ticket {
    /// Starts the task on the core of the group's shard.
    pub fn spawn(self) -> Rc<Reply> {
        let reply: Rc<Reply> = Rc::default();
        let (clients, id, group) = (self.clients.clone(), self.id, self.group);
        let (chunk, sent) = (self.chunk, self.sent.clone());
        sent.iter().for_each(|sent| sent.task_begins());
        let guard = Guard { clients: clients.clone(), reply: reply.clone(), id, group, chunk, sent };
        let node = self.head.node.unwrap_or(clients.layout.stores[self.store].node);
        let machine = &clients.machines[node];
        let process = machine.process().filter(|process| process.begun.get());
        match process.and_then(|process| Some((self.core_on(node, &process)?, process))) {
            Some((core, process)) => machine.node.spawn(core, async move {
                let answer = self.run(&process, core, &guard.reply).await;
                guard.answer(answer);
            }),
            None => guard.answer(Answer::Elsewhere(None)),
        }
        reply
    }

    /// Where it is done: where the store's shard is; of a head that of its own member, or any.
    fn core_on(&self, node: usize, process: &Process) -> Option<usize> {
        let (layout, group) = (&self.clients.layout, self.group_id());
        if self.head.node.is_none() {
            return process.core_of(layout, self.store, group);
        }
        let here = layout.groups[self.group].members().into_iter().find(|store| layout.stores[*store].node == node);
        let cores = process.cores.borrow().len().max(1);
        Some(here.and_then(|store| process.core_of(layout, store, group)).unwrap_or(group.0 as usize % cores))
    }

    pub fn group_id(&self) -> GroupId {
        self.clients.layout.groups[self.group].id
    }

    async fn run(&self, process: &Process, core: usize, reply: &Reply) -> Answer {
        let groups = process.cores.borrow().get(&core).cloned();
        if self.head.node.is_some() {
            let Some(groups) = groups else { return Answer::Elsewhere(None) };
            return self.through_head(&groups, reply).await;
        }
        let store = self.clients.layout.stores[self.store].id;
        match groups.and_then(|groups| groups.group(store, self.group_id())) {
            None => Answer::Elsewhere(None),
            Some(group) => match self.what {
                What::Read => self.read(&group).await,
                What::Write | What::Zero => self.change(&group).await,
            },
        }
    }

    async fn change(&self, group: &Group) -> Answer {
        let layers = layers_of(self.chunk);
        let stamp = Stamp::new(volume_of(self.chunk), VolumeEpoch(self.head.epoch), &layers);
        let (layer, chunk) = leaf_of(self.chunk);
        let place = Place { layer, chunk, range: self.range };
        let queued = match self.what {
            What::Write => group.write(stamp, place, self.contents(), BlockCoding::PLAIN).await,
            _ => group.zero(stamp, place, false).await,
        };
        let placed = match queued {
            Ok(placed) => placed,
            Err(GroupError::Stopped { .. }) => return Answer::Elsewhere(None),
            Err(error) => return self.failed(error),
        };
        let (seq, epoch) = (placed.seq(), group.record().epoch);
        if !self.clients.given.borrow_mut().insert((self.group_id(), epoch, seq)) {
            let id = self.group_id();
            self.clients.fail("sequence", format!("group {id}: epoch {epoch} seq {seq} was given twice"));
        }
        match group.wait_committed(placed).await {
            Ok(_) => self.committed(seq),
            // It was in the order, and is nobody's by now that could be asked.
            Err(GroupError::Stopped { .. } | GroupError::Unknown { .. }) => Answer::Lost,
            Err(error) => self.failed(error),
        }
    }

    pub fn contents(&self) -> SharedBuf {
        let mut buf = IoBuf::new(self.range.bytes());
        for (index, block) in buf.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            fill_block(History::stamp(self.id), self.first + index as u64, block);
        }
        buf.freeze()
    }

    fn committed(&self, seq: Seq) -> Answer {
        self.clients.overwrites_refused.borrow_mut()[self.group] = 0;
        self.clients.history.borrow_mut().done(self.id);
        let mut acknowledged = self.clients.acknowledged.borrow_mut();
        let last = acknowledged.entry(self.group_id()).or_default();
        *last = seq.max(*last);
        Answer::Done
    }

    async fn read(&self, group: &Group) -> Answer {
        let layers = layers_of(self.chunk);
        let stamp = Stamp::new(volume_of(self.chunk), VolumeEpoch(self.head.epoch), &layers);
        let (_, chunk) = leaf_of(self.chunk);
        let newest_first = layers.map(|record| record.layer);
        let sought = Sought { layers: &newest_first, chunk, range: self.range, want: Want::Plain };
        let mut checksums = Vec::new();
        let buf = IoBuf::new(self.range.bytes());
        let (result, buf) = match group.reader(stamp).await {
            Ok((reader, _)) => reader.read(sought, buf, &mut checksums).await,
            Err(error) => (Err(error), buf),
        };
        match result {
            Ok(Content::Plain) => self.answered(&buf, &checksums),
            Ok(Content::Stored(_)) => {
                self.clients.fail("contents", "blocks are said to be compressed");
                Answer::Lost
            }
            // A read that was not answered did nothing: another may be asked.
            Err(GroupError::Stopped { .. } | GroupError::Unknown { .. }) => Answer::Elsewhere(None),
            Err(GroupError::Damaged { .. }) if self.clients.reads_may_fail.get() => Answer::Elsewhere(None),
            Err(error) => self.failed(error),
        }
    }

    pub fn answered(&self, buf: &[u8], checksums: &[u32]) -> Answer {
        let mut values: Vec<Value> = Vec::with_capacity(checksums.len());
        for (index, block) in buf.chunks_exact(BLOCK_BYTES).enumerate() {
            let number = self.first + index as u64;
            match read_block(number, block) {
                Ok(value) if checksums.get(index).copied() == Some(crc32c::crc32c(block)) => values.push(value),
                Ok(_) => {
                    self.clients.fail("contents", format!("block {number}: its checksum is not that of its bytes"));
                    return Answer::Lost;
                }
                Err(bad) => {
                    self.clients.fail("contents", bad);
                    return Answer::Lost;
                }
            }
        }
        self.clients.history.borrow_mut().answered(self.id, values);
        Answer::Done
    }

    /// New blocks are refused where a member may be full, and nothing else is.
    fn refused_for_space(&self, error: &GroupError) -> Answer {
        let clients = &self.clients;
        let why = match self.what {
            What::Write if self.is_all_stored() => {
                let refused = &mut clients.overwrites_refused.borrow_mut()[self.group];
                *refused += 1;
                (*refused > OVERWRITES_REFUSED_MAX).then_some("overwrites are refused")
            }
            What::Write if !clients.full_stores.may_be(&clients.layout, &clients.machines, self.group) => {
                Some("nobody is nearly full, and a write was refused")
            }
            What::Write => None,
            What::Zero | What::Read => Some("what takes no space was refused"),
        };
        if let Some(why) = why {
            let full = space::describe(&clients.layout, &clients.machines, self.group);
            clients.fail("space", format!("group {}: {why}: {error}{full}", self.group_id()));
        }
        self.is_refused();
        clients.full.set(clients.full.get() + 1);
        Answer::Full
    }

    /// Nothing was done; whoever asks several heads says so himself.
    fn is_refused(&self) {
        if self.sent.is_none() {
            self.clients.history.borrow_mut().refused(self.id);
        }
    }

    /// Whether the store that was asked has bytes of all the blocks, in this turn.
    fn is_all_stored(&self) -> bool {
        let machine = &self.clients.machines[self.clients.layout.stores[self.store].node];
        let shards = machine.process().map_or_else(Vec::new, |process| process.all_shards());
        let (store, group) = (self.clients.layout.stores[self.store].id, self.group_id());
        let shard = shards.into_iter().find(|shard| holds(shard, store, group));
        let image = shard.and_then(|shard| {
            let (layer, chunk) = leaf_of(self.chunk);
            shard.store().image(layer, chunk).ok()
        });
        image.is_some_and(|image| {
            image.runs().any(|(range, block)| {
                block == ImageBlock::Stored && range.first <= self.range.first && self.range.end() <= range.end()
            })
        })
    }

    /// Nothing was done: who is to be asked, or why nobody is.
    pub fn failed(&self, error: GroupError) -> Answer {
        match error {
            GroupError::NotPrimary { primary, .. } => {
                Answer::Elsewhere(primary.and_then(|store| self.clients.layout.store_index(store)))
            }
            GroupError::OldHead { seen, .. } if seen.0 <= self.clients.head.get() && seen.0 > self.head.epoch => {
                self.is_refused();
                Answer::Refused
            }
            GroupError::NoSpace(_) | GroupError::MemberFull { .. } | GroupError::NoSpaceThere { .. } => {
                self.refused_for_space(&error)
            }
            GroupError::Unknown { .. } => Answer::Lost,
            error => {
                self.clients.fail("error", error);
                Answer::Lost
            }
        }
    }
}

/// A chunk's family, and its number there.
fn family_of(chunk: ChunkId) -> (FamilyId, ChunkId) {
    (FamilyId(u64::from(chunk.0 % FAMILIES) + 1), ChunkId(chunk.0 / FAMILIES))
}

/// The volume that a chunk belongs to: one of each family.
pub fn volume_of(chunk: ChunkId) -> VolumeId {
    VolumeId(family_of(chunk).0.0)
}

/// Which of all chunks this one of a family is.
pub fn chunk_of(family: FamilyId, chunk: ChunkId) -> ChunkId {
    ChunkId(chunk.0 * FAMILIES + (family.0.max(1) - 1) as u32)
}

/// Where the blocks of a chunk lie.
pub fn leaf_of(chunk: ChunkId) -> (LayerId, ChunkId) {
    let (family, chunk) = family_of(chunk);
    (LayerId(family.0), chunk)
}

/// The layers that are asked for a chunk, newest first: in the upper one nothing is ever written.
pub fn layers_of(chunk: ChunkId) -> [LayerRecord; 2] {
    let (family, _) = family_of(chunk);
    let base = LayerId(family.0);
    let record =
        |layer, parent| LayerRecord { layer, parent, family, created_at_ns: 1, retain_until_ns: 0, key: KeyId(0) };
    [record(LayerId(u64::from(FAMILIES) + family.0), base), record(base, LayerId(0))]
}

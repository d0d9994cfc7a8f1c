//! Workers of a host and of an NBD client, and what they see.
//!
//! Each attempt at a command is an operation of its own, with a stamp of its own. What a host gave up and sent again may be done
//! until what it sent last is answered, and not a moment longer.

use crate::contents::{Contents, Unknown};
use crate::file::Record;
use crate::finding::{Finding, Kind};
use crate::load::{PAUSE, Plan, Shared};
use checker::history::{Action, History, OperationId, Value};
use nbd::client::{Client, ClientError};
use nvme::host::multipath::Multipath;
use nvme::host::{HostError, Namespace};
use runtime::sim::Random;
use runtime::{IoBuf, SharedBuf, sleep, timeout};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// An NBD client that has no answer for so long connects anew.
const NBD_PATIENCE: Duration = Duration::from_secs(20);
/// What can be written of a block of a volume with small logical blocks is counted in these.
const WHOLE_BYTES: u64 = types::BLOCK_BYTES as u64;
/// Findings that are told one by one: whoever is wrong once may be wrong with every answer.
const WRONG_MAX: usize = 16;

/// In the load's thread, of one history.
pub(crate) struct Clients {
    pub shared: Arc<Shared>,
    pub plan: Rc<Plan>,
    /// There is enough of this history.
    pub is_long: Cell<bool>,
    history: RefCell<History>,
    contents: RefCell<Contents>,
    random: Random,
    wrong: RefCell<Vec<Finding>>,
    running: Cell<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Write,
    Zero,
    Discard,
    Flush,
    Read,
}

/// First block, and how many.
type Range = (u64, u64);

/// The attempts at one command.
struct Attempts<'a> {
    history: &'a RefCell<History>,
    all: RefCell<Vec<OperationId>>,
}

impl Attempts<'_> {
    fn begin(&self, action: Action, (first, count): Range) -> OperationId {
        let id = self.history.borrow_mut().start(action, first, count as u32);
        self.all.borrow_mut().push(id);
        id
    }

    /// The last one was done, and those before it take effect no more: how many there were.
    fn done(self) -> u64 {
        let mut history = self.history.borrow_mut();
        let mut all = self.all.into_inner();
        history.done(all.pop().expect("what was answered was sent"));
        let before = all.len() as u64;
        all.into_iter().for_each(|id| history.over(id));
        before
    }

    /// Reads that were not answered did nothing.
    fn read(self, values: Option<Vec<Value>>) {
        let mut history = self.history.borrow_mut();
        let mut all = self.all.into_inner();
        if let Some(values) = values {
            history.answered(all.pop().expect("what was answered was sent"), values);
        }
        all.into_iter().for_each(|id| history.refused(id));
    }
}

impl Clients {
    /// Of a history that nothing was recorded of; blocks that it writes have this mark.
    pub fn new(shared: Arc<Shared>, plan: Rc<Plan>, mark: u64, number: u64) -> Self {
        let atomic_blocks = (plan.atomic_bytes / plan.layout.block_bytes).max(1);
        Self {
            shared,
            is_long: Cell::new(false),
            history: RefCell::new(History::of_atomic_blocks(atomic_blocks)),
            contents: RefCell::new(Contents::new(mark, plan.layout.blocks())),
            random: Random::for_purpose(plan.seed, number),
            wrong: RefCell::default(),
            running: Cell::new(0),
            plan,
        }
    }

    /// What was seen. `goes_on`: some of it may go on yet.
    pub fn record(&self, goes_on: bool) -> Record {
        let history = if goes_on { self.history.borrow().clone() } else { self.history.take() };
        Record { layout: self.plan.layout, history, wrong: self.wrong.take() }
    }

    /// Workers that run.
    pub fn running(&self) -> usize {
        self.running.get()
    }

    /// Operations so far.
    pub fn operations(&self) -> usize {
        self.history.borrow().operations().len()
    }

    /// Reads all that is used: the history begins with it. Of how many blocks that is more than zeroes.
    pub async fn read_first(self: Rc<Self>, host: Multipath) -> u64 {
        let mut held = 0;
        for range in self.plan.layout.all_pieces() {
            let (offset, len) = self.place(range);
            let waits = self.shared.waits(0);
            let read = host.namespace(self.plan.target.nsid).read(offset, len as u32).await;
            drop(waits);
            match read {
                Ok(bytes) => held += self.begin_with(range.0, &bytes),
                Err(error) => self.failed(&error, Deed::Read, range),
            }
        }
        held
    }

    fn begin_with(&self, first: u64, bytes: &[u8]) -> u64 {
        let block_bytes = self.plan.layout.block_bytes as usize;
        self.contents.borrow_mut().begin(&mut self.history.borrow_mut(), first, bytes, block_bytes)
    }

    /// Writes all that is used.
    pub async fn write_all(self: Rc<Self>, host: Multipath) {
        for range in self.plan.layout.all_pieces() {
            let waits = self.shared.waits(0);
            self.change(&host, Deed::Write, range).await;
            drop(waits);
        }
    }

    /// Reads all that is used once more; the next history begins with it. How many blocks that are.
    pub async fn read_again(self: Rc<Self>, host: Multipath, next: Rc<Self>) -> u64 {
        let mut read = 0;
        for range in self.plan.layout.all_pieces() {
            let waits = self.shared.waits(0);
            if let Some(bytes) = self.read(&host, range).await {
                next.begin_with(range.0, &bytes);
                read += range.1;
            }
            drop(waits);
        }
        read
    }

    fn goes_on(&self) -> bool {
        !self.shared.is_stopping() && !self.is_long.get()
    }

    fn written(&self, (first, count): Range) {
        let of_whole = WHOLE_BYTES / self.plan.layout.block_bytes;
        let blocks = (first + count).div_ceil(of_whole) - first / of_whole;
        self.shared.written_blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    fn draw(&self) -> (Deed, Range) {
        let (random, layout) = (&self.random, self.plan.layout);
        let deed = match random.below(32) {
            0..18 => Deed::Write,
            18 | 19 if self.plan.zeroes && !self.plan.is_full => Deed::Zero,
            20 | 21 if self.plan.discards && !self.plan.is_full => Deed::Discard,
            18..22 => Deed::Write,
            22 => Deed::Flush,
            _ => Deed::Read,
        };
        let of_whole = WHOLE_BYTES / layout.block_bytes;
        let wholes = layout.piece_blocks / of_whole;
        let piece = random.below(layout.pieces) * layout.piece_blocks;
        let whole = random.below(wholes);
        let (first, count) = match random.below(8) {
            // A part of 4 KiB.
            0 if deed != Deed::Discard => {
                let first = random.below(of_whole);
                (whole * of_whole + first, 1 + random.below(of_whole - first))
            }
            1 => (whole * of_whole, (1 + random.below(wholes - whole)) * of_whole),
            _ => (whole * of_whole, of_whole),
        };
        (deed, (piece + first, count))
    }

    /// Where that lies in the volume, and its length, in bytes.
    fn place(&self, (first, count): Range) -> (u64, u64) {
        (self.plan.layout.offset_bytes(first), count * self.plan.layout.block_bytes)
    }

    fn filled(&self, id: OperationId, range: Range) -> SharedBuf {
        let mut buf = IoBuf::new(self.place(range).1 as usize);
        self.contents.borrow().fill(id, range.0, &mut buf, self.plan.layout.block_bytes as usize);
        buf.freeze()
    }

    fn values(&self, first: u64, bytes: &[u8]) -> Option<Vec<Value>> {
        let contents = self.contents.borrow();
        let blocks = (first..).zip(bytes.chunks_exact(self.plan.layout.block_bytes as usize));
        let values: Result<Vec<_>, _> = blocks.map(|(block, bytes)| contents.value(block, bytes)).collect();
        let unknown = match values {
            Ok(values) => return Some(values),
            Err(unknown) => unknown,
        };
        let (kind, block) = match unknown {
            Unknown::Torn { block, .. } => (Kind::Torn, block),
            Unknown::Misplaced { block, .. } => (Kind::Misplaced, block),
            Unknown::Earlier { block } => (Kind::Stale, block),
            Unknown::Foreign { block } => (Kind::Foreign, block),
        };
        let offset = self.plan.layout.offset_bytes(block);
        self.is_wrong(kind, format!("byte {offset} of the volume: {unknown}"));
        None
    }

    fn is_wrong(&self, kind: Kind, text: String) {
        self.shared.wrong.fetch_add(1, Ordering::Relaxed);
        let mut wrong = self.wrong.borrow_mut();
        if wrong.len() < WRONG_MAX {
            wrong.push(Finding::new(kind, text));
        }
    }

    fn attempts(&self) -> Attempts<'_> {
        Attempts { history: &self.history, all: RefCell::default() }
    }

    pub fn begin_worker(&self) {
        self.running.set(self.running.get() + 1);
    }

    fn end_worker(&self) {
        self.running.set(self.running.get() - 1);
    }

    pub async fn work_as_host(self: Rc<Self>, host: Multipath, worker: usize) {
        while self.goes_on() {
            let (deed, range) = self.draw();
            let (waits, began) = (self.shared.waits(worker), self.shared.now());
            let longest = match deed {
                Deed::Read => {
                    self.read(&host, range).await;
                    &self.shared.longest_read
                }
                Deed::Flush => {
                    self.flush(&host).await;
                    &self.shared.longest_write
                }
                Deed::Write | Deed::Zero | Deed::Discard => {
                    self.change(&host, deed, range).await;
                    &self.shared.longest_write
                }
            };
            longest.fetch_max(self.shared.now() - began, Ordering::Relaxed);
            drop(waits);
            sleep(PAUSE).await;
        }
        self.end_worker();
    }

    async fn change(&self, host: &Multipath, deed: Deed, range: Range) {
        let attempts = self.attempts();
        let (offset, len) = self.place(range);
        let send = |namespace: Namespace| {
            let action = if deed == Deed::Write { Action::Write } else { Action::Zero };
            let id = attempts.begin(action, range);
            async move {
                match deed {
                    Deed::Write => namespace.write(offset, self.filled(id, range)).await?,
                    Deed::Discard => namespace.deallocate(&[(offset, len)]).await?,
                    Deed::Zero | Deed::Read | Deed::Flush => namespace.write_zeroes(offset, len, false).await?,
                }
                if self.plan.needs_flush { namespace.flush().await } else { Ok(()) }
            }
        };
        match host.command(self.plan.target.nsid, send).await {
            Ok(()) => {
                self.shared.ambiguous.fetch_add(attempts.done(), Ordering::Relaxed);
                self.shared.answered(&self.shared.writes);
                if deed == Deed::Write {
                    self.written(range);
                }
            }
            Err(error) => self.failed(&error, deed, range),
        }
    }

    async fn flush(&self, host: &Multipath) {
        match host.command(self.plan.target.nsid, |namespace| async move { namespace.flush().await }).await {
            Ok(()) => self.shared.answered(&self.shared.flushes),
            Err(error) => self.failed(&error, Deed::Flush, (0, 0)),
        }
    }

    async fn read(&self, host: &Multipath, range: Range) -> Option<SharedBuf> {
        let attempts = self.attempts();
        let (offset, len) = self.place(range);
        let send = |namespace: Namespace| {
            attempts.begin(Action::Read(Vec::new()), range);
            async move { namespace.read(offset, len as u32).await }
        };
        match host.command(self.plan.target.nsid, send).await {
            Ok(bytes) => {
                attempts.read(self.values(range.0, &bytes));
                self.shared.answered(&self.shared.reads);
                Some(bytes)
            }
            Err(error) => {
                attempts.read(None);
                self.failed(&error, Deed::Read, range);
                None
            }
        }
    }

    /// A host with several paths is told nothing of any fault that the cluster bears.
    fn failed(&self, error: &HostError, deed: Deed, range: Range) {
        let what = match deed {
            Deed::Write => "write",
            Deed::Zero => "write zeroes",
            Deed::Discard => "discard",
            Deed::Flush => "flush",
            Deed::Read => "read",
        };
        let (offset, len) = self.place(range);
        self.is_wrong(Kind::Failed, format!("a {what} of {len} bytes at byte {offset} of the volume: {error}"));
    }

    pub async fn work_over_nbd(self: Rc<Self>, worker: usize) {
        let (address, name) = self.plan.target.nbd.clone().expect("there is one to reach");
        // What was sent on connections that the node ended: it is over when something is answered on a new one.
        let unanswered = RefCell::new(Vec::new());
        while self.goes_on() {
            if let Ok(Ok(client)) = timeout(NBD_PATIENCE, Client::connect(address, &name, true)).await {
                self.use_nbd(&client, worker, &unanswered).await;
                client.abort();
            }
            sleep(PAUSE * 25).await;
        }
        self.end_worker();
    }

    async fn use_nbd(&self, client: &Client, worker: usize, unanswered: &RefCell<Vec<OperationId>>) {
        while self.goes_on() {
            let sent = Cell::new(None);
            let waits = self.shared.waits(worker);
            let done = timeout(NBD_PATIENCE, self.act_over_nbd(client, &sent)).await;
            drop(waits);
            match (done, sent.get()) {
                (Ok(Ok(())), _) => {
                    unanswered.take().into_iter().for_each(|id| self.history.borrow_mut().over(id));
                }
                (Ok(Err(ClientError::Lost(_))), Some(id)) => return unanswered.borrow_mut().push(id),
                _ => return,
            }
            sleep(PAUSE).await;
        }
    }

    /// `sent`: what changes something, and was not answered.
    async fn act_over_nbd(&self, client: &Client, sent: &Cell<Option<OperationId>>) -> Result<(), ClientError> {
        let (deed, range) = self.draw();
        let (offset, len) = self.place(range);
        let start = |action| self.history.borrow_mut().start(action, range.0, range.1 as u32);
        let shared = &self.shared;
        match deed {
            Deed::Write => {
                let id = start(Action::Write);
                sent.set(Some(id));
                client.write(offset, self.filled(id, range), false).await?;
                self.history.borrow_mut().done(id);
                shared.answered(&shared.writes);
                self.written(range);
            }
            Deed::Zero | Deed::Discard => {
                let id = start(Action::Zero);
                sent.set(Some(id));
                client.write_zeroes(offset, len as u32, false).await?;
                self.history.borrow_mut().done(id);
                shared.answered(&shared.writes);
            }
            Deed::Flush => {
                client.flush().await?;
                shared.answered(&shared.flushes);
            }
            Deed::Read => {
                let id = start(Action::Read(Vec::new()));
                let read = client.read(offset, len as u32).await;
                let values = read.as_ref().ok().and_then(|bytes| self.values(range.0, bytes));
                match values {
                    Some(values) => self.history.borrow_mut().answered(id, values),
                    None => self.history.borrow_mut().refused(id),
                }
                read?;
                shared.answered(&shared.reads);
            }
        }
        Ok(())
    }
}

//! What all clients of a run share: the history, and the volumes that there are.

use super::profile::Profile;
use crate::workload::{Failure, Report};
use checker::history::{Action, Changed, History, OperationId, Texture, Value, fill_textured, read_block};
use cluster::Compression;
use nvme::host::multipath::Multipath;
use runtime::{IoBuf, SharedBuf, random_u64};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::CHUNK_BYTES;

/// Blocks of the history that each volume has.
const REGION_BLOCKS: u64 = 1 << 20;

/// A volume that clients use.
pub struct Subject {
    pub name: String,
    pub nsid: u32,
    /// Where in the history its blocks are.
    region: u64,
    /// Clients at work on it, by machine.
    users: RefCell<Vec<u32>>,
    /// Nobody begins to use it any more.
    pub is_leaving: Cell<bool>,
}

impl Subject {
    /// The place in the history of one of its blocks.
    pub fn place(&self, block: u64) -> u64 {
        self.region * REGION_BLOCKS + block
    }

    pub fn is_used(&self) -> bool {
        self.users.borrow().iter().any(|count| *count > 0)
    }
}

/// See the module.
pub struct Ledger {
    pub profile: Profile,
    pub history: RefCell<History>,
    pub subjects: RefCell<Vec<Rc<Subject>>>,
    pub failure: RefCell<Option<Failure>>,
    /// What of the report is counted as it happens.
    pub counts: RefCell<Report>,
    /// Operations that clients may still begin.
    pub left: Cell<u64>,
    /// Clients at work, by machine.
    pub running: RefCell<Vec<usize>>,
    pub stop: Cell<bool>,
    /// Of machines that run one.
    pub hosts: RefCell<BTreeMap<usize, Multipath>>,
    /// Between two bursts of a client, on average.
    pub pause: Duration,
    /// Operations on disks fail in this run.
    pub disks_fail: bool,
    names: Cell<u64>,
    regions: Cell<u64>,
}

/// A client at work on a volume.
pub struct Use {
    pub subject: Rc<Subject>,
    machine: usize,
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut users = self.subject.users.borrow_mut();
        // Those of a machine that is gone were forgotten with it.
        users[self.machine] = users[self.machine].saturating_sub(1);
    }
}

impl Ledger {
    pub fn new(profile: &Profile, operations: u64, disks_fail: bool) -> Rc<Self> {
        let clients = profile.hosts * profile.workers + profile.nbd_clients;
        let bursts = (operations / profile.cluster.burst).max(1);
        Rc::new(Self {
            pause: profile.cluster.duration * clients as u32 / bursts.min(u64::from(u32::MAX)) as u32,
            history: RefCell::new(History::of_blocks(profile.block_bytes)),
            subjects: RefCell::default(),
            failure: RefCell::default(),
            counts: RefCell::default(),
            left: Cell::new(operations),
            running: RefCell::new(vec![0; profile.machines() + 1]),
            stop: Cell::default(),
            hosts: RefCell::default(),
            disks_fail,
            names: Cell::default(),
            regions: Cell::default(),
            profile: profile.clone(),
        })
    }

    pub fn fail(&self, checker: &'static str, message: impl std::fmt::Display) {
        self.failure.borrow_mut().get_or_insert_with(|| Failure::new(checker, message));
    }

    /// A name that nothing had.
    pub fn new_name(&self, prefix: &str) -> String {
        self.names.set(self.names.get() + 1);
        format!("{prefix}{}", self.names.get())
    }

    /// A volume with blocks of its own; clients use it once it is [`add`](Self::add)ed.
    pub fn new_subject(&self, name: &str, nsid: u32) -> Rc<Subject> {
        let region = self.regions.get();
        self.regions.set(region + 1);
        Rc::new(Subject {
            name: name.to_owned(),
            nsid,
            region,
            users: RefCell::new(vec![0; self.profile.machines() + 1]),
            is_leaving: Cell::default(),
        })
    }

    pub fn add(&self, subject: Rc<Subject>) {
        self.subjects.borrow_mut().push(subject);
    }

    pub fn remove(&self, subject: &Rc<Subject>) {
        self.subjects.borrow_mut().retain(|other| !Rc::ptr_eq(other, subject));
    }

    /// A client of this machine takes some volume.
    pub fn take_some(&self, machine: usize) -> Option<Use> {
        let subjects = self.subjects.borrow();
        let usable: Vec<_> = subjects.iter().filter(|subject| !subject.is_leaving.get()).collect();
        let subject = usable.get(random_u64() as usize % usable.len().max(1))?;
        Some(self.take(machine, subject))
    }

    pub fn take(&self, machine: usize, subject: &Rc<Subject>) -> Use {
        subject.users.borrow_mut()[machine] += 1;
        Use { subject: subject.clone(), machine }
    }

    /// A machine of clients is gone, with all that was at work there.
    pub fn machine_gone(&self, machine: usize) {
        self.running.borrow_mut()[machine] = 0;
        self.hosts.borrow_mut().remove(&machine);
        self.subjects.borrow().iter().for_each(|subject| subject.users.borrow_mut()[machine] = 0);
    }

    pub fn begin(&self, machine: usize) {
        self.running.borrow_mut()[machine] += 1;
    }

    pub fn end(&self, machine: usize) {
        self.running.borrow_mut()[machine] -= 1;
    }

    pub fn all_ended(&self) -> bool {
        self.running.borrow().iter().all(|count| *count == 0)
    }

    /// Whether a client may begin another operation; it is counted.
    pub fn goes_on(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0 && !self.stop.get()
    }

    pub fn bytes(&self, blocks: u64) -> u64 {
        blocks * self.profile.block_bytes
    }

    /// Blocks that are used, within 64 KiB, or now and then across borders of it.
    pub fn draw_range(&self) -> (u64, u64) {
        let Profile { first_block, blocks, block_bytes, .. } = self.profile;
        let step = checker::history::ATOMIC_BYTES / block_bytes;
        let at = random_u64() % blocks;
        let first = first_block + at;
        let most = match random_u64() % 8 {
            0 => blocks,
            1..4 => 1,
            _ => step - first % step,
        };
        (first, (1 + random_u64() % most).min(blocks - at))
    }

    /// Blocks that are compared and written in one step, wherever they begin: as many as a target says that it may be (NACWU).
    pub fn draw_swap(&self) -> (u64, u64) {
        let Profile { first_block, blocks, block_bytes, .. } = self.profile;
        let (at, most) = (random_u64() % blocks, checker::history::ATOMIC_BYTES / block_bytes);
        let count = if random_u64().is_multiple_of(2) { 1 } else { 1 + random_u64() % most };
        (first_block + at, count.min(blocks - at))
    }

    /// All that is used of a volume, 64 KiB at a time.
    pub fn units(&self) -> Vec<(u64, u64)> {
        let step = checker::history::ATOMIC_BYTES / self.profile.block_bytes;
        let (mut first, end) = (self.profile.first_block, self.profile.first_block + self.profile.blocks);
        let mut units = Vec::new();
        while first < end {
            let count = (step - first % step).min(end - first);
            units.push((first, count));
            first += count;
        }
        units
    }

    pub fn start(&self, action: Action, subject: &Subject, (first, count): (u64, u64)) -> OperationId {
        self.history.borrow_mut().start(action, subject.place(first), count as u32)
    }

    /// What the operation writes.
    pub fn contents(&self, id: OperationId, (first, count): (u64, u64)) -> SharedBuf {
        let (block_bytes, stamp) = (self.profile.block_bytes as usize, History::stamp(id));
        let mut buf = IoBuf::new(count as usize * block_bytes);
        for (block, bytes) in (first..).zip(buf.chunks_exact_mut(block_bytes)) {
            let texture = match (self.profile.compression, (stamp.0 + block) % 3) {
                (Compression::Off, _) | (_, 0) => Texture::Rough,
                (_, 1) => Texture::Even,
                _ => Texture::Striped,
            };
            fill_textured(texture, stamp, block, bytes);
        }
        buf.freeze()
    }

    /// What was read; nothing, if it is what nobody wrote: that ends the run.
    pub fn values(&self, subject: &Subject, first: u64, bytes: &[u8]) -> Option<Vec<Value>> {
        let blocks = (first..).zip(bytes.chunks_exact(self.profile.block_bytes as usize));
        let values: Result<Vec<_>, _> = blocks.map(|(block, bytes)| read_block(block, bytes)).collect();
        values.inspect_err(|bad| self.fail("contents", format!("{}: {bad}", subject.name))).ok()
    }

    /// A compare-and-write was done.
    pub fn note_swap(&self, (first, count): (u64, u64)) {
        let chunk_of = |block| self.bytes(block) / CHUNK_BYTES;
        let mut counts = self.counts.borrow_mut();
        counts.swaps += 1;
        counts.wide_swaps += u64::from(chunk_of(first) != chunk_of(first + count - 1));
    }

    pub fn seen(&self, name: &str, operation: OperationId, from: usize, values: &[Value]) {
        let seen: Result<(), Changed> = self.history.borrow_mut().seen(operation, from, values);
        if let Err(changed) = seen {
            self.fail("snapshot", format!("{name}: {changed}"));
        }
    }
}

//! Clients: multipath NVMe/TCP hosts, and NBD clients that go to any node, whoever serves their volume. Each attempt at a
//! command is an operation of its own in the history, with a stamp of its own.
//!
//! What a host gave up and sent again may be done until what it sent last is answered, and not a moment longer: it goes
//! on writing to the same blocks then, and so do others.

use super::ledger::{Ledger, Subject, Use};
use crate::workload::volume::machine::{NBD_PORT, NQN, NVME_PORT};
use checker::history::{Action, OperationId, Value};
use nbd::client::{Client, ClientError};
use nvme::host::multipath::{Multipath, Options, compare_and_write};
use nvme::host::{HostError, HostIdentity, Namespace};
use nvme::wire::Status;
use runtime::{SharedBuf, now, random_u64, sleep, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use types::BLOCK_BYTES;

/// A client that has nothing to do, or was refused, tries again after this.
const PAUSE: Duration = Duration::from_millis(50);
/// Who rests looks so often whether there is more to do.
const REST: Duration = Duration::from_secs(1);
/// An NBD client that has no answer for so long goes elsewhere.
const NBD_PATIENCE: Duration = Duration::from_secs(10);

/// What a client of either kind does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Write,
    Zero,
    Read,
    CompareAndWrite,
}

fn draw_deed() -> Deed {
    match random_u64() % 16 {
        0..8 => Deed::Write,
        8 | 9 => Deed::Zero,
        10 | 11 => Deed::CompareAndWrite,
        _ => Deed::Read,
    }
}

/// Operations of one command, an attempt each.
struct Attempts<'a> {
    ledger: &'a Ledger,
    all: RefCell<Vec<OperationId>>,
}

impl<'a> Attempts<'a> {
    fn new(ledger: &'a Ledger) -> Self {
        Self { ledger, all: RefCell::default() }
    }

    fn begin(&self, action: Action, subject: &Subject, range: (u64, u64)) -> OperationId {
        let id = self.ledger.start(action, subject, range);
        self.all.borrow_mut().push(id);
        id
    }

    /// The last one was answered: those before it take effect no more.
    fn answered(self, end: impl FnOnce(&Ledger, OperationId)) {
        let mut all = self.all.into_inner();
        let last = all.pop().expect("what was answered was sent");
        end(self.ledger, last);
        all.into_iter().for_each(|id| self.ledger.history.borrow_mut().over(id));
    }

    /// Reads: those that were not answered did nothing.
    fn read(self, answered: Option<Vec<Value>>) {
        let mut all = self.all.into_inner();
        let mut history = self.ledger.history.borrow_mut();
        if let Some(values) = answered {
            history.answered(all.pop().expect("what was answered was sent"), values);
        }
        all.into_iter().for_each(|id| history.refused(id));
    }
}

/// Runs the host of a machine, until it has nothing more to do. To be called there.
pub fn run_host(ledger: &Rc<Ledger>, machine: usize, addresses: &[IpAddr]) {
    let addresses: Vec<_> = addresses.iter().map(|address| (*address, NVME_PORT).into()).collect();
    let host = Multipath::new(&addresses, options(ledger, machine));
    ledger.hosts.borrow_mut().insert(machine, host.clone());
    for _ in 0..ledger.profile.workers {
        ledger.begin(machine);
        spawn(work(ledger.clone(), host.clone(), machine));
    }
    let ledger = ledger.clone();
    spawn(async move {
        // Its last worker has gone: nobody needs its connections.
        while ledger.running.borrow()[machine] > 0 {
            sleep(PAUSE).await;
        }
        let counts = host.counts();
        ledger.counts.borrow_mut().resent += counts.requeued;
        ledger.counts.borrow_mut().resets += counts.timed_out;
        host.close();
    });
}

/// How the host of a machine connects.
pub fn options(ledger: &Ledger, machine: usize) -> Options {
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{machine:04}");
    let digests = machine % 2 == 1;
    let waits = ledger.profile.waits;
    let controller = nvme::host::Options {
        io_queues: 1 + (machine % 2) as u16,
        header_digest: digests,
        data_digest: digests,
        keep_alive: waits.keep_alive,
        ..nvme::host::Options::new(HostIdentity { nqn, id: [machine as u8 + 1; 16] }, NQN)
    };
    Options {
        io_timeout: waits.io_timeout,
        connect_timeout: Duration::from_secs(5),
        reconnect_delay: waits.reconnect_delay,
        retry_delay: Duration::from_millis(500),
        ..Options::new(controller)
    }
}

async fn work(ledger: Rc<Ledger>, host: Multipath, machine: usize) {
    while ledger.goes_on() {
        match ledger.take_some(machine) {
            Some(using) => {
                let volume = HostVolume { ledger: &ledger, host: &host, subject: &using.subject };
                volume.act(draw_deed(), ledger.draw_range()).await;
            }
            None => sleep(PAUSE).await,
        }
        rest(&ledger).await;
    }
    ledger.end(machine);
}

/// Between bursts.
async fn rest(ledger: &Ledger) {
    if random_u64().is_multiple_of(ledger.profile.cluster.burst) {
        let until = now() + ledger.pause.mul_f64((random_u64() % 2048) as f64 / 1024.0);
        // Where few operations are dealt over a long time, longer than anybody waits for who has nothing more to do.
        while ledger.goes_on() && !until.since(now()).is_zero() {
            sleep(until.since(now()).min(REST)).await;
        }
    }
}

/// A volume as a multipath host has it.
pub struct HostVolume<'a> {
    pub ledger: &'a Ledger,
    pub host: &'a Multipath,
    pub subject: &'a Subject,
}

impl HostVolume<'_> {
    async fn act(&self, deed: Deed, range: (u64, u64)) {
        let done = match deed {
            Deed::Write => self.write(range).await,
            Deed::Zero => self.zero(range).await,
            Deed::Read => self.read(range).await,
            Deed::CompareAndWrite => self.compare_and_write(self.ledger.draw_swap()).await,
        };
        if let Err(error) = done {
            self.judge(&error);
        }
    }

    /// What a host is told that is not of its path, where no disk fails.
    fn judge(&self, error: &HostError) {
        let is_of_the_disk = |status: Status| {
            [Status::UNRECOVERED_READ, Status::WRITE_FAULT, Status::CAPACITY_EXCEEDED].contains(&status.code())
        };
        let is_wrong = match error {
            HostError::Status(status) if status.is_final() => !is_of_the_disk(*status) || !self.ledger.disks_fail,
            HostError::Status(status) => is_of_the_disk(*status) && !self.ledger.disks_fail,
            HostError::NoPath(_) | HostError::Connection(_) => false,
            _ => true,
        };
        if is_wrong {
            self.ledger.fail("error", format!("{}: {error}", self.subject.name));
        }
    }

    fn offset(&self, block: u64) -> u64 {
        self.ledger.bytes(block)
    }

    async fn command<T, F: Future<Output = Result<T, HostError>>>(
        &self,
        send: impl FnMut(Namespace) -> F,
    ) -> Result<T, HostError> {
        self.host.command(self.subject.nsid, send).await
    }

    pub async fn write(&self, range: (u64, u64)) -> Result<(), HostError> {
        let attempts = Attempts::new(self.ledger);
        self.command(|namespace| {
            let id = attempts.begin(Action::Write, self.subject, range);
            let bytes = self.ledger.contents(id, range);
            async move { namespace.write(self.offset(range.0), bytes).await }
        })
        .await?;
        attempts.answered(|ledger, id| ledger.history.borrow_mut().done(id));
        Ok(())
    }

    async fn zero(&self, range: (u64, u64)) -> Result<(), HostError> {
        let attempts = Attempts::new(self.ledger);
        let (offset, len) = (self.offset(range.0), self.ledger.bytes(range.1));
        let whole = (offset | len).is_multiple_of(BLOCK_BYTES as u64);
        // What is discarded reads as zeroes, parts of blocks excepted.
        let discard = whole && random_u64().is_multiple_of(2);
        self.command(|namespace| {
            attempts.begin(Action::Zero, self.subject, range);
            async move {
                match discard {
                    true => namespace.deallocate(&[(offset, len)]).await,
                    false => namespace.write_zeroes(offset, len, whole).await,
                }
            }
        })
        .await?;
        attempts.answered(|ledger, id| ledger.history.borrow_mut().done(id));
        Ok(())
    }

    pub async fn read(&self, range: (u64, u64)) -> Result<(), HostError> {
        self.read_bytes(range).await.map(drop)
    }

    async fn read_bytes(&self, range: (u64, u64)) -> Result<(SharedBuf, Option<Vec<Value>>), HostError> {
        let attempts = Attempts::new(self.ledger);
        let read = self
            .command(|namespace| {
                attempts.begin(Action::Read(Vec::new()), self.subject, range);
                async move { namespace.read(self.offset(range.0), self.ledger.bytes(range.1) as u32).await }
            })
            .await;
        match read {
            Ok(bytes) => {
                let values = self.ledger.values(self.subject, range.0, &bytes);
                attempts.read(values.clone());
                Ok((bytes, values))
            }
            Err(error) => {
                attempts.read(None);
                Err(error)
            }
        }
    }

    /// What the blocks were seen to hold is replaced, if they hold that still.
    async fn compare_and_write(&self, range: (u64, u64)) -> Result<(), HostError> {
        let (expected, Some(values)) = self.read_bytes(range).await? else { return Ok(()) };
        let attempts = Attempts::new(self.ledger);
        let is_written = self
            .command(|namespace| {
                let id = attempts.begin(Action::CompareAndWrite(values.clone()), self.subject, range);
                let (expected, bytes) = (expected.clone(), self.ledger.contents(id, range));
                async move { compare_and_write(&namespace, self.offset(range.0), expected, bytes).await }
            })
            .await?;
        // After an attempt without an answer a difference may be that one's doing.
        attempts.answered(|ledger, id| match is_written {
            true => ledger.history.borrow_mut().done(id),
            false => ledger.history.borrow_mut().refused(id),
        });
        if is_written {
            self.ledger.note_swap(range);
        }
        Ok(())
    }

    /// Writes all that is used, each command within this time.
    pub async fn write_all(&self, limit: Duration) {
        for unit in self.ledger.units() {
            match timeout(limit, self.write(unit)).await {
                Ok(Ok(())) => self.ledger.counts.borrow_mut().without_map += 1,
                Ok(Err(error)) => self.ledger.fail("writing", format!("{}: {error}", self.subject.name)),
                Err(_) => {
                    return self.ledger.fail("writing", format!("{}: no answer in {limit:?}", self.subject.name));
                }
            }
        }
    }

    /// Reads all that is used.
    pub async fn read_all(&self) {
        for unit in self.ledger.units() {
            if let Err(error) = self.read(unit).await {
                self.ledger.fail("reading", format!("{}: {error}", self.subject.name));
            }
        }
    }
}

/// An NBD client, until it has nothing more to do: on one volume for a while, through any node, whoever serves it.
pub async fn run_nbd(ledger: Rc<Ledger>, machine: usize, addresses: Vec<IpAddr>) {
    ledger.begin(machine);
    let unanswered = Unanswered::default();
    let mut answered_by = None;
    while ledger.goes_on() {
        if let Some(using) = ledger.take_some(machine) {
            let address = addresses[random_u64() as usize % addresses.len()];
            // Who cannot be reached, or has no head to ask, is left for the next one.
            if let Some(client) = connect(address, &using).await
                && use_nbd(&ledger, client, &using, &unanswered).await
            {
                let before = answered_by.replace(address);
                ledger.counts.borrow_mut().nbd_moves += u64::from(before.is_some_and(|before| before != address));
            }
        }
        sleep(PAUSE).await;
    }
    ledger.end(machine);
}

async fn connect(address: IpAddr, using: &Use) -> Option<Client> {
    let structured = random_u64().is_multiple_of(2);
    let connecting = Client::connect((address, NBD_PORT).into(), &using.subject.name, structured);
    timeout(NBD_PATIENCE, connecting).await.ok()?.ok()
}

/// What an NBD client sent on connections that others ended: it has taken effect when the client is answered on a new one, or
/// never will (H17). What was on its way when the client itself gave up stays open for ever: the network may bring it later.
#[derive(Default)]
struct Unanswered(RefCell<Vec<(String, OperationId)>>);

impl Unanswered {
    fn add(&self, subject: &Subject, id: OperationId) {
        self.0.borrow_mut().push((subject.name.clone(), id));
    }

    /// Something that was sent after all of it was answered.
    fn is_over(&self, ledger: &Ledger, subject: &Subject) {
        let mut history = ledger.history.borrow_mut();
        let over = self.0.borrow_mut().extract_if(.., |(name, _)| *name == subject.name).collect::<Vec<_>>();
        over.into_iter().for_each(|(_, id)| history.over(id));
    }
}

/// Until something fails, or the client is done with the volume. Returns whether anything was answered.
async fn use_nbd(ledger: &Ledger, client: Client, using: &Use, unanswered: &Unanswered) -> bool {
    let mut is_answered = false;
    while ledger.goes_on() && !using.subject.is_leaving.get() && !random_u64().is_multiple_of(64) {
        let sent = Cell::new(None);
        let done = timeout(NBD_PATIENCE, act_nbd(ledger, &client, &using.subject, &sent)).await;
        match (done, sent.get()) {
            (Ok(Ok(())), _) => {
                is_answered = true;
                unanswered.is_over(ledger, &using.subject);
            }
            (Ok(Err(ClientError::Lost(_))), Some(id)) => {
                unanswered.add(&using.subject, id);
                break;
            }
            _ => break,
        }
        rest(ledger).await;
    }
    is_answered
}

/// `sent`: what changes something, and was not answered.
async fn act_nbd(
    ledger: &Ledger,
    client: &Client,
    subject: &Subject,
    sent: &Cell<Option<OperationId>>,
) -> Result<(), ClientError> {
    let range = ledger.draw_range();
    let (offset, len) = (ledger.bytes(range.0), ledger.bytes(range.1));
    match draw_deed() {
        Deed::Write | Deed::CompareAndWrite => {
            let id = ledger.start(Action::Write, subject, range);
            sent.set(Some(id));
            client.write(offset, ledger.contents(id, range), false).await?;
            ledger.history.borrow_mut().done(id);
        }
        Deed::Zero => {
            let id = ledger.start(Action::Zero, subject, range);
            sent.set(Some(id));
            client.write_zeroes(offset, len as u32, false).await?;
            ledger.history.borrow_mut().done(id);
        }
        Deed::Read => {
            let id = ledger.start(Action::Read(Vec::new()), subject, range);
            let bytes = client.read(offset, len as u32).await?;
            match ledger.values(subject, range.0, &bytes) {
                Some(values) => ledger.history.borrow_mut().answered(id, values),
                None => ledger.history.borrow_mut().refused(id),
            }
        }
    }
    Ok(())
}

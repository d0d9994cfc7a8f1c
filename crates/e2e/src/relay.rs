//! An NBD relay that writes down what was asked and what was acknowledged.
//!
//! A foreign client (fio) connects here; every request goes on to the target, and each write's contents, call and
//! answer are logged with the time. So the contents that a real client chose are held against what a power loss left.
//!
//! A write is logged as called before it goes to the target, as answered after the target's answer was received: what
//! the log calls acknowledged was acknowledged.

use crate::journal::{Journal, WriteId};
use crate::pattern::{Content, SECTOR_BYTES};
use nbd::client::{Client, ClientError};
use nbd::machine::{BlockExtent, Event, Export, Exports, Failure, Input, Listed, Machine, Ticket, parts};
use nbd::wire::Errno;
use runtime::channel::WaitList;
use runtime::{IoBuf, SharedBuf, TcpListener, TcpStream};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

const SEND_PARTS_MAX: usize = 256;

/// Nanoseconds since boot: the clock that a record of device I/O has, the same in all processes.
pub fn boot_clock_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure that it is given.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    assert_eq!(result, 0, "every kernel that has io_uring has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What happened to a write.
#[derive(Clone, Debug)]
enum What {
    Called { first: u64, contents: Vec<Content> },
    CalledZeroes { first: u64, count: u64 },
    Completed(usize),
    Refused(usize),
}

/// What passed through a relay, in order.
#[derive(Default)]
pub struct Log(Vec<(u64, What)>);

impl Log {
    /// How many events there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the first write was called.
    pub fn began_ns(&self) -> Option<u64> {
        self.0.first().map(|(time, _)| *time)
    }

    /// Puts an event down; a call is known by the number returned.
    fn add(&mut self, what: What) -> usize {
        self.0.push((boot_clock_ns(), what));
        self.0.len() - 1
    }
}

/// A log played into a journal, as far as some point in time.
pub struct Replay<'a> {
    log: &'a Log,
    next: usize,
    journal: Journal,
    /// The journal's number of each call.
    writes: Vec<Option<WriteId>>,
    /// First sector of each event that has been played and changed anything, newest last.
    touched: Vec<(u64, u64)>,
}

impl<'a> Replay<'a> {
    /// From the beginning, on a volume of zeroes.
    pub fn new(log: &'a Log, size_bytes: u64) -> Self {
        let journal = Journal::new(size_bytes);
        Self { log, next: 0, journal, writes: vec![None; log.len()], touched: Vec::new() }
    }

    /// Plays everything that happened until `time_ns`.
    pub fn go_to(&mut self, time_ns: u64) {
        while let Some((time, what)) = self.log.0.get(self.next)
            && *time <= time_ns
        {
            match what {
                What::Called { first, contents } => {
                    self.writes[self.next] = Some(self.journal.begin(*first, contents.iter().copied()));
                    self.touched.push((*first, contents.len() as u64));
                }
                What::CalledZeroes { first, count } => {
                    self.writes[self.next] = Some(self.journal.begin_zeroes(*first, *count));
                    self.touched.push((*first, *count));
                }
                What::Completed(call) => {
                    self.writes[*call].into_iter().for_each(|write| self.journal.completed(write));
                }
                What::Refused(call) => self.writes[*call].into_iter().for_each(|write| self.journal.refused(write)),
            }
            self.next += 1;
        }
    }

    /// What may be read as of then.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The ranges (first sector, count) of the last `count` calls.
    pub fn latest(&self, count: usize) -> &[(u64, u64)] {
        &self.touched[self.touched.len().saturating_sub(count)..]
    }
}

/// When a relay answers a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// When the target has answered.
    Truly,
    /// At once: the bug that the checks of kill -9 are there for. Reads still see every write, until the target dies.
    Early,
}

/// Relays every connection to the volume `name` at `target` until cancelled.
pub async fn relay(listener: TcpListener, target: SocketAddr, name: String, answers: Answers, log: Rc<RefCell<Log>>) {
    while let Ok(stream) = listener.accept().await {
        let (name, log) = (name.clone(), log.clone());
        runtime::spawn(async move {
            if let Ok(upstream) = Client::connect(target, &name, true).await {
                let export = OneExport { name, size_bytes: upstream.info().size.size_bytes };
                let (machine, output) = (RefCell::new(Machine::new()), WaitList::default());
                let ended = Cell::new(false);
                Rc::new(Link { stream, upstream, export, machine, output, ended, answers, log }).run().await;
            }
        });
    }
}

struct OneExport {
    name: String,
    size_bytes: u64,
}

impl Exports for OneExport {
    fn find(&self, _: &str) -> Option<Export> {
        let (name, description) = (self.name.clone(), String::new());
        Some(Export { name, description, size_bytes: self.size_bytes, is_read_only: false })
    }
    fn list(&self) -> Vec<Listed> {
        vec![Listed { name: self.name.clone(), description: String::new() }]
    }
    fn snapshots(&self, _name: &str) -> Vec<String> {
        Vec::new()
    }
}

/// One client's connection and the one that goes on to the target.
struct Link {
    stream: TcpStream,
    upstream: Client,
    export: OneExport,
    machine: RefCell<Machine>,
    output: WaitList,
    ended: Cell<bool>,
    answers: Answers,
    log: Rc<RefCell<Log>>,
}

impl Link {
    async fn run(self: Rc<Self>) {
        let link = self.clone();
        runtime::spawn(async move { link.send().await });
        loop {
            let direct = self.machine.borrow_mut().direct_receive();
            let mut input = match direct {
                Some(rest) => {
                    let (result, rest) = self.stream.recv_exact(rest).await;
                    if result.is_err() {
                        break;
                    }
                    self.machine.borrow_mut().direct_received(rest);
                    Input::new(IoBuf::new(0).freeze())
                }
                None => match self.stream.recv().await {
                    Ok(bytes) if !bytes.is_empty() => Input::new(bytes),
                    _ => break,
                },
            };
            while let Ok(Some(event)) = self.next(&mut input) {
                if matches!(event, Event::Full) {
                    self.output.wake_all();
                    runtime::yield_now().await; // the sender makes room
                } else {
                    self.start(event);
                }
            }
            self.output.wake_all();
        }
        self.ended.set(true);
        self.output.wake_all();
    }

    fn next(&self, input: &mut Input) -> Result<Option<Event>, nbd::machine::Violation> {
        self.machine.borrow_mut().next(input, &self.export)
    }

    async fn send(&self) {
        let mut bytes = Vec::new();
        loop {
            self.output.until(|| (self.ended.get() || self.machine.borrow().has_output()).then_some(())).await;
            self.machine.borrow_mut().take_output(&mut bytes, SEND_PARTS_MAX);
            if (bytes.is_empty() && self.ended.get()) || self.stream.send(&mut bytes).await.is_err() {
                return;
            }
        }
    }

    fn start(self: &Rc<Self>, event: Event) {
        let link = self.clone();
        match event {
            Event::Opened { .. } | Event::Full | Event::Disconnect => {}
            Event::Read { ticket, offset_bytes, len_bytes } => {
                for (at, len) in parts(offset_bytes, len_bytes) {
                    let (link, read) = (self.clone(), self.upstream.read(at, len));
                    runtime::spawn(async move {
                        let result = read.await;
                        if let Err(ClientError::Lost(_)) = result {
                            return link.stream.shutdown();
                        }
                        link.machine.borrow_mut().read_done(ticket, at, result.map_err(failure));
                        link.output.wake_all();
                    });
                }
            }
            Event::Write { ticket, offset_bytes, bytes, .. } => {
                let call = self.log.borrow_mut().add(called(offset_bytes, &bytes));
                let write = self.upstream.write(offset_bytes, bytes, false);
                if self.answers == Answers::Early {
                    runtime::spawn(async move { drop(write.await) });
                    return self.finish(ticket, Some(call), Ok(()));
                }
                runtime::spawn(async move { link.finish(ticket, Some(call), write.await) });
            }
            Event::Flush { ticket } => {
                let flush = self.upstream.flush();
                runtime::spawn(async move { link.finish(ticket, None, flush.await) });
            }
            Event::Trim { ticket, offset_bytes, len_bytes } => {
                let call = self.log.borrow_mut().add(called_zeroes(offset_bytes, len_bytes));
                let trim = self.upstream.trim(offset_bytes, len_bytes);
                runtime::spawn(async move { link.finish(ticket, Some(call), trim.await) });
            }
            Event::BlockStatus { ticket, len_bytes, .. } => {
                // What is always right: nothing is known of it.
                let unknown = BlockExtent { len_bytes: len_bytes.into(), is_stored: true, changed_since: u32::MAX };
                self.machine.borrow_mut().status_done(ticket, Ok(vec![unknown]));
                self.output.wake_all();
            }
            Event::WriteZeroes { ticket, offset_bytes, len_bytes, is_stored } => {
                let call = self.log.borrow_mut().add(called_zeroes(offset_bytes, len_bytes));
                let zeroes = self.upstream.write_zeroes(offset_bytes, len_bytes, is_stored);
                runtime::spawn(async move { link.finish(ticket, Some(call), zeroes.await) });
            }
        }
    }

    fn finish(&self, ticket: Ticket, call: Option<usize>, result: Result<(), ClientError>) {
        if let Err(ClientError::Lost(_)) = result {
            return self.stream.shutdown(); // what is in flight stays so: its outcome is unknown
        }
        if let Some(call) = call {
            match &result {
                Ok(()) => drop(self.log.borrow_mut().add(What::Completed(call))),
                Err(_) => drop(self.log.borrow_mut().add(What::Refused(call))),
            }
        }
        self.machine.borrow_mut().done(ticket, result.map_err(failure));
        self.output.wake_all();
    }
}

fn called(offset_bytes: u64, bytes: &SharedBuf) -> What {
    let first = sector_of(offset_bytes);
    sector_of(bytes.len() as u64);
    What::Called { first, contents: bytes.chunks_exact(SECTOR_BYTES).map(Content::of).collect() }
}

fn called_zeroes(offset_bytes: u64, len_bytes: u32) -> What {
    What::CalledZeroes { first: sector_of(offset_bytes), count: sector_of(len_bytes.into()) }
}

fn sector_of(bytes: u64) -> u64 {
    assert!(bytes.is_multiple_of(SECTOR_BYTES as u64), "the log counts in sectors: use multiples of 512 bytes");
    bytes / SECTOR_BYTES as u64
}

fn failure(error: ClientError) -> Failure {
    let errno = match error {
        ClientError::Refused { number, .. } => Errno::from_wire(number),
        _ => Errno::Shutdown,
    };
    Failure { errno, message: error.to_string() }
}

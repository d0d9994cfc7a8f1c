//! The simulated network: TCP as its users see it.
//!
//! A connection has two ends and a pipe each way. A pipe keeps order; what is sent waits in the sender's buffer until
//! the other end's buffer took it and said so, so that back-pressure is real. A cut link holds what is under way (TCP
//! sends it again) and gives it over when it is healed. An end that nobody holds answers what arrives with a reset.

mod ending;
mod flow;
mod links;
mod opening;

use super::random::Random;
use crate::buf::SharedBuf;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::task::Waker;

/// What one end's send buffer and receive buffer hold each.
const SOCKET_BUFFER_BYTES: usize = 256 << 10;
/// Most bytes of one segment.
const SEGMENT_BYTES: usize = 64 << 10;
/// Connections that wait to be accepted.
const BACKLOG: usize = 128;
/// Between two attempts to reach a listener, and how long they go on.
/// So long after a connection has become half-open its kernel ends it, as `KEEP_ALIVE` of the real one says.
const KEEP_ALIVE_NS: u64 = 120_000_000_000;
const CONNECT_RETRY_NS: u64 = 1_000_000_000;
const CONNECT_ATTEMPTS: u32 = 60;
/// Ports given to those who ask for any.
const FIRST_EPHEMERAL_PORT: u16 = 32_768;

/// What a link is like, each way.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// Shortest delay.
    pub delay_ns: u64,
    /// Up to this much more.
    pub spread_ns: u64,
}

impl Default for LinkOptions {
    /// One rack.
    fn default() -> Self {
        Self { delay_ns: 15_000, spread_ns: 20_000 }
    }
}

#[derive(Clone, Copy, Default)]
struct Link {
    options: LinkOptions,
    cut: bool,
    sent_bytes: u64,
}

/// A connection, in one use of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId {
    slot: u32,
    generation: u32,
}

/// One of the two ends: 0 has connected, 1 has accepted.
pub(super) type Side = usize;

#[derive(Clone, Copy, Debug)]
pub(super) enum NetworkEvent {
    /// The opening reaches the listener's node.
    Opening(ConnectionId, u32),
    /// The answer to the opening reaches the one who asked.
    Opened(ConnectionId, Option<OpenError>),
    /// Segments of the pipe from this side arrive.
    Deliver(ConnectionId, Side),
    /// Word that bytes were taken comes back to this side.
    Acknowledge(ConnectionId, Side),
    /// A reset reaches this side.
    Reset(ConnectionId, Side),
    /// The kernel of this side has asked for long enough whether the other lives.
    Unanswered(ConnectionId, Side),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenError {
    Refused,
    TimedOut,
}

enum Segment {
    Bytes(SharedBuf),
    End,
}

impl Segment {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::End => 0,
        }
    }
}

/// The way from one end to the other.
#[derive(Default)]
struct Pipe {
    under_way: VecDeque<(u64, Segment)>,
    /// Bytes the sender's buffer holds: sent and not acknowledged.
    held_bytes: usize,
    /// Bytes taken by the other end, whose acknowledgement is not back yet.
    taken_bytes: usize,
    last_arrival: u64,
    /// What is sent from now on takes so much longer than the link needs.
    lag_ns: u64,
    delivery_scheduled: bool,
    acknowledgement_scheduled: bool,
    /// Nothing gets through any more, and nobody says so.
    silent: bool,
}

/// One end of a connection.
pub(super) struct End {
    node: u32,
    /// The start of the node that it belongs to.
    start: u32,
    pub(super) address: SocketAddr,
    /// Somebody holds it.
    open: bool,
    /// Between two cores: the handle that was taken apart does not close it.
    pub(super) detached: bool,
    /// Its holder has ended both directions.
    shut: bool,
    failed: bool,
    end_received: bool,
    received: VecDeque<SharedBuf>,
    received_bytes: usize,
    receiver: Option<Waker>,
    sender: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Opening,
    Failed(OpenError),
    Open,
}

struct Connection {
    generation: u32,
    used: bool,
    phase: Phase,
    opener: Option<Waker>,
    ends: [End; 2],
    pipes: [Pipe; 2],
}

struct Listener {
    waiting: VecDeque<ConnectionId>,
    acceptor: Option<Waker>,
}

/// What an end has to say when its holder wants to receive.
pub(super) enum Received {
    Bytes(SharedBuf),
    End,
    Failed,
    Nothing,
}

/// What became of an attempt to send.
pub(super) enum Sent {
    Bytes(usize),
    NoRoom,
    Failed,
    Shut,
}

pub(super) struct Network {
    random: Random,
    links: BTreeMap<(u32, u32), Link>,
    listeners: BTreeMap<(u32, u16), Listener>,
    connections: Vec<Connection>,
    free: Vec<u32>,
    next_port: u16,
}

impl Network {
    pub(super) fn new(random: Random) -> Self {
        Self {
            random,
            links: BTreeMap::new(),
            listeners: BTreeMap::new(),
            connections: Vec::new(),
            free: Vec::new(),
            next_port: FIRST_EPHEMERAL_PORT,
        }
    }

    pub(super) fn get_end(&mut self, id: ConnectionId, side: Side) -> Option<&mut End> {
        self.get(id).map(|connection| &mut connection.ends[side])
    }

    fn get(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.slot as usize).filter(|c| c.used && c.generation == id.generation)
    }

    /// A connection that somebody holds an end of.
    pub(super) fn end(&mut self, id: ConnectionId, side: Side) -> &mut End {
        &mut self.get(id).expect("a held end keeps its connection").ends[side]
    }

    fn is_cut(&self, from: u32, to: u32) -> bool {
        self.links.get(&(from, to)).is_some_and(|link| link.cut)
    }

    fn delay(&self, from: u32, to: u32) -> u64 {
        let options = self.links.get(&(from, to)).map_or(LinkOptions::default(), |link| link.options);
        let loopback = if from == to { 8 } else { 1 };
        (options.delay_ns + self.random.below(options.spread_ns + 1)) / loopback
    }

    fn ephemeral_port(&mut self, node: u32) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(FIRST_EPHEMERAL_PORT);
            if !self.listeners.contains_key(&(node, port)) {
                return port;
            }
        }
    }

    fn insert(&mut self, ends: [End; 2]) -> ConnectionId {
        let connection = Connection {
            generation: 0,
            used: true,
            phase: Phase::Opening,
            opener: None,
            ends,
            pipes: [Pipe::default(), Pipe::default()],
        };
        if let Some(slot) = self.free.pop() {
            let place = &mut self.connections[slot as usize];
            let generation = place.generation.wrapping_add(1);
            *place = Connection { generation, ..connection };
            return ConnectionId { slot, generation };
        }
        self.connections.push(connection);
        ConnectionId { slot: self.connections.len() as u32 - 1, generation: 0 }
    }

    /// Forgets a connection that nobody holds and that nothing is under way on.
    fn forget_if_over(&mut self, id: ConnectionId) {
        let Some(connection) = self.get(id) else { return };
        let idle = connection.pipes.iter().all(|pipe| pipe.under_way.is_empty() || pipe.silent);
        if idle && connection.ends.iter().all(|end| !end.open) {
            connection.used = false;
            connection.ends.iter_mut().for_each(|end| end.received.clear());
            self.free.push(id.slot);
        }
    }

    fn ids(&self) -> Vec<ConnectionId> {
        let used = self.connections.iter().enumerate().filter(|(_, connection)| connection.used);
        used.map(|(slot, c)| ConnectionId { slot: slot as u32, generation: c.generation }).collect()
    }
}

fn new_end(node: u32, start: u32, address: SocketAddr, open: bool) -> End {
    End {
        node,
        start,
        address,
        open,
        detached: false,
        shut: false,
        failed: false,
        end_received: false,
        received: VecDeque::new(),
        received_bytes: 0,
        receiver: None,
        sender: None,
    }
}

impl End {
    /// Wakes whoever waits at this end, into `woken` (to be woken outside any borrow).
    fn wake(&mut self, woken: &mut Vec<Waker>) {
        woken.extend(self.receiver.take());
        woken.extend(self.sender.take());
    }
}

fn wake_all(woken: Vec<Waker>) {
    woken.into_iter().for_each(Waker::wake);
}

//! The simulated network: TCP as its users see it.
//!
//! A connection has two ends and a pipe each way. A pipe keeps order; what is sent waits in the sender's buffer until
//! the other end's buffer took it and said so, so that back-pressure is real. A cut link holds what is under way (TCP
//! sends it again) and gives it over when it is healed. An end that nobody holds answers what arrives with a reset.

use super::node::SimNode;
use super::random::Random;
use super::trace::{EventKind, content_hash};
use super::world::{Event, Shared, World};
use crate::buf::{IoBuf, SharedBuf};
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

/// Listening and connecting.
impl Shared {
    fn node_of(&self, from: u32, address: SocketAddr) -> Option<u32> {
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            return Some(from);
        }
        self.nodes.borrow().iter().position(|node| node.address == address.ip()).map(|index| index as u32)
    }

    pub(super) fn listen(&self, node: u32, mut address: SocketAddr) -> std::io::Result<SocketAddr> {
        if self.node_of(node, address) != Some(node) {
            return Err(std::io::ErrorKind::AddrNotAvailable.into());
        }
        let mut network = self.network.borrow_mut();
        if address.port() == 0 {
            let port = network.ephemeral_port(node);
            address.set_port(port);
        }
        let key = (node, address.port());
        if network.listeners.contains_key(&key) {
            return Err(std::io::ErrorKind::AddrInUse.into());
        }
        network.listeners.insert(key, Listener { waiting: VecDeque::new(), acceptor: None });
        Ok(address)
    }

    pub(super) fn stop_listening(&self, node: u32, port: u16) {
        let Some(listener) = self.network.borrow_mut().listeners.remove(&(node, port)) else { return };
        for id in listener.waiting {
            self.close(id, 1);
        }
    }

    /// A connection that waits to be accepted; else `waker` is woken when one comes.
    pub(super) fn accept(&self, node: u32, port: u16, waker: &Waker) -> Option<ConnectionId> {
        let mut network = self.network.borrow_mut();
        let listener = network.listeners.get_mut(&(node, port))?;
        let id = listener.waiting.pop_front();
        if id.is_none() {
            listener.acceptor = Some(waker.clone());
        }
        id
    }

    /// Begins to connect.
    pub(super) fn open(&self, node: u32, address: SocketAddr) -> Option<ConnectionId> {
        let target = self.node_of(node, address)?;
        let (ip, start) = {
            let nodes = self.nodes.borrow();
            (nodes[node as usize].address, nodes[node as usize].starts)
        };
        let mut network = self.network.borrow_mut();
        let port = network.ephemeral_port(node);
        let local = SocketAddr::new(if address.ip().is_loopback() { address.ip() } else { ip }, port);
        let id = network.insert([new_end(node, start, local, true), new_end(target, 0, address, false)]);
        let delay = network.delay(node, target);
        self.schedule(delay, Event::Network(NetworkEvent::Opening(id, 0)));
        self.trace(EventKind::Connection, (node, 0), u64::from(id.slot), 0, u64::from(address.port()));
        Some(id)
    }

    /// How the connecting goes.
    pub(super) fn opening(&self, id: ConnectionId, waker: &Waker) -> Option<Result<(), OpenError>> {
        let mut network = self.network.borrow_mut();
        let connection = network.get(id).expect("a held end keeps its connection");
        match connection.phase {
            Phase::Open => Some(Ok(())),
            Phase::Failed(error) => Some(Err(error)),
            Phase::Opening => {
                connection.opener = Some(waker.clone());
                None
            }
        }
    }

    fn opening_arrives(&self, id: ConnectionId, attempt: u32) {
        let mut network = self.network.borrow_mut();
        let Some(connection) = network.get(id) else { return };
        let (from, to, port) = (connection.ends[0].node, connection.ends[1].node, connection.ends[1].address.port());
        if !connection.ends[0].open {
            network.forget_if_over(id);
            return;
        }
        let (up, start) = {
            let nodes = self.nodes.borrow();
            (nodes[to as usize].up, nodes[to as usize].starts)
        };
        let full = network.listeners.get(&(to, port)).is_some_and(|listener| listener.waiting.len() >= BACKLOG);
        if !up || network.is_cut(from, to) || network.is_cut(to, from) || full {
            let next = match attempt + 1 < CONNECT_ATTEMPTS {
                true => NetworkEvent::Opening(id, attempt + 1),
                false => NetworkEvent::Opened(id, Some(OpenError::TimedOut)),
            };
            return self.schedule(CONNECT_RETRY_NS, Event::Network(next));
        }
        let delay = network.delay(to, from);
        let Some(listener) = network.listeners.get_mut(&(to, port)) else {
            return self.schedule(delay, Event::Network(NetworkEvent::Opened(id, Some(OpenError::Refused))));
        };
        listener.waiting.push_back(id);
        let acceptor = listener.acceptor.take();
        let end = &mut network.get(id).expect("found above").ends[1];
        (end.open, end.start) = (true, start);
        drop(network);
        self.trace(EventKind::Connection, (to, 1), u64::from(id.slot), 1, 0);
        self.schedule(delay, Event::Network(NetworkEvent::Opened(id, None)));
        wake_all(acceptor.into_iter().collect());
    }

    fn opened(&self, id: ConnectionId, error: Option<OpenError>) {
        let opener = {
            let mut network = self.network.borrow_mut();
            let Some(connection) = network.get(id) else { return };
            connection.phase = error.map_or(Phase::Open, Phase::Failed);
            connection.opener.take()
        };
        wake_all(opener.into_iter().collect());
    }
}

/// What flows.
impl Shared {
    pub(super) fn network_event(&self, event: NetworkEvent) {
        match event {
            NetworkEvent::Opening(id, attempt) => self.opening_arrives(id, attempt),
            NetworkEvent::Opened(id, error) => self.opened(id, error),
            NetworkEvent::Deliver(id, side) => self.deliver(id, side),
            NetworkEvent::Acknowledge(id, side) => self.acknowledged(id, side),
            NetworkEvent::Reset(id, side) => self.reset_arrives(id, side),
        }
    }

    /// Takes as many of `bytes` as the send buffer has room for.
    pub(super) fn send_some(&self, id: ConnectionId, side: Side, bytes: &[u8], waker: &Waker) -> Sent {
        let network = &mut *self.network.borrow_mut();
        let connection = network.get(id).expect("a held end keeps its connection");
        let end = &mut connection.ends[side];
        if end.failed {
            return Sent::Failed;
        }
        if end.shut {
            return Sent::Shut;
        }
        let room = SOCKET_BUFFER_BYTES - connection.pipes[side].held_bytes;
        let count = room.min(SEGMENT_BYTES).min(bytes.len());
        if count == 0 {
            end.sender = Some(waker.clone());
            return Sent::NoRoom;
        }
        let place = (end.node, side as u32);
        connection.pipes[side].held_bytes += count;
        let hash = content_hash([&bytes[..count]]);
        self.push(network, id, side, Segment::Bytes(IoBuf::copy_of(&bytes[..count]).freeze()));
        self.trace(EventKind::Send, place, u64::from(id.slot), count as u64, hash);
        Sent::Bytes(count)
    }

    fn push(&self, network: &mut Network, id: ConnectionId, side: Side, segment: Segment) {
        let Some(connection) = network.get(id) else { return };
        let (from, to) = (connection.ends[side].node, connection.ends[1 - side].node);
        let delay = network.delay(from, to);
        let pipe = &mut network.get(id).expect("found above").pipes[side];
        let arrival = pipe.last_arrival.max(self.now() + delay);
        pipe.last_arrival = arrival;
        pipe.under_way.push_back((arrival, segment));
        self.schedule_delivery(pipe, id, side, arrival - self.now());
    }

    fn schedule_delivery(&self, pipe: &mut Pipe, id: ConnectionId, side: Side, after: u64) {
        if !std::mem::replace(&mut pipe.delivery_scheduled, true) {
            self.schedule(after, Event::Network(NetworkEvent::Deliver(id, side)));
        }
    }

    /// What of the pipe from `side` is due and finds room arrives at the other end.
    fn deliver(&self, id: ConnectionId, side: Side) {
        let mut woken = Vec::new();
        {
            let network = &mut *self.network.borrow_mut();
            let Some(connection) = network.get(id) else { return };
            connection.pipes[side].delivery_scheduled = false;
            let (from, to, start) =
                (connection.ends[side].node, connection.ends[1 - side].node, connection.ends[1 - side].start);
            let (up, starts) = {
                let nodes = self.nodes.borrow();
                (nodes[to as usize].up, nodes[to as usize].starts)
            };
            if connection.pipes[side].silent || !up || network.is_cut(from, to) {
                return; // goes on when the node is back or the link healed
            }
            let connection = network.get(id).expect("found above");
            let end = &mut connection.ends[1 - side];
            if !end.open || end.shut || starts != start {
                let any = connection.pipes[side].under_way.iter().any(|(_, segment)| segment.len() > 0);
                connection.pipes[side].under_way.clear();
                if any {
                    self.send_reset(network, id, side);
                }
                return network.forget_if_over(id);
            }
            let arrived = self.take_due(connection, side);
            if arrived {
                connection.ends[1 - side].wake(&mut woken);
            }
            let pipe = &mut connection.pipes[side];
            if let Some((arrival, _)) = pipe.under_way.front()
                && *arrival > self.now()
            {
                let after = *arrival - self.now();
                self.schedule_delivery(pipe, id, side, after);
            }
            self.schedule_acknowledgement(network, id, side);
            network.forget_if_over(id);
        }
        wake_all(woken);
    }

    fn take_due(&self, connection: &mut Connection, side: Side) -> bool {
        let (pipe, end) = (&mut connection.pipes[side], &mut connection.ends[1 - side]);
        let mut arrived = false;
        while let Some((arrival, segment)) = pipe.under_way.front() {
            if *arrival > self.now() || end.received_bytes + segment.len() > SOCKET_BUFFER_BYTES {
                break;
            }
            match pipe.under_way.pop_front() {
                Some((_, Segment::Bytes(bytes))) => {
                    end.received_bytes += bytes.len();
                    pipe.taken_bytes += bytes.len();
                    end.received.push_back(bytes);
                }
                _ => end.end_received = true,
            }
            arrived = true;
        }
        let place = (end.node, 1 - side as u32);
        self.trace(EventKind::Arrive, place, end.received_bytes as u64, u64::from(end.end_received), 0);
        arrived
    }

    fn schedule_acknowledgement(&self, network: &mut Network, id: ConnectionId, side: Side) {
        let Some(connection) = network.get(id) else { return };
        let (from, to) = (connection.ends[1 - side].node, connection.ends[side].node);
        let pipe = &mut connection.pipes[side];
        if pipe.taken_bytes > 0 && !std::mem::replace(&mut pipe.acknowledgement_scheduled, true) {
            let delay = network.delay(from, to);
            self.schedule(delay, Event::Network(NetworkEvent::Acknowledge(id, side)));
        }
    }

    fn acknowledged(&self, id: ConnectionId, side: Side) {
        let sender = {
            let network = &mut *self.network.borrow_mut();
            let Some(connection) = network.get(id) else { return };
            let (from, to) = (connection.ends[1 - side].node, connection.ends[side].node);
            connection.pipes[side].acknowledgement_scheduled = false;
            if network.is_cut(from, to) {
                return; // comes again when the link is healed
            }
            let connection = network.get(id).expect("found above");
            let pipe = &mut connection.pipes[side];
            pipe.held_bytes -= std::mem::take(&mut pipe.taken_bytes);
            connection.ends[side].sender.take()
        };
        wake_all(sender.into_iter().collect());
    }

    /// Takes received bytes: all there are, or as many as the seed says.
    pub(super) fn receive(&self, id: ConnectionId, side: Side, most: usize, waker: &Waker) -> Received {
        let network = &mut *self.network.borrow_mut();
        let whole = !network.random.one_in(4);
        let part = network.random.next_u64();
        let connection = network.get(id).expect("a held end keeps its connection");
        let end = &mut connection.ends[side];
        if end.received_bytes == 0 {
            if end.failed {
                return Received::Failed;
            }
            if end.end_received || end.shut {
                return Received::End;
            }
            end.receiver = Some(waker.clone());
            return Received::Nothing;
        }
        let mut count = end.received_bytes.min(most);
        if !whole {
            count = 1 + (part % count as u64) as usize;
        }
        let bytes = end.take(count);
        self.trace(EventKind::Receive, (end.node, side as u32), u64::from(id.slot), count as u64, 0);
        // The window opens: what waited for room comes after a delay.
        let (from, to) = (connection.ends[1 - side].node, connection.ends[side].node);
        if !connection.pipes[1 - side].under_way.is_empty() {
            let delay = network.delay(from, to);
            let pipe = &mut network.get(id).expect("found above").pipes[1 - side];
            self.schedule_delivery(pipe, id, 1 - side, delay);
        }
        Received::Bytes(bytes)
    }
}

impl End {
    /// The first `count` received bytes, in one piece.
    fn take(&mut self, count: usize) -> SharedBuf {
        self.received_bytes -= count;
        let first = self.received.front_mut().expect("bytes are there");
        if first.len() > count {
            let piece = first.slice(0..count);
            *first = first.slice(count..first.len());
            return piece;
        }
        if first.len() == count {
            return self.received.pop_front().expect("just seen");
        }
        let mut gathered = IoBuf::new(count);
        let mut at = 0;
        while at < count {
            let first = self.received.front_mut().expect("bytes are there");
            let piece = first.len().min(count - at);
            gathered[at..at + piece].copy_from_slice(&first[..piece]);
            at += piece;
            match piece == first.len() {
                true => drop(self.received.pop_front()),
                false => *first = first.slice(piece..first.len()),
            }
        }
        gathered.freeze()
    }
}

/// How it ends.
impl Shared {
    pub(super) fn has_ended(&self, id: ConnectionId, side: Side) -> bool {
        let mut network = self.network.borrow_mut();
        let end = network.end(id, side);
        end.failed || end.end_received || end.shut
    }

    /// Ends both directions: what was sent still arrives, then the end.
    pub(super) fn shut(&self, id: ConnectionId, side: Side) {
        let mut woken = Vec::new();
        {
            let network = &mut *self.network.borrow_mut();
            let end = network.end(id, side);
            end.wake(&mut woken);
            if !std::mem::replace(&mut end.shut, true) && !end.failed {
                self.push(network, id, side, Segment::End);
            }
        }
        wake_all(woken);
    }

    /// The holder lets go of its end. Unread bytes make it a reset, as with a kernel.
    pub(super) fn close(&self, id: ConnectionId, side: Side) {
        let network = &mut *self.network.borrow_mut();
        if network.get(id).is_some_and(|c| c.ends[side].open && !c.ends[side].detached) {
            self.close_held(network, id, side);
        }
    }

    /// A reset travels to `side`.
    fn send_reset(&self, network: &mut Network, id: ConnectionId, side: Side) {
        let Some(connection) = network.get(id) else { return };
        let (from, to) = (connection.ends[1 - side].node, connection.ends[side].node);
        let delay = network.delay(from, to);
        self.schedule(delay, Event::Network(NetworkEvent::Reset(id, side)));
    }

    fn reset_arrives(&self, id: ConnectionId, side: Side) {
        let mut woken = Vec::new();
        {
            let network = &mut *self.network.borrow_mut();
            let forget_received = network.random.one_in(2);
            let Some(connection) = network.get(id) else { return };
            let (from, to) = (connection.ends[1 - side].node, connection.ends[side].node);
            if network.is_cut(from, to) {
                return; // a reset is sent once; later bytes draw another
            }
            let connection = network.get(id).expect("found above");
            let end = &mut connection.ends[side];
            end.failed = true;
            if forget_received {
                end.received.clear();
                end.received_bytes = 0;
            }
            end.wake(&mut woken);
            self.trace(EventKind::Connection, (end.node, side as u32), u64::from(id.slot), 3, 0);
            connection.pipes.iter_mut().for_each(|pipe| pipe.under_way.clear());
            network.forget_if_over(id);
        }
        wake_all(woken);
    }

    /// A node's processes end: killed, its kernel closes what they held; without power the other ends are reset or
    /// hear nothing at all.
    pub(super) fn end_connections(&self, node: u32, power_lost: bool, fate: &Random) {
        let ids = {
            let mut network = self.network.borrow_mut();
            network.listeners.retain(|(listening, _), _| *listening != node);
            network.ids()
        };
        for id in ids {
            for side in 0..2 {
                let network = &mut *self.network.borrow_mut();
                let Some(connection) = network.get(id) else { continue };
                if connection.ends[side].node != node || !connection.ends[side].open {
                    continue;
                }
                if !power_lost {
                    self.close_held(network, id, side);
                    continue;
                }
                connection.ends[side].open = false;
                connection.ends[side].receiver = None;
                connection.ends[side].sender = None;
                if fate.one_in(2) {
                    connection.pipes[side].under_way.clear();
                    connection.pipes[side].held_bytes = 0;
                    connection.pipes[side].taken_bytes = 0;
                }
                if fate.one_in(2) {
                    self.send_reset(network, id, 1 - side);
                }
                network.forget_if_over(id);
            }
        }
    }

    fn close_held(&self, network: &mut Network, id: ConnectionId, side: Side) {
        let Some(connection) = network.get(id) else { return };
        let end = &mut connection.ends[side];
        end.open = false;
        (end.receiver, end.sender) = (None, None);
        let (unread, ended, shut) = (end.received_bytes > 0, end.failed, end.shut);
        self.trace(EventKind::Connection, (end.node, side as u32), u64::from(id.slot), 2, u64::from(unread));
        if unread && !ended {
            self.send_reset(network, id, 1 - side);
        } else if !shut && !ended {
            self.push(network, id, side, Segment::End);
        }
        network.forget_if_over(id);
    }
}

/// What can happen to links.
impl Shared {
    /// What waited for a node goes on: it is there again.
    pub(super) fn node_is_back(&self, node: u32) {
        self.go_on(|_, to| to == node);
    }

    fn go_on(&self, mut over: impl FnMut(u32, u32) -> bool) {
        let network = &mut *self.network.borrow_mut();
        for id in network.ids() {
            for side in 0..2 {
                let Some(connection) = network.get(id) else { continue };
                let (from, to) = (connection.ends[side].node, connection.ends[1 - side].node);
                if !over(from, to) {
                    continue;
                }
                let delay = network.delay(from, to);
                let pipe = &mut network.get(id).expect("found above").pipes[side];
                if !pipe.under_way.is_empty() {
                    self.schedule_delivery(pipe, id, side, delay);
                }
                self.schedule_acknowledgement(network, id, 1 - side);
            }
        }
    }
}

impl World {
    /// Sets what the link from `from` to `to` is like, that way only.
    pub fn set_link(&self, from: &SimNode, to: &SimNode, options: LinkOptions) {
        self.shared.network.borrow_mut().links.entry((from.index, to.index)).or_default().options = options;
    }

    /// Cuts the link from `from` to `to`, that way only: what is sent waits.
    pub fn cut(&self, from: &SimNode, to: &SimNode) {
        self.set_cut(from, to, true);
    }

    /// Undoes [`cut`](Self::cut): what waited arrives.
    pub fn heal(&self, from: &SimNode, to: &SimNode) {
        self.set_cut(from, to, false);
        self.shared.go_on(|a, b| (a, b) == (from.index, to.index));
    }

    fn set_cut(&self, from: &SimNode, to: &SimNode, cut: bool) {
        self.shared.trace(EventKind::Link, (from.index, 0), u64::from(to.index), u64::from(cut), 0);
        self.shared.network.borrow_mut().links.entry((from.index, to.index)).or_default().cut = cut;
    }

    /// Resets every connection between two nodes: both ends fail.
    pub fn reset_connections(&self, one: &SimNode, other: &SimNode) {
        self.shared.each_connection_between(one.index, other.index, |network, id| {
            (0..2).for_each(|side| self.shared.send_reset(network, id, side));
        });
    }

    /// Leaves every connection between two nodes half-open: nothing passes any more, and neither end is told.
    pub fn silence_connections(&self, one: &SimNode, other: &SimNode) {
        self.shared.each_connection_between(one.index, other.index, |network, id| {
            let Some(connection) = network.get(id) else { return };
            connection.pipes.iter_mut().for_each(|pipe| pipe.silent = true);
        });
    }
}

impl Shared {
    fn each_connection_between(&self, one: u32, other: u32, mut each: impl FnMut(&mut Network, ConnectionId)) {
        let network = &mut *self.network.borrow_mut();
        for id in network.ids() {
            let Some(connection) = network.get(id) else { continue };
            let nodes = (connection.ends[0].node, connection.ends[1].node);
            if nodes == (one, other) || nodes == (other, one) {
                each(network, id);
            }
        }
    }
}

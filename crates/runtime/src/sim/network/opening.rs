//! Listening and connecting.

use super::{BACKLOG, CONNECT_ATTEMPTS, CONNECT_RETRY_NS, ConnectionId, Listener, NetworkEvent, OpenError, Phase};
use super::{new_end, wake_all};
use crate::sim::trace::EventKind;
use crate::sim::world::{Event, Shared};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::task::Waker;

impl Shared {
    fn node_of(&self, from: u32, address: SocketAddr) -> Option<u32> {
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            return Some(from);
        }
        self.nodes.borrow().iter().position(|node| node.address == address.ip()).map(|index| index as u32)
    }

    pub(in crate::sim) fn listen(&self, node: u32, mut address: SocketAddr) -> std::io::Result<SocketAddr> {
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

    pub(in crate::sim) fn stop_listening(&self, node: u32, port: u16) {
        let Some(listener) = self.network.borrow_mut().listeners.remove(&(node, port)) else { return };
        for id in listener.waiting {
            self.close(id, 1);
        }
    }

    /// A connection that waits to be accepted; else `waker` is woken when one comes.
    pub(in crate::sim) fn accept(&self, node: u32, port: u16, waker: &Waker) -> Option<ConnectionId> {
        let mut network = self.network.borrow_mut();
        let listener = network.listeners.get_mut(&(node, port))?;
        let id = listener.waiting.pop_front();
        if id.is_none() {
            listener.acceptor = Some(waker.clone());
        }
        id
    }

    /// Begins to connect.
    pub(in crate::sim) fn open(&self, node: u32, address: SocketAddr) -> Option<ConnectionId> {
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
    pub(in crate::sim) fn opening(&self, id: ConnectionId, waker: &Waker) -> Option<Result<(), OpenError>> {
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

    pub(super) fn opening_arrives(&self, id: ConnectionId, attempt: u32) {
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

    pub(super) fn opened(&self, id: ConnectionId, error: Option<OpenError>) {
        let opener = {
            let mut network = self.network.borrow_mut();
            let Some(connection) = network.get(id) else { return };
            connection.phase = error.map_or(Phase::Open, Phase::Failed);
            connection.opener.take()
        };
        wake_all(opener.into_iter().collect());
    }
}

//! A core's connections to the cores of other nodes: made when there is something to say, served to their end.
//!
//! Two cores that begin to talk at the same time make two; over which of them both go on, [`Links`](super::links::Links) says.

use super::CoreGroups;
use super::hello::{HELLO_PATIENCE, introduce};
use super::link::{Frames, Link};
use crate::wire::Agreed;
use runtime::{SharedBuf, TcpStream, now};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use types::NodeId;

/// A connection on which nothing comes for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// The same of one beside the one that is used. Whose call waits for its answer there asks each second whether it lives; what a
/// volume's head asked there for so long in vain it asks again.
const LEFT_IDLE_MAX: Duration = Duration::from_secs(5);
/// Before the next attempt to connect.
const DIAL_WAIT: Duration = Duration::from_millis(100);

impl CoreGroups {
    /// The connection to a core of a node; made if there is none.
    pub(super) fn link(self: &Rc<Self>, node: NodeId, core: u16) -> Option<Rc<Link>> {
        if let Some(link) = self.links.used((node, core)) {
            return Some(link);
        }
        let address = *self.addresses.borrow().get(&node)?;
        let link = Rc::new(Link::dialled(node, core));
        self.links.add(&link);
        runtime::spawn(dial(self.clone(), link.clone(), address));
        Some(link)
    }

    /// Where nodes are reached. Connections to other places end.
    pub(super) fn set_addresses(&self, addresses: &[(NodeId, SocketAddr)]) {
        let mut known = self.addresses.borrow_mut();
        for (node, address) in addresses {
            if known.insert(*node, *address).is_some_and(|before| before != *address) {
                self.close_links(*node);
            }
        }
    }

    /// A node is of the cluster no more.
    pub(super) fn forget_address(&self, node: NodeId) {
        if self.addresses.borrow_mut().remove(&node).is_some() {
            self.close_links(node);
        }
    }

    /// Connections, and the bytes that wait on the one on which most do.
    pub(crate) fn link_lengths(&self) -> (usize, usize) {
        let links = self.links.all();
        (links.len(), links.iter().map(|link| link.queued_bytes()).max().unwrap_or_default())
    }

    /// Looks whether connections live that were used.
    pub(super) fn look_at_links(&self) {
        let at = now();
        if at.since(self.looked_at_links.get()) < self.shared.timing.ask {
            return;
        }
        self.looked_at_links.set(at);
        self.links.all().iter().for_each(|link| link.look(at, self.shared.timing.silent));
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<_> = self.addresses.borrow().keys().copied().collect();
        nodes.sort_unstable();
        nodes
    }

    /// Ends the connections to a node.
    pub(super) fn close_links(&self, node: NodeId) {
        let links = self.links.all();
        links.iter().filter(|link| link.node == node).for_each(|link| link.close());
    }

    /// A connection that another node made, and that is meant for this core.
    pub(super) fn adopt(
        self: &Rc<Self>,
        (stream, rest): (TcpStream, SharedBuf),
        (node, core): (NodeId, u16),
        agreed: Agreed,
    ) {
        let link = Rc::new(Link::new(node, core));
        link.set_stream(&stream, agreed);
        self.links.add(&link);
        runtime::spawn(serve(self.clone(), link, (stream, rest), agreed));
    }

    fn forget(&self, link: &Rc<Link>) {
        self.calls().lost(link);
        self.plain_calls.lost(link);
        self.links.remove(link);
    }
}

/// Makes a connection, and serves it to its end.
async fn dial(core: Rc<CoreGroups>, link: Rc<Link>, address: SocketAddr) {
    let connected = runtime::timeout(HELLO_PATIENCE, introduce(&core, &link, address));
    match connected.await.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
        Ok((stream, rest, agreed)) => {
            link.set_stream(&stream, agreed);
            serve(core, link, (stream, rest), agreed).await;
        }
        Err(why) => {
            log::debug!("node {} at {address}: {why}", link.node);
            // Until then what is sent there gathers, as far as there is room.
            runtime::sleep(DIAL_WAIT).await;
            link.close();
            core.forget(&link);
        }
    }
}

/// Sends and receives on a connection, to its end.
async fn serve(core: Rc<CoreGroups>, link: Rc<Link>, (stream, rest): (TcpStream, SharedBuf), agreed: Agreed) {
    core.shared.count_connection((link.node, core.core, link.core), true);
    let (sender, of_sender, of_link) = (core.clone(), stream.clone(), link.clone());
    runtime::spawn(async move {
        let patience = sender.shared.timing.send;
        of_link.send_all(&of_sender, patience, || sender.drained()).await;
    });
    let mut frames = Frames::behind(&stream, rest, agreed.features);
    while !link.is_closed() {
        let Some(next) = unless_idle(&core, &link, frames.next()).await else { break };
        match next {
            Ok(Some(frame)) => {
                if let Some(entries) = core.dispatch(&link, frame) {
                    frames.recycle(entries);
                }
            }
            Ok(None) => break,
            Err(error) => {
                log::error!("node {} sends what no node sends: {error}; the connection is closed", link.node);
                core.shared.spoken.refused.fetch_add(1, Relaxed);
                break;
            }
        }
    }
    link.close();
    core.forget(&link);
    core.shared.count_connection((link.node, core.core, link.core), false);
}

/// What comes next on a connection; nothing, if it does not come for long: who has something to say connects again.
async fn unless_idle<T>(core: &CoreGroups, link: &Rc<Link>, next: impl Future<Output = T>) -> Option<T> {
    let (mut next, mut quiet) = (pin!(next), Duration::ZERO);
    loop {
        match runtime::timeout(LEFT_IDLE_MAX, next.as_mut()).await {
            Ok(next) => return Some(next),
            Err(_) => quiet += LEFT_IDLE_MAX,
        }
        if quiet >= IDLE_MAX || core.links.is_left(link) {
            return None;
        }
    }
}

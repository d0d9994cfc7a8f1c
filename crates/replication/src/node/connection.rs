//! A core's connections to the cores of other nodes: made when there is something to say, served to their end.
//!
//! Two cores that begin to talk at the same time make two. Both then say what they have to say over the one that the lower of them
//! has made, or made last; on the other nothing comes any more, and it is closed.

use super::CoreGroups;
use super::hello::{HELLO_PATIENCE, introduce};
use super::link::{Frames, Link};
use crate::wire::Agreed;
use runtime::{SharedBuf, TcpStream, now};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use types::NodeId;

/// A connection on which nothing comes for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Before the next attempt to connect.
const DIAL_WAIT: Duration = Duration::from_millis(100);

impl CoreGroups {
    /// The connection to a core of a node; made if there is none.
    pub(super) fn link(self: &Rc<Self>, node: NodeId, core: u16) -> Option<Rc<Link>> {
        if let Some(link) = self.links.borrow().get(&(node, core)).filter(|link| !link.is_closed()) {
            return Some(link.clone());
        }
        let address = *self.addresses.borrow().get(&node)?;
        let link = Rc::new(Link::dialled(node, core));
        self.links.borrow_mut().insert((node, core), link.clone());
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

    /// Connections, and the bytes that wait on the one on which most do.
    pub(crate) fn link_lengths(&self) -> (usize, usize) {
        let links = self.links.borrow();
        (links.len(), links.values().map(|link| link.queued_bytes()).max().unwrap_or_default())
    }

    /// Looks whether connections live that were used.
    pub(super) fn look_at_links(&self) {
        let at = now();
        if at.since(self.looked_at_links.get()) < self.shared.timing.ask {
            return;
        }
        self.looked_at_links.set(at);
        self.all_links().iter().for_each(|link| link.look(at, self.shared.timing.silent));
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<_> = self.addresses.borrow().keys().copied().collect();
        nodes.sort_unstable();
        nodes
    }

    /// Ends the connections to a node.
    pub(super) fn close_links(&self, node: NodeId) {
        let links = self.all_links();
        links.iter().filter(|link| link.node == node).for_each(|link| link.close());
    }

    /// Those that are used and those that were, in an order that is always the same.
    pub(super) fn all_links(&self) -> Vec<Rc<Link>> {
        let mut links: Vec<_> = self.links.borrow().values().cloned().collect();
        links.sort_unstable_by_key(|link| (link.node, link.core));
        links.extend(self.links_left.borrow().iter().cloned());
        links
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
        // The other side comes to the same: this one is used if there is no other, or whoever made it is the lower of both.
        let known = self.links.borrow().get(&(node, core)).filter(|known| !known.is_closed()).cloned();
        let is_left = known.as_ref().is_some_and(|known| {
            let (this, other) = ((self.shared.node, self.core), (node, core));
            this < other && known.is_dialled || this == other
        });
        if is_left {
            self.links_left.borrow_mut().push(link.clone());
        } else {
            self.links.borrow_mut().insert((node, core), link.clone());
            self.links_left.borrow_mut().extend(known);
        }
        runtime::spawn(serve(self.clone(), link, (stream, rest), agreed));
    }

    fn forget(&self, link: &Rc<Link>) {
        self.calls().lost(link);
        self.plain_calls.lost(link);
        let mut links = self.links.borrow_mut();
        if links.get(&(link.node, link.core)).is_some_and(|known| Rc::ptr_eq(known, link)) {
            links.remove(&(link.node, link.core));
            // The other side may have come through where this one has not.
            let left = self.links_left.borrow();
            let other = left.iter().rfind(|left| (left.node, left.core) == (link.node, link.core) && !left.is_closed());
            other.map(|other| links.insert((other.node, other.core), other.clone()));
        }
        let is_used = |left: &Rc<Link>| links.get(&(left.node, left.core)).is_some_and(|used| Rc::ptr_eq(used, left));
        self.links_left.borrow_mut().retain(|left| !Rc::ptr_eq(left, link) && !is_used(left));
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
        // Who has nothing to say for long connects again when it has.
        let Ok(next) = runtime::timeout(IDLE_MAX, frames.next()).await else { break };
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

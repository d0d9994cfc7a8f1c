//! A core's connections to the cores of other nodes: made when there is something to say, served to their end.

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
        let link = Rc::new(Link::new(node, core));
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
        let mut links = self.links.borrow().values().cloned().collect::<Vec<_>>();
        links.sort_unstable_by_key(|link| (link.node, link.core));
        links.iter().for_each(|link| link.look(at, self.shared.timing.silent));
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<_> = self.addresses.borrow().keys().copied().collect();
        nodes.sort_unstable();
        nodes
    }

    /// Ends the connections to a node.
    pub(super) fn close_links(&self, node: NodeId) {
        let mut links: Vec<_> = self.links.borrow().values().filter(|link| link.node == node).cloned().collect();
        links.sort_unstable_by_key(|link| link.core);
        links.iter().for_each(|link| link.close());
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
        // It serves for answers where there is no other.
        let mut links = self.links.borrow_mut();
        if links.get(&(node, core)).is_none_or(|known| known.is_closed()) {
            links.insert((node, core), link.clone());
        }
        drop(links);
        runtime::spawn(serve(self.clone(), link, (stream, rest), agreed));
    }

    fn forget(&self, link: &Rc<Link>) {
        self.calls().lost(link);
        self.plain_calls.lost(link);
        let mut links = self.links.borrow_mut();
        if links.get(&(link.node, link.core)).is_some_and(|known| Rc::ptr_eq(known, link)) {
            links.remove(&(link.node, link.core));
        }
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
}

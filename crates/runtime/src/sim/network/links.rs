//! What can happen to links, and to everything that crosses them.

use super::{ConnectionId, LinkOptions, Network};
use crate::sim::node::SimNode;
use crate::sim::trace::EventKind;
use crate::sim::world::{Shared, World};
use std::time::Duration;

impl Shared {
    /// What waited for a node goes on: it is there again.
    pub(in crate::sim) fn node_is_back(&self, node: u32) {
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

    /// Bytes that were sent from `from` to `to` so far, whether they arrived or not.
    pub fn sent_bytes(&self, from: &SimNode, to: &SimNode) -> u64 {
        let network = self.shared.network.borrow();
        network.links.get(&(from.index, to.index)).map_or(0, |link| link.sent_bytes)
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

    /// Bytes that one node has sent to another and that have not arrived.
    pub fn bytes_under_way(&self, from: &SimNode, to: &SimNode) -> usize {
        let mut bytes = 0;
        self.shared.each_connection_between(from.index, to.index, |network, id| {
            let Some(connection) = network.get(id) else { return };
            for (_, pipe) in connection.ends.iter().zip(&connection.pipes).filter(|(end, _)| end.node == from.index) {
                bytes += pipe.under_way.iter().map(|(_, segment)| segment.len()).sum::<usize>();
            }
        });
        bytes
    }

    /// From now on some of the connections between two nodes, each way by itself, take up to `most` longer than others: what
    /// is sent later on one arrives before what was sent on another. With zero, none does.
    pub fn lag_connections(&self, one: &SimNode, other: &SimNode, most: Duration) {
        self.shared.each_connection_between(one.index, other.index, |network, id| {
            for side in 0..2 {
                let longest = network.random.below(most.as_nanos() as u64 + 1);
                let lag_ns = if network.random.one_in(2) { network.random.below(longest + 1) } else { 0 };
                if let Some(connection) = network.get(id) {
                    connection.pipes[side].lag_ns = lag_ns;
                }
            }
        });
    }

    /// Leaves every connection between two nodes half-open: nothing passes any more, and neither end is told, until its kernel
    /// ends it.
    pub fn silence_connections(&self, one: &SimNode, other: &SimNode) {
        self.shared.each_connection_between(one.index, other.index, |network, id| {
            let Some(connection) = network.get(id) else { return };
            connection.pipes.iter_mut().for_each(|pipe| pipe.silent = true);
            (0..2).for_each(|side| self.shared.ask_whether_it_lives(id, side));
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

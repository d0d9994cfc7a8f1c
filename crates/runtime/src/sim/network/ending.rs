//! How connections end.

use super::{ConnectionId, KEEP_ALIVE_NS, Network, NetworkEvent, Segment, Side, wake_all};
use crate::sim::random::Random;
use crate::sim::trace::EventKind;
use crate::sim::world::{Event, Shared};

impl Shared {
    pub(in crate::sim) fn has_ended(&self, id: ConnectionId, side: Side) -> bool {
        let mut network = self.network.borrow_mut();
        network.get_end(id, side).is_none_or(|end| end.failed || end.end_received || end.shut)
    }

    /// Ends both directions: what was sent still arrives, then the end. Nothing happens when the node is ending: tasks
    /// that close what they hold when they are dropped do so for a connection that is gone.
    pub(in crate::sim) fn shut(&self, id: ConnectionId, side: Side) {
        let mut woken = Vec::new();
        {
            let network = &mut *self.network.borrow_mut();
            let Some(end) = network.get_end(id, side).filter(|end| end.open) else { return };
            end.wake(&mut woken);
            if !std::mem::replace(&mut end.shut, true) && !end.failed {
                self.push(network, id, side, Segment::End);
            }
        }
        wake_all(woken);
    }

    /// The holder lets go of its end. Unread bytes make it a reset, as with a kernel.
    pub(in crate::sim) fn close(&self, id: ConnectionId, side: Side) {
        let network = &mut *self.network.borrow_mut();
        if network.get(id).is_some_and(|c| c.ends[side].open && !c.ends[side].detached) {
            self.close_held(network, id, side);
        }
    }

    /// A reset travels to `side`.
    pub(super) fn send_reset(&self, network: &mut Network, id: ConnectionId, side: Side) {
        let Some(connection) = network.get(id) else { return };
        let (from, to) = (connection.ends[1 - side].node, connection.ends[side].node);
        let delay = network.delay(from, to);
        self.schedule(delay, Event::Network(NetworkEvent::Reset(id, side)));
    }

    pub(super) fn reset_arrives(&self, id: ConnectionId, side: Side) {
        let is_cut = {
            let network = &mut *self.network.borrow_mut();
            let Some(connection) = network.get(id) else { return };
            let (from, to) = (connection.ends[1 - side].node, connection.ends[side].node);
            network.is_cut(from, to)
        };
        if !is_cut {
            // It is sent once; later bytes draw another.
            self.fails(id, side);
        }
    }

    /// Nothing passes on a connection any more: some time later the kernel of this side ends it.
    pub(super) fn ask_whether_it_lives(&self, id: ConnectionId, side: Side) {
        self.schedule(KEEP_ALIVE_NS, Event::Network(NetworkEvent::Unanswered(id, side)));
    }

    pub(super) fn fails(&self, id: ConnectionId, side: Side) {
        let mut woken = Vec::new();
        {
            let network = &mut *self.network.borrow_mut();
            let forget_received = network.random.one_in(2);
            let Some(connection) = network.get(id) else { return };
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
    pub(in crate::sim) fn end_connections(&self, node: u32, power_lost: bool, fate: &Random) {
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
                match fate.one_in(2) {
                    true => self.send_reset(network, id, 1 - side),
                    false => self.ask_whether_it_lives(id, 1 - side),
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

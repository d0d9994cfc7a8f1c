//! What flows: segments, room, acknowledgements.

use super::{Connection, ConnectionId, End, Network, NetworkEvent, Pipe, Received, Segment, Sent, Side, wake_all};
use super::{SEGMENT_BYTES, SOCKET_BUFFER_BYTES};
use crate::buf::{IoBuf, SharedBuf};
use crate::sim::trace::{EventKind, content_hash};
use crate::sim::world::{Event, Shared};
use std::task::Waker;

impl Shared {
    pub(in crate::sim) fn network_event(&self, event: NetworkEvent) {
        match event {
            NetworkEvent::Opening(id, attempt) => self.opening_arrives(id, attempt),
            NetworkEvent::Opened(id, error) => self.opened(id, error),
            NetworkEvent::Deliver(id, side) => self.deliver(id, side),
            NetworkEvent::Acknowledge(id, side) => self.acknowledged(id, side),
            NetworkEvent::Reset(id, side) => self.reset_arrives(id, side),
            NetworkEvent::Unanswered(id, side) => self.fails(id, side),
        }
    }

    /// Takes as many of `bytes` as the send buffer has room for.
    pub(in crate::sim) fn send_some(&self, id: ConnectionId, side: Side, bytes: &[u8], waker: &Waker) -> Sent {
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
        let to = connection.ends[1 - side].node;
        network.links.entry((place.0, to)).or_default().sent_bytes += count as u64;
        let connection = network.get(id).expect("found above");
        connection.pipes[side].held_bytes += count;
        let hash = content_hash([&bytes[..count]]);
        self.push(network, id, side, Segment::Bytes(IoBuf::copy_of(&bytes[..count]).freeze()));
        self.trace(EventKind::Send, place, u64::from(id.slot), count as u64, hash);
        Sent::Bytes(count)
    }

    pub(super) fn push(&self, network: &mut Network, id: ConnectionId, side: Side, segment: Segment) {
        let Some(connection) = network.get(id) else { return };
        let (from, to) = (connection.ends[side].node, connection.ends[1 - side].node);
        let delay = network.delay(from, to);
        let pipe = &mut network.get(id).expect("found above").pipes[side];
        let arrival = pipe.last_arrival.max(self.now() + delay + pipe.lag_ns);
        pipe.last_arrival = arrival;
        pipe.under_way.push_back((arrival, segment));
        self.schedule_delivery(pipe, id, side, arrival - self.now());
    }

    pub(super) fn schedule_delivery(&self, pipe: &mut Pipe, id: ConnectionId, side: Side, after: u64) {
        if !std::mem::replace(&mut pipe.delivery_scheduled, true) {
            self.schedule(after, Event::Network(NetworkEvent::Deliver(id, side)));
        }
    }

    /// What of the pipe from `side` is due and finds room arrives at the other end.
    pub(super) fn deliver(&self, id: ConnectionId, side: Side) {
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

    pub(super) fn schedule_acknowledgement(&self, network: &mut Network, id: ConnectionId, side: Side) {
        let Some(connection) = network.get(id) else { return };
        let (from, to) = (connection.ends[1 - side].node, connection.ends[side].node);
        let pipe = &mut connection.pipes[side];
        if pipe.taken_bytes > 0 && !std::mem::replace(&mut pipe.acknowledgement_scheduled, true) {
            let delay = network.delay(from, to);
            self.schedule(delay, Event::Network(NetworkEvent::Acknowledge(id, side)));
        }
    }

    pub(super) fn acknowledged(&self, id: ConnectionId, side: Side) {
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
    pub(in crate::sim) fn receive(&self, id: ConnectionId, side: Side, most: usize, waker: &Waker) -> Received {
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

//! Commands that wait for their volume's limit.
//!
//! They are not executed: they count in no budget of what is, so that they take nothing from other volumes, and nobody
//! who changes or takes away a volume waits for them. When its turn has come a command begins as if it came then. A
//! write whose data is to be asked for waits before it is, and holds no memory meanwhile; what others hold is bounded,
//! by not reading the connections on that they came.

use super::command::payload_bytes;
use super::connection::Conn;
use super::flow::is_alive;
use crate::machine::{Operation, Tag};
use runtime::{now, spawn};
use std::rc::{Rc, Weak};
use volume::{Cost, Held};

/// What a command takes of its volume's limits; `None`: it is never held.
pub(super) fn cost(operation: &Operation) -> Option<Cost> {
    match operation {
        Operation::Read { len_bytes, .. } => Some(Cost::of(u64::from(*len_bytes))),
        Operation::Write { data, .. } | Operation::Compare { data, .. } => Some(Cost::of(data.len() as u64)),
        // Two commands, of which each moves its bytes.
        Operation::CompareAndWrite { expected, data, .. } => {
            Some(Cost { commands: 2, bytes: (expected.len() + data.len()) as u64 })
        }
        Operation::Deallocate { .. } | Operation::WriteZeroes { .. } => Some(Cost::of(0)),
        Operation::Flush | Operation::Nothing => None,
    }
}

/// Memory that it holds while it waits: a read has none before it begins.
pub(super) fn held_bytes(operation: &Operation) -> usize {
    if matches!(operation, Operation::Read { .. }) { 0 } else { payload_bytes(operation) }
}

/// Whether a command of this connection on this namespace has nothing to wait for: nobody is there to be answered, or
/// it would be refused.
pub(super) fn is_over(connection: &Rc<Conn>, nsid: u32) -> impl Fn() -> bool + use<> {
    let connection = Rc::downgrade(connection);
    move || Weak::upgrade(&connection).is_none_or(|connection| connection.has_ended() || !connection.sees(nsid))
}

/// Holds a command until its turn, then goes on with it.
pub(super) fn wait(connection: &Rc<Conn>, turn: Held, bytes: usize, go_on: impl FnOnce(&Rc<Conn>) + 'static) {
    let place = Place::take(connection, bytes);
    spawn(async move {
        let mut since = now();
        turn.await;
        let connection = place.0.clone();
        drop(place);
        if !is_alive(&connection, &mut since) {
            return connection.end();
        }
        go_on(&connection);
        connection.output_changed();
    });
}

/// Holds a write whose data is to be asked for, if its volume's limit says so; then its data is asked for. Returns
/// whether it does.
pub(super) fn holds_write(connection: &Rc<Conn>, tag: Tag) -> bool {
    let Some((nsid, len_bytes)) = connection.machine.borrow_mut().pay_write(tag) else { return false };
    let turn = connection.core.hold(nsid, Cost::of(u64::from(len_bytes)), || is_over(connection, nsid));
    let Some(turn) = turn else { return false };
    wait(connection, turn, 0, move |connection| connection.core.queue_for_grant(connection, tag));
    true
}

/// A command that waits, in the books of its connection and its core.
struct Place(Rc<Conn>, usize);

impl Place {
    fn take(connection: &Rc<Conn>, bytes: usize) -> Self {
        connection.hold_begins(bytes);
        Self(connection.clone(), bytes)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.hold_ends(self.1);
    }
}

//! Requests that wait for their volume's limit.
//!
//! They count in no budget of what is executed, so that other volumes lose nothing by them. Meanwhile the connection is
//! read on, which is how its end is seen; when much waits that came on it, it is not, and what goes on then was asked
//! for by a client of which something was heard, or the socket at least has not ended.

use super::ALIVE_FOR;
use super::connection::{Connection, Opened};
use crate::machine::{Event, Failure, Load, parts};
use crate::wire::Errno;
use runtime::Instant;
use std::rc::{Rc, Weak};
use volume::{Cost, Held};

/// What an event takes of its volume's limits; `None`: it is never held. Each part of a write moves its bytes, the
/// first is the command.
fn cost(event: &Event) -> Option<Cost> {
    match event {
        Event::Read { len_bytes, .. } | Event::WriteZeroes { len_bytes, is_stored: true, .. } => {
            Some(Cost::of(u64::from(*len_bytes)))
        }
        Event::Write { is_first, bytes, .. } => {
            Some(Cost { commands: u64::from(*is_first), bytes: bytes.len() as u64 })
        }
        Event::Trim { .. } | Event::WriteZeroes { is_stored: false, .. } | Event::BlockStatus { .. } => {
            Some(Cost::of(0))
        }
        Event::Flush { .. } | Event::Opened { .. } | Event::Full | Event::Disconnect => None,
    }
}

/// What it holds while it waits.
fn held(event: &Event) -> Load {
    match event {
        Event::Write { bytes, .. } => Load { commands: 1, bytes: bytes.len() as u64 },
        _ => Load { commands: 1, bytes: 0 },
    }
}

impl Connection {
    /// Hands a request to the volume, when its limit lets it begin.
    pub(super) fn admit_in_turn(self: &Rc<Self>, opened: &Rc<Opened>, event: Event) {
        let turn = cost(&event).and_then(|cost| opened.volume.hold(cost, || self.wants_nothing()));
        match turn {
            None => self.admit(opened, event, self.received()),
            Some(turn) => {
                let mut event = event;
                if let Event::Write { bytes, .. } = &mut event {
                    bytes.keep();
                }
                self.hold(held(&event));
                runtime::spawn(self.clone().wait_for_turn(turn, opened.clone(), event, self.received()));
            }
        }
    }

    /// Whether what waits is not wanted any more. A client that asked for the end waits for its answers.
    fn wants_nothing(self: &Rc<Self>) -> impl Fn() -> bool + use<> {
        let connection = Rc::downgrade(self);
        move || Weak::upgrade(&connection).is_none_or(|connection| connection.is_closed() || connection.is_stopping())
    }

    async fn wait_for_turn(self: Rc<Self>, turn: Held, opened: Rc<Opened>, event: Event, received: Instant) {
        let began = runtime::now();
        turn.await;
        self.unhold(held(&event));
        if runtime::now().since(began) > ALIVE_FOR && self.stream().has_ended() {
            self.abort();
        }
        if self.is_closed() {
            return;
        }
        if self.is_stopping() {
            let message = "the node is stopping, and this waited for the volume's limit: nothing of it was done";
            return self.refuse(&event, &Failure { errno: Errno::Shutdown, message: message.to_owned() });
        }
        self.admit(&opened, event, received);
    }

    /// Answers what is not to be executed.
    fn refuse(&self, event: &Event, failure: &Failure) {
        let no = || failure.clone();
        match event {
            Event::Read { ticket, offset_bytes, len_bytes } => {
                self.charge(Load { commands: 1, bytes: u64::from(*len_bytes) });
                for (at, _) in parts(*offset_bytes, *len_bytes) {
                    self.machine().read_done(*ticket, at, Err(no()));
                }
            }
            Event::Write { ticket, is_first, .. } => {
                self.charge(Load { commands: u32::from(*is_first), bytes: 0 });
                self.machine().done(*ticket, Err(no()));
            }
            Event::Flush { ticket } | Event::Trim { ticket, .. } | Event::WriteZeroes { ticket, .. } => {
                self.charge(Load { commands: 1, bytes: 0 });
                self.machine().done(*ticket, Err(no()));
            }
            Event::BlockStatus { ticket, .. } => {
                let bytes = self.machine().status_bytes();
                self.charge(Load { commands: 1, bytes });
                self.machine().status_done(*ticket, Err(no()));
            }
            Event::Opened { .. } | Event::Full | Event::Disconnect => unreachable!("never held"),
        }
        self.wake_sender();
    }
}

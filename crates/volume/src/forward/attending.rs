//! The clients of one core that have volumes open, wherever those are served.

use crate::session::Session;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use types::{Mutant, VolumeId, mutant};

/// One of them.
struct Attendee {
    volume: VolumeId,
    session: Session,
    /// Its number, where the volume is another node's.
    number: Option<u64>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Attending {
    all: RefCell<Vec<Attendee>>,
    last: Cell<u64>,
    /// Bytes that sessions with other nodes read.
    reading: Cell<usize>,
}

/// A client has a volume open, until this is dropped.
pub(super) struct Attends {
    session: Session,
    head: Rc<crate::head::Head>,
}

impl Attends {
    pub(super) fn begin(
        head: &Rc<crate::head::Head>,
        volume: VolumeId,
        session: &Session,
        number: Option<u64>,
    ) -> Self {
        let attendee = Attendee { volume, session: session.clone(), number };
        head.attending.all.borrow_mut().push(attendee);
        Self { session: session.clone(), head: head.clone() }
    }
}

impl Drop for Attends {
    fn drop(&mut self) {
        self.head.attending.all.borrow_mut().retain(|attendee| !attendee.session.is(&self.session));
    }
}

impl Attending {
    /// A number that no session of this core had.
    pub(super) fn next_number(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// What clients of the volume sent that have gone is not sent, and not begun, from now on. Returns the numbers of their
    /// sessions with another node.
    pub(super) fn end_those_who_left(&self, volume: VolumeId) -> Vec<u64> {
        if mutant(Mutant::SentForGone) {
            return Vec::new();
        }
        let all = self.all.borrow();
        let gone = all.iter().filter(|attendee| attendee.volume == volume && attendee.session.is_gone());
        gone.inspect(|attendee| attendee.session.end()).filter_map(|attendee| attendee.number).collect()
    }

    /// Whether the client of this session with another node is there.
    pub(super) fn lives(&self, number: u64) -> bool {
        let all = self.all.borrow();
        all.iter().any(|attendee| attendee.number == Some(number) && !attendee.session.is_gone())
    }

    /// Takes room for what is read of another node, if there is.
    pub(super) fn begin_reading(&self, bytes: usize) -> bool {
        let reading = self.reading.get();
        let has_room = bytes == 0 || reading + bytes <= super::READ_BYTES_MAX;
        self.reading.set(if has_room { reading + bytes } else { reading });
        has_room
    }

    pub(super) fn end_reading(&self, bytes: usize) {
        self.reading.set(self.reading.get() - bytes);
    }
}

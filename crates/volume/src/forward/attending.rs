//! The clients of one core that have volumes open, wherever those are served.

use crate::head::Head;
use crate::session::Session;
use replication::node::Peer;
use runtime::channel::WaitList;
use runtime::now;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use types::{Mutant, VolumeId, mutant};

/// What waits for room when a head settles the volume has so long to be sent: the answer has to be there in 500 ms.
const SENT_WITHIN: Duration = Duration::from_millis(400);
/// Between two looks at whether it was.
const LOOK_WAIT: Duration = Duration::from_millis(5);

/// One of them.
struct Attendee {
    volume: VolumeId,
    session: Session,
    /// Its number, where the volume is another node's.
    number: Option<u64>,
    waiting: Waiting,
}

/// What of a client waits for room on the way to another node, by the order in which that came.
pub(super) type Waiting = Rc<RefCell<BTreeSet<u64>>>;

/// See the module.
#[derive(Default)]
pub(crate) struct Attending {
    all: RefCell<Vec<Attendee>>,
    /// The last number of a session.
    last: Cell<u64>,
    /// The last of what had to wait for room.
    last_waiting: Cell<u64>,
    /// Bytes that sessions with other nodes read.
    reading: Cell<usize>,
    /// Sessions with other nodes that have ended here.
    left: RefCell<VecDeque<(Peer, u64)>>,
    leaves: WaitList,
}

/// A client has a volume open, until this is dropped.
pub(super) struct Attends {
    session: Session,
    head: Rc<Head>,
    pub(super) waiting: Waiting,
}

impl Attends {
    pub(super) fn begin(head: &Rc<Head>, volume: VolumeId, session: &Session, number: Option<u64>) -> Self {
        let waiting = Waiting::default();
        let attendee = Attendee { volume, session: session.clone(), number, waiting: waiting.clone() };
        head.attending.all.borrow_mut().push(attendee);
        Self { session: session.clone(), head: head.clone(), waiting }
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

    /// The same; and what has waited for room until now is sent when this returns, or its session has ended, too: that a client is
    /// there nobody knows who does not read what comes of it.
    pub(super) async fn settle(&self, volume: VolumeId) -> Vec<u64> {
        let mut ended = self.end_those_who_left(volume);
        if mutant(Mutant::SentForGone) {
            return ended;
        }
        let (mark, until) = (self.last_waiting.get(), now() + SENT_WITHIN);
        let is_late = |attendee: &&Attendee| {
            let first = attendee.waiting.borrow().first().copied();
            attendee.volume == volume && !attendee.session.has_ended() && first.is_some_and(|first| first <= mark)
        };
        while self.all.borrow().iter().any(|attendee| is_late(&attendee)) {
            if now() >= until {
                let all = self.all.borrow();
                let late = all.iter().filter(is_late).inspect(|attendee| attendee.session.end());
                ended.extend(late.filter_map(|attendee| attendee.number));
                break;
            }
            runtime::sleep(LOOK_WAIT).await;
        }
        ended
    }

    /// Something has to wait for room; returns its place.
    pub(super) fn waits(&self) -> u64 {
        self.last_waiting.set(self.last_waiting.get() + 1);
        self.last_waiting.get()
    }

    /// Whether the client of this session with another node is there.
    pub(super) fn lives(&self, number: u64) -> bool {
        let all = self.all.borrow();
        all.iter().any(|attendee| attendee.number == Some(number) && !attendee.session.is_gone())
    }

    /// A session with another node has ended here: it is to be told.
    pub(super) fn leaves(&self, peer: &Peer, number: u64) {
        self.left.borrow_mut().push_back((peer.clone(), number));
        self.leaves.wake_all();
    }

    pub(super) async fn next_to_leave(&self) -> (Peer, u64) {
        self.leaves.until(|| self.left.borrow_mut().pop_front()).await
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

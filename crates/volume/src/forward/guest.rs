//! A client's session with the head of its volume on another node, as the client's node has it.

use super::attending::Attends;
use super::message::{Answer, Asked, EXTENTS_MAX, How, Question};
use super::{SERVICE, SESSION_BYTES_MAX, SESSION_CALLS_MAX};
use crate::api::{BlockChecksums, IoError, Payload, ReadData, Volume};
use crate::head::Head;
use crate::session::Session;
use crate::status::{BlockExtent, SnapshotMark};
use replication::node::{CallError, Parcel, Peer};
use runtime::SharedBuf;
use std::cell::Cell;
use std::rc::Rc;
use types::{LayerId, Mutant, mutant};

/// See the module. Dropped, the head hears of its end.
pub(super) struct Guest {
    volume: Volume,
    session: Session,
    head: Rc<Head>,
    peer: Peer,
    number: u64,
    /// Calls under way, and their bytes.
    load: Cell<(usize, usize)>,
    attends: Attends,
}

/// What became of the wish to open a session.
pub(super) enum Opened {
    Welcome(Guest),
    /// The other node is not the head, or not yet, or not any more.
    Elsewhere,
}

/// What waits for room is known by its place.
struct Waits<'a>(&'a Guest, u64);

impl<'a> Waits<'a> {
    fn begin(guest: &'a Guest) -> Self {
        let place = guest.head.attending.waits();
        guest.attends.waiting.borrow_mut().insert(place);
        Self(guest, place)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.attends.waiting.borrow_mut().remove(&self.1);
    }
}

/// A call that is under way counts.
struct UnderWay<'a> {
    guest: &'a Guest,
    bytes: usize,
    read: usize,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let (calls, bytes) = self.guest.load.get();
        self.guest.load.set((calls - 1, bytes - self.bytes));
        self.guest.head.attending.end_reading(self.read);
    }
}

impl Guest {
    /// Asks the node at the other end for a session.
    ///
    /// # Errors
    /// It cannot be asked, or refuses for good.
    pub(super) async fn open(
        head: &Rc<Head>,
        peer: Peer,
        volume: &Volume,
        session: &Session,
    ) -> Result<Opened, IoError> {
        let number = head.attending.next_number();
        let attends = Attends::begin(head, volume.id(), session, Some(number));
        let guest = Self {
            volume: volume.clone(),
            session: session.clone(),
            head: head.clone(),
            peer,
            number,
            load: Cell::default(),
            attends,
        };
        let snapshot = volume.snapshot.as_ref().map_or(LayerId(0), |snapshot| snapshot.info.layer());
        match guest.ask(Asked::Open { volume: volume.id(), snapshot }, None, 0).await? {
            (Answer::Welcome, _) => Ok(Opened::Welcome(guest)),
            (Answer::Elsewhere | Answer::Over, _) => Ok(Opened::Elsewhere),
            (Answer::Failed(error), _) => Err(error),
            _ => Err(guest.over()),
        }
    }

    /// Whose it is.
    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    pub(super) async fn read(&self, offset: u64, len: u32) -> Result<ReadData, IoError> {
        let bytes = self.done(Asked::Read { offset, len }, None, len as usize).await?;
        if bytes.len() != len as usize {
            return Err(self.over());
        }
        Ok(ReadData { bytes, block_checksums: BlockChecksums::default() })
    }

    pub(super) async fn write(&self, offset: u64, payload: Payload) -> Result<(), IoError> {
        self.done(Asked::Write { offset }, Some(payload.bytes), 0).await.map(drop)
    }

    pub(super) async fn zero(&self, how: How, offset: u64, len: u64) -> Result<(), IoError> {
        self.done(Asked::Zero { how, offset, len }, None, 0).await.map(drop)
    }

    pub(super) async fn flush(&self) -> Result<(), IoError> {
        self.done(Asked::Flush, None, 0).await.map(drop)
    }

    pub(super) async fn status(
        &self,
        (offset, len): (u64, u64),
        marks: &[SnapshotMark],
        most: usize,
    ) -> Result<Vec<BlockExtent>, IoError> {
        let marks = marks.iter().map(|mark| mark.0).collect();
        let extents_max = most.min(EXTENTS_MAX as usize) as u32;
        match self.ask(Asked::Status { offset, len, extents_max, marks }, None, 0).await? {
            (Answer::Extents(extents), _) => Ok(extents),
            (Answer::Failed(error), _) => Err(error),
            _ => Err(self.over()),
        }
    }

    async fn done(&self, asked: Asked, payload: Option<SharedBuf>, read: usize) -> Result<SharedBuf, IoError> {
        match self.ask(asked, payload, read).await? {
            (Answer::Done, bytes) => Ok(bytes),
            (Answer::Failed(error), _) => Err(error),
            _ => Err(self.over()),
        }
    }

    /// Nothing can be asked in this session any more; what has no answer may be done.
    fn over(&self) -> IoError {
        IoError::Elsewhere(format!("the session with node {} has ended", self.peer.node()))
    }

    /// Asks the head, as soon as there is room for it, for a client that is there then.
    async fn ask(&self, asked: Asked, payload: Option<SharedBuf>, read: usize) -> Result<(Answer, SharedBuf), IoError> {
        let head = Question { session: self.number, asked }.encode();
        let parcel = match payload {
            Some(bytes) => Parcel { head, bytes },
            None => Parcel::of(head),
        };
        let mut waits = None;
        let (called, _under_way) = loop {
            self.may_send(waits.is_some())?;
            if let Some(called) = self.try_call(&parcel, read) {
                break called;
            }
            waits.get_or_insert_with(|| Waits::begin(self));
            self.peer.room().await;
        };
        drop(waits);
        match called.answer().await {
            Ok(parcel) => match Answer::decode(&parcel.head) {
                Some(answer) => Ok((answer, parcel.bytes)),
                None => Err(self.over()),
            },
            Err(CallError::Ended(_) | CallError::Refused { .. } | CallError::Unknown(_) | CallError::Unreached(_)) => {
                Err(self.over())
            }
        }
    }

    /// Whether what has waited for room is to be sent. A client that has gone may be back on another connection, and be told
    /// there that newer commands are done.
    fn may_send(&self, waited: bool) -> Result<(), IoError> {
        if self.peer.is_over() {
            return Err(self.over());
        }
        if mutant(Mutant::SentForGone) {
            return Ok(());
        }
        if waited && self.session.is_gone() {
            return Err(IoError::Abandoned);
        }
        self.session.may_be_admitted()
    }

    fn try_call(&self, parcel: &Parcel, read: usize) -> Option<(replication::node::Called, UnderWay<'_>)> {
        let bytes = parcel.bytes.len() + read;
        let (calls, before) = self.load.get();
        if calls >= SESSION_CALLS_MAX || calls > 0 && before + bytes > SESSION_BYTES_MAX {
            return None;
        }
        if !self.head.attending.begin_reading(read) {
            return None;
        }
        self.load.set((calls + 1, before + bytes));
        let under_way = UnderWay { guest: self, bytes, read };
        let called = self.peer.try_call(SERVICE, parcel)?;
        Some((called, under_way))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.head.attending.leaves(&self.peer, self.number);
    }
}

/// Tells heads whose sessions have ended, behind all that was sent for them, as long as the core lives.
pub(super) async fn say_goodbye(head: Rc<Head>) {
    loop {
        let (peer, number) = head.attending.next_to_leave().await;
        // If the connection ends before that, so do its sessions.
        let end = Parcel::of(Question { session: number, asked: Asked::End }.encode());
        while peer.try_call(SERVICE, &end).is_none() && !peer.is_over() {
            peer.room().await;
        }
    }
}

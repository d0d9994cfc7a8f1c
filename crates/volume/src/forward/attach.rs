//! A volume as a client has it that knows this node alone: served here, or asked for at its head.

use super::attending::Attends;
use super::guest::{Guest, Opened};
use super::message::How;
use super::settle::settle_from;
use crate::api::{IoError, Payload, ReadData, Standing, Volume, VolumeInfo};
use crate::clients::{Opening, Wanting};
use crate::head::Head;
use crate::hold::Held;
use crate::latency::{Door, Flight, Operation};
use crate::limit::Cost;
use crate::session::Session;
use crate::status::{BlockExtent, SnapshotMark};
use runtime::{Instant, now};
use std::rc::Rc;
use std::time::Duration;

/// A client waits so long for its volume: a silent head is taken for gone in less, and doors wait for 10 s until a client is served.
const ATTACH_WAIT: Duration = Duration::from_secs(9);
/// A node that is asked for a session has so long to say what is to become of it: it may give the volume away by that.
const OPEN_WAIT: Duration = Duration::from_secs(3);
/// Between two looks at who is the head.
const LOOK_WAIT: Duration = Duration::from_millis(20);

/// A volume, or one of its snapshots, as a client of this core has it open. Clones share it.
///
/// Commands wait in their place while the volume changes its head or a group of it serves nobody. An
/// [`IoError::Elsewhere`] says that the client has to connect again, through whichever node: what it asked for and has no answer
/// to may be done, and is done before whatever it asks for then, or never.
#[derive(Clone)]
pub struct Attached(Where);

#[derive(Clone)]
enum Where {
    Here(Rc<Here>),
    There(Rc<Guest>),
}

struct Here {
    volume: Volume,
    _opening: Option<Opening>,
    _attends: Attends,
}

impl Volume {
    /// Opens it for a client, whose commands belong to `session`: here, if this node is its head, or becomes it, as the
    /// head is down or nobody has the volume open; else at its head. All that the client sent before, wherever that was, is
    /// done by then or never is.
    ///
    /// # Errors
    /// The volume is gone, or no head of it answers.
    pub async fn attach(&self, session: &Session) -> Result<Attached, IoError> {
        let attached = self.try_attach(session).await;
        if let Err(error) = &attached {
            log::info!("volume {} cannot be opened for a client, which has to connect again: {error}", self.name());
        }
        attached
    }

    async fn try_attach(&self, session: &Session) -> Result<Attached, IoError> {
        let head = self.state.head().ok_or_else(|| self.is_gone())?;
        let until = now() + ATTACH_WAIT;
        let mut wanting = None;
        loop {
            if self.state.is_gone() {
                return Err(self.is_gone());
            }
            match self.standing() {
                Standing::Here | Standing::Stopped => {
                    if let Some(here) = self.attach_here(&head, session).await {
                        return Ok(Attached(Where::Here(Rc::new(here))));
                    }
                }
                Standing::Changing => {}
                Standing::Elsewhere => {
                    wanting.get_or_insert_with(|| Wanting::new(&head, self.id()));
                    if let Some(guest) = self.attach_there(&head, session).await? {
                        return Ok(Attached(Where::There(Rc::new(guest))));
                    }
                }
            }
            if now() >= until {
                let (name, node) = (self.name(), self.info().head);
                if let Some(client) = node.client_number() {
                    return Err(IoError::Unavailable(format!("client-{client} has volume {name} open")));
                }
                return Err(IoError::Unavailable(format!(
                    "node {node} is the head of volume {name}, and cannot be asked"
                )));
            }
            runtime::sleep(LOOK_WAIT).await;
        }
    }

    fn is_gone(&self) -> IoError {
        IoError::Gone(format!("volume {} was deleted or locked", self.name()))
    }

    /// `None`: it is here no more.
    async fn attach_here(&self, head: &Rc<Head>, session: &Session) -> Option<Here> {
        let reign = self.state.gate.term().spec.epoch;
        let opening = self.open();
        let attends = Attends::begin(head, self.id(), session, None);
        settle_from(head, self.id()).await;
        let is_here = matches!(self.standing(), Standing::Here | Standing::Stopped);
        if !is_here || self.state.gate.term().spec.epoch != reign {
            return None;
        }
        session.belongs_to(reign);
        Some(Here { volume: self.of_session(session), _opening: opening, _attends: attends })
    }

    /// `None`: nobody there is the head.
    async fn attach_there(&self, head: &Rc<Head>, session: &Session) -> Result<Option<Guest>, IoError> {
        let node = self.info().head;
        if node == head.groups.node() || node.is_client() {
            // On its way here; or a program has it, and whoever else wants it waits.
            return Ok(None);
        }
        let Some(peer) = head.groups.peer(node, 0) else { return Ok(None) };
        match runtime::timeout(OPEN_WAIT, Guest::open(head, peer, self, session)).await {
            Ok(Ok(Opened::Welcome(guest))) => Ok(Some(guest)),
            // Whoever is not reached may be down.
            Ok(Ok(Opened::Elsewhere) | Err(IoError::Elsewhere(_))) | Err(_) => Ok(None),
            Ok(Err(error)) => Err(error),
        }
    }
}

impl Attached {
    fn volume(&self) -> &Volume {
        match &self.0 {
            Where::Here(here) => &here.volume,
            Where::There(guest) => guest.volume(),
        }
    }

    /// The volume itself, if it is served here: its commands end with [`IoError::Changing`] or [`IoError::Stopped`], where nothing
    /// was let in, and are then to be asked for through this.
    pub fn here(&self) -> Option<&Volume> {
        match &self.0 {
            Where::Here(here) => Some(&here.volume),
            Where::There(_) => None,
        }
    }

    /// What a host is told of it.
    pub fn info(&self) -> VolumeInfo {
        self.volume().info()
    }

    /// Whether another node serves it.
    pub fn is_forwarded(&self) -> bool {
        matches!(self.0, Where::There(_))
    }

    /// See [`Volume::marks_of`].
    pub fn marks_of(&self, names: &[String]) -> Vec<SnapshotMark> {
        self.volume().marks_of(names)
    }

    /// See [`Volume::hold`]. The head of a volume on another node holds commands, too.
    pub fn hold<F: Fn() -> bool + 'static>(&self, cost: Cost, is_over: impl FnOnce() -> F) -> Option<Held> {
        self.volume().hold(cost, is_over)
    }

    /// See [`Volume::flight`]; of a volume on another node all of the time there is one stage.
    pub fn flight(&self, door: Door, operation: Operation, received: Instant) -> Flight {
        self.volume().flight(door, operation, received)
    }

    /// See [`Volume::read`].
    pub async fn read(&self, offset_bytes: u64, len_bytes: u32) -> Result<ReadData, IoError> {
        match &self.0 {
            Where::Here(here) => here.volume.patiently(|| here.volume.read(offset_bytes, len_bytes)).await,
            Where::There(guest) => Box::pin(guest.read(offset_bytes, len_bytes)).await,
        }
    }

    /// See [`Volume::write`].
    pub async fn write(&self, offset_bytes: u64, payload: Payload) -> Result<(), IoError> {
        match &self.0 {
            Where::Here(here) => here.volume.patiently(|| here.volume.write(offset_bytes, payload.clone())).await,
            Where::There(guest) => Box::pin(guest.write(offset_bytes, payload)).await,
        }
    }

    /// See [`Volume::write_zeroes`].
    pub async fn write_zeroes(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), IoError> {
        match &self.0 {
            Where::Here(here) => here.volume.patiently(|| here.volume.write_zeroes(offset_bytes, len_bytes)).await,
            Where::There(guest) => Box::pin(guest.zero(How::Zero, offset_bytes, len_bytes)).await,
        }
    }

    /// See [`Volume::store_zeroes`].
    pub async fn store_zeroes(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), IoError> {
        match &self.0 {
            Where::Here(here) => here.volume.patiently(|| here.volume.store_zeroes(offset_bytes, len_bytes)).await,
            Where::There(guest) => Box::pin(guest.zero(How::Store, offset_bytes, len_bytes)).await,
        }
    }

    /// See [`Volume::discard`].
    pub async fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), IoError> {
        match &self.0 {
            Where::Here(here) => here.volume.patiently(|| here.volume.discard(offset_bytes, len_bytes)).await,
            Where::There(guest) => Box::pin(guest.zero(How::Discard, offset_bytes, len_bytes)).await,
        }
    }

    /// See [`Volume::flush`].
    pub async fn flush(&self) -> Result<(), IoError> {
        match &self.0 {
            Where::Here(here) => here.volume.patiently(|| here.volume.flush()).await,
            Where::There(guest) => Box::pin(guest.flush()).await,
        }
    }

    /// See [`Volume::block_status`].
    pub async fn block_status(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        marks: &[SnapshotMark],
        extents_max: usize,
    ) -> Result<Vec<BlockExtent>, IoError> {
        match &self.0 {
            Where::Here(here) => {
                let ask = || here.volume.block_status(offset_bytes, len_bytes, marks, extents_max);
                here.volume.patiently(ask).await
            }
            Where::There(guest) => Box::pin(guest.status((offset_bytes, len_bytes), marks, extents_max)).await,
        }
    }
}

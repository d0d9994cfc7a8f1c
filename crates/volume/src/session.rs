//! Whose a command is.

use crate::api::IoError;
use runtime::{Instant, now};
use std::cell::{Cell, OnceCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use types::{Mutant, VolumeEpoch, mutant};

/// For so long a client that was there is taken to be there. After a longer wait its connection is asked.
pub const ALIVE_FOR: Duration = Duration::from_millis(100);

/// A client's connection, as its commands know it. Clones share it.
///
/// A command is executed only if its connection was alive when it was admitted. Most are admitted when they are called;
/// one that touches two chunks, or a long range, is admitted piece by piece, and a first write waits for its group to know of
/// the head. When its session has ended, what was not
/// admitted by then never is: its client may be back on another connection, and be told there that newer commands on
/// the same blocks are done.
#[derive(Clone, Default)]
pub struct Session(Rc<Inner>);

#[derive(Default)]
struct Inner {
    has_ended: Cell<bool>,
    waits: bool,
    moves: bool,
    lives: OnceCell<Box<dyn Fn() -> bool>>,
    asks: OnceCell<Ask>,
    reign: Cell<Option<VolumeEpoch>>,
}

/// Asks another node whether a client of its is there.
type Ask = Box<dyn Fn() -> Pin<Box<dyn Future<Output = bool>>>>;

impl Session {
    /// Of a client whose protocol knows of no wait but that for an answer: its commands wait in their place, however long a group
    /// serves nobody (H16). To be asked again they would have to be done again, with what others wrote meanwhile in between.
    pub fn that_waits() -> Self {
        Self(Rc::new(Inner { waits: true, ..Inner::default() }))
    }

    /// Of whoever moves a volume to other groups: let in when no client is any more.
    pub(crate) fn that_moves() -> Self {
        Self(Rc::new(Inner { waits: true, moves: true, ..Inner::default() }))
    }

    /// Whether it is of whoever moves the volume.
    pub(crate) fn moves(&self) -> bool {
        self.0.moves
    }

    /// How its connection is asked whether the client is there, by what was told last of it, read or not.
    ///
    /// # Panics
    /// If it was said before.
    pub fn lives_while(&self, lives: impl Fn() -> bool + 'static) {
        assert!(self.0.lives.set(Box::new(lives)).is_ok(), "a session has one connection");
    }

    /// How another node is asked, which has the client's connection.
    pub(crate) fn lives_if(&self, ask: impl Fn() -> Pin<Box<dyn Future<Output = bool>>> + 'static) {
        assert!(self.0.asks.set(Box::new(ask)).is_ok(), "a session has one connection");
    }

    /// It is one with the head in this reign, and with no later one: between the two its client may have gone elsewhere, and on
    /// from there.
    pub(crate) fn belongs_to(&self, reign: VolumeEpoch) {
        self.0.reign.set(Some(reign));
    }

    /// Whether its commands may be done in this reign.
    pub(crate) fn is_of(&self, reign: VolumeEpoch) -> bool {
        self.0.reign.get().is_none_or(|of| of == reign || mutant(Mutant::OldOpeningServes))
    }

    /// Whether it is this one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Whether its commands wait for as long as it takes.
    pub(crate) fn waits(&self) -> bool {
        self.0.waits
    }

    /// Nothing of it is admitted from now on.
    pub fn end(&self) {
        self.0.has_ended.set(true);
    }

    /// Whether a command of it may be admitted.
    ///
    /// # Errors
    /// [`IoError::Abandoned`] if it has ended.
    pub(crate) fn may_be_admitted(&self) -> Result<(), IoError> {
        if self.has_ended() && !mutant(Mutant::GhostExecuted) { Err(IoError::Abandoned) } else { Ok(()) }
    }

    /// Whether a command of it that was called then, and has waited since, may still be admitted.
    ///
    /// # Errors
    /// [`IoError::Abandoned`] if its client is gone.
    pub(crate) async fn may_go_on(&self, called: Instant) -> Result<(), IoError> {
        if now().since(called) > ALIVE_FOR {
            if self.is_gone() {
                return Err(IoError::Abandoned);
            }
            if let Some(ask) = self.0.asks.get()
                && !ask().await
            {
                self.end();
                return Err(IoError::Abandoned);
            }
        }
        self.may_be_admitted()
    }

    /// Whether its client is gone, as far as can be told here.
    pub(crate) fn is_gone(&self) -> bool {
        self.has_ended() || self.0.lives.get().is_some_and(|lives| !lives())
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended.get()
    }
}

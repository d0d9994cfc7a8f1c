//! Whose a command is.

use crate::api::IoError;
use runtime::{Instant, now};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Duration;
use types::{Mutant, mutant};

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
    lives: OnceCell<Box<dyn Fn() -> bool>>,
}

impl Session {
    /// Of a client whose protocol knows of no wait but that for an answer: its commands wait in their place, however long a group
    /// serves nobody (H16). To be asked again they would have to be done again, with what others wrote meanwhile in between.
    pub fn that_waits() -> Self {
        Self(Rc::new(Inner { waits: true, ..Inner::default() }))
    }

    /// How its connection is asked whether the client is there, by what was told last of it, read or not.
    ///
    /// # Panics
    /// If it was said before.
    pub fn lives_while(&self, lives: impl Fn() -> bool + 'static) {
        assert!(self.0.lives.set(Box::new(lives)).is_ok(), "a session has one connection");
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
    pub(crate) fn may_go_on(&self, called: Instant) -> Result<(), IoError> {
        let lives = || self.0.lives.get().is_none_or(|lives| lives());
        if now().since(called) > ALIVE_FOR && !lives() {
            return Err(IoError::Abandoned);
        }
        self.may_be_admitted()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended.get()
    }
}

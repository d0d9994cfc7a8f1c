//! Whose a command is.

use crate::api::IoError;
use std::cell::Cell;
use std::rc::Rc;
use types::{Mutant, mutant};

/// A client's connection, as its commands know it. Clones share it.
///
/// A command is executed only if its connection was alive when it was admitted. Most are admitted when they are called;
/// one that touches two chunks, or a long range, is admitted piece by piece. When its session has ended, what was not
/// admitted by then never is: its client may be back on another connection, and be told there that newer commands on
/// the same blocks are done.
#[derive(Clone, Default)]
pub struct Session(Rc<Cell<bool>>);

impl Session {
    /// Nothing of it is admitted from now on.
    pub fn end(&self) {
        self.0.set(true);
    }

    /// Whether a command of it may be admitted.
    ///
    /// # Errors
    /// [`IoError::Abandoned`] if it has ended.
    pub(crate) fn may_be_admitted(&self) -> Result<(), IoError> {
        if self.has_ended() && !mutant(Mutant::GhostExecuted) { Err(IoError::Abandoned) } else { Ok(()) }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.0.get()
    }
}

//! What a shard met that an operator must hear of, while it goes on.

use super::watchdog::Slow;
use super::{Shard, ShardCore};
use crate::error::ReadError;
use runtime::Instant;
use runtime::channel::WaitList;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use types::{ChunkId, LayerId};

/// Damaged places that are listed; of others only their number is known.
pub const DAMAGE_LISTED_MAX: usize = 64;
/// News that wait for who tells them; the oldest go first.
const NEWS_MAX: usize = 64;
/// Reads in a row that a device may fail before nothing is expected of it any more.
const READ_ERRORS_IN_A_ROW_MAX: u32 = 32;

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A place that was not known to be damaged.
    Damage(ReadError),
    /// An append or a read takes too long.
    Slow(Slow),
    /// The store refuses new blocks from now on. Told once, by the first shard that does, until
    /// [`Store::end_refusing`](crate::Store::end_refusing).
    Full {
        /// Bytes of what lives.
        live_bytes: u64,
        /// Bytes that can be stored.
        usable_bytes: u64,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damage(error) => error.fmt(f),
            Self::Full { live_bytes, usable_bytes } => {
                write!(f, "full: {live_bytes} of {usable_bytes} bytes live, new blocks are refused")
            }
            Self::Slow(Slow { what, took }) => write!(f, "slow: {what} is under way for {:.1} s", took.as_secs_f32()),
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Troubles {
    /// Each damaged place once, as it was met first.
    damage: RefCell<Vec<ReadError>>,
    /// Damaged places beyond the list, met again or not.
    unlisted: Cell<u64>,
    read_errors_in_a_row: Cell<u32>,
    news: RefCell<VecDeque<Trouble>>,
    told: WaitList,
}

impl Troubles {
    pub(crate) fn tell(&self, trouble: Trouble) {
        let mut news = self.news.borrow_mut();
        if news.len() == NEWS_MAX {
            news.pop_front();
        }
        news.push_back(trouble);
        drop(news);
        self.told.wake_all();
    }

    pub(crate) fn wake(&self) {
        self.told.wake_all();
    }

    /// What was met in these leaves is not there any more.
    pub(super) fn forget(&self, leaves: &[(LayerId, ChunkId)]) {
        self.damage.borrow_mut().retain(|error| error.leaf().is_none_or(|leaf| !leaves.contains(&leaf)));
    }

    fn note_damage(&self, error: &ReadError) {
        let mut damage = self.damage.borrow_mut();
        if damage.iter().any(|known| known.place() == error.place()) {
            return;
        }
        if damage.len() == DAMAGE_LISTED_MAX {
            return self.unlisted.set(self.unlisted.get() + 1);
        }
        damage.push(error.clone());
        drop(damage);
        self.tell(Trouble::Damage(error.clone()));
    }
}

impl ShardCore {
    /// A read ended, also at its second try. A device that fails many in a row is given up.
    pub(crate) fn note_read(&self, result: &Result<(), ReadError>) {
        let row = &self.troubles.read_errors_in_a_row;
        match result {
            Ok(()) => row.set(0),
            Err(error) => self.note_read_error(error),
        }
    }

    #[cold]
    fn note_read_error(&self, error: &ReadError) {
        self.troubles.note_damage(error);
        let ReadError::Io { message, .. } = error else { return };
        let row = &self.troubles.read_errors_in_a_row;
        row.set(row.get() + 1);
        if row.get() >= READ_ERRORS_IN_A_ROW_MAX {
            self.fail(&format!("{READ_ERRORS_IN_A_ROW_MAX} reads in a row failed: {message}"));
        }
    }
}

impl Shard {
    /// Damaged places met by reads since it was opened, each once; at most [`DAMAGE_LISTED_MAX`].
    pub fn damage_met(&self) -> Vec<ReadError> {
        self.core.troubles.damage.borrow().clone()
    }

    /// How often a read met one that is not in that list.
    pub fn damage_unlisted(&self) -> u64 {
        self.core.troubles.unlisted.get()
    }

    /// What took too long, if the device is slow.
    pub fn slow(&self) -> Option<Slow> {
        self.core.watchdog.slow()
    }

    /// When an append or a read was seen last that took too long.
    pub fn slow_at(&self) -> Option<Instant> {
        self.core.watchdog.slow_at()
    }

    /// The next thing to tell; `None` when the shard has ended. For one listener.
    pub async fn trouble(&self) -> Option<Trouble> {
        let core = self.core.clone();
        let next = || match core.troubles.news.borrow_mut().pop_front() {
            Some(trouble) => Some(Some(trouble)),
            None => core.check_open().is_err().then_some(None),
        };
        core.troubles.told.until(next).await
    }
}

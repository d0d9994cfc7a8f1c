//! What nodes hold of the map in copies of their own, should its store be lost; and the map as a node sees it that waits for them.
//!
//! ```text
//!   transact, get      names and layers: answered when enough nodes hold the change      [`Copies::agree`]
//!   list, watch        names and layers: told when this node's own copy holds them       [`Copies::see`]
//!   everything else    who leads and who counts in a group (its members write that down themselves), how full devices are,
//!                      who is there: as the store has it
//! ```
//!
//! Revisions come to copies in their order, so that a copy which holds a change holds all before it. What acknowledged writes
//! depend on (a volume, its layers, its table) is therefore in copies before a node acts on it: a head writes to a new top only when
//! enough nodes could say, without the map, that there is such a layer.
//!
//! **Enough** ([`Tally`]): more than half of the nodes that are up and can keep a copy, and three at most: as many as a write has
//! copies. A node that is gone or whose disk is full does not count; one that is there and has not heard of the change does.

use crate::map::{
    Event, KeyValue, LeaseId, Listing, MapError, MapFuture, MapStore, Members, Outcome, Revision, Transaction, Watch,
};
use crate::records::keys;
use runtime::channel::{CrossReceiver, CrossSender, cross};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use types::{Mutant, mutant};

/// Nodes that hold a change are enough when they are so many, however large the cluster.
const HOLDERS_MAX: usize = 3;
/// A copy that is being written for longer than this is not waited for: the disk hangs.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// What a node was told by the map and its copy has not heard of is kept from it for no longer: a fault of ours must not stop it.
const SEE_MAX: Duration = Duration::from_secs(30);
/// Who waits for a copy looks so often whether it hangs.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Questions that wait to be asked.
const QUESTIONS_MAX: usize = 1024;

/// Whether a node's copy holds the map through a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It does, durably.
    Yes,
    /// It has not heard of it yet.
    Behind,
    /// The node keeps none: its disk is full or hangs, or it is a client or of an older release, or it is gone.
    Cannot,
}

/// Why the copy of a node that is to keep one does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyTrouble {
    /// It cannot be written; that is tried again.
    #[error("keeps no copy of the cluster map: {0}")]
    Unwritten(String),
    /// A write of it has not ended for long.
    #[error("keeps no copy of the cluster map: for more than {} s a write of it has not ended", WRITE_MAX.as_secs())]
    Hangs,
    /// The node was told more than the copy holds, for long.
    #[error("has a copy of the cluster map that is behind: for more than {} s it has not held what the map says", SEE_MAX.as_secs())]
    Behind,
    /// What keeps it has ended.
    #[error("keeps no copy of the cluster map any more: what does so has ended")]
    Ended,
}

/// What nodes have said of one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    up: usize,
    held: usize,
}

impl Tally {
    /// Of so many nodes that are up.
    pub fn new(up: usize) -> Self {
        Self { up, held: 0 }
    }

    /// One of them has said this.
    pub fn note(&mut self, said: Held) {
        match said {
            Held::Yes => self.held += 1,
            Held::Behind => {}
            Held::Cannot => self.up -= 1,
        }
    }

    /// So many have to hold it.
    pub fn needed(&self) -> usize {
        (self.up / 2 + 1).min(HOLDERS_MAX)
    }

    /// Whether it is held by enough.
    pub fn is_enough(&self) -> bool {
        self.held >= self.needed()
    }

    /// What is said if no more answers come.
    pub fn error(&self) -> MapError {
        MapError::NotCopied { held: self.held, needed: self.needed() }
    }
}

/// Whether enough nodes hold the map through a revision.
pub struct Question {
    /// The revision.
    pub through: Revision,
    /// Takes the answer.
    pub reply: CrossSender<Result<(), MapError>>,
}

enum Doing {
    /// It waits for what the map says next.
    Hears,
    /// It writes, since then.
    Writes(Instant),
    /// It cannot, or there is none.
    Nothing,
}

struct State {
    held: Revision,
    doing: Doing,
    /// It could not be written, and was not since.
    trouble: Option<CopyTrouble>,
    /// The node went on through here without it.
    behind: Option<Revision>,
    /// Enough nodes hold the map through here.
    agreed: Revision,
    waiting: Vec<CrossSender<()>>,
}

/// What is known of copies in one process. Shared by its cores and by who keeps the copy.
pub struct Copies {
    state: Mutex<State>,
    asker: Mutex<Option<CrossSender<Question>>>,
}

impl Copies {
    /// Of a node that keeps one: what it holds is not known yet.
    pub fn of_a_node() -> Arc<Self> {
        Self::new(Doing::Hears)
    }

    /// Of a process that keeps none.
    pub fn of_others() -> Arc<Self> {
        Self::new(Doing::Nothing)
    }

    fn new(doing: Doing) -> Arc<Self> {
        let state =
            State { held: Revision(0), doing, trouble: None, behind: None, agreed: Revision(0), waiting: Vec::new() };
        Arc::new(Self { state: Mutex::new(state), asker: Mutex::new(None) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        for waiting in state.waiting.drain(..) {
            // Who does not wait any more need not know.
            let _ = waiting.try_send(());
        }
    }

    /// This node's copy is begun anew, of a map that may be another one.
    pub fn begins(&self) {
        self.change(|state| (state.held, state.agreed) = (Revision(0), Revision(0)));
    }

    /// This node's copy is being written.
    pub fn writes(&self) {
        self.state().doing = Doing::Writes(Instant::now());
    }

    /// This node's copy holds the map through here, durably.
    pub fn holds(&self, through: Revision) {
        self.change(|state| {
            // What a copy begins with is all of the map, which may be another one.
            if state.held == Revision(0) || state.behind.is_some_and(|behind| behind <= through) {
                state.behind = None;
            }
            (state.held, state.doing, state.trouble) = (through, Doing::Hears, None);
        });
    }

    /// This node cannot keep a copy, until it says otherwise.
    pub fn holds_nothing(&self, trouble: CopyTrouble) {
        self.change(|state| {
            (state.held, state.doing, state.trouble) = (Revision(0), Doing::Nothing, Some(trouble));
        });
    }

    /// Why this node's copy does not count; nothing, if it does, or there is to be none.
    pub fn trouble(&self) -> Option<CopyTrouble> {
        let state = self.state();
        match state.doing {
            Doing::Writes(since) if since.elapsed() > WRITE_MAX => Some(CopyTrouble::Hangs),
            _ => state.trouble.clone().or(state.behind.map(|_| CopyTrouble::Behind)),
        }
    }

    /// Whether this node's copy holds the map through here, or does so in time.
    pub async fn own(&self, through: Revision, patience: Duration) -> Held {
        let began = runtime::now();
        loop {
            let mut changed = {
                let mut state = self.state();
                if state.held >= through {
                    return Held::Yes;
                }
                match state.doing {
                    Doing::Nothing => return Held::Cannot,
                    Doing::Writes(since) if since.elapsed() > WRITE_MAX => return Held::Cannot,
                    Doing::Writes(_) | Doing::Hears => {}
                }
                let (tell, changed) = cross(1);
                state.waiting.push(tell);
                changed
            };
            let left = patience.saturating_sub(runtime::now().since(began));
            if left.is_zero() {
                return Held::Behind;
            }
            // Woken or not, it is looked at again.
            let _ = runtime::timeout(left.min(LOOK_EVERY), changed.recv()).await;
        }
    }

    /// Questions that others than this node have to answer come to whoever has this, from now on.
    pub fn questions(&self) -> CrossReceiver<Question> {
        let (ask, questions) = cross(QUESTIONS_MAX);
        *self.asker.lock().unwrap_or_else(PoisonError::into_inner) = Some(ask);
        questions
    }

    /// Waits until this node's own copy holds what it is about to be told; where it can keep none, there is nothing to wait for.
    async fn see(&self, through: Revision) {
        if self.own(through, SEE_MAX).await != Held::Behind {
            return;
        }
        log::error!(
            "the map is at revision {}, and this node's copy of it has not heard of that for {} s: it goes on without",
            through.0,
            SEE_MAX.as_secs()
        );
        let mut state = self.state();
        if state.held < through {
            state.behind = state.behind.max(Some(through));
        }
    }

    /// Waits until enough nodes hold the map through here.
    ///
    /// # Errors
    /// [`MapError::NotCopied`].
    pub async fn agree(&self, through: Revision) -> Result<(), MapError> {
        let held = {
            let state = self.state();
            if mutant(Mutant::AnsweredBeforeCopied) || state.agreed >= through {
                return Ok(());
            }
            state.held
        };
        // As far as this one is, others are: so a question answers those that come next.
        if held > through && self.ask(held).await.is_ok() {
            return Ok(());
        }
        self.ask(through).await
    }

    async fn ask(&self, through: Revision) -> Result<(), MapError> {
        let asker = self.asker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (reply, mut answer) = cross(1);
        let asked = match asker {
            Some(asker) => asker.send(Question { through, reply }).await.is_ok(),
            None => false,
        };
        let agreed = match asked {
            true => answer.recv().await.unwrap_or(Err(MapError::Unknown)),
            // Nobody can be asked: this node begins, or ends.
            false => match self.own(through, WRITE_MAX).await {
                Held::Yes | Held::Cannot => return Ok(()),
                Held::Behind => Err(Tally::new(1).error()),
            },
        };
        if agreed.is_ok() {
            self.change(|state| state.agreed = state.agreed.max(through));
        }
        agreed
    }
}

/// The map as a node or a client sees it: see the module.
pub struct CopiedMap {
    map: Arc<dyn MapStore>,
    copies: Arc<Copies>,
}

impl CopiedMap {
    /// A map whose changes wait for these copies. Who keeps the copy asks `map` itself.
    pub fn new(map: Arc<dyn MapStore>, copies: Arc<Copies>) -> Arc<Self> {
        Arc::new(Self { map, copies })
    }
}

impl MapStore for CopiedMap {
    fn request_deadline(&self) -> Duration {
        self.map.request_deadline()
    }

    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        let (found, is_copied) = (self.map.get(key), keys::is_copied(key));
        Box::pin(async move {
            let found = found.await?;
            // Who finds that a change of its own was done has not been told so: this is the answer.
            if let Some(found) = found.as_ref().filter(|_| is_copied) {
                self.copies.agree(found.modified).await?;
            }
            Ok(found)
        })
    }

    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        let (listing, is_copied) = (self.map.list(prefix), prefix.is_empty() || keys::is_copied(prefix));
        Box::pin(async move {
            let listing = listing.await?;
            if is_copied {
                self.copies.see(listing.revision).await;
            }
            Ok(listing)
        })
    }

    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        let is_copied = transaction.changes.iter().any(|change| keys::is_copied(change.key()));
        Box::pin(async move {
            let outcome = self.map.transact(transaction).await?;
            if let (Outcome::Committed(revision), true) = (outcome, is_copied) {
                self.copies.agree(revision).await?;
            }
            Ok(outcome)
        })
    }

    fn watch(&self, prefix: &str, from: Revision) -> Box<dyn Watch> {
        let copies = self.copies.clone();
        Box::new(CopiedWatch { watch: self.map.watch(prefix, from), copies, heard: None })
    }

    fn compact(&self, through: Revision) -> MapFuture<'_, ()> {
        self.map.compact(through)
    }

    fn grant(&self, time_to_live: Duration) -> MapFuture<'_, LeaseId> {
        self.map.grant(time_to_live)
    }

    fn keep_alive(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.map.keep_alive(lease)
    }

    fn revoke(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.map.revoke(lease)
    }

    fn members(&self) -> Members {
        self.map.members()
    }

    fn copies(&self) -> Option<Arc<Copies>> {
        Some(self.copies.clone())
    }
}

struct CopiedWatch {
    watch: Box<dyn Watch>,
    copies: Arc<Copies>,
    /// What the copy is waited for with: a call that is dropped loses nothing.
    heard: Option<Vec<Event>>,
}

impl Watch for CopiedWatch {
    fn next(&mut self) -> MapFuture<'_, Vec<Event>> {
        Box::pin(async move {
            if self.heard.is_none() {
                self.heard = Some(self.watch.next().await?);
            }
            let of_copies = self.heard.iter().flatten().rev().find(|event| keys::is_copied(&event.key));
            if let Some(revision) = of_copies.map(|event| event.revision) {
                self.copies.see(revision).await;
            }
            Ok(self.heard.take().unwrap_or_default())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(up: usize, said: &[Held]) -> (bool, usize) {
        let mut tally = Tally::new(up);
        said.iter().for_each(|said| tally.note(*said));
        (tally.is_enough(), tally.needed())
    }

    #[test]
    fn enough_is_more_than_half_and_three_at_most() {
        use Held::{Behind, Cannot, Yes};
        for (up, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (100, 3)] {
            assert_eq!(of(up, &[]), (false, needed), "of {up}");
        }
        assert_eq!(of(3, &[Yes]), (false, 2));
        assert_eq!(of(3, &[Yes, Yes]), (true, 2));
        assert_eq!(of(2, &[Yes, Behind]), (false, 2), "one that has not heard of it is there");
        assert_eq!(of(2, &[Yes, Cannot]), (true, 1), "one whose disk is full is not");
        assert_eq!(of(3, &[Cannot, Cannot, Yes]), (true, 1));
        assert_eq!(of(3, &[Cannot, Cannot, Cannot]), (false, 1), "nobody is not enough");
    }
}

//! Commands that wait for longer than a host should: a group serves nobody, so the namespace is told to be of no use here, what
//! waits is answered, and the host asks again when it is of use (H16). The other namespaces of its controller live on, where a
//! command that is never answered would make the host reset all of it.
//!
//! ```text
//!   command ── 10 s without an answer ──► given up: its outcome is unknown, and holds its place in the order (H5)
//!                │                                          │
//!                ▼                                          ▼
//!   volume stopped, on all cores ◄── looked at each second ── all outcomes known here, and the group serves ──► served again
//! ```
//!
//! Nor is there any use in waiting at a head of which another node has taken the volume: what it asked groups for may never be heard,
//! and the host is to ask the new one.
//!
//! Whoever waits is in a list of its core, with its waker, from when it first had to wait: no timer per command, no allocation.
//! A task of the core looks through it twice a second.
//!
//! Of a volume or snapshot that is taken away nobody waits any longer, nor do those who would wait for ever: what is changed
//! next waits for them.

use crate::api::Standing;
use crate::head::{Head, VolumeState};
use crate::snapshot::SnapshotState;
use crate::spec::VolumeSpec;
use replication::{Access, GroupError};
use runtime::{Instant, now};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use types::{GroupId, Mutant, VolumeId, mutant};

/// A command waits so long for its group (H16).
pub(crate) const GROUP_PATIENCE: Duration = Duration::from_secs(10);
/// Once its volume has stopped, is served elsewhere, or is gone, so long: what is under way at groups that serve ends.
const STOPPED_PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks at who waits.
const LOOK_WAIT: Duration = Duration::from_millis(500);
/// Between two looks at whether a stopped group serves again.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// Who waits.
#[derive(Clone)]
pub(crate) struct Who {
    pub(crate) volume: VolumeId,
    /// The snapshot that it reads, where that is known.
    pub(crate) snapshot: Option<Rc<SnapshotState>>,
    /// When it was called.
    pub(crate) since: Instant,
    /// However long it takes: see [`Session::that_waits`](crate::session::Session::that_waits).
    pub(crate) is_patient: bool,
}

/// A command that waits.
struct Waiter {
    who: Who,
    waker: Waker,
    is_over: bool,
}

/// The commands of one core that wait, and groups of volumes that it found stopped.
#[derive(Default)]
pub(crate) struct Patience {
    waiters: RefCell<Vec<Option<Waiter>>>,
    free: RefCell<Vec<u32>>,
    stopped: RefCell<BTreeSet<(VolumeId, GroupId)>>,
}

/// It took too long.
pub(crate) struct TooLong;

/// A place in the list, until it is dropped.
struct Waiting<'a>(&'a Patience, u32);

impl Patience {
    fn begin(&self, waiter: Waiter) -> Waiting<'_> {
        let mut waiters = self.waiters.borrow_mut();
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            waiters.push(None);
            (waiters.len() - 1) as u32
        });
        waiters[place as usize] = Some(waiter);
        Waiting(self, place)
    }

    /// What comes of `future`, for this command. Given up, it is for the caller to drop.
    // Borrowed: each command's task would carry a future that is moved in here twice.
    pub(crate) async fn wait<T>(
        &self,
        who: impl Fn() -> Who,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, TooLong> {
        let mut waiting: Option<Waiting<'_>> = None;
        poll_fn(|cx| {
            if let Poll::Ready(done) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            match &waiting {
                None => waiting = Some(self.begin(Waiter { who: who(), waker: cx.waker().clone(), is_over: false })),
                Some(Waiting(_, place)) => {
                    let mut waiters = self.waiters.borrow_mut();
                    let waiter = waiters[*place as usize].as_mut().expect("it waits");
                    if waiter.is_over {
                        return Poll::Ready(Err(TooLong));
                    }
                    waiter.waker.clone_from(cx.waker());
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Which groups serve nobody, for which volumes.
    pub(crate) fn stopped(&self) -> Vec<(VolumeId, GroupId)> {
        self.stopped.borrow().iter().copied().collect()
    }

    /// Gives up whoever has waited too long.
    fn look(&self, is_of_no_use: impl Fn(VolumeId) -> bool, is_gone: impl Fn(&Who) -> bool) {
        let at = now();
        let mut over = Vec::new();
        for waiter in self.waiters.borrow_mut().iter_mut().flatten().filter(|waiter| !waiter.is_over) {
            let who = &waiter.who;
            let waited = at.since(who.since);
            let is_too_long = waited >= GROUP_PATIENCE || waited >= STOPPED_PATIENCE && is_of_no_use(who.volume);
            if is_too_long && !who.is_patient && !mutant(Mutant::StoppedNotSaid)
                || waited >= STOPPED_PATIENCE && is_gone(who)
            {
                waiter.is_over = true;
                over.push(waiter.waker.clone());
            }
        }
        over.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Self(patience, place) = self;
        patience.waiters.borrow_mut()[*place as usize] = None;
        patience.free.borrow_mut().push(*place);
    }
}

/// Looks after the waiting commands of a core, as long as it lives.
pub(crate) async fn look_after(head: Weak<Head>) {
    loop {
        runtime::sleep(LOOK_WAIT).await;
        let Some(head) = head.upgrade() else { return };
        let is_of_no_use = |id| {
            let volume = head.directory.by_id(id);
            volume.is_some_and(|volume| volume.state.is_stopped() || volume.state.is_left())
        };
        let is_gone = |who: &Who| {
            let is_gone = who.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_gone());
            (is_gone || head.is_given_up(who.volume)) && !mutant(Mutant::GoneWaitedFor)
        };
        head.patience.look(is_of_no_use, is_gone);
    }
}

/// A part on this core waited too long for its group: the volume is of no use here until the group serves.
#[cold]
pub(crate) fn note_stopped(head: &Rc<Head>, spec: &VolumeSpec, group: &Rc<Access>) {
    let (volume, id) = (spec.info.id, group.id());
    if !head.patience.stopped.borrow_mut().insert((volume, id)) {
        return;
    }
    log::warn!(
        "volume {}: group {id} serves nobody for {} s: hosts are told to wait",
        spec.info.name,
        GROUP_PATIENCE.as_secs()
    );
    tell(head, volume, (head.index, id), true);
    runtime::spawn(until_it_serves(head.clone(), volume, group.clone()));
}

/// All cores know that the volume has stopped, or that this core knows of that group no more.
fn tell(head: &Rc<Head>, volume: VolumeId, found: (u16, GroupId), has_stopped: bool) {
    for core in 0..head.cores() {
        head.spawn_on(core, move |head| {
            Box::pin(async move {
                if let Some(volume) = head.directory.by_id(volume)
                    && volume.state.note_stopped(found, has_stopped)
                {
                    head.directory.bump();
                }
            })
        });
    }
}

async fn until_it_serves(head: Rc<Head>, volume: VolumeId, group: Rc<Access>) {
    loop {
        runtime::sleep(PROBE_WAIT).await;
        // Of a volume that is not served here there is nothing to wait for.
        let Some(spec) = head.spec_of(volume) else { break };
        if head.has_orphans(volume) {
            continue;
        }
        match runtime::timeout(PROBE_WAIT, group.tell(spec.stamp())).await {
            Ok(Ok(())) => break,
            Ok(Err(GroupError::OldHead { seen, .. })) => {
                head.deposed(volume, seen);
                break;
            }
            // Whoever asks is to be told why.
            Ok(Err(error)) if !group.may_serve_later(&error) => break,
            Ok(Err(_)) | Err(_) => {}
        }
    }
    head.patience.stopped.borrow_mut().remove(&(volume, group.id()));
    tell(&head, volume, (head.index, group.id()), false);
}

/// What groups of the volume have stopped, as a core has heard.
#[derive(Default)]
pub(crate) struct StoppedGroups(RefCell<BTreeSet<(u16, GroupId)>>);

impl StoppedGroups {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The volume lies in other groups from now on.
    pub(crate) fn forget(&self) {
        self.0.borrow_mut().clear();
    }

    /// Whether that changes whether there are any.
    pub(crate) fn note(&self, found: (u16, GroupId), has_stopped: bool) -> bool {
        let mut all = self.0.borrow_mut();
        let before = all.is_empty();
        match has_stopped {
            true => all.insert(found),
            false => all.remove(&found),
        };
        all.is_empty() != before
    }
}

impl VolumeState {
    /// Whether a group of it serves nobody.
    pub(crate) fn is_stopped(&self) -> bool {
        !self.stopped.is_empty()
    }

    /// Whether another node serves it, and what waits here has to be asked there.
    pub(crate) fn is_left(&self) -> bool {
        self.standing() == Standing::Elsewhere && !mutant(Mutant::ElsewhereWaitedFor)
    }
}

//! Commands that wait for their volume's limit, on one core, in the order in which they came.
//!
//! ```text
//!   Volume::hold ── nobody waits, and it may begin ─► None: go on
//!        └──────── else ─► Held, at the end of the line ── its turn, or nothing to wait for any more ─► resolves
//! ```
//!
//! What waits here is not admitted: it has no place in any order, acts on nothing, and whoever changes or takes the
//! volume away does not wait for it. The door goes on with the command as if it had come when its turn came. The first
//! in line alone has taken its share of the limit, so that cores take turns, and all others behind it obey whatever the
//! limit is by then.

use crate::head::VolumeState;
use crate::limit::{Cost, Limiter};
use runtime::{Instant, now};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use types::{Mutant, mutant};

/// How often is looked whether the limit is another one, and whether somebody does not wait any more.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Shortest sleep: commands whose turns are closer together begin together. The burst makes up for it.
const STEP: Duration = Duration::from_millis(1);

/// A command that waits. Resolves when it may begin, or has nothing to wait for any more: the limit is gone, or the
/// volume, or who it is for. Dropped, it gives its place up.
pub struct Held(Rc<Waiter>);

struct Waiter {
    cost: Cost,
    /// Who it is for does not want it any more.
    is_over: Box<dyn Fn() -> bool>,
    may_go: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// When it may begin, under which limit: known once it is the first.
    due: RefCell<Option<(Arc<Limiter>, Instant)>>,
}

impl Waiter {
    fn let_go(&self) {
        self.may_go.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// When it may begin under this limit.
    fn due_under(&self, limiter: &Arc<Limiter>) -> Instant {
        let mut due = self.due.borrow_mut();
        match &*due {
            Some((under, at)) if Arc::ptr_eq(under, limiter) || mutant(Mutant::OldLimitObeyed) => *at,
            _ => {
                let at = limiter.take(self.cost, now());
                *due = Some((limiter.clone(), at));
                at
            }
        }
    }
}

impl Future for Held {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.may_go.get() {
            return Poll::Ready(());
        }
        self.0.waker.replace(Some(cx.waker().clone()));
        Poll::Pending
    }
}

/// The line of one volume on one core.
#[derive(Default)]
pub(crate) struct Line {
    waiting: RefCell<VecDeque<Rc<Waiter>>>,
    is_served: Cell<bool>,
}

impl VolumeState {
    /// See [`Volume::hold`](crate::Volume::hold).
    pub(crate) fn hold<F: Fn() -> bool + 'static>(
        self: &Rc<Self>,
        cost: Cost,
        is_over: impl FnOnce() -> F,
    ) -> Option<Held> {
        let limiter = self.gate.limiter()?;
        let due = if self.line.waiting.borrow().is_empty() {
            let (now, at) = (now(), limiter.take(cost, now()));
            if at <= now {
                return None;
            }
            Some((limiter, at))
        } else {
            None
        };
        let (may_go, waker, due) = (Cell::new(false), RefCell::default(), RefCell::new(due));
        let waiter = Rc::new(Waiter { cost, is_over: Box::new(is_over()), may_go, waker, due });
        self.line.waiting.borrow_mut().push_back(waiter.clone());
        if !self.line.is_served.replace(true) {
            runtime::spawn(self.clone().serve_line());
        }
        Some(Held(waiter))
    }

    /// Lets go who waits, one after the other, until nobody does.
    async fn serve_line(self: Rc<Self>) {
        let mut looked = now();
        loop {
            if now().since(looked) >= LOOK_PERIOD {
                looked = now();
                self.line.let_go_who_is_over();
            }
            let next = match self.line.first() {
                None => break,
                Some(first) => match self.gate.limiter().filter(|_| !self.is_gone()) {
                    Some(limiter) if !(first.is_over)() => first.due_under(&limiter),
                    _ => now(),
                },
            };
            if next <= now() {
                self.line.let_go_first();
            } else {
                runtime::sleep_until(next.max(now() + STEP).min(looked + LOOK_PERIOD)).await;
            }
        }
        self.line.is_served.set(false);
    }
}

impl Line {
    /// Who is first; those are left out that gave their place up.
    fn first(&self) -> Option<Rc<Waiter>> {
        let mut waiting = self.waiting.borrow_mut();
        while waiting.front().is_some_and(|first| Rc::strong_count(first) == 1) {
            waiting.pop_front();
        }
        waiting.front().cloned()
    }

    fn let_go_first(&self) {
        let first = self.waiting.borrow_mut().pop_front();
        first.inspect(|first| first.let_go());
    }

    fn let_go_who_is_over(&self) {
        let mut over = Vec::new();
        self.waiting.borrow_mut().retain(|waiter| {
            let is_over = (waiter.is_over)();
            if is_over {
                over.push(waiter.clone());
            }
            !is_over && Rc::strong_count(waiter) > 1
        });
        over.iter().for_each(|waiter| waiter.let_go());
    }
}

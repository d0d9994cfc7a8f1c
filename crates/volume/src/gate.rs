//! Where the parts of a volume's commands pass before they act on one core: here what they act on, the volume's layers
//! and size, is changed under them.
//!
//! ```text
//!   part, its turn in the chunk ─► enter ─► acts under this term ─► left (dropped)
//!                                    ▲
//!   close ── new parts wait ── the old term ends: nobody acts under it ── open(new term) ── those who wait go on
//! ```
//!
//! A snapshot closes the gates of all cores, waits until the old term has ended on each, and opens them: no command is
//! before it on one core and behind another, later one on the next.

use crate::spec::VolumeSpec;
use runtime::channel::WaitList;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// One core's gate of one volume.
pub(crate) struct Gate {
    term: RefCell<Rc<Term>>,
    closed: Cell<bool>,
    opened: WaitList,
}

/// What commands act on, from one opening of the gate to the next.
pub(crate) struct Term {
    pub(crate) spec: Arc<VolumeSpec>,
    acting: Cell<u32>,
    /// Somebody waits for the end.
    watched: Cell<bool>,
    ended: WaitList,
}

/// A part that acts. Left when dropped.
pub(crate) struct Entered(Rc<Term>);

impl Gate {
    pub(crate) fn new(spec: Arc<VolumeSpec>) -> Self {
        Self { term: RefCell::new(Term::new(spec)), closed: Cell::new(false), opened: WaitList::default() }
    }

    /// What the volume is now.
    pub(crate) fn term(&self) -> Rc<Term> {
        self.term.borrow().clone()
    }

    /// Lets a part in, as soon as the gate is open.
    pub(crate) async fn enter(&self) -> Entered {
        if self.closed.get() {
            Box::pin(self.opened.until(|| (!self.closed.get()).then_some(()))).await;
        }
        let term = self.term();
        term.acting.set(term.acting.get() + 1);
        Entered(term)
    }

    /// Lets nobody in any more. Returns the term that ends when those inside have left.
    pub(crate) fn close(&self) -> Rc<Term> {
        self.closed.set(true);
        self.term()
    }

    /// What the volume is from now on; a closed gate opens.
    pub(crate) fn open(&self, spec: Arc<VolumeSpec>) {
        self.term.replace(Term::new(spec));
        self.closed.set(false);
        self.opened.wake_all();
    }
}

impl Term {
    fn new(spec: Arc<VolumeSpec>) -> Rc<Self> {
        Rc::new(Self { spec, acting: Cell::new(0), watched: Cell::new(false), ended: WaitList::default() })
    }

    /// Resolves when nobody acts under it. It must have been closed, or replaced.
    pub(crate) async fn end(&self) {
        self.watched.set(true);
        self.ended.until(|| (self.acting.get() == 0).then_some(())).await;
    }
}

impl Entered {
    pub(crate) fn spec(&self) -> &VolumeSpec {
        &self.0.spec
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let acting = self.0.acting.get() - 1;
        self.0.acting.set(acting);
        if acting == 0 && self.0.watched.get() {
            self.0.ended.wake_all();
        }
    }
}

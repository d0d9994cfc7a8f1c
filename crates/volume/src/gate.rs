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
//! before it on one core and behind another, later one on the next. A term that was replaced while commands acted under
//! it ends before the one that came after it: they write to the same layer.
//!
//! A part that another core asked for while the volume is not known here (it is being added) finds no gate.
//! It acts under what it was sent with, and is counted among the [`Strays`]: who closes a gate waits for these too.

use crate::limit::Limiter;
use crate::spec::VolumeSpec;
use runtime::channel::WaitList;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use types::{LayerId, Mutant, VolumeId, mutant};

/// One core's gate of one volume.
pub(crate) struct Gate {
    term: RefCell<Rc<Term>>,
    closed: Cell<bool>,
    opened: WaitList,
}

/// What commands act on, from one opening of the gate to the next.
pub(crate) struct Term {
    pub(crate) spec: Arc<VolumeSpec>,
    /// The one before, if somebody acted under it, or under one still earlier, when it was replaced.
    earlier: Option<Rc<Self>>,
    acting: Cell<u32>,
    /// Somebody waits for the end.
    watched: Cell<bool>,
    ended: WaitList,
}

/// A part that acts. Left when dropped.
pub(crate) struct Entered(Rc<Term>);

impl Gate {
    pub(crate) fn new(spec: Arc<VolumeSpec>) -> Self {
        Self { term: RefCell::new(Term::new(spec, None)), closed: Cell::new(false), opened: WaitList::default() }
    }

    /// What the volume is now.
    pub(crate) fn term(&self) -> Rc<Term> {
        self.term.borrow().clone()
    }

    /// Whether who comes now has to wait.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// What the volume may do in a second, if that is limited.
    pub(crate) fn limiter(&self) -> Option<Arc<Limiter>> {
        self.term.borrow().spec.limiter.clone()
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
        let earlier = Term::not_over(self.term());
        self.term.replace(Term::new(spec, earlier));
        self.closed.set(false);
        self.opened.wake_all();
    }

    /// Adds the layers that are written to here: that of the term now, and those of all terms under which somebody
    /// acts.
    pub(crate) fn written_to(&self, layers: &mut BTreeSet<LayerId>) {
        let term = self.term();
        layers.insert(term.spec.top());
        layers.extend(term.with_earlier().filter(|term| term.acting.get() > 0).map(|term| term.spec.top()));
    }
}

impl Term {
    fn new(spec: Arc<VolumeSpec>, earlier: Option<Rc<Self>>) -> Rc<Self> {
        Rc::new(Self { spec, earlier, acting: Cell::new(0), watched: Cell::new(false), ended: WaitList::default() })
    }

    /// The newest of this one and those before it under which somebody acts.
    fn not_over(mut term: Rc<Self>) -> Option<Rc<Self>> {
        while term.acting.get() == 0 {
            term = term.earlier.clone()?;
        }
        Some(term)
    }

    /// Resolves when nobody acts under it or one before it. It must have been closed, or replaced.
    pub(crate) async fn end(&self) {
        for term in self.with_earlier() {
            term.watched.set(true);
            term.ended.until(|| (term.acting.get() == 0).then_some(())).await;
        }
    }

    /// This one and those before it.
    fn with_earlier(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |term| {
            term.earlier.as_deref().filter(|_| !mutant(Mutant::EarlierTermNotAwaited))
        })
    }
}

/// The parts that act on this core outside of all gates: volume, and layer that is written to. Few, and rarely any.
#[derive(Default)]
pub(crate) struct Strays {
    acting: RefCell<Vec<(VolumeId, LayerId)>>,
    left: WaitList,
}

/// A part that acts outside of all gates. Left when dropped.
pub(crate) struct Stray<'a>(&'a Strays, (VolumeId, LayerId));

impl Strays {
    pub(crate) fn enter(&self, spec: &VolumeSpec) -> Stray<'_> {
        let acts_on = (spec.info.id, spec.top());
        self.acting.borrow_mut().push(acts_on);
        Stray(self, acts_on)
    }

    /// Resolves when no part of the volume acts outside of its gate.
    pub(crate) async fn end(&self, volume: VolumeId) {
        let is_over = || self.acting.borrow().iter().all(|(of, _)| *of != volume);
        self.left.until(|| is_over().then_some(())).await;
    }

    /// Adds the layers that they write to.
    pub(crate) fn written_to(&self, layers: &mut BTreeSet<LayerId>) {
        layers.extend(self.acting.borrow().iter().map(|(_, layer)| *layer));
    }
}

impl Drop for Stray<'_> {
    fn drop(&mut self) {
        let Self(strays, acts_on) = self;
        let mut acting = strays.acting.borrow_mut();
        let place = acting.iter().position(|other| other == acts_on).expect("it entered");
        acting.swap_remove(place);
        drop(acting);
        strays.left.wake_all();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Encryption, VolumeInfo};
    use crate::coding::Coding;
    use crate::spec::TableLayout;
    use cluster::{Compression, SlotTable};
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use types::{GroupId, LayerId, VolumeEpoch, VolumeId};

    fn spec() -> Arc<VolumeSpec> {
        spec_with(LayerId(1))
    }

    fn spec_with(top: LayerId) -> Arc<VolumeSpec> {
        let info = VolumeInfo {
            id: VolumeId(1),
            name: "a".to_owned(),
            size_bytes: 1 << 20,
            block_size_bytes: 4096,
            nsid: 1,
            nguid: [0; 16],
            layers: vec![top],
            pool: "default".into(),
            compression: Compression::Off,
            encryption: Encryption::Off,
            hosts: cluster::HostAccess::Any,
            limits: cluster::Limits::default(),
            head: types::NodeId(1),
            home: types::NodeId(1),
            placed: crate::Placed::Spread,
            is_draft: false,
        };
        let table = SlotTable::from_runs(&SlotTable::deal(&[GroupId(1)])).expect("a table");
        let table = Arc::new(TableLayout { id: 1, cores: vec![0], missing: BTreeSet::new(), only_node: None, table });
        Arc::new(VolumeSpec {
            info,
            family_seed: 0,
            epoch: VolumeEpoch(1),
            table,
            layer_records: Vec::new(),
            coding: Coding::default(),
            limiter: None,
            rollbacks: 0,
        })
    }

    fn is_over(term: &Term) -> bool {
        pin!(term.end()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn entered(gate: &Gate) -> Entered {
        let std::task::Poll::Ready(entered) = pin!(gate.enter()).poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the gate is open")
        };
        entered
    }

    #[test]
    fn a_term_ends_after_those_that_it_replaced() {
        let gate = Gate::new(spec());
        let first = entered(&gate);
        gate.open(spec());
        gate.open(spec());
        let third = entered(&gate);
        let closed = gate.close();
        assert!(!is_over(&closed));
        drop(third);
        assert!(!is_over(&closed), "somebody acts under the first term");
        drop(first);
        assert!(is_over(&closed));
    }

    #[test]
    fn a_layer_is_written_to_until_the_last_term_over_it_has_ended() {
        let written_to = |gate: &Gate| {
            let mut layers = BTreeSet::new();
            gate.written_to(&mut layers);
            layers.into_iter().map(|layer| layer.0).collect::<Vec<_>>()
        };
        let gate = Gate::new(spec_with(LayerId(1)));
        let (first, again) = (entered(&gate), entered(&gate));
        gate.open(spec_with(LayerId(2)));
        let second = entered(&gate);
        gate.open(spec_with(LayerId(3)));
        assert_eq!(written_to(&gate), [1, 2, 3]);
        drop(first);
        drop(second);
        assert_eq!(written_to(&gate), [1, 3]);
        drop(again);
        assert_eq!(written_to(&gate), [3]);
    }

    #[test]
    fn what_is_over_is_not_kept() {
        let gate = Gate::new(spec());
        drop(entered(&gate));
        gate.open(spec());
        assert!(gate.term().earlier.is_none());
    }
}

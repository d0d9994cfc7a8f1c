//! Requests of this core that wait for their answer, by number. As long as their connection lives nothing is lost: whoever
//! serves one answers in the end, and a connection whose other end does not move is closed. What was asked of a store that is
//! known to lead no more ends as well.

use crate::node::Link;
use crate::wire::{Answer, Refusal};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use types::{GroupId, StoreId};

/// One that waits, or that was answered and not looked at.
struct Slot {
    link: Rc<Link>,
    group: GroupId,
    /// Who was asked.
    store: StoreId,
    answer: Option<Answer>,
    waker: Option<Waker>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Calls {
    slots: RefCell<HashMap<u64, Slot, FixedState>>,
    last: Cell<u64>,
}

impl Calls {
    /// The number of the next request.
    pub(super) fn next(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// A request has left.
    pub(super) fn begin(self: &Rc<Self>, number: u64, link: &Rc<Link>, (group, store): (GroupId, StoreId)) -> Call {
        let slot = Slot { link: link.clone(), group, store, answer: None, waker: None };
        self.slots.borrow_mut().insert(number, slot);
        Call { calls: self.clone(), number }
    }

    /// An answer has come. Nobody may wait for it any more.
    pub(crate) fn answered(&self, number: u64, link: &Rc<Link>, answer: Answer) {
        let mut slots = self.slots.borrow_mut();
        if let Some(slot) = slots.get_mut(&number).filter(|slot| Rc::ptr_eq(&slot.link, link)) {
            slot.end(answer);
        }
    }

    /// Nothing more comes over a connection.
    pub(crate) fn lost(&self, link: &Rc<Link>) {
        self.end_all(|slot| Rc::ptr_eq(&slot.link, link));
    }

    /// Another store leads the group: who was asked before may be cut off from all but this node, and never answer.
    pub(crate) fn led_by_another(&self, group: GroupId, leads: StoreId) {
        self.end_all(|slot| slot.group == group && slot.store != leads);
    }

    fn end_all(&self, is_over: impl Fn(&Slot) -> bool) {
        let mut slots = self.slots.borrow_mut();
        let is_over = |slot: &Slot| slot.answer.is_none() && is_over(slot);
        let mut over: Vec<_> = slots.iter_mut().filter(|(_, slot)| is_over(slot)).collect();
        // The map's order is nobody's.
        over.sort_unstable_by_key(|(number, _)| **number);
        over.into_iter().for_each(|(_, slot)| slot.end(Answer::Refused(Refusal::Unknown)));
    }

    /// Requests that wait, or whose answer was not looked at.
    pub(crate) fn count(&self) -> usize {
        self.slots.borrow().len()
    }
}

impl Slot {
    fn end(&mut self, answer: Answer) {
        if self.answer.is_none() {
            self.answer = Some(answer);
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }
}

/// A request that has left. Dropped, its answer is for nobody.
pub(super) struct Call {
    calls: Rc<Calls>,
    number: u64,
}

impl Call {
    /// Once: dropped before it resolves it may be asked for again.
    pub(super) async fn answer(&mut self) -> Answer {
        poll_fn(|cx| {
            let mut slots = self.calls.slots.borrow_mut();
            let slot = slots.get_mut(&self.number).expect("it is there as long as the call");
            match slot.answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => {
                    slot.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.slots.borrow_mut().remove(&self.number);
    }
}

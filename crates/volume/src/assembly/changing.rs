//! Of each volume there is one change at a time. What one volume's change waits for (a group, a command, the map) is no other
//! volume's business.

use runtime::channel::WaitList;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use types::{Mutant, VolumeId, mutant};

/// Which volumes are being changed.
#[derive(Clone, Default)]
pub(super) struct Changing(Rc<State>);

#[derive(Default)]
struct State {
    taken: RefCell<BTreeSet<VolumeId>>,
    /// Volumes that are being made: of each nobody knows the number before it is there.
    making: Cell<u32>,
    freed: WaitList,
}

/// These volumes are changed by nobody else, until it is dropped.
pub(super) struct Alone(Changing, Vec<VolumeId>);

/// A volume is being made, until it is dropped.
pub(super) struct Making(Changing);

impl Changing {
    /// Waits until nobody changes the volume.
    pub(super) async fn one(&self, id: VolumeId) -> Alone {
        self.all(&[id]).await
    }

    /// Waits until nobody changes any of them: all are taken at once, so that no two wait for each other.
    pub(super) async fn all(&self, ids: &[VolumeId]) -> Alone {
        self.until(|| ids.iter().all(|id| self.is_free(*id)).then(|| self.take(ids.to_vec()))).await
    }

    /// Of these the ones that nobody changes now.
    pub(super) fn those_free(&self, ids: impl IntoIterator<Item = VolumeId>) -> Alone {
        self.take(ids.into_iter().filter(|id| self.is_free(*id)).collect())
    }

    /// Whether nobody changes it.
    pub(super) fn is_free(&self, id: VolumeId) -> bool {
        let taken = self.0.taken.borrow();
        match mutant(Mutant::OneChangeAtATime) {
            true => taken.is_empty(),
            false => !taken.contains(&id),
        }
    }

    /// A volume is being made: one that nobody here has heard of may be that.
    pub(super) fn making(&self) -> Making {
        self.0.making.set(self.0.making.get() + 1);
        Making(self.clone())
    }

    /// Whether a volume is being made.
    pub(super) fn is_making(&self) -> bool {
        self.0.making.get() > 0
    }

    /// Something may be free, or is to be looked at.
    pub(super) fn wake(&self) {
        self.0.freed.wake_all();
    }

    /// Resolves with what `find` finds: it is asked now, and whenever something may have become free.
    pub(super) async fn until<T>(&self, find: impl FnMut() -> Option<T>) -> T {
        self.0.freed.until(find).await
    }

    fn take(&self, ids: Vec<VolumeId>) -> Alone {
        self.0.taken.borrow_mut().extend(ids.iter().copied());
        Alone(self.clone(), ids)
    }
}

impl Alone {
    /// Whether it is about this volume.
    pub(super) fn is_with(&self, id: VolumeId) -> bool {
        self.1.contains(&id)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let Self(changing, ids) = self;
        let mut taken = changing.0.taken.borrow_mut();
        taken.retain(|id| !ids.contains(id));
        drop(taken);
        changing.wake();
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let state = &self.0.0;
        state.making.set(state.making.get() - 1);
        state.freed.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn only_who_wants_the_same_volume_waits() {
        let changing = Changing::default();
        let mut context = Context::from_waker(Waker::noop());
        let [a, b, c] = [1, 2, 3].map(VolumeId);
        let mut first = pin!(changing.one(a));
        let Poll::Ready(held) = first.as_mut().poll(&mut context) else { panic!("it is free") };
        let mut second = pin!(changing.one(a));
        assert!(second.as_mut().poll(&mut context).is_pending(), "it is taken");
        let both = [a, b];
        let mut both = pin!(changing.all(&both));
        assert!(both.as_mut().poll(&mut context).is_pending(), "one of them is taken");
        let mut other = pin!(changing.one(b));
        let Poll::Ready(other) = other.as_mut().poll(&mut context) else { panic!("who waits for two has neither") };
        let found = changing.those_free([a, b, c]);
        assert!(found.is_with(c) && !found.is_with(a) && !found.is_with(b));
        drop(held);
        let Poll::Ready(held) = second.as_mut().poll(&mut context) else { panic!("it is free again") };
        drop((held, other, found));
        assert!(both.as_mut().poll(&mut context).is_ready(), "all is free");
    }
}

//! Many small operations at once, a bounded number in flight: what opening and formatting do with segment headers.

use runtime::channel::WaitList;
use runtime::spawn;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

struct Progress<E> {
    next: Cell<u32>,
    running: Cell<usize>,
    error: RefCell<Option<E>>,
    ended: WaitList,
}

/// Calls `work` with 0..`count`, at most `at_once` at a time, and returns the first error. After an error nothing new
/// is begun.
pub(crate) async fn for_each<E, F, Work>(count: u32, at_once: usize, work: Work) -> Result<(), E>
where
    E: 'static,
    F: Future<Output = Result<(), E>> + 'static,
    Work: Fn(u32) -> F + 'static,
{
    let progress = Rc::new(Progress {
        next: Cell::new(0),
        running: Cell::new(at_once),
        error: RefCell::new(None),
        ended: WaitList::default(),
    });
    let work = Rc::new(work);
    for _ in 0..at_once {
        let (progress, work) = (progress.clone(), work.clone());
        spawn(async move {
            while progress.next.get() < count && progress.error.borrow().is_none() {
                let item = progress.next.replace(progress.next.get() + 1);
                if let Err(error) = work(item).await {
                    progress.error.borrow_mut().get_or_insert(error);
                }
            }
            progress.running.set(progress.running.get() - 1);
            progress.ended.wake_all();
        });
    }
    progress.ended.until(|| (progress.running.get() == 0).then_some(())).await;
    progress.error.take().map_or(Ok(()), Err)
}

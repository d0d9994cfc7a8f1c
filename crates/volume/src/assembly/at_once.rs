//! The same for many, some at a time: what each waits for at the map, the others need not.

use runtime::TaskHandle;
use runtime::channel::cross;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

/// Does this with all of them, so many at a time. What is dropped does nothing more.
pub(super) async fn each<T: 'static, F: Future<Output = ()> + 'static>(
    all: Vec<T>,
    at_once: usize,
    does: impl Fn(T) -> F + Clone + 'static,
) {
    let at_once = at_once.min(all.len());
    let left = Rc::new(RefCell::new(all.into_iter()));
    let (ends, mut all_have_ended) = cross::<()>(1);
    let one_by_one = |_| {
        let (left, does, ends) = (left.clone(), does.clone(), ends.clone());
        runtime::spawn(async move {
            let next = || left.borrow_mut().next();
            while let Some(one) = next() {
                does(one).await;
            }
            drop(ends);
        })
    };
    let _tasks = Tasks((0..at_once).map(one_by_one).collect());
    drop(ends);
    while all_have_ended.recv().await.is_ok() {}
}

/// They end with this.
struct Tasks(Vec<TaskHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.drain(..).for_each(TaskHandle::cancel);
    }
}

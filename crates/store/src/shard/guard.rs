//! An assertion that fails in a store stops that store, and nothing else of the process.
//!
//! Whatever runs on a shard's state runs under a guard: its tasks, and the calls of the floor above. A panic ends what
//! ran, the store acknowledges nothing from then on, and the superblock is told at which record it was: one that stops
//! there again when it is opened stays stopped, so that no loop of restarts can do harm.

use super::ShardCore;
use crate::error::AppendError;
use crate::format::RecordSeq;
use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

thread_local! {
    /// The record that the guarded code of this thread is at; 0: none in particular.
    static AT: Cell<RecordSeq> = const { Cell::new(RecordSeq(0)) };
}

/// What is done next is about this record.
pub(crate) fn at(record: RecordSeq) {
    AT.set(record);
}

/// An assertion that failed.
#[derive(Debug)]
pub(crate) struct Assertion {
    /// 0: at no record in particular.
    pub(crate) record: RecordSeq,
    pub(crate) message: String,
}

impl Assertion {
    fn new(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or("it says nothing of itself").replace('\n', " ");
        Self { record: AT.get(), message }
    }
}

/// Runs the call to its end, or to the assertion that fails in it.
pub(crate) fn catch<T>(call: impl FnOnce() -> T) -> Result<T, Assertion> {
    AT.set(RecordSeq(0));
    // What it leaves half done is never looked at again: the store stops.
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| Assertion::new(&*panic))
}

/// The same for a future.
pub(crate) async fn catch_in<F: Future>(future: F) -> Result<F::Output, Assertion> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch(|| future.as_mut().poll(cx)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(assertion) => Poll::Ready(Err(assertion)),
    })
    .await
}

impl ShardCore {
    /// Runs the call; an assertion that fails in it stops the store.
    pub(crate) fn guarded<T>(self: &Rc<Self>, call: impl FnOnce() -> T) -> Result<T, AppendError> {
        catch(call).map_err(|assertion| self.stop(&assertion))
    }

    /// The same for a future.
    pub(crate) async fn guarded_in<F: Future>(self: &Rc<Self>, future: F) -> Result<F::Output, AppendError> {
        catch_in(future).await.map_err(|assertion| self.stop(&assertion))
    }

    /// Starts a task of the shard.
    pub(crate) fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let core = self.clone();
        runtime::spawn(async move {
            // Who waits for it is told by the store.
            let _ = core.guarded_in(task).await;
        });
    }

    /// All who wait are told; the superblock is, in the background.
    fn stop(self: &Rc<Self>, assertion: &Assertion) -> AppendError {
        let at = if assertion.record > RecordSeq(0) { assertion.record } else { self.durable_record.get() };
        let error = self.store.stop(self.index, at, &assertion.message);
        self.wake_all();
        let core = self.clone();
        runtime::spawn(async move {
            // A device that cannot take this either is one more reason not to use it.
            let _ = core.store.mark_stopped(&core.device, core.index, at).await;
        });
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_assertion_says_what_it_said_and_where_it_was() {
        let failed = catch(|| {
            at(RecordSeq(7));
            assert_eq!(1 + 1, 3, "sums");
        });
        let Assertion { record, message } = failed.expect_err("it fails");
        assert_eq!(record, RecordSeq(7));
        assert!(message.contains("sums") && !message.contains('\n'), "{message}");
        let later = catch(|| panic!("elsewhere")).expect_err("it fails");
        assert_eq!((later.record, &later.message[..]), (RecordSeq(0), "elsewhere"));
    }
}

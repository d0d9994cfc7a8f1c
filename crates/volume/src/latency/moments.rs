//! The moments at which a command gets from one stage to the next, noted on its way through the head.

use runtime::Instant;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;

/// Moments of one command; zero: it did not wait there, or did not get there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    /// The volume was asked.
    pub(super) called: Instant,
    /// Its turn came.
    pub(super) admitted: Instant,
    /// The device was asked.
    pub(super) issued: Instant,
    /// It was durable, or read.
    pub(super) done: Instant,
}

impl Moments {
    pub(crate) fn called(at: Instant) -> Self {
        Self { called: at, ..Self::default() }
    }

    pub(crate) fn admitted(&mut self, at: Instant) {
        self.admitted = at;
    }

    /// What it asked of a device, and when the answer was there.
    pub(crate) fn device(&mut self, issued: Instant, done: Instant) {
        (self.issued, self.done) = (issued, done);
    }

    /// Of a command of several parts: begun with the first and, in each stage, as far as the last.
    pub(crate) fn with(self, other: Self) -> Self {
        let first = |a: Instant, b: Instant| if a == Instant::default() { b } else { a };
        Self {
            called: first(self.called, other.called),
            admitted: self.admitted.max(other.admitted),
            issued: self.issued.max(other.issued),
            done: self.done.max(other.done),
        }
    }
}

thread_local! {
    /// Of the commands that ended in the poll under way.
    static NOTED: Cell<Moments> = const { Cell::new(Moments {
        called: Instant(0),
        admitted: Instant(0),
        issued: Instant(0),
        done: Instant(0),
    }) };
}

/// A command has ended; who awaits it with [`timed`] is told.
pub(crate) fn note(moments: Moments) {
    NOTED.set(NOTED.get().with(moments));
}

/// Runs a call of a volume and says how it got on.
// Beside the result and not in it: of those who call a volume, the doors alone ask. What a poll of `call` notes is
// taken before anything else runs on this core, so it is of this call.
pub async fn timed<T>(call: impl Future<Output = T>) -> (T, Moments) {
    let mut call = pin!(call);
    let mut moments = Moments::default();
    let result = poll_fn(|cx| {
        NOTED.set(Moments::default());
        let polled = call.as_mut().poll(cx);
        moments = moments.with(NOTED.take());
        polled
    })
    .await;
    (result, moments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
        }
    }

    async fn command(called: u64, done: u64) {
        runtime::yield_now().await;
        let mut moments = Moments::called(Instant(called));
        moments.device(Instant(called + 1), Instant(done));
        note(moments);
    }

    #[test]
    fn a_call_is_told_its_own_moments_whatever_others_note_between_its_polls() {
        let (mut first, mut second) = (pin!(timed(command(10, 20))), pin!(timed(command(30, 40))));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        note(Moments::called(Instant(99))); // of a call that nobody times
        assert!(first.as_mut().poll(&mut context).is_pending());
        let ((), of_second) = run(second.as_mut());
        note(Moments::called(Instant(99)));
        let ((), of_first) = run(first.as_mut());
        assert_eq!((of_first.called, of_first.done), (Instant(10), Instant(20)));
        assert_eq!((of_second.called, of_second.done), (Instant(30), Instant(40)));
    }

    #[test]
    fn of_several_parts_the_first_call_and_the_last_end_count() {
        let ((), moments) = run(timed(async {
            command(10, 50).await;
            command(20, 40).await;
        }));
        let expected = Moments { called: Instant(10), admitted: Instant(0), issued: Instant(21), done: Instant(50) };
        assert_eq!(moments, expected);
    }
}

//! The moments at which a command gets from one stage to the next, noted on its way through the head.

use super::flight::{Answered, Flight};
use pin_project_lite::pin_project;
use runtime::Instant;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

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
    static NOTED: Cell<Option<Moments>> = const { Cell::new(None) };
}

/// A command has ended; who awaits it as a [`Timed`] call is told.
pub(crate) fn note(moments: Moments) {
    NOTED.set(Some(NOTED.get().map_or(moments, |others| others.with(moments))));
}

pin_project! {
    /// A call of a volume under way: what it came to, and the command to be counted when that is sent. See
    /// [`Flight::time`].
    // The moments come beside the result and not in it: of those who call a volume, the doors alone ask. What a poll of
    // the call notes is taken before anything else runs on this core, so it is of this call.
    // Not an `async fn`: that one would hold the call twice, and move it once more.
    pub struct Timed<F> {
        #[pin]
        call: F,
        flight: Option<Flight>,
        moments: Moments,
    }
}

impl<F> Timed<F> {
    pub(super) fn new(flight: Flight, call: F) -> Self {
        Self { call, flight: Some(flight), moments: Moments::default() }
    }
}

impl<F: Future<Output = Result<T, E>>, T, E> Future for Timed<F> {
    type Output = (Result<T, E>, Answered);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        NOTED.set(None);
        let polled = this.call.poll(cx);
        if let Some(noted) = NOTED.get() {
            *this.moments = this.moments.with(noted);
        }
        polled.map(|result| {
            let flight = this.flight.take().expect("polled after it was over");
            let answered = flight.answered(*this.moments, result.is_err());
            (result, answered)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::flight::{Door, Operation};
    use super::super::recorder::Recorder;
    use super::*;
    use std::pin::pin;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut context = Context::from_waker(std::task::Waker::noop());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
        }
    }

    async fn command(called: u64, done: u64) -> Result<(), ()> {
        runtime::yield_now().await;
        let mut moments = Moments::called(Instant(called));
        moments.device(Instant(called + 1), Instant(done));
        note(moments);
        Ok(())
    }

    fn timed(call: impl Future<Output = Result<(), ()>>) -> impl Future<Output = Moments> {
        let flight = Flight::new(&Recorder::silent(), Door::Nbd, Operation::Write, Instant(0));
        let timed = flight.time(call);
        async { timed.await.1.moments() }
    }

    #[test]
    fn a_call_is_told_its_own_moments_whatever_others_note_between_its_polls() {
        let (mut first, mut second) = (pin!(timed(command(10, 20))), pin!(timed(command(30, 40))));
        let mut context = Context::from_waker(std::task::Waker::noop());
        note(Moments::called(Instant(99))); // of a call that nobody times
        assert!(first.as_mut().poll(&mut context).is_pending());
        let of_second = run(second.as_mut());
        note(Moments::called(Instant(99)));
        let of_first = run(first.as_mut());
        assert_eq!((of_first.called, of_first.done), (Instant(10), Instant(20)));
        assert_eq!((of_second.called, of_second.done), (Instant(30), Instant(40)));
    }

    #[test]
    fn of_several_parts_the_first_call_and_the_last_end_count() {
        let moments = run(timed(async {
            command(10, 50).await?;
            command(20, 40).await
        }));
        let expected = Moments { called: Instant(10), admitted: Instant(0), issued: Instant(21), done: Instant(50) };
        assert_eq!(moments, expected);
    }
}

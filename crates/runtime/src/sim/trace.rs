//! The trace: every event of a run, folded into one number.
//!
//! Two runs of a seed that differ anywhere, differ in their hash. No address, no key of a hash map and nothing of the
//! process is folded in, so that the number is the same in another process and in another build.

use super::random::mix;
use foldhash::fast::FixedState;
use std::fmt;
use std::hash::BuildHasher;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// A core ran a turn; `a` is the number of tasks polled.
    Turn = 1,
    /// A disk operation was submitted (`a` offset, `b` length).
    Read,
    /// See [`Read`](Self::Read); `c` is the hash of the contents.
    Write,
    /// A flush was submitted; `a` is the number of completed writes that it covers.
    Sync,
    /// See [`Read`](Self::Read).
    Discard,
    /// A disk operation ended (`a` offset, `b` outcome, `c` hash of what was read).
    Done,
    /// A disk did something on its own: bit rot, a lost or a misplaced write (`a` where, `b` which).
    DiskFault,
    /// A node's processes ended (`a`: 0 power loss, 1 kill).
    Crash,
    /// What was not durable was decided on (`a` offset, `b` sectors kept, `c` sectors lost).
    Settle,
    /// A node's cores were started.
    Start,
    /// A core or node was paused (`a` 1) or goes on (`a` 0).
    Pause,
    /// A connection was asked for, accepted, refused or ended (`a` connection, `b` what).
    Connection,
    /// Bytes were sent (`a` connection, `b` length, `c` hash).
    Send,
    /// Bytes arrived (`a` connection, `b` length).
    Arrive,
    /// Bytes were received (`a` connection, `b` length).
    Receive,
    /// A link was cut or healed (`a`, `b` nodes, `c` 1 for cut).
    Link,
    /// A note of the workload.
    Note,
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct TraceEvent {
    /// Virtual time since the start of the world, in nanoseconds.
    pub time_ns: u64,
    /// What happened.
    pub kind: EventKind,
    /// Node, and core or disk or side within it: whom it concerns.
    pub place: (u32, u32),
    /// See [`EventKind`].
    pub a: u64,
    /// See [`EventKind`].
    pub b: u64,
    /// See [`EventKind`].
    pub c: u64,
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, part) = self.place;
        let (time, kind) = (self.time_ns, self.kind);
        write!(f, "{time:>14} {node}.{part} {kind:?} {} {} {:016x}", self.a, self.b, self.c)
    }
}

/// Where readable events go.
pub type TraceSink = Box<dyn FnMut(&TraceEvent)>;

#[derive(Default)]
pub(super) struct Trace {
    hash: u64,
    events: u64,
    sink: Option<TraceSink>,
}

impl Trace {
    pub(super) fn add(&mut self, event: TraceEvent) {
        let head = (event.kind as u64) << 56 | u64::from(event.place.0) << 24 | u64::from(event.place.1);
        let mut hash = mix(self.hash, head);
        for word in [event.time_ns, event.a, event.b, event.c] {
            hash = mix(hash ^ word, 0xa076_1d64_78bd_642f);
        }
        self.hash = hash;
        self.events += 1;
        if let Some(sink) = &mut self.sink {
            sink(&event);
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn set_sink(&mut self, sink: Option<TraceSink>) {
        self.sink = sink;
    }
}

/// Hash of contents, the same in every process.
pub(super) fn content_hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let state = FixedState::with_seed(0x0063_6169_726e);
    parts.into_iter().fold(0, |hash, bytes| mix(hash, state.hash_one(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(events: &[(u64, u64)]) -> u64 {
        let mut trace = Trace::default();
        for &(time_ns, a) in events {
            trace.add(TraceEvent { time_ns, kind: EventKind::Note, place: (0, 0), a, b: 0, c: 0 });
        }
        trace.hash()
    }

    #[test]
    fn order_time_and_value_all_count() {
        let base = hash_of(&[(1, 1), (2, 2)]);
        assert_eq!(base, hash_of(&[(1, 1), (2, 2)]));
        for other in [&[(1, 2), (2, 1)][..], &[(1, 1), (3, 2)], &[(1, 1), (2, 3)], &[(1, 1)]] {
            assert_ne!(base, hash_of(other));
        }
    }
}

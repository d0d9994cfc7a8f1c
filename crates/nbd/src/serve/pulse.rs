//! Whether this core has stood still: a process that was stopped, a machine that slept, a turn that took too long.

use super::ALIVE_FOR;
use runtime::Instant;
use runtime::channel::WaitList;
use std::cell::Cell;
use std::time::Duration;

/// How often a core with connections looks at the clock, so that idling is not taken for standing still.
const PERIOD: Duration = Duration::from_millis(50);

/// Counts the pauses of one core.
#[derive(Default)]
pub(super) struct Pulse {
    looked_at: Cell<Instant>,
    pauses: Cell<u64>,
    connections: Cell<usize>,
    first_connection: WaitList,
}

impl Pulse {
    /// Looks at the clock; the number of pauses until now.
    pub(super) fn look(&self) -> u64 {
        let now = runtime::now();
        let still = now.since(self.looked_at.replace(now));
        if still > PERIOD + ALIVE_FOR {
            self.pauses.set(self.pauses.get() + 1);
        }
        self.pauses.get()
    }

    /// A connection has come: from now on the core looks. Returns the number of pauses until now.
    pub(super) fn enter(&self) -> u64 {
        if self.connections.replace(self.connections.get() + 1) == 0 {
            self.looked_at.set(runtime::now());
            self.first_connection.wake_all();
        }
        self.look()
    }

    /// A connection has gone.
    pub(super) fn leave(&self) {
        self.connections.set(self.connections.get() - 1);
    }

    /// Looks at the clock while there are connections; without any, the core sleeps.
    pub(super) async fn beat(&self) {
        loop {
            self.first_connection.until(|| (self.connections.get() > 0).then_some(())).await;
            self.look();
            runtime::sleep(PERIOD).await;
        }
    }
}

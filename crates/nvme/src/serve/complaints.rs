//! What is logged of hosts that broke rules: enough to find them, and not as much as they could make of it.

use crate::limits::COMPLAINTS_PER_SECOND;
use runtime::{Instant, now};
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// The complaints of one core.
pub(super) struct Complaints {
    second: Cell<Instant>,
    told: Cell<u32>,
    left_out: Cell<u64>,
}

impl Default for Complaints {
    fn default() -> Self {
        Self { second: Cell::new(now()), told: Cell::new(0), left_out: Cell::new(0) }
    }
}

impl Complaints {
    /// Logs it, unless enough was logged this second; how many were left out stands in the next one.
    pub fn tell(&self, complaint: fmt::Arguments<'_>) {
        let now = now();
        if now.since(self.second.get()) >= Duration::from_secs(1) {
            self.second.set(now);
            self.told.set(0);
        }
        if self.told.get() >= COMPLAINTS_PER_SECOND {
            self.left_out.set(self.left_out.get() + 1);
            return;
        }
        self.told.set(self.told.get() + 1);
        match self.left_out.take() {
            0 => log::warn!("{complaint}"),
            left_out => log::warn!("{complaint} (and {left_out} others that were not logged)"),
        }
    }
}

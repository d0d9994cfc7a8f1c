//! How much of a volume may be done in a second.

use crate::names::{InvalidInput, check_limits};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a volume may do in a second, and how much of what it left unused it may catch up with at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Commands in a second; `None`: as many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes read and written in a second; `None`: as many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// What was not used in the last so many milliseconds may be used at once; `None`:
    /// [`BURST_DEFAULT`](Self::BURST_DEFAULT).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_ms: Option<u64>,
}

impl Limits {
    /// Unless somebody says otherwise. Long enough that a host which sends a queue or a journal at once and then pauses
    /// gets all of its rate, and longer than any timer is late; too short for neighbours to notice.
    pub const BURST_DEFAULT: Duration = Duration::from_millis(100);

    /// How long unused allowance is kept.
    pub fn burst(&self) -> Duration {
        self.burst_ms.map_or(Self::BURST_DEFAULT, Duration::from_millis)
    }

    /// Whether there is no limit.
    pub fn is_unset(&self) -> bool {
        self.iops.is_none() && self.bytes_per_second.is_none()
    }

    /// What comes of a change.
    ///
    /// # Errors
    /// If a number is out of range, or a burst is left without a limit.
    pub fn changed(&self, change: &LimitChange) -> Result<Self, InvalidInput> {
        let mut next = Self {
            iops: change.iops.unwrap_or(self.iops),
            bytes_per_second: change.bytes_per_second.unwrap_or(self.bytes_per_second),
            burst_ms: change.burst_ms.unwrap_or(self.burst_ms),
        };
        if next.is_unset() && !matches!(change.burst_ms, Some(Some(_))) {
            next.burst_ms = None; // it goes with the last limit
        }
        check_limits(&next)?;
        Ok(next)
    }
}

/// A change of some limits: `None` leaves one as it is, `Some(None)` takes it away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitChange {
    /// See [`Limits::iops`].
    pub iops: Option<Option<u64>>,
    /// See [`Limits::bytes_per_second`].
    pub bytes_per_second: Option<Option<u64>>,
    /// See [`Limits::burst_ms`].
    pub burst_ms: Option<Option<u64>>,
}

impl LimitChange {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_set_and_taken_away_by_itself() {
        let iops = LimitChange { iops: Some(Some(100)), ..LimitChange::default() };
        let burst = LimitChange { burst_ms: Some(Some(5000)), ..LimitChange::default() };
        let bandwidth = LimitChange { bytes_per_second: Some(Some(1 << 20)), ..LimitChange::default() };
        let limits =
            Limits::default().changed(&iops).and_then(|l| l.changed(&burst)).and_then(|l| l.changed(&bandwidth));
        let limits = limits.expect("allowed");
        assert_eq!(limits, Limits { iops: Some(100), bytes_per_second: Some(1 << 20), burst_ms: Some(5000) });
        let no_iops = limits.changed(&LimitChange { iops: Some(None), ..LimitChange::default() }).expect("allowed");
        assert_eq!(no_iops, Limits { iops: None, ..limits });
        let none = no_iops.changed(&LimitChange { bytes_per_second: Some(None), ..LimitChange::default() });
        assert_eq!(none, Ok(Limits::default()), "the burst goes with the last limit");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = [
            LimitChange { iops: Some(Some(0)), ..LimitChange::default() },
            LimitChange { iops: Some(Some(u64::MAX)), ..LimitChange::default() },
            LimitChange { bytes_per_second: Some(Some(4096)), ..LimitChange::default() },
            LimitChange { bytes_per_second: Some(Some(u64::MAX)), ..LimitChange::default() },
            LimitChange { burst_ms: Some(Some(1000)), ..LimitChange::default() },
            LimitChange { iops: Some(Some(1)), burst_ms: Some(Some(0)), ..LimitChange::default() },
            LimitChange { iops: Some(Some(1)), burst_ms: Some(Some(u64::MAX)), ..LimitChange::default() },
        ];
        for change in refused {
            assert!(Limits::default().changed(&change).is_err(), "{change:?}");
        }
    }
}

//! Limits as people write them: `5000`, `200M/s`, `500ms`, or `none`.

use crate::size::ByteSize;
use cluster::{LimitChange, Limits, check_limits};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What stands for no limit.
const NONE: &str = "none";
/// Units of a burst, largest first, in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("ms", 1), ("s", 1000)];

/// Commands in a second, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iops(pub Option<u64>);

/// Bytes in a second, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth(pub Option<u64>);

/// How long unused allowance is kept, in milliseconds; `None`: as long as usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst(pub Option<u64>);

/// What is wrong with a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// No number of commands.
    #[error("'{0}' is not a number of IOPS: write a whole number, for example 5000, or none")]
    Iops(String),
    /// No bandwidth.
    #[error("'{0}' is not a bandwidth: write a size in a second, for example 200M/s, or none")]
    Bandwidth(String),
    /// No time.
    #[error(
        "'{0}' is not a time: write a whole number and ms, s, m or h, for example 500ms, or none for the usual 100ms"
    )]
    Burst(String),
    /// Out of range.
    #[error("{0}")]
    Range(String),
}

fn in_range(limits: Limits) -> Result<(), RateError> {
    check_limits(&limits).map_err(|error| RateError::Range(error.to_string()))
}

impl FromStr for Iops {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        if text == NONE {
            return Ok(Self(None));
        }
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        let iops = Some(number.ok_or_else(|| RateError::Iops(text.to_owned()))?);
        in_range(Limits { iops, ..Limits::default() }).map(|()| Self(iops))
    }
}

impl FromStr for Bandwidth {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        if text == NONE {
            return Ok(Self(None));
        }
        let size: Option<ByteSize> = text.strip_suffix("/s").unwrap_or(text).parse().ok();
        let bytes_per_second = Some(size.ok_or_else(|| RateError::Bandwidth(text.to_owned()))?.0);
        in_range(Limits { bytes_per_second, ..Limits::default() }).map(|()| Self(bytes_per_second))
    }
}

impl FromStr for Burst {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        if text == NONE {
            return Ok(Self(None));
        }
        let error = || RateError::Burst(text.to_owned());
        let split = text.find(|char: char| !char.is_ascii_digit()).ok_or_else(error)?;
        let (digits, unit) = text.split_at(split);
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
        let number: u64 = digits.parse().map_err(|_| error())?;
        let burst_ms = Some(number.saturating_mul(*unit_ms));
        in_range(Limits { iops: Some(1), burst_ms, ..Limits::default() }).map(|()| Self(burst_ms))
    }
}

/// A change that sets what is given.
pub fn limit_change(iops: Option<Iops>, bandwidth: Option<Bandwidth>, burst: Option<Burst>) -> LimitChange {
    LimitChange {
        iops: iops.map(|Iops(iops)| iops),
        bytes_per_second: bandwidth.map(|Bandwidth(bytes)| bytes),
        burst_ms: burst.map(|Burst(ms)| ms),
    }
}

/// A time as it is written: the shortest exact way.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis() as u64;
        let whole = UNITS.iter().filter(|(_, unit_ms)| ms.is_multiple_of(*unit_ms)).max_by_key(|(_, unit_ms)| *unit_ms);
        let (unit, unit_ms) = whole.unwrap_or(&("ms", 1));
        write!(f, "{}{unit}", ms / unit_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_people_write_them() {
        assert_eq!("5000".parse(), Ok(Iops(Some(5000))));
        assert_eq!(
            ("none".parse(), "none".parse(), "none".parse()),
            (Ok(Iops(None)), Ok(Bandwidth(None)), Ok(Burst(None)))
        );
        for text in ["200M/s", "200m/s", "200M", "200MiB/s"] {
            assert_eq!(text.parse(), Ok(Bandwidth(Some(200 << 20))), "{text}");
        }
        for (text, ms) in [("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(text.parse(), Ok(Burst(Some(ms))), "{text}");
            assert_eq!(Time(Duration::from_millis(ms)).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for text in ["", "-1", "+1", "1k", "1.5", "0", "99999999999999999999"] {
            assert!(text.parse::<Iops>().is_err(), "{text:?}");
        }
        for text in ["", "/s", "fast", "1M/m", "0", "1K/s", "2T/s"] {
            assert!(text.parse::<Bandwidth>().is_err(), "{text:?}");
        }
        for text in ["", "10", "ms", "1d", "0s", "1ms", "2h", "99999999999999999999s"] {
            assert!(text.parse::<Burst>().is_err(), "{text:?}");
        }
    }
}

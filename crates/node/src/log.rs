//! Log lines: stderr, one line each, level by `CAIRN_LOG`, JSON by `--log-json`.
//!
//! Nothing on the data path logs: a line is for what an operator may have to act on.

use log::{LevelFilter, Log, Metadata, Record};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Environment variable that holds the level: off, error, warn, info, debug, trace.
pub const LEVEL_VARIABLE: &str = "CAIRN_LOG";
/// So much of what was logged last is kept in memory, for who gathers a report of a fault where the log is no file.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Level when nothing else is said.
const DEFAULT_LEVEL: LevelFilter = LevelFilter::Info;

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The level is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CAIRN_LOG is '{0}': set it to off, error, warn, info, debug or trace")]
pub struct LevelError(pub String);

/// Sends log lines to stderr from now on. Later calls change nothing.
///
/// # Errors
/// An unknown level in `CAIRN_LOG`.
pub fn start(format: LogFormat) -> Result<(), LevelError> {
    let level = match std::env::var(LEVEL_VARIABLE) {
        Ok(text) if !text.is_empty() => text.parse().map_err(|_| LevelError(text))?,
        _ => DEFAULT_LEVEL,
    };
    if log::set_boxed_logger(Box::new(StderrLog(format))).is_ok() {
        log::set_max_level(level);
    }
    Ok(())
}

/// The newest lines, and how many bytes they have.
type Kept = (VecDeque<String>, usize);
static KEPT: Mutex<Kept> = Mutex::new((VecDeque::new(), 0));

fn keep((lines, bytes): &mut Kept, line: String) {
    *bytes += line.len();
    lines.push_back(line);
    while *bytes > KEPT_BYTES_MAX
        && let Some(first) = lines.pop_front()
    {
        *bytes -= first.len();
    }
}

/// What this process logged last.
pub(crate) fn kept() -> String {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).0.iter().map(String::as_str).collect()
}

struct StderrLog(LogFormat);

impl Log for StderrLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = utc(since_epoch.as_secs(), since_epoch.subsec_millis());
        let line = format_line(self.0, &time, record.level(), &record.args().to_string());
        // One write a line, so that lines of several threads do not mix. A closed stderr is no reason to stop serving.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
        keep(&mut KEPT.lock().unwrap_or_else(PoisonError::into_inner), line);
    }

    fn flush(&self) {}
}

fn format_line(format: LogFormat, time: &str, level: log::Level, message: &str) -> String {
    match format {
        LogFormat::Text => format!("{time} {level:<5} {}\n", message.replace('\n', " | ")),
        LogFormat::Json => {
            let line = serde_json::json!({
                "time": time, "level": level.as_str().to_ascii_lowercase(), "message": message,
            });
            format!("{line}\n")
        }
    }
}

/// RFC 3339 in UTC, of nanoseconds since 1970.
pub fn utc_of_ns(since_epoch_ns: u64) -> String {
    utc(since_epoch_ns / 1_000_000_000, (since_epoch_ns / 1_000_000 % 1000) as u32)
}

/// Nanoseconds since 1970 of a moment in UTC, `2026-05-04T12:00:00Z`, with or without a fraction of a second (RFC 3339). `None`:
/// it is none, or one before 1970.
pub fn ns_of_utc(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['Z', 'z'])?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let bytes = whole.as_bytes();
    let is_time =
        bytes.len() == 19 && marks.iter().all(|(place, mark)| bytes[*place] == *mark) && b"Tt ".contains(&bytes[10]);
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_time || !are_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        let digits = whole.get(range).filter(|digits| are_digits(digits))?;
        digits.parse::<u64>().ok()
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60
    {
        return None;
    }
    // Days from civil, on eras of 400 years that begin in March.
    let (year, shifted_month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_era = (year % 400) * 365 + year % 400 / 4 - year % 400 / 100 + (153 * shifted_month + 2) / 5 + day - 1;
    let days = year / 400 * 146_097 + day_of_era - 719_468;
    let fraction_ns = format!("{fraction:0<9}").parse::<u64>().ok()?;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

/// RFC 3339 in UTC, by the usual civil-from-days arithmetic on eras of 400 years.
fn utc(seconds: u64, milliseconds: u32) -> String {
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_kept_within_a_bound() {
        let mut kept = (VecDeque::new(), 0);
        for number in 0..10_000 {
            keep(&mut kept, format!("{number:099}\n"));
        }
        let bytes: usize = kept.0.iter().map(String::len).sum();
        assert!(bytes == kept.1 && bytes <= KEPT_BYTES_MAX && bytes > KEPT_BYTES_MAX - 200, "{bytes}");
        assert!(kept.0.back().is_some_and(|line| line.ends_with("9999\n")));
    }

    #[test]
    fn a_line_stays_one_line() {
        let line = format_line(LogFormat::Text, "T", log::Level::Warn, "one\ntwo");
        assert_eq!(line, "T WARN  one | two\n");
        let line = format_line(LogFormat::Json, "T", log::Level::Error, "a \"b\"\nc");
        assert_eq!(line.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["message"], "a \"b\"\nc");
        assert_eq!(value["level"], "error");
    }

    #[test]
    fn the_date_is_right_on_leap_days_and_year_ends() {
        assert_eq!(utc(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(utc(1_735_689_599, 999), "2024-12-31T23:59:59.999Z");
        assert_eq!(utc(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn a_time_that_was_written_is_read_as_the_same() {
        for seconds in [0, 951_782_399, 951_782_400, 1_735_689_599, 4_107_542_399, 4_107_542_400, 9_000_000_000] {
            let ns = seconds * 1_000_000_000 + 7_000_000;
            assert_eq!(ns_of_utc(&utc_of_ns(ns)), Some(ns), "{}", utc_of_ns(ns));
        }
        assert_eq!(ns_of_utc("1970-01-01T00:00:01Z"), Some(1_000_000_000));
        for text in [
            "",
            "Z",
            "2026-05-04",
            "2026-05-04T12:00:00",
            "2026-05-04T12:00:00+02:00",
            "2026-13-04T12:00:00Z",
            "2026-05-04T25:00:00Z",
            "2026-05-04T12:00:00.Z",
            "2026-05-04T12:00:+1Z",
            "1969-01-01T00:00:00Z",
            "x026-05-04T12:00:00Z",
        ] {
            assert_eq!(ns_of_utc(text), None, "{text}");
        }
    }
}

//! Log lines: stderr, one line each, level by `CAIRN_LOG`, JSON by `--log-json`.
//!
//! Nothing on the data path logs: a line is for what an operator may have to act on.

use log::{LevelFilter, Log, Metadata, Record};
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Environment variable that holds the level: off, error, warn, info, debug, trace.
pub const LEVEL_VARIABLE: &str = "CAIRN_LOG";
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
pub(crate) fn utc_of_ns(since_epoch_ns: u64) -> String {
    utc(since_epoch_ns / 1_000_000_000, (since_epoch_ns / 1_000_000 % 1000) as u32)
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
}

//! The end of this process's log: of the file that standard error goes to, if it is one, for that has also what was logged before a
//! crash; else of what the process keeps of it in memory.

use crate::log::kept;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use volume::Message;

/// How much of it is told. It goes from node to node in one message.
const TAIL_BYTES_MAX: u64 = (Message::BODY_MAX - HEADING_BYTES_MAX) as u64;
/// Room for the line that says where it comes from.
const HEADING_BYTES_MAX: usize = 4096;

/// Where standard error goes.
const STANDARD_ERROR: &str = "/proc/self/fd/2";

pub(super) fn text() -> Result<String, String> {
    let is_file = fs::metadata(STANDARD_ERROR).is_ok_and(|found| found.is_file());
    if is_file && let Ok(tail) = tail_of_file() {
        let path = fs::read_link(STANDARD_ERROR).unwrap_or_default();
        return Ok(format!("# the end of {}\n{tail}", path.display()));
    }
    let lines = kept();
    if lines.is_empty() {
        return Err("nothing was logged, and the log is no file; with systemd: journalctl -u cairn".to_owned());
    }
    Ok(format!("# since this process started, the newest; with systemd `journalctl -u cairn` has more\n{lines}"))
}

fn tail_of_file() -> std::io::Result<String> {
    let mut file = File::open(STANDARD_ERROR)?;
    let begin = file.metadata()?.len().saturating_sub(TAIL_BYTES_MAX);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    // What is no text is replaced by more bytes than it had.
    let text = if bytes.is_ascii() { String::from_utf8(bytes).unwrap_or_default() } else { lossy(&bytes) };
    Ok(match (begin, text.split_once('\n')) {
        (0, _) | (_, None) => text,
        (_, Some((_, whole_lines))) => whole_lines.to_owned(),
    })
}

fn lossy(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect(),
    }
}

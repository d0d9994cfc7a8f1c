//! The journal of a copy of the map: what has changed since its base was written, one line for each revision.
//!
//! ```text
//!   4f1c9a02 {"line":1764293475000000000,"after":70}                          of which base; all that came behind this revision
//!   91d03b7e {"revision":71,"put":{"volumes/…":{…},"layers/…":{…}}}
//!   0c6e55d1 {"revision":74,"delete":["snapshots/…"]}
//! ```
//!
//! Each line begins with the crc32c of what follows its first space, in hex. Lines are appended and made durable before anybody is
//! told of them; a crash may leave the last ones torn, whatever was told of counts. The first line that is not as it was written
//! ends what is believed.

use cluster::{Archive, Event, is_in_copies};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use store::format::Crc32c;

/// The first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Heading {
    /// The line of bases and journals that it belongs to.
    pub(super) line: u64,
    /// It has what came behind this revision.
    pub(super) after: u64,
}

#[derive(Serialize)]
struct Written<'a> {
    revision: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    put: BTreeMap<&'a str, &'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    delete: Vec<&'a str>,
}

/// What one revision has changed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Change {
    revision: u64,
    #[serde(default)]
    put: BTreeMap<String, Value>,
    #[serde(default)]
    delete: Vec<String>,
}

/// A journal as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Journal {
    pub(super) heading: Heading,
    pub(super) changes: Vec<Change>,
    /// Something behind these is not as it was written.
    pub(super) is_torn: bool,
}

fn line(of: &impl Serialize) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(of)?;
    Ok(format!("{:08x} {json}\n", Crc32c::of(json.as_bytes()).0))
}

/// How a journal begins.
pub(super) fn begin(heading: Heading) -> String {
    line(&heading).expect("it is plain data")
}

/// The lines of what has happened, and the revision of the last one, if there is any.
///
/// # Errors
/// A value that is no JSON.
pub(super) fn lines(events: &[Event]) -> Result<(String, Option<u64>), serde_json::Error> {
    let (mut text, mut last) = (String::new(), None);
    for of_one in events.chunk_by(|one, other| one.revision == other.revision) {
        let mut written = Written { revision: of_one[0].revision.0, put: BTreeMap::new(), delete: Vec::new() };
        for Event { key, value, .. } in of_one.iter().filter(|event| is_in_copies(&event.key)) {
            match value {
                Some(value) => drop(written.put.insert(key, serde_json::from_slice(value)?)),
                None => written.delete.push(key),
            }
        }
        if !(written.put.is_empty() && written.delete.is_empty()) {
            text += &line(&written)?;
            last = Some(written.revision);
        }
    }
    Ok((text, last))
}

/// What is believed of a line, which ends with a newline or was torn.
fn believed(line: &[u8]) -> Option<&[u8]> {
    let (sum, rest) = line.split_at_checked(8)?;
    let json = rest.strip_prefix(b" ")?.strip_suffix(b"\n")?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    (Crc32c::of(json).0 == sum).then_some(json)
}

impl Journal {
    /// Of the bytes of a file; nothing, if not even its heading is as it was written.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let heading: Heading = serde_json::from_slice(believed(lines.next()?)?).ok()?;
        let (mut changes, mut is_torn, mut last) = (Vec::new(), false, heading.after);
        for line in lines {
            let change = believed(line).and_then(|json| serde_json::from_slice::<Change>(json).ok());
            match change.filter(|change| change.revision > last) {
                Some(change) => {
                    last = change.revision;
                    changes.push(change);
                }
                None => {
                    is_torn = true;
                    break;
                }
            }
        }
        Some(Self { heading, changes, is_torn })
    }

    /// The last revision of which it has something, or knows that there is nothing.
    pub(super) fn last(&self) -> u64 {
        self.changes.last().map_or(self.heading.after, |change| change.revision)
    }

    /// Brings a copy forward.
    pub(super) fn apply(self, copy: &mut Archive) {
        for change in self.changes {
            if change.revision <= copy.revision {
                continue;
            }
            copy.revision = change.revision;
            for key in &change.delete {
                copy.entries.remove(key);
            }
            copy.entries.extend(change.put);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::Revision;

    fn event(revision: u64, key: &str, value: Option<&str>) -> Event {
        Event { revision: Revision(revision), key: key.to_owned(), value: value.map(|value| value.as_bytes().to_vec()) }
    }

    fn written() -> String {
        let events = [
            event(71, "volumes/1", Some(r#"{"name":"a","size":3}"#)),
            event(71, "layers/1", Some("{}")),
            event(72, "sessions/1", Some("{}")),
            event(74, "volumes/0", None),
            event(75, "volumes/1", Some(r#"{"name":"b"}"#)),
        ];
        let (text, last) = lines(&events).expect("JSON");
        assert_eq!(last, Some(75));
        begin(Heading { line: 5, after: 70 }) + &text
    }

    fn copy() -> Archive {
        let entries = [("volumes/0".to_owned(), serde_json::json!({}))].into();
        Archive { format: 1, revision: 70, taken_at_ns: 0, entries }
    }

    #[test]
    fn what_was_written_is_read() {
        let text = written();
        assert_eq!(text.lines().count(), 4, "what does not last has no line: {text}");
        let journal = Journal::of(text.as_bytes()).expect("a journal");
        assert_eq!((journal.heading, journal.is_torn, journal.last()), (Heading { line: 5, after: 70 }, false, 75));
        let mut copy = copy();
        journal.clone().apply(&mut copy);
        assert_eq!((copy.revision, copy.entries.len()), (75, 2), "{copy:?}");
        assert_eq!(copy.entries["layers/1"], serde_json::json!({}));
        assert_eq!(copy.entries["volumes/1"], serde_json::json!({"name": "b"}));
        let again = copy.clone();
        journal.apply(&mut copy);
        assert_eq!(copy, again, "what a base has already is not done again");
    }

    /// A crash may leave any prefix, and pages that were not written: what stands before the first that is not whole counts, nothing else.
    #[test]
    fn of_a_torn_tail_nothing_is_believed() {
        let text = written();
        let starts: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        for cut in 0..text.len() {
            let whole = starts.iter().filter(|start| **start <= cut).count();
            let found = Journal::of(&text.as_bytes()[..cut]);
            assert_eq!(
                found.as_ref().map(|journal| journal.changes.len() + 1),
                (whole > 0).then_some(whole),
                "cut at {cut}"
            );
            let is_cut_within = whole > 0 && !starts.contains(&cut);
            assert_eq!(found.is_some_and(|journal| journal.is_torn), is_cut_within, "cut at {cut}");
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 0x10;
            let whole = starts.iter().filter(|start| **start <= at).count();
            let found = Journal::of(&bytes);
            assert_eq!(
                found.map(|journal| (journal.changes.len() + 1, journal.is_torn)),
                (whole > 0).then_some((whole, true)),
                "flipped at {at}"
            );
        }
        let mut holes = text.into_bytes();
        holes[starts[0]..starts[1]].fill(0);
        let found = Journal::of(&holes).expect("its heading is there");
        assert!(found.changes.is_empty() && found.is_torn, "what follows a hole is not believed");
    }

    #[test]
    fn what_is_no_json_is_no_line() {
        assert!(lines(&[event(3, "volumes/1", Some("{"))]).is_err());
        assert_eq!(lines(&[event(3, "store-usage/1", Some("{}"))]).expect("nothing"), (String::new(), None));
    }
}

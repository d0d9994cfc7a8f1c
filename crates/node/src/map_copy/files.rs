//! The files of a node's copy of the map, beside its own, each for its owner alone.
//!
//! | file | what |
//! |---|---|
//! | `map-copy.json` | the base: all of the map at one revision |
//! | `map-copy.journal-N` | what changed since: see [`journal`](super::journal) |
//! | `map-copy.old.json` | what was there when the map was found to be another, or an older one |
//!
//! A base and its journals belong to one *line*, a number: a base of a new line voids all that lies beside it, in one rename. Within
//! a line a journal follows the other without a gap; once a newer base is in place, those before the last one are superfluous.

use super::journal::{Heading, Journal, begin};
use crate::files::{FileError, during, replace_secret, sync_parent};
use cluster::{Archive, CopyFormat, Listing, copy_of};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name of the base.
pub(super) const BASE: &str = "map-copy.json";
/// What was there when the map was found to be an older one.
pub(super) const OLD: &str = "map-copy.old.json";
/// How the names of journals begin.
const JOURNAL: &str = "map-copy.journal-";

/// A base, or a whole copy of an earlier release.
#[derive(Deserialize)]
struct Base {
    format: u32,
    #[serde(default)]
    line: u64,
    revision: u64,
    taken_at_ns: u64,
    entries: BTreeMap<String, Value>,
}

/// The journal number `number` of the copy whose base is at `path`.
fn journal_path(path: &Path, number: u64) -> PathBuf {
    path.with_file_name(format!("{JOURNAL}{number}"))
}

/// The journals that are there, by number.
fn numbers(path: &Path) -> Vec<u64> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix(JOURNAL)?.parse().ok();
    let mut numbers: Vec<u64> = names.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// The copy whose base is at `path`, as its journals say that the map was last.
pub(super) fn read(path: &Path) -> Option<Archive> {
    let base: Base = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let Base { format, line, revision, taken_at_ns, entries } = base;
    let mut copy = Archive { format, revision, taken_at_ns, entries };
    if format != CopyFormat::OF_A_BASE {
        // Of another release: whoever uses it says whether it can.
        return Some(copy);
    }
    copy.format = 1;
    let found = numbers(path).into_iter().filter_map(|number| Journal::of(&fs::read(journal_path(path, number)).ok()?));
    let mut known = revision;
    for journal in found.filter(|journal| journal.heading.line == line) {
        if journal.heading.after > known {
            log::warn!("the copy of the map {} ends at revision {known}: what followed is damaged", path.display());
            break;
        }
        if journal.is_torn {
            log::info!(
                "the journal of {} ends at revision {} with a line that is not whole",
                path.display(),
                journal.last()
            );
        }
        known = known.max(journal.last());
        journal.apply(&mut copy);
    }
    Some(copy)
}

/// The journal that is written.
pub(super) struct Writer {
    path: PathBuf,
    line: u64,
    number: u64,
    file: File,
    /// Its length.
    pub(super) bytes: u64,
    /// The last revision that it has a line of, or that was before it.
    pub(super) last: u64,
}

/// Writes a base; returns its length.
///
/// # Errors
/// The file's. A map with a value that is no JSON is none that this program has written.
pub(super) fn write_base(path: &Path, listing: &Listing, now_ns: u64, line: u64) -> Result<u64, FileError> {
    let base = copy_of(listing, now_ns, CopyFormat::Base { line }).map_err(|error| no_json(path, &error))?;
    replace_secret(path, &base)?;
    Ok(base.len() as u64)
}

pub(super) fn no_json(path: &Path, error: &serde_json::Error) -> FileError {
    FileError::Content { path: path.to_owned(), what: format!("the map holds what is no JSON: {error}") }
}

impl Writer {
    /// The line that it belongs to.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Begins a line whose base is in place, of this revision: what lies beside it is void.
    pub(super) fn begin(path: &Path, line: u64, revision: u64) -> Result<Self, FileError> {
        for number in numbers(path) {
            remove(&journal_path(path, number))?;
        }
        Self::create(path, line, 1, revision)
    }

    fn create(path: &Path, line: u64, number: u64, after: u64) -> Result<Self, FileError> {
        let name = journal_path(path, number);
        remove(&name)?;
        let opened = File::options().append(true).create_new(true).mode(0o600).open(&name);
        let mut file = opened.map_err(during("create", &name))?;
        let heading = begin(Heading { line, after });
        file.write_all(heading.as_bytes()).and_then(|()| file.sync_all()).map_err(during("write", &name))?;
        sync_parent(&name)?;
        Ok(Self { path: path.to_owned(), line, number, file, bytes: heading.len() as u64, last: after })
    }

    /// Appends lines, durably. After an error nothing may be appended: what there is of it ends the journal.
    pub(super) fn append(&mut self, lines: &str, last: u64) -> Result<(), FileError> {
        let name = journal_path(&self.path, self.number);
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(during("write", &name))?;
        self.bytes += lines.len() as u64;
        self.last = last;
        Ok(())
    }

    /// Goes on in another journal, while a base is written that makes this one superfluous.
    pub(super) fn turn(&mut self) -> Result<(), FileError> {
        *self = Self::create(&self.path, self.line, self.number + 1, self.last)?;
        Ok(())
    }

    /// A base is in place that has all that came before this journal.
    pub(super) fn forget_earlier(&self) -> Result<(), FileError> {
        numbers(&self.path)
            .into_iter()
            .filter(|number| *number < self.number)
            .try_for_each(|number| remove(&journal_path(&self.path, number)))
    }
}

fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(during("remove", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Event, KeyValue, Revision};
    use std::sync::Arc;

    fn listing(revision: u64, volumes: &[&str]) -> Listing {
        let item = |name: &&str| {
            let (key, value) = (format!("volumes/{name}"), b"{}".to_vec());
            Arc::new(KeyValue { key, value, modified: Revision(1), lease: None })
        };
        Listing { revision: Revision(revision), items: volumes.iter().map(item).collect() }
    }

    fn append(writer: &mut Writer, revision: u64, name: &str) {
        let event = Event { revision: Revision(revision), key: format!("volumes/{name}"), value: Some(b"{}".to_vec()) };
        let (text, last) = super::super::journal::lines(&[event]).expect("JSON");
        writer.append(&text, last.expect("a line")).expect("appended");
    }

    fn found(path: &Path) -> (u64, Vec<String>) {
        let copy = read(path).expect("there is one");
        assert_eq!(copy.format, 1);
        (copy.revision, copy.entries.into_keys().map(|key| key["volumes/".len()..].to_owned()).collect())
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// At each step of folding a crash leaves a copy that is whole.
    #[test]
    fn a_copy_is_whole_at_each_step_of_being_folded() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join(BASE);
        assert!(read(&path).is_none());
        write_base(&path, &listing(10, &["a"]), 1, 7).expect("written");
        assert_eq!(found(&path), (10, names(&["a"])), "a base alone");
        let mut writer = Writer::begin(&path, 7, 10).expect("begun");
        append(&mut writer, 12, "b");
        assert_eq!(found(&path), (12, names(&["a", "b"])));
        writer.turn().expect("turned");
        append(&mut writer, 15, "c");
        assert_eq!(found(&path), (15, names(&["a", "b", "c"])), "two journals");
        write_base(&path, &listing(14, &["a", "b"]), 2, 7).expect("written");
        append(&mut writer, 16, "d");
        assert_eq!(
            found(&path),
            (16, names(&["a", "b", "c", "d"])),
            "a newer base, and the earlier journal is there yet"
        );
        writer.forget_earlier().expect("removed");
        assert_eq!(numbers(&path), [2]);
        assert_eq!(found(&path), (16, names(&["a", "b", "c", "d"])));
        write_base(&path, &listing(3, &["z"]), 3, 8).expect("written");
        assert_eq!(found(&path), (3, names(&["z"])), "journals of another line are void");
    }

    #[test]
    fn behind_a_journal_that_is_damaged_none_is_believed() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join(BASE);
        write_base(&path, &listing(10, &["a"]), 1, 7).expect("written");
        let mut writer = Writer::begin(&path, 7, 10).expect("begun");
        append(&mut writer, 12, "b");
        append(&mut writer, 13, "c");
        writer.turn().expect("turned");
        append(&mut writer, 15, "d");
        let first = journal_path(&path, 1);
        let mut bytes = fs::read(&first).expect("there");
        let at = bytes.len() - 3;
        bytes[at] ^= 1;
        fs::write(&first, bytes).expect("damaged");
        assert_eq!(found(&path), (12, names(&["a", "b"])), "a state that the map has had, and no mixture");
    }
}

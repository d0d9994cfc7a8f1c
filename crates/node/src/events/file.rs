//! The events of a node as lines of JSON in its directory: two files, of which the older one goes when the newer one is full.
//!
//! | file               | holds                                     | at most                |
//! |--------------------|-------------------------------------------|------------------------|
//! | `events.jsonl`     | the newest                                | [`FILE_BYTES_MAX`]     |
//! | `events.old.jsonl` | those before                              | the same               |
//!
//! What a crash cut short is no event and is left out, wherever it stands. A file that cannot be written keeps nobody from
//! anything: it is said once, until it can be written again.

use crate::admin::event_types::Event;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Where the newest are.
const FILE: &str = "events.jsonl";
/// And those before.
const OLD_FILE: &str = "events.old.jsonl";
/// A file of this length is full: some thousand events.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of one node. Whoever has this is alone with them: the node's lock is held.
pub(super) struct EventFile {
    path: PathBuf,
    /// The file and its length; none: it is to be opened first.
    open: Option<(File, u64)>,
    is_failing: bool,
}

impl EventFile {
    /// Those in this directory. Nothing is opened yet.
    pub(super) fn new(directory: &Path) -> Self {
        Self { path: directory.join(FILE), open: None, is_failing: false }
    }

    /// All that can be read of them, the newest last.
    pub(super) fn read(&self) -> Vec<Event> {
        let old = self.path.with_file_name(OLD_FILE);
        [old.as_path(), &self.path].into_iter().flat_map(read).collect()
    }

    /// Appends them, durably. Those that cannot be written are lost here.
    pub(super) fn append(&mut self, events: &[Event]) {
        let written = events.iter().try_for_each(|event| self.write(event));
        match written.and_then(|()| self.open.as_ref().map_or(Ok(()), |(file, _)| file.sync_data())) {
            Ok(()) if std::mem::take(&mut self.is_failing) => {
                log::info!("events are written to {} again", self.path.display());
            }
            Ok(()) => {}
            Err(error) => {
                self.open = None;
                if !std::mem::replace(&mut self.is_failing, true) {
                    let path = self.path.display();
                    log::warn!(
                        "events are not written to {path} ({error}): they are lost when this node ends; make room there"
                    );
                }
            }
        }
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event).map_err(io::Error::other)?;
        line.push(b'\n');
        if self.open.as_ref().is_some_and(|(_, length)| length + line.len() as u64 > FILE_BYTES_MAX) {
            self.open = None;
            fs::rename(&self.path, self.path.with_file_name(OLD_FILE))?;
        }
        let (file, length) = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(open(&self.path)?),
        };
        file.write_all(&line)?;
        *length += line.len() as u64;
        Ok(())
    }
}

/// Opens a file to append to it. What was cut short is ended, so that the next line is one of its own.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
    let mut length = file.metadata()?.len();
    if length > 0 {
        let mut last = [0];
        file.seek(SeekFrom::Start(length - 1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            length += 1;
        }
    }
    Ok((file, length))
}

/// All lines that are events. Of a file that is longer than any of ours, the end.
fn read(path: &Path) -> Vec<Event> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let begin = file.metadata()?.len().saturating_sub(2 * FILE_BYTES_MAX);
        file.seek(SeekFrom::Start(begin))?;
        file.take(2 * FILE_BYTES_MAX).read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => log::warn!("events of before are not known: {} cannot be read ({error})", path.display()),
    }
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::tests::event;
    use crate::testing::TempDir;

    fn texts(file: &EventFile) -> Vec<String> {
        file.read().into_iter().map(|event| event.text).collect()
    }

    #[test]
    fn what_a_crash_cut_short_is_left_out_and_spoils_nothing_behind_it() {
        let directory = TempDir::new();
        EventFile::new(directory.path()).append(&[event(1, "one"), event(2, "two")]);
        let path = directory.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        for cut in 1..20 {
            fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            let mut again = EventFile::new(directory.path());
            // Only the end of its line is missing of an event that is cut by one byte.
            let left = if cut == 1 { vec!["one", "two"] } else { vec!["one"] };
            assert_eq!(texts(&again), left, "{cut}");
            again.append(&[event(3, "three")]);
            assert_eq!(texts(&again), [&left[..], &["three"]].concat(), "{cut}");
        }
    }

    #[test]
    fn two_files_stay_within_their_bounds_and_the_newest_stay() {
        let directory = TempDir::new();
        let mut file = EventFile::new(directory.path());
        let long = "x".repeat(900);
        let count = 4 * FILE_BYTES_MAX / 1000;
        for number in 0..count {
            file.append(&[event(number, &format!("{number} {long}"))]);
        }
        let lengths: Vec<u64> =
            fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).collect();
        assert!(lengths.len() == 2 && lengths.iter().all(|length| *length <= FILE_BYTES_MAX), "{lengths:?}");
        let kept = EventFile::new(directory.path()).read();
        assert!(kept.len() as u64 > FILE_BYTES_MAX / 1100, "{}", kept.len());
        let numbers: Vec<u64> =
            kept.iter().map(|event| event.text.split(' ').next().unwrap().parse().unwrap()).collect();
        let expected: Vec<u64> = (count - kept.len() as u64..count).collect();
        assert_eq!(numbers, expected, "the newest, in order, none missing");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_written_again_as_soon_as_it_can_be() {
        let directory = TempDir::new();
        let path = directory.path().join(FILE);
        fs::create_dir(&path).unwrap();
        let mut file = EventFile::new(directory.path());
        file.append(&[event(1, "lost")]);
        assert!(file.is_failing && texts(&file).is_empty());
        fs::remove_dir(&path).unwrap();
        file.append(&[event(2, "kept")]);
        assert!(!file.is_failing);
        assert_eq!(texts(&file), ["kept"]);
    }
}

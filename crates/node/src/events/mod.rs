//! # events: what an operator wants to know afterwards
//!
//! ```text
//!   commands that succeeded (admin API) ─┐
//!                                        ├─► Events ──► a ring in memory ──► GET /v1/events, of all nodes together
//!   one look at the cluster              │         └──► a thread ──► two files in the node's directory
//!     compared with the one before ──────┘
//!       (watch: a task of the admin thread)
//! ```
//!
//! Every node notes what it sees, so that no event is lost with the node that saw it; what several nodes saw is one event when it is
//! asked for (`admin::events`).
//!
//! **Promises.** What was noted outlives a crash of the process, and of the machine but for what is noted in its last moment. Memory
//! and files are bounded. Nobody waits for a file.
//!
//! **Never.** Nothing is noted that was not seen: what was before the first look, or changed and changed back between two, is no event.
//! Nothing here is on the path of a read or a write. No secret is in an event.

pub(crate) mod changes;
mod file;
pub(crate) mod follower;
pub(crate) mod kind;
pub(crate) mod watch;

use crate::admin::event_types::Event;
use crate::log::utc_of_ns;
use file::EventFile;
use kind::Kind;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the ring holds at most, as JSON: an answer with all of it goes from node to node in one message of 1 MiB.
const RING_BYTES_MAX: usize = 768 << 10;
/// Longest text of an event, in bytes.
const TEXT_BYTES_MAX: usize = 600;
/// Most subjects of an event: text says how many there are.
pub(crate) const SUBJECTS_MAX: usize = 16;
/// Longest subject: an NQN has 223 bytes.
const SUBJECT_BYTES_MAX: usize = 256;
/// Events that wait to be written. More at once than people and scripts cause; what finds no place is in memory alone.
const WAITING_MAX: usize = 1024;
/// What a stop waits for the file.
const CLOSE_WAIT_MAX: Duration = Duration::from_millis(200);

/// What happened, as far as one node knows.
pub struct Events {
    node: String,
    ring: Mutex<Ring>,
    writer: Mutex<Option<Writer>>,
}

struct Writer {
    lines: SyncSender<Event>,
    thread: std::thread::JoinHandle<()>,
}

/// The newest events, the newest last.
#[derive(Default)]
struct Ring {
    events: VecDeque<(u64, usize, Event)>,
    bytes: usize,
}

impl Ring {
    fn push(&mut self, at_ns: u64, event: Event) {
        let bytes = serde_json::to_vec(&event).map_or(0, |line| line.len());
        self.bytes += bytes;
        self.events.push_back((at_ns, bytes, event));
        while self.bytes > RING_BYTES_MAX
            && let Some((_, bytes, _)) = self.events.pop_front()
        {
            self.bytes -= bytes;
        }
    }
}

impl Events {
    /// Those of this node, with what its directory remembers.
    pub fn open(node: &str, directory: &Path) -> Self {
        let file = EventFile::new(directory);
        let mut ring = Ring::default();
        for event in file.read() {
            if let Some(at_ns) = crate::log::ns_of_utc(&event.time) {
                ring.push(at_ns, event);
            }
        }
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let spawned =
            std::thread::Builder::new().name("cairn-events".to_owned()).spawn(move || write_all(file, &waiting));
        let writer = match spawned {
            Ok(thread) => Some(Writer { lines, thread }),
            Err(error) => {
                log::warn!("events are in memory alone: {error}");
                None
            }
        };
        Self { node: node.to_owned(), ring: Mutex::new(ring), writer: Mutex::new(writer) }
    }

    /// Of a node that remembers nothing.
    #[cfg(test)]
    pub(crate) fn in_memory(node: &str) -> Self {
        Self { node: node.to_owned(), ring: Mutex::default(), writer: Mutex::default() }
    }

    /// Something happened just now. Never waits.
    pub(crate) fn note(&self, kind: Kind, subjects: &[&str], text: impl Into<String>) {
        let at_ns = crate::admin::now_ns();
        let subject = |subject: &&str| cut(subject, SUBJECT_BYTES_MAX);
        let event = Event {
            time: utc_of_ns(at_ns),
            severity: kind.severity,
            node: self.node.clone(),
            kind: kind.name.to_owned(),
            text: cut(&text.into(), TEXT_BYTES_MAX),
            subjects: subjects.iter().take(SUBJECTS_MAX).map(subject).collect(),
            seen_by: Vec::new(),
        };
        if let Some(writer) = &*self.writer.lock().unwrap_or_else(PoisonError::into_inner) {
            // A disk that hangs costs the file some events, and nobody else anything.
            let _ = writer.lines.try_send(event.clone());
        }
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).push(at_ns, event);
    }

    /// The same of something that a command did: it stands in the log, too.
    pub(crate) fn done(&self, kind: Kind, subjects: &[&str], text: impl Into<String>) {
        let text = text.into();
        log::info!("{text}");
        self.note(kind, subjects, text);
    }

    /// Those since then, the newest last.
    pub(crate) fn since(&self, since_ns: u64) -> Vec<Event> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was put back is no reason to leave any out: all are looked at.
        ring.events.iter().filter(|(at_ns, ..)| *at_ns >= since_ns).map(|(.., event)| event.clone()).collect()
    }

    /// Whether the node's last life ended without a stop, as far as is remembered.
    pub(crate) fn ended_unasked(&self) -> bool {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let of_life = |event: &&Event| {
            event.node == self.node && [kind::NODE_STARTED.name, kind::NODE_STOPPED.name].contains(&&*event.kind)
        };
        let last = ring.events.iter().rev().map(|(.., event)| event).find(of_life);
        last.is_some_and(|event| event.kind == kind::NODE_STARTED.name)
    }

    /// Everything is in the file when this returns, unless that takes long.
    pub(crate) fn close(&self) {
        let Some(Writer { lines, thread }) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        drop(lines);
        let began = Instant::now();
        while !thread.is_finished() && began.elapsed() < CLOSE_WAIT_MAX {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Writes what comes, until nobody can send any more.
fn write_all(mut file: EventFile, waiting: &Receiver<Event>) {
    while let Ok(first) = waiting.recv() {
        let events: Vec<Event> = std::iter::once(first).chain(waiting.try_iter()).collect();
        file.append(&events);
    }
}

/// Text of at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.replace('\n', " ");
    }
    let mut end = bytes_max - '…'.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", text[..end].replace('\n', " "))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::admin::event_types::EventSeverity;
    use crate::testing::TempDir;

    /// An event of node-1 so many seconds after 1970.
    pub(crate) fn event(at_seconds: u64, text: &str) -> Event {
        Event {
            time: utc_of_ns(at_seconds * 1_000_000_000),
            severity: EventSeverity::Info,
            node: "node-1".to_owned(),
            kind: "test".to_owned(),
            text: text.to_owned(),
            subjects: vec!["a".to_owned()],
            seen_by: Vec::new(),
        }
    }

    fn texts(events: &Events) -> Vec<String> {
        events.since(0).into_iter().map(|event| event.text).collect()
    }

    #[test]
    fn what_was_noted_is_there_after_a_crash_and_after_a_stop() {
        let directory = TempDir::new();
        let first = Events::open("node-1", directory.path());
        assert!(!first.ended_unasked(), "it never lived before");
        first.note(kind::NODE_STARTED, &["node-1"], "one");
        first.close();
        let second = Events::open("node-1", directory.path());
        assert!(second.ended_unasked(), "nobody stopped it");
        second.note(kind::NODE_STOPPED, &["node-1"], "two");
        second.close();
        let third = Events::open("node-1", directory.path());
        assert_eq!(texts(&third), ["one", "two"]);
        assert!(!third.ended_unasked());
    }

    #[test]
    fn the_ring_keeps_the_newest_within_its_bound() {
        let events = Events::in_memory("node-1");
        let long = "y".repeat(TEXT_BYTES_MAX);
        for number in 0..3000 {
            events.note(kind::TROUBLE, &[], format!("{number} {long}"));
        }
        let kept = events.since(0);
        let bytes = serde_json::to_vec(&kept).unwrap().len();
        assert!(bytes < 1 << 20 && kept.len() > 500, "{} events, {bytes} bytes", kept.len());
        assert!(kept.last().unwrap().text.starts_with("2999 "));
    }

    #[test]
    fn a_text_has_a_bound_and_is_one_line() {
        assert_eq!(cut("a\nb", 10), "a b");
        let cut = cut(&"é".repeat(TEXT_BYTES_MAX), TEXT_BYTES_MAX);
        assert!(cut.len() <= TEXT_BYTES_MAX && cut.ends_with('…'), "{}", cut.len());
        let events = Events::in_memory("node-1");
        events.note(kind::TROUBLE, &vec!["s"; 100], "t");
        assert_eq!(events.since(0)[0].subjects.len(), SUBJECTS_MAX);
    }
}

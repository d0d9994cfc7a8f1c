//! What is being done, how much of it is left, and when that ends.

use super::{Looks, words};
use std::collections::VecDeque;
use std::time::Duration;

/// What was seen longer ago says nothing of how fast it goes now.
const SEEN_FOR: Duration = Duration::from_secs(300);
/// Looks that are remembered.
const SEEN_MAX: usize = 64;

/// How fast copies are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Copies of groups in a second.
    pub copies: f64,
    /// Bytes in a second.
    pub bytes: u64,
}

/// How much was left when somebody looked.
#[derive(Debug, Default)]
pub struct Seen(VecDeque<(Duration, usize, u64)>);

impl Seen {
    /// Notes what is left, at a moment of a clock that only goes on. Returns how much less that is in each second since the earliest look at the same work: of one look
    /// nothing, and nothing while no copy was finished.
    pub fn note(&mut self, at: Duration, copies: usize, bytes: u64) -> Option<Rate> {
        // More to do than before is other work.
        if copies == 0 || self.0.back().is_some_and(|(_, before, _)| *before < copies) {
            self.0.clear();
        }
        self.0.retain(|(seen, ..)| at.saturating_sub(*seen) <= SEEN_FOR);
        if self.0.len() >= SEEN_MAX {
            self.0.pop_front();
        }
        self.0.push_back((at, copies, bytes));
        let (since, before, bytes_before) = *self.0.front()?;
        let seconds = at.saturating_sub(since).as_secs_f64();
        let copied = before.checked_sub(copies).filter(|copied| *copied > 0 && seconds > 0.0)?;
        let bytes = (bytes_before.saturating_sub(bytes) as f64 / seconds) as u64;
        Some(Rate { copies: copied as f64 / seconds, bytes })
    }
}

/// Of what kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A device or node is emptied.
    Drain,
    /// What was on a device that was given up is copied from others.
    Lost,
    /// A node may be away.
    Maintenance,
    /// Copies are made.
    Copy,
    /// Nothing can be done but wait.
    Wait,
}

impl WorkKind {
    /// Its name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Lost => "lost",
            Self::Maintenance => "maintenance",
            Self::Copy => "copy",
            Self::Wait => "wait",
        }
    }
}

/// When something ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// About then, ns since 1970.
    AtNs(u64),
    /// When this has happened, or somebody has done it.
    When(String),
}

impl End {
    /// In words.
    pub fn text(&self, now_ns: u64) -> String {
        match self {
            Self::AtNs(at) => format!("in about {}", words::ago(now_ns, *at)),
            Self::When(what) => format!("when {what}"),
        }
    }
}

/// Something that is being done.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Of which kind.
    pub kind: WorkKind,
    /// The node or device that it is about; empty: several.
    pub subject: String,
    /// In words, with what is left.
    pub text: String,
    /// Placement groups that are left to do.
    pub groups_left: usize,
    /// About how many bytes that is.
    pub bytes_left: u64,
    /// How fast all that is copied gets less, if that was seen.
    pub rate: Option<Rate>,
    /// When it ends.
    pub end: End,
}

/// Copies that are to be made, out of all that are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) groups: usize,
    pub(super) bytes: u64,
    /// Of all work together, which shares the rate.
    pub(super) all: usize,
}

impl Work {
    /// Copies are made: `what` has become of groups when it is done.
    pub(super) fn copies(kind: WorkKind, subject: &str, what: &str, left: Left, looks: &Looks) -> Self {
        let rate = looks.rate.filter(|rate| left.groups > 0 && rate.copies > 0.0);
        // What a group holds is not known of each: they are taken to hold the same, and what a device holds is said late.
        let bytes_of = |rate: Rate| (left.bytes as f64 / left.groups as f64 * rate.copies) as u64;
        let rate = rate.map(|rate| Rate { bytes: bytes_of(rate), ..rate });
        let speed = match rate {
            Some(rate) => format!("{} a second", words::size(rate.bytes)),
            None => "how fast is not known yet".to_owned(),
        };
        let end = match rate {
            Some(rate) => {
                let seconds = left.all.max(left.groups) as f64 / rate.copies;
                End::AtNs(looks.now_ns.saturating_add((seconds * 1e9) as u64))
            }
            None => End::When("all of it is copied: in how long is told when the first of it is".to_owned()),
        };
        let (groups, bytes) = (words::groups(left.groups), words::size(left.bytes));
        let text = format!("{what}: {groups} left, about {bytes}, {speed}");
        let Left { groups: groups_left, bytes: bytes_left, .. } = left;
        Self { kind, subject: subject.to_owned(), text, groups_left, bytes_left, rate, end }
    }

    /// No copies are made.
    pub fn plain(kind: WorkKind, subject: &str, text: impl Into<String>, end: End) -> Self {
        Self { kind, subject: subject.to_owned(), text: text.into(), groups_left: 0, bytes_left: 0, rate: None, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_fast_it_goes_is_told_of_one_piece_of_work() {
        let mut seen = Seen::default();
        let second = Duration::from_secs;
        assert_eq!(seen.note(second(0), 100, 1000), None, "one look says nothing");
        assert_eq!(seen.note(second(2), 100, 1000), None);
        assert_eq!(seen.note(second(10), 80, 800), Some(Rate { copies: 2.0, bytes: 20 }));
        assert_eq!(seen.note(second(11), 90, 900), None, "other work");
        assert_eq!(seen.note(second(12), 0, 0), None);
    }

    #[test]
    fn no_time_is_promised_without_a_rate() {
        let left = Left { groups: 4, bytes: 400 << 20, all: 8 };
        let looks = Looks { now_ns: 1_000_000_000, ..Looks::default() };
        let work = Work::copies(WorkKind::Drain, "node-3", "what is on it is copied elsewhere", left, &looks);
        let text =
            "what is on it is copied elsewhere: 4 placement groups left, about 400 MiB, how fast is not known yet";
        assert_eq!(
            (&work.text[..], work.end.text(looks.now_ns)),
            (text, "when all of it is copied: in how long is told when the first of it is".to_owned())
        );
        let looks = Looks { rate: Some(Rate { copies: 0.1, bytes: 5 << 20 }), ..looks };
        let work = Work::copies(WorkKind::Drain, "node-3", "what is on it is copied elsewhere", left, &looks);
        let text = "what is on it is copied elsewhere: 4 placement groups left, about 400 MiB, 10 MiB a second";
        assert_eq!((&work.text[..], work.end.text(looks.now_ns)), (text, "in about 80 s".to_owned()));
        assert_eq!(End::When("node-2 is back".to_owned()).text(0), "when node-2 is back");
    }
}

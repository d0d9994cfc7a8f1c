//! What is wrong, in words: which block, which write, which read.

use crate::layout::Layout;
use checker::Violation;
use checker::history::{Action, History, Operation, OperationId, Outcome, Value};
use serde::{Deserialize, Serialize};

/// What kind of wrong it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// What was acknowledged is not read, and is not there later.
    Lost,
    /// A read showed what was there before, and later ones what should have been.
    Stale,
    /// A part of a write.
    Torn,
    /// What belongs to another block.
    Misplaced,
    /// What nobody of this run wrote.
    Foreign,
    /// A command was answered with an error that ends it.
    Failed,
    /// A command had no answer in time.
    Hung,
    /// A command that was to hurt or heal something failed.
    Fault,
    /// The history cannot be judged.
    Unjudged,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// What was seen.
    pub text: String,
    /// All that was done to the block, a line each; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub story: String,
}

impl Finding {
    /// Without a story.
    pub fn new(kind: Kind, text: impl std::fmt::Display) -> Self {
        Self { kind, text: text.to_string(), story: String::new() }
    }

    /// What a checker found. Operations are told by the stamp of their blocks, which is their number in a kept history.
    pub fn of(violation: &Violation, history: &History, layout: &Layout) -> Self {
        let block = violation.block();
        let place = format!("block {block} (byte {} of the volume)", layout.offset_bytes(block));
        let (kind, text) = match violation {
            Violation::NotLinearizable(found) => {
                let expected = expected(history, &found.possible);
                let id = found.operation;
                match found.saw {
                    Some(saw) => {
                        let kind = if is_seen_later(history, block, id, saw, &found.possible) {
                            Kind::Stale
                        } else {
                            Kind::Lost
                        };
                        (kind, format!("{place}: {expected}, and read {} shows {}", number(id), named(saw)))
                    }
                    None => (Kind::Lost, format!("{place}: {expected}, which nothing done later explains")),
                }
            }
            Violation::Torn(found) => {
                let saw: Vec<String> = found.saw.iter().map(ToString::to_string).collect();
                let read = number(found.read);
                (Kind::Torn, format!("{place}: read {read} shows a part of a write, block by block: {}", saw.join(" ")))
            }
            Violation::TooManyOpen { .. } => (Kind::Unjudged, violation.to_string()),
        };
        Self { kind, text, story: story(history, block) }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind, self.text)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lost => "lost",
            Self::Stale => "stale",
            Self::Torn => "torn",
            Self::Misplaced => "misplaced",
            Self::Foreign => "foreign",
            Self::Failed => "failed",
            Self::Hung => "hung",
            Self::Fault => "fault",
            Self::Unjudged => "unjudged",
        })
    }
}

/// Number of an operation, as it is told.
pub fn number(id: OperationId) -> u64 {
    u64::from(id.0) + 1
}

fn named(value: Value) -> String {
    match value {
        Value::ZERO => "zeroes".to_owned(),
        Value(stamp) => format!("write {stamp}"),
    }
}

/// What a block had to hold: the newest of what it may have held.
fn expected(history: &History, possible: &[Value]) -> String {
    let newest = possible.iter().filter(|value| history.writer(**value).is_some()).max();
    match newest {
        Some(value) if history.writer(*value).is_some_and(|write| write.is_done()) => {
            format!("write {} was acknowledged", value.0)
        }
        Some(value) => format!("write {} was there", value.0),
        None => "zeroes were acknowledged".to_owned(),
    }
}

/// Operations on a block that are told, the last ones.
const STORY_MAX: usize = 64;

/// What was done to a block, a line each.
fn story(history: &History, block: u64) -> String {
    let all = (1..).zip(history.operations()).filter(|(_, one): &(u64, &Operation)| one.blocks().contains(&block));
    let all: Vec<String> = all.map(|(n, one)| told(n, one, block)).collect();
    let skipped = all.len().saturating_sub(STORY_MAX);
    let before = if skipped > 0 { format!("{skipped} before that\n") } else { String::new() };
    before + &all[skipped..].concat()
}

fn told(n: u64, operation: &Operation, block: u64) -> String {
    let what = match &operation.action {
        Action::Read(values) => {
            let value = values.get((block - operation.first_block) as usize);
            format!("read {n} shows {}", value.map_or("nothing".to_owned(), |value| named(*value)))
        }
        Action::Zero => format!("zeroes {n}"),
        _ => format!("write {n}"),
    };
    let (first, last, start) = (operation.first_block, operation.blocks().end - 1, operation.start.0);
    let end = match operation.outcome {
        Outcome::Open => "no end".to_owned(),
        Outcome::Done(moment) => format!("done at {}", moment.0),
        Outcome::Unknown(moment) => format!("given up, over at {}", moment.0),
        Outcome::Refused(moment) => format!("nothing, at {}", moment.0),
    };
    format!("{what}, blocks {first} to {last}, sent at {start}, {end}\n")
}

/// Whether a later read shows what this one should have.
fn is_seen_later(history: &History, block: u64, read: OperationId, saw: Value, possible: &[Value]) -> bool {
    let Some(end) = history.operations().get(read.0 as usize).and_then(|one| one.latest()) else { return false };
    let later =
        history.operations().iter().filter(|one| one.is_done() && one.start > end && one.blocks().contains(&block));
    later
        .filter_map(|one| match &one.action {
            Action::Read(values) => values.get((block - one.first_block) as usize),
            _ => None,
        })
        .any(|value| *value != saw && possible.contains(value))
}

//! Histories as a file: a line of JSON for each history's head, for each operation, for each thing that was wrong by itself, and at
//! the end how many there were. docs/torture.md has all fields.

use crate::finding::Finding;
use crate::layout::Layout;
use checker::history::{Action, History, Moment, Operation, Outcome, Value};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};

const FORMAT: &str = "cairn-torture";
const VERSION: u32 = 1;

/// What clients saw in a part of a run, and what of it was wrong by itself.
#[derive(Debug)]
pub struct Record {
    /// Where its blocks lie.
    pub layout: Layout,
    /// What clients saw.
    pub history: History,
    /// Blocks that were no write's, and errors that no fault explains.
    pub wrong: Vec<Finding>,
}

/// Begins a history.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    /// Blocks of what is written all or nothing.
    atomic_blocks: u64,
    #[serde(flatten)]
    layout: Layout,
}

/// One operation.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// From 1; the stamp of what it writes.
    n: u64,
    op: What,
    block: u64,
    blocks: u32,
    start: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
    outcome: How,
    /// Of a read that was answered: the number of the write that each block is of; 0: zeroes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    saw: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum What {
    Write,
    Zero,
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum How {
    Open,
    Done,
    Unknown,
    Refused,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrong {
    wrong: Finding,
}

/// Ends a history.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    operations: u64,
}

/// Writes a history.
///
/// # Errors
/// Those of the file.
pub fn write(record: &Record, to: &mut impl Write) -> std::io::Result<()> {
    let atomic_blocks = record.history.atomic_blocks();
    line(to, &Head { format: FORMAT.to_owned(), version: VERSION, atomic_blocks, layout: record.layout })?;
    for (n, operation) in (1..).zip(record.history.operations()) {
        line(to, &line_of(n, operation))?;
    }
    for wrong in &record.wrong {
        line(to, &Wrong { wrong: wrong.clone() })?;
    }
    line(to, &End { operations: record.history.operations().len() as u64 })
}

fn line(to: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

fn line_of(n: u64, operation: &Operation) -> Line {
    let (op, saw) = match &operation.action {
        Action::Write => (What::Write, Vec::new()),
        Action::Zero => (What::Zero, Vec::new()),
        Action::Read(values) => (What::Read, values.iter().map(|value| value.0).collect()),
        Action::CompareAndWrite(_) | Action::Snapshot(_) | Action::Restore(_) => {
            unreachable!("the load writes, zeroes and reads")
        }
    };
    let (outcome, end) = match operation.outcome {
        Outcome::Open => (How::Open, None),
        Outcome::Done(moment) => (How::Done, Some(moment.0)),
        Outcome::Unknown(moment) => (How::Unknown, Some(moment.0)),
        Outcome::Refused(moment) => (How::Refused, Some(moment.0)),
    };
    let (block, blocks, start) = (operation.first_block, operation.block_count, operation.start.0);
    Line { n, op, block, blocks, start, end, outcome, saw }
}

fn operation_of(line: Line) -> Result<Operation, String> {
    let saw = line.saw.into_iter().map(Value).collect();
    let action = match line.op {
        What::Write => Action::Write,
        What::Zero => Action::Zero,
        What::Read => Action::Read(saw),
    };
    let end = || line.end.map(Moment).ok_or_else(|| format!("operation {} has an outcome and no end", line.n));
    let outcome = match line.outcome {
        How::Open => Outcome::Open,
        How::Done => Outcome::Done(end()?),
        How::Unknown => Outcome::Unknown(end()?),
        How::Refused => Outcome::Refused(end()?),
    };
    let (first_block, block_count, start) = (line.block, line.blocks, Moment(line.start));
    Ok(Operation { action, first_block, block_count, start, outcome })
}

/// A file that is no history, or not whole.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It could not be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A line of it is wrong.
    #[error("line {line}: {why}: it is not as `cairn torture --keep` leaves it")]
    Line {
        /// From 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// There is no history in it.
    #[error("it holds no history: name one that `cairn torture --keep` has left")]
    Empty,
    /// It ends in the midst of one.
    #[error("it ends in the midst of a history: `cairn torture --keep` was cut off, or the file was")]
    Cut,
}

/// Reads all histories of a file, one after the other: `each` is given them.
///
/// # Errors
/// The first line that is wrong.
pub fn read(from: impl BufRead, mut each: impl FnMut(Record)) -> Result<(), FileError> {
    let mut histories = 0;
    let mut current: Option<(Head, Vec<Operation>, Vec<Finding>)> = None;
    for (number, text) in (1..).zip(from.lines()) {
        let text = text?;
        let wrong = |why: String| FileError::Line { line: number, why };
        let of_json = |error: serde_json::Error| FileError::Line { line: number, why: error.to_string() };
        let Some((head, operations, found)) = &mut current else {
            let head: Head = serde_json::from_str(&text).map_err(of_json)?;
            let Head { version, layout, .. } = &head;
            if head.format != FORMAT || *version != VERSION {
                return Err(wrong(format!(
                    "{} of version {version} is not {FORMAT} of version {VERSION}",
                    head.format
                )));
            }
            if head.atomic_blocks == 0 || layout.block_bytes == 0 || layout.piece_blocks == 0 {
                return Err(wrong("blocks of nothing".to_owned()));
            }
            current = Some((head, Vec::new(), Vec::new()));
            continue;
        };
        if text.starts_with("{\"n\"") {
            let line: Line = serde_json::from_str(&text).map_err(of_json)?;
            let wanted = operations.len() as u64 + 1;
            if line.n != wanted {
                return Err(wrong(format!("operation {} is where {wanted} was to be", line.n)));
            }
            operations.push(operation_of(line).map_err(wrong)?);
        } else if text.starts_with("{\"wrong\"") {
            found.push(serde_json::from_str::<Wrong>(&text).map_err(of_json)?.wrong);
        } else {
            let end: End = serde_json::from_str(&text).map_err(of_json)?;
            if end.operations != operations.len() as u64 {
                return Err(wrong(format!("{} operations of {}", operations.len(), end.operations)));
            }
            let (head, operations, found) = (head.layout, std::mem::take(operations), std::mem::take(found));
            let atomic_blocks = current.take().map_or(1, |(head, ..)| head.atomic_blocks);
            let history = History::of_operations(atomic_blocks, operations).map_err(|why| wrong(why.to_string()))?;
            histories += 1;
            each(Record { layout: head, history, wrong: found });
        }
    }
    match (histories, current) {
        (_, Some(_)) => Err(FileError::Cut),
        (0, None) => Err(FileError::Empty),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Kind;
    use crate::judge::judge;

    /// A write of two blocks over zeroes, a write over one of them, and a read of both.
    fn kept() -> String {
        let layout = Layout::new(1 << 20, 1 << 20, 512, 1 << 20).expect("there is room");
        let mut history = History::of_blocks(512);
        let mut write = |first, count| {
            let id = history.start(Action::Write, first, count);
            history.done(id);
            History::stamp(id)
        };
        let (old, new) = (write(4, 2), write(5, 1));
        let open = history.start(Action::Zero, 9, 1);
        let read = history.start(Action::Read(Vec::new()), 4, 2);
        history.answered(read, vec![old, new]);
        history.over(open);
        let mut file = Vec::new();
        write_all(&Record { layout, history, wrong: Vec::new() }, &mut file);
        String::from_utf8(file).expect("text")
    }

    fn write_all(record: &Record, file: &mut Vec<u8>) {
        write(record, file).expect("there is room");
    }

    fn judged(file: &str) -> Result<Vec<Finding>, FileError> {
        let mut findings = Vec::new();
        read(file.as_bytes(), |record| findings.extend(judge(&record)))?;
        Ok(findings)
    }

    #[test]
    fn what_was_kept_is_judged_as_it_was() {
        let file = kept();
        let read_line = r#"{"n":4,"op":"read","block":4,"blocks":2,"start":6,"end":7,"outcome":"done","saw":[1,2]}"#;
        assert!(file.contains(read_line), "{file}");
        assert_eq!(judged(&file).expect("it is whole"), []);
        let mut again = Vec::new();
        read(file.as_bytes(), |record| write_all(&record, &mut again)).expect("it is whole");
        assert_eq!(String::from_utf8(again).expect("text"), file);
        assert_eq!(judged(&file.repeat(2)).expect("one after the other"), []);
    }

    #[test]
    fn a_lost_write_is_named_with_its_block_and_the_read() {
        let lost = kept().replace(r#""saw":[1,2]"#, r#""saw":[1,1]"#);
        let [found] = &judged(&lost).expect("it is whole")[..] else { panic!("one") };
        let text = "block 5 (byte 2560 of the volume): write 2 was acknowledged, and read 4 shows write 1";
        assert_eq!((found.kind, &found.text[..]), (Kind::Lost, text));
        assert!(found.story.lines().count() == 3, "{}", found.story);
        let zeroes = kept().replace(r#""saw":[1,2]"#, r#""saw":[0,2]"#);
        let text = "block 4 (byte 2048 of the volume): write 1 was acknowledged, and read 4 shows zeroes";
        assert_eq!(judged(&zeroes).expect("it is whole")[0].text, text);
    }

    #[test]
    fn a_stale_read_is_told_from_a_lost_write() {
        let read = |n: u64, saw: u64| {
            format!(
                r#"{{"n":{n},"op":"read","block":5,"blocks":1,"start":{},"end":{},"outcome":"done","saw":[{saw}]}}"#,
                2 * n,
                2 * n + 1
            )
        };
        let end = r#"{"operations":4}"#;
        let stale = kept().replace(end, &format!("{}\n{}\n{}", read(5, 1), read(6, 2), r#"{"operations":6}"#));
        let [found] = &judged(&stale).expect("it is whole")[..] else { panic!("one") };
        assert_eq!(found.kind, Kind::Stale, "{found}");
    }

    #[test]
    fn what_is_no_history_is_refused() {
        let file = kept();
        let lines: Vec<&str> = file.lines().collect();
        for (file, named) in [
            (String::new(), "holds no history"),
            (lines[..4].join("\n"), "in the midst"),
            (file.replace(lines[2], ""), "line 3"),
            (
                lines.iter().filter(|line| **line != lines[2]).copied().collect::<Vec<_>>().join("\n"),
                "operation 3 is where 2",
            ),
            (file.replace(r#""version":1"#, r#""version":2"#), "version 2"),
            (file.replace(r#""end":7"#, r#""end":1"#), "ends before it starts"),
            (file.replace(r#""saw":[1,2]"#, r#""saw":[1]"#), "a value for each block"),
            (file.replace(r#""operations":4"#, r#""operations":5"#), "4 operations of 5"),
            (file.replace("write", "wrote"), "wrote"),
            ("x".repeat(100), "line 1"),
        ] {
            let error = judged(&file).expect_err(named).to_string();
            assert!(error.contains(named), "{named}: {error}");
        }
    }
}

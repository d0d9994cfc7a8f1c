//! Writes that are all or nothing: at most 64 KiB that do not cross a 64 KiB boundary, or what else the history says.
//!
//! A read of several blocks sees, in each 64 KiB, a number of writes. Whatever covers a block and is seen in another
//! one has happened before what this block shows; whatever was answered before another was sent has happened before
//! it. If these "befores" go in a circle, the read saw part of a write.
//!
//! A compare-and-write that was done is one step for every other command, whatever boundaries it crosses: a read that shows it
//! in one block shows in no other what it replaced there.

use super::Violation;
use crate::history::{Action, History, Operation, OperationId, Value};
use std::collections::BTreeMap;

/// A read saw a part of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The read.
    pub read: OperationId,
    /// First block of the 64 KiB.
    pub first_block: u64,
    /// What it saw there.
    pub saw: Vec<Value>,
}

impl std::fmt::Display for Torn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "operation {} saw a part of a write at block {}:", self.read.0, self.first_block)?;
        self.saw.iter().try_for_each(|value| write!(f, " {value}"))
    }
}

/// Judges each read of a history.
///
/// # Errors
/// The first read that saw a part of a write.
pub fn check(history: &History) -> Result<(), Violation> {
    let zeroes = Zeroes::of(history);
    let unit_blocks = history.atomic_blocks();
    for (index, operation) in history.operations().iter().enumerate() {
        let values: Vec<Option<Value>> = match &operation.action {
            Action::Read(values) => values.iter().copied().map(Some).collect(),
            Action::Snapshot(values) => values.clone(),
            Action::Write | Action::Zero | Action::CompareAndWrite(_) | Action::Restore(_) => continue,
        };
        if !operation.is_done() {
            continue;
        }
        if let Action::Read(values) = &operation.action
            && shows_what_was_replaced(history, operation, values)
        {
            let (read, saw) = (OperationId(index as u32), values.clone());
            return Err(Violation::Torn(Torn { read, first_block: operation.first_block, saw }));
        }
        let (mut block, mut rest) = (operation.first_block, &values[..]);
        while !rest.is_empty() {
            let count = (unit_blocks - block % unit_blocks).min(rest.len() as u64);
            let (unit, tail) = rest.split_at(count as usize);
            // Of a snapshot not all may have been looked at.
            if let Some(unit) = unit.iter().copied().collect::<Option<Vec<Value>>>()
                && is_torn(history, &zeroes, block, &unit)
            {
                let read = OperationId(index as u32);
                return Err(Violation::Torn(Torn { read, first_block: block, saw: unit }));
            }
            (block, rest) = (block + count, tail);
        }
    }
    Ok(())
}

/// Whether a read shows a compare-and-write in one block, and in another what it replaced there, which nothing may have brought
/// back.
fn shows_what_was_replaced(history: &History, read: &Operation, values: &[Value]) -> bool {
    let mut seen = values.to_vec();
    seen.sort_unstable();
    seen.dedup();
    let swaps = seen.iter().filter_map(|value| history.writer(*value)).filter(|writer| writer.is_done());
    swaps.filter(|swap| !comes_back(history, swap)).any(|swap| {
        let Action::CompareAndWrite(replaced) = &swap.action else { return false };
        let is_replaced = |(block, value): (u64, &Value)| {
            let place = block.checked_sub(swap.first_block).and_then(|place| replaced.get(place as usize));
            *value != Value::ZERO && place == Some(value)
        };
        read.blocks().zip(values).any(is_replaced)
    })
}

/// Whether what was there before an operation may be there again: it was rolled back, or may have been.
fn comes_back(history: &History, operation: &Operation) -> bool {
    let blocks = operation.blocks();
    let restores = history.restores().filter(|restore| restore.latest().is_some_and(|end| end > operation.start));
    restores.map(Operation::blocks).any(|of| of.start < blocks.end && blocks.start < of.end)
}

/// Whether a write has to be all or nothing.
fn is_atomic(history: &History, write: &Operation) -> bool {
    write.first_block / history.atomic_blocks() == (write.blocks().end - 1) / history.atomic_blocks()
}

fn surely_before(one: &Operation, other: &Operation) -> bool {
    one.is_done() && one.latest().is_some_and(|end| end < other.start)
}

fn is_torn(history: &History, zeroes: &Zeroes, first_block: u64, saw: &[Value]) -> bool {
    let mut seen: Vec<Value> = saw.to_vec();
    seen.sort_unstable();
    seen.dedup();
    // A stamp that no write of the history has is another checker's finding.
    let writes: Vec<(Value, &Operation)> = seen
        .iter()
        .filter_map(|value| Some((*value, history.writer(*value)?)))
        .filter(|(_, w)| is_atomic(history, w))
        .collect();
    let shown_in = |write: &Operation| {
        let range = write.blocks();
        saw.iter()
            .enumerate()
            .map(|(index, value)| (first_block + index as u64, *value))
            .filter(move |(block, _)| range.contains(block))
    };
    for (_, write) in &writes {
        let mut zero_blocks = shown_in(write).filter(|(_, value)| *value == Value::ZERO);
        if zero_blocks.any(|(block, _)| !zeroes.may_follow(block, write)) {
            return true;
        }
    }
    let before = |one: usize, other: usize| {
        let ((_, first), (value, second)) = (writes[one], writes[other]);
        surely_before(first, second) || shown_in(first).any(|(_, shown)| shown == value)
    };
    has_circle(writes.len(), |one, other| one != other && before(one, other))
}

/// Whether a relation on `count` things goes in a circle.
fn has_circle(count: usize, before: impl Fn(usize, usize) -> bool) -> bool {
    let mut left: Vec<usize> = (0..count).collect();
    while !left.is_empty() {
        let first = left.iter().position(|one| !left.iter().any(|other| before(*other, *one)));
        match first {
            Some(place) => drop(left.swap_remove(place)),
            None => return true,
        }
    }
    false
}

/// The operations that zeroed blocks, by the unit they touch.
struct Zeroes<'a> {
    unit_blocks: u64,
    by_unit: BTreeMap<u64, Vec<&'a Operation>>,
}

impl<'a> Zeroes<'a> {
    fn of(history: &'a History) -> Self {
        let unit_blocks = history.atomic_blocks();
        let mut by_unit: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
        for operation in history.operations() {
            if operation.action == Action::Zero && operation.latest().is_some() {
                for unit in operation.first_block / unit_blocks..=(operation.blocks().end - 1) / unit_blocks {
                    by_unit.entry(unit).or_default().push(operation);
                }
            }
        }
        Self { unit_blocks, by_unit }
    }

    /// Whether something may have zeroed `block` after `write` had written it.
    fn may_follow(&self, block: u64, write: &Operation) -> bool {
        let candidates = self.by_unit.get(&(block / self.unit_blocks)).map_or(&[][..], |list| list);
        candidates.iter().any(|zero| zero.blocks().contains(&block) && !surely_before(zero, write))
    }
}

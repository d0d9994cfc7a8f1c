//! Linearizability of each block as a register.
//!
//! The events of a block are followed in their order. At each moment there is a set of *possibilities*: what the block
//! holds, and which of the operations under way have had their effect. Only when an operation ends is anything
//! decided: possibilities in which it has had its effect stay, others are continued by every sequence of operations
//! under way that ends with it ("just in time"). When no possibility is left, no order explains what was read.
//!
//! Few operations on one block are under way at a time, so the sets stay small and the whole is linear in the length
//! of the history. What may take effect at any time would make them grow. A write of unknown outcome whose stamp nobody
//! ever read is left out, since an order without it is as good as one with it; one that was read has surely had its
//! effect before the first such read ended. A compare-and-write is a read and a write in one: it comes next only where the block
//! holds what it compares with. Zeroes of unknown outcome have no stamp; those that may come at any time
//! are all as good as each other, so that only their number counts: how many have been sent, and how many of them were used.

use super::Violation;
use crate::history::{Action, History, Moment, OperationId, Outcome, Value};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

type Set<T> = HashSet<T, FixedState>;

/// Operations on one block under way at a time that are followed. A host whose commands nobody answers sends each of them again and
/// again, and every attempt is under way until one is answered.
const MOST_OPEN: usize = 512;
/// Possibilities at a time; more means a workload that overlaps everything with everything.
const MOST_POSSIBILITIES: usize = 200_000;

/// No order of a block's operations explains an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLinearizable {
    /// Which block.
    pub block: u64,
    /// The operation whose answer fits nowhere.
    pub operation: OperationId,
    /// What it saw, for a read, or a compare-and-write.
    pub saw: Option<Value>,
    /// What the block could have held just before the answer.
    pub possible: Vec<Value>,
    /// When the operation was sent and answered.
    pub moments: (Moment, Moment),
}

impl std::fmt::Display for NotLinearizable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Moment(start), Moment(end)) = self.moments;
        write!(f, "block {}: operation {} ({start}..{end}) ", self.block, self.operation.0)?;
        match self.saw {
            Some(value) => write!(f, "found {value}, which no order of operations explains; possible were")?,
            None => write!(f, "has no place in any order of operations; the block could hold")?,
        }
        self.possible.iter().try_for_each(|value| write!(f, " {value}"))
    }
}

/// One operation as its block sees it.
#[derive(Clone, Copy, Debug)]
struct Access {
    operation: OperationId,
    kind: Kind,
    /// It surely happened; an optional one may have.
    required: bool,
    start: Moment,
    end: Moment,
}

impl Access {
    /// Zeroes of unknown outcome whose process may never end.
    fn is_zero_at_any_time(&self) -> bool {
        !self.required && self.end == Moment::NEVER && self.kind == Kind::Write(Value::ZERO)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write(Value),
    Read(Value),
    /// Writes the second if the block holds the first.
    Swap(Value, Value),
}

impl Kind {
    /// What the block holds afterwards, if this is a write that can be next where it holds `value`.
    fn written_over(self, value: Value) -> Option<Value> {
        match self {
            Self::Write(written) => Some(written),
            Self::Swap(expected, written) => (expected == value).then_some(written),
            Self::Read(_) => None,
        }
    }

    /// What it leaves in the block.
    fn written(self) -> Option<Value> {
        match self {
            Self::Write(value) | Self::Swap(_, value) => Some(value),
            Self::Read(_) => None,
        }
    }

    /// What it found in the block, or will have if it is done.
    fn found(self) -> Option<Value> {
        match self {
            Self::Read(value) | Self::Swap(value, _) => Some(value),
            Self::Write(_) => None,
        }
    }
}

/// Operations under way, by slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Slots([u64; MOST_OPEN / 64]);

impl Slots {
    fn has(&self, slot: usize) -> bool {
        self.0[slot / 64] >> (slot % 64) & 1 == 1
    }

    fn with(mut self, slot: usize) -> Self {
        self.0[slot / 64] |= 1 << (slot % 64);
        self
    }

    fn without(mut self, slot: usize) -> Self {
        self.0[slot / 64] &= !(1 << (slot % 64));
        self
    }
}

/// What the block holds, which operations under way have had their effect, and how many of the zeroes that may come
/// at any time. Of two that are the same otherwise the one with fewer zeroes used is as good, and is looked at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Possibility {
    value: Value,
    done: Slots,
    zeroes: u32,
}

/// Possibilities, each with the fewest zeroes.
#[derive(Default)]
struct Possibilities(HashMap<(Value, Slots), u32, FixedState>);

impl Possibilities {
    /// Whether it is better than what was there.
    fn insert(&mut self, Possibility { value, done, zeroes }: Possibility) -> bool {
        let fewest = self.0.entry((value, done)).or_insert(u32::MAX);
        let is_better = zeroes < *fewest;
        *fewest = zeroes.min(*fewest);
        is_better
    }

    fn into_sorted(self) -> Vec<Possibility> {
        let mut all: Vec<_> =
            self.0.into_iter().map(|((value, done), zeroes)| Possibility { value, done, zeroes }).collect();
        all.sort_unstable();
        all
    }
}

/// Judges each block of a history.
///
/// # Errors
/// The violation of the lowest block that has one.
pub fn check(history: &History) -> Result<(), Violation> {
    let mut blocks: HashMap<u64, Vec<Access>, FixedState> = HashMap::default();
    for (index, operation) in history.operations().iter().enumerate() {
        let id = OperationId(index as u32);
        let Some(end) = operation.latest() else { continue };
        let start = earliest(history, id, end);
        for (place, block) in operation.blocks().enumerate() {
            let kind = match &operation.action {
                Action::Write => Kind::Write(History::stamp(id)),
                Action::Zero => Kind::Write(Value::ZERO),
                Action::CompareAndWrite(expected) => Kind::Swap(expected[place], History::stamp(id)),
                Action::Read(values) if matches!(operation.outcome, Outcome::Done(_)) => Kind::Read(values[place]),
                Action::Read(_) => continue,
                Action::Restore(values) => Kind::Write(values[place]),
                Action::Snapshot(values) => match values[place] {
                    Some(value) if operation.is_done() => Kind::Read(value),
                    _ => continue,
                },
            };
            let access = Access { operation: id, kind, required: operation.is_done(), start, end };
            blocks.entry(block).or_default().push(access);
        }
    }
    let mut numbers: Vec<u64> = blocks.keys().copied().collect();
    numbers.sort_unstable();
    numbers.into_iter().try_for_each(|block| check_block(block, &blocks[&block]))
}

/// The first moment at which an operation may take effect. A snapshot is one instant for all of its blocks, and for those of
/// the snapshots that were taken with it: none of them is from before the newest write that any of them shows had begun.
fn earliest(history: &History, id: OperationId, end: Moment) -> Moment {
    let operation = &history.operations()[id.0 as usize];
    let Action::Snapshot(_) = &operation.action else { return operation.start };
    let begun = history.shown_with(id).filter_map(|value| Some(history.writer(value)?.start));
    // What began after the snapshot was answered is found where it is shown.
    begun.filter(|begun| *begun < end).fold(operation.start, Moment::max)
}

fn check_block(block: u64, accesses: &[Access]) -> Result<(), Violation> {
    let found: Set<Value> = accesses.iter().filter_map(|access| access.kind.found()).collect();
    let matters =
        |access: &&Access| access.required || access.kind.written().is_none_or(|value| found.contains(&value));
    let mut accesses: Vec<Access> = accesses.iter().filter(matters).copied().collect();
    end_what_was_read(&mut accesses);
    let mut events: Vec<(Moment, bool, usize)> = Vec::with_capacity(accesses.len() * 2);
    for (index, access) in accesses.iter().enumerate() {
        events.push((access.start, true, index));
        events.push((access.end, false, index));
    }
    events.sort_unstable();
    let mut search = Search::new(block);
    for (_, starts, index) in events {
        match starts {
            true => search.start(accesses[index])?,
            false => search.end(accesses[index])?,
        }
    }
    Ok(())
}

/// A write of unknown outcome that was read has had its effect by the end of the first read that shows it, if nothing
/// else that wrote the same had been sent by then.
fn end_what_was_read(accesses: &mut [Access]) {
    let mut first_seen: HashMap<Value, Moment, FixedState> = HashMap::default();
    for access in accesses.iter().filter(|access| access.required) {
        if let Some(value) = access.kind.found() {
            let seen = first_seen.entry(value).or_insert(access.end);
            *seen = access.end.min(*seen);
        }
    }
    let mut writers: HashMap<Value, u32, FixedState> = HashMap::default();
    for access in accesses.iter() {
        if let Some(value) = access.kind.written()
            && first_seen.get(&value).is_some_and(|seen| access.start < *seen)
        {
            *writers.entry(value).or_default() += 1;
        }
    }
    for access in accesses.iter_mut().filter(|access| !access.required) {
        let Some(value) = access.kind.written() else { continue };
        let Some(&seen) = first_seen.get(&value) else { continue };
        // What was read before it was sent is no order's doing: the read finds that nothing explains it.
        if value != Value::ZERO && seen > access.start && writers[&value] == 1 && seen < access.end {
            // Just before the read ends.
            (access.required, access.end) = (true, seen);
        }
    }
}

/// The possibilities of one block at one moment.
struct Search {
    block: u64,
    open: Vec<Option<Access>>,
    /// Zeroes that were sent and may come at any time.
    zeroes: u32,
    possibilities: Vec<Possibility>,
}

impl Search {
    fn new(block: u64) -> Self {
        let at_first = Possibility { value: Value::ZERO, done: Slots::default(), zeroes: 0 };
        Self { block, open: Vec::new(), zeroes: 0, possibilities: vec![at_first] }
    }

    fn start(&mut self, access: Access) -> Result<(), Violation> {
        if access.is_zero_at_any_time() {
            self.zeroes += 1;
            return Ok(());
        }
        let slot = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if slot == MOST_OPEN {
            return Err(Violation::TooManyOpen { block: self.block, open: MOST_OPEN + 1 });
        }
        if slot == self.open.len() {
            self.open.push(None);
        }
        self.open[slot] = Some(access);
        // A read that fits what the block holds now is content now: later it can only be worse off.
        if let Kind::Read(value) = access.kind {
            for possibility in self.possibilities.iter_mut().filter(|p| p.value == value) {
                possibility.done = possibility.done.with(slot);
            }
        }
        Ok(())
    }

    fn end(&mut self, access: Access) -> Result<(), Violation> {
        if access.is_zero_at_any_time() {
            return Ok(());
        }
        let is_it = |open: &Option<Access>| open.is_some_and(|open| open.operation == access.operation);
        let slot = self.open.iter().position(is_it).expect("what ends has started");
        let before = std::mem::take(&mut self.possibilities);
        let (mut after, mut seen) = (Possibilities::default(), Possibilities::default());
        let mut todo = Vec::new();
        for possibility in &before {
            if possibility.done.has(slot) {
                after.insert(Possibility { done: possibility.done.without(slot), ..*possibility });
                continue;
            }
            if !access.required {
                after.insert(*possibility);
            }
            if seen.insert(*possibility) {
                todo.push(*possibility);
            }
        }
        while let Some(possibility) = todo.pop() {
            for next in self.continuations(possibility) {
                if next.done.has(slot) {
                    after.insert(Possibility { done: next.done.without(slot), ..next });
                } else if seen.insert(next) {
                    todo.push(next);
                }
            }
            if seen.0.len() + after.0.len() > MOST_POSSIBILITIES {
                return Err(Violation::TooManyOpen { block: self.block, open: self.open.iter().flatten().count() });
            }
        }
        self.open[slot] = None;
        if after.0.is_empty() {
            let mut possible: Vec<Value> = before
                .iter()
                .map(|possibility| possibility.value)
                .chain(seen.0.into_keys().map(|(value, _)| value))
                .collect();
            possible.sort_unstable();
            possible.dedup();
            return Err(Violation::NotLinearizable(NotLinearizable {
                block: self.block,
                operation: access.operation,
                saw: access.kind.found(),
                possible,
                moments: (access.start, access.end),
            }));
        }
        self.possibilities = after.into_sorted();
        Ok(())
    }

    /// What can come next: one more write under way has its effect, and the reads that it contents are content.
    fn continuations(&self, from: Possibility) -> impl Iterator<Item = Possibility> + '_ {
        let open = self.open.iter().enumerate().filter(move |(slot, _)| !from.done.has(*slot));
        let named = open.filter_map(move |(slot, access)| {
            let access = access.as_ref()?;
            let value = access.kind.written_over(from.value)?;
            if self.ends_first(access, from.done) != slot {
                return None;
            }
            Some(Possibility { value, done: self.content(value, from.done.with(slot)), zeroes: from.zeroes })
        });
        let zero = (from.zeroes < self.zeroes).then(|| {
            let done = self.content(Value::ZERO, from.done);
            Possibility { value: Value::ZERO, done, zeroes: from.zeroes + 1 }
        });
        named.chain(zero)
    }

    /// Of the writes of unknown outcome that are under way and write the same, the one that ends first: whatever order has
    /// another of them now is as good with this one, and the other in its place. A write that is required is itself.
    fn ends_first(&self, one: &Access, done: Slots) -> usize {
        let open = self.open.iter().enumerate().filter(|(slot, _)| !done.has(*slot));
        let like = open.filter_map(|(slot, access)| Some((slot, access.as_ref()?))).filter(|(_, access)| {
            access.operation == one.operation || (!access.required && !one.required && access.kind == one.kind)
        });
        like.min_by_key(|(slot, access)| (access.end, *slot)).map_or(0, |(slot, _)| slot)
    }

    /// With the reads under way that a value contents.
    fn content(&self, value: Value, done: Slots) -> Slots {
        let content = self.open.iter().enumerate().filter(|(_, a)| a.is_some_and(|a| a.kind == Kind::Read(value)));
        content.fold(done, |done, (slot, _)| done.with(slot))
    }
}

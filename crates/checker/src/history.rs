//! What clients saw: every operation with its start, its end and its answer, in one order.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What a block held: the stamp of the write that put it there. [`Value::ZERO`] is a block never written, or zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u64);

impl Value {
    /// Zeroes: the one value that many operations write.
    pub const ZERO: Self = Self(0);
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::ZERO => write!(f, "zeroes"),
            Self(stamp) => write!(f, "#{stamp}"),
        }
    }
}

/// A moment of the history: starts and ends are numbered in the order they were recorded, so that no two are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// After everything.
    pub const NEVER: Self = Self(u64::MAX);
}

/// Number of an operation in its history. The stamp of a write is this number plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u32);

/// What was asked for, and what of it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Blocks were written, all with this operation's stamp.
    Write,
    /// Blocks were zeroed.
    Zero,
    /// Blocks were written, all with this operation's stamp, if they held this: of each block one step, and of those that a
    /// read shows, too.
    CompareAndWrite(Vec<Value>),
    /// Blocks were read; what each held, once answered.
    Read(Vec<Value>),
    /// All blocks at one instant: a snapshot. What each held then, as far as it was looked at since.
    Snapshot(Vec<Option<Value>>),
    /// Blocks were set to what a snapshot holds: a rollback, or the beginning of a clone.
    Restore(Vec<Value>),
}

/// How it ended, as far as the client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has not.
    Open,
    /// It was done.
    Done(Moment),
    /// No answer will come. It may have taken effect, at any moment up to this one, or never.
    Unknown(Moment),
    /// It was refused, and did nothing.
    Refused(Moment),
}

/// One operation on a range of blocks.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What.
    pub action: Action,
    /// First block, counted over all that the workload uses.
    pub first_block: u64,
    /// Number of blocks.
    pub block_count: u32,
    /// When it was sent.
    pub start: Moment,
    /// How it ended.
    pub outcome: Outcome,
}

impl Operation {
    /// The blocks it is about.
    pub fn blocks(&self) -> std::ops::Range<u64> {
        self.first_block..self.first_block + u64::from(self.block_count)
    }

    /// The last moment at which it may take effect; `None` if it did nothing.
    pub fn latest(&self) -> Option<Moment> {
        match self.outcome {
            Outcome::Open => Some(Moment::NEVER),
            Outcome::Done(moment) | Outcome::Unknown(moment) => Some(moment),
            Outcome::Refused(_) => None,
        }
    }

    /// Whether it surely took effect.
    pub fn is_done(&self) -> bool {
        matches!(self.outcome, Outcome::Done(_))
    }
}

/// Writes of at most so many bytes that cross no boundary of as many are all or nothing.
pub const ATOMIC_BYTES: u64 = 64 << 10;

/// Everything that clients did, in the order they did it.
#[derive(Clone, Debug)]
pub struct History {
    operations: Vec<Operation>,
    moments: u64,
    /// Operations not ended yet, in the order of their start.
    open: Vec<OperationId>,
    atomic_blocks: u64,
    /// Snapshots that are all of one instant, by each of them.
    together: BTreeMap<OperationId, Arc<[OperationId]>>,
}

impl Default for History {
    fn default() -> Self {
        Self::of_blocks(types::BLOCK_BYTES as u64)
    }
}

impl History {
    /// An empty history of operations that are whole blocks of this size.
    pub fn of_blocks(block_bytes: u64) -> Self {
        assert_eq!(ATOMIC_BYTES % block_bytes, 0, "a block crosses no boundary");
        Self::of_atomic_blocks(ATOMIC_BYTES / block_bytes)
    }

    /// An empty history in which writes of at most so many blocks that cross no boundary of as many are all or nothing.
    pub fn of_atomic_blocks(atomic_blocks: u64) -> Self {
        assert!(atomic_blocks > 0, "a block is all or nothing");
        let together = BTreeMap::new();
        Self { operations: Vec::new(), moments: 0, open: Vec::new(), atomic_blocks, together }
    }

    /// A history that was recorded before, without snapshots: its operations by id.
    ///
    /// # Errors
    /// The first operation that cannot have been recorded so.
    pub fn of_operations(atomic_blocks: u64, operations: Vec<Operation>) -> Result<Self, Impossible> {
        let mut history = Self::of_atomic_blocks(atomic_blocks);
        for (id, operation) in (0..).map(OperationId).zip(&operations) {
            let end = match operation.outcome {
                Outcome::Open => operation.start,
                Outcome::Done(moment) | Outcome::Unknown(moment) | Outcome::Refused(moment) => moment,
            };
            let values = match &operation.action {
                Action::Read(_) if !operation.is_done() => None,
                Action::Read(values) | Action::CompareAndWrite(values) | Action::Restore(values) => Some(values.len()),
                Action::Write | Action::Zero => None,
                Action::Snapshot(_) => return Err(Impossible { operation: id, why: "is a snapshot" }),
            };
            let is_wrong = [
                (operation.block_count == 0, "is about no block"),
                (operation.first_block.checked_add(u64::from(operation.block_count)).is_none(), "is about no place"),
                (end < operation.start, "ends before it starts"),
                (end == Moment::NEVER, "ends after everything"),
                (
                    values.is_some_and(|values| values != operation.block_count as usize),
                    "has not a value for each block",
                ),
            ];
            if let Some((_, why)) = is_wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
                return Err(Impossible { operation: id, why });
            }
            history.moments = history.moments.max(end.0);
            if operation.outcome == Outcome::Open {
                history.open.push(id);
            }
        }
        history.operations = operations;
        Ok(history)
    }

    /// Blocks of what is written all or nothing.
    pub fn atomic_blocks(&self) -> u64 {
        self.atomic_blocks
    }

    fn moment(&mut self) -> Moment {
        self.moments += 1;
        Moment(self.moments)
    }

    /// An operation is about to be sent.
    pub fn start(&mut self, action: Action, first_block: u64, block_count: u32) -> OperationId {
        let id = OperationId(self.operations.len() as u32);
        let start = self.moment();
        self.operations.push(Operation { action, first_block, block_count, start, outcome: Outcome::Open });
        self.open.push(id);
        id
    }

    fn end(&mut self, id: OperationId, outcome: impl FnOnce(Moment) -> Outcome) -> &mut Operation {
        let moment = self.moment();
        let place = self.open.iter().rposition(|open| *open == id).expect("an operation ends once");
        self.open.remove(place);
        let operation = &mut self.operations[id.0 as usize];
        operation.outcome = outcome(moment);
        operation
    }

    /// These snapshots are to be of one instant.
    pub fn are_together(&mut self, snapshots: &[OperationId]) {
        let all: Arc<[OperationId]> = snapshots.into();
        self.together.extend(snapshots.iter().map(|id| (*id, all.clone())));
    }

    /// What a snapshot shows, and what those show that are of the same instant: as far as they were taken.
    pub fn shown_with(&self, id: OperationId) -> impl Iterator<Item = Value> + '_ {
        let alone = [id];
        let all: Vec<OperationId> = self.together.get(&id).map_or(alone.to_vec(), |all| all.to_vec());
        let taken = all.into_iter().map(|id| &self.operations[id.0 as usize]).filter(|one| one.is_done());
        taken.flat_map(|one| match &one.action {
            Action::Snapshot(values) => values.iter().flatten().copied(),
            _ => unreachable!("only snapshots are of one instant"),
        })
    }

    /// A write or zero was acknowledged.
    pub fn done(&mut self, id: OperationId) {
        self.end(id, Outcome::Done);
    }

    /// A read was answered.
    pub fn answered(&mut self, id: OperationId, values: Vec<Value>) {
        let operation = self.end(id, Outcome::Done);
        assert_eq!(values.len(), operation.block_count as usize, "a value for each block");
        operation.action = Action::Read(values);
    }

    /// A snapshot was looked at: what it holds from its block number `from` on.
    ///
    /// # Errors
    /// The first block that held something else when it was looked at before.
    pub fn seen(&mut self, id: OperationId, from: usize, values: &[Value]) -> Result<(), Changed> {
        let operation = &mut self.operations[id.0 as usize];
        let Action::Snapshot(known) = &mut operation.action else { unreachable!("only snapshots are looked at") };
        for (place, found) in (from..).zip(values) {
            let held = known[place].get_or_insert(*found);
            if held != found {
                let block = operation.first_block + place as u64;
                return Err(Changed { block, held: *held, found: *found });
            }
        }
        Ok(())
    }

    /// What a snapshot holds, once all of it was looked at.
    pub fn held(&self, id: OperationId) -> Option<Vec<Value>> {
        match &self.operations[id.0 as usize].action {
            Action::Snapshot(known) => known.iter().copied().collect(),
            _ => None,
        }
    }

    /// Whether an operation whose process ended was done was seen afterwards.
    pub fn found_out(&mut self, id: OperationId, was_done: bool) {
        let outcome = &mut self.operations[id.0 as usize].outcome;
        let Outcome::Unknown(moment) = *outcome else { unreachable!("what was answered needs no finding out") };
        *outcome = if was_done { Outcome::Done(moment) } else { Outcome::Refused(moment) };
    }

    /// It was refused and did nothing (a read that failed is one too).
    pub fn refused(&mut self, id: OperationId) {
        self.end(id, Outcome::Refused);
    }

    /// What has not been answered has taken effect by now, or never will.
    pub fn over(&mut self, id: OperationId) {
        self.end(id, Outcome::Unknown);
    }

    /// All that had been sent and not answered (an error that leaves the outcome open is no answer) to the processes
    /// that ended has taken effect by now, or never will: they are gone, and what they left behind has been opened.
    /// Call it before anything is asked of those that came after them.
    pub fn processes_ended(&mut self) {
        let moment = self.moment();
        for id in std::mem::take(&mut self.open) {
            self.operations[id.0 as usize].outcome = Outcome::Unknown(moment);
        }
    }

    /// The same history, in which these operations did nothing that is judged.
    pub fn leaving_out(&self, leave_out: impl Fn(&Operation) -> bool) -> Self {
        let mut rest = self.clone();
        for operation in rest.operations.iter_mut().filter(|operation| leave_out(operation)) {
            operation.outcome = Outcome::Refused(operation.start);
        }
        rest
    }

    /// All operations, by id.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The stamp that the blocks of a write carry.
    pub fn stamp(id: OperationId) -> Value {
        Value(u64::from(id.0) + 1)
    }

    /// What was done to a block, line by line, for whoever reads about a failure.
    pub fn of_block(&self, block: u64) -> String {
        let mut out = String::new();
        for (index, operation) in self.operations.iter().enumerate().filter(|(_, one)| one.blocks().contains(&block)) {
            let what = match &operation.action {
                Action::Write => format!("write {}", Self::stamp(OperationId(index as u32))),
                Action::Zero => "zero".to_owned(),
                Action::CompareAndWrite(values) => {
                    let (value, stamp) =
                        (values[(block - operation.first_block) as usize], Self::stamp(OperationId(index as u32)));
                    format!("write {stamp} if it holds {value}")
                }
                Action::Read(values) => {
                    let value = values.get((block - operation.first_block) as usize);
                    format!("read {}", value.map_or("nothing".to_owned(), ToString::to_string))
                }
                Action::Snapshot(values) => {
                    let value = values[(block - operation.first_block) as usize];
                    format!("snapshot of {}", value.map_or("what nobody looked at".to_owned(), |v| v.to_string()))
                }
                Action::Restore(values) => {
                    format!("set to {} by a rollback or for a clone", values[(block - operation.first_block) as usize])
                }
            };
            let (blocks, start) = (operation.blocks(), operation.start.0);
            out += &format!("operation {index}: {what} blocks {blocks:?}, from {start}, {:?}\n", operation.outcome);
        }
        out
    }

    /// All rollbacks, and the beginnings of clones.
    pub fn restores(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter().filter(|operation| matches!(operation.action, Action::Restore(_)))
    }

    /// The write with this stamp.
    pub fn writer(&self, value: Value) -> Option<&Operation> {
        let operation = self.operations.get(usize::try_from(value.0.checked_sub(1)?).ok()?)?;
        matches!(operation.action, Action::Write | Action::CompareAndWrite(_)).then_some(operation)
    }
}

/// An operation that no history has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {} {why}", operation.0)]
pub struct Impossible {
    /// Which.
    pub operation: OperationId,
    /// What is wrong with it.
    pub why: &'static str,
}

/// A snapshot that is not what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {block} of a snapshot held {held} when it was looked at before, and now {found}")]
pub struct Changed {
    /// Where.
    pub block: u64,
    /// What it held at first.
    pub held: Value,
    /// What it holds now.
    pub found: Value,
}

/// A block whose contents are not what any write put there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlock {
    /// It begins like a write's block and goes on otherwise.
    #[error("block {block} is torn: it begins with stamp {stamp} and differs at byte {byte}")]
    Torn {
        /// Where it was read.
        block: u64,
        /// What its beginning says.
        stamp: u64,
        /// First byte that does not fit.
        byte: usize,
    },
    /// It is the block of another place.
    #[error("block {block} holds what was written to block {found} (stamp {stamp})")]
    Misplaced {
        /// Where it was read.
        block: u64,
        /// Where it belongs.
        found: u64,
        /// Of which write.
        stamp: u64,
    },
}

/// What can be saved of a block that is compressed. The block says itself which of these it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Texture {
    /// Nothing: all words are different.
    Rough,
    /// Almost everything: the same 128 bytes again and again.
    Even,
    /// Not quite half: of each 512 bytes, the second half repeats one word.
    Striped,
}

impl Texture {
    /// Where in a block's first word it stands, above the stamp.
    const SHIFT: u32 = 62;

    fn of_word(first: u64) -> Option<Self> {
        [Self::Rough, Self::Even, Self::Striped].into_iter().find(|texture| texture.bits() == first >> Self::SHIFT)
    }

    fn bits(self) -> u64 {
        self as u64
    }

    /// Which word of a rough block stands at this place, behind the first two.
    fn source(self, index: usize) -> usize {
        match self {
            Self::Even => 2 + index % 16,
            Self::Striped if index % 64 >= 32 => index - index % 32,
            Self::Rough | Self::Striped => index,
        }
    }
}

fn word(texture: Texture, stamp: u64, block: u64, index: usize) -> u64 {
    match index {
        0 => stamp | texture.bits() << Texture::SHIFT,
        1 => block,
        _ => {
            let source = texture.source(index) as u64;
            (stamp ^ block.rotate_left(32)).wrapping_add(source).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }
    }
}

/// Fills a block of any size with what the write `value` puts at `block`: every byte depends on both.
pub fn fill_block(value: Value, block: u64, bytes: &mut [u8]) {
    fill_textured(Texture::Rough, value, block, bytes);
}

/// As [`fill_block`], with something to be saved.
pub fn fill_textured(texture: Texture, value: Value, block: u64, bytes: &mut [u8]) {
    for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&word(texture, value.0, block, index).to_le_bytes());
    }
}

/// How a rough block that `value` was written to begins.
pub fn beginning(value: Value, block: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    fill_block(value, block, &mut bytes);
    bytes
}

/// Which write put these bytes at `block`.
///
/// # Errors
/// [`BadBlock`] if none can have.
pub fn read_block(block: u64, bytes: &[u8]) -> Result<Value, BadBlock> {
    let at = |index: usize| u64::from_le_bytes(bytes[index * 8..index * 8 + 8].try_into().expect("8 bytes"));
    let (texture, stamp, found) = (Texture::of_word(at(0)), at(0) & !(3 << Texture::SHIFT), at(1));
    let zero = at(0) == 0;
    let home = if zero { 0 } else { found };
    let Some(texture) = texture else { return Err(BadBlock::Torn { block, stamp, byte: 0 }) };
    let expected = |index| if zero { 0 } else { word(texture, stamp, home, index) };
    if let Some(index) = (0..bytes.len() / 8).find(|index| at(*index) != expected(*index)) {
        return Err(BadBlock::Torn { block, stamp, byte: index * 8 });
    }
    if !zero && found != block {
        return Err(BadBlock::Misplaced { block, found, stamp });
    }
    Ok(Value(stamp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::BLOCK_BYTES;

    const TEXTURES: [Texture; 3] = [Texture::Rough, Texture::Even, Texture::Striped];

    #[test]
    fn a_block_tells_who_wrote_it() {
        let mut bytes = [0; BLOCK_BYTES];
        assert_eq!(read_block(9, &bytes), Ok(Value::ZERO));
        for texture in TEXTURES {
            fill_textured(texture, Value(5), 9, &mut bytes);
            assert_eq!(read_block(9, &bytes), Ok(Value(5)));
            assert_eq!(read_block(8, &bytes), Err(BadBlock::Misplaced { block: 8, found: 9, stamp: 5 }));
        }
    }

    #[test]
    fn every_wrong_byte_is_seen() {
        let mut bytes = [0; BLOCK_BYTES];
        for texture in [None, Some(Texture::Rough), Some(Texture::Even), Some(Texture::Striped)] {
            if let Some(texture) = texture {
                fill_textured(texture, Value(5), 9, &mut bytes);
            }
            for at in (0..BLOCK_BYTES).step_by(7) {
                bytes[at] ^= 0x10;
                assert!(read_block(9, &bytes).is_err(), "byte {at}");
                bytes[at] ^= 0x10;
            }
            bytes.fill(0);
        }
    }

    #[test]
    fn two_writes_mixed_in_one_block_are_torn() {
        for texture in TEXTURES {
            let (mut one, mut other) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
            fill_textured(texture, Value(5), 9, &mut one);
            fill_textured(texture, Value(6), 9, &mut other);
            one[512..1024].copy_from_slice(&other[512..1024]);
            assert_eq!(read_block(9, &one), Err(BadBlock::Torn { block: 9, stamp: 5, byte: 512 }));
        }
    }

    #[test]
    fn a_texture_repeats_as_much_as_it_says() {
        let different = |texture| {
            let mut bytes = [0; BLOCK_BYTES];
            fill_textured(texture, Value(5), 9, &mut bytes);
            bytes.chunks(8).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(TEXTURES.map(different), [512, 18, 8 * 33]);
    }
}

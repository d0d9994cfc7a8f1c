//! The first record of an incarnation: what recovery found missing, and may be missing from now on.

use super::bytes::{check_length, check_zero, put_u32, put_u64, u32_at, u64_at};
use super::{FormatError, RecordSeq};
use types::Incarnation;

const WHAT: &str = "opening";
/// Length without the gaps.
pub const OPENING_BYTES: usize = 32;
/// Length of a gap.
pub const GAP_BYTES: usize = 16;
/// Most gaps: one opening accepts at most as many as appends were in flight; the rest is room.
pub const MAX_GAPS: usize = 64;

/// Records `first..=last`, in the shard's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeqRange {
    /// The first.
    pub first: RecordSeq,
    /// The last.
    pub last: RecordSeq,
}

impl SeqRange {
    /// Whether `seq` is one of them.
    pub fn contains(self, seq: RecordSeq) -> bool {
        self.first <= seq && seq <= self.last
    }
}

/// Payload of the entry that begins an incarnation.
///
/// From here on the gaps are never damage; and a record of an incarnation before `incarnation` that lies in a gap, or
/// has a sequence of `void_from` or more, is void: it is as if it were not there.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 8 | incarnation that begins |
/// | 8 | 8 | incarnation that went before, 0 for the first |
/// | 16 | 8 | void from: the first sequence that no earlier incarnation used, as far as was found |
/// | 24 | 4 | number of gaps, ≤ 64 |
/// | 28 | 4 | zero |
/// | 32 | 16 × gaps | first and last sequence of each, in order, below `void_from` |
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// The incarnation that begins.
    pub incarnation: Incarnation,
    /// The one before.
    pub previous: Incarnation,
    /// Sequences from here on belong to `incarnation` and later ones.
    pub void_from: RecordSeq,
    gaps: &'a [u8],
}

impl<'a> Opening<'a> {
    /// Appends the payload to `out`.
    ///
    /// # Panics
    /// Above [`MAX_GAPS`] gaps, or if they are not in order below `void_from`.
    pub fn encode(
        incarnation: Incarnation,
        previous: Incarnation,
        void_from: RecordSeq,
        gaps: &[SeqRange],
        out: &mut Vec<u8>,
    ) {
        assert!(gaps.len() <= MAX_GAPS);
        let start = out.len();
        out.resize(start + OPENING_BYTES + gaps.len() * GAP_BYTES, 0);
        let payload = &mut out[start..];
        put_u64(payload, 0, incarnation.0);
        put_u64(payload, 8, previous.0);
        put_u64(payload, 16, void_from.0);
        put_u32(payload, 24, gaps.len() as u32);
        for (i, gap) in gaps.iter().enumerate() {
            put_u64(payload, OPENING_BYTES + i * GAP_BYTES, gap.first.0);
            put_u64(payload, OPENING_BYTES + i * GAP_BYTES + 8, gap.last.0);
        }
        debug_assert!(Opening::decode(payload).is_ok(), "gaps in order, below void_from");
    }

    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, FormatError> {
        check_length(WHAT, payload, OPENING_BYTES)?;
        let count = u32_at(payload, 24) as usize;
        if count > MAX_GAPS || payload.len() != OPENING_BYTES + count * GAP_BYTES {
            return Err(FormatError::Field { what: WHAT, field: "number of gaps", found: count as u64 });
        }
        check_zero(WHAT, 28, &payload[28..OPENING_BYTES])?;
        let opening = Self {
            incarnation: Incarnation(u64_at(payload, 0)),
            previous: Incarnation(u64_at(payload, 8)),
            void_from: RecordSeq(u64_at(payload, 16)),
            gaps: &payload[OPENING_BYTES..],
        };
        if opening.previous >= opening.incarnation {
            return Err(FormatError::Field { what: WHAT, field: "incarnation", found: opening.incarnation.0 });
        }
        let mut below = RecordSeq(0);
        for gap in opening.gaps() {
            if gap.first <= below || gap.last < gap.first || gap.last >= opening.void_from {
                return Err(FormatError::Field { what: WHAT, field: "gap", found: gap.first.0 });
            }
            below = gap.last;
        }
        Ok(opening)
    }

    /// Sequences that are missing and may be.
    pub fn gaps(&self) -> impl ExactSizeIterator<Item = SeqRange> + use<'a> {
        self.gaps
            .chunks_exact(GAP_BYTES)
            .map(|gap| SeqRange { first: RecordSeq(u64_at(gap, 0)), last: RecordSeq(u64_at(gap, 8)) })
    }

    /// Whether a record of `incarnation` with this sequence is void because of this opening.
    pub fn voids(&self, incarnation: Incarnation, seq: RecordSeq) -> bool {
        incarnation < self.incarnation && (seq >= self.void_from || self.gaps().any(|gap| gap.contains(seq)))
    }
}

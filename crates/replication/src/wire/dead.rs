//! A crash is told, not guessed (R8 of docs/replication.md): the supervisor of a node has it from the kernel.

use super::WireError;
use super::beat::MAX_STORES_NAMED;
use super::body::{Body, begin_fixed, end_list};
use super::bytes::{put_u16, put_u64, put_u128, u16_at, u64_at, u128_at};
use types::{Incarnation, StoreId};

const LIFE_BYTES: usize = 24;

/// These lives of stores are over: the process that had the stores open in them has ended. It says nothing of later ones.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 8 |
/// | 2 | 2 | number of stores |
/// | 4 | 4 | zero |
/// | 8 | 24 × stores | store (16), its incarnation (8) |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dead {
    /// At most [`MAX_STORES_NAMED`].
    pub lives: Vec<(StoreId, Incarnation)>,
}

impl Dead {
    const WHAT: &'static str = "word of a death";
    const FIXED_BYTES: usize = 8;

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        if self.lives.len() > MAX_STORES_NAMED {
            return Err(WireError::field(Self::WHAT, "number of stores", self.lives.len() as u64));
        }
        put_u16(begin_fixed::<{ Self::FIXED_BYTES }>(out), 2, self.lives.len() as u16);
        let start = out.len();
        for (store, life) in &self.lives {
            let at = out.len();
            out.resize(at + LIFE_BYTES, 0);
            put_u128(out, at, store.0);
            put_u64(out, at + 16, life.0);
        }
        end_list(out, start);
        Ok(())
    }

    pub(super) fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let (fixed, mut body) = Body::begin(Self::WHAT, meta, Self::FIXED_BYTES)?;
        let stores = usize::from(u16_at(fixed, 2));
        if stores > MAX_STORES_NAMED {
            return Err(WireError::field(Self::WHAT, "number of stores", stores as u64));
        }
        let list = body.list(stores * LIFE_BYTES)?;
        let life = |from: &[u8]| (StoreId(u128_at(from, 0)), Incarnation(u64_at(from, 16)));
        Ok(Self { lives: list.chunks_exact(LIFE_BYTES).map(life).collect() })
    }
}

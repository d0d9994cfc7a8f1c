//! Contents that say what they are.
//!
//! A sector of 512 bytes, the smallest unit that a host may write and a power loss may tear:
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | `CairnSec` |
//! | 8–15 | volume tag |
//! | 16–23 | sector number |
//! | 24–31 | version: which write |
//! | 32–503 | a stream of numbers that follows from the three |
//! | 504–511 | sum of all before |
//!
//! So any two writes differ in every sector, a sector in the wrong place is recognised, and a torn one too.

use crate::random::mix;
use std::fmt;

/// Unit of the journal and of tearing.
pub const SECTOR_BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"CairnSec";
const SUM_AT: usize = SECTOR_BYTES - 8;

/// What a sector holds, as one number: 0 is all zeroes, anything else stands for 512 bytes (by a 64-bit hash of them).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content(pub u64);

impl Content {
    /// 512 zero bytes.
    pub const ZERO: Self = Self(0);

    /// Of one sector's bytes.
    ///
    /// # Panics
    /// Unless it is exactly one sector.
    pub fn of(sector: &[u8]) -> Self {
        assert_eq!(sector.len(), SECTOR_BYTES);
        let mut hash = 0x517c_c1b7_2722_0a95_u64;
        let mut any = 0;
        for word in words(sector) {
            any |= word;
            hash = (hash ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
        }
        if any == 0 { Self::ZERO } else { Self(mix(hash) | 1) }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
}

/// What is stamped on a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Which volume.
    pub volume: u64,
    /// Which sector of it.
    pub sector: u64,
    /// Which write.
    pub version: u64,
}

impl Stamp {
    /// Fills one sector.
    pub fn fill(self, sector: &mut [u8]) {
        assert_eq!(sector.len(), SECTOR_BYTES);
        sector[..8].copy_from_slice(MAGIC);
        for (place, number) in sector[8..32].chunks_exact_mut(8).zip([self.volume, self.sector, self.version]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let mut number = mix(self.version ^ self.sector.rotate_left(40) ^ self.volume.rotate_left(20));
        for place in sector[32..SUM_AT].chunks_exact_mut(8) {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            place.copy_from_slice(&number.to_le_bytes());
        }
        let sum = sum(&sector[..SUM_AT]);
        sector[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    }

    /// The stamp of a sector that is whole.
    pub fn read(sector: &[u8]) -> Option<Self> {
        let (body, tail) = sector.split_at_checked(SUM_AT)?;
        if !body.starts_with(MAGIC) || tail != sum(body).to_le_bytes() {
            return None;
        }
        let mut numbers = words(&body[8..32]);
        Some(Self { volume: numbers.next()?, sector: numbers.next()?, version: numbers.next()? })
    }
}

fn sum(bytes: &[u8]) -> u64 {
    words(bytes).fold(1, |sum, word| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23))
}

/// What a human is told of a sector.
pub struct Describe<'a>(pub &'a [u8]);

impl fmt::Display for Describe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Stamp::read(self.0) {
            Some(Stamp { volume, sector, version }) => {
                write!(f, "version {version} of sector {sector} of volume {volume}")
            }
            None if self.0.iter().all(|byte| *byte == 0) => write!(f, "zeroes"),
            None => write!(f, "no whole stamp, begins with {:02x?}", &self.0[..self.0.len().min(16)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_breaks_the_stamp() {
        let stamp = Stamp { volume: 1, sector: 77, version: 5 };
        let mut sector = [0; SECTOR_BYTES];
        stamp.fill(&mut sector);
        assert_eq!(Stamp::read(&sector), Some(stamp));
        let content = Content::of(&sector);
        for bit in 0..SECTOR_BYTES * 8 {
            sector[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Stamp::read(&sector), None, "bit {bit}");
            assert_ne!(Content::of(&sector), content, "bit {bit}");
            sector[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn only_zeroes_are_zero() {
        assert_eq!(Content::of(&[0; SECTOR_BYTES]), Content::ZERO);
        let mut sector = [0; SECTOR_BYTES];
        sector[511] = 1;
        assert_ne!(Content::of(&sector), Content::ZERO);
    }
}

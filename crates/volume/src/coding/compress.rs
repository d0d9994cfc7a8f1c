//! Blocks made smaller: the exact length in two bytes, the compressed bytes, zeroes to a multiple of 512 bytes.

use cluster::Compression;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use store::format::{Codec, StoredLength, UNIT_BYTES, UNITS_PER_BLOCK};
use types::BLOCK_BYTES;
use zstd::bulk::{Compressor, Decompressor};

/// In front of the compressed bytes: how many they are.
const LENGTH_BYTES: usize = 2;
/// What a compressed block may take at most: a unit less than as it is.
const MOST_BYTES: usize = BLOCK_BYTES - UNIT_BYTES;
/// Fast, and on blocks of 4 KiB hardly worse than the slower ones.
const ZSTD_LEVEL: i32 = 1;

/// One core's means of making blocks smaller and large again.
pub(super) struct Compressors {
    table: CompressTable,
    scratch: Box<[u8]>,
    /// Half a megabyte: only where somebody asks for it.
    zstd: Option<(Compressor<'static>, Decompressor<'static>)>,
}

impl Compressors {
    pub(super) fn new() -> Self {
        let scratch = vec![0; get_maximum_output_size(BLOCK_BYTES)].into_boxed_slice();
        Self { table: CompressTable::small(), scratch, zstd: None }
    }

    /// Writes the compressed block to the front of `out`. `None` if it would not take a unit less.
    ///
    /// # Panics
    /// If `block` and `out` have not the length of a block.
    pub(super) fn compress(&mut self, method: Compression, block: &[u8], out: &mut [u8]) -> Option<StoredLength> {
        assert_eq!((block.len(), out.len()), (BLOCK_BYTES, BLOCK_BYTES));
        let (codec, length) = match method {
            Compression::Off => return None,
            Compression::Lz4 => {
                let length = compress_into_with_table(block, &mut self.scratch, &mut self.table).ok()?;
                let room = &mut out[LENGTH_BYTES..MOST_BYTES];
                room.get_mut(..length)?.copy_from_slice(&self.scratch[..length]);
                (Codec::Lz4, length)
            }
            Compression::Zstd => {
                let (compressor, _) = self.zstd()?;
                (Codec::Zstd, compressor.compress_to_buffer(block, &mut out[LENGTH_BYTES..MOST_BYTES]).ok()?)
            }
        };
        let units = (LENGTH_BYTES + length).div_ceil(UNIT_BYTES);
        debug_assert!(units < usize::from(UNITS_PER_BLOCK));
        out[..LENGTH_BYTES].copy_from_slice(&(length as u16).to_le_bytes());
        out[LENGTH_BYTES + length..units * UNIT_BYTES].fill(0);
        Some(StoredLength::new(units as u8, codec))
    }

    /// Writes the whole block to `out`.
    ///
    /// # Errors
    /// What is wrong with the stored bytes.
    pub(super) fn decompress(&mut self, codec: Codec, stored: &[u8], out: &mut [u8]) -> Result<(), String> {
        let (length, rest) = stored.split_at(LENGTH_BYTES);
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let bytes = rest.get(..length).ok_or_else(|| format!("{length} bytes in {}", rest.len()))?;
        let written = match codec {
            Codec::Raw => return Err("it is not compressed".to_owned()),
            Codec::Lz4 => decompress_into(bytes, out).map_err(|error| error.to_string())?,
            Codec::Zstd => {
                let (_, decompressor) = self.zstd().ok_or("zstd cannot be set up")?;
                decompressor.decompress_to_buffer(bytes, out).map_err(|error| error.to_string())?
            }
        };
        if written == BLOCK_BYTES { Ok(()) } else { Err(format!("a block of {written} bytes")) }
    }

    fn zstd(&mut self) -> Option<&mut (Compressor<'static>, Decompressor<'static>)> {
        if self.zstd.is_none() {
            self.zstd = Some((Compressor::new(ZSTD_LEVEL).ok()?, Decompressor::new().ok()?));
        }
        self.zstd.as_mut()
    }
}

/// Where compressing keeps failing it is tried rarely. By place in the volume, for what lies together is alike.
pub(super) struct Hopeless(Box<[u8; PLACES]>);

const PLACES: usize = 1024;
/// Failures in a row after which a place is hopeless.
const FAILURES: u8 = 8;
/// Of what is written to a hopeless place, one in so many is tried.
const TRIED_ONE_IN: u8 = 16;

impl Hopeless {
    pub(super) fn none() -> Self {
        Self(Box::new([0; PLACES]))
    }

    /// Whether compressing is to be tried at this place.
    pub(super) fn is_worth_trying(&mut self, place: u64) -> bool {
        let count = self.at(place);
        if *count < FAILURES {
            return true;
        }
        *count += 1;
        if *count == FAILURES + TRIED_ONE_IN {
            *count = FAILURES;
        }
        *count == FAILURES
    }

    /// It was tried.
    pub(super) fn note(&mut self, place: u64, shrank: bool) {
        let count = self.at(place);
        *count = if shrank { 0 } else { (*count + 1).min(FAILURES) };
    }

    fn at(&mut self, place: u64) -> &mut u8 {
        &mut self.0[(place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of a small vocabulary: neither trivial nor hopeless.
    fn text() -> Vec<u8> {
        let words = ["segment ", "record ", "leaf ", "entry ", "block ", "chunk ", "layer ", "volume "];
        let mut state = 7_u32;
        let mut bytes = Vec::new();
        while bytes.len() < BLOCK_BYTES {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bytes.extend_from_slice(words[(state >> 29) as usize].as_bytes());
        }
        bytes.truncate(BLOCK_BYTES);
        bytes
    }

    fn noise() -> Vec<u8> {
        let mut state = 1_u64;
        let byte = |_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..BLOCK_BYTES).map(byte).collect()
    }

    #[test]
    fn a_block_comes_back_and_is_as_long_as_it_says() {
        let mut compressors = Compressors::new();
        let mut out = vec![0xff; BLOCK_BYTES];
        for (method, codec) in [(Compression::Lz4, Codec::Lz4), (Compression::Zstd, Codec::Zstd)] {
            for block in [text(), vec![0; BLOCK_BYTES], vec![0xab; BLOCK_BYTES]] {
                out.fill(0xff);
                let stored = compressors.compress(method, &block, &mut out).expect("it shrinks");
                assert_eq!(stored.codec(), codec);
                let length = usize::from(u16::from_le_bytes([out[0], out[1]]));
                assert_eq!((length + 2).div_ceil(UNIT_BYTES), usize::from(stored.units()));
                assert!(out[2 + length..stored.bytes()].iter().all(|byte| *byte == 0), "zeroes behind it");
                let mut back = vec![1; BLOCK_BYTES];
                assert_eq!(compressors.decompress(codec, &out[..stored.bytes()], &mut back), Ok(()));
                assert!(back == block);
            }
        }
    }

    #[test]
    fn what_does_not_shrink_by_a_unit_is_refused() {
        let mut compressors = Compressors::new();
        let mut out = vec![0; BLOCK_BYTES];
        for method in [Compression::Off, Compression::Lz4, Compression::Zstd] {
            assert_eq!(compressors.compress(method, &noise(), &mut out), None);
        }
        // The last units may still be too many: compressible at the end only.
        let mut nearly = noise();
        nearly[BLOCK_BYTES - 300..].fill(0);
        assert_eq!(compressors.compress(Compression::Lz4, &nearly, &mut out), None);
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let mut compressors = Compressors::new();
        let (mut out, mut back) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
        for method in [Compression::Lz4, Compression::Zstd] {
            let stored = compressors.compress(method, &text(), &mut out).expect("it shrinks");
            for at in 0..stored.bytes() {
                let mut wrong = out[..stored.bytes()].to_vec();
                wrong[at] ^= 0x55;
                // An error, or some other block: never a panic. The sum of the stored bytes tells which it should be.
                let _ = compressors.decompress(stored.codec(), &wrong, &mut back);
            }
            let mut too_long = out[..UNIT_BYTES].to_vec();
            too_long[..2].copy_from_slice(&[0xff, 0xff]);
            assert!(compressors.decompress(stored.codec(), &too_long, &mut back).is_err());
        }
    }

    #[test]
    fn a_hopeless_place_is_tried_now_and_then_and_forgiven() {
        let mut hopeless = Hopeless::none();
        for _ in 0..FAILURES {
            assert!(hopeless.is_worth_trying(5));
            hopeless.note(5, false);
        }
        let tried = |hopeless: &mut Hopeless| {
            (0..160)
                .filter(|_| {
                    let tried = hopeless.is_worth_trying(5);
                    if tried {
                        hopeless.note(5, false);
                    }
                    tried
                })
                .count()
        };
        assert_eq!(tried(&mut hopeless), 10);
        while !hopeless.is_worth_trying(5) {}
        hopeless.note(5, true);
        assert!(hopeless.is_worth_trying(5) && hopeless.is_worth_trying(5));
    }
}

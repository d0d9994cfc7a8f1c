//! Blocks on their way to the store and back: compressed, then encrypted.
//!
//! ```text
//!   block (4 KiB) ─ compress ─► length, bytes, zeroes (1 to 7 units of 512) ─ encrypt ─► store: crc, length and codec
//!                 └ does not shrink, or is not tried ─► as it is (8 units) ─ encrypt ─┘
//! ```

use super::Coding;
use super::cipher::Ciphers;
use super::compress::{Compressors, Hopeless};
use cluster::Compression;
use replication::Blocks;
use runtime::{IoBuf, SharedBuf};
use store::format::{Codec, Crc32c, StoredLength};
use store::{BlockCoding, MAX_ENTRY_BLOCKS};
use types::{BLOCK_BYTES, BLOCKS_PER_CHUNK, BlockRange, ChunkId, LayerId};

/// Where blocks are in their volume.
#[derive(Clone, Copy)]
pub(crate) struct Where {
    /// The layer that is written to; of a read it says nothing.
    pub(crate) layer: LayerId,
    pub(crate) chunk: ChunkId,
    pub(crate) range: BlockRange,
}

impl Where {
    /// Number of the first block, counted from the volume's first.
    fn first_block(&self) -> u64 {
        u64::from(self.chunk.0) * u64::from(BLOCKS_PER_CHUNK) + u64::from(self.range.first)
    }

    /// Where compressing is tried or not.
    fn place(&self) -> u64 {
        self.layer.0 << 32 | u64::from(self.chunk.0)
    }
}

/// One core's means.
pub(crate) struct Coder {
    compressors: Compressors,
    ciphers: Ciphers,
    hopeless: Hopeless,
}

impl Coder {
    pub(crate) fn new() -> Self {
        Self { compressors: Compressors::new(), ciphers: Ciphers::default(), hopeless: Hopeless::none() }
    }

    /// Forgets what it knows of keys that nobody holds any more.
    pub(crate) fn forget_unheld_keys(&mut self) {
        self.ciphers.forget_unheld();
    }

    /// The blocks of one entry, as they are to be stored.
    ///
    /// # Errors
    /// What the cipher says; nothing may be stored then.
    pub(crate) fn encode(
        &mut self,
        coding: &Coding,
        at: Where,
        bytes: SharedBuf,
    ) -> Result<(SharedBuf, BlockCoding), String> {
        let tried = coding.compression != Compression::Off && self.hopeless.is_worth_trying(at.place());
        if !tried && coding.key.is_none() {
            return Ok((bytes, BlockCoding::PLAIN));
        }
        let count = usize::from(at.range.count);
        let mut out = IoBuf::new(bytes.len());
        let mut lengths = [StoredLength::RAW; MAX_ENTRY_BLOCKS as usize];
        let mut end = 0;
        for (i, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            let room = &mut out[end..end + BLOCK_BYTES];
            let shrunk = if tried { self.compressors.compress(coding.compression, block, room) } else { None };
            lengths[i] = shrunk.unwrap_or(StoredLength::RAW);
            let room = &mut room[..lengths[i].bytes()];
            let number = at.first_block() + i as u64;
            match (&coding.key, shrunk) {
                (None, Some(_)) => {}
                (None, None) => room.copy_from_slice(block),
                (Some(key), shrunk) => {
                    let cipher = self.ciphers.of(&key.data).map_err(|error| error.to_string())?;
                    let done = match shrunk {
                        Some(_) => cipher.encrypt_in_place(number, room),
                        None => cipher.encrypt(number, block, room),
                    };
                    done.map_err(|error| error.to_string())?;
                }
            }
            end += room.len();
        }
        let shrank = end < bytes.len();
        if tried {
            self.hopeless.note(at.place(), shrank);
        }
        let Some(key) = &coding.key else {
            return Ok(match shrank {
                true => (out.freeze().slice(0..end), BlockCoding::new(types::KeyId(0), Some(&lengths[..count]))),
                false => (bytes, BlockCoding::PLAIN),
            });
        };
        let lengths = shrank.then_some(&lengths[..count]);
        Ok((out.freeze().slice(0..end), BlockCoding::new(key.id, lengths)))
    }

    /// Fills `buf` with the blocks that `stored` holds; their crc32c go to `checksums`.
    ///
    /// # Errors
    /// The first block that cannot be what was written, and why.
    pub(crate) fn decode(
        &mut self,
        coding: &Coding,
        at: Where,
        mut stored: Blocks,
        buf: &mut IoBuf,
        checksums: &mut Vec<u32>,
    ) -> Result<(), (u32, String)> {
        let mut result = Ok(());
        let mut blocks = buf.chunks_exact_mut(BLOCK_BYTES).enumerate();
        stored.for_each(|found| {
            let (i, out) = blocks.next().expect("a block of the buffer for each that is stored");
            if result.is_err() {
                return;
            }
            let number = at.first_block() + i as u64;
            let done = match found {
                None => {
                    out.fill(0);
                    Ok(())
                }
                Some((length, bytes)) => self.decode_block(coding, number, length, bytes, out),
            };
            match done {
                Ok(()) => checksums.push(Crc32c::of(out).0),
                Err(why) => result = Err((u32::from(at.range.first) + i as u32, why)),
            }
        });
        result
    }

    fn decode_block(
        &mut self,
        coding: &Coding,
        number: u64,
        length: StoredLength,
        bytes: &mut [u8],
        out: &mut [u8],
    ) -> Result<(), String> {
        let Some(key) = &coding.key else {
            if length.codec() != Codec::Raw {
                return self.compressors.decompress(length.codec(), bytes, out);
            }
            out.copy_from_slice(bytes);
            return Ok(());
        };
        let cipher = self.ciphers.of(&key.data).map_err(|error| error.to_string())?;
        if length.codec() == Codec::Raw {
            return cipher.decrypt(number, bytes, out).map_err(|error| error.to_string());
        }
        cipher.decrypt_in_place(number, bytes).map_err(|error| error.to_string())?;
        self.compressors.decompress(length.codec(), bytes, out)
    }
}

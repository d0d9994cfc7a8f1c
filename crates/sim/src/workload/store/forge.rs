//! A guest that writes what looks like a record of the log into its blocks.
//!
//! When a real record is lost under it, such a block may lie just where the scan looks for the next one. It is a
//! record in everything but the keyed hash, and it claims the worst: that a thousand records before it were durable.

use checker::history::{BadBlock, Value, read_block};
use store::format::record::RECORD_MAGIC;
use store::format::{Generation, HashKey, RecordHeader, RecordKey, RecordKind, RecordPlace, RecordSeq, SegmentIndex};
use types::{BLOCK_BYTES, Incarnation, ShardIndex, StoreId};

/// Sequence that a forged record claims: this plus its block.
const SEQ: u64 = 1 << 40;
/// Where sequence and wall clock stand in a header: they tell block and write apart.
const SEQ_AT: usize = 24;
const WALL_TIME_AT: usize = 48;

/// Fills a block of the write `value` with a forged record.
pub fn fill(value: Value, block: u64, bytes: &mut [u8]) {
    let header = RecordHeader {
        kind: RecordKind::Log,
        shard: ShardIndex((value.0 % 2) as u8),
        length_bytes: BLOCK_BYTES as u32,
        entries_bytes: 0,
        entry_count: 0,
        seq: RecordSeq(SEQ + block),
        durable_through: RecordSeq(SEQ),
        incarnation: Incarnation(1 << 40),
        wall_time_ns: value.0,
    };
    let key = RecordKey::new(&HashKey([0x66; 32]), StoreId(0));
    let place = RecordPlace { segment: SegmentIndex(0), generation: Generation(1), offset_bytes: 4096 };
    header.encode(&key, &place, BLOCK_BYTES as u32, bytes);
}

/// Which write put these bytes at `block`, forged or not.
///
/// # Errors
/// As [`read_block`].
pub fn read(block: u64, bytes: &[u8]) -> Result<Value, BadBlock> {
    if !bytes.starts_with(&RECORD_MAGIC) {
        return read_block(block, bytes);
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let (stamp, found) = (word(WALL_TIME_AT), word(SEQ_AT).wrapping_sub(SEQ));
    let mut expected = [0; BLOCK_BYTES];
    fill(Value(stamp), found, &mut expected);
    if let Some(byte) = (0..BLOCK_BYTES).find(|byte| bytes[*byte] != expected[*byte]) {
        return Err(BadBlock::Torn { block, stamp, byte });
    }
    match found == block {
        true => Ok(Value(stamp)),
        false => Err(BadBlock::Misplaced { block, found, stamp }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forged_block_is_a_record_in_everything_but_its_key() {
        let mut bytes = [0; BLOCK_BYTES];
        fill(Value(9), 3, &mut bytes);
        let header = RecordHeader::peek(&bytes, 4096, 1 << 20).expect("it looks like one");
        assert_eq!(header.seq, RecordSeq(SEQ + 3));
        assert_eq!(read(3, &bytes), Ok(Value(9)));
        assert!(read(4, &bytes).is_err());
        bytes[2000] ^= 1;
        assert!(read(3, &bytes).is_err());
    }
}

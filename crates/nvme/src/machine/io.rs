//! NVM commands: from a submission queue entry to a checked byte range.

use super::namespaces::NamespaceTable;
use crate::limits::MAX_TRANSFER_BYTES;
use crate::wire::log::AnaState;
use crate::wire::{ALL_NAMESPACES, DatasetRange, Sgl, Sqe, Status, nvm};
use runtime::SharedBuf;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Read,
    Write,
    Compare,
    WriteZeroes {
        deallocate: bool,
    },
    Flush,
    Deallocate {
        ranges: u16,
    },
    /// A hint that needs no action.
    Nothing,
}

/// A command whose fields have been checked against its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IoPlan {
    pub nsid: u32,
    pub verb: Verb,
    pub offset_bytes: u64,
    pub len_bytes: u32,
    /// log2 of the logical block, for the ranges of a deallocation.
    pub block_shift: u8,
}

impl IoPlan {
    /// Bytes the host sends with it.
    pub fn data_bytes(&self) -> u32 {
        match self.verb {
            Verb::Write | Verb::Compare => self.len_bytes,
            Verb::Deallocate { ranges } => u32::from(ranges) * DatasetRange::BYTES as u32,
            _ => 0,
        }
    }
}

/// What to do with a volume. The range is inside the namespace.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Read the range.
    Read {
        /// First byte.
        offset_bytes: u64,
        /// Bytes.
        len_bytes: u32,
    },
    /// Write the bytes.
    Write {
        /// First byte.
        offset_bytes: u64,
        /// What to write.
        data: SharedBuf,
    },
    /// Compare with the bytes.
    Compare {
        /// First byte.
        offset_bytes: u64,
        /// What to compare with.
        data: SharedBuf,
    },
    /// Write the bytes if the range holds the expected ones, both at once; ended with [`Connection::complete_fused`].
    ///
    /// [`Connection::complete_fused`]: super::Connection::complete_fused
    CompareAndWrite {
        /// First byte.
        offset_bytes: u64,
        /// What to compare with.
        expected: SharedBuf,
        /// What to write, as long.
        data: SharedBuf,
    },
    /// Make the range read as zeroes. `deallocate` allows to give the space back, which is done anyway.
    WriteZeroes {
        /// First byte.
        offset_bytes: u64,
        /// Bytes.
        len_bytes: u32,
        /// The host's leave to give the space back.
        deallocate: bool,
    },
    /// Make durable what was acknowledged.
    Flush,
    /// Give back the space of these ranges, [`discard_ranges`] reads them.
    Deallocate {
        /// 16 bytes each.
        ranges: SharedBuf,
        /// log2 of the logical block.
        block_shift: u8,
    },
    /// Nothing: a hint.
    Nothing,
}

impl Operation {
    /// It waits long: see [`SharedBuf::keep`] of the data that came with it.
    pub fn keep(&mut self) {
        match self {
            Self::Write { data, .. } | Self::Compare { data, .. } | Self::Deallocate { ranges: data, .. } => {
                data.keep()
            }
            Self::CompareAndWrite { expected, data, .. } => {
                expected.keep();
                data.keep();
            }
            Self::Read { .. } | Self::WriteZeroes { .. } | Self::Flush | Self::Nothing => {}
        }
    }
}

/// The byte ranges of a deallocation, in order, with those of no length left out.
pub fn discard_ranges(ranges: &[u8], block_shift: u8) -> impl Iterator<Item = (u64, u64)> + '_ {
    ranges.chunks_exact(DatasetRange::BYTES).filter_map(move |bytes| {
        let range = DatasetRange::decode(bytes.try_into().expect("chunks of this size"));
        // A block that has no byte offset lies past every end: it must not come round to the beginning.
        let offset_bytes = range.slba.saturating_mul(1 << block_shift);
        (range.block_count > 0).then(|| (offset_bytes, u64::from(range.block_count) << block_shift))
    })
}

/// Checks a command; what it needs of data must fit in what its SGL describes.
pub(super) fn plan(sqe: &Sqe, namespaces: &NamespaceTable) -> Result<IoPlan, Status> {
    let known = matches!(
        sqe.opcode,
        nvm::FLUSH | nvm::WRITE | nvm::READ | nvm::COMPARE | nvm::WRITE_ZEROES | nvm::DATASET_MANAGEMENT
    );
    if !known {
        return Err(Status::INVALID_OPCODE.do_not_retry());
    }
    check_fuse(sqe)?;
    if sqe.opcode == nvm::FLUSH && sqe.nsid == ALL_NAMESPACES {
        return Ok(IoPlan { nsid: sqe.nsid, verb: Verb::Nothing, offset_bytes: 0, len_bytes: 0, block_shift: 0 });
    }
    let namespace = namespaces.get(sqe.nsid).ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
    match namespace.ana {
        AnaState::Optimized => {}
        AnaState::Inaccessible => return Err(Status::ANA_INACCESSIBLE),
        AnaState::Change => return Err(Status::ANA_TRANSITION),
    }
    let shift = namespace.block_shift;
    let mut plan = IoPlan { nsid: sqe.nsid, verb: Verb::Flush, offset_bytes: 0, len_bytes: 0, block_shift: shift };
    match sqe.opcode {
        nvm::FLUSH => return Ok(plan),
        nvm::DATASET_MANAGEMENT => {
            let ranges = (sqe.cdw[0] & 0xFF) as u16 + 1;
            let deallocates = sqe.cdw[1] & DatasetRange::DEALLOCATE != 0;
            plan.verb = if deallocates { Verb::Deallocate { ranges } } else { Verb::Nothing };
            return fits(plan, &sqe.sgl);
        }
        _ => {}
    }
    let blocks = u64::from(sqe.block_count());
    if sqe.slba().checked_add(blocks).is_none_or(|end| end > namespace.size_blocks) {
        return Err(Status::LBA_OUT_OF_RANGE.do_not_retry());
    }
    let len_bytes = blocks << shift;
    plan.verb = match sqe.opcode {
        nvm::READ => Verb::Read,
        nvm::WRITE => Verb::Write,
        nvm::COMPARE => Verb::Compare,
        _ => Verb::WriteZeroes { deallocate: sqe.cdw[2] & Sqe::DEALLOCATE != 0 },
    };
    // MDTS does not bind Write Zeroes, which moves no data (65,536 blocks of 4 KiB fit in 32 bits).
    if !matches!(plan.verb, Verb::WriteZeroes { .. }) && len_bytes > u64::from(MAX_TRANSFER_BYTES) {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    plan.offset_bytes = sqe.slba() << shift;
    plan.len_bytes = len_bytes as u32;
    fits(plan, &sqe.sgl)
}

/// The one fused operation is Compare and Write (NVM Command Set 1.0 §2.1.6.1), a compare first.
fn check_fuse(sqe: &Sqe) -> Result<(), Status> {
    let fits = match sqe.fuse() {
        0 => true,
        Sqe::FUSE_FIRST => sqe.opcode == nvm::COMPARE,
        Sqe::FUSE_SECOND => sqe.opcode == nvm::WRITE,
        _ => false,
    };
    if fits { Ok(()) } else { Err(Status::INVALID_FIELD.do_not_retry()) }
}

/// The SGL has room for the data that the command moves.
fn fits(plan: IoPlan, sgl: &Sgl) -> Result<IoPlan, Status> {
    let needs = if plan.verb == Verb::Read { plan.len_bytes } else { plan.data_bytes() };
    if needs > sgl.len_bytes {
        return Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry());
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::NamespaceInfo;

    fn table(shift: u8) -> NamespaceTable {
        let mut table = NamespaceTable::default();
        let info = NamespaceInfo { size_blocks: 1000, block_shift: shift, nguid: [0; 16], ana: AnaState::Optimized };
        table.set(1, info);
        table.set(2, NamespaceInfo { ana: AnaState::Inaccessible, ..info });
        table.set(3, NamespaceInfo { ana: AnaState::Change, ..info });
        table
    }

    fn command(opcode: u8, slba: u64, blocks: u32, sgl_bytes: u32) -> Sqe {
        let mut sqe = Sqe::new(opcode, 1);
        sqe.set_slba(slba);
        sqe.cdw[2] = blocks - 1;
        sqe.sgl = Sgl::transport(sgl_bytes);
        sqe
    }

    fn status(sqe: &Sqe) -> Option<Status> {
        plan(sqe, &table(9)).err().map(Status::code)
    }

    #[test]
    fn ranges_are_checked_without_overflow() {
        assert_eq!(status(&command(nvm::READ, 992, 8, 4096)), None);
        assert_eq!(status(&command(nvm::READ, 993, 8, 4096)), Some(Status::LBA_OUT_OF_RANGE));
        assert_eq!(status(&command(nvm::READ, u64::MAX, 1, 512)), Some(Status::LBA_OUT_OF_RANGE));
        assert_eq!(status(&command(nvm::WRITE_ZEROES, u64::MAX - 5, 65536, 0)), Some(Status::LBA_OUT_OF_RANGE));
    }

    #[test]
    fn refusals_have_the_right_status() {
        assert_eq!(status(&command(nvm::READ, 0, 8, 4095)), Some(Status::DATA_SGL_LENGTH_INVALID));
        assert_eq!(status(&command(nvm::WRITE, 0, 8, 4095)), Some(Status::DATA_SGL_LENGTH_INVALID));
        assert_eq!(status(&command(0x19, 0, 1, 0)), Some(Status::INVALID_OPCODE));
        assert_eq!(status(&Sqe::new(nvm::FLUSH, 9)), Some(Status::INVALID_NAMESPACE));
        assert_eq!(status(&Sqe::new(nvm::FLUSH, 0)), Some(Status::INVALID_NAMESPACE));
        assert_eq!(status(&Sqe::new(nvm::FLUSH, 2)), Some(Status::ANA_INACCESSIBLE));
        assert_eq!(status(&Sqe::new(nvm::FLUSH, 3)), Some(Status::ANA_TRANSITION));
        for (opcode, fuse) in [(nvm::WRITE, 1), (nvm::COMPARE, 2), (nvm::READ, 1), (nvm::COMPARE, 3), (nvm::FLUSH, 2)] {
            let mut fused = command(opcode, 0, 8, 4096);
            fused.flags |= fuse;
            assert_eq!(status(&fused), Some(Status::INVALID_FIELD), "opcode {opcode}, FUSE {fuse}");
        }
        let large = plan(&command(nvm::READ, 0, 257, 2 << 20), &table(12));
        assert_eq!(large.map_err(Status::code), Err(Status::INVALID_FIELD), "above MDTS");
    }

    #[test]
    fn discard_ranges_leave_empty_ones_out() {
        let ranges = [(0u64, 8u32), (5, 0), (16, 1)];
        let bytes: Vec<u8> = ranges
            .iter()
            .flat_map(|(slba, block_count)| DatasetRange { block_count: *block_count, slba: *slba }.encode())
            .collect();
        assert_eq!(discard_ranges(&bytes, 9).collect::<Vec<_>>(), [(0, 4096), (8192, 512)]);
    }

    #[test]
    fn a_discard_range_beyond_all_bytes_does_not_come_round_to_the_beginning() {
        for (slba, shift) in [(1 << 55, 9), (1 << 52, 12), (u64::MAX, 9)] {
            let bytes = DatasetRange { block_count: 8, slba }.encode();
            assert_eq!(discard_ranges(&bytes, shift).collect::<Vec<_>>(), [(u64::MAX, 8 << shift)]);
        }
    }
}

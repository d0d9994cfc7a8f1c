//! Submission queue entries (NVMe Base 2.0 §3.3.3.1) and the fields of the commands that are served.

use super::bytes::{array_at, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

/// Admin opcodes.
#[allow(missing_docs)] // the names are the specification's
pub mod admin {
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0A;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0C;
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// NVM command set opcodes.
#[allow(missing_docs)]
pub mod nvm {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Opcode of every fabrics command.
pub const FABRICS_OPCODE: u8 = 0x7F;

/// NSID of "all namespaces".
pub const ALL_NAMESPACES: u32 = u32::MAX;

/// A scatter gather list descriptor.
///
/// | bytes | field |
/// |---|---|
/// | 0–7 | address or offset |
/// | 8–11 | length |
/// | 12–14 | reserved |
/// | 15 | type (high half), subtype |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sgl {
    /// Address, or offset in the capsule.
    pub address: u64,
    /// Bytes.
    pub len_bytes: u32,
    /// Type and subtype.
    pub kind: u8,
}

impl Sgl {
    /// Size on the wire.
    pub const BYTES: usize = 16;
    /// Data block at an offset in the capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Data moved by the transport: C2HData, or R2T and H2CData.
    pub const TRANSPORT: u8 = 0x5A;

    /// No data.
    pub const NONE: Self = Self { address: 0, len_bytes: 0, kind: Self::TRANSPORT };

    /// `len_bytes` moved by the transport.
    pub fn transport(len_bytes: u32) -> Self {
        Self { address: 0, len_bytes, kind: Self::TRANSPORT }
    }
    /// `len_bytes` at the start of the capsule's data.
    pub fn in_capsule(len_bytes: u32) -> Self {
        Self { address: 0, len_bytes, kind: Self::IN_CAPSULE }
    }
    fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self { address: u64_at(bytes, 0), len_bytes: u32_at(bytes, 8), kind: bytes[15] }
    }
    fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put_u64(&mut bytes, 0, self.address);
        put_u32(&mut bytes, 8, self.len_bytes);
        bytes[15] = self.kind;
        bytes
    }
}

/// A submission queue entry.
///
/// | bytes | field | |
/// |---|---|---|
/// | 0 | opcode | |
/// | 1 | flags | bits 0–1 FUSE, 6–7 PSDT |
/// | 2–3 | CID | |
/// | 4–7 | NSID | fabrics: byte 4 is FCTYPE |
/// | 8–15 | dwords 2–3 | not kept |
/// | 16–23 | metadata pointer | not kept |
/// | 24–39 | SGL | [`Sgl`] |
/// | 40–63 | dwords 10–15 | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sqe {
    /// What to do.
    pub opcode: u8,
    /// FUSE and PSDT.
    pub flags: u8,
    /// The host's number of the command.
    pub command: u16,
    /// The namespace, or FCTYPE in the lowest byte.
    pub nsid: u32,
    /// Where the data is.
    pub sgl: Sgl,
    /// Dwords 10 to 15.
    pub cdw: [u32; 6],
}

impl Sqe {
    /// Size on the wire.
    pub const BYTES: usize = 64;
    /// PSDT: an SGL, contiguous metadata: what fabrics asks for.
    pub const FLAGS_SGL: u8 = 0x40;

    /// A command without data.
    pub fn new(opcode: u8, nsid: u32) -> Self {
        Self { opcode, flags: Self::FLAGS_SGL, command: 0, nsid, sgl: Sgl::NONE, cdw: [0; 6] }
    }

    /// Reads it.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let mut cdw = [0; 6];
        for (index, dword) in cdw.iter_mut().enumerate() {
            *dword = u32_at(bytes, 40 + 4 * index);
        }
        Self {
            opcode: bytes[0],
            flags: bytes[1],
            command: u16_at(bytes, 2),
            nsid: u32_at(bytes, 4),
            sgl: Sgl::decode(&array_at(bytes, 24)),
            cdw,
        }
    }

    /// Writes it.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = self.opcode;
        bytes[1] = self.flags;
        put_u16(&mut bytes, 2, self.command);
        put_u32(&mut bytes, 4, self.nsid);
        bytes[24..40].copy_from_slice(&self.sgl.encode());
        for (index, dword) in self.cdw.iter().enumerate() {
            put_u32(&mut bytes, 40 + 4 * index, *dword);
        }
        bytes
    }

    /// Which half of a fused pair this is (0: none).
    pub fn fuse(&self) -> u8 {
        self.flags & 3
    }
    /// FCTYPE of a fabrics command.
    pub fn fabrics_type(&self) -> u8 {
        self.nsid as u8
    }
    /// Starting LBA of an NVM command.
    pub fn slba(&self) -> u64 {
        u64::from(self.cdw[0]) | u64::from(self.cdw[1]) << 32
    }
    /// Sets the starting LBA.
    pub fn set_slba(&mut self, lba: u64) {
        self.cdw[0] = lba as u32;
        self.cdw[1] = (lba >> 32) as u32;
    }
    /// Number of logical blocks (NLB is one less on the wire).
    pub fn block_count(&self) -> u32 {
        (self.cdw[2] & 0xFFFF) + 1
    }
    /// FUSE: the first half of a fused pair.
    pub const FUSE_FIRST: u8 = 1;
    /// FUSE: its second half, the next command of the queue.
    pub const FUSE_SECOND: u8 = 2;
    /// Write Zeroes: the range may be deallocated (DEAC).
    pub const DEALLOCATE: u32 = 1 << 25;
}

/// One range of Dataset Management.
///
/// | bytes | field |
/// |---|---|
/// | 0–3 | context attributes |
/// | 4–7 | length in logical blocks |
/// | 8–15 | starting LBA |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetRange {
    /// Length in logical blocks.
    pub block_count: u32,
    /// First block.
    pub slba: u64,
}

impl DatasetRange {
    /// Size on the wire.
    pub const BYTES: usize = 16;
    /// Most ranges of one command.
    pub const MAX_RANGES: usize = 256;
    /// Dword 11: deallocate.
    pub const DEALLOCATE: u32 = 1 << 2;

    /// Reads it.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self { block_count: u32_at(bytes, 4), slba: u64_at(bytes, 8) }
    }
    /// Writes it.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put_u32(&mut bytes, 4, self.block_count);
        put_u64(&mut bytes, 8, self.slba);
        bytes
    }
}

const _: () = assert!(Sqe::BYTES == 24 + Sgl::BYTES + 6 * 4);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::hex;

    #[test]
    fn write_golden_bytes() {
        let mut sqe = Sqe::new(nvm::WRITE, 3);
        sqe.command = 0x1042;
        sqe.sgl = Sgl::in_capsule(4096);
        sqe.set_slba(0x1_0000_0008);
        sqe.cdw[2] = 7;
        let bytes = sqe.encode();
        let expected = "0140421003000000".to_owned()
            + &"00".repeat(16)
            + "00000000000000000010000000000001"
            + "080000000100000007000000"
            + &"00".repeat(12);
        assert_eq!(hex(&bytes), expected);
        assert_eq!(Sqe::decode(&bytes), sqe);
        assert_eq!((sqe.slba(), sqe.block_count()), (0x1_0000_0008, 8));
    }

    #[test]
    fn dataset_range_golden_bytes() {
        let range = DatasetRange { block_count: 256, slba: 0x0102 };
        assert_eq!(hex(&range.encode()), "00000000000100000201000000000000");
        assert_eq!(DatasetRange::decode(&range.encode()), range);
    }
}

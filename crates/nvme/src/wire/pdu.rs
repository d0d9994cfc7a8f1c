//! The PDUs of NVMe/TCP (NVMe/TCP Transport 1.0 §3.6): common header and what follows it.
//!
//! ```text
//!  0        8            HLEN      PDO                         PLEN
//!  ├────────┼────────────┼────┬────┼──────────────────┬────────┤
//!  │ common │ specific   │HDGST│pad│ data             │ DDGST  │
//!  └────────┴────────────┴────┴────┴──────────────────┴────────┘
//! ```
//!
//! Digests (crc32c, 4 bytes) are there when both sides agreed on them; HLEN never counts HDGST, PLEN counts all.

use super::bytes::{array_at, put_u16, put_u32, u16_at, u32_at};
use super::command::Sqe;
use super::completion::Cqe;

/// Bytes of a header or data digest.
pub const DIGEST_BYTES: usize = 4;

/// What a PDU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PduType {
    /// Host asks for a connection.
    IcReq = 0x00,
    /// Controller agrees.
    IcResp = 0x01,
    /// Host ends the connection with a reason.
    H2cTermReq = 0x02,
    /// Controller ends the connection with a reason.
    C2hTermReq = 0x03,
    /// A command, with its data if that fits.
    CapsuleCmd = 0x04,
    /// A completion.
    CapsuleResp = 0x05,
    /// Data of a write that the controller asked for.
    H2cData = 0x06,
    /// Data of a read.
    C2hData = 0x07,
    /// Controller is ready for a write's data.
    R2t = 0x09,
}

impl PduType {
    /// The type of this number, if there is one.
    pub fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            0x00 => Self::IcReq,
            0x01 => Self::IcResp,
            0x02 => Self::H2cTermReq,
            0x03 => Self::C2hTermReq,
            0x04 => Self::CapsuleCmd,
            0x05 => Self::CapsuleResp,
            0x06 => Self::H2cData,
            0x07 => Self::C2hData,
            0x09 => Self::R2t,
            _ => return None,
        })
    }

    /// The one legal HLEN of this type.
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::IcReq | Self::IcResp => IcReq::BYTES,
            Self::H2cTermReq | Self::C2hTermReq => TermReq::HEADER_BYTES,
            Self::CapsuleCmd => CAPSULE_CMD_BYTES,
            Self::CapsuleResp => CAPSULE_RESP_BYTES,
            Self::H2cData | Self::C2hData => DataHeader::BYTES,
            Self::R2t => R2t::BYTES,
        }
    }

    /// Whether digests that were agreed on apply to it (they do not to what opens and ends a connection).
    pub const fn has_header_digest(self) -> bool {
        !matches!(self, Self::IcReq | Self::IcResp | Self::H2cTermReq | Self::C2hTermReq)
    }

    /// Whether it may carry data.
    pub const fn may_have_data(self) -> bool {
        matches!(self, Self::CapsuleCmd | Self::H2cData | Self::C2hData)
    }
}

/// Largest header of any type.
pub const MAX_HEADER_BYTES: usize = 128;

/// Bits of FLAGS.
pub mod flag {
    /// A header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// A data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// The last data PDU of this transfer.
    pub const LAST: u8 = 1 << 2;
    /// C2HData only: the command succeeded and no CapsuleResp will come.
    pub const SUCCESS: u8 = 1 << 3;
}

/// The common header.
///
/// | bytes | field | |
/// |---|---|---|
/// | 0 | PDU-Type | [`PduType`] |
/// | 1 | FLAGS | [`flag`] |
/// | 2 | HLEN | header bytes, without digest |
/// | 3 | PDO | where the data begins, counted from the start of the PDU |
/// | 4–7 | PLEN | bytes of the whole PDU |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonHeader {
    /// Number of the type, as it came.
    pub kind: u8,
    /// See [`flag`].
    pub flags: u8,
    /// Header bytes.
    pub hlen: u8,
    /// Offset of the data.
    pub pdo: u8,
    /// Bytes of the whole PDU.
    pub plen: u32,
}

impl CommonHeader {
    /// Size on the wire.
    pub const BYTES: usize = 8;

    /// Reads it.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self { kind: bytes[0], flags: bytes[1], hlen: bytes[2], pdo: bytes[3], plen: u32_at(bytes, 4) }
    }

    /// Writes it to the first 8 bytes.
    pub fn encode(&self, bytes: &mut [u8]) {
        bytes[0] = self.kind;
        bytes[1] = self.flags;
        bytes[2] = self.hlen;
        bytes[3] = self.pdo;
        put_u32(bytes, 4, self.plen);
    }
}

/// ICReq and ICResp, which differ in the meaning of two fields.
///
/// | bytes | ICReq | ICResp |
/// |---|---|---|
/// | 0–7 | common header | common header |
/// | 8–9 | PFV, 0 | PFV, 0 |
/// | 10 | HPDA: alignment of C2H data, in 4-byte units less one | CPDA: of H2C data |
/// | 11 | DGST: bit 0 header, bit 1 data | the same, what is used |
/// | 12–15 | MAXR2T, less one | MAXH2CDATA, bytes |
/// | 16–127 | reserved | reserved |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IcReq {
    /// PDU format version, 0.
    pub pfv: u16,
    /// HPDA or CPDA.
    pub data_alignment: u8,
    /// Header digest asked for or used.
    pub header_digest: bool,
    /// Data digest asked for or used.
    pub data_digest: bool,
    /// MAXR2T (ICReq) or MAXH2CDATA (ICResp).
    pub limit: u32,
}

impl IcReq {
    /// Size on the wire.
    pub const BYTES: usize = 128;
    /// Largest HPDA and CPDA: 128 bytes.
    pub const MAX_DATA_ALIGNMENT: u8 = 31;

    /// Reads it; reserved bits of DGST are ignored.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            pfv: u16_at(bytes, 8),
            data_alignment: bytes[10],
            header_digest: bytes[11] & 1 != 0,
            data_digest: bytes[11] & 2 != 0,
            limit: u32_at(bytes, 12),
        }
    }

    /// Writes it as `kind`: ICReq or ICResp.
    pub fn encode(&self, kind: PduType) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        CommonHeader { kind: kind as u8, flags: 0, hlen: 128, pdo: 0, plen: 128 }.encode(&mut bytes);
        put_u16(&mut bytes, 8, self.pfv);
        bytes[10] = self.data_alignment;
        bytes[11] = u8::from(self.header_digest) | u8::from(self.data_digest) << 1;
        put_u32(&mut bytes, 12, self.limit);
        bytes
    }
}

/// Why a connection is ended by a TermReq (FES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum FatalError {
    /// A header field is wrong; FEI says at which byte.
    InvalidHeaderField = 1,
    /// This PDU has no business here now.
    SequenceError = 2,
    /// The header digest does not fit.
    HeaderDigest = 3,
    /// Data outside of what was asked for.
    DataOutOfRange = 4,
    /// More data (H2C) or more R2Ts (C2H) than was agreed.
    LimitExceeded = 5,
    /// A parameter asks for something that is not supported.
    UnsupportedParameter = 6,
}

/// H2CTermReq and C2HTermReq.
///
/// | bytes | field |
/// |---|---|
/// | 0–7 | common header, PLEN ≤ 152 |
/// | 8–9 | FES |
/// | 10–13 | FEI: offset of the bad field, or the digest |
/// | 14–23 | reserved |
/// | 24–151 | the header that was in error, cut to 128 bytes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermReq {
    /// FES as it came.
    pub status: u16,
    /// FEI.
    pub information: u32,
}

impl TermReq {
    /// Header on the wire.
    pub const HEADER_BYTES: usize = 24;
    /// Largest PLEN.
    pub const MAX_BYTES: usize = Self::HEADER_BYTES + MAX_HEADER_BYTES;

    /// Reads the header.
    pub fn decode(bytes: &[u8; Self::HEADER_BYTES]) -> Self {
        Self { status: u16_at(bytes, 8), information: u32_at(bytes, 10) }
    }

    /// Writes it as `kind` with the header in error; returns the bytes and how many are used.
    pub fn encode(&self, kind: PduType, bad_header: &[u8]) -> ([u8; Self::MAX_BYTES], usize) {
        let mut bytes = [0; Self::MAX_BYTES];
        let shown = bad_header.len().min(MAX_HEADER_BYTES);
        let plen = Self::HEADER_BYTES + shown;
        CommonHeader { kind: kind as u8, flags: 0, hlen: 24, pdo: 0, plen: plen as u32 }.encode(&mut bytes);
        put_u16(&mut bytes, 8, self.status);
        put_u32(&mut bytes, 10, self.information);
        bytes[24..plen].copy_from_slice(&bad_header[..shown]);
        (bytes, plen)
    }
}

/// CapsuleCmd: common header and a submission queue entry.
pub const CAPSULE_CMD_BYTES: usize = CommonHeader::BYTES + Sqe::BYTES;
/// CapsuleResp: common header and a completion queue entry.
pub const CAPSULE_RESP_BYTES: usize = CommonHeader::BYTES + Cqe::BYTES;

/// H2CData and C2HData.
///
/// | bytes | field | |
/// |---|---|---|
/// | 0–7 | common header | |
/// | 8–9 | CCCID | the command |
/// | 10–11 | TTAG | H2CData: tag of the R2T; C2HData: reserved |
/// | 12–15 | DATAO | offset in the command's data |
/// | 16–19 | DATAL | bytes of data here |
/// | 20–23 | reserved | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// FLAGS of the common header.
    pub flags: u8,
    /// The command.
    pub command: u16,
    /// The R2T's tag (H2CData).
    pub transfer_tag: u16,
    /// Offset in the command's data.
    pub offset_bytes: u32,
    /// Bytes of data.
    pub len_bytes: u32,
}

impl DataHeader {
    /// Header on the wire.
    pub const BYTES: usize = 24;

    /// Reads it.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            flags: bytes[1],
            command: u16_at(bytes, 8),
            transfer_tag: u16_at(bytes, 10),
            offset_bytes: u32_at(bytes, 12),
            len_bytes: u32_at(bytes, 16),
        }
    }

    /// Writes it as `kind` with data from `pdo` on; `plen` counts all.
    pub fn encode(&self, kind: PduType, pdo: u8, plen: u32) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        CommonHeader { kind: kind as u8, flags: self.flags, hlen: 24, pdo, plen }.encode(&mut bytes);
        put_u16(&mut bytes, 8, self.command);
        put_u16(&mut bytes, 10, self.transfer_tag);
        put_u32(&mut bytes, 12, self.offset_bytes);
        put_u32(&mut bytes, 16, self.len_bytes);
        bytes
    }
}

/// R2T.
///
/// | bytes | field | |
/// |---|---|---|
/// | 0–7 | common header | |
/// | 8–9 | CCCID | the command |
/// | 10–11 | TTAG | comes back in H2CData |
/// | 12–15 | R2TO | first byte wanted |
/// | 16–19 | R2TL | bytes wanted |
/// | 20–23 | reserved | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// The command.
    pub command: u16,
    /// The tag that H2CData brings back.
    pub transfer_tag: u16,
    /// First byte wanted.
    pub offset_bytes: u32,
    /// Bytes wanted.
    pub len_bytes: u32,
}

impl R2t {
    /// Size on the wire.
    pub const BYTES: usize = 24;

    /// Reads it.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            command: u16_at(bytes, 8),
            transfer_tag: u16_at(bytes, 10),
            offset_bytes: u32_at(bytes, 12),
            len_bytes: u32_at(bytes, 16),
        }
    }

    /// Writes it; `header_digest` tells whether one will follow.
    pub fn encode(&self, header_digest: bool) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (flags, plen) = if header_digest { (flag::HEADER_DIGEST, 28) } else { (0, 24) };
        CommonHeader { kind: PduType::R2t as u8, flags, hlen: 24, pdo: 0, plen }.encode(&mut bytes);
        put_u16(&mut bytes, 8, self.command);
        put_u16(&mut bytes, 10, self.transfer_tag);
        put_u32(&mut bytes, 12, self.offset_bytes);
        put_u32(&mut bytes, 16, self.len_bytes);
        bytes
    }
}

/// Writes a CapsuleResp; `header_digest` tells whether one will follow.
pub fn encode_capsule_resp(cqe: &Cqe, header_digest: bool) -> [u8; CAPSULE_RESP_BYTES] {
    let mut bytes = [0; CAPSULE_RESP_BYTES];
    let (flags, plen) = if header_digest { (flag::HEADER_DIGEST, 28) } else { (0, 24) };
    CommonHeader { kind: PduType::CapsuleResp as u8, flags, hlen: 24, pdo: 0, plen }.encode(&mut bytes);
    bytes[CommonHeader::BYTES..].copy_from_slice(&cqe.encode());
    bytes
}

/// Reads a CapsuleResp's completion.
pub fn decode_capsule_resp(bytes: &[u8; CAPSULE_RESP_BYTES]) -> Cqe {
    Cqe::decode(&array_at(bytes, CommonHeader::BYTES))
}

const _: () = assert!(CAPSULE_CMD_BYTES == 72 && CAPSULE_RESP_BYTES == 24 && TermReq::MAX_BYTES == 152);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::hex;

    #[test]
    fn icreq_golden_bytes() {
        let icreq = IcReq { pfv: 0, data_alignment: 3, header_digest: true, data_digest: true, limit: 15 };
        let bytes = icreq.encode(PduType::IcReq);
        assert_eq!(hex(&bytes[..16]), "00008000800000000000030".to_owned() + "30f000000");
        assert!(bytes[16..].iter().all(|byte| *byte == 0));
        assert_eq!(IcReq::decode(&bytes), icreq);
    }

    #[test]
    fn r2t_and_data_golden_bytes() {
        let r2t = R2t { command: 0x1234, transfer_tag: 7, offset_bytes: 0x1000, len_bytes: 0x20000 };
        assert_eq!(hex(&r2t.encode(false)), "090018001800000034120700001000000000020000000000");
        assert_eq!(R2t::decode(&r2t.encode(true)), r2t);
        let data = DataHeader { flags: flag::LAST, command: 9, transfer_tag: 1, offset_bytes: 0, len_bytes: 512 };
        let bytes = data.encode(PduType::H2cData, 24, 536);
        assert_eq!(hex(&bytes), "060418181802000009000100000000000002000000000000");
        assert_eq!(DataHeader::decode(&bytes), data);
    }

    #[test]
    fn termreq_golden_bytes() {
        let term = TermReq { status: FatalError::InvalidHeaderField as u16, information: 2 };
        let (bytes, used) = term.encode(PduType::C2hTermReq, &[4, 0, 71, 0, 72, 0, 0, 0]);
        assert_eq!(hex(&bytes[..used]), "0300180020000000010002000000000000000000000000000400470048000000");
        assert_eq!(TermReq::decode(&array_at(&bytes, 0)), term);
    }

    #[test]
    fn every_type_number_comes_back() {
        for value in 0..=255 {
            if let Some(kind) = PduType::from_u8(value) {
                assert_eq!(kind as u8, value);
                assert!(kind.header_bytes() <= MAX_HEADER_BYTES);
            }
        }
    }
}

//! Completions and their status (NVMe Base 2.0 §3.3.3.2, §4.2.3).

use super::bytes::{put_u16, put_u64, u16_at, u64_at};
use core::fmt;

/// Status code type, status code and the retry bits.
///
/// | bits | field |
/// |---|---|
/// | 0–7 | SC |
/// | 8–10 | SCT |
/// | 11–12 | CRD: which of the controller's retry delays to wait |
/// | 13 | M: more in the error log |
/// | 14 | DNR: the same again would fail again |
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

const DNR: u16 = 1 << 14;

const fn generic(code: u16) -> Status {
    Status(code)
}
const fn specific(code: u16) -> Status {
    Status(1 << 8 | code)
}
const fn path(code: u16) -> Status {
    Status(3 << 8 | code)
}
const fn media(code: u16) -> Status {
    Status(2 << 8 | code)
}

#[allow(missing_docs)] // the names are the specification's
impl Status {
    pub const SUCCESS: Self = generic(0x00);
    pub const INVALID_OPCODE: Self = generic(0x01);
    pub const INVALID_FIELD: Self = generic(0x02);
    pub const COMMAND_ID_CONFLICT: Self = generic(0x03);
    pub const INTERNAL_ERROR: Self = generic(0x06);
    pub const ABORT_REQUESTED: Self = generic(0x07);
    pub const ABORTED_SQ_DELETION: Self = generic(0x08);
    pub const ABORTED_FAILED_FUSED: Self = generic(0x09);
    pub const ABORTED_MISSING_FUSED: Self = generic(0x0A);
    pub const INVALID_NAMESPACE: Self = generic(0x0B);
    pub const COMMAND_SEQUENCE: Self = generic(0x0C);
    pub const DATA_SGL_LENGTH_INVALID: Self = generic(0x0F);
    pub const SGL_TYPE_INVALID: Self = generic(0x11);
    pub const SGL_OFFSET_INVALID: Self = generic(0x16);
    pub const HOST_ID_INCONSISTENT: Self = generic(0x18);
    pub const KEEP_ALIVE_EXPIRED: Self = generic(0x19);
    pub const KEEP_ALIVE_INVALID: Self = generic(0x1A);
    pub const WRITE_PROTECTED: Self = generic(0x20);
    pub const TRANSIENT_TRANSPORT: Self = generic(0x22);
    pub const LBA_OUT_OF_RANGE: Self = generic(0x80);
    pub const CAPACITY_EXCEEDED: Self = generic(0x81);
    pub const NAMESPACE_NOT_READY: Self = generic(0x82);
    pub const INVALID_QUEUE_ID: Self = specific(0x01);
    pub const ABORT_LIMIT: Self = specific(0x03);
    pub const ASYNC_EVENT_LIMIT: Self = specific(0x05);
    pub const INVALID_LOG_PAGE: Self = specific(0x09);
    pub const FEATURE_NOT_SAVEABLE: Self = specific(0x0D);
    pub const FEATURE_NOT_CHANGEABLE: Self = specific(0x0E);
    pub const CONNECT_FORMAT: Self = specific(0x80);
    pub const CONNECT_BUSY: Self = specific(0x81);
    pub const CONNECT_INVALID_PARAMETERS: Self = specific(0x82);
    pub const CONNECT_INVALID_HOST: Self = specific(0x84);
    pub const WRITE_FAULT: Self = media(0x80);
    pub const UNRECOVERED_READ: Self = media(0x81);
    pub const COMPARE_FAILURE: Self = media(0x85);
    pub const INTERNAL_PATH_ERROR: Self = path(0x00);
    pub const ANA_INACCESSIBLE: Self = path(0x02);
    pub const ANA_TRANSITION: Self = path(0x03);
}

impl Status {
    /// The same with "do not retry".
    pub const fn do_not_retry(self) -> Self {
        Self(self.0 | DNR)
    }
    /// The same with "retry after the controller's delay number `which`" (1..=3).
    pub const fn retry_after(self, which: u16) -> Self {
        Self(self.0 | which << 11)
    }
    /// How the other half of a fused pair ends when this one has failed like this: it may be retried if this one may.
    pub const fn of_other_half(self) -> Self {
        Self(Self::ABORTED_FAILED_FUSED.0 | self.0 & DNR)
    }
    /// Type and code alone, to compare with the constants.
    pub const fn code(self) -> Self {
        Self(self.0 & 0x7FF)
    }
    /// Whether the command did what it should.
    pub const fn is_success(self) -> bool {
        self.0 & 0x7FF == 0
    }
    /// Whether the same again would fail again.
    pub const fn is_final(self) -> bool {
        self.0 & DNR != 0
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.code() {
            Self::SUCCESS => "success",
            Self::INVALID_OPCODE => "invalid opcode",
            Self::INVALID_FIELD => "invalid field",
            Self::COMMAND_ID_CONFLICT => "command id conflict",
            Self::INTERNAL_ERROR => "internal error",
            Self::ABORT_REQUESTED => "abort requested",
            Self::ABORTED_FAILED_FUSED => "aborted: the other half of the fused pair failed",
            Self::ABORTED_MISSING_FUSED => "aborted: the other half of the fused pair is missing",
            Self::INVALID_NAMESPACE => "invalid namespace or format",
            Self::COMMAND_SEQUENCE => "command sequence error",
            Self::DATA_SGL_LENGTH_INVALID => "data length invalid",
            Self::SGL_TYPE_INVALID => "SGL type invalid",
            Self::SGL_OFFSET_INVALID => "SGL offset invalid",
            Self::HOST_ID_INCONSISTENT => "host id inconsistent",
            Self::KEEP_ALIVE_EXPIRED => "keep alive expired",
            Self::KEEP_ALIVE_INVALID => "keep alive timeout invalid",
            Self::WRITE_PROTECTED => "namespace is write protected",
            Self::TRANSIENT_TRANSPORT => "transient transport error",
            Self::LBA_OUT_OF_RANGE => "LBA out of range",
            Self::CAPACITY_EXCEEDED => "capacity exceeded",
            Self::NAMESPACE_NOT_READY => "namespace not ready",
            Self::INVALID_QUEUE_ID => "invalid queue id",
            Self::ABORT_LIMIT => "abort limit exceeded",
            Self::ASYNC_EVENT_LIMIT => "asynchronous event request limit exceeded",
            Self::INVALID_LOG_PAGE => "invalid log page",
            Self::FEATURE_NOT_SAVEABLE => "feature not saveable",
            Self::FEATURE_NOT_CHANGEABLE => "feature not changeable",
            Self::CONNECT_FORMAT => "connect: incompatible format",
            Self::CONNECT_BUSY => "connect: controller busy",
            Self::CONNECT_INVALID_PARAMETERS => "connect: invalid parameters",
            Self::CONNECT_INVALID_HOST => "connect: invalid host",
            Self::WRITE_FAULT => "write fault",
            Self::UNRECOVERED_READ => "unrecovered read error",
            Self::COMPARE_FAILURE => "compare failure",
            Self::ANA_INACCESSIBLE => "path inaccessible",
            Self::ANA_TRANSITION => "path in transition",
            _ => "status",
        };
        write!(
            f,
            "{name} ({:x}h/{:02x}h{})",
            self.0 >> 8 & 7,
            self.0 & 0xFF,
            if self.is_final() { ", final" } else { "" }
        )
    }
}

/// A completion queue entry.
///
/// | bytes | field | |
/// |---|---|---|
/// | 0–7 | result | command specific |
/// | 8–9 | SQHD | reserved when SQ flow control is off |
/// | 10–11 | SQID | reserved on fabrics |
/// | 12–13 | CID | the command |
/// | 14–15 | status | phase bit 0 (unused here), then [`Status`] |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// Dwords 0 and 1.
    pub result: u64,
    /// SQ head.
    pub sq_head: u16,
    /// The command.
    pub command: u16,
    /// How it ended.
    pub status: Status,
}

impl Cqe {
    /// Size on the wire.
    pub const BYTES: usize = 16;

    /// Reads it.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            result: u64_at(bytes, 0),
            sq_head: u16_at(bytes, 8),
            command: u16_at(bytes, 12),
            status: Status(u16_at(bytes, 14) >> 1),
        }
    }

    /// Writes it.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put_u64(&mut bytes, 0, self.result);
        put_u16(&mut bytes, 8, self.sq_head);
        put_u16(&mut bytes, 12, self.command);
        put_u16(&mut bytes, 14, self.status.0 << 1);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::hex;

    #[test]
    fn cqe_golden_bytes() {
        let cqe = Cqe {
            result: 0x1_0002,
            sq_head: 5,
            command: 0xABCD,
            status: Status::CONNECT_INVALID_PARAMETERS.do_not_retry(),
        };
        assert_eq!(hex(&cqe.encode()), "020001000000000005000000cdab0483");
        assert_eq!(Cqe::decode(&cqe.encode()), cqe);
    }

    #[test]
    fn status_says_its_name() {
        assert_eq!(Status::LBA_OUT_OF_RANGE.do_not_retry().to_string(), "LBA out of range (0h/80h, final)");
        assert!(!Status::NAMESPACE_NOT_READY.retry_after(1).is_final());
    }
}

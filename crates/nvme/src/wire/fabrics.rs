//! Fabrics commands (NVMe Base 2.0 §6) and the controller properties they reach (§3.1.3).

use super::bytes::{array_at, put_text, put_u16, text_at, u16_at};
use super::command::{FABRICS_OPCODE, Sgl, Sqe};

/// FCTYPE values.
#[allow(missing_docs)] // the names are the specification's
pub mod fabrics_type {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const DISCONNECT: u8 = 0x08;
}

/// The NQN of every discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Longest NQN, without its terminating zero.
pub const MAX_NQN_BYTES: usize = 223;
/// CNTLID of a Connect that leaves the choice to the controller.
pub const DYNAMIC_CONTROLLER: u16 = 0xFFFF;

/// The fields of a Connect command.
///
/// | bytes of the SQE | field |
/// |---|---|
/// | 40–41 | RECFMT, 0 |
/// | 42–43 | QID |
/// | 44–45 | SQSIZE, less one |
/// | 46 | CATTR: bit 2 switches SQ flow control off |
/// | 48–51 | KATO, milliseconds |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Record format, 0.
    pub record_format: u16,
    /// Queue id, 0 is the admin queue.
    pub queue: u16,
    /// Entries less one.
    pub sq_size: u16,
    /// Attributes.
    pub attributes: u8,
    /// Keep alive timeout, 0 is none.
    pub keep_alive_ms: u32,
}

impl Connect {
    /// CATTR: no SQ flow control.
    pub const NO_FLOW_CONTROL: u8 = 1 << 2;

    /// Reads it.
    pub fn decode(sqe: &Sqe) -> Self {
        Self {
            record_format: sqe.cdw[0] as u16,
            queue: (sqe.cdw[0] >> 16) as u16,
            sq_size: sqe.cdw[1] as u16,
            attributes: (sqe.cdw[1] >> 16) as u8,
            keep_alive_ms: sqe.cdw[2],
        }
    }

    /// Writes it, with its data in the capsule.
    pub fn encode(&self) -> Sqe {
        let mut sqe = Sqe::new(FABRICS_OPCODE, u32::from(fabrics_type::CONNECT));
        sqe.sgl = Sgl::in_capsule(ConnectData::BYTES as u32);
        sqe.cdw[0] = u32::from(self.record_format) | u32::from(self.queue) << 16;
        sqe.cdw[1] = u32::from(self.sq_size) | u32::from(self.attributes) << 16;
        sqe.cdw[2] = self.keep_alive_ms;
        sqe
    }
}

/// The data of a Connect.
///
/// | bytes | field |
/// |---|---|
/// | 0–15 | HOSTID |
/// | 16–17 | CNTLID |
/// | 18–255 | reserved |
/// | 256–511 | SUBNQN, zero terminated |
/// | 512–767 | HOSTNQN, zero terminated |
/// | 768–1023 | reserved |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// Host identifier.
    pub host_id: [u8; 16],
    /// Controller asked for, or [`DYNAMIC_CONTROLLER`].
    pub controller: u16,
    /// Subsystem; `None`: no terminating zero, or longer than [`MAX_NQN_BYTES`].
    pub subsystem: Option<String>,
    /// Host; `None` as above.
    pub host: Option<String>,
}

impl ConnectData {
    /// Size on the wire.
    pub const BYTES: usize = 1024;
    const SUBSYSTEM_AT: usize = 256;
    const HOST_AT: usize = 512;
    const NQN_FIELD_BYTES: usize = 256;

    /// Reads it.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let nqn = |at: usize| {
            let terminated = bytes[at..=at + MAX_NQN_BYTES].contains(&0);
            terminated.then(|| text_at(bytes, at, Self::NQN_FIELD_BYTES)).filter(|text| !text.is_empty())
        };
        Self {
            host_id: array_at(bytes, 0),
            controller: u16_at(bytes, 16),
            subsystem: nqn(Self::SUBSYSTEM_AT),
            host: nqn(Self::HOST_AT),
        }
    }

    /// Writes it.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.host_id);
        put_u16(&mut bytes, 16, self.controller);
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        put_text(&mut bytes, Self::SUBSYSTEM_AT, MAX_NQN_BYTES, &text(&self.subsystem), 0);
        put_text(&mut bytes, Self::HOST_AT, MAX_NQN_BYTES, &text(&self.host), 0);
        bytes
    }
}

/// Where a Connect with invalid parameters is wrong: its result's IPO and IATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidParameter {
    /// Byte offset in the command.
    Command(u16),
    /// Byte offset in the data.
    Data(u16),
}

impl InvalidParameter {
    /// As the completion's result.
    pub fn result(self) -> u64 {
        match self {
            Self::Command(offset) => u64::from(offset),
            Self::Data(offset) => u64::from(offset) | 1 << 16,
        }
    }
}

/// Offsets of the properties that exist on fabrics.
#[allow(missing_docs)]
pub mod property {
    pub const CAPABILITIES: u32 = 0x00;
    pub const VERSION: u32 = 0x08;
    pub const CONFIGURATION: u32 = 0x14;
    pub const STATUS: u32 = 0x1C;
    pub const SUBSYSTEM_RESET: u32 = 0x20;
    pub const READY_TIMEOUTS: u32 = 0x68;
}

/// A Property Get or Set.
///
/// | bytes of the SQE | field |
/// |---|---|
/// | 40 | ATTRIB: bits 0–2 size, 0 = 4 bytes, 1 = 8 bytes |
/// | 44–47 | OFST |
/// | 48–55 | VALUE (set) |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// 4 or 8; `None` is a reserved size.
    pub size_bytes: Option<u8>,
    /// Which property.
    pub offset: u32,
    /// The value to set.
    pub value: u64,
}

impl Property {
    /// Reads it.
    pub fn decode(sqe: &Sqe) -> Self {
        Self {
            size_bytes: match sqe.cdw[0] & 7 {
                0 => Some(4),
                1 => Some(8),
                _ => None,
            },
            offset: sqe.cdw[1],
            value: u64::from(sqe.cdw[2]) | u64::from(sqe.cdw[3]) << 32,
        }
    }

    /// Writes it as `kind`: Property Get or Property Set.
    pub fn encode(&self, kind: u8) -> Sqe {
        let mut sqe = Sqe::new(FABRICS_OPCODE, u32::from(kind));
        sqe.cdw[0] = u32::from(self.size_bytes == Some(8));
        sqe.cdw[1] = self.offset;
        sqe.cdw[2] = self.value as u32;
        sqe.cdw[3] = (self.value >> 32) as u32;
        sqe
    }
}

/// Fields of the controller configuration (CC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration(pub u32);

impl Configuration {
    /// What a host writes to enable a controller: EN, IOSQES 64 bytes, IOCQES 16 bytes.
    pub const ENABLE: Self = Self(1 | 6 << 16 | 4 << 20);
    const RESERVED: u32 = 0xFE00_000E;

    /// EN.
    pub fn enabled(self) -> bool {
        self.0 & 1 != 0
    }
    /// SHN: a shutdown, normal or abrupt, is asked for.
    pub fn shutdown(self) -> bool {
        self.0 >> 14 & 3 != 0
    }
    /// Whether this target can work with it: NVM command set, 4 KiB pages, round robin, 64- and 16-byte entries once
    /// enabled, nothing reserved.
    pub fn is_supported(self) -> bool {
        let command_set = self.0 >> 4 & 7;
        let page = self.0 >> 7 & 15;
        let arbitration = self.0 >> 11 & 7;
        let entries = (self.0 >> 16 & 15, self.0 >> 20 & 15);
        let rest = command_set == 0 && page == 0 && arbitration == 0 && self.0 & Self::RESERVED == 0;
        rest && (entries == (6, 4) || !self.enabled() || entries == (0, 0))
    }
    /// Whether I/O queues may connect: IOSQES and IOCQES are what the entries are.
    pub fn has_entry_sizes(self) -> bool {
        (self.0 >> 16 & 15, self.0 >> 20 & 15) == (6, 4)
    }
}

/// Bits of the controller status (CSTS).
pub mod controller_status {
    /// RDY.
    pub const READY: u32 = 1 << 0;
    /// CFS: a fatal error; only a reset or the end of the connection leads out of it.
    pub const FATAL: u32 = 1 << 1;
    /// SHST: shutdown under way.
    pub const SHUTDOWN_UNDER_WAY: u32 = 1 << 2;
    /// SHST: shutdown complete.
    pub const SHUTDOWN_COMPLETE: u32 = 2 << 2;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::hex;

    #[test]
    fn connect_golden_bytes() {
        let connect = Connect {
            record_format: 0,
            queue: 2,
            sq_size: 127,
            attributes: Connect::NO_FLOW_CONTROL,
            keep_alive_ms: 5000,
        };
        let bytes = connect.encode().encode();
        assert_eq!(hex(&bytes[..8]), "7f40000001000000");
        assert_eq!(hex(&bytes[24..52]), "0000000000000000000400000000000100000200".to_owned() + "7f00040088130000");
        assert_eq!(Connect::decode(&Sqe::decode(&bytes)), connect);
    }

    #[test]
    fn connect_data_comes_back_and_needs_terminated_names() {
        let data = ConnectData {
            host_id: [9; 16],
            controller: DYNAMIC_CONTROLLER,
            subsystem: Some(DISCOVERY_NQN.to_owned()),
            host: Some("nqn.2014-08.org.nvmexpress:uuid:1".to_owned()),
        };
        let mut bytes = data.encode();
        assert_eq!(ConnectData::decode(&bytes), data);
        bytes[512..768].fill(b'a');
        assert_eq!(ConnectData::decode(&bytes).host, None);
    }

    #[test]
    fn a_property_comes_back() {
        let property = Property { size_bytes: Some(8), offset: property::CAPABILITIES, value: 1 << 40 | 5 };
        let sqe = property.encode(fabrics_type::PROPERTY_SET);
        assert_eq!(Property::decode(&Sqe::decode(&sqe.encode())), property);
    }

    #[test]
    fn configurations_this_target_cannot_work_with() {
        assert!(Configuration::ENABLE.is_supported() && Configuration(0).is_supported());
        for bad in [1 << 7, 1 << 4, 1 << 11, 1 << 1, 1 << 31, 7 << 16 | 4 << 20] {
            assert!(!Configuration(bad | 1).is_supported(), "{bad:x}");
        }
    }
}

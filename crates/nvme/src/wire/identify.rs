//! Identify data (NVMe Base 2.0 §5.17, NVM Command Set 1.0 §4.1.5): what a host is told of controllers and namespaces.
//!
//! Fields that are always zero here are not in the structures; the tables name what is set.

use super::bytes::{array_at, put, put_text, put_u16, put_u32, put_u64, text_at, u16_at, u32_at, u64_at};

/// Bytes of every Identify answer.
pub const IDENTIFY_BYTES: usize = 4096;

/// CNS values that are answered.
#[allow(missing_docs)] // the names are the specification's
pub mod cns {
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    pub const COMMAND_SETS: u8 = 0x1C;
}

/// Identify Controller (CNS 01h).
///
/// | bytes | field | | bytes | field |
/// |---|---|---|---|---|
/// | 4–23 | SN | | 258 | ACL, less one |
/// | 24–63 | MN | | 259 | AERL, less one |
/// | 64–71 | FR | | 260 | FRMW |
/// | 72 | RAB | | 261 | LPA |
/// | 76 | CMIC | | 262 | ELPE, less one |
/// | 77 | MDTS, power of two of 4 KiB | | 320–321 | KAS, 100 ms |
/// | 78–79 | CNTLID | | 342 | ANATT, seconds |
/// | 80–83 | VER | | 343 | ANACAP |
/// | 92–95 | OAES | | 344–347 | ANAGRPMAX |
/// | 96–99 | CTRATT | | 348–351 | NANAGRPID |
/// | 111 | CNTRLTYPE | | 512, 513 | SQES, CQES |
/// | 128–133 | CRDT1–3, 100 ms | | 514–515 | MAXCMD |
/// | 516–519 | NN | | 768–1023 | SUBNQN |
/// | 520–521 | ONCS | | 1792–1795 | IOCCSZ, 16 bytes |
/// | 522–523 | FUSES | | 1796–1799 | IORCSZ, 16 bytes |
/// | 525 | VWC | | 1800–1801 | ICDOFF |
/// | 532–533 | ACWU, less one | | 1803 | MSDBD |
/// | 536–539 | SGLS | | 540–543 | MNAN |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names of the table
pub struct IdentifyController {
    pub serial: String,
    pub model: String,
    pub firmware: String,
    pub cmic: u8,
    pub mdts: u8,
    pub controller: u16,
    pub version: u32,
    pub optional_events: u32,
    pub attributes: u32,
    pub controller_type: u8,
    pub retry_delay: [u16; 3],
    pub abort_limit: u8,
    pub event_limit: u8,
    pub firmware_updates: u8,
    pub log_attributes: u8,
    pub error_log_entries: u8,
    pub keep_alive_granularity: u16,
    pub ana_transition_time: u8,
    pub ana_capabilities: u8,
    pub ana_group_max: u32,
    pub ana_group_count: u32,
    pub max_commands: u16,
    pub namespaces: u32,
    pub optional_commands: u16,
    pub fused_operations: u16,
    /// Not less one: 0 where there is no compare-and-write.
    pub compare_and_write_blocks: u16,
    pub volatile_write_cache: u8,
    pub sgl_support: u32,
    pub max_allowed_namespaces: u32,
    pub subsystem: String,
    pub io_capsule_units: u32,
    pub io_response_units: u32,
    pub max_sgl_descriptors: u8,
}

impl IdentifyController {
    /// Writes it.
    pub fn encode(&self) -> [u8; IDENTIFY_BYTES] {
        let mut b = [0; IDENTIFY_BYTES];
        put_text(&mut b, 4, 20, &self.serial, b' ');
        put_text(&mut b, 24, 40, &self.model, b' ');
        put_text(&mut b, 64, 8, &self.firmware, b' ');
        b[72] = 6; // RAB: a burst of 64 commands
        b[76] = self.cmic;
        b[77] = self.mdts;
        put_u16(&mut b, 78, self.controller);
        put_u32(&mut b, 80, self.version);
        put_u32(&mut b, 92, self.optional_events);
        put_u32(&mut b, 96, self.attributes);
        b[111] = self.controller_type;
        for (index, delay) in self.retry_delay.iter().enumerate() {
            put_u16(&mut b, 128 + 2 * index, *delay);
        }
        b[258] = self.abort_limit;
        b[259] = self.event_limit;
        b[260] = self.firmware_updates;
        b[261] = self.log_attributes;
        b[262] = self.error_log_entries;
        put_u16(&mut b, 320, self.keep_alive_granularity);
        b[342] = self.ana_transition_time;
        b[343] = self.ana_capabilities;
        put_u32(&mut b, 344, self.ana_group_max);
        put_u32(&mut b, 348, self.ana_group_count);
        b[512] = 0x66; // SQES: 64 bytes
        b[513] = 0x44; // CQES: 16 bytes
        put_u16(&mut b, 514, self.max_commands);
        put_u32(&mut b, 516, self.namespaces);
        put_u16(&mut b, 520, self.optional_commands);
        put_u16(&mut b, 522, self.fused_operations);
        put_u16(&mut b, 532, self.compare_and_write_blocks.saturating_sub(1));
        b[525] = self.volatile_write_cache;
        put_u32(&mut b, 536, self.sgl_support);
        put_u32(&mut b, 540, self.max_allowed_namespaces);
        put_text(&mut b, 768, 256, &self.subsystem, 0);
        put_u32(&mut b, 1792, self.io_capsule_units);
        put_u32(&mut b, 1796, self.io_response_units);
        b[1803] = self.max_sgl_descriptors;
        b
    }

    /// Reads it.
    pub fn decode(b: &[u8; IDENTIFY_BYTES]) -> Self {
        Self {
            serial: text_at(b, 4, 20),
            model: text_at(b, 24, 40),
            firmware: text_at(b, 64, 8),
            cmic: b[76],
            mdts: b[77],
            controller: u16_at(b, 78),
            version: u32_at(b, 80),
            optional_events: u32_at(b, 92),
            attributes: u32_at(b, 96),
            controller_type: b[111],
            retry_delay: [u16_at(b, 128), u16_at(b, 130), u16_at(b, 132)],
            abort_limit: b[258],
            event_limit: b[259],
            firmware_updates: b[260],
            log_attributes: b[261],
            error_log_entries: b[262],
            keep_alive_granularity: u16_at(b, 320),
            ana_transition_time: b[342],
            ana_capabilities: b[343],
            ana_group_max: u32_at(b, 344),
            ana_group_count: u32_at(b, 348),
            max_commands: u16_at(b, 514),
            namespaces: u32_at(b, 516),
            optional_commands: u16_at(b, 520),
            fused_operations: u16_at(b, 522),
            compare_and_write_blocks: if u16_at(b, 522) & 1 != 0 { u16_at(b, 532).saturating_add(1) } else { 0 },
            volatile_write_cache: b[525],
            sgl_support: u32_at(b, 536),
            max_allowed_namespaces: u32_at(b, 540),
            subsystem: text_at(b, 768, 256),
            io_capsule_units: u32_at(b, 1792),
            io_response_units: u32_at(b, 1796),
            max_sgl_descriptors: b[1803],
        }
    }

    /// Largest transfer in bytes (MDTS over 4 KiB pages); `None` is no limit.
    pub fn max_transfer_bytes(&self) -> Option<u64> {
        (self.mdts > 0).then(|| 4096u64 << self.mdts.min(40))
    }
    /// Bytes of data that a command capsule may carry.
    pub fn in_capsule_bytes(&self) -> u32 {
        (self.io_capsule_units.saturating_mul(16)).saturating_sub(64)
    }
}

/// Identify Namespace (CNS 00h, NVM command set).
///
/// | bytes | field | |
/// |---|---|---|
/// | 0–7, 8–15, 16–23 | NSZE, NCAP, NUSE | logical blocks |
/// | 24 | NSFEAT | bit 1 NAWUN…NABSPF, bit 4 NPWG…NOWS |
/// | 25, 26 | NLBAF, FLBAS | one format |
/// | 30 | NMIC | bit 0 shared |
/// | 33 | DLFEAT | 001b: reads zero; bit 3 write zeroes may deallocate |
/// | 34–35, 36–37, 38–39 | NAWUN, NAWUPF, NACWU | less one |
/// | 40–41, 42–43, 44–45 | NABSN, NABO, NABSPF | less one |
/// | 46–47 | NOIOB | logical blocks |
/// | 48–63 | NVMCAP | bytes |
/// | 64–71 | NPWG, NPWA, NPDG, NPDA | less one |
/// | 72–73 | NOWS | less one |
/// | 92–95 | ANAGRPID | |
/// | 104–119 | NGUID | |
/// | 128–131 | LBAF0 | MS, LBADS, RP |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentifyNamespace {
    /// Size, capacity and use in logical blocks.
    pub size_blocks: u64,
    /// log2 of the logical block.
    pub block_shift: u8,
    /// Bytes that are written all or nothing, within boundaries of the same size.
    pub untorn_bytes: u32,
    /// Bytes that a compare-and-write does as one, wherever they begin.
    pub compare_and_write_bytes: u32,
    /// Boundary that I/O should not cross.
    pub boundary_bytes: u32,
    /// Preferred granularity and alignment of writes and deallocation.
    pub granularity_bytes: u32,
    /// ANA group.
    pub ana_group: u32,
    /// Globally unique id.
    pub nguid: [u8; 16],
}

impl IdentifyNamespace {
    /// Writes it.
    pub fn encode(&self) -> [u8; IDENTIFY_BYTES] {
        let blocks = |bytes: u32| (bytes >> self.block_shift) as u16;
        let less_one = |bytes: u32| blocks(bytes).saturating_sub(1);
        let mut b = [0; IDENTIFY_BYTES];
        for at in [0, 8, 16] {
            put_u64(&mut b, at, self.size_blocks);
        }
        b[24] = 1 << 1 | 1 << 4;
        b[30] = 1;
        b[33] = 0b001 | 1 << 3;
        for at in [34, 36, 40, 44] {
            put_u16(&mut b, at, less_one(self.untorn_bytes));
        }
        put_u16(&mut b, 38, less_one(self.compare_and_write_bytes));
        put_u16(&mut b, 46, blocks(self.boundary_bytes));
        put_u64(&mut b, 48, self.size_blocks << self.block_shift);
        for at in [64, 66, 68, 70] {
            put_u16(&mut b, at, less_one(self.granularity_bytes));
        }
        put_u16(&mut b, 72, less_one(self.untorn_bytes));
        put_u32(&mut b, 92, self.ana_group);
        put(&mut b, 104, &self.nguid);
        b[130] = self.block_shift;
        b
    }

    /// Reads it. A block size out of 512…64 KiB is taken for "no namespace": `None`.
    pub fn decode(b: &[u8; IDENTIFY_BYTES]) -> Option<Self> {
        let format = usize::from(b[26] & 15);
        let block_shift = b[128 + 4 * format + 2];
        if !(9..=16).contains(&block_shift) {
            return None;
        }
        let bytes = |blocks: u32| blocks << block_shift;
        Some(Self {
            size_blocks: u64_at(b, 0),
            block_shift,
            untorn_bytes: bytes(u32::from(u16_at(b, 36)) + 1),
            compare_and_write_bytes: bytes(u32::from(u16_at(b, 38)) + 1),
            boundary_bytes: bytes(u32::from(u16_at(b, 46))),
            granularity_bytes: bytes(u32::from(u16_at(b, 64)) + 1),
            ana_group: u32_at(b, 92),
            nguid: array_at(b, 104),
        })
    }
}

/// The namespace identification descriptors (CNS 03h) of a namespace: its NGUID and its command set (NVM).
///
/// | bytes | field |
/// |---|---|
/// | 0 | NIDT: 2 NGUID, 4 CSI |
/// | 1 | NIDL |
/// | 2–3 | reserved |
/// | 4… | the id |
pub fn encode_descriptors(nguid: &[u8; 16]) -> [u8; IDENTIFY_BYTES] {
    let mut b = [0; IDENTIFY_BYTES];
    put(&mut b, 0, &[2, 16, 0, 0]);
    put(&mut b, 4, nguid);
    put(&mut b, 20, &[4, 1, 0, 0, 0]);
    b
}

/// The NGUID in a list of namespace identification descriptors.
pub fn decode_nguid(b: &[u8; IDENTIFY_BYTES]) -> Option<[u8; 16]> {
    let mut at = 0;
    while at + 4 <= b.len() {
        let (kind, len) = (b[at], usize::from(b[at + 1]));
        if len == 0 {
            return None;
        }
        if kind == 2 && len == 16 && at + 20 <= b.len() {
            return Some(array_at(b, at + 4));
        }
        at += 4 + len;
    }
    None
}

/// The I/O command set independent namespace data (CNS 08h): shared, its ANA group, ready.
///
/// | bytes | field |
/// |---|---|
/// | 1 | NMIC |
/// | 4–7 | ANAGRPID |
/// | 14 | NSTAT: bit 0 ready |
pub fn encode_independent(ana_group: u32) -> [u8; IDENTIFY_BYTES] {
    let mut b = [0; IDENTIFY_BYTES];
    b[1] = 1;
    put_u32(&mut b, 4, ana_group);
    b[14] = 1;
    b
}

/// A list of NSIDs in ascending order, ended by zero.
pub fn encode_namespace_list(nsids: impl Iterator<Item = u32>) -> [u8; IDENTIFY_BYTES] {
    let mut b = [0; IDENTIFY_BYTES];
    for (index, nsid) in nsids.take(IDENTIFY_BYTES / 4).enumerate() {
        put_u32(&mut b, 4 * index, nsid);
    }
    b
}

/// Reads a list of NSIDs.
pub fn decode_namespace_list(b: &[u8; IDENTIFY_BYTES]) -> Vec<u32> {
    (0..IDENTIFY_BYTES / 4).map(|index| u32_at(b, 4 * index)).take_while(|nsid| *nsid != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::hex;

    fn controller() -> IdentifyController {
        IdentifyController {
            serial: "A1".into(),
            model: "Model".into(),
            firmware: "1.0".into(),
            cmic: 11,
            mdts: 8,
            controller: 0x102,
            version: 0x20000,
            optional_events: 0x900,
            attributes: 1,
            controller_type: 1,
            retry_delay: [20, 0, 0],
            abort_limit: 3,
            event_limit: 3,
            firmware_updates: 3,
            log_attributes: 6,
            error_log_entries: 0,
            keep_alive_granularity: 10,
            ana_transition_time: 10,
            ana_capabilities: 0x45,
            ana_group_max: 1024,
            ana_group_count: 1024,
            max_commands: 1024,
            namespaces: 1024,
            optional_commands: 13,
            fused_operations: 1,
            compare_and_write_blocks: 16,
            volatile_write_cache: 0,
            sgl_support: 0x10_0001,
            max_allowed_namespaces: 1024,
            subsystem: "nqn.x".into(),
            io_capsule_units: 1028,
            io_response_units: 1,
            max_sgl_descriptors: 1,
        }
    }

    /// What a host derives from it (NVM command set 1.0, 2.1.4): 64 KiB, aligned to 64 KiB, in logical blocks of either
    /// format, in normal operation and at a loss of power alike; a compare-and-write of as much, wherever it begins.
    #[test]
    fn untorn_writes_are_told_in_logical_blocks_of_either_format() {
        for (block_shift, blocks) in [(9, 128), (12, 16)] {
            let namespace = IdentifyNamespace {
                block_shift,
                untorn_bytes: 64 << 10,
                compare_and_write_bytes: 64 << 10,
                ..IdentifyNamespace::default()
            };
            let page = namespace.encode();
            assert_eq!(page[24] & 2, 2, "NSFEAT: the fields of the namespace count");
            for (name, at) in [("NAWUN", 34), ("NAWUPF", 36), ("NACWU", 38), ("NABSN", 40), ("NABSPF", 44)] {
                assert_eq!(u16_at(&page, at) + 1, blocks, "{name}");
            }
            assert_eq!(u16_at(&page, 42), 0, "NABO");
            assert_eq!(IdentifyNamespace::decode(&page).map(|found| found.untorn_bytes), Some(64 << 10));
        }
    }

    #[test]
    fn identify_controller_golden_bytes() {
        let bytes = controller().encode();
        assert_eq!(hex(&bytes[4..12]), "4131202020202020");
        assert_eq!(hex(&bytes[72..84]), "060000000b08020100000200");
        assert_eq!(
            hex(&bytes[512..544]),
            "6644000400040000".to_owned() + "0d00010000000000" + "000000000f000000" + "0100100000040000"
        );
        assert_eq!(hex(&bytes[1792..1804]), "040400000100000000000001");
        assert_eq!(IdentifyController::decode(&bytes), controller());
        assert_eq!(controller().in_capsule_bytes(), 16384);
        assert_eq!(controller().max_transfer_bytes(), Some(1 << 20));
    }

    #[test]
    fn identify_namespace_golden_bytes() {
        let namespace = IdentifyNamespace {
            size_blocks: 0x20_0000,
            block_shift: 9,
            untorn_bytes: 65536,
            compare_and_write_bytes: 65536,
            boundary_bytes: 1 << 20,
            granularity_bytes: 4096,
            ana_group: 5,
            nguid: [0xAB; 16],
        };
        let bytes = namespace.encode();
        assert_eq!(hex(&bytes[24..48]), "120000000000010000097f007f007f007f0000007f000008");
        assert_eq!(hex(&bytes[64..74]), "07000700070007007f00");
        assert_eq!(hex(&bytes[128..132]), "00000900");
        assert_eq!(IdentifyNamespace::decode(&bytes), Some(namespace));
        assert_eq!(IdentifyNamespace::decode(&[0; IDENTIFY_BYTES]), None);
    }

    #[test]
    fn lists_and_descriptors_come_back() {
        assert_eq!(decode_namespace_list(&encode_namespace_list([1, 7, 1024].into_iter())), [1, 7, 1024]);
        assert_eq!(decode_nguid(&encode_descriptors(&[3; 16])), Some([3; 16]));
        assert_eq!(decode_nguid(&[0xFF; IDENTIFY_BYTES]), None);
    }
}

//! Log pages (NVMe Base 2.0 §5.16).

use super::bytes::{put, put_text, put_u16, put_u32, put_u64, text_at, u16_at, u32_at, u64_at};

/// Log page ids.
#[allow(missing_docs)] // the names are the specification's
pub mod page {
    pub const SUPPORTED: u8 = 0x00;
    pub const ERROR: u8 = 0x01;
    pub const HEALTH: u8 = 0x02;
    pub const FIRMWARE: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const EFFECTS: u8 = 0x05;
    pub const ANA: u8 = 0x0C;
    pub const FEATURES: u8 = 0x12;
    pub const MANAGEMENT: u8 = 0x13;
    pub const DISCOVERY: u8 = 0x70;
}

/// A Get Log Page command.
///
/// | dword | bits | field |
/// |---|---|---|
/// | 10 | 0–7 | LID |
/// | 10 | 8–14 | LSP |
/// | 10 | 15 | RAE: leave the event masked |
/// | 10, 11 | 16–31, 0–15 | NUMD, dwords less one |
/// | 12, 13 | | offset in bytes |
/// | 14 | 23 | OT: the offset is an index |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// Which page.
    pub page: u8,
    /// Page specific field.
    pub specific: u8,
    /// Keep the event that led here masked.
    pub retain_event: bool,
    /// Bytes wanted.
    pub len_bytes: u64,
    /// First byte wanted.
    pub offset_bytes: u64,
    /// The offset is an index: not supported here.
    pub offset_is_index: bool,
}

impl GetLogPage {
    /// Reads it from dwords 10 to 15.
    pub fn decode(cdw: &[u32; 6]) -> Self {
        let dwords = u64::from(cdw[0] >> 16) | u64::from(cdw[1] & 0xFFFF) << 16;
        Self {
            page: cdw[0] as u8,
            specific: (cdw[0] >> 8) as u8 & 0x7F,
            retain_event: cdw[0] & 1 << 15 != 0,
            len_bytes: (dwords + 1) * 4,
            offset_bytes: u64::from(cdw[2]) | u64::from(cdw[3]) << 32,
            offset_is_index: cdw[4] & 1 << 23 != 0,
        }
    }

    /// Writes it to dwords 10 to 15. `len_bytes` is a multiple of 4 and not 0.
    pub fn encode(&self) -> [u32; 6] {
        let dwords = self.len_bytes / 4 - 1;
        [
            u32::from(self.page)
                | u32::from(self.specific) << 8
                | u32::from(self.retain_event) << 15
                | (dwords as u32 & 0xFFFF) << 16,
            (dwords >> 16) as u32 & 0xFFFF,
            self.offset_bytes as u32,
            (self.offset_bytes >> 32) as u32,
            u32::from(self.offset_is_index) << 23,
            0,
        ]
    }
}

/// SMART / health information (page 02h, 512 bytes).
///
/// | bytes | field | |
/// |---|---|---|
/// | 0 | critical warning | |
/// | 1–2 | composite temperature | Kelvin, 0: not told |
/// | 3, 4 | available spare, threshold | per cent |
/// | 32–47, 48–63 | data units read, written | 1,000 × 512 bytes, rounded up |
/// | 64–79, 80–95 | host read, write commands | |
/// | 128–143 | power on hours | |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names of the table
pub struct Health {
    pub critical_warning: u8,
    pub spare_percent: u8,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub reads: u64,
    pub writes: u64,
    pub hours: u64,
}

impl Health {
    /// Size of the page.
    pub const BYTES: usize = 512;
    const UNIT_BYTES: u64 = 512_000;

    /// Writes it.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut b = [0; Self::BYTES];
        b[0] = self.critical_warning;
        b[3] = self.spare_percent;
        b[4] = 10;
        put_u64(&mut b, 32, self.bytes_read.div_ceil(Self::UNIT_BYTES));
        put_u64(&mut b, 48, self.bytes_written.div_ceil(Self::UNIT_BYTES));
        put_u64(&mut b, 64, self.reads);
        put_u64(&mut b, 80, self.writes);
        put_u64(&mut b, 128, self.hours);
        b
    }

    /// Reads it; bytes come back in whole units.
    pub fn decode(b: &[u8; Self::BYTES]) -> Self {
        Self {
            critical_warning: b[0],
            spare_percent: b[3],
            bytes_read: u64_at(b, 32).saturating_mul(Self::UNIT_BYTES),
            bytes_written: u64_at(b, 48).saturating_mul(Self::UNIT_BYTES),
            reads: u64_at(b, 64),
            writes: u64_at(b, 80),
            hours: u64_at(b, 128),
        }
    }
}

/// One entry of the error log (page 01h, 64 bytes each).
///
/// | bytes | field |
/// |---|---|
/// | 0–7 | error count, 0: unused |
/// | 8–9 | SQID |
/// | 10–11 | CID |
/// | 12–13 | status, with the phase bit |
/// | 16–23 | LBA |
/// | 24–27 | NSID |
/// | 29 | transport: 3 TCP |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names of the table
pub struct ErrorEntry {
    pub count: u64,
    pub queue: u16,
    pub command: u16,
    pub status: u16,
    pub nsid: u32,
}

impl ErrorEntry {
    /// Size of an entry.
    pub const BYTES: usize = 64;

    /// Writes it.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut b = [0; Self::BYTES];
        put_u64(&mut b, 0, self.count);
        put_u16(&mut b, 8, self.queue);
        put_u16(&mut b, 10, self.command);
        put_u16(&mut b, 12, self.status << 1);
        put_u32(&mut b, 24, self.nsid);
        b[29] = 3;
        b
    }

    /// Reads it.
    pub fn decode(b: &[u8; Self::BYTES]) -> Self {
        Self {
            count: u64_at(b, 0),
            queue: u16_at(b, 8),
            command: u16_at(b, 10),
            status: u16_at(b, 12) >> 1,
            nsid: u32_at(b, 24),
        }
    }
}

/// State of an ANA group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AnaState {
    /// Use this path.
    Optimized = 1,
    /// Use another path.
    Inaccessible = 3,
    /// Wait, at most ANATT.
    Change = 15,
}

/// The ANA page (0Ch): a header of 16 bytes, then a descriptor for each group; one group per namespace.
///
/// | bytes | header | | bytes | descriptor |
/// |---|---|---|---|---|
/// | 0–7 | change count | | 0–3 | group |
/// | 8–9 | number of descriptors | | 4–7 | number of NSIDs |
/// | | | | 8–15 | change count |
/// | | | | 16 | [`AnaState`] |
/// | | | | 32… | NSIDs, 4 bytes each |
pub fn encode_ana(
    page: &mut Vec<u8>,
    change_count: u64,
    groups: impl Iterator<Item = (u32, AnaState)>,
    groups_only: bool,
) {
    page.clear();
    page.resize(16, 0);
    put_u64(page, 0, change_count);
    let mut count = 0u16;
    for (nsid, state) in groups {
        count += 1;
        let mut descriptor = [0; 36];
        put_u32(&mut descriptor, 0, nsid);
        put_u32(&mut descriptor, 4, u32::from(!groups_only));
        put_u64(&mut descriptor, 8, change_count);
        descriptor[16] = state as u8;
        put_u32(&mut descriptor, 32, nsid);
        page.extend_from_slice(&descriptor[..if groups_only { 32 } else { 36 }]);
    }
    put_u16(page, 8, count);
}

/// Reads an ANA page: (group, state, NSIDs) of each descriptor that is whole.
pub fn decode_ana(b: &[u8]) -> Vec<(u32, u8, Vec<u32>)> {
    let mut groups = Vec::new();
    if b.len() < 16 {
        return groups;
    }
    let mut at = 16;
    for _ in 0..u16_at(b, 8) {
        if at + 32 > b.len() {
            break;
        }
        let (group, count, state) = (u32_at(b, at), u32_at(b, at + 4) as usize, b[at + 16] & 15);
        at += 32;
        if count > (b.len() - at) / 4 {
            break;
        }
        groups.push((group, state, (0..count).map(|index| u32_at(b, at + 4 * index)).collect()));
        at += 4 * count;
    }
    groups
}

/// One entry of the discovery log (page 70h, 1,024 bytes each, after a header of 1,024).
///
/// | bytes | header | | bytes | entry |
/// |---|---|---|---|---|
/// | 0–7 | GENCTR | | 0 | TRTYPE: 3 TCP |
/// | 8–15 | NUMREC | | 1 | ADRFAM: 1 IPv4, 2 IPv6 |
/// | 16–17 | RECFMT, 0 | | 2 | SUBTYPE: 2 NVM, 3 this discovery subsystem |
/// | | | | 3 | TREQ: 2, no secure channel |
/// | | | | 4–5 | PORTID |
/// | | | | 6–7 | CNTLID |
/// | | | | 8–9 | ASQSZ |
/// | | | | 10–11 | EFLAGS: discovery: 3, the same log everywhere, may stay connected |
/// | | | | 32–63 | TRSVCID |
/// | | | | 256–511 | SUBNQN |
/// | | | | 512–767 | TRADDR |
/// | | | | 768 | TSAS: SECTYPE 0, none |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// Address family: IPv6 or IPv4.
    pub ipv6: bool,
    /// The entry is the discovery subsystem itself.
    pub is_discovery: bool,
    /// Number of the port within the subsystem.
    pub port_id: u16,
    /// Admin queue entries.
    pub admin_queue_size: u16,
    /// TCP port.
    pub service: String,
    /// Subsystem.
    pub subsystem: String,
    /// Address.
    pub address: String,
}

impl DiscoveryEntry {
    /// Size of an entry, and of the header.
    pub const BYTES: usize = 1024;
    const SUBTYPE_NVM: u8 = 2;
    const SUBTYPE_THIS_DISCOVERY: u8 = 3;
    /// EFLAGS, DUPRETINFO: every entry with this bit leads to the same log.
    const SAME_LOG: u16 = 1 << 0;
    /// EFLAGS, EPCSD: connections may stay and are told of changes.
    const PERSISTENT: u16 = 1 << 1;

    /// Writes it.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut b = [0; Self::BYTES];
        let subtype = if self.is_discovery { Self::SUBTYPE_THIS_DISCOVERY } else { Self::SUBTYPE_NVM };
        put(&mut b, 0, &[3, if self.ipv6 { 2 } else { 1 }, subtype, 2]);
        put_u16(&mut b, 4, self.port_id);
        put_u16(&mut b, 6, 0xFFFF);
        put_u16(&mut b, 8, self.admin_queue_size);
        put_u16(&mut b, 10, if self.is_discovery { Self::SAME_LOG | Self::PERSISTENT } else { 0 });
        put_text(&mut b, 32, 32, &self.service, b' ');
        put_text(&mut b, 256, 256, &self.subsystem, 0);
        put_text(&mut b, 512, 256, &self.address, b' ');
        b
    }

    /// Reads it.
    pub fn decode(b: &[u8; Self::BYTES]) -> Self {
        Self {
            ipv6: b[1] == 2,
            is_discovery: b[2] != Self::SUBTYPE_NVM,
            port_id: u16_at(b, 4),
            admin_queue_size: u16_at(b, 8),
            service: text_at(b, 32, 32),
            subsystem: text_at(b, 256, 256),
            address: text_at(b, 512, 256),
        }
    }
}

/// Writes the discovery page.
pub fn encode_discovery(page: &mut Vec<u8>, generation: u64, entries: &[DiscoveryEntry]) {
    page.clear();
    page.resize(DiscoveryEntry::BYTES, 0);
    put_u64(page, 0, generation);
    put_u64(page, 8, entries.len() as u64);
    for entry in entries {
        page.extend_from_slice(&entry.encode());
    }
}

/// Reads the discovery page's header: (GENCTR, NUMREC).
pub fn decode_discovery_header(b: &[u8; DiscoveryEntry::BYTES]) -> (u64, u64) {
    (u64_at(b, 0), u64_at(b, 8))
}

/// Bits 20–31 of an entry of pages 05h and 12h: what a command or feature is about.
pub mod scope {
    /// A namespace.
    pub const NAMESPACE: u32 = 1 << 20;
    /// The controller.
    pub const CONTROLLER: u32 = 1 << 21;
}

/// Commands supported and effects (page 05h, 4,096 bytes): 256 admin, then 256 I/O entries of 4 bytes.
/// Bit 0: supported; bit 1: changes logical blocks; bits 20–31: [`scope`].
pub fn encode_effects(page: &mut Vec<u8>, admin: &[u8], io: &[(u8, bool)]) {
    page.clear();
    page.resize(4096, 0);
    for opcode in admin {
        put_u32(page, 4 * usize::from(*opcode), 1 | scope::CONTROLLER);
    }
    for (opcode, changes) in io {
        put_u32(page, 1024 + 4 * usize::from(*opcode), 1 | u32::from(*changes) << 1 | scope::NAMESPACE);
    }
}

/// Feature identifiers supported and effects (page 12h, 1,024 bytes): bit 0 of entry n says that feature n is there, bit 1
/// that setting it changes user data (none does), bits 20–31 its [`scope`].
pub fn encode_features(page: &mut Vec<u8>, ids: impl Iterator<Item = u8>) {
    page.clear();
    page.resize(1024, 0);
    for id in ids {
        put_u32(page, 4 * usize::from(id), 1 | scope::CONTROLLER);
    }
}

/// NVMe-MI commands supported and effects (page 13h, 4,096 bytes): there are none.
pub fn encode_management(page: &mut Vec<u8>) {
    page.clear();
    page.resize(4096, 0);
}

/// Supported log pages (page 00h, 1,024 bytes): bit 0 of entry n says that page n is there.
pub fn encode_supported(page: &mut Vec<u8>, pages: &[u8]) {
    page.clear();
    page.resize(1024, 0);
    for id in pages {
        put_u32(page, 4 * usize::from(*id), 1);
    }
}

/// Firmware slots (page 03h, 512 bytes): slot 1 is active.
pub fn encode_firmware(page: &mut Vec<u8>, revision: &str) {
    page.clear();
    page.resize(512, 0);
    page[0] = 1;
    put_text(page, 8, 8, revision, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::hex;

    #[test]
    fn get_log_page_comes_back() {
        let get = GetLogPage {
            page: page::ANA,
            specific: 1,
            retain_event: true,
            len_bytes: 0x5_0000,
            offset_bytes: 0x1_0000_0004,
            offset_is_index: false,
        };
        assert_eq!(get.encode()[..4], [0x3FFF_810C, 1, 4, 1]);
        assert_eq!(GetLogPage::decode(&get.encode()), get);
    }

    #[test]
    fn ana_golden_bytes() {
        let mut page = Vec::new();
        encode_ana(&mut page, 2, [(3, AnaState::Optimized)].into_iter(), false);
        let expected = "02000000000000000100000000000000".to_owned()
            + "03000000010000000200000000000000"
            + "01000000000000000000000000000000"
            + "03000000";
        assert_eq!(hex(&page), expected);
        assert_eq!(decode_ana(&page), [(3, 1, vec![3])]);
        assert!(decode_ana(&page[..40]).is_empty());
    }

    #[test]
    fn discovery_entry_golden_bytes() {
        let entry = DiscoveryEntry {
            ipv6: false,
            is_discovery: false,
            port_id: 1,
            admin_queue_size: 32,
            service: "4420".into(),
            subsystem: "nqn.x".into(),
            address: "127.0.0.1".into(),
        };
        let mut page = Vec::new();
        encode_discovery(&mut page, 9, std::slice::from_ref(&entry));
        assert_eq!(hex(&page[..18]), "090000000000000001000000000000000000");
        assert_eq!(hex(&page[1024..1036]), "030102020100ffff20000000");
        assert_eq!(hex(&page[1024 + 32..1024 + 40]), "3434323020202020");
        let bytes: [u8; 1024] = page[1024..].try_into().expect("one entry");
        assert_eq!(DiscoveryEntry::decode(&bytes), entry);
    }

    #[test]
    fn health_and_errors_come_back() {
        let health =
            Health { spare_percent: 100, bytes_read: 512_000, bytes_written: 1_024_000, reads: 5, ..Health::default() };
        assert_eq!(Health::decode(&health.encode()), health);
        assert_eq!(hex(&health.encode()[..8]), "000000640a000000");
        let entry = ErrorEntry { count: 1, queue: 2, command: 3, status: 0x4002, nsid: 5 };
        assert_eq!(ErrorEntry::decode(&entry.encode()), entry);
    }
}

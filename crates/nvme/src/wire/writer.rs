//! PDUs gathered for one send: headers side by side in small buffers, data as it is, without a copy.

use super::command::Sqe;
use super::completion::Cqe;
use super::digest::crc32c;
use super::pdu::{
    CAPSULE_CMD_BYTES, CommonHeader, DIGEST_BYTES, DataHeader, IcReq, PduType, R2t, TermReq, encode_capsule_resp, flag,
};
use runtime::{IoBuf, SharedBuf};
use std::collections::VecDeque;

/// Headers are gathered in pieces of this size: some 300 completions.
const HEADER_CHUNK_BYTES: usize = 16 << 10;
/// The first piece, of a connection that may never do more than connect; each is twice the one before.
const FIRST_CHUNK_BYTES: usize = 1 << 10;
/// No header with its digest and padding (PDO is one byte) is longer.
const MAX_HEADER_ROOM: usize = 256;

/// See the module. Bytes leave in the order of the calls.
pub struct PduWriter {
    parts: VecDeque<SharedBuf>,
    open: Option<IoBuf>,
    chunk_bytes: usize,
    used: usize,
    queued_bytes: usize,
    header_digest: bool,
    data_digest: bool,
    data_alignment: usize,
}

impl Default for PduWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl PduWriter {
    /// A writer at the start of a connection: no digests.
    pub fn new() -> Self {
        Self {
            parts: VecDeque::new(),
            open: None,
            chunk_bytes: FIRST_CHUNK_BYTES,
            used: 0,
            queued_bytes: 0,
            header_digest: false,
            data_digest: false,
            data_alignment: 4,
        }
    }

    /// Digests and the alignment that the peer asked for apply from here.
    pub fn open(&mut self, header_digest: bool, data_digest: bool, data_alignment: usize) {
        self.header_digest = header_digest;
        self.data_digest = data_digest;
        self.data_alignment = data_alignment;
    }

    /// Whether data gets a digest.
    pub fn has_data_digest(&self) -> bool {
        self.data_digest
    }

    /// Whether nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.used == 0
    }

    /// Bytes that wait to be sent.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Moves at most `max` parts to `into`, in order; returns how many bytes that is.
    pub fn drain(&mut self, into: &mut Vec<SharedBuf>, max: usize) -> usize {
        self.cut();
        let count = self.parts.len().min(max);
        let bytes = self.parts.iter().take(count).map(|part| part.len()).sum();
        into.extend(self.parts.drain(..count));
        self.queued_bytes -= bytes;
        bytes
    }

    /// Drops all that waits.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.open = None;
        self.used = 0;
        self.queued_bytes = 0;
    }

    /// All bytes that wait, in one piece: for tests and tools.
    pub fn drain_to_vec(&mut self) -> Vec<u8> {
        let mut parts = Vec::new();
        self.drain(&mut parts, usize::MAX);
        parts.iter().flat_map(|part| part.to_vec()).collect()
    }

    /// ICReq or ICResp.
    pub fn ic(&mut self, kind: PduType, ic: &IcReq) {
        self.append(&ic.encode(kind));
    }

    /// A TermReq with the header in error.
    pub fn terminate(&mut self, kind: PduType, term: &TermReq, bad_header: &[u8]) {
        let (bytes, used) = term.encode(kind, bad_header);
        self.append(&bytes[..used]);
    }

    /// A completion.
    pub fn response(&mut self, cqe: &Cqe) {
        self.header(&encode_capsule_resp(cqe, self.header_digest));
    }

    /// An R2T.
    pub fn r2t(&mut self, r2t: &R2t) {
        self.header(&r2t.encode(self.header_digest));
    }

    /// A command, with `data` in the capsule.
    pub fn command(&mut self, sqe: &Sqe, data: Option<SharedBuf>) {
        let data_len = data.as_ref().map_or(0, |data| data.len());
        let (flags, pdo, plen) = self.layout(CAPSULE_CMD_BYTES, data_len, 0);
        let mut bytes = [0; CAPSULE_CMD_BYTES];
        CommonHeader { kind: PduType::CapsuleCmd as u8, flags, hlen: CAPSULE_CMD_BYTES as u8, pdo, plen }
            .encode(&mut bytes);
        bytes[CommonHeader::BYTES..].copy_from_slice(&sqe.encode());
        self.header(&bytes);
        if let Some(data) = data {
            let digest = self.data_digest.then(|| crc32c(&data));
            self.pad(CAPSULE_CMD_BYTES, pdo);
            self.data(data, digest);
        }
    }

    /// Data of a read. `success` says that no completion will follow; `digest` is the data's crc32c if it is known.
    pub fn c2h_data(
        &mut self,
        command: u16,
        offset_bytes: u32,
        data: SharedBuf,
        last: bool,
        success: bool,
        digest: Option<u32>,
    ) {
        let flags = if last { flag::LAST } else { 0 } | if success { flag::SUCCESS } else { 0 };
        let header = DataHeader { flags, command, transfer_tag: 0, offset_bytes, len_bytes: data.len() as u32 };
        self.data_pdu(PduType::C2hData, header, data, digest);
    }

    /// Data of a write that an R2T asked for.
    pub fn h2c_data(&mut self, command: u16, transfer_tag: u16, offset_bytes: u32, data: SharedBuf, last: bool) {
        let flags = if last { flag::LAST } else { 0 };
        let header = DataHeader { flags, command, transfer_tag, offset_bytes, len_bytes: data.len() as u32 };
        self.data_pdu(PduType::H2cData, header, data, None);
    }

    fn data_pdu(&mut self, kind: PduType, mut header: DataHeader, data: SharedBuf, digest: Option<u32>) {
        let (flags, pdo, plen) = self.layout(DataHeader::BYTES, data.len(), header.flags);
        header.flags = flags;
        self.header(&header.encode(kind, pdo, plen));
        self.pad(DataHeader::BYTES, pdo);
        let digest = self.data_digest.then(|| digest.unwrap_or_else(|| crc32c(&data)));
        self.data(data, digest);
    }

    /// FLAGS, PDO and PLEN of a PDU with this header and data.
    fn layout(&self, header: usize, data: usize, flags: u8) -> (u8, u8, u32) {
        let mut flags = flags;
        let mut end = header;
        if self.header_digest {
            flags |= flag::HEADER_DIGEST;
            end += DIGEST_BYTES;
        }
        if data == 0 {
            return (flags, 0, end as u32);
        }
        let pdo = end.next_multiple_of(self.data_alignment);
        let mut plen = pdo + data;
        if self.data_digest {
            flags |= flag::DATA_DIGEST;
            plen += DIGEST_BYTES;
        }
        (flags, pdo as u8, plen as u32)
    }

    fn header(&mut self, bytes: &[u8]) {
        self.append(bytes);
        if self.header_digest {
            self.append(&crc32c(bytes).to_le_bytes());
        }
    }

    fn pad(&mut self, header: usize, pdo: u8) {
        let end = header + if self.header_digest { DIGEST_BYTES } else { 0 };
        self.append(&[0; 128][..usize::from(pdo) - end]);
    }

    fn data(&mut self, data: SharedBuf, digest: Option<u32>) {
        self.cut();
        self.queued_bytes += data.len();
        self.parts.push_back(data);
        if let Some(digest) = digest {
            self.append(&digest.to_le_bytes());
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= MAX_HEADER_ROOM);
        if self.open.as_ref().is_none_or(|open| open.len() - self.used < bytes.len()) {
            self.cut();
            self.open = Some(IoBuf::new(self.chunk_bytes));
            self.chunk_bytes = (2 * self.chunk_bytes).min(HEADER_CHUNK_BYTES);
        }
        let open = self.open.as_mut().expect("made above");
        open[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
        self.queued_bytes += bytes.len();
    }

    /// Closes the run of headers gathered so far; the rest of its memory serves the next.
    fn cut(&mut self) {
        if self.used == 0 {
            return;
        }
        let mut run = self.open.take().expect("has used bytes");
        let rest = run.split_off(self.used);
        self.open = (!rest.is_empty()).then_some(rest);
        self.used = 0;
        self.parts.push_back(run.freeze());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Status;
    use crate::wire::hex;

    fn cqe() -> Cqe {
        Cqe { result: 0, sq_head: 1, command: 2, status: Status::SUCCESS }
    }

    #[test]
    fn headers_run_together_and_data_is_not_copied() {
        let mut writer = PduWriter::new();
        let data = IoBuf::copy_of(&[1; 4096]).freeze();
        let address = data.as_ptr();
        writer.c2h_data(2, 0, data, true, false, None);
        writer.response(&cqe());
        writer.response(&cqe());
        let mut parts = Vec::new();
        writer.drain(&mut parts, 512);
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [24, 4096, 48]);
        assert_eq!(parts[1].as_ptr(), address);
        assert!(writer.is_empty());
    }

    #[test]
    fn digests_and_padding_are_where_the_host_wants_them() {
        let mut writer = PduWriter::new();
        writer.open(true, true, 64);
        writer.c2h_data(2, 0, IoBuf::copy_of(b"123456789").freeze(), true, true, None);
        let bytes = writer.drain_to_vec();
        assert_eq!(hex(&bytes[..8]), "070f18404d000000");
        assert_eq!(bytes[24..28], crc32c(&bytes[..24]).to_le_bytes());
        assert_eq!(&bytes[64..73], b"123456789");
        assert_eq!(hex(&bytes[73..]), "839206e3");
    }

    #[test]
    fn a_given_digest_is_taken_as_it_is() {
        let mut writer = PduWriter::new();
        writer.open(false, true, 4);
        writer.c2h_data(2, 0, IoBuf::copy_of(b"x").freeze(), true, false, Some(0x0102_0304));
        let bytes = writer.drain_to_vec();
        assert_eq!(bytes[25..], [4, 3, 2, 1]);
    }

    #[test]
    fn more_headers_than_one_chunk_holds() {
        let mut writer = PduWriter::new();
        for _ in 0..2000 {
            writer.response(&cqe());
        }
        assert_eq!(writer.drain_to_vec().len(), 2000 * 24);
    }
}

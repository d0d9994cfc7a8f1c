//! A byte stream cut into PDUs: checked headers, digests, and data that lands where its owner wants it.
//!
//! ```text
//!   feed(bytes) ──► next() ──► Header(…)          the owner may call place(buffer) for the data that follows
//!                         ──► Data(…)             the whole data of that PDU, with the verdict on its digest
//!                         ──► nothing             feed more; or fill what take_direct() returns from the socket
//! ```
//!
//! Data that lies in one piece in what was fed is not copied: it is a slice of it. The same reader serves both sides;
//! what differs is which types are legal.

use super::array_at;
use super::command::Sqe;
use super::completion::Cqe;
use super::digest::crc32c;
use super::pdu::{
    CommonHeader, DIGEST_BYTES, DataHeader, FatalError, IcReq, MAX_HEADER_BYTES, PduType, R2t, TermReq,
    decode_capsule_resp, flag,
};
use runtime::{IoBuf, SharedBuf};

/// From how many missing bytes on data is received straight into its buffer: below, a receive of its own costs more
/// than the copy that it saves.
pub const DIRECT_MIN_BYTES: usize = 8192;

/// Whose bytes these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The reader is a controller: the bytes come from a host.
    Controller,
    /// The reader is a host.
    Host,
}

impl Side {
    fn accepts(self, kind: PduType) -> bool {
        use PduType::*;
        match self {
            Self::Controller => matches!(kind, IcReq | H2cTermReq | CapsuleCmd | H2cData),
            Self::Host => matches!(kind, IcResp | C2hTermReq | CapsuleResp | C2hData | R2t),
        }
    }
    fn opening(self) -> PduType {
        match self {
            Self::Controller => PduType::IcReq,
            Self::Host => PduType::IcResp,
        }
    }
}

/// A header, read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// ICReq or ICResp.
    Open(IcReq),
    /// A TermReq of either direction.
    Terminate(TermReq),
    /// A command capsule with so many bytes of data.
    Command(Sqe, u32),
    /// A completion.
    Response(Cqe),
    /// Data in either direction.
    Data(DataHeader),
    /// An R2T.
    R2t(R2t),
}

/// The data of a PDU.
#[derive(Debug)]
pub enum Data {
    /// In memory of the reader's choice.
    Gathered(SharedBuf),
    /// In the buffer that [`PduReader::place`] gave.
    Placed(IoBuf),
    /// Thrown away, as [`PduReader::discard`] asked.
    Discarded,
}

/// What [`PduReader::next`] found.
#[derive(Debug)]
pub enum Item {
    /// A header. Its data, if it has any, is the next item.
    Header(Header),
    /// All data of the last header; `intact` is false if its digest does not fit.
    Data {
        /// The bytes.
        data: Data,
        /// Whether the digest fits (true without digests).
        intact: bool,
    },
}

/// The stream broke a rule: the connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PDU of type {:#04x}: {fatal:?}, information {information}", self.header[0])]
pub struct PduError {
    /// FES.
    pub fatal: FatalError,
    /// FEI: the byte in the header, or the digest.
    pub information: u32,
    /// The header in error, as far as it came.
    pub header: Vec<u8>,
}

/// Where the data of the current PDU goes.
enum Sink {
    /// Nowhere yet: a slice if it lies in one piece, else a new buffer.
    Open,
    Slice(SharedBuf),
    Buffer {
        buf: IoBuf,
        filled: usize,
        placed: bool,
    },
    /// The tail of the buffer is out, to be filled from the socket.
    Lent {
        head: IoBuf,
        placed: bool,
    },
    Discard {
        seen: usize,
    },
}

enum Stage {
    Header,
    Padding { left: usize, data: usize },
    Data { len: usize, sink: Sink },
    Digest { sink: Sink },
}

/// See the module.
pub struct PduReader {
    side: Side,
    opened: bool,
    header_digest: bool,
    data_digest: bool,
    /// PDO of data is a multiple of this.
    data_alignment: usize,
    /// Largest data of one PDU.
    max_data_bytes: u32,
    current: Option<SharedBuf>,
    at: usize,
    stage: Stage,
    header: [u8; MAX_HEADER_BYTES + DIGEST_BYTES],
    header_len: usize,
    last_len: usize,
    digest: [u8; DIGEST_BYTES],
    digest_len: usize,
}

/// Without data, and before digests and alignment are agreed on, PDO and digests mean nothing.
struct Shape {
    kind: PduType,
    header: usize,
    padding: usize,
    data: usize,
}

impl PduReader {
    /// A reader at the start of a connection.
    pub fn new(side: Side, max_data_bytes: u32) -> Self {
        Self {
            side,
            opened: false,
            header_digest: false,
            data_digest: false,
            data_alignment: 4,
            max_data_bytes,
            current: None,
            at: 0,
            stage: Stage::Header,
            header: [0; MAX_HEADER_BYTES + DIGEST_BYTES],
            header_len: 0,
            last_len: 0,
            digest: [0; DIGEST_BYTES],
            digest_len: 0,
        }
    }

    /// The connection is open: digests and the alignment that this side told (PDO is a multiple of it) apply from here.
    pub fn open(&mut self, header_digest: bool, data_digest: bool, data_alignment: usize) {
        self.opened = true;
        self.header_digest = header_digest;
        self.data_digest = data_digest;
        self.data_alignment = data_alignment;
    }

    /// Gives the next bytes of the stream.
    ///
    /// # Panics
    /// If bytes are left of what was fed before: call [`next`](Self::next) until it finds nothing.
    pub fn feed(&mut self, bytes: SharedBuf) {
        assert!(self.current.is_none(), "fed before the last bytes were used up");
        if !bytes.is_empty() {
            self.current = Some(bytes);
            self.at = 0;
        }
    }

    /// The header that [`next`](Self::next) returned last, as it came.
    pub fn last_header(&self) -> &[u8] {
        &self.header[..self.last_len]
    }

    /// Whether all that was fed has been used.
    pub fn is_starved(&self) -> bool {
        self.current.is_none()
    }

    /// The data that is to come goes into `buf`.
    ///
    /// # Panics
    /// If no data is to come, some has, or `buf` has another length.
    pub fn place(&mut self, buf: IoBuf) {
        match &mut self.stage {
            Stage::Padding { data, .. } => {
                assert_eq!(*data, buf.len());
                self.enter_data(Sink::Buffer { buf, filled: 0, placed: true });
            }
            _ => panic!("no data is to come"),
        }
    }

    /// The data that is to come is thrown away.
    ///
    /// # Panics
    /// As [`place`](Self::place).
    pub fn discard(&mut self) {
        self.enter_data(Sink::Discard { seen: 0 });
    }

    /// Keeps the padding to skip in `header_len`, which counts again only at the next header.
    fn enter_data(&mut self, sink: Sink) {
        match self.stage {
            Stage::Padding { left, data } => {
                self.header_len = left;
                self.stage = Stage::Data { len: data, sink };
            }
            _ => panic!("no data is to come"),
        }
    }

    /// A buffer to fill completely from the socket, if that is better than [`feed`](Self::feed) now. Give it back with
    /// [`give_direct`](Self::give_direct).
    pub fn take_direct(&mut self) -> Option<IoBuf> {
        if self.current.is_some() || self.header_len > 0 {
            return None;
        }
        let Stage::Data { len, sink } = &mut self.stage else { return None };
        if matches!(sink, Sink::Open) && *len >= DIRECT_MIN_BYTES {
            *sink = Sink::Buffer { buf: IoBuf::new(*len), filled: 0, placed: false };
        }
        match std::mem::replace(sink, Sink::Open) {
            Sink::Buffer { mut buf, filled, placed } if buf.len() - filled >= DIRECT_MIN_BYTES => {
                let tail = buf.split_off(filled);
                *sink = Sink::Lent { head: buf, placed };
                Some(tail)
            }
            other => {
                *sink = other;
                None
            }
        }
    }

    /// Gives back what [`take_direct`](Self::take_direct) lent, filled.
    ///
    /// # Panics
    /// If nothing was lent.
    pub fn give_direct(&mut self, tail: IoBuf) {
        let Stage::Data { sink, .. } = &mut self.stage else { panic!("nothing was lent") };
        let Sink::Lent { head: mut buf, placed } = std::mem::replace(sink, Sink::Open) else {
            panic!("nothing was lent")
        };
        buf.unsplit(tail);
        let filled = buf.len();
        *sink = Sink::Buffer { buf, filled, placed };
    }

    /// The next item, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// The stream broke a rule; nothing after it can be understood.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Item>, PduError> {
        loop {
            match &mut self.stage {
                Stage::Header => {
                    let Some(shape) = self.gather_header()? else { return Ok(None) };
                    self.check_header_digest(&shape)?;
                    self.header_len = 0;
                    self.last_len = shape.kind.header_bytes();
                    if shape.kind.may_have_data() && shape.data > 0 {
                        self.stage = Stage::Padding { left: shape.padding, data: shape.data };
                    }
                    return Ok(Some(Item::Header(self.decode(&shape)?)));
                }
                Stage::Padding { .. } => self.enter_data(Sink::Open),
                Stage::Data { .. } => {
                    if !self.gather_data() {
                        return Ok(None);
                    }
                }
                Stage::Digest { .. } => {
                    let Some(intact) = self.check_data_digest() else { return Ok(None) };
                    let Stage::Digest { sink } = std::mem::replace(&mut self.stage, Stage::Header) else {
                        unreachable!("matched above")
                    };
                    let data = match sink {
                        Sink::Slice(bytes) => Data::Gathered(bytes),
                        Sink::Buffer { buf, placed: true, .. } => Data::Placed(buf),
                        Sink::Buffer { buf, placed: false, .. } => Data::Gathered(buf.freeze()),
                        Sink::Discard { .. } => Data::Discarded,
                        Sink::Open | Sink::Lent { .. } => unreachable!("data is complete"),
                    };
                    return Ok(Some(Item::Data { data, intact }));
                }
            }
        }
    }

    fn remaining(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |bytes| &bytes[self.at..])
    }

    fn advance(&mut self, count: usize) {
        self.at += count;
        if self.current.as_ref().is_some_and(|bytes| bytes.len() == self.at) {
            self.current = None;
        }
    }

    /// Copies bytes to the header until it has `want`; whether it has.
    fn fill_header(&mut self, want: usize) -> bool {
        let bytes = self.current.as_ref().map_or(&[][..], |bytes| &bytes[self.at..]);
        let count = (want.saturating_sub(self.header_len)).min(bytes.len());
        self.header[self.header_len..self.header_len + count].copy_from_slice(&bytes[..count]);
        self.header_len += count;
        self.advance(count);
        self.header_len >= want
    }

    fn gather_header(&mut self) -> Result<Option<Shape>, PduError> {
        if !self.fill_header(CommonHeader::BYTES) {
            return Ok(None);
        }
        let shape = self.check_common_header()?;
        Ok(self.fill_header(shape.header).then_some(shape))
    }

    fn error(&self, fatal: FatalError, information: u32) -> PduError {
        PduError { fatal, information, header: self.header[..self.header_len.min(MAX_HEADER_BYTES)].to_vec() }
    }

    /// Everything that the first 8 bytes must say: nothing larger is awaited before they are right.
    fn check_common_header(&self) -> Result<Shape, PduError> {
        let common = CommonHeader::decode(&array_at(&self.header, 0));
        let invalid = |at: u32| self.error(FatalError::InvalidHeaderField, at);
        let kind = PduType::from_u8(common.kind).filter(|kind| self.side.accepts(*kind)).ok_or_else(|| invalid(0))?;
        let terminates = matches!(kind, PduType::H2cTermReq | PduType::C2hTermReq);
        if !terminates && (kind == self.side.opening()) == self.opened {
            return Err(self.error(FatalError::SequenceError, 0));
        }
        if usize::from(common.hlen) != kind.header_bytes() {
            return Err(invalid(2));
        }
        let digest = self.header_digest && kind.has_header_digest();
        if kind.has_header_digest() && (common.flags & flag::HEADER_DIGEST != 0) != digest {
            return Err(invalid(1));
        }
        let header = kind.header_bytes() + if digest { DIGEST_BYTES } else { 0 };
        let plen = common.plen as usize;
        if terminates {
            let legal = (TermReq::HEADER_BYTES..=TermReq::MAX_BYTES).contains(&plen);
            return if legal { Ok(Shape { kind, header, padding: 0, data: 0 }) } else { Err(invalid(4)) };
        }
        if plen < header || (plen > header && !kind.may_have_data()) {
            return Err(invalid(4));
        }
        if plen == header {
            return Ok(Shape { kind, header, padding: 0, data: 0 });
        }
        let pdo = usize::from(common.pdo);
        if pdo < header || pdo % self.data_alignment != 0 || pdo >= plen {
            return Err(invalid(3));
        }
        if (common.flags & flag::DATA_DIGEST != 0) != self.data_digest {
            return Err(invalid(1));
        }
        let tail = if self.data_digest { DIGEST_BYTES } else { 0 };
        match (plen - pdo).checked_sub(tail) {
            Some(data) if data > 0 && data <= self.max_data_bytes as usize => {
                Ok(Shape { kind, header, padding: pdo - header, data })
            }
            _ => Err(invalid(4)),
        }
    }

    fn check_header_digest(&self, shape: &Shape) -> Result<(), PduError> {
        let len = shape.kind.header_bytes();
        if !self.header_digest || !shape.kind.has_header_digest() {
            return Ok(());
        }
        let sent = u32::from_le_bytes(array_at(&self.header, len));
        if sent == crc32c(&self.header[..len]) { Ok(()) } else { Err(self.error(FatalError::HeaderDigest, sent)) }
    }

    fn decode(&self, shape: &Shape) -> Result<Header, PduError> {
        Ok(match shape.kind {
            PduType::IcReq | PduType::IcResp => Header::Open(IcReq::decode(&array_at(&self.header, 0))),
            PduType::H2cTermReq | PduType::C2hTermReq => Header::Terminate(TermReq::decode(&array_at(&self.header, 0))),
            PduType::CapsuleCmd => {
                Header::Command(Sqe::decode(&array_at(&self.header, CommonHeader::BYTES)), shape.data as u32)
            }
            PduType::CapsuleResp => Header::Response(decode_capsule_resp(&array_at(&self.header, 0))),
            PduType::H2cData | PduType::C2hData => {
                let header = DataHeader::decode(&array_at(&self.header, 0));
                if header.len_bytes as usize != shape.data {
                    return Err(PduError {
                        fatal: FatalError::InvalidHeaderField,
                        information: 16,
                        header: self.header[..DataHeader::BYTES].to_vec(),
                    });
                }
                Header::Data(header)
            }
            PduType::R2t => Header::R2t(R2t::decode(&array_at(&self.header, 0))),
        })
    }

    /// Moves what has arrived to the sink; whether all data of the PDU is there.
    fn gather_data(&mut self) -> bool {
        let padding = self.header_len.min(self.remaining().len());
        self.header_len -= padding;
        self.advance(padding);
        if self.header_len > 0 {
            return false;
        }
        let Stage::Data { len, sink } = &mut self.stage else { unreachable!("called in this stage") };
        let len = *len;
        let bytes = self.current.as_ref().map_or(&[][..], |bytes| &bytes[self.at..]);
        if let Sink::Open = sink {
            if bytes.len() >= len {
                let whole = self.current.as_ref().expect("has bytes").slice(self.at..self.at + len);
                self.stage = Stage::Digest { sink: Sink::Slice(whole) };
                self.digest_len = 0;
                self.advance(len);
                return true;
            }
            if bytes.is_empty() {
                return false;
            }
            *sink = Sink::Buffer { buf: IoBuf::new(len), filled: 0, placed: false };
        }
        let (done, moved) = match sink {
            Sink::Buffer { buf, filled, .. } => {
                let count = bytes.len().min(len - *filled);
                buf[*filled..*filled + count].copy_from_slice(&bytes[..count]);
                *filled += count;
                (*filled == len, count)
            }
            Sink::Discard { seen } => {
                let count = bytes.len().min(len - *seen);
                *seen += count;
                (*seen == len, count)
            }
            Sink::Lent { .. } => panic!("fed while a buffer is lent"),
            Sink::Open | Sink::Slice(_) => unreachable!("replaced above"),
        };
        self.advance(moved);
        if done {
            let Stage::Data { sink, .. } = std::mem::replace(&mut self.stage, Stage::Header) else { unreachable!() };
            self.stage = Stage::Digest { sink };
            self.digest_len = 0;
        }
        done
    }

    /// `None`: the digest has not come yet.
    fn check_data_digest(&mut self) -> Option<bool> {
        if !self.data_digest {
            return Some(true);
        }
        let bytes = self.current.as_ref().map_or(&[][..], |bytes| &bytes[self.at..]);
        let count = (DIGEST_BYTES - self.digest_len).min(bytes.len());
        self.digest[self.digest_len..self.digest_len + count].copy_from_slice(&bytes[..count]);
        self.digest_len += count;
        self.advance(count);
        if self.digest_len < DIGEST_BYTES {
            return None;
        }
        let Stage::Digest { sink } = &self.stage else { unreachable!("called in this stage") };
        let sent = u32::from_le_bytes(self.digest);
        Some(match sink {
            Sink::Slice(data) => crc32c(data) == sent,
            Sink::Buffer { buf, .. } => crc32c(buf) == sent,
            _ => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvm;
    use crate::wire::pdu::CAPSULE_CMD_BYTES;
    use crate::wire::writer::PduWriter;

    const LIMIT: u32 = 64 << 10;

    fn shared(bytes: &[u8]) -> SharedBuf {
        IoBuf::copy_of(bytes).freeze()
    }

    fn sqe() -> Sqe {
        let mut sqe = Sqe::new(nvm::WRITE, 1);
        sqe.command = 77;
        sqe
    }

    fn stream_of_two(header_digest: bool, data_digest: bool) -> Vec<u8> {
        let mut writer = PduWriter::new();
        writer.open(header_digest, data_digest, 4);
        writer.command(&sqe(), Some(shared(&[0xA5; 600])));
        writer.command(&sqe(), None);
        writer.drain_to_vec()
    }

    fn read_all(bytes: &[u8], step: usize, header_digest: bool, data_digest: bool) -> Vec<String> {
        let mut reader = PduReader::new(Side::Controller, LIMIT);
        reader.open(header_digest, data_digest, 4);
        let mut seen = Vec::new();
        for chunk in bytes.chunks(step) {
            reader.feed(shared(chunk));
            loop {
                match reader.next() {
                    Ok(Some(Item::Data { data: Data::Gathered(data), intact })) => {
                        seen.push(format!("data {} {:x} {intact}", data.len(), crc32c(&data)));
                    }
                    Ok(Some(item)) => seen.push(format!("{item:?}")),
                    Ok(None) => break,
                    Err(error) => {
                        seen.push(format!("{error}"));
                        return seen;
                    }
                }
            }
        }
        seen
    }

    #[test]
    fn every_split_of_the_stream_reads_the_same() {
        for digests in [(false, false), (true, false), (false, true), (true, true)] {
            let bytes = stream_of_two(digests.0, digests.1);
            let whole = read_all(&bytes, bytes.len(), digests.0, digests.1);
            assert_eq!(whole.len(), 3, "{whole:?}");
            for step in 1..=bytes.len() {
                assert_eq!(read_all(&bytes, step, digests.0, digests.1), whole, "step {step}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found_by_its_digest() {
        let good = stream_of_two(true, true);
        let mut bad = good.clone();
        bad[10] ^= 1;
        assert!(read_all(&bad, bad.len(), true, true)[0].contains("HeaderDigest"));
        let mut bad = good.clone();
        bad[CAPSULE_CMD_BYTES + 4 + 100] ^= 1;
        let seen = read_all(&bad, bad.len(), true, true);
        assert!(seen[1].ends_with("false") && seen.len() == 3, "the stream goes on: {seen:?}");
    }

    #[test]
    fn illegal_common_headers_name_the_byte() {
        let cases: [(&str, [u8; 8], FatalError, u32); 8] = [
            ("unknown type", [0x0A, 0, 72, 0, 72, 0, 0, 0], FatalError::InvalidHeaderField, 0),
            ("a type of the other direction", [5, 0, 24, 0, 24, 0, 0, 0], FatalError::InvalidHeaderField, 0),
            ("ICReq again", [0, 0, 128, 0, 128, 0, 0, 0], FatalError::SequenceError, 0),
            ("HLEN", [4, 0, 71, 0, 72, 0, 0, 0], FatalError::InvalidHeaderField, 2),
            ("PLEN below the header", [4, 0, 72, 0, 71, 0, 0, 0], FatalError::InvalidHeaderField, 4),
            ("PDO inside the header", [4, 0, 72, 64, 80, 0, 0, 0], FatalError::InvalidHeaderField, 3),
            ("PDO not aligned", [4, 0, 72, 74, 90, 0, 0, 0], FatalError::InvalidHeaderField, 3),
            ("data above the limit", [4, 0, 72, 72, 0, 0, 0, 8], FatalError::InvalidHeaderField, 4),
        ];
        for (what, bytes, fatal, information) in cases {
            let mut reader = PduReader::new(Side::Controller, LIMIT);
            reader.open(false, false, 4);
            reader.feed(shared(&bytes));
            let error = reader.next().expect_err(what);
            assert_eq!((error.fatal, error.information), (fatal, information), "{what}");
            assert_eq!(error.header, bytes);
        }
        let mut reader = PduReader::new(Side::Controller, LIMIT);
        reader.feed(shared(&[4, 0, 72, 0, 72, 0, 0, 0]));
        assert_eq!(reader.next().expect_err("a command before ICReq").fatal, FatalError::SequenceError);
    }

    #[test]
    fn large_data_goes_straight_into_the_owners_buffer() {
        let payload = vec![0x5C; 32 << 10];
        let mut writer = PduWriter::new();
        writer.open(false, true, 4);
        writer.h2c_data(3, 1, 0, shared(&payload), true);
        let bytes = writer.drain_to_vec();
        let mut reader = PduReader::new(Side::Controller, LIMIT);
        reader.open(false, true, 4);
        reader.feed(shared(&bytes[..100]));
        assert!(matches!(reader.next(), Ok(Some(Item::Header(Header::Data(_))))));
        reader.place(IoBuf::new(payload.len()));
        assert!(matches!(reader.next(), Ok(None)));
        let mut tail = reader.take_direct().expect("most of it is missing");
        let from = bytes.len() - DIGEST_BYTES - tail.len();
        let len = tail.len();
        tail.copy_from_slice(&bytes[from..from + len]);
        reader.give_direct(tail);
        reader.feed(shared(&bytes[from + len..]));
        let Ok(Some(Item::Data { data: Data::Placed(buf), intact: true })) = reader.next() else { panic!("no data") };
        assert_eq!(&buf[..], &payload[..]);
    }
}

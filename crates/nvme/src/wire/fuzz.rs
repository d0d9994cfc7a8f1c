//! Entry points for fuzzers: each takes any bytes, does what a peer's bytes would make this crate do, and must return.
//! They are stable names; `cargo fuzz` targets and the test below call them.

use super::identify::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, decode_namespace_list, decode_nguid};
use super::log::{DiscoveryEntry, ErrorEntry, GetLogPage, Health, decode_ana, decode_discovery_header};
use super::pdu::{CAPSULE_RESP_BYTES, CommonHeader, DataHeader, IcReq, R2t, TermReq, decode_capsule_resp};
use super::stream::{PduReader, Side};
use super::{Connect, ConnectData, Cqe, DatasetRange, Property, Sqe};
use runtime::IoBuf;

/// The first `N` bytes, padded with zeroes.
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    let used = bytes.len().min(N);
    array[..used].copy_from_slice(&bytes[..used]);
    array
}

/// Every structure that a peer sends, decoded from the same bytes.
pub fn structures(bytes: &[u8]) {
    CommonHeader::decode(&padded(bytes));
    IcReq::decode(&padded(bytes));
    TermReq::decode(&padded(bytes));
    DataHeader::decode(&padded(bytes));
    R2t::decode(&padded(bytes));
    decode_capsule_resp(&padded::<CAPSULE_RESP_BYTES>(bytes));
    Cqe::decode(&padded(bytes)).status.to_string();
    let sqe = Sqe::decode(&padded(bytes));
    assert_eq!(Sqe::decode(&sqe.encode()), sqe);
    Connect::decode(&sqe);
    Property::decode(&sqe);
    GetLogPage::decode(&sqe.cdw);
    DatasetRange::decode(&padded(bytes));
    ConnectData::decode(&padded(bytes));
    let page = padded::<IDENTIFY_BYTES>(bytes);
    IdentifyController::decode(&page).in_capsule_bytes();
    IdentifyNamespace::decode(&page);
    decode_namespace_list(&page);
    decode_nguid(&page);
    decode_ana(bytes);
    Health::decode(&padded(bytes));
    ErrorEntry::decode(&padded(bytes));
    DiscoveryEntry::decode(&padded(bytes));
    decode_discovery_header(&padded(bytes));
}

/// A stream from a peer. The first byte says which side reads, with which digests, and in what steps it arrives.
pub fn stream(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    let side = if mode & 1 == 0 { Side::Controller } else { Side::Host };
    let mut reader = PduReader::new(side, 64 << 10);
    if mode & 2 != 0 {
        reader.open(mode & 4 != 0, mode & 8 != 0, 4);
    }
    for chunk in bytes.chunks(1 + usize::from(mode >> 4) * 7) {
        reader.feed(IoBuf::copy_of(chunk).freeze());
        loop {
            match reader.next() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// Bytes from a seed, and small mutations of good input: a corpus that needs no files.
#[cfg(test)]
pub(crate) fn mutations(good: &[&[u8]], rounds: u64, mut run: impl FnMut(&[u8])) {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..rounds {
        let mut bytes = match good.get((round as usize) % (good.len() + 1)) {
            Some(bytes) => bytes.to_vec(),
            None => (0..random() % 300).map(|_| random() as u8).collect(),
        };
        for _ in 0..random() % 5 {
            if bytes.is_empty() {
                break;
            }
            let at = random() as usize % bytes.len();
            match random() % 4 {
                0 => bytes[at] ^= 1 << (random() % 8),
                1 => bytes[at] = random() as u8,
                2 => bytes.truncate(at),
                _ => bytes.insert(at, random() as u8),
            }
        }
        run(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvm;
    use crate::wire::pdu::PduType;
    use crate::wire::writer::PduWriter;

    #[test]
    fn no_bytes_make_a_structure_panic() {
        for byte in [0, 1, 0x7F, 0xFF] {
            structures(&[byte; 5000]);
        }
        mutations(&[], 2000, structures);
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let mut writer = PduWriter::new();
        writer.ic(PduType::IcReq, &IcReq::default());
        writer.command(&Sqe::new(nvm::READ, 1), None);
        writer.command(&Sqe::new(nvm::WRITE, 1), Some(IoBuf::zeroed(512).freeze()));
        writer.h2c_data(1, 1, 0, IoBuf::zeroed(64).freeze(), true);
        let mut host = writer.drain_to_vec();
        host.insert(0, 0x10);
        let mut opened = host.clone();
        opened[0] = 0x32;
        opened.drain(1..129);
        mutations(&[&host, &opened], 5000, stream);
    }
}

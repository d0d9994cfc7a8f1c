//! The node protocol's bytes: what is sent is what is understood, and nothing else is taken.

mod bytes;
mod content;
mod entries;
mod headers;
mod hello;
mod records;

use replication::protocol::{History, Membership, Message};
use replication::wire::fuzz::{
    self, BEFORE, ENVELOPE, GROUP, Random, encode, is_same, record, sample_frames, samples, seal,
};
use replication::wire::*;
use runtime::{IoBuf, SharedBuf};
use store::format::{Codec, StoredLength};
use store::{BlockCoding, Entry, EntryKind, OrderedError};
use types::*;

fn shared(bytes: &[u8]) -> SharedBuf {
    IoBuf::copy_of(bytes).freeze()
}

/// The only frame of a connection.
fn first_frame(bytes: &[u8]) -> Result<Option<Frame>, WireError> {
    Receiver::of(Features::KNOWN).frame(&shared(bytes))
}

fn refused(bytes: &[u8]) -> WireError {
    match first_frame(bytes) {
        Err(why) => why,
        Ok(taken) => panic!("taken: {taken:?}"),
    }
}

/// A whole frame of the sample.
fn sample(name: &str) -> Vec<u8> {
    sample_frames().into_iter().find(|(known, _)| *known == name).expect("a sample").1
}

/// The sample's frame with another meta part, and right sums.
fn with_meta(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let frame = sample(name);
    let header = FrameHeader::decode(&frame).expect("good").expect("whole");
    let (head, body) = frame.split_at(FRAME_HEADER_BYTES);
    let (meta, blocks) = body.split_at(header.meta_bytes as usize);
    let mut meta = meta.to_vec();
    change(&mut meta);
    let mut frame = [head, &meta, blocks].concat();
    frame[8..12].copy_from_slice(&(meta.len() as u32).to_le_bytes());
    seal(&frame)
}

/// The sample's frame with other bytes in its header, and right sums.
fn with_header(name: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = sample(name);
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    seal(&frame)
}

/// Whose entries of this epoch are.
fn term(epoch: u32) -> Term {
    Term::led_by(Epoch(epoch), StoreId(7), Incarnation(u64::from(epoch)))
}

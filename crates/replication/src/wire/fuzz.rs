//! What a fuzzer calls, and what it and the tests start from.

use super::bytes::{put_u16, put_u32, u32_at};
use super::frame::FRAME_HEADER_BYTES;
use super::*;
use crate::layers::LayerEnd;
use crate::protocol::{History, Membership, Message};
use runtime::buf::LARGEST;
use runtime::{IoBuf, SharedBuf};
use std::sync::Arc;
use store::format::{Codec, Crc32c, LayerRecord, StoredLength};
use store::{BlockCoding, Entry, EntryKind, KnownBlock};
use types::*;

/// Any bytes as what comes on a connection: as they are, and with all sums of headers and meta parts put right, so that
/// what lies behind them is reached. What is taken is encoded again, and says the same.
pub fn frames(bytes: &[u8]) {
    connection(bytes);
    connection(&seal(bytes));
}

fn connection(bytes: &[u8]) {
    let mut rest = IoBuf::copy_of(&bytes[..bytes.len().min(LARGEST)]).freeze();
    let (mut receiver, mut sender, mut mirror) =
        (Receiver::of(Features::KNOWN), Sender::new(), Receiver::of(Features::KNOWN));
    while let Ok(Some(frame)) = receiver.frame(&rest) {
        let again = encode(&mut sender, &frame.header.envelope, &frame.said);
        let again = mirror.frame(&IoBuf::copy_of(&again).freeze()).expect("what was encoded is good");
        assert!(again.is_some_and(|again| is_same(&again, &frame)), "{frame:?}");
        rest = rest.slice(frame.header.frame_bytes()..rest.len());
    }
}

/// The frame as it goes over the wire, blocks included.
///
/// # Panics
/// If it is none that is ever sent, or has more entries than one frame takes.
pub fn encode(sender: &mut Sender, envelope: &Envelope, said: &Said) -> Vec<u8> {
    let (mut out, mut blocks) = (Vec::new(), Vec::new());
    match said {
        Said::Node(message) => encode_node(envelope, message, &mut out).expect("it can be sent"),
        Said::Group(message, entries) => {
            let sent = sender.encode(envelope, message, entries, &mut out, &mut blocks).expect("it can be sent");
            assert_eq!(sent, entries.len(), "all fit");
        }
        Said::Call(message) => encode_call(envelope, message, &mut out, &mut blocks).expect("it can be sent"),
        Said::Fill(message) => encode_fill(envelope, message, &mut out, &mut blocks).expect("it can be sent"),
        Said::Head(message) => encode_head(envelope, message, &mut out, &mut blocks).expect("it can be sent"),
    }
    blocks.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// Whether both say the same; how long their bodies are does not matter.
pub fn is_same(one: &Frame, other: &Frame) -> bool {
    let said = match (&one.said, &other.said) {
        (Said::Node(one), Said::Node(other)) => one == other,
        (Said::Group(one, entries), Said::Group(other, others)) => {
            let is_same = |(one, other)| entry_bytes(one) == entry_bytes(other);
            one == other && entries.len() == others.len() && entries.iter().zip(others).all(is_same)
        }
        (Said::Call(one), Said::Call(other)) => one == other,
        (Said::Fill(one), Said::Fill(other)) => one == other,
        (Said::Head(one), Said::Head(other)) => one == other,
        _ => false,
    };
    said && (one.header.kind, one.header.envelope) == (other.header.kind, other.header.envelope)
}

/// All of an entry: as the log has it, and its blocks.
fn entry_bytes(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    let blocks =
        store::encode_ordered(entry, &mut bytes).expect("an entry of a group's order").map(|blocks| &blocks[..]);
    bytes.extend_from_slice(blocks.unwrap_or_default());
    bytes
}

/// The same frames with right sums, as far as their lengths make sense.
pub fn seal(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut rest = &mut bytes[..];
    while rest.len() >= FRAME_HEADER_BYTES {
        let (header, body) = rest.split_at_mut(FRAME_HEADER_BYTES);
        header[..4].copy_from_slice(b"CRN\x01");
        put_u16(header, 4, WIRE_VERSION);
        let meta = (u32_at(header, 8) as usize).min(body.len());
        let blocks = (u32_at(header, 12) as usize).min(body.len() - meta);
        put_u32(header, 104, Crc32c::of(&body[..meta]).0);
        let sum = Crc32c::of(&header[..108]);
        put_u32(header, 108, sum.0);
        rest = &mut body[meta + blocks..];
    }
    bytes
}

/// splitmix64: a seed, and the same numbers every time.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }
}

const A: StoreId = StoreId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
const B: StoreId = StoreId(0xb0b);
const C: StoreId = StoreId(0xcafe);
/// Group of the samples.
pub const GROUP: GroupId = GroupId(0x0102_0304);

/// Envelope of the samples between stores.
pub const ENVELOPE: Envelope = Envelope {
    class: Class::Recovery,
    sender: A,
    incarnation: Incarnation(9),
    receiver: B,
    group: GROUP,
    request: RequestId(77),
    trace: TraceId(0x7ace),
    remaining_ms: 1500,
    attempt: 0x0a77_e3b7,
};

/// Record of the samples.
pub fn record() -> Membership {
    Membership {
        epoch: Epoch(6),
        primary: A,
        life: Incarnation(9),
        in_sync: vec![A, B],
        eligible: Vec::new(),
        joining: vec![C],
        min_in_sync: 2,
    }
}

/// Whose entries of this epoch are.
const fn term(epoch: u32) -> Term {
    Term::new(Epoch(epoch), 0x5EED_0000 + epoch)
}

fn entry(seq: u64, epoch: u32, kind: EntryKind) -> Entry {
    let (layer, chunk, volume_epoch) = (LayerId(11), ChunkId(12), VolumeEpoch(4));
    Entry { group: GROUP, term: term(epoch), seq: Seq(seq), commit: Seq(seq - 1), volume_epoch, layer, chunk, kind }
}

fn bytes(length: usize, seed: u64) -> SharedBuf {
    let mut random = Random(seed);
    let mut buf = IoBuf::new(length);
    buf.fill_with(|| random.number() as u8);
    buf.freeze()
}

/// An entry of each kind of the order; the first has sequence 1,001. Without blocks they are short.
pub fn entries(with_blocks: bool) -> Vec<Entry> {
    let coding =
        BlockCoding::new(KeyId(2), Some(&[StoredLength::new(1, Codec::Lz4), StoredLength::new(2, Codec::Zstd)]));
    let layer = LayerRecord {
        layer: LayerId(11),
        parent: LayerId(10),
        family: FamilyId(3),
        created_at_ns: 5,
        retain_until_ns: 6,
        key: KeyId(2),
    };
    let chunks = vec![ChunkId(12), ChunkId(0x0102_0304)];
    let mut kinds = vec![
        EntryKind::Zero { range: BlockRange::new(7, 249), hides_below: true },
        EntryKind::EpochStart,
        EntryKind::GroupRecord { record: IoBuf::copy_of(b"{\"epoch\": 6}").freeze() },
        EntryKind::VolumeEpoch { volume: VolumeId(8) },
        EntryKind::Layer { record: layer },
        EntryKind::Merge { into: LayerId(13), chunks: chunks.clone(), hides_below: true },
        EntryKind::LayerDelete { chunks },
        EntryKind::LayerDelete { chunks: Vec::new() },
        EntryKind::Noop,
    ];
    if with_blocks {
        kinds.push(EntryKind::write(BlockRange::new(3, 1), bytes(BLOCK_BYTES, 1)));
        kinds.push(EntryKind::Write { range: BlockRange::new(254, 2), bytes: bytes(3 * 512, 2), coding });
    }
    let kinds = kinds.into_iter().zip(1001_u64..);
    kinds.map(|(kind, seq)| entry(seq, if seq < 1002 { 5 } else { 6 }, kind)).collect()
}

/// What comes before the first of [`entries`].
pub const BEFORE: crate::protocol::Place = (term(5), Seq(1000));

fn node_samples() -> Vec<(&'static str, NodeMessage)> {
    let hello = Hello {
        cluster: ClusterId(0xc0ff_ee00),
        node: NodeId(3),
        incarnation: Incarnation(41),
        to_core: 3,
        core: 2,
        speaks: Protocol { oldest: 2, newest: 3, features: Features(5), release: Release([1, 22, 333]) },
        nonce: [0x5a; 32],
        proof: [0; 32],
    };
    let mut cores = Cores::default();
    [0, 3, 64, 255].into_iter().for_each(|core| cores.insert(core));
    let line = |store, life, first_core| StoreLine {
        store,
        life: Incarnation(life),
        shards: 8,
        first_core,
        cores: 6,
        is_full: life == 2,
        reaches_map: life == 5,
    };
    let (incarnation, stores) = (Incarnation(41), vec![line(A, 9, 0), line(B, 2, 2)]);
    let answer = |grants| {
        let stores = vec![line(C, 5, 1)];
        BeatAnswer { echo_ns: 123_456_789, incarnation: Incarnation(7), cores, stores, grants }
    };
    let except = |group, place, below| Excepted { group, place, below: Epoch(below) };
    let excepted = vec![except(GroupId(4), 0, 7), except(GroupId(5), 1, 1), except(GROUP, 0, 6), except(GROUP, 2, 6)];
    let reason = "this node is of cluster 0c0ffee1: look at its configuration".to_owned();
    vec![
        ("hello", NodeMessage::Hello(hello)),
        ("hello-answer", NodeMessage::HelloAnswer(Hello { node: NodeId(4), proof: [0xa5; 32], ..hello })),
        ("hello-proof", NodeMessage::HelloProof([0xa6; 32])),
        ("hello-refused", NodeMessage::HelloRefused(HelloRefused { reason })),
        (
            "beat",
            NodeMessage::Beat(Beat { sent_ns: 123_456_789, incarnation, cores, stores: stores.clone(), count: None }),
        ),
        (
            "beat-rehearsed",
            NodeMessage::Beat(Beat {
                sent_ns: 5,
                incarnation,
                cores,
                stores: stores[..1].to_vec(),
                count: Some(0xbea7),
            }),
        ),
        ("rehearsed", NodeMessage::Rehearsed(Rehearsed { count: 0x5e7 })),
        ("beat-answer", NodeMessage::BeatAnswer(answer(Grants::AllBut(excepted)))),
        ("ping", NodeMessage::Ping),
        ("pong", NodeMessage::Pong),
        ("dead", NodeMessage::Dead(Dead { lives: vec![(StoreId(3), Incarnation(8)), (StoreId(4), Incarnation(9))] })),
        ("beat-answer-nothing-granted", NodeMessage::BeatAnswer(answer(Grants::Nothing))),
    ]
}

fn call_samples() -> Vec<(&'static str, CallMessage)> {
    let parcel = Parcel { head: b"what is asked".to_vec(), bytes: bytes(700, 5) };
    let reason = "node 3 answers no calls of service 9".to_owned();
    vec![
        ("call", CallMessage::Call(Service(0x0102), parcel.clone())),
        ("call-head-alone", CallMessage::Call(Service(7), Parcel::of(b"12345678".to_vec()))),
        ("reply", CallMessage::Reply(Ok(parcel))),
        ("reply-nothing", CallMessage::Reply(Ok(Parcel::of(Vec::new())))),
        ("reply-refused", CallMessage::Reply(Err(reason))),
    ]
}

fn group_samples() -> Vec<(&'static str, Message, Vec<Entry>)> {
    let (epoch, commit) = (Epoch(6), Seq(999));
    let starts = vec![(term(1), Seq(1)), (term(5), Seq(900)), (term(6), Seq(1002))];
    let history = History::new(starts, Seq(1011));
    let prepare = Message::Prepare { record: Arc::new(record()), before: BEFORE, commit };
    vec![
        ("prepare-commit-alone", prepare.clone(), Vec::new()),
        ("prepare", prepare.clone(), entries(false)),
        ("prepare-with-blocks", prepare, entries(true)),
        ("prepared", Message::Prepared { epoch, through: Seq(1011) }, Vec::new()),
        ("ask", Message::Ask { record: Arc::new(record()) }, Vec::new()),
        ("told", Message::Told { epoch, history, committed: Seq(1008), whole: true, turns: 2 }, Vec::new()),
        ("fetch", Message::Fetch { record: Arc::new(record()), behind: Seq(1000) }, Vec::new()),
        ("fetched", Message::Fetched { epoch, before: BEFORE }, entries(false)),
        ("refused", Message::Refused { record: Arc::new(record()) }, Vec::new()),
        ("gave-up", Message::GaveUp { epoch, poison: Some(Seq(1005)) }, Vec::new()),
    ]
}

fn fill_samples() -> Vec<(&'static str, Fill)> {
    let (unit, chunk, at) = (3, ChunkId(12), Seq(1011));
    let leaf = |layer, last_seq| LeafLine { chunk, layer: LayerId(layer), last_seq: Seq(last_seq) };
    let leaves = vec![leaf(10, 700), leaf(11, 0)];
    let lengths = [StoredLength::RAW, StoredLength::new(2, Codec::Zstd)];
    let blocks = bytes(BLOCK_BYTES + 2 * 512, 3);
    let sums = [&blocks[..BLOCK_BYTES], &blocks[BLOCK_BYTES..]].map(Crc32c::of);
    let stored = sums.into_iter().zip(lengths).collect();
    let range = BlockRange::new;
    let runs = vec![Run::Zero(range(0, 200)), Run::Absent(range(200, 10)), Run::Stored(range(254, 2), stored)];
    let layer = LayerRecord {
        layer: LayerId(11),
        parent: LayerId(10),
        family: FamilyId(3),
        created_at_ns: 5,
        retain_until_ns: 6,
        key: KeyId(2),
    };
    vec![
        ("compare", Fill::Compare),
        ("leaves", Fill::Leaves { base: Seq(690), leaves: leaves.clone(), is_last: true }),
        ("pending", Fill::Pending { chunks: vec![chunk, ChunkId(14), ChunkId(15)], is_last: false }),
        (
            "skip",
            Fill::Skip {
                at: (term(6), at),
                epochs: vec![(term(1), Seq(1)), (term(6), Seq(1002))],
                volumes: vec![(VolumeId(8), VolumeEpoch(4))],
                record: b"{\"epoch\": 6}".to_vec(),
            },
        ),
        ("skipped", Fill::Skipped { through: at }),
        ("unit-begin", Fill::UnitBegin { unit, chunk, at, leaves, is_change: true }),
        ("unit-part", Fill::UnitPart { unit, layer: LayerId(10), key: KeyId(2), runs, blocks }),
        ("unit-end", Fill::UnitEnd { unit }),
        ("unit-taken", Fill::UnitTaken { unit }),
        ("filled", Fill::Filled),
        ("digest", Fill::Digest { layer: LayerId(10), chunk, last_seq: Seq(700), digest: 0xd1_6e57 << 64 | 5 }),
        ("layers", Fill::Layers { records: vec![layer, LayerRecord { layer: LayerId(12), ..layer }] }),
    ]
}

fn head_samples() -> Vec<(&'static str, HeadMessage)> {
    let layer = LayerRecord {
        layer: LayerId(11),
        parent: LayerId(10),
        family: FamilyId(3),
        created_at_ns: 5,
        retain_until_ns: 6,
        key: KeyId(2),
    };
    let (chunk, range) = (ChunkId(12), BlockRange::new(254, 2));
    let layers = vec![LayerId(11), LayerId(10)];
    let lengths = [StoredLength::RAW, StoredLength::new(2, Codec::Zstd)];
    let bytes = bytes(BLOCK_BYTES + 2 * 512, 4);
    let sums = [&bytes[..BLOCK_BYTES], &bytes[BLOCK_BYTES..]].map(Crc32c::of);
    let mut read: Vec<_> = sums.into_iter().zip(lengths).map(Some).collect();
    read.insert(1, None);
    let known = |depth, is_stored| KnownBlock { depth, is_stored };
    let known = vec![known(None, false), known(Some(0), true), known(Some(1), false)];
    let coding = BlockCoding::new(KeyId(2), Some(&lengths));
    let write = Wants::Write { layer: LayerId(11), chunk, range, bytes: bytes.clone(), coding };
    let plain_bytes = bytes.slice(0..BLOCK_BYTES);
    let piece = |first, bytes: &SharedBuf, lengths: &[StoredLength]| Piece {
        range: BlockRange::new(first, lengths.len() as u32),
        bytes: bytes.clone(),
        coding: BlockCoding::new(KeyId(2), (lengths[0] != StoredLength::RAW || lengths.len() > 1).then_some(lengths)),
    };
    let pieces = vec![piece(3, &plain_bytes, &lengths[..1]), piece(16, &bytes, &lengths)];
    let write_all = Wants::WriteAll { layer: LayerId(11), chunk, pieces };
    let plain = Wants::Write {
        layer: LayerId(11),
        chunk,
        range: BlockRange::new(3, 1),
        bytes: plain_bytes,
        coding: BlockCoding::PLAIN,
    };
    let request = |told: &[LayerRecord], wants| {
        let told = told.to_vec();
        HeadMessage::Request(Request { volume: VolumeId(8), epoch: VolumeEpoch(4), group_epoch: Epoch(6), told, wants })
    };
    let refused = |refusal| HeadMessage::Answer(Answer::Refused(refusal));
    let no_space = Refusal::NoSpace { reason: "no space: delete something".into() };
    vec![
        (
            "request-nothing",
            request(&[LayerRecord { layer: LayerId(10), parent: LayerId(9), ..layer }, layer], Wants::Nothing),
        ),
        ("request-write", request(&[], write)),
        ("request-write-plain", request(&[], plain)),
        ("request-zero", request(&[layer], Wants::Zero { layers: layers.clone(), chunk, range })),
        ("request-read", request(&[], Wants::Read { layers: layers.clone(), chunk, range })),
        ("request-status", request(&[], Wants::Status { layers, chunk, range })),
        (
            "request-merge",
            request(&[layer], Wants::End(LayerEnd { layer: LayerId(10), into: Some(LayerId(11)), hides_below: true })),
        ),
        ("request-delete", request(&[], Wants::End(LayerEnd { layer: LayerId(11), into: None, hides_below: false }))),
        ("request-forget", request(&[], Wants::Forget { layer: LayerId(11) })),
        ("request-write-all", request(&[], write_all)),
        ("answer-done", HeadMessage::Answer(Answer::Done)),
        ("answer-read", HeadMessage::Answer(Answer::Read(read, bytes))),
        ("answer-known", HeadMessage::Answer(Answer::Known(known))),
        ("refused-not-primary", refused(Refusal::NotPrimary { primary: Some(C), epoch: Epoch(7) })),
        ("refused-old-head", refused(Refusal::OldHead { seen: VolumeEpoch(9) })),
        ("refused-no-space", refused(no_space)),
        ("refused-damaged", refused(Refusal::Damaged { reason: "chunk 12".into() })),
        ("refused-stopped", refused(Refusal::Stopped { reason: "".into() })),
        ("refused-unknown", refused(Refusal::Unknown)),
        ("refused-untold", refused(Refusal::Untold)),
        ("refused-busy", refused(Refusal::Busy)),
        ("refused-not-held", refused(Refusal::NotHeld)),
    ]
}

/// A name, who speaks to whom, and what is said.
pub fn samples() -> Vec<(&'static str, Envelope, Said)> {
    let of_node = Envelope { request: RequestId(1), remaining_ms: 500, ..Envelope::default() };
    let node = node_samples().into_iter().map(|(name, message)| (name, of_node, Said::Node(message)));
    let call = call_samples().into_iter().map(|(name, message)| (name, of_node, Said::Call(message)));
    let group = group_samples().into_iter();
    let group = group.map(|(name, message, entries)| (name, ENVELOPE, Said::Group(message, entries)));
    let fill = fill_samples().into_iter();
    let fill = fill.map(|(name, says)| (name, ENVELOPE, Said::Fill(FillMessage { attempt: 5, says })));
    let head = head_samples().into_iter().map(|(name, message)| (name, ENVELOPE, Said::Head(message)));
    node.chain(call).chain(group).chain(fill).chain(head).collect()
}

/// The samples as they go over the wire, each first on its connection; and a connection with all of them.
pub fn sample_frames() -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    let mut one_connection = (Sender::new(), Vec::new());
    for (name, envelope, said) in samples() {
        all.push((name, encode(&mut Sender::new(), &envelope, &said)));
        one_connection.1.extend(encode(&mut one_connection.0, &envelope, &said));
    }
    all.push(("all-on-one-connection", one_connection.1));
    all
}

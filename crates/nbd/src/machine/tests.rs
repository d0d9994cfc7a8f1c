//! The machine against whole sessions: what it answers must not depend on how the stream is cut.

use super::*;
use crate::wire::handshake::{InfoRequest, OptionHeader, ReplyHeader, export_flag, info, option, reply};
use crate::wire::handshake::{MetaReply, MetaRequest};
use crate::wire::transmission::{ChunkHeader, ErrorPayload, Request, SimpleReply, chunk, command, command_flag};
use crate::wire::transmission::{Extent, StatusPayload};
use runtime::IoBuf;
use volume::BlockExtent;

const SIZE_BYTES: u64 = 64 << 20;

struct OneVolume;

impl Exports for OneVolume {
    fn find(&self, name: &str) -> Option<Export> {
        let name = if name.is_empty() { "demo" } else { name };
        ["demo", "demo@s1"].contains(&name).then(|| Export {
            name: name.into(),
            description: "a volume".into(),
            size_bytes: SIZE_BYTES,
            is_read_only: name != "demo",
        })
    }
    fn list(&self) -> Vec<Listed> {
        vec![Listed { name: "demo".into(), description: "a volume".into() }]
    }
    fn snapshots(&self, name: &str) -> Vec<String> {
        let all = (1..=CONTEXTS_MAX).map(|number| format!("s{number}"));
        if name == "demo" { all.collect() } else { Vec::new() }
    }
}

/// A machine and a volume in memory; every event is executed at once.
struct Session {
    machine: Machine,
    memory: Vec<u8>,
    output: Vec<u8>,
    opened: Option<String>,
    since: Vec<String>,
    /// What was written as zeroes that are to be stored.
    stored: Vec<(u64, u32)>,
    disconnected: bool,
    direct: bool,
}

impl Session {
    fn new() -> Self {
        Self {
            machine: Machine::new(),
            memory: vec![0; SIZE_BYTES as usize],
            output: Vec::new(),
            opened: None,
            since: Vec::new(),
            stored: Vec::new(),
            disconnected: false,
            direct: false,
        }
    }

    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Violation> {
        while !bytes.is_empty() {
            if self.direct
                && let Some(mut rest) = self.machine.direct_receive()
            {
                let count = rest.len().min(bytes.len());
                assert_eq!(count, rest.len(), "the test hands over whole payloads");
                rest.copy_from_slice(&bytes[..count]);
                bytes = &bytes[count..];
                self.machine.direct_received(rest);
                self.run(&mut Input::new(IoBuf::new(0).freeze()))?;
                continue;
            }
            let count = bytes.len().min(100_000);
            let mut input = Input::new(IoBuf::copy_of(&bytes[..count]).freeze());
            bytes = &bytes[count..];
            self.run(&mut input)?;
        }
        Ok(())
    }

    fn run(&mut self, input: &mut Input) -> Result<(), Violation> {
        while let Some(event) = self.machine.next(input, &OneVolume)? {
            self.execute(event);
            let mut parts = Vec::new();
            while self.machine.has_output() {
                self.machine.take_output(&mut parts, 3);
                parts.drain(..).for_each(|part| self.output.extend_from_slice(&part));
            }
        }
        let mut parts = Vec::new();
        self.machine.take_output(&mut parts, usize::MAX);
        parts.drain(..).for_each(|part| self.output.extend_from_slice(&part));
        Ok(())
    }

    fn range(&mut self, offset: u64, len: u32) -> &mut [u8] {
        &mut self.memory[offset as usize..][..len as usize]
    }

    /// 4 KiB of holes and 4 KiB of data in turn; the first 8 KiB of 16 KiB have changed since the first snapshot that
    /// was chosen, the rest since the second.
    fn status(&self, offset: u64, len: u32, most: usize) -> Vec<BlockExtent> {
        let (mut extents, mut at, end) = (Vec::new(), offset, offset + u64::from(len));
        while at < end && extents.len() < most {
            let next = end.min((at / 4096 + 1) * 4096);
            let changed_since = if at / 8192 % 2 == 0 { 1 } else { 2 };
            extents.push(BlockExtent { len_bytes: next - at, is_stored: at / 4096 % 2 == 1, changed_since });
            at = next;
        }
        extents
    }

    fn execute(&mut self, event: Event) {
        match event {
            Event::Opened { name, since } => (self.opened, self.since) = (Some(name), since),
            Event::Disconnect => self.disconnected = true,
            Event::Full => {} // everything that waits is taken after each event
            Event::Flush { ticket } => self.machine.done(ticket, Ok(())),
            Event::BlockStatus { ticket, offset_bytes, len_bytes, extents_max } => {
                let extents = self.status(offset_bytes, len_bytes, extents_max as usize);
                self.machine.status_done(ticket, Ok(extents));
            }
            Event::WriteZeroes { ticket, offset_bytes, len_bytes, is_stored: true } => {
                self.range(offset_bytes, len_bytes).fill(0);
                self.stored.push((offset_bytes, len_bytes));
                self.machine.done(ticket, Ok(()));
            }
            Event::Trim { ticket, offset_bytes, len_bytes }
            | Event::WriteZeroes { ticket, offset_bytes, len_bytes, .. } => {
                self.range(offset_bytes, len_bytes).fill(0);
                self.machine.done(ticket, Ok(()));
            }
            Event::Write { ticket, offset_bytes, bytes, .. } => {
                self.range(offset_bytes, bytes.len() as u32).copy_from_slice(&bytes);
                self.machine.done(ticket, Ok(()));
            }
            Event::Read { ticket, offset_bytes, len_bytes } => {
                // Backwards: parts end in any order.
                let all: Vec<_> = parts(offset_bytes, len_bytes).collect();
                for &(at, len) in all.iter().rev() {
                    let data = IoBuf::copy_of(self.range(at, len)).freeze();
                    self.machine.read_done(ticket, at, Ok(data));
                }
            }
        }
    }
}

fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OptionHeader { option, len_bytes: data.len() as u32 }.encode().to_vec();
    bytes.extend_from_slice(data);
    bytes
}

fn go(name: &str) -> Vec<u8> {
    let mut data = Vec::new();
    InfoRequest::encode(name, &[info::NAME, info::DESCRIPTION], &mut data);
    option_bytes(option::GO, &data)
}

fn request(flags: u16, command: u16, cookie: u64, offset_bytes: u64, len_bytes: u32) -> Vec<u8> {
    Request { flags, command, cookie, offset_bytes, len_bytes }.encode().to_vec()
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// Flags, a few options, GO; then requests of every kind.
fn whole_session(structured: bool) -> Vec<u8> {
    let mut stream = 3u32.to_be_bytes().to_vec();
    stream.extend(option_bytes(77, b"what is this"));
    stream.extend(option_bytes(option::LIST, &[]));
    if structured {
        stream.extend(option_bytes(option::STRUCTURED_REPLY, &[]));
    }
    stream.extend(option_bytes(5, &vec![1; OPTION_BYTES_MAX as usize + 1]));
    stream.extend(go("nobody"));
    stream.extend(go("demo"));
    stream.extend(request(0, command::WRITE, 1, 100, 5000));
    stream.extend(pattern(1, 5000));
    stream.extend(request(command_flag::FUA, command::WRITE, 2, (1 << 20) - 10_000, 50_000));
    stream.extend(pattern(2, 50_000));
    stream.extend(request(0, command::READ, 3, 50, 6000));
    stream.extend(request(0, command::READ, 4, (1 << 20) - 20_000, 100_000));
    stream.extend(request(0, command::FLUSH, 5, 0, 0));
    stream.extend(request(0, command::TRIM, 6, 4096, 4096));
    stream.extend(request(command_flag::NO_HOLE, command::WRITE_ZEROES, 7, 100, 10));
    stream.extend(request(0, command::READ, 8, 0, 8192));
    stream.extend(request(0, command::WRITE, 9, SIZE_BYTES - 10, 11));
    stream.extend(pattern(3, 11));
    stream.extend(request(0, command::READ, 10, SIZE_BYTES, 1));
    stream.extend(request(0, command::DISCONNECT, 11, 0, 0));
    stream
}

#[test]
fn the_answers_do_not_depend_on_how_the_stream_is_cut() {
    for structured in [false, true] {
        let stream = whole_session(structured);
        let mut whole = Session::new();
        whole.feed(&stream).expect("a session by the book");
        assert!(whole.disconnected);
        assert_eq!(whole.opened.as_deref(), Some("demo"));
        assert_eq!(whole.machine.in_flight(), 0);

        let mut single = Session::new();
        stream.iter().for_each(|byte| single.feed(std::slice::from_ref(byte)).expect("the same session"));
        assert!(single.output == whole.output && single.memory == whole.memory, "one byte at a time");

        for cut in [7, 28, 1000, 16_384, 30_001] {
            let mut pieces = Session::new();
            stream.chunks(cut).for_each(|piece| pieces.feed(piece).expect("the same session"));
            assert!(pieces.output == whole.output && pieces.memory == whole.memory, "pieces of {cut}");
        }
    }
}

#[test]
fn a_long_payload_goes_past_the_input_into_its_own_buffer() {
    let mut session = Session::new();
    session.feed(&3u32.to_be_bytes()).expect("flags");
    session.feed(&go("demo")).expect("go");
    session.direct = true;
    let payload = pattern(9, 3 << 20);
    session.feed(&request(0, command::WRITE, 1, 4096, payload.len() as u32)).expect("header");
    session.feed(&payload).expect("payload");
    assert!(session.memory[4096..][..payload.len()] == payload[..]);
    assert!(session.output.ends_with(&SimpleReply { error: 0, cookie: 1 }.encode()));
    assert_eq!(session.machine.in_flight(), 0);
}

/// Splits what the server sent after the greeting into option replies, up to `count` of them.
fn option_replies(output: &[u8], count: usize) -> (Vec<(ReplyHeader, Vec<u8>)>, usize) {
    let mut at = 18;
    let replies = (0..count)
        .map(|_| {
            let header = ReplyHeader::decode(&output[at..]).expect("magic").expect("whole");
            let data = output[at + 20..][..header.len_bytes as usize].to_vec();
            at += 20 + data.len();
            (header, data)
        })
        .collect();
    (replies, at)
}

#[test]
fn options_are_answered_as_the_protocol_says() {
    let mut session = Session::new();
    session.feed(&whole_session(true)).expect("a session by the book");
    let (replies, _) = option_replies(&session.output, 11);
    let kinds: Vec<_> = replies.iter().map(|(header, _)| (header.option, header.reply)).collect();
    let go = option::GO;
    assert_eq!(
        kinds,
        [
            (77, reply::ERR_UNSUP),
            (option::LIST, reply::SERVER),
            (option::LIST, reply::ACK),
            (option::STRUCTURED_REPLY, reply::ACK),
            (5, reply::ERR_TOO_BIG),
            (go, reply::ERR_UNKNOWN),
            (go, reply::INFO),
            (go, reply::INFO),
            (go, reply::INFO),
            (go, reply::INFO),
            (go, reply::ACK),
        ]
    );
    assert_eq!(replies[1].1, b"\0\0\0\x04demoa volume");
    let flags = u16::from_be_bytes([replies[6].1[10], replies[6].1[11]]);
    assert_ne!(flags & export_flag::SEND_DF, 0);
    assert_ne!(flags & export_flag::CAN_MULTI_CONN, 0);
    assert_eq!(replies[7].1, [0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0]);
    assert_eq!(replies[8].1, b"\0\x01demo");
    assert_eq!(replies[9].1, b"\0\x02a volume");
}

#[test]
fn export_name_pads_unless_told_not_to() {
    for (client_flags, padding) in [(1u32, 124), (3, 0)] {
        let mut session = Session::new();
        session.feed(&client_flags.to_be_bytes()).expect("flags");
        session.feed(&option_bytes(option::EXPORT_NAME, b"demo")).expect("known name");
        assert_eq!(session.output.len(), 18 + 10 + padding);
        assert_eq!(session.output[18..26], SIZE_BYTES.to_be_bytes());
        let flags = u16::from_be_bytes([session.output[26], session.output[27]]);
        assert_eq!(flags & export_flag::SEND_DF, 0, "DF needs structured replies");
    }
    let mut session = Session::new();
    session.feed(&3u32.to_be_bytes()).expect("flags");
    let refused = session.feed(&option_bytes(option::EXPORT_NAME, b"nobody"));
    assert_eq!(refused, Err(Violation::UnknownExport("nobody".into())));
}

fn open(structured: bool) -> Session {
    let mut session = Session::new();
    session.feed(&3u32.to_be_bytes()).expect("flags");
    if structured {
        session.feed(&option_bytes(option::STRUCTURED_REPLY, &[])).expect("structured");
    }
    session.feed(&go("demo")).expect("go");
    session.output.clear();
    session
}

#[test]
fn forbidden_requests_get_exact_errors_and_harm_nothing() {
    let cases = [
        (request(0, command::READ, 1, SIZE_BYTES - 1, 2), Errno::Invalid),
        (request(0, command::READ, 1, u64::MAX, 2), Errno::Invalid),
        (request(0, command::READ, 1, 0, 0), Errno::Invalid),
        (request(0, command::READ, 1, 0, REQUEST_BYTES_MAX + 1), Errno::Invalid),
        (request(command_flag::DF, command::READ, 1, 0, 1), Errno::Invalid),
        ([request(0, command::WRITE, 1, SIZE_BYTES, 3), vec![1, 2, 3]].concat(), Errno::NoSpace),
        ([request(0x100, command::WRITE, 1, 0, 3), vec![1, 2, 3]].concat(), Errno::Invalid),
        (request(0, command::WRITE_ZEROES, 1, SIZE_BYTES, 3), Errno::NoSpace),
        (request(0, command::TRIM, 1, SIZE_BYTES, 3), Errno::Invalid),
        (request(command_flag::FAST_ZERO, command::TRIM, 1, 0, 3), Errno::Invalid),
        (request(0, command::FLUSH, 1, 0, 1), Errno::Invalid),
        (request(0, 99, 1, 0, 0), Errno::Invalid),
        (request(0, command::CACHE, 1, SIZE_BYTES, 1), Errno::Invalid),
        (request(command_flag::REQ_ONE, command::READ, 1, 0, 1), Errno::Invalid),
        (request(1 << 5, command::WRITE_ZEROES, 1, 0, 1), Errno::Invalid),
        (request(0, command::BLOCK_STATUS, 1, 0, 4096), Errno::Invalid),
        (request(command_flag::NO_HOLE | command_flag::FAST_ZERO, command::WRITE_ZEROES, 1, 0, 1), Errno::NotSupported),
    ];
    for (number, (bytes, errno)) in cases.into_iter().enumerate() {
        let mut session = open(false);
        session.feed(&bytes).expect("answered, not punished");
        assert_eq!(session.output, SimpleReply { error: errno as u32, cookie: 1 }.encode(), "case {number}");
        session.output.clear();
        session.feed(&request(0, command::FLUSH, 2, 0, 0)).expect("the session goes on");
        assert_eq!(session.output, SimpleReply { error: 0, cookie: 2 }.encode(), "case {number}");
        assert!(session.memory.iter().all(|byte| *byte == 0), "case {number}");
    }
}

#[test]
fn what_cannot_be_gone_on_with_closes_the_connection() {
    let mut session = open(false);
    assert!(matches!(session.feed(&[0; 28]), Err(Violation::Magic(_))));
    let mut session = open(false);
    let oversize = request(0, command::WRITE, 1, 0, REQUEST_BYTES_MAX + 1);
    assert_eq!(session.feed(&oversize), Err(Violation::WriteTooLong(REQUEST_BYTES_MAX + 1)));
    let mut session = Session::new();
    assert_eq!(session.feed(&4u32.to_be_bytes()), Err(Violation::ClientFlags(4)));
    let mut session = Session::new();
    session.feed(&3u32.to_be_bytes()).expect("flags");
    let option = OptionHeader { option: option::LIST, len_bytes: u32::MAX }.encode();
    assert_eq!(session.feed(&option), Err(Violation::OptionTooLong(u32::MAX)));
}

#[test]
fn a_read_with_df_is_one_chunk_and_without_it_one_per_part() {
    let across = (1 << 20) - 4096;
    for (flags, chunks) in [(command_flag::DF, 1), (0, 2)] {
        let mut session = open(true);
        session.memory.copy_from_slice(&pattern(5, SIZE_BYTES as usize));
        session.feed(&request(flags, command::READ, 7, across, 8192)).expect("read");
        let mut at = 0;
        let mut found = vec![0; 8192];
        for number in 1..=chunks {
            let header = ChunkHeader::decode(&session.output[at..]).expect("magic").expect("whole");
            assert_eq!((header.kind, header.cookie), (chunk::OFFSET_DATA, 7));
            assert_eq!(header.flags == 1, number == chunks, "DONE stands on the last chunk only");
            let payload = &session.output[at + 20..][..header.len_bytes as usize];
            let offset = u64::from_be_bytes(*payload.first_chunk().expect("offset")) - across;
            found[offset as usize..][..payload.len() - 8].copy_from_slice(&payload[8..]);
            at += 20 + payload.len();
        }
        assert_eq!(at, session.output.len());
        assert!(found[..] == session.memory[across as usize..][..8192]);
    }
}

#[test]
fn a_failed_part_fails_its_request_once() {
    let failure = Failure { errno: Errno::Io, message: "damaged data: block 7".into() };
    for structured in [false, true] {
        let mut session = open(structured);
        let bytes = request(0, command::READ, 7, (1 << 20) - 1, 2);
        let mut input = Input::new(IoBuf::copy_of(&bytes).freeze());
        let Ok(Some(Event::Read { ticket, offset_bytes, len_bytes })) = session.machine.next(&mut input, &OneVolume)
        else {
            panic!("a read")
        };
        assert_eq!(parts(offset_bytes, len_bytes).collect::<Vec<_>>(), [((1 << 20) - 1, 1), (1 << 20, 1)]);
        session.machine.read_done(ticket, 1 << 20, Err(failure.clone()));
        session.machine.read_done(ticket, (1 << 20) - 1, Ok(IoBuf::copy_of(&[1]).freeze()));
        session.run(&mut Input::new(IoBuf::new(0).freeze())).expect("no input");
        if structured {
            let header = ChunkHeader::decode(&session.output).expect("magic").expect("whole");
            assert_eq!((header.kind, header.flags), (chunk::ERROR, 1));
            let error = ErrorPayload::decode(&session.output[20..]).expect("whole");
            assert_eq!(error, ErrorPayload { error: 5, message: failure.message.clone() });
        } else {
            assert_eq!(session.output, SimpleReply { error: 5, cookie: 7 }.encode());
        }
    }
}

#[test]
fn the_load_of_answers_is_given_back_with_their_last_byte() {
    let mut session = open(false);
    let bytes = [request(0, command::READ, 1, 0, 4096), request(0, command::READ, 2, 0, 4096)].concat();
    let mut input = Input::new(IoBuf::copy_of(&bytes).freeze());
    while let Some(event) = session.machine.next(&mut input, &OneVolume).expect("reads") {
        session.execute(event);
    }
    let mut parts = Vec::new();
    assert_eq!(session.machine.take_output(&mut parts, 3), Load::default());
    parts.clear();
    assert_eq!(session.machine.take_output(&mut parts, 3), Load { commands: 2, bytes: 8192 });
    assert!(!session.machine.has_output());
}

#[test]
fn a_client_that_takes_no_answers_is_not_looked_at_beyond_a_bound() {
    let questions = [
        option_bytes(option::LIST, &[]),                // long answers before a volume is open
        request(0, command::READ, 1, SIZE_BYTES, 4096), // and refusals afterwards
    ];
    for (question, mut machine) in questions.into_iter().zip([Session::new().machine, open(true).machine]) {
        if question.starts_with(b"I") {
            let flags = IoBuf::copy_of(&3u32.to_be_bytes()).freeze();
            assert!(machine.next(&mut Input::new(flags), &OneVolume).expect("flags").is_none());
        }
        let mut input = Input::new(IoBuf::copy_of(&question.repeat(100_000)).freeze());
        assert!(matches!(machine.next(&mut input, &OneVolume), Ok(Some(Event::Full))));
        let held = |machine: &mut Machine| {
            let mut parts = Vec::new();
            machine.take_output(&mut parts, usize::MAX);
            parts.iter().map(|part| part.len()).sum::<usize>()
        };
        let first = held(&mut machine);
        assert!((super::OUTPUT_BYTES_MAX..super::OUTPUT_BYTES_MAX + 200).contains(&first), "{first} bytes");
        // What was taken makes room for as much again.
        assert!(matches!(machine.next(&mut input, &OneVolume), Ok(Some(Event::Full))) && !input.is_empty());
    }
}

/// What SET_META_CONTEXT or LIST_META_CONTEXT is answered, after flags and structured replies.
fn contexts(session: &mut Session, option: u32, export: &str, queries: &[&str]) -> Vec<(u32, Vec<u8>)> {
    let mut data = Vec::new();
    MetaRequest::encode(export, queries, &mut data);
    session.output.clear();
    session.feed(&option_bytes(option, &data)).expect("answered");
    let (mut at, mut replies) = (0, Vec::new());
    while at < session.output.len() {
        let header = ReplyHeader::decode(&session.output[at..]).expect("magic").expect("whole");
        assert_eq!(header.option, option);
        let data = session.output[at + 20..][..header.len_bytes as usize].to_vec();
        at += 20 + data.len();
        replies.push((header.reply, data));
    }
    replies
}

fn negotiating(structured: bool) -> Session {
    let mut session = Session::new();
    session.feed(&3u32.to_be_bytes()).expect("flags");
    if structured {
        session.feed(&option_bytes(option::STRUCTURED_REPLY, &[])).expect("structured");
    }
    session
}

fn context(id: u32, name: &str) -> (u32, Vec<u8>) {
    (reply::META_CONTEXT, MetaReply { id, name: name.into() }.encode())
}

#[test]
fn contexts_are_listed_and_chosen_as_the_protocol_says() {
    let (list, set) = (option::LIST_META_CONTEXT, option::SET_META_CONTEXT);
    let ack = (reply::ACK, Vec::new());
    let only_ack = [ack.clone()];
    let mut session = negotiating(true);
    // Without a query a list has all, and nothing is chosen.
    let all = contexts(&mut session, list, "demo", &[]);
    assert_eq!((all.len(), &all[0], &all[1]), (18, &context(0, ALLOCATION), &context(0, "cairn:dirty:s1")));
    assert_eq!(contexts(&mut session, set, "demo", &[]), only_ack);
    // A family can be listed, and not chosen.
    assert_eq!(contexts(&mut session, list, "demo", &["base:"]), [context(0, ALLOCATION), ack.clone()]);
    assert_eq!(contexts(&mut session, list, "demo", &["cairn:", "cairn:dirty:"]).len(), CONTEXTS_MAX + 1);
    assert_eq!(contexts(&mut session, set, "demo", &["cairn:dirty:"]), only_ack);
    // Ids are those of the answer; what is not known is left out, what comes twice is there once.
    let queries = ["cairn:dirty:s2", "qemu:dirty-bitmap:x", ALLOCATION, "cairn:dirty:s2", "cairn:dirty:none"];
    let chosen = [context(0, "cairn:dirty:s2"), context(1, ALLOCATION), ack.clone()];
    assert_eq!(contexts(&mut session, set, "", &queries), chosen);
    session.feed(&go("demo")).expect("go");
    assert_eq!(session.since, ["s2"]);

    // Refusals, each of which leaves nothing chosen.
    let kind = |replies: &[(u32, Vec<u8>)]| replies.iter().map(|(kind, _)| *kind).collect::<Vec<_>>();
    for (export, queries, error) in [
        ("nobody", vec![ALLOCATION.to_owned()], reply::ERR_UNKNOWN),
        ("demo", vec!["allocation".to_owned()], reply::ERR_INVALID),
        (
            "demo",
            (1..=CONTEXTS_MAX).map(|n| format!("{DIRTY}s{n}")).chain([ALLOCATION.to_owned()]).collect(),
            reply::ERR_TOO_BIG,
        ),
    ] {
        let mut session = negotiating(true);
        assert_eq!(contexts(&mut session, set, "demo", &[ALLOCATION]).len(), 2);
        let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
        assert_eq!(kind(&contexts(&mut session, set, export, &queries)), [error], "{export} {queries:?}");
        session.feed(&go("demo")).expect("go");
        session.output.clear();
        session.feed(&request(0, command::BLOCK_STATUS, 1, 0, 4096)).expect("answered");
        let header = ChunkHeader::decode(&session.output).expect("magic").expect("whole");
        assert_eq!((header.kind, session.output[23]), (chunk::ERROR, Errno::Invalid as u8));
    }
    let mut session = negotiating(false);
    assert_eq!(kind(&contexts(&mut session, set, "demo", &[ALLOCATION])), [reply::ERR_INVALID], "not structured");
    let mut session = negotiating(true);
    session.feed(&option_bytes(set, &[0; 7])).expect("answered");
    let at = session.output.len() - b"lengths that do not add up, or a name that is not UTF-8".len() - 20;
    let header = ReplyHeader::decode(&session.output[at..]).expect("magic").expect("whole");
    assert_eq!(header.reply, reply::ERR_INVALID);
}

/// The chunks of the one reply in the output.
fn status_of(session: &Session, cookie: u64) -> Vec<StatusPayload> {
    let (mut at, mut chunks, output) = (0, Vec::new(), &session.output);
    while at < output.len() {
        let header = ChunkHeader::decode(&output[at..]).expect("magic").expect("whole");
        assert_eq!((header.kind, header.cookie), (chunk::BLOCK_STATUS, cookie));
        chunks.push(StatusPayload::decode(&output[at + 20..][..header.len_bytes as usize]).expect("sound"));
        at += 20 + header.len_bytes as usize;
        assert_eq!(header.flags == 1, at == output.len(), "DONE stands on the last chunk only");
    }
    chunks
}

#[test]
fn block_status_is_told_for_each_context() {
    let mut session = negotiating(true);
    let queries = ["cairn:dirty:s3", ALLOCATION, "cairn:dirty:s1"];
    assert_eq!(contexts(&mut session, option::SET_META_CONTEXT, "demo", &queries).len(), 4);
    session.feed(&go("demo")).expect("go");
    assert_eq!(session.since, ["s3", "s1"]);
    session.output.clear();
    session.feed(&request(0, command::BLOCK_STATUS, 9, 100, 20_000)).expect("told");
    let extent = |len_bytes, flags| Extent { len_bytes, flags };
    let told = [
        (0, vec![extent(8092, 1), extent(8192, 0), extent(3716, 1)]),
        (1, vec![extent(3996, 3), extent(4096, 0), extent(4096, 3), extent(4096, 0), extent(3716, 3)]),
        (2, vec![extent(8092, 0), extent(8192, 1), extent(3716, 0)]),
    ];
    let told = told.map(|(context, extents)| StatusPayload { context, extents });
    assert_eq!(status_of(&session, 9), told);
    session.output.clear();
    session.feed(&request(command_flag::REQ_ONE, command::BLOCK_STATUS, 10, 0, 20_000)).expect("told");
    assert!(status_of(&session, 10).iter().all(|status| status.extents.len() == 1));
    // A long fragmented range is told from its beginning, in bounded memory.
    session.output.clear();
    session.feed(&request(0, command::BLOCK_STATUS, 11, 0, SIZE_BYTES as u32)).expect("told");
    let told = status_of(&session, 11);
    assert_eq!(told[1].extents.len(), STATUS_EXTENTS_MAX as usize);
    assert!((session.output.len() as u64) < session.machine.status_bytes());
    // Nothing of it is asked beyond the end, nor of an empty range.
    for (offset, len) in [(SIZE_BYTES - 1, 2), (SIZE_BYTES, 1), (0, 0)] {
        session.output.clear();
        session.feed(&request(0, command::BLOCK_STATUS, 12, offset, len)).expect("answered");
        assert_eq!(ChunkHeader::decode(&session.output).expect("magic").expect("whole").kind, chunk::ERROR);
    }
    assert_eq!(session.machine.in_flight(), 0);
}

#[test]
fn what_was_chosen_for_one_export_is_not_for_another() {
    let mut session = negotiating(true);
    contexts(&mut session, option::SET_META_CONTEXT, "demo", &[ALLOCATION]);
    session.feed(&go("demo@s1")).expect("go");
    session.output.clear();
    session.feed(&request(0, command::BLOCK_STATUS, 1, 0, 4096)).expect("answered");
    assert_eq!(ChunkHeader::decode(&session.output).expect("magic").expect("whole").kind, chunk::ERROR);
}

#[test]
fn a_read_only_export_refuses_to_be_written() {
    let mut session = negotiating(false);
    session.feed(&option_bytes(option::EXPORT_NAME, b"demo@s1")).expect("known name");
    let at = session.output.len() - 2;
    let flags = u16::from_be_bytes([session.output[at], session.output[at + 1]]);
    assert_eq!(flags & (export_flag::READ_ONLY | export_flag::CAN_MULTI_CONN), 0x102);
    assert_eq!(flags & (export_flag::SEND_TRIM | export_flag::SEND_WRITE_ZEROES | export_flag::SEND_FAST_ZERO), 0);
    for (bytes, errno) in [
        ([request(0, command::WRITE, 1, 0, 3), vec![1, 2, 3]].concat(), Errno::NotPermitted as u32),
        (request(0, command::TRIM, 1, 0, 4096), Errno::NotPermitted as u32),
        (request(0, command::WRITE_ZEROES, 1, 0, 4096), Errno::NotPermitted as u32),
        (request(0, command::FLUSH, 1, 0, 0), 0),
        (request(0, command::CACHE, 1, 0, 4096), 0),
    ] {
        session.output.clear();
        session.feed(&bytes).expect("answered, not punished");
        assert_eq!(session.output, SimpleReply { error: errno, cookie: 1 }.encode());
    }
    assert!(session.memory.iter().all(|byte| *byte == 0));
}

#[test]
fn zeroes_that_keep_their_space_are_asked_for_as_such() {
    let mut session = open(false);
    session.feed(&request(command_flag::NO_HOLE, command::WRITE_ZEROES, 1, 4096, 8192)).expect("zeroed");
    session.feed(&request(command_flag::FAST_ZERO, command::WRITE_ZEROES, 2, 0, 8192)).expect("zeroed");
    assert_eq!(session.stored, [(4096, 8192)]);
}

//! Entry points for a fuzzer: any bytes in, no panic, nothing out of bounds.

use crate::machine::{Event, Export, Exports, Input, Listed, Machine, parts};
use crate::wire::handshake::{
    BlockSizes, ExportSize, Greeting, InfoRequest, MetaReply, MetaRequest, OptionHeader, ReplyHeader,
};
use crate::wire::transmission::{ChunkHeader, ErrorPayload, Request, SimpleReply, StatusPayload};
use runtime::IoBuf;
use volume::BlockExtent;

/// Every decoder on the same bytes; what decodes encodes to what was read.
pub fn wire(bytes: &[u8]) {
    if let Ok(Some(greeting)) = Greeting::decode(bytes) {
        assert_eq!(greeting.encode(), bytes[..Greeting::BYTES]);
    }
    if let Ok(Some(header)) = OptionHeader::decode(bytes) {
        assert_eq!(header.encode(), bytes[..OptionHeader::BYTES]);
    }
    if let Ok(Some(header)) = ReplyHeader::decode(bytes) {
        assert_eq!(header.encode(), bytes[..ReplyHeader::BYTES]);
    }
    if let Ok(Some(request)) = Request::decode(bytes) {
        assert_eq!(request.encode(), bytes[..Request::BYTES]);
    }
    if let Ok(Some(reply)) = SimpleReply::decode(bytes) {
        assert_eq!(reply.encode(), bytes[..SimpleReply::BYTES]);
    }
    if let Ok(Some(header)) = ChunkHeader::decode(bytes) {
        assert_eq!(header.encode(), bytes[..ChunkHeader::BYTES]);
    }
    if let Some(size) = ExportSize::decode(bytes) {
        assert_eq!(size.encode(), bytes[..ExportSize::BYTES]);
    }
    if let Some(sizes) = BlockSizes::decode(bytes) {
        assert_eq!(sizes.encode(), bytes[..BlockSizes::BYTES]);
    }
    let _ = ErrorPayload::decode(bytes);
    let _ = InfoRequest::decode(bytes);
    if let Some(request) = MetaRequest::decode(bytes) {
        let (mut again, queries) = (Vec::new(), request.queries().collect::<Vec<_>>());
        MetaRequest::encode(request.export, &queries, &mut again);
        assert_eq!(again, bytes);
    }
    if let Some(reply) = MetaReply::decode(bytes) {
        assert_eq!(reply.encode(), bytes);
    }
    if let Some(status) = StatusPayload::decode(bytes) {
        assert_eq!(status.encode(), bytes);
    }
}

/// One volume, and a snapshot of it.
struct OneVolume;

const SIZE_BYTES: u64 = 1 << 20;
/// Extents that a status request is answered with, some of them.
const EXTENT_BYTES: u64 = 5000;

impl Exports for OneVolume {
    fn find(&self, name: &str) -> Option<Export> {
        let is_read_only = name == "demo@s";
        let (name, description) = (name.to_owned(), String::new());
        let export = Export { name, description, size_bytes: SIZE_BYTES, is_read_only };
        (export.name == "demo" || is_read_only).then_some(export)
    }
    fn list(&self) -> Vec<Listed> {
        ["demo", "demo@s"].map(|name| Listed { name: name.into(), description: "one".into() }).into()
    }
    fn snapshots(&self, name: &str) -> Vec<String> {
        if name == "demo" { vec!["s".into()] } else { Vec::new() }
    }
}

/// A whole connection: the first byte says how the rest is cut. Every event is within the export and is answered.
pub fn machine(bytes: &[u8]) {
    let Some((&cut, stream)) = bytes.split_first() else { return };
    let mut machine = Machine::new();
    let mut output = Vec::new();
    for piece in stream.chunks(usize::from(cut) + 1) {
        let mut input = Input::new(IoBuf::copy_of(piece).freeze());
        loop {
            match machine.next(&mut input, &OneVolume) {
                Ok(Some(Event::Full)) => {
                    machine.take_output(&mut output, usize::MAX);
                    output.clear();
                }
                Ok(Some(event)) => answer(&mut machine, event),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(input.is_empty(), "all input is used before more is asked for");
        machine.take_output(&mut output, usize::MAX);
        output.clear();
    }
}

fn answer(machine: &mut Machine, event: Event) {
    let within = |offset: u64, len: u64| assert!(len > 0 && offset + len <= SIZE_BYTES, "{offset}+{len}");
    match event {
        Event::Opened { .. } | Event::Full | Event::Disconnect => {}
        Event::Flush { ticket } => machine.done(ticket, Ok(())),
        Event::BlockStatus { ticket, offset_bytes, len_bytes, extents_max } => {
            within(offset_bytes, len_bytes.into());
            let count = u64::from(len_bytes).div_ceil(EXTENT_BYTES).min(extents_max.into());
            let extent = |i: u64| {
                let len_bytes = EXTENT_BYTES.min(u64::from(len_bytes) - i * EXTENT_BYTES);
                BlockExtent { len_bytes, is_stored: i.is_multiple_of(2), changed_since: i.is_multiple_of(3).into() }
            };
            machine.status_done(ticket, Ok((0..count).map(extent).collect()));
        }
        Event::Trim { ticket, offset_bytes, len_bytes }
        | Event::WriteZeroes { ticket, offset_bytes, len_bytes, .. } => {
            within(offset_bytes, len_bytes.into());
            machine.done(ticket, Ok(()));
        }
        Event::Write { ticket, offset_bytes, bytes, .. } => {
            within(offset_bytes, bytes.len() as u64);
            machine.done(ticket, Ok(()));
        }
        Event::Read { ticket, offset_bytes, len_bytes } => {
            within(offset_bytes, len_bytes.into());
            for (at, len) in parts(offset_bytes, len_bytes) {
                machine.read_done(ticket, at, Ok(IoBuf::zeroed(len as usize).freeze()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::handshake::{InfoRequest, MetaRequest, OptionHeader, option};
    use crate::wire::transmission::Request;

    /// A small generator: the test is the same in every run.
    struct Lcg(u64);

    impl Lcg {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.0 >> 33
        }
    }

    /// Structures with plausible and implausible numbers, then a few flipped bytes.
    fn stream(random: &mut Lcg) -> Vec<u8> {
        let mut bytes = vec![random.next() as u8];
        bytes.extend_from_slice(&3u32.to_be_bytes());
        let (mut name, mut contexts) = (Vec::new(), Vec::new());
        InfoRequest::encode(["demo", "demo", "demo@s"][random.next() as usize % 3], &[1], &mut name);
        MetaRequest::encode("demo", &["base:allocation", "cairn:dirty:s", "cairn:"], &mut contexts);
        for _ in 0..random.next() % 5 {
            let option = random.next() as u32 % 12;
            let data = match option {
                option::STRUCTURED_REPLY => &Vec::new(),
                option::LIST_META_CONTEXT | option::SET_META_CONTEXT => &contexts,
                _ => &name,
            };
            if option != option::EXPORT_NAME && option != option::ABORT {
                bytes.extend(OptionHeader { option, len_bytes: data.len() as u32 }.encode());
                bytes.extend(data);
            }
        }
        bytes.extend(OptionHeader { option: option::GO, len_bytes: name.len() as u32 }.encode());
        bytes.extend(&name);
        for cookie in 0..random.next() % 20 {
            let request = Request {
                flags: [0, 0, 1, 2, 4, 8, 16, 18][random.next() as usize % 8],
                command: [0, 1, 1, 3, 4, 5, 6, 7, 7, 8][random.next() as usize % 10],
                cookie,
                offset_bytes: random.next() % (super::SIZE_BYTES + 100),
                len_bytes: random.next() as u32 % 40_000,
            };
            bytes.extend(request.encode());
            if request.command == 1 {
                bytes.resize(bytes.len() + request.len_bytes as usize, 7);
            }
        }
        if random.next().is_multiple_of(2) {
            for _ in 0..random.next() % 4 {
                let at = random.next() as usize % bytes.len();
                bytes[at] ^= 1 << (random.next() % 8);
            }
        }
        bytes
    }

    #[test]
    fn streams_of_every_kind_do_no_harm() {
        let mut random = Lcg(1);
        for _ in 0..2000 {
            let bytes = stream(&mut random);
            super::machine(&bytes);
            for at in (0..bytes.len().min(400)).step_by(7) {
                super::wire(&bytes[at..]);
            }
        }
    }
}

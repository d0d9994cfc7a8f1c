//! Requests that were handed out, and their answers.

use super::{Failure, Machine};
use crate::outbox::{Load, Outbox};
use crate::wire::transmission::{CHUNK_DONE, ChunkHeader, ErrorPayload, Request, SimpleReply, chunk, command};
use runtime::{IoBuf, SharedBuf};
use volume::BlockExtent;

/// A request that was handed out. Valid until its last part is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

/// One request in flight.
#[derive(Default)]
struct Command {
    cookie: u64,
    is_read: bool,
    offset_bytes: u64,
    len_bytes: u32,
    parts_left: u32,
    /// Reads only: data is kept here until all of it is there, one place per part.
    gathered: Option<Vec<Option<SharedBuf>>>,
    failure: Option<Failure>,
}

/// The requests of one connection; places are used again, so that none is allocated once warm.
#[derive(Default)]
pub(super) struct Commands {
    places: Vec<Command>,
    free: Vec<u32>,
}

impl Commands {
    pub(super) fn in_flight(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn start(&mut self, request: &Request, parts: u32) -> Ticket {
        assert!(parts > 0);
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Command::default());
            (self.places.len() - 1) as u32
        });
        self.places[index as usize] = Command {
            cookie: request.cookie,
            is_read: request.command == command::READ,
            offset_bytes: request.offset_bytes,
            len_bytes: request.len_bytes,
            parts_left: parts,
            gathered: None,
            failure: None,
        };
        Ticket(index)
    }

    /// A read whose reply is one piece (simple reply, or DF) gathers its parts first, if there are several.
    pub(super) fn start_read(&mut self, request: &Request, parts: u32, in_one_piece: bool) -> Ticket {
        let ticket = self.start(request, parts);
        if in_one_piece && parts > 1 {
            self.places[ticket.0 as usize].gathered = Some(vec![None; parts as usize]);
        }
        ticket
    }

    /// One part has ended. Returns whether it was the last.
    fn end_part(&mut self, ticket: Ticket, failure: Option<Failure>) -> bool {
        let command = &mut self.places[ticket.0 as usize];
        assert!(command.parts_left > 0, "an answer to a request that was answered");
        command.parts_left -= 1;
        if command.failure.is_none() {
            command.failure = failure;
        }
        command.parts_left == 0
    }

    fn end(&mut self, ticket: Ticket) -> Command {
        self.free.push(ticket.0);
        std::mem::take(&mut self.places[ticket.0 as usize])
    }
}

impl Machine {
    /// One part of a request without data in its answer has ended.
    pub fn done(&mut self, ticket: Ticket, result: Result<(), Failure>) {
        if !self.commands.end_part(ticket, result.err()) {
            return;
        }
        let command = self.commands.end(ticket);
        match &command.failure {
            None => self.outbox.push_bytes(&SimpleReply { error: 0, cookie: command.cookie }.encode()),
            Some(failure) => push_failure(&mut self.outbox, self.structured, command.cookie, failure),
        }
        self.outbox.add_load(Load { commands: 1, bytes: 0 });
    }

    /// A block status request has ended. Its answer is one chunk for each context that was chosen.
    pub fn status_done(&mut self, ticket: Ticket, result: Result<Vec<BlockExtent>, Failure>) {
        let (extents, failure) = match result {
            Ok(extents) => (extents, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        let is_last = self.commands.end_part(ticket, failure);
        debug_assert!(is_last, "asked in one part");
        let command = self.commands.end(ticket);
        let payloads = match &command.failure {
            Some(failure) => {
                push_failure(&mut self.outbox, self.structured, command.cookie, failure);
                Vec::new()
            }
            None => {
                debug_assert!(extents.iter().map(|extent| extent.len_bytes).sum::<u64>() <= command.len_bytes.into());
                self.contexts.payloads(&extents)
            }
        };
        let count = payloads.len();
        for (number, payload) in payloads.into_iter().enumerate() {
            let flags = if number + 1 == count { CHUNK_DONE } else { 0 };
            let (kind, len_bytes) = (chunk::BLOCK_STATUS, payload.len() as u32);
            self.outbox.push_bytes(&ChunkHeader { flags, kind, cookie: command.cookie, len_bytes }.encode());
            self.outbox.push_data(IoBuf::copy_of(&payload).freeze());
        }
        self.outbox.add_load(Load { commands: 1, bytes: self.status_bytes() });
    }

    /// One part of a read has ended: the one that begins at `offset_bytes`.
    pub fn read_done(&mut self, ticket: Ticket, offset_bytes: u64, result: Result<SharedBuf, Failure>) {
        let (data, failure) = match result {
            Ok(data) => (Some(data), None),
            Err(failure) => (None, Some(failure)),
        };
        let last = self.commands.end_part(ticket, failure);
        let command = &mut self.commands.places[ticket.0 as usize];
        debug_assert!(command.is_read);
        let mut data = data;
        if let Some(gathered) = &mut command.gathered {
            let (first, place) = (command.offset_bytes / types::CHUNK_BYTES, offset_bytes / types::CHUNK_BYTES);
            gathered[(place - first) as usize] = data.take();
        }
        if !last {
            // A chunk of a structured reply leaves at once; what is gathered waits.
            if let Some(data) = data {
                let header = ChunkHeader::encode_data(false, command.cookie, offset_bytes, data.len() as u32);
                self.outbox.push_bytes(&header);
                self.outbox.push_data(data);
            }
            return;
        }
        let command = self.commands.end(ticket);
        let outbox = &mut self.outbox;
        match &command.failure {
            Some(failure) => push_failure(outbox, self.structured, command.cookie, failure),
            None => {
                let (from, len) = match &command.gathered {
                    Some(_) => (command.offset_bytes, command.len_bytes),
                    None => (offset_bytes, data.as_ref().map_or(0, |data| data.len() as u32)),
                };
                if self.structured {
                    outbox.push_bytes(&ChunkHeader::encode_data(true, command.cookie, from, len));
                } else {
                    outbox.push_bytes(&SimpleReply { error: 0, cookie: command.cookie }.encode());
                }
                command.gathered.into_iter().flatten().flatten().chain(data).for_each(|part| outbox.push_data(part));
            }
        }
        outbox.add_load(Load { commands: 1, bytes: u64::from(command.len_bytes) });
    }

    /// Answers a request that is not executed.
    pub(super) fn refuse_request(&mut self, request: &Request, failure: &Failure) {
        push_failure(&mut self.outbox, self.structured, request.cookie, failure);
    }
}

fn push_failure(outbox: &mut Outbox, structured: bool, cookie: u64, failure: &Failure) {
    let error = failure.errno as u32;
    if !structured {
        outbox.push_bytes(&SimpleReply { error, cookie }.encode());
        return;
    }
    let payload = ErrorPayload { error, message: failure.message.clone() }.encode();
    let header = ChunkHeader { flags: CHUNK_DONE, kind: chunk::ERROR, cookie, len_bytes: payload.len() as u32 };
    outbox.push_bytes(&header.encode());
    outbox.push_bytes(&payload);
}

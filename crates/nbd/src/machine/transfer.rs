//! Transmission: requests and the payloads of writes.

use super::{
    Event, Failure, Input, Machine, Phase, REQUEST_BYTES_MAX, SLICED_BYTES_MAX, STATUS_EXTENTS_MAX, Step, Ticket,
    Violation, part_len, parts,
};
use crate::wire::Errno;
use crate::wire::transmission::{Request, SimpleReply, command, command_flag};
use runtime::IoBuf;

/// The rest of a write's payload.
pub(super) struct Payload {
    /// The write, or none if it was refused and its payload is skipped.
    ticket: Option<Ticket>,
    is_first: bool,
    offset_bytes: u64,
    left_bytes: u32,
    /// The part being gathered, and how much of it is there.
    part: Option<(IoBuf, usize)>,
}

impl Machine {
    pub(super) fn request(&mut self, input: &mut Input) -> Result<Step, Violation> {
        let Some(bytes) = self.stash.read::<{ Request::BYTES }>(input) else { return Ok(Step::Starved) };
        let Some(request) = Request::decode(&bytes)? else { return Ok(Step::Starved) };
        if request.command == command::WRITE && request.len_bytes > REQUEST_BYTES_MAX {
            return Err(Violation::WriteTooLong(request.len_bytes));
        }
        if request.command == command::DISCONNECT {
            self.phase = Phase::Ended;
            return Ok(Step::Event(Event::Disconnect));
        }
        let refused = self.check(&request).err();
        if request.command == command::WRITE {
            return Ok(self.start_write(&request, refused));
        }
        if let Some(failure) = refused {
            self.refuse_request(&request, &failure);
            return Ok(Step::Again);
        }
        if request.command == command::CACHE {
            // Data is kept on the device alone, in no cache that could be filled: there is nothing to do.
            self.outbox.push_bytes(&SimpleReply { error: 0, cookie: request.cookie }.encode());
            return Ok(Step::Again);
        }
        Ok(Step::Event(self.start(&request)))
    }

    fn start(&mut self, request: &Request) -> Event {
        let Request { offset_bytes, len_bytes, .. } = *request;
        if request.command == command::READ {
            let parts = parts(offset_bytes, len_bytes).count() as u32;
            let in_one_piece = !self.structured || request.flags & command_flag::DF != 0;
            let ticket = self.commands.start_read(request, parts, in_one_piece);
            return Event::Read { ticket, offset_bytes, len_bytes };
        }
        let ticket = self.commands.start(request, 1);
        match request.command {
            command::FLUSH => Event::Flush { ticket },
            command::TRIM => Event::Trim { ticket, offset_bytes, len_bytes },
            command::WRITE_ZEROES => {
                let is_stored = request.flags & command_flag::NO_HOLE != 0;
                Event::WriteZeroes { ticket, offset_bytes, len_bytes, is_stored }
            }
            command::BLOCK_STATUS => {
                let extents_max = if request.flags & command_flag::REQ_ONE != 0 { 1 } else { STATUS_EXTENTS_MAX };
                Event::BlockStatus { ticket, offset_bytes, len_bytes, extents_max }
            }
            other => unreachable!("command {other} was refused by check"),
        }
    }

    fn start_write(&mut self, request: &Request, refused: Option<Failure>) -> Step {
        let Request { offset_bytes, len_bytes, .. } = *request;
        let ticket = match refused {
            Some(failure) => {
                self.refuse_request(request, &failure);
                None
            }
            None => Some(self.commands.start(request, parts(offset_bytes, len_bytes).count() as u32)),
        };
        self.phase =
            Phase::Payload(Payload { ticket, is_first: true, offset_bytes, left_bytes: len_bytes, part: None });
        Step::Again
    }

    /// What the protocol and the export's size forbid.
    fn check(&self, request: &Request) -> Result<(), Failure> {
        let df = if self.structured { command_flag::DF } else { 0 };
        let (flags, beyond_the_end) = match request.command {
            command::READ => (df, Errno::Invalid),
            command::WRITE => (0, Errno::NoSpace),
            command::FLUSH | command::TRIM | command::CACHE => (0, Errno::Invalid),
            command::BLOCK_STATUS if self.contexts.is_empty() => {
                return Err(failure(Errno::Invalid, "no metadata context was chosen".into()));
            }
            command::BLOCK_STATUS => (command_flag::REQ_ONE, Errno::Invalid),
            command::WRITE_ZEROES => (command_flag::NO_HOLE | command_flag::FAST_ZERO, Errno::NoSpace),
            other => return Err(failure(Errno::Invalid, format!("unknown command {other}"))),
        };
        // FUA may stand on every command: everything answered here is durable.
        if request.flags & !(flags | command_flag::FUA) != 0 {
            let message = format!("flags {:#x} do not belong to command {}", request.flags, request.command);
            return Err(failure(Errno::Invalid, message));
        }
        let writes = matches!(request.command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if writes && self.is_read_only {
            return Err(failure(Errno::NotPermitted, "a snapshot is read only".into()));
        }
        let slow_and_fast = command_flag::NO_HOLE | command_flag::FAST_ZERO;
        if request.command == command::WRITE_ZEROES && request.flags & slow_and_fast == slow_and_fast {
            let message = "zeroes that keep their space are written as data is, and as slowly";
            return Err(failure(Errno::NotSupported, message.into()));
        }
        if request.command == command::FLUSH {
            return match (request.offset_bytes, request.len_bytes) {
                (0, 0) => Ok(()),
                _ => Err(failure(Errno::Invalid, "a flush has no range".into())),
            };
        }
        if request.len_bytes == 0 {
            return Err(failure(Errno::Invalid, "empty range".into()));
        }
        if request.command == command::READ && request.len_bytes > REQUEST_BYTES_MAX {
            let message = format!("read of {} bytes, the longest is {REQUEST_BYTES_MAX}", request.len_bytes);
            return Err(failure(Errno::Invalid, message));
        }
        let end = request.offset_bytes.checked_add(request.len_bytes.into());
        if end.is_none_or(|end| end > self.size_bytes) {
            let message = format!(
                "bytes {}+{} run past the end of the volume ({} bytes)",
                request.offset_bytes, request.len_bytes, self.size_bytes
            );
            return Err(failure(beyond_the_end, message));
        }
        Ok(())
    }

    pub(super) fn payload(&mut self, input: &mut Input) -> Step {
        let Phase::Payload(payload) = &mut self.phase else { unreachable!("called in this phase") };
        if payload.left_bytes == 0 {
            self.phase = Phase::Request;
            return Step::Again;
        }
        let Some(ticket) = payload.ticket else {
            let count = input.len().min(payload.left_bytes as usize);
            input.skip(count);
            payload.left_bytes -= count as u32;
            return if payload.left_bytes == 0 { Step::Again } else { Step::Starved };
        };
        let offset_bytes = payload.offset_bytes;
        let len = part_len(offset_bytes, offset_bytes + u64::from(payload.left_bytes)) as u32;
        let bytes = match payload.part.take() {
            None if len <= SLICED_BYTES_MAX && input.len() >= len as usize => input.take(len as usize),
            part => {
                let (mut part, filled) = part.unwrap_or_else(|| (IoBuf::new(len as usize), 0));
                let count = input.len().min(len as usize - filled);
                part[filled..filled + count].copy_from_slice(&input.rest()[..count]);
                input.skip(count);
                if filled + count < len as usize {
                    payload.part = Some((part, filled + count));
                    return Step::Starved;
                }
                part.freeze()
            }
        };
        payload.offset_bytes += u64::from(len);
        payload.left_bytes -= len;
        let is_first = std::mem::replace(&mut payload.is_first, false);
        Step::Event(Event::Write { ticket, is_first, offset_bytes, bytes })
    }

    /// The rest of a long payload's buffer, to be filled straight from the socket and given back with
    /// [`direct_received`](Self::direct_received). Ask when [`next`](Self::next) has used up its input.
    pub fn direct_receive(&mut self) -> Option<IoBuf> {
        let Phase::Payload(Payload { part: Some((part, filled)), .. }) = &mut self.phase else { return None };
        (part.len() - *filled > SLICED_BYTES_MAX as usize).then(|| part.split_off(*filled))
    }

    /// The filled rest of the buffer.
    ///
    /// # Panics
    /// If it is not the one [`direct_receive`](Self::direct_receive) gave.
    pub fn direct_received(&mut self, rest: IoBuf) {
        let Phase::Payload(Payload { part: Some((part, filled)), .. }) = &mut self.phase else {
            panic!("no payload is being received")
        };
        part.unsplit(rest);
        *filled = part.len();
    }
}

fn failure(errno: Errno, message: String) -> Failure {
    Failure { errno, message }
}

//! The server's side of one connection as a pure machine: bytes in, requests out; results in, bytes out.
//!
//! ```text
//!              next(input)                    read_done / done
//!  received ──────────────▶ Event ──▶ driver ─────────────────▶ outbox ──▶ take_output
//!  bytes     (direct_receive: a large payload goes past the input into its own buffer)
//! ```
//!
//! It does no I/O, reads no clock and waits for nothing, so that a test can hand it a stream byte by byte and a fuzzer
//! can hand it anything. A request that the protocol or the export's size forbids is answered here; only what can be
//! executed becomes an [`Event`].

mod commands;
mod contexts;
mod input;
mod negotiation;
mod transfer;

#[cfg(test)]
mod tests;

pub use crate::outbox::Load;
use crate::outbox::Outbox;
use crate::wire::handshake::reply;
use crate::wire::{BadMagic, Errno};
use commands::Commands;
pub use commands::Ticket;
use contexts::Contexts;
pub use contexts::{ALLOCATION, CONTEXTS_MAX, DIRTY, STATUS_EXTENTS_MAX};
pub use input::Input;
use input::Stash;
use runtime::SharedBuf;
use transfer::Payload;
pub use volume::BlockExtent;

/// Smallest request: any byte range is taken, whatever the volume's block.
pub const REQUEST_BYTES_MIN: u32 = 1;
/// What is served best: the block of the store.
pub const REQUEST_BYTES_PREFERRED: u32 = types::BLOCK_BYTES as u32;
/// Longest read or write: what the protocol lets every client assume.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// Longest option data that is read: a name of 4,096 bytes and a few hundred information requests.
pub const OPTION_BYTES_MAX: u32 = 8 << 10;
/// Longest option data that is skipped with an error; a longer one ends the connection.
pub const OPTION_BYTES_SKIPPED_MAX: u32 = 1 << 20;
/// Structures that may wait to be sent before input is looked at again: a client that asks and does not take its
/// answers (a list of all volumes is a thousand times as long as the question) costs this much and no more. Far above
/// what a thousand requests in flight are answered with.
pub const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Payloads up to here are slices of the receive buffer, copied once with their checksum below; longer ones are
/// received straight into aligned memory.
pub const SLICED_BYTES_MAX: u32 = 16 << 10;

/// A volume as the protocol shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its canonical name.
    pub name: String,
    /// What a human is told of it.
    pub description: String,
    /// Its size, fixed for the connection.
    pub size_bytes: u64,
    /// Whether nothing can be written to it.
    pub is_read_only: bool,
}

/// An export in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What a human is told of it.
    pub description: String,
}

/// Why an export cannot be opened, in words for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is none of this name.
    Unknown(String),
    /// There is, and nobody may use it now.
    Locked(String),
}

impl Missing {
    /// What the protocol says, and the words.
    fn reply(&self) -> (u32, &str) {
        match self {
            Self::Unknown(why) => (reply::ERR_UNKNOWN, why),
            Self::Locked(why) => (reply::ERR_POLICY, why),
        }
    }
}

/// Where names are looked up while a connection negotiates.
pub trait Exports {
    /// The export of this name; the empty name asks for the default one.
    fn find(&self, name: &str) -> Option<Export>;
    /// All exports.
    fn list(&self) -> Vec<Listed>;
    /// The snapshots since which an export may be asked what has changed; `name` is its canonical one.
    fn snapshots(&self, name: &str) -> Vec<String>;
    /// Why no export of this name can be opened.
    fn why_missing(&self, _name: &str) -> Missing {
        Missing::Unknown("there is no volume of this name; LIST names all".to_owned())
    }
}

/// What the driver has to do.
#[derive(Debug)]
pub enum Event {
    /// Negotiation has ended on this export: requests follow.
    Opened {
        /// Its canonical name.
        name: String,
        /// The snapshots since which block status tells what has changed, in the order of the bits of
        /// [`volume::BlockExtent::changed_since`].
        since: Vec<String>,
    },
    /// Read the range, in the parts of [`parts`]; each is answered with [`Machine::read_done`].
    Read {
        /// Names the request in its answers.
        ticket: Ticket,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        len_bytes: u32,
    },
    /// Write these bytes: one part of a write request, within one chunk. Each part is answered with [`Machine::done`].
    Write {
        /// Names the request in its answers.
        ticket: Ticket,
        /// Whether this is the request's first part.
        is_first: bool,
        /// First byte.
        offset_bytes: u64,
        /// The payload.
        bytes: SharedBuf,
    },
    /// Make completed writes durable. Answered with [`Machine::done`].
    Flush {
        /// Names the request.
        ticket: Ticket,
    },
    /// Discard the range. Answered with [`Machine::done`].
    Trim {
        /// Names the request.
        ticket: Ticket,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        len_bytes: u32,
    },
    /// Make the range read as zeroes. Answered with [`Machine::done`].
    WriteZeroes {
        /// Names the request.
        ticket: Ticket,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        len_bytes: u32,
        /// Whether they are stored: the range keeps its space, or gets it.
        is_stored: bool,
    },
    /// Tell of the range, or its beginning. Answered with [`Machine::status_done`].
    BlockStatus {
        /// Names the request.
        ticket: Ticket,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        len_bytes: u32,
        /// Extents that may be answered.
        extents_max: u32,
    },
    /// So much waits to be sent that nothing more is looked at before some of it is: ask again once
    /// [`Machine::is_full`] says no.
    Full,
    /// The client asked for the end: answer what is in flight, then close.
    Disconnect,
}

/// Why a request failed: a number for the client and a sentence for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the protocol says.
    pub errno: Errno,
    /// What a human is told where the protocol has room for it.
    pub message: String,
}

/// The client broke the protocol in a way that leaves nothing to go on with: the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// See [`BadMagic`].
    #[error(transparent)]
    Magic(#[from] BadMagic),
    /// Client flags that no version of the protocol has.
    #[error("unknown client flags {0:#x}")]
    ClientFlags(u32),
    /// Option data that is too long even to be skipped.
    #[error("option data of {0} bytes, at most {OPTION_BYTES_SKIPPED_MAX} are skipped")]
    OptionTooLong(u32),
    /// EXPORT_NAME has no way to say no.
    #[error("no export is named {0:?}")]
    UnknownExport(String),
    /// A write whose payload exceeds what was announced.
    #[error("write of {0} bytes, at most {REQUEST_BYTES_MAX} were announced")]
    WriteTooLong(u32),
}

/// Where in the stream the machine stands.
enum Phase {
    /// The client's flags come next.
    ClientFlags,
    /// An option's header comes next.
    Option,
    /// An option's data is gathered in `option_data`.
    OptionData { option: u32, len_bytes: u32 },
    /// Option data that is not looked at.
    SkipOption { left_bytes: u32 },
    /// A request comes next.
    Request,
    /// The payload of a write comes next.
    Payload(Payload),
    /// Nothing that comes is read.
    Ended,
}

/// See the [module](self).
pub struct Machine {
    phase: Phase,
    stash: Stash,
    option_data: Vec<u8>,
    no_zeroes: bool,
    structured: bool,
    size_bytes: u64,
    is_read_only: bool,
    contexts: Contexts,
    commands: Commands,
    outbox: Outbox,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// A new connection: the greeting waits in the outbox.
    pub fn new() -> Self {
        let mut machine = Self {
            phase: Phase::ClientFlags,
            stash: Stash::default(),
            option_data: Vec::new(),
            no_zeroes: false,
            structured: false,
            size_bytes: 0,
            is_read_only: false,
            contexts: Contexts::default(),
            commands: Commands::default(),
            outbox: Outbox::default(),
        };
        machine.greet();
        machine
    }

    /// The next event in `input`; `None` when all of it is used up.
    ///
    /// # Errors
    /// When the connection has to be closed, after what the outbox holds.
    pub fn next(&mut self, input: &mut Input, exports: &impl Exports) -> Result<Option<Event>, Violation> {
        loop {
            if self.is_full() && !input.is_empty() {
                return Ok(Some(Event::Full));
            }
            let step = match self.phase {
                Phase::ClientFlags => self.client_flags(input)?,
                Phase::Option => self.option(input)?,
                Phase::OptionData { option, len_bytes } => self.option_data(input, option, len_bytes, exports)?,
                Phase::SkipOption { left_bytes } => self.skip_option(input, left_bytes),
                Phase::Request => self.request(input)?,
                Phase::Payload(_) => self.payload(input),
                Phase::Ended => {
                    input.skip(input.len());
                    Step::Starved
                }
            };
            match step {
                Step::Again => {}
                Step::Starved => return Ok(None),
                Step::Event(event) => return Ok(Some(event)),
            }
        }
    }

    /// Requests that were handed out and not yet answered.
    pub fn in_flight(&self) -> usize {
        self.commands.in_flight()
    }

    /// What an answer to a block status request weighs at most: it is charged when the request begins.
    pub fn status_bytes(&self) -> u64 {
        self.contexts.answer_bytes()
    }

    /// Whether as much waits to be sent as may.
    pub fn is_full(&self) -> bool {
        self.outbox.small_bytes() >= OUTPUT_BYTES_MAX
    }

    /// Whether a write has begun whose payload is not all there.
    pub fn awaits_payload(&self) -> bool {
        matches!(self.phase, Phase::Payload(_))
    }

    /// Bytes that wait to be sent.
    pub fn output_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    /// Whether bytes wait to be sent.
    pub fn has_output(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Moves what waits to be sent into `parts`, up to `parts_max` of them; returns the load of the answers in it, to
    /// be given back once they are sent.
    pub fn take_output(&mut self, parts: &mut Vec<SharedBuf>, parts_max: usize) -> Load {
        self.outbox.take(parts, parts_max)
    }
}

/// What one look at the input came to.
enum Step {
    /// The phase has changed: look again.
    Again,
    /// The input does not hold enough.
    Starved,
    /// Something to do.
    Event(Event),
}

/// The parts of a range: cut at chunk boundaries, as the volume below does anyway, so that no part needs more memory
/// than a chunk and each goes to one place.
pub fn parts(offset_bytes: u64, len_bytes: u32) -> impl Iterator<Item = (u64, u32)> {
    let end = offset_bytes + u64::from(len_bytes);
    let mut at = offset_bytes;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let len = part_len(at, end);
            at += len;
            (at - len, len as u32)
        })
    })
}

fn part_len(at: u64, end: u64) -> u64 {
    (types::CHUNK_BYTES - at % types::CHUNK_BYTES).min(end - at)
}

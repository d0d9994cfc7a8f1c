//! What nodes say to each other, byte by byte: each structure with its layout, its size, encode and decode, and golden
//! bytes, here and nowhere else. Pure: no I/O, no clock. Decoding never panics, whatever the bytes; [`fuzz`] proves it.
//!
//! ```text
//!  0          112                                112 + meta                   112 + meta + blocks
//!  ├──────────┼──────────────────────────────────┼────────────────────────────┤
//!  │ header   │ fixed part │ lists │ entry heads │ blocks, one behind another │ next frame …
//!  └──────────┴──────────────────────────────────┴────────────────────────────┘
//!   own sum     one sum in the header              a sum each, in the heads
//! ```
//!
//! **Promises.** A header is judged, and with it every length, before a byte of body is kept. No byte of a frame counts
//! that is not under a sum. What a later version appends to a body is skipped: each begins with the length of its fixed
//! part. A kind of frame that is not known, or that the two sides have not agreed on ([`Protocol`]), is refused, with what to do. Nothing that is
//! decoded makes the protocol or a store panic: sequences and epochs leave room to count on, histories and entries rise,
//! and no entry is longer than a store takes.
//!
//! **Never.** No judgement of what a message means: that is [`protocol`](crate::protocol)'s. No decision to close a
//! connection: whoever owns it does so after any error here.
//!
//! | kind | name | body |
//! |---|---|---|
//! | 1, 2 | hello, its answer | [`Hello`] |
//! | 3 | hello refused | [`HelloRefused`] |
//! | 4 | proof of who opened: [`ClusterKey`] | 32 bytes behind 8 of the fixed part |
//! | 16 | beat | [`Beat`] |
//! | 17 | its answer | [`BeatAnswer`] |
//! | 18, 19 | ping, its answer | nothing but the length of the fixed part, 8 |
//! | 20, 21 | plain call, its reply | [`CallMessage`] |
//! | 22 | lives that are over | [`Dead`] |
//! | 23 | of a rehearsed release alone, see [`Protocol::rehearsal`] | [`Rehearsed`] |
//! | 40, 41 | request of a volume's head, its answer | [`Request`], [`Answer`] |
//! | 48 … 59 | catch-up: compare, leaves, pending, skip, skipped, unit begin, part, end, taken, filled, layers; scrub: digest | [`FillMessage`] |
//! | 32 … 39 | prepare, prepared, ask, told, fetch, fetched, refused, gave up | [`Message`](crate::protocol::Message): see `message` |
//!
//! Main types: [`FrameHeader`]; [`Sender`] and [`Receiver`], one of each per connection.

mod beat;
mod body;
mod bytes;
mod call;
mod connection;
mod dead;
mod entries;
mod error;
mod fill;
mod frame;
pub mod fuzz;
mod head;
mod hello;
mod history;
mod key;
mod message;
mod record;
mod versions;

pub use beat::{Beat, BeatAnswer, Cores, Excepted, Grants, MAX_EXCEPTED, MAX_STORES_NAMED, StoreLine};
pub use call::{CallMessage, MAX_CALL_BYTES, MAX_CALL_HEAD_BYTES, Parcel, Service};
pub use connection::{
    Frame, MAX_RECORDS_REMEMBERED, Receiver, Said, Sender, encode_call, encode_fill, encode_head, encode_node,
};
pub use dead::Dead;
pub use entries::{MAX_BLOCKS_BYTES, MAX_ENTRIES};
pub use error::WireError;
pub use fill::{Fill, FillMessage, LeafLine, MAX_CHUNKS, MAX_LAYERS, MAX_LEAVES, MAX_RECORD_BYTES, MAX_VOLUMES, Run};
pub use frame::{
    Class, Envelope, FRAME_HEADER_BYTES, FrameHeader, Kind, MAX_BODY_BYTES, RequestId, TraceId, WIRE_VERSION,
};
pub use head::{Answer, AnsweredBlock, HeadMessage, Piece, Refusal, Request, Wants};
pub use hello::{Hello, HelloRefused, MAX_REASON_BYTES, NodeMessage, Rehearsed};
pub use history::MAX_HISTORY_EPOCHS;
pub use key::{ClusterKey, NONCE_BYTES, PROOF_BYTES, same_proof};
pub use record::MAX_MEMBERS;
pub(crate) use record::{decode_record, encode_record};
pub use versions::{Agreed, Apart, Features, PROTOCOL_NEWEST, PROTOCOL_OLDEST, Protocol, Release};

pub(crate) use message::kind_of;
use types::{Epoch, Seq};

/// No group gets so far; above it the protocol could not count on.
const EPOCH_MAX: Epoch = Epoch(u32::MAX / 2);
/// As of epochs.
const SEQ_MAX: Seq = Seq(u64::MAX / 2);

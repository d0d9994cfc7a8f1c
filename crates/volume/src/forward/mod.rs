//! Clients that know one node, and not which one is the head of their volume (H17): NBD has no path fail-over of its own.
//!
//! ```text
//!   NBD client ── node B: the head is down, or nobody has the volume open ──► B becomes the head       `Attached`: here
//!       └──────── node B: another is the head ── calls ──► node A, the head   one session per client   `Attached`: there
//! ```
//!
//! **A session** is one client's connection, with one head, in one reign of it, over one connection between the two nodes: it is named by
//! that and a number. When any of these ends, so does the session, and its client's connection with it: the client connects
//! again. Nothing is sent twice, and a node that comes back, or goes on after a pause, has no session that it does not know of.
//!
//! **In order.** Calls of a connection arrive in the order in which they were made, and are admitted when they come. Before a client's
//! first request is done the head *settles* the volume: every node with a session is asked, over the connection of its sessions,
//! to end those whose clients have gone, and its answer comes behind all that it had to send; its own cores do the same, and all that
//! was called so far has its place then. Who does not answer in time is not listened to any more. So a client that comes back, through
//! whichever node, is behind all that it sent before; what was not sent by then, of a client that is gone, never is.
//!
//! **Bounded.** A session has [`SESSION_CALLS_MAX`] calls and [`SESSION_BYTES_MAX`] under way, the connection its own limits, and a core
//! what it reads in advance ([`READ_BYTES_MAX`]); above that requests wait at the forwarder, in the budget of its door. The volume's
//! limits are kept by the head; the forwarder keeps its share of them before that, so that what waits does so at the door.
//!
//! What this does not see is what is still on the network between a client and its node.

mod attach;
mod attending;
mod guest;
mod message;
mod settle;
mod visitors;

pub use attach::Attached;
pub(crate) use attending::Attending;
pub(crate) use settle::answer;
pub(crate) use visitors::Visitors;

use replication::node::Service;
use std::time::Duration;

/// What nodes call each other about here.
const SERVICE: Service = Service(3);

/// Sessions of one connection between nodes: as many clients as a door takes on a core.
const SESSIONS_MAX: usize = 1024;
/// Calls of one session under way: a quarter of the connection's, so that no client has it alone.
const SESSION_CALLS_MAX: usize = replication::node::CALLS_MAX / 4;
/// Bytes of those, asked for or sent: half of the connection's, so that one of the longest transfers never waits for itself.
const SESSION_BYTES_MAX: usize = replication::node::CALL_BYTES_MAX / 2;
/// What the sessions of one core read at once: as much as a connection carries the other way.
const READ_BYTES_MAX: usize = replication::node::CALL_BYTES_MAX;
/// Who has sessions of a volume says within this that all of them has come, or has none.
const SETTLE_WAIT: Duration = Duration::from_millis(500);

/// Any bytes as what nodes say to each other for clients of volumes, for a fuzzer.
pub fn fuzz(bytes: &[u8]) {
    message::fuzz(bytes);
}

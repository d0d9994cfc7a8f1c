//! How long things last, and how much is kept. One set for a cluster: leases and grants are compared between nodes.

use crate::protocol::Settings;
use runtime::Instant;
use std::time::Duration;

/// Most entries of one message.
const BATCH_ENTRIES_MAX: u64 = 1024;

/// See docs/replication.md, "Timers".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Between two beats to the same node.
    pub beat: Duration,
    /// A node that has answered no beat for so long is silent.
    pub silent: Duration,
    /// From the sending of a beat that was answered: so long a primary may read.
    pub lease: Duration,
    /// From the answering of a beat: so long nobody else leads.
    pub grant: Duration,
    /// Members that may take over try so long after each other.
    pub turn: Duration,
    /// A new primary asks for histories for so long; the map is asked again after as long.
    pub ask: Duration,
    /// What was not acknowledged for so long is sent again.
    pub resend: Duration,
    /// A primary whose change of the record has had no answer for so long, while the map answers others, lets another lead.
    pub unanswered: Duration,
    /// A member that makes no progress for so long is slow.
    pub slow: Duration,
    /// Between two looks at what is due.
    pub tick: Duration,
    /// A node's session in the map ends so long after it was last renewed.
    pub session: Duration,
    /// It is renewed so often.
    pub renewal: Duration,
    /// The map's records are looked at so often, whatever its watches say.
    pub look: Duration,
    /// Each leaf is read again so long after the one before: 1 TiB in a week.
    pub scrub: Duration,
    /// Of what is committed and acknowledged by all so many bytes are kept per group: who was away for a moment gets what
    /// it lacks from there.
    pub kept_bytes: usize,
    /// A message that a connection does not take for so long ends it.
    pub send: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            beat: Duration::from_millis(250),
            silent: Duration::from_millis(1500),
            lease: Duration::from_millis(1500),
            // Two clocks that each run up to 2 % fast or slow: 1.02 / 0.98.
            grant: Duration::from_millis(1575),
            turn: Duration::from_millis(500),
            ask: Duration::from_secs(1),
            resend: Duration::from_millis(250),
            unanswered: Duration::from_secs(3),
            slow: Duration::from_secs(2),
            tick: Duration::from_millis(50),
            session: Duration::from_secs(10),
            renewal: Duration::from_secs(3),
            look: Duration::from_secs(10),
            scrub: Duration::from_millis(500),
            kept_bytes: 256 << 10,
            send: Duration::from_secs(5),
        }
    }
}

impl Timing {
    /// What the protocol itself needs of it.
    pub(crate) fn settings(&self) -> Settings {
        let nanos = |duration: Duration| Instant(duration.as_nanos() as u64);
        Settings { lease: nanos(self.lease), grant: nanos(self.grant), batch_entries_max: BATCH_ENTRIES_MAX }
    }
}

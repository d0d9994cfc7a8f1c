//! Is there still somebody at the other end of what was received?
//!
//! A host that has given up a connection sends its commands again on another one and goes on from there; what still
//! stands in the old connection must not be executed then. Linux tells the end of a connection at once,
//! except where the receive window is full: then the end queues up behind bytes that have no room. So after a wait in
//! which nobody read, "the socket has not ended" proves nothing by itself, and one of two signs of life is asked for:
//!
//! - **after the core stood still**: what comes is received, and held back until the connection falls silent for
//!   [`SILENCE`] (whatever was queued, an end too, has arrived by then), or more has come than a connection without its
//!   host can still deliver;
//! - **after back-pressure**: an answer was sent since, and the time for a reset to come back has passed. A socket that
//!   is closed answers any byte with a reset. Where no answer can come, since the one request under way is a write whose
//!   payload is still being read, it is as after a pause.

use super::connection::Connection;
use runtime::{IoBuf, SharedBuf};
use std::collections::VecDeque;
use std::time::Duration;

/// Silence after which nothing more is on its way: longer than the first retransmission of a lost segment (200 ms).
const SILENCE: Duration = Duration::from_millis(300);
/// More than this comes only from a host that lives: send and receive buffers hold 4 and 6 MiB unless configured
/// larger.
const ORPHAN_BYTES_MAX: usize = 32 << 20;
/// What a reset needs to come back after an answer to a closed socket; only waited for after long back-pressure.
const RESET_TIME: Duration = Duration::from_millis(10);

impl Connection {
    /// After the core stood still: receives and holds what comes until it is known whether the host is there.
    pub(super) async fn outlive_pause(&self, held: &mut VecDeque<SharedBuf>) -> bool {
        let mut total = 0;
        while total <= ORPHAN_BYTES_MAX {
            if self.stream().has_ended() {
                return false;
            }
            match runtime::timeout(SILENCE, self.stream().recv()).await {
                Err(_) => break,
                Ok(Ok(bytes)) if !bytes.is_empty() => {
                    total += bytes.len();
                    held.push_back(IoBuf::copy_of(&bytes).freeze()); // receive buffers are for what is being received
                }
                Ok(_) => return false,
            }
        }
        !self.stream().has_ended()
    }

    /// After back-pressure that began when `answers` had been sent.
    pub(super) async fn outlive_back_pressure(&self, answers: u64) -> bool {
        self.wait_for_answer(answers).await;
        runtime::sleep(RESET_TIME).await;
        !self.is_over() && !self.stream().has_ended()
    }
}

//! What a head waits for before its first write at a group: that the group knows of its reign (H21).
//!
//! ```text
//!   first write of a reign at a group ── its turn ─► raise ─► committed ─► is its client still there? ─► done as any other
//!                                                                              └── no ─► dropped
//! ```
//!
//! A host that heard nothing of its write may have gone back to an older head, which has not heard of this one, and on from
//! there. From the raise on the older head is refused. So whoever was still waiting by then has not gone back, and what
//! a host has sent elsewhere before is not done after it.

use crate::api::IoError;
use crate::command::Target;
use crate::head::{Call, Head, VolumeState};
use crate::message::Request;
use crate::part;
use crate::session::Session;
use replication::protocol::must_raise;
use runtime::Instant;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use types::VolumeEpoch;

/// Which groups are known to know of a volume's head, as one core has heard.
#[derive(Default)]
pub(crate) struct Raised {
    epoch: Cell<VolumeEpoch>,
    /// One bit for each place in the table.
    places: RefCell<Vec<u64>>,
}

impl Raised {
    /// Whether the group in this place takes nothing of a head before this epoch any more.
    pub(crate) fn at(&self, epoch: VolumeEpoch, place: usize) -> bool {
        let word = |places: &[u64]| places.get(place / 64).copied().unwrap_or_default();
        let is_answered = self.epoch.get() == epoch && word(&self.places.borrow()) >> (place % 64) & 1 == 1;
        !must_raise(if is_answered { epoch } else { VolumeEpoch::default() }, epoch)
    }

    /// Nothing is known of the groups of another table.
    pub(crate) fn forget(&self) {
        self.places.borrow_mut().clear();
    }

    fn note(&self, epoch: VolumeEpoch, place: usize) {
        let mut places = self.places.borrow_mut();
        if self.epoch.replace(epoch) != epoch {
            places.clear();
        }
        if places.len() <= place / 64 {
            places.resize(place / 64 + 1, 0);
        }
        places[place / 64] |= 1 << (place % 64);
    }
}

/// Lets a command go on that was called when not all of its groups were known to know of the head, once they do.
///
/// # Errors
/// A group does not serve, or another head does; or the client has gone meanwhile: its command must not be done any more.
pub(crate) async fn raised_first(
    head: &Rc<Head>,
    volume: &VolumeState,
    session: &Session,
    called: Instant,
    targets: &[Target],
) -> Result<(), IoError> {
    for &Target { core, place } in targets {
        let spec = volume.gate.term().spec.clone();
        let epoch = spec.epoch;
        if volume.raised.at(epoch, place) {
            continue;
        }
        if core == head.index {
            part::raise(head, &spec, &volume.group_at(place)?, session.waits()).await?;
        } else {
            let request = Request::Raise { spec, place, waits: session.waits() };
            Call::send(head, core, request).answer().await.done().result?;
        }
        volume.raised.note(epoch, place);
    }
    session.may_go_on(called).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_reign_is_not_known_of_the_next() {
        let (raised, first, next) = (Raised::default(), VolumeEpoch(3), VolumeEpoch(4));
        assert!(!raised.at(first, 0) && !raised.at(first, 200));
        raised.note(first, 200);
        assert!(raised.at(first, 200) && !raised.at(first, 199) && !raised.at(first, 64) && !raised.at(next, 200));
        raised.note(next, 64);
        assert!(raised.at(next, 64) && !raised.at(next, 200) && !raised.at(first, 200));
    }
}

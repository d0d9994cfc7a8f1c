//! What a head does with what it hears: as `replication::Access` and the head of `volume` do, with what ships deciding.

use super::{Call, Says, Wants, Work};
use crate::group::State;
use replication::protocol::{Outcome, goes_on_in, next_attempt};
use types::VolumeEpoch;

impl State {
    /// A head hears what came of what it asked for.
    pub(super) fn hear(&mut self, at: usize, says: Says) {
        let head = &mut self.volume.heads[at];
        let Some(mut work) = head.work else { return };
        work.call = Call::None;
        let came_to = match says {
            Says::Done | Says::Read(_) => {
                head.raised = work.epoch;
                if work.raises {
                    // Its connection is asked whether the host waits for it still.
                    let waits = |host: usize| self.volume.hosts[host] == Some((work.wants, at, work.reign));
                    let goes_on = work.host.is_some_and(waits).then_some(work);
                    self.volume.heads[at].work = goes_on;
                    return;
                }
                head.work = None;
                if let Some(host) = work.host
                    && self.volume.hosts[host] == Some((work.wants, at, work.reign))
                    && !self.volume.returned(host, says)
                {
                    self.break_rule("what hosts were told has no order");
                }
                return;
            }
            Says::Older(seen) => return self.refused(at, work, seen),
            Says::NotDone => Outcome::NotDone,
            Says::Unknown => Outcome::Unknown,
        };
        work.is_unknown |= came_to == Outcome::Unknown && !work.raises;
        if let Some(attempt) = next_attempt(head.attempt, came_to) {
            head.attempt = attempt;
        }
        head.work = Some(work);
    }

    /// A later head was seen.
    fn refused(&mut self, at: usize, work: Work, seen: VolumeEpoch) {
        let head = &mut self.volume.heads[at];
        let goes_on = goes_on_in(work.epoch, seen);
        if head.epoch == Some(work.epoch) {
            head.epoch = goes_on;
        }
        head.work = goes_on.map(|epoch| Work { epoch, ..work });
        if goes_on.is_none() && work.is_unknown && head.epoch.is_some() {
            // It is the head once more, and has no newer command before the older one is void.
            head.work = Some(work);
            self.settle(at);
        }
    }

    /// Its host waits no longer, and its head still does.
    pub(super) fn settle(&mut self, at: usize) {
        let head = &mut self.volume.heads[at];
        let Some(attempt) = next_attempt(head.attempt, Outcome::Unknown) else { return };
        head.attempt = attempt;
        let reign = head.reign;
        // Of a volume that is not served any more there are no newer commands.
        head.work = head.work.zip(head.epoch).map(|(work, epoch)| Work {
            host: None,
            wants: Wants::Nothing,
            epoch,
            reign,
            raises: false,
            call: Call::None,
            ..work
        });
    }
}

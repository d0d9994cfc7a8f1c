//! A member goes on behind entries that it lacks and that nobody can send it any more.
//!
//! ```text
//!   order here     1 … 80 │ 81 … 85                         101 102 …
//!                  applied│ prepared      skip through 100  │ the next that it is sent
//!   log       ──── 79 80 81 … 85 ─────────── S ──────────── 101 102 ──
//!                                            │ durable: 81 … 85 are dropped, committed through 100
//! ```
//!
//! **Replay** comes to the skip where it lies in the log. What was applied when it was asked for it says itself (its
//! commit), and all that is prepared there and not applied by then goes, as it went when the skip took effect. So
//! nothing of the order may come between the asking and the effect: it is not taken, and what is committed meanwhile is
//! committed behind it. A pass says what a group is in its last records: those wait for skips on their way, or they
//! would say behind a skip what was before it.

use super::group::OwnState;
use super::{State, raise};
use crate::entry::{Entry, EntryKind, MAX_GROUP_RECORD_BYTES};
use crate::error::AppendError;
use crate::format::entry::decode_skip;
use crate::format::{FormatError, GroupState, MemberState, RecordSeq};
use types::{GroupId, Seq, Term, VolumeEpoch, VolumeId};

/// Where a member goes on that lacks entries of its group, and what the group itself is there.
#[derive(Debug)]
pub(crate) struct Skip {
    pub(crate) through: Seq,
    pub(crate) epochs: Vec<(Term, Seq)>,
    pub(crate) volumes: Vec<(VolumeId, VolumeEpoch)>,
    /// Empty: what is known stays.
    pub(crate) record: Vec<u8>,
}

impl OwnState {
    /// Becomes what another member says of the group, unless what is known is of a newer epoch. Volume epochs only rise.
    pub(crate) fn take_over(&mut self, skip: &Skip) {
        for (volume, epoch) in &skip.volumes {
            raise(&mut self.volume_epochs, *volume, *epoch);
        }
        let newest = |epochs: &[(Term, Seq)]| epochs.last().map(|last| last.0);
        if newest(&skip.epochs) < newest(&self.epochs) {
            return;
        }
        self.epochs.clone_from(&skip.epochs);
        if !skip.record.is_empty() {
            self.record.clone_from(&skip.record);
        }
    }
}

impl Skip {
    pub(super) fn payload(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        let Self { through, epochs, volumes, record } = self;
        GroupState::encode(*through, epochs, volumes, record, MemberState::default(), &mut payload);
        payload
    }

    pub(crate) fn of(state: &GroupState<'_>) -> Self {
        let (epochs, volumes) = (state.epochs().collect(), state.volumes().collect());
        Self { through: state.committed, epochs, volumes, record: state.record.to_vec() }
    }
}

/// Payload of a skip; 0 of any other entry.
pub(super) fn skip_bytes(entry: &Entry) -> usize {
    match &entry.kind {
        EntryKind::Skip { epochs, volumes, record, .. } => {
            GroupState::encoded_bytes(epochs.len(), volumes.len(), record.len())
        }
        _ => 0,
    }
}

/// Whether the log may hold the entry, if it is a skip: what it says came from another member.
pub(super) fn check_skip(entry: &Entry) -> Result<(), AppendError> {
    let EntryKind::Skip { through, epochs, volumes, record } = &entry.kind else { return Ok(()) };
    let invalid = |error| AppendError::Invalid { group: entry.group, error };
    if record.len() > MAX_GROUP_RECORD_BYTES {
        let (field, found) = ("length of the group's record", record.len() as u64);
        return Err(invalid(FormatError::Field { what: "skip", field, found }));
    }
    let skip = Skip { through: *through, epochs: epochs.clone(), volumes: volumes.clone(), record: record.to_vec() };
    decode_skip(&skip.payload()).map(drop).map_err(invalid)
}

impl State {
    /// The group's order goes on behind what is skipped. `commit`: applied here when it was asked for.
    pub(crate) fn skip(&mut self, group: GroupId, skip: &Skip, commit: Seq) {
        if skip.through > commit {
            self.drop_last_while(group, |_| true);
        }
        let of = self.groups.entry(group).or_default();
        if skip.through > commit {
            of.committed = of.committed.max(skip.through);
        }
        of.own.take_over(skip);
    }

    /// A skip less is on its way.
    pub(super) fn end_skip(&mut self, group: GroupId, durable: RecordSeq) {
        self.members.skips -= 1;
        let of = self.groups.get_mut(&group).expect("it was counted when it was queued");
        of.skips_on_the_way -= 1;
        if of.skips_on_the_way == 0 {
            let held = std::mem::take(&mut of.commit_held);
            self.commit(group, held, durable);
        }
    }
}

//! What a primary takes of the heads of volumes, and what a head does that was not answered or was refused: pure decisions
//! (H2, H3, H5 of docs/heads.md).
//!
//! The primary keeps them for one reign of its own, from the epochs that it finds in its log: [`Heads::begin`].

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use types::{Epoch, Incarnation, LayerId, Mutant, NodeId, Seq, VolumeEpoch, VolumeId, mutant};

/// The highest epoch seen of a volume, the entry that raised it, and the layer on top that the group was told of last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VolumeReign {
    /// The epoch.
    pub epoch: VolumeEpoch,
    /// Whoever is answered under it is so when this entry is committed.
    pub raised_at: Seq,
    /// 0: none in this reign of the group's primary.
    pub top: LayerId,
}

/// The core of a node, in one of its lives, that asks for something over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asker {
    /// The node.
    pub node: NodeId,
    /// Its core.
    pub core: u16,
    /// Which of two lives is the later one nobody knows: clocks go back. What an earlier one sent has a lower volume epoch.
    pub life: Incarnation,
}

/// What a head says of itself with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its volume.
    pub volume: VolumeId,
    /// In which it is the head.
    pub epoch: VolumeEpoch,
    /// The layer on top, if it says which.
    pub top: Option<LayerId>,
    /// Whether the group has to know its layers before it does anything.
    pub is_to_tell: bool,
}

/// What comes before a request of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// Nothing; a read and an answer, once this entry is committed.
    At(Seq),
    /// Its layers are written to the log: another than the group was told of last is on top.
    Tell,
    /// Its layers, and then the entry that raises the volume's epoch.
    Raise,
}

/// Why a request of a head is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// A later head was seen, in this epoch.
    Older(VolumeEpoch),
    /// Its layers are not known here.
    Untold,
    /// It relies on another epoch of the group than this one, in which this member leads, if it does.
    NotLed,
    /// Its core has begun a later attempt.
    Overtaken,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heads {
    reigns: HashMap<VolumeId, VolumeReign, FixedState>,
    /// Those that have asked for something in this reign, and the newest attempt of each.
    askers: HashMap<Asker, u64, FixedState>,
}

impl Default for Heads {
    fn default() -> Self {
        Self {
            reigns: HashMap::with_hasher(FixedState::default()),
            askers: HashMap::with_hasher(FixedState::default()),
        }
    }
}

impl Heads {
    /// A reign of the primary begins, with these epochs in its log, that ends at `last`: whatever raised them is committed
    /// when all is that was found.
    pub fn begin(&mut self, found: impl IntoIterator<Item = (VolumeId, VolumeEpoch)>, last: Seq) {
        // What relies on an earlier epoch is refused for that.
        self.askers.clear();
        self.reigns.clear();
        let reign = |(volume, epoch)| (volume, VolumeReign { epoch, raised_at: last, top: LayerId(0) });
        self.reigns.extend(found.into_iter().map(reign));
    }

    /// Lets a request of another core in, and nothing that it sent before it began this attempt: what of that has no place
    /// in the order yet gets none. `relied_on`: the group's epoch, as that core believes; `leads_in`: in which this member
    /// leads.
    ///
    /// # Errors
    /// It relies on another epoch of the group, or was overtaken.
    pub fn admit(
        &mut self,
        asker: Asker,
        attempt: u64,
        relied_on: Epoch,
        leads_in: Option<Epoch>,
    ) -> Result<(), NotTaken> {
        if leads_in != Some(relied_on) && !mutant(Mutant::OldRequestTaken) {
            return Err(NotTaken::NotLed);
        }
        let newest = self.askers.entry(asker).or_default();
        if *newest > attempt && !mutant(Mutant::OvertakenDone) {
            return Err(NotTaken::Overtaken);
        }
        *newest = attempt.max(*newest);
        Ok(())
    }

    /// Lets a request of this head in, and says what has to come before it.
    ///
    /// # Errors
    /// A later head was seen, or this one's layers are not known.
    pub fn enter(&self, claim: Claim) -> Result<Entered, NotTaken> {
        let Claim { volume, epoch, top: its, is_to_tell } = claim;
        if let Some(VolumeReign { epoch: seen, raised_at, top }) = self.reign(volume) {
            let is_taken = mutant(Mutant::OlderHeadTaken) || volume.is_keeper() && mutant(Mutant::OlderKeeperTaken);
            if epoch < seen && !is_taken {
                return Err(NotTaken::Older(seen));
            }
            if epoch <= seen {
                return match its {
                    // What it told an earlier primary may not have been committed.
                    None if is_to_tell && top == LayerId(0) => Err(NotTaken::Untold),
                    Some(its) if its != top => Ok(Entered::Tell),
                    _ => Ok(Entered::At(raised_at)),
                };
            }
        }
        if is_to_tell { Err(NotTaken::Untold) } else { Ok(Entered::Raise) }
    }

    /// What is known of a volume.
    pub fn reign(&self, volume: VolumeId) -> Option<VolumeReign> {
        self.reigns.get(&volume).copied()
    }

    /// The newest attempt of a core; 0, if it has asked for nothing.
    pub fn newest_attempt(&self, asker: Asker) -> u64 {
        self.askers.get(&asker).copied().unwrap_or_default()
    }

    /// A later epoch was raised.
    pub fn raised(&mut self, volume: VolumeId, reign: VolumeReign) {
        self.reigns.insert(volume, reign);
    }

    /// The group was told layers up to this one. Whoever is answered may rely on them, too: once `told_at` is committed.
    pub fn told(&mut self, volume: VolumeId, top: Option<LayerId>, told_at: Seq) {
        if let (Some(known), Some(top)) = (self.reigns.get_mut(&volume), top) {
            (known.top, known.raised_at) = (top, told_at);
        }
    }
}

/// Where the raise of a volume's epoch has its place, given by `append`: in the group's log, so that whoever leads later
/// knows of it.
///
/// # Errors
/// Those of `append`.
pub fn raise_in_log<E>(committed: Seq, append: impl FnOnce() -> Result<Option<Seq>, E>) -> Result<Option<Seq>, E> {
    if mutant(Mutant::RaisedInMemory) {
        return Ok(Some(committed));
    }
    append()
}

/// Whether a head has the group know of its epoch, and asks after that whether its client is still there, before it does a write
/// (H21). `answered`: the latest of its epochs that the group has answered.
pub fn must_raise(answered: VolumeEpoch, epoch: VolumeEpoch) -> bool {
    answered != epoch && !mutant(Mutant::DoneBeforeRaise)
}

/// Whether a head may be told what is committed, when the raise of its epoch has its place there.
pub fn may_answer(raised_at: Seq, committed: Seq) -> bool {
    committed >= raised_at || mutant(Mutant::RaiseNotAwaited)
}

/// What came of a request, if not what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nobody knows whether it is done, or will be.
    Unknown,
    /// It was not done and never will be; another may do it, or the same later.
    NotDone,
    /// It is of no use to ask again.
    Refused,
}

/// The attempt in which the same is asked again, after one that came to this: of what was asked before an unknown outcome
/// nothing must be done any more when the next is answered (H5). None: it is not asked again.
pub fn next_attempt(attempt: u64, came_to: Outcome) -> Option<u64> {
    match came_to {
        Outcome::Unknown => Some(attempt + 1),
        Outcome::NotDone => Some(attempt),
        Outcome::Refused => None,
    }
}

/// In which epoch a head goes on of which a group has seen another: in its own, as long as that is no earlier one (H3).
pub fn goes_on_in(own: VolumeEpoch, seen: VolumeEpoch) -> Option<VolumeEpoch> {
    if mutant(Mutant::RefusedHeadGoesOn) {
        return Some(own.max(seen));
    }
    (own >= seen).then_some(own)
}

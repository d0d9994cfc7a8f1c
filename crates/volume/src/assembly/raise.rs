//! Every group of a volume knows the epoch of its head (H4): from then on none takes anything of an earlier one.

use super::layers::Chain;
use super::{Assembly, VolumeError};
use crate::head::Head;
use cluster::{VolumeRecord, get, keys};
use replication::{Access, GroupError, Stamp};
use runtime::channel::cross;
use runtime::{Instant, now};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{GroupId, VolumeEpoch, VolumeId};

/// The groups of a volume that have not taken its head's epoch after this take it the next time.
const RAISE_WAIT: Duration = Duration::from_secs(10);
/// Groups of one core that are told of a head at once.
const RAISED_AT_ONCE: usize = 16;

/// Which groups know the epoch of a volume's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Raised {
    /// All of its table.
    Everywhere,
    /// These, and maybe others.
    At(BTreeSet<GroupId>),
}

/// What groups are to know, and until when they may take it.
#[derive(Clone)]
struct Raising {
    volume: VolumeId,
    epoch: VolumeEpoch,
    layers: Chain,
    until: Instant,
}

impl Assembly {
    /// From when this returns no group takes anything of an earlier head of the volume. Asked once in each reign; what some
    /// groups know when it fails they are not asked again.
    ///
    /// # Errors
    /// A group does not serve, or this node is the head no more.
    pub(super) async fn raise_everywhere(&self, id: VolumeId) -> Result<(), VolumeError> {
        let gone = || VolumeError::Layer(format!("this node is not the head of volume {id}"));
        let epoch = self.reign(id).ok_or_else(gone)?.epoch;
        let known = match self.0.heads.raised(id, epoch) {
            Raised::Everywhere => return Ok(()),
            Raised::At(groups) => Arc::new(groups),
        };
        let Some(found) = get::<VolumeRecord>(&*self.0.map, &keys::volume(id)).await? else { return Err(gone()) };
        let table = self.table(found.record.table).await?;
        let layers = self.chain_below(found.record.layers.last().copied()).await?;
        let raising = Raising { volume: id, epoch, layers, until: now() + RAISE_WAIT };
        let id_of_table = table.id;
        let told = self.on_each_core(move |head| {
            let (raising, known) = (raising.clone(), known.clone());
            Box::pin(async move { raise_here(&head, id_of_table, &raising, &known).await })
        });
        let (mut raised, mut why) = (BTreeSet::new(), None);
        for (groups, failed) in told.await {
            raised.extend(groups);
            why = why.or(failed);
        }
        // A group may have several places in a table.
        let is_everywhere = table.table.groups().iter().all(|group| raised.contains(group));
        self.0.heads.have_raised(id, epoch, if is_everywhere { Raised::Everywhere } else { Raised::At(raised) });
        match is_everywhere {
            true => Ok(()),
            false => Err(VolumeError::Layer(why.unwrap_or_else(|| "a group of the volume is away".to_owned()))),
        }
    }
}

/// Has the groups of this core know the epoch, several at once. Returns those that do, and why another does not.
async fn raise_here(
    head: &Rc<Head>,
    table: u32,
    raising: &Raising,
    known: &BTreeSet<GroupId>,
) -> (BTreeSet<GroupId>, Option<String>) {
    let Some(table) = head.table(table) else { return (BTreeSet::new(), None) };
    let here = table.groups.iter().flatten().cloned();
    let (done, due): (Vec<Rc<Access>>, Vec<_>) = here.partition(|group| known.contains(&group.id()));
    let (told, mut outcomes) = cross(RAISED_AT_ONCE);
    for first in 0..RAISED_AT_ONCE.min(due.len()) {
        let lane: Vec<_> = due.iter().skip(first).step_by(RAISED_AT_ONCE).cloned().collect();
        let (told, raising) = (told.clone(), raising.clone());
        runtime::spawn(async move {
            for group in lane {
                let _ = told.send(raise(&group, &raising).await).await;
            }
        });
    }
    drop(told);
    let mut raised: BTreeSet<GroupId> = done.iter().map(|group| group.id()).collect();
    let mut why = None;
    while let Ok(outcome) = outcomes.recv().await {
        match outcome {
            Ok(group) => drop(raised.insert(group)),
            Err(error) => why = why.or(Some(error)),
        }
    }
    (raised, why)
}

/// The group, when it knows the epoch; or why it does not.
async fn raise(group: &Access, raising: &Raising) -> Result<GroupId, String> {
    let stamp = Stamp::new(raising.volume, raising.epoch, &raising.layers);
    let told = async {
        while let Err(error) = group.tell(stamp).await {
            group.ask_again(error).await?;
        }
        Ok::<_, GroupError>(())
    };
    let left = Duration::from_nanos(raising.until.0.saturating_sub(now().0));
    match runtime::timeout(left, told).await {
        Ok(Ok(())) => Ok(group.id()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("group {} does not serve", group.id())),
    }
}

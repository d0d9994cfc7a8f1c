//! The groups of one shard: what they queue becomes durable together and is committed together.

use crate::error::StartError;
use crate::group::{Group, GroupRef};
use cluster::{GroupRecord, decode};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use store::{AppendError, AppendTimes, Entry, LogPosition, Recovery, Shard};
use types::{Epoch, GroupId, LayerId, Mutant, Seq, StoreId, mutant};

/// The epoch of a group's first start.
const FIRST_EPOCH: Epoch = Epoch(1);

/// An entry that the store has queued.
struct Queued {
    position: LogPosition,
    group: u32,
    seq: Seq,
}

/// One shard of a store and the groups that live in it. Lives on the shard's core.
pub struct GroupShard {
    shard: Rc<Shard>,
    store: StoreId,
    groups: RefCell<Vec<GroupRef>>,
    by_id: RefCell<HashMap<GroupId, u32, FixedState>>,
    /// In the order of the log; the front becomes durable first.
    queued: RefCell<VecDeque<Queued>>,
    layers: RefCell<HashSet<LayerId, FixedState>>,
    /// Times of the record that was settled last.
    settled: Cell<AppendTimes>,
}

impl GroupShard {
    /// Starts the groups of `records` (each already in its new epoch in the map) and returns when those that can
    /// serve do. Groups that cannot are returned with the reason; they stay stopped.
    pub async fn start(
        shard: Rc<Shard>,
        store: StoreId,
        recovery: &Recovery,
        records: Vec<GroupRecord>,
    ) -> (Rc<Self>, Vec<StartError>) {
        let this = Rc::new(Self {
            shard,
            store,
            groups: RefCell::default(),
            by_id: RefCell::default(),
            queued: RefCell::default(),
            layers: RefCell::new(recovery.layers.iter().map(|record| record.layer).collect()),
            settled: Cell::default(),
        });
        let known: HashMap<GroupId, usize, FixedState> =
            recovery.groups.iter().enumerate().map(|(index, group)| (group.group, index)).collect();
        runtime::spawn(commit_loop(this.clone()));
        let mut refused = Vec::new();
        let mut starting = Vec::with_capacity(records.len());
        for record in records {
            let recovered = known.get(&record.id).map(|&index| &recovery.groups[index]);
            let checked = check_start(&record, recovery, recovered, store);
            let group = this.add(record, recovered);
            let begun = match checked {
                Ok(()) => group.begin_epoch().await.map_err(|error| StartError::Append { group: group.id(), error }),
                Err(error) => Err(error),
            };
            match begun {
                Ok(()) => starting.push(group),
                Err(error) => {
                    group.stop(&error.to_string());
                    refused.push(error);
                }
            }
        }
        for group in starting {
            // Everything queued so far: with it all that was found prepared is committed.
            match group.wait_begun().await {
                Ok(()) => group.serve(),
                Err(error) => {
                    let reason = AppendError::Failed { reason: error.to_string().into() };
                    refused.push(StartError::Append { group: group.id(), error: reason });
                }
            }
        }
        (this, refused)
    }

    fn add(self: &Rc<Self>, record: GroupRecord, recovered: Option<&store::GroupRecovery>) -> GroupRef {
        let mut groups = self.groups.borrow_mut();
        let index = groups.len() as u32;
        self.by_id.borrow_mut().insert(record.id, index);
        let group = Rc::new(Group::new(record, recovered, self.store, Rc::downgrade(self), index));
        groups.push(group.clone());
        group
    }

    /// Times of the record whose entries were committed last: of theirs, to who waited for one of them and asks at once.
    pub(crate) fn settled(&self) -> AppendTimes {
        self.settled.get()
    }

    /// A group of this shard.
    pub fn group(&self, id: GroupId) -> Option<GroupRef> {
        let index = *self.by_id.borrow().get(&id)?;
        Some(self.groups.borrow()[index as usize].clone())
    }

    /// All groups of this shard.
    pub fn groups(&self) -> Vec<GroupRef> {
        self.groups.borrow().clone()
    }

    /// The shard of the store below.
    pub fn store(&self) -> &Rc<Shard> {
        &self.shard
    }

    /// Queues an entry of the group at `index`; when it is durable the group is told.
    pub(crate) fn prepare(&self, index: u32, entry: Entry) -> Result<(), AppendError> {
        let seq = entry.seq;
        let position = self.shard.prepare(entry)?;
        self.queued.borrow_mut().push_back(Queued { position, group: index, seq });
        Ok(())
    }

    /// Whether the layer is new to this shard; from now on it is known.
    pub(crate) fn learns_layer(&self, layer: LayerId) -> bool {
        self.layers.borrow_mut().insert(layer)
    }

    /// The layer's record was not stored after all.
    pub(crate) fn forget_layer(&self, layer: LayerId) {
        self.layers.borrow_mut().remove(&layer);
    }

    /// Everything through `durable` is on the device.
    fn settle(&self, durable: LogPosition) {
        self.settled.set(self.shard.last_append());
        loop {
            let next = {
                let mut queued = self.queued.borrow_mut();
                match queued.front() {
                    Some(front) if front.position <= durable => queued.pop_front(),
                    _ => None,
                }
            };
            let Some(Queued { group, seq, .. }) = next else { return };
            let group = self.groups.borrow()[group as usize].clone();
            group.prepared_here(seq);
        }
    }

    fn stop_all(&self, reason: &str) {
        let groups = self.groups();
        groups.iter().for_each(|group| group.stop(reason));
    }
}

/// Whether the record may be served from what this member holds.
fn check_start(
    record: &GroupRecord,
    recovery: &Recovery,
    recovered: Option<&store::GroupRecovery>,
    store: StoreId,
) -> Result<(), StartError> {
    let group = record.id;
    if record.primary != store || record.in_sync != [store] {
        return Err(StartError::NotOurs { group });
    }
    if record.in_sync.len() < record.min_in_sync as usize {
        return Err(StartError::TooFewInSync { group, in_sync: record.in_sync.len(), needed: record.min_in_sync });
    }
    let Some(recovered) = recovered else {
        // The store knows nothing of it: it never began, or all that told of it is lost.
        let has_begun_before = record.epoch > FIRST_EPOCH;
        let may_be_lost = has_begun_before && !recovery.damage.is_empty();
        return if may_be_lost { Err(StartError::Damaged { group }) } else { Ok(()) };
    };
    if recovered.damaged {
        return Err(StartError::Damaged { group });
    }
    let in_history = recovered.epoch_history.last().map(|&(epoch, _)| epoch);
    let in_record = recovered.record.as_deref().and_then(|bytes| decode::<GroupRecord>("", bytes).ok());
    let member = in_history.max(in_record.map(|record| record.epoch)).unwrap_or_default();
    let goes_on = mutant(Mutant::OldEpochAfterRestart) && member == record.epoch;
    if member >= record.epoch && !goes_on {
        return Err(StartError::MapWentBack { group, map: record.epoch, member });
    }
    Ok(())
}

/// Commits what becomes durable, for as long as the shard takes anything.
async fn commit_loop(shard: Rc<GroupShard>) {
    let mut seen = LogPosition(0);
    loop {
        match shard.shard.durable_changed(seen).await {
            Ok(durable) => {
                seen = durable;
                shard.settle(durable);
            }
            Err(error) => return shard.stop_all(&error.to_string()),
        }
    }
}

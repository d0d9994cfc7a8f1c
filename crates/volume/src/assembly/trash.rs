//! The trash: volumes that were deleted and are kept for a term. Nobody is served, their space stays taken, and nothing
//! empties it early; when a term is over its volume is deleted as any other.
//!
//! A term is wall time, for it must outlive the process. The wall clock is read when the term begins and at each start;
//! in between it runs on the monotonic clock, so that a clock that is put forward meanwhile ends no term.

use super::{Assembly, VolumeError};
use crate::api::VolumeInfo;
use crate::spec::volume_info;
use cluster::{CatalogError, TrashTerm, VolumeRecord, VolumeState as Life, empty_trash, restore_volume, trash_volume};
use runtime::TaskHandle;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use types::VolumeId;

/// A term that is over while the map is away is looked at again after this.
const RETRY_WAIT: Duration = Duration::from_secs(1);
/// Volumes that an error names; of others it tells how many.
const NAMED_MAX: usize = 5;

/// A volume in the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrashedVolume {
    /// What it was, and will be if it is restored.
    pub info: VolumeInfo,
    /// When it was deleted, ns since 1970.
    pub deleted_at_ns: u64,
    /// When its term is over, ns since 1970.
    pub keep_until_ns: u64,
}

/// What is in the trash, and the tasks that wait for the ends of the terms.
#[derive(Default)]
pub(super) struct Trash(RefCell<BTreeMap<VolumeId, (TrashedVolume, TaskHandle)>>);

impl Assembly {
    /// Puts a volume into the trash. When this returns no core serves it, no command of it runs, and its name is free.
    pub async fn trash_volume(&self, name: &str) -> Result<TrashedVolume, VolumeError> {
        let (info, by, _alone) = self.alone_with(name).await?;
        self.moves_not(&info)?;
        let volume = trash_volume(&*self.0.map, name, by).await?;
        self.take_away(volume.id).await;
        let Life::Trashed(term) = volume.state else { return Err(CatalogError::NotInTrash(volume.id).into()) };
        self.keep(&volume, term);
        self.tell_trash().await;
        Ok(self.trashed(&volume, term))
    }

    /// What is in the trash, what was deleted last at the end.
    pub fn trash(&self) -> Vec<TrashedVolume> {
        let mut all: Vec<_> = self.0.trash.0.borrow().values().map(|(volume, _)| volume.clone()).collect();
        all.sort_by_key(|volume| (volume.deleted_at_ns, volume.info.id));
        all
    }

    /// Takes a volume out of the trash, as `name` or as what it was called; every core serves it when this returns.
    pub async fn restore_volume(&self, id: VolumeId, name: Option<&str>) -> Result<VolumeInfo, VolumeError> {
        let _alone = self.0.changing.one(id).await;
        let known = self.0.trash.0.borrow().get(&id).map(|(volume, _)| volume.info.name.clone());
        let name = name.map(str::to_owned).or(known).ok_or(VolumeError::NotInTrash(id))?;
        self.check_free(&name)?;
        let volume = restore_volume(&*self.0.map, id, &name, self.0.id).await?;
        let kept = self.0.trash.0.borrow_mut().remove(&id);
        kept.inspect(|(_, task)| task.cancel());
        self.add(&volume).await?;
        self.tell_trash().await;
        self.tell_locked().await;
        self.served(&name)
    }

    /// Deletes a volume in the trash for good; its space comes back in the background.
    pub async fn empty_trash(&self, id: VolumeId) -> Result<(), VolumeError> {
        let waiting = self.delete_trashed(id, None).await?;
        waiting.inspect(|task| task.cancel());
        Ok(())
    }

    /// Returns the task that waited for the end of its term.
    async fn delete_trashed(&self, id: VolumeId, only: Option<TrashTerm>) -> Result<Option<TaskHandle>, VolumeError> {
        let _alone = self.0.changing.one(id).await;
        let volume = empty_trash(&*self.0.map, id, only).await?;
        let kept = self.0.trash.0.borrow_mut().remove(&id);
        self.erase_in_background(&volume);
        self.tell_trash().await;
        Ok(kept.map(|(_, task)| task))
    }

    /// The volume is in the trash: it stays there until its term is over.
    pub(super) fn keep(&self, volume: &VolumeRecord, term: TrashTerm) {
        let left = Duration::from_nanos(term.keep_until_ns.saturating_sub(runtime::wall_clock_ns()));
        let over = runtime::now() + left;
        let (this, id) = (self.clone(), volume.id);
        let task = runtime::spawn(async move {
            runtime::sleep_until(over).await;
            this.end_term(id, term).await;
        });
        let before = self.0.trash.0.borrow_mut().insert(volume.id, (self.trashed(volume, term), task));
        before.inspect(|(_, task)| task.cancel());
    }

    /// Whether it is kept for this term.
    pub(super) fn is_kept(&self, id: VolumeId, term: TrashTerm) -> bool {
        let is_it = |volume: &TrashedVolume| {
            (volume.deleted_at_ns, volume.keep_until_ns) == (term.deleted_at_ns, term.keep_until_ns)
        };
        self.0.trash.0.borrow().get(&id).is_some_and(|(volume, _)| is_it(volume))
    }

    /// It is in the trash no more, or not this node's to keep.
    pub(super) async fn let_go(&self, id: VolumeId) {
        let kept = self.0.trash.0.borrow_mut().remove(&id);
        if let Some((_, task)) = kept {
            task.cancel();
            self.tell_trash().await;
        }
    }

    async fn end_term(&self, id: VolumeId, term: TrashTerm) {
        let name = self.0.trash.0.borrow().get(&id).map(|(volume, _)| volume.info.name.clone()).unwrap_or_default();
        loop {
            // The task is this one: not to be cancelled.
            match self.delete_trashed(id, Some(term)).await {
                Ok(_) => return log::info!("volume {name} was in the trash for its whole term and is deleted"),
                Err(VolumeError::NotInTrash(_)) => return,
                Err(error) => log::warn!("volume {name} cannot be deleted now: {error}"),
            }
            runtime::sleep(RETRY_WAIT).await;
        }
    }

    /// Lets every core know what an error for lack of space may name.
    pub(super) async fn tell_trash(&self) {
        let text = in_words(&self.trash());
        self.on_all_cores(move |head| {
            let text = text.clone();
            Box::pin(async move { drop(head.in_trash.replace(text)) })
        })
        .await;
    }

    pub(super) fn trashed(&self, volume: &VolumeRecord, term: TrashTerm) -> TrashedVolume {
        let info = VolumeInfo { placed: self.placed(volume.table), ..volume_info(volume) };
        TrashedVolume { info, deleted_at_ns: term.deleted_at_ns, keep_until_ns: term.keep_until_ns }
    }
}

/// `data, logs and 3 others`; nothing if there is nothing.
fn in_words(trash: &[TrashedVolume]) -> String {
    let names: Vec<&str> = trash.iter().take(NAMED_MAX).map(|volume| volume.info.name.as_str()).collect();
    match trash.len().saturating_sub(NAMED_MAX) {
        0 => names.join(", "),
        others => format!("{} and {others} others", names.join(", ")),
    }
}

//! A volume moves to other groups (gathered at a node, or spread over a pool) while it is used.
//!
//! ```text
//!   draft made in the other table, seen by no client                       cluster::create_draft
//!   each snapshot, oldest first: what it holds copied, one like it taken of the draft
//!   again and again: a snapshot of the move's own; what has changed since the last one copied: ever less
//!   nothing more is let in ─► what was let in has ended ─► the last changes copied ─► the two change places   cluster::take_places
//!        (ANA change, as when a head moves)                        └─ it takes too long, or fails: all go on where they were
//!   the head goes on with the volume there; what it left is deleted, as any volume
//! ```
//!
//! The volume is what it was until the one transaction that changes places: a crash, a head that moves, a device that is full
//! before it cost nothing but the copies. A draft that nobody works at is deleted by whoever becomes its head, and so are the
//! snapshots that a move took for itself.
//!
//! No earlier head of the volume writes behind that transaction: its epoch is raised at every group that it leaves, with the
//! snapshots (H4), and in the groups that it comes to nobody of an earlier epoch has ever written.

use super::copier::{Copier, Progress};
use super::raise::Raised;
use super::{Assembly, VolumeError};
use crate::api::{Encryption, IoError, Standing, Volume, VolumeInfo};
use crate::session::Session;
use crate::status::SnapshotMark;
use cluster::{
    CopiedSnapshots, MOVED_SNAPSHOTS_MAX, OWN_SNAPSHOT, Places, Reign, SnapshotRecord, VolumeRecord,
    VolumeState as Life, WantedPlace, create_draft, get, keys, lies_there, place_volume, room_at, snapshots,
    take_places,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use types::{LayerId, Mutant, NodeId, VolumeId, mutant};

/// Bytes of a volume whose groups are asked in one go what has changed, and the extents that come of it.
const ASKED_BYTES: u64 = 64 << 20;
const EXTENTS_MAX: usize = 16_384;
/// So little is left to copy that clients may wait for it.
const LITTLE_BYTES: u64 = 4 << 20;
/// What changes meanwhile is copied so often, at most, before clients wait for the rest of it.
const ROUNDS_MAX: u32 = 20;
/// Clients wait so long for the last changes, at most: with what else a change of places takes it stays below ANATT (10 s).
const LAST_WAIT: Duration = Duration::from_secs(3);
/// So often clients are asked to wait.
const TRIES_MAX: u32 = 5;
/// Between two of these.
const TRY_WAIT: Duration = Duration::from_secs(1);
/// A clean-up that fails is tried again after this, so often.
const CLEAN_WAIT: Duration = Duration::from_secs(1);
const CLEAN_TRIES: u32 = 60;

/// How far a move has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Where it is to lie.
    pub to: String,
    /// Bytes that have been copied: what was written meanwhile is copied more than once.
    pub copied_bytes: u64,
    /// Bytes that it held at the beginning, its snapshots included.
    pub total_bytes: u64,
    /// Wall time of its beginning, ns since 1970.
    pub began_at_ns: u64,
}

/// A move that goes on here.
pub(super) struct Moving {
    to: String,
    progress: Rc<Progress>,
    total_bytes: u64,
    began_at_ns: u64,
}

/// Moves that go on here, by volume; and why the last one of a volume failed.
#[derive(Default)]
pub(super) struct Movings {
    going: RefCell<BTreeMap<VolumeId, Rc<Moving>>>,
    failed: RefCell<BTreeMap<VolumeId, String>>,
}

/// Both ends of a move.
struct Ends {
    /// The volume, and the name that it had when the move began: who renames it meanwhile stops the move.
    id: VolumeId,
    name: String,
    draft: VolumeRecord,
    home: NodeId,
    moving: Rc<Moving>,
}

/// What is copied.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// What a snapshot holds, at the pace of catch-up and scrub.
    Snapshot(&'a str),
    /// What the volume holds, as fast as can be, until it is said to end.
    Live(&'a Rc<Cell<bool>>),
}

/// Whether what this snapshot holds was copied.
fn is_copied(snapshot: &SnapshotRecord, copied: &CopiedSnapshots) -> bool {
    let layer = copied.get(&snapshot.name);
    layer == Some(&snapshot.layer) || layer.is_some() && mutant(Mutant::MovedByName)
}

impl Movings {
    fn of(&self, id: VolumeId) -> Option<Rc<Moving>> {
        self.going.borrow().get(&id).cloned()
    }
}

impl Assembly {
    /// Begins to move a volume to where `wanted` says, while it is used: what it holds is copied, and then it lies there. Returns when
    /// the copying begins; [`relocation`](Self::relocation) says how far it is.
    ///
    /// # Errors
    /// It lies there already, cannot lie there, there is no room for it, it is locked, or it moves already.
    pub async fn relocate_volume(&self, name: &str, wanted: &WantedPlace) -> Result<Relocation, VolumeError> {
        let info = self.mine(name)?;
        let stays = |why: String| VolumeError::Stays { volume: name.to_owned(), why };
        if info.encryption == Encryption::Locked {
            return Err(stays(format!("it is locked: `cairn volume unlock {name}` first")));
        }
        if self.0.movings.of(info.id).is_some() {
            return Err(stays("it is on its way already (`cairn status` says how far)".to_owned()));
        }
        let wanted = WantedPlace { pool: wanted.pool.clone().or(Some(info.pool.to_string())), ..wanted.clone() };
        let home = self.home_near(&wanted).await?;
        let found = get::<VolumeRecord>(&*self.0.map, &keys::volume(info.id)).await?;
        let record = found.ok_or(cluster::CatalogError::Gone(info.id))?.record;
        if lies_there(&*self.0.map, record.table, &wanted, home).await? {
            return Err(stays("it lies there already".to_owned()));
        }
        let place = place_volume(&*self.0.map, &wanted, home).await?;
        let own = snapshots(&*self.0.map, info.id).await?;
        if own.len() > MOVED_SNAPSHOTS_MAX {
            let (most, is) = (MOVED_SNAPSHOTS_MAX, own.len());
            return Err(stays(format!("it has {is} snapshots, and {most} at most move with a volume: delete some")));
        }
        let usage = self.usage().await?.remove(&info.id).unwrap_or_default();
        let total_bytes = usage.unique_bytes + usage.shared_bytes;
        let room = room_at(&*self.0.map, &place).await?;
        // What is full when all is copied takes nothing of anybody else.
        if room < usage.stored_bytes + usage.stored_bytes / 8 {
            let needed = usage.stored_bytes;
            return Err(stays(format!("it takes {needed} bytes, and there is room for {room}: add devices or delete")));
        }
        let by = self.reign_of(&info)?;
        let draft = {
            let _making = self.0.changing.making();
            let draft = create_draft(&*self.0.map, info.id, by, &place).await?;
            let _alone = self.0.changing.one(draft.id).await;
            let moving = Rc::new(Moving {
                to: described(&place),
                progress: Rc::default(),
                total_bytes,
                began_at_ns: runtime::wall_clock_ns(),
            });
            self.0.movings.failed.borrow_mut().remove(&info.id);
            self.0.movings.going.borrow_mut().insert(info.id, moving);
            if let Err(error) = self.add(&draft).await {
                self.0.movings.going.borrow_mut().remove(&info.id);
                self.0.heads.is_looked_at_again(draft.id, &error);
                return Err(error);
            }
            draft
        };
        let moving = self.0.movings.of(info.id).expect("it has just begun");
        let told = moving.told();
        let ends = Ends { id: info.id, name: name.to_owned(), draft, home: place.home, moving };
        let this = self.clone();
        runtime::spawn(async move { this.relocate(ends).await });
        Ok(told)
    }

    /// How far the volume's move is, if it moves.
    pub fn relocation(&self, id: VolumeId) -> Option<Relocation> {
        self.0.movings.of(id).map(|moving| moving.told())
    }

    /// All moves that go on here, by the volume's name.
    pub fn relocations(&self) -> Vec<(String, Relocation)> {
        let volumes = self.0.volumes.borrow();
        let moves = volumes.values().filter_map(|info| Some((info.name.clone(), self.relocation(info.id)?)));
        moves.collect()
    }

    /// How far the volume's move is, if it moves; or why the last one failed that was begun here.
    ///
    /// # Errors
    /// There is no such volume.
    pub fn last_relocation(&self, name: &str) -> Result<Result<Option<Relocation>, String>, VolumeError> {
        let id = self.served(name)?.id;
        let failed = self.0.movings.failed.borrow().get(&id).cloned();
        Ok(failed.map_or_else(|| Ok(self.relocation(id)), Err))
    }

    /// Gives a move up: the volume stays where it is.
    ///
    /// # Errors
    /// It does not move.
    pub fn give_relocation_up(&self, name: &str) -> Result<(), VolumeError> {
        let info = self.mine(name)?;
        let moving = self.0.movings.of(info.id);
        let stays = || VolumeError::Stays { volume: name.to_owned(), why: "it does not move".to_owned() };
        moving.ok_or_else(stays)?.progress.is_given_up.set(true);
        Ok(())
    }

    /// # Errors
    /// The volume is on its way to other groups: what would be deleted is being copied.
    pub(super) fn moves_not(&self, info: &VolumeInfo) -> Result<(), VolumeError> {
        match self.0.movings.of(info.id) {
            None => Ok(()),
            Some(_) => Err(VolumeError::Stays {
                volume: info.name.clone(),
                why: format!("it is being moved: `cairn volume move {} --give-up` first", info.name),
            }),
        }
    }

    /// A draft that this node is the head of and that no move here is about is deleted. Snapshots of a move that is over go with it.
    pub(super) fn delete_left_draft(&self, volume: &VolumeRecord) {
        let Some(of) = volume.draft_of.filter(|_| volume.state == Life::Online) else { return };
        if self.0.movings.of(of).is_none() {
            let (this, name) = (self.clone(), volume.name.clone());
            runtime::spawn(async move { this.delete_draft(&name).await });
        }
    }

    /// Snapshots of moves that are over, of a volume that this node is the head of.
    pub(super) fn delete_left_snapshots(&self, volume: &VolumeRecord) {
        if volume.state == Life::Online && volume.layers.len() > 1 && self.0.movings.of(volume.id).is_none() {
            let (this, id, name) = (self.clone(), volume.id, volume.name.clone());
            runtime::spawn(async move { this.delete_own_snapshots(id, &name).await });
        }
    }

    async fn relocate(&self, ends: Ends) {
        let outcome = self.copy_and_change(&ends).await;
        self.0.movings.going.borrow_mut().remove(&ends.id);
        match outcome {
            // Whether it goes home is decided as for any volume: clients may be here, and reach that node by no path.
            Ok(()) => log::info!("volume {} lies {} from now on", ends.name, ends.moving.to),
            Err(error) => {
                log::warn!("volume {} stays where it is: {error}", ends.name);
                self.0.movings.failed.borrow_mut().insert(ends.id, error.to_string());
                self.delete_draft(&ends.draft.name).await;
                self.delete_own_snapshots(ends.id, &ends.name).await;
            }
        }
    }

    async fn copy_and_change(&self, ends: &Ends) -> Result<(), VolumeError> {
        let to = self.handle(ends.draft.id)?;
        // All that is there, in the order in which it was taken; then what was taken meanwhile, and what was written. Layers say what was
        // copied: a snapshot can be deleted, and another taken under its name.
        let (mut copied, mut own, mut last) = (CopiedSnapshots::new(), None, None);
        let mut rounds = 0;
        for tries in 1.. {
            loop {
                // One that is taken anew again and again is copied once in each round.
                let mut of_round = BTreeSet::new();
                while let Some(next) = self.next_snapshot(ends, &copied, &of_round).await? {
                    let since = self.base(ends, last).await?;
                    match self.copy(ends, Source::Snapshot(&next.name), since, &to).await {
                        Err(_) if !self.is_there(ends, &next).await? => {
                            // It was deleted meanwhile, and a part of what it held is in the draft: everything is copied next.
                            last = Some(LayerId(0));
                            continue;
                        }
                        copied => copied?,
                    };
                    self.create_snapshot(&ends.draft.name, &next.name).await?;
                    last = Some(next.layer);
                    copied.insert(next.name.clone(), next.layer);
                    of_round.insert(next.name);
                }
                rounds += 1;
                let name = format!("{OWN_SNAPSHOT}moving-{rounds}");
                self.take_snapshot(&ends.name, &name).await?;
                let taken = self.layer_of(ends.id, &name).await?;
                let since = self.base(ends, last).await?;
                let copied_bytes = self.copy(ends, Source::Snapshot(&name), since, &to).await?;
                last = Some(taken);
                if let Some(before) = own.replace(name) {
                    self.delete_snapshot(&ends.name, &before).await?;
                }
                if copied_bytes <= LITTLE_BYTES || rounds >= ROUNDS_MAX {
                    break;
                }
            }
            match self.change_places(ends, (last.map(SnapshotMark), &copied), &to).await {
                Ok(()) => return Ok(()),
                Err(error @ (VolumeError::Busy { .. } | VolumeError::Map(cluster::CatalogError::Contended)))
                    if tries < TRIES_MAX =>
                {
                    log::debug!("volume {} does not change places yet: {error}", ends.name);
                    runtime::sleep(TRY_WAIT).await;
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last try has an end")
    }

    /// The oldest of the volume's snapshots that was not copied.
    async fn next_snapshot(
        &self,
        ends: &Ends,
        copied: &CopiedSnapshots,
        but: &BTreeSet<String>,
    ) -> Result<Option<SnapshotRecord>, VolumeError> {
        let there = snapshots(&*self.0.map, ends.draft.id).await?;
        let all = snapshots(&*self.0.map, ends.id).await?;
        // One that was deleted meanwhile is not to come back with the draft, whatever has its name by now.
        for gone in there.iter().filter(|other| !all.iter().any(|one| one.name == other.name && is_copied(one, copied)))
        {
            self.delete_snapshot(&ends.draft.name, &gone.name).await?;
        }
        let is_due = |one: &SnapshotRecord| {
            !one.name.starts_with(OWN_SNAPSHOT) && !is_copied(one, copied) && !but.contains(&one.name)
        };
        let due = all.into_iter().filter(is_due);
        Ok(due.min_by_key(|snapshot| snapshot.layer))
    }

    /// Since when what has changed is to be copied: since the layer that was copied last, if a snapshot names it still. If none does, what
    /// has changed since is not known any more (it may have been left out of the history by a rollback, too): everything. Nothing: nothing
    /// was copied yet.
    async fn base(&self, ends: &Ends, last: Option<LayerId>) -> Result<Option<SnapshotMark>, VolumeError> {
        let Some(last) = last else { return Ok(None) };
        let is_named = snapshots(&*self.0.map, ends.id).await?.iter().any(|snapshot| snapshot.layer == last);
        Ok(Some(SnapshotMark(if is_named { last } else { LayerId(0) })))
    }

    async fn is_there(&self, ends: &Ends, snapshot: &SnapshotRecord) -> Result<bool, VolumeError> {
        let all = snapshots(&*self.0.map, ends.id).await?;
        Ok(all.iter().any(|one| (&one.name, one.layer) == (&snapshot.name, snapshot.layer)))
    }

    async fn layer_of(&self, id: VolumeId, snapshot: &str) -> Result<LayerId, VolumeError> {
        let found = get::<SnapshotRecord>(&*self.0.map, &keys::snapshot(id, snapshot)).await?;
        Ok(found.ok_or_else(|| VolumeError::NoSnapshot(snapshot.to_owned()))?.record.layer)
    }

    fn handle(&self, id: VolumeId) -> Result<Volume, VolumeError> {
        let volume = self.0.head.directory.by_id(id);
        let volume = volume.ok_or(VolumeError::Map(cluster::CatalogError::Gone(id)))?;
        Ok(volume.of_session(&Session::that_moves()))
    }

    /// What the volume, or one of its snapshots, holds and did not hold at `since` goes to the draft. Returns how many bytes that
    /// were.
    async fn copy(
        &self,
        ends: &Ends,
        source: Source<'_>,
        since: Option<SnapshotMark>,
        to: &Volume,
    ) -> Result<u64, VolumeError> {
        let volume = self.handle(ends.id)?;
        let (from, ends_early) = match source {
            Source::Snapshot(name) => {
                (volume.snapshot(name).ok_or_else(|| VolumeError::NoSnapshot(name.to_owned()))?, None)
            }
            Source::Live(ends_early) => (volume.clone(), Some(ends_early.clone())),
        };
        let size = from.size_bytes();
        if to.size_bytes() < size {
            let grown = cluster::VolumeChange::size(size);
            self.change_volume(&ends.draft.name, &grown).await?;
        }
        let marks = Vec::from_iter(since);
        let is_paced = ends_early.is_none();
        let copier = Copier { from, to: to.clone(), progress: ends.moving.progress.clone(), is_paced, ends_early };
        let (mut at, mut copied) = (0, 0);
        while at < size {
            if copier.has_ended() {
                break;
            }
            let asked = ASKED_BYTES.min(size - at);
            let status = copier.from.patiently(|| copier.from.block_status(at, asked, &marks, EXTENTS_MAX));
            let mut pieces = Vec::new();
            for extent in status.await.map_err(|error| stopped(ends, &error))? {
                let (begin, len) = (at, extent.len_bytes);
                at += len;
                match (since.is_none(), extent.is_stored, extent.changed_since) {
                    (true, false, _) | (false, _, 0) => {}
                    (_, is_stored, _) => pieces.push((begin, len, is_stored)),
                }
            }
            copied += pieces.iter().map(|(_, len, _)| len).sum::<u64>();
            copier.pieces(pieces).await.map_err(|error| stopped(ends, &error))?;
        }
        Ok(copied)
    }

    /// Clients wait; the last changes are copied, and the volume lies where its draft did.
    async fn change_places(
        &self,
        ends: &Ends,
        (since, copied): (Option<SnapshotMark>, &CopiedSnapshots),
        to: &Volume,
    ) -> Result<(), VolumeError> {
        let gone = || VolumeError::Map(cluster::CatalogError::Gone(ends.id));
        let again = || VolumeError::Map(cluster::CatalogError::Contended);
        self.raise_everywhere(ends.id).await?;
        let alone = self.0.changing.all(&[ends.id, ends.draft.id]).await;
        let by = self.reign(ends.id).ok_or_else(gone)?;
        let draft_by = self.reign(ends.draft.id).ok_or_else(gone)?;
        let is_raised = self.0.heads.raised(ends.id, by.epoch) == Raised::Everywhere;
        if !is_raised || self.is_being_named(ends.id) || !self.has_all_snapshots(ends, copied).await? {
            return Err(again());
        }
        if !self.0.heads.begins_to_move(ends.id) {
            return Err(again());
        }
        if !mutant(Mutant::MovedWhileUsed) {
            self.stand(ends.id, Standing::Changing).await;
        }
        let ends_early = Rc::new(Cell::new(false));
        let mut last = pin!(async {
            if !mutant(Mutant::MovedWhileUsed) {
                self.until_quiet(ends.id).await?;
            }
            if !mutant(Mutant::LastChangesLeft) {
                self.copy(ends, Source::Live(&ends_early), since, to).await?;
            }
            Ok(())
        });
        let changed = match runtime::timeout(LAST_WAIT, last.as_mut()).await {
            Ok(Ok(())) => {
                let (volume, draft) = ((ends.id, by), (ends.draft.id, draft_by));
                take_places(&*self.0.map, volume, draft, (ends.home, copied)).await
            }
            Ok(Err(error)) => {
                self.stays_here(ends.id, by).await;
                return Err(error);
            }
            Err(_) => {
                self.stays_here(ends.id, by).await;
                // What is under way of it comes to its end, before anybody takes a snapshot: what is written from now on is copied
                // with it, and would be in a snapshot that was taken before; and it would write over what the next round copies.
                ends_early.set(true);
                let _ = last.await;
                drop(alone);
                return Err(VolumeError::Busy { volume: ends.name.clone(), seconds: LAST_WAIT.as_secs() });
            }
        };
        match changed {
            Ok(Places { moved, left }) => {
                self.0.heads.moves_no_more(ends.id);
                // Of the groups that it came to none knows of its head yet.
                self.0.heads.have_raised(ends.id, by.epoch, Raised::At(BTreeSet::new()));
                // As if the volume had come from another node; but in the same reign, so that NBD sessions go on.
                self.serve_taken(&[moved]).await;
                self.take_away(left.id).await;
                self.serve_taken(&[left]).await;
                drop(alone);
                Ok(())
            }
            Err(error) => {
                self.stays_here(ends.id, by).await;
                Err(error.into())
            }
        }
    }

    /// Whether the draft has the snapshots that the volume has, and no others.
    async fn has_all_snapshots(&self, ends: &Ends, copied: &CopiedSnapshots) -> Result<bool, VolumeError> {
        let mut all = snapshots(&*self.0.map, ends.id).await?;
        all.retain(|snapshot| !snapshot.name.starts_with(OWN_SNAPSHOT));
        let there = snapshots(&*self.0.map, ends.draft.id).await?;
        let are_copied = all.iter().all(|snapshot| is_copied(snapshot, copied));
        Ok(are_copied && all.iter().map(|one| &one.name).eq(there.iter().map(|one| &one.name)))
    }

    async fn stays_here(&self, id: VolumeId, by: Reign) {
        self.0.heads.moves_no_more(id);
        if self.reign(id) == Some(by) {
            self.stand(id, Standing::Here).await;
        }
    }

    async fn delete_draft(&self, name: &str) {
        for _ in 0..CLEAN_TRIES {
            match self.delete_draft_once(name).await {
                Ok(()) | Err(VolumeError::NotFound(_) | VolumeError::Elsewhere { .. }) => return,
                Err(error) => log::debug!("the draft {name} cannot be deleted yet: {error}"),
            }
            runtime::sleep(CLEAN_WAIT).await;
        }
    }

    async fn delete_draft_once(&self, name: &str) -> Result<(), VolumeError> {
        let info = self.mine(name)?;
        for snapshot in snapshots(&*self.0.map, info.id).await? {
            self.delete_snapshot(name, &snapshot.name).await?;
        }
        self.delete_volume(name).await
    }

    async fn delete_own_snapshots(&self, id: VolumeId, name: &str) {
        for _ in 0..CLEAN_TRIES {
            if self.0.movings.of(id).is_some() {
                return;
            }
            match self.delete_own_snapshots_once(id, name).await {
                Ok(()) | Err(VolumeError::NotFound(_) | VolumeError::Elsewhere { .. }) => return,
                Err(error) => log::debug!("snapshots of a move of volume {name} cannot be deleted yet: {error}"),
            }
            runtime::sleep(CLEAN_WAIT).await;
        }
    }

    async fn delete_own_snapshots_once(&self, id: VolumeId, name: &str) -> Result<(), VolumeError> {
        for snapshot in snapshots(&*self.0.map, id).await? {
            if snapshot.name.starts_with(OWN_SNAPSHOT) {
                self.delete_snapshot(name, &snapshot.name).await?;
            }
        }
        Ok(())
    }
}

impl Moving {
    fn told(&self) -> Relocation {
        Relocation {
            to: self.to.clone(),
            copied_bytes: self.progress.copied_bytes.get(),
            total_bytes: self.total_bytes,
            began_at_ns: self.began_at_ns,
        }
    }
}

/// Where a volume is to lie, in words.
fn described(place: &cluster::VolumePlace) -> String {
    match place.table {
        Some(_) => format!("gathered at node-{}, in the pool {}", place.home, place.pool),
        None => format!("spread over the pool {}", place.pool),
    }
}

fn stopped(ends: &Ends, error: &IoError) -> VolumeError {
    VolumeError::Stays { volume: ends.name.clone(), why: format!("copying it failed: {error}") }
}

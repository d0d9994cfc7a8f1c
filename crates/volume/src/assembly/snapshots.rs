//! Snapshots, clones, rollbacks and growth: what changes of a volume while hosts use it.
//!
//! A snapshot in four steps: the map gets to know a new, empty layer; the map makes it the volume's top; all cores go on with
//! it at one instant; the map names the old top. No command waits for the map, and none for longer than [`QUIET_WAIT`]. A
//! crash between two steps leaves a layer that nobody wants: one that holds nothing is deleted, the old top is merged away.
//! Nothing is ever written to a layer that is not the volume's in the map. Each group hears of the new layer, and of those
//! below it, with the first command that it takes under it.

use super::changing::Alone;
use super::raise::Raised;
use super::{Assembly, VolumeError};
use crate::api::{Encryption, VolumeInfo};
use crate::gate::Term;
use crate::head::Head;
use crate::snapshot::SnapshotInfo;
use crate::spec::VolumeSpec;
use cluster::{
    CatalogError, LayerRecord, NewTop, OWN_SNAPSHOT, Reign, SnapshotRecord, VolumeChange, VolumeRecord, change_volume,
    check_name, clone_volume, delete_snapshot, keys, name_snapshot, push_layer, roll_back, snapshot, snapshots,
    take_top,
};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{FamilyId, LayerId, Mutant, VolumeId, mutant};

/// A new top that finds the volume changed is made anew, so often in all.
const TOPS_MAX: u32 = 8;
/// A snapshot that cannot get the volume's commands to stand still in this time fails, and I/O goes on.
pub(super) const QUIET_WAIT: Duration = Duration::from_secs(1);

impl Assembly {
    /// Takes a snapshot: what had returned before the call is in it, what is called after it returned is not, and of
    /// what runs meanwhile nothing is in it that depends on something that is not.
    ///
    /// # Errors
    /// If the name is not allowed or taken, or commands hang: then there is no snapshot.
    pub async fn create_snapshot(&self, volume: &str, name: &str) -> Result<SnapshotRecord, VolumeError> {
        check_name(name).map_err(CatalogError::from)?;
        self.take_snapshot(volume, name).await
    }

    /// The same, of a name that nobody else may give.
    pub(super) async fn take_snapshot(&self, volume: &str, name: &str) -> Result<SnapshotRecord, VolumeError> {
        let (info, by, _alone) = self.alone_and_raised(volume).await?;
        match snapshot(&*self.0.map, info.id, name).await {
            Ok(_) => return Err(CatalogError::SnapshotExists(name.to_owned()).into()),
            Err(CatalogError::NoSnapshot(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let old_top = self.top(&info).await?;
        let counts = mutant(Mutant::SnapshotTakesBack);
        let is_quiet = self.go_on_with(async || push_layer(&*self.0.map, info.id, by).await, counts).await?;
        if !is_quiet {
            return Err(VolumeError::NotQuiet { volume: info.name, seconds: QUIET_WAIT.as_secs() });
        }
        // With a name it stays; without one, the new top takes what it holds.
        let taken = name_snapshot(&*self.0.map, info.id, name, old_top, by).await;
        if taken.is_err() {
            // The map may have named it all the same, or do so yet.
            self.0.heads.is_unsure_of_snapshots(info.id);
        }
        if let Err(error) = self.tell_snapshots(info.id, None).await {
            log::warn!("snapshots of {volume} cannot be read before the map answers: {error}");
        }
        Ok(taken?)
    }

    /// The snapshots of a volume, by name.
    pub async fn snapshots(&self, volume: &str) -> Result<Vec<SnapshotRecord>, VolumeError> {
        let info = self.served(volume)?;
        let all = snapshots(&*self.0.map, info.id).await?;
        Ok(all.into_iter().filter(|snapshot| !snapshot.name.starts_with(OWN_SNAPSHOT)).collect())
    }

    /// Deletes a snapshot; what only it held comes back in the background. Who reads it is told that it is gone; when
    /// this returns nobody does.
    pub async fn delete_snapshot(&self, volume: &str, name: &str) -> Result<(), VolumeError> {
        let (info, by, _alone) = self.alone_with(volume).await?;
        snapshot(&*self.0.map, info.id, name).await?;
        // Before the map forgets it: from then on its layer may end, and who still read through it would miss blocks.
        self.tell_snapshots(info.id, Some(name)).await?;
        match delete_snapshot(&*self.0.map, info.id, name, by).await {
            Ok(deleted) => {
                self.leave_in_background(deleted.volume);
                Ok(())
            }
            Err(error) => {
                self.0.heads.is_unsure_of_snapshots(info.id);
                self.tell_snapshots(info.id, None).await?;
                Err(error.into())
            }
        }
    }

    /// Lets every core know the volume's snapshots, all but the one that is `leaving`. Returns when nobody reads others
    /// any more. If it fails they are told when the map answers.
    pub(super) async fn tell_snapshots(&self, id: VolumeId, leaving: Option<&str>) -> Result<(), VolumeError> {
        let told = self.tell_snapshots_now(id, leaving).await;
        if let Err(error) = &told {
            self.0.heads.is_unsure_of_snapshots(id);
            self.0.heads.is_looked_at_again(id, error);
        }
        told
    }

    async fn tell_snapshots_now(&self, id: VolumeId, leaving: Option<&str>) -> Result<(), VolumeError> {
        let mut known: BTreeMap<LayerId, (LayerId, FamilyId)> = BTreeMap::new();
        let mut infos = Vec::new();
        for found in snapshots(&*self.0.map, id).await? {
            if leaving == Some(found.name.as_str()) {
                continue;
            }
            // Snapshots of one history share most of their layers: each record is fetched once.
            let (mut layers, mut next, mut family) = (Vec::new(), found.layer, FamilyId::default());
            while next != LayerId(0) {
                layers.push(next);
                (next, family) = match known.get(&next) {
                    Some(known) => *known,
                    None => {
                        let record = cluster::get::<LayerRecord>(&*self.0.map, &keys::layer(next)).await?;
                        let missing = || VolumeError::NoLayer { volume: found.name.clone(), layer: next };
                        let record = record.ok_or_else(missing)?.record;
                        known.insert(next, (record.parent, record.family));
                        (record.parent, record.family)
                    }
                };
            }
            let SnapshotRecord { name, size_bytes, created_at_ns, .. } = found;
            infos.push(SnapshotInfo { name, size_bytes, created_at_ns, layers: layers.into(), family });
        }
        let infos: Arc<[SnapshotInfo]> = infos.into();
        self.on_all_cores(move |head| {
            let infos = infos.clone();
            Box::pin(async move {
                if let Some(volume) = head.directory.by_id(id) {
                    volume.state.set_snapshots(&infos).await;
                }
            })
        })
        .await;
        Ok(())
    }

    /// Makes the volume hold what the snapshot holds. What was written since is gone; other snapshots stay. Commands
    /// that run meanwhile are as if they had come before. No host may have anything of it in a cache.
    pub async fn roll_back(&self, volume: &str, name: &str) -> Result<(), VolumeError> {
        let (info, by, _alone) = self.alone_and_raised(volume).await?;
        self.go_on_with(async || roll_back(&*self.0.map, info.id, name, by).await, true).await?;
        Ok(())
    }

    /// Makes a volume that begins with what the snapshot holds; every core serves it when this returns.
    pub async fn clone_volume(&self, volume: &str, name: &str, new_name: &str) -> Result<VolumeInfo, VolumeError> {
        let (info, _, _alone) = self.alone_with(volume).await?;
        self.check_free(new_name)?;
        let _making = self.0.changing.making();
        let made = clone_volume(&*self.0.map, info.id, name, new_name, self.0.id).await?;
        let _its = self.0.changing.one(made.id).await;
        self.add(&made).await?;
        self.tell_locked().await;
        self.served(new_name)
    }

    /// Changes what a volume is called, how large it is, or what it may do in a second, while it is in use. Every core
    /// goes on with it as it is then when this returns.
    pub async fn change_volume(&self, volume: &str, change: &VolumeChange) -> Result<VolumeInfo, VolumeError> {
        let (info, by, _alone) = self.alone_with(volume).await?;
        if let Some(name) = change.name.as_ref().filter(|name| **name != info.name) {
            self.check_free(name)?;
        }
        let changed = change_volume(&*self.0.map, info.id, change, by).await?;
        self.refresh(&changed).await?;
        self.tell_locked().await;
        self.served(&changed.name)
    }

    /// A volume that is served here, or would be if it were not locked.
    pub(super) fn served(&self, name: &str) -> Result<VolumeInfo, VolumeError> {
        let found = self.0.volumes.borrow().get(name).cloned();
        found.ok_or_else(|| VolumeError::NotFound(name.to_owned()))
    }

    /// The same, if this node is its head.
    pub(super) fn mine(&self, name: &str) -> Result<VolumeInfo, VolumeError> {
        let info = self.served(name)?;
        match self.0.heads.serves(info.id) {
            true => Ok(info),
            false => Err(VolumeError::Elsewhere { volume: name.to_owned(), head: info.head }),
        }
    }

    /// The same, with the reign in which it is, and nobody else changes the volume.
    pub(super) async fn alone_with(&self, name: &str) -> Result<(VolumeInfo, Reign, Alone), VolumeError> {
        loop {
            let id = self.mine(name)?.id;
            let alone = self.0.changing.one(id).await;
            let info = self.mine(name)?;
            // The name may have become another volume's.
            if alone.is_with(info.id) {
                let by = self.reign_of(&info)?;
                return Ok((info, by, alone));
            }
        }
    }

    /// The reign in which this node is the volume's head.
    pub(super) fn reign(&self, id: VolumeId) -> Option<Reign> {
        self.0.heads.reign(id).map(|epoch| Reign { node: self.0.id, epoch })
    }

    /// # Errors
    /// This node is the head no more.
    pub(super) fn reign_of(&self, info: &VolumeInfo) -> Result<Reign, VolumeError> {
        let elsewhere = || VolumeError::Elsewhere { volume: info.name.clone(), head: info.head };
        self.reign(info.id).ok_or_else(elsewhere)
    }

    /// The same in a reign in which no earlier head writes anything more (H4): what is one instant here is one for all. Raised
    /// outside of the lock, as it may take long; meanwhile this node may have become the head anew, or the name another volume's.
    async fn alone_and_raised(&self, volume: &str) -> Result<(VolumeInfo, Reign, Alone), VolumeError> {
        loop {
            if !mutant(Mutant::SnapshotWithoutRaise) {
                self.raise_everywhere(self.mine(volume)?.id).await?;
            }
            let alone = self.alone_with(volume).await?;
            let (info, by, _) = &alone;
            let is_raised = self.0.heads.raised(info.id, by.epoch) == Raised::Everywhere;
            if is_raised || mutant(Mutant::SnapshotWithoutRaise) {
                return Ok(alone);
            }
        }
    }

    /// # Errors
    /// [`VolumeError::Exists`] if there is a volume of this name.
    pub(super) fn check_free(&self, name: &str) -> Result<(), VolumeError> {
        let there = self.0.volumes.borrow().get(name).cloned();
        there.map_or(Ok(()), |there| Err(VolumeError::Exists(Box::new(there))))
    }

    /// The layer that the volume's commands write to; of a locked volume that which they would write to.
    pub(super) async fn top(&self, info: &VolumeInfo) -> Result<LayerId, VolumeError> {
        if info.encryption != Encryption::Locked {
            return Ok(self.term(info.id)?.spec.top());
        }
        let found = cluster::get::<VolumeRecord>(&*self.0.map, &keys::volume(info.id)).await?;
        found.and_then(|found| found.record.layers.last().copied()).ok_or_else(|| CatalogError::Gone(info.id).into())
    }

    fn term(&self, id: VolumeId) -> Result<Rc<Term>, VolumeError> {
        let volume = self.0.head.directory.by_id(id);
        Ok(volume.ok_or(CatalogError::Gone(id))?.state.gate.term())
    }

    /// Every core goes on with the volume as it is in the map now. Commands that run are left to end as they began:
    /// what they act on is still there.
    /// In another's reign nothing goes on: `see` hears of it.
    pub(super) async fn refresh(&self, volume: &VolumeRecord) -> Result<(), VolumeError> {
        if self.0.heads.serves(volume.id) && !self.0.heads.is_mine(volume) {
            return Ok(());
        }
        let spec = self.spec(volume).await?;
        let id = volume.id;
        {
            let mut volumes = self.0.volumes.borrow_mut();
            volumes.retain(|_, info| info.id != id); // it may have had another name
            volumes.insert(spec.info.name.clone(), spec.info.clone());
        }
        self.on_all_cores(move |head| {
            let spec = spec.clone();
            Box::pin(async move { open(&head, id, spec) })
        })
        .await;
        Ok(())
    }

    /// The volume gets its new top, in the map and on all cores: on these at one instant, nothing runs under what it
    /// was before. Returns false if commands did not end in time: then it goes on all the same, and there was no such
    /// instant.
    ///
    /// # Errors
    /// Nothing has changed. All that can fail comes before the map names the new top, for from then on the cores must
    /// go on with it: what they wrote to another layer would be gone with the next start.
    ///
    /// `takes_back`: what was written before is gone.
    async fn go_on_with(
        &self,
        new_top: impl AsyncFn() -> Result<NewTop, CatalogError>,
        takes_back: bool,
    ) -> Result<bool, VolumeError> {
        let mut attempts = 1..TOPS_MAX;
        let spec = loop {
            let new = new_top().await?;
            // When this change is over, whatever came of it, layers may be left that nobody wants: the old top, or the
            // new one.
            self.leave_in_background(new.volume.id);
            self.tend_in_background(new.volume.family);
            let rollbacks = self.rollbacks(new.volume.id) + u64::from(takes_back);
            let taken = match self.spec_after(&new.volume, rollbacks).await {
                Ok(spec) => take_top(&*self.0.map, &new).await.map(|()| spec).map_err(VolumeError::from),
                Err(error) => Err(error),
            };
            match taken {
                Ok(spec) => break spec,
                // A layer below has just ended, under another node's hand.
                Err(VolumeError::NoLayer { .. } | VolumeError::Map(CatalogError::Contended))
                    if attempts.next().is_some() => {}
                Err(error) => return Err(error),
            }
        };
        if mutant(Mutant::SnapshotOldLayer) {
            return Ok(true);
        }
        self.0.rollbacks.borrow_mut().insert(spec.info.id, spec.rollbacks);
        self.0.volumes.borrow_mut().insert(spec.info.name.clone(), spec.info.clone());
        Ok(self.open_all(spec).await)
    }

    /// All cores go on with the volume as `spec` says, at one instant, if commands end in time.
    async fn open_all(&self, spec: Arc<VolumeSpec>) -> bool {
        let id = spec.info.id;
        if mutant(Mutant::SnapshotCoreByCore) {
            self.on_all_cores(move |head| {
                let spec = spec.clone();
                Box::pin(async move {
                    close(&head, &[id]).await;
                    open(&head, id, spec);
                })
            })
            .await;
            return true;
        }
        // If not all have ended in time, no layer ends that the rest write to: the gates know it (`written_to`).
        let ended = self.on_all_cores(move |head| Box::pin(async move { close(&head, &[id]).await }));
        let is_quiet = runtime::timeout(QUIET_WAIT, ended).await.is_ok();
        self.on_all_cores(move |head| {
            let spec = spec.clone();
            Box::pin(async move { open(&head, id, spec) })
        })
        .await;
        is_quiet
    }
}

/// Closes the gates of these volumes on this core; returns when nothing of them runs here, nor is left of what ran.
pub(super) async fn close(head: &Rc<Head>, volumes: &[VolumeId]) {
    let known = volumes.iter().filter_map(|id| head.directory.by_id(*id));
    let closed: Vec<Rc<Term>> = known.map(|volume| volume.state.gate.close()).collect();
    for term in closed {
        term.end().await;
    }
    for id in volumes {
        head.strays.end(*id).await;
        // What a command left behind may yet change what it wrote to: that would be no instant.
        if !mutant(Mutant::InstantOverOrphans) {
            head.orphans_end(*id).await;
        }
    }
}

/// Opens the volume's gate on this core.
pub(super) fn open(head: &Rc<Head>, id: VolumeId, spec: Arc<VolumeSpec>) {
    let Some(volume) = head.directory.by_id(id) else { return };
    let before = volume.state.gate.term();
    let is_told = |info: &VolumeInfo| (info.name.clone(), info.size_bytes, info.hosts.clone());
    let is_other = is_told(&spec.info) != is_told(&before.spec.info);
    volume.state.open(head, spec);
    if is_other {
        head.directory.sort();
        head.directory.bump();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeOptions;
    use crate::admission::Access;
    use crate::command::serve;
    use crate::head::VolumeState;
    use crate::message::Request;
    use crate::part::{Part, Work};
    use cluster::{NewVolume, SimMap};
    use runtime::buf::IoBuf;
    use runtime::sim::{DiskFaults, DiskOptions, NodeOptions as SimNodeOptions, World};
    use std::cell::Cell;
    use std::path::{Path, PathBuf};
    use types::{ChunkId, NodeId};

    const DISK: &str = "/disk";

    /// Another core has the volume already, this one not yet: a part from there hangs here, outside of the gate. Until
    /// it has ended there is no snapshot, and the layer that it writes to stays.
    #[test]
    fn a_part_that_came_before_its_volume_is_waited_for() {
        let world = World::new(1);
        let node = world.add_node(1, SimNodeOptions::default());
        node.add_disk(DISK, 256 << 20, DiskOptions::default());
        let (cores, map) = (node.cores(), SimMap::new());
        let options = NodeOptions {
            node: NodeId(1),
            address: (node.ip(), 0).into(),
            cores,
            devices: vec![PathBuf::from(DISK)],
            blank: crate::Blank::Format,
            map,
        };
        let (assembly, spec) = run(&world, &node, async move {
            let assembly = Assembly::start(options).await.expect("the node starts");
            let limits = cluster::Limits::default();
            let new = NewVolume {
                name: "v".to_owned(),
                size_bytes: 1 << 20,
                block_size_bytes: 512,
                limits,
                hosts: Default::default(),
            };
            let id = assembly.create_volume(new).await.expect("made").id;
            let volume = assembly.directory().by_name("v").expect("served");
            volume.write(0, crate::Payload { bytes: IoBuf::copy_of(&[1; 4096]).freeze() }).await.expect("written");
            runtime::sleep(Duration::from_secs(1)).await;
            let spec = assembly.term(id).expect("served").spec.clone();
            // As it is on a core that has not been told of it.
            VolumeState::remove(&assembly.0.head, id).await;
            VolumeState::forget(&assembly.0.head, id);
            (assembly, spec)
        });

        let (head, done) = (assembly.0.head.clone(), Rc::new(Cell::new(false)));
        let disk = node.disk(Path::new(DISK)).expect("there");
        disk.set_faults(DiskFaults { hang: 1_000_000, ..DiskFaults::default() });
        {
            let (head, spec, done) = (head.clone(), spec.clone(), done.clone());
            node.spawn(0, async move {
                // Part of a block: the rest of it is read, and that hangs.
                let bytes = IoBuf::copy_of(&[2; 512]).freeze();
                let work = Work::Write(bytes);
                let part = Part {
                    chunk: ChunkId(0),
                    offset: 512,
                    len: 512,
                    snapshot: None,
                    compared: None,
                    waits: false,
                    epoch: spec.epoch,
                    work,
                };
                let place = spec.place_of(ChunkId(0));
                let reply = serve(head, Request::AdmitAndRun { spec, place, access: Access::Write, part }).await;
                assert!(reply.done().result.is_ok(), "written");
                done.set(true);
            });
        }
        world.run_for(Duration::from_micros(50));
        disk.set_faults(DiskFaults::default());

        let (taking, told) = (assembly.clone(), spec.clone());
        let taken = run(&world, &node, async move {
            VolumeState::add(&taking.0.head, told, crate::Standing::Here);
            let taken = taking.create_snapshot("v", "s").await;
            runtime::sleep(Duration::from_secs(4)).await;
            taken
        });
        assert!(matches!(taken, Err(VolumeError::NotQuiet { .. })), "{taken:?}");
        assert!(!done.get());
        disk.set_hanging(false);
        world.run_for(Duration::from_secs(4));
        assert!(done.get());
        run(&world, &node, async move {
            let volume = assembly.directory().by_name("v").expect("served");
            let read = volume.read(0, 4096).await.expect("readable");
            assert_eq!((read.bytes[0], read.bytes[512], read.bytes[1024]), (1, 2, 1));
            assert_eq!(volume.info().layers.len(), 1, "what nobody named has ended");
        });
    }

    fn run<T: 'static>(world: &World, node: &runtime::sim::SimNode, future: impl Future<Output = T> + 'static) -> T {
        world.run_on(node, 0, future).expect("the world goes on")
    }
}

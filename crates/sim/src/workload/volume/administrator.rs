//! An administrator who takes snapshots of the volume that all clients use, looks at them, makes clones that are
//! written to, rolls back, lets the volume grow, and deletes and restores what he made, in any order: layers are merged
//! under the clients' feet.
//!
//! What a snapshot holds is read through a clone before anybody writes to that, whenever that is: it must be what there
//! was at one instant while the snapshot was taken.

use super::client::{Clients, spawn_on_core};
use super::door::{Door, Trouble};
use super::machine::{Serving, VOLUME};
use super::model::{CloneVolume, Life, Size, Snapshot, Subject};
use super::profile;
use checker::history::{Action, Value};
use runtime::random_u64;
use std::sync::Arc;
use std::time::Duration;
use types::BLOCK_BYTES;
use volume::{Assembly, VolumeChange, VolumeError};

/// Snapshots there may be at once.
const MOST_SNAPSHOTS: usize = 5;
/// Clones that are written to.
const MOST_CLONES: usize = 2;

/// One who is at work on a node that serves.
pub struct Administrator {
    assembly: Assembly,
    clients: Arc<Clients>,
    cores: u64,
}

/// How an action ended that was not done.
enum Stop {
    /// An answer that says so, or that nobody knows.
    Refused(VolumeError),
    /// What it should have read could not be read.
    Unreadable(Trouble),
}

impl From<VolumeError> for Stop {
    fn from(error: VolumeError) -> Self {
        Self::Refused(error)
    }
}

impl Administrator {
    pub fn new(serving: &Serving, clients: &Arc<Clients>) -> Self {
        let cores = clients.profile.cores as u64;
        Self { assembly: serving.assembly.clone(), clients: clients.clone(), cores }
    }

    /// Goes on until clients are stopped.
    pub async fn run(self) {
        let clones = self.clients.ledger().model.served_clones();
        for subject in clones {
            self.use_clone(subject);
        }
        while !self.clients.stopped() {
            let done = self.act().await;
            self.judge(done);
            runtime::sleep(Duration::from_micros(random_u64() % 2000)).await;
        }
        self.clients.end();
    }

    async fn act(&self) -> Result<(), Stop> {
        let profile = self.clients.profile;
        let snapshot = some(&self.clients.ledger().model.snapshots_there());
        match (random_u64() % 16, snapshot) {
            (0..3, _) if profile.grows => self.grow().await,
            _ if !profile.snapshots => Ok(()),
            (3..7, _) => self.take().await,
            (7..10, Some(name)) => self.look(&name).await,
            (10 | 11, Some(name)) => self.roll_back(&name).await,
            (12 | 13, Some(name)) => self.delete_snapshot(&name).await,
            (14, Some(name)) => self.ask_in_vain(&name).await,
            _ => self.move_clone().await,
        }
    }

    async fn take(&self) -> Result<(), Stop> {
        let (name, operation) = {
            let ledger = &mut *self.clients.ledger();
            if ledger.model.snapshots.len() >= MOST_SNAPSHOTS {
                return Ok(());
            }
            let (name, window) = (ledger.model.new_name("s"), self.clients.profile.window());
            let action = Action::Snapshot(vec![None; self.clients.profile.blocks as usize]);
            let operation = ledger.history.start(action, window.start, self.clients.profile.blocks as u32);
            ledger.model.snapshots.insert(name.clone(), Snapshot { operation, life: Life::Asked });
            (name, operation)
        };
        let taken = self.assembly.create_snapshot(VOLUME, &name).await;
        {
            let ledger = &mut *self.clients.ledger();
            match &taken {
                Ok(_) => {
                    ledger.history.done(operation);
                    ledger.model.snapshots.insert(name.clone(), Snapshot { operation, life: Life::There });
                    ledger.counts.snapshots += 1;
                }
                Err(VolumeError::NotQuiet { .. }) => {
                    ledger.history.refused(operation);
                    ledger.model.snapshots.remove(&name);
                }
                Err(_) => {}
            }
        }
        taken?;
        match random_u64() % 2 {
            0 => self.look(&name).await,
            _ => Ok(()),
        }
    }

    /// Looks at all of a snapshot, or at a part; the clone that shows it may stay, to be written to.
    async fn look(&self, name: &str) -> Result<(), Stop> {
        let Some(operation) = self.snapshot(name) else { return Ok(()) };
        let all = random_u64().is_multiple_of(2);
        let (clone, seen) = self.read_through_clone(name, all).await?;
        let stays = {
            let ledger = &mut *self.clients.ledger();
            let values = ledger.history.held(operation);
            let room = ledger.model.clones.len() <= MOST_CLONES;
            match values.filter(|_| seen.is_ok() && room && random_u64().is_multiple_of(2)) {
                Some(values) => {
                    let window = self.clients.profile.window();
                    let place = clone.place(window.start);
                    let id = ledger.history.start(Action::Restore(values), place, self.clients.profile.blocks as u32);
                    ledger.history.done(id);
                    ledger.model.clones.get_mut(&clone.name).expect("just made").life = Life::There;
                    ledger.counts.clones += 1;
                    true
                }
                None => false,
            }
        };
        match stays {
            true => self.use_clone(clone),
            false => self.delete_clone(&clone.name).await?,
        }
        seen.map_err(Stop::Unreadable)
    }

    /// Makes a clone and reads it, and notes what the snapshot holds. The clone is there in any case, unless it was not
    /// made.
    async fn read_through_clone(&self, name: &str, all: bool) -> Result<(Subject, Result<(), Trouble>), Stop> {
        let clone = {
            let model = &mut self.clients.ledger().model;
            let clone_name = model.new_name("c");
            let subject = model.new_subject(&clone_name);
            let copy = CloneVolume { subject: subject.clone(), size_bytes: 0, life: Life::Asked, trashed: None };
            model.clones.insert(clone_name, copy);
            subject
        };
        let info = self.assembly.clone_volume(VOLUME, name, &clone.name).await?;
        self.clients.ledger().model.clones.get_mut(&clone.name).expect("just asked for").size_bytes = info.size_bytes;
        let Size { asked_bytes, .. } = self.clients.ledger().model.size;
        if info.size_bytes > asked_bytes {
            self.clients.fail("model", format!("{} is larger than the volume ever was", clone.name));
        }
        let units = self.clients.units(info.size_bytes);
        let part = match all {
            true => &units[..],
            false => &units[random_u64() as usize % units.len()..][..1],
        };
        let lock = self.clients.lock();
        let seen = match Door::core(&self.assembly.directory(), &clone.name, lock) {
            Some(door) => self.see(name, &door, part, all).await,
            None if !lock.is_open() => Err(Trouble::Locked),
            None => Err(Trouble::Gone("it was just made".to_owned())),
        };
        Ok((clone, seen))
    }

    /// What the snapshot holds in these blocks; with `all`, and nothing beyond.
    async fn see(&self, name: &str, door: &Door, units: &[(u64, u64)], all: bool) -> Result<(), Trouble> {
        let window = self.clients.profile.window();
        for &(first, count) in units {
            if let Some(values) = self.clients.values(door, first, count).await? {
                self.note_seen(name, (first - window.start) as usize, &values);
            }
        }
        let end = units.last().map_or(window.start, |(first, count)| first + count);
        if all {
            // The volume was not larger then: what it came to hold there later is nothing at first.
            self.note_seen(name, (end - window.start) as usize, &vec![Value::ZERO; (window.end - end) as usize]);
        }
        Ok(())
    }

    fn note_seen(&self, name: &str, from: usize, values: &[Value]) {
        let Some(operation) = self.snapshot(name) else { return };
        let seen = self.clients.ledger().history.seen(operation, from, values);
        if let Err(changed) = seen {
            self.clients.fail("snapshot", format!("{name}: {changed}"));
        }
    }

    fn snapshot(&self, name: &str) -> Option<checker::history::OperationId> {
        Some(self.clients.ledger().model.snapshots.get(name)?.operation)
    }

    /// Looks at all of every snapshot: the end of a run.
    pub async fn look_at_all(self) {
        let snapshots = self.clients.ledger().model.snapshots_there();
        for name in snapshots {
            let seen = async {
                let (clone, seen) = self.read_through_clone(&name, true).await?;
                self.delete_clone(&clone.name).await?;
                seen.map_err(Stop::Unreadable)
            };
            let seen = seen.await;
            self.judge(seen);
        }
        self.clients.end();
    }

    async fn roll_back(&self, name: &str) -> Result<(), Stop> {
        let Some(operation) = self.snapshot(name) else { return Ok(()) };
        let Some(values) = self.clients.ledger().history.held(operation) else { return self.look(name).await };
        let window = self.clients.profile.window();
        let id = {
            let blocks = self.clients.profile.blocks as u32;
            self.clients.ledger().history.start(Action::Restore(values), window.start, blocks)
        };
        self.assembly.roll_back(VOLUME, name).await?;
        let ledger = &mut *self.clients.ledger();
        ledger.history.done(id);
        ledger.counts.rollbacks += 1;
        Ok(())
    }

    async fn delete_snapshot(&self, name: &str) -> Result<(), Stop> {
        self.set_life(name, Life::Going);
        self.assembly.delete_snapshot(VOLUME, name).await?;
        self.clients.ledger().model.snapshots.remove(name);
        Ok(())
    }

    fn set_life(&self, name: &str, life: Life) {
        let model = &mut self.clients.ledger().model;
        if let Some(snapshot) = model.snapshots.get_mut(name) {
            snapshot.life = life;
        }
        if let Some(clone) = model.clones.get_mut(name) {
            clone.life = life;
        }
    }

    async fn delete_clone(&self, name: &str) -> Result<(), VolumeError> {
        // One that nobody was to use may be there or not, and was only asked for.
        if self.clients.ledger().model.clones[name].life != Life::Asked {
            self.set_life(name, Life::Going);
        }
        self.assembly.delete_volume(name).await?;
        let ledger = &mut *self.clients.ledger();
        ledger.model.clones.remove(name);
        ledger.counts.deletions += 1;
        Ok(())
    }

    fn use_clone(&self, clone: Subject) {
        let core = (random_u64() % self.cores) as usize;
        spawn_on_core(self.clients.clone(), &self.assembly, core, clone, |clients, door, subject| async move {
            clients.run(&door, &subject).await;
        });
    }

    /// Deletes a clone, puts it into the trash, or takes it out of there, for use or for good.
    async fn move_clone(&self) -> Result<(), Stop> {
        let settled: Vec<CloneVolume> = {
            let ledger = self.clients.ledger();
            ledger.model.clones.values().filter(|copy| copy.life == Life::There).cloned().collect()
        };
        let Some(CloneVolume { subject, trashed, .. }) = some(&settled) else { return Ok(()) };
        let name = &subject.name;
        match (trashed, random_u64() % 2) {
            (None, 0) => self.delete_clone(name).await?,
            (None, _) => {
                self.set_life(name, Life::Moving);
                let there = self.assembly.trash_volume(name).await?.info.id;
                self.left(name, Some(there));
                self.clients.ledger().counts.deletions += 1;
            }
            (Some(id), 0) => {
                self.set_life(name, Life::Going);
                self.assembly.empty_trash(id).await?;
                self.clients.ledger().model.clones.remove(name);
            }
            (Some(id), _) => {
                self.set_life(name, Life::Moving);
                self.assembly.restore_volume(id, None).await?;
                self.left(name, None);
                self.use_clone(subject);
            }
        }
        Ok(())
    }

    fn left(&self, name: &str, trashed: Option<types::VolumeId>) {
        let copy = CloneVolume { life: Life::There, trashed, ..self.clients.ledger().model.clones[name].clone() };
        self.clients.ledger().model.clones.insert(name.to_owned(), copy);
    }

    async fn grow(&self) -> Result<(), Stop> {
        let Size { sure_bytes, asked_bytes } = self.clients.ledger().model.size;
        let left = (self.clients.profile.most_bytes() - sure_bytes) / BLOCK_BYTES as u64;
        if left == 0 || asked_bytes > sure_bytes {
            return Ok(());
        }
        let bytes = sure_bytes + (1 + random_u64() % left.div_ceil(2)) * BLOCK_BYTES as u64;
        self.clients.ledger().model.size.asked_bytes = bytes;
        let grown = self.assembly.change_volume(VOLUME, &VolumeChange::size(bytes)).await?;
        if grown.size_bytes != bytes {
            self.clients.fail("model", format!("the volume grew to {} bytes, not {bytes}", grown.size_bytes));
        }
        let ledger = &mut *self.clients.ledger();
        ledger.model.size.sure_bytes = bytes;
        ledger.counts.growths += 1;
        Ok(())
    }

    /// What must be refused, and change nothing.
    async fn ask_in_vain(&self, name: &str) -> Result<(), Stop> {
        let sure_bytes = self.clients.ledger().model.size.sure_bytes;
        let (what, answer) = match random_u64() % 4 {
            0 => ("a snapshot of a name that is taken", self.assembly.create_snapshot(VOLUME, name).await.map(drop)),
            1 => ("a volume with a snapshot is deleted", self.assembly.delete_volume(VOLUME).await),
            2 => ("a rollback to nothing", self.assembly.roll_back(VOLUME, "never").await),
            _ => {
                let smaller = sure_bytes - BLOCK_BYTES as u64;
                (
                    "a volume becomes smaller",
                    self.assembly.change_volume(VOLUME, &VolumeChange::size(smaller)).await.map(drop),
                )
            }
        };
        match answer {
            Ok(()) => self.clients.fail("model", what),
            Err(
                VolumeError::SnapshotExists(_)
                | VolumeError::HasSnapshots(_)
                | VolumeError::NoSnapshot(_)
                | VolumeError::Smaller { .. },
            ) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// What was asked for is known to be possible: only a disk that fails, or the end of the node, may prevent it.
    fn judge(&self, done: Result<(), Stop>) {
        match done {
            Ok(()) => {}
            Err(Stop::Unreadable(trouble)) => self.clients.judge(&Subject::judged(), &trouble),
            Err(Stop::Refused(error)) => {
                let disk_fails = self.clients.profile.trouble == profile::Trouble::Disk;
                if !disk_fails && !self.clients.is_closing() && !self.clients.ledger().rotten {
                    self.clients.fail("error", error);
                }
            }
        }
    }
}

fn some<T: Clone>(of: &[T]) -> Option<T> {
    (!of.is_empty()).then(|| of[random_u64() as usize % of.len()].clone())
}

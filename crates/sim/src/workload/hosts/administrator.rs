//! An administrator: snapshots while clients write, looks at them, clones, rollbacks, growth, the trash. He asks the
//! head, which may not be one any more, or die; what he was told counts, and what he was not told may be so or not.

use super::ledger::{Ledger, Subject};
use super::machine::Machine;
use super::moves::Homes;
use crate::workload::cluster::story::tell;
use checker::history::{Action, OperationId, Value};
use runtime::{now, random_u64, sleep};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{CHUNK_BYTES, NodeId};
use volume::{Assembly, IoError, Standing, VolumeChange, VolumeError};

/// Longest that an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked whether there is one.
const LOOK: Duration = Duration::from_millis(5);
/// Snapshots of one volume, and clones of all.
const SNAPSHOTS_MAX: usize = 4;
const CLONES_MAX: usize = 3;
/// Times that a volume grows by a chunk.
const GROWTH_MAX: u64 = 3;
/// Between two of his acts, on average.
const PAUSE_MS: u64 = 1_500;
/// Until nobody uses a volume that goes.
const LEAVING: Duration = Duration::from_secs(10);

/// A snapshot, as far as he knows.
#[derive(Clone, Copy)]
pub(super) struct Snapshot {
    pub operation: OperationId,
    pub life: Life,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It was asked for.
    Asked,
    There,
    /// It was asked to go.
    Going,
}

/// What he knows of a volume.
pub(super) struct Known {
    pub subject: Rc<Subject>,
    pub snapshots: BTreeMap<String, Snapshot>,
    is_clone: bool,
    /// At least, and at most.
    size_bytes: (u64, u64),
    /// Where it may be at home, if it was sent anywhere.
    pub homes: Homes,
}

/// See the module.
pub struct Administrator {
    pub(super) ledger: Rc<Ledger>,
    machines: RefCell<Vec<Rc<Machine>>>,
    pub(super) known: RefCell<Vec<Known>>,
    /// Snapshots of several volumes that he was not told of: all of them are there in the end, or none.
    pub(super) together: RefCell<Vec<Vec<String>>>,
}

/// Why he has no answer that counts.
#[derive(Debug)]
pub enum NotDone {
    /// It was refused, or nobody knows.
    Refused(VolumeError),
    /// Nobody answered.
    Lost,
}

impl Administrator {
    pub fn new(ledger: &Rc<Ledger>, machines: &[Rc<Machine>]) -> Rc<Self> {
        let (known, together) = (RefCell::default(), RefCell::default());
        Rc::new(Self { ledger: ledger.clone(), machines: RefCell::new(machines.to_vec()), known, together })
    }

    /// The nodes that there are.
    pub(super) fn machines(&self) -> Vec<Rc<Machine>> {
        self.machines.borrow().clone()
    }

    /// There are others from now on.
    pub(super) fn goes_by(&self, machines: &[Rc<Machine>]) {
        *self.machines.borrow_mut() = machines.to_vec();
    }

    /// Volumes that he knows.
    pub(super) fn count(&self) -> usize {
        self.known.borrow().len()
    }

    pub fn knows(&self, subject: &Rc<Subject>, size_bytes: u64, is_clone: bool) {
        let known = Known {
            subject: subject.clone(),
            snapshots: BTreeMap::new(),
            is_clone,
            size_bytes: (size_bytes, size_bytes),
            homes: Homes::default(),
        };
        self.known.borrow_mut().push(known);
    }

    /// Goes on until clients are stopped, as one of machine number `machine`.
    pub async fn run(self: Rc<Self>, machine: usize) {
        while !self.ledger.stop.get() {
            let number = random_u64() as usize % self.known.borrow().len();
            if let Err(why) = self.act(number).await {
                tell(format_args!("administrator: {why:?}"));
            }
            sleep(Duration::from_millis(random_u64() % (2 * PAUSE_MS))).await;
        }
        self.ledger.end(machine);
    }

    async fn act(&self, number: usize) -> Result<(), NotDone> {
        match (random_u64() % 16, self.some_snapshot(number)) {
            (0..4, _) => self.take(number).await,
            (4 | 5, _) => self.take_together().await,
            (6..10, Some(name)) => self.look(number, &name).await,
            (10, Some(name)) => self.roll_back(number, &name).await,
            (11, Some(name)) => self.delete_snapshot(number, &name).await,
            (12 | 13, Some(name)) => self.clone_of(number, &name).await,
            (14, _) => self.grow(number).await,
            _ => self.delete_clone(number).await,
        }
    }

    pub(super) fn subject(&self, number: usize) -> Rc<Subject> {
        self.known.borrow()[number].subject.clone()
    }

    fn some_snapshot(&self, number: usize) -> Option<String> {
        let known = self.known.borrow();
        let there = known[number].snapshots.iter().filter(|(_, snapshot)| snapshot.life == Life::There);
        let there: Vec<&String> = there.map(|(name, _)| name).collect();
        there.get(random_u64() as usize % there.len().max(1)).map(|name| (*name).clone())
    }

    pub(super) fn set_life(&self, number: usize, name: &str, life: Life) {
        self.known.borrow_mut()[number].snapshots.get_mut(name).expect("it is known").life = life;
    }

    pub(super) fn may_have_another(&self, number: usize) -> bool {
        self.known.borrow()[number].snapshots.len() < SNAPSHOTS_MAX
    }

    async fn take(&self, number: usize) -> Result<(), NotDone> {
        let subject = self.subject(number);
        if !self.may_have_another(number) {
            return Ok(());
        }
        let (name, volume) = (self.ledger.new_name("s"), subject.name.clone());
        let operation = self.start(Action::Snapshot(vec![None; self.ledger.profile.blocks as usize]), &subject);
        self.known.borrow_mut()[number].snapshots.insert(name.clone(), Snapshot { operation, life: Life::Asked });
        let asked = name.clone();
        let taken = self
            .ask(&volume, move |assembly, volume| {
                let asked = asked.clone();
                async move { assembly.create_snapshot(&volume, &asked).await.map(drop) }
            })
            .await;
        match taken {
            Ok(()) => {
                self.ledger.history.borrow_mut().done(operation);
                self.set_life(number, &name, Life::There);
                self.ledger.counts.borrow_mut().snapshots += 1;
                tell(format_args!("administrator: snapshot {volume}@{name}"));
                if random_u64().is_multiple_of(2) { self.look(number, &name).await } else { Ok(()) }
            }
            Err(NotDone::Refused(error @ VolumeError::NotQuiet { .. })) => {
                self.ledger.history.borrow_mut().refused(operation);
                self.known.borrow_mut()[number].snapshots.remove(&name);
                Err(NotDone::Refused(error))
            }
            Err(why) => Err(why),
        }
    }

    pub(super) fn start(&self, action: Action, subject: &Subject) -> OperationId {
        let profile = &self.ledger.profile;
        self.ledger.start(action, subject, (profile.first_block, profile.blocks))
    }

    /// Reads all of a snapshot at the head.
    pub(super) async fn look(&self, number: usize, name: &str) -> Result<(), NotDone> {
        let subject = self.subject(number);
        let operation = self.known.borrow()[number].snapshots[name].operation;
        let units: Vec<(u64, u32)> = self
            .ledger
            .units()
            .iter()
            .map(|(first, count)| (self.ledger.bytes(*first), self.ledger.bytes(*count) as u32))
            .collect();
        let name = name.to_owned();
        let (asked, wanted) = (name.clone(), units.clone());
        let found = self
            .ask(&subject.name, move |assembly, volume| read_snapshot(assembly, volume, asked.clone(), wanted.clone()))
            .await?;
        let Some(pieces) = found else { return Ok(()) };
        for ((first, _), bytes) in self.ledger.units().into_iter().zip(pieces) {
            if let Some(values) = self.ledger.values(&subject, first, &bytes) {
                let from = (first - self.ledger.profile.first_block) as usize;
                self.ledger.seen(&format!("{}@{name}", subject.name), operation, from, &values);
            }
        }
        Ok(())
    }

    fn held(&self, number: usize, name: &str) -> Option<Vec<Value>> {
        let operation = self.known.borrow()[number].snapshots.get(name)?.operation;
        self.ledger.history.borrow().held(operation)
    }

    async fn roll_back(&self, number: usize, name: &str) -> Result<(), NotDone> {
        let Some(values) = self.held(number, name) else { return self.look(number, name).await };
        let subject = self.subject(number);
        let id = self.start(Action::Restore(values), &subject);
        let name = name.to_owned();
        tell(format_args!("administrator: {} goes back to {name}", subject.name));
        self.ask(&subject.name, move |assembly, volume| {
            let name = name.clone();
            async move { assembly.roll_back(&volume, &name).await.map(drop) }
        })
        .await?;
        self.ledger.history.borrow_mut().done(id);
        self.ledger.counts.borrow_mut().rollbacks += 1;
        Ok(())
    }

    async fn delete_snapshot(&self, number: usize, name: &str) -> Result<(), NotDone> {
        let volume = self.subject(number).name.clone();
        self.set_life(number, name, Life::Going);
        let asked = name.to_owned();
        self.ask(&volume, move |assembly, volume| {
            let asked = asked.clone();
            async move { assembly.delete_snapshot(&volume, &asked).await }
        })
        .await?;
        self.known.borrow_mut()[number].snapshots.remove(name);
        Ok(())
    }

    /// A clone begins with what the snapshot holds, and has a history of its own.
    async fn clone_of(&self, number: usize, name: &str) -> Result<(), NotDone> {
        let Some(values) = self.held(number, name) else { return self.look(number, name).await };
        if self.known.borrow().iter().filter(|known| known.is_clone).count() >= CLONES_MAX {
            return Ok(());
        }
        let (volume, snapshot) = (self.subject(number).name.clone(), name.to_owned());
        let clone_name = self.ledger.new_name("c");
        let asked = clone_name.clone();
        let info = self
            .ask(&volume, move |assembly, volume| {
                let (snapshot, asked) = (snapshot.clone(), asked.clone());
                async move { assembly.clone_volume(&volume, &snapshot, &asked).await }
            })
            .await?;
        let subject = self.ledger.new_subject(&clone_name, info.nsid);
        let id = self.start(Action::Restore(values), &subject);
        self.ledger.history.borrow_mut().done(id);
        self.ledger.counts.borrow_mut().clones += 1;
        self.knows(&subject, info.size_bytes, true);
        self.ledger.add(subject);
        Ok(())
    }

    async fn grow(&self, number: usize) -> Result<(), NotDone> {
        let (sure, asked) = self.known.borrow()[number].size_bytes;
        if asked >= self.ledger.profile.volume_bytes() + GROWTH_MAX * CHUNK_BYTES {
            return Ok(());
        }
        let bytes = sure.max(asked) + CHUNK_BYTES;
        self.known.borrow_mut()[number].size_bytes = (sure, bytes);
        let volume = self.subject(number).name.clone();
        self.ask(&volume, move |assembly, volume| async move {
            assembly.change_volume(&volume, &VolumeChange::size(bytes)).await
        })
        .await?;
        self.known.borrow_mut()[number].size_bytes = (bytes, bytes);
        self.ledger.counts.borrow_mut().growths += 1;
        Ok(())
    }

    /// A clone that nobody uses any more goes, or lies in the trash for a moment.
    async fn delete_clone(&self, number: usize) -> Result<(), NotDone> {
        let subject = self.subject(number);
        let has_snapshots = !self.known.borrow()[number].snapshots.is_empty();
        if !self.known.borrow()[number].is_clone || has_snapshots {
            return Ok(());
        }
        subject.is_leaving.set(true);
        let until = now() + LEAVING;
        while subject.is_used() && !until.since(now()).is_zero() {
            sleep(LOOK).await;
        }
        if subject.is_used() {
            subject.is_leaving.set(false);
            return Ok(());
        }
        if random_u64().is_multiple_of(2) {
            return self.trash_for_a_moment(&subject).await;
        }
        // Whether it is there is not known from now on, unless it is said that it is gone.
        self.known.borrow_mut().remove(number);
        self.ledger.remove(&subject);
        self.ask(&subject.name, |assembly, volume| async move { assembly.delete_volume(&volume).await }).await?;
        self.ledger.counts.borrow_mut().deletions += 1;
        Ok(())
    }

    async fn trash_for_a_moment(&self, subject: &Rc<Subject>) -> Result<(), NotDone> {
        let name = subject.name.clone();
        let trashed = self.ask(&name, |assembly, volume| async move { assembly.trash_volume(&volume).await }).await;
        let restored = match trashed {
            Ok(trashed) => {
                let id = trashed.info.id;
                self.ledger.counts.borrow_mut().deletions += 1;
                self.ask(&name, move |assembly, _| async move { assembly.restore_volume(id, None).await })
                    .await
                    .map(drop)
            }
            Err(why) => Err(why),
        };
        match restored {
            Ok(()) => subject.is_leaving.set(false),
            // It may lie there, or not: nobody uses it any more.
            Err(_) => {
                self.known.borrow_mut().retain(|known| !Rc::ptr_eq(&known.subject, subject));
                self.ledger.remove(subject);
            }
        }
        restored
    }

    /// Asks the node that serves the volume, and the next one if it is another by then.
    pub async fn ask<T: 'static, F: Future<Output = Result<T, VolumeError>> + 'static>(
        &self,
        volume: &str,
        ask: impl Fn(Assembly, String) -> F,
    ) -> Result<T, NotDone> {
        let until = now() + PATIENCE;
        loop {
            let head =
                self.head_of(volume).or_else(|| self.machines().into_iter().find(|one| one.assembly().is_some()));
            if let Some(machine) = head {
                let answer = self.ask_at(&machine, volume, &ask, PATIENCE).await?;
                match answer {
                    Ok(done) => return Ok(done),
                    Err(VolumeError::Elsewhere { .. }) if !until.since(now()).is_zero() => {}
                    Err(error) => return Err(NotDone::Refused(error)),
                }
            }
            if until.since(now()).is_zero() {
                return Err(NotDone::Lost);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Who says that it serves the volume.
    fn head_of(&self, volume: &str) -> Option<Rc<Machine>> {
        let says_so = |machine: &Rc<Machine>| standing(machine, volume) == Some(Standing::Here);
        self.machines().into_iter().find(says_so)
    }

    /// Has a node do something, and waits for its answer for as long as it lives.
    pub(super) async fn ask_at<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        machine: &Rc<Machine>,
        volume: &str,
        ask: &impl Fn(Assembly, String) -> F,
        patience: Duration,
    ) -> Result<T, NotDone> {
        let (Some(assembly), life) = (machine.assembly(), machine.starts()) else { return Err(NotDone::Lost) };
        let slot = Rc::new(RefCell::new(None));
        let (answer, asked) = (slot.clone(), ask(assembly, volume.to_owned()));
        machine.node.spawn(0, async move {
            let answered = asked.await;
            *answer.borrow_mut() = Some(answered);
        });
        let until = now() + patience;
        loop {
            if let Some(answer) = slot.borrow_mut().take() {
                return Ok(answer);
            }
            if !machine.node.is_up() || machine.starts() != life || until.since(now()).is_zero() {
                return Err(NotDone::Lost);
            }
            sleep(LOOK).await;
        }
    }

    /// All is whole: what he was told is so. What he was not told is found out, and every snapshot is read.
    pub async fn look_at_all(self: Rc<Self>, machine: usize) {
        let count = self.known.borrow().len();
        let mut there = BTreeSet::new();
        for number in 0..count {
            match self.look_at_one(number).await {
                Ok(found) => there.extend(found),
                Err(why) => {
                    let name = self.subject(number).name.clone();
                    self.ledger.fail("model", format!("{name}, when all was whole: {why:?}"));
                }
            }
        }
        self.all_or_none(&there);
        self.ledger.end(machine);
    }

    /// Returns the names of its snapshots.
    async fn look_at_one(&self, number: usize) -> Result<Vec<String>, NotDone> {
        let subject = self.subject(number);
        let found =
            self.ask(&subject.name, |assembly, volume| async move { assembly.snapshots(&volume).await }).await?;
        let found: Vec<String> = found.into_iter().map(|snapshot| snapshot.name).collect();
        let known: Vec<(String, Snapshot)> =
            self.known.borrow()[number].snapshots.iter().map(|(name, one)| (name.clone(), *one)).collect();
        if let Some(stray) = found.iter().find(|name| !known.iter().any(|(known, _)| known == *name)) {
            self.ledger.fail("model", format!("snapshot {}@{stray} is there, which was deleted", subject.name));
        }
        for (name, Snapshot { operation, life }) in known {
            let is_there = found.contains(&name);
            match life {
                Life::There if !is_there => {
                    self.ledger.fail("model", format!("snapshot {}@{name} was taken and is not there", subject.name));
                }
                Life::Asked => {
                    let mut history = self.ledger.history.borrow_mut();
                    history.over(operation);
                    history.found_out(operation, is_there);
                }
                Life::There | Life::Going => {}
            }
            if is_there {
                self.look(number, &name).await?;
            }
        }
        let (sure, asked) = self.known.borrow()[number].size_bytes;
        let info = self
            .ask(&subject.name, |assembly, volume| async move {
                let info = assembly.volumes().into_iter().find(|info| info.name == volume);
                info.ok_or(VolumeError::NotFound(volume))
            })
            .await?;
        if !(sure..=asked).contains(&info.size_bytes) {
            let message = format!("{} has {} bytes, not {sure} (or {asked})", subject.name, info.size_bytes);
            self.ledger.fail("model", message);
        }
        Ok(found)
    }
}

/// Where the volume is served, as a node says that is up.
pub fn standing(machine: &Machine, volume: &str) -> Option<Standing> {
    if !machine.node.is_up() {
        return None;
    }
    let assembly = machine.assembly()?;
    machine.node.look(0, || assembly.directory().by_name(volume).map(|volume| volume.standing()))
}

/// Whom a node holds for the head, if it knows the volume.
pub fn head_said(machine: &Machine, volume: &str) -> Option<NodeId> {
    let assembly = machine.assembly().filter(|_| machine.node.is_up())?;
    machine.node.look(0, || assembly.volumes().into_iter().find(|info| info.name == volume).map(|info| info.head))
}

/// What a snapshot holds, piece by piece; nothing, if it could not be read now.
async fn read_snapshot(
    assembly: Assembly,
    volume: String,
    name: String,
    pieces: Vec<(u64, u32)>,
) -> Result<Option<Vec<Vec<u8>>>, VolumeError> {
    let elsewhere = || VolumeError::Elsewhere { volume: volume.clone(), head: NodeId(0) };
    let held = assembly.directory().by_name(&volume).ok_or_else(elsewhere)?;
    let snapshot = held.snapshot(&name).ok_or_else(elsewhere)?;
    let mut found = Vec::new();
    for (offset, len) in pieces {
        match snapshot.read(offset, len).await {
            Ok(read) => found.push(read.bytes.to_vec()),
            Err(IoError::Elsewhere(_)) => return Err(elsewhere()),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(found))
}

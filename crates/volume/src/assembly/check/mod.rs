//! Whether all copies of everything agree: each is read from its device, and its sums are compared with those of the others.
//!
//! ```text
//!   who was asked ── which leaves have you of group 7? ──────────────► each member in sync
//!                 ── read these 32, and say what they are ───────────►   reads every block, compares its checksum
//!                 ◄─ last entry, digest of contents, or what is wrong ─
//!                 those that differ: asked again, as they may be being written to
//! ```
//!
//! It goes on beside clients, at the pace of scrub. A digest covers what a leaf says of each block, and the checksum of its
//! bytes: two that are the same and were read hold the same. What cannot be read is noted by its member, and mended as what
//! scrub finds. What was not compared, as a member is away or being brought up to date, is told like what differs: only if
//! nothing is told do all copies agree.

mod copies;
mod message;

use super::{Assembly, Node, VolumeError};
use cluster::{DeviceRecord, GroupRecord, VolumeRecord, get, keys, list};
use message::{Answer, Asked, HELD_MAX, Leaf, Question};
use replication::HeldLeaf;
use replication::node::{Parcel, Service};
use runtime::channel::cross;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;
use types::{ChunkId, GroupId, LayerId, Mutant, NodeId, StoreId, mutant};

const SERVICE: Service = Service(5);
/// Groups that are looked at at once.
const GROUPS_AT_ONCE: usize = 4;
/// What is told one by one; of more it is told how many.
const FINDINGS_MAX: usize = 256;
/// What differs is asked for again, so often: the members have what is written now one after the other.
const TRIES: u32 = 40;
const TRY_WAIT: Duration = Duration::from_millis(100);
/// A group whose members change meanwhile is looked at anew, so often.
const GROUP_TRIES: u32 = 3;
/// Longest wait for an answer. Reading 32 leaves is 32 MiB, at the pace that clients leave.
const PATIENCE: Duration = Duration::from_secs(120);

/// How far a check is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Of this pool alone.
    pub pool: Option<String>,
    /// Groups in all.
    pub groups: usize,
    /// Those that were looked at.
    pub groups_done: usize,
    /// Copies of them.
    pub copies: usize,
    /// Chunks that were compared; in each layer by itself.
    pub chunks: u64,
    /// Blocks that were read from devices for that, of all copies.
    pub blocks_read: u64,
    /// What was found; the first so many.
    pub findings: Vec<CheckFinding>,
    /// How much more was found.
    pub more_findings: u64,
    /// It has come to its end.
    pub is_over: bool,
    /// Why it has not looked at everything.
    pub failed: Option<String>,
}

impl Check {
    /// Everything was looked at, and every copy of every block agrees.
    pub fn all_agree(&self) -> bool {
        self.is_over && self.failed.is_none() && self.findings.is_empty() && self.groups_done == self.groups
    }
}

/// A copy that does not agree, or of which nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFinding {
    /// Of which group.
    pub group: GroupId,
    /// Whose copy; `None`: those that differ from each other.
    pub store: Option<StoreId>,
    /// Where, if it is not about the whole copy.
    pub leaf: Option<(LayerId, ChunkId)>,
    /// Volumes that are read there.
    pub volumes: Vec<String>,
    /// What.
    pub fault: CheckFault,
}

/// What is wrong with a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckFault {
    /// The copies are not the same: last entry and digest of each.
    Differs(Vec<(StoreId, u64, u128)>),
    /// It cannot be read.
    Unreadable(String),
    /// It was written to all the time: not compared.
    Changing,
    /// It was not looked at.
    NotLookedAt(String),
}

/// A member's copy, and where it is.
#[derive(Clone, Copy)]
struct Copy {
    store: StoreId,
    node: NodeId,
}

/// The members of a group are others by now.
struct Changed;

impl Assembly {
    /// Begins to compare all copies, of one pool or of all. Returns false if that is under way.
    pub fn begin_check(&self, pool: Option<String>) -> bool {
        let mut check = self.0.check.borrow_mut();
        if check.as_ref().is_some_and(|check| !check.borrow().is_over) {
            return false;
        }
        let progress = Rc::new(RefCell::new(Check { pool, ..Check::default() }));
        *check = Some(progress.clone());
        let this = self.clone();
        let runs = runtime::spawn(async move {
            let outcome = this.check(&progress).await;
            let outcome = outcome.and(this.name_volumes(&progress).await);
            let mut progress = progress.borrow_mut();
            progress.failed = outcome.err().map(|error| error.to_string());
            progress.is_over = true;
        });
        self.0.tasks.borrow_mut().push(runs);
        true
    }

    /// How far the last check is that was begun here.
    pub fn last_check(&self) -> Option<Check> {
        self.0.check.borrow().as_ref().map(|check| check.borrow().clone())
    }

    async fn check(&self, progress: &Rc<RefCell<Check>>) -> Result<(), VolumeError> {
        let pool = progress.borrow().pool.clone();
        let mut due = list::<GroupRecord>(&*self.0.map, keys::GROUPS).await?;
        due.retain(|found| pool.as_ref().is_none_or(|pool| found.record.pool == *pool));
        progress.borrow_mut().groups = due.len();
        let due = Rc::new(RefCell::new(due.into_iter().map(|found| found.record.id).collect::<Vec<_>>()));
        let (told, mut all_told) = cross(GROUPS_AT_ONCE);
        for _ in 0..GROUPS_AT_ONCE {
            let (this, due, progress, told) = (self.clone(), due.clone(), progress.clone(), told.clone());
            let works = runtime::spawn(async move {
                let outcome = this.check_next(&due, &progress).await;
                let _ = told.try_send(outcome);
            });
            self.0.tasks.borrow_mut().push(works);
        }
        drop(told);
        let mut outcome = Ok(());
        while let Ok(of_one) = all_told.recv().await {
            outcome = outcome.and(of_one);
        }
        outcome
    }

    /// Which volumes are read where something was found.
    async fn name_volumes(&self, progress: &RefCell<Check>) -> Result<(), VolumeError> {
        if progress.borrow().findings.is_empty() {
            return Ok(());
        }
        let volumes = list::<VolumeRecord>(&*self.0.map, keys::VOLUMES).await?;
        for finding in &mut progress.borrow_mut().findings {
            let Some((layer, _)) = finding.leaf else { continue };
            let is_read = volumes.iter().filter(|found| found.record.layers.contains(&layer));
            finding.volumes = is_read.map(|found| found.record.name.clone()).collect();
        }
        Ok(())
    }

    /// Looks at groups until none is due.
    async fn check_next(&self, due: &RefCell<Vec<GroupId>>, progress: &RefCell<Check>) -> Result<(), VolumeError> {
        loop {
            let Some(group) = due.borrow_mut().pop() else { return Ok(()) };
            let mut tries = 0;
            while self.check_group(group, progress, tries + 1 == GROUP_TRIES).await?.is_err() {
                tries += 1;
            }
            progress.borrow_mut().groups_done += 1;
        }
    }

    /// What is found is told when the members have been the same all the while, or this is the last time.
    async fn check_group(
        &self,
        group: GroupId,
        progress: &RefCell<Check>,
        is_last: bool,
    ) -> Result<Result<(), Changed>, VolumeError> {
        let map = &*self.0.map;
        // It may have gone with its pool.
        let Some(record) = get::<GroupRecord>(map, &keys::group(group)).await? else { return Ok(Ok(())) };
        let record = record.record;
        let devices = list::<DeviceRecord>(map, keys::DEVICES).await?;
        let node_of = |store: StoreId| devices.iter().find(|found| found.record.store == store);
        let mut looking = Looking { group, progress, copies: Vec::new(), findings: Vec::new(), is_last };
        for &store in &record.members {
            match node_of(store) {
                _ if !record.in_sync.contains(&store) => {
                    looking.not_looked_at(store, "it is being brought up to date");
                }
                None => looking.not_looked_at(store, "its device is not in the map"),
                Some(found) => looking.copies.push(Copy { store, node: found.record.node }),
            }
        }
        let leaves = match self.all_leaves(&mut looking).await {
            Ok(leaves) => leaves,
            Err(Changed) => return Ok(Err(Changed)),
        };
        for part in leaves.into_iter().collect::<Vec<_>>().chunks(HELD_MAX) {
            if let Err(Changed) = self.compare(&mut looking, part).await {
                return Ok(Err(Changed));
            }
        }
        if !looking.findings.is_empty() && !is_last {
            let now = get::<GroupRecord>(map, &keys::group(group)).await?.map(|found| found.record);
            let is_same = |now: GroupRecord| (now.members, now.in_sync) == (record.members, record.in_sync);
            if !now.is_some_and(is_same) {
                return Ok(Err(Changed));
            }
        }
        looking.tell();
        Ok(Ok(()))
    }

    /// What any of the copies has. One that does not answer is looked at no further.
    async fn all_leaves(&self, looking: &mut Looking<'_>) -> Result<BTreeSet<Leaf>, Changed> {
        let mut leaves = BTreeSet::new();
        for copy in looking.copies.clone() {
            let mut after = (LayerId(0), ChunkId(0));
            loop {
                match self.ask_copy(looking.group, copy, Asked::Leaves { after }).await {
                    Ok(Answer::Leaves { leaves: more, is_more }) => {
                        after = more.last().copied().unwrap_or(after);
                        leaves.extend(more);
                        if !is_more {
                            break;
                        }
                    }
                    answer => {
                        looking.fails(copy, answer)?;
                        break;
                    }
                }
            }
        }
        Ok(leaves)
    }

    /// Reads some leaves of all copies, and compares them. Two that have the same last entry and not the same contents differ for
    /// good; others may be on their way.
    async fn compare(&self, looking: &mut Looking<'_>, leaves: &[Leaf]) -> Result<(), Changed> {
        let (mut due, mut before) = (leaves.to_vec(), BTreeMap::new());
        looking.progress.borrow_mut().chunks += leaves.len() as u64;
        for tries in 1..=TRIES {
            let mut differ = self.read_all(looking, &due).await?;
            for (leaf, held) in differ.extract_if(.., |_, held| differs_for_good(held)) {
                looking.found(None, Some(leaf), differs(&held));
            }
            if differ.is_empty() {
                break;
            }
            if tries == TRIES {
                for (leaf, held) in &differ {
                    let is_quiet = before.get(leaf) == Some(held);
                    looking.found(None, Some(*leaf), if is_quiet { differs(held) } else { CheckFault::Changing });
                }
                break;
            }
            due = differ.keys().copied().collect();
            before = differ;
            runtime::sleep(TRY_WAIT).await;
        }
        Ok(())
    }

    /// Those of which the copies differ, with what each holds.
    async fn read_all(
        &self,
        looking: &mut Looking<'_>,
        leaves: &[Leaf],
    ) -> Result<BTreeMap<Leaf, Vec<(StoreId, HeldLeaf)>>, Changed> {
        let (told, mut all_told) = cross(looking.copies.len().max(1));
        for &copy in &looking.copies {
            let (this, told, group) = (self.clone(), told.clone(), looking.group);
            let asked = Asked::Held(leaves.to_vec());
            runtime::spawn(async move {
                let answer = this.ask_copy(group, copy, asked).await;
                let _ = told.try_send((copy, answer));
            });
        }
        drop(told);
        let mut of_leaves: BTreeMap<Leaf, Vec<(StoreId, HeldLeaf)>> = BTreeMap::new();
        while let Ok((copy, answer)) = all_told.recv().await {
            let held = match answer {
                Ok(Answer::Held(held)) if held.len() == leaves.len() => held,
                answer => {
                    looking.fails(copy, answer)?;
                    continue;
                }
            };
            for (leaf, held) in leaves.iter().zip(held) {
                match held {
                    Ok(held) => {
                        of_leaves.entry(*leaf).or_default().push((copy.store, held));
                        looking.progress.borrow_mut().blocks_read += u64::from(held.stored_blocks);
                    }
                    Err(why) => looking.found(Some(copy.store), Some(*leaf), CheckFault::Unreadable(why)),
                }
            }
        }
        let differ = |held: &[(StoreId, HeldLeaf)]| held.iter().any(|(_, other)| other.digest != held[0].1.digest);
        of_leaves.retain(|_, held| differ(held) && !mutant(Mutant::CopiesNotCompared));
        of_leaves.values_mut().for_each(|held| held.sort_unstable_by_key(|(store, _)| *store));
        Ok(of_leaves)
    }

    async fn ask_copy(&self, group: GroupId, copy: Copy, asked: Asked) -> Result<Answer, String> {
        let question = Question { store: copy.store, group, asked };
        if copy.node == self.0.id {
            return Ok(self.answer_check(question).await);
        }
        let call = self.0.groups.first_core().call(copy.node, SERVICE, Parcel::of(question.encode()));
        match runtime::timeout(PATIENCE, call).await {
            Ok(Ok(answer)) => Answer::of(&answer).ok_or_else(|| format!("node {} answers something else", copy.node)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("node {} does not answer", copy.node)),
        }
    }

    /// Answers other nodes from now on.
    pub(super) fn answer_checks(&self) {
        let node: Weak<Node> = Rc::downgrade(&self.0);
        self.0.groups.first_core().answer_calls(
            SERVICE,
            Rc::new(move |_, parcel| {
                let node = node.clone();
                Box::pin(async move {
                    match (node.upgrade(), Question::decode(&parcel.head)) {
                        (Some(node), Some(question)) => Assembly(node).answer_check(question).await.parcel(),
                        // What it answers then is none, and who asks says so.
                        _ => Parcel::of(Vec::new()),
                    }
                })
            }),
        );
    }
}

/// What each store holds of a leaf.
type HeldBy = [(StoreId, HeldLeaf)];

fn differs_for_good(held: &HeldBy) -> bool {
    let is_other = |one: &HeldLeaf, other: &HeldLeaf| one.last_seq == other.last_seq && one.digest != other.digest;
    held.iter().any(|(_, one)| held.iter().any(|(_, other)| is_other(one, other)))
}

fn differs(held: &HeldBy) -> CheckFault {
    CheckFault::Differs(held.iter().map(|(store, held)| (*store, held.last_seq.0, held.digest)).collect())
}

/// A group that is being looked at.
struct Looking<'a> {
    group: GroupId,
    progress: &'a RefCell<Check>,
    copies: Vec<Copy>,
    findings: Vec<CheckFinding>,
    /// It is not looked at once more.
    is_last: bool,
}

impl Looking<'_> {
    fn found(&mut self, store: Option<StoreId>, leaf: Option<Leaf>, fault: CheckFault) {
        self.findings.push(CheckFinding { group: self.group, store, leaf, volumes: Vec::new(), fault });
    }

    fn not_looked_at(&mut self, store: StoreId, why: &str) {
        self.found(Some(store), None, CheckFault::NotLookedAt(why.to_owned()));
    }

    /// A copy that does not say what it holds.
    fn fails(&mut self, copy: Copy, answer: Result<Answer, String>) -> Result<(), Changed> {
        let why = match answer {
            Ok(Answer::NoMember) if !self.is_last => return Err(Changed),
            Ok(Answer::NoMember) => "it does not take part in the group".to_owned(),
            Ok(_) => format!("node {} answers something else", copy.node),
            Err(why) => why,
        };
        self.copies.retain(|other| other.store != copy.store);
        self.not_looked_at(copy.store, &why);
        Ok(())
    }

    fn tell(self) {
        let mut progress = self.progress.borrow_mut();
        progress.copies += self.copies.len();
        for finding in self.findings {
            if let (CheckFault::Differs(copies), Some((layer, chunk))) = (&finding.fault, finding.leaf) {
                let of = |(store, last_entry, digest)| format!("store {store}: entry {last_entry}, {digest:032x}");
                let copies: Vec<String> = copies.iter().copied().map(of).collect();
                log::error!(
                    "group {}: copies of chunk {chunk} of layer {layer} differ: {}",
                    self.group,
                    copies.join("; ")
                );
            }
            match progress.findings.len() < FINDINGS_MAX {
                true => progress.findings.push(finding),
                false => progress.more_findings += 1,
            }
        }
    }
}

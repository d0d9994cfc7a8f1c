//! The volumes that one core serves.

use crate::api::Volume;
use crate::clients::{self, Clients, HostHere};
use crate::head::Head;
use runtime::channel::WaitList;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use types::VolumeId;

#[derive(Default)]
struct Listed {
    /// By name.
    volumes: RefCell<Vec<Volume>>,
    /// Place of a namespace id; at most 1,024 of them.
    by_nsid: RefCell<Vec<Option<Volume>>>,
    generation: Cell<u64>,
    changed: WaitList,
    locked: RefCell<Arc<BTreeSet<String>>>,
    head: RefCell<Weak<Head>>,
    clients: Clients,
}

/// The volumes that one core serves. Clones share it.
#[derive(Clone, Default)]
pub struct Directory(Rc<Listed>);

impl Directory {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The volume of this name.
    pub fn by_name(&self, name: &str) -> Option<Volume> {
        let volumes = self.0.volumes.borrow();
        let found = volumes.binary_search_by(|volume| volume.name().as_str().cmp(name));
        found.ok().map(|index| &volumes[index]).filter(|volume| !volume.is_draft()).cloned()
    }

    /// The volume of this NVMe namespace id.
    pub fn by_nsid(&self, nsid: u32) -> Option<Volume> {
        self.0.by_nsid.borrow().get(nsid as usize).cloned().flatten()
    }

    /// Whether there is a volume of this name that nobody can use until its key is given.
    pub fn is_locked(&self, name: &str) -> bool {
        self.0.locked.borrow().contains(name)
    }

    /// Names of the volumes that nobody can use until their keys are given.
    pub fn locked(&self) -> Arc<BTreeSet<String>> {
        self.0.locked.borrow().clone()
    }

    pub(crate) fn set_locked(&self, names: Arc<BTreeSet<String>>) {
        self.0.locked.replace(names);
    }

    /// All volumes that clients may see, by name.
    pub fn list(&self) -> Vec<Volume> {
        self.0.volumes.borrow().iter().filter(|volume| !volume.is_draft()).cloned().collect()
    }

    /// All volumes, by name.
    pub(crate) fn all(&self) -> Vec<Volume> {
        self.0.volumes.borrow().clone()
    }

    /// Counts up with every change of the list or of a volume's info.
    pub fn generation(&self) -> u64 {
        self.0.generation.get()
    }

    /// Resolves when [`generation`](Self::generation) has left `seen`.
    pub async fn changed(&self, seen: u64) {
        let listed = self.0.clone();
        listed.changed.until(|| (listed.generation.get() != seen).then_some(())).await;
    }

    /// Returns when every command called on this core so far has its place in the order of its chunk, also where that
    /// is another core's: nothing called later, on any core, comes before it.
    pub async fn fence(&self) {
        let head = self.0.head.borrow().upgrade();
        if let Some(head) = head {
            head.fence().await;
        }
    }

    /// An NVMe host has a controller here, until what is returned is dropped. `open_by_default`: it may use a volume of which
    /// nobody has said which hosts may. Told to the first core's directory, which knows all hosts of the node.
    pub fn host_came(&self, nqn: &str, open_by_default: bool) -> HostHere {
        HostHere::new(self, nqn, open_by_default)
    }

    /// Whether a host should be told nothing yet of which volumes there are, and where they are served: one that it may use is on
    /// its way to this node.
    pub fn awaits(&self, nqn: &str) -> bool {
        clients::awaits(self, nqn)
    }

    /// Resolves when it may be told, in some seconds at most.
    pub async fn until_reached(&self, nqn: &str) {
        clients::until_reached(self, nqn).await;
    }

    pub(crate) fn clients(&self) -> &Clients {
        &self.0.clients
    }

    pub(crate) fn belongs_to(&self, head: &Rc<Head>) {
        self.0.head.replace(Rc::downgrade(head));
    }

    pub(crate) fn add(&self, volume: Volume) {
        let nsid = volume.nsid() as usize;
        {
            let mut volumes = self.0.volumes.borrow_mut();
            let place = volumes.partition_point(|other| other.name() < volume.name());
            volumes.insert(place, volume.clone());
            let mut by_nsid = self.0.by_nsid.borrow_mut();
            if by_nsid.len() <= nsid {
                by_nsid.resize(nsid + 1, None);
            }
            by_nsid[nsid] = Some(volume);
        }
        self.bump();
    }

    pub(crate) fn remove(&self, id: VolumeId) -> Option<Volume> {
        let removed = {
            let mut volumes = self.0.volumes.borrow_mut();
            let place = volumes.iter().position(|volume| volume.id() == id)?;
            let removed = volumes.remove(place);
            self.0.by_nsid.borrow_mut()[removed.nsid() as usize] = None;
            removed
        };
        self.bump();
        Some(removed)
    }

    /// Volumes have other names: the list is in their order again.
    pub(crate) fn sort(&self) {
        self.0.volumes.borrow_mut().sort_by_key(Volume::name);
    }

    /// The volume of this id.
    pub(crate) fn by_id(&self, id: VolumeId) -> Option<Volume> {
        self.0.volumes.borrow().iter().find(|volume| volume.id() == id).cloned()
    }

    /// Something of a volume has changed that hosts are told.
    pub(crate) fn bump(&self) {
        self.0.generation.set(self.0.generation.get() + 1);
        self.0.changed.wake_all();
    }
}

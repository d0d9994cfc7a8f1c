//! Who uses volumes through this node: NVMe hosts that have a controller here, volumes that NBD clients have open. Kept on the
//! first core, where admin queues live and the assembly does; other cores tell it by message.

use crate::directory::Directory;
use crate::head::Head;
use runtime::channel::WaitList;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::time::Duration;
use types::{Mutant, NodeId, VolumeId, mutant};

/// A host waits so long for the list of its namespaces, at most: then it is told what there is, and what follows by an event.
const REACHED_WAIT: Duration = Duration::from_secs(5);
/// Between two looks at whether it waits for anything.
const LOOK_WAIT: Duration = Duration::from_millis(20);

/// Whether a host of this name has to wait for a volume that is on its way here.
type Awaits = Rc<dyn Fn(&str) -> bool>;
/// Gives a volume that nobody has open to a node that has a client of it; says whether it did.
type Gives = Rc<dyn Fn(VolumeId, NodeId) -> Pin<Box<dyn Future<Output = bool>>>>;

/// See the module.
#[derive(Default)]
pub(crate) struct Clients {
    hosts: RefCell<BTreeMap<String, usize>>,
    opened: RefCell<BTreeMap<VolumeId, usize>>,
    /// Volumes of other nodes that NBD clients wait for.
    wanted: RefCell<BTreeMap<VolumeId, usize>>,
    open_by_default: Cell<bool>,
    /// Hosts that have left.
    left: Cell<u64>,
    generation: Cell<u64>,
    changed: WaitList,
    /// Set where somebody fetches volumes for hosts.
    awaits: RefCell<Option<Awaits>>,
    gives: RefCell<Option<Gives>>,
}

impl Clients {
    /// The hosts that are here, by name.
    pub(crate) fn hosts(&self) -> Vec<String> {
        self.hosts.borrow().keys().cloned().collect()
    }

    /// Volumes that NBD clients have open.
    pub(crate) fn opened(&self) -> Vec<VolumeId> {
        self.opened.borrow().keys().copied().collect()
    }

    /// Whether every host may use a volume of which nobody has said which may.
    pub(crate) fn open_by_default(&self) -> bool {
        self.open_by_default.get()
    }

    /// How many hosts have left.
    pub(crate) fn left(&self) -> u64 {
        self.left.get()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Resolves when there are others than at `seen`.
    pub(crate) async fn changed(&self, seen: u64) {
        self.changed.until(|| (self.generation.get() != seen).then_some(())).await;
    }

    /// Who says from now on which hosts have to wait.
    pub(crate) fn are_fetched_for(&self, awaits: Option<Awaits>) {
        self.awaits.replace(awaits);
    }

    /// Who gives volumes away from now on.
    pub(crate) fn are_given_by(&self, gives: Option<Gives>) {
        self.gives.replace(gives);
    }

    /// Gives a volume that is served here, and nobody has open, to a node that has a client of it. Says whether it did.
    pub(crate) async fn gives(&self, volume: VolumeId, to: NodeId) -> bool {
        let gives = self.gives.borrow().clone();
        match gives {
            Some(gives) => gives(volume, to).await,
            None => false,
        }
    }

    /// Whether an NBD client waits for the volume.
    pub(crate) fn wants(&self, volume: VolumeId) -> bool {
        self.wanted.borrow().contains_key(&volume)
    }

    fn awaits(&self, nqn: &str) -> bool {
        let awaits = self.awaits.borrow().clone();
        awaits.is_some_and(|awaits| awaits(nqn))
    }

    fn count<K: Ord>(&self, counts: &RefCell<BTreeMap<K, usize>>, key: K, comes: bool) {
        let mut counts = counts.borrow_mut();
        let count = counts.entry(key).or_default();
        *count = if comes { *count + 1 } else { count.saturating_sub(1) };
        counts.retain(|_, count| *count > 0);
        drop(counts);
        self.generation.set(self.generation.get() + 1);
        self.changed.wake_all();
    }

    fn opens(&self, volume: VolumeId, comes: bool) {
        self.count(&self.opened, volume, comes);
    }
}

/// An NVMe host has a controller here, until this is dropped.
pub struct HostHere {
    directory: Directory,
    nqn: String,
}

impl HostHere {
    pub(crate) fn new(directory: &Directory, nqn: &str, open_by_default: bool) -> Self {
        let clients = directory.clients();
        clients.open_by_default.set(open_by_default);
        clients.count(&clients.hosts, nqn.to_owned(), true);
        Self { directory: directory.clone(), nqn: nqn.to_owned() }
    }
}

impl Drop for HostHere {
    fn drop(&mut self) {
        if mutant(Mutant::EndedControllerCounts) {
            return;
        }
        let clients = self.directory.clients();
        clients.left.set(clients.left.get() + 1);
        clients.count(&clients.hosts, std::mem::take(&mut self.nqn), false);
    }
}

/// An NBD client has a volume open, until this is dropped.
pub struct Opening {
    head: Weak<Head>,
    volume: VolumeId,
}

impl Opening {
    pub(crate) fn new(head: &Rc<Head>, volume: VolumeId) -> Self {
        tell(head, volume, true);
        Self { head: Rc::downgrade(head), volume }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(head) = self.head.upgrade() {
            tell(&head, self.volume, false);
        }
    }
}

/// An NBD client waits for a volume of another node, until this is dropped.
pub(crate) struct Wanting(Weak<Head>, VolumeId);

impl Wanting {
    pub(crate) fn new(head: &Rc<Head>, volume: VolumeId) -> Self {
        Self::tell(head, volume, true);
        Self(Rc::downgrade(head), volume)
    }

    fn tell(head: &Rc<Head>, volume: VolumeId, comes: bool) {
        let count = move |clients: &Clients| clients.count(&clients.wanted, volume, comes);
        if head.index == 0 {
            return count(head.directory.clients());
        }
        head.spawn_on(0, move |first| Box::pin(async move { count(first.directory.clients()) }));
    }
}

impl Drop for Wanting {
    fn drop(&mut self) {
        if let Some(head) = self.0.upgrade() {
            Self::tell(&head, self.1, false);
        }
    }
}

/// The first core knows that a volume was opened, or closed.
fn tell(head: &Rc<Head>, volume: VolumeId, opens: bool) {
    if head.index == 0 {
        return head.directory.clients().opens(volume, opens);
    }
    head.spawn_on(0, move |first| Box::pin(async move { first.directory.clients().opens(volume, opens) }));
}

/// Whether this host has to wait for volumes that are on their way here.
pub(crate) fn awaits(directory: &Directory, nqn: &str) -> bool {
    directory.clients().awaits(nqn)
}

/// Resolves when it has not, or has waited long enough.
pub(crate) async fn until_reached(directory: &Directory, nqn: &str) {
    let reached = async {
        while awaits(directory, nqn) {
            runtime::sleep(LOOK_WAIT).await;
        }
    };
    let _ = runtime::timeout(REACHED_WAIT, reached).await;
}

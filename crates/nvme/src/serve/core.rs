//! What the connections of one core share: volumes, budget, the list of each other.

use super::budget::Budget;
use super::complaints::Complaints;
use super::connection::Conn;
use super::{ADMIN_CORE, Counters, OtherNode, Port, Portal, Target};
use crate::limits::{DISCOVERED_NODES_MAX, DRAIN_TIMEOUT, MAX_ADMIN_QUEUE_ENTRIES};
use crate::machine::{ControllerHandle, Endpoints, NamespaceInfo, NamespaceTable, Tag};
use crate::wire::DISCOVERY_NQN;
use crate::wire::log::{AnaState, DiscoveryEntry, Health};
use runtime::{TaskHandle, sleep, spawn};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::NodeId;
use volume::{Cost, Directory, Held, HostAccess, Session, Standing, Volume};

/// At a stop, what the last answers get to arrive before their connections are closed: a reset may overtake them.
const ANSWERS_TRAVEL: Duration = Duration::from_millis(20);
/// How often silent hosts and stalled connections are looked for.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// The namespaces of a directory, the volumes behind them, and who may see which.
#[derive(Default)]
struct Namespaces {
    generation: u64,
    /// How often an ANA state has changed.
    ana_changes: u64,
    all: Rc<NamespaceTable>,
    /// By namespace id, as `hosts`.
    volumes: Vec<Option<Volume>>,
    hosts: Vec<HostAccess>,
    visibility: Visibility,
    /// What hosts see of a subsystem of which not everybody sees all, as far as they were asked for.
    views: HashMap<String, Rc<NamespaceTable>>,
}

/// The path to a namespace through this node: optimized at the volume's head alone (NVMe Base 2.0 §8.1).
fn ana_of(standing: Standing) -> AnaState {
    match standing {
        Standing::Here => AnaState::Optimized,
        Standing::Changing => AnaState::Change,
        Standing::Stopped | Standing::Elsewhere => AnaState::Inaccessible,
    }
}

/// Who sees anything of the subsystem.
#[derive(Default, PartialEq, Eq)]
struct Visibility {
    /// Everybody does.
    to_all: bool,
    /// Everybody sees all of it.
    in_full: bool,
    /// Hosts that are named.
    to: BTreeSet<String>,
}

impl Namespaces {
    fn view(&mut self, host: &str, open_by_default: bool) -> Rc<NamespaceTable> {
        if self.visibility.in_full {
            return self.all.clone();
        }
        let Self { all, hosts, views, .. } = self;
        let sees = |nsid: u32| hosts[nsid as usize].allows(host, open_by_default);
        if let Some(view) = views.get(host) {
            return view.clone();
        }
        // Those that nobody holds are of hosts that are gone: names cost a stranger nothing.
        views.retain(|_, view| Rc::strong_count(view) > 1);
        let view = Rc::new(all.filtered(sees));
        views.insert(host.to_owned(), view.clone());
        view
    }
}

pub(super) struct Core {
    pub target: Arc<Target>,
    pub index: usize,
    pub directory: Directory,
    namespaces: RefCell<Namespaces>,
    pub budget: Budget,
    /// Each lives as long as its tasks, and holds this.
    connections: RefCell<Vec<Weak<Conn>>>,
    /// Writes that wait until their data may be asked for, oldest first.
    ungranted: RefCell<VecDeque<(Weak<Conn>, Tag)>>,
    started: Cell<runtime::Instant>,
    /// What is logged of hosts that broke rules.
    pub complaints: Complaints,
    /// The node is stopping: nothing more is admitted.
    draining: Cell<bool>,
}

impl Core {
    pub fn new(target: Arc<Target>, index: usize, directory: Directory) -> Rc<Self> {
        let core = Rc::new(Self {
            target,
            index,
            directory,
            namespaces: RefCell::default(),
            budget: Budget::default(),
            connections: RefCell::default(),
            ungranted: RefCell::default(),
            started: Cell::new(runtime::now()),
            complaints: Complaints::default(),
            draining: Cell::default(),
        });
        core.load_namespaces();
        core
    }

    /// Starts the tasks that watch over the core's connections.
    pub fn start(self: &Rc<Self>) -> Vec<TaskHandle> {
        vec![spawn(self.clone().follow_directory()), spawn(self.clone().watch()), spawn(self.clone().grant_in_turn())]
    }

    pub fn add(&self, connection: &Rc<Conn>) {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|other| other.strong_count() > 0);
        connections.push(Rc::downgrade(connection));
    }

    /// The connection is over. One whose commands still run stays known until they have ended.
    pub fn remove(&self, connection: &Rc<Conn>) {
        if !connection.has_running() {
            self.connections.borrow_mut().retain(|other| other.as_ptr() != Rc::as_ptr(connection));
        }
        self.ungranted.borrow_mut().retain(|(other, _)| other.as_ptr() != Rc::as_ptr(connection));
    }

    fn living(&self) -> Vec<Rc<Conn>> {
        self.connections.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Ends the queues of a controller that live here: none of them hands a command to a volume from now on.
    pub fn end_queues(&self, controller: &Arc<ControllerHandle>, io_queues_only: bool) {
        for connection in self.living() {
            if connection.belongs_to(controller) && !(io_queues_only && connection.is_admin()) {
                connection.end();
            }
        }
    }

    /// The connection of a controller's queue, if it lives here.
    pub fn queue_of(&self, controller: &Arc<ControllerHandle>, queue: u16) -> Option<Rc<Conn>> {
        self.living().into_iter().find(|connection| connection.belongs_to(controller) && connection.queue() == queue)
    }

    /// Whether nothing more is to be admitted.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Admits nothing more; returns when what was admitted has been answered, or has not been in time.
    pub async fn drain(&self) {
        self.draining.set(true);
        self.budget.wake();
        let connections = self.living();
        let answered = async {
            for connection in &connections {
                connection.until_answered().await;
            }
        };
        let _ = runtime::timeout(DRAIN_TIMEOUT, answered).await;
        if !connections.is_empty() {
            sleep(ANSWERS_TRAVEL).await;
        }
    }

    pub fn end_all(&self) {
        self.living().iter().for_each(|connection| connection.end());
    }

    pub fn counters(&self) -> &Counters {
        &self.target.counters[self.index]
    }

    fn open_by_default(&self) -> bool {
        self.target.registry.subsystem().open_by_default
    }

    /// Counts up when namespaces change, or who may see them; what changed is known when this returns.
    pub fn generation(&self) -> u64 {
        let generation = self.directory.generation();
        if generation != self.namespaces.borrow().generation {
            self.load_namespaces();
        }
        generation
    }

    /// What a host sees as of now.
    pub fn view(&self, host: &str) -> Rc<NamespaceTable> {
        self.generation();
        self.namespaces.borrow_mut().view(host, self.open_by_default())
    }

    /// Whether a host sees anything of the subsystem.
    pub fn is_visible(&self, host: &str) -> bool {
        self.generation();
        let namespaces = self.namespaces.borrow();
        namespaces.visibility.to_all || namespaces.visibility.to.contains(host)
    }

    /// Returns when nothing runs here any more on a namespace for hosts that may not use it, and all that was called has
    /// its place in the order.
    pub async fn fence_hosts(self: Rc<Self>, nsid: u32) {
        for connection in self.living() {
            if !connection.sees(nsid) {
                connection.until_idle_on(nsid).await;
            }
        }
        self.directory.fence().await;
    }

    /// The volume behind a namespace.
    pub fn volume(&self, nsid: u32, session: &Session) -> Option<Volume> {
        Some(self.namespaces.borrow().volumes.get(nsid as usize)?.as_ref()?.of_session(session))
    }

    /// As [`Volume::hold`], of the volume behind a namespace.
    pub fn hold<F: Fn() -> bool + 'static>(&self, nsid: u32, cost: Cost, is_over: impl FnOnce() -> F) -> Option<Held> {
        self.namespaces.borrow().volumes.get(nsid as usize)?.as_ref()?.hold(cost, is_over)
    }

    /// Reads the directory anew and tells hosts of namespaces that changed.
    fn load_namespaces(&self) {
        let mut next = Namespaces { generation: self.directory.generation(), ..Namespaces::default() };
        let mut table = NamespaceTable::default();
        let open_by_default = self.open_by_default();
        let volumes = self.directory.list();
        // Where there is nothing yet, what comes decides.
        let to_all = volumes.is_empty() && open_by_default;
        next.visibility = Visibility { to_all, in_full: true, to: BTreeSet::new() };
        for volume in volumes {
            let info = volume.info();
            let block_shift = info.block_size_bytes.trailing_zeros() as u8;
            let size_blocks = info.size_bytes >> block_shift;
            let namespace =
                NamespaceInfo { size_blocks, block_shift, nguid: info.nguid, ana: ana_of(volume.standing()) };
            table.set(info.nsid, namespace);
            if table.get(info.nsid).is_some() {
                let index = info.nsid as usize;
                if next.volumes.len() <= index {
                    next.volumes.resize_with(index + 1, || None);
                    next.hosts.resize(index + 1, HostAccess::Unset);
                }
                next.volumes[index] = Some(volume);
                let is_open = info.hosts.is_open(open_by_default);
                next.visibility.to_all |= is_open;
                next.visibility.in_full &= is_open;
                next.visibility.to.extend(info.hosts.listed().iter().cloned());
                next.hosts[index] = info.hosts;
            }
        }
        let before = self.namespaces.borrow();
        next.ana_changes = before.ana_changes + u64::from(table.ana_differs_from(&before.all));
        drop(before);
        next.all = Rc::new(table);
        let before = self.namespaces.replace(next);
        let connections = self.living();
        connections.iter().for_each(|connection| connection.view_changed());
        if before.visibility != self.namespaces.borrow().visibility {
            self.discovery_changed();
        }
    }

    /// How often an ANA state has changed since this core began.
    pub fn ana_changes(&self) -> u64 {
        self.namespaces.borrow().ana_changes
    }

    /// The discovery log may say something else from now on. Its readers are here: admin queues live on one core.
    pub fn discovery_changed(&self) {
        if self.index == ADMIN_CORE {
            self.target.discovery_generation.fetch_add(1, Ordering::Relaxed);
            self.living().iter().for_each(|connection| connection.discovery_changed());
        }
    }

    async fn follow_directory(self: Rc<Self>) {
        loop {
            let seen = self.namespaces.borrow().generation;
            self.directory.changed(seen).await;
            self.generation();
        }
    }

    /// Ends controllers whose host is silent and connections that stall.
    async fn watch(self: Rc<Self>) {
        loop {
            sleep(WATCH_PERIOD).await;
            let others_wait =
                !self.budget.has_room() || !(self.budget.may_grant() || self.ungranted.borrow().is_empty());
            self.living().iter().for_each(|connection| connection.look_after(others_wait));
        }
    }

    /// A write that must wait before its data is asked for.
    pub fn queue_for_grant(&self, connection: &Rc<Conn>, tag: Tag) {
        self.ungranted.borrow_mut().push_back((Rc::downgrade(connection), tag));
        self.budget.wake();
    }

    async fn grant_in_turn(self: Rc<Self>) {
        loop {
            // The first whose connection has little on its way; who is gone waits for nothing.
            let may_go =
                |(of, _): &(Weak<Conn>, Tag)| of.upgrade().is_none_or(|of| of.has_ended() || of.may_be_granted());
            let first = || self.ungranted.borrow().iter().position(may_go);
            self.budget.until(|budget| budget.may_grant() && first().is_some()).await;
            let next = first().and_then(|at| self.ungranted.borrow_mut().remove(at));
            if let Some((connection, tag)) = next.and_then(|(of, tag)| Some((of.upgrade()?, tag))) {
                connection.grant(tag);
            }
        }
    }

    /// What the whole target has done since it started, for the health page.
    pub fn health(&self) -> Health {
        let sum = |of: fn(&Counters) -> &AtomicU64| {
            self.target.counters.iter().map(|counters| of(counters).load(Ordering::Relaxed)).sum()
        };
        Health {
            critical_warning: 0,
            spare_percent: 100,
            bytes_read: sum(|c| &c.bytes_read),
            bytes_written: sum(|c| &c.bytes_written),
            reads: sum(|c| &c.reads),
            writes: sum(|c| &c.writes),
            hours: runtime::now().since(self.started.get()).as_secs() / 3600,
        }
    }

    /// Counts up with each change of the discovery log.
    pub fn discovery_generation(&self) -> u64 {
        self.target.discovery_generation.load(Ordering::Relaxed)
    }

    /// The discovery log for `host`, which came by `endpoints`: listeners on any address are told as the one it used.
    /// Every port answers discovery; the subsystem is there for hosts that see anything of it, at this node and at up to
    /// [`DISCOVERED_NODES_MAX`] - 1 others. (NVMe Base 2.0 §5.16.1.23)
    pub fn discovery(&self, host: &str, endpoints: Endpoints) -> Vec<DiscoveryEntry> {
        let subsystem = &self.target.registry.subsystem().nqn;
        let entry = |address: SocketAddr, port_id: u16, is_discovery: bool| DiscoveryEntry {
            ipv6: address.is_ipv6(),
            is_discovery,
            port_id,
            admin_queue_size: MAX_ADMIN_QUEUE_ENTRIES,
            service: address.port().to_string(),
            subsystem: if is_discovery { DISCOVERY_NQN.to_owned() } else { subsystem.clone() },
            address: address.ip().to_string(),
        };
        let is_visible = self.is_visible(host);
        let mut entries = Vec::new();
        for Portal { id, address, port } in self.target.portals().iter() {
            let mut address = *address;
            if address.ip().is_unspecified() {
                address.set_ip(endpoints.target.ip());
            }
            entries.push(entry(address, *id, true));
            entries.extend((*port == Port::Io && is_visible).then(|| entry(address, *id, false)));
        }
        if is_visible {
            let others = self.others_for(host);
            entries.extend(others.iter().map(|other| entry(other.address, other.port_id, false)));
        }
        entries
    }

    /// The other nodes that a host is told of.
    fn others_for(&self, host: &str) -> Vec<OtherNode> {
        let others = self.target.others().clone();
        if others.len() < DISCOVERED_NODES_MAX {
            return others;
        }
        let (open_by_default, namespaces) = (self.open_by_default(), self.namespaces.borrow());
        let mut led: HashMap<NodeId, usize> = HashMap::new();
        for (volume, hosts) in namespaces.volumes.iter().zip(&namespaces.hosts) {
            if let Some(volume) = volume.as_ref().filter(|_| hosts.allows(host, open_by_default)) {
                *led.entry(volume.info().head).or_default() += 1;
            }
        }
        nearest(others, &led, self.target.registry.subsystem().controller_ids.start)
    }
}

/// Those of `others` that a host of the node of the port `first` is told of: first the heads of most of what it may use
/// (`led`: of how many volumes each node is), then by number, from the one behind this node on, so that hosts of many nodes
/// do not all come to the same ones.
fn nearest(mut others: Vec<OtherNode>, led: &HashMap<NodeId, usize>, first: u16) -> Vec<OtherNode> {
    let led = |other: &OtherNode| led.get(&other.node).copied().unwrap_or_default();
    others.sort_by_key(|other| (Reverse(led(other)), other.port_id < first, other.port_id));
    others.truncate(DISCOVERED_NODES_MAX - 1);
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_first_and_then_who_is_behind_this_node() {
        let other = |node: u32| OtherNode {
            node: NodeId(node),
            port_id: 100 * node as u16,
            address: SocketAddr::from(([10, 0, 0, node as u8], 4420)),
        };
        let told = |from: u16, led: &[(u32, usize)]| -> Vec<u32> {
            let others = (1..8).filter(|node| 100 * *node as u16 != from).map(other).collect();
            let led = led.iter().map(|(node, volumes)| (NodeId(*node), *volumes)).collect();
            nearest(others, &led, from).iter().map(|other| other.node.0).collect()
        };
        assert_eq!(told(300, &[]), [4, 5, 6]);
        assert_eq!(told(600, &[]), [7, 1, 2], "the first ones are behind the last");
        assert_eq!(told(300, &[(1, 2), (7, 5), (3, 9)]), [7, 1, 4], "this node's own are at this node");
        assert_eq!(told(300, &[(1, 1), (2, 1), (6, 1), (7, 1)]), [6, 7, 1]);
    }
}

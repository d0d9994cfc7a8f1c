//! What the connections of one core share: volumes, budget, the list of each other.

use super::budget::Budget;
use super::connection::Conn;
use super::{Counters, Port, Target};
use crate::limits::MAX_ADMIN_QUEUE_ENTRIES;
use crate::machine::{ControllerHandle, Endpoints, NamespaceInfo, NamespaceTable, Tag};
use crate::wire::DISCOVERY_NQN;
use crate::wire::log::{AnaState, DiscoveryEntry, Health};
use runtime::{TaskHandle, sleep, spawn};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use volume::{Directory, Session, Volume};

/// How often silent hosts and stalled connections are looked for.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// The namespaces of a directory and the volumes behind them.
#[derive(Default)]
struct Namespaces {
    generation: u64,
    table: Rc<NamespaceTable>,
    volumes: Vec<Option<Volume>>,
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
        });
        core.load_namespaces();
        core
    }

    /// Starts the tasks that watch over the core's connections.
    pub fn start(self: &Rc<Self>) -> Vec<TaskHandle> {
        vec![spawn(self.clone().follow_directory()), spawn(self.clone().watch()), spawn(self.clone().grant_in_turn())]
    }

    pub fn add(&self, connection: &Rc<Conn>) {
        self.connections.borrow_mut().push(Rc::downgrade(connection));
    }

    pub fn remove(&self, connection: &Rc<Conn>) {
        self.connections.borrow_mut().retain(|other| other.as_ptr() != Rc::as_ptr(connection));
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

    pub fn end_all(&self) {
        self.living().iter().for_each(|connection| connection.end());
    }

    pub fn counters(&self) -> &Counters {
        &self.target.counters[self.index]
    }

    /// The namespaces as of now.
    pub fn table(&self) -> Rc<NamespaceTable> {
        if self.directory.generation() != self.namespaces.borrow().generation {
            self.load_namespaces();
        }
        self.namespaces.borrow().table.clone()
    }

    /// The volume behind a namespace.
    pub fn volume(&self, nsid: u32, session: &Session) -> Option<Volume> {
        Some(self.namespaces.borrow().volumes.get(nsid as usize)?.as_ref()?.of_session(session))
    }

    /// Reads the directory anew and tells hosts of namespaces that changed.
    fn load_namespaces(&self) {
        let mut next = Namespaces { generation: self.directory.generation(), ..Namespaces::default() };
        let mut table = NamespaceTable::default();
        for volume in self.directory.list() {
            let info = volume.info();
            let block_shift = info.block_size_bytes.trailing_zeros() as u8;
            let size_blocks = info.size_bytes >> block_shift;
            let namespace = NamespaceInfo { size_blocks, block_shift, nguid: info.nguid, ana: AnaState::Optimized };
            table.set(info.nsid, namespace);
            if table.get(info.nsid).is_some() {
                let index = info.nsid as usize;
                if next.volumes.len() <= index {
                    next.volumes.resize_with(index + 1, || None);
                }
                next.volumes[index] = Some(volume);
            }
        }
        next.table = Rc::new(table);
        let before = self.namespaces.replace(next);
        let table = self.namespaces.borrow().table.clone();
        let changed: Vec<u32> = table.changed_since(&before.table).collect();
        if !changed.is_empty() {
            self.living().iter().for_each(|connection| connection.namespaces_changed(&changed));
        }
    }

    async fn follow_directory(self: Rc<Self>) {
        loop {
            let seen = self.namespaces.borrow().generation;
            self.directory.changed(seen).await;
            self.table();
        }
    }

    /// Ends controllers whose host is silent and connections that stall.
    async fn watch(self: Rc<Self>) {
        loop {
            sleep(WATCH_PERIOD).await;
            self.living().iter().for_each(|connection| connection.look_after());
        }
    }

    /// A write that must wait before its data is asked for.
    pub fn queue_for_grant(&self, connection: &Rc<Conn>, tag: Tag) {
        self.ungranted.borrow_mut().push_back((Rc::downgrade(connection), tag));
        self.budget.wake();
    }

    async fn grant_in_turn(self: Rc<Self>) {
        loop {
            self.budget.until(|budget| budget.may_grant() && !self.ungranted.borrow().is_empty()).await;
            let next = self.ungranted.borrow_mut().pop_front();
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

    /// The discovery log for a host that came by `endpoints`: listeners on any address are told as the one it used.
    pub fn discovery(&self, endpoints: Endpoints) -> (u64, Vec<DiscoveryEntry>) {
        let subsystem = &self.target.registry.subsystem().nqn;
        let mut entries = Vec::new();
        for (index, (address, port)) in self.target.portals().iter().enumerate() {
            let ip = if address.ip().is_unspecified() { endpoints.target.ip() } else { address.ip() };
            let is_discovery = *port == Port::Discovery;
            entries.push(DiscoveryEntry {
                ipv6: ip.is_ipv6(),
                is_discovery,
                port_id: index as u16 + 1,
                admin_queue_size: MAX_ADMIN_QUEUE_ENTRIES,
                service: address.port().to_string(),
                subsystem: if is_discovery { DISCOVERY_NQN.to_owned() } else { subsystem.clone() },
                address: ip.to_string(),
            });
        }
        (self.target.portal_generation.load(Ordering::Relaxed), entries)
    }
}

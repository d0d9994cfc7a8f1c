//! A storage node: everything that ships below the daemon, process after process.

use super::profile::Profile;
use crate::workload::cluster::layout::node_id;
use crate::workload::cluster::story::tell;
use crate::workload::volume::lock::data_key;
use crate::workload::volume::machine::{DISK, open_doors};
use cluster::{MapStore, SimMap};
use runtime::sim::{SimDisk, SimNode};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::StoreId;
use volume::{Assembly, Blank, NodeOptions, StartError};

/// Controller ids of each node.
const CONTROLLERS: u16 = 1000;
/// Whoever holds the keys looks so often whether some are wanted.
const KEYS_EVERY: Duration = Duration::from_millis(500);

pub struct Machine {
    pub index: usize,
    pub node: SimNode,
    pub disk: SimDisk,
    map: Arc<dyn MapStore>,
    encrypted: bool,
    assembly: RefCell<Option<Assembly>>,
    refused: RefCell<Option<StartError>>,
    pub needs_power_cycle: Cell<bool>,
    starts: Cell<u64>,
}

impl Machine {
    pub fn new(index: usize, node: SimNode, map: &Arc<SimMap>, profile: &Profile) -> Rc<Self> {
        let disk = node.add_disk(DISK, profile.disk_bytes, profile.cluster.disk);
        Rc::new(Self {
            index,
            node,
            disk,
            map: map.handle_for(node_id(index)),
            encrypted: profile.encrypted,
            assembly: RefCell::default(),
            refused: RefCell::default(),
            needs_power_cycle: Cell::default(),
            starts: Cell::default(),
        })
    }

    /// Makes its device the cluster's.
    pub async fn register(self: Rc<Self>) -> Result<Vec<StoreId>, StartError> {
        Assembly::register(&self.map, node_id(self.index), &[PathBuf::from(DISK)]).await
    }

    /// What serves, if it has come up.
    pub fn assembly(&self) -> Option<Assembly> {
        self.assembly.borrow().clone()
    }

    /// Processes that were started: which of them runs.
    pub fn starts(&self) -> u64 {
        self.starts.get()
    }

    /// Why the last process did not come up; told once.
    pub fn refusal(&self) -> Option<StartError> {
        self.refused.borrow_mut().take()
    }

    /// Starts a process, and the node if it is down.
    pub fn start(self: &Rc<Self>) {
        if !self.node.is_up() {
            self.node.start();
        }
        self.starts.set(self.starts.get() + 1);
        self.refused.borrow_mut().take();
        tell(format_args!("node {}: process {} starts", self.index, self.starts.get()));
        let machine = self.clone();
        self.node.spawn(0, async move {
            match machine.serve().await {
                Ok(assembly) => machine.hand_keys(&assembly).await,
                Err(error) => {
                    tell(format_args!("node {}: {error}", machine.index));
                    *machine.refused.borrow_mut() = Some(error);
                }
            }
        });
    }

    async fn serve(&self) -> Result<Assembly, StartError> {
        let cores = self.node.cores();
        let (core_count, address) = (cores.len(), self.node.ip());
        let options = NodeOptions {
            node: node_id(self.index),
            address: SocketAddr::new(address, 0),
            cores,
            devices: vec![PathBuf::from(DISK)],
            blank: Blank::Refuse,
            map: self.map.clone(),
        };
        let assembly = Assembly::start(options).await?;
        let first = 1 + self.index as u16 * CONTROLLERS;
        open_doors(&assembly, address, core_count, first..first + CONTROLLERS);
        *self.assembly.borrow_mut() = Some(assembly.clone());
        tell(format_args!("node {}: serves", self.index));
        Ok(assembly)
    }

    /// Whoever holds the keys gives them to each process.
    async fn hand_keys(&self, assembly: &Assembly) {
        if !self.encrypted {
            return;
        }
        loop {
            for key in assembly.locked_keys().await.unwrap_or_default() {
                if let Err(error) = assembly.unlock(key.id, data_key(key.id)).await {
                    tell(format_args!("node {}: key {} is not taken: {error}", self.index, key.id));
                }
            }
            runtime::sleep(KEYS_EVERY).await;
        }
    }

    /// Ends the process: the power goes, or it is killed.
    pub fn stop(&self, power_lost: bool) {
        // What is held of it goes with its tasks, while its cores still live.
        self.forget();
        tell(format_args!("node {}: process {} ends", self.index, self.starts.get()));
        match power_lost || self.needs_power_cycle.take() {
            true => self.node.crash(),
            false => self.node.kill(),
        }
    }

    /// Lets go of what serves: its tasks hold what they need.
    pub fn forget(&self) {
        *self.assembly.borrow_mut() = None;
    }
}

//! One path: a controller that is connected again and again, and what its ANA log says.

use super::super::{Controller, HostError, Namespace};
use super::Inner;
use crate::wire::log::{AnaState, decode_ana, page};
use crate::wire::{ANA_NOTICES, NAMESPACE_NOTICES};
use runtime::{Elapsed, sleep, spawn, timeout};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// First read of the ANA log; more only where there is more.
const ANA_BYTES: u32 = 4096;
/// Of the page: its header, and each descriptor with one namespace.
const ANA_HEADER_BYTES: u32 = 16;
const ANA_DESCRIPTOR_BYTES: u32 = 36;
/// Between an answer that speaks of the path and the read of the log: a target that says one thing and does another is
/// not asked without end.
const ANA_PAUSE: Duration = Duration::from_millis(10);
/// The page of changed namespaces.
const CHANGED_BYTES: u32 = 4096;

pub struct Path {
    address: SocketAddr,
    live: RefCell<Option<Live>>,
}

/// A controller that is connected.
struct Live {
    controller: Controller,
    /// By namespace. What answered otherwise than its log said is left out until the log was read again.
    states: BTreeMap<u32, u8>,
    namespaces: BTreeMap<u32, Namespace>,
    /// Reads of the log that were asked for: only the last one says how it is.
    reads: u64,
}

impl Path {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, live: RefCell::default() }
    }

    /// Connects, and goes on until the host is closed.
    pub async fn run(self: Rc<Self>, host: Rc<Inner>) {
        while !host.is_closed.get() {
            let options = &host.options;
            let connected =
                timeout(options.connect_timeout, Controller::connect(self.address, &options.controller)).await;
            if let Ok(Ok(controller)) = connected {
                self.live_with(&controller, &host).await;
                controller.close();
                self.live.borrow_mut().take();
                // Who waits for its answers was told by the end of its queues.
                host.changed.wake_all();
            }
            sleep(host.options.reconnect_delay).await;
        }
    }

    /// Until the controller is of no more use.
    async fn live_with(&self, controller: &Controller, host: &Rc<Inner>) {
        host.count(|counts| counts.connected += 1);
        let live =
            Live { controller: controller.clone(), states: BTreeMap::new(), namespaces: BTreeMap::new(), reads: 0 };
        *self.live.borrow_mut() = Some(live);
        if controller.configure_events(NAMESPACE_NOTICES | ANA_NOTICES).await.is_err() {
            return;
        }
        while !host.is_closed.get() {
            let Ok(is_changing) = self.read_ana(controller, host).await else { return };
            let event = controller.next_event();
            let event = match is_changing {
                true => timeout(host.options.transition_timeout, event).await,
                false => Ok(event.await),
            };
            let done = match event {
                Ok(Ok(_)) => {
                    let done = controller.log_page(page::CHANGED_NAMESPACES, 0, CHANGED_BYTES).await.map(drop);
                    if let Some(live) = self.live.borrow_mut().as_mut() {
                        live.namespaces.clear();
                    }
                    done
                }
                Ok(Err(error)) => Err(error),
                Err(Elapsed) => return,
            };
            if done.is_err() {
                return;
            }
        }
    }

    /// Reads the log, and whether some namespace is changing.
    async fn read_ana(&self, controller: &Controller, host: &Inner) -> Result<bool, HostError> {
        host.count(|counts| counts.ana_reads += 1);
        let Some(number) = self.with(controller, |live| {
            live.reads += 1;
            live.reads
        }) else {
            return Err(HostError::Connection("reset".into()));
        };
        let mut page = controller.log_page(page::ANA, 0, ANA_BYTES).await?;
        let count = u32::from(u16::from_le_bytes([page[8], page[9]]));
        let needed = ANA_HEADER_BYTES + count * ANA_DESCRIPTOR_BYTES;
        if needed > ANA_BYTES {
            page = controller.log_page(page::ANA, 0, needed).await?;
        }
        let mut is_changing = false;
        let groups = decode_ana(&page);
        self.with(controller, |live| {
            if live.reads == number {
                let of_group =
                    |(_, state, nsids): (u32, u8, Vec<u32>)| nsids.into_iter().map(move |nsid| (nsid, state));
                live.states = groups.into_iter().flat_map(of_group).collect();
            }
            is_changing = live.states.values().any(|state| *state == AnaState::Change as u8);
        });
        host.changed.wake_all();
        Ok(is_changing)
    }

    /// What is known of this life of the path, if it lives.
    fn with<T>(&self, controller: &Controller, change: impl FnOnce(&mut Live) -> T) -> Option<T> {
        let mut live = self.live.borrow_mut();
        live.as_mut().filter(|live| live.controller.is_same(controller)).map(change)
    }

    pub fn controller(&self) -> Option<Controller> {
        self.live.borrow().as_ref().map(|live| live.controller.clone())
    }

    pub fn state(&self, nsid: u32) -> Option<u8> {
        Some(self.live.borrow().as_ref()?.states.get(&nsid).copied().unwrap_or(0))
    }

    /// Its controller, if it is *optimized* for the namespace.
    pub fn optimized(&self, nsid: u32) -> Option<Controller> {
        let live = self.live.borrow();
        let live = live.as_ref()?;
        let is_optimized = live.states.get(&nsid) == Some(&(AnaState::Optimized as u8));
        (is_optimized && !live.controller.has_failed()).then(|| live.controller.clone())
    }

    /// The namespace there, asked for once.
    pub async fn namespace(&self, controller: &Controller, nsid: u32) -> Result<Namespace, HostError> {
        if let Some(Some(known)) = self.with(controller, |live| live.namespaces.get(&nsid).cloned()) {
            return Ok(known);
        }
        let namespace = controller.namespace(nsid).await?;
        self.with(controller, |live| live.namespaces.insert(nsid, namespace.clone()));
        Ok(namespace)
    }

    /// A command was answered so, or the namespace is not known there (yet, or any more): the path is used for the namespace no more until the log was read again.
    pub fn is_inaccessible(self: &Rc<Self>, controller: &Controller, nsid: u32, host: &Rc<Inner>) {
        let was_known = self.with(controller, |live| live.states.remove(&nsid).is_some());
        if was_known != Some(true) {
            return;
        }
        let (path, controller, host) = (self.clone(), controller.clone(), host.clone());
        spawn(async move {
            // Each namespace that is refused reads it once, and an answer that comes at once would be asked for at once.
            sleep(ANA_PAUSE).await;
            if path.read_ana(&controller, &host).await.is_err() {
                path.reset(&controller);
            }
        });
    }

    /// Ends this life of the path: all that is under way on it ends, and its task connects anew.
    pub fn reset(&self, controller: &Controller) {
        controller.close();
    }

    /// Ends it for good, once its host is closed.
    pub fn close(&self) {
        if let Some(controller) = self.controller() {
            controller.close();
        }
    }
}

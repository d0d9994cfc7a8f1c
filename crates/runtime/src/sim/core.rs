//! A simulated core, as its tasks see it, and the handle by which others start tasks on it.

use super::world::Shared;
use crate::core::{CoreKey, LocalFuture};
use crate::time::Instant;
use crate::{core, task};
use std::rc::Rc;

/// What serves a simulated core: its world, and which node it is part of.
#[derive(Clone)]
pub struct SimCore {
    pub(super) shared: Rc<Shared>,
    pub(super) node: u32,
}

impl std::fmt::Debug for SimCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimCore(of node {})", self.node)
    }
}

impl SimCore {
    pub(crate) fn now(&self) -> Instant {
        self.shared.node_now(self.node)
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.shared.nodes.borrow()[self.node as usize].random.next_u64()
    }

    pub(crate) fn wall_clock_ns(&self) -> u64 {
        self.shared.nodes.borrow()[self.node as usize].clock.wall_ns(self.shared.now())
    }
}

/// Starts tasks on a simulated core. One of a crashed node starts nothing.
#[derive(Clone, Debug)]
pub struct SimCoreHandle {
    pub(super) key: CoreKey,
}

impl SimCoreHandle {
    pub(crate) fn spawn_boxed(&self, make: Box<dyn FnOnce() -> LocalFuture + Send>) {
        if let Some(core) = core::local_core(self.key) {
            core.enter(|| task::spawn(async move { make().await }));
        }
    }

    pub(crate) fn key(&self) -> CoreKey {
        self.key
    }
}

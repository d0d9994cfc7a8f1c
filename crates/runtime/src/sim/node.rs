//! A simulated machine: its cores, clocks and disks, and what can happen to all of them at once.

use super::clock::NodeClock;
use super::contents::Contents;
use super::disk::{Disk, DiskFaults, DiskOptions};
use super::random::Random;
use super::trace::EventKind;
use super::world::Shared;
use crate::core::{self, CoreHandle};
use crate::task;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// What a node is like.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeOptions {
    /// What its monotonic clock shows when the node is added.
    pub clock_start: Duration,
    /// How much faster than the world its monotonic clock runs, in millionths.
    pub clock_rate_offset_ppm: i32,
    /// How far its wall clock is off.
    pub wall_clock_offset_ns: i64,
}

pub(super) struct Node {
    pub(super) address: IpAddr,
    pub(super) clock: NodeClock,
    pub(super) random: Random,
    /// How its ends are decided on.
    fate: Random,
    core_count: usize,
    cores: Vec<CoreHandle>,
    /// Running: its kernel answers the network.
    pub(super) up: bool,
    /// Starts so far: a connection of an earlier one is unknown to a later one.
    pub(super) starts: u32,
}

/// Number of a node in its address: 10.0.x.y, from 1.
pub(super) fn address_of(node: u32) -> IpAddr {
    let [.., high, low] = (node + 1).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, 0, high, low))
}

impl Node {
    pub(super) fn add(shared: &Rc<Shared>, core_count: usize, options: NodeOptions) -> SimNode {
        assert!(core_count > 0);
        let index = shared.nodes.borrow().len() as u32;
        let start = options.clock_start.as_nanos() as u64;
        let clock = NodeClock::new(shared.now(), start, options.clock_rate_offset_ppm, options.wall_clock_offset_ns);
        shared.nodes.borrow_mut().push(Node {
            address: address_of(index),
            clock,
            random: shared.random_for(0x1_0000 + u64::from(index)),
            fate: shared.random_for(0x2_0000 + u64::from(index)),
            core_count,
            cores: Vec::new(),
            up: false,
            starts: 0,
        });
        let node = SimNode { shared: shared.clone(), index };
        node.start();
        node
    }
}

/// A node of a world.
#[derive(Clone)]
pub struct SimNode {
    pub(super) shared: Rc<Shared>,
    pub(super) index: u32,
}

impl SimNode {
    /// Its address.
    pub fn ip(&self) -> IpAddr {
        address_of(self.index)
    }

    /// Its core number `index`, of its present start.
    ///
    /// # Panics
    /// If the node is down or has fewer cores.
    pub fn core(&self, index: usize) -> CoreHandle {
        self.shared.nodes.borrow()[self.index as usize].cores[index].clone()
    }

    /// All its cores, none while it is down.
    pub fn cores(&self) -> Vec<CoreHandle> {
        self.shared.nodes.borrow()[self.index as usize].cores.clone()
    }

    /// Starts a task on a core from outside.
    ///
    /// # Panics
    /// If the node is down.
    pub fn spawn(&self, core: usize, future: impl Future<Output = ()> + 'static) {
        let key = self.core(core).key();
        let core = core::local_core(key).expect("a core of a node that is up is known");
        core.enter(|| task::spawn(future));
    }

    /// Adds a disk.
    pub fn add_disk(&self, path: impl Into<PathBuf>, size_bytes: u64, options: DiskOptions) -> SimDisk {
        let path = path.into();
        let mut storage = self.shared.storage.borrow_mut();
        let index = storage.disks.len() as u32;
        let taken = storage.disks.iter().any(|disk| disk.node == self.index && disk.path == path);
        assert!(!taken, "node {} has a disk {}", self.index, path.display());
        let random = self.shared.random_for(0x3_0000 + u64::from(index));
        storage.disks.push(Disk::new(self.index, path, size_bytes, options, random));
        SimDisk { shared: self.shared.clone(), index }
    }

    /// The disk at `path`.
    pub fn disk(&self, path: &Path) -> Option<SimDisk> {
        let storage = self.shared.storage.borrow();
        let index = storage.disks.iter().position(|disk| disk.node == self.index && disk.path == path)?;
        Some(SimDisk { shared: self.shared.clone(), index: index as u32 })
    }

    /// Whether it runs.
    pub fn is_up(&self) -> bool {
        self.shared.nodes.borrow()[self.index as usize].up
    }

    /// The power goes. All tasks end; of the writes that were not flushed, and of those under way, any subset of
    /// 512-byte sectors is lost; each connection is reset or, as the other end sees it, goes on in silence.
    pub fn crash(&self) {
        self.end(true);
    }

    /// The process is killed and the machine lives: what the kernel was given stays (of the operations under way
    /// some are done, the others not), its sockets are closed.
    pub fn kill(&self) {
        self.end(false);
    }

    fn end(&self, power_lost: bool) {
        assert!(core::is_outside(), "a task cannot crash its own world: do it from outside the run");
        let fate = {
            let mut nodes = self.shared.nodes.borrow_mut();
            let node = &mut nodes[self.index as usize];
            if !node.up {
                return;
            }
            node.up = false;
            node.cores.clear();
            Random::new(node.fate.next_u64())
        };
        self.shared.trace(EventKind::Crash, (self.index, 0), u64::from(!power_lost), 0, 0);
        self.shared.end_connections(self.index, power_lost, &fate);
        self.shared.end_cores(self.index);
        self.shared.settle_disks(self.index, power_lost, &fate);
    }

    /// Starts a node that is down: new cores without a task.
    ///
    /// # Panics
    /// If it is up.
    pub fn start(&self) {
        let core_count = {
            let mut nodes = self.shared.nodes.borrow_mut();
            let node = &mut nodes[self.index as usize];
            assert!(!node.up, "node {} is up", self.index);
            node.up = true;
            node.starts += 1;
            node.core_count
        };
        self.shared.trace(EventKind::Start, (self.index, 0), core_count as u64, 0, 0);
        for index in 0..core_count {
            let core = self.shared.make_core(self.index, index as u32);
            self.shared.nodes.borrow_mut()[self.index as usize].cores.push(core);
        }
        self.shared.node_is_back(self.index);
    }

    /// [`crash`](Self::crash), then [`start`](Self::start).
    pub fn restart(&self) {
        self.crash();
        self.start();
    }

    /// All its cores stand still, as if the process were stopped; time, disks and network go on.
    pub fn pause(&self) {
        self.set_paused(None, true);
    }

    /// They go on.
    pub fn resume(&self) {
        self.set_paused(None, false);
    }

    /// One core stands still.
    pub fn pause_core(&self, core: usize) {
        self.set_paused(Some(core), true);
    }

    /// It goes on.
    pub fn resume_core(&self, core: usize) {
        self.set_paused(Some(core), false);
    }

    fn set_paused(&self, only: Option<usize>, paused: bool) {
        let part = only.map_or(u32::MAX, |core| core as u32);
        self.shared.trace(EventKind::Pause, (self.index, part), u64::from(paused), 0, 0);
        let mut cores = self.shared.cores.borrow_mut();
        for slot in cores.iter_mut().filter(|slot| slot.node == self.index) {
            if only.is_none_or(|core| core == slot.index as usize) {
                slot.paused = paused;
            }
        }
    }

    /// From now on its wall clock is off by this much.
    pub fn set_wall_clock_offset(&self, offset_ns: i64) {
        self.shared.nodes.borrow()[self.index as usize].clock.set_wall_offset(offset_ns);
    }

    /// From now on its monotonic clock runs so many millionths faster than the world; it makes no jump.
    pub fn set_clock_rate_offset(&self, offset_ppm: i32) {
        self.shared.nodes.borrow()[self.index as usize].clock.set_rate(self.shared.now(), offset_ppm);
    }

    /// Looks at what lives on a core, at this instant of the world, as one of its tasks would: no time passes, and a
    /// core that stands still is seen all the same.
    ///
    /// # Panics
    /// If the node is down.
    pub fn look<T>(&self, core: usize, look: impl FnOnce() -> T) -> T {
        let key = self.core(core).key();
        core::local_core(key).expect("a core of a node that is up is known").enter(look)
    }
}

/// All that a disk holds.
#[derive(Clone)]
pub struct DiskImage(Contents);

/// A disk of a node, as the one who breaks it sees it.
#[derive(Clone)]
pub struct SimDisk {
    shared: Rc<Shared>,
    index: u32,
}

impl SimDisk {
    /// From now on its faults are these.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.shared.storage.borrow_mut().disks[self.index as usize].options.faults = faults;
    }

    /// From now on operations hang; `false` lets them go on, those that hang too.
    pub fn set_hanging(&self, hanging: bool) {
        self.shared.storage.borrow_mut().disks[self.index as usize].hanging = hanging;
        if !hanging {
            self.shared.release_hung(self.index);
        }
    }

    /// From now on reads hang, and nothing else; `false` lets them go on.
    pub fn set_reads_hanging(&self, hanging: bool) {
        self.shared.storage.borrow_mut().disks[self.index as usize].reads_hang = hanging;
        if !hanging {
            self.shared.release_hung(self.index);
        }
    }

    /// From now on whatever meets these bytes cannot be read; `None`: all can.
    pub fn set_unreadable(&self, range: Option<Range<u64>>) {
        self.shared.storage.borrow_mut().disks[self.index as usize].unreadable = range;
    }

    /// From now on each operation takes so much longer.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.storage.borrow_mut().disks[self.index as usize].delay_ns = delay.as_nanos() as u64;
    }

    /// Turns one bit over.
    pub fn flip_bit(&self, offset_bytes: u64, bit: u8) {
        self.shared.trace(EventKind::DiskFault, (u32::MAX, self.index), offset_bytes, u64::from(bit), 0);
        self.shared.storage.borrow_mut().disks[self.index as usize].contents.flip_bit(offset_bytes, bit);
    }

    /// Turns over some bit of what was ever written; says where. `None` on an empty disk.
    pub fn rot(&self) -> Option<u64> {
        let at = self.shared.storage.borrow_mut().disks[self.index as usize].rot()?;
        self.shared.trace(EventKind::DiskFault, (u32::MAX, self.index), at, 0, 0);
        Some(at)
    }

    /// Turns over some bit of this range; says where.
    pub fn rot_within(&self, range: Range<u64>) -> u64 {
        let at = self.shared.storage.borrow_mut().disks[self.index as usize].rot_within(range);
        self.shared.trace(EventKind::DiskFault, (u32::MAX, self.index), at, 0, 0);
        at
    }

    /// Turns over some bit of a 512-byte sector that was written and begins with these bytes; says where. `None` if
    /// there is none.
    pub fn rot_sector(&self, beginning: &[u8]) -> Option<u64> {
        let at = self.shared.storage.borrow_mut().disks[self.index as usize].rot_sector(beginning)?;
        self.shared.trace(EventKind::DiskFault, (u32::MAX, self.index), at, 0, 0);
        Some(at)
    }

    /// How often it has lied so far: bits it turned by itself, writes it lost or misplaced.
    pub fn lies(&self) -> u64 {
        self.shared.storage.borrow().disks[self.index as usize].lies
    }

    /// What stands there now, past any cache.
    pub fn peek(&self, offset_bytes: u64, into: &mut [u8]) {
        self.shared.storage.borrow().disks[self.index as usize].contents.read(offset_bytes, into);
    }

    /// What it would hold if the power went now, as drawn from `seed`; it goes on as if nothing had been asked.
    pub fn after_power_loss(&self, seed: u64) -> DiskImage {
        DiskImage(self.shared.without_power(self.index, &Random::new(seed)))
    }

    /// From now on it holds this, durably; for a disk of the same size that nobody uses.
    pub fn insert(&self, image: &DiskImage) {
        self.shared.storage.borrow_mut().disks[self.index as usize].contents = image.0.clone();
    }

    /// Puts bytes there, durably, behind the back of whoever uses the disk.
    pub fn poke(&self, offset_bytes: u64, bytes: &[u8]) {
        self.shared.storage.borrow_mut().disks[self.index as usize].contents.write(offset_bytes, bytes);
    }
}

//! What may go wrong, and its names.

use super::layout::Layout;
use cluster::MapFaults;
use runtime::sim::{DiskFaults, LinkOptions};
use std::time::Duration;

/// Names of the kinds, for reports.
pub const KINDS: [&str; 27] = [
    "crashes",
    "kills",
    "blackouts",
    "rolling restarts",
    "pauses",
    "hung cores",
    "cuts",
    "isolations",
    "resets",
    "silences",
    "slow links",
    "disk errors",
    "slow disks",
    "hung disks",
    "wall clock jumps",
    "clock rates",
    "map faults",
    "map cut off",
    "map unreachable",
    "map leaders",
    "map restores",
    "lost nodes",
    "lying disks",
    "rotting blocks",
    "wiped devices",
    "added nodes",
    "reordered links",
];

/// What goes wrong. Numbers are indexes of nodes and stores.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A node loses power.
    Crash { node: usize },
    /// A node's process is killed.
    Kill { node: usize },
    /// All nodes lose power at once.
    Blackout,
    /// All nodes are stopped and started, one after the other.
    RollingRestart { gap: Duration },
    /// A process stands still.
    Pause { node: usize },
    /// A core stands still; its neighbours go on.
    HungCore { node: usize, core: usize },
    /// Nothing gets from one node to another; or both ways.
    Cut { from: usize, to: usize, both: bool },
    /// Nothing gets from a node to any other, or to it, or both.
    Isolation { node: usize, outward: bool, inward: bool },
    /// Connections between two nodes are reset.
    Reset { one: usize, other: usize },
    /// Connections between two nodes go on in silence.
    Silence { one: usize, other: usize },
    /// A link takes its time.
    SlowLink { one: usize, other: usize, link: LinkOptions },
    /// Operations on a disk fail.
    DiskErrors { store: usize, faults: DiskFaults },
    /// Operations on a disk take longer.
    SlowDisk { store: usize, delay: Duration },
    /// Operations on a disk do not end.
    HungDisk { store: usize },
    /// A wall clock jumps.
    WallClock { node: usize, offset_ns: i64 },
    /// A monotonic clock goes on at another rate.
    ClockRate { node: usize, ppm: i32 },
    /// The map answers late, or not, or tells its watchers late.
    Map(MapFaults),
    /// A node cannot reach the map.
    MapCutOff { node: usize },
    /// Nobody can.
    MapUnreachable,
    /// The map has another leader.
    MapLeader,
    /// The map is restored from a backup of so long ago.
    MapRestore { age: Duration },
    /// A node loses power and never comes back.
    Lost { node: usize },
    /// A disk loses writes, misplaces them, turns bits.
    Lies { store: usize, faults: DiskFaults },
    /// Bits of blocks that are in use turn over, one after the other. `seed`: which.
    Rot { store: usize, gap: Duration, seed: u64 },
    /// A node loses power and a device, or all it has; it comes back with blank ones.
    Wipe { node: usize, store: Option<usize> },
    /// A node is added, and some groups move there.
    Added { node: usize, seed: u64 },
    /// Of the connections between two nodes some are slower than others, by up to so much.
    Reordered { one: usize, other: usize, most: Duration },
}

impl Fault {
    /// Its place in [`KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Self::Crash { .. } => 0,
            Self::Kill { .. } => 1,
            Self::Blackout => 2,
            Self::RollingRestart { .. } => 3,
            Self::Pause { .. } => 4,
            Self::HungCore { .. } => 5,
            Self::Cut { .. } => 6,
            Self::Isolation { .. } => 7,
            Self::Reset { .. } => 8,
            Self::Silence { .. } => 9,
            Self::SlowLink { .. } => 10,
            Self::DiskErrors { .. } => 11,
            Self::SlowDisk { .. } => 12,
            Self::HungDisk { .. } => 13,
            Self::WallClock { .. } => 14,
            Self::ClockRate { .. } => 15,
            Self::Map(_) => 16,
            Self::MapCutOff { .. } => 17,
            Self::MapUnreachable => 18,
            Self::MapLeader => 19,
            Self::MapRestore { .. } => 20,
            Self::Lost { .. } => 21,
            Self::Lies { .. } => 22,
            Self::Rot { .. } => 23,
            Self::Wipe { .. } => 24,
            Self::Added { .. } => 25,
            Self::Reordered { .. } => 26,
        }
    }

    /// The node that it keeps from working; `None`: none, or all of them.
    pub fn keeps_out(&self, layout: &Layout) -> Option<usize> {
        match *self {
            Self::Crash { node } | Self::Kill { node } | Self::Lost { node } | Self::Wipe { node, .. } => Some(node),
            Self::Pause { node } | Self::HungCore { node, .. } => Some(node),
            Self::Cut { from: node, .. } | Self::Isolation { node, .. } | Self::SlowLink { one: node, .. } => {
                Some(node)
            }
            Self::Reordered { one: node, .. } => Some(node),
            Self::Reset { one: node, .. } | Self::Silence { one: node, .. } | Self::MapCutOff { node } => Some(node),
            Self::DiskErrors { store, .. } | Self::SlowDisk { store, .. } | Self::HungDisk { store } => {
                Some(layout.stores[store].node)
            }
            Self::Lies { store, .. } | Self::Rot { store, .. } => Some(layout.stores[store].node),
            _ => None,
        }
    }

    /// Whether what was acknowledged may be gone, or another, where a disk still answers.
    pub fn lies(&self) -> bool {
        matches!(self, Self::Lies { .. } | Self::Rot { .. })
    }

    /// The node and the store whose copies may be lost; no store: all that the node has.
    pub fn destroys(&self, layout: &Layout) -> Option<(usize, Option<usize>)> {
        match *self {
            Self::Lost { node } => Some((node, None)),
            Self::Wipe { node, store } => Some((node, store)),
            Self::Lies { store, .. } | Self::Rot { store, .. } => Some((layout.stores[store].node, Some(store))),
            _ => None,
        }
    }

    /// Whether groups get other members.
    pub fn changes_members(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Wipe { .. } | Self::Added { .. })
    }

    /// The stores of which copies may be lost.
    pub fn stores_destroyed(&self, layout: &Layout) -> Vec<usize> {
        match self.destroys(layout) {
            None => Vec::new(),
            Some((_, Some(store))) => vec![store],
            Some((node, None)) => layout.stores_of(node).collect(),
        }
    }

    /// The stores whose devices are lost, and are replaced by blank ones.
    pub fn wiped(&self, layout: &Layout) -> Vec<usize> {
        match *self {
            Self::Wipe { store: Some(store), .. } => vec![store],
            Self::Wipe { node, store: None } => layout.stores_of(node).collect(),
            _ => Vec::new(),
        }
    }
}

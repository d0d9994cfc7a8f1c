//! Which formats of the map and of what lies on devices a node's program knows, and what it says of itself.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Cluster versions that a program speaks: it reads what clusters of all of them have written, and writes as the cluster's is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The lowest.
    pub lowest: u32,
    /// The highest.
    pub highest: u32,
}

impl Versions {
    /// What this build speaks. A format that an older release cannot read takes a new highest one, and is written only where the
    /// cluster's version is that.
    pub const OF_THIS_BUILD: Self = Self { lowest: 1, highest: 1 };

    /// What a release after this build might speak, for tests.
    pub fn rehearsal() -> Self {
        Self { highest: Self::OF_THIS_BUILD.highest + 1, ..Self::OF_THIS_BUILD }
    }

    /// Whether it is among them.
    pub fn has(self, version: u32) -> bool {
        (self.lowest..=self.highest).contains(&version)
    }
}

/// A program of before it was said.
impl Default for Versions {
    fn default() -> Self {
        Self { lowest: 1, highest: 1 }
    }
}

/// "1", or "1 to 2"
impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lowest == self.highest {
            true => write!(f, "{}", self.lowest),
            false => write!(f, "{} to {}", self.lowest, self.highest),
        }
    }
}

/// What the program of a node speaks. Said anew by each life of it, so that nobody is taken for what it was before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRelease {
    /// Its release; empty: one of before it was said.
    pub name: String,
    /// Cluster versions that it speaks.
    pub cluster_versions: Versions,
    /// The oldest version of the node protocol that it speaks.
    pub protocol_oldest: u16,
    /// The newest one.
    pub protocol_newest: u16,
    /// Names of its features of that protocol.
    pub features: Vec<String>,
}

/// With which release an upgrade was finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedUpgrade {
    /// Its name.
    pub release: String,
    /// Wall time, only told.
    pub at_ns: u64,
}

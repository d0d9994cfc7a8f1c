//! What there must be: the volume and its size, its snapshots, the clones of them. What blocks hold is in the history,
//! where each volume has a region of its own.
//!
//! Whatever an administrator was told is kept through all crashes; what was asked for and not answered may be done or
//! not, and is found out at the next start.

use super::client::Clients;
use super::machine::{OTHER_VOLUME, VOLUME};
use super::profile::VOLUME_BYTES;
use crate::workload::Failure;
use checker::history::OperationId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::VolumeId;
use volume::Assembly;

/// Blocks of the history that each volume has.
const REGION_BLOCKS: u64 = 1 << 20;

/// A volume that clients use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub name: String,
    /// Where in the history its blocks are.
    region: u64,
}

impl Subject {
    /// The one that all clients use.
    pub fn judged() -> Self {
        Self { name: VOLUME.to_owned(), region: 0 }
    }

    /// Which block of its volume is at this place of the history.
    pub fn block_at(place: u64) -> u64 {
        place % REGION_BLOCKS
    }

    /// The place in the history of one of its blocks.
    pub fn place(&self, block: u64) -> u64 {
        self.region * REGION_BLOCKS + block
    }
}

/// How large a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// At least.
    pub sure_bytes: u64,
    /// At most: somebody asked for it.
    pub asked_bytes: u64,
}

/// How far something has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It was asked for.
    Asked,
    /// It is there.
    There,
    /// Something was asked that leaves it there, perhaps in another place.
    Moving,
    /// It was asked to go.
    Going,
}

/// A snapshot of the judged volume.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// In the history.
    pub operation: OperationId,
    pub life: Life,
}

/// A clone of a snapshot.
#[derive(Clone, Debug)]
pub struct CloneVolume {
    pub subject: Subject,
    pub size_bytes: u64,
    pub life: Life,
    /// In the trash, as this.
    pub trashed: Option<VolumeId>,
}

/// See the module.
pub struct Model {
    pub size: Size,
    pub snapshots: BTreeMap<String, Snapshot>,
    pub clones: BTreeMap<String, CloneVolume>,
    /// Volumes that come and go unjudged, and need not have gone.
    pub passing: BTreeSet<String>,
    names: u64,
    regions: u64,
}

impl Default for Model {
    fn default() -> Self {
        let size = Size { sure_bytes: VOLUME_BYTES, asked_bytes: VOLUME_BYTES };
        let (snapshots, clones) = Default::default();
        Self { size, snapshots, clones, passing: BTreeSet::from([OTHER_VOLUME.to_owned()]), names: 0, regions: 0 }
    }
}

impl Model {
    /// A name that nothing had.
    pub fn new_name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// A volume with blocks of its own.
    pub fn new_subject(&mut self, name: &str) -> Subject {
        self.regions += 1;
        Subject { name: name.to_owned(), region: self.regions }
    }

    pub fn size(&self, subject: &Subject) -> Size {
        let copy = self.clones.get(&subject.name).map(|copy| copy.size_bytes);
        match copy {
            Some(bytes) => Size { sure_bytes: bytes, asked_bytes: bytes },
            None if subject.region == 0 => self.size,
            // It is gone, or of no judged size.
            None => Size { sure_bytes: 0, asked_bytes: u64::MAX },
        }
    }

    /// Whether it is the volume that all clients use, or a clone of it.
    pub fn is_judged(&self, subject: &Subject) -> bool {
        !self.passing.contains(&subject.name)
    }

    /// Whether the volume must be served now, unless it is locked.
    pub fn is_served(&self, subject: &Subject) -> bool {
        let copy = self.clones.get(&subject.name);
        subject.region == 0 || copy.is_some_and(|copy| copy.life == Life::There && copy.trashed.is_none())
    }

    /// The clones that are served.
    pub fn served_clones(&self) -> Vec<Subject> {
        let served = self.clones.values().filter(|copy| self.is_served(&copy.subject));
        served.map(|copy| copy.subject.clone()).collect()
    }

    /// The snapshots that there are.
    pub fn snapshots_there(&self) -> Vec<String> {
        let there = self.snapshots.iter().filter(|(_, snapshot)| snapshot.life == Life::There);
        there.map(|(name, _)| name.clone()).collect()
    }
}

/// Compares what the node has with what there must be, at a start: what was left open is known from now on.
pub async fn compare(assembly: Assembly, clients: Arc<Clients>) -> Result<(), Failure> {
    let wrong = |what: String| Failure::new("model", what);
    let found = assembly.snapshots(VOLUME).await.map_err(|error| wrong(error.to_string()))?;
    let snapshots: BTreeSet<String> = found.into_iter().map(|snapshot| snapshot.name).collect();
    let served: BTreeMap<String, u64> =
        assembly.volumes().into_iter().map(|volume| (volume.name, volume.size_bytes)).collect();
    let trash: BTreeMap<String, VolumeId> =
        assembly.trash().into_iter().map(|trashed| (trashed.info.name, trashed.info.id)).collect();
    let strays = {
        let ledger = &mut *clients.ledger();
        ledger.find_out_snapshots(&snapshots).map_err(wrong)?;
        ledger.model.find_out_size(served[VOLUME]).map_err(wrong)?;
        ledger.model.find_out_clones(&served, &trash).map_err(wrong)?
    };
    for name in strays {
        assembly.delete_volume(&name).await.map_err(|error| wrong(format!("{name} cannot be deleted: {error}")))?;
    }
    Ok(())
}

impl super::client::Ledger {
    fn find_out_snapshots(&mut self, found: &BTreeSet<String>) -> Result<(), String> {
        if let Some(name) = found.iter().find(|name| !self.model.snapshots.contains_key(*name)) {
            return Err(format!("snapshot {name} is there, which was deleted"));
        }
        for (name, snapshot) in &mut self.model.snapshots {
            let is_there = found.contains(name);
            match snapshot.life {
                Life::There if !is_there => return Err(format!("snapshot {name} was taken and is not there")),
                Life::Asked => self.history.found_out(snapshot.operation, is_there),
                _ => {}
            }
            snapshot.life = Life::There;
        }
        self.model.snapshots.retain(|name, _| found.contains(name));
        Ok(())
    }
}

impl Model {
    fn find_out_size(&mut self, found_bytes: u64) -> Result<(), String> {
        let Size { sure_bytes, asked_bytes } = self.size;
        if found_bytes != sure_bytes && found_bytes != asked_bytes {
            return Err(format!("the volume has {found_bytes} bytes, not {sure_bytes} (or {asked_bytes})"));
        }
        self.size = Size { sure_bytes: found_bytes, asked_bytes: found_bytes };
        Ok(())
    }

    /// Returns those that were on their way when the node ended: nobody wrote to them.
    fn find_out_clones(
        &mut self,
        served: &BTreeMap<String, u64>,
        trash: &BTreeMap<String, VolumeId>,
    ) -> Result<Vec<String>, String> {
        let known =
            |name: &&String| **name == VOLUME || self.passing.contains(*name) || self.clones.contains_key(*name);
        if let Some(name) = served.keys().chain(trash.keys()).find(|name| !known(name)) {
            return Err(format!("volume {name} is there, which was deleted"));
        }
        let mut strays = Vec::new();
        for (name, copy) in &mut self.clones {
            let (size, trashed) = (served.get(name), trash.get(name).copied());
            let is_there = size.is_some() || trashed.is_some();
            match copy.life {
                Life::There if trashed != copy.trashed || !is_there => {
                    return Err(format!("clone {name} is not where it was left: {copy:?}"));
                }
                Life::Moving if !is_there => return Err(format!("clone {name} is gone: {copy:?}")),
                Life::Asked if is_there => strays.push(name.clone()),
                _ => {}
            }
            if let Some(&found) = size.filter(|found| **found != copy.size_bytes && copy.life != Life::Asked) {
                return Err(format!("clone {name} has {found} bytes, not {}", copy.size_bytes));
            }
            copy.trashed = trashed;
            copy.life = if copy.life == Life::Asked || !is_there { Life::Going } else { Life::There };
        }
        self.clones.retain(|_, copy| copy.life == Life::There);
        Ok(strays)
    }
}

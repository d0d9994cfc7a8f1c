//! Decisions on the map, each as compare-and-swap transactions that may be done again.
//!
//! A transaction whose answer was lost may have been done, or be done later. So it is sent again until it is known to
//! be done or never to be (`settle`), and only then does a decision read what became of it: what it makes carries
//! something only it can have written (a random id), or doing it twice is harmless (an epoch that nobody used is
//! skipped).

mod change;
mod endings;
mod force;
mod founding;
mod growth;
mod heads;
mod hosts;
mod instant;
mod joining;
mod keys;
mod numbers;
mod placing;
mod pools;
mod relocation;
mod settle;
mod setup;
mod snapshots;
mod trash;
mod upgrade;
mod volumes;

pub use change::{VolumeChange, change_volume};
pub use endings::{EndingLayer, NextEnding, finish_ending, have_left, next_ending};
pub use force::{ForceError, force_group};
pub use founding::{Founding, found_pool};
pub use growth::{add_groups, deal_again};
pub use heads::{Stay, give_head};
pub use hosts::{HostChange, change_hosts};
pub use instant::{INSTANT_VOLUMES_MAX, Pushed, Served, Wanted, find_wanted, name_snapshots, push_tops};
pub use joining::{JoinError, Joined, NODES_MAX, NewDevice, Newcomer, begin_cluster, foretell_join, join_cluster};
pub use keys::{key_record, new_key_id, set_compression, set_wraps};
pub use numbers::number_client;
pub use placing::{Others, PlaceError, VolumePlace, WantedPlace, home_for, lies_there, place_volume, room_at};
pub use pools::{
    DEFAULT_POOL, NewPool, PoolChange, PoolError, REPLICAS_MAX, change_pool, create_pool, default_min_in_sync,
    ensure_pool,
};
pub use relocation::{CopiedSnapshots, MOVED_SNAPSHOTS_MAX, OWN_SNAPSHOT, Places, create_draft, take_places};
pub use settle::settle;
pub use setup::{activate_device, ensure, load_table, say_address};
pub use snapshots::{
    NewTop, chain_of, clone_volume, delete_snapshot, name_snapshot, push_layer, roll_back, snapshot, snapshots,
    take_top,
};
pub use trash::{TRASH_TERM, empty_trash, restore_volume, trash_volume};
pub use upgrade::{Runs, Said, Upgrade, UpgradeError, VersionError, finish_upgrade, say_doors};
pub use volumes::{
    DEFAULT_SUBSYSTEM, NSID_MAX, NewVolume, begin_delete, create_placed_volume, create_volume, finish_delete,
    take_families, take_head, take_heads,
};

use crate::map::{MapError, MapStore, Outcome, Transaction};
use crate::names::InvalidInput;
use crate::records::{HostAccess, VolumeRecord};
use std::time::Duration;
use types::{Mutant, NodeId, VolumeEpoch, VolumeId, mutant};

/// A decision is tried so often against others who change the same records, or against lost answers.
const ATTEMPTS_MAX: u32 = 40;
/// Wait after an answer that was lost.
const RETRY_WAIT: Duration = Duration::from_millis(100);

/// Why a decision was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// The map's store.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A name or size that is not allowed.
    #[error(transparent)]
    Input(#[from] InvalidInput),
    /// What the map holds is not what it should be.
    #[error("the map's record {key} cannot be read: {why}")]
    BadRecord {
        /// Its key.
        key: String,
        /// Why.
        why: String,
    },
    /// The name is taken.
    #[error("a volume named {0} exists already")]
    Exists(String),
    /// No such volume.
    #[error("there is no volume named {0}")]
    NotFound(String),
    /// No such volume in the trash.
    #[error("there is no volume {0} in the trash")]
    NotInTrash(VolumeId),
    /// All namespace ids are taken.
    #[error(
        "the subsystem {0} has all of its {NSID_MAX} namespaces: delete a volume with --now first, or empty the trash, \
         whose volumes keep theirs"
    )]
    SubsystemFull(String),
    /// No such volume any more.
    #[error("volume {0} was deleted")]
    Gone(VolumeId),
    /// Another node is the volume's head by now.
    #[error("another node, {head}, is the head of volume {volume} now: ask it")]
    Deposed {
        /// The volume.
        volume: VolumeId,
        /// Its head.
        head: NodeId,
    },
    /// No such snapshot.
    #[error("there is no snapshot named {0}")]
    NoSnapshot(String),
    /// The snapshot's name is taken.
    #[error("a snapshot named {0} exists already")]
    SnapshotExists(String),
    /// More volumes than one transaction holds.
    #[error(
        "{0} volumes are too many for one instant: at most {max} at once",
        max = instant::INSTANT_VOLUMES_MAX
    )]
    TooManyVolumes(usize),
    /// What was to be named of an instant is not what it was.
    #[error("volume {0} was changed while its snapshot was taken: no snapshot was named, try again")]
    WentOn(VolumeId),
    /// A volume has one snapshot of an instant.
    #[error("the volume {0} is named twice: once is enough")]
    NamedTwice(String),
    /// A volume is deleted after its snapshots.
    #[error("the volume {volume} has snapshots: delete them first ({})", snapshots.join(", "))]
    HasSnapshots {
        /// The volume.
        volume: String,
        /// Its snapshots.
        snapshots: Vec<String>,
    },
    /// Volumes only grow.
    #[error("volume {volume} has {is_bytes} bytes and cannot become smaller ({asked_bytes} bytes)")]
    Smaller {
        /// The volume.
        volume: String,
        /// Its size.
        is_bytes: u64,
        /// The size asked for.
        asked_bytes: u64,
    },
    /// One host cannot be taken from all.
    #[error(
        "the volume {0} is open to every host: name those that may use it with `cairn host allow`, or close it with \
         `cairn host deny {0} any`"
    )]
    OpenToAll(String),
    /// The list of hosts is full.
    #[error("the volume {0} is for {max} hosts already: deny one of them first", max = HostAccess::LISTED_MAX)]
    TooManyHosts(String),
    /// The volume cannot lie as asked.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The pool cannot be as asked.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// No such pool.
    #[error("there is no pool named {0}")]
    NoPool(String),
    /// Others kept changing the same records.
    #[error("the map kept changing under this request: try again")]
    Contended,
}

/// Under which what a head decides is its to decide: no other was head in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    /// The head.
    pub node: NodeId,
    /// Its epoch.
    pub epoch: VolumeEpoch,
}

impl Reign {
    /// # Errors
    /// The volume has another head, or the same in another epoch.
    fn check(self, volume: &VolumeRecord) -> Result<(), CatalogError> {
        let is_its = volume.head == self.node && volume.volume_epoch == self.epoch;
        match is_its || mutant(Mutant::DeposedHeadDecides) {
            true => Ok(()),
            false => Err(CatalogError::Deposed { volume: volume.id, head: volume.head }),
        }
    }
}

/// One attempt of a decision.
enum Attempt {
    /// It is done.
    Done,
    /// It is done and was not heard of, or will never be done: read again and see.
    ReadAgain,
}

/// Sends `transaction`, in the way of [`settle`]; a conflict asks for another look.
async fn attempt(map: &dyn MapStore, transaction: Transaction) -> Result<Attempt, CatalogError> {
    match settle(map, transaction).await? {
        Outcome::Committed(_) => Ok(Attempt::Done),
        Outcome::Conflict => Ok(Attempt::ReadAgain),
    }
}

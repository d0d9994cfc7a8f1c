//! Why a group did not do what it was asked.

use std::sync::Arc;
use store::{AppendError, ReadError};
use types::{Epoch, GroupId, StoreId, VolumeEpoch, VolumeId};

/// Why a group did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// No room for what was to be written; nothing of it was queued.
    #[error("{0}")]
    NoSpace(AppendError),
    /// Another member has no room for new blocks; nothing was queued.
    #[error(
        "no space: store {store}, which holds a copy in group {group}, takes no new blocks: delete or discard data, or add a device"
    )]
    MemberFull {
        /// The group.
        group: GroupId,
        /// The member's store.
        store: StoreId,
    },
    /// The request comes from a head that is none any more.
    #[error("volume {volume}: the head of epoch {asked} was followed by one of epoch {seen}")]
    OldHead {
        /// The volume.
        volume: VolumeId,
        /// The epoch in the request.
        asked: VolumeEpoch,
        /// The highest this group has seen.
        seen: VolumeEpoch,
    },
    /// What is stored is not what was written, and there is no other copy.
    #[error("group {group}: {error}")]
    Damaged {
        /// The group.
        group: GroupId,
        /// What is wrong.
        error: ReadError,
    },
    /// What is stored is not what was written, and there is no other copy: so its primary says.
    #[error("{reason}")]
    DamagedThere {
        /// The group.
        group: GroupId,
        /// What is wrong.
        reason: Arc<str>,
    },
    /// No room for what was to be written, as the group's primary says.
    #[error("{reason}")]
    NoSpaceThere {
        /// Where, and what to do.
        reason: Arc<str>,
    },
    /// The group has not seen this reign of the head, and was told nothing of its layers: nothing was done.
    #[error("group {group} was not told the layers of volume {volume}")]
    Untold {
        /// The group.
        group: GroupId,
        /// The volume.
        volume: VolumeId,
    },
    /// The chunk is another group's: nothing was done.
    #[error("group {group} does not hold this chunk: the head goes by another slot table")]
    NotHeld {
        /// The group.
        group: GroupId,
    },
    /// The head has asked again since: nothing was done, and nothing is.
    #[error("group {group}: this was asked again")]
    Overtaken {
        /// The group.
        group: GroupId,
    },
    /// This member does not lead the group: nothing was done.
    #[error("group {group} is led by {}", .primary.map_or("nobody here yet".to_owned(), |store| format!("store {store}")))]
    NotPrimary {
        /// The group.
        group: GroupId,
        /// Who does, as far as is known; nobody, if this one is to lead and does not yet.
        primary: Option<StoreId>,
    },
    /// Another member may have taken over. Whether the write is or will be done is unknown.
    #[error("group {group}: another member may have taken over, and whether the write is done is unknown")]
    Unknown {
        /// The group.
        group: GroupId,
    },
    /// The group serves nothing until it is started anew. A write that ends so has an unknown outcome.
    #[error("group {group} has stopped: {reason}")]
    Stopped {
        /// The group.
        group: GroupId,
        /// Why.
        reason: String,
    },
}

/// Why a group was not started. The others of its store are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The map is older than what the member knows: it was restored from a backup, or is another cluster's.
    #[error(
        "the map says epoch {map} for group {group}, its member has been in epoch {member}: the map went back in time; restore a newer one, or make it anew of what the devices know (`cairn map rebuild`)"
    )]
    MapWentBack {
        /// The group.
        group: GroupId,
        /// The map's epoch.
        map: Epoch,
        /// The member's.
        member: Epoch,
    },
    /// Fewer members are in sync than a write needs.
    #[error("group {group} has {in_sync} members in sync, {needed} are needed")]
    TooFewInSync {
        /// The group.
        group: GroupId,
        /// In sync.
        in_sync: usize,
        /// Needed.
        needed: u32,
    },
    /// The record names a store that is not here, or leaves out the one that is.
    #[error("group {group} is not led by this store alone")]
    NotOurs {
        /// The group.
        group: GroupId,
    },
    /// Acknowledged entries of the group are not there any more, or may not be: what is left may be older than what was
    /// written, and nobody could tell.
    #[error(
        "group {group} lost entries that were acknowledged, and no other copy of it is known: nothing of it is served; put back an intact copy of the device"
    )]
    Damaged {
        /// The group.
        group: GroupId,
    },
    /// The first entries of the epoch could not be written.
    #[error("group {group} could not begin its epoch: {error}")]
    Append {
        /// The group.
        group: GroupId,
        /// Why.
        error: AppendError,
    },
}

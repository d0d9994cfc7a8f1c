//! What kinds of events there are: a word for programs, which never changes its meaning, and how bad it is.

use crate::admin::event_types::EventSeverity;
use EventSeverity::{Error, Info, Warning};

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The word.
    pub(crate) name: &'static str,
    /// How bad it is.
    pub(crate) severity: EventSeverity,
}

const fn kind(name: &'static str, severity: EventSeverity) -> Kind {
    Kind { name, severity }
}

// ---- nodes -------------------------------------------------------------------------------------------------------------

pub(crate) const NODE_STARTED: Kind = kind("node-started", Info);
pub(crate) const NODE_STOPPED: Kind = kind("node-stopped", Info);
pub(crate) const NODE_JOINED: Kind = kind("node-joined", Info);
pub(crate) const NODE_ENDED: Kind = kind("node-ended", Warning);
pub(crate) const NODE_AWAY: Kind = kind("node-away", Warning);
pub(crate) const NODE_BACK: Kind = kind("node-back", Info);
pub(crate) const NODE_DRAINED: Kind = kind("node-drained", Info);
pub(crate) const NODE_REMOVED: Kind = kind("node-removed", Info);
pub(crate) const MAINTENANCE_ENDED: Kind = kind("maintenance-ended", Info);
pub(crate) const DUTY_ORDERED: Kind = kind("duty-ordered", Info);

// ---- devices -----------------------------------------------------------------------------------------------------------

pub(crate) const DEVICE_ADDED: Kind = kind("device-added", Info);
pub(crate) const DEVICE_AWAY: Kind = kind("device-away", Warning);
pub(crate) const DEVICE_BACK: Kind = kind("device-back", Info);
pub(crate) const DEVICE_FAILED: Kind = kind("device-failed", Error);
pub(crate) const DEVICE_RECOVERED: Kind = kind("device-recovered", Info);
pub(crate) const DEVICE_SLOW: Kind = kind("device-slow", Warning);
pub(crate) const DEVICE_NOT_SLOW: Kind = kind("device-not-slow", Info);
pub(crate) const DEVICE_DAMAGED: Kind = kind("device-damaged", Error);
pub(crate) const DEVICE_WHOLE: Kind = kind("device-whole", Info);
pub(crate) const DEVICE_GIVEN_UP: Kind = kind("device-given-up", Warning);
pub(crate) const DEVICE_TAKEN_BACK: Kind = kind("device-taken-back", Info);
pub(crate) const DEVICE_DRAINED: Kind = kind("device-drained", Info);
pub(crate) const DEVICE_REMOVED: Kind = kind("device-removed", Info);

// ---- placement groups, and all of the cluster --------------------------------------------------------------------------

pub(crate) const GROUPS_LACK_COPIES: Kind = kind("groups-lack-copies", Warning);
pub(crate) const GROUPS_STOPPED: Kind = kind("groups-stopped", Error);
pub(crate) const GROUPS_SERVE: Kind = kind("groups-serve", Info);
pub(crate) const GROUPS_WHOLE: Kind = kind("groups-whole", Info);
pub(crate) const TROUBLE: Kind = kind("trouble", Warning);
pub(crate) const TROUBLE_OVER: Kind = kind("trouble-over", Info);
pub(crate) const HEALTHY: Kind = kind("health", Info);
pub(crate) const HEALTH_DEGRADED: Kind = kind("health", Warning);
pub(crate) const HEALTH_BAD: Kind = kind("health", Error);
pub(crate) const MAP_AWAY: Kind = kind("map-away", Warning);
pub(crate) const MAP_BACK: Kind = kind("map-back", Info);
pub(crate) const MAP_WENT_BACK: Kind = kind("map-went-back", Error);
pub(crate) const GROUPS_FORCED: Kind = kind("groups-forced", Warning);
pub(crate) const UPGRADE_FINISHED: Kind = kind("upgrade-finished", Info);
pub(crate) const CHECK_BEGUN: Kind = kind("check-begun", Info);

// ---- volumes and pools -------------------------------------------------------------------------------------------------

pub(crate) const HEAD_MOVED: Kind = kind("head-moved", Info);
pub(crate) const VOLUME_CREATED: Kind = kind("volume-created", Info);
pub(crate) const VOLUME_TRASHED: Kind = kind("volume-trashed", Info);
pub(crate) const VOLUME_RESTORED: Kind = kind("volume-restored", Info);
pub(crate) const VOLUME_DELETED: Kind = kind("volume-deleted", Info);
pub(crate) const VOLUME_TERM_OVER: Kind = kind("volume-term-over", Info);
pub(crate) const VOLUME_RESIZED: Kind = kind("volume-resized", Info);
pub(crate) const VOLUME_LIMITED: Kind = kind("volume-limits-changed", Info);
pub(crate) const VOLUME_RENAMED: Kind = kind("volume-renamed", Info);
pub(crate) const VOLUME_MOVED: Kind = kind("volume-moved", Info);
pub(crate) const VOLUME_UNLOCKED: Kind = kind("volume-unlocked", Info);
pub(crate) const VOLUME_LOCKED: Kind = kind("volume-locked", Info);
pub(crate) const VOLUME_REKEYED: Kind = kind("volume-rekeyed", Info);
pub(crate) const VOLUME_CLONED: Kind = kind("volume-cloned", Info);
pub(crate) const VOLUME_ROLLED_BACK: Kind = kind("volume-rolled-back", Info);
pub(crate) const SNAPSHOT_CREATED: Kind = kind("snapshot-created", Info);
pub(crate) const SNAPSHOT_DELETED: Kind = kind("snapshot-deleted", Info);
pub(crate) const HOST_ALLOWED: Kind = kind("host-allowed", Info);
pub(crate) const HOST_DENIED: Kind = kind("host-denied", Info);
pub(crate) const POOL_CREATED: Kind = kind("pool-created", Info);
pub(crate) const POOL_CHANGED: Kind = kind("pool-changed", Info);

/// Kinds that every node sees for itself, or is told by the one that was asked: what several nodes note of one is one event.
pub(crate) const SEEN_BY_ALL: [Kind; 26] = [
    NODE_JOINED,
    NODE_ENDED,
    NODE_AWAY,
    NODE_BACK,
    NODE_DRAINED,
    NODE_REMOVED,
    MAINTENANCE_ENDED,
    DEVICE_ADDED,
    DEVICE_AWAY,
    DEVICE_BACK,
    DEVICE_GIVEN_UP,
    DEVICE_TAKEN_BACK,
    DEVICE_DRAINED,
    DEVICE_REMOVED,
    GROUPS_LACK_COPIES,
    GROUPS_STOPPED,
    GROUPS_SERVE,
    GROUPS_WHOLE,
    HEALTHY,
    MAP_AWAY,
    MAP_BACK,
    MAP_WENT_BACK,
    HEAD_MOVED,
    VOLUME_TERM_OVER,
    VOLUME_UNLOCKED,
    VOLUME_LOCKED,
];

//! # volume: the head of a volume
//!
//! Byte range → chunks → slots → groups; admission; partial blocks; layers. The front doors (`nvme`, `nbd`) know this
//! floor only: a [`Directory`] of [`Volume`]s per core.
//!
//! ```text
//!   door ── Volume::write(offset, bytes)                       on any core
//!             │ command    split at chunks, admitted at the call
//!             ├─ chunk of this core ──► admission ─► part ─► Group::write … committed
//!             └─ chunk of another ───── message ──► the same there ──► message back
//! ```
//!
//! **Promises.** A chunk belongs to one core (that of its group's shard). Commands that overlap in a 4 KiB block run
//! one after the other, in the order of admission. A write of at most 64 KiB that does not cross a multiple of 64 KiB
//! is all or nothing. A write that has returned is durable. On the path of one block nothing is allocated once warm.
//!
//! **Never.** No protocol, no policy of retries towards hosts, no waiting for the cluster's map on the path of I/O.
//!
//! Main types: [`Volume`] and [`Directory`] (for the doors), [`Assembly`] (for the daemon: a node from its devices to
//! its volumes).

mod admission;
mod api;
mod assembly;
mod checksums;
mod clients;
mod coding;
mod command;
mod directory;
mod forward;
mod fused;
mod gate;
mod head;
mod hold;
pub mod latency;
mod limit;
mod message;
mod part;
mod patience;
mod raised;
mod session;
mod snapshot;
mod spec;
mod status;
mod words;
mod zeroes;

pub use api::*;
pub use assembly::{
    Assembly, Blank, ByteRange, Check, CheckFault, CheckFinding, ClientOptions, DeviceStatus, Fill, GroupCopy, Message,
    NewVolume, NodeOptions, NodeStatus, OpenVolume, PeerNode, PoolInfo, REFUSED_PERCENT, Relocation, Speaks, Standings,
    StartError, Testament, TrashedVolume, VolumeError, VolumeUsage, WARNING_PERCENT, draft_cluster,
};
pub use clients::{HostHere, Opening};
pub use cluster::{
    HostAccess, HostChange, LimitChange, Limits, NewPool, PoolChange, VolumeChange, VolumePlacement, WantedPlace,
};
pub use coding::{
    DataKey, KEY_FILE_BYTES_MAX, KEY_FILE_BYTES_MIN, KeyError, KeyPlace, PASSPHRASE_BYTES_MAX, PASSPHRASE_BYTES_MIN,
    Secret,
};
pub use forward::{Attached, fuzz as fuzz_forwards};
pub use hold::Held;
pub use limit::Cost;
pub use replication::node::{PeerTraffic, SpokenCounts};
pub use replication::wire::ClusterKey;
pub use snapshot::SnapshotInfo;
pub use status::{BlockExtent, MARKS_MAX, SnapshotMark};

//! What the admin API says and takes, as JSON. The CLI uses these very types.

use super::duty_types::{Duty, Foretold};
use super::health_types::{AtRisk, Doing, Finding};
use super::pool_types::{Placement, PoolDetails};
use crate::secret::{from_hex, to_hex};
use crate::volume_spec::BlockSize;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;
use volume::KeyError;
use zeroize::Zeroizing;

/// A volume and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its name.
    #[schema(example = "demo")]
    pub name: String,
    /// Its size; it takes space only for what was written.
    #[schema(example = 1_073_741_824)]
    pub size_bytes: u64,
    /// Logical block of the NVMe namespace, 512 or 4096. The physical block is 4096 in both.
    #[schema(example = 512)]
    pub block_size_bytes: u32,
    /// NVMe qualified name of the subsystem that the volume is a namespace of.
    pub nqn: String,
    /// NVMe namespace id in that subsystem.
    #[schema(example = 1)]
    pub nsid: u32,
    /// NVMe globally unique namespace id, 32 hexadecimal digits, the same on all paths.
    pub nguid: String,
    /// HOST:PORT of the NVMe/TCP targets, the head's first.
    #[schema(example = json!(["127.0.0.1:4420"]))]
    pub nvme_addresses: Vec<String>,
    /// nbd://HOST:PORT/NAME at the head.
    #[schema(example = "nbd://127.0.0.1:10809/demo")]
    pub nbd_uri: String,
    /// The same on all nodes.
    pub nbd_uris: Vec<String>,
    /// What it may do in a second.
    #[serde(default)]
    pub limits: Limits,
    /// Ids of its layers in the store, newest first: what tools that read a device call its contents.
    #[schema(example = json!([1]))]
    pub layers: Vec<u64>,
    /// Its pool.
    #[schema(example = "default")]
    pub pool: String,
    /// Whether it is led from one node, or from all devices of its pool. All that lies on one node is gathered.
    pub placement: Placement,
    /// The node that serves it.
    #[schema(example = "node-1")]
    pub head: String,
    /// The node that is to serve it, and to lead it if it is gathered; empty: nobody has said.
    #[schema(example = "node-1")]
    pub home: String,
    /// Of what is gathered: the node that leads it now. Where that is not the head, each command takes a hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "node-1")]
    pub led_from: Option<String>,
    /// How what is written to it is compressed: that of its pool.
    pub compression: Compression,
    /// Whether its blocks are encrypted.
    pub encrypted: bool,
    /// Whether nobody can use it until it is unlocked.
    pub locked: bool,
    /// Whether every NVMe host may use it. NBD clients have no name: whoever reaches that port may.
    pub any_host: bool,
    /// NQNs of the NVMe hosts that may use it, if not every host may.
    #[schema(example = json!(["nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"]))]
    pub hosts: Vec<String>,
    /// What it takes; not told of a volume that was just made or changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// What a volume takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Its size: what it promises.
    pub logical_bytes: u64,
    /// Blocks that only it holds: they come back when it is deleted.
    pub unique_bytes: u64,
    /// Blocks that it shares with snapshots and other volumes.
    pub shared_bytes: u64,
    /// Both together, as they are stored: compressed, if they are.
    pub stored_bytes: u64,
}

/// A snapshot: what a volume held at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// The volume.
    #[schema(example = "data")]
    pub volume: String,
    /// Its name, one of the volume's own.
    #[schema(example = "monday")]
    pub name: String,
    /// Size of the volume then.
    pub size_bytes: u64,
    /// When it was taken, RFC 3339.
    #[schema(example = "2026-05-04T12:00:00.000Z")]
    pub created_at: String,
}

/// A snapshot to be taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshot {
    /// `[a-z0-9][a-z0-9._-]{0,62}`
    #[schema(example = "monday")]
    pub name: String,
}

/// Snapshots of several volumes to be taken at one instant: all or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshots {
    /// One of each volume, at most 62.
    pub snapshots: Vec<SnapshotOf>,
}

/// A snapshot by its volume and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotOf {
    /// The volume.
    #[schema(example = "data")]
    pub volume: String,
    /// `[a-z0-9][a-z0-9._-]{0,62}`
    #[schema(example = "monday")]
    pub name: String,
}

/// A volume to be made of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneSnapshot {
    /// Name of the new volume.
    #[schema(example = "data-copy")]
    pub name: String,
}

/// What of a volume is to be other from now on; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeVolume {
    /// What it is called: `[a-z0-9][a-z0-9._-]{0,62}`, and no other volume is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "data-2026")]
    pub name: Option<String>,
    /// Its size: a multiple of 4096, not less than it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 21_474_836_480_u64)]
    pub size_bytes: Option<u64>,
    /// What it may do in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ChangeLimits>,
}

/// Where a volume is to be served from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveVolume {
    /// The node.
    #[schema(example = "node-2")]
    pub node: String,
}

/// Where a volume is to lie from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RelocateVolume {
    /// Gathered at a node, or spread over all devices of a pool.
    pub placement: Placement,
    /// The node that is to lead it, and to serve it; none: the one with the most room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "node-2")]
    pub node: Option<String>,
    /// The pool; none: the one that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "default")]
    pub pool: Option<String>,
}

/// Whether a volume moves to other groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MovingState {
    /// It does not.
    #[default]
    Still,
    /// What it holds is being copied.
    Moving,
    /// It was moved, and stayed where it was.
    Failed,
}

/// How far a volume's move to other groups is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Moving {
    /// Whether it moves.
    pub state: MovingState,
    /// Where it is to lie, in words.
    #[schema(example = "spread over the pool default")]
    pub to: String,
    /// Bytes that were copied: what is written meanwhile is copied more than once.
    pub copied_bytes: u64,
    /// Bytes that it held at the beginning, its snapshots included.
    pub total_bytes: u64,
    /// Why the last move failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Limits that are to be others; what is not named stays, what is `null` is taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeLimits {
    /// Commands in a second, 1 to 100000000.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "named")]
    #[schema(value_type = Option<u64>, example = 5000)]
    pub iops: Option<Option<u64>>,
    /// Bytes read and written in a second, 65536 to 1099511627776.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "named")]
    #[schema(value_type = Option<u64>, example = 209_715_200)]
    pub bytes_per_second: Option<Option<u64>>,
    /// Unused allowance of the last so many milliseconds may be used at once, 10 to 3600000; 100 if it is taken away.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "named")]
    #[schema(value_type = Option<u64>, example = 100)]
    pub burst_ms: Option<Option<u64>>,
}

/// A field that is there, `null` or not.
fn named<'a, D: serde::Deserializer<'a>>(field: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(field).map(Some)
}

impl From<ChangeLimits> for cluster::LimitChange {
    fn from(change: ChangeLimits) -> Self {
        let ChangeLimits { iops, bytes_per_second, burst_ms } = change;
        Self { iops, bytes_per_second, burst_ms }
    }
}

impl From<cluster::LimitChange> for ChangeLimits {
    fn from(change: cluster::LimitChange) -> Self {
        let cluster::LimitChange { iops, bytes_per_second, burst_ms } = change;
        Self { iops, bytes_per_second, burst_ms }
    }
}

/// What a volume may do in a second, over all hosts and both protocols. Who asks for more waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Commands in a second; `null`: no limit.
    #[serde(default)]
    #[schema(example = 5000)]
    pub iops: Option<u64>,
    /// Bytes read and written in a second; `null`: no limit.
    #[serde(default)]
    #[schema(example = 209_715_200)]
    pub bytes_per_second: Option<u64>,
    /// Unused allowance of the last so many milliseconds may be used at once; `null` where nothing is limited, or, in a
    /// request, for the default of 100.
    #[serde(default)]
    #[schema(example = 100)]
    pub burst_ms: Option<u64>,
}

impl Limits {
    /// As they are told: with the burst that holds.
    pub(super) fn of(limits: cluster::Limits) -> Self {
        let burst_ms = (!limits.is_unset()).then(|| limits.burst().as_millis() as u64);
        Self { iops: limits.iops, bytes_per_second: limits.bytes_per_second, burst_ms }
    }

    /// As they are asked for.
    pub(super) fn asked(self) -> cluster::Limits {
        let Self { iops, bytes_per_second, burst_ms } = self;
        cluster::Limits { iops, bytes_per_second, burst_ms }
    }

    /// Whether there is none.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

/// A stretch of a volume that was written, zeroed or discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedRange {
    /// Its first byte.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
}

/// Where the time of a volume's commands went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeLatency {
    /// The volume.
    #[schema(example = "data")]
    pub volume: String,
    /// How far back this goes: one to two minutes, or since the node serves the volume.
    pub seconds: u64,
    /// For `read`, `write` and `other` (flush, discard, zeroes, block status).
    pub operations: Vec<OperationLatency>,
    /// The slowest commands of that time, the slowest first.
    pub slowest: Vec<SlowIo>,
}

/// What the commands of one kind come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationLatency {
    /// Which.
    #[schema(example = "write")]
    pub operation: String,
    /// How many there were.
    pub count: u64,
    /// Those that were answered with an error.
    pub failed: u64,
    /// Bytes that they were about.
    pub bytes: u64,
    /// Time they were in each stage, added up.
    pub stages: StageTimes,
}

/// Time in each stage of a command's life, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StageTimes {
    /// Until the volume was asked: its data came from the host, the volume has a limit, or the core had taken on all it
    /// may.
    pub receive_ns: u64,
    /// Until it was the command's turn: others overlapped, a snapshot was taken, another core had to be asked.
    pub admit_ns: u64,
    /// Until the device was asked: a record was under way before it, or space was being cleaned.
    pub queue_ns: u64,
    /// Until it was durable, or read.
    pub device_ns: u64,
    /// Until the kernel had the answer.
    pub send_ns: u64,
}

/// A command that took long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlowIo {
    /// `nvme` or `nbd`.
    #[schema(example = "nvme")]
    pub door: String,
    /// What it was.
    #[schema(example = "compare-and-write")]
    pub operation: String,
    /// Its first byte; 0, if it has no range.
    pub offset_bytes: u64,
    /// How many bytes it was about.
    pub length_bytes: u64,
    /// Whether it was answered with an error.
    pub failed: bool,
    /// The core of its connection.
    pub core: u16,
    /// When it ended, RFC 3339.
    #[schema(example = "2026-05-04T12:00:00.000Z")]
    pub ended_at: String,
    /// Where its time went.
    pub stages: StageTimes,
}

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// `[a-z0-9][a-z0-9._-]{0,62}`
    #[schema(example = "data")]
    pub name: String,
    /// A multiple of 4096, from 1 MiB to 64 TiB.
    #[schema(example = 10_737_418_240_u64)]
    pub size_bytes: u64,
    /// 512 (default) or 4096.
    #[serde(default = "default_block_size_bytes")]
    #[schema(default = 512)]
    pub block_size_bytes: u32,
    /// Encrypt it: this opens it after a restart. Without, it is not encrypted, and never will be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Every NVMe host may use it, whatever is the rule of the node.
    #[serde(default)]
    pub any_host: bool,
    /// What it may do in a second; without, as much as there is.
    #[serde(default, skip_serializing_if = "Limits::is_unset")]
    pub limits: Limits,
    /// Its pool; without, the one that keeps so many copies, or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "default")]
    pub pool: Option<String>,
    /// Copies that its pool must keep: it is refused if the pool keeps another number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Whether it is led from one node or from all; without, as its pool says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The node that serves it, and leads it if it is gathered; without, the one with the most room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "node-1")]
    pub node: Option<String>,
}

/// An NVMe host that may use a volume from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AllowHost {
    /// Its NQN, or `any` for every host.
    #[schema(example = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6")]
    pub host: String,
}

/// The NVMe hosts of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hosts {
    /// The volume.
    #[schema(example = "data")]
    pub volume: String,
    /// Whether every host may use it.
    pub any_host: bool,
    /// NQNs of those that may, if not every host may.
    pub hosts: Vec<String>,
}

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// LZ4: cheap.
    Lz4,
    /// Zstandard: smaller, and dearer.
    Zstd,
    /// Not at all.
    Off,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its name.
    #[schema(example = "node-1")]
    pub name: String,
    /// Its process; 0: it is not of the process that answers.
    #[schema(example = 4242)]
    pub pid: u32,
    /// How it is.
    pub state: NodeState,
    /// Where it serves NVMe/TCP.
    #[schema(example = "127.0.0.1:4420")]
    pub nvme_address: String,
    /// Where it serves NBD.
    #[schema(example = "127.0.0.1:10809")]
    pub nbd_address: String,
    /// What it is to do.
    #[serde(default)]
    pub duty: Duty,
    /// Placement groups that have a member on it.
    #[serde(default)]
    pub groups: usize,
    /// Those of them that are to leave it.
    #[serde(default)]
    pub groups_leaving: usize,
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It is there and does its part.
    Up,
    /// It was not heard of for some seconds.
    Away,
    /// It is there, and may be away: it leads nothing.
    Maintenance,
    /// What is on it is being copied elsewhere.
    Draining,
    /// Nothing is on it any more.
    Drained,
}

impl NodeState {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Away => "away",
            Self::Maintenance => "maintenance",
            Self::Draining => "draining",
            Self::Drained => "drained",
        }
    }
}

/// What opens an encrypted volume.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    /// What it is.
    pub kind: SecretKind,
    /// Its bytes, two hexadecimal digits each: 8 to 1024 bytes of a passphrase, 32 to 65536 of a key file.
    #[schema(value_type = String, example = "6f70656e20736573616d65")]
    pub hex: Zeroizing<String>,
}

/// What a secret is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SecretKind {
    /// Words that a person knows.
    Passphrase,
    /// What a file holds.
    KeyFile,
}

/// What unlocks a volume and the clones of its family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnlockVolume {
    /// One that opens it.
    pub secret: Secret,
}

/// How the secrets that open a volume and the clones of its family change. No block is touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RekeyVolume {
    /// One that opens it now.
    pub secret: Secret,
    /// Opens it from now on; without it `secret` opens it no more, if there is another one that does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_secret: Option<Secret>,
    /// `secret` goes on opening it, too.
    #[serde(default)]
    pub keep: bool,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({:?})", self.kind)
    }
}

impl Secret {
    /// The secret as requests carry it.
    pub fn of(secret: &volume::Secret) -> Self {
        let kind = match secret.kind() {
            cluster::SecretKind::Passphrase => SecretKind::Passphrase,
            cluster::SecretKind::KeyFile => SecretKind::KeyFile,
        };
        Self { kind, hex: to_hex(secret.bytes()) }
    }

    /// The secret itself; `None` if these are no hexadecimal digits.
    pub(super) fn read(&self) -> Option<Result<volume::Secret, KeyError>> {
        let kind = match self.kind {
            SecretKind::Passphrase => cluster::SecretKind::Passphrase,
            SecretKind::KeyFile => cluster::SecretKind::KeyFile,
        };
        Some(volume::Secret::new(kind, from_hex(&self.hex)?))
    }
}

impl From<cluster::Compression> for Compression {
    fn from(compression: cluster::Compression) -> Self {
        match compression {
            cluster::Compression::Off => Self::Off,
            cluster::Compression::Lz4 => Self::Lz4,
            cluster::Compression::Zstd => Self::Zstd,
        }
    }
}

impl From<Compression> for cluster::Compression {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::Off => Self::Off,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd,
        }
    }
}

/// A volume in the trash: nobody is served, its space is still taken, and it can be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrashedVolume {
    /// Its id: two volumes in the trash may have had the same name.
    #[schema(example = 7)]
    pub id: u64,
    /// What it was called.
    #[schema(example = "data")]
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// When it was deleted, RFC 3339.
    #[schema(example = "2026-05-04T12:00:00.000Z")]
    pub deleted_at: String,
    /// When it is deleted for good, RFC 3339.
    #[schema(example = "2026-05-05T12:00:00.000Z")]
    pub kept_until: String,
}

/// How a volume comes out of the trash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreVolume {
    /// Its name from now on; what it was called if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "data-again")]
    pub name: Option<String>,
}

fn default_block_size_bytes() -> u32 {
    BlockSize::default().bytes()
}

/// How the cluster is, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// All is as it should be.
    Healthy,
    /// Everything is served, and something needs attention.
    Degraded,
    /// Something is not served.
    Unavailable,
    /// Data that was stored cannot be read or fails its checksum.
    Damaged,
}

/// The cluster at one glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// In one word.
    pub health: Health,
    /// Why it is not healthy and what to do, one line each, the most urgent first; empty when it is.
    pub reasons: Vec<String>,
    /// All that somebody should know, the most urgent first: cause, what is at risk, what is being done, when that ends, what to
    /// run. Not each is a fault.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Version of the software that answers.
    pub version: String,
    /// The cluster, 32 hexadecimal digits.
    pub cluster_id: String,
    /// Volumes there are.
    pub volumes: usize,
    /// Encrypted volumes that nobody can use until they are unlocked.
    pub volumes_locked: Vec<String>,
    /// The pools.
    pub pools: Vec<PoolDetails>,
    /// Deleted volumes whose space is not all back yet.
    pub volumes_deleting: usize,
    /// Deleted volumes that can still be restored, and still take space.
    pub trash: Vec<TrashedVolume>,
    /// How much there is and how much of it is taken.
    pub capacity: Capacity,
    /// Placement groups there are.
    pub groups: usize,
    /// Placement groups that serve.
    pub groups_serving: usize,
    /// The devices.
    pub devices: Vec<Device>,
    /// What one more loss would do, of all findings, the worst first.
    #[serde(default)]
    pub at_risk: Vec<AtRisk>,
    /// What is being done, of all findings, and when it ends.
    #[serde(default)]
    pub doing: Vec<Doing>,
}

/// How much there is and how much of it is taken, over all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// Bytes of all devices.
    pub raw_bytes: u64,
    /// What can be stored on them. New blocks are refused from 90 % of it on, a warning comes at 75 %.
    pub usable_bytes: u64,
    /// What is stored: blocks that can be read, those of volumes in the trash too.
    pub used_bytes: u64,
    /// Sum of the sizes of all volumes, those in the trash too: what they could come to hold.
    pub provisioned_bytes: u64,
    /// The same as a part of what is usable: above 100 the devices cannot hold what the volumes promise.
    pub overcommit_percent: u64,
    /// Sum of the sizes of the volumes in the trash.
    pub trash_bytes: u64,
}

/// A device for the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddDevice {
    /// Where the node finds it: an absolute path of a formatted block device or file.
    pub path: String,
    /// Only say what it would get.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// A device that was added, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddedDevice {
    /// The device; not there if it was only asked what it would get.
    #[serde(flatten)]
    pub device: Option<Device>,
    /// What is copied there; not there as long as something stands against that, which the node's log says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Foretold>,
}

/// A device that has left the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetDevice {
    /// Where the node's file says it is.
    pub path: String,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Device {
    /// The store on it, 32 hexadecimal digits.
    pub store_id: String,
    /// Where it is.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
    /// What can be stored on it.
    pub capacity_bytes: u64,
    /// What is taken on it, space of deleted data included that is not back yet.
    pub used_bytes: u64,
    /// What is stored on it: blocks that can be read.
    pub live_bytes: u64,
    /// Why it has failed, if it has.
    pub failed: Option<String>,
    /// Why it is slow, if it is.
    pub slow: Option<String>,
    /// Whether writers wait for segments to be cleaned, or did a moment ago: they write faster than space comes back.
    pub throttling: bool,
    /// How often one did since the device was opened.
    pub throttled: u64,
    /// Places found damaged when it was opened or read since.
    pub damage: u64,
    /// Those that reads met, the first of them: where, and of which volume.
    pub damaged: Vec<String>,
    /// Records appended since it was opened: each is one device write.
    pub appends: u64,
    /// Entries in those records.
    pub entries: u64,
    /// Bytes of those records.
    pub device_bytes_written: u64,
    /// Bytes read from the device since it was opened.
    pub device_bytes_read: u64,
    /// Its node.
    #[serde(default)]
    pub node: String,
    /// What it is to do.
    #[serde(default)]
    pub duty: Duty,
    /// Placement groups that have a member on it.
    #[serde(default)]
    pub groups: usize,
    /// Those of them that are to leave it.
    #[serde(default)]
    pub groups_leaving: usize,
    /// Placement groups that are being brought to it.
    #[serde(default)]
    pub groups_coming: usize,
    /// About how many bytes are still to be copied elsewhere.
    #[serde(default)]
    pub bytes_leaving: u64,
}

/// An error: `{"error": {"code", "message", "hint"}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: ErrorDetail,
}

/// What is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// One word for programs.
    #[schema(example = "volume_not_found")]
    pub code: String,
    /// What is wrong, one sentence for people.
    pub message: String,
    /// What to do.
    pub hint: String,
}

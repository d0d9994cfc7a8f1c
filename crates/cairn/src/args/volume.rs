//! Volumes, and what belongs to one: its hosts, its snapshots, its way through the trash.

use super::pool::pool_name;
use crate::help;
use clap::{Args, Subcommand};
use node::node_name::{NodeName, UnknownNodeName};
use node::rates::{Bandwidth, Burst, Iops};
use node::size::ByteSize;
use node::volume_spec::{BlockSize, SnapshotName, SnapshotPath, VolumeName, check_volume_size, shortened};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume; it takes space only for what is written
    #[command(after_help = help::VOLUME_CREATE)]
    Create {
        /// 1 to 63 of a-z, 0-9, '.', '_', '-'
        name: VolumeName,
        /// 1M to 64T, whole 4K; K, M, G, T are powers of 1,024
        #[arg(long, value_parser = volume_size, allow_hyphen_values = true)]
        size: ByteSize,
        /// Logical block of the NVMe namespace: 512 or 4096 (the physical one is 4096 in both)
        #[arg(long, default_value_t, value_name = "512|4096")]
        block_size: BlockSize,
        /// Encrypt it (AES-256-XTS); what the key file or passphrase file holds opens it after each start of the node
        #[arg(long, requires = "secret")]
        encrypt: bool,
        #[command(flatten)]
        secret: NewVolumeSecret,
        /// Every NVMe host may use it; else, where `cairn node run` serves it, none may until `cairn host allow`
        #[arg(long)]
        any_host: bool,
        #[command(flatten)]
        limits: LimitArguments,
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// List the volumes
    Ls,
    /// Show a volume and how to reach it
    Info {
        /// Its name
        name: VolumeName,
    },
    /// Make a volume larger, while it is in use
    #[command(after_help = help::VOLUME_RESIZE)]
    Resize {
        /// Its name
        name: VolumeName,
        /// Its new size, not less than it has: whole 4K; K, M, G, T are powers of 1,024
        #[arg(long, value_parser = volume_size, allow_hyphen_values = true)]
        size: ByteSize,
    },
    /// Change what a volume may do in a second, while it is in use
    #[command(after_help = help::VOLUME_SET)]
    Set {
        /// Its name
        name: VolumeName,
        #[command(flatten)]
        limits: LimitArguments,
    },
    /// Give a volume another name, while it is in use
    #[command(after_help = help::VOLUME_RENAME)]
    Rename {
        /// What it is called
        old: VolumeName,
        /// What it is called from now on
        new: VolumeName,
    },
    /// Serve a volume at another node, or have it lie elsewhere, while it is in use
    #[command(after_help = help::VOLUME_MOVE)]
    Move {
        /// Its name
        name: VolumeName,
        /// The node that is to serve it: node-2
        #[arg(required_unless_present_any = ["placement", "give_up"], conflicts_with_all = ["placement", "give_up"])]
        node: Option<NodeName>,
        /// Copy it to where it is led from one node, from the one that is named, or from all devices of its pool
        #[arg(long, value_name = "gathered|local:NODE|spread")]
        placement: Option<VolumePlacement>,
        /// Copy it to this pool [default: the one that it is in]
        #[arg(long, value_name = "NAME", value_parser = pool_name, requires = "placement")]
        pool: Option<String>,
        /// Do not wait for the end of the copying
        #[arg(long, requires = "placement")]
        no_wait: bool,
        /// End the copying: it stays where it is
        #[arg(long, conflicts_with = "placement")]
        give_up: bool,
    },
    /// Serve an encrypted volume and its clones, until they are locked or the node stops
    #[command(after_help = help::VOLUME_UNLOCK)]
    Unlock {
        /// Its name
        name: VolumeName,
        #[command(flatten)]
        secret: SecretArguments,
    },
    /// Serve an encrypted volume and its clones no more, until they are unlocked
    Lock {
        /// Its name
        name: VolumeName,
    },
    /// Change what opens an encrypted volume and its clones: at once, no data is written again
    #[command(after_help = help::VOLUME_REKEY)]
    Rekey {
        /// Its name
        name: VolumeName,
        #[command(flatten)]
        secret: SecretArguments,
        #[command(flatten)]
        change: RekeyArguments,
        /// What opens it now goes on doing so, too
        #[arg(long, requires = "change", conflicts_with = "remove")]
        add: bool,
    },
    /// Delete a volume: it can be restored from the trash for 24 hours, and takes its space until then
    #[command(after_help = help::VOLUME_DELETE)]
    Delete {
        /// Its name
        name: VolumeName,
        /// For good, and not into the trash: its space comes back
        #[arg(long)]
        now: bool,
    },
}

/// Where a volume is to lie.
#[derive(Debug, Args)]
pub(crate) struct PlaceArguments {
    /// Its pool [default: the one that keeps --replicas copies, or the pool 'default']
    #[arg(long, value_name = "NAME", value_parser = pool_name)]
    pub(crate) pool: Option<String>,
    /// Copies of each block that its pool must keep
    #[arg(long, value_name = "N")]
    pub(crate) replicas: Option<u32>,
    /// Led from one node, its home; from the one that is named; or from all devices [default: as the pool says]
    #[arg(long, value_name = "gathered|local:NODE|spread")]
    pub(crate) placement: Option<VolumePlacement>,
}

/// Where a volume is led from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VolumePlacement {
    /// One node.
    Gathered,
    /// This node.
    Local(NodeName),
    /// All devices.
    Spread,
}

impl FromStr for VolumePlacement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "gathered" => Ok(Self::Gathered),
            "spread" => Ok(Self::Spread),
            _ => match text.strip_prefix("local:") {
                Some(node) => node.parse().map(Self::Local).map_err(|error: UnknownNodeName| error.to_string()),
                None => Err(format!("'{}' is not a placement: write gathered, local:NODE or spread", shortened(text))),
            },
        }
    }
}

/// What opens an encrypted volume.
#[derive(Debug, Args)]
#[group(id = "open", required = true, multiple = false)]
pub(crate) struct SecretArguments {
    /// A file that opens it: every byte of it counts, 32 to 65536
    #[arg(long, value_name = "PATH")]
    pub(crate) key_file: Option<PathBuf>,
    /// A file with the passphrase that opens it, 8 to 1024 bytes; -: standard input
    #[arg(long, value_name = "PATH")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// What a volume may do in a second.
#[derive(Debug, Args)]
#[group(id = "limits", multiple = true)]
pub(crate) struct LimitArguments {
    /// Commands in a second, over all hosts; who asks for more waits
    #[arg(long, value_name = "N|none", allow_hyphen_values = true)]
    pub(crate) iops: Option<Iops>,
    /// Bytes read and written in a second, for example 200M/s
    #[arg(long, value_name = "SIZE/s|none", allow_hyphen_values = true)]
    pub(crate) bandwidth: Option<Bandwidth>,
    /// What was not used in the last so long may be used at once [default: 100ms]
    #[arg(long, value_name = "DURATION|none", allow_hyphen_values = true)]
    pub(crate) burst: Option<Burst>,
}

impl LimitArguments {
    pub(super) fn is_empty(&self) -> bool {
        self.iops.is_none() && self.bandwidth.is_none() && self.burst.is_none()
    }
}

/// What is to open a volume that is made.
#[derive(Debug, Args)]
#[group(id = "secret", multiple = false)]
pub(crate) struct NewVolumeSecret {
    /// With --encrypt: a file that opens it: every byte of it counts, 32 to 65536
    #[arg(long, value_name = "PATH", requires = "encrypt")]
    pub(crate) key_file: Option<PathBuf>,
    /// With --encrypt: a file with the passphrase that opens it, 8 to 1024 bytes; -: standard input
    #[arg(long, value_name = "PATH", requires = "encrypt")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// What becomes of what opens a volume.
#[derive(Debug, Args)]
#[group(id = "change", required = true, multiple = false)]
pub(crate) struct RekeyArguments {
    /// A file that opens it from now on
    #[arg(long, value_name = "PATH")]
    pub(crate) new_key_file: Option<PathBuf>,
    /// A file with the passphrase that opens it from now on; -: standard input
    #[arg(long, value_name = "PATH")]
    pub(crate) new_passphrase_file: Option<PathBuf>,
    /// What is given opens it no more, and nothing new does
    #[arg(long)]
    pub(crate) remove: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Let an NVMe host use a volume; the first that is named ends that every host may
    Allow {
        /// The volume
        volume: VolumeName,
        /// The host's NQN (on it: cat /etc/nvme/hostnqn), or any for every host
        host: String,
    },
    /// Take a volume from an NVMe host: nothing of it runs any more when this returns
    Deny {
        /// The volume
        volume: VolumeName,
        /// The host's NQN, or any for all that are not named
        host: String,
    },
    /// List who may use a volume, or all volumes
    Ls {
        /// The volume
        volume: Option<VolumeName>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Keep what a volume holds at this instant; of several volumes, all at one instant or none
    Create {
        /// VOLUME@NAME, one for each volume
        #[arg(value_name = "VOLUME@NAME", required = true)]
        paths: Vec<SnapshotPath>,
    },
    /// List the snapshots of a volume
    Ls {
        /// The volume
        volume: VolumeName,
    },
    /// Delete a snapshot; what only it held comes back, and who has it open over NBD is told that it is gone
    Delete {
        /// VOLUME@NAME
        path: SnapshotPath,
    },
    /// Make the volume hold what the snapshot holds: all that was written since is gone. Unmount first: a host
    /// that has it open is not looked for
    Rollback {
        /// VOLUME@NAME
        path: SnapshotPath,
    },
    /// List what was written, zeroed or discarded since a snapshot
    Changes {
        /// VOLUME@NAME
        path: SnapshotPath,
        /// Until this later snapshot of the volume, and not until now
        #[arg(long, value_name = "NAME")]
        to: Option<SnapshotName>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrashCommand {
    /// List what is in the trash, what was deleted last at the end
    Ls,
    /// Take a volume out of the trash
    Restore {
        /// What it was called
        name: VolumeName,
        /// Its id, where several of this name are in the trash
        #[arg(long, value_name = "N")]
        id: Option<u64>,
        /// What it is called from now on: its old name may be another volume's by now
        #[arg(long = "as", value_name = "NEW")]
        new_name: Option<VolumeName>,
    },
    /// Delete a volume in the trash for good, or all of them: their space comes back
    Empty {
        /// What it was called; without a name all
        name: Option<VolumeName>,
        /// Its id, where several of this name are in the trash
        #[arg(long, value_name = "N", requires = "name")]
        id: Option<u64>,
    },
}

fn volume_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error: node::size::SizeError| error.to_string())?;
    check_volume_size(size).map_err(|error| error.to_string())
}

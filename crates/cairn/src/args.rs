//! The command line: what may be said, and one line for what may not.

use crate::help;
use crate::output::Format;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use node::Compression;
use node::admin::pool_types::{FailureDomain, Placement};
use node::config::{CORES_MAX, DEFAULT_ADMIN_PORT, DEFAULT_NBD_PORT, DEFAULT_NVME_PORT};
use node::demo_directory::check_device_size;
use node::node_name::{NodeName, UnknownNodeName};
use node::rates::{Bandwidth, Burst, Iops};
use node::size::ByteSize;
use node::volume_spec::{BlockSize, SnapshotName, SnapshotPath, VolumeName, VolumeSpec, check_volume_size, shortened};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use ureq::http::Uri;

/// Environment variable that names the cluster where no `--admin` does.
const ADMIN_VARIABLE: &str = "CAIRN_ADMIN";

/// Cairn: a distributed block store for NVMe flash.
#[derive(Debug, Parser)]
#[command(name = "cairn", version, args_override_self = true, help_template = help::OVERVIEW)]
pub(crate) struct Arguments {
    #[arg(long, global = true, value_name = "URL", value_parser = admin_url, help = format!(
        "Admin API of the cluster [env: {ADMIN_VARIABLE}; default: http://127.0.0.1:{DEFAULT_ADMIN_PORT}]"))]
    pub(crate) admin: Option<String>,
    /// How to print
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Log lines as JSON (their level: CAIRN_LOG=off|error|warn|info|debug|trace)
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a whole cluster from one directory, in one process, until Ctrl-C
    #[command(after_help = help::DEMO)]
    Demo(DemoArguments),
    /// What a machine of a cluster runs
    #[command(subcommand)]
    Node(NodeCommand),
    /// Volumes: create, ls, info, resize, set, rename, move, unlock, lock, rekey, delete
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// NVMe hosts that may use volumes: allow, deny, ls
    #[command(subcommand, after_help = help::HOST)]
    Host(HostCommand),
    /// Pools: create, ls, info, set
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Snapshots of volumes: create, ls, delete, rollback, changes
    #[command(subcommand, after_help = help::SNAPSHOT)]
    Snapshot(SnapshotCommand),
    /// Make a volume of a snapshot: it begins with what that holds, and shares its space
    Clone {
        /// VOLUME@NAME
        path: SnapshotPath,
        /// Name of the new volume
        new: VolumeName,
    },
    /// Devices: format, add, ls, drain, undrain, replace, rm, check
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Deleted volumes that can still be restored: ls, restore, empty
    #[command(subcommand, after_help = help::TRASH)]
    Trash(TrashCommand),
    /// Measure block storage with fio: eight, depth, mix, volumes, stress, report, ls
    #[command(subcommand, after_help = crate::bench::HELP)]
    Bench(crate::bench::BenchCommand),
    /// How the cluster is, why, what is being done, and when that ends
    #[command(after_help = help::STATUS)]
    Status {
        /// Draw it anew each second, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Where the time of a volume's I/O goes, and its slowest commands
    #[command(after_help = help::WHY)]
    Why {
        /// The volume
        volume: VolumeName,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// The nodes of the cluster, where they are reached, and what they are to do
    Ls,
    /// Have all that is on a node's devices copied elsewhere; then it may be removed
    Drain {
        /// For example node-2
        node: String,
        /// Only say what that would move
        #[arg(long)]
        dry_run: bool,
    },
    /// Let a node be away for a while: others lead, nothing is copied meanwhile, and it is over by itself
    Maintenance {
        /// For example node-2
        node: String,
        /// For how long
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_080))]
        minutes: u64,
        /// Only say what that would do
        #[arg(long)]
        dry_run: bool,
    },
    /// Have a node do its part again that was drained or in maintenance
    Undrain {
        /// For example node-2
        node: String,
        /// Only say what that would move
        #[arg(long)]
        dry_run: bool,
    },
    /// Take a node that holds nothing out of the cluster
    Rm {
        /// For example node-2
        node: String,
        /// It is gone for good: what was on it is copied from others first
        #[arg(long)]
        lost: bool,
        /// Only say what that would move
        #[arg(long)]
        dry_run: bool,
    },
    /// Serve the node that a file describes, until Ctrl-C
    #[command(after_help = help::NODE_RUN)]
    Run {
        /// The node's file: docs/node.md says what may stand in it
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// Make a device an empty store that a node may take: everything on it is lost
    #[command(after_help = help::DEVICE_FORMAT)]
    Format {
        /// A block device, or a file that has its size
        path: PathBuf,
        /// Even if something is on it; never if something uses it
        #[arg(long)]
        force: bool,
    },
    /// Give a formatted device to the node that runs: volumes made from now on use it
    Add {
        /// Where the node finds it
        path: PathBuf,
    },
    /// List the devices of the cluster
    Ls,
    /// Have all that is on a device copied elsewhere; then it may be removed
    Drain {
        /// The id of its store, the beginning of it, or its path
        device: String,
        /// Only say what that would move
        #[arg(long)]
        dry_run: bool,
    },
    /// Have a device do its part again that was drained, or given up
    Undrain {
        /// The id of its store, the beginning of it, or its path
        device: String,
        /// Only say what that would move
        #[arg(long)]
        dry_run: bool,
    },
    /// Have another device take a device's place, with all that it holds
    Replace {
        /// The id of its store, the beginning of it, or its path
        old: String,
        /// That of the device which comes
        new: String,
        /// Only say what that would move
        #[arg(long)]
        dry_run: bool,
    },
    /// Take a device that holds nothing out of the cluster
    Rm {
        /// The id of its store, the beginning of it, or its path
        device: String,
        /// It is gone for good: what was on it is copied from others first
        #[arg(long)]
        lost: bool,
        /// Only say what that would move
        #[arg(long)]
        dry_run: bool,
    },
    /// Read all of a device that no node has open, and say what is damaged, where, and what it means
    #[command(after_help = help::DEVICE_CHECK)]
    Check {
        /// A block device or a file, for example D/node-1/device-1.img
        path: PathBuf,
        /// Make superblock slots good again, as a start of the node would; nothing else is written
        #[arg(long)]
        repair: bool,
    },
}

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
    /// Serve a volume at another node, while it is in use
    #[command(after_help = help::VOLUME_MOVE)]
    Move {
        /// Its name
        name: VolumeName,
        /// The node that is to serve it: node-2
        node: NodeName,
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
    fn is_empty(&self) -> bool {
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
pub(crate) enum PoolCommand {
    /// Make a pool over the devices of the cluster, while it is in use
    #[command(after_help = help::POOL_CREATE)]
    Create {
        /// 1 to 63 of a-z, 0-9, '.', '_', '-'
        #[arg(value_parser = pool_name)]
        name: String,
        /// Copies of each block, 1 to 5
        #[arg(long, value_name = "N")]
        replicas: u32,
        /// What no two copies share [default: node; device where there is one copy]
        #[arg(long, value_name = "device|node|rack|zone", value_parser = failure_domain)]
        failure_domain: Option<FailureDomain>,
        /// Only on devices of this class
        #[arg(long, value_name = "CLASS")]
        class: Option<String>,
        /// Of volumes that are not told otherwise: led from one node, or from all devices [default: gathered]
        #[arg(long, value_name = "gathered|spread", value_parser = placement)]
        placement: Option<Placement>,
        /// Copies that must be durable before a write is acknowledged [default: most of them, and 1 of 2]
        #[arg(long, value_name = "M")]
        min_in_sync: Option<u32>,
    },
    /// List the pools
    Ls,
    /// Show a pool
    Info {
        /// Its name
        #[arg(value_parser = pool_name)]
        name: String,
    },
    /// Change a pool
    #[command(after_help = help::POOL_SET)]
    Set {
        /// Its name
        #[arg(value_parser = pool_name)]
        name: String,
        #[command(flatten)]
        change: PoolChangeArguments,
    },
}

/// What is to change of a pool.
#[derive(Debug, Args)]
#[group(id = "change-pool", required = true, multiple = true)]
pub(crate) struct PoolChangeArguments {
    /// Compress what is written from now on; what is stored stays as it is
    #[arg(long, value_name = "lz4|zstd|off")]
    pub(crate) compression: Option<Compression>,
    /// Of volumes that are made from now on and are not told otherwise
    #[arg(long, value_name = "gathered|spread", value_parser = placement)]
    pub(crate) placement: Option<Placement>,
    /// What no two copies share: copies are moved, while they are in use
    #[arg(long, value_name = "device|node|rack|zone", value_parser = failure_domain)]
    pub(crate) failure_domain: Option<FailureDomain>,
    /// Only devices of this class ('': any): copies are moved, while they are in use
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<String>,
}

fn failure_domain(text: &str) -> Result<FailureDomain, String> {
    text.parse::<node::FailureDomain>().map(Into::into).map_err(|error| error.to_string())
}

fn placement(text: &str) -> Result<Placement, String> {
    match text {
        "gathered" => Ok(Placement::Gathered),
        "spread" => Ok(Placement::Spread),
        _ => Err(format!("'{}' is not a placement of a pool's volumes: write gathered or spread", shortened(text))),
    }
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

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Everything lives here [default: $XDG_DATA_HOME/cairn/demo or ~/.local/share/cairn/demo]
    #[arg(long, value_name = "D")]
    pub(crate) dir: Option<PathBuf>,
    /// Size of the device, a sparse file [default of a new directory: 4G]
    #[arg(long, value_name = "SIZE", value_parser = device_size, allow_hyphen_values = true)]
    pub(crate) device_size: Option<ByteSize>,
    /// Nodes, all in this process without --processes, each with a device of its own [default of a new directory: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(node::demo_directory::NODES_MAX)))]
    pub(crate) nodes: Option<u16>,
    /// Copies of each block, on as many nodes [default of a new directory: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(node::demo_directory::REPLICAS_MAX)))]
    pub(crate) replicas: Option<u16>,
    /// Each node is a process of its own, and the cluster's map is in an etcd, which is started too [default: as before, or no]
    #[arg(long, conflicts_with_all = ["record", "key_files"])]
    pub(crate) processes: bool,
    /// A volume that must be there, unless the first call made it; repeatable [default of a new directory: demo:1G]
    #[arg(long = "volume", value_name = "NAME:SIZE[:512|4096]")]
    pub(crate) volumes: Vec<VolumeSpec>,
    #[arg(long, value_name = "P", help = format!(
        "NVMe/TCP; 0: any free port [default of a new directory: {DEFAULT_NVME_PORT}]"))]
    pub(crate) nvme_port: Option<u16>,
    #[arg(long, value_name = "P", help = format!(
        "NBD; 0: any free port [default of a new directory: {DEFAULT_NBD_PORT}]"))]
    pub(crate) nbd_port: Option<u16>,
    #[arg(long, value_name = "P", help = format!(
        "Admin API; 0: any free port [default of a new directory: {DEFAULT_ADMIN_PORT}]"))]
    pub(crate) admin_port: Option<u16>,
    /// A port for NVMe discovery alone (the NVMe/TCP port answers it in any case)
    #[arg(long, value_name = "P")]
    pub(crate) discovery_port: Option<u16>,
    /// Address to listen on; 0.0.0.0: all [default of a new directory: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub(crate) listen: Option<IpAddr>,
    /// Cores of the data path [default of a new directory: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(CORES_MAX)))]
    pub(crate) cores: Option<u16>,
    /// A key file that is tried on all locked volumes; repeatable
    #[arg(long = "key-file", value_name = "PATH")]
    pub(crate) key_files: Vec<PathBuf>,
    /// Compress what is written from now on [default of a new directory: off]
    #[arg(long, value_name = "lz4|zstd|off")]
    pub(crate) compression: Option<Compression>,
    /// Record every device write and flush in this file (for the power-loss test; it grows with every write)
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
}

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Text, Self::Json]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(match self {
            Self::Text => "text".into(),
            Self::Json => "json".into(),
        })
    }
}

fn volume_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error: node::size::SizeError| error.to_string())?;
    check_volume_size(size).map_err(|error| error.to_string())
}

fn pool_name(text: &str) -> Result<String, String> {
    let is_name = text.parse::<VolumeName>().is_ok();
    if is_name { Ok(text.to_owned()) } else { Err(format!("'{text}' is not a pool name: `cairn pool ls` shows them")) }
}

fn listen_address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| "write one of this machine's IP addresses, without a port; 0.0.0.0 or :: for all".to_owned())
}

/// `http://HOST:PORT`, as text without a slash at its end.
fn admin_url(text: &str) -> Result<String, String> {
    let wanted = || "write http://HOST:PORT, as the line `ready` of `cairn demo` says it".to_owned();
    let uri: Uri = text.parse().map_err(|_| wanted())?;
    let is_plain = uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty());
    let has_no_path = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
    if is_plain && has_no_path { Ok(text.trim_end_matches('/').to_owned()) } else { Err(wanted()) }
}

/// The admin API to ask: the flag wins, then the environment, then where `cairn demo` has it by default.
pub(crate) fn admin_of(flag: Option<String>, environment: Option<OsString>) -> Result<String, UsageError> {
    match (flag, environment.filter(|value| !value.is_empty())) {
        (Some(url), _) => Ok(url),
        (None, None) => Ok(format!("http://127.0.0.1:{DEFAULT_ADMIN_PORT}")),
        (None, Some(value)) => {
            let value = value.to_string_lossy();
            admin_url(&value).map_err(|wanted| UsageError(format!("{ADMIN_VARIABLE} is '{value}': {wanted}")))
        }
    }
}

/// What [`admin_of`] finds in this process's environment.
pub(crate) fn admin_from_environment() -> Option<OsString> {
    std::env::var_os(ADMIN_VARIABLE)
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// A command.
    Run(Box<Arguments>),
    /// Help or the version: this text.
    Show(String),
}

/// The command line is wrong: one line that says how, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UsageError(pub(crate) String);

/// Reads the command line.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Request, UsageError> {
    let words: Vec<OsString> = words.into_iter().collect();
    let arguments = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(error) => return instead(&error, &words),
    };
    match &arguments.command {
        Command::Demo(demo) => check_distinct(&demo.volumes)?,
        Command::Volume(VolumeCommand::Set { limits, .. }) if limits.is_empty() => {
            return Err(UsageError("nothing is to be set: give --iops, --bandwidth or --burst".to_owned()));
        }
        _ => {}
    }
    Ok(Request::Run(Box::new(arguments)))
}

/// What clap's "errors" come to: help and version are no errors, the others become one line.
fn instead(error: &clap::Error, words: &[OsString]) -> Result<Request, UsageError> {
    let text = error.to_string();
    let line = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return Ok(Request::Show(text)),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            format!("a command is missing: {}", commands_of(words))
        }
        ErrorKind::InvalidSubcommand => {
            let unknown = match error.get(ContextKind::InvalidSubcommand) {
                Some(ContextValue::String(word)) => shortened(word),
                _ => String::new(),
            };
            format!("there is no command '{unknown}': {}", commands_of(words))
        }
        _ => one_line(&without_long_words(error, text)),
    };
    Err(UsageError(line))
}

/// What clap says, with what was written cut where it is long.
fn without_long_words(error: &clap::Error, text: String) -> String {
    let cut = |text: String, kind| match error.get(kind) {
        Some(ContextValue::String(word)) => text.replace(word.as_str(), &shortened(word)),
        _ => text,
    };
    [ContextKind::InvalidValue, ContextKind::InvalidArg].into_iter().fold(text, cut)
}

/// The commands of the group that the words lead to.
fn commands_of(words: &[OsString]) -> String {
    let mut group = Arguments::command();
    group.build();
    let mut path = vec!["cairn".to_owned()];
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(next) = group.find_subcommand(word).filter(|next| next.has_subcommands()).cloned() else { continue };
        if word != "help" {
            path.push(word.to_owned());
        }
        group = next;
    }
    let names: Vec<&str> =
        group.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help").collect();
    let path = path.join(" ");
    format!("`{path}` has {}; `{} help` explains them", names.join(", "), path)
}

/// Clap's paragraphs (what is wrong, tips, the usage where it helps) as one line.
fn one_line(text: &str) -> String {
    let (message, usage) = text.split_once("Usage:").unwrap_or((text, ""));
    let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraphs = message.split("\n\n").map(words);
    // What clap advises about values that look like flags helps nobody here.
    let is_told = |part: &String| {
        !part.is_empty() && !part.starts_with("For more information") && !part.starts_with("tip: to pass")
    };
    let told: Vec<String> = paragraphs.filter(is_told).collect();
    let message = told.join("; ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    match usage.lines().next().map(str::trim) {
        Some(usage) if !usage.is_empty() => format!("{message}; write: {usage}"),
        _ => message.to_owned(),
    }
}

fn device_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error: <ByteSize as FromStr>::Err| error.to_string())?;
    check_device_size(size).map(|()| size).map_err(|error| error.to_string())
}

fn check_distinct(volumes: &[VolumeSpec]) -> Result<(), UsageError> {
    for (index, volume) in volumes.iter().enumerate() {
        if volumes[..index].iter().any(|before| before.name == volume.name) {
            return Err(UsageError(format!("--volume names '{}' twice: name each volume once", volume.name)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments, UsageError> {
        match parse(std::iter::once("cairn").chain(line.split_whitespace()).map(OsString::from))? {
            Request::Run(arguments) => Ok(*arguments),
            Request::Show(text) => panic!("{line} shows {text}"),
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_demo_takes_what_scripts_rely_on() {
        let line = "demo --dir d --device-size 4G --volume a:1G --volume b:2G:4096 --nvme-port 0 --nbd-port 1 \
                    --admin-port 2 --listen 0.0.0.0 --cores 2 --record r";
        let Command::Demo(demo) = read(line).unwrap().command else { panic!("not a demo") };
        assert_eq!(demo.device_size, Some(ByteSize(4 << 30)));
        assert_eq!(demo.volumes, ["a:1G:512".parse().unwrap(), "b:2G:4096".parse().unwrap()]);
        assert_eq!((demo.nvme_port, demo.nbd_port, demo.admin_port, demo.cores), (Some(0), Some(1), Some(2), Some(2)));
        assert!(read("volume ls -o json").is_ok() && read("-o json volume ls").is_ok());
    }

    #[test]
    fn secrets_are_named_by_their_files() {
        for line in [
            "volume create v --size 1G --encrypt --key-file k",
            "volume create v --size 1G --encrypt --passphrase-file -",
            "volume unlock v --passphrase-file p",
            "volume lock v",
            "volume rekey v --key-file a --new-key-file b",
            "volume rekey v --key-file a --new-passphrase-file - --add",
            "volume rekey v --passphrase-file a --remove",
            "demo --key-file a --key-file b --compression zstd",
        ] {
            assert!(read(line).is_ok(), "{line}: {:?}", read(line));
        }
    }

    #[test]
    fn the_last_flag_wins_and_volumes_gather() {
        let line = "demo --nvme-port 1 --nvme-port 2 --volume a:1G --volume b:1G";
        let Command::Demo(demo) = read(line).unwrap().command else { panic!("not a demo") };
        assert_eq!((demo.nvme_port, demo.volumes.len()), (Some(2), 2));
    }

    #[test]
    fn what_is_wrong_is_one_line_that_names_it() {
        for (line, named) in [
            ("", "a command is missing"),
            ("volume", "a command is missing"),
            ("volume create v", "--size"),
            ("volume create V --size 1G", "'V' is not a volume name"),
            ("volume create v --size 1M5", "'1M5' is not a size"),
            ("volume create v --size 4K", "1M to 64T"),
            ("volume create v --size 1G --block-size 1024", "512 or 4096"),
            ("volume info", "<NAME>"),
            ("volume lss", "lss"),
            ("--admin ftp://x volume ls", "http://HOST:PORT"),
            ("--admin localhost volume ls", "http://HOST:PORT"),
            ("demo --cores 0", "0"),
            ("demo --nodes 0", "0"),
            ("demo --nodes 3 --replicas 6", "6"),
            ("demo --device-size 100M", "256M to 512T"),
            ("demo --volume a", "NAME:SIZE"),
            ("demo --volume a:1G --volume a:1G", "twice"),
            ("demo --nvme-port 65536", "65536"),
            ("demo --listen localhost", "IP addresses"),
            ("volume create v", "write: cairn volume create --size <SIZE> <NAME>"),
            ("volumes ls", "there is no command 'volumes': `cairn` has demo, node, volume,"),
            ("volume lss", "there is no command 'lss': `cairn volume` has create, ls, info,"),
            ("volume", "`cairn volume` has create, ls"),
            ("help volumes", "volume"),
            ("volume create v --size -5G", "'-5G' is not a size"),
            ("volume create v --size 5GB", "write G or GiB"),
            ("volume create v --size 1G --pool P", "'P' is not a"),
            ("volume create v --size 1G --placement near", "gathered"),
            ("volume create v --size 1G --iops -1", "'-1' is not a number of IOPS"),
            ("volume set v --iops 0", "from 1 to 100000000"),
            ("volume set v --bandwidth 1K/s", "64K/s to 1T/s"),
            ("volume set v --burst 10", "'10' is not a time"),
            ("volume set v", "nothing is to be set"),
            ("volume rename a", "<NEW>"),
            ("volume rename a B", "'B' is not a volume name"),
            ("status -o yaml", "yaml"),
            ("trash", "a command is missing"),
            ("trash restore", "<NAME>"),
            ("trash restore a --as B", "'B' is not a volume name"),
            ("trash empty --id 3", "<NAME>"),
            ("volume create v --size 1G --encrypt", "--key-file"),
            ("volume create v --size 1G --key-file k", "--encrypt"),
            ("volume create v --size 1G --encrypt --key-file k --passphrase-file p", "--passphrase-file"),
            ("volume unlock v", "--key-file"),
            ("volume unlock v --passphrase open", "--passphrase-file"),
            ("volume rekey v --key-file a", "--new-key-file"),
            ("volume rekey v --new-key-file b", "--key-file"),
            ("volume rekey v --key-file a --add", "--new-key-file"),
            ("volume rekey v --key-file a --remove --new-key-file b", "--remove"),
            ("volume rekey v --key-file a --remove --add", "--add"),
            ("pool set default --compression lzma", "lz4, zstd or off"),
            ("pool set default", "--compression"),
        ] {
            let UsageError(text) = read(line).unwrap_err();
            assert!(text.contains(named) && !text.contains('\n'), "{line}: {text}");
        }
    }

    #[test]
    fn a_long_word_is_not_echoed_whole() {
        let long = "x".repeat(5000);
        for line in
            [format!("volume info {}", long.to_uppercase()), format!("volume {long}"), format!("volume info --{long}")]
        {
            let UsageError(text) = read(&line).unwrap_err();
            assert!(text.len() < 500, "{} bytes: {text}", text.len());
        }
    }

    fn shown(line: &str) -> String {
        match parse(std::iter::once("cairn").chain(line.split_whitespace()).map(OsString::from)) {
            Ok(Request::Show(text)) => text,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn help_names_every_command_and_is_not_coloured() {
        let overview = shown("--help");
        for command in Arguments::command().get_subcommands() {
            let line = format!("  {}", command.get_name());
            let told = overview.lines().find(|told| told.starts_with(&line)).unwrap_or_default();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(told.ends_with(&about) && !about.is_empty(), "{line}: {told:?}, {about:?}");
            let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            let listed = about.split_once(": ").map_or("", |(_, listed)| listed);
            if !names.is_empty() && command.get_name() != "node" {
                assert_eq!(listed, names.join(", "), "{line}");
            }
        }
        assert_eq!(shown("help"), overview);
        for line in ["help volume", "help volume create", "volume create --help", "help demo", "help host allow"] {
            let text = shown(line);
            assert!(text.contains("Usage:") && !text.contains('\u{1b}'), "{line}: {text}");
            assert!(text.lines().all(|line| line.chars().count() <= 160), "{line}: {text}");
        }
        assert!(shown("help volume create").contains("Examples:") && shown("help volume set").contains("64K/s"));
    }

    #[test]
    fn the_admin_address_loses_its_slash() {
        assert_eq!(read("--admin http://h:1/ status").unwrap().admin.unwrap(), "http://h:1");
        assert_eq!(read("status --admin http://[::1]:1").unwrap().admin.unwrap(), "http://[::1]:1");
    }

    #[test]
    fn the_flag_wins_over_the_environment() {
        let flag = || Some("http://flag:1".to_owned());
        assert_eq!(admin_of(flag(), Some("http://env:1".into())).unwrap(), "http://flag:1");
        assert_eq!(admin_of(flag(), Some("nonsense".into())).unwrap(), "http://flag:1");
        assert_eq!(admin_of(None, Some("http://env:1/".into())).unwrap(), "http://env:1");
        assert_eq!(admin_of(None, Some("".into())).unwrap(), "http://127.0.0.1:8420");
        assert_eq!(admin_of(None, None).unwrap(), "http://127.0.0.1:8420");
        let UsageError(text) = admin_of(None, Some("nonsense".into())).unwrap_err();
        assert!(text.contains("CAIRN_ADMIN is 'nonsense'"), "{text}");
    }
}

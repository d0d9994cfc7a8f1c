//! Machines: clusters and nodes that begin, nodes and devices that come, rest and go, and the demo.

use crate::help;
use clap::{Args, Subcommand};
use node::Compression;
use node::config::{
    CORES_MAX, DEFAULT_ADMIN_PORT, DEFAULT_NBD_PORT, DEFAULT_NVME_PORT, DEFAULT_PEERS_PORT, DEFAULT_REPLICAS,
    REPLICAS_MAX, parse_cluster_id,
};
use node::demo_directory::check_device_size;
use node::size::ByteSize;
use node::volume_spec::VolumeSpec;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use types::ClusterId;

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
    /// Give a formatted device to the node that runs, which uses it from now on
    Add {
        /// Where the node finds it
        path: PathBuf,
        /// Only say what it would get
        #[arg(long)]
        dry_run: bool,
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

/// What a machine is to be as a node.
#[derive(Debug, Args)]
pub(crate) struct MachineArguments {
    /// Members of the etcd that holds the cluster's map and nothing else: http://HOST:2379 or https://…
    #[arg(long, value_name = "URL,…", required = true, value_delimiter = ',')]
    pub(crate) etcd: Vec<String>,
    /// Address that clients and commands use; 0.0.0.0 or :: for all, with --advertise
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub(crate) listen: IpAddr,
    /// Address that clients and nodes are told, where --listen is none [default: --listen]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub(crate) advertise: Option<IpAddr>,
    /// Address that nodes use among each other, for a network of its own [default: --listen]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub(crate) peers: Option<IpAddr>,
    /// A block device, or a file that has its size: becomes a store, all on it is lost; repeatable
    #[arg(long = "device", value_name = "PATH", required = true)]
    pub(crate) devices: Vec<PathBuf>,
    /// Even if something is on a device; never if something uses it
    #[arg(long)]
    pub(crate) force: bool,
    /// Where node.toml is written
    #[arg(long, value_name = "D", default_value = "/etc/cairn")]
    pub(crate) dir: PathBuf,
    /// Write a systemd unit that runs the node; -: print it and nothing else besides
    #[arg(long, value_name = "FILE")]
    pub(crate) systemd: Option<PathBuf>,
    /// NVMe/TCP; 0, here and below: any free port
    #[arg(long, value_name = "P", default_value_t = DEFAULT_NVME_PORT)]
    pub(crate) nvme_port: u16,
    /// NBD
    #[arg(long, value_name = "P", default_value_t = DEFAULT_NBD_PORT)]
    pub(crate) nbd_port: u16,
    /// Admin API
    #[arg(long, value_name = "P", default_value_t = DEFAULT_ADMIN_PORT)]
    pub(crate) admin_port: u16,
    /// Other nodes; not 0, they know it by this
    #[arg(long, value_name = "P", default_value_t = DEFAULT_PEERS_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) peers_port: u16,
    /// Cores of the data path [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(CORES_MAX)))]
    pub(crate) cores: Option<u16>,
    /// Who signed etcd's certificates, PEM [default: whom the system trusts]
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// This machine's certificate for etcd, PEM
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    pub(crate) etcd_key: Option<PathBuf>,
    /// The user that etcd knows
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    pub(crate) etcd_user: Option<String>,
    /// A file with its password
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    pub(crate) etcd_password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InitArguments {
    #[command(flatten)]
    pub(crate) machine: MachineArguments,
    /// Copies of each block, on as many nodes: the cluster serves when so many run
    #[arg(long, value_name = "N", default_value_t = DEFAULT_REPLICAS, value_parser = clap::value_parser!(u16).range(2..=i64::from(REPLICAS_MAX)))]
    pub(crate) replicas: u16,
}

#[derive(Debug, Args)]
pub(crate) struct JoinArguments {
    #[command(flatten)]
    pub(crate) machine: MachineArguments,
    /// The cluster, as `cairn init` told it: another one is refused
    #[arg(long, value_name = "ID", value_parser = parse_cluster_id)]
    pub(crate) cluster: Option<ClusterId>,
    /// Its devices hold nothing until `cairn device replace` has one take another's place
    #[arg(long)]
    pub(crate) spare: bool,
    /// Only say what that would move; formats and writes nothing
    #[arg(long, conflicts_with = "spare")]
    pub(crate) dry_run: bool,
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

fn listen_address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| "write one of this machine's IP addresses, without a port; 0.0.0.0 or :: for all".to_owned())
}

fn device_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error: <ByteSize as FromStr>::Err| error.to_string())?;
    check_device_size(size).map(|()| size).map_err(|error| error.to_string())
}

//! `cairn init` and `cairn join`: this machine becomes a node.
//!
//! All is looked at before anything is changed; then the devices are formatted, the map is told, and the file is written last.

use crate::Failure;
use crate::args::{InitArguments, JoinArguments, MachineArguments};
use crate::format::{self as devices, Usable};
use crate::output::{Format, print, show};
use node::admin::cost_of;
use node::config::{MapConfig, NodeConfig, default_busy_poll_us, default_cores};
use node::joining::{self, Around, ClusterRecord, Joined, NODE_FILE, NewDevice, Purpose};
use node::size::ByteSize;
use serde::Serialize;
use std::path::{Path, PathBuf};
use types::StoreId;

/// What is printed of it.
#[derive(Debug, Serialize)]
struct Report {
    cluster: String,
    node: u32,
    config: String,
    /// Copies of each block; 0: the nodes' files say.
    replicas: u32,
    /// Nodes of the cluster now.
    nodes: usize,
    /// What to run on this machine.
    run: String,
    /// What to run on another one; `ADDRESS` and `PATH` are that one's.
    join: String,
    /// Placement groups that come here, about how many bytes, and how long that takes.
    groups: usize,
    bytes: u64,
    seconds: u64,
    /// Nodes that run and are not reached from here.
    unreached: Vec<String>,
}

pub(crate) fn init(arguments: InitArguments, format: Format) -> Result<(), Failure> {
    let InitArguments { machine, replicas } = arguments;
    let purpose = Purpose::Begin { replicas: replicas.into() };
    become_node(&machine, purpose, format, |report| {
        let more = (report.replicas as usize).saturating_sub(report.nodes);
        format!(
            "cluster {} begins; this machine is node-1, by {}\non this machine:    {}\non others:          {}\n\
             it serves when {} nodes run: {more} more are to join\n",
            report.cluster, report.config, report.run, report.join, report.replicas
        )
    })
}

pub(crate) fn join(arguments: JoinArguments, format: Format) -> Result<(), Failure> {
    let JoinArguments { machine, cluster, spare, dry_run } = arguments;
    let purpose = Purpose::Join { wanted: cluster, is_spare: spare };
    if dry_run {
        return foretell(&machine, purpose, format);
    }
    become_node(&machine, purpose, format, |report| {
        let mut text =
            format!("this machine is node-{} of cluster {}, by {}\n", report.node, report.cluster, report.config);
        text += &match report.groups {
            0 if spare => "its devices hold nothing until `cairn device replace` has one take another's place\n".into(),
            0 => String::new(),
            _ => coming(report),
        };
        text += &report
            .unreached
            .iter()
            .map(|node| format!("warning: {node} runs and is not reached from here\n"))
            .collect::<String>();
        text + &format!("on this machine:    {}\n", report.run)
    })
}

fn coming(report: &Report) -> String {
    let size = ByteSize(report.bytes).rounded();
    let (groups, seconds) = (report.groups, report.seconds);
    format!(
        "when it runs, {groups} placement groups come here, about {size} in about {seconds} s: `cairn status` says how far that is\n"
    )
}

fn foretell(machine: &MachineArguments, purpose: Purpose, format: Format) -> Result<(), Failure> {
    let (config, file) = described(machine)?;
    let around = joining::look(&config, &file, purpose, &[]).map_err(Failure::of)?;
    // What is not formatted has no id yet: any that nobody has does.
    let looked = |(index, path): (usize, &PathBuf)| {
        Ok(match devices::look(path, machine.force)? {
            Usable::AsItIs { store, size_bytes } => new_device(path, store, size_bytes)?,
            Usable::Formatted { size_bytes } => new_device(path, StoreId(u128::MAX - index as u128), size_bytes)?,
        })
    };
    let devices = machine.devices.iter().enumerate().map(looked).collect::<Result<Vec<_>, Failure>>()?;
    let joined = joining::foretell(&config, purpose, devices).map_err(Failure::of)?;
    let report = report(machine, &file, (&joined, &around));
    show(format, &report, |report| {
        format!(
            "it would be node-{} of cluster {}\n{}nothing was changed: say it without --dry-run\n",
            report.node,
            report.cluster,
            coming(report)
        )
    })
}

fn become_node(
    machine: &MachineArguments,
    purpose: Purpose,
    format: Format,
    text: impl FnOnce(&Report) -> String,
) -> Result<(), Failure> {
    let (config, file) = described(machine)?;
    let mut usable = Vec::with_capacity(machine.devices.len());
    for (index, path) in machine.devices.iter().enumerate() {
        if machine.devices[..index].contains(path) {
            return Err(Failure::new(format!("{} is named twice: name each device once", path.display())));
        }
        usable.push(devices::look(path, machine.force)?);
    }
    let formatted = usable.iter().filter_map(|usable| match usable {
        Usable::AsItIs { store, .. } => Some(*store),
        Usable::Formatted { .. } => None,
    });
    let formatted: Vec<StoreId> = formatted.collect();
    let around = joining::look(&config, &file, purpose, &formatted).map_err(Failure::of)?;
    let mut made = Vec::with_capacity(usable.len());
    for (path, usable) in machine.devices.iter().zip(usable) {
        let (store, size_bytes) = match usable {
            Usable::AsItIs { store, size_bytes } => (store, size_bytes),
            Usable::Formatted { .. } => devices::make_store(path, machine.force)?,
        };
        made.push(new_device(path, store, size_bytes)?);
    }
    let joined = joining::join(&config, &file, purpose, made).map_err(Failure::of)?;
    let report = report(machine, &file, (&joined, &around));
    match &machine.systemd {
        Some(unit) if unit == Path::new("-") => print(&systemd_unit(&file)?),
        Some(unit) => {
            std::fs::write(unit, systemd_unit(&file)?).map_err(|error| {
                Failure::new(format!(
                    "this machine is a node, and the unit {} is not written ({error}): print it with `cairn help init`'s --systemd - or write it by hand",
                    unit.display()
                ))
            })?;
            show(format, &report, text)
        }
        None => show(format, &report, text),
    }
}

fn new_device(path: &Path, store: StoreId, size_bytes: u64) -> Result<NewDevice, Failure> {
    let path = std::path::absolute(path).map_err(Failure::of)?;
    Ok(NewDevice { store, path: path.display().to_string(), size_bytes })
}

/// The node's file to be, and where it will be.
fn described(machine: &MachineArguments) -> Result<(NodeConfig, PathBuf), Failure> {
    let absolute = |path: &Option<PathBuf>| path.as_ref().map(std::path::absolute).transpose().map_err(Failure::of);
    let config = NodeConfig {
        node: 1,
        lock: PathBuf::from("lock"),
        listen: machine.listen,
        advertise: machine.advertise,
        peers: machine.peers,
        cluster: None,
        nvme_port: machine.nvme_port,
        discovery_port: None,
        nbd_port: machine.nbd_port,
        admin_port: machine.admin_port,
        peers_port: Some(machine.peers_port),
        replicas: None,
        cores: machine.cores.unwrap_or_else(default_cores),
        busy_poll_us: default_busy_poll_us(),
        map: MapConfig {
            redb: None,
            etcd: machine.etcd.clone(),
            authority: absolute(&machine.etcd_ca)?,
            certificate: absolute(&machine.etcd_cert)?,
            certificate_key: absolute(&machine.etcd_key)?,
            user: machine.etcd_user.clone(),
            password_file: absolute(&machine.etcd_password_file)?,
        },
        any_host: false,
        key_files: Vec::new(),
        devices: Vec::new(),
    };
    config.map.check().map_err(Failure::new)?;
    let directory = std::path::absolute(&machine.dir).map_err(Failure::of)?;
    Ok((config, directory.join(NODE_FILE)))
}

fn report(machine: &MachineArguments, file: &Path, (joined, around): (&Joined, &Around)) -> Report {
    let Joined { cluster, node, forecast } = joined;
    let ClusterRecord { id, replicas, .. } = cluster;
    let (groups, bytes, seconds) = cost_of(forecast);
    Report {
        cluster: id.to_string(),
        node: node.0,
        config: file.display().to_string(),
        replicas: replicas.unwrap_or(0),
        // The first may have been there already, and cut off.
        nodes: if node.0 == 1 { around.nodes.max(1) } else { around.nodes + 1 },
        run: format!("cairn node run --config {}", file.display()),
        join: format!("cairn join --etcd {} --cluster {id} --listen ADDRESS --device PATH", machine.etcd.join(",")),
        groups,
        bytes,
        seconds,
        unreached: around.unreached.clone(),
    }
}

/// A unit that runs the node as it is described, with this program.
fn systemd_unit(file: &Path) -> Result<String, Failure> {
    let program = std::env::current_exe().map_err(Failure::of)?;
    Ok(format!(
        "[Unit]\nDescription=Cairn node\nWants=network-online.target\n\
         After=network-online.target\n\n[Service]\nExecStart={} node run --config {}\nRestart=on-failure\nRestartSec=2\n\
         LimitNOFILE=1048576\nLimitMEMLOCK=infinity\n\n[Install]\nWantedBy=multi-user.target\n",
        program.display(),
        file.display()
    ))
}

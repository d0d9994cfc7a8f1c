//! `cairn demo` and `cairn node run`: serve until told to stop.

use crate::Failure;
use crate::args::DemoArguments;
use crate::client::Client;
use crate::output::print;
use node::Compression;
use node::admin::pool_types::ChangePool;
use node::admin::types::{CreateVolume, Limits};
use node::admin::{Addresses, NodeAddresses};
use node::config::NodeConfig;
use node::demo_directory::{DemoDirectory, DemoOptions};
use node::files::{FileError, Lock};
use node::fleet::{self, FleetPlan, ReadyNode};
use node::service::{self, Blank, NodePlace, ServicePlan};
use node::size::ByteSize;
use node::volume_spec::VolumeSpec;
use node::{supervisor, testament};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A worker waits so long for the one before it to be gone, whose supervisor may have been killed.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_WAIT: Duration = Duration::from_millis(50);
/// The pool of a demo.
const POOL: &str = "default";

pub(crate) fn demo(arguments: DemoArguments) -> Result<(), Failure> {
    let options = DemoOptions {
        directory: arguments.dir.unwrap_or_else(default_directory),
        device_size: arguments.device_size,
        nodes: arguments.nodes,
        replicas: arguments.replicas,
        processes: arguments.processes,
        volumes: arguments.volumes,
        listen: arguments.listen,
        nvme_port: arguments.nvme_port,
        discovery_port: arguments.discovery_port,
        nbd_port: arguments.nbd_port,
        admin_port: arguments.admin_port,
        cores: arguments.cores,
        key_files: arguments.key_files,
    };
    let demo = DemoDirectory::open(&options).map_err(Failure::of)?;
    log::info!("{} {}", if demo.is_new { "making" } else { "opening" }, options.directory.display());
    if demo.etcd.is_some() {
        return demo_of_processes(demo, arguments.compression);
    }
    let completion = demo.completion;
    let plan = ServicePlan {
        nodes: demo.nodes,
        replicas: demo.replicas,
        blank: Blank::Format,
        wanted_volumes: demo.wanted_volumes,
        compression: arguments.compression,
        supervisor: None,
        record: arguments.record,
        before_serving: Box::new(move || completion.write()),
    };
    let result = service::run(plan, announce).map_err(Failure::of);
    drop(demo.lock);
    result
}

pub(crate) fn node(path: &Path) -> Result<(), Failure> {
    let config = NodeConfig::read(path).map_err(Failure::of)?;
    let supervisor = testament::pipe();
    if config.map.is_shared() && supervisor.is_none() {
        return supervise();
    }
    let lock = match supervisor {
        Some(_) => take_soon(&config.lock),
        None => Lock::take(&config.lock),
    };
    let lock = lock.map_err(Failure::of)?;
    let plan = ServicePlan {
        nodes: vec![NodePlace { config, config_path: path.to_owned() }],
        replicas: 1,
        blank: Blank::Refuse,
        wanted_volumes: Vec::new(),
        compression: None,
        supervisor,
        record: None,
        before_serving: Box::new(|| Ok(())),
    };
    let result = service::run(plan, announce).map_err(Failure::of);
    drop(lock);
    result
}

/// Supervises a process of this program that was called in the same way; ends as that does.
fn supervise() -> Result<(), Failure> {
    let program = program()?;
    let worker = || {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1));
        command
    };
    let code = supervisor::run(worker)
        .map_err(|error| Failure::new(format!("cannot start the node ({error}): see what limits processes here")))?;
    // What it had to say it has said.
    std::process::exit(code)
}

/// The file of this program, also when another one has taken its name since it was started.
fn program() -> Result<PathBuf, Failure> {
    let found = std::env::current_exe();
    found.map_err(|error| Failure::new(format!("cannot find this program ({error}): is /proc mounted?")))
}

/// The one before may be on its way out.
fn take_soon(path: &Path) -> Result<Lock, FileError> {
    let began = Instant::now();
    loop {
        match Lock::take(path) {
            Err(FileError::Locked { .. }) if began.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOCK_WAIT),
            taken => return taken,
        }
    }
}

/// Each node is a process, and so is etcd.
fn demo_of_processes(demo: DemoDirectory, compression: Option<Compression>) -> Result<(), Failure> {
    let DemoDirectory { nodes, etcd, replicas, wanted_volumes, is_new, completion, lock } = demo;
    let etcd = etcd.expect("a demo of processes has one");
    let when_ready = move |ready: &[ReadyNode]| {
        let client = Client::new(&ready[0].admin);
        make_wanted(&client, &wanted_volumes, compression).map_err(|failure| failure.line)?;
        completion.write().map_err(|error| error.to_string())
    };
    let founds = is_new.then_some(replicas);
    let plan = FleetPlan { program: program()?, etcd, nodes, founds, when_ready: Box::new(when_ready) };
    let result = fleet::run(plan, announce_fleet).map_err(Failure::of);
    drop(lock);
    result
}

/// Leaves a volume alone that is there as wanted, makes one that is not.
fn make_wanted(client: &Client, wanted: &[VolumeSpec], compression: Option<Compression>) -> Result<(), Failure> {
    if let Some(compression) = compression {
        client.change_pool(POOL, &ChangePool { compression: Some(compression.into()), ..ChangePool::default() })?;
    }
    let there = client.volumes()?;
    for VolumeSpec { name, size, block_size } in wanted {
        match there.iter().find(|volume| volume.name == name.as_str()) {
            Some(volume) if volume.size_bytes == size.0 && volume.block_size_bytes == block_size.bytes() => {}
            Some(volume) => {
                return Err(Failure::new(format!(
                    "the volume {name} is there with {}, --volume says {size}: leave its --volume away, or choose another name",
                    ByteSize(volume.size_bytes)
                )));
            }
            None => drop(client.create_volume(&CreateVolume {
                name: name.to_string(),
                size_bytes: size.0,
                block_size_bytes: block_size.bytes(),
                secret: None,
                any_host: false,
                limits: Limits::default(),
                pool: None,
                placement: None,
                node: None,
                replicas: None,
            })?),
        }
    }
    Ok(())
}

/// As [`announce`], of nodes that are processes: each has said its own addresses in the log.
fn announce_fleet(nodes: &[ReadyNode]) {
    for ReadyNode { node, admin, nvme, nbd } in nodes {
        log::info!("node-{node}: NVMe/TCP {nvme}, NBD nbd://{nbd}/VOLUME, admin {admin}");
    }
    let ReadyNode { admin, nvme, nbd, .. } = &nodes[0];
    let _ = print(&format!("ready admin={admin} nvme={nvme} nbd={nbd}\n"));
}

/// Tells scripts by the line `ready`, and people by the log how to connect.
fn announce(addresses: &Addresses) {
    let Addresses { nqn, nodes, admin, any_host: _ } = addresses;
    let NodeAddresses { nvme, nbd, .. } = &nodes[0];
    for NodeAddresses { nvme, .. } in nodes {
        log::info!("NVMe/TCP: nvme connect -t tcp -a {} -s {} -n {nqn}", nvme.ip(), nvme.port());
    }
    log::info!("NBD:      nbd://{nbd}/VOLUME    volumes: cairn --admin http://{admin} volume ls");
    if !admin.ip().is_loopback() {
        log::warn!(
            "{admin} is no loopback address and nobody is asked for a password: let only trusted machines reach it"
        );
    }
    // Whoever closed standard output does not wait for the line, and clients are served all the same.
    let _ = print(&format!("ready admin=http://{admin} nvme={nvme} nbd={nbd}\n"));
}

/// Where data of a user goes by the XDG rule; beside the caller where there is no home.
fn default_directory() -> PathBuf {
    let from = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    match from("XDG_DATA_HOME").or_else(|| from("HOME").map(|home| home.join(".local/share"))) {
        Some(data) => data.join("cairn/demo"),
        None => PathBuf::from("cairn-demo"),
    }
}

//! `cairn demo` and `cairn node run`: serve until told to stop.

use crate::Failure;
use crate::args::DemoArguments;
use crate::output::print;
use node::admin::{Addresses, NodeAddresses};
use node::config::NodeConfig;
use node::demo_directory::{DemoDirectory, DemoOptions};
use node::files::Lock;
use node::service::{self, Blank, NodePlace, ServicePlan};
use std::path::{Path, PathBuf};

pub(crate) fn demo(arguments: DemoArguments) -> Result<(), Failure> {
    let options = DemoOptions {
        directory: arguments.dir.unwrap_or_else(default_directory),
        device_size: arguments.device_size,
        nodes: arguments.nodes,
        replicas: arguments.replicas,
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
    let completion = demo.completion;
    let plan = ServicePlan {
        nodes: demo.nodes,
        replicas: demo.replicas,
        blank: Blank::Format,
        wanted_volumes: demo.wanted_volumes,
        compression: arguments.compression,
        record: arguments.record,
        before_serving: Box::new(move || completion.write()),
    };
    let result = service::run(plan, announce).map_err(Failure::of);
    drop(demo.lock);
    result
}

pub(crate) fn node(path: &Path) -> Result<(), Failure> {
    let config = NodeConfig::read(path).map_err(Failure::of)?;
    let lock = Lock::take(&config.lock).map_err(Failure::of)?;
    let plan = ServicePlan {
        nodes: vec![NodePlace { config, config_path: path.to_owned() }],
        replicas: 1,
        blank: Blank::Refuse,
        wanted_volumes: Vec::new(),
        compression: None,
        record: None,
        before_serving: Box::new(|| Ok(())),
    };
    let result = service::run(plan, announce).map_err(Failure::of);
    drop(lock);
    result
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

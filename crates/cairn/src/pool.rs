//! `cairn pool create|ls|info|set`.

use crate::Failure;
use crate::args::{PoolChangeArguments, PoolCommand};
use crate::client::Client;
use crate::output::{Format, show, table};
use crate::volume::compression_name;
use node::admin::pool_types::{ChangePool, CreatePool, FailureDomain, Placement, PoolDetails};

pub(crate) fn run(client: &Client, command: PoolCommand, format: Format) -> Result<(), Failure> {
    match command {
        PoolCommand::Create { name, replicas, failure_domain, class, placement, min_in_sync } => {
            let asked = CreatePool { name, replicas, min_in_sync, failure_domain, class, placement };
            show(format, &client.create_pool(&asked)?, details)
        }
        PoolCommand::Ls => show(format, &client.pools()?, |pools| list(pools)),
        PoolCommand::Info { name } => show(format, &client.pool(&name)?, details),
        PoolCommand::Set { name, change } => {
            let PoolChangeArguments { compression, placement, failure_domain, class } = change;
            let asked = ChangePool { compression: compression.map(Into::into), placement, failure_domain, class };
            show(format, &client.change_pool(&name, &asked)?, details)
        }
    }
}

fn list(pools: &[PoolDetails]) -> String {
    let row = |pool: &PoolDetails| {
        [
            pool.name.clone(),
            pool.replicas.to_string(),
            domain_name(pool.failure_domain).to_owned(),
            placement_name(pool.placement).to_owned(),
            compression_name(pool.compression).to_owned(),
            pool.devices.to_string(),
            pool.volumes.to_string(),
        ]
    };
    let rows: Vec<_> = pools.iter().map(row).collect();
    table(["NAME", "REPLICAS", "APART BY", "PLACEMENT", "COMPRESSION", "DEVICES", "VOLUMES"], &rows)
}

fn details(pool: &PoolDetails) -> String {
    let class = if pool.class.is_empty() { String::new() } else { format!(" of class {}", pool.class) };
    let mut text = format!(
        "name         {}\nreplicas     {} ({} must be durable before a write is acknowledged)\napart by     {}\n\
         placement    {}\ncompression  {}\ngroups       {}\ndevices      {}{class} ({})\nvolumes      {}\n",
        pool.name,
        pool.replicas,
        pool.min_in_sync,
        domain_name(pool.failure_domain),
        placement_name(pool.placement),
        compression_name(pool.compression),
        pool.groups,
        pool.devices,
        pool.nodes.join(" "),
        pool.volumes,
    );
    if pool.replicas > 1 && pool.min_in_sync == 1 {
        text += "warning      what was written while only one copy was there is lost with that copy\n";
    }
    text
}

fn domain_name(domain: FailureDomain) -> &'static str {
    match domain {
        FailureDomain::Device => "device",
        FailureDomain::Node => "node",
        FailureDomain::Rack => "rack",
        FailureDomain::Zone => "zone",
    }
}

pub(crate) fn placement_name(placement: Placement) -> &'static str {
    match placement {
        Placement::Gathered => "gathered",
        Placement::Spread => "spread",
    }
}

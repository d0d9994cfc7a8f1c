//! `cairn pool ls|info|set`.

use crate::Failure;
use crate::args::PoolCommand;
use crate::client::Client;
use crate::output::{Format, show, table};
use crate::volume::compression_name;
use node::admin::types::Pool;

pub(crate) fn run(client: &Client, command: PoolCommand, format: Format) -> Result<(), Failure> {
    match command {
        PoolCommand::Ls => show(format, &client.pools()?, |pools| list(pools)),
        PoolCommand::Info { name } => show(format, &client.pool(&name)?, details),
        PoolCommand::Set { name, compression } => {
            show(format, &client.set_compression(&name, compression.into())?, details)
        }
    }
}

fn list(pools: &[Pool]) -> String {
    let row = |pool: &Pool| {
        let compression = compression_name(pool.compression);
        [pool.name.clone(), pool.replicas.to_string(), compression.to_owned(), pool.volumes.to_string()]
    };
    let rows: Vec<_> = pools.iter().map(row).collect();
    table(["NAME", "REPLICAS", "COMPRESSION", "VOLUMES"], &rows)
}

fn details(pool: &Pool) -> String {
    format!(
        "name         {}\nreplicas     {} ({} must be durable before a write is acknowledged)\ncompression  {}\n\
         volumes      {}\n",
        pool.name,
        pool.replicas,
        pool.min_in_sync,
        compression_name(pool.compression),
        pool.volumes,
    )
}

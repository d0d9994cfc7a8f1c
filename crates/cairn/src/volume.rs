//! `cairn volume create|ls|info|resize|delete`.

use crate::Failure;
use crate::args::VolumeCommand;
use crate::client::Client;
use crate::output::{Format, show, table};
use node::admin::types::{CreateVolume, Volume};
use node::size::ByteSize;
use serde_json::json;

pub(crate) fn run(client: &Client, command: VolumeCommand, format: Format) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create { name, size, block_size } => {
            let volume = client.create_volume(&CreateVolume {
                name: name.to_string(),
                size_bytes: size.0,
                block_size_bytes: block_size.bytes(),
            })?;
            show(format, &volume, details)
        }
        VolumeCommand::Ls => show(format, &client.volumes()?, |volumes| list(volumes)),
        VolumeCommand::Info { name } => show(format, &client.volume(name.as_str())?, details),
        VolumeCommand::Resize { name, size } => show(format, &client.resize_volume(name.as_str(), size.0)?, details),
        VolumeCommand::Delete { name, now: true } => {
            client.delete_volume(name.as_str())?;
            show(format, &json!({"name": name.as_str(), "deleted": true}), |_| format!("{name} is deleted\n"))
        }
        VolumeCommand::Delete { name, now: false } => {
            let trashed = client.trash_volume(name.as_str())?;
            show(format, &trashed, |trashed| {
                format!(
                    "{name} is in the trash until {}: `cairn trash restore {name}` brings it back\n",
                    trashed.kept_until
                )
            })
        }
    }
}

fn list(volumes: &[Volume]) -> String {
    let row = |volume: &Volume| {
        let size = ByteSize(volume.size_bytes).to_string();
        [
            volume.name.clone(),
            size,
            volume.block_size_bytes.to_string(),
            volume.nsid.to_string(),
            volume.usage.map_or_else(String::new, |usage| ByteSize(usage.unique_bytes).rounded()),
            volume.usage.map_or_else(String::new, |usage| ByteSize(usage.shared_bytes).rounded()),
            volume.nbd_uri.clone(),
        ]
    };
    let rows: Vec<_> = volumes.iter().map(row).collect();
    table(["NAME", "SIZE", "BLOCK", "NSID", "UNIQUE", "SHARED", "NBD"], &rows)
}

pub(crate) fn details(volume: &Volume) -> String {
    let mut text = format!(
        "name        {}\nsize        {} ({} bytes)\nblock size  {}\nnqn         {}\nnsid        {}\nnguid       {}\n\
         nvme        {}\nnbd         {}\nlayers      {}\n",
        volume.name,
        ByteSize(volume.size_bytes),
        volume.size_bytes,
        volume.block_size_bytes,
        volume.nqn,
        volume.nsid,
        volume.nguid,
        volume.nvme_addresses.join(" "),
        volume.nbd_uris.join(" "),
        volume.layers.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
    );
    if let Some(usage) = volume.usage {
        text += &format!(
            "stored      {} bytes: {} of its own, {} shared with snapshots and other volumes\n",
            usage.stored_bytes, usage.unique_bytes, usage.shared_bytes
        );
    }
    if let Some((host, port)) = volume.nvme_addresses.first().and_then(|address| address.rsplit_once(':')) {
        let host = host.trim_matches(['[', ']']);
        text += &format!("connect     nvme connect -t tcp -a {host} -s {port} -n {}\n", volume.nqn);
    }
    text
}

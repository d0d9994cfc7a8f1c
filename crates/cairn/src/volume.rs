//! `cairn volume create|ls|info|resize|set|rename|move|unlock|lock|rekey|delete`.

use crate::Failure;
use crate::args::{SecretArguments, VolumeCommand};
use crate::client::Client;
use crate::output::{Format, show, table};
use crate::pool::placement_name;
use crate::relocation;
use node::admin::types::{
    ChangeVolume, Compression, CreateVolume, Limits, MoveVolume, RekeyVolume, Secret, UnlockVolume, Volume,
};
use node::rates::{Time, limit_change};
use node::secret::{read_key_file, read_passphrase_file};
use node::size::ByteSize;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) fn run(client: &Client, command: VolumeCommand, format: Format) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create { name, size, block_size, encrypt: _, secret, any_host, limits, place } => {
            let change = limit_change(limits.iops, limits.bandwidth, limits.burst);
            let volume = client.create_volume(&CreateVolume {
                name: name.to_string(),
                size_bytes: size.0,
                block_size_bytes: block_size.bytes(),
                secret: secret_in(secret.key_file, secret.passphrase_file)?,
                any_host,
                pool: place.pool,
                replicas: place.replicas,
                placement: place.placement.map(|placement| placement.told().0),
                node: place.placement.and_then(|placement| placement.told().1),
                limits: Limits {
                    iops: change.iops.flatten(),
                    bytes_per_second: change.bytes_per_second.flatten(),
                    burst_ms: change.burst_ms.flatten(),
                },
            })?;
            show(format, &volume, details)
        }
        VolumeCommand::Ls => show(format, &client.volumes()?, |volumes| list(volumes)),
        VolumeCommand::Info { name } => show(format, &client.volume(name.as_str())?, details),
        VolumeCommand::Resize { name, size } => {
            let asked = ChangeVolume { size_bytes: Some(size.0), ..ChangeVolume::default() };
            show(format, &client.change_volume(name.as_str(), &asked)?, details)
        }
        VolumeCommand::Set { name, limits } => {
            let change = limit_change(limits.iops, limits.bandwidth, limits.burst);
            let asked = ChangeVolume { limits: Some(change.into()), ..ChangeVolume::default() };
            let told = |volume: &Volume| format!("{name}: {}\n", limits_of(&volume.limits));
            show(format, &client.change_volume(name.as_str(), &asked)?, told)
        }
        VolumeCommand::Rename { old, new } => {
            let asked = ChangeVolume { name: Some(new.to_string()), ..ChangeVolume::default() };
            let told = |_: &Volume| format!("{old} is called {new} from now on\n");
            show(format, &client.change_volume(old.as_str(), &asked)?, told)
        }
        VolumeCommand::Move { name, node: Some(node), .. } => {
            let asked = MoveVolume { node: node.to_string() };
            let told = |_: &Volume| format!("{name} is served by {node} from now on\n");
            show(format, &client.move_volume(name.as_str(), &asked)?, told)
        }
        VolumeCommand::Move { name, placement: Some(placement), pool, no_wait, .. } => {
            relocation::run(client, name.as_str(), (placement, pool), !no_wait, format)
        }
        VolumeCommand::Move { name, .. } => relocation::give_up(client, name.as_str(), format),
        VolumeCommand::Unlock { name, secret } => {
            let asked = UnlockVolume { secret: secret_of(secret)? };
            show(format, &client.unlock_volume(name.as_str(), &asked)?, |_| format!("{name} is unlocked\n"))
        }
        VolumeCommand::Lock { name } => {
            show(format, &client.lock_volume(name.as_str())?, |_| format!("{name} is locked\n"))
        }
        VolumeCommand::Rekey { name, secret, change, add } => {
            let new_secret = secret_in(change.new_key_file, change.new_passphrase_file)?;
            let asked = RekeyVolume { secret: secret_of(secret)?, new_secret, keep: add };
            let told = |_: &Volume| format!("what opens {name} was changed\n");
            show(format, &client.rekey_volume(name.as_str(), &asked)?, told)
        }
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

fn secret_of(secret: SecretArguments) -> Result<Secret, Failure> {
    let read = secret_in(secret.key_file, secret.passphrase_file)?;
    read.ok_or_else(|| Failure::new("name what opens it with --key-file or --passphrase-file".to_owned()))
}

/// What the one file that is named holds.
fn secret_in(key_file: Option<PathBuf>, passphrase_file: Option<PathBuf>) -> Result<Option<Secret>, Failure> {
    let read = match (key_file, passphrase_file) {
        (Some(path), _) => read_key_file(&path),
        (None, Some(path)) => read_passphrase_file(&path),
        (None, None) => return Ok(None),
    };
    Ok(Some(Secret::of(&read.map_err(Failure::of)?)))
}

pub(crate) fn compression_name(compression: Compression) -> &'static str {
    match compression {
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
        Compression::Off => "off",
    }
}

/// Whether it is encrypted and can be used, in a word.
fn encryption(volume: &Volume) -> &'static str {
    match (volume.encrypted, volume.locked) {
        (false, _) => "no",
        (true, false) => "yes",
        (true, true) => "locked",
    }
}

/// Which node serves it, and what that costs.
fn served_by(volume: &Volume) -> String {
    let Volume { head, home, led_from, .. } = volume;
    match led_from {
        Some(lead) if lead != head && home == lead => format!("by {head}, home {home}: each I/O costs a hop"),
        Some(lead) if lead != head => {
            format!("by {head}, home {home}, led from {lead} meanwhile: each I/O costs a hop")
        }
        _ if home != head && !home.is_empty() => format!("by {head}, home {home}"),
        _ => format!("by {head}"),
    }
}

/// What it may do in a second, in words.
fn limits_of(limits: &Limits) -> String {
    let iops = limits.iops.map(|iops| format!("{iops} IOPS"));
    let bandwidth = limits.bytes_per_second.map(|bytes| format!("{}/s", ByteSize(bytes)));
    let rates: Vec<String> = iops.into_iter().chain(bandwidth).collect();
    match limits.burst_ms {
        Some(burst) if !rates.is_empty() => {
            format!("{}, bursts of {}", rates.join(" and "), Time(Duration::from_millis(burst)))
        }
        _ => "none".to_owned(),
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
            encryption(volume).to_owned(),
            volume.usage.map_or_else(String::new, |usage| ByteSize(usage.unique_bytes).rounded()),
            volume.usage.map_or_else(String::new, |usage| ByteSize(usage.shared_bytes).rounded()),
            volume.nbd_uri.clone(),
        ]
    };
    let rows: Vec<_> = volumes.iter().map(row).collect();
    table(["NAME", "SIZE", "BLOCK", "NSID", "ENCRYPTED", "UNIQUE", "SHARED", "NBD"], &rows)
}

pub(crate) fn details(volume: &Volume) -> String {
    let mut text = format!(
        "name        {}\nsize        {} ({} bytes)\nblock size  {}\nnqn         {}\nnsid        {}\nnguid       {}\n\
         nvme        {}\nnbd         {}\nlayers      {}\npool        {}\nplacement   {}\nserved      {}\ncompressed  {}\nencrypted   {}\nlimits      {}\nhosts       {}\n",
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
        volume.pool,
        placement_name(volume.placement),
        served_by(volume),
        compression_name(volume.compression),
        match encryption(volume) {
            "locked" => format!("yes, and locked: `cairn volume unlock {} --key-file PATH` serves it", volume.name),
            told => told.to_owned(),
        },
        limits_of(&volume.limits),
        crate::host::who(volume.any_host, &volume.hosts),
    );
    if let Some(usage) = volume.usage {
        text += &format!(
            "holds       {} bytes: {} of its own, {} shared with snapshots and other volumes\nstored      {} bytes\n",
            usage.unique_bytes + usage.shared_bytes,
            usage.unique_bytes,
            usage.shared_bytes,
            usage.stored_bytes
        );
    }
    if volume.locked {
        return text; // nobody gets in
    }
    if let Some((host, port)) = volume.nvme_addresses.first().and_then(|address| address.rsplit_once(':')) {
        let host = host.trim_matches(['[', ']']);
        text += &format!("connect     nvme connect -t tcp -a {host} -s {port} -n {}\n", volume.nqn);
    }
    text
}

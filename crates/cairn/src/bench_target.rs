//! Whom `cairn bench` measures: what each target is, as far as it can tell.

use crate::Failure;
use crate::client::Client;
use measure::fio::Fio;
use measure::machine::{DeviceCounter, NetworkCounter, Processes, Watch};
use measure::run::Contestant;
use measure::setting::{Setting, UNKNOWN};
use measure::target::{Door, Target, media_of, prepare_path};
use node::admin::pool_types::Placement;
use node::admin::types::Compression;
use node::size::ByteSize;
use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The engine by which fio is a volume's head, and the one for files and devices.
pub(crate) const LIBCAIRN: &str = "libcairn";
pub(crate) const DEFAULT_ENGINE: &str = "libaio";

/// Fields that somebody may have to say of a target; the others are looked up.
const SAID: [&str; 8] =
    ["copies", "durability", "checksums", "encryption", "compression", "cache", "locality", "media"];

/// Reads `FIELD=VALUE`.
pub(crate) fn said(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((field, value)) if SAID.contains(&field) && !value.is_empty() && value != UNKNOWN => {
            Ok((field.to_owned(), value.to_owned()))
        }
        _ => Err(format!("write FIELD=VALUE, the field being {}", SAID.join(", "))),
    }
}

/// What the command line says of all targets.
pub(crate) struct Wish {
    /// Bytes that the I/O goes to.
    pub(crate) span_bytes: u64,
    /// Whether it was asked for; else less is well, too.
    pub(crate) is_span_asked: bool,
    /// Whether what is on the targets may be lost.
    pub(crate) overwrite: bool,
    /// Of what targets cannot tell.
    pub(crate) settings: Vec<(String, String)>,
    /// Of targets whose processes are not known.
    pub(crate) processes: Vec<String>,
    /// For files and devices; for volumes `libcairn`, or they are reached by NBD.
    pub(crate) engine: String,
}

/// A target and its size, if it tells.
pub(crate) type Known = (Contestant, Option<u64>);

/// All targets, one contestant each or all of them together, and the bytes of each that the I/O goes to. No block is written
/// here; a file that is not there is made.
pub(crate) fn contestants(
    targets: &[Target],
    wish: &Wish,
    fio: &Fio,
    together: bool,
    client: impl FnOnce() -> Result<Client, Failure>,
) -> Result<(Vec<Contestant>, u64), Failure> {
    if let Some(twice) = targets.iter().enumerate().find(|(at, target)| targets[..*at].contains(target)) {
        return Err(Failure::new(format!("--target names {} twice: name each once", name(twice.1))));
    }
    let needs_cluster = targets.iter().any(|target| matches!(target, Target::Cairn { .. }));
    let client = if needs_cluster { Some(Rc::new(client()?)) } else { None };
    let mut known: Vec<Known> = Vec::new();
    for target in targets {
        known.push(match (target, &client) {
            (Target::Cairn { volume, conf }, Some(client)) => cairn(volume, conf.as_deref(), client, wish)?,
            (Target::Path(path), _) => file(path, wish, fio)?,
            _ => remote(target, wish)?,
        });
        let (contestant, _) = &known[known.len() - 1];
        fio.check(&contestant.doors[0]).map_err(Failure::of)?;
    }
    let smallest = known.iter().filter_map(|(contestant, size)| Some(((*size)?, &contestant.name))).min();
    let mut span_bytes = wish.span_bytes;
    if let Some((size, name)) = smallest.filter(|(size, _)| *size < span_bytes) {
        if wish.is_span_asked {
            let (size, asked) = (ByteSize(size), ByteSize(span_bytes));
            return Err(Failure::new(format!(
                "{name} has {size}, less than --size {asked}: give less, or a larger target"
            )));
        }
        span_bytes = size;
    }
    let mut contestants: Vec<Contestant> = known.into_iter().map(|(contestant, _)| contestant).collect();
    for contestant in &mut contestants {
        for (field, value) in &wish.settings {
            if contestant.setting.get(field) == UNKNOWN {
                contestant.setting.set(field, value.as_str());
            }
        }
    }
    if together {
        contestants = vec![joined(contestants)?];
    }
    Ok((contestants, span_bytes))
}

/// As the command line names it.
fn name(target: &Target) -> String {
    match target {
        Target::Cairn { volume, .. } => format!("cairn:{volume}"),
        Target::Nbd(uri) => uri.clone(),
        Target::Path(path) if path.starts_with("/dev/") => path.display().to_string(),
        Target::Path(path) => format!("file:{}", path.display()),
        Target::Rbd { pool, image, .. } => format!("rbd:{pool}/{image}"),
    }
}

/// Targets that are loaded at once, as one: they must be of one kind, or nothing could be said of what is measured.
fn joined(contestants: Vec<Contestant>) -> Result<Contestant, Failure> {
    let mut all = contestants.into_iter();
    let mut first = all.next().expect("there is at least one target");
    for other in all {
        let differences = first.setting.differences(&other.setting);
        if let Some(difference) = differences.into_iter().find(|difference| difference.first != difference.second) {
            return Err(Failure::new(format!(
                "{} and {} are not alike ({}): targets that are loaded at once must be",
                first.name,
                other.name,
                measure::compare::told(&difference)
            )));
        }
        first.name += &format!(" + {}", other.name);
        first.doors.extend(other.doors);
    }
    Ok(first)
}

/// How fio reaches a volume.
fn door_of(name: &str, conf: Option<&str>, nbd_uri: String, wish: &Wish) -> Result<Door, Failure> {
    if wish.engine != LIBCAIRN {
        return Ok(Door::Nbd { uri: nbd_uri });
    }
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("libcairn-fio.so"));
    let engine = std::env::var_os("CAIRN_FIO_ENGINE").map(PathBuf::from).or_else(beside).unwrap_or_default();
    // fio runs elsewhere.
    let conf = conf.map(|conf| std::path::absolute(conf).map(|path| path.display().to_string())).transpose();
    let conf = conf.map_err(|error| Failure::new(format!("{name}: {error}")))?;
    let uri = conf.map_or_else(|| format!("cairn:{name}"), |conf| format!("cairn:{name}?conf={conf}"));
    Ok(Door::Libcairn { uri, engine })
}

/// A volume, as far as its cluster tells what it is. No block is written.
pub(crate) fn cairn(name: &str, conf: Option<&str>, client: &Rc<Client>, wish: &Wish) -> Result<Known, Failure> {
    let volume = client.volume(name)?;
    if volume.locked {
        return Err(Failure::new(format!("{name} is locked: cairn volume unlock {name}")));
    }
    let held = volume.usage.map_or(0, |usage| usage.unique_bytes + usage.shared_bytes);
    if held > 0 && !wish.overwrite {
        let held = ByteSize(held);
        return Err(Failure::new(format!(
            "{name} holds {held}, which would be written over: measure a new volume (cairn volume create), or say with \
             --overwrite that nobody needs it"
        )));
    }
    let pool = client.pool(&volume.pool)?;
    let locality = locality_of(&volume.nbd_uri);
    let devices = client.devices()?;
    let mut media: Vec<String> = devices.iter().map(|device| media_of(Path::new(&device.path)).0).collect();
    media.sort();
    media.dedup();
    let mut setting = Setting::default();
    setting.set("copies", pool.replicas.to_string());
    setting.set("durability", "each-write");
    setting.set("checksums", "crc32c");
    setting.set("encryption", if volume.encrypted { "AES-256-XTS" } else { "none" });
    let compression = match volume.compression {
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
        Compression::Off => "off",
    };
    setting.set("compression", compression);
    setting.set("cache", "none");
    setting.set("locality", locality);
    if locality == "same-machine" && !media.is_empty() {
        setting.set("media", media.join(" and "));
    }
    let placement = match volume.placement {
        Placement::Gathered => "gathered",
        Placement::Spread => "spread",
    };
    let door = door_of(name, conf, volume.nbd_uri, wish)?;
    let about = [
        ("engine", door.engine().to_owned()),
        ("version", format!("cairn {}", client.status()?.version)),
        ("placement", format!("{placement}, head {}", volume.head)),
        ("copies in sync before a write is acknowledged", pool.min_in_sync.to_string()),
        ("devices", devices.len().to_string()),
        ("limits", format!("{:?} IOPS, {:?} bytes/s", volume.limits.iops, volume.limits.bytes_per_second)),
    ];
    let asked = Rc::clone(client);
    let count = move || {
        let devices = asked.devices().ok()?;
        let sum = |of: fn(&node::admin::types::Device) -> u64| devices.iter().map(of).sum();
        Some((sum(|device| device.device_bytes_written), sum(|device| device.device_bytes_read)))
    };
    let processes = if locality == "same-machine" { &["cairn", "etcd"][..] } else { &[] };
    let watch = Watch {
        processes: Processes::named(processes),
        devices: DeviceCounter::Target(Box::new(count)),
        network: NetworkCounter::Loopback,
    };
    let about = about.into_iter().map(|(what, value)| (what.to_owned(), value)).collect();
    let contestant = Contestant::new(format!("cairn:{name}"), vec![door], setting, about, watch);
    Ok((contestant, Some(volume.size_bytes)))
}

/// A file or device, which is made or looked at.
pub(crate) fn file(path: &Path, wish: &Wish, fio: &Fio) -> Result<Known, Failure> {
    let engine = if wish.engine == LIBCAIRN { DEFAULT_ENGINE } else { &wish.engine };
    let door = Door::Path { path: path.to_owned(), engine: engine.to_owned() };
    // Before a file is made that fio could not use.
    fio.check(&door).map_err(Failure::of)?;
    let size = prepare_path(path, wish.span_bytes, wish.overwrite).map_err(Failure::of)?;
    let (media, device) = media_of(path);
    let mut setting = Setting::default();
    setting.set("copies", "1");
    setting.set("durability", if media.ends_with("write through") { "each-write" } else { "flush" });
    setting.set("checksums", "none");
    setting.set("encryption", "none");
    setting.set("compression", "off");
    setting.set("cache", "none");
    setting.set("locality", "same-machine");
    setting.set("media", media);
    let watch = Watch {
        processes: Processes { names: wish.processes.clone(), under: None },
        devices: device.map_or(DeviceCounter::None, DeviceCounter::Kernel),
        network: NetworkCounter::Loopback,
    };
    let about = BTreeMap::from([("engine".to_owned(), format!("{engine}, O_DIRECT"))]);
    let contestant = Contestant::new(name(&Target::Path(path.to_owned())), vec![door], setting, about, watch);
    Ok((contestant, Some(size)))
}

/// NBD of somebody else's, and Ceph: nothing tells what they are.
fn remote(target: &Target, wish: &Wish) -> Result<Known, Failure> {
    let name = name(target);
    if !wish.overwrite {
        return Err(Failure::new(format!(
            "{name} would be written over, and what it holds cannot be looked at: --overwrite says that nobody needs it"
        )));
    }
    let mut setting = Setting::default();
    let (door, processes) = match target {
        Target::Rbd { pool, image, conf } => {
            let door = Door::Rbd { pool: pool.clone(), image: image.clone(), conf: conf.clone() };
            (door, ["ceph-osd".to_owned(), "ceph-mon".to_owned()].into_iter().chain(wish.processes.clone()).collect())
        }
        Target::Nbd(uri) => {
            setting.set("locality", locality_of(uri));
            (Door::Nbd { uri: uri.clone() }, wish.processes.clone())
        }
        Target::Cairn { .. } | Target::Path(_) => unreachable!("these are known"),
    };
    let about = BTreeMap::from([("engine".to_owned(), door.engine().to_owned())]);
    let watch = Watch { processes: Processes { names: processes, under: None }, ..Watch::default() };
    let contestant = Contestant::new(name, vec![door], setting, about, watch);
    Ok((contestant, None))
}

/// Whether the server of an NBD URI is on this machine.
fn locality_of(uri: &str) -> &'static str {
    let Some((scheme, rest)) = uri.split_once("://") else { return UNKNOWN };
    if scheme.ends_with("+unix") {
        return "same-machine";
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    match host.parse::<IpAddr>() {
        // An address that can be listened on is this machine's.
        Ok(address) if address.is_loopback() || TcpListener::bind((address, 0)).is_ok() => "same-machine",
        Ok(_) => "remote",
        Err(_) if host == "localhost" => "same-machine",
        Err(_) => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_told_from_others() {
        for uri in ["nbd://127.0.0.1:1/x", "nbd://localhost/x", "nbd://[::1]:1/x", "nbd+unix:///x?socket=/s"] {
            assert_eq!(locality_of(uri), "same-machine", "{uri}");
        }
        // Set aside for examples (RFC 5737): no machine has it.
        assert_eq!(locality_of("nbd://192.0.2.1:10809/x"), "remote");
        assert_eq!(locality_of("nbd://storage.example/x"), UNKNOWN);
    }

    #[test]
    fn only_what_a_target_cannot_tell_may_be_said() {
        assert_eq!(said("copies=3"), Ok(("copies".to_owned(), "3".to_owned())));
        for text in ["copies", "copies=", "copies=unknown", "cpu=fast", "x=1"] {
            assert!(said(text).unwrap_err().contains("durability"), "{text}");
        }
    }

    #[test]
    fn all_that_may_be_said_are_fields() {
        assert!(SAID.iter().all(|field| Setting::has_field(field)));
    }
}

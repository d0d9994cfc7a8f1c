//! Whom `cairn bench` measures: what each target is, as far as it can tell.
//!
//! ```text
//!   volume   a volume of the cluster, which tells all of it
//!   path     a file or device of this machine: sysfs tells what that is
//!   remote   NBD and NVMe/TCP of somebody else's, Ceph, Vitastor: nothing tells, --setting says
//! ```

mod path;
mod remote;
mod volume;

use crate::Failure;
use crate::client::Client;
use measure::fio::Fio;
use measure::generator::{self, Reached};
use measure::machine::{NetworkCounter, Watch, interface_to};
use measure::run::Contestant;
use measure::setting::{Setting, UNKNOWN};
use measure::target::Target;
use node::size::ByteSize;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::rc::Rc;

pub(crate) use path::file;
pub(crate) use volume::cairn;

/// The engine for files and devices.
pub(crate) const DEFAULT_ENGINE: &str = "libaio";

/// Where NBD servers listen that do not say it.
const NBD_PORT: u16 = 10809;
/// Client and storage share a machine.
const SAME_MACHINE: &str = "same-machine";
const REMOTE: &str = "remote";
/// Of what a target has none of.
const NONE: &str = "none";

/// Fields that somebody may have to say of a target; the others are looked up.
const SAID: [&str; 13] = [
    "copies",
    "min-in-sync",
    "nodes",
    "node-cores",
    "placement",
    "limits",
    "durability",
    "checksums",
    "encryption",
    "compression",
    "cache",
    "locality",
    "media",
];

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
#[derive(Clone, Default)]
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
    /// Of targets that do not tell it: where their blocks lie, on this machine.
    pub(crate) storage: Vec<PathBuf>,
    /// For files and devices, or how volumes are reached that do not say it.
    pub(crate) engine: String,
}

impl Wish {
    /// For what a profile has made itself.
    pub(crate) fn of_own(span_bytes: u64, engine: &str) -> Self {
        Self { span_bytes, overwrite: true, engine: engine.to_owned(), ..Self::default() }
    }

    /// What somebody has said of a field.
    fn said(&self, field: &str) -> Option<&str> {
        self.settings.iter().find(|(said, _)| said == field).map(|(_, value)| value.as_str())
    }
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
    let client = if targets.iter().any(may_be_ours) { Some(Rc::new(client()?)) } else { None };
    let mut known: Vec<Known> = Vec::new();
    for target in targets {
        known.push(match (target, &client) {
            (Target::Cairn { volume, conf, by }, Some(client)) => cairn(volume, conf.as_deref(), *by, client, wish)?,
            (Target::Path(path), client) => file(path, wish, fio, client.as_ref())?,
            _ => remote::remote(target, wish)?,
        });
        let (contestant, _) = &known[known.len() - 1];
        contestant.doors.iter().try_for_each(|door| fio.check(door)).map_err(Failure::of)?;
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
    contestants.iter_mut().for_each(|contestant| add_said(&mut contestant.setting, wish));
    if together {
        contestants = vec![joined(contestants)?];
    }
    Ok((contestants, span_bytes))
}

/// What somebody has said of what is not known; what a target tells stays.
fn add_said(setting: &mut Setting, wish: &Wish) {
    for (field, value) in &wish.settings {
        if setting.get(field) == UNKNOWN {
            setting.set(field, value.as_str());
        }
    }
}

/// Whether a cluster could tell what it is.
fn may_be_ours(target: &Target) -> bool {
    match target {
        Target::Cairn { .. } => true,
        Target::Path(path) => path::is_over_fabrics(path),
        _ => false,
    }
}

/// As the command line names it.
fn name(target: &Target) -> String {
    match target {
        Target::Cairn { volume, by: None, .. } => format!("cairn:{volume}"),
        Target::Cairn { volume, by: Some(by), .. } => format!("cairn:{volume}?by={}", by.name()),
        Target::Nbd(uri) | Target::OwnNvme(uri) => uri.clone(),
        Target::OwnNbd(rest) => format!("own-nbd://{rest}"),
        Target::Vitastor { image, .. } => format!("vitastor:{image}"),
        Target::Path(path) if path.starts_with("/dev/") => path.display().to_string(),
        Target::Path(path) => format!("file:{}", path.display()),
        Target::Rbd { pool, image, .. } => format!("rbd:{pool}/{image}"),
    }
}

/// One that the load generator of our own loads.
fn own(name: String, reached: Reached, setting: Setting, about: BTreeMap<String, String>, watch: Watch) -> Contestant {
    let mut contestant = Contestant::new(name, Vec::new(), setting, about, watch);
    contestant.setting.set("fio", generator::NAME);
    let (to_fill, to_load) = (reached.clone(), reached);
    contestant.own_fill = Some(Box::new(move |span_bytes| generator::fill(&to_fill, span_bytes)));
    contestant.own_load = Some(Box::new(move |ask, watch| generator::load(&to_load, ask, watch)));
    contestant
}

/// The address of HOST:PORT, or of HOST with this port.
fn address_of(authority: &str, port: u16) -> Result<SocketAddr, Failure> {
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let whole = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
    let found = whole.to_socket_addrs().map_err(|error| Failure::new(format!("{whole}: {error}")))?.next();
    found.ok_or_else(|| Failure::new(format!("{whole} has no address: name another host, or write its address")))
}

/// Targets that are loaded at once, as one: they must be of one kind, or nothing could be said of what is measured.
pub(crate) fn joined(contestants: Vec<Contestant>) -> Result<Contestant, Failure> {
    let mut all = contestants.into_iter();
    let mut first = all.next().expect("there is at least one target");
    for other in all {
        if let Some(own) = [&first, &other].into_iter().find(|one| one.own_load.is_some()) {
            return Err(Failure::new(format!(
                "{} is loaded by cairn's own generator, which loads one target at a time: name those that are loaded at once \
                 by NBD",
                own.name
            )));
        }
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

/// HOST of HOST:PORT, without a port and without brackets.
fn host_of(authority: &str) -> &str {
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// Whether the host of HOST:PORT is this machine.
fn locality_of_host(authority: &str) -> &'static str {
    let host = host_of(authority);
    match host.parse::<IpAddr>() {
        // An address that can be listened on is this machine's.
        Ok(address) if address.is_loopback() || TcpListener::bind((address, 0)).is_ok() => SAME_MACHINE,
        Ok(_) => REMOTE,
        Err(_) if host == "localhost" => SAME_MACHINE,
        Err(_) => UNKNOWN,
    }
}

/// HOST:PORT of an NBD URI; none: it is no network's.
fn authority_of(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_once("://")?;
    if scheme.ends_with("+unix") { None } else { rest.split(['/', '?']).next() }
}

/// Whether the server of an NBD URI is on this machine.
fn locality_of(uri: &str) -> &'static str {
    match authority_of(uri) {
        Some(authority) => locality_of_host(authority),
        None if uri.contains("+unix://") => SAME_MACHINE,
        None => UNKNOWN,
    }
}

/// Whose bytes are those between client and storage: the loopback interface's on one machine, else those of the interface that
/// leads to the server; where nobody knows where that is, nobody's.
fn network_to(locality: &str, authority: Option<&str>) -> NetworkCounter {
    if locality == SAME_MACHINE {
        return NetworkCounter::Loopback;
    }
    let address = authority.and_then(|authority| host_of(authority).parse().ok());
    address.and_then(interface_to).map_or(NetworkCounter::None, NetworkCounter::Interface)
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
    fn loopback_says_nothing_of_a_server_elsewhere() {
        assert_eq!(network_to(SAME_MACHINE, Some("127.0.0.1:1")), NetworkCounter::Loopback);
        assert_eq!(network_to(SAME_MACHINE, None), NetworkCounter::Loopback);
        assert_eq!(network_to(UNKNOWN, Some("storage.example:1")), NetworkCounter::None);
        assert_eq!(network_to(REMOTE, None), NetworkCounter::None);
        // Whether or not this machine has a way there.
        assert_ne!(network_to(REMOTE, Some("192.0.2.1:1")), NetworkCounter::Loopback);
    }

    #[test]
    fn only_what_a_target_cannot_tell_may_be_said() {
        assert_eq!(said("copies=3"), Ok(("copies".to_owned(), "3".to_owned())));
        for text in ["copies", "copies=", "copies=unknown", "cpu=fast", "x=1"] {
            assert!(said(text).unwrap_err().contains("durability"), "{text}");
        }
    }

    #[test]
    fn what_is_said_fills_what_is_unknown_and_nothing_else() {
        let mut setting = Setting::default();
        setting.set("copies", "1");
        let said = |field: &str| (field.to_owned(), "3".to_owned());
        let wish = Wish { settings: vec![said("copies"), said("nodes")], ..Wish::default() };
        add_said(&mut setting, &wish);
        assert_eq!((setting.get("copies"), setting.get("nodes"), setting.get("media")), ("1", "3", UNKNOWN));
    }

    #[test]
    fn all_that_may_be_said_are_fields() {
        assert!(SAID.iter().all(|field| Setting::has_field(field)));
    }
}

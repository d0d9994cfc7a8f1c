//! A volume, how it is reached, and what it can do.

use nvme::host::{Controller, HostError, HostIdentity, Options};
use runtime::timeout;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// A path that does not connect within this time is not there.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Largest block of which 64 KiB are a whole number, and a page of the host's another.
const BLOCK_BYTES_MAX: u64 = 4096;
/// ONCS: write zeroes.
const WRITE_ZEROES: u16 = 1 << 3;
const FORM: &str = "write nvme-tcp://HOST:PORT[,HOST:PORT…]/NQN?nsid=N";

/// A volume, and how it is reached.
#[derive(Clone, Debug)]
pub struct Target {
    /// NVMe/TCP of all nodes.
    pub paths: Vec<SocketAddr>,
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// NBD of one node that stays, and the volume's name; none: all workers are of the host.
    pub nbd: Option<(SocketAddr, String)>,
    /// Size of the volume.
    pub size_bytes: u64,
}

/// A namespace of any target, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// HOST:PORT of each path.
    pub hosts: Vec<String>,
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
}

impl FromStr for Uri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || FORM.to_owned();
        let (hosts, rest) = text.strip_prefix("nvme-tcp://").and_then(|rest| rest.split_once('/')).ok_or_else(form)?;
        let (nqn, nsid) = rest.split_once("?nsid=").ok_or_else(form)?;
        let nsid = nsid.parse().ok().filter(|nsid| *nsid > 0).ok_or_else(form)?;
        let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        let has_port = |host: &String| {
            host.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if nqn.is_empty() || !hosts.iter().all(has_port) {
            return Err(form());
        }
        if let Some(twice) = hosts.iter().enumerate().find(|(index, host)| hosts[..*index].contains(host)) {
            return Err(format!("{} is named twice: name each path once", twice.1));
        }
        Ok(Self { hosts, nqn: nqn.to_owned(), nsid })
    }
}

impl Uri {
    /// Its addresses: of each host the first.
    ///
    /// # Errors
    /// If a name is not known.
    pub fn paths(&self) -> Result<Vec<SocketAddr>, String> {
        let address = |host: &String| {
            let found = host.to_socket_addrs().map_err(|error| format!("{host}: {error}"))?.next();
            found.ok_or_else(|| format!("{host} has no address: name another, or write its address"))
        };
        self.hosts.iter().map(address).collect()
    }
}

/// What a namespace can do, as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Its size.
    pub size_bytes: u64,
    /// Its logical block.
    pub block_bytes: u64,
    /// Bytes that are written all or nothing, within boundaries of as many.
    pub atomic_bytes: u64,
    /// Largest command.
    pub most_bytes: u64,
    /// What is written is durable only when it is flushed.
    pub needs_flush: bool,
    /// It takes write zeroes.
    pub zeroes: bool,
}

/// Connects to one path after the other until one says what the namespace is.
///
/// # Errors
/// Why none does.
pub fn look(paths: &[SocketAddr], nqn: &str, nsid: u32, host: &HostIdentity) -> Result<Abilities, String> {
    let (all, subsystem, identity) = (paths.to_vec(), nqn.to_owned(), host.clone());
    let looked = runtime::uring::block_on(async move {
        let mut why = Vec::new();
        for path in all {
            match timeout(CONNECT_MAX, look_at(path, &subsystem, nsid, &identity)).await {
                Ok(Ok(abilities)) => return Ok(abilities),
                Ok(Err(error)) => why.push(format!("{path}: {error}")),
                Err(_) => why.push(format!("{path}: no answer within {} s", CONNECT_MAX.as_secs())),
            }
        }
        Err(why.join("; "))
    });
    let abilities = looked.map_err(|error| format!("the host cannot run here: {error}"))?;
    let host = &host.nqn;
    let abilities = abilities.map_err(|why| {
        format!("no path to namespace {nsid} of {nqn} answers ({why}): see that the target runs, and lets {host} in")
    })?;
    if !abilities.block_bytes.is_power_of_two() || abilities.block_bytes > BLOCK_BYTES_MAX {
        return Err(format!(
            "it has blocks of {} bytes: 512 to {BLOCK_BYTES_MAX} can be tortured",
            abilities.block_bytes
        ));
    }
    Ok(abilities)
}

async fn look_at(path: SocketAddr, nqn: &str, nsid: u32, host: &HostIdentity) -> Result<Abilities, HostError> {
    let controller = Controller::connect(path, &Options::new(host.clone(), nqn)).await?;
    let namespace = controller.namespace(nsid).await?;
    let (of_controller, of_namespace) = (controller.identity(), namespace.identity());
    let abilities = Abilities {
        size_bytes: namespace.size_bytes(),
        block_bytes: u64::from(namespace.block_bytes()),
        atomic_bytes: u64::from(of_namespace.untorn_bytes),
        most_bytes: namespace.max_transfer_bytes(),
        needs_flush: of_controller.volatile_write_cache & 1 == 1,
        zeroes: of_controller.optional_commands & WRITE_ZEROES != 0,
    };
    controller.shutdown().await?;
    Ok(abilities)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_named_by_its_paths_its_subsystem_and_its_namespace() {
        let text = "nvme-tcp://10.0.0.1:4420,[fd00::2]:4420,node-3:1/nqn.2014-08.org.nvmexpress:uuid:7?nsid=3";
        let uri: Uri = text.parse().expect("it is one");
        assert_eq!(uri.hosts, ["10.0.0.1:4420", "[fd00::2]:4420", "node-3:1"]);
        assert_eq!((&uri.nqn[..], uri.nsid), ("nqn.2014-08.org.nvmexpress:uuid:7", 3));
        for text in [
            "nvme-tcp://h:1",
            "nvme-tcp://h:1/nqn",
            "nvme-tcp://h:1/nqn?nsid=0",
            "nvme-tcp://h/nqn?nsid=1",
            "nvme-tcp://h:1,/nqn?nsid=1",
            "nvme-tcp://:1/nqn?nsid=1",
            "nvme-tcp://h:1/?nsid=1",
            "nbd://h:1/nqn?nsid=1",
        ] {
            assert_eq!(text.parse::<Uri>(), Err(FORM.to_owned()), "{text}");
        }
        assert!("nvme-tcp://h:1,h:1/nqn?nsid=1".parse::<Uri>().is_err_and(|why| why.contains("twice")));
    }
}

//! `cairn host allow|deny|ls`.

use crate::Failure;
use crate::args::HostCommand;
use crate::client::Client;
use crate::output::{Format, show, table};
use node::admin::types::{Hosts, Volume};

pub(crate) fn run(client: &Client, command: HostCommand, format: Format) -> Result<(), Failure> {
    match command {
        HostCommand::Allow { volume, host } => show(format, &client.allow_host(volume.as_str(), &host)?, changed),
        HostCommand::Deny { volume, host } => show(format, &client.deny_host(volume.as_str(), &host)?, changed),
        HostCommand::Ls { volume: Some(volume) } => {
            show(format, &[hosts_of(client.volume(volume.as_str())?)], |hosts| list(hosts))
        }
        HostCommand::Ls { volume: None } => {
            let hosts: Vec<_> = client.volumes()?.into_iter().map(hosts_of).collect();
            show(format, &hosts, |hosts| list(hosts))
        }
    }
}

fn hosts_of(volume: Volume) -> Hosts {
    Hosts { volume: volume.name, any_host: volume.any_host, hosts: volume.hosts }
}

/// Who may use a volume, in words.
pub(crate) fn who(any_host: bool, hosts: &[String]) -> String {
    match (any_host, hosts) {
        (true, _) => "any".to_owned(),
        (false, []) => "none: `cairn host allow` names them".to_owned(),
        (false, hosts) => hosts.join(" "),
    }
}

fn changed(hosts: &Hosts) -> String {
    format!("{} is for these NVMe hosts: {}\n", hosts.volume, who(hosts.any_host, &hosts.hosts))
}

/// A line for each host of each volume.
fn list(all: &[Hosts]) -> String {
    let mut rows = Vec::new();
    for Hosts { volume, any_host, hosts } in all {
        match (any_host, &hosts[..]) {
            (true, _) => rows.push([volume.clone(), "any".to_owned()]),
            (false, []) => rows.push([volume.clone(), "none".to_owned()]),
            (false, hosts) => rows.extend(hosts.iter().map(|host| [volume.clone(), host.clone()])),
        }
    }
    table(["VOLUME", "HOST"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_of_a_volume_has_a_line() {
        let of = |volume: &str, any_host, hosts: &[&str]| Hosts {
            volume: volume.into(),
            any_host,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        };
        let text = list(&[of("a", true, &[]), of("b", false, &[]), of("c", false, &["nqn.1", "nqn.2"])]);
        let lines: Vec<_> = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines, [["a", "any"], ["b", "none"], ["c", "nqn.1"], ["c", "nqn.2"]]);
    }
}

//! What the directory of a demo has besides, if its nodes are processes: ports that stay what they are, so that clients find a node
//! again that was started anew.

use crate::config::NodeConfig;
use crate::files::{self, FileError};
use crate::fleet::EtcdPlace;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;

/// Ports are looked for here: below those that systems give to connections that go out, and above those that have names.
const PORT_FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;
/// Between the places of two processes that begin one after the other: more ports than a demo takes, and no divisor of all.
const PORTS_APART: u64 = 331;
/// So many are tried.
const ATTEMPTS_MAX: u16 = 1000;

/// Part of `demo.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processes {
    /// Port of etcd for nodes.
    pub etcd_client_port: u16,
    /// Port of etcd for other etcds.
    pub etcd_peer_port: u16,
}

/// Ports that nobody listens on.
pub(crate) struct Ports {
    next: u16,
    left: u16,
    /// Somebody's who does not listen yet.
    given: Vec<u16>,
}

impl Ports {
    /// They are looked for from another place in each process: far enough from that of the next one, which may begin at the same
    /// instant.
    pub(crate) fn new() -> Self {
        let place = u64::from(std::process::id()) * PORTS_APART % u64::from(PORTS);
        Self { next: place as u16, left: ATTEMPTS_MAX, given: Vec::new() }
    }

    /// One that is free on this address; 0, if there is none.
    fn free(&mut self, on: IpAddr) -> u16 {
        while self.left > 0 {
            let port = PORT_FIRST + self.next;
            self.next = (self.next + 1) % PORTS;
            self.left -= 1;
            if !self.given.contains(&port) && is_free(on, port) {
                self.given.push(port);
                return port;
            }
        }
        0
    }

    /// These are a node's.
    pub(crate) fn keep_for(&mut self, node: &NodeConfig) {
        let its = [node.nvme_port, node.nbd_port, node.admin_port, node.peers_address().port()];
        self.given.extend(its.into_iter().filter(|port| *port != 0));
    }

    /// The same port, if it is one and free.
    fn same_or_free(&mut self, on: IpAddr, port: u16) -> u16 {
        if port != 0 && is_free(on, port) {
            self.given.push(port);
            return port;
        }
        self.free(on)
    }
}

fn is_free(on: IpAddr, port: u16) -> bool {
    TcpListener::bind((on, port)).is_ok()
}

impl Processes {
    /// Of a new directory.
    pub(crate) fn new(ports: &mut Ports) -> Self {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self { etcd_client_port: ports.free(here), etcd_peer_port: ports.free(here) }
    }

    /// Somebody else may have taken a port meanwhile: then there is another one.
    pub(crate) fn still_free(&self, ports: &mut Ports) -> Self {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self {
            etcd_client_port: ports.same_or_free(here, self.etcd_client_port),
            etcd_peer_port: ports.same_or_free(here, self.etcd_peer_port),
        }
    }

    /// What a node's file says of its map.
    pub(crate) fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_client_port)
    }

    /// The etcd of this directory.
    pub(crate) fn etcd(&self, directory: &Path) -> EtcdPlace {
        EtcdPlace {
            data: directory.join("etcd"),
            log: directory.join("log/etcd.log"),
            client_port: self.etcd_client_port,
            peer_port: self.etcd_peer_port,
        }
    }
}

/// Any free port becomes one that stays: who comes again is found where it was.
pub(crate) fn settle_ports(config: &mut NodeConfig, ports: &mut Ports) {
    let on = config.listen;
    for port in [&mut config.nvme_port, &mut config.nbd_port, &mut config.admin_port] {
        if *port == 0 {
            *port = ports.free(on);
        }
    }
    config.peers_port = Some(match config.peers_port {
        Some(port) if port != 0 => port,
        _ => ports.free(on),
    });
}

/// Writes a node's file, if it says something else.
pub(crate) fn write_node_file(path: &Path, config: &NodeConfig) -> Result<(), FileError> {
    if files::read_toml::<NodeConfig>(path).is_ok_and(|there| there == *config) {
        return Ok(());
    }
    files::write_toml(path, "A node of Cairn. Paths are relative to this file.", config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_different_and_stay() {
        let mut ports = Ports::new();
        let new = Processes::new(&mut ports);
        assert!(new.etcd_client_port >= PORT_FIRST && new.etcd_client_port != new.etcd_peer_port);
        assert_eq!(new.still_free(&mut ports), new);
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, new.etcd_client_port)).unwrap();
        let other = new.still_free(&mut ports);
        assert!(other.etcd_client_port != new.etcd_client_port && other.etcd_peer_port == new.etcd_peer_port);
        drop(taken);
    }
}

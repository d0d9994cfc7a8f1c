//! Which member of etcd is asked: one at a time, and the next when one has failed.
//!
//! etcd's client has a balance of its own, which leaves an endpoint alone for up to four minutes after it failed: with a store that
//! was away that is too long. So each connection is to one endpoint, and made anew.

use super::EtcdOptions;
use super::errors::told;
use crate::map::MapError;
use etcd_client::{Client, ConnectOptions, OpenSslClientConfig};
use std::time::Duration;
use tokio::sync::Mutex;

/// A member that takes no connection within this is left for another.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// A connection that does not answer is asked so often whether it lives, and given up after as long again.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Reach {
    endpoints: Vec<String>,
    connect: ConnectOptions,
    at: Mutex<At>,
}

#[derive(Default)]
struct At {
    /// Goes up with each that failed; says which is asked.
    turn: usize,
    client: Option<Client>,
}

impl Reach {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, MapError> {
        if options.endpoints.is_empty() {
            return Err(MapError::Refused("etcd: name at least one endpoint, like http://host:2379".to_owned()));
        }
        Ok(Self { endpoints: options.endpoints.clone(), connect: connect_options(options), at: Mutex::default() })
    }

    /// A connection, and its turn: to be told if it fails.
    pub(super) async fn client(&self) -> Result<(usize, Client), MapError> {
        let mut at = self.at.lock().await;
        if let Some(client) = &at.client {
            return Ok((at.turn, client.clone()));
        }
        let endpoint = &self.endpoints[at.turn % self.endpoints.len()];
        let connected =
            tokio::time::timeout(CONNECT_WAIT, Client::connect([endpoint], Some(self.connect.clone()))).await;
        match connected.unwrap_or(Err(etcd_client::Error::Internal("no answer".to_owned()))) {
            Ok(client) => {
                at.client = Some(client.clone());
                Ok((at.turn, client))
            }
            Err(error) => {
                at.turn += 1;
                log::warn!("etcd at {endpoint}: {error}");
                Err(told(error))
            }
        }
    }

    /// What was asked in this turn has no answer: the next endpoint is asked.
    pub(super) async fn failed(&self, turn: usize) {
        let mut at = self.at.lock().await;
        if at.turn == turn {
            *at = At { turn: turn + 1, client: None };
        }
    }
}

fn connect_options(options: &EtcdOptions) -> ConnectOptions {
    let mut connect = ConnectOptions::new()
        .with_connect_timeout(CONNECT_WAIT)
        .with_keep_alive(KEEP_ALIVE, KEEP_ALIVE)
        .with_keep_alive_while_idle(true)
        .with_require_leader(true);
    if let Some((name, password)) = &options.user {
        connect = connect.with_user(name, password).with_auto_token_refresh(true);
    }
    let mut tls = OpenSslClientConfig::default();
    if let Some(authority) = &options.authority_pem {
        tls = tls.ca_cert_pem(authority);
    }
    if let Some((certificate, key)) = &options.identity_pem {
        tls = tls.client_cert_pem_and_key(certificate, key);
    }
    connect.with_openssl_tls(tls)
}

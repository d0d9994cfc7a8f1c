//! Which member of etcd is asked: one at a time, and the next when one has failed.
//!
//! etcd's client has a balance of its own, which leaves an endpoint alone for up to four minutes after it failed: with a store that
//! was away that is too long. So each connection is to one endpoint, and made anew.

use super::EtcdOptions;
use super::errors::told;
use crate::map::{MapError, Revision};
use crate::records::keys;
use etcd_client::{
    BalancedChannelBuilder, Channel, Client, ConnectOptions, GetOptions, OpenSslClientConfig, ResponseHeader,
};
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::sync::mpsc::Sender;
use tonic::codegen::http::Uri;
use tonic::transport::Endpoint;
use tonic::transport::channel::Change;

/// A member that takes no connection within this is left for another.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// A connection that does not answer is asked so often whether it lives, and given up after as long again.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Reach {
    endpoints: Vec<String>,
    options: ConnectOptions,
    at: Mutex<At>,
    /// etcd's own id, as its first member said it; 0: none has.
    cluster: AtomicU64,
    /// A member was of another etcd: another is asked next.
    is_astray: AtomicBool,
}

/// A transport that sends each part of a request at once. The one for TLS that etcd's client brings, and takes without TLS as well, leaves
/// parts to Nagle's algorithm: one waits up to 40 ms until the other end has acknowledged what was sent before.
struct AtOnce;

impl BalancedChannelBuilder for AtOnce {
    type Error = etcd_client::Error;

    fn balanced_channel(
        self,
        buffer_size: usize,
    ) -> Result<(Channel, Sender<Change<Uri, Endpoint>>), etcd_client::Error> {
        let (channel, endpoints) = tonic::transport::Channel::balance_channel(buffer_size);
        Ok((Channel::Tonic(channel), endpoints))
    }
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
        if let Some(open) = options.endpoints.iter().find(|endpoint| options.user.is_some() && is_open(endpoint)) {
            let why = format!("etcd: the password would go to {open} where others can read it: use https:// there");
            return Err(MapError::Refused(why));
        }
        Ok(Self {
            endpoints: options.endpoints.clone(),
            options: connect_options(options)?,
            at: Mutex::default(),
            cluster: AtomicU64::new(0),
            is_astray: AtomicBool::new(false),
        })
    }

    async fn connect(&self, endpoint: &str) -> Result<Client, etcd_client::Error> {
        let options = Some(self.options.clone());
        match endpoint.starts_with("https://") {
            true => Client::connect([endpoint], options).await,
            false => Client::connect_with_balanced_channel([endpoint], options, AtOnce).await,
        }
    }

    /// A connection, and its turn: to be told if it fails.
    pub(super) async fn client(&self) -> Result<(usize, Client), MapError> {
        let mut at = self.at.lock().await;
        if let Some(client) = &at.client {
            return Ok((at.turn, client.clone()));
        }
        let endpoint = &self.endpoints[at.turn % self.endpoints.len()];
        let connected = tokio::time::timeout(CONNECT_WAIT, self.connect(endpoint)).await;
        match connected.unwrap_or(Err(etcd_client::Error::Internal("no answer".to_owned()))) {
            Ok(client) => {
                if let Err(error) = self.ask_which(&client).await {
                    at.turn += 1;
                    return Err(error);
                }
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

    /// Whether it is the etcd that it is to be: before anything is asked of it.
    async fn ask_which(&self, client: &Client) -> Result<(), MapError> {
        // Answered by the member alone, whoever leads.
        let options = GetOptions::new().with_serializable().with_keys_only();
        let mut kv = client.kv_client();
        let asked = tokio::time::timeout(CONNECT_WAIT, kv.get(keys::CLUSTER, Some(options))).await;
        self.check(asked.map_err(|_| MapError::Unknown)?.map_err(told)?.header()).map(drop)
    }

    /// The revision that an answer names. One etcd's revisions say nothing of another's: who was followed into it would take
    /// its past for the map's. A connection that was lost and made again may lead there.
    pub(super) fn check(&self, header: Option<&ResponseHeader>) -> Result<Revision, MapError> {
        let header = header.ok_or(MapError::Unknown)?;
        let is = header.cluster_id();
        let known = self.cluster.compare_exchange(0, is, Relaxed, Relaxed).map_or_else(|known| known, |_| is);
        if is == known {
            return Ok(Revision(header.revision() as u64));
        }
        self.is_astray.store(true, Relaxed);
        Err(MapError::Storage(format!(
            "this is another etcd cluster ({is:016x}) than the one that the map was read from ({known:016x}): name members of \
             one only; if it was made anew on purpose, restart the node"
        )))
    }

    /// Whether an answer since the last asking came from another etcd.
    pub(super) fn was_astray(&self) -> bool {
        self.is_astray.swap(false, Relaxed)
    }

    /// All that the options name.
    pub(super) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Whether this one answers, over a connection of its own.
    pub(super) async fn answers(&self, endpoint: &str) -> bool {
        let ask = async {
            let client = self.connect(endpoint).await.ok()?;
            // Answered by the member alone, whoever leads.
            let options = GetOptions::new().with_serializable().with_keys_only();
            client.kv_client().get(keys::CLUSTER, Some(options)).await.ok()
        };
        tokio::time::timeout(CONNECT_WAIT, ask).await.is_ok_and(|answer| answer.is_some())
    }

    /// What was asked in this turn has no answer: the next endpoint is asked.
    pub(super) async fn failed(&self, turn: usize) {
        let mut at = self.at.lock().await;
        if at.turn == turn {
            (at.turn, at.client) = (turn + 1, None);
        }
    }
}

fn connect_options(options: &EtcdOptions) -> Result<ConnectOptions, MapError> {
    let mut connect = ConnectOptions::new()
        .with_connect_timeout(CONNECT_WAIT)
        .with_keep_alive(KEEP_ALIVE, KEEP_ALIVE)
        .with_keep_alive_while_idle(true)
        .with_require_leader(true);
    if let Some((name, password)) = &options.user {
        connect = connect.with_user(name, password).with_auto_token_refresh(true);
    }
    let authorities = options.authority_pem.as_deref().map(|pem| certificates("the authority's certificates", pem));
    let authorities = authorities.transpose()?;
    let identity = options.identity_pem.as_ref().map(|(certificate, key)| {
        let key = PKey::private_key_from_pem(key).map_err(|error| refused("the key of our certificate", &error))?;
        Ok::<_, MapError>((certificates("our certificate", certificate)?, key))
    });
    let identity = identity.transpose()?;
    let tls = OpenSslClientConfig::default().manually(|builder| {
        if let Some(authorities) = authorities {
            // These and no others: whoever the system trusts beside them could pose as the cluster's map.
            let mut store = X509StoreBuilder::new()?;
            authorities.into_iter().try_for_each(|authority| store.add_cert(authority))?;
            builder.set_cert_store(store.build());
        }
        if let Some((chain, key)) = identity {
            let mut chain = chain.into_iter();
            chain.next().map_or(Ok(()), |own| builder.set_certificate(&own))?;
            chain.try_for_each(|above| builder.add_extra_chain_cert(above))?;
            builder.set_private_key(&key)?;
            builder.check_private_key()?;
        }
        Ok(())
    });
    Ok(connect.with_openssl_tls(tls))
}

/// All certificates of a file, at least one.
fn certificates(what: &str, pem: &[u8]) -> Result<Vec<X509>, MapError> {
    let found = X509::stack_from_pem(pem).map_err(|error| refused(what, &error))?;
    if found.is_empty() {
        return Err(MapError::Refused(format!("etcd: {what}: the file holds no certificate in PEM")));
    }
    Ok(found)
}

fn refused(what: &str, error: &ErrorStack) -> MapError {
    MapError::Refused(format!("etcd: {what} cannot be read, PEM is expected: {error}"))
}

/// Whether what is said to this endpoint can be read on a network.
fn is_open(endpoint: &str) -> bool {
    if endpoint.starts_with("https://") {
        return false;
    }
    let place = endpoint.strip_prefix("http://").unwrap_or(endpoint);
    let place = place.split('/').next().unwrap_or_default();
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host != "localhost" && !address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(options: &EtcdOptions) -> Result<(), String> {
        Reach::new(options).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_password_is_not_sent_openly_over_a_network() {
        let user = Some(("cairn".to_owned(), "secret".to_owned()));
        let of = |endpoint: &str| EtcdOptions {
            endpoints: vec!["https://10.0.0.1:2379".to_owned(), endpoint.to_owned()],
            user: user.clone(),
            ..EtcdOptions::default()
        };
        for endpoint in
            ["https://10.0.0.2:2379", "http://127.0.0.1:2379", "http://[::1]:2379", "http://localhost:2379/"]
        {
            assert_eq!(opened(&of(endpoint)), Ok(()), "{endpoint}");
        }
        for endpoint in
            ["http://10.0.0.2:2379", "10.0.0.2:2379", "http://[fd00::1]:2379", "http://localhost.example:2379"]
        {
            let error = opened(&of(endpoint)).expect_err(endpoint);
            assert!(error.contains(endpoint) && error.contains("https://"), "{error}");
            assert_eq!(opened(&EtcdOptions { user: None, ..of(endpoint) }), Ok(()), "{endpoint}");
        }
    }

    #[test]
    fn certificates_that_cannot_be_read_are_named_at_once() {
        let endpoints = vec!["https://10.0.0.1:2379".to_owned()];
        let error = opened(&EtcdOptions { endpoints, authority_pem: Some(b"none".to_vec()), ..EtcdOptions::default() });
        assert!(error.expect_err("no certificate").contains("the authority's certificates"));
    }
}

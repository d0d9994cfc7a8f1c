//! The discovery log.

use super::controller::{connect_discovery, get_log_page};
use super::queue::Queue;
use super::{HostError, HostIdentity, Options};
use crate::wire::log::{DiscoveryEntry, decode_discovery_header, page};
use crate::wire::{DISCOVERY_NQN, array_at};
use std::net::SocketAddr;
use std::time::Duration;

/// Most entries that are read.
const MAX_ENTRIES: u64 = 1024;
/// The log changed under the reader this often: given up.
const MAX_READS: usize = 5;

/// What the discovery controller at `address` lists for this host.
pub async fn discover(address: SocketAddr, host: &HostIdentity) -> Result<Vec<DiscoveryEntry>, HostError> {
    let mut options = Options::new(host.clone(), DISCOVERY_NQN);
    options.keep_alive = Duration::ZERO;
    let admin = connect_discovery(address, &options).await?;
    let entries = read(&admin).await;
    admin.close();
    entries
}

/// Reads header and entries until both are of one generation.
async fn read(admin: &Queue) -> Result<Vec<DiscoveryEntry>, HostError> {
    const BYTES: u32 = DiscoveryEntry::BYTES as u32;
    for _ in 0..MAX_READS {
        let before = decode_discovery_header(&array_at(&get_log_page(admin, page::DISCOVERY, 0, BYTES).await?, 0));
        let count = before.1.min(MAX_ENTRIES);
        let mut entries = Vec::new();
        for index in 0..count {
            let offset = u64::from(BYTES) * (index + 1);
            let bytes = get_log_page(admin, page::DISCOVERY, offset, BYTES).await?;
            entries.push(DiscoveryEntry::decode(&array_at(&bytes, 0)));
        }
        let after = decode_discovery_header(&array_at(&get_log_page(admin, page::DISCOVERY, 0, BYTES).await?, 0));
        if before == after {
            return Ok(entries);
        }
    }
    Err(HostError::Protocol("the discovery log changed each time it was read".into()))
}

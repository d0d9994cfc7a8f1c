//! A volume as a client sees it, whichever protocol it speaks.

use crate::demo::Served;
use nbd::client::{Client, ClientError};
use nvme::host::{Controller, HostError, HostIdentity, Namespace, Options, Queue};
use runtime::SharedBuf;
use std::net::SocketAddr;

/// How a request ended that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// No answer will come: the outcome is unknown.
    #[error("lost: {0}")]
    Lost(String),
    /// Answered with an error: not done.
    #[error("refused: {0}")]
    Refused(String),
}

impl From<ClientError> for DiskError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Lost(_) => Self::Lost(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
}

impl From<HostError> for DiskError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Status(_) | HostError::Unsupported(_) => Self::Refused(error.to_string()),
            _ => Self::Lost(error.to_string()),
        }
    }
}

/// An open volume. Clones share the connection.
#[derive(Clone)]
pub enum Disk {
    /// Over NBD.
    Nbd(Client),
    /// Over NVMe/TCP.
    Nvme(Controller, Namespace),
}

impl Disk {
    /// Opens a volume over NBD.
    pub async fn nbd(address: SocketAddr, name: &str) -> Result<Self, DiskError> {
        Ok(Self::Nbd(Client::connect(address, name, true).await?))
    }

    /// Opens a volume over NVMe/TCP with two I/O queues; with digests if asked for.
    pub async fn nvme(served: &Served, digests: bool) -> Result<Self, DiskError> {
        Self::nvme_with(served, 2, digests).await
    }

    /// As [`nvme`](Self::nvme), with so many I/O queues, each a connection.
    pub async fn nvme_with(served: &Served, io_queues: u16, digests: bool) -> Result<Self, DiskError> {
        // A host of its own per process: a host that connects anew ends the controller that it had.
        let process = std::process::id();
        let mut id = *b"cairn-e2e-host-1";
        id[12..].copy_from_slice(&process.to_le_bytes());
        let host = HostIdentity { nqn: format!("nqn.2026-01.test:e2e-{process}"), id };
        let options =
            Options { io_queues, header_digest: digests, data_digest: digests, ..Options::new(host, &served.nqn) };
        let controller = Controller::connect(served.nvme, &options).await?;
        let namespace = controller.namespace(served.nsid).await?;
        Ok(Self::Nvme(controller, namespace))
    }

    /// Reads.
    pub async fn read(&self, offset_bytes: u64, len_bytes: u32) -> Result<SharedBuf, DiskError> {
        match self {
            Self::Nbd(client) => Ok(client.read(offset_bytes, len_bytes).await?),
            Self::Nvme(_, namespace) => Ok(namespace.read(offset_bytes, len_bytes).await?),
        }
    }

    /// Writes.
    pub async fn write(&self, offset_bytes: u64, bytes: SharedBuf) -> Result<(), DiskError> {
        match self {
            Self::Nbd(client) => Ok(client.write(offset_bytes, bytes, false).await?),
            Self::Nvme(_, namespace) => Ok(namespace.write(offset_bytes, bytes).await?),
        }
    }

    /// Flushes.
    pub async fn flush(&self) -> Result<(), DiskError> {
        match self {
            Self::Nbd(client) => Ok(client.flush().await?),
            Self::Nvme(_, namespace) => Ok(namespace.flush().await?),
        }
    }

    /// Discards whole 4 KiB blocks.
    pub async fn trim(&self, offset_bytes: u64, len_bytes: u32) -> Result<(), DiskError> {
        match self {
            Self::Nbd(client) => Ok(client.trim(offset_bytes, len_bytes).await?),
            Self::Nvme(_, namespace) => Ok(namespace.deallocate(&[(offset_bytes, len_bytes.into())]).await?),
        }
    }

    /// Makes a range read as zeroes.
    pub async fn write_zeroes(&self, offset_bytes: u64, len_bytes: u32) -> Result<(), DiskError> {
        match self {
            Self::Nbd(client) => Ok(client.write_zeroes(offset_bytes, len_bytes, false).await?),
            Self::Nvme(_, namespace) => Ok(namespace.write_zeroes(offset_bytes, len_bytes.into(), true).await?),
        }
    }

    /// Gives the connection up, as a host that has lost its patience does.
    pub fn abort(&self) {
        match self {
            Self::Nbd(client) => client.abort(),
            Self::Nvme(controller, _) => {
                controller.queues().iter().for_each(Queue::close);
                controller.admin().close();
            }
        }
    }
}

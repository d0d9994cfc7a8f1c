//! A volume as a client sees it, whichever protocol it speaks.

use nbd::client::{Client, ClientError};
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

/// An open volume. Clones share the connection.
#[derive(Clone)]
pub enum Disk {
    /// Over NBD.
    Nbd(Client),
}

impl Disk {
    /// Opens a volume over NBD.
    pub async fn nbd(address: SocketAddr, name: &str) -> Result<Self, DiskError> {
        Ok(Self::Nbd(Client::connect(address, name, true).await?))
    }

    /// Reads.
    pub async fn read(&self, offset_bytes: u64, len_bytes: u32) -> Result<SharedBuf, DiskError> {
        match self {
            Self::Nbd(client) => Ok(client.read(offset_bytes, len_bytes).await?),
        }
    }

    /// Writes.
    pub async fn write(&self, offset_bytes: u64, bytes: SharedBuf) -> Result<(), DiskError> {
        match self {
            Self::Nbd(client) => Ok(client.write(offset_bytes, bytes, false).await?),
        }
    }

    /// Flushes.
    pub async fn flush(&self) -> Result<(), DiskError> {
        match self {
            Self::Nbd(client) => Ok(client.flush().await?),
        }
    }

    /// Discards whole 4 KiB blocks.
    pub async fn trim(&self, offset_bytes: u64, len_bytes: u32) -> Result<(), DiskError> {
        match self {
            Self::Nbd(client) => Ok(client.trim(offset_bytes, len_bytes).await?),
        }
    }

    /// Makes a range read as zeroes.
    pub async fn write_zeroes(&self, offset_bytes: u64, len_bytes: u32) -> Result<(), DiskError> {
        match self {
            Self::Nbd(client) => Ok(client.write_zeroes(offset_bytes, len_bytes).await?),
        }
    }

    /// Gives the connection up, as a host that has lost its patience does.
    pub fn abort(&self) {
        match self {
            Self::Nbd(client) => client.abort(),
        }
    }
}

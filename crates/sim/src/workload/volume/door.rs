//! The ways to a volume: from inside the node, and through both front doors over the network.

use super::lock::Lock;
use super::machine::{NBD_PORT, NQN, NVME_PORT, VOLUME};
use nbd::client::{Client, ClientError};
use nbd::wire::transmission::allocation;
use nvme::host::{Controller, HostError, HostIdentity, Namespace, Options};
use runtime::{SharedBuf, random_u64};
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use types::BLOCK_BYTES;
use volume::{Directory, Encryption, IoError, Payload, Volume};

/// A volume as one client reaches it.
pub enum Door {
    /// On a core of the node.
    Core(CoreDoor),
    /// Through NVMe/TCP.
    Nvme(Namespace),
    /// Through NBD, opened when the lock was so.
    Nbd(Client, Lock),
}

/// A volume as somebody on a core of the node holds it.
pub struct CoreDoor {
    directory: Directory,
    volume: RefCell<Volume>,
    is_encrypted: bool,
    opened: Cell<Lock>,
}

/// Why an operation was not answered as it should be. Whether it was done nobody knows.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The volume is locked, or was meanwhile: nothing of one command was done.
    #[error("locked")]
    Locked,
    /// There is no room: the client goes on.
    #[error("no space")]
    NoSpace,
    /// The range goes beyond the end of the volume: nothing was done.
    #[error("beyond the end")]
    Beyond,
    /// What is stored there is damaged.
    #[error("{0}")]
    Damaged(String),
    /// The volume is not served any more.
    #[error("{0}")]
    Gone(String),
    /// The connection is gone: the client makes another one.
    #[error("the connection is gone")]
    Lost,
    /// The node says that it cannot for now: the client is to ask again.
    #[error("{0}")]
    Waits(String),
    /// The node says that it cannot.
    #[error("{0}")]
    Failed(String),
    /// What must never happen, whatever goes wrong.
    #[error("{0}")]
    Wrong(String),
}

impl CoreDoor {
    fn volume(&self) -> Volume {
        self.volume.borrow().clone()
    }
}

impl Door {
    /// Takes hold of a volume on this core, if it is served.
    pub fn core(directory: &Directory, name: &str, lock: Lock) -> Option<Self> {
        let volume = directory.by_name(name)?;
        let is_encrypted = volume.info().encryption != Encryption::Off;
        let (directory, opened) = (directory.clone(), Cell::new(lock));
        Some(Self::Core(CoreDoor { directory, volume: RefCell::new(volume), is_encrypted, opened }))
    }

    /// The volume was locked and is no more: goes on if that can be, otherwise another door is needed.
    pub fn goes_on(&self, name: &str, lock: Lock) -> bool {
        match self {
            Self::Core(core) => {
                core.opened.set(lock);
                if let Some(volume) = core.directory.by_name(name) {
                    core.volume.replace(volume);
                }
                true
            }
            Self::Nvme(_) => random_u64().is_multiple_of(2),
            Self::Nbd(..) => false,
        }
    }

    /// How the lock was when what this way leads to was found, if that is for good.
    pub fn opened(&self) -> Option<Lock> {
        match self {
            Self::Core(core) => Some(core.opened.get()),
            Self::Nvme(_) => None,
            Self::Nbd(_, opened) => Some(*opened),
        }
    }

    /// Whether it leads to a volume that can be locked, if the judged one can.
    pub fn may_be_locked(&self) -> bool {
        match self {
            Self::Core(core) => core.is_encrypted,
            Self::Nvme(_) | Self::Nbd(..) => true,
        }
    }

    /// Connects host number `host` through NVMe/TCP.
    pub async fn nvme(address: IpAddr, host: u8, nsid: u32) -> Result<Self, Trouble> {
        let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{host:04}");
        let digests = random_u64().is_multiple_of(2);
        let options = Options {
            io_queues: 1 + (random_u64() % 2) as u16,
            header_digest: digests,
            data_digest: digests,
            ..Options::new(HostIdentity { nqn, id: [host; 16] }, NQN)
        };
        let controller = Controller::connect((address, NVME_PORT).into(), &options).await?;
        Ok(Self::Nvme(controller.namespace(nsid).await?))
    }

    /// Connects through NBD.
    pub async fn nbd(address: IpAddr, lock: Lock) -> Result<Self, Trouble> {
        let structured = random_u64().is_multiple_of(2);
        let contexts: &[&str] = if structured { &[nbd::machine::ALLOCATION] } else { &[] };
        let client = Client::connect_with((address, NBD_PORT).into(), VOLUME, structured, contexts).await?;
        Ok(Self::Nbd(client, lock))
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Core(_) => "a core",
            Self::Nvme(_) => "NVMe/TCP",
            Self::Nbd(..) => "NBD",
        }
    }

    /// The size of the volume that this way was opened with, if it keeps to that.
    pub fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::Core(_) | Self::Nvme(_) => None,
            Self::Nbd(client, _) => Some(client.info().size.size_bytes),
        }
    }

    pub async fn write(&self, offset_bytes: u64, bytes: SharedBuf) -> Result<(), Trouble> {
        match self {
            Self::Core(core) => Ok(core.volume().write(offset_bytes, Payload { bytes }).await?),
            Self::Nvme(namespace) => Ok(namespace.write(offset_bytes, bytes).await?),
            Self::Nbd(client, _) => {
                let end = offset_bytes + bytes.len() as u64;
                self.within(end, client.write(offset_bytes, bytes, false).await)
            }
        }
    }

    /// Makes the range zero, in any of the ways there are.
    pub async fn zero(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), Trouble> {
        let whole = (offset_bytes | len_bytes).is_multiple_of(BLOCK_BYTES as u64);
        // What is discarded reads as zeroes, parts of blocks excepted.
        let discard = whole && random_u64().is_multiple_of(2);
        match self {
            Self::Core(core) if discard => Ok(core.volume().discard(offset_bytes, len_bytes).await?),
            Self::Core(core) => Ok(core.volume().write_zeroes(offset_bytes, len_bytes).await?),
            Self::Nvme(namespace) if discard => Ok(namespace.deallocate(&[(offset_bytes, len_bytes)]).await?),
            Self::Nvme(namespace) => Ok(namespace.write_zeroes(offset_bytes, len_bytes, whole).await?),
            Self::Nbd(client, _) if discard => {
                self.within(offset_bytes + len_bytes, client.trim(offset_bytes, len_bytes as u32).await)
            }
            Self::Nbd(client, _) => {
                let keep_space = random_u64().is_multiple_of(4);
                let zeroes = client.write_zeroes(offset_bytes, len_bytes as u32, keep_space);
                self.within(offset_bytes + len_bytes, zeroes.await)
            }
        }
    }

    /// Whether this way can be asked for block status.
    pub fn tells_status(&self) -> bool {
        match self {
            Self::Core(_) => true,
            Self::Nvme(_) => false,
            Self::Nbd(client, _) => !client.info().contexts.is_empty(),
        }
    }

    /// Whether block status calls all of the range a hole; `None` if this way [cannot be asked](Self::tells_status).
    pub async fn is_hole(&self, offset_bytes: u64, len_bytes: u32) -> Result<Option<bool>, Trouble> {
        match self {
            Self::Core(core) => {
                let extents = core.volume().block_status(offset_bytes, len_bytes.into(), &[], 1).await?;
                Ok(Some(!extents[0].is_stored && extents[0].len_bytes == u64::from(len_bytes)))
            }
            Self::Nbd(client, _) if self.tells_status() => {
                let one = random_u64().is_multiple_of(2);
                let status = client.block_status(offset_bytes, len_bytes, one).await;
                let status = self.within(offset_bytes + u64::from(len_bytes), status)?;
                let extent = status.first().and_then(|status| status.extents.first());
                let extent = extent.ok_or_else(|| Trouble::Wrong("a status without an extent".to_owned()))?;
                Ok(Some(extent.flags & allocation::ZERO != 0 && extent.len_bytes == len_bytes))
            }
            Self::Nvme(_) | Self::Nbd(..) => Ok(None),
        }
    }

    /// NBD tells an error at the end of the export only by its number, which others have too.
    fn within<T>(&self, end_bytes: u64, answer: Result<T, ClientError>) -> Result<T, Trouble> {
        let is_beyond = self.size_bytes().is_some_and(|size| end_bytes > size);
        match answer {
            Err(ClientError::Refused { .. }) if is_beyond => Err(Trouble::Beyond),
            Ok(_) if is_beyond => Err(Trouble::Wrong(format!("bytes up to {end_bytes} are beyond the export's end"))),
            answer => Ok(answer?),
        }
    }

    pub async fn read(&self, offset_bytes: u64, len_bytes: u32) -> Result<SharedBuf, Trouble> {
        match self {
            Self::Core(core) => {
                let read = core.volume().read(offset_bytes, len_bytes).await?;
                let sums = read.bytes.chunks(BLOCK_BYTES).map(crc32c::crc32c);
                match read.block_checksums.is_empty() || sums.eq(read.block_checksums.iter().copied()) {
                    true => Ok(read.bytes),
                    false => Err(Trouble::Wrong(format!("the checksums at {offset_bytes} are not of these bytes"))),
                }
            }
            Self::Nvme(namespace) => Ok(namespace.read(offset_bytes, len_bytes).await?),
            Self::Nbd(client, _) => {
                self.within(offset_bytes + u64::from(len_bytes), client.read(offset_bytes, len_bytes).await)
            }
        }
    }
}

impl Trouble {
    /// Whether the client goes on where it is.
    pub fn may_go_on(&self) -> bool {
        matches!(self, Self::NoSpace | Self::Beyond | Self::Damaged(_) | Self::Waits(_))
    }
}

impl From<IoError> for Trouble {
    fn from(error: IoError) -> Self {
        match error {
            IoError::NoSpace(_) => Self::NoSpace,
            IoError::OutOfRange { .. } => Self::Beyond,
            IoError::Damaged(_) => Self::Damaged(error.to_string()),
            IoError::Gone(_) => Self::Gone(error.to_string()),
            IoError::CompareFailed(_) => Self::Wrong(error.to_string()),
            IoError::Stopped(_) => Self::Waits(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<HostError> for Trouble {
    fn from(error: HostError) -> Self {
        use nvme::wire::Status;
        match error {
            HostError::Connection(_) => Self::Lost,
            HostError::Status(status) if status.code() == Status::CAPACITY_EXCEEDED.code() => Self::NoSpace,
            HostError::Status(status) if status.code() == Status::LBA_OUT_OF_RANGE.code() => Self::Beyond,
            HostError::Status(status) if status.code() == Status::INVALID_NAMESPACE.code() => {
                Self::Gone(error.to_string())
            }
            HostError::Status(status) if status.code() == Status::ANA_INACCESSIBLE.code() => {
                Self::Waits(error.to_string())
            }
            HostError::Status(status) if status.code() == Status::UNRECOVERED_READ.code() => {
                Self::Damaged(error.to_string())
            }
            HostError::Status(_) | HostError::NotReady(_) | HostError::Unsupported(_) => {
                Self::Failed(error.to_string())
            }
            _ => Self::Wrong(error.to_string()),
        }
    }
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        const NO_SPACE: u32 = nbd::wire::Errno::NoSpace as u32;
        const SHUTDOWN: u32 = nbd::wire::Errno::Shutdown as u32;
        match error {
            ClientError::Lost(_) => Self::Lost,
            ClientError::Refused { number: NO_SPACE, .. } => Self::NoSpace,
            ClientError::Refused { number: SHUTDOWN, .. } => Self::Gone(error.to_string()),
            ClientError::Refused { .. } | ClientError::Option { .. } => Self::Failed(error.to_string()),
            ClientError::Protocol(_) => Self::Wrong(error.to_string()),
        }
    }
}

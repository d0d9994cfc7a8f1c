//! I/O on a namespace, wherever it is served.

use super::super::HostError;
use super::Multipath;
use crate::wire::Status;
use runtime::SharedBuf;

/// A namespace of a subsystem with several paths. Clones share its host.
#[derive(Clone)]
pub struct Namespace {
    host: Multipath,
    nsid: u32,
}

impl Namespace {
    pub(super) fn new(host: Multipath, nsid: u32) -> Self {
        Self { host, nsid }
    }

    /// Its id.
    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// See [`Multipath::command`].
    pub async fn command<T, F: Future<Output = Result<T, HostError>>>(
        &self,
        send: impl FnMut(super::super::Namespace) -> F,
    ) -> Result<T, HostError> {
        self.host.command(self.nsid, send).await
    }

    /// Its size, as the path says that it is used through.
    pub async fn size_bytes(&self) -> Result<u64, HostError> {
        self.command(|namespace| async move { Ok(namespace.size_bytes()) }).await
    }

    /// Reads.
    pub async fn read(&self, offset_bytes: u64, len_bytes: u32) -> Result<SharedBuf, HostError> {
        self.command(|namespace| async move { namespace.read(offset_bytes, len_bytes).await }).await
    }

    /// Writes.
    pub async fn write(&self, offset_bytes: u64, data: SharedBuf) -> Result<(), HostError> {
        self.command(|namespace| {
            let data = data.clone();
            async move { namespace.write(offset_bytes, data).await }
        })
        .await
    }

    /// Makes the range read as zeroes, and gives the space back if `deallocate`.
    pub async fn write_zeroes(&self, offset_bytes: u64, len_bytes: u64, deallocate: bool) -> Result<(), HostError> {
        self.command(|namespace| async move { namespace.write_zeroes(offset_bytes, len_bytes, deallocate).await }).await
    }

    /// Tells that this range holds nothing of value.
    pub async fn deallocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), HostError> {
        self.command(|namespace| async move { namespace.deallocate(&[(offset_bytes, len_bytes)]).await }).await
    }

    /// Writes if the range holds `expected`, as one; whether it did. After an attempt without an answer a difference may
    /// be the host's own doing, as with any host that sends again.
    pub async fn compare_and_write(
        &self,
        offset_bytes: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> Result<bool, HostError> {
        self.command(|namespace| {
            let (expected, data) = (expected.clone(), data.clone());
            async move { compare_and_write(&namespace, offset_bytes, expected, data).await }
        })
        .await
    }
}

/// One attempt: whether it was written, or why nobody knows.
pub async fn compare_and_write(
    namespace: &super::super::Namespace,
    offset_bytes: u64,
    expected: SharedBuf,
    data: SharedBuf,
) -> Result<bool, HostError> {
    let is = |error: &HostError, status| error.status().map(Status::code) == Some(status);
    match namespace.compare_and_write(offset_bytes, expected, data).await? {
        (Err(error), _) if is(&error, Status::COMPARE_FAILURE) => Ok(false),
        // A half that ends because of the other says nothing of its own: that one has the reason.
        (Err(error), Err(why)) if is(&error, Status::ABORTED_FAILED_FUSED) => Err(why),
        (Err(error), _) | (_, Err(error)) => Err(error),
        (Ok(()), Ok(())) => Ok(true),
    }
}

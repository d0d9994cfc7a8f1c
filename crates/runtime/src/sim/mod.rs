//! The simulated backend: virtual time and faults from a seed.

use crate::buf::{IoBuf, SharedBuf};
use crate::core::{CoreKey, LocalFuture};
use crate::device::DeviceInfo;
use crate::time::Instant;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

#[derive(Clone, Debug)]
pub struct SimCore;
impl SimCore {
    pub(crate) fn now(&self) -> Instant {
        todo!()
    }
    pub(crate) fn random_u64(&self) -> u64 {
        todo!()
    }
    pub(crate) fn wall_clock_ns(&self) -> u64 {
        todo!()
    }
}
#[derive(Clone, Debug)]
pub struct SimCoreHandle;
impl SimCoreHandle {
    pub(crate) fn spawn_boxed(&self, _make: Box<dyn FnOnce() -> LocalFuture + Send>) {
        todo!()
    }
    pub(crate) fn key(&self) -> CoreKey {
        todo!()
    }
}
#[derive(Clone, Debug)]
pub struct SimDevice;
impl SimDevice {
    pub(crate) async fn open(_core: &SimCore, _path: &Path) -> io::Result<Self> {
        todo!()
    }
    pub(crate) fn info(&self) -> &DeviceInfo {
        todo!()
    }
    pub(crate) async fn read(&self, _offset_bytes: u64, _buf: IoBuf) -> (io::Result<()>, IoBuf) {
        todo!()
    }
    pub(crate) async fn write(&self, _offset_bytes: u64, _parts: &mut Vec<SharedBuf>) -> io::Result<()> {
        todo!()
    }
    pub(crate) async fn sync(&self) -> io::Result<()> {
        todo!()
    }
    pub(crate) async fn discard(&self, _offset_bytes: u64, _len_bytes: u64) -> io::Result<()> {
        todo!()
    }
}
#[derive(Debug)]
pub struct SimListener;
impl SimListener {
    pub(crate) fn bind(_core: &SimCore, _address: SocketAddr) -> io::Result<Self> {
        todo!()
    }
    pub(crate) fn local_address(&self) -> SocketAddr {
        todo!()
    }
    pub(crate) async fn accept(&self) -> io::Result<SimStream> {
        todo!()
    }
}
#[derive(Clone, Debug)]
pub struct SimStream;
impl SimStream {
    pub(crate) async fn connect(_core: &SimCore, _address: SocketAddr) -> io::Result<Self> {
        todo!()
    }
    pub(crate) fn peer_address(&self) -> SocketAddr {
        todo!()
    }
    pub(crate) fn local_address(&self) -> SocketAddr {
        todo!()
    }
    pub(crate) async fn recv(&self) -> io::Result<SharedBuf> {
        todo!()
    }
    pub(crate) async fn recv_exact(&self, _buf: IoBuf) -> (io::Result<()>, IoBuf) {
        todo!()
    }
    pub(crate) async fn send(&self, _parts: &mut Vec<SharedBuf>) -> io::Result<()> {
        todo!()
    }
    pub(crate) fn has_ended(&self) -> bool {
        todo!()
    }
    pub(crate) fn shutdown(&self) {
        todo!()
    }
    pub(crate) fn detach(self) -> SimDetached {
        todo!()
    }
}
#[derive(Debug)]
pub struct SimDetached;
impl SimDetached {
    pub(crate) fn attach(self) -> SimStream {
        todo!()
    }
}

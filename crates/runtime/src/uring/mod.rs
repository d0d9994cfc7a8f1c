//! The kernel's backend: one ring and one reactor per core.

use crate::buf::{IoBuf, SharedBuf};
use crate::core::{CoreKey, LocalFuture};
use crate::device::DeviceInfo;
use crate::time::Instant;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

#[derive(Clone, Debug)]
pub struct Reactor;
impl Reactor {
    pub(crate) fn now(&self) -> Instant {
        todo!()
    }
}
#[derive(Clone, Debug)]
pub struct UringCoreHandle;
impl UringCoreHandle {
    pub(crate) fn spawn_boxed(&self, _make: Box<dyn FnOnce() -> LocalFuture + Send>) {
        todo!()
    }
    pub(crate) fn key(&self) -> CoreKey {
        todo!()
    }
}
#[derive(Clone, Debug)]
pub struct UringDevice;
impl UringDevice {
    pub(crate) async fn open(_path: &Path) -> io::Result<Self> {
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
pub struct UringListener;
impl UringListener {
    pub(crate) fn bind(_address: SocketAddr) -> io::Result<Self> {
        todo!()
    }
    pub(crate) fn local_address(&self) -> SocketAddr {
        todo!()
    }
    pub(crate) async fn accept(&self) -> io::Result<UringStream> {
        todo!()
    }
}
#[derive(Clone, Debug)]
pub struct UringStream;
impl UringStream {
    pub(crate) async fn connect(_address: SocketAddr) -> io::Result<Self> {
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
    pub(crate) fn detach(self) -> UringDetached {
        todo!()
    }
}
#[derive(Debug)]
pub struct UringDetached;
impl UringDetached {
    pub(crate) fn attach(self) -> UringStream {
        todo!()
    }
}

pub(crate) fn wake_remote(_task: crate::task::TaskKey) {
    todo!()
}
pub(crate) fn random_u64() -> u64 {
    todo!()
}
pub(crate) fn wall_clock_ns() -> u64 {
    todo!()
}

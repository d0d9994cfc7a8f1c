//! A host by hand: what the test writes is what is sent.

use crate::node::{Cluster, NQN, options};
use nvme::host::Controller;
use nvme::wire::pdu::{IcReq, PduType};
use nvme::wire::writer::PduWriter;
use nvme::wire::{Connect, ConnectData, Sgl, Sqe};
use runtime::{IoBuf, SharedBuf, TcpStream};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

pub fn bytes(of: &[u8]) -> SharedBuf {
    IoBuf::copy_of(of).freeze()
}

/// A connection without manners: what the test writes is what is sent.
#[derive(Clone)]
pub struct Raw {
    pub stream: Rc<TcpStream>,
    pub writer: Rc<RefCell<PduWriter>>,
}

impl Raw {
    /// Connected, and nothing said.
    pub async fn silent(address: SocketAddr) -> Self {
        let stream = Rc::new(TcpStream::connect(address).await.expect("connected"));
        Self { stream, writer: Rc::default() }
    }

    /// ICReq sent, ICResp read.
    pub async fn opened(address: SocketAddr) -> Self {
        let raw = Self::silent(address).await;
        raw.writer.borrow_mut().ic(PduType::IcReq, &IcReq::default());
        raw.send().await;
        raw.read(128).await;
        raw.writer.borrow_mut().open(false, false, 4);
        raw
    }

    /// I/O queue 1 of a controller.
    pub async fn queue(address: SocketAddr, controller: u16, sq_size: u16) -> Self {
        Self::queue_of(address, controller, (1, sq_size)).await
    }

    /// An I/O queue of a controller: its number, and how many commands it holds less one.
    pub async fn queue_of(address: SocketAddr, controller: u16, (queue, sq_size): (u16, u16)) -> Self {
        let raw = Self::opened(address).await;
        let host = options(1).host;
        let connect =
            Connect { record_format: 0, queue, sq_size, attributes: Connect::NO_FLOW_CONTROL, keep_alive_ms: 0 };
        let data =
            ConnectData { host_id: host.id, controller, subsystem: Some(NQN.into()), host: Some(host.nqn) }.encode();
        raw.writer.borrow_mut().command(&connect.encode(), Some(bytes(&data)));
        raw.send().await;
        let answer = raw.read(24).await;
        assert_eq!(answer[22..24], [0, 0], "connected");
        raw
    }

    pub async fn send(&self) {
        let written = self.writer.borrow_mut().drain_to_vec();
        self.send_bytes(&written).await;
    }

    pub async fn send_bytes(&self, written: &[u8]) {
        let _ = self.stream.send(&mut vec![bytes(written)]).await;
    }

    pub async fn read(&self, len: usize) -> Vec<u8> {
        let (result, buf) = self.stream.recv_exact(IoBuf::new(len)).await;
        result.expect("an answer");
        buf.to_vec()
    }

    /// All that still comes, until the target closes.
    pub async fn read_to_end(&self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Ok(more) = self.stream.recv().await {
            if more.is_empty() {
                break;
            }
            all.extend_from_slice(&more);
        }
        all
    }

    /// Queues a command on so many blocks of 4 KiB from the first on, its data by R2T.
    pub fn io(&self, opcode: u8, nsid: u32, command: u16, blocks: u32) {
        let mut sqe = Sqe::new(opcode, nsid);
        sqe.command = command;
        sqe.cdw[2] = blocks - 1;
        sqe.sgl = Sgl::transport(blocks << 12);
        self.writer.borrow_mut().command(&sqe, None);
    }
}

/// A controller of host 1 without I/O queues, which the test connects by hand.
pub fn bare_controller(cluster: &Cluster) -> Controller {
    let address = cluster.address();
    cluster.run(async move {
        let mut options = options(1);
        options.io_queues = 0;
        Controller::connect(address, &options).await.expect("connected")
    })
}

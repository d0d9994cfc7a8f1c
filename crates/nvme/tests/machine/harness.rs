//! A target over memory: what `serve` does with sockets and volumes, done by hand.

use nvme::machine::{
    Aborting, AdminView, Admission, Change, Connection, Endpoints, Event, NamespaceInfo, NamespaceTable, Operation,
    Refusal, Registry, Subsystem, Tag, discard_ranges,
};
use nvme::wire::log::{AnaState, DiscoveryEntry, Health};
use nvme::wire::pdu::{DataHeader, IcReq, PduType, R2t, TermReq};
use nvme::wire::stream::{Data, Header, Item, PduReader, Side};
use nvme::wire::writer::PduWriter;
use nvme::wire::{
    Configuration, Connect, ConnectData, Cqe, DYNAMIC_CONTROLLER, Property, Sgl, Sqe, Status, fabrics_type, property,
};
use runtime::{IoBuf, SharedBuf};
use std::rc::Rc;

pub const NQN: &str = "nqn.2026-01.io.example:one";
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:0001";
/// Logical blocks of both namespaces: 1 is 512e, 2 is 4Kn.
pub const BLOCKS: u64 = 4096;

/// What a host received.
#[derive(Debug)]
pub enum Answer {
    Open(IcReq),
    Response(Cqe),
    Data(DataHeader, Vec<u8>),
    R2t(R2t),
    Term(TermReq),
}

/// What both ends share.
pub struct World {
    pub registry: Registry,
    pub table: NamespaceTable,
}

pub fn world() -> Rc<World> {
    let registry = Registry::new(Subsystem {
        nqn: NQN.into(),
        serial: "S1".into(),
        model: "Example".into(),
        firmware: "0.1".into(),
        controller_ids: 1..100,
        open_by_default: true,
    });
    let mut table = NamespaceTable::default();
    for (nsid, block_shift) in [(1, 9), (2, 12)] {
        let nguid = [nsid as u8; 16];
        table.set(nsid, NamespaceInfo { size_blocks: BLOCKS, block_shift, nguid, ana: AnaState::Optimized });
    }
    Rc::new(World { registry, table })
}

/// One connection: the target's machine, the host's reader and writer, and the memory that stands for volumes.
pub struct Host {
    pub world: Rc<World>,
    pub machine: Connection,
    pub writer: PduWriter,
    reader: PduReader,
    /// The stream is cut into pieces of this size.
    pub step: usize,
    /// Data is put straight into the buffers that the machine lends, as `serve` does.
    pub direct: bool,
    /// Volumes by NSID less one.
    pub volumes: [Vec<u8>; 2],
    /// Commands are kept here instead of being executed, when set.
    pub hold: bool,
    pub held: Vec<(Tag, u32, Operation)>,
    pub wanted: Vec<(Tag, u32)>,
    pub hold_grants: bool,
    pub changes: Vec<Change>,
    /// Aborts are kept among the changes instead of being tried here.
    pub hold_changes: bool,
    pub terminated: bool,
    next_command: u16,
}

#[derive(Clone, Copy)]
pub struct Digests(pub bool, pub bool);

impl Host {
    pub fn new(world: &Rc<World>) -> Self {
        Self {
            world: world.clone(),
            machine: Connection::new(),
            writer: PduWriter::new(),
            reader: PduReader::new(Side::Host, 4 << 20),
            step: usize::MAX,
            direct: false,
            volumes: [vec![0; (BLOCKS as usize) << 9], vec![0; (BLOCKS as usize) << 12]],
            hold: false,
            held: Vec::new(),
            wanted: Vec::new(),
            hold_grants: false,
            changes: Vec::new(),
            hold_changes: false,
            terminated: false,
            next_command: 0,
        }
    }

    /// A host that has exchanged ICReq and ICResp.
    pub fn opened(world: &Rc<World>, digests: Digests, step: usize) -> Self {
        Self::opened_aligned(world, digests, step, 4, 4)
    }

    /// One that asks for data at multiples of `wants` bytes, and pads its own to multiples of `pads`.
    pub fn opened_aligned(world: &Rc<World>, digests: Digests, step: usize, wants: usize, pads: usize) -> Self {
        let mut host = Self::new(world);
        host.step = step;
        let data_alignment = (wants / 4 - 1) as u8;
        let icreq = IcReq { pfv: 0, data_alignment, header_digest: digests.0, data_digest: digests.1, limit: 0 };
        host.writer.ic(PduType::IcReq, &icreq);
        let answers = host.exchange();
        let [Answer::Open(icresp)] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((icresp.header_digest, icresp.data_digest), (digests.0, digests.1));
        assert_eq!(icresp.limit, nvme::limits::MAX_TRANSFER_BYTES);
        host.writer.open(digests.0, digests.1, pads);
        host.reader.open(digests.0, digests.1, wants);
        host
    }

    /// A host whose admin queue is connected and whose controller is enabled.
    pub fn admin(world: &Rc<World>, digests: Digests, step: usize) -> (Self, u16) {
        let mut host = Self::opened(world, digests, step);
        let cqe = host.connect(0, 31, DYNAMIC_CONTROLLER, 0);
        assert!(cqe.status.is_success(), "{}", cqe.status);
        host.enable();
        (host, cqe.result as u16)
    }

    /// An I/O queue of that controller.
    pub fn io(world: &Rc<World>, controller: u16, queue: u16, digests: Digests, step: usize) -> Self {
        let mut host = Self::opened(world, digests, step);
        let cqe = host.connect(queue, 15, controller, Connect::NO_FLOW_CONTROL);
        assert!(cqe.status.is_success(), "{}", cqe.status);
        host
    }

    pub fn connect(&mut self, queue: u16, sq_size: u16, controller: u16, attributes: u8) -> Cqe {
        let connect = Connect { record_format: 0, queue, sq_size, attributes, keep_alive_ms: 5000 };
        self.connect_with(&connect, controller, NQN)
    }

    pub fn connect_with(&mut self, connect: &Connect, controller: u16, subsystem: &str) -> Cqe {
        let data =
            ConnectData { host_id: [1; 16], controller, subsystem: Some(subsystem.into()), host: Some(HOST.into()) };
        self.command(connect.encode(), Some(&data.encode()))
    }

    pub fn enable(&mut self) {
        let set = Property {
            size_bytes: Some(4),
            offset: property::CONFIGURATION,
            value: u64::from(Configuration::ENABLE.0),
        };
        assert!(self.command(set.encode(fabrics_type::PROPERTY_SET), None).status.is_success());
        assert_eq!(self.property(property::STATUS, 4) & 1, 1);
    }

    pub fn property(&mut self, offset: u32, size: u8) -> u64 {
        let get = Property { size_bytes: Some(size), offset, value: 0 };
        let cqe = self.command(get.encode(fabrics_type::PROPERTY_GET), None);
        assert!(cqe.status.is_success(), "{}", cqe.status);
        cqe.result
    }

    /// Queues a command with data in the capsule; returns its id.
    pub fn queue_command(&mut self, mut sqe: Sqe, data: Option<&[u8]>) -> u16 {
        self.next_command += 1;
        sqe.command = self.next_command;
        if let Some(data) = data {
            sqe.sgl = Sgl::in_capsule(data.len() as u32);
        }
        self.writer.command(&sqe, data.map(shared));
        sqe.command
    }

    /// Sends a command and returns its completion, the only answer.
    pub fn command(&mut self, sqe: Sqe, data: Option<&[u8]>) -> Cqe {
        let command = self.queue_command(sqe, data);
        let answers = self.exchange();
        match &answers[..] {
            [Answer::Response(cqe)] if cqe.command == command => *cqe,
            other => panic!("not one completion: {other:?}"),
        }
    }

    /// Sends a command that reads, and returns its data or status. Data says SUCCESS or is followed by a completion.
    pub fn read_command(&mut self, sqe: Sqe) -> Result<Vec<u8>, Status> {
        self.queue_command(sqe, None);
        let mut answers = self.exchange().into_iter();
        match (answers.next(), answers.next(), answers.next()) {
            (Some(Answer::Data(_, bytes)), Some(Answer::Response(cqe)), None) if cqe.status.is_success() => Ok(bytes),
            (Some(Answer::Data(header, bytes)), None, None) if header.flags & nvme::wire::pdu::flag::SUCCESS != 0 => {
                Ok(bytes)
            }
            (Some(Answer::Response(cqe)), None, None) => Err(cqe.status.code()),
            other => panic!("{other:?}"),
        }
    }

    /// Sends what is queued, runs the target, and returns what it answers.
    pub fn exchange(&mut self) -> Vec<Answer> {
        let bytes = self.writer.drain_to_vec();
        self.send(&bytes)
    }

    /// Sends these bytes, runs the target, and returns what it answers.
    pub fn send(&mut self, bytes: &[u8]) -> Vec<Answer> {
        let mut at = 0;
        while at < bytes.len() && !self.terminated {
            let direct = if self.direct { self.machine.take_direct() } else { None };
            if let Some(mut buf) = direct {
                let len = buf.len();
                buf.copy_from_slice(&bytes[at..at + len]);
                self.machine.give_direct(buf);
                at += len;
            } else {
                let end = bytes.len().min(at.saturating_add(self.step));
                self.machine.feed(shared(&bytes[at..end]));
                at = end;
            }
            self.run();
        }
        self.answers()
    }

    fn run(&mut self) {
        while let Some(event) = self.machine.next(&self.world.table) {
            match event {
                Event::Connect(request) => {
                    let endpoints = Endpoints { host: [127, 0, 0, 1].into(), target: ([127, 0, 0, 1], 4420).into() };
                    let verdict: Result<Admission, Refusal> =
                        self.world.registry.admit(&request.connect, &request.data, endpoints, false, 0);
                    match verdict {
                        Ok(admission) => self.machine.accept(&request, &admission),
                        Err(refusal) => self.machine.refuse(&request, refusal),
                    }
                }
                Event::Admin(request) => {
                    let entry = DiscoveryEntry {
                        ipv6: false,
                        is_discovery: false,
                        port_id: 1,
                        admin_queue_size: 32,
                        service: "4420".into(),
                        subsystem: NQN.into(),
                        address: "127.0.0.1".into(),
                    };
                    let world = self.world.clone();
                    let view = AdminView {
                        registry: &world.registry,
                        namespaces: &world.table,
                        ana_change_count: 0,
                        health: Health { spare_percent: 100, ..Health::default() },
                        discovery: &[entry],
                        discovery_generation: 7,
                        now_ns: 0,
                    };
                    match self.machine.execute_admin(&request, &view) {
                        // `serve` asks the queue that is named: here there is none but this one.
                        Some(Change::Abort { tag, queue, command }) if !self.hold_changes => {
                            let aborted = queue == 0 && self.machine.abort(command) == Aborting::Aborted;
                            self.machine.complete_abort(tag, aborted);
                        }
                        change => self.changes.extend(change),
                    }
                }
                Event::Io(request) if self.hold => self.held.push((request.tag, request.nsid, request.operation)),
                Event::Io(request) => self.execute(request.tag, request.nsid, request.operation),
                Event::WantsData(tag, len) if self.hold_grants => self.wanted.push((tag, len)),
                Event::WantsData(tag, _) => self.machine.grant(tag),
                Event::Terminated => self.terminated = true,
            }
        }
    }

    /// What a volume would do.
    pub fn execute(&mut self, tag: Tag, nsid: u32, operation: Operation) {
        if matches!(operation, Operation::Flush | Operation::Nothing) {
            self.machine.complete(tag, Status::SUCCESS, 0);
            return;
        }
        let volume = &mut self.volumes[nsid as usize - 1];
        let mut status = Status::SUCCESS;
        match operation {
            Operation::Read { offset_bytes, len_bytes } => {
                let bytes = &volume[offset_bytes as usize..][..len_bytes as usize];
                let sums: Vec<u32> = match bytes.len() % 4096 {
                    0 => bytes.chunks(4096).map(nvme::wire::digest::crc32c).collect(),
                    _ => Vec::new(),
                };
                self.machine.complete_read(tag, shared(bytes), &sums);
                return;
            }
            Operation::Write { offset_bytes, data } => {
                volume[offset_bytes as usize..][..data.len()].copy_from_slice(&data);
            }
            Operation::Compare { offset_bytes, data } => {
                if volume[offset_bytes as usize..][..data.len()] != data[..] {
                    status = Status::COMPARE_FAILURE.do_not_retry();
                }
            }
            Operation::CompareAndWrite { offset_bytes, expected, data } => {
                let held = &mut volume[offset_bytes as usize..][..data.len()];
                if held == &expected[..] {
                    held.copy_from_slice(&data);
                } else {
                    status = Status::COMPARE_FAILURE.do_not_retry();
                }
            }
            Operation::WriteZeroes { offset_bytes, len_bytes, .. } => {
                volume[offset_bytes as usize..][..len_bytes as usize].fill(0);
            }
            Operation::Deallocate { ranges, block_shift } => {
                for (offset, len) in discard_ranges(&ranges, block_shift) {
                    volume[offset as usize..][..len as usize].fill(0);
                }
            }
            Operation::Flush | Operation::Nothing => unreachable!("answered above"),
        }
        self.machine.complete(tag, status, 0);
    }

    /// What the target has sent since the last call.
    pub fn answers(&mut self) -> Vec<Answer> {
        let mut parts = Vec::new();
        self.machine.drain(&mut parts, usize::MAX);
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let mut answers = Vec::new();
        let mut header = None;
        for chunk in bytes.chunks(1 << 20) {
            self.reader.feed(shared(chunk));
            while let Some(item) = self.reader.next().expect("the target keeps the protocol") {
                match item {
                    Item::Header(Header::Open(icresp)) => answers.push(Answer::Open(icresp)),
                    Item::Header(Header::Response(cqe)) => answers.push(Answer::Response(cqe)),
                    Item::Header(Header::R2t(r2t)) => answers.push(Answer::R2t(r2t)),
                    Item::Header(Header::Terminate(term)) => {
                        answers.push(Answer::Term(term));
                        return answers;
                    }
                    Item::Header(Header::Data(data)) => header = Some(data),
                    Item::Header(other) => panic!("{other:?}"),
                    Item::Data { data: Data::Gathered(bytes), intact: true } => {
                        answers.push(Answer::Data(header.take().expect("a header came first"), bytes.to_vec()));
                    }
                    Item::Data { .. } => panic!("the target's data digest is wrong"),
                }
            }
        }
        answers
    }
}

pub fn shared(bytes: &[u8]) -> SharedBuf {
    // One piece of memory holds at most 4 MiB.
    IoBuf::copy_of(bytes).freeze()
}

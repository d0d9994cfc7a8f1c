//! One connection, that is one queue: from the first byte to the last.

use super::admin::{self, AdminView, Outcome};
use super::controller::Controller;
use super::io::{IoPlan, Operation, Verb};
use super::namespaces::NamespaceTable;
use super::registry::{Admission, ControllerHandle, Refusal};
use super::slots::{Fused, Plan, Slots, Stage, Tag};
use crate::limits;
use crate::wire::identify::cns;
use crate::wire::pdu::{DataHeader, FatalError, IcReq, PduType, R2t, TermReq};
use crate::wire::stream::{Data, Header, Item, PduReader, Side};
use crate::wire::writer::PduWriter;
use crate::wire::{AsyncEvent, Connect, ConnectData, Cqe, Sqe, Status, array_at, digest};
use runtime::{IoBuf, SharedBuf};
use std::fmt;
use std::sync::Arc;
use types::BLOCK_BYTES;

/// A Connect to be judged. Nothing more is read before [`Connection::accept`] or [`Connection::refuse`].
#[derive(Clone, Debug)]
pub struct ConnectRequest {
    tag: Tag,
    /// The command.
    pub connect: Connect,
    /// Its data.
    pub data: ConnectData,
}

/// An admin command to be executed with [`Connection::execute_admin`].
#[derive(Debug)]
pub struct AdminRequest {
    tag: Tag,
    sqe: Sqe,
    data: Option<SharedBuf>,
}

impl AdminRequest {
    /// Whether it asks which namespaces there are, or where they are served.
    pub fn asks_for_namespaces(&self) -> bool {
        let selector = self.sqe.cdw[0] as u8;
        match self.sqe.opcode {
            crate::wire::admin::IDENTIFY => {
                matches!(selector, cns::ACTIVE_NAMESPACES | cns::COMMAND_SET_ACTIVE_NAMESPACES)
            }
            crate::wire::admin::GET_LOG_PAGE => selector == AsyncEvent::AnaChanged.log_page(),
            _ => false,
        }
    }
}

/// A command for a volume, to be ended with [`Connection::complete`] or [`Connection::complete_read`].
#[derive(Debug)]
pub struct IoRequest {
    /// To end it with.
    pub tag: Tag,
    /// The namespace.
    pub nsid: u32,
    /// What to do.
    pub operation: Operation,
    /// It was taken from its volume's limits: [`Connection::pay_write`].
    pub is_paid: bool,
}

/// What came out of the bytes.
#[derive(Debug)]
pub enum Event {
    /// A Connect.
    Connect(ConnectRequest),
    /// An admin command.
    Admin(AdminRequest),
    /// A command for a volume.
    Io(IoRequest),
    /// A write waits for room for so many bytes: [`Connection::grant`] asks the host for them.
    WantsData(Tag, u32),
    /// The connection is over: send what is gathered, read nothing more.
    Terminated,
}

/// What an admin command changed beyond its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The controller's I/O queues must end, on all cores; then [`Connection::queues_ended`] is called.
    EndQueues,
    /// This command of this queue should be aborted; then [`Connection::complete_abort`] is called.
    Abort {
        /// The Abort command.
        tag: Tag,
        /// The queue; 0 is the admin queue itself.
        queue: u16,
        /// The number of the command.
        command: u16,
    },
}

/// What came of the wish to abort a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aborting {
    /// It has ended as aborted.
    Aborted,
    /// It is not there, or with whoever executes it.
    NotAborted,
    /// It will end as aborted once the data has come that the host was asked for: [`Connection::is_under_way`].
    Waits(Tag),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The host broke a rule of the transport, and was told.
    Broken {
        /// Type of the PDU.
        kind: u8,
        /// Which rule.
        fatal: FatalError,
        /// FEI: the byte of the header, or the digest.
        information: u32,
    },
    /// The host ended it with a TermReq.
    ByHost(TermReq),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken { kind, fatal, information } => {
                write!(f, "PDU of type {kind:#04x}: {fatal:?}, information {information}")
            }
            Self::ByHost(TermReq { status, information }) => {
                write!(f, "the host says: fatal error {status}, information {information}")
            }
        }
    }
}

pub(super) enum Phase {
    AwaitIcReq,
    AwaitConnect,
    ConnectPending,
    Admin(Box<Controller>),
    Io(Arc<ControllerHandle>),
    Terminated,
}

/// Whose data the reader is gathering.
enum Pending {
    Nobody,
    Capsule(u16),
    Transfer(u16),
}

/// The command before was the first half of a fused pair.
pub(super) enum FirstHalf {
    /// It was not.
    No,
    /// It is in this slot and waits for its second half.
    Waits(u16),
    /// It was, and has failed already with this: so does its second half.
    Failed(Status),
}

/// See the module.
pub struct Connection {
    reader: PduReader,
    pub(super) writer: PduWriter,
    pub(super) phase: Phase,
    pub(super) slots: Slots,
    pending: Pending,
    pub(super) first_half: FirstHalf,
    ending: Option<Ending>,
    /// Abort commands under way.
    pub(super) aborts: u8,
    queue: u16,
    entries: u16,
    sq_head: u16,
    flow_control: bool,
    /// Bytes of the commands whose data was asked for and is not complete.
    receiving_bytes: usize,
}

impl Default for Connection {
    fn default() -> Self {
        Self::new()
    }
}

impl Connection {
    /// A connection before its first byte.
    pub fn new() -> Self {
        Self {
            reader: PduReader::new(Side::Controller, limits::MAX_TRANSFER_BYTES),
            writer: PduWriter::new(),
            phase: Phase::AwaitIcReq,
            slots: Slots::new(1),
            pending: Pending::Nobody,
            first_half: FirstHalf::No,
            ending: None,
            aborts: 0,
            queue: 0,
            entries: 1,
            sq_head: 0,
            flow_control: true,
            receiving_bytes: 0,
        }
    }

    /// Gives received bytes; call [`next`](Self::next) until it finds nothing before giving more.
    pub fn feed(&mut self, bytes: SharedBuf) {
        self.reader.feed(bytes);
    }

    /// Whether [`next`](Self::next) has used up all bytes.
    pub fn is_starved(&self) -> bool {
        self.reader.is_starved()
    }

    /// A buffer to be filled from the socket instead of feeding; give it back with [`give_direct`](Self::give_direct).
    pub fn take_direct(&mut self) -> Option<IoBuf> {
        self.reader.take_direct()
    }

    /// See [`take_direct`](Self::take_direct).
    pub fn give_direct(&mut self, buf: IoBuf) {
        self.reader.give_direct(buf);
    }

    /// Moves at most `max` parts of what is to be sent to `parts`; returns their bytes.
    pub fn drain(&mut self, parts: &mut Vec<SharedBuf>, max: usize) -> usize {
        self.writer.drain(parts, max)
    }

    /// Bytes that are to be sent.
    pub fn queued_bytes(&self) -> usize {
        self.writer.queued_bytes()
    }

    /// Whether data was asked for that has not come.
    pub fn awaits_data(&self) -> bool {
        self.receiving_bytes > 0
    }

    /// Bytes of the commands whose data was asked for and is not complete.
    pub fn receiving_bytes(&self) -> usize {
        self.receiving_bytes
    }

    /// Whether the connection is over.
    pub fn is_terminated(&self) -> bool {
        matches!(self.phase, Phase::Terminated)
    }

    /// Why the connection is over, if a rule was broken or the host said so.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// The controller this queue belongs to, once connected.
    pub fn controller(&self) -> Option<&Arc<ControllerHandle>> {
        match &self.phase {
            Phase::Admin(controller) => Some(controller.handle()),
            Phase::Io(handle) => Some(handle),
            _ => None,
        }
    }

    /// The queue's number, once connected.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// What the bytes say next, or `None` when more are needed or the connection waits for an answer.
    pub fn next(&mut self, namespaces: &NamespaceTable) -> Option<Event> {
        while !matches!(self.phase, Phase::Terminated | Phase::ConnectPending) {
            let event = match self.reader.next() {
                Ok(None) => return None,
                Ok(Some(Item::Header(header))) => self.on_header(header, namespaces),
                Ok(Some(Item::Data { data, intact })) => self.on_data(data, intact),
                Err(error) => Some(self.terminate(error.fatal, error.information, &error.header)),
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Ends the connection with a reason.
    fn terminate(&mut self, fatal: FatalError, information: u32, header: &[u8]) -> Event {
        let term = TermReq { status: fatal as u16, information };
        self.writer.terminate(PduType::C2hTermReq, &term, header);
        let kind = header.first().copied().unwrap_or_default();
        self.ending = Some(Ending::Broken { kind, fatal, information });
        self.phase = Phase::Terminated;
        Event::Terminated
    }

    /// As [`terminate`](Self::terminate), for the header that was read last.
    fn terminate_here(&mut self, fatal: FatalError, information: u32) -> Option<Event> {
        let header = self.reader.last_header().to_vec();
        Some(self.terminate(fatal, information, &header))
    }

    fn on_header(&mut self, header: Header, namespaces: &NamespaceTable) -> Option<Event> {
        match header {
            Header::Open(icreq) => self.on_icreq(&icreq),
            Header::Command(sqe, data_bytes) => self.on_command(sqe, data_bytes, namespaces),
            Header::Data(header) => self.on_transfer(&header),
            Header::Terminate(term) => {
                self.ending = Some(Ending::ByHost(term));
                self.phase = Phase::Terminated;
                Some(Event::Terminated)
            }
            Header::Response(_) | Header::R2t(_) => unreachable!("the reader refuses what a host may not send"),
        }
    }

    fn on_icreq(&mut self, icreq: &IcReq) -> Option<Event> {
        if icreq.pfv != 0 {
            return self.terminate_here(FatalError::UnsupportedParameter, 8);
        }
        if icreq.data_alignment > IcReq::MAX_DATA_ALIGNMENT {
            return self.terminate_here(FatalError::InvalidHeaderField, 10);
        }
        let (header, data) = (icreq.header_digest, icreq.data_digest);
        let answer = IcReq {
            pfv: 0,
            data_alignment: 0,
            header_digest: header,
            data_digest: data,
            limit: limits::MAX_TRANSFER_BYTES,
        };
        self.writer.ic(PduType::IcResp, &answer);
        self.writer.open(header, data, (usize::from(icreq.data_alignment) + 1) * 4);
        self.reader.open(header, data, 4);
        self.phase = Phase::AwaitConnect;
        None
    }

    fn on_command(&mut self, sqe: Sqe, data_bytes: u32, namespaces: &NamespaceTable) -> Option<Event> {
        let capsule_limit = match self.phase {
            Phase::Io(_) => limits::IO_CAPSULE_DATA_BYTES,
            _ => limits::ADMIN_CAPSULE_DATA_BYTES,
        };
        if data_bytes > capsule_limit {
            return self.terminate_here(FatalError::InvalidHeaderField, 4);
        }
        if self.slots.is_full() {
            return self.terminate_here(FatalError::LimitExceeded, 0);
        }
        let half = self.half_of(&sqe);
        let before = self.first_half_before(half);
        let planned = self.plan(&sqe, data_bytes, namespaces);
        match planned.and_then(|planned| self.check_pair(half, &before, planned)) {
            Err(status) => {
                if data_bytes > 0 {
                    self.reader.discard();
                    self.pending = Pending::Nobody;
                }
                self.half_refused(half, &before, status);
                self.answer(sqe.command, sqe.nsid, status, 0);
                None
            }
            Ok((plan, needs)) if data_bytes > 0 => {
                let slot = self.slots.take(sqe.command, Stage::InCapsule, plan).expect("is not full");
                self.slots.get_mut(slot).len_bytes = needs;
                self.pair(half, &before, slot);
                self.pending = Pending::Capsule(slot);
                None
            }
            Ok((plan, 0)) => {
                let slot = self.slots.take(sqe.command, Stage::Executing, plan).expect("is not full");
                Some(self.dispatch(slot, None))
            }
            Ok((plan, needs)) => {
                let slot = self.slots.take(sqe.command, Stage::AwaitsGrant, plan).expect("is not full");
                self.slots.get_mut(slot).len_bytes = needs;
                self.pair(half, &before, slot);
                Some(Event::WantsData(self.slots.tag(slot), needs))
            }
        }
    }

    /// A write that waits until its data is asked for: its namespace and length. It is taken from its volume's limits
    /// now, and says so when its data has come. `None`: something else, to be taken from them then.
    pub fn pay_write(&mut self, tag: Tag) -> Option<(u32, u32)> {
        let slot = self.slots.find(tag).filter(|slot| slot.stage == Stage::AwaitsGrant && slot.fused == Fused::No)?;
        let Some(Plan::Io(IoPlan { nsid, verb: Verb::Write, len_bytes, .. })) = slot.plan else { return None };
        self.slots.get_mut(tag.slot).is_paid = true;
        Some((nsid, len_bytes))
    }

    /// There is room for the command's data: asks the host for it, into a buffer of its own. Nothing is asked for a
    /// command that has ended meanwhile.
    pub fn grant(&mut self, tag: Tag) {
        if self.is_terminated() || self.slots.find(tag).is_none_or(|slot| slot.stage != Stage::AwaitsGrant) {
            return;
        }
        let slot = self.slots.get_mut(tag.slot);
        slot.stage = Stage::Receiving;
        slot.rest = Some(IoBuf::new(slot.len_bytes as usize));
        let r2t = R2t { command: slot.command, transfer_tag: tag.slot, offset_bytes: 0, len_bytes: slot.len_bytes };
        self.receiving_bytes += r2t.len_bytes as usize;
        self.writer.r2t(&r2t);
    }

    /// Data that an R2T asked for: of a command that waits for it, and exactly what comes next.
    fn on_transfer(&mut self, header: &DataHeader) -> Option<Event> {
        let Some(slot) = self.slots.get(header.transfer_tag).filter(|slot| slot.stage == Stage::Receiving) else {
            return self.terminate_here(FatalError::InvalidHeaderField, 10);
        };
        if slot.command != header.command {
            return self.terminate_here(FatalError::InvalidHeaderField, 8);
        }
        let received = slot.received_bytes();
        if header.offset_bytes != received {
            return self.terminate_here(FatalError::DataOutOfRange, 12);
        }
        if header.len_bytes == 0 || header.len_bytes > slot.len_bytes - received {
            return self.terminate_here(FatalError::DataOutOfRange, 16);
        }
        let slot = self.slots.get_mut(header.transfer_tag);
        let mut part = slot.rest.take().expect("granted, and not all received");
        slot.rest = Some(part.split_off(header.len_bytes as usize));
        self.reader.place(part);
        self.pending = Pending::Transfer(header.transfer_tag);
        None
    }

    fn on_data(&mut self, data: Data, intact: bool) -> Option<Event> {
        match (std::mem::replace(&mut self.pending, Pending::Nobody), data) {
            (Pending::Capsule(slot), Data::Gathered(bytes)) => {
                let needs = self.slots.get_mut(slot).len_bytes as usize;
                self.data_complete(slot, bytes.slice(0..needs), intact)
            }
            (Pending::Transfer(index), Data::Placed(part)) => {
                let slot = self.slots.get_mut(index);
                slot.intact &= intact;
                match &mut slot.received {
                    Some(received) => received.unsplit(part),
                    None => slot.received = Some(part),
                }
                if slot.received_bytes() < slot.len_bytes {
                    return None;
                }
                slot.rest = None;
                self.receiving_bytes -= slot.len_bytes as usize;
                let (received, intact) = (slot.received.take().expect("received"), slot.intact);
                self.data_complete(index, received.freeze(), intact)
            }
            _ => None,
        }
    }

    /// A broken payload ends its command alone, and the host may try again (NVMe/TCP §3.3.1.1).
    fn data_complete(&mut self, index: u16, bytes: SharedBuf, intact: bool) -> Option<Event> {
        let slot = self.slots.get_mut(index);
        if let Some(status) = slot.doom {
            self.end(index, status, 0);
            return None;
        }
        if !intact {
            self.let_partner_fail(index, Status::TRANSIENT_TRANSPORT);
            self.end(index, Status::TRANSIENT_TRANSPORT, 0);
            return None;
        }
        if slot.fused != Fused::No {
            slot.stage = Stage::Ready;
            // A copy: it may wait long for the other half, and would keep a whole receive buffer of the core.
            slot.data = Some(IoBuf::copy_of(&bytes).freeze());
            return self.dispatch_pair(index);
        }
        slot.stage = Stage::Executing;
        Some(self.dispatch(index, Some(bytes)))
    }

    fn dispatch(&mut self, index: u16, data: Option<SharedBuf>) -> Event {
        let tag = self.slots.tag(index);
        let plan = self.slots.get_mut(index).plan.take().expect("a command has a plan until it is dispatched");
        let plan = match plan {
            Plan::Connect(sqe) => {
                self.phase = Phase::ConnectPending;
                let bytes = data.expect("Connect has data");
                let data = ConnectData::decode(&array_at(&bytes, 0));
                return Event::Connect(ConnectRequest { tag, connect: Connect::decode(&sqe), data });
            }
            Plan::Admin(sqe) => return Event::Admin(AdminRequest { tag, sqe, data }),
            Plan::Io(plan) => plan,
        };
        let (offset_bytes, len_bytes) = (plan.offset_bytes, plan.len_bytes);
        let operation = match (plan.verb, data) {
            (Verb::Read, _) => Operation::Read { offset_bytes, len_bytes },
            (Verb::Write, Some(data)) => Operation::Write { offset_bytes, data },
            (Verb::Compare, Some(data)) => Operation::Compare { offset_bytes, data },
            (Verb::WriteZeroes { deallocate }, _) => Operation::WriteZeroes { offset_bytes, len_bytes, deallocate },
            (Verb::Flush, _) => Operation::Flush,
            (Verb::Deallocate { .. }, Some(ranges)) => Operation::Deallocate { ranges, block_shift: plan.block_shift },
            (Verb::Nothing, _) => Operation::Nothing,
            (Verb::Write | Verb::Compare | Verb::Deallocate { .. }, None) => unreachable!("these have data"),
        };
        let is_paid = self.slots.get_mut(index).is_paid;
        Event::Io(IoRequest { tag, nsid: plan.nsid, operation, is_paid })
    }

    /// Answers a Connect with yes: the connection is a queue of the admitted controller.
    pub fn accept(&mut self, request: &ConnectRequest, admission: &Admission) {
        assert!(matches!(self.phase, Phase::ConnectPending));
        let handle = admission.controller.clone();
        self.queue = admission.queue;
        self.entries = admission.entries;
        self.flow_control = !admission.no_flow_control;
        self.slots.resize(admission.entries);
        let id = handle.id;
        self.phase = match admission.queue {
            0 => Phase::Admin(Box::new(Controller::new(handle))),
            _ => Phase::Io(handle),
        };
        if admission.no_flow_control {
            // How the host is told that it was switched off (NVMe over Fabrics 1.1 §3.3); reserved from then on.
            self.sq_head = u16::MAX;
        }
        self.complete(request.tag, Status::SUCCESS, u64::from(id.0));
        if admission.no_flow_control {
            self.sq_head = 0;
        }
    }

    /// Answers a Connect with no.
    pub fn refuse(&mut self, request: &ConnectRequest, refusal: Refusal) {
        assert!(matches!(self.phase, Phase::ConnectPending));
        self.phase = Phase::AwaitConnect;
        self.complete(request.tag, refusal.status, refusal.result);
    }

    /// Executes an admin command.
    pub fn execute_admin(&mut self, request: &AdminRequest, view: &AdminView<'_>) -> Option<Change> {
        let Phase::Admin(controller) = &mut self.phase else { return None };
        let data = request.data.as_deref().unwrap_or(&[]);
        match admin::execute(controller, request.tag.slot, &request.sqe, data, view) {
            Ok(Outcome::Done(result)) => self.complete(request.tag, Status::SUCCESS, result),
            Ok(Outcome::Data(bytes, result)) => {
                let len = bytes.len().min(request.sqe.sgl.len_bytes as usize);
                if len == 0 {
                    self.complete(request.tag, Status::DATA_SGL_LENGTH_INVALID.do_not_retry(), 0);
                    return None;
                }
                self.complete_with_data(request.tag, IoBuf::copy_of(&bytes[..len]).freeze(), None, result);
            }
            Ok(Outcome::Parked) => self.slots.get_mut(request.tag.slot).stage = Stage::Parked,
            Ok(Outcome::Abort { queue, command }) => return self.begin_abort(request.tag, queue, command),
            Ok(Outcome::EndQueues) => {
                self.complete(request.tag, Status::SUCCESS, 0);
                return Some(Change::EndQueues);
            }
            Err(status) => {
                controller.note_error(self.slots.get_mut(request.tag.slot).command, request.sqe.nsid, status);
                self.complete(request.tag, status, 0);
            }
        }
        None
    }

    /// The I/O queues that [`Change::EndQueues`] asked to end have ended.
    pub fn queues_ended(&mut self, now_ns: u64) {
        if let Phase::Admin(controller) = &mut self.phase {
            controller.queues_ended(now_ns);
        }
    }

    /// The controller cannot go on: what [`Change::EndQueues`] asked for was not done in time, or its host is silent.
    pub fn fail(&mut self) {
        if let Phase::Admin(controller) = &mut self.phase {
            controller.fail();
        }
    }

    /// When the host shut the controller down, on the node's clock.
    pub fn shut_down_at_ns(&self) -> Option<u64> {
        match &self.phase {
            Phase::Admin(controller) => controller.shut_down_at_ns(),
            _ => None,
        }
    }

    /// These namespaces came, went or changed: the host is told if it asked for that.
    pub fn namespaces_changed(&mut self, nsids: impl Iterator<Item = u32>) {
        if let Phase::Admin(controller) = &mut self.phase
            && controller.note_changed_namespaces(nsids)
        {
            self.raise(AsyncEvent::NamespaceChanged);
        }
    }

    /// Tells the host of an event if it asked for that.
    pub fn raise(&mut self, event: AsyncEvent) {
        let Phase::Admin(controller) = &mut self.phase else { return };
        controller.raise(event);
        if let Some((slot, event)) = controller.next_event() {
            self.end(slot, Status::SUCCESS, u64::from(event as u32));
        }
    }

    /// Ends a command without data; of a fused pair both halves: one that failed has not been written.
    pub fn complete(&mut self, tag: Tag, status: Status, result: u64) {
        match self.slots.get_mut(tag.slot).fused {
            Fused::With(_) if !status.is_success() => {
                self.complete_fused(tag, status, status.of_other_half());
            }
            Fused::With(_) => self.complete_fused(tag, status, status),
            _ => self.end(tag.slot, status, result),
        }
    }

    /// Ends the command in the slot.
    pub(super) fn end(&mut self, slot: u16, status: Status, result: u64) {
        let command = self.slots.release(slot);
        self.respond(command, status, result);
    }

    /// Ends a read. `block_checksums`: the crc32c of each 4 KiB of `bytes`, or nothing.
    pub fn complete_read(&mut self, tag: Tag, bytes: SharedBuf, block_checksums: &[u32]) {
        let known = self.writer.has_data_digest() && block_checksums.len() * BLOCK_BYTES == bytes.len();
        let digest = if known { digest::combine_blocks(block_checksums) } else { None };
        self.complete_with_data(tag, bytes, digest, 0);
    }

    /// Without SQ flow control a result of zero needs no completion: the data PDU says SUCCESS.
    fn complete_with_data(&mut self, tag: Tag, bytes: SharedBuf, digest: Option<u32>, result: u64) {
        let command = self.slots.release(tag.slot);
        if self.is_terminated() {
            return;
        }
        let no_completion = !self.flow_control && result == 0;
        self.writer.c2h_data(command, 0, bytes, true, no_completion, digest);
        if !no_completion {
            self.respond(command, Status::SUCCESS, result);
        }
    }

    /// Answers a command that never got a slot.
    fn answer(&mut self, command: u16, nsid: u32, status: Status, result: u64) {
        if let Phase::Admin(controller) = &mut self.phase {
            controller.note_error(command, nsid, status);
        }
        self.respond(command, status, result);
    }

    /// Nothing follows a TermReq.
    fn respond(&mut self, command: u16, status: Status, result: u64) {
        if self.is_terminated() {
            return;
        }
        if self.flow_control {
            self.sq_head = (self.sq_head + 1) % self.entries;
        }
        self.writer.response(&Cqe { result, sq_head: self.sq_head, command, status });
    }
}

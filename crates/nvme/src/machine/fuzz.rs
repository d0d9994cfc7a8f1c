//! Entry points for fuzzers, with stable names: a host that says anything to a whole target.

use super::{
    Aborting, AdminView, Change, Connection, Endpoints, Event, IoRequest, NamespaceInfo, NamespaceTable, Operation,
    Registry, Subsystem, Tag, discard_ranges,
};
use crate::wire::log::{AnaState, Health};
use crate::wire::pdu::{IcReq, PduType};
use crate::wire::writer::PduWriter;
use crate::wire::{Configuration, Connect, ConnectData, DYNAMIC_CONTROLLER, Property, Status, fabrics_type, property};
use runtime::IoBuf;
use std::collections::VecDeque;

const NQN: &str = "nqn.2026-01.io.example:fuzz";

fn registry() -> Registry {
    Registry::new(Subsystem {
        nqn: NQN.into(),
        serial: "1".into(),
        model: "m".into(),
        firmware: "1".into(),
        controller_ids: 1..9,
        open_by_default: true,
    })
}

fn namespaces() -> NamespaceTable {
    let mut table = NamespaceTable::default();
    for (nsid, block_shift) in [(1, 9), (7, 12)] {
        let size_blocks = 1 << (24 - block_shift);
        table.set(nsid, NamespaceInfo { size_blocks, block_shift, nguid: [9; 16], ana: AnaState::Optimized });
    }
    table
}

/// What a good host sends until its admin queue (`queue` 0) is enabled, or an I/O queue is connected.
pub fn preamble(queue: u16, header_digest: bool, data_digest: bool) -> Vec<u8> {
    let mut writer = PduWriter::new();
    let icreq = IcReq { pfv: 0, data_alignment: 0, header_digest, data_digest, limit: 0 };
    writer.ic(PduType::IcReq, &icreq);
    writer.open(header_digest, data_digest, 4);
    let connect = Connect { record_format: 0, queue, sq_size: 31, attributes: 0, keep_alive_ms: 0 };
    let data = ConnectData {
        host_id: [1; 16],
        controller: if queue == 0 { DYNAMIC_CONTROLLER } else { 1 },
        subsystem: Some(NQN.into()),
        host: Some("nqn.host".into()),
    };
    let mut sqe = connect.encode();
    sqe.command = 1;
    writer.command(&sqe, Some(IoBuf::copy_of(&data.encode()).freeze()));
    if queue == 0 {
        let value = u64::from(Configuration::ENABLE.0);
        let set = Property { size_bytes: Some(4), offset: property::CONFIGURATION, value };
        writer.command(&set.encode(fabrics_type::PROPERTY_SET), None);
    }
    writer.drain_to_vec()
}

/// A host connects (digests and kind of queue by the first byte), then says the rest. Everything the machine asks for
/// is done at once. It must return, whatever the bytes, and what it is asked to do must be inside the namespace.
pub fn connection(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    let (registry, namespaces) = (registry(), namespaces());
    let (header, data) = (mode & 1 != 0, mode & 2 != 0);
    let mut admin = Connection::new();
    run(&mut admin, &preamble(0, header, data), usize::MAX, &registry, &namespaces);
    if mode & 4 != 0 {
        run(&mut admin, bytes, 1 + usize::from(mode >> 3), &registry, &namespaces);
    } else {
        let mut io = Connection::new();
        run(&mut io, &preamble(1, header, data), usize::MAX, &registry, &namespaces);
        run(&mut io, bytes, 1 + usize::from(mode >> 3) * 97, &registry, &namespaces);
    }
}

/// An I/O queue whose commands wait: for room, for their data, for their end, and are taken back meanwhile. The first byte
/// says in what steps the stream comes; the first byte of each step, what happens before it.
pub fn waiting(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    let (registry, namespaces) = (registry(), namespaces());
    let mut admin = Connection::new();
    run(&mut admin, &preamble(0, false, false), usize::MAX, &registry, &namespaces);
    let mut io = Connection::new();
    run(&mut io, &preamble(1, false, false), usize::MAX, &registry, &namespaces);
    let (mut wanted, mut executing) = (VecDeque::new(), VecDeque::new());
    for chunk in bytes.chunks(1 + usize::from(*mode)) {
        match chunk[0] & 7 {
            0 => wanted.pop_front().into_iter().for_each(|tag| io.grant(tag)),
            1 => wanted.pop_back().into_iter().for_each(|tag| io.grant(tag)),
            2 | 3 => drop(io.abort(u16::from(chunk[0] >> 3))),
            _ => executing.pop_front().into_iter().for_each(|request: IoRequest| end(&mut io, request)),
        }
        if io.is_terminated() {
            break;
        }
        io.feed(IoBuf::copy_of(chunk).freeze());
        while let Some(event) = io.next(&namespaces) {
            match event {
                Event::WantsData(tag, _) => wanted.push_back(tag),
                Event::Io(request) => executing.push_back(request),
                Event::Admin(_) | Event::Connect(_) => unreachable!("an I/O queue that is connected"),
                Event::Terminated => {}
            }
        }
    }
    // Whatever became of the connection, what was handed out comes back.
    executing.into_iter().for_each(|request| end(&mut io, request));
    io.drain(&mut Vec::new(), usize::MAX);
}

fn end(machine: &mut Connection, IoRequest { tag, operation, .. }: IoRequest) {
    match operation {
        Operation::Read { len_bytes, .. } => {
            machine.complete_read(tag, IoBuf::zeroed(len_bytes as usize).freeze(), &[])
        }
        Operation::CompareAndWrite { .. } => machine.complete_fused(tag, Status::SUCCESS, Status::CAPACITY_EXCEEDED),
        _ => machine.complete(tag, Status::SUCCESS, 0),
    }
}

/// A host that does not even begin well.
pub fn stranger(bytes: &[u8]) {
    run(&mut Connection::new(), bytes, 64, &registry(), &namespaces());
}

fn run(machine: &mut Connection, bytes: &[u8], step: usize, registry: &Registry, namespaces: &NamespaceTable) {
    let mut parts = Vec::new();
    for chunk in bytes.chunks(step.min(1 << 20)) {
        if machine.is_terminated() {
            return;
        }
        machine.feed(IoBuf::copy_of(chunk).freeze());
        while let Some(event) = machine.next(namespaces) {
            answer(machine, event, registry, namespaces);
        }
        machine.drain(&mut parts, usize::MAX);
        parts.clear();
    }
}

fn answer(machine: &mut Connection, event: Event, registry: &Registry, namespaces: &NamespaceTable) {
    match event {
        Event::Connect(request) => {
            let endpoints = Endpoints { host: [127, 0, 0, 1].into(), target: ([127, 0, 0, 1], 4420).into() };
            match registry.admit(&request.connect, &request.data, endpoints, false, 0) {
                Ok(admission) => machine.accept(&request, &admission),
                Err(refusal) => machine.refuse(&request, refusal),
            }
        }
        Event::Admin(request) => {
            let view = AdminView {
                registry,
                namespaces,
                ana_change_count: 0,
                health: Health::default(),
                discovery: &[],
                discovery_generation: 0,
                now_ns: 0,
            };
            match machine.execute_admin(&request, &view) {
                None => {}
                Some(Change::EndQueues) => machine.queues_ended(0),
                Some(Change::Abort { tag, queue, command }) => {
                    let aborted = queue == 0 && machine.abort(command) == Aborting::Aborted;
                    machine.complete_abort(tag, aborted);
                }
            }
        }
        Event::Io(request) => {
            let size = namespaces.get(request.nsid).map_or(0, |info| info.size_blocks << info.block_shift);
            execute(machine, request.tag, request.operation, size);
        }
        Event::WantsData(tag, _) => machine.grant(tag),
        Event::Terminated => {}
    }
}

fn execute(machine: &mut Connection, tag: Tag, operation: Operation, size: u64) {
    let inside = |offset: u64, len: u64| assert!(offset.checked_add(len).is_some_and(|end| end <= size));
    match operation {
        Operation::Read { offset_bytes, len_bytes } => {
            inside(offset_bytes, u64::from(len_bytes));
            machine.complete_read(tag, IoBuf::zeroed(len_bytes as usize).freeze(), &[]);
            return;
        }
        Operation::Write { offset_bytes, data } | Operation::Compare { offset_bytes, data } => {
            inside(offset_bytes, data.len() as u64);
        }
        Operation::CompareAndWrite { offset_bytes, expected, data } => {
            inside(offset_bytes, data.len() as u64);
            assert_eq!(expected.len(), data.len());
        }
        Operation::WriteZeroes { offset_bytes, len_bytes, .. } => inside(offset_bytes, u64::from(len_bytes)),
        Operation::Deallocate { ranges, block_shift } => {
            discard_ranges(&ranges, block_shift).for_each(drop);
        }
        Operation::Flush | Operation::Nothing => {}
    }
    machine.complete(tag, Status::SUCCESS, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::fuzz::mutations;
    use crate::wire::{DatasetRange, Sgl, Sqe, admin, nvm};

    /// Good conversations to start from: every command of a queue once.
    fn corpus(mode: u8) -> Vec<u8> {
        let mut writer = PduWriter::new();
        writer.open(mode & 1 != 0, mode & 2 != 0, 4);
        let opcodes: &[u8] = if mode & 4 != 0 {
            &[admin::GET_LOG_PAGE, admin::IDENTIFY, admin::ABORT, admin::GET_FEATURES, admin::ASYNC_EVENT_REQUEST, 0x7F]
        } else {
            &[nvm::FLUSH, nvm::READ, nvm::WRITE_ZEROES]
        };
        for (index, opcode) in opcodes.iter().enumerate() {
            let mut sqe = Sqe::new(*opcode, if mode & 4 != 0 { 0 } else { 1 });
            sqe.command = index as u16;
            sqe.sgl = Sgl::transport(4096);
            sqe.cdw[0] = 1 | 15 << 16;
            writer.command(&sqe, None);
        }
        for opcode in [nvm::WRITE, nvm::COMPARE, nvm::DATASET_MANAGEMENT] {
            let mut sqe = Sqe::new(opcode, 1);
            sqe.cdw[1] = DatasetRange::DEALLOCATE;
            sqe.sgl = Sgl::in_capsule(512);
            writer.command(&sqe, Some(IoBuf::zeroed(512).freeze()));
        }
        // A fused pair, a half without the other, and a pair whose first half waits for its data.
        for (opcode, fuse, in_capsule) in [
            (nvm::COMPARE, Sqe::FUSE_FIRST, true),
            (nvm::WRITE, Sqe::FUSE_SECOND, true),
            (nvm::COMPARE, Sqe::FUSE_FIRST, true),
            (nvm::COMPARE, Sqe::FUSE_FIRST, false),
            (nvm::WRITE, Sqe::FUSE_SECOND, true),
        ] {
            let mut half = Sqe::new(opcode, 1);
            half.flags |= fuse;
            half.sgl = if in_capsule { Sgl::in_capsule(512) } else { Sgl::transport(512) };
            writer.command(&half, in_capsule.then(|| IoBuf::zeroed(512).freeze()));
        }
        writer.h2c_data(0, 1, 0, IoBuf::zeroed(512).freeze(), true);
        let mut write = Sqe::new(nvm::WRITE, 7);
        write.sgl = Sgl::transport(4096);
        writer.command(&write, None);
        writer.h2c_data(0, 0, 0, IoBuf::zeroed(4096).freeze(), true);
        let mut bytes = writer.drain_to_vec();
        bytes.insert(0, mode);
        bytes
    }

    #[test]
    fn no_bytes_of_a_connected_host_make_the_target_panic_or_leave_a_namespace() {
        for mode in [0, 1, 2, 3, 4, 5, 0x10, 0x94, 0xF8] {
            let good = corpus(mode);
            mutations(&[&good, &good, &good], 500, connection);
        }
    }

    #[test]
    fn commands_that_wait_end_once_whatever_becomes_of_them() {
        for step in [0, 1, 2, 40, 71, 255] {
            let mut good = corpus(0);
            good[0] = step;
            mutations(&[&good, &good, &good], 500, waiting);
        }
    }

    #[test]
    fn no_bytes_of_a_stranger_make_the_target_panic() {
        let (admin, io) = (preamble(0, true, true), preamble(1, false, false));
        mutations(&[&admin, &io], 3000, stranger);
    }
}

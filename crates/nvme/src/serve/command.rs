//! A command: a task that asks the volume and gives the answer to the machine.

use super::Counters;
use super::connection::Conn;
use super::hold;
use crate::machine::{IoRequest, Operation, Tag, discard_ranges};
use crate::wire::Status;
use runtime::{Instant, spawn};
use std::rc::Rc;
use volume::latency::{Answered, Door, Flight, Operation as Recorded};
use volume::{CompareAndWriteError, IoError, Payload, Volume};

/// Admits a command. What came with its header came at `received`.
pub(super) fn start(connection: &Rc<Conn>, request: IoRequest, received: Instant) {
    let IoRequest { tag, nsid, operation, is_paid } = request;
    if matches!(operation, Operation::Nothing) {
        connection.machine.borrow_mut().complete(tag, Status::SUCCESS, 0);
        return;
    }
    // Looked up now, not when its header came: its host may have been denied the volume while its data was on the way.
    let Some(volume) = connection.volume(nsid) else {
        connection.machine.borrow_mut().complete(tag, Status::INVALID_NAMESPACE.do_not_retry(), 0);
        return;
    };
    let mut operation = operation;
    if !is_paid
        && let Some(cost) = hold::cost(&operation)
        && let Some(turn) = volume.hold(cost, || hold::is_over(connection, nsid))
    {
        operation.keep();
        let held_bytes = hold::held_bytes(&operation);
        let request = IoRequest { tag, nsid, operation, is_paid: true };
        return hold::wait(connection, turn, held_bytes, move |connection| start(connection, request, received));
    }
    let payload_bytes = payload_bytes(&operation);
    count(connection.core.counters(), &operation, payload_bytes);
    connection.core.budget.begin(payload_bytes);
    connection.begun_on(nsid, payload_bytes);
    let flight = flight(&volume, &operation, connection.take_header(tag).unwrap_or(received));
    let command = Command { connection: connection.clone(), volume, nsid, tag, payload_bytes };
    // A task is as large as its longest way through: the two that matter have one of their own.
    match operation {
        Operation::Read { offset_bytes, len_bytes } => spawn(command.read(flight, offset_bytes, len_bytes)),
        Operation::Write { offset_bytes, data } => spawn(command.write(flight, offset_bytes, Payload { bytes: data })),
        Operation::CompareAndWrite { offset_bytes, expected, data } => {
            spawn(command.compare_and_write(flight, offset_bytes, Payload { bytes: expected }, Payload { bytes: data }))
        }
        other => spawn(command.other(flight, other)),
    };
}

/// The command as the volume's flight recorder keeps it.
fn flight(volume: &Volume, operation: &Operation, received: Instant) -> Flight {
    let (recorded, offset_bytes, len_bytes) = match operation {
        Operation::Read { offset_bytes, len_bytes } => (Recorded::Read, *offset_bytes, u64::from(*len_bytes)),
        Operation::Write { offset_bytes, data } => (Recorded::Write, *offset_bytes, data.len() as u64),
        Operation::Compare { offset_bytes, data } => (Recorded::Compare, *offset_bytes, data.len() as u64),
        Operation::CompareAndWrite { offset_bytes, data, .. } => {
            (Recorded::CompareAndWrite, *offset_bytes, data.len() as u64)
        }
        Operation::WriteZeroes { offset_bytes, len_bytes, .. } => {
            (Recorded::WriteZeroes, *offset_bytes, u64::from(*len_bytes))
        }
        Operation::Deallocate { ranges, block_shift } => {
            let first = discard_ranges(ranges, *block_shift).next().map_or(0, |(offset_bytes, _)| offset_bytes);
            (Recorded::Discard, first, discard_ranges(ranges, *block_shift).map(|(_, len_bytes)| len_bytes).sum())
        }
        Operation::Flush | Operation::Nothing => (Recorded::Flush, 0, 0),
    };
    volume.flight(Door::Nvme, recorded, received).of_range(offset_bytes, len_bytes)
}

/// Bytes the command holds while it is executed.
pub(super) fn payload_bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Read { len_bytes, .. } => *len_bytes as usize,
        Operation::Write { data, .. } | Operation::Compare { data, .. } => data.len(),
        Operation::CompareAndWrite { expected, data, .. } => expected.len() + data.len(),
        Operation::Deallocate { ranges, .. } => ranges.len(),
        Operation::WriteZeroes { .. } | Operation::Flush | Operation::Nothing => 0,
    }
}

fn count(counters: &Counters, operation: &Operation, bytes: usize) {
    match operation {
        Operation::Read { .. } | Operation::Compare { .. } => {
            Counters::add(&counters.reads, 1);
            Counters::add(&counters.bytes_read, bytes as u64);
        }
        Operation::Write { .. } => {
            Counters::add(&counters.writes, 1);
            Counters::add(&counters.bytes_written, bytes as u64);
        }
        Operation::CompareAndWrite { expected, data, .. } => {
            Counters::add(&counters.reads, 1);
            Counters::add(&counters.bytes_read, expected.len() as u64);
            Counters::add(&counters.writes, 1);
            Counters::add(&counters.bytes_written, data.len() as u64);
        }
        _ => {}
    }
}

/// A command on its way. Tasks run first in the order they were started, so commands are admitted by the volume in the
/// order they came; none is once its connection has ended.
struct Command {
    connection: Rc<Conn>,
    volume: Volume,
    nsid: u32,
    tag: Tag,
    payload_bytes: usize,
}

impl Command {
    #[allow(clippy::manual_async_fn, reason = "an `async fn` keeps its arguments twice")]
    fn read(self, flight: Flight, offset_bytes: u64, len_bytes: u32) -> impl Future<Output = ()> {
        async move {
            let (result, command) = flight.time(self.volume.read(offset_bytes, len_bytes)).await;
            match result {
                Ok(data) if !self.connection.has_ended() => {
                    let mut machine = self.connection.machine.borrow_mut();
                    machine.complete_read(self.tag, data.bytes, &data.block_checksums);
                    drop(machine);
                    self.connection.answered(command);
                }
                Ok(_) => {}
                Err(error) => self.answer(command, Err(error)),
            }
        }
    }

    #[allow(clippy::manual_async_fn, reason = "as above")]
    fn write(self, flight: Flight, offset_bytes: u64, payload: Payload) -> impl Future<Output = ()> {
        async move {
            let (result, command) = flight.time(self.volume.write(offset_bytes, payload)).await;
            self.answer(command, result);
        }
    }

    async fn compare_and_write(self, flight: Flight, offset_bytes: u64, expected: Payload, payload: Payload) {
        let (result, command) = flight.time(self.volume.compare_and_write(offset_bytes, expected, payload)).await;
        let (compare, write) = match result {
            Ok(()) => (Status::SUCCESS, Status::SUCCESS),
            Err(CompareAndWriteError::Compare(error)) => {
                let compare = status_of(&error);
                (compare, compare.of_other_half())
            }
            Err(CompareAndWriteError::Write(error)) => (Status::SUCCESS, status_of(&error)),
        };
        if !self.connection.has_ended() {
            self.connection.machine.borrow_mut().complete_fused(self.tag, compare, write);
            self.connection.answered(command);
        }
    }

    async fn other(self, flight: Flight, operation: Operation) {
        let (result, command) = flight.time(execute(&self.volume, operation)).await;
        self.answer(command, result);
    }

    fn answer(&self, command: Answered, result: Result<(), IoError>) {
        if !self.connection.has_ended() {
            let status = result.map_or_else(|error| status_of(&error), |()| Status::SUCCESS);
            self.connection.machine.borrow_mut().complete(self.tag, status, 0);
            self.connection.answered(command);
        }
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        self.connection.ended_on(self.nsid, self.payload_bytes);
        self.connection.core.budget.end(self.payload_bytes);
    }
}

/// What is neither a read nor a write.
async fn execute(volume: &Volume, operation: Operation) -> Result<(), IoError> {
    match operation {
        Operation::Compare { offset_bytes, data } => volume.compare(offset_bytes, Payload { bytes: data }).await,
        Operation::WriteZeroes { offset_bytes, len_bytes, .. } => {
            volume.write_zeroes(offset_bytes, u64::from(len_bytes)).await
        }
        Operation::Flush => volume.flush().await,
        Operation::Deallocate { ranges, block_shift } => {
            for (offset_bytes, len_bytes) in discard_ranges(&ranges, block_shift) {
                volume.discard(offset_bytes, len_bytes).await?;
            }
            Ok(())
        }
        Operation::Read { .. } | Operation::Write { .. } | Operation::CompareAndWrite { .. } | Operation::Nothing => {
            unreachable!("these have ways of their own")
        }
    }
}

/// An error of the volume as a host understands it: final where the same again would fail again.
fn status_of(error: &IoError) -> Status {
    match error {
        IoError::OutOfRange { .. } => Status::LBA_OUT_OF_RANGE.do_not_retry(),
        IoError::NoSpace(_) => Status::CAPACITY_EXCEEDED.do_not_retry(),
        IoError::Damaged(_) => Status::UNRECOVERED_READ.do_not_retry(),
        IoError::ReadOnly => Status::WRITE_PROTECTED.do_not_retry(),
        IoError::CompareFailed(_) => Status::COMPARE_FAILURE.do_not_retry(),
        IoError::Gone(_) => Status::INVALID_NAMESPACE.do_not_retry(),
        IoError::Changing(_) => Status::ANA_TRANSITION,
        IoError::Elsewhere(_) | IoError::Stopped(_) => Status::ANA_INACCESSIBLE,
        // The host waits CRDT1, then tries again.
        IoError::Abandoned => Status::ABORTED_SQ_DELETION,
        IoError::Unavailable(_) => Status::NAMESPACE_NOT_READY.retry_after(1),
    }
}

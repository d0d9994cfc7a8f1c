//! A command: a task that asks the volume and gives the answer to the machine.

use super::Counters;
use super::connection::Conn;
use super::hold;
use crate::machine::{IoRequest, Operation, Tag, discard_ranges};
use crate::wire::Status;
use runtime::spawn;
use std::rc::Rc;
use volume::{CompareAndWriteError, IoError, Payload, Volume};

/// Admits a command.
pub(super) fn start(connection: &Rc<Conn>, request: IoRequest) {
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
    if !is_paid
        && let Some(cost) = hold::cost(&operation)
        && let Some(turn) = volume.hold(cost, || hold::is_over(connection, nsid))
    {
        let held_bytes = hold::held_bytes(&operation);
        let request = IoRequest { tag, nsid, operation, is_paid: true };
        return hold::wait(connection, turn, held_bytes, |connection| start(connection, request));
    }
    let payload_bytes = payload_bytes(&operation);
    count(connection.core.counters(), &operation, payload_bytes);
    connection.core.budget.begin(payload_bytes);
    connection.begun_on(nsid, payload_bytes);
    let command = Command { connection: connection.clone(), volume, nsid, tag, payload_bytes };
    // A task is as large as its longest way through: the two that matter have one of their own.
    match operation {
        Operation::Read { offset_bytes, len_bytes } => spawn(command.read(offset_bytes, len_bytes)),
        Operation::Write { offset_bytes, data } => spawn(command.write(offset_bytes, Payload { bytes: data })),
        Operation::CompareAndWrite { offset_bytes, expected, data } => {
            spawn(command.compare_and_write(offset_bytes, Payload { bytes: expected }, Payload { bytes: data }))
        }
        other => spawn(command.other(other)),
    };
}

/// Bytes the command holds while it is executed.
fn payload_bytes(operation: &Operation) -> usize {
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
    async fn read(self, offset_bytes: u64, len_bytes: u32) {
        match self.volume.read(offset_bytes, len_bytes).await {
            Ok(data) if !self.connection.has_ended() => {
                let mut machine = self.connection.machine.borrow_mut();
                machine.complete_read(self.tag, data.bytes, &data.block_checksums);
                drop(machine);
                self.connection.output_changed();
            }
            Ok(_) => {}
            Err(error) => self.answer(Err(error)),
        }
    }

    async fn write(self, offset_bytes: u64, payload: Payload) {
        let result = self.volume.write(offset_bytes, payload).await;
        self.answer(result);
    }

    async fn compare_and_write(self, offset_bytes: u64, expected: Payload, payload: Payload) {
        let (compare, write) = match self.volume.compare_and_write(offset_bytes, expected, payload).await {
            Ok(()) => (Status::SUCCESS, Status::SUCCESS),
            Err(CompareAndWriteError::Compare(error)) => {
                (status_of(&error), Status::ABORTED_FAILED_FUSED.do_not_retry())
            }
            Err(CompareAndWriteError::Write(error)) => (Status::SUCCESS, status_of(&error)),
        };
        if !self.connection.has_ended() {
            self.connection.machine.borrow_mut().complete_fused(self.tag, compare, write);
            self.connection.output_changed();
        }
    }

    async fn other(self, operation: Operation) {
        let result = execute(&self.volume, operation).await;
        self.answer(result);
    }

    fn answer(&self, result: Result<(), IoError>) {
        if !self.connection.has_ended() {
            let status = result.map_or_else(|error| status_of(&error), |()| Status::SUCCESS);
            self.connection.machine.borrow_mut().complete(self.tag, status, 0);
            self.connection.output_changed();
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
        // The host waits CRDT1, then tries again.
        IoError::Abandoned => Status::ABORTED_SQ_DELETION,
        IoError::Unavailable(_) => Status::NAMESPACE_NOT_READY.retry_after(1),
    }
}

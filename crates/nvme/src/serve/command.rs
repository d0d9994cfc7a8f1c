//! A command: a task that asks the volume and gives the answer to the machine.

use super::Counters;
use super::connection::Conn;
use crate::target::{IoRequest, Operation, Tag, discard_ranges};
use crate::wire::Status;
use runtime::spawn;
use std::rc::Rc;
use volume::{IoError, Payload, Volume};

/// Admits a command.
pub(super) fn start(connection: &Rc<Conn>, request: IoRequest) {
    let IoRequest { tag, nsid, operation } = request;
    if matches!(operation, Operation::Nothing) {
        connection.machine.borrow_mut().complete(tag, Status::SUCCESS, 0);
        return;
    }
    let Some(volume) = connection.core.volume(nsid) else {
        connection.machine.borrow_mut().complete(tag, Status::INVALID_NAMESPACE.do_not_retry(), 0);
        return;
    };
    let payload_bytes = payload_bytes(&operation);
    count(connection.core.counters(), &operation, payload_bytes);
    connection.core.budget.begin(payload_bytes);
    spawn(run(connection.clone(), volume, tag, operation, payload_bytes));
}

/// Bytes the command holds while it is executed.
fn payload_bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Read { len_bytes, .. } => *len_bytes as usize,
        Operation::Write { data, .. } | Operation::Compare { data, .. } => data.len(),
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
        _ => {}
    }
}

/// Tasks run first in the order they were started, so commands are admitted by the volume in the order they came.
async fn run(connection: Rc<Conn>, volume: Volume, tag: Tag, operation: Operation, payload_bytes: usize) {
    if !connection.ended.get() || types::mutant(types::Mutant::GhostExecuted) {
        execute(&connection, &volume, tag, operation).await;
    }
    connection.core.budget.end(payload_bytes);
}

async fn execute(connection: &Rc<Conn>, volume: &Volume, tag: Tag, operation: Operation) {
    let result = match operation {
        Operation::Read { offset_bytes, len_bytes } => match volume.read(offset_bytes, len_bytes).await {
            Ok(data) => {
                if !connection.ended.get() {
                    connection.machine.borrow_mut().complete_read(tag, data.bytes, &data.block_checksums);
                    connection.output_changed();
                }
                return;
            }
            Err(error) => Err(error),
        },
        Operation::Write { offset_bytes, data } => volume.write(offset_bytes, Payload { bytes: data }).await,
        Operation::Compare { offset_bytes, data } => volume.compare(offset_bytes, Payload { bytes: data }).await,
        Operation::WriteZeroes { offset_bytes, len_bytes, .. } => {
            volume.write_zeroes(offset_bytes, u64::from(len_bytes)).await
        }
        Operation::Flush => volume.flush().await,
        Operation::Deallocate { ranges, block_shift } => {
            let mut result = Ok(());
            for (offset_bytes, len_bytes) in discard_ranges(&ranges, block_shift) {
                result = volume.discard(offset_bytes, len_bytes).await;
                if result.is_err() {
                    break;
                }
            }
            result
        }
        Operation::Nothing => Ok(()),
    };
    if !connection.ended.get() {
        let status = result.map_or_else(|error| status_of(&error), |()| Status::SUCCESS);
        connection.machine.borrow_mut().complete(tag, status, 0);
        connection.output_changed();
    }
}

/// An error of the volume as a host understands it: final where the same again would fail again.
fn status_of(error: &IoError) -> Status {
    match error {
        IoError::OutOfRange { .. } => Status::LBA_OUT_OF_RANGE.do_not_retry(),
        IoError::NoSpace(_) => Status::CAPACITY_EXCEEDED.do_not_retry(),
        IoError::Damaged(_) => Status::UNRECOVERED_READ.do_not_retry(),
        IoError::CompareFailed(_) => Status::COMPARE_FAILURE.do_not_retry(),
        IoError::Gone(_) => Status::INVALID_NAMESPACE.do_not_retry(),
        // The host waits CRDT1, then tries again.
        IoError::Unavailable(_) => Status::NAMESPACE_NOT_READY.retry_after(1),
    }
}

//! What a power loss could still take, at each point of a record.

use super::{Event, RecordedDevice, RecordedOperation, What};
use std::ops::Range;

/// A write whose bytes need not be on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RiskyWrite {
    /// Which.
    pub operation: RecordedOperation,
    /// Where it begins.
    pub offset_bytes: u64,
    /// What it writes.
    pub bytes: Vec<u8>,
    completed: bool,
    /// The first sync that was issued after it had completed.
    covered_by: Option<RecordedOperation>,
}

impl RiskyWrite {
    /// The bytes of the device that it touches.
    pub fn range(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes + self.bytes.len() as u64
    }

    /// Whether the device had said that it is done.
    pub fn completed(&self) -> bool {
        self.completed
    }
}

/// Follows the events of one device and keeps the writes at risk, in the order in which they were issued.
///
/// A write is safe once a sync that was issued after the write had completed has itself completed without an error.
/// On a device without a volatile cache it is safe once it has completed. A failed sync makes nothing safe, ever.
#[derive(Debug)]
pub struct AtRisk {
    device: RecordedDevice,
    volatile_cache: bool,
    writes: Vec<RiskyWrite>,
    safe: Vec<RiskyWrite>,
}

impl AtRisk {
    /// Follows `device`, which is taken to have a volatile cache until the record says otherwise.
    pub fn new(device: RecordedDevice) -> Self {
        Self { device, volatile_cache: true, writes: Vec::new(), safe: Vec::new() }
    }

    /// The writes that a power loss at this point could take or tear, oldest first.
    pub fn writes(&self) -> &[RiskyWrite] {
        &self.writes
    }

    /// Takes the next event of the record. Returns the writes that have become safe by it, oldest first:
    /// the image rolls forward by them.
    pub fn follow(&mut self, event: &Event) -> &[RiskyWrite] {
        self.safe.clear();
        if event.device == self.device {
            self.apply(&event.what);
        }
        &self.safe
    }

    fn apply(&mut self, what: &What) {
        match what {
            What::Device { volatile_cache, .. } => self.volatile_cache = *volatile_cache,
            What::WriteIssued { operation, offset_bytes, bytes } => self.writes.push(RiskyWrite {
                operation: *operation,
                offset_bytes: *offset_bytes,
                bytes: bytes.clone(),
                completed: false,
                covered_by: None,
            }),
            What::WriteCompleted { operation, error: 0 } => {
                let write = self.writes.iter_mut().find(|write| write.operation == *operation);
                write.expect("a write is issued before it completes").completed = true;
                if !self.volatile_cache {
                    self.make_safe(|write| write.completed);
                }
            }
            What::SyncIssued { operation } => {
                for write in self.writes.iter_mut().filter(|write| write.completed) {
                    write.covered_by.get_or_insert(*operation);
                }
            }
            // Syncs end in any order, but one issued later covers all that an earlier one does.
            What::SyncCompleted { operation, error: 0 } => {
                self.make_safe(|write| write.covered_by.is_some_and(|sync| sync <= *operation));
            }
            What::WriteCompleted { .. }
            | What::SyncCompleted { .. }
            | What::DiscardIssued { .. }
            | What::DiscardCompleted { .. }
            | What::Mark { .. } => {}
        }
    }

    fn make_safe(&mut self, is_safe: impl Fn(&RiskyWrite) -> bool) {
        self.safe.extend(self.writes.extract_if(.., |write| is_safe(write)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: RecordedDevice = RecordedDevice(0);

    fn follow(at_risk: &mut AtRisk, what: What) -> Vec<u64> {
        let event = Event { device: DEVICE, time_ns: 0, what };
        at_risk.follow(&event).iter().map(|write| write.operation.0).collect()
    }
    fn issue(operation: u64) -> What {
        What::WriteIssued {
            operation: RecordedOperation(operation),
            offset_bytes: operation * 512,
            bytes: vec![operation as u8; 512],
        }
    }
    fn complete(operation: u64) -> What {
        What::WriteCompleted { operation: RecordedOperation(operation), error: 0 }
    }
    fn sync(operation: u64) -> What {
        What::SyncIssued { operation: RecordedOperation(operation) }
    }
    fn synced(operation: u64, error: u32) -> What {
        What::SyncCompleted { operation: RecordedOperation(operation), error }
    }

    #[test]
    fn a_sync_covers_what_had_completed_when_it_was_issued_and_nothing_else() {
        let mut at_risk = AtRisk::new(DEVICE);
        for what in [issue(1), issue(2), complete(1), sync(3), complete(2), issue(4)] {
            assert_eq!(follow(&mut at_risk, what), []);
        }
        assert_eq!(follow(&mut at_risk, synced(3, 0)), [1]);
        assert_eq!(at_risk.writes().iter().map(|write| write.operation.0).collect::<Vec<_>>(), [2, 4]);
        assert!(at_risk.writes()[0].completed() && !at_risk.writes()[1].completed());
    }

    #[test]
    fn a_later_sync_that_ends_first_covers_the_earlier_ones_writes_too() {
        let mut at_risk = AtRisk::new(DEVICE);
        for what in [issue(1), complete(1), sync(2), issue(3), complete(3), sync(4)] {
            follow(&mut at_risk, what);
        }
        assert_eq!(follow(&mut at_risk, synced(4, 0)), [1, 3]);
        assert_eq!(follow(&mut at_risk, synced(2, 0)), []);
    }

    #[test]
    fn a_failed_sync_makes_nothing_safe() {
        let mut at_risk = AtRisk::new(DEVICE);
        for what in [issue(1), complete(1), sync(2)] {
            follow(&mut at_risk, what);
        }
        assert_eq!(follow(&mut at_risk, synced(2, 5)), []);
        assert_eq!(at_risk.writes().len(), 1);
    }

    #[test]
    fn without_a_volatile_cache_completion_is_enough() {
        let mut at_risk = AtRisk::new(DEVICE);
        let device = What::Device { path: "d".into(), size_bytes: 4096, volatile_cache: false };
        for what in [device, issue(1), issue(2)] {
            follow(&mut at_risk, what);
        }
        assert_eq!(follow(&mut at_risk, complete(2)), [2]);
    }
}

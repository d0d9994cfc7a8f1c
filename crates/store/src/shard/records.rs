//! The records that entries still wait in: where each lies, and how many of its entries are not applied.

use crate::format::{DeviceUnit, RecordPointer, RecordSeq};
use std::collections::VecDeque;

/// A record with entries that are not applied, or that is still on its way to the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptRecord {
    pub(crate) seq: RecordSeq,
    /// Where it is; `None` until it is issued.
    pub(crate) place: Option<Place>,
    /// Entries of it that are not applied, and other reasons to replay from it.
    pub(crate) waiting: u32,
}

/// Where a record and its blocks are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) pointer: RecordPointer,
    pub(crate) blocks: DeviceUnit,
}

/// The records kept, by sequence. New ones come at the end; old ones go where nothing waits in them.
#[derive(Debug, Default)]
pub(crate) struct Records(VecDeque<KeptRecord>);

impl Records {
    pub(crate) fn push(&mut self, seq: RecordSeq, place: Option<Place>) {
        debug_assert!(self.0.back().is_none_or(|last| last.seq < seq));
        self.drop_settled();
        self.0.push_back(KeptRecord { seq, place, waiting: 0 });
    }

    fn at(&mut self, seq: RecordSeq) -> &mut KeptRecord {
        let at =
            self.0.binary_search_by_key(&seq, |record| record.seq).expect("a record is kept while one waits in it");
        &mut self.0[at]
    }

    /// One more entry of the record waits.
    pub(crate) fn hold(&mut self, seq: RecordSeq) {
        self.at(seq).waiting += 1;
    }

    /// One entry of the record is applied or dropped.
    pub(crate) fn release(&mut self, seq: RecordSeq) {
        let record = self.at(seq);
        record.waiting = record.waiting.checked_sub(1).expect("what is released was held");
    }

    /// The record is issued there. One that is issued a second time may have been forgotten: nothing waits in it.
    pub(crate) fn set_place(&mut self, seq: RecordSeq, place: Place) {
        if let Ok(at) = self.0.binary_search_by_key(&seq, |record| record.seq) {
            self.0[at].place = Some(place);
        }
    }

    /// Where the record is.
    ///
    /// # Panics
    /// If it was never issued: what is asked for here is durable.
    pub(crate) fn place(&mut self, seq: RecordSeq) -> Place {
        self.at(seq).place.expect("a durable record has a place")
    }

    /// Where the record is, if it was issued.
    pub(crate) fn known_place(&mut self, seq: RecordSeq) -> Option<Place> {
        self.at(seq).place
    }

    /// The oldest record that something waits in.
    pub(crate) fn oldest_waiting(&self) -> Option<RecordSeq> {
        self.0.iter().find(|record| record.waiting > 0).map(|record| record.seq)
    }

    /// Whether something waits in one of these records.
    pub(crate) fn any_waits_in(&self, first: RecordSeq, last: RecordSeq) -> bool {
        let from = self.0.partition_point(|record| record.seq < first);
        self.0.range(from..).take_while(|record| record.seq <= last).any(|record| record.waiting > 0)
    }

    /// Forgets the oldest records as long as nothing waits in them and they have a place: an unplaced one is needed
    /// when it is issued.
    fn drop_settled(&mut self) {
        while self.0.front().is_some_and(|record| record.waiting == 0 && record.place.is_some()) {
            self.0.pop_front();
        }
    }
}

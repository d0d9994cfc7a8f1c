//! What a shard knows of the segments it uses.

use crate::format::{DeviceUnit, Generation, Geometry, RecordSeq, SegmentIndex, StoredBlock, Stream, UNIT_BYTES};
use crate::store::FoundSegment;

/// One segment, as its shard sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentState {
    pub(crate) role: Role,
    pub(crate) generation: Generation,
    pub(crate) stream: Stream,
    pub(crate) first_record: RecordSeq,
    /// Last record in it; of one found at opening that holds nothing to be replayed, 0.
    pub(crate) last_record: RecordSeq,
    /// Units of 512 bytes in it that blocks take which the index names.
    pub(crate) live_units: u32,
    /// The record being gathered when the last of its blocks was displaced.
    pub(crate) died_at: RecordSeq,
    /// Reads that are under way in it.
    pub(crate) pins: u32,
    /// The cleaner could not move all that lives in it: something is damaged.
    pub(crate) left_alone: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// Free, or another shard's, or left alone because its header is damaged.
    #[default]
    NotOurs,
    /// Records are appended to it.
    Open,
    /// Full, or given up after a failed append.
    Sealed,
    /// Nothing needs it but reads that are under way; free when they have ended.
    Leaving,
}

/// All segments of the device, by number.
pub(crate) struct Segments {
    geometry: Geometry,
    states: Vec<SegmentState>,
    live_units: u64,
    /// Not during replay: it begins with leaves that may name blocks of segments used anew since.
    counting: bool,
    /// Sealed segments that lost their last block to a client since the last pass began.
    pub(super) deaths: u32,
    /// Segments that were sealed without a block since then: of entries without data, or of a pass. At opening also
    /// those of which nobody knows why they are empty.
    pub(super) empties: u32,
    /// Sealed segments without a block: what the next pass will free, most of them.
    dead: u32,
}

impl Segments {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            states: vec![SegmentState::default(); geometry.segment_count as usize],
            live_units: 0,
            counting: false,
            deaths: 0,
            empties: 0,
            dead: 0,
        }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn get(&self, segment: SegmentIndex) -> &SegmentState {
        &self.states[segment.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, segment: SegmentIndex) -> &mut SegmentState {
        &mut self.states[segment.0 as usize]
    }

    /// A segment that was in use when the store was opened.
    pub(crate) fn adopt(&mut self, found: &FoundSegment) {
        let state = self.get_mut(found.segment);
        state.role = Role::Sealed;
        state.generation = found.generation;
        state.stream = found.stream;
        state.first_record = found.first_record;
    }

    /// A segment taken to append to; its first record will be `first_record`.
    pub(crate) fn open(
        &mut self,
        segment: SegmentIndex,
        generation: Generation,
        stream: Stream,
        first_record: RecordSeq,
    ) {
        let state = self.get_mut(segment);
        assert_eq!(state.role, Role::NotOurs, "segment {} is taken twice", segment.0);
        assert_eq!(state.live_units, 0, "segment {} was free and holds live blocks", segment.0);
        *state = SegmentState { role: Role::Open, generation, stream, first_record, ..SegmentState::default() };
    }

    pub(crate) fn seal(&mut self, segment: SegmentIndex) {
        let state = self.get_mut(segment);
        state.role = Role::Sealed;
        if state.live_units == 0 {
            match state.died_at > RecordSeq(0) {
                true => self.deaths += 1,
                false => self.empties += 1,
            }
            self.dead += 1;
        }
    }

    /// Nothing needs a segment any more, but perhaps a read under way in it. Returns whether it is free now.
    pub(super) fn leave(&mut self, segment: SegmentIndex) -> bool {
        let state = self.get_mut(segment);
        state.role = if state.pins > 0 { Role::Leaving } else { Role::NotOurs };
        let is_free = state.role == Role::NotOurs;
        self.dead -= 1;
        is_free
    }

    /// Sealed segments without a block.
    pub(super) fn dead_count(&self) -> u32 {
        self.dead
    }

    /// Counts the segments that opening found without a block and did not free.
    pub(crate) fn count_empties(&mut self) {
        self.empties = self.dead;
    }

    /// The index names these units now: blocks of one entry, the first of them at `first`.
    pub(crate) fn born(&mut self, first: DeviceUnit, units: u32) {
        if !self.counting {
            return;
        }
        let segment = self.geometry.segment_of(first).expect("an indexed block lies in a segment");
        let state = self.get_mut(segment);
        // Copies of the cleaner may come to life when their segment is full already.
        let revives = state.live_units == 0 && state.role == Role::Sealed;
        state.live_units += units;
        self.dead -= u32::from(revives);
        self.live_units += u64::from(units);
    }

    /// The index names this block no more; `gathering` is the record that is being gathered.
    pub(crate) fn displaced(&mut self, block: StoredBlock, gathering: RecordSeq) {
        if !self.counting {
            return;
        }
        let segment = self.geometry.segment_of(block.location).expect("an indexed block lies in a segment");
        let state = self.get_mut(segment);
        let units = u32::from(block.stored.units());
        state.live_units = state.live_units.checked_sub(units).expect("each live block was counted");
        if state.live_units == 0 {
            state.died_at = gathering;
            let is_sealed = u32::from(state.role == Role::Sealed);
            self.deaths += is_sealed;
            self.dead += is_sealed;
        }
        self.live_units -= u64::from(units);
    }

    /// Replay is over: from now on what lives is counted, the ones there are first.
    pub(crate) fn begin_counting(&mut self) {
        self.counting = true;
        self.dead = self.ours().filter(|(_, state)| state.role == Role::Sealed).count() as u32;
    }

    /// Appends go on in a segment that was found, behind its last record.
    pub(crate) fn go_on_in(&mut self, segment: SegmentIndex, last_record: RecordSeq) {
        let state = self.get_mut(segment);
        assert_eq!(state.role, Role::Sealed, "segment {} was found when the store was opened", segment.0);
        state.role = Role::Open;
        state.last_record = state.last_record.max(last_record);
        self.dead -= u32::from(state.live_units == 0);
    }

    /// Segments that the index names and that nothing else says are this shard's.
    pub(crate) fn without_header(&self) -> Vec<SegmentIndex> {
        let states = self.states.iter().enumerate();
        let lost = states.filter(|(_, state)| state.role == Role::NotOurs && state.live_units > 0);
        lost.map(|(number, _)| SegmentIndex(number as u32)).collect()
    }

    /// Bytes of the blocks that the index names, as they are stored.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_units * UNIT_BYTES as u64
    }

    /// The shard's segments.
    pub(crate) fn ours(&self) -> impl Iterator<Item = (SegmentIndex, &SegmentState)> {
        let states = self.states.iter().enumerate().filter(|(_, state)| state.role != Role::NotOurs);
        states.map(|(number, state)| (SegmentIndex(number as u32), state))
    }
}

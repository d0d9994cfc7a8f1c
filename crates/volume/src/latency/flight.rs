//! One command, from its door and back to it.

use super::moments::{Moments, Timed};
use super::recorder::Recorder;
use runtime::Instant;
use std::rc::Rc;
use std::time::Duration;

/// Where a command came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// NVMe/TCP.
    Nvme,
    /// NBD.
    Nbd,
}

impl Door {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Nvme, Self::Nbd];

    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvme => "nvme",
            Self::Nbd => "nbd",
        }
    }
}

/// What a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A compare and a write in one.
    CompareAndWrite,
    /// A compare.
    Compare,
    /// Zeroes, stored or not.
    WriteZeroes,
    /// A discard.
    Discard,
    /// A flush.
    Flush,
    /// A question of what is stored.
    BlockStatus,
}

impl Operation {
    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::CompareAndWrite => "compare-and-write",
            Self::Compare => "compare",
            Self::WriteZeroes => "write-zeroes",
            Self::Discard => "discard",
            Self::Flush => "flush",
            Self::BlockStatus => "block-status",
        }
    }

    /// What it is counted with.
    pub fn class(self) -> Class {
        match self {
            Self::Read | Self::Compare => Class::Read,
            Self::Write | Self::CompareAndWrite => Class::Write,
            Self::WriteZeroes | Self::Discard | Self::Flush | Self::BlockStatus => Class::Other,
        }
    }
}

/// Operations that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// What brings data of the device.
    Read,
    /// What brings data to it.
    Write,
    /// What moves none: flush, discard, zeroes, block status.
    Other,
}

impl Class {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// A stretch of a command's life; see the module above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Until the volume is asked.
    Receive,
    /// Until it is the command's turn.
    Admit,
    /// Until the device is asked.
    Queue,
    /// Until it is durable, or read.
    Device,
    /// Until the kernel has the answer.
    Send,
}

impl Stage {
    /// All of them, in their order.
    pub const ALL: [Self; 5] = [Self::Receive, Self::Admit, Self::Queue, Self::Device, Self::Send];

    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Admit => "admit",
            Self::Queue => "queue",
            Self::Device => "device",
            Self::Send => "send",
        }
    }
}

/// How long a command was in each stage, in nanoseconds, in the order of [`Stage::ALL`]; or sums of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes(pub [u64; 5]);

impl StageTimes {
    /// From the moments of one command. A moment that is missing, or earlier than the one before it (what became
    /// durable together is known by the times of its last record), takes no time.
    pub(super) fn of(received: Instant, moments: &Moments, sent: Instant) -> Self {
        let Moments { called, admitted, issued, done } = *moments;
        let mut before = received.min(sent);
        Self([called, admitted, issued, done, sent].map(|moment| {
            let at = moment.clamp(before, sent);
            let ns = at.0 - before.0;
            before = at;
            ns
        }))
    }

    /// How long it was in `stage`.
    pub fn stage(&self, stage: Stage) -> Duration {
        Duration::from_nanos(self.0[stage as usize])
    }

    /// All stages together.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total_ns())
    }

    pub(super) fn total_ns(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(here, there)| *here += there);
    }

    pub(super) fn sub(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(here, there)| *here -= there);
    }
}

/// A command of a volume on its way.
pub struct Flight {
    recorder: Rc<Recorder>,
    received: Instant,
    offset_bytes: u64,
    len_bytes: u64,
    door: Door,
    operation: Operation,
}

impl Flight {
    pub(crate) fn new(recorder: &Rc<Recorder>, door: Door, operation: Operation, received: Instant) -> Self {
        Self { recorder: recorder.clone(), received, offset_bytes: 0, len_bytes: 0, door, operation }
    }

    /// What it is about.
    pub fn of_range(self, offset_bytes: u64, len_bytes: u64) -> Self {
        Self { offset_bytes, len_bytes, ..self }
    }

    /// Runs the call of the volume.
    pub fn time<F: Future<Output = Result<T, E>>, T, E>(self, call: F) -> Timed<F> {
        Timed::new(self, call)
    }

    pub(super) fn answered(self, moments: Moments, failed: bool) -> Answered {
        Answered { flight: self, moments, failed }
    }
}

/// A command that its volume has answered. Counted when its answer is [sent](Self::sent); dropped before, its host is
/// gone and it counts for nothing.
pub struct Answered {
    flight: Flight,
    moments: Moments,
    failed: bool,
}

impl Answered {
    #[cfg(test)]
    pub(super) fn moments(&self) -> Moments {
        self.moments
    }

    /// The kernel has the answer.
    pub(super) fn sent(&self, at: Instant) {
        let Self { flight, moments, failed } = self;
        let Flight { recorder, received, offset_bytes, len_bytes, door, operation } = flight;
        let stages = StageTimes::of(*received, moments, at);
        recorder.record(
            at,
            &SlowIo {
                door: *door,
                operation: *operation,
                offset_bytes: *offset_bytes,
                len_bytes: *len_bytes,
                failed: *failed,
                stages,
                core: recorder.core(),
                ended_at_ns: 0,
            },
        );
    }
}

/// A command that is over, as the flight recorder keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowIo {
    /// Where it came in.
    pub door: Door,
    /// What it was.
    pub operation: Operation,
    /// Its first byte of the volume; zero, if it has no range.
    pub offset_bytes: u64,
    /// How many bytes it was about.
    pub len_bytes: u64,
    /// Whether it was answered with an error.
    pub failed: bool,
    /// Where its time went.
    pub stages: StageTimes,
    /// The core of its connection.
    pub core: u16,
    /// When it ended: wall time in nanoseconds since 1970.
    pub ended_at_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up_to_the_whole_and_what_is_missing_takes_no_time() {
        let at = |ns| Instant(ns);
        let mut moments = Moments::called(at(110));
        moments.admitted(at(130));
        moments.device(at(160), at(200));
        assert_eq!(StageTimes::of(at(100), &moments, at(250)).0, [10, 20, 30, 40, 50]);
        // It did not wait for its turn, and its record is told with the times of a later one, or of an earlier one.
        let mut moments = Moments::called(at(110));
        moments.device(at(105), at(200));
        assert_eq!(StageTimes::of(at(100), &moments, at(250)).0, [10, 0, 0, 90, 50]);
        moments.device(at(300), at(400));
        assert_eq!(StageTimes::of(at(100), &moments, at(250)).0, [10, 0, 140, 0, 0]);
        // A flush asks nobody.
        let times = StageTimes::of(at(100), &Moments::default(), at(250));
        assert_eq!((times.0, times.total()), ([0, 0, 0, 0, 150], Duration::from_nanos(150)));
        assert_eq!(StageTimes::of(at(300), &Moments::default(), at(250)).total_ns(), 0);
    }
}

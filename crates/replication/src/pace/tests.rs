//! A core's pace, by a clock that the tests turn.

use super::heard::{RATE_FIRST, RATE_MAX, RATE_MIN};
use super::*;

const PIECE: u64 = 64 << 10;
const STEP: Duration = Duration::from_micros(500);
const USUAL: Duration = Duration::from_micros(300);

/// A core: its clock, and one waiting piece after the other.
struct Core {
    pace: Pace,
    clock: Instant,
    wakes_at: Instant,
    commits: u64,
    /// What clients do.
    does: Does,
}

#[derive(Clone, Copy, PartialEq)]
enum Does {
    Write,
    Read,
    Both,
}

impl Core {
    fn new() -> Self {
        let clock = Instant(1_000_000_000);
        Self { pace: Pace::default(), clock, wakes_at: clock, commits: 0, does: Does::Write }
    }

    /// The same, whose clients do something else than to write.
    fn whose_clients(does: Does) -> Self {
        Self { does, ..Self::new() }
    }

    /// A client's command has taken so long.
    fn done_after(&self, took: Duration) {
        if self.does != Does::Read {
            self.pace.committed_after(took, self.clock);
        }
        if self.does != Does::Write {
            let began = Instant(self.clock.0 - took.as_nanos() as u64);
            self.pace.begin_read_at(|| began).came_at(BlockRange::new(0, 1), self.clock);
        }
    }

    /// Two thousand commands a second, one in 200 of which takes thrice as long as others, and nothing beside them.
    fn clients_alone(&mut self, seconds: u64) {
        for _ in 0..2000 * seconds {
            self.clock = self.clock + STEP;
            self.commits += 1;
            let took = if self.commits.is_multiple_of(200) { 3 * USUAL } else { USUAL };
            self.done_after(took);
        }
        self.wakes_at = self.clock;
    }

    /// Bytes that go in so many seconds, as many as may, at most one piece in half a millisecond. What a command takes
    /// depends on how many went in the hundredth of a second before; `None`: clients do nothing.
    fn recover(&mut self, seconds: u64, takes: impl Fn(u64, u64) -> Option<Duration>) -> u64 {
        let (mut all, mut before) = (0, std::collections::VecDeque::from([0; 20]));
        for _ in 0..2000 * seconds {
            self.clock = self.clock + STEP;
            self.commits += 1;
            if let Some(took) = takes(before.iter().sum(), self.commits) {
                self.done_after(took);
            }
            let mut went = 0;
            if self.wakes_at <= self.clock {
                match self.pace.go((PIECE, 1), self.clock) {
                    None => went = PIECE,
                    Some(until) => self.wakes_at = until,
                }
            }
            before.pop_front();
            before.push_back(went);
            all += went;
        }
        all
    }
}

#[test]
fn all_goes_while_clients_are_quiet() {
    let mut core = Core::new();
    assert_eq!(core.recover(1, |_, _| None), 2000 * PIECE);
    assert_eq!(core.pace.piece_blocks_at(core.clock), PIECE_BLOCKS_QUIET);
}

#[test]
fn clients_that_are_not_slowed_down_hold_little_back() {
    let mut core = Core::new();
    core.clients_alone(2);
    core.recover(5, |_, _| Some(USUAL));
    let went = core.recover(10, |_, _| Some(USUAL));
    assert!(went > 10 * 1900 * PIECE, "{went} bytes in ten seconds, a fiftieth of which it learns");
    assert_eq!(core.pace.piece_blocks_at(core.clock), PIECE_BLOCKS);
}

#[test]
fn it_settles_where_few_commits_in_a_hundred_are_slowed_down() {
    let mut core = Core::new();
    core.clients_alone(10);
    core.recover(10, crowded);
    let rate = core.recover(20, crowded) / 20;
    assert!((30 << 20..=60 << 20).contains(&rate), "{} MiB/s", rate >> 20);
}

#[test]
fn clients_that_are_always_slowed_down_leave_the_least() {
    let mut core = Core::new();
    core.clients_alone(2);
    let takes = |went, _| Some(if went > 0 { 20 * USUAL } else { USUAL });
    core.recover(5, takes);
    let went = core.recover(10, takes) / 10;
    let least = RATE_MIN * PIECE / (PIECE + PIECE_BYTES);
    assert!((least * 9 / 10..=least * 11 / 10).contains(&went), "{went} bytes a second");
    // And all of it again when they are quiet.
    assert!(core.recover(2, |_, _| None) > 1800 * 2 * PIECE);
}

#[test]
fn it_begins_slowly_whatever_was_right_before() {
    let mut core = Core::new();
    core.clients_alone(2);
    core.recover(20, |_, _| Some(USUAL));
    assert_eq!(core.pace.commits.rate(), RATE_MAX);
    core.clients_alone(2);
    let went = core.recover(1, |_, _| Some(USUAL));
    assert!(went < 6 * RATE_FIRST, "{went} bytes in the first second");
}

#[test]
fn what_is_usual_is_learnt_first_where_it_is_not_known() {
    let mut core = Core::new();
    // Slow from the first piece on: taken for usual, it would hold nothing back.
    let takes = |went, _| Some(if went > 0 { 20 * USUAL } else { USUAL });
    core.recover(5, takes);
    assert!((USUAL..2 * USUAL).contains(&core.pace.commits.usual()));
    assert!(core.recover(1, takes) <= 2 * RATE_MIN);
}

#[test]
fn it_is_learnt_again_as_times_change() {
    let mut core = Core::new();
    core.clients_alone(2);
    // A device that has become slower for all.
    core.recover(60, |_, _| Some(4 * USUAL));
    assert!(core.pace.commits.usual() > 3 * USUAL, "{:?}", core.pace.commits.usual());
    assert!(core.recover(5, |_, _| Some(4 * USUAL)) > 5 * 1000 * PIECE);
}

#[test]
fn a_piece_of_any_length_goes() {
    let mut core = Core::new();
    core.clients_alone(2);
    core.recover(1, |_, _| Some(USUAL));
    let mut goes = || {
        core.clock = core.clock + STEP;
        core.pace.committed_after(USUAL, core.clock);
        core.pace.go((u64::MAX / 2_000_000_000, 1), core.clock).is_none()
    };
    assert!((0..100).any(|_| goes()));
}

/// One in fifty takes long as soon as six pieces go in a hundredth of a second, all from twelve on.
fn crowded(went: u64, number: u64) -> Option<Duration> {
    Some(match went / PIECE {
        12.. => 10 * USUAL,
        6.. if number.is_multiple_of(50) => 10 * USUAL,
        _ => USUAL,
    })
}

#[test]
fn it_settles_beside_clients_that_only_read() {
    let mut core = Core::whose_clients(Does::Read);
    core.clients_alone(10);
    core.recover(10, crowded);
    assert_eq!(core.pace.piece_blocks_at(core.clock), PIECE_BLOCKS);
    let rate = core.recover(20, crowded) / 20;
    assert!((30 << 20..=60 << 20).contains(&rate), "{} MiB/s", rate >> 20);
    // Not slowed down they hold little back; and nothing when they are quiet.
    core.recover(5, |_, _| Some(USUAL));
    assert!(core.recover(10, |_, _| Some(USUAL)) > 10 * 1900 * PIECE);
    assert!(core.recover(2, |_, _| None) > 1800 * 2 * PIECE);
}

#[test]
fn what_reads_take_is_compared_with_what_reads_take() {
    let mut core = Core::whose_clients(Does::Both);
    // Commits take ten times as long as reads, and no longer beside something else: reads do.
    let step = |core: &mut Core, read: Duration| {
        core.clock = core.clock + STEP;
        let began = Instant(core.clock.0 - read.as_nanos() as u64);
        core.pace.begin_read_at(|| began).came_at(BlockRange::new(0, 1), core.clock);
        core.pace.committed_after(10 * USUAL, core.clock);
    };
    let mut went = (0, 0);
    for number in 0..40_000 {
        let is_beside = is_within(core.pace.went_at.get(), SETTLED, core.clock);
        step(&mut core, if is_beside { 5 * USUAL } else { USUAL });
        if core.pace.go((PIECE, 1), core.clock).is_none() {
            went = if number < 20_000 { (went.0 + PIECE, 0) } else { (went.0, went.1 + PIECE) };
        }
    }
    assert_eq!(core.pace.reads.rate(), RATE_MIN);
    assert!(core.pace.commits.rate() <= 3 * RATE_MIN, "it is not far ahead of what goes");
    assert!(went.1 / 10 <= RATE_MIN, "{} MiB/s", (went.1 / 10) >> 20);
}

#[test]
fn a_read_that_takes_for_ever_is_no_quiet() {
    let core = Core::whose_clients(Does::Read);
    let reading = core.pace.begin_read_at(|| core.clock);
    let later = core.clock + Duration::from_secs(1);
    assert!(!core.pace.are_clients_quiet(later));
    drop(reading);
    assert!(!core.pace.are_clients_quiet(later + 2 * SETTLED));
    assert!(core.pace.are_clients_quiet(later + Duration::from_secs(1)));
}

#[test]
fn reads_are_timed_one_at_a_time_and_only_while_something_goes() {
    let mut core = Core::whose_clients(Does::Read);
    let looks = Cell::new(0);
    let look = |core: &Core| {
        looks.set(looks.get() + 1);
        core.clock
    };
    drop(core.pace.begin_read_at(|| look(&core)));
    assert_eq!(looks.get(), 0, "nothing goes");
    core.pace.go((PIECE, 1), core.clock);
    let (first, second) = (core.pace.begin_read_at(|| look(&core)), core.pace.begin_read_at(|| look(&core)));
    assert_eq!(looks.get(), 1, "one at a time");
    drop((first, second));
    core.pace.begin_read_at(|| look(&core)).came_at(BlockRange::new(0, 1), core.clock);
    assert_eq!(looks.get(), 2);
    core.clock = core.clock + 2 * LEARN_AFTER;
    core.pace.begin_read_at(|| look(&core)).came_at(BlockRange::new(0, 1), core.clock);
    drop(core.pace.begin_read_at(|| look(&core)));
    assert_eq!(looks.get(), 3, "the first that finds that nothing goes any more is the last");
}

#[test]
fn a_long_read_is_as_many_as_it_has_parts() {
    let core = Core::whose_clients(Does::Read);
    core.pace.go((PIECE, 1), core.clock);
    let later = core.clock + 2 * SETTLED;
    let began = Instant(later.0 - 16 * USUAL.as_nanos() as u64);
    core.pace.begin_read_at(|| began).came_at(BlockRange::new(0, 256), later);
    core.pace.reads.make_do();
    assert_eq!(core.pace.reads.usual(), USUAL);
}

/// What lies apart takes a device longer than as many bytes in one piece.
#[test]
fn what_goes_in_many_runs_counts_for_more() {
    let waits = |runs: u64| {
        let mut core = Core::new();
        core.clients_alone(2);
        core.recover(4, |_, _| Some(USUAL));
        while let Some(until) = core.pace.go((PIECE, runs), core.clock) {
            core.clock = until;
            core.done_after(USUAL);
        }
        let next = core.pace.go((PIECE, 1), core.clock).expect("clients are heard");
        next.since(core.clock)
    };
    let ratio = waits(16).as_secs_f64() / waits(1).as_secs_f64();
    let expected = (PIECE + PIECE_BYTES + 15 * RUN_BYTES) as f64 / (PIECE + PIECE_BYTES) as f64;
    assert!((ratio / expected - 1.0).abs() < 0.001, "{ratio}, not {expected}");
}

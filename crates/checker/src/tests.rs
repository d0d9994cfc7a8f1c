//! The checkers themselves, on histories made by hand: good ones pass, each kind of bad one does not; and on random
//! ones, compared with trying every order.

use super::*;
use crate::history::{Action, Changed, OperationId, Outcome, Value};
use runtime::sim::Random;

/// A history of operations on blocks, by hand.
#[derive(Default)]
struct Script(History);

impl Script {
    fn write(&mut self, block: u64, count: u32) -> Value {
        let id = self.begin_write(block, count);
        self.0.done(id);
        History::stamp(id)
    }
    fn begin_write(&mut self, block: u64, count: u32) -> OperationId {
        self.0.start(Action::Write, block, count)
    }
    fn begin_zero(&mut self, block: u64) -> OperationId {
        self.0.start(Action::Zero, block, 1)
    }
    fn zero(&mut self, block: u64) {
        let id = self.begin_zero(block);
        self.0.done(id);
    }
    fn begin_read(&mut self, block: u64, count: u32) -> OperationId {
        self.0.start(Action::Read(Vec::new()), block, count)
    }
    fn read(&mut self, block: u64, values: &[Value]) {
        let id = self.begin_read(block, values.len() as u32);
        self.0.answered(id, values.to_vec());
    }
    fn checker(self) -> &'static str {
        check(&self.0).err().map_or("none", |violation| violation.checker())
    }
}

#[test]
fn what_was_written_last_is_read() {
    let mut script = Script::default();
    script.read(0, &[Value::ZERO]);
    let one = script.write(0, 1);
    script.read(0, &[one]);
    script.read(0, &[one]);
    script.zero(0);
    script.read(0, &[Value::ZERO]);
    assert_eq!(script.checker(), "none");
}

#[test]
fn a_lost_write_is_found() {
    let mut script = Script::default();
    script.write(0, 1);
    script.0.processes_ended();
    script.read(0, &[Value::ZERO]);
    assert_eq!(script.checker(), "linearizability");
}

#[test]
fn a_stale_read_is_found() {
    let mut script = Script::default();
    let one = script.write(0, 1);
    script.write(0, 1);
    script.read(0, &[one]);
    assert_eq!(script.checker(), "linearizability");
}

#[test]
fn a_value_nobody_wrote_is_found() {
    let mut script = Script::default();
    script.write(0, 1);
    script.read(0, &[Value(77)]);
    assert_eq!(script.checker(), "linearizability");
}

#[test]
fn a_read_from_the_future_is_found() {
    let mut script = Script::default();
    script.read(0, &[Value(2)]);
    script.write(0, 1);
    assert_eq!(script.checker(), "linearizability");
}

#[test]
fn a_deleted_value_that_comes_back_is_found() {
    let mut script = Script::default();
    let one = script.write(0, 1);
    script.zero(0);
    script.0.processes_ended();
    script.read(0, &[one]);
    assert_eq!(script.checker(), "linearizability");
}

#[test]
fn an_unknown_write_may_be_there_or_not_but_not_both() {
    for (first, second, verdict) in
        [(0, 0, "none"), (1, 1, "none"), (1, 0, "linearizability"), (0, 1, "linearizability")]
    {
        let mut script = Script::default();
        let unknown = History::stamp(script.begin_write(0, 1));
        script.0.processes_ended();
        let values = [Value::ZERO, unknown];
        script.read(0, &[values[first]]);
        script.read(0, &[values[second]]);
        assert_eq!(script.checker(), verdict, "{first} {second}");
    }
}

#[test]
fn an_unknown_write_whose_process_lives_may_come_late() {
    let mut script = Script::default();
    let unknown = History::stamp(script.begin_write(0, 1));
    script.read(0, &[Value::ZERO]);
    script.read(0, &[unknown]);
    assert_eq!(script.checker(), "none");
}

#[test]
fn an_unknown_zero_may_be_there_or_not_but_not_both() {
    for (seen, verdict) in [([0, 0], "none"), ([1, 1], "none"), ([1, 0], "linearizability")] {
        let mut script = Script::default();
        let values = [Value::ZERO, script.write(0, 1)];
        script.begin_zero(0);
        script.0.processes_ended();
        seen.iter().for_each(|index| script.read(0, &[values[*index]]));
        assert_eq!(script.checker(), verdict, "{seen:?}");
    }
}

#[test]
fn reads_that_go_back_and_forth_are_found() {
    let mut script = Script::default();
    let one = script.write(0, 1);
    let open = script.begin_write(0, 1);
    script.read(0, &[History::stamp(open)]);
    script.read(0, &[one]);
    script.0.done(open);
    assert_eq!(script.checker(), "linearizability");
}

#[test]
fn writes_at_one_time_may_come_in_any_order_but_in_one() {
    for (seen, verdict) in [([0, 1], "none"), ([1, 0], "none")] {
        let mut script = Script::default();
        let ids = [script.begin_write(0, 1), script.begin_write(0, 1)];
        let reads = [script.begin_read(0, 1), script.begin_read(0, 1)];
        for (read, index) in reads.into_iter().zip(seen) {
            script.0.answered(read, vec![History::stamp(ids[index])]);
        }
        ids.into_iter().for_each(|id| script.0.done(id));
        script.read(0, &[History::stamp(ids[seen[1]])]);
        assert_eq!(script.checker(), verdict, "{seen:?}");
    }
    let mut script = Script::default();
    let ids = [script.begin_write(0, 1), script.begin_write(0, 1)];
    ids.into_iter().for_each(|id| script.0.done(id));
    script.read(0, &[History::stamp(ids[0])]);
    script.read(0, &[History::stamp(ids[1])]);
    assert_eq!(script.checker(), "linearizability");
}

#[test]
fn what_comes_between_the_halves_of_a_compare_and_write_is_found() {
    for (comes_between, verdict) in [(false, "none"), (true, "linearizability")] {
        let mut script = Script::default();
        let one = script.write(0, 1);
        let swap = script.0.start(Action::CompareAndWrite(vec![one]), 0, 1);
        if comes_between {
            let other = script.write(0, 1);
            script.read(0, &[other]);
        }
        script.0.done(swap);
        script.read(0, &[History::stamp(swap)]);
        assert_eq!(script.checker(), verdict, "{comes_between}");
    }
}

#[test]
fn half_of_a_compare_and_write_across_a_boundary_is_found() {
    for (is_rolled_back, verdict) in [(false, "atomicity"), (true, "none")] {
        let mut script = Script::default();
        let old = script.write(15, 2);
        let swap = script.0.start(Action::CompareAndWrite(vec![old; 2]), 15, 2);
        let back = is_rolled_back.then(|| script.0.start(Action::Restore(vec![old; 2]), 15, 2));
        script.read(15, &[History::stamp(swap), old]);
        script.0.done(swap);
        back.into_iter().for_each(|back| script.0.done(back));
        assert_eq!(script.checker(), verdict, "{is_rolled_back}");
    }
}

#[test]
fn half_of_an_unacknowledged_write_is_found() {
    let mut script = Script::default();
    let old = script.write(0, 4);
    let torn = History::stamp(script.begin_write(0, 4));
    script.0.processes_ended();
    script.read(0, &[torn, torn, old, old]);
    assert_eq!(script.checker(), "atomicity");
}

#[test]
fn half_of_a_write_over_nothing_is_found() {
    let mut script = Script::default();
    let torn = History::stamp(script.begin_write(0, 2));
    script.0.processes_ended();
    script.read(0, &[torn, Value::ZERO]);
    assert_eq!(script.checker(), "atomicity");
}

#[test]
fn a_circle_of_three_writes_is_found() {
    let mut script = Script::default();
    let ids = [script.begin_write(0, 2), script.begin_write(1, 2), script.begin_write(0, 3)];
    script.0.processes_ended();
    let [a, b, c] = ids.map(History::stamp);
    script.read(0, &[a, c, b]); // c over a's 1, a over c's 0
    assert_eq!(script.checker(), "atomicity");
}

#[test]
fn what_is_covered_by_later_writes_is_not_torn() {
    let mut script = Script::default();
    let whole = script.write(0, 8);
    let part = script.write(2, 2);
    let open = History::stamp(script.begin_write(6, 2));
    script.zero(0);
    script.0.processes_ended();
    script.read(0, &[Value::ZERO, whole, part, part, whole, whole, open, open]);
    assert_eq!(script.checker(), "none");
}

#[test]
fn a_write_across_a_boundary_may_be_half_there() {
    let mut script = Script::default();
    let half = History::stamp(script.begin_write(15, 2));
    script.0.processes_ended();
    script.read(14, &[Value::ZERO, half, Value::ZERO]);
    assert_eq!(script.checker(), "none");
}

#[test]
fn a_refused_write_did_nothing() {
    let mut script = Script::default();
    let refused = script.begin_write(0, 1);
    script.0.refused(refused);
    script.read(0, &[History::stamp(refused)]);
    assert_eq!(script.checker(), "linearizability");
}

#[test]
fn a_snapshot_holds_what_there_was_at_one_instant() {
    // Block 0 was written before block 1: who shows the second shows the first.
    for (shown, verdict) in [([0, 0], "none"), ([1, 0], "none"), ([1, 1], "none"), ([0, 1], "linearizability")] {
        let mut script = Script::default();
        let snapshot = script.0.start(Action::Snapshot(vec![None; 2]), 0, 2);
        let values = [[Value::ZERO, script.write(0, 1)], [Value::ZERO, script.write(1, 1)]];
        script.0.done(snapshot);
        for (block, of) in values.iter().enumerate() {
            script.0.seen(snapshot, block, &[of[shown[block]]]).expect("looked at once");
        }
        assert_eq!(script.checker(), verdict, "{shown:?}");
    }
}

#[test]
fn a_snapshot_that_shows_what_was_written_after_it_is_found() {
    let mut script = Script::default();
    let snapshot = script.0.start(Action::Snapshot(vec![None; 2]), 0, 2);
    script.0.done(snapshot);
    let late = script.write(1, 1);
    script.0.seen(snapshot, 1, &[late]).expect("looked at once");
    assert_eq!(script.checker(), "linearizability");
}

#[test]
fn a_snapshot_that_changes_is_found() {
    let mut script = Script::default();
    let (one, two) = (script.write(0, 1), script.write(0, 1));
    let snapshot = script.0.start(Action::Snapshot(vec![None; 2]), 0, 2);
    script.0.done(snapshot);
    assert_eq!((script.0.seen(snapshot, 0, &[two]), script.0.held(snapshot)), (Ok(()), None));
    assert_eq!((script.0.seen(snapshot, 1, &[Value::ZERO]), script.0.seen(snapshot, 0, &[two])), (Ok(()), Ok(())));
    assert_eq!(script.0.held(snapshot), Some(vec![two, Value::ZERO]));
    assert_eq!(script.0.seen(snapshot, 0, &[one]), Err(Changed { block: 0, held: two, found: one }));
}

#[test]
fn a_rollback_is_a_write_of_what_the_snapshot_holds() {
    for (seen, verdict) in [(0, "none"), (1, "linearizability")] {
        let mut script = Script::default();
        let values = [script.write(0, 1), script.write(0, 1)];
        let rollback = script.0.start(Action::Restore(vec![values[0]]), 0, 1);
        script.0.done(rollback);
        script.read(0, &[values[seen]]);
        assert_eq!(script.checker(), verdict, "{seen}");
    }
}

#[test]
fn whether_a_snapshot_of_a_process_that_ended_was_taken_is_found_out() {
    for (was_done, verdict) in [(true, "linearizability"), (false, "none")] {
        let mut script = Script::default();
        script.write(0, 1);
        let snapshot = script.0.start(Action::Snapshot(vec![Some(Value::ZERO)]), 0, 1);
        script.0.processes_ended();
        script.0.found_out(snapshot, was_done);
        assert_eq!(script.checker(), verdict, "{was_done}");
    }
}

/// Tries every order of the operations of block 0.
fn some_order_fits(history: &History) -> bool {
    fn fits(history: &History, taken: u32, value: Value) -> bool {
        let operations = history.operations();
        let left = |index: usize| taken & (1 << index) == 0;
        if (0..operations.len()).all(|index| !left(index) || !operations[index].is_done()) {
            return true;
        }
        (0..operations.len()).filter(|index| left(*index)).any(|index| {
            let one = &operations[index];
            // Nothing that is left may have been over before this one was sent; what is unknown may be skipped.
            let late = |other: usize| left(other) && operations[other].latest().is_some_and(|end| end < one.start);
            if (0..operations.len()).any(|other| late(other) && operations[other].is_done()) {
                return false;
            }
            let skipped = (0..operations.len()).filter(|other| late(*other)).fold(0, |mask, other| mask | 1 << other);
            let next = match &one.action {
                Action::Write => History::stamp(OperationId(index as u32)),
                Action::Zero => Value::ZERO,
                Action::Restore(values) => values[0],
                Action::CompareAndWrite(expected) if expected[0] == value => History::stamp(OperationId(index as u32)),
                Action::CompareAndWrite(_) if one.is_done() => return false,
                Action::Read(values) if one.is_done() && values[0] != value => return false,
                Action::Snapshot(values) if one.is_done() && values[0] != Some(value) => return false,
                Action::CompareAndWrite(_) | Action::Read(_) | Action::Snapshot(_) => value,
            };
            fits(history, taken | 1 << index | skipped, next)
        })
    }
    fits(history, 0, Value::ZERO)
}

#[test]
fn random_histories_are_judged_as_by_trying_every_order() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..30_000 {
        let random = Random::new(seed);
        let mut history = History::default();
        let mut open: Vec<OperationId> = Vec::new();
        let mut writes = vec![Value::ZERO];
        while history.operations().len() < 7 {
            if !open.is_empty() && random.one_in(2) {
                let id = open.swap_remove(random.below(open.len() as u64) as usize);
                let value = writes[random.below(writes.len() as u64) as usize];
                match history.operations()[id.0 as usize].action {
                    Action::Read(_) => history.answered(id, vec![value]),
                    Action::Snapshot(_) => {
                        history.done(id);
                        assert_eq!(history.seen(id, 0, &[value]), Ok(()));
                    }
                    _ => history.done(id),
                }
                continue;
            }
            if random.one_in(10) {
                history.processes_ended();
                open.clear();
            }
            let action = match random.below(12) {
                0..3 => Action::Write,
                3 | 4 => Action::CompareAndWrite(vec![writes[random.below(writes.len() as u64) as usize]]),
                5 | 6 => Action::Zero,
                7 => Action::Restore(vec![writes[random.below(writes.len() as u64) as usize]]),
                8 => Action::Snapshot(vec![None]),
                _ => Action::Read(Vec::new()),
            };
            let write = matches!(action, Action::Write | Action::CompareAndWrite(_));
            let id = history.start(action, 0, 1);
            open.push(id);
            if write {
                writes.push(History::stamp(id));
            }
        }
        let expected = some_order_fits(&history);
        assert_eq!(linearizable::check(&history).is_ok(), expected, "seed {seed}: {:#?}", history.operations());
        if expected { good += 1 } else { bad += 1 }
    }
    assert!(good > 5_000 && bad > 5_000, "{good} good, {bad} bad: the test tests little");
}

#[test]
fn a_long_history_is_judged_in_time_linear_in_its_length() {
    let mut history = History::default();
    let random = Random::new(5);
    let mut model = vec![Value::ZERO; 64];
    for round in 0..200_000u32 {
        let block = random.below(64);
        if round % 1000 == 999 {
            // Left open for ever, and never read.
            history.start(Action::Write, block, 1);
            history.processes_ended();
        } else if random.one_in(2) {
            let id = history.start(Action::Write, block, 1);
            model[block as usize] = History::stamp(id);
            history.done(id);
        } else {
            let id = history.start(Action::Read(Vec::new()), block, 1);
            history.answered(id, vec![model[block as usize]]);
        }
    }
    assert_eq!(check(&history), Ok(()));
    assert!(history.operations().iter().any(|operation| matches!(operation.outcome, Outcome::Unknown(_))));
}

#[test]
fn what_may_come_at_any_time_is_judged_in_little_time() {
    let mut script = Script::default();
    for round in 0..400 {
        // None of them is ever answered. Each third write is seen, long after.
        script.begin_zero(0);
        let late = History::stamp(script.begin_write(0, 1));
        let known = script.write(0, 1);
        script.read(0, &[known]);
        match round % 3 {
            0 => script.read(0, &[late]),
            1 => script.read(0, &[Value::ZERO]),
            _ => script.zero(0),
        }
    }
    assert_eq!(script.checker(), "none");
}

#[test]
fn as_many_zeroes_are_used_as_were_sent() {
    for (sent, verdict) in [(2, "linearizability"), (3, "none")] {
        let mut script = Script::default();
        for _ in 0..sent {
            script.begin_zero(0);
        }
        for _ in 0..3 {
            let one = script.write(0, 1);
            script.read(0, &[one]);
            script.read(0, &[Value::ZERO]);
        }
        assert_eq!(script.checker(), verdict, "{sent}");
    }
}

#[test]
fn writes_of_unknown_outcome_that_are_brought_back_later_do_not_pile_up() {
    let mut script = Script::default();
    for _ in 0..200 {
        let late = History::stamp(script.begin_write(0, 1));
        script.read(0, &[late]);
        let known = script.write(0, 1);
        script.read(0, &[known]);
        // Whether it went back is not known: `late` may be there again at any time.
        let back = script.0.start(Action::Restore(vec![late]), 0, 1);
        script.read(0, &[late]);
        script.0.over(back);
    }
    assert_eq!(script.checker(), "none");
}

#[test]
fn snapshots_of_several_volumes_are_of_one_instant() {
    // Block 0 was written before block 100 of another volume: who shows the second shows the first.
    for (shown, verdict) in [([0, 0], "none"), ([1, 0], "none"), ([1, 1], "none"), ([0, 1], "linearizability")] {
        for are_together in [true, false] {
            let mut script = Script::default();
            let snapshots = [0, 100].map(|first| script.0.start(Action::Snapshot(vec![None; 1]), first, 1));
            if are_together {
                script.0.are_together(&snapshots);
            }
            let values = [[Value::ZERO, script.write(0, 1)], [Value::ZERO, script.write(100, 1)]];
            snapshots.iter().for_each(|snapshot| script.0.done(*snapshot));
            for ((snapshot, of), shown) in snapshots.iter().zip(&values).zip(shown) {
                script.0.seen(*snapshot, 0, &[of[shown]]).expect("looked at once");
            }
            assert_eq!(script.checker(), if are_together { verdict } else { "none" }, "{shown:?}");
        }
    }
}

/// Zeroes of one kind, sent again and again, whose outcomes nobody knows and whose process has ended: they are told by nobody
/// from each other, however many they are.
#[test]
fn zeroes_of_unknown_outcome_that_end_with_their_process_do_not_pile_up() {
    for (sent, verdict) in [(40, "none"), (100, "none"), (2, "linearizability")] {
        let mut script = Script::default();
        let zeroes: Vec<_> = (0..sent).map(|_| script.begin_zero(0)).collect();
        for _ in 0..3 {
            let one = script.write(0, 1);
            script.read(0, &[one]);
            script.read(0, &[Value::ZERO]);
        }
        assert_eq!(zeroes.len(), sent);
        script.0.processes_ended();
        assert_eq!(script.checker(), verdict);
    }
}

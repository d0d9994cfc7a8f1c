//! Ways through the states that broke a rule once, step by step: too long for a search to find them each time.

use model::{Action, Bounds, Flight, Group, State};
use replication::protocol::Message;
use stateright::Model;
use types::Mutant;

const P: usize = 0;
const A: usize = 1;
const Q: usize = 2;

/// Messages of two that answer each other.
const ANSWERS_MAX: usize = 12;

/// All in sync; reads are looked at, devices take their time.
const THREE: Bounds = Bounds {
    members: 3,
    min_in_sync: 2,
    begins_alone: false,
    writes: 4,
    crashes: 4,
    tail_losses: 0,
    ticks: 9,
    unanswered: 2,
    epochs: 20,
    changes: true,
    slow_devices: true,
    watches: true,
    resends: true,
    reads: true,
    ..Bounds::ALL[0].1
};

/// A state, and the ways on from there.
struct Way {
    group: Group,
    state: State,
}

impl Way {
    fn new(bounds: Bounds) -> Self {
        let group = Group::new(bounds);
        let state = group.init_states().swap_remove(0);
        Self { group, state }
    }

    /// Takes a step, if it is possible and changes anything.
    fn step(&mut self, action: Action) -> bool {
        let next = self.group.next_state(&self.state, action);
        next.is_some_and(|next| {
            self.state = next;
            true
        })
    }

    fn must(&mut self, action: Action) {
        let told = format!("{action:?}");
        assert!(self.step(action), "{told} changes nothing:\n{}", self.state.summary());
    }

    fn possible(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.group.actions(&self.state, &mut actions);
        actions
    }

    /// What is under way between two members and is such a message arrives, once each; whether anything changed.
    fn deliver(&mut self, sender: usize, receiver: usize, is_such: fn(&Message) -> bool) -> bool {
        let mut changed = false;
        for action in self.possible() {
            if let Action::Deliver(flight) = &action
                && let Flight::Message { from, to, message, .. } = &**flight
                && (*from, *to) == (sender, receiver)
                && is_such(message)
            {
                changed |= self.step(action);
            }
        }
        changed
    }

    /// Two members talk, and their devices write.
    fn talk(&mut self, one: usize, other: usize) {
        for _ in 0..ANSWERS_MAX {
            self.deliver(one, other, |_| true);
            self.deliver(other, one, |_| true);
            self.step(Action::Durable(one));
            self.step(Action::Durable(other));
        }
    }

    /// What this member asks of the map.
    fn asked(&self, member: usize) -> Option<Action> {
        let is_it = |action: &Action| matches!(action, Action::MapTakes(index, _, _, true) if *index == member);
        self.possible().into_iter().find(is_it)
    }

    fn asks(&self, member: usize) -> bool {
        self.asked(member).is_some()
    }

    /// The map takes what this member asks for, and answers.
    fn map_takes(&mut self, member: usize) {
        let asked = self.asked(member);
        self.must(asked.unwrap_or_else(|| panic!("{member} asks for nothing:\n{}", self.state.summary())));
    }

    /// A beat of `primary` reaches `other`, and its answer arrives.
    fn beat(&mut self, primary: usize, other: usize) {
        self.step(Action::Beat(primary, other));
        for action in self.possible() {
            if let Action::Deliver(flight) = &action
                && let Flight::Granted { from, to, .. } = &**flight
                && (*from, to.0) == (other, primary)
            {
                self.step(action);
            }
        }
    }
}

/// The way breaks the rule if it is broken on purpose, and only then.
fn check(mutant: Mutant, way: fn() -> Way) {
    let told = |way: &Way| format!("{:?}: {}", way.state.broken(), way.state.summary());
    let well = way();
    assert_eq!(well.state.broken(), None, "{}", told(&well));
    activate(Some(mutant));
    let broken = way();
    activate(None);
    if cfg!(feature = "mutants") {
        assert!(tell(mutant, broken.state.broken()), "{mutant:?} is not noticed: {}", told(&broken));
    }
}

#[cfg(feature = "mutants")]
fn activate(mutant: Option<Mutant>) {
    Mutant::activate(mutant);
}

#[cfg(feature = "mutants")]
fn tell(mutant: Mutant, rule: Option<&str>) -> bool {
    mutant.tell("a way through the model", rule.ok_or(&"no rule is broken".to_owned()))
}

#[cfg(not(feature = "mutants"))]
fn tell(_: Mutant, _: Option<&str>) -> bool {
    false
}

#[cfg(not(feature = "mutants"))]
fn activate(_: Option<Mutant>) {}

/// One after the other: there is one mutant for the whole process.
#[test]
fn ways_that_broke_a_rule_once() {
    check(Mutant::StartedWithoutLook, a_primary_restarts_before_its_first_entry);
    check(Mutant::DeposedGranted, a_primary_that_two_others_followed_is_still_beating);
    check(Mutant::LogShrinksInEpoch, a_longer_log_turns_up_after_a_shorter_one_was_acknowledged);
    check(Mutant::AgreementOutlivesFetch, two_agree_on_what_a_third_has_otherwise);
    check(Mutant::GrantForgottenByRestart, a_grant_outlives_the_member_that_gave_it);
}

/// A and Q let P read. A starts anew and wants to lead at once, while P reads on.
fn a_grant_outlives_the_member_that_gave_it() -> Way {
    let mut way = Way::new(THREE);
    way.beat(P, A);
    way.beat(P, Q);
    way.must(Action::Crash(A, None));
    way.must(Action::Start(A));
    way.must(Action::Campaign(A));
    if !way.asks(A) {
        // It waits; and when it need not any more, P does not read.
        way.must(Action::Tick);
        way.must(Action::Propose(A));
    }
    way.map_takes(A);
    way.talk(A, Q);
    way.must(Action::AskOver(A));
    way.must(Action::Remove(A, P));
    way.map_takes(A);
    way.talk(A, Q);
    way.must(Action::Write(A));
    way.talk(A, Q);
    way
}

/// A is out. Q takes over, puts P out and A in, and restarts before its log says any of it. Does it still follow P?
fn a_primary_restarts_before_its_first_entry() -> Way {
    let mut way = Way::new(THREE);
    way.must(Action::Remove(P, A));
    way.map_takes(P);
    way.talk(P, Q);
    // Q takes over; what it says does not reach P.
    way.must(Action::Tick);
    way.must(Action::Campaign(Q));
    way.step(Action::Tick);
    way.step(Action::Propose(Q));
    way.map_takes(Q);
    way.talk(Q, A);
    way.step(Action::AskOver(Q));
    way.talk(Q, A);
    way.must(Action::Remove(Q, P));
    way.map_takes(Q);
    way.talk(Q, A);
    way.step(Action::AskOver(Q));
    way.talk(Q, A);
    way.must(Action::Add(Q, A));
    // The map does it, and Q restarts before it hears that.
    let lost = way.possible().into_iter().find(|action| matches!(action, Action::MapTakes(Q, _, _, false)));
    way.must(lost.expect("it asks for A"));
    way.must(Action::Crash(Q, None));
    way.must(Action::Start(Q));
    way.must(Action::Write(P));
    way.must(Action::Durable(P));
    // What Q asked P in its earlier life is still under way.
    let is_answer = |message: &Message| !matches!(message, Message::Ask { .. } | Message::Prepare { .. });
    for _ in 0..ANSWERS_MAX {
        way.deliver(P, Q, |_| true);
        way.deliver(Q, P, is_answer);
        way.step(Action::Durable(Q));
    }
    way
}

/// Q takes over from P, then A from Q; P hears nothing but answers to its beats.
fn a_primary_that_two_others_followed_is_still_beating() -> Way {
    let mut way = Way::new(THREE);
    way.must(Action::Tick);
    way.must(Action::Campaign(Q));
    way.step(Action::Propose(Q));
    way.map_takes(Q);
    way.talk(Q, A);
    way.must(Action::Tick);
    way.beat(P, A);
    way.must(Action::Campaign(A));
    way.map_takes(A);
    way.talk(A, Q);
    way.must(Action::AskOver(A));
    way.must(Action::Remove(A, P));
    way.map_takes(A);
    way.talk(A, Q);
    // It leads with Q, and P beats within the same moment.
    way.must(Action::Write(A));
    way.talk(A, Q);
    way.beat(P, Q);
    way
}

/// P's entry reaches A late. Q led in between, and began where P had no entry that anybody told of.
fn an_entry_of_p_and_another_of_q() -> Way {
    let mut way = Way::new(THREE);
    way.must(Action::Write(P));
    way.must(Action::Tick);
    // A appends it, and neither A nor P has it durable yet.
    way.deliver(P, A, |_| true);
    way.must(Action::Campaign(Q));
    way.step(Action::Propose(Q));
    way.map_takes(Q);
    for other in [P, A] {
        way.deliver(Q, other, |message| matches!(message, Message::Ask { .. }));
        way.deliver(other, Q, |message| matches!(message, Message::Told { .. }));
    }
    way.must(Action::Durable(Q));
    // Q has begun, alone with that. Now the others' entry is durable, and P takes over again.
    way.must(Action::Durable(P));
    way.must(Action::Durable(A));
    way.must(Action::Tick);
    way.must(Action::Campaign(P));
    way.step(Action::Propose(P));
    way.map_takes(P);
    way
}

/// P goes on from its own log with A, which acknowledges; then Q tells what it holds.
fn a_longer_log_turns_up_after_a_shorter_one_was_acknowledged() -> Way {
    let mut way = an_entry_of_p_and_another_of_q();
    way.deliver(P, A, |message| matches!(message, Message::Ask { .. }));
    way.deliver(A, P, |message| matches!(message, Message::Told { .. }));
    way.must(Action::AskOver(P));
    way.must(Action::Resend(P, A));
    way.deliver(P, A, |message| matches!(message, Message::Prepare { .. }));
    // A's word is still under way. Q's arrives, and Q is asked for what it has.
    way.deliver(P, Q, |message| matches!(message, Message::Ask { .. }));
    way.deliver(Q, P, |message| matches!(message, Message::Told { .. }));
    way.deliver(P, Q, |message| matches!(message, Message::Fetch { .. }));
    way.deliver(Q, P, |message| matches!(message, Message::Fetched { .. }));
    way.step(Action::Durable(P));
    way.talk(P, Q);
    way.deliver(A, P, |message| matches!(message, Message::Prepared { .. }));
    way
}

/// All tell P at once; A has what P has, and Q something else, which is newer.
fn two_agree_on_what_a_third_has_otherwise() -> Way {
    let mut way = an_entry_of_p_and_another_of_q();
    for other in [A, Q] {
        way.deliver(P, other, |message| matches!(message, Message::Ask { .. }));
    }
    for other in [A, Q] {
        way.deliver(other, P, |message| matches!(message, Message::Told { .. }));
    }
    way.deliver(P, Q, |message| matches!(message, Message::Fetch { .. }));
    way.deliver(Q, P, |message| matches!(message, Message::Fetched { .. }));
    way.talk(P, Q);
    way
}

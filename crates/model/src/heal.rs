//! The faults stop: everybody is up, messages arrive, the map answers. Then a group serves again, by nothing but the
//! timers that docs/replication.md names.

use crate::actions::Action;
use crate::group::{Group, State, number, store};
use replication::protocol::Member;
use runtime::Instant;
use stateright::Model;
use types::StoreId;

/// Rounds of timers within which a group serves again: each is a beat.
const ROUNDS_MAX: usize = 40;

/// Messages that answer each other within a round.
const ANSWERS_MAX: usize = 12;

impl Group {
    /// The state after the faults have stopped: broken, if the group does not serve.
    pub(crate) fn healed(&self, mut state: State) -> State {
        // What was under way is lost, but for requests to the map.
        state.flights.clear();
        for round in 0..ROUNDS_MAX {
            state = self.round(state, round);
            if state.broken().is_some() || self.serves(&state) {
                return state;
            }
        }
        state.break_rule("it does not heal");
        state
    }

    fn round(&self, mut state: State, round: usize) -> State {
        self.act(&mut state, Action::Tick);
        for index in 0..self.members() {
            self.act(&mut state, Action::Start(index));
            self.act(&mut state, Action::Renew(index));
            self.act(&mut state, Action::Learn(index));
            self.timers(&mut state, index, round);
            self.ask_map(&mut state);
        }
        self.exchange(&mut state);
        // Time for histories is over.
        for index in 0..self.members() {
            if state.nodes[index].member.as_ref().is_some_and(|member| member.leads() && member.next_place().is_none())
            {
                self.act(&mut state, Action::AskOver(index));
            }
        }
        self.exchange(&mut state);
        state
    }

    /// The timers of one member.
    fn timers(&self, state: &mut State, index: usize, round: usize) {
        let others = (0..self.members()).filter(|other| *other != index);
        let Some(member) = &state.nodes[index].member else { return };
        if member.change_under_way() {
            self.act(state, Action::Unanswered(index));
        } else if member.leads() {
            for other in others {
                self.act(state, Action::Resend(index, other));
                self.act(state, Action::TellCommit(index, other));
                self.act(state, Action::Add(index, other));
                self.act(state, Action::Beat(index, other));
            }
        } else if self.is_headless(state, member, index) && round % self.members() == index {
            self.act(state, Action::Campaign(index));
        } else if let Some(member) = &mut state.nodes[index].member {
            member.abandon();
        }
    }

    /// Whether nobody leads, as a member can know: the life that the record names is over, or is its own, which does not.
    fn is_headless(&self, state: &State, member: &Member, index: usize) -> bool {
        let record = member.record();
        let primary: StoreId = record.primary;
        primary == store(index) || state.nodes[number(primary)].life != record.life
    }

    /// The map takes each request, and answers.
    fn ask_map(&self, state: &mut State) {
        for (index, record, over) in state.requests.clone() {
            self.act(state, Action::MapTakes(index, record, over, true));
        }
    }

    /// Messages arrive, and so do their answers; devices write, and the map answers.
    fn exchange(&self, state: &mut State) {
        for _ in 0..ANSWERS_MAX {
            for flight in std::mem::take(&mut state.flights) {
                self.act(state, Action::Deliver(flight));
            }
            (0..self.members()).for_each(|index| self.act(state, Action::Durable(index)));
            self.ask_map(state);
        }
    }

    fn act(&self, state: &mut State, action: Action) {
        let is_up = |index: usize| state.nodes[index].member.is_some();
        if matches!(action, Action::Start(index) if is_up(index)) {
            return;
        }
        if let Some(next) = self.next_state(state, action) {
            *state = next;
        }
    }

    /// A write is acknowledged and may be read, and everybody is in sync again.
    fn serves(&self, state: &State) -> bool {
        let Some(primary) = (0..self.members())
            .find(|index| state.nodes[*index].member.as_ref().is_some_and(|member| member.next_place().is_some()))
        else {
            return false;
        };
        if state.record.in_sync.len() < self.members() {
            return false;
        }
        let mut state = state.clone();
        self.act(&mut state, Action::Write(primary));
        self.exchange(&mut state);
        (0..self.members()).for_each(|other| self.act(&mut state, Action::Beat(primary, other)));
        self.exchange(&mut state);
        let node = &state.nodes[primary];
        let may_read = |member: &Member| member.may_read(state.now, Instant(u64::MAX));
        node.holds(&state.acknowledged)
            && state.acknowledged.len() == node.log.len()
            && node.member.as_ref().is_some_and(may_read)
    }
}

//! Two ways through the states: all of them, nearest first; and long ways, drawn from a seed.

use crate::actions::Action;
use crate::group::{Bounds, Group, State};
use stateright::{Checker, HasDiscoveries, Model};
use std::mem::discriminant;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

const POSSIBLE: [&str; 2] = Group::POSSIBLE;

/// What a search came to.
#[derive(Clone, Debug)]
pub struct Found {
    /// States looked at, and how many of them differ (of long ways: not known).
    pub states: usize,
    /// Different ones.
    pub different: usize,
    /// Steps from the first state to the furthest.
    pub depth: usize,
    /// What must be possible and was not seen.
    pub never_seen: Vec<&'static str>,
    /// The rule that was broken, and the way there.
    pub broken: Option<Broken>,
}

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which.
    pub rule: &'static str,
    /// The steps, each with what it led to.
    pub way: Vec<String>,
}

/// How far a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// States after which it ends.
    pub states: usize,
    /// Time after which it ends.
    pub time: Duration,
}

/// Looks at all states within the bounds, the nearest first, until a limit is reached or a rule broken.
pub fn all(bounds: Bounds, limits: Limits) -> Found {
    let builder = Group::new(bounds).checker().threads(threads()).target_state_count(limits.states);
    let builder = builder.timeout(limits.time).finish_when(HasDiscoveries::AnyFailures);
    found(builder.spawn_bfs().join())
}

/// Goes long ways, drawn from seeds from `seed` on, until a limit is reached or a rule broken.
pub fn long_ways(bounds: Bounds, limits: Limits, seed: u64) -> Found {
    let group = Group::new(bounds);
    let (begin, states, next) = (Instant::now(), AtomicUsize::new(0), AtomicU64::new(seed));
    let seen = POSSIBLE.map(|_| AtomicBool::new(false));
    let broken: Mutex<Option<(u64, Broken)>> = Mutex::new(None);
    let walk = || {
        while states.load(Relaxed) < limits.states && begin.elapsed() < limits.time {
            let seed = next.fetch_add(1, Relaxed);
            let way = Way::walk(&group, seed);
            states.fetch_add(way.0.len(), Relaxed);
            for (seen, property) in seen.iter().zip(group.properties().into_iter().skip(1)) {
                seen.fetch_or((property.condition)(&group, way.last()), Relaxed);
            }
            if let Some(rule) = way.last().broken() {
                let mut broken = broken.lock().expect("no walker panics");
                if broken.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                    *broken = Some((seed, Broken { rule, way: way.told() }));
                }
                return;
            }
        }
    };
    std::thread::scope(|scope| (0..threads()).for_each(|_| drop(scope.spawn(walk))));
    let never_seen = POSSIBLE.into_iter().zip(&seen).filter(|(_, seen)| !seen.load(Relaxed)).map(|(name, _)| name);
    let states = states.into_inner();
    let never_seen = never_seen.collect();
    let broken = broken.into_inner().expect("no walker panics").map(|(_, broken)| broken);
    Found { states, different: 0, depth: WAY_STEPS_MAX, never_seen, broken }
}

/// Steps of the longest way.
const WAY_STEPS_MAX: usize = 80;

/// Steps drawn from a seed, and the states that they led to.
struct Way(Vec<(State, Option<Action>)>);

impl Way {
    fn walk(group: &Group, seed: u64) -> Self {
        let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut way = Self(vec![(group.init_states().swap_remove(0), None)]);
        let mut actions = Vec::new();
        while way.0.len() <= WAY_STEPS_MAX && way.last().broken().is_none() {
            actions.clear();
            group.actions(way.last(), &mut actions);
            let next = loop {
                if actions.is_empty() {
                    return way;
                }
                let action = actions.swap_remove(draws.choose(&actions));
                if let Some(next) = way.step(group, &action).filter(|next| group.within_boundary(next)) {
                    break (next, Some(action));
                }
            };
            way.0.push(next);
        }
        way
    }

    /// The next state, if the step changes anything. An assertion that fails is a broken rule like any other.
    fn step(&self, group: &Group, action: &Action) -> Option<State> {
        let next = AssertUnwindSafe(|| group.next_state(self.last(), action.clone()));
        std::panic::catch_unwind(next).unwrap_or_else(|_| Some(self.last().clone().after_a_panic()))
    }

    fn last(&self) -> &State {
        &self.0.last().expect("it begins somewhere").0
    }

    fn told(&self) -> Vec<String> {
        let step = |(state, action): &(State, Option<Action>)| match action {
            Some(action) => format!("    {action:?}\n{}", state.summary()),
            None => state.summary(),
        };
        self.0.iter().map(step).collect()
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn found(checker: impl Checker<Group>) -> Found {
    let broken = checker.discovery(Group::RULES).map(|path| {
        let rule = path.last_state().broken().expect("that is what was discovered");
        let step = |(state, action): (State, Option<Action>)| match action {
            Some(action) => format!("{}\n    {action:?}", state.summary()),
            None => state.summary(),
        };
        Broken { rule, way: path.into_vec().into_iter().map(step).collect() }
    });
    let never_seen = Group::POSSIBLE.into_iter().filter(|name| checker.discovery(name).is_none()).collect();
    Found {
        states: checker.state_count(),
        different: checker.unique_state_count(),
        depth: checker.max_depth(),
        never_seen,
        broken,
    }
}

/// xorshift64*: the same ways for the same seed, whatever libraries change.
struct Draws(u64);

impl Draws {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as usize % count
    }

    /// Draws a kind of step first, then one of that kind: messages are many, and would leave no room for anything else; but
    /// every second step is one, if there are any, because they move things on.
    fn choose(&mut self, actions: &[Action]) -> usize {
        let mut kinds = Vec::new();
        for action in actions {
            if !kinds.contains(&discriminant(action)) {
                kinds.push(discriminant(action));
            }
        }
        let message = actions.iter().find(|action| matches!(action, Action::Deliver(_))).map(discriminant);
        let kind = match message {
            Some(message) if self.below(2) == 0 => message,
            _ => kinds[self.below(kinds.len())],
        };
        let of_kind: Vec<_> = (0..actions.len()).filter(|&index| discriminant(&actions[index]) == kind).collect();
        of_kind[self.below(of_kind.len())]
    }
}

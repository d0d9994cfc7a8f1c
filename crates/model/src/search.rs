//! Two ways through the states: all of them, nearest first; and long ways, drawn from a seed.

use crate::actions::{Action, GROUP_KINDS, KINDS};
use crate::group::{Bounds, Group, State};
use stateright::{Checker, HasDiscoveries, Model};
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

const POSSIBLE: [&str; 3] = Group::POSSIBLE;

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
            let mut way = Way::walk(&group, seed);
            states.fetch_add(way.0.len(), Relaxed);
            for (seen, property) in seen.iter().zip(group.properties().into_iter().skip(1)) {
                seen.fetch_or((property.condition)(&group, way.last()), Relaxed);
            }
            if seed % WAYS_PER_HEALING == 0 && way.last().broken().is_none() {
                way.heal(&group);
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

/// Of so many ways one ends with everybody up and the network fine: the group must serve again.
const WAYS_PER_HEALING: u64 = 4;

/// Steps drawn from a seed, and the states that they led to.
struct Way(Vec<(State, Option<Action>)>);

impl Way {
    fn walk(group: &Group, seed: u64) -> Self {
        let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut way = Self(vec![(group.init_states().swap_remove(0), None)]);
        let likings = Likings::draw(&mut draws, group);
        let mut actions = Vec::new();
        while way.0.len() <= WAY_STEPS_MAX && way.last().broken().is_none() {
            actions.clear();
            group.actions(way.last(), &mut actions);
            let next = loop {
                if actions.is_empty() {
                    return way;
                }
                let action = actions.swap_remove(likings.choose(&mut draws, &actions));
                if let Some(next) = way.step(group, &action).filter(|next| group.within_boundary(next)) {
                    break (next, Some(action));
                }
            };
            way.0.push(next);
        }
        way
    }

    /// The faults stop.
    fn heal(&mut self, group: &Group) {
        let healed = std::panic::catch_unwind(AssertUnwindSafe(|| group.healed(self.last().clone())));
        let healed = healed.unwrap_or_else(|_| self.last().clone().after_a_panic());
        self.0.push((healed, None));
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

    /// The index of one of these, each as often as its weight says; the first if none has any.
    fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum::<usize>().max(1));
        let chosen = weights.iter().position(|weight| {
            let is_it = left < *weight;
            left = left.saturating_sub(*weight);
            is_it
        });
        chosen.unwrap_or(0)
    }
}

/// What a way likes to do. Each way has likings of its own (swarm testing): where everything is equally likely, what takes a dozen steps
/// of few kinds never happens.
struct Likings {
    kinds: [usize; KINDS],
    members: Vec<usize>,
}

impl Likings {
    fn draw(draws: &mut Draws, group: &Group) -> Self {
        let mut kinds = [0; KINDS];
        kinds[..GROUP_KINDS].iter_mut().for_each(|kind| *kind = [0, 1, 2, 8][draws.below(4)]);
        // Without messages, durable entries and the map nothing moves on.
        [0, 2, 11].into_iter().for_each(|kind| kinds[kind] = [4, 16][draws.below(2)]);
        // Some are hard of hearing.
        let members = (0..group.members()).map(|_| [0, 1, 4, 4][draws.below(4)]).collect();
        if group.bounds.heads > 0 {
            kinds[GROUP_KINDS..].iter_mut().for_each(|kind| *kind = [1, 2, 8, 16][draws.below(4)]);
        }
        Self { kinds, members }
    }

    fn choose(&self, draws: &mut Draws, actions: &[Action]) -> usize {
        let (mut of_kind, kinds): (Vec<_>, Vec<_>) = (vec![0; KINDS], actions.iter().map(Action::kind).collect());
        kinds.iter().for_each(|(kind, at)| of_kind[*kind] += self.members[*at]);
        let present: Vec<_> = (0..KINDS).map(|kind| if of_kind[kind] > 0 { self.kinds[kind] } else { 0 }).collect();
        let chosen = draws.weighted(&present);
        let weights: Vec<_> =
            kinds.iter().map(|(kind, at)| if *kind == chosen { self.members[*at] } else { 0 }).collect();
        draws.weighted(&weights)
    }
}

//! What is hurt, when, and healed again: shell commands, one fault after the other.

use hazard::Running;
use std::time::{Duration, Instant};

/// A way to hurt something, and to heal it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Shell command.
    pub kill: String,
    /// Shell command; none: it heals by itself.
    pub heal: Option<String>,
}

/// Which, and when.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// In turn.
    pub faults: Vec<Fault>,
    /// From the beginning of one to that of the next, and before the first.
    pub every: Duration,
    /// From the end of what hurts to the beginning of what heals.
    pub kill_for: Duration,
}

/// What has just happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A fault begins: which.
    Begins(usize),
    /// It is over.
    Over,
    /// A command failed: what, and how. Nothing more is hurt.
    Failed(String),
}

#[derive(Debug)]
enum State {
    Whole,
    Killing(Running),
    Down(Instant),
    Healing(Running),
}

/// Faults that come and go.
#[derive(Debug)]
pub struct Faults {
    schedule: Schedule,
    state: State,
    /// The next one begins then; none: no more.
    next_at: Option<Instant>,
    begun: usize,
}

impl Faults {
    /// The first one comes after a while.
    pub fn new(schedule: Schedule) -> Self {
        let next_at = (!schedule.faults.is_empty()).then(|| Instant::now() + schedule.every);
        Self { schedule, state: State::Whole, next_at, begun: 0 }
    }

    /// No other fault begins; what is hurt is healed at once.
    pub fn end(&mut self) {
        self.next_at = None;
        if let State::Down(_) = self.state {
            self.state = State::Down(Instant::now());
        }
        self.schedule.kill_for = Duration::ZERO;
    }

    /// Whether nothing is hurt, and nothing runs.
    pub fn is_whole(&self) -> bool {
        matches!(self.state, State::Whole)
    }

    fn current(&self) -> &Fault {
        &self.schedule.faults[(self.begun - 1) % self.schedule.faults.len()]
    }

    /// Does what is due. Ask it often.
    pub fn turn(&mut self) -> Option<Event> {
        let now = Instant::now();
        match &mut self.state {
            State::Whole if self.next_at.is_some_and(|at| at <= now) => {
                self.next_at = Some(now + self.schedule.every);
                self.begun += 1;
                let kill = self.current().kill.clone();
                self.starts(&kill, State::Killing)
                    .or(Some(Event::Begins((self.begun - 1) % self.schedule.faults.len())))
            }
            State::Killing(running) => match running.end()? {
                Ok(()) => {
                    self.state = State::Down(now + self.schedule.kill_for);
                    None
                }
                Err(how) => {
                    // Whatever of it was done is healed.
                    let what = format!("`{}` {how}: without it nothing is shown", self.current().kill);
                    self.end();
                    self.state = State::Down(now);
                    Some(Event::Failed(what))
                }
            },
            State::Down(until) if *until <= now => match self.current().heal.clone() {
                Some(heal) => self.starts(&heal, State::Healing),
                None => self.is_over(),
            },
            State::Healing(running) => match running.end()? {
                Ok(()) => self.is_over(),
                Err(how) => self.fails(&self.current().heal.clone().unwrap_or_default(), &how),
            },
            State::Whole | State::Down(_) => None,
        }
    }

    fn is_over(&mut self) -> Option<Event> {
        self.state = State::Whole;
        Some(Event::Over)
    }

    fn starts(&mut self, command: &str, then: fn(Running) -> State) -> Option<Event> {
        match Running::start(command, &[]) {
            Ok(running) => {
                self.state = then(running);
                None
            }
            Err(how) => self.fails(command, &how),
        }
    }

    fn fails(&mut self, command: &str, how: &str) -> Option<Event> {
        self.end();
        self.state = State::Whole;
        Some(Event::Failed(format!("`{command}` {how}: what it was to do is not done")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_whole(faults: &mut Faults, events: usize) -> Vec<Event> {
        let mut seen = Vec::new();
        let began = Instant::now();
        while seen.len() < events || !faults.is_whole() {
            seen.extend(faults.turn());
            assert!(began.elapsed() < Duration::from_secs(20), "{seen:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        seen
    }

    fn faults(all: &[(&str, Option<&str>)], kill_for: Duration) -> Faults {
        let fault =
            |(kill, heal): &(&str, Option<&str>)| Fault { kill: (*kill).to_owned(), heal: heal.map(str::to_owned) };
        Faults::new(Schedule { faults: all.iter().map(fault).collect(), every: Duration::from_millis(20), kill_for })
    }

    #[test]
    fn faults_come_in_turn_and_are_healed() {
        let mut faults = faults(&[("true", Some("true")), ("true", None)], Duration::from_millis(1));
        let begins_and_ends = |which| [Event::Begins(which), Event::Over];
        assert_eq!(until_whole(&mut faults, 6), [begins_and_ends(0), begins_and_ends(1), begins_and_ends(0)].concat());
        faults.end();
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(faults.turn(), None);
    }

    #[test]
    fn what_is_hurt_at_the_end_is_healed_at_once() {
        let mut faults = faults(&[("true", Some("true"))], Duration::from_secs(3600));
        while faults.is_whole() {
            faults.turn();
        }
        faults.end();
        assert_eq!(until_whole(&mut faults, 1), [Event::Over]);
    }

    #[test]
    fn a_command_that_fails_is_told_and_nothing_more_is_hurt() {
        let mut faults = faults(&[("exit 3", Some("true"))], Duration::from_secs(3600));
        let seen = until_whole(&mut faults, 3);
        let Event::Failed(why) = &seen[1] else { panic!("{seen:?}") };
        assert!(why.starts_with("`exit 3` failed (exit status: 3)") && seen[2] == Event::Over, "{seen:?}");
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(faults.turn(), None);
    }
}

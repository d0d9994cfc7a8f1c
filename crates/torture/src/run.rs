//! All of it: the load, what is hurt meanwhile, and the verdict.

use crate::faults::{Event, Faults, Schedule};
use crate::finding::{Finding, Kind};
use crate::load::{Counts, Load, Plan, Stage};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(10);
const SAY_EVERY: Duration = Duration::from_secs(1);

/// What a torture is.
pub struct Torture {
    /// What is tortured, as it is called.
    pub name: String,
    /// The load.
    pub plan: Plan,
    /// What is hurt.
    pub schedule: Schedule,
    /// For so long; none: until it is interrupted.
    pub time: Option<Duration>,
    /// No command may wait for longer.
    pub hang_guard: Duration,
}

/// One fault that was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hurt {
    /// What hurt.
    pub kill: String,
    /// What healed.
    pub heal: Option<String>,
    /// When it began.
    pub began_ms: u64,
    /// Until it was healed; none: it was not.
    pub lasted_ms: Option<u64>,
    /// The longest that a read had waited that was answered from then on, until the next fault or the end.
    pub longest_read_ms: u64,
    /// The same of writes, zeroes, discards and flushes.
    pub longest_write_ms: u64,
    /// The longest time in which nothing was answered.
    pub no_answer_ms: u64,
    /// Commands that were sent again.
    pub sent_again: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was tortured.
    pub target: String,
    /// Where everything that was drawn came from.
    pub seed: u64,
    /// How long commands ran.
    pub ran_ms: u64,
    /// Workers.
    pub workers: usize,
    /// Bytes that were used.
    pub span_bytes: u64,
    /// The unit of the history.
    pub block_bytes: u64,
    /// Blocks that held something before.
    pub held_blocks: u64,
    /// Commands that were answered.
    pub commands: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Of these, writes, zeroes and discards.
    pub writes: u64,
    /// Of these, flushes.
    pub flushes: u64,
    /// Commands that were sent again.
    pub sent_again: u64,
    /// Attempts at a write that were given up: it is not known whether they were done.
    pub ambiguous: u64,
    /// The longest that a command has waited.
    pub longest_wait_ms: u64,
    /// Blocks that were read again at the end.
    pub read_again_blocks: u64,
    /// Operations that were judged.
    pub operations: u64,
    /// Histories, one after the other.
    pub histories: u64,
    /// What was hurt.
    pub faults: Vec<Hurt>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Whether nothing is.
    pub passed: bool,
}

/// Why nothing was judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TortureError {
    /// Somebody may need it.
    #[error(
        "{blocks} of the {of} blocks of {bytes} bytes that would be used hold something: take a volume that is empty, or say with \
         --overwrite that nobody needs it"
    )]
    Held { blocks: u64, of: u64, bytes: u64 },
    /// It could not be read.
    #[error("what is there could not be read: {0}")]
    Unread(String),
    /// The histories could not be kept.
    #[error("the history could not be kept: {0}: see that there is room")]
    NotKept(String),
}

/// A run.
struct Run {
    load: Load,
    faults: Faults,
    began: Instant,
    hurts: Vec<Hurt>,
    /// Resent when the current fault began.
    resent: u64,
    longest_wait: Duration,
    findings: Vec<Finding>,
    hang_guard: Duration,
}

impl Torture {
    /// Does it. `say` is told how it is, once a second; `is_interrupted`: there is enough.
    ///
    /// # Errors
    /// If nothing was judged.
    pub fn run(self, is_interrupted: &AtomicBool, mut say: impl FnMut(&str)) -> Result<Report, TortureError> {
        let Self { name, plan, schedule, time, hang_guard } = self;
        let (layout, seed, workers) = (plan.layout, plan.seed, plan.workers);
        let spares = plan.spares;
        let load = Load::start(plan);
        let (mut said, mut unread) = (Instant::now(), "it was interrupted".to_owned());
        while load.stage() == Stage::Reads && !load.has_ended() {
            let waits = load.longest_wait();
            if waits > hang_guard {
                unread = format!("a read has had no answer for {:.1} s", waits.as_secs_f64());
            }
            if is_interrupted.load(Ordering::Relaxed) || waits > hang_guard {
                load.abandon();
            }
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                say(&format!("reading what is there, {} bytes", layout.span_bytes()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let mut run = Run {
            load,
            faults: Faults::new(schedule.clone()),
            began: Instant::now(),
            hurts: Vec::new(),
            resent: 0,
            longest_wait: Duration::ZERO,
            findings: Vec::new(),
            hang_guard,
        };
        while !run.load.has_ended() {
            let is_over =
                time.is_some_and(|time| run.began.elapsed() >= time) || is_interrupted.load(Ordering::Relaxed);
            if is_over || run.load.wrong() > 0 || !run.findings.is_empty() {
                break;
            }
            run.turn(&schedule);
            run.says(&mut said, &mut say);
            std::thread::sleep(LOOK_EVERY);
        }
        let ran_ms = run.began.elapsed().as_millis() as u64;
        run.faults.end();
        while !run.faults.is_whole() {
            run.turn(&schedule);
            run.says(&mut said, &mut say);
            std::thread::sleep(LOOK_EVERY);
        }
        run.load.stop();
        while !run.load.has_ended() {
            run.looks();
            run.says(&mut said, &mut say);
            std::thread::sleep(LOOK_EVERY);
        }
        run.fault_ends();
        let Run { load, hurts, longest_wait, mut findings, .. } = run;
        say("judging");
        // It has ended.
        let outcome = load.finish(Duration::MAX);
        if spares && outcome.held > 0 {
            let bytes = layout.block_bytes;
            return Err(TortureError::Held { blocks: outcome.held, of: layout.blocks(), bytes });
        }
        if outcome.histories == 0 {
            return Err(TortureError::Unread(unread));
        }
        if let Some(why) = outcome.not_kept {
            return Err(TortureError::NotKept(why));
        }
        findings.extend(outcome.findings);
        let Counts { reads, writes, flushes, resent, ambiguous } = outcome.counts;
        Ok(Report {
            target: name,
            seed,
            ran_ms,
            workers,
            span_bytes: layout.span_bytes(),
            block_bytes: layout.block_bytes,
            held_blocks: outcome.held,
            commands: reads + writes + flushes,
            reads,
            writes,
            flushes,
            sent_again: resent,
            ambiguous,
            longest_wait_ms: longest_wait.as_millis() as u64,
            read_again_blocks: outcome.read_again,
            operations: outcome.operations,
            histories: outcome.histories,
            faults: hurts,
            passed: findings.is_empty(),
            findings,
        })
    }
}

impl Run {
    fn turn(&mut self, schedule: &Schedule) {
        self.looks();
        match self.faults.turn() {
            Some(Event::Begins(which)) => {
                self.fault_ends();
                self.load.longest();
                self.load.longest_gap();
                self.resent = self.load.resent();
                let fault = &schedule.faults[which];
                self.hurts.push(Hurt {
                    kill: fault.kill.clone(),
                    heal: fault.heal.clone(),
                    began_ms: self.began.elapsed().as_millis() as u64,
                    lasted_ms: None,
                    longest_read_ms: 0,
                    longest_write_ms: 0,
                    no_answer_ms: 0,
                    sent_again: 0,
                });
            }
            Some(Event::Over) => {
                let now = self.began.elapsed().as_millis() as u64;
                if let Some(hurt) = self.hurts.last_mut() {
                    hurt.lasted_ms = Some(now - hurt.began_ms);
                }
            }
            Some(Event::Failed(why)) => self.findings.push(Finding::new(Kind::Fault, why)),
            None => {}
        }
    }

    /// What is seen of the load goes to the fault that was last.
    fn fault_ends(&mut self) {
        let resent = self.load.resent() - self.resent;
        let (reads, writes) = self.load.longest();
        let gap = self.load.longest_gap();
        self.longest_wait = self.longest_wait.max(reads).max(writes);
        if let Some(hurt) = self.hurts.last_mut() {
            hurt.longest_read_ms = reads.as_millis() as u64;
            hurt.longest_write_ms = writes.as_millis() as u64;
            hurt.no_answer_ms = gap.as_millis() as u64;
            hurt.sent_again = resent;
        }
    }

    /// With an eye on what hangs.
    fn looks(&mut self) {
        let waits = self.load.longest_wait();
        self.longest_wait = self.longest_wait.max(waits);
        let is_told = self.findings.iter().any(|finding| finding.kind == Kind::Hung);
        if waits > self.hang_guard && !is_told && !self.load.has_ended() {
            let text = format!("a command has had no answer for {:.1} s", waits.as_secs_f64());
            self.findings.push(Finding::new(Kind::Hung, text));
            self.load.abandon();
        }
    }

    fn says(&self, said: &mut Instant, say: &mut impl FnMut(&str)) {
        if said.elapsed() < SAY_EVERY {
            return;
        }
        *said = Instant::now();
        let stage = match self.load.stage() {
            Stage::ReadsAgain => ", all is read again",
            Stage::Reads | Stage::Runs if self.faults.is_whole() => "",
            Stage::Reads | Stage::Runs => ", the last is not over",
        };
        say(&format!(
            "{} s: {} answered, {} sent again, longest wait {:.1} s, faults: {}{stage}",
            self.began.elapsed().as_secs(),
            self.load.completed(),
            self.load.resent(),
            self.longest_wait.as_secs_f64(),
            self.hurts.len()
        ));
    }
}

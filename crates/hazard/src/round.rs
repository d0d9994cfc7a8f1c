//! The play.

use crate::paths::Paths;
use crate::relay::Relay;
use crate::stamp::{BLOCK_BYTES, Stamp};
use crate::{Freeze, GHOSTS_TOLD_MAX, Ghost, HazardError, Plan, Report, Round, hook};
use runtime::{Instant, IoBuf, SharedBuf, now, random_u64, sleep, spawn};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Writes before the freeze, so that some are at every place of the target when it comes.
const BEFORE: Duration = Duration::from_secs(1);
/// Newer writes of each block whose write hung, before the path thaws.
const OVERWRITES: u64 = 2;
/// A path that is frozen leaves somebody without an answer by so long after the host's patience.
const FREEZES_WITHIN: Duration = Duration::from_secs(5);
/// Where bytes are held back: some 4 KiB and a command more pass, so that the end is in the midst of one.
const PASSES_MAX: u64 = 3 * 4168;
/// Between the thaw and the host's next connection there: what had been sent on the old one comes first.
const THAWED: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(10);

struct Block {
    /// The write that was begun last, and the one that was acknowledged last.
    begun: Cell<u64>,
    acknowledged: Cell<u64>,
}

/// What the workers of a round have done.
#[derive(Default)]
struct Tally {
    running: Cell<usize>,
    hanging: Cell<u64>,
    resubmitted: Cell<u64>,
    overwritten: Cell<u64>,
    /// First acknowledgement of a write that had hung.
    elsewhere: Cell<Option<Instant>>,
    failed: RefCell<Option<HazardError>>,
}

struct Play {
    plan: Plan,
    paths: Rc<Paths>,
    relays: Vec<Relay>,
    run: u64,
    stride_bytes: u64,
    blocks: Vec<Block>,
    written: Cell<u64>,
    say: Box<dyn Fn(&str)>,
}

fn add(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

/// Plays all rounds.
pub(crate) async fn play(plan: Plan, say: Box<dyn Fn(&str)>) -> Result<Report, HazardError> {
    let relays: Vec<Relay> = match plan.freeze {
        Freeze::Hooks(_) => Vec::new(),
        Freeze::Held => plan.paths.iter().map(|path| Relay::new(*path)).collect::<Result<_, _>>().map_err(here)?,
    };
    let reached: Vec<_> = match plan.freeze {
        Freeze::Hooks(_) => plan.paths.clone(),
        Freeze::Held => relays.iter().map(Relay::address).collect(),
    };
    let paths = Paths::new(&plan, &reached);
    paths.wait(plan.patience.min(Duration::from_secs(30))).await?;
    let (size_bytes, format) = paths.size().expect("two paths are there");
    let there = size_bytes / BLOCK_BYTES as u64;
    if !(BLOCK_BYTES as u32).is_multiple_of(format) {
        return Err(HazardError::Format(format));
    }
    if there < plan.blocks || plan.blocks < plan.depth {
        return Err(HazardError::Small { blocks: there, wanted: plan.blocks.max(plan.depth) });
    }
    let play = Rc::new(Play {
        stride_bytes: there / plan.blocks * BLOCK_BYTES as u64,
        blocks: (0..plan.blocks).map(|_| Block { begun: Cell::new(0), acknowledged: Cell::new(0) }).collect(),
        run: random_u64(),
        written: Cell::new(0),
        paths,
        relays,
        plan,
        say,
    });
    let mut report = Report::default();
    // Each block holds something of this run before anything is read.
    for block in 0..play.plan.blocks {
        play.write(block, &Tally::default()).await?;
    }
    for number in 1..=play.plan.rounds {
        play.clone().round(number, &mut report).await?;
    }
    report.written = play.written.get();
    play.paths.close();
    Ok(report)
}

fn here(error: std::io::Error) -> HazardError {
    HazardError::Here(error.to_string())
}

impl Play {
    async fn round(self: Rc<Self>, number: u32, report: &mut Report) -> Result<(), HazardError> {
        self.paths.wait(self.plan.patience).await?;
        let tally = Rc::new(Tally::default());
        for worker in 0..self.plan.depth {
            tally.running.set(tally.running.get() + 1);
            spawn(self.clone().work(worker, tally.clone()));
        }
        sleep(BEFORE).await;
        let frozen = self.paths.current();
        let address = self.paths.address(frozen);
        (self.say)(&format!("round {number}: {address} freezes"));
        let began = now();
        let went_on = match self.freeze(frozen).await {
            Ok(()) => self.others_go_on(frozen, began, &tally).await,
            Err(error) => Err(error),
        };
        let mut ghosts_before = Ok(());
        if went_on.is_ok() {
            ghosts_before = self.read_all(number, None, &mut Round::default(), report).await;
        }
        // Whatever became of it: who was frozen goes on.
        let frozen_ms = now().since(began).as_millis() as u64;
        let thaw = self.thaw(frozen).await;
        let thawed = now();
        went_on?;
        ghosts_before?;
        thaw?;
        let mut round = Round {
            frozen: address.to_string(),
            hanging: tally.hanging.get(),
            resubmitted: tally.resubmitted.get(),
            overwritten: tally.overwritten.get(),
            other_path_ms: tally.elsewhere.get().map_or(0, |at| at.since(began).as_millis() as u64),
            frozen_ms,
            read: (0..self.paths.count()).map(|path| (self.paths.address(path).to_string(), 0)).collect(),
            ..Round::default()
        };
        (self.say)(&format!(
            "round {number}: it thaws after {frozen_ms} ms; {} writes hung on it, and were done and overwritten elsewhere",
            round.hanging
        ));
        let mut is_back = false;
        while now().since(thawed) < self.plan.watch {
            if !is_back && now().since(thawed) > THAWED {
                self.paths.come_back(frozen);
                is_back = true;
            }
            self.read_all(number, Some(thawed), &mut round, report).await?;
            sleep(LOOK_EVERY).await;
        }
        self.paths.come_back(frozen);
        if let Some(relay) = self.relays.get(frozen) {
            (round.held_bytes, round.refused_bytes) = relay.counts();
        }
        if round.read.iter().all(|(_, reads)| *reads == 0) {
            return Err(HazardError::NothingRead(round.frozen));
        }
        report.rounds.push(round);
        Ok(())
    }

    async fn freeze(&self, path: usize) -> Result<(), HazardError> {
        match &self.plan.freeze {
            Freeze::Hooks(hooks) => hook::run(&hooks.freeze, self.paths.address(path)).await,
            Freeze::Held => {
                self.relays[path].hold((random_u64() % PASSES_MAX) as usize);
                Ok(())
            }
        }
    }

    async fn thaw(&self, path: usize) -> Result<(), HazardError> {
        match &self.plan.freeze {
            Freeze::Hooks(hooks) => hook::run(&hooks.thaw, self.paths.address(path)).await,
            Freeze::Held => {
                self.relays[path].release();
                Ok(())
            }
        }
    }

    /// Until what hung was done elsewhere, and newer writes after it.
    async fn others_go_on(&self, frozen: usize, began: Instant, tally: &Tally) -> Result<(), HazardError> {
        let address = self.paths.address(frozen).to_string();
        while tally.running.get() > 0 {
            if let Some(error) = tally.failed.take() {
                return Err(error);
            }
            let waited = now().since(began);
            if !self.paths.is_left(frozen) && waited > self.plan.give_up + FREEZES_WITHIN {
                return Err(HazardError::NotFrozen(address));
            }
            if waited > self.plan.patience {
                return Err(HazardError::NobodyElse { frozen: address, seconds: self.plan.patience.as_secs() });
            }
            sleep(LOOK_EVERY).await;
        }
        match tally.failed.take() {
            Some(error) => Err(error),
            None if tally.hanging.get() == 0 => Err(HazardError::NotFrozen(address)),
            None => Ok(()),
        }
    }

    /// Writes its blocks in turn, until its write hangs on a path; writes that block again, and ends.
    async fn work(self: Rc<Self>, worker: u64, tally: Rc<Tally>) {
        let its: Vec<u64> = (worker..self.plan.blocks).step_by(self.plan.depth as usize).collect();
        for block in its.into_iter().cycle() {
            match self.write(block, &tally).await {
                Ok(false) if (0..self.paths.count()).all(|path| !self.paths.is_left(path)) => {}
                Ok(false) => break,
                Ok(true) => {
                    for _ in 0..OVERWRITES {
                        match self.write(block, &tally).await {
                            Ok(_) => add(&tally.overwritten),
                            Err(error) => *tally.failed.borrow_mut() = Some(error),
                        }
                    }
                    break;
                }
                Err(error) => {
                    *tally.failed.borrow_mut() = Some(error);
                    break;
                }
            }
        }
        tally.running.set(tally.running.get() - 1);
    }

    /// Writes the next contents of a block; whether that hung on a path before it was done on another.
    async fn write(&self, block: u64, tally: &Tally) -> Result<bool, HazardError> {
        let of = &self.blocks[block as usize];
        add(&of.begun);
        let done = self.paths.write(block * self.stride_bytes, &self.contents(block, of.begun.get())).await?;
        of.acknowledged.set(of.begun.get());
        add(&self.written);
        let has_hung = done.hung_on.iter().any(|path| *path != done.path);
        if has_hung {
            add(&tally.hanging);
            add(&tally.resubmitted);
            tally.elsewhere.set(tally.elsewhere.get().or(Some(now())));
        }
        Ok(has_hung)
    }

    fn stamp(&self, block: u64, write: u64) -> Stamp {
        Stamp { run: self.run, block, write }
    }

    fn contents(&self, block: u64, write: u64) -> SharedBuf {
        let mut buf = IoBuf::new(BLOCK_BYTES);
        self.stamp(block, write).fill(&mut buf);
        buf.freeze()
    }

    /// Reads every block through every path that serves it. Nothing is written meanwhile.
    async fn read_all(
        &self,
        number: u32,
        thawed: Option<Instant>,
        round: &mut Round,
        report: &mut Report,
    ) -> Result<(), HazardError> {
        for path in 0..self.paths.count() {
            for (block, of) in (0..).zip(&self.blocks) {
                let offset_bytes = block * self.stride_bytes;
                let Some(bytes) = self.paths.read(path, offset_bytes).await? else { break };
                if let Some((_, reads)) = round.read.get_mut(path) {
                    *reads += 1;
                }
                let acknowledged = of.acknowledged.get();
                let Some(found) = self.stamp(block, acknowledged).differs(&bytes) else { continue };
                report.ghost_reads += 1;
                if report.ghosts.len() < GHOSTS_TOLD_MAX {
                    let after_thaw_ms = thawed.map(|at| now().since(at).as_millis() as u64);
                    let path = self.paths.address(path).to_string();
                    report.ghosts.push(Ghost { round: number, path, offset_bytes, acknowledged, found, after_thaw_ms });
                }
            }
        }
        Ok(())
    }
}

//! Workloads: what is done in a world, and what is asked of it afterwards.

pub mod cluster;
pub mod hosts;
pub mod store;
pub mod volume;

use ::store::format::UNIT_BYTES;
use checker::Violation;
use checker::history::History;
use runtime::sim::{Stopped, World};
use std::collections::BTreeSet;
use std::time::Duration;
use types::Mutant;

/// Something to run from a seed.
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Crashes of one run unless told otherwise.
    pub default_crashes: u32,
    /// Runs it.
    pub run: fn(&RunOptions) -> Result<Report, Failure>,
    /// The faults of a run that can be left out, one line each; the first is number 1.
    pub faults: fn(&RunOptions) -> Vec<String>,
    /// How many operations its clients begin, where a run can be told to have fewer.
    pub operations: fn(&RunOptions) -> Option<u64>,
    /// The deliberate bugs that it must catch.
    pub mutants: &'static [Mutant],
}

/// All there are.
pub const WORKLOADS: &[Workload] =
    &[store::WORKLOAD, volume::WORKLOAD, cluster::WORKLOAD, cluster::HEADS, hosts::WORKLOAD];

/// Of a workload whose faults happen as it goes on.
fn no_faults(_: &RunOptions) -> Vec<String> {
    Vec::new()
}

/// Of a workload whose clients go on until they are stopped.
fn no_count(_: &RunOptions) -> Option<u64> {
    None
}

impl Workload {
    /// The one with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }
}

/// Runs the world until `over`. Where disks may hang (`may_rest`), also if nothing is left to happen.
fn run_until(world: &World, may_rest: bool, over: impl Fn() -> bool) -> Result<(), Stopped> {
    match world.run_until(over) {
        Err(Stopped::Idle) if may_rest => Ok(()),
        result => result,
    }
}

/// How much less of a device a volume's blocks take, as they are compressed.
fn saved_units(usage: &::volume::VolumeUsage) -> u64 {
    (usage.unique_bytes + usage.shared_bytes - usage.stored_bytes) / UNIT_BYTES as u64
}

/// What one run is told.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Everything follows from it.
    pub seed: u64,
    /// How often something is crashed or killed.
    pub crashes: u32,
    /// Whether every event is printed.
    pub trace: bool,
    /// Whether the story of the run is told: less than every event, and readable.
    pub story: bool,
    /// Numbers of faults that are left out.
    pub without: BTreeSet<u32>,
    /// Clients begin no more operations than this.
    pub operations: Option<u64>,
}

impl RunOptions {
    /// A seed, all of it, in silence.
    pub fn new(seed: u64, crashes: u32) -> Self {
        Self { seed, crashes, trace: false, story: false, without: BTreeSet::new(), operations: None }
    }

    /// A world for this run.
    pub fn world(&self) -> World {
        let world = World::new(self.seed);
        if self.trace {
            world.set_trace_sink(Some(Box::new(|event| eprintln!("{event}"))));
        }
        world
    }
}

/// What a run did, if it went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations that clients sent.
    pub operations: u64,
    /// Of those, the ones that were acknowledged or answered.
    pub answered: u64,
    /// Crashes and kills.
    pub crashes: u64,
    /// How often disks lied: bits that turned, writes lost or misplaced.
    pub lies: u64,
    /// Segments that were cleaned.
    pub cleaned: u64,
    /// Starts that reported damage: the end of a run.
    pub damaged: u64,
    /// Snapshots taken.
    pub snapshots: u64,
    /// Rollbacks to one of them.
    pub rollbacks: u64,
    /// Times that snapshots of several volumes were taken at one instant.
    pub instants: u64,
    /// Moves of volumes by order.
    pub moves: u64,
    /// Volumes that came to lie in other groups.
    pub relocations: u64,
    /// Times that an NBD client was answered by another node than before.
    pub nbd_moves: u64,
    /// Volumes that were encrypted, as a node said at the end.
    pub encrypted: u64,
    /// Units of 512 bytes that blocks took less at the end, as they were compressed.
    pub saved_units: u64,
    /// Volumes whose group did not serve while others of their controller did.
    pub sick: u64,
    /// Orders about nodes and devices that were begun, by kind ([`hosts::ORDERS`]).
    pub orders: [u64; hosts::ORDERS.len()],
    /// Nodes that left for good, each for another one.
    pub removals: u64,
    /// Blocks of copies that were read from their devices and compared with the other copies.
    pub compared: u64,
    /// Compare-and-writes that were done, and those of them that touched two chunks.
    pub swaps: u64,
    /// See [`swaps`](Self::swaps).
    pub wide_swaps: u64,
    /// Writes that were acknowledged while the map was away.
    pub without_map: u64,
    /// Clones that were written to.
    pub clones: u64,
    /// Times that a volume grew.
    pub growths: u64,
    /// Volumes that were deleted, for good or into the trash.
    pub deletions: u64,
    /// Times that an encrypted volume was locked.
    pub locks: u64,
    /// Times that a device refused new blocks.
    pub full: u64,
    /// Operations refused because of what is stored where they lie.
    pub damaged_reads: u64,
    /// Stores that failed while they served, and said so.
    pub failed_stores: u64,
    /// Faults by kind ([`cluster::KINDS`]).
    pub faults: [u64; cluster::KINDS.len()],
    /// Members of groups that were replaced.
    pub replaced: u64,
    /// Reigns of primaries.
    pub reigns: u64,
    /// Frames and fields that only a later release has, which nodes of it have heard beside others that do not know them.
    pub rehearsed: u64,
    /// Attempts of heads at groups that are led elsewhere.
    pub far: u64,
    /// Commands that hosts sent again, and times that they reset a controller for want of an answer.
    pub resent: u64,
    /// See [`resent`](Self::resent).
    pub resets: u64,
    /// Times that all members of a cluster were asked what must always hold.
    pub looks: u64,
    /// Time that passed in the world, where the workload says so.
    pub virtual_time: Duration,
    /// Longest that a cluster took to heal.
    pub healed_in: Duration,
    /// The world's trace hash at the end.
    pub trace_hash: u64,
    /// Events in that trace.
    pub trace_events: u64,
}

impl Report {
    /// What a history tells of the operations.
    pub fn of(history: &History) -> Self {
        let operations = history.operations();
        let answered = operations.iter().filter(|operation| operation.is_done()).count() as u64;
        Self { operations: operations.len() as u64, answered, ..Self::default() }
    }

    /// Counts added up; the hashes of several runs folded in the order of the seeds.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.answered += other.answered;
        self.crashes += other.crashes;
        self.lies += other.lies;
        self.cleaned += other.cleaned;
        self.damaged += other.damaged;
        self.snapshots += other.snapshots;
        self.rollbacks += other.rollbacks;
        self.instants += other.instants;
        self.moves += other.moves;
        self.relocations += other.relocations;
        self.nbd_moves += other.nbd_moves;
        self.encrypted += other.encrypted;
        self.saved_units += other.saved_units;
        self.sick += other.sick;
        self.orders.iter_mut().zip(other.orders).for_each(|(all, one)| *all += one);
        self.removals += other.removals;
        self.compared += other.compared;
        self.swaps += other.swaps;
        self.wide_swaps += other.wide_swaps;
        self.without_map += other.without_map;
        self.clones += other.clones;
        self.growths += other.growths;
        self.deletions += other.deletions;
        self.locks += other.locks;
        self.full += other.full;
        self.damaged_reads += other.damaged_reads;
        self.failed_stores += other.failed_stores;
        self.faults.iter_mut().zip(other.faults).for_each(|(all, one)| *all += one);
        self.replaced += other.replaced;
        self.reigns += other.reigns;
        self.rehearsed += other.rehearsed;
        self.far += other.far;
        self.resent += other.resent;
        self.resets += other.resets;
        self.looks += other.looks;
        self.virtual_time += other.virtual_time;
        self.healed_in = self.healed_in.max(other.healed_in);
        self.trace_events += other.trace_events;
        self.trace_hash = self.trace_hash.rotate_left(1) ^ other.trace_hash;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} crashes, {} operations ({} answered), ", self.crashes, self.operations, self.answered)?;
        write!(f, "{} segments cleaned, {} times full, ", self.cleaned, self.full)?;
        write!(f, "{} snapshots, {} rollbacks, {} clones, ", self.snapshots, self.rollbacks, self.clones)?;
        write!(f, "{} growths, {} deletions, {} locks, ", self.growths, self.deletions, self.locks)?;
        write!(f, "{} units saved by compression, ", self.saved_units)?;
        write!(f, "{} lies of disks ({} damaged reads, ", self.lies, self.damaged_reads)?;
        write!(f, "{} runs ended by damage), {} failed stores, ", self.damaged, self.failed_stores)?;
        if self.virtual_time > Duration::ZERO {
            write!(f, "{} members replaced, ", self.replaced)?;
            write!(f, "{} moves, {} relocations, ", self.moves, self.relocations)?;
            write!(f, "{} instants, {} NBD moves, ", self.instants, self.nbd_moves)?;
            for (kind, count) in hosts::ORDERS.iter().zip(self.orders).filter(|(_, count)| *count > 0) {
                write!(f, "{count} {kind}, ")?;
            }
            write!(
                f,
                "{} removals, {} encrypted volumes, {} sick volumes, ",
                self.removals, self.encrypted, self.sick
            )?;
            write!(f, "{} blocks compared, ", self.compared)?;
            write!(f, "{} compare-and-writes ({} over two chunks), ", self.swaps, self.wide_swaps)?;
            write!(f, "{} writes without the map, ", self.without_map)?;
            write!(f, "{} asked afar, {} sent again, {} controllers reset, ", self.far, self.resent, self.resets)?;
            write!(f, "{} reigns, {} looks at all members, ", self.reigns, self.looks)?;
            write!(f, "{} words of a later release, ", self.rehearsed)?;
            write!(f, "{:.2} virtual hours, ", self.virtual_time.as_secs_f64() / 3600.0)?;
            write!(f, "healed within {:.1} s, ", self.healed_in.as_secs_f64())?;
        }
        for (kind, count) in cluster::KINDS.iter().zip(self.faults).filter(|(_, count)| *count > 0) {
            write!(f, "{count} {kind}, ")?;
        }
        write!(f, "{} events, trace {:016x}", self.trace_events, self.trace_hash)
    }
}

/// Why a run failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{checker}: {message}")]
pub struct Failure {
    /// What noticed: a checker, an assertion, or the workload's own comparison.
    pub checker: &'static str,
    /// What it noticed.
    pub message: String,
}

impl Failure {
    /// A failure that `checker` found.
    pub fn new(checker: &'static str, message: impl std::fmt::Display) -> Self {
        Self { checker, message: message.to_string() }
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Self::new(violation.checker(), violation)
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        Self::new("liveness", stopped)
    }
}

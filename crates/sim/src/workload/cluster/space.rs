//! Space: refused only where a device may be full, and counted exactly.

use super::heal::{Place, places_of};
use super::layout::Layout;
use super::machine::Machine;
use super::task::leaf_of;
use crate::workload::Failure;
use checker::history::{Action, Operation, Value};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use store::Usage;
use types::{BLOCK_BYTES, BLOCKS_PER_CHUNK, ChunkId};

/// A store that takes no new blocks holds at least so much of what it may.
const NEARLY_FULL_PERCENT: u64 = 90;
/// Looks for which is remembered that it did: beats say so later, the more so while nodes stand still.
const LOOKS_REMEMBERED: u64 = 200;

/// How full the stores of a group are, as far as they are open.
fn usages(layout: &Layout, machines: &[Rc<Machine>], group: usize) -> Vec<(usize, Option<Usage>)> {
    let usage = |store: &usize| {
        let process = machines[layout.stores[*store].node].process();
        let usage = process.and_then(|process| Some(process.stores.borrow().get(store)?.usage()));
        (*store, usage)
    };
    layout.groups[group].members().iter().map(usage).collect()
}

/// Which stores may have said lately that they take no new blocks.
#[derive(Default)]
pub struct Full {
    looks: Cell<u64>,
    /// By store: the last look at which it was nearly full, or not open.
    seen: RefCell<BTreeMap<usize, u64>>,
}

impl Full {
    /// Looks how full the stores are.
    ///
    /// # Errors
    /// One holds more than its device has. What is kept back may be used: primaries hear of a full member with the next
    /// beat only, and of the smallest devices that is as much as a quarter of a second brings.
    pub fn look(&self, layout: &Layout, machines: &[Rc<Machine>]) -> Result<(), Failure> {
        self.looks.set(self.looks.get() + 1);
        for group in 0..layout.groups.len() {
            for (store, usage) in usages(layout, machines, group) {
                if usage.as_ref().is_none_or(is_nearly_full) {
                    self.seen.borrow_mut().insert(store, self.looks.get());
                }
                let holds_too_much =
                    |usage: &Usage| usage.live_bytes > usage.capacity_bytes || usage.used_bytes > usage.capacity_bytes;
                if let Some(usage) = usage.filter(holds_too_much) {
                    return Err(Failure::new("space", format!("store {store} holds more than it can: {usage:?}")));
                }
            }
        }
        Ok(())
    }

    /// Whether a member may have said that it takes no new blocks: now, or lately, for others know it by a beat.
    pub fn may_be(&self, layout: &Layout, machines: &[Rc<Machine>], group: usize) -> bool {
        let is_recent = |store: &usize| {
            self.seen.borrow().get(store).is_some_and(|seen| self.looks.get() - seen <= LOOKS_REMEMBERED)
        };
        let now = usages(layout, machines, group);
        now.iter().any(|(store, usage)| is_recent(store) || usage.as_ref().is_none_or(is_nearly_full))
    }
}

fn is_nearly_full(usage: &Usage) -> bool {
    usage.live_bytes * 100 >= usage.new_blocks_until_bytes * NEARLY_FULL_PERCENT
}

/// For whoever reads about a failure.
pub fn describe(layout: &Layout, machines: &[Rc<Machine>], group: usize) -> String {
    let line = |(store, usage): &(usize, Option<Usage>)| format!("\n  store {store}: {usage:?}");
    usages(layout, machines, group).iter().map(line).collect()
}

/// What waits in the shards of a group's stores, for whoever reads about a failure.
pub fn queues(layout: &Layout, machines: &[Rc<Machine>], group: usize) -> String {
    let line = |place: Place| {
        let (lengths, said) = place.machine.node.look(place.core, || {
            let statistics = place.shard.store().statistics();
            (place.shard.lengths(), format!("{statistics:?}"))
        });
        format!("\n  store {}: {lengths:?}, {said}", place.store)
    };
    places_of(layout, machines, group).into_iter().map(line).collect()
}

/// Blocks of each chunk that are not zeroes, by reads of all of them.
pub fn stored_blocks(reads: &[Operation]) -> BTreeMap<ChunkId, u64> {
    let mut stored = BTreeMap::new();
    for operation in reads.iter().filter(|operation| operation.is_done()) {
        let Action::Read(values) = &operation.action else { continue };
        let chunk = ChunkId((operation.first_block / u64::from(BLOCKS_PER_CHUNK)) as u32);
        *stored.entry(chunk).or_default() += values.iter().filter(|value| **value != Value::ZERO).count() as u64;
    }
    stored
}

/// `left`: stores that have more, of groups that left them.
/// Every member counts as many blocks of each chunk of its groups as there are, and its store as many bytes as all of
/// them have.
///
/// # Errors
/// Which one does not.
pub fn is_exact(
    layout: &Layout,
    machines: &[Rc<Machine>],
    groups: &[usize],
    stored: &BTreeMap<ChunkId, u64>,
    left: &BTreeSet<usize>,
) -> Result<(), Failure> {
    let mut of_store: BTreeMap<usize, u64> = BTreeMap::new();
    for &group in groups {
        for place in places_of(layout, machines, group) {
            for (chunk, _) in layout.all_chunks_of(group) {
                let held = || place.shard.store().live_blocks([leaf_of(chunk)]);
                let (held, read) = (place.machine.node.look(place.core, held), stored.get(&chunk).copied());
                if held != read.unwrap_or_default() {
                    let message = format!("store {} counts {held} blocks of chunk {chunk}, of {read:?}", place.store);
                    return Err(Failure::new("space", message));
                }
                *of_store.entry(place.store).or_default() += held;
            }
        }
    }
    if groups.len() < layout.groups.len() {
        return Ok(());
    }
    for (store, blocks) in of_store.into_iter().filter(|(store, _)| !left.contains(store)) {
        let machine = &machines[layout.stores[store].node];
        // What a damaged log says of chunks that came from others later was never counted again.
        if machine.lies() > 0 {
            continue;
        }
        let usage = machine.process().and_then(|process| Some(process.stores.borrow().get(&store)?.usage()));
        let Some(usage) = usage else { continue };
        if usage.live_bytes != blocks * BLOCK_BYTES as u64 {
            return Err(Failure::new("space", format!("store {store} holds {blocks} blocks, and says {usage:?}")));
        }
    }
    Ok(())
}

//! Space: refused only where a device may be full, and counted exactly.

use super::heal::places_of;
use super::layout::Layout;
use super::machine::Machine;
use super::task::LAYER;
use crate::history::{Action, Operation, Value};
use crate::workload::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use store::Usage;
use types::{BLOCK_BYTES, BLOCKS_PER_CHUNK, ChunkId};

/// Of what lives when new blocks are refused, at least so much lives where they are: the rest may have been discarded
/// since a beat told of it.
const NEARLY_FULL_PERCENT: u64 = 75;

/// How full the stores of a group are, as far as they are open.
fn usages(layout: &Layout, machines: &[Rc<Machine>], group: usize) -> Vec<(usize, Option<Usage>)> {
    let usage = |store: &usize| {
        let process = machines[layout.stores[*store].node].process();
        let usage = process.and_then(|process| Some(process.stores.borrow().get(store)?.usage()));
        (*store, usage)
    };
    layout.groups[group].members().iter().map(usage).collect()
}

/// Whether a member may have said that it takes no new blocks. One that is not there may have said so before.
pub fn may_be_full(layout: &Layout, machines: &[Rc<Machine>], group: usize) -> bool {
    let is_nearly = |usage: &Usage| usage.live_bytes * 100 >= usage.new_blocks_until_bytes * NEARLY_FULL_PERCENT;
    usages(layout, machines, group).iter().any(|(_, usage)| usage.as_ref().is_none_or(is_nearly))
}

/// For whoever reads about a failure.
pub fn describe(layout: &Layout, machines: &[Rc<Machine>], group: usize) -> String {
    let line = |(store, usage): &(usize, Option<Usage>)| format!("\n  store {store}: {usage:?}");
    usages(layout, machines, group).iter().map(line).collect()
}

/// No store holds more than what is usable of its device.
///
/// # Errors
/// Which one does.
pub fn look(machines: &[Rc<Machine>]) -> Result<(), Failure> {
    for process in machines.iter().filter_map(|machine| machine.process()) {
        for (store, opened) in process.stores.borrow().iter() {
            let usage = opened.usage();
            if usage.live_bytes > usage.usable_bytes || usage.used_bytes > usage.capacity_bytes {
                return Err(Failure::new("space", format!("store {store} holds more than it can: {usage:?}")));
            }
        }
    }
    Ok(())
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
    stored: &BTreeMap<ChunkId, u64>,
    left: &BTreeSet<usize>,
) -> Result<(), Failure> {
    let mut of_store: BTreeMap<usize, u64> = BTreeMap::new();
    for group in 0..layout.groups.len() {
        for place in places_of(layout, machines, group) {
            for (chunk, _) in layout.all_chunks_of(group) {
                let held = || place.shard.store().live_blocks([(LAYER, chunk)]);
                let (held, read) = (place.machine.node.look(place.core, held), stored.get(&chunk).copied());
                if held != read.unwrap_or_default() {
                    let message = format!("store {} counts {held} blocks of chunk {chunk}, of {read:?}", place.store);
                    return Err(Failure::new("space", message));
                }
                *of_store.entry(place.store).or_default() += held;
            }
        }
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

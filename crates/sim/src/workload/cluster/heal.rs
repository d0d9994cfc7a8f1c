//! After the faults: everything has to be as if there had been none, within a bound of virtual time.
//!
//! Every group is led, all its members are in sync, it reads and writes; and when nothing is under way all members hold
//! the same.

use super::layout::{GroupPlan, Layout};
use super::machine::Machine;
use super::task::leaf_of;
use super::watch::Member;
use crate::workload::Failure;
use replication::GroupShard;
use runtime::sim::World;
use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;
use store::ImageBlock;
use types::{BlockRange, ChunkId, GroupId, Seq, StoreId};

/// Whether a group has all its members, and one that serves; if not, what is missing.
pub fn is_whole(layout: &Layout, machines: &[Rc<Machine>], group: usize, all: &[Member]) -> Result<(), String> {
    let plan = &layout.groups[group];
    let is_gone = |store: &usize| machines[layout.stores[*store].node].is_written_off(*store);
    let members = plan.members();
    let (gone, wanted): (Vec<usize>, Vec<usize>) = members.iter().partition(|store| is_gone(store));
    let here: Vec<&Member> = all.iter().filter(|member| is_of(plan, member)).collect();
    if let Some(stopped) = here.iter().find_map(|member| member.standing.stopped.as_ref()) {
        return Err(format!("it has stopped: {stopped}"));
    }
    if let Some(ill) = here.iter().find(|member| member.standing.damaged > 0 || !member.standing.whole) {
        return Err(format!("store {} has {} damaged chunks, or lacks some", ill.store, ill.standing.damaged));
    }
    let Some(primary) = here.iter().find(|member| member.standing.serves) else {
        return Err("nobody serves".to_owned());
    };
    let record = &primary.standing.record;
    let is_in_sync = |store: &&usize| record.in_sync.contains(&layout.stores[**store].id);
    let (in_sync, count) = (wanted.iter().filter(is_in_sync).count(), wanted.len());
    if in_sync < count || gone.iter().any(|store| is_in_sync(&store)) {
        return Err(format!("{in_sync} of {count} members are in sync"));
    }
    // Who will serve on after a crash of the primary knows what the primary does.
    match here.iter().all(|member| member.standing.record == *record) {
        true => Ok(()),
        false => Err("its members know different records".to_owned()),
    }
}

/// Whether it is a member of the group still.
fn is_of(plan: &GroupPlan, member: &Member) -> bool {
    member.group == plan.id && plan.members().contains(&member.store)
}

/// Whether all members of a group have committed the same, and nothing is under way; if not, who differs.
pub fn is_quiet(layout: &Layout, group: usize, all: &[Member]) -> Result<(), String> {
    let plan = &layout.groups[group];
    let come = |member: &&Member| (member.store, member.standing.committed, member.standing.durable);
    let mut here = all.iter().filter(|member| is_of(plan, member));
    let Some(first) = here.next() else { return Err("nobody is there".to_owned()) };
    match here.find(|member| (come(member).1, come(member).2) != (come(&first).1, come(&first).2)) {
        None => Ok(()),
        Some(other) => Err(format!("(store, committed, durable) are {:?} and {:?}", come(&first), come(&other))),
    }
}

/// What a member holds of a chunk, as far as it is committed there.
#[derive(Clone, PartialEq, Eq)]
struct Held {
    last_seq: Seq,
    /// Runs of blocks: what the leaf says of them, and the sum of what is stored.
    runs: Vec<(BlockRange, ImageBlock, u64)>,
}

/// A member's shard and where it runs.
pub struct Place {
    pub store: usize,
    pub machine: Rc<Machine>,
    pub core: usize,
    pub shard: Rc<GroupShard>,
}

/// Compares what all members of a group hold of its chunks, block by block.
///
/// # Errors
/// Where two of them differ.
pub fn compare(world: &World, layout: &Layout, machines: &[Rc<Machine>], group: usize) -> Result<(), Failure> {
    let id = layout.groups[group].id;
    let places = places_of(layout, machines, group);
    for (chunk, _) in layout.all_chunks_of(group) {
        let mut first: Option<(usize, Held)> = None;
        for place in &places {
            let held = look_at(world, place, chunk)?;
            match &first {
                None => first = Some((place.store, held)),
                Some((_, other)) if *other == held => {}
                Some((store, other)) => {
                    let message = difference(id, chunk, (*store, other), (place.store, &held));
                    return Err(Failure::new("copies", message));
                }
            }
        }
    }
    Ok(())
}

/// Where the members of a group are that are open.
pub fn places_of(layout: &Layout, machines: &[Rc<Machine>], group: usize) -> Vec<Place> {
    let plan = &layout.groups[group];
    let place = |store: usize| {
        let machine = machines[layout.stores[store].node].clone();
        let process = machine.process()?;
        let core = process.core_of(layout, store, plan.id)?;
        let groups = process.cores.borrow().get(&core).cloned()?;
        let is_it = |shard: &Rc<GroupShard>| holds(shard, layout.stores[store].id, plan.id);
        let shard = machine.node.look(core, || groups.shards().into_iter().find(is_it))?;
        Some(Place { store, machine, core, shard })
    };
    plan.members().into_iter().filter_map(place).collect()
}

/// Whether the group has its member in this shard.
pub fn holds(shard: &GroupShard, store: StoreId, group: GroupId) -> bool {
    shard.store_id() == store && shard.group(group).is_some()
}

fn look_at(world: &World, place: &Place, chunk: ChunkId) -> Result<Held, Failure> {
    let result = Rc::new(RefCell::new(None));
    let (slot, shard) = (result.clone(), place.shard.clone());
    let look = async move {
        let held = held_of(&shard, chunk).await;
        *slot.borrow_mut() = Some(held);
    };
    world.run_on(&place.machine.node, place.core, look)?;
    let held = result.take().expect("it has ended");
    held.map_err(|error| Failure::new("copies", format!("store {}, chunk {chunk}: {error}", place.store)))
}

async fn held_of(shard: &GroupShard, chunk: ChunkId) -> Result<Held, store::ReadError> {
    let (layer, chunk) = leaf_of(chunk);
    let image = shard.store().image(layer, chunk)?;
    let mut runs = Vec::new();
    for (range, block) in image.runs() {
        let mut sum = 0u64;
        if block == ImageBlock::Stored {
            image.read(range).await?.for_each(|stored| {
                let bytes = stored.map_or(&[][..], |(_, _, bytes)| bytes);
                sum = sum.rotate_left(9) ^ u64::from(crc32c::crc32c(bytes));
            });
        }
        runs.push((range, block, sum));
    }
    Ok(Held { last_seq: image.last_seq(), runs })
}

fn difference(group: GroupId, chunk: ChunkId, one: (usize, &Held), other: (usize, &Held)) -> String {
    let mut out = format!("group {group}, chunk {chunk}:");
    for (store, held) in [one, other] {
        let _ = write!(out, "\n  store {store}: last entry {}", held.last_seq);
        for (range, block, sum) in &held.runs {
            let _ = write!(out, ", {:?} {block:?} {sum:x}", range);
        }
    }
    out
}

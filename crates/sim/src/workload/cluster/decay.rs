//! Bits that turn over where it is met: in blocks that an index names.

use super::breaker::{Reach, Site};
use super::heal::holds;
use super::task::leaf_of;
use runtime::sim::Random;
use std::ops::Range;

/// Turns over a bit of some block that the store holds of one of its groups, if it is open and holds any.
pub fn rot(reach: &Reach<'_>, store: usize, seed: u64) {
    let random = Random::new(seed);
    let places = live_places(reach, store, &random);
    if let Some(place) = places.get(random.below((places.len() as u64).max(1)) as usize) {
        reach.disk_of(store).rot_within(place.clone());
    }
}

/// Where the blocks lie of a chunk of one of its groups.
fn live_places(reach: &Reach<'_>, store: usize, random: &Random) -> Vec<Range<u64>> {
    let machine = &reach.machines[reach.layout.stores[store].node];
    let groups = 0..reach.layout.groups.len();
    let of_store: Vec<usize> = groups.filter(|group| reach.layout.groups[*group].members().contains(&store)).collect();
    let Some(group) = of_store.get(random.below((of_store.len() as u64).max(1)) as usize) else { return Vec::new() };
    let chunks: Vec<_> = reach.layout.chunks_of(*group).collect();
    let (id, chunk) = (reach.layout.groups[*group].id, chunks[random.below(chunks.len() as u64) as usize]);
    let Some(process) = machine.process().filter(|process| machine.node.is_up() && process.begun.get()) else {
        return Vec::new();
    };
    let groups = process.core_of(reach.layout, store, id).and_then(|core| {
        let groups = process.cores.borrow().get(&core).cloned()?;
        Some((core, groups))
    });
    let Some((core, groups)) = groups else { return Vec::new() };
    machine.node.look(core, || {
        let shards = groups.shards();
        let shard = shards.iter().find(|shard| holds(shard, reach.layout.stores[store].id, id));
        let image = shard.and_then(|shard| {
            let (layer, chunk) = leaf_of(chunk);
            shard.store().image(layer, chunk).ok()
        });
        image.map_or_else(Vec::new, |image| image.places_bytes().collect())
    })
}

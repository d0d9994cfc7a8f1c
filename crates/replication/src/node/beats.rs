//! Beats between nodes: who lives, which of its cores move, and what is granted to its primaries (R19).

use super::{CoreGroups, Link, Shared};
use crate::wire::{Beat, BeatAnswer, Cores, Dead, Excepted, Features, Grants, Kind, NodeMessage, Rehearsed, StoreLine};
use runtime::{Instant, now};
use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use types::{Epoch, GroupId, Mutant, NodeId, StoreId, mutant};

/// Whether a store takes new blocks is looked at so often where it is nearly full.
const LOOK_WHERE_FULL: Duration = Duration::from_millis(10);

/// Beats, for ever: by the clock, and when another of the node's stores takes no new blocks, as primaries are to know that before
/// what is kept for overwrites is used up (R17).
pub(super) async fn run(core: Rc<CoreGroups>) {
    let mut before: Vec<u64> = core.shared.turned.iter().map(|_| u64::MAX).collect();
    loop {
        let moved = moved_since(&core, &before, Cores::default());
        before = turns(&core);
        core.beat(moved);
        let (mut told, due) = (full_stores(&core), now() + core.shared.timing.beat);
        while now() < due {
            let is_near = core.map_side.get().is_some_and(|side| side.is_nearly_full());
            let look = if is_near { LOOK_WHERE_FULL } else { core.shared.timing.tick };
            runtime::sleep(look.min(due.since(now()))).await;
            let full = full_stores(&core);
            // Once for each until the clock's next.
            if full.iter().any(|store| !told.contains(store)) && !mutant(Mutant::FullToldByTheClock) {
                told.extend(full);
                // Of a core that has not moved since it is not said that it does not: its groups would not be led any more.
                let known = if mutant(Mutant::EarlyBeatTakesLeases) { Cores::default() } else { moved };
                core.beat(moved_since(&core, &before, known));
            }
        }
    }
}

fn turns(core: &CoreGroups) -> Vec<u64> {
    core.shared.turned.iter().map(|turned| turned.load(Relaxed)).collect()
}

/// These cores, and those that have moved since they had moved so often.
fn moved_since(core: &CoreGroups, before: &[u64], mut cores: Cores) -> Cores {
    for (index, (turned, before)) in turns(core).into_iter().zip(before).enumerate() {
        if turned != *before || mutant(Mutant::HungCoreSpokenFor) {
            cores.insert(index);
        }
    }
    cores
}

/// Those of the node that take no new blocks.
fn full_stores(core: &CoreGroups) -> Vec<StoreId> {
    core.store_lines().into_iter().filter(|line| line.is_full).map(|line| line.store).collect()
}

impl CoreGroups {
    /// Another node lives, and asks for leases: each core says what it grants, and that it moves.
    pub(super) fn beaten(self: &Rc<Self>, link: &Rc<Link>, beat: Beat) {
        if beat.count.is_some() {
            self.shared.spoken.fields_received.fetch_add(1, Relaxed);
        }
        if link.node.is_client() {
            // Nobody connects to it to ask.
            self.view.borrow_mut().was_heard(link.node, now());
        }
        let (cores, node) = (self.shared.lines.len() as u16, link.node);
        let (told, mut all_told) = runtime::channel::cross(usize::from(cores));
        let beat = Arc::new(beat);
        for core in 0..cores {
            let (told, beat) = (told.clone(), beat.clone());
            self.tell_if_it_keeps_up(core, move |core| drop(told.try_send((core.core, core.grant(node, &beat)))));
        }
        drop(told);
        let (this, link) = (self.clone(), link.clone());
        runtime::spawn(async move {
            let (mut moved, mut refused) = (Cores::default(), Vec::new());
            let patience = this.shared.timing.beat / 2;
            let _ = runtime::timeout(patience, async {
                while let Ok((core, its)) = all_told.recv().await {
                    moved.insert(usize::from(core));
                    refused.extend(its);
                }
            })
            .await;
            if mutant(Mutant::HungCoreSpokenFor) {
                (0..usize::from(cores)).for_each(|core| moved.insert(core));
            }
            let stores = this.store_lines();
            let grants = Grants::AllBut(excepted(&refused, &stores));
            let answer = BeatAnswer {
                echo_ns: beat.sent_ns,
                incarnation: this.shared.incarnation,
                cores: moved,
                stores,
                grants,
            };
            link.push_node(&NodeMessage::BeatAnswer(answer));
        });
    }

    /// Hears of the node's stores. Returns members of this core that grant it nothing, as a primary of an epoch below this one.
    fn grant(&self, node: NodeId, beat: &Beat) -> Vec<(GroupId, StoreId, Epoch)> {
        self.view.borrow_mut().asked(node, &beat.stores);
        let mut refused = Vec::new();
        let at = now();
        for group in self.shards.borrow().iter().flat_map(|shard| shard.groups()) {
            let me = group.member().store();
            let (primary, life, epoch) = {
                let member = group.member();
                (member.record().primary, member.record().life, member.record().epoch)
            };
            if beat.stores.iter().any(|line| line.store != primary && group.counted_for(line.store))
                && !mutant(Mutant::DeposedGranted)
            {
                // It was deposed, and may not have heard of it (R8).
                refused.push((group.id(), me, epoch));
            }
            let Some(line) = beat.stores.iter().find(|line| line.store == primary) else { continue };
            if primary == me {
                continue;
            }
            let moves = beat.cores.has(line.core_of(group.id()).into()) && line.life == life;
            if group.stopped().is_some() || !moves || !group.with(|member| member.grant(primary, at)) {
                // Whatever epoch it is in by now: this member has noted no grant.
                refused.push((group.id(), me, Epoch(u32::MAX)));
            }
        }
        refused
    }

    /// Another node has answered a beat: all cores of this one hear of it.
    pub(super) fn answered(self: &Rc<Self>, node: NodeId, answer: BeatAnswer) {
        self.beats.borrow_mut().entry(node).or_default().1 += 1;
        let answer = Arc::new(answer);
        for core in 0..self.shared.lines.len() as u16 {
            let answer = answer.clone();
            self.tell_if_it_keeps_up(core, move |core| core.heard(node, &answer));
        }
    }

    /// The supervisor of another node says that lives of its stores are over: all cores of this one hear of it.
    pub(super) fn have_died(self: &Rc<Self>, node: NodeId, dead: Dead) {
        log::info!("node {node}: its process has ended, and nobody waits for what was granted to it");
        let dead = Arc::new(dead);
        for core in 0..self.shared.lines.len() as u16 {
            let dead = dead.clone();
            self.tell(core, move |core| core.view.borrow_mut().have_died(node, &dead.lives));
        }
    }

    fn heard(&self, node: NodeId, answer: &BeatAnswer) {
        let sent = Instant(answer.echo_ns);
        self.view.borrow_mut().answered(node, sent, &answer.cores, &answer.stores);
        for group in self.shards.borrow().iter().flat_map(|shard| shard.groups()) {
            if !group.member().leads() {
                continue;
            }
            for (place, line) in answer.stores.iter().enumerate() {
                if line.store == group.member().store() || !answer.cores.has(line.core_of(group.id()).into()) {
                    continue;
                }
                let is_granted = answer.grants.grants(group.id(), place as u16, group.member().record().epoch);
                if is_granted && !group.timers.borrow().was_asked_behind(line.store, sent) {
                    continue;
                }
                group.with(|member| {
                    member.restarted(line.store, line.life);
                    member.beat_answered(line.store, line.life, sent, is_granted);
                });
            }
            group.wake();
        }
    }

    /// Sends a beat to every node: this one lives, and asks for leases for all its primaries.
    fn beat(self: &Rc<Self>, moved: Cores) {
        let Shared { incarnation, protocol, spoken, .. } = &*self.shared;
        let rehearses = protocol.features.has(Features::REHEARSAL);
        let beat = Beat {
            sent_ns: now().0,
            incarnation: *incarnation,
            cores: moved,
            stores: self.store_lines(),
            count: rehearses.then(|| spoken.fields_sent.fetch_add(1, Relaxed) + 1),
        };
        let message = NodeMessage::Beat(beat);
        for node in self.nodes() {
            let Some(link) = self.link(node, 0) else { continue };
            link.push_node(&message);
            self.beats.borrow_mut().entry(node).or_default().0 += 1;
            if rehearses && link.may_send(Kind::Rehearsed) {
                let count = spoken.sent.fetch_add(1, Relaxed) + 1;
                link.push_node(&NodeMessage::Rehearsed(Rehearsed { count }));
            }
        }
    }

    /// The node's stores that serve; asked on the first core.
    fn store_lines(&self) -> Vec<StoreLine> {
        self.map_side.get().map_or_else(Vec::new, |side| side.store_lines(self.shared.timing.ask))
    }

    /// This core moves.
    pub(super) fn turned(&self) {
        self.shared.turned[usize::from(self.core)].fetch_add(1, Relaxed);
    }
}

/// What the members that refuse are in an answer that names these stores: a store that is not named grants nothing anyway. A group
/// may have left one store for another of the same node: what remains of it on the first speaks for that one alone.
fn excepted(refused: &[(GroupId, StoreId, Epoch)], stores: &[StoreLine]) -> Vec<Excepted> {
    let named = |&(group, store, below): &(GroupId, StoreId, Epoch)| {
        let lines = stores.iter().enumerate();
        let its = lines.filter(move |(_, line)| line.store == store || mutant(Mutant::RefusedForNeighbour));
        its.map(move |(place, _)| Excepted { group, place: place as u16, below })
    };
    let mut excepted: Vec<_> = refused.iter().flat_map(named).collect();
    excepted.sort_unstable_by_key(|member| (member.group, member.place, Reverse(member.below)));
    excepted.dedup_by_key(|member| (member.group, member.place));
    excepted
}

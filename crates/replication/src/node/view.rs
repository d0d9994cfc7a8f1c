//! What a core knows of other nodes: by the answers to beats.

use crate::wire::{Cores, StoreLine};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use runtime::Instant;
use std::time::Duration;
use types::{GroupId, Incarnation, Mutant, NodeId, StoreId, mutant};

/// When a client was heard last is remembered for so long.
const CLIENT_REMEMBERED: Duration = Duration::from_secs(60);

/// A store, as its node said last.
struct PeerStore {
    node: NodeId,
    line: StoreLine,
    /// When the beat was sent that was answered with this.
    listed_at: Instant,
}

/// See the module.
pub(crate) struct View {
    /// Nobody is silent since before that.
    begin: Instant,
    stores: HashMap<StoreId, PeerStore, FixedState>,
    /// The last life of each store that is known to be over.
    dead: HashMap<StoreId, Incarnation, FixedState>,
    /// Of each core of a node: when the last beat was sent that it answered.
    heard: HashMap<(NodeId, u16), Instant, FixedState>,
}

impl View {
    pub(crate) fn new(begin: Instant) -> Self {
        Self {
            begin,
            stores: HashMap::with_hasher(FixedState::default()),
            dead: HashMap::with_hasher(FixedState::default()),
            heard: HashMap::with_hasher(FixedState::default()),
        }
    }

    /// This core did not move until now: what came meanwhile it has not heard.
    pub(crate) fn has_slept(&mut self, until: Instant) {
        self.begin = until;
    }

    /// A beat that was sent at `sent` was answered.
    pub(crate) fn answered(&mut self, node: NodeId, sent: Instant, cores: &Cores, stores: &[StoreLine]) {
        for core in (0..Cores::MOST as u16).filter(|core| cores.has((*core).into())) {
            let heard = self.heard.entry((node, core)).or_insert(sent);
            *heard = sent.max(*heard);
        }
        for line in stores {
            let known = self.stores.get(&line.store).is_some_and(|known| known.listed_at > sent);
            if !known {
                self.stores.insert(line.store, PeerStore { node, line: *line, listed_at: sent });
            }
        }
    }

    /// A beat of another node has come, which says of its stores whether they take new blocks; all else counts when it answers.
    pub(crate) fn asked(&mut self, node: NodeId, stores: &[StoreLine]) {
        for line in stores {
            let known = self.stores.get_mut(&line.store);
            if let Some(known) = known.filter(|known| known.node == node && known.line.life == line.life) {
                known.line.is_full = line.is_full;
            }
        }
    }

    /// A beat of a client came, which nobody asks. Those that are gone for long are forgotten when a new one comes.
    pub(crate) fn was_heard(&mut self, client: NodeId, at: Instant) {
        if self.heard.insert((client, 0), at).is_none() {
            self.heard.retain(|(node, _), heard| !node.is_client() || at.since(*heard) < CLIENT_REMEMBERED);
        }
    }

    /// The supervisor of a node says that these lives are over. It can know that of its own node's stores alone; and who is told
    /// of a store that it never heard of waits as if nothing had been said.
    pub(crate) fn have_died(&mut self, node: NodeId, lives: &[(StoreId, Incarnation)]) {
        for (store, life) in lives {
            if self.stores.get(store).is_some_and(|known| known.node == node) {
                let last = self.dead.entry(*store).or_insert(*life);
                *last = (*last).max(*life);
            }
        }
    }

    /// Whether this life of a store is known to be over: it, or one that began after it, was said to be.
    pub(crate) fn is_dead(&self, store: StoreId, life: Incarnation) -> bool {
        self.dead.get(&store).is_some_and(|dead| life <= *dead || mutant(Mutant::OtherLifeDead))
    }

    /// The same of the life that was heard of last.
    pub(crate) fn is_dead_now(&self, store: StoreId) -> bool {
        !self.dead.is_empty() && self.life_of(store).is_some_and(|life| self.is_dead(store, life))
    }

    /// Node and core that a group's member is on.
    pub(crate) fn place_of(&self, store: StoreId, group: GroupId) -> Option<(NodeId, u16)> {
        let known = self.stores.get(&store)?;
        Some((known.node, known.line.core_of(group)))
    }

    /// The node of a store that was heard of.
    pub(crate) fn node_of(&self, store: StoreId) -> Option<NodeId> {
        self.stores.get(&store).map(|known| known.node)
    }

    /// How long no core of a node has answered a beat; for ever, if its process has ended.
    pub(crate) fn silence_of(&self, node: NodeId, now: Instant) -> Duration {
        let mut of_node =
            self.stores.iter().filter(|(_, known)| known.node == node).map(|(store, _)| *store).peekable();
        if of_node.peek().is_some() && of_node.all(|store| self.is_dead_now(store)) {
            return Duration::MAX;
        }
        let heard = self.heard.iter().filter(|((of, _), _)| *of == node).map(|(_, at)| *at).max();
        now.since(heard.unwrap_or(self.begin).max(self.begin))
    }

    /// Which life of a store was heard of last.
    pub(crate) fn life_of(&self, store: StoreId) -> Option<Incarnation> {
        self.stores.get(&store).map(|known| known.line.life)
    }

    /// Whether a store takes new blocks, as far as is known.
    pub(crate) fn takes_new_blocks(&self, store: StoreId) -> bool {
        self.stores.get(&store).is_none_or(|known| !known.line.is_full)
    }

    /// When a beat was sent that a store's node answered and said that the map had answered it just before.
    pub(crate) fn reached_map(&self, store: StoreId) -> Option<Instant> {
        self.stores.get(&store).filter(|known| known.line.reaches_map).map(|known| known.listed_at)
    }

    /// How long nothing was heard of a group's member: of its store, or of the core that it is on. For ever, if its process has
    /// ended.
    pub(crate) fn silence(&self, store: StoreId, group: GroupId, now: Instant) -> Duration {
        if self.is_dead_now(store) {
            return Duration::MAX;
        }
        let heard = self.stores.get(&store).and_then(|known| {
            let of_core = self.heard.get(&(known.node, known.line.core_of(group)))?;
            Some(known.listed_at.min(*of_core))
        });
        now.since(heard.unwrap_or(self.begin).max(self.begin))
    }
}

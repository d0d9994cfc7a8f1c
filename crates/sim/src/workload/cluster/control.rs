//! What whoever runs a cluster does when devices and nodes come and go: the map is told, and groups get other members, each
//! by compare-and-swap of its record, until it is done (R20 of docs/replication.md).

use super::layout::Layout;
use super::story::tell;
use cluster::{
    DeviceRecord, GroupRecord, MapStore, MembersError, NodeRecord, Outcome, Record, Transaction, encode, get,
};
use runtime::sim::Random;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// All that is to be done is tried so often.
const TRY_EVERY: Duration = Duration::from_millis(200);

/// A group is to have another member in the place of one.
#[derive(Clone, Copy, Debug)]
struct Move {
    group: usize,
    from: usize,
    to: usize,
    /// The one is gone for good.
    is_lost: bool,
}

/// See the module.
pub struct Control {
    layout: Rc<Layout>,
    map: Arc<dyn MapStore>,
    nodes: RefCell<Vec<NodeRecord>>,
    devices: RefCell<Vec<DeviceRecord>>,
    moves: RefCell<Vec<Move>>,
    /// Stores that still have what was of groups that have left them.
    pub left: RefCell<BTreeSet<usize>>,
    /// Stores that never come back, and have none in their place.
    gone: RefCell<BTreeSet<usize>>,
    /// By group, members of which copies were destroyed.
    destroyed: RefCell<BTreeMap<usize, BTreeSet<usize>>>,
    /// Members that were replaced.
    pub replaced: Cell<u64>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.nodes.borrow(), self.devices.borrow(), self.moves.borrow())
    }
}

impl Control {
    pub fn new(layout: &Rc<Layout>, map: Arc<dyn MapStore>) -> Rc<Self> {
        Rc::new(Self {
            layout: layout.clone(),
            map,
            nodes: RefCell::default(),
            devices: RefCell::default(),
            moves: RefCell::default(),
            left: RefCell::default(),
            gone: RefCell::default(),
            destroyed: RefCell::default(),
            replaced: Cell::new(0),
        })
    }

    /// Things that are still to be done, for groups that are judged.
    pub fn pending(&self) -> usize {
        let moves = self.moves.borrow();
        let moves = moves.iter().filter(|one| self.is_judged(one.group)).count();
        self.nodes.borrow().len() + self.devices.borrow().len() + moves
    }

    /// Copies on these stores may be lost from now on.
    pub fn are_destroyed(&self, stores: &[usize]) {
        for (group, plan) in self.layout.groups.iter().enumerate() {
            let coming =
                self.moves.borrow().iter().filter(|one| one.group == group).map(|one| one.to).collect::<Vec<_>>();
            let members = plan.members().into_iter().chain(coming);
            let hit: Vec<usize> = members.filter(|member| self.is_among(*member, stores)).collect();
            self.destroyed.borrow_mut().entry(group).or_default().extend(hit);
        }
    }

    /// Whether it is one of these, or came in the place of one.
    fn is_among(&self, store: usize, stores: &[usize]) -> bool {
        stores.contains(&store) || self.layout.stores[store].replaces.is_some_and(|before| stores.contains(&before))
    }

    /// Whether nothing that a group acknowledged can be lost: of those that have it, one at least never lost anything.
    pub fn is_judged(&self, group: usize) -> bool {
        let destroyed = self.destroyed.borrow();
        destroyed
            .get(&group)
            .is_none_or(|stores| stores.is_empty() || stores.len() < self.layout.groups[group].min_in_sync)
    }

    /// The device of a store is lost, and another store is in its place.
    pub fn replace(&self, store: usize, spare: usize) {
        self.devices.borrow_mut().push(self.layout.device_record(spare));
        self.move_all(store, true, |_| Some(spare));
    }

    /// A store is lost, and nothing takes over yet.
    pub fn lose(&self, store: usize) {
        self.gone.borrow_mut().insert(store);
    }

    /// A store is lost, and others take over, where there is one on a node that has no member of the group.
    pub fn give_away(&self, store: usize, usable: &[usize], seed: u64) {
        let random = Random::new(seed);
        self.move_all(store, true, |group| self.draw_other(group, usable, &random));
    }

    /// A node is there: some groups move to its stores, first of all what is gone.
    pub fn add_node(&self, node: usize, seed: u64) {
        let random = Random::new(seed);
        let stores: Vec<usize> = self.layout.stores_of(node).collect();
        self.nodes.borrow_mut().push(self.layout.node_record(node));
        self.devices.borrow_mut().extend(stores.iter().map(|store| self.layout.device_record(*store)));
        for group in (0..self.layout.groups.len()).filter(|_| random.one_in(2)) {
            let members = self.layout.groups[group].members();
            let drawn = members[random.below(members.len() as u64) as usize];
            let from = self.gone_of(group).unwrap_or(drawn);
            let to = stores[random.below(stores.len() as u64) as usize];
            self.moves.borrow_mut().push(Move { group, from, to, is_lost: false });
        }
    }

    /// A member that never comes back, and that nothing is to take the place of yet.
    fn gone_of(&self, group: usize) -> Option<usize> {
        let (gone, moves) = (self.gone.borrow(), self.moves.borrow());
        let is_moving = |store: &usize| moves.iter().any(|one| (one.group, one.from) == (group, *store));
        let members = self.layout.groups[group].members();
        members.into_iter().find(|member| gone.contains(member) && !is_moving(member))
    }

    fn move_all(&self, from: usize, is_lost: bool, to: impl Fn(usize) -> Option<usize>) {
        for (group, plan) in self.layout.groups.iter().enumerate() {
            if let Some(to) = plan.members().contains(&from).then(|| to(group)).flatten() {
                self.moves.borrow_mut().push(Move { group, from, to, is_lost });
            }
        }
    }

    /// Some usable store of a node that has none of the group's members.
    fn draw_other(&self, group: usize, usable: &[usize], random: &Random) -> Option<usize> {
        let node_of = |store: &usize| self.layout.stores[*store].node;
        let taken: Vec<usize> = self.layout.groups[group].members().iter().map(node_of).collect();
        let free: Vec<usize> = usable.iter().copied().filter(|store| !taken.contains(&node_of(store))).collect();
        free.get(random.below((free.len() as u64).max(1)) as usize).copied()
    }

    /// Does all that is to be done, again and again.
    pub async fn run(self: Rc<Self>) {
        loop {
            runtime::sleep(TRY_EVERY).await;
            let node = self.nodes.borrow().last().cloned();
            if let Some(node) = node
                && self.put(&node).await
            {
                self.nodes.borrow_mut().pop();
            }
            let device = self.devices.borrow().last().cloned();
            if let Some(device) = device
                && self.put(&device).await
            {
                self.devices.borrow_mut().pop();
            }
            if !self.nodes.borrow().is_empty() || !self.devices.borrow().is_empty() {
                continue;
            }
            let moves = self.moves.borrow().clone();
            for one in moves {
                if self.go_on(one).await {
                    tell(format_args!("group {}: {one:?} is done", self.layout.groups[one.group].id));
                    let is_it = |other: &Move| (other.group, other.from, other.to) == (one.group, one.from, one.to);
                    self.moves.borrow_mut().retain(|other| !is_it(other));
                    self.replaced.set(self.replaced.get() + 1);
                }
            }
        }
    }

    async fn put(&self, record: &impl Record) -> bool {
        let transaction = Transaction::new().put(record.key(), encode(record));
        matches!(self.map.transact(transaction).await, Ok(Outcome::Committed(_)))
    }

    /// The next step of a move. Returns true when there is none left, as the map was seen to say.
    async fn go_on(&self, one: Move) -> bool {
        let plan = &self.layout.groups[one.group];
        let (from, to) = (self.layout.stores[one.from].id, self.layout.stores[one.to].id);
        let Ok(Some(found)) = get::<GroupRecord>(&*self.map, &cluster::keys::group(plan.id)).await else {
            return false;
        };
        let record = found.record;
        let members = record.members.iter().filter_map(|store| self.layout.store_index(*store));
        plan.set_members(members.collect());
        let next = match (record.members.contains(&to), record.members.contains(&from)) {
            (false, _) => record.with_joining(to),
            (true, false) => return true,
            // One that lives stays until the other is in sync; and if it leads then.
            (true, true) if !one.is_lost && !record.in_sync.contains(&to) => return false,
            (true, true) if !one.is_lost && record.primary == from => return true,
            (true, true) => match (record.without_member(from), self.gone_of(one.group)) {
                // It is needed, as the other is in the place of one that is gone.
                (Err(MembersError::TooFew { .. }), Some(gone)) => record.without_member(self.layout.stores[gone].id),
                (Err(MembersError::TooFew { .. }), None) if record.members.len() == record.in_sync.len() => {
                    return true;
                }
                (next, _) => next,
            },
        };
        // Who leads has to find out first that it is gone.
        let Ok(next) = next else { return false };
        if !next.members.contains(&from) {
            self.left.borrow_mut().insert(one.from);
        }
        let transaction = Transaction::new().expect(next.key(), found.modified).put(next.key(), encode(&next));
        let _ = self.map.transact(transaction).await;
        false
    }
}

//! How the heads of volumes on a core reach groups, and what a core does for heads elsewhere.

use super::CoreGroups;
use super::map_side::Says;
use crate::access::calls::Calls;
use crate::access::{Access, Led};
use crate::group::GroupRef;
use crate::shard::GroupShard;
use cluster::GroupRecord;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use runtime::channel::WaitList;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use types::{Epoch, GroupId, Incarnation, NodeId, StoreId};

/// Requests of heads elsewhere that a core does at once, and the bytes that they carry or are answered with.
const SERVED_MAX: usize = 16_384;
const SERVED_BYTES_MAX: usize = 64 << 20;

/// What a core knows for heads, and does for them.
#[derive(Default)]
pub(super) struct Heads {
    /// Who leads each group, as far as is known.
    led: RefCell<HashMap<GroupId, Led, FixedState>>,
    led_changed: WaitList,
    accesses: RefCell<HashMap<GroupId, Rc<Access>, FixedState>>,
    /// Groups that nobody serves, as this node knows, and why.
    given_up: RefCell<HashMap<GroupId, String, FixedState>>,
    /// What heads here have asked of groups led elsewhere.
    calls: Rc<Calls>,
    /// Requests of heads elsewhere that are being done: how many, of how many bytes.
    serving: Rc<Cell<(usize, usize)>>,
}

impl CoreGroups {
    /// How the heads of this core reach a group.
    pub fn access(self: &Rc<Self>, group: GroupId) -> Rc<Access> {
        self.heads.accesses.borrow_mut().entry(group).or_insert_with(|| Access::new(self, group)).clone()
    }

    /// Nobody serves the group before the node is started anew: the devices that it is on are not here.
    pub fn give_up(&self, group: GroupId, why: &str) {
        self.heads.given_up.borrow_mut().insert(group, why.to_owned());
    }

    /// Why nobody serves a group whose one member is on this store, if that is this node's matter.
    pub(crate) fn stopped_alone(&self, group: GroupId, only: StoreId) -> Option<String> {
        let shards = self.shards.borrow();
        let stopped = |shard: &Rc<GroupShard>| shard.group(group)?.stopped().map(str::to_owned);
        let mut holders = shards.iter().filter(|shard| shard.store_id() == only);
        holders.find_map(stopped).or_else(|| self.heads.given_up.borrow().get(&group).cloned())
    }

    /// The member of a group that leads it, if it does so on this core.
    pub(crate) fn leading(&self, group: GroupId) -> Option<GroupRef> {
        let shards = self.shards.borrow();
        shards.iter().filter_map(|shard| shard.group(group)).find(|member| member.leads_here())
    }

    /// Who leads a group, as far as is known.
    pub(crate) fn led(&self, group: GroupId) -> Option<Led> {
        self.heads.led.borrow().get(&group).copied()
    }

    /// Whether a node leads any group, as far as is known.
    pub(super) fn leads_any(&self, node: NodeId) -> bool {
        let (led, view) = (self.heads.led.borrow(), self.view.borrow());
        led.values().any(|led| view.node_of(led.primary) == Some(node))
    }

    /// Resolves when something else is known of who leads a group, here or elsewhere.
    pub(crate) async fn led_changed(&self, group: GroupId, before: Option<Led>) {
        self.heads.led_changed.until(|| (self.led(group) != before).then_some(())).await;
    }

    /// Somebody says who leads a group.
    pub(crate) fn heard_who_leads(&self, group: GroupId, epoch: Epoch, primary: StoreId) {
        let known = self.led(group);
        if known.is_none_or(|known| known.epoch < epoch) {
            let is_alone = known.is_some_and(|known| known.is_alone);
            self.heads.led.borrow_mut().insert(group, Led { epoch, primary, is_alone });
            self.heads.calls.led_by_another(group, primary);
            self.heads.led_changed.wake_all();
        }
    }

    /// The map says who leads these groups. A list that a watch goes on from is the last word, also of a map that went back.
    pub(super) fn map_says_who_leads(&self, records: &[GroupRecord], how: Says) {
        let mut led = self.heads.led.borrow_mut();
        for record in records {
            let now =
                Led { epoch: record.epoch, primary: record.primary, is_alone: record.members == [record.primary] };
            let known = led.entry(record.id).or_insert(now);
            if known.epoch < now.epoch || how == Says::Listed {
                let before = std::mem::replace(known, now);
                if before.primary != now.primary {
                    self.heads.calls.led_by_another(record.id, now.primary);
                }
            }
        }
        drop(led);
        self.heads.led_changed.wake_all();
    }

    pub(crate) fn calls(&self) -> &Rc<Calls> {
        &self.heads.calls
    }

    /// Which of the node's lives this is.
    pub(crate) fn life(&self) -> Incarnation {
        self.shared.incarnation
    }

    /// A request of another core, of so many bytes, is being done as long as what this returns lives; none if there is too
    /// much already.
    pub(crate) fn begin_serving(&self, bytes: usize) -> Option<Serving> {
        let (requests, before) = self.heads.serving.get();
        if requests >= SERVED_MAX || (requests > 0 && before + bytes > SERVED_BYTES_MAX) {
            return None;
        }
        self.heads.serving.set((requests + 1, before + bytes));
        Some(Serving(self.heads.serving.clone(), bytes))
    }

    /// Requests of heads elsewhere that are being done.
    pub(crate) fn serving_count(&self) -> usize {
        self.heads.serving.get().0
    }
}

/// See [`CoreGroups::begin_serving`].
pub(crate) struct Serving(Rc<Cell<(usize, usize)>>, usize);

impl Drop for Serving {
    fn drop(&mut self) {
        let (requests, bytes) = self.0.get();
        self.0.set((requests - 1, bytes - self.1));
    }
}

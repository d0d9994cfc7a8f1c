//! One node of the cluster sees to it that nodes and devices come, are emptied and go as operators say (`cluster::control`),
//! and each node says how full its devices are.
//!
//! A look at all groups costs some 3 µs per group (100 ms of this core for 33,000 groups). It is taken when something has
//! changed that it depends on, and takes a twentieth of the core's time at most. The steps of orders that stand are looked at
//! with each change that is heard: as many as there are orders, eight for each device.

use super::status::in_words;
use super::{Assembly, VolumeError};
use crate::head::Head;
use cluster::control::{Control, Decided, DutyError, Followed, Reigning, decide, foretold, foretold_device};
use cluster::placement::duty::Request;
use cluster::{
    CatalogError, ControlRecord, DeviceRecord, DeviceTrouble, GroupBytes, MapError, Revision, SessionRecord,
    StoreUsageRecord, Transaction, encode, get, keys, settle,
};
use runtime::{Instant, now};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{GroupId, StoreId};

/// After an error of the map.
const RETRY_WAIT: Duration = Duration::from_millis(200);
/// Between two looks whether somebody controls.
const LOOK_WAIT: Duration = Duration::from_millis(500);
/// Nodes that may take over try so long after each other.
const TURN: Duration = Duration::from_millis(500);
/// Who controls looks so often at what no event tells: maintenance that is over, devices that are away for long.
const TICK: Duration = Duration::from_secs(1);
/// Between two looks at all groups, at least, and so many times what the last one took.
const PLAN_WAIT: Duration = Duration::from_millis(200);
const PLAN_SHARE: u32 = 20;
/// How often a node looks how full its devices are; it says so where that has changed by this part of the device.
const USAGE_EVERY: Duration = Duration::from_secs(5);
const USAGE_PART: u64 = 64;
/// How often it counts how much of that each group holds: when a device's fill has changed by that part since, and at least so often.
const COUNT_EVERY: Duration = Duration::from_secs(600);
/// Of so many groups on one device it is said. The map takes records of 256 KiB.
const GROUPS_SAID_MAX: usize = 8192;

/// What groups held when it was counted, and how full devices were. Not in it: what could not be counted.
struct Counted {
    at: Instant,
    live_bytes: BTreeMap<StoreId, u64>,
    of_groups: BTreeMap<StoreId, BTreeMap<GroupId, u64>>,
}

/// What a node knows of who controls.
#[derive(Default)]
pub(super) struct Controls {
    /// The epoch in which this node does.
    reigns: Cell<Option<u64>>,
    /// When nobody was seen to.
    nobody_since: Cell<Option<Instant>>,
    /// What was said of devices here.
    said: RefCell<BTreeMap<StoreId, StoreUsageRecord>>,
    counted: RefCell<Option<Counted>>,
}

impl Assembly {
    /// What a request about nodes and devices would do.
    ///
    /// # Errors
    /// Why it cannot be.
    pub async fn foretell(&self, request: &Request) -> Result<Decided, DutyError> {
        foretold(&*self.0.map, request).await
    }

    /// What a device would get, as [`check_device`](Self::check_device) says it is, if it were added.
    ///
    /// # Errors
    /// Why it would get nothing.
    pub async fn foretell_device(&self, device: DeviceRecord) -> Result<Decided, DutyError> {
        foretold_device(&*self.0.map, device).await
    }

    /// Begins what a request says; the node that controls sees to the rest.
    ///
    /// # Errors
    /// Why it cannot be.
    pub async fn decide(&self, request: &Request) -> Result<Decided, DutyError> {
        decide(&*self.0.map, request).await
    }

    /// The epoch in which this node controls, if it does.
    pub fn controls(&self) -> Option<u64> {
        self.0.controls.reigns.get()
    }

    pub(super) fn begin_control(&self) {
        let (controls, says) = (self.clone(), self.clone());
        let controls = runtime::spawn(async move { controls.control().await });
        let says = runtime::spawn(async move { says.say_usage().await });
        self.0.tasks.borrow_mut().extend([controls, says]);
    }

    // ---- who controls ----------------------------------------------------------------------------------------------

    async fn control(&self) {
        loop {
            runtime::sleep(LOOK_WAIT).await;
            match self.take_control().await {
                Ok(Some(control)) => {
                    log::info!("this node sees to orders, in epoch {}", control.epoch);
                    self.0.controls.reigns.set(Some(control.epoch));
                    if let Err(error) = self.control_in(control).await {
                        log::debug!("orders are seen to anew: {error}");
                        runtime::sleep(RETRY_WAIT).await;
                    }
                    self.0.controls.reigns.set(None);
                }
                Ok(None) => {}
                Err(error) => log::debug!("who sees to orders is not known: {error}"),
            }
        }
    }

    /// Nobody controls who has a session, for so long that it is this node's turn; or an earlier life of it did.
    async fn take_control(&self) -> Result<Option<Control>, VolumeError> {
        let (me, map, controls) = (self.0.id, &*self.0.map, &self.0.controls);
        let found = get::<ControlRecord>(map, keys::CONTROL).await?.map(|found| found.record);
        let alive = self.0.heads.alive();
        let Some(place) = alive.iter().position(|node| *node == me) else { return Ok(None) };
        let is_others = found.as_ref().is_some_and(|record| record.node != me && alive.contains(&record.node));
        if is_others {
            controls.nobody_since.set(None);
            return Ok(None);
        }
        let is_mine = found.as_ref().is_some_and(|record| record.node == me);
        let since = controls.nobody_since.get().unwrap_or_else(now);
        controls.nobody_since.set(Some(since));
        if !is_mine && now().since(since) < TURN * place as u32 {
            return Ok(None);
        }
        Ok(Control::take(map, me, |record| record == found.as_ref()).await?)
    }

    /// To the end of the reign, or an error.
    async fn control_in(&self, control: Control) -> Result<(), VolumeError> {
        let map = &*self.0.map;
        let listing = map.list("").await.map_err(CatalogError::from)?;
        let mut watch = map.watch("", Revision(listing.revision.0 + 1));
        let mut reigning = Reigning::new(control, Followed::of(&listing));
        drop(listing);
        if !reigning.lasts() {
            return Ok(());
        }
        let mut plan_at = now();
        let mut wait = Duration::ZERO;
        loop {
            loop {
                // All that has come by now: each decision by an older state is refused, and costs a way to the map and back.
                match runtime::timeout(wait, watch.next()).await {
                    Ok(Ok(events)) if !reigning.hear(&events) => return Ok(()),
                    Ok(Ok(_)) => wait = Duration::ZERO,
                    Err(_) | Ok(Err(MapError::Silent)) => break,
                    Ok(Err(error)) => return Err(CatalogError::from(error).into()),
                }
            }
            let mut is_more = reigning.step(map).await?.is_more;
            let began = now();
            if began >= plan_at {
                let wall_ns = runtime::wall_clock_ns();
                let planned = reigning.plan(map, began, wall_ns).await?;
                plan_at = now() + PLAN_WAIT.max(reigning.took() * PLAN_SHARE);
                is_more |= planned.is_more || planned.written > 0;
                if let Err(error) = reigning.forget_history(map, began).await {
                    log::debug!("the map's history is forgotten the next time: {error}");
                }
            }
            let until_plan = Duration::from_nanos(plan_at.0.saturating_sub(now().0));
            wait = if is_more || reigning.is_due() { until_plan.max(PLAN_WAIT) } else { TICK };
        }
    }

    // ---- how full devices are --------------------------------------------------------------------------------------

    async fn say_usage(&self) {
        loop {
            let slow = self.slow_stores().await;
            let usages: Vec<StoreUsageRecord> = {
                let devices = self.0.devices.borrow();
                let usage = |device: &super::OpenDevice| {
                    let (store, usage) = (device.store.store_id(), device.store.usage());
                    let (live_bytes, usable_bytes) = (usage.live_bytes, usage.new_blocks_until_bytes);
                    let failed = device.store.failed().map(|error| DeviceTrouble::Failed(error.to_string()));
                    let trouble = failed.or_else(|| slow.get(&store).map(|slow| DeviceTrouble::Slow(in_words(*slow))));
                    StoreUsageRecord { store, live_bytes, usable_bytes, trouble, of_groups: None }
                };
                devices.iter().map(usage).collect()
            };
            self.say_unusable().await;
            if !self.0.controls.has_counted(&usages) {
                self.count_groups(&usages).await;
            }
            for mut usage in usages {
                usage.of_groups = self.0.controls.of_groups(usage.store);
                let is_said = self.0.controls.said.borrow().get(&usage.store).is_some_and(|said| is_near(said, &usage));
                if !is_said && self.say_one(&usage).await.is_ok() {
                    self.0.controls.said.borrow_mut().insert(usage.store, usage);
                }
            }
            runtime::sleep(USAGE_EVERY).await;
        }
    }

    async fn count_groups(&self, usages: &[StoreUsageRecord]) {
        let on_core = |head: Rc<Head>| async move {
            let mut told = Vec::new();
            for shard in head.shards() {
                told.push((shard.store, shard.groups.bytes_of_groups().await));
            }
            told
        };
        let live_bytes = usages.iter().map(|usage| (usage.store, usage.live_bytes)).collect();
        let mut counted = Counted { at: now(), live_bytes, of_groups: BTreeMap::new() };
        for (store, of_shard) in self.on_each_core(move |head| Box::pin(on_core(head))).await.into_iter().flatten() {
            match of_shard {
                Some(of_shard) => counted.of_groups.entry(store).or_default().extend(of_shard),
                // The next time.
                None => drop(counted.live_bytes.remove(&store)),
            }
        }
        let is_whole = |store: &StoreId, _: &mut BTreeMap<GroupId, u64>| counted.live_bytes.contains_key(store);
        counted.of_groups.retain(is_whole);
        self.0.controls.counted.replace(Some(counted));
    }

    /// Of devices that the node serves without: how full they were stays as it was said last.
    async fn say_unusable(&self) {
        let unusable: Vec<_> =
            self.0.unusable.borrow().iter().map(|there| (there.record.store, there.why.clone())).collect();
        for (store, why) in unusable {
            let map = &*self.0.map;
            if get::<DeviceRecord>(map, &keys::device(store)).await.is_ok_and(|found| found.is_none()) {
                // It was replaced, or has left.
                self.0.unusable.borrow_mut().retain(|there| there.record.store != store);
            }
            let session = get::<SessionRecord>(map, &keys::session(store)).await;
            if !session.is_ok_and(|found| found.is_none_or(|found| found.record.node == self.0.id)) {
                // Another node has it.
                continue;
            }
            let said = get::<StoreUsageRecord>(map, &keys::store_usage(store)).await;
            let Ok(said) = said else { continue };
            let nothing = StoreUsageRecord { store, live_bytes: 0, usable_bytes: 0, trouble: None, of_groups: None };
            let said = said.map_or(nothing, |found| found.record);
            let trouble = Some(DeviceTrouble::Failed(why));
            if said.trouble != trouble {
                let _ = self.say_one(&StoreUsageRecord { trouble, ..said }).await;
            }
        }
    }

    /// Stores of this node that are slow, and what took how long.
    async fn slow_stores(&self) -> BTreeMap<StoreId, store::Slow> {
        let slow = |head: Rc<Head>| {
            let slow = head.shards().into_iter().filter_map(|shard| Some((shard.store, shard.groups.store().slow()?)));
            slow.collect::<Vec<_>>()
        };
        let told = self.on_each_core(move |head| Box::pin(async move { slow(head) })).await;
        told.into_iter().flatten().collect()
    }

    /// Nothing is said of a device that has left the map.
    async fn say_one(&self, usage: &StoreUsageRecord) -> Result<(), CatalogError> {
        let (map, key, device) = (&*self.0.map, keys::store_usage(usage.store), keys::device(usage.store));
        let Some(device_found) = get::<DeviceRecord>(map, &device).await? else { return Ok(()) };
        let found = get::<StoreUsageRecord>(map, &key).await?;
        let modified = found.map_or(Revision(0), |found| found.modified);
        let transaction = Transaction::new().expect(device, device_found.modified).expect(&key, modified);
        settle(map, transaction.put(key, encode(usage))).await.map(drop).map_err(CatalogError::from)
    }
}

impl Controls {
    /// Whether what was counted will do.
    fn has_counted(&self, usages: &[StoreUsageRecord]) -> bool {
        let counted = self.counted.borrow();
        let Some(counted) = counted.as_ref().filter(|counted| now().since(counted.at) < COUNT_EVERY) else {
            return false;
        };
        usages.iter().all(|usage| {
            let then = counted.live_bytes.get(&usage.store);
            then.is_some_and(|then| then.abs_diff(usage.live_bytes) <= usage.usable_bytes / USAGE_PART)
        })
    }

    /// What a device holds of each group.
    fn of_groups(&self, store: StoreId) -> Option<Vec<GroupBytes>> {
        let counted = self.counted.borrow();
        let of_store = counted.as_ref()?.of_groups.get(&store).filter(|groups| groups.len() <= GROUPS_SAID_MAX)?;
        Some(of_store.iter().map(|(group, bytes)| GroupBytes(*group, *bytes)).collect())
    }
}

/// Whether it is not worth telling. How long an append took matters once: it may be longer each time.
fn is_near(said: &StoreUsageRecord, is: &StoreUsageRecord) -> bool {
    let part = is.usable_bytes / USAGE_PART;
    let kind = |usage: &StoreUsageRecord| usage.trouble.as_ref().map(std::mem::discriminant);
    let moved = || {
        let of_is = is.of_groups.iter().flatten();
        of_is.map(|GroupBytes(group, bytes)| said.bytes_of(*group).unwrap_or(0).abs_diff(*bytes)).sum::<u64>()
    };
    kind(said) == kind(is)
        && said.usable_bytes.abs_diff(is.usable_bytes) <= part
        && said.live_bytes.abs_diff(is.live_bytes) <= part
        && said.of_groups.is_some() == is.of_groups.is_some()
        && moved() <= part
}

//! An operator: has devices and nodes emptied, used again, rest for a while, and take the place of others, while all of it is
//! used. What would take too much away is refused, whoever is away by then; nothing that was acknowledged is lost by what is not.

use super::administrator::{Administrator, NotDone};
use super::{Run, id_of};
use crate::workload::Failure;
use crate::workload::cluster::story::tell;
use cluster::control::DutyError;
use cluster::placement::duty::{Request, Subject};
use cluster::{GroupRecord, WantedRecord, keys, list};
use runtime::{random_u64, sleep};
use std::rc::Rc;
use std::time::Duration;
use types::{NodeId, StoreId};

/// What he orders, as it is told of a run.
pub const ORDERS: [&str; 5] = ["drains", "orders taken back", "rests", "replacements", "additions"];

/// Between two of his orders, on average.
const PAUSE_MS: u64 = 4_000;
/// Longest that an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest rest of a node.
const REST_SECONDS: u64 = 60;
/// All copies are where they belong so long after the last order, at most.
const SETTLED: Duration = Duration::from_secs(240);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);

impl Administrator {
    /// Orders what nodes and devices are to do until clients are stopped, as one of machine number `machine`.
    pub async fn operate(self: Rc<Self>, stores: Vec<StoreId>, machine: usize) {
        while !self.ledger.stop.get() {
            sleep(Duration::from_millis(random_u64() % (2 * PAUSE_MS))).await;
            let request = self.some_order(&stores);
            let (told, kind) = (format!("{request:?}"), kind_of(&request));
            match self.order(request).await {
                Ok(Ok(())) => {
                    self.ledger.counts.borrow_mut().orders[kind] += 1;
                    tell(format_args!("operator: {told}"));
                }
                Ok(Err(why)) => tell(format_args!("operator: {told}: {why}")),
                Err(why) => tell(format_args!("operator: {told}: {why:?}")),
            }
        }
        self.ledger.end(machine);
    }

    fn some_order(&self, stores: &[StoreId]) -> Request {
        let machines = self.machines();
        let node = || id_of(&machines[random_u64() as usize % machines.len()]);
        let at = random_u64() as usize % stores.len();
        let store = || stores[at];
        let other = || stores[(at + 1 + random_u64() as usize % (stores.len() - 1)) % stores.len()];
        let subject = || match random_u64() % 2 {
            0 => Subject::Node(node()),
            _ => Subject::Device(store()),
        };
        match random_u64() % 12 {
            0..4 => Request::Drain(subject()),
            4..7 => Request::TakeBack(subject()),
            7 | 8 => {
                let rest = Duration::from_secs(random_u64() % REST_SECONDS).as_nanos() as u64;
                Request::Maintain { node: node(), until_ns: runtime::wall_clock_ns() + rest }
            }
            9 | 10 => Request::Replace { old: store(), new: other() },
            _ => Request::Add { store: store(), class: String::new(), weight: None },
        }
    }

    /// Asks any node that is up.
    async fn order(&self, request: Request) -> Result<Result<(), DutyError>, NotDone> {
        let machines = self.machines();
        let up: Vec<_> = machines.iter().filter(|machine| machine.assembly().is_some()).collect();
        let Some(machine) = up.get(random_u64() as usize % up.len().max(1)) else { return Err(NotDone::Lost) };
        let ask = move |assembly: volume::Assembly, _| {
            let request = request.clone();
            async move { assembly.decide(&request).await.map(drop) }
        };
        self.ask_at(machine, "", &ask, PATIENCE).await
    }
}

/// Its place in [`ORDERS`].
fn kind_of(request: &Request) -> usize {
    match request {
        Request::Drain(_) => 0,
        Request::TakeBack(_) => 1,
        Request::Maintain { .. } => 2,
        Request::Replace { .. } => 3,
        Request::Add { .. } => 4,
        Request::Remove(_) | Request::GiveUp(_) => unreachable!("he takes nothing away for good"),
    }
}

impl Run {
    /// Everything does its part again, and all copies are where they belong.
    pub(super) fn end_duties(&mut self) -> Result<(), Failure> {
        let nodes = self.machines.iter().map(|machine| Subject::Node(id_of(machine)));
        let devices = self.stores.iter().map(|store| Subject::Device(*store));
        for subject in nodes.chain(devices).collect::<Vec<_>>() {
            // What does its part as it is is refused.
            self.order(&Request::TakeBack(subject), true)?;
        }
        self.settle()
    }

    /// Waits until all copies are where they belong.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        let began = self.world.now();
        loop {
            let Some(why) = self.is_unsettled()? else { return Ok(()) };
            if self.world.now() - began > SETTLED {
                return Err(Failure::new("liveness", format!("copies are not where they belong: {why}")));
            }
            self.go_on(self.world.now() + LOOK)?;
        }
    }

    /// Orders it until it is begun, of a node that is up; or until it is refused, where it may be.
    pub(super) fn order(&mut self, request: &Request, may_be_refused: bool) -> Result<(), Failure> {
        let began = self.world.now();
        loop {
            let up = self.machines.iter().find_map(|machine| Some((machine.clone(), machine.assembly()?)));
            let (machine, assembly) = up.expect("all is mended");
            let request = request.clone();
            let what = format!("{request:?}");
            let told = self.world.run_on(&machine.node, 0, async move { assembly.decide(&request).await.map(drop) })?;
            match told {
                Ok(()) => return Ok(()),
                Err(DutyError::Refused(_)) if may_be_refused => return Ok(()),
                Err(error) if self.world.now() - began > SETTLED => {
                    return Err(Failure::new("liveness", format!("{what}: {error}")));
                }
                Err(_) => self.go_on(self.world.now() + LOOK)?,
            }
        }
    }

    /// A group that is not whole, or is to move.
    fn is_unsettled(&self) -> Result<Option<String>, Failure> {
        let map = self.map.handle_for(NodeId(u32::MAX));
        let read = async move {
            let groups = list::<GroupRecord>(&*map, keys::GROUPS).await?;
            let wanted = list::<WantedRecord>(&*map, keys::WANTED).await?;
            Ok::<_, cluster::CatalogError>((groups, wanted))
        };
        let Ok((groups, wanted)) = self.world.run_on(&self.outside, 0, read)? else {
            return Ok(Some("the map does not answer".to_owned()));
        };
        if let Some(wanted) = wanted.first() {
            return Ok(Some(format!("{} orders stand, as {:?}", wanted.record.group, wanted.record)));
        }
        let replicas = self.profile.cluster.pools[0].replicas;
        let is_whole = |group: &GroupRecord| group.members.len() == replicas && group.in_sync.len() == replicas;
        let lacking = groups.into_iter().map(|found| found.record).find(|group| !is_whole(group));
        Ok(lacking.map(|group| format!("{group:?}")))
    }
}

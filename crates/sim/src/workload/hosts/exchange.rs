//! A node comes to the cluster and another leaves it for good, while volumes are written and served here and there: by the control
//! plane that ships. One of the two loses its power while copies are on their way.

use super::client::options;
use super::ending::HEAL_LIMIT;
use super::machine::Machine;
use super::sick::{Seen, use_other};
use super::{Run, id_of};
use crate::workload::Failure;
use crate::workload::cluster::story::tell;
use crate::workload::volume::machine::NVME_PORT;
use cluster::placement::duty::{Request, Subject};
use nvme::host::multipath::Multipath;
use runtime::sim::NodeOptions;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use types::{NodeId, StoreId};
use volume::StartError;

/// Copies are on their way by then.
const BEGUN: Duration = Duration::from_secs(1);
const WITHOUT_POWER: Duration = Duration::from_secs(3);
/// What hosts have asked for is answered so long after all is whole.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Hosts that go on until they are told to stop.
struct Users {
    host: Multipath,
    stop: Rc<Cell<bool>>,
    all: Vec<Rc<Seen>>,
}

impl Run {
    /// See the module. The newcomer has the place of the one that leaves from then on.
    pub(super) fn exchange_nodes(&mut self, place: usize) -> Result<(), Failure> {
        let leaver = self.machines[place].clone();
        let (newcomer, store) = self.bring_newcomer()?;
        self.order(&Request::Add { store, class: String::new(), weight: None }, false)?;
        let users = self.begin_using()?;
        self.send_away(&leaver)?;
        self.order(&Request::Drain(Subject::Node(id_of(&leaver))), false)?;
        tell(format_args!("operator: node {} is to be emptied", leaver.index));

        self.go_on(self.world.now() + BEGUN)?;
        let hit = if place.is_multiple_of(2) { &newcomer } else { &leaver };
        hit.stop(true);
        self.go_on(self.world.now() + WITHOUT_POWER)?;
        hit.start();
        self.settle()?;
        self.order(&Request::Remove(Subject::Node(id_of(&leaver))), false)?;
        self.ledger.counts.borrow_mut().removals += 1;

        tell(format_args!("node {} is gone for good", leaver.index));
        leaver.stop(false);
        self.machines.swap_remove(place);
        self.stores[place] = store;
        self.administrator.goes_by(&self.machines);
        self.until("a node is gone for good", HEAL_LIMIT, Self::lacks)?;
        self.end_using(&users)
    }

    /// Another node, with a device that holds nothing.
    fn bring_newcomer(&mut self) -> Result<(Rc<Machine>, StoreId), Failure> {
        let node = self.world.add_node(self.profile.cluster.cores, NodeOptions::default());
        let others: Vec<_> = self.machines.iter().map(|machine| &machine.node).chain(&self.clients).collect();
        for other in others {
            self.world.set_link(&node, other, self.profile.cluster.link);
            self.world.set_link(other, &node, self.profile.cluster.link);
        }
        let machine = Machine::new(self.profile.cluster.nodes, node, &self.map, &self.profile);
        let failed = |error: StartError| Failure::new("newcomer", error);
        let stores = self.world.run_on(&machine.node, 0, machine.clone().register())?.map_err(failed)?;
        machine.start();
        self.machines.push(machine.clone());
        self.administrator.goes_by(&self.machines);
        self.until("a node that came does not serve", HEAL_LIMIT, Self::lacks)?;
        Ok((machine, stores[0]))
    }

    /// A host writes and reads all volumes, through whichever node.
    fn begin_using(&mut self) -> Result<Users, Failure> {
        let addresses: Vec<_> = self.addresses().into_iter().map(|address| (address, NVME_PORT).into()).collect();
        let options = options(&self.ledger, self.profile.machines() + 2);
        let host = self.world.run_on(&self.outside, 0, async move { Multipath::new(&addresses, options) })?;
        let stop = Rc::new(Cell::new(false));
        let subjects = self.ledger.subjects.borrow().clone();
        let begin = |subject| {
            let seen = Rc::new(Seen::default());
            self.outside.spawn(0, use_other(self.ledger.clone(), host.clone(), subject, stop.clone(), seen.clone()));
            seen
        };
        let all = subjects.into_iter().map(begin).collect();
        Ok(Users { host, stop, all })
    }

    fn end_using(&mut self, users: &Users) -> Result<(), Failure> {
        users.stop.set(true);
        self.until("hosts wait", ANSWER_LIMIT, |_| users.all.iter().any(|seen| !seen.is_over.get()).then(String::new))?;
        users.host.close();
        match users.all.iter().find_map(|seen| seen.failed.borrow_mut().take()) {
            Some(why) => Err(Failure::new("error", why)),
            None => Ok(()),
        }
    }

    /// Volumes go to the others, the newcomer too, and are at home there.
    fn send_away(&mut self, leaver: &Rc<Machine>) -> Result<(), Failure> {
        let others: Vec<_> = self.machines.iter().filter(|machine| !Rc::ptr_eq(machine, leaver)).collect();
        let homes: Vec<_> = others.iter().rev().map(|machine| id_of(machine)).collect();
        for number in 0..self.administrator.count() {
            self.send(number, homes[number % homes.len()])?;
        }
        Ok(())
    }

    /// Sends a volume until it is where it is sent: the node may have no key of it yet, or be slow to serve it.
    fn send(&mut self, number: usize, to: NodeId) -> Result<(), Failure> {
        let began = self.world.now();
        loop {
            let administrator = self.administrator.clone();
            let sent = self.world.run_on(&self.outside, 0, async move { administrator.send(number, to).await })?;
            let Err(why) = sent else { return Ok(()) };
            if self.world.now() - began > HEAL_LIMIT {
                return Err(Failure::new("liveness", format!("a volume does not go to node {to}: {why:?}")));
            }
            self.go_on(self.world.now() + BEGUN)?;
        }
    }
}

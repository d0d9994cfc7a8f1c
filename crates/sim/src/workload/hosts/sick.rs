//! One sick volume leaves the other namespaces of its controller alone (H16): it needs a copy on a node that is away, which the
//! others do not; a host uses both, by the same controllers.

use super::administrator::standing;
use super::client::{HostVolume, options};
use super::ledger::{Ledger, Subject};
use super::machine::Machine;
use super::{Run, id_of};
use crate::workload::Failure;
use crate::workload::cluster::story::tell;
use crate::workload::volume::machine::NVME_PORT;
use cluster::{Limits, NewPool, PoolRulesRecord, WantedPlace};
use nvme::host::HostError;
use nvme::host::multipath::{Multipath, Options};
use runtime::{IoBuf, now, random_u64, sleep};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::{BLOCK_BYTES, CHUNK_BYTES};
use volume::{NewVolume, Standing, VolumeError};

const POOL: &str = "strict";
/// Copies of which all are needed, and there are.
const COPIES: usize = 3;
/// As Linux has it.
const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// Others lead by then what the node did that is away.
const TAKEN_OVER: Duration = Duration::from_secs(20);
/// Longer than a command may wait before its controller is reset, from its being sent.
const SICK_FOR: Duration = Duration::from_secs(45);
/// No command of the other volume takes longer.
const PROMPT: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(120);
/// Between two commands of the other volume.
const BETWEEN: Duration = Duration::from_millis(200);
const BYTE: u8 = 0x5C;

impl Run {
    /// See the module; where there are nodes enough.
    pub(super) fn leave_others_alone(&mut self) -> Result<(), Failure> {
        let pool = self.profile.cluster.pools[0];
        // Every group is on all nodes.
        if pool.replicas != COPIES || pool.min_in_sync == COPIES || self.machines.len() != COPIES {
            return Ok(());
        }
        let subject = self.ledger.subjects.borrow()[0].clone();
        let serves = |machine: &&Rc<Machine>| standing(machine, &subject.name) == Some(Standing::Here);
        let head = self.machines.iter().find(serves).cloned();
        let head = head.ok_or_else(|| Failure::new("sick", format!("nobody serves {}", subject.name)))?;
        let (sick, away) = self.make_sick_one(&head)?;
        let (host, written) = (self.new_host()?, Rc::new(Cell::new(false)));
        let begins = write(host.clone(), sick);
        self.world.run_on(&self.outside, 0, begins)?.map_err(|error| Failure::new("sick", error))?;

        tell(format_args!("node {} is away, and with it a copy that namespace {sick} needs", away.index));
        away.stop(false);
        self.go_on(self.world.now() + TAKEN_OVER)?;
        let (resets, seen, stop) = (host.counts().timed_out, Rc::new(Seen::default()), Rc::new(Cell::new(false)));
        let (waiting, end) = (host.clone(), written.clone());
        self.outside.spawn(0, async move { end.set(write(waiting, sick).await.is_ok()) });
        self.outside.spawn(0, use_other(self.ledger.clone(), host.clone(), subject, stop.clone(), seen.clone()));
        self.go_on(self.world.now() + SICK_FOR)?;
        stop.set(true);
        let broken = |why: String| Err(Failure::new("sick", why));
        if written.get() {
            return broken("what needs all copies is written without one".to_owned());
        }
        if let Some(why) = seen.failed.borrow_mut().take() {
            return broken(why);
        }
        if host.counts().timed_out != resets {
            return broken("a controller is reset because of a namespace whose group does not serve".to_owned());
        }
        self.until("a command of another namespace waits", PROMPT, |_| (!seen.is_over.get()).then(String::new))?;
        if seen.longest.get() > PROMPT {
            return broken(format!("a command of another namespace took {:?}", seen.longest.get()));
        }
        away.start();
        self.until("what waited is not written", LIMIT, |_| (!written.get()).then(String::new))?;
        host.close();
        self.ledger.counts.borrow_mut().sick += 1;
        Ok(())
    }

    /// A volume that this node serves, and a node that it needs, which serves none of the two.
    fn make_sick_one(&mut self, head: &Rc<Machine>) -> Result<(u32, Rc<Machine>), Failure> {
        let failed = |error: VolumeError| Failure::new("sick", error);
        let assembly = head.assembly().expect("all is whole");
        let home = id_of(head);
        let made = async move {
            let new = NewPool {
                name: POOL.to_owned(),
                replicas: COPIES as u32,
                min_in_sync: COPIES as u32,
                rules: Some(PoolRulesRecord::unset(POOL)),
                stores: Vec::new(),
            };
            assembly.create_pool(&new).await?;
            let new = NewVolume {
                name: POOL.to_owned(),
                size_bytes: CHUNK_BYTES,
                block_size_bytes: BLOCK_BYTES as u32,
                limits: Limits::default(),
                hosts: Default::default(),
            };
            let wanted = WantedPlace { pool: Some(POOL.to_owned()), home: Some(home), ..WantedPlace::default() };
            assembly.create_volume_at(new, &wanted).await
        };
        let info = self.world.run_on(&head.node, 0, made)?.map_err(failed)?;
        let mut others = self.machines.iter().filter(|machine| machine.index != head.index);
        let serves = |machine: &&Rc<Machine>| standing(machine, POOL) == Some(Standing::Here);
        let away = others.rfind(|machine| !serves(machine)).expect("there are three").clone();
        Ok((info.nsid, away))
    }

    fn new_host(&self) -> Result<Multipath, Failure> {
        let addresses: Vec<_> = self.addresses().into_iter().map(|address| (address, NVME_PORT).into()).collect();
        let machine = self.profile.machines() + 1;
        let options = Options { io_timeout: IO_TIMEOUT, ..options(&self.ledger, machine) };
        let made = async move { Multipath::new(&addresses, options) };
        Ok(self.world.run_on(&self.outside, 0, made)?)
    }
}

/// Writes the first block of a namespace, however long that takes.
async fn write(host: Multipath, nsid: u32) -> Result<(), HostError> {
    let bytes = IoBuf::copy_of(&[BYTE; BLOCK_BYTES]).freeze();
    host.command(nsid, |namespace| {
        let bytes = bytes.clone();
        async move { namespace.write(0, bytes).await }
    })
    .await
}

/// Writes and reads a volume until it is told to stop, and notes how long the longest command took.
pub(super) async fn use_other(
    ledger: Rc<Ledger>,
    host: Multipath,
    subject: Rc<Subject>,
    stop: Rc<Cell<bool>>,
    seen: Rc<Seen>,
) {
    let volume = HostVolume { ledger: &ledger, host: &host, subject: &subject };
    while !stop.get() {
        let (began, range) = (now(), ledger.draw_range());
        let done = match random_u64() % 2 {
            0 => volume.write(range).await,
            _ => volume.read(range).await,
        };
        seen.longest.set(seen.longest.get().max(now().since(began)));
        if let Err(error) = done {
            *seen.failed.borrow_mut() = Some(format!("{}: {error}", subject.name));
        }
        sleep(BETWEEN).await;
    }
    seen.is_over.set(true);
}

/// What came of the other volume's commands.
#[derive(Default)]
pub(super) struct Seen {
    longest: Cell<Duration>,
    pub failed: RefCell<Option<String>>,
    pub is_over: Cell<bool>,
}

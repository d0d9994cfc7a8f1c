//! The controllers of a process: who is connected, with which queues. Shared by all cores; locked when a queue comes
//! or goes, never for a command.

use super::controller::ControllerKind;
use crate::limits::{
    DISCOVERY_TIMEOUT, MAX_ADMIN_QUEUE_ENTRIES, MAX_DISCOVERY_CONTROLLERS, MAX_IO_QUEUES, MAX_KEEP_ALIVE,
    MAX_QUEUE_ENTRIES, MIN_KEEP_ALIVE,
};
use crate::wire::{Connect, ConnectData, DISCOVERY_NQN, DYNAMIC_CONTROLLER, InvalidParameter, Status};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What a subsystem tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// Its NQN.
    pub nqn: String,
    /// Serial number, at most 20 printable ASCII characters.
    pub serial: String,
    /// Model, at most 40.
    pub model: String,
    /// Firmware revision, at most 8.
    pub firmware: String,
    /// Controller ids this process may give, unique over all nodes; its ports have numbers of the same range.
    pub controller_ids: Range<u16>,
    /// Whether every host may use a volume of which nobody has said which may.
    pub open_by_default: bool,
}

/// A controller's number, as hosts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerId(pub u16);

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The host's address; its port changes with each connection.
    pub host: IpAddr,
    /// The address the host connected to.
    pub target: SocketAddr,
}

/// What all queues of a controller know of it, on whatever core they live.
#[derive(Debug)]
pub struct ControllerHandle {
    /// Its number.
    pub id: ControllerId,
    /// I/O or discovery.
    pub kind: ControllerKind,
    /// The host's name.
    pub host_nqn: String,
    /// The host's id.
    pub host_id: [u8; 16],
    /// Where its admin queue connected.
    pub endpoints: Endpoints,
    enabled: AtomicBool,
    ended: AtomicBool,
    keep_alive_ms: AtomicU64,
    last_alive_ns: AtomicU64,
}

impl ControllerHandle {
    /// Whether I/O queues may connect and commands run.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }
    pub(super) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Release);
    }
    /// Whether it is over: nothing of it may be executed any more.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
    /// Ends it. Queues that look find out; those that wait must be told.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
    /// The keep alive timeout; `None` if there is none.
    pub fn keep_alive(&self) -> Option<Duration> {
        Some(Duration::from_millis(self.keep_alive_ms.load(Ordering::Relaxed))).filter(|timeout| !timeout.is_zero())
    }
    pub(super) fn set_keep_alive_ms(&self, timeout_ms: u32) {
        self.keep_alive_ms.store(u64::from(timeout_ms), Ordering::Relaxed);
    }
    /// The host was heard, at this time of the node's clock.
    pub fn heard(&self, now_ns: u64) {
        self.last_alive_ns.fetch_max(now_ns, Ordering::Relaxed);
    }
    /// When the host was heard last.
    pub fn last_heard_ns(&self) -> u64 {
        self.last_alive_ns.load(Ordering::Relaxed)
    }
    /// Whether the host has been silent for longer than the keep alive timeout.
    pub fn is_silent(&self, now_ns: u64) -> bool {
        let silent_ns = now_ns.saturating_sub(self.last_heard_ns());
        let timeout = self.keep_alive().or((self.kind == ControllerKind::Discovery).then_some(DISCOVERY_TIMEOUT));
        timeout.is_some_and(|timeout| u128::from(silent_ns) > timeout.as_nanos())
    }
}

/// A keep alive timeout as this target keeps it; `None`: refused.
pub(super) fn accepted_keep_alive_ms(asked_ms: u32) -> Option<u32> {
    if asked_ms == 0 {
        return Some(0);
    }
    let asked = Duration::from_millis(u64::from(asked_ms));
    (asked <= MAX_KEEP_ALIVE).then(|| asked.max(MIN_KEEP_ALIVE).as_millis() as u32)
}

/// A Connect that was refused: the completion's status and result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the completion.
    pub status: Status,
    /// Its result: where the wrong parameter is.
    pub result: u64,
}

impl Refusal {
    fn new(status: Status) -> Self {
        Self { status: status.do_not_retry(), result: 0 }
    }
    /// The host may use nothing of the subsystem, as far as this node knows now: it may later, when it is allowed to, or a volume is
    /// unlocked. A host that is told not to try again removes the path for good.
    pub(crate) fn stranger() -> Self {
        Self { status: Status::CONNECT_INVALID_HOST, result: 0 }
    }
    fn command(at: u16) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS.do_not_retry();
        Self { status, result: InvalidParameter::Command(at).result() }
    }
    fn data(at: u16) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS.do_not_retry();
        Self { status, result: InvalidParameter::Data(at).result() }
    }
}

/// A Connect that may be accepted, once `replaces` have been ended on all cores.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The controller the queue belongs to.
    pub controller: Arc<ControllerHandle>,
    /// Queue id.
    pub queue: u16,
    /// Entries of the queue.
    pub entries: u16,
    /// SQ flow control is off.
    pub no_flow_control: bool,
    /// Older controllers of the same host on the same path.
    pub replaces: Vec<Arc<ControllerHandle>>,
}

struct Entry {
    handle: Arc<ControllerHandle>,
    /// Bit n: I/O queue n is connected.
    queues: u128,
    /// I/O queues the host asked for.
    max_queues: u16,
}

#[derive(Default)]
struct Inner {
    controllers: Vec<Entry>,
    next_id: u16,
}

/// See the module.
pub struct Registry {
    subsystem: Subsystem,
    inner: Mutex<Inner>,
}

const _: () = assert!(MAX_IO_QUEUES < 128);

/// Offsets that a refusal names.
mod at {
    pub const QUEUE: u16 = 42;
    pub const SQ_SIZE: u16 = 44;
    pub const KEEP_ALIVE: u16 = 48;
    pub const CONTROLLER: u16 = 16;
    pub const SUBSYSTEM: u16 = 256;
    pub const HOST: u16 = 512;
}

impl Registry {
    /// A registry without controllers.
    pub fn new(subsystem: Subsystem) -> Self {
        let inner = Inner { controllers: Vec::new(), next_id: subsystem.controller_ids.start };
        Self { subsystem, inner: Mutex::new(inner) }
    }

    /// The subsystem whose controllers these are.
    pub fn subsystem(&self) -> &Subsystem {
        &self.subsystem
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Judges a Connect. An accepted admin queue makes a new controller; an I/O queue joins the one it names.
    pub fn admit(
        &self,
        connect: &Connect,
        data: &ConnectData,
        endpoints: Endpoints,
        discovery_only: bool,
        now_ns: u64,
    ) -> Result<Admission, Refusal> {
        if connect.record_format != 0 {
            return Err(Refusal::new(Status::CONNECT_FORMAT));
        }
        let subsystem = data.subsystem.as_deref().ok_or(Refusal::data(at::SUBSYSTEM))?;
        let host = data.host.as_deref().ok_or(Refusal::data(at::HOST))?;
        let kind = match subsystem {
            DISCOVERY_NQN => ControllerKind::Discovery,
            nqn if nqn == self.subsystem.nqn && !discovery_only => ControllerKind::Io,
            _ => return Err(Refusal::data(at::SUBSYSTEM)),
        };
        let largest = if connect.queue == 0 { MAX_ADMIN_QUEUE_ENTRIES } else { MAX_QUEUE_ENTRIES };
        if connect.sq_size == 0 || connect.sq_size >= largest {
            return Err(Refusal::command(at::SQ_SIZE));
        }
        let (controller, replaces) = if connect.queue == 0 {
            self.admit_admin(connect, data, host, kind, endpoints, now_ns)?
        } else {
            (self.admit_io(connect, data, host, kind, endpoints)?, Vec::new())
        };
        Ok(Admission {
            controller,
            queue: connect.queue,
            entries: connect.sq_size + 1,
            no_flow_control: connect.attributes & Connect::NO_FLOW_CONTROL != 0,
            replaces,
        })
    }

    fn admit_admin(
        &self,
        connect: &Connect,
        data: &ConnectData,
        host: &str,
        kind: ControllerKind,
        endpoints: Endpoints,
        now_ns: u64,
    ) -> Result<(Arc<ControllerHandle>, Vec<Arc<ControllerHandle>>), Refusal> {
        if data.controller != DYNAMIC_CONTROLLER {
            return Err(Refusal::data(at::CONTROLLER));
        }
        let keep_alive_ms = accepted_keep_alive_ms(connect.keep_alive_ms).ok_or(Refusal::command(at::KEEP_ALIVE))?;
        let mut inner = self.lock();
        let handles = || inner.controllers.iter().map(|entry| &entry.handle);
        let replaces = match kind {
            ControllerKind::Io => {
                let is_older = |old: &&Arc<ControllerHandle>| {
                    (old.kind, old.host_nqn.as_str(), old.host_id) == (ControllerKind::Io, host, data.host_id)
                        && old.endpoints == endpoints
                };
                handles().filter(is_older).cloned().collect()
            }
            // Whoever reaches the port may discover, under any name: the oldest gives way before ids run out.
            ControllerKind::Discovery => {
                let all: Vec<_> = handles().filter(|old| old.kind == kind && !old.has_ended()).collect();
                let surplus = (all.len() + 1).saturating_sub(MAX_DISCOVERY_CONTROLLERS);
                all[..surplus].iter().map(|old| Arc::clone(old)).collect()
            }
        };
        let id =
            inner.free_id(&self.subsystem.controller_ids).ok_or(Refusal { status: Status::CONNECT_BUSY, result: 0 })?;
        let handle = Arc::new(ControllerHandle {
            id,
            kind,
            host_nqn: host.to_owned(),
            host_id: data.host_id,
            endpoints,
            enabled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            keep_alive_ms: AtomicU64::new(u64::from(keep_alive_ms)),
            last_alive_ns: AtomicU64::new(now_ns),
        });
        inner.controllers.push(Entry { handle: handle.clone(), queues: 0, max_queues: MAX_IO_QUEUES });
        Ok((handle, replaces))
    }

    fn admit_io(
        &self,
        connect: &Connect,
        data: &ConnectData,
        host: &str,
        kind: ControllerKind,
        endpoints: Endpoints,
    ) -> Result<Arc<ControllerHandle>, Refusal> {
        let mut inner = self.lock();
        let entry = inner
            .controllers
            .iter_mut()
            .find(|entry| entry.handle.id.0 == data.controller)
            .ok_or(Refusal::data(at::CONTROLLER))?;
        let handle = entry.handle.clone();
        if kind == ControllerKind::Discovery || handle.kind == ControllerKind::Discovery {
            return Err(Refusal::command(at::QUEUE));
        }
        if handle.host_nqn != host || handle.host_id != data.host_id {
            return Err(Refusal::new(Status::CONNECT_INVALID_HOST));
        }
        // With ANA an I/O queue belongs to the path of its admin queue.
        if handle.endpoints.target != endpoints.target || handle.has_ended() {
            return Err(Refusal::data(at::CONTROLLER));
        }
        if !handle.is_enabled() {
            return Err(Refusal { status: Status::COMMAND_SEQUENCE, result: 0 });
        }
        if connect.queue > entry.max_queues {
            return Err(Refusal::command(at::QUEUE));
        }
        let bit = 1u128 << connect.queue;
        if entry.queues & bit != 0 {
            return Err(Refusal { status: Status::CONNECT_BUSY, result: 0 });
        }
        entry.queues |= bit;
        Ok(handle)
    }

    /// The host said how many I/O queues it wants; `false` if some are connected already.
    pub(super) fn set_max_queues(&self, id: ControllerId, queues: u16) -> bool {
        let mut inner = self.lock();
        let Some(entry) = inner.controllers.iter_mut().find(|entry| entry.handle.id == id) else { return false };
        if entry.queues != 0 {
            return false;
        }
        entry.max_queues = queues;
        true
    }

    /// I/O queues the host may connect.
    pub(super) fn max_queues(&self, id: ControllerId) -> u16 {
        let inner = self.lock();
        inner.controllers.iter().find(|entry| entry.handle.id == id).map_or(0, |entry| entry.max_queues)
    }

    /// A queue's connection is gone. With the admin queue the controller ends; its I/O queues must be told.
    pub fn queue_gone(&self, controller: &ControllerHandle, queue: u16) {
        let mut inner = self.lock();
        if queue == 0 {
            controller.end();
            inner.controllers.retain(|entry| entry.handle.id != controller.id);
        } else if let Some(entry) = inner.controllers.iter_mut().find(|entry| entry.handle.id == controller.id) {
            entry.queues &= !(1u128 << queue);
        }
    }

    /// All controllers.
    pub fn controllers(&self) -> Vec<Arc<ControllerHandle>> {
        self.lock().controllers.iter().map(|entry| entry.handle.clone()).collect()
    }
}

impl Inner {
    /// The next id nobody has, going round: an id comes back as late as can be.
    fn free_id(&mut self, range: &Range<u16>) -> Option<ControllerId> {
        for _ in range.clone() {
            let id = self.next_id;
            self.next_id = if id + 1 >= range.end { range.start } else { id + 1 };
            if self.controllers.iter().all(|entry| entry.handle.id.0 != id) {
                return Some(ControllerId(id));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str = "nqn.2026-01.io.example:one";

    fn registry() -> Registry {
        Registry::new(Subsystem {
            nqn: NQN.into(),
            serial: "1".into(),
            model: "m".into(),
            firmware: "1".into(),
            controller_ids: 1..4,
            open_by_default: true,
        })
    }

    fn endpoints(target_port: u16) -> Endpoints {
        Endpoints { host: [127, 0, 0, 1].into(), target: ([127, 0, 0, 1], target_port).into() }
    }

    fn connect(queue: u16) -> Connect {
        Connect { record_format: 0, queue, sq_size: 31, attributes: 0, keep_alive_ms: 5000 }
    }

    fn data(controller: u16) -> ConnectData {
        let host = Some("nqn.host".to_owned());
        ConnectData { host_id: [7; 16], controller, subsystem: Some(NQN.into()), host }
    }

    fn admit(registry: &Registry, connect: &Connect, data: &ConnectData) -> Result<Admission, Refusal> {
        registry.admit(connect, data, endpoints(4420), false, 0)
    }

    fn refused(connect: Connect, data: ConnectData) -> Refusal {
        admit(&registry(), &connect, &data).expect_err("refused")
    }

    #[test]
    fn discovery_controllers_leave_ids_for_hosts_whoever_asks() {
        let ids = 1..3 + MAX_DISCOVERY_CONTROLLERS as u16;
        let registry = Registry::new(Subsystem { controller_ids: ids, ..registry().subsystem().clone() });
        let mut seen = Vec::new();
        for number in 0..2 * MAX_DISCOVERY_CONTROLLERS {
            let stranger = ConnectData {
                subsystem: Some(DISCOVERY_NQN.into()),
                host: Some(format!("nqn.stranger.{number}")),
                ..data(DYNAMIC_CONTROLLER)
            };
            let admitted = admit(&registry, &connect(0), &stranger).expect("the oldest gives way");
            for older in &admitted.replaces {
                assert!(Arc::ptr_eq(older, &seen[number - MAX_DISCOVERY_CONTROLLERS]), "the oldest");
                older.end();
                registry.queue_gone(older, 0);
            }
            seen.push(admitted.controller);
        }
        admit(&registry, &connect(0), &data(DYNAMIC_CONTROLLER)).expect("a host");
    }

    #[test]
    fn an_admin_connect_says_what_is_wrong() {
        let bad = |offset: u16| InvalidParameter::Data(offset).result();
        assert_eq!(
            refused(Connect { record_format: 1, ..connect(0) }, data(0xFFFF)).status.code(),
            Status::CONNECT_FORMAT
        );
        assert_eq!(refused(connect(0), ConnectData { subsystem: Some("x".into()), ..data(0xFFFF) }).result, bad(256));
        assert_eq!(refused(connect(0), ConnectData { host: None, ..data(0xFFFF) }).result, bad(512));
        assert_eq!(refused(connect(0), data(1)).result, bad(16));
        for sq_size in [0, 256] {
            assert_eq!(refused(Connect { sq_size, ..connect(0) }, data(0xFFFF)).result, 44);
        }
        assert_eq!(refused(Connect { keep_alive_ms: 300_001, ..connect(0) }, data(0xFFFF)).result, 48);
        let discovery_port = registry().admit(&connect(0), &data(0xFFFF), endpoints(8009), true, 0);
        assert_eq!(discovery_port.expect_err("refused").result, bad(256));
    }

    #[test]
    fn an_io_connect_needs_a_living_enabled_controller_and_a_free_queue() {
        let registry = registry();
        assert_eq!(admit(&registry, &connect(1), &data(1)).expect_err("unknown").result, 16 | 1 << 16);
        let admin = admit(&registry, &connect(0), &data(0xFFFF)).expect("accepted");
        let id = admin.controller.id.0;
        assert_eq!(
            admit(&registry, &connect(1), &data(id)).expect_err("disabled").status.code(),
            Status::COMMAND_SEQUENCE
        );
        admin.controller.set_enabled(true);
        let stranger = ConnectData { host_id: [8; 16], ..data(id) };
        let refusal = admit(&registry, &connect(1), &stranger).expect_err("another host");
        assert_eq!(refusal.status.code(), Status::CONNECT_INVALID_HOST);
        assert!(registry.set_max_queues(admin.controller.id, 2));
        assert_eq!(admit(&registry, &connect(3), &data(id)).expect_err("out of range").result, 42);
        admit(&registry, &connect(1), &data(id)).expect("accepted");
        assert!(!registry.set_max_queues(admin.controller.id, 5), "queues are connected");
        assert_eq!(
            admit(&registry, &connect(1), &data(id)).expect_err("duplicate").status.code(),
            Status::CONNECT_BUSY
        );
        registry.queue_gone(&admin.controller, 1);
        admit(&registry, &connect(1), &data(id)).expect("free again");
        registry.queue_gone(&admin.controller, 0);
        assert!(admin.controller.has_ended());
        admit(&registry, &connect(2), &data(id)).expect_err("gone");
    }

    #[test]
    fn a_host_that_comes_again_on_the_same_path_replaces_itself() {
        let registry = registry();
        let first = admit(&registry, &connect(0), &data(0xFFFF)).expect("accepted");
        let again = admit(&registry, &connect(0), &data(0xFFFF)).expect("accepted");
        assert_eq!(again.replaces.iter().map(|old| old.id).collect::<Vec<_>>(), [first.controller.id]);
        let other_path = registry.admit(&connect(0), &data(0xFFFF), endpoints(4421), false, 0).expect("accepted");
        assert!(other_path.replaces.is_empty());
        let full = admit(&registry, &connect(0), &data(0xFFFF)).expect_err("no id left");
        assert_eq!(full.status, Status::CONNECT_BUSY);
    }

    #[test]
    fn a_discovery_controller_without_a_keep_alive_timeout_is_silent_after_two_minutes() {
        let registry = registry();
        let connect = Connect { keep_alive_ms: 0, ..connect(0) };
        let data = ConnectData { subsystem: Some(DISCOVERY_NQN.into()), ..data(0xFFFF) };
        let discovery = admit(&registry, &connect, &data).expect("accepted").controller;
        assert!(!discovery.is_silent(120_000_000_000) && discovery.is_silent(120_000_000_001));
        let io = admit(&registry, &connect, &self::data(0xFFFF)).expect("accepted").controller;
        assert!(!io.is_silent(u64::MAX), "it has none, and none is made up");
    }

    #[test]
    fn silence_is_longer_than_the_keep_alive_timeout() {
        let registry = registry();
        let admin = admit(&registry, &Connect { keep_alive_ms: 1, ..connect(0) }, &data(0xFFFF)).expect("accepted");
        assert_eq!(admin.controller.keep_alive(), Some(MIN_KEEP_ALIVE));
        assert!(!admin.controller.is_silent(5_000_000_000));
        assert!(admin.controller.is_silent(5_000_000_001));
        admin.controller.heard(1);
        assert!(!admin.controller.is_silent(5_000_000_001));
    }
}

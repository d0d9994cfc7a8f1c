//! A controller: its properties, features, events and logs. Owned by its admin queue.

use super::features::Features;
use super::registry::{ControllerHandle, ControllerId};
use crate::limits;
use crate::wire::identify::IDENTIFY_BYTES;
use crate::wire::log::ErrorEntry;
use crate::wire::{AsyncEvent, Configuration, Property, Status, controller_status, property};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// What a controller is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// Namespaces.
    Io,
    /// The discovery log.
    Discovery,
}

/// What a Property Set started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    None,
    /// CC.EN 1 → 0, or a shutdown: the I/O queues must end before the status says so.
    EndQueues,
}

/// Where a reset or shutdown stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    None,
    Reset,
    Shutdown,
}

/// CAP: queues of 1,024 entries, contiguous, round robin, 4 KiB pages, NVM command set, ready times in CRTO.
const CAPABILITIES: u64 =
    (limits::MAX_QUEUE_ENTRIES as u64 - 1) | 1 << 16 | (limits::READY_TIMEOUT_UNITS as u64) << 24 | 1 << 37 | 1 << 59;

/// See the module.
pub struct Controller {
    handle: Arc<ControllerHandle>,
    configuration: Configuration,
    status: u32,
    ending: Ending,
    shut_down_at_ns: Option<u64>,
    /// Values of its features.
    pub(super) features: Features,
    /// Slots of parked async event requests.
    event_requests: VecDeque<u16>,
    /// Events nobody has asked for yet; one of each kind.
    waiting_events: Vec<AsyncEvent>,
    /// Kinds that were told and whose page has not been read since.
    masked_events: Vec<AsyncEvent>,
    changed_namespaces: BTreeSet<u32>,
    errors: VecDeque<ErrorEntry>,
    error_count: u64,
}

impl Controller {
    pub(super) fn new(handle: Arc<ControllerHandle>) -> Self {
        Self {
            handle,
            configuration: Configuration::default(),
            status: 0,
            ending: Ending::None,
            shut_down_at_ns: None,
            features: Features::default(),
            event_requests: VecDeque::with_capacity(limits::MAX_EVENT_REQUESTS),
            waiting_events: Vec::new(),
            masked_events: Vec::new(),
            changed_namespaces: BTreeSet::new(),
            errors: VecDeque::new(),
            error_count: 0,
        }
    }

    /// What the I/O queues know of it.
    pub fn handle(&self) -> &Arc<ControllerHandle> {
        &self.handle
    }
    /// Its number.
    pub fn id(&self) -> ControllerId {
        self.handle.id
    }
    /// What it is for.
    pub fn kind(&self) -> ControllerKind {
        self.handle.kind
    }
    /// Whether admin commands may run.
    pub fn is_ready(&self) -> bool {
        self.status & controller_status::READY != 0
    }

    /// Reads a property.
    pub(super) fn property_get(&self, get: &Property) -> Result<u64, Status> {
        let (value, size) = match get.offset {
            property::CAPABILITIES => (CAPABILITIES, 8),
            property::VERSION => (u64::from(super::identify::VERSION), 4),
            property::CONFIGURATION => (u64::from(self.configuration.0), 4),
            property::STATUS => (u64::from(self.status_now()), 4),
            property::SUBSYSTEM_RESET => (0, 4),
            property::READY_TIMEOUTS => (u64::from(limits::READY_TIMEOUT_UNITS), 4),
            _ => return Err(Status::INVALID_FIELD.do_not_retry()),
        };
        if get.size_bytes != Some(size) {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        Ok(value)
    }

    /// CSTS: a shutdown that is under way says so.
    fn status_now(&self) -> u32 {
        if self.ending == Ending::Shutdown { self.status | controller_status::SHUTDOWN_UNDER_WAY } else { self.status }
    }

    /// Writes a property; only CC can be.
    pub(super) fn property_set(&mut self, set: &Property) -> Result<Transition, Status> {
        let next = Configuration(set.value as u32);
        if set.offset != property::CONFIGURATION || set.size_bytes != Some(4) || !next.is_supported() {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        let before = std::mem::replace(&mut self.configuration, next);
        if next.shutdown() && !before.shutdown() {
            return Ok(self.end_queues(Ending::Shutdown));
        }
        if before.enabled() && !next.enabled() {
            return Ok(self.end_queues(Ending::Reset));
        }
        if !before.enabled() && next.enabled() {
            self.status = controller_status::READY;
            self.ending = Ending::None;
            self.shut_down_at_ns = None;
        }
        // The sizes of entries may be said later than that it is enabled, as long as no I/O queue is there (NVMe Base 2.0 §3.1.3.5).
        let is_over =
            next.shutdown() || before.shutdown() && before.enabled() || self.status & controller_status::FATAL != 0;
        if next.enabled() && !is_over {
            self.handle.set_enabled(next.has_entry_sizes());
        }
        Ok(Transition::None)
    }

    fn end_queues(&mut self, ending: Ending) -> Transition {
        self.handle.set_enabled(false);
        self.ending = ending;
        Transition::EndQueues
    }

    /// The controller cannot go on, and says so (CSTS.CFS).
    pub(super) fn fail(&mut self) {
        self.handle.set_enabled(false);
        self.status |= controller_status::FATAL;
    }

    /// When the host shut it down, on the node's clock.
    pub(super) fn shut_down_at_ns(&self) -> Option<u64> {
        self.shut_down_at_ns
    }

    /// All I/O queues of a reset or shutdown have ended.
    pub fn queues_ended(&mut self, now_ns: u64) {
        match std::mem::replace(&mut self.ending, Ending::None) {
            Ending::None => {}
            Ending::Reset => {
                self.status = 0;
                self.features = Features::default();
                self.waiting_events.clear();
                self.masked_events.clear();
            }
            Ending::Shutdown => {
                self.status |= controller_status::SHUTDOWN_COMPLETE;
                self.shut_down_at_ns = Some(now_ns);
                if !self.configuration.enabled() {
                    self.status &= !controller_status::READY;
                }
            }
        }
    }

    /// Parks an async event request; `Some(event)` if one waits for it already.
    pub(super) fn request_event(&mut self, slot: u16) -> Result<Option<AsyncEvent>, Status> {
        if self.event_requests.len() >= limits::MAX_EVENT_REQUESTS {
            return Err(Status::ASYNC_EVENT_LIMIT.do_not_retry());
        }
        self.event_requests.push_back(slot);
        Ok(self.next_event().map(|(parked, event)| {
            debug_assert_eq!(parked, slot, "an event waits only while no request does");
            event
        }))
    }

    /// A parked request is taken back by Abort.
    pub(super) fn withdraw_event_request(&mut self, slot: u16) -> bool {
        let before = self.event_requests.len();
        self.event_requests.retain(|parked| *parked != slot);
        self.event_requests.len() < before
    }

    /// Notes an event, once, if the host wants it.
    pub(super) fn raise(&mut self, event: AsyncEvent) {
        let wanted = self.features.wants(event);
        if wanted && !self.waiting_events.contains(&event) && !self.masked_events.contains(&event) {
            self.waiting_events.push(event);
        }
    }

    /// A parked request and the event that answers it.
    pub(super) fn next_event(&mut self) -> Option<(u16, AsyncEvent)> {
        if self.waiting_events.is_empty() {
            return None;
        }
        let slot = self.event_requests.pop_front()?;
        let event = self.waiting_events.remove(0);
        self.masked_events.push(event);
        Some((slot, event))
    }

    /// The page of an event was read: the event may come again.
    pub(super) fn page_read(&mut self, page: u8) {
        self.masked_events.retain(|event| event.log_page() != page);
    }

    /// Notes namespaces that came, went or changed; whether there was one. Also of one that is noted already the host
    /// is told, unless it knows (masked): it may have been noted while the host wanted no notice.
    pub(super) fn note_changed_namespaces(&mut self, nsids: impl Iterator<Item = u32>) -> bool {
        let mut any = false;
        self.changed_namespaces.extend(nsids.inspect(|_| any = true));
        any
    }

    /// The page of changed namespaces; reading clears it unless the event is retained.
    pub(super) fn take_changed_namespaces(&mut self, retain: bool) -> [u8; IDENTIFY_BYTES] {
        let page = crate::wire::identify::encode_namespace_list(self.changed_namespaces.iter().copied());
        if !retain {
            self.changed_namespaces.clear();
        }
        page
    }

    /// Notes a command that failed.
    pub(super) fn note_error(&mut self, command: u16, nsid: u32, status: Status) {
        self.error_count += 1;
        if self.errors.len() == limits::ERROR_LOG_ENTRIES {
            self.errors.pop_back();
        }
        self.errors.push_front(ErrorEntry { count: self.error_count, queue: 0, command, status: status.0, nsid });
    }

    /// The error log, newest first.
    pub(super) fn errors(&self) -> impl Iterator<Item = &ErrorEntry> {
        self.errors.iter()
    }
}

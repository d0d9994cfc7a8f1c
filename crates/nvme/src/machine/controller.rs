//! A controller: its properties, features, events and logs. Owned by its admin queue.

use super::registry::{ControllerHandle, ControllerId, Registry, accepted_keep_alive_ms};
use crate::limits;
use crate::wire::identify::IDENTIFY_BYTES;
use crate::wire::log::ErrorEntry;
use crate::wire::{
    AsyncEvent, Configuration, HOST_BEHAVIOR_BYTES, Property, SAVE, Status, controller_status, feature, property,
};
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
    event_configuration: u32,
    arbitration: u32,
    temperature: [u32; 2],
    error_recovery: u32,
    write_atomicity: u32,
    host_behavior: Box<[u8; HOST_BEHAVIOR_BYTES]>,
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
            event_configuration: 0,
            arbitration: 6,
            temperature: [0xFFFF, 0],
            error_recovery: 0,
            write_atomicity: 0,
            host_behavior: Box::new([0; HOST_BEHAVIOR_BYTES]),
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
            property::STATUS => (u64::from(self.status), 4),
            property::SUBSYSTEM_RESET => (0, 4),
            property::READY_TIMEOUTS => (u64::from(limits::READY_TIMEOUT_UNITS), 4),
            _ => return Err(Status::INVALID_FIELD.do_not_retry()),
        };
        if get.size_bytes != Some(size) {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        Ok(value)
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
            self.handle.set_enabled(next.has_entry_sizes());
        }
        Ok(Transition::None)
    }

    fn end_queues(&mut self, ending: Ending) -> Transition {
        self.handle.set_enabled(false);
        self.ending = ending;
        Transition::EndQueues
    }

    /// All I/O queues of a reset or shutdown have ended.
    pub fn queues_ended(&mut self) {
        match std::mem::replace(&mut self.ending, Ending::None) {
            Ending::None => {}
            Ending::Reset => {
                self.status = 0;
                self.event_configuration = 0;
                self.waiting_events.clear();
                self.masked_events.clear();
            }
            Ending::Shutdown => {
                self.status |= controller_status::SHUTDOWN_COMPLETE;
                if !self.configuration.enabled() {
                    self.status &= !controller_status::READY;
                }
            }
        }
    }

    /// Reads a feature's value (dword 0 of the completion) and data.
    pub(super) fn get_feature(&self, registry: &Registry, cdw: &[u32; 6]) -> Result<(u32, Vec<u8>), Status> {
        let invalid = Status::INVALID_FIELD.do_not_retry();
        if cdw[0] >> 8 & 7 != 0 {
            return Err(invalid); // saved, default and supported values are not told (ONCS bit 4)
        }
        let id = cdw[0] as u8;
        self.check_feature(id)?;
        let value = match id {
            feature::ARBITRATION => self.arbitration,
            feature::POWER_MANAGEMENT => 0,
            feature::TEMPERATURE_THRESHOLD => self.temperature[usize::from(cdw[1] >> 20 & 3 == 1)],
            feature::ERROR_RECOVERY => self.error_recovery,
            feature::NUMBER_OF_QUEUES => {
                let less_one = u32::from(registry.max_queues(self.id()).saturating_sub(1));
                less_one | less_one << 16
            }
            feature::WRITE_ATOMICITY => self.write_atomicity,
            feature::ASYNC_EVENT_CONFIGURATION => self.event_configuration,
            feature::KEEP_ALIVE_TIMER => self.handle.keep_alive().map_or(0, |timeout| timeout.as_millis() as u32),
            feature::HOST_BEHAVIOR => return Ok((0, self.host_behavior.to_vec())),
            feature::HOST_IDENTIFIER if cdw[1] & crate::wire::EXTENDED_HOST_ID != 0 => {
                return Ok((0, self.handle.host_id.to_vec()));
            }
            feature::HOST_IDENTIFIER => return Err(Status::HOST_ID_INCONSISTENT.do_not_retry()),
            _ => return Err(invalid),
        };
        Ok((value, Vec::new()))
    }

    /// A discovery controller has two features.
    fn check_feature(&self, id: u8) -> Result<(), Status> {
        let allowed = self.kind() == ControllerKind::Io
            || matches!(id, feature::ASYNC_EVENT_CONFIGURATION | feature::KEEP_ALIVE_TIMER);
        if allowed { Ok(()) } else { Err(Status::INVALID_FIELD.do_not_retry()) }
    }

    /// Sets a feature; returns dword 0 of the completion.
    pub(super) fn set_feature(&mut self, registry: &Registry, cdw: &[u32; 6], data: &[u8]) -> Result<u32, Status> {
        let invalid = Status::INVALID_FIELD.do_not_retry();
        if cdw[0] & SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE.do_not_retry());
        }
        let (id, value) = (cdw[0] as u8, cdw[1]);
        self.check_feature(id)?;
        match id {
            feature::ARBITRATION => self.arbitration = value,
            feature::POWER_MANAGEMENT if value & 0x1F == 0 => {}
            feature::TEMPERATURE_THRESHOLD => self.temperature[usize::from(value >> 20 & 3 == 1)] = value & 0xFFFF,
            feature::ERROR_RECOVERY if value & 0x1_0000 == 0 => self.error_recovery = value,
            feature::NUMBER_OF_QUEUES => return self.set_number_of_queues(registry, value),
            feature::WRITE_ATOMICITY => self.write_atomicity = value & 1,
            feature::ASYNC_EVENT_CONFIGURATION => self.event_configuration = value,
            feature::KEEP_ALIVE_TIMER => {
                let timeout_ms = accepted_keep_alive_ms(value).filter(|timeout| *timeout > 0);
                self.handle.set_keep_alive_ms(timeout_ms.ok_or(Status::KEEP_ALIVE_INVALID.do_not_retry())?);
            }
            feature::HOST_BEHAVIOR if data.len() >= HOST_BEHAVIOR_BYTES && data[0] <= 1 => {
                self.host_behavior.copy_from_slice(&data[..HOST_BEHAVIOR_BYTES]);
            }
            // Given by Connect (NVMe Base 2.0 §5.27.1.25).
            feature::HOST_IDENTIFIER => return Err(Status::COMMAND_SEQUENCE.do_not_retry()),
            _ => return Err(invalid),
        }
        Ok(0)
    }

    fn set_number_of_queues(&self, registry: &Registry, value: u32) -> Result<u32, Status> {
        let (submission, completion) = (value & 0xFFFF, value >> 16);
        if submission == 0xFFFF || completion == 0xFFFF {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        let less_one = submission.min(completion).min(u32::from(limits::MAX_IO_QUEUES) - 1);
        if !registry.set_max_queues(self.id(), less_one as u16 + 1) {
            return Err(Status::COMMAND_SEQUENCE.do_not_retry());
        }
        Ok(less_one | less_one << 16)
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
        let wanted = self.event_configuration & event.mask() != 0;
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

    /// Notes namespaces that came, went or changed.
    pub(super) fn note_changed_namespaces(&mut self, nsids: impl Iterator<Item = u32>) -> bool {
        let before = self.changed_namespaces.len();
        self.changed_namespaces.extend(nsids);
        self.changed_namespaces.len() > before
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

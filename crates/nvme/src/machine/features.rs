//! What Get Features and Set Features answer (NVMe Base 2.0 §5.15 and §5.27).
//!
//! Nothing is saved over a reset: the saved value of a feature is its default, and a host that asks to save is told so.
//! Values that have no effect here (there is no fan, no power state, no round of queues) are kept and given back, as
//! the specification asks of mandatory features.

use super::controller::{Controller, ControllerKind};
use super::registry::{Registry, accepted_keep_alive_ms};
use crate::limits;
use crate::wire::{
    AsyncEvent, EXTENDED_HOST_ID, HOST_BEHAVIOR_BYTES, HOST_ID_BYTES, SAVE, Select, Status, feature, feature_support,
};

/// Features of a controller for namespaces, and whether a host may change each.
pub(super) const IO_FEATURES: [(u8, bool); 10] = [
    (feature::ARBITRATION, true),
    (feature::POWER_MANAGEMENT, true),
    (feature::TEMPERATURE_THRESHOLD, true),
    (feature::ERROR_RECOVERY, true),
    (feature::NUMBER_OF_QUEUES, true),
    (feature::WRITE_ATOMICITY, true),
    (feature::ASYNC_EVENT_CONFIGURATION, true),
    (feature::KEEP_ALIVE_TIMER, true),
    (feature::HOST_BEHAVIOR, true),
    (feature::HOST_IDENTIFIER, false),
];
/// Those of a discovery controller.
pub(super) const DISCOVERY_FEATURES: [(u8, bool); 2] =
    [(feature::ASYNC_EVENT_CONFIGURATION, true), (feature::KEEP_ALIVE_TIMER, true)];

/// Temperature thresholds are for these: all sensors at once, none of its own.
const COMPOSITE_SENSOR: u32 = 0;

/// The values of a controller; those of the number of queues and of the keep alive timer are with the registry.
#[derive(Clone, Debug)]
pub(super) struct Features {
    event_configuration: u32,
    arbitration: u32,
    /// Over, under.
    temperature: [u32; 2],
    error_recovery: u32,
    write_atomicity: u32,
    /// 512 bytes, all zero until a host says something.
    host_behavior: Option<Box<[u8; HOST_BEHAVIOR_BYTES]>>,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            event_configuration: 0,
            arbitration: 6,
            temperature: [0xFFFF, 0],
            error_recovery: 0,
            write_atomicity: 0,
            host_behavior: None,
        }
    }
}

impl Features {
    /// Whether the host asked for events of this kind.
    pub fn wants(&self, event: AsyncEvent) -> bool {
        self.event_configuration & event.mask() != 0
    }

    /// The value (dword 0 of the completion) and data of what lies here.
    fn get(&self, id: u8, value: u32) -> Result<(u32, Vec<u8>), Status> {
        let value = match id {
            feature::ARBITRATION => self.arbitration,
            feature::POWER_MANAGEMENT => 0,
            feature::TEMPERATURE_THRESHOLD => self.temperature[threshold_of(value)?],
            feature::ERROR_RECOVERY => self.error_recovery,
            feature::WRITE_ATOMICITY => self.write_atomicity,
            feature::ASYNC_EVENT_CONFIGURATION => self.event_configuration,
            feature::HOST_BEHAVIOR => {
                let bytes = self.host_behavior.as_ref().map_or(&[0; HOST_BEHAVIOR_BYTES], |bytes| bytes);
                return Ok((0, bytes.to_vec()));
            }
            _ => return Err(invalid()),
        };
        Ok((value, Vec::new()))
    }
}

fn invalid() -> Status {
    Status::INVALID_FIELD.do_not_retry()
}

/// Which threshold dword 11 means: THSEL over or under, TMPSEL the composite temperature.
fn threshold_of(value: u32) -> Result<usize, Status> {
    match (value >> 16 & 15, value >> 20 & 3) {
        (COMPOSITE_SENSOR, which @ (0 | 1)) => Ok(which as usize),
        _ => Err(invalid()),
    }
}

impl Controller {
    /// The features that there are, and whether a host may change each.
    pub(super) fn known_features(&self) -> &'static [(u8, bool)] {
        match self.kind() {
            ControllerKind::Io => &IO_FEATURES,
            ControllerKind::Discovery => &DISCOVERY_FEATURES,
        }
    }

    fn may_change(&self, id: u8) -> Result<bool, Status> {
        let found = self.known_features().iter().find(|(known, _)| *known == id);
        found.map(|(_, changeable)| *changeable).ok_or(invalid())
    }

    /// Reads a feature: its value (dword 0 of the completion) and data, as it is now or as it is after a reset; or what
    /// can be done with it.
    pub(super) fn get_feature(&self, registry: &Registry, cdw: &[u32; 6]) -> Result<(u32, Vec<u8>), Status> {
        let id = cdw[0] as u8;
        let changeable = self.may_change(id)?;
        match Select::of(cdw[0]).ok_or(invalid())? {
            Select::Supported => Ok((if changeable { feature_support::CHANGEABLE } else { 0 }, Vec::new())),
            Select::Current => self.current(registry, id, cdw[1]),
            Select::Default | Select::Saved => match id {
                feature::NUMBER_OF_QUEUES => Ok((less_one(limits::MAX_IO_QUEUES), Vec::new())),
                feature::KEEP_ALIVE_TIMER => Ok((0, Vec::new())),
                feature::HOST_IDENTIFIER => Ok((0, vec![0; HOST_ID_BYTES])),
                _ => Features::default().get(id, cdw[1]),
            },
        }
    }

    fn current(&self, registry: &Registry, id: u8, value: u32) -> Result<(u32, Vec<u8>), Status> {
        let value = match id {
            feature::NUMBER_OF_QUEUES => less_one(registry.max_queues(self.id())),
            feature::KEEP_ALIVE_TIMER => self.handle().keep_alive().map_or(0, |timeout| timeout.as_millis() as u32),
            feature::HOST_IDENTIFIER if value & EXTENDED_HOST_ID != 0 => {
                return Ok((0, self.handle().host_id.to_vec()));
            }
            feature::HOST_IDENTIFIER => return Err(Status::HOST_ID_INCONSISTENT.do_not_retry()),
            _ => return self.features.get(id, value),
        };
        Ok((value, Vec::new()))
    }

    /// Sets a feature; returns dword 0 of the completion.
    pub(super) fn set_feature(&mut self, registry: &Registry, cdw: &[u32; 6], data: &[u8]) -> Result<u32, Status> {
        let (id, value) = (cdw[0] as u8, cdw[1]);
        self.may_change(id)?;
        if cdw[0] & SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE.do_not_retry());
        }
        let features = &mut self.features;
        match id {
            feature::ARBITRATION => features.arbitration = value,
            feature::POWER_MANAGEMENT if value & 0x1F == 0 => {}
            feature::TEMPERATURE_THRESHOLD => features.temperature[threshold_of(value)?] = value & 0xFFFF,
            feature::ERROR_RECOVERY if value & 0x1_0000 == 0 => features.error_recovery = value,
            feature::NUMBER_OF_QUEUES => return self.set_number_of_queues(registry, value),
            feature::WRITE_ATOMICITY => features.write_atomicity = value & 1,
            feature::ASYNC_EVENT_CONFIGURATION => features.event_configuration = value,
            feature::KEEP_ALIVE_TIMER => {
                let timeout_ms = accepted_keep_alive_ms(value).filter(|timeout| *timeout > 0);
                self.handle().set_keep_alive_ms(timeout_ms.ok_or(Status::KEEP_ALIVE_INVALID.do_not_retry())?);
            }
            feature::HOST_BEHAVIOR if data.len() >= HOST_BEHAVIOR_BYTES && data[0] <= 1 => {
                features.host_behavior = data[..HOST_BEHAVIOR_BYTES].try_into().ok().map(Box::new);
            }
            // Given by Connect (NVMe Base 2.0 §5.27.1.25).
            feature::HOST_IDENTIFIER => return Err(Status::COMMAND_SEQUENCE.do_not_retry()),
            _ => return Err(invalid()),
        }
        Ok(0)
    }

    fn set_number_of_queues(&self, registry: &Registry, value: u32) -> Result<u32, Status> {
        let (submission, completion) = (value & 0xFFFF, value >> 16);
        if submission == 0xFFFF || completion == 0xFFFF {
            return Err(invalid());
        }
        let queues = (submission.min(completion) as u16).min(limits::MAX_IO_QUEUES - 1) + 1;
        if !registry.set_max_queues(self.id(), queues) {
            return Err(Status::COMMAND_SEQUENCE.do_not_retry());
        }
        Ok(less_one(queues))
    }
}

/// As many submission queues as completion queues, both less one.
fn less_one(queues: u16) -> u32 {
    let less_one = u32::from(queues.saturating_sub(1));
    less_one | less_one << 16
}

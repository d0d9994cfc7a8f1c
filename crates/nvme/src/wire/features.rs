//! Features (NVMe Base 2.0 §5.27) and asynchronous events (§5.2).

/// Feature ids.
#[allow(missing_docs)] // the names are the specification's
pub mod feature {
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER_MANAGEMENT: u8 = 0x02;
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    pub const WRITE_ATOMICITY: u8 = 0x0A;
    pub const ASYNC_EVENT_CONFIGURATION: u8 = 0x0B;
    pub const KEEP_ALIVE_TIMER: u8 = 0x0F;
    pub const HOST_BEHAVIOR: u8 = 0x16;
    pub const HOST_IDENTIFIER: u8 = 0x81;
}

/// Bytes of the Host Behavior Support data.
pub const HOST_BEHAVIOR_BYTES: usize = 512;
/// Dword 11 of Host Identifier: 128 bits.
pub const EXTENDED_HOST_ID: u32 = 1;
/// Bytes of the 128-bit host identifier.
pub const HOST_ID_BYTES: usize = 16;
/// Dword 10 of Set Features: save over power cycles.
pub const SAVE: u32 = 1 << 31;
/// Bit of the async event configuration and of OAES: namespace attribute notices.
pub const NAMESPACE_NOTICES: u32 = 1 << 8;
/// Bit of the async event configuration and of OAES: ANA change notices.
pub const ANA_NOTICES: u32 = 1 << 11;
/// Bit of the async event configuration and of OAES: discovery log notices.
pub const DISCOVERY_NOTICES: u32 = 1 << 31;

/// Which value Get Features asks for: bits 8–10 of dword 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// As it is.
    Current,
    /// As it is where nobody has set it.
    Default,
    /// As it is after a reset.
    Saved,
    /// What can be done with it: [`feature_support`].
    Supported,
}

impl Select {
    /// Of dword 10; `None`: reserved.
    pub fn of(cdw10: u32) -> Option<Self> {
        Some(match cdw10 >> 8 & 7 {
            0 => Self::Current,
            1 => Self::Default,
            2 => Self::Saved,
            3 => Self::Supported,
            _ => return None,
        })
    }
}

/// What can be done with a feature, as dword 0 of the completion.
pub mod feature_support {
    /// It can be changed.
    pub const CHANGEABLE: u32 = 1 << 2;
}

/// An asynchronous event, as dword 0 of the completion of a request.
///
/// | bits | field |
/// |---|---|
/// | 0–2 | type: 2 notice |
/// | 8–15 | information |
/// | 16–23 | log page to read |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AsyncEvent {
    /// A namespace came, went or changed: page 04h.
    NamespaceChanged = 0x02 | 0x04 << 16,
    /// A path changed: page 0Ch.
    AnaChanged = 0x02 | 0x03 << 8 | 0x0C << 16,
    /// The discovery log changed: page 70h.
    DiscoveryChanged = 0x02 | 0xF0 << 8 | 0x70 << 16,
}

impl AsyncEvent {
    /// The bit of the configuration that allows it.
    pub fn mask(self) -> u32 {
        match self {
            Self::NamespaceChanged => NAMESPACE_NOTICES,
            Self::AnaChanged => ANA_NOTICES,
            Self::DiscoveryChanged => DISCOVERY_NOTICES,
        }
    }
    /// The log page whose reading unmasks it.
    pub fn log_page(self) -> u8 {
        (self as u32 >> 16) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_name_their_page() {
        assert_eq!(AsyncEvent::NamespaceChanged as u32, 0x0004_0002);
        assert_eq!(AsyncEvent::DiscoveryChanged as u32, 0x0070_F002);
        assert_eq!(AsyncEvent::AnaChanged.log_page(), 0x0C);
    }
}

//! What goes over the wire: each structure has its layout, its size, encode and decode, and golden bytes, here and
//! nowhere else. Decoding never panics, whatever the bytes; [`fuzz`] holds the entry points that prove it.

mod bytes;
mod command;
mod completion;
pub mod digest;
mod fabrics;
mod features;
pub mod fuzz;
pub mod identify;
pub mod log;
pub mod pdu;
pub mod stream;
pub mod writer;

pub(crate) use bytes::array_at;
pub use command::{ALL_NAMESPACES, DatasetRange, FABRICS_OPCODE, Sgl, Sqe, admin, nvm};
pub use completion::{Cqe, Status};
pub use fabrics::{
    Configuration, Connect, ConnectData, DISCOVERY_NQN, DYNAMIC_CONTROLLER, InvalidParameter, MAX_NQN_BYTES, Property,
    controller_status, fabrics_type, property,
};
pub use features::{
    ANA_NOTICES, AsyncEvent, DISCOVERY_NOTICES, EXTENDED_HOST_ID, HOST_BEHAVIOR_BYTES, HOST_ID_BYTES,
    NAMESPACE_NOTICES, SAVE, Select, feature, feature_support,
};

/// Bytes as hexadecimal, for the golden tests.
#[cfg(test)]
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

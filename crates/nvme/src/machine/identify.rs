//! What Identify answers.

use super::admin::AdminView;
use super::controller::{Controller, ControllerKind};
use super::namespaces::NamespaceInfo;
use super::registry::Subsystem;
use crate::limits;
use crate::wire::identify::{
    IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, cns, encode_descriptors, encode_independent,
    encode_namespace_list,
};
use crate::wire::{ALL_NAMESPACES, ANA_NOTICES, DISCOVERY_NOTICES, DISCOVERY_NQN, NAMESPACE_NOTICES, Sqe, Status};

/// NVMe 2.0.
pub(super) const VERSION: u32 = 0x0002_0000;
/// CMIC: several ports, several controllers, ANA reporting.
const MULTI_PATH: u8 = 1 << 0 | 1 << 1 | 1 << 3;
/// ANACAP: optimized, inaccessible and change are told; a group does not change while its namespace is attached.
const ANA_CAPABILITIES: u8 = 1 << 0 | 1 << 2 | 1 << 4 | 1 << 6;
/// CTRATT: 128-bit host identifiers.
const ATTRIBUTES: u32 = 1 << 0;
/// SGLS: SGLs without alignment, offsets in the capsule, transport data blocks.
const SGL_SUPPORT: u32 = 1 << 0 | 1 << 20 | 1 << 21;
/// ONCS: compare, dataset management, write zeroes, the Select field of Get Features.
const OPTIONAL_COMMANDS: u16 = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 4;
/// FUSES: compare and write.
const COMPARE_AND_WRITE: u16 = 1 << 0;
/// log2 of the larger of the two formats.
const LARGEST_BLOCK_SHIFT: u32 = 12;
/// LPA: effects page, page offsets, pages 00h, 12h and 13h with scopes in 05h.
const LOG_ATTRIBUTES: u8 = 1 << 1 | 1 << 2 | 1 << 5;
/// LPA of a discovery controller, which has no effects page.
const DISCOVERY_LOG_ATTRIBUTES: u8 = 1 << 2 | 1 << 5;
/// FRMW: one slot, read-only.
const FIRMWARE_UPDATES: u8 = 1 << 0 | 1 << 1;

/// Answers an Identify command.
pub(super) fn identify(
    sqe: &Sqe,
    controller: &Controller,
    subsystem: &Subsystem,
    view: &AdminView<'_>,
) -> Result<[u8; IDENTIFY_BYTES], Status> {
    let invalid = Status::INVALID_FIELD.do_not_retry();
    let selector = sqe.cdw[0] as u8;
    let command_set = (sqe.cdw[1] >> 24) as u8;
    if controller.kind() == ControllerKind::Discovery && selector != cns::CONTROLLER {
        return Err(invalid);
    }
    let by_command_set = matches!(
        selector,
        cns::COMMAND_SET_NAMESPACE | cns::COMMAND_SET_CONTROLLER | cns::COMMAND_SET_ACTIVE_NAMESPACES
    );
    if by_command_set && command_set != 0 {
        return Err(invalid);
    }
    let namespace = || view.namespaces.get(sqe.nsid);
    let needed = || namespace().ok_or(Status::INVALID_NAMESPACE.do_not_retry());
    match selector {
        cns::CONTROLLER => Ok(identify_controller(controller, subsystem).encode()),
        cns::NAMESPACE => identify_namespace(sqe.nsid, namespace()),
        cns::ACTIVE_NAMESPACES | cns::COMMAND_SET_ACTIVE_NAMESPACES => {
            if sqe.nsid >= ALL_NAMESPACES - 1 {
                return Err(Status::INVALID_NAMESPACE.do_not_retry());
            }
            Ok(encode_namespace_list(view.namespaces.iter().map(|(nsid, _)| nsid).filter(|nsid| *nsid > sqe.nsid)))
        }
        cns::NAMESPACE_DESCRIPTORS => Ok(encode_descriptors(&needed()?.nguid)),
        cns::INDEPENDENT_NAMESPACE => needed().map(|_| encode_independent(sqe.nsid)),
        cns::COMMAND_SET_NAMESPACE => needed().map(|_| [0; IDENTIFY_BYTES]),
        // All limits zero: none beyond MDTS.
        cns::COMMAND_SET_CONTROLLER => Ok([0; IDENTIFY_BYTES]),
        cns::COMMAND_SETS => {
            let mut sets = [0; IDENTIFY_BYTES];
            sets[0] = 1; // combination 0: the NVM command set
            Ok(sets)
        }
        _ => Err(invalid),
    }
}

/// An id without a namespace reads as zeroes, an id that cannot be one is an error (NVMe Base 2.0 §5.17.2.1).
fn identify_namespace(nsid: u32, namespace: Option<&NamespaceInfo>) -> Result<[u8; IDENTIFY_BYTES], Status> {
    if nsid == 0 || nsid > limits::MAX_NAMESPACES {
        return Err(Status::INVALID_NAMESPACE.do_not_retry());
    }
    let Some(namespace) = namespace else { return Ok([0; IDENTIFY_BYTES]) };
    Ok(IdentifyNamespace {
        size_blocks: namespace.size_blocks,
        block_shift: namespace.block_shift,
        untorn_bytes: limits::UNTORN_BYTES,
        compare_and_write_bytes: limits::COMPARE_AND_WRITE_BYTES,
        boundary_bytes: limits::BOUNDARY_BYTES,
        granularity_bytes: limits::GRANULARITY_BYTES,
        ana_group: nsid,
        nguid: namespace.nguid,
    }
    .encode())
}

fn identify_controller(controller: &Controller, subsystem: &Subsystem) -> IdentifyController {
    let common = IdentifyController {
        serial: subsystem.serial.clone(),
        model: subsystem.model.clone(),
        firmware: subsystem.firmware.clone(),
        mdts: limits::MDTS,
        controller: controller.id().0,
        version: VERSION,
        attributes: ATTRIBUTES,
        event_limit: (limits::MAX_EVENT_REQUESTS - 1) as u8,
        log_attributes: LOG_ATTRIBUTES,
        error_log_entries: (limits::ERROR_LOG_ENTRIES - 1) as u8,
        keep_alive_granularity: limits::KEEP_ALIVE_UNITS,
        max_commands: limits::MAX_QUEUE_ENTRIES,
        sgl_support: SGL_SUPPORT,
        max_sgl_descriptors: 1,
        ..IdentifyController::default()
    };
    match controller.kind() {
        ControllerKind::Discovery => IdentifyController {
            controller_type: 2,
            log_attributes: DISCOVERY_LOG_ATTRIBUTES,
            optional_events: DISCOVERY_NOTICES,
            subsystem: DISCOVERY_NQN.to_owned(),
            ..common
        },
        ControllerKind::Io => IdentifyController {
            controller_type: 1,
            cmic: MULTI_PATH,
            optional_events: NAMESPACE_NOTICES | ANA_NOTICES,
            retry_delay: [limits::RETRY_DELAY_UNITS, 0, 0],
            abort_limit: limits::MAX_ABORTS - 1,
            firmware_updates: FIRMWARE_UPDATES,
            ana_transition_time: limits::ANA_TRANSITION_SECONDS,
            ana_capabilities: ANA_CAPABILITIES,
            ana_group_max: limits::MAX_NAMESPACES,
            ana_group_count: limits::MAX_NAMESPACES,
            namespaces: limits::MAX_NAMESPACES,
            max_allowed_namespaces: limits::MAX_NAMESPACES,
            optional_commands: OPTIONAL_COMMANDS,
            fused_operations: COMPARE_AND_WRITE,
            compare_and_write_blocks: (limits::COMPARE_AND_WRITE_BYTES >> LARGEST_BLOCK_SHIFT) as u16,
            subsystem: subsystem.nqn.clone(),
            io_capsule_units: (64 + limits::IO_CAPSULE_DATA_BYTES) / 16,
            io_response_units: 1,
            ..common
        },
    }
}

//! Admin and fabrics commands of a connected admin queue.

use super::controller::{Controller, ControllerKind, Transition};
use super::identify::identify;
use super::logs::log_page;
use super::namespaces::NamespaceTable;
use super::registry::Registry;
use crate::wire::log::{DiscoveryEntry, Health};
use crate::wire::{FABRICS_OPCODE, Property, Sqe, Status, admin, fabrics_type};

/// What admin commands see of the world.
#[derive(Clone, Copy)]
pub struct AdminView<'a> {
    /// The controllers.
    pub registry: &'a Registry,
    /// Namespaces of the subsystem.
    pub namespaces: &'a NamespaceTable,
    /// Counts up with each change of an ANA state.
    pub ana_change_count: u64,
    /// Health and counters.
    pub health: Health,
    /// The discovery log as this host sees it.
    pub discovery: &'a [DiscoveryEntry],
    /// Counts up with each change of the discovery log.
    pub discovery_generation: u64,
    /// The node's clock.
    pub now_ns: u64,
}

/// How an admin command ended.
pub(super) enum Outcome {
    /// With this result.
    Done(u64),
    /// With data for the host and this result.
    Data(Vec<u8>, u64),
    /// It waits for an event.
    Parked,
    /// It wants this command of this queue aborted.
    Abort { queue: u16, command: u16 },
    /// Done, and the controller's I/O queues must end.
    EndQueues,
}

/// Executes an admin or fabrics command in slot `slot`.
pub(super) fn execute(
    controller: &mut Controller,
    slot: u16,
    sqe: &Sqe,
    data: &[u8],
    view: &AdminView<'_>,
) -> Result<Outcome, Status> {
    controller.handle().heard(view.now_ns);
    if sqe.fuse() != 0 {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    if sqe.opcode == FABRICS_OPCODE {
        return fabrics(controller, sqe);
    }
    if !controller.is_ready() {
        return Err(Status::COMMAND_SEQUENCE.do_not_retry());
    }
    let controller_scope = matches!(sqe.opcode, admin::ABORT | admin::ASYNC_EVENT_REQUEST | admin::KEEP_ALIVE);
    if controller_scope && sqe.nsid != 0 {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let subsystem = view.registry.subsystem();
    match sqe.opcode {
        admin::IDENTIFY => Ok(Outcome::Data(identify(sqe, controller, subsystem, view)?.to_vec(), 0)),
        admin::GET_LOG_PAGE => Ok(Outcome::Data(log_page(sqe, controller, subsystem, view)?, 0)),
        admin::GET_FEATURES => {
            let (value, bytes) = controller.get_feature(view.registry, &sqe.cdw)?;
            let value = u64::from(value);
            Ok(if bytes.is_empty() { Outcome::Done(value) } else { Outcome::Data(bytes, value) })
        }
        admin::SET_FEATURES => controller.set_feature(view.registry, &sqe.cdw, data).map(|v| Outcome::Done(v.into())),
        admin::KEEP_ALIVE => Ok(Outcome::Done(0)),
        admin::ASYNC_EVENT_REQUEST => Ok(match controller.request_event(slot)? {
            Some(event) => Outcome::Done(u64::from(event as u32)),
            None => Outcome::Parked,
        }),
        admin::ABORT if controller.kind() == ControllerKind::Io => {
            Ok(Outcome::Abort { queue: sqe.cdw[0] as u16, command: (sqe.cdw[0] >> 16) as u16 })
        }
        _ => Err(Status::INVALID_OPCODE.do_not_retry()),
    }
}

fn fabrics(controller: &mut Controller, sqe: &Sqe) -> Result<Outcome, Status> {
    match sqe.fabrics_type() {
        fabrics_type::PROPERTY_GET => controller.property_get(&Property::decode(sqe)).map(Outcome::Done),
        fabrics_type::PROPERTY_SET => Ok(match controller.property_set(&Property::decode(sqe))? {
            Transition::None => Outcome::Done(0),
            Transition::EndQueues => Outcome::EndQueues,
        }),
        // An admin queue ends with its connection (NVMe Base 2.0 §6.4: Disconnect is for I/O queues).
        fabrics_type::DISCONNECT => Err(Status::INVALID_FIELD.do_not_retry()),
        fabrics_type::CONNECT => Err(Status::COMMAND_SEQUENCE.do_not_retry()),
        _ => Err(Status::INVALID_OPCODE.do_not_retry()),
    }
}

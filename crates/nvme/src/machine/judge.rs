//! Whether a command may run on this queue now, and whether its data is described as it must be.

use super::connection::{Connection, Phase};
use super::io::{self, Verb};
use super::namespaces::NamespaceTable;
use super::slots::Plan;
use crate::limits::ADMIN_CAPSULE_DATA_BYTES;
use crate::wire::{ConnectData, FABRICS_OPCODE, Sgl, Sqe, Status, fabrics_type};
use types::{Mutant, mutant};

/// Bits 0–1 of an opcode (or FCTYPE): the host sends data.
const HOST_TO_CONTROLLER: u8 = 1;

impl Connection {
    /// What the command is, and how many bytes the host must send with it.
    pub(super) fn plan(
        &self,
        sqe: &Sqe,
        capsule_bytes: u32,
        namespaces: &NamespaceTable,
    ) -> Result<(Plan, u32), Status> {
        if sqe.flags >> 6 != Sqe::FLAGS_SGL >> 6 {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        let fabrics = sqe.opcode == FABRICS_OPCODE;
        let is_connect = fabrics && sqe.fabrics_type() == fabrics_type::CONNECT;
        let sequence = Status::COMMAND_SEQUENCE.do_not_retry();
        let (plan, needs) = match &self.phase {
            Phase::AwaitConnect if is_connect => (Plan::Connect(*sqe), ConnectData::BYTES as u32),
            Phase::Admin(_) if is_connect => return Err(sequence),
            Phase::Admin(_) => {
                let kind = if fabrics { sqe.fabrics_type() } else { sqe.opcode };
                let needs = if kind & 3 == HOST_TO_CONTROLLER { sqe.sgl.len_bytes } else { 0 };
                if needs > ADMIN_CAPSULE_DATA_BYTES {
                    return Err(Status::INVALID_FIELD.do_not_retry());
                }
                (Plan::Admin(*sqe), needs)
            }
            Phase::Io(_) if is_connect => return Err(sequence),
            Phase::Io(_) if fabrics => return Err(Status::INVALID_OPCODE.do_not_retry()),
            // Its controller ends, which this core is told later than others: nothing of it may be executed here, and all of it may
            // on another path. Nothing that is final is said of it (NVMe Base 2.0 §3.3.3.2.1: DNR is for what fails on every one).
            Phase::Io(handle) if !handle.is_enabled() || handle.has_ended() => {
                return Err(if mutant(Mutant::EndIsFinal) { sequence } else { Status::INTERNAL_PATH_ERROR });
            }
            Phase::Io(_) => {
                let plan = io::plan(sqe, namespaces)?;
                if plan.verb == Verb::Read && sqe.sgl.kind != Sgl::TRANSPORT {
                    return Err(Status::SGL_TYPE_INVALID.do_not_retry());
                }
                (Plan::Io(plan), plan.data_bytes())
            }
            _ => return Err(sequence),
        };
        check_sgl(&sqe.sgl, capsule_bytes, needs)?;
        Ok((plan, needs))
    }
}

/// Data in the capsule begins at offset 0 and is what the SGL says; data not in the capsule is moved by the transport.
fn check_sgl(sgl: &Sgl, capsule_bytes: u32, needs: u32) -> Result<(), Status> {
    let wrong = if capsule_bytes > 0 {
        match sgl.kind {
            Sgl::IN_CAPSULE if sgl.address != 0 => Status::SGL_OFFSET_INVALID,
            Sgl::IN_CAPSULE if sgl.len_bytes != capsule_bytes || needs > capsule_bytes => {
                Status::DATA_SGL_LENGTH_INVALID
            }
            Sgl::IN_CAPSULE => return Ok(()),
            _ => Status::SGL_TYPE_INVALID,
        }
    } else if needs == 0 {
        return Ok(());
    } else {
        match sgl.kind {
            Sgl::TRANSPORT if needs <= sgl.len_bytes => return Ok(()),
            Sgl::TRANSPORT | Sgl::IN_CAPSULE => Status::DATA_SGL_LENGTH_INVALID,
            _ => Status::SGL_TYPE_INVALID,
        }
    };
    Err(wrong.do_not_retry())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_that_do_not_fit_their_data() {
        let code = |sgl: Sgl, capsule, needs| check_sgl(&sgl, capsule, needs).map_err(Status::code);
        assert_eq!(code(Sgl::in_capsule(512), 512, 512), Ok(()));
        assert_eq!(code(Sgl::transport(512), 0, 512), Ok(()));
        assert_eq!(code(Sgl::in_capsule(512), 0, 512), Err(Status::DATA_SGL_LENGTH_INVALID));
        assert_eq!(code(Sgl::in_capsule(1024), 512, 512), Err(Status::DATA_SGL_LENGTH_INVALID));
        assert_eq!(code(Sgl::transport(512), 512, 512), Err(Status::SGL_TYPE_INVALID));
        assert_eq!(code(Sgl { address: 8, ..Sgl::in_capsule(512) }, 512, 512), Err(Status::SGL_OFFSET_INVALID));
        assert_eq!(code(Sgl { kind: 0x40, ..Sgl::NONE }, 0, 8), Err(Status::SGL_TYPE_INVALID));
    }
}

//! What Get Log Page answers.

use super::admin::AdminView;
use super::controller::{Controller, ControllerKind};
use super::registry::Subsystem;
use crate::limits::{MAX_NAMESPACES, MAX_TRANSFER_BYTES};
use crate::wire::log::{
    ErrorEntry, GetLogPage, encode_ana, encode_discovery, encode_effects, encode_features, encode_firmware,
    encode_management, encode_supported, page,
};
use crate::wire::{ALL_NAMESPACES, Sqe, Status, admin, nvm};

const IO_PAGES: [u8; 9] = [
    page::SUPPORTED,
    page::ERROR,
    page::HEALTH,
    page::FIRMWARE,
    page::CHANGED_NAMESPACES,
    page::EFFECTS,
    page::ANA,
    page::FEATURES,
    page::MANAGEMENT,
];
const DISCOVERY_PAGES: [u8; 6] =
    [page::SUPPORTED, page::ERROR, page::HEALTH, page::FEATURES, page::MANAGEMENT, page::DISCOVERY];
const ADMIN_COMMANDS: [u8; 7] = [
    admin::GET_LOG_PAGE,
    admin::IDENTIFY,
    admin::ABORT,
    admin::SET_FEATURES,
    admin::GET_FEATURES,
    admin::ASYNC_EVENT_REQUEST,
    admin::KEEP_ALIVE,
];
/// And whether each changes logical blocks.
const IO_COMMANDS: [(u8, bool); 6] = [
    (nvm::FLUSH, false),
    (nvm::WRITE, true),
    (nvm::READ, false),
    (nvm::COMPARE, false),
    (nvm::WRITE_ZEROES, true),
    (nvm::DATASET_MANAGEMENT, true),
];
/// Descriptors without their NSIDs.
const ANA_GROUPS_ONLY: u8 = 1;
/// Header, and of each group a descriptor with one NSID.
const ANA_PAGE_BYTES_MAX: usize = 16 + MAX_NAMESPACES as usize * (32 + 4);

/// Answers a Get Log Page command: the bytes of the page from the offset on, at most as many as were asked for.
pub(super) fn log_page(
    sqe: &Sqe,
    controller: &mut Controller,
    subsystem: &Subsystem,
    view: &AdminView<'_>,
) -> Result<Vec<u8>, Status> {
    let invalid = Status::INVALID_FIELD.do_not_retry();
    let get = GetLogPage::decode(&sqe.cdw);
    let pages: &[u8] = if controller.kind() == ControllerKind::Io { &IO_PAGES } else { &DISCOVERY_PAGES };
    if !pages.contains(&get.page) {
        return Err(Status::INVALID_LOG_PAGE.do_not_retry());
    }
    let room = sqe.sgl.len_bytes.min(MAX_TRANSFER_BYTES);
    if get.offset_is_index || !get.offset_bytes.is_multiple_of(4) || get.len_bytes > u64::from(room) {
        return Err(invalid);
    }
    if sqe.nsid != 0 && sqe.nsid != ALL_NAMESPACES {
        // No page here is kept for each namespace.
        return Err(invalid);
    }
    let mut bytes = Vec::new();
    match get.page {
        page::SUPPORTED => encode_supported(&mut bytes, pages),
        page::ERROR => controller.errors().for_each(|entry: &ErrorEntry| bytes.extend_from_slice(&entry.encode())),
        page::HEALTH => bytes.extend_from_slice(&view.health.encode()),
        page::FIRMWARE => encode_firmware(&mut bytes, &subsystem.firmware),
        page::CHANGED_NAMESPACES => bytes.extend_from_slice(&controller.take_changed_namespaces(get.retain_event)),
        page::EFFECTS => encode_effects(&mut bytes, &ADMIN_COMMANDS, &IO_COMMANDS),
        page::FEATURES => encode_features(&mut bytes, controller.known_features().iter().map(|(id, _)| *id)),
        page::MANAGEMENT => encode_management(&mut bytes),
        page::ANA => {
            let groups = view.namespaces.iter().map(|(nsid, info)| (nsid, info.ana));
            encode_ana(&mut bytes, view.ana_change_count, groups, get.specific & ANA_GROUPS_ONLY != 0);
        }
        _ => encode_discovery(&mut bytes, view.discovery_generation, view.discovery),
    }
    // A host reads the ANA page in pieces up to the size that Identify allows it.
    let page_bytes = if get.page == page::ANA { ANA_PAGE_BYTES_MAX } else { bytes.len() };
    if get.offset_bytes > page_bytes as u64 {
        return Err(invalid);
    }
    if !get.retain_event {
        controller.page_read(get.page);
    }
    // What lies behind the end of a page reads as zeroes.
    bytes.drain(..bytes.len().min(get.offset_bytes as usize));
    bytes.resize(get.len_bytes as usize, 0);
    Ok(bytes)
}

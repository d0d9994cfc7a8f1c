//! Devices: those there are, and one more.

use super::elsewhere;
use super::error::ApiError;
use super::health::Look;
use super::server::{Admin, Shared};
use super::types::{AddDevice, AddedDevice, Device, ErrorBody, ForgetDevice};
use super::view;
use crate::config::{self, ConfigError};
use crate::control::ControlError;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use std::path::PathBuf;
use std::sync::Arc;
use types::NodeId;

/// The devices, in the order in which they came.
#[utoipa::path(get, path = "/v1/devices", responses(
    (status = 200, body = Vec<Device>), (status = 503, body = ErrorBody)))]
pub(super) async fn list_devices(State(admin): Shared) -> Result<Json<Vec<Device>>, ApiError> {
    let node = admin.control.status().await?.node;
    let mut devices: Vec<Device> = node.devices.iter().map(view::device).collect();
    if let Ok(look) = Look::take(&admin, Some(&node)).await {
        super::duties::tell_devices(&mut devices, &look.known.standing);
    }
    Ok(Json(devices))
}

/// One device after the other: the node's file must not lose what another order puts into it.
static ADDING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Does something with the node's file, which blocks.
async fn change_file<T: Send + 'static>(
    change: impl FnOnce() -> Result<T, ConfigError> + Send + 'static,
) -> Result<T, ControlError> {
    match tokio::task::spawn_blocking(change).await {
        Ok(changed) => changed.map_err(|error| ControlError::Refused(error.to_string())),
        Err(error) => Err(ControlError::Unavailable(error.to_string())),
    }
}

/// Gives a formatted device to the node: it is named in the node's file, so that the next start knows it, and volumes
/// that are made from now on use it. What is copied there is told, with `dry_run` only that.
#[utoipa::path(post, path = "/v1/devices", request_body = AddDevice, responses(
    (status = 200, body = AddedDevice, description = "only asked"), (status = 201, body = AddedDevice), (status = 400, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn add_device(
    State(admin): Shared,
    body: Result<Json<AddDevice>, JsonRejection>,
) -> Result<(StatusCode, Json<AddedDevice>), ApiError> {
    let Json(AddDevice { path, dry_run }) = body?;
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        let what = format!("{} is no absolute path: write where the node finds it, from / on", path.display());
        return Err(ControlError::Refused(what).into());
    }
    let _alone = ADDING.lock().await;
    let decided = admin.control.check_device(path.clone()).await?;
    let share = decided.map(|decided| super::duties::foretold(&decided, !dry_run));
    if dry_run {
        return Ok((StatusCode::OK, Json(AddedDevice { device: None, share })));
    }
    // First the file: a device that volumes are on must be there after the next start.
    let (file, named) = (admin.config_path.clone(), path.clone());
    let before = change_file(move || config::append_device(&file, &named)).await?;
    let added = admin.control.add_device(path.clone()).await;
    if let (Err(ControlError::Refused(_)), Some(before)) = (&added, before) {
        // It was not taken, so the next start must not ask for it. Any other error leaves open whether it was.
        let file = admin.config_path.clone();
        change_file(move || config::put_back(&file, &before)).await?;
    }
    added?;
    log::info!("device {} added", path.display());
    let devices = admin.control.status().await?.node.devices;
    let added = devices.iter().find(|device| device.path == path).map(view::device);
    let gone = || ControlError::Unavailable("the device was added and is not listed: look at `cairn status`".into());
    let device = Some(added.ok_or_else(gone)?);
    Ok((StatusCode::CREATED, Json(AddedDevice { device, share })))
}

/// A device is in the cluster no more: its node's file does not name it from now on, so that the next start does without it.
pub(super) async fn forget(admin: &Arc<Admin>, node: NodeId, path: &str) {
    let forgotten = match admin.control.is_here(node) {
        true => {
            let file = admin.config_paths.get(&node).unwrap_or(&admin.config_path).clone();
            forget_in(file, path.into()).await.map_err(|error| error.to_string())
        }
        false => {
            let body = serde_json::to_vec(&ForgetDevice { path: path.to_owned() }).unwrap_or_default();
            elsewhere::have(admin, node, "/v1/devices/forget", &body).await
        }
    };
    if let Err(why) = forgotten {
        log::warn!("the file of node-{node} names {path} still: take it out there by hand ({why})");
    }
}

async fn forget_in(file: PathBuf, path: PathBuf) -> Result<(), ControlError> {
    let _alone = ADDING.lock().await;
    change_file(move || config::remove_device(&file, &path)).await.map(drop)
}

/// Takes a device that is in the cluster no more out of this node's file: asked by other nodes.
#[utoipa::path(post, path = "/v1/devices/forget", request_body = ForgetDevice, responses(
    (status = 204, description = "the file does not name it"), (status = 400, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn forget_device(
    State(admin): Shared,
    body: Result<Json<ForgetDevice>, JsonRejection>,
) -> Result<StatusCode, ApiError> {
    let Json(ForgetDevice { path }) = body?;
    let known = Look::take(&admin, None).await?.known.standing;
    if known.devices.iter().any(|device| admin.control.is_here(device.node) && device.path == path) {
        let what = format!("{path} is a device of the cluster: remove it first, with `cairn device rm {path}`");
        return Err(ControlError::Refused(what).into());
    }
    forget_in(admin.config_path.clone(), path.into()).await?;
    Ok(StatusCode::NO_CONTENT)
}

//! Devices: those there are, and one more.

use super::error::ApiError;
use super::server::Shared;
use super::types::{AddDevice, Device, ErrorBody};
use super::view;
use crate::config;
use crate::control::ControlError;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use std::path::PathBuf;

/// The devices, in the order in which they came.
#[utoipa::path(get, path = "/v1/devices", responses(
    (status = 200, body = Vec<Device>), (status = 503, body = ErrorBody)))]
pub(super) async fn list_devices(State(admin): Shared) -> Result<Json<Vec<Device>>, ApiError> {
    Ok(Json(admin.control.status().await?.node.devices.iter().map(view::device).collect()))
}

/// Gives a formatted device to the node: it is named in the node's file, so that the next start knows it, and volumes
/// that are made from now on use it.
#[utoipa::path(post, path = "/v1/devices", request_body = AddDevice, responses(
    (status = 201, body = Device), (status = 400, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn add_device(
    State(admin): Shared,
    body: Result<Json<AddDevice>, JsonRejection>,
) -> Result<(StatusCode, Json<Device>), ApiError> {
    let Json(AddDevice { path }) = body?;
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        let what = format!("{} is no absolute path: write where the node finds it, from / on", path.display());
        return Err(ControlError::Refused(what).into());
    }
    admin.control.check_device(path.clone()).await?;
    // First the file: a device that volumes are on must be there after the next start.
    let (file, named) = (admin.config_path.clone(), path.clone());
    let written = tokio::task::spawn_blocking(move || config::append_device(&file, &named)).await;
    match written {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(ControlError::Refused(error.to_string()).into()),
        Err(error) => return Err(ControlError::Unavailable(error.to_string()).into()),
    }
    admin.control.add_device(path.clone()).await?;
    log::info!("device {} added", path.display());
    let devices = admin.control.status().await?.node.devices;
    let added = devices.iter().find(|device| device.path == path).map(view::device);
    let gone = || ControlError::Unavailable("the device was added and is not listed: look at `cairn status`".into());
    Ok((StatusCode::CREATED, Json(added.ok_or_else(gone)?)))
}

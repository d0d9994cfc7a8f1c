//! The routes that change a volume while hosts use it.

use super::error::ApiError;
use super::server::{NamePath, Shared, name_of};
use super::types::{ChangeVolume, ErrorBody, Volume};
use crate::events::{Events, kind};
use crate::size::ByteSize;
use crate::volume_spec::{VolumeName, check_volume_size};
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use volume::VolumeChange;

/// What is asked, checked.
fn change_of(asked: ChangeVolume) -> Result<VolumeChange, ApiError> {
    let ChangeVolume { name, size_bytes, limits } = asked;
    let name = name.map(|name| name.parse::<VolumeName>()).transpose()?;
    let size = size_bytes.map(|bytes| check_volume_size(ByteSize(bytes))).transpose()?;
    let limits = limits.map_or_else(Default::default, Into::into);
    let change = VolumeChange { name: name.map(|name| name.to_string()), size_bytes: size.map(|size| size.0), limits };
    if change == VolumeChange::default() {
        return Err(ApiError::bad_request("nothing is to be changed", "give a name, size_bytes or limits"));
    }
    Ok(change)
}

/// Changes a volume while hosts use it: its name, its size, its limits; all of it or nothing.
#[utoipa::path(patch, path = "/v1/volumes/{name}", params(("name" = String, Path)), request_body = ChangeVolume,
    responses((status = 200, body = Volume), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn change_volume(
    State(admin): Shared,
    name: NamePath,
    body: Result<Json<ChangeVolume>, JsonRejection>,
) -> Result<Json<Volume>, ApiError> {
    let volume = name_of(name)?;
    let Json(asked) = body?;
    let change = change_of(asked)?;
    let info = admin.control.change_volume(volume.clone(), change.clone()).await?;
    tell(&admin.events, &volume, &change);
    Ok(Json(admin.addresses.volume(&info, None)))
}

/// Says what was changed.
fn tell(events: &Events, volume: &VolumeName, change: &VolumeChange) {
    let subjects = [volume.as_str()];
    if let Some(bytes) = change.size_bytes {
        events.done(kind::VOLUME_RESIZED, &subjects, format!("volume {volume} has {bytes} bytes from now on"));
    }
    if !change.limits.is_empty() {
        events.done(kind::VOLUME_LIMITED, &subjects, format!("the limits of volume {volume} were changed"));
    }
    if let Some(name) = &change.name {
        events.done(
            kind::VOLUME_RENAMED,
            &[volume.as_str(), name],
            format!("volume {volume} is called {name} from now on"),
        );
    }
}

//! The routes about the NVMe hosts of a volume.

use super::error::ApiError;
use super::server::{Admin, NamePath, Shared, name_of};
use super::types::{AllowHost, ErrorBody, Hosts};
use crate::events::kind;
use crate::volume_spec::VolumeName;
use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use volume::{HostChange, VolumeInfo};

/// Stands for every host, where an NQN could stand.
const ANY: &str = "any";

type HostPath = Result<Path<(String, String)>, PathRejection>;

fn view(admin: &Admin, info: &VolumeInfo) -> Json<Hosts> {
    let any_host = info.hosts.is_open(admin.addresses.here.any_host);
    Json(Hosts { volume: info.name.clone(), any_host, hosts: info.hosts.listed().to_vec() })
}

/// Lets every host use a volume, or one more.
pub(super) async fn allow(admin: &Admin, volume: VolumeName, host: String) -> Result<VolumeInfo, ApiError> {
    log::info!("volume {volume}: allowing {host}");
    let change = if host == ANY { HostChange::AllowAny } else { HostChange::Allow(host.clone()) };
    let info = admin.control.change_hosts(volume.clone(), change).await?;
    admin.events.note(kind::HOST_ALLOWED, &[volume.as_str(), &host], format!("volume {volume}: {host} may use it"));
    Ok(info)
}

/// The NVMe hosts that may use a volume.
#[utoipa::path(get, path = "/v1/volumes/{name}/hosts", params(("name" = String, Path)), responses(
    (status = 200, body = Hosts), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn list_hosts(State(admin): Shared, name: NamePath) -> Result<Json<Hosts>, ApiError> {
    let info = admin.control.volume(&name_of(name)?).await?;
    Ok(view(&admin, &info))
}

/// Lets an NVMe host use a volume. The first one that is named ends that every host may.
#[utoipa::path(post, path = "/v1/volumes/{name}/hosts", params(("name" = String, Path)), request_body = AllowHost,
    responses((status = 200, body = Hosts), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn allow_host(
    State(admin): Shared,
    name: NamePath,
    body: Result<Json<AllowHost>, JsonRejection>,
) -> Result<Json<Hosts>, ApiError> {
    let volume = name_of(name)?;
    let Json(AllowHost { host }) = body?;
    let info = allow(&admin, volume, host).await?;
    Ok(view(&admin, &info))
}

/// Takes a volume from an NVMe host, or from all that are not named (`any`). When this is answered nothing runs of them
/// any more.
#[utoipa::path(delete, path = "/v1/volumes/{name}/hosts/{host}", params(
    ("name" = String, Path), ("host" = String, Path, description = "NQN, or any")), responses(
    (status = 200, body = Hosts), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn deny_host(State(admin): Shared, path: HostPath) -> Result<Json<Hosts>, ApiError> {
    let Path((volume, host)) = path?;
    let volume: VolumeName = volume.parse()?;
    log::info!("volume {volume}: denying {host}");
    let change = if host == ANY { HostChange::DenyAny } else { HostChange::Deny(host.clone()) };
    let info = admin.control.change_hosts(volume.clone(), change).await?;
    let text = format!("volume {volume}: {host} may not use it any more");
    admin.events.note(kind::HOST_DENIED, &[volume.as_str(), &host], text);
    Ok(view(&admin, &info))
}

//! The routes about snapshots, clones and sizes.

use super::error::ApiError;
use super::server::{NamePath, Shared, name_of};
use super::types::{
    ChangedRange, CloneSnapshot, CreateSnapshot, CreateSnapshots, ErrorBody, Snapshot, SnapshotOf, Volume,
};
use crate::control::{ControlError, ControlHandle};
use crate::events::kind;
use crate::log::utc_of_ns;
use crate::volume_spec::{SnapshotName, SnapshotPath, VolumeName};
use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use cluster::SnapshotRecord;
use std::collections::BTreeMap;
use types::VolumeId;
use volume::VolumeUsage;

type PairPath = Result<Path<(String, String)>, PathRejection>;

fn pair_of(path: PairPath) -> Result<(VolumeName, SnapshotName), ApiError> {
    let Path((volume, snapshot)) = path?;
    Ok((volume.parse()?, snapshot.parse()?))
}

/// An error about a snapshot of this volume, with advice that names it.
fn of_volume(volume: &VolumeName) -> impl Fn(ControlError) -> ApiError {
    move |error| {
        let hint = format!("`cairn snapshot ls {volume}` shows those there are");
        ApiError::from(error).advise("snapshot_not_found", hint)
    }
}

fn snapshot_view(volume: &VolumeName, snapshot: &SnapshotRecord) -> Snapshot {
    Snapshot {
        volume: volume.to_string(),
        name: snapshot.name.clone(),
        size_bytes: snapshot.size_bytes,
        created_at: utc_of_ns(snapshot.created_at_ns),
    }
}

/// What each volume takes. Volumes are listed also when it cannot be told.
pub(super) async fn usage(control: &ControlHandle) -> BTreeMap<VolumeId, VolumeUsage> {
    control.usage().await.unwrap_or_default()
}

/// The snapshots of a volume, by name.
#[utoipa::path(get, path = "/v1/volumes/{name}/snapshots", params(("name" = String, Path)), responses(
    (status = 200, body = Vec<Snapshot>), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn list_snapshots(State(admin): Shared, name: NamePath) -> Result<Json<Vec<Snapshot>>, ApiError> {
    let volume = name_of(name)?;
    let snapshots = admin.control.list_snapshots(volume.clone()).await?;
    Ok(Json(snapshots.iter().map(|snapshot| snapshot_view(&volume, snapshot)).collect()))
}

/// Takes a snapshot: what the volume holds at this instant, for as long as it is kept.
#[utoipa::path(post, path = "/v1/volumes/{name}/snapshots", params(("name" = String, Path)),
    request_body = CreateSnapshot, responses(
    (status = 201, body = Snapshot), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn create_snapshot(
    State(admin): Shared,
    name: NamePath,
    body: Result<Json<CreateSnapshot>, JsonRejection>,
) -> Result<(StatusCode, Json<Snapshot>), ApiError> {
    let volume = name_of(name)?;
    let Json(CreateSnapshot { name }) = body?;
    let created = admin.control.create_snapshot(volume.clone(), name.parse()?).await?;
    let path = format!("{volume}@{name}");
    admin.events.done(kind::SNAPSHOT_CREATED, &[&path], format!("snapshot {path} taken"));
    Ok((StatusCode::CREATED, Json(snapshot_view(&volume, &created))))
}

/// Takes snapshots of several volumes at one instant, all or none: what had returned before it is in all of them, what is
/// written because of something else is in none without that.
#[utoipa::path(post, path = "/v1/snapshots", request_body = CreateSnapshots, responses(
    (status = 201, body = Vec<Snapshot>), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn create_snapshots(
    State(admin): Shared,
    body: Result<Json<CreateSnapshots>, JsonRejection>,
) -> Result<(StatusCode, Json<Vec<Snapshot>>), ApiError> {
    let Json(CreateSnapshots { snapshots }) = body?;
    let path = |SnapshotOf { volume, name }: &SnapshotOf| -> Result<SnapshotPath, ApiError> {
        Ok(SnapshotPath { volume: volume.parse()?, snapshot: name.parse()? })
    };
    let paths: Vec<SnapshotPath> = snapshots.iter().map(path).collect::<Result<_, _>>()?;
    if paths.is_empty() {
        return Err(ApiError::bad_request("no snapshot is named".to_owned(), "name one of each volume"));
    }
    let created = admin.control.create_snapshots(paths.clone()).await?;
    let told: Vec<String> = paths.iter().map(SnapshotPath::to_string).collect();
    let subjects: Vec<&str> = told.iter().map(String::as_str).collect();
    let text = format!("snapshots {} taken at one instant", told.join(", "));
    admin.events.done(kind::SNAPSHOT_CREATED, &subjects, text);
    let view = |(path, snapshot): (&SnapshotPath, &SnapshotRecord)| snapshot_view(&path.volume, snapshot);
    Ok((StatusCode::CREATED, Json(paths.iter().zip(&created).map(view).collect())))
}

/// Deletes a snapshot; what only it held comes back in the background.
#[utoipa::path(delete, path = "/v1/volumes/{name}/snapshots/{snapshot}", params(
    ("name" = String, Path), ("snapshot" = String, Path)), responses(
    (status = 204), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn delete_snapshot(State(admin): Shared, path: PairPath) -> Result<StatusCode, ApiError> {
    let (volume, snapshot) = pair_of(path)?;
    admin.control.delete_snapshot(volume.clone(), snapshot.clone()).await.map_err(of_volume(&volume))?;
    let path = format!("{volume}@{snapshot}");
    admin.events.done(kind::SNAPSHOT_DELETED, &[&path], format!("snapshot {path} deleted"));
    Ok(StatusCode::NO_CONTENT)
}

/// Makes the volume hold what the snapshot holds; what was written since is gone. No host may use it meanwhile.
#[utoipa::path(post, path = "/v1/volumes/{name}/snapshots/{snapshot}/rollback", params(
    ("name" = String, Path), ("snapshot" = String, Path)), responses(
    (status = 204), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn roll_back(State(admin): Shared, path: PairPath) -> Result<StatusCode, ApiError> {
    let (volume, snapshot) = pair_of(path)?;
    admin.control.roll_back(volume.clone(), snapshot.clone()).await.map_err(of_volume(&volume))?;
    let path = format!("{volume}@{snapshot}");
    admin.events.done(
        kind::VOLUME_ROLLED_BACK,
        &[volume.as_str(), &path],
        format!("volume {volume} rolled back to {path}"),
    );
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a volume that begins with what the snapshot holds, and shares it.
#[utoipa::path(post, path = "/v1/volumes/{name}/snapshots/{snapshot}/clone", params(
    ("name" = String, Path), ("snapshot" = String, Path)), request_body = CloneSnapshot, responses(
    (status = 201, body = Volume), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn clone_snapshot(
    State(admin): Shared,
    path: PairPath,
    body: Result<Json<CloneSnapshot>, JsonRejection>,
) -> Result<(StatusCode, Json<Volume>), ApiError> {
    let (volume, snapshot) = pair_of(path)?;
    let Json(CloneSnapshot { name }) = body?;
    let cloned = admin.control.clone_volume(volume.clone(), snapshot.clone(), name.parse()?).await;
    let info = cloned.map_err(of_volume(&volume))?;
    let path = format!("{volume}@{snapshot}");
    admin.events.done(kind::VOLUME_CLONED, &[&name, &path], format!("volume {name} made of {path}"));
    Ok((StatusCode::CREATED, Json(admin.addresses.volume(&info, None))))
}

/// The snapshot up to which changes are asked for; the query may say nothing else.
fn until(RawQuery(query): RawQuery) -> Result<Option<SnapshotName>, ApiError> {
    match query.as_deref() {
        None | Some("") => Ok(None),
        Some(query) => match query.strip_prefix("to=") {
            Some(name) => Ok(Some(name.parse()?)),
            None => Err(ApiError::bad_request(
                format!("'{query}' does not say until when"),
                "write ?to=NAME for a later snapshot, or nothing for now",
            )),
        },
    }
}

/// What was written, zeroed or discarded since the snapshot: until now, or until another one.
#[utoipa::path(get, path = "/v1/volumes/{name}/snapshots/{snapshot}/changes", params(
    ("name" = String, Path), ("snapshot" = String, Path),
    ("to" = Option<String>, Query, description = "a later snapshot; until now if none is named")), responses(
    (status = 200, body = Vec<ChangedRange>), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn list_changes(
    State(admin): Shared,
    path: PairPath,
    query: RawQuery,
) -> Result<Json<Vec<ChangedRange>>, ApiError> {
    let (volume, from) = pair_of(path)?;
    let ranges = admin.control.changes(volume.clone(), from, until(query)?).await.map_err(of_volume(&volume))?;
    let view =
        |range: volume::ByteRange| ChangedRange { offset_bytes: range.offset_bytes, length_bytes: range.length_bytes };
    Ok(Json(ranges.into_iter().map(view).collect()))
}

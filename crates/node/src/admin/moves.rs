//! The routes that say where a volume is served, and where it lies.

use super::error::ApiError;
use super::server::{NamePath, Shared, name_of};
use super::types::{ErrorBody, MoveVolume, Moving, MovingState, RelocateVolume, Volume};
use crate::events::kind;
use crate::node_name::NodeName;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use volume::{Relocation, WantedPlace};

/// Makes another node serve a volume, while hosts use it; it is to serve it from now on.
#[utoipa::path(post, path = "/v1/volumes/{name}/move", params(("name" = String, Path)), request_body = MoveVolume,
    responses((status = 200, body = Volume), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn move_volume(
    State(admin): Shared,
    name: NamePath,
    body: Result<Json<MoveVolume>, JsonRejection>,
) -> Result<Json<Volume>, ApiError> {
    let volume = name_of(name)?;
    let Json(MoveVolume { node }) = body?;
    let to: NodeName = node.parse()?;
    let info = admin.control.move_volume(volume.clone(), to.0).await?;
    let text = format!("volume {volume} is served by {to} from now on: somebody said so");
    admin.events.done(kind::VOLUME_MOVED, &[volume.as_str(), &to.to_string()], text);
    Ok(Json(admin.addresses.volume(&info, None)))
}

/// Begins to move what a volume holds to other groups, while hosts use it: gathered at a node, or spread over a pool.
#[utoipa::path(post, path = "/v1/volumes/{name}/relocation", params(("name" = String, Path)), request_body = RelocateVolume,
    responses((status = 202, body = Moving), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn begin_relocation(
    State(admin): Shared,
    name: NamePath,
    body: Result<Json<RelocateVolume>, JsonRejection>,
) -> Result<(StatusCode, Json<Moving>), ApiError> {
    let volume = name_of(name)?;
    let Json(RelocateVolume { placement, node, pool }) = body?;
    let node = node.as_deref().map(str::parse::<NodeName>).transpose()?;
    let wanted =
        WantedPlace { pool, replicas: None, placement: Some(placement.into()), home: node.map(|NodeName(node)| node) };
    let begun = admin.control.relocate(volume.clone(), wanted).await?;
    let text = format!("volume {volume} is being moved, to lie {}: somebody said so", begun.to);
    admin.events.done(kind::VOLUME_MOVED, &[volume.as_str()], text);
    Ok((StatusCode::ACCEPTED, Json(moving(begun))))
}

/// How far such a move is.
#[utoipa::path(get, path = "/v1/volumes/{name}/relocation", params(("name" = String, Path)),
    responses((status = 200, body = Moving), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn get_relocation(State(admin): Shared, name: NamePath) -> Result<Json<Moving>, ApiError> {
    Ok(Json(match admin.control.relocation(name_of(name)?).await? {
        Ok(Some(relocation)) => moving(relocation),
        Ok(None) => Moving { state: MovingState::Still, ..Moving::default() },
        Err(why) => Moving { state: MovingState::Failed, why, ..Moving::default() },
    }))
}

/// Gives such a move up: the volume stays where it is, and what was copied goes.
#[utoipa::path(delete, path = "/v1/volumes/{name}/relocation", params(("name" = String, Path)),
    responses((status = 204), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn give_relocation_up(State(admin): Shared, name: NamePath) -> Result<StatusCode, ApiError> {
    let volume = name_of(name)?;
    admin.control.give_relocation_up(volume.clone()).await?;
    let text = format!("volume {volume} stays where it is: somebody gave its move up");
    admin.events.done(kind::VOLUME_MOVED, &[volume.as_str()], text);
    Ok(StatusCode::NO_CONTENT)
}

fn moving(relocation: Relocation) -> Moving {
    let Relocation { to, copied_bytes, total_bytes, .. } = relocation;
    Moving { state: MovingState::Moving, to, copied_bytes, total_bytes, why: String::new() }
}

//! The routes about encrypted volumes. No secret is ever logged, nor part of a path.

use super::error::ApiError;
use super::server::{NamePath, Shared, name_of};
use super::types::{ErrorBody, RekeyVolume, Secret, UnlockVolume, Volume};
use crate::events::kind;
use crate::keys::SecretChange;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;

/// The secret in a request.
pub(super) fn secret_of(secret: &Secret) -> Result<volume::Secret, ApiError> {
    let no_digits = || {
        let hint = "write two hexadecimal digits for each byte";
        ApiError::bad_request("hex of a secret has something else in it", hint)
    };
    Ok(secret.read().ok_or_else(no_digits)??)
}

/// Unlocks an encrypted volume and the clones of its family: they can be used until they are locked or the node stops.
#[utoipa::path(post, path = "/v1/volumes/{name}/unlock", params(("name" = String, Path)), request_body = UnlockVolume,
    responses((status = 200, body = Volume), (status = 400, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn unlock_volume(
    State(admin): Shared,
    name: NamePath,
    body: Result<Json<UnlockVolume>, JsonRejection>,
) -> Result<Json<Volume>, ApiError> {
    let name = name_of(name)?;
    let Json(UnlockVolume { secret }) = body?;
    let info = admin.control.unlock_volume(name, secret_of(&secret)?).await?;
    let text = format!("volume {} and its clones are unlocked", info.name);
    admin.events.done(kind::VOLUME_UNLOCKED, &[&info.name], text);
    Ok(Json(admin.addresses.volume(&info, None)))
}

/// Locks an encrypted volume and the clones of its family: nobody can use them until they are unlocked.
#[utoipa::path(post, path = "/v1/volumes/{name}/lock", params(("name" = String, Path)), responses(
    (status = 200, body = Volume), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn lock_volume(State(admin): Shared, name: NamePath) -> Result<Json<Volume>, ApiError> {
    let info = admin.control.lock_volume(name_of(name)?).await?;
    let text = format!("volume {} and its clones are locked", info.name);
    admin.events.done(kind::VOLUME_LOCKED, &[&info.name], text);
    Ok(Json(admin.addresses.volume(&info, None)))
}

/// Changes the secrets that open a volume and the clones of its family. No block is touched.
#[utoipa::path(post, path = "/v1/volumes/{name}/rekey", params(("name" = String, Path)), request_body = RekeyVolume,
    responses((status = 200, body = Volume), (status = 400, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn rekey_volume(
    State(admin): Shared,
    name: NamePath,
    body: Result<Json<RekeyVolume>, JsonRejection>,
) -> Result<Json<Volume>, ApiError> {
    let name = name_of(name)?;
    let Json(RekeyVolume { secret, new_secret, keep }) = body?;
    let change = match (new_secret, keep) {
        (Some(new), true) => SecretChange::Add(secret_of(&new)?),
        (Some(new), false) => SecretChange::Replace(secret_of(&new)?),
        (None, false) => SecretChange::Remove,
        (None, true) => {
            let hint = "send new_secret, or leave keep away to remove the one that is there";
            let message = "keep without new_secret changes nothing";
            return Err(ApiError::bad_request(message, hint));
        }
    };
    let info = admin.control.rekey_volume(name, secret_of(&secret)?, change).await?;
    let text = format!("the secrets that open volume {} were changed", info.name);
    admin.events.done(kind::VOLUME_REKEYED, &[&info.name], text);
    Ok(Json(admin.addresses.volume(&info, None)))
}

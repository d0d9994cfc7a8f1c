//! The routes about encrypted volumes and pools. No secret is ever logged, nor part of a path.

use super::error::ApiError;
use super::server::{NamePath, Shared, name_of};
use super::types::{ChangePool, ErrorBody, Pool, RekeyVolume, Secret, UnlockVolume, Volume};
use super::view;
use crate::control::ControlError;
use crate::keys::SecretChange;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};

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
    log::info!("volume {} and its clones are unlocked", info.name);
    Ok(Json(admin.addresses.volume(&info, None)))
}

/// Locks an encrypted volume and the clones of its family: nobody can use them until they are unlocked.
#[utoipa::path(post, path = "/v1/volumes/{name}/lock", params(("name" = String, Path)), responses(
    (status = 200, body = Volume), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn lock_volume(State(admin): Shared, name: NamePath) -> Result<Json<Volume>, ApiError> {
    let info = admin.control.lock_volume(name_of(name)?).await?;
    log::info!("volume {} and its clones are locked", info.name);
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
    log::info!("the secrets that open volume {} were changed", info.name);
    Ok(Json(admin.addresses.volume(&info, None)))
}

/// The pools, by name.
#[utoipa::path(get, path = "/v1/pools", responses((status = 200, body = Vec<Pool>), (status = 503, body = ErrorBody)))]
pub(super) async fn list_pools(State(admin): Shared) -> Result<Json<Vec<Pool>>, ApiError> {
    let (pools, volumes) = (admin.control.list_pools().await?, admin.control.list_volumes().await?);
    Ok(Json(pools.iter().map(|pool| view::pool(pool, &volumes)).collect()))
}

/// One pool.
#[utoipa::path(get, path = "/v1/pools/{name}", params(("name" = String, Path)), responses(
    (status = 200, body = Pool), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn get_pool(State(admin): Shared, name: NamePath) -> Result<Json<Pool>, ApiError> {
    let Path(name) = name?;
    let (pools, volumes) = (admin.control.list_pools().await?, admin.control.list_volumes().await?);
    let found = pools.iter().find(|pool| pool.name == name);
    let found = found.ok_or(ControlError::NoPool(name))?;
    Ok(Json(view::pool(found, &volumes)))
}

/// Compresses what is written to a pool from now on otherwise. What is stored stays as it is, and readable.
#[utoipa::path(patch, path = "/v1/pools/{name}", params(("name" = String, Path)), request_body = ChangePool, responses(
    (status = 200, body = Pool), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn change_pool(
    State(admin): Shared,
    name: NamePath,
    body: Result<Json<ChangePool>, JsonRejection>,
) -> Result<Json<Pool>, ApiError> {
    let Path(name) = name?;
    let Json(ChangePool { compression }) = body?;
    let pool = admin.control.set_compression(name, compression.into()).await?;
    log::info!("pool {} compresses what is written from now on: {}", pool.name, pool.compression);
    Ok(Json(view::pool(&pool, &admin.control.list_volumes().await?)))
}

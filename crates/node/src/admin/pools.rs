//! The routes about pools.

use super::error::ApiError;
use super::pool_types::{ChangePool, CreatePool, PoolDetails};
use super::server::Shared;
use super::types::ErrorBody;
use crate::control::{ControlError, ControlHandle};
use crate::events::kind;
use crate::node_name::NodeName;
use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cluster::{FailureDomain, NewPool, PoolChange, PoolRulesRecord, VolumePlacement, default_min_in_sync};
use volume::{PoolInfo, VolumeInfo};

pub(super) fn details(pool: &PoolInfo, volumes: &[VolumeInfo]) -> PoolDetails {
    PoolDetails {
        name: pool.record.name.clone(),
        replicas: pool.record.replicas,
        min_in_sync: pool.record.min_in_sync,
        failure_domain: pool.rules.failure_domain.into(),
        class: pool.rules.class.clone(),
        placement: pool.rules.placement.into(),
        compression: pool.record.compression.into(),
        groups: pool.groups,
        devices: pool.devices,
        nodes: pool.nodes.iter().map(|node| NodeName(*node).to_string()).collect(),
        volumes: volumes.iter().filter(|volume| *volume.pool == *pool.record.name).count(),
    }
}

async fn all(control: &ControlHandle) -> Result<Vec<PoolDetails>, ControlError> {
    let (pools, volumes) = (control.pool_infos().await?, control.list_volumes().await?);
    Ok(pools.iter().map(|pool| details(pool, &volumes)).collect())
}

async fn one(control: &ControlHandle, name: String) -> Result<PoolDetails, ControlError> {
    all(control).await?.into_iter().find(|pool| pool.name == name).ok_or(ControlError::NoPool(name))
}

/// The pools, by name.
#[utoipa::path(get, path = "/v1/pools", responses(
    (status = 200, body = Vec<PoolDetails>), (status = 503, body = ErrorBody)))]
pub(super) async fn list_pools(State(admin): Shared) -> Result<Json<Vec<PoolDetails>>, ApiError> {
    Ok(Json(all(&admin.control).await?))
}

/// One pool.
#[utoipa::path(get, path = "/v1/pools/{name}", params(("name" = String, Path)), responses(
    (status = 200, body = PoolDetails), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn get_pool(
    State(admin): Shared,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<PoolDetails>, ApiError> {
    let Path(name) = name?;
    Ok(Json(one(&admin.control, name).await?))
}

/// Makes a pool over the devices of the cluster: it is there with all of its groups when this returns.
#[utoipa::path(post, path = "/v1/pools", request_body = CreatePool, responses(
    (status = 201, body = PoolDetails), (status = 400, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn create_pool(
    State(admin): Shared,
    body: Result<Json<CreatePool>, JsonRejection>,
) -> Result<(StatusCode, Json<PoolDetails>), ApiError> {
    let Json(asked) = body?;
    let CreatePool { name, replicas, min_in_sync, failure_domain, class, placement } = asked;
    let apart = if replicas == 1 { FailureDomain::Device } else { FailureDomain::Node };
    let rules = PoolRulesRecord {
        failure_domain: failure_domain.map_or(apart, Into::into),
        class: class.unwrap_or_default(),
        placement: placement.map_or(VolumePlacement::Gathered, Into::into),
        ..PoolRulesRecord::unset(&name)
    };
    let min_in_sync = min_in_sync.unwrap_or_else(|| default_min_in_sync(replicas));
    let new = NewPool { name: name.clone(), replicas, min_in_sync, rules: Some(rules), stores: Vec::new() };
    admin.control.create_pool(new).await?;
    let pool = one(&admin.control, name).await?;
    let (groups, devices) = (pool.groups, pool.devices);
    let text = format!("pool {} created: {replicas} copies, {groups} groups on {devices} devices", pool.name);
    admin.events.done(kind::POOL_CREATED, &[&pool.name], text);
    if replicas > 1 && min_in_sync == 1 {
        log::warn!("pool {}: a write is acknowledged with one copy while the others are away", pool.name);
    }
    Ok((StatusCode::CREATED, Json(pool)))
}

/// Changes a pool. Compression and placement hold for what is written, and for volumes that are made, from now on; where
/// copies may lie they are moved.
#[utoipa::path(patch, path = "/v1/pools/{name}", params(("name" = String, Path)), request_body = ChangePool, responses(
    (status = 200, body = PoolDetails), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn change_pool(
    State(admin): Shared,
    name: Result<Path<String>, PathRejection>,
    body: Result<Json<ChangePool>, JsonRejection>,
) -> Result<Json<PoolDetails>, ApiError> {
    let Path(name) = name?;
    let Json(ChangePool { compression, placement, failure_domain, class }) = body?;
    let change =
        PoolChange { failure_domain: failure_domain.map(Into::into), class, placement: placement.map(Into::into) };
    if change != PoolChange::default() {
        // What may be refused comes first.
        admin.control.change_pool(name.clone(), change).await?;
        admin.events.done(kind::POOL_CHANGED, &[&name], format!("the rules of pool {name} are changed"));
    }
    if let Some(compression) = compression {
        let pool = admin.control.set_compression(name.clone(), compression.into()).await?;
        let text = format!("pool {} compresses what is written from now on: {}", pool.name, pool.compression);
        admin.events.done(kind::POOL_CHANGED, &[&pool.name], text);
    }
    Ok(Json(one(&admin.control, name).await?))
}

//! Upgrades: what the nodes run, and that the cluster goes on to what all of them speak.

use super::duties::node_name;
use super::error::ApiError;
use super::server::Shared;
use super::types::ErrorBody;
use super::upgrade_types::{FinishUpgrade, NodeRuns, Upgrade};
use crate::control::ControlError;
use crate::events::kind;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;

/// What the nodes run, and what finishing an upgrade would come to.
#[utoipa::path(get, path = "/v1/upgrade", responses(
    (status = 200, body = Upgrade), (status = 503, body = ErrorBody)))]
pub(super) async fn get_upgrade(State(admin): Shared) -> Result<Json<Upgrade>, ApiError> {
    let listing = admin.control.standing().await?.listing;
    let upgrade = cluster::Upgrade::of(&listing).map_err(|error| ControlError::Unavailable(error.to_string()))?;
    Ok(Json(told(&upgrade, false)))
}

/// The cluster goes on to the version that was foretold: older releases take part no more, and that cannot be taken back.
#[utoipa::path(post, path = "/v1/upgrade/finish", request_body = FinishUpgrade, responses(
    (status = 200, body = Upgrade), (status = 400, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn finish_upgrade(
    State(admin): Shared,
    body: Result<Json<FinishUpgrade>, JsonRejection>,
) -> Result<Json<Upgrade>, ApiError> {
    let Json(FinishUpgrade { to }) = body?;
    let before = get_upgrade(State(admin.clone())).await?.0.cluster_version;
    let upgrade = admin.control.finish_upgrade(to).await?;
    let changed = upgrade.cluster_version != before;
    if changed {
        let text = format!("the upgrade is finished: the cluster went from cluster version {before} to {to}");
        admin.events.done(kind::UPGRADE_FINISHED, &[], text);
    }
    Ok(Json(told(&upgrade, changed)))
}

fn told(upgrade: &cluster::Upgrade, changed: bool) -> Upgrade {
    let runs = |runs: &cluster::Runs| {
        let release = runs.release.as_ref();
        let versions = release.map(|release| release.cluster_versions);
        NodeRuns {
            name: node_name(runs.node),
            runs: release.is_some(),
            release: release.map(|release| release.name.clone()).unwrap_or_default(),
            protocol_oldest: release.map_or(0, |release| release.protocol_oldest),
            protocol_newest: release.map_or(0, |release| release.protocol_newest),
            features: release.map(|release| release.features.clone()).unwrap_or_default(),
            cluster_version_lowest: versions.map_or(0, |versions| versions.lowest),
            cluster_version_highest: versions.map_or(0, |versions| versions.highest),
        }
    };
    Upgrade {
        cluster_version: upgrade.cluster_version,
        finished_with: upgrade.finished.as_ref().map(|finished| finished.release.clone()),
        next_version: upgrade.next,
        hindrances: upgrade.hindrances.clone(),
        nodes: upgrade.nodes.iter().map(runs).collect(),
        changed,
    }
}

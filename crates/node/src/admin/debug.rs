//! The routes for who gathers what a report of a fault needs: a node's own facts, and the map, all without secrets.

use super::error::ApiError;
use super::observe;
use super::server::Shared;
use super::types::ErrorBody;
use crate::control::ControlError;
use crate::debug::{self, Part};
use crate::node_name::NodeName;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// A part of what a node tells of itself for a report of a fault, without secrets: `config` (its file), `machine` (JSON), `log` (its
/// end), `metrics`.
#[utoipa::path(get, path = "/v1/nodes/{node}/debug/{part}", params(
    ("node" = String, Path), ("part" = String, Path, description = "config, machine, log or metrics")), responses(
    (status = 200, body = String, content_type = "text/plain"), (status = 400, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn get_part(
    State(admin): Shared,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path((name, part)) = path?;
    let NodeName(node) = name.parse()?;
    let Some((_, part)) = Part::ALL.into_iter().find(|(name, _)| *name == part) else {
        return Err(ApiError::bad_request(
            "that is no part of what a node tells",
            "config, machine, log and metrics are",
        ));
    };
    let Some(config_path) = admin.config_paths.get(&node).cloned() else {
        let what = format!("node-{node} does not answer, or there is no such node");
        return Err(ControlError::Unavailable(what).into());
    };
    let metrics = if part == Part::Metrics { observe::metrics_text(&admin).await? } else { String::new() };
    let told = tokio::task::spawn_blocking(move || debug::told(part, &config_path, metrics)).await;
    let told = told.unwrap_or_else(|error| Err(error.to_string()));
    let hint = "what cannot be told is left out of the bundle";
    let text = told.map_err(|why| ApiError::new(StatusCode::NOT_FOUND, "not_told", why, hint))?;
    let kind = if part == Part::Machine { "application/json" } else { "text/plain; charset=utf-8" };
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}

/// The cluster's map, without the keys that are in it.
#[utoipa::path(get, path = "/v1/map", responses((status = 200, body = Object), (status = 503, body = ErrorBody)))]
pub(super) async fn get_map(State(admin): Shared) -> Result<Json<serde_json::Value>, ApiError> {
    Ok(Json(debug::map_without_secrets(&admin.control.standing().await?.listing)))
}

//! The routes about the comparison of copies.

use super::check_types::{BeginCheck, CheckFinding, CheckReport, CopyState};
use super::duties::node_name;
use super::error::ApiError;
use super::health::Look;
use super::server::Shared;
use super::types::ErrorBody;
use crate::events::kind;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use cluster::control::ClusterStanding;
use types::{BLOCK_BYTES, CHUNK_BYTES};
use volume::{Check, CheckFault};

/// Begins to read all copies from their devices, and to compare them. One at a time.
#[utoipa::path(post, path = "/v1/check", request_body = BeginCheck, responses(
    (status = 202, body = CheckReport), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn begin_check(
    State(admin): Shared,
    body: Result<Json<BeginCheck>, JsonRejection>,
) -> Result<(StatusCode, Json<CheckReport>), ApiError> {
    let Json(asked) = body?;
    let of = asked.pool.clone().map_or_else(|| "all pools".to_owned(), |pool| format!("pool {pool}"));
    if !admin.control.begin_check(asked.pool).await? {
        let done = admin.control.last_check().await?.unwrap_or_default();
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "check_under_way",
            format!("a check is under way: {} of {} placement groups are done", done.groups_done, done.groups),
            "wait until it has ended: GET /v1/check says how far it is",
        ));
    }
    admin.events.done(kind::CHECK_BEGUN, &[], format!("all copies of {of} are compared"));
    let begun = admin.control.last_check().await?.unwrap_or_default();
    Ok((StatusCode::ACCEPTED, Json(report(&begun))))
}

/// How far the last check is that this node was asked for, and what it found.
#[utoipa::path(get, path = "/v1/check", responses(
    (status = 200, body = CheckReport), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn last_check(State(admin): Shared) -> Result<Json<CheckReport>, ApiError> {
    let last = admin.control.last_check().await?;
    let none = || {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "no_check",
            "this node was not asked to compare copies since it started",
            "begin with `cairn check`",
        )
    };
    let last = last.ok_or_else(none)?;
    let mut report = report(&last);
    if !report.findings.is_empty()
        && let Ok(look) = Look::take(&admin, None).await
    {
        name_nodes(&mut report, &look.known.standing);
    }
    Ok(Json(report))
}

/// On which node each copy is, as far as that is known.
fn name_nodes(report: &mut CheckReport, cluster: &ClusterStanding) {
    let node_of = |store: &str| {
        let device = cluster.devices.iter().find(|device| device.store.to_string() == store);
        device.map(|device| node_name(device.node))
    };
    for found in &mut report.findings {
        found.node = found.store.as_deref().and_then(node_of);
        found.copies.iter_mut().for_each(|copy| copy.node = node_of(&copy.store));
    }
}

fn report(check: &Check) -> CheckReport {
    CheckReport {
        pool: check.pool.clone(),
        over: check.is_over,
        agree: check.all_agree(),
        groups: check.groups,
        groups_done: check.groups_done,
        copies: check.copies,
        chunks: check.chunks,
        bytes_read: check.blocks_read * BLOCK_BYTES as u64,
        findings: check.findings.iter().map(finding).collect(),
        more_findings: check.more_findings,
        failed: check.failed.clone(),
    }
}

fn finding(found: &volume::CheckFinding) -> CheckFinding {
    let (kind, message) = match &found.fault {
        CheckFault::Differs(_) => ("differs", "the copies are not the same".to_owned()),
        CheckFault::Unreadable(why) => ("unreadable", why.clone()),
        CheckFault::Changing => ("changing", "it was written to all the time: not compared".to_owned()),
        CheckFault::NotLookedAt(why) => ("not-compared", why.clone()),
    };
    let copies = match &found.fault {
        CheckFault::Differs(copies) => copies.as_slice(),
        _ => &[],
    };
    let state = |(store, last_entry, digest): &(types::StoreId, u64, u128)| CopyState {
        store: store.to_string(),
        node: None,
        last_entry: *last_entry,
        digest: format!("{digest:032x}"),
    };
    CheckFinding {
        kind: kind.to_owned(),
        group: found.group.0,
        volumes: found.volumes.clone(),
        layer: found.leaf.map(|(layer, _)| layer.0),
        offset_bytes: found.leaf.map(|(_, chunk)| u64::from(chunk.0) * CHUNK_BYTES),
        store: found.store.map(|store| store.to_string()),
        node: None,
        copies: copies.iter().map(state).collect(),
        message,
    }
}

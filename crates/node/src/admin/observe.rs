//! The routes for who watches a node: where the time goes, metrics, health, readiness.

use super::error::ApiError;
use super::server::{NamePath, Shared, name_of};
use super::types::{ErrorBody, Health, OperationLatency, SlowIo, StageTimes, Status, VolumeLatency};
use super::view;
use crate::log::utc_of_ns;
use crate::metrics::{self, Scrape};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use volume::latency::{Class, ClassTotals, Stage};

/// Where the time of a volume's commands went in the last one to two minutes: sums for each operation, and the slowest
/// commands.
#[utoipa::path(get, path = "/v1/volumes/{name}/latency", params(("name" = String, Path)), responses(
    (status = 200, body = VolumeLatency), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn get_latency(State(admin): Shared, name: NamePath) -> Result<Json<VolumeLatency>, ApiError> {
    let info = admin.control.volume(&name_of(name)?).await?;
    let latency = admin.control.traffic().await?.volumes.remove(&info.id).unwrap_or_default();
    let operations = Class::ALL.iter().zip(&latency.recent).map(|(class, of)| operation(*class, of)).collect();
    Ok(Json(VolumeLatency {
        volume: info.name,
        seconds: latency.recent_time.as_secs(),
        operations,
        slowest: latency.slowest.iter().map(slow_io).collect(),
    }))
}

fn operation(class: Class, of: &ClassTotals) -> OperationLatency {
    OperationLatency {
        operation: class.name().to_owned(),
        count: of.operations,
        failed: of.failed,
        bytes: of.bytes,
        stages: stages(&of.stages),
    }
}

fn slow_io(io: &volume::latency::SlowIo) -> SlowIo {
    SlowIo {
        door: io.door.name().to_owned(),
        operation: io.operation.name().to_owned(),
        offset_bytes: io.offset_bytes,
        length_bytes: io.len_bytes,
        failed: io.failed,
        core: io.core,
        ended_at: utc_of_ns(io.ended_at_ns),
        stages: stages(&io.stages),
    }
}

fn stages(times: &volume::latency::StageTimes) -> StageTimes {
    let ns = |stage| times.stage(stage).as_nanos() as u64;
    StageTimes {
        receive_ns: ns(Stage::Receive),
        admit_ns: ns(Stage::Admit),
        queue_ns: ns(Stage::Queue),
        device_ns: ns(Stage::Device),
        send_ns: ns(Stage::Send),
    }
}

/// How the cluster is.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = Status), (status = 503, body = ErrorBody)))]
pub(super) async fn get_status(State(admin): Shared) -> Result<Json<Status>, ApiError> {
    let (volumes, pools) = (admin.control.list_volumes().await?, admin.control.list_pools().await?);
    let mut status = view::status(&admin.control.status().await?, &volumes, &pools);
    match admin.control.standing().await {
        Ok(standings) => {
            let here: Vec<_> = admin.control.nodes_here().collect();
            super::duties::explain(&mut status, &standings, &here, wall_ns());
            super::duties::tell_devices(&mut status.devices, &standings.cluster);
        }
        Err(error) => {
            status.health = status.health.max(Health::Degraded);
            status.reasons.push(format!("the cluster map does not answer ({error}): I/O goes on, nothing is moved"));
        }
    }
    Ok(Json(status))
}

/// Wall time.
fn wall_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as u64
}

/// Whether this process answers and its control core does: if not, it is to be started anew.
#[utoipa::path(get, path = "/healthz", responses((status = 200, body = String), (status = 503, body = ErrorBody)))]
pub(super) async fn get_health(State(admin): Shared) -> Result<&'static str, ApiError> {
    admin.control.list_volumes().await?;
    Ok("ok\n")
}

/// Whether I/O is served: if not, clients are to be sent elsewhere, and a new start would help nothing.
#[utoipa::path(get, path = "/readyz", responses((status = 200, body = String), (status = 503, body = ErrorBody)))]
pub(super) async fn get_readiness(State(admin): Shared) -> Result<&'static str, ApiError> {
    let status = view::status(&admin.control.status().await?, &[], &[]);
    let serves = status.health != Health::Unavailable && status.groups_serving == status.groups;
    if serves { Ok("ready\n") } else { Err(ApiError::not_ready(&status.reasons)) }
}

/// Metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, body = String, content_type = "text/plain"), (status = 503, body = ErrorBody)))]
pub(super) async fn get_metrics(State(admin): Shared) -> Result<Response, ApiError> {
    let control = &admin.control;
    let (volumes, pools) = (control.list_volumes().await?, control.list_pools().await?);
    let cluster = control.status().await?;
    let scrape = Scrape {
        status: view::status(&cluster, &volumes, &pools),
        node: cluster.node,
        volumes,
        usage: control.usage().await?,
        traffic: control.traffic().await?,
    };
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&scrape)).into_response())
}

//! The routes for who watches a node: where the time goes, metrics, health, readiness.

use super::elsewhere::IsPassedOn;
use super::error::ApiError;
use super::health::{Look, finding, now_ns};
use super::server::{Admin, NamePath, Shared, name_of};
use super::types::{ErrorBody, Health, OperationLatency, SlowIo, StageTimes, Status, VolumeLatency};
use super::view;
use crate::control::{ClusterStatus, ControlHandle};
use crate::log::utc_of_ns;
use crate::metrics::{self, Scrape};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use volume::latency::{Class, ClassTotals, Stage};
use volume::{PoolInfo, VolumeInfo};

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

/// How the cluster is, what is at risk, what is being done, and when that ends.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = Status), (status = 503, body = ErrorBody)))]
pub(super) async fn get_status(
    State(admin): Shared,
    passed_on: Option<Extension<IsPassedOn>>,
) -> Result<Json<Status>, ApiError> {
    let (volumes, pools) = (admin.control.list_volumes().await?, pools(&admin.control).await);
    let cluster = admin.control.status().await?;
    Ok(Json(explained(&admin, &cluster, (&volumes, &pools), passed_on.is_some()).await))
}

/// The pools, if the map answers: what it does not say is told as such.
async fn pools(control: &ControlHandle) -> Vec<PoolInfo> {
    control.pool_infos().await.unwrap_or_default()
}

/// With what the map says, if it answers; a part of the whole leaves that to the node that puts the parts together.
async fn explained(
    admin: &Admin,
    cluster: &ClusterStatus,
    (volumes, pools): (&[VolumeInfo], &[PoolInfo]),
    is_part: bool,
) -> Status {
    match Look::take(admin, Some(&cluster.node)).await {
        Ok(look) => {
            let found = if is_part { Vec::new() } else { look.findings() };
            let found = view::Found { findings: found, orders: look.known.standing.orders, damage: look.damage() };
            let mut status = view::status(cluster, volumes, pools, Some(found));
            super::duties::tell_devices(&mut status.devices, &look.known.standing);
            if !is_part {
                super::map_members::tell(&mut status, &look.map_members);
            }
            status
        }
        Err(error) => {
            // Of a part the node tells that asked for it.
            let remembered = if is_part { Some(Vec::new()) } else { Look::remembered(admin, &cluster.node) };
            let mut status = view::status(
                cluster,
                volumes,
                pools,
                remembered.map(|findings| view::Found { findings, ..view::Found::default() }),
            );
            super::map_members::tell_silence(&mut status, &error);
            status
        }
    }
}

/// Something that makes the cluster less than healthy.
pub(super) fn add_cause(status: &mut Status, found: &cluster::health::Finding) {
    assert_eq!(found.lacks(), [""; 0], "each finding is explained");
    status.health = status.health.max(Health::Degraded);
    status.reasons.push(found.cause.clone());
    status.findings.push(finding(found, now_ns()));
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
    let status = view::status(&admin.control.status().await?, &[], &[], None);
    let serves = status.health != Health::Unavailable && status.groups_serving == status.groups;
    if serves { Ok("ready\n") } else { Err(ApiError::not_ready(&status.reasons)) }
}

/// Metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, body = String, content_type = "text/plain"), (status = 503, body = ErrorBody)))]
pub(super) async fn get_metrics(State(admin): Shared) -> Result<Response, ApiError> {
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics_text(&admin).await?).into_response())
}

/// The metrics of this process.
pub(super) async fn metrics_text(admin: &Admin) -> Result<String, ApiError> {
    let control = &admin.control;
    let (volumes, pools) = (control.list_volumes().await?, pools(control).await);
    let cluster = control.status().await?;
    let scrape = Scrape {
        status: explained(admin, &cluster, (&volumes, &pools), false).await,
        node: cluster.node,
        volumes,
        usage: control.usage().await?,
        traffic: control.traffic().await?,
    };
    Ok(metrics::text(&scrape))
}

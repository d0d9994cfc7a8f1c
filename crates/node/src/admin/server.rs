//! The routes, and the socket they are served on.

use super::book::AddressBook;
use super::change;
use super::check;
use super::check_types::{BeginCheck, CheckFinding, CheckReport, CopyState};
use super::debug;
use super::devices;
use super::duties;
use super::duty_types::{DeviceBytes, DutyAction, DutyOrder, Foretold};
use super::elsewhere::{self, Asked};
use super::error::ApiError;
use super::event_types::{Event, EventSeverity, Events};
use super::events;
use super::group_types::{CopyHere, ForceGroups, Forced, ForcedGroup, Group, GroupCopy};
use super::groups;
use super::health::{Look, Looked};
use super::health_types::{AtRisk, Doing, Finding, Severity};
use super::hosts;
use super::keys;
use super::listener::BoundedListener;
use super::moves;
use super::observe;
use super::pool_types::{ChangePool, CreatePool, FailureDomain, Placement, PoolDetails};
use super::pools;
use super::snapshots;
use super::types::{
    AddDevice, AddedDevice, AllowHost, Capacity, ChangeLimits, ChangeVolume, ChangedRange, CloneSnapshot, Compression,
    CreateSnapshot, CreateSnapshots, CreateVolume, Device, ErrorBody, ErrorDetail, ForgetDevice, Health, Hosts, Limits,
    MoveVolume, Moving, MovingState, Node, NodeState, OperationLatency, RekeyVolume, RelocateVolume, RestoreVolume,
    Secret, SecretKind, SlowIo, Snapshot, SnapshotOf, StageTimes, Status, TrashedVolume, UnlockVolume, Usage, Volume,
    VolumeLatency,
};
use super::upgrade;
use super::upgrade_types::{FinishUpgrade, NodeRuns, Upgrade};
use super::view;
use crate::control::ControlHandle;
use crate::events::kind;
use crate::node_name::NodeName;
use crate::size::ByteSize;
use crate::volume_spec::{BlockSize, VolumeName, VolumeSpec};
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use types::{NodeId, VolumeId};
use utoipa::OpenApi;
use volume::{HostAccess, NewVolume, WantedPlace};

/// Largest body of a request: two key files of the largest size, two digits a byte, with room.
pub(super) const BODY_MAX_BYTES: usize = 6 * volume::KEY_FILE_BYTES_MAX;

/// Paths of the API, as the OpenAPI document must name them.
pub const ADMIN_PATHS: [&str; 38] = [
    "/v1/nodes",
    "/v1/devices",
    "/v1/devices/forget",
    "/v1/duties",
    "/v1/check",
    "/v1/groups",
    "/v1/groups/copies",
    "/v1/groups/force",
    "/v1/upgrade",
    "/v1/upgrade/finish",
    "/v1/volumes",
    "/v1/volumes/{name}",
    "/v1/volumes/{name}/latency",
    "/v1/volumes/{name}/move",
    "/v1/volumes/{name}/relocation",
    "/v1/volumes/{name}/hosts",
    "/v1/volumes/{name}/hosts/{host}",
    "/v1/volumes/{name}/unlock",
    "/v1/volumes/{name}/lock",
    "/v1/volumes/{name}/rekey",
    "/v1/snapshots",
    "/v1/volumes/{name}/snapshots",
    "/v1/volumes/{name}/snapshots/{snapshot}",
    "/v1/volumes/{name}/snapshots/{snapshot}/rollback",
    "/v1/volumes/{name}/snapshots/{snapshot}/clone",
    "/v1/volumes/{name}/snapshots/{snapshot}/changes",
    "/v1/pools",
    "/v1/pools/{name}",
    "/v1/trash",
    "/v1/trash/{id}",
    "/v1/trash/{id}/restore",
    "/v1/status",
    "/v1/events",
    "/v1/nodes/{node}/debug/{part}",
    "/v1/map",
    "/healthz",
    "/readyz",
    "/metrics",
];

/// What the routes need.
pub struct Admin {
    /// The way to the control core.
    pub control: ControlHandle,
    /// What clients are told.
    pub addresses: AddressBook,
    /// Whether nodes that are processes of their own share its map: then some of what is asked here is theirs to do.
    pub is_shared: bool,
    /// The node's file.
    pub config_path: PathBuf,
    /// The files of the nodes of this process.
    pub config_paths: BTreeMap<NodeId, PathBuf>,
    /// What was left to copy when somebody asked before.
    pub looked: Looked,
    /// The map as it was heard of last.
    pub(crate) follower: crate::events::follower::Follower,
    /// What happened.
    pub events: Arc<crate::events::Events>,
}

pub(super) type Shared = State<Arc<Admin>>;
pub(super) type NamePath = Result<Path<String>, PathRejection>;
type IdPath = Result<Path<u64>, PathRejection>;

pub(super) fn name_of(path: NamePath) -> Result<VolumeName, ApiError> {
    let Path(name) = path?;
    Ok(name.parse()?)
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Cairn", description = "Admin API of a Cairn cluster."),
    paths(
        list_volumes,
        create_volume,
        get_volume,
        delete_volume,
        change::change_volume,
        moves::move_volume,
        moves::begin_relocation,
        moves::get_relocation,
        moves::give_relocation_up,
        snapshots::list_snapshots,
        snapshots::create_snapshot,
        snapshots::create_snapshots,
        snapshots::delete_snapshot,
        snapshots::roll_back,
        snapshots::clone_snapshot,
        snapshots::list_changes,
        hosts::list_hosts,
        hosts::allow_host,
        hosts::deny_host,
        keys::unlock_volume,
        keys::lock_volume,
        keys::rekey_volume,
        pools::list_pools,
        pools::create_pool,
        pools::get_pool,
        pools::change_pool,
        list_nodes,
        devices::list_devices,
        devices::add_device,
        duties::order_duty,
        check::begin_check,
        devices::forget_device,
        groups::list_groups,
        groups::list_copies,
        groups::force_groups,
        upgrade::get_upgrade,
        upgrade::finish_upgrade,
        check::last_check,
        list_trash,
        restore_volume,
        empty_trash,
        observe::get_latency,
        observe::get_status,
        events::get_events,
        debug::get_part,
        debug::get_map,
        observe::get_health,
        observe::get_readiness,
        observe::get_metrics
    ),
    components(schemas(
        Upgrade,
        NodeRuns,
        FinishUpgrade,
        CopyHere,
        ForceGroups,
        Forced,
        ForcedGroup,
        Group,
        GroupCopy,
        Node,
        NodeState,
        Volume,
        Usage,
        CreateVolume,
        AllowHost,
        Hosts,
        ChangeVolume,
        MoveVolume,
        Moving,
        MovingState,
        RelocateVolume,
        ChangeLimits,
        Limits,
        Secret,
        SecretKind,
        UnlockVolume,
        RekeyVolume,
        PoolDetails,
        CreatePool,
        ChangePool,
        FailureDomain,
        Placement,
        Compression,
        Snapshot,
        CreateSnapshot,
        CreateSnapshots,
        SnapshotOf,
        CloneSnapshot,
        ChangedRange,
        VolumeLatency,
        OperationLatency,
        SlowIo,
        StageTimes,
        TrashedVolume,
        RestoreVolume,
        Status,
        Capacity,
        Health,
        Device,
        AddDevice,
        AddedDevice,
        ForgetDevice,
        BeginCheck,
        CheckReport,
        CheckFinding,
        CopyState,
        DutyOrder,
        DutyAction,
        Foretold,
        DeviceBytes,
        Finding,
        Severity,
        AtRisk,
        Doing,
        Events,
        Event,
        EventSeverity,
        ErrorBody,
        ErrorDetail
    ))
)]
struct Document;

impl Admin {
    /// Answers requests on `listener`, and those that other nodes pass on, until `stop` resolves and what is under way has been
    /// answered.
    ///
    /// # Errors
    /// What the system says of the socket.
    pub async fn serve(
        self,
        listener: TcpListener,
        asked: mpsc::Receiver<Asked>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let router = self.router();
        let answering = tokio::spawn(elsewhere::answer_all(router.clone(), asked));
        let served = axum::serve(BoundedListener::new(listener), router).with_graceful_shutdown(stop).await;
        answering.abort();
        served
    }

    fn router(self) -> Router {
        let admin = Arc::new(self);
        Router::new()
            .route("/v1/nodes", get(list_nodes))
            .route("/v1/volumes", get(list_volumes).post(create_volume))
            .route("/v1/volumes/{name}", get(get_volume).patch(change::change_volume).delete(delete_volume))
            .route("/v1/snapshots", post(snapshots::create_snapshots))
            .route("/v1/volumes/{name}/snapshots", get(snapshots::list_snapshots).post(snapshots::create_snapshot))
            .route("/v1/volumes/{name}/snapshots/{snapshot}", delete(snapshots::delete_snapshot))
            .route("/v1/volumes/{name}/snapshots/{snapshot}/rollback", post(snapshots::roll_back))
            .route("/v1/volumes/{name}/snapshots/{snapshot}/clone", post(snapshots::clone_snapshot))
            .route("/v1/volumes/{name}/snapshots/{snapshot}/changes", get(snapshots::list_changes))
            .route("/v1/volumes/{name}/move", post(moves::move_volume))
            .route(
                "/v1/volumes/{name}/relocation",
                get(moves::get_relocation).post(moves::begin_relocation).delete(moves::give_relocation_up),
            )
            .route("/v1/volumes/{name}/hosts", get(hosts::list_hosts).post(hosts::allow_host))
            .route("/v1/volumes/{name}/hosts/{host}", delete(hosts::deny_host))
            .route("/v1/volumes/{name}/unlock", post(keys::unlock_volume))
            .route("/v1/volumes/{name}/lock", post(keys::lock_volume))
            .route("/v1/volumes/{name}/rekey", post(keys::rekey_volume))
            .route("/v1/pools", get(pools::list_pools).post(pools::create_pool))
            .route("/v1/pools/{name}", get(pools::get_pool).patch(pools::change_pool))
            .route("/v1/devices", get(devices::list_devices).post(devices::add_device))
            .route("/v1/devices/forget", post(devices::forget_device))
            .route("/v1/duties", post(duties::order_duty))
            .route("/v1/check", get(check::last_check).post(check::begin_check))
            .route("/v1/groups", get(groups::list_groups))
            .route("/v1/groups/copies", get(groups::list_copies))
            .route("/v1/groups/force", post(groups::force_groups))
            .route("/v1/upgrade", get(upgrade::get_upgrade))
            .route("/v1/upgrade/finish", post(upgrade::finish_upgrade))
            .route("/v1/trash", get(list_trash))
            .route("/v1/trash/{id}", delete(empty_trash))
            .route("/v1/trash/{id}/restore", post(restore_volume))
            .route("/v1/volumes/{name}/latency", get(observe::get_latency))
            .route("/v1/status", get(observe::get_status))
            .route("/v1/events", get(events::get_events))
            .route("/v1/nodes/{node}/debug/{part}", get(debug::get_part))
            .route("/v1/map", get(debug::get_map))
            .route("/v1/openapi.json", get(|| async { Json(Document::openapi()) }))
            .route("/healthz", get(observe::get_health))
            .route("/readyz", get(observe::get_readiness))
            .route("/metrics", get(observe::get_metrics))
            .fallback(|uri: Uri| async move { ApiError::no_such_path(uri.path()) })
            .method_not_allowed_fallback(|method: Method, uri: Uri| async move {
                ApiError::method_not_allowed(method.as_str(), uri.path())
            })
            .layer(DefaultBodyLimit::max(BODY_MAX_BYTES))
            .layer(axum::middleware::from_fn_with_state(admin.clone(), elsewhere::route))
            .with_state(admin)
    }
}

/// The nodes, by number.
#[utoipa::path(get, path = "/v1/nodes", responses((status = 200, body = Vec<Node>)))]
async fn list_nodes(State(admin): Shared) -> Json<Vec<Node>> {
    let mut nodes = admin.addresses.nodes();
    // Those of this process are listed also while the map does not answer.
    if let Ok(look) = Look::take(&admin, None).await {
        duties::tell_nodes(&mut nodes, &look.known.standing);
    }
    Json(nodes)
}

/// All volumes, by name.
#[utoipa::path(get, path = "/v1/volumes", responses(
    (status = 200, body = Vec<Volume>), (status = 503, body = ErrorBody)))]
async fn list_volumes(State(admin): Shared) -> Result<Json<Vec<Volume>>, ApiError> {
    let volumes = admin.control.list_volumes().await?;
    let usage = snapshots::usage(&admin.control).await;
    Ok(Json(volumes.iter().map(|info| admin.addresses.volume(info, usage.get(&info.id))).collect()))
}

/// Makes a volume.
#[utoipa::path(post, path = "/v1/volumes", request_body = CreateVolume, responses(
    (status = 201, body = Volume), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody),
    (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)))]
async fn create_volume(
    State(admin): Shared,
    body: Result<Json<CreateVolume>, JsonRejection>,
) -> Result<(StatusCode, Json<Volume>), ApiError> {
    let Json(asked) = body?;
    let name: VolumeName = asked.name.parse()?;
    let spec = VolumeSpec::new(name, ByteSize(asked.size_bytes), BlockSize::try_from(asked.block_size_bytes)?)?;
    let hosts = if asked.any_host { HostAccess::Any } else { HostAccess::Unset };
    let new = NewVolume { limits: asked.limits.asked(), hosts, ..spec.to_new() };
    let node = asked.node.as_deref().map(str::parse::<NodeName>).transpose()?;
    let wanted = WantedPlace {
        pool: asked.pool.clone(),
        replicas: asked.replicas,
        placement: asked.placement.map(Into::into),
        home: node.map(|NodeName(node)| node),
    };
    let info = match &asked.secret {
        Some(secret) => admin.control.create_encrypted_volume(new, wanted, keys::secret_of(secret)?).await?,
        None => admin.control.create_volume(new, wanted).await?,
    };
    let encrypted = if asked.secret.is_some() { ", encrypted" } else { "" };
    let text = format!("volume {} created: {} bytes, namespace {}{encrypted}", info.name, info.size_bytes, info.nsid);
    admin.events.done(kind::VOLUME_CREATED, &[&info.name], text);
    Ok((StatusCode::CREATED, Json(admin.addresses.volume(&info, None))))
}

/// One volume.
#[utoipa::path(get, path = "/v1/volumes/{name}", params(("name" = String, Path)), responses(
    (status = 200, body = Volume), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
async fn get_volume(State(admin): Shared, name: NamePath) -> Result<Json<Volume>, ApiError> {
    let info = admin.control.volume(&name_of(name)?).await?;
    let usage = snapshots::usage(&admin.control).await;
    Ok(Json(admin.addresses.volume(&info, usage.get(&info.id))))
}

/// Whether the query asks to delete for good; it may say nothing else.
fn is_for_good(RawQuery(query): RawQuery) -> Result<bool, ApiError> {
    match query.as_deref() {
        None | Some("" | "now=false") => Ok(false),
        Some("now=true") => Ok(true),
        Some(other) => Err(ApiError::bad_request(
            format!("'{other}' says nothing about how to delete a volume"),
            "write ?now=true to delete it for good, or nothing to put it into the trash",
        )),
    }
}

/// Deletes a volume: into the trash, where it can be restored for 24 hours, or for good.
#[utoipa::path(delete, path = "/v1/volumes/{name}", params(
    ("name" = String, Path), ("now" = Option<bool>, Query, description = "for good, and not into the trash")), responses(
    (status = 200, body = TrashedVolume, description = "It is in the trash."),
    (status = 204, description = "It is gone for good."),
    (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
async fn delete_volume(State(admin): Shared, name: NamePath, query: RawQuery) -> Result<Response, ApiError> {
    let name = name_of(name)?;
    if is_for_good(query)? {
        admin.control.delete_volume(name.clone()).await?;
        admin.events.done(kind::VOLUME_DELETED, &[name.as_str()], format!("volume {name} deleted for good"));
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let trashed = view::trashed(&admin.control.trash_volume(name.clone()).await?);
    let text = format!("volume {name} is in the trash until {}", trashed.kept_until);
    admin.events.done(kind::VOLUME_TRASHED, &[name.as_str()], text);
    Ok(Json(trashed).into_response())
}

/// What is in the trash, what was deleted last at the end.
#[utoipa::path(get, path = "/v1/trash", responses(
    (status = 200, body = Vec<TrashedVolume>), (status = 503, body = ErrorBody)))]
async fn list_trash(State(admin): Shared) -> Result<Json<Vec<TrashedVolume>>, ApiError> {
    Ok(Json(admin.control.list_trash().await?.iter().map(view::trashed).collect()))
}

/// Takes a volume out of the trash.
#[utoipa::path(post, path = "/v1/trash/{id}/restore", params(("id" = u64, Path)), request_body = RestoreVolume, responses(
    (status = 200, body = Volume), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
async fn restore_volume(
    State(admin): Shared,
    id: IdPath,
    body: Result<Json<RestoreVolume>, JsonRejection>,
) -> Result<Json<Volume>, ApiError> {
    let Path(id) = id?;
    let Json(RestoreVolume { name }) = body?;
    let name = name.map(|name| name.parse()).transpose()?;
    let restored = admin.control.restore_volume(VolumeId(id), name).await;
    let hint = "restore it under another name: `cairn trash restore NAME --as NEW`";
    let info = restored.map_err(|error| ApiError::from(error).advise("volume_exists", hint))?;
    let text = format!("volume {} restored from the trash", info.name);
    admin.events.done(kind::VOLUME_RESTORED, &[&info.name], text);
    Ok(Json(admin.addresses.volume(&info, None)))
}

/// Deletes a volume in the trash for good.
#[utoipa::path(delete, path = "/v1/trash/{id}", params(("id" = u64, Path)), responses(
    (status = 204), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
async fn empty_trash(State(admin): Shared, id: IdPath) -> Result<StatusCode, ApiError> {
    let Path(id) = id?;
    admin.control.empty_trash(VolumeId(id)).await?;
    let text = format!("volume {id} is out of the trash and deleted for good");
    admin.events.done(kind::VOLUME_DELETED, &[&id.to_string()], text);
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;

//! What is asked of one node and is another's to do, where nodes are processes of their own: the API of any node answers for the
//! cluster.
//!
//! ```text
//!   client ── POST /v1/volumes/a/snapshots ──► node 1: the head of a is node 2
//!                 node 1 ── call between nodes: method, path, body ──► node 2: as if a client had asked it
//!                 node 1 ◄── status, body ─────────────────────────── it
//!   client ◄── the same ── node 1, which has read the map since: what it lists next has it
//! ```
//!
//! It goes over the connections between nodes, which know each other by the cluster's key: nobody has to reach the other node's
//! admin port. What was passed on is passed on by nobody else. What each node knows of its own (status, devices, trash) is asked
//! of all and put together.
//!
//! **A node that has just died** has a session still. A new volume is made by another then, or here; what is a head's to do, by who is head
//! in its place, if that is known soon. Both only as long as what was asked has surely not left this node, or changes nothing: what has
//! left and is not answered may have been done, and is told as that.

use super::book::AddressBook;
use super::error::ApiError;
use super::event_types::Events;
use super::events;
use super::health::Look;
use super::health_types::Finding;
use super::keys::secret_of;
use super::observe::add_cause;
use super::server::{Admin, BODY_MAX_BYTES, Shared};
use super::types::{CreateVolume, Device, Secret, Status, TrashedVolume, UnlockVolume};
use super::view;
use crate::control::{ControlError, ControlHandle, Unanswered};
use crate::node_name::NodeName;
use axum::Json;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Extensions, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cluster::health::{self, Harm, Loss};
use runtime::channel::CrossSender;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};
use tower::ServiceExt;
use types::{NodeId, VolumeId};
use volume::{Message, PeerNode};

/// Where volumes are made.
const NEW_VOLUME: &str = "/v1/volumes";
/// Requests of other nodes that wait to be looked at, and that are worked at.
pub const ASKED_MAX: usize = 64;
/// A node that is asked how it is has so long to say so: what it does not say is told as missing.
const PART_PATIENCE: Duration = Duration::from_millis(1500);
/// Who takes a head's place is waited for so long: with a last attempt to reach it, less than a client waits for the answer.
const HEAD_PATIENCE: Duration = Duration::from_secs(2);
/// And so long each time, before it is looked who it is.
const HEAD_WAIT: Duration = Duration::from_millis(250);

/// A request of another node.
pub struct Asked {
    pub(crate) message: Message,
    pub(crate) reply: CrossSender<Message>,
}

/// Head of a request that is passed on.
#[derive(Serialize, Deserialize)]
struct Passed {
    method: String,
    path: String,
}

/// Head of its answer.
#[derive(Serialize, Deserialize)]
struct Answered {
    status: u16,
    content_type: Option<String>,
}

/// Marks a request that another node has passed on.
#[derive(Clone)]
pub(super) struct IsPassedOn;

// ---- as the node that is asked for another -----------------------------------------------------------------------------------

/// Answers what other nodes ask, for ever.
pub(super) async fn answer_all(router: Router, mut asked: mpsc::Receiver<Asked>) {
    let places = Arc::new(Semaphore::new(ASKED_MAX));
    while let Some(Asked { message, reply }) = asked.recv().await {
        let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
        let router = router.clone();
        tokio::spawn(async move {
            // Who asked may have given up.
            let _ = reply.try_send(answer(router, message).await);
            drop(place);
        });
    }
}

async fn answer(router: Router, message: Message) -> Message {
    let response = match request_of(message) {
        Ok(request) => router.oneshot(request).await.unwrap_or_else(|never| match never {}),
        Err(what) => ApiError::bad_request(what, "all nodes have to be of one version").into_response(),
    };
    message_of(response).await
}

fn request_of(message: Message) -> Result<Request, String> {
    let Passed { method, path } = serde_json::from_slice(&message.head).map_err(|error| error.to_string())?;
    let mut request = Request::builder().method(method.as_str()).uri(path);
    if !message.body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    request.extension(IsPassedOn).body(Body::from(message.body)).map_err(|error| error.to_string())
}

async fn message_of(response: Response) -> Message {
    let (parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, Message::BODY_MAX).await else {
        let hint = "ask the node that serves it: `cairn node ls` shows its addresses";
        let too_long = ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "answer_too_long",
            format!("the answer is longer than the {} bytes that nodes pass on", Message::BODY_MAX),
            hint,
        );
        return Box::pin(message_of(too_long.into_response())).await;
    };
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let answered = Answered { status: parts.status.as_u16(), content_type };
    Message { head: serde_json::to_vec(&answered).unwrap_or_default(), body: body.to_vec() }
}

// ---- as the node that asks another -------------------------------------------------------------------------------------------

/// Who is to do what a request says.
#[derive(Debug, PartialEq, Eq)]
enum Doer {
    /// This process.
    Here,
    /// Another node, and nobody in its place.
    Node(NodeId),
    /// Another node, which is the head; whoever is that after it can do it as well.
    Head(NodeId),
    /// The first of these other nodes that is there, or this process.
    First(Vec<NodeId>),
    /// All nodes, one after the other: this first, or last.
    All { first: Option<NodeId>, last: Option<NodeId> },
    /// All nodes, each for its part.
    Parts,
}

/// Passes on what is not this process's to do.
pub(super) async fn route(State(admin): Shared, request: Request, next: Next) -> Response {
    if !admin.is_shared {
        return next.run(request).await;
    }
    let peers = admin.control.peers().await.unwrap_or_default();
    admin.addresses.learn(&peers);
    if request.extensions().get::<IsPassedOn>().is_some() {
        return next.run(request).await;
    }
    let doer = doer_of(&admin.control, &admin.addresses, &peers, request.method(), request.uri().path()).await;
    match doer {
        Doer::Here => next.run(request).await,
        Doer::Parts => put_together(&admin, &peers, request, next).await,
        Doer::First(nodes) => made_at(&admin, &peers, nodes, request, next).await,
        Doer::Head(node) => at_head(&admin, node, request, next).await,
        Doer::Node(node) => match taken_apart(request).await {
            Ok((passed, body)) => pass_on(&admin.control, node, &passed, &body).await,
            Err(error) => error.into_response(),
        },
        Doer::All { first, last } => at_all(&admin, &peers, (first, last), request, next).await,
    }
}

async fn doer_of(
    control: &ControlHandle,
    addresses: &AddressBook,
    peers: &[PeerNode],
    method: &Method,
    path: &str,
) -> Doer {
    let is_up = |node: &NodeId| peers.iter().any(|peer| peer.node == *node);
    let segments: Vec<&str> = path.strip_prefix("/v1/").unwrap_or_default().split('/').collect();
    let is_read = *method == Method::GET;
    match segments[..] {
        ["status" | "devices" | "trash" | "events"] if is_read => Doer::Parts,
        ["volumes"] if *method == Method::POST => Doer::First(nodes_for_new(control, addresses, peers).await),
        ["volumes", _] | ["volumes", _, "hosts"] if is_read => Doer::Here,
        ["volumes", _, "rekey"] => Doer::Here,
        ["volumes", name, "unlock"] => Doer::All { first: head_of(control, name).await, last: None },
        ["volumes", name, "lock"] => Doer::All { first: None, last: head_of(control, name).await },
        ["nodes", name, "debug", _] => match name.parse() {
            Ok(NodeName(node)) if !control.is_here(node) && is_up(&node) => Doer::Node(node),
            _ => Doer::Here,
        },
        _ => head_of_path(control, path).await.filter(is_up).map_or(Doer::Here, Doer::Head),
    }
}

/// The head of the volume that a path is about, in the trash or not.
async fn head_of_path(control: &ControlHandle, path: &str) -> Option<NodeId> {
    let segments: Vec<&str> = path.strip_prefix("/v1/")?.split('/').collect();
    match segments[..] {
        ["volumes", name, ..] => head_of(control, name).await,
        ["trash", id, ..] => control.head_of_any(VolumeId(id.parse().ok()?)).await.ok().flatten(),
        _ => None,
    }
}

async fn head_of(control: &ControlHandle, name: &str) -> Option<NodeId> {
    control.volume(&name.parse().ok()?).await.ok().map(|volume| volume.head)
}

/// Where a new volume is to be served: by the node that serves fewest, of those that let clients in; if that is not there, by the next.
/// Those that come before this process: it is there.
async fn nodes_for_new(control: &ControlHandle, addresses: &AddressBook, peers: &[PeerNode]) -> Vec<NodeId> {
    let Ok(volumes) = control.list_volumes().await else { return Vec::new() };
    let rank = |node: NodeId| (volumes.iter().filter(|volume| volume.head == node).count(), node);
    let here = addresses.here.nodes.iter().map(|node| rank(node.node)).min();
    let others = peers.iter().filter(|peer| peer.doors.is_some() && !peer.is_silent).map(|peer| rank(peer.node));
    let before: BTreeSet<_> = others.filter(|other| here.is_none_or(|here| *other < here)).collect();
    before.into_iter().map(|(_, node)| node).collect()
}

async fn taken_apart(request: Request) -> Result<(Passed, Bytes), ApiError> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let body = to_bytes(body, BODY_MAX_BYTES).await.map_err(|error| {
        ApiError::bad_request(format!("the body cannot be taken: {error}"), "send less, and all of it")
    })?;
    if path.len() > Message::HEAD_MAX / 2 {
        return Err(ApiError::bad_request("the path is too long", "what there is stands in /v1/openapi.json"));
    }
    Ok((Passed { method: parts.method.to_string(), path }, body))
}

async fn pass_on(control: &ControlHandle, node: NodeId, passed: &Passed, body: &[u8]) -> Response {
    asked_of(control, node, passed, body).await.unwrap_or_else(|error| unanswered(node, &error))
}

async fn asked_of(control: &ControlHandle, node: NodeId, passed: &Passed, body: &[u8]) -> Result<Response, Unanswered> {
    let message = Message { head: serde_json::to_vec(passed).unwrap_or_default(), body: body.to_vec() };
    let answer = control.ask_above(node, message).await?;
    response_of(answer).ok_or_else(|| Unanswered::Unknown("it has too much to do, or is stopping".to_owned()))
}

fn unanswered(node: NodeId, error: &Unanswered) -> Response {
    let what = match error {
        Unanswered::NotDone(why) => {
            format!("node {node} was to be asked, and is not there ({why}): nothing was done; try again")
        }
        Unanswered::Unknown(why) => {
            format!("node {node} was asked and has not answered ({why}): it may be done all the same")
        }
    };
    ApiError::from(ControlError::Unavailable(what)).into_response()
}

/// Done by the head of a volume, or by whoever is it in its place.
async fn at_head(admin: &Arc<Admin>, mut head: NodeId, request: Request, next: Next) -> Response {
    let (changes, path) = (request.method() != Method::GET, request.uri().path().to_owned());
    let found = request.extensions().clone();
    let (passed, body) = match taken_apart(request).await {
        Ok(parts) => parts,
        Err(error) => return error.into_response(),
    };
    let began = Instant::now();
    let response = loop {
        let error = match asked_of(&admin.control, head, &passed, &body).await {
            Ok(response) => break response,
            Err(error) => error,
        };
        let may_be_done = changes && matches!(error, Unanswered::Unknown(_));
        if may_be_done || began.elapsed() >= HEAD_PATIENCE {
            break unanswered(head, &error);
        }
        tokio::time::sleep(HEAD_WAIT).await;
        match head_of_path(&admin.control, &path).await {
            Some(other) if !(admin.control.is_here(other) || other.is_client()) => head = other,
            _ => return done_here(next, &passed, &body, found).await,
        }
    };
    if changes && response.status().is_success() {
        // What is asked of this node next must know of it.
        let _ = admin.control.catch_up().await;
    }
    response
}

fn response_of(answer: Message) -> Option<Response> {
    let Answered { status, content_type } = serde_json::from_slice(&answer.head).ok()?;
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(status).ok()?;
    if let Some(value) = content_type.and_then(|text| HeaderValue::from_str(&text).ok()) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    Some(response)
}

/// Makes a volume at the first of these nodes that is there, or at this one. If it is encrypted all others get its key, too: whichever
/// serves it later.
async fn made_at(admin: &Arc<Admin>, peers: &[PeerNode], nodes: Vec<NodeId>, request: Request, next: Next) -> Response {
    let (passed, body) = match taken_apart(request).await {
        Ok(parts) => parts,
        Err(error) => return error.into_response(),
    };
    let mut nodes = nodes.into_iter();
    let (node, response) = loop {
        let Some(node) = nodes.next() else {
            break (None, done_here(next, &passed, &body, Extensions::new()).await);
        };
        match asked_of(&admin.control, node, &passed, &body).await {
            Err(Unanswered::NotDone(why)) => log::info!("another than node {node} makes a volume: {why}"),
            answer => break (Some(node), answer.unwrap_or_else(|error| unanswered(node, &error))),
        }
    };
    if !response.status().is_success() {
        return response;
    }
    // What is asked of this node next must know of it.
    let _ = admin.control.catch_up().await;
    let Ok(CreateVolume { name, secret: Some(secret), .. }) = serde_json::from_slice(&body) else { return response };
    let others = peers.iter().map(|peer| Some(peer.node)).chain([None]).filter(|other| *other != node);
    // One that is silent would be waited for in vain.
    let is_silent = |other| peers.iter().any(|peer| Some(peer.node) == other && peer.is_silent);
    for other in others {
        if is_silent(other) || !gets_key(admin, other, &name, &secret).await {
            let who = other.map_or_else(|| "this node".to_owned(), |other| format!("node {other}"));
            log::warn!("{who} has no key of volume {name}: `cairn volume unlock {name}` gives it");
        }
    }
    response
}

/// Gives a node the key of a volume that was just made; returns whether it has it.
async fn gets_key(admin: &Arc<Admin>, node: Option<NodeId>, name: &str, secret: &Secret) -> bool {
    match (node, name.parse(), secret_of(secret)) {
        (Some(node), ..) => {
            let passed = Passed { method: Method::POST.to_string(), path: format!("{NEW_VOLUME}/{name}/unlock") };
            let body = serde_json::to_vec(&UnlockVolume { secret: secret.clone() }).unwrap_or_default();
            pass_on(&admin.control, node, &passed, &body).await.status().is_success()
        }
        (None, Ok(name), Ok(secret)) => admin.control.unlock_volume(name, secret).await.is_ok(),
        (None, ..) => false,
    }
}

/// Does here what a request says that was taken apart. `found`: what its path has been found to say, which was looked for already.
async fn done_here(next: Next, passed: &Passed, body: &[u8], found: Extensions) -> Response {
    let head = serde_json::to_vec(passed).unwrap_or_default();
    match request_of(Message { head, body: body.to_vec() }) {
        Ok(mut request) => {
            request.extensions_mut().extend(found);
            next.run(request).await
        }
        Err(what) => ApiError::bad_request(what, "report it").into_response(),
    }
}

/// Done by all nodes, one after the other. The answer is that of the head, or what went wrong first.
async fn at_all(
    admin: &Arc<Admin>,
    peers: &[PeerNode],
    (first, last): (Option<NodeId>, Option<NodeId>),
    request: Request,
    next: Next,
) -> Response {
    let mut nodes: Vec<Option<NodeId>> = peers.iter().map(|peer| Some(peer.node)).collect();
    nodes.push(None); // this process
    let place_of = |head: Option<NodeId>| head.filter(|head| peers.iter().any(|peer| peer.node == *head));
    let rank = |node: &Option<NodeId>| match node {
        node if first.is_some() && *node == place_of(first) => 0,
        node if last.is_some() && *node == place_of(last) => 2,
        _ => 1,
    };
    nodes.sort_by_key(rank);
    let head = place_of(first.or(last));
    let mut found = request.extensions().clone();
    let (passed, body) = match taken_apart(request).await {
        Ok(parts) => parts,
        Err(error) => return error.into_response(),
    };
    let (mut next, mut of_head) = (Some(next), None);
    for node in nodes {
        let response = match (node, next.take_if(|_| node.is_none())) {
            (Some(node), _) => pass_on(&admin.control, node, &passed, &body).await,
            (None, Some(next)) => done_here(next, &passed, &body, std::mem::take(&mut found)).await,
            (None, None) => continue,
        };
        if !response.status().is_success() {
            return response;
        }
        if node == head {
            of_head = Some(response);
        }
    }
    let _ = admin.control.catch_up().await;
    of_head.unwrap_or_else(|| ApiError::from(ControlError::Unavailable("no node answers".to_owned())).into_response())
}

// ---- of which each node has a part -------------------------------------------------------------------------------------------

async fn put_together(admin: &Arc<Admin>, peers: &[PeerNode], request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().map(str::to_owned);
    let here = next.run(request).await;
    if !here.status().is_success() {
        return here;
    }
    match path.as_str() {
        "/v1/status" => match read::<Status>(here).await {
            Ok(mut status) => {
                for (node, part) in parts_of::<Status>(admin, peers, &path).await {
                    match part {
                        Some(part) => add_status(&mut status, part),
                        None => {
                            add_cause(&mut status, &silent(node));
                        }
                    }
                }
                Json(status).into_response()
            }
            Err(error) => error.into_response(),
        },
        "/v1/devices" => match read::<Vec<Device>>(here).await {
            Ok(mut devices) => {
                let parts = parts_of::<Vec<Device>>(admin, peers, &path).await;
                devices.extend(parts.into_iter().flat_map(|(_, part)| part.unwrap_or_default()));
                Json(devices).into_response()
            }
            Err(error) => error.into_response(),
        },
        "/v1/events" => match (read::<Events>(here).await, events::Wanted::of(query.as_deref())) {
            (Ok(here), Ok(wanted)) => Json(all_events(admin, peers, here, wanted).await).into_response(),
            (Err(error), _) | (_, Err(error)) => error.into_response(),
        },
        // The map says who keeps what.
        _ => match (read::<Vec<TrashedVolume>>(here).await, admin.control.trash_elsewhere().await) {
            (Ok(mut trash), Ok(elsewhere)) => {
                trash.extend(elsewhere.iter().map(view::trashed));
                trash.sort_by(|one, other| (&one.deleted_at, one.id).cmp(&(&other.deleted_at, other.id)));
                trash.dedup_by_key(|volume| volume.id);
                Json(trash).into_response()
            }
            (Err(error), _) => error.into_response(),
            (_, Err(error)) => ApiError::from(error).into_response(),
        },
    }
}

/// What all nodes saw, and who does not say it: one that does not answer, or has no session.
async fn all_events(admin: &Arc<Admin>, peers: &[PeerNode], here: Events, wanted: events::Wanted) -> Events {
    let (mut parts, mut missing) = (vec![here.events], BTreeSet::new());
    for (node, part) in parts_of::<Events>(admin, peers, &wanted.path_for_part()).await {
        match part {
            Some(part) => parts.push(part.events),
            None => drop(missing.insert(node)),
        }
    }
    if let Ok(look) = Look::take(admin, None).await {
        let is_known = |node: NodeId| admin.control.is_here(node) || peers.iter().any(|peer| peer.node == node);
        let nodes = look.known.standing.nodes.iter().map(|node| node.node);
        missing.extend(nodes.filter(|node| !is_known(*node)));
    }
    let events = wanted.cut(events::together(parts));
    Events { events, missing: missing.into_iter().map(|node| format!("node-{node}")).collect() }
}

async fn read<T: DeserializeOwned>(response: Response) -> Result<T, ApiError> {
    let failed = |error: String| ApiError::from(ControlError::Unavailable(error));
    let body = to_bytes(response.into_body(), usize::MAX).await.map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))
}

/// Has another node do something.
pub(super) async fn have(admin: &Arc<Admin>, node: NodeId, path: &str, body: &[u8]) -> Result<(), String> {
    let passed = Passed { method: Method::POST.to_string(), path: path.to_owned() };
    let response = pass_on(&admin.control, node, &passed, body).await;
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("it answers {status}")),
    }
}

/// What the other nodes say of this; nothing of who does not answer.
pub(super) async fn of_others<T: DeserializeOwned + Send + 'static>(admin: &Arc<Admin>, path: &str) -> Vec<T> {
    if !admin.is_shared {
        return Vec::new();
    }
    let peers = admin.control.peers().await.unwrap_or_default();
    parts_of::<T>(admin, &peers, path).await.into_iter().filter_map(|(_, part)| part).collect()
}

/// What the others say, all asked at once; by number.
async fn parts_of<T: DeserializeOwned + Send + 'static>(
    admin: &Arc<Admin>,
    peers: &[PeerNode],
    path: &str,
) -> Vec<(NodeId, Option<T>)> {
    let ask = |peer: &PeerNode| {
        let (admin, node, path) = (admin.clone(), peer.node, path.to_owned());
        tokio::spawn(async move {
            let passed = Passed { method: Method::GET.to_string(), path };
            let answer = tokio::time::timeout(PART_PATIENCE, pass_on(&admin.control, node, &passed, &[])).await;
            match answer {
                Ok(response) if response.status().is_success() => read::<T>(response).await.ok(),
                _ => None,
            }
        })
    };
    let asked: Vec<_> = peers.iter().map(|peer| (peer.node, ask(peer))).collect();
    let mut parts = Vec::with_capacity(asked.len());
    for (node, part) in asked {
        parts.push((node, part.await.ok().flatten()));
    }
    parts
}

/// A node that has a session and does not say how it is.
fn silent(node: NodeId) -> health::Finding {
    let cause = format!("node-{node} does not say how it is: its devices are missing here");
    let risk = "what only that node knows of itself: how its devices are, and which of its groups serve";
    let finding = health::Finding::new(health::Severity::Degraded, cause).with(Loss::plain(Harm::Told(risk)));
    let finding = finding.waits("", "it is asked anew with each look", "it answers, or is told as away");
    finding.advise("it may be starting: see whether it is up, and start it if it is not:", "cairn node ls")
}

/// Another node's part of the status: what it alone knows, for what the map says is told here.
fn add_status(status: &mut Status, part: Status) {
    status.health = status.health.max(part.health);
    let is_new = |reason: &String| !status.reasons.contains(reason);
    let more: Vec<String> = part.reasons.into_iter().filter(is_new).collect();
    status.reasons.extend(more);
    let is_new = |finding: &Finding| !status.findings.contains(finding);
    let more: Vec<Finding> = part.findings.into_iter().filter(is_new).collect();
    status.findings.extend(more);
    status.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    status.volumes_deleting += part.volumes_deleting;
    status.trash.extend(part.trash);
    status.groups += part.groups;
    status.groups_serving += part.groups_serving;
    status.devices.extend(part.devices);
    let (all, its) = (&mut status.capacity, part.capacity);
    all.raw_bytes += its.raw_bytes;
    all.usable_bytes += its.usable_bytes;
    all.used_bytes += its.used_bytes;
    all.provisioned_bytes += its.provisioned_bytes;
    all.trash_bytes += its.trash_bytes;
    all.overcommit_percent = all.provisioned_bytes.saturating_mul(100).checked_div(all.usable_bytes).unwrap_or(0);
}

//! Placement groups that nobody can serve, and whose copy is to count (R24 of docs/replication.md).

use super::duties::node_name;
use super::elsewhere;
use super::error::ApiError;
use super::group_types::{CopyHere, ForceGroups, Forced, ForcedGroup, Group, GroupCopy};
use super::health::Look;
use super::server::{Admin, Shared};
use super::types::ErrorBody;
use crate::control::ControlError;
use crate::events::kind;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{RawQuery, State};
use cluster::control::DeviceStanding;
use cluster::{GroupRecord, decode, keys};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::task::JoinSet;
use types::{Epoch, GroupId, StoreId};

/// So many are looked at and decided at once: what nodes say to each other is bounded.
const GROUPS_MAX: usize = 128;

/// Groups that nobody serves or that have a copy that takes no part, with all their copies: the first 128 of them.
#[utoipa::path(get, path = "/v1/groups", responses(
    (status = 200, body = Vec<Group>), (status = 503, body = ErrorBody)))]
pub(super) async fn list_groups(State(admin): Shared) -> Result<Json<Vec<Group>>, ApiError> {
    let cluster = Cluster::look(&admin).await?;
    let mut wrong = cluster.headless();
    wrong.extend(copies_of_all(&admin, &[]).await?.iter().map(|copy| GroupId(copy.group)));
    let groups: Vec<GroupId> = wrong.into_iter().take(GROUPS_MAX).collect();
    Ok(Json(cluster.groups(&admin, &groups).await?))
}

/// This process's copies of groups, those named in the query (`groups=1,2`) or all that are in the way of their group: asked by
/// other nodes.
#[utoipa::path(get, path = "/v1/groups/copies", params(("groups" = Option<String>, Query, description = "numbers, with commas")), responses(
    (status = 200, body = Vec<GroupCopy>), (status = 503, body = ErrorBody)))]
pub(super) async fn list_copies(
    State(admin): Shared,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<GroupCopy>>, ApiError> {
    let of = query.as_deref().and_then(|query| query.strip_prefix("groups="));
    let of = of.map(|of| of.split(',').filter_map(|group| group.parse().ok()).map(GroupId).collect());
    let mut copies: Vec<GroupCopy> = admin.control.group_copies(of).await?.iter().map(copy_here).collect();
    copies.truncate(3 * GROUPS_MAX);
    Ok(Json(copies))
}

/// Says whose copy of a group counts, where nobody can know; or only what would be lost with that.
#[utoipa::path(post, path = "/v1/groups/force", request_body = ForceGroups, responses(
    (status = 200, body = Forced), (status = 400, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn force_groups(
    State(admin): Shared,
    body: Result<Json<ForceGroups>, JsonRejection>,
) -> Result<Json<Forced>, ApiError> {
    let Json(asked) = body?;
    let cluster = Cluster::look(&admin).await?;
    let stores = cluster.stores_of(&asked.copy)?;
    let groups = match asked.groups.is_empty() {
        true => list_groups(State(admin.clone())).await?.0,
        false if asked.groups.len() > GROUPS_MAX => {
            let what = format!("{} groups are named: name {GROUPS_MAX} at once at most", asked.groups.len());
            return Err(ControlError::Refused(what).into());
        }
        false => {
            let groups: Vec<GroupId> = asked.groups.iter().copied().map(GroupId).collect();
            cluster.groups(&admin, &groups).await?
        }
    };
    let mut forced = Forced { dry_run: asked.dry_run, ..Forced::default() };
    let mut restart = BTreeSet::new();
    let mut decisions: JoinSet<Result<(), ControlError>> = JoinSet::new();
    for group in groups {
        let copy = group.copies.iter().find(|copy| stores.iter().any(|store| store.to_string() == copy.store_id));
        let (copy, here) = match copy.and_then(|copy| Some((copy, copy.here.as_ref()?))) {
            Some(found) if group.needs_decision => found,
            _ if asked.groups.is_empty() => continue,
            found => return Err(refused(&group, &asked.copy, copy.is_some(), found.is_some()).into()),
        };
        let at_risk = at_risk(&group, copy, here);
        if !asked.dry_run {
            let store = stores.iter().find(|store| store.to_string() == copy.store_id).expect("it was found by that");
            let known = group.copies.iter().filter_map(|copy| copy.here.as_ref()).map(|here| here.epoch).max();
            let (control, store, known) = (admin.control.clone(), *store, Epoch(known.unwrap_or_default()));
            let epochs = (Epoch(group.epoch), known);
            let (number, node, lost) = (group.group, copy.node.clone(), at_risk.join("; "));
            // All at once: one after the other they take longer than who asked waits.
            decisions.spawn(async move {
                control.force_group(GroupId(number), store, epochs).await?;
                log::warn!("group {number}: from now on the copy of {node} counts: {lost}");
                Ok(())
            });
        }
        let stopped = |copy: &&GroupCopy| copy.here.as_ref().is_some_and(|here| here.stopped.is_some());
        restart.extend(group.copies.iter().filter(stopped).map(|copy| copy.node.clone()));
        let (store_id, node) = (copy.store_id.clone(), copy.node.clone());
        forced.groups.push(ForcedGroup { group: group.group, store_id, node, at_risk });
    }
    for decided in decisions.join_all().await {
        decided?;
    }
    if !asked.dry_run && !forced.groups.is_empty() {
        let text =
            format!("the copies of {} count from now on in {} placement groups", asked.copy, forced.groups.len());
        admin.events.done(kind::GROUPS_FORCED, &[&asked.copy], text);
    }
    forced.restart = restart.into_iter().collect();
    Ok(Json(forced))
}

fn refused(group: &Group, copy: &str, is_member: bool, answers: bool) -> ControlError {
    let number = group.group;
    ControlError::Refused(if !is_member {
        let nodes: Vec<_> = group.copies.iter().map(|copy| copy.node.as_str()).collect();
        format!("group {number} has no copy at {copy}: it has copies at {}", nodes.join(", "))
    } else if !answers {
        format!("{copy} does not serve its copy of group {number}: start that node, or name another copy")
    } else {
        format!(
            "group {number} needs no decision: it is served, or goes on by itself when those are back who may lead it (`cairn status`); \
             if they are lost for good, say so first: `cairn node rm --lost` or `cairn device rm --lost`"
        )
    })
}

/// What may be lost when this copy counts.
fn at_risk(group: &Group, chosen: &GroupCopy, here: &CopyHere) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(poison) = here.poison {
        words.push(format!("entry {poison}, which nobody can apply, and all behind it"));
    }
    if !here.whole {
        words.push("this copy was being made whole: its chunks are of different times".to_owned());
    }
    if here.damaged_chunks > 0 {
        words.push(format!("{} chunks are damaged in it, and cannot be read there", here.damaged_chunks));
    }
    for copy in group.copies.iter().filter(|copy| copy.store_id != chosen.store_id) {
        let whose = format!("{} {}", copy.node, copy.path);
        match &copy.here {
            None if copy.in_sync => {
                words.push(format!("{whose} is not there: what was acknowledged and only that has"))
            }
            None => {}
            Some(other) if other.committed > here.committed => words.push(format!(
                "{whose} has committed up to entry {} of an order of which this copy has {}",
                other.committed, here.committed
            )),
            Some(other) if other.epoch > here.epoch => {
                words.push(format!("{whose} knows epoch {}, this copy {}", other.epoch, here.epoch));
            }
            Some(_) => {}
        }
    }
    words
}

fn copy_here(copy: &volume::GroupCopy) -> GroupCopy {
    let standing = &copy.standing;
    let here = CopyHere {
        epoch: standing.record.epoch.0,
        serves: standing.serves,
        whole: standing.whole,
        damaged_chunks: standing.damaged,
        committed: standing.committed.0,
        last: standing.durable.0,
        stopped: standing.stopped.clone(),
        poison: standing.poison.map(|poison| poison.0),
    };
    GroupCopy { group: copy.group.0, store_id: copy.store.to_string(), here: Some(here), ..GroupCopy::default() }
}

/// What all nodes say of their copies.
async fn copies_of_all(admin: &Arc<Admin>, of: &[GroupId]) -> Result<Vec<GroupCopy>, ApiError> {
    let asked = if of.is_empty() { None } else { Some(of.to_vec()) };
    let mut copies: Vec<GroupCopy> = admin.control.group_copies(asked).await?.iter().map(copy_here).collect();
    let numbers: Vec<String> = of.iter().map(GroupId::to_string).collect();
    let path = match of {
        [] => "/v1/groups/copies".to_owned(),
        _ => format!("/v1/groups/copies?groups={}", numbers.join(",")),
    };
    copies.extend(elsewhere::of_others::<Vec<GroupCopy>>(admin, &path).await.into_iter().flatten());
    Ok(copies)
}

/// What the map says of groups and devices.
struct Cluster {
    records: BTreeMap<GroupId, GroupRecord>,
    devices: BTreeMap<StoreId, DeviceStanding>,
}

impl Cluster {
    async fn look(admin: &Arc<Admin>) -> Result<Self, ApiError> {
        let listing = admin.control.standing().await?.listing;
        let devices = Look::take(admin, None).await?.known.standing.devices;
        let records = listing.items.iter().filter(|item| item.key.starts_with(keys::GROUPS));
        let records = records.filter_map(|item| decode::<GroupRecord>(&item.key, &item.value).ok());
        Ok(Self {
            records: records.map(|record| (record.id, record)).collect(),
            devices: devices.into_iter().map(|device| (device.store, device)).collect(),
        })
    }

    /// Of those who hold all that is committed nobody is there.
    fn is_headless(&self, record: &GroupRecord) -> bool {
        let is_there = |store: &StoreId| self.devices.get(store).is_some_and(|device| device.is_there);
        !record.in_sync.iter().chain(&record.eligible).any(is_there)
    }

    fn headless(&self) -> BTreeSet<GroupId> {
        self.records.values().filter(|record| self.is_headless(record)).map(|record| record.id).collect()
    }

    /// The stores of a node, or the one that is named.
    fn stores_of(&self, name: &str) -> Result<Vec<StoreId>, ApiError> {
        let is_it = |device: &&DeviceStanding| {
            let id = device.store.to_string();
            node_name(device.node) == name || device.path == name || name.len() >= 4 && id.starts_with(name)
        };
        let found: Vec<StoreId> = self.devices.values().filter(is_it).map(|device| device.store).collect();
        match found.is_empty() {
            true => Err(ControlError::Refused(format!(
                "there is no node and no device '{name}': `cairn node ls` and `cairn device ls` list them"
            ))
            .into()),
            false => Ok(found),
        }
    }

    async fn groups(&self, admin: &Arc<Admin>, of: &[GroupId]) -> Result<Vec<Group>, ApiError> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let mut said: BTreeMap<(u32, String), CopyHere> = BTreeMap::new();
        for copy in copies_of_all(admin, of).await? {
            said.extend(copy.here.map(|here| ((copy.group, copy.store_id), here)));
        }
        let mut groups = Vec::new();
        for id in of {
            let record = self.records.get(id).ok_or_else(|| {
                ControlError::Refused(format!(
                    "there is no placement group {id}: `cairn group ls` lists those that need you"
                ))
            })?;
            let copies: Vec<GroupCopy> =
                record.members.iter().map(|store| self.copy(record, *store, &mut said)).collect();
            let any = |what: fn(&CopyHere) -> bool| copies.iter().filter_map(|copy| copy.here.as_ref()).any(what);
            let stands_still = any(|here| here.stopped.is_some() || here.poison.is_some());
            groups.push(Group {
                group: id.0,
                pool: record.pool.clone(),
                epoch: record.epoch.0,
                serves: any(|here| here.serves),
                needs_decision: stands_still || self.is_headless(record),
                copies,
            });
        }
        Ok(groups)
    }

    fn copy(&self, record: &GroupRecord, store: StoreId, said: &mut BTreeMap<(u32, String), CopyHere>) -> GroupCopy {
        let device = self.devices.get(&store);
        let store_id = store.to_string();
        GroupCopy {
            group: record.id.0,
            node: device.map_or_else(|| "a node that is gone".to_owned(), |device| node_name(device.node)),
            path: device.map(|device| device.path.clone()).unwrap_or_default(),
            in_sync: record.in_sync.contains(&store) || record.eligible.contains(&store),
            here: said.remove(&(record.id.0, store_id.clone())),
            store_id,
        }
    }
}

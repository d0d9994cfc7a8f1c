//! The admin API of a running cluster, as the commands use it.

use crate::Failure;
use node::admin::check_types::{BeginCheck, CheckReport};
use node::admin::duty_types::{DutyOrder, Foretold};
use node::admin::event_types::Events;
use node::admin::group_types::{ForceGroups, Forced, Group};
use node::admin::pool_types::{ChangePool, CreatePool, PoolDetails};
use node::admin::types::{
    AddDevice, AddedDevice, AllowHost, ChangeVolume, ChangedRange, CloneSnapshot, CreateSnapshot, CreateSnapshots,
    CreateVolume, Device, ErrorBody, Hosts, MoveVolume, Moving, Node, RekeyVolume, RelocateVolume, RestoreVolume,
    Snapshot, SnapshotOf, Status, TrashedVolume, UnlockVolume, Volume, VolumeLatency,
};
use node::admin::upgrade_types::{FinishUpgrade, Upgrade};
use node::volume_spec::SnapshotPath;
use serde::de::DeserializeOwned;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Response;

/// How long a command waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer taken: a list of as many volumes as there can be, with room.
const ANSWER_MAX_BYTES: u64 = 64 << 20;

/// Asks one cluster.
pub(crate) struct Client {
    agent: Agent,
    admin: String,
}

impl Client {
    /// A client of the API at `admin`, `http://HOST:PORT`.
    pub(crate) fn new(admin: &str) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(ANSWER_TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None) // a proxy for the web is in no position to reach a storage network
            .build();
        Self { agent: config.into(), admin: admin.to_owned() }
    }

    pub(crate) fn volumes(&self) -> Result<Vec<Volume>, Failure> {
        self.read(self.agent.get(self.url("/v1/volumes")).call())
    }

    pub(crate) fn volume(&self, name: &str) -> Result<Volume, Failure> {
        self.read(self.agent.get(self.url(&format!("/v1/volumes/{name}"))).call())
    }

    pub(crate) fn latency(&self, volume: &str) -> Result<VolumeLatency, Failure> {
        self.read(self.agent.get(self.url(&format!("/v1/volumes/{volume}/latency"))).call())
    }

    pub(crate) fn create_volume(&self, volume: &CreateVolume) -> Result<Volume, Failure> {
        self.read(self.agent.post(self.url("/v1/volumes")).send_json(volume))
    }

    /// Deletes a volume for good.
    pub(crate) fn delete_volume(&self, name: &str) -> Result<(), Failure> {
        let answer = self.agent.delete(self.url(&format!("/v1/volumes/{name}?now=true"))).call();
        self.accept(answer).map(drop)
    }

    pub(crate) fn devices(&self) -> Result<Vec<Device>, Failure> {
        self.read(self.agent.get(self.url("/v1/devices")).call())
    }

    /// Gives the node a device; or asks what it would get.
    pub(crate) fn add_device(&self, path: &str, dry_run: bool) -> Result<AddedDevice, Failure> {
        self.read(self.agent.post(self.url("/v1/devices")).send_json(AddDevice { path: path.to_owned(), dry_run }))
    }

    pub(crate) fn trash_volume(&self, name: &str) -> Result<TrashedVolume, Failure> {
        self.read(self.agent.delete(self.url(&format!("/v1/volumes/{name}"))).call())
    }

    pub(crate) fn trash(&self) -> Result<Vec<TrashedVolume>, Failure> {
        self.read(self.agent.get(self.url("/v1/trash")).call())
    }

    pub(crate) fn restore_volume(&self, id: u64, how: &RestoreVolume) -> Result<Volume, Failure> {
        self.read(self.agent.post(self.url(&format!("/v1/trash/{id}/restore"))).send_json(how))
    }

    pub(crate) fn empty_trash(&self, id: u64) -> Result<(), Failure> {
        let answer = self.agent.delete(self.url(&format!("/v1/trash/{id}"))).call();
        self.accept(answer).map(drop)
    }

    pub(crate) fn change_volume(&self, name: &str, asked: &ChangeVolume) -> Result<Volume, Failure> {
        self.read(self.agent.patch(self.url(&format!("/v1/volumes/{name}"))).send_json(asked))
    }

    pub(crate) fn move_volume(&self, name: &str, asked: &MoveVolume) -> Result<Volume, Failure> {
        self.read(self.agent.post(self.url(&format!("/v1/volumes/{name}/move"))).send_json(asked))
    }

    pub(crate) fn relocate(&self, name: &str, asked: &RelocateVolume) -> Result<Moving, Failure> {
        self.read(self.agent.post(self.url(&format!("/v1/volumes/{name}/relocation"))).send_json(asked))
    }

    pub(crate) fn relocation(&self, name: &str) -> Result<Moving, Failure> {
        self.read(self.agent.get(self.url(&format!("/v1/volumes/{name}/relocation"))).call())
    }

    pub(crate) fn give_relocation_up(&self, name: &str) -> Result<(), Failure> {
        let answer = self.agent.delete(self.url(&format!("/v1/volumes/{name}/relocation"))).call();
        self.accept(answer).map(drop)
    }

    pub(crate) fn unlock_volume(&self, name: &str, asked: &UnlockVolume) -> Result<Volume, Failure> {
        self.read(self.agent.post(self.url(&format!("/v1/volumes/{name}/unlock"))).send_json(asked))
    }

    pub(crate) fn lock_volume(&self, name: &str) -> Result<Volume, Failure> {
        self.read(self.agent.post(self.url(&format!("/v1/volumes/{name}/lock"))).send_empty())
    }

    pub(crate) fn rekey_volume(&self, name: &str, asked: &RekeyVolume) -> Result<Volume, Failure> {
        self.read(self.agent.post(self.url(&format!("/v1/volumes/{name}/rekey"))).send_json(asked))
    }

    pub(crate) fn allow_host(&self, volume: &str, host: &str) -> Result<Hosts, Failure> {
        let asked = AllowHost { host: host.to_owned() };
        self.read(self.agent.post(self.url(&format!("/v1/volumes/{volume}/hosts"))).send_json(asked))
    }

    pub(crate) fn deny_host(&self, volume: &str, host: &str) -> Result<Hosts, Failure> {
        let path = format!("/v1/volumes/{volume}/hosts/{}", path_segment(host));
        self.read(self.agent.delete(self.url(&path)).call())
    }

    pub(crate) fn nodes(&self) -> Result<Vec<Node>, Failure> {
        self.read(self.agent.get(self.url("/v1/nodes")).call())
    }

    /// Says what a node or a device is to do; or asks what that would move.
    pub(crate) fn order(&self, order: &DutyOrder) -> Result<Foretold, Failure> {
        self.read(self.agent.post(self.url("/v1/duties")).send_json(order))
    }

    pub(crate) fn begin_check(&self, asked: &BeginCheck) -> Result<CheckReport, Failure> {
        self.read(self.agent.post(self.url("/v1/check")).send_json(asked))
    }

    pub(crate) fn last_check(&self) -> Result<CheckReport, Failure> {
        self.read(self.agent.get(self.url("/v1/check")).call())
    }

    pub(crate) fn groups(&self) -> Result<Vec<Group>, Failure> {
        self.read(self.agent.get(self.url("/v1/groups")).call())
    }

    pub(crate) fn upgrade(&self) -> Result<Upgrade, Failure> {
        self.read(self.agent.get(self.url("/v1/upgrade")).call())
    }

    pub(crate) fn finish_upgrade(&self, asked: &FinishUpgrade) -> Result<Upgrade, Failure> {
        self.read(self.agent.post(self.url("/v1/upgrade/finish")).send_json(asked))
    }

    pub(crate) fn force_groups(&self, asked: &ForceGroups) -> Result<Forced, Failure> {
        self.read(self.agent.post(self.url("/v1/groups/force")).send_json(asked))
    }

    pub(crate) fn create_pool(&self, asked: &CreatePool) -> Result<PoolDetails, Failure> {
        self.read(self.agent.post(self.url("/v1/pools")).send_json(asked))
    }

    pub(crate) fn pools(&self) -> Result<Vec<PoolDetails>, Failure> {
        self.read(self.agent.get(self.url("/v1/pools")).call())
    }

    pub(crate) fn pool(&self, name: &str) -> Result<PoolDetails, Failure> {
        self.read(self.agent.get(self.url(&format!("/v1/pools/{name}"))).call())
    }

    pub(crate) fn change_pool(&self, pool: &str, asked: &ChangePool) -> Result<PoolDetails, Failure> {
        self.read(self.agent.patch(self.url(&format!("/v1/pools/{pool}"))).send_json(asked))
    }

    pub(crate) fn snapshots(&self, volume: &str) -> Result<Vec<Snapshot>, Failure> {
        self.read(self.agent.get(self.url(&format!("/v1/volumes/{volume}/snapshots"))).call())
    }

    pub(crate) fn create_snapshot(&self, volume: &str, name: &str) -> Result<Snapshot, Failure> {
        let asked = CreateSnapshot { name: name.to_owned() };
        self.read(self.agent.post(self.url(&format!("/v1/volumes/{volume}/snapshots"))).send_json(asked))
    }

    pub(crate) fn create_snapshots(&self, paths: &[SnapshotPath]) -> Result<Vec<Snapshot>, Failure> {
        let of = |path: &SnapshotPath| SnapshotOf { volume: path.volume.to_string(), name: path.snapshot.to_string() };
        let asked = CreateSnapshots { snapshots: paths.iter().map(of).collect() };
        self.read(self.agent.post(self.url("/v1/snapshots")).send_json(asked))
    }

    pub(crate) fn delete_snapshot(&self, volume: &str, name: &str) -> Result<(), Failure> {
        self.accept(self.agent.delete(self.snapshot_url(volume, name, "")).call()).map(drop)
    }

    pub(crate) fn roll_back(&self, volume: &str, name: &str) -> Result<(), Failure> {
        self.accept(self.agent.post(self.snapshot_url(volume, name, "/rollback")).send_empty()).map(drop)
    }

    pub(crate) fn clone_snapshot(&self, volume: &str, name: &str, new: &str) -> Result<Volume, Failure> {
        let asked = CloneSnapshot { name: new.to_owned() };
        self.read(self.agent.post(self.snapshot_url(volume, name, "/clone")).send_json(asked))
    }

    pub(crate) fn changes(&self, volume: &str, from: &str, to: Option<&str>) -> Result<Vec<ChangedRange>, Failure> {
        let query = to.map_or_else(String::new, |to| format!("?to={to}"));
        self.read(self.agent.get(self.snapshot_url(volume, from, &format!("/changes{query}"))).call())
    }

    fn snapshot_url(&self, volume: &str, name: &str, what: &str) -> String {
        self.url(&format!("/v1/volumes/{volume}/snapshots/{name}{what}"))
    }

    pub(crate) fn status(&self) -> Result<Status, Failure> {
        self.read(self.agent.get(self.url("/v1/status")).call())
    }

    /// What happened; `query`: since when, and how much of it.
    pub(crate) fn events(&self, query: &str) -> Result<Events, Failure> {
        self.read(self.agent.get(self.url(&format!("/v1/events{query}"))).call())
    }

    /// What the API answers at this path, as it comes.
    pub(crate) fn raw(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let mut response = self.accept(self.agent.get(self.url(path)).call())?;
        response.body_mut().with_config().limit(ANSWER_MAX_BYTES).read_to_vec().map_err(|error| self.no_answer(&error))
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.admin)
    }

    fn read<T: DeserializeOwned>(&self, answer: Answer) -> Result<T, Failure> {
        let mut response = self.accept(answer)?;
        response.body_mut().with_config().limit(ANSWER_MAX_BYTES).read_json().map_err(|error| self.no_answer(&error))
    }

    /// The response if it is a good one, else what it says is wrong.
    fn accept(&self, answer: Answer) -> Result<Response<ureq::Body>, Failure> {
        let mut response = answer.map_err(|error| self.no_answer(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        match response.body_mut().read_json::<ErrorBody>() {
            Ok(body) => Err(Failure::new(format!("{}: {}", body.error.message, body.error.hint))),
            Err(_) => Err(Failure::new(format!(
                "{} answers {} and is not Cairn's admin API: name the right one with --admin or CAIRN_ADMIN",
                self.admin,
                response.status()
            ))),
        }
    }

    fn no_answer(&self, error: &ureq::Error) -> Failure {
        let admin = &self.admin;
        let remedy = "start Cairn with `cairn demo`, or name its admin address with --admin URL or CAIRN_ADMIN";
        let seconds = ANSWER_TIMEOUT.as_secs();
        Failure::new(match error {
            ureq::Error::Timeout(_) => format!("no answer from {admin} within {seconds} s: {remedy}"),
            ureq::Error::Json(error) => {
                format!(
                    "{admin} answers what this cairn cannot read ({error}): use the cairn of the version that runs there"
                )
            }
            ureq::Error::Io(error) => format!("no answer from {admin} ({error}): {remedy}"),
            other => format!("no answer from {admin} ({other}): {remedy}"),
        })
    }
}

/// Text as one segment of a path: what is no unreserved character of RFC 3986 (§2.3), nor a colon, as percent and two
/// digits.
fn path_segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    let encode = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

type Answer = Result<Response<ureq::Body>, ureq::Error>;

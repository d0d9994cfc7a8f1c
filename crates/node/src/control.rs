//! Questions to the control core: the admin API asks by message, a task on the first core answers one after the other.
//! What takes its time (snapshots, sizes, usage, keys, pools) is a task of its own there.
//!
//! ```text
//!   admin thread (tokio)                       core 0
//!   ControlHandle::create_volume ──Request──►  ControlTask: Assembly::create_volume
//!                 ◄─────────────── oneshot ──
//! ```
//!
//! The channel is bounded and each wait has a deadline, so a control core that hangs costs an error and no memory.

use crate::keys::{KeyRequest, SecretChange};
use crate::pools::PoolRequest;
use crate::size::ByteSize;
use crate::snapshots::SnapshotRequest;
use crate::traffic::Traffic;
use crate::volume_spec::{SnapshotName, SnapshotPath, VolumeName};
use cluster::control::Decided;
use cluster::{Compression, PoolRecord, SnapshotRecord};
use replication::node::CallError;
use runtime::channel::{CrossReceiver, CrossSender, cross};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use types::{ClusterId, Epoch, GroupId, NodeId, StoreId, VolumeId};
use volume::{
    ByteRange, Check, GroupCopy, HostChange, Message, NewPool, NewVolume, NodeStatus, PeerNode, PoolChange, PoolInfo,
    Relocation, Secret, Standings, Testament, TrashedVolume, VolumeChange, VolumeInfo, VolumeUsage, WantedPlace,
};

/// Requests that may wait for the control core. Far above what people and scripts ask at once.
pub const REQUESTS_MAX: usize = 256;
/// Longest wait for the control core: below the 5 s after which a client gives up, so that it hears why.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// Where an answer goes. Nobody may be waiting for it any more.
pub type Reply<T> = oneshot::Sender<T>;
/// Where the outcome of an order goes.
pub type Answer<T> = Reply<Result<T, ControlError>>;

/// What the control core is asked.
#[derive(Debug)]
pub enum Request {
    /// All volumes, by name.
    ListVolumes(Reply<Vec<VolumeInfo>>),
    /// Make a volume.
    CreateVolume(NewVolume, WantedPlace, Answer<VolumeInfo>),
    /// Delete a volume for good.
    DeleteVolume(VolumeName, Answer<()>),
    /// Put a volume into the trash.
    TrashVolume(VolumeName, Answer<TrashedVolume>),
    /// What is in the trash.
    ListTrash(Reply<Vec<TrashedVolume>>),
    /// Take a volume out of the trash, under another name if one is given.
    RestoreVolume(VolumeId, Option<VolumeName>, Answer<VolumeInfo>),
    /// Delete a volume in the trash for good.
    EmptyTrash(VolumeId, Answer<()>),
    /// Change which NVMe hosts may use a volume.
    ChangeHosts(VolumeName, HostChange, Answer<VolumeInfo>),
    /// Serve a volume at another node, from now on.
    MoveVolume(VolumeName, NodeId, Answer<VolumeInfo>),
    /// Move a volume to other groups, while it is in use.
    Relocate(VolumeName, WantedPlace, Answer<Relocation>),
    /// Give such a move up.
    GiveRelocationUp(VolumeName, Answer<()>),
    /// How far it is; or why the last one failed.
    Relocation(VolumeName, Answer<Result<Option<Relocation>, String>>),
    /// Something about snapshots, clones, changes of volumes or usage.
    Snapshots(SnapshotRequest),
    /// Something about encrypted volumes, or how pools compress.
    Keys(KeyRequest),
    /// Something about pools, or where volumes are to lie.
    Pools(PoolRequest),
    /// Whether the node would take this device.
    CheckDevice(PathBuf, Answer<Option<Decided>>),
    /// Take it.
    AddDevice(PathBuf, Answer<()>),
    /// What a request about nodes and devices would do, and unless that is all that is asked: begin it.
    Duty(cluster::placement::duty::Request, bool, Answer<Decided>),
    /// Begin to compare all copies, of a pool or of all; false: that is under way.
    BeginCheck(Option<String>, Answer<bool>),
    /// How far the last one is that was begun.
    LastCheck(Reply<Option<Check>>),
    /// How the cluster stands, as the map says.
    Standing(Answer<Standings>),
    /// This node's copies of some placement groups; of those that are in the way of their group, if none are named.
    GroupCopies(Option<Vec<GroupId>>, Reply<Vec<GroupCopy>>),
    /// From now on the copy of this store counts; no other copy knows a newer epoch.
    ForceGroup(GroupId, StoreId, (Epoch, Epoch), Answer<()>),
    /// The cluster goes on to this version, that all of its nodes speak.
    FinishUpgrade(u32, Answer<cluster::Upgrade>),
    /// What stands above another node is asked.
    AskAbove(NodeId, Message, Reply<Result<Message, Unanswered>>),
    /// The nodes that are not of this process and have a session.
    Peers(Reply<Vec<PeerNode>>),
    /// The head of a volume, in the trash or not.
    HeadOf(VolumeId, Reply<Option<NodeId>>),
    /// What is in the trash and kept by other nodes.
    TrashElsewhere(Reply<Vec<TrashedVolume>>),
    /// Know all volumes as the map has them now.
    CatchUp(Answer<()>),
    /// What a supervisor is told.
    Testament(Reply<Testament>),
    /// How things are.
    Status(Reply<ClusterStatus>),
    /// What clients do.
    Traffic(Reply<Traffic>),
    /// Close the doors and the stores, and answer nothing any more.
    Stop(Reply<()>),
}

/// How things are, with the cluster's name.
#[derive(Clone, Debug)]
pub struct ClusterStatus {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its node.
    pub node: NodeStatus,
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The name is taken.
    #[error("a volume '{name}' is there already, with {size_bytes} bytes and blocks of {block_size_bytes}")]
    Exists {
        /// Its name.
        name: String,
        /// Size of the one that is there.
        size_bytes: u64,
        /// Format of the one that is there.
        block_size_bytes: u32,
    },
    /// No volume of this name.
    #[error("there is no volume '{0}'")]
    NotFound(String),
    /// No volume of this id in the trash.
    #[error("there is no volume {0} in the trash")]
    NotInTrash(VolumeId),
    /// The volume has no snapshot of this name.
    #[error("there is no snapshot '{0}' of this volume")]
    NoSnapshot(String),
    /// The volume has a snapshot of this name.
    #[error("there is a snapshot '{0}' of this volume already")]
    SnapshotExists(String),
    /// It is deleted after its snapshots.
    #[error("{0}")]
    HasSnapshots(String),
    /// What was named is no NVMe host.
    #[error("{0}")]
    BadHost(String),
    /// The hosts cannot be changed like this.
    #[error("{0}")]
    Hosts(String),
    /// The secret does not open the volume.
    #[error("{0}")]
    WrongSecret(String),
    /// There is no secret to ask for.
    #[error("volume '{0}' is not encrypted")]
    NotEncrypted(String),
    /// No pool of this name.
    #[error("there is no pool '{0}'")]
    NoPool(String),
    /// It only grows.
    #[error("volume '{volume}' has {is} and cannot become smaller ({asked})")]
    Smaller {
        /// The volume.
        volume: String,
        /// Its size.
        is: ByteSize,
        /// The size asked for.
        asked: ByteSize,
    },
    /// What was asked cannot be.
    #[error("{0}")]
    Refused(String),
    /// It could be, but not now.
    #[error("{0}")]
    Unavailable(String),
}

/// Why there is no answer of another node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// It was not done there: another may do it.
    #[error("{0}")]
    NotDone(String),
    /// It may be done all the same.
    #[error("{0}")]
    Unknown(String),
}

impl From<CallError> for Unanswered {
    fn from(error: CallError) -> Self {
        match &error {
            CallError::Unknown(_) | CallError::Unreached(_) | CallError::Refused { .. } => {
                Self::NotDone(error.to_string())
            }
            CallError::Ended(_) => Self::Unknown(error.to_string()),
        }
    }
}

/// A node of this process, as it is asked.
struct Asked {
    node: NodeId,
    requests: CrossSender<Request>,
}

/// The asking side: of the nodes of this process, in their order. Clones ask the same.
#[derive(Clone)]
pub struct ControlHandle(Arc<[Asked]>);

/// Both sides of the way to the control cores of these nodes.
///
/// # Panics
/// Without a node.
pub fn channels(nodes: &[NodeId]) -> (ControlHandle, Vec<CrossReceiver<Request>>) {
    assert!(!nodes.is_empty(), "there is a node to ask");
    let (asked, receivers): (Vec<_>, Vec<_>) = nodes
        .iter()
        .map(|node| {
            let (requests, receiver) = cross(REQUESTS_MAX);
            (Asked { node: *node, requests }, receiver)
        })
        .unzip();
    (ControlHandle(asked.into()), receivers)
}

/// The same of one node.
pub fn channel() -> (ControlHandle, CrossReceiver<Request>) {
    let (handle, mut receivers) = channels(&[NodeId(1)]);
    (handle, receivers.pop().expect("of the one"))
}

impl ControlHandle {
    /// Where in the list the node is; the first, if it is none of this process.
    fn place_of(&self, node: NodeId) -> usize {
        self.0.iter().position(|asked| asked.node == node).unwrap_or(0)
    }

    /// Whether the node is of this process.
    pub fn is_here(&self, node: NodeId) -> bool {
        self.0.iter().any(|asked| asked.node == node)
    }

    /// The nodes of this process, by number.
    pub fn nodes_here(&self) -> impl Iterator<Item = NodeId> {
        self.0.iter().map(|asked| asked.node)
    }

    /// The nodes that are not of this process and have a session in the map.
    pub async fn peers(&self) -> Result<Vec<PeerNode>, ControlError> {
        let mut peers = self.ask(Request::Peers).await?;
        peers.retain(|peer| !self.is_here(peer.node));
        Ok(peers)
    }

    /// Asks what stands above a node that is not of this process.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn ask_above(&self, node: NodeId, message: Message) -> Result<Message, Unanswered> {
        let asked = self.ask(|reply| Request::AskAbove(node, message, reply)).await;
        asked.unwrap_or_else(|error| Err(Unanswered::Unknown(error.to_string())))
    }

    /// The head of a volume, in the trash or not, as the map said last.
    pub async fn head_of_any(&self, id: VolumeId) -> Result<Option<NodeId>, ControlError> {
        self.ask(|reply| Request::HeadOf(id, reply)).await
    }

    /// What is in the trash and kept by nodes that are not of this process.
    pub async fn trash_elsewhere(&self) -> Result<Vec<TrashedVolume>, ControlError> {
        let mut all = self.ask(Request::TrashElsewhere).await?;
        all.retain(|volume| !self.is_here(volume.info.head));
        Ok(all)
    }

    /// Knows all volumes as the map has them now when this returns.
    pub async fn catch_up(&self) -> Result<(), ControlError> {
        self.ask(Request::CatchUp).await?
    }

    /// What a supervisor is told of the first node.
    pub async fn testament(&self) -> Result<Testament, ControlError> {
        self.ask(Request::Testament).await
    }

    /// The node that serves the volume: the one to ask about it.
    async fn head_of(&self, name: &VolumeName) -> Result<usize, ControlError> {
        if self.0.len() == 1 {
            return Ok(0);
        }
        Ok(self.volume(name).await.map_or(0, |volume| self.place_of(volume.head)))
    }

    /// The node that has the volume in its trash.
    async fn keeper_of(&self, id: VolumeId) -> Result<usize, ControlError> {
        for place in 0..self.0.len() {
            if self.ask_at(place, Request::ListTrash).await?.iter().any(|volume| volume.info.id == id) {
                return Ok(place);
            }
        }
        Ok(0)
    }

    /// Where a new volume is to be served, and by which node of this process it is made.
    async fn home_for(&self, wanted: WantedPlace) -> Result<(usize, WantedPlace), ControlError> {
        let asked = wanted.clone();
        let home = self.ask(|reply| Request::Pools(PoolRequest::HomeFor(asked, reply))).await??;
        Ok((self.place_of(home), WantedPlace { home: Some(home), ..wanted }))
    }

    /// All volumes, by name.
    pub async fn list_volumes(&self) -> Result<Vec<VolumeInfo>, ControlError> {
        self.ask(Request::ListVolumes).await
    }

    /// The volume of this name.
    pub async fn volume(&self, name: &VolumeName) -> Result<VolumeInfo, ControlError> {
        let volumes = self.list_volumes().await?;
        let found = volumes.into_iter().find(|volume| volume.name == name.as_str());
        found.ok_or_else(|| ControlError::NotFound(name.to_string()))
    }

    /// Makes a volume; it can be used when this returns.
    pub async fn create_volume(&self, new: NewVolume, wanted: WantedPlace) -> Result<VolumeInfo, ControlError> {
        let (place, wanted) = self.home_for(wanted).await?;
        self.change_at(place, |reply| Request::CreateVolume(new, wanted, reply)).await
    }

    /// Deletes a volume for good; nobody can use it when this returns.
    pub async fn delete_volume(&self, name: VolumeName) -> Result<(), ControlError> {
        self.change_at(self.head_of(&name).await?, |reply| Request::DeleteVolume(name, reply)).await
    }

    /// Puts a volume into the trash; nobody can use it when this returns.
    pub async fn trash_volume(&self, name: VolumeName) -> Result<TrashedVolume, ControlError> {
        self.change_at(self.head_of(&name).await?, |reply| Request::TrashVolume(name, reply)).await
    }

    /// What is in the trash, what was deleted last at the end.
    pub async fn list_trash(&self) -> Result<Vec<TrashedVolume>, ControlError> {
        let mut all = Vec::new();
        for place in 0..self.0.len() {
            all.extend(self.ask_at(place, Request::ListTrash).await?);
        }
        all.sort_by_key(|volume| (volume.deleted_at_ns, volume.info.id));
        Ok(all)
    }

    /// Takes a volume out of the trash; it can be used when this returns.
    pub async fn restore_volume(&self, id: VolumeId, name: Option<VolumeName>) -> Result<VolumeInfo, ControlError> {
        self.change_at(self.keeper_of(id).await?, |reply| Request::RestoreVolume(id, name, reply)).await
    }

    /// Deletes a volume in the trash for good.
    pub async fn empty_trash(&self, id: VolumeId) -> Result<(), ControlError> {
        self.change_at(self.keeper_of(id).await?, |reply| Request::EmptyTrash(id, reply)).await
    }

    /// Changes which NVMe hosts may use a volume; nothing runs of those that may not when this returns.
    pub async fn change_hosts(&self, volume: VolumeName, change: HostChange) -> Result<VolumeInfo, ControlError> {
        self.change_at(self.head_of(&volume).await?, |reply| Request::ChangeHosts(volume, change, reply)).await
    }

    /// Makes another node serve a volume; it does when this returns.
    pub async fn move_volume(&self, volume: VolumeName, to: NodeId) -> Result<VolumeInfo, ControlError> {
        self.change_at(self.head_of(&volume).await?, |reply| Request::MoveVolume(volume, to, reply)).await
    }

    /// Begins to move a volume to other groups; they are copied while it is in use.
    pub async fn relocate(&self, volume: VolumeName, wanted: WantedPlace) -> Result<Relocation, ControlError> {
        self.change_at(self.head_of(&volume).await?, |reply| Request::Relocate(volume, wanted, reply)).await
    }

    /// Gives such a move up: the volume stays where it is.
    pub async fn give_relocation_up(&self, volume: VolumeName) -> Result<(), ControlError> {
        self.change_at(self.head_of(&volume).await?, |reply| Request::GiveRelocationUp(volume, reply)).await
    }

    /// How far a volume's move is, if it moves; or why its last one failed.
    pub async fn relocation(&self, volume: VolumeName) -> Result<Result<Option<Relocation>, String>, ControlError> {
        self.ask_at(self.head_of(&volume).await?, |reply| Request::Relocation(volume, reply)).await?
    }

    /// The snapshots of a volume, by name.
    pub async fn list_snapshots(&self, volume: VolumeName) -> Result<Vec<SnapshotRecord>, ControlError> {
        self.ask_at(self.head_of(&volume).await?, |reply| Request::Snapshots(SnapshotRequest::List(volume, reply)))
            .await?
    }

    /// Takes a snapshot.
    pub async fn create_snapshot(
        &self,
        volume: VolumeName,
        name: SnapshotName,
    ) -> Result<SnapshotRecord, ControlError> {
        self.change_at(self.head_of(&volume).await?, |reply| {
            Request::Snapshots(SnapshotRequest::Create(volume, name, reply))
        })
        .await
    }

    /// Takes snapshots of several volumes at one instant, whoever serves them; asked of one of these nodes. In the order of
    /// the call.
    pub async fn create_snapshots(&self, paths: Vec<SnapshotPath>) -> Result<Vec<SnapshotRecord>, ControlError> {
        let place = match paths.first() {
            Some(path) => self.head_of(&path.volume).await?,
            None => 0,
        };
        self.change_at(place, |reply| Request::Snapshots(SnapshotRequest::CreateAll(paths, reply))).await
    }

    /// Deletes a snapshot.
    pub async fn delete_snapshot(&self, volume: VolumeName, name: SnapshotName) -> Result<(), ControlError> {
        self.change_at(self.head_of(&volume).await?, |reply| {
            Request::Snapshots(SnapshotRequest::Delete(volume, name, reply))
        })
        .await
    }

    /// Makes the volume hold what the snapshot holds.
    pub async fn roll_back(&self, volume: VolumeName, name: SnapshotName) -> Result<(), ControlError> {
        self.change_at(self.head_of(&volume).await?, |reply| {
            Request::Snapshots(SnapshotRequest::RollBack(volume, name, reply))
        })
        .await
    }

    /// Makes a volume of a snapshot; it can be used when this returns.
    pub async fn clone_volume(
        &self,
        volume: VolumeName,
        name: SnapshotName,
        new: VolumeName,
    ) -> Result<VolumeInfo, ControlError> {
        self.change_at(self.head_of(&volume).await?, |reply| {
            Request::Snapshots(SnapshotRequest::Clone(volume, name, new, reply))
        })
        .await
    }

    /// What changed since a snapshot: until another one, or until now.
    pub async fn changes(
        &self,
        volume: VolumeName,
        from: SnapshotName,
        to: Option<SnapshotName>,
    ) -> Result<Vec<ByteRange>, ControlError> {
        self.ask_at(self.head_of(&volume).await?, |reply| {
            Request::Snapshots(SnapshotRequest::Changes(volume, from, to, reply))
        })
        .await?
    }

    /// Changes a volume's name, size or limits.
    pub async fn change_volume(&self, volume: VolumeName, change: VolumeChange) -> Result<VolumeInfo, ControlError> {
        self.change_at(self.head_of(&volume).await?, |reply| {
            Request::Snapshots(SnapshotRequest::Change(volume, change, reply))
        })
        .await
    }

    /// Makes an encrypted volume that opens with the secret; it can be used when this returns.
    pub async fn create_encrypted_volume(
        &self,
        new: NewVolume,
        wanted: WantedPlace,
        secret: Secret,
    ) -> Result<VolumeInfo, ControlError> {
        let (place, wanted) = self.home_for(wanted).await?;
        let shared = secret.clone();
        let made = self.change_at(place, |reply| Request::Keys(KeyRequest::Create(new, wanted, secret, reply)));
        let made = made.await?;
        // Whichever node serves it later.
        for other in (0..self.0.len()).filter(|other| *other != place) {
            let secret = shared.clone();
            let name: VolumeName = made.name.parse().expect("the map took it");
            let told = self.ask_at(other, |reply| Request::Keys(KeyRequest::Unlock(name, secret, reply)));
            if let Err(error) = told.await.and_then(|told| told) {
                log::warn!("a node has no key of volume {}: `cairn volume unlock` gives it ({error})", made.name);
            }
        }
        Ok(made)
    }

    /// Unlocks a volume and its family; they can be used when this returns.
    pub async fn unlock_volume(&self, name: VolumeName, secret: Secret) -> Result<VolumeInfo, ControlError> {
        let head = self.head_of(&name).await?;
        let unlock = |secret: Secret| {
            let name = name.clone();
            |reply| Request::Keys(KeyRequest::Unlock(name, secret, reply))
        };
        let unlocked = self.ask_at(head, unlock(secret.clone())).await??;
        // Whichever node serves it later: a node that has no key of it is none that it can go to.
        for place in (0..self.0.len()).filter(|place| *place != head) {
            self.ask_at(place, unlock(secret.clone())).await??;
        }
        Ok(unlocked)
    }

    /// Locks a volume and its family; nobody can use them when this returns.
    pub async fn lock_volume(&self, name: VolumeName) -> Result<VolumeInfo, ControlError> {
        let head = self.head_of(&name).await?;
        for place in (0..self.0.len()).filter(|place| *place != head) {
            let name = name.clone();
            self.ask_at(place, |reply| Request::Keys(KeyRequest::Lock(name, reply))).await??;
        }
        self.ask_at(head, |reply| Request::Keys(KeyRequest::Lock(name, reply))).await?
    }

    /// Changes the secrets that open a volume and its family.
    pub async fn rekey_volume(
        &self,
        name: VolumeName,
        secret: Secret,
        change: SecretChange,
    ) -> Result<VolumeInfo, ControlError> {
        self.ask(|reply| Request::Keys(KeyRequest::Rekey(name, secret, change, reply))).await?
    }

    /// The pools with their rules, by name.
    pub async fn pool_infos(&self) -> Result<Vec<PoolInfo>, ControlError> {
        self.ask(|reply| Request::Pools(PoolRequest::List(reply))).await?
    }

    /// Makes a pool; it can be used when this returns.
    pub async fn create_pool(&self, new: NewPool) -> Result<PoolInfo, ControlError> {
        self.ask(|reply| Request::Pools(PoolRequest::Create(new, reply))).await?
    }

    /// Changes where copies and volumes of a pool may lie.
    pub async fn change_pool(&self, name: String, change: PoolChange) -> Result<PoolInfo, ControlError> {
        self.ask(|reply| Request::Pools(PoolRequest::Change(name, change, reply))).await?
    }

    /// Compresses what is written to a pool from now on like this.
    pub async fn set_compression(&self, pool: String, compression: Compression) -> Result<PoolRecord, ControlError> {
        self.ask(|reply| Request::Keys(KeyRequest::SetCompression(pool, compression, reply))).await?
    }

    /// What each volume takes.
    pub async fn usage(&self) -> Result<BTreeMap<VolumeId, VolumeUsage>, ControlError> {
        self.ask(|reply| Request::Snapshots(SnapshotRequest::Usage(reply))).await?
    }

    /// Whether the node would take this device, and what would be copied there; `None`: nothing, as long as something stands
    /// against it, which the log says. Nothing is changed.
    pub async fn check_device(&self, path: PathBuf) -> Result<Option<Decided>, ControlError> {
        self.ask(|reply| Request::CheckDevice(path, reply)).await?
    }

    /// Gives the node another device, which new volumes use when this returns.
    pub async fn add_device(&self, path: PathBuf) -> Result<(), ControlError> {
        self.ask(|reply| Request::AddDevice(path, reply)).await?
    }

    /// Begins what a request says of nodes and devices; or only says what it would do.
    pub async fn decide(
        &self,
        request: cluster::placement::duty::Request,
        is_dry_run: bool,
    ) -> Result<Decided, ControlError> {
        self.ask(|reply| Request::Duty(request, is_dry_run, reply)).await?
    }

    /// Begins to compare all copies, of a pool or of all. Returns false if that is under way.
    ///
    /// # Errors
    /// There is no such pool; the map's.
    pub async fn begin_check(&self, pool: Option<String>) -> Result<bool, ControlError> {
        self.ask(|reply| Request::BeginCheck(pool, reply)).await?
    }

    /// How far the last comparison is that was begun here.
    pub async fn last_check(&self) -> Result<Option<Check>, ControlError> {
        self.ask(Request::LastCheck).await
    }

    /// How the cluster stands, as the map says.
    pub async fn standing(&self) -> Result<Standings, ControlError> {
        self.ask(Request::Standing).await?
    }

    /// The cluster goes on to this version, that all of its nodes speak; it may be there already.
    pub async fn finish_upgrade(&self, to: u32) -> Result<cluster::Upgrade, ControlError> {
        self.ask(|reply| Request::FinishUpgrade(to, reply)).await?
    }

    /// This process's copies of some placement groups; of those that are in the way of their group, if none are named.
    pub async fn group_copies(&self, of: Option<Vec<GroupId>>) -> Result<Vec<GroupCopy>, ControlError> {
        let mut all = Vec::new();
        for place in 0..self.0.len() {
            all.extend(self.ask_at(place, |reply| Request::GroupCopies(of.clone(), reply)).await?);
        }
        Ok(all)
    }

    /// From now on the copy of this store counts. Of `epochs` the first is that of the reign that was looked at, the second the newest
    /// that any copy knows.
    pub async fn force_group(
        &self,
        group: GroupId,
        store: StoreId,
        epochs: (Epoch, Epoch),
    ) -> Result<(), ControlError> {
        self.ask(|reply| Request::ForceGroup(group, store, epochs, reply)).await?
    }

    /// How things are.
    pub async fn status(&self) -> Result<ClusterStatus, ControlError> {
        let mut all = self.ask(Request::Status).await?;
        for place in 1..self.0.len() {
            let one = self.ask_at(place, Request::Status).await?;
            all.node.add(one.node);
        }
        Ok(all)
    }

    /// What clients do, and where the time of their commands goes.
    pub async fn traffic(&self) -> Result<Traffic, ControlError> {
        let mut all = self.ask(Request::Traffic).await?;
        for place in 1..self.0.len() {
            all.add(self.ask_at(place, Request::Traffic).await?);
        }
        Ok(all)
    }

    /// Closes the doors and the stores: what is in flight is answered, nothing new is taken.
    pub async fn stop(&self) -> Result<(), ControlError> {
        let mut stopped = Ok(());
        for place in 0..self.0.len() {
            stopped = stopped.and(self.ask_at(place, Request::Stop).await);
        }
        stopped
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, ControlError> {
        self.ask_at(0, request).await
    }

    /// Has a node of this process change something; what is asked of the first one next knows of it.
    async fn change_at<T>(&self, place: usize, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, ControlError> {
        let changed = self.ask_at(place, request).await??;
        if place != 0 {
            // It is done, whether the first node hears of it now or by itself.
            let _ = self.catch_up().await;
        }
        Ok(changed)
    }

    async fn ask_at<T>(&self, place: usize, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, ControlError> {
        let (reply, answer) = oneshot::channel();
        if self.0[place].requests.try_send(request(reply)).is_err() {
            return Err(ControlError::Unavailable(format!(
                "{REQUESTS_MAX} requests are waiting or the node is stopping: try again later"
            )));
        }
        match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => Err(ControlError::Unavailable("the node is stopping: try again when it is back".to_owned())),
            Err(_) => Err(ControlError::Unavailable(format!(
                "no answer from the control core within {} s: the order may still be carried out; look at `cairn status`",
                ANSWER_TIMEOUT.as_secs()
            ))),
        }
    }
}

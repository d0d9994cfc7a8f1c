//! The node on its cores: map, assembly, wanted volumes, doors; then the control task, which answers the admin API.
//!
//! Everything here runs on core 0, except the doors' workers, of which each core has one.

use crate::admin::Asked;
use crate::config::{MapConfig, NodeConfig};
use crate::control::{ANSWER_TIMEOUT, Answer, ClusterStatus, ControlError, Request};
use crate::doors::{Bound, Doors, ListenError};
use crate::files::{FileError, during};
use crate::hosts::HostOrder;
use crate::release::UnknownProtocol;
use crate::service::reachable;
use crate::size::ByteSize;
use crate::volume_spec::{VolumeName, VolumeSpec};
use cluster::control::DutyError;
use cluster::{
    CatalogError, ClusterRecord, Compression, DEFAULT_POOL, DoorsRecord, EtcdMap, EtcdOptions, Founding, JoinError,
    MapError, MapStore, NewPool, PoolRecord, RedbMap, UpgradeError, VersionError, ensure_pool, found_pool,
};
use runtime::CoreHandle;
use runtime::channel::{CrossReceiver, cross};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use types::{ClusterId, NodeId};
use volume::{Assembly, Blank, Message, NodeOptions, Speaks, VolumeError};

/// Between two looks whether enough nodes are there to begin with.
const FOUNDING_WAIT: Duration = Duration::from_millis(200);

/// Exit status of a process whose cluster has gone on without it.
const EXIT_OUTDATED: i32 = 1;

/// What the node is started with.
pub(crate) struct NodePlan {
    pub(crate) config: NodeConfig,
    pub(crate) map: Arc<dyn MapStore>,
    pub(crate) wanted_volumes: Vec<VolumeSpec>,
    pub(crate) blank: Blank,
    pub(crate) compression: Option<Compression>,
    pub(crate) before_serving: Box<dyn FnOnce() -> Result<(), FileError> + Send>,
    /// Where the admin API is.
    pub(crate) admin: SocketAddr,
    /// Of a node that shares its map with other processes: who answers what they ask of its admin API.
    pub(crate) above: Option<mpsc::Sender<Asked>>,
    pub(crate) speaks: Speaks,
}

/// Where the node serves.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) nqn: String,
    pub(crate) nvme: SocketAddr,
    pub(crate) nbd: SocketAddr,
}

/// Why the node cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The cluster map.
    #[error("cannot open the cluster map {path} ({source}): put back a good copy, or choose another directory (--dir)")]
    Map {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        source: MapError,
    },
    /// The map in etcd.
    #[error("the cluster map in etcd cannot be used ({0}): see [map] in the node's file")]
    Etcd(MapError),
    /// Not the cluster that the node is of.
    #[error("{0}")]
    Cluster(#[from] JoinError),
    /// The cluster is at a version that the program does not speak.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// What the environment says of it is not known.
    #[error(transparent)]
    Protocol(#[from] UnknownProtocol),
    /// Devices, stores, groups.
    #[error(transparent)]
    Assembly(#[from] volume::StartError),
    /// A wanted volume is there, but another one.
    #[error(
        "the volume {name} is there with {there} and blocks of {there_block}, --volume says {asked} and blocks of \
         {asked_block}: leave its --volume away, or choose another name"
    )]
    OtherVolume {
        /// Its name.
        name: String,
        /// The size that is there.
        there: ByteSize,
        /// The format that is there.
        there_block: u32,
        /// The size that was asked for.
        asked: ByteSize,
        /// The format that was asked for.
        asked_block: u32,
    },
    /// A wanted volume cannot be made.
    #[error("cannot make the volume {name}: {source}")]
    Volume {
        /// Its name.
        name: String,
        /// Why.
        source: Box<VolumeError>,
    },
    /// The pool cannot be set as wanted.
    #[error("cannot set the compression of the pool {name}: {source}")]
    Pool {
        /// Its name.
        name: &'static str,
        /// Why.
        source: Box<VolumeError>,
    },
    /// The directory.
    #[error(transparent)]
    File(#[from] FileError),
    /// A socket cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The task that starts the node is gone.
    #[error("the control core ended during the start: the lines above say why")]
    Lost,
}

/// Starts the node on `cores`; it answers `requests` until one of them is to stop.
pub(crate) fn start(
    cores: &[CoreHandle],
    plan: NodePlan,
    requests: CrossReceiver<Request>,
) -> oneshot::Receiver<Result<Started, StartError>> {
    let (tell, told) = oneshot::channel();
    let all = cores.to_vec();
    cores[0].spawn_on(move || async move {
        match LocalNode::start(all, plan).await {
            Ok((node, started)) => {
                let _ = tell.send(Ok(started));
                node.answer(requests).await;
            }
            Err(error) => drop(tell.send(Err(error))),
        }
    });
    told
}

/// Opens the map: of a cluster in one process, or of nodes that are processes of their own.
pub(crate) fn open_map(config: &NodeConfig) -> Result<Arc<dyn MapStore>, StartError> {
    if config.map.is_shared() {
        return open_shared_map(&config.map);
    }
    let path = config.map.redb_file().to_owned();
    let map = RedbMap::open(&path).map_err(|source| StartError::Map { path, source })?;
    Ok(map)
}

/// Opens a map in etcd.
///
/// # Errors
/// A file that is not there, or etcd's.
pub fn open_shared_map(config: &MapConfig) -> Result<Arc<dyn MapStore>, StartError> {
    let options = etcd_options(config)?;
    EtcdMap::open(&options).map(|map| map as Arc<dyn MapStore>).map_err(StartError::Etcd)
}

fn etcd_options(config: &MapConfig) -> Result<EtcdOptions, StartError> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(during("read", path));
    let identity = match (&config.certificate, &config.certificate_key) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => None,
    };
    let user = match (&config.user, &config.password_file) {
        (Some(user), Some(file)) => {
            let password = std::fs::read_to_string(file).map_err(during("read", file))?;
            Some((user.clone(), password.trim_end_matches('\n').to_owned()))
        }
        _ => None,
    };
    Ok(EtcdOptions {
        endpoints: config.etcd.clone(),
        user,
        authority_pem: config.authority.as_ref().map(read).transpose()?,
        identity_pem: identity,
    })
}

/// The map answers, and there is a pool in it: made with this node's devices, as soon as those of enough nodes are there.
async fn await_pool(options: &NodeOptions, config: &NodeConfig, speaks: Speaks) -> Result<(), StartError> {
    let map = &options.map;
    until_it_answers(&**map).await?;
    let cluster = cluster::get::<ClusterRecord>(&**map, cluster::keys::CLUSTER).await.map_err(of_map)?;
    if let Some(wanted) = config.cluster_id() {
        match &cluster {
            Some(found) if found.record.id == wanted => {}
            Some(found) => return Err(JoinError::OtherCluster { found: found.record.id, wanted }.into()),
            None => return Err(JoinError::NoCluster.into()),
        }
    }
    if let Some(found) = &cluster {
        found.record.admits(speaks.cluster_versions)?;
    }
    let replicas = cluster.and_then(|found| found.record.replicas).unwrap_or(config.founding_replicas());
    if cluster::get::<PoolRecord>(&**map, &cluster::keys::pool(DEFAULT_POOL)).await.map_err(of_map)?.is_some() {
        return Ok(());
    }
    Assembly::register_with(map, options.node, &options.devices, (options.blank, speaks)).await?;
    let mut told = usize::MAX;
    loop {
        match found_pool(&**map, DEFAULT_POOL, replicas).await {
            Ok(Founding::Done(_)) => return Ok(()),
            Ok(Founding::Waits(nodes)) => {
                if std::mem::replace(&mut told, nodes) != nodes {
                    log::info!("this cluster begins when devices of {replicas} nodes are there: {nodes} so far");
                }
            }
            Err(CatalogError::Map(MapError::Unknown)) => {}
            Err(error) => return Err(of_map(error)),
        }
        runtime::sleep(FOUNDING_WAIT).await;
    }
}

/// A map that is away comes back.
async fn until_it_answers(map: &dyn MapStore) -> Result<(), StartError> {
    let mut is_told = false;
    while let Err(error) = map.get(cluster::keys::CLUSTER).await {
        match error {
            MapError::Unknown if std::mem::replace(&mut is_told, true) => {}
            MapError::Unknown => log::warn!("etcd does not answer: this node waits for it"),
            error => return Err(StartError::Etcd(error)),
        }
    }
    Ok(())
}

fn of_map(error: CatalogError) -> StartError {
    volume::StartError::from(error).into()
}

/// What another node asks of the admin API here.
async fn answer_above(asked: mpsc::Sender<Asked>, message: Message) -> Message {
    let (reply, mut answer) = cross(1);
    if asked.try_send(Asked { message, reply }).is_err() {
        return Message::default();
    }
    // What has no head is no answer.
    let answer = runtime::timeout(ANSWER_TIMEOUT, answer.recv()).await;
    answer.ok().and_then(Result::ok).unwrap_or_default()
}

/// Makes the devices of all nodes the cluster's, and a pool of them with so many copies, if there is none: on `core`, before
/// any of the nodes starts.
pub(crate) fn prepare(
    core: &CoreHandle,
    map: Arc<dyn MapStore>,
    nodes: Vec<(NodeId, Vec<PathBuf>)>,
    replicas: u16,
) -> oneshot::Receiver<Result<(), StartError>> {
    let (tell, told) = oneshot::channel();
    core.spawn_on(move || async move {
        let _ = tell.send(make_pool(&map, nodes, replicas).await);
    });
    told
}

async fn make_pool(
    map: &Arc<dyn MapStore>,
    nodes: Vec<(NodeId, Vec<PathBuf>)>,
    replicas: u16,
) -> Result<(), StartError> {
    until_it_answers(&**map).await?;
    let mut stores = Vec::new();
    for (node, devices) in nodes {
        let how = (Blank::Format, crate::release::of_this_process()?);
        stores.extend(Assembly::register_with(map, node, &devices, how).await?);
    }
    let pool = NewPool {
        name: DEFAULT_POOL.to_owned(),
        replicas: replicas.into(),
        // One may be away.
        min_in_sync: u32::from(replicas).saturating_sub(1).max(1),
        rules: None,
        stores,
    };
    ensure_pool(&**map, &pool).await.map_err(volume::StartError::from)?;
    Ok(())
}

struct LocalNode {
    assembly: Assembly,
    doors: Option<Doors>,
    any_host: bool,
}

impl LocalNode {
    async fn start(cores: Vec<CoreHandle>, plan: NodePlan) -> Result<(Self, Started), StartError> {
        let NodePlan { config, map, wanted_volumes, blank, compression, before_serving, admin, above, speaks } = plan;
        let (node, core_count) = (config.node_id(), cores.len());
        let map = match config.map.is_shared() {
            true => crate::map_copy::keep(map, crate::map_copy::path_of(&config)),
            false => map,
        };
        let options = NodeOptions {
            node,
            address: reachable(config.peers_address()),
            cores,
            devices: config.devices.iter().map(|device| device.path.clone()).collect(),
            blank,
            map,
        };
        if config.map.is_shared() {
            await_pool(&options, &config, speaks).await?;
        }
        let assembly = Assembly::start_speaking(options, speaks).await?;
        if let Some(compression) = compression {
            let set = assembly.set_compression(DEFAULT_POOL, compression).await;
            set.map_err(|source| StartError::Pool { name: DEFAULT_POOL, source: source.into() })?;
        }
        crate::keys::unlock_at_start(&assembly, &config.key_files).await;
        for wanted in wanted_volumes {
            ensure_volume(&assembly, &wanted).await?;
        }
        // A first start that gets no port has served nothing: the next one begins anew, with what it then is told.
        let bound = Bound::new(&config)?;
        before_serving()?;
        let any_host = config.any_host;
        let doors = Doors::open(&assembly, bound, node, core_count, any_host);
        let started = Started { nqn: doors.nqn.clone(), nvme: doors.nvme, nbd: doors.nbd };
        if let Some(asked) = above {
            assembly.answer_above(move |message| Box::pin(answer_above(asked.clone(), message)));
        }
        let said = DoorsRecord {
            node,
            nvme: config.told(doors.nvme).to_string(),
            nbd: config.told(doors.nbd).to_string(),
            admin: config.told(admin).to_string(),
            pid: std::process::id(),
            release: speaks.release(),
        };
        assembly.say_doors(said, |error| {
            // It began before the upgrade was finished, and what others write from now on is not for it to read.
            log::error!("this node ends: {error}");
            std::process::exit(EXIT_OUTDATED);
        });
        Ok((Self { assembly, doors: Some(doors), any_host }, started))
    }

    /// Carries an order out as a task of its own: it may wait for others, and the questions behind it must not.
    fn spawn<T: 'static, F: Future<Output = Result<T, VolumeError>> + 'static>(
        &self,
        reply: Answer<T>,
        order: impl FnOnce(Assembly) -> F,
    ) {
        let carried_out = order(self.assembly.clone());
        runtime::spawn(async move { tell(reply, carried_out.await) });
    }

    /// The control task: answers what it can at once, and carries orders out as tasks of their own, until the one to
    /// stop.
    async fn answer(mut self, mut requests: CrossReceiver<Request>) {
        while let Ok(request) = requests.recv().await {
            // Nobody may be waiting for an answer any more: the order was carried out all the same.
            match request {
                Request::ListVolumes(reply) => drop(reply.send(self.assembly.volumes())),
                Request::CreateVolume(new, wanted, reply) => {
                    self.spawn(reply, move |assembly| async move { assembly.create_volume_at(new, &wanted).await });
                }
                Request::DeleteVolume(name, reply) => {
                    self.spawn(reply, |assembly| async move { assembly.delete_volume(name.as_str()).await });
                }
                Request::TrashVolume(name, reply) => {
                    self.spawn(reply, |assembly| async move { assembly.trash_volume(name.as_str()).await });
                }
                Request::ListTrash(reply) => drop(reply.send(self.assembly.trash())),
                Request::RestoreVolume(id, name, reply) => self.spawn(reply, move |assembly| async move {
                    assembly.restore_volume(id, name.as_ref().map(VolumeName::as_str)).await
                }),
                Request::EmptyTrash(id, reply) => {
                    self.spawn(reply, move |assembly| async move { assembly.empty_trash(id).await });
                }
                Request::MoveVolume(name, to, reply) => {
                    self.spawn(reply, move |assembly| async move { assembly.move_volume(name.as_str(), to).await });
                }
                Request::Relocate(name, wanted, reply) => {
                    self.spawn(
                        reply,
                        move |assembly| async move { assembly.relocate_volume(name.as_str(), &wanted).await },
                    );
                }
                Request::GiveRelocationUp(name, reply) => {
                    tell(reply, self.assembly.give_relocation_up(name.as_str()));
                }
                Request::Relocation(name, reply) => tell(reply, self.assembly.last_relocation(name.as_str())),
                Request::Snapshots(request) => {
                    runtime::spawn(crate::snapshots::answer(self.assembly.clone(), request));
                }
                Request::ChangeHosts(name, change, reply) => {
                    let target = self.doors.as_ref().map(|doors| doors.target.clone());
                    let order = HostOrder { name, change, open_by_default: self.any_host };
                    runtime::spawn(crate::hosts::answer(self.assembly.clone(), target, order, reply));
                }
                Request::Keys(request) => {
                    runtime::spawn(crate::keys::answer(self.assembly.clone(), request));
                }
                Request::Pools(request) => {
                    runtime::spawn(crate::pools::answer(self.assembly.clone(), request));
                }
                Request::CheckDevice(path, reply) => {
                    let assembly = self.assembly.clone();
                    runtime::spawn(async move {
                        let foretold = match assembly.check_device(&path).await {
                            Ok(device) => Ok(assembly.foretell_device(device).await.map_err(|error| {
                                log::warn!("device {} would get nothing yet: {error}", path.display());
                            })),
                            Err(error) => Err(error),
                        };
                        tell_start(reply, foretold.map(Result::ok));
                    });
                }
                Request::AddDevice(path, reply) => {
                    let assembly = self.assembly.clone();
                    runtime::spawn(async move { tell_start(reply, assembly.add_device(&path).await) });
                }
                Request::Duty(request, is_dry_run, reply) => {
                    let assembly = self.assembly.clone();
                    runtime::spawn(async move {
                        let decided = match is_dry_run {
                            true => assembly.foretell(&request).await,
                            false => assembly.decide(&request).await,
                        };
                        let _ = reply.send(decided.map_err(duty_error));
                    });
                }
                Request::BeginCheck(pool, reply) => {
                    self.spawn(reply, |assembly| async move {
                        if let Some(pool) = &pool {
                            assembly.pool_info(pool).await?;
                        }
                        Ok(assembly.begin_check(pool))
                    });
                }
                Request::LastCheck(reply) => drop(reply.send(self.assembly.last_check())),
                Request::Standing(reply) => {
                    self.spawn(reply, |assembly| async move { assembly.standing().await });
                }
                Request::GroupCopies(of, reply) => {
                    let assembly = self.assembly.clone();
                    runtime::spawn(async move { drop(reply.send(assembly.group_copies(of).await)) });
                }
                Request::ForceGroup(group, store, epochs, reply) => {
                    self.spawn(reply, move |assembly| async move { assembly.force_group(group, store, epochs).await });
                }
                Request::FinishUpgrade(to, reply) => {
                    let map = self.assembly.map();
                    runtime::spawn(async move {
                        let finished = cluster::finish_upgrade(&*map, to, runtime::wall_clock_ns()).await;
                        let _ = reply.send(finished.map_err(upgrade_error));
                    });
                }
                Request::AskAbove(node, message, reply) => {
                    let assembly = self.assembly.clone();
                    runtime::spawn(async move {
                        let answer = assembly.ask_above(node, message).await;
                        let _ = reply.send(answer.map_err(Into::into));
                    });
                }
                Request::Peers(reply) => drop(reply.send(self.assembly.peers())),
                Request::HeadOf(id, reply) => drop(reply.send(self.assembly.head_of(id))),
                Request::TrashElsewhere(reply) => drop(reply.send(self.assembly.trash_elsewhere())),
                Request::CatchUp(reply) => {
                    self.spawn(reply, |assembly| async move { assembly.catch_up().await });
                }
                Request::Testament(reply) => drop(reply.send(self.assembly.testament())),
                Request::Status(reply) => {
                    let cluster: ClusterId = self.assembly.cluster_id();
                    drop(reply.send(ClusterStatus { cluster, node: self.assembly.status().await }));
                }
                Request::Traffic(reply) => {
                    let clients = self.doors.as_ref().map(Doors::clients).unwrap_or_default();
                    runtime::spawn(crate::traffic::answer(self.assembly.clone(), clients, reply));
                }
                Request::Stop(reply) => {
                    self.stop().await;
                    let _ = reply.send(());
                    return;
                }
            }
        }
    }

    async fn stop(&mut self) {
        if let Some(doors) = self.doors.take() {
            doors.close().await;
        }
        self.assembly.stop().await;
    }
}

/// Tells how an order ended. Nobody may be waiting for it any more.
pub(crate) fn tell<T>(reply: Answer<T>, outcome: Result<T, VolumeError>) {
    let _ = reply.send(outcome.map_err(control_error));
}

fn duty_error(error: DutyError) -> ControlError {
    match error {
        DutyError::Map(_) => ControlError::Unavailable(error.to_string()),
        DutyError::Refused(_) | DutyError::Unreadable(_) | DutyError::TooMany(_) => {
            ControlError::Refused(error.to_string())
        }
    }
}

fn upgrade_error(error: UpgradeError) -> ControlError {
    match error {
        UpgradeError::Map(_) => ControlError::Unavailable(error.to_string()),
        UpgradeError::Hindered(_) | UpgradeError::Other { .. } => ControlError::Refused(error.to_string()),
    }
}

fn tell_start<T>(reply: Answer<T>, outcome: Result<T, volume::StartError>) {
    use volume::StartError::{CoreEnded, Map};
    let _ = reply.send(outcome.map_err(|error| match error {
        Map(_) | CoreEnded => ControlError::Unavailable(error.to_string()),
        _ => ControlError::Refused(error.to_string()),
    }));
}

/// Leaves a volume alone that is there as wanted, makes one that is not.
async fn ensure_volume(assembly: &Assembly, wanted: &VolumeSpec) -> Result<(), StartError> {
    let name = wanted.name.to_string();
    match assembly.volumes().into_iter().find(|volume| volume.name == name) {
        Some(there) if there.size_bytes == wanted.size.0 && there.block_size_bytes == wanted.block_size.bytes() => {
            Ok(())
        }
        Some(there) => Err(StartError::OtherVolume {
            name,
            there: ByteSize(there.size_bytes),
            there_block: there.block_size_bytes,
            asked: wanted.size,
            asked_block: wanted.block_size.bytes(),
        }),
        None => match assembly.create_volume(wanted.to_new()).await {
            Ok(_) => Ok(()),
            Err(source) => Err(StartError::Volume { name, source: source.into() }),
        },
    }
}

pub(crate) fn control_error(error: VolumeError) -> ControlError {
    match error {
        VolumeError::Exists(there) => ControlError::Exists {
            name: there.name,
            size_bytes: there.size_bytes,
            block_size_bytes: there.block_size_bytes,
        },
        VolumeError::NotFound(name) => ControlError::NotFound(name),
        error @ VolumeError::BadHost(_) => ControlError::BadHost(error.to_string()),
        error @ VolumeError::Hosts(_) => ControlError::Hosts(error.to_string()),
        VolumeError::NotInTrash(id) => ControlError::NotInTrash(id),
        VolumeError::NotEncrypted(name) => ControlError::NotEncrypted(name),
        VolumeError::NoPool(name) => ControlError::NoPool(name),
        error @ VolumeError::Place(_) => ControlError::Refused(error.to_string()),
        VolumeError::NoSnapshot(name) => ControlError::NoSnapshot(name),
        VolumeError::SnapshotExists(name) => ControlError::SnapshotExists(name),
        VolumeError::HasSnapshots(error) => ControlError::HasSnapshots(error.to_string()),
        VolumeError::Smaller { volume, is_bytes, asked_bytes } => {
            ControlError::Smaller { volume, is: ByteSize(is_bytes), asked: ByteSize(asked_bytes) }
        }
        error @ (VolumeError::NotQuiet { .. }
        | VolumeError::NoInstant(_)
        | VolumeError::Layer(_)
        | VolumeError::Busy { .. }
        | VolumeError::InUse { .. }
        | VolumeError::Stays { .. }
        | VolumeError::NoWayThere { .. }) => ControlError::Unavailable(error.to_string()),
        VolumeError::Map(error) => ControlError::Unavailable(error.to_string()),
        other => ControlError::Refused(other.to_string()),
    }
}

//! A client: a program that is the head of the volumes it opens, with no device, no door and no address (docs/libcairn.md).
//!
//! ```text
//!   start   map: a number of its own ─► clients/N under its session     begins to beat: nodes answer where groups are led
//!   open    asks the head for the volume, or takes it from one that is gone ─► epoch + 1, served here, said in clients/N
//!   close   nothing more is let in ─► the home is the head, or nobody
//! ```
//!
//! It is a node to those that lead groups, and to nobody else.

use super::{Assembly, StartError, VolumeError, key_in, start_groups};
use crate::api::Standing;
use crate::forward::Attached;
use crate::session::Session;
use cluster::{
    ClusterKeyRecord, ClusterRecord, MapStore, Stay, VolumeRecord, VolumeState, get, keys, list, number_client,
};
use runtime::{CoreHandle, now};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{Mutant, NodeId, VolumeId, mutant};

/// Of a head or user that is a client nobody here knows whether it lives before its session is over: 10 s, and a second on top.
const CLIENT_PATIENCE: Duration = Duration::from_secs(12);
/// A node that has just lost its client, or has not heard of this one yet, is asked again for so long.
const NODE_PATIENCE: Duration = Duration::from_secs(4);
/// Nobody waits longer to open a volume, whoever has it meanwhile.
const OPEN_WAIT: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK_WAIT: Duration = Duration::from_millis(100);
/// The map has so long to answer that a session has begun.
const SESSION_WAIT: Duration = Duration::from_secs(10);

/// What a client is started with.
pub struct ClientOptions {
    /// Its cores; the caller runs on the first one.
    pub cores: Vec<CoreHandle>,
    /// The cluster's map.
    pub map: Arc<dyn MapStore>,
}

/// A volume that this client is the head of.
pub struct OpenVolume {
    /// To be asked.
    pub volume: Attached,
    id: VolumeId,
    session: Session,
}

impl Assembly {
    /// Starts a client.
    ///
    /// # Errors
    /// A map that holds no cluster, or one that this program does not speak with.
    pub async fn start_client(options: ClientOptions) -> Result<Self, StartError> {
        let ClientOptions { cores, map } = options;
        assert!(!cores.is_empty(), "a client has a core");
        let speaks = super::Speaks::of_this_build();
        let cluster = get::<ClusterRecord>(&*map, keys::CLUSTER).await?.ok_or(StartError::NoCluster)?.record;
        cluster.admits(speaks.cluster_versions)?;
        let key = get::<ClusterKeyRecord>(&*map, keys::CLUSTER_KEY).await?.ok_or(StartError::NoCluster)?;
        let key = key_in(key.record)?;
        let node = number_client(&*map).await?;
        let owners = Arc::new(super::Owners::default());
        let who = (cluster.id, key, node, None);
        let groups = Rc::new(start_groups(&map, who, (&cores, &owners), speaks.protocol).await?);
        let nothing = (Vec::new(), Vec::new());
        let started = Self::start_on(&groups, map, cores, nothing, (cluster.id, node, owners)).await;
        if started.is_err() {
            groups.stop().await;
        }
        started
    }

    /// This client's, or this node's, number.
    pub fn node_id(&self) -> NodeId {
        self.0.id
    }

    /// Makes this client the head of a volume.
    ///
    /// # Errors
    /// No such volume, one that is locked, that others use, or whose head cannot be asked.
    pub async fn open_volume(&self, name: &str) -> Result<OpenVolume, VolumeError> {
        let found = list::<VolumeRecord>(&*self.0.map, keys::VOLUMES).await?.into_iter().map(|found| found.record);
        let is_it = |volume: &VolumeRecord| volume.name == name && volume.state == VolumeState::Online;
        let id = found.into_iter().find(is_it).ok_or_else(|| VolumeError::NotFound(name.to_owned()))?.id;
        if !self.0.asked_for.borrow_mut().insert(id) {
            return Err(VolumeError::Elsewhere { volume: name.to_owned(), head: self.0.id });
        }
        let opened = self.opened(name, id).await;
        if opened.is_err() {
            self.forget_opened(id).await;
        }
        opened
    }

    async fn opened(&self, name: &str, id: VolumeId) -> Result<OpenVolume, VolumeError> {
        {
            let _alone = self.alone_to_see(id).await;
            self.see(id).await?;
        }
        let (began, me) = (now(), self.0.id);
        // Who is waited for, and since when.
        let mut waits = (me, began);
        loop {
            if self.0.head.directory.is_locked(name) {
                return Err(VolumeError::Locked(name.to_owned()));
            }
            if !self.0.heads.is_alive(me) {
                if now().since(began) >= SESSION_WAIT {
                    return Err(cluster::CatalogError::from(cluster::MapError::Unknown).into());
                }
                runtime::sleep(LOOK_WAIT).await;
                continue;
            }
            let record = get::<VolumeRecord>(&*self.0.map, &keys::volume(id)).await?;
            let record = record.ok_or_else(|| VolumeError::NotFound(name.to_owned()))?.record;
            let heads = &self.0.heads;
            let head_lives = record.head != me && record.head.is_client() && heads.is_alive(record.head);
            let user = head_lives.then_some(record.head).or_else(|| heads.wishes().user_of(&record, me));
            if mutant(Mutant::UsedVolumeTaken) && record.head != me {
                self.take(|volume| volume.id == id, |_| false).await?;
            }
            if (user.is_none() || mutant(Mutant::UsedVolumeTaken))
                && let Some(open) = self.attached(id).await
            {
                return Ok(open);
            }
            let by = user.unwrap_or(record.head);
            if waits.0 != by {
                waits = (by, now());
            }
            let patience = if by.is_client() { CLIENT_PATIENCE } else { NODE_PATIENCE };
            if now().since(waits.1) >= patience || now().since(began) >= OPEN_WAIT {
                return Err(VolumeError::InUse { volume: name.to_owned(), by });
            }
            runtime::sleep(LOOK_WAIT).await;
        }
    }

    /// `None`: it is served elsewhere still.
    async fn attached(&self, id: VolumeId) -> Option<OpenVolume> {
        let volume = self.0.head.directory.by_id(id)?;
        let session = Session::that_waits();
        let attached = volume.attach(&session).await.ok()?;
        if attached.is_forwarded() {
            session.end();
            return None;
        }
        Some(OpenVolume { volume: attached, id, session })
    }

    /// Gives a volume back, when what it was asked for is done. What another serves by now is let go of.
    ///
    /// # Errors
    /// The map does not answer, or a command has not ended: a node takes it when this client has no session any more.
    pub async fn close_volume(&self, open: OpenVolume) -> Result<(), VolumeError> {
        let OpenVolume { volume, id, session } = open;
        drop(volume);
        session.end();
        let given = self.give_back(id).await;
        self.forget_opened(id).await;
        given
    }

    async fn give_back(&self, id: VolumeId) -> Result<(), VolumeError> {
        if self.reign(id).is_none() {
            return Ok(());
        }
        let found = get::<VolumeRecord>(&*self.0.map, &keys::volume(id)).await?;
        let home = found.map_or(NodeId(0), |found| found.record.home);
        let to = if self.0.heads.is_alive(home) { home } else { NodeId(0) };
        self.hand_over(id, to, Stay::Meanwhile).await.map(drop)
    }

    async fn forget_opened(&self, id: VolumeId) {
        self.stand(id, Standing::Elsewhere).await;
        self.0.asked_for.borrow_mut().remove(&id);
        self.take_away(id).await;
    }
}

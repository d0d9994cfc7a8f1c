//! The other nodes of the cluster, for whoever stands above: where clients reach them, calls to them, and what a supervisor has
//! to know to speak for this one.

use super::agreeing::SILENT;
use super::{Assembly, VolumeError};
use cluster::{
    CatalogError, DoorsRecord, Said, TrashTerm, VersionError, VolumeRecord, VolumeState, keys, list, say_doors,
};
use replication::node::{CallError, Parcel, Service};
use replication::wire::ClusterKey;
use runtime::IoBuf;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use types::{ClusterId, Incarnation, NodeId, StoreId, VolumeId};

/// What is asked of a node above, and its answer.
const SERVICE: Service = Service(4);
/// How often it is looked at whether the map says where this node serves.
const SAY_WAIT: Duration = Duration::from_secs(1);
/// Who catches up waits so long for another change of a volume.
const CHANGE_WAIT: Duration = Duration::from_secs(1);

/// Words and bytes of a call, as they go from thread to thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// At most [`HEAD_MAX`](Self::HEAD_MAX).
    pub head: Vec<u8>,
    /// At most [`BODY_MAX`](Self::BODY_MAX).
    pub body: Vec<u8>,
}

impl Message {
    /// Longest head.
    pub const HEAD_MAX: usize = replication::node::MAX_CALL_HEAD_BYTES;
    /// Longest body.
    pub const BODY_MAX: usize = replication::node::MAX_CALL_BYTES;

    fn parcel(self) -> Parcel {
        Parcel { head: self.head, bytes: IoBuf::copy_of(&self.body).freeze() }
    }

    fn of(parcel: Parcel) -> Self {
        Self { body: parcel.bytes.to_vec(), head: parcel.head }
    }
}

/// A node that has a session in the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerNode {
    /// Which.
    pub node: NodeId,
    /// Where clients reach it, if it lets any in.
    pub doors: Option<DoorsRecord>,
    /// Its supervisor has said that its process has ended: the session is that of a dead one.
    pub has_ended: bool,
    /// It has answered no beat for so long that it may be gone.
    pub is_silent: bool,
}

/// What is to be known to speak for this life of the node when it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testament {
    /// The cluster.
    pub cluster: ClusterId,
    /// What its nodes know each other by.
    pub key: ClusterKey,
    /// This node.
    pub node: NodeId,
    /// Its stores, each with the life that this process gave it.
    pub lives: Vec<(StoreId, Incarnation)>,
    /// Where the other nodes are reached.
    pub peers: Vec<(NodeId, SocketAddr)>,
}

impl Assembly {
    /// Says in the map where clients reach this node and what it speaks, as long as it lives. `outdated` is called where the cluster
    /// has gone on to a version that it does not speak: it may not go on.
    pub fn say_doors(&self, doors: DoorsRecord, outdated: impl Fn(VersionError) + 'static) {
        let this = self.clone();
        let says = runtime::spawn(async move {
            let mut said = None;
            loop {
                match this.say_doors_once(&doors, &mut said).await {
                    Ok(Said::Done | Said::Again) => {}
                    Ok(Said::Outdated(error)) => outdated(error),
                    Err(error) => log::debug!("the map is not told where this node serves: {error}"),
                }
                runtime::sleep(SAY_WAIT).await;
            }
        });
        self.0.tasks.borrow_mut().push(says);
    }

    /// What was put under a lease that is over is put under the next.
    async fn say_doors_once(
        &self,
        doors: &DoorsRecord,
        said: &mut Option<cluster::LeaseId>,
    ) -> Result<Said, CatalogError> {
        let Some(lease) = self.0.groups.session_lease() else { return Ok(Said::Again) };
        // The session of an earlier life may end later, and what it said with it.
        let is_heard = self.0.heads.doors(self.0.id).is_some_and(|heard| heard == *doors);
        if *said == Some(lease) && is_heard {
            return Ok(Said::Done);
        }
        let outcome = say_doors(&*self.0.map, doors, lease).await?;
        if outcome == Said::Done {
            *said = Some(lease);
        }
        Ok(outcome)
    }

    /// The other nodes that have a session, by number.
    pub fn peers(&self) -> Vec<PeerNode> {
        let heads = &self.0.heads;
        let others = heads.alive().into_iter().filter(|node| *node != self.0.id);
        let peer = |node| {
            let silence = self.0.groups.silence_of(node);
            let (has_ended, is_silent) = (silence == Duration::MAX, silence >= SILENT);
            PeerNode { node, doors: heads.doors(node), has_ended, is_silent }
        };
        others.map(peer).collect()
    }

    /// The head of a volume, in the trash or not, as the map said last.
    pub fn head_of(&self, id: VolumeId) -> Option<NodeId> {
        self.0.heads.volume(id).map(|volume| volume.head)
    }

    /// What is in the trash and kept by other nodes.
    pub fn trash_elsewhere(&self) -> Vec<super::TrashedVolume> {
        let volumes = self.0.heads.volumes();
        let kept = |volume: &Rc<VolumeRecord>| -> Option<TrashTerm> {
            match volume.state {
                VolumeState::Trashed(term) if volume.head != self.0.id => Some(term),
                _ => None,
            }
        };
        volumes.iter().filter_map(|volume| Some(self.trashed(volume, kept(volume)?))).collect()
    }

    /// Asks what stands above another node.
    ///
    /// # Errors
    /// As of a call.
    pub async fn ask_above(&self, node: NodeId, message: Message) -> Result<Message, CallError> {
        self.0.groups.first_core().call(node, SERVICE, message.parcel()).await.map(Message::of)
    }

    /// What other nodes ask of whoever stands above this one is answered like this from now on.
    pub fn answer_above(&self, answer: impl Fn(Message) -> Pin<Box<dyn Future<Output = Message>>> + 'static) {
        let answer = Rc::new(answer);
        self.0.groups.first_core().answer_calls(
            SERVICE,
            Rc::new(move |_, parcel| {
                let answer = answer.clone();
                Box::pin(async move { answer(Message::of(parcel)).await.parcel() })
            }),
        );
    }

    /// Knows all volumes as the map has them now: what another node has done by order is told from here on.
    ///
    /// # Errors
    /// The map's.
    pub async fn catch_up(&self) -> Result<(), VolumeError> {
        let found = list::<VolumeRecord>(&*self.0.map, keys::VOLUMES).await?;
        let heads = &self.0.heads;
        let is_known = |record: &VolumeRecord| heads.volume(record.id).is_some_and(|known| *known == *record);
        let mut due: BTreeSet<VolumeId> =
            found.iter().filter(|found| !is_known(&found.record)).map(|found| found.record.id).collect();
        let there: BTreeSet<VolumeId> = found.iter().map(|found| found.record.id).collect();
        due.extend(heads.volumes().iter().map(|known| known.id).filter(|id| !there.contains(id)));
        // The map's watch may have told it, and nobody has looked yet.
        let near = found.iter().filter(|found| self.is_near(&found.record));
        due.extend(near.filter(|found| self.is_behind(&found.record)).map(|found| found.record.id));
        for id in due {
            match runtime::timeout(CHANGE_WAIT, self.alone_to_see(id)).await {
                Ok(_alone) => self.see_or_later(id).await,
                Err(_) => self.look_at([id]),
            }
        }
        Ok(())
    }

    /// Whether it is listed as something else than its record says.
    fn is_behind(&self, volume: &VolumeRecord) -> bool {
        let is_online = volume.state == VolumeState::Online;
        let volumes = self.0.volumes.borrow();
        match volumes.values().find(|info| info.id == volume.id) {
            Some(info) => !is_online || info.name != volume.name || info.head != volume.head,
            None => is_online,
        }
    }

    /// What a supervisor is told.
    pub fn testament(&self) -> Testament {
        let life = |device: &super::OpenDevice| (device.store.store_id(), device.store.incarnation());
        Testament {
            cluster: self.0.cluster,
            key: self.0.groups.key(),
            node: self.0.id,
            lives: self.0.devices.borrow().iter().map(life).collect(),
            peers: self.0.groups.addresses().into_iter().filter(|(node, _)| *node != self.0.id).collect(),
        }
    }
}

//! A head goes to another node by the will of the one that has it: by order, home, or to where its hosts are.
//!
//! ```text
//!   Here ── nothing more is let in ──► Changing ── what was let in has ended ── {to, epoch + 1} in the map ──► Elsewhere
//!                                         │                                           the other hears of it, takes it, serves
//!                                         └── it does not end in time, or the map does not answer ──► Here
//! ```
//!
//! Nothing depends on the order of these steps but what hosts see: whoever becomes the head raises the epoch at each group
//! before it reads there (H2), and the older one is refused from then on (H3). So a step that fails is taken back, and a map
//! that did it all the same has a new head for the volume.

use super::{Assembly, VolumeError};
use crate::api::{Encryption, Standing, VolumeInfo};
use crate::spec::volume_info;
use cluster::{MapError, Reign, Stay, VolumeRecord, get, give_head, keys};
use std::time::Duration;
use types::{NodeId, VolumeEpoch, VolumeId};

/// What was let in has so long to end: far less than ANATT (10 s), after which Linux resets the controller. Else the volume
/// stays.
const QUIET_WAIT: Duration = Duration::from_secs(2);
/// The map has so long to answer. Else the volume stays, as far as this node knows.
const MAP_WAIT: Duration = Duration::from_secs(3);
/// Who orders a move waits so long to see that it was taken; it may be taken later.
const TAKEN_WAIT: Duration = Duration::from_millis(1500);
/// Between two looks at whether it was.
const LOOK_WAIT: Duration = Duration::from_millis(20);

impl Assembly {
    /// Makes another node the head of a volume, and its home: it serves the volume when this returns. Of a head that is gone
    /// any node can be asked.
    ///
    /// # Errors
    /// It stays where it is, or nobody has seen the other node serve it yet; the error says which.
    pub async fn move_volume(&self, name: &str, to: NodeId) -> Result<VolumeInfo, VolumeError> {
        let info = self.served(name)?;
        self.moves_not(&info)?;
        let stays = |why: &str| VolumeError::NoWayThere { volume: name.to_owned(), to, why: why.to_owned() };
        if to.is_client() || !self.0.heads.is_alive(to) {
            return Err(stays("it is not up (`cairn node ls` says which are)"));
        }
        if info.encryption == Encryption::Unlocked && !self.has_key(info.id, to).await? {
            return Err(stays("it does not have the volume's key: `cairn volume unlock` gives it to all nodes"));
        }
        let given = match self.reign(info.id) {
            Some(_) => self.hand_over(info.id, to, Stay::ForGood).await?,
            None if self.0.heads.is_alive(info.head) => {
                return Err(VolumeError::Elsewhere { volume: name.to_owned(), head: info.head });
            }
            None => self.give_what_nobody_serves(info.id, to).await?,
        };
        match self.until_taken(&given, to).await? {
            Some(taken) => Ok(VolumeInfo { placed: self.placed(taken.table), ..volume_info(&taken) }),
            None => {
                Err(stays("it was given the volume and does not serve it yet: `cairn volume info` says when it does"))
            }
        }
    }

    /// Whether a node can read and write what a volume that is unlocked here holds.
    async fn has_key(&self, id: VolumeId, node: NodeId) -> Result<bool, VolumeError> {
        if node == self.0.id {
            return Ok(true);
        }
        let found = get::<VolumeRecord>(&*self.0.map, &keys::volume(id)).await?;
        let volume = found.ok_or(cluster::CatalogError::Gone(id))?.record;
        Ok(self.0.heads.wishes().has_key(node, &volume))
    }

    /// The head of it has no session: whoever asks may say who is next.
    async fn give_what_nobody_serves(&self, id: VolumeId, to: NodeId) -> Result<VolumeRecord, VolumeError> {
        let found = get::<VolumeRecord>(&*self.0.map, &keys::volume(id)).await?;
        let was = found.ok_or(cluster::CatalogError::Gone(id))?.record;
        let by = Reign { node: was.head, epoch: was.volume_epoch };
        Ok(give_head(&*self.0.map, id, by, to, Stay::ForGood).await?)
    }

    /// Lets nothing more in, waits for what was let in, and gives the volume away. On an error this node serves it as before,
    /// as far as it is known to be the head.
    pub(super) async fn hand_over(&self, id: VolumeId, to: NodeId, stay: Stay) -> Result<VolumeRecord, VolumeError> {
        // Nobody stops for a map that is away (H18).
        let answers = runtime::timeout(MAP_WAIT, get::<VolumeRecord>(&*self.0.map, &keys::volume(id))).await;
        let found = answers.unwrap_or(Err(cluster::CatalogError::from(MapError::Unknown)))?;
        let head = found.ok_or(cluster::CatalogError::Gone(id))?.record.head;
        let Some(by) = self.begin_move(id, to, head).await? else {
            // It is here, and is to stay here.
            let _alone = self.0.changing.one(id).await;
            let by = self.reign(id).ok_or_else(|| self.not_served(id, to, head))?;
            return Ok(give_head(&*self.0.map, id, by, to, stay).await?);
        };
        let given = match self.until_quiet(id).await {
            Ok(()) => match runtime::timeout(MAP_WAIT, give_head(&*self.0.map, id, by, to, stay)).await {
                Ok(given) => given.map_err(VolumeError::from),
                Err(_) => Err(VolumeError::Map(MapError::Unknown.into())),
            },
            Err(busy) => Err(busy),
        };
        // Whoever changes something else may wait for a map that is away, for as long as that is (H18): a volume that is
        // changing does not wait for them. What decides is looked at in one piece, and cores are told in this order.
        self.0.heads.moves_no_more(id);
        match &given {
            // What is let in from now on is told where it is served.
            Ok(_) if self.reign(id) == Some(by) => {
                self.0.heads.serves_no_more(id);
                self.stand(id, Standing::Elsewhere).await;
            }
            Err(_) if self.reign(id) == Some(by) => self.stand(id, Standing::Here).await,
            // Another has become the head meanwhile, or this node once more: whoever heard of it has said where it is served.
            Ok(_) | Err(_) => {}
        }
        given
    }

    /// From here on the volume is changing. `None`: it is to go where it is. One move of a volume at a time.
    /// `head`: of the volume, as the map says.
    async fn begin_move(&self, id: VolumeId, to: NodeId, head: NodeId) -> Result<Option<Reign>, VolumeError> {
        let _alone = self.0.changing.one(id).await;
        let by = self.reign(id).ok_or_else(|| self.not_served(id, to, head))?;
        if to == self.0.id {
            return Ok(None);
        }
        if !self.0.heads.begins_to_move(id) {
            let volume = self.name_of(id);
            return Err(VolumeError::NoWayThere { volume, to, why: "it is on its way to a node already".to_owned() });
        }
        self.stand(id, Standing::Changing).await;
        Ok(Some(by))
    }

    /// Why a volume that the map knows cannot be given away here: another node has it, or this one does not serve it yet.
    fn not_served(&self, volume: VolumeId, to: NodeId, head: NodeId) -> VolumeError {
        if head != self.0.id {
            return VolumeError::Map(cluster::CatalogError::Deposed { volume, head });
        }
        VolumeError::NoWayThere { volume: self.name_of(volume), to, why: "it is not served here yet".to_owned() }
    }

    pub(super) async fn until_quiet(&self, id: VolumeId) -> Result<(), VolumeError> {
        let quiet = self.on_all_cores(move |head| {
            Box::pin(async move {
                if let Some(volume) = head.directory.by_id(id) {
                    volume.state.quiet().await;
                }
            })
        });
        let too_late = |_| VolumeError::Busy { volume: self.name_of(id), seconds: QUIET_WAIT.as_secs() };
        runtime::timeout(QUIET_WAIT, quiet).await.map_err(too_late)
    }

    fn name_of(&self, id: VolumeId) -> String {
        let volumes = self.0.volumes.borrow();
        volumes.values().find(|info| info.id == id).map_or_else(|| id.to_string(), |info| info.name.clone())
    }

    /// The volume as the node that was given it serves it.
    pub(super) async fn until_taken(
        &self,
        given: &VolumeRecord,
        to: NodeId,
    ) -> Result<Option<VolumeRecord>, VolumeError> {
        let key = keys::volume(given.id);
        let is_taken = |volume: &VolumeRecord| {
            let VolumeEpoch(given) = given.volume_epoch;
            volume.head != to || volume.volume_epoch.0 > given || to == self.0.id && self.0.heads.serves(volume.id)
        };
        let looked = runtime::timeout(TAKEN_WAIT, async {
            loop {
                match get::<VolumeRecord>(&*self.0.map, &key).await {
                    Ok(None) => return Err(VolumeError::Map(cluster::CatalogError::Gone(given.id))),
                    Ok(Some(found)) if is_taken(&found.record) => return Ok(found.record),
                    Ok(Some(_)) | Err(_) => runtime::sleep(LOOK_WAIT).await,
                }
            }
        });
        looked.await.ok().transpose()
    }
}

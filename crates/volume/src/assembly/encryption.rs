//! Encrypted volumes: made, locked, unlocked, given other secrets; and how pools compress.
//!
//! A family of volumes has one data key, and is locked or unlocked as a whole. After a start all are locked. A locked
//! volume is in the map, in every list, and in no core's directory: nobody can read or write it. What moves no data
//! works on it as on any other: snapshots, clones, rollbacks, growth, trash and deletion.
//!
//! Wrapping and unwrapping take a fifth of a second of a core each: they are not done here, but where nobody serves.

use super::changing::Alone;
use super::{Assembly, VolumeError};
use crate::api::{Encryption, Standing, VolumeInfo};
use crate::coding::{DataKey, KeyPlace};
use crate::head::{Head, VolumeState};
use crate::message::LocalFuture;
use crate::spec::VolumeSpec;
use cluster::{
    CatalogError, Cipher, Compression, KeyRecord, KeyWrap, NewVolume, PoolRecord, Versioned, VolumeRecord,
    VolumeState as Life, WantedPlace, key_record, keys, list, new_key_id, set_compression, set_wraps,
};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use types::{FamilyId, KeyId, Mutant, VolumeId, mutant};

impl Assembly {
    /// Where the data key of a volume to be made belongs; it is wrapped for this place.
    pub async fn new_key_place(&self) -> Result<KeyPlace, VolumeError> {
        Ok(KeyPlace { cluster: self.0.cluster, key: new_key_id(&*self.0.map).await? })
    }

    /// Makes a volume whose blocks are encrypted with `key`, for which `wrap` was made at `place`; it is unlocked, and
    /// every core serves it when this returns.
    pub async fn create_encrypted_volume(
        &self,
        new: NewVolume,
        place: KeyPlace,
        key: DataKey,
        wrap: KeyWrap,
    ) -> Result<VolumeInfo, VolumeError> {
        self.create_encrypted_volume_at(new, &WantedPlace::default(), (place, key, wrap)).await
    }

    /// The same, where it is wanted.
    pub async fn create_encrypted_volume_at(
        &self,
        new: NewVolume,
        wanted: &WantedPlace,
        (place, key, wrap): (KeyPlace, DataKey, KeyWrap),
    ) -> Result<VolumeInfo, VolumeError> {
        let _keying = self.0.keying.lock().await;
        self.check_free(&new.name)?;
        let record = KeyRecord {
            id: place.key,
            family: FamilyId::default(),
            cipher: Cipher::Aes256Xts,
            created_at_ns: wrap.created_at_ns,
            wraps: vec![wrap],
        };
        let _making = self.0.changing.making();
        let volume = self.create_with_key(&new, wanted, &record).await?;
        let _alone = self.0.changing.one(volume.id).await;
        self.0.keys.borrow_mut().insert(place.key, Arc::new(key));
        self.add(&volume).await?;
        self.served(&new.name)
    }

    /// The record of a volume's data key.
    ///
    /// # Errors
    /// [`VolumeError::NotEncrypted`] if it has none.
    pub async fn key_record(&self, volume: &str) -> Result<Versioned<KeyRecord>, VolumeError> {
        let id = self.key_of(volume).await?;
        Ok(key_record(&*self.0.map, id).await?)
    }

    /// The records of all data keys of volumes that are locked now.
    pub async fn locked_keys(&self) -> Result<Vec<KeyRecord>, VolumeError> {
        let records = list::<KeyRecord>(&*self.0.map, keys::DATA_KEYS).await?.into_iter().map(|found| found.record);
        Ok(records.filter(|record| !self.0.keys.borrow().contains_key(&record.id)).collect())
    }

    /// Unlocks all volumes of the key's family; every core serves them when this returns. Nothing to do if they are.
    pub async fn unlock(&self, id: KeyId, key: DataKey) -> Result<(), VolumeError> {
        let _keying = self.0.keying.lock().await;
        // Its record may have gone with its last volume meanwhile.
        key_record(&*self.0.map, id).await?;
        let (family, _alone) = self.alone_with_family(id).await?;
        self.0.keys.borrow_mut().entry(id).or_insert_with(|| Arc::new(key));
        for volume in family {
            if self.0.head.directory.by_id(volume.id).is_none() {
                let is_here = self.0.heads.is_mine(&volume);
                let listed = self.list(&volume, if is_here { Standing::Here } else { Standing::Elsewhere }).await;
                if let Err(error) = &listed {
                    // The key is here: it is served as soon as the map answers.
                    self.0.heads.is_looked_at_again(volume.id, error);
                }
                listed?;
            }
        }
        self.tell_locked().await;
        Ok(())
    }

    /// Locks all volumes of the volume's family. When this returns no core serves them, no command of them runs, and no
    /// core has their key.
    pub async fn lock(&self, volume: &str) -> Result<VolumeInfo, VolumeError> {
        let _keying = self.0.keying.lock().await;
        let id = self.key_of(volume).await?;
        // Whoever changes one of them goes on with it as it is then: without its key while it is served nobody could use it.
        let (family, _alone) = self.alone_with_family(id).await?;
        self.0.keys.borrow_mut().remove(&id);
        for volume in family {
            let locked = self.spec(&volume).await?;
            self.0.volumes.borrow_mut().insert(locked.info.name.clone(), locked.info.clone());
            let id = volume.id;
            self.on_all_cores(move |head| Box::pin(async move { take_from(&head, id).await })).await;
            // Only when nothing runs on any core: what does needs the key.
            self.on_all_cores(move |head| {
                let locked = locked.clone();
                Box::pin(async move { lock_here(&head, id, locked) })
            })
            .await;
        }
        self.forget_contexts().await;
        self.tell_locked().await;
        self.served(volume)
    }

    /// Gives a data key other wraps: from now on it opens with their secrets. No block is touched.
    ///
    /// # Errors
    /// If the record is not of that revision any more.
    pub async fn set_wraps(&self, was: Versioned<KeyRecord>, wraps: Vec<KeyWrap>) -> Result<(), VolumeError> {
        let _keying = self.0.keying.lock().await;
        Ok(set_wraps(&*self.0.map, was, wraps).await?)
    }

    /// Compresses what is written to the pool's volumes like this, from the moment when this returns. What is stored
    /// stays as it is, and readable.
    pub async fn set_compression(&self, pool: &str, compression: Compression) -> Result<PoolRecord, VolumeError> {
        let changed = set_compression(&*self.0.map, pool, compression).await?;
        let volumes = list::<VolumeRecord>(&*self.0.map, keys::VOLUMES).await?;
        for VolumeRecord { id, .. } in volumes.into_iter().map(|found| found.record).filter(|of| of.pool == pool) {
            let _alone = self.0.changing.one(id).await;
            if let Some(volume) = self.online(id).await? {
                self.refresh(&volume).await?;
            }
        }
        Ok(changed)
    }

    async fn key_of(&self, volume: &str) -> Result<KeyId, VolumeError> {
        let info = self.served(volume)?;
        let found = cluster::get::<VolumeRecord>(&*self.0.map, &keys::volume(info.id)).await?;
        let record = found.ok_or(CatalogError::Gone(info.id))?.record;
        record.key.ok_or_else(|| VolumeError::NotEncrypted(volume.to_owned()))
    }

    /// The volumes that are encrypted with the key and used; nobody else changes any of the family, those in the trash included.
    async fn alone_with_family(&self, id: KeyId) -> Result<(Vec<VolumeRecord>, Alone), VolumeError> {
        let mut ids = Vec::new();
        loop {
            let alone = self.0.changing.all(&ids).await;
            let volumes = list::<VolumeRecord>(&*self.0.map, keys::VOLUMES).await?;
            let volumes = volumes.into_iter().map(|found| found.record);
            let family: Vec<VolumeRecord> = volumes.filter(|volume| volume.key == Some(id)).collect();
            // A clone may have come meanwhile.
            if family.iter().all(|volume| alone.is_with(volume.id)) {
                return Ok((family.into_iter().filter(|volume| volume.state == Life::Online).collect(), alone));
            }
            ids = family.iter().map(|volume| volume.id).collect();
        }
    }

    /// The volume as the map says now, if it is used.
    async fn online(&self, id: VolumeId) -> Result<Option<VolumeRecord>, VolumeError> {
        let found = cluster::get::<VolumeRecord>(&*self.0.map, &keys::volume(id)).await?;
        Ok(found.map(|found| found.record).filter(|volume| volume.state == Life::Online))
    }

    /// What the cores made of keys goes when no core has them any more.
    async fn forget_contexts(&self) {
        let forget =
            |head: Rc<Head>| Box::pin(async move { head.coder.borrow_mut().forget_unheld_keys() }) as LocalFuture;
        self.on_all_cores(forget).await;
    }

    /// Forgets keys whose record has gone with the last volume of its family.
    pub(super) async fn forget_keys(&self) -> Result<(), VolumeError> {
        // One that comes while the map is asked is not in its answer.
        let had: BTreeSet<KeyId> = self.0.keys.borrow().keys().copied().collect();
        if had.is_empty() {
            return Ok(());
        }
        let records = list::<KeyRecord>(&*self.0.map, keys::DATA_KEYS).await?;
        let there: BTreeSet<KeyId> = records.into_iter().map(|found| found.record.id).collect();
        let count = self.0.keys.borrow().len();
        self.0.keys.borrow_mut().retain(|id, _| there.contains(id) || !had.contains(id));
        if self.0.keys.borrow().len() < count {
            self.forget_contexts().await;
        }
        Ok(())
    }

    /// Lets every core know which volumes are locked, for those who ask for one.
    pub(super) async fn tell_locked(&self) {
        let is_locked = |volume: &&VolumeInfo| volume.encryption == Encryption::Locked;
        let names = self.0.volumes.borrow().values().filter(is_locked).map(|volume| volume.name.clone()).collect();
        let names: Arc<BTreeSet<String>> = Arc::new(names);
        self.on_all_cores(move |head| {
            let names = names.clone();
            Box::pin(async move { head.directory.set_locked(names) })
        })
        .await;
    }
}

/// Takes the volume away from this core.
async fn take_from(head: &Rc<Head>, id: VolumeId) {
    if head.index == 0 || !mutant(Mutant::LockedOnOneCore) {
        VolumeState::remove(head, id).await;
    }
}

/// Clients that are left hold it without its key.
fn lock_here(head: &Head, id: VolumeId, locked: Arc<VolumeSpec>) {
    if let Some(volume) = VolumeState::forget(head, id) {
        volume.gate.open(locked);
    }
}

//! Orders about encrypted volumes and pools: what the admin API asks of the control core, and how that answers.
//!
//! A secret is turned into a key on a thread of its own (a fifth of a second of work, by intention), one at a time: no
//! core that serves waits for it, and the memory it takes is bounded.

use crate::control::{Answer, ControlError};
use crate::files::FileError;
use crate::local_node::{control_error, tell};
use crate::secret::read_key_file;
use crate::volume_spec::VolumeName;
use cluster::{Compression, KeyRecord, KeyWrap, PoolRecord};
use runtime::channel::cross;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use types::ClusterId;
use volume::{Assembly, DataKey, KeyError, KeyPlace, NewVolume, Secret, VolumeError, VolumeInfo, WantedPlace};

/// Secrets that open one data key: each is tried in turn, and takes its time.
const SECRETS_MAX: usize = 4;

/// What the control core is asked.
#[derive(Debug)]
pub enum KeyRequest {
    /// Make an encrypted volume that opens with the secret.
    Create(NewVolume, WantedPlace, Secret, Answer<VolumeInfo>),
    /// Unlock a volume and its family.
    Unlock(VolumeName, Secret, Answer<VolumeInfo>),
    /// Lock a volume and its family.
    Lock(VolumeName, Answer<VolumeInfo>),
    /// Change the secrets that open a volume and its family.
    Rekey(VolumeName, Secret, SecretChange, Answer<VolumeInfo>),
    /// Compress what is written to a pool from now on like this.
    SetCompression(String, Compression, Answer<PoolRecord>),
}

/// What becomes of the secret that opens a volume.
#[derive(Clone, Debug)]
pub enum SecretChange {
    /// This one opens it instead.
    Replace(Secret),
    /// This one opens it, too.
    Add(Secret),
    /// It opens it no more.
    Remove,
}

/// Carries an order out. Nobody may be waiting for the answer any more: it was carried out all the same.
pub(crate) async fn answer(assembly: Assembly, request: KeyRequest) {
    match request {
        KeyRequest::Create(new, wanted, secret, reply) => {
            drop(reply.send(create(&assembly, (new, wanted), secret).await));
        }
        KeyRequest::Unlock(name, secret, reply) => drop(reply.send(unlock(&assembly, &name, secret).await)),
        KeyRequest::Lock(name, reply) => tell(reply, assembly.lock(name.as_str()).await),
        KeyRequest::Rekey(name, secret, change, reply) => {
            drop(reply.send(rekey(&assembly, &name, secret, change).await));
        }
        KeyRequest::SetCompression(pool, compression, reply) => {
            tell(reply, assembly.set_compression(&pool, compression).await);
        }
    }
}

/// Runs long work beside the cores.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ControlError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let (done, mut told) = cross(1);
    let started = std::thread::Builder::new().name("key".to_owned()).spawn(move || {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = done.try_send(work());
    });
    started.map_err(|error| ControlError::Unavailable(format!("cannot start a thread ({error}): try again later")))?;
    told.recv().await.map_err(|_| ControlError::Unavailable("a thread ended early: look at the log".to_owned()))
}

async fn create(
    assembly: &Assembly,
    (new, wanted): (NewVolume, WantedPlace),
    secret: Secret,
) -> Result<VolumeInfo, ControlError> {
    let place = assembly.new_key_place().await.map_err(control_error)?;
    let now_ns = runtime::wall_clock_ns();
    let made = beside(move || {
        let key = DataKey::random()?;
        let wrap = key.wrap(place, &secret, now_ns)?;
        Ok::<_, KeyError>((key, wrap))
    });
    let (key, wrap) = made.await?.map_err(key_error)?;
    assembly.create_encrypted_volume_at(new, &wanted, (place, key, wrap)).await.map_err(control_error)
}

async fn unlock(assembly: &Assembly, name: &VolumeName, secret: Secret) -> Result<VolumeInfo, ControlError> {
    let record = match assembly.key_record(name.as_str()).await {
        // Another node may have made it just now.
        Err(VolumeError::NotFound(_)) => {
            assembly.catch_up().await.map_err(control_error)?;
            assembly.key_record(name.as_str()).await
        }
        found => found,
    };
    let record = record.map_err(control_error)?.record;
    let (cluster, id) = (assembly.cluster_id(), record.id);
    let opened = beside(move || DataKey::unwrap(cluster, &record, &secret)).await?;
    let (key, _) = opened.map_err(key_error)?;
    assembly.unlock(id, key).await.map_err(control_error)?;
    info(assembly, name)
}

async fn rekey(
    assembly: &Assembly,
    name: &VolumeName,
    secret: Secret,
    change: SecretChange,
) -> Result<VolumeInfo, ControlError> {
    let found = assembly.key_record(name.as_str()).await.map_err(control_error)?;
    let (cluster, record) = (assembly.cluster_id(), found.record.clone());
    let now_ns = runtime::wall_clock_ns();
    let wraps = beside(move || changed_wraps(cluster, &record, &secret, &change, now_ns)).await??;
    assembly.set_wraps(found, wraps).await.map_err(control_error)?;
    info(assembly, name)
}

fn info(assembly: &Assembly, name: &VolumeName) -> Result<VolumeInfo, ControlError> {
    let found = assembly.volumes().into_iter().find(|volume| volume.name == name.as_str());
    found.ok_or_else(|| ControlError::NotFound(name.to_string()))
}

/// The wraps of a key once its secrets are changed; who changes them must know one of them.
fn changed_wraps(
    cluster: ClusterId,
    record: &KeyRecord,
    secret: &Secret,
    change: &SecretChange,
    now_ns: u64,
) -> Result<Vec<KeyWrap>, ControlError> {
    let (key, place_of_old) = DataKey::unwrap(cluster, record, secret).map_err(key_error)?;
    let mut wraps = record.wraps.clone();
    match change {
        SecretChange::Remove if wraps.len() == 1 => {
            let only =
                "it is the only secret that opens this volume: add another one first, or nobody could read it again";
            return Err(ControlError::Refused(only.to_owned()));
        }
        SecretChange::Remove => drop(wraps.remove(place_of_old)),
        SecretChange::Replace(new) => wraps[place_of_old] = new_wrap(cluster, record, &key, new, now_ns)?,
        SecretChange::Add(_) if wraps.len() >= SECRETS_MAX => {
            let many = format!("{SECRETS_MAX} secrets open this volume already: remove one of them first");
            return Err(ControlError::Refused(many));
        }
        SecretChange::Add(new) => wraps.push(new_wrap(cluster, record, &key, new, now_ns)?),
    }
    Ok(wraps)
}

/// The key wrapped for a secret that does not open it yet.
fn new_wrap(
    cluster: ClusterId,
    record: &KeyRecord,
    key: &DataKey,
    new: &Secret,
    now_ns: u64,
) -> Result<KeyWrap, ControlError> {
    if DataKey::unwrap(cluster, record, new).is_ok() {
        let same = "the new secret opens this volume already: give one that it does not know";
        return Err(ControlError::Refused(same.to_owned()));
    }
    let place = KeyPlace { cluster, key: record.id };
    key.wrap(place, new, now_ns).map_err(key_error)
}

fn key_error(error: KeyError) -> ControlError {
    match error {
        KeyError::Wrong(_) | KeyError::OtherKind { .. } => ControlError::WrongSecret(error.to_string()),
        KeyError::Length { .. } | KeyError::Damaged(_) => ControlError::Refused(error.to_string()),
        KeyError::Library(_) => ControlError::Unavailable(error.to_string()),
    }
}

/// Tries each key file on each locked family. What does not open is told, and the node starts all the same.
pub(crate) async fn unlock_at_start(assembly: &Assembly, key_files: &[PathBuf]) {
    for path in key_files {
        if let Err(error) = try_key_file(assembly, path).await {
            log::error!("the key file {} is of no use: {error}", path.display());
        }
    }
    for volume in assembly.volumes() {
        if volume.encryption == volume::Encryption::Locked {
            log::warn!("volume {0} is locked: `cairn volume unlock {0} --key-file PATH` serves it", volume.name);
        }
    }
}

async fn try_key_file(assembly: &Assembly, path: &Path) -> Result<(), String> {
    let locked = assembly.locked_keys().await.map_err(|error| error.to_string())?;
    if locked.is_empty() {
        return Ok(());
    }
    let (cluster, path) = (assembly.cluster_id(), path.to_owned());
    let opened = beside(move || {
        let secret = read_key_file(&path)?;
        let open = |record: &KeyRecord| Some((record.id, DataKey::unwrap(cluster, record, &secret).ok()?.0));
        Ok::<Vec<_>, FileError>(locked.iter().filter_map(open).collect())
    });
    let opened = opened.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    if opened.is_empty() {
        return Err("it opens none of the locked volumes".to_owned());
    }
    for (id, key) in opened {
        assembly.unlock(id, key).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Cipher, SecretKind};
    use types::{FamilyId, KeyId};

    const CLUSTER: ClusterId = ClusterId(9);

    fn secret(byte: u8) -> Secret {
        Secret::new(SecretKind::KeyFile, vec![byte; 32].into()).unwrap()
    }

    fn record(wraps: Vec<KeyWrap>) -> KeyRecord {
        KeyRecord { id: KeyId(1), family: FamilyId(1), cipher: Cipher::Aes256Xts, wraps, created_at_ns: 0 }
    }

    fn opens(wraps: &[KeyWrap], byte: u8) -> bool {
        DataKey::unwrap(CLUSTER, &record(wraps.to_vec()), &secret(byte)).is_ok()
    }

    #[test]
    fn secrets_are_replaced_added_and_removed_by_who_knows_one() {
        let key = DataKey::random().unwrap();
        let first = key.wrap(KeyPlace { cluster: CLUSTER, key: KeyId(1) }, &secret(1), 0).unwrap();
        let change = |wraps: &[KeyWrap], byte, change| {
            changed_wraps(CLUSTER, &record(wraps.to_vec()), &secret(byte), &change, 0)
        };
        let one = vec![first];
        let replaced = change(&one, 1, SecretChange::Replace(secret(2))).unwrap();
        assert!(replaced.len() == 1 && opens(&replaced, 2) && !opens(&replaced, 1));
        let both = change(&replaced, 2, SecretChange::Add(secret(3))).unwrap();
        assert!(both.len() == 2 && opens(&both, 2) && opens(&both, 3));
        let last = change(&both, 2, SecretChange::Remove).unwrap();
        assert!(last.len() == 1 && opens(&last, 3) && !opens(&last, 2));

        assert!(matches!(change(&one, 2, SecretChange::Remove), Err(ControlError::WrongSecret(_))));
        for (wraps, byte, refused, named) in [
            (&one, 1, SecretChange::Remove, "only secret"),
            (&both, 2, SecretChange::Replace(secret(3)), "already"),
            (&one, 1, SecretChange::Replace(secret(1)), "already"),
        ] {
            let error = change(wraps, byte, refused).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        let full = vec![one[0].clone(); SECRETS_MAX];
        let error = change(&full, 1, SecretChange::Add(secret(4))).unwrap_err().to_string();
        assert!(error.contains("remove one"), "{error}");
    }
}

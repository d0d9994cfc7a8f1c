//! Who keeps the key of the volume that all clients use: unlocks it at each start, and locks it now and then under
//! their feet. Whatever is asked of a locked volume, or of one of its clones, is refused and does nothing. In runs that
//! compress he tells the pool now and then to do it otherwise.

use super::client::Clients;
use super::door::Trouble;
use super::machine::{Serving, VOLUME, new_volume};
use super::profile::{self, Profile};
use cluster::{Compression, DEFAULT_POOL, KeyWrap, ScryptCost, SecretKind};
use runtime::channel::cross;
use runtime::random_u64;
use std::sync::Arc;
use std::time::Duration;
use types::{BLOCK_BYTES, KeyId};
use volume::{Assembly, DataKey, Directory, Encryption, IoError, VolumeError};

/// Longest that the volume stays locked: clients shall have done something when the node ends.
const LONGEST_LOCKED_NS: u64 = 500_000;

/// What clients know of the lock. Each step is taken before something is asked or after it was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Open, about to be locked, locked, about to be opened, and again.
    steps: u64,
}

impl Lock {
    pub fn is_open(self) -> bool {
        self.steps.is_multiple_of(4)
    }

    fn is_locked(self) -> bool {
        self.steps % 4 == 2
    }

    fn step(&mut self) {
        self.steps += 1;
    }

    /// An answer to what was asked when the lock was as here, through a door that was opened when it was `at_opening`.
    pub fn judge<T>(self, now: Self, at_opening: Self, answer: Result<T, Trouble>) -> Result<T, Trouble> {
        match answer {
            Ok(_) if self.is_locked() && self == now => Err(Trouble::Wrong("done while the volume was locked".into())),
            // Who was sent away has to come again.
            Err(Trouble::Gone(_)) if !now.is_open() || now != at_opening => Err(Trouble::Locked),
            answer => answer,
        }
    }
}

/// Makes the judged volume if it is missing, and unlocks it.
pub async fn make_ready(assembly: &Assembly, profile: &Profile) -> Result<(), VolumeError> {
    if assembly.volumes().iter().all(|volume| volume.name != VOLUME) {
        if profile.compression != Compression::Off {
            assembly.set_compression(DEFAULT_POOL, profile.compression).await?;
        }
        let new = new_volume(VOLUME, profile.block_bytes as u32);
        if profile.encrypted {
            let place = assembly.new_key_place().await?;
            assembly.create_encrypted_volume(new, place, data_key(place.key), unused_wrap()).await?;
        } else {
            assembly.create_volume(new).await?;
        }
    }
    if profile.encrypted { unlock(assembly).await } else { Ok(()) }
}

async fn unlock(assembly: &Assembly) -> Result<(), VolumeError> {
    let id = assembly.key_record(VOLUME).await?.record.id;
    assembly.unlock(id, data_key(id)).await
}

/// The same in each run of a seed.
pub fn data_key(id: KeyId) -> DataKey {
    DataKey::from_bytes(std::array::from_fn(|index| (index as u8).wrapping_mul(7) ^ id.0 as u8))
}

/// The keeper remembers the key. To wrap it takes a fifth of a second and real random numbers, and is no business of
/// the data path.
pub fn unused_wrap() -> KeyWrap {
    KeyWrap {
        kind: SecretKind::KeyFile,
        scrypt: ScryptCost { log2_n: 1, r: 1, p: 1 },
        salt: vec![0; 32],
        nonce: vec![0; 12],
        ciphertext: vec![0; DataKey::BYTES],
        tag: vec![0; 16],
        created_at_ns: 0,
    }
}

/// One who is at work on a node that serves.
pub struct Keeper {
    assembly: Assembly,
    clients: Arc<Clients>,
}

impl Keeper {
    pub fn new(serving: &Serving, clients: &Arc<Clients>) -> Self {
        Self { assembly: serving.assembly.clone(), clients: clients.clone() }
    }

    /// Goes on until clients are stopped.
    pub async fn run(self) {
        let Profile { encrypted, compression, longest_log2_ns, .. } = self.clients.profile;
        loop {
            let magnitude = 14 + random_u64() % (longest_log2_ns - 14);
            runtime::sleep(Duration::from_nanos(random_u64() % (1 << magnitude))).await;
            if self.clients.stopped() {
                break;
            }
            let compresses = compression != Compression::Off;
            let done = match encrypted && (!compresses || !random_u64().is_multiple_of(4)) {
                true => self.lock_for_a_while().await,
                false => self.compress_otherwise().await,
            };
            if let Err(error) = done {
                self.judge(&error);
                break;
            }
        }
        self.clients.end();
    }

    async fn compress_otherwise(&self) -> Result<(), VolumeError> {
        let all = [Compression::Off, Compression::Lz4, Compression::Zstd];
        let compression = all[random_u64() as usize % all.len()];
        self.assembly.set_compression(DEFAULT_POOL, compression).await.map(drop)
    }

    async fn lock_for_a_while(&self) -> Result<(), VolumeError> {
        let held = self.assembly.directory().by_name(VOLUME);
        self.clients.ledger().lock.step();
        let told = self.assembly.lock(VOLUME).await?;
        self.clients.ledger().lock.step();
        self.clients.ledger().counts.locks += 1;
        if told.encryption != Encryption::Locked {
            self.clients.fail("lock", format!("the volume was locked and is {:?}", told.encryption));
        }
        if let Some(held) = held {
            match held.read(0, BLOCK_BYTES as u32).await {
                Err(IoError::Gone(_)) => {}
                answer => self.clients.fail("lock", format!("a locked volume that somebody held gave {answer:?}")),
            }
        }
        self.look_on_all_cores().await;
        runtime::sleep(Duration::from_nanos(random_u64() % LONGEST_LOCKED_NS)).await;
        self.clients.ledger().lock.step();
        unlock(&self.assembly).await?;
        self.clients.ledger().lock.step();
        Ok(())
    }

    /// No core serves anything that needs the key, and each says why.
    async fn look_on_all_cores(&self) {
        let cores = self.clients.profile.cores;
        let (told, mut all_told) = cross(cores);
        for core in 0..cores {
            let (told, clients) = (told.clone(), self.clients.clone());
            self.assembly.spawn_on(core, move |directory: Directory| async move {
                let served = directory.list().into_iter().map(|volume| volume.info());
                let served: Vec<String> =
                    served.filter(|info| info.encryption != Encryption::Off).map(|info| info.name).collect();
                if !served.is_empty() || !directory.is_locked(VOLUME) {
                    clients.fail("lock", format!("core {core} serves {served:?} of a locked family"));
                }
                let _ = told.send(()).await;
            });
        }
        for _ in 0..cores {
            let _ = all_told.recv().await;
        }
    }

    /// Only a disk that fails, or the end of the node, may prevent what was asked.
    fn judge(&self, error: &VolumeError) {
        let disk_fails = self.clients.profile.trouble == profile::Trouble::Disk;
        if !disk_fails && !self.clients.is_closing() {
            self.clients.fail("error", error);
        }
    }
}

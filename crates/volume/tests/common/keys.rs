//! Encrypted volumes, and nodes of which some have their keys.

use super::new_volume;
use super::nodes::Cluster;
use cluster::SecretKind;
use std::time::Duration;
use volume::{Assembly, DataKey, KeyError, Secret, Standing, VolumeInfo};

pub const SIZE: u64 = 2 << 20;

pub fn key_file(byte: u8) -> Secret {
    Secret::new(SecretKind::KeyFile, vec![byte; 32].into()).expect("long enough")
}

pub async fn create(assembly: &Assembly, name: &str, secret: &Secret) -> VolumeInfo {
    create_of(assembly, name, SIZE, secret).await
}

pub async fn create_of(assembly: &Assembly, name: &str, size_bytes: u64, secret: &Secret) -> VolumeInfo {
    let place = assembly.new_key_place().await.expect("an id");
    // The same run again has the same key.
    let key = DataKey::from_bytes(std::array::from_fn(|index| index as u8 ^ place.key.0 as u8));
    let wrap = key.wrap(place, secret, 1).expect("wrapped");
    assembly.create_encrypted_volume(new_volume(name, size_bytes), place, key, wrap).await.expect("made")
}

/// What `cairn volume unlock` does.
pub async fn unlock(assembly: &Assembly, name: &str, secret: &Secret) -> Result<(), KeyError> {
    let record = assembly.key_record(name).await.expect("it is encrypted").record;
    let (key, _) = DataKey::unwrap(assembly.cluster_id(), &record, secret)?;
    assembly.unlock(record.id, key).await.expect("unlocked");
    Ok(())
}

/// Of a head that is gone the one takes over that has the volume's key, whoever's turn would come before.
pub fn who_has_the_key_takes_over(seed: u64) {
    let cluster = Cluster::new(seed, 1);
    let secret = key_file(1);
    let (first, other) = (secret.clone(), secret);
    cluster.at(0, |assembly| async move { drop(create(&assembly, "a", &first).await) });
    cluster.pass(Duration::from_secs(1));
    cluster.at(2, |assembly| async move { unlock(&assembly, "a", &other).await.expect("unlocked") });
    cluster.pass(Duration::from_secs(3));
    cluster.crash(0);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.standing(2, "a"), Some(Standing::Here));
}

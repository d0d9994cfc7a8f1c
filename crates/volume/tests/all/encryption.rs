//! Encrypted volumes: who can use them and when, what works on them while they are locked, and what becomes of their
//! keys.

use crate::common::instant::{SEVERAL_SHARDS_BYTES, steady};
use crate::common::keys::{SIZE, create, create_of, key_file, unlock, who_has_the_key_takes_over};
use crate::common::nodes::{Cluster, node_id};
use crate::common::{Machine, Random, new_volume, payload, read_all};
use cluster::{
    Compression, DEFAULT_POOL, KeyRecord, LayerRecord, MapError, MapStore, PoolRecord, Record, Revision, SecretKind,
    Transaction, VolumeRecord, encode, get, keys, list,
};
use runtime::channel::cross;
use std::sync::Arc;
use std::time::Duration;
use types::KeyId;
use volume::{Assembly, DataKey, Encryption, IoError, KeyError, VolumeChange, VolumeError};

fn states(assembly: &Assembly) -> Vec<(String, Encryption)> {
    assembly.volumes().into_iter().map(|volume| (volume.name, volume.encryption)).collect()
}

async fn write(assembly: &Assembly, name: &str, bytes: &[u8]) {
    let volume = assembly.directory().by_name(name).expect("served");
    for (chunk, bytes) in bytes.chunks(1 << 20).enumerate() {
        volume.write((chunk as u64) << 20, payload(bytes)).await.expect("written");
    }
}

async fn holds(assembly: &Assembly, name: &str, bytes: &[u8]) -> bool {
    read_all(&assembly.directory().by_name(name).expect("served")).await == bytes
}

async fn key_records(map: &dyn MapStore) -> Vec<KeyRecord> {
    list::<KeyRecord>(map, keys::DATA_KEYS).await.expect("keys").into_iter().map(|found| found.record).collect()
}

#[test]
fn after_a_start_a_family_is_locked_until_one_secret_opens_all_of_it() {
    let machine = Machine::new(1, 2);
    let assembly = machine.start();
    let content = Random::new(1).bytes(SIZE as usize);
    let expected = content.clone();
    machine.run(async move {
        create(&assembly, "a", &key_file(1)).await;
        create(&assembly, "other", &key_file(2)).await;
        assembly.create_volume(new_volume("plain", SIZE)).await.expect("made");
        write(&assembly, "a", &content).await;
        assembly.create_snapshot("a", "s").await.expect("taken");
        assembly.clone_volume("a", "s", "b").await.expect("made");
        assert!(holds(&assembly, "b", &content).await);
        assembly.stop().await;
    });
    machine.crash();
    let assembly = machine.start();
    machine.run(async move {
        use Encryption::{Locked, Off, Unlocked};
        let told = |a, other| {
            [("a", a), ("b", a), ("other", other), ("plain", Off)]
                .map(|(name, state)| (name.to_owned(), state))
                .to_vec()
        };
        assert_eq!(states(&assembly), told(Locked, Locked));
        let directory = assembly.directory();
        assert!(directory.by_name("a").is_none() && directory.is_locked("a") && !directory.is_locked("plain"));
        assert_eq!(unlock(&assembly, "a", &key_file(2)).await, Err(KeyError::Wrong(SecretKind::KeyFile)));
        assert_eq!(states(&assembly), told(Locked, Locked));
        unlock(&assembly, "b", &key_file(1)).await.expect("the clone's is the family's");
        assert_eq!(states(&assembly), told(Unlocked, Locked));
        assert!(!directory.is_locked("a") && directory.is_locked("other"));
        for name in ["a", "b"] {
            assert!(holds(&assembly, name, &expected).await, "{name}");
        }
        unlock(&assembly, "a", &key_file(1)).await.expect("once more is no harm");
        let not = assembly.key_record("plain").await.expect_err("no key");
        assert_eq!(not, VolumeError::NotEncrypted("plain".to_owned()));
    });
}

#[test]
fn a_locked_volume_has_no_part_in_an_instant() {
    let machine = Machine::new(2, 1);
    let assembly = machine.start();
    machine.run(async move {
        create(&assembly, "a", &key_file(1)).await;
        assembly.create_volume(new_volume("b", 1 << 20)).await.expect("made");
        let wanted = ["a", "b"].map(|volume| cluster::Wanted { volume: volume.to_owned(), name: "s".to_owned() });
        assembly.create_snapshots(&wanted).await.expect("it is not locked");
        assembly.lock("a").await.expect("locked");
        let wanted = wanted.map(|wanted| cluster::Wanted { name: "t".to_owned(), ..wanted });
        let taken = assembly.create_snapshots(&wanted).await;
        assert!(
            matches!(&taken, Err(VolumeError::NotTogether(why)) if why.contains("volume a is locked")),
            "{taken:?}"
        );
        assert_eq!(assembly.snapshots("b").await.expect("readable").len(), 1);
        assembly.create_snapshot("b", "t").await.expect("it goes on by itself");
    });
}

#[test]
fn who_holds_a_volume_that_is_locked_can_do_nothing_with_it() {
    let machine = Machine::new(2, 2);
    let assembly = machine.start();
    machine.run(async move {
        create(&assembly, "a", &key_file(1)).await;
        write(&assembly, "a", &[7; 8192]).await;
        let held = assembly.directory().by_name("a").expect("served");
        let locked = assembly.lock("a").await.expect("locked");
        assert_eq!(locked.encryption, Encryption::Locked);
        for refused in [held.write(0, payload(&[8; 4096])).await, held.read(0, 4096).await.map(drop)] {
            assert!(matches!(&refused, Err(IoError::Gone(why)) if why.contains("locked")), "{refused:?}");
        }
        assert!(assembly.directory().by_nsid(locked.nsid).is_none());
        let (told, mut all_told) = cross(1);
        assembly.spawn_on(1, move |directory| async move {
            let _ = told.send(directory.by_name("a").is_none() && directory.is_locked("a")).await;
        });
        assert_eq!(all_told.recv().await, Ok(true), "on every core");
        unlock(&assembly, "a", &key_file(1)).await.expect("it opens");
        assert!(matches!(held.read(0, 4096).await, Err(IoError::Gone(_))), "who was sent away comes again");
        let again = assembly.directory().by_name("a").expect("served");
        assert_eq!(again.read(0, 4096).await.expect("readable").bytes[..], [7; 4096]);
    });
}

/// A command that waits for its turn on another core, through a snapshot and then a lock, is done on what the volume
/// was when its turn came.
#[test]
fn what_waits_on_another_core_while_a_volume_is_locked_goes_to_its_newest_layer() {
    const CHUNKS: u64 = 8;
    let machine = steady(8, 2, SEVERAL_SHARDS_BYTES, 100_000_000);
    let assembly = machine.start();
    machine.run(async move {
        create_of(&assembly, "a", CHUNKS << 20, &key_file(1)).await;
        let volume = assembly.directory().by_name("a").expect("served");
        for chunk in 0..CHUNKS {
            volume.write(chunk << 20, payload(&[1; 4096])).await.expect("written");
        }
        let (done, mut all_done) = cross(3 * CHUNKS as usize);
        // Of each chunk the first two read for long before they write; the second begins when the snapshot is taken,
        // and the third waits for it.
        for chunk in 0..CHUNKS {
            for (at, bytes) in [(0, vec![2; 512]), (512, vec![2; 512]), (0, vec![3; 4096])] {
                let (write, done) = (volume.write((chunk << 20) + at, payload(&bytes)), done.clone());
                runtime::spawn(async move {
                    let written = write.await;
                    done.send(written).await.expect("somebody waits");
                });
            }
        }
        runtime::sleep(Duration::from_millis(1)).await;
        assembly.create_snapshot("a", "s").await.expect("taken");
        assembly.lock("a").await.expect("locked");
        for _ in 0..3 * CHUNKS {
            all_done.recv().await.expect("it ends").expect("written");
        }
        unlock(&assembly, "a", &key_file(1)).await.expect("it opens");
        assembly.clone_volume("a", "s", "b").await.expect("made");
        let first_byte = async |name, chunk| {
            let volume = assembly.directory().by_name(name).expect("served");
            volume.read(chunk << 20, 4096).await.expect("readable").bytes[0]
        };
        for chunk in 0..CHUNKS {
            let found = (first_byte("a", chunk).await, first_byte("b", chunk).await);
            assert_eq!(found, (3, 2), "the volume and its snapshot, chunk {chunk}");
        }
    });
}

#[test]
fn what_moves_no_data_works_on_a_locked_volume() {
    let machine = Machine::new(3, 2);
    let assembly = machine.start();
    machine.run(async move {
        create(&assembly, "a", &key_file(1)).await;
        let (first, second) = (vec![1; SIZE as usize], vec![2; SIZE as usize]);
        write(&assembly, "a", &first).await;
        assembly.create_snapshot("a", "first").await.expect("taken");
        write(&assembly, "a", &second).await;
        assembly.lock("a").await.expect("locked");

        assembly.create_snapshot("a", "second").await.expect("taken");
        assert_eq!(assembly.snapshots("a").await.expect("listed").len(), 2);
        assembly.clone_volume("a", "second", "b").await.expect("made");
        assert_eq!(assembly.changed_blocks("a", "first", None).await.expect("told")[0].length_bytes, SIZE);
        assembly.roll_back("a", "first").await.expect("rolled back");
        assert_eq!(
            assembly.change_volume("a", &VolumeChange::size(2 * SIZE)).await.expect("grown").size_bytes,
            2 * SIZE
        );
        assembly.delete_snapshot("a", "first").await.expect("deleted");
        let trashed = assembly.trash_volume("b").await.expect("in the trash");
        assert!(!assembly.directory().is_locked("b"));
        let restored = assembly.restore_volume(trashed.info.id, Some("c")).await.expect("restored");
        assert_eq!(restored.encryption, Encryption::Locked);
        assembly.set_compression(DEFAULT_POOL, Compression::Zstd).await.expect("set");
        assert_eq!(assembly.usage().await.expect("told").len(), 2);

        unlock(&assembly, "c", &key_file(1)).await.expect("it opens");
        let grown = [first, vec![0; SIZE as usize]].concat();
        assert!(holds(&assembly, "a", &grown).await, "what it held when the snapshot was taken, and zeroes");
        assert!(holds(&assembly, "c", &second).await);
        let all = assembly.volumes();
        assert!(all.iter().all(|volume| volume.compression == Compression::Zstd), "{all:?}");
    });
}

#[test]
fn a_key_goes_with_the_last_volume_of_its_family() {
    let machine = Machine::new(4, 1);
    let (assembly, map) = (machine.start(), machine.map.clone());
    machine.run(async move {
        create(&assembly, "a", &key_file(1)).await;
        create(&assembly, "other", &key_file(2)).await;
        let layers = list::<LayerRecord>(&*map, keys::LAYERS).await.expect("layers");
        assert_eq!(layers.iter().map(|found| found.record.key_id).collect::<Vec<_>>(), [KeyId(1), KeyId(2)]);
        assembly.create_snapshot("a", "s").await.expect("taken");
        assembly.clone_volume("a", "s", "b").await.expect("made");
        assembly.delete_snapshot("a", "s").await.expect("deleted");
        assembly.lock("a").await.expect("locked");
        assembly.delete_volume("a").await.expect("deleted");
        all_gone(&assembly).await;
        assert_eq!(key_records(&*map).await.len(), 2, "the clone needs it");
        unlock(&assembly, "b", &key_file(1)).await.expect("it opens");

        let trashed = assembly.trash_volume("b").await.expect("in the trash");
        assert_eq!(key_records(&*map).await.len(), 2, "it may come back");
        assembly.empty_trash(trashed.info.id).await.expect("emptied");
        all_gone(&assembly).await;
        let left = key_records(&*map).await;
        assert_eq!(left.iter().map(|record| record.id).collect::<Vec<_>>(), [KeyId(2)]);
        let mut history = map.watch(keys::DATA_KEYS, Revision(1));
        assert!(matches!(history.next().await, Err(MapError::Compacted { .. })), "and its history with it");
        // Ids are never used again: what was wrapped for the first one cannot be mistaken for another's.
        assert_eq!(assembly.new_key_place().await.expect("an id").key, KeyId(3));
    });
}

/// Waits until all deleted volumes are gone.
async fn all_gone(assembly: &Assembly) {
    while assembly.status().await.deleting_volumes > 0 {
        runtime::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn another_secret_opens_a_volume_and_the_old_one_no_more() {
    let machine = Machine::new(5, 1);
    let (assembly, map) = (machine.start(), machine.map.clone());
    machine.run(async move {
        create(&assembly, "a", &key_file(1)).await;
        write(&assembly, "a", &[9; 4096]).await;
        let was = assembly.key_record("a").await.expect("encrypted");
        let (key, _) = DataKey::unwrap(assembly.cluster_id(), &was.record, &key_file(1)).expect("it opens");
        let place = volume::KeyPlace { cluster: assembly.cluster_id(), key: was.record.id };
        let wrap = key.wrap(place, &key_file(2), 2).expect("wrapped");
        assembly.set_wraps(was.clone(), vec![wrap.clone()]).await.expect("changed");
        let stale = assembly.set_wraps(was, vec![wrap.clone(), wrap]).await;
        assert!(matches!(stale, Err(VolumeError::Map(_))), "somebody changed it meanwhile: {stale:?}");
        let mut history = map.watch(keys::DATA_KEYS, Revision(1));
        assert!(matches!(history.next().await, Err(MapError::Compacted { .. })), "the map forgets what it was");

        assembly.lock("a").await.expect("locked");
        assert_eq!(unlock(&assembly, "a", &key_file(1)).await, Err(KeyError::Wrong(SecretKind::KeyFile)));
        unlock(&assembly, "a", &key_file(2)).await.expect("it opens");
        let volume = assembly.directory().by_name("a").expect("served");
        assert_eq!(volume.read(0, 4096).await.expect("readable").bytes[..], [9; 4096]);
    });
}

#[test]
fn a_volume_whose_layers_have_another_key_is_not_served() {
    let machine = Machine::new(6, 1);
    let assembly = machine.start();
    let map = machine.map.clone();
    machine.run(async move {
        create(&assembly, "a", &key_file(1)).await;
        let found = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("volumes").remove(0);
        let moved = VolumeRecord { key: None, ..found.record };
        let transaction = Transaction::new().expect(moved.key(), found.modified).put(moved.key(), encode(&moved));
        map.transact(transaction).await.expect("changed");
        assembly.stop().await;
    });
    machine.crash();
    let options = machine.options();
    let assembly = machine.run(async move { Assembly::start(options).await.expect("the others are served") });
    machine.run(async move {
        assert!(assembly.directory().by_name("a").is_none(), "it is not");
        let reasons = assembly.status().await.reasons;
        assert!(reasons.iter().any(|reason| reason.contains("another data key")), "{reasons:?}");
    });
}

#[test]
fn a_pool_compresses_as_it_was_told_last_and_at_once() {
    let machine = Machine::new(7, 2);
    let (assembly, map) = (machine.start(), machine.map.clone() as Arc<dyn MapStore>);
    machine.run(async move {
        assembly.create_volume(new_volume("a", SIZE)).await.expect("made");
        let content = Random::new(7).bytes(128).repeat(SIZE as usize / 128);
        for compression in [Compression::Lz4, Compression::Zstd, Compression::Off] {
            let pool = assembly.set_compression(DEFAULT_POOL, compression).await.expect("set");
            assert_eq!((pool.compression, assembly.volumes()[0].compression), (compression, compression));
            let served = assembly.directory().by_name("a").expect("served");
            assert_eq!(served.info().compression, compression);
            write(&assembly, "a", &content).await;
            assert!(holds(&assembly, "a", &content).await, "{compression}");
            let usage = assembly.usage().await.expect("told")[&assembly.volumes()[0].id];
            let stored = if compression == Compression::Off { SIZE } else { SIZE / 8 };
            assert_eq!((usage.unique_bytes, usage.stored_bytes), (SIZE, stored), "{compression}");
        }
        assembly.set_compression(DEFAULT_POOL, Compression::Lz4).await.expect("set");
        let none = assembly.set_compression("none", Compression::Lz4).await;
        assert_eq!(none, Err(VolumeError::NoPool("none".to_owned())));
        let pool = get::<PoolRecord>(&*map, &keys::pool(DEFAULT_POOL)).await.expect("a pool").expect("there");
        assert_eq!(pool.record.compression, Compression::Lz4);
        assembly.stop().await;
    });
    machine.crash();
    let assembly = machine.start();
    machine.run(async move {
        assert_eq!(assembly.volumes()[0].compression, Compression::Lz4);
    });
}

/// Nobody could use it there.
#[test]
fn a_volume_is_not_sent_where_its_key_is_not() {
    let cluster = Cluster::new(7, 1);
    let secret = key_file(1);
    let contents = vec![7; SIZE as usize];
    let (at_first, at_second) = (secret.clone(), secret);
    let written = contents.clone();
    cluster.at(0, |assembly| async move {
        create(&assembly, "a", &at_first).await;
        write(&assembly, "a", &written).await;
    });
    cluster.pass(Duration::from_secs(3));
    let kept = contents.clone();
    cluster.at(0, |assembly| async move {
        let refused = assembly.move_volume("a", node_id(1)).await.expect_err("it has no key");
        assert!(refused.to_string().contains("cairn volume unlock"), "{refused}");
        assert!(holds(&assembly, "a", &kept).await, "it is served as before");
    });
    cluster.at(1, |assembly| async move { unlock(&assembly, "a", &at_second).await.expect("unlocked") });
    cluster.pass(Duration::from_secs(3));
    cluster.at(0, |assembly| async move { drop(assembly.move_volume("a", node_id(1)).await.expect("moved")) });
    cluster.at(1, |assembly| async move { assert!(holds(&assembly, "a", &contents).await) });
}

#[test]
fn a_dead_heads_volume_goes_to_who_has_its_key() {
    (1..3).for_each(who_has_the_key_takes_over);
}

//! The map in a redb file.

use crate::suite::{self, Subject, put, value};
use cluster::{MapError, MapStore, RedbMap, Revision, Transaction};
use std::path::PathBuf;
use std::time::Duration;

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cairn-map-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }
    fn file(&self) -> PathBuf {
        self.0.join("map.redb")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    runtime::uring::block_on(work).expect("io_uring is there")
}

#[test]
fn redb_keeps_the_suite() {
    let scratch = Scratch::new("suite");
    let map = RedbMap::open(&scratch.file()).expect("a new file");
    run(async move {
        let subject = Subject {
            map: &*map,
            lease_time: Duration::from_secs(1),
            late_max: Duration::ZERO,
            heard_within: Duration::from_millis(50),
        };
        suite::run(&subject).await;
    });
}

#[test]
fn what_redb_answered_is_there_after_opening_again() {
    let scratch = Scratch::new("again");
    let open = || loop {
        // The thread of the handle dropped before lets go of the file a moment later.
        match RedbMap::open(&scratch.file()) {
            Err(MapError::Storage(why)) if why.contains("already open") => std::thread::yield_now(),
            other => break other.expect("opens"),
        }
    };
    let map = open();
    let (revision, lease) = run(async move {
        put(&*map, "a", "1").await;
        put(&*map, "b", "2").await;
        map.compact(Revision(1)).await.expect("an answer");
        map.transact(Transaction::new().delete("a")).await.expect("an answer");
        let lease = map.grant(Duration::from_secs(3600)).await.expect("a lease");
        (put(&*map, "c", "3").await, lease)
    });
    let map = open();
    run(async move {
        assert_eq!(map.list("").await.expect("an answer").revision, revision);
        assert_eq!(value(&*map, "a").await, None);
        assert_eq!(value(&*map, "b").await.as_deref(), Some("2"));
        map.keep_alive(lease).await.expect("leases outlive the process");
        assert!(map.grant(Duration::from_secs(1)).await.expect("a lease") > lease);
        let gap = map.watch("", Revision(1)).next().await;
        assert_eq!(gap, Err(MapError::Compacted { oldest: Revision(2) }));
        let told = map.watch("", Revision(2)).next().await.expect("an answer");
        assert_eq!(told.iter().map(|event| event.key.as_str()).collect::<Vec<_>>(), ["b", "a", "c"]);
    });
}

#[test]
fn a_file_that_is_no_map_is_refused() {
    let scratch = Scratch::new("foreign");
    std::fs::write(scratch.file(), vec![0x5a; 8192]).expect("written");
    assert!(matches!(RedbMap::open(&scratch.file()), Err(MapError::Storage(_))));
}

#[test]
fn a_bit_turned_over_in_a_redb_file_is_seen() {
    let scratch = Scratch::new("rot");
    let value = "the seed by which blocks are found";
    let map = RedbMap::open(&scratch.file()).expect("a new map");
    run(async move { put(&*map, "volumes/1", value).await });
    let closed = std::fs::File::open(scratch.file()).expect("there");
    closed.lock().expect("the thread that has the file lets go of it");
    let mut bytes = std::fs::read(scratch.file()).expect("readable");
    let places: Vec<usize> =
        (0..bytes.len() - value.len()).filter(|&at| bytes[at..].starts_with(value.as_bytes())).collect();
    assert!(!places.is_empty(), "the value is in the file");
    places.iter().for_each(|at| bytes[at + 4] ^= 1);
    std::fs::write(scratch.file(), &bytes).expect("written");
    drop(closed);
    let refused = RedbMap::open(&scratch.file()).map(drop);
    assert!(
        matches!(&refused, Err(MapError::Storage(why)) if why.contains("orrupt") || why.contains("damaged")),
        "{refused:?}"
    );
}

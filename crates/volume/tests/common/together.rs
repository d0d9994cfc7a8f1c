//! Snapshots of several volumes whose heads are different nodes: one instant, or none.

use super::nodes::{Cluster, node_id, served};
use super::{new_volume, payload};
use cluster::{MapFaults, SnapshotRecord, Wanted, keys, list};
use runtime::channel::cross;
use runtime::sim::LinkOptions;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{Assembly, Volume, VolumeError};

/// The node that is asked: the head of none of the volumes.
pub const ASKED: usize = 2;
const CHUNKS: u64 = 24;

/// Three nodes, and volumes "a" and "b" with nodes 0 and 1 as their heads.
pub struct Scene {
    pub cluster: Cluster,
    /// The last number that is known to be written to both.
    pub written: Rc<Cell<u64>>,
}

impl Scene {
    pub fn new(seed: u64) -> Self {
        let cluster = Cluster::new(seed, 1);
        for (index, name) in [(0, "a"), (1, "b")] {
            cluster.at(index, move |assembly| async move {
                assembly.create_volume(new_volume(name, CHUNKS * CHUNK_BYTES)).await.expect("made");
            });
        }
        cluster.pass(Duration::from_secs(1));
        let this = Self { cluster, written: Rc::default() };
        // All groups know the heads.
        this.take("warm").expect("taken");
        this
    }

    /// What the node that is asked has to say takes so long to come to this one.
    pub fn delay(&self, to: usize, delay: Duration) {
        let options = match delay {
            Duration::ZERO => LinkOptions::default(),
            _ => LinkOptions { delay_ns: delay.as_nanos() as u64, ..LinkOptions::default() },
        };
        self.cluster.world.set_link(&self.cluster.nodes[ASKED], &self.cluster.nodes[to], options);
    }

    pub fn take(&self, name: &'static str) -> Result<Vec<SnapshotRecord>, VolumeError> {
        self.cluster.at(ASKED, move |assembly| async move { assembly.create_snapshots(&wanted(name)).await })
    }

    /// Begins to write 1, 2, … to "a" and then to "b", each after the one before has returned, in a chunk of each that does not
    /// wait for what is delayed.
    pub fn begin_writing(&self) -> [u64; 2] {
        let places = [0, 1].map(|index| {
            self.cluster.at(index, move |assembly| async move {
                let volume = served(&assembly, NAMES[index]).expect("listed");
                let mut quickest = (Duration::MAX, 0);
                for chunk in 0..CHUNKS {
                    let began = runtime::now();
                    // Not zeroes: those are not stored where nothing is.
                    assert!(write(&volume, chunk, 1).await);
                    quickest = quickest.min((runtime::now().since(began), chunk));
                }
                quickest.1
            })
        });
        let (ask, mut asked) = cross::<u64>(1);
        let (tell, mut told) = cross::<()>(1);
        let volumes = [0, 1].map(|index| self.volume(index));
        let [first, second] = volumes;
        let written = self.written.clone();
        self.cluster.nodes[0].spawn(0, async move {
            for number in 1.. {
                let is_first = write(&first, places[0], number).await;
                if !is_first || ask.send(number).await.is_err() || told.recv().await.is_err() {
                    return;
                }
                written.set(number);
            }
        });
        self.cluster.nodes[1].spawn(0, async move {
            while let Ok(number) = asked.recv().await {
                if !write(&second, places[1], number).await || tell.send(()).await.is_err() {
                    return;
                }
            }
        });
        places
    }

    pub fn volume(&self, index: usize) -> Volume {
        self.cluster.at(index, move |assembly| async move { served(&assembly, NAMES[index]).expect("listed") })
    }

    /// What the snapshots of this name hold.
    pub fn numbers(&self, name: &'static str, places: [u64; 2]) -> [u64; 2] {
        [0, 1].map(|index| {
            self.cluster.at(index, move |assembly| async move {
                let volume = served(&assembly, NAMES[index]).expect("listed");
                let snapshot = volume.snapshot(name).expect("its head knows it when it is reported");
                number_in(&snapshot, places[index]).await
            })
        })
    }

    /// The names of all snapshots.
    pub fn names(&self) -> Vec<String> {
        let map = self.cluster.map();
        self.cluster.run(0, async move {
            let all = list::<SnapshotRecord>(&*map, keys::SNAPSHOTS).await.expect("readable");
            all.into_iter().map(|found| found.record.name).collect()
        })
    }

    /// Writing goes on.
    pub fn goes_on(&self) {
        let before = self.written.get();
        self.cluster.pass(Duration::from_secs(2));
        assert!(self.written.get() > before, "nothing is written any more");
    }
}

pub const NAMES: [&str; 2] = ["a", "b"];

pub fn wanted(name: &str) -> Vec<Wanted> {
    NAMES.iter().map(|volume| Wanted { volume: (*volume).to_owned(), name: name.to_owned() }).collect()
}

/// Whether it is written: not, where another node is the head by now.
async fn write(volume: &Volume, chunk: u64, number: u64) -> bool {
    volume.write(chunk * CHUNK_BYTES, payload(&number.to_le_bytes().repeat(512))).await.is_ok()
}

pub async fn number_in(volume: &Volume, chunk: u64) -> u64 {
    let read = volume.read(chunk * CHUNK_BYTES, 8).await.expect("readable");
    u64::from_le_bytes(read.bytes[..].try_into().expect("eight bytes"))
}

/// Whoever writes to one volume and then to the other finds in a snapshot of both what was written up to one instant, however long
/// each head hears nothing; or there is none.
pub fn is_one_over_nodes(seed: u64) {
    let scene = Scene::new(seed);
    scene.delay(1, Duration::from_millis(1150));
    let places = scene.begin_writing();
    scene.delay(1, Duration::ZERO);
    scene.goes_on();
    let (quick, late, long) = (Duration::ZERO, Duration::from_millis(300), Duration::from_millis(1150));
    let rounds = [
        ("quick", quick, quick, true),
        ("late-b", quick, late, true),
        ("late-a", late, quick, true),
        ("late", late, late, true),
        ("long-b", quick, long, false),
        ("long-a", long, quick, false),
        ("again", quick, quick, true),
    ];
    for (name, to_a, to_b, must_be_taken) in rounds {
        let lag = MapFaults { watches_late: 512, watch_lag_max: Duration::from_millis(250), ..MapFaults::NONE };
        scene.cluster.map.set_faults(if name == "late" { lag } else { MapFaults::NONE });
        scene.delay(0, to_a);
        scene.delay(1, to_b);
        let taken = scene.take(name);
        scene.delay(0, quick);
        scene.delay(1, quick);
        scene.goes_on();
        match taken {
            Ok(taken) => {
                assert_eq!(taken.len(), 2);
                let [a, b] = scene.numbers(name, places);
                assert!(a > 0 && (b == a || b + 1 == a), "{name}: a holds {a}, b holds {b}, which is no instant");
            }
            Err(error) => {
                assert!(matches!(error, VolumeError::NoInstant(_)), "{name}: {error:?}");
                assert!(!must_be_taken, "{name}: {error}");
                assert!(!scene.names().contains(&name.to_owned()), "{name}: one of them is named");
            }
        }
    }
    // What was pushed and not named ends.
    scene.cluster.pass(Duration::from_secs(15));
    let taken = scene.names().len();
    let layers: usize = (0..2).map(|index| scene.volume(index).info().layers.len()).sum();
    assert_eq!(layers, taken + 2, "the snapshots and two tops are left");
}

/// The head of the second volume is replaced at some moment: its snapshot may be from before, or nothing is named.
pub fn a_head_that_is_replaced_is_no_instant(seed: u64) {
    for moment in [200, 450, 750, 850] {
        let scene = Scene::new(seed);
        let places = scene.begin_writing();
        scene.goes_on();
        scene.delay(1, Duration::from_millis(300));
        let outcome: Rc<Cell<Option<bool>>> = Rc::default();
        let (assembly, told) = (scene.assembly(ASKED), outcome.clone());
        scene.cluster.nodes[ASKED].spawn(0, async move {
            told.set(Some(assembly.create_snapshots(&wanted("s")).await.is_ok()));
        });
        scene.cluster.pass(Duration::from_millis(moment));
        assert_eq!(outcome.get(), None, "it is under way");
        let map = scene.cluster.map();
        scene.cluster.run(0, async move {
            cluster::take_heads(&*map, node_id(0), |volume| volume.name == "b").await.expect("taken");
        });
        scene.cluster.pass(Duration::from_secs(16));
        assert_eq!(outcome.get(), Some(false), "moment {moment}: named, whoever was the head");
        assert_eq!(scene.names(), ["warm", "warm"], "moment {moment}");
        let numbers = scene.cluster.at(0, move |assembly| async move {
            let of = |name| served(&assembly, name).expect("listed");
            [number_in(&of("a"), places[0]).await, number_in(&of("b"), places[1]).await]
        });
        assert!(numbers[0] >= numbers[1] && numbers[1] >= scene.written.get(), "{numbers:?}: something is gone");
    }
}

/// Who was asked dies at some moment: the heads go on, and both snapshots are there or none.
pub fn nobody_waits_for_who_was_asked(seed: u64) {
    for moment in [100, 350, 650, 1000] {
        let scene = Scene::new(seed);
        let places = scene.begin_writing();
        scene.goes_on();
        scene.delay(1, Duration::from_millis(300));
        let assembly = scene.assembly(ASKED);
        scene.cluster.nodes[ASKED].spawn(0, async move { drop(assembly.create_snapshots(&wanted("s")).await) });
        scene.cluster.pass(Duration::from_millis(moment));
        scene.cluster.crash(ASKED);
        scene.delay(1, Duration::ZERO);
        // Its copies are given up, its groups get other leaders.
        scene.cluster.pass(Duration::from_secs(12));
        scene.goes_on();
        let named = scene.names().iter().filter(|name| *name == "s").count();
        assert!(named == 0 || named == 2, "moment {moment}: one of the two is named");
        let taken = scene.cluster.at(0, |assembly| async move { assembly.create_snapshots(&wanted("t")).await });
        assert!(taken.is_ok(), "moment {moment}: {taken:?}");
        for name in ["s", "t"].iter().skip(usize::from(named == 0)) {
            let [a, b] = scene.numbers(name, places);
            assert!(a > 0 && (b == a || b + 1 == a), "moment {moment}, {name}: a holds {a}, b holds {b}");
        }
    }
}

impl Scene {
    pub fn assembly(&self, index: usize) -> Assembly {
        self.cluster.assemblies.borrow()[index].clone().expect("it is up")
    }
}

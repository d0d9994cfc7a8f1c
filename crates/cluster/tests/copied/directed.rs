//! Tests that are made for one rule each of what copies of the map are waited for; in `copied_mutants`, with the rule broken.

use cluster::{
    Allocator, Archive, ClusterRecord, CopiedMap, Copies, DEFAULT_POOL, DeviceRecord, DeviceState, Gathered,
    GroupRecord, LayerKnown, Limits, Losses, MapError, MapStore, NewPool, NewVolume, Outcome, RebuildError, Rebuilt,
    Record, Reign, Revision, SimMap, StoreKnows, Transaction, create_volume, encode, ensure, ensure_pool, push_layer,
    rebuild, take_top,
};
use runtime::sim::{NodeOptions, SimNode, World};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{ClusterId, GroupId, LayerId, NodeId, StoreId, VolumeEpoch};

const SOON: Duration = Duration::from_secs(1);
const NOT_YET: MapError = MapError::NotCopied { held: 1, needed: 2 };

pub fn run<T: 'static>(seed: u64, work: impl Future<Output = T> + 'static) -> T {
    let world = World::new(seed);
    let node: SimNode = world.add_node(1, NodeOptions::default());
    world.run_on(&node, 0, work).expect("the world goes on")
}

pub fn put(key: &str) -> Transaction {
    Transaction::new().expect_absent(key).put(key, b"{}".to_vec())
}

/// A task, and whether it has ended.
fn begun<T: 'static>(work: impl Future<Output = T> + 'static) -> Rc<Cell<Option<T>>> {
    let ended = Rc::new(Cell::new(None));
    let tell = ended.clone();
    runtime::spawn(async move { tell.set(Some(work.await)) });
    ended
}

/// A volume, a layer: of these nothing is done, told or shown before copies hold it.
pub fn a_change_is_answered_when_copies_hold_it(seed: u64) {
    run(seed, async {
        let (map, copies) = (SimMap::new(), Copies::of_a_node());
        let kept = CopiedMap::new(map.clone(), copies.clone());
        let of_group = kept.transact(put("groups/1")).await;
        assert_eq!(of_group, Ok(Outcome::Committed(Revision(1))), "its members write that down");
        let (of_task, watched) = (kept.clone(), kept.clone());
        let answered = begun(async move { of_task.transact(put("volumes/1")).await });
        let heard = begun(async move { watched.watch("", Revision(2)).next().await });
        let of_task = kept.clone();
        let found = begun(async move {
            runtime::sleep(SOON / 2).await;
            of_task.get("volumes/1").await
        });
        runtime::sleep(SOON).await;
        assert!(map.get("volumes/1").await.expect("an answer").is_some(), "the map has it");
        assert_eq!(answered.take(), None, "no copy has it");
        assert_eq!(heard.take(), None, "what no copy has is not acted upon");
        assert_eq!(found.take(), None, "nor found");
        copies.holds(Revision(2));
        runtime::sleep(SOON).await;
        assert_eq!(answered.take(), Some(Ok(Outcome::Committed(Revision(2)))));
        assert_eq!(heard.take().expect("told").expect("no error").len(), 1);
        assert!(found.take().expect("told").expect("no error").is_some());
    });
}

/// Who is told that a change is in too few copies, and looks whether it was done, is not told that it was.
pub fn what_too_few_hold_is_not_found_either(seed: u64) {
    run(seed, async {
        let (map, copies) = (SimMap::new(), Copies::of_a_node());
        let kept = CopiedMap::new(map, copies.clone());
        let enough = Rc::new(Cell::new(false));
        let (mut questions, answers) = (copies.questions(), enough.clone());
        runtime::spawn(async move {
            while let Ok(question) = questions.recv().await {
                let _ = question.reply.try_send(if answers.get() { Ok(()) } else { Err(NOT_YET) });
            }
        });
        assert_eq!(kept.transact(put("volumes/1")).await, Err(NOT_YET));
        assert_eq!(kept.get("volumes/1").await, Err(NOT_YET), "looking does not make it so");
        assert_eq!(kept.transact(put("volumes/1")).await, Ok(Outcome::Conflict));
        enough.set(true);
        assert!(kept.get("volumes/1").await.expect("now it is").is_some());
    });
}

/// A volume of the map "a", and a new top for it.
async fn pool_and_volume(map: &dyn MapStore) -> types::VolumeId {
    let (name, state) = (DEFAULT_POOL.to_owned(), DeviceState::Active);
    let device = DeviceRecord { store: StoreId(1), node: NodeId(1), path: String::new(), size_bytes: 1 << 30, state };
    ensure(map, device).await.expect("made");
    let pool = NewPool { name, replicas: 1, min_in_sync: 1, rules: None, stores: vec![StoreId(1)] };
    ensure_pool(map, &pool).await.expect("made");
    let new = NewVolume {
        name: "a".to_owned(),
        size_bytes: 1 << 20,
        block_size_bytes: 512,
        limits: Limits::default(),
        hosts: Default::default(),
    };
    create_volume(map, &new, DEFAULT_POOL, NodeId(1)).await.expect("made").id
}

/// The head goes on with its new top when that is in copies, however long that takes, and not before.
pub fn a_head_waits_for_copies_of_its_new_top(seed: u64) {
    run(seed, async {
        let (map, copies) = (SimMap::new(), Copies::of_a_node());
        let kept: Arc<dyn MapStore> = CopiedMap::new(map.clone(), copies.clone());
        let id = pool_and_volume(&*map).await;
        let enough = Rc::new(Cell::new(true));
        let (mut questions, answers) = (copies.questions(), enough.clone());
        runtime::spawn(async move {
            while let Ok(question) = questions.recv().await {
                let _ = question.reply.try_send(if answers.get() { Ok(()) } else { Err(NOT_YET) });
            }
        });
        let by = Reign { node: NodeId(1), epoch: VolumeEpoch(1) };
        let new = push_layer(&*kept, id, by).await.expect("a layer");
        enough.set(false);
        let (of_head, taken) = (kept.clone(), new.clone());
        let goes_on = begun(async move { take_top(&*of_head, &taken).await });
        runtime::sleep(10 * SOON).await;
        let found = cluster::get::<cluster::VolumeRecord>(&*map, &cluster::keys::volume(id)).await.expect("an answer");
        assert_eq!(found.expect("there").record.layers, new.volume.layers, "the map names it");
        assert_eq!(goes_on.take(), None, "and too few could say so without the map");
        enough.set(true);
        runtime::sleep(SOON).await;
        assert_eq!(goes_on.take(), Some(Ok(())));
    });
}

/// A map of what was gathered: the copy's next layer and group, and what a device knows.
fn rebuilt(next: u64, (layers, groups): (&[u64], &[u32]), losses: &Losses) -> Result<Rebuilt, RebuildError> {
    let json = |bytes: Vec<u8>| serde_json::from_slice(&bytes).expect("it is JSON");
    let id = ClusterId(9);
    let cluster = ClusterRecord { id, cluster_version: 1, finished: None, created_at_ns: 1, replicas: None };
    let allocators = ["layer", "group"].map(|kind| Allocator { kind: kind.to_owned(), next });
    let mut entries: BTreeMap<_, _> = allocators.iter().map(|all| (all.key(), json(encode(all)))).collect();
    entries.insert(cluster.key(), json(encode(&cluster)));
    let copy = Archive { format: 1, revision: 70, taken_at_ns: 0, entries };
    let layers = layers.iter().map(|layer| LayerKnown { layer: LayerId(*layer), chunks: 3 }).collect();
    let (store, path) = (StoreId(1), "/dev/a".to_owned());
    // Another store counts, too, of which nothing was gathered.
    let group = |id: &u32| GroupRecord::begun_with(GroupId(*id), (2, "later".to_owned()), vec![StoreId(2), store], 1);
    let device = StoreKnows { store, path, is_damaged: false, groups: groups.iter().map(group).collect(), layers };
    rebuild(&[Gathered::new(vec![copy], vec![device])], losses)
}

/// A volume or a top that was made after the last copy, and written to: who makes a map without it has to say so.
pub fn data_of_layers_that_no_copy_names_is_not_left(_seed: u64) {
    let ended = rebuilt(9, (&[2, 8], &[]), &Losses::default()).expect("what ended before the copy is nobody's");
    assert!(ended.unnamed.is_empty());
    let refused = rebuilt(9, (&[2, 9], &[]), &Losses::default()).expect_err("layer 9 came after the copy");
    let RebuildError::Unnamed { layers, chunks: 3, revision: 70, stores } = &refused else { panic!("{refused}") };
    assert_eq!((layers.as_slice(), stores.len()), ([LayerId(9)].as_slice(), 1), "{refused}");
    let given_up = Losses { unnamed: true, ..Losses::default() };
    assert_eq!(rebuilt(9, (&[2, 9], &[]), &given_up).expect("it is given up").unnamed, [LayerId(9)]);
}

/// A pool that was made after the last copy: what was written there may be on a device that nobody looked at.
pub fn groups_that_no_copy_names_are_not_left(_seed: u64) {
    let before = rebuilt(9, (&[], &[8]), &Losses::default()).expect("it was given up before");
    assert_eq!(before.unknown, [GroupId(8)]);
    let refused = rebuilt(9, (&[], &[8, 9, 10]), &Losses::default()).expect_err("9 and 10 came after the copy");
    let RebuildError::UnnamedGroups { groups, pools, revision: 70, stores } = &refused else { panic!("{refused}") };
    assert_eq!((groups.as_slice(), stores.len()), ([GroupId(9), GroupId(10)].as_slice(), 1), "{refused}");
    assert_eq!(pools.as_slice(), ["later"], "{refused}");
    let given_up = Losses { unnamed: true, ..Losses::default() };
    let left = rebuilt(9, (&[], &[9]), &given_up).expect("it is given up");
    assert!(left.unknown == [GroupId(9)] && !left.archive.entries.keys().any(|key| key.starts_with("groups/")));
}

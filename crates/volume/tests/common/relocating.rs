//! A volume that moves to other groups while it is used.

use super::nodes::{Cluster, NODES, TAKEN_OVER, asleep, check, fill, made, node_id, of, served};
use super::{Random, new_volume, payload, read_all};
use cluster::{LayerRecord, MapFaults, SnapshotRecord, VolumePlacement, VolumeRecord, WantedPlace, keys, list};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{Assembly, Placed, Standing, VolumeInfo};

const CHUNKS: u64 = 12;
const BLOCK: u64 = 4096;
const BLOCKS: u64 = CHUNKS * CHUNK_BYTES / BLOCK;
/// A move that is not over by then hangs.
const LONGEST: Duration = Duration::from_secs(120);

fn gathered_at(index: usize) -> WantedPlace {
    WantedPlace { placement: Some(VolumePlacement::Gathered), home: Some(node_id(index)), ..WantedPlace::default() }
}

fn spread() -> WantedPlace {
    WantedPlace { placement: Some(VolumePlacement::Spread), ..WantedPlace::default() }
}

fn info_of(assembly: &Assembly) -> VolumeInfo {
    assembly.volumes().into_iter().find(|info| info.name == "v").expect("it is listed")
}

/// Begins a move; returns why it failed, when it is over.
async fn relocated(assembly: Assembly, wanted: WantedPlace) -> Option<String> {
    let id = info_of(&assembly).id;
    if let Err(error) = assembly.relocate_volume("v", &wanted).await {
        return Some(error.to_string());
    }
    let over = async {
        while assembly.relocation(id).is_some() {
            runtime::sleep(Duration::from_millis(50)).await;
        }
    };
    runtime::timeout(LONGEST, over).await.expect("it ends");
    assembly.last_relocation("v").expect("it is listed").err()
}

/// The node that serves the volume.
fn head(cluster: &Cluster) -> usize {
    let is_head = |index: &usize| cluster.standing(*index, "v") == Some(Standing::Here);
    for _ in 0..200 {
        if let Some(index) = (0..NODES).find(is_head) {
            return index;
        }
        cluster.pass(Duration::from_millis(100));
    }
    panic!("nobody serves the volume");
}

/// What each block must hold; and what it may, where a write was not answered.
#[derive(Default)]
struct Written {
    is_over: Cell<bool>,
    blocks: RefCell<Vec<(u8, Option<u8>)>>,
    done: Cell<u64>,
}

/// Writes and discards blocks at a node, one after the other, while that serves the volume.
fn write_at(cluster: &Cluster, index: usize, seed: u64, written: &Rc<Written>) {
    let assembly = cluster.assemblies.borrow()[index].clone().expect("it is up");
    let written = written.clone();
    cluster.nodes[index].spawn(0, async move {
        let random = Random::new(seed);
        while !written.is_over.get() {
            runtime::sleep(Duration::from_millis(1 + random.below(4))).await;
            let volume = of(&assembly);
            if volume.standing() != Standing::Here {
                continue;
            }
            // Each node has blocks of its own: no two writes of one block are under way.
            let block = random.below(BLOCKS / NODES as u64) * NODES as u64 + index as u64;
            let value = if random.below(8) == 0 { 0 } else { random.below(256) as u8 };
            written.blocks.borrow_mut()[block as usize].1 = Some(value);
            let outcome = match value {
                0 => volume.write_zeroes(block * BLOCK, BLOCK).await,
                _ => volume.write(block * BLOCK, payload(&[value; BLOCK as usize])).await,
            };
            if outcome.is_ok() {
                written.blocks.borrow_mut()[block as usize] = (value, None);
                written.done.set(written.done.get() + 1);
            }
        }
    });
}

async fn holds(assembly: Assembly, written: Rc<Written>) {
    let found = read_all(&of(&assembly)).await;
    for (block, (is, may_be)) in written.blocks.borrow().iter().enumerate() {
        let bytes = &found[block * BLOCK as usize..][..BLOCK as usize];
        let value = bytes[0];
        assert!(bytes.iter().all(|byte| *byte == value), "block {block} is torn");
        assert!(value == *is || Some(value) == *may_be, "block {block} holds {value}, not {is} or {may_be:?}");
    }
}

/// Whoever has a snapshot open while its volume comes to lie elsewhere reads what it holds, or is told to ask again.
pub fn a_snapshot_that_is_open_holds_what_it_held(seed: u64) {
    let cluster = Cluster::placed(seed, 2, (NODES, 3), VolumePlacement::Spread);
    cluster.at(0, |assembly| async move {
        drop(assembly.create_volume(new_volume("v", CHUNKS * CHUNK_BYTES)).await.expect("made"));
        for chunk in 0..CHUNKS {
            of(&assembly).write(chunk * CHUNK_BYTES, payload(&[7; BLOCK as usize])).await.expect("written");
        }
        assembly.create_snapshot("v", "s").await.expect("taken");
    });
    cluster.pass(Duration::from_secs(1));
    let at = head(&cluster);
    // What is told of snapshots is read in the map, and that takes a while.
    cluster.map.set_faults(MapFaults { latency_max: Duration::from_millis(200), ..MapFaults::NONE });
    let (is_over, read, wrong) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    let (ends, counts, finds) = (is_over.clone(), read.clone(), wrong.clone());
    let assembly = cluster.assemblies.borrow()[at].clone().expect("it is up");
    cluster.nodes[at].spawn(0, async move {
        let (random, mut open) = (Random::new(seed), None);
        while !ends.get() {
            runtime::sleep(Duration::from_micros(300)).await;
            open = open.or_else(|| of(&assembly).snapshot("s"));
            let Some(snapshot) = &open else { continue };
            let chunk = random.below(CHUNKS);
            match snapshot.read(chunk * CHUNK_BYTES, BLOCK as u32).await {
                Ok(found) if found.bytes.iter().all(|byte| *byte == 7) => counts.set(counts.get() + 1),
                Ok(found) => finds.borrow_mut().push((chunk, found.bytes[0])),
                Err(_) => open = None,
            }
        }
    });
    for wanted in [gathered_at(at), spread()] {
        let failed = cluster.at(at, move |assembly| relocated(assembly, wanted));
        assert_eq!(failed, None);
    }
    is_over.set(true);
    cluster.pass(Duration::from_secs(1));
    assert!(read.get() > 100, "{} reads", read.get());
    assert!(wrong.borrow().is_empty(), "a snapshot is read where it lay before: chunk and what it held {wrong:?}");
}

/// A volume gathered at a node, with something in it and a snapshot `r`; and which node that is.
fn gathered(seed: u64) -> (Cluster, usize, Rc<Written>) {
    let cluster = Cluster::placed(seed, 2, (NODES, 3), VolumePlacement::Gathered);
    cluster.at(0, |assembly| async move {
        drop(assembly.create_volume(new_volume("v", CHUNKS * CHUNK_BYTES)).await.expect("made"));
        fill_some(&assembly).await;
        assembly.create_snapshot("v", "r").await.expect("taken");
    });
    cluster.pass(Duration::from_secs(1));
    let at = head(&cluster);
    let written = Rc::new(Written { blocks: RefCell::new(vec![(0, None); BLOCKS as usize]), ..Written::default() });
    write_at(&cluster, at, seed, &written);
    (cluster, at, written)
}

/// What a snapshot holds, by whoever has the volume.
async fn held_by(assembly: &Assembly, name: &str) -> Vec<u8> {
    loop {
        if let Some(snapshot) = of(assembly).snapshot(name) {
            let mut all = Vec::new();
            while (all.len() as u64) < snapshot.size_bytes() {
                match snapshot.read(all.len() as u64, CHUNK_BYTES as u32).await {
                    Ok(read) => all.extend_from_slice(&read.bytes),
                    Err(_) => break,
                }
            }
            if all.len() as u64 == snapshot.size_bytes() {
                return all;
            }
        }
        runtime::sleep(Duration::from_millis(5)).await;
    }
}

/// The snapshot is read again when the volume lies elsewhere, and all has started anew.
fn holds_what_it_held(cluster: &Cluster, name: &'static str, held: &Rc<RefCell<Option<Vec<u8>>>>) {
    cluster.pass(Duration::from_secs(8));
    let held = held.borrow_mut().take().expect("it was taken, and read");
    let at = head(cluster);
    let is = cluster.at(at, move |assembly| async move { held_by(&assembly, name).await });
    let apart = is.chunks(BLOCK as usize).zip(held.chunks(BLOCK as usize)).filter(|(is, was)| is != was).count();
    assert_eq!(apart, 0, "blocks of {name} do not hold what they held when it was taken");
}

/// A snapshot that is deleted and taken again under its name while its volume moves holds what it held when it was taken last.
pub fn a_snapshot_taken_again_while_its_volume_moves_holds_what_it_held(seed: u64) {
    let (cluster, at, written) = gathered(seed);
    let held = Rc::new(RefCell::new(None));
    let (holds, assembly) = (held.clone(), cluster.assemblies.borrow()[at].clone().expect("it is up"));
    let map = cluster.map.clone();
    cluster.nodes[at].spawn(0, async move {
        let random = Random::new(seed);
        let id = info_of(&assembly).id;
        // When it is on its way, or has been copied.
        let is_due = async |copied: bool| {
            let all = list::<SnapshotRecord>(&*map, keys::SNAPSHOTS).await.expect("readable");
            let is_there = all.iter().any(|one| one.record.name == "r" && one.record.volume != id);
            assembly.relocation(id).is_some() && (is_there || !copied)
        };
        for _ in 0..=random.below(2) {
            let copied = random.below(4) > 0;
            while !is_due(copied).await {
                runtime::sleep(Duration::from_millis(1)).await;
            }
            runtime::sleep(Duration::from_millis(random.below(20))).await;
            while assembly.delete_snapshot("v", "r").await.is_err() {
                runtime::sleep(Duration::from_millis(20)).await;
            }
            while assembly.create_snapshot("v", "r").await.is_err() {
                runtime::sleep(Duration::from_millis(20)).await;
            }
        }
        let found = held_by(&assembly, "r").await;
        holds.replace(Some(found));
    });
    assert_eq!(cluster.at(at, move |assembly| relocated(assembly, spread())), None);
    written.is_over.set(true);
    holds_what_it_held(&cluster, "r", &held);
}

/// A snapshot that is taken when the last copy of a move has taken too long, and clients do not wait for it any more, moves with what
/// it held.
pub fn a_snapshot_behind_a_last_copy_that_took_too_long_holds_what_it_held(seed: u64) {
    let (cluster, at, written) = gathered(seed);
    let held = Rc::new(RefCell::new(None));
    let (holds, assembly) = (held.clone(), cluster.assemblies.borrow()[at].clone().expect("it is up"));
    let sleeper = cluster.nodes[(at + 1) % NODES].clone();
    cluster.nodes[at].spawn(0, async move {
        let is_standing = async |standing| {
            while of(&assembly).standing() != standing {
                runtime::sleep(Duration::from_millis(1)).await;
            }
        };
        is_standing(Standing::Changing).await;
        sleeper.pause();
        is_standing(Standing::Here).await;
        while assembly.create_snapshot("v", "u").await.is_err() {
            runtime::sleep(Duration::from_millis(5)).await;
        }
        let found = held_by(&assembly, "u").await;
        holds.replace(Some(found));
        sleeper.resume();
    });
    assert_eq!(cluster.at(at, move |assembly| relocated(assembly, spread())), None);
    written.is_over.set(true);
    holds_what_it_held(&cluster, "u", &held);
}

/// What the volume holds is the same before and behind a move, whoever writes meanwhile, and so is what its snapshots hold; what it
/// leaves ends; and back.
pub fn a_volume_moves_while_it_is_used(seed: u64) {
    let cluster = Cluster::placed(seed, 2, (NODES, 3), VolumePlacement::Spread);
    cluster.at(0, |assembly| async move {
        drop(assembly.create_volume(new_volume("v", CHUNKS * CHUNK_BYTES)).await.expect("made"));
    });
    cluster.pass(Duration::from_secs(1));
    let written = Rc::new(Written { blocks: RefCell::new(vec![(0, None); BLOCKS as usize]), ..Written::default() });
    (0..NODES).for_each(|index| write_at(&cluster, index, seed * 10 + index as u64, &written));
    cluster.pass(Duration::from_secs(2));
    let mut snapshots = Vec::new();
    for name in ["s1", "s2"] {
        snapshots.push(cluster.at(0, move |assembly| async move {
            assembly.create_snapshot("v", name).await.expect("taken");
            read_all(&of(&assembly).snapshot(name).expect("it is there")).await
        }));
        cluster.pass(Duration::from_secs(1));
        if name == "s1" && seed.is_multiple_of(2) {
            // What is left out of the volume's history by a rollback moves, too.
            written.is_over.set(true);
            cluster.pass(Duration::from_millis(200));
            cluster.at(0, |assembly| async move {
                assembly.create_snapshot("v", "aside").await.expect("taken");
                fill_some(&assembly).await;
                assembly.roll_back("v", "s1").await.expect("rolled back");
            });
            let is = snapshots[0].clone();
            for (block, written) in written.blocks.borrow_mut().iter_mut().enumerate() {
                *written = (is[block * BLOCK as usize], None);
            }
            written.is_over.set(false);
            (0..NODES).for_each(|index| write_at(&cluster, index, seed * 10 + 5 + index as u64, &written));
        }
    }
    for (wanted, home) in [(gathered_at(1), Some(1)), (spread(), None)] {
        let before = written.done.get();
        let at = head(&cluster);
        let failed = cluster.at(at, move |assembly| relocated(assembly, wanted));
        assert_eq!(failed, None);
        assert!(written.done.get() > before + 20, "{} writes were done meanwhile", written.done.get() - before);
        cluster.pass(Duration::from_secs(3));
        let at = head(&cluster);
        let placed = cluster.at(at, |assembly| async move { info_of(&assembly).placed });
        match (placed, home) {
            (Placed::Gathered { home: at_home, .. }, Some(home)) => assert_eq!(at_home, node_id(home)),
            (Placed::Spread, None) => {}
            (placed, _) => panic!("it lies elsewhere: {placed:?}"),
        }
    }
    written.is_over.set(true);
    cluster.pass(Duration::from_secs(6));
    (0..NODES).for_each(|index| cluster.crash(index));
    (0..NODES).for_each(|index| cluster.start(index));
    let at = head(&cluster);
    cluster.at(at, {
        let written = written.clone();
        move |assembly| holds(assembly, written)
    });
    for (name, content) in ["s1", "s2"].into_iter().zip(snapshots) {
        let is = cluster
            .at(at, move |assembly| async move { read_all(&of(&assembly).snapshot(name).expect("it is there")).await });
        assert!(is == content, "what {name} holds is what it held");
    }
    nothing_is_left(&cluster, at);
}

async fn fill_some(assembly: &Assembly) {
    for chunk in (0..CHUNKS).step_by(3) {
        of(assembly).write(chunk * CHUNK_BYTES, payload(&[77; 8192])).await.expect("written");
    }
}

/// Of a move, done or given up, nothing stays but the volume: no draft, no snapshot and no layer that nobody wants.
fn nothing_is_left(cluster: &Cluster, at: usize) {
    cluster.pass(Duration::from_secs(20));
    let map = cluster.map();
    let (volumes, layers, snapshots) = cluster.run(at, async move {
        let volumes = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("listed");
        let layers = list::<LayerRecord>(&*map, keys::LAYERS).await.expect("listed");
        let snapshots = list::<SnapshotRecord>(&*map, keys::SNAPSHOTS).await.expect("listed");
        (volumes, layers.len(), snapshots)
    });
    assert!(snapshots.iter().all(|snapshot| !snapshot.record.name.starts_with('~')), "{snapshots:?}");
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    assert!(layers <= snapshots.len() + 1, "{layers} layers for {} snapshots", snapshots.len());
}

/// A move ends with its head. What was copied goes, the volume stays what it was, and moves when it is told to once more.
pub fn a_move_whose_head_dies_is_given_up(seed: u64) {
    let cluster = Cluster::placed(seed, 1, (NODES, 3), VolumePlacement::Spread);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(1));
    cluster.at(0, |assembly| async move {
        assembly.create_snapshot("v", "s").await.expect("taken");
        fill(&of(&assembly), 2).await.expect("written");
        assembly.relocate_volume("v", &gathered_at(2)).await.expect("begun");
    });
    cluster.pass(Duration::from_millis(20 * (seed % 8)));
    cluster.assemblies.borrow_mut()[0] = None;
    cluster.nodes[0].crash();
    cluster.pass(TAKEN_OVER);
    let at = head(&cluster);
    cluster.at(at, |assembly| async move { check(&of(&assembly), 2).await });
    cluster.nodes[0].start();
    cluster.start(0);
    cluster.pass(Duration::from_secs(5));
    nothing_is_left(&cluster, at);
    let at = head(&cluster);
    let other = if at == 1 { 2 } else { 1 };
    let is_there = cluster.at(at, move |assembly| async move { info_of(&assembly).placed != Placed::Spread });
    let wanted = if is_there { spread() } else { gathered_at(other) };
    assert_eq!(cluster.at(at, move |assembly| relocated(assembly, wanted)), None);
    cluster.pass(Duration::from_secs(3));
    let at = head(&cluster);
    cluster.at(at, |assembly| async move {
        check(&of(&assembly), 2).await;
        check(&of(&assembly).snapshot("s").expect("it is there"), 1).await;
    });
    nothing_is_left(&cluster, at);
}

/// Whatever answers of the map are lost, the volume is here or there, whole.
pub fn a_move_under_a_failing_map_loses_nothing(seed: u64) {
    let cluster = Cluster::placed(seed, 1, (NODES, 3), VolumePlacement::Spread);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(1));
    let map = cluster.map.clone();
    cluster.at(0, move |assembly| async move {
        assembly.create_snapshot("v", "s").await.expect("taken");
        fill(&of(&assembly), 2).await.expect("written");
        map.set_faults(MapFaults { answers_lost: 100, requests_lost: 60, ..MapFaults::NONE });
        let _ = relocated(assembly, gathered_at(1)).await;
        map.set_faults(MapFaults::NONE);
    });
    cluster.pass(TAKEN_OVER);
    let at = head(&cluster);
    cluster.at(at, |assembly| async move {
        check(&of(&assembly), 2).await;
        fill(&of(&assembly), 3).await.expect("written");
        check(&of(&assembly).snapshot("s").expect("it is there"), 1).await;
    });
    (0..NODES).for_each(|index| cluster.crash(index));
    (0..NODES).for_each(|index| cluster.start(index));
    let at = head(&cluster);
    cluster.at(at, |assembly| async move { check(&of(&assembly), 3).await });
    nothing_is_left(&cluster, at);
}

/// A head that slept while another moved the volume writes nothing that anybody takes for written.
pub fn who_slept_writes_nothing_where_the_volume_was(seed: u64) {
    let (cluster, at) = asleep(seed, |_| async {});
    assert_eq!(cluster.at(at, move |assembly| relocated(assembly, gathered_at(at))), None);
    cluster.map.set_faults(MapFaults { watches_late: 1024, watch_lag_max: Duration::from_secs(2), ..MapFaults::NONE });
    cluster.nodes[0].resume();
    let done = cluster.at(0, |assembly| async move {
        let (volume, mut done) = (of(&assembly), 0);
        for chunk in 0..super::nodes::CHUNKS {
            done += usize::from(volume.write(chunk * CHUNK_BYTES, payload(&[9; 4096])).await.is_ok());
        }
        done
    });
    assert_eq!(done, 0, "groups take what an older head writes");
    cluster.at(at, |assembly| async move { check(&of(&assembly), 1).await });
}

/// An encrypted volume with a clone moves with its key; the clone stays, and reads what it read.
pub fn an_encrypted_volume_moves_and_its_clone_stays(seed: u64) {
    let cluster = Cluster::placed(seed, 1, (NODES, 3), VolumePlacement::Spread);
    cluster.at(0, |assembly| async move {
        super::keys::create_of(&assembly, "v", super::nodes::CHUNKS * CHUNK_BYTES, &super::keys::key_file(7)).await;
        fill(&of(&assembly), 1).await.expect("written");
        assembly.create_snapshot("v", "s").await.expect("taken");
        assembly.clone_volume("v", "s", "c").await.expect("cloned");
        fill(&of(&assembly), 2).await.expect("written");
        assert_eq!(relocated(assembly.clone(), gathered_at(0)).await, None);
        check(&of(&assembly), 2).await;
        check(&of(&assembly).snapshot("s").expect("it is there"), 1).await;
        let clone = served(&assembly, "c").expect("it is listed");
        check(&clone, 1).await;
        fill(&clone, 3).await.expect("written");
        check(&of(&assembly), 2).await;
        assembly.delete_volume("c").await.expect("deleted");
        runtime::sleep(Duration::from_secs(10)).await;
        check(&of(&assembly), 2).await;
        fill(&of(&assembly), 4).await.expect("its key is there");
    });
    nothing_is_left(&cluster, 0);
}

//! Programs that are heads of what they open, beside three nodes (docs/libcairn.md).

use super::nodes::{CHUNKS, Cluster, NODES, TAKEN_OVER, made, of};
use super::payload;
use cluster::{Reign, Stay, VolumeRecord, give_head, keys, list};
use runtime::sim::{NodeOptions as SimNodeOptions, SimNode};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use types::{CHUNK_BYTES, NodeId};
use volume::{Assembly, Attached, ClientOptions, IoError, OpenVolume, Standing, VolumeError};

/// A program on a machine of its own.
pub struct Program {
    pub machine: SimNode,
    pub assembly: Assembly,
}

impl Program {
    pub fn start(cluster: &Cluster) -> Self {
        let machine = cluster.world.add_node(1, SimNodeOptions::default());
        let options = ClientOptions { cores: machine.cores(), map: cluster.map() };
        let started = async move { Assembly::start_client(options).await.expect("the client starts") };
        let assembly = cluster.world.run_on(&machine, 0, started).expect("the world goes on");
        Self { machine, assembly }
    }

    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        cluster: &Cluster,
        ask: impl FnOnce(Assembly) -> F,
    ) -> T {
        cluster.world.run_on(&self.machine, 0, ask(self.assembly.clone())).expect("the world goes on")
    }

    pub fn open(&self, cluster: &Cluster) -> Result<Rc<OpenVolume>, VolumeError> {
        self.run(cluster, |assembly| async move { assembly.open_volume("v").await.map(Rc::new) })
    }
}

/// Writes the first block of every chunk.
pub async fn fill(volume: &Attached, value: u8) -> Result<(), IoError> {
    for chunk in 0..CHUNKS {
        volume.write(chunk * CHUNK_BYTES, payload(&[value; 4096])).await?;
    }
    Ok(())
}

pub async fn check(volume: &Attached, value: u8) {
    for chunk in 0..CHUNKS {
        let read = volume.read(chunk * CHUNK_BYTES, 4096).await.expect("readable");
        assert!(read.bytes.iter().all(|byte| *byte == value), "chunk {chunk} holds {}", read.bytes[0]);
    }
}

fn with_volume(seed: u64) -> Cluster {
    let cluster = Cluster::new(seed, 1);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(1));
    cluster
}

pub fn heads(cluster: &Cluster) -> Vec<usize> {
    let standings = cluster.standings("v");
    (0..NODES).filter(|index| standings[*index] == Some(Standing::Here)).collect()
}

/// C3, C4: what a program opens is its own until it closes it, and a node's again then, with all that was written.
pub fn what_a_program_opens_is_its_own(seed: u64) {
    let cluster = with_volume(seed);
    let program = Program::start(&cluster);
    let open = program.open(&cluster).expect("nobody uses it");
    assert_eq!(open.volume.info().size_bytes, CHUNKS * CHUNK_BYTES);
    let its = open.clone();
    program.run(&cluster, |_| async move {
        check(&its.volume, 1).await;
        fill(&its.volume, 2).await.expect("written");
    });
    // However long nothing happens, and whoever would take over.
    for _ in 0..4 {
        cluster.pass(TAKEN_OVER);
        assert!(heads(&cluster).is_empty(), "a node serves what a program has open");
        let refused = cluster.at(1, |assembly| async move { of(&assembly).read(0, 4096).await.map(drop) });
        assert!(matches!(refused, Err(IoError::Elsewhere(_))), "{refused:?}");
    }
    let refused = cluster.at(0, |assembly| async move { assembly.create_snapshot("v", "s").await.map(drop) });
    assert!(matches!(&refused, Err(error) if error.to_string().contains("client-1 has volume v open")), "{refused:?}");
    program.run(&cluster, |assembly| async move {
        check(&open.volume, 2).await;
        let open = Rc::into_inner(open).expect("nobody else has it");
        assembly.close_volume(open).await.expect("given back");
    });
    cluster.pass(Duration::from_secs(3));
    let [head] = heads(&cluster)[..] else { panic!("one node is the head: {:?}", cluster.standings("v")) };
    cluster.at(head, |assembly| async move { super::nodes::check(&of(&assembly), 2).await });
    // And again.
    program.open(&cluster).expect("nobody uses it");
}

/// C3: nobody loses a volume to a program while it is used; neither by a client of a node, nor by another program.
pub fn what_others_use_is_not_taken(seed: u64) {
    let cluster = with_volume(seed);
    let program = Program::start(&cluster);
    let opening = cluster.at(0, |assembly| async move { of(&assembly).open() });
    cluster.pass(Duration::from_secs(1));
    let refused = program.open(&cluster).map(drop);
    assert!(matches!(refused, Err(VolumeError::InUse { by: NodeId(1), .. })), "{refused:?}");
    cluster.at(0, |assembly| async move { super::nodes::check(&of(&assembly), 1).await });
    cluster.run(0, async move { drop(opening) });
    cluster.pass(Duration::from_secs(1));
    let open = program.open(&cluster).expect("nobody uses it any more");
    let other = Program::start(&cluster);
    let refused = other.open(&cluster).map(drop);
    assert!(matches!(&refused, Err(VolumeError::InUse { by, .. }) if by.is_client()), "{refused:?}");
    program.run(&cluster, |_| async move { fill(&open.volume, 2).await.expect("written") });
}

/// A program dies in the midst of writes, and another opens the volume: what was acknowledged is there, and nothing comes late.
pub fn what_a_dead_program_wrote_is_there_and_nothing_comes_late(seed: u64) {
    let cluster = with_volume(seed);
    let program = Program::start(&cluster);
    let open = program.open(&cluster).expect("nobody uses it");
    let acknowledged: Rc<[Cell<u8>]> = (0..CHUNKS).map(|_| Cell::new(1)).collect();
    let told = acknowledged.clone();
    program.run(&cluster, |_| async move {
        for chunk in 0..CHUNKS {
            let (open, told) = (open.clone(), told.clone());
            runtime::spawn(async move {
                for value in 2..=255u8 {
                    let written = open.volume.write(chunk * CHUNK_BYTES, payload(&[value; 4096])).await;
                    if written.is_err() {
                        return;
                    }
                    told[chunk as usize].set(value);
                }
            });
        }
    });
    // The first write of a reign at a group waits until that knows of the head.
    let has_begun = (0..500).any(|_| {
        cluster.pass(Duration::from_millis(5));
        acknowledged.iter().any(|value| value.get() > 1)
    });
    assert!(has_begun, "it writes");
    cluster.pass(Duration::from_millis(seed * 3));
    // What the machine sends goes on being lost or delivered as the network pleases.
    program.machine.crash();
    let acknowledged: Vec<u8> = acknowledged.iter().map(Cell::get).collect();
    let other = Program::start(&cluster);
    let open = other.open(&cluster).expect("the first is gone");
    let first = other.run(&cluster, |_| {
        let open = open.clone();
        async move {
            let mut found = BTreeMap::new();
            for chunk in 0..CHUNKS {
                let read = open.volume.read(chunk * CHUNK_BYTES, 4096).await.expect("readable");
                let value = read.bytes[0];
                assert!(read.bytes.iter().all(|byte| *byte == value), "chunk {chunk} is torn");
                assert!(
                    (acknowledged[chunk as usize]..=acknowledged[chunk as usize] + 1).contains(&value),
                    "chunk {chunk} holds {value}, and {} was acknowledged",
                    acknowledged[chunk as usize]
                );
                found.insert(chunk, value);
            }
            found
        }
    });
    cluster.pass(Duration::from_secs(30));
    other.run(&cluster, |_| async move {
        for chunk in 0..CHUNKS {
            let read = open.volume.read(chunk * CHUNK_BYTES, 4096).await.expect("readable");
            assert_eq!(read.bytes[0], first[&chunk], "chunk {chunk} has changed since the first read");
        }
    });
}

/// C5: a program that slept while others took its volume writes nothing any more, and is told so, for ever.
pub fn a_program_that_slept_is_refused(seed: u64) {
    let cluster = with_volume(seed);
    let program = Program::start(&cluster);
    let open = program.open(&cluster).expect("nobody uses it");
    let its = open.clone();
    program.run(&cluster, |_| async move { fill(&its.volume, 2).await.expect("written") });
    program.machine.pause();
    cluster.pass(Duration::from_secs(20));
    let [head] = heads(&cluster)[..] else { panic!("one node is the head: {:?}", cluster.standings("v")) };
    cluster.at(head, |assembly| async move {
        super::nodes::check(&of(&assembly), 2).await;
        super::nodes::fill(&of(&assembly), 3).await.expect("written");
    });
    program.machine.resume();
    let refused = |open: Rc<OpenVolume>| async move {
        for chunk in 0..CHUNKS {
            let written = open.volume.write(chunk * CHUNK_BYTES, payload(&[9; 4096])).await;
            assert!(matches!(written, Err(IoError::Elsewhere(_))), "chunk {chunk}: {written:?}");
            let read = open.volume.read(chunk * CHUNK_BYTES, 4096).await.map(drop);
            assert!(matches!(read, Err(IoError::Elsewhere(_))), "chunk {chunk}: {read:?}");
        }
    };
    let its = open.clone();
    program.run(&cluster, |_| refused(its));
    cluster.at(head, |assembly| async move { super::nodes::check(&of(&assembly), 3).await });
    // Were it given back to the program, that would be another reign than the one that it opened the volume in. It has a session
    // again by then.
    cluster.pass(Duration::from_secs(3));
    let (map, client) = (cluster.map(), program.assembly.node_id());
    cluster.run(head, async move {
        let found = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("readable");
        let volume = found.into_iter().next().expect("there is one").record;
        let by = Reign { node: volume.head, epoch: volume.volume_epoch };
        give_head(&*map, volume.id, by, client, Stay::Meanwhile).await.expect("given");
    });
    cluster.pass(Duration::from_secs(2));
    let stands = program.run(&cluster, |assembly| async move { of(&assembly).standing() });
    assert_eq!(stands, Standing::Here, "it was given the volume");
    let its = open.clone();
    program.run(&cluster, |_| refused(its));
    program.run(&cluster, |assembly| async move {
        let open = Rc::into_inner(open).expect("nobody else has it");
        assembly.close_volume(open).await.expect("given back");
    });
    let reopened = program.open(&cluster).expect("nobody uses it");
    program.run(&cluster, |_| async move { check(&reopened.volume, 3).await });
}

/// A node dies that the program writes to: it goes on without an error.
pub fn a_program_outlives_a_node(seed: u64) {
    let cluster = with_volume(seed);
    let program = Program::start(&cluster);
    let open = program.open(&cluster).expect("nobody uses it");
    let its = open.clone();
    let done = Rc::new(Cell::new(0u8));
    let told = done.clone();
    program.run(&cluster, |_| async move {
        runtime::spawn(async move {
            for value in 2..12 {
                fill(&its.volume, value).await.expect("no error, whoever dies");
                told.set(value);
            }
        });
    });
    cluster.pass(Duration::from_millis(30));
    let dies = (seed % NODES as u64) as usize;
    cluster.crash(dies);
    let began = done.get();
    cluster.pass(Duration::from_secs(30));
    assert!(began < 11 && done.get() == 11, "{began} fills before, {} after", done.get());
    program.run(&cluster, |_| async move { check(&open.volume, 11).await });
}

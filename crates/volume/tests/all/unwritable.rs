//! A device that can be read and not be written when its node starts: the node serves without it, and has no copy of what is there.

use crate::common::nodes::{CHUNKS, Cluster, TAKEN_OVER, check, fill, made, of};
use crate::common::{DISK, DISK_BYTES, Machine, new_volume};
use cluster::{GroupRecord, keys, list};
use runtime::sim::SimNode;
use std::path::Path;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{Assembly, StartError};

/// What a device says of itself lies there, at either end.
const END_BYTES: u64 = 1 << 20;
const WHY: &str = "none of its 63 segments is free";

/// Writes over all that a device holds, and leaves what it says of itself: as if it had been written after that.
fn write_over(node: &SimNode) {
    let disk = node.disk(Path::new(DISK)).expect("there");
    disk.poke(END_BYTES, &vec![0xa5; (DISK_BYTES - 2 * END_BYTES) as usize]);
}

#[test]
fn a_node_of_several_serves_without_it() {
    for cores in 1..=2 {
        let cluster = Cluster::new(cores as u64, cores);
        cluster.at(0, made);
        cluster.pass(Duration::from_secs(2));
        cluster.crash(2);
        write_over(&cluster.nodes[2]);
        cluster.start(2);
        cluster.pass(TAKEN_OVER);
        let status = cluster.at(2, |assembly| async move { assembly.status().await });
        let [device] = &status.devices[..] else { panic!("{status:?}") };
        let failed = device.failed.as_ref().expect("it says so");
        assert!(failed.contains(WHY), "{failed}");
        assert!(status.reasons.iter().any(|reason| reason.contains(failed)), "{:?}", status.reasons);
        assert_eq!((status.groups_serving, status.groups_total), (0, 0), "others serve what was led there");
        let (map, store) = (cluster.map(), device.store);
        cluster.at(0, move |assembly| async move {
            check(&of(&assembly), 1).await;
            fill(&of(&assembly), 2).await.expect("two copies are enough");
            let groups = list::<GroupRecord>(&*map, keys::GROUPS).await.expect("the map answers");
            let with_it = groups.iter().filter(|group| group.record.in_sync.contains(&store)).count();
            assert_eq!((groups.is_empty(), with_it), (false, 0), "what is there is no copy");
        });
    }
}

/// Alone it has no other copy of what is there: whoever starts it hears why it does not.
#[test]
fn a_node_that_is_alone_does_not_start() {
    let machine = Machine::new(1, 1);
    let assembly = machine.start();
    machine
        .run(async move { drop(assembly.create_volume(new_volume("a", CHUNKS * CHUNK_BYTES)).await.expect("made")) });
    machine.crash();
    write_over(&machine.node);
    let options = machine.options();
    let started = machine.run(async move { Assembly::start(options).await.err() });
    let Some(StartError::Shard { message, .. }) = started else { panic!("{started:?}") };
    assert!(message.contains(WHY), "{message}");
}

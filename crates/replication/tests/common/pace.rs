//! What no client waits for goes at a pace, also beside clients that only read.

use super::common::{Cluster, LAYER, MIB, SOON, stamp, store_of};
use super::rules::MILLISECOND;
use replication::Sought;
use runtime::IoBuf;
use std::time::Duration;
use store::Want;
use types::{BLOCK_BYTES, BLOCKS_PER_CHUNK, BlockRange, ChunkId};

/// What a member lacks, in chunks of 1 MiB.
const LACKED: u32 = 96;
/// Between two reads of the client's: few enough that the rate does not rise far, and none is missed for as long as counts as quiet.
const BETWEEN: Duration = Duration::from_millis(20);
/// What goes in a second beside clients at first (`pace::heard::RATE_FIRST`), and what a piece of 64 KiB costs besides its bytes.
const FIRST_BYTES: u64 = 64 * MIB;
const COST_PERCENT: u64 = 125;

/// A member lacks so much that is on the device of two others, and comes back.
fn one_lacks_much() -> Cluster {
    let cluster = Cluster::new(1, 3, 2);
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    cluster.crash(2);
    for chunk in 0..LACKED {
        for first in (0..BLOCKS_PER_CHUNK).step_by(32) {
            let written = cluster.write_blocks(0, chunk, first, 32, (chunk + first / 32) as u8 | 1);
            written.expect("it is up").expect("it is written");
        }
    }
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync.len() == 2);
    cluster.start(2);
    cluster
}

/// How long it takes until the member is in sync again.
fn made_whole_within(cluster: &Cluster) -> Duration {
    let began = cluster.world.now();
    let is_back = |cluster: &Cluster| cluster.record().in_sync.contains(&store_of(2));
    cluster.wait_until("it does not come back", 6 * SOON, is_back);
    cluster.world.now() - began
}

/// One block after the other is read from the primary's device, for ever.
fn read_for_ever(cluster: &Cluster) {
    let process = cluster.process(0);
    let reads = async move {
        let node = process.borrow().clone().expect("it is up");
        node.on_core(1, |core| {
            Box::pin(async move {
                let group = core.group(store_of(0), super::common::GROUP).expect("it is a member");
                for number in 0.. {
                    let (reader, _) = group.reader(stamp()).await.expect("it leads");
                    let range = BlockRange::new(number % BLOCKS_PER_CHUNK, 1);
                    let sought = Sought { layers: &[LAYER], chunk: ChunkId(number % LACKED), range, want: Want::Plain };
                    let (read, _) = reader.read(sought, IoBuf::new(BLOCK_BYTES), &mut Vec::new()).await;
                    read.expect("it is read");
                    runtime::sleep(BETWEEN).await;
                }
            })
        })
        .await;
    };
    cluster.nodes[0].spawn(0, reads);
}

/// A member is made whole at the rate that clients leave, though they only read; and at any while they do nothing.
pub fn who_only_reads_is_no_quiet() {
    let quiet = one_lacks_much();
    let beside_nobody = made_whole_within(&quiet);
    let read = one_lacks_much();
    read_for_ever(&read);
    let beside_readers = made_whole_within(&read);
    let bytes = u64::from(LACKED) * MIB * COST_PERCENT / 100;
    // In so short a time the rate rises by less than a fifth: one read in 20 ms, of which each lets it rise by an eight-hundredth.
    let least = Duration::from_millis(bytes * 1000 / (FIRST_BYTES * 6 / 5));
    assert!(
        beside_readers >= least,
        "{LACKED} MiB in {beside_readers:?} beside reads: not at the rate that begins slowly"
    );
    assert!(beside_nobody + 300 * MILLISECOND < least, "{LACKED} MiB in {beside_nobody:?} though clients are quiet");
}

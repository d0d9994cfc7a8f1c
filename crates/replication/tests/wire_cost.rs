//! Cost is held by counting: what encoding a frame allocates.

use replication::protocol::Message;
use replication::wire::{Sender, fuzz};
use runtime::IoBuf;
use store::{Entry, EntryKind};
use types::*;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Blocks are sent from where they lie, and heads go into a buffer that was used before.
#[test]
fn encoding_entries_allocates_nothing() {
    let block = IoBuf::zeroed(BLOCK_BYTES).freeze();
    let entry = |(seq, kind)| Entry {
        group: fuzz::GROUP,
        term: Epoch(6).into(),
        seq: Seq(seq),
        commit: Seq(0),
        volume_epoch: VolumeEpoch(1),
        layer: LayerId(7),
        chunk: ChunkId(1),
        kind,
    };
    let kind = |seq: u64| match seq % 4 {
        0 => EntryKind::Merge { into: LayerId(8), chunks: vec![ChunkId(1), ChunkId(2)], hides_below: false },
        1 => EntryKind::Noop,
        _ => EntryKind::write(BlockRange::new(0, 1), block.clone()),
    };
    let entries: Vec<_> = (1001..1401_u64).map(|seq| entry((seq, kind(seq)))).collect();
    let message = Message::Prepare { record: fuzz::record().into(), before: fuzz::BEFORE, commit: Seq(0) };
    let (mut sender, mut out, mut blocks) = (Sender::new(), Vec::new(), Vec::new());
    for round in 0..3 {
        out.clear();
        blocks.clear();
        let before = counting::on_this_thread();
        let sent = sender.encode(&fuzz::ENVELOPE, &message, &entries, &mut out, &mut blocks);
        let allocated = counting::on_this_thread() - before;
        assert_eq!((sent, blocks.len()), (Ok(400), 200));
        assert!(blocks.iter().all(|part| part.as_ptr() == block.as_ptr()), "no copy");
        assert!(round == 0 || allocated == 0, "{allocated} allocations");
    }
}

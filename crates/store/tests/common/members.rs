//! One member of a group: its entries come with epoch and sequence, as from a primary.

use super::moments::versions_in;
use super::*;

pub const GROUP: GroupId = GroupId(1);

/// An entry of the group's order, or one outside it.
/// Of this epoch, with a mark of its own.
pub fn term(epoch: u32) -> Term {
    Term::new(Epoch(epoch), 0xA000_0000 + epoch)
}

pub fn entry(epoch: u32, seq: u64, chunk: ChunkId, kind: EntryKind) -> Entry {
    let layer = match kind {
        EntryKind::EpochStart | EntryKind::Noop | EntryKind::GroupRecord { .. } | EntryKind::VolumeEpoch { .. } => {
            LayerId(0)
        }
        _ => LAYER,
    };
    let (term, seq) = (term(epoch), Seq(seq));
    Entry { group: GROUP, term, seq, commit: Seq(0), volume_epoch: VolumeEpoch(1), layer, chunk, kind }
}

/// A write of one block; its version is the sequence.
pub fn write(epoch: u32, seq: u64, chunk: u32, block: u32) -> Entry {
    let (chunk, range) = (ChunkId(chunk), BlockRange::new(block, 1));
    entry(epoch, seq, chunk, EntryKind::write(range, bytes_of(chunk, range, seq)))
}

pub fn start(epoch: u32, seq: u64) -> Entry {
    entry(epoch, seq, ChunkId(0), EntryKind::EpochStart)
}

/// Prepares, in order, and waits until all of it is durable.
pub async fn prepare(shard: &Shard, entries: impl IntoIterator<Item = Entry>) {
    let positions = entries.into_iter().map(|entry| shard.prepare(entry).expect("there is room"));
    durable(shard, positions.last().unwrap_or_default()).await;
}

pub async fn durable(shard: &Shard, position: LogPosition) {
    while shard.durable_through() < position {
        shard.durable_changed(shard.durable_through()).await.expect("an open shard");
    }
}

/// What the blocks of a chunk hold, from the first on.
pub async fn versions(shard: &Shard, chunk: u32, count: u32) -> Vec<u64> {
    versions_in(shard, &[LAYER], ChunkId(chunk), BlockRange::new(0, count)).await
}

/// A formatted disk.
pub fn rig(seed: u64) -> Rig {
    Rig::formatted(seed, 256 * MIB, DiskOptions::default())
}

/// The power goes, and comes back.
pub fn lose_power(rig: &Rig) {
    rig.node.crash();
    rig.node.start();
}

/// Opens; nothing is damaged.
pub async fn open_whole() -> (Rc<Shard>, Recovery) {
    let (shard, recovery) = open().await;
    assert_eq!(recovery.damage, []);
    assert!(recovery.groups.iter().all(|group| !group.damaged), "{:?}", recovery.groups);
    (shard, recovery)
}

/// What is cut is gone from the order, the rest stays, and what is committed is not cut.
pub fn a_cut_forgets_what_lies_behind(seed: u64) {
    let rig = rig(seed);
    rig.run(async {
        let (shard, _) = open_whole().await;
        let of_first = [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1), write(1, 4, 0, 2)];
        prepare(&shard, of_first).await;
        prepare(&shard, [start(2, 5), write(2, 6, 0, 1), write(2, 7, 0, 3)]).await;
        assert!(shard.commit(GROUP, Seq(3)).is_done());
        assert_eq!(shard.history(GROUP), [(term(1), Seq(1)), (term(2), Seq(5))]);
        assert!(!shard.cut(GROUP, Seq(2)), "it is committed");
        assert_eq!(shard.prepared_through(GROUP), Seq(7));
        assert!(shard.cut(GROUP, Seq(9)), "nothing lies behind");
        assert!(shard.cut(GROUP, Seq(4)));
        assert_eq!((shard.prepared_through(GROUP), shard.committed_through(GROUP)), (Seq(4), Seq(3)));
        assert_eq!(shard.history(GROUP), [(term(1), Seq(1))]);
        assert!(shard.commit(GROUP, Seq(7)).is_done(), "what was cut is not applied");
        assert_eq!(versions(&shard, 0, 4).await, [2, 3, 4, 0]);
        prepare(&shard, [start(3, 5), write(3, 6, 0, 3)]).await;
        assert!(shard.commit(GROUP, Seq(6)).is_done());
        assert_eq!(versions(&shard, 0, 4).await, [2, 3, 4, 6]);
    });
    lose_power(&rig);
    rig.run(async {
        let (shard, recovery) = open_whole().await;
        assert_eq!(recovery.groups[0].epoch_history, [(term(1), Seq(1)), (term(3), Seq(5))]);
        assert_eq!(recovery.groups[0].prepared_through, Seq(6));
        shard.commit(GROUP, Seq(6));
        assert_eq!(versions(&shard, 0, 4).await, [2, 3, 4, 6]);
    });
}

/// A pass is written while entries wait that were prepared before it: they are there after a crash, and can be applied.
pub fn what_is_prepared_outlives_a_pass(seed: u64) {
    let rig = rig(seed);
    rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1), write(1, 4, 1, 0)]).await;
        assert!(shard.commit(GROUP, Seq(2)).is_done());
        shard.pass_now().await.expect("an open shard");
        // Applied behind the pass, which does not hold them.
        assert!(shard.commit(GROUP, Seq(3)).is_done());
        prepare(&shard, [write(1, 5, 1, 1)]).await;
    });
    lose_power(&rig);
    rig.run(async {
        let (shard, recovery) = open_whole().await;
        assert_eq!(recovery.groups[0].prepared_through, Seq(5), "all that was prepared is there");
        assert!(shard.commit(GROUP, Seq(5)).is_done());
        assert_eq!((versions(&shard, 0, 2).await, versions(&shard, 1, 2).await), (vec![2, 3], vec![4, 5]));
    });
}

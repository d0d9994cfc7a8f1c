//! The last entries of a group, at its primary: what is sent, and sent again, without asking the store.

use std::collections::VecDeque;
use store::{Entry, EntryKind};
use types::{ChunkId, Seq};

/// Of what is committed and acknowledged at most so many are kept.
const KEPT_ENTRIES: usize = 1024;
/// So much, of what somebody who is sent entries lacks: then it comes back chunk by chunk.
const LAGGING_BYTES_MAX: usize = crate::window::PREPARED_BYTES_MAX;
const LAGGING_ENTRIES_MAX: usize = 2 * crate::window::PREPARED_ENTRIES_MAX;

/// See the module.
pub(crate) struct Recent {
    /// In order, without a gap.
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Nobody waits for what is committed and here: through this, it holds no memory that clients' bytes are received into when that is
    /// short ([`SharedBuf::keep`](runtime::SharedBuf::keep)).
    kept: Seq,
    /// Of what is committed and acknowledged so much is kept: who was away for a moment gets what it lacks from here.
    kept_bytes: usize,
}

impl Recent {
    pub(crate) fn new(kept_bytes: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, kept: Seq(0), kept_bytes }
    }

    /// How many there are, and their bytes.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    /// The first that is here, if any is.
    pub(crate) fn first(&self) -> Option<Seq> {
        self.entries.front().map(|entry| entry.seq)
    }

    /// The next entry of the order.
    pub(crate) fn push(&mut self, entry: Entry) {
        if self.entries.back().is_some_and(|last| last.seq.0 + 1 != entry.seq.0) {
            self.clear();
        }
        self.bytes += bytes_of(&entry);
        self.entries.push_back(entry);
    }

    /// Nothing behind `through` is in the order any more.
    pub(crate) fn cut(&mut self, through: Seq) {
        while self.entries.back().is_some_and(|last| last.seq > through) {
            let entry = self.entries.pop_back().expect("looked at just above");
            self.bytes -= bytes_of(&entry);
        }
        self.kept = self.kept.min(through);
    }

    /// Everything through `committed` is committed, and everything through `acknowledged` is acknowledged by all who are sent
    /// entries: what somebody lacks is kept for a while longer.
    pub(crate) fn release(&mut self, committed: Seq, acknowledged: Seq) {
        while let Some(first) = self.entries.front()
            && first.seq <= committed
        {
            let (bytes, entries) = match first.seq <= acknowledged {
                true => (self.kept_bytes, KEPT_ENTRIES),
                false => (LAGGING_BYTES_MAX, LAGGING_ENTRIES_MAX),
            };
            if self.bytes <= bytes && self.entries.len() <= entries {
                break;
            }
            self.bytes -= bytes_of(first);
            self.entries.pop_front();
        }
        let Some(first) = self.first() else { return };
        let through = |seq: Seq| ((seq.0 + 1).saturating_sub(first.0) as usize).min(self.entries.len());
        let (before, now) = (through(self.kept), through(committed));
        self.kept = self.kept.max(committed);
        for entry in self.entries.range_mut(before.min(now)..now) {
            if let EntryKind::Write { bytes, .. } = &mut entry.kind {
                bytes.keep();
            }
        }
    }

    /// Whether an entry behind `committed` is about the chunk.
    pub(crate) fn touches_behind(&self, committed: Seq, chunk: ChunkId) -> bool {
        let behind = self.entries.iter().rev().take_while(|entry| entry.seq > committed);
        behind.into_iter().any(|entry| crate::fill::touches(&entry.kind, entry.chunk, |other| other == chunk))
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.kept = Seq(0);
        self.bytes = 0;
    }

    /// Entries from `first` through `last`, if all of them are here.
    pub(crate) fn range(&mut self, first: Seq, last: Seq) -> Option<&[Entry]> {
        let front = self.first().filter(|front| *front <= first)?;
        let (from, to) = ((first.0 - front.0) as usize, (last.0 + 1 - front.0) as usize);
        self.entries.make_contiguous().get(from..to)
    }
}

fn bytes_of(entry: &Entry) -> usize {
    match &entry.kind {
        EntryKind::Write { bytes, .. } => size_of::<Entry>() + bytes.len(),
        EntryKind::GroupRecord { record } => size_of::<Entry>() + record.len(),
        EntryKind::Merge { chunks, .. } | EntryKind::LayerDelete { chunks } => size_of::<Entry>() + 8 * chunks.len(),
        _ => size_of::<Entry>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::SharedBuf;
    use types::{BlockRange, Epoch, GroupId, LayerId, VolumeEpoch};

    fn entry(seq: u64, kind: EntryKind) -> Entry {
        Entry {
            group: GroupId(1),
            term: Epoch(1).into(),
            seq: Seq(seq),
            commit: Seq(4),
            volume_epoch: VolumeEpoch(0),
            layer: LayerId(1),
            chunk: ChunkId(0),
            kind,
        }
    }

    /// Groups of a core keep more small writes than it has buffers to receive into, each of which one of these holds whole: it goes on
    /// receiving.
    #[test]
    fn what_is_kept_does_not_keep_the_core_from_receiving() {
        const GROUPS: usize = 100;
        const WRITES: u64 = 8000;
        runtime::uring::block_on(async {
            let listener = runtime::TcpListener::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
            let client = runtime::TcpStream::connect(listener.local_address()).await.expect("connected");
            let server = listener.accept().await.expect("accepted");
            let mut groups: Vec<_> = (0..GROUPS).map(|_| Recent::new(256 << 10)).collect();
            let written: SharedBuf = runtime::IoBuf::zeroed(4096).freeze();
            for at in 0..WRITES {
                client.send(&mut vec![written.clone()]).await.expect("sent");
                let received = runtime::timeout(std::time::Duration::from_secs(10), server.recv()).await;
                let bytes = received.expect("it goes on receiving").expect("received");
                let (group, seq) = (&mut groups[at as usize % GROUPS], at / GROUPS as u64 + 5);
                group.push(entry(seq, EntryKind::write(BlockRange::new(0, 1), bytes)));
                // Half of the groups have a member that lacks all of it.
                group.release(Seq(seq), Seq(if at % 2 == 0 { seq } else { 0 }));
            }
        })
        .expect("a core");
    }

    /// A layer that ends is about chunks, too, and is not held as writers are.
    #[test]
    fn what_is_on_its_way_touches_the_chunks_that_it_is_about() {
        let mut recent = Recent::new(256 << 10);
        for (seq, chunks) in [(5, vec![ChunkId(1)]), (6, vec![ChunkId(2), ChunkId(3)]), (7, Vec::new())] {
            recent.push(entry(seq, EntryKind::LayerDelete { chunks }));
        }
        let recent = &recent;
        let touched = |committed| (0..5).filter(move |chunk| recent.touches_behind(Seq(committed), ChunkId(*chunk)));
        assert_eq!(touched(4).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(touched(5).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(touched(6).count(), 0);
    }
}

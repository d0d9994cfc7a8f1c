//! Hosts that write through whichever node serves a volume, as multipath hosts do, and know what each block has to hold.

use super::nodes::{CHUNKS, Cluster, NODES, of};
use super::payload;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{Assembly, IoError, Standing};

/// Writers of each node.
const WRITERS: usize = 4;

/// What is written by all paths together.
#[derive(Default)]
struct Sent {
    /// Chunks that no command is under way in, and what was acknowledged last there.
    free: Vec<(u64, u8)>,
    /// Answers "not here", and writes that were acknowledged.
    requeued: usize,
    acknowledged: usize,
    is_over: bool,
}

pub struct Host(Arc<Mutex<Sent>>);

impl Host {
    /// Begins to write through all nodes that are up.
    pub fn begin(cluster: &Cluster) -> Self {
        let sent = Sent { free: (0..CHUNKS).map(|chunk| (chunk, 1)).collect(), ..Sent::default() };
        let this = Self(Arc::new(Mutex::new(sent)));
        (0..NODES).filter(|index| cluster.assemblies.borrow()[*index].is_some()).for_each(|index| {
            for _ in 0..WRITERS {
                let sent = this.0.clone();
                cluster.at(index, |assembly| async move {
                    runtime::spawn(write_on(assembly, sent));
                });
            }
        });
        this
    }

    pub fn acknowledged(&self) -> usize {
        self.0.lock().expect("nobody panicked").acknowledged
    }

    /// Ends, and compares what all chunks hold with what was acknowledged. Returns how often a path refused.
    pub fn end(self, cluster: &Cluster, head: usize) -> usize {
        self.0.lock().expect("nobody panicked").is_over = true;
        cluster.pass(Duration::from_secs(3));
        let mut left = std::mem::take(&mut self.0.lock().expect("nobody panicked").free);
        assert_eq!(left.len() as u64, CHUNKS, "every command was answered");
        left.sort_unstable();
        cluster.at(head, |assembly| async move {
            for (chunk, value) in left {
                let read = of(&assembly).read(chunk * CHUNK_BYTES, 4096).await.expect("readable");
                assert!(read.bytes.iter().all(|byte| *byte == value), "chunk {chunk}: {} for {value}", read.bytes[0]);
            }
        });
        self.0.lock().expect("nobody panicked").requeued
    }
}

async fn write_on(assembly: Assembly, sent: Arc<Mutex<Sent>>) {
    loop {
        runtime::sleep(Duration::from_millis(1)).await;
        let volume = of(&assembly);
        // A host that has not heard yet sends its commands where they were served.
        if volume.standing() != Standing::Here && !runtime::random_u64().is_multiple_of(8) {
            if sent.lock().expect("nobody panicked").is_over {
                return;
            }
            continue;
        }
        let next = {
            let mut sent = sent.lock().expect("nobody panicked");
            if sent.is_over {
                return;
            }
            match sent.free.is_empty() {
                true => continue,
                false => sent.free.remove(0),
            }
        };
        let (chunk, before) = next;
        let value = before.wrapping_add(1);
        let written = volume.write(chunk * CHUNK_BYTES, payload(&[value; 4096])).await;
        let mut sent = sent.lock().expect("nobody panicked");
        match written {
            Ok(()) => {
                sent.acknowledged += 1;
                sent.free.push((chunk, value));
            }
            Err(IoError::Changing(_) | IoError::Elsewhere(_)) => {
                // It is sent again, by another path: the same bytes.
                sent.requeued += 1;
                sent.free.push((chunk, before));
            }
            Err(error) => panic!("a host is told to fail a write: {error}"),
        }
    }
}

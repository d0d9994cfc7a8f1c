//! What nobody knows the outcome of: a node that leads groups stands still while its answers are waited for, and another leads them.

use super::nodes::{CHUNKS, Cluster, TAKEN_OVER, made, of};
use super::payload;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::Session;

/// H5: what overlaps a command is not executed before it is known what became of that: who reads what is being written waits
/// until it is written, also where the write is asked for again.
pub fn what_has_no_outcome_is_read_by_nobody(seed: u64) {
    let cluster = Cluster::new(seed, 1);
    cluster.at(0, made);
    let written = Rc::new(RefCell::new([false; CHUNKS as usize]));
    let read = Rc::new(RefCell::new([None; CHUNKS as usize]));
    cluster.nodes[1].pause();
    let (writes, reads) = (written.clone(), read.clone());
    cluster.at(0, |assembly| async move {
        let volume = of(&assembly).of_session(&Session::that_waits());
        for chunk in 0..CHUNKS {
            let (offset, index) = (chunk * CHUNK_BYTES, chunk as usize);
            let (write, written) = (volume.write(offset, payload(&[2; 4096])), writes.clone());
            runtime::spawn(async move {
                write.await.expect("written");
                written.borrow_mut()[index] = true;
            });
            let (volume, written, read) = (volume.clone(), writes.clone(), reads.clone());
            runtime::spawn(async move {
                // Of reads that wait for the same, some are asked for at other times.
                runtime::sleep(Duration::from_millis(chunk * 40)).await;
                let value = volume.read(offset, 4096).await.expect("readable").bytes[0];
                read.borrow_mut()[index] = Some((value, written.borrow()[index]));
            });
        }
    });
    cluster.pass(Duration::from_secs(1));
    let left = written.borrow().iter().filter(|written| !**written).count();
    assert!(left > 0, "node 1 leads nothing");
    cluster.pass(TAKEN_OVER + Duration::from_secs(10));
    for (chunk, read) in read.borrow().iter().enumerate() {
        assert_eq!(*read, Some((2, true)), "chunk {chunk}: it is read while a write has no outcome");
    }
}

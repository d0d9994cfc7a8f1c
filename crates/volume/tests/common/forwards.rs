//! Clients that know one node, whichever that is, and come back through another one.

use super::nodes::{CHUNKS, Cluster, NODES, check, made, of};
use super::payload;
use runtime::channel::cross;
use runtime::sim::LinkOptions;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{Attached, IoError, Session};

/// A client, as its node has it. It stays until it [leaves](Self::leaves).
pub struct Client {
    pub volume: ManuallyDrop<Attached>,
    pub session: Session,
    is_connected: Rc<Cell<bool>>,
    index: usize,
}

impl Client {
    /// Opens an export through a node.
    pub fn opens(cluster: &Cluster, index: usize, snapshot: Option<&'static str>) -> Result<Self, IoError> {
        let is_connected = Rc::new(Cell::new(true));
        let client = is_connected.clone();
        cluster.at(index, move |assembly| async move {
            let session = Session::that_waits();
            session.lives_while(move || client.get());
            let volume = match snapshot {
                Some(name) => of(&assembly).snapshot(name).expect("it is there"),
                None => of(&assembly),
            };
            Ok(Self { volume: ManuallyDrop::new(volume.attach(&session).await?), session, is_connected, index })
        })
    }

    pub fn at(cluster: &Cluster, index: usize) -> Self {
        Self::opens(cluster, index, None).expect("served")
    }

    /// Its connection ends, and nobody has looked yet.
    pub fn hangs_up(&self) {
        self.is_connected.set(false);
    }

    /// Its node has seen that its connection has ended.
    pub fn leaves(self, cluster: &Cluster) {
        cluster.at(self.index, move |_| async move {
            self.session.end();
            drop(ManuallyDrop::into_inner(self.volume));
        });
    }

    /// Begins to write so many bytes at the begin of every chunk, all at once.
    pub fn begins_to_write(&self, cluster: &Cluster, value: u8, len: usize) {
        let volume = Attached::clone(&self.volume);
        cluster.at(self.index, move |_| async move {
            for chunk in 0..CHUNKS {
                let volume = volume.clone();
                runtime::spawn(
                    async move { drop(volume.write(chunk * CHUNK_BYTES, payload(&vec![value; len])).await) },
                );
            }
        });
    }

    /// Begins to write so many blocks, none of them the first of a chunk, all at once.
    fn is_busy(&self, cluster: &Cluster, blocks: u64) {
        let volume = Attached::clone(&self.volume);
        cluster.at(self.index, move |_| async move {
            for number in 0..blocks {
                let (volume, offset) = (volume.clone(), number % CHUNKS * CHUNK_BYTES + (1 + number / CHUNKS) * 4096);
                runtime::spawn(async move { drop(volume.write(offset, payload(&[2; 4096])).await) });
            }
        });
    }

    /// Writes the first block of every chunk, all at once.
    pub fn writes(&self, cluster: &Cluster, value: u8) {
        let volume = Attached::clone(&self.volume);
        cluster.at(self.index, move |_| async move {
            let (told, mut answers) = cross(CHUNKS as usize);
            for chunk in 0..CHUNKS {
                let (volume, told) = (volume.clone(), told.clone());
                runtime::spawn(async move {
                    let written = volume.write(chunk * CHUNK_BYTES, payload(&[value; 4096])).await;
                    let _ = told.send(written).await;
                });
            }
            drop(told);
            while let Ok(written) = answers.recv().await {
                written.expect("written");
            }
        });
    }

    /// What the first block of a chunk holds.
    pub fn reads(&self, cluster: &Cluster, chunk: u64) -> Result<u8, IoError> {
        let volume = Attached::clone(&self.volume);
        let read = cluster.at(self.index, move |_| async move { volume.read(chunk * CHUNK_BYTES, 4096).await })?;
        assert!(read.bytes.iter().all(|byte| *byte == read.bytes[0]), "a block is written at once");
        Ok(read.bytes[0])
    }
}

/// Its answers, and all that it sends, take so long on the way from one node to another.
fn delay(cluster: &Cluster, from: usize, to: usize, delay: Duration) {
    let options = LinkOptions { delay_ns: delay.as_nanos() as u64, spread_ns: 0 };
    cluster.world.set_link(&cluster.nodes[from], &cluster.nodes[to], options);
}

/// A cluster whose node 0 is the head, as a client has the volume open there; one through node 1; and nothing more.
pub fn used(seed: u64, cores: usize) -> (Cluster, Client, Client) {
    let cluster = Cluster::new(seed, cores);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(1));
    let stays = Client::at(&cluster, 0);
    let old = Client::at(&cluster, 1);
    assert!(!stays.volume.is_forwarded() && old.volume.is_forwarded());
    (cluster, stays, old)
}

/// A client hangs up with writes under way, and is back through another node. So many others are ahead of them.
fn comes_back(cluster: &Cluster, old: &Client, ahead: u64) {
    old.is_busy(cluster, ahead);
    old.begins_to_write(cluster, 2, 4096);
    cluster.pass(Duration::from_millis(10));
    old.hangs_up();
    let new = Client::at(cluster, 2);
    assert!(new.volume.is_forwarded());
    new.writes(cluster, 3);
    (0..NODES).for_each(|from| {
        (0..NODES).filter(|to| *to != from).for_each(|to| delay(cluster, from, to, Duration::from_micros(20)));
    });
    cluster.pass(Duration::from_secs(4));
    cluster.at(0, |assembly| async move { check(&of(&assembly), 3).await });
    (0..CHUNKS).for_each(|chunk| assert_eq!(new.reads(cluster, chunk), Ok(3)));
    new.leaves(cluster);
}

/// H17: what a client had sent when it came back through another node is done before all that it sends there.
pub fn what_is_on_its_way_is_done_before_the_next_session(seed: u64) {
    let (cluster, _stays, old) = used(seed, 1 + (seed % 2) as usize);
    delay(&cluster, 1, 0, Duration::from_millis(200));
    comes_back(&cluster, &old, 0);
}

/// H17: who does not say in time that all of it has come is not listened to any more.
pub fn what_comes_of_a_session_that_was_ended_is_refused(seed: u64) {
    let (cluster, _stays, old) = used(seed, 1 + (seed % 2) as usize);
    delay(&cluster, 1, 0, Duration::from_millis(800));
    comes_back(&cluster, &old, 0);
    assert!(matches!(old.reads(&cluster, 0), Err(IoError::Elsewhere(_) | IoError::Abandoned)));
}

/// H17: what waits for room for a client that is gone is not sent.
pub fn what_waits_for_a_client_that_is_gone_is_not_sent(seed: u64) {
    let (cluster, _stays, old) = used(seed, 1 + (seed % 2) as usize);
    delay(&cluster, 0, 1, Duration::from_millis(30));
    // As many as one session has under way.
    comes_back(&cluster, &old, 256);
}

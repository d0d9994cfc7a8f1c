//! What a load's workers do, and whom each of them asks.
//!
//! ```text
//!   worker ─► turn ─► a link of its own ─► a place of its job ─► read or write ─► count ─► flush, if wanted ─► count
//! ```

use super::link::{Link, options};
use super::load::{Kind, Load};
use super::payload::Payload;
use super::places::{Pattern, Places};
use super::{Reached, link};
use nvme::host::Controller;
use runtime::now;
use runtime::sim::Random;
use std::net::SocketAddr;
use std::rc::Rc;

/// What the workers draw has purposes from here on: those of jobs are below.
const PURPOSE_OF_WORKERS: u64 = 1 << 32;

/// Namespaces of one subsystem, and who loads them.
#[derive(Clone, Debug)]
pub struct Namespaces {
    /// Where NVMe/TCP is spoken.
    pub address: SocketAddr,
    /// The subsystem.
    pub nqn: String,
    /// The first namespace.
    pub nsid: u32,
    /// So many namespaces with ids in a row, each of the size of the first.
    pub namespaces: u32,
    /// So many controllers, each of a host of its own.
    pub controllers: u32,
    /// I/O queues of each controller, each a connection.
    pub queues: u16,
    /// Header and data digests.
    pub digests: bool,
}

/// Ways to one volume or to several of one size, over which the workers are dealt.
pub struct Links {
    all: Vec<Link>,
    /// Into so many parts: of each part the ways are those whose numbers, counted round, are the same.
    parts: usize,
    /// The first so many ways are each to another volume.
    volumes: usize,
}

impl Links {
    /// A way for each of so many jobs. Jobs by NVMe/TCP are of one host, with a queue for each of them, as the kernel has one for
    /// each core: a target takes two controllers of one name for a host that has connected anew.
    ///
    /// # Errors
    /// If a connection is refused.
    pub(super) async fn of_jobs(reached: &Reached, depth: u32, jobs: u32) -> Result<Self, String> {
        let all = match reached {
            Reached::Nvme { .. } => vec![Link::open(reached, depth, jobs).await?; jobs as usize],
            Reached::Nbd { .. } => {
                let mut all = Vec::new();
                for _ in 0..jobs {
                    all.push(Link::open(reached, depth, 1).await?);
                }
                all
            }
        };
        Ok(Self { all, parts: jobs as usize, volumes: 1 })
    }

    /// Ways to namespaces, for `depth` I/Os at once over all. Each controller has a namespace, and each namespace a controller. A worker
    /// asks by one controller always, as a program of that host does: one that went from host to host would leave each connection
    /// with single requests, which no real hosts do.
    ///
    /// # Errors
    /// If a connection or a namespace is refused, or there is none.
    pub async fn of_namespaces(wanted: &Namespaces, depth: u32) -> Result<Self, String> {
        let Namespaces { address, nqn, nsid, namespaces, controllers, queues, digests } = wanted;
        if *namespaces == 0 || *controllers == 0 {
            return Err("there is nothing to load: name one namespace and one controller at least".to_owned());
        }
        let mut connected = Vec::new();
        for host in 0..*controllers {
            let options = options(nqn, host, depth, (*queues).into());
            let options = nvme::host::Options { header_digest: *digests, data_digest: *digests, ..options };
            connected.push(link::connect(*address, &options).await?);
        }
        let mut all = Vec::new();
        for number in 0..(*controllers).max(*namespaces) {
            let nsid = nsid + number % namespaces;
            let controller: &Controller = &connected[(number % controllers) as usize];
            all.push(Link::at(controller, format!("namespace {nsid} of {nqn} at {address}"), nsid).await?);
        }
        Ok(Self { all, parts: connected.len(), volumes: *namespaces as usize })
    }

    /// Ways to exports, each by a connection of its own and by as many as are wanted, for `depth` workers.
    ///
    /// # Errors
    /// If a connection is refused, or there is no export.
    pub async fn of_exports(
        address: SocketAddr,
        names: &[String],
        connections: u32,
        depth: u32,
    ) -> Result<Self, String> {
        if names.is_empty() {
            return Err("there is nothing to load: name one export at least".to_owned());
        }
        let mut all = Vec::new();
        for number in 0..names.len().max(connections as usize) {
            let reached = Reached::Nbd { address, export: names[number % names.len()].clone() };
            all.push(Link::open(&reached, depth, 1).await?);
        }
        let parts = all.len().min(depth as usize);
        Ok(Self { all, parts, volumes: names.len() })
    }

    /// Size of each volume.
    pub fn volume_bytes(&self) -> u64 {
        self.all[0].size_bytes()
    }

    /// Writes so many bytes of each volume once, in order, and flushes.
    ///
    /// # Errors
    /// The first of a write, or that it takes longer than fio's fill may.
    pub async fn fill(&self, span_bytes: u64) -> Result<(), String> {
        let payload = Payload::default();
        for link in &self.all[..self.volumes] {
            link.fill(span_bytes, &payload).await?;
        }
        Ok(())
    }

    /// Whom a worker asks next.
    fn of_worker(&self, worker: u32, random: &Random) -> &Link {
        &self.all[dealt(worker, self.parts, self.all.len(), random)]
    }

    /// Nothing is sent any more.
    pub(super) fn close(&self) {
        self.all.iter().for_each(Link::close);
    }
}

/// Which of `count` one that is dealt to one of so many parts takes next: always the same, or, if its part has more, one of them at random.
fn dealt(worker: u32, parts: usize, count: usize, random: &Random) -> usize {
    let part = worker as usize % parts;
    match (count - part).div_ceil(parts) {
        1 => part,
        mine => part + parts * random.below(mine as u64) as usize,
    }
}

/// Jobs over links: worker `n` is of job `n` modulo their number.
pub struct Jobs {
    links: Rc<Links>,
    pattern: Pattern,
    /// Of each job.
    places: Vec<Places>,
    payload: Payload,
    seed: u64,
}

impl Jobs {
    /// So many jobs, over the first `span_bytes` of each volume.
    ///
    /// # Errors
    /// If there is no room for one I/O, or a share is above 100: what is wrong.
    pub fn new(links: Rc<Links>, pattern: Pattern, span_bytes: u64, jobs: u32, seed: u64) -> Result<Self, String> {
        let places = Places::of_jobs(pattern, span_bytes, jobs, seed)?;
        Ok(Self { links, pattern, places, payload: Payload::default(), seed })
    }

    /// Starts their workers, so many over all.
    pub fn start(self, load: &Rc<Load>, workers: u32) {
        let jobs = Rc::new(self);
        load.start(workers, |worker| {
            let (jobs, load) = (jobs.clone(), load.clone());
            async move { jobs.work(&load, worker).await }
        });
    }

    /// One worker, to the end.
    async fn work(&self, load: &Load, worker: u32) -> Result<(), String> {
        let (places, bytes) = (&self.places[worker as usize % self.places.len()], self.pattern.block_size_bytes);
        let random = Random::for_purpose(self.seed, PURPOSE_OF_WORKERS + u64::from(worker));
        while load.turn().await {
            let begun = now();
            let (link, place) = (self.links.of_worker(worker, &random), places.next());
            if place.is_read {
                link.read(place.offset_bytes, bytes).await?;
                load.count(Kind::Read, begun);
                continue;
            }
            link.write(place.offset_bytes, self.payload.at(place.offset_bytes, bytes)).await?;
            load.count(Kind::Write, begun);
            if self.pattern.flushes {
                let begun = now();
                link.flush().await?;
                load.count(Kind::Flush, begun);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_ask_by_all_ways_and_each_by_its_own() {
        let random = Random::new(1);
        for (workers, count) in [(1, 1), (128, 1), (128, 64), (128, 100), (128, 1000), (3, 7)] {
            let parts = count.min(workers as usize);
            let mut asked = vec![false; count];
            for worker in 0..workers {
                let own = dealt(worker, parts, count, &random);
                for _ in 0..200 {
                    let one = dealt(worker, parts, count, &random);
                    assert!(workers < count as u32 || one == own, "a worker has one where there is one for it");
                    asked[one] = true;
                }
            }
            assert!(asked.iter().all(|asked| *asked), "{workers} workers leave one of {count} alone");
        }
    }

    #[test]
    fn a_worker_stays_with_its_host() {
        let random = Random::new(1);
        // Of 16 hosts and 100 namespaces, which are dealt to them in turn.
        for worker in 0..128 {
            let own = worker as usize % 16;
            assert!(
                (0..200).all(|_| dealt(worker, 16, 100, &random) % 16 == own),
                "worker {worker} went to another host"
            );
        }
    }
}

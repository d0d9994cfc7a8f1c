//! What is measured: profiles, each a table of cases.

use serde::{Deserialize, Serialize};

/// One load: what fio is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    /// What people call it: `4k random write, depth 1, fsync`.
    pub name: String,
    /// Bytes of one I/O.
    pub block_size_bytes: u64,
    /// Share of reads among the I/Os.
    pub read_percent: u8,
    /// Share of I/Os at random places; the others follow each other.
    pub random_percent: u8,
    /// Outstanding I/Os of one job.
    pub depth: u32,
    /// Jobs (clients) that each keep `depth` outstanding, per target.
    pub jobs: u32,
    /// Whether each write is followed by a flush.
    pub fsync: bool,
}

impl Case {
    fn new(block_size_bytes: u64, read_percent: u8, random_percent: u8, depth: u32) -> Self {
        let mut case =
            Self { name: String::new(), block_size_bytes, read_percent, random_percent, depth, jobs: 1, fsync: false };
        case.name = case.describe();
        case
    }

    fn jobs(mut self, jobs: u32) -> Self {
        self.jobs = jobs;
        self.name = self.describe();
        self
    }

    fn fsync(mut self) -> Self {
        self.fsync = true;
        self.name = self.describe();
        self
    }

    /// `4k random write`, without depth and jobs: what a curve over the depth is called.
    pub fn kind(&self) -> String {
        let size = match self.block_size_bytes {
            bytes if bytes >= 1 << 20 => format!("{}M", bytes >> 20),
            bytes => format!("{}k", bytes >> 10),
        };
        let order = match self.random_percent {
            100 => "random".to_owned(),
            0 => "sequential".to_owned(),
            share => format!("{share}% random"),
        };
        match self.read_percent {
            100 => format!("{size} {order} read"),
            0 => format!("{size} {order} write"),
            reads => format!("{size} {order} {reads}/{}", 100 - reads),
        }
    }

    fn describe(&self) -> String {
        let jobs = if self.jobs == 1 { String::new() } else { format!("{} x ", self.jobs) };
        let fsync = if self.fsync { ", fsync" } else { "" };
        format!("{}, depth {jobs}{}{fsync}", self.kind(), self.depth)
    }

    /// Whether it reads what must have been written before.
    pub fn reads(&self) -> bool {
        self.read_percent > 0
    }
}

/// A set of cases with one name.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    /// Whether all targets are loaded at once, as one; else they are contestants, one at a time.
    pub together: bool,
    /// Bytes of each target that the I/O goes to, unless said otherwise.
    pub span_bytes: u64,
    /// Whether CPU and memory are looked at over time.
    pub looks_at_moments: bool,
    cases: fn(quick: bool) -> Vec<Case>,
}

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;

/// All profiles there are.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "eight",
        about: "4k random at depth 1, 4 x 128 and 128, 4M sequential at 16: writes and reads",
        together: false,
        span_bytes: 4 * G,
        looks_at_moments: false,
        cases: eight,
    },
    Profile {
        name: "depth",
        about: "4k random and 512k sequential, each at depths from 1 to 256",
        together: false,
        span_bytes: 4 * G,
        looks_at_moments: false,
        cases: depth,
    },
    Profile {
        name: "mix",
        about: "4k reads, 4k writes, and mixes 8k 80/20, 16k 70/30, 32k 50/50 at depth 64",
        together: false,
        span_bytes: 4 * G,
        looks_at_moments: false,
        cases: mix,
    },
    Profile {
        name: "volumes",
        about: "4k random and 512k sequential at depth 128 on 15 volumes at once: 3 clients with 5 each",
        together: true,
        span_bytes: G,
        looks_at_moments: false,
        cases: volumes,
    },
    Profile {
        name: "stress",
        about: "4k 75/25 at depth 64 by 1 to 24 clients",
        together: false,
        span_bytes: 4 * G,
        looks_at_moments: true,
        cases: stress,
    },
    Profile {
        name: "layers",
        about: "4k random at depth 1 and 128, on each layer from the device to three copies",
        together: false,
        span_bytes: 256 * M,
        looks_at_moments: false,
        cases: layers,
    },
    Profile {
        name: "failure",
        about: "4k random while a node, a disk or a link fails, or a pool is full",
        together: false,
        span_bytes: 128 * M,
        looks_at_moments: false,
        cases: |_| Vec::new(),
    },
    Profile {
        name: "network",
        about: "4k random at depth 32 and 4M sequential at 4, over links of 1 Gbit/s",
        together: false,
        span_bytes: 512 * M,
        looks_at_moments: false,
        cases: network,
    },
    Profile {
        name: "scale",
        about: "4k random at depth 8 by 1 to 16 clients, on 3, 4 and 5 nodes",
        together: false,
        span_bytes: 512 * M,
        looks_at_moments: false,
        cases: scale,
    },
];

impl Profile {
    /// The profile of this name.
    pub fn named(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// Its cases; fewer of those that only differ in depth or clients when it is to be quick.
    pub fn cases(&self, quick: bool) -> Vec<Case> {
        (self.cases)(quick)
    }
}

fn eight(_quick: bool) -> Vec<Case> {
    let kinds = |reads: u8| {
        let first = Case::new(4 * K, reads, 100, 1);
        [
            if reads == 0 { first.fsync() } else { first },
            Case::new(4 * K, reads, 100, 128).jobs(4),
            Case::new(4 * K, reads, 100, 128),
            Case::new(4 * M, reads, 0, 16),
        ]
    };
    [kinds(0), kinds(100)].concat()
}

fn depth(quick: bool) -> Vec<Case> {
    let depths: &[u32] = if quick { &[1, 16, 256] } else { &[1, 2, 4, 8, 16, 32, 64, 128, 256] };
    let shapes = [(4 * K, 0, 100), (4 * K, 100, 100), (512 * K, 0, 0), (512 * K, 100, 0)];
    let of = |(size, reads, random)| depths.iter().map(move |depth| Case::new(size, reads, random, *depth));
    shapes.into_iter().flat_map(of).collect()
}

fn mix(_quick: bool) -> Vec<Case> {
    let shapes = [(4 * K, 100, 100), (4 * K, 0, 100), (8 * K, 80, 80), (16 * K, 70, 80), (32 * K, 50, 80)];
    shapes.into_iter().map(|(size, reads, random)| Case::new(size, reads, random, 64)).collect()
}

fn volumes(quick: bool) -> Vec<Case> {
    // Of 15 volumes 512 KiB each are a GiB under way: too much for a moment.
    let depth = if quick { 16 } else { 128 };
    let shapes = [(4 * K, 0, 100), (4 * K, 100, 100), (512 * K, 0, 0), (512 * K, 100, 0)];
    shapes.into_iter().map(|(size, reads, random)| Case::new(size, reads, random, depth)).collect()
}

fn stress(quick: bool) -> Vec<Case> {
    let clients: &[u32] = if quick { &[1, 4] } else { &[1, 2, 4, 8, 12, 16, 24] };
    clients.iter().map(|clients| Case::new(4 * K, 75, 100, 64).jobs(*clients)).collect()
}

fn layers(quick: bool) -> Vec<Case> {
    if quick {
        return vec![Case::new(4 * K, 100, 100, 128), Case::new(4 * K, 0, 100, 1)];
    }
    // Reads first: they leave what was filled as it is.
    let of = |reads| [1, 128].map(|depth| Case::new(4 * K, reads, 100, depth));
    [of(100), of(0)].concat()
}

fn network(_quick: bool) -> Vec<Case> {
    let of = |reads| [Case::new(4 * K, reads, 100, 32), Case::new(4 * M, reads, 0, 4)];
    [of(100), of(0)].concat()
}

fn scale(quick: bool) -> Vec<Case> {
    let clients: &[u32] = if quick { &[1, 4] } else { &[1, 2, 4, 8, 16] };
    let of = |reads| clients.iter().map(move |clients| Case::new(4 * K, reads, 100, 8).jobs(*clients));
    [100, 0].into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_cases_apart() {
        for profile in PROFILES {
            for quick in [false, true] {
                let mut names: Vec<String> = profile.cases(quick).into_iter().map(|case| case.name).collect();
                let count = names.len();
                names.sort();
                names.dedup();
                assert_eq!(names.len(), count, "{}", profile.name);
            }
        }
    }

    #[test]
    fn eight_are_the_fields_eight() {
        let names: Vec<String> =
            Profile::named("eight").unwrap().cases(false).into_iter().map(|case| case.name).collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names[0], "4k random write, depth 1, fsync");
        assert_eq!(names[1], "4k random write, depth 4 x 128");
        assert_eq!(names[7], "4M sequential read, depth 16");
    }

    /// Block size in KiB, share of reads, of random places, depth, jobs.
    fn shapes(profile: &str) -> Vec<(u64, u8, u8, u32, u32)> {
        let of =
            |case: Case| (case.block_size_bytes / K, case.read_percent, case.random_percent, case.depth, case.jobs);
        Profile::named(profile).unwrap().cases(false).into_iter().map(of).collect()
    }

    #[test]
    fn the_eight_have_the_published_parameters() {
        let of =
            |reads| [(4, reads, 100, 1, 1), (4, reads, 100, 128, 4), (4, reads, 100, 128, 1), (4096, reads, 0, 16, 1)];
        assert_eq!(shapes("eight"), [of(0), of(100)].concat());
        let fsync: Vec<bool> = Profile::named("eight").unwrap().cases(false).iter().map(|case| case.fsync).collect();
        assert_eq!(fsync, [true, false, false, false, false, false, false, false]);
    }

    #[test]
    fn the_mixes_have_the_published_shares() {
        let shares = [(4, 100, 100), (4, 0, 100), (8, 80, 80), (16, 70, 80), (32, 50, 80)];
        assert_eq!(shapes("mix"), shares.map(|(size, reads, random)| (size, reads, random, 64, 1)));
    }

    #[test]
    fn depths_go_from_1_to_256() {
        let depths = [1, 2, 4, 8, 16, 32, 64, 128, 256];
        let of = |size, reads, random| depths.map(|depth| (size, reads, random, depth, 1));
        assert_eq!(shapes("depth"), [of(4, 0, 100), of(4, 100, 100), of(512, 0, 0), of(512, 100, 0)].concat());
    }

    /// CurveBS v1.2.4 vs Ceph: 3 clients, 5 volumes each, depth 128.
    #[test]
    fn volumes_are_loaded_as_it_was_published() {
        assert_eq!(
            shapes("volumes"),
            [(4, 0, 100, 128, 1), (4, 100, 100, 128, 1), (512, 0, 0, 128, 1), (512, 100, 0, 128, 1)]
        );
        assert!(Profile::named("volumes").unwrap().together);
        for case in Profile::named("volumes").unwrap().cases(false) {
            let near = crate::published::near(&case);
            assert!(near.iter().any(|figure| figure.workload.volumes == Some(15)), "{}", case.name);
        }
    }

    #[test]
    fn stress_goes_from_1_to_24_clients() {
        let clients = [1, 2, 4, 8, 12, 16, 24];
        assert_eq!(shapes("stress"), clients.map(|clients| (4, 75, 100, 64, clients)));
        let stress = Profile::named("stress").unwrap();
        assert!(stress.span_bytes == 4 * G && stress.looks_at_moments);
    }

    #[test]
    fn what_is_ours_alone_is_as_it_is_documented() {
        let layers = [100, 0].map(|reads| [1, 128].map(|depth| (4, reads, 100, depth, 1))).concat();
        assert_eq!(shapes("layers"), layers);
        assert_eq!(shapes("network"), [100, 0].map(|reads| [(4, reads, 100, 32, 1), (4096, reads, 0, 4, 1)]).concat());
        let scale = [100, 0].map(|reads| [1, 2, 4, 8, 16].map(|clients| (4, reads, 100, 8, clients))).concat();
        assert_eq!(shapes("scale"), scale);
        assert!(shapes("failure").is_empty());
        assert_eq!(PROFILES.len(), 9, "each has a test");
    }
}

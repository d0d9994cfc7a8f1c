//! The load and its judge alone, on a volume of a cluster that somebody else runs and hurts: what `e2e/witness.sh` does.

use crate::load;
use e2e::admin;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use torture::load::Load;
use torture::target::Target;

const LOOK_EVERY: Duration = Duration::from_millis(100);
const SAY_EVERY: Duration = Duration::from_millis(500);

/// What the command line says.
pub struct Wish {
    admin: SocketAddr,
    volume: String,
    hang_max: Duration,
}

impl Wish {
    /// `ADMIN VOLUME SECONDS`; none: that is not what is there.
    pub fn of(words: &[String]) -> Option<Self> {
        let [admin, volume, seconds] = words else { return None };
        let admin = admin.strip_prefix("http://").unwrap_or(admin).parse().ok()?;
        Some(Self { admin, volume: volume.clone(), hang_max: Duration::from_secs(seconds.parse().ok()?) })
    }
}

/// A host of all paths uses the volume, to which nothing was written, until standard input says anything, or ends. Every half second a line says how
/// many commands were answered and how long the longest had to wait; at the end what clients saw is judged.
///
/// # Panics
/// If a command has no answer for longer than was wished, or what clients saw cannot be.
pub fn run(wish: &Wish) {
    let target = target(wish);
    assert!(target.paths.len() > 1, "several nodes serve it: {:?}", target.paths);
    let is_over = Arc::new(AtomicBool::new(false));
    let said_over = is_over.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        said_over.store(true, Ordering::Relaxed);
    });
    let load = Load::start(load::plan(target, 1));
    let (mut longest, mut said) = (Duration::ZERO, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
        let waits = load.longest_wait();
        longest = longest.max(waits);
        assert!(waits < wish.hang_max, "a command has no answer for {waits:?}");
        if said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            say(&format!("answered {} longest_wait_ms {}", load.completed(), longest.as_millis()));
        }
    }
    let outcome = load::passes(load);
    say(&format!("judged: {outcome}, none waited for longer than {:.1} s", longest.as_secs_f64()));
}

fn target(wish: &Wish) -> Target {
    let info = admin::get(wish.admin, &format!("/v1/volumes/{}", wish.volume));
    let addresses = info["nvme_addresses"].as_array().expect("a list").iter();
    Target {
        paths: addresses.filter_map(|at| at.as_str()?.parse().ok()).collect(),
        nqn: info["nqn"].as_str().expect("a name").to_owned(),
        nsid: info["nsid"].as_u64().expect("a number") as u32,
        nbd: None,
        size_bytes: info["size_bytes"].as_u64().expect("a number"),
    }
}

/// Whoever reads it may be gone: what is judged does not depend on that.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

//! A `cairn demo` process, started as a user would start it.

use crate::admin;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

/// What the contract allows from start to `ready`.
const READY_TIME_MAX: Duration = Duration::from_secs(30);

/// The binary under test: `CAIRN_BIN`, or `target/release/cairn`, which is built first.
///
/// # Panics
/// If it can not be built.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("CAIRN_BIN") {
            return path.into();
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo).current_dir(&root).args(["build", "--release", "--bin", "cairn"]).status();
        assert!(status.is_ok_and(|status| status.success()), "cargo build --release failed");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        target.join("release/cairn")
    })
}

/// A volume as a client needs it.
#[derive(Clone, Debug)]
pub struct Served {
    /// Where NBD is spoken.
    pub nbd: SocketAddr,
    /// Where NVMe/TCP is spoken.
    pub nvme: SocketAddr,
    /// The subsystem's name.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// Size in bytes.
    pub size_bytes: u64,
}

impl Served {
    /// What the cluster whose admin API is at `admin` says of a volume.
    ///
    /// # Panics
    /// If there is no such answer.
    pub fn of(admin: SocketAddr, name: &str) -> Self {
        let info = admin::get(admin, &format!("/v1/volumes/{name}"));
        let text = |key: &str| info[key].as_str().unwrap_or_else(|| panic!("{key} in {info}")).to_owned();
        let uri = text("nbd_uri");
        let nbd = uri.strip_prefix("nbd://").and_then(|rest| rest.split('/').next()).and_then(|at| at.parse().ok());
        let nvme = info["nvme_addresses"][0].as_str().and_then(|at| at.parse().ok());
        Self {
            nbd: nbd.unwrap_or_else(|| panic!("nbd_uri in {info}")),
            nvme: nvme.unwrap_or_else(|| panic!("nvme_addresses in {info}")),
            nqn: text("nqn"),
            nsid: info["nsid"].as_u64().unwrap_or_else(|| panic!("nsid in {info}")) as u32,
            size_bytes: info["size_bytes"].as_u64().unwrap_or_else(|| panic!("size_bytes in {info}")),
        }
    }
}

/// A running process. Dropping it kills it; its directory stays.
#[derive(Debug)]
pub struct Demo {
    child: Child,
    admin: SocketAddr,
}

impl Demo {
    /// Starts `cairn demo --dir directory` with `arguments` on free ports and waits until it is ready.
    ///
    /// # Panics
    /// If it is not ready in time: then what it said on stderr has been passed on.
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        let ports = ["--nvme-port", "0", "--nbd-port", "0", "--admin-port", "0"];
        Self::run(directory, &[&ports, arguments].concat())
    }

    /// Starts it again in a directory whose nodes are processes: they keep the ports that clients know.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn start_again(directory: &Path) -> Self {
        Self::run(directory, &[])
    }

    fn run(directory: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(binary())
            .args(["demo", "--dir"])
            .arg(directory)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("can not start {}: {error}", binary().display()));
        let admin = child.stdout.take().and_then(ready_address);
        if admin.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        Self { child, admin: admin.expect("cairn demo did not say `ready … admin=http://HOST:PORT` within 30 s") }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its admin API is.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// What it says of a volume.
    pub fn volume(&self, name: &str) -> Served {
        Served::of(self.admin, name)
    }

    /// What the cluster says of itself.
    pub fn status(&self) -> serde_json::Value {
        admin::get(self.admin, "/v1/status")
    }

    /// kill -9: it stops wherever it is.
    pub fn kill(mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
    }

    /// Stops every thread of it until [`resume`](Self::resume).
    ///
    /// # Panics
    /// If they do not stop.
    pub fn pause(&self) {
        self.signal(libc::SIGSTOP);
        // The signal is only sent: a thread may run on for a moment.
        for _ in 0..10_000 {
            if self.is_stopped().unwrap_or(false) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("cairn demo does not stop on SIGSTOP");
    }

    fn is_stopped(&self) -> std::io::Result<bool> {
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
            // The name in parentheses may hold anything; the state is the word behind it.
            if !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T')) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Asks it to finish and waits for it.
    ///
    /// # Panics
    /// If it does not exit with 0.
    pub fn stop(mut self) {
        self.signal(libc::SIGTERM);
        let status = self.child.wait().expect("a child of ours");
        assert!(status.success(), "cairn demo ended with {status} on SIGTERM");
    }

    fn signal(&self, signal: i32) {
        // SAFETY: kill takes two numbers. The child has not been waited for, so its id is still its own.
        let result = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(result, 0, "kill: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The admin address on the line that starts with `ready`; the rest of the output is read and dropped, so that the
/// process never waits for us.
fn ready_address(stdout: impl std::io::Read + Send + 'static) -> Option<SocketAddr> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line.starts_with("ready") {
                let _ = sender.send(line);
            }
        }
    });
    let line = receiver.recv_timeout(READY_TIME_MAX).ok()?;
    let address = line.split_whitespace().find_map(|word| word.strip_prefix("admin=http://"))?;
    address.trim_end_matches('/').parse().ok()
}

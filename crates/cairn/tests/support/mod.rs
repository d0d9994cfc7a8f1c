//! Runs the real binary in a directory of its own.
#![allow(dead_code)] // Each test file uses its part.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What the contract allows from start to `ready`.
const READY_TIME_MAX: Duration = Duration::from_secs(30);
/// Far above the two seconds of the contract: this machine may be busy, and a hang is what must be noticed.
const EXIT_TIME_MAX: Duration = Duration::from_secs(20);

/// A directory that is removed at the end.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cairn-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The binary, with nothing of the caller's environment that it would listen to.
pub fn cairn() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
    command.env_remove("CAIRN_ADMIN").env_remove("CAIRN_LOG").stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn run(arguments: &[&str]) -> Output {
    cairn().args(arguments).output().unwrap()
}

/// Runs a command that must end by itself, soon and with a failure: one that serves instead is killed.
pub fn refused(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + READY_TIME_MAX;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("still running: {:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// The command `cairn demo` on `directory` with free ports.
pub fn demo(directory: &Path, more: &[&str]) -> Command {
    let mut command = cairn();
    command.arg("demo").arg("--dir").arg(directory);
    command.args(["--nvme-port", "0", "--nbd-port", "0", "--admin-port", "0"]).args(more);
    command
}

/// The one line on stderr of a command that failed with `status`.
pub fn failure(output: &Output, status: i32) -> String {
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(status), "{line}");
    assert_eq!(line.matches('\n').count(), 1, "one line says it: {line:?}");
    assert!(output.stdout.is_empty(), "nothing on standard output");
    line
}

/// A serving `cairn demo` or `cairn node run`, killed if a test gives it up.
pub struct Serving {
    child: Child,
    pub ready: String,
    pub admin: String,
}

impl Serving {
    /// The demo, once it is ready.
    pub fn demo(directory: &Path, more: &[&str]) -> Self {
        Self::start(demo(directory, more))
    }

    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = tell.send(line);
        });
        let ready = told.recv_timeout(READY_TIME_MAX).unwrap_or_default();
        if !ready.starts_with("ready") {
            let _ = child.kill();
            let output = child.wait_with_output().unwrap();
            panic!("not ready but {ready:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        // Nobody reads its log from here on: a full pipe must not stop it.
        let mut log = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let admin = ready.split_whitespace().find_map(|word| word.strip_prefix("admin=")).unwrap().to_owned();
        Self { child, ready, admin }
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        cairn().env("CAIRN_ADMIN", &self.admin).args(arguments).output().unwrap()
    }

    /// The JSON that a command prints.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["-o", "json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Names of the volumes there are.
    pub fn names(&self) -> Vec<String> {
        let volumes = self.json(&["volume", "ls"]);
        volumes.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap().to_owned()).collect()
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Sends a signal and waits for the end.
    pub fn end(mut self, name: &str) -> ExitStatus {
        self.signal(name);
        let deadline = Instant::now() + EXIT_TIME_MAX;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "still there {EXIT_TIME_MAX:?} after SIG{name}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

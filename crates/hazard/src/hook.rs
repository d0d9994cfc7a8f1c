//! Commands that freeze and thaw a path.

use crate::HazardError;
use runtime::sleep;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A hook has ended by then.
const HOOK_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Shell commands. Each finds the path in its environment: `HAZARD_ADDRESS` (host and port), `HAZARD_HOST` and `HAZARD_PORT`.
#[derive(Clone, Debug)]
pub struct Hooks {
    /// From when it ends on, whoever serves that path does nothing.
    pub freeze: String,
    /// From when it begins on, they go on where they were.
    pub thaw: String,
}

/// Runs one; the load goes on meanwhile.
pub(crate) async fn run(command: &str, path: SocketAddr) -> Result<(), HazardError> {
    let failed = |how: String| HazardError::Hook { what: format!("`{command}`"), how };
    let environment = [
        ("HAZARD_ADDRESS", path.to_string()),
        ("HAZARD_HOST", path.ip().to_string()),
        ("HAZARD_PORT", path.port().to_string()),
    ];
    let mut running = Running::start(command, &environment).map_err(failed)?;
    loop {
        match running.end() {
            Some(ended) => return ended.map_err(failed),
            None => sleep(LOOK_EVERY).await,
        }
    }
}

/// A shell command that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    began: Instant,
}

impl Running {
    /// Starts one, in a process group of its own: what ends the tool does not end it in its midst. What it says goes to standard error.
    ///
    /// # Errors
    /// Why there is no shell.
    pub fn start(command: &str, environment: &[(&str, String)]) -> Result<Self, String> {
        let mut shell = Command::new("sh");
        // What it says is no part of the report.
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(std::io::stderr()).process_group(0);
        shell.envs(environment.iter().map(|(name, value)| (name, value)));
        let child = shell.spawn().map_err(|error| error.to_string())?;
        Ok(Self { child, began: Instant::now() })
    }

    /// How it ended; none: it has not. One that takes too long is killed.
    pub fn end(&mut self) -> Option<Result<(), String>> {
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() => Some(Ok(())),
            Ok(Some(status)) => Some(Err(format!("failed ({status})"))),
            Ok(None) if self.began.elapsed() > HOOK_MAX => {
                // It may have ended by now; either way it is not waited for.
                let _ = self.child.kill();
                Some(Err(format!("did not end within {} s", HOOK_MAX.as_secs())))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error.to_string())),
        }
    }
}

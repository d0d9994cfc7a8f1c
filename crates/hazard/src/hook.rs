//! Commands that freeze and thaw a path.

use crate::HazardError;
use runtime::{now, sleep};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

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
    let mut shell = Command::new("sh");
    // What it says is no part of the report.
    shell.args(["-c", command]).env("HAZARD_ADDRESS", path.to_string()).stdout(std::io::stderr());
    shell.env("HAZARD_HOST", path.ip().to_string()).env("HAZARD_PORT", path.port().to_string());
    let mut child = shell.spawn().map_err(|error| failed(error.to_string()))?;
    let began = now();
    loop {
        match child.try_wait().map_err(|error| failed(error.to_string()))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(failed(format!("failed ({status})"))),
            None if now().since(began) > HOOK_MAX => {
                // It may have been killed already; either way it is not waited for.
                let _ = child.kill();
                return Err(failed(format!("did not end within {} s", HOOK_MAX.as_secs())));
            }
            None => sleep(LOOK_EVERY).await,
        }
    }
}

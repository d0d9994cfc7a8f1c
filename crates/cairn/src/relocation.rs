//! `cairn volume move NAME --placement …`: what a volume holds comes to lie elsewhere, while it is used.

use crate::Failure;
use crate::args::VolumePlacement;
use crate::client::Client;
use crate::output::{Format, show};
use crate::volume::details;
use node::admin::pool_types::Placement;
use node::admin::types::{Moving, MovingState, RelocateVolume};
use node::size::ByteSize;
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Between two looks how far it is.
const LOOK: Duration = Duration::from_millis(300);
/// Looks that may fail one after the other: the head may change meanwhile.
const FAILURES_MAX: u32 = 20;

/// Moves it, and unless it is not to wait returns when it lies there.
pub(crate) fn run(
    client: &Client,
    name: &str,
    (placement, pool): (VolumePlacement, Option<String>),
    waits: bool,
    format: Format,
) -> Result<(), Failure> {
    let (placement, node) = placement.told();
    let asked = RelocateVolume { placement, node, pool };
    let begun = client.relocate(name, &asked)?;
    if !waits {
        let told = |begun: &Moving| {
            let size = ByteSize(begun.total_bytes).rounded();
            format!("{name} is being moved, to lie {}: {size} to copy; `cairn status` says how far it is\n", begun.to)
        };
        return show(format, &begun, told);
    }
    let mut failures = 0;
    loop {
        match client.relocation(name) {
            Ok(Moving { state: MovingState::Still, .. }) => break,
            Ok(Moving { state: MovingState::Failed, why, .. }) => {
                clear();
                return Err(Failure::new(why));
            }
            Ok(moving) => {
                failures = 0;
                tell_progress(&moving);
            }
            Err(failure) => {
                failures += 1;
                if failures > FAILURES_MAX {
                    return Err(failure);
                }
            }
        }
        std::thread::sleep(LOOK);
    }
    clear();
    let volume = client.volume(name)?;
    let is_as = |asked: &Option<String>, is: &str| asked.as_ref().is_none_or(|asked| asked == is);
    if volume.placement != placement || !is_as(&asked.node, &volume.home) || !is_as(&asked.pool, &volume.pool) {
        return Err(Failure::new(format!(
            "volume {name} is where it was: its head changed while it was copied, and the move was given up; say it again"
        )));
    }
    show(format, &volume, details)
}

/// Has a volume stay where it is.
pub(crate) fn give_up(client: &Client, name: &str, format: Format) -> Result<(), Failure> {
    client.give_relocation_up(name)?;
    show(format, &json!({"name": name, "given_up": true}), |_| format!("{name} stays where it is\n"))
}

fn tell_progress(moving: &Moving) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let (copied, total) = (ByteSize(moving.copied_bytes).rounded(), ByteSize(moving.total_bytes).rounded());
        let _ = write!(stderr, "\r\x1b[K{copied} of {total} copied");
        let _ = stderr.flush();
    }
}

fn clear() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

impl VolumePlacement {
    /// What the API is told: how it lies, and the node that leads it.
    pub(crate) fn told(self) -> (Placement, Option<String>) {
        match self {
            Self::Gathered => (Placement::Gathered, None),
            Self::Local(node) => (Placement::Gathered, Some(node.to_string())),
            Self::Spread => (Placement::Spread, None),
        }
    }
}

//! `cairn status`.

use crate::Failure;
use crate::client::Client;
use crate::output::{Format, print_on, show, shown};
use crate::volume::compression_name;
use node::admin::health_types::{Finding, Severity};
use node::admin::types::{Capacity, Device, Health, Status};
use node::size::ByteSize;
use std::io::IsTerminal;
use std::time::Duration;

/// Between two looks of `--watch`.
const WATCH_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(client: &Client, watch: bool, format: Format) -> Result<(), Failure> {
    if watch {
        return self::watch(client, format);
    }
    show(format, &client.status()?, text)
}

/// Each second, until nobody reads any more or the process is ended. A cluster that does not answer is no reason to end: whoever
/// watches wants to see when it does.
fn watch(client: &Client, format: Format) -> Result<(), Failure> {
    let is_drawn = format == Format::Text && std::io::stdout().is_terminal();
    loop {
        let told = match client.status() {
            Ok(status) => shown(format, &status, text)?,
            Err(failure) if format == Format::Text => format!("{}\n", failure.line()),
            Err(failure) => {
                eprintln!("cairn: {}", failure.line());
                String::new()
            }
        };
        let told = if is_drawn { redrawn(&told) } else { told };
        if !print_on(&told)? {
            return Ok(());
        }
        std::thread::sleep(WATCH_EVERY);
    }
}

/// Over what was there: from the first line on, each to its end, then nothing below (ECMA-48: CUP, EL, ED).
fn redrawn(text: &str) -> String {
    format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"))
}

pub(crate) fn text(status: &Status) -> String {
    let health = match status.health {
        Health::Healthy => "healthy",
        Health::Degraded => "degraded",
        Health::Unavailable => "unavailable",
        Health::Damaged => "damaged",
    };
    let mut text = format!("health   {health}\n");
    for finding in &status.findings {
        text += &finding_text(finding);
    }
    text += &format!("cluster  {} (cairn {})\n", status.cluster_id, status.version);
    text += &format!("volumes  {}", status.volumes);
    if status.volumes_deleting > 0 {
        text += &format!(", {} being deleted", status.volumes_deleting);
    }
    if !status.trash.is_empty() {
        text += &format!(", {} in the trash", status.trash.len());
    }
    if !status.volumes_locked.is_empty() {
        text += &format!(", {} locked ({})", status.volumes_locked.len(), status.volumes_locked.join(", "));
    }
    text += "\n";
    for pool in &status.pools {
        let (replicas, compression) = (pool.replicas, compression_name(pool.compression));
        let copies = if replicas == 1 { "1 copy".to_owned() } else { format!("{replicas} copies") };
        text += &format!("pool     {}: {copies} of each block, compression {compression}\n", pool.name);
    }
    text += &capacity(&status.capacity);
    text += &format!("groups   {} of {} serve\n", status.groups_serving, status.groups);
    for device in &status.devices {
        let used = percent(device.live_bytes, device.capacity_bytes);
        let state = state_of(device);
        let node = if device.node.is_empty() { String::new() } else { format!("{}, ", device.node) };
        let size = ByteSize(device.size_bytes);
        text += &format!("device   {}: {node}{size}, {state}, {used} % full\n", device.path);
    }
    text
}

/// What is the matter, then what that means and what to do, each on a line of its own.
fn finding_text(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Ok => "note",
        Severity::Degraded => "degraded",
        Severity::AtRisk => "at risk",
        Severity::Stopped => "stopped",
    };
    let mut text = format!("- {severity}: {}\n", finding.cause);
    let mut line = |what: &str, told: &str| text += &format!("    {what:<8} {told}\n");
    finding.at_risk.iter().for_each(|risk| line("at risk", &risk.text));
    if let Some(doing) = &finding.doing {
        line("doing", &doing.text);
        match &doing.ends_at {
            Some(at) => line("ends", &format!("{} ({at})", doing.ends)),
            None => line("ends", &doing.ends),
        }
    }
    match (&finding.advice[..], &finding.command[..]) {
        ("", "") => {}
        (advice, "") => line("to do", advice),
        ("", command) => line("run", command),
        (advice, command) => line("run", &format!("{command}   ({})", advice.trim_end_matches(':'))),
    }
    text
}

/// How the device is, in words.
pub(crate) fn state_of(device: &Device) -> &'static str {
    match device {
        Device { failed: Some(_), .. } => "failed",
        Device { slow: Some(_), .. } => "slow",
        Device { throttling: true, .. } => "writes wait for space to be cleaned",
        _ => "in use",
    }
}

pub(crate) fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}

/// What there is, what is taken, and what the volumes promise together.
fn capacity(capacity: &Capacity) -> String {
    let size = |bytes: u64| ByteSize(bytes).rounded();
    let mut text = format!(
        "space    {} of {} used ({} %), devices of {} in all; the volumes promise {} ({} %)",
        size(capacity.used_bytes),
        size(capacity.usable_bytes),
        percent(capacity.used_bytes, capacity.usable_bytes),
        size(capacity.raw_bytes),
        size(capacity.provisioned_bytes),
        capacity.overcommit_percent,
    );
    if capacity.overcommit_percent > 100 {
        text += ": more than the devices can hold";
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::admin::health_types::{AtRisk, Doing};

    #[test]
    fn a_finding_says_cause_risk_work_end_and_command() {
        let risk = AtRisk {
            text: "one more loss of node-1 or node-3 stops volume a".to_owned(),
            loses_data: false,
            of: vec!["node-1".to_owned(), "node-3".to_owned()],
            groups: 4,
            volumes: vec!["a".to_owned()],
        };
        let doing = Doing {
            kind: "wait".to_owned(),
            subject: "node-2".to_owned(),
            text: "nothing is copied yet".to_owned(),
            groups_left: 0,
            bytes_left: 0,
            bytes_per_second: None,
            ends: "when all of it is copied".to_owned(),
            ends_at: None,
            command: String::new(),
        };
        let finding = Finding {
            severity: Severity::AtRisk,
            cause: "node-2 has not been heard of for 40 s".to_owned(),
            at_risk: vec![risk],
            doing: Some(doing.clone()),
            advice: "start it again; if it is lost for good:".to_owned(),
            command: "cairn node rm node-2 --lost".to_owned(),
        };
        assert_eq!(
            finding_text(&finding),
            "- at risk: node-2 has not been heard of for 40 s\n\
             \x20   at risk  one more loss of node-1 or node-3 stops volume a\n\
             \x20   doing    nothing is copied yet\n\
             \x20   ends     when all of it is copied\n\
             \x20   run      cairn node rm node-2 --lost   (start it again; if it is lost for good)\n"
        );
        let timed = Doing { ends: "in about 5 s".to_owned(), ends_at: Some("T".to_owned()), ..doing };
        let plain = Finding { at_risk: Vec::new(), doing: Some(timed), command: String::new(), ..finding };
        let told = finding_text(&Finding { severity: Severity::Ok, advice: "look".to_owned(), ..plain });
        assert!(told.starts_with("- note: ") && told.contains("    ends     in about 5 s (T)\n"), "{told}");
        assert!(told.ends_with("    to do    look\n"), "{told}");
    }

    #[test]
    fn what_is_drawn_again_leaves_nothing_of_what_was_there() {
        assert_eq!(redrawn("a\nb\n"), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}

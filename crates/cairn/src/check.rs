//! `cairn check`: whether every copy of every block is there, can be read, and is what the others are.

use crate::Failure;
use crate::client::Client;
use crate::output::{Format, show};
use node::admin::check_types::{BeginCheck, CheckFinding, CheckReport};
use node::size::ByteSize;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Between two looks how far it is.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) fn run(client: &Client, pool: Option<String>, format: Format) -> Result<(), Failure> {
    client.begin_check(&BeginCheck { pool })?;
    let report = loop {
        let report = client.last_check()?;
        if report.over {
            break report;
        }
        tell_progress(&report);
        std::thread::sleep(LOOK);
    };
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    show(format, &report, text)?;
    match report.agree {
        true => Ok(()),
        false => Err(Failure::new(advice(&report).to_owned())),
    }
}

/// One line, drawn anew, for who looks on.
fn tell_progress(report: &CheckReport) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let found = report.findings.len() as u64 + report.more_findings;
        let read = ByteSize(report.bytes_read).rounded();
        let _ = write!(
            stderr,
            "\r\x1b[K{} of {} placement groups, {read} read, {found} findings",
            report.groups_done, report.groups
        );
        let _ = stderr.flush();
    }
}

fn text(report: &CheckReport) -> String {
    let mut text = format!(
        "{} of {} placement groups compared, {} copies: {} chunks, {} read from devices\n",
        report.groups_done,
        report.groups,
        report.copies,
        report.chunks,
        ByteSize(report.bytes_read).rounded(),
    );
    text.extend(report.findings.iter().map(line));
    if report.more_findings > 0 {
        text += &format!("  and {} more\n", report.more_findings);
    }
    if report.agree {
        text += "all copies agree\n";
    }
    text
}

fn line(found: &CheckFinding) -> String {
    let mut line = format!("  group {}", found.group);
    if let Some(store) = &found.store {
        line += &format!(", {}", place(store, found.node.as_ref()));
    }
    match (&found.volumes[..], found.offset_bytes) {
        ([], None) => {}
        ([], Some(offset)) => line += &format!(", layer {} at byte {offset}", found.layer.unwrap_or_default()),
        (volumes, offset) => line += &format!(", {} at byte {}", volumes.join(" "), offset.unwrap_or_default()),
    }
    line += &format!(": {}", found.message);
    for copy in &found.copies {
        let place = place(&copy.store, copy.node.as_ref());
        line += &format!("\n    {place}: entry {}, digest {}", copy.last_entry, copy.digest);
    }
    line + "\n"
}

fn place(store: &str, node: Option<&String>) -> String {
    node.map_or_else(|| format!("store {store}"), |node| format!("store {store} of {node}"))
}

/// What to do about what was found, the worst first.
fn advice(report: &CheckReport) -> &'static str {
    let is_any = |kind: &str| report.findings.iter().any(|found| found.kind == kind);
    if is_any("differs") {
        "copies differ: nothing more is read from those that are wrong once scrub has found them, and they are mended from the \
         others; look at `cairn status`, and say `cairn check` again"
    } else if is_any("unreadable") {
        "some of a copy cannot be read: it is being mended from the others; say `cairn check` again, and if its device goes \
         on like this have another take its place: `cairn device replace`"
    } else if is_any("not-compared") {
        "not all copies could be compared: `cairn status` says what is away or being copied; say `cairn check` again then"
    } else if is_any("changing") {
        "some was written to all the time and not compared: say `cairn check` again when less is written"
    } else {
        "not everything was looked at: `cairn status` says how the cluster is; say `cairn check` again then"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::admin::check_types::CopyState;

    fn found(kind: &str) -> CheckFinding {
        CheckFinding {
            kind: kind.to_owned(),
            group: 7,
            volumes: vec!["a".to_owned(), "b".to_owned()],
            layer: Some(3),
            offset_bytes: Some(1 << 20),
            store: None,
            node: None,
            copies: Vec::new(),
            message: "the copies are not the same".to_owned(),
        }
    }

    #[test]
    fn what_was_found_is_told_with_what_to_do() {
        let mut report = CheckReport { over: true, groups: 2, groups_done: 2, ..CheckReport::default() };
        report.findings = vec![found("not-compared"), found("differs")];
        assert!(text(&report).contains("  group 7, a b at byte 1048576: the copies are not the same\n"));
        assert!(!text(&report).contains("all copies agree") && advice(&report).starts_with("copies differ"));
        let copy = |store: &str, node: Option<&str>| CopyState {
            store: store.to_owned(),
            node: node.map(str::to_owned),
            last_entry: 5,
            digest: "ab".to_owned(),
        };
        report.findings[1].copies = vec![copy("1f", Some("node-2")), copy("2f", None)];
        assert!(
            text(&report).contains("\n    store 1f of node-2: entry 5, digest ab\n    store 2f: entry 5, digest ab\n")
        );
        report.findings.pop();
        assert!(advice(&report).starts_with("not all copies"));
        report = CheckReport { agree: true, ..CheckReport::default() };
        assert!(text(&report).ends_with("all copies agree\n"));
    }
}

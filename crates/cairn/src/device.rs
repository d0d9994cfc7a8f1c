//! `cairn device check`: offline, with the store's own code. `cairn device ls|add`: those of a cluster that runs.

use crate::Failure;
use crate::client::Client;
use crate::duty::{duty_of, moved};
use crate::output::{Format, show, table};
use crate::status::{percent, state_of};
use node::admin::duty_types::{Duty, Foretold};
use node::admin::types::Device as DeviceInfo;
use node::size::ByteSize;
use runtime::Device;
use serde::Serialize;
use std::io::ErrorKind;
use std::path::Path;
use store::OpenError;
use store::check::{CheckOptions, Checked, Finding, Severity};
use store::format::FormatError;

/// What is printed of a check.
#[derive(Debug, Serialize)]
struct Report {
    path: String,
    store: String,
    cluster: String,
    incarnation: u64,
    device_size_bytes: u64,
    segments: u64,
    records: u64,
    entries: u64,
    blocks: u64,
    blocks_needed: u64,
    bytes_read: u64,
    /// What is damaged and was not repaired.
    damaged: usize,
    /// Of these, what was acknowledged and cannot be read, or is not known to be the last.
    lost: usize,
    repaired: usize,
    findings: Vec<Told>,
}

#[derive(Debug, Serialize)]
struct Told {
    /// `loss`, `rot` or `trace`.
    severity: &'static str,
    /// Where on the device, if one place can be named.
    device_offset_bytes: Option<u64>,
    segment: Option<u32>,
    segment_offset_bytes: Option<u32>,
    what: String,
    meaning: &'static str,
    repaired: bool,
}

pub(crate) fn list(client: &Client, format: Format) -> Result<(), Failure> {
    show(format, &client.devices()?, |devices| rows(devices))
}

pub(crate) fn add(client: &Client, path: &Path, dry_run: bool, format: Format) -> Result<(), Failure> {
    // The node has another working directory.
    let path = std::path::absolute(path).map_err(Failure::of)?;
    show(format, &client.add_device(&path.display().to_string(), dry_run)?, |added| {
        rows(added.device.as_slice()) + &share(added.share.as_ref(), dry_run)
    })
}

fn share(share: Option<&Foretold>, dry_run: bool) -> String {
    let told = match share {
        None => {
            "nothing is copied there as long as a pool's copies have no place: `cairn status` says why\n".to_owned()
        }
        Some(share) if share.groups == 0 => "nothing is copied there: what is new uses it\n".to_owned(),
        Some(share) => moved(share),
    };
    told + match (dry_run, share) {
        (true, _) => "nothing was begun: say it without --dry-run\n",
        (false, Some(share)) if share.groups > 0 => "it has begun: `cairn status` says how far it is\n",
        (false, _) => "",
    }
}

fn rows(devices: &[DeviceInfo]) -> String {
    let row = |device: &DeviceInfo| {
        let used = percent(device.live_bytes, device.capacity_bytes);
        [
            device.path.clone(),
            ByteSize(device.size_bytes).to_string(),
            format!("{used} %"),
            match device.duty {
                Duty::In => state_of(device).to_owned(),
                duty => duty_of(duty, device.groups, device.groups_leaving),
            },
            device.store_id.clone(),
        ]
    };
    let rows: Vec<_> = devices.iter().map(row).collect();
    table(["PATH", "SIZE", "FULL", "STATE", "STORE"], &rows)
}

pub(crate) fn check(path: &Path, repair: bool, format: Format) -> Result<(), Failure> {
    let checked = read(path, CheckOptions { repair })?;
    let report = report(path, &checked);
    show(format, &report, text)?;
    if checked.is_damaged() {
        let repairable =
            report.findings.iter().any(|told| told.severity == "rot" && !told.repaired && told.segment.is_none());
        let hint = if repairable && !repair { "; --repair makes the superblock good" } else { "" };
        let (damaged, lost) = (report.damaged, report.lost);
        let line = format!("{} is damaged: {damaged} found, {lost} of them a loss{hint}", path.display());
        return Err(Failure::new(line));
    }
    Ok(())
}

fn read(path: &Path, options: CheckOptions) -> Result<Checked, Failure> {
    let path = path.to_owned();
    let work = async move {
        // A device that is in use is refused here.
        let device = Device::open(&path).await.map_err(|error| not_opened(&path, &error))?;
        store::check::check(&device, options).await.map_err(|error| match error {
            OpenError::Superblock(FormatError::Magic { .. }) => Failure::new(format!(
                "{} is not a Cairn device: there is no superblock at either end; name the device or file itself",
                path.display()
            )),
            other => Failure::new(format!("{}: {other}", path.display())),
        })
    };
    runtime::uring::block_on(work).map_err(Failure::of)?
}

/// What the system says, with what to do about it.
fn not_opened(path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    Failure::new(match error.kind() {
        ErrorKind::NotFound => {
            format!("there is nothing at {path}: name a block device or file, of a demo D/node-1/device-1.img")
        }
        ErrorKind::ResourceBusy => {
            format!("{path} is in use: stop the node that serves it, or unmount it, then check it")
        }
        ErrorKind::PermissionDenied => format!("{path} may not be opened ({error}): run this as its owner or as root"),
        ErrorKind::InvalidInput | ErrorKind::IsADirectory => {
            format!(
                "{path} is neither a block device nor a regular file: in a demo's directory it is node-1/device-1.img"
            )
        }
        _ => format!("{path} cannot be opened ({error}): look at the device and at the system's log"),
    })
}

fn report(path: &Path, checked: &Checked) -> Report {
    let counts = &checked.counts;
    let lost = checked.count(Severity::Loss);
    Report {
        path: path.display().to_string(),
        store: checked.store.to_string(),
        cluster: checked.cluster.to_string(),
        incarnation: checked.incarnation.0,
        device_size_bytes: checked.geometry.device_size_bytes,
        segments: counts.segments,
        records: counts.records,
        entries: counts.entries,
        blocks: counts.blocks,
        blocks_needed: counts.blocks_needed,
        bytes_read: counts.bytes,
        damaged: lost + checked.count(Severity::Rot),
        lost,
        repaired: checked.findings.iter().filter(|finding| finding.repaired).count(),
        findings: checked.findings.iter().map(|finding| told(finding, checked)).collect(),
    }
}

fn told(finding: &Finding, checked: &Checked) -> Told {
    let place = finding.place();
    Told {
        severity: match finding.severity() {
            Severity::Loss => "loss",
            Severity::Rot => "rot",
            Severity::Trace => "trace",
        },
        device_offset_bytes: finding.device_offset_bytes(&checked.geometry),
        segment: place.map(|place| place.segment.0),
        segment_offset_bytes: place.map(|place| place.offset_bytes),
        what: finding.to_string(),
        meaning: finding.meaning(),
        repaired: finding.repaired,
    }
}

/// Damage line by line; of what crashes left, only how much there is.
fn text(report: &Report) -> String {
    let mut text = format!(
        "{}: store {} of cluster {}, incarnation {}\nread {} MiB in {} segments: {} records, {} blocks, {} of them needed\n",
        report.path,
        report.store,
        report.cluster,
        report.incarnation,
        report.bytes_read >> 20,
        report.segments,
        report.records,
        report.blocks,
        report.blocks_needed,
    );
    for told in report.findings.iter().filter(|told| told.severity != "trace") {
        let place = match (told.segment, told.segment_offset_bytes, told.device_offset_bytes) {
            (Some(segment), Some(offset), Some(at)) => {
                format!("segment {segment} offset {offset} (byte {at} of the device)")
            }
            (_, _, Some(at)) => format!("byte {at} of the device"),
            _ => "no one place".to_owned(),
        };
        let state = if told.repaired { "repaired" } else { told.severity };
        text += &format!("{state}: {place}: {}\n      {}\n", told.what, told.meaning);
    }
    let traces = report.findings.iter().filter(|told| told.severity == "trace").count();
    if traces > 0 {
        text += &format!("{traces} traces of crashes: never acknowledged, nothing is lost\n");
    }
    if report.damaged == 0 {
        text += "no damage\n";
    }
    text
}

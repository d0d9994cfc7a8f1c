//! `cairn debug bundle`: one archive that a user can attach to a report. What cannot be gathered is named in it.
//!
//! ```text
//!   cairn-bundle-TIME/README.txt, missing.txt, version.json
//!                    /status.json, status.txt, nodes.json, devices.json, pools.json, volumes.json, trash.json, check.json
//!                    /events.json, map.json
//!                    /node-1/node.toml, machine.json, metrics.txt, log.txt       of each node
//! ```
//!
//! The nodes take secrets out before they answer (`node::debug`): what comes here may be shown.

use crate::Failure;
use crate::client::Client;
use crate::output::{Format, show};
use clap::Subcommand;
use flate2::Compression;
use flate2::write::GzEncoder;
use node::admin::types::Status;
use node::log::utc_of_ns;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) const HELP: &str = "\
Examples:
  cairn debug bundle                           into cairn-bundle-TIME.tar.gz in this directory
  cairn debug bundle /tmp/report.tar.gz

In it: status, nodes, devices, pools, volumes, events, the map, and of each node its file, its metrics, the end of its log,
its machine and the models of its devices. Keys, passwords and what etcd asks for are taken out; nothing of what volumes hold
is in it. Names, addresses and NQNs are: look through it before you send it. A node that does not answer is named in
missing.txt, and the rest is there. Refuses a file that is there already.";

const README: &str = "\
What `cairn debug bundle` gathered of a cluster, to be attached to a report.

missing.txt      what could not be gathered, and why; see it first
status.txt       how the cluster was, as people read it; status.json is the same for programs
events.json      what happened, the newest last
map.json         the cluster's map; keys are taken out
node-N/          of each node: its file without secrets, its machine, its metrics, the end of its log

No secret and nothing of what volumes hold is in it. Names of volumes, addresses and NQNs of hosts are.
";

/// What is asked of the cluster: the file, and the path.
const OF_CLUSTER: [(&str, &str); 8] = [
    ("nodes.json", "/v1/nodes"),
    ("devices.json", "/v1/devices"),
    ("pools.json", "/v1/pools"),
    ("volumes.json", "/v1/volumes"),
    ("trash.json", "/v1/trash"),
    ("events.json", "/v1/events"),
    ("map.json", "/v1/map"),
    ("status.json", "/v1/status"),
];
/// What is asked of each node. The first one says whether it answers at all.
const OF_NODE: [(&str, &str); 4] =
    [("machine.json", "machine"), ("node.toml", "config"), ("metrics.txt", "metrics"), ("log.txt", "log")];

#[derive(Debug, Subcommand)]
pub(crate) enum DebugCommand {
    /// Gather all that a report of a fault needs in one archive, without secrets
    Bundle {
        /// The archive [default: cairn-bundle-TIME.tar.gz in this directory]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Serialize)]
struct Report {
    file: String,
    bytes: u64,
    files: usize,
    missing: Vec<Missing>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Missing {
    what: String,
    why: String,
}

/// What was gathered so far.
#[derive(Default)]
struct Bundle {
    files: Vec<(String, Vec<u8>)>,
    missing: Vec<Missing>,
}

pub(crate) fn bundle(client: &Client, file: Option<PathBuf>, format: Format) -> Result<(), Failure> {
    let now = utc_of_ns(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64);
    let name = format!("cairn-bundle-{}", now[..19].replace([':', '-'], ""));
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
    if file.exists() {
        return Err(Failure::new(format!("{} is there already: name another file", file.display())));
    }
    // Who does not answer even that is not there at all.
    client.nodes()?;
    let bundle = gather(client);
    let bytes = write(&bundle, &name, &now, &file).map_err(|error| {
        Failure::new(format!("cannot write {} ({error}): make room there, or name another file", file.display()))
    })?;
    let report = Report { file: file.display().to_string(), bytes, files: bundle.files.len(), missing: bundle.missing };
    show(format, &report, text)
}

fn text(report: &Report) -> String {
    let mut text = format!("{} holds {} files without secrets, {} bytes\n", report.file, report.files, report.bytes);
    for Missing { what, why } in &report.missing {
        text += &format!("missing: {what} ({why})\n");
    }
    text + "names, addresses and NQNs are in it: look through it before you send it\n"
}

fn gather(client: &Client) -> Bundle {
    let mut bundle = Bundle::default();
    bundle.add("README.txt", Ok(README.as_bytes().to_vec()));
    let version = serde_json::json!({ "cairn": env!("CARGO_PKG_VERSION") });
    bundle.add("version.json", Ok(format!("{version}\n").into_bytes()));
    for (file, path) in OF_CLUSTER {
        bundle.add(file, client.raw(path));
    }
    // Who never compared anything misses nothing.
    if let Ok(check) = client.raw("/v1/check") {
        bundle.add("check.json", Ok(check));
    }
    if let Some(status) = bundle.json::<Status>("status.json") {
        bundle.add("status.txt", Ok(crate::status::text(&status).into_bytes()));
    }
    let nodes = bundle.json::<Vec<node::admin::types::Node>>("nodes.json").unwrap_or_default();
    for node in nodes.into_iter().map(|node| node.name) {
        for (file, part) in OF_NODE {
            let said = client.raw(&format!("/v1/nodes/{node}/debug/{part}"));
            let is_silent = said.is_err() && part == OF_NODE[0].1;
            if is_silent {
                let what = format!("{node}: its file, machine, metrics and log");
                bundle.missing.push(Missing {
                    what,
                    why: said.map_or_else(|failure| failure.line().to_owned(), |_| String::new()),
                });
                break;
            }
            bundle.add(&format!("{node}/{file}"), said);
        }
    }
    bundle
}

impl Bundle {
    fn add(&mut self, name: &str, content: Result<Vec<u8>, Failure>) {
        match content {
            Ok(content) => self.files.push((name.to_owned(), content)),
            Err(failure) => self.missing.push(Missing { what: name.to_owned(), why: failure.line().to_owned() }),
        }
    }

    fn json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        let (_, content) = self.files.iter().find(|(file, _)| file == name)?;
        serde_json::from_slice(content).ok()
    }

    /// `missing.txt`: it is there in any case, so that its absence says something.
    fn missing_text(&self, at: &str) -> String {
        let mut text = format!("gathered at {at}\n");
        if self.missing.is_empty() {
            text += "nothing is missing\n";
        }
        for Missing { what, why } in &self.missing {
            text += &format!("{what}: {why}\n");
        }
        text
    }

    /// All of it as a compressed archive, in a directory of its own.
    fn pack<W: Write>(&self, directory: &str, at: &str, to: W) -> io::Result<W> {
        let mut archive = tar::Builder::new(GzEncoder::new(to, Compression::default()));
        let modified = node::log::ns_of_utc(at).unwrap_or(0) / 1_000_000_000;
        let missing = ("missing.txt".to_owned(), self.missing_text(at).into_bytes());
        for (name, content) in self.files.iter().chain([&missing]) {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(modified);
            archive.append_data(&mut header, Path::new(directory).join(name), content.as_slice())?;
        }
        archive.into_inner()?.finish()
    }
}

/// Writes the archive, which is there whole or not at all. Returns its length.
fn write(bundle: &Bundle, directory: &str, at: &str, to: &Path) -> io::Result<u64> {
    let new = to.with_extension("new");
    // Names and addresses are nobody else's business on this machine.
    let file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = bundle.pack(directory, at, file).and_then(|file| {
        file.sync_all()?;
        std::fs::rename(&new, to)?;
        Ok(file.metadata()?.len())
    });
    if written.is_err() {
        // What is there of it helps nobody; why it is there is told by the error.
        let _ = std::fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Read;

    fn unpacked(archive: &[u8]) -> BTreeMap<String, String> {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
        let one = |entry: io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        };
        archive.entries().unwrap().map(one).collect()
    }

    #[test]
    fn what_was_gathered_is_in_the_archive_and_what_was_not_is_named() {
        let mut bundle = Bundle::default();
        bundle.add("a.json", Ok(b"{}".to_vec()));
        bundle.add("node-2/log.txt", Err(Failure::new("node-2 does not answer".to_owned())));
        let files = unpacked(&bundle.pack("d", "2026-05-04T12:00:00.000Z", Vec::new()).unwrap());
        assert_eq!(files.keys().collect::<Vec<_>>(), ["d/a.json", "d/missing.txt"]);
        assert_eq!(files["d/a.json"], "{}");
        assert!(files["d/missing.txt"].contains("node-2/log.txt: node-2 does not answer"), "{files:?}");
        let files = unpacked(&Bundle::default().pack("d", "2026-05-04T12:00:00.000Z", Vec::new()).unwrap());
        assert!(files["d/missing.txt"].contains("nothing is missing"));
    }

    #[test]
    fn an_archive_that_cannot_be_written_leaves_nothing_behind() {
        let directory = std::env::temp_dir().join(format!("cairn-bundle-test-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("there")).unwrap();
        assert!(write(&Bundle::default(), "d", "", &directory.join("there")).is_err());
        assert!(write(&Bundle::default(), "d", "", &directory.join("none/a.tar.gz")).is_err());
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        assert!(write(&Bundle::default(), "d", "", &directory.join("a.tar.gz")).unwrap() > 50);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

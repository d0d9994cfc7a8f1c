//! # debug: what a report of a fault needs of a node, without its secrets
//!
//! ```text
//!   node.toml ── parsed, never copied: a comment may be a secret ──► config
//!   /proc, /sys, statvfs ───────────────────────────────────────────► machine
//!   standard error, if it is a file; else what was logged lately ───► log ──┐ secrets that the node's files hold are
//!   /metrics ───────────────────────────────────────────────────────► metrics ┤ looked for in all of it, and taken out
//!   the map: only keys that are known to hold no secret ────────────► map ──┘
//! ```
//!
//! **Never.** Nothing of what volumes hold; no secret, whichever way it came there.

mod config;
mod log_tail;
mod machine;
mod map;
mod secrets;

pub(crate) use map::without_secrets as map_without_secrets;

use crate::config::NodeConfig;
use crate::files;
use secrets::Secrets;
use std::path::Path;

/// A part of what is told of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its file.
    Config,
    /// Its machine and devices, as JSON.
    Machine,
    /// The end of its log.
    Log,
    /// Its metrics.
    Metrics,
}

impl Part {
    /// As it is named.
    pub(crate) const ALL: [(&str, Self); 4] =
        [("config", Self::Config), ("machine", Self::Machine), ("log", Self::Log), ("metrics", Self::Metrics)];
}

/// A part of what is told of the node with this file. `metrics`: those of its process.
///
/// # Errors
/// Why it cannot be told.
pub(crate) fn told(part: Part, config_path: &Path, metrics: String) -> Result<String, String> {
    let secrets = Secrets::of(config_path);
    let text = match part {
        Part::Config => {
            let config: NodeConfig = files::read_toml(config_path)
                // What is wrong with it may be said by quoting it.
                .map_err(|_| format!("{} cannot be read as the file of a node", config_path.display()))?;
            config::text(config)?
        }
        Part::Machine => machine::text(config_path)?,
        Part::Log => log_tail::text()?,
        Part::Metrics => metrics,
    };
    Ok(secrets.taken_out_of(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::fs;

    /// All secrets of one node, each marked, wherever one may stand.
    fn with_secrets(directory: &Path) -> Vec<&'static str> {
        let files = [
            ("password", "MARKED-PASSWORD-1\n"),
            ("etcd.key", "-----BEGIN PRIVATE KEY-----\nMARKEDTLSKEYMARKEDTLSKEY\n-----END PRIVATE KEY-----\n"),
            ("disk.key", "MARKED-DISK-KEY-MARKED-DISK-KEY-"),
            ("etcd.crt", "-----BEGIN CERTIFICATE-----\nPUBLIC\n-----END CERTIFICATE-----\n"),
        ];
        for (name, content) in files {
            fs::write(directory.join(name), content).unwrap();
        }
        let text = "# password was MARKED-IN-A-COMMENT\nnode = 2\nkey_files = [\"disk.key\"]\n[map]\n\
                    etcd = [\"https://root:MARKED-IN-URL@10.0.0.1:2379\", \"https://10.0.0.2:2379\"]\n\
                    user = \"MARKED-USER\"\npassword_file = \"password\"\n\
                    certificate = \"etcd.crt\"\ncertificate_key = \"etcd.key\"\n[[device]]\npath = \"disk.img\"\n";
        fs::write(directory.join("node.toml"), text).unwrap();
        vec![
            "MARKED-PASSWORD-1",
            "MARKEDTLSKEYMARKEDTLSKEY",
            "MARKED-DISK-KEY-MARKED-DISK-KEY-",
            "MARKED-IN-A-COMMENT",
            "MARKED-IN-URL",
            "MARKED-USER",
        ]
    }

    #[test]
    fn no_secret_of_a_nodes_files_is_told_in_any_part_of_it() {
        let directory = TempDir::new();
        let path = directory.path().join("node.toml");
        let marked = with_secrets(directory.path());
        // Whatever was logged or counted by mistake.
        let metrics = format!("cairn_up 1\n{}\n", marked[..3].join("\n"));
        for (name, part) in Part::ALL {
            // There may be no log at all where tests run.
            let Ok(text) = told(part, &path, metrics.clone()) else {
                assert_eq!(part, Part::Log);
                continue;
            };
            assert!(!text.is_empty() && !text.contains("MARKED"), "{name}: {text}");
        }
        let config = told(Part::Config, &path, String::new()).unwrap();
        for stays in ["node = 2", "10.0.0.1:2379", "https://10.0.0.2:2379", "disk.img", "password_file = \"password\""]
        {
            assert!(config.contains(stays), "{stays}: {config}");
        }
        assert!(told(Part::Metrics, &path, metrics).unwrap().contains("cairn_up 1"));
        let machine = told(Part::Machine, &path, String::new()).unwrap();
        assert!(machine.contains("\"kernel\"") && machine.contains("disk.img"), "{machine}");
    }

    #[test]
    fn a_file_that_is_no_nodes_file_is_not_quoted() {
        let directory = TempDir::new();
        let path = directory.path().join("node.toml");
        for text in ["password = \"MARKED\"\n", "node = \"MARKED\"\n[[device]]\npath = \"/d\"\n", "MARKED"] {
            fs::write(&path, text).unwrap();
            let error = told(Part::Config, &path, String::new()).unwrap_err();
            assert!(!error.contains("MARKED"), "{error}");
        }
    }
}

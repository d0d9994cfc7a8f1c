//! The secrets that a node's files hold, so that they can be looked for in whatever is told.

use super::config::{TAKEN_OUT, user_of};
use crate::config::NodeConfig;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What is shorter is no secret that can be told from other words.
const SECRET_BYTES_MIN: usize = 4;
/// Longest file that is read: larger than any key file.
const FILE_BYTES_MAX: u64 = 128 << 10;

/// See the module.
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// Those of the node with this file. What cannot be read holds none that could be told.
    pub(super) fn of(config_path: &Path) -> Self {
        let mut found = Vec::new();
        if let Ok(config) = NodeConfig::read(config_path) {
            let files = [&config.map.password_file, &config.map.certificate_key];
            for path in files.into_iter().flatten().chain(&config.key_files) {
                found.extend(lines_of(path));
            }
            found.extend(config.map.etcd.iter().flat_map(|url| user_of(url)));
        }
        found.retain(|secret| secret.len() >= SECRET_BYTES_MIN);
        // One that is part of another goes after it.
        found.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(found)
    }

    /// The text without them.
    pub(super) fn taken_out_of(&self, text: String) -> String {
        self.0
            .iter()
            .fold(text, |text, secret| if text.contains(secret) { text.replace(secret, TAKEN_OUT) } else { text })
    }
}

/// A file of text by its lines, as one of them may stand somewhere alone. The frame of a PEM file is none.
fn lines_of(path: &Path) -> Vec<String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    let Ok(text) = read.map_err(drop).and_then(|_| String::from_utf8(bytes).map_err(drop)) else { return Vec::new() };
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
    lines.map(str::to_owned).collect()
}

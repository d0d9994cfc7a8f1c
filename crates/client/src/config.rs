//! Where the cluster is: a file with a `[map]`, as a node's has one. A node's file will do.

use node::config::{MapConfig, check_busy_poll, default_busy_poll_us};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names the file, where no other is named.
pub const FILE_VARIABLE: &str = "CAIRN_CONF";
/// Where it is looked for, one after the other.
pub const DEFAULT_FILES: [&str; 2] = ["/etc/cairn/client.toml", "/etc/cairn/node.toml"];

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The cluster's map, in etcd.
    pub map: MapConfig,
    /// How long who waits looks for answers before it sleeps, where they come as soon; zero: it always sleeps.
    pub busy_poll: Duration,
}

/// What is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nobody said where it is.
    #[error("no configuration: write {} with a [map] that names etcd, or name a file by ?conf= or {FILE_VARIABLE}", DEFAULT_FILES[0])]
    NotThere,
    /// It cannot be read, or says what cannot be.
    #[error("{}: {why}", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// A node's file says more.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    map: MapConfig,
    #[serde(default = "default_busy_poll_us")]
    busy_poll_us: u32,
}

impl Config {
    /// Reads this file, or that which `CAIRN_CONF` names, or the first of [`DEFAULT_FILES`] that is there.
    ///
    /// # Errors
    /// None is there, or one says what cannot be.
    pub fn find(file: Option<&Path>) -> Result<Self, ConfigError> {
        let named = || std::env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
        let usual = || DEFAULT_FILES.iter().map(PathBuf::from).find(|path| path.exists());
        let path = file.map(Path::to_owned).or_else(named).or_else(usual).ok_or(ConfigError::NotThere)?;
        Self::read(&path)
    }

    /// Reads a file; paths in it are taken from where it is.
    ///
    /// # Errors
    /// It is not there, or says what cannot be.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let wrong = |why: String| ConfigError::File { path: path.to_owned(), why };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let File { mut map, busy_poll_us } =
            toml::from_str(&text).map_err(|error| wrong(error.message().to_owned()))?;
        map.check().and_then(|()| check_busy_poll(busy_poll_us)).map_err(wrong)?;
        if !map.is_shared() {
            return Err(wrong("its [map] names no etcd: write etcd = [\"http://HOST:2379\"]".to_owned()));
        }
        map.paths_from(path.parent().unwrap_or(Path::new("")));
        Ok(Self { map, busy_poll: Duration::from_micros(busy_poll_us.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_and_that_of_a_node_will_do() {
        let directory = std::env::temp_dir().join(format!("cairn-client-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("client.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("written");
            Config::read(&path).map_err(|error| error.to_string())
        };
        let small = read("[map]\netcd = [\"https://a:2379\"]\nauthority = \"ca.pem\"\n").expect("it is enough");
        assert_eq!(small.map.etcd, ["https://a:2379"]);
        assert_eq!(small.map.authority, Some(directory.join("ca.pem")));
        let of_node = "node = 2\nlisten = \"::\"\nmap = { etcd = [\"http://a:1\"] }\n[[device]]\npath = \"/dev/b\"\n";
        assert_eq!(read(of_node).expect("it says more").map.etcd, ["http://a:1"]);
        assert!(read("[map]\nredb = \"m\"\n").unwrap_err().contains("names no etcd"));
        assert!(read("[map]\netcd = [\"a:1\"]\n").unwrap_err().contains("http://HOST:2379"));
        assert!(Config::read(&directory.join("no")).is_err());
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}

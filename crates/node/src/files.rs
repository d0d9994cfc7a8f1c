//! Small files, read whole and replaced whole: a crash leaves the old one or the new one.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What went wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refused.
    #[error("cannot {action} {path} ({source}): {}", remedy(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its content is not what it should be.
    #[error("{path}: {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, in one line.
        what: String,
    },
    /// Somebody else has it.
    #[error(
        "{path} is held by another process, and one directory is served by one: end that one, or choose another --dir"
    )]
    Locked {
        /// The lock.
        path: PathBuf,
    },
}

/// What to do about an error of the system. `--dir` is how the demo chooses its directory; a node's file names paths.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "choose a directory that this user may write to (--dir), or change its owner",
        ErrorKind::ReadOnlyFilesystem => "mount the file system writable, or choose another directory (--dir)",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there, or choose another directory (--dir)",
        ErrorKind::FileTooLarge => "the file system takes no file so large; choose a smaller --device-size",
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => "a file is in the way; choose another directory (--dir)",
        ErrorKind::NotFound => "nothing is there; check the path",
        _ => "check the path and the file system that it is on",
    }
}

/// Puts the action and the path to an error of the system.
pub(crate) fn during<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError::Io { action, path: path.to_owned(), source }
}

/// Reads a TOML file.
pub(crate) fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T, FileError> {
    let text = fs::read_to_string(path).map_err(during("read", path))?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        FileError::Content { path: path.to_owned(), what: format!("{place}{}", error.message().replace('\n', " ")) }
    })
}

/// Replaces a TOML file, durably, with `heading` as a comment above.
pub(crate) fn write_toml<T: Serialize>(path: &Path, heading: &str, value: &T) -> Result<(), FileError> {
    let body = toml::to_string(value)
        .map_err(|error| FileError::Content { path: path.to_owned(), what: error.to_string().replace('\n', " ") })?;
    replace(path, format!("# {heading}\n\n{body}").as_bytes())
}

/// What stands in a TOML file, and the same with tables put behind it.
pub(crate) fn with_tables<T: Serialize>(path: &Path, tables: &T) -> Result<(String, String), FileError> {
    let before = fs::read_to_string(path).map_err(during("read", path))?;
    let tables = toml::to_string(tables)
        .map_err(|error| FileError::Content { path: path.to_owned(), what: error.to_string().replace('\n', " ") })?;
    let after = format!("{}\n\n{tables}", before.trim_end());
    Ok((before, after))
}

/// Replaces a file, durably.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let new = path.with_extension("new");
    let mut file = File::create(&new).map_err(during("create", &new))?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(during("write", &new))?;
    put_in_place(&new, path)
}

/// The same for a file that only its owner may read.
pub(crate) fn replace_secret(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let new = path.with_extension("new");
    // What is left of one that was cut off may be read by others.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(during("remove", &new)(error)),
        _ => {}
    }
    let opened = File::options().write(true).create_new(true).mode(0o600).open(&new);
    let mut file = opened.map_err(during("create", &new))?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(during("write", &new))?;
    put_in_place(&new, path)
}

/// Gives a finished file its name, durably.
fn put_in_place(new: &Path, path: &Path) -> Result<(), FileError> {
    fs::rename(new, path).map_err(during("rename", new))?;
    sync_parent(path)
}

/// Makes the name of a file or directory durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), FileError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory).and_then(|d| d.sync_all()).map_err(during("sync", directory))
}

/// Bytes that the file system of `path` has left for this user.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, FileError> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| during("look at", path)(error.into()))?;
    // SAFETY: a statvfs of zero bytes is valid; the name ends with a zero byte and outlives the call.
    let (result, facts) = unsafe {
        let mut facts: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(name.as_ptr(), &mut facts), facts)
    };
    if result != 0 {
        return Err(during("look at", path)(io::Error::last_os_error()));
    }
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// A lock held until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock at `path`.
    ///
    /// # Errors
    /// [`FileError::Locked`] if another process holds it.
    pub fn take(path: &Path) -> Result<Self, FileError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(during("open", path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(FileError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(during("lock", path)(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_once_and_freed_when_dropped() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join("lock");
        let held = Lock::take(&path).unwrap();
        let error = Lock::take(&path).unwrap_err();
        assert!(matches!(error, FileError::Locked { .. }), "{error}");
        drop(held);
        Lock::take(&path).unwrap();
    }

    #[test]
    fn an_error_of_the_system_says_what_to_do() {
        let path = Path::new("/nowhere/else");
        let error = read_toml::<toml::Table>(path).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nowhere/else (") && error.ends_with("check the path"), "{error}");
        let refused = during("create", path)(ErrorKind::PermissionDenied.into()).to_string();
        assert!(refused.contains("--dir"), "{refused}");
    }

    #[test]
    fn replacing_leaves_nothing_beside() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join("a.toml");
        for content in ["x = 1", "x = 22"] {
            replace(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

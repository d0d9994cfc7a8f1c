//! The volumes of a core as exports.

use crate::machine::{Export, Exports, Failure};
use crate::wire::Errno;
use volume::{Directory, IoError, Volume};

impl Exports for Directory {
    fn find(&self, name: &str) -> Option<Export> {
        let volume = if name.is_empty() { only_volume(self)? } else { self.by_name(name)? };
        let info = volume.info();
        let description = format!("Cairn volume {}, {} bytes", info.name, info.size_bytes);
        Some(Export { name: info.name, description, size_bytes: info.size_bytes })
    }

    fn names(&self) -> Vec<String> {
        self.list().iter().map(|volume| volume.info().name).collect()
    }

    fn why_missing(&self, name: &str) -> String {
        match self.is_locked(name) {
            true => format!("volume {name} is locked: cairn volume unlock {name} --key-file PATH"),
            false => "there is no volume of this name; LIST names all".to_owned(),
        }
    }
}

/// The default export is the only volume, if there is only one.
fn only_volume(directory: &Directory) -> Option<Volume> {
    let mut all = directory.list();
    let only = all.pop()?;
    all.is_empty().then_some(only)
}

/// What a client is told of a command that was not done. `writes`: whether it would have needed room.
pub(super) fn failure(error: &IoError, writes: bool) -> Failure {
    let errno = match error {
        IoError::OutOfRange { .. } if writes => Errno::NoSpace,
        IoError::OutOfRange { .. } => Errno::Invalid,
        IoError::NoSpace(_) => Errno::NoSpace,
        IoError::ReadOnly => Errno::NotPermitted,
        IoError::Gone(_) | IoError::Abandoned => Errno::Shutdown,
        IoError::Damaged(_) | IoError::CompareFailed(_) | IoError::Unavailable(_) => Errno::Io,
    };
    Failure { errno, message: error.to_string() }
}

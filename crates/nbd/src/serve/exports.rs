//! The volumes of a core as exports.

use crate::machine::{Export, Exports, Failure, Listed, Missing};
use crate::wire::Errno;
use volume::{Directory, IoError, Volume};

impl Exports for Directory {
    fn find(&self, name: &str) -> Option<Export> {
        let volume = if name.is_empty() { only_volume(self)? } else { open(self, name)? };
        let (info, is_read_only) = (volume.info(), volume.is_read_only());
        let description = description(is_read_only, &info.name, info.size_bytes);
        Some(Export { name: info.name, description, size_bytes: info.size_bytes, is_read_only })
    }

    /// Locked volumes are not among them: what is listed can be opened, and clients that list open all of it.
    fn list(&self) -> Vec<Listed> {
        let mut list = Vec::new();
        for volume in Directory::list(self) {
            let name = volume.name();
            list.push(Listed { name: name.clone(), description: description(false, &name, volume.size_bytes()) });
            list.extend(volume.snapshots().iter().map(|snapshot| {
                let name = format!("{name}@{}", snapshot.name);
                Listed { description: description(true, &name, snapshot.size_bytes), name }
            }));
        }
        list
    }

    fn snapshots(&self, name: &str) -> Vec<String> {
        let marks = open(self, name).map(|volume| volume.marks()).unwrap_or_default();
        marks.into_iter().map(|(name, _)| name).collect()
    }

    fn why_missing(&self, name: &str) -> Missing {
        let (volume, snapshot) = name.split_once('@').map_or((name, None), |(volume, name)| (volume, Some(name)));
        let locked = self.locked();
        // The default export of a node whose only volume is locked.
        let volume = match locked.first() {
            Some(only) if name.is_empty() && locked.len() == 1 && Directory::list(self).is_empty() => only,
            _ => volume,
        };
        match snapshot {
            _ if locked.contains(volume) => {
                Missing::Locked(format!("volume {volume} is locked: cairn volume unlock {volume} --key-file PATH"))
            }
            Some(snapshot) if self.by_name(volume).is_some() => {
                Missing::Unknown(format!("volume {volume} has no snapshot named {snapshot}; LIST names all"))
            }
            _ => Missing::Unknown("there is no volume of this name; LIST names all".to_owned()),
        }
    }
}

/// What an export's name stands for: `VOLUME`, or `VOLUME@SNAPSHOT`.
pub(super) fn open(directory: &Directory, name: &str) -> Option<Volume> {
    match name.split_once('@') {
        None => directory.by_name(name),
        Some((volume, snapshot)) => directory.by_name(volume)?.snapshot(snapshot),
    }
}

fn description(is_snapshot: bool, name: &str, size_bytes: u64) -> String {
    let kind = if is_snapshot { "snapshot" } else { "volume" };
    format!("Cairn {kind} {name}, {size_bytes} bytes")
}

/// The default export is the only volume, if there is only one.
fn only_volume(directory: &Directory) -> Option<Volume> {
    let mut all = Directory::list(directory);
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
        IoError::Gone(_) | IoError::Elsewhere(_) | IoError::Abandoned => Errno::Shutdown,
        IoError::Damaged(_)
        | IoError::CompareFailed(_)
        | IoError::Unavailable(_)
        | IoError::Changing(_)
        | IoError::Stopped(_) => Errno::Io,
    };
    Failure { errno, message: error.to_string() }
}

//! What may be asked of a new volume: its name, size and format. The rules are the map's (`cluster`); here they become
//! sentences, the same for flags and for the HTTP API.

use crate::size::{ByteSize, SizeError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use types::BLOCK_BYTES;
use volume::{HostAccess, Limits, NewVolume};

/// Of what is refused so much is shown: enough to know it again.
const SHOWN_CHARS_MAX: usize = 40;

/// A volume's name: `[a-z0-9][a-z0-9._-]{0,62}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeName(String);

/// A snapshot's name, by the same rule: it is one of the volume's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotName(String);

/// `VOLUME@NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPath {
    /// The volume.
    pub volume: VolumeName,
    /// Its snapshot.
    pub snapshot: SnapshotName,
}

/// Logical block of the NVMe namespace. The physical block is 4 KiB in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum BlockSize {
    /// 512 bytes, which every host and every tool takes.
    #[default]
    Bytes512,
    /// 4,096 bytes, for hosts that would else write parts of blocks.
    Bytes4096,
}

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeSpec {
    /// Its name.
    pub name: VolumeName,
    /// Its size.
    pub size: ByteSize,
    /// Its format.
    pub block_size: BlockSize,
}

/// What is wrong with what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A name outside the rule.
    #[error(
        "'{0}' is not a volume name: use 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or a digit"
    )]
    Name(String),
    /// A snapshot's name outside the rule.
    #[error(
        "'{0}' is not a snapshot name: use 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or a digit"
    )]
    SnapshotName(String),
    /// Not `VOLUME@NAME`.
    #[error("'{0}' is not a snapshot: write VOLUME@NAME, for example data@monday")]
    SnapshotPath(String),
    /// Not a size at all.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// Out of bounds.
    #[error("a volume of {0} cannot be: choose a size from 1M to 64T")]
    SizeOutOfBounds(ByteSize),
    /// Not whole blocks.
    #[error("a volume of {0} bytes cannot be: choose a multiple of 4096")]
    SizeNotWholeBlocks(u64),
    /// An unknown format.
    #[error("a block size of '{0}' cannot be: choose 512 or 4096")]
    BlockSize(String),
    /// Not `NAME:SIZE[:512|4096]`.
    #[error("'{0}' is not a volume: write NAME:SIZE or NAME:SIZE:4096, for example data:10G")]
    Shape(String),
}

/// Text of somebody's, short enough to be told.
pub fn shortened(text: &str) -> String {
    let mut chars = text.chars();
    let told: String = chars.by_ref().take(SHOWN_CHARS_MAX).collect();
    if chars.next().is_some() { format!("{told}…") } else { told }
}

impl VolumeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VolumeName {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        cluster::check_name(text).map_err(|_| SpecError::Name(shortened(text)))?;
        Ok(Self(text.to_owned()))
    }
}

impl SnapshotName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SnapshotName {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        cluster::check_name(text).map_err(|_| SpecError::SnapshotName(shortened(text)))?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for SnapshotPath {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (volume, snapshot) = text.split_once('@').ok_or_else(|| SpecError::SnapshotPath(shortened(text)))?;
        Ok(Self { volume: volume.parse()?, snapshot: snapshot.parse()? })
    }
}

impl fmt::Display for SnapshotPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.snapshot)
    }
}

impl TryFrom<String> for VolumeName {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<VolumeName> for String {
    fn from(name: VolumeName) -> Self {
        name.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl BlockSize {
    /// In bytes: 512 or 4,096.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Bytes512 => 512,
            Self::Bytes4096 => 4096,
        }
    }
}

impl TryFrom<u32> for BlockSize {
    type Error = SpecError;
    fn try_from(bytes: u32) -> Result<Self, SpecError> {
        match bytes {
            512 => Ok(Self::Bytes512),
            4096 => Ok(Self::Bytes4096),
            other => Err(SpecError::BlockSize(other.to_string())),
        }
    }
}

impl From<BlockSize> for u32 {
    fn from(size: BlockSize) -> Self {
        size.bytes()
    }
}

impl FromStr for BlockSize {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let bytes: u32 = text.parse().map_err(|_| SpecError::BlockSize(text.to_owned()))?;
        Self::try_from(bytes)
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

impl VolumeSpec {
    /// A checked spec.
    ///
    /// # Errors
    /// A size that no volume can have.
    pub fn new(name: VolumeName, size: ByteSize, block_size: BlockSize) -> Result<Self, SpecError> {
        check_volume_size(size)?;
        Ok(Self { name, size, block_size })
    }

    /// The same for the map: without limits, for whom the node lets in that serves it.
    pub(crate) fn to_new(&self) -> NewVolume {
        NewVolume {
            name: self.name.to_string(),
            size_bytes: self.size.0,
            block_size_bytes: self.block_size.bytes(),
            limits: Limits::default(),
            hosts: HostAccess::Unset,
        }
    }
}

/// Whether a volume can have this size: whole 4 KiB, 1 MiB to 64 TiB.
pub fn check_volume_size(size: ByteSize) -> Result<ByteSize, SpecError> {
    if !(cluster::VOLUME_BYTES_MIN..=cluster::VOLUME_BYTES_MAX).contains(&size.0) {
        return Err(SpecError::SizeOutOfBounds(size));
    }
    if !size.0.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(SpecError::SizeNotWholeBlocks(size.0));
    }
    Ok(size)
}

impl FromStr for VolumeSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let parts: Vec<&str> = text.split(':').collect();
        let (name, size, block_size) = match parts[..] {
            [name, size] => (name, size, BlockSize::default()),
            [name, size, block_size] => (name, size, block_size.parse()?),
            _ => return Err(SpecError::Shape(text.to_owned())),
        };
        Self::new(name.parse()?, size.parse()?, block_size)
    }
}

impl fmt::Display for VolumeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.name, self.size, self.block_size)
    }
}

impl TryFrom<String> for VolumeSpec {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<VolumeSpec> for String {
    fn from(spec: VolumeSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule() {
        let longest = "a".repeat(63);
        for name in ["a", "0", "demo", "db-1.main_x", longest.as_str()] {
            assert_eq!(name.parse::<VolumeName>().unwrap().as_str(), name);
        }
        for name in ["", "-a", ".a", "_a", "A", "a b", "a/b", "ä", "a\n"] {
            assert_eq!(name.parse::<VolumeName>(), Err(SpecError::Name(name.into())));
        }
        for length in [64, 100_000] {
            let shown = SpecError::Name("a".repeat(SHOWN_CHARS_MAX) + "…");
            assert_eq!("a".repeat(length).parse::<VolumeName>(), Err(shown), "not all of it is echoed");
        }
    }

    #[test]
    fn sizes_are_whole_blocks_within_bounds() {
        let spec = |text: &str| text.parse::<VolumeSpec>();
        assert!(spec("v:1M").is_ok() && spec("v:64T").is_ok() && spec("v:1052672").is_ok());
        assert_eq!(spec("v:1020K"), Err(SpecError::SizeOutOfBounds(ByteSize(1020 << 10))));
        assert_eq!(spec("v:65T"), Err(SpecError::SizeOutOfBounds(ByteSize(65 << 40))));
        assert_eq!(spec("v:1048577"), Err(SpecError::SizeNotWholeBlocks(1_048_577)));
    }

    #[test]
    fn a_spec_says_name_size_and_perhaps_format() {
        let spec: VolumeSpec = "v:2G".parse().unwrap();
        assert_eq!((spec.size, spec.block_size), (ByteSize(2 << 30), BlockSize::Bytes512));
        assert_eq!("v:2G:4096".parse::<VolumeSpec>().unwrap().block_size, BlockSize::Bytes4096);
        assert_eq!("v:2G:1024".parse::<VolumeSpec>(), Err(SpecError::BlockSize("1024".into())));
        for text in ["v", "v:1G:512:x", ""] {
            assert_eq!(text.parse::<VolumeSpec>(), Err(SpecError::Shape(text.into())));
        }
        assert_eq!(spec.to_string().parse(), Ok(spec));
    }
}

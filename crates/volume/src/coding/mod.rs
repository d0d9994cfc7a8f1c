//! What becomes of a block on its way to a group: compressed, then encrypted, once, before it is replicated.

mod cipher;
mod coder;
mod compress;
mod key;

pub use key::{DataKey, KEY_FILE_BYTES_MAX, KEY_FILE_BYTES_MIN, KeyError, PASSPHRASE_BYTES_MAX, PASSPHRASE_BYTES_MIN};
pub use key::{KeyPlace, Secret};

pub(crate) use coder::{Coder, Where};

use cluster::Compression;
use std::sync::Arc;
use types::KeyId;

/// How a volume's blocks are stored from now on; what is stored already says itself how it was.
#[derive(Clone, Default)]
pub(crate) struct Coding {
    pub(crate) compression: Compression,
    /// `None`: the volume is not encrypted.
    pub(crate) key: Option<VolumeKey>,
}

/// What a volume is encrypted with.
#[derive(Clone)]
pub(crate) struct VolumeKey {
    pub(crate) id: KeyId,
    pub(crate) data: Arc<DataKey>,
}

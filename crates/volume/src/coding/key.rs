//! Data keys, and the secrets that they are wrapped with.
//!
//! ```text
//!   secret ── scrypt(salt) ──► wrapping key ── AES-256-GCM(nonce; cluster, key id, kind) ──► wrap, in the map
//! ```
//!
//! A data key is random and never changes; it is in clear in memory only. Who changes a secret wraps it again, and no
//! block is touched. A wrap opens in its own cluster, under its own key id, with its own secret, or not at all.

use cluster::{KeyRecord, KeyWrap, ScryptCost, SecretKind};
use openssl::error::ErrorStack;
use openssl::pkcs5::scrypt;
use openssl::rand::rand_bytes;
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};
use std::fmt;
use types::{ClusterId, KeyId};
use zeroize::Zeroizing;

/// Shortest key file: as many bytes as AES-256 takes from it.
pub const KEY_FILE_BYTES_MIN: usize = 32;
/// Longest key file: a longer one is something else.
pub const KEY_FILE_BYTES_MAX: usize = 65_536;
/// Shortest passphrase.
pub const PASSPHRASE_BYTES_MIN: usize = 8;
/// Longest passphrase.
pub const PASSPHRASE_BYTES_MAX: usize = 1024;

/// About 0.2 s and 32 MiB for each guess (RFC 7914 §2; N as in the recommendation for logins).
const COST: ScryptCost = ScryptCost { log2_n: 15, r: 8, p: 1 };
/// More memory than this no record may ask for.
const SCRYPT_BYTES_MAX: u64 = 1 << 30;
const SALT_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// What a volume's blocks are encrypted with. Zeroed when it is dropped; nobody prints it.
pub struct DataKey(Zeroizing<[u8; DataKey::BYTES]>);

/// What opens a data key. Zeroed when it is dropped; nobody prints it.
#[derive(Clone)]
pub struct Secret {
    kind: SecretKind,
    bytes: Zeroizing<Vec<u8>>,
}

/// Whose data key it is: a wrap opens nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlace {
    /// The cluster.
    pub cluster: ClusterId,
    /// The key.
    pub key: KeyId,
}

/// Why a data key cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No wrap opens with the secret.
    #[error("the {} is not the one that opens this volume", in_words(*.0))]
    Wrong(SecretKind),
    /// The volume has no secret of this kind.
    #[error("this volume opens with {}, not with a {}", .has, in_words(*.given))]
    OtherKind {
        /// What was given.
        given: SecretKind,
        /// What it has.
        has: String,
    },
    /// A secret that cannot be one.
    #[error("a {} of {bytes} bytes cannot be: it has {min} to {max} bytes", in_words(*.kind))]
    Length {
        /// What it is to be.
        kind: SecretKind,
        /// Its length.
        bytes: usize,
        /// The shortest.
        min: usize,
        /// The longest.
        max: usize,
    },
    /// The map's record makes no sense.
    #[error("the map's record of data key {0} is damaged: put back a good copy of the map")]
    Damaged(KeyId),
    /// The library cannot.
    #[error("the cryptographic library failed: {0}")]
    Library(String),
}

impl DataKey {
    /// Two keys of AES-256, as XTS takes them.
    pub const BYTES: usize = 64;

    /// A new one, from the system's random numbers.
    ///
    /// # Errors
    /// If the system has none.
    pub fn random() -> Result<Self, KeyError> {
        let mut key = Self(Zeroizing::new([0; Self::BYTES]));
        loop {
            rand_bytes(&mut key.0[..]).map_err(library)?;
            // XTS with two equal halves is no XTS; libraries refuse it.
            let (first, second) = key.0.split_at(Self::BYTES / 2);
            if first != second {
                return Ok(key);
            }
        }
    }

    /// The key with these bytes, for runs that must repeat.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Wraps it for `secret`. Takes about 0.2 s of a core: not for one that serves.
    ///
    /// # Errors
    /// If the library fails.
    pub fn wrap(&self, place: KeyPlace, secret: &Secret, created_at_ns: u64) -> Result<KeyWrap, KeyError> {
        let (mut salt, mut nonce, mut tag) = (vec![0; SALT_BYTES], vec![0; NONCE_BYTES], vec![0; TAG_BYTES]);
        rand_bytes(&mut salt).and_then(|()| rand_bytes(&mut nonce)).map_err(library)?;
        let wrapping = wrapping_key(secret, COST, &salt)?;
        let covered = covered(place, secret.kind);
        let ciphertext =
            encrypt_aead(Cipher::aes_256_gcm(), &wrapping[..], Some(&nonce), &covered, &self.0[..], &mut tag);
        let ciphertext = ciphertext.map_err(library)?;
        Ok(KeyWrap { kind: secret.kind, scrypt: COST, salt, nonce, ciphertext, tag, created_at_ns })
    }

    /// The data key of `record`, and the place of the wrap that `secret` opens. Takes about 0.2 s of a core for each
    /// wrap that is tried: not for one that serves.
    ///
    /// # Errors
    /// [`KeyError::Wrong`] if the secret opens none; the others say themselves what they are.
    pub fn unwrap(cluster: ClusterId, record: &KeyRecord, secret: &Secret) -> Result<(Self, usize), KeyError> {
        let place = KeyPlace { cluster, key: record.id };
        let mut of_kind = record.wraps.iter().enumerate().filter(|(_, wrap)| wrap.kind == secret.kind).peekable();
        if of_kind.peek().is_none() {
            return Err(other_kind(record, secret.kind));
        }
        for (index, wrap) in of_kind {
            if let Some(key) = open(place, wrap, secret)? {
                return Ok((key, index));
            }
        }
        Err(KeyError::Wrong(secret.kind))
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

impl Secret {
    /// The secret of these bytes.
    ///
    /// # Errors
    /// [`KeyError::Length`] if it is too short or too long.
    pub fn new(kind: SecretKind, bytes: Zeroizing<Vec<u8>>) -> Result<Self, KeyError> {
        let (min, max) = match kind {
            SecretKind::Passphrase => (PASSPHRASE_BYTES_MIN, PASSPHRASE_BYTES_MAX),
            SecretKind::KeyFile => (KEY_FILE_BYTES_MIN, KEY_FILE_BYTES_MAX),
        };
        if (min..=max).contains(&bytes.len()) {
            Ok(Self { kind, bytes })
        } else {
            Err(KeyError::Length { kind, bytes: bytes.len(), min, max })
        }
    }

    /// What it is.
    pub fn kind(&self) -> SecretKind {
        self.kind
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", in_words(self.kind))
    }
}

/// What a kind of secret is called.
fn in_words(kind: SecretKind) -> &'static str {
    match kind {
        SecretKind::Passphrase => "passphrase",
        SecretKind::KeyFile => "key file",
    }
}

fn other_kind(record: &KeyRecord, given: SecretKind) -> KeyError {
    match record.wraps.first() {
        Some(wrap) => KeyError::OtherKind { given, has: format!("a {}", in_words(wrap.kind)) },
        None => KeyError::Damaged(record.id),
    }
}

/// `None`: the secret does not open it.
fn open(place: KeyPlace, wrap: &KeyWrap, secret: &Secret) -> Result<Option<DataKey>, KeyError> {
    let is_sound = wrap.salt.len() == SALT_BYTES
        && wrap.nonce.len() == NONCE_BYTES
        && wrap.ciphertext.len() == DataKey::BYTES
        && wrap.tag.len() == TAG_BYTES
        && scrypt_bytes(wrap.scrypt).is_some();
    if !is_sound {
        return Err(KeyError::Damaged(place.key));
    }
    let wrapping = wrapping_key(secret, wrap.scrypt, &wrap.salt)?;
    let covered = covered(place, wrap.kind);
    let cipher = Cipher::aes_256_gcm();
    let opened = decrypt_aead(cipher, &wrapping[..], Some(&wrap.nonce), &covered, &wrap.ciphertext, &wrap.tag);
    let Ok(opened) = opened.map(Zeroizing::new) else { return Ok(None) };
    let mut key = DataKey(Zeroizing::new([0; DataKey::BYTES]));
    key.0.copy_from_slice(&opened);
    Ok(Some(key))
}

/// What the tag of a wrap covers beside the key.
fn covered(place: KeyPlace, kind: SecretKind) -> Vec<u8> {
    let mut covered = b"cairn data key".to_vec();
    covered.extend_from_slice(&place.cluster.0.to_be_bytes());
    covered.extend_from_slice(&place.key.0.to_be_bytes());
    covered.push(kind as u8);
    covered
}

/// What scrypt takes; `None`: parameters that no record should have.
fn scrypt_bytes(cost: ScryptCost) -> Option<u64> {
    let ScryptCost { log2_n, r, p } = cost;
    let is_sound = (10..=24).contains(&log2_n) && (1..=64).contains(&r) && (1..=16).contains(&p);
    let bytes = is_sound.then(|| 128 * u64::from(r) * ((1 << log2_n) + u64::from(p) + 2))?;
    (bytes <= SCRYPT_BYTES_MAX).then_some(bytes)
}

fn wrapping_key(secret: &Secret, cost: ScryptCost, salt: &[u8]) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let memory = scrypt_bytes(cost).expect("checked by the caller, or this program's own");
    let mut key = Zeroizing::new([0; 32]);
    let (n, r, p) = (1 << cost.log2_n, u64::from(cost.r), u64::from(cost.p));
    scrypt(&secret.bytes, salt, n, r, p, memory, &mut key[..]).map_err(library)?;
    Ok(key)
}

fn library(error: ErrorStack) -> KeyError {
    KeyError::Library(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::FamilyId;

    const CLUSTER: ClusterId = ClusterId(7);

    fn secret(kind: SecretKind, text: &str) -> Secret {
        Secret::new(kind, Zeroizing::new(text.as_bytes().to_vec())).expect("long enough")
    }

    fn file(byte: char) -> Secret {
        secret(SecretKind::KeyFile, &byte.to_string().repeat(KEY_FILE_BYTES_MIN))
    }

    fn record(key: &DataKey, secrets: &[Secret]) -> KeyRecord {
        let id = KeyId(3);
        let place = KeyPlace { cluster: CLUSTER, key: id };
        let wraps = secrets.iter().map(|secret| key.wrap(place, secret, 1).expect("a wrap")).collect();
        KeyRecord { id, family: FamilyId(1), cipher: cluster::Cipher::Aes256Xts, wraps, created_at_ns: 1 }
    }

    fn error(record: &KeyRecord, secret: &Secret) -> KeyError {
        DataKey::unwrap(CLUSTER, record, secret).expect_err("it must not open")
    }

    #[test]
    fn each_secret_opens_the_same_key_and_no_other_does() {
        let key = DataKey::random().expect("random bytes");
        let word = secret(SecretKind::Passphrase, "open sesame");
        let record = record(&key, &[word.clone(), file('a')]);
        for (secret, place) in [(&word, 0), (&file('a'), 1)] {
            let (opened, index) = DataKey::unwrap(CLUSTER, &record, secret).expect("it opens");
            assert!(opened.bytes() == key.bytes() && index == place);
        }
        assert_eq!(error(&record, &file('b')), KeyError::Wrong(SecretKind::KeyFile));
        // The same bytes are not the same secret if they are of another kind.
        let word = secret(SecretKind::Passphrase, &"a".repeat(KEY_FILE_BYTES_MIN));
        assert_eq!(error(&record, &word), KeyError::Wrong(SecretKind::Passphrase));
    }

    #[test]
    fn two_wraps_of_one_key_have_nothing_in_common_and_hold_neither_key_nor_secret() {
        let (key, secret) = (DataKey::random().expect("random bytes"), file('s'));
        let record = record(&key, &[secret.clone(), secret.clone()]);
        let [one, two] = &record.wraps[..] else { panic!("two wraps") };
        assert!(one.salt != two.salt && one.nonce != two.nonce && one.ciphertext != two.ciphertext);
        let bytes = cluster::encode(&record);
        let digits: String = key.bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let text = String::from_utf8(bytes.clone()).expect("JSON");
        assert!(!text.contains(&digits) && !text.contains("ssss") && !text.contains("73737373"), "{text}");
        assert_eq!(cluster::decode::<KeyRecord>("data-keys/3", &bytes), Ok(record));
        assert!(!format!("{key:?} {secret:?}").contains("115"), "nobody prints them");
    }

    #[test]
    fn a_wrap_that_was_changed_or_moved_does_not_open() {
        let whole = record(&DataKey::random().expect("random bytes"), &[file('a')]);
        let refused = |change: fn(&mut KeyRecord)| {
            let mut changed = whole.clone();
            change(&mut changed);
            error(&changed, &file('a'))
        };
        let wrong = KeyError::Wrong(SecretKind::KeyFile);
        assert_eq!(refused(|record| record.wraps[0].ciphertext[0] ^= 1), wrong);
        assert_eq!(refused(|record| record.wraps[0].tag[15] ^= 1), wrong);
        assert_eq!(refused(|record| record.wraps[0].salt[0] ^= 1), wrong);
        assert_eq!(refused(|record| record.wraps[0].scrypt.log2_n = 14), wrong);
        // To another key of the cluster, and to another cluster.
        assert_eq!(refused(|record| record.id = KeyId(4)), wrong);
        assert_eq!(DataKey::unwrap(ClusterId(8), &whole, &file('a')).expect_err("moved"), wrong);
        let damaged = KeyError::Damaged(KeyId(3));
        assert_eq!(refused(|record| record.wraps[0].tag.truncate(4)), damaged);
        assert_eq!(refused(|record| record.wraps[0].scrypt.log2_n = 24), damaged);
        assert_eq!(refused(|record| record.wraps.clear()), damaged);
        let word = secret(SecretKind::Passphrase, "open sesame");
        assert!(error(&whole, &word).to_string().contains("opens with a key file, not with a passphrase"));
    }

    #[test]
    fn secrets_that_are_too_short_or_too_long_are_refused() {
        for (kind, bytes, fits) in [
            (SecretKind::KeyFile, 31, false),
            (SecretKind::KeyFile, 32, true),
            (SecretKind::KeyFile, 65_536, true),
            (SecretKind::KeyFile, 65_537, false),
            (SecretKind::Passphrase, 7, false),
            (SecretKind::Passphrase, 8, true),
            (SecretKind::Passphrase, 1025, false),
        ] {
            let made = Secret::new(kind, Zeroizing::new(vec![1; bytes]));
            assert_eq!(made.is_ok(), fits, "{bytes} bytes of {kind:?}");
        }
    }

    /// RFC 7914 §12, third vector: the very function, not one that looks like it.
    #[test]
    fn scrypt_is_that_of_the_standard() {
        let mut out = [0; 64];
        scrypt(b"pleaseletmein", b"SodiumChloride", 16384, 8, 1, 64 << 20, &mut out).expect("it works");
        assert_eq!(out[..8], [0x70, 0x23, 0xbd, 0xcb, 0x3a, 0xfd, 0x73, 0x48]);
    }
}

//! Secrets as files hold them, and as the admin API takes them.

use crate::files::{FileError, during};
use cluster::SecretKind;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use volume::{KEY_FILE_BYTES_MAX, KeyError, PASSPHRASE_BYTES_MAX, Secret};
use zeroize::Zeroizing;

/// Reads a key file: every byte of it counts.
///
/// # Errors
/// If it cannot be read, or is too short or too long.
pub fn read_key_file(path: &Path) -> Result<Secret, FileError> {
    let file = File::open(path).map_err(during("open", path))?;
    let bytes = read_at_most(file, KEY_FILE_BYTES_MAX).map_err(during("read", path))?;
    if bytes.len() > KEY_FILE_BYTES_MAX {
        return Err(too_long(path, "key file", KEY_FILE_BYTES_MAX));
    }
    secret(path, SecretKind::KeyFile, bytes)
}

/// Reads a file that holds a passphrase; `-` is standard input. One line end at its end is none of it.
///
/// # Errors
/// If it cannot be read, or is too short or too long.
pub fn read_passphrase_file(path: &Path) -> Result<Secret, FileError> {
    // Room for the line end.
    let bytes_max = PASSPHRASE_BYTES_MAX + 2;
    let read = if path == Path::new("-") {
        read_at_most(std::io::stdin().lock(), bytes_max)
    } else {
        let file = File::open(path).map_err(during("open", path))?;
        read_at_most(file, bytes_max)
    };
    let mut bytes = read.map_err(during("read", path))?;
    for end in [b'\n', b'\r'] {
        if bytes.last() == Some(&end) {
            bytes.pop();
        }
    }
    if bytes.len() > PASSPHRASE_BYTES_MAX {
        return Err(too_long(path, "passphrase", PASSPHRASE_BYTES_MAX));
    }
    secret(path, SecretKind::Passphrase, bytes)
}

/// Reads a byte more than may be there, so that what is too long shows. Nothing is left behind in a buffer that grew.
fn read_at_most(from: impl Read, bytes_max: usize) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max + 1));
    from.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// How long it is nobody has looked.
fn too_long(path: &Path, what: &str, bytes_max: usize) -> FileError {
    let what = format!("has more than {bytes_max} bytes, the most that a {what} may have: name a shorter file");
    FileError::Content { path: path.to_owned(), what }
}

fn secret(path: &Path, kind: SecretKind, bytes: Zeroizing<Vec<u8>>) -> Result<Secret, FileError> {
    let refused = |error: KeyError| FileError::Content { path: path.to_owned(), what: error.to_string() };
    Secret::new(kind, bytes).map_err(refused)
}

/// The bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> Zeroizing<String> {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    let mut text = Zeroizing::new(String::with_capacity(2 * bytes.len()));
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// The bytes that hexadecimal digits stand for; `None` if they are none.
pub fn from_hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    for pair in text.as_bytes().chunks(2) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        bytes.push((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn a_passphrase_ends_before_its_line_end_and_a_key_file_does_not() {
        let directory = TempDir::new();
        let path = directory.path().join("secret");
        for (content, expected) in
            [("open sesame", "open sesame"), ("open sesame\r\n", "open sesame"), ("open sesame\n\n", "open sesame\n")]
        {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read_passphrase_file(&path).unwrap().bytes(), expected.as_bytes());
        }
        std::fs::write(&path, "k".repeat(31) + "\n").unwrap();
        assert_eq!(read_key_file(&path).unwrap().bytes().len(), 32);
        for (bytes, named) in [(31, "31 bytes cannot be: it has 32 to 65536"), (1 << 20, "has more than 65536 bytes")] {
            std::fs::write(&path, vec![1; bytes]).unwrap();
            let error = read_key_file(&path).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        std::fs::write(&path, vec![b'p'; PASSPHRASE_BYTES_MAX + 1]).unwrap();
        let error = read_passphrase_file(&path).unwrap_err().to_string();
        assert!(error.contains("has more than 1024 bytes"), "{error}");
        let error = read_key_file(&directory.path().join("nothing")).unwrap_err().to_string();
        assert!(error.contains("nothing is there"), "{error}");
    }

    #[test]
    fn digits_and_bytes_are_the_same() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)).unwrap()[..], bytes);
        assert!(from_hex("abc").is_none() && from_hex("xx").is_none() && from_hex("ä").is_none());
    }
}

//! AES-256-XTS (IEEE 1619): the data unit is a stored block, its number the block's place in the volume.

use super::key::DataKey;
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;
use std::sync::{Arc, Weak};

/// One core's contexts, by key: setting one up takes longer than a block.
#[derive(Default)]
pub(super) struct Ciphers(Vec<(Weak<DataKey>, Xts)>);

impl Ciphers {
    /// The context of this key. Those of keys that nobody holds any more are dropped when a new one comes.
    pub(super) fn of(&mut self, key: &Arc<DataKey>) -> Result<&mut Xts, ErrorStack> {
        let known = self.0.iter().position(|(held, _)| std::ptr::eq(held.as_ptr(), Arc::as_ptr(key)));
        let at = match known {
            Some(at) => at,
            None => {
                self.forget_unheld();
                self.0.push((Arc::downgrade(key), Xts::new(key)?));
                self.0.len() - 1
            }
        };
        Ok(&mut self.0[at].1)
    }

    /// Drops the contexts of keys that nobody holds any more; they are zeroed with them.
    pub(super) fn forget_unheld(&mut self) {
        self.0.retain(|(held, _)| held.strong_count() > 0);
    }
}

/// A key, ready for use.
pub(super) struct Xts {
    encrypt: CipherCtx,
    decrypt: CipherCtx,
}

impl Xts {
    fn new(key: &DataKey) -> Result<Self, ErrorStack> {
        let (mut encrypt, mut decrypt) = (CipherCtx::new()?, CipherCtx::new()?);
        encrypt.encrypt_init(Some(Cipher::aes_256_xts()), Some(key.bytes()), None)?;
        decrypt.decrypt_init(Some(Cipher::aes_256_xts()), Some(key.bytes()), None)?;
        Ok(Self { encrypt, decrypt })
    }

    /// Encrypts `from` into `to`, of the same length: at least 16 bytes.
    pub(super) fn encrypt(&mut self, number: u64, from: &[u8], to: &mut [u8]) -> Result<(), ErrorStack> {
        self.encrypt.encrypt_init(None, None, Some(&tweak(number)))?;
        self.encrypt.cipher_update(from, Some(to)).map(drop)
    }

    /// Encrypts what is there.
    pub(super) fn encrypt_in_place(&mut self, number: u64, bytes: &mut [u8]) -> Result<(), ErrorStack> {
        self.encrypt.encrypt_init(None, None, Some(&tweak(number)))?;
        self.encrypt.cipher_update_inplace(bytes, bytes.len()).map(drop)
    }

    /// Decrypts `from` into `to`, of the same length.
    pub(super) fn decrypt(&mut self, number: u64, from: &[u8], to: &mut [u8]) -> Result<(), ErrorStack> {
        self.decrypt.decrypt_init(None, None, Some(&tweak(number)))?;
        self.decrypt.cipher_update(from, Some(to)).map(drop)
    }

    /// Decrypts what is there.
    pub(super) fn decrypt_in_place(&mut self, number: u64, bytes: &mut [u8]) -> Result<(), ErrorStack> {
        self.decrypt.decrypt_init(None, None, Some(&tweak(number)))?;
        self.decrypt.cipher_update_inplace(bytes, bytes.len()).map(drop)
    }
}

/// IEEE 1619, 5.1: the number of the data unit, least significant byte first.
fn tweak(number: u64) -> [u8; 16] {
    u128::from(number).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_goes_when_nobody_holds_its_key() {
        let keys = [1, 2].map(|byte| Arc::new(DataKey::from_bytes(std::array::from_fn(|index| index as u8 ^ byte))));
        let mut ciphers = Ciphers::default();
        for key in keys.iter().chain(&keys) {
            ciphers.of(key).expect("a context");
        }
        ciphers.forget_unheld();
        assert_eq!(ciphers.0.len(), 2);
        let [held, dropped] = keys;
        drop(dropped);
        ciphers.forget_unheld();
        assert!(ciphers.0.len() == 1 && std::ptr::eq(ciphers.0[0].0.as_ptr(), Arc::as_ptr(&held)));
    }
}

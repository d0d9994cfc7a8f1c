//! Data keys of encrypted volumes, as the map keeps them: wrapped, never in clear.

use super::id_format::{bytes, number};
use super::{Record, keys};
use serde::{Deserialize, Serialize};
use types::{FamilyId, KeyId};

/// The data key of a family of volumes, wrapped once for each secret that opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Its id, never used again. A layer's record names it, and so does what is wrapped.
    #[serde(with = "number")]
    pub id: KeyId,
    /// The family whose blocks are encrypted with it.
    #[serde(with = "number")]
    pub family: FamilyId,
    /// How.
    pub cipher: Cipher,
    /// One for each secret.
    pub wraps: Vec<KeyWrap>,
    /// Wall time, only told.
    pub created_at_ns: u64,
}

/// What blocks are encrypted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cipher {
    /// AES-256 in XTS mode (IEEE 1619): a key of 64 bytes.
    Aes256Xts,
}

/// A data key, encrypted with AES-256-GCM under a key that scrypt (RFC 7914) makes of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyWrap {
    /// What the secret is.
    pub kind: SecretKind,
    /// What making the key costs.
    pub scrypt: ScryptCost,
    /// Of scrypt.
    #[serde(with = "bytes")]
    pub salt: Vec<u8>,
    /// Of AES-256-GCM: 12 bytes.
    #[serde(with = "bytes")]
    pub nonce: Vec<u8>,
    /// The data key, encrypted.
    #[serde(with = "bytes")]
    pub ciphertext: Vec<u8>,
    /// Of AES-256-GCM: 16 bytes. It covers cluster, key id and kind as well.
    #[serde(with = "bytes")]
    pub tag: Vec<u8>,
    /// Wall time, only told.
    pub created_at_ns: u64,
}

/// What a secret is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretKind {
    /// Words that a person knows.
    Passphrase,
    /// What a file holds.
    KeyFile,
}

/// Parameters of scrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScryptCost {
    /// N, as a power of two.
    pub log2_n: u8,
    /// Size of a block.
    pub r: u32,
    /// Parallelization.
    pub p: u32,
}

impl Record for KeyRecord {
    fn key(&self) -> String {
        keys::data_key(self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Compression, HostAccess, Limits, PoolRecord, VolumeRecord};
    use crate::typed::{decode, encode};
    use types::NodeId;

    #[test]
    fn records_from_before_there_were_keys_and_compression_are_read() {
        let pool = br#"{"schema":1,"name":"default","policy":"replicated","replicas":1,"min_in_sync":1,"table":1,"write_cache":false}"#;
        assert_eq!(decode::<PoolRecord>("pools/default", pool).expect("a pool").compression, Compression::Off);
        let volume = br#"{"schema":2,"id":1,"name":"v","pool":"default","table":1,"size_bytes":1048576,
            "block_size_bytes":512,"subsystem":"default","nsid":1,"nguid":"01","family":1,"family_seed":7,"layers":[1],
            "head":1,"volume_epoch":1,"created_at_ns":1,"project":"default","state":"online"}"#;
        let read = decode::<VolumeRecord>("volumes/1", volume).expect("a volume");
        assert_eq!(read.key, None);
        let keyed = VolumeRecord { key: Some(KeyId(3)), ..read };
        let text = String::from_utf8(encode(&keyed)).expect("JSON");
        assert!(text.contains(r#""key":3"#) && text.contains(r#""schema":8"#), "older programs refuse it: {text}");
        assert_eq!(decode::<VolumeRecord>("volumes/1", text.as_bytes()), Ok(keyed));
    }

    #[test]
    fn a_volume_from_before_there_were_limits_has_none_and_keeps_those_it_gets() {
        let volume = br#"{"schema":4,"id":1,"name":"v","pool":"default","table":1,"size_bytes":1048576,
            "block_size_bytes":512,"subsystem":"default","nsid":1,"nguid":"01","family":1,"family_seed":7,"layers":[1],
            "head":1,"volume_epoch":1,"created_at_ns":1,"project":"default","state":"online"}"#;
        let read = decode::<VolumeRecord>("volumes/1", volume).expect("a volume");
        assert!(read.limits.is_unset());
        assert!(!String::from_utf8(encode(&read)).expect("JSON").contains("limits"), "nothing is said of none");
        let limits = Limits { iops: Some(5), bytes_per_second: None, burst_ms: Some(1000) };
        let limited = VolumeRecord { limits, ..read };
        let text = String::from_utf8(encode(&limited)).expect("JSON");
        assert!(text.contains(r#""limits":{"iops":5,"burst_ms":1000}"#), "{text}");
        assert_eq!(decode::<VolumeRecord>("volumes/1", text.as_bytes()), Ok(limited));
    }

    #[test]
    fn a_volume_of_which_nobody_said_which_hosts_may_use_it_stays_so() {
        let volume = br#"{"schema":3,"id":1,"name":"v","pool":"default","table":1,"size_bytes":1048576,
            "block_size_bytes":512,"subsystem":"default","nsid":1,"nguid":"01","family":1,"family_seed":7,"layers":[1],
            "head":1,"volume_epoch":1,"created_at_ns":1,"project":"default","state":"online"}"#;
        let read = decode::<VolumeRecord>("volumes/1", volume).expect("a volume");
        assert_eq!(read.hosts, HostAccess::Unset);
        for (hosts, text) in [
            (HostAccess::Any, r#""hosts":"any""#),
            (
                HostAccess::Listed(vec!["nqn.2026-01.io.example:a".into()]),
                r#""hosts":{"listed":["nqn.2026-01.io.example:a"]}"#,
            ),
        ] {
            let record = VolumeRecord { hosts, ..read.clone() };
            let written = String::from_utf8(encode(&record)).expect("JSON");
            assert!(written.contains(text), "{written}");
            assert_eq!(decode::<VolumeRecord>("volumes/1", written.as_bytes()), Ok(record));
        }
    }

    #[test]
    fn a_volume_from_before_there_were_homes_has_none_and_keeps_the_one_it_gets() {
        let volume = br#"{"schema":6,"id":1,"name":"v","pool":"default","table":1,"size_bytes":1048576,
            "block_size_bytes":512,"subsystem":"default","nsid":1,"nguid":"01","family":1,"family_seed":7,"layers":[1],
            "leaving":[2],"head":1,"volume_epoch":1,"created_at_ns":1,"project":"default","state":"online"}"#;
        let read = decode::<VolumeRecord>("volumes/1", volume).expect("a volume");
        assert_eq!(read.home, NodeId(0));
        assert!(!String::from_utf8(encode(&read)).expect("JSON").contains("home"), "nothing is said of none");
        let housed = VolumeRecord { home: NodeId(3), ..read };
        let text = String::from_utf8(encode(&housed)).expect("JSON");
        assert!(text.ends_with(r#""state":"online","home":3}"#), "{text}");
        assert_eq!(decode::<VolumeRecord>("volumes/1", text.as_bytes()), Ok(housed));
    }

    #[test]
    fn bytes_are_digits_and_nothing_else() {
        let wrap = |salt: &str| {
            format!(
                r#"{{"kind":"key-file","scrypt":{{"log2_n":15,"r":8,"p":1}},"salt":"{salt}","nonce":"","ciphertext":"",
                "tag":"","created_at_ns":1}}"#
            )
        };
        let read: KeyWrap = serde_json::from_str(&wrap("00ff7A")).expect("a wrap");
        assert_eq!((read.kind, read.salt), (SecretKind::KeyFile, vec![0, 255, 0x7a]));
        for salt in ["0", "0x", "ä", "00 1"] {
            assert!(serde_json::from_str::<KeyWrap>(&wrap(salt)).is_err(), "{salt}");
        }
    }
}

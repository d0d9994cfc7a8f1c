//! Encrypted volumes and pools, as a client meets them.

use super::*;
use crate::keys::{KeyRequest, SecretChange};
use crate::pools::PoolRequest;
use types::NodeId;
use volume::{Encryption, PoolInfo, Secret};

/// A control core whose volumes all open with the same secrets.
pub(super) struct Keys {
    pool: PoolInfo,
    secrets: Vec<Secret>,
}

impl Keys {
    pub(super) fn new() -> Self {
        Self { pool: crate::testing::pool("default"), secrets: Vec::new() }
    }

    fn place(&self, secret: &Secret) -> Result<usize, ControlError> {
        let found =
            self.secrets.iter().position(|known| known.bytes() == secret.bytes() && known.kind() == secret.kind());
        found.ok_or_else(|| ControlError::WrongSecret("another one".to_owned()))
    }

    pub(super) fn answer(&mut self, request: KeyRequest, volumes: &mut Vec<VolumeInfo>) {
        let mut set = |name: &VolumeName, encryption| {
            let found = volumes.iter_mut().find(|info| info.name == name.as_str());
            let found = found.ok_or_else(|| ControlError::NotFound(name.to_string()))?;
            if found.encryption == Encryption::Off {
                return Err(ControlError::NotEncrypted(name.to_string()));
            }
            found.encryption = encryption;
            Ok(found.clone())
        };
        match request {
            KeyRequest::Create(new, _, secret, reply) => {
                self.secrets = vec![secret];
                let made = info(volumes.len() as u64 + 1, &new);
                volumes.push(VolumeInfo { encryption: Encryption::Unlocked, ..made });
                let _ = reply.send(Ok(volumes[volumes.len() - 1].clone()));
            }
            KeyRequest::Unlock(name, secret, reply) => {
                let _ = reply.send(self.place(&secret).and_then(|_| set(&name, Encryption::Unlocked)));
            }
            KeyRequest::Lock(name, reply) => drop(reply.send(set(&name, Encryption::Locked))),
            KeyRequest::Rekey(name, secret, change, reply) => {
                let answer = self.place(&secret).and_then(|place| {
                    match change {
                        SecretChange::Replace(new) => self.secrets[place] = new,
                        SecretChange::Add(new) => self.secrets.push(new),
                        SecretChange::Remove => drop(self.secrets.remove(place)),
                    }
                    set(&name, Encryption::Unlocked)
                });
                let _ = reply.send(answer);
            }
            KeyRequest::SetCompression(name, compression, reply) => {
                self.pool.record.compression = compression;
                let found = (name == self.pool.record.name).then(|| self.pool.record.clone());
                let _ = reply.send(found.ok_or(ControlError::NoPool(name)));
            }
        }
    }
}

impl Keys {
    /// What makes pools is tried elsewhere: here only that what is asked arrives.
    pub(super) fn answer_of_pools(&mut self, request: PoolRequest) {
        match request {
            PoolRequest::List(reply) => drop(reply.send(Ok(vec![self.pool.clone()]))),
            PoolRequest::Create(new, reply) => {
                let refused = format!("{} copies, of which {}, apart by {}", new.replicas, new.min_in_sync, {
                    new.rules.expect("they are said").failure_domain
                });
                drop(reply.send(Err(ControlError::Refused(refused))));
            }
            PoolRequest::Change(name, change, reply) => {
                let found = name == self.pool.record.name;
                if let Some(placement) = change.placement.filter(|_| found) {
                    self.pool.rules.placement = placement;
                }
                drop(reply.send(if found { Ok(self.pool.clone()) } else { Err(ControlError::NoPool(name)) }));
            }
            PoolRequest::HomeFor(wanted, reply) => {
                let answer = match wanted.home {
                    None | Some(NodeId(1)) => Ok(NodeId(1)),
                    Some(node) => Err(ControlError::Refused(format!("node-{node} has no device"))),
                };
                drop(reply.send(answer));
            }
        }
    }
}

#[test]
fn a_pool_is_made_and_changed_and_volumes_are_placed() {
    with_server(|at| async move {
        for (asked, told) in [
            (json!({"name": "p", "replicas": 3}), "3 copies, of which 2, apart by node"),
            (json!({"name": "p", "replicas": 2}), "2 copies, of which 1, apart by node"),
            (json!({"name": "p", "replicas": 1}), "1 copies, of which 1, apart by device"),
            (
                json!({"name": "p", "replicas": 5, "min_in_sync": 4, "failure_domain": "rack"}),
                "5 copies, of which 4, apart by rack",
            ),
        ] {
            let (status, answer) = ask(at, "POST", "/v1/pools", Some(asked)).await;
            assert_eq!((status, &answer["error"]["message"]), (422, &json!(told)));
        }
        let (status, _) =
            ask(at, "POST", "/v1/pools", Some(json!({"name": "p", "replicas": 3, "domain": "rack"}))).await;
        assert_eq!(status, 422, "what is not known is refused");
        let spread = Some(json!({"placement": "spread"}));
        let (status, pool) = ask(at, "PATCH", "/v1/pools/default", spread).await;
        assert_eq!((status, &pool["placement"], &pool["compression"]), (200, &json!("spread"), &json!("off")));
        let on = |node: &str| Some(json!({"name": "v", "size_bytes": 1 << 20, "placement": "gathered", "node": node}));
        let (status, answer) = ask(at, "POST", "/v1/volumes", on("node-7")).await;
        assert_eq!((status, &answer["error"]["code"]), (422, &json!("refused")), "{answer}");
        assert_eq!(ask(at, "POST", "/v1/volumes", on("seven")).await.0, 400);
        let (status, made) = ask(at, "POST", "/v1/volumes", on("node-1")).await;
        assert_eq!((status, &made["head"], &made["home"]), (201, &json!("node-1"), &json!("node-1")));
    });
}

fn key_file(byte: &str) -> Value {
    json!({"kind": "key-file", "hex": byte.repeat(32)})
}

#[test]
fn an_encrypted_volume_is_locked_unlocked_and_given_another_secret() {
    with_server(|at| async move {
        let asked = json!({"name": "v", "size_bytes": 1 << 20, "secret": key_file("aa")});
        let (status, made) = ask(at, "POST", "/v1/volumes", Some(asked)).await;
        assert_eq!((status, &made["encrypted"], &made["locked"]), (201, &json!(true), &json!(false)));
        let (status, locked) = ask(at, "POST", "/v1/volumes/v/lock", None).await;
        assert_eq!((status, &locked["locked"]), (200, &json!(true)));
        assert_eq!(ask(at, "GET", "/v1/status", None).await.1["volumes_locked"], json!(["v"]));
        let unlock = |byte| json!({"secret": key_file(byte)});
        let (status, refused) = ask(at, "POST", "/v1/volumes/v/unlock", Some(unlock("bb"))).await;
        assert_eq!((status, &refused["error"]["code"]), (403, &json!("wrong_secret")));
        let (status, unlocked) = ask(at, "POST", "/v1/volumes/v/unlock", Some(unlock("aa"))).await;
        assert_eq!((status, &unlocked["locked"]), (200, &json!(false)));

        let rekey = "/v1/volumes/v/rekey";
        let replace = json!({"secret": key_file("aa"), "new_secret": key_file("bb")});
        assert_eq!(ask(at, "POST", rekey, Some(replace.clone())).await.0, 200);
        assert_eq!(ask(at, "POST", rekey, Some(replace)).await.0, 403, "the old one is refused");
        let add = json!({"secret": key_file("bb"), "new_secret": key_file("cc"), "keep": true});
        assert_eq!(ask(at, "POST", rekey, Some(add)).await.0, 200);
        assert_eq!(ask(at, "POST", rekey, Some(json!({"secret": key_file("bb")}))).await.0, 200);
        assert_eq!(ask(at, "POST", "/v1/volumes/v/unlock", Some(unlock("bb"))).await.0, 403, "it was removed");
        assert_eq!(ask(at, "POST", "/v1/volumes/v/unlock", Some(unlock("cc"))).await.0, 200);
    });
}

#[test]
fn a_secret_that_cannot_be_is_refused_and_never_repeated() {
    with_server(|at| async move {
        ask(at, "POST", "/v1/volumes", Some(json!({"name": "plain", "size_bytes": 1 << 20}))).await;
        let digits = "5ec2e7".repeat(20);
        for (secret, status, code) in [
            (json!({"kind": "key-file", "hex": "5ec2e7"}), 400, "bad_request"),
            (json!({"kind": "passphrase", "hex": "5ec2e7"}), 400, "bad_request"),
            (json!({"kind": "key-file", "hex": digits.clone() + "x"}), 400, "bad_request"),
            (json!({"kind": "word", "hex": digits}), 422, "bad_request"),
            (json!({"hex": digits}), 422, "bad_request"),
        ] {
            let (got, answer) = ask(at, "POST", "/v1/volumes/plain/unlock", Some(json!({"secret": secret}))).await;
            assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)), "{answer}");
            assert!(!answer.to_string().contains("5ec2e7"), "{answer}");
        }
        let largest = "00".repeat(volume::KEY_FILE_BYTES_MAX);
        let secret = json!({"kind": "key-file", "hex": largest});
        let both = json!({"secret": secret, "new_secret": secret});
        let (status, answer) = ask(at, "POST", "/v1/volumes/plain/rekey", Some(both)).await;
        assert_eq!((status, &answer["error"]["code"]), (403, &json!("wrong_secret")), "the largest ones are taken");
        let (status, answer) = ask(at, "POST", "/v1/volumes/plain/lock", None).await;
        assert_eq!((status, &answer["error"]["code"]), (409, &json!("not_encrypted")));
        let keep = json!({"secret": key_file("aa"), "keep": true});
        assert_eq!(ask(at, "POST", "/v1/volumes/plain/rekey", Some(keep)).await.0, 400);
    });
}

#[test]
fn a_pool_compresses_as_it_is_told() {
    with_server(|at| async move {
        let (_, pools) = ask(at, "GET", "/v1/pools", None).await;
        let expected = json!({
            "name": "default", "replicas": 1, "min_in_sync": 1, "failure_domain": "device", "class": "",
            "placement": "gathered", "compression": "off", "groups": 100, "devices": 1, "nodes": ["node-1"], "volumes": 0,
        });
        assert_eq!(pools, json!([expected]));
        let set = |compression: &str| Some(json!({"compression": compression}));
        for compression in ["lz4", "zstd", "off"] {
            let (status, pool) = ask(at, "PATCH", "/v1/pools/default", set(compression)).await;
            assert_eq!((status, &pool["compression"]), (200, &json!(compression)));
            assert_eq!(ask(at, "GET", "/v1/pools/default", None).await.1["compression"], json!(compression));
        }
        assert_eq!(ask(at, "PATCH", "/v1/pools/default", set("lzma")).await.0, 422);
        for (method, body) in [("GET", None), ("PATCH", set("lz4"))] {
            let (status, answer) = ask(at, method, "/v1/pools/none", body).await;
            assert_eq!((status, &answer["error"]["code"]), (404, &json!("pool_not_found")));
        }
    });
}

//! Who uses volumes through a node.

use super::id_format::{number, number_list};
use super::{VolumeRecord, keys};
use serde::{Deserialize, Serialize};
use types::{KeyId, NodeId, VolumeId};

/// Who uses volumes through a node, and which it could serve. Lives under the node's lease; a node that says nothing has no clients
/// and no keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsRecord {
    /// The node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Whether every host may use a volume there of which nobody has said which may.
    #[serde(default, skip_serializing_if = "is_false")]
    pub any_host: bool,
    /// The NVMe hosts that have a controller there, by name; at most [`HOSTS_MAX`](Self::HOSTS_MAX).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// There are more than are named.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_more: bool,
    /// Volumes that NBD clients have open there.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "number_list")]
    pub opened: Vec<VolumeId>,
    /// Data keys that were given there: what is encrypted with others it cannot serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "number_list")]
    pub keys: Vec<KeyId>,
    /// Nodes that have a session and have not been heard there for some seconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "number_list")]
    pub unheard: Vec<NodeId>,
    /// Volumes that it serves, and of which a group serves nobody there, while any node is not heard.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "number_list")]
    pub unreached: Vec<VolumeId>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl ClientsRecord {
    /// So many hosts are named: with names of 223 bytes the record stays far below a value's 256 KiB.
    pub const HOSTS_MAX: usize = 256;

    /// Where it is.
    pub(super) fn path(&self) -> String {
        keys::clients(self.node)
    }

    /// Whether a host has a controller there that may use the volume. Those that are not named may use all.
    pub fn has_host_of(&self, volume: &VolumeRecord) -> bool {
        self.has_more || self.hosts.iter().any(|host| volume.hosts.allows(host, self.any_host))
    }

    /// Whether it would be missed there.
    pub fn uses(&self, volume: &VolumeRecord) -> bool {
        self.has_host_of(volume) || self.opened.contains(&volume.id)
    }

    /// Whether the node has the key to it, if it needs one.
    pub fn can_serve(&self, volume: &VolumeRecord) -> bool {
        volume.key.is_none_or(|key| self.keys.contains(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::HostAccess;
    use crate::typed::{decode, encode};

    #[test]
    fn what_is_in_the_map_does_not_change() {
        let record = ClientsRecord {
            node: NodeId(2),
            any_host: true,
            hosts: vec!["nqn.2026-01.io.example:a".into()],
            has_more: false,
            opened: vec![VolumeId(3)],
            keys: vec![KeyId(4)],
            unheard: vec![NodeId(5)],
            unreached: vec![VolumeId(6)],
        };
        let text = concat!(
            r#"{"schema":1,"node":2,"any_host":true,"hosts":["nqn.2026-01.io.example:a"],"opened":[3],"keys":[4],"#,
            r#""unheard":[5],"unreached":[6]}"#
        );
        assert_eq!(String::from_utf8(encode(&record)).expect("JSON"), text);
        assert_eq!(decode::<ClientsRecord>("clients/00000002", text.as_bytes()), Ok(record.clone()));
        assert_eq!(record.path(), "clients/00000002");
        let nobody = ClientsRecord { node: NodeId(2), ..ClientsRecord::default() };
        assert_eq!(encode(&nobody), br#"{"schema":1,"node":2}"#);
        assert_eq!(decode::<ClientsRecord>("clients/00000002", br#"{"schema":1,"node":2}"#), Ok(nobody));
    }

    #[test]
    fn a_volume_is_used_by_hosts_that_may_and_by_who_has_it_open() {
        let volume = br#"{"schema":6,"id":3,"name":"v","pool":"default","table":1,"size_bytes":1048576,
            "block_size_bytes":512,"subsystem":"default","nsid":1,"nguid":"01","family":1,"family_seed":7,"layers":[1],
            "head":1,"volume_epoch":1,"created_at_ns":1,"project":"default","state":"online"}"#;
        let unset = decode::<VolumeRecord>("volumes/3", volume).expect("a volume");
        let listed = VolumeRecord { hosts: HostAccess::Listed(vec!["b".into()]), key: Some(KeyId(4)), ..unset.clone() };
        let hosts =
            |any_host, name: &str| ClientsRecord { any_host, hosts: vec![name.into()], ..ClientsRecord::default() };
        assert!(hosts(true, "a").uses(&unset) && !hosts(false, "a").uses(&unset));
        assert!(hosts(false, "b").uses(&listed) && !hosts(true, "a").uses(&listed));
        let open = ClientsRecord { opened: vec![VolumeId(3)], ..ClientsRecord::default() };
        assert!(open.uses(&listed) && !open.has_host_of(&listed));
        let many = ClientsRecord { has_more: true, keys: vec![KeyId(4)], ..ClientsRecord::default() };
        assert!(
            many.has_host_of(&listed) && many.can_serve(&listed) && !open.can_serve(&listed) && open.can_serve(&unset)
        );
    }
}

//! Where things stand and what they are to hold: what the operator says, and what follows from it.
//!
//! Records of their own, beside those that a node writes of itself when it starts (its address, its devices' sizes):
//! each has one writer, and neither loses a compare-and-swap to the other. Where nobody has said anything there is
//! none, and [`Default`] is what holds: so a map that was made before there were any means what it always did.

use super::PoolRecord;
use super::id_format::{hex, hex_list, number, number_list, optional_hex};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use types::{GroupId, NodeId, Seq, StoreId};

/// What may fail at once: no two members of a group lie in the same one. Each contains those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureDomain {
    /// A device.
    Device,
    /// A node, with all of its devices.
    Node,
    /// A rack. Racks of one name in two zones are two; nodes that name none are together in one.
    Rack,
    /// A zone. Nodes that name none are together in one.
    Zone,
}

impl FailureDomain {
    /// All there are, with their names, from the smallest.
    pub const ALL: [(Self, &str); 4] =
        [(Self::Device, "device"), (Self::Node, "node"), (Self::Rack, "rack"), (Self::Zone, "zone")];
}

impl fmt::Display for FailureDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(domain, _)| domain == self).map_or("", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for FailureDomain {
    type Err = UnknownFailureDomain;

    fn from_str(text: &str) -> Result<Self, UnknownFailureDomain> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(domain, _)| *domain).ok_or_else(|| UnknownFailureDomain(text.to_owned()))
    }
}

/// No such failure domain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a failure domain: choose device, node, rack or zone")]
pub struct UnknownFailureDomain(pub String);

/// What a node is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeDuty {
    /// Its part.
    #[default]
    In,
    /// It may be away until then (wall time, ns since 1970): it leads nothing, and nothing is copied for it meanwhile.
    Maintenance {
        /// When that ends.
        until_ns: u64,
    },
    /// Its devices are to hold nothing.
    Draining,
}

/// Where a node stands, and what it is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlaceRecord {
    /// The node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Its rack; empty: nobody has said.
    pub rack: String,
    /// Its zone; empty: nobody has said.
    pub zone: String,
    /// What it is to do.
    pub duty: NodeDuty,
}

impl NodePlaceRecord {
    /// What holds of a node of which nobody has said anything.
    pub fn unset(node: NodeId) -> Self {
        Self { node, rack: String::new(), zone: String::new(), duty: NodeDuty::In }
    }
}

/// What a device is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceDuty {
    /// Hold its share.
    #[default]
    In,
    /// Hold nothing: what is on it is copied elsewhere, and stays until that is in sync.
    Draining {
        /// The device that takes its place, with all that it holds; `None`: all others.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_hex")]
        into: Option<StoreId>,
    },
    /// It is lost: hold nothing, and count on nothing that is on it.
    Out,
}

/// What a device is to hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePlaceRecord {
    /// The device.
    #[serde(with = "hex")]
    pub store: StoreId,
    /// What kind of device it is, for pools that ask for one; empty: nobody has said.
    pub class: String,
    /// Its share is as large as this is among those of its pool; `None`: its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u64>,
    /// What it is to do.
    pub duty: DeviceDuty,
}

impl DevicePlaceRecord {
    /// What holds of a device of which nobody has said anything.
    pub fn unset(store: StoreId) -> Self {
        Self { store, class: String::new(), weight: None, duty: DeviceDuty::In }
    }
}

/// Where the primaries of a volume's groups are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumePlacement {
    /// All on one node, the one with the most room.
    #[default]
    Gathered,
    /// All on the node that uses the volume first.
    Local,
    /// On all devices of the pool.
    Spread,
}

/// Where a pool's copies may lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRulesRecord {
    /// The pool.
    pub pool: String,
    /// No two members of a group share one.
    pub failure_domain: FailureDomain,
    /// Only on devices of this class; empty: on any.
    pub class: String,
    /// Of volumes that were not told otherwise.
    pub placement: VolumePlacement,
    /// Whether groups may have fewer members than the pool's replicas, down to its `min_in_sync`, where there are fewer
    /// domains than that.
    pub may_degrade: bool,
}

impl PoolRulesRecord {
    /// What holds of a pool of which nobody has said anything: devices of one node may hold copies of one block, as the
    /// pool of a single node must.
    pub fn unset(pool: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            failure_domain: FailureDomain::Device,
            class: String::new(),
            placement: VolumePlacement::default(),
            may_degrade: false,
        }
    }
}

/// A pool that is being made: what it is to be, and the numbers that were taken for it, which nothing else ever has. Its
/// groups and its table are written one after the other; then the pool's record comes in the place of this one. Whoever
/// finds it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDraftRecord {
    /// The pool to be.
    pub pool: PoolRecord,
    /// Its rules; `None`: nobody has said any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<PoolRulesRecord>,
    /// The devices that its groups are dealt to.
    #[serde(with = "hex_list")]
    pub stores: Vec<StoreId>,
    /// Its first group; the others follow.
    #[serde(with = "number")]
    pub first_group: GroupId,
    /// How many there are to be.
    pub groups: u32,
}

impl PoolDraftRecord {
    /// Its groups to be.
    pub fn group_ids(&self) -> impl Iterator<Item = GroupId> + use<> {
        let first = self.first_group.0;
        (first..first + self.groups).map(GroupId)
    }
}

/// The groups of a slot table that lie on these nodes and no others, one member on each. A table without such a record
/// is its pool's `spread` table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSetRecord {
    /// The table.
    pub table: u32,
    /// The pool.
    pub pool: String,
    /// The home first, then who takes over from whom. With devices as failure domains one node may be there twice.
    #[serde(with = "number_list")]
    pub nodes: Vec<NodeId>,
    /// Which of them leads all groups of the table: the home, unless that was lost.
    #[serde(with = "number")]
    pub lead: NodeId,
    /// The groups: in the pool's `spread` table too, in no other node set.
    #[serde(with = "number_list")]
    pub groups: Vec<GroupId>,
}

/// Who is to hold a group. Its primary changes the group's record step by step until that says the same, then this
/// record goes (`placement::carry_out`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedRecord {
    /// The group.
    #[serde(with = "number")]
    pub group: GroupId,
    /// Its members to be, in the order in which they are to lead.
    #[serde(with = "hex_list")]
    pub members: Vec<StoreId>,
}

/// Who sees to it that what is said here is done, one node at a time. Each of its changes compares this record. Changed only
/// by compare-and-swap with epoch + 1, when its node has no session any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlRecord {
    /// The node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Its reign.
    pub epoch: u64,
}

/// Each order about nodes and devices compares this and changes it: two of which each may be alone, and not both, are looked at
/// one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DutiesRecord {
    /// Orders so far.
    pub orders: u64,
}

/// What is wrong with a device, in the words of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceTrouble {
    /// It takes nothing more.
    Failed(String),
    /// It takes long.
    Slow(String),
}

/// How full a device is, and what is wrong with it, as its node says now and then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreUsageRecord {
    /// The device.
    #[serde(with = "hex")]
    pub store: StoreId,
    /// Bytes of data on it.
    pub live_bytes: u64,
    /// New blocks are refused when there are so many.
    pub usable_bytes: u64,
    /// What is wrong with it. Only told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<DeviceTrouble>,
    /// How much of that is of which group, by their numbers, as far as it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_groups: Option<Vec<GroupBytes>>,
}

/// Bytes of a group on a device, in JSON `[group, bytes]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupBytes(#[serde(with = "number")] pub GroupId, pub u64);

impl StoreUsageRecord {
    /// What it holds of a group, if that was counted.
    pub fn bytes_of(&self, group: GroupId) -> Option<u64> {
        let all = self.of_groups.as_ref()?;
        all.binary_search_by_key(&group, |GroupBytes(of, _)| *of).ok().map(|at| all[at].1)
    }

    /// What it can still take.
    pub fn free_bytes(&self) -> u64 {
        self.usable_bytes.saturating_sub(self.live_bytes)
    }
}

/// A group that began as half of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitRecord {
    /// The group.
    #[serde(with = "number")]
    pub child: GroupId,
    /// Whose slots it took over.
    #[serde(with = "number")]
    pub parent: GroupId,
    /// Its first entry has a greater seq: it follows on all that its parent ever did to the same chunks.
    #[serde(with = "number")]
    pub above: Seq,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Compression, Policy, Record};
    use crate::typed::{decode, encode};

    /// These bytes are in maps that are in use.
    fn golden<T: Record + PartialEq + fmt::Debug>(record: &T, key: &str, bytes: &str) {
        assert_eq!(record.key(), key);
        assert_eq!(String::from_utf8(encode(record)).expect("JSON"), bytes);
        assert_eq!(&decode::<T>(key, bytes.as_bytes()).expect("decodes"), record);
    }

    #[test]
    fn what_is_in_the_map_does_not_change() {
        let place =
            NodePlaceRecord { rack: "r1".to_owned(), zone: "a".to_owned(), ..NodePlaceRecord::unset(NodeId(2)) };
        golden(&place, "node-places/00000002", r#"{"schema":1,"node":2,"rack":"r1","zone":"a","duty":"in"}"#);
        golden(
            &NodePlaceRecord { duty: NodeDuty::Maintenance { until_ns: 9 }, ..place },
            "node-places/00000002",
            r#"{"schema":1,"node":2,"rack":"r1","zone":"a","duty":{"maintenance":{"until_ns":9}}}"#,
        );
        let (store, into) = ("0000000000000000000000000000000b", "0000000000000000000000000000000a");
        let place = DevicePlaceRecord { class: "nvme".to_owned(), ..DevicePlaceRecord::unset(StoreId(11)) };
        let key = format!("device-places/{store}");
        golden(&place, &key, &format!(r#"{{"schema":1,"store":"{store}","class":"nvme","duty":"in"}}"#));
        golden(
            &DevicePlaceRecord {
                weight: Some(5),
                duty: DeviceDuty::Draining { into: Some(StoreId(10)) },
                ..place.clone()
            },
            &key,
            &format!(
                r#"{{"schema":1,"store":"{store}","class":"nvme","weight":5,"duty":{{"draining":{{"into":"{into}"}}}}}}"#
            ),
        );
        golden(
            &DevicePlaceRecord { duty: DeviceDuty::Draining { into: None }, ..place },
            &key,
            &format!(r#"{{"schema":1,"store":"{store}","class":"nvme","duty":{{"draining":{{}}}}}}"#),
        );
        golden(
            &PoolRulesRecord { failure_domain: FailureDomain::Rack, ..PoolRulesRecord::unset("fast") },
            "pool-rules/fast",
            r#"{"schema":1,"pool":"fast","failure_domain":"rack","class":"","placement":"gathered","may_degrade":false}"#,
        );
        golden(
            &NodeSetRecord {
                table: 7,
                pool: "fast".to_owned(),
                nodes: vec![NodeId(1), NodeId(2)],
                lead: NodeId(2),
                groups: vec![GroupId(9)],
            },
            "node-sets/00000007",
            r#"{"schema":1,"table":7,"pool":"fast","nodes":[1,2],"lead":2,"groups":[9]}"#,
        );
        golden(
            &PoolDraftRecord {
                pool: PoolRecord {
                    name: "fast".to_owned(),
                    policy: Policy::Replicated,
                    replicas: 2,
                    min_in_sync: 1,
                    table: 7,
                    write_cache: false,
                    compression: Compression::Off,
                },
                rules: None,
                stores: vec![StoreId(11)],
                first_group: GroupId(101),
                groups: 50,
            },
            "pool-drafts/fast",
            &format!(
                r#"{{"schema":1,"pool":{{"name":"fast","policy":"replicated","replicas":2,"min_in_sync":1,"table":7,"write_cache":false,"compression":"off"}},"stores":["{store}"],"first_group":101,"groups":50}}"#
            ),
        );
        golden(
            &WantedRecord { group: GroupId(3), members: vec![StoreId(11)] },
            "wanted/00000003",
            &format!(r#"{{"schema":1,"group":3,"members":["{store}"]}}"#),
        );
        golden(&ControlRecord { node: NodeId(2), epoch: 7 }, "control", r#"{"schema":1,"node":2,"epoch":7}"#);
        golden(&DutiesRecord { orders: 3 }, "duties", r#"{"schema":1,"orders":3}"#);
        golden(
            &StoreUsageRecord { store: StoreId(11), live_bytes: 3, usable_bytes: 9, trouble: None, of_groups: None },
            &format!("store-usage/{store}"),
            &format!(r#"{{"schema":1,"store":"{store}","live_bytes":3,"usable_bytes":9}}"#),
        );
        golden(
            &StoreUsageRecord {
                store: StoreId(11),
                live_bytes: 3,
                usable_bytes: 9,
                trouble: Some(DeviceTrouble::Slow("an append took 3.0 s".to_owned())),
                of_groups: Some(vec![GroupBytes(GroupId(3), 1), GroupBytes(GroupId(4), 2)]),
            },
            &format!("store-usage/{store}"),
            &format!(
                r#"{{"schema":1,"store":"{store}","live_bytes":3,"usable_bytes":9,"trouble":{{"slow":"an append took 3.0 s"}},"of_groups":[[3,1],[4,2]]}}"#
            ),
        );
        golden(
            &SplitRecord { child: GroupId(4), parent: GroupId(3), above: Seq(77) },
            "splits/00000004",
            r#"{"schema":1,"child":4,"parent":3,"above":77}"#,
        );
    }

    #[test]
    fn failure_domains_have_names_and_an_order() {
        for (domain, name) in FailureDomain::ALL {
            assert_eq!(name.parse(), Ok(domain));
            assert_eq!(domain.to_string(), name);
        }
        assert!(FailureDomain::ALL.is_sorted());
        assert_eq!("host".parse::<FailureDomain>(), Err(UnknownFailureDomain("host".to_owned())));
    }
}

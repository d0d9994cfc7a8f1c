//! Changes of the map's records, before they are a transaction.

use super::View;
use crate::records::{DevicePlaceRecord, NodePlaceRecord, NodeSetRecord, Record, WantedRecord, keys};
use crate::typed::encode;
use types::{GroupId, NodeId, StoreId};

/// One record put or taken away. Whoever does it compares the revision of the record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// Puts a node's place.
    NodePlace(NodePlaceRecord),
    /// Puts a device's place.
    DevicePlace(DevicePlaceRecord),
    /// Puts a node set.
    NodeSet(NodeSetRecord),
    /// Orders a group's primary.
    Wanted(WantedRecord),
    /// The order is carried out.
    WantedGone(GroupId),
    /// Takes a device out of the map, with its place.
    DeviceGone(StoreId),
    /// Takes a node out of the map, with its place.
    NodeGone(NodeId),
}

impl RecordChange {
    /// The keys that change, each with its value; `None`: it goes.
    pub fn puts(&self) -> Vec<(String, Option<Vec<u8>>)> {
        fn put<T: Record>(record: &T) -> Vec<(String, Option<Vec<u8>>)> {
            vec![(record.key(), Some(encode(record)))]
        }
        match self {
            Self::NodePlace(record) => put(record),
            Self::DevicePlace(record) => put(record),
            Self::NodeSet(record) => put(record),
            Self::Wanted(record) => put(record),
            Self::WantedGone(group) => vec![(keys::wanted(*group), None)],
            Self::DeviceGone(store) => {
                vec![
                    (keys::device(*store), None),
                    (keys::device_place(*store), None),
                    (keys::store_usage(*store), None),
                ]
            }
            Self::NodeGone(node) => vec![(keys::node(*node), None), (keys::node_place(*node), None)],
        }
    }

    /// The view as it is afterwards.
    pub fn apply(&self, view: &mut View) {
        match self.clone() {
            Self::NodePlace(record) => drop(view.node_places.insert(record.node, record)),
            Self::DevicePlace(record) => drop(view.device_places.insert(record.store, record)),
            Self::NodeSet(record) => drop(view.sets.insert(record.table, record)),
            Self::Wanted(record) => drop(view.wanted.insert(record.group, record)),
            Self::WantedGone(group) => drop(view.wanted.remove(&group)),
            Self::DeviceGone(store) => {
                view.devices.remove(&store);
                view.device_places.remove(&store);
            }
            Self::NodeGone(node) => {
                view.nodes.remove(&node);
                view.node_places.remove(&node);
            }
        }
    }
}

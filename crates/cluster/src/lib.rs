//! The cluster map: records, placement, MapStore

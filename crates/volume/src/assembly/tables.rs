//! Slot tables, as they are needed: the pools' and those of node sets. A table never changes, and every core has it before a
//! volume that lies in it is added.

use super::Assembly;
use super::core::{self, Deal, Known};
use crate::api::{Placed, VolumeInfo};
use crate::spec::TableLayout;
use cluster::{CatalogError, NodeSetRecord, VolumeRecord, get, keys, load_table};
use std::sync::Arc;
use types::{Mutant, mutant};

impl Assembly {
    /// The table, read from the map if it is not known here yet.
    ///
    /// # Errors
    /// The map's; or it is not there, or not whole.
    pub(super) async fn table(&self, id: u32) -> Result<Arc<TableLayout>, CatalogError> {
        if let Some(known) = self.known_table(id) {
            return Ok(known);
        }
        let _alone = self.0.reading_table.lock().await;
        if let Some(known) = self.known_table(id) {
            return Ok(known);
        }
        let map = &*self.0.map;
        let table = load_table(map, id).await?;
        if let Some(set) = get::<NodeSetRecord>(map, &keys::node_set(id)).await? {
            self.0.heads.hear_of_set(&set.record);
        }
        let all = Known::of(map, self.0.id).await?;
        let layout = Arc::new(Deal::new(&self.0.devices.borrow(), self.0.cores.len()).layout(id, table, &all));
        let told = layout.clone();
        self.on_all_cores(move |head| {
            let layout = told.clone();
            Box::pin(async move { core::add_table(&head, layout) })
        })
        .await;
        self.0.tables.borrow_mut().push(layout.clone());
        Ok(layout)
    }

    fn known_table(&self, id: u32) -> Option<Arc<TableLayout>> {
        self.0.tables.borrow().iter().find(|table| table.id == id).cloned()
    }

    /// Where the groups of a table are led.
    pub(super) fn placed(&self, table: u32) -> Placed {
        let set = self.0.heads.set(table).map(|set| Placed::Gathered { home: set.nodes[0], lead: set.lead });
        let only_node = || self.known_table(table)?.only_node;
        set.or_else(|| only_node().map(|node| Placed::Gathered { home: node, lead: node })).unwrap_or_default()
    }

    /// What is told of a volume, with where its groups are led by now.
    pub(super) fn as_it_is_led(&self, info: VolumeInfo) -> VolumeInfo {
        let known = self.0.heads.table_of(info.id);
        VolumeInfo { placed: known.map_or(info.placed, |table| self.placed(table)), ..info }
    }

    /// Where the chunks of a volume's family lie, if that is known without asking the map; whether it is.
    pub(super) fn learn_known(&self, volume: &VolumeRecord) -> bool {
        let tables = self.0.tables.borrow();
        let known = tables.iter().find(|table| table.id == volume.table);
        known.inspect(|table| self.0.owners.learn(volume, table)).is_some()
    }

    /// From here on it is known which group holds what of the volume's family: whoever is made whole here asks for that,
    /// whoever serves the volume.
    pub(super) async fn learn(&self, volume: &VolumeRecord) -> Result<Arc<TableLayout>, CatalogError> {
        let table = self.table(volume.table).await?;
        self.0.owners.learn(volume, &table);
        let older = || self.0.tables.borrow().iter().min_by_key(|table| table.id).cloned();
        Ok(if mutant(Mutant::OlderTableTaken) { older().unwrap_or(table) } else { table })
    }
}

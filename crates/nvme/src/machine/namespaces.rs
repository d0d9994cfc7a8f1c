//! The namespaces of a subsystem as a host sees them.

use crate::limits::MAX_NAMESPACES;
use crate::wire::log::AnaState;

/// One namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Size in logical blocks.
    pub size_blocks: u64,
    /// log2 of the logical block: 9 or 12.
    pub block_shift: u8,
    /// Globally unique id, the same on all paths.
    pub nguid: [u8; 16],
    /// Whether this path serves it.
    pub ana: AnaState,
}

/// Namespaces by NSID. Looked up for each command: an index, no hash.
#[derive(Clone, Debug, Default)]
pub struct NamespaceTable {
    entries: Vec<Option<NamespaceInfo>>,
}

impl NamespaceTable {
    /// The namespace of this id.
    pub fn get(&self, nsid: u32) -> Option<&NamespaceInfo> {
        self.entries.get(nsid as usize)?.as_ref()
    }

    /// Adds or replaces a namespace. An id out of 1..=1,024 is not kept: hosts are told that there is none above.
    pub fn set(&mut self, nsid: u32, info: NamespaceInfo) {
        if nsid == 0 || nsid > MAX_NAMESPACES {
            return;
        }
        let index = nsid as usize;
        if self.entries.len() <= index {
            self.entries.resize(index + 1, None);
        }
        self.entries[index] = Some(info);
    }

    /// Those for which `keep` holds.
    pub fn filtered(&self, keep: impl Fn(u32) -> bool) -> Self {
        let of = |(nsid, info): (usize, &Option<NamespaceInfo>)| info.filter(|_| keep(nsid as u32));
        let mut entries: Vec<_> = self.entries.iter().enumerate().map(of).collect();
        entries.truncate(entries.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        Self { entries }
    }

    /// All, by id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &NamespaceInfo)> {
        self.entries.iter().enumerate().filter_map(|(nsid, info)| Some((nsid as u32, info.as_ref()?)))
    }

    /// Ids of namespaces that are others in the two tables, whatever their paths are, ascending.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = u32> + 'a {
        let len = self.entries.len().max(before.entries.len()) as u32;
        let what = |table: &Self, nsid| table.get(nsid).map(|info| NamespaceInfo { ana: AnaState::Optimized, ..*info });
        (1..len).filter(move |nsid| what(self, *nsid) != what(before, *nsid))
    }

    /// Whether the path to a namespace that is in both tables is another.
    pub fn ana_differs_from(&self, before: &Self) -> bool {
        self.iter().any(|(nsid, info)| before.get(nsid).is_some_and(|before| before.ana != info.ana))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_what_came_went_or_grew() {
        let info = NamespaceInfo { size_blocks: 8, block_shift: 9, nguid: [1; 16], ana: AnaState::Optimized };
        let mut before = NamespaceTable::default();
        before.set(1, info);
        before.set(2, info);
        before.set(0, info);
        before.set(MAX_NAMESPACES + 1, info);
        let mut after = NamespaceTable::default();
        after.set(2, NamespaceInfo { size_blocks: 9, ..info });
        after.set(3, info);
        assert_eq!(after.changed_since(&before).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(before.iter().map(|(nsid, _)| nsid).collect::<Vec<_>>(), [1, 2]);
    }
}

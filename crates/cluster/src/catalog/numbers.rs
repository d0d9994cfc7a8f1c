//! Numbers of groups, tables and nodes: taken in a transaction with what they are for, and never one twice. A number that was used
//! once may be in the log of a store, or in a volume's record that somebody read long ago.

use super::{ATTEMPTS_MAX, Attempt, CatalogError, attempt};
use crate::map::{Listing, MapStore, Revision, Transaction};
use crate::records::{Allocator, Record, keys};
use crate::typed::{decode, encode, get};
use types::{Mutant, NodeId, mutant};

/// What is numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbered {
    /// Placement groups.
    Group,
    /// Slot tables.
    Table,
    /// Nodes.
    Node,
}

impl Numbered {
    fn kind(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Table => "table",
            Self::Node => "node",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Group => keys::GROUPS,
            Self::Table => keys::TABLES,
            Self::Node => keys::NODES,
        }
    }
}

/// Numbers that are free, as a listing of the whole map says.
pub(super) struct Numbers {
    allocator: Allocator,
    modified: Revision,
}

impl Numbers {
    pub(super) fn free(listing: &Listing, of: Numbered) -> Result<Self, CatalogError> {
        let key = keys::allocator(of.kind());
        let found = listing.items.iter().find(|item| item.key == key);
        if let Some(found) = found.filter(|_| !mutant(Mutant::NumbersUsedAgain)) {
            return Ok(Self { allocator: decode(&key, &found.value)?, modified: found.modified });
        }
        // A map that was made before numbers were counted.
        let number = |key: &str| {
            let rest = key.strip_prefix(of.prefix())?;
            u64::from_str_radix(rest.split('/').next()?, 16).ok()
        };
        let last = listing.items.iter().filter_map(|item| number(&item.key)).max().unwrap_or(0);
        Ok(Self {
            allocator: Allocator { kind: of.kind().to_owned(), next: last + 1 },
            modified: found.map_or(Revision(0), |found| found.modified),
        })
    }

    /// The first of so many that follow each other.
    pub(super) fn take(&mut self, count: u32) -> u32 {
        let first = self.allocator.next as u32;
        self.allocator.next += u64::from(count);
        first
    }

    /// The transaction, with what was taken used up: fails if anybody took some since the listing, or said so for another
    /// reason.
    pub(super) fn put(&self, transaction: Transaction) -> Transaction {
        let key = self.allocator.key();
        transaction.expect(&key, self.modified).put(&key, encode(&self.allocator))
    }
}

/// A number for a program that is to be a head: no other client has it, nor will have.
///
/// # Errors
/// The map's.
pub async fn number_client(map: &dyn MapStore) -> Result<NodeId, CatalogError> {
    const KIND: &str = "client";
    let key = keys::allocator(KIND);
    for _ in 0..ATTEMPTS_MAX {
        let found = get::<Allocator>(map, &key).await?;
        let (next, modified) = found.map_or((1, Revision(0)), |found| (found.record.next, found.modified));
        let number = u32::try_from(next).ok().filter(|number| *number < NodeId::FIRST_CLIENT);
        let number = number.ok_or_else(|| CatalogError::BadRecord {
            key: key.clone(),
            why: "all numbers of clients are used up".to_owned(),
        })?;
        let taken = Allocator { kind: KIND.to_owned(), next: next + 1 };
        if let Attempt::Done = attempt(map, Transaction::new().expect(&key, modified).put(&key, encode(&taken))).await?
        {
            return Ok(NodeId::of_client(number));
        }
    }
    Err(CatalogError::Contended)
}

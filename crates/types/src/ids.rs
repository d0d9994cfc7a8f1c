//! Ids and counters. Each is a newtype; `new` and `.0` are the only ways in and out.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! id128 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u128);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
    };
}

id128!(
    /// One cluster, for ever. Made when the cluster is.
    ClusterId
);
id128!(
    /// One store (one formatted device), for ever. Made at format.
    StoreId
);
id!(
    /// A placement group.
    GroupId,
    u32
);
id!(
    /// Reign of one primary over one group: changed only by compare-and-swap with +1. 0 is "before the first".
    Epoch,
    u32
);
id!(
    /// Position in a group's order. The first entry is 1; 0 means "nothing yet". Never used twice in one group.
    Seq,
    u64
);
id!(
    /// A volume, for ever; names are only labels on it.
    VolumeId,
    u64
);
id!(
    /// Reign of one head over one volume, or of one keeper over a family: changed only by compare-and-swap with +1.
    VolumeEpoch,
    u32
);
id!(
    /// A layer: the blocks a volume wrote between two snapshots. Never used twice.
    LayerId,
    u64
);
id!(
    /// A family: a volume with all its snapshots and clones. They share the seed that maps chunks to slots.
    FamilyId,
    u64
);
id!(
    /// Number of a 1 MiB chunk within a volume: byte offset / 1 MiB.
    ChunkId,
    u32
);
id!(
    /// hash(family seed, chunk) mod 65,536, fixed for ever.
    Slot,
    u16
);
id!(
    /// One of the 1, 2, 4 or 8 shards of a device.
    ShardIndex,
    u8
);
id!(
    /// A start of a store: +1 at each opening, never used twice.
    Incarnation,
    u64
);
id!(
    /// A node of the cluster.
    NodeId,
    u32
);
id!(
    /// Key that a block is encrypted with; 0 is none.
    KeyId,
    u32
);

impl NodeId {
    /// Programs that are heads of the volumes they open (libcairn) have numbers from here on; nodes have lower ones.
    pub const FIRST_CLIENT: u32 = 1 << 31;

    /// The client of this number, from 1 on.
    pub fn of_client(number: u32) -> Self {
        Self(number | Self::FIRST_CLIENT)
    }

    /// Its number, if it is a client and no node.
    pub fn client_number(self) -> Option<u32> {
        self.0.checked_sub(Self::FIRST_CLIENT)
    }

    /// Whether it is a client: it has no devices, and nobody connects to it.
    pub fn is_client(self) -> bool {
        self.client_number().is_some()
    }
}

impl VolumeId {
    /// No volume has an id with this bit.
    const KEEPER: u64 = 1 << 63;

    /// Who ends the layers of a family is fenced at each group as the head of a volume is, under this id.
    pub fn of_keeper(family: FamilyId) -> Self {
        Self(family.0 | Self::KEEPER)
    }

    /// Whether it stands for the keeper of a family.
    pub fn is_keeper(self) -> bool {
        self.0 & Self::KEEPER != 0
    }
}

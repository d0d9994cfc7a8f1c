//! Blocks that can be read with one device read.

use crate::format::DeviceUnit;
use crate::format::blocks::BlockState;

/// Neighbouring blocks that are served the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first, counted from the first state that was given.
    pub first: u16,
    /// How many.
    pub count: u16,
    /// How they are served.
    pub kind: ExtentKind,
}

/// How blocks are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// They are zeroes (or nothing was ever written): no read.
    Zeroes,
    /// They lie one behind the other on the device.
    Stored {
        /// The first one's first unit.
        location: DeviceUnit,
        /// Units of all of them.
        units: u32,
    },
}

/// Joins neighbours: `states` are blocks in order, what is returned covers all of them in order.
pub fn extents(states: &[BlockState]) -> impl Iterator<Item = Extent> + '_ {
    let mut at = 0;
    core::iter::from_fn(move || {
        let first = at;
        let mut kind = kind_of(states.get(at)?);
        at += 1;
        while let Some(state) = states.get(at) {
            kind = match (kind, kind_of(state)) {
                (ExtentKind::Zeroes, ExtentKind::Zeroes) => kind,
                (ExtentKind::Stored { location, units }, ExtentKind::Stored { location: next, units: more })
                    if location.0 + u64::from(units) == next.0 =>
                {
                    ExtentKind::Stored { location, units: units + more }
                }
                _ => break,
            };
            at += 1;
        }
        Some(Extent { first: first as u16, count: (at - first) as u16, kind })
    })
}

fn kind_of(state: &BlockState) -> ExtentKind {
    match state {
        BlockState::Absent | BlockState::Zero => ExtentKind::Zeroes,
        BlockState::Stored(block) => {
            ExtentKind::Stored { location: block.location, units: u32::from(block.stored.units()) }
        }
    }
}

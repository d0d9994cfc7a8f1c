//! Metadata contexts: which there are, which a client has chosen, and what they say of blocks (sections "Metadata
//! querying" and "Metadata contexts").
//!
//! | context | flags of an extent |
//! |---|---|
//! | `base:allocation` | hole and zero (3) where nothing is stored in any layer, else 0 |
//! | `cairn:dirty:SNAPSHOT` | dirty (1) where something was written, zeroed or discarded since that snapshot, else 0 |
//!
//! A query is a context's name; in a list also `base:`, `cairn:` or `cairn:dirty:`, for all that begin like this.

use super::{Exports, Machine};
use crate::wire::handshake::{MetaReply, MetaRequest, option, reply};
use crate::wire::transmission::{Extent, StatusPayload, allocation, dirty};
use volume::BlockExtent;

/// Contexts that one connection may choose: each multiplies what is answered.
pub const CONTEXTS_MAX: usize = 16;
const _: () = assert!(CONTEXTS_MAX <= volume::MARKS_MAX, "each is a mark of a block status");
/// Contexts that one option may ask for: more than can be chosen.
pub const QUERIES_MAX: usize = 4 * CONTEXTS_MAX;
/// Extents of one answer: a client that wants to know more asks again behind them. 16 KiB in each context.
pub const STATUS_EXTENTS_MAX: u32 = 2048;

/// The context that every export has.
pub const ALLOCATION: &str = "base:allocation";
/// What the names of the others begin with; a snapshot's name follows.
pub const DIRTY: &str = "cairn:dirty:";

/// A context of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Context {
    Allocation,
    /// Since this snapshot.
    Dirty(String),
}

impl Context {
    fn name(&self) -> String {
        match self {
            Self::Allocation => ALLOCATION.to_owned(),
            Self::Dirty(snapshot) => format!("{DIRTY}{snapshot}"),
        }
    }
}

/// What a client has chosen.
#[derive(Default)]
pub(super) struct Contexts {
    /// For this export alone.
    of: String,
    /// In the order of their ids.
    chosen: Vec<Context>,
}

impl Contexts {
    pub(super) fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// The export of this name is opened: what was chosen for another one is not.
    pub(super) fn settle(&mut self, export: &str) {
        if self.of != export {
            self.chosen.clear();
        }
    }

    /// The snapshots that are asked about, in the order of the bits of [`BlockExtent::changed_since`].
    pub(super) fn snapshots(&self) -> Vec<String> {
        let snapshot = |context: &Context| match context {
            Context::Allocation => None,
            Context::Dirty(snapshot) => Some(snapshot.clone()),
        };
        self.chosen.iter().filter_map(snapshot).collect()
    }

    /// What an answer weighs at most, and what it is made of.
    pub(super) fn answer_bytes(&self) -> u64 {
        let per_extent = size_of::<BlockExtent>() + 8 * self.chosen.len();
        u64::from(STATUS_EXTENTS_MAX) * per_extent as u64
    }

    /// What the contexts say of `extents`, one payload for each.
    pub(super) fn payloads(&self, extents: &[BlockExtent]) -> Vec<Vec<u8>> {
        let mut bit = 0;
        let payload = |(id, context): (usize, &Context)| {
            let flags: Box<dyn Fn(&BlockExtent) -> u32> = match context {
                Context::Allocation => {
                    Box::new(|extent| if extent.is_stored { 0 } else { allocation::HOLE | allocation::ZERO })
                }
                Context::Dirty(_) => {
                    let mask = 1 << bit;
                    bit += 1;
                    Box::new(move |extent| if extent.changed_since & mask != 0 { dirty::DIRTY } else { 0 })
                }
            };
            let mut told: Vec<Extent> = Vec::new();
            for extent in extents {
                let (len_bytes, flags) = (extent.len_bytes as u32, flags(extent));
                match told.last_mut() {
                    Some(last) if last.flags == flags => last.len_bytes += len_bytes,
                    _ => told.push(Extent { len_bytes, flags }),
                }
            }
            StatusPayload { context: id as u32, extents: told }.encode()
        };
        self.chosen.iter().enumerate().map(payload).collect()
    }
}

impl Machine {
    /// LIST_META_CONTEXT and SET_META_CONTEXT.
    pub(super) fn meta_context(&mut self, asked: u32, data: &[u8], exports: &impl Exports) {
        let sets = asked == option::SET_META_CONTEXT;
        if sets {
            self.contexts = Contexts::default(); // also if it is refused now
        }
        let Some(request) = MetaRequest::decode(data) else {
            return self.refuse(asked, reply::ERR_INVALID, "lengths that do not add up, or a name that is not UTF-8");
        };
        if !self.structured {
            return self.refuse(asked, reply::ERR_INVALID, "contexts need structured replies: ask for those first");
        }
        let Some(export) = exports.find(request.export) else {
            return self.refuse_missing(asked, &exports.why_missing(request.export));
        };
        let dirty = exports.snapshots(&export.name).into_iter().map(Context::Dirty);
        let all: Vec<Context> = [Context::Allocation].into_iter().chain(dirty).collect();
        let names: Vec<String> = all.iter().map(Context::name).collect();
        let mut picked: Vec<&Context> = Vec::new();
        // Each is held against all names.
        if request.queries().count() > QUERIES_MAX {
            return self.refuse(asked, reply::ERR_TOO_BIG, &format!("more queries than {QUERIES_MAX} at once"));
        }
        for query in request.queries() {
            if !query.contains(':') {
                let why = "a query begins with a namespace: base: or cairn:";
                return self.refuse(asked, reply::ERR_INVALID, why);
            }
            let is_family = !sets && ["base:", "cairn:", DIRTY].contains(&query);
            for (context, name) in all.iter().zip(&names) {
                if (name == query || is_family && name.starts_with(query)) && !picked.contains(&context) {
                    picked.push(context);
                }
            }
        }
        if !sets && request.queries().next().is_none() {
            picked.extend(&all);
        }
        if sets && picked.len() > CONTEXTS_MAX {
            let why = format!("{} contexts, at most {CONTEXTS_MAX} can be chosen at once", picked.len());
            return self.refuse(asked, reply::ERR_TOO_BIG, &why);
        }
        for (id, context) in picked.iter().enumerate() {
            let id = if sets { id as u32 } else { 0 };
            self.reply(asked, reply::META_CONTEXT, &MetaReply { id, name: context.name() }.encode());
        }
        self.reply(asked, reply::ACK, &[]);
        if sets {
            self.contexts = Contexts { of: export.name, chosen: picked.into_iter().cloned().collect() };
        }
    }
}

//! Queues: each has a bound, which holds at every look.

use super::machine::Machine;
use crate::workload::Failure;
use replication::node::CoreGroups;
use replication::{CoreLengths, GroupLengths, PREPARED_BYTES_MAX, PREPARED_ENTRIES_MAX, ShardLengths};
use std::rc::Rc;

/// Waits on a connection: what there is room for, and the message that filled it.
const LINK_BYTES_MAX: usize = 10 << 20;
/// Is to be done by cores that stand still: some beats of each node for as long as that lasts, and looks at the map.
const BEHIND_MAX: usize = 1_024;
/// Beyond the window: what begins an epoch, and entries of layers.
const BEGIN_ENTRIES_MAX: usize = 16;
/// Requests of heads: of each client one, and those that it gave up and that are not over.
const CALLS_MAX: usize = 1_024;
/// Messages of catch-up that have come: of as many units as are on their way.
const SAID_MAX: usize = 64;

/// Times that a group is named among those that had no room on a connection: once for each member and turn.
const WAITING_MAX: usize = 64;

/// The longest that were seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Longest {
    pub core: CoreLengths,
    pub shard: ShardLengths,
    pub group: GroupLengths,
}

impl Longest {
    /// Looks at all cores.
    ///
    /// # Errors
    /// A queue is longer than it may be.
    pub fn look(&mut self, machines: &[Rc<Machine>]) -> Result<(), Failure> {
        for machine in machines.iter().filter(|machine| machine.node.is_up()) {
            let Some(process) = machine.process() else { continue };
            for (core, groups) in process.cores.borrow().iter() {
                machine
                    .node
                    .look(*core, || self.look_at(groups))
                    .map_err(|why| Failure::new("bounds", format!("node {}, core {core}: {why}", machine.index)))?;
            }
        }
        Ok(())
    }

    fn look_at(&mut self, core: &CoreGroups) -> Result<(), String> {
        let shards = core.shards();
        let groups: usize = shards.iter().map(|shard| shard.groups().len()).sum();
        let lengths = core.lengths();
        let longest = &mut self.core;
        longest.links = longest.links.max(lengths.links);
        longest.link_bytes = longest.link_bytes.max(lengths.link_bytes);
        longest.waiting = longest.waiting.max(lengths.waiting);
        longest.behind = longest.behind.max(lengths.behind);
        longest.calls = longest.calls.max(lengths.calls);
        longest.serving = longest.serving.max(lengths.serving);
        let is_bounded = lengths.link_bytes <= LINK_BYTES_MAX
            && lengths.behind <= BEHIND_MAX
            && lengths.waiting <= groups * WAITING_MAX
            && lengths.calls <= CALLS_MAX
            && lengths.serving <= CALLS_MAX;
        if !is_bounded {
            return Err(format!("{lengths:?}, {groups} groups"));
        }
        for shard in shards {
            let lengths = shard.lengths();
            self.shard.queued = self.shard.queued.max(lengths.queued);
            self.shard.intake = self.shard.intake.max(lengths.intake);
            let groups = shard.groups();
            let most = groups.len() * (PREPARED_ENTRIES_MAX + BEGIN_ENTRIES_MAX);
            if lengths.queued > most || lengths.intake > most {
                return Err(format!("{lengths:?}, {} groups", groups.len()));
            }
            for group in groups {
                let lengths = group.lengths();
                self.note(lengths);
                let is_bounded = lengths.kept_entries <= 2 * PREPARED_ENTRIES_MAX + BEGIN_ENTRIES_MAX
                    && lengths.kept_bytes <= 2 * PREPARED_BYTES_MAX
                    && lengths.prepared <= PREPARED_ENTRIES_MAX + BEGIN_ENTRIES_MAX
                    && lengths.fillings <= group.record().members.len()
                    && lengths.said <= SAID_MAX;
                if !is_bounded {
                    return Err(format!("group {}: {lengths:?}", group.id()));
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, lengths: GroupLengths) {
        let longest = &mut self.group;
        longest.kept_entries = longest.kept_entries.max(lengths.kept_entries);
        longest.kept_bytes = longest.kept_bytes.max(lengths.kept_bytes);
        longest.prepared = longest.prepared.max(lengths.prepared);
        longest.fillings = longest.fillings.max(lengths.fillings);
        longest.said = longest.said.max(lengths.said);
    }
}

//! Groups of which more copies were destroyed than their policy allows for: what they acknowledged may be gone, and be there
//! again; but nothing is read that nobody wrote there.

use super::control::Control;
use super::layout::Layout;
use crate::workload::Failure;
use checker::history::{Action, History, Operation, Value};
use types::BLOCKS_PER_CHUNK;

/// The group, by its index, that an operation was sent to.
fn group_of(layout: &Layout, operation: &Operation) -> usize {
    (operation.first_block / u64::from(BLOCKS_PER_CHUNK)) as usize % layout.groups.len()
}

/// What is judged as if nothing had been lost.
pub fn judged(layout: &Layout, control: &Control, history: &History) -> History {
    history.leaving_out(|operation| !control.is_judged(group_of(layout, operation)))
}

/// All that the others read was written there before, by somebody.
///
/// # Errors
/// The first that was not.
pub fn check_others(layout: &Layout, control: &Control, history: &History) -> Result<(), Failure> {
    for read in history.operations().iter().filter(|read| read.is_done()) {
        let Action::Read(values) = &read.action else { continue };
        if control.is_judged(group_of(layout, read)) {
            continue;
        }
        for (block, value) in (read.first_block..).zip(values) {
            let is_known = *value == Value::ZERO
                || history
                    .writer(*value)
                    .is_some_and(|write| write.blocks().contains(&block) && Some(write.start) <= read.latest());
            if !is_known {
                return Err(Failure::new("contents", format!("block {block} reads {value}, which nobody wrote there")));
            }
        }
    }
    Ok(())
}

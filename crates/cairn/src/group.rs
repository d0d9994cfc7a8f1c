//! `cairn group ls|force`: placement groups that nobody can serve, and whose copy is to count.

use crate::Failure;
use crate::args::GroupCommand;
use crate::client::Client;
use crate::output::{Format, show};
use node::admin::group_types::{CopyHere, ForceGroups, Forced, Group, GroupCopy};
use std::fmt::Write;

pub(crate) fn run(client: &Client, command: GroupCommand, format: Format) -> Result<(), Failure> {
    match command {
        GroupCommand::Ls => show(format, &client.groups()?, |groups| list(groups)),
        GroupCommand::Force { copy, groups, all, yes } => {
            if groups.is_empty() && !all {
                return Err(Failure::new("no group is named: name those of `cairn group ls`, or say --all".to_owned()));
            }
            let forced = client.force_groups(&ForceGroups { copy, groups, dry_run: !yes })?;
            show(format, &forced, text)
        }
    }
}

fn list(groups: &[Group]) -> String {
    if groups.is_empty() {
        return "every placement group is served, or waits for nobody but who is there\n".to_owned();
    }
    let mut text = String::new();
    for group in groups {
        let is = match (group.needs_decision, group.serves) {
            (true, _) => "needs a decision: `cairn group force`",
            (false, true) => "is served",
            (false, false) => "waits",
        };
        let _ = writeln!(text, "group {} of pool {}, epoch {}: {is}", group.group, group.pool, group.epoch);
        group.copies.iter().for_each(|copy| text += &line(copy));
    }
    text
}

fn line(copy: &GroupCopy) -> String {
    let in_sync = if copy.in_sync { ", in sync" } else { "" };
    let is = match &copy.here {
        None => "its node does not answer, or does not serve it".to_owned(),
        Some(here) => state(here),
    };
    format!("  {} {} (store {}){in_sync}: {is}\n", copy.node, copy.path, copy.store_id)
}

fn state(here: &CopyHere) -> String {
    let CopyHere { epoch, committed, whole, damaged_chunks, stopped, poison, .. } = here;
    let mut text = format!("entries to {committed}, of epoch {epoch} at most");
    text += if *whole { "" } else { ", not whole" };
    if *damaged_chunks > 0 {
        let _ = write!(text, ", {damaged_chunks} chunks damaged");
    }
    if let Some(poison) = poison {
        let _ = write!(text, ", nobody can apply entry {poison}");
    }
    if let Some(why) = stopped {
        let _ = write!(text, ", takes no part: {why}");
    }
    text
}

fn text(forced: &Forced) -> String {
    let mut text = String::new();
    for group in &forced.groups {
        let _ = writeln!(text, "group {}: the copy of {} (store {})", group.group, group.node, group.store_id);
        for risk in &group.at_risk {
            let _ = writeln!(text, "  may be lost: {risk}");
        }
    }
    text += &match (forced.groups.len(), forced.dry_run) {
        (0, _) => "no group needs a decision and has a copy there\n".to_owned(),
        (count, true) => format!("nothing was changed: say --yes, and these copies of {count} groups count\n"),
        (count, false) => {
            format!("these copies of {count} groups count from now on: `cairn status` says how it goes on\n")
        }
    };
    if !forced.dry_run && !forced.restart.is_empty() {
        let nodes = forced.restart.join(", ");
        let _ = writeln!(text, "start {nodes} anew: copies there have stopped, and hear of it then");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::admin::group_types::ForcedGroup;

    #[test]
    fn what_may_be_lost_is_said_before_anything_is_done() {
        let group = ForcedGroup {
            group: 7,
            store_id: "ab".to_owned(),
            node: "node-2".to_owned(),
            at_risk: vec!["all of it".to_owned()],
        };
        let mut forced = Forced { dry_run: true, groups: vec![group], restart: vec!["node-1".to_owned()] };
        let told = text(&forced);
        assert!(
            told.contains("may be lost: all of it") && told.contains("say --yes") && !told.contains("anew"),
            "{told}"
        );
        forced.dry_run = false;
        let told = text(&forced);
        assert!(told.contains("count from now on") && told.contains("start node-1 anew"), "{told}");
        assert!(text(&Forced::default()).contains("no group needs a decision"));
    }

    #[test]
    fn a_group_is_listed_with_what_each_copy_is_like() {
        let here = CopyHere { committed: 5, epoch: 3, stopped: Some("two maps".to_owned()), ..CopyHere::default() };
        let copy = |here| GroupCopy { node: "node-1".to_owned(), here, ..GroupCopy::default() };
        let copies = vec![copy(Some(here)), copy(None)];
        let told = list(&[Group { group: 9, needs_decision: true, copies, ..Group::default() }]);
        for part in ["group 9", "needs a decision", "entries to 5", "not whole", "two maps", "does not answer"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}

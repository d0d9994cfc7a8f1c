//! The map that waits for copies, and one that is made anew of them.

mod directed;

use cluster::{CopiedMap, Copies, CopyTrouble, MapError, MapStore, Outcome, Revision, SimMap};
use directed::{
    a_change_is_answered_when_copies_hold_it, a_head_waits_for_copies_of_its_new_top,
    data_of_layers_that_no_copy_names_is_not_left, groups_that_no_copy_names_are_not_left, put, run,
    what_too_few_hold_is_not_found_either,
};

#[test]
fn a_change_waits_for_copies() {
    a_change_is_answered_when_copies_hold_it(1);
}

#[test]
fn looking_at_it_does_not_make_it_copied() {
    what_too_few_hold_is_not_found_either(1);
}

#[test]
fn a_new_top_waits_for_copies() {
    a_head_waits_for_copies_of_its_new_top(1);
}

#[test]
fn what_no_copy_names_is_not_left_behind() {
    data_of_layers_that_no_copy_names_is_not_left(1);
    groups_that_no_copy_names_are_not_left(1);
}

/// The store of the map is gone right behind its answer, before any copy has heard: the change is not told as done.
#[test]
fn what_copies_never_hear_of_is_never_told_as_done() {
    run(1, async {
        let kept = CopiedMap::new(SimMap::new(), Copies::of_a_node());
        let told = kept.transact(put("volumes/1")).await;
        assert!(matches!(told, Err(MapError::NotCopied { held: 0, needed: 1 })), "{told:?}");
    });
}

#[test]
fn a_node_that_can_keep_none_begins_all_the_same() {
    run(1, async {
        let copies = Copies::of_a_node();
        let kept = CopiedMap::new(SimMap::new(), copies.clone());
        copies.holds_nothing(CopyTrouble::Ended);
        assert_eq!(kept.transact(put("volumes/1")).await, Ok(Outcome::Committed(Revision(1))));
        assert_eq!(kept.watch("", Revision(1)).next().await.expect("told").len(), 1);
    });
}

/// `cairn status` tells it: only a log would be seen by nobody.
#[test]
fn a_copy_that_does_not_count_is_known_until_it_does() {
    run(1, async {
        let (map, copies) = (SimMap::new(), Copies::of_a_node());
        let kept = CopiedMap::new(map.clone(), copies.clone());
        let full = CopyTrouble::Unwritten("the disk is full".to_owned());
        assert_eq!(copies.trouble(), None);
        copies.holds_nothing(full.clone());
        copies.begins();
        copies.writes();
        assert_eq!(copies.trouble(), Some(full), "it is only tried again");
        copies.holds(Revision(1));
        assert_eq!(copies.trouble(), None);
        for key in ["volumes/1", "volumes/2", "volumes/3"] {
            map.transact(put(key)).await.expect("done");
        }
        kept.list("").await.expect("the node goes on");
        assert_eq!(copies.trouble(), Some(CopyTrouble::Behind));
        copies.holds(Revision(2));
        assert_eq!(copies.trouble(), Some(CopyTrouble::Behind), "it is at 3");
        copies.holds(Revision(3));
        assert_eq!(copies.trouble(), None);
        copies.holds(Revision(1));
        kept.list("").await.expect("the node goes on");
        copies.begins();
        assert_eq!(copies.trouble(), Some(CopyTrouble::Behind));
        copies.holds(Revision(2));
        assert_eq!(copies.trouble(), None, "of another map: that is all of it");
        assert_eq!(Copies::of_others().trouble(), None, "a client is to keep none");
    });
}

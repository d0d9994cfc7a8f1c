//! Rules of docs/heads.md that groups and whoever asks them keep, and what shows that each is kept.

mod common;
#[path = "common/heads.rs"]
mod heads;

use common::holds;
use types::Mutant;

#[test]
fn a_group_led_elsewhere_does_what_it_is_asked() {
    holds(heads::a_group_led_elsewhere_does_what_it_is_asked, &[]);
}

#[test]
fn several_pieces_are_one_request() {
    holds(heads::several_pieces_are_one_request, &[Mutant::PiecesAnsweredEarly]);
}

#[test]
fn an_older_head_is_refused() {
    holds(heads::an_older_head_is_refused, &[Mutant::OlderHeadTaken]);
}

#[test]
fn a_raise_outlives_its_primary() {
    holds(heads::a_raise_outlives_its_primary, &[Mutant::RaisedInMemory]);
}

#[test]
fn a_new_head_reads_what_is_decided() {
    holds(heads::a_new_head_reads_what_is_decided, &[Mutant::RaiseNotAwaited]);
}

#[test]
fn what_is_asked_again_is_not_done_twice() {
    holds(heads::what_is_asked_again_is_not_done_twice, &[Mutant::OvertakenDone]);
}

#[test]
fn what_is_of_another_group_is_refused() {
    holds(heads::what_is_of_another_group_is_refused, &[Mutant::OtherTableTaken]);
}

#[test]
fn what_was_meant_for_an_earlier_epoch_is_refused() {
    holds(heads::what_was_meant_for_an_earlier_epoch_is_refused, &[Mutant::OldRequestTaken]);
}

#[test]
fn who_leads_no_more_reads_nothing_for_a_head_that_asks() {
    holds(heads::who_leads_no_more_reads_nothing_for_a_head_that_asks, &[Mutant::HintTrusted]);
}

#[test]
fn what_lies_below_a_layer_is_known_where_it_is() {
    holds(heads::what_lies_below_a_layer_is_known_where_it_is, &[Mutant::ParentUntold]);
}

#[test]
fn an_older_keeper_is_refused() {
    holds(heads::an_older_keeper_is_refused, &[Mutant::OlderKeeperTaken]);
}

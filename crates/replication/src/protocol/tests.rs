//! One member, told things in an order that hurts.

use super::*;
use runtime::Instant;
use types::{Epoch, Incarnation, Seq, StoreId, Term};

const P: StoreId = StoreId(1);
const A: StoreId = StoreId(2);
const B: StoreId = StoreId(3);

const SETTINGS: Settings = Settings { lease: Instant(100), grant: Instant(102), batch_entries_max: 8 };
const START: Instant = Instant(1_000);
const LONG_AFTER: Instant = Instant(9_000);
const FIRST_LIFE: Incarnation = Incarnation(1);

/// P leads epoch 4 with A; B has to catch up.
fn record() -> Membership {
    Membership {
        epoch: Epoch(4),
        primary: P,
        life: FIRST_LIFE,
        in_sync: vec![P, A],
        joining: vec![B],
        min_in_sync: 2,
        ..Membership::default()
    }
}

/// Whose entries of this epoch are: P led in all of them.
fn term(epoch: u32) -> Term {
    Membership { epoch: Epoch(epoch), ..record() }.term()
}

/// Entries 1 to 6, the last two of epoch 4.
fn log() -> History {
    History::new(vec![(term(1), Seq(1)), (term(4), Seq(5))], Seq(6))
}

fn member(me: StoreId) -> Member {
    Member::start(me, FIRST_LIFE, SETTINGS, (record(), None), log(), Seq(0), true, START)
}

/// What it asks the map for.
fn asked_for(member: &mut Member) -> Membership {
    let mut proposals = member.take_effects().into_iter().filter_map(|effect| match effect {
        Effect::Propose(record, _) => Some(Membership::clone(&record)),
        _ => None,
    });
    proposals.next_back().expect("it asks the map")
}

fn asks_the_map(member: &mut Member) -> bool {
    member.take_effects().iter().any(|effect| matches!(effect, Effect::Propose(..)))
}

fn commits(member: &mut Member) -> bool {
    member.take_effects().iter().any(|effect| matches!(effect, Effect::Commit(_)))
}

fn stops_for(member: &mut Member) -> Option<Refusal> {
    member.take_effects().into_iter().find_map(|effect| match effect {
        Effect::Stop(why) => Some(why),
        _ => None,
    })
}

fn told(epoch: Epoch) -> Message {
    Message::Told { epoch, history: log(), committed: Seq(0), whole: true, turns: 0 }
}

/// P leads epoch 5, and A has followed it.
fn leader() -> Member {
    let mut leader = member(P);
    leader.campaign();
    leader.propose_to_lead(LONG_AFTER);
    let record = asked_for(&mut leader);
    leader.changed(&record);
    leader.receive(A, FIRST_LIFE, &told(Epoch(5)), &[]);
    assert_eq!(leader.next_place(), Some((term(5), Seq(9))), "two entries begin the epoch");
    leader.take_effects();
    leader
}

/// R13: numbers are compared with their epochs.
#[test]
fn what_was_cut_and_is_durable_late_does_not_speak_for_what_took_its_place() {
    let mut follower = member(A);
    let prepare = |epoch| Message::Prepare {
        record: Membership { epoch: Epoch(epoch), ..record() }.into(),
        before: (term(4), Seq(6)),
        commit: Seq(0),
    };
    follower.receive(P, FIRST_LIFE, &prepare(4), &[term(4), term(4)]);
    follower.receive(P, FIRST_LIFE, &prepare(5), &[term(5), term(5)]);
    let acknowledged = |follower: &mut Member| {
        follower
            .take_effects()
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Send(_, Message::Prepared { through, .. }, _) => Some(through),
                _ => None,
            })
            .max()
    };
    follower.is_durable((term(4), Seq(8)));
    assert_eq!(acknowledged(&mut follower), None);
    follower.is_durable((term(5), Seq(8)));
    assert_eq!(acknowledged(&mut follower), Some(Seq(8)));
}

/// R12: only its own answer ends a change.
#[test]
fn an_answer_to_an_earlier_request_changes_nothing() {
    let mut follower = member(A);
    follower.campaign();
    follower.propose_to_lead(LONG_AFTER);
    let first = asked_for(&mut follower);
    // P made a change of its own first, and A hears of it from P.
    let later = Membership { epoch: Epoch(5), ..record() };
    follower.learn(&later);
    follower.campaign();
    follower.propose_to_lead(LONG_AFTER);
    let second = asked_for(&mut follower);
    follower.conflicted(&first, &later);
    assert!(follower.asked_for(&second), "it may still be done");
    follower.changed(&first);
    assert!(!follower.leads());
    follower.changed(&second);
    assert!(follower.leads());
}

/// R11.
#[test]
fn a_map_that_refuses_by_an_older_record_went_back() {
    let mut follower = member(A);
    follower.campaign();
    follower.propose_to_lead(LONG_AFTER);
    let asked = asked_for(&mut follower);
    follower.conflicted(&asked, &Membership { epoch: Epoch(2), ..record() });
    assert_eq!(stops_for(&mut follower), Some(Refusal::MapWentBack { map: Epoch(2), known: Epoch(4) }));
}

/// R11.
#[test]
fn a_store_whose_log_knows_a_later_epoch_than_the_map_does_not_start() {
    let old = Membership { epoch: Epoch(3), ..record() };
    let mut started = Member::start(A, FIRST_LIFE, SETTINGS, (old, None), log(), Seq(0), true, START);
    assert_eq!(stops_for(&mut started), Some(Refusal::MapWentBack { map: Epoch(3), known: Epoch(4) }));
}

/// R11: a map went back and others went on from there.
#[test]
fn two_records_of_one_epoch_stop_whoever_hears_of_both() {
    let mut follower = member(A);
    let other = Membership { in_sync: vec![P, B], joining: vec![A], ..record() };
    follower.receive(P, FIRST_LIFE, &Message::Ask { record: other.into() }, &[]);
    assert_eq!(stops_for(&mut follower), Some(Refusal::TwoRecords { epoch: Epoch(4) }));
    follower.receive(P, FIRST_LIFE, &Message::Ask { record: record().into() }, &[]);
    assert_eq!(stops_for(&mut follower), None);
}

/// R8: P gave up epoch 3, and leads epoch 4.
#[test]
fn who_gave_up_an_earlier_epoch_may_read_in_this_one() {
    let mut follower = member(A);
    let soon = Instant(START.0 + 1);
    follower.campaign();
    follower.primary_is_gone(Epoch(3));
    follower.propose_to_lead(soon);
    assert!(!asks_the_map(&mut follower), "what was granted to P lasts");
    follower.primary_is_gone(Epoch(4));
    follower.propose_to_lead(soon);
    assert!(asks_the_map(&mut follower));
}

/// R8: also to a store that joined after its start.
#[test]
fn a_store_that_starts_has_granted_to_everybody() {
    let mut follower = member(A);
    let record = Membership { epoch: Epoch(5), primary: StoreId(9), ..record() };
    follower.learn(&record);
    follower.campaign();
    follower.propose_to_lead(Instant(START.0 + SETTINGS.grant.0 - 1));
    assert!(!asks_the_map(&mut follower));
    follower.propose_to_lead(Instant(START.0 + SETTINGS.grant.0));
    assert!(asks_the_map(&mut follower));
}

#[test]
fn who_may_not_lead_goes_on_granting() {
    let mut joining = member(B);
    joining.campaign();
    assert!(joining.grant(P, LONG_AFTER));
    let mut follower = member(A);
    follower.campaign();
    assert!(!follower.grant(P, LONG_AFTER));
    follower.abandon();
    assert!(follower.grant(P, LONG_AFTER));
}

/// R9: A has started anew, P has heard of it, and then hears once more what A said before.
#[test]
fn an_earlier_life_heard_late_counts_for_nothing() {
    let second_life = Incarnation(2);
    let mut leader = leader();
    leader.is_durable((term(5), Seq(8)));
    leader.receive(A, second_life, &Message::Refused { record: record().into() }, &[]);
    leader.receive(A, FIRST_LIFE, &told(Epoch(5)), &[]);
    leader.receive(A, FIRST_LIFE, &Message::Prepared { epoch: Epoch(5), through: Seq(8) }, &[]);
    assert!(!commits(&mut leader), "the second life may have lost it");
    leader.receive(A, second_life, &told(Epoch(5)), &[]);
    leader.receive(A, second_life, &Message::Prepared { epoch: Epoch(5), through: Seq(8) }, &[]);
    assert!(commits(&mut leader));
}

/// R9: a grant counts from the moment on that this life has told its history.
#[test]
fn a_life_that_has_told_nothing_grants_nothing() {
    let mut leader = leader();
    leader.is_durable((term(5), Seq(8)));
    leader.receive(A, FIRST_LIFE, &Message::Prepared { epoch: Epoch(5), through: Seq(8) }, &[]);
    leader.beat_answered(A, FIRST_LIFE, LONG_AFTER, true);
    assert!(leader.may_read(LONG_AFTER, LONG_AFTER));
    leader.restarted(A, Incarnation(2));
    leader.beat_answered(A, Incarnation(2), LONG_AFTER, true);
    assert!(!leader.may_read(LONG_AFTER, LONG_AFTER));
}

/// R11: by a map that was restored others went on; what is committed here is not in their log, and is not given up for it.
#[test]
fn who_has_committed_something_else_is_made_whole_by_nobody() {
    let committed =
        |through| Member::start(A, FIRST_LIFE, SETTINGS, (record(), None), log(), Seq(through), true, START);
    let others = |epoch, led_by| Membership { epoch: Epoch(epoch), primary: led_by, ..record() }.term();
    let history = |first| History::new(vec![(term(1), Seq(1)), (others(4, B), Seq(first))], Seq(9));
    let mut member = committed(6);
    assert!(!member.may_skip_to(&history(5)), "5 and 6 are of epoch 4 as B led in it");
    assert_eq!(stops_for(&mut member), Some(Refusal::CommittedLost((term(4), Seq(6)))));
    let mut member = committed(4);
    assert!(member.may_skip_to(&history(5)), "all up to 4 is the same");
    assert!(stops_for(&mut member).is_none());
    let cut_off = History::new(vec![(others(7, B), Seq(8))], Seq(9));
    assert!(committed(6).may_skip_to(&cut_off), "what comes before its oldest epoch it does not tell");
}

/// R11: a member that has stopped says what it knows to who goes by less, and nothing to others.
#[test]
fn who_goes_by_an_older_record_is_told() {
    let member = member(A);
    let ask = |record: Membership| Message::Ask { record: record.into() };
    let newest = Message::Refused { record: record().into() };
    assert_eq!(member.refuses(&ask(Membership { epoch: Epoch(3), ..record() })), Some(newest.clone()));
    assert_eq!(member.refuses(&ask(Membership { primary: B, ..record() })), Some(newest), "another of the same epoch");
    assert_eq!(member.refuses(&ask(record())), None);
    assert_eq!(member.refuses(&ask(Membership { epoch: Epoch(5), ..record() })), None);
    assert_eq!(member.refuses(&told(Epoch(3))), None, "no record is in it");
}

//! What one member does that is told things in an order that hurts, without nodes around it.

use replication::protocol::{Effect, History, Member, Membership, Message, Settings};
use runtime::Instant;
use std::sync::Arc;
use types::{Epoch, Incarnation, Seq, StoreId, Term};

const P: StoreId = StoreId(1);
const A: StoreId = StoreId(2);
const B: StoreId = StoreId(3);
const LIFE: Incarnation = Incarnation(1);
const LONG_AFTER: Instant = Instant(9_000);

/// P leads epoch 5 with A; B is to be added. Everything is committed through 8.
fn primary_of_three() -> Member {
    let record = Membership {
        epoch: Epoch(4),
        primary: P,
        life: LIFE,
        in_sync: vec![P, A],
        joining: vec![B],
        min_in_sync: 2,
        ..Membership::default()
    };
    let settings = Settings { lease: Instant(100), grant: Instant(102), batch_entries_max: 8 };
    let mut member = Member::start(P, LIFE, settings, (record, None), log(6), Seq(0), true, Instant(1_000));
    member.campaign();
    member.propose_to_lead(LONG_AFTER);
    let record = asked_for(&mut member).expect("it wants to lead");
    member.changed(&record);
    member.receive(A, LIFE, &told(true, 0), &[]);
    member.is_durable((term(5), Seq(8)));
    member.receive(A, LIFE, &Message::Prepared { epoch: Epoch(5), through: Seq(8) }, &[]);
    assert_eq!(member.committed(), Seq(8));
    member
}

/// Whose entries of this epoch are: P led in all of them.
fn term(epoch: u32) -> Term {
    Membership { epoch: Epoch(epoch), primary: P, life: LIFE, ..Membership::default() }.term()
}

fn log(last: u64) -> History {
    History::new(vec![(term(1), Seq(1)), (term(4), Seq(5))], Seq(last))
}

fn told(whole: bool, turns: u32) -> Message {
    Message::Told { epoch: Epoch(5), history: log(6), committed: Seq(0), whole, turns }
}

fn asked_for(member: &mut Member) -> Option<Arc<Membership>> {
    let proposals = member.take_effects().into_iter().filter_map(|effect| match effect {
        Effect::Propose(record, _) => Some(record),
        _ => None,
    });
    proposals.last()
}

/// R3: B is being added, and says that it is not whole: what it has as no-ops does not count, whatever the map answers.
pub fn who_is_made_whole_counts_for_nothing() {
    let mut primary = primary_of_three();
    primary.receive(B, LIFE, &told(true, 0), &[]);
    primary.receive(B, LIFE, &Message::Prepared { epoch: Epoch(5), through: Seq(8) }, &[]);
    primary.add(B);
    let added = asked_for(&mut primary).expect("it has everything");
    primary.receive(B, LIFE, &told(false, 1), &[]);
    primary.fills(B, LIFE, (term(5), Seq(8)));
    primary.changed(&added);
    let (epoch, last) = (primary.record().epoch, primary.log().last());
    primary.is_durable((primary.record().term(), last));
    for store in [A, B] {
        primary.receive(store, LIFE, &Message::Prepared { epoch, through: last }, &[]);
    }
    assert!(primary.committed() < last, "B has nothing of it");
}

/// R9: of what a member tells about itself the newest holds, in whatever order it comes.
pub fn what_was_told_earlier_and_comes_late_does_not_count() {
    let mut primary = primary_of_three();
    primary.receive(B, LIFE, &told(false, 1), &[]);
    primary.fills(B, LIFE, (term(5), Seq(8)));
    primary.receive(B, LIFE, &told(true, 0), &[]);
    primary.receive(B, LIFE, &Message::Prepared { epoch: Epoch(5), through: Seq(8) }, &[]);
    primary.take_effects();
    primary.add(B);
    assert!(asked_for(&mut primary).is_none(), "it lacks what its units have not brought");
}

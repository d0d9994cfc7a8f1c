//! When a member is called: the timers of docs/replication.md, looked at all together a few times in a second.

use super::core::CoreGroups;
use super::orders::hands_over_by_order;
use super::timing::Timing;
use super::view::View;
use crate::group::{Group, GroupRef};
use crate::protocol::Member;
use crate::shard::GroupShard;
use runtime::{Instant, now};
use std::rc::Rc;
use std::time::Duration;
use types::{Epoch, Mutant, Seq, StoreId, mutant};

/// After an attempt to make a member whole that failed: doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// What is known of another member's progress.
struct PeerTimer {
    store: StoreId,
    prepared: Seq,
    has_told: bool,
    /// When it was heard to get on, or had nothing to do.
    moved_at: Instant,
    /// When it was sent something again.
    resent_at: Instant,
    /// The commit number that it has heard, and when it was sent one last.
    commit: Seq,
    told_at: Instant,
    /// When it told its history last: what its node answered before, it answered as one that may not have followed.
    history_at: Option<Instant>,
    /// What was committed when it was to be added last.
    looked: Seq,
    /// How long to wait after an attempt to make it whole, or to add it, that failed, and until when.
    pause: Duration,
    paused_until: Instant,
}

/// A record that was heard of is in a member's log soon, if its primary reaches it; if not by then, it is written down.
const HEARD_WAIT: Duration = Duration::from_millis(500);
/// Longest until a member that does not keep its group is given it again by order.
const ORDER_WAIT_MAX: Duration = Duration::from_secs(60);
/// A member that counts for nothing waits so long for the room for its next entry.
const ROOM_PATIENCE: Duration = Duration::from_secs(5);

/// Of one group.
#[derive(Default)]
pub(crate) struct Timers {
    epoch: Epoch,
    epoch_at: Instant,
    /// Since when nobody leads, as far as is known.
    headless_since: Option<Instant>,
    /// When this member gave the group up, and when that was said last.
    gave_up_at: Option<Instant>,
    said_at: Instant,
    /// When the map was asked for the record, and when it had been looked at.
    asked_at: Option<Instant>,
    looked_at: Option<Instant>,
    added_at: Instant,
    /// Since when a change of the record waits for the map's answer, and since when the map answers others and not this node.
    asking_since: Option<Instant>,
    others_answered_since: Option<Instant>,
    /// Who was given the group by order last, when, and how long after that it may be given it again.
    ordered: Option<(StoreId, Instant, Duration)>,
    /// How far the log was, of one that waits for a longer one, and since when.
    fetched: Option<(Seq, Instant)>,
    peers: Vec<PeerTimer>,
}

impl Timers {
    /// Whether a store may be given the group by order: not again at once, if it did not keep it.
    pub(super) fn may_be_given(&self, store: StoreId, at: Instant) -> bool {
        self.ordered.is_none_or(|(to, since, wait)| to != store || at.since(since) >= wait)
    }

    /// It was given it. Each time that it comes back soon the next one is later.
    pub(super) fn was_given(&mut self, store: StoreId, at: Instant, first: Duration) {
        let again =
            self.ordered.filter(|(to, since, wait)| *to == store && at.since(*since) < 2 * *wait + ORDER_WAIT_MAX);
        let wait = again.map_or(first, |(_, _, wait)| (2 * wait).min(ORDER_WAIT_MAX));
        self.ordered = Some((store, at, wait));
    }

    /// A member is sent the commit number.
    pub(crate) fn told_commit(&mut self, store: StoreId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.store == store) {
            peer.told_at = now();
        }
    }

    /// A member has answered a message with this commit number.
    pub(crate) fn heard_commit(&mut self, store: StoreId, commit: Seq) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.store == store) {
            peer.commit = peer.commit.max(commit);
        }
    }

    /// A member has told its history.
    pub(crate) fn told_history(&mut self, store: StoreId) {
        let at = now();
        self.peer(store, at).history_at = Some(at);
    }

    /// Whether a beat was sent to a member after it had told its history: only then its answer is a grant to this primary (R8).
    pub(crate) fn was_asked_behind(&self, store: StoreId, sent: Instant) -> bool {
        let known = self.peers.iter().find(|peer| peer.store == store);
        known.and_then(|peer| peer.history_at).is_some_and(|told| sent >= told)
    }

    /// An attempt to make a member whole has ended: after one that failed others come first.
    pub(crate) fn attempted(&mut self, store: StoreId, is_whole: bool) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.store == store) {
            peer.pause = if is_whole { Duration::ZERO } else { (2 * peer.pause).clamp(PAUSE_MIN, PAUSE_MAX) };
            peer.paused_until = now() + peer.pause;
        }
    }

    /// The map was looked at.
    pub(crate) fn looked(&mut self) {
        self.looked_at = Some(now());
    }

    fn peer(&mut self, store: StoreId, at: Instant) -> &mut PeerTimer {
        let index = self.peers.iter().position(|peer| peer.store == store).unwrap_or_else(|| {
            let fresh = PeerTimer {
                store,
                prepared: Seq(0),
                has_told: false,
                moved_at: at,
                resent_at: at,
                commit: Seq(0),
                told_at: Instant(0),
                history_at: None,
                looked: Seq(0),
                pause: Duration::ZERO,
                paused_until: Instant(0),
            };
            self.peers.push(fresh);
            self.peers.len() - 1
        });
        &mut self.peers[index]
    }
}

/// Looks at all groups of a core, for ever.
pub(super) async fn run(core: Rc<CoreGroups>) {
    let mut last = now();
    loop {
        let at = now();
        if at.since(std::mem::replace(&mut last, at)) >= core.shared.timing.silent / 2 {
            // Whoever slept has heard nobody: nobody was silent by that.
            core.view.borrow_mut().has_slept(at);
        }
        core.turned();
        core.look_at_links();
        // Without a list of them: there may be thousands, and there is nothing to do for most.
        for shard in (0..).map_while(|index| core.shard_at(index)) {
            for group in (0..shard.group_count()).map(|index| shard.group_at(index)) {
                if group.stopped().is_some() {
                    say_given_up(&group, now(), &core.shared.timing);
                } else if !group.member().is_alone_and_leads() {
                    look_after(&core, &shard, &group);
                }
            }
        }
        runtime::sleep(core.shared.timing.tick).await;
    }
}

fn look_after(core: &Rc<CoreGroups>, shard: &Rc<GroupShard>, group: &GroupRef) {
    let at = now();
    let timing = core.shared.timing;
    let epoch = group.member().record().epoch;
    {
        let mut timers = group.timers.borrow_mut();
        if timers.epoch != epoch || timers.epoch_at == Instant(0) {
            (timers.epoch, timers.epoch_at) = (epoch, at);
            timers.headless_since = None;
            timers.looked_at = None;
            timers.gave_up_at = None;
        }
    }
    let leads = group.member().leads();
    if at.since(group.timers.borrow().epoch_at) >= HEARD_WAIT {
        group.note_heard();
    }
    if leads {
        lead(core, shard, group, at, &timing);
    } else {
        group.timers.borrow_mut().peers.clear();
        follow(core, group, at, &timing);
    }
}

// ---- a primary -----------------------------------------------------------------------------------------------------

fn lead(core: &Rc<CoreGroups>, shard: &Rc<GroupShard>, group: &GroupRef, at: Instant, timing: &Timing) {
    let others: Vec<_> = {
        let member = group.member();
        member.record().members().filter(|store| *store != member.store()).collect()
    };
    let view = core.view.borrow();
    let lacking = group.take_lacking();
    let (mut gone, mut slow) = (Vec::new(), Vec::new());
    for &store in &others {
        match progress(group, store, at) {
            _ if view.silence(store, group.id(), at) >= timing.silent => {
                group.with(|member| member.is_silent(store));
                gone.push(store);
            }
            Progress::Stands(since) => {
                if since >= timing.slow {
                    slow.push(store);
                }
                ask_again(group, store, at, timing);
            }
            Progress::Moves => {}
        }
        if refuses(group, store, at, timing) && !gone.contains(&store) && !slow.contains(&store) {
            slow.push(store);
        }
        if !gone.contains(&store) && lacks(group, store, &lacking) {
            // It comes back chunk by chunk; until then it counts for nothing.
            gone.push(store);
            if group.timers.borrow_mut().peer(store, at).paused_until <= at {
                core.make_whole(shard, group, store);
            }
        }
        tell_commit(group, store, at, timing);
    }
    drop(view);
    let epoch_at = group.timers.borrow().epoch_at;
    let gives_up = hands_over(shard, group, &gone, &slow)
        || lets_the_longer_lead(group, at, timing)
        || lets_one_with_a_map_lead(core, group, &gone, at)
        || hands_over_by_order(core, group, (&gone, &slow), (at, epoch_at), timing);
    if gives_up {
        return;
    }
    remove(core, group, (&gone, &slow), at);
    let (epoch_at, is_due) = {
        let mut timers = group.timers.borrow_mut();
        let is_due = at.since(timers.added_at) >= timing.resend;
        if is_due {
            timers.added_at = at;
        }
        (timers.epoch_at, is_due)
    };
    if is_due {
        let absent =
            |member: &Member, store: &StoreId| !member.record().in_sync.contains(store) && !gone.contains(store);
        group.with(|member| {
            others.iter().for_each(|store| {
                if absent(member, store) {
                    member.add(*store)
                }
            })
        });
        hold_for_one(group, &others, &gone, at);
        let is_over = at.since(epoch_at) >= timing.ask || only_the_dead_are_silent(core, group);
        if group.member().next_place().is_none() && is_over {
            group.with(|member| member.go_on(true));
        }
    }
    group.flush();
}

/// Whether all that may have every committed entry have told this new primary what they have, but those whose process has ended:
/// nobody waits for these.
fn only_the_dead_are_silent(core: &CoreGroups, group: &Group) -> bool {
    let (member, view) = (group.member(), core.view.borrow());
    let holds_all = member.record().in_sync.iter().chain(&member.record().eligible);
    let others = holds_all.filter(|store| **store != member.store());
    let (dead, alive): (Vec<_>, Vec<_>) = others.partition(|store| view.is_dead_now(**store));
    let has_told = |store: &&StoreId| member.peer(**store).is_some_and(|peer| peer.has_told && peer.whole);
    !dead.is_empty() && alive.iter().all(has_told)
}

/// A member that has what was committed at the last look, and never what is committed now, as its device is slower than the
/// others: writers wait a moment, until the next look at most, so that it has all and is added.
fn hold_for_one(group: &Group, others: &[StoreId], gone: &[StoreId], at: Instant) {
    if let Some(store) = group.held_for() {
        group.let_writers_go();
        group.timers.borrow_mut().attempted(store, false);
    }
    let nearly = {
        let (member, mut timers) = (group.member(), group.timers.borrow_mut());
        let committed = member.committed();
        let mut nearly = None;
        for store in others.iter().filter(|store| !gone.contains(store)) {
            let Some(peer) = member.peer(*store) else { continue };
            let timer = timers.peer(*store, at);
            let looked = std::mem::replace(&mut timer.looked, committed);
            let is_near = peer.has_told && peer.whole && looked > Seq(0) && peer.prepared >= looked;
            let is_absent = !member.record().in_sync.contains(store);
            if is_absent && is_near && timer.paused_until <= at {
                nearly = nearly.or(Some(*store));
            }
        }
        nearly.filter(|_| !member.change_under_way())
    };
    if let Some(store) = nearly {
        group.hold_writers_for(store);
    }
}

/// Whether a member answers beats and grants nothing for this group, for so long that it is as good as slow: it has stopped,
/// or hears nobody.
fn refuses(group: &Group, store: StoreId, at: Instant, timing: &Timing) -> bool {
    let since = group.member().peer(store).and_then(|peer| peer.refuses_since);
    since.is_some_and(|since| at.since(since.max(group.timers.borrow().epoch_at)) >= timing.slow)
}

/// The map does not answer this primary, and answers another member: a change that is due can be made there.
fn lets_one_with_a_map_lead(core: &CoreGroups, group: &Group, gone: &[StoreId], at: Instant) -> bool {
    let timing = core.shared.timing;
    let since = {
        let asks = group.member().change_under_way();
        let asking_since = &mut group.timers.borrow_mut().asking_since;
        *asking_since = asking_since.or(Some(at)).filter(|_| asks);
        *asking_since
    };
    let Some(since) = since.filter(|since| at.since(*since) >= timing.unanswered) else {
        group.timers.borrow_mut().others_answered_since = None;
        return false;
    };
    let others: Vec<_> = {
        let member = group.member();
        let may_lead = |store: &&StoreId| **store != member.store() && !gone.contains(store);
        member.record().in_sync.iter().filter(may_lead).copied().collect()
    };
    // What was answered then was asked well after this one's change.
    let answered_behind = since + 2 * timing.ask;
    let me = [group.member().store()];
    let (by_others, by_this) = (core.map_answers(&others, answered_behind), core.map_answers(&me, answered_behind));
    let gives_up = {
        let since = &mut group.timers.borrow_mut().others_answered_since;
        *since = since.or(by_others.then_some(at)).filter(|_| !by_this);
        // A map that is just back may answer this node next, which asks again.
        since.is_some_and(|since| at.since(since) >= 2 * timing.ask)
    };
    if gives_up {
        log::info!("group {}: the map does not answer this node and answers others: another is to lead", group.id());
        group.with(|member| member.give_up(None));
    }
    gives_up
}

/// Whether a member lacks what no entry can bring.
fn lacks(group: &Group, store: StoreId, lacking: &[StoreId]) -> bool {
    let Some(peer) = group.member().peer(store) else { return false };
    let counts = group.member().counts(store);
    peer.has_told && (lacking.contains(&store) || !peer.whole && (!peer.fills || counts))
}

enum Progress {
    Moves,
    /// Since so long.
    Stands(Duration),
}

/// Whether a member gets on with what it was sent or asked.
fn progress(group: &Group, store: StoreId, at: Instant) -> Progress {
    let Some(standing) = group.member().peer(store) else { return Progress::Moves };
    let mut timers = group.timers.borrow_mut();
    let peer = timers.peer(store, at);
    let moved = standing.prepared != peer.prepared || standing.has_told != peer.has_told;
    if standing.has_told != peer.has_told {
        // Another life, perhaps.
        peer.commit = Seq(0);
    }
    (peer.prepared, peer.has_told) = (standing.prepared, standing.has_told);
    let is_sent_to = standing.whole || standing.fills;
    let is_idle = standing.has_told && (standing.prepared >= standing.sent || !is_sent_to);
    if moved || is_idle {
        peer.moved_at = at;
        return Progress::Moves;
    }
    Progress::Stands(at.since(peer.moved_at))
}

fn ask_again(group: &Group, store: StoreId, at: Instant, timing: &Timing) {
    let is_due = {
        let mut timers = group.timers.borrow_mut();
        let peer = timers.peer(store, at);
        let is_due = at.since(peer.moved_at.max(peer.resent_at)) >= timing.resend;
        if is_due {
            peer.resent_at = at;
        }
        is_due
    };
    if is_due {
        group.with(|member| member.resend(store));
    }
}

/// What is committed and was not heard by the member is told with nothing else, if there is nothing else.
fn tell_commit(group: &Group, store: StoreId, at: Instant, timing: &Timing) {
    let committed = group.member().committed();
    let is_due = {
        let mut timers = group.timers.borrow_mut();
        let peer = timers.peer(store, at);
        peer.commit < committed && at.since(peer.told_at) >= timing.tick
    };
    if is_due {
        group.with(|member| member.tell_commit(store));
    }
}

/// A primary that is slow gives the group up if enough others are fine (R18); one that has damage, if another has what it
/// lacks (R15).
fn hands_over(shard: &GroupShard, group: &Group, gone: &[StoreId], slow: &[StoreId]) -> bool {
    // In this epoch: others who were slow before it would only hand it back.
    let began = group.timers.borrow().epoch_at;
    let is_slow = shard.store().slow_at().is_some_and(|seen| seen > began) && !mutant(Mutant::SlowPrimaryStays);
    if !is_slow && !group.is_to_be_mended() {
        return false;
    }
    let enough = {
        let member = group.member();
        let is_fine = |store: &&StoreId| **store != member.store() && !gone.contains(store) && !slow.contains(store);
        let fine = member.record().in_sync.iter().filter(is_fine);
        match group.is_to_be_mended() {
            false => fine.count() >= member.record().min_in_sync.max(1),
            // One that is damaged itself is made whole first, as far as this one can.
            true => {
                fine.filter(|store| member.peer(**store).is_some_and(|peer| peer.has_told && peer.whole)).count() > 0
            }
        }
    };
    if enough {
        group.with(|member| member.give_up(None));
        if is_slow {
            group.reads_elsewhere();
        }
    }
    enough
}

/// Who has the longest log may have applied what is lacking here, and has it as an entry no more: it is to lead itself.
fn lets_the_longer_lead(group: &Group, at: Instant, timing: &Timing) -> bool {
    let (is_fetching, last) = (group.member().is_fetching(), group.member().log().last());
    let stands = {
        let fetched = &mut group.timers.borrow_mut().fetched;
        *fetched = fetched.filter(|(through, _)| *through == last).or(Some((last, at))).filter(|_| is_fetching);
        fetched.is_some_and(|(_, since)| at.since(since) >= timing.slow)
    };
    if stands {
        group.with(|member| member.give_up(None));
    }
    stands
}

/// Silent members are removed; slow ones only while enough that are neither remain (R18). Who is silent stays for a while where others
/// may go on without this node (R21).
fn remove(core: &CoreGroups, group: &Group, (gone, slow): (&[StoreId], &[StoreId]), at: Instant) {
    let (in_sync, needed) = {
        let member = group.member();
        let in_sync: Vec<_> = member.record().in_sync.clone();
        (in_sync, member.record().min_in_sync)
    };
    let good = in_sync.iter().filter(|store| !gone.contains(store) && !slow.contains(store)).count();
    let mut out: Vec<_> = in_sync.iter().copied().filter(|store| gone.contains(store)).collect();
    if good >= needed || mutant(Mutant::SlowRemovedAlways) {
        out.extend(in_sync.iter().filter(|store| slow.contains(store) && !gone.contains(store)));
    }
    if in_sync.len() >= needed && !out.is_empty() {
        let (silent, stay) =
            (core.shared.timing.silent, core.stays_in_sync_for(at, in_sync.len() - out.len() >= needed));
        let view = core.view.borrow();
        out.retain(|store| !(silent..stay).contains(&view.silence(*store, group.id(), at)));
    }
    if !out.is_empty() {
        group.with(|member| member.remove(&out));
    }
}

// ---- all others ----------------------------------------------------------------------------------------------------

fn follow(core: &CoreGroups, group: &Group, at: Instant, timing: &Timing) {
    if !group.member().is_whole() {
        group.with(Member::cannot_lead);
    }
    hear_of_its_death(core, group);
    say_given_up(group, at, timing);
    let is_headless = {
        let (member, view) = (group.member(), core.view.borrow());
        is_headless(&member, &view, group, at, timing)
    };
    if !is_headless && group.member().is_whole() && (group.is_to_be_mended() || stands_without_room(group, at)) {
        // Its primary makes it whole.
        group.with(Member::begins_to_fill);
    }
    if !is_headless {
        group.timers.borrow_mut().headless_since = None;
        if group.member().is_candidate() {
            group.with(Member::abandon);
        }
        return;
    }
    if group.member().is_candidate() {
        return group.with(|member| member.propose_to_lead(at));
    }
    let Some(mut place) = turn_of(&group.member(), core.is_to_lead(group.id())) else { return };
    if may_not_be_heard(core, group, at, timing) {
        return;
    }
    if group.lacks_only_blocks() {
        // Whoever can read all comes first.
        place += group.member().record().members().count() as u32;
    }
    let (is_due, has_looked) = {
        let mut timers = group.timers.borrow_mut();
        let since = *timers.headless_since.get_or_insert(at);
        let is_due = at.since(since) >= timing.turn * place;
        let fresh = |looked: Instant| at.since(looked) < timing.turn;
        (is_due, timers.looked_at.take().is_some_and(fresh))
    };
    if !is_due {
        return;
    }
    if has_looked {
        group.with(|member| {
            if group.lacks_only_blocks() {
                member.goes_on_with_damage();
            }
            member.campaign();
            member.propose_to_lead(at);
        });
        return;
    }
    // Who cannot reach the map does not campaign: it would grant nothing and help nobody.
    let mut timers = group.timers.borrow_mut();
    if timers.asked_at.is_none_or(|asked| at.since(asked) >= timing.turn) {
        timers.asked_at = Some(at);
        drop(timers);
        core.look(group);
    }
}

/// Whether others may go on without this member, which does not hear all of them: it would only take the lead from those who hear
/// each other, and they from it (R21).
fn may_not_be_heard(core: &CoreGroups, group: &Group, at: Instant, timing: &Timing) -> bool {
    let (member, view) = (group.member(), core.view.borrow());
    let record = member.record();
    if record.primary == member.store() || mutant(Mutant::CutOffCampaigns) {
        return false;
    }
    let others = record.members().filter(|store| *store != member.store());
    let silences: Vec<Duration> = others.map(|store| view.silence(store, group.id(), at)).collect();
    let heard = silences.iter().filter(|silence| **silence < timing.silent).count();
    drop(view);
    let stay = core.stays_in_sync_for(at, heard + 1 >= record.min_in_sync);
    silences.iter().any(|silence| (timing.silent..stay).contains(silence))
}

/// The life that the record names as primary is over, and reads no more: nobody waits for what was granted to it (R8). The record
/// may come to be known later than that.
fn hear_of_its_death(core: &CoreGroups, group: &Group) {
    let epoch = {
        let member = group.member();
        let record = member.record();
        let is_known = member.is_given_up() || record.primary == member.store();
        if is_known || !core.view.borrow().is_dead(record.primary, record.life) {
            return;
        }
        record.epoch
    };
    group.with(|member| member.primary_is_gone(epoch));
}

/// Who gave the group up says so again and again: others may not have heard it.
fn say_given_up(group: &Group, at: Instant, timing: &Timing) {
    {
        let member = group.member();
        if !member.is_given_up() || member.record().primary != member.store() {
            return;
        }
    }
    let is_due = {
        let mut timers = group.timers.borrow_mut();
        timers.gave_up_at.get_or_insert(at);
        let is_due = at.since(timers.said_at) >= timing.resend;
        if is_due {
            timers.said_at = at;
        }
        is_due
    };
    if is_due {
        group.with(Member::say_given_up);
    }
}

/// Whether what comes next in the order finds no room here, while the member counts for nothing: what lies behind it may give back
/// what it lacks. As units, the smallest first, there is room (R17).
fn stands_without_room(group: &Group, at: Instant) -> bool {
    let stands = group.finds_no_room_since.get().is_some_and(|since| at.since(since) >= ROOM_PATIENCE);
    let member = group.member();
    stands && member.record().joining.contains(&member.store()) && !mutant(Mutant::OrderStandsWhileFull)
}

/// Whether nobody leads, as far as can be known here: the primary is silent, has started anew, or is this store, which
/// does not lead.
fn is_headless(member: &Member, view: &View, group: &Group, at: Instant, timing: &Timing) -> bool {
    let record = member.record();
    if member.is_given_up() {
        // Who gave it up comes last.
        let gave_up = group.timers.borrow().gave_up_at;
        return gave_up.is_none_or(|gave_up| at.since(gave_up) >= timing.silent * 2);
    }
    let has_begun_anew = view.life_of(record.primary).is_some_and(|life| life != record.life);
    record.primary == member.store() || view.silence(record.primary, group.id(), at) >= timing.silent || has_begun_anew
}

/// Its turn among those that may take over: the first has 0. `leads`: who is to lead, if an order says so: it comes first.
fn turn_of(member: &Member, leads: Option<StoreId>) -> Option<u32> {
    let record = member.record();
    if record.primary == member.store() && record.in_sync.contains(&member.store()) {
        return Some(0);
    }
    let first = leads.filter(|store| *store != record.primary && record.in_sync.contains(store));
    let others = record.in_sync.iter().filter(|store| **store != record.primary && Some(**store) != first);
    let mut may_lead = first.iter().chain(others).chain(&record.eligible);
    may_lead.position(|store| *store == member.store()).map(|place| place as u32)
}

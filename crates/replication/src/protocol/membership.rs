//! Who is who in a group: the part of its record that changes with each epoch.

use types::{Epoch, Incarnation, Mutant, StoreId, Term, mutant};

/// Each member is in exactly one of the three lists. Changed only by compare-and-swap with epoch + 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Membership {
    /// Reign of the primary.
    pub epoch: Epoch,
    /// Who leads.
    pub primary: StoreId,
    /// Which of its lives leads: a later one knows nothing of what this one did in the epoch, and needs one of its own (R9).
    pub life: Incarnation,
    /// Members that count, in the order in which they try to take over.
    pub in_sync: Vec<StoreId>,
    /// Members that hold all that is committed, because nothing was since they were removed.
    pub eligible: Vec<StoreId>,
    /// All others: they come back by catch-up.
    pub joining: Vec<StoreId>,
    /// Fewer in sync commit nothing.
    pub min_in_sync: usize,
}

impl Membership {
    /// All members.
    pub fn members(&self) -> impl Iterator<Item = StoreId> + '_ {
        self.in_sync.iter().chain(&self.eligible).chain(&self.joining).copied()
    }

    /// Whether enough are in sync for anything to be committed.
    pub fn may_commit(&self) -> bool {
        self.in_sync.len() >= self.min_in_sync
    }

    /// Whose entries those of this epoch are.
    pub fn term(&self) -> Term {
        if mutant(Mutant::TermUnmarked) {
            return self.epoch.into();
        }
        Term::led_by(self.epoch, self.primary, self.life)
    }

    /// `store`, which is in sync, takes over in this life of it.
    pub fn led_by(&self, store: StoreId, life: Incarnation) -> Self {
        let mut next = self.next();
        next.primary = store;
        next.life = if mutant(Mutant::LifeNotNamed) { Incarnation(0) } else { life };
        next
    }

    /// `store`, which is eligible, takes over after all in sync were lost: they hold what it holds, as nothing was
    /// committed since (R10).
    pub fn rescued_by(&self, store: StoreId, life: Incarnation) -> Self {
        let mut next = self.led_by(store, life);
        next.eligible.retain(|other| *other != store);
        next.eligible.append(&mut next.in_sync);
        next.in_sync.push(store);
        next
    }

    /// Without some of those in sync. If too few are left, they hold all that is and will be committed (R10).
    pub fn without(&self, gone: &[StoreId]) -> Self {
        let mut next = self.next();
        next.in_sync.retain(|store| !gone.contains(store));
        let place = if next.may_commit() { &mut next.joining } else { &mut next.eligible };
        place.extend(gone);
        next
    }

    /// With one more in sync. If that is enough to commit, nobody else is sure to hold all of it any more.
    pub fn with(&self, store: StoreId) -> Self {
        let mut next = self.next();
        next.eligible.retain(|other| *other != store);
        next.joining.retain(|other| *other != store);
        next.in_sync.push(store);
        if next.may_commit() && !mutant(Mutant::EligibleForEver) {
            next.joining.append(&mut next.eligible);
        }
        next
    }

    fn next(&self) -> Self {
        Self { epoch: Epoch(self.epoch.0 + 1), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: StoreId = StoreId(1);
    const B: StoreId = StoreId(2);
    const C: StoreId = StoreId(3);

    fn three() -> Membership {
        Membership { epoch: Epoch(4), primary: A, in_sync: vec![A, B, C], min_in_sync: 2, ..Membership::default() }
    }

    #[test]
    fn who_is_removed_while_enough_remain_has_to_catch_up() {
        let next = three().without(&[B]);
        assert_eq!((next.epoch, &next.in_sync[..], &next.joining[..]), (Epoch(5), &[A, C][..], &[B][..]));
        assert!(next.eligible.is_empty() && next.may_commit());
    }

    #[test]
    fn who_is_removed_when_too_few_remain_may_lead_later() {
        let alone = three().without(&[B]).without(&[C]);
        assert_eq!((&alone.in_sync[..], &alone.eligible[..], &alone.joining[..]), (&[A][..], &[C][..], &[B][..]));
        assert!(!alone.may_commit());
        let rescued = alone.rescued_by(C, Incarnation(1));
        assert_eq!((rescued.primary, &rescued.in_sync[..], &rescued.eligible[..]), (C, &[C][..], &[A][..]));
    }

    #[test]
    fn nobody_is_eligible_once_enough_are_in_sync_again() {
        let again = three().without(&[B, C]).with(B);
        assert_eq!((&again.in_sync[..], &again.joining[..]), (&[A, B][..], &[C][..]));
        assert!(again.eligible.is_empty() && again.may_commit());
        assert_eq!(again.members().count(), 3);
    }
}

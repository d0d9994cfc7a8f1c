//! Which epoch owns which sequence: an entry is valid only if its epoch owns its place.

use types::{Mutant, Seq, Term, mutant};

/// The epochs of a log and the first sequence of each, both rising; and how far the log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct History {
    starts: Vec<(Term, Seq)>,
    last: Seq,
}

impl History {
    /// A log that goes through `last`.
    pub fn new(starts: Vec<(Term, Seq)>, last: Seq) -> Self {
        Self { starts, last }
    }

    /// Its epochs and where they begin.
    pub fn starts(&self) -> &[(Term, Seq)] {
        &self.starts
    }

    /// The last entry's sequence.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// The last entry's place: of two logs the greater holds more of what may have been committed (R6).
    pub fn end(&self) -> (Term, Seq) {
        (self.term_at(self.last), self.last)
    }

    /// The newest epoch, and whose it is.
    pub fn newest(&self) -> Term {
        self.starts.last().map_or(Term::NONE, |(newest, _)| *newest)
    }

    /// Whose the sequence is; nobody's before the first.
    pub fn term_at(&self, seq: Seq) -> Term {
        let after = self.starts.partition_point(|(_, first)| *first <= seq);
        after.checked_sub(1).map_or(Term::NONE, |index| self.starts[index].0)
    }

    /// An entry of this term comes behind the last.
    pub fn push(&mut self, term: Term) {
        self.last.0 += 1;
        if self.newest() < term {
            self.starts.push((term, self.last));
        }
    }

    /// Forgets what lies behind `through`.
    pub fn cut(&mut self, through: Seq) {
        self.last = self.last.min(through);
        self.starts.retain(|(_, first)| *first <= through);
    }

    /// The last place where both logs hold the same entry: there each names the same epoch, led by the same (R13).
    pub fn agreement(&self, other: &Self) -> Seq {
        let mut at = self.last.min(other.last);
        if mutant(Mutant::NumberWithoutEpoch) {
            return at;
        }
        while self.term_at(at) != other.term_at(at) {
            // The older of both epochs ends here in neither log's other: go before the later start.
            let start = |history: &Self| {
                let after = history.starts.partition_point(|(_, first)| *first <= at);
                after.checked_sub(1).map_or(Seq(1), |index| history.starts[index].1)
            };
            at = Seq(start(self).max(start(other)).0 - 1);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Epoch;

    fn term(epoch: u32) -> Term {
        Epoch(epoch).into()
    }

    fn history(starts: &[(u32, u64)], last: u64) -> History {
        History::new(starts.iter().map(|&(epoch, seq)| (term(epoch), Seq(seq))).collect(), Seq(last))
    }

    #[test]
    fn the_agreement_is_where_both_name_the_same_epoch() {
        let one = history(&[(1, 1), (3, 8)], 12);
        assert_eq!(one.agreement(&history(&[(1, 1)], 10)), Seq(7), "8 to 10 are of another epoch");
        assert_eq!(one.agreement(&history(&[(1, 1), (3, 8)], 9)), Seq(9), "shorter, and the same");
        assert_eq!(one.agreement(&history(&[(1, 1), (2, 6)], 12)), Seq(5), "as long, and another");
        assert_eq!(one.agreement(&history(&[], 0)), Seq(0));
        assert_eq!(history(&[(2, 1)], 4).agreement(&history(&[(1, 1)], 4)), Seq(0), "nothing in common");
    }

    /// Two logs that grew from a common part, entry by entry: the agreement is that part.
    #[test]
    fn the_agreement_is_found_whatever_came_after_it() {
        for common in 0..6_u64 {
            for (left, right) in [(0, 0), (3, 0), (0, 2), (4, 4)] {
                let mut one = History::default();
                (0..common).for_each(|n| one.push(term(1 + n as u32 / 2)));
                let mut other = one.clone();
                (0..left).for_each(|n| one.push(term(20 + n / 3)));
                (0..right).for_each(|n| other.push(term(10 + n / 2)));
                assert_eq!(one.agreement(&other), Seq(common), "{one:?} {other:?}");
                assert_eq!(other.agreement(&one), Seq(common));
            }
        }
    }

    #[test]
    fn a_cut_takes_epochs_that_have_nothing_left() {
        let mut history = history(&[(1, 1), (3, 8)], 12);
        history.cut(Seq(7));
        assert_eq!((history.end(), history.starts().len()), ((term(1), Seq(7)), 1));
        history.push(term(4));
        assert_eq!(history.end(), (term(4), Seq(8)));
        assert_eq!(history.term_at(Seq(0)), Term::NONE);
    }
}

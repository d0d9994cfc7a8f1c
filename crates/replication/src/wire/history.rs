//! A log's epochs and where each begins.

use super::body::end_list;
use super::bytes::{put_u32, put_u64, u32_at, u64_at};
use super::{EPOCH_MAX, SEQ_MAX, WireError};
use crate::protocol::History;
use types::{Epoch, Seq, Term};

/// Most epochs that are told of a history: the newest.
pub const MAX_HISTORY_EPOCHS: usize = 4096;

const WHAT: &str = "history";
pub(super) const START_BYTES: usize = 16;

/// An epoch and its beginning: epoch (4), mark of who led in it (4), its first sequence (8).
pub(super) fn encode_start((term, first): &(Term, Seq)) -> [u8; START_BYTES] {
    let mut bytes = [0; START_BYTES];
    put_u32(&mut bytes, 0, term.epoch.0);
    put_u32(&mut bytes, 4, term.mark);
    put_u64(&mut bytes, 8, first.0);
    bytes
}

/// The inverse of [`encode_start`].
pub(super) fn decode_start(item: &[u8]) -> (Term, Seq) {
    (Term::new(Epoch(u32_at(item, 0)), u32_at(item, 4)), Seq(u64_at(item, 8)))
}

/// The newest `most` epochs; the oldest of them, if any are left out, is said to begin with the first entry of all.
///
/// **Why that is safe.** All that is done with a history that was told is to look for its end, which is the same, and
/// for the agreement with another log. That is a place where both name the same epoch. The oldest epoch that is kept
/// still owns all that it did, so there nothing changes; before its true beginning it owns nothing in any log (an epoch
/// begins once, R1), so there no place agrees: the agreement found is the true one, or 0, and more is sent than needed.
/// Left without an owner, that part would seem to agree with a log that does not know its own beginning either.
fn newest(starts: &[(Term, Seq)], most: usize) -> impl Iterator<Item = (Term, Seq)> {
    let left_out = starts.len().saturating_sub(most);
    let kept = starts[left_out..].iter().copied().enumerate();
    kept.map(move |(index, (epoch, first))| (epoch, if left_out > 0 && index == 0 { Seq(1) } else { first }))
}

/// Appends the list of epochs, 16 bytes each, as [`encode_start`] writes them; they rise. Returns how many.
pub(super) fn encode_history(history: &History, out: &mut Vec<u8>) -> Result<u32, WireError> {
    check(history.starts(), history.last())?;
    let start = out.len();
    newest(history.starts(), MAX_HISTORY_EPOCHS).for_each(|begins| out.extend_from_slice(&encode_start(&begins)));
    let count = (out.len() - start) / START_BYTES;
    end_list(out, start);
    Ok(count as u32)
}

/// What looking for an agreement relies on.
fn check(starts: &[(Term, Seq)], last: Seq) -> Result<(), WireError> {
    if !starts.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1) {
        return Err(WireError::field(WHAT, "order of epochs, of which there", starts.len() as u64));
    }
    if let Some((term, first)) = starts.first().filter(|(term, first)| term.epoch == Epoch(0) || *first == Seq(0)) {
        return Err(WireError::field(WHAT, "beginning", u64::from(term.epoch.0).min(first.0)));
    }
    if let Some((_, first)) = starts.last().filter(|(term, first)| *first > last || term.epoch > EPOCH_MAX) {
        return Err(WireError::field(WHAT, "beginning of the last epoch", first.0));
    }
    if last > SEQ_MAX {
        return Err(WireError::field(WHAT, "end", last.0));
    }
    Ok(())
}

pub(super) fn decode_history(list: &[u8], last: Seq) -> Result<History, WireError> {
    let starts: Vec<_> = list.chunks_exact(START_BYTES).map(decode_start).collect();
    check(&starts, last)?;
    Ok(History::new(starts, last))
}

#[cfg(test)]
mod tests {
    use super::super::fuzz::Random;
    use super::*;

    fn without_the_oldest(history: &History, most: usize) -> History {
        History::new(newest(history.starts(), most).collect(), history.last())
    }

    /// Two members' logs: what they have in common, then what each has of epochs of its own.
    fn pair(random: &mut Random) -> (History, History, Seq) {
        let mut common = History::default();
        let mut epoch = 1;
        for _ in 0..random.below(30) {
            epoch += u32::from(random.below(3) == 0);
            common.push(Epoch(epoch).into());
        }
        let (mut one, mut other) = (common.clone(), common.clone());
        for (log, parity) in [(&mut one, 0), (&mut other, 1)] {
            let mut own = epoch + 1;
            own += u32::from(own % 2 != parity);
            for _ in 0..random.below(12) {
                log.push(Epoch(own).into());
                own += 2 * u32::from(random.below(2) == 0);
            }
        }
        (one, other, common.last())
    }

    #[test]
    fn leaving_out_the_oldest_epochs_never_makes_logs_agree_where_they_do_not() {
        let mut random = Random(11);
        let (mut same, mut earlier) = (0, 0);
        for _ in 0..20_000 {
            let (mine, told, common) = pair(&mut random);
            assert_eq!(mine.agreement(&told), common);
            let most = 1 + random.below(told.starts().len() as u64 + 1) as usize;
            let cut = without_the_oldest(&told, most);
            assert_eq!(cut.end(), told.end(), "who has the longest log is seen as before");
            let found = mine.agreement(&cut);
            assert_eq!(found, cut.agreement(&mine));
            assert!(found <= common, "{mine:?} {told:?} {most}");
            let owner = mine.term_at(common);
            let is_kept = told.starts().len() <= most || cut.starts().iter().any(|(epoch, _)| *epoch == owner);
            assert_eq!(found, if is_kept { common } else { Seq(0) }, "{mine:?} {told:?} {most}");
            same += u32::from(found == common && told.starts().len() > most);
            earlier += u32::from(found < common);
        }
        assert!(same > 1000 && earlier > 1000, "both happen: {same}, {earlier}");
    }

    /// A member that came by catch-up does not know who owned the entries before. Nor does one that was told of a
    /// history without its beginning, and still the two do not agree on what neither knows.
    #[test]
    fn two_logs_that_both_lack_their_beginning_do_not_agree_there() {
        let start = |epoch, seq| (Epoch(epoch).into(), Seq(seq));
        let told = History::new(vec![start(1, 1), start(4, 50), start(6, 60), start(8, 70)], Seq(80));
        let caught_up = History::new(vec![start(9, 90)], Seq(95));
        assert_eq!(caught_up.agreement(&without_the_oldest(&told, 2)), Seq(0));
        let merely_cut = History::new(told.starts()[2..].to_vec(), told.last());
        assert_eq!(caught_up.agreement(&merely_cut), Seq(59), "what is forbidden");
    }
}

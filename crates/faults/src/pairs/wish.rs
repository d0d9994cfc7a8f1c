//! Which pairs are played: what the command line names.

use super::{CHOSEN, FAILURES, Failure, Pair};
use crate::pairs::Failure::{Etcd, Full};
use std::path::PathBuf;

/// What the command line says.
#[derive(Debug)]
pub struct Wish {
    pub(super) pairs: Vec<Pair>,
    /// Where the nodes' logs are left, in a directory for each pair.
    pub(super) logs: Option<PathBuf>,
}

impl Wish {
    /// `[--all] [--after FIRST+SECOND] [--logs DIR] [FAILURE | FIRST+SECOND]...`
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(words: &[String]) -> Result<Self, String> {
        let (mut named, mut plays_all, mut after, mut logs) = (Vec::new(), false, None, None);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--all" => plays_all = true,
                "--after" => after = Some(pair_of(value()?)?),
                "--logs" => logs = Some(PathBuf::from(value()?)),
                word if word.contains('+') => named.push(pair_of(word)?),
                word => {
                    let failure = failure_of(word)?;
                    named.extend(all().into_iter().filter(|(first, second)| [*first, *second].contains(&failure)));
                }
            }
        }
        let mut pairs = match (plays_all, named.is_empty()) {
            (true, true) => all(),
            (false, true) => CHOSEN.to_vec(),
            (false, false) => named,
            (true, false) => return Err("write --all, or pairs".to_owned()),
        };
        if let Some(after) = after {
            let done = pairs.iter().position(|pair| *pair == after).ok_or("what is behind --after is not played")?;
            pairs.drain(..=done);
        }
        Ok(Self { pairs, logs })
    }
}

/// All pairs; those in which one failure comes twice, to two nodes, among them.
fn all() -> Vec<Pair> {
    let seconds = |first: usize| FAILURES[first..].iter().map(move |second| (FAILURES[first], *second));
    (0..FAILURES.len()).flat_map(seconds).filter(can_be).collect()
}

/// There is one map, and all devices get full together.
fn can_be(pair: &Pair) -> bool {
    !matches!(pair, (Full, Full) | (Etcd, Etcd))
}

fn failure_of(word: &str) -> Result<Failure, String> {
    let slug = |failure: &Failure| failure.name().replace(' ', "-");
    let known = FAILURES.iter().find(|failure| slug(failure) == word).copied();
    known.ok_or_else(|| {
        let all: Vec<_> = FAILURES.iter().map(slug).collect();
        format!("there is no failure {word:?}: one of {}, or two with + between them", all.join(", "))
    })
}

/// In the order in which they come.
fn pair_of(word: &str) -> Result<Pair, String> {
    let (one, other) = word.split_once('+').ok_or_else(|| format!("{word:?} is no pair: write FIRST+SECOND"))?;
    let (one, other) = (failure_of(one)?, failure_of(other)?);
    let place = |failure| FAILURES.iter().position(|known| *known == failure);
    let pair = if place(one) <= place(other) { (one, other) } else { (other, one) };
    if can_be(&pair) { Ok(pair) } else { Err(format!("{word:?} cannot come twice")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(words: &[&str]) -> Result<usize, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Wish::of(&words).map(|wish| wish.pairs.len())
    }

    #[test]
    fn all_are_105_of_two_failures_and_13_of_one_that_comes_twice() {
        assert_eq!(count(&["--all"]), Ok(105 + 13));
        assert_eq!(count(&["--all", "--after", "etcd-lost+etcd-member-lost"]), Ok(0));
        assert_eq!(count(&["--all", "--after", "node-draining+node-draining"]), Ok(117));
    }

    #[test]
    fn of_those_that_are_chosen_each_failure_comes_twice() {
        for failure in FAILURES {
            let times =
                CHOSEN.iter().flat_map(|(first, second)| [first, second]).filter(|one| **one == failure).count();
            assert_eq!(times, 2, "{failure:?}");
        }
    }

    #[test]
    fn pairs_are_named_by_one_or_by_both() {
        assert_eq!(count(&["node-killed"]), Ok(15));
        assert_eq!(count(&["node-killed+device-gone", "device-gone+node-killed"]), Ok(2));
        assert_eq!(count(&[]), Ok(CHOSEN.len()));
        for wrong in ["node", "node-killed+", "etcd-lost+etcd-lost", "--after"] {
            assert!(count(&[wrong]).is_err(), "{wrong}");
        }
    }
}

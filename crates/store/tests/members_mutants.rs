//! Each rule of what a group's members need of the store, broken: the test that is made for it notices. A process of its
//! own: a bug is on for all of it.
#![cfg(feature = "mutants")]

mod common;

use common::installs::{an_install_at_every_moment, install_storm};
use common::members::a_cut_forgets_what_lies_behind;
use common::skips::a_skip_at_every_moment;
use types::Mutant;

/// Seeds that a bug may need.
const MOST_SEEDS: u64 = 8;

#[test]
fn every_broken_rule_of_members_is_noticed() {
    type Check = fn(u64);
    let mutants: [(Mutant, Check); 6] = [
        (Mutant::InstallMissedByPass, |seed| {
            install_storm(seed, 4, 10);
        }),
        (Mutant::LeftOutForgotten, |seed| {
            install_storm(seed, 4, 25);
        }),
        (Mutant::CutForgotten, a_cut_forgets_what_lies_behind),
        (Mutant::SkippedEntriesApplied, |seed| {
            a_skip_at_every_moment(seed);
        }),
        (Mutant::InstallEndTrustedEarly, |seed| {
            an_install_at_every_moment(seed);
        }),
        (Mutant::InstallEndTrustedEarly, |seed| {
            install_storm(seed, 2, 25);
        }),
    ];
    for (mutant, check) in mutants {
        let noticed = (0..MOST_SEEDS).find(|seed| {
            Mutant::activate(Some(mutant));
            let broken = std::panic::catch_unwind(|| check(*seed));
            Mutant::activate(None);
            broken.is_err()
        });
        println!("{mutant:?}: seed {noticed:?}");
        assert!(noticed.is_some(), "{mutant:?} was not noticed in {MOST_SEEDS} seeds");
    }
}

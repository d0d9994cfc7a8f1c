//! A deliberate bug in a cluster of processes, only in builds for `tools/mutants.sh`: the environment names it, and whoever is
//! started by this process has it, too.

use types::Mutant;

const VARIABLE: &str = "CAIRN_MUTANT";
/// Those that a scenario of `cairn-faults` catches, or a torture.
const KNOWN: [Mutant; 2] = [Mutant::OlderHeadTaken, Mutant::LastOneStanding];

/// Switches the bug on that is named.
///
/// # Panics
/// If it is not known: a test that runs without its bug would say that it passes.
pub(crate) fn activate() {
    let Some(name) = std::env::var_os(VARIABLE) else { return };
    let named = KNOWN.into_iter().find(|mutant| name == *format!("{mutant:?}"));
    assert!(named.is_some(), "{VARIABLE}={}: one of {KNOWN:?}", name.display());
    Mutant::activate(named);
}

#!/bin/bash
# The simulator's proofs that need more than one build:
#   - the same seeds give the same trace, to the bit, with and without optimisation;
#   - every mutant, a deliberate bug in the shipped code, is caught.
# Time: 900 s. Last line: how many of these held.
set -u
cd "$(dirname "$0")/.."
passed=0 failed=0

check() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok: $1"; else failed=$((failed + 1)); echo "FAILED: $1"; fi
}

# A long run of one seed (more than 100,000 operations, hundreds of crashes) and many short ones.
runs() { cargo run -q "$@" -p cairn-sim -- run store --seed 7 --crashes 600 && cargo run -q "$@" -p cairn-sim -- run store --seeds 1..9; }
plain=$(runs) && optimised=$(runs --release)
status=$?
echo "without optimisation:"; echo "$plain"
echo "with optimisation:"; echo "$optimised"
[ "$status" = 0 ] && [ -n "$plain" ] && [ "$plain" = "$optimised" ]
check "the same seeds give the same trace in two builds" $?

cargo run -q --release -p cairn-sim --features mutants -- mutants
check "every mutant is caught" $?

echo "e2e sim: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]

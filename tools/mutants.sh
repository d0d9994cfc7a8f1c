#!/bin/bash
# Every deliberate bug in the shipped code is caught, and what catches it passes without it: searches and ways through the
# model, the simulator's workloads, and tests that are made for one bug each. A bug that nothing tries is not caught.
#   tools/mutants.sh                all of them; some in clusters of processes, too
#   tools/mutants.sh replication    those of replication and of catching up, in some minutes
#   tools/mutants.sh all LOG        the tests ran already, with the feature `mutants` and --show-output: LOG is what they said
# The last line says how many of how many.
set -u
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
logs=target/test-logs
mkdir -p "$logs"

# What is tried: test files, and workloads of the simulator. And which bugs there are, by what is said of them.
tests=(protocol_mutants ways rules heads members_mutants)
workloads=(cluster) processes=() about='Replication|Catch-up|Scrub'
case ${1:-all} in
replication) ;;
all)
    tests+=(copied_mutants cost_syncs layers_mutants cleaning_mutants instant_mutants mutants joining upgrade endings control pools ghost_mutant power_loss
        stopped_store)
    workloads+=(store volume hosts) about='[A-Z][A-Za-z -]*'
    # Clusters of processes (crates/faults, the hazard that is played against any target, and `cairn torture`): the bug, and the scenario that it must fail.
    processes=(OlderHeadTaken:paused-head LastOneStanding:primary-killed OlderHeadTaken:ghost-write LastOneStanding:torture)
    ;;
*)
    echo "usage: tools/mutants.sh [replication | all [LOG]]" >&2
    exit 2
    ;;
esac
tests_log=${2:-}

# Variants of the enum `Mutant`, those of which its comment begins with a word of `about`. One is no bug by itself.
bugs() {
    sed -nE '/^pub enum Mutant/,/^}/p' crates/types/src/mutant.rs | awk -v about="$about" '
        $1 == "///" && !in_comment { in_comment = 1; is_wanted = $0 ~ ("^ */// (" about "):") }
        $1 != "///" { in_comment = 0 }
        is_wanted && /^    [A-Z][A-Za-z]*( = 1)?,$/ { sub(/^ */, ""); sub(/( = 1)?,$/, ""); print }' |
        grep -vx AssertionFails
}

# step NAME COMMAND...: what it says of bugs and of tests is shown at once, the rest where it fails.
rm -f "$logs/mutants.failed"
step() {
    local name=$1 began=$SECONDS log=$logs/mutants-$1.log; shift
    "$@" 2> "$log.err" | tee "$log" | grep --line-buffered -E '^mutant |^test result:'
    if [ "${PIPESTATUS[0]}" != 0 ]; then
        echo "$name" >> "$logs/mutants.failed"
        echo "FAILED: $name"
        tail -n 60 "$log" "$log.err"
    fi
    echo "$name: $((SECONDS - began)) s"
}

# What the scenario says that fails, in one line: the last panic is the verdict, or what the hazard ends with.
verdict() { { grep -aA 1 '^thread .* panicked' "$1"; grep -aE '^cairn: (.* a ghost has written$|(lost|stale|torn): )' "$1"; } | tail -n 1 | cut -c 1-100; }

run_scenario() {
    case $1 in
    ghost-write) CAIRN_BIN=$target/mutants/cairn e2e/hazard.sh ;;
    torture) CAIRN_BIN=$target/mutants/cairn e2e/torture.sh ;;
    *) CAIRN_BIN=$target/mutants/cairn "$target/mutants/cairn-faults" "$1" ;;
    esac
}

# Scripts that are stages of `make test` are seen there to pass without a bug.
is_a_stage() { [ "$1" = torture ]; }

# is_seen LOG: it failed for what clients saw.
is_seen() { verdict "$1" | grep -qE '^((lost|stale|torn): |cairn: ([0-9]+ reads showed |(lost|stale|torn): ))'; }

# in_processes BUG SCENARIO: three times until clients see the bug; then it must pass without. What failed for another reason
# is not caught.
in_processes() {
    local bug=$1 scenario=$2 out=$logs/mutants-processes-$1-$2.log tries
    for tries in 1 2 3; do
        CAIRN_MUTANT=$bug run_scenario "$scenario" > "$out" 2>&1
        is_seen "$out" && break
    done
    if ! grep -q "^FAIL  $scenario" "$out"; then
        echo "mutant $bug NOT CAUGHT by $scenario: passes with it, $tries times"
    elif ! is_seen "$out"; then
        echo "mutant $bug NOT CAUGHT by $scenario: it fails otherwise: $(verdict "$out")"
    elif ! { is_a_stage "$scenario" || run_scenario "$scenario" > "$out.without" 2>&1; }; then
        echo "mutant $bug NOT CAUGHT by $scenario: fails without it, too: $(verdict "$out.without") $(grep -a '^FAIL' "$out.without" | head -n 3 | paste -sd ';')"
    else
        echo "mutant $bug caught by $scenario: $(verdict "$out")"
    fi
}

step simulator cargo build --workspace --features mutants --bin cairn-sim --bin cairn --bin cairn-faults
# What the environment can put a bug into is kept apart from what is built to be used.
mkdir -p "$target/mutants"
cp "$target/debug/cairn" "$target/debug/cairn-faults" "$target/mutants/"
if [ -n "$tests_log" ]; then
    # Whether they passed is judged where they ran.
    grep '^mutant ' "$tests_log" > "$logs/mutants-tests.log"
else
    step tests cargo test --workspace --features mutants --no-fail-fast $(printf -- '--test %s ' "${tests[@]}") -- --show-output
fi
# Two clusters at a time: they mostly wait. Worlds that are simulated do not: they take what is left.
for workload in "${workloads[@]}"; do
    step "$workload" chrt --idle 0 "$target/debug/cairn-sim" mutants "$workload"
done &
simulator=$!
for pair in "${processes[@]}"; do
    while [ "$(jobs -rp | grep -vcx "$simulator")" -ge 2 ]; do wait -n; done
    step "${pair#*:}" in_processes "${pair%:*}" "${pair#*:}" &
done
wait

lines=$(cat $(printf "$logs/mutants-%s.log " tests "${workloads[@]}" "${processes[@]#*:}") | grep -E '^mutant ')
tried=$(awk '{ print $2 }' <<< "$lines" | sort -u)
missed=$(awk '$3 != "caught" { print $2 }' <<< "$lines" | sort -u)
all=$(printf '%s\n%s\n' "$(bugs)" "$tried" | sort -u)
for bug in $(comm -23 <(echo "$all") <(echo "$tried")); do
    echo "mutant $bug: nothing tries it"
    missed=$(printf '%s\n%s\n' "$missed" "$bug")
done
count=$(wc -l <<< "$all") missed=$(grep -c . <<< "$missed")
echo "mutants: $((count - missed)) caught, $missed missed"
echo "$((count - missed)) of $count mutants caught"
[ "$missed" = 0 ] && [ ! -e "$logs/mutants.failed" ]

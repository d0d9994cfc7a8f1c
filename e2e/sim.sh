#!/bin/bash
# The simulator's proofs, where one needs many runs or more than one build:
#   - ten thousand crashes lose and tear nothing that was acknowledged (a store alone, and a whole node with its doors);
#   - nor do the faults of whole clusters: nodes that end and pause, links and disks that fail, a map that does not answer;
#     fixed seeds; behind some, whole nodes with their doors and clients that send again what they gave up; and over the fixed
#     seeds all that is to happen does;
#   - nor does anything in five minutes of seeds that nobody has seen, of all workloads;
#   - the same seeds give the same trace, to the bit, with and without optimisation.
# Mostly computes.
# Time: 1800 s (20 minutes beside other work). Last line: how many of these held.
set -u
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
passed=0 failed=0

check() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok: $1"; else failed=$((failed + 1)); echo "FAILED: $1"; fi
}

# The number before a word of a summary line, the first of them: `field crashes "store: 8 seeds, 700 crashes, …"`.
field() { grep -oE "[ (][0-9]+ $1" <<< "$2" | head -1 | grep -oE "[0-9]+" | head -1; }

# What a check is told is worked out before it: `$?` behind a command in its text would be that command's.

# crashes WORKLOAD SEEDS LEAST WHAT…: runs the seeds; so many crashes at least, and each of these happened.
crashes() {
    local out what began=$SECONDS
    out=$("$simulator" run "$1" --seeds "$2")
    local status=$?
    echo "$out"
    echo "$1: $((SECONDS - began)) s"
    local crashes operations count
    crashes=$(field crashes "$out") operations=$(field operations "$out")
    [ "$status" = 0 ] && [ "${crashes:-0}" -ge "$3" ]
    check "$1: $crashes crashes, $operations operations, none acknowledged was lost or torn" $?
    for what in "${@:4}"; do
        count=$(field "$what" "$out")
        [ "${count:-0}" -gt 0 ]
        check "$1: $count $what" $?
    done
}

# A long run of one seed (more than 100,000 operations, hundreds of crashes) and short ones.
traces() {
    "$1" run store --seed 7 --crashes 600 && "$1" run store --seeds 1..9 && "$1" run volume --seeds 1..4 &&
        "$1" run cluster --seeds 1..7 && "$1" run heads --seeds 1..4 && "$1" run hosts --seeds 1..4
}

# Both as the stages before have built them, the one without optimisation with the deliberate bugs, all off.
cargo build -q --release --package cairn --package libcairn --package cairn-sim && cargo build -q --workspace --features mutants --bin cairn-sim || exit 1
simulator=$target/release/cairn-sim

crashes store 1..96 8000 "segments cleaned"
crashes volume 1..61 1500 "segments cleaned" "times full" snapshots rollbacks clones growths deletions locks \
    "units saved by compression" "damaged reads" "failed stores"

# The workloads of whole clusters count otherwise: crashes, kills, and all that their schedules bring. What a simulator silently
# stops drawing is asked for by nobody else.
faults=(kills blackouts "rolling restarts" pauses "hung cores" cuts isolations silences "slow links" "reordered links" "disk errors"
    "slow disks" "hung disks" "wall clock jumps" "clock rates" "map faults" "map cut off" "map unreachable" "map leaders")
losses=("map restores" "lost nodes" "lying disks" "rotting blocks" "wiped devices" "added nodes")
crashes cluster 1..201 300 reigns "words of a later release" "members replaced" resets "${faults[@]}" "${losses[@]}"
crashes heads 1..101 50 "asked afar" reigns resets "${faults[@]}"
crashes hosts 1..101 200 "sent again" "controllers reset" "${faults[@]}" snapshots rollbacks clones growths deletions moves relocations \
    instants "NBD moves" compare-and-writes "over two chunks" "encrypted volumes" "units saved by compression" drains \
    "orders taken back" rests replacements additions removals "writes without the map" "sick volumes" "blocks compared"

# Other seeds each time, five minutes over all workloads: a failure prints the command that repeats it.
fresh_seeds() {
    local fresh=$(($(date +%s) * 1000)) out
    out=$("$simulator" run "$1" --seeds "$fresh..$((fresh + 1000000))" --seconds "$2")
    local status=$? operations count
    echo "$out"
    operations=$(field operations "$out") count=$(field "$3" "$out")
    [ "$status" = 0 ] && [ "${operations:-0}" -gt 0 ] && [ "${count:-0}" -gt 0 ]
    check "$1, fresh seeds from $fresh: $count $3, $operations operations" $?
}
fresh_seeds cluster 90 reigns
fresh_seeds hosts 120 "sent again"
fresh_seeds heads 35 "asked afar"
fresh_seeds volume 35 crashes
fresh_seeds store 20 crashes

plain=$(traces "$target/debug/cairn-sim") && optimised=$(traces "$simulator")
status=$?
echo "without optimisation:"; echo "$plain"
echo "with optimisation:"; echo "$optimised"
long=$(head -1 <<< "$plain")
[ "$status" = 0 ] && [ "$plain" = "$optimised" ] &&
    [ "$(field operations "$long")" -ge 100000 ] && [ "$(field crashes "$long")" -ge 10 ]
check "the same seeds give the same trace in two builds" $?

echo "e2e sim: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]

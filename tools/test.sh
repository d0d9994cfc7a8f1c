#!/bin/bash
# All tests, stage by stage. Each stage has its time; what runs over it has failed. The last line is the total.
#   tools/test.sh [STAGE...]     all stages, or those named
set -u
cd "$(dirname "$0")/.."

# The data path is timed by real clients on few cores: more threads than cores only make tests wait for each other.
threads=${CAIRN_TEST_THREADS:-$(nproc)}
logs=target/test-logs
mkdir -p "$logs"
passed=0 failed=0 skipped=0 stages=0 bad_stages=

# is_wanted NAME: all stages are, or those that are named.
is_wanted() { [ ${#only[@]} = 0 ] || [[ " ${only[*]} " == *" $1 "* ]]; }

# begin NAME SECONDS COMMAND...: its output goes to the screen and to a file that the totals are read from.
begin() {
    local name=$1 seconds=$2 began=$SECONDS; shift 2
    rm -f "$logs/$name.ended"
    echo "== $name (at most $seconds s): $*"
    timeout --kill-after=10 "$seconds" "$@" 2>&1 | tee "$logs/$name.log"
    echo "${PIPESTATUS[0]} $((SECONDS - began)) $seconds" > "$logs/$name.ended"
}

# judge NAME: what came of a stage that has ended.
judge() {
    local name=$1 status=1 took=0 seconds=0
    read -r status took seconds < "$logs/$name.ended"
    count "$logs/$name.log"
    if [ "$status" != 0 ]; then
        bad_stages="$bad_stages $name"
        # A stage that broke off without saying which test failed counts as one failure.
        [ "$stage_failed" != 0 ] || failed=$((failed + 1))
        [ "$status" = 124 ] && echo "== $name did not end within $seconds s"
    elif [ "$name" != build ] && [ "$stage_passed" = 0 ]; then
        # Nothing failed because nothing ran: that proves nothing.
        bad_stages="$bad_stages $name" failed=$((failed + 1))
        echo "== $name ran no test"
    fi
    stages=$((stages + 1))
    echo "== $name: $took s, exit status $status"
}

stage() {
    is_wanted "$1" || return 0
    begin "$@"
    judge "$1"
}

# count LOG: adds what `cargo test` and the end-to-end scripts say of themselves.
count() {
    local sums
    sums=$(sed -nE -e 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p' \
        -e 's/^e2e [^ ]+: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' \
        -e 's/^mutants: ([0-9]+) caught, ([0-9]+) missed$/\1 \2 0/p' "$1" |
        awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
    read -r stage_passed stage_failed stage_skipped <<< "$sums"
    passed=$((passed + stage_passed)) failed=$((failed + stage_failed)) skipped=$((skipped + stage_skipped))
}

# Objects of one build are never mixed with those of another.
export CARGO_INCREMENTAL=0

# A disk that is full fails half an hour later, in many ways, none of which says so.
needs_mib=3072
free_mib=$(df --output=avail -m . | tail -n 1)
if [ "$free_mib" -lt $needs_mib ]; then
    echo "the tests write up to $needs_mib MiB and $PWD has $free_mib MiB free: make room" >&2
    exit 2
fi

only=("$@")

target=${CARGO_TARGET_DIR:-$PWD/target}
export CAIRN_BIN=$target/release/cairn

# Each time is a limit with room for a busy machine. All stages together take about 80 minutes on two cores, and
# must stay within 90.
# What is shipped, and the simulator; what else scripts need is built with the tests.
stage build 900 cargo build --release --package cairn --package libcairn --package cairn-sim
# With the deliberate bugs built in, and off but where a test is made for one: what tests and what mutants need is built once.
# The scripts have the binary that is shipped, without them.
stage unit 2300 cargo test --workspace --features mutants --no-fail-fast -- --test-threads="$threads" --show-output
# The bugs that take the simulator, or clusters of processes; and whether each that there is was caught.
stage mutants 2400 tools/mutants.sh all $(! is_wanted unit || echo "$logs/unit.log")
# Scripts, in seconds of their own. Those that say "Mostly waits" (for a node that is to be given up, for copies) run two at a
# time, behind those that need the machine for themselves. Beside them the simulator has what they leave.
time_of() { sed -n 's/^# Time: \([0-9]*\) s.*/\1/p' "$1" | grep . || echo 300; }
waiting=() beside=()
for script in e2e/*.sh; do
    name=e2e-$(basename "$script" .sh)
    if [ "$name" = e2e-lib ] || ! is_wanted "$name"; then continue; fi
    if grep -q '^# Mostly waits' "$script"; then
        waiting+=("$script")
    elif grep -q '^# Mostly computes' "$script"; then
        beside+=("$script")
    else
        stage "$name" "$(time_of "$script")" "$script"
    fi
done
simulators=
for script in ${beside[@]+"${beside[@]}"}; do
    name=e2e-$(basename "$script" .sh)
    echo "== $name begins"
    begin "$name" "$(time_of "$script")" chrt --idle 0 "$script" > "$logs/$name.shown" &
    simulators+=" $!"
done
# other_jobs: how many run that are none of those.
other_jobs() { jobs -rp | grep -vcxF "$(tr ' ' '\n' <<< "${simulators# }")"; }
for script in ${waiting[@]+"${waiting[@]}"}; do
    while [ "$(other_jobs)" -ge 2 ]; do wait -n; done
    name=e2e-$(basename "$script" .sh)
    echo "== $name begins"
    begin "$name" "$(time_of "$script")" "$script" > "$logs/$name.shown" &
done
wait
for script in ${beside[@]+"${beside[@]}"} ${waiting[@]+"${waiting[@]}"}; do
    name=e2e-$(basename "$script" .sh)
    cat "$logs/$name.shown"
    judge "$name"
done

if [ $stages = 0 ]; then
    echo "there is no stage ${only[*]}: build, unit, mutants, e2e-NAME for each e2e/NAME.sh" >&2
    exit 2
fi
bad_count=$(wc -w <<< "$bad_stages")
for name in $bad_stages; do
    # Once more at the end, where it is found: what failed of this stage, in a guest too, and what was said of the first.
    # Tests that passed show panics, too, where a deliberate bug made them.
    said=$(sed -E '/^successes:$/,/^(failures:|test result: .*)$/d' "$logs/$name.log")
    {
        grep -E '^ *FAIL|^test .* FAILED$|NOT CAUGHT' <<< "$said" | head -n 10
        grep -E -A 3 '^(FAIL|error)|^seed [0-9]+ failed|panicked at' <<< "$said" | head -n $((bad_count > 2 ? 10 : 20))
    } | cut -c1-600 | sed "s/^/$name: /"
done
[ -z "$bad_stages" ] || echo "failed stages:$bad_stages"
echo "$passed passed, $failed failed, $skipped skipped"
[ -z "$bad_stages" ] && [ "$failed" = 0 ]

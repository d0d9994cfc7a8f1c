#!/bin/bash
# A cluster of processes under load, hurt: nodes paused, killed and cut off, disks that err, the map killed, the power cut; judged by the simulator's
# checker from what clients saw (crates/faults).
#   e2e/faults.sh [SCENARIO...]     all, or those named
# Two at a time: most of the time each waits for a node that is to be missed.
# Time: 1440 s.
. "$(dirname "$0")/lib.sh"

need faults etcd nsenter ip || finish
export CAIRN_BIN=$cairn
faults=$tools/cairn-faults
[ -x "$faults" ] || { fail "no $faults: build it with 'cargo build --workspace'"; finish; }

play() {
    local scenario=$1 began=$SECONDS status=0
    "$faults" "$scenario" > "$work/$scenario.out" 2> "$work/$scenario.err" || status=$?
    echo "$status $((SECONDS - began))" > "$work/$scenario.ended"
}

scenarios=${*:-$("$faults" --list)}
for scenario in $scenarios; do
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
    play "$scenario" &
done
wait
for scenario in $scenarios; do
    read -r status took < "$work/$scenario.ended"
    if [ "$status" = 0 ]; then
        pass "$scenario ($took s)"
    else
        fail "$scenario ($took s)"
        tail -n 30 "$work/$scenario.out" "$work/$scenario.err" | sed 's/^/      /'
    fi
done
finish

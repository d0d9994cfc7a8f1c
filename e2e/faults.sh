#!/bin/bash
# A cluster of processes under load, hurt: nodes paused, killed and cut off, disks that err, the map killed, the power cut; judged by the simulator's
# checker from what clients saw (crates/faults).
#   e2e/faults.sh [SCENARIO...]     all, or those named
# Time: 1200 s.
. "$(dirname "$0")/lib.sh"

need faults etcd mkfs.ext4 fsfreeze nsenter ip || finish
export CAIRN_BIN=$cairn
faults=$(dirname "$cairn")/cairn-faults
[ -x "$faults" ] || { fail "no $faults: build it with 'cargo build --release --workspace'"; finish; }

for scenario in ${*:-$("$faults" --list)}; do
    began=$SECONDS
    if "$faults" "$scenario" > "$work/out" 2> "$work/err"; then
        pass "$scenario ($((SECONDS - began)) s)"
    else
        fail "$scenario ($((SECONDS - began)) s)"
        tail -n 30 "$work/out" "$work/err" | sed 's/^/      /'
    fi
done
finish

#!/bin/bash
# Two failures at once, the second while the first stands, then both are healed: fifteen pairs in which each failure comes twice, on five
# nodes in networks of their own (crates/faults, `cairn-faults pairs`); judged by the simulator's checker from what clients saw.
#   e2e/pairs.sh [PAIR...]     the fifteen, or those named: FIRST+SECOND
# Mostly waits.
# Time: 900 s.
. "$(dirname "$0")/lib.sh"

need pairs etcd nsenter ip || finish
export CAIRN_BIN=$cairn
faults=$tools/cairn-faults
[ -x "$faults" ] || { fail "no $faults: build it with 'cargo build --workspace'"; finish; }

status=0
"$faults" pairs "$@" > "$work/pairs.out" 2> "$work/pairs.err" || status=$?
# The table at the end has those that passed.
while IFS='|' read -r _ first second rest; do pass "${first# }and then ${second# }"; done \
    < <(sed '1,/^|---/d' "$work/pairs.out" | grep '^|')
while read -r words; do fail "$words"; done < <(sed -n 's/^FAILED: //p' "$work/pairs.out")
if [ $status != 0 ]; then
    [ $failed != 0 ] || fail "cairn-faults pairs (exit status $status)"
    tail -n 30 "$work/pairs.err" | sed 's/^/      /'
fi
finish

#!/bin/bash
# The ghost write (`cairn bench hazard ghost-write`), against a cluster of three processes: a node that serves stands still and goes on, and bytes
# of the host come late. No ghost writes; who shows nothing does not pass. `tools/mutants.sh` runs it with a bug, too.
# Mostly waits.
# Time: 240 s.
. "$(dirname "$0")/lib.sh"

need hazard etcd python3 || finish
start_demo --nodes 3 --replicas 3 --processes --device-size 512M --volume idle:1M
check "the cluster is whole" until_it_is 30 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status
check "a volume is made" "$cairn" volume create ghost --size 128M --placement "${HAZARD_PLACEMENT:-spread}"
check "it is served" until_it_is 30 'assert s["head"], s' volume info ghost

# The process of the node whose NVMe/TCP port this is; nodes are not asked while one of them stands still.
"$cairn" node ls -o json | python3 -c '
import json, sys
for node in json.load(sys.stdin): print(node["nvme_address"].rsplit(":", 1)[1], node["pid"])' > "$work/pids"
check "nodes are processes" test "$(grep -c ' [1-9]' "$work/pids")" = 3
process="\$(sed -n \"s/^\$HAZARD_PORT //p\" '$work/pids')"
paths=()
for port in $(cut -d ' ' -f 1 "$work/pids"); do paths+=(--path "127.0.0.1:$port"); done
target=("${paths[@]}" --nqn "$(field ghost nqn)" --nsid "$(field ghost nsid)")
ghost_write() { "$cairn" bench hazard ghost-write "${target[@]}" --destroy-data "$@"; }
# What a run says of itself, r, holds.
holds() { python3 -c "import json, sys; r = json.load(open('$work/report')); $1"; }

check "nothing is written over unasked" refused "--destroy-data" "$cairn" bench hazard ghost-write "${target[@]}"
check "one path is no multipath" refused "two addresses" "$cairn" bench hazard ghost-write --path 127.0.0.1:1 --nqn n --nsid 1 --destroy-data
check "a freeze that freezes nobody shows nothing" refused "answers all the same" ghost_write --freeze true --thaw true
check "one that fails, neither" refused "failed" ghost_write --freeze false --thaw true

# plays WHAT OPTIONS...: what it says is in $work/report; its verdict is shown as it is.
plays() {
    local what=$1; shift
    if ghost_write "$@" -o json > "$work/report" 2> "$work/said"; then pass "$what"; else fail "$what"; tail -n 1 "$work/said"; fi
    grep thaws "$work/said" | sed 's/^/      /'
}
rounds=3
plays "ghost-write: a node that stood still writes no ghost" --rounds "$rounds" --watch 5 --freeze "kill -STOP $process" --thaw "kill -CONT $process"
check "in each round writes hung, were done elsewhere and overwritten, and were read back" holds "
assert len(r['rounds']) == $rounds and r['ghost_reads'] == 0, r
for one in r['rounds']:
    assert 0 < one['hanging'] <= 64 and one['resubmitted'] == one['hanging'] and one['overwritten'] == 2 * one['hanging'], one
    assert 0 < one['other_path_ms'] <= one['frozen_ms'] and sum(reads for _, reads in one['read']) >= 256, one"

# All bytes of 64 writes are held, but for those that passed.
held="assert r['rounds'] and r['ghost_reads'] == 0, r
assert all(one['held_bytes'] > 60 * 4096 and one['hanging'] > 0 and one['overwritten'] == 2 * one['hanging'] for one in r['rounds']), r"
plays "bytes that come late write no ghost" --rounds 2 --watch 5
check "and there were some" holds "$held"
check "all copies are the same" until_it_is 60 'assert s["health"] == "healthy", s' status
check "block by block" "$cairn" check
stop_demo
finish

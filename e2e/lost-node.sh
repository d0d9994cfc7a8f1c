#!/bin/bash
# A node and its device are gone for good: `cairn node rm --lost` says what it will move, the copies are made anew on the others, and nothing is
# lost. Where the last copy of something is on it, that is refused.
# Mostly waits.
# Time: 240 s.
. "$(dirname "$0")/lib.sh"

need lost-node etcd fio pgrep python3 || finish
. "$(dirname "$0")/machines.bash"

begin_with_three
check "a fourth joins" machine 4 join
start 4
check "it serves" serves 4
check "and has its share" until_it_is 120 'assert len(s) == 4 and all(71 <= d["groups"] <= 79 and d["groups_coming"] == 0 for d in s), s' device ls
# What is foretold takes bytes for spread over all groups.
"$cairn" volume create a --size 256M --placement spread > /dev/null
check "it is served by a node that stays" "$cairn" volume move a node-1
check "a volume is written" load --do_verify=1
moves=$("$cairn" device ls -o json | python3 -c 'import json, sys; print(next(d["groups"] for d in json.load(sys.stdin) if d["node"] == "node-2"))')

# For good: its processes, its device, its directory; while the volume is written.
load --time_based --runtime=25 --rate_iops=500 --do_verify=0 > "$work/fio.out" 2>&1 &
fio_pid=$!
sleep 2
check "a node is killed" kill_node 2
rm -rf "$work/m2" "$work/m2.img"
check "status says what to do if it is lost for good" until_it_is 40 'f = [f for f in s["findings"] if "node-2 has not been heard of" in f["cause"]]
assert f and f[0]["command"] == "cairn node rm node-2 --lost", s' status
check "a node that holds copies is not removed otherwise" refused "drain" "$cairn" node rm node-2
is_foretold="assert s['groups'] == $moves and s['bytes'] > 1 << 20 and s['seconds'] > 0, s
assert {g['node'] for g in s['gets']} == {'node-1', 'node-3', 'node-4'} and sum(g['bytes'] for g in s['gets']) == s['bytes'], s"
check "what giving it up would move is told, and not begun" is "$is_foretold
assert not s['begun'], s" node rm node-2 --lost --dry-run
not_begun() {
    is 'assert not [d for d in s["doing"] if d["kind"] == "lost"], s' status && sleep 2 &&
        is "assert [n['groups'] for n in s if n['name'] == '$1'] == [$2], s" node ls
}
check "that was all" not_begun node-2 "$moves"
check "it is given up" order lost node rm node-2 --lost
check "as was told before" python3 -c "
import json
s = json.load(open('$work/lost.order'))
$is_foretold
assert s['begun'], s"
check "status says that its copies are made anew" until_it_is 20 'd = [d for d in s["doing"] if d["kind"] == "lost"]
assert d and d[0]["ends_at"] or all(g["groups"] == 0 for g in s["devices"] if g["node"] == "node-2"), s' status
check "in the end nothing is said to be on it" until_it_is 120 'assert [n["groups"] for n in s if n["name"] == "node-2"] == [0], s' node ls
check "so much was copied, in so long" as_foretold lost
check "and status says to remove it" until_it_is 20 'd = [d for d in s["doing"] if d["kind"] == "lost"]
assert d and d[0]["groups_left"] == 0 and d[0]["command"].startswith("cairn device rm "), s' status
check "each group has three copies on the others" is 'assert {d["node"]: d["groups"] for d in s if d["node"] != "node-2"} == {f"node-{n}": 100 for n in (1, 3, 4)}, s' device ls
check "fio went on all the time" wait "$fio_pid"
check "it leaves the cluster" "$cairn" node rm node-2
check "it is listed no more" is 'assert [n["name"] for n in s] == ["node-1", "node-3", "node-4"], s' node ls
check "nor is its device" is 'assert sorted(d["node"] for d in s) == ["node-1", "node-3", "node-4"], s' device ls
check "the cluster is whole" until_it_is 60 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status
check "what was written is there" load --verify_only=1
check "all copies are the same" "$cairn" check

# The only copy of something.
check "a pool of one copy is made" "$cairn" pool create alone --replicas 1
check "and a volume in it" "$cairn" volume create last --size 64M --pool alone --placement local:node-3
check "which is served there" until_it_is 30 'assert s["head"] == s["led_from"] == "node-3", s' volume info last
check "a node is killed" kill_node 3
rm -rf "$work/m3" "$work/m3.img"
check "status says whose data is gone with it" until_it_is 40 'f = [f for f in s["findings"] if "node-3 has not been heard of" in f["cause"]]
assert f and f[0]["severity"] == "stopped", s' status
"$cairn" status | sed -n '/node-3 has not/,/run /s/^/      status: /p'
check "it is not given up: groups are named that have no other copy" refused "no other member in sync" "$cairn" node rm node-3 --lost
sed 's/^/      refused: /' "$work/refused.out"
check "nor is its device" refused "no other member in sync" "$cairn" device rm "$work/m3.img" --lost
check "nor in thought" refused "no other member in sync" "$cairn" node rm node-3 --lost --dry-run
check "and nothing has begun" not_begun node-3 200
check "what has other copies is served" load --verify_only=1
for number in 1 4; do check "machine $number is stopped" stop $number; done
for number in 1 4; do check "its device has no fault" "$cairn" device check "$work/m$number.img"; done
finish

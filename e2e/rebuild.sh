#!/bin/bash
# etcd is lost, with all that is in it, while a volume is written and a copy is behind: the map is made anew of what nodes kept
# and their devices know, and nothing that was acknowledged is lost.
# Mostly waits.
# Time: 180 s.
. "$(dirname "$0")/lib.sh"

need rebuild etcd fio python3 || finish
. "$(dirname "$0")/machines.bash"

gather() { "$cairn" map gather --config "$work/m$1/node.toml" "$work/gathered$1.json"; }

begin_with_three
"$cairn" volume create a --size 256M > /dev/null
check "a volume is written" load --do_verify=1 --size=16M
check "a snapshot is made" "$cairn" snapshot create a@early
"$cairn" volume create b --size 64M > /dev/null
copied() {
    local tries
    for tries in $(seq 120); do grep -q '"name":"b"' "$work/m$1/map-copy.json" && return 0; sleep 0.25; done
    return 1
}
for number in 1 2 3; do check "node $number keeps a copy of the map" copied $number; done
check "which others cannot read" test "$(stat -c %a "$work/m1/map-copy.json")" = 600
check "a node that runs is not looked at" refused "stop the node" gather 3

# Of three copies one is behind from here on: who took it for one that counts would serve what was there before.
kill -KILL "${node_pid[3]}"; wait "${node_pid[3]}" 2> /dev/null
check "its copies are taken out" until_it_is 30 'assert s["groups_serving"] == 100 and any("node-3" in f["cause"] for f in s["findings"]), s' status
check "the volume is written without it" load --do_verify=1
lose_etcd
# Nothing of it is needed to read and write what is served.
check "what is served goes on without a map" load --do_verify=1 --size=8M
for number in 1 2; do kill -KILL "${node_pid[$number]}"; wait "${node_pid[$number]}" 2> /dev/null; done
start_etcd
check "a map with nothing in it serves nobody" refused "cairn map" timeout 60 "$cairn" node run --config "$work/m1/node.toml"

for number in 1 2 3; do check "what node $number knows is gathered" gather $number; done
check "others cannot read that, either" test "$(stat -c %a "$work/gathered1.json")" = 600
check "as long as somebody may know better nothing is made" refused "nothing, or not all, was gathered of" \
    "$cairn" map rebuild --config "$work/m1/node.toml" "$work/gathered3.json"
check "and it is said what to do" grep -q "cairn map gather" "$work/refused.out"
check "what is no such file is not taken" refused "cairn map gather" "$cairn" map rebuild --config "$work/m1/node.toml" "$work/m1/node.toml"
check "the map is made anew" "$cairn" map rebuild --config "$work/m1/node.toml" "$work/gathered1.json" "$work/gathered2.json" "$work/gathered3.json"
check "once" refused "is in that map already" "$cairn" map rebuild --config "$work/m1/node.toml" "$work/gathered1.json" "$work/gathered2.json" "$work/gathered3.json"

# The one that is behind is there first.
start 3
sleep 3
for number in 1 2; do start $number; done
for number in 1 2 3; do check "machine $number serves" serves $number; done
export CAIRN_ADMIN=$(admin_of 1)
check "the cluster is whole" until_it_is 60 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status
check "what was written is there" load --verify_only=1
check "so are volumes and snapshots" is 'assert [v["name"] for v in s] == ["a", "b"], s' volume ls
check "by their names" is 'assert [one["name"] for one in s] == ["early"], s' snapshot ls a
check "all copies are the same" "$cairn" check
check "what is made now has a number of its own" "$cairn" volume create c --size 64M
check "and what is written is read" load --do_verify=1
finish

#!/bin/bash
# Machines become a cluster by `cairn init` and `cairn join`, over IPv6: three begin, a fourth comes and is filled while a volume is
# written, one is emptied and goes; the map moves to
# another etcd; what cannot be is refused with the reason.
# Mostly waits.
# Time: 320 s (measured beside other work).
. "$(dirname "$0")/lib.sh"

need join etcd fio nbdinfo python3 || finish
. "$(dirname "$0")/machines.bash"

away="http://[::1]:$(free_port)"
check "an etcd that is away is named" refused "no etcd answers at $away" "$cairn" init --etcd "$away" --listen ::1 \
    --device "$work/m1.img" --dir "$work/m1" --nvme-port 0 --nbd-port 0 --admin-port 0 --peers-port "${peers[1]}"
check "there is no cluster to join yet" refused "cairn init" machine 2 join
check "all addresses are none" refused "--advertise" "$cairn" init --etcd "$etcd" --listen :: --device "$work/m1.img" --dir "$work/m1"
check "an address must be this machine's" refused "is no address of this machine" "$cairn" init --etcd "$etcd" \
    --listen 192.0.2.1 --device "$work/m1.img" --dir "$work/m1"
printf x | dd of="$work/m5.img" conv=notrunc 2> /dev/null
check "what is on a device is kept" refused "--force" machine 5 init
check "nothing was changed by all that" test ! -e "$work/m5/node.toml" -a ! -e "$work/m1"

check "a cluster begins" machine 1 init -o json
cp "$work/check.out" "$work/init.json"
said() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/init.json" "$1"; }
cluster=$(said cluster)
check "the line for the others names the cluster" sh -c 'case "$1" in *"--cluster $2"*) ;; *) exit 1 ;; esac' - "$(said join)" "$cluster"
rm "$work/m1/node.toml"
check "what was cut off before the file was there goes on" machine 1 init -o json
check "as the same node of the same cluster" sh -c 'grep -q "^node = 1$" "$1" && grep -q "$2" "$1"' - "$work/m1/node.toml" "$cluster"
check "a machine is one node" refused "node-1 already" machine 1 join
check "an etcd is one cluster's" refused "$cluster already" machine 2 init
check "another cluster is not joined" refused "not 0123456789abcdef0123456789abcdef" machine 2 join --cluster 0123456789abcdef0123456789abcdef
machine 2 join --cluster "$cluster" -o json > "$work/two" 2> "$work/two.err" & two=$!
machine 3 join --cluster "$cluster" -o json > "$work/three" 2> "$work/three.err" & three=$!
wait $two && wait $three
check "two that join at once have numbers of their own" python3 -c "
import json
assert {json.load(open('$work/' + name))['node'] for name in ('two', 'three')} == {2, 3}"
for number in 1 2 3; do start $number; done
for number in 1 2 3; do check "machine $number serves" serves $number; done
export CAIRN_ADMIN=$(admin_of 1)
check "three nodes are up" is 'assert [n["state"] for n in s] == ["up"] * 3, s' node ls
check "the cluster is whole" until_it_is 30 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status
# What is foretold takes bytes for spread over all groups.
"$cairn" volume create a --size 256M --placement spread > /dev/null
check "a volume is written over IPv6" load --do_verify=1

foretold() {
    machine 4 join --dry-run -o json | python3 -c "
import json, sys
s = json.load(sys.stdin)
assert s['node'] == 4 and 70 <= s['groups'] <= 80 and s['bytes'] > 20 << 20 and s['seconds'] > 0, s"
}
# Nodes say now and then how full their devices are.
until_foretold() { local tries; for tries in $(seq 20); do foretold 2> /dev/null && return 0; sleep 1; done; foretold; }
check "what a fourth would get is told" until_foretold
check "and nothing is done" test ! -e "$work/m4"
"$cairn" device ls -o json > "$work/join.before"
check "the fourth joins" machine 4 join -o json
cp "$work/check.out" "$work/join.order"
check "it is no fault that it was not started yet" is 'assert s["health"] == "healthy", s' status
load --time_based --runtime=15 --rate_iops=1000 --do_verify=0 > "$work/fio.out" 2>&1 &
fio_pid=$!
date +%s.%N > "$work/join.at"
start 4
check "it serves" serves 4
check "what is brought there is told" until_it_is 20 'd = [d for d in s["devices"] if d["node"] == "node-4"]
assert d and d[0]["groups"] + d[0]["groups_coming"] > 0 and s["doing"], s' status
check "it has its share, without any order" until_it_is 240 'assert all(71 <= d["groups"] <= 79 and d["groups_coming"] == 0 for d in s) and len(s) == 4, s' device ls
check "so much, in so long" as_foretold join
check "fio goes on all the time" wait "$fio_pid"
check "what was written before is there" load --verify_only=1

check "a node that holds copies is not removed" refused "drain" "$cairn" node rm node-1
check "what was copied away is dropped" until_it_is 60 'assert sum(d["live_bytes"] for d in s) < 150 << 20, s' device ls
check "a node is drained" order drain node drain node-1
export CAIRN_ADMIN=$(admin_of 4)
check "in the end nothing is on it" until_it_is 240 'n = [n for n in s if n["name"] == "node-1"]
assert n[0]["groups"] == 0 and n[0]["state"] == "drained", s' node ls
check "as much, in as long as was told" as_foretold drain
check "while it runs it is not removed" refused "still runs" "$cairn" node rm node-1
check "it is stopped" stop 1
removed() { local tries; for tries in $(seq 30); do "$cairn" node rm node-1 && return 0; sleep 1; done; return 1; }
check "it leaves the cluster" removed
check "it is listed no more" is 'assert [n["name"] for n in s] == ["node-2", "node-3", "node-4"], s' node ls
check "it does not come back by itself" refused "store" timeout 30 "$cairn" node run --config "$work/m1/node.toml"
check "what was written is there" load --verify_only=1

# The map moves: it is exported when no node changes it any more, and put into an etcd that has nothing.
for number in 2 3 4; do check "machine $number is stopped" stop $number; done
check "the map is exported" "$cairn" map export --config "$work/m4/node.toml" "$work/map.json"
check "others cannot read it" test "$(stat -c %a "$work/map.json")" = 600
check "a map with a cluster takes none" refused "is in that map already" "$cairn" map import --config "$work/m4/node.toml" "$work/map.json"
lose_etcd
start_etcd
check "a map with nothing in it serves nobody" refused "cairn map import" timeout 60 "$cairn" node run --config "$work/m4/node.toml"
check "what is no map is not taken" refused "is no export" "$cairn" map import --config "$work/m4/node.toml" "$work/m4/node.toml"
check "the map is imported" "$cairn" map import --config "$work/m4/node.toml" "$work/map.json"
for number in 2 3 4; do start $number; done
for number in 2 3 4; do check "machine $number serves" serves $number; done
export CAIRN_ADMIN=$(admin_of 4)
check "the cluster is whole" until_it_is 60 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status
check "what was written is there" load --verify_only=1
check "a volume that is made now has a number of its own" "$cairn" volume create b --size 64M
check "a snapshot too" "$cairn" snapshot create a@later
check "and what is written is read" load --do_verify=1
finish

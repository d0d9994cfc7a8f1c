#!/bin/bash
# Devices and nodes are emptied, rest and go while a volume is written; what is told meanwhile is true, and nothing is lost.
# Mostly waits.
# Time: 120 s.
. "$(dirname "$0")/lib.sh"

need duties fio python3 || finish

load() {
    fio --name=a --ioengine=nbd --uri="$(field a nbd_uri)" --rw=randwrite --bs=4k --iodepth=8 --size=48M \
        --verify=crc32c --verify_fatal=1 --eta=never "$@"
}
device() { echo "$work/d/node-$1/device-1.img"; }

start_demo --nodes 3 --replicas 2 --device-size 1G --volume a:256M
check "the volume is written" load --do_verify=1
# Leads are spread over the nodes in the first seconds.
check "nothing is being done, and every device holds its share" until_it_is 30 'assert s["doing"] == [] and s["at_risk"] == [], s
assert all(d["groups"] >= 95 and d["duty"] == "in" for d in s["devices"]), s' status
check "a device that holds copies is not removed" refused "drain" "$cairn" device rm "$(device 1)"
check "what a drain would move is told, and not begun" is 'assert not s["begun"] and s["groups"] >= 95, s
assert {g["node"] for g in s["gets"]} <= {"node-2", "node-3"} and s["led_elsewhere"] > 0, s' device drain "$(device 1)" --dry-run
check "that was all" is 'assert not [d for d in s["doing"] if d["kind"] == "drain"], s' status

load --time_based --runtime=20 --rate_iops=1500 --do_verify=0 > "$work/fio.out" 2>&1 &
fio_pid=$!
check "the device is drained while the volume is written" is 'assert s["begun"], s' device drain "$(device 1)"
check "status says what is done, and when it ends" until_it_is 10 'd = [d for d in s["doing"] if d["kind"] == "drain"]
assert d and d[0]["groups_left"] > 0 and d[0]["ends_at"] and not s["at_risk"], s' status
check "people are told so, too" sh -c '"$1" status | grep -Eq "device .* is (being )?drained"' - "$cairn"
check "in the end nothing is on it" until_it_is 60 'd = [d for d in s if d["node"] == "node-1"]
assert d[0]["groups"] == 0 and d[0]["duty"] == "draining", s' device ls
check "and its space is free: what was copied away is dropped" until_it_is 60 'd = [d for d in s if d["node"] == "node-1"]
assert d[0]["live_bytes"] == 0, s' device ls
check "each copy is on the others" is 'assert all(d["groups"] == 150 for d in s if d["node"] != "node-1"), s' device ls
check "fio goes on all the time" wait "$fio_pid"
check "what was written before is there" load --verify_only=1
check "status says what to do next" is 'd = [d for d in s["doing"] if d["kind"] == "drain"]
assert d[0]["command"].startswith("cairn device rm "), s' status

check "it is taken back" "$cairn" device undrain "$(device 1)"
check "and gets its share again" until_it_is 60 'assert all(d["groups"] >= 95 and d["groups_coming"] == 0 for d in s) and sum(d["groups"] for d in s) == 300, s' device ls

check "a node rests" "$cairn" node maintenance node-2 --minutes 5
check "status says so" is 'assert [d["subject"] for d in s["doing"] if d["kind"] == "maintenance"] == ["node-2"], s' status
check "and it works again" "$cairn" node undrain node-2

check "a node is drained" "$cairn" node drain node-3
check "a node that holds copies is not removed" refused "drain" "$cairn" node rm node-3
check "in the end nothing is on it, either" until_it_is 60 'n = [n for n in s if n["name"] == "node-3"]
assert n[0]["groups"] == 0 and n[0]["duty"] == "draining", s' node ls
check "what was written is there" load --verify_only=1
check "it leaves the cluster" "$cairn" node rm node-3
check "no last node can be drained" refused "copies need" "$cairn" node drain node-2
check "everything is as it should be" until_it_is 30 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"], s' status
stop_demo
for node in 1 2 3; do
    check "node $node's device has no fault" "$cairn" device check "$(device $node)"
done
finish

#!/bin/bash
# What `cairn status` says of three nodes: what is the matter, what is being done, when that ends, and what to run.
# Time: 60 s.
. "$(dirname "$0")/lib.sh"

need status fio python3 || finish

says() { "$cairn" status | grep -q -- "$1"; }
device() { echo "$work/d/node-$1/device-1.img"; }

start_demo --nodes 3 --replicas 2 --device-size 2G --volume a:1G
check "of a healthy cluster nothing is told" until_it_is 10 'assert s["health"] == "healthy" and s["findings"] == s["reasons"] == [], s' status
check "nodes say name, process, state and addresses" is 'assert len(s) == 3
for n in s: assert n["name"] and n["pid"] > 0 and n["state"] == "up" and n["nvme_address"] and n["nbd_address"], n' node ls
fio --name=a --ioengine=nbd --uri="$(field a nbd_uri)" --rw=write --bs=64k --iodepth=8 --size=1000M --eta=never > "$work/fio.out" 2>&1

check "a node rests" "$cairn" node maintenance node-2 --minutes 5
check "status says which, until when, and how it ends" until_it_is 10 'f = [f for f in s["findings"] if "maintenance" in f["cause"]][0]
assert f["severity"] == "ok" and f["doing"]["subject"] == "node-2" and f["doing"]["ends_at"], f
assert f["doing"]["ends"].startswith("in about ") and f["command"] == "cairn node undrain node-2" and s["health"] == "healthy", s' status
check "so does the list of nodes" is 'assert [n["state"] for n in s] == ["up", "maintenance", "up"], s' node ls
check "people are told, too" says "- note: node-2 is in maintenance"
check "it works again" "$cairn" node undrain node-2

# Copies give way to a client: there is time to look at them.
fio --name=a --ioengine=nbd --uri="$(field a nbd_uri)" --rw=randwrite --bs=4k --iodepth=8 --size=1000M --rate_iops=1500 --time_based \
    --runtime=20 --eta=never > "$work/fio.out" 2>&1 & fio_pid=$!
check "a device is drained" "$cairn" device drain "$(device 1)"
check "status says what is left, how fast that goes and when it ends" until_it_is 30 'd = [d for d in s["doing"] if d["kind"] == "drain"][0]
assert d["groups_left"] > 0 and d["bytes_left"] > 0 and d["ends_at"] and d["ends"].startswith("in about "), d
assert d["command"].startswith("cairn device undrain ") and s["health"] != "unavailable" and not s["at_risk"], s' status
check "people are told, too" says "    ends     "
timeout 3 "$cairn" status --watch > "$work/watch.out"
check "who watches is told again and again" sh -c 'test "$(grep -c "^health" "$1")" -ge 2' - "$work/watch.out"
check "who reads no more of it ends it" sh -c 'timeout 10 "$1" status --watch | head -1 | grep -q "^health"' - "$cairn"
check "the client goes on all the time" wait "$fio_pid"
check "in the end it says what to run" until_it_is 60 'f = [f for f in s["findings"] if f["doing"] and f["doing"]["kind"] == "drain"][0]
assert f["cause"].endswith("is drained") and f["command"].startswith("cairn device rm "), f' status
check "that command does it" sh -c '"$1" "device" "rm" "$2"' - "$cairn" "$(device 1)"
check "then nothing is told" until_it_is 20 'assert s["health"] == "healthy" and not s["doing"], s' status
stop_demo
finish
